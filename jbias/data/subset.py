"""Which images of a set are used: the options `keep`, `drop`, `portion` and `skip`.

`skip` takes a list of damaged images, written by `prepare check`: a JSON file of splits, each
with the fingerprint that it had and, by the key of its store, why an image does not decode.
Names alone repeat in WebDataset's shards and in others, and numbers differ in a part of a
set. The list is of use for exactly these files: a set that has changed has another
fingerprint, and is refused.
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from jbias.data import base, listing, sources
from jbias.runtime import files

_BOOLEANS = {"False": 0, "True": 1, "false": 0, "true": 1}


def keep(source: base.Source, split: str, path: str, whole: base.Source) -> base.Source:
    """Keeps the images that a file names, by their numbers in the whole split.

    source: the split or a part of it; whole: all of it. The file is .npy, or text with a
    number a line: a mask, one 0 or 1 (or False or True) for each image of the whole, or
    the numbers of those to keep, from 0. Order and classes stay.

    Raises ValueError where the file does not fit, or nothing would be left.
    """
    where = f"data.{source.name}"
    chosen = _mask(where, path, len(whole))
    here = np.arange(len(whole))
    if source is not whole:
        here = positions_in(source, split, whole, "keep")
    (kept,) = np.nonzero(chosen[here])
    if not len(kept):
        raise ValueError(
            f"{where}: keep must leave an image, {path!r} names none of the"
            f" {len(source):,} of {split!r}"
        )
    digest = hashlib.sha256(np.packbits(chosen)).hexdigest()
    note = f"{len(kept):,} of {len(source):,} images, by {os.path.basename(path)}"
    return sources.take(source, kept, digest=f"keeps {digest}", note=note)


def drop(source: base.Source, names: Sequence[str]) -> base.Source:
    """Leaves classes out; the others are numbered anew from 0, in their order.

    Gone are all images of these classes, by "label" and by "texture"; among several
    right classes ("accepted_0", ...) they are blank. ValueError for unknown names.
    """
    where = f"data.{source.name}"
    for name in names:
        base.check_known(f"{where}: drop must name classes", name, source.classes)
    classes = tuple(name for name in source.classes if name not in names)
    if len(classes) < 2:
        raise ValueError(
            f"{where}: drop must leave two classes or more, got {len(names)} of"
            f" {len(source.classes)} to leave out"
        )
    number = {name: i for i, name in enumerate(classes)}
    anew = np.array([number.get(name, -1) for name in source.classes] + [-1], np.int32)
    gone = [source.classes.index(name) for name in names]
    shown = [source.columns[c] for c in ("label", "texture") if c in source.columns]
    (kept,) = np.nonzero(~np.isin(shown, gone).any(0))
    said = ", ".join(sorted(names))
    left = sources.take(source, kept, digest=f"drops {said}", note=f"without {said}")
    columns = {
        name: anew[column] if base.holds_classes(name) else column
        for name, column in left.columns.items()
    }
    return dataclasses.replace(left, classes=classes, columns=columns)


def portion(source: base.Source, text: str) -> base.Source:
    """Takes a random part of the images of every class and attribute, such as "[:80%]".

    It is the same part always, and parts that meet in a percentage are disjoint and
    together whole. Where there are two images of a class and attribute, each side of a
    cut has one. ValueError for another form, or where nothing would be left.
    """
    where = f"data.{source.name}: portion"
    if not text.startswith("["):
        raise ValueError(f'{where}: must read "[:80%]" or "[80%:]", got {text!r}')
    part = listing.parse_split(where, f"images{text}")
    of = [
        source.columns[name]
        for name in ("label", "attribute")
        if name in source.columns
    ]
    drawn = np.random.default_rng(0).permutation(len(source))
    groups = np.unique(np.stack(of)[:, drawn], axis=1, return_inverse=True)[1].ravel()
    index = []
    for group in range(groups.max(initial=-1) + 1):
        members = drawn[groups == group]
        start, stop = (listing.cut_index(len(members), at) for at in part[1:])
        index.append(members[start:stop])
    index = np.sort(np.concatenate([*index, np.zeros(0, np.int64)])).astype(np.int64)
    if not len(index):
        raise ValueError(f"{where}: must leave an image, {text!r} leaves none")
    note = f"{len(index):,} of {len(source):,} images, the portion {text}"
    return sources.take(source, index, digest=f"portion {text}", note=note)


def _mask(where: str, path: str, n: int) -> Bool[np.ndarray, "n"]:
    """Reads which of n images stay."""
    path = os.path.expanduser(path)
    what = f"{where}: keep must be .npy or text with a mask or whole numbers: "
    kinds = OSError, ValueError, EOFError
    with base.explained(what, *kinds, reason=base.one_line):
        if path.endswith(".npy"):
            told = np.load(path, allow_pickle=False)
        else:
            with open(path, encoding="utf-8") as file:
                words = [_BOOLEANS.get(word, word) for word in file.read().split()]
            told = np.array(words, np.int64)
    whole = told.dtype == bool or np.issubdtype(told.dtype, np.integer)
    if told.ndim == 1 and whole and len(told) == n and np.isin(told, (0, 1)).all():
        return told.astype(bool)
    numbers = told.ndim == 1 and whole and told.dtype != bool and len(told)
    if not numbers or not 0 <= told.min() <= told.max() < n:
        raise ValueError(
            f"{where}: keep must be a mask of the {n:,} images or numbers from 0 to"
            f" {n - 1:,}, got {told.dtype} {told.shape} in {path!r}"
        )
    if len(np.unique(told)) < len(told):
        raise ValueError(
            f"{where}: keep must name an image once, {path!r} repeats some"
        )
    mask = np.zeros(n, bool)
    mask[told] = True
    return mask


def positions_in(
    source: base.Source, split: str, whole: base.Source, option: str
) -> Int[np.ndarray, "n"]:
    """Where the images of a part are in the whole; `option` needs to know."""
    if isinstance(source, sources.EncodedSource):
        place = {key: i for i, key in enumerate(_keys(whole))}
        return np.array([place[key] for key in _keys(source)])
    names = tuple(f"{i:08d}" for i in range(len(whole)))
    images = listing.Files(names, np.zeros(len(whole)), whole.columns["label"])
    where = f"data.{source.name}"
    part = listing.parse_split(where, split)
    index = listing.split_indices(where, images, whole.classes, part)
    if not np.array_equal(whole.images[index], source.images):
        raise ValueError(
            f"{where}: {option} must come with a whole split here, got {split!r}; name"
            f" the images of {part.base!r} in two files"
        )
    return index


_MADE_BY = "jbias.prepare check"


def damaged_entry(source: base.Source, wrong: Mapping[int, str]) -> dict[str, Any]:
    """What a list says of a whole split; `wrong` has reasons by number of the image."""
    return {
        "fingerprint": source.fingerprint,
        "images": len(source),
        "damaged": {source.store.key(i): why for i, why in sorted(wrong.items())},
    }


def write_damaged(path: str, splits: Mapping[str, Mapping[str, Any]]) -> None:
    """Writes a list: {split: entry}."""
    content = json.dumps({"made_by": _MADE_BY, "splits": splits}, indent=1)
    files.write(path, content + "\n")


def skip(source: base.Source, split: str, path: str, whole: base.Source) -> base.Source:
    """Leaves the images out that the list at `path` names in a split.

    `source` is the split or some of it, `whole` all of it. The note says how many were
    left out and by which list, and the fingerprint changes with them. Raises ValueError
    for a list of other files.
    """
    where = f"data.{source.name}"
    listed = _damaged_keys(where, split, path, whole)
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


def _keys(source: base.Source) -> list[str]:
    if not isinstance(source, sources.EncodedSource):
        return []
    return [source.store.key(i) for i in range(len(source))]


def _damaged_keys(
    where: str, split: str, path: str, whole: base.Source
) -> frozenset[str]:
    """Keys of the damaged images of one split, if the list is of these files."""
    splits = _read_damaged(path)
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


def _read_damaged(path: str) -> dict[str, dict]:
    with base.explained(
        f"{path}: skip must be a list that `python -m jbias.prepare check --list` wrote,"
        " got ",
        *(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError),
        reason=base.kind_and_text,
    ):
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            held = json.load(file)
        if held["made_by"] != _MADE_BY:
            raise ValueError(f"made by {held['made_by']!r}")
        return {
            split: {"fingerprint": one["fingerprint"], "damaged": dict(one["damaged"])}
            for split, one in held["splits"].items()
        }
