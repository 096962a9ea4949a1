"""AugMix: mixes chains of image operations, and asks views of an image to agree.

Source: Hendrycks, Mu, Cubuk, Zoph, Gilmer and Lakshminarayanan, ICLR 2020,
https://arxiv.org/abs/1912.02781.
Reference code: https://github.com/google-research/augmix at 9b9824c.
Deviations: translations are by the image's own size, where the reference has one
constant; shears are rounded to 2^-20; only the chains start from 8 bits, and the share
1 - m is of the image as it came.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jbias.augment import compose, options, pillow, sampling

OPERATIONS = ("autocontrast", "equalize", "posterize", "rotate", "solarize")
OPERATIONS += ("shear_x", "shear_y", "translate_x", "translate_y")
# The four that are also corruptions of ImageNet-C.
ALL_OPERATIONS = (*OPERATIONS, "colour", "contrast", "brightness", "sharpness")
_DEEPEST = 3
Image = Float[Array, "h w 3"]


class Chains(NamedTuple):
    """Several chains of operations; of each the first `depth` act, and its share."""

    kind: Int[Array, "*copies width slots"]
    amount: Float[Array, "*copies width slots"]
    depth: Int[Array, "*copies width"]
    share: Float[Array, "*copies width"]


def make(
    *,
    severity: float = 1,
    width: int = 3,
    depth: int = -1,
    alpha: float = 1.0,
    all_ops: bool = False,
    js: float = 12.0,
    views: int = 3,
) -> Callable:
    """Shows each image in `views` rows: itself, then augmented with weight 0.

    An augmented image is (1 - m) x + m sum_i w_i chain_i(x), m ~ Beta(alpha, alpha),
    w ~ Dirichlet(alpha, ...) over `width` chains. A chain is `depth` operations (1 to 3
    if negative), each drawn from the list, at a level from U(0.1, severity). The class
    loss is that of the images themselves, and `js` times the Jensen-Shannon divergence
    of each image's views is added to it (base.objective).

    views=1, which needs js=0, puts the augmented image in the place of the image; with
    depth=0 nothing is changed. A batch that shows views already is refused.
    """
    options.check_range("augmix", 0.1, 10, severity=severity)
    options.check_range("augmix", 1, 100, width=width, views=views)
    options.check_plain("augmix", "positive", alpha=alpha)
    options.check_plain("augmix", "at least 0", js=js)
    if views == 1 and not options.is_statically(js, 0):
        must = "augmix: with views=1 nothing can agree, so js must be 0"
        raise ValueError(f"{must}, got {js}; set js=0 or views=3")
    names = ALL_OPERATIONS if all_ops else OPERATIONS

    def one(image: Image, key: PRNGKeyArray) -> Float[Array, "v h w 3"]:
        copies, size = max(views - 1, 1), image.shape[:2]
        chains, m = draw(key, copies, names, severity, width, depth, alpha, size)
        mix = jax.vmap(lambda chains: mixture(image, names, chains))(chains)
        m = m.reshape(-1, 1, 1, 1)
        return (1 - m) * image[None] + m * mix

    def apply(batch, key):
        if "views" in batch:
            must = "augmix: the batch must not show views"
            got = f"got {batch['views']} of each image"
            raise ValueError(f"{must}, {got}; leave out the transform that makes them")
        image = batch["image"]
        new = jnp.repeat(image[:, None], max(views - 1, 1), 1)
        if depth:
            new = jax.vmap(one)(image, sampling.keys(key, len(image)))
        if views == 1:
            return {**batch, "image": new[:, 0]}
        both = jnp.concatenate([image[:, None], new], 1)
        shown = compose.repeat_shown(batch, views)
        shown["image"] = both.reshape(-1, *image.shape[1:])
        return shown if options.is_statically(js, 0) else {**shown, "consistency": js}

    return apply


def mixture(image: Image, names: Sequence[str], chains: Chains) -> Image:
    """sum_i share_i chain_i(image); chain i is the first depth_i of its operations."""
    start = pillow.pack(image)

    def add(total, chain):
        def step(i, pixels):
            new = pillow.apply(pixels, chain.kind[i], chain.amount[i], names)
            return jnp.where(i < chain.depth, new, pixels)

        end = jax.lax.fori_loop(0, len(chain.kind), step, start)
        return total + chain.share * pillow.unpack(end), None

    return jax.lax.scan(add, jnp.zeros_like(image), chains)[0]


def draw(
    key: PRNGKeyArray, copies, names, severity, width, depth, alpha, size
) -> tuple[Chains, Float[Array, "copies"]]:
    """Draws each copy's chains, and its m."""
    slots, several = depth if depth > 0 else _DEEPEST, (copies, width)
    shapes = (3, *several, slots), several, several, (copies,)
    u_op, u_depth, u_share, m = sampling.uniforms(key, *shapes)
    kind, amount = operations(u_op, names, severity, size)
    deep = 1 + sampling.integers(u_depth, _DEEPEST)
    deep = jnp.full_like(deep, depth) if depth > 0 else deep
    share = -jnp.log1p(-u_share)
    # The general way takes seconds more to compile.
    if not options.is_statically(alpha, 1):
        k_share, k_m = jax.random.split(jax.random.fold_in(key, 1))
        share = jax.random.gamma(k_share, alpha, several)
        m = jax.random.beta(k_m, alpha, alpha, (copies,))
    return Chains(kind, amount, deep, share / jnp.sum(share, 1, keepdims=True)), m


def operations(
    u: Float[Array, "3 *shape"], names: Sequence[str], severity: float, size: tuple
) -> tuple[Int[Array, "*shape"], Float[Array, "*shape"]]:
    """Operations, as their places in `names`, and amounts, of uniform numbers.

    A level is from U(0.1, severity); AMOUNTS says what it means for images of `size`.
    """
    which, level, side = u
    kind = sampling.integers(which, len(names))
    level, sign = 0.1 + (severity - 0.1) * level, jnp.where(side < 0.5, 1.0, -1.0)
    amount = jnp.zeros_like(level)
    for i, name in enumerate(names):
        if name in AMOUNTS:
            amount = jnp.where(kind == i, AMOUNTS[name](level, sign, *size), amount)
    return kind, amount


# (level, sign, height, width) -> amount, as in `ops`.
AMOUNTS: Mapping[str, Callable] = {
    "posterize": lambda level, sign, h, w: 4 - jnp.floor(4 * level / 10),
    "rotate": lambda level, sign, h, w: sign * jnp.floor(30 * level / 10),
    "solarize": lambda level, sign, h, w: 256 - jnp.floor(256 * level / 10),
    "shear_x": lambda level, sign, h, w: sign * (0.3 * level / 10),
    "shear_y": lambda level, sign, h, w: sign * (0.3 * level / 10),
    "translate_x": lambda level, sign, h, w: sign * jnp.floor(w / 3 * level / 10),
    "translate_y": lambda level, sign, h, w: sign * jnp.floor(h / 3 * level / 10),
    **dict.fromkeys(pillow.BLENDS, lambda level, sign, h, w: 1.8 * level / 10 + 0.1),
}
