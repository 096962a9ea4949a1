"""The files of one split of a data set: `SplitFiles`, from which readers make a source.

<root>/<split>/<class>/*.jpg          folders by class
<root>/<split>/*.tar, <root>/*<split>*.tar
                                      tar shards: WebDataset's, or class folders
<root>/[data/]*<split>*.parquet       Hugging Face's: an image and a label a row
<root>/*<split>*.array_record*        tf.train.Example records, as TFDS writes them

A split is all images of such a folder or of such shards, or a part of every class:
"train[:90%]" and "train[90%:]" are disjoint and together "train". Whether an image is in a part
depends only on its name. Every data set in files is built here: `find` lists the image files of
a whole split, `build` makes the source of a part of them; `build_labelled` does both for images
whose classes a reader names; `build_arrays` makes the source of a part of the images in an array.
"""

import contextlib
import dataclasses
import json
import os
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from jbias import errors
from jbias.data import base, class_maps, decoding, sources
from jbias.data.base import Column, Columns, Names
from jbias.data.forms import listing, shards, stores
from jbias.runtime import messages
from jbias.untrusted import opening


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitFiles:
    """The files of a split or of a part of it, below a root folder, and their preprocessing.

    A reader, read(files, *, option=...), returns the source: for class folders or shards
    `files.build(files.find())`, for other folders `files.build_labelled(folder, {name: class})`,
    for arrays `files.build_arrays(images, ...)`.
    """

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

    def find_folder(self) -> str:
        """Return the path of the split's folder: the first of `folders` that exists.

        Raises ValueError, with the nearest folder, if no folder exists.
        """
        paths, role = [*self.folders.values()], f"split {self.part.base!r}"
        path = next(filter(os.path.isdir, paths), paths[0])
        return listing.require_folder(self.where, path, role)

    def find(self, ignore: Names = ()) -> listing.Listing:
        """Return the listing of the whole split in class folders or in shards.

        Names are tried in order: the split's name, then `spellings`; for each name, class
        folders have precedence over shards. Images are sorted by class, then by name. ignore:
        patterns of files to skip, for folders.
        base.Missing, with the nearest folder, if the split has no folders and no shards;
        ValueError also for incomplete shards and for shards of several series.
        """
        where, root = self.where, self.root
        for name, path in self.folders.items():
            # Folders go before shards: archives are often left beside the unpacked folders.
            if os.path.isdir(path) and listing.has_folders(path):
                return listing.scan_split(where, path, ignore)
            for form, read_shards in shards.FORMS.items():
                paths = _find_shards(where, root, split=name, form=form)
                if paths:
                    _check_complete(where, paths)
                    return _sorted(where, read_shards(where, paths))
        path, *_ = self.folders.values()
        path = listing.require_folder(where, path, f"split {self.split!r}")
        return listing.scan_split(where, path, ignore)

    def find_shards(self, form: str) -> list[str]:
        """Return the sorted paths of the split's shards; [] if there are none.

        form: a key of shards.FORMS, such as "parquet". The split's name is tried first, then
        `spellings`. ValueError for incomplete shards and for shards of several series.
        """
        for name in self.folders:
            paths = _find_shards(self.where, self.root, split=name, form=form)
            if paths:
                _check_complete(self.where, paths)
                return paths
        return []

    def find_flat(self, ignore: Names = ()) -> listing.Listing:
        """Return the listing of all images below the split's folder, at any depth, with label 0.

        Names begin with the folder's name. ignore: patterns of files to skip. base.Missing
        without the folder.
        """
        parent, name = os.path.split(os.path.abspath(self.find_folder()))
        return listing.scan(self.where, parent, classes=(name,), ignore=ignore)

    def find_classes(self, classes: Names, ignore: Names = ()) -> listing.Listing:
        """Return the listing of the whole split in class folders with the names `classes`.

        ignore: patterns of files to skip. ValueError for other class folders.
        """
        where, path = self.where, self.find_folder()
        listing.match_classes(where, listing.class_folders(where, path), classes)
        return listing.scan(where, path, classes, ignore)

    def build(
        self,
        images: listing.Listing,
        *,
        extra: Columns = MappingProxyType({}),
        values: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
        **fields: Any,
    ) -> base.Source:
        """Return the source of the part, from the listing of the whole split.

        images: must have class names. extra: further columns of all images. values: {column:
        names of its values}. fields: further fields of the source, such as measures; see
        `_source_fields`. ValueError if a class has no image in the part.
        """
        fields = self._source_fields(len(images.names), **fields)
        index = listing.split_indices(
            self.where,
            images.names,
            labels=images.labels,
            classes=images.classes,
            split=self.part,
        )
        images = images.take(index)
        columns = {name: column[index] for name, column in extra.items()}
        columns = {"label": images.labels, **columns}
        fingerprint = listing.digest(images)
        if values:  # A user's table of attributes may change while the files do not.
            fingerprint = listing.digest_columns(fingerprint, columns, values)
        return sources.EncodedSource(
            store=images.store,
            transform=self.transform,
            classes=images.classes,
            columns=columns,
            values=dict(values),
            fingerprint=fingerprint,
            **fields,
        )

    def build_named(
        self, images: listing.Listing, *, space: str, path: str = "", **fields: Any
    ) -> base.Source:
        """Return the source of the part with class names from folders, shards or a file.

        images: images of the whole split. space: label space of the class names, see
        folder.read; ValueError if a name is not of this space. path: a file of class names, see
        `class_names`. fields: further fields of the source.
        """
        names = class_names(self.where, images, path)
        _check_space(self.where, names, space)
        return self.build(images._replace(classes=names), space=space, **fields)

    def build_labelled(
        self,
        folder: str,
        class_by_name: Mapping[str, str],
        *,
        extra: Columns = MappingProxyType({}),
        **fields: Any,
    ) -> base.Source:
        """Return the source of the part, from the class of each image file of the whole split.

        Classes are sorted by name, images by class, then by name, as in class folders.
        class_by_name: {path of a file below `folder`, with slashes: name of its class}. extra:
        further columns, in the order of `class_by_name`. fields: see `build`. base.Missing
        without images; ValueError for a file that is not below `folder`, for a name that
        listing.check_names refuses, and if a class has no image in the part.
        """
        where = self.where
        if not class_by_name:
            raise base.Missing(f"{where}: {folder!r} must have images, got none")
        errors.refuse_some(
            [
                name
                for name in class_by_name
                if not listing.is_below(folder, name)
                or not os.path.isfile(os.path.join(folder, name))
            ],
            f"{where}: every image must be a file below {folder!r}",
            which="are not",
            remedy="add or leave out what is missing",
        )
        names = listing.check_names(where, [*class_by_name])
        classes = sorted(set(class_by_name.values()))
        label_by_class = {name: label for label, name in enumerate(classes)}
        labels = [label_by_class[name] for name in class_by_name.values()]
        images = listing.in_folder(
            folder, [*class_by_name], labels=labels, classes=classes
        )
        order = np.lexsort((names, labels))
        columns = {name: column[order] for name, column in extra.items()}
        return self.build(images.take(order), extra=columns, **fields)

    def build_arrays(
        self,
        images: UInt8[np.ndarray, "n h w *c"],
        labels: Column,
        classes: Names,
        *,
        columns: Columns = MappingProxyType({}),
        steps_before: str = "",
        **fields: Any,
    ) -> sources.ArraySource:
        """Return the source of the part, from the images of the whole split in an array.

        The part is selected, then resized.
        images: grey images (n h w) are repeated in three channels. labels: indices into
        `classes`. columns: further columns of all images. steps_before: earlier preprocessing,
        in words that end in "; ". fields: further fields of the source, see `_source_fields`.
        ValueError for images of a wrong shape or type, for labels beyond the classes, and if a
        class has no image in the part.
        """
        where, transform, n = self.where, self.transform, len(images)
        if images.dtype != np.uint8 or images.ndim != 3 and images.shape[3:] != (3,):
            must = f"{where}: images must be uint8 (n, h, w) or (n, h, w, 3)"
            raise ValueError(f"{must}, got {messages.describe_array(images)}")
        labels = _check_labels(where, labels, n=n, k=len(classes))
        index = listing.split_indices(
            where,
            listing.number_names(n),
            labels=labels,
            classes=classes,
            split=self.part,
        )
        images, labels = images[index], labels[index]
        if images.ndim == 3:
            images = np.repeat(images[..., None], 3, -1)
        fields = self._source_fields(n, **fields)
        fields["columns"] = {
            "label": labels,
            **{name: column[index] for name, column in columns.items()},
        }
        fields["fingerprint"] = listing.digest_arrays(images, labels, classes)
        fields["preprocessing"] = f"{steps_before}{transform.description}"
        with base.explain_errors(f"{where}: images ", ValueError):
            images = _resized(images, transform)
        return sources.ArraySource(images=images, classes=tuple(classes), **fields)

    def _source_fields(self, n: int, note: str = "", **more: Any) -> dict[str, Any]:
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


