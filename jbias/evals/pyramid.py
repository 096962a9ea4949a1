"""The Laplacian pyramid as matrices: a band of an image is linear in each axis.

Source: Burt and Adelson, IEEE Trans. Communications 31, 1983, with the binomial kernel
and mirrored edges of https://github.com/LabForComputationalVision/pyrtools, as the
critical-band test uses it. Both ways act on one axis after the other. Going down l times
and up again is therefore G_l x G_l' with one matrix G_l, and the band of level l, brought
to full size, is G_l x G_l' - G_(l+1) x G_(l+1)', with G_0 the identity.
"""

import functools

import numpy as np
from jaxtyping import Float
from scipy import ndimage

KERNEL = np.sqrt(2) / 16 * np.array([1, 4, 6, 4, 1])  # Its sum is sqrt(2).
SMALLEST = 4  # An axis this short is not halved any more.


def sizes(side: int) -> tuple[int, ...]:
    """The side of every level, from the image's on: 224 gives 224, 112, ..., 7, 4."""
    return (side,) if side <= SMALLEST else (side, *sizes((side + 1) // 2))


@functools.cache
def there_and_back(side: int) -> Float[np.ndarray, "levels+1 side side"]:
    """G_0, ..., G_n: down l times and up again; G_n is 0, as nothing is below.

    With n = len(sizes(side)) levels: those of (G_l, G_(l+1)) give the band of level l,
    the finest of which is 0. The bands add to the image. Read-only.
    """
    below, above, all_of_them = np.eye(side), np.eye(side), [np.eye(side)]
    for size in sizes(side)[:-1]:
        smooth = _smooth(size)
        below = smooth[::2] @ below  # Every second sample is kept, from the first on.
        above = above @ smooth[:, ::2]  # Zeros between samples, then smoothing.
        all_of_them.append(above @ below)
    matrices = np.stack([*all_of_them, np.zeros((side, side))])
    matrices.flags.writeable = False
    return matrices


def centroid(side: int, level: int) -> float:
    """Mean frequency of a band of white noise, in cycles per image.

    Frequencies are weighted by the noise's expected power there.
    """
    here, below = np.fft.fft(there_and_back(side)[level : level + 2], axis=1)
    # The noise at pixel (i, j) adds here_ui here_vj - below_ui below_vj at (u, v).
    own, other = ((abs(one) ** 2).sum(1) for one in (here, below))
    cross = (here * below.conj()).sum(1)
    power = np.outer(own, own) + np.outer(other, other)
    power -= 2 * np.outer(cross, cross).real
    frequency = np.fft.fftfreq(side, 1 / side)
    radius = np.hypot(frequency[:, None], frequency)
    return float((radius * power).sum() / power.sum())


def _smooth(side: int) -> Float[np.ndarray, "side side"]:
    """Correlates an axis with the kernel, its ends mirrored without repetition."""
    return ndimage.correlate1d(np.eye(side), KERNEL, axis=0, mode="mirror")
