"""What `python -m launch.sweep` does: resolves the search, starts or shows its trials.

A search comes from the command line, from a file with `get_sweep`, or from the folder that
an earlier call began.
"""

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
from jbias.launch import local, search_space, sky, slurm, tpu_pod, trials, xpk
from jbias.runtime import console, files

CLOUDS = types.MappingProxyType({"tpu_pod": tpu_pod, "xpk": xpk, "sky": sky})
EXECUTORS = types.MappingProxyType({"local": local, "slurm": slurm, **CLOUDS})
_STOPPED = {"SIGINT": 130, "SIGTERM": 143}


def run_sweep(args: argparse.Namespace) -> int:
    """Does what the arguments say; returns the exit code."""
    say = console.logger(None)
    workdir = pathlib.Path(args.workdir)
    if "\n" in args.workdir or "://" in args.workdir:
        raise ValueError(
            f"--workdir: must be a directory here, got {args.workdir!r}; where runs are in "
            "a cloud says --on=...:runs="
        )
    search = resolve(args, workdir)
    where, options = _parse_executor(args.on)
    found = trials.plan(build_search(search), workdir)
    if args.what == "status":
        return _status(found, say)
    todo = _to_start(found, args, search["stop"])
    if args.dry_run:
        return _dry_run(found, todo, where, options)
    save_search(search, workdir)
    if where in CLOUDS:
        return _run_script(todo, where, options, say)
    fewest, grace = search["fewest"], search["grace"]
    rule = functools.partial(
        trials.to_stop, all_trials=found, fewest=fewest, grace=grace
    )
    stop = rule if search["stop"] == "median" else None
    if where == "slurm":
        return _on_slurm(found, todo, options, args, stop, say)
    return _on_this_machine(found, todo, options, args, stop, say)


def _on_this_machine(
    found: Sequence[trials.Trial],
    todo: Sequence[trials.Trial],
    options: Mapping[str, Any],
    args: argparse.Namespace,
    stop: Callable | None,
    say: Callable[[str], None],
) -> int:
    """Runs trials on this machine, each once; waits for those that others run."""
    slots, tried = local.slots(**options), set[str]()
    left = len(found) - len(todo)
    say(f"{len(todo)} of {len(found)} trials to run" + f", {left} not" * bool(left))
    while True:
        tried |= {trial.name for trial in todo}
        ended = local.run(todo, found, slots, say=say, stop=stop, every=args.every)
        if ended:
            _keep_table(trials.statuses(found), found[0].workdir.parent)
            say(f"{ended}: all running trials have saved; the same command goes on")
            return _STOPPED[ended]
        others = [one for one in found if one.state.phase == "running"]
        if others:
            say(f"waiting for {others[0].name}, which another process runs ...")
            while others[0].state.phase == "running":
                time.sleep(1)
        words = ("not started", "interrupted")
        todo = [t for t in others if t.name not in tried and t.state.phase in words]
        if not others:
            break
    return _finish(trials.statuses(found), say)


def _parse_executor(text: str) -> tuple[str, dict[str, Any]]:
    """The executor's name and its options."""
    name, _, arg = text.partition(":")
    jc.check_known("--on", name, EXECUTORS)
    executor = EXECUTORS[name]
    options = vars(jc.parse_arg(arg, f"--on={name}", **executor.OPTIONS))
    for key, value in options.items():
        if "\n" in str(value):
            raise ValueError(f"--on={name}: {key} must be one line, got {value!r}")
    for key in getattr(executor, "NEEDED", ()):
        if not options[key]:
            raise ValueError(f"--on={name}: {key} is missing, e.g. --on={name}:{key}=X")
    return name, options


def _to_start(
    found: Sequence[trials.Trial], args: argparse.Namespace, stop: str
) -> list[trials.Trial]:
    """The trials to start."""
    words = {"not started", "interrupted"}
    if args.what == "retry":
        words |= {"failed"}
    if args.stopped or stop == "never":
        words |= {"stopped"}
    return [trial for trial in found if trial.state.phase in words]


def _dry_run(
    found: Sequence[trials.Trial],
    todo: Sequence[trials.Trial],
    where: str,
    options: Mapping[str, Any],
) -> int:
    """Prints what would be started, to standard output; the rest to standard error."""
    say = console.logger(None)
    for trial in found:
        if trial not in todo:
            say(trials.status_line(trial, trial.state))
    if not todo:
        say("nothing to start")
    elif where == "local":
        for trial in todo:
            print(trials.shell_line(trials.command(trial)))
    else:
        print(EXECUTORS[where].script(todo, options), end="")
    return 0


def _status(found: Sequence[trials.Trial], say: Callable[[str], None]) -> int:
    try:
        there = slurm.active(found)
    except ValueError as error:
        say(f"{error}; what follows is what the workdirs tell")
        there = {}
    looks = trials.statuses(found)
    for trial, state, _ in looks:
        print(trials.status_line(trial, state, there.get(trial.name, "")))
    print(trials.count_line([one.state for one in looks]))
    _report_best(looks, print)
    if found[0].workdir.parent.is_dir():
        _keep_table(looks, found[0].workdir.parent)
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
    return _finish(trials.statuses(found), say)


