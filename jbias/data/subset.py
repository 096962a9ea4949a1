"""Some images or some classes of a set: the options `keep`, `drop` and `portion`."""

import dataclasses
import hashlib
import os
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int

from jbias.data import listing, sources, spec

_WORDS = {"False": 0, "True": 1, "false": 0, "true": 1}


def keep(source: spec.Source, split: str, path: str, whole: spec.Source) -> spec.Source:
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
        here = places(source, split, whole, "keep")
    (kept,) = np.nonzero(chosen[here])
    if not len(kept):
        raise ValueError(
            f"{where}: keep must leave an image, {path!r} names none of the"
            f" {len(source):,} of {split!r}"
        )
    digest = hashlib.sha256(np.packbits(chosen)).hexdigest()
    note = f"{len(kept):,} of {len(source):,} images, by {os.path.basename(path)}"
    return sources.take(source, kept, digest=f"keeps {digest}", note=note)


def drop(source: spec.Source, names: Sequence[str]) -> spec.Source:
    """Leaves classes out; the others are numbered anew from 0, in their order.

    Gone are all images of these classes, by "label" and by "texture"; among several
    right classes ("accepted_0", ...) they are blank. ValueError for unknown names.
    """
    where = f"data.{source.name}"
    for name in names:
        if name not in source.classes:
            raise ValueError(
                f"{where}: drop must name classes, got {name!r};"
                f" {spec.did_you_mean(name, source.classes)}"
            )
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
        name: anew[column] if spec.holds_classes(name) else column
        for name, column in left.columns.items()
    }
    return dataclasses.replace(left, classes=classes, columns=columns)


def portion(source: spec.Source, text: str) -> spec.Source:
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
        start, stop = (listing.cut(len(members), at) for at in part[1:])
        index.append(members[start:stop])
    index = np.sort(np.concatenate([*index, np.zeros(0, np.int64)])).astype(np.int64)
    if not len(index):
        raise ValueError(f"{where}: must leave an image, {text!r} leaves none")
    note = f"{len(index):,} of {len(source):,} images, the portion {text}"
    return sources.take(source, index, digest=f"portion {text}", note=note)


def _mask(where: str, path: str, n: int) -> Bool[np.ndarray, "n"]:
    """Reads which of n images stay."""
    path = os.path.expanduser(path)
    try:
        if path.endswith(".npy"):
            told = np.load(path, allow_pickle=False)
        else:
            with open(path, encoding="utf-8") as file:
                words = [_WORDS.get(word, word) for word in file.read().split()]
            told = np.array(words, np.int64)
    except (OSError, ValueError, EOFError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{where}: keep must be .npy or text with a mask or whole numbers: {reason}"
        ) from error
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


def places(
    source: spec.Source, split: str, whole: spec.Source, option: str
) -> Int[np.ndarray, "n"]:
    """Where the images of a part are in the whole; `option` needs to know."""
    if isinstance(source, sources.EncodedSource):
        place = {whole.store.key(i): i for i in range(len(whole))}
        return np.array([place[source.store.key(i)] for i in range(len(source))])
    names = tuple(f"{i:08d}" for i in range(len(whole)))
    files = listing.Files(names, np.zeros(len(whole)), whole.columns["label"])
    where = f"data.{source.name}"
    part = listing.parse_split(where, split)
    index = listing.part(where, files, whole.classes, part)
    if not np.array_equal(whole.images[index], source.images):
        raise ValueError(
            f"{where}: {option} must come with a whole split here, got {split!r}; name"
            f" the images of {part.base!r} in two files"
        )
    return index
