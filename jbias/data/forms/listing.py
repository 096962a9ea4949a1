"""What lies in an image folder, or in shards: files by class, parts of them, a digest."""

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

from jbias.data import base
from jbias.data.base import Column, Columns, Names
from jbias.data.forms import stores
from jbias.untrusted import opening

JUNK = ("thumbs.db", "desktop.ini", "__macosx", "@eadir")  # And names with a dot first.

_LETTERS = 4096  # No path of a file is longer.
_SURROGATE = re.compile("[\ud800-\udfff]")  # Bytes that are no UTF-8.
_PERCENT = r"(?:(\d+(?:\.\d+)?)%)?"
_PART = re.compile(rf"(?P<base>[^\[\]]+)(?:\[{_PERCENT}:{_PERCENT}\])?")


class Listing(NamedTuple):
    """All images of a split: where their bytes are, what they are called, their labels.

    Shards without names of classes (None) have the labels 0 to k - 1, whose meaning is the
    data set's to know.
    """

    store: stores.Store
    names: tuple[str, ...]  # Relative to the split, with slashes.
    lengths: Column  # In bytes.
    labels: Column
    classes: tuple[str, ...] | None

    def take(self, index: Int[np.ndarray, "m"]) -> "Listing":
        """Selects images, in the order of `index`."""
        names = tuple(self.names[i] for i in index)
        rows = self.store.take(index), names, self.lengths[index], self.labels[index]
        return Listing(*rows, self.classes)

    def by_class(self, labels: Column, classes: Names) -> "Listing":
        """The images with these labels, in the order of their classes."""
        found = self._replace(labels=labels, classes=tuple(classes))
        return found.take(np.argsort(labels, kind="stable"))


class Split(NamedTuple):
    """A folder and the part of every class that is wanted, in percent."""

    base: str
    start: fractions.Fraction
    stop: fractions.Fraction


def parse_split(where: str, split: str) -> Split:
    """Reads "photo", "photo[:90%]", "photo[90%:]" or "photo[10%:90%]"."""
    match = _PART.fullmatch(split)
    start, stop = (match[2] or "0", match[3] or "100") if match else ("0", "0")
    part = fractions.Fraction(start), fractions.Fraction(stop)
    if not match or not 0 <= part[0] < part[1] <= 100:
        must = "split must read 'name' or 'name[10%:90%]' with rising percents"
        raise ValueError(f"{where}: {must} up to 100, got {split!r}")
    return Split(match["base"], *part)


def require_folder(where: str, path: str, what: str) -> str:
    """Returns `path` if it is a folder, else says what lies nearest to it."""
    if os.path.isdir(path):
        return path
    must = f"{where}: {what} must be"
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
        known = []  # What lies at the top of a machine is no hint.
    inner = (os.path.join(parent, one, name) for one in known)
    hint = base.did_you_mean(name, known) if known else "nor any like it"
    if os.path.basename(parent) == name and has_folders(parent):
        hint = f"{parent!r} seems to be it: give the folder above"
    elif within := next(filter(os.path.isdir, inner), ""):
        hint = f"did you mean {within!r}?"
    must = f"{must} an existing folder, got {path!r}"
    raise base.Missing(f"{must}; no {name!r} in {parent!r}, {hint}")


def has_folders(folder: str) -> bool:
    """Tells whether there are folders in a folder."""
    return any(entry.is_dir() for entry in _entries(folder))


def class_folders(where: str, folder: str) -> tuple[str, ...]:
    """Names the class folders of a split, sorted; images beside them are refused."""
    entries = _entries(folder)
    classes = tuple(entry.name for entry in entries if entry.is_dir())
    stray = [e.name for e in entries if not e.is_dir() and is_image(e.name)]
    must = f"{where}: images must lie in class folders"
    remedy = f"move them into {folder!r}/<class>/"
    base.refuse_some(stray, must, f"lie directly in {folder!r}", remedy)
    if not classes:
        must = f"{where}: a split must have a folder for each class"
        got = f"got none in {folder!r}"
        raise base.Missing(f"{must}, {got}; the layout is <root>/<split>/<class>/*.jpg")
    return classes


