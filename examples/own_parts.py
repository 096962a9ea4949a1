"""A data set, a network, a transform and a measure of your own, and a config that uses them.

jbias train --config=examples/own_parts.py:smoke
"""

from collections.abc import Callable

import jax
import numpy as np
from flax import linen as nn

from jbias import data
from jbias.configs import common
from jbias.measures import decisions
from jbias.models import taps

FILE = "examples/own_parts.py"


def get_config(arg=""):
    """Return a config: ERM with all parts of this file."""
    c = common.experiment(arg, dict(name="erm"))
    with c.unlocked():
        c.model = dict(name=f"{FILE}:Net", width=8)
        c.inputs = (dict(name=f"{FILE}:dimmed", most=0.5),)
        discs_name, measures = f"{FILE}:discs", ("accuracy", f"{FILE}:called_red")
        c.train = dict(data=discs_name, split="train[:80%]", n=160, batch=32)
        c.valid = dict(data=discs_name, split="train[80%:]", n=160)
        c.tests = {"far": dict(data=discs_name, split="far", n=160, measures=measures)}
    return c


def discs(split, *, size=32, n=160):
    """Return images of red and green discs: central, or in "far" near the border."""
    rng = np.random.default_rng(1 if split == "far" else 0)
    images, labels = np.zeros((n, size, size, 3), np.uint8), np.arange(n) % 2
    offset = size // 3 if split == "far" else 0
    centres = (
        size // 2 + offset * rng.choice((-1, 1), (n, 2)) + rng.integers(-2, 3, (n, 2))
    )
    rows, columns = np.mgrid[:size, :size]
    for image, label, (y, x) in zip(images, labels, centres, strict=True):
        image[(rows - y) ** 2 + (columns - x) ** 2 < size, label] = 200
    return data.from_arrays(f"discs/{split}", images, labels, ("red", "green"))


class Net(nn.Module):
    """A convolution and a linear layer, with one site."""

    classes: int
    width: int = 8
    tap: Callable | None = None

    @nn.compact
    def __call__(self, image, key=None, *, train=False):
        x = nn.relu(nn.Conv(self.width, (3, 3), 2)(image - 0.5))
        x = taps.through(self, x, "conv", key, train)
        return nn.Dense(self.classes)(x.mean((1, 2)))


def dimmed(*, most=0.3):
    """Return a transform that darkens each image by a random fraction up to `most`."""

    def apply(batch, key):
        scale = 1 - most * jax.random.uniform(key, (len(batch["image"]), 1, 1, 1))
        return {**batch, "image": scale * batch["image"]}

    return apply


def called_red(decided):
    """Return the share of images predicted as red."""
    return [decisions.mean("called_red", decided.prediction == 0)]
