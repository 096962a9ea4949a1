"""The types of data sets: DataSet, an entry of DATASETS, and Source, random access to a split."""

import abc
import contextlib
import dataclasses
import inspect
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from jaxtyping import Int, UInt8

from jbias.runtime import files, messages

Names = Sequence[str]
Options = Mapping[str, inspect.Parameter]
Column = Int[np.ndarray, "n"]
Columns = Mapping[str, Column]

# Label spaces whose classes consist of classes of ImageNet; class_maps.members has them.
GROUPED_SPACES = ("entry16", "objectnet", "refined_bias")
# Label spaces. Classes of one space are compared by name; class_maps.py maps between spaces.
SPACES = ("names", "wnid", *GROUPED_SPACES)


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Source(abc.ABC):
    """The labelled images of one split, with random access by index.

    source[i] is {"image": uint8 (h, w, 3), "label": int, and an int for each further
    column}; ValueError, with the file's name, for an image that cannot be read.
    """

    name: str  # "pacs/sketch"
    classes: tuple[str, ...]  # Label id -> class name.
    space: str = "names"  # One of SPACES.
    columns: Columns  # Integers per image that need no decoding; has "label".
    measures: tuple[str, ...] = ("accuracy",)  # Names in jbias.evals.MEASURES.
    preprocessing: str  # In words, for tables.
    fingerprint: str  # Hex digest of the images' names or pixels, labels and classes.
    cite: str
    # A caveat for readers, such as a count that is not the published one.
    note: str = ""
    # Further arrays (n, ...) that only training uses.
    arrays: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    # The authors' rule: networks choose among the classes of this data set only.
    restrict: bool = False
    # The authors' rule for several network classes per class, one of class_maps.AGGREGATES;
    # "": the rule of the config or the suite.
    aggregate: str = ""
    # Column -> names of its values, for columns that have names.
    values: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, int]:
        """(height, width) of every image in pixels."""

    @property
    def size(self) -> int:
        """Width of every image, in pixels."""
        return self.shape[1]

    @abc.abstractmethod
    def image(self, index: int) -> UInt8[np.ndarray, "h w 3"]:
        """Return the image at `index`, decoded and preprocessed."""

    @abc.abstractmethod
    def __len__(self) -> int: ...

    def __repr__(self) -> str:
        height, width = self.shape
        counts = f"{len(self):,} images of {len(self.classes):,} classes"
        return f"<{self.name}: {counts}, {height} x {width} pixels>"

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = {name: column[index].item() for name, column in self.columns.items()}
        return {"image": self.image(index), **row}

    def __post_init__(self):
        for problem in self._problems():
            raise ValueError(f"{self.name}: {problem}")

    def _problems(self) -> Iterator[str]:
        """Yield an error message for each invalid field.

        These are invalid: an unknown space, repeated class names, columns without "label", a
        column that is not int32 (n,), class ids out of range, and an array without n rows or with
        the name of a column. Ids of column "accepted_..." may be -1. AssertionError if `values`
        lacks the name of a column's value.
        """
        n, k = len(self), len(self.classes)
        if self.space not in SPACES:
            yield f"space must be one of {SPACES}, got {self.space!r}"
        if len(set(self.classes)) != k:
            yield f"class names must differ, got {self.classes}"
        if "label" not in self.columns:
            yield f"columns must have 'label', got {[*self.columns]}"
        for name, array in self.arrays.items():
            if len(array) != n or name in self.columns:
                rows = f"{n} rows and a name of its own, got {array.shape}"
                yield f"array {name!r} must have {rows}"
        for name, column in self.columns.items():
            if column.shape != (n,) or column.dtype != np.int32:
                got = messages.describe_array(column)
                yield f"column {name!r} must be int32 ({n},), got {got}"
            if not n:
                continue
            low, high = column.min(), column.max()
            lowest_valid = -1 if name.startswith("accepted_") else 0
            if holds_classes(name) and not lowest_valid <= low <= high < k:
                yield f"column {name!r} must be class ids below {k}, got {low} to {high}"
            assert name not in self.values or 0 <= low <= high < len(self.values[name])


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class DataSet(abc.ABC):
    """A data set: published facts, and `open`, which makes the source of a split.

    Its kinds are FileSet and DrawnSet in jbias/data/sets/kinds.py.
    """

    name: str  # Such as "pacs".
    cite: str  # Citation.
    licence: str
    about: str  # One line: contents, counts and layout on disk.
    splits: tuple[str, ...] = ()  # Known splits; () where any folder may be a split.
    size: str = ""  # Size of the download, such as "2.9 GB packed"; "" if unknown or without any.
    where: str = ""  # Address of the download, with instructions; "" without any.
    narrows: tuple[str, ...] = ()  # Options that select some of a split's images.
    aspect: tuple[int, int] = (1, 1)  # Height to width of the images.
    classes: int = 0  # Number of classes as published; 0 where that varies.
    # Number of images as published, of each split or of every split; 0 where that varies.
    images: Mapping[str, int] | int = 0
    is_native: bool = False  # True if the images are published at one size.
    is_test_only: bool = False  # True if the licence forbids training on the images.

    @property
    @abc.abstractmethod
    def options(self) -> Options:
        """Keyword options of `open` by name, with defaults and annotations."""

    @abc.abstractmethod
    def open(self, split: str, **options: Any) -> Source:
        """Return the source of a split, "train", or of a part of it, "train[:90%]".

        ValueError for invalid options and files, Missing for missing files.
        """

    @property
    def needs(self) -> str:
        """Text with the files expected on disk, and the download's size, if known, and address."""
        download = ", ".join(filter(None, (self.size, f"from {self.where}")))
        return f"{self.about}; {download}" if self.where else self.about


