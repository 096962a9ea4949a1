"""The PixMix transform: mixes images with fractals and with augmented copies of the image.

Source: Hendrycks, Zou, Mazeika, Tang, Li, Song and Steinhardt, CVPR 2022,
https://arxiv.org/abs/2112.05135.
Reference code: https://github.com/andyzoujm/pixmix at f867e87.
Deviations: the mixing picture of an image is the same row of batch["other"]; in the
reference a picture is drawn each time. Only the inputs of operations are rounded to 8 bits.
Operations: see `augmix`.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from jbias import errors
from jbias.augment import augmix, options, pillow, random_numbers

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
) -> options.Transform:
    """Return the PixMix transform, which mixes each image with its picture in batch["other"].

    Mixing starts from the image, or with probability `start` from the image after one
    operation of AugMix. Then 0 to k rounds follow, all numbers equally likely. In each round
    a partner is added to or multiplied with the mixed image (`add`, `multiply`, equally
    likely). The `coefficients` are random and depend on `beta`, and the result is clipped to
    [0, 1]. The partner is the picture or the image after a new operation, equally likely.
    Targets do not change. With k=0 and start=0 images do not change.

    k: largest number of rounds. beta: positive; larger values mix less.
    severity, all_ops: see augmix.make.

    ValueError for an invalid option. Applied to a batch, the transform raises ValueError if
    "other" is missing or its images have a different shape.
    """
    errors.check_range("pixmix", 0, 100, k=k)
    errors.check_range("pixmix", 0.1, 10, severity=severity)
    errors.check_range("pixmix", 0, 1, start=start)
    errors.check_condition("pixmix", "positive", beta=beta)
    names = augmix.ALL_OPERATIONS if all_ops else augmix.OPERATIONS

    def augment(image: Image, picture: Image, key: PRNGKeyArray) -> Image:
        """Return the image after mixing with its picture in 0 to k rounds; see `make`.

        picture: of the image's size. key: random key.
        """
        shapes = (3, k + 1), (), (), (k,), (k,), (3, k)
        u_op, u_first, u_rounds, u_copy, u_sum, u_ab = random_numbers.uniforms(
            key, *shapes
        )
        operations = augmix.operations(
            u_op, names, severity=severity, size=image.shape[:2]
        )
        pixels = pillow.pack(image)

        def apply_operation(operation):
            kind, amount = operation
            return pillow.unpack(pillow.apply(pixels, kind, amount, names))

        copies = jax.lax.map(apply_operation, operations)
        is_applied = jnp.arange(k) < random_numbers.integers(u_rounds, k + 1)

        def mix(mixed, drawn):
            copy, use_copy, is_applied, a, b, is_sum = drawn
            partner = jnp.where(use_copy, copy, picture)
            new = mix_two(mixed, partner, a=a, b=b, is_sum=is_sum)
            return jnp.where(is_applied, new, mixed), None

        mixed = jnp.where(u_first < start, copies[0], image)
        round_copies, use_copy = copies[1:], u_copy < 0.5
        a, b = coefficients(u_ab, beta)
        rounds = (round_copies, use_copy, is_applied, a, b, u_sum < 0.5)
        return jax.lax.scan(mix, mixed, rounds)[0]

    def apply(batch, key):
        """Return the batch with each image mixed with the same row of batch["other"]["image"].

        With k=0 and start=0, return the batch itself. ValueError if "other" is missing or its
        images have another shape. key: random key.
        """
        if options.is_statically(k, 0) and options.is_statically(start, 0):
            return batch
        image, other = batch["image"], batch.get("other")
        if other is None or other["image"].shape != image.shape:
            must = "pixmix: batch['other'] must hold a picture for each image"
            got = f"{image.shape}, got {other and other['image'].shape}"
            remedy = "set config.train.other to dict(data='fractals', split='train')"
            raise ValueError(f"{must} {got}; {remedy}")
        keys = random_numbers.keys(key, len(image))
        return {**batch, "image": jax.vmap(augment)(image, other["image"], keys)}

    return apply


def coefficients(u: Float[Array, "3 count"], beta: float) -> tuple[Share, Share]:
    """Return random coefficients a of the image and b of its partner; u: U(0, 1) numbers.

    With equal probabilities a ~ Beta(beta, 1) and b ~ Beta(1, beta), towards the partner,
    or a ~ 1 + Beta(1, beta) and b ~ -Beta(1, beta), away from the partner. The numbers u are
    mapped by the inverse distribution functions.
    """
    u_kind, u_a, u_b = u
    is_convex = u_kind < 0.5
    # In (0, 1], so that a is positive.
    high_a, high_b = (1 - u_a) ** (1 / beta), (1 - u_b) ** (1 / beta)
    low = 1 - high_b
    return jnp.where(is_convex, high_a, 2 - high_a), jnp.where(is_convex, low, -low)


def mix_two(
    u: Image, v: Image, *, a: Share, b: Share, is_sum: Bool[Array, ""]
) -> Image:
    """Return add(u, v) or, if not `is_sum`, multiply(u, v), clipped to [0, 1]."""
    mixed = jnp.where(is_sum, add(u, v, a=a, b=b), multiply(u, v, a=a, b=b))
    return jnp.clip(mixed, 0, 1)


def add(u: Image, v: Image, *, a: Share, b: Share) -> Image:
    """Return [a (2u - 1) + b (2v - 1) + 1] / 2, a weighted sum in which grey (0.5) is zero."""
    return a * u + b * v + (1 - a - b) / 2


def multiply(u: Image, v: Image, *, a: Share, b: Share) -> Image:
    """Return (2u)^a max(2v, 1e-37)^b / 2, a product of images in which 0.5 counts as 1.

    a must be above 0. The result is 0 where u is 0.
    """
    logs = a * jnp.log(2 * u) + b * jnp.log(jnp.maximum(2 * v, _SMALLEST))
    return jnp.where(u > 0, jnp.exp(logs) / 2, 0)
