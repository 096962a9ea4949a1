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

from jbias import build
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
    """SGD with coupled weight decay, as torch does it.

    g <- grad + decay * w;  m <- momentum * m + g;  w <- w - rate * m.
    Every weight decays, batch norm's scales and biases included, unless `decay_all` is
    False: then kernels alone do.

    l1: kernels then move towards zero by rate * l1 / (1 - momentum), and stop there: by
    proximal steps, which rest where the loss and l1 * sum |w| together are least.
    """
    chain = (
        optax.add_decayed_weights(decay, None if decay_all else _kernels),
        optax.trace(decay=momentum, nesterov=nesterov),
        optax.scale_by_learning_rate(rate),
    )
    if not isinstance(l1, int | float) or l1:
        chain += (_shrinking(rate, l1 / (1 - momentum)),)
    return optax.chain(*chain)


def _shrinking(rate: Schedule, l1: float) -> Optimiser:
    """Ends a step with w <- sign(w) max(|w| - rate * l1, 0), for kernels."""

    def init(params: PyTree) -> optax.ScaleByScheduleState:
        return optax.ScaleByScheduleState(jnp.zeros((), jnp.int32))

    def update(updates: PyTree, state, params: PyTree) -> tuple[PyTree, Any]:
        least = rate(state.count) * l1

        def shrunk(delta, w):
            if jnp.ndim(w) < 2:
                return delta
            new = w + delta
            return jnp.sign(new) * jnp.maximum(jnp.abs(new) - least, 0) - w

        counted = optax.ScaleByScheduleState(state.count + 1)
        return jax.tree.map(shrunk, updates, params), counted

    return optax.GradientTransformation(init, update)


def adam(
    rate: Schedule, *, b1: float = 0.9, b2: float = 0.999, decay: float = 0.0
) -> Optimiser:
    """AdamW: decoupled weight decay, scaled by the rate."""
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
    """LAMB, Adam with a trust ratio for each kernel; kernels alone decay.

    w <- w - rate * |w| / |u| * u, u = Adam's step + decay * w, or rate * u where one of
    the norms is zero; gradients of a larger norm than `clip` are scaled to it first.
    Source: You et al., ICLR 2020, https://arxiv.org/abs/1904.00962.
    Reference code: timm/optim/lamb.py of https://github.com/huggingface/pytorch-image-models.
    """
    return optax.chain(
        optax.clip_by_global_norm(clip),
        optax.scale_by_adam(b1, b2, eps),
        optax.add_decayed_weights(decay, _kernels),
        optax.masked(optax.scale_by_trust_ratio(), _kernels),
        optax.scale_by_learning_rate(rate),
    )


def lars(
    rate: Schedule, *, momentum: float = 0.9, decay: float = 1e-4, trust: float = 0.001
) -> Optimiser:
    """LARS: SGD whose step is, for each kernel, a share of the kernel's norm.

    u = g + decay * w;  m <- momentum * m + rate * trust * |w| / |u| * u;  w <- w - m; for
    what is no kernel u = g, without the ratio. Source: You, Gitman and Ginsburg, 2017,
    https://arxiv.org/abs/1708.03888; momentum as in SimCLR's code,
    https://github.com/google-research/simclr, lars_optimizer.py.
    """
    masks = dict(weight_decay_mask=_kernels, trust_ratio_mask=_kernels)
    return optax.lars(rate, decay, trust_coefficient=trust, momentum=momentum, **masks)


def _kernels(params: PyTree) -> PyTree:
    return jax.tree.map(lambda w: jnp.ndim(w) > 1, params)


def constant(rate: float, total: int, begin: int = 0) -> Schedule:
    """The same rate throughout."""
    return optax.constant_schedule(rate)


def cosine(rate: float, total: int, begin: int = 0) -> Schedule:
    """From `rate`, at step `begin`, to zero along half a cosine."""
    fall = optax.cosine_decay_schedule(rate, max(1, total - begin))
    return lambda step: fall(jnp.maximum(step - begin, 0))


def polynomial(
    rate: float, total: int, begin: int = 0, *, power: float = 2.0, end: float = 0.0
) -> Schedule:
    """end + (rate - end) * (1 - t)^power, t the share of the steps from `begin` on."""
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
    """rate * gamma^(number of milestones passed); milestones are shares of the run.

    They count from its first step, whatever the warm-up takes; several may be passed at
    one step.
    """
    where, must = "config.optim.schedule.milestones", "be shares of the run, in [0, 1]"
    if not all(0 <= share <= 1 for share in milestones):
        jc.refuse(where, must, milestones, "30 of 90 epochs are 1/3")
    passed = collections.Counter(math.floor(total * share) for share in milestones)
    boundaries = {step: gamma**count for step, count in passed.items()}
    return optax.piecewise_constant_schedule(rate, boundaries)


OPTIMISERS = types.MappingProxyType(dict(sgd=sgd, adam=adam, lamb=lamb, lars=lars))
SCHEDULES = types.MappingProxyType(
    dict(constant=constant, cosine=cosine, multistep=multistep, polynomial=polynomial)
)


def with_warmup(main: Schedule, rate: float, steps: int) -> Schedule:
    """Rises linearly from 0 to `rate` for that many steps, then follows `main`."""
    if not steps:
        return main
    ramp = optax.linear_schedule(0.0, rate, steps)
    return lambda step: jnp.where(step < steps, ramp(step), main(step))


def from_options(
    options: Mapping[str, Any], update: base.Update, total: int, steps_per_epoch: int
) -> Optimiser:
    """One update's optimiser with its schedule over `total` steps."""
    options = dict(options) | ({} if update.decay else {"decay": 0.0})
    options.pop("average", None)
    where, warmup = "config.optim.warmup", options.pop("warmup", 0) or 0
    if warmup:
        lasting = dict(steps_per_epoch=steps_per_epoch, total=total)
        steps = jc.to_steps(warmup, **lasting, where=where)
        if steps >= total:
            must = f"be shorter than the stage's {total} steps"
            got = f"got {warmup!r} = {steps} steps"
            jc.refuse(where, f"{must}, {got}", remedy="shorten it or train longer")
        warmup = steps
    where = "config.optim.schedule"
    make, shape = build.lookup(where, options.pop("schedule"), SCHEDULES)
    rate = options.pop("rate")
    rate = float(rate) if type(rate) is int else rate  # Of any size.
    schedule = build.call_checked(where, make, rate, total, warmup, **shape)
    schedule = with_warmup(schedule, rate, warmup)
    make, rest = build.lookup("config.optim", options, OPTIMISERS)
    return build.call_checked("config.optim", make, schedule, **rest)
