"""Observers: models and people whose decisions about single images are known.

An `Observer` has the decisions of one model (with one task and prompt) or of one person on one
set; a `Panel` has those of several observers on the same set, in one matrix.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Int

from jbias import errors
from jbias.answers import parsing
from jbias.measures import cue_conflict

# In place of a class id: the observer gave no answer; and, in a Panel, the file has no row.
NO_ANSWER, NO_ROW = -1, -2


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Observer:
    """The decisions of one model or person about the images of one set, one per image."""

    name: str  # Unique among the observers that were read together.
    dataset: str  # Such as "cue-conflict".
    classes: tuple[str, ...]
    images: tuple[str, ...]  # Ids such as "cat7-elephant1", ascending.
    label: Int[np.ndarray, "n"]  # Correct class; for cue conflicts, that of the shape.
    texture: Int[np.ndarray, "n"] | None  # Class of the texture, for cue conflicts.
    decision: Int[np.ndarray, "n"]  # Decided class, or NO_ANSWER.
    responses: tuple[str, ...] | None = (
        None  # The model's own words, if the file has them.
    )
    parser: str = ""  # Version of the parser that made `decision` from `responses`.
    # Class by letter, for the words; None: the classes in alphabetical order.
    options: Mapping[str, str] | None = None
    # The same for each image, if the file has options drawn for each image.
    drawn_options: tuple[Mapping[str, str], ...] | None = None
    # Names by factor: "model" (default: the observer), "task", "prompt", and "group", the
    # folder of the file below the folder that was read. "" if unknown.
    factors: Mapping[str, str] = dataclasses.field(default_factory=dict)
    path: str = ""
    sha256: str = ""  # Of the file.

    @functools.cached_property
    def is_conflict(self) -> Bool[np.ndarray, "n"]:
        """True for images whose shape and texture have different classes."""
        if self.texture is None:
            return np.zeros(len(self.images), bool)
        return cue_conflict.find_conflicts(self.label, self.texture)

    @property
    def is_unanswered(self) -> Bool[np.ndarray, "n"]:
        """True for images without an answer: none, refused, or not parsable."""
        return self.decision == NO_ANSWER

    @functools.cached_property
    def reader(self) -> str:
        """The reader of the decisions in the model's words; "" for a file without words.

        "published label" for the label in the file; "parser 1" for the parser of jbias. Words that
        are all classes or no answers need no reader.
        """
        if self.parser:
            return f"parser {self.parser}"
        has_words = any(
            not (parsing.match_class(text, self.classes) or parsing.is_no_answer(text))
            for text in {*(self.responses or ())}
        )
        return "published label" if has_words else ""

    def options_of(self, image: int) -> Mapping[str, str] | None:
        """Return the class by letter for the words about the image at a place.

        None: the classes in alphabetical order.
        """
        return self.options if self.drawn_options is None else self.drawn_options[image]

    @property
    def shape_bias(self) -> cue_conflict.ShapeBias | None:
        """The shape bias over the images with a conflict; None for a set without textures."""
        if self.texture is None:
            return None
        return cue_conflict.shape_bias(self.decision, self.label, self.texture)

    @property
    def accuracy(self) -> float:
        """Share of all images whose decision is the label; no answer is wrong."""
        return float(np.mean(self.decision == self.label))


@dataclasses.dataclass(frozen=True, eq=False)
class Panel:
    """Observers of one set with the same classes, and their decisions in one matrix.

    images: all images that any observer has a row for, ascending.
    """

    observers: tuple[Observer, ...]
    images: tuple[str, ...]
    label: Int[np.ndarray, "n"]
    texture: Int[np.ndarray, "n"] | None
    decision: Int[np.ndarray, "k n"]  # Class id, NO_ANSWER or NO_ROW.

    @property
    def dataset(self) -> str:
        """Name of the set."""
        return self.observers[0].dataset

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes by id."""
        return self.observers[0].classes

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the observers."""
        return tuple(observer.name for observer in self.observers)

    @property
    def is_conflict(self) -> Bool[np.ndarray, "n"]:
        """True for images whose shape and texture have different classes."""
        if self.texture is None:
            return np.zeros(len(self.images), bool)
        return cue_conflict.find_conflicts(self.label, self.texture)

    @property
    def has_row(self) -> Bool[np.ndarray, "k n"]:
        """True where the observer's file has a row for the image."""
        return self.decision != NO_ROW


def panels(observers: Sequence[Observer]) -> dict[str, Panel]:
    """Return the observers by set, in the order of the first observer of each set.

    ValueError if two observers of a set have different classes, or different labels or textures
    for an image.
    """
    by_set: dict[str, list[Observer]] = {}
    for observer in observers:
        by_set.setdefault(observer.dataset, []).append(observer)
    return {dataset: _panel(members) for dataset, members in by_set.items()}


def _panel(observers: Sequence[Observer]) -> Panel:
    """Return the panel of observers of one set."""
    first = observers[0]
    images = sorted({image for observer in observers for image in observer.images})
    place = {image: i for i, image in enumerate(images)}
    has_texture = first.texture is not None
    label = np.full(len(images), NO_ROW, np.int32)
    texture = np.full(len(images), NO_ROW, np.int32) if has_texture else None
    decision = np.full((len(observers), len(images)), NO_ROW, np.int32)
    for row, observer in enumerate(observers):
        where = observer.path or observer.name
        errors.check(
            observer.classes == first.classes
            and (observer.texture is not None) == has_texture,
            where,
            f"be those of {first.path or first.name} on the set {first.dataset}",
            ", ".join(observer.classes),
            name="classes and cues",
        )
        index = np.array([place[image] for image in observer.images])
        _fill(where, "label", label, index, observer.label, observer.images)
        if texture is not None:
            _fill(where, "texture", texture, index, observer.texture, observer.images)
        decision[row, index] = observer.decision
    return Panel(tuple(observers), tuple(images), label, texture, decision)


def _fill(
    where: str,
    name: str,
    column: Int[np.ndarray, "n"],
    index: Int[np.ndarray, "m"],
    values: Int[np.ndarray, "m"],
    images: Sequence[str],
) -> None:
    """Set column[index] to values, in place; ValueError if another file has other values."""
    known = column[index]
    wrong = np.flatnonzero((known != NO_ROW) & (known != values))
    if len(wrong):
        raise ValueError(
            f"{where}: the {name} of {images[wrong[0]]!r} must be the same in all files, got "
            f"{int(values[wrong[0]])} and {int(known[wrong[0]])}; read these files apart"
        )
    column[index] = values
