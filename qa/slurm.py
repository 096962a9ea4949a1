"""Train the eight algorithms as an array in a real SLURM, and drain a node meanwhile.

    apt-get install slurm-wlm munge
    jbias prepare deepaugment --net=cae --data=shapes --split=train --n=128 --out=prepared/cae
    jbias prepare deepaugment --net=edsr --data=shapes --split=train --n=128 --out=prepared/edsr
    python -m qa.slurm --prepared=prepared

Starts a SLURM of two nodes on this machine (qa/slurm_cluster.py), submits the trials of
configs/sweeps/eight.py in a tiny setting, drains the first node once its run has a checkpoint,
requeues that run, and resumes the node when the run continues on the other node. Then trains the
same run without interruption and makes a report of all runs. Last, two of three nodes train one
run of six epochs (qa/slurm_nodes.py). Writes OUT/slurm-cpu.json and OUT/slurm-cpu.md.

Needs the programs of Debian's packages slurm-wlm and munge, and images made by DeepAugment's two
networks, as above.

Takes about half an hour on two cores (an estimate; with --epochs=4 more than 15 minutes).
"""

import contextlib
import pathlib
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks import result_files
from jbias.runs import status
from qa import command, slurm_cluster, slurm_nodes

LIMIT = 3600.0  # Seconds.


def main() -> None:
    """Run both scenarios, print and write the results."""
    parser = command.parser("slurm", __doc__)
    parser.add_argument(
        "--prepared",
        type=pathlib.Path,
        metavar="DIR",
        required=True,
        help="folder with subfolders cae and edsr, which `jbias prepare deepaugment` wrote "
        "(required)",
    )
    parser.add_argument(
        "--epochs",
        type=float,
        default=10.0,
        metavar="N",
        help="epochs of each run of the array (default: %(default)g)",
    )
    parser.add_argument(
        "--folder",
        type=pathlib.Path,
        metavar="DIR",
        help="new folder for the runs and SLURM's files (default: a temporary folder)",
    )
    command.add_out(parser, "the results")
    options = parser.parse_args()
    slurm_cluster.require_programs(parser)
    with contextlib.ExitStack() as stack:
        folder = options.folder or pathlib.Path(
            stack.enter_context(tempfile.TemporaryDirectory())
        )
        folder, prepared = folder.resolve(), options.prepared.resolve()
        results = run_array(folder, prepared, options.epochs)
        with slurm_cluster.started(folder / "slurm-3", nodes=3) as env:
            results["nodes"] = slurm_nodes.run_on_two_nodes(folder / "nodes", env)
    result_files.write("slurm-cpu", results, page(results), ratios={}, out=options.out)


def run_array(
    folder: pathlib.Path, prepared: pathlib.Path, epochs: float
) -> dict[str, Any]:
    """Train the array while a node is drained; return events, states and log lines.

    folder: new folder. prepared: images of DeepAugment. epochs: length of each run.
    """
    runs = folder / "runs"
    sweep = f"--sweep=configs/sweeps/eight.py:of=smoke+seeds=1,prepared={prepared}"
    run_command = [
        *slurm_cluster.PYTHON,
        "launch.sweep",
        "run",
        sweep,
        f"--config.epochs={epochs}",
        f"--workdir={runs}",
        "--on=slurm:minutes=60,warn=60",
    ]
    with slurm_cluster.started(folder / "slurm") as env:
        start = time.monotonic()
        submitted = slurm_cluster.call(run_command, environment=env)
        jobs = dict(re.findall(r"job (\S+): (\S+)", submitted))
        events = [*watch(runs, jobs, env, start)]
        wall_seconds = time.monotonic() - start
        second_call = slurm_cluster.call(run_command, environment=env)
        slurm_cluster.call(
            [*slurm_cluster.PYTHON, "launch.sweep", "status", f"--workdir={runs}"],
            environment=env,
        )
        requeued_job = next(e["job"] for e in events if e["what"] == "requeued")
        requeued = jobs[requeued_job]
        is_same = equals_uninterrupted(runs / requeued, folder / "unbroken", env)
        report = folder / "report"
        slurm_cluster.call(
            [
                *slurm_cluster.PYTHON,
                "jbias.report",
                f"--runs={runs}",
                f"--out={report}",
            ],
            environment=env,
        )
    states = {name: status.read(runs / name).phase for name in jobs.values()}
    log = (runs / requeued / "log.txt").read_text().replace(str(folder), "...")
    version = slurm_cluster.call(["sinfo", "--version"], environment=env)
    return {
        "version": version.strip(),
        "epochs": epochs,
        "jobs": jobs,
        "events": events,
        "wall_seconds": wall_seconds,
        "states": states,
        "again": second_call.strip().splitlines()[-1],
        "broken": requeued,
        "log": [line for line in log.splitlines() if " images of " not in line],
        "same_records_as_unbroken": is_same,
        "reported": sorted(path.name for path in report.iterdir()),
    }


