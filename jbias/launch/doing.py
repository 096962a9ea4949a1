"""What `python -m launch.sweep` does: plans the trials, starts or shows them."""

import argparse
import functools
import hashlib
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import time
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jbias import config as jc
from jbias import config_files, console, disk, presets
from jbias.launch import axes, local, sky, slurm, stopping, tpu_pod, trials, xpk

CLOUDS = types.MappingProxyType({"tpu_pod": tpu_pod, "xpk": xpk, "sky": sky})
EXECUTORS = types.MappingProxyType({"local": local, "slurm": slurm, **CLOUDS})
_STOPPED = {"SIGINT": 130, "SIGTERM": 143}
_DEFAULTS = {"search": "grid", "trials": 10, "seed": 0}
_DEFAULTS |= {"stop": "never", "fewest": stopping.FEWEST, "grace": 0}


def run(args: argparse.Namespace) -> int:
    """Does what the arguments say; returns the exit code."""
    say = console.logger(None)
    workdir = pathlib.Path(args.workdir)
    if "\n" in args.workdir or "://" in args.workdir:
        raise ValueError(
            f"--workdir: must be a directory here, got {args.workdir!r}; where runs are in "
            "a cloud says --on=...:runs="
        )
    asked = _settled(args, workdir)
    where, options = _where(args.on)
    found = trials.planned(_search(asked), workdir)
    if args.what == "status":
        return _status(found, say)
    todo = _todo(found, args, asked)
    if args.dry_run:
        return _shown(found, todo, where, options)
    _remember(asked, workdir)
    if where in CLOUDS:
        return _handed_over(todo, where, options, say)
    fewest, grace = asked["fewest"], asked["grace"]
    rule = functools.partial(stopping.due, all_trials=found, fewest=fewest, grace=grace)
    stop = rule if asked["stop"] == "median" else None
    if where == "slurm":
        return _on_slurm(found, todo, options, args, stop, say)
    return _here(found, todo, options, args, stop, say)


def _here(
    found: Sequence[trials.Trial],
    todo: Sequence[trials.Trial],
    options: Mapping[str, Any],
    args: argparse.Namespace,
    stop: Callable | None,
    say: Callable[[str], None],
) -> int:
    """Runs trials on this machine, each once; waits for those that others run."""
    places, tried = local.places(**options), set[str]()
    left = len(found) - len(todo)
    say(f"{len(todo)} of {len(found)} trials to run" + f", {left} not" * bool(left))
    while True:
        tried |= {trial.name for trial in todo}
        ended = local.run(todo, found, places, say=say, stop=stop, every=args.every)
        if ended:
            _keep_table(found, found[0].workdir.parent)
            say(f"{ended}: all running trials have saved; the same command goes on")
            return _STOPPED[ended]
        others = [one for one in found if one.state.word == "running"]
        if others:
            say(f"waiting for {others[0].name}, which another process runs ...")
            while others[0].state.word == "running":
                time.sleep(1)
        words = ("not started", "interrupted")
        todo = [t for t in others if t.name not in tried and t.state.word in words]
        if not others:
            break
    _keep_table(found, found[0].workdir.parent)
    return _summed_up(found, say)


def _settled(args: argparse.Namespace, workdir: pathlib.Path) -> dict[str, Any]:
    """The search as JSON: what was asked for now, else what the folder was begun with."""
    given = {key: getattr(args, key) for key in _DEFAULTS}
    given = {key: value for key, value in given.items() if value is not None}
    if args.config and args.sweep:
        raise ValueError("--sweep: the file names the configs; leave --config out")
    if args.config or args.sweep:
        file = _of_file(args.sweep) if args.sweep else {"config": args.config}
        changes = [*file.pop("changes", ()), *args.changes]
        return {**_DEFAULTS, **file, **given, "changes": changes}
    path = _memory(workdir)
    if not path.exists():
        raise ValueError(
            f"{workdir}: no search was begun there; name it: --config=configs/erm.py "
            "--config.optim.rate=[0.03,0.1]"
        )
    if args.changes:
        raise ValueError(f"{args.changes[0]}: needs --config, or --sweep")
    return {**_DEFAULTS, **_remembered(path), **given}


