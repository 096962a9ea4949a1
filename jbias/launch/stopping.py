"""Which trials a search has no more use for.

Source: Golovin et al., Google Vizier, KDD 2017, section 3.2.2, the median stopping rule.
"""

import json
import pathlib
import statistics
from collections.abc import Mapping, Sequence

from jbias.launch import trials as trials_
from jbias.runs import status

FEWEST = 3  # Completed trials before any is stopped: fewer say little.


def median_rule(
    curve: Mapping[int, float],
    completed: Sequence[Mapping[int, float]],
    *,
    fewest: int = FEWEST,
    grace: int = 0,
) -> str:
    """Why a trial is to stop at its latest step s; "" where it is not.

    Stop if max_{t <= s} o_t < median over completed trials k of
    mean_{t <= s} o_t^k, where o_t is the validation accuracy at step t.
    Deviations: nothing is stopped before `fewest` trials are completed, nor up to step
    `grace`; a completed trial that has no evaluation up to s has no say.
    """
    if not curve or max(curve) <= grace:
        return ""
    step, best = max(curve), max(curve.values())
    averages = []
    for other in completed:
        until = [value for at, value in other.items() if at <= step]
        if until:
            averages.append(statistics.mean(until))  # Exact, so that equal is equal.
    if len(averages) < fewest:
        return ""
    middle = statistics.median(averages)
    if best >= middle:
        return ""
    return (
        f"its best validation accuracy by step {step}, {100 * best:.1f}, is below "
        f"{100 * middle:.1f}, the median of {len(averages)} completed trials' averages"
    )


def due(
    running: Sequence[trials_.Trial],
    all_trials: Sequence[trials_.Trial],
    *,
    fewest: int,
    grace: int,
) -> list[tuple[trials_.Trial, str]]:
    """The trials to stop, and why."""
    completed = [_curve(trial, ended=True) for trial in all_trials]
    found = []
    for trial in running:
        curve = _curve(trial)
        if why := median_rule(curve, completed, fewest=fewest, grace=grace):
            found.append((trial, why))
    return found


def _curve(trial: trials_.Trial, *, ended: bool = False) -> Mapping[int, float]:
    """A trial's curve; one that cannot be read has no say, and `status` tells of it.

    ended: one that is not done has none either.
    """
    try:
        if ended and not status.is_done(trial.workdir):
            return {}
        return status.validation_curve(trial.workdir)
    except (ValueError, OSError):
        return {}


def mark(workdir: pathlib.Path, reason: str) -> None:
    """Leaves word in a trial's folder that it is stopped, and why."""
    with trials_.whole(workdir / status.STOPPED_FILE) as path:
        path.write_text(json.dumps({"reason": reason}) + "\n")


def unmark(workdir: pathlib.Path) -> None:
    """Lets a trial go on."""
    (workdir / status.STOPPED_FILE).unlink(missing_ok=True)
