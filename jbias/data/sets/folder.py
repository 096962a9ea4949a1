"""Reader of images in class folders (ImageNet's layout) or shards, also of users' own images.

<root>/<split>/<class>/*.jpg          folders by class
<root>/<split>/*.tar, <root>/*<split>*.tar
                                      tar shards: WebDataset's, or class folders
<root>/[data/]*<split>*.parquet       Hugging Face's: an image and a label a row
<root>/*<split>*.array_record*        tf.train.Example records, as TFDS writes them

A split is all images of such a folder or of such shards, or a part of every class:
"train[:90%]" and "train[90%:]" are disjoint and together "train". Whether an image is in a part
depends only on its name. Every data set of image files is built here: `find_split` lists the
files on disk, `build` makes a source.
"""

import contextlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from jbias import errors
from jbias.data import base, decoding, labels, sources, tables
from jbias.data.base import Columns, Names
from jbias.data.forms import listing, shards, stores
from jbias.untrusted import opening


class Request(NamedTuple):
    """A request for a split of a data set in files, or a part of the split, with preprocessing."""

    name: str  # Name of the data set; for a user's own images, name of their folder.
    split: str  # Such as "train[:90%]".
    where: str  # Start of error messages.
    root: str  # An existing folder.
    part: listing.Split  # `split`, parsed.
    transform: decoding.Preprocess
    spellings: Names = ()  # Further names of the split's folder.
    cite: str = ""
    published: int | None = None  # Number of images of the whole split, as published.

    @property
    def folders(self) -> dict[str, str]:
        """{name: path} of the folders in which the split may be: its name, then `spellings`."""
        names = (self.part.base, *self.spellings)
        return {name: os.path.join(self.root, name) for name in names}

    def source_fields(self, n: int, note: str = "", **more: Any) -> dict[str, Any]:
        """Return {"name", "cite", "note": text} of a base.Source, and the fields in `more`.

        n: number of images of the whole split on disk. note: "" is replaced by
        listing.count_note, which says if n is not the published number.
        """
        note = note or listing.count_note(n, self.published)
        return {
            "name": f"{self.name}/{self.split}",
            "cite": self.cite,
            "note": note,
            **more,
        }


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
    """Return the request for a split of a data set of tables/data_sets.json below `root`.

    name: key of tables/data_sets.json. split: "train" or "train[:90%]".
    size, resize, crop, fit, interpolation, fill: see decoding.preprocess; default size: the
    published one, else 224. For example, resize=256 with size=224 cuts off the outer 12.5 %,
    as BiasBed did. folders: {split: further names of its folder}.
    ValueError for wrong options, base.Missing if `root` does not exist.
    """
    row = tables.data_sets()[name]
    is_users, images = row.get("own"), row.get("images")
    title = os.path.basename(os.path.abspath(root)) if is_users else name
    where = f"data.{name} {title}/{split}" if is_users else f"data.{name} {split}"
    parsed_split = listing.parse_split(where, split)
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
    return Request(
        name=title,
        split=split,
        where=where,
        root=root,
        part=parsed_split,
        transform=transform,
        spellings=(folders or row.get("folders", {})).get(parsed_split.base, ()),
        cite=row["cite"],
        published=images.get(parsed_split.base)
        if isinstance(images, Mapping)
        else images,
    )


_PLACES = ("", "data", "{split}")


def find_split(request: Request, ignore: Names = ()) -> listing.Listing:
    """Return the listing of a whole split in class folders or in shards.

    Names are tried in order: the split's name, then request.spellings; for each name, class folders
    have precedence over shards. Images
    are sorted by class, then by name. ignore: patterns of files to skip, for folders.
    base.Missing, with the nearest folder, if the split has no folders and no shards;
    ValueError also for incomplete shards and for shards of several series.
    """
    where, root = request.where, request.root
    for name, path in request.folders.items():
        # Folders go before shards: archives are often left beside the unpacked folders.
        if os.path.isdir(path) and listing.has_folders(path):
            return listing.scan_split(where, path, ignore)
        for form, read_shards in shards.FORMS.items():
            paths = _find_shards(where, root, split=name, form=form)
            if paths:
                _check_complete(where, paths)
                return _sorted(where, read_shards(where, paths))
    path, *_ = request.folders.values()
    path = listing.require_folder(where, path, f"split {request.split!r}")
    return listing.scan_split(where, path, ignore)


