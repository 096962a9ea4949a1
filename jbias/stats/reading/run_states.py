"""States of runs in exported tables, to find the rows of runs that did not finish.

States have the names that W&B, MLflow, Optuna, Ray Tune and Slurm use.
"""

import collections
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from jbias.stats.reading import column_names, score_grid

_COLUMNS = frozenset(("state", "status", "run_state", "run_status", "job_state"))
_FINISHED = frozenset(
    ("finished", "complete", "completed", "done", "success", "succeeded", "terminated")
)
_UNFINISHED = frozenset(
    (
        "crashed",
        "failed",
        "fail",
        "error",
        "killed",
        "running",
        "pending",
        "preempted",
        "preempting",
        "queued",
        "scheduled",
        "pruned",
        "timeout",
        "cancelled",
        "canceled",
        "aborted",
        "stopped",
        "out_of_memory",
        "waiting",
        "paused",
        "suspended",
        "node_fail",
        "boot_fail",
        "deadline",
    )
)


class Unfinished(NamedTuple):
    """The rows of runs that did not finish, and the column of their states."""

    column: int  # Index.
    rows: tuple[int, ...]  # Indices.
    states: dict[str, int]  # Number of rows of each state, the most frequent first.


def find_unfinished(
    names: Sequence[str], cells: Sequence[Sequence[Any]]
) -> Unfinished | None:
    """Return the rows of a table whose state is not finished; None without such rows.

    names: names of the columns. cells: rows of cells. The column of states is called state,
    status or the like, and has only names of states and blank cells; of several such columns, the
    first with an unfinished run is used. States in the result are in lower case, with "_" between
    words.
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
    """Return the state in a cell, in lower case: "cancelled" for Slurm's CANCELLED by 1000."""
    return re.sub(r"_by_\d+$", "", column_names.word_of(score_grid.label(cell)))
