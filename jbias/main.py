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

--until-decided=REFERENCE trains seeds of --config until it is decided whether the method is better
or worse than the reference, or equivalent to it, and then stops (docs/runs.md):

    jbias train --config=jbias:sagnet:demo --until-decided=jbias:erm:demo --metric=shape_bias
    jbias train --config=jbias:sagnet --until-decided='runs/erm*' --dataset=edge --max-seeds=50

REFERENCE is a config, or the runs of one method (a workdir, a glob or a folder of workdirs), of
which further seeds are trained if needed. A pair is the same seed of both. After each batch of
seeds a line has the difference and an interval that stays valid however often it is looked at. The
same command resumes; settings that the decision depends on cannot be changed later. seeds=N is
the number of seeds at a time (default: the number of cores, at most 4; on an accelerator 8).

Exit codes: 0 done; 1 an unexpected error, or an error in your own algorithm; 2 an error in
the config, the data or the disk; 3 every seed diverged (its numbers became infinite or NaN);
4 --until-decided ended without a decision;
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
import math
import os
import sys
from collections.abc import Callable, Sequence
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

_UNTIL_DECIDED = flags.DEFINE_string(
    "until-decided",
    None,
    "Train seeds until the comparison with this reference is decided (see above): a config, or "
    "the runs of one method.",
)
_METRIC = flags.DEFINE_string(
    "metric",
    None,
    "With --until-decided: metric to compare. Default: shape_bias on cue conflicts, else accuracy.",
)
_DATASET = flags.DEFINE_string(
    "dataset",
    None,
    "With --until-decided: test set to compare on, a name in config.tests. Default: the only one "
    "that has the metric.",
)
_POINTS = flags.DEFINE_float(
    "points",
    None,
    "With --until-decided: the methods are equivalent if their difference is below so many "
    "percentage points of the score, or of the share of wins with --quantity=wins. Default: "
    "equivalence is not tested.",
)
_ALPHA = flags.DEFINE_float(
    "alpha",
    None,
    "With --until-decided: probability of a false decision. Default: 0.05.",
)
_MAX_SEEDS = flags.DEFINE_integer(
    "max-seeds",
    None,
    "With --until-decided: largest number of seeds. Default: 30.",
)
_MAX_HOURS = flags.DEFINE_float(
    "max-hours",
    None,
    "With --until-decided: device hours (of a CPU: hours times cores) after which no further "
    "batch starts. Default: no limit.",
)
_SELECTION = flags.DEFINE_string(
    "selection",
    None,
    "With --until-decided: rule that selects the evaluation of each seed: best_validation, "
    "worst_class, last_n:N, at_epoch:EPOCH or best_on:SET. Default: best_validation.",
)
_QUANTITY = flags.DEFINE_enum(
    "quantity",
    None,
    ["mean", "wins"],
    "With --until-decided: compare the means, or the shares of seeds that each method wins. "
    "Default: mean.",
)
_BOUNDS = flags.DEFINE_string(
    "bounds",
    None,
    "With --until-decided: smallest and largest possible value of the metric, LOW,HIGH; a "
    "narrower range needs fewer seeds. Default: 0,1.",
)
# Flags that only --until-decided uses.
_COMPARISON_FLAGS = (
    _METRIC,
    _DATASET,
    _POINTS,
    _ALPHA,
    _MAX_SEEDS,
    _MAX_HOURS,
    _SELECTION,
    _QUANTITY,
    _BOUNDS,
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
    if _UNTIL_DECIDED.value is None:
        for flag in _COMPARISON_FLAGS:
            if flag.value is not None:
                line = f"--{flag.name}: needs --until-decided=REFERENCE, too; add it"
                return _fail(None, line, 2)
    elif _CHECK.value:
        line = (
            "--check: describes one run, not --until-decided; leave one of the two out"
        )
        return _fail(None, line, 2)
    else:
        try:
            _check_comparison(spec)
        except (ValueError, OSError) as error:
            return _fail(None, files.describe_error(error), 2)
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
    if _UNTIL_DECIDED.value is not None:
        return _train_until_decided(spec, config_words, stop_signal)
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
            return _guard(
                lambda: _train(spec, workdir, team, stop_signal),
                team=team,
                log_dir=log_dir,
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


def _check_comparison(spec: run_spec.RunSpec) -> None:
    """Raise ValueError for wrong flags of --until-decided, before slow imports."""
    from jbias.deciding import references, settings

    reference = references.read(_UNTIL_DECIDED.value)
    settings.choose(
        {"--config": spec.config, "the reference": reference.config},
        metric=_METRIC.value or "",
        dataset=_DATASET.value or "",
        selection=_SELECTION.value or "best_validation",
        bounds=settings.parse_bounds(_BOUNDS.value or "0,1"),
    )


def _train_until_decided(
    spec: run_spec.RunSpec,
    config_words: Sequence[str],
    stop_signal: signals.StopSignal,
) -> int:
    """Carry out `jbias train --until-decided`; return the exit code.

    config_words: the arguments that name the config and change its entries.
    """
    from jbias import until_decided
    from jbias.deciding import settings
    from jbias.runtime import processes

    try:
        where = processes.identify(_COORDINATOR.value, _PROCESSES.value, _PROCESS.value)
        if where.count > 1:
            raise ValueError(
                f"--until-decided: trains in one process, got {where.count}; start one"
            )
        request = until_decided.Request(
            spec=spec,
            words=tuple(config_words),
            reference=_UNTIL_DECIDED.value,
            metric=_METRIC.value or "",
            dataset=_DATASET.value or "",
            selection=_SELECTION.value or "best_validation",
            alpha=0.05 if _ALPHA.value is None else _ALPHA.value,
            points=_POINTS.value,
            quantity=_QUANTITY.value or "mean",
            bounds=settings.parse_bounds(_BOUNDS.value or "0,1"),
            max_seeds=(
                until_decided.DEFAULT_MAX_SEEDS
                if _MAX_SEEDS.value is None
                else _MAX_SEEDS.value
            ),
            max_hours=math.inf if _MAX_HOURS.value is None else _MAX_HOURS.value,
            workdir=_WORKDIR.value or "",
        )
        opened = until_decided.open_comparison(request)
        log_dir = files.resolve(until_decided.workdir_of(request, opened))
    except (ValueError, OSError) as error:
        if switches.is_on("JBIAS_TRACEBACK"):
            raise
        return _fail(None, files.describe_error(error), 2)
    return _guard(
        lambda: until_decided.run(opened, log_dir, stop_signal),
        team=processes.ALONE,
        log_dir=log_dir,
    )


def _train(
    spec: run_spec.RunSpec,
    workdir: files.PathLike,
    team: "processes.ProcessGroup",
    stop_signal: signals.StopSignal,
) -> int:
    """Train a run; return the exit code, 0, or 3 if every seed diverged."""
    from jbias import train

    is_finite = train.run(spec, workdir, team, stop_signal=stop_signal)
    return 0 if is_finite else 3


def _guard(
    work: Callable[[], int],
    *,
    team: "processes.ProcessGroup",
    log_dir: files.PathLike | None,
) -> int:
    """Call `work`, which trains, and return its exit code, or the code of an error.

    An error stops the other processes, too.
    team: the processes that train together. log_dir: the workdir, whose log gets the last
    line; None in processes other than 0. An unexpected error is raised if there are several
    processes, or with JBIAS_TRACEBACK=1.
    """
    from jbias.runtime import processes

    try:
        return work()
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
