"""DeepAugment with the super-resolution network: its damaged weights.

Three of seventeen options, drawn with replacement, damage the weights one after the
other. `conv0` and `conv2` are a block's two convolutions; biases change only where it
is said. Activations are damaged by deepaugment_edsr_features.

Source and reference code: jbias.augment.deepaugment.
Deviation: networks of fewer than 16 blocks have fewer of the places; else as released.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float, PRNGKeyArray

from jbias.augment import deepaugment

DRAWS = 3
FILTERS = 64  # Of the published network.
_PLUS = np.array([[0, 1, 0], [1, -4, 1], [0, 1, 0]], np.float32)
_SQUARE = np.array([[-1, -1, -1], [-1, 8, -1], [-1, -1, -1]], np.float32)
_THIRDS, _SECONDS, _FOURTHS = (0, 3, 6, 9), (1, 4, 7), (1, 5, 9)  # Blocks.


def draw(key: PRNGKeyArray) -> tuple[int, ...]:
    """Draws which options damage the weights."""
    rng = deepaugment.generator(key, 0)
    return tuple(rng.integers(len(_OPTIONS), size=DRAWS).tolist())


def damage(
    weights: Mapping[str, np.ndarray],
    key: PRNGKeyArray,
    options: Sequence[int] | None = None,
) -> deepaugment.Weights:
    """Returns damaged weights, by the options that `draw` draws unless they are given."""
    chosen = draw(key) if options is None else options
    return deepaugment.apply(_OPTIONS, chosen, weights, key)


def _blocks(weights) -> int:
    return sum(name.endswith(".body.0.bias") for name in weights)


def _one_of(weights, places: Sequence[int], rng) -> int:
    places = [place for place in places if place < _blocks(weights)]
    return places[rng.integers(len(places))]


def _any(weights, rng) -> int:
    """A block other than the last."""
    return rng.integers(_blocks(weights) - 1)


def _name(block: int, conv: int, kind: str = "weight") -> str:
    return f"body.{block}.body.{conv}.{kind}"


def _reverse(weights, rng):
    block = _one_of(weights, _THIRDS, rng)
    for name in (_name(block, j, kind) for j in (0, 2) for kind in ("weight", "bias")):
        weights[name] = weights[name][::-1].copy()


def _negate(weights, rng):
    block = _one_of(weights, _SECONDS, rng)
    for name in (_name(block, 0), _name(block, 0, "bias")):
        weights[name] = -weights[name]


def _zero(weights, rng):
    block = _one_of(weights, _THIRDS, rng)
    for name in (_name(block, 0), _name(block, 0, "bias")):
        weights[name] = np.zeros_like(weights[name])


def _gelu(weights, rng):
    block = _one_of(weights, _THIRDS, rng)
    for name in (_name(block, 0), _name(block, 2)):
        weights[name] = -deepaugment.gelu(weights[name])


def _laplace(weights, rng, stencil):
    name = _name(_one_of(weights, _THIRDS, rng), 0)
    weights[name] = weights[name] * stencil


def _laplace_plus(weights, rng):
    _laplace(weights, rng, _PLUS)


def _laplace_square(weights, rng):
    _laplace(weights, rng, _SQUARE)


def _amplify(weights, rng):
    name = _name(_one_of(weights, _THIRDS, rng), 2)
    weights[name] = deepaugment.amplified(weights[name], 4, rng)


def _mirror(weights, rng):
    block = _one_of(weights, _THIRDS, rng)
    weights[_name(block, 0)] = weights[_name(block, 0)][..., ::-1].copy()
    weights[_name(block, 2)] = -weights[_name(block, 2)]


def _shift(weights, rng):
    name = _name(_one_of(weights, _FOURTHS, rng), 0)
    bank = np.zeros_like(weights[name])
    for j in range(bank.shape[1]):
        row, column = rng.integers(3, size=2)
        bank[:, j, row, column] = rng.choice([-1, 1])
    weights[name] = _filtered(weights[name], bank)


def _blur(weights, rng):
    name = _name(_one_of(weights, _THIRDS, rng), 0)
    bank = (2 * rng.random(weights[name].shape) * rng.random() - 1) / 6
    weights[name] = _filtered(weights[name], bank)


def _smear(weights, rng):
    name = _name(_one_of(weights, _FOURTHS, rng), 2)
    bank = rng.dirichlet([0.1] * 9, weights[name].shape[:2])
    weights[name] = _filtered(weights[name], bank.reshape(weights[name].shape))


def _add_noise(weights, rng):
    name = _name(_any(weights, rng), 2)
    noise = rng.uniform(-0.5, 0.5, weights[name].shape)
    weights[name] = weights[name] + noise.astype(np.float32)


def _rotate(weights, rng):
    for _ in range(5):
        name = _name(_any(weights, rng), rng.choice([0, 2]))
        axes = (2, 3) if rng.random() < 0.5 else (0, 1)
        weights[name] = deepaugment.rotated(weights[name], rng, axes)


def _mask(weights, rng, low):
    for _ in range(5):
        name = _name(_any(weights, rng), 0)
        weights[name] = deepaugment.masked(weights[name], low, rng)


def _random_signs(weights, rng):
    _mask(weights, rng, -1)


def _random_zeros(weights, rng):
    _mask(weights, rng, 0)


def _negate_filters(weights, rng):
    for _ in range(5):
        name = _name(_any(weights, rng), 0)
        filters = len(weights[name])
        count = deepaugment.share(32, filters, FILTERS)
        rows = np.unique(rng.integers(filters, size=count))
        weights[name] = deepaugment.with_rows(weights[name], rows, np.negative)


def _keep_largest(weights, rng):
    for _ in range(5):
        name = _name(_any(weights, rng), rng.choice([0, 2]))
        flat = weights[name].reshape(*weights[name].shape[:2], -1)
        largest = np.argmax(flat, -1, keepdims=True)
        kept = np.where(np.arange(flat.shape[-1]) == largest, flat, 0)
        weights[name] = kept.reshape(weights[name].shape)


def _filtered(
    weight: Float[np.ndarray, "o i h w"], bank: Float[np.ndarray, "p i 3 3"]
) -> Float[np.ndarray, "o p h w"]:
    """Correlates kernels, as if they were images of i channels, with a bank, pad 1."""
    height, width = weight.shape[2:]
    padded = np.pad(weight, ((0, 0), (0, 0), (1, 1), (1, 1)))
    found = sum(
        np.einsum(
            "oihw,pi->ophw",
            padded[:, :, row : row + height, column : column + width],
            bank[:, :, row, column],
            optimize=True,
        )
        for row in range(3)
        for column in range(3)
    )
    return found.astype(np.float32)


_OPTIONS = (
    _reverse,
    _negate,
    _zero,
    _gelu,
    _laplace_plus,
    _laplace_square,
    _amplify,
    _mirror,
    _shift,
    _blur,
    _smear,
    _add_noise,
    _rotate,
    _random_signs,
    _random_zeros,
    _negate_filters,
    _keep_largest,
)
