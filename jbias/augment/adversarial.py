"""Adversarial images: steps up a loss, kept inside a ball around the image.

Source: Madry, Makelov, Schmidt, Tsipras and Vladu, "Towards Deep Learning Models
Resistant to Adversarial Attacks", ICLR 2018, https://arxiv.org/abs/1706.06083.
Reference code: https://github.com/MadryLab/robustness at a954124.
Deviation: the gradient is that of each image's own loss, where the reference takes the
batch's mean; only the 1e-10 beside its length could tell them apart.
"""

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jbias.augment import options, sampling

Images = Float[Array, "b h w c"]
Image = Float[Array, "*b h w c"]  # Or several.


class Ball(NamedTuple):
    """Moves within a norm's ball; each of one image or of a batch.

    steepest: gradient -> the direction of size 1 that raises the loss most.
    project: (difference, eps) -> the nearest difference of size eps or less.
    draw: (key, shape) -> a random difference of size 1 or less, where attacks begin.
    """

    steepest: Callable
    project: Callable
    draw: Callable


def pgd(
    loss: Callable[[Images], Float[Array, "b"]],
    image: Images,
    key: PRNGKeyArray | None = None,
    *,
    norm: str,
    eps: float,
    steps: int,
    step_size: float,
    start: Images | None = None,
    random_start: bool = False,
    keep_best: bool = False,
) -> Images:
    """Raises each image's loss by projected gradient ascent from the image.

    x <- clip(image + project(x + step_size * steepest(gradient) - image)), clip to
    [0, 1]. The result is a constant to whatever differentiates further; what else the
    loss depends on should be one, too, or the ascent is differentiated for nothing.

    loss: images in [0, 1] -> one loss for each of them.
    norm: "linf", the largest change of a value, or "l2", of all values together.
    eps, step_size: in that norm, of values in [0, 1].
    steps: a number is written out step by step; an array, traced or not, makes a loop,
      which compiles sooner and takes the same memory for any number.
    start: where to begin, such as where an earlier call ended; None is the image.
    random_start: begins where `starts` says, by places in the batch; needs `key`.
    keep_best: returns the iterate of highest loss, the start included, for one more
      evaluation of the loss; else the last one.
    """
    ball = _ball(norm)
    x = image if start is None else start
    if random_start:
        if key is None:
            raise ValueError("augment.adversarial: random_start needs a key, got None")
        x = starts(image, sampling.keys(key, len(image)), norm=norm, eps=eps)
    gradient = jax.grad(lambda x: _total(loss(x)), has_aux=True)

    def ascend(_, carry):
        x, *best = carry
        g, each = gradient(x)
        if keep_best:
            best = _better(x, each, *best)
        moved = x + step_size * ball.steepest(g)
        return jnp.clip(image + ball.project(moved - image, eps), 0, 1), *best

    carry = (x, x, jnp.full(image.shape[:1], -jnp.inf)) if keep_best else (x,)
    if isinstance(steps, int):
        # On CPU gradients of convolutions are many times slower inside loops.
        for step in range(steps):
            carry = ascend(step, carry)
    else:
        carry = jax.lax.fori_loop(0, steps, ascend, carry)
    x, *best = carry
    if keep_best:
        x, _ = _better(x, loss(x), *best)
    return jax.lax.stop_gradient(x)


def starts(image: Images, keys: PRNGKeyArray, *, norm: str, eps: float) -> Images:
    """Draws where attacks begin, by a key for each image.

    Anywhere in the box for "linf", in a random direction at the full distance for "l2";
    clipped to [0, 1].
    """
    draw = functools.partial(_ball(norm).draw, shape=image.shape[1:])
    return jnp.clip(image + eps * jax.vmap(draw)(keys), 0, 1)


def _total(each: Float[Array, "b"]) -> tuple[Array, Array]:
    each = each.astype(jnp.float32)
    return jnp.sum(each), each


def _better(x, each, best, highest) -> tuple[Array, Array]:
    """Keeps, for each image, the iterate of higher loss; of equals the earlier."""
    more = each > highest
    return jnp.where(more.reshape(-1, 1, 1, 1), x, best), jnp.where(more, each, highest)


def _length(x: Image) -> Float[Array, "*b 1 1 1"]:
    return jnp.sqrt(jnp.sum(jnp.square(x), (-3, -2, -1), keepdims=True))


def _shortened(x: Image, eps: float) -> Image:
    # As torch.renorm, which the reference uses.
    length = _length(x)
    return jnp.where(length > eps, x * (eps / (length + 1e-7)), x)


def _direction(x: Image) -> Image:
    return x / (_length(x) + 1e-10)


_anywhere = functools.partial(jax.random.uniform, minval=-1, maxval=1)


def _any_direction(key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
    return _direction(jax.random.normal(key, shape))


BALLS: Mapping[str, Ball] = {
    "linf": Ball(jnp.sign, lambda x, eps: jnp.clip(x, -eps, eps), _anywhere),
    "l2": Ball(_direction, _shortened, _any_direction),
}


def _ball(norm: str) -> Ball:
    options.check_choice("augment.adversarial", "norm", norm, BALLS)
    return BALLS[norm]
