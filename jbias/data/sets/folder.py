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

import contextlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from jbias.data import base, decoding, labels, sources, tables
from jbias.data.base import Columns, Names
from jbias.data.forms import listing, shards, stores
from jbias.untrusted import opening


class Request(NamedTuple):
    """What is asked of a set in files: a split or a part of it, its images of one size."""

    name: str  # The set's, or of a user's own that of its folder.
    split: str
    where: str  # For messages.
    root: str  # It is there.
    part: listing.Split
    transform: decoding.Preprocess
    spellings: Names = ()  # Where else the split's folder may lie.
    cite: str = ""
    published: int | None = None  # Images of the split.

    @property
    def folders(self) -> dict[str, str]:
        """Where the split's folder may lie, by its name; the likeliest first."""
        names = (self.part.base, *self.spellings)
        return {name: os.path.join(self.root, name) for name in names}

    def about(self, n: int, note: str = "", **more: Any) -> dict[str, Any]:
        """What a source of it says of itself; n: images of the whole split.

        One of another size than the published is used as it is, and the note says so.
        """
        note = note or listing.count_note(n, self.published)
        return dict(name=f"{self.name}/{self.split}", cite=self.cite, note=note) | more


def request(
    name: str,
    split: str,
    *,
    root: str,
    size: int | None = None,
    resize: int | None = None,
    crop: bool = True,
    fit: str = "crop",
    interpolation: str = "bilinear",
    fill: Sequence[int] = (0, 0, 0),
    folders: Mapping[str, Names] | None = None,
) -> Request:
    """Asks for a split of a set in tables/data_sets.json that lies below `root`.

    What `size`, `resize`, `crop`, `fit`, `interpolation` and `fill` do is said by
    decoding.preprocess: resize=256 with
    size=224 cuts the outer 12.5 % off, as BiasBed did. `folders` has further names of
    splits' folders.
    """
    row = tables.data_sets()[name]
    own, images = row.get("own"), row.get("images")
    title = os.path.basename(os.path.abspath(root)) if own else name
    where = f"data.{name} {title}/{split}" if own else f"data.{name} {split}"
    part = listing.parse_split(where, split)
    size = row.get("pixels", 224) if size is None else size
    root = listing.require_folder(where, os.path.expanduser(root), "root")
    native = row.get("native", False)
    transform = decoding.preprocess(
        size,
        resize,
        crop,
        native=native,
        fit=fit,
        interpolation=interpolation,
        fill=fill,
    )
    spellings = (folders or row.get("folders", {})).get(part.base, ())
    published = images.get(part.base) if isinstance(images, Mapping) else images
    of = title, split, where, root, part, transform
    return Request(*of, spellings, row["cite"], published)


_PLACES = ("", "data", "{split}")


def find_split(request: Request, ignore: Names = ()) -> listing.Listing:
    """Finds a split by its name, or by the first of its spellings there is.

    Raises ValueError, with what lies nearest, where no form is found.
    """
    where, root = request.where, request.root
    for name, path in request.folders.items():
        # Archives are often left beside what was unpacked from them.
        if os.path.isdir(path) and listing.has_folders(path):
            return listing.scan_split(where, path, ignore)
        for form, read in shards.FORMS.items():
            if paths := _shards(where, root, name, form):
                _check_complete(where, paths)
                return _sorted(where, read(where, paths))
    path, *_ = request.folders.values()
    path = listing.require_folder(where, path, f"split {request.split!r}")
    return listing.scan_split(where, path, ignore)


def _sorted(where: str, found: listing.Listing) -> listing.Listing:
    """Puts images in the order that folders have: by class, then by name."""
    lowest, highest = found.labels.min(), found.labels.max()
    if lowest < 0 or (found.classes and highest >= len(found.classes)):
        most = len(found.classes) - 1 if found.classes else "k - 1"
        must = f"{where}: labels must be 0 to {most}, got {lowest} to {highest}"
        raise ValueError(f"{must}; name the right classes")
    return found.take(np.lexsort((np.array(found.names), found.labels)))


def _shards(where: str, root: str, split: str, form: str) -> list[str]:
    """Shards whose name has the split as a word, or all of the split's own folder.

    Of "test-0.tar" and "test_small-0.tar" the first alone are "test"; where the names of
    several series say something else beside the split, it is for the user to choose.
    """
    word = re.compile(rf"(?i)(?:^|[^a-z0-9]){re.escape(split)}(?:[^a-z0-9]|$)")
    ending = re.compile(rf"\.{form}(?:-\d+-of-\d+)?$")
    for place in _PLACES:
        folder = os.path.join(root, place.format(split=split))
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        names = [name for name in names if ending.search(name)]
        if "{split}" not in place:
            names = [name for name in names if word.search(ending.sub("", name))]
            stems = {name: word.sub("-", ending.sub("", name)) for name in names}
            beside = {name: _beside(stem) for name, stem in stems.items()}
            names = [name for name in names if not beside[name]] or names
            if other := [name for name in names if beside[name] != beside[names[0]]]:
                must = f"{where}: shards of {split!r} must be of one series"
                got = f"got {names[0]!r} and {other[0]!r} in {folder!r}"
                remedy = f"move those that are meant into a folder {split!r}"
                raise ValueError(f"{must}, {got}; {remedy}")
        if names:
            return [os.path.join(folder, name) for name in names]
    return []


