"""Style transfer without a network: the same scene drawn with another texture.

For sets that come with their renders, such as data.load("shapes", renders=True). Exact,
and free of a network's artefacts; there is nothing between two textures.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def make() -> Callable:
    """Makes the transfer; see models.TRANSFERS. alpha must be 1."""
    return pick


def pick(
    batch: Mapping[str, Any],
    permute: Callable[[Any], Any],
    alpha: float,
    style: Mapping[str, Any] | None = None,
) -> Float[Array, "b h w c"]:
    """Takes from each image's "renders" (b t h w c) the style's "attribute".

    The renders are the scene as it was drawn: what was done to "image" since is not done
    to them. Where the attribute names no render the image is NaN, which no loss survives.
    """
    for name, found in (("renders", batch), ("attribute", style or batch)):
        if name not in found:
            raise ValueError(
                f"models.style_transfer: the batch must have {name!r}, got {sorted(found)}; train "
                'on data="shapes" with renders=True and stylise before images are mixed, '
                'or use transfer=dict(name="small")'
            )
    if isinstance(alpha, int | float) and alpha != 1:
        raise ValueError(
            f"models.style_transfer: alpha must be 1, got {alpha}; between two renders there is"
            " none"
        )
    renders = batch["renders"]
    texture = permute((style or batch)["attribute"])
    chosen = jax.vmap(lambda textures, t: textures[t])(renders, texture)
    known = (0 <= texture) & (texture < renders.shape[1])
    image = chosen.astype(jnp.float32) / 255
    return jnp.where(known[:, None, None, None], image, jnp.nan)
