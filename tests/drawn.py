"""Networks with the weights that oracles drew by the published names of tensors."""

import functools
import pathlib
import re
import runpy
import sys

import jax
import jax.numpy as jnp
import numpy as np

ORACLES = pathlib.Path(__file__).parent / "oracles"
DRAWN = runpy.run_path(str(ORACLES / "resnet_weights.py"))
NETS_CASES = runpy.run_path(str(ORACLES / "nets_cases.py"))
WORDS = {"kernel": "weight", "scale": "weight", "bias": "bias"}
WORDS |= {"mean": "running_mean", "var": "running_var"}


@functools.cache
def variables_of(net, size: int):
    image = jax.ShapeDtypeStruct((1, size, size, 3), jnp.float32)
    return jax.eval_shape(net.init, jax.random.key(0), image)


def published_name(net, path) -> str:
    """Return the published name of a variable, by the only matching rule of its module."""
    *module, kind = (entry.key for entry in path[1:])
    module = "/".join(module)
    rules = [
        (match, template)
        for rule, template in sys.modules[type(net).__module__].NAMES
        if (match := re.fullmatch(rule, module))
    ]
    assert len(rules) == 1, f"{module} has {len(rules)} rules"
    return f"{rules[0][0].expand(rules[0][1])}.{WORDS[kind]}"


def published_shape(shape) -> tuple[int, ...]:
    if len(shape) == 4:
        h, w, i, o = shape
        return o, i, h, w
    return shape[::-1]


def variables(net, size: int, factor: float, name=published_name):
    """Return all variables of a network, with the scales of batch norms times a factor."""

    def drawn(path, x):
        published = name(net, path)
        value = DRAWN["draw"](published, published_shape(x.shape))
        value = NETS_CASES["scaled"](published, value, np.float32(factor))
        return value.transpose(2, 3, 1, 0) if value.ndim == 4 else value.T

    return jax.tree_util.tree_map_with_path(drawn, variables_of(net, size))
