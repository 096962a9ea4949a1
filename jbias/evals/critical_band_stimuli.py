"""Grey images under noise of one octave, on the device.

Source: Subramanian, Sizikova, Majaj and Pelli, NeurIPS 2023,
https://arxiv.org/abs/2309.13190, as https://github.com/paulgavrikov/biases_vs_generalization
shows them: contrast 0.2 about 0.449, white noise of which one band of the Laplacian
pyramid is left, as strong in every band as in the finest. Deviation: where a pixel with
its noise leaves [0, 1], the references move the pixel so that the sum is 0.1 or 0.9;
here the sum is set. They differ only where the noise alone exceeds 0.9.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jbias.augment import options, pillow
from jbias.evals import critical_band, occlusion, probe, pyramid

CONTRAST, MEAN = 0.2, 0.449
SMALLEST = 17  # Below, there are fewer than critical_band.FEWEST_OCTAVES.


def make(
    *,
    side: int = 224,
    variant: str = "bvg",
    sample: int | None = 1050,
    continuous: bool = False,
    draws: int = 1000,
    seed: int = 0,
) -> probe.Probe:
    """Noise of four strengths in each octave, and none.

    variant: "bvg" shows all images under all of it, 29 conditions at 224 pixels;
    "original" shows each image once, under noise drawn for it, and counts `sample` of
    the set, drawn at random (None: all). It is meant for a decision among 16 classes.
    continuous: tell also what thresholds between whole numbers give. draws: of the
    bootstrap over images. seed: of noise, choice and bootstrap. ValueError for others.
    """
    large = isinstance(side, int) and side >= SMALLEST
    must = f"side must be at least {SMALLEST} pixels, for four octaves"
    probe.check(large, "critical_band", must, side)
    options.check_choice("critical_band", "variant", variant, ("bvg", "original"))
    options.check_plain("critical_band", "at least 1", sample=sample, draws=draws)
    counting = dict(side=side, draws=draws, seed=seed, continuous=continuous)
    conditions, count = _all(side), critical_band.bvg_numbers
    if variant == "original":
        conditions = {critical_band.MIXED_NOISE: _original(side, seed)}
        count, counting["sample"] = critical_band.original_numbers, sample
    shown = functools.partial(show, side=side, seed=seed)
    return probe.Probe(conditions, shown, functools.partial(count, **counting))


def show(rows: probe.Rows, params: dict, *, side: int, seed: int) -> probe.Images:
    """The images in grey, at low contrast, with noise of the condition's.

    params: `number` of the condition; `sigma` and `level` of the pyramid, the same for
    all images (one) or of image i modulo their number. ValueError for another side.
    """
    shape, must = rows.image.shape[1:3], f"made for images of {side} by {side} pixels"
    probe.check(shape == (side, side), "critical_band", must, shape)
    keys = occlusion.image_keys(seed, params["number"], rows.index)
    which, axis = rows.index % len(params["sigma"]), 0
    if len(params["sigma"]) == 1:
        which, axis = 0, None
    sigma, level = params["sigma"][which], params["level"][which]
    noises = jax.vmap(functools.partial(noise, side), in_axes=(0, axis, axis))
    shown = faint(grey(rows.image)) + noises(keys, sigma, level)
    shown = jnp.where(shown < 0, 0.1, jnp.where(shown > 1, 0.9, shown))
    return jnp.broadcast_to(shown[..., None], (*shown.shape, 3))


def grey(image: Float[Array, "b h w 3"]) -> Float[Array, "b h w"]:
    """Whole grey levels from 0 to 255, as Pillow's mode "L" rounds them."""
    return pillow.luma(pillow.pack(image)).astype(jnp.float32)


def faint(levels: Float[Array, "b h w"]) -> Float[Array, "b h w"]:
    """Contrast 0.2 about a mean of 0.449, of grey levels up to 255."""
    unit = levels / 255
    return (unit - unit.mean((1, 2), keepdims=True)) * CONTRAST + MEAN


def noise(
    side: int, key: PRNGKeyArray, sigma: Float[Array, ""], level: Array
) -> Float[Array, "n n"]:
    """White noise of deviation sigma, cut to one band and as strong as the finest band."""
    matrices = jnp.asarray(pyramid.there_and_back(side), jnp.float32)
    white = jax.random.normal(key, (side, side))
    finest = white - _passed(matrices[1], white)
    band = _passed(matrices[level], white) - _passed(matrices[level + 1], white)
    return sigma * jnp.sqrt(jnp.mean(finest**2) / jnp.mean(band**2)) * band


def _passed(matrix, white):
    # Accelerators round the factors of a product unless told not to.
    product = functools.partial(jnp.matmul, precision="highest")
    return product(product(matrix, white), matrix.T)


def _params(number: int, sigma, level) -> dict[str, np.ndarray]:
    sigma, level = np.asarray(sigma, np.float32), np.asarray(level, np.int32)
    each = {"sigma": sigma.reshape(-1), "level": level.reshape(-1)}
    return {"number": np.int32(number), **each}


def _all(side: int) -> dict[str, dict]:
    frequencies = critical_band.octave_frequencies(side)
    conditions = {critical_band.CLEAN: _params(0, 0, 0)}
    for sigma in critical_band.SIGMAS[1:]:
        for f, frequency in enumerate(frequencies):
            name = critical_band.condition_name(sigma, frequency)
            conditions[name] = _params(len(conditions), sigma, len(frequencies) - 1 - f)
    return conditions


def _original(side: int, seed: int) -> dict:
    octaves = len(critical_band.octave_frequencies(side))
    row, f = np.divmod(critical_band.noise_cells(octaves, seed), octaves)
    return _params(0, np.array(critical_band.SIGMAS)[row], octaves - 1 - f)
