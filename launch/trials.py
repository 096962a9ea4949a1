"""The trials of a search: which runs there are, where each lives, how far each is.

And which the search has no more use for: the median stopping rule of Golovin et al., Google
Vizier, KDD 2017, section 3.2.2.
"""

import contextlib
import csv
import io
import json
import pathlib
import re
import shlex
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from absl import flags
from ml_collections import config_flags

from jbias import config as jc
from jbias.launch import search_space
from jbias.runs import status
from jbias.runtime import messages

ENDED = ("done", "diverged", "stopped")  # What `run` leaves alone, beside failed ones.


class Search(NamedTuple):
    """What is searched: configs, what holds for all trials, and what differs."""

    configs: tuple[str, ...]
    changes: tuple[str, ...]  # Such as "--config.epochs=2.0".
    axes: tuple[search_space.SearchAxis, ...]
    kind: str  # "grid" or "random".
    count: int  # Of draws for each config; a grid has its own.
    seed: int  # Of the draws.


class Trial(NamedTuple):
    """One run of a search."""

    name: str  # As jbias.config.run_name says, by the hash of all that decides numbers.
    workdir: pathlib.Path
    arguments: tuple[str, ...]  # --config=... and its changes.
    values: Mapping[str, Any]  # What the axes gave.
    config: Mapping[str, Any]

    @property
    def state(self) -> status.RunStatus:
        try:
            return status.read(self.workdir)
        except (ValueError, OSError) as error:
            return _damaged(error)


class TrialStatus(NamedTuple):
    """What one look into a trial's folder tells."""

    trial: Trial
    state: status.RunStatus
    best: tuple[float, int] | None  # Its best validation accuracy, and at which step.


def _damaged(error: Exception) -> status.RunStatus:
    return status.RunStatus("damaged", messages.one_line(error))


def command(
    trial: Trial, python: str = sys.executable, runs: str = ""
) -> tuple[str, ...]:
    """What trains it, wherever it is started; `runs` is where workdirs are there."""
    workdir = f"{runs.rstrip('/')}/{trial.name}" if runs else trial.workdir
    return (python, "-m", "jbias.main", *trial.arguments, f"--workdir={workdir}")


def shell_line(words: Sequence[str]) -> str:
    """A command as a shell reads it."""
    return shlex.join(words)


def check_devices(todo: Sequence[Trial], where: str) -> None:
    """Refuses trials that several processes cannot train: each has devices of its own."""
    for trial in todo:
        if devices := trial.config["run"]["devices"]:
            raise ValueError(
                f"--on={where}: config.run.devices must be 0, all, where several "
                f"machines train a run together, got {devices}; give "
                "--config.run.devices=0"
            )


