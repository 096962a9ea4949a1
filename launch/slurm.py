"""Runs trials as an array of SLURM jobs, by submitit.

A job gets SIGUSR1 some time before its end or its preemption: the run saves, and submitit
puts the same job into the queue again. What submitit keeps in its folder it reads back
with pickle: that folder must be as much yours alone as the code is.
"""

import dataclasses
import importlib.util
import os
import pathlib
import re
import secrets
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import optuna

from jbias.launch import local, trials
from jbias.runtime import messages, signals

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
    from submitit.slurm import slurm

    folder = _folder(todo)
    command = f"-u -m submitit.core._submit {shlex.quote(str(folder))}"
    text = slurm._make_sbatch_string(
        command=f"{shlex.quote(sys.executable)} {command}",
        folder=folder,
        map_count=len(todo) if len(todo) > 1 else None,
        **_parameters(options),
    )
    shown = (shlex.join(trials.command(trial)) for trial in todo)
    lines = [f"# {i}: " + one.replace("\n", r"\n") for i, one in enumerate(shown)]
    return "\n".join([text, "# what its jobs run:", *lines, ""])


def active(study: optuna.Study) -> dict[str, tuple[str, str]]:
    """The trials that SLURM has jobs of: `queued` or `running`, and a job's number."""
    arrays, found = study.user_attrs, {}
    squeue = ("squeue", "--me", "--noheader", "--array", "--format=%i|%T|%j")
    for line in _call(*squeue).splitlines() if arrays else ():
        number, state, array = line.strip().split("|", 2)
        task = number.partition("_")[2] or "0"
        if array in arrays and task.isdecimal() and state not in _GONE:
            for name in arrays[array][int(task) :][:1]:
                found[name] = ("queued" if state in _WAITS else "running", number)
    return found


