"""The Laplacian pyramid as matrices, which act on each axis of an image.

Source: Burt and Adelson, IEEE Trans. Communications 31, 1983, with the binomial kernel
and mirrored edges of https://github.com/LabForComputationalVision/pyrtools, as in the
critical-band test. Down- and upsampling act on one axis after the other. Downsampling l times
and upsampling again is therefore G_l x G_l' with one matrix G_l, and the band of level l at
full size is G_l x G_l' - G_(l+1) x G_(l+1)', with G_0 the identity.
"""

import functools

import numpy as np
from jaxtyping import Float
from scipy import ndimage

KERNEL = np.sqrt(2) / 16 * np.array([1, 4, 6, 4, 1])  # Its sum is sqrt(2).
SMALLEST = 4  # Sides up to this length are not halved.


def sizes(side: int) -> tuple[int, ...]:
    """Return the side of each level in pixels, descending from `side`.

    For 224: 224, 112, 56, 28, 14, 7, 4.
    """
    return (side,) if side <= SMALLEST else (side, *sizes((side + 1) // 2))


@functools.cache
def level_matrices(side: int) -> Float[np.ndarray, "levels+1 side side"]:
    """Return the matrices G_0, ..., G_n; G_l downsamples l times and upsamples again, G_n is 0.

    side: image side in pixels. n = len(sizes(side)) is the number of levels: the band of
    level l of an image x is G_l x G_l' - G_(l+1) x G_(l+1)', where level 0 is the finest. The
    bands sum to the image. The array is read-only.
    """
    down, up, products = np.eye(side), np.eye(side), [np.eye(side)]
    for size in sizes(side)[:-1]:
        smooth = _smoothing_matrix(size)
        down = smooth[::2] @ down  # Keeps every second sample, from the first.
        up = up @ smooth[:, ::2]  # Zeros between samples, then smoothing.
        products.append(up @ down)
    matrices = np.stack([*products, np.zeros((side, side))])
    matrices.flags.writeable = False
    return matrices


def centroid(side: int, level: int) -> float:
    """Return the mean frequency of a band of white noise, in cycles per image.

    side: image side in pixels. level: level of the band, 0 is the finest. Frequencies
    are weighted by the expected power of the noise.
    """
    upper, lower = np.fft.fft(level_matrices(side)[level : level + 2], axis=1)
    # The noise at pixel (i, j) adds upper_ui upper_vj - lower_ui lower_vj at (u, v).
    upper_power, lower_power = ((abs(x) ** 2).sum(1) for x in (upper, lower))
    cross = (upper * lower.conj()).sum(1)
    power = np.outer(upper_power, upper_power) + np.outer(lower_power, lower_power)
    power -= 2 * np.outer(cross, cross).real
    frequency = np.fft.fftfreq(side, 1 / side)
    radius = np.hypot(frequency[:, None], frequency)
    return float((radius * power).sum() / power.sum())


def _smoothing_matrix(side: int) -> Float[np.ndarray, "side side"]:
    """Return the matrix that smooths `side` samples by KERNEL, with ends mirrored.

    The edge sample is not repeated.
    """
    return ndimage.correlate1d(np.eye(side), KERNEL, axis=0, mode="mirror")
