"""Images by class, in folders as ImageNet is laid out or in shards; also users' own.

<root>/<split>/<class>/*.jpg          folders by class
<root>/<split>/*.tar, <root>/*<split>*.tar
                                      tar shards: WebDataset's, or class folders
<root>/[data/]*<split>*.parquet       Hugging Face's: an image and a label a row
<root>/*<split>*.array_record*        tf.train.Example records, as TFDS writes them

A split is one of these, or a part of every class in it: "train[:90%]" and "train[90%:]" are
disjoint and together "train". Which image falls where depends on its name alone. Every set
of image files is built here: `find_split` lists what is on disk, `build` makes a source.
"""

import dataclasses
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from jbias.data import base, decoding, labels, listing, shards, sources, tables
from jbias.untrusted import opening


class Listing(NamedTuple):
    """All images of a split: where their bytes are, and their labels.

    Without names of its own (`classes` is None) a form has the labels 0 to k - 1, whose
    meaning is the data set's to know.
    """

    form: str
    store: sources.Store
    files: listing.Files
    classes: tuple[str, ...] | None

    def take(self, index: Int[np.ndarray, "m"]) -> "Listing":
        """Selects images, in the order of `index`."""
        store, files = self.store.take(index), self.files.take(index)
        return self._replace(store=store, files=files)


# Endings of shards -> (where, paths) -> (store, files, classes).
_SHARDS: Mapping[str, Callable] = MappingProxyType(
    {
        "tar": shards.read_tar,
        "parquet": shards.read_parquet,
        "array_record": shards.read_records,
    }
)
_PLACES = ("", "data", "{split}")


