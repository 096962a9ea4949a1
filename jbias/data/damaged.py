"""Lists of damaged images: written by `prepare check`, left out by the option `skip`.

A list is a JSON file of splits, each with the fingerprint that it had and, by the key of
its store, why an image does not decode: names alone repeat in WebDataset's shards and in
others, numbers are others in a part of a set. It is of use for exactly these files: a set that has changed
has another fingerprint, and is refused.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from jbias.data import sources, spec

_MADE_BY = "jbias.prepare check"


def entry(source: spec.Source, wrong: Mapping[int, str]) -> dict[str, Any]:
    """What a list says of a whole split; `wrong` has reasons by number of the image."""
    return {
        "fingerprint": source.fingerprint,
        "images": len(source),
        "damaged": {source.store.key(i): why for i, why in sorted(wrong.items())},
    }


def write(path: str, splits: Mapping[str, Mapping[str, Any]]) -> None:
    """Writes a list: {split: entry}."""
    temporary = f"{path}.part"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump({"made_by": _MADE_BY, "splits": splits}, file, indent=1)
        file.write("\n")
    os.replace(temporary, path)


def leave_out(
    source: spec.Source, split: str, path: str, whole: spec.Source
) -> spec.Source:
    """Leaves the images out that the list at `path` names in a split.

    `source` is the split or some of it, `whole` all of it. The note says how many were
    left out and by which list, and the fingerprint changes with them. Raises ValueError
    for a list of other files.
    """
    where = f"data.{source.name}"
    listed = _listed(where, split, path, whole)
    keys = _keys(source) if listed else ()
    if listed.isdisjoint(keys):
        return source
    (kept,) = np.nonzero([key not in listed for key in keys])
    digest = hashlib.sha256("\n".join(sorted(listed)).encode()).hexdigest()
    note = (
        f"{len(keys) - len(kept):,} damaged images of {len(keys):,} left out, by the"
        f" list {os.path.basename(path)} ({digest[:12]})"
    )
    return sources.take(source, kept, digest=f"without {digest}", note=note)


def _keys(source: spec.Source) -> list[str]:
    if not isinstance(source, sources.EncodedSource):
        return []
    return [source.store.key(i) for i in range(len(source))]


def _listed(where: str, split: str, path: str, whole: spec.Source) -> frozenset[str]:
    """Keys of the damaged images of one split, if the list is of these files."""
    splits = _read(path)
    if split not in splits:
        raise ValueError(
            f"{where}: skip must be a list that has split {split!r}, got {path!r} with"
            f" {', '.join(splits) or 'none'}; check it: python -m jbias.prepare check"
        )
    held = splits[split]
    strange = sorted({*held["damaged"]} - {*_keys(whole)})
    if strange:
        raise ValueError(
            f"{where}: skip must be a list of this set's images, {len(strange):,} of"
            f" {len(held['damaged']):,} in {path!r} do not exist, first {strange[0]!r};"
            " check them again: python -m jbias.prepare check"
        )
    if held["fingerprint"] != whole.fingerprint:
        raise ValueError(
            f"{where}: skip must be a list of the files as they are, got {path!r} with"
            f" fingerprint {held['fingerprint'][:12]} for {whole.fingerprint[:12]};"
            " check them again: python -m jbias.prepare check"
        )
    return frozenset(held["damaged"])


def _read(path: str) -> dict[str, dict]:
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            held = json.load(file)
        if held["made_by"] != _MADE_BY:
            raise ValueError(f"made by {held['made_by']!r}")
        return {
            split: {"fingerprint": one["fingerprint"], "damaged": dict(one["damaged"])}
            for split, one in held["splits"].items()
        }
    except (
        *(OSError, ValueError, KeyError, TypeError, AttributeError),
        RecursionError,
    ) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(
            f"{path}: skip must be a list that `python -m jbias.prepare check --list`"
            f" wrote, got {reason}"
        ) from error
