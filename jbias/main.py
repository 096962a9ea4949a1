"""Train all seeds of a config, and evaluate them on its test sets during training.

    jbias train --config=configs/sagnet.py
    jbias train --config=configs/erm.py:data=pacs,root=/data/pacs,seeds=2
    jbias train --config=configs/padain.py --config.algo.p=0.05 --workdir=runs/x
    jbias train --config=jbias:sagnet:demo,seeds=2
    jbias train --config=my_config.py --check

Text after the colon sets arguments of the config, separated by commas. configs/common.py
lists the arguments of all configs; the top of each config file lists further ones. The most
common arguments are

    data=NAME    data set to train on (default: the embedded data set "shapes", no download)
    root=DIR     folder of the data set, for data sets that are read from files
    seeds=N      number of seeds, all trained in one process (default: 3)
    size=PIXELS  side of the images in pixels (default: depends on the data set)
    epochs=N     number of epochs (default: depends on the data set and the method)
    demo         for a first try: half of the embedded data set, a narrow network, 6 epochs; a
                 minute or two on two cores
    smoke        for a test: run every part once; half a minute, too short to learn anything

--config.KEY=VALUE changes any entry of the config. jbias:NAME:ARGUMENTS is a config of the
package, usable from any folder; `--config=jbias:` prints the names.

Scores are written to <workdir>/evals/, networks to <workdir>/checkpoints/, and the config to
<workdir>/config.json (docs/runs.md). The same command resumes a stopped run, or prints that
the run is done. Then compare runs with `jbias report 'runs/*'`.

--check trains nothing and creates no workdir. It traces the first step and prints which layers
the algorithm changes, which weights get a gradient, all array shapes, and whether the step is
identical to a step of ERM, the standard training. The exit code is 0, or 2 if the run could not
start.

Exit codes: 0 done; 1 an unexpected error, or an error in your own algorithm; 2 an error in
the config, the data or the disk; 3 every seed diverged (its numbers became infinite or NaN);
69 another process of the run was lost: run the same command again; 130 stopped by SIGINT
(Ctrl-C), 143 by another signal such as SIGTERM, with all work saved (docs/preemption.md).

Several processes, one per machine, can train together. SLURM (srun), Open MPI (mpirun) and
TPUs are detected; elsewhere start each process with

    --coordinator=HOST:PORT --processes=N --process=I

where HOST is the host of process 0, PORT a free port on this host, and I is 0 to N - 1. If one
process fails, all stop with the same message. Only process 0 reads and writes the workdir.
"""

import contextlib
import dataclasses
import functools
import io
import os
import sys
from collections.abc import Sequence
from typing import Any

from absl import app, flags

from jbias import config as jc
from jbias import run_spec
from jbias.runtime import cli, console, files, heap, messages, signals, switches, xla

_CONFIG = flags.DEFINE_string(
    "config",
    None,
    "Required. Config of the run, FILE:ARGUMENTS or jbias:NAME:ARGUMENTS. FILE is a Python "
    "file that defines get_config. --config.KEY=VALUE changes an entry.",
)
_WORKDIR = flags.DEFINE_string(
    "workdir",
    None,
    "Folder of the run, made if needed. Default: runs/<algorithm>-<data>-<hash>, where "
    "<hash> is computed from the config, so that the same config resumes the same run.",
)

_PROFILE = flags.DEFINE_bool(
    "profile",
    False,
    "Also measure where a few training steps spend their time (at most "
    "config.run.steps_per_dispatch steps, 8 by default), and write a summary to "
    "<workdir>/profile.md.",
)

_CHECK = flags.DEFINE_bool(
    "check", False, "Describe the first training step (see above), and train nothing."
)

_COORDINATOR = flags.DEFINE_string(
    "coordinator",
    None,
    "For several processes: address of process 0, HOST:PORT, to which all processes connect. "
    "Default: detected from the cluster.",
)
_PROCESSES = flags.DEFINE_integer(
    "processes",
    None,
    "Number of processes that train together. Default: detected from the cluster, else 1. "
    "--processes=1 turns the detection off.",
)
_PROCESS = flags.DEFINE_integer(
    "process",
    None,
    "For several processes: index of this process, from 0 to --processes minus 1. Default: "
    "detected from the cluster.",
)
_WAIT = flags.DEFINE_float(
    "wait",
    300.0,
    "For several processes: seconds to wait at the start until all processes are "
    "connected; after this time the run stops with an error.",
    lower_bound=1.0,
)


