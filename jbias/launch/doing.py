"""What `python -m launch.sweep` does: plans the trials, starts or shows them."""

import argparse
import functools
import pathlib
import shlex
import shutil
import subprocess
import time
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jbias import config as jc
from jbias.launch import asked, local, sky, slurm, stopping, tpu_pod, trials, xpk
from jbias.runtime import console

CLOUDS = types.MappingProxyType({"tpu_pod": tpu_pod, "xpk": xpk, "sky": sky})
EXECUTORS = types.MappingProxyType({"local": local, "slurm": slurm, **CLOUDS})
_STOPPED = {"SIGINT": 130, "SIGTERM": 143}


def run(args: argparse.Namespace) -> int:
    """Does what the arguments say; returns the exit code."""
    say = console.logger(None)
    workdir = pathlib.Path(args.workdir)
    if "\n" in args.workdir or "://" in args.workdir:
        raise ValueError(
            f"--workdir: must be a directory here, got {args.workdir!r}; where runs are in "
            "a cloud says --on=...:runs="
        )
    search = asked.settled(args, workdir)
    where, options = _where(args.on)
    found = trials.planned(asked.search(search), workdir)
    if args.what == "status":
        return _status(found, say)
    todo = _todo(found, args, search["stop"])
    if args.dry_run:
        return _shown(found, todo, where, options)
    asked.remember(search, workdir)
    if where in CLOUDS:
        return _handed_over(todo, where, options, say)
    fewest, grace = search["fewest"], search["grace"]
    rule = functools.partial(stopping.due, all_trials=found, fewest=fewest, grace=grace)
    stop = rule if search["stop"] == "median" else None
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
    slots, tried = local.places(**options), set[str]()
    left = len(found) - len(todo)
    say(f"{len(todo)} of {len(found)} trials to run" + f", {left} not" * bool(left))
    while True:
        tried |= {trial.name for trial in todo}
        ended = local.run(todo, found, slots, say=say, stop=stop, every=args.every)
        if ended:
            _keep_table(trials.seen(found), found[0].workdir.parent)
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
    return _summed_up(trials.seen(found), say)


def _where(text: str) -> tuple[str, dict[str, Any]]:
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


def _todo(
    found: Sequence[trials.Trial], args: argparse.Namespace, stop: str
) -> list[trials.Trial]:
    """The trials to start."""
    words = {"not started", "interrupted"}
    if args.what == "retry":
        words |= {"failed"}
    if args.stopped or stop == "never":
        words |= {"stopped"}
    return [trial for trial in found if trial.state.phase in words]


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
    looks = trials.seen(found)
    for trial, state, _ in looks:
        print(trials.line(trial, state, there.get(trial.name, "")))
    print(trials.count([one.state for one in looks]))
    _tell_best(looks, print)
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
    return _summed_up(trials.seen(found), say)


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


def _summed_up(looks: Sequence[trials.Seen], say: Callable[[str], None]) -> int:
    """Keeps the table, tells of what is not done and the best; gives the exit code."""
    states = [one.state for one in looks]
    workdir = looks[0].trial.workdir.parent
    _keep_table(looks, workdir)
    say(trials.count(states))
    for trial, state, _ in looks:
        if state.phase == "damaged":
            say(trials.line(trial, state))
    if any(state.phase == "failed" for state in states):
        say(
            f"again: python -m launch.sweep retry --workdir={shlex.quote(str(workdir))}"
        )
    _tell_best(looks, say)
    return 1 if any(state.phase not in trials.ENDED for state in states) else 0


def _tell_best(looks: Sequence[trials.Seen], say: Callable[[str], None]) -> None:
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
    say(trials.shown(trials.command(best.trial, "python")))


def _keep_table(looks: Sequence[trials.Seen], workdir: pathlib.Path) -> None:
    with trials.whole(workdir / "trials.csv") as part:
        part.write_text(trials.table(looks), encoding="utf-8")
