"""Does a style transfer keep the shape and carry the texture? Both rates, measured.

    python -m benchmarks.style_rates [--transfers=render,small] [--size=32] [--vgg=FILE]

Two readers learn the shape and the texture of the embedded set, where neither tells the
other. Each test image then takes the texture of another one of its 32; `shape` is the
share whose own shape is still read, `texture` the share whose new texture is read. Writes
benchmarks/results/style-rates-<size>.json.
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
READ = {"shape": "label", "texture": "attribute"}
BATCH, RATE, WARMUP = 64, 0.1, 50


def reader(column: str, size: int, *, n: int = 8192, epochs: int = 12):
    """Trains a small ResNet-18 to read a column; returns image -> class."""
    drawn = data.load("shapes", "train", correlation=1 / 16, size=size, n=n)
    net = models.MODELS["resnet18"](16, width=16, stem="small")
    algo, total = erm.make(net), n // BATCH * epochs
    rate = optim.with_warmup(optim.cosine(RATE, total - WARMUP), RATE, WARMUP)
    txs = (optim.sgd(rate, momentum=0.9, decay=5e-4),)
    state = train_step.init(algo, txs, prng.key(0), jnp.zeros((1, size, size, 3)))
    advance = jax.jit(train_step.make_step(algo, txs), donate_argnums=0)
    classes, rng = drawn.columns[READ[column]], np.random.default_rng(0)
    for _ in range(epochs):
        order = rng.permutation(n)[: n // BATCH * BATCH]
        for rows in order.reshape(-1, BATCH):
            image = drawn.images[rows].astype(np.float32) / 255
            target = jax.nn.one_hot(classes[rows], 16)
            state, _ = advance(state, {"image": image, "target": target}, prng.key(0))
    variables = {"params": state.params["net"], "stats": state.stats["net"]}
    return jax.jit(lambda image: net.apply(variables, image).argmax(-1))


def rates(transfers: dict, size: int, **options) -> dict[str, dict[str, float]]:
    """Reads the test set plain and after each transfer; shares of 1."""
    readers = {name: reader(name, size, **options) for name in READ}
    test = data.load(
        "shapes", "test", correlation=1 / 16, size=size, n=TESTED, renders=True
    )
    order = np.random.default_rng(1).permuted(
        np.arange(TESTED).reshape(-1, GROUP), axis=1
    )
    found = {}
    for name, transfer in {"plain": None, **transfers}.items():
        right = {kind: [] for kind in READ}
        styled = jax.jit(lambda batch, rows, t=transfer: _styled(t, batch, rows))
        for group in order:
            start = group.min()
            own = np.arange(start, start + GROUP)
            batch = {
                "image": test.images[own].astype(np.float32) / 255,
                "renders": test.arrays["renders"][own],
                "attribute": test.columns["attribute"][own],
            }
            image = styled(batch, group - start) if transfer else batch["image"]
            asked = {"shape": own, "texture": group if transfer else own}
            for kind, rows in asked.items():
                read = np.asarray(readers[kind](image))
                right[kind].append(read == test.columns[READ[kind]][rows])
        found[name] = {kind: float(np.mean(x)) for kind, x in right.items()}
    return found


def _styled(transfer, batch, rows):
    image = transfer(batch, lambda tree: jax.tree.map(lambda x: x[rows], tree), 1.0)
    return jnp.clip(
        image[:, : batch["image"].shape[1], : batch["image"].shape[2]], 0, 1
    )


def main() -> None:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--transfers", default="render,small")
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--small", help="weights of `small` other than the shipped")
    parser.add_argument("--vgg", help="weights of `vgg`, which is measured with them")
    options = parser.parse_args()
    made = {}
    for name in options.transfers.split(","):
        given = {"weights": options.small} if name == "small" else {}
        made[name] = models.TRANSFERS[name](**given)
    if options.vgg:
        made["vgg"] = models.TRANSFERS["vgg"](weights=options.vgg)
    found = rates(made, options.size)
    for name, both in found.items():
        print(name, *(f"{kind} {rate:.3f}" for kind, rate in both.items()))
    result = {
        "date": datetime.date.today().isoformat(),
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
        "size": options.size,
        "images": TESTED,
        "rates": found,
    }
    path = ROOT / "benchmarks" / "results" / f"style-rates-{options.size}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{path.relative_to(ROOT)} written", file=sys.stderr)


if __name__ == "__main__":
    main()
