"""Measure how fast images are corrupted on the device, compared with the host.

    python -m benchmarks.corruptions [--side=224] [--batch=16] [--names=fog,snow]

Images per second for each corruption of ImageNet-C and ImageNet-C-bar at one severity: a
compiled batch on the device, including its random draws, and one image after another in one
thread of the host, in turns. Photographs of frost are replaced by drawn pictures of
1000 x 1000 pixels. Writes benchmarks/results/corruptions-<side>-<backend>.json and .md.

Takes about ten minutes on two cores.
"""

import argparse
import pathlib
import statistics
import tempfile
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import UInt8
from PIL import Image
from scipy import ndimage

from benchmarks import result_files, timing
from jbias.augment import corrupt
from jbias.data import corruptions
from jbias.data.corruptions import host_operations


def draw_pictures(count: int, side: int) -> UInt8[np.ndarray, "b h w 3"]:
    """Return random pictures of smooth colours with some noise."""
    rng = np.random.default_rng(0)
    x = ndimage.gaussian_filter(rng.normal(size=(count, side, side, 3)), (0, 9, 9, 0))
    x = 128 + 50 * x / x.std() + rng.normal(0, 5, x.shape)
    return np.clip(x, 0, 255).astype(np.uint8)


def on_device(
    name: str, images: np.ndarray, severity: int, frost_folder: str
) -> Callable:
    """Return a function that corrupts the batch on the device and waits for it.

    name: corruption. frost_folder: folder of the photographs of frost.
    """
    side = images.shape[1]
    batch = jnp.asarray(images / np.float32(255))
    settings = corruptions.settings(
        name, severity, side=side, table=_table_side(side), frost=frost_folder
    )
    settings = jax.tree.map(jnp.asarray, settings)
    keys = jax.random.split(jax.random.key(0), len(images))

    @jax.jit
    def corrupt_batch(images, keys, settings):
        return corrupt.corrupt_batch(images, keys, name=name, settings=settings)

    return lambda: corrupt_batch(batch, keys, settings).block_until_ready()


def on_host(
    name: str, images: np.ndarray, severity: int, frost_folder: str
) -> Callable:
    """Return a function that corrupts images one after another on the host.

    name: corruption. frost_folder: folder of the photographs of frost.
    """
    table = _table_side(images.shape[1])

    def run() -> None:
        for number, image in enumerate(images):
            rng = np.random.default_rng(number)
            corruptions.corrupt(
                image, name, severity, rng, table=table, frost=frost_folder
            )

    return run


def _table_side(side: int) -> int:
    """Return the image side whose published settings are used for `side` pixels."""
    return side if side in corruptions.SIDES else max(corruptions.SIDES)


def measure(
    options: argparse.Namespace, frost_folder: str
) -> dict[str, dict[str, list[float]]]:
    """Return images per second in each round, by corruption and "device" or "host"."""
    images = draw_pictures(options.batch, options.side)
    host_images = images[: options.host]
    counts = {"device": len(images), "host": len(host_images)}
    names = options.names.split(",") if options.names else corruptions.KNOWN
    rates = {}
    for name in names:
        variants = {
            "device": on_device(name, images, options.severity, frost_folder),
            "host": on_host(name, host_images, options.severity, frost_folder),
        }
        seconds = timing.in_turns(variants, options.rounds, warm=1)
        rates[name] = {
            place: [counts[place] / turn for turn in turns]
            for place, turns in seconds.items()
        }
    return rates


def main() -> None:
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--side",
        type=int,
        default=224,
        help="image side in pixels (default: %(default)s)",
    )
    add(
        "--batch",
        type=int,
        default=16,
        help="images of a turn on the device (default: %(default)s)",
    )
    add(
        "--host",
        type=int,
        default=4,
        help="images of a turn on the host (default: %(default)s)",
    )
    add("--severity", type=int, default=3, help="1 to 5 (default: %(default)s)")
    add("--names", default="", help="corruptions, with commas (default: all)")
    add(
        "--rounds",
        type=int,
        default=5,
        help="rounds in which both take a turn (default: %(default)s)",
    )
    add(
        "--out",
        type=pathlib.Path,
        default=result_files.RESULTS,
        metavar="DIR",
        help="folder for the results (default: benchmarks/results)",
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as frost_folder:
        for name in host_operations.FROSTS:
            picture = Image.fromarray(draw_pictures(1, 1000)[0])
            picture.save(pathlib.Path(frost_folder) / name, "PNG")
        rates_by_name = measure(options, frost_folder)
    ratios, rows = {}, []
    for name, rates in rates_by_name.items():
        ratios[name] = statistics.median(
            a / b for a, b in zip(rates["device"], rates["host"], strict=True)
        )
        row = (
            name,
            f"{statistics.median(rates['device']):,.0f}",
            f"{statistics.median(rates['host']):,.0f}",
            f"{ratios[name]:.1f}",
        )
        rows.append(row)
    head = ("images per second", "device", "host, one thread", "ratio")
    result_files.write(
        f"corruptions-{options.side}-{jax.default_backend()}",
        rates_by_name,
        result_files.markdown(head, rows),
        ratios=ratios,
        out=options.out,
        options={k: v for k, v in vars(options).items() if k != "out"},
    )


if __name__ == "__main__":
    main()
