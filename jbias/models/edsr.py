"""EDSR, the super-resolution network whose weights and features DeepAugment damages.

Source: Lim, Son, Kim, Nah and Lee, "Enhanced Deep Residual Networks for Single Image
Super-Resolution", CVPR workshops 2017, https://arxiv.org/abs/1707.02921, the baseline of
16 blocks and 64 features; as in Hendrycks et al., ICCV 2021,
https://arxiv.org/abs/2006.16241.
Reference code: https://github.com/hendrycks/imagenet-r at 3131cac.
Deviation: `features`, `blocks` and `scale` may be smaller than published.
"""

import functools
from collections.abc import Callable

import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jbias.models import torch_layers

Images = Float[Array, "b h w 3"]
SCALES = (2, 4)
_MEAN = (0.4488, 0.4371, 0.4040)
_RANGE = 255.0  # Largest value of images inside the network.


def shapes(features: int = 64, blocks: int = 16, scale: int = 4) -> torch_layers.Shapes:
    """Return the shapes of all weights by name, in PyTorch's layout.

    features: channels of the body. blocks: residual blocks, at least 4. scale: factor of the
      sides, 2 or 4. ValueError for other numbers.
    """
    if features < 1 or blocks < 4 or scale not in SCALES:
        raise ValueError(
            f"models.edsr: features must be positive, blocks at least 4 and scale in"
            f" {SCALES}, got {features}, {blocks} and {scale}"
        )
    block = (features, features, 3, 3)
    kernels = {"sub_mean": (3, 3, 1, 1), "add_mean": (3, 3, 1, 1)}
    kernels["head.0"] = (features, 3, 3, 3)
    kernels |= {f"body.{i}.body.{j}": block for i in range(blocks) for j in (0, 2)}
    kernels[f"body.{blocks}"] = block
    for i in range(0, scale, 2):
        kernels[f"tail.0.{i}"] = (4 * features, features, 3, 3)
    return torch_layers.with_biases({**kernels, "tail.1": (3, features, 3, 3)})


def sizes_of(weights: torch_layers.Weights) -> dict[str, int]:
    """Return the arguments of `shapes`, by name, that give the shapes of these weights."""
    features = weights["head.0.bias"].shape[0]
    blocks = sum(name.endswith(".body.0.bias") for name in weights)
    tails = sum(f"tail.0.{i}.bias" in weights for i in (0, 2))
    return dict(features=features, blocks=blocks, scale=2**tails)


PUBLISHED = torch_layers.deepaugment_weights(
    "edsr",
    title="super-resolution network",
    file="edsr_baseline_x4.pt",
    blob="c69235dd5286cef22d9d7bd8c409fad7f2a1c6db",
    shapes=shapes,
    sizes_of=sizes_of,
)


def init(
    key: PRNGKeyArray, *, features: int = 64, blocks: int = 16, scale: int = 4
) -> dict[str, np.ndarray]:
    """Return random initial weights by name; layers that shift the mean get their published values.

    The other weights are uniform within +-1/sqrt(inputs of the layer), as in PyTorch.
    Arguments: see `shapes`.
    """
    weights = torch_layers.uniform(shapes(features, blocks, scale), key)
    for name in weights:  # PyTorch's initialisation, also of biases.
        inputs = weights[name.rpartition(".")[0] + ".weight"][0].size
        weights[name] = weights[name] * np.float32(inputs**-0.5)
    mean = np.float32(_RANGE * np.array(_MEAN))
    for name, bias in (("sub_mean", -mean), ("add_mean", mean)):
        weights[f"{name}.weight"] = np.eye(3, dtype=np.float32).reshape(3, 3, 1, 1)
        weights[f"{name}.bias"] = bias
    return weights


def apply(
    weights: torch_layers.Weights,
    image: Images,
    *,
    before: Callable | None = None,
    body: Callable | None = None,
) -> Float[Array, "b scale*h scale*w 3"]:
    """Return images in [0, 1], enlarged by the network; the result is not clipped to [0, 1].

    before: features -> features, both (b h w c); changes the input of the body. None: no
      change.
    body: (layers, features) -> features; runs the layers of the body, each a function of
      (b h w c): the blocks and then a convolution; `features` is added to the result. None:
      run the layers one after the other.
    """
    x = torch_layers.conv(weights, "sub_mean", _RANGE * image)
    x = torch_layers.conv(weights, "head.0", x)
    if before is not None:
        x = before(x)
    blocks = sizes_of(weights)["blocks"]
    layers = [functools.partial(_block, weights, i) for i in range(blocks)]
    layers.append(functools.partial(torch_layers.conv, weights, f"body.{blocks}"))
    if body is None:
        x = x + functools.reduce(lambda x, layer: layer(x), layers, x)
    else:
        x = x + body(layers, x)
    for i in range(0, sizes_of(weights)["scale"], 2):
        x = torch_layers.pixel_shuffle(torch_layers.conv(weights, f"tail.0.{i}", x))
    x = torch_layers.conv(weights, "tail.1", x)
    return torch_layers.conv(weights, "add_mean", x) / _RANGE


def is_trainable(name: str) -> bool:
    """Return True unless `name` is a weight of the layers that shift the mean, which are fixed."""
    return not name.startswith(("sub_mean.", "add_mean."))


def _block(weights: torch_layers.Weights, i: int, x: Array) -> Array:
    """Return the map x after residual block number i of the body."""
    y = jax.nn.relu(torch_layers.conv(weights, f"body.{i}.body.0", x))
    return x + torch_layers.conv(weights, f"body.{i}.body.2", y)
