"""The two networks of DeepAugment under one face: trained, damaged, run on images."""

import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jbias.augment import deepaugment_cae, deepaugment_edsr
from jbias.models import cae, edsr
from jbias.models.published import Published


class Net(NamedTuple):
    """A network from images to images.

    apply(weights, image, keys, *, damaged): images in [0, 1], (b h w 3), to `scale`
    times larger ones; `keys` (b).
    """

    published: Published
    load: Callable[[str], dict[str, Any]]
    init: Callable[..., dict[str, np.ndarray]]
    sizes_of: Callable[[Mapping], dict[str, int]]
    scale: Callable[[Mapping[str, int]], int]  # From the sizes.
    unit: int  # Sides of what enters are a multiple of it.
    apply: Callable[..., Float[Array, "b scale*h scale*w 3"]]
    damage: Callable[..., dict[str, Any]]  # (weights, key) -> weights
    loss: Callable[..., Float[Array, ""]]  # (found, image)
    trained: Callable[[str], bool]  # By the name of a weight.
    # For small images: sizes of the network, how many times they are enlarged, and
    # how it is trained.
    small: Mapping[str, int]
    enlarge: int
    steps: int
    rate: float


def same_size(
    net: Net,
    weights: Mapping[str, Array],
    image: Float[Array, "b h w 3"],
    keys: PRNGKeyArray,
    *,
    enlarge: int = 1,
    **options,
) -> Float[Array, "b h w 3"]:
    """Runs images through a network, `enlarge` times larger, and brings them back.

    Inside, the result is `enlarge` times as large as the image; it is cut to [0, 1]
    before it is made smaller. `options` are those of net.apply.
    """
    scale = net.scale(net.sizes_of(weights))
    inside = _resized(image, image.shape[1] * enlarge // scale)
    found = net.apply(weights, inside, keys, **options)
    if enlarge == 1:
        return found
    return _resized(jnp.clip(found, 0, 1), image.shape[1])


def check_size(net: Net, size: int, sizes: Mapping[str, int], enlarge: int) -> None:
    """Refuses images of a size that the network does not give back."""
    multiple = net.unit * net.scale(sizes)
    if enlarge < 1 or size * enlarge % multiple:
        raise ValueError(
            f"prepare: --size times --enlarge must be a multiple of {multiple} for"
            f" {net.published.name}, got {size} times {enlarge}"
        )


def _resized(image: Float[Array, "b h w 3"], size: int) -> Array:
    """Bilinear, with antialiasing."""
    shape = (image.shape[0], size, size, 3)
    return jax.image.resize(image, shape, "linear")


def _cae(weights, image, keys, *, damaged: bool) -> Array:
    bits, how = _two(keys)
    damage = (lambda x: deepaugment_cae.latent(x, how)) if damaged else None
    return cae.apply(weights, image, bits, damage=damage)


def _edsr(
    weights,
    image,
    keys,
    *,
    damaged: bool,
    true_swaps: bool = False,
    true_skips: bool = False,
) -> Array:
    if not damaged:
        return edsr.apply(weights, image)
    first, second = _two(keys)
    return edsr.apply(
        weights,
        image,
        before=lambda x: deepaugment_edsr.before(x, first, true_swaps=true_swaps),
        body=lambda layers, x: deepaugment_edsr.body(
            layers, x, second, true_skips=true_skips
        ),
    )


def _two(keys: PRNGKeyArray) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    split = jax.vmap(jax.random.split)(keys)
    return split[:, 0], split[:, 1]


def _square(found: Array, image: Array) -> Array:
    return jnp.mean((found - image) ** 2)


def _absolute(found: Array, image: Array) -> Array:
    return jnp.mean(jnp.abs(found - image))


NETS: Mapping[str, Net] = types.MappingProxyType(
    {
        "cae": Net(
            published=cae.PUBLISHED,
            load=cae.load,
            init=cae.init,
            sizes_of=cae.sizes_of,
            scale=lambda sizes: 1,
            unit=4,
            apply=_cae,
            damage=deepaugment_cae.damage,
            loss=_square,
            trained=lambda name: True,
            small=types.MappingProxyType({"width": 32}),
            enlarge=2,
            steps=5000,
            rate=4e-3,
        ),
        "edsr": Net(
            published=edsr.PUBLISHED,
            load=edsr.load,
            init=edsr.init,
            sizes_of=edsr.sizes_of,
            scale=lambda sizes: sizes["scale"],
            unit=1,
            apply=_edsr,
            damage=deepaugment_edsr.damage,
            loss=_absolute,
            trained=edsr.is_trainable,
            small=types.MappingProxyType({"features": 32, "blocks": 8, "scale": 2}),
            enlarge=1,
            steps=2000,
            rate=2e-3,
        ),
    }
)
