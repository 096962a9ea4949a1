"""Listings of the images of a split: files by class, parts of a split, and digests."""

import fnmatch
import fractions
import hashlib
import os
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from jbias import errors
from jbias.data import base
from jbias.data.base import Column, Columns, Names
from jbias.data.forms import stores
from jbias.untrusted import opening

JUNK = (
    "thumbs.db",
    "desktop.ini",
    "__macosx",
    "@eadir",
)  # System files, ignored like hidden files.

_MAX_LETTERS = 4096  # Of a name; file systems allow no longer path.
_SURROGATE = re.compile(
    "[\ud800-\udfff]"
)  # Python's characters for bytes not in UTF-8.
_PERCENT = r"(?:(\d+(?:\.\d+)?)%)?"
_PART = re.compile(rf"(?P<base>[^\[\]]+)(?:\[{_PERCENT}:{_PERCENT}\])?")


class Listing(NamedTuple):
    """All images of a split: their store, names, byte lengths and labels.

    labels: 0 to k - 1, indices in `classes`. classes: None for shards without class names; the
    data set then defines the meaning of the labels.
    """

    store: stores.Store
    names: tuple[str, ...]  # Paths relative to the split, with slashes.
    lengths: Column  # In bytes.
    labels: Column
    classes: tuple[str, ...] | None

    def take(self, index: Int[np.ndarray, "m"]) -> "Listing":
        """Return a listing of the images at `index`, in that order."""
        return Listing(
            store=self.store.take(index),
            names=tuple(self.names[i] for i in index),
            lengths=self.lengths[index],
            labels=self.labels[index],
            classes=self.classes,
        )

    def by_class(self, labels: Column, classes: Names) -> "Listing":
        """Return a listing with the given labels and class names, sorted by label."""
        relabelled = self._replace(labels=labels, classes=tuple(classes))
        return relabelled.take(np.argsort(labels, kind="stable"))


class Split(NamedTuple):
    """The name of a split, and the part of every class from `start` to `stop` percent."""

    base: str  # Name of the whole split.
    start: fractions.Fraction
    stop: fractions.Fraction


def parse_split(where: str, split: str) -> Split:
    """Return the Split for "photo", "photo[:90%]", "photo[90%:]" or "photo[10%:90%]".

    ValueError for text of a different form, and unless 0 <= start < stop <= 100 percent. where:
    start of error messages.
    """
    match = _PART.fullmatch(split)
    start_text, stop_text = "0", "0"
    if match:
        start_text, stop_text = match[2] or "0", match[3] or "100"
    start, stop = fractions.Fraction(start_text), fractions.Fraction(stop_text)
    if not match or not 0 <= start < stop <= 100:
        must = "split must read 'name' or 'name[10%:90%]' with rising percents"
        raise ValueError(f"{where}: {must} up to 100, got {split!r}")
    return Split(match["base"], start, stop)


def require_folder(where: str, path: str, role: str) -> str:
    """Return `path` unchanged; base.Missing, a ValueError, if this folder does not exist.

    ValueError also if `path` is a file or an address such as "gs://bucket".
    role: name of the folder in the message, such as "root". where: start of error messages.
    """
    if os.path.isdir(path):
        return path
    must = f"{where}: {role} must be"
    if re.match(r"[a-z0-9]+://", path):
        must = f"{must} on a local or mounted disk, got {path!r}"
        raise ValueError(f"{must}; copy it or mount the bucket")
    if os.path.exists(path):
        raise ValueError(f"{must} a folder, got the file {path!r}; unpack it")
    if os.path.islink(path):
        got = f"{path!r}, a link to {os.readlink(path)!r}, which is not there"
        raise base.Missing(f"{must} an existing folder, got {got}")
    parent, name = os.path.split(os.path.abspath(path))
    while not os.path.isdir(parent):
        parent, name = os.path.split(parent)
    known = [entry.name for entry in _entries(parent) if entry.is_dir()]
    if os.path.dirname(parent) == parent:
        known = []  # Folders at the root of the file system are no useful hint.
    candidates = (os.path.join(parent, folder, name) for folder in known)
    inner = next(filter(os.path.isdir, candidates), "")
    suggestion = errors.suggest(name, known)
    hint = suggestion[0].lower() + suggestion[1:] if known else "nor any like it"
    if os.path.basename(parent) == name and has_folders(parent):
        hint = f"{parent!r} seems to be it: give the folder above"
    elif inner:
        hint = f"did you mean {inner!r}?"
    must = f"{must} an existing folder, got {path!r}"
    raise base.Missing(f"{must}; no {name!r} in {parent!r}, {hint}")


