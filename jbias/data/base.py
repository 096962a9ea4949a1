"""What a data set is: a row of DATASETS (Spec), and the random-access Source that it makes."""

import abc
import contextlib
import dataclasses
import difflib
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int, UInt8

from jbias.runtime import files, messages

Names = Sequence[str]
Column = Int[np.ndarray, "n"]
Columns = Mapping[str, Column]

# Label spaces. Classes of one space are compared by name; labels.py knows the rest.
SPACES = ("names", "wnid", "entry16")


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Source(abc.ABC):
    """Random access to the labelled images of one split.

    Element i is {"image": uint8 (h, w, 3), "label": int, and one int for each
    further column}. Raises ValueError naming the file where an image is unreadable.
    """

    name: str  # "pacs/sketch"
    classes: tuple[str, ...]  # Label id -> class name.
    space: str = "names"  # One of SPACES.
    columns: Columns  # Known without decoding; has "label".
    measures: tuple[str, ...] = ("accuracy",)  # Names in jbias.evals.MEASURES.
    preprocessing: str  # In words, for tables.
    fingerprint: str  # Hex digest of what the source holds.
    cite: str
    note: str = ""  # What a reader must know, such as a count unlike the published.
    # (n, ...), further things for training alone.
    arrays: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    # By its authors' rule, only its own classes can be answered.
    restrict: bool = False
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

    def __repr__(self) -> str:
        height, width = self.shape
        of = f"{len(self):,} images of {len(self.classes):,} classes"
        return f"<{self.name}: {of}, {height} x {width} pixels>"

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = {name: column[index].item() for name, column in self.columns.items()}
        return {"image": self.image(index), **row}

    def __post_init__(self):
        for problem in self._problems():
            raise ValueError(f"{self.name}: {problem}")

    def _problems(self) -> Iterator[str]:
        """What does not hold of all that the rest of the package relies on."""
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
            least = -1 if name.startswith("accepted_") else 0
            if holds_classes(name) and not least <= low <= high < k:
                yield f"column {name!r} must be class ids below {k}, got {low} to {high}"
            assert name not in self.values or 0 <= low <= high < len(self.values[name])


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
    # Published, of each split or of every one.
    images: Mapping[str, int] | int = dataclasses.field(default=0, hash=False)

    @property
    def needs(self) -> str:
        """What is expected on disk, how large it is and where it comes from."""
        got = f"; {self.size}, from {self.where}" if self.size else ""
        return f"{self.about}{got}"


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


def one_line(error: Exception) -> str:
    """What an error says, without its line breaks and the system's number."""
    return " ".join(files.error_text(error).split())


def kind_and_text(error: Exception) -> str:
    """An error's kind and what it says, on one line."""
    return f"{type(error).__name__}: {one_line(error)}"


@contextlib.contextmanager
def explained(
    text: str, *kinds: type[Exception], remedy: str = "", reason: Callable = one_line
) -> Iterator[None]:
    """Turns errors of these kinds into a ValueError: `text`, the reason, then a remedy.

    By themselves they are those of a file that cannot be read. A Mismatch stays one.
    """
    kinds = kinds or (OSError, ValueError, EOFError)
    try:
        yield
    except messages.UserCodeError:
        raise
    except kinds as error:
        kind = Mismatch if isinstance(error, Mismatch) else ValueError
        raise kind(f"{text}{reason(error)}{remedy}") from error


def check_known(
    what: str, got: str, known: Collection[str], kind: type[ValueError] = ValueError
) -> None:
    """Refuses a name that is not among the known ones; `what` says where they must be."""
    if got not in known:
        raise kind(f"{what}, got {got!r}; {did_you_mean(got, known)}")


def check_choice(what: str, got: str, known: Collection[str]) -> None:
    """Refuses a word that is none of the known ones; `what` is its name."""
    if got not in known:
        raise ValueError(f"{what} must be one of {', '.join(known)}, got {got!r}")


def refuse_some(wrong: Sequence[Any], must: str, which: str, remedy: str) -> None:
    """Refuses what is wrong, if anything is: how many things `which` are, and the first."""
    if wrong:
        first = f"first {wrong[0]!r}; {remedy}"
        raise ValueError(f"{must}, {len(wrong):,} {which}, {first}")


def refuse_missing(
    wanted: Iterable[str], there: Collection, must: str, which: str, remedy: str
) -> None:
    """Refuses what is wanted and not there, likewise."""
    refuse_some([one for one in wanted if one not in there], must, which, remedy)


def check_whole(what: str, got: Any, low: int, high: int | None = None) -> None:
    """Refuses what is no whole number of a range; `what` says where it must be."""
    whole = isinstance(got, int | np.integer) and not isinstance(got, bool)
    if not whole or got < low or (high is not None and got > high):
        span = f">= {low}" if high is None else f"from {low} to {high}"
        raise ValueError(f"{what} must be a whole number {span}, got {got!r}")


def spelled_as(names: Names, known: Names) -> list[str]:
    """Return names as `known` spells them: with accents composed or not, a name is one.

    Some file systems decompose accents. A name stays as it is where that is known, and where
    none, or more than one, is the same name on either side.
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
        is_kept = name in exact or composed in ambiguous
        spelled.append(name if is_kept else spellings.get(composed, name))
    return spelled


def did_you_mean(got: str, known: Collection[str]) -> str:
    """Says which known name is nearest to `got`, and lists all if they are few."""
    near, lower = difflib.get_close_matches, {name.lower(): name for name in known}
    found = near(got, known, 1, 0.5)
    found = found or [lower[name] for name in near(got.lower(), lower, 1, 0.5)]
    hint = f"did you mean {found[0]!r}?" if found else ""
    if 0 < len(known) <= 40:
        hint = f"{hint} known: {', '.join(sorted(known))}".strip()
    return hint or f"none of the {len(known)} known names is near"
