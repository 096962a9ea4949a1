"""Journals: files with the decisions of an unfinished measure, written batch by batch."""

import contextlib
import time
from collections.abc import Mapping, Sequence

import numpy as np
from etils import epath
from jaxtyping import Shaped


class Journal:
    """A file that decisions are appended to, in the order of batches and conditions.

    identity: text that identifies the measure, the network and the data; stored decisions with
    another identity are dropped, as is an incomplete entry at the end. entries: the decisions
    stored when the file was opened: for each pair of batch and condition, a structured array
    (rules, images) with the columns of inference.ScoredDecisions. seconds: the time that these
    decisions took.
    """

    def __init__(self, path: epath.Path, identity: str):
        self.entries: list[Shaped[np.ndarray, "r n"]] = []
        self.seconds, self._path, self._identity = 0.0, path, identity
        self._end, self._began = 0, time.monotonic()
        # Answers that cannot be read are computed again.
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
        """Append the decisions about one batch under one condition to the file.

        answers: for each rule, the columns of inference.ScoredDecisions. `entries` does not change.
        """
        first = answers[0]
        fields = [
            (name, column.dtype.newbyteorder("<")) for name, column in first.items()
        ]
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
        """Return the seconds spent on decisions so far: `seconds`, plus the time since opening."""
        return self.seconds + time.monotonic() - self._began


def remove(path: epath.Path) -> None:
    """Delete a journal file, if it exists, and its folder if the folder is then empty."""
    path.unlink(missing_ok=True)
    if path.parent.exists() and not any(path.parent.iterdir()):
        path.parent.rmdir()
