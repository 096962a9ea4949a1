"""PixMix: mixes images with fractals and with augmented copies of themselves.

Source: Hendrycks, Zou, Mazeika, Tang, Li, Song and Steinhardt, CVPR 2022,
https://arxiv.org/abs/2112.05135.
Reference code: https://github.com/andyzoujm/pixmix at f867e87.
Deviations: the mixing picture is whatever batch["other"] has for the image, in the
order of that source, where the reference draws one each time; only what operations
are applied to is in 8 bits; operations as in `augmix`.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from jbias.augment import augmix, options, pillow, sampling

Image = Float[Array, "h w 3"]
Share = Float[Array, "*count"]
_SMALLEST = 1e-37


def make(
    *,
    k: int = 4,
    beta: float = 4.0,
    severity: float = 1,
    all_ops: bool = True,
    start: float = 0.5,
) -> Callable:
    """Mixes each image with its picture in batch["other"]; targets stay as they are.

    Starts, with chance `start`, from the image after one operation of AugMix. Then 0 to
    k rounds, each number as likely: with even chances the partner is the picture or the
    image after a new operation, and the two are added or multiplied (`add`, `multiply`)
    with coefficients drawn by `beta` (`coefficients`) and cut to [0, 1].
    With k=0 and start=0 nothing is changed.
    """
    options.check_range("pixmix", 0, 100, k=k)
    options.check_range("pixmix", 0.1, 10, severity=severity)
    options.check_range("pixmix", 0, 1, start=start)
    options.check_plain("pixmix", "positive", beta=beta)
    names = augmix.ALL_OPERATIONS if all_ops else augmix.OPERATIONS

    def one(image: Image, picture: Image, key: PRNGKeyArray) -> Image:
        shapes = (3, k + 1), (), (), (k,), (k,), (3, k)
        u_op, u_first, u_rounds, u_own, u_sum, u_ab = sampling.uniforms(key, *shapes)
        drawn = augmix.operations(u_op, names, severity, image.shape[:2])
        pixels = pillow.pack(image)

        def copy(operation):
            return pillow.unpack(pillow.apply(pixels, *operation, names))

        copies = jax.lax.map(copy, drawn)
        taken = jnp.arange(k) < sampling.integers(u_rounds, k + 1)

        def mix(mixed, one_round):
            copy, own, taken, *how = one_round
            partner = jnp.where(own, copy, picture)
            return jnp.where(taken, mix_two(mixed, partner, *how), mixed), None

        mixed = jnp.where(u_first < start, copies[0], image)
        rounds = copies[1:], u_own < 0.5, taken, *coefficients(u_ab, beta), u_sum < 0.5
        return jax.lax.scan(mix, mixed, rounds)[0]

    def apply(batch, key):
        if options.is_statically(k, 0) and options.is_statically(start, 0):
            return batch
        image, other = batch["image"], batch.get("other")
        if other is None or other["image"].shape != image.shape:
            must = "pixmix: batch['other'] must hold a picture for each image"
            got = f"{image.shape}, got {other and other['image'].shape}"
            remedy = "set config.train.other to dict(data='fractals', split='train')"
            raise ValueError(f"{must} {got}; {remedy}")
        keys = sampling.keys(key, len(image))
        return {**batch, "image": jax.vmap(one)(image, other["image"], keys)}

    return apply


def coefficients(u: Float[Array, "3 count"], beta: float) -> tuple[Share, Share]:
    """a and b of uniform numbers: a convex-like pair, or one away from the partner.

    With even chances a ~ Beta(beta, 1) and b ~ Beta(1, beta), or a ~ 1 + Beta(1, beta)
    and b ~ -Beta(1, beta), by the inverse of the distribution functions.
    """
    which, *shares = u
    convex = which < 0.5
    # In (0, 1], so that a is positive.
    high_a, high_b = ((1 - share) ** (1 / beta) for share in shares)
    low = 1 - high_b
    return jnp.where(convex, high_a, 2 - high_a), jnp.where(convex, low, -low)


def mix_two(u: Image, v: Image, a: Share, b: Share, summed: Bool[Array, ""]) -> Image:
    """Adds or multiplies two images, cut to [0, 1]."""
    return jnp.clip(jnp.where(summed, add(u, v, a, b), multiply(u, v, a, b)), 0, 1)


def add(u: Image, v: Image, a: Share, b: Share) -> Image:
    """a u + b v, where grey is zero: a (2u - 1) + b (2v - 1), brought back."""
    return a * u + b * v + (1 - a - b) / 2


def multiply(u: Image, v: Image, a: Share, b: Share) -> Image:
    """u^a v^b, where grey is one: (2u)^a max(2v, 1e-37)^b / 2, for positive a."""
    logs = a * jnp.log(2 * u) + b * jnp.log(jnp.maximum(2 * v, _SMALLEST))
    return jnp.where(u > 0, jnp.exp(logs) / 2, 0)
