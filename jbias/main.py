"""Trains all seeds of a config, evaluates them out of distribution, records every number.

    jbias train --config=configs/sagnet.py
    jbias train --config=configs/erm.py:data=pacs,root=/data/pacs,seeds=2
    jbias train --config=configs/padain.py --config.algo.p=0.05 --workdir=runs/x
    jbias train --config=jbias:sagnet:demo,seeds=2
    jbias train --config=my_config.py --check

The part after the colon holds the config's own arguments (see the top of the file);
`--config.key=value` changes any entry. jbias:NAME:ARGUMENTS is a config that comes with
the package, from any folder; --config=jbias: lists their names. The same command resumes a run, or says that it
is done. --check makes no workdir: it traces the first step, and says where the
algorithm's tap acts, which weights its losses reach, of which shapes all is, and whether
the step is ERM's; exit code 0, or 2 where the run could not begin. Exit codes: 0 done, 3 every seed diverged, 2 the config, the data or the disk
does not allow it, 143 stopped by a signal such as SIGTERM and 130 by SIGINT with all work
saved, 1 an error that nobody foresaw, or in one's own algorithm (docs/preemption.md), 69 another process of the run
was lost: the same command goes on.

Several processes, one a machine, train together. SLURM (srun), Open MPI (mpirun) and
TPUs tell each which it is; elsewhere all are started with

    --coordinator=HOST:PORT --processes=N --process=I

of process 0's host, a free port there, and 0 <= I < N. What is the matter with one ends
all with the same line. Only process 0 needs the workdir.
"""

import contextlib
import functools
import io
import os
import sys
from typing import Any

from absl import app, flags

from jbias import config as jc
from jbias import run_spec
from jbias.runtime import cli, console, files, heap, messages, signals, switches, xla

_CONFIG = flags.DEFINE_string(
    "config",
    None,
    "The experiment: a file with get_config, and its arguments; --config.KEY=VALUE "
    "changes an entry.",
)
_WORKDIR = flags.DEFINE_string(
    "workdir", None, "Where the run lives; runs/<algorithm>-<data>-<hash> if not given."
)

_PROFILE = flags.DEFINE_bool(
    "profile", False, "Traces some steps and sums them up in <workdir>/profile.md."
)

_CHECK = flags.DEFINE_bool(
    "check", False, "Says what the first step does, and whether it can; trains nothing."
)

_COORDINATOR = flags.DEFINE_string(
    "coordinator", None, "HOST:PORT where the processes meet: process 0's host."
)
_PROCESSES = flags.DEFINE_integer(
    "processes", None, "How many train together; 1: this one, whatever a cluster says."
)
_PROCESS = flags.DEFINE_integer("process", None, "Which of them this is, from 0.")
_WAIT = flags.DEFINE_float(
    "wait", 300.0, "Seconds until all processes must be there.", lower_bound=1.0
)


def main(argv: list[str], heard: signals.StopSignal) -> int:
    """Runs what the flags say; returns the exit code."""
    if len(argv) > 1:
        return _fail(None, f"unknown argument {argv[1]!r}; see --help", 2)
    if _CONFIG.value is None:
        return _fail(None, "--config is missing, e.g. --config=jbias:erm", 2)
    try:
        spec = run_spec.RunSpec.from_config(_CONFIG.value)
    except (ValueError, OSError) as error:
        return _fail(None, error, 2)
    spec.config["run"]["profile"] |= _PROFILE.value
    xla.set_flags(deterministic=spec.config["run"]["deterministic"])
    if _COORDINATOR.value:
        # Warnings of jax's service: that it is new, and of each signal.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        xla.cache_programs()
        # Only now: what is wrong with the flags is told at once.
        from jbias.runs import workdirs
        from jbias.runtime import processes
    except ValueError as error:  # Of jax: a variable such as JAX_ENABLE_X64=maybe.
        return _fail(None, error, 2)

    def alike() -> dict[str, Any]:  # What all processes must have in common.
        return {"config": spec.config, **workdirs.software_versions()}

    if _CHECK.value:
        return _check(spec)
    workdir = _WORKDIR.value or os.path.join("runs", spec.name)
    try:
        where = processes.identify(_COORDINATOR.value, _PROCESSES.value, _PROCESS.value)
        log = None if where.number else files.resolve(workdir)
        tell = functools.partial(_fail, log)
        options = dict(differing=jc.diff, wait=_WAIT.value)
        with processes.join(where, alike, tell, **options) as team:
            return _train(spec, workdir, team, log, heard)
    except (ValueError, OSError) as error:
        if switches.is_on("JBIAS_TRACEBACK"):
            raise
        return _fail(None, error, 2)


