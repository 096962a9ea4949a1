"""Measure how often a style transfer keeps the shape, and how often it carries the texture.

    python -m studies.style_rates
    python -m studies.style_rates --size=64 --vgg=FILE

Trains two classifiers, of the shape and of the texture, on images of the embedded set in which the
two are independent. Each of 960 test images then takes the texture of another image of its group
of 32. `shape` is the share of images whose own shape is still recognised, `texture` the share
whose new texture is recognised. Prints both for each transfer, and writes
studies/results/style-rates-SIZE.json.

Takes about 15 minutes on two cores (an estimate).
"""

import datetime
import json
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np

from jbias import data, errors, models
from jbias.algos import erm
from jbias.training import optim, prng
from jbias.training import step as train_step
from studies import command

ROOT = pathlib.Path(__file__).parents[1]
GROUP, TESTED = 32, 960
WITHOUT_FILE = ("render", "small")  # Transfers that need no file of weights.
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
    parser = command.parser("style_rates", __doc__)
    parser.add_argument(
        "--transfers",
        default="render,small",
        help="render, small or both, separated by commas; for vgg use --vgg "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--size",
        type=int,
        default=32,
        metavar="PIXELS",
        help="image side in pixels (default: %(default)s)",
    )
    parser.add_argument(
        "--small",
        metavar="FILE",
        help="file with the weights of the transfer small (default: the package's)",
    )
    parser.add_argument(
        "--vgg",
        metavar="FILE",
        help="file or folder with the weights of the transfer vgg, to measure it, too (default: "
        "do not measure vgg)",
    )
    options = parser.parse_args()
    transfers = {}
    for name in options.transfers.split(","):
        if name not in WITHOUT_FILE:
            hint = errors.suggest(name, WITHOUT_FILE)
            parser.error(f"--transfers: no {name!r}; {hint}; for vgg use --vgg=FILE")
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
