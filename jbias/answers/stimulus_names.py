"""The set that images are of, and their correct classes, from the images' names.

- Cue conflicts carry both classes: "airplane1-bicycle2", "airplane/airplane1-bicycle2.png",
  "0001_s5n_dnn_0_airplane_00_airplane1-bicycle2.png".
- model-vs-human's other sets have names with the correct class, and often a column `category`;
  the set is the beginning of the file's name, "contrast_subject-01_session_1.csv".
- Other sets need a column with the correct class of each image. With a column of the texture's class
  they are cue conflicts, too: the correct class is that of the shape.
"""

import dataclasses
import functools
import os
import posixpath
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from jbias import errors
from jbias.answers import columns, parsing
from jbias.data import class_maps
from jbias.data import sets as data_sets
from jbias.data.forms import listing
from jbias.data.sets import geirhos
from jbias.measures import human_answers

CUE_CONFLICT = "cue-conflict"
OWN = "images"  # The set of a table that names no set.
CLASSES16 = geirhos.CLASSES
PUBLISHED_SETS = (*geirhos.STIMULI, *geirhos.CONDITIONS)
# <number>_<experiment>_<who>_<condition>_<class>_<number>_<stimulus>.
_TRIAL = re.compile(r"\d+_([^_]+)_(?:dnn|s\d+)_([^_]+)_([a-z]+)_\d+_(.+)")
_CONFLICT = re.compile(rf"({'|'.join(CLASSES16)})\d+-({'|'.join(CLASSES16)})\d+")
_FORMS = (
    f"names of the set {CUE_CONFLICT}, such as 'airplane1-bicycle2', carry both classes; for "
    "other images name the column of correct classes: --columns=label=YOURS, or measure them "
    "with their images: --suite of jbias evaluate, --stimuli or --data of jbias measure"
)


class Trial(NamedTuple):
    """The information in the name of a stimulus in model-vs-human's form."""

    experiment: str
    condition: str
    category: str  # One of Geirhos' 16 classes.
    stimulus: str  # Such as "cat7-elephant1" or "n03041632_7380".


@dataclasses.dataclass(frozen=True, eq=False)
class Stimuli:
    """The images of a table's rows on one set, in the order of the rows."""

    dataset: str
    classes: tuple[str, ...]
    images: tuple[str, ...]  # Ids, equal in all tables of the set.
    label: Int[np.ndarray, "n"]  # Correct class; for cue conflicts, that of the shape.
    texture: (
        Int[np.ndarray, "n"] | None
    )  # For cue conflicts; -1: an image without texture.


class Row(NamedTuple):
    """The cells of a row that say which image it is about."""

    where: str  # "file:line".
    image: str
    label: str  # "" without a column of labels.
    condition: str  # "" without a column of conditions.
    texture: str = ""  # Class of the texture; "" without a column of textures.


def plain_path(name: str) -> str:
    """Return a path normalised: with "/" only, and without "./", "//" and spaces at its ends."""
    return posixpath.normpath(name.strip().replace("\\", "/"))


def without_ending(name: str) -> str:
    """Return a name in the form NFC without the ending of an image file, if it has one."""
    name = unicodedata.normalize("NFC", name)
    return os.path.splitext(name)[0] if listing.is_image(name) else name


def parse_trial(name: str) -> Trial | None:
    """Return the information in a name of model-vs-human's form; None for another name."""
    match = _TRIAL.fullmatch(without_ending(posixpath.basename(plain_path(name))))
    trial = Trial(*match.groups()) if match else None
    return trial if trial and trial.category in class_maps.geirhos16() else None


def stimulus(name: str) -> str:
    """Return the part of an image's name that names the stimulus, such as "cat7-elephant1"."""
    trial = parse_trial(name)
    return (
        trial.stimulus if trial else without_ending(plain_path(name).rpartition("/")[2])
    )


def set_name(text: str) -> str:
    """Return the name of a set from a cell: a published name as published, any other as it is.

    Published names are recognised in any case, with "_", "-" or " " between words.
    """
    by_plain_name = {columns.plain(name): name for name in PUBLISHED_SETS}
    return by_plain_name.get(columns.plain(text), text.strip())


