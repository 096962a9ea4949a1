"""Feature statistics of images, and ways to swap them between images.

Statistics are those of one image's channel over its pixels.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from jbias.augment import examples

_EPS = 1e-5


def moments(
    x: Float[Array, "b h w c"],
) -> tuple[Float[Array, "b 1 1 c"], Float[Array, "b 1 1 c"]]:
    """Returns mean and unbiased variance over the pixels, in float32.

    Raises ValueError on maps of one pixel: their variance is 0/0 and would poison the
    gradient even where it is not used.
    """
    if x.shape[1] * x.shape[2] < 2:
        raise ValueError(
            "augment.feature_stats: statistics need maps of at least 2 pixels, got "
            f"shape {x.shape}; use larger images or an earlier stage"
        )
    x = x.astype(jnp.float32)
    return (
        jnp.mean(x, (1, 2), keepdims=True),
        jnp.var(x, (1, 2), ddof=1, keepdims=True),
    )


def permuted_adain(
    x: Float[Array, "b h w c"], key: PRNGKeyArray, *, group: int
) -> Float[Array, "b h w c"]:
    """Gives each image the channel means and deviations of another, held constant.

    (x - m) / (sqrt(v + eps) + eps) * sqrt(v' + eps) + m', with eps = 1e-5, twice in the
    divisor; m' and v' are the partner's and carry no gradient.
    Source: Nuriel, Benaim and Wolf, CVPR 2021; epsilons as in the released code.
    """
    mean, var = moments(x)
    style = jax.lax.stop_gradient(jnp.concatenate([mean, var], axis=1))
    style_mean, style_var = jnp.split(
        examples.permute(style, key, group=group), 2, axis=1
    )
    content = (x.astype(jnp.float32) - mean) / (jnp.sqrt(var + _EPS) + _EPS)
    return (content * jnp.sqrt(style_var + _EPS) + style_mean).astype(x.dtype)


def randomise_style(
    x: Float[Array, "b h w c"], key: PRNGKeyArray, *, group: int
) -> Float[Array, "b h w c"]:
    """Moves each image's statistics a random part of the way to another's.

    m'' = a m + (1 - a) m', v'' = a v + (1 - a) v' with a ~ U(0, 1) for each image; the
    variance is mixed, not the deviation. Gradients reach both images' statistics.
    Source: Nam et al., "Reducing Domain Gap by Reducing Style Bias", CVPR 2021.
    """
    share, order = jax.random.split(key)
    mean, var = moments(x)
    own = jnp.concatenate([mean, var], axis=1)
    keys = examples.keys(share, x.shape[0])
    a = jax.vmap(jax.random.uniform)(keys).reshape(-1, 1, 1, 1)
    mixed = a * own + (1 - a) * examples.permute(own, order, group=group)
    new_mean, new_var = jnp.split(mixed, 2, axis=1)
    content = (x.astype(jnp.float32) - mean) * jax.lax.rsqrt(var + _EPS)
    return (content * jnp.sqrt(new_var + _EPS) + new_mean).astype(x.dtype)


def randomise_content(
    x: Float[Array, "b h w c"], key: PRNGKeyArray, *, group: int
) -> Float[Array, "b h w c"]:
    """Gives each image's statistics the normalised content of another, held constant.

    Gradients flow only through the image's own mean and variance.
    Source: Nam et al., "Reducing Domain Gap by Reducing Style Bias", CVPR 2021.
    """
    mean, var = moments(x)
    content = (x.astype(jnp.float32) - mean) * jax.lax.rsqrt(var + _EPS)
    content = jax.lax.stop_gradient(examples.permute(content, key, group=group))
    return (content * jnp.sqrt(var + _EPS) + mean).astype(x.dtype)
