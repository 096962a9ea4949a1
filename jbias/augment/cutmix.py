"""The CutMix transform: pastes a box of another image, and mixes labels by the area.

Source: Yun et al., ICCV 2019, https://arxiv.org/abs/1905.04899.
Reference code: https://github.com/clovaai/CutMix-PyTorch at 2d8eb68; for the variant
"torchbearer", the baseline of FMix, https://github.com/pytorchbearer/torchbearer at
0e8484c.
Deviation: partners are drawn inside groups (`jbias.augment.mixing`). The reformulated loss
of CutMix is defined like MixUp's; no released code contains this loss.
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from jbias import errors
from jbias.augment import geometric, mixing, options, random_numbers

VARIANTS = ("area", "torchbearer")


def make(
    *,
    alpha: float = 1.0,
    variant: str = "area",
    reformulated: bool = False,
    p: float = 1.0,
    partner: str = "batch",
    mix_group: int = 32,
) -> options.Transform:
    """Return the CutMix transform, which pastes a box of the partner's image into each image.

    lam ~ Beta(alpha, alpha) is the share of pixels outside the box. The box has sides s W
    and s H, s = sqrt(1 - lam), and a centre uniform over the pixels, and is cut at the
    image's border.

    variant: "area", the authors' variant: sides are rounded down, one box per batch, and the
      label's weight is the actual share of pixels outside. "torchbearer": sides are rounded to
      the nearest pixel, one centre per image, and the label's weight is lam, which is too small
      if the box is cut at the border.
    reformulated, p, partner, mix_group: see mixing.make. The authors use p = 1 on ImageNet
      and 0.5 on CIFAR.
    ValueError for an invalid option.
    """
    errors.check_choice("cutmix", variant, VARIANTS, "change variant", name="variant")
    return mixing.make(
        "cutmix",
        mix_sampler(alpha, variant),
        alpha=alpha,
        reformulated=reformulated,
        p=p,
        partner=partner,
        mix_group=mix_group,
    )


def mix_sampler(alpha: float, variant: str = "area") -> mixing.Sampler:
    """Return a function draw(key, batch, keep_label) -> mixing.Mix; its mask is 0 in a random box.

    alpha, variant: see `make`.
    """

    def draw(key, batch, keep_label):
        """Return a Mix whose mask is 0 in a random box and 1 outside.

        The mask is (1 h w 1), or (b h w 1) for "torchbearer". lam: the mask's mean for "area",
        else the lam that was drawn. key, batch, keep_label: see mixing.Sampler.
        """
        rows, height, width, _ = batch["image"].shape
        k_lam, k_place = jax.random.split(key)
        lam = mixing.draw_lambda(k_lam, alpha, keep_label)
        sides = jnp.sqrt(1 - lam) * jnp.array([height, width], jnp.float32)

        def outside(key: PRNGKeyArray, sides: Int[Array, "2"]) -> Float[Array, "h w 1"]:
            centre = jax.random.randint(key, (2,), 0, jnp.array([height, width]))
            inside = box_mask(centre, sides, height, width)
            return (~inside).astype(jnp.float32)[..., None]

        if variant == "area":
            mask = outside(k_place, jnp.floor(sides).astype(jnp.int32))[None]
            return mixing.Mix(mask, jnp.mean(mask))
        draw_mask = functools.partial(outside, sides=jnp.round(sides).astype(jnp.int32))
        views = batch.get("views", 1)
        mask = random_numbers.draw_each(draw_mask, k_place, rows // views)
        return mixing.Mix(jnp.repeat(mask, views, axis=0), lam)

    return draw


def box_mask(
    centre: Int[Array, "2"], sides: Int[Array, "2"], height: int, width: int
) -> Bool[Array, "h w"]:
    """Return a mask of the box: True from centre - side // 2 to below centre + side // 2.

    centre, sides: (row, column) and (height, width) of the box, in pixels. An odd side becomes
    one pixel shorter, as in the references. height, width: of the image, in pixels.
    """
    half = sides // 2
    return geometric.inside_box(centre - half, centre + half, height, width)