def scan(
    where: str, folder: str, classes: Names, ignore: Names = (), below: str = "{}"
) -> Listing:
    """Lists the images below the folder of each class; below: how that is called.

    Hidden files and what systems leave behind (Thumbs.db, __MACOSX) are passed over;
    any other file that is no image is refused unless a pattern of `ignore` matches
    its name, and so is a class without images. Images are passed over where a pattern
    names their ending, such as "*.gif".
    """
    found, strange, inodes = [], [], []
    unwanted = [pattern for pattern in ignore if is_image(pattern)]
    for label, name in enumerate(classes):
        for relative, length, inode in _walk(folder, below.format(name), ()):
            if is_image(relative):
                if not any(fnmatch.fnmatch(relative, pattern) for pattern in unwanted):
                    found.append((relative, length, label))
                    inodes.append(inode)
            elif not any(fnmatch.fnmatch(relative, pattern) for pattern in ignore):
                strange.append(relative)
    must = (
        f"{where}: class folders must hold images ({' '.join(opening.SUFFIXES)}) only"
    )
    remedy = "move them away, or let a config name them: ignore=('*.txt',)"
    base.refuse_some(strange, must, f"other files lie in {folder!r}", remedy)
    there = {label for _, _, label in found}
    empty = [name for label, name in enumerate(classes) if label not in there]
    which = f"of {len(classes)} in {folder!r} have none"
    must = f"{where}: every class must have images"
    base.refuse_some(empty, must, which, "fill or remove it")
    names, lengths, labels = zip(*found, strict=True)
    check_names(where, names)
    _refuse_links_across_classes(where, folder, names, labels, inodes)
    return in_folder(folder, names, lengths, labels, classes)


_NO_INODE = (0, 2**32 - 1)  # Of file systems that have none.


def _refuse_links_across_classes(where, folder, names, labels, inodes) -> None:
    """Raise ValueError if one file lies under one name in two class folders, by a link."""
    _, group, count = np.unique(
        np.array(inodes, np.uint64), return_inverse=True, return_counts=True
    )
    first: dict[tuple[int, str], int] = {}
    for i in np.flatnonzero(count[group] > 1):
        place = first.setdefault((inodes[i], os.path.basename(names[i])), i)
        if labels[place] == labels[i] or inodes[i] in _NO_INODE:
            continue
        paths = [os.path.join(folder, names[k]) for k in (place, i)]
        if os.path.samefile(*paths):
            must = f"{where}: an image must be of one class"
            got = f"got {names[place]!r} and {names[i]!r}, which are one file"
            raise ValueError(f"{must}, {got}; remove one of the two links")


def scan_split(where: str, folder: str, ignore: Names) -> Listing:
    """Lists the images below the class folders that a split has."""
    return scan(where, folder, class_folders(where, folder), ignore)


def in_folder(folder: str, names: Names, lengths, labels, classes: Names) -> Listing:
    """Files that lie below one folder: of each its name, its bytes and its label."""
    columns = np.array(lengths, np.int64), np.array(labels, np.int32)
    store = stores.FileStore(folder, tuple(names))
    return Listing(store, store.names, *columns, tuple(classes))


def agreed_label(where: str, sample: str, labels: Sequence[tuple[str, int]]) -> int:
    """Return the label of a sample; ValueError where two of its sources differ.

    labels: pairs of a source, such as a file or a column, and the label that it holds.
    """
    first_source, label = labels[0]
    for source, other in labels[1:]:
        if other != label:
            must = f"{where}: a sample must have one label"
            got = f"got {label} ({first_source}) and {other} ({source}) for {sample}"
            raise ValueError(f"{must}, {got}; leave the right one")
    return label


def check_names(where: str, names: Names) -> np.ndarray:
    """Names as an array; ValueError for one that is no UTF-8, or no path of a file."""
    for name in names:
        if len(name) > _LETTERS or _SURROGATE.search(name):
            must = f"names of images must be UTF-8 of at most {_LETTERS:,} letters"
            raise ValueError(f"{where}: {must}, got {name!r}; rename it")
    return np.array(names, str)


def number_names(n: int) -> tuple[str, ...]:
    """What images without names are called when parts of them are taken."""
    return tuple(f"{i:08d}" for i in range(n))


def split_indices(
    where: str, names: Names, labels: Column, classes: Names, split: Split
) -> Int[np.ndarray, "m"]:
    """Indices of a part of every class, a pure function of the images' names.

    Inside a class, files are ordered by a hash of their names and cut at the nearest
    whole number, but so that neither side of a cut is empty where two files exist.
    Parts that meet in a percentage are disjoint and together whole.
    """
    if (split.start, split.stop) == (0, 100):
        return np.arange(len(names))
    keys = np.array([_hash(name) for name in names], np.uint64)
    chosen = []
    for label, name in enumerate(classes):
        members = np.flatnonzero(labels == label)
        members = members[np.argsort(keys[members], kind="stable")]
        chosen.append(cut(members, split))
        if not len(chosen[-1]):
            part = f"{float(split.start):g}% to {float(split.stop):g}%"
            must = f"{where}: every class must have images in the part {part}"
            got = f"class {name!r} has {len(members)} in all and none there"
            raise ValueError(f"{must}, {got}; take a wider part")
    return np.sort(np.concatenate(chosen))


