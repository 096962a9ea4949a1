"""Samples of tar archives: assignment of labels to images.

WebDataset's key is a file's name up to its first dot, so that "0.jpg", "0.cls" and "0.json"
are one sample. This rule truncates names with further dots: "22.05.jpg" and "22.06.jpg" have
the key "22". Here an image has the labels of its whole name ("22.05.cls") and the labels of its
key ("22.cls").

<key>.cls is text with a number. <key>.json is an object whose "label" (or "cls") is a number;
an object without such a key, or whose label is the name of the file's class folder, is
metadata. Several labels of a sample must agree.
"""

import json
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from jbias.data.base import Names
from jbias.data.forms import listing
from jbias.untrusted import limits

_LABEL_FILES = (".cls", ".json")
_JSON_KEYS = ("label", "cls")
# Other spellings of an ending.
_FORMATS = {".jpeg": ".jpg", ".jpe": ".jpg", ".jfif": ".jpg", ".tiff": ".tif"}
_NUMBER = re.compile(r"\d{1,18}")


class Member(NamedTuple):
    """A file of an archive."""

    shard: int  # Index of the archive.
    name: str  # Path of the file in the archive.
    start: int  # Byte offset in the archive.
    length: int  # In bytes.

    @property
    def key(self) -> str:
        """The path in the archive, up to the first dot of the file's name."""
        folder, name = os.path.split(self.name)
        return os.path.normpath(os.path.join(folder, name.partition(".")[0]))

    @property
    def stem(self) -> str:
        """The path in the archive without its last ending."""
        folder, name = os.path.split(self.name)
        return os.path.normpath(os.path.join(folder, os.path.splitext(name)[0]))

    @property
    def suffix(self) -> str:
        """The file's name after its first dot, in lower case: "seg.png"."""
        return os.path.basename(self.name).partition(".")[2].lower()


class Label(NamedTuple):
    """A label of a sample, from a .cls or .json file of the archive."""

    file: Member
    text: str  # Text in the file, for messages.
    value: int | None  # None if the text is not the number of a class.


class Sample(NamedTuple):
    """An image and its label."""

    image: Member
    label: int | None  # None if class folders are the labels.


class _Group(NamedTuple):
    """The images and the labels of one key."""

    images: list[Member]
    labels: list[Label]


def find_samples(where: str, shards: Names, members: Iterable[Member]) -> list[Sample]:
    """Return all samples of the archives, in the order in which keys first occur.

    shards: paths of the archives. members: the files in all archives. Either all samples have
    labels, or all labels are None. Files that are no images or labels are ignored.

    ValueError if a sample has two images or two labels that differ, if only some images have
    a label, and if a label is not the number of a class. where: start of error messages.
    """
    groups = _grouped(where, shards, members)
    suffix_sets = {_suffixes(group) for group in groups.values()}
    # If all samples have the same endings, such as "rgb.jpg" and "target.cls", the words
    # between the dots are no part of a name.
    same_endings = len(suffix_sets) == 1 < len(groups)
    labels = [label for group in groups.values() for label in group.labels]
    labelled = bool(labels)
    if labelled and all(label.value is None for label in labels):
        file = labels[0].file
        path = shards[file.shard]
        raise _wrong_label(where, path, member=file, text=labels[0].text)
    samples = []
    for (shard, key), group in groups.items():
        place = f"for {key!r} in {shards[shard]!r}"
        _refuse_second_image(where, place, key=key, group=group, labelled=labelled)
        for image in group.images:
            whole_key = same_endings and len(group.images) == 1
            labels = _labels_of(image, group, whole_key=whole_key)
            if labelled and not labels:
                must = f"{where}: every image must have a label (<key>.cls)"
                raise ValueError(f"{must}, got none {place}")
            label = None
            if labelled:
                label = _agreed(where, shards[shard], image=image, labels=labels)
            samples.append(Sample(image, label))
    return samples


def _suffixes(group: _Group) -> frozenset[str]:
    """Return the set of suffixes, see Member.suffix, of a group's images and label files."""
    files = (*group.images, *(label.file for label in group.labels))
    return frozenset(file.suffix for file in files)


def _grouped(
    where: str, shards: Names, members: Iterable[Member]
) -> dict[tuple[int, str], _Group]:
    """Return {(shard, key): group}: the images and labels of each key that has an image.

    Arguments: see `find_samples`. ValueError for a damaged label file, see `_read_labels`.
    """
    groups: dict[tuple[int, str], _Group] = {}
    for member in members:
        is_image = listing.is_image(member.name)
        if not is_image and not member.name.lower().endswith(_LABEL_FILES):
            continue
        group = groups.setdefault((member.shard, member.key), _Group([], []))
        if is_image:
            group.images.append(member)
        else:
            group.labels.extend(_read_labels(where, shards[member.shard], member))
    return {key: group for key, group in groups.items() if group.images}