def _run_script(
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
    with trials.write_atomically(path) as part:
        part.write_text(CLOUDS[where].script(todo, options))
    say(f"running {path}")
    return min(1, subprocess.run(["bash", str(path)], check=False).returncode)


def _finish(looks: Sequence[trials.TrialStatus], say: Callable[[str], None]) -> int:
    """Keeps the table, tells of what is not done and the best; gives the exit code."""
    states = [one.state for one in looks]
    workdir = looks[0].trial.workdir.parent
    _keep_table(looks, workdir)
    say(trials.count_line(states))
    for trial, state, _ in looks:
        if state.phase == "damaged":
            say(trials.status_line(trial, state))
    if any(state.phase == "failed" for state in states):
        say(
            f"again: python -m launch.sweep retry --workdir={shlex.quote(str(workdir))}"
        )
    _report_best(looks, say)
    return 1 if any(state.phase not in trials.ENDED for state in states) else 0


def _report_best(
    looks: Sequence[trials.TrialStatus], say: Callable[[str], None]
) -> None:
    if damaged := sum(one.state.phase == "damaged" for one in looks):
        say(
            f"{damaged} damaged: neither run again nor compared until mended, see above"
        )
    best = trials.best(looks)
    if best is None or best.best is None:
        say("no trial is done yet")
        return
    value, step = best.best
    say(f"best in validation: {100 * value:.2f} at step {step}, {best.trial.workdir}")
    say(trials.shell_line(trials.command(best.trial, "python")))


def _keep_table(looks: Sequence[trials.TrialStatus], workdir: pathlib.Path) -> None:
    with trials.write_atomically(workdir / "trials.csv") as part:
        part.write_text(trials.to_csv(looks), encoding="utf-8")


DEFAULTS = {"search": "grid", "trials": 10, "seed": 0}

DEFAULTS |= {"stop": "never", "fewest": trials.MIN_COMPLETED, "grace": 0}

_FILE_KEYS = {"config": str | list[str], "changes": dict, "axes": dict}


def resolve(args: argparse.Namespace, workdir: pathlib.Path) -> dict[str, Any]:
    """The search as JSON: what was asked for now, else what the folder was begun with."""
    given = {key: getattr(args, key) for key in DEFAULTS}
    given = {key: value for key, value in given.items() if value is not None}
    if args.config and args.sweep:
        raise ValueError("--sweep: the file names the configs; leave --config out")
    if args.config or args.sweep:
        file = _read_sweep_file(args.sweep) if args.sweep else {"config": args.config}
        changes = [*file.pop("changes", ()), *args.changes]
        return {**DEFAULTS, **file, **given, "changes": changes}
    path = _search_path(workdir)
    if not path.exists():
        raise ValueError(
            f"{workdir}: no search was begun there; name it: --config=configs/erm.py "
            "--config.optim.rate=[0.03,0.1]"
        )
    if args.changes:
        raise ValueError(f"{args.changes[0]}: needs --config, or --sweep")
    return {**DEFAULTS, **_saved_search(path), **given}


def _saved_search(path: pathlib.Path) -> dict[str, Any]:
    """The search that a folder was begun with; code that others named is not run.

    ValueError where it is damaged, or names files of code and was not begun here.
    """
    text = path.read_text()
    try:
        told = json.loads(text)
        configs, changes = told["config"], told["changes"]
        whole = all(isinstance(one, str) for one in (*configs, *changes))
        whole &= isinstance(configs, list) and isinstance(changes, list)
        whole &= all(type(told.get(k, v)) is type(v) for k, v in DEFAULTS.items())
    except (ValueError, RecursionError, KeyError, TypeError):
        whole = False
    if not whole:
        raise ValueError(
            f"{path}: must be the JSON of a search; remove it, and give --config again"
        )
    foreign = [one for one in configs if not one.startswith(jc.PRESET_PREFIX)]
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
    return files.cache_path("searches") / words


def _read_sweep_file(named: str) -> dict[str, Any]:
    """What a file's get_sweep gives, with its axes as changes."""
    path, _, arg = jc.resolve_preset(named, "sweep").partition(":")
    if not pathlib.Path(path).is_file():
        raise ValueError(f"--sweep: no file {path!r}")
    told = jc.call_in_file("sweep", path, "get_sweep", arg)
    if not isinstance(told, Mapping):
        raise ValueError(  # noqa: TRY004
            f"--sweep: {path}: get_sweep must return a dict, got {told!r}"
        )
    told = {"config": (), "changes": {}, "axes": {}, **told}
    known = {key: type(value) for key, value in DEFAULTS.items()} | _FILE_KEYS
    for key, value in told.items():
        jc.check_known("--sweep", key, known, "key")
        jc.check_type(f"--sweep: {key}", value, known[key])
    configs = told["config"]
    told["config"] = [configs] if isinstance(configs, str) else [*configs]
    changes = search_space.as_flags(told.pop("changes"))
    for key, values in told.pop("axes").items():
        changes.append(
            f"--config.{key}={search_space.format_axis(search_space.from_values(key, values))}"
        )
    return {**told, "changes": changes}


def build_search(asked: Mapping[str, Any]) -> trials.Search:
    """The search, its axes apart from what holds for all trials."""
    fixed, found, keys = [], [], []
    for change in asked["changes"]:
        key, _, text = change.removeprefix("--config.").partition("=")
        axis = search_space.parse(key, text)
        fixed += [change] if axis is None else []
        found += [axis] if axis else []
        keys.append(key)
    if twice := [axis.key for axis in found if keys.count(axis.key) > 1]:
        raise ValueError(
            f"--config.{twice[0]}: is given twice, once as an axis; list all its values "
            "in one"
        )
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


def _search_path(workdir: pathlib.Path) -> pathlib.Path:
    return workdir / ".sweep" / "search.json"


def save_search(asked: Mapping[str, Any], workdir: pathlib.Path) -> None:
    """Keeps the search, for `status` and `retry`."""
    path, text = _search_path(workdir), json.dumps(asked, indent=1) + "\n"
    with trials.write_atomically(path) as part:
        part.write_text(text)
    mark = _mark(path, text)
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()