def _beside(name: str) -> list[str]:
    """The words of a shard's name without numbers and digests."""
    words = re.split(r"[^a-z0-9]+", re.sub(r"(?i)[0-9a-f]{8,}|\d+", "", name).lower())
    return [word for word in words if word not in ("", "of")]


def _check_complete(where: str, shards: Names) -> None:
    """Refuses shards that are no files, or count themselves and some are missing."""
    for path in shards:
        opening.require_regular(path)
    counts = [re.search(r"(\d+)-of-(\d+)", os.path.basename(path)) for path in shards]
    if not all(counts):
        return
    numbers, totals = ({int(found[i]) for found in counts} for i in (1, 2))
    total = max(totals)
    if len(totals) > 1 or len(numbers) != total:  # They count from 0, or from 1.
        first = min({*range(total)} - numbers, default=None)
        must = f"{where}: all shards must be there"
        got = f"got {len(numbers)} of {total} in {os.path.dirname(shards[0])!r}"
        raise ValueError(f"{must}, {got}, the first missing is number {first}; copy it")


def find_folder(request: Request) -> str:
    """Finds the folder of a split: its name, or the first of its spellings there is."""
    paths, what = [*request.folders.values()], f"split {request.part.base!r}"
    path = next(filter(os.path.isdir, paths), paths[0])
    return listing.require_folder(request.where, path, what)


def read(
    request: Request, *, space: str = "names", classes: str = "", ignore: Names = ()
) -> base.Source:
    """Lists <root>/<split>/<class>/**, or shards; labels follow the classes' names.

    `space` says what the class names are: "names" of their own, WordNet ids ("wnid"), or
    Geirhos' 16 ("entry16"). `classes` is a file with their names, a line each, for shards
    whose labels are numbers. `ignore` has patterns of files that are no images and may be
    passed over.
    """
    made = provenance(os.path.join(request.root, f"{request.part.base}.json"))
    return build_named(request, find_split(request, ignore), space, classes, **made)


def build_named(
    request: Request, found: listing.Listing, space: str, path: str = "", **about: Any
) -> base.Source:
    """Builds a source whose classes have names of a space; path: a file with them."""
    names = class_names(request.where, found, path)
    _check_space(request.where, names, space)
    return build(request, found._replace(classes=names), space=space, **about)


def class_names(where: str, found: listing.Listing, path: str) -> tuple[str, ...]:
    """Names the classes: the form's own, those of the file `path`, or numbers."""
    highest = int(found.labels.max())
    if isinstance(found.store, stores.FileStore) or not path:
        width = len(str(highest))
        return found.classes or tuple(f"{i:0{width}d}" for i in range(highest + 1))
    what = f"{where}: classes must be a file of names: "
    names = tuple(listing.text_lines(path, what))
    if highest >= len(names):
        must = f"{where}: {path} must have a line for each class"
        raise ValueError(f"{must}, got {len(names)} for labels up to {highest}")
    return names


def _check_space(where: str, classes: Names, space: str) -> None:
    base.check_choice(f"{where}: space", space, base.SPACES)
    forms = {"wnid": r"n\d{8}", "entry16": "|".join(labels.geirhos16())}
    form = forms.get(space, r".*")
    wrong = [name for name in classes if not re.fullmatch(form, name, re.DOTALL)]
    must = f"{where}: class folders must be of space {space!r}"
    remedy = "leave out space where classes have names of their own"
    base.refuse_some(wrong, must, "are not", remedy)


def provenance(path: str) -> dict[str, str]:
    """Note and citation of images that a command of ours made and noted beside them."""
    held, told = None, {"made_by", "source", "preprocessing", "cite"}
    if os.path.isfile(path):  # Maybe one of the user's own.
        with (
            opening.text(path) as file,
            contextlib.suppress(ValueError, RecursionError),
        ):
            held = json.load(file)
    if not isinstance(held, dict) or not told <= held.keys():
        return {}
    note = "made by {made_by} of {source}, {preprocessing}".format_map(held)
    return dict(note=note, cite=held["cite"])


def build(
    request: Request,
    found: listing.Listing,
    *,
    extra: Columns = MappingProxyType({}),
    values: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    **about: Any,
) -> base.Source:
    """Makes a source of a part of the listed files.

    extra: further columns of all files. values: names of columns' values. about: further
    fields of the source, as `Request.about` has them.
    """
    about = request.about(len(found.names), **about)
    listed = found.names, found.labels, found.classes
    index = listing.split_indices(request.where, *listed, request.part)
    found = found.take(index)
    columns = {name: column[index] for name, column in extra.items()}
    columns = {"label": found.labels, **columns}
    fingerprint = listing.digest(found)
    if values:  # A list of one's own may change, the files may not.
        fingerprint = listing.digest_columns(fingerprint, columns, values)
    about |= dict(classes=found.classes, columns=columns, values=dict(values))
    read = dict(store=found.store, transform=request.transform)
    return sources.EncodedSource(**read, fingerprint=fingerprint, **about)


def list_known(request: Request, classes: Names, ignore: Names) -> listing.Listing:
    """Lists a split of known classes, a folder each, which must all be there."""
    where, path = request.where, find_folder(request)
    listing.match_classes(where, listing.class_folders(where, path), classes)
    return listing.scan(where, path, classes, ignore)


def read_known(request: Request, *, ignore: Names = ()) -> base.Source:
    """Lists a set whose classes are known, such as each domain of PACS."""
    return build(request, list_known(request, tables.class_names(request.name), ignore))