def main(
    argv: list[str], stop_signal: signals.StopSignal, config_words: Sequence[str] = ()
) -> int:
    """Train or check the run of the parsed flags; return the exit code.

    argv: name of the program; further arguments, which are not flags, are an error.
    stop_signal: records stop signals.
    config_words: the arguments that name the config and change its entries.
    """
    if len(argv) > 1:
        return _fail(None, f"unknown argument {argv[1]!r}; see --help", 2)
    if _CONFIG.value is None:
        return _fail(None, "--config is missing, e.g. --config=jbias:erm", 2)
    try:
        spec = run_spec.RunSpec.from_config(_CONFIG.value)
        spec = dataclasses.replace(spec, command=" ".join(config_words))
    except (ValueError, OSError) as error:
        return _fail(None, error, 2)
    if _PROFILE.value:
        spec = spec.with_run(profile=True)
    xla.set_flags(deterministic=spec.run.deterministic)
    if _COORDINATOR.value:
        # Hide the warnings of jax's coordination service about itself and about signals.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        xla.cache_programs()
        # Slow imports come after the flags are checked, so that their errors are fast.
        from jbias.runs import workdirs
        from jbias.runtime import processes
    except ValueError as error:  # From jax: a variable such as JAX_ENABLE_X64=maybe.
        return _fail(None, error, 2)

    def common_facts() -> dict[str, Any]:
        """Return the config and the versions of software, which all processes must share."""
        return {"config": spec.config, **workdirs.software_versions()}

    if _CHECK.value:
        return _check(spec)
    workdir = _WORKDIR.value or os.path.join("runs", spec.name)
    try:
        where = processes.identify(_COORDINATOR.value, _PROCESSES.value, _PROCESS.value)
        log_dir = None if where.number else files.resolve(workdir)
        report = functools.partial(_fail, log_dir)
        joining = processes.join(
            where,
            common_facts,
            report,
            describe_differences=jc.diff,
            wait=_WAIT.value,
        )
        with joining as team:
            return _train(
                spec, workdir, team=team, log_dir=log_dir, stop_signal=stop_signal
            )
    except (ValueError, OSError) as error:
        if switches.is_on("JBIAS_TRACEBACK"):
            raise
        return _fail(None, error, 2)


def _check(spec: run_spec.RunSpec) -> int:
    """Print the description of a run's first step; return the exit code.

    The code is 0, or 2 after an error, which is printed on one line; with JBIAS_TRACEBACK=1
    the error is raised.
    """
    from jbias import checking

    try:
        with xla.fixed_settings():
            messages.print_text("\n".join(checking.check(spec)))
    except Exception as error:
        if switches.is_on("JBIAS_TRACEBACK"):
            raise
        if isinstance(error, ValueError | OSError):
            return _fail(None, messages.describe_error(error), 2)
        return _fail(None, messages.describe_crash(error), 2)
    return 0


def _train(
    spec: run_spec.RunSpec,
    workdir: files.PathLike,
    *,
    team: "processes.ProcessGroup",
    log_dir: files.PathLike | None,
    stop_signal: signals.StopSignal,
) -> int:
    """Train and return the exit code; an error here stops the other processes, too.

    team: the processes that train together. log_dir: the workdir, whose log gets the last
    line; None in processes other than 0. stop_signal: records stop signals. An unexpected
    error is raised if there are several processes, or with JBIAS_TRACEBACK=1.
    """
    from jbias import train
    from jbias.runtime import processes

    try:
        is_finite = train.run(spec, workdir, team, stop_signal=stop_signal)
        return 0 if is_finite else 3
    except signals.Interrupted as stopped:
        is_early = signals.is_early(stopped)
        with team.reporting() if is_early else contextlib.nullcontext():
            code = _fail(log_dir, stopped, signals.exit_code(stopped))
        if is_early:
            team.fail(str(stopped), code)
        return code
    except (ValueError, OSError) as error:
        if team.count > 1:
            processes.is_of_lost_process(error)
        if switches.is_on("JBIAS_TRACEBACK"):
            raise
        with team.reporting():
            code = 1 if isinstance(error, messages.UserCodeError) else 2
            _fail(log_dir, messages.describe_error(error), code)
        team.fail(" ".join(str(error).split()), code)
        return code
    except Exception as error:
        if team.count > 1 or switches.is_on("JBIAS_TRACEBACK"):
            raise
        return _fail(log_dir, messages.describe_crash(error), 1)


