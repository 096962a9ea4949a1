"""Executor that runs trials as arrays of SLURM jobs, by submitit.

A job receives SIGUSR1 some time before its time limit or preemption: the run saves, and
submitit queues the same job again. submitit reads the files in its folder by pickle, so
only you may have write access to the folder.
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

SIGNAL = "USR1"  # The run saves on this signal. submitit's default is USR2.
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
    "parallel": 256,  # Maximum number of the array's jobs that run at a time.
    "warn": 120,  # Seconds before its time limit when a job gets the signal to save.
    "requeues": 10,  # How often a job may reach its time limit, or lose a node.
}
# States of SLURM.
_QUEUED_STATES = (
    "PENDING",
    "CONFIGURING",
    "REQUEUED",
    "REQUEUE_HOLD",
    "SUSPENDED",
)
_ENDED_STATES = (
    "CANCELLED",
    "COMPLETED",
    "FAILED",
    "TIMEOUT",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
)


def script(todo: Sequence[trials.Trial], options: Mapping[str, Any]) -> str:
    """Return the script for sbatch of an array of these trials; options: of --on=slurm."""
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
    commands = [shlex.join(trials.command(trial)) for trial in todo]
    comments = [
        f"# {i}: " + command.replace("\n", r"\n") for i, command in enumerate(commands)
    ]
    return "\n".join([text, "# commands of the jobs:", *comments, ""])


def active(study: optuna.Study) -> dict[str, tuple[str, str]]:
    """Return (state, job number) by name of each trial of a study that has a job.

    The state is "queued" or "running". ValueError if squeue fails.
    """
    arrays, jobs = study.user_attrs, {}
    if not arrays:
        return jobs
    output = _call("squeue", "--me", "--noheader", "--array", "--format=%i|%T|%j")
    for line in output.splitlines():
        number, state, array = line.strip().split("|", 2)
        task = number.partition("_")[2] or "0"
        if array in arrays and task.isdecimal() and state not in _ENDED_STATES:
            names = arrays[array]
            if int(task) < len(names):
                word = "queued" if state in _QUEUED_STATES else "running"
                jobs[names[int(task)]] = (word, number)
    return jobs


@dataclasses.dataclass
class Executor:
    """SLURM jobs of a search's trials.

    The names of arrays, with the trials of their tasks, are stored in the study before an
    array is submitted. So a later start finds all jobs, even if this process is killed.

    jobs: state and job number by trial, as `active` returns them.
    """

    options: Mapping[str, Any]
    study: optuna.Study
    say: Callable[[str], None]
    max_jobs: int  # At a time.
    jobs: dict[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    stop = ""  # Jobs continue after a signal to this process.
    poll_seconds = 5.0

    def active_trials(self) -> dict[str, str]:
        """Return "queued" or "running" by name of each trial that has a job."""
        self.jobs = active(self.study)
        return {name: word for name, (word, _) in self.jobs.items()}

    def num_free(self) -> int:
        """Return the number of trials that may be started."""
        return max(0, self.max_jobs - len(self.jobs))

    def start(self, todo: Sequence[trials.Trial]) -> None:
        """Submit trials as arrays of jobs, of at most the cluster's maximum size."""
        if not todo:
            return
        _check(todo, self.options)
        config = _call("scontrol", "show", "config")
        size = int(re.search(r"MaxArraySize\s*=\s*([1-9]\d*)", config)[1])
        arrays = [todo[i : i + size] for i in range(0, len(todo), size)]
        parallel = max(1, self.options["parallel"] // len(arrays))
        for array in arrays:
            self._submit(array, {**self.options, "parallel": parallel})

    def _submit(self, todo: Sequence[trials.Trial], options: Mapping[str, Any]) -> None:
        """Submit trials as one array of jobs; options: of --on=slurm."""
        import submitit

        array, max_requeues = f"jbias-{secrets.token_hex(4)}", options["requeues"]
        self.study.set_user_attr(array, [trial.name for trial in todo])
        jobs = []
        for trial in todo:
            trials.clear_stopped(trial.workdir)
            job = Job(
                trials.command(trial),
                trial.workdir,
                log=local.log_path(trial),
                patience=0.8 * options["warn"],
                again=max_requeues,
            )
            jobs.append(job)
        try:
            executor = submitit.SlurmExecutor(
                _folder(todo), max_num_timeout=max_requeues
            )
            executor.update_parameters(**_parameters(options) | {"job_name": array})
            submitted = executor.submit_array(jobs)
        except (RuntimeError, submitit.core.utils.FailedJobError) as error:
            reason = " ".join(str(error).split())
            raise ValueError(
                f"--on=slurm: the array was not submitted: {reason}"
            ) from None
        for trial, job in zip(todo, submitted, strict=True):
            self.jobs[trial.name] = ("queued", job.job_id)
            self.say(f"job {job.job_id}: {trial.name}")

    def end(self, trial: trials.Trial) -> None:
        """Cancel the trial's job, whose run then saves."""
        _, number = self.jobs[trial.name]
        _call("scancel", number)


def _check(todo: Sequence[trials.Trial], options: Mapping[str, Any]) -> None:
    """Raise ValueError for trials that cannot run on several nodes, or without submitit.

    options: of --on=slurm.
    """
    where = f"slurm:nodes={options['nodes']}"
    trials.check_devices(todo, where, hosts=options["nodes"])
    if not importlib.util.find_spec("submitit"):
        raise ValueError("--on=slurm: needs submitit; pip install 'jbias[launch]'")


def _parameters(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return submitit's parameters by name, from the options of --on=slurm.

    Options that are 0 or "" are left out.
    """
    optional = {
        "partition": options["partition"],
        "account": options["account"],
        "qos": options["qos"],
        "constraint": options["constraint"],
        "gpus_per_node": options["gpus"],
        "cpus_per_task": options["cpus"],
        "mem": f"{options['gib'] * 1024:.0f}M" if options["gib"] else "",
    }
    parameters = {key: value for key, value in optional.items() if value}
    parameters |= {
        "job_name": "jbias",
        "time": options["minutes"],
        "ntasks_per_node": 1,
        "nodes": options["nodes"],
        "array_parallelism": options["parallel"],
        # Replaces the signal that submitit would set.
        "additional_parameters": {
            "requeue": True,
            "signal": f"{SIGNAL}@{options['warn']}",
        },
        "setup": [f"export SUBMITIT_PREEMPT_SIGNAL={SIGNAL}"],
    }
    if options["nodes"] > 1:
        # The run's own processes report failures to each other.
        parameters["srun_args"] = ["--kill-on-bad-exit=0"]
        if options["gpus"]:  # Otherwise jax uses one GPU of each node.
            numbers = ",".join(map(str, range(options["gpus"])))
            parameters["setup"].append(f"export JAX_LOCAL_DEVICE_IDS={numbers}")
    return parameters


def _folder(todo: Sequence[trials.Trial]) -> pathlib.Path:
    """Return submitit's folder of the trials' search."""
    return (todo[0].workdir.parent / ".sweep/slurm").absolute()


def _call(*command: str) -> str:
    """Return the standard output of a command of SLURM; ValueError if the command fails."""
    try:
        result = subprocess.run(
            command, check=False, capture_output=True, text=True, errors="replace"
        )
    except FileNotFoundError:
        raise ValueError(
            f"--on=slurm: the command {command[0]} is not installed on this machine; run "
            "jbias on a node with SLURM"
        ) from None
    if result.returncode:
        reason = " ".join(result.stderr.split())
        raise ValueError(f"--on=slurm: {command[0]} failed: {reason}")
    return result.stdout


@dataclasses.dataclass
class Job:
    """The command of a trial, in the form that submitit runs and checkpoints.

    SLURM sends its signal to all processes of the job, so the run saves and exits by
    itself. On several nodes, each node runs this, and the processes train together. If a
    process is lost, another process queues the job again.

    The attributes are pickled in submitit's folder.
    """

    command: Sequence[str]
    workdir: pathlib.Path
    log: pathlib.Path
    patience: float  # Seconds to wait for a run to save.
    again: int = 0  # Maximum number of times that the job is queued again.
    pid: int = 0  # Of the running command.

    def __call__(self) -> int:
        """Run the command, and return its exit code; RuntimeError for an unexpected one."""
        number, log = int(os.environ.get("SLURM_PROCID", "0")), self.log
        log = log.with_suffix(f".{number}.log") if number else log
        old_size = local.log_size(self.workdir)
        process = local.start_process(
            self.command, log, environment={}, new_session=False
        )
        self.pid = process.pid
        code = process.wait()
        if number == 0:  # Only process 0 writes to the workdir.
            local.log_exit(self.workdir, code, log, old_size=old_size)
        if code == signals.EXIT_LOST:
            self._requeue()
        elif code not in local.EXPECTED_CODES:
            raise RuntimeError(f"{self.workdir}: {local.exit_reason(code, log)}")
        return code

    def checkpoint(self) -> Any:
        """Wait until the run has saved; return submitit's submission that resumes the run."""
        import submitit

        self._wait_for_end()
        return submitit.helpers.DelayedSubmission(dataclasses.replace(self, pid=0))

    def _requeue(self) -> None:
        """Queue the job again after the loss of a process."""
        restarts = int(os.environ.get("SLURM_RESTART_COUNT", "0"))
        name = os.environ.get("SLURM_JOB_ID")
        if name and restarts < self.again:
            line = f"a process was lost: job {name} goes back into the queue"
            messages.print_text(line)
            # Fails or does nothing if another process of the job was faster.
            subprocess.run(["scontrol", "requeue", name], check=False)

    def _wait_for_end(self) -> None:
        """Wait up to `patience` seconds for the run to exit; send SIGTERM halfway."""
        for tenth in range(int(10 * self.patience)):
            if not self.pid or _has_ended(self.pid):
                return
            if tenth == int(5 * self.patience):
                os.kill(self.pid, signal.SIGTERM)
            time.sleep(0.1)


def _has_ended(pid: int) -> bool:
    """Return True if a child process has ended, and leave its exit code for `wait`."""
    flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
    try:
        return os.waitid(os.P_PID, pid, flags) is not None
    except ChildProcessError:
        return True
