"""All seeds in one run against the same seeds in runs one after another, by the clock.

    python -m benchmarks.together [--config=configs/erm.py:epochs=2] [--seeds=4]
        [--rounds=3]

Each way is `python -m jbias.main` as a user starts it, from the command to its end with
all evaluations and checkpoints: one run of all seeds, or a run for each seed after that of
the one before. Programs and drawn images are kept from a run of each that does not count.
A ratio is the clock of the runs one after another over that of the one run. Writes
benchmarks/results/together-<backend>.json and .md.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import jax

from benchmarks import measured

ROOT = pathlib.Path(__file__).parents[1]
ONE, EACH = "one run of all", "a run for each"


def run(config: str, seeds: tuple[int, ...], cache: str) -> None:
    """Trains these seeds in a process and a workdir of their own."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "jbias.main",
                f"--config={config}",
                f"--config.seeds={seeds!r}",
                f"--workdir={folder}/run",
            ],
            cwd=ROOT,
            env={**os.environ, "JBIAS_CACHE": cache},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise SystemExit(f"benchmarks.together: {done.stderr[-2000:]}")


def main() -> None:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", default="configs/erm.py:epochs=2")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path, default=measured.RESULTS)
    parser.add_argument("--name")
    options = parser.parse_args()
    which = tuple(range(options.seeds))
    with tempfile.TemporaryDirectory() as cache:

        def together() -> None:
            run(options.config, which, cache)

        def one_by_one() -> None:
            for seed in which:
                run(options.config, (seed,), cache)

        ways = {EACH: one_by_one, ONE: together}
        seconds = measured.in_turns(ways, options.rounds, warm=1)
    found = measured.against(seconds, EACH, dict.fromkeys(seconds, options.seeds))
    rows = [
        (
            name,
            f"{statistics.median(seconds[name]):.1f}",
            f"{one['ratio']:.2f}",
            f"{one['lowest']:.2f} to {one['highest']:.2f}",
        )
        for name, one in found.items()
    ]
    head = (
        f"{options.seeds} seeds, {options.config}",
        "seconds",
        "ratio",
        "in a round",
    )
    measured.write(
        options.name or f"together-{jax.default_backend()}",
        {"seconds": seconds, "against": found},
        measured.markdown(head, rows),
        ratios={f"{EACH} / {ONE}": found[ONE]["ratio"]},
        out=options.out,
    )


if __name__ == "__main__":
    main()
