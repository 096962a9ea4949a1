"""What a data set is: a row of DATASETS (Spec), and the random-access Source that it makes."""

import contextlib
import dataclasses
import difflib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

from jbias.data import tables

# Label spaces. Classes of one space are compared by name; labels.py knows the rest.
SPACES = ("names", "wnid", "entry16")


@runtime_checkable
class Source(Protocol):
    """Random access to the labelled images of one split.

    Element i is {"image": uint8 (h, w, 3), "label": int, and one int for each
    further column}. Raises ValueError naming the file where an image is unreadable.
    """

    # "pacs/sketch"
    @property
    def name(self) -> str: ...

    # Label id -> class name.
    @property
    def classes(self) -> tuple[str, ...]: ...

    # One of SPACES.
    @property
    def space(self) -> str: ...

    # Known without decoding; has "label".
    @property
    def columns(self) -> Mapping[str, Int[np.ndarray, "n"]]: ...

    # Names in jbias.evals.MEASURES.
    @property
    def measures(self) -> tuple[str, ...]: ...

    # In words, for tables.
    @property
    def preprocessing(self) -> str: ...

    # Hex digest of what the source holds.
    @property
    def fingerprint(self) -> str: ...

    @property
    def cite(self) -> str: ...

    # What a reader must know, such as a count unlike the published; or "".
    @property
    def note(self) -> str: ...

    # (n, ...), further things for training alone.
    @property
    def arrays(self) -> Mapping[str, np.ndarray]: ...

    # By its authors' rule, only its own classes can be answered.
    @property
    def restrict(self) -> bool: ...

    # Column -> names of its values, if any.
    @property
    def values(self) -> Mapping[str, tuple[str, ...]]: ...

    @property
    def size(self) -> int:
        """Width of every image, in pixels."""
        ...

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of every image, in pixels; alike, but in `stacked`."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> dict[str, Any]: ...


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

    @property
    def needs(self) -> str:
        """What is expected on disk, how large it is and where it comes from."""
        return (
            f"{self.about}; {self.size}, from {self.where}" if self.size else self.about
        )


def spec(name: str, make: Callable[..., Source], splits=(), **options) -> Spec:
    """The row of a set whose texts stand in tables/data_sets.json."""
    return Spec(make, tuple(splits), **tables.data_sets()[name], **options)


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
    what: str,
    got: str,
    known: Collection[str],
    kind: type[ValueError] = ValueError,
) -> None:
    """Refuses a name that is not among the known ones; `what` says where they must be."""
    if got not in known:
        raise kind(f"{what}, got {got!r}; {did_you_mean(got, known)}")


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
