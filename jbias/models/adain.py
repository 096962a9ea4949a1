"""AdaIN style transfer: an image takes the statistics of another's deep features.

Source: Huang and Belongie, ICCV 2017, https://arxiv.org/abs/1703.06868.
Reference code: https://github.com/naoto0804/pytorch-AdaIN at 47950d0, whose network and
weights https://github.com/rgeirhos/Stylized-ImageNet at 3d58825 and
https://github.com/LiYingwei/ShapeTextureDebiasedTraining at afdb8b7 use.
Deviation: where the styles are the contents in another order, their features are
computed once; the references encode the same images twice.
"""

import functools
import types
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float

from jbias.models import published

_EPS = 1e-5
_POOL, _DOUBLE = "pool", "double"
# Convolutions by their number in the published files, with their channels.
ENCODER = (
    *((0, 3), (2, 64), (5, 64), _POOL, (9, 128), (12, 128), _POOL),
    *((16, 256), (19, 256), (22, 256), (25, 256), _POOL, (29, 512)),
)
DECODER = (
    *((1, 256), _DOUBLE, (5, 256), (8, 256), (11, 256), (14, 128), _DOUBLE),
    *((18, 128), (21, 64), _DOUBLE, (25, 64), (28, 3)),
)

Statistics = tuple[Float[Array, "b 1 1 c"], Float[Array, "b 1 1 c"]]
Permute = Callable[[Any], Any]
Transfer = Callable[..., Float[Array, "b h w c"]]


def statistics(f: Float[Array, "b h w c"]) -> Statistics:
    """Returns each channel's mean and sqrt(unbiased variance + 1e-5), in float32.

    Raises ValueError on maps of one pixel, which have no variance.
    """
    if f.shape[1] * f.shape[2] < 2:
        raise ValueError(
            "models.style_transfer: feature maps must have at least 2 pixels, got shape "
            f"{f.shape}; use larger images"
        )
    f = f.astype(jnp.float32)
    var = jnp.var(f, (1, 2), ddof=1, keepdims=True)
    return jnp.mean(f, (1, 2), keepdims=True), jnp.sqrt(var + _EPS)


def adain(
    f: Float[Array, "b h w c"], own: Statistics, style: Statistics, alpha: float
) -> Float[Array, "b h w c"]:
    """Moves features `alpha` of the way to other statistics.

    alpha ((f - m) / s * s' + m') + (1 - alpha) f, with (m, s) those of f.
    """
    (mean, std), (style_mean, style_std) = own, style
    moved = (f - mean) / std * style_std + style_mean
    return (alpha * moved + (1 - alpha) * f).astype(f.dtype)


def transfer(encode: Callable, decode: Callable) -> Transfer:
    """Makes the style transfer of an encoder and a decoder; see models.TRANSFERS."""

    def apply(
        batch: Mapping[str, Any],
        permute: Permute,
        alpha: float,
        style: Mapping[str, Any] | None = None,
    ) -> Float[Array, "b h w c"]:
        f = encode(batch["image"])
        own = statistics(f)
        seen = own if style is None else statistics(encode(style["image"]))
        return jax.lax.stop_gradient(decode(adain(f, own, permute(seen), alpha)))

    return apply


class Stack(nn.Module):
    """3x3 convolutions with reflected borders and ReLU, between changes of scale.

    Layers of 3 channels are linear: the encoder's first, which is 1x1 and brings [0, 1]
    to what VGG was trained on, and the decoder's last. Pooling keeps an odd last row or
    column.
    """

    layers: tuple

    @nn.compact
    def __call__(self, x: Float[Array, "b h w c"]) -> Float[Array, "b h2 w2 c2"]:
        for layer in self.layers:
            if layer == _POOL:
                odd = ((0, x.shape[1] % 2), (0, x.shape[2] % 2))
                x = nn.max_pool(x, (2, 2), (2, 2), odd)
            elif layer == _DOUBLE:
                x = jnp.repeat(jnp.repeat(x, 2, axis=1), 2, axis=2)
            else:
                number, features = layer
                size = 3 if number else 1
                around = (0, 0), (size // 2,) * 2, (size // 2,) * 2, (0, 0)
                x = jnp.pad(x, around, "reflect")
                conv = nn.Conv(
                    features, (size, size), padding="VALID", name=str(number)
                )
                x = nn.relu(conv(x)) if features > 3 else conv(x)
        return x


def _shapes() -> dict[str, tuple[int, ...]]:
    """Names and shapes of all weights: "encoder/2/kernel" (3, 3, 3, 64) and so on."""
    shapes = {}
    for net, layers, inside in (("encoder", ENCODER, 3), ("decoder", DECODER, 512)):
        for layer in layers:
            if isinstance(layer, str):
                continue
            number, features = layer
            size = 3 if number else 1
            shapes[f"{net}/{number}/kernel"] = (size, size, inside, features)
            shapes[f"{net}/{number}/bias"] = (features,)
            inside = features
    return shapes


_FILES = {"encoder": "vgg_normalised.pth", "decoder": "decoder.pth"}


def _from_torch(states: Mapping[str, published.Arrays]) -> dict[str, np.ndarray]:
    """Takes from the two files what `_vgg_shapes` names; VGG's later layers are not used."""
    arrays = {}
    for name in _shapes():
        net, number, kind = name.split("/")
        state = states[_FILES[net]]
        source = f"{number}.{'weight' if kind == 'kernel' else 'bias'}"
        if source not in state:
            raise ValueError(f"{_FILES[net]}: must have {source!r}, got no such entry")
        value = state[source].astype(np.float32)
        arrays[name] = value.transpose(2, 3, 1, 0) if kind == "kernel" else value
    return arrays


PUBLISHED = published.Published(
    name="vgg_adain",
    title="AdaIN's published network",
    files=types.MappingProxyType(
        {
            "vgg_normalised.pth": "18a783877329319e5a640ae20f7b98c64e5f5572",
            "decoder.pth": "ccd7832185528ee899f752d532c3a5f08627196a",
        }
    ),
    url="https://github.com/LiYingwei/ShapeTextureDebiasedTraining/tree/afdb8b7/models",
    alternative="transfer=small (in a config's argument), or render on data=shapes",
    convert=_from_torch,
    shapes=types.MappingProxyType(_shapes()),
)


def nested(arrays: Mapping[str, np.ndarray], net: str) -> dict[str, Any]:
    """The variables of one of the nets, from arrays named "net/layer/kind"."""
    params: dict[str, Any] = {}
    for name, value in arrays.items():
        first, *layers, kind = name.split("/")
        if first == net:
            inner = params
            for layer in layers:
                inner = inner.setdefault(layer, {})
            inner[kind] = value
    return {"params": params}


def vgg(*, weights: str | None = None) -> Transfer:
    """The published network; `weights` is a converted file or the published files' folder.

    The output is not cut to [0, 1], and has 8 ceil(side / 8) pixels a side.
    Raises ValueError, with where to get the weights, where they are not there.
    """
    arrays = published.load(PUBLISHED, weights)
    encode = functools.partial(Stack(ENCODER).apply, nested(arrays, "encoder"))
    decode = functools.partial(Stack(DECODER).apply, nested(arrays, "decoder"))
    return transfer(encode, decode)
