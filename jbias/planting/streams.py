"""Networks of two trained streams, one that reads shape and one that reads texture.

Two residual networks of one architecture are put side by side in a network of twice the width:
kernels are block-diagonal, so that no channel of one stream reads the other. The result is an
ordinary network of the package: `models.save_run` writes it, `jbias evaluate` opens it, and its
sites have the channels of both streams.

mixed_logits: the linear layer is the weighted sum of both streams' layers. The dial m is the
weight of the shape's stream; logits are divided by their standard deviation first, so that both
streams have equal weight at m = 1/2.
mixed_images: a hash of an image's bytes and of a salt selects the stream that decides, that of
shape with probability m. Networks have different salts: with a common one, the images that the
stream of shape decides at one dial would be among those at each higher dial, so that values would
rise with the dial by construction. m is exactly the expected share of decisions by the stream of
shape; it is the share of decisions for the shape as far as both streams are right.
"""

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int, PyTree, Shaped

from jbias.evals import networks

HEAD = "fc"
SELECTION = "selection"  # Name of the collection of variables that select a stream.
_SEED = 1729  # Of the weights of the hash.


def undefined_reason(family: str, needs: str) -> str:
    """Return why a measure has no value for a family of networks; "" if it has.

    family: key of rows.FAMILIES. needs: see measures.Measure.
    """
    if family.startswith("mixed") and needs == "activations":
        return (
            "undefined: mixtures of the same streams have the same layers at all dials"
        )
    if family == "mixed_images" and needs == "versions":
        return (
            "undefined: each changed version of an image selects a stream of its own, so that "
            "decisions about versions of one image are not related"
        )
    return ""


class Stream(NamedTuple):
    """A trained network, and the standard deviation of its logits."""

    net: nn.Module
    variables: Mapping[str, PyTree]
    deviation: float


def logit_deviation(
    network: networks.FlaxNetwork, images: Shaped[Array, "n h w 3"]
) -> float:
    """Return the root mean square of logits about each image's mean logit.

    images: floats in [0, 1].
    """
    apply = networks.make_apply(network.net)
    logits = np.asarray(jax.jit(apply)(network.variables, images), np.float64)
    return float(np.sqrt(np.mean((logits - logits.mean(1, keepdims=True)) ** 2)))


def side_by_side(first: Stream, second: Stream) -> tuple[nn.Module, dict[str, PyTree]]:
    """Return (module, variables) of both streams, with the logits of the first, then the second.

    ValueError unless the networks are residual networks that differ in their weights only.
    """
    if first.net != second.net or not hasattr(first.net, "depths"):
        raise ValueError("streams: both networks must be residual networks of one kind")
    net = first.net.clone(width=2 * first.net.width, classes=2 * first.net.classes)
    joined = jax.tree_util.tree_map_with_path(
        _join, dict(first.variables), dict(second.variables)
    )
    return net, joined


def _join(path: tuple, first: Array, second: Array) -> np.ndarray:
    """Return the array of both streams for one array of each.

    path: names of the array. Kernels are block-diagonal in their last two axes, except that of the
    first convolution, whose input is the image; other arrays are concatenated.
    """
    first, second = np.asarray(first), np.asarray(second)
    names = [entry.key for entry in path]
    is_head = HEAD in names
    reads_image = first.ndim == 4 and first.shape[2] == 3 and not is_head
    if first.ndim < 2 or reads_image:
        return np.concatenate([first, second], axis=-1)
    shape = (
        *first.shape[:-2],
        *(a + b for a, b in zip(first.shape[-2:], second.shape[-2:])),
    )
    joined = np.zeros(shape, first.dtype)
    joined[..., : first.shape[-2], : first.shape[-1]] = first
    joined[..., first.shape[-2] :, first.shape[-1] :] = second
    return joined


def mix_logits(
    first: Stream, second: Stream, weight: float
) -> tuple[nn.Module, dict[str, PyTree]]:
    """Return (module, variables): logits weight * first + (1 - weight) * second.

    Logits of each stream are divided by its `deviation`. weight: the dial, in [0, 1].
    """
    net, variables = side_by_side(first, second)
    k = first.net.classes
    factors = (weight / first.deviation, (1 - weight) / second.deviation)

    def mix(path: tuple, array: np.ndarray) -> np.ndarray:
        """Return arrays of the head as the weighted sum of both; others unchanged."""
        if HEAD not in [entry.key for entry in path]:
            return array
        # Of each half of the outputs, the other stream's weights are 0.
        mixed = factors[0] * array[..., :k] + factors[1] * array[..., k:]
        return mixed.astype(array.dtype)

    variables = jax.tree_util.tree_map_with_path(mix, variables)
    return net.clone(classes=k), variables


def selection(share: float, *, salt: int, numbers: int) -> dict[str, np.ndarray]:
    """Return the arrays by which the bytes of an image select a stream; see `is_first`.

    share: of images that the first stream decides. salt: 0 to 2**32 - 1; selections by different
    salts are independent. numbers: of bytes of an image.
    """
    rng = np.random.default_rng([_SEED, salt])
    weights = rng.integers(1, 2**32, numbers, dtype=np.uint32) | np.uint32(1)
    return {
        "weights": weights,
        "threshold": np.uint32(min(share * 2**32, 2**32 - 1)),
        "is_always_first": np.bool_(share >= 1),
    }


def image_hash(
    image: Float[Array, "b h w 3"], weights: Int[Array, "n"]
) -> Int[Array, "b"]:
    """Return a hash of each image's bytes, uniform over 0 ... 2**32 - 1.

    image: in [0, 1], rounded to bytes. weights: odd random numbers, one per byte.
    """
    values = jnp.round(image * 255).astype(jnp.uint32).reshape(len(image), -1)
    mixed = jnp.sum(values * weights[None], axis=1, dtype=jnp.uint32)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        mixed = (mixed ^ (mixed >> shift)) * jnp.uint32(factor)
    return mixed ^ (mixed >> 16)


def is_first(
    image: Float[Array, "b h w 3"], selecting: Mapping[str, Shaped[Array, "..."]]
) -> Shaped[Array, "b"]:
    """Return for each image whether the first stream decides. selecting: see `selection`."""
    is_below = image_hash(image, selecting["weights"]) < selecting["threshold"]
    return is_below | selecting["is_always_first"]


@functools.cache
def decide_by_image(net: nn.Module) -> Callable:
    """Return a function (variables, images) -> logits of the stream that the image selects.

    net: module of `side_by_side`. The variables are those of the module, and a collection SELECTION
    with the arrays of `selection`: share and salt are no constants of the compiled program, so that
    all mixtures have one program.
    """
    apply = networks.make_apply(net)

    def decide(
        variables: PyTree, image: Float[Array, "b h w 3"]
    ) -> Float[Array, "b k"]:
        """Return the first half of the logits for selected images, else the second half."""
        of_streams = {name: variables[name] for name in variables if name != SELECTION}
        logits = apply(of_streams, image)
        k = logits.shape[1] // 2
        is_selected = is_first(image, variables[SELECTION])
        return jnp.where(is_selected[:, None], logits[:, :k], logits[:, k:])

    return decide
