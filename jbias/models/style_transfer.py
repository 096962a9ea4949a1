"""Style transfer: AdaIN with its published VGG, a small AdaIN, and exact renders.

`vgg`: deep features of an image get the statistics of another image's features (AdaIN).
Source: Huang and Belongie, ICCV 2017, https://arxiv.org/abs/1703.06868.
Reference code: https://github.com/naoto0804/pytorch-AdaIN at 47950d0, whose network and
weights https://github.com/rgeirhos/Stylized-ImageNet at 3d58825 and
https://github.com/LiYingwei/ShapeTextureDebiasedTraining at afdb8b7 use.
Deviation: if the styles are the contents in another order, their features are computed
once; the references encode the same images twice.

`small`: AdaIN on the features of a small encoder, without a download. The features have a
quarter of the image's side and get the statistics of another image's features. The decoder
draws the content in flat colours from the normalised features, recolours the content by the
statistics, and adds a pattern: a sum of learned tiles, weighted by the statistics.
Deviations: the decoder reads only normalised features, and the tiles have fixed positions in
the image, because otherwise a decoder of this size draws no texture. `jbias prepare style`
trains the weights on drawn pictures with the sixteen textures of the embedded data set "shapes", at
two scales: if the style is a photograph, the result has the most similar of these textures, not the
photograph's texture. For photographs `vgg` is better. Small shapes become blurred: networks
that recognise the embedded set recognise the shape in 88.0 % of its stylised images (98.2 % for
`render`).

`render`: the same scene rendered with another texture, for data sets with renders, such as
data.load("shapes", renders=True). A render is exact and has no artefacts of a network, but cannot
interpolate between two textures.
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

from jbias.models import weight_files

_EPS = 1e-5
_POOL, _DOUBLE = "pool", "double"
# A convolution is (its number in the published files, its output channels).
VGG_ENCODER = (
    (0, 3),
    (2, 64),
    (5, 64),
    _POOL,
    (9, 128),
    (12, 128),
    _POOL,
    (16, 256),
    (19, 256),
    (22, 256),
    (25, 256),
    _POOL,
    (29, 512),
)
VGG_DECODER = (
    (1, 256),
    _DOUBLE,
    (5, 256),
    (8, 256),
    (11, 256),
    (14, 128),
    _DOUBLE,
    (18, 128),
    (21, 64),
    _DOUBLE,
    (25, 64),
    (28, 3),
)

Statistics = tuple[Float[Array, "b 1 1 c"], Float[Array, "b 1 1 c"]]  # Mean, deviation.
Batch = Mapping[str, Any]  # With "image" and columns of the data set.
Permute = Callable[[Any], Any]  # From arrays of a batch to arrays of other images.
Map = Float[Array, "b h w c"]
Transfer = Callable[..., Map]  # (batch, permute, alpha, style=None) -> images.


def statistics(f: Map) -> Statistics:
    """Return (mean, sqrt(unbiased variance + 1e-5)) per image and channel, float32 (b 1 1 c).

    ValueError for maps of one pixel, which have no variance.
    """
    if f.shape[1] * f.shape[2] < 2:
        raise ValueError(
            "models.style_transfer: feature maps must have at least 2 pixels, got shape "
            f"{f.shape}; use larger images"
        )
    f = f.astype(jnp.float32)
    var = jnp.var(f, (1, 2), ddof=1, keepdims=True)
    return jnp.mean(f, (1, 2), keepdims=True), jnp.sqrt(var + _EPS)


def adain(f: Map, content: Statistics, style: Statistics, *, alpha: float) -> Map:
    """Return features moved a share `alpha` of the way to the style's statistics.

    alpha ((f - m) / s * s' + m') + (1 - alpha) f, with (m, s) = `content`, the statistics
    of f, and (m', s') = `style`.
    """
    (mean, std), (style_mean, style_std) = content, style
    moved = (f - mean) / std * style_std + style_mean
    return (alpha * moved + (1 - alpha) * f).astype(f.dtype)


def make_transfer(encode: Callable, decode: Callable) -> Transfer:
    """Return the style transfer of an encoder and a decoder; its result has no gradient.

    The result is transfer(batch, permute, alpha, style=None) -> images; see registry.TRANSFERS.
    Styles are those of the images in the batch `style`, by default in `batch`, after `permute`.
    encode: images in [0, 1] -> features. decode: features -> images.
    """

    def apply(
        batch: Batch, permute: Permute, alpha: float, style: Batch | None = None
    ) -> Map:
        """Return images with the contents of a batch in other styles; see `make_transfer`."""
        f = encode(batch["image"])
        content = statistics(f)
        styles = content if style is None else statistics(encode(style["image"]))
        mixed = adain(f, content, permute(styles), alpha=alpha)
        return jax.lax.stop_gradient(decode(mixed))

    return apply


class VGGStack(nn.Module):
    """A stack of 3x3 convolutions (reflected borders, ReLU), poolings and upsamplings.

    Layers of 3 channels have no ReLU: the encoder's first, which is 1x1 and maps [0, 1] to
    the range of VGG's training images, and the decoder's last. Pooling keeps an odd last
    row or column.

    layers: (number, channels) of a convolution, "pool" or "double".
    """

    layers: tuple

    @nn.compact
    def __call__(self, x: Float[Array, "b h w c"]) -> Float[Array, "b h2 w2 c2"]:
        """Return the map x after all layers; a max-pool halves each side and rounds up."""
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
    """Return the shapes of all weights by name, such as "encoder/2/kernel": (3, 3, 3, 64)."""
    shapes = {}
    nets = ("encoder", VGG_ENCODER, 3), ("decoder", VGG_DECODER, 512)
    for net, layers, channels in nets:
        for layer in layers:
            if isinstance(layer, str):
                continue
            number, features = layer
            size = 3 if number else 1
            shapes[f"{net}/{number}/kernel"] = (size, size, channels, features)
            shapes[f"{net}/{number}/bias"] = (features,)
            channels = features
    return shapes


_FILES = {"encoder": "vgg_normalised.pth", "decoder": "decoder.pth"}


def _from_torch(states: Mapping[str, weight_files.Arrays]) -> dict[str, np.ndarray]:
    """Return the arrays of `_vgg_shapes`, given the state dicts of the two published files.

    Later layers of the encoder are unused. ValueError if an array is missing.
    """
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


PUBLISHED = weight_files.PublishedWeights(
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
    """Return the variables {"params": tree} of one network.

    arrays: by names such as "encoder/2/kernel". net: "encoder" or "decoder".
    """
    return {"params": traverse_util.unflatten_dict(dict(arrays), sep="/")[net]}


def vgg(*, weights: str | None = None) -> Transfer:
    """Return the transfer of the published VGG.

    weights: a converted file or the folder of the published files. ValueError, with the
    page to download from, if `weights` is not given or does not exist. The output of the transfer
    is not clipped to [0, 1] and has 8 ceil(side / 8) pixels a side.
    """
    arrays = weight_files.load(PUBLISHED, weights)
    encode = functools.partial(VGGStack(VGG_ENCODER).apply, nest(arrays, "encoder"))
    decode = functools.partial(VGGStack(VGG_DECODER).apply, nest(arrays, "decoder"))
    return make_transfer(encode, decode)


SHIPPED = pathlib.Path(__file__).parent / "weights" / "small_adain.npz"
TILE = 48  # Side of a tile in pixels; patterns repeat after one tile.
CODE = 128  # Size of a style vector.
_FEATURES, _WIDTH, _TILES = 128, 48, 64
_he, _zero = nn.initializers.he_normal(), nn.initializers.zeros


class SmallEncoder(nn.Module):
    """An encoder with few layers, from images in [0, 1] to features (b h/4 w/4 128)."""

    @nn.compact
    def __call__(self, x: Float[Array, "b h w 3"]) -> Float[Array, "b h2 w2 c"]:
        """Return the features of images x, with a quarter of the side."""
        x = nn.relu(_conv(2 * x - 1, _WIDTH, "conv1", side=5, stride=2))
        x = nn.relu(_conv(x, _WIDTH, "conv2"))
        x = nn.relu(_conv(x, 2 * _WIDTH, "conv3", stride=2))
        x = nn.relu(_conv(x, 2 * _WIDTH, "conv4"))
        return _conv(x, _FEATURES, "conv5")


class StyleCode(nn.Module):
    """A network that maps the statistics of features to a style vector, (b 128)."""

    @nn.compact
    def __call__(self, statistics: Statistics) -> Float[Array, "b c"]:
        """Return the style vector of statistics (mean, deviation)."""
        mean, std = (x[:, 0, 0] for x in statistics)
        x = nn.LayerNorm(name="norm1")(jnp.concatenate([mean, std], -1))
        x = nn.relu(nn.Dense(192, name="dense1", kernel_init=_he)(x))
        x = nn.relu(nn.Dense(CODE, name="dense2", kernel_init=_he)(x))
        return nn.LayerNorm(name="norm2")(x)


class SmallDecoder(nn.Module):
    """A decoder with few layers, from features to images (b 4h 4w 3), not clipped to [0, 1].

    A pattern of learned tiles is repeated over the images and added. origin: (row, column) of
    the tiles' pixel at the upper left corner of all images.
    """

    @nn.compact
    def __call__(
        self, x: Float[Array, "b h w c"], origin: tuple[int, int] = (0, 0)
    ) -> Float[Array, "b h2 w2 3"]:
        """Return the images (b 4h 4w 3) of features x; origin: see the class."""
        mean, std = statistics(x)
        code = StyleCode(name="code")((mean, std))
        flat = self._draw_content((x - mean) / std)
        flat_mean = jnp.mean(flat, (1, 2), keepdims=True)
        flat_std = jnp.sqrt(jnp.var(flat, (1, 2), keepdims=True) + 1e-3)
        colour = nn.Dense(6, name="colour", kernel_init=_zero)(code)[:, None, None]
        image = (flat - flat_mean) / flat_std * jax.nn.softplus(colour[..., :3] - 2)
        image = image + colour[..., 3:] + 0.5
        tiles = self.param("tiles", nn.initializers.normal(0.3), (TILE, TILE, _TILES))
        rows = (origin[0] + jnp.arange(image.shape[1])) % TILE
        columns = (origin[1] + jnp.arange(image.shape[2])) % TILE
        tiles = jnp.asarray(tiles)[rows[:, None], columns]
        gates = nn.Dense(_TILES, name="gates", kernel_init=_zero)(code)
        return image + jnp.einsum("bk,hwk->bhw", gates, tiles)[..., None]

    def _draw_content(self, x: Float[Array, "b h w c"]) -> Float[Array, "b h2 w2 3"]:
        """Return the content in flat colours, from normalised features."""
        x = nn.relu(_conv(x, 2 * _WIDTH, "conv1"))
        y = nn.relu(_conv(x, 2 * _WIDTH, "conv2"))
        x = nn.relu(x + _conv(y, 2 * _WIDTH, "conv3"))
        x = _double_side(_conv(x, 4 * _WIDTH, "conv4", side=1))
        x = nn.relu(_conv(x, 64, "conv5"))
        x = nn.relu(_conv(x, _WIDTH, "conv6"))
        return _double_side(_conv(x, 12, "conv7"))


def _conv(x: Array, features: int, name: str, *, side: int = 3, stride: int = 1):
    """Return x after a convolution with a square kernel of `side` pixels, borders reflected.

    features: output channels. name: name of the layer.
    """
    padding = (0, 0), (side // 2,) * 2, (side // 2,) * 2, (0, 0)
    conv = nn.Conv(
        features,
        (side, side),
        strides=(stride, stride),
        padding="VALID",
        kernel_init=_he,
        name=name,
    )
    return conv(jnp.pad(x, padding, "reflect"))


def _double_side(x: Float[Array, "b h w c"]) -> Float[Array, "b 2*h 2*w c//4"]:
    """Return a map of twice the side and a quarter of the channels (pixel shuffle)."""
    b, h, w, c = x.shape
    x = x.reshape(b, h, w, 2, 2, c // 4).transpose(0, 1, 3, 2, 4, 5)
    return x.reshape(b, 2 * h, 2 * w, c // 4)


def small_shapes() -> dict[str, tuple[int, ...]]:
    """Return the shapes of all weights by name, such as "encoder/conv1/kernel"."""
    params = jax.eval_shape(init_small, jax.random.key(0))
    return {name: value.shape for name, value in flatten(params).items()}


def init_small(key: jax.Array) -> dict[str, dict]:
    """Return random initial parameters, {"encoder": ..., "decoder": ...}."""
    first, second = jax.random.split(key)
    image = jnp.zeros((1, 16, 16, 3))
    encoder = SmallEncoder().init(first, image)
    decoder = SmallDecoder().init(second, SmallEncoder().apply(encoder, image))
    return {"encoder": encoder["params"], "decoder": decoder["params"]}


def flatten(params: dict) -> dict[str, np.ndarray]:
    """Return the arrays of a tree of parameters by path, such as "encoder/conv1/kernel"."""
    paths = jax.tree_util.tree_flatten_with_path(params)[0]
    return {"/".join(str(k.key) for k in path): value for path, value in paths}


def small(*, weights: str | os.PathLike | None = None) -> Transfer:
    """Return the transfer of the small network.

    weights: a file that `jbias prepare style` wrote; None: the file in this package.
    ValueError for other files. The output of the transfer is not clipped to [0, 1] and has
    4 ceil(side / 4) pixels a side.
    """
    path = SHIPPED if weights is None else pathlib.Path(weights).expanduser()
    arrays = weight_files.read_npz(path)
    weight_files.check_shapes(small_shapes(), arrays, os.fspath(path))
    encode = functools.partial(SmallEncoder().apply, nest(arrays, "encoder"))
    decode = functools.partial(SmallDecoder().apply, nest(arrays, "decoder"))
    return make_transfer(encode, decode)


def render() -> Callable:
    """Return `pick_render`, the transfer by renders; its alpha must be 1."""
    return pick_render


def pick_render(
    batch: Batch, permute: Permute, alpha: float, style: Batch | None = None
) -> Map:
    """Return each image's render, in [0, 1], with the texture of its style.

    batch: with "renders" (b t h w c) uint8, one per texture. style: a batch whose
    "attribute", after `permute`, is the index of each texture; None: the batch itself.
    alpha: must be 1 (else ValueError). Renders show the scene without any augmentation that
    was applied to "image". An attribute without a render gives an image of NaN, so that the
    loss shows the mistake. ValueError if "renders" or "attribute" is missing.
    """
    for column, source in (("renders", batch), ("attribute", style or batch)):
        if column not in source:
            raise ValueError(
                f"models.style_transfer: the batch must have {column!r}, got "
                f'{sorted(source)}; train on data="shapes" with renders=True and stylise '
                'before images are mixed, or use transfer=dict(name="small")'
            )
    if isinstance(alpha, int | float) and alpha != 1:
        raise ValueError(
            f"models.style_transfer: alpha must be 1, got {alpha}; renders cannot be "
            "interpolated"
        )
    renders = batch["renders"]
    texture = permute((style or batch)["attribute"])
    image = jax.vmap(lambda textures, t: textures[t])(renders, texture)
    is_known = (0 <= texture) & (texture < renders.shape[1])
    image = image.astype(jnp.float32) / 255
    return jnp.where(is_known[:, None, None, None], image, jnp.nan)
