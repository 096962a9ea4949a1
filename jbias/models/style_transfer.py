"""Style transfer: AdaIN with its published VGG, a small AdaIN, and exact renders.

`vgg`: an image takes the statistics of another's deep features (AdaIN).
Source: Huang and Belongie, ICCV 2017, https://arxiv.org/abs/1703.06868.
Reference code: https://github.com/naoto0804/pytorch-AdaIN at 47950d0, whose network and
weights https://github.com/rgeirhos/Stylized-ImageNet at 3d58825 and
https://github.com/LiYingwei/ShapeTextureDebiasedTraining at afdb8b7 use.
Deviation: where the styles are the contents in another order, their features are computed
once; the references encode the same images twice.

`small`: AdaIN on features of its own, without a download. The encoder's features have a
quarter of the side. They take the statistics of another image's; the decoder draws the
content in flat colours from the normalised features, gives it the colours that the
statistics say, and adds a pattern: a sum of learnt tiles, weighted by the statistics.
Deviations: a decoder that sees normalised features only, and tiles fixed in the frame,
since a decoder this small draws no texture otherwise. `jbias prepare style`
trains its weights on drawn pictures. They know the sixteen textures of the embedded set, at
two scales: a photograph gets the nearest of these, not its own. For photographs `vgg` is
better.

`render`: the same scene drawn with another texture, for sets that come with their renders,
such as data.load("shapes", renders=True). Exact, and free of a network's artefacts; there
is nothing between two textures.
"""

import functools
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax import traverse_util
from jaxtyping import Array, Float

from jbias.models import published

_EPS = 1e-5
_POOL, _DOUBLE = "pool", "double"
# Convolutions by their number in the published files, with their channels.
VGG_ENCODER = (
    *((0, 3), (2, 64), (5, 64), _POOL, (9, 128), (12, 128), _POOL),
    *((16, 256), (19, 256), (22, 256), (25, 256), _POOL, (29, 512)),
)
VGG_DECODER = (
    *((1, 256), _DOUBLE, (5, 256), (8, 256), (11, 256), (14, 128), _DOUBLE),
    *((18, 128), (21, 64), _DOUBLE, (25, 64), (28, 3)),
)

Statistics = tuple[Float[Array, "b 1 1 c"], Float[Array, "b 1 1 c"]]
Permute = Callable[[Any], Any]
Map = Float[Array, "b h w c"]
Transfer = Callable[..., Map]


def statistics(f: Map) -> Statistics:
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


def adain(f: Map, own: Statistics, style: Statistics, alpha: float) -> Map:
    """Moves features `alpha` of the way to other statistics.

    alpha ((f - m) / s * s' + m') + (1 - alpha) f, with (m, s) those of f.
    """
    (mean, std), (style_mean, style_std) = own, style
    moved = (f - mean) / std * style_std + style_mean
    return (alpha * moved + (1 - alpha) * f).astype(f.dtype)


def make_transfer(encode: Callable, decode: Callable) -> Transfer:
    """Makes the style transfer of an encoder and a decoder; see models.TRANSFERS."""

    def apply(batch, permute: Permute, alpha: float, style=None) -> Map:
        f = encode(batch["image"])
        own = statistics(f)
        seen = own if style is None else statistics(encode(style["image"]))
        return jax.lax.stop_gradient(decode(adain(f, own, permute(seen), alpha)))

    return apply


class VGGStack(nn.Module):
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
                x = _conv(x, features, str(number), side=3 if number else 1)
                x = nn.relu(x) if features > 3 else x
        return x


def _vgg_shapes() -> dict[str, tuple[int, ...]]:
    """Names and shapes of all weights: "encoder/2/kernel" (3, 3, 3, 64) and so on."""
    shapes = {}
    nets = ("encoder", VGG_ENCODER, 3), ("decoder", VGG_DECODER, 512)
    for net, layers, inside in nets:
        for number, features in (one for one in layers if not isinstance(one, str)):
            size = 3 if number else 1
            shapes[f"{net}/{number}/kernel"] = (size, size, inside, features)
            shapes[f"{net}/{number}/bias"] = (features,)
            inside = features
    return shapes


