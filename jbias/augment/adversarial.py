"""Projected gradient ascent (`pgd`), which makes adversarial images in a ball around an image.

Source: Madry, Makelov, Schmidt, Tsipras and Vladu, "Towards Deep Learning Models
Resistant to Adversarial Attacks", ICLR 2018, https://arxiv.org/abs/1706.06083.
Reference code: https://github.com/MadryLab/robustness at a954124.
Deviation: the gradient of each image's own loss is used; the reference uses the gradient of
the batch's mean loss. The two gradients differ only by the 1e-10 that is added to the
gradient's length.
"""

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jbias import errors
from jbias.augment import random_numbers

Images = Float[Array, "b h w c"]
Image = Float[Array, "*b h w c"]  # One image or a batch.


class Ball(NamedTuple):
    """The functions that define an attack in one norm.

    steepest: gradient -> the direction of norm 1 with the steepest increase of the loss.
    project: (difference, eps) -> the nearest difference of norm eps or less.
    draw: (key, shape) -> a random difference of norm 1 or less, used to start an attack.
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
    """Return images with increased loss, found by projected gradient ascent.

    Each step is x <- clip(image + project(x + step_size * steepest(gradient) - image)); clip
    limits values to [0, 1], and project and steepest are functions of the norm's `Ball`. The
    result has no gradient. Apply stop_gradient to the other inputs of `loss`; otherwise JAX
    also differentiates the attack with respect to such inputs.

    loss: images in [0, 1] -> one loss per image.
    key: random key, used with random_start only.
    norm: "linf" or "l2"; ValueError for an unknown name.
    eps, step_size: radius of the ball around the image, and length of a step, in this norm,
      for values in [0, 1].
    steps: number of steps. An int unrolls the steps; an array, traced or not, makes a loop,
      which compiles faster and needs the same memory for any number of steps.
    start: first iterate, for example the result of an earlier call; None: the image.
    random_start: True: the first iterate is the result of `starts`, and `start` is ignored;
      the key of an image depends on its position in the batch. ValueError without a `key`.
    keep_best: True: for each image, return the iterate of highest loss, the start included,
      which costs one more evaluation of the loss. False: return the last iterate.
    """
    ball = _ball(norm)
    x = image if start is None else start
    if random_start:
        if key is None:
            raise ValueError("augment.adversarial: random_start needs a key, got None")
        x = starts(image, random_numbers.keys(key, len(image)), norm=norm, eps=eps)
    gradient = jax.grad(lambda x: _total(loss(x)), has_aux=True)

    def ascend(_, carry):
        """Return the carry after one step of gradient ascent.

        _: number of the step, not used. carry: (iterate,), or with `keep_best` (iterate, best
        images so far, their losses).
        """
        x, *best = carry
        g, losses = gradient(x)
        if keep_best:
            best_x, best_loss = best
            best = _better(x, losses, best_x, best_loss)
        moved = x + step_size * ball.steepest(g)
        return jnp.clip(image + ball.project(moved - image, eps), 0, 1), *best

    carry = (x, x, jnp.full(image.shape[:1], -jnp.inf)) if keep_best else (x,)
    if isinstance(steps, int):
        # On a CPU gradients of convolutions are many times slower inside loops.
        for step in range(steps):
            carry = ascend(step, carry)
    else:
        carry = jax.lax.fori_loop(0, steps, ascend, carry)
    if keep_best:
        x, best_x, best_loss = carry
        x, _ = _better(x, loss(x), best_x, best_loss)
    else:
        (x,) = carry
    return jax.lax.stop_gradient(x)


def starts(image: Images, keys: PRNGKeyArray, *, norm: str, eps: float) -> Images:
    """Return a random start of an attack for each image, clipped to [0, 1].

    For "linf", pixel values differ from the image's by U(-eps, eps); for "l2", the start has
    the distance eps from the image, in a random direction.
    keys: (b), one for each image.
    """
    draw = functools.partial(_ball(norm).draw, shape=image.shape[1:])
    return jnp.clip(image + eps * jax.vmap(draw)(keys), 0, 1)


def _total(losses: Float[Array, "b"]) -> tuple[Array, Array]:
    """Return the sum of the losses, and the losses, in float32."""
    losses = losses.astype(jnp.float32)
    return jnp.sum(losses), losses


def _better(
    x: Images, losses: Float[Array, "b"], best: Images, highest: Float[Array, "b"]
) -> tuple[Images, Float[Array, "b"]]:
    """Return the iterate with the higher loss, x or `best`, and its loss, for each image.

    losses, highest: losses of x and of `best`. If the losses are equal, `best` is returned.
    """
    is_better = losses > highest
    return (
        jnp.where(is_better.reshape(-1, 1, 1, 1), x, best),
        jnp.where(is_better, losses, highest),
    )


def _length(x: Image) -> Float[Array, "*b 1 1 1"]:
    """Return the l2 norm of each image, with axes of length 1 for h, w and c."""
    return jnp.sqrt(jnp.sum(jnp.square(x), (-3, -2, -1), keepdims=True))


def _shorten(x: Image, eps: float) -> Image:
    """Return x with l2 norms above eps reduced to eps."""
    # The formula of torch.renorm, which the reference uses.
    length = _length(x)
    return jnp.where(length > eps, x * (eps / (length + 1e-7)), x)


def _direction(x: Image) -> Image:
    """Return x divided by its l2 norm."""
    return x / (_length(x) + 1e-10)


_draw_in_box = functools.partial(jax.random.uniform, minval=-1, maxval=1)


def _draw_direction(key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
    """Return a random array of l2 norm 1; shape: (h, w, c) of one image."""
    return _direction(jax.random.normal(key, shape))


BALLS: Mapping[str, Ball] = {
    "linf": Ball(
        steepest=jnp.sign,
        project=lambda x, eps: jnp.clip(x, -eps, eps),
        draw=_draw_in_box,
    ),
    "l2": Ball(steepest=_direction, project=_shorten, draw=_draw_direction),
}


def _ball(norm: str) -> Ball:
    """Return the functions of a norm, "linf" or "l2"; ValueError for an unknown name."""
    errors.check_choice("augment.adversarial", norm, BALLS, "change norm", name="norm")
    return BALLS[norm]
