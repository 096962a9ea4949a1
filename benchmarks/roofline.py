"""Lower bounds of a step's cost: its operations, and the fewest bytes that memory moves.

A training step has three times the operations of the forward pass, as usual: one forwards
and two backwards. The forward pass has two operations for each multiplication of a
convolution or matrix product. Other operations are not counted.

The fewest bytes that the device's memory reads and writes in a training step, with b
images, P parameters and A elements per image in the outputs of convolutions, computed in
d bytes each, and SGD with momentum in float32, are

    5 d A b + (2 d + 16) P + image bytes

Batch norm needs the statistics of the whole batch before the next layer can start,
forwards and backwards, and no cache is large enough for the batch. So each output of a
convolution is written once and read once forwards, and read once more backwards, where its
gradient is written and read once. Everything else may be fused with one of these. Weights
are read in d bytes forwards and backwards; weights and momentum are read and written in
four bytes. In evaluation A is written and read once, and weights are read once:
2 d A b + d P + image bytes.
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

from jbias.training.tuning import profiling


@dataclasses.dataclass(frozen=True)
class Work:
    """Lower bounds of the cost of a step: operations, and bytes moved by memory."""

    flops: float
    bytes: float

    def utilisation(self, seconds: float, kind: str) -> dict[str, Any]:
        """Return the rates of this work done in `seconds`, and shares of a device's limits.

        kind: JAX's name of the device. Without known limits the shares are left out.
        """
        limits = profiling.device_limits(kind)
        rates = {
            "tflop": self.flops / 1e12,
            "gigabytes_at_least": self.bytes / 1e9,
            "tflop_per_second": self.flops / seconds / 1e12,
            "gigabytes_per_second_at_least": self.bytes / seconds / 1e9,
        }
        if limits is None:
            return rates
        least = max(self.flops / limits.flops, self.bytes / limits.bytes)
        return rates | {
            "share_of_flops": self.flops / seconds / limits.flops,
            "share_of_bandwidth": self.bytes / seconds / limits.bytes,
            "share_of_roofline": least / seconds,
        }


def training(net: nn.Module, size: int, batch: int) -> Work:
    """Return the work of one training step of ERM; size: image side in pixels."""
    flops, outputs, parameters = forward(net, size)
    d, image = jnp.dtype(net.dtype).itemsize, size * size * 3
    moved = (5 * d * outputs + image) * batch + (2 * d + 16) * parameters
    return Work(3 * flops * batch, moved)


def evaluation(net: nn.Module, size: int, batch: int) -> Work:
    """Return the work of the evaluation of one batch; size: image side in pixels."""
    flops, outputs, parameters = forward(net, size)
    d, image = jnp.dtype(net.dtype).itemsize, size * size * 3
    return Work(flops * batch, (2 * d * outputs + image) * batch + d * parameters)


@functools.cache
def forward(net: nn.Module, size: int) -> tuple[int, int, int]:
    """Return operations per image, elements in outputs of convolutions, and parameters.

    size: image side in pixels.
    """
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
    """Yield the equations of a jaxpr and of all jaxprs nested in it."""
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in core.jaxprs_in_params(eqn.params):
            yield from _equations(inner)


def markdown(title: str, utilisation: Mapping[str, float]) -> str:
    """Return the result of `Work.utilisation` as a Markdown table; title: its head."""
    rows = [
        (name.replace("_", " "), f"{value:.3g}") for name, value in utilisation.items()
    ]
    lines = [f"| {title} | |", "| --- | --- |"]
    lines += [f"| {name} | {value} |" for name, value in rows]
    return "\n".join(lines) + "\n"