_FILES = {"encoder": "vgg_normalised.pth", "decoder": "decoder.pth"}


def _from_torch(states: Mapping[str, published.Arrays]) -> dict[str, np.ndarray]:
    """Takes from the two files what `_vgg_shapes` names; VGG's later layers are not used."""
    arrays = {}
    for name in _vgg_shapes():
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
    files={
        "vgg_normalised.pth": "18a783877329319e5a640ae20f7b98c64e5f5572",
        "decoder.pth": "ccd7832185528ee899f752d532c3a5f08627196a",
    },
    url="https://github.com/LiYingwei/ShapeTextureDebiasedTraining/tree/afdb8b7/models",
    alternative="transfer=small (in a config's argument), or render on data=shapes",
    convert=_from_torch,
    shapes=_vgg_shapes(),
)


def nest(arrays: Mapping[str, np.ndarray], net: str) -> dict[str, Any]:
    """The variables of one of the nets, from arrays named "net/layer/kind"."""
    return {"params": traverse_util.unflatten_dict(dict(arrays), sep="/")[net]}


def vgg(*, weights: str | None = None) -> Transfer:
    """The published network; `weights` is a converted file or the published files' folder.

    The output is not cut to [0, 1], and has 8 ceil(side / 8) pixels a side.
    Raises ValueError, with where to get the weights, where they are not there.
    """
    arrays = published.load(PUBLISHED, weights)
    encode = functools.partial(VGGStack(VGG_ENCODER).apply, nest(arrays, "encoder"))
    decode = functools.partial(VGGStack(VGG_DECODER).apply, nest(arrays, "decoder"))
    return make_transfer(encode, decode)


SHIPPED = pathlib.Path(__file__).parent / "weights" / "small_adain.npz"
TILE = 48  # Pixels of a side, after which a pattern repeats.
CODE = 128  # Numbers that tell a style.
_FEATURES, _WIDTH, _TILES = 128, 48, 64
_he, _zero = nn.initializers.he_normal(), nn.initializers.zeros


class SmallEncoder(nn.Module):
    """Maps images in [0, 1] to features (b h/4 w/4 128), linear at the end."""

    @nn.compact
    def __call__(self, x: Float[Array, "b h w 3"]) -> Float[Array, "b h2 w2 c"]:
        x = nn.relu(_conv(2 * x - 1, _WIDTH, "conv1", side=5, stride=2))
        x = nn.relu(_conv(x, _WIDTH, "conv2"))
        x = nn.relu(_conv(x, 2 * _WIDTH, "conv3", stride=2))
        x = nn.relu(_conv(x, 2 * _WIDTH, "conv4"))
        return _conv(x, _FEATURES, "conv5")


class StyleCode(nn.Module):
    """Maps statistics to what the decoder takes of a style, (b 128)."""

    @nn.compact
    def __call__(self, statistics: Statistics) -> Float[Array, "b c"]:
        mean, std = (x[:, 0, 0] for x in statistics)
        x = nn.LayerNorm(name="norm1")(jnp.concatenate([mean, std], -1))
        x = nn.relu(nn.Dense(192, name="dense1", kernel_init=_he)(x))
        x = nn.relu(nn.Dense(CODE, name="dense2", kernel_init=_he)(x))
        return nn.LayerNorm(name="norm2")(x)