def has_folders(folder: str) -> bool:
    """Return True if a folder has visible folders in it."""
    return any(entry.is_dir() for entry in _entries(folder))


def class_folders(where: str, folder: str) -> tuple[str, ...]:
    """Return the sorted names of a split's class folders.

    folder: folder of the split. ValueError if `folder` also has images, base.Missing if it has
    no folders. where: start of error messages.
    """
    entries = _entries(folder)
    classes = tuple(entry.name for entry in entries if entry.is_dir())
    stray = [e.name for e in entries if not e.is_dir() and is_image(e.name)]
    errors.refuse_some(
        stray,
        f"{where}: images must lie in class folders",
        which=f"lie directly in {folder!r}",
        remedy=f"move them into {folder!r}/<class>/",
    )
    if not classes:
        must = f"{where}: a split must have a folder for each class"
        got = f"got none in {folder!r}"
        raise base.Missing(f"{must}, {got}; the layout is <root>/<split>/<class>/*.jpg")
    return classes


def scan(
    where: str, folder: str, classes: Names, ignore: Names = (), below: str = "{}"
) -> Listing:
    """Return the listing of the images below the folder of each class, at any depth.

    Images are sorted by class, in the order of `classes`, then by path. folder: folder of the
    split. below: path of a class's folder in `folder`, with "{}" for the class name. ignore:
    patterns of files to skip; an image is skipped only by a pattern with the ending of an image
    ("*.gif"). Hidden and system files (Thumbs.db, __MACOSX) are always skipped. ValueError for
    files that are neither images nor skipped, for a class without images, for a name that
    `check_names` refuses, and for a file linked under one name into two classes. where: start
    of error messages.
    """
    files, other_files = [], []
    image_patterns = [pattern for pattern in ignore if is_image(pattern)]
    for label, name in enumerate(classes):
        for file in _walk(folder, below.format(name), ()):
            patterns = image_patterns if is_image(file.name) else ignore
            if any(fnmatch.fnmatch(file.name, pattern) for pattern in patterns):
                continue
            if is_image(file.name):
                files.append((file, label))
            else:
                other_files.append(file.name)
    suffixes = " ".join(opening.SUFFIXES)
    errors.refuse_some(
        other_files,
        f"{where}: class folders must hold images ({suffixes}) only",
        which=f"other files lie in {folder!r}",
        remedy="move them away, or let a config name them: ignore=('*.txt',)",
    )
    present = {label for _, label in files}
    errors.refuse_some(
        [name for label, name in enumerate(classes) if label not in present],
        f"{where}: every class must have images",
        which=f"of {len(classes)} in {folder!r} have none",
        remedy="fill or remove it",
    )
    names = tuple(file.name for file, _ in files)
    labels = tuple(label for _, label in files)
    inodes = [file.inode for file, _ in files]
    check_names(where, names)
    _refuse_links_across_classes(
        where, folder, names=names, labels=labels, inodes=inodes
    )
    lengths = [file.length for file, _ in files]
    return in_folder(folder, names, lengths=lengths, labels=labels, classes=classes)


_NO_INODE = (0, 2**32 - 1)  # The inode of files in file systems without inodes.


def _refuse_links_across_classes(
    where: str,
    folder: str,
    *,
    names: Names,
    labels: Sequence[int],
    inodes: Sequence[int],
) -> None:
    """Raise ValueError if a file is linked, under one name, into two class folders.

    Files of file systems without inodes are not checked. names, labels, inodes: name, label and
    inode of each image below `folder`. where: start of error messages.
    """
    _, group, count = np.unique(
        np.array(inodes, np.uint64), return_inverse=True, return_counts=True
    )
    first_index: dict[tuple[int, str], int] = {}
    for i in np.flatnonzero(count[group] > 1):
        first = first_index.setdefault((inodes[i], os.path.basename(names[i])), i)
        if labels[first] == labels[i] or inodes[i] in _NO_INODE:
            continue
        first_path, path = (os.path.join(folder, names[k]) for k in (first, i))
        if os.path.samefile(first_path, path):
            must = f"{where}: an image must be of one class"
            got = f"got {names[first]!r} and {names[i]!r}, which are one file"
            raise ValueError(f"{must}, {got}; remove one of the two links")


def scan_split(where: str, folder: str, ignore: Names) -> Listing:
    """Return the listing of the images below all class folders of a split.

    folder: folder of the split. ignore, errors: see `scan`. where: start of error messages.
    """
    classes = class_folders(where, folder)
    return scan(where, folder, classes=classes, ignore=ignore)


