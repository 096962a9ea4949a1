"""Measure how often a style transfer keeps the shape, and how often it carries the texture.

    python -m studies.style_rates [--transfers=render,small] [--size=32] [--vgg=FILE]

Two classifiers learn the shape and the texture of the embedded set, in which the two are
independent. Each test image then takes the texture of another image of its group of 32.
`shape` is the share of images whose own shape is still recognised, `texture` the share
whose new texture is recognised. Writes studies/results/style-rates-<size>.json.

Takes about five minutes on two cores.
"""

import argparse
import datetime
import json
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np

from jbias import data, models
from jbias.algos import erm
from jbias.training import optim, prng
from jbias.training import step as train_step

ROOT = pathlib.Path(__file__).parents[1]
GROUP, TESTED = 32, 960
COLUMNS = {"shape": "label", "texture": "attribute"}  # Of the embedded set, by cue.
BATCH, RATE, WARMUP = 64, 0.1, 50


def train_classifier(cue: str, size: int, *, n: int = 8192, epochs: int = 12):
    """Train a small ResNet-18 to recognise a cue; return a function from images to classes.

    cue: shape or texture. size: image side in pixels. n: number of training images.
    """
    train_set = data.load("shapes", "train", correlation=1 / 16, size=size, n=n)
    net = models.MODELS["resnet18"](16, width=16, stem="small")
    algo, total = erm.make(net), n // BATCH * epochs
    rate = optim.with_warmup(optim.cosine(RATE, total - WARMUP), RATE, WARMUP)
    txs = (optim.sgd(rate, momentum=0.9, decay=5e-4),)
    state = train_step.init(algo, txs, prng.key(0), jnp.zeros((1, size, size, 3)))
    advance = jax.jit(train_step.make_step(algo, txs), donate_argnums=0)
    classes, rng = train_set.columns[COLUMNS[cue]], np.random.default_rng(0)
    for _ in range(epochs):
        order = rng.permutation(n)[: n // BATCH * BATCH]
        for rows in order.reshape(-1, BATCH):
            image = train_set.images[rows].astype(np.float32) / 255
            target = jax.nn.one_hot(classes[rows], 16)
            state, _ = advance(state, {"image": image, "target": target}, prng.key(0))
    variables = {"params": state.params["net"], "stats": state.stats["net"]}
    return jax.jit(lambda image: net.apply(variables, image).argmax(-1))


def rates(transfers: dict, size: int, **options) -> dict[str, dict[str, float]]:
    """Return the share of recognised shapes and textures, without and with each transfer.

    transfers: style transfers by name. size: image side in pixels. options: further
    arguments of `train_classifier`.
    """
    classifiers = {cue: train_classifier(cue, size, **options) for cue in COLUMNS}
    test = data.load(
        "shapes", "test", correlation=1 / 16, size=size, n=TESTED, renders=True
    )
    order = np.random.default_rng(1).permuted(
        np.arange(TESTED).reshape(-1, GROUP), axis=1
    )
    rates_by_name = {}
    for name, transfer in {"plain": None, **transfers}.items():
        is_right = {cue: [] for cue in COLUMNS}
        stylise = jax.jit(lambda batch, rows, t=transfer: _stylise(t, batch, rows))
        for style_rows in order:
            start = style_rows.min()
            rows = np.arange(start, start + GROUP)
            batch = {
                "image": test.images[rows].astype(np.float32) / 255,
                "renders": test.arrays["renders"][rows],
                "attribute": test.columns["attribute"][rows],
            }
            image = stylise(batch, style_rows - start) if transfer else batch["image"]
            true_rows = {"shape": rows, "texture": style_rows if transfer else rows}
            for cue, cue_rows in true_rows.items():
                predicted = np.asarray(classifiers[cue](image))
                is_right[cue].append(predicted == test.columns[COLUMNS[cue]][cue_rows])
        rates_by_name[name] = {cue: float(np.mean(x)) for cue, x in is_right.items()}
    return rates_by_name


def _stylise(transfer, batch, rows):
    """Return the images of a batch, each in the style of the image in `rows`."""
    image = transfer(batch, lambda tree: jax.tree.map(lambda x: x[rows], tree), 1.0)
    _, height, width, _ = batch["image"].shape
    return jnp.clip(image[:, :height, :width], 0, 1)


def main() -> None:
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--transfers",
        default="render,small",
        help="style transfers to measure, with commas (default: %(default)s)",
    )
    parser.add_argument(
        "--size",
        type=int,
        default=32,
        help="image side in pixels (default: %(default)s)",
    )
    parser.add_argument(
        "--small",
        metavar="FILE",
        help="weights of the transfer `small` (default: those of the package)",
    )
    parser.add_argument(
        "--vgg",
        metavar="FILE",
        help="weights of the transfer `vgg`; measure it as well",
    )
    options = parser.parse_args()
    transfers = {}
    for name in options.transfers.split(","):
        if name == "small" and options.small:
            transfers[name] = models.TRANSFERS[name](weights=options.small)
        else:
            transfers[name] = models.TRANSFERS[name]()
    if options.vgg:
        transfers["vgg"] = models.TRANSFERS["vgg"](weights=options.vgg)
    rates_by_name = rates(transfers, options.size)
    for name, by_cue in rates_by_name.items():
        print(name, *(f"{cue} {rate:.3f}" for cue, rate in by_cue.items()))
    result = {
        "date": datetime.date.today().isoformat(),
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
        "size": options.size,
        "images": TESTED,
        "rates": rates_by_name,
    }
    path = ROOT / "studies" / "results" / f"style-rates-{options.size}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{path.relative_to(ROOT)} written", file=sys.stderr)


if __name__ == "__main__":
    main()