class SmallDecoder(nn.Module):
    """Maps features to images, (b 4h 4w 3), not cut to [0, 1].

    origin: where in the frame the tiles begin, one (row, column) for all images.
    """

    @nn.compact
    def __call__(
        self, x: Float[Array, "b h w c"], origin: tuple[int, int] = (0, 0)
    ) -> Float[Array, "b h2 w2 3"]:
        mean, std = statistics(x)
        code = StyleCode(name="code")((mean, std))
        flat = self._carrier((x - mean) / std)
        own = jnp.mean(flat, (1, 2), keepdims=True)
        spread = jnp.sqrt(jnp.var(flat, (1, 2), keepdims=True) + 1e-3)
        colour = nn.Dense(6, name="colour", kernel_init=_zero)(code)[:, None, None]
        image = (flat - own) / spread * jax.nn.softplus(colour[..., :3] - 2)
        image = image + colour[..., 3:] + 0.5
        tiles = self.param("tiles", nn.initializers.normal(0.3), (TILE, TILE, _TILES))
        rows = (origin[0] + jnp.arange(image.shape[1])) % TILE
        columns = (origin[1] + jnp.arange(image.shape[2])) % TILE
        tiles = jnp.asarray(tiles)[rows[:, None], columns]
        gates = nn.Dense(_TILES, name="gates", kernel_init=_zero)(code)
        return image + jnp.einsum("bk,hwk->bhw", gates, tiles)[..., None]

    def _carrier(self, x: Float[Array, "b h w c"]) -> Float[Array, "b h2 w2 3"]:
        x = nn.relu(_conv(x, 2 * _WIDTH, "conv1"))
        y = nn.relu(_conv(x, 2 * _WIDTH, "conv2"))
        x = nn.relu(x + _conv(y, 2 * _WIDTH, "conv3"))
        x = _doubled(_conv(x, 4 * _WIDTH, "conv4", side=1))
        x = nn.relu(_conv(x, 64, "conv5"))
        x = nn.relu(_conv(x, _WIDTH, "conv6"))
        return _doubled(_conv(x, 12, "conv7"))


def _conv(x: Array, features: int, name: str, *, side: int = 3, stride: int = 1):
    around = (0, 0), (side // 2,) * 2, (side // 2,) * 2, (0, 0)
    own = dict(padding="VALID", kernel_init=_he, name=name)
    conv = nn.Conv(features, (side, side), (stride, stride), **own)
    return conv(jnp.pad(x, around, "reflect"))


def _doubled(x: Float[Array, "b h w c"]) -> Float[Array, "b 2*h 2*w c//4"]:
    """Makes four channels one of twice the side."""
    b, h, w, c = x.shape
    x = x.reshape(b, h, w, 2, 2, c // 4).transpose(0, 1, 3, 2, 4, 5)
    return x.reshape(b, 2 * h, 2 * w, c // 4)


def small_shapes() -> dict[str, tuple[int, ...]]:
    """Names and shapes of all weights: "encoder/conv1/kernel" and so on."""
    drawn = jax.eval_shape(init_small, jax.random.key(0))
    return {name: value.shape for name, value in flatten(drawn).items()}


def init_small(key: jax.Array) -> dict[str, dict]:
    """Draws the parameters {"encoder": ..., "decoder": ...} to train from."""
    first, second = jax.random.split(key)
    image = jnp.zeros((1, 16, 16, 3))
    encoder = SmallEncoder().init(first, image)
    decoder = SmallDecoder().init(second, SmallEncoder().apply(encoder, image))
    return {"encoder": encoder["params"], "decoder": decoder["params"]}


def flatten(params: dict) -> dict[str, np.ndarray]:
    """Names each array by its path."""
    paths = jax.tree_util.tree_flatten_with_path(params)[0]
    return {"/".join(str(k.key) for k in path): value for path, value in paths}


def small(*, weights: str | os.PathLike | None = None) -> Transfer:
    """The shipped network, or that of a file `jbias prepare style` wrote.

    The output has 4 ceil(side / 4) pixels a side. Raises ValueError on other weights.
    """
    path = SHIPPED if weights is None else pathlib.Path(weights).expanduser()
    arrays = published.read_npz(path)
    published.check_shapes(small_shapes(), arrays, os.fspath(path))
    encode = functools.partial(SmallEncoder().apply, nest(arrays, "encoder"))
    decode = functools.partial(SmallDecoder().apply, nest(arrays, "decoder"))
    return make_transfer(encode, decode)


def render() -> Callable:
    """Makes the transfer; see models.TRANSFERS. alpha must be 1."""
    return pick_render


def pick_render(batch, permute: Permute, alpha: float, style=None) -> Map:
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
