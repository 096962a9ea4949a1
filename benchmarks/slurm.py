"""The eight algorithms as an array of a real SLURM, one node drained while they train.

    python -m benchmarks.slurm --prepared=DIR [--epochs=10] [--folder=DIR]

Starts a SLURM of two nodes on this machine (benchmarks/slurm_cluster.py), submits the
trials of configs/sweeps/eight.py in a tiny setting, drains the first node once its run
has a checkpoint, requeues that run, and resumes the node when the run has gone on
elsewhere. Then the same run is trained unbroken, and all are reported. Last, one run is
trained by two of three nodes (benchmarks/slurm_nodes.py). Writes
benchmarks/results/slurm-cpu.json and .md. --prepared: what `prepare deepaugment` made, of
the images that these settings train on (--data=shapes --split=train --n=128, cae and edsr).
"""

import argparse
import contextlib
import pathlib
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks import measured, slurm_cluster, slurm_nodes
from jbias.runs import status

LIMIT = 3600.0  # Seconds.


def main() -> None:
    """Runs it all, prints and writes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prepared", type=pathlib.Path, required=True)
    parser.add_argument("--epochs", type=float, default=10.0)
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=measured.RESULTS)
    options = parser.parse_args()
    if missing := slurm_cluster.missing():
        raise SystemExit(f"benchmarks.slurm: needs {', '.join(missing)} (slurm-wlm)")
    with contextlib.ExitStack() as stack:
        folder = options.folder or pathlib.Path(
            stack.enter_context(tempfile.TemporaryDirectory())
        )
        folder, prepared = folder.resolve(), options.prepared.resolve()
        told = scenario(folder, prepared, options.epochs)
        with slurm_cluster.started(folder / "slurm-3", nodes=3) as env:
            told["nodes"] = slurm_nodes.scenario(folder / "nodes", env)
    measured.write("slurm-cpu", told, page(told), ratios={}, out=options.out)


def scenario(
    folder: pathlib.Path, prepared: pathlib.Path, epochs: float
) -> dict[str, Any]:
    """Submits, drains, requeues, waits, compares and reports; what was seen."""
    runs = folder / "runs"
    sweep = f"--sweep=configs/sweeps/eight.py:of=smoke+seeds=1,prepared={prepared}"
    jbias = slurm_cluster.PYTHON
    run = (*jbias, "launch.sweep", "run", sweep, f"--config.epochs={epochs}")
    with slurm_cluster.started(folder / "slurm") as env:
        began = time.monotonic()
        run = (*run, f"--workdir={runs}", "--on=slurm:minutes=60,warn=60")
        submitted = slurm_cluster.call(*run, environment=env)
        jobs = dict(re.findall(r"job (\S+): (\S+)", submitted))
        events = [*watched(runs, jobs, env, began)]
        wall = time.monotonic() - began
        again = slurm_cluster.call(*run, environment=env)
        query = (*jbias, "launch.sweep", "status", f"--workdir={runs}")
        slurm_cluster.call(*query, environment=env)
        broken = jobs[next(e["job"] for e in events if e["what"] == "requeued")]
        same = unbroken(runs / broken, folder / "unbroken", env)
        out = folder / "report"
        named = f"--runs={runs}"
        slurm_cluster.call(
            *jbias, "jbias.report", named, f"--out={out}", environment=env
        )
    states = {name: status.read(runs / name).phase for name in jobs.values()}
    log = (runs / broken / "log.txt").read_text().replace(str(folder), "...")
    return {
        "version": slurm_cluster.call("sinfo", "--version", environment=env).strip(),
        "epochs": epochs,
        "jobs": jobs,
        "events": events,
        "wall_seconds": wall,
        "states": states,
        "again": again.strip().splitlines()[-1],
        "broken": broken,
        "log": [line for line in log.splitlines() if " images of " not in line],
        "same_records_as_unbroken": same,
        "reported": sorted(path.name for path in out.iterdir()),
    }


def watched(
    runs: pathlib.Path, jobs: Mapping[str, str], env: Mapping[str, str], began: float
) -> Iterator[dict[str, Any]]:
    """Yields what happens to the jobs until none is left; drains and requeues one."""
    before, drained, broken = {}, False, ""
    first, second = (slurm_cluster.node(i) for i in range(2))
    update = ("scontrol", "update", f"nodename={first}")
    while time.monotonic() - began < LIMIT:
        told = slurm_cluster.call(
            *("squeue", "--noheader", "--array", "--format=%i|%T|%N"), environment=env
        )
        now = {job: (state, node) for job, state, node in map(_split, told.split())}
        for job in jobs:
            if before.get(job) != now.get(job, ("ended", "")):
                before[job] = now.get(job, ("ended", ""))
                what = " ".join(before[job]).strip().lower()
                yield slurm_cluster.event(began, what, job)
        if not now:
            return
        here = [job for job, where in now.items() if where == ("RUNNING", first)]
        if not broken and here and status.validation_curve(runs / jobs[here[0]]):
            drained, broken = True, here[0]
            drain = (*update, "state=drain", "reason=test")
            slurm_cluster.call(*drain, environment=env)
            yield slurm_cluster.event(began, f"{first} drained")
            slurm_cluster.call("scontrol", "requeue", broken, environment=env)
            yield slurm_cluster.event(began, "requeued", broken)
        if drained and now.get(broken) == ("RUNNING", second):
            slurm_cluster.call(*update, "state=resume", environment=env)
            yield slurm_cluster.event(began, f"{first} resumed")
            drained = False
        time.sleep(0.3)
    raise SystemExit(f"benchmarks.slurm: not done after {LIMIT:.0f} s")


def _split(line: str) -> tuple[str, str, str]:
    job, state, node = line.split("|")
    return job, state, node


def unbroken(broken: pathlib.Path, other: pathlib.Path, env: Mapping[str, str]) -> bool:
    """Whether the run, trained again without a break, has the same records to the bit."""
    slurm_cluster.again(broken, other, env)
    files = [sorted(run.glob("evals/*.jsonl")) for run in (broken, other)]
    names = [[path.name for path in some] for some in files]
    pairs = zip(*files, strict=True)
    return names[0] == names[1] and all(
        a.read_bytes() == b.read_bytes() for a, b in pairs
    )


def page(told: Mapping[str, Any]) -> str:
    """The events and the broken runs' logs, in Markdown."""
    done = [*told["states"].values()].count("done")
    same = "the same" if told["same_records_as_unbroken"] else "OTHER"
    summary = (
        f"{told['version']}, two nodes; {len(told['jobs'])} trials of {told['epochs']:g} "
        f"epochs, {done} done after {told['wall_seconds']:.0f} s. The requeued run, "
        f"{told['broken']}, has {same} records as one trained without a break. The same "
        f"command again: `{told['again']}`. Reported: {', '.join(told['reported'])}."
    )
    lines = [
        summary,
        "",
        _events(told["events"]),
        "Jobs:",
        "",
        *(f"- {job}: {name}" for job, name in told["jobs"].items()),
        "",
        "The requeued run's log:",
        "",
        *(f"    {line}" for line in told["log"]),
        "",
        "## One run on two nodes",
        "",
        slurm_nodes.summary(told["nodes"]),
        "",
        _events(told["nodes"]["events"]),
        "Its log:",
        "",
        *(f"    {line}" for line in told["nodes"]["log"]),
    ]
    return "\n".join(lines) + "\n"


def _events(events: Sequence[Mapping[str, Any]]) -> str:
    rows = [(f"{e['seconds']:.0f}", e["job"], e["what"]) for e in events]
    return measured.markdown(("seconds", "job", "what"), rows)


if __name__ == "__main__":
    main()
