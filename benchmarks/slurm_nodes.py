"""One run on two of three nodes of a real SLURM: a process is killed, a node drained.

Part of `python -m benchmarks.slurm`. The run's records are compared with those of the
same run trained by one process.
"""

import os
import pathlib
import re
import signal
import time
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks import slurm_cluster
from jbias.runs import results, status

LIMIT = 3600.0  # Seconds.
CONFIG = (
    "--config=configs/erm.py:smoke,seeds=1,model=cnn",
    "--config.run.devices=0",
    "--config.optim.rate=0.003",  # Rounding grows with it, and with the layers.
    "--config.epochs=6.0",
)


def scenario(folder: pathlib.Path, env: Mapping[str, str]) -> dict[str, Any]:
    """Submits, kills, drains, waits and compares; what was seen."""
    runs, began = folder / "runs", time.monotonic()
    run = (*slurm_cluster.PYTHON, "launch.sweep", "run", *CONFIG, f"--workdir={runs}")
    submitted = slurm_cluster.call(*run, "--on=slurm:nodes=2,warn=60", environment=env)
    ((_, name),) = re.findall(r"job (\S+): (\S+)", submitted)
    events = [*watched(runs / name, env, began)]
    wall = time.monotonic() - began
    query = ("launch.sweep", "status", f"--workdir={runs}")
    slurm_cluster.call(*slurm_cluster.PYTHON, *query, environment=env)
    slurm_cluster.again(runs / name, folder / "unbroken", env)
    log = (runs / name / "log.txt").read_text().replace(str(folder), "...")
    return {
        "job": name,
        "state": status.read(runs / name).phase,
        "events": events,
        "wall_seconds": wall,
        "log": [line for line in log.splitlines() if " images of " not in line],
        **compared(runs / name, folder / "unbroken"),
    }


def watched(
    workdir: pathlib.Path, env: Mapping[str, str], began: float
) -> Iterator[dict[str, Any]]:
    """Yields what happens to the job; kills process 1, then drains its node."""
    before, killed, drained = "", 0, False
    while time.monotonic() - began < LIMIT:
        asked = ("squeue", "--noheader", "--format=%A|%T|%N")
        told = slurm_cluster.call(*asked, environment=env).strip()
        number, state, where = told.split("|") if told else ("", "ended", "")
        now = f"{state.lower()} {where}".strip()
        if now != before:
            yield slurm_cluster.event(began, now)
            before = now
        if not told:
            return
        seen = len(status.validation_curve(workdir))
        if not killed and state == "RUNNING" and seen:
            killed = seen
            pid = process_of(number, 1)
            os.kill(pid, signal.SIGKILL)
            yield slurm_cluster.event(began, f"process 1 (pid {pid}) killed")
        elif killed and not drained and state == "RUNNING" and seen > killed:
            drained = True
            last = nodes_of(where, env)[-1]
            drain = ("update", f"nodename={last}", "state=drain", "reason=test")
            slurm_cluster.call("scontrol", *drain, environment=env)
            yield slurm_cluster.event(began, f"{last} drained")
            slurm_cluster.call("scontrol", "requeue", number, environment=env)
            yield slurm_cluster.event(began, "requeued")
        time.sleep(0.3)
    raise SystemExit(f"benchmarks.slurm: not done after {LIMIT:.0f} s")


def process_of(job: str, number: int) -> int:
    """The process id of a run's process `number` in a job on this machine."""
    told = {f"SLURM_JOB_ID={job}", f"SLURM_PROCID={number}"}
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_text().split("\0")
            given = {*(path / "environ").read_text().split("\0")}
        except (OSError, UnicodeDecodeError):
            continue  # Gone, or another's.
        if "jbias.main" in words and told <= given:
            return int(path.name)
    raise SystemExit(f"benchmarks.slurm: job {job} has no process {number}")


def nodes_of(where: str, env: Mapping[str, str]) -> list[str]:
    """The nodes of a list as SLURM writes it."""
    show = ("scontrol", "show", "hostnames", where)
    return slurm_cluster.call(*show, environment=env).split()


def compared(one: pathlib.Path, other: pathlib.Path) -> dict[str, Any]:
    """How far the records of two runs are apart, which must be the same ones."""
    ours, theirs = (_records(run) for run in (one, other))
    if ours.keys() != theirs.keys():
        raise SystemExit("benchmarks.slurm: the runs have other records")
    counts, losses, norms = [0], [0.0], [0.0]
    for key, record in ours.items():
        twin = theirs[key]
        if record.metric == "accuracy":
            counts.append(abs(record.count - twin.count))
        elif record.dataset == "train":
            apart = norms if "norm" in record.metric else losses
            apart.append(abs(record.value - twin.value) / abs(twin.value))
    return {
        "records": len(ours),
        "images_apart": max(counts),  # In any of the accuracies.
        "losses_apart": max(losses),  # Relative,
        "norms_apart": max(norms),  # as are those of gradients.
    }


def _records(run: pathlib.Path) -> dict[tuple, results.Record]:
    paths = sorted(run.glob("evals/*.jsonl"))
    found = [results.loads(p.read_text("utf-8"), where=str(p)) for p in paths]
    return {
        (r.seed, r.step, r.dataset, r.condition, r.metric): r
        for some in found
        for r in some
    }


def summary(told: Mapping[str, Any]) -> str:
    """What was seen, in words."""
    return (
        f"{told['job']}, `--on=slurm:nodes=2`, on two of three nodes: {told['state']} "
        f"after {told['wall_seconds']:.0f} s. Of its {told['records']} records, beside "
        "those of the same run trained by one process without a break, no accuracy is "
        f"more than {told['images_apart']} image(s) apart, no loss more than "
        f"{told['losses_apart']:.1e} of itself, and no norm of gradients more than "
        f"{told['norms_apart']:.1e}."
    )
