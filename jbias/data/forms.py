"""In which form a split lies on disk, and what is in it.

<root>/<split>/<class>/*.jpg          folders by class
<root>/<split>/*.tar, <root>/*<split>*.tar
                                      tar shards: WebDataset's, or class folders
<root>/[data/]*<split>*.parquet       Hugging Face's: an image and a label a row
<root>/*<split>*.array_record*        tf.train.Example records, as TFDS writes them
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from jbias.data import form_parquet, form_records, form_tar, listing, stores
from jbias.foreign import opening


class Listing(NamedTuple):
    """All images of a split: where their bytes are, and their labels.

    Without names of its own (`classes` is None) a form has the labels 0 to k - 1, whose
    meaning is the data set's to know.
    """

    form: str
    store: stores.Store
    files: listing.Files
    classes: tuple[str, ...] | None


# Endings of shards -> (where, paths) -> (store, files, classes).
_SHARDS: Mapping[str, Callable] = MappingProxyType(
    {
        "tar": form_tar.read,
        "parquet": form_parquet.read,
        "array_record": form_records.read,
    }
)
_PLACES = ("", "data", "{split}")


def find(
    where: str,
    root: str,
    split: str,
    *,
    spellings: Sequence[str] = (),
    ignore: Sequence[str] = (),
) -> tuple[Listing, listing.Split]:
    """Finds a split by its name, or by the first of `spellings` there is.

    Raises ValueError, with what lies nearest, where no form is found.
    """
    part = listing.parse_split(where, split)
    root = listing.existing(where, os.path.expanduser(root), "root")
    for name in (part.base, *spellings):
        path = os.path.join(root, name)
        # Archives are often left beside what was unpacked from them.
        if os.path.isdir(path) and listing.has_folders(path):
            return _folder(where, path, ignore), part
        for form, read in _SHARDS.items():
            shards = _shards(root, name, form)
            if shards:
                _complete(where, shards)
                return _sorted(where, Listing(form, *read(where, shards))), part
    path = listing.existing(where, os.path.join(root, part.base), f"split {split!r}")
    return _folder(where, path, ignore), part


def _folder(where: str, path: str, ignore: Sequence[str]) -> Listing:
    classes = listing.class_folders(where, path)
    files = listing.scan(where, path, {c: c for c in classes}, ignore)
    return Listing("folder", stores.Files(path, files.names), files, classes)


def _sorted(where: str, found: Listing) -> Listing:
    """Puts images in the order that folders have: by class, then by name."""
    files, k = found.files, len(found.classes or ()) or None
    lowest, highest = files.labels.min(), files.labels.max()
    if lowest < 0 or (k is not None and highest >= k):
        raise ValueError(
            f"{where}: labels must be 0 to {k - 1 if k else 'k - 1'}, got {lowest} to"
            f" {highest}; name the right classes"
        )
    order = np.lexsort((np.array(files.names), files.labels))
    return found._replace(store=found.store.take(order), files=files.take(order))


def _shards(root: str, split: str, form: str) -> list[str]:
    """Shards whose name has the split as a word, or all of the split's own folder."""
    word = re.compile(
        rf"(?:^|[^a-z0-9]){re.escape(split)}(?:[^a-z0-9]|$)", re.IGNORECASE
    )
    ending = re.compile(rf"\.{form}(?:-\d+-of-\d+)?$")
    for place in _PLACES:
        folder = os.path.join(root, place.format(split=split))
        if not os.path.isdir(folder):
            continue
        names = sorted(name for name in os.listdir(folder) if ending.search(name))
        if "{split}" not in place:
            names = [name for name in names if word.search(ending.sub("", name))]
        if names:
            return [os.path.join(folder, name) for name in names]
    return []


def _complete(where: str, shards: Sequence[str]) -> None:
    """Refuses shards that are no files, or count themselves and some are missing."""
    for path in shards:
        opening.regular(path)
    counts = [re.search(r"(\d+)-of-(\d+)", os.path.basename(path)) for path in shards]
    if not all(counts):
        return
    numbers = {int(found[1]) for found in counts}
    totals = {int(found[2]) for found in counts}
    total = max(totals)
    first = min({*range(total)} - numbers, default=None)
    # Numbered from 0, or from 1.
    if len(totals) == 1 and (
        len(numbers) == total or numbers == {*range(1, total + 1)}
    ):
        return
    raise ValueError(
        f"{where}: all shards must be there, got {len(numbers)} of {total} in"
        f" {os.path.dirname(shards[0])!r}, the first missing is number {first}; copy it"
    )