def in_folder(
    folder: str,
    names: Names,
    *,
    labels: Sequence[int] | Column,
    classes: Names,
    lengths: Sequence[int] | None = None,
) -> Listing:
    """Return a listing of image files below one folder.

    names: paths relative to `folder`. labels: indices into `classes`. lengths: sizes of the
    files in bytes; None: look at each file.
    """
    store = stores.FileStore(folder, tuple(names))
    if lengths is None:
        lengths = [os.path.getsize(os.path.join(folder, name)) for name in names]
    return Listing(
        store=store,
        names=store.names,
        lengths=np.array(lengths, np.int64),
        labels=np.array(labels, np.int32),
        classes=tuple(classes),
    )


def agreed_label(where: str, sample: str, labels: Sequence[tuple[str, int]]) -> int:
    """Return the label of a sample; ValueError if its sources give different labels.

    sample: name of the sample in the message. labels: (source, label) pairs, at least one; a
    source is the name of a file or a column. where: start of error messages.
    """
    first_source, label = labels[0]
    for source, other in labels[1:]:
        if other != label:
            must = f"{where}: a sample must have one label"
            got = f"got {label} ({first_source}) and {other} ({source}) for {sample}"
            raise ValueError(f"{must}, {got}; leave the right one")
    return label


def check_names(where: str, names: Names) -> np.ndarray:
    """Return the names of images as an array of text.

    ValueError for a name that is not UTF-8 or has more than _MAX_LETTERS letters.
    where: start of error messages.
    """
    for name in names:
        if len(name) > _MAX_LETTERS or _SURROGATE.search(name):
            must = f"names of images must be UTF-8 of at most {_MAX_LETTERS:,} letters"
            raise ValueError(f"{where}: {must}, got {name!r}; rename it")
    return np.array(names, str)


def number_names(n: int) -> tuple[str, ...]:
    """Return names for n images that have none: "00000000", "00000001", ...

    `split_indices` needs names.
    """
    return tuple(f"{i:08d}" for i in range(n))


def split_indices(
    where: str, names: Names, labels: Column, classes: Names, split: Split
) -> Int[np.ndarray, "m"]:
    """Return the ascending indices of the images in a part of every class.

    names, labels: of each image of the whole split. split: has the part's percentages.

    For the whole split, return all indices. For a part, the images of each class are ordered by
    a hash of their names and cut at the indices of `cut_index`. Parts that meet at a
    percentage, such as "[:90%]" and "[90%:]", are disjoint and together the whole split.
    ValueError if a class has no image in the part.
    where: start of error messages.
    """
    if (split.start, split.stop) == (0, 100):
        return np.arange(len(names))
    keys = np.array([_hash(name) for name in names], np.uint64)
    selected = []
    for label, name in enumerate(classes):
        members = np.flatnonzero(labels == label)
        members = members[np.argsort(keys[members], kind="stable")]
        selected.append(cut(members, split))
        if not len(selected[-1]):
            span = f"{float(split.start):g}% to {float(split.stop):g}%"
            must = f"{where}: every class must have images in the part {span}"
            got = f"class {name!r} has {len(members)} in all and none there"
            raise ValueError(f"{must}, {got}; take a wider part")
    return np.sort(np.concatenate(selected))


def count_note(n: int, published: int | None) -> str:
    """Return a note with `n` and `published` if the two numbers differ, else "".

    n: number of images on disk. published: None if unknown; the result is then "".
    """
    if published in (None, n):
        return ""
    return f"{n:,} images on disk, the published set has {published:,}"


def digest(images: Listing) -> str:
    """Return the SHA-256 over names, byte lengths and class names of images, as hex digits.

    images: must have class names.
    """
    total = hashlib.sha256()
    for name, length, label in zip(images.names, images.lengths, images.labels):
        row = f"{_normalised(name)}\t{length}\t{images.classes[label]}\n"
        total.update(row.encode())
    return total.hexdigest()


def digest_arrays(images: np.ndarray, labels: Column, classes: Names) -> str:
    """Return the SHA-256 over images in memory, labels and class names, as hex digits."""
    return _sha256(repr((images.shape, tuple(classes))), images, labels)


def digest_columns(digest: str, columns: Columns, values: Mapping[str, Names]) -> str:
    """Return the SHA-256 over a digest and the columns in `values`, as hex digits.

    values: {column: names of its values}.
    """
    text = repr((digest, sorted(values.items())))
    return _sha256(text, *(columns[name] for name in sorted(values)))


def digest_named(
    arrays: Mapping[str, np.ndarray], words: str = "", more: str = ""
) -> str:
    """Return the SHA-256 over arrays, in the order of their names, and texts, as hex digits.

    words: text before the arrays. more: text after the arrays.
    """
    return _sha256(words, *(arrays[name] for name in sorted(arrays)), more.encode())


