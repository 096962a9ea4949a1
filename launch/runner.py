"""What `jbias sweep` does: starts, hands over or shows the trials of a search."""

import argparse
import collections
import contextlib
import pathlib
import shlex
import shutil
import subprocess
import sys
import time
import types
from collections.abc import Callable, Mapping
from typing import Any

from etils import epath

from jbias import config as jc
from jbias.launch import local, search, sky, slurm, study, tpu_pod, trials, xpk
from jbias.runs import status
from jbias.runtime import console, files, lock, messages, signals

CLOUDS = types.MappingProxyType({"tpu_pod": tpu_pod, "xpk": xpk, "sky": sky})
EXECUTORS = types.MappingProxyType({"local": local, "slurm": slurm, **CLOUDS})


def run_sweep(args: argparse.Namespace) -> int:
    """Does what the arguments say; returns the exit code."""
    workdir, say = pathlib.Path(args.workdir), console.logger(None)
    if "\n" in args.workdir or "://" in args.workdir:
        raise ValueError(
            f"--workdir: must be a directory here, got {args.workdir!r}; where runs are in "
            "a cloud says --on=...:runs="
        )
    asked = search.resolve(args, workdir)
    where, options = parse_executor(args.on)
    if where in CLOUDS and asked.search == "tpe":
        raise ValueError(f"--on={where}: tpe needs results, which are not seen here")
    shown = args.what == "status" or args.dry_run
    keep = not shown and where not in CLOUDS
    planned = study.plan(asked, workdir)
    # The phases of trials that are to be started.
    words = ["not started", "interrupted"] + ["failed"] * (args.what == "retry")
    words += ["stopped"] * (args.stopped or asked.stop == "never")
    if not shown:
        search.save(asked, workdir)
    with contextlib.ExitStack() as stack:
        if keep:
            path = epath.Path(workdir) / ".sweep/lock"
            stack.enter_context(lock.acquire(path, "runs this search", say))
        opened = study.open_study(asked, workdir, keep=keep)
        ledger = study.Ledger(asked, workdir, opened, planned)
        if args.what == "status":
            return 0 * _conclude(ledger, args, messages.print_text)
        if not keep:
            return _hand_over(ledger, words, where, options, dry=shown)
        if where == "slurm":
            most = options["parallel"] if asked.search == "tpe" else sys.maxsize
            executor = slurm.Executor(options, opened, say, most)
        else:
            executor = local.Executor(local.slots(**options), say)
            stack.enter_context(signals.listen()).attach(executor)
            stack.enter_context(contextlib.closing(executor))
            args.wait = True
        _drive(ledger, executor, words, args, say)
        code = _conclude(ledger, args, say) if args.wait else 0
    if executor.stop:
        say(f"{executor.stop}: all trials have saved; the same command goes on")
        return 130 if executor.stop == "SIGINT" else 143
    return code


def _drive(
    ledger: study.Ledger,
    executor: local.Executor | slurm.Executor,
    words: list[str],
    args: argparse.Namespace,
    say: Callable[[str], None],
) -> None:
    """Starts what there is room for, each trial once; waits until none is left or at work.

    Tells the study what comes out, and ends what its pruner says.
    """
    ledger.begin(words)
    opened, begun = dict[str, trials.Trial](), set[str]()
    seen: dict[str, tuple] = {}  # What was told of a trial.
    said = began = time.monotonic()
    looks, queued = ledger.look(), len(executor.alive())
    first, count = trials.fraction_done(looks), ledger.undrawn + len(looks)
    todo = ledger.undrawn + sum(one.state.phase in words for one in looks)
    say(f"{todo} of {count} trials to run, {queued} are queued already")
    while True:
        at_work, ready = executor.alive(), list[trials.Trial]()
        waiting = collections.deque(opened.values())
        while waiting or len(ready) < executor.room():
            if not (trial := waiting.popleft() if waiting else ledger.take()):
                break
            name, look, word = trial.name, trials.look(trial), at_work.get(trial.name)
            phase, opened[name] = look.state.phase, trial
            live = word is not None or phase == "running"
            before, now = seen.get(name), (word, phase, look.state.evaluated)
            if word != "" and now != before and (live or before):
                say(trials.status_line(look, word or ""))
            seen[name] = now
            if word is not None:
                stopped = (trial.workdir / status.STOPPED_FILE).exists()
                if not stopped and (why := ledger.report(look)):
                    trials.mark_stopped(trial.workdir, why)
                    executor.end(trial)
            elif phase in words and name not in begun:
                ready.append(trial)
            elif not live:  # Else it is another process's.
                ledger.settle(look)
                del opened[name]
        ready = ready[: executor.room()]
        executor.start(ready)
        begun |= {trial.name for trial in ready}
        if not (args.wait and opened) or executor.stop and not at_work:
            return
        if time.monotonic() - said >= args.every:
            said = time.monotonic()
            say(trials.progress(ledger.look(), first, said - began))
        time.sleep(executor.poll_seconds)