def watch(
    runs: pathlib.Path, jobs: Mapping[str, str], env: Mapping[str, str], start: float
) -> Iterator[dict[str, Any]]:
    """Yield each change of a job's state until no job is left.

    Drains the first node once a run there has a checkpoint, requeues that run's job, and
    resumes the node when the job runs on the second node.

    runs: folder of the runs. jobs: name of the run of each job. start: time.monotonic() of
    the submission.
    """
    states, is_drained, requeued = {}, False, ""
    first, second = (slurm_cluster.node(i) for i in range(2))
    update = ["scontrol", "update", f"nodename={first}"]
    query = ["squeue", "--noheader", "--array", "--format=%i|%T|%N"]
    while time.monotonic() - start < LIMIT:
        lines = slurm_cluster.call(query, environment=env).split()
        queue = {job: (state, node) for job, state, node in map(_split, lines)}
        for job in jobs:
            state = queue.get(job, ("ended", ""))
            if states.get(job) != state:
                states[job] = state
                description = " ".join(state).strip().lower()
                yield slurm_cluster.event(start, description, job)
        if not queue:
            return
        on_first = [job for job, state in queue.items() if state == ("RUNNING", first)]
        if (
            not requeued
            and on_first
            and status.validation_curve(runs / jobs[on_first[0]])
        ):
            is_drained, requeued = True, on_first[0]
            slurm_cluster.call([*update, "state=drain", "reason=test"], environment=env)
            yield slurm_cluster.event(start, f"{first} drained")
            slurm_cluster.call(["scontrol", "requeue", requeued], environment=env)
            yield slurm_cluster.event(start, "requeued", requeued)
        if is_drained and queue.get(requeued) == ("RUNNING", second):
            slurm_cluster.call([*update, "state=resume"], environment=env)
            yield slurm_cluster.event(start, f"{first} resumed")
            is_drained = False
        time.sleep(0.3)
    raise SystemExit(f"qa.slurm: not done after {LIMIT:.0f} s")


def _split(line: str) -> tuple[str, str, str]:
    """Return job, state and node of a line of squeue."""
    job, state, node = line.split("|")
    return job, state, node


def equals_uninterrupted(
    run: pathlib.Path, other: pathlib.Path, env: Mapping[str, str]
) -> bool:
    """Train a run again in workdir `other`; return True if the records are equal bytes."""
    slurm_cluster.train_again(run, other, env)
    files = [sorted(workdir.glob("evals/*.jsonl")) for workdir in (run, other)]
    names = [[path.name for path in paths] for paths in files]
    pairs = zip(*files, strict=True)
    return names[0] == names[1] and all(
        a.read_bytes() == b.read_bytes() for a, b in pairs
    )


def page(results: Mapping[str, Any]) -> str:
    """Return the events and the interrupted runs' logs as Markdown."""
    done = [*results["states"].values()].count("done")
    sameness = "the same" if results["same_records_as_unbroken"] else "OTHER"
    summary = (
        f"{results['version']}, two nodes; {len(results['jobs'])} trials of {results['epochs']:g} "
        f"epochs, {done} done after {results['wall_seconds']:.0f} s. The requeued run, "
        f"{results['broken']}, has {sameness} records as one trained without a break. The same "
        f"command again: `{results['again']}`. Reported: {', '.join(results['reported'])}."
    )
    lines = [
        summary,
        "",
        _events(results["events"]),
        "Jobs:",
        "",
        *(f"- {job}: {name}" for job, name in results["jobs"].items()),
        "",
        "The requeued run's log:",
        "",
        *(f"    {line}" for line in results["log"]),
        "",
        "## One run on two nodes",
        "",
        slurm_nodes.summary(results["nodes"]),
        "",
        _events(results["nodes"]["events"]),
        "Its log:",
        "",
        *(f"    {line}" for line in results["nodes"]["log"]),
    ]
    return "\n".join(lines) + "\n"


def _events(events: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of events as Markdown."""
    rows = [(f"{e['seconds']:.0f}", e["job"], e["what"]) for e in events]
    return result_files.markdown(("seconds", "job", "event"), rows)


if __name__ == "__main__":
    main()