def _refuse_second_image(
    where: str, place: str, *, key: str, group: _Group, labelled: bool
) -> None:
    """Raise ValueError if a sample has several images.

    Images with the same key are separate samples if each image's whole name has a label,
    or, in class folders, by the rule of `_are_separate_samples`. Images whose names differ only
    in the last ending are not separate.
    place: key and archive of the sample, in words, for the message. labelled: True if the
    labels are in files, False if class folders are the labels. where: start of error messages.
    """
    images, stems = group.images, [image.stem for image in group.images]
    if len(images) == 1:
        return
    if labelled:
        label_stems = {label.file.stem for label in group.labels}
        are_separate = label_stems >= set(stems)
    else:
        are_separate = _are_separate_samples(key, images)
    if not are_separate or len(set(stems)) < len(stems):
        must = f"{where}: a sample must have one image, got a second {place}"
        names = f"{images[0].name!r} and {images[1].name!r}"
        raise ValueError(f"{must}, {names}; give each a key of its own")


def _are_separate_samples(key: str, images: Sequence[Member]) -> bool:
    """Return True if images with the same key in class folders are separate samples.

    True if all images have one format and no image is named by the key alone ("22.left.jpg",
    "22.right.jpg"). Also True if every name longer than the key has a digit after the key
    ("22.jpg", "22.1.jpg"). Any other word next to "22.jpg" may name a mask ("22.seg.png").
    """
    endings = [os.path.splitext(image.name)[1].lower() for image in images]
    formats = {_FORMATS.get(ending, ending) for ending in endings}
    if len(formats) == 1 and key not in [image.stem for image in images]:
        return True
    numbers = [image.stem.removeprefix(key) for image in images if image.stem != key]
    return all(any(letter.isdigit() for letter in number) for number in numbers)


def _labels_of(image: Member, group: _Group, *, whole_key: bool) -> list[Label]:
    """Return the labels that belong to an image, in the order of the group.

    With `whole_key`, all labels of the group are returned. Otherwise the result has the labels
    with the image's stem and the labels whose stem is the key alone ("22.cls" for "22.05.jpg");
    an image whose stem is the key gets all labels of the group. A label with the stem of
    another image is left out. group: the group of the image's key.
    """
    if whole_key:
        return group.labels
    stems = {member.stem for member in group.images}
    labels = []
    for label in group.labels:
        stem = label.file.stem
        of_key = stem not in stems and image.key in (stem, image.stem)
        if stem == image.stem or of_key:
            labels.append(label)
    return labels


def _agreed(where: str, path: str, *, image: Member, labels: Sequence[Label]) -> int:
    """Return the label of an image, a class number; ValueError if two numbers differ.

    path: path of the archive. labels: labels of the image. Labels that are no numbers are
    ignored; ValueError if no label is a number.
    where: start of error messages.
    """
    # If a file has a number, class names in other files are metadata.
    numbers = [label for label in labels if label.value is not None]
    if not numbers:
        raise _wrong_label(where, path, member=labels[0].file, text=labels[0].text)
    sources = [(label.file.name, label.value) for label in numbers]
    return listing.agreed_label(where, f"{image.name!r} in {path!r}", sources)


def _read_labels(where: str, path: str, member: Member) -> list[Label]:
    """Return the labels in a .cls or .json file of an archive; [] if the file is metadata.

    Labels of JSON are the values of "label" and "cls" of the object, except null. A label that
    is no number has the value None, and is left out if it is the name of a folder in the file's
    path. An empty .json file has one label with the value None. path: path of the archive.
    ValueError for a .cls file without a number, and for damaged JSON. where: start of error
    messages.
    """
    with open(path, "rb") as file:
        file.seek(member.start)
        content = file.read(member.length)
    if not member.name.lower().endswith(".json"):
        text = content.decode("ascii", "replace").strip()
        value = _class_number(text)
        if value is None:
            raise _wrong_label(where, path, member=member, text=content[:40])
        return [Label(member, text, value)]
    if not content.strip():  # Empty metadata; refused if no other file has a label.
        return [Label(member, "", None)]
    try:
        entries = json.loads(content, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError) as error:
        wrong = _wrong_label(where, path, member=member, text=content[:40])
        raise wrong from error
    pairs = entries if isinstance(entries, _Pairs) else ()
    values = [value for key, value in pairs if key in _JSON_KEYS and value is not None]
    labels = [Label(member, str(x)[:40], _class_number(x)) for x in values]
    folders = os.path.dirname(member.name).split("/")
    return [x for x in labels if x.value is not None or x.text not in folders]


class _Pairs(list):
    """The (name, value) pairs of a JSON object, with repeated names."""


def _class_number(value: Any) -> int | None:
    """Return a JSON value as a class number; None if the value is not a class number.

    Class numbers are integers from 0 to limits.MAX_CLASSES - 1, also written as 3.0 or "3";
    true and false are 1 and 0.
    """
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()) and value.isascii():
        value = int(value)
    in_range = isinstance(value, int | float) and 0 <= value < limits.MAX_CLASSES
    return int(value) if in_range and value == int(value) else None


def _wrong_label(where: str, path: str, *, member: Member, text: object) -> ValueError:
    """Return the ValueError for a label that is not the number of a class.

    path: path of the archive. member: the file with the label. text: the label; empty for an
    empty file. where: start of error messages.
    """
    must = f"{where}: labels must be whole numbers from 0 to"
    got = f"got {text!r}" if text else "got an empty file"
    number = f"{limits.MAX_CLASSES - 1:,} ({limits.DOCS})"
    return ValueError(f"{must} {number}, {got} in {path}:{member.name}")
