"""Sharpness-aware minimisation (SAM, ASAM): take gradients where the loss is higher.

SAM: Foret, Kleiner, Mobahi and Neyshabur, ICLR 2021, https://arxiv.org/abs/2010.01412.
Reference code: https://github.com/google-research/sam at dae9904, flax_training.py, and
https://github.com/davda54/sam at 3c3afdb, sam.py.
ASAM: Kwon, Kim, Park and Choi, ICML 2021, https://arxiv.org/abs/2102.11600. Reference code:
https://github.com/SamsungLabs/ASAM at f156a68, asam.py.

A step computes the gradient g at the weights w, moves the weights to w + e, where the linear
approximation of the loss is highest within the radius, and hands the gradient at w + e to the
optimiser, which updates w.
  SAM:   e = radius * g / (|g| + 1e-12)
  ASAM:  e = radius * T^2 g / (|T g| + 1e-12), T = |w| + eta for kernels and scales, else 1.
Norms are over all weights that an update trains. Scales and kernels are what PyTorch calls
"weight"; biases, class tokens and position embeddings are not adapted, as in ASAM's code.

Every optimiser works. Weight decay belongs to the optimiser and does not move e, as in both
PyTorch codes; in google-research/sam it is a part of the loss.
An algorithm with several updates: each update has an e of its own, from the gradient that it
would hand to its optimiser at w (after its clip and with its second loss), over the weights
that it trains; its other weights stay at w. All gradients of a step start from the same w.
Batch statistics, losses and metrics are those of the first pass, at w; the second pass starts
from the statistics before the step, and its new statistics are dropped, as in
google-research/sam. In davda54/sam its example does the same; ASAM's example updates running
statistics in both passes.
Random draws (dropout, taps, attacks) are equal in both passes, as in google-research/sam; in
both PyTorch codes they differ.

Deviations:
- e is computed from the gradient of the whole batch, on any number of devices and of
  micro-batches, as with sync_perturbations of google-research/sam. Its default, and the
  paper's, is one e per device, so that results depend on the number of devices.
- The number 1e-12 is that of davda54/sam; ASAM has 1e-16, google-research/sam none (0 / 0).
- davda54/sam's own `adaptive` has no eta and adapts biases, too.

In bfloat16, convolutions round w + e to 8 bits, and most single changes are smaller than
that. With the sizes of a ResNet-18 (weights near 0.02, changes near 1.5e-5) a quarter of the
rounded weights change; along e their change is e within 2 %, and it is 2.2 times as long, by
noise (tests/training/test_sharpness.py).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import PyTree

from jbias import build, errors

_WHERE = "config.optim.sharpness"
_ADAPTED = ("kernel", "scale")
_SMALL = 1e-12


class Sharpness(NamedTuple):
    """The neighbourhood of the weights in which a step looks for a higher loss."""

    radius: Any  # A positive number, or a number that JAX traces.
    adaptive: bool  # ASAM: distances are relative to the size of each weight.
    eta: Any  # Added to the size of each weight, so that weights of zero move.


def _make(*, radius: float, adaptive: bool = False, eta: float = 0.01) -> Sharpness:
    """Return checked options; ValueError for a negative radius or eta."""
    errors.check_condition(_WHERE, "at least 0", radius=radius, eta=eta)
    return Sharpness(radius, adaptive, eta)


def from_options(options: Mapping[str, Any] | None) -> Sharpness | None:
    """Return the options of config.optim.sharpness; None if the radius is the number 0.

    options: radius, adaptive (False: SAM, True: ASAM) and eta; None, or empty, in configs
    without this entry. A radius that JAX traces may be zero, too: the step then has two
    passes for all radii. ValueError for wrong options.
    """
    if not options:
        return None
    sharpness = build.call_checked(_WHERE, _make, **options)
    is_number = isinstance(sharpness.radius, int | float)
    return None if is_number and not sharpness.radius else sharpness


def perturb(
    params: PyTree, grads: PyTree, *, trained: PyTree, sharpness: Sharpness
) -> PyTree:
    """Return the weights w + e, see the top of this file.

    params, grads: weights w and the gradient g, trees of dicts. trained: a tree of booleans;
    other weights are returned unchanged, and their gradients are ignored.
    """

    def scale_of(path: tuple[Any, ...], w: Any) -> Any:
        """Return T, the size of a step per weight of an array; the number 1 without ASAM."""
        is_adapted = sharpness.adaptive and path[-1].key in _ADAPTED
        return jnp.abs(w) + sharpness.eta if is_adapted else 1.0

    scales = jax.tree_util.tree_map_with_path(scale_of, params)
    scaled = jax.tree.map(
        lambda scale, g, is_trained: scale * g if is_trained else None,
        scales,
        grads,
        trained,
    )
    length = sharpness.radius / (optax.tree.norm(scaled) + _SMALL)

    def move(w: Any, scale: Any, g: Any, is_trained: bool) -> Any:
        """Return an array of w + e."""
        return w + scale * scale * g * length if is_trained else w

    return jax.tree.map(move, params, scales, grads, trained)
