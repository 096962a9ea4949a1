"""Measure the time from a command to its first training step, and the cost of imports.

    python -m benchmarks.startup [--config=configs/erm.py] [--rounds=3]

Starts the run of a config in a new workdir and ends it when its first steps are done: cold,
with an empty cache, and warm, with the cache of the cold start (the drawn set and compiled
programs). For `--help` of the commands: seconds until they end, and whether jax was
imported. Ratios are to `import jax` alone, which is timed in each round. In all rounds but
the first, Python's files may be cached by the system. Writes
benchmarks/results/startup-<backend>.json and .md.

Takes about a minute on two cores.
"""

import argparse
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import jax

from benchmarks import result_files

ROOT = pathlib.Path(__file__).parents[1]
DONE, BASE = "first steps done", "import jax"
COMMANDS = ("jbias.main", "jbias.report", "jbias.prepare")
# Runs a module as `python -m` does, and prints whether jax was imported.
HELP = """
import runpy, sys
sys.argv = [sys.argv[1], "--help"]
try:
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
finally:
    print("jax" in sys.modules, file=sys.stderr)
"""


def first_step(config: str, cache: pathlib.Path) -> float:
    """Return the seconds until a new run has taken its first steps.

    cache: folder of JBIAS_CACHE.
    """
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        run = subprocess.Popen(
            [
                sys.executable,
                "-u",
                "-m",
                "jbias.main",
                f"--config={config}",
                f"--workdir={folder}/run",
            ],
            cwd=ROOT,
            env={**without_cache(), "JBIAS_CACHE": str(cache)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        output = []
        for line in run.stdout:
            output.append(line)
            if DONE in line:
                break
        else:
            raise SystemExit(f"benchmarks.startup: no first step: {''.join(output)}")
        seconds = time.perf_counter() - start
        run.send_signal(signal.SIGTERM)
        run.communicate()
    return seconds


def without_cache() -> dict[str, str]:
    """Return the environment without the variables that name caches."""
    unset = ("JAX_COMPILATION_CACHE_DIR", "JBIAS_CACHE")
    return {key: value for key, value in os.environ.items() if key not in unset}


def import_jax() -> float:
    """Return the seconds of `import jax`, a lower bound of every start."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import jax; jax.devices()"], check=True)
    return time.perf_counter() - start


def time_help(command: str) -> tuple[float, bool]:
    """Return the seconds of `--help`, and True if jax was imported."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", HELP, command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    imports_jax = done.stderr.splitlines()[-1] == "True"
    return time.perf_counter() - start, imports_jax


def main() -> None:
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--config",
        default="configs/erm.py",
        help="config to start (default: %(default)s)",
    )
    add("--rounds", type=int, default=3, help="timed rounds (default: %(default)s)")
    add(
        "--out",
        type=pathlib.Path,
        metavar="DIR",
        default=result_files.RESULTS,
        help="folder for the results (default: benchmarks/results)",
    )
    options = parser.parse_args()
    seconds = {name: [] for name in (BASE, "cold", "warm", *COMMANDS)}
    with_jax = {}
    for _ in range(options.rounds):
        seconds[BASE].append(import_jax())
        with tempfile.TemporaryDirectory() as cache:
            for kind in ("cold", "warm"):
                seconds[kind].append(first_step(options.config, pathlib.Path(cache)))
        for name in COMMANDS:
            help_seconds, with_jax[name] = time_help(name)
            seconds[name].append(help_seconds)
    median = {name: statistics.median(turns) for name, turns in seconds.items()}
    rows = [
        (f"{options.config}, first steps, {name}", f"{median[name]:.1f}", "")
        for name in ("cold", "warm")
    ]
    rows.append((BASE, f"{median[BASE]:.1f}", "yes"))
    rows += [
        (f"{name} --help", f"{median[name]:.1f}", "yes" if with_jax[name] else "no")
        for name in COMMANDS
    ]
    result_files.write(
        f"startup-{jax.default_backend()}",
        {"seconds": seconds, "imports_jax": with_jax},
        result_files.markdown(
            ("from the command to its end", "seconds", "imports jax"), rows
        ),
        ratios={
            f"{BASE} / {name}": median[BASE] / second
            for name, second in median.items()
            if name != BASE
        },
        out=options.out,
    )


if __name__ == "__main__":
    main()
