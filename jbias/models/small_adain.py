"""A compact style transfer that needs no download: AdaIN on features of its own.

The encoder gives features of a quarter of the side. As in AdaIN (Huang and Belongie,
ICCV 2017, https://arxiv.org/abs/1703.06868) they take the statistics of another image's;
the decoder draws the content in flat colours from the normalised features, gives it the
colours that the statistics tell, and adds a pattern: a sum of learnt tiles, weighted
by the statistics. Deviations: a decoder that sees normalised features alone and tiles
that lie fixed in the frame, since a decoder this small draws no texture otherwise.

Its weights are those that `python -m jbias.prepare style` trains on drawn pictures. They
know the sixteen textures of the embedded set, at two scales: a photograph gets the
nearest of these, not its own. For photographs the published network (`vgg`) is better.
"""

import functools
import os
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float

from jbias.models import adain, published

SHIPPED = pathlib.Path(__file__).parent / "weights" / "small_adain.npz"
TILE = 48  # Pixels of a side, after which a pattern repeats.
CODE = 128  # Numbers that tell a style.
_FEATURES, _WIDTH, _TILES = 128, 48, 64
_he, _zero = nn.initializers.he_normal(), nn.initializers.zeros


class Encoder(nn.Module):
    """Maps images in [0, 1] to features (b h/4 w/4 128), linear at the end."""

    @nn.compact
    def __call__(self, x: Float[Array, "b h w 3"]) -> Float[Array, "b h2 w2 c"]:
        x = nn.relu(_conv(2 * x - 1, _WIDTH, "conv1", side=5, stride=2))
        x = nn.relu(_conv(x, _WIDTH, "conv2"))
        x = nn.relu(_conv(x, 2 * _WIDTH, "conv3", stride=2))
        x = nn.relu(_conv(x, 2 * _WIDTH, "conv4"))
        return _conv(x, _FEATURES, "conv5")


class Code(nn.Module):
    """Maps statistics to what the decoder takes of a style, (b 128)."""

    @nn.compact
    def __call__(self, statistics: adain.Statistics) -> Float[Array, "b c"]:
        mean, std = (x[:, 0, 0] for x in statistics)
        x = nn.LayerNorm(name="norm1")(jnp.concatenate([mean, std], -1))
        x = nn.relu(nn.Dense(192, name="dense1", kernel_init=_he)(x))
        x = nn.relu(nn.Dense(CODE, name="dense2", kernel_init=_he)(x))
        return nn.LayerNorm(name="norm2")(x)


class Decoder(nn.Module):
    """Maps features to images, (b 4h 4w 3), not cut to [0, 1].

    origin: where in the frame the tiles begin, one (row, column) for all images.
    """

    @nn.compact
    def __call__(
        self, x: Float[Array, "b h w c"], origin: tuple[int, int] = (0, 0)
    ) -> Float[Array, "b h2 w2 3"]:
        mean, std = adain.statistics(x)
        code = Code(name="code")((mean, std))
        flat = self._carrier((x - mean) / std)
        own = jnp.mean(flat, (1, 2), keepdims=True)
        spread = jnp.sqrt(jnp.var(flat, (1, 2), keepdims=True) + 1e-3)
        colour = nn.Dense(6, name="colour", kernel_init=_zero)(code)[:, None, None]
        image = (flat - own) / spread * jax.nn.softplus(colour[..., :3] - 2)
        image = image + colour[..., 3:] + 0.5
        around = nn.initializers.normal(0.3)
        tiles = self.param("tiles", around, (TILE, TILE, _TILES))
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
    return nn.Conv(
        features,
        (side, side),
        (stride, stride),
        padding="VALID",
        kernel_init=_he,
        name=name,
    )(jnp.pad(x, around, "reflect"))


def _doubled(x: Float[Array, "b h w c"]) -> Float[Array, "b 2*h 2*w c//4"]:
    """Makes four channels one of twice the side."""
    b, h, w, c = x.shape
    x = x.reshape(b, h, w, 2, 2, c // 4).transpose(0, 1, 3, 2, 4, 5)
    return x.reshape(b, 2 * h, 2 * w, c // 4)


def shapes() -> dict[str, tuple[int, ...]]:
    """Names and shapes of all weights: "encoder/conv1/kernel" and so on."""
    drawn = jax.eval_shape(init, jax.random.key(0))
    return {name: value.shape for name, value in flat(drawn).items()}


def init(key: jax.Array) -> dict[str, dict]:
    """Draws the parameters {"encoder": ..., "decoder": ...} to train from."""
    first, second = jax.random.split(key)
    image = jnp.zeros((1, 16, 16, 3))
    encoder = Encoder().init(first, image)
    features = Encoder().apply(encoder, image)
    decoder = Decoder().init(second, features)
    return {"encoder": encoder["params"], "decoder": decoder["params"]}


def flat(params: dict) -> dict[str, np.ndarray]:
    """Names each array by its path."""
    paths = jax.tree_util.tree_flatten_with_path(params)[0]
    return {"/".join(str(k.key) for k in path): value for path, value in paths}


def make(*, weights: str | os.PathLike | None = None) -> adain.Transfer:
    """The shipped network, or that of a file `python -m jbias.prepare style` wrote.

    The output has 4 ceil(side / 4) pixels a side. Raises ValueError on other weights.
    """
    path = SHIPPED if weights is None else pathlib.Path(weights).expanduser()
    arrays = published.stored(path)
    published.check(shapes(), arrays, os.fspath(path))
    encode = functools.partial(Encoder().apply, adain.nested(arrays, "encoder"))
    decode = functools.partial(Decoder().apply, adain.nested(arrays, "decoder"))
    return adain.transfer(encode, decode)
