"""The noise that follows each image, so that the image does not stay visible as an afterimage.

Pink noise, whose amplitude falls as 1 / frequency, as in the experiments of Geirhos et al., NeurIPS
2018, https://arxiv.org/abs/1808.08750 and of model-vs-human. Deviation: the noise is made here from
normal numbers, with a standard deviation of 0.2 around mid-grey, the colour of the page's window.
"""

import numpy as np
from jaxtyping import UInt8

SIZE = 96  # Pixels.
COUNT = 6
STD = 0.2  # Of values in [0, 1], around 0.5; values beyond 0 and 1 are cut off.


def make(
    *, seed: int = 0, count: int = COUNT, size: int = SIZE
) -> UInt8[np.ndarray, "n s s"]:
    """Return grey images of pink noise.

    seed: of the normal numbers. count: number of images. size: side in pixels.
    """
    generator = np.random.default_rng([seed, 0x6D61736B])
    spectrum = np.fft.rfft2(generator.standard_normal((count, size, size)))
    rows = np.fft.fftfreq(size)[:, None]
    columns = np.fft.rfftfreq(size)[None]
    frequency = np.hypot(rows, columns)
    frequency[0, 0] = np.inf  # The mean is 0.
    noise = np.fft.irfft2(spectrum / frequency, s=(size, size))
    noise *= STD / noise.std(axis=(1, 2), keepdims=True)
    return np.rint(255 * np.clip(0.5 + noise, 0, 1)).astype(np.uint8)