def _check(spec: run_spec.RunSpec) -> int:
    """Says what the first step does; returns the exit code."""
    from jbias import checking

    try:
        with xla.fixed_settings():
            messages.print_text("\n".join(checking.check(spec)))
    except Exception as error:
        if switches.is_on("JBIAS_TRACEBACK"):
            raise
        refused = isinstance(error, ValueError | OSError)
        tell = messages.describe_error if refused else messages.describe_crash
        return _fail(None, tell(error), 2)
    return 0


def _train(spec, workdir, team, log, heard: signals.StopSignal) -> int:
    """Trains; what ends it here ends the other processes, too."""
    from jbias import train
    from jbias.runtime import processes

    try:
        return 0 if train.run(spec, workdir, team, heard=heard) else 3
    except signals.Interrupted as stopped:
        early = signals.is_early(stopped)
        with team.reporting() if early else contextlib.nullcontext():
            code = _fail(log, stopped, signals.exit_code(stopped))
        if early:
            team.fail(str(stopped), code)
        return code
    except (ValueError, OSError) as error:
        if team.count > 1:
            processes.is_of_lost_process(error)
        if switches.is_on("JBIAS_TRACEBACK"):
            raise
        with team.reporting():
            code = 1 if isinstance(error, messages.UserCodeError) else 2
            _fail(log, messages.describe_error(error), code)
        team.fail(" ".join(str(error).split()), code)
        return code
    except Exception as error:
        if team.count > 1 or switches.is_on("JBIAS_TRACEBACK"):
            raise
        return _fail(log, messages.describe_crash(error), 1)


def _fail(workdir: files.PathLike | None, error: object, code: int) -> int:
    """Tells what ended the run in one line, in its log too, if it has one.

    Another process that is at work there keeps its log for itself.
    """
    from etils import epath

    from jbias.runtime import lock

    line = f"jbias: {messages.one_line(error)}"
    told = console.LogEvent(line, "error" if code < 3 else "stop", code=code)
    told = told.at("error" if code == 2 else "warning").json()
    known = workdir and _CONFIG.value.run.get("log") == "json"
    messages.print_text(told if known else line, to_stderr=True)
    with contextlib.suppress(OSError):
        for name, text in zip(console.LOG_FILES, (line, told)) if workdir else ():
            path = epath.Path(workdir) / name
            if path.exists() and not lock.is_held_elsewhere(path.parent / "lock"):
                files.append(path, text)
                files.flush(path)
    return code


def _parse(argv: list[str]) -> list[str]:
    """Read the flags and the config; end with one line and exit code 2 if they are wrong.

    Afterwards `_CONFIG.value` is the config, with the changes of --config.KEY=VALUE.
    """
    if {"--help", "-help", "-h"} & set(argv[1:]):
        flags.FLAGS(argv[:1])
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            app.usage(shorthelp=True, writeto_stdout=True)
        with messages.stdout_errors_exit():
            messages.print_text(text.getvalue(), end="")
        sys.exit(0)
    words, changes = jc.split_changes(argv, flag="config")
    try:
        unread = flags.FLAGS(words)
        if changes and _CONFIG.value is None:
            raise ValueError(f"--config is missing beside {changes[0]}")
        if _CONFIG.value is not None:
            with xla.naming_variables():  # Files of configs import jax.
                flags.FLAGS.config = jc.load(_CONFIG.value, changes, flag="config")
    except flags.UnrecognizedFlagError as error:
        line = cli.unknown_argument(f"--{error.flagname}", flags.FLAGS)
    except flags.Error as error:
        line = str(error)
    except (ValueError, OSError) as error:
        if switches.is_on("JBIAS_TRACEBACK"):
            raise
        line = files.describe_error(error)
    else:
        return unread
    flags.FLAGS.config = None  # No config could be read, whose log would hear of it.
    sys.exit(_fail(None, line, 2))


def command() -> None:
    """The command: flags, then the run."""
    console.silence_warnings()
    heap.limit_arenas()
    with signals.listen() as heard:  # Before anything that takes a while.
        try:
            app.run(functools.partial(main, heard=heard), flags_parser=_parse)
        except signals.Interrupted as stopped:
            code = _fail(None, stopped, signals.exit_code(stopped))
        except SystemExit as ended:
            console.flush_streams()
            if not heard.name or heard.job is not None:
                raise
            code = ended.code
        # At once, as nothing is left to save: a program that XLA still compiles in a
        # thread would be waited for, or end in an interpreter that is gone.
        console.flush_streams()
        os._exit(code)


if __name__ == "__main__":
    command()
