"""The answers of a measure under way, kept batch by batch: a stop costs the last ones."""

import contextlib
import time
from collections.abc import Mapping, Sequence

import numpy as np
from etils import epath
from jaxtyping import Shaped


class Journal:
    """Answers in the order in which they were asked, in a file that grows.

    identity: of what is asked; answers to anything else are dropped. What a stop left
    half written is, too. entries: those that are there, of each (rules, images) with the
    columns of inference.Confidence. seconds: what they took.
    """

    def __init__(self, path: epath.Path, identity: str):
        self.entries: list[Shaped[np.ndarray, "r n"]] = []
        self.seconds, self._path, self._identity = 0.0, path, identity
        self._end, self._began = 0, time.monotonic()
        # Whatever cannot be read is not there.
        with (
            contextlib.suppress(OSError, ValueError, EOFError),
            path.open("rb") as file,
        ):
            if str(np.load(file, allow_pickle=False)) != identity:
                return
            self._end = file.tell()
            while True:
                seconds = float(np.load(file, allow_pickle=False))
                self.entries.append(np.load(file, allow_pickle=False))
                self.seconds, self._end = seconds, file.tell()

    def add(self, answers: Sequence[Mapping[str, Shaped[np.ndarray, "n"]]]) -> None:
        """Keeps the next answers, by rule the columns of inference.Confidence."""
        first = answers[0]
        fields = [(k, x.dtype.newbyteorder("<")) for k, x in first.items()]
        entry = np.empty((len(answers), len(first["prediction"])), fields)
        for row, columns in zip(entry, answers, strict=True):
            for field, column in columns.items():
                row[field] = column
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with open(self._path, "r+b" if self._end else "wb") as file:
            file.seek(self._end)
            file.truncate()
            if not self._end:
                np.save(file, np.array(self._identity))
            np.save(file, np.float64(self.elapsed))
            np.save(file, entry)
            self._end = file.tell()

    @property
    def elapsed(self) -> float:
        """Seconds that all of it took, earlier ones among them."""
        return self.seconds + time.monotonic() - self._began


def remove(path: epath.Path) -> None:
    """Ends a journal, once what the answers amount to is stored."""
    path.unlink(missing_ok=True)
    if path.parent.exists() and not any(path.parent.iterdir()):
        path.parent.rmdir()