def _sorted(where: str, images: listing.Listing) -> listing.Listing:
    """Return the listing sorted as class folders are: by class, then by name.

    Raises ValueError if a label is not the number of a class.
    where: start of error messages.
    """
    lowest, highest = images.labels.min(), images.labels.max()
    if lowest < 0 or (images.classes and highest >= len(images.classes)):
        last = len(images.classes) - 1 if images.classes else "k - 1"
        must = f"{where}: labels must be 0 to {last}, got {lowest} to {highest}"
        raise ValueError(f"{must}; name the right classes")
    return images.take(np.lexsort((np.array(images.names), images.labels)))


def _find_shards(where: str, root: str, *, split: str, form: str) -> list[str]:
    """Return the sorted paths of a split's shards; [] if there are none.

    Shards have the split as a word in their name, or are in the split's own folder. Of
    "test-0.tar" and "test_small-0.tar" only the first belongs to "test". Raises ValueError
    if the names have different further words, so that the user must choose.

    form: a key of shards.FORMS. where: start of error messages.
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
            extra_words = {name: _words(stem) for name, stem in stems.items()}
            names = [name for name in names if not extra_words[name]] or names
            differing = [
                name for name in names if extra_words[name] != extra_words[names[0]]
            ]
            if differing:
                must = f"{where}: shards of {split!r} must be of one series"
                got = f"got {names[0]!r} and {differing[0]!r} in {folder!r}"
                remedy = f"move those that are meant into a folder {split!r}"
                raise ValueError(f"{must}, {got}; {remedy}")
        if names:
            return [os.path.join(folder, name) for name in names]
    return []


def _words(name: str) -> list[str]:
    """Return the words of a shard's name, in lower case, without numbers, digests and "of"."""
    words = re.split(r"[^a-z0-9]+", re.sub(r"(?i)[0-9a-f]{8,}|\d+", "", name).lower())
    return [word for word in words if word not in ("", "of")]


def _check_complete(where: str, paths: Names) -> None:
    """Raise ValueError if a shard is no file, or if shards named "<i>-of-<n>" are incomplete.

    Shards are incomplete if there are not n numbers i, or if n differs. Nothing is counted if
    some shards have other names. paths: paths of all shards of a split. where: start of error
    messages.
    """
    for path in paths:
        opening.require_regular(path)
    matches = [re.search(r"(\d+)-of-(\d+)", os.path.basename(path)) for path in paths]
    if not all(matches):
        return
    numbers = {int(match[1]) for match in matches}
    totals = {int(match[2]) for match in matches}
    total = max(totals)
    if len(totals) > 1 or len(numbers) != total:  # Numbers start at 0 or at 1.
        first = min({*range(total)} - numbers, default=None)
        must = f"{where}: all shards must be there"
        got = f"got {len(numbers)} of {total} in {os.path.dirname(paths[0])!r}"
        raise ValueError(f"{must}, {got}, the first missing is number {first}; copy it")


def find_folder(request: Request) -> str:
    """Return the path of a split's folder: the first of request.folders that exists.

    Raises ValueError, with the nearest folder, if no folder exists.
    """
    paths, role = [*request.folders.values()], f"split {request.part.base!r}"
    path = next(filter(os.path.isdir, paths), paths[0])
    return listing.require_folder(request.where, path, role)


def read(
    request: Request, *, space: str = "names", classes: str = "", ignore: Names = ()
) -> base.Source:
    """Return the source of a split in class folders, <root>/<split>/<class>/**, or in shards.

    space: the kind of class names: "names" of their own, WordNet ids ("wnid"), or Geirhos'
      16 ("entry16").
    classes: a file with a class name per line, for shards whose labels are numbers.
    ignore: patterns of files to skip.
    ValueError, also base.Missing, if the split does not exist or is invalid.
    """
    recorded_fields = provenance(
        os.path.join(request.root, f"{request.part.base}.json")
    )
    images = find_split(request, ignore)
    return build_named(request, images, space=space, path=classes, **recorded_fields)


