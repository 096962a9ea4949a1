"""What a step cannot be faster than: its operations, and the fewest bytes it must move.

Operations of a training step, as usual, are three times those of the forward pass, one
forwards and two backwards; those of the forward pass are two a multiplication of a
convolution or matrix product. Nothing else is counted.

The fewest bytes that the device's memory must give or take in a training step of b
images, P parameters and A elements that come out of convolutions an image, computed in
d bytes each, optimised by SGD with momentum in float32:

    5 d A b + (2 d + 16) P + image bytes

Batch norm must have seen the whole batch before any of it goes on, forwards and
backwards, and no cache holds it: each output of a convolution is written once and read
once forwards, and once more backwards, where its gradient is written and read once.
Everything else may be fused with one of these. Weights are read in d bytes forwards and
backwards; weights and momentum are read and written in four. In evaluation A is written
and read once, and weights are read: 2 d A b + d P + image bytes.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax.extend import core

from jbias.training import profiling


@dataclasses.dataclass(frozen=True)
class Work:
    """The least that some images cost."""

    flops: float
    bytes: float

    def told(self, seconds: float, kind: str) -> dict[str, Any]:
        """What was reached in that time, and its shares of the device's limits."""
        limits = profiling.device_limits(kind)
        found = {
            "tflop": self.flops / 1e12,
            "gigabytes_at_least": self.bytes / 1e9,
            "tflop_per_second": self.flops / seconds / 1e12,
            "gigabytes_per_second_at_least": self.bytes / seconds / 1e9,
        }
        if limits is None:
            return found
        least = max(self.flops / limits.flops, self.bytes / limits.bytes)
        return found | {
            "share_of_flops": self.flops / seconds / limits.flops,
            "share_of_bandwidth": self.bytes / seconds / limits.bytes,
            "share_of_roofline": least / seconds,
        }


def training(net: nn.Module, size: int, batch: int) -> Work:
    """Of one step on a batch, by plain training."""
    flops, outputs, parameters = forward(net, size)
    d, image = jnp.dtype(net.dtype).itemsize, size * size * 3
    moved = (5 * d * outputs + image) * batch + (2 * d + 16) * parameters
    return Work(3 * flops * batch, moved)


def evaluation(net: nn.Module, size: int, batch: int) -> Work:
    """Of one batch."""
    flops, outputs, parameters = forward(net, size)
    d, image = jnp.dtype(net.dtype).itemsize, size * size * 3
    return Work(flops * batch, (2 * d * outputs + image) * batch + d * parameters)


@functools.cache
def forward(net: nn.Module, size: int) -> tuple[int, int, int]:
    """Operations and convolutions' outputs of one image, and parameters."""
    image = jax.ShapeDtypeStruct((1, size, size, 3), jnp.float32)
    variables = jax.eval_shape(net.init, jax.random.key(0), image)
    closed = jax.make_jaxpr(net.apply)(variables, image)
    flops = outputs = 0
    for eqn in _equations(closed.jaxpr):
        out, right = eqn.outvars[0].aval, eqn.invars[-1].aval
        if eqn.primitive.name == "conv_general_dilated":
            spec = eqn.params["dimension_numbers"].rhs_spec
            flops += 2 * out.size * right.size // right.shape[spec[0]]
            outputs += out.size
        elif eqn.primitive.name == "dot_general":
            (contracted, _), _ = eqn.params["dimension_numbers"]
            left = eqn.invars[0].aval
            flops += 2 * out.size * math.prod(left.shape[i] for i in contracted)
    parameters = sum(x.size for x in jax.tree.leaves(variables["params"]))
    return flops, outputs, parameters


def _equations(jaxpr: Any) -> Iterator[Any]:
    """Of a jaxpr and of all within it."""
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in core.jaxprs_in_params(eqn.params):
            yield from _equations(inner)


def markdown(what: str, told: Mapping[str, float]) -> str:
    """What `Work.told` says, as a table."""
    rows = [(name.replace("_", " "), f"{value:.3g}") for name, value in told.items()]
    lines = [f"| {what} | |", "| --- | --- |"]
    lines += [f"| {name} | {value} |" for name, value in rows]
    return "\n".join(lines) + "\n"
