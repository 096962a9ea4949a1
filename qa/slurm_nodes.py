"""Train one run on two of three nodes of a real SLURM: kill a process, drain a node.

Part of `python -m qa.slurm`. The run's records are compared with those of the
same run trained by one process.
"""

import os
import pathlib
import re
import signal
import time
from collections.abc import Iterator, Mapping
from typing import Any

from jbias.runs import results, status
from qa import slurm_cluster

LIMIT = 3600.0  # Seconds.
CONFIG = (
    "--config=configs/erm.py:smoke,seeds=1,model=cnn",
    "--config.run.devices=0",
    "--config.optim.rate=0.003",  # Rounding grows with it, and with the layers.
    "--config.epochs=6.0",
)


def run_on_two_nodes(folder: pathlib.Path, env: Mapping[str, str]) -> dict[str, Any]:
    """Train a run on two nodes with interruptions; return events and differences.

    The differences are from the same run trained by one process. folder: new folder. env:
    environment that finds the cluster.
    """
    runs, start = folder / "runs", time.monotonic()
    submitted = slurm_cluster.call(
        [
            *slurm_cluster.PYTHON,
            "launch.sweep",
            "run",
            *CONFIG,
            f"--workdir={runs}",
            "--on=slurm:nodes=2,warn=60",
        ],
        environment=env,
    )
    ((_, name),) = re.findall(r"job (\S+): (\S+)", submitted)
    events = [*watch(runs / name, env, start)]
    wall_seconds = time.monotonic() - start
    slurm_cluster.call(
        [*slurm_cluster.PYTHON, "launch.sweep", "status", f"--workdir={runs}"],
        environment=env,
    )
    slurm_cluster.train_again(runs / name, folder / "unbroken", env)
    log = (runs / name / "log.txt").read_text().replace(str(folder), "...")
    return {
        "job": name,
        "state": status.read(runs / name).phase,
        "events": events,
        "wall_seconds": wall_seconds,
        "log": [line for line in log.splitlines() if " images of " not in line],
        **compare_records(runs / name, folder / "unbroken"),
    }


def watch(
    workdir: pathlib.Path, env: Mapping[str, str], start: float
) -> Iterator[dict[str, Any]]:
    """Yield each change of the job's state until the job is gone.

    Kills process 1 after the first evaluation, then drains the last node and requeues the
    job after the next evaluation. start: time.monotonic() of the submission.
    """
    last_state, evaluations_at_kill, is_drained = "", 0, False
    query = ["squeue", "--noheader", "--format=%A|%T|%N"]
    while time.monotonic() - start < LIMIT:
        line = slurm_cluster.call(query, environment=env).strip()
        job, state, nodes = line.split("|") if line else ("", "ended", "")
        described = f"{state.lower()} {nodes}".strip()
        if described != last_state:
            yield slurm_cluster.event(start, described)
            last_state = described
        if not line:
            return
        num_evaluations = len(status.validation_curve(workdir))
        is_running = state == "RUNNING"
        if not evaluations_at_kill and is_running and num_evaluations:
            evaluations_at_kill = num_evaluations
            pid = process_of(job, 1)
            os.kill(pid, signal.SIGKILL)
            yield slurm_cluster.event(start, f"process 1 (pid {pid}) killed")
        elif (
            evaluations_at_kill
            and not is_drained
            and is_running
            and num_evaluations > evaluations_at_kill
        ):
            is_drained = True
            last_node = host_names(nodes, env)[-1]
            slurm_cluster.call(
                [
                    "scontrol",
                    "update",
                    f"nodename={last_node}",
                    "state=drain",
                    "reason=test",
                ],
                environment=env,
            )
            yield slurm_cluster.event(start, f"{last_node} drained")
            slurm_cluster.call(["scontrol", "requeue", job], environment=env)
            yield slurm_cluster.event(start, "requeued")
        time.sleep(0.3)
    raise SystemExit(f"qa.slurm: not done after {LIMIT:.0f} s")


def process_of(job: str, number: int) -> int:
    """Return the process id of a run's process `number` in a job on this machine."""
    wanted = {f"SLURM_JOB_ID={job}", f"SLURM_PROCID={number}"}
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_text().split("\0")
            environment = {*(path / "environ").read_text().split("\0")}
        except (OSError, UnicodeDecodeError):
            continue  # The process has ended, or belongs to another user.
        if "jbias.main" in words and wanted <= environment:
            return int(path.name)
    raise SystemExit(f"qa.slurm: job {job} has no process {number}")


def host_names(nodes: str, env: Mapping[str, str]) -> list[str]:
    """Return the node names of a list in SLURM's short notation, such as n[1-3]."""
    command = ["scontrol", "show", "hostnames", nodes]
    return slurm_cluster.call(command, environment=env).split()


def compare_records(run: pathlib.Path, other: pathlib.Path) -> dict[str, Any]:
    """Return the largest differences between the records of two runs.

    Raises SystemExit if the runs have records of different seeds, steps or metrics.
    """
    ours, theirs = _records(run), _records(other)
    if ours.keys() != theirs.keys():
        raise SystemExit("qa.slurm: the runs have different records")
    counts, losses, norms = [0], [0.0], [0.0]
    for key, record in ours.items():
        twin = theirs[key]
        if record.metric == "accuracy":
            counts.append(abs(record.count - twin.count))
        elif record.dataset == "train":
            differences = norms if "norm" in record.metric else losses
            differences.append(abs(record.value - twin.value) / abs(twin.value))
    return {
        "records": len(ours),
        "images_apart": max(counts),  # Of any accuracy.
        "losses_apart": max(losses),  # Relative.
        "norms_apart": max(norms),  # Relative, of gradients.
    }


def _records(run: pathlib.Path) -> dict[tuple, results.Record]:
    """Return a run's records by seed, step, data set, condition and metric."""
    records = {}
    for path in sorted(run.glob("evals/*.jsonl")):
        for r in results.loads(path.read_text("utf-8"), where=str(path)):
            records[r.seed, r.step, r.dataset, r.condition, r.metric] = r
    return records


def summary(measures: Mapping[str, Any]) -> str:
    """Return the result of `run_on_two_nodes` as a paragraph."""
    return (
        f"{measures['job']}, `--on=slurm:nodes=2`, on two of three nodes: {measures['state']} "
        f"after {measures['wall_seconds']:.0f} s. Its {measures['records']} "
        "records were compared with those of the same run, trained by one process "
        "without interruption. Accuracies differ by at most "
        f"{measures['images_apart']} image(s), losses by at most a relative "
        f"{measures['losses_apart']:.1e}, and norms of gradients by at most a relative "
        f"{measures['norms_apart']:.1e}."
    )
