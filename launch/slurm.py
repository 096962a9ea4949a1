"""Runs trials as an array of SLURM jobs, by submitit.

A job gets SIGUSR1 some time before its end or its preemption: the run saves, and submitit
puts the same job into the queue again. What submitit keeps in its folder it reads back
with pickle: that folder must be as much yours alone as the code is.
"""

import json
import os
import pathlib
import secrets
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jbias.launch import local, trials
from jbias.runs import status
from jbias.runtime import signals

SIGNAL = "USR1"  # The run saves on it; submitit's own, USR2, would kill it.
OPTIONS = {
    "partition": "",
    "account": "",
    "qos": "",
    "constraint": "",
    "minutes": 60,
    "nodes": 1,
    "gpus": 0,
    "cpus": 0,
    "gib": 0.0,
    "parallel": 256,  # Jobs of the array at work at a time.
    "warn": 120,  # Seconds before its end at which a job is told to save.
    "requeues": 10,  # How often a job may run into its time limit, or lose a node.
}
_WAITS = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SUSPENDED")
_GONE = ("CANCELLED", "COMPLETED", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")


def script(todo: Sequence[trials.Trial], options: Mapping[str, Any]) -> str:
    """What sbatch is given for an array of these trials."""
    _check(todo, options)
    _submitit()
    from submitit.slurm import slurm

    folder = _folder(todo)
    command = f"-u -m submitit.core._submit {shlex.quote(str(folder))}"
    text = slurm._make_sbatch_string(
        command=f"{shlex.quote(sys.executable)} {command}",
        folder=folder,
        map_count=len(todo) if len(todo) > 1 else None,
        **_parameters(options),
    )
    shown = (trials.shell_line(trials.command(trial)) for trial in todo)
    lines = [f"# {i}: " + one.replace("\n", r"\n") for i, one in enumerate(shown)]
    return "\n".join([text, "# what its jobs run:", *lines, ""])


def submit(
    todo: Sequence[trials.Trial], options: Mapping[str, Any], say: Callable[[str], None]
) -> None:
    """Submits one array; notes which job each trial has become.

    What it is called is noted before: who is killed here leaves no jobs that the next
    start does not find by their name.
    """
    _check(todo, options)
    submitit = _submitit()
    name = f"jbias-{secrets.token_hex(4)}"
    asked = {"name": name, "trials": [trial.name for trial in todo]}
    with trials.write_atomically(_submitted_path(todo)) as path:
        path.write_text(json.dumps(asked, indent=1))
    try:
        executor = submitit.SlurmExecutor(
            _folder(todo), max_num_timeout=options["requeues"]
        )
        executor.update_parameters(**_parameters(options) | {"job_name": name})
        for trial in todo:
            trials.clear_stopped(trial.workdir)
        jobs = executor.submit_array([_job(trial, options) for trial in todo])
    except (RuntimeError, submitit.core.utils.FailedJobError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"--on=slurm: the array was not submitted: {reason}") from None
    ids = {t.name: one.job_id for t, one in zip(todo, jobs, strict=True)}
    _note(todo, ids)
    for name, number in ids.items():
        say(f"job {number}: {name}")


def active(all_trials: Sequence[trials.Trial]) -> dict[str, str]:
    """The trials that SLURM has jobs of: `queued` or `running`."""
    known, asked = _known(all_trials), _read(_submitted_path(all_trials), _SUBMITTED)
    if not known and not asked:
        return {}
    jobs = _queue()
    if lost := _lost(jobs, asked, known):
        _note(all_trials, lost)
        known |= lost
    states, found = {number: state for number, state, _ in jobs}, {}
    for trial in all_trials:
        state = states.get(known.get(trial.name, ""), "COMPLETED")
        if state in _WAITS:
            found[trial.name] = "queued"
        elif state not in _GONE:
            found[trial.name] = "running"
    return found


def wait(
    all_trials: Sequence[trials.Trial],
    *,
    say: Callable[[str], None],
    stop: Callable[[list], list] | None = None,
    every: float = 60.0,
    look: float = 5.0,
) -> None:
    """Returns once SLURM has no job of these trials; tells of all that changes."""
    before: dict[str, tuple] = {}
    began = said = time.monotonic()
    first = trials.fraction_done([one.state for one in all_trials])
    # Cancelled again while it saves, a run would be killed.
    sent = {t.name for t in all_trials if (t.workdir / status.STOPPED_FILE).exists()}
    while True:
        there = active(all_trials)
        for trial in all_trials:
            state, queued = trial.state, there.get(trial.name, "")
            now = (queued, state.phase, state.evaluated)
            if before.get(trial.name, ("", "not started", -1)) != now:
                say(trials.status_line(trial, state, queued))
            before[trial.name] = now
        if not there:
            return
        live = [t for t in all_trials if there.get(t.name) == "running"]
        live = [t for t in live if t.state.phase == "running" and t.name not in sent]
        for trial, why in stop(live) if stop else ():
            sent.add(trial.name)
            trials.mark_stopped(trial.workdir, why)
            _call("scancel", _known(all_trials)[trial.name])
        if time.monotonic() - said >= every:
            said = time.monotonic()
            say(local.progress(all_trials, first, said - began))
        time.sleep(look)


def _check(todo: Sequence[trials.Trial], options: Mapping[str, Any]) -> None:
    if options["nodes"] > 1:
        trials.check_devices(todo, f"slurm:nodes={options['nodes']}")


def _job(trial: trials.Trial, options: Mapping[str, Any]) -> "Job":
    """What submitit calls on the node."""
    patience = 0.8 * options["warn"]
    workdir, log = str(trial.workdir), str(local.log_path(trial))
    command, again = trials.command(trial), options["requeues"]
    return Job(command, workdir, log, patience, again)


def _parameters(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options in submitit's words; what is 0 or "" is left to the cluster."""
    named = ("partition", "account", "qos", "constraint")
    told = {name: options[name] for name in named}
    told |= {"gpus_per_node": options["gpus"], "cpus_per_task": options["cpus"]}
    told["mem"] = f"{options['gib'] * 1024:.0f}M" if options["gib"] else ""
    found = {key: value for key, value in told.items() if value}
    signal = f"{SIGNAL}@{options['warn']}"  # submitit writes its own without this.
    setup = [f"export SUBMITIT_PREEMPT_SIGNAL={SIGNAL}"]
    if options["nodes"] > 1:
        # What happens to one task is told to the others by the run itself.
        found["srun_args"] = ["--kill-on-bad-exit=0"]
        if options["gpus"]:  # Else jax takes one of each node.
            numbers = ",".join(map(str, range(options["gpus"])))
            setup.append(f"export JAX_LOCAL_DEVICE_IDS={numbers}")
    return {
        "job_name": "jbias",
        "time": options["minutes"],
        "nodes": options["nodes"],
        "ntasks_per_node": 1,
        "array_parallelism": options["parallel"],
        "additional_parameters": {"requeue": True, "signal": signal},
        "setup": setup,
        **found,
    }


def _submitit():
    """The module."""
    try:
        import submitit
    except ImportError:
        raise ValueError(
            "--on=slurm: needs submitit; pip install submitit, or jbias[launch]"
        ) from None
    return submitit


def _folder(some: Sequence[trials.Trial]) -> pathlib.Path:
    return (some[0].workdir.parent / ".sweep" / "slurm").absolute()


def _ids_path(some: Sequence[trials.Trial]) -> pathlib.Path:
    return some[0].workdir.parent / ".sweep" / "slurm.json"


def _known(some: Sequence[trials.Trial]) -> dict[str, str]:
    """The latest job of each trial."""
    return _read(_ids_path(some), {})


def _submitted_path(some: Sequence[trials.Trial]) -> pathlib.Path:
    """Where the array stands that was submitted last, or would have been."""
    return some[0].workdir.parent / ".sweep" / "slurm-asked.json"


_SUBMITTED = {"name": str, "trials": list}


def _read(path: pathlib.Path, kinds: Mapping[str, type]) -> dict[str, Any]:
    """What stands in a file of ours; {} without it. kinds: of its fields, else words."""
    try:
        told = json.loads(path.read_text("utf-8"))
        whole = isinstance(told, dict) and (not kinds or told.keys() == kinds.keys())
        for key, one in told.items() if whole else ():
            words = one if isinstance(one, list) else [one]
            whole &= isinstance(one, kinds.get(key, str))
            whole &= all(isinstance(word, str) for word in words)
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError):
        whole = False
    if not whole:
        raise ValueError(
            f"{path}: must be the JSON of a search, got something else; remove it, but "
            "look with squeue --me whether its jobs are still there"
        )
    return told


def _note(some: Sequence[trials.Trial], ids: Mapping[str, str]) -> None:
    """Keeps which jobs trials have become."""
    with trials.write_atomically(_ids_path(some)) as path:
        path.write_text(json.dumps({**_known(some), **ids}, indent=1))


def _lost(
    jobs: Sequence[tuple[str, str, str]],
    asked: Mapping[str, Any],
    known: Mapping[str, str],
) -> dict[str, str]:
    """The jobs of the array submitted last whose numbers nobody has noted, by trial."""
    found = {}
    for number, _, name in jobs:
        task = number.partition("_")[2] or "0"
        if asked and name == asked["name"] and task.isdecimal():
            for trial in asked["trials"][int(task) :][:1]:
                found |= {trial: number} if known.get(trial) != number else {}
    return found


def _queue() -> list[tuple[str, str, str]]:
    """Number, state and name of each of the user's jobs that SLURM still knows."""
    told = _call("squeue", "--me", "--noheader", "--array", "--format=%i|%T|%j")
    lines = [line.strip().split("|", 2) for line in told.splitlines()]
    return [(one[0], one[1], one[2]) for one in lines if len(one) == 3]


def _call(*command: str) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=True
        )
    except FileNotFoundError:
        raise ValueError(
            f"--on=slurm: no {command[0]} here; start it on a node that has SLURM"
        ) from None
    except subprocess.CalledProcessError as error:
        reason = " ".join(error.stderr.split())
        raise ValueError(f"--on=slurm: {command[0]} says: {reason}") from None
    return done.stdout


