"""Claim the workdir of a run for this process, and find out whether the run is done."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from etils import epath

from jbias import extensions, run_spec
from jbias.runs import checkpoints, record_store, status, workdirs
from jbias.runtime import console, files, messages, xla
from jbias.runtime import processes as teams
from jbias.training import setup
from jbias.training.tuning import memory_estimate


class Claim(NamedTuple):
    """A workdir that belongs to this process, or to process 0 of its group."""

    spec: run_spec.RunSpec
    workdir: epath.Path
    log: messages.Say
    check_lock: Callable[[], None]  # OSError if another process owns the workdir now.
    outcome: str  # "finished" or "diverged" for a run with nothing left to do, else "".


@contextlib.contextmanager
def claim(
    config: Mapping[str, Any] | run_spec.RunSpec,
    workdir: epath.PathLike,
    group: teams.ProcessGroup,
) -> Iterator[Claim]:
    """Claim the workdir of a run inside the context; yield the Claim.

    Inside the context, jax's settings that affect numbers have fixed values, errors of full memory
    name a remedy, and errors of the user's own code name its file. ValueError for an invalid
    config, for a workdir of another run, and if own code or data have changed since the run began.
    """
    is_main = group.is_main
    with contextlib.ExitStack() as stack:
        overridden = stack.enter_context(xla.fixed_settings())
        spec = run_spec.RunSpec.from_config(config)
        setup.check_names(spec)
        workdir = files.resolve(workdir)
        if is_main:
            log_format = spec.run.log
            log = console.logger(workdir, log_format)
            stack.callback(console.flush, workdir)
            lock = workdirs.claim(workdir, spec.config, log, command=spec.command)
            check_lock = stack.enter_context(lock).check
            for line in overridden:
                log(line)
        else:
            console.logger(None)(
                f"process {group.number} of {group.count}: process 0 reports the progress"
            )
            log, check_lock = (lambda line: None), (lambda: None)
        stack.enter_context(memory_estimate.explain_lack())
        if is_main:
            setup.check_same_code(spec, workdir)
        stack.enter_context(extensions.naming_files(spec.config))
        outcome = _outcome(spec, workdir, group, log)
        if not outcome and is_main and (workdir / "config.json").exists():
            status.Heartbeat(workdir, log).update("opening")
        yield Claim(spec, workdir, log, check_lock, outcome)


def _outcome(
    spec: run_spec.RunSpec,
    workdir: epath.Path,
    group: teams.ProcessGroup,
    log: messages.Say,
) -> str:
    """Return "finished" or "diverged" for a run with nothing left to do, else "".

    A run that is done, but has lost files that its checkpoints can restore, is not finished. Logs
    that a run is done.
    """
    is_main = group.is_main
    outcome = workdirs.read_done(workdir) if is_main else ""
    outcome = group.broadcast("whether it is done", outcome)
    if not outcome:
        return ""
    if is_main:
        setup.check_same_data(spec, workdir)
        checkpoints.check_seals(workdir / "checkpoints", spec.config)
    has_lost_files = is_main and record_store.needs_restoring(
        workdir, decisions=spec.run.decisions, say=log
    )
    if group.broadcast("whether files of it are lost", has_lost_files):
        return ""
    done = "done, every seed diverged" if outcome == "diverged" else "done"
    log(f"{workdir} is {done}: nothing to do; another --workdir trains again")
    return outcome