_PLACES = ("", "data", "{split}")


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

    space: "names" (any name) or another of base.SPACES; else ValueError. where: start of error
    messages.
    """
    errors.check_choice(where, space, base.SPACES, name="space")
    if space in base.GROUPED_SPACES:
        known = class_maps.members(space)
        wrong = [name for name in classes if name not in known]
    else:
        pattern = r"n\d{8}" if space == "wnid" else r".*"
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


def _resized(
    images: UInt8[np.ndarray, "n h w 3"], transform: decoding.Preprocess
) -> UInt8[np.ndarray, "n size size 3"]:
    """Return the images preprocessed by `transform`, without a copy if no resize is needed."""
    if images.shape[1:3] == (transform.size, transform.size) == (transform.short,) * 2:
        return images
    return np.stack([np.asarray(transform(Image.fromarray(image))) for image in images])


def _check_labels(where: str, labels: np.ndarray, *, n: int, k: int) -> Column:
    """Return labels as int32; ValueError unless they are n integers from 0 to k - 1.

    where: start of error messages.
    """
    labels = np.asarray(labels)
    are_integers = labels.shape == (n,) and np.issubdtype(labels.dtype, np.integer)
    if not are_integers or (n and not 0 <= labels.min() <= labels.max() < k):
        span = f" of {labels.min()} to {labels.max()}" if are_integers and n else ""
        must = f"{where}: labels must be {n} whole numbers"
        must += f" from 0 to {k - 1}" if k else ""
        raise ValueError(f"{must}, got {messages.describe_array(labels)}{span}")
    return labels.astype(np.int32)
