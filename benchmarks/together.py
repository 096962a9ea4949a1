"""Measure the wall time of all seeds in one run, against a run per seed.

    python -m benchmarks.together [--config=configs/erm.py:epochs=2] [--seeds=4]
        [--rounds=3]

Each variant runs `jbias train` as a user does, from the command to its end with all
evaluations and checkpoints: one run of all seeds, or a run for each seed, one after the
other. Compiled programs and drawn images are cached in a first round that does not count. A
ratio is the time of the separate runs divided by that of the one run. Writes
benchmarks/results/together-<backend>.json and .md.

Takes about a quarter of an hour on two cores.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import jax

from benchmarks import result_files, timing

ROOT = pathlib.Path(__file__).parents[1]
ONE, EACH = "one run of all", "a run for each"


def run(config: str, seeds: tuple[int, ...], cache: str) -> None:
    """Train seeds in a new process and workdir; cache: folder of JBIAS_CACHE."""
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
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--config",
        default="configs/erm.py:epochs=2",
        help="config to train (default: %(default)s)",
    )
    add("--seeds", type=int, default=4, help="number of seeds (default: %(default)s)")
    add("--rounds", type=int, default=3, help="timed rounds (default: %(default)s)")
    add(
        "--out",
        type=pathlib.Path,
        metavar="DIR",
        default=result_files.RESULTS,
        help="folder for the results (default: benchmarks/results)",
    )
    add("--name", help="name of the results (default: together-<backend>)")
    options = parser.parse_args()
    seeds = tuple(range(options.seeds))
    with tempfile.TemporaryDirectory() as cache:

        def together() -> None:
            run(options.config, seeds, cache)

        def one_by_one() -> None:
            for seed in seeds:
                run(options.config, (seed,), cache)

        variants = {EACH: one_by_one, ONE: together}
        seconds = timing.in_turns(variants, options.rounds, warm=1)
    comparison = timing.against(seconds, EACH, dict.fromkeys(seconds, options.seeds))
    rows = [
        (
            name,
            f"{statistics.median(seconds[name]):.1f}",
            f"{rate['ratio']:.2f}",
            f"{rate['lowest']:.2f} to {rate['highest']:.2f}",
        )
        for name, rate in comparison.items()
    ]
    head = (
        f"{options.seeds} seeds, {options.config}",
        "seconds",
        "ratio",
        "in a round",
    )
    result_files.write(
        options.name or f"together-{jax.default_backend()}",
        {"seconds": seconds, "against": comparison},
        result_files.markdown(head, rows),
        ratios={f"{EACH} / {ONE}": comparison[ONE]["ratio"]},
        out=options.out,
    )


if __name__ == "__main__":
    main()