def build_named(
    request: Request,
    images: listing.Listing,
    *,
    space: str,
    path: str = "",
    **fields: Any,
) -> base.Source:
    """Return the source of a request with class names from folders, shards or a file.

    images: images of the whole split. space: label space of the class names, see `read`;
    ValueError if a name is not of this space. path: a file of class names, see `class_names`.
    fields: further fields of the source.
    """
    names = class_names(request.where, images, path)
    _check_space(request.where, names, space)
    return build(request, images._replace(classes=names), space=space, **fields)


def class_names(where: str, images: listing.Listing, path: str) -> tuple[str, ...]:
    """Return the class names, from the first available of folders, `path`, shards and numbers.

    Numbers are padded to equal lengths: "00", "01", ... images: images of the whole split.
    path: a file with a name per line, for shards; "" for none. ValueError if the file has too
    few names. where: start of error messages.
    """
    highest = int(images.labels.max())
    if isinstance(images.store, stores.FileStore) or not path:
        width = len(str(highest))
        return images.classes or tuple(f"{i:0{width}d}" for i in range(highest + 1))
    start = f"{where}: classes must be a file of names: "
    names = tuple(listing.text_lines(path, start))
    if highest >= len(names):
        must = f"{where}: {path} must have a line for each class"
        raise ValueError(f"{must}, got {len(names)} for labels up to {highest}")
    return names


def _check_space(where: str, classes: Names, space: str) -> None:
    """Raise ValueError unless all class names are of the label space.

    space: "names" (any name), "wnid" or "entry16"; else ValueError. where: start of error
    messages.
    """
    errors.check_choice(where, space, base.SPACES, name="space")
    patterns = {"wnid": r"n\d{8}", "entry16": "|".join(labels.geirhos16())}
    pattern = patterns.get(space, r".*")
    wrong = [name for name in classes if not re.fullmatch(pattern, name, re.DOTALL)]
    must = f"{where}: class folders must be of space {space!r}"
    remedy = "leave out space where classes have names of their own"
    errors.refuse_some(wrong, must, which="are not", remedy=remedy)


def provenance(path: str) -> dict[str, str]:
    """Return {"note", "cite": text} of images that a `jbias prepare` command made.

    path: the JSON file that the command writes next to the images. {} if there is no such
    file, or if the file lacks entries that a command writes.
    """
    entry = None
    if os.path.isfile(path):
        with (
            opening.open_text(path) as file,
            contextlib.suppress(ValueError, RecursionError),
        ):
            entry = json.load(file)
    required = {"made_by", "source", "preprocessing", "cite"}
    if not isinstance(entry, dict) or not required <= entry.keys():
        return {}
    note = "made by {made_by} of {source}, {preprocessing}".format_map(entry)
    return {"note": note, "cite": entry["cite"]}


def build(
    request: Request,
    images: listing.Listing,
    *,
    extra: Columns = MappingProxyType({}),
    values: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    **fields: Any,
) -> base.Source:
    """Return the source of a request, from the listing of the whole split.

    images: must have class names. extra: further columns of all images. values: {column: names
    of its values}. fields: further fields of the source, such as measures; see
    `Request.source_fields`. ValueError if a class has no image in the requested part.
    """
    fields = request.source_fields(len(images.names), **fields)
    index = listing.split_indices(
        request.where,
        images.names,
        labels=images.labels,
        classes=images.classes,
        split=request.part,
    )
    images = images.take(index)
    columns = {name: column[index] for name, column in extra.items()}
    columns = {"label": images.labels, **columns}
    fingerprint = listing.digest(images)
    if values:  # A user's table of attributes may change while the files do not.
        fingerprint = listing.digest_columns(fingerprint, columns, values)
    return sources.EncodedSource(
        store=images.store,
        transform=request.transform,
        classes=images.classes,
        columns=columns,
        values=dict(values),
        fingerprint=fingerprint,
        **fields,
    )


def list_known(request: Request, classes: Names, ignore: Names) -> listing.Listing:
    """Return the listing of a split; ValueError unless its class folders are `classes`.

    ignore: patterns of files to skip.
    """
    where, path = request.where, find_folder(request)
    listing.match_classes(where, listing.class_folders(where, path), classes)
    return listing.scan(where, path, classes, ignore)


def read_known(request: Request, *, ignore: Names = ()) -> base.Source:
    """Return the source of a split of a data set with published classes, such as PACS.

    ignore: patterns of files to skip. ValueError if the class folders differ from the published
    classes.
    """
    classes = tables.class_names(request.name)
    return build(request, list_known(request, classes, ignore))
