"""The work of `jbias sweep`: run the trials of a search, or show their status."""

import argparse
import contextlib
import pathlib
import shlex
import shutil
import subprocess
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

from etils import epath

from jbias import config as jc
from jbias import errors
from jbias.deciding import state_file
from jbias.launch import (
    local,
    rounds,
    search,
    sky,
    slurm,
    study,
    tpu_pod,
    trial_loop,
    trials,
    xpk,
)
from jbias.runtime import console, files, messages, signals, workdir_lock

CLOUDS = types.MappingProxyType({"tpu_pod": tpu_pod, "xpk": xpk, "sky": sky})
EXECUTORS = types.MappingProxyType({"local": local, "slurm": slurm, **CLOUDS})


def run_sweep(args: argparse.Namespace) -> int:
    """Carry out the parsed arguments of `jbias sweep`; return the exit code."""
    workdir, say = pathlib.Path(args.workdir), console.logger(None)
    if "\n" in args.workdir or "://" in args.workdir:
        raise ValueError(
            f"--workdir: must be a directory on this machine, got {args.workdir!r}; set "
            "the cloud folder of the runs by --on=...:runs="
        )
    settings = search.resolve(args, workdir)
    executor_name, options = parse_executor(args.on)
    _check(settings, args, executor_name)
    is_read_only = args.what == "status" or args.dry_run
    runs_here = not is_read_only and executor_name not in CLOUDS
    planned = study.plan(settings, workdir)
    phases_to_start = ["not started", "interrupted"]
    if args.what == "retry":
        phases_to_start.append("failed")
    if args.stopped or settings.stop == "never":
        phases_to_start.append("stopped")
    opened = None
    if settings.until_decided:
        num_seeds = rounds.default_seeds(executor_name, options)
        opened = rounds.open_comparison(
            settings, planned, workdir, default_seeds=num_seeds
        )
    if opened and args.what == "status":
        return _show_comparison(opened, settings, workdir)
    if opened and args.dry_run:
        return _hand_over(
            rounds.next_round(opened, workdir),
            phases_to_start,
            executor_name=executor_name,
            options=options,
            is_dry_run=True,
        )
    if not is_read_only:
        search.save(settings, workdir)
    with contextlib.ExitStack() as stack:
        if runs_here:
            path = epath.Path(workdir) / ".sweep/lock"
            stack.enter_context(workdir_lock.acquire(path, "runs this search", say))
        optuna_study = study.open_study(settings, workdir, keep=runs_here)
        ledger = study.Ledger(settings, workdir, study=optuna_study, planned=planned)
        if args.what == "status":
            _conclude(ledger, args, messages.print_text)
            return 0
        if not runs_here:
            return _hand_over(
                ledger,
                phases_to_start,
                executor_name=executor_name,
                options=options,
                is_dry_run=is_read_only,
            )
        if executor_name == "slurm":
            is_sequential = settings.search == "tpe"
            max_jobs = options["parallel"] if is_sequential else sys.maxsize
            executor = slurm.Executor(options, optuna_study, say=say, max_jobs=max_jobs)
        else:
            executor = local.Executor(local.slots(**options), say)
            stack.enter_context(signals.listen()).attach(executor)
            stack.enter_context(contextlib.closing(executor))
        args.wait = args.wait or executor_name == "local" or bool(opened)
        if opened:
            # Again, because the previous owner of the lock may have planned batches.
            state = state_file.resume(workdir, opened.state)
            code = rounds.run(
                opened._replace(state=state),
                executor,
                phases_to_start,
                workdir=workdir,
                args=args,
                say=say,
            )
        else:
            trial_loop.run_trials(ledger, executor, phases_to_start, args=args, say=say)
            code = _conclude(ledger, args, say) if args.wait else 0
    if executor.stop:
        say(f"{executor.stop}: all trials have saved; the same command resumes them")
        return 130 if executor.stop == "SIGINT" else 143
    return code


def _check(
    settings: search.Search, args: argparse.Namespace, executor_name: str
) -> None:
    """Raise ValueError for a search that the executor or --until-decided does not support.

    args: the parsed arguments.
    """
    if settings.until_decided:
        rounds.check_supported(settings, args, is_cloud=executor_name in CLOUDS)
    elif (pathlib.Path(args.workdir) / state_file.NAME).exists():
        raise ValueError(
            f"--workdir: {args.workdir} holds a comparison with a reference; give "
            "--until-decided, or another --workdir"
        )
    elif executor_name in CLOUDS and settings.search == "tpe":
        raise ValueError(
            f"--on={executor_name}: tpe needs results, which are not available on this "
            "machine; use another --sampler"
        )