def parse_executor(text: str) -> tuple[str, dict[str, Any]]:
    """The executor's name and its options."""
    name, _, arg = text.partition(":")
    jc.check_known("--on", name, EXECUTORS)
    executor = EXECUTORS[name]
    options = vars(jc.parse_arg(arg, f"--on={name}", **executor.OPTIONS))
    for key, value in options.items():
        if "\n" in str(value):
            raise ValueError(f"--on={name}: {key} must be one line, got {value!r}")
        if value == "" and key in getattr(executor, "NEEDED", ()):
            raise ValueError(f"--on={name}: {key} is missing, e.g. --on={name}:{key}=X")
    return name, options


def _hand_over(
    ledger: study.Ledger,
    words: list[str],
    where: str,
    options: Mapping[str, Any],
    *,
    dry: bool,
) -> int:
    """Gives trials to a cloud; dry: prints what would be started anywhere."""
    say, todo = console.logger(None), []
    for look in ledger.look():
        if look.state.phase in words:
            todo.append(look.trial)
        elif dry:
            say(trials.status_line(look))
    if not todo:
        say("nothing to start")
    elif where == "local":
        commands = (shlex.join(trials.command(trial)) for trial in todo)
        messages.print_text("\n".join(commands))
    elif dry:
        messages.print_text(EXECUTORS[where].script(todo, options), end="")
    elif where == "sky":
        sky.start(todo, options, say)
    else:
        if not shutil.which(program := CLOUDS[where].PROGRAM):
            raise ValueError(
                f"--on={where}: no {program} here; --dry-run shows the script"
            )
        path = ledger.workdir / ".sweep" / f"{where}.sh"
        files.write(path, CLOUDS[where].script(todo, options))
        say(f"running {path}")
        return min(1, subprocess.run(["bash", str(path)], check=False).returncode)
    return 0


def _conclude(
    ledger: study.Ledger, args: argparse.Namespace, say: Callable[[str], None]
) -> int:
    """Keeps the table, tells of what is not done and the best; gives the exit code."""
    looks, listed, there = ledger.look(), args.what == "status", {}
    phases = [one.state.phase for one in looks]
    try:
        there = slurm.active(ledger.study) if listed else {}
    except ValueError as error:
        say(f"{error}; what follows is what the workdirs tell")
    for look in looks:
        if listed or look.state.phase == "damaged":
            say(trials.status_line(look, there.get(look.trial.name, ("",))[0]))
    say(trials.count_line(looks))
    if ledger.undrawn:
        say(f"{ledger.undrawn} more to be drawn")
    if "failed" in phases:
        again = shlex.quote(args.workdir)
        say(f"again: jbias sweep retry --workdir={again}")
    if count := phases.count("damaged"):
        say(f"{count} damaged: neither run again nor compared until mended, see above")
    if best := trials.best(looks):
        (value, step), workdir = best.best, best.trial.workdir
        say(f"best in validation: {100 * value:.2f} at step {step}, {workdir}")
        say(shlex.join(trials.command(best.trial, "python")))
    else:
        say("no trial is done yet")
    if looks and ledger.workdir.is_dir():
        files.write(ledger.workdir / "trials.csv", trials.to_csv(looks))
    if args.importance:
        study.write_importance(ledger, say)
    return 1 if {*phases} - {*trials.ENDED} else 0
