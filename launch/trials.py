"""The trials of a search: their commands, workdirs and status."""

import functools
import json
import math
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

# Phases of trials that have ended as planned, so not those that failed.
ENDED = ("done", "diverged", "stopped")


class Trial(NamedTuple):
    """One run of a search, with its own workdir and config."""

    name: str  # As jbias.config.run_name, with a hash of the config.
    workdir: pathlib.Path
    arguments: tuple[str, ...]  # --config=... and --config.KEY=VALUE.
    values: Mapping[str, str]  # The values of the axes, as text for flags.
    config: Mapping[str, Any]


class TrialStatus(NamedTuple):
    """The status of a trial, as its workdir shows it at one time."""

    trial: Trial
    state: status.RunStatus
    curve: Mapping[int, float]  # Validation accuracy by step: the mean over all seeds.

    @property
    def best(self) -> tuple[float, int] | None:
        """The best validation accuracy and its first step; None if never evaluated."""
        step = max(self.curve, key=self.curve.get, default=None)
        return None if step is None else (self.curve[step], step)


def command(
    trial: Trial, python: str = sys.executable, runs: str = ""
) -> tuple[str, ...]:
    """Return the command, as a tuple of words, that trains a trial.

    python: path of the interpreter. runs: folder of the workdirs on another machine; "" for
    the trial's own workdir.
    """
    workdir = f"{runs.rstrip('/')}/{trial.name}" if runs else trial.workdir
    return (python, "-m", "jbias.main", *trial.arguments, f"--workdir={workdir}")


def check_devices(todo: Sequence[Trial], where: str, hosts: int) -> None:
    """Raise ValueError if a trial sets config.run.devices and needs several hosts.

    where: the executor, such as "xpk:type=v6e-16", for the message. hosts: number of hosts per
    trial.
    """
    for trial in todo:
        devices = trial.config["run"]["devices"]
        if hosts > 1 and devices:
            raise ValueError(
                f"--on={where}: config.run.devices must be 0, all, where several "
                f"machines train a run together, got {devices}; give "
                "--config.run.devices=0"
            )


def host_count(accelerator: str, chips: int = 8) -> int:
    """Return the minimum number of hosts of a TPU slice such as v6e-16; 1 for other names.

    A host has 8 cores of the TPUs that are named by cores (v2 to v4 and v5p), and at most
    `chips` chips of the TPUs that are named by chips (v5litepod and v6e).
    """
    match = re.fullmatch(r"(?:tpu-)?v(\d\w*)-(\d+)", accelerator)
    if not match:
        return 1
    generation, size = match[1], int(match[2])
    host_size = chips if generation in ("5litepod", "6e") else 8
    return math.ceil(size / host_size)


def label(trial: Trial, length: int = 40) -> str:
    """Return the trial's name for clouds: lower-case letters, digits and hyphens.

    The label has at most `length` letters, and ends with the hash.
    """
    text = re.sub("[^a-z0-9]+", "-", trial.name.lower()).strip("-")
    head, _, run_hash = text.rpartition("-")
    head = head[: length - len(run_hash) - 1].rstrip("-")
    return f"{head}-{run_hash}" if head[:1].isalpha() else f"run-{run_hash}"


def make(search: Search, workdir: pathlib.Path, params: Mapping[str, Any]) -> Trial:
    """Return the trial with sampled parameters.

    workdir: of the search. params: values by key of `search.space`. ValueError for an
    invalid config, or a config with branches (`vary`).
    """
    config_name = params.get(CONFIG, search.config[0])
    values = {
        key: search_space.as_text(params[key], is_drawn=True) for key in search.axes
    }
    changes = (*search.fixed, *search_space.as_flags(values))
    config = read_config(config_name, changes)
    name = jc.run_name(config).replace("/", "-")
    return Trial(
        name,
        workdir / name,
        arguments=(f"--config={config_name}", *changes),
        values=values,
        config=config,
    )


def refuse_second(first: Trial, second: Trial) -> None:
    """Raise ValueError for different trials with the same name, and so the same workdir."""
    if (first.config, first.values) != (second.config, second.values):
        is_same_run = jc.identity(first.config) == jc.identity(second.config)
        reason = "are the same run" if is_same_run else "have the same hash"
        raise ValueError(
            f"{' '.join(first.arguments)} and {' '.join(second.arguments)} {reason}, "
            f"{second.name}; leave one out"
        )


