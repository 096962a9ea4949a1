"""What a data set is: a row of DATASETS (Spec), and the random-access Source that it makes."""

import abc
import contextlib
import dataclasses
import difflib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np
from jaxtyping import Int, UInt8

from jbias.data import tables

# Label spaces. Classes of one space are compared by name; labels.py knows the rest.
SPACES = ("names", "wnid", "entry16")


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Source(abc.ABC):
    """Random access to the labelled images of one split.

    Element i is {"image": uint8 (h, w, 3), "label": int, and one int for each
    further column}. Raises ValueError naming the file where an image is unreadable.
    """

    name: str  # "pacs/sketch"
    classes: tuple[str, ...]  # Label id -> class name.
    space: str  # One of SPACES.
    columns: Mapping[str, Int[np.ndarray, "n"]]  # Known without decoding; has "label".
    measures: tuple[str, ...]  # Names in jbias.evals.MEASURES.
    preprocessing: str  # In words, for tables.
    fingerprint: str  # Hex digest of what the source holds.
    cite: str
    note: str = ""  # What a reader must know, such as a count unlike the published.
    # (n, ...), further things for training alone.
    arrays: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    restrict: bool = (
        False  # By its authors' rule, only its own classes can be answered.
    )
    # Column -> names of its values, if any.
    values: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, int]:
        """Height and width of every image, in pixels; alike, but in `stacked`."""

    @property
    def size(self) -> int:
        """Width of every image, in pixels."""
        return self.shape[1]

    @abc.abstractmethod
    def image(self, index: int) -> UInt8[np.ndarray, "h w 3"]:
        """One image."""

    @abc.abstractmethod
    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = {name: column[index].item() for name, column in self.columns.items()}
        return {"image": self.image(index), **row}

    def __post_init__(self):
        """Holds every source to what the rest of the package relies on."""
        where, n, k = self.name, len(self), len(self.classes)
        if self.space not in SPACES:
            raise ValueError(
                f"{where}: space must be one of {SPACES}, got {self.space!r}"
            )
        if len(set(self.classes)) != k:
            raise ValueError(f"{where}: class names must differ, got {self.classes}")
        if "label" not in self.columns:
            raise ValueError(
                f"{where}: columns must have 'label', got {[*self.columns]}"
            )
        for name, array in self.arrays.items():
            if len(array) != n or name in self.columns:
                raise ValueError(
                    f"{where}: array {name!r} must have {n} rows and a name of its own,"
                    f" got {array.shape}"
                )
        for name, values in self.values.items():
            column = self.columns[name]
            assert not len(column) or 0 <= column.min() <= column.max() < len(values)
        for name, column in self.columns.items():
            if column.shape != (n,) or column.dtype != np.int32:
                raise ValueError(
                    f"{where}: column {name!r} must be int32 ({n},), got {column.dtype}"
                    f" {column.shape}"
                )
            least = -1 if name.startswith("accepted_") else 0
            if (
                holds_classes(name)
                and n
                and not least <= column.min() <= column.max() < k
            ):
                raise ValueError(
                    f"{where}: column {name!r} must be class ids below {k}, got"
                    f" {column.min()} to {column.max()}"
                )


@dataclasses.dataclass(frozen=True)
class Spec:
    """One data set: how to make a source of one split, and whom to cite."""

    make: Callable[..., Source]  # make(split, *, size, **options)
    splits: tuple[str, ...]  # The known ones; () where any folder name may be one.
    cite: str
    licence: str
    about: str  # One line: what, how many, which layout.
    size: str = ""  # What one has to get, such as "2.9 GB packed"; "" where nothing.
    where: str = ""  # The address to get it from, and how; "" likewise.
    narrows: tuple[str, ...] = ()  # Options that change what is taken of a split.
    aspect: tuple[int, int] = (1, 1)  # Height to width of its images.
    classes: int = 0  # Of the published set; 0 where that varies.
    # Published: of each split, or of every one; and where else a split's folder may lie.
    images: Mapping[str, int] | int = dataclasses.field(default=0, hash=False)
    folders: Mapping[str, Collection[str]] = dataclasses.field(
        default_factory=dict, hash=False
    )

    @property
    def needs(self) -> str:
        """What is expected on disk, how large it is and where it comes from."""
        return (
            f"{self.about}; {self.size}, from {self.where}" if self.size else self.about
        )


def spec(name: str, make: Callable[..., Source], splits=(), **options) -> Spec:
    """The row of a set of tables/data_sets.json; by itself its splits are those there."""
    row = tables.data_sets()[name]
    images = row.get("images", {})
    splits = splits or (images if isinstance(images, Mapping) else ())
    return Spec(make, tuple(splits), **row, **options)


class Missing(ValueError):
    """A folder or file of a data set is not there."""


class Mismatch(ValueError):
    """A network's classes do not answer those of a data set."""


def holds_classes(column: str) -> bool:
    """Tells whether a column has class ids.

    "accepted_0", "accepted_1", ... are all the right classes of each image, -1 where it
    has fewer.
    """
    return column in ("label", "texture") or column.startswith("accepted_")


@contextlib.contextmanager
def explained(
    text: str,
    *kinds: type[Exception],
    remedy: str = "",
    reason: Callable[[Exception], str] = str,
) -> Iterator[None]:
    """Turns errors of these kinds into a ValueError: `text`, the reason, then a remedy."""
    try:
        yield
    except kinds as error:
        raise ValueError(f"{text}{reason(error)}{remedy}") from error


def one_line(error: Exception) -> str:
    """What an error says, without its line breaks."""
    return " ".join(str(error).split())


def kind_and_text(error: Exception) -> str:
    """An error's kind and what it says, on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def check_known(
    what: str, got: str, known: Collection[str], kind: type[ValueError] = ValueError
) -> None:
    """Refuses a name that is not among the known ones; `what` says where they must be."""
    if got not in known:
        raise kind(f"{what}, got {got!r}; {did_you_mean(got, known)}")


def check_whole(what: str, got: Any, low: int, high: int | None = None) -> None:
    """Refuses what is no whole number of a range; `what` says where it must be."""
    whole = isinstance(got, int | np.integer) and not isinstance(got, bool)
    if not whole or got < low or (high is not None and got > high):
        span = f">= {low}" if high is None else f"from {low} to {high}"
        raise ValueError(f"{what} must be a whole number {span}, got {got!r}")


def did_you_mean(got: str, known: Collection[str]) -> str:
    """Says which known name is nearest to `got`, and lists all if they are few."""
    near = difflib.get_close_matches(got, known, n=1, cutoff=0.5)
    if not near:
        by_lower = {name.lower(): name for name in known}
        near = difflib.get_close_matches(got.lower(), by_lower, n=1, cutoff=0.5)
        near = [by_lower[name] for name in near]
    hint = f"did you mean {near[0]!r}?" if near else ""
    if 0 < len(known) <= 40:
        hint = f"{hint} known: {', '.join(sorted(known))}".strip()
    return hint or f"none of the {len(known)} known names is near"
