"""Optimisers as chains of optax transformations, and learning-rate schedules."""

import collections
import math
import types
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import PyTree

from jbias import build, errors
from jbias import config as jc
from jbias.algos import base

Schedule, Optimiser = optax.Schedule, optax.GradientTransformation


def sgd(
    rate: Schedule,
    *,
    momentum: float = 0.9,
    decay: float = 1e-4,
    nesterov: bool = False,
    decay_all: bool = True,
    l1: float = 0.0,
) -> Optimiser:
    """Return SGD with momentum and coupled weight decay, as in torch.

    g <- grad + decay * w;  m <- momentum * m + g;  w <- w - rate * m.
    rate: schedule of the learning rate. nesterov: whether to use Nesterov's momentum.
    decay_all: all weights decay, including scales and biases of batch norm; False: only
      kernels decay.
    l1: strength of an L1 penalty on kernels, by proximal steps: after each step kernels
      move towards zero by rate * l1 / (1 - momentum), and stop at zero. The fixed points
      minimise the loss plus l1 * sum |w|.
    """
    transforms = [
        optax.add_decayed_weights(decay, None if decay_all else _is_kernel),
        optax.trace(decay=momentum, nesterov=nesterov),
        optax.scale_by_learning_rate(rate),
    ]
    if not isinstance(l1, int | float) or l1:  # A traced value may be zero, too.
        transforms.append(_shrink_kernels(rate, l1 / (1 - momentum)))
    return optax.chain(*transforms)


def _shrink_kernels(rate: Schedule, l1: float) -> Optimiser:
    """Return the transform that shrinks kernels: w <- sign(w) max(|w| - rate * l1, 0).

    Here w is a kernel after the update so far, so this must be the last transform of a step.
    Weights of fewer than two axes, scales and biases, are not shrunk.
    """

    def init(params: PyTree) -> optax.ScaleByScheduleState:
        return optax.ScaleByScheduleState(jnp.zeros((), jnp.int32))

    def update(updates: PyTree, state, params: PyTree) -> tuple[PyTree, Any]:
        """Return (updates that also shrink kernels, state with the next step's number).

        updates: the changes of the weights by the transforms before this one, a tree like `params`.
        state: an optax.ScaleByScheduleState. params: the weights before the step.
        """
        threshold = rate(state.count) * l1

        def shrink(delta, w):
            """Return the update to the soft-thresholded w + delta.

            Scales and biases (fewer than two axes) are not thresholded: their update is `delta`.
            """
            if jnp.ndim(w) < 2:
                return delta
            new = w + delta
            return jnp.sign(new) * jnp.maximum(jnp.abs(new) - threshold, 0) - w

        new_state = optax.ScaleByScheduleState(state.count + 1)
        return jax.tree.map(shrink, updates, params), new_state

    return optax.GradientTransformation(init, update)


def adam(
    rate: Schedule, *, b1: float = 0.9, b2: float = 0.999, decay: float = 0.0
) -> Optimiser:
    """Return AdamW: weight decay is decoupled and scaled by the rate.

    rate: schedule of the learning rate. b1, b2: decays of the moments. decay: weight decay
    of all weights.
    """
    return optax.adamw(rate, b1=b1, b2=b2, weight_decay=decay)


def lamb(
    rate: Schedule,
    *,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-6,
    decay: float = 0.0,
    clip: float = 1.0,
) -> Optimiser:
    """Return LAMB: Adam with a trust ratio for each kernel; only kernels decay.

    w <- w - rate * |w| / |u| * u, u = Adam's step (b1, b2, eps) + decay * w; if a norm is
    zero, w <- w - rate * u. Gradients are first clipped to a global norm of `clip`.
    Source: You et al., ICLR 2020, https://arxiv.org/abs/1904.00962.
    Reference code: timm/optim/lamb.py of https://github.com/huggingface/pytorch-image-models.
    """
    return optax.chain(
        optax.clip_by_global_norm(clip),
        optax.scale_by_adam(b1, b2, eps),
        optax.add_decayed_weights(decay, _is_kernel),
        optax.masked(optax.scale_by_trust_ratio(), _is_kernel),
        optax.scale_by_learning_rate(rate),
    )


def lars(
    rate: Schedule, *, momentum: float = 0.9, decay: float = 1e-4, trust: float = 0.001
) -> Optimiser:
    """Return LARS: SGD with steps in proportion to the norm of each kernel.

    u = g + decay * w; m <- momentum * m + rate * trust * |w| / |u| * u; w <- w - m. Weights
    that are not kernels have u = g and no ratio. Source: You, Gitman and Ginsburg, 2017,
    https://arxiv.org/abs/1708.03888; momentum as in SimCLR's code,
    https://github.com/google-research/simclr, lars_optimizer.py.
    """
    return optax.lars(
        rate,
        decay,
        trust_coefficient=trust,
        momentum=momentum,
        weight_decay_mask=_is_kernel,
        trust_ratio_mask=_is_kernel,
    )