def host_count(accelerator: str) -> int:
    """At least how many hosts a TPU slice has: one holds at most 8 chips, or cores."""
    slice_of = re.fullmatch(r"(?:tpu-)?v\d\w*-(\d+)", accelerator)
    size = int(slice_of[1]) if slice_of else 1
    return -(-size // 8)


def label(trial: Trial, length: int = 40) -> str:
    """Its name as clouds allow it: lower case, digits and hyphens, ends with the hash."""
    text = re.sub("[^a-z0-9]+", "-", trial.name.lower()).strip("-")
    head, _, tail = text.rpartition("-")
    head = head[: length - len(tail) - 1].rstrip("-")
    return f"{head}-{tail}" if head[:1].isalpha() else f"run-{tail}"


def plan(search: Search, workdir: pathlib.Path) -> list[Trial]:
    """All trials in order; each is read before any is started.

    ValueError for a config that cannot be read, or one that trains branches (`vary`).
    """
    if search.kind == "random":
        found = search_space.sample(search.axes, search.count, search.seed)
    else:
        found = search_space.grid(search.axes)
    trials: dict[str, Trial] = {}
    for named in search.configs:
        for values in found:
            changes = (*search.changes, *search_space.as_flags(values))
            config = _config(named, changes)
            name = jc.run_name(config).replace("/", "-")
            arguments = (f"--config={named}", *changes)
            one = Trial(name, workdir / name, arguments, values, config)
            if (first := trials.setdefault(name, one)) is not one:
                _refuse_second(first, one)
    return [*trials.values()]


def _refuse_second(first: Trial, one: Trial) -> None:
    """Refuses two combinations that would share a workdir, as one of them were lost."""
    if first.config == one.config:
        for key, b in one.values.items():
            if repr(a := first.values[key]) == repr(b):
                continue
            raise ValueError(
                f"--config.{key}: must list different values, got {a!r} and {b!r}, which "
                f"are one run, {one.name}; leave one out"
            )
        return  # Of two configs that are the same: nothing is lost.
    if jc.identity(first.config) == jc.identity(one.config):
        raise ValueError(
            f"{' '.join(first.arguments)} and {' '.join(one.arguments)} are one run, "
            f"{one.name}: what differs decides no number; leave one out"
        )
    raise ValueError(
        f"{' '.join(first.arguments)} and {' '.join(one.arguments)} have the same hash, "
        f"{one.name}; change one of them a little, or search them apart"
    )


def _config(named: str, changes: Sequence[str]) -> dict[str, Any]:
    """The config that `python -m jbias.main` would read from these arguments."""
    first = jc.to_dict(jc.load(named, changes, flag="config"))
    known = flags.FlagValues()
    arguments = [f"--config={named}", *changes]
    config_flags.DEFINE_config_file("config", flag_values=known, sys_argv=arguments)
    try:
        known(["jbias", *jc.resolve_arguments(arguments)])
    except (flags.Error, ValueError, TypeError, AttributeError, KeyError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{' '.join(arguments)}: {reason}") from error
    config = jc.to_dict(known["config"].value)
    if config["vary"]:
        raise ValueError(
            f"{named}: a trial is a run without branches, got vary; make axes of it, as "
            "--config.optim.rate=[0.03, 0.1]"
        )
    assert first.keys() == config.keys(), named
    return config


def statuses(trials: Sequence[Trial]) -> list[TrialStatus]:
    """Looks once into the folder of each; what cannot be read is `damaged`."""
    return [_status(trial, trial.state) for trial in trials]


def _status(trial: Trial, state: status.RunStatus) -> TrialStatus:
    if state.phase == "damaged":
        return TrialStatus(trial, state, None)
    try:
        return TrialStatus(trial, state, objective(trial.workdir))
    except (ValueError, OSError) as error:
        return TrialStatus(trial, _damaged(error), None)


def objective(workdir: pathlib.Path) -> tuple[float, int] | None:
    """The best validation accuracy (the mean over all seeds) and its step, if any."""
    curve = status.validation_curve(workdir)
    return max(((v, s) for s, v in curve.items()), key=_early) if curve else None


def _early(found: tuple[float, int]) -> tuple[float, int]:
    return found[0], -found[1]


def best(looks: Sequence[TrialStatus]) -> TrialStatus | None:
    """The trial that is best in validation, of those that are done; test sets have no say.

    The first of equal ones.
    """
    done = [one for one in looks if one.state.phase == "done" and one.best]
    return max(done, key=lambda one: one.best[0]) if done else None


def status_line(trial: Trial, state: status.RunStatus, queued: str = "") -> str:
    """What one line tells of a trial."""
    word = queued if queued and state.phase != "running" else state.phase
    parts = [trial.name]
    if state.steps:
        parts.append(f"step {state.step}/{state.steps}")
    if state.accuracy is not None:
        parts.append(f"valid {100 * state.accuracy:.1f}")
    if state.diverged:
        parts.append(f"diverged: seed {', '.join(map(str, state.diverged))}")
    parts += [f"{key}={value}" for key, value in trial.values.items()]
    if state.reason and word == state.phase:
        parts.append(state.reason)
    return f"{word:<11} {messages.one_line(', '.join(parts))}"


def count_line(states: Sequence[status.RunStatus]) -> str:
    """How many are in which state."""
    words = [state.phase for state in states]
    told = [f"{words.count(w)} {w}" for w in status.PHASES if w in words]
    return f"{len(words)} trials: {', '.join(told)}"


def fraction_done(states: Sequence[status.RunStatus]) -> float:
    """The part of all steps that is done; what is ended has none left."""
    parts = [
        1.0
        if state.phase in (*ENDED, "failed", "damaged")
        else min(1.0, state.step / state.steps)
        if state.steps
        else 0.0
        for state in states
    ]
    return sum(parts) / max(1, len(parts))


def to_csv(looks: Sequence[TrialStatus]) -> str:
    """All trials as CSV."""
    keys = [*dict.fromkeys(key for one in looks for key in one.trial.values)]
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n").writerow
    head = ["trial", "state", "reason", "step", "steps", "valid", "valid_step"]
    write([*head, *keys, "workdir", "command"])
    for trial, state, told in looks:
        write(
            [trial.name, state.phase, state.reason, state.step, state.steps]
            + [*(told or ("", ""))]
            + [trial.values.get(key, "") for key in keys]
            + [trial.workdir, shell_line(command(trial, "python"))]
        )
    return out.getvalue()


@contextlib.contextmanager
def write_atomically(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A path to write to, which gets its name once all is written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    yield part
    part.replace(path)


MIN_COMPLETED = 3  # Completed trials before any is stopped: fewer say little.


def median_rule(
    curve: Mapping[int, float],
    completed: Sequence[Mapping[int, float]],
    *,
    fewest: int = MIN_COMPLETED,
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


def to_stop(
    running: Sequence[Trial],
    all_trials: Sequence[Trial],
    *,
    fewest: int,
    grace: int,
) -> list[tuple[Trial, str]]:
    """The trials to stop, and why."""
    completed = [_curve(trial, ended=True) for trial in all_trials]
    found = []
    for trial in running:
        curve = _curve(trial)
        if why := median_rule(curve, completed, fewest=fewest, grace=grace):
            found.append((trial, why))
    return found


def _curve(trial: Trial, *, ended: bool = False) -> Mapping[int, float]:
    """A trial's curve; one that cannot be read has no say, and `status` tells of it.

    ended: one that is not done has none either.
    """
    try:
        if ended and not status.is_done(trial.workdir):
            return {}
        return status.validation_curve(trial.workdir)
    except (ValueError, OSError):
        return {}


def mark_stopped(workdir: pathlib.Path, reason: str) -> None:
    """Leaves word in a trial's folder that it is stopped, and why."""
    with write_atomically(workdir / status.STOPPED_FILE) as path:
        path.write_text(json.dumps({"reason": reason}) + "\n")


def clear_stopped(workdir: pathlib.Path) -> None:
    """Lets a trial go on."""
    (workdir / status.STOPPED_FILE).unlink(missing_ok=True)
