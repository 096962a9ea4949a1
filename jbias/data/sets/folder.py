"""Images by class, in folders as ImageNet is laid out or in shards; also users' own.

<root>/<split>/<class>/*.jpg          folders by class
<root>/<split>/*.tar, <root>/*<split>*.tar
                                      tar shards: WebDataset's, or class folders
<root>/[data/]*<split>*.parquet       Hugging Face's: an image and a label a row
<root>/*<split>*.array_record*        tf.train.Example records, as TFDS writes them
<root>/<name>[/<config>]/<version>/   the set "tfds": what TensorFlow Datasets prepared, by
                                      `tfds build <name> --file_format=array_record`;
                                      TFRecord cannot be read in any order

A split is one of these, or a part of every class in it: "train[:90%]" and "train[90%:]" are
disjoint and together "train". Which image falls where depends on its name alone. Every set
of image files is built here: `find_split` lists what is on disk, `build` makes a source.
"""

import dataclasses
import inspect
import json
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from jbias.data import base, decoding, labels, sources, tables
from jbias.data.forms import listing, shards
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
_SHARDS: Mapping[str, Callable] = {
    "tar": shards.read_tar,
    "parquet": shards.read_parquet,
    "array_record": shards.read_records,
}
_PLACES = ("", "data", "{split}")


class Request(NamedTuple):
    """What is asked of a set in files: a split or a part of it, its images of one size."""

    name: str  # The set's, or of a user's own that of its folder.
    split: str
    where: str  # For messages.
    root: str  # It is there.
    part: listing.Split
    transform: decoding.Preprocess
    spellings: tuple[str, ...] = ()  # Where else the split's folder may lie.
    cite: str = ""
    published: int | None = None  # Images of the split.


def spec(
    name: str,
    read: Callable[..., base.Source],
    splits: Collection[str] = (),
    *,
    size: int = 224,
    native: bool = False,
    squeezes: bool = True,
    own: bool = False,
    **row: Any,
) -> base.Spec:
    """The row of a set in files: `read(request, **options)` makes the source.

    size: pixels unless asked for others; native: all its images have one size; squeezes:
    it has the option `crop`; own: a user's own set, called by its folder. What the options
    `size`, `resize` and `crop` do is said by decoding.preprocess: resize=256 with size=224
    cuts the outer 12.5 % off, as BiasBed did.
    """

    def make(
        split: str,
        *,
        root: str,
        size: int = size,
        resize: int | None = None,
        crop: bool = True,
        **options: Any,
    ) -> base.Source:
        title = os.path.basename(os.path.abspath(root)) if own else name
        where = f"data.{name} {title}/{split}" if own else f"data.{name} {split}"
        root, part = listing.open_root(where, root, split)
        images = made.images
        request = Request(
            title,
            split,
            where,
            root,
            part,
            decoding.preprocess(size, resize, crop, native=native),
            tuple(made.folders.get(part.base, ())),
            made.cite,
            images.get(part.base) if isinstance(images, Mapping) else images or None,
        )
        return read(request, **options)

    *shared, _ = inspect.signature(make).parameters.values()
    asked = [*inspect.signature(read).parameters.values()][1:]
    shared = shared if squeezes else shared[:-1]
    make.__signature__ = inspect.Signature([*shared, *asked])
    made = base.spec(name, make, splits, **row)
    return made


def find_split(request: Request, ignore: Sequence[str] = ()) -> Listing:
    """Finds a split by its name, or by the first of its spellings there is.

    Raises ValueError, with what lies nearest, where no form is found.
    """
    where, root = request.where, request.root
    for name in (request.part.base, *request.spellings):
        path = os.path.join(root, name)
        # Archives are often left beside what was unpacked from them.
        if os.path.isdir(path) and listing.has_folders(path):
            return _folder(where, path, ignore)
        for form, read in _SHARDS.items():
            shards = _shards(root, name, form)
            if shards:
                _complete(where, shards)
                return _sorted(where, Listing(form, *read(where, shards)))
    path = os.path.join(root, request.part.base)
    path = listing.require_folder(where, path, f"split {request.split!r}")
    return _folder(where, path, ignore)


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


def read(
    request: Request,
    *,
    space: str = "names",
    classes: str = "",
    ignore: Sequence[str] = (),
) -> sources.EncodedSource:
    """Lists <root>/<split>/<class>/**, or shards; labels follow the classes' names.

    `space` says what the class names are: "names" of their own, WordNet ids ("wnid"), or
    Geirhos' 16 ("entry16"). `classes` is a file with their names, a line each, for shards
    whose labels are numbers. `ignore` has patterns of files that are no images and may be
    passed over.
    """
    found = find_split(request, ignore)
    names = class_names(request.where, found, classes)
    _check_space(request.where, names, space)
    source = build(request, found._replace(classes=names), space=space)
    made = os.path.join(request.root, request.part.base) + ".json"
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