def _fail(log_dir: files.PathLike | None, error: object, code: int) -> int:
    """Print an error on one line, append the line to the run's log, and return `code`.

    The log is log.txt and, as JSON, log.jsonl; the printed line is JSON, too, if config.run.log
    is "json". error: an exception or a text. code: the exit code. log_dir: the workdir of the
    log, or None. Nothing is appended if there is no log yet, or while another process uses the
    workdir.
    """
    from etils import epath

    from jbias.runtime import workdir_lock

    line = f"jbias: {messages.one_line(error)}"
    event = console.LogEvent(line, "error" if code < 3 else "stop", code=code)
    json_line = event.at("error" if code == 2 else "warning").json()
    prints_json = log_dir and _CONFIG.value.run.get("log") == "json"
    messages.print_text(json_line if prints_json else line, to_stderr=True)
    if log_dir:
        with contextlib.suppress(OSError):
            for name, text in zip(console.LOG_FILES, (line, json_line)):
                path = epath.Path(log_dir) / name
                if path.exists() and not workdir_lock.is_held_elsewhere(
                    path.parent / "lock"
                ):
                    files.append(path, text)
                    files.flush(path)
    return code


def _parse(argv: list[str], config_words: list[str] | None = None) -> list[str]:
    """Parse the flags and load the config; return the arguments that are not flags.

    Afterwards `_CONFIG.value` is the config, with the changes of --config.KEY=VALUE, or None
    without --config.
    config_words: a list to which the arguments are added that name and change the config.
    Exits with code 0 after printing --help, and with code 2 and one line if the flags or the
    config are wrong.
    """
    if {"--help", "-help", "-h"} & set(argv[1:]):
        flags.FLAGS(argv[:1])
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            app.usage(shorthelp=True, writeto_stdout=True)
        with messages.stdout_errors_exit():
            messages.print_text(text.getvalue(), end="")
        sys.exit(0)
    arguments, changes = jc.split_changes(argv, flag="config")
    try:
        positional = flags.FLAGS(arguments)
        if changes and _CONFIG.value is None:
            raise ValueError(f"{changes[0]}: needs --config=FILE, too; add it")
        if _CONFIG.value is not None:
            if config_words is not None:
                config_words += [f"--config={_CONFIG.value}", *changes]
            with xla.naming_variables():  # Config files may import jax.
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
        return positional
    flags.FLAGS.config = None  # `_fail` must not read options of a config that failed.
    sys.exit(_fail(None, line, 2))


def command() -> None:
    """Run the command `jbias train`: parse the flags in sys.argv, train, and exit.

    The function does not return.
    """
    console.silence_warnings()
    heap.limit_arenas()
    with signals.listen() as stop_signal:  # First, before anything slow.
        try:
            config_words: list[str] = []

            def run_main(argv: list[str]) -> int:
                return main(argv, stop_signal=stop_signal, config_words=config_words)

            app.run(
                run_main,
                flags_parser=functools.partial(_parse, config_words=config_words),
            )
        except signals.Interrupted as stopped:
            code = _fail(None, stopped, signals.exit_code(stopped))
        except SystemExit as ended:
            console.flush_streams()
            if not stop_signal.name or stop_signal.run is not None:
                raise
            code = ended.code
        # Everything is saved. A normal exit would wait for programs that XLA still compiles
        # in a thread, or crash in such a thread.
        console.flush_streams()
        os._exit(code)


if __name__ == "__main__":
    command()
