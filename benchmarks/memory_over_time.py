"""Measure the memory of a training run over time, with an evaluation and a save per step.

    python -m benchmarks.memory_over_time [--evaluations=300] [--out=DIR]

Starts a training run of one seed of ERM on few images of the embedded set as a user does,
and reads the process's resident memory after each evaluation. The first 20 evaluations are
warm-up. Growth compares the median of the last tenth with that of the first tenth. Needs
Linux. Writes benchmarks/results/memory_over_time-<backend>.json and .md.

Takes about ten minutes on two cores.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence

import jax
import ml_collections

from benchmarks import result_files

WARM = 20


def get_config(arg: str = "300") -> ml_collections.ConfigDict:
    """Return the config of the run; arg: number of evaluations."""
    from jbias.configs import erm

    c = erm.get_config("smoke,seeds=1")
    c.train.n, c.train.batch, c.valid.n = 64, 16, 64
    c.tests = {"cue_conflict": c.tests.cue_conflict.to_dict()}
    c.tests.cue_conflict.n = 240
    c.epochs = int(arg) / 4
    c.eval_every = c.save_every = "1 steps"
    c.run.log = "json"
    return c


def series(evaluations: int) -> Iterator[float]:
    """Train, and yield the resident memory in MiB after each evaluation."""
    with tempfile.TemporaryDirectory() as workdir:
        command = [
            sys.executable,
            "-m",
            "jbias.main",
            f"--workdir={workdir}",
            f"--config={__file__}:{evaluations}",
        ]
        run = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        status = pathlib.Path(f"/proc/{run.pid}/status")
        for line in run.stderr:
            if line.startswith("{") and json.loads(line)["event"] == "evaluation":
                kib = re.search(r"VmRSS:\s+(\d+)", status.read_text())[1]
                yield int(kib) / 1024
        if run.wait():
            raise SystemExit(f"benchmarks: the run ended with {run.returncode}")


def summary(mib: Sequence[float]) -> dict[str, float]:
    """Return MiB at the start and the end after warm-up, and the growth as a fraction."""
    counted = mib[WARM:]
    tenth = max(1, len(counted) // 10)
    first = statistics.median(counted[:tenth])
    last = statistics.median(counted[-tenth:])
    return {
        "first": first,
        "last": last,
        "lowest": min(counted),
        "highest": max(counted),
        "growth": last / first - 1,
    }


def main() -> None:
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--evaluations",
        type=int,
        default=300,
        help=f"number of evaluations, more than {WARM} (default: %(default)s)",
    )
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        default=result_files.RESULTS,
        metavar="DIR",
        help="folder for the results (default: benchmarks/results)",
    )
    options = parser.parse_args()
    if options.evaluations <= WARM:
        parser.error(f"--evaluations: must be more than {WARM}")
    mib_series = []
    for mib in series(options.evaluations):
        mib_series.append(mib)
        print(f"evaluation {len(mib_series)}: {mib:.1f} MiB", file=sys.stderr)
    totals, rows = summary(mib_series), []
    for start in range(0, len(mib_series), WARM):
        group = mib_series[start : start + WARM]
        median = statistics.median(group)
        rows.append((f"{start + 1} to {start + len(group)}", f"{median:.1f}"))
    text = result_files.markdown(("evaluations", "median MiB"), rows)
    text += (
        f"\nGrowth after the first {WARM}: {100 * totals['growth']:.2f} % (from"
        f" {totals['first']:.1f} to {totals['last']:.1f} MiB; the lowest of one evaluation"
        f" is {totals['lowest']:.1f}, the highest {totals['highest']:.1f}).\n"
    )
    result_files.write(
        f"memory_over_time-{jax.default_backend()}",
        {**totals, "mib": [round(mib, 1) for mib in mib_series]},
        text,
        ratios={"first / last": totals["first"] / totals["last"]},
        out=options.out,
    )


if __name__ == "__main__":
    main()
