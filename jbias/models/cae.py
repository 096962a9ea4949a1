"""The compressive autoencoder whose weights and code DeepAugment damages.

The code has 32 random bits for each 4x4 pixels, with probabilities from the encoder's tanh.
Source: Theis, Shi, Cunningham and Huszar, "Lossy Image Compression with Compressive
Autoencoders", ICLR 2017, https://arxiv.org/abs/1703.00395; layers as in DeepAugment:
Hendrycks et al., ICCV 2021, https://arxiv.org/abs/2006.16241.
Reference code: https://github.com/hendrycks/imagenet-r at 3131cac.
Deviation: `width` scales all layers except the narrow ones: the code and the inputs of the
last two layers. 128 is the published network.
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jbias.models import torch_layers

Images = Float[Array, "b h w 3"]
Weights, Map = torch_layers.Weights, torch_layers.Map
CODE = 32  # Bits for each 4x4 pixels.
_TRANSPOSED = ("d_up_conv_1.3", "d_up_conv_2.3")


def shapes(width: int = 128) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all weights by name, in PyTorch's layout.

    width: channels of the wide layers, a multiple of 8 (else ValueError).
    """
    if width < 8 or width % 8:
        raise ValueError(f"models.cae: width must be a multiple of 8, got {width}")
    half = width // 2
    block = (width, width, 3, 3)
    kernels = {
        "e_conv_1.1": (half, 3, 5, 5),
        "e_conv_2.1": (width, half, 5, 5),
        **{f"e_block_{i}.{j}": block for i in (1, 2, 3) for j in (1, 4)},
        "e_conv_3.0": (CODE, width, 5, 5),
        "d_up_conv_1.0": (half, CODE, 3, 3),
        "d_up_conv_1.3": (half, width, 2, 2),
        **{f"d_block_{i}.{j}": block for i in (1, 2, 3) for j in (1, 4)},
        "d_up_conv_2.0": (32, width, 3, 3),
        "d_up_conv_2.3": (32, 2 * width, 2, 2),
        "d_up_conv_3.0": (16, 2 * width, 3, 3),
        "d_up_conv_3.3": (3, 16, 3, 3),
    }
    return torch_layers.with_biases(kernels, transposed=_TRANSPOSED)


def sizes_of(weights: Weights) -> dict[str, int]:
    """Return the arguments of `shapes` that give the shapes of these weights: {"width": ...}."""
    return {"width": weights["e_conv_2.1.bias"].shape[0]}


PUBLISHED = torch_layers.deepaugment_weights(
    "cae",
    title="autoencoder",
    file="model_final.state",
    blob="e8e15ac75ed1b406429554a14f6c8efb929990ee",
    shapes=shapes,
    sizes_of=sizes_of,
)


def init(key: PRNGKeyArray, *, width: int = 128) -> dict[str, np.ndarray]:
    """Return random initial weights by name, scaled so that signals keep their variance.

    Biases are zero except in the first layer, which subtracts grey (0.5), and in the last,
    which adds grey. With PyTorch's smaller initial weights training takes many times as long.
    """
    weights = torch_layers.uniform(shapes(width), key)
    for name, drawn in weights.items():
        layer, _, kind = name.rpartition(".")
        if kind == "bias":
            weights[name] = np.zeros_like(drawn)
        else:
            inputs = len(drawn) if layer in _TRANSPOSED else drawn[0].size
            weights[name] = drawn * np.float32((_gain(layer) / inputs) ** 0.5)
    weights["e_conv_1.1.bias"] = -0.5 * weights["e_conv_1.1.weight"].sum((1, 2, 3))
    weights["d_up_conv_3.3.bias"] += np.float32(math.atanh(0.5))
    return weights


def _gain(layer: str) -> float:
    """Return the variance of a layer's initial weights, relative to 1 / (3 * inputs)."""
    if "block" in layer and layer.endswith(".4"):  # The end of a residual branch.
        return 0.3
    return {"e_conv_3.0": 1.0, "d_up_conv_3.3": 0.09}.get(layer, 3.0)


def apply(
    weights: Weights,
    image: Images,
    keys: PRNGKeyArray,
    *,
    damage: Callable | None = None,
) -> Float[Array, "b 4*h//4 4*w//4 3"]:
    """Encode and decode images in [0, 1]; return the reconstructions, in (-1, 1).

    Sides are rounded down to multiples of 4.

    keys: (b), random keys, one for the bits of each image.
    damage: latent -> (latent, gain), both (b h/4 w/4 32); applied before the bits are
      drawn. The bits, 0 or 1, are multiplied by the gain. None: no damage.
    """
    latent, gain = encode(weights, image), 1.0
    if damage is not None:
        latent, gain = damage(latent)
    return decode(weights, binarise(latent, keys) * gain)


def encode(weights: Weights, image: Images) -> Float[Array, "b h//4 w//4 32"]:
    """Return the code, in (-1, 1), of images in [0, 1]; the bits are drawn from the code."""
    x = image
    for name in ("e_conv_1.1", "e_conv_2.1"):
        x = _leaky(torch_layers.conv(weights, name, x, stride=2, pad=(1, 2)))
    for i in (1, 2, 3):
        x = _block(weights, f"e_block_{i}", x)
    return jnp.tanh(torch_layers.conv(weights, "e_conv_3.0", x))


def binarise(latent: Map, keys: PRNGKeyArray) -> Map:
    """Return random bits, 0.0 or 1.0, that are 1 with probability (1 + latent) / 2.

    The gradient of the bits is the gradient of the probability (straight-through). keys: (b),
    one per image.
    """
    chance = (1 + latent) / 2
    drawn = jax.vmap(lambda key: jax.random.uniform(key, latent.shape[1:]))(keys)
    bits = (drawn <= chance).astype(latent.dtype)
    return chance + jax.lax.stop_gradient(bits - chance)


def decode(
    weights: Weights, code: Float[Array, "b h w 32"]
) -> Float[Array, "b 4*h 4*w 3"]:
    """Return images in (-1, 1), decoded from a code of bits 0 and 1."""

    def upsample(name, x):
        """Return x with twice the side, after a convolution and a transposed convolution.

        name: prefix of the names of both layers.
        """
        x = _leaky(torch_layers.conv(weights, f"{name}.0", x, pad=(0, 0)))
        x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        return torch_layers.transposed_conv(weights, f"{name}.3", x)

    x = upsample("d_up_conv_1", 2 * code - 1)
    for i in (1, 2, 3):
        x = _block(weights, f"d_block_{i}", x)
    x = upsample("d_up_conv_2", x)
    x = _leaky(torch_layers.conv(weights, "d_up_conv_3.0", x, pad=(0, 0)))
    x = jnp.pad(x, ((0, 0), (2, 2), (2, 2), (0, 0)), mode="reflect")
    return jnp.tanh(torch_layers.conv(weights, "d_up_conv_3.3", x, pad=(0, 0)))


def _block(weights: Weights, name: str, x: Array) -> Array:
    """Return the map x after a residual block of two convolutions.

    name: prefix of the names of the block's weights.
    """
    y = _leaky(torch_layers.conv(weights, f"{name}.1", x))
    return x + torch_layers.conv(weights, f"{name}.4", y)


_leaky = functools.partial(jax.nn.leaky_relu, negative_slope=0.01)
