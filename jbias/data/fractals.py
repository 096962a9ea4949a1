"""Pictures of fractals, to be mixed with images: an embedded set, drawn by code.

Three kinds, in turn: flames (functions iterated on points at random), Julia sets, and
parts of the Mandelbrot set. Each has palettes of its own and structure at many scales.
Meant for PixMix (Hendrycks et al., CVPR 2022, https://arxiv.org/abs/2112.05135), whose
authors gathered about 14,000 fractals and feature visualisations: this is not their
set, only one like it, and has no feature visualisations. Fractals by formula as data:
Kataoka et al., ACCV 2020, https://arxiv.org/abs/2101.08515; contractions with singular
values bounded in sum, as here: Anderson and Farrell, WACV 2022,
https://arxiv.org/abs/2110.03091. Flames: Draves and Reckase, 2003.

A picture is a function of (seed, its number, size), and about the same at every size.
"""

import hashlib
import zlib
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from jaxtyping import UInt8

from jbias.data import cache, fractal_escape, fractal_flames, sources, spec

CITE = (
    "Embedded fractals of jbias, in the place of PixMix's mixing set: Hendrycks et al.,"
    " PixMix, CVPR 2022, https://arxiv.org/abs/2112.05135"
)
VERSION = 1  # Of the drawing: change it with any change of a pixel.
SIZES = (32, 224)
SPLITS = ("train",)
KINDS: Mapping[str, Callable] = MappingProxyType(  # (generator, size) -> picture.
    {
        "flame": fractal_flames.flame,
        "julia": fractal_escape.julia,
        "mandelbrot": fractal_escape.mandelbrot,
    }
)


def make(
    split: str, *, size: int = 32, n: int = 512, seed: int = 0
) -> sources.ArraySource:
    """Draws, or reads from the cache, n pictures; the label is the kind.

    Picture i does not depend on n.
    Raises ValueError, one line, for arguments outside their range.
    """
    _check(split, size, n, seed)
    words = f"fractals {VERSION} {int(n)} {int(size)} {int(seed)}"
    name = f"fractals-{hashlib.sha256(words.encode()).hexdigest()[:16]}"
    arrays = cache.load(name, words)
    if arrays is None:
        arrays = {"image": np.stack([_draw(i, size, seed) for i in range(n)])}
        cache.save(name, words, arrays)
    content = hashlib.sha256(words.encode())
    content.update(np.ascontiguousarray(arrays["image"]))
    return sources.ArraySource(
        images=arrays["image"],
        name=f"fractals/{split}",
        classes=tuple(KINDS),
        space="names",
        columns={"label": (np.arange(n) % len(KINDS)).astype(np.int32)},
        measures=("accuracy",),
        preprocessing=f"drawn at {size} pixels",
        fingerprint=content.hexdigest(),
        cite=CITE,
        note="in the spirit of PixMix's mixing set, not that set",
    )


def _check(split: str, size: int, n: int, seed: int) -> None:
    if split not in SPLITS:
        hint = spec.did_you_mean(split, SPLITS)
        raise ValueError(f"fractals: split must be a known one, got {split!r}; {hint}")
    if not isinstance(size, int | np.integer) or not SIZES[0] <= size <= SIZES[1]:
        raise ValueError(
            f"fractals: size must be a whole number from {SIZES[0]} to {SIZES[1]},"
            f" got {size}"
        )
    if not isinstance(n, int | np.integer) or n < 1:
        raise ValueError(f"fractals: n must be a positive whole number, got {n}")
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"fractals: seed must be a whole number >= 0, got {seed}")


def _draw(i: int, size: int, seed: int) -> UInt8[np.ndarray, "size size 3"]:
    kind = [*KINDS][i % len(KINDS)]
    rng = np.random.default_rng([seed, zlib.crc32(kind.encode()), i])
    image = KINDS[kind](rng, size)
    return np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8)


SPEC = spec.Spec(
    make,
    splits=SPLITS,
    cite=CITE,
    licence="MIT, as jbias: drawn by code",
    about=(
        "pictures of flames, Julia and Mandelbrot sets, drawn at 32 to 224 pixels; 512,"
        " or n; not PixMix's own set; no download"
    ),
)
