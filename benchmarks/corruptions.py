"""How fast images are corrupted on the device, and on the host.

    python -m benchmarks.corruptions [--side=224] [--batch=16] [--names=fog,snow]

Images a second of each corruption of ImageNet-C and ImageNet-C-bar at one severity: a
compiled batch on the device, with its draws, beside the host's, one image at a time on
one thread. They take turns. Photographs of frost are drawn, of 1000 by 1000 pixels.
Writes benchmarks/results/corruptions-<side>-<device>.json and .md.
"""

import argparse
import functools
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

from benchmarks import measured
from jbias.augment import corrupt
from jbias.data import corruptions
from jbias.data.corruptions import kernels


def pictures(count: int, side: int) -> UInt8[np.ndarray, "b h w 3"]:
    """Smooth colours with some noise."""
    rng = np.random.default_rng(0)
    x = ndimage.gaussian_filter(rng.normal(size=(count, side, side, 3)), (0, 9, 9, 0))
    x = 128 + 50 * x / x.std() + rng.normal(0, 5, x.shape)
    return np.clip(x, 0, 255).astype(np.uint8)


def on_device(name: str, images: np.ndarray, severity: int, ice: str) -> Callable:
    """Corrupts the batch, and waits for it."""
    side = images.shape[1]
    held = jnp.asarray(images / np.float32(255))
    made = corruptions.settings(
        name, severity, side=side, table=_table(side), frost=ice
    )
    made = jax.tree.map(jnp.asarray, made)
    keys = jax.random.split(jax.random.key(0), len(images))
    run = jax.jit(functools.partial(corrupt.corrupt_batch, name=name))

    return lambda: run(held, keys, settings=made).block_until_ready()


def on_host(name: str, images: np.ndarray, severity: int, ice: str) -> Callable:
    """Corrupts some images, one after another."""
    table = _table(images.shape[1])

    def run() -> None:
        for number, image in enumerate(images):
            rng = np.random.default_rng(number)
            corruptions.corrupt(image, name, severity, rng, table=table, frost=ice)

    return run


def _table(side: int) -> int:
    return side if side in corruptions.SIDES else max(corruptions.SIDES)


def measure(options: argparse.Namespace, ice: str) -> dict[str, dict[str, list[float]]]:
    """Images a second in each round, of each corruption on both."""
    images = pictures(options.batch, options.side)
    few = images[: options.host]
    names = options.names.split(",") if options.names else corrupt.CORRUPTIONS
    found = {}
    for name in names:
        ways = {
            "device": on_device(name, images, options.severity, ice),
            "host": on_host(name, few, options.severity, ice),
        }
        count = {"device": len(images), "host": len(few)}
        seconds = measured.in_turns(ways, options.rounds, warm=1)
        found[name] = {
            way: [count[way] / s for s in each] for way, each in seconds.items()
        }
    return found


def main() -> None:
    """Measures, prints and writes the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--side", type=int, default=224)
    add("--batch", type=int, default=16)
    add("--host", type=int, default=4, help="images of a turn on the host")
    add("--severity", type=int, default=3)
    add("--names", default="", help="all, or some with commas between them")
    add("--rounds", type=int, default=5)
    add("--out", type=pathlib.Path, default=measured.RESULTS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as ice:
        for name in kernels.FROSTS:
            Image.fromarray(pictures(1, 1000)[0]).save(pathlib.Path(ice) / name, "PNG")
        found = measure(options, ice)
    ratios = {
        name: statistics.median(
            a / b for a, b in zip(rates["device"], rates["host"], strict=True)
        )
        for name, rates in found.items()
    }
    rows = [
        (
            name,
            *(f"{statistics.median(rates[way]):,.0f}" for way in ("device", "host")),
            f"{ratios[name]:.1f}",
        )
        for name, rates in found.items()
    ]
    heading = ("images a second", "device", "host, one thread", "ratio")
    measured.write(
        f"corruptions-{options.side}-{jax.default_backend()}",
        found,
        measured.markdown(heading, rows),
        ratios=ratios,
        out=options.out,
        options={k: v for k, v in vars(options).items() if k != "out"},
    )


if __name__ == "__main__":
    main()
