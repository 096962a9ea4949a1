"""Whole sources into memory, by threads (decoders release Python's lock)."""

import functools
import math
from collections.abc import Callable
from concurrent import futures

import numpy as np
from jaxtyping import UInt8

from jbias.data import sources, spec

_CHUNK = 64  # Images a task: progress is told this often.


def nbytes(source: spec.Source) -> int:
    """Bytes that the decoded images of a source take, and what comes with them."""
    arrays = sum(array.nbytes for array in source.arrays.values())
    return len(source) * math.prod(source.shape) * 3 + arrays


def resident(
    source: spec.Source,
    *,
    workers: int,
    progress: Callable[[int, int], None] | None = None,
) -> UInt8[np.ndarray, "n h w 3"]:
    """Decodes all images, in order, with `workers` threads.

    progress(done, total) is called in the caller's thread. Raises one ValueError that
    counts all unreadable images and names the first.
    """
    if workers < 1:
        raise ValueError(f"data.pipeline: workers must be at least 1, got {workers}")
    tell = progress or (lambda done, total: None)
    n = len(source)
    if sources.in_memory(source):
        tell(n, n)
        return source.images
    images = np.empty((n, source.size, source.size, 3), np.uint8)
    damaged, order = [], source.store.order()
    with futures.ThreadPoolExecutor(workers) as pool:
        fill = functools.partial(_fill, source, images, order)
        try:
            for start, found in zip(
                range(0, n, _CHUNK), pool.map(fill, range(0, n, _CHUNK)), strict=True
            ):
                damaged += found
                tell(min(start + _CHUNK, n), n)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # Else it decodes them all.
            raise
    if damaged:
        raise ValueError(
            f"data.pipeline: every image must decode, {len(damaged)} of {n} of"
            f" {source.name} do not, first {damaged[0]}; replace or remove them,"
            " or leave them out by `prepare check --list=damaged.json` and then"
            " skip=damaged.json"
        )
    return images


def _fill(
    source: spec.Source, images: np.ndarray, order: np.ndarray, start: int
) -> list[str]:
    """Decodes one chunk into place; returns what is wrong with the unreadable ones."""
    damaged = []
    for i in order[start : start + _CHUNK]:
        try:
            images[i] = source.image(i)
        except ValueError as error:
            damaged.append(str(error))
    return damaged