def keyword_options(function: Callable) -> Options:
    """Return {name: inspect.Parameter} of a function's parameters except the first.

    function: makes a source; its first parameter is a split or its files.
    """
    _, *parameters = inspect.signature(function).parameters.values()
    return MappingProxyType({parameter.name: parameter for parameter in parameters})


class Missing(ValueError):
    """Raised when a folder or file of a data set does not exist."""


class Mismatch(ValueError):
    """Raised when a network's classes cannot be mapped to the classes of a data set."""


def holds_classes(column: str) -> bool:
    """Return True if a column of this name has class ids: "label", "texture", "accepted_...".

    "accepted_0", "accepted_1", ... hold all correct classes of each image; -1 where an image
    has fewer.
    """
    return column in ("label", "texture") or column.startswith("accepted_")


def one_line(error: Exception) -> str:
    """Return an error's text on one line, without the system's error number."""
    return " ".join(files.error_text(error).split())


def describe_error(error: Exception) -> str:
    """Return an error's type and text on one line."""
    return f"{type(error).__name__}: {one_line(error)}"


@contextlib.contextmanager
def explain_errors(
    text: str,
    *kinds: type[Exception],
    remedy: str = "",
    reason: Callable[[Exception], str] = one_line,
) -> Iterator[None]:
    """Context manager: replace errors by a ValueError with the text "<text><reason><remedy>".

    kinds: types of the errors to replace; default: OSError, ValueError and EOFError, the errors of
    a file that cannot be read. reason: (error) -> the reason in words. A Mismatch is replaced by a
    Mismatch; all other types, such as Missing, are replaced by a plain ValueError. Errors of a
    user's own code are not replaced.
    """
    kinds = kinds or (OSError, ValueError, EOFError)
    try:
        yield
    except messages.UserCodeError:
        raise
    except kinds as error:
        kind = Mismatch if isinstance(error, Mismatch) else ValueError
        raise kind(f"{text}{reason(error)}{remedy}") from error


def match_spelling(names: Names, known: Names) -> list[str]:
    """Return `names`, with accented letters encoded as in `known`.

    Some file systems store "é" as "e" and an accent. A name is unchanged if `known` has
    exactly that name, if it has no spelling in `known`, or if `names` or `known` have two
    spellings of the same name.
    """
    spellings: dict[str, str] = {}
    ambiguous: set[str] = set()
    for side in (names, known):
        spellings = {}
        for name in side:
            composed = unicodedata.normalize("NFC", name)
            if spellings.setdefault(composed, name) != name:
                ambiguous.add(composed)
    exact, spelled = set(known), []
    for name in names:
        composed = unicodedata.normalize("NFC", name)
        is_unchanged = name in exact or composed in ambiguous
        spelled.append(name if is_unchanged else spellings.get(composed, name))
    return spelled
