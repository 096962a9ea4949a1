"""What a network makes of all images of a set, kept on disk in blocks."""

import hashlib
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from concurrent import futures
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import errors
from jaxtyping import Float, Int

from jbias.data import base
from jbias.evals import features
from jbias.measure import subjects
from jbias.models import taps
from jbias.prepare import reading
from jbias.runtime import console

_BLOCK = 512  # Images of a file.
_WIDTH = 8192  # Columns, beyond which features are projected to so many.


def described(
    subject: subjects.Subject, source: base.Source, site: str
) -> dict[str, Any]:
    """What features are made by: network, site and images.

    site: "" is the last one. Raises ValueError for an unknown one.
    """
    known = taps.sites(subject.net, source.size)
    site = site or known[-1]
    if site not in known:
        raise ValueError(
            f"prepare clusters: --site must be of {taps.abbreviate(known)}, got {site!r};"
            f" {base.did_you_mean(site, known)}"
        )
    return {
        "site": site,
        "identity": subject.identity,
        "source": source.name,
        "images_of": source.fingerprint,
        "preprocessing": source.preprocessing,
    }


def of(
    folder: pathlib.Path,
    subject: subjects.Subject,
    source: base.Source,
    made_by: Mapping[str, Any],
) -> list[Float[np.ndarray, "b d"]]:
    """Features of all images, by blocks on disk; maps and tokens are averaged.

    Each block is a file of `folder`, in a folder of its own for what it is made by; those
    that are there are not made again. Raises ValueError for an image that does not
    decode, a network that takes none of this size, and features that are no numbers.
    """
    words = json.dumps({**made_by, "block": _BLOCK}, sort_keys=True)
    folder = folder / hashlib.sha256(words.encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    starts = range(0, len(source), _BLOCK)
    paths = [folder / f"{start // _BLOCK:06d}.npy" for start in starts]
    _make(subject, source, made_by["site"], paths)
    return [np.load(path, mmap_mode="r", allow_pickle=False) for path in paths]


def rows(
    blocks: Sequence[Float[np.ndarray, "b d"]], index: Int[np.ndarray, "m"]
) -> Float[np.ndarray, "m d"]:
    """Features of some images, in the order of their rising numbers."""
    number, place = np.divmod(index, _BLOCK)
    return np.concatenate([blocks[b][place[number == b]] for b in np.unique(number)])


def _make(
    subject: subjects.Subject,
    source: base.Source,
    site: str,
    paths: Sequence[pathlib.Path],
) -> None:
    """Makes the blocks that are missing."""
    todo = [block for block, path in enumerate(paths) if not path.exists()]
    net = subject.net.clone(dtype=jnp.float32)

    def read(block: int) -> np.ndarray:
        end = min((block + 1) * _BLOCK, len(source))
        return np.stack([source[i]["image"] for i in range(block * _BLOCK, end)])

    with (
        futures.ThreadPoolExecutor(reading.WORKERS) as pool,
        console.progress_bar(
            f"{subject.name} on {source.name}", len(source)
        ) as progress,
    ):
        done = len(source) - sum(min(_BLOCK, len(source) - b * _BLOCK) for b in todo)
        for block, images in reading.ahead(pool, read, todo):
            found = _read(net, subject, images, site)
            if not np.isfinite(found).all():
                raise ValueError(
                    f"prepare clusters: features must be numbers, {subject.name} at"
                    f" {site} gives others for images of {source.name}"
                )
            part = paths[block].with_suffix(".part")
            with part.open("wb") as file:
                np.save(file, found)
            os.replace(part, paths[block])
            done += len(images)
            progress(done, len(source))


def _read(net, subject, images, site: str) -> Float[np.ndarray, "b d"]:
    try:
        seen = features.read(
            net, subject.variables, images, sites=[site], pool=1, columns=_WIDTH
        )
    except errors.FlaxError as error:
        raise ValueError(
            f"prepare clusters: {subject.name} must take images of"
            f" {images.shape[2]} pixels, got {str(error).partition('. ')[0]}; give"
            " another --size"
        ) from error
    return seen[site]