class Job:
    """A trial's command for a scheduler that calls it, and says when to save (submitit).

    Every process of the job gets the scheduler's signal; the run saves and ends by itself,
    and is told so only if it has not. On several nodes each calls this, and the processes
    train together: where one is lost, another puts the job into the queue again, `again`
    times at most.
    """

    def __init__(
        self,
        command: Sequence[str],
        workdir: str,
        log: str,
        patience: float,
        again: int = 0,
    ):
        self.command, self.workdir, self.log = tuple(command), workdir, log
        self.patience = patience  # Seconds to wait for a run to save.
        self.again = again
        self._pid = 0

    def __call__(self) -> int:
        """Runs to the end; returns the exit code."""
        number = int(os.environ.get("SLURM_PROCID", "0"))
        log, workdir = pathlib.Path(self.log), pathlib.Path(self.workdir)
        log = log.with_suffix(f".{number}.log") if number else log
        before = local.log_size(workdir)
        process = local.start_process(self.command, log, {}, apart=False)
        self._pid = process.pid
        code = process.wait()
        if not number:  # The others write nothing into the workdir.
            local.log_exit(workdir, code, log, before)
        if code == signals.EXIT_LOST:
            self._requeue()
        if code not in (
            *local.ENDED_CODES,
            *local.INTERRUPTED_CODES,
            *(-one for one in local.STOP_SIGNALS),
        ):
            raise RuntimeError(
                f"{self.workdir}: {local.exit_reason(code, local.tail(log))}"
            )
        return code

    def checkpoint(self) -> Any:
        """What is to be run once the scheduler gives a place again: the same."""
        import submitit

        self._settle()
        again = Job(self.command, self.workdir, self.log, self.patience, self.again)
        return submitit.helpers.DelayedSubmission(again)

    def _requeue(self) -> None:
        """Starts the job's processes once more, all of them: one was lost."""
        restarts = int(os.environ.get("SLURM_RESTART_COUNT", "0"))
        name = os.environ.get("SLURM_JOB_ID")
        if not name or restarts >= self.again:
            return
        print(f"a process was lost: job {name} goes back into the queue", flush=True)
        # Where another was faster this does nothing, or fails.
        subprocess.run(["scontrol", "requeue", name], check=False)

    def _settle(self) -> None:
        """Waits until the run has ended, having saved; asks it to after a while."""
        began, asked = time.monotonic(), False
        while self._pid and not _over(self._pid):
            spent = time.monotonic() - began
            if spent > self.patience:
                return
            if spent > self.patience / 2 and not asked:
                asked = True
                os.kill(self._pid, signal.SIGTERM)
            time.sleep(0.1)


def _over(pid: int) -> bool:
    """Whether a child has ended; another wait for it still learns how."""
    how = os.WEXITED | os.WNOHANG | os.WNOWAIT
    try:
        return os.waitid(os.P_PID, pid, how) is not None
    except ChildProcessError:
        return True
