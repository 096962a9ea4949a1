"""The trials of a search: which runs there are, where each lives, how far each is."""

import functools
import json
import pathlib
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
from etils import epath

from jbias import config as jc
from jbias.launch import search_space
from jbias.launch.search import CONFIG, Search
from jbias.runs import status
from jbias.runtime import files, messages

ENDED = ("done", "diverged", "stopped")  # What `run` leaves alone, beside failed ones.


class Trial(NamedTuple):
    """One run of a search."""

    name: str  # As jbias.config.run_name says, by the hash of all that decides numbers.
    workdir: pathlib.Path
    arguments: tuple[str, ...]  # --config=... and its changes.
    values: Mapping[str, str]  # What the axes gave, as flags have it.
    config: Mapping[str, Any]


class TrialStatus(NamedTuple):
    """What one look into a trial's folder tells."""

    trial: Trial
    state: status.RunStatus
    curve: Mapping[int, float]  # Validation accuracy by step: the mean over all seeds.

    @property
    def best(self) -> tuple[float, int] | None:
        """The best validation accuracy and the first step that had it, if any."""
        step = max(self.curve, key=self.curve.get, default=None)
        return None if step is None else (self.curve[step], step)


def command(
    trial: Trial, python: str = sys.executable, runs: str = ""
) -> tuple[str, ...]:
    """What trains it, wherever it is started; `runs` is where workdirs are there."""
    workdir = f"{runs.rstrip('/')}/{trial.name}" if runs else trial.workdir
    return (python, "-m", "jbias.main", *trial.arguments, f"--workdir={workdir}")


def check_devices(todo: Sequence[Trial], where: str, hosts: int) -> None:
    """Refuses trials that several processes cannot train: each has devices of its own."""
    for trial in todo:
        if hosts > 1 and (devices := trial.config["run"]["devices"]):
            raise ValueError(
                f"--on={where}: config.run.devices must be 0, all, where several "
                f"machines train a run together, got {devices}; give "
                "--config.run.devices=0"
            )


def host_count(accelerator: str, chips: int = 8) -> int:
    """At least how many hosts a TPU slice has, by its name.

    One holds 8 cores, which is what v2 to v4 and v5p count; of the others at most `chips`.
    """
    slice_of = re.fullmatch(r"(?:tpu-)?v(\d\w*)-(\d+)", accelerator)
    if not slice_of:
        return 1
    return -(-int(slice_of[2]) // (chips if slice_of[1] in ("5litepod", "6e") else 8))


def label(trial: Trial, length: int = 40) -> str:
    """Its name as clouds allow it: lower case, digits and hyphens, ends with the hash."""
    text = re.sub("[^a-z0-9]+", "-", trial.name.lower()).strip("-")
    head, _, tail = text.rpartition("-")
    head = head[: length - len(tail) - 1].rstrip("-")
    return f"{head}-{tail}" if head[:1].isalpha() else f"run-{tail}"


def make(search: Search, workdir: pathlib.Path, params: Mapping[str, Any]) -> Trial:
    """The trial of what was drawn, by the search's space.

    ValueError for a config that cannot be read, or one that trains branches (`vary`).
    """
    named = params.get(CONFIG, search.config[0])
    values = {key: search_space.as_text(params[key], drawn=True) for key in search.axes}
    changes = (*search.fixed, *search_space.as_flags(values))
    config = read_config(named, changes)
    name = jc.run_name(config).replace("/", "-")
    return Trial(name, workdir / name, (f"--config={named}", *changes), values, config)


def refuse_second(first: Trial, one: Trial) -> None:
    """Refuses two combinations that would share a workdir, as one of them were lost."""
    if (first.config, first.values) != (one.config, one.values):
        same = jc.identity(first.config) == jc.identity(one.config)
        raise ValueError(
            f"{' '.join(first.arguments)} and {' '.join(one.arguments)} "
            f"{'are one run' if same else 'have the same hash'}, {one.name}; leave one out"
        )


@functools.cache
def read_config(named: str, changes: tuple[str, ...]) -> dict[str, Any]:
    """Return the config that `jbias train` would read from these arguments.

    ValueError where that would refuse an entry.
    """
    from jbias import run_spec  # Late: --help waits for it nowhere.

    config = jc.to_dict(jc.load(named, changes, flag="config"))
    if config["vary"]:
        raise ValueError(
            f"{named}: a trial is a run without branches, got vary; make axes of it, as "
            "--config.optim.rate=[0.03, 0.1]"
        )
    run_spec.RunSpec.from_config(config)
    return config


def look(trial: Trial) -> TrialStatus:
    """Looks once into its folder; what cannot be read is `damaged`."""
    try:
        state = status.read(trial.workdir)
        return TrialStatus(trial, state, status.validation_curve(trial.workdir))
    except (ValueError, OSError) as error:
        state = status.RunStatus("damaged", messages.one_line(error))
        return TrialStatus(trial, state, {})


def best(looks: Sequence[TrialStatus]) -> TrialStatus | None:
    """The trial that is best in validation, of those that are done; test sets have no say.

    The first of equal ones.
    """
    done = [one for one in looks if one.state.phase == "done" and one.best]
    return max(done, key=lambda one: one.best[0], default=None)


def status_line(look: TrialStatus, queued: str = "") -> str:
    """What one line tells of a trial."""
    trial, state, _ = look
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


def count_line(looks: Sequence[TrialStatus]) -> str:
    """How many are in which state."""
    words = [one.state.phase for one in looks]
    told = [f"{words.count(w)} {w}" for w in status.PHASES if w in words]
    return f"{len(words)} trials: {', '.join(told)}"


def fraction_done(looks: Sequence[TrialStatus]) -> float:
    """The part of all steps that is done; what is ended has none left."""
    ended = (*ENDED, "failed", "damaged")
    done = (
        1 if one.phase in ended else one.steps and min(1.0, one.step / one.steps)
        for _, one, _ in looks
    )
    return sum(done) / max(1, len(looks))


def progress(looks: Sequence[TrialStatus], first: float, spent: float) -> str:
    """How many are in which state, when all will be done, and which is best.

    first: the part that was done `spent` seconds ago.
    """
    now, told = fraction_done(looks), count_line(looks)
    if now > first:
        left = int((1 - now) * spent / (now - first))
        told += f"; ETA {left // 3600}:{left // 60 % 60:02}:{left % 60:02}"
    if found := best(looks):
        told += f"; best valid {100 * found.best[0]:.1f}: {found.trial.name}"
    return told


def to_csv(looks: Sequence[TrialStatus]) -> str:
    """All trials as CSV."""
    rows = [
        {"trial": one.trial.name, "state": one.state.phase, "reason": one.state.reason}
        | {"step": one.state.step, "steps": one.state.steps}
        | dict(zip(("valid", "valid_step"), one.best or ("", ""), strict=True))
        | {**one.trial.values, "workdir": one.trial.workdir}
        | {"command": shlex.join(command(one.trial, "python"))}
        for one in looks
    ]
    return pd.DataFrame(rows).to_csv(index=False)


def mark_stopped(workdir: pathlib.Path, reason: str) -> None:
    """Leaves word in a trial's folder that it is stopped, and why."""
    text = json.dumps({"reason": reason}) + "\n"
    files.write(epath.Path(workdir) / status.STOPPED_FILE, text)


def clear_stopped(workdir: pathlib.Path) -> None:
    """Lets a trial go on."""
    (workdir / status.STOPPED_FILE).unlink(missing_ok=True)
