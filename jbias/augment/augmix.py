"""The AugMix transform: mixed chains of image operations, with a consistency loss.

Source: Hendrycks, Mu, Cubuk, Zoph, Gilmer and Lakshminarayanan, ICLR 2020,
https://arxiv.org/abs/1912.02781.
Reference code: https://github.com/google-research/augmix at 9b9824c.
Deviations: translations are relative to the image's size (in the reference, to a constant);
shears are rounded to 2^-20; only the inputs of the chains are rounded to 8 bits, not the
image that has the share 1 - m.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jbias import errors
from jbias.augment import compose, options, pillow, random_numbers

OPERATIONS = (
    "autocontrast",
    "equalize",
    "posterize",
    "rotate",
    "solarize",
    "shear_x",
    "shear_y",
    "translate_x",
    "translate_y",
)
# With the four operations that are also corruptions of ImageNet-C.
ALL_OPERATIONS = (*OPERATIONS, "colour", "contrast", "brightness", "sharpness")
_MAX_DEPTH = 3
Image = Float[Array, "h w 3"]


class Chains(NamedTuple):
    """`width` chains of operations for each augmented copy of an image.

    slots is the number of operations that are stored for a chain. kind: operations, as indices
    in a list of names. amount: their amounts, in the units of pillow.py. depth: length of each
    chain: only its first `depth` operations are applied. share: weight of a chain in the
    mixture; the weights of a copy sum to 1.
    """

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
) -> options.Transform:
    """Return the AugMix transform: each image becomes `views` rows, itself and augmented copies.

    An augmented image is (1 - m) x + m sum_i w_i chain_i(x), m ~ Beta(alpha, alpha),
    w ~ Dirichlet(alpha, ...) over `width` chains. A chain is `depth` random operations of
    OPERATIONS, each at a level from U(0.1, severity). Augmented rows have weight 0 in the
    class loss; `js` times the Jensen-Shannon divergence of each image's views is added to
    the loss (base.objective).

    severity: largest level, 0.1 to 10. alpha: parameter of the two distributions, positive.
    depth: operations per chain; negative: 1 to 3, drawn for each chain; 0: the copies are
      equal to the image.
    all_ops: True: use ALL_OPERATIONS instead of OPERATIONS.
    js: weight of the divergence, at least 0.
    views: rows per image; with 1, which needs js=0, the augmented image replaces the image.

    ValueError for an invalid option. Applied to a batch with the entry "views", the
    transform raises ValueError.
    """
    errors.check_range("augmix", 0.1, 10, severity=severity)
    errors.check_range("augmix", 1, 100, width=width, views=views)
    errors.check_condition("augmix", "positive", alpha=alpha)
    errors.check_condition("augmix", "at least 0", js=js)
    if views == 1 and not options.is_statically(js, 0):
        must = "augmix: with views=1 there are no views to compare, so js must be 0"
        raise ValueError(f"{must}, got {js}; set js=0 or views=3")
    names = ALL_OPERATIONS if all_ops else OPERATIONS

    def augment(image: Image, key: PRNGKeyArray) -> Float[Array, "v h w 3"]:
        """Return augmented copies of an image (h w 3): views - 1 of them, but at least 1.

        A copy is (1 - m) image + m `mixture`, with its own chains and m from `draw`.
        """
        chains, m = draw(
            key,
            copies=max(views - 1, 1),
            names=names,
            severity=severity,
            width=width,
            depth=depth,
            alpha=alpha,
            size=image.shape[:2],
        )
        mix = jax.vmap(lambda chains: mixture(image, names, chains))(chains)
        m = m.reshape(-1, 1, 1, 1)
        return (1 - m) * image[None] + m * mix

    def apply(batch, key):
        """Return the batch with `views` rows per image: the image, then its augmented copies.

        With views=1, the one copy replaces the image. Other rows are repeated, copies have
        weight 0, and "consistency" is js unless js=0. ValueError for a batch with "views". key:
        random key.
        """
        if "views" in batch:
            must = "augmix: the batch must not have views already"
            got = f"got {batch['views']} of each image"
            raise ValueError(f"{must}, {got}; leave out the transform that makes them")
        image = batch["image"]
        new = jnp.repeat(image[:, None], max(views - 1, 1), 1)
        if depth:
            new = jax.vmap(augment)(image, random_numbers.keys(key, len(image)))
        if views == 1:
            return {**batch, "image": new[:, 0]}
        both = jnp.concatenate([image[:, None], new], 1)
        shown = compose.repeat_unweighted(batch, views)
        shown["image"] = both.reshape(-1, *image.shape[1:])
        return shown if options.is_statically(js, 0) else {**shown, "consistency": js}

    return apply


def mixture(image: Image, names: Sequence[str], chains: Chains) -> Image:
    """Return sum_i share_i chain_i(image), the mixture of the chains of one copy.

    The image is rounded to bytes before the chains. names: operations; chains.kind has their
    indices. chains: of one copy, without the axis of copies.
    """
    start = pillow.pack(image)

    def add(total, chain):
        """Return total + share_i chain_i(image), and None, as jax.lax.scan needs.

        total: image (h w 3). chain: Chains of one chain, without the axis of chains.
        """

        def step(i, pixels):
            new = pillow.apply(pixels, chain.kind[i], chain.amount[i], names)
            return jnp.where(i < chain.depth, new, pixels)

        end = jax.lax.fori_loop(0, len(chain.kind), step, start)
        return total + chain.share * pillow.unpack(end), None

    return jax.lax.scan(add, jnp.zeros_like(image), chains)[0]


def draw(
    key: PRNGKeyArray,
    *,
    copies: int,
    names: Sequence[str],
    severity: float,
    width: int,
    depth: int,
    alpha: float,
    size: tuple[int, int],
) -> tuple[Chains, Float[Array, "copies"]]:
    """Return random chains, and the weight m of the mixture, for each copy of an image.

    copies: number of copies. names: operations to draw from. severity, width, alpha: see
    `make`. depth: operations per chain; 0 or less: 1 to 3, drawn for each chain.
    size: height and width of the image, in pixels.
    """
    slots, chain_shape = depth if depth > 0 else _MAX_DEPTH, (copies, width)
    u_op, u_depth, u_share, m = random_numbers.uniforms(
        key, (3, *chain_shape, slots), chain_shape, chain_shape, (copies,)
    )
    kind, amount = operations(u_op, names, severity=severity, size=size)
    depths = 1 + random_numbers.integers(u_depth, _MAX_DEPTH)
    depths = jnp.full_like(depths, depth) if depth > 0 else depths
    share = -jnp.log1p(-u_share)
    # Gamma and beta samplers take seconds to compile, so alpha = 1 does without them.
    if not options.is_statically(alpha, 1):
        k_share, k_m = jax.random.split(jax.random.fold_in(key, 1))
        share = jax.random.gamma(k_share, alpha, chain_shape)
        m = jax.random.beta(k_m, alpha, alpha, (copies,))
    share = share / jnp.sum(share, 1, keepdims=True)
    return Chains(kind, amount, depth=depths, share=share), m


def operations(
    u: Float[Array, "3 *shape"],
    names: Sequence[str],
    *,
    severity: float,
    size: tuple[int, int],
) -> tuple[Int[Array, "*shape"], Float[Array, "*shape"]]:
    """Return random operations, as indices in `names`, and their amounts.

    u: U(0, 1) numbers for the operation, its level and its sign. The level is uniform from
    0.1 to `severity`; AMOUNTS converts it to an amount in the units of pillow.py. Operations
    that are not in AMOUNTS, such as "equalize", have the amount 0.
    size: height and width of the image, in pixels.
    """
    u_kind, u_level, u_sign = u
    height, width = size
    kind = random_numbers.integers(u_kind, len(names))
    level = 0.1 + (severity - 0.1) * u_level
    sign = jnp.where(u_sign < 0.5, 1.0, -1.0)
    amount = jnp.zeros_like(level)
    for i, name in enumerate(names):
        if name in AMOUNTS:
            amount = jnp.where(
                kind == i, AMOUNTS[name](level, sign, height, width), amount
            )
    return kind, amount


# (level, sign, height, width) -> amount, in the units of pillow.py.
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