@functools.cache
def read_config(name: str, changes: tuple[str, ...]) -> dict[str, Any]:
    """Return the config that `jbias train` would read from these arguments.

    name: FILE:ARGUMENTS. changes: flags --config.KEY=VALUE. ValueError if invalid.
    """
    from jbias import run_spec  # Late, for a fast --help.

    config = jc.to_dict(jc.load(name, changes, flag="config"))
    if config["vary"]:
        raise ValueError(
            f"{name}: a trial is a run without branches, got vary; use axes instead, such "
            "as --config.optim.rate=[0.03, 0.1]"
        )
    run_spec.RunSpec.from_config(config)
    return config


def read_status(trial: Trial) -> TrialStatus:
    """Return the status of a trial; phase "damaged" if its workdir cannot be read."""
    try:
        state = status.read(trial.workdir)
        return TrialStatus(trial, state, status.validation_curve(trial.workdir))
    except (ValueError, OSError) as error:
        state = status.RunStatus("damaged", messages.one_line(error))
        return TrialStatus(trial, state, {})


def best(statuses: Sequence[TrialStatus]) -> TrialStatus | None:
    """Return the finished trial with the highest validation accuracy, the first if several.

    None if no trial is done.
    """
    done = [x for x in statuses if x.state.phase == "done" and x.best]
    return max(done, key=lambda x: x.best[0], default=None)


def status_line(trial_status: TrialStatus, job_state: str = "") -> str:
    """Return a log line about a trial's status.

    job_state: state of the trial's job on a cluster, such as "queued"; "" without a job.
    """
    trial, state, _ = trial_status
    word = job_state if job_state and state.phase != "running" else state.phase
    phrases = [trial.name]
    if state.steps:
        phrases.append(f"step {state.step}/{state.steps}")
    if state.accuracy is not None:
        phrases.append(f"valid {100 * state.accuracy:.1f}")
    if state.diverged:
        phrases.append(f"diverged: seed {', '.join(map(str, state.diverged))}")
    phrases += [f"{key}={value}" for key, value in trial.values.items()]
    if state.reason and word == state.phase:
        phrases.append(state.reason)
    return f"{word:<11} {messages.one_line(', '.join(phrases))}"


def count_line(statuses: Sequence[TrialStatus]) -> str:
    """Return a log line with the number of trials in each phase."""
    phases = [x.state.phase for x in statuses]
    counts = [
        f"{phases.count(phase)} {phase}" for phase in status.PHASES if phase in phases
    ]
    return f"{len(phases)} trials: {', '.join(counts)}"


def fraction_done(statuses: Sequence[TrialStatus]) -> float:
    """Return the mean over trials of the fraction of steps done; 1 for an ended trial."""
    return sum(map(_fraction_done, statuses)) / max(1, len(statuses))


def _fraction_done(trial_status: TrialStatus) -> float:
    """Return a trial's fraction of steps done; 1 if it has ended, failed or is damaged."""
    state = trial_status.state
    if state.phase in (*ENDED, "failed", "damaged"):
        return 1
    return min(1.0, state.step / state.steps) if state.steps else 0


def progress(
    statuses: Sequence[TrialStatus], start_fraction: float, seconds: float
) -> str:
    """Return a log line with the trials per phase, the ETA, and the best trial.

    start_fraction: value of `fraction_done` from `seconds` seconds ago.
    """
    fraction, line = fraction_done(statuses), count_line(statuses)
    if fraction > start_fraction:
        eta = int((1 - fraction) * seconds / (fraction - start_fraction))
        line += f"; ETA {eta // 3600}:{eta // 60 % 60:02}:{eta % 60:02}"
    best_trial = best(statuses)
    if best_trial:
        accuracy, _ = best_trial.best
        line += f"; best valid {100 * accuracy:.1f}: {best_trial.trial.name}"
    return line


def to_csv(statuses: Sequence[TrialStatus]) -> str:
    """Return a table as CSV text, one row per trial: status, values and command."""
    rows = []
    for trial_status in statuses:
        trial, state, _ = trial_status
        accuracy, step = trial_status.best or ("", "")
        rows.append(
            {
                "trial": trial.name,
                "state": state.phase,
                "reason": state.reason,
                "step": state.step,
                "steps": state.steps,
                "valid": accuracy,
                "valid_step": step,
                **trial.values,
                "workdir": trial.workdir,
                "command": shlex.join(command(trial, "python")),
            }
        )
    return pd.DataFrame(rows).to_csv(index=False)


def mark_stopped(workdir: pathlib.Path, reason: str) -> None:
    """Write a file to a trial's workdir that marks the trial as stopped; reason: why."""
    text = json.dumps({"reason": reason}) + "\n"
    files.write(epath.Path(workdir) / status.STOPPED_FILE, text)


def clear_stopped(workdir: pathlib.Path) -> None:
    """Remove the mark of `mark_stopped`, so that the trial can be resumed."""
    (workdir / status.STOPPED_FILE).unlink(missing_ok=True)