def parse_executor(text: str) -> tuple[str, dict[str, Any]]:
    """Return the executor's name and options in a text NAME:OPTION=VALUE,...

    text: the value of --on. Options that are left out have the executor's defaults.
    ValueError for unknown names and wrong values.
    """
    name, _, arg = text.partition(":")
    errors.check_known("--on", name, EXECUTORS)
    executor = EXECUTORS[name]
    options = vars(jc.parse_arg(arg, f"--on={name}", **executor.OPTIONS))
    for key, value in options.items():
        if "\n" in str(value):
            raise ValueError(f"--on={name}: {key} must be one line, got {value!r}")
        if value == "" and key in getattr(executor, "NEEDED", ()):
            raise ValueError(f"--on={name}: {key} is missing, e.g. --on={name}:{key}=X")
    return name, options


def _show_comparison(
    opened: rounds.Opened, settings: search.Search, workdir: pathlib.Path
) -> int:
    """Print the comparisons of a search with --until-decided; return the exit code, 0."""
    optuna_study, jobs = study.open_study(settings, workdir, keep=False), {}
    try:
        jobs = slurm.active(optuna_study)
    except ValueError as error:
        messages.print_text(f"{error}; the following is from the workdirs only")
    rounds.show_status(opened, workdir, jobs=jobs, say=messages.print_text)
    return 0


def _hand_over(
    ledger: study.Ledger | rounds.Round,
    phases_to_start: list[str],
    *,
    executor_name: str,
    options: Mapping[str, Any],
    is_dry_run: bool,
) -> int:
    """Start trials in a cloud, or print the commands in a dry run; return the exit code.

    phases_to_start: the phases of the trials to start. executor_name, options: as
    `parse_executor` returns them.
    """
    say, todo = console.logger(None), []
    for trial_status in ledger.statuses():
        if trial_status.state.phase in phases_to_start:
            todo.append(trial_status.trial)
        elif is_dry_run:
            say(trials.status_line(trial_status))
    if not todo:
        say("nothing to start")
    elif executor_name == "local":
        commands = (shlex.join(trials.command(trial)) for trial in todo)
        messages.print_text("\n".join(commands))
    elif is_dry_run:
        messages.print_text(EXECUTORS[executor_name].script(todo, options), end="")
    elif executor_name == "sky":
        sky.start(todo, options, say)
    else:
        program = CLOUDS[executor_name].PROGRAM
        if not shutil.which(program):
            raise ValueError(
                f"--on={executor_name}: needs the program {program}, which is not "
                "installed; --dry-run shows the script"
            )
        path = ledger.workdir / ".sweep" / f"{executor_name}.sh"
        files.write(path, CLOUDS[executor_name].script(todo, options))
        say(f"running {path}")
        return min(1, subprocess.run(["bash", str(path)], check=False).returncode)
    return 0


def _conclude(
    ledger: study.Ledger, args: argparse.Namespace, say: Callable[[str], None]
) -> int:
    """Write trials.csv, and log the counts, the best trial and problems.

    Returns the exit code: 0 if all trials have ended, else 1. args: the parsed arguments; for
    the command `status` all trials are logged. say: logs a line.
    """
    statuses, is_status = ledger.statuses(), args.what == "status"
    phases = [trial_status.state.phase for trial_status in statuses]
    jobs = {}
    try:
        jobs = slurm.active(ledger.study) if is_status else {}
    except ValueError as error:
        say(f"{error}; the following lines are from the workdirs only")
    for trial_status in statuses:
        if is_status or trial_status.state.phase == "damaged":
            job_state, _ = jobs.get(trial_status.trial.name, ("", ""))
            say(trials.status_line(trial_status, job_state))
    say(trials.count_line(statuses))
    if ledger.num_undrawn:
        say(f"{ledger.num_undrawn} more to be drawn")
    if "failed" in phases:
        workdir = shlex.quote(args.workdir)
        say(f"to run failed trials again: jbias sweep retry --workdir={workdir}")
    if count := phases.count("damaged"):
        say(
            f"{count} damaged: neither run again nor compared until repaired, see the "
            "lines above"
        )
    if best := trials.best(statuses):
        (value, step), workdir = best.best, best.trial.workdir
        say(f"best in validation: {100 * value:.2f} at step {step}, {workdir}")
        say(shlex.join(trials.command(best.trial, "python")))
    else:
        say("no trial is done yet")
    if statuses and ledger.workdir.is_dir():
        files.write(ledger.workdir / "trials.csv", trials.to_csv(statuses))
    if args.importance:
        study.write_importance(ledger, say)
    return 1 if {*phases} - {*trials.ENDED} else 0
