"""Low- and high-pass filters with a box in the spectrum, on the device.

Source: Gavrikov and Keuper, CVPR 2024, https://arxiv.org/abs/2404.01509, section 3, as
their code does it: the box holds frequencies -r to r - 1 of either axis, so that it is
not symmetric and the inverse is complex; its real part is shown. `symmetric` holds
-r to r instead. Deviation: computed without a Fourier transform. On one axis the box is
a circulant matrix E + iO, so the real part on both is E x E' - O x O', where O has rank
two. These are products with small matrices, on CPU as fast as a real transform or more.
"""

import functools
import itertools
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jbias.augment import options
from jbias.evals import probe, spectral


def make(
    *,
    side: int = 224,
    cutoffs: Sequence[float] = spectral.CUTOFFS,
    low: bool = True,
    high: bool = True,
    symmetric: bool = False,
    draws: int = 1000,
    seed: int = 0,
) -> probe.Probe:
    """Images as they are, and low- and high-pass filtered at cut-offs in [0, 1].

    A low-pass filter keeps the inner share `cutoff` of each axis's frequencies, a
    high-pass filter the outer one. side: of the images, in pixels. draws, seed: of the
    bootstrap over images. ValueError for cut-offs out of [0, 1], twice or none.
    """
    whole = isinstance(side, int) and side > 1
    probe.check(whole, "spectral", "side must be a whole number of at least 2", side)
    cutoffs = list(cutoffs)
    inside = all(isinstance(c, int | float) and 0 <= c <= 1 for c in cutoffs)
    once = cutoffs and inside and len({f"{c:g}" for c in cutoffs}) == len(cutoffs)
    must = "cutoffs must be different shares in [0, 1], at least one"
    probe.check(once, "spectral", must, cutoffs)
    if not (low or high):
        raise ValueError("spectral: low or high must be asked for, got neither")
    options.check_plain("spectral", "at least 1", draws=draws)
    conditions = {spectral.CLEAN: _params(0, side, 1, 0, symmetric)}
    ways = [way for way, wanted in ((False, low), (True, high)) if wanted]
    for way, cutoff in itertools.product(ways, cutoffs):
        r = spectral.radius(cutoff, side, high=way)
        keep, add = (1, -1) if way else (0, 1)
        name = spectral.condition_name(cutoff, high=way)
        conditions[name] = _params(r, side, keep, add, symmetric)
    numbers = functools.partial(spectral.numbers, draws=draws, seed=seed)
    return probe.Probe(conditions, show, numbers)


def show(rows: probe.Rows, params: dict) -> probe.Images:
    """clip(keep x + add low(x), 0, 1)."""
    image = rows.image
    filtered = params["keep"] * image + params["add"] * low_pass(image, params)
    return jnp.clip(filtered, 0, 1)


def low_pass(image: Float[Array, "b n n c"], params: dict) -> Float[Array, "b n n c"]:
    """Re(inverse(transform(x) box)) of each channel. ValueError for another side."""
    n = len(params["even"])
    shape, must = image.shape[1:3], f"made for images of {n} by {n} pixels"
    probe.check(shape == (n, n), "spectral", must, shape)
    offset = (np.arange(n)[:, None] - np.arange(n)) % n
    even, edge = params["even"][offset], params["edge"]
    inside = _both_axes(even, image)
    # O = edge J edge', J a quarter turn: it swaps the two waves and turns one sign.
    waves = _both_axes(edge.T, image)[:, ::-1, ::-1]
    turn = jnp.array([[1.0, -1.0], [-1.0, 1.0]])[None, :, :, None]
    return inside - _both_axes(edge, turn * waves)


def _both_axes(matrix, image):
    # Accelerators round the factors of a product unless told not to.
    how = dict(precision="highest", optimize=True)
    return jnp.einsum("ij,bjkc,lk->bilc", matrix, image, matrix, **how)


def _params(
    r: int, side: int, keep: float, add: float, symmetric: bool
) -> dict[str, np.ndarray]:
    """What `show` takes: of the box with radius r, `even` E's first column, `edge` O's.

    O = edge J edge' = (s c' - c s') / side with c, s the waves of frequency r.
    """
    frequency = np.fft.fftfreq(side, 1 / side).round()
    inside = (frequency >= -r) & (frequency <= r if symmetric else frequency < r)
    angle = 2 * np.pi * ((r * np.arange(side)) % side) / side
    edge = np.stack([np.cos(angle), np.sin(angle)], axis=1) / np.sqrt(side)
    # Of both -r and r, or where they are one frequency, nothing imaginary is left.
    lopsided = not symmetric and 0 < 2 * r < side
    even = np.fft.ifft(inside).real.astype(np.float32)
    how = {"keep": np.float32(keep), "add": np.float32(add)}
    return {"even": even, "edge": np.float32(edge * lopsided), **how}
