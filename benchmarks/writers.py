"""Measure the cost of TensorBoard and Weights & Biases per line of progress of a run.

    python -m benchmarks.writers [--seeds=5] [--tags=4] [--rounds=20]

Gives each logger the same numbers in turns, as a run does every config.run.log_seconds
(default 10 s); the training loop waits for that time. Times are CPU times of this process,
because other processes are at work. The process of Weights & Biases is not included. The
time to open a logger is in a separate column. Writes benchmarks/results/writers-cpu.json
and .md.

Takes about a minute on two cores.
"""

import argparse
import contextlib
import itertools
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable

from etils import epath

from benchmarks import result_files, timing
from jbias.runs import loggers

LINE_SECONDS = 10.0  # From one line of progress to the next.


def make_logging(
    run_loggers: loggers.Loggers, numbers: loggers.Numbers
) -> Callable[[], None]:
    """Return a function that logs a line of progress, at a new step in each call."""
    steps = itertools.count()
    return lambda: run_loggers.scalars(next(steps), numbers)


def main() -> None:
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--seeds", type=int, default=5, help="number of seeds (default: %(default)s)")
    add("--tags", type=int, default=4, help="numbers per seed (default: %(default)s)")
    add("--rounds", type=int, default=20, help="timed lines (default: %(default)s)")
    add(
        "--out",
        type=pathlib.Path,
        metavar="DIR",
        default=result_files.RESULTS,
        help="folder for the results (default: benchmarks/results)",
    )
    options = parser.parse_args()
    tags = {f"progress/{number}": 0.5 for number in range(options.tags)}
    groups = [loggers.MEAN, *(f"seed-{seed}" for seed in range(options.seeds))]
    numbers = dict.fromkeys(groups, tags)
    variants, open_seconds = {}, {}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        for name in ("none", *loggers.LOGGERS):
            run_loggers = stack.enter_context(
                contextlib.closing(loggers.Loggers(print))
            )
            run = loggers.RunInfo(
                epath.Path(folder) / name, "erm-shapes", {"run": {}}, 0
            )
            start = time.perf_counter()
            run_loggers.begin([name] if name in loggers.LOGGERS else [], run)
            open_seconds[name] = time.perf_counter() - start
            variants[name] = make_logging(run_loggers, numbers)
        seconds = timing.in_turns(variants, options.rounds, clock=time.process_time)
    median = {name: statistics.median(turns) for name, turns in seconds.items()}
    rows = [
        (
            name,
            f"{1e3 * second:.2f}",
            f"{second / LINE_SECONDS:.3%}",
            f"{open_seconds[name]:.1f}",
        )
        for name, second in median.items()
    ]
    result_files.write(
        "writers-cpu",
        {"seconds": seconds, "opened": open_seconds},
        result_files.markdown(
            ("writer", "ms a line", f"of {LINE_SECONDS:g} s", "to open, s"), rows
        ),
        ratios={
            f"{name} / line": median[name] / LINE_SECONDS for name in loggers.LOGGERS
        },
        out=options.out,
    )


if __name__ == "__main__":
    main()
