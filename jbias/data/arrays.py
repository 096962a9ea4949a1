"""Sets that are published as arrays: to square colour images of the size asked for."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Int, UInt8
from PIL import Image

from jbias.data import listing, sources, transforms


def build(
    where: str,
    split: listing.Split,
    images: UInt8[np.ndarray, "n h w *c"],
    labels: Int[np.ndarray, "n"],
    *,
    classes: Sequence[str],
    transform: transforms.Preprocess,
    columns: Mapping[str, Int[np.ndarray, "n"]] | None = None,
    published: int | None = None,
    **attributes,
) -> sources.ArraySource:
    """Makes a source of a part of the images; grey ones are repeated in three channels.

    Raises ValueError on images of another form and on labels beyond the classes.
    """
    grey = images.ndim == 3
    if images.dtype != np.uint8 or not (
        grey or images.ndim == 4 == images.shape[3] + 1
    ):
        raise ValueError(
            f"{where}: images must be uint8 (n, h, w) or (n, h, w, 3), got"
            f" {images.dtype} {images.shape}"
        )
    labels = _labels(where, labels, len(images), len(classes))
    n = len(images)
    names = tuple(f"{i:08d}" for i in range(n))
    files = listing.Files(names, np.zeros(n, np.int64), labels)
    index = listing.part(where, files, classes, split)
    images = images[index]
    if grey:
        images = np.repeat(images[..., None], 3, -1)
    note = ""
    if published not in (None, n):
        note = f"{n:,} images on disk, the published set has {published:,}"
    return sources.ArraySource(
        images=resized(images, transform),
        classes=tuple(classes),
        columns={"label": labels[index]}
        | {name: column[index] for name, column in (columns or {}).items()},
        preprocessing=transform.description,
        fingerprint=listing.digest_of(images, labels[index], classes),
        note=note,
        **attributes,
    )


def resized(
    images: UInt8[np.ndarray, "n h w 3"], transform: transforms.Preprocess
) -> UInt8[np.ndarray, "n size size 3"]:
    """Preprocesses images one by one, as files are; those of that size stay."""
    if images.shape[1:3] == (transform.size, transform.size) == (transform.short,) * 2:
        return images
    return np.stack([np.asarray(transform(Image.fromarray(one))) for one in images])


def _labels(where: str, labels: np.ndarray, n: int, k: int) -> Int[np.ndarray, "n"]:
    found = np.asarray(labels)
    whole = found.shape == (n,) and np.issubdtype(found.dtype, np.integer)
    if not whole or (n and not 0 <= found.min() <= found.max() < k):
        raise ValueError(
            f"{where}: labels must be {n} whole numbers from 0 to {k - 1}, got"
            f" {found.dtype} {found.shape}"
            + (f" of {found.min()} to {found.max()}" if whole else "")
        )
    return found.astype(np.int32)