def count_note(n: int, published: int | None) -> str:
    """Says that a set has another size than the published, or nothing."""
    if published in (None, n):
        return ""
    return f"{n:,} images on disk, the published set has {published:,}"


def digest(found: Listing) -> str:
    """SHA-256 over the names, byte lengths and classes of all images."""
    total, rows = hashlib.sha256(), zip(found.names, found.lengths, found.labels)
    for name, length, label in rows:
        total.update(f"{_plain(name)}\t{length}\t{found.classes[label]}\n".encode())
    return total.hexdigest()


def digest_arrays(images: np.ndarray, labels: Column, classes: Names) -> str:
    """SHA-256 over the pixels and classes of images in memory."""
    return _sha256(repr((images.shape, tuple(classes))), images, labels)


def digest_columns(digest: str, columns: Columns, values: Mapping[str, Names]) -> str:
    """SHA-256 over another digest and the columns whose values have names."""
    named = repr((digest, sorted(values.items())))
    return _sha256(named, *(columns[name] for name in sorted(values)))


def digest_named(
    arrays: Mapping[str, np.ndarray], words: str = "", more: str = ""
) -> str:
    """SHA-256 over words, arrays in the order of their names, and more words."""
    return _sha256(words, *(arrays[name] for name in sorted(arrays)), more.encode())


def _sha256(text: str, *parts: np.ndarray | bytes) -> str:
    total = hashlib.sha256(text.encode())
    for one in parts:
        total.update(one if isinstance(one, bytes) else np.ascontiguousarray(one))
    return total.hexdigest()


def text_lines(path: str, must: str) -> list[str]:
    """The lines of a text file, trimmed, that say something; `must` begins its refusal."""
    with base.explain_errors(must), opening.open_text(os.path.expanduser(path)) as file:
        return [line.strip() for line in file if line.strip()]


def is_below(root: str, name: str) -> bool:
    """Return whether a path that is taken from `root` leads nowhere outside by its words.

    A link below `root` may lead where its owner wants.
    """
    path = os.path.abspath(os.path.join(root, name))
    inside = os.path.join(os.path.abspath(root), "")
    return ".." not in name.split("/") and path.startswith(inside)


def is_junk(name: str) -> bool:
    """Return whether a file or folder is hidden or is what systems leave behind.

    ".." is neither.
    """
    return name != ".." and name.startswith(".") or name.lower() in JUNK


def is_image(name: str) -> bool:
    """Tells by the ending, upper or lower case."""
    return name.lower().endswith(opening.SUFFIXES)


def match_classes(where: str, got: Names, expected: Names) -> None:
    """Refuses class folders other than those that the data set is known to have."""
    for name in got:
        what = f"{where}: class folders must be the {len(expected)} published"
        base.check_known(what, name, expected)
    missing = sorted(set(expected) - set(got))
    must = f"{where}: all {len(expected)} class folders must exist"
    base.refuse_some(missing, must, "are missing", "unpack the archive again")


def _walk(
    folder: str, below: str, above: tuple[str, ...]
) -> list[tuple[str, int, int]]:
    """Relative names, byte lengths and inodes of all files under folder/below, sorted."""
    path = os.path.join(folder, below)
    real = os.path.realpath(path)
    if real in above:
        must = "data: folders must not contain themselves"
        raise ValueError(f"{must}, got link {path!r}")
    found = []
    for entry in _entries(path) if os.path.isdir(path) else ():
        relative = f"{below}/{entry.name}"
        if entry.is_dir():
            found += _walk(folder, relative, (*above, real))
        else:  # A dangling link is no file: decoding names it, as damaged.
            stat = entry.stat() if entry.is_file() else None
            length, inode = (stat.st_size, stat.st_ino) if stat else (-1, 0)
            found.append((relative, length, inode))
    return found


def _entries(folder: str) -> list[os.DirEntry]:
    with os.scandir(folder) as entries:
        kept = [entry for entry in entries if not is_junk(entry.name)]
    return sorted(kept, key=lambda entry: _plain(entry.name))


def cut(members: Column, split: Split) -> Column:
    """The part of some things: no side of a cut is empty, if there are two."""
    start, stop = (cut_index(len(members), percent) for percent in split[1:])
    return members[start:stop]


def cut_index(n: int, percent: fractions.Fraction) -> int:
    """Where n things are cut at a percentage."""
    if percent in (0, 100):
        return n * int(percent) // 100
    nearest = int(n * percent / 100 + fractions.Fraction(1, 2))
    return min(max(nearest, 1), n - 1) if n > 1 else nearest


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.sha256(_plain(name).encode()).digest()[:8])


def _plain(name: str) -> str:
    # Some file systems store accents decomposed: one name must give one hash.
    return unicodedata.normalize("NFC", name)