def _remembered(path: pathlib.Path) -> dict[str, Any]:
    """The search that a folder was begun with; code that others named is not run.

    ValueError where it is damaged, or names files of code and was not begun here.
    """
    text = path.read_text()
    try:
        told = json.loads(text)
        configs, changes = told["config"], told["changes"]
        whole = all(isinstance(one, str) for one in (*configs, *changes))
        whole &= isinstance(configs, list) and isinstance(changes, list)
        whole &= all(type(told.get(k, v)) is type(v) for k, v in _DEFAULTS.items())
    except (ValueError, RecursionError, KeyError, TypeError):
        whole = False
    if not whole:
        raise ValueError(
            f"{path}: must be the JSON of a search; remove it, and give --config again"
        )
    foreign = [one for one in configs if not one.startswith(presets.PREFIX)]
    known = _mark(path, text).exists() or os.environ.get("JBIAS_OWN_CODE")
    if foreign and not known:
        raise ValueError(
            f"{path}: was not begun by you here, and names code that would be run: "
            f"{foreign[0]}; give --config again, or set JBIAS_OWN_CODE=1 if you trust it"
        )
    return told


def _mark(path: pathlib.Path, text: str) -> pathlib.Path:
    """What stands in this user's cache once a search of these words was begun there."""
    words = hashlib.sha256(f"{path.resolve()}\n{text}".encode()).hexdigest()
    return disk.cache("searches") / words


def _of_file(named: str) -> dict[str, Any]:
    """What a file's get_sweep gives, with its axes as changes."""
    path, _, arg = presets.path(named, "sweep").partition(":")
    if not pathlib.Path(path).is_file():
        raise ValueError(f"--sweep: no file {path!r}")
    told = dict(config_files.module("sweep", path).get_sweep(arg))
    known = {*_DEFAULTS, "config", "axes", "changes"}
    for key in told:
        if key not in known:
            raise ValueError(f"--sweep: unknown key {key!r}; {jc.nearest(key, known)}")
    configs = told.get("config", ())
    told["config"] = [configs] if isinstance(configs, str) else [*configs]
    changes = axes.told(told.pop("changes", {}))
    for key, values in told.pop("axes", {}).items():
        kind, ends = values if isinstance(values, tuple) else ("choice", values)
        axis = axes.checked(key, kind, ends)
        changes.append(f"--config.{key}={axes.written(axis)}")
    return {**told, "changes": changes}


def _search(asked: Mapping[str, Any]) -> trials.Search:
    """The search, its axes apart from what holds for all trials."""
    fixed, found = [], []
    for change in asked["changes"]:
        key, _, text = change.removeprefix("--config.").partition("=")
        axis = axes.read(key, text)
        fixed += [change] if axis is None else []
        found += [axis] if axis else []
    if not asked["config"]:
        raise ValueError("--config is missing, e.g. --config=jbias:erm")
    return trials.Search(
        tuple(asked["config"]),
        tuple(fixed),
        tuple(found),
        asked["search"],
        asked["trials"],
        asked["seed"],
    )


def _where(text: str) -> tuple[str, dict[str, Any]]:
    """The executor's name and its options."""
    name, _, arg = text.partition(":")
    if name not in EXECUTORS:
        raise ValueError(f"--on: unknown {name!r}; {jc.nearest(name, EXECUTORS)}")
    executor = EXECUTORS[name]
    options = vars(jc.parse_arg(arg, f"--on={name}", **executor.OPTIONS))
    for key, value in options.items():
        if "\n" in str(value):
            raise ValueError(f"--on={name}: {key} must be one line, got {value!r}")
    for key in getattr(executor, "NEEDED", ()):
        if not options[key]:
            raise ValueError(f"--on={name}: {key} is missing, e.g. --on={name}:{key}=X")
    return name, options


def _todo(
    found: Sequence[trials.Trial], args: argparse.Namespace, asked: Mapping[str, Any]
) -> list[trials.Trial]:
    """The trials to start."""
    words = {"not started", "interrupted"}
    if args.what == "retry":
        words |= {"failed"}
    if args.stopped or asked["stop"] == "never":
        words |= {"stopped"}
    return [trial for trial in found if trial.state.word in words]


