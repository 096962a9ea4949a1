"""From a command to its first step, and what importing costs.

    python -m benchmarks.startup [--config=configs/erm.py] [--rounds=3]

Starts the run of a config in a new workdir and ends it once it says that its first steps
are done: cold, with nothing kept from before, and warm, with what the cold start kept
(the drawn set and compiled programs). `--help` of the commands: seconds until they end,
and whether jax was imported for it. Ratios are to `import jax` alone, which takes its
turn with all. Files that Python reads may lie in the system's memory in every round but
the first. Writes benchmarks/results/startup-<backend>.json and .md.
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

from benchmarks import measured

ROOT = pathlib.Path(__file__).parents[1]
DONE, BASE = "first steps done", "import jax"
COMMANDS = ("jbias.main", "jbias.report", "jbias.prepare")
# Runs a module as `python -m` does, and says whether jax is there when it ends.
HELP = """
import runpy, sys
sys.argv = [sys.argv[1], "--help"]
try:
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
finally:
    print("jax" in sys.modules, file=sys.stderr)
"""


def first_step(config: str, cache: pathlib.Path) -> float:
    """Seconds until a new run has made its first steps."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
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
        said = []
        for line in run.stdout:
            said.append(line)
            if DONE in line:
                break
        else:
            raise SystemExit(f"benchmarks.startup: no first step: {''.join(said)}")
        seconds = time.perf_counter() - began
        run.send_signal(signal.SIGTERM)
        run.communicate()
    return seconds


def without_cache() -> dict[str, str]:
    """The environment, without a cache of compiled programs of its own."""
    unset = ("JAX_COMPILATION_CACHE_DIR", "JBIAS_CACHE")
    return {key: value for key, value in os.environ.items() if key not in unset}


def import_jax() -> float:
    """Seconds of what no start of ours can be faster than."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import jax; jax.devices()"], check=True)
    return time.perf_counter() - began


def helped(command: str) -> tuple[float, bool]:
    """Seconds of `--help`, and whether jax was imported."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", HELP, command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return time.perf_counter() - began, done.stderr.splitlines()[-1] == "True"


def main() -> None:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", default="configs/erm.py")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path, default=measured.RESULTS)
    options = parser.parse_args()
    seconds = {name: [] for name in (BASE, "cold", "warm", *COMMANDS)}
    with_jax = {}
    for _ in range(options.rounds):
        seconds[BASE].append(import_jax())
        with tempfile.TemporaryDirectory() as cache:
            for start in ("cold", "warm"):
                seconds[start].append(first_step(options.config, pathlib.Path(cache)))
        for name in COMMANDS:
            took, with_jax[name] = helped(name)
            seconds[name].append(took)
    median = {name: statistics.median(each) for name, each in seconds.items()}
    rows = [
        (f"{options.config}, first steps, {name}", f"{median[name]:.1f}", "")
        for name in ("cold", "warm")
    ]
    rows.append((BASE, f"{median[BASE]:.1f}", "yes"))
    rows += [
        (f"{name} --help", f"{median[name]:.1f}", "yes" if with_jax[name] else "no")
        for name in COMMANDS
    ]
    measured.write(
        f"startup-{jax.default_backend()}",
        {"seconds": seconds, "imports_jax": with_jax},
        measured.markdown(
            ("from the command to its end", "seconds", "imports jax"), rows
        ),
        ratios={
            f"{BASE} / {name}": median[BASE] / took
            for name, took in median.items()
            if name != BASE
        },
        out=options.out,
    )


if __name__ == "__main__":
    main()
