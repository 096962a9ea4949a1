"""Stored losses and gradients of DomainBed's algorithms, and a network to compare with.

The files are written by tests/oracles/domainbed_meta.py.
"""

import functools
import json
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from jbias.algos import base
from tests.methods import Columns

ORACLES = pathlib.Path(__file__).parent / "oracles"
ENVIRONMENTS = 3
COLUMNS = Columns(label=np.arange(30) % 3, domain=np.arange(30) // 10)
KEY = jax.random.key(0)


class Perceptron(nn.Module):
    """DomainBed's network for vectors with one hidden layer, and a linear classifier."""

    classes: int = 3
    width: int = 8
    tap: Any = None  # Not used; networks of this package have one.

    @nn.compact
    def __call__(self, image, key=None, *, train=False):
        x = nn.relu(nn.Dense(self.width, name="input")(image.reshape(len(image), -1)))
        return nn.Dense(self.classes, name="fc")(nn.Dense(self.width, name="output")(x))


class Update(NamedTuple):
    """A stored update of an algorithm: its batch, and the reference's results."""

    options: dict[str, Any]
    number: int  # Of the update, from 0 on.
    batch: dict[str, Any]
    values: dict[str, float]  # Such as "loss".
    gradients: dict[str, Any]  # A tree like the network's parameters.
    order: list[int] | None  # The reference's order of the environments.


def _tree(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Return tensors of DomainBed's network as parameters of `Perceptron`."""
    tree = {}
    for name, layer in {"0.input": "input", "0.output": "output", "1": "fc"}.items():
        kernel = np.asarray(tensors[f"{name}.weight"], np.float32).T
        bias = np.asarray(tensors[f"{name}.bias"], np.float32)
        tree[layer] = {"kernel": kernel, "bias": bias}
    return tree


@functools.cache
def load() -> dict[str, Any]:
    """Return the stored file."""
    return json.loads((ORACLES / "domainbed_meta.json").read_text())


@functools.cache
def weights() -> dict[str, Any]:
    """Return the parameters of the network of all stored updates."""
    return _tree(load()["weights"])


def updates(name: str) -> Iterator[list[Update]]:
    """Yield the consecutive updates of each stored case of an algorithm."""
    stored = load()
    for case in stored["cases"]:
        if case["name"] != name:
            continue
        rows = case["rows"]
        sequence = []
        for number, result in enumerate(case["batches"]):
            label = np.asarray(stored["labels"][number])[rows]
            image = np.asarray(stored["inputs"][number], np.float32)[rows]
            batch = {
                "image": jnp.asarray(image)[:, None, None],
                "target": jnp.eye(3)[label],
                "domain": jnp.asarray(stored["environments"])[np.asarray(rows)],
            }
            gradients = _tree(result["gradients"])
            sequence.append(
                Update(
                    case["options"],
                    number,
                    batch,
                    result["values"],
                    gradients,
                    result["order"],
                )
            )
        yield sequence


def initial_stats(algo: base.Algo) -> dict[str, Any]:
    """Return the statistics of the network, which has none, and of the algorithm's parts."""
    stats = {"net": {}}
    for name, part in algo.parts.items():
        stats[name] = part(KEY, None, {"params": weights()})["stats"]
    return stats


def compiled(algo: base.Algo, *, static: Any = None) -> Callable:
    """Return compute(batch, stats=None, key=KEY) -> (loss, gradient, `base.Aux`).

    The loss is that which the algorithm minimises, the gradient that of the network. stats:
    None: the initial statistics.
    """

    def loss(net_params, stats, batch, key):
        """Return the loss of the only update, and `base.Aux`."""
        named, aux = algo.losses({"net": net_params}, stats, batch, key, static)
        return named[algo.updates[0].loss], aux

    step = jax.jit(jax.value_and_grad(loss, has_aux=True))

    def compute(batch, stats=None, key=KEY):
        """Return loss, gradient and `base.Aux` of a batch; see `compiled`."""
        stats = initial_stats(algo) if stats is None else stats
        (value, aux), grads = step(weights(), stats, batch, key)
        return float(value), grads, aux

    return compute


def assert_equal(update: Update, value: float, grads: Mapping[str, Any]) -> None:
    """Assert that loss and gradient are the reference's, to 1e-6 and 1e-5 of the largest."""
    np.testing.assert_allclose(value, update.values["loss"], rtol=1e-6)
    leaves = jax.tree.leaves(update.gradients)
    largest = max(np.abs(g).max() for g in leaves)
    for ours, reference in zip(jax.tree.leaves(grads), leaves, strict=True):
        np.testing.assert_allclose(ours, reference, rtol=0, atol=1e-5 * largest)