def _shown(
    found: Sequence[trials.Trial],
    todo: Sequence[trials.Trial],
    where: str,
    options: Mapping[str, Any],
) -> int:
    """Prints what would be started, to standard output; the rest to standard error."""
    say = console.logger(None)
    for trial in found:
        if trial not in todo:
            say(trials.line(trial, trial.state))
    if not todo:
        say("nothing to start")
    elif where == "local":
        for trial in todo:
            print(trials.shown(trials.command(trial)))
    else:
        print(EXECUTORS[where].script(todo, options), end="")
    return 0


def _status(found: Sequence[trials.Trial], say: Callable[[str], None]) -> int:
    try:
        there = slurm.active(found)
    except ValueError as error:
        say(f"{error}; what follows is what the workdirs tell")
        there = {}
    for trial in found:
        print(trials.line(trial, trial.state, there.get(trial.name, "")))
    print(trials.count([trial.state for trial in found]))
    _tell_best(found, print)
    if found[0].workdir.parent.is_dir():
        _keep_table(found, found[0].workdir.parent)
    return 0


def _on_slurm(
    found: Sequence[trials.Trial],
    todo: list[trials.Trial],
    options: Mapping[str, Any],
    args: argparse.Namespace,
    stop: Callable | None,
    say: Callable[[str], None],
) -> int:
    there = slurm.active(found)
    todo = [trial for trial in todo if trial.name not in there]
    if todo:
        slurm.submit(todo, options, say)
    say(
        f"{len(todo)} of {len(found)} trials submitted, {len(there)} were there already"
    )
    if not args.wait:
        return 0
    slurm.wait(found, say=say, stop=stop, every=args.every)
    _keep_table(found, found[0].workdir.parent)
    return _summed_up(found, say)


def _handed_over(
    todo: Sequence[trials.Trial],
    where: str,
    options: Mapping[str, Any],
    say: Callable[[str], None],
) -> int:
    """Runs a cloud's script."""
    program = CLOUDS[where].PROGRAM
    if not todo:
        say("nothing to start")
        return 0
    if not shutil.which(program):
        raise ValueError(
            f"--on={where}: no {program} here; install it, or --dry-run shows the script"
        )
    path = todo[0].workdir.parent / ".sweep" / f"{where}.sh"
    with trials.whole(path) as part:
        part.write_text(CLOUDS[where].script(todo, options))
    say(f"running {path}")
    return min(1, subprocess.run(["bash", str(path)], check=False).returncode)


def _summed_up(found: Sequence[trials.Trial], say: Callable[[str], None]) -> int:
    """Tells of what is not done, and of the best; returns the exit code."""
    states = [trial.state for trial in found]
    say(trials.count(states))
    workdir = found[0].workdir.parent
    left = [state for state in states if state.word not in trials.ENDED]
    if any(state.word == "failed" for state in states):
        say(
            f"again: python -m launch.sweep retry --workdir={shlex.quote(str(workdir))}"
        )
    _tell_best(found, say)
    return 1 if left else 0


def _tell_best(found: Sequence[trials.Trial], say: Callable[[str], None]) -> None:
    best = trials.best(found)
    if best is None:
        say("no trial is done yet")
        return
    trial, value, step = best
    say(f"best in validation: {100 * value:.2f} at step {step}, {trial.workdir}")
    say(trials.shown(trials.command(trial, "python")))


def _keep_table(found: Sequence[trials.Trial], workdir: pathlib.Path) -> None:
    with trials.whole(workdir / "trials.csv") as part:
        part.write_text(trials.table(found), encoding="utf-8")


def _memory(workdir: pathlib.Path) -> pathlib.Path:
    return workdir / ".sweep" / "search.json"


def _remember(asked: Mapping[str, Any], workdir: pathlib.Path) -> None:
    """Keeps the search, for `status` and `retry`."""
    path, text = _memory(workdir), json.dumps(asked, indent=1) + "\n"
    with trials.whole(path) as part:
        part.write_text(text)
    mark = _mark(path, text)
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()
