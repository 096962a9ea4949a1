r"""Vision transformers: patch tokens, a class token, pre-norm blocks.

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
    """A layer that prepends the class token and adds the learned position embeddings.

    The embeddings belong to a square grid; for other grids the embeddings are interpolated
    (bicubic with antialias, as in timm).

    grid: patches per side of the initial embeddings; 0: as many as the first image has, which
      must be square (else ValueError).
    """

    grid: int

    @nn.compact
    def __call__(self, x: Float[Array, "b h w c"]) -> Float[Array, "b 1 n c"]:
        """Return the n = 1 + h w tokens of images, class token first; x: embedded patches."""
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
        grid = table[:, 1:].reshape(1, side, side, c)
        if (h, w) != (side, side):
            grid = jax.image.resize(grid, (1, h, w, c), "cubic", antialias=True)
        x = x + grid.astype(x.dtype)
        token = jnp.broadcast_to((token + table[:, :1]).astype(x.dtype), (b, 1, c))
        return jnp.concatenate([token, x.reshape(b, h * w, c)], 1)[:, None]


def block(
    scope: backbone.Scope, x: backbone.Map, *, heads: int, mlp: int, eps: float
) -> Float[Array, "b 1 n c"]:
    """Return the tokens of each image after a transformer block.

    x + attention(norm(x)), then x + mlp(norm(x)).

    x: tokens (b, 1, n, c). heads: number of attention heads. mlp: hidden features of the MLP.
    eps: added to variances in LayerNorm.
    """
    dtype, (b, _, n, c) = scope.module.dtype, x.shape
    dense = functools.partial(nn.Dense, dtype=dtype, kernel_init=_NARROW)
    norm = functools.partial(_norm, eps, dtype)
    qkv = dense(3 * c, name="qkv")(norm(name="norm1")(x))
    q, k, v = jnp.moveaxis(qkv.reshape(b, n, 3, heads, -1), 2, 0)
    y = jax.nn.dot_product_attention(q, k, v).reshape(b, 1, n, c)
    x = x + scope.through(dense(c, name="proj")(y), "attn")
    y = dense(mlp, name="fc1")(norm(name="norm2")(x))
    y = dense(c, name="fc2")(nn.gelu(y, approximate=False))
    return x + scope.through(y, "mlp")


class ViT(backbone.Backbone, kw_only=True):
    """A vision transformer; a stage is a quarter of the blocks.

    The stem embeds patches as tokens; the head normalises and pools them and applies the
    linear layer. Between stem and head a feature map has the tokens of an image in one row:
    (b, 1, 1 + h w, c), the class token first. Sites, in addition to those of Backbone: "stem.conv"
    (patches as a map), and "block0.attn", "block0.mlp" (before they are added to the residual
    stream), "block0" and so on.

    classes: number of outputs; with 0 the network returns the pooled features.
    width: channels of a token.
    heads: attention heads of each block.
    patch: side of a patch in pixels; sides of images must be multiples of `patch`.
    depth: number of blocks.
    mlp: hidden features of a block's MLP; 0 is four times the width.
    grid: patches per side of the position embeddings; 0: as many as the images have.
    pool: "token" (the class token, after the last norm) or "avg" (the mean of the patch
      tokens before the last norm, as in MAE fine-tuning).
    eps: added to variances in LayerNorm.
    remat: stores only the input of each block for the gradient.
    """

    width: int
    heads: int
    patch: int
    depth: int = 12
    mlp: int = 0
    grid: int = 0
    pool: str = "token"
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    eps: float = 1e-6
    remat: bool = False

    def setup(self):
        """Create the layers; ValueError for an invalid pool, depth or width."""
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
        forward = functools.partial(
            block, heads=self.heads, mlp=self.mlp or 4 * self.width, eps=self.eps
        )
        self.blocks = [
            backbone.Submodule(
                forward=forward, tap=self.tap, dtype=self.dtype, site=f"block{i}"
            )
            for i in range(self.depth)
        ]
        if self.pool == "token":
            self.norm = _norm(self.eps, jnp.float32)
        else:
            self.fc_norm = _norm(self.eps, jnp.float32)
        if self.classes:
            # Float32, because logits in bfloat16 are often equal.
            self.fc = nn.Dense(self.classes, dtype=jnp.float32, kernel_init=_NARROW)

    def stage_of(self, name: str) -> int:
        """Return the stage of a module, given its name: 0 is the stem, 5 the head."""
        if name.startswith("blocks_"):
            return 1 + 4 * int(name.removeprefix("blocks_")) // self.depth
        return 0 if name in ("embed", "positions") else 5

    def _check_side(self, height: int, width: int) -> None:
        """Raise ValueError if the network cannot process images of this size, in pixels."""
        if height % self.patch or width % self.patch:
            raise ValueError(
                f"models.vit: images must have sides that are multiples of patch, "
                f"{self.patch} pixels, got {height}x{width}; resize them"
            )

    def _stem(self, x: backbone.Map, key: backbone.Key, train: bool) -> backbone.Map:
        """Return the output of the stem, given normalised images x."""
        x = taps.through(self, self.embed(x), "stem.conv", key, train)
        return taps.through(self, self.positions(x), "stem", key, train)

    def _stage(
        self, number: int, x: backbone.Map, key: backbone.Key, train: bool
    ) -> backbone.Map:
        """Return the output of stage `number`, 1 to 4, without the site after it."""

        def apply(block, x, key):
            return block(x, key, train=train)

        apply = nn.remat(apply) if self.remat and train else apply
        for i, block in enumerate(self.blocks):
            if self.stage_of(f"blocks_{i}") == number:
                x = apply(block, x, key)
                x = taps.through(self, x, f"block{i}", key, train)
        return x

    def _head(self, x: backbone.Map, key: backbone.Key, train: bool) -> Array:
        """Return the logits, or the pooled features if `classes` is 0; x: output of stage 4."""
        if self.pool == "token":
            x = self.norm(x[:, 0, 0])
        else:
            x = self.fc_norm(jnp.mean(x[:, 0, 1:].astype(jnp.float32), 1))
        x = self._drop(x, "dropout", key, train)
        return self.fc(x) if self.classes else x


def _norm(eps: float, dtype: Any, name: str | None = None) -> nn.LayerNorm:
    """Return a LayerNorm with this eps and dtype."""
    # use_fast_variance computes E[x^2] - E[x]^2, which loses digits.
    return nn.LayerNorm(eps, dtype=dtype, use_fast_variance=False, name=name)


# timm's names, also used by DeiT, DINO and MAE; weight_names.py documents the rules.
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
    """Return naming rules, (pattern of our path, torchvision's name), for torchvision's vit_b_16.

    first, second: names of the linear layers of the MLP; torchvision 0.14 changed these names.
    """
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


def _transformers(
    block: str, *, qkv: tuple[str, ...], proj: str, first: str, second: str
) -> tuple:
    """Return naming rules, (pattern of our path, name or names), of Hugging Face's networks.

    block: template of a block's prefix.
    qkv: names of the three layers for queries, keys and values in a block.
    proj, first, second: names of the other linear layers in a block.
    """
    return (
        (r"positions/cls_token", r"embeddings.cls_token"),
        (r"positions/pos_embed", r"embeddings.position_embeddings"),
        (r"embed", r"embeddings.patch_embeddings.projection"),
        (r"blocks_(\d+)/norm1", block + r"layernorm_before"),
        (r"blocks_(\d+)/norm2", block + r"layernorm_after"),
        (r"blocks_(\d+)/qkv/kernel", tuple(f"{block}{name}.weight" for name in qkv)),
        (r"blocks_(\d+)/qkv/bias", tuple(f"{block}{name}.bias" for name in qkv)),
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
        qkv=(
            "attention.attention.query",
            "attention.attention.key",
            "attention.attention.value",
        ),
        proj="attention.output.dense",
        first="intermediate.dense",
        second="output.dense",
    ),
    _transformers(
        r"layers.\1.",
        qkv=("attention.q_proj", "attention.k_proj", "attention.v_proj"),
        proj="attention.o_proj",
        first="mlp.fc1",
        second="mlp.fc2",
    ),
)

# timm's and transformers' names do not determine mean and std: networks such as
# DeiT and DINO use them with ImageNet's constants.
_TORCHVISION = weight_names.Publisher(
    "torchvision", mean=backbone.IMAGENET_MEAN, std=backbone.IMAGENET_STD
)
PUBLISHERS = (None, _TORCHVISION, _TORCHVISION, None, None)


def infer_options(shape_of: Callable[[str], tuple[int, ...] | None]) -> dict[str, Any]:
    """Return the options "patch", "grid" and "pool", inferred from shapes in a file.

    Return {} if the file lacks the kernel of the patch embedding or the positions.

    shape_of: path of a parameter -> its published shape, None if the file has no such
      parameter; see models.importing.
    """
    kernel, table = shape_of("embed/kernel"), shape_of("positions/pos_embed")
    if kernel is None or table is None or len(kernel) != 4 or len(table) != 3:
        return {}
    pool = "avg" if shape_of("fc_norm/scale") else "token"
    return {"patch": kernel[2], "grid": math.isqrt(max(table[1] - 1, 0)), "pool": pool}