def _is_kernel(params: PyTree) -> PyTree:
    """Return a tree of booleans: True for each array of two axes or more, a kernel."""
    return jax.tree.map(lambda w: jnp.ndim(w) > 1, params)


def constant(rate: float, total: int, begin: int = 0) -> Schedule:
    """Return a schedule with the same rate at all steps; `total` and `begin` are ignored."""
    return optax.constant_schedule(rate)


def cosine(rate: float, total: int, begin: int = 0) -> Schedule:
    """Return the schedule of half a cosine, from `rate` at step `begin` to 0 at `total`.

    The rate is constant before and after these steps.
    """
    fall = optax.cosine_decay_schedule(rate, max(1, total - begin))
    return lambda step: fall(jnp.maximum(step - begin, 0))


def polynomial(
    rate: float, total: int, begin: int = 0, *, power: float = 2.0, end: float = 0.0
) -> Schedule:
    """Return the schedule end + (rate - end) * (1 - t)^power.

    t rises linearly from 0 at step `begin` to 1 at step `total`; t is 0 before and 1 after
    these steps.
    """
    fall = optax.polynomial_schedule(rate, end, power, max(1, total - begin))
    return lambda step: fall(jnp.maximum(step - begin, 0))


def multistep(
    rate: float,
    total: int,
    begin: int = 0,
    *,
    milestones: Sequence[float] = (0.3, 0.6, 0.9),
    gamma: float = 0.1,
) -> Schedule:
    """Return the schedule rate * gamma^(number of milestones passed).

    milestones: fractions of the `total` steps, counted from step 0, where a warm-up starts;
    `begin` is ignored. Several milestones may fall on one step. ValueError for a milestone
    outside [0, 1].
    """
    if not all(0 <= share <= 1 for share in milestones):
        errors.refuse(
            "config.optim.schedule.milestones",
            "be shares of the run, in [0, 1]",
            milestones,
            "30 of 90 epochs are 1/3",
        )
    counts = collections.Counter(math.floor(total * share) for share in milestones)
    boundaries = {step: gamma**count for step, count in counts.items()}
    return optax.piecewise_constant_schedule(rate, boundaries)


OPTIMISERS = types.MappingProxyType(
    {"sgd": sgd, "adam": adam, "lamb": lamb, "lars": lars}
)
SCHEDULES = types.MappingProxyType(
    {
        "constant": constant,
        "cosine": cosine,
        "multistep": multistep,
        "polynomial": polynomial,
    }
)


def with_warmup(main: Schedule, rate: float, steps: int) -> Schedule:
    """Return a schedule that rises linearly from 0 to `rate`, and then equals `main`.

    main: a schedule over all steps, including the rise. steps: number of steps of the rise;
    0: return `main`.
    """
    if not steps:
        return main
    ramp = optax.linear_schedule(0.0, rate, steps)
    return lambda step: jnp.where(step < steps, ramp(step), main(step))


def from_options(
    options: Mapping[str, Any], update: base.Update, total: int, steps_per_epoch: int
) -> Optimiser:
    """Return the optimiser of one update, with its schedule over `total` steps.

    options: config.optim. update: an update of the algorithm, whose `rate` multiplies the
    learning rate and whose `optim` replaces options; there is no weight decay if `update.decay`
    is False. steps_per_epoch: for a warm-up in epochs. ValueError for wrong options.
    """
    options = {**options, **update.optim}
    if not update.decay:
        options["decay"] = 0.0
    for of_step in ("average", "sharpness"):
        options.pop(of_step, None)
    where = "config.optim.warmup"
    warmup, warmup_steps = options.pop("warmup", 0) or 0, 0
    if warmup:
        warmup_steps = jc.to_steps(
            warmup, steps_per_epoch=steps_per_epoch, total=total, where=where
        )
        if warmup_steps >= total:
            must = f"be shorter than the stage's {total} steps"
            got = f"got {warmup!r} = {warmup_steps} steps"
            errors.refuse(
                where,
                f"{must}, {got}",
                remedy="shorten it (--config.optim.warmup= is none), or train longer",
            )
    where = "config.optim.schedule"
    make_schedule, schedule_options = build.lookup(
        where, options.pop("schedule"), SCHEDULES
    )
    rate = options.pop("rate")
    rate = float(rate) if type(rate) is int else rate  # An int may exceed 32 bits.
    rate *= update.rate
    schedule = build.call_checked(
        where, make_schedule, rate, total, warmup_steps, **schedule_options
    )
    schedule = with_warmup(schedule, rate, warmup_steps)
    make, optimiser_options = build.lookup("config.optim", options, OPTIMISERS)
    return build.call_checked("config.optim", make, schedule, **optimiser_options)
