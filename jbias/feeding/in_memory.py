"""Decodes sets into memory, as far as it goes."""

from collections.abc import Callable, Mapping

import numpy as np
from jaxtyping import UInt8

from jbias.data import pipeline, sources, spec
from jbias.runtime import console


def load(
    resident: Mapping[str, spec.Source],
    tested: Mapping[str, spec.Source],
    say: Callable,
    *,
    gib: float,
    threads: int,
) -> dict[str, UInt8[np.ndarray, "n h w c"]]:
    """Decodes sets into memory, `gib` at most; with a bar where it takes a while.

    Those to train on must fit. Of those to test on, the ones that still fit or are there
    already; the others will be read anew at each evaluation.
    """
    left = gib * 2**30 - sum(pipeline.nbytes(source) for source in resident.values())
    if left < 0:
        raise ValueError(
            f"data: the training sets take {gib - left / 2**30:.1f} GiB in memory, more "
            f"than config.run.loading.gib={gib:g}; raise it, stream them from their files "
            "(crop=host among the config's arguments, or in its c.train), or choose a "
            "smaller config.size"
        )
    chosen = dict(resident)
    for name, source in tested.items():
        if sources.in_memory(source) or pipeline.nbytes(source) <= left:
            chosen[name] = source
            left -= pipeline.nbytes(source)
    images = {}
    for name, source in chosen.items():
        with console.progress_bar(f"reading {source.name}", len(source)) as progress:
            images[name] = pipeline.resident(source, workers=threads, progress=progress)
    for name, source in {**resident, **tested}.items():
        _tell(name, source, name in images, say)
    return images


def _tell(name: str, source: spec.Source, resident: bool, say: Callable) -> None:
    say(
        f"{name}: {len(source)} images of {source.name}, {source.preprocessing}"
        + (f" ({source.note})" if source.note else "")
        + ("" if resident else "; read from its files at each evaluation")
    )
