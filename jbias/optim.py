"""Learning-rate schedules, and optimisers as chains of optax transformations."""

import math
import types
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import optax


def clip_norm(limit: float) -> optax.GradientTransformation:
    """Scales the gradient to a global L2 norm of at most `limit`, as torch does.

    g <- g * min(1, limit / (|g| + 1e-6)); optax divides by |g| itself.
    """

    def update(grads, state, params=None):
        del params
        scale = jnp.minimum(1.0, limit / (optax.tree.norm(grads) + 1e-6))
        return jax.tree.map(lambda g: g * scale.astype(g.dtype), grads), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def sgd(
    rate: optax.Schedule,
    *,
    momentum: float = 0.9,
    decay: float = 1e-4,
    nesterov: bool = False,
) -> optax.GradientTransformation:
    """SGD with coupled weight decay, as torch does it.

    g <- grad + decay * w;  m <- momentum * m + g;  w <- w - rate * m.
    Every weight decays, batch norm's scales and biases included.
    """
    return optax.chain(
        optax.add_decayed_weights(decay),
        optax.trace(decay=momentum, nesterov=nesterov),
        optax.scale_by_learning_rate(rate),
    )


def adam(
    rate: optax.Schedule, *, b1: float = 0.9, b2: float = 0.999, decay: float = 0.0
) -> optax.GradientTransformation:
    """AdamW: decoupled weight decay, scaled by the rate."""
    return optax.adamw(rate, b1=b1, b2=b2, weight_decay=decay)


def constant(rate: float, total: int) -> optax.Schedule:
    """The same rate throughout."""
    del total
    return optax.constant_schedule(rate)


def cosine(rate: float, total: int) -> optax.Schedule:
    """From `rate` to zero along half a cosine."""
    return optax.cosine_decay_schedule(rate, max(1, total))


def multistep(
    rate: float,
    total: int,
    *,
    milestones: Sequence[float] = (0.3, 0.6, 0.9),
    gamma: float = 0.1,
) -> optax.Schedule:
    """rate * gamma^(number of milestones passed); milestones are shares of the run."""
    boundaries = {math.floor(total * share): gamma for share in milestones}
    return optax.piecewise_constant_schedule(rate, boundaries)


OPTIMISERS = types.MappingProxyType({"sgd": sgd, "adam": adam})
SCHEDULES = types.MappingProxyType(
    {"constant": constant, "cosine": cosine, "multistep": multistep}
)


def schedule(
    *, name: str, rate: float, total: int, warmup: int = 0, **options
) -> optax.Schedule:
    """A named schedule over `total` steps, after a linear warm-up of `warmup`."""
    main = _known("schedule", name, SCHEDULES)(rate, total - warmup, **options)
    if not warmup:
        return main
    ramp = optax.linear_schedule(0.0, rate, warmup)
    return optax.join_schedules([ramp, main], [warmup])


def chain(
    rate: optax.Schedule, *, name: str, clip: float | None = None, **options
) -> optax.GradientTransformation:
    """One update's transformation: clip, then the named optimiser."""
    optimiser = _known("optim", name, OPTIMISERS)(rate, **options)
    return optax.chain(clip_norm(clip), optimiser) if clip else optimiser


def _known(where: str, name: str, known: Mapping):
    if name not in known:
        raise ValueError(f"{where}: must be one of {', '.join(known)}, got {name!r}")
    return known[name]