@dataclasses.dataclass
class Executor:
    """The jobs that SLURM has of a search's trials.

    An array's name, and whose job each of its tasks is, the study knows before it is
    submitted: who is killed then leaves no jobs that the next start does not find.
    """

    options: Mapping[str, Any]
    study: optuna.Study
    say: Callable[[str], None]
    most: int  # Jobs at a time.
    jobs: dict[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    stop = ""  # Jobs go on whatever becomes of this process.
    poll_seconds = 5.0

    def alive(self) -> dict[str, str]:
        """The trials that there are jobs of, by name: `queued` or `running`."""
        self.jobs = active(self.study)
        return {name: word for name, (word, _) in self.jobs.items()}

    def room(self) -> int:
        """How many trials may be started."""
        return max(0, self.most - len(self.jobs))

    def start(self, todo: Sequence[trials.Trial]) -> None:
        """Submits trials as arrays, each as large as the cluster takes them."""
        if not todo:
            return
        _check(todo, self.options)
        told = _call("scontrol", "show", "config")
        size = int(re.search(r"MaxArraySize\s*=\s*([1-9]\d*)", told)[1])
        arrays = [todo[i : i + size] for i in range(0, len(todo), size)]
        parallel = max(1, self.options["parallel"] // len(arrays))
        for some in arrays:
            self._submit(some, {**self.options, "parallel": parallel})

    def _submit(self, todo: Sequence[trials.Trial], options: Mapping[str, Any]) -> None:
        import submitit

        array, again = f"jbias-{secrets.token_hex(4)}", options["requeues"]
        self.study.set_user_attr(array, [trial.name for trial in todo])
        jobs = []
        for trial in todo:
            trials.clear_stopped(trial.workdir)
            words, log = trials.command(trial), local.log_path(trial)
            jobs.append(Job(words, trial.workdir, log, 0.8 * options["warn"], again))
        try:
            executor = submitit.SlurmExecutor(_folder(todo), max_num_timeout=again)
            executor.update_parameters(**_parameters(options) | {"job_name": array})
            made = executor.submit_array(jobs)
        except (RuntimeError, submitit.core.utils.FailedJobError) as error:
            reason = " ".join(str(error).split())
            raise ValueError(
                f"--on=slurm: the array was not submitted: {reason}"
            ) from None
        for trial, job in zip(todo, made, strict=True):
            self.jobs[trial.name] = ("queued", job.job_id)
            self.say(f"job {job.job_id}: {trial.name}")

    def end(self, trial: trials.Trial) -> None:
        """Asks a job to save and end."""
        _call("scancel", self.jobs[trial.name][1])


def _check(todo: Sequence[trials.Trial], options: Mapping[str, Any]) -> None:
    where = f"slurm:nodes={options['nodes']}"
    trials.check_devices(todo, where, options["nodes"])
    if not importlib.util.find_spec("submitit"):
        raise ValueError("--on=slurm: needs submitit; pip install 'jbias[launch]'")


def _parameters(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options in submitit's words; what is 0 or "" is left to the cluster."""
    named = ("partition", "account", "qos", "constraint")
    told = {name: options[name] for name in named}
    told |= {"gpus_per_node": options["gpus"], "cpus_per_task": options["cpus"]}
    told["mem"] = f"{options['gib'] * 1024:.0f}M" if options["gib"] else ""
    found = {key: value for key, value in told.items() if value}
    found |= {"job_name": "jbias", "time": options["minutes"], "ntasks_per_node": 1}
    found |= {"nodes": options["nodes"], "array_parallelism": options["parallel"]}
    signal = f"{SIGNAL}@{options['warn']}"  # submitit writes its own without this.
    found["additional_parameters"] = {"requeue": True, "signal": signal}
    found["setup"] = [f"export SUBMITIT_PREEMPT_SIGNAL={SIGNAL}"]
    if options["nodes"] > 1:
        # What happens to one task is told to the others by the run itself.
        found["srun_args"] = ["--kill-on-bad-exit=0"]
        if options["gpus"]:  # Else jax takes one of each node.
            numbers = ",".join(map(str, range(options["gpus"])))
            found["setup"].append(f"export JAX_LOCAL_DEVICE_IDS={numbers}")
    return found


def _folder(some: Sequence[trials.Trial]) -> pathlib.Path:
    return (some[0].workdir.parent / ".sweep/slurm").absolute()


def _call(*command: str) -> str:
    streams = dict(capture_output=True, text=True, errors="replace")
    try:
        done = subprocess.run(command, check=False, **streams)
    except FileNotFoundError:
        raise ValueError(
            f"--on=slurm: no {command[0]} here; has this node SLURM?"
        ) from None
    if done.returncode:
        reason = " ".join(done.stderr.split())
        raise ValueError(f"--on=slurm: {command[0]} says: {reason}")
    return done.stdout


@dataclasses.dataclass
class Job:
    """A trial's command for a scheduler that calls it, and says when to save (submitit).

    Every process of the job gets the scheduler's signal; the run saves and ends by itself,
    and is told so only if it has not. On several nodes each calls this, and the processes
    train together: where one is lost, another puts the job into the queue again, `again`
    times at most.
    """

    command: Sequence[str]
    workdir: pathlib.Path
    log: pathlib.Path
    patience: float  # Seconds to wait for a run to save.
    again: int = 0
    pid: int = 0

    def __call__(self) -> int:
        """Runs to the end; returns the exit code."""
        number, log = int(os.environ.get("SLURM_PROCID", "0")), self.log
        log = log.with_suffix(f".{number}.log") if number else log
        before = local.log_size(self.workdir)
        process = local.start_process(self.command, log, {}, apart=False)
        self.pid = process.pid
        code = process.wait()
        if not number:  # The others write nothing into the workdir.
            local.log_exit(self.workdir, code, log, before)
        if code == signals.EXIT_LOST:
            self._requeue()
        elif code not in local.EXPECTED_CODES:
            raise RuntimeError(f"{self.workdir}: {local.exit_reason(code, log)}")
        return code

    def checkpoint(self) -> Any:
        """What is to be run once the scheduler gives a place again: the same."""
        import submitit

        self._settle()
        return submitit.helpers.DelayedSubmission(dataclasses.replace(self, pid=0))

    def _requeue(self) -> None:
        """Starts the job's processes once more, all of them: one was lost."""
        restarts = int(os.environ.get("SLURM_RESTART_COUNT", "0"))
        name = os.environ.get("SLURM_JOB_ID")
        if name and restarts < self.again:
            line = f"a process was lost: job {name} goes back into the queue"
            messages.print_text(line)
            # Where another was faster this does nothing, or fails.
            subprocess.run(["scontrol", "requeue", name], check=False)

    def _settle(self) -> None:
        """Waits until the run has ended, having saved; asks it to after a while."""
        for tenth in range(int(10 * self.patience)):
            if not self.pid or _over(self.pid):
                return
            if tenth == int(5 * self.patience):
                os.kill(self.pid, signal.SIGTERM)
            time.sleep(0.1)


def _over(pid: int) -> bool:
    """Whether a child has ended; another wait for it still learns how."""
    how = os.WEXITED | os.WNOHANG | os.WNOWAIT
    try:
        return os.waitid(os.P_PID, pid, how) is not None
    except ChildProcessError:
        return True