def longest_begin(stem: str, sets: Iterable[str]) -> str:
    """Return the longest of the names `sets` that a file's stem begins with; "" for none.

    The stem must equal the name, or continue with "_" after it.
    """
    begins = [name for name in sets if stem == name or stem.startswith(f"{name}_")]
    return max(begins, key=len, default="")


def refuse_sets(where: str, folder: str) -> None:
    """Raise ValueError for a folder that has folders of several published sets of stimuli.

    where: start of the message, such as "--stimuli".
    """
    published = {
        name
        for split, names in data_sets.DATASETS["geirhos"].folders.items()
        for name in (split, *names)
    }
    names = [
        name
        for name in sorted(os.listdir(folder))
        if name in published and os.path.isdir(os.path.join(folder, name))
    ]
    if len(names) > 1:
        is_conflict = [name for name in names if name == CUE_CONFLICT]
        example = os.path.join(folder, (is_conflict or names)[0])
        got = errors.Words(f"the folders {', '.join(names)}")
        errors.refuse(where, "be the folder of one set", got, f"give {example}")


def label_in_name(image: str) -> str:
    """Return the correct class that a name of model-vs-human's form says; "" for another name."""
    trial = parse_trial(image)
    return trial.category if trial else ""


def label_of(row: Row) -> str:
    """Return the correct class of an image of a set that is not published; "" if unknown."""
    return row.label.strip() or label_in_name(row.image)


def own_set(rows: Sequence[Row], *, stem: str, dataset: str) -> str:
    """Return the name of the set of rows if it is none of the published; "" otherwise.

    Arguments: see `recognise`.
    """
    name = dataset or longest_begin(stem, PUBLISHED_SETS) or OWN
    is_conflict = any(
        _CONFLICT.fullmatch(_place(row.image).stimulus.casefold()) for row in rows
    )
    return "" if name in PUBLISHED_SETS or is_conflict else name


def recognise(
    rows: Sequence[Row], *, stem: str, dataset: str = "", classes: Sequence[str] = ()
) -> Stimuli:
    """Return the set, ids and correct classes of the images of rows.

    rows: the rows of one file on one set, at least one. stem: the file's name without its
    suffix. dataset: name of the set if known, "" otherwise. classes: classes that a set of your own
    has, also if no image is of these. ValueError, beginning with the
    file and line, if a name contradicts the column of labels or itself, if only some of the
    names are those of cue conflicts, and if there is no correct class.
    """
    by_name = longest_begin(stem, PUBLISHED_SETS)
    is_other_set = (dataset or by_name) in set(PUBLISHED_SETS) - {CUE_CONFLICT}
    places = [_place(row.image) for row in rows]
    cues = [_CONFLICT.fullmatch(place.stimulus.casefold()) for place in places]
    if not is_other_set and any(cues):
        return _conflicts(rows, places, cues, dataset or by_name or CUE_CONFLICT)
    if (dataset or by_name) == CUE_CONFLICT:
        errors.refuse(
            rows[0].where,
            f"be named as images of the set {CUE_CONFLICT}, <shape><i>-<texture><j>",
            rows[0].image,
            _FORMS,
            name="images",
        )
    return _labelled(rows, places, dataset or by_name or OWN, classes)


class _Place(NamedTuple):
    """The parts of an image name that say what it shows."""

    stimulus: str  # The last part, without suffix and trial.
    category: str  # Class by the trial or the folder; "" if unknown.


@functools.lru_cache(2**14)  # All files of a set have the same names.
def _place(image: str) -> _Place:
    """Return what the name of an image says."""
    trial = parse_trial(image)
    if trial:
        return _Place(trial.stimulus, trial.category)
    folder = plain_path(image).rpartition("/")[0].rpartition("/")[2].casefold()
    return _Place(stimulus(image), folder if folder in CLASSES16 else "")