def find_folder(request: Request) -> str:
    """Finds the folder of a split: its name, or the first of its spellings there is."""
    names = (request.part.base, *request.spellings)
    paths = [os.path.join(request.root, name) for name in names]
    path = next(filter(os.path.isdir, paths), paths[0])
    return listing.require_folder(request.where, path, f"split {names[0]!r}")


def build(
    request: Request,
    found: Listing,
    *,
    extra: Mapping[str, Int[np.ndarray, "n"]] | None = None,
    space: str = "names",
    measures: tuple[str, ...] = ("accuracy",),
    note: str = "",
    values: Mapping[str, tuple[str, ...]] | None = None,
) -> sources.EncodedSource:
    """Makes a source of a part of the listed files.

    `extra` has further columns of all files. A whole set of another size than the
    published is used as it is, and the source's note says so.
    """
    n, classes = len(found.files.names), found.classes
    index = listing.split_indices(request.where, found.files, classes, request.part)
    found = found.take(index)
    columns = {"label": found.files.labels}
    columns |= {name: column[index] for name, column in (extra or {}).items()}
    fingerprint = listing.digest(found.files, classes)
    if values:  # A list of one's own may change, the files may not.
        fingerprint = listing.digest_columns(fingerprint, columns, values)
    return sources.EncodedSource(
        store=found.store,
        name=f"{request.name}/{request.split}",
        transform=request.transform,
        classes=classes,
        columns=columns,
        values=values or {},
        space=space,
        measures=measures,
        fingerprint=fingerprint,
        note=note or listing.count_note(n, request.published),
        cite=request.cite,
    )


def read_known(
    classes: tuple[str, ...],
    *,
    space: str = "names",
    further: Callable[[str, str, listing.Files], dict[str, Any]] = lambda *_: {},
) -> Callable[..., sources.EncodedSource]:
    """Makes the function that lists a set of known classes, a folder each.

    `further` gives more of what `build` takes, of where, split and files.
    """

    def read(request: Request, *, ignore: Sequence[str] = ()) -> sources.EncodedSource:
        where, path = request.where, find_folder(request)
        listing.match_classes(where, listing.class_folders(where, path), classes)
        files = listing.scan(where, path, {one: one for one in classes}, ignore)
        found = in_folder(path, files, classes)
        more = further(where, request.part.base, files)
        return build(request, found, space=space, **more)

    return read


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


SPEC = spec("folder", read, own=True)
# The same classes in several domains, a folder each.
DOMAIN_SPECS: Mapping[str, base.Spec] = {
    name: spec(name, read_known(tables.class_names(name)), native=native)
    for name, native in {"pacs": True, "office_home": False}.items()
}


_VERSION = re.compile(r"\d+\.\d+\.\d+")


def read_tfds(
    request: Request, *, builder: str, space: str = "names"
) -> sources.EncodedSource:
    """Reads a split of a set, such as builder="imagenet_v2/matched-frequency".

    A builder without a version takes the latest. Labels are named as TFDS names them.
    """
    where = f"data.tfds {builder} {request.split}"
    path = os.path.join(request.root, builder)
    path = _version(where, listing.require_folder(where, path, "builder"))
    cite = _citation(path) or tables.cite("folder")
    return read(
        request._replace(name=builder, root=path, where=where, cite=cite), space=space
    )


def _version(where: str, path: str) -> str:
    """The folder of the latest version below a set's own."""
    if os.path.isfile(os.path.join(path, "dataset_info.json")):
        return _readable(where, path)
    there = [name for name in os.listdir(path) if _VERSION.fullmatch(name)]
    if not there:
        configs = sorted(
            n for n in os.listdir(path) if os.path.isdir(os.path.join(path, n))
        )
        raise ValueError(
            f"{where}: {path!r} must have a folder for each version, got"
            f" {', '.join(configs) or 'none'}; a config belongs to the builder:"
            " builder='<set>/<config>'"
        )
    latest = max(there, key=lambda name: [int(part) for part in name.split(".")])
    return _readable(where, os.path.join(path, latest))


def _readable(where: str, path: str) -> str:
    if any(".tfrecord" in name for name in os.listdir(path)):
        raise ValueError(
            f"{where}: {path!r} must be in ArrayRecord or Parquet, got TFRecord, which"
            " has no random access; make it anew: tfds build <name>"
            " --file_format=array_record"
        )
    return path


def _citation(path: str) -> str:
    """The set's citation on one line, if its files have one."""
    try:
        with open(os.path.join(path, "dataset_info.json"), encoding="utf-8") as file:
            return " ".join(json.load(file).get("citation", "").split())
    except (OSError, ValueError, AttributeError, RecursionError):
        return ""


TFDS_SPEC = spec("tfds", read_tfds)
