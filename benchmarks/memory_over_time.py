"""How much memory a run takes as it goes on: evaluations and saves after every step.

    python -m benchmarks.memory_over_time [--evaluations=300] [--out=DIR]

Starts a training run as a user does, of one seed of ERM on few images of the embedded set,
and reads the process's resident memory after each evaluation; the first 20 are warm-up.
Growth is that of the median of the last tenth over that of the first. Needs Linux. Writes
benchmarks/results/memory_over_time-<device>.json and .md.
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

from benchmarks import measured

WARM = 20


def get_config(arg: str = "300") -> ml_collections.ConfigDict:
    """The run, of so many evaluations."""
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
    """MiB after each evaluation."""
    with tempfile.TemporaryDirectory() as workdir:
        command = [sys.executable, "-m", "jbias.main", f"--workdir={workdir}"]
        command += [f"--config={__file__}:{evaluations}"]
        run = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        status = pathlib.Path(f"/proc/{run.pid}/status")
        for line in run.stderr:
            if line.startswith("{") and json.loads(line)["event"] == "evaluation":
                kib = re.search(r"VmRSS:\s+(\d+)", status.read_text())[1]
                yield int(kib) / 1024
        if run.wait():
            raise SystemExit(f"benchmarks: the run ended with {run.returncode}")


def summary(found: Sequence[float]) -> dict[str, float]:
    """MiB at the start and the end after warm-up, and the growth, a share."""
    warm = found[WARM:]
    tenth = max(1, len(warm) // 10)
    first, last = statistics.median(warm[:tenth]), statistics.median(warm[-tenth:])
    return {
        "first": first,
        "last": last,
        "lowest": min(warm),
        "highest": max(warm),
        "growth": last / first - 1,
    }


def main() -> None:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--evaluations", type=int, default=300)
    parser.add_argument("--out", type=pathlib.Path, default=measured.RESULTS)
    options = parser.parse_args()
    if options.evaluations <= WARM:
        parser.error(f"--evaluations: must be more than {WARM}")
    found = []
    for mib in series(options.evaluations):
        found.append(mib)
        print(f"evaluation {len(found)}: {mib:.1f} MiB", file=sys.stderr)
    told = summary(found)
    rows = [
        (f"{at + 1} to {at + len(part)}", f"{statistics.median(part):.1f}")
        for at in range(0, len(found), WARM)
        if (part := found[at : at + WARM])
    ]
    text = measured.markdown(("evaluations", "median MiB"), rows)
    text += (
        f"\nGrowth after the first {WARM}: {100 * told['growth']:.2f} % (from"
        f" {told['first']:.1f} to {told['last']:.1f} MiB; the lowest of one evaluation is"
        f" {told['lowest']:.1f}, the highest {told['highest']:.1f}).\n"
    )
    measured.write(
        f"memory_over_time-{jax.default_backend()}",
        {**told, "mib": [round(mib, 1) for mib in found]},
        text,
        ratios={"first / last": told["first"] / told["last"]},
        out=options.out,
    )


if __name__ == "__main__":
    main()
