"""What TensorBoard and Weights & Biases cost a run at a line of progress.

    python -m benchmarks.writers [--seeds=5] [--tags=4] [--rounds=20]

Gives each of them the same numbers in turns, as a run does every config.run.log_seconds
(10 s by itself): the loop's process waits so long. Times are of the process, not of the wall,
as other processes are at work; that of Weights & Biases' own process is not in it, nor what
it takes to open them, which stands beside. Writes benchmarks/results/writers-cpu.json, .md.
"""

import argparse
import contextlib
import functools
import itertools
import pathlib
import statistics
import tempfile
import time

from etils import epath

from benchmarks import measured
from jbias.runs import loggers

LINE = 10.0  # Seconds from one line of progress to the next.


def given(several: loggers.Loggers, steps, numbers: loggers.Numbers) -> None:
    """One line of progress."""
    several.scalars(next(steps), numbers)


def main() -> None:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tags", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=pathlib.Path, default=measured.RESULTS)
    options = parser.parse_args()
    tags = {f"progress/{number}": 0.5 for number in range(options.tags)}
    of = [loggers.MEAN, *(f"seed-{seed}" for seed in range(options.seeds))]
    numbers = dict.fromkeys(of, tags)
    ways, opened = {}, {}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ends:
        for name in ("none", *loggers.LOGGERS):
            several = ends.enter_context(contextlib.closing(loggers.Loggers(print)))
            run = loggers.RunInfo(
                epath.Path(folder) / name, "erm-shapes", {"run": {}}, 0
            )
            began = time.perf_counter()
            several.begin([name] if name in loggers.LOGGERS else [], run)
            opened[name] = time.perf_counter() - began
            ways[name] = functools.partial(given, several, itertools.count(), numbers)
        seconds = measured.in_turns(ways, options.rounds, clock=time.process_time)
    median = {name: statistics.median(each) for name, each in seconds.items()}
    rows = [
        (name, f"{1e3 * took:.2f}", f"{took / LINE:.3%}", f"{opened[name]:.1f}")
        for name, took in median.items()
    ]
    measured.write(
        "writers-cpu",
        {"seconds": seconds, "opened": opened},
        measured.markdown(
            ("writer", "ms a line", f"of {LINE:g} s", "to open, s"), rows
        ),
        ratios={f"{name} / line": median[name] / LINE for name in loggers.LOGGERS},
        out=options.out,
    )


if __name__ == "__main__":
    main()