def find_split(
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
    root, part = listing.open_root(where, root, split)
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
    path = listing.require_folder(
        where, os.path.join(root, part.base), f"split {split!r}"
    )
    return _folder(where, path, ignore), part


def _folder(where: str, path: str, ignore: Sequence[str]) -> Listing:
    classes = listing.class_folders(where, path)
    files = listing.scan(where, path, {c: c for c in classes}, ignore)
    return in_folder(path, files, classes)


def in_folder(path: str, files: listing.Files, classes: tuple[str, ...]) -> Listing:
    """Files that lie below one folder."""
    return Listing("folder", sources.FileStore(path, files.names), files, classes)


def _sorted(where: str, found: Listing) -> Listing:
    """Puts images in the order that folders have: by class, then by name."""
    files, k = found.files, len(found.classes or ()) or None
    lowest, highest = files.labels.min(), files.labels.max()
    if lowest < 0 or (k is not None and highest >= k):
        raise ValueError(
            f"{where}: labels must be 0 to {k - 1 if k else 'k - 1'}, got {lowest} to"
            f" {highest}; name the right classes"
        )
    return found.take(np.lexsort((np.array(files.names), files.labels)))


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
        opening.require_regular(path)
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


def make(
    split: str,
    *,
    root: str,
    size: int = 224,
    resize: int | None = None,
    crop: bool = True,
    space: str = "names",
    classes: str = "",
    ignore: Sequence[str] = (),
) -> sources.EncodedSource:
    """Lists <root>/<split>/<class>/**, or shards; labels follow the classes' names.

    `resize` and `crop` are those of decoding.preprocess. `space` says what the class
    names are: "names" of their own, WordNet ids ("wnid"), or Geirhos' 16 ("entry16").
    `classes` is a file with their names, a line each, for shards whose labels are
    numbers. `ignore` has patterns of files that are no images and may be passed over.
    """
    name = f"{os.path.basename(os.path.abspath(root))}/{split}"
    where = f"data.folder {name}"
    found, part = find_split(where, root, split, ignore=ignore)
    names = class_names(where, found, classes)
    _check_space(where, names, space)
    source = build(
        where,
        part,
        found._replace(classes=names),
        name=name,
        space=space,
        transform=decoding.preprocess(size, resize, crop),
        cite=tables.cite("folder"),
    )
    made = os.path.join(os.path.expanduser(root), part.base) + ".json"
    return dataclasses.replace(source, **provenance(made))


def class_names(where: str, found: Listing, path: str) -> tuple[str, ...]:
    """Names the classes: the form's own, those of the file `path`, or numbers."""
    if found.form == "folder" or not path:
        k = int(found.files.labels.max()) + 1
        return found.classes or tuple(f"{i:0{len(str(k - 1))}d}" for i in range(k))
    with (
        base.explained(f"{where}: classes must be a file of names: ", OSError),
        open(os.path.expanduser(path), encoding="utf-8") as file,
    ):
        names = tuple(line.strip() for line in file if line.strip())
    if found.files.labels.max() >= len(names):
        raise ValueError(
            f"{where}: {path} must have a line for each class, got {len(names)} for"
            f" labels up to {found.files.labels.max()}"
        )
    return names


def provenance(path: str) -> dict[str, str]:
    """Note and citation of images that a command of ours made and noted beside them."""
    if not os.path.isfile(path):
        return {}
    with open(path) as file:
        try:
            held = json.load(file)
        except (ValueError, RecursionError):  # Some file of the user's own.
            return {}
    if not isinstance(held, dict) or "made_by" not in held:
        return {}
    note = "made by {made_by} of {source}, {preprocessing}".format_map(held)
    return dict(note=note, cite=held["cite"])


def find_folder(
    where: str, root: str, split: str, spellings: Sequence[str] = ()
) -> tuple[str, listing.Split]:
    """Finds the folder of a split: its name, or the first of `spellings` there is."""
    root, part = listing.open_root(where, root, split)
    paths = [os.path.join(root, one) for one in (part.base, *spellings)]
    path = next(filter(os.path.isdir, paths), paths[0])
    return listing.require_folder(where, path, f"split {part.base!r}"), part


def build(
    where: str,
    part: listing.Split,
    found: Listing,
    *,
    extra: Mapping[str, Int[np.ndarray, "n"]] | None = None,
    published: int | None = None,
    space: str = "names",
    measures: tuple[str, ...] = ("accuracy",),
    note: str = "",
    **attributes,
) -> sources.EncodedSource:
    """Makes a source of a part of the listed files.

    `extra` has further columns of all files. A whole set of another size than
    `published` is used as it is, and the source's note says so.
    """
    n, classes = len(found.files.names), found.classes
    index = listing.split_indices(where, found.files, classes, part)
    found = found.take(index)
    columns = {"label": found.files.labels}
    columns |= {name: column[index] for name, column in (extra or {}).items()}
    fingerprint = listing.digest(found.files, classes)
    if attributes.get("values"):  # A list of one's own may change, the files may not.
        fingerprint = listing.digest_columns(fingerprint, columns, attributes["values"])
    return sources.EncodedSource(
        store=found.store,
        classes=classes,
        columns=columns,
        space=space,
        measures=measures,
        fingerprint=fingerprint,
        note=note or listing.count_note(n, published),
        **attributes,
    )


def named_classes(
    name: str,
    classes: tuple[str, ...],
    *,
    native: bool = False,
    space: str = "names",
    further: Callable[[str, str, listing.Files], dict[str, Any]] | None = None,
) -> Callable[..., sources.EncodedSource]:
    """Makes the function that lists a set of known classes, a folder each.

    `native` says that all images have one size; `further` gives more of what `build`
    takes, of where, split and files.
    """

    def make(
        split: str,
        *,
        root: str,
        size: int = 224,
        resize: int | None = None,
        crop: bool = True,
        ignore: Sequence[str] = (),
    ) -> sources.EncodedSource:
        """Lists one split, or a part of every class of it such as "photo[:90%]".

        Images of `size` are used as they are. resize=256 with size=224 cuts the outer
        12.5 % off, as BiasBed did.
        """
        where = f"data.{name} {split}"
        path, part = find_folder(where, root, split, tables.folders(name, split))
        listing.match_classes(where, listing.class_folders(where, path), classes)
        files = listing.scan(where, path, {one: one for one in classes}, ignore)
        return build(
            where,
            part,
            in_folder(path, files, classes),
            space=space,
            transform=decoding.preprocess(size, resize, crop, native=native),
            **tables.published(name, split),
            **(further(where, part.base, files) if further else {}),
        )

    return make


def _check_space(where: str, classes: Sequence[str], space: str) -> None:
    if space not in base.SPACES:
        raise ValueError(
            f"{where}: space must be one of {', '.join(base.SPACES)}, got {space!r}"
        )
    if space == "entry16":
        wrong = [name for name in classes if name not in labels.geirhos16()]
    else:
        wnid = re.compile(r"n\d{8}" if space == "wnid" else r".*")
        wrong = [name for name in classes if not wnid.fullmatch(name)]
    if wrong:
        raise ValueError(
            f"{where}: class folders must be of space {space!r}, got {wrong[0]!r};"
            " leave out space where classes have names of their own"
        )


SPEC = base.spec("folder", make)
