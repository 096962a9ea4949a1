"""Stimuli of the critical band: grey images with noise of one octave, on the device.

Source: Subramanian, Sizikova, Majaj and Pelli, NeurIPS 2023,
https://arxiv.org/abs/2309.13190, as in
https://github.com/paulgavrikov/biases_vs_generalization: contrast 0.2 about 0.449, and one
band of the Laplacian pyramid of white noise, scaled to the strength of the finest band.
Deviation: if a pixel with its noise is outside of [0, 1], the reference codes change the pixel so
that the sum is 0.1 or 0.9; here the sum is set to 0.1 or 0.9. The two rules differ only if the
noise alone exceeds 0.9.
"""

import functools
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from jbias import errors
from jbias.augment import pillow
from jbias.measures import critical_band, pyramid
from jbias.stimuli import random_draws, shown

CONTRAST, MEAN = 0.2, 0.449
SMALLEST = 17  # Smaller images have fewer than critical_band.FEWEST_OCTAVES octaves.


def make(
    *,
    side: int = 224,
    variant: str = "bvg",
    sample: int | None = 1050,
    continuous: bool = False,
    draws: int = 1000,
    seed: int = 0,
) -> shown.Stimuli:
    """Return a probe with noise of four strengths in each octave, and without noise.

    variant: "bvg" shows all images under all noises, 29 conditions at 224 pixels; "original"
    shows each image once, under noise drawn for the image, and uses `sample` images of the set,
    drawn at random (None: all). "original" is meant for decisions among 16 classes. continuous:
    also compute thresholds between whole numbers. side: image side in pixels. draws: bootstrap
    samples of the images. seed: random seed of noise, sample and bootstrap. Metrics: see
    `critical_band.bvg_numbers` and `original_numbers`. ValueError for invalid options.
    """
    is_large = isinstance(side, int) and side >= SMALLEST
    must = f"be at least {SMALLEST} pixels, for four octaves"
    errors.check(is_large, "critical_band", must, side, name="side")
    errors.check_choice(
        "critical_band", variant, ("bvg", "original"), "change variant", name="variant"
    )
    errors.check_condition("critical_band", "at least 1", sample=sample, draws=draws)
    if variant == "original":
        conditions = {critical_band.MIXED_NOISE: _original_condition(side, seed)}
        numbers = functools.partial(
            critical_band.original_numbers,
            side=side,
            draws=draws,
            seed=seed,
            continuous=continuous,
            sample=sample,
        )
    else:
        conditions = _all_conditions(side)
        numbers = functools.partial(
            critical_band.bvg_numbers,
            side=side,
            draws=draws,
            seed=seed,
            continuous=continuous,
        )
    return shown.Stimuli(
        conditions, functools.partial(show, side=side, seed=seed), numbers
    )


def show(
    rows: shown.Rows, params: Mapping[str, Array], *, side: int, seed: int
) -> shown.Images:
    """Return the images in grey (three equal channels), at low contrast, with noise.

    Values below 0 become 0.1, and values above 1 become 0.9.

    params: result of `_params`: "number" of the condition, and arrays "sigma" (noise strength)
    and "level" (of the pyramid). An array has one entry for all images, or several entries: image i
    of the set then has entry i modulo the number of entries. side: side of the images, which must
    be square, in pixels; ValueError for images of another side. seed: random seed of the noise.
    """
    shape = rows.image.shape[1:3]
    must = f"have the size of a probe made for images of {side} by {side} pixels"
    errors.check(shape == (side, side), "critical_band", must, shape, name="images")
    keys = random_draws.image_keys(seed, params["number"], rows.index)
    cell, axis = rows.index % len(params["sigma"]), 0
    if len(params["sigma"]) == 1:
        cell, axis = 0, None
    sigma, level = params["sigma"][cell], params["level"][cell]
    noises = jax.vmap(functools.partial(noise, side), in_axes=(0, axis, axis))
    stimuli = lower_contrast(grey(rows.image)) + noises(keys, sigma, level)
    stimuli = jnp.where(stimuli < 0, 0.1, jnp.where(stimuli > 1, 0.9, stimuli))
    return jnp.broadcast_to(stimuli[..., None], (*stimuli.shape, 3))


def grey(image: Float[Array, "b h w 3"]) -> Float[Array, "b h w"]:
    """Return whole grey levels from 0 to 255, rounded as by Pillow's mode "L".

    image: in [0, 1].
    """
    return pillow.luma(pillow.pack(image)).astype(jnp.float32)


def lower_contrast(levels: Float[Array, "b h w"]) -> Float[Array, "b h w"]:
    """Return images in [0, 1] with a fifth of the contrast, about a mean of 0.449.

    levels: grey levels from 0 to 255.
    """
    unit = levels / 255
    return (unit - unit.mean((1, 2), keepdims=True)) * CONTRAST + MEAN


def noise(
    side: int, key: PRNGKeyArray, sigma: Float[Array, ""], level: Int[Array, ""]
) -> Float[Array, "side side"]:
    """Return one pyramid band of white noise, scaled to the root mean square of the finest band.

    side: side of the result, in pixels. sigma: standard deviation of the white noise, for
    pixels in [0, 1]. level: level of the pyramid; 0 is the finest band.
    """
    matrices = jnp.asarray(pyramid.level_matrices(side), jnp.float32)
    white = jax.random.normal(key, (side, side))
    finest = white - _filter(matrices[1], white)
    band = _filter(matrices[level], white) - _filter(matrices[level + 1], white)
    return sigma * jnp.sqrt(jnp.mean(finest**2) / jnp.mean(band**2)) * band


def _filter(
    matrix: Float[Array, "n n"], white: Float[Array, "n n"]
) -> Float[Array, "n n"]:
    """Return the matrix product `matrix white matrix'`."""
    # By default accelerators round the factors of a product.
    product = functools.partial(jnp.matmul, precision="highest")
    return product(product(matrix, white), matrix.T)


def _params(number: int, sigma: ArrayLike, level: ArrayLike) -> dict[str, np.ndarray]:
    """Return a condition's arrays "number", "sigma" and "level", for `show`.

    sigma, level: one value for all images, or several.
    """
    return {
        "number": np.int32(number),
        "sigma": np.asarray(sigma, np.float32).reshape(-1),
        "level": np.asarray(level, np.int32).reshape(-1),
    }


def _all_conditions(side: int) -> dict[str, dict[str, np.ndarray]]:
    """Return the result of `_params` for each condition of the variant "bvg", by name.

    The first condition has no noise; the others have each noise strength in each octave.
    """
    frequencies = critical_band.octave_frequencies(side)
    conditions = {critical_band.CLEAN: _params(0, 0, 0)}
    for sigma in critical_band.SIGMAS[1:]:
        for f, frequency in enumerate(frequencies):
            name = critical_band.condition_name(sigma, frequency)
            conditions[name] = _params(len(conditions), sigma, len(frequencies) - 1 - f)
    return conditions


def _original_condition(side: int, seed: int) -> dict[str, np.ndarray]:
    """Return the arrays of the only condition of the variant "original"."""
    octaves = len(critical_band.octave_frequencies(side))
    row, f = np.divmod(critical_band.noise_cells(octaves, seed), octaves)
    return _params(0, np.array(critical_band.SIGMAS)[row], octaves - 1 - f)