def _sha256(text: str, *contents: np.ndarray | bytes) -> str:
    """Return the SHA-256 over a text and then `contents`, as hex digits."""
    total = hashlib.sha256(text.encode())
    for content in contents:
        is_bytes = isinstance(content, bytes)
        total.update(content if is_bytes else np.ascontiguousarray(content))
    return total.hexdigest()


def text_lines(path: str, error_prefix: str) -> list[str]:
    """Return the non-empty lines of a text file, trimmed.

    ValueError if the file cannot be read; its message is `error_prefix` and the reason.
    """
    with (
        base.explain_errors(error_prefix),
        opening.open_text(os.path.expanduser(path)) as file,
    ):
        return [line.strip() for line in file if line.strip()]


def is_below(root: str, name: str) -> bool:
    """Return True if the relative path `name` stays below `root` and has no "..".

    Links are not resolved: a link below `root` may lead anywhere.
    """
    path = os.path.abspath(os.path.join(root, name))
    inside = os.path.join(os.path.abspath(root), "")
    return ".." not in name.split("/") and path.startswith(inside)


def is_junk(name: str) -> bool:
    """Return True if a file or folder is hidden or a system file; False for ".."."""
    return name != ".." and name.startswith(".") or name.lower() in JUNK


def is_image(name: str) -> bool:
    """Return True if a file name has the ending of an image, in upper or lower case."""
    return name.lower().endswith(opening.SUFFIXES)


def match_classes(where: str, got: Names, expected: Names) -> None:
    """Raise ValueError unless `got` and `expected` are the same class names, in any order.

    where: start of error messages.
    """
    for name in got:
        must = f"be the {len(expected)} published"
        errors.check_known(where, name, expected, "class folders", must=must)
    errors.refuse_some(
        sorted(set(expected) - set(got)),
        f"{where}: all {len(expected)} class folders must exist",
        which="are missing",
        remedy="unpack the archive again",
    )


class _File(NamedTuple):
    """A file on disk."""

    name: str  # Relative to the split, with slashes.
    length: int  # In bytes; -1 for a link without a target.
    inode: int


def _walk(folder: str, below: str, ancestors: tuple[str, ...]) -> list[_File]:
    """Return all files under folder/below, at any depth, sorted; hidden files are left out.

    below: path relative to `folder`; if there is no such folder, the result is []. ancestors:
    real paths of the folders above. Links to folders are followed; ValueError for a link to one
    of `ancestors`.
    """
    path = os.path.join(folder, below)
    real_path = os.path.realpath(path)
    if real_path in ancestors:
        must = "data: folders must not contain themselves"
        raise ValueError(f"{must}, got link {path!r}")
    files = []
    for entry in _entries(path) if os.path.isdir(path) else ():
        name = f"{below}/{entry.name}"
        if entry.is_dir():
            files += _walk(folder, name, (*ancestors, real_path))
        elif entry.is_file():
            stat = entry.stat()
            files.append(_File(name, stat.st_size, inode=stat.st_ino))
        else:  # A link without a target: decoding reports the image as damaged.
            files.append(_File(name, -1, inode=0))
    return files


def _entries(folder: str) -> list[os.DirEntry]:
    """Return the sorted entries of a folder without hidden and system files."""
    with os.scandir(folder) as entries:
        visible = [entry for entry in entries if not is_junk(entry.name)]
    return sorted(visible, key=lambda entry: _normalised(entry.name))


def cut(members: Column, split: Split) -> Column:
    """Return the entries of `members` from split.start to split.stop percent.

    Cuts: see `cut_index`.
    """
    start = cut_index(len(members), split.start)
    return members[start : cut_index(len(members), split.stop)]


def cut_index(n: int, percent: fractions.Fraction) -> int:
    """Return the index at which n items are cut at a percentage, rounded to the nearest integer.

    Halves are rounded up. If there are two items or more, no side is empty, except at 0
    and 100 %.
    """
    if percent in (0, 100):
        return n * int(percent) // 100
    nearest = int(n * percent / 100 + fractions.Fraction(1, 2))
    return min(max(nearest, 1), n - 1) if n > 1 else nearest


def _hash(name: str) -> int:
    """Return a hash of a name: the first 64 bits of its SHA-256, as an integer."""
    return int.from_bytes(hashlib.sha256(_normalised(name).encode()).digest()[:8])


def _normalised(name: str) -> str:
    """Return a name with composed accents; some file systems decompose them."""
    return unicodedata.normalize("NFC", name)
