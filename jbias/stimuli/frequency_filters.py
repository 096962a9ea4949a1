"""Probe of low- and high-pass filters with a box in the spectrum, on the device.

Source: Gavrikov and Keuper, CVPR 2024, https://arxiv.org/abs/2404.01509, section 3, as in
their code: the box contains frequencies -r to r - 1 of each axis, so that it is not symmetric and
the inverse transform is complex; its real part is shown. With `symmetric`, the box contains -r to r
instead. Deviation: computed without a Fourier transform. On one axis the filter is a circulant
matrix E + iO, so the real part on both axes is E x E' - O x O', where O has rank two. These are
products with small matrices, on a CPU at least as fast as a real transform.
"""

import functools
import itertools
from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jbias import errors
from jbias.measures import spectral_bias
from jbias.stimuli import shown


def make(
    *,
    side: int = 224,
    cutoffs: Sequence[float] = spectral_bias.CUTOFFS,
    low: bool = True,
    high: bool = True,
    symmetric: bool = False,
    draws: int = 1000,
    seed: int = 0,
) -> shown.Stimuli:
    """Return a probe that shows images unchanged, and low- and high-pass filtered.

    Conditions are spectral_bias.CLEAN and one per filter, such as "low 0.3". cutoffs: in [0, 1]. A
    low-pass filter keeps the inner share `cutoff` of each axis's frequencies, a high-pass filter
    the outer share. low, high: which filters are used. side: side of the images, which must be
    square, in pixels. symmetric: whether the box contains both -r and r. draws, seed: number of
    samples and random seed of the bootstrap over images. Metrics: see `spectral_bias.numbers`.
    ValueError for invalid, repeated or no cut-offs, for a side below 2, for no draws, and if
    both `low` and `high` are False.
    """
    is_side = isinstance(side, int) and side > 1
    errors.check(
        is_side, "spectral", "be a whole number of at least 2", side, name="side"
    )
    cutoffs = list(cutoffs)
    are_shares = all(isinstance(c, int | float) and 0 <= c <= 1 for c in cutoffs)
    are_valid = (
        cutoffs and are_shares and len({f"{c:g}" for c in cutoffs}) == len(cutoffs)
    )
    must = "be different shares in [0, 1], at least one"
    errors.check(are_valid, "spectral", must, cutoffs, name="cutoffs")
    if not (low or high):
        raise ValueError("spectral: low or high must be asked for, got neither")
    errors.check_condition("spectral", "at least 1", draws=draws)
    conditions = {spectral_bias.CLEAN: _params(0, side, 1, 0, symmetric)}
    directions = [
        is_high for is_high, is_wanted in ((False, low), (True, high)) if is_wanted
    ]
    for is_high, cutoff in itertools.product(directions, cutoffs):
        r = spectral_bias.radius(cutoff, side, high=is_high)
        keep, add = (1, -1) if is_high else (0, 1)
        name = spectral_bias.condition_name(cutoff, high=is_high)
        conditions[name] = _params(r, side, keep, add, symmetric)
    numbers = functools.partial(spectral_bias.numbers, draws=draws, seed=seed)
    return shown.Stimuli(conditions, show, numbers)


def show(rows: shown.Rows, params: Mapping[str, Array]) -> shown.Images:
    """Return clip(keep x + add low_pass(x), 0, 1) of images x; params: result of `_params`."""
    image = rows.image
    filtered = params["keep"] * image + params["add"] * low_pass(image, params)
    return jnp.clip(filtered, 0, 1)


def low_pass(
    image: Float[Array, "b n n c"], params: Mapping[str, Array]
) -> Float[Array, "b n n c"]:
    """Return the images with only the frequencies in the box, the real part of each channel.

    params: result of `_params`, of which "even" and "edge" are used. ValueError for images of
    another side.
    """
    n = len(params["even"])
    shape = image.shape[1:3]
    must = f"have the size of a probe made for images of {n} by {n} pixels"
    errors.check(shape == (n, n), "spectral", must, shape, name="images")
    offset = (np.arange(n)[:, None] - np.arange(n)) % n
    even, edge = params["even"][offset], params["edge"]
    inside = _both_axes(even, image)
    # O = edge J edge', J a quarter turn: it swaps the two waves and turns one sign.
    waves = _both_axes(edge.T, image)[:, ::-1, ::-1]
    turn = jnp.array([[1.0, -1.0], [-1.0, 1.0]])[None, :, :, None]
    return inside - _both_axes(edge, turn * waves)


def _both_axes(
    matrix: Float[Array, "m n"], image: Float[Array, "b n n c"]
) -> Float[Array, "b m m c"]:
    """Return the matrix product `matrix x matrix'` of each channel x."""
    # By default accelerators round the factors of a product.
    return jnp.einsum(
        "ij,bjkc,lk->bilc", matrix, image, matrix, precision="highest", optimize=True
    )


def _params(
    r: int, side: int, keep: float, add: float, symmetric: bool
) -> dict[str, np.ndarray]:
    """Return a condition's arrays "even" (E's first column), "edge", "keep" and "add", by name.

    r: half the side of the box. side: image side in pixels. keep, add: factors in `show`.
    symmetric: see `make`. O = edge J edge' = (s c' - c s') / side, with the waves c and s of
    frequency r; "edge" is 0 if the box is symmetric, or if -r and r are the same frequency.
    """
    frequency = np.fft.fftfreq(side, 1 / side).round()
    is_inside = (frequency >= -r) & (frequency <= r if symmetric else frequency < r)
    angle = 2 * np.pi * ((r * np.arange(side)) % side) / side
    edge = np.stack([np.cos(angle), np.sin(angle)], axis=1) / np.sqrt(side)
    # With both -r and r, or if they are the same frequency, the imaginary part is 0.
    is_lopsided = not symmetric and 0 < 2 * r < side
    return {
        "even": np.fft.ifft(is_inside).real.astype(np.float32),
        "edge": np.float32(edge * is_lopsided),
        "keep": np.float32(keep),
        "add": np.float32(add),
    }
