r"""Vision transformers: patches as words, a class token, pre-norm blocks.

Source: Dosovitskiy et al., ICLR 2021, https://arxiv.org/abs/2010.11929, in the form whose
weights are published (AugReg, DeiT, DINO, MAE, SAM, torchvision): learned positions, one
dense layer for queries, keys and values, exact GELU, LayerNorm with eps 1e-6.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from jbias.models import backbone, taps, weight_names

_NARROW = nn.initializers.truncated_normal(0.02)


class Positions(nn.Module):
    """Puts the class token before the patches and adds the learned positions.

    The table of positions belongs to a square grid. To other grids it is interpolated:
    bicubic with antialias, as timm does. A network that is drawn gets the grid of its
    images, or `grid` patches a side.
    """

    grid: int

    @nn.compact
    def __call__(self, x: Float[Array, "b h w c"]) -> Float[Array, "b 1 n c"]:
        b, h, w, c = x.shape
        token = self.param("cls_token", nn.initializers.normal(1e-6), (1, 1, c))
        if self.has_variable("params", "pos_embed"):
            table = self.get_variable("params", "pos_embed")
        else:
            if not self.grid and h != w:
                raise ValueError(
                    f"models.vit: a network is drawn on square images, got {h}x{w} "
                    "patches; set grid"
                )
            side = self.grid or h
            table = self.param("pos_embed", _NARROW, (1, 1 + side**2, c))
        side = math.isqrt(table.shape[1] - 1)
        places = table[:, 1:].reshape(1, side, side, c)
        if (h, w) != (side, side):
            places = jax.image.resize(places, (1, h, w, c), "cubic", antialias=True)
        x = x + places.astype(x.dtype)
        first = jnp.broadcast_to((token + table[:, :1]).astype(x.dtype), (b, 1, c))
        return jnp.concatenate([first, x.reshape(b, h * w, c)], 1)[:, None]


def block(
    call: backbone.Call, x: Array, *, heads: int, mlp: int, eps: float
) -> Float[Array, "b 1 n c"]:
    """x + attention(norm(x)), then x + mlp(norm(x)), over the words of an image."""
    dtype, (b, _, n, c) = call.piece.dtype, x.shape
    dense = functools.partial(nn.Dense, dtype=dtype, kernel_init=_NARROW)
    norm = functools.partial(_norm, eps, dtype)
    qkv = dense(3 * c, name="qkv")(norm(name="norm1")(x))
    q, k, v = jnp.moveaxis(qkv.reshape(b, n, 3, heads, -1), 2, 0)
    y = jax.nn.dot_product_attention(q, k, v).reshape(b, 1, n, c)
    x = x + call.through(dense(c, name="proj")(y), "attn")
    y = dense(mlp, name="fc1")(norm(name="norm2")(x))
    y = dense(c, name="fc2")(nn.gelu(y, approximate=False))
    return x + call.through(y, "mlp")


class ViT(backbone.Backbone, kw_only=True):
    """A vision transformer; a stage is a quarter of the blocks.

    The stem makes the words, the head normalises, pools and is linear. Between them a
    feature map has the words of an image in one row, (b, 1, 1 + h w, c), the class token
    first. Sites are, besides those of Backbone, "stem.conv" (patches as a map), and
    "block0.attn", "block0.mlp" (before these are added), "block0" and so on.

    classes: number of outputs; 0 gives the pooled features instead.
    patch: side of a patch in pixels, of which images' sides are multiples.
    grid: patches a side of the table of positions; 0 is what the images have.
    pool: "token" (the class token, after the last norm) or "avg" (the mean of the others
      before it, as MAE is tuned).
    remat: keeps the input of each block alone for the gradient.
    """

    width: int
    heads: int
    patch: int
    depth: int = 12
    mlp: int = 0  # Of a block's hidden layer; 0 is four times the width.
    grid: int = 0
    pool: str = "token"
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    eps: float = 1e-6
    remat: bool = False

    def setup(self):
        if self.pool not in ("token", "avg"):
            raise ValueError(
                f"models.vit: pool must be 'token' or 'avg', got {self.pool!r}"
            )
        if self.depth < 4 or self.width % self.heads:
            raise ValueError(
                "models.vit: depth must be 4 or more and width a multiple of heads, got "
                f"{self.depth}, {self.width} and {self.heads}"
            )
        side = (self.patch, self.patch)
        self.embed = nn.Conv(self.width, side, side, padding="VALID", dtype=self.dtype)
        self.positions = Positions(self.grid)
        own = dict(heads=self.heads, mlp=self.mlp or 4 * self.width, eps=self.eps)
        own = dict(run=functools.partial(block, **own), tap=self.tap, dtype=self.dtype)
        blocks = range(self.depth)
        self.blocks = [backbone.Part(site=f"block{i}", **own) for i in blocks]
        if self.pool == "token":
            self.norm = _norm(self.eps, jnp.float32)
        else:
            self.fc_norm = _norm(self.eps, jnp.float32)
        if self.classes:
            # In float32: bfloat16 logits tie.
            self.fc = nn.Dense(self.classes, dtype=jnp.float32, kernel_init=_NARROW)

    def stage_of(self, name: str) -> int:
        """Says to which stage a module belongs, given its name: 0 words, 5 linear."""
        if name.startswith("blocks_"):
            return 1 + 4 * int(name.removeprefix("blocks_")) // self.depth
        return 0 if name in ("embed", "positions") else 5

    def _check_side(self, height: int, width: int) -> None:
        if height % self.patch or width % self.patch:
            raise ValueError(
                f"models.vit: images must have sides that are multiples of patch, "
                f"{self.patch} pixels, got {height}x{width}; resize them"
            )

    def _stem(self, x: Array, key, train: bool) -> Array:
        x = taps.through(self, self.embed(x), "stem.conv", key, train)
        return taps.through(self, self.positions(x), "stem", key, train)

    def _stage(self, number: int, x: Array, key, train: bool) -> Array:
        def through(block, x, key):
            return block(x, key, train=train)

        through = nn.remat(through) if self.remat and train else through
        for i, block in enumerate(self.blocks):
            if self.stage_of(f"blocks_{i}") == number:
                x = through(block, x, key)
                x = taps.through(self, x, f"block{i}", key, train)
        return x

    def _head(self, x: Array, key, train: bool) -> Array:
        if self.pool == "token":
            x = self.norm(x[:, 0, 0])
        else:
            x = self.fc_norm(jnp.mean(x[:, 0, 1:].astype(jnp.float32), 1))
        x = self._drop(x, "dropout", key, train)
        return self.fc(x) if self.classes else x


def _norm(eps: float, dtype: Any, name: str | None = None) -> nn.LayerNorm:
    # The variance from centred values: E[x^2] - E[x]^2 loses digits.
    return nn.LayerNorm(eps, dtype=dtype, use_fast_variance=False, name=name)


# timm's names, which DeiT, DINO and MAE have too; weight_names.py says how they are read.
NAMES = (
    (r"positions", r""),
    (r"embed", r"patch_embed.proj"),
    (r"blocks_(\d+)/(norm\d)", r"blocks.\1.\2"),
    (r"blocks_(\d+)/(qkv|proj)", r"blocks.\1.attn.\2"),
    (r"blocks_(\d+)/(fc\d)", r"blocks.\1.mlp.\2"),
    (r"norm|fc_norm", r"\g<0>"),
    (r"fc", r"head"),
)


def _torchvision(first: str, second: str) -> tuple:
    """The names of vit_b_16, whose hidden layers had others before 0.14."""
    block = r"encoder.layers.encoder_layer_\1."
    return (
        (r"positions/cls_token", r"class_token"),
        (r"positions/pos_embed", r"encoder.pos_embedding"),
        (r"embed", r"conv_proj"),
        (r"blocks_(\d+)/norm(\d)", block + r"ln_\2"),
        (r"blocks_(\d+)/qkv/kernel", block + r"self_attention.in_proj_weight"),
        (r"blocks_(\d+)/qkv/bias", block + r"self_attention.in_proj_bias"),
        (r"blocks_(\d+)/proj", block + r"self_attention.out_proj"),
        (r"blocks_(\d+)/fc1", block + first),
        (r"blocks_(\d+)/fc2", block + second),
        (r"norm", r"encoder.ln"),
        (r"fc", r"heads.head"),
    )


def _transformers(block, qkv, proj, first, second) -> tuple:
    """The names of transformers, whose queries, keys and values are three layers."""
    kinds = (("kernel", "weight"), ("bias", "bias"))
    return (
        (r"positions/cls_token", r"embeddings.cls_token"),
        (r"positions/pos_embed", r"embeddings.position_embeddings"),
        (r"embed", r"embeddings.patch_embeddings.projection"),
        (r"blocks_(\d+)/norm1", block + r"layernorm_before"),
        (r"blocks_(\d+)/norm2", block + r"layernorm_after"),
        *(
            (rf"blocks_(\d+)/qkv/{ours}", tuple(f"{block}{n}.{theirs}" for n in qkv))
            for ours, theirs in kinds
        ),
        (r"blocks_(\d+)/proj", block + proj),
        (r"blocks_(\d+)/fc1", block + first),
        (r"blocks_(\d+)/fc2", block + second),
        (r"norm", r"layernorm"),
        (r"fc", r"classifier"),
    )


DIALECTS = (
    NAMES,
    _torchvision("mlp.0", "mlp.3"),
    _torchvision("mlp.linear_1", "mlp.linear_2"),
    _transformers(
        r"encoder.layer.\1.",
        tuple(f"attention.attention.{name}" for name in ("query", "key", "value")),
        *("attention.output.dense", "intermediate.dense", "output.dense"),
    ),
    _transformers(
        r"layers.\1.",
        tuple(f"attention.{name}_proj" for name in "qkv"),
        *("attention.o_proj", "mlp.fc1", "mlp.fc2"),
    ),
)

# timm's names are those of networks with ImageNet's constants, too, such as DeiT and DINO;
# so are those of transformers.
_IMAGENET = (backbone.IMAGENET_MEAN, backbone.IMAGENET_STD)
_OF_TORCHVISION = weight_names.Publisher("torchvision", *_IMAGENET)
PUBLISHERS = (None, _OF_TORCHVISION, _OF_TORCHVISION, None, None)


def fitted(at: Callable[[str], tuple[int, ...] | None]) -> dict[str, Any]:
    """The options that shapes in a published file tell; see models.importing."""
    kernel, table = at("embed/kernel"), at("positions/pos_embed")
    if kernel is None or table is None or len(kernel) != 4 or len(table) != 3:
        return {}
    pool = "avg" if at("fc_norm/scale") else "token"
    return {"patch": kernel[2], "grid": math.isqrt(max(table[1] - 1, 0)), "pool": pool}