def _conflicts(
    rows: Sequence[Row],
    places: Sequence[_Place],
    cues: Sequence[re.Match | None],
    dataset: str,
) -> Stimuli:
    """Return cue conflicts; cues: the two classes in each name."""
    for row, place, cue in zip(rows, places, cues, strict=True):
        if cue is None:
            errors.refuse(
                row.where,
                f"be named as the other images of {dataset}, <shape><i>-<texture><j> with two "
                "of the 16 classes",
                row.image,
                _FORMS,
                name="the image",
            )
        _check_label(row, cue[1], place.category, row.label)
        _check_texture(row, cue[2])
    ids = {name: number for number, name in enumerate(CLASSES16)}
    return Stimuli(
        dataset=dataset,
        classes=CLASSES16,
        images=tuple(cue[0] for cue in cues),
        label=np.array([ids[cue[1]] for cue in cues], np.int32),
        texture=np.array([ids[cue[2]] for cue in cues], np.int32),
    )


def _labelled(
    rows: Sequence[Row],
    places: Sequence[_Place],
    dataset: str,
    further_classes: Sequence[str],
) -> Stimuli:
    """Return images with one correct class each, by the column of labels or by their names.

    further_classes: see the argument classes of `recognise`.
    """
    is_published = dataset in PUBLISHED_SETS
    labels = []
    for row, place in zip(rows, places, strict=True):
        category = place.category if is_published else label_in_name(row.image)
        label = row.label.strip() or category
        if not label:
            errors.refuse(
                row.where,
                "have a known form, or its correct class in a column",
                row.image,
                _FORMS,
                name="the image",
            )
        if category:
            _check_label(row, category, row.label)
        labels.append(label)
    labelled = tuple({*labels})
    textures = [("" if is_published else row.texture.strip()) for row in rows]
    added = sorted(
        {
            name
            for name in (*further_classes, *filter(None, textures))
            if not (is_published or parsing.match_class(name, labelled))
        }
    )
    is_16 = {name.casefold() for name in (*labels, *added)} <= {*CLASSES16}
    if is_published and not is_16:
        row, label = next(
            (row, label)
            for row, label in zip(rows, labels, strict=True)
            if label.casefold() not in CLASSES16
        )
        errors.check_known(row.where, label, CLASSES16, f"class of {dataset}:")
    if is_16:
        labels = [label.casefold() for label in labels]
    classes = CLASSES16 if is_16 else tuple(sorted({*labels, *added}))
    ids = {name: number for number, name in enumerate(classes)}
    images = [
        human_answers.image_id(row.image)
        if is_published
        else f"{row.condition.strip()}/{name}".removeprefix("/")
        for row, name in ((row, plain_path(row.image)) for row in rows)
    ]
    return Stimuli(
        dataset=dataset,
        classes=classes,
        images=tuple(images),
        label=np.array([ids[label] for label in labels], np.int32),
        texture=_texture_ids(textures, classes) if any(textures) else None,
    )


def _texture_ids(
    textures: Sequence[str], classes: tuple[str, ...]
) -> Int[np.ndarray, "n"]:
    """Return the class id of each texture; -1 for "", an image without texture.

    classes: all classes of the set, in any case.
    """
    ids = {name: number for number, name in enumerate(classes)} | {"": -1}
    return np.array(
        [ids[parsing.match_class(name, classes) if name else ""] for name in textures],
        np.int32,
    )


def pictures(image: str) -> tuple[str, str] | None:
    """Return the pictures that a published cue conflict was made of, such as ("cat7", "elephant1").

    image: id of the image. None for another name.
    """
    if not _CONFLICT.fullmatch(image):
        return None
    shape, _, texture = image.partition("-")
    return shape, texture


def _check_label(row: Row, expected: str, *labels: str) -> None:
    """Raise ValueError if a statement of a row's correct class is another; "" is none."""
    for label in labels:
        if label.strip() and label.strip().casefold() != expected:
            errors.refuse(
                row.where,
                f"have the correct class {expected!r} that its name says",
                label,
                "check the column of correct classes, or name another: "
                "--columns=label=YOURS",
                name=errors.abbreviate(row.image),
            )


def _check_texture(row: Row, expected: str) -> None:
    """Raise ValueError if a row's column of textures has another class than the image's name."""
    if row.texture.strip() and row.texture.strip().casefold() != expected:
        errors.refuse(
            row.where,
            f"have the texture {expected!r} that its name says",
            row.texture,
            "check the column of textures, or name another: --columns=texture=YOURS",
            name=errors.abbreviate(row.image),
        )
