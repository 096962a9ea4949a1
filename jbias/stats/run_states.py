"""States of runs in exports of trackers: which rows of a table are of runs that did not finish.

Names of states are those of W&B, MLflow, Optuna, Ray Tune and Slurm.
"""

import collections
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from jbias.stats import column_names, score_grid

_COLUMNS = frozenset(("state", "status", "run_state", "run_status", "job_state"))
_FINISHED = frozenset(
    ("finished", "complete", "completed", "done", "success", "succeeded", "terminated")
)
_UNFINISHED = frozenset(
    (
        *("crashed", "failed", "fail", "error", "killed", "running", "pending"),
        *("preempted", "preempting", "queued", "scheduled", "pruned", "timeout"),
        *("cancelled", "canceled", "aborted", "stopped", "out_of_memory"),
        *("waiting", "paused", "suspended", "node_fail", "boot_fail", "deadline"),
    )
)


class Unfinished(NamedTuple):
    """The rows of runs that did not finish, by the column that says so."""

    column: int
    rows: tuple[int, ...]
    states: dict[str, int]  # How many rows have each state, the most frequent first.


def find_unfinished(
    names: Sequence[str], cells: Sequence[Sequence[Any]]
) -> Unfinished | None:
    """Return the rows of a table whose state is not finished; None where there are none.

    names: those of the columns. cells: the rows. A column counts if it is called state or
    status and has names of states alone; a blank cell says nothing.
    """
    for j, name in enumerate(names):
        if column_names.word_of(name) not in _COLUMNS:
            continue
        states = [_state(row[j]) for row in cells]
        if not {*states} <= _FINISHED | _UNFINISHED | {""}:
            continue
        rows = tuple(i for i, state in enumerate(states) if state in _UNFINISHED)
        if rows:
            counts = collections.Counter(states[i] for i in rows)
            return Unfinished(j, rows, dict(counts.most_common()))
    return None


def _state(cell: Any) -> str:
    """Return the name of a state in small letters; Slurm writes CANCELLED by 1000."""
    return re.sub(r"_by_\d+$", "", column_names.word_of(score_grid.label(cell)))
