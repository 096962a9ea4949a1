"""Time a report of simulated records: reading, selection, tests and the page.

    python -m benchmarks.report_speed [--runs=1000] [--epochs=100] [--sets=50]
        [--algorithms=20] [--seeds=10] [--rounds=1] [--keep=DIR]

Writes --runs / --seeds workdirs of --seeds seeds each, with one file of records per epoch,
as training writes them. In every round a new process runs the command `jbias report` on all
of them; then this process times each stage: reading, selection by each rule, the tests, the
page. --keep writes the records to a folder that stays, or uses the records in that folder.
Files may be cached by the system. Writes benchmarks/results/report_speed.json and .md.

Takes about five minutes on two cores, most of them to write the records.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

from benchmarks import result_files
from jbias.report import document
from jbias.report import options as options_lib
from jbias.report.pages.benchmark import analysis, benchmark_page, inputs
from jbias.runs import results, selection

ROOT = pathlib.Path(__file__).parents[1]
# Flag, default and meaning of each size.
SIZES = (
    ("runs", 1000, "number of runs, a seed each"),
    ("seeds", 10, "seeds of a workdir"),
    ("algorithms", 20, "number of algorithms"),
    ("epochs", 100, "evaluations of a run"),
    ("sets", 50, "number of data sets"),
)


def make(folder: pathlib.Path, *, runs, seeds, algorithms, epochs, sets) -> int:
    """Write workdirs with random accuracies; return the number of records.

    runs: number of seeds in all. seeds: seeds of a workdir. sets: number of data sets.
    """
    names = ["valid", *(f"data_set_{i}" for i in range(1, sets))]
    count = 0
    for i in range(-(-runs // seeds)):
        algorithm, group = f"algorithm {i % algorithms}", i // algorithms
        first = group * seeds
        run_seeds = range(first, min(first + seeds, first + runs))
        workdir = folder / f"run_{i}"
        (workdir / "evals").mkdir(parents=True)
        config = {
            "algo": {"name": algorithm},
            "seeds": list(run_seeds),
            "epochs": epochs,
        }
        (workdir / "config.json").write_text(json.dumps(config))
        (workdir / "provenance.json").write_text("{}")
        (workdir / "done").write_text("")
        rng = np.random.default_rng(i)
        base = rng.uniform(0.2, 0.6) + 0.02 * (i % algorithms)
        for epoch in range(1, epochs + 1):
            lines = []
            accuracy = min(base + 0.3 * (1 - np.exp(-epoch / 10)), 1)
            counts = rng.binomial(1000, accuracy, size=(len(run_seeds), sets)).tolist()
            for seed, row in zip(run_seeds, counts, strict=True):
                for name, num_right in zip(names, row, strict=True):
                    lines.append(
                        f'{{"run": "run_{i}", "algorithm": "{algorithm}", "variant": "", '
                        '"model": "resnet18", "train_data": "shapes", "stage": 0, '
                        f'"seed": {seed}, "step": {100 * epoch}, "epoch": {epoch}.0, '
                        f'"dataset": "{name}", "condition": "", "metric": "accuracy", '
                        f'"value": {num_right / 1000}, "count": {num_right}, "n": 1000, '
                        '"status": "ok"}\n'
                    )
            path = workdir / "evals" / f"{100 * epoch}.jsonl"
            path.write_text("".join(lines))
            count += len(lines)
    return count


def time_stages(folder: pathlib.Path, out: pathlib.Path) -> dict[str, float]:
    """Return the seconds of each stage of a report, in this process.

    folder: folder of the workdirs. out: folder of the report.
    """
    seconds = {}

    def timed(name, function, *args):
        start = time.perf_counter()
        result = function(*args)
        seconds[name] = time.perf_counter() - start
        return result

    patterns, options = [f"{folder}/run_*"], options_lib.Options()
    frame = timed("read the records", results.read, patterns)
    evaluations = timed("leave out what does not count", selection.evaluations, frame)
    timed("best validation", selection.best_validation, evaluations)
    timed(
        "last 30", selection.last_n, evaluations, min(30, evaluations["step"].nunique())
    )
    timed("oracle", selection.oracle, evaluations)
    del frame, evaluations
    study = timed("gather: all of the above", inputs.from_runs, patterns, options)
    timed("test", analysis.analyse, study)
    report = timed("the same, with tables and figures", benchmark_page.report, study)
    timed("write the page", document.write, report, out)
    return seconds


def time_command(folder: pathlib.Path, out: pathlib.Path) -> float:
    """Return the seconds of the command `jbias report`, from start to end."""
    start = time.perf_counter()
    command = [
        sys.executable,
        "-m",
        "jbias.report",
        f"--runs={folder}/run_*",
        f"--out={out}",
    ]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default, meaning in SIZES:
        parser.add_argument(
            f"--{name}",
            type=int,
            default=default,
            help=f"{meaning} (default: %(default)s)",
        )
    parser.add_argument(
        "--rounds", type=int, default=1, help="timed repetitions (default: 1)"
    )
    parser.add_argument(
        "--keep",
        type=pathlib.Path,
        metavar="DIR",
        help="folder of the records (default: a temporary folder)",
    )
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        default=result_files.RESULTS,
        metavar="DIR",
        help="folder for the results (default: benchmarks/results)",
    )
    options = parser.parse_args()
    sizes = {name: getattr(options, name) for name, _, _ in SIZES}
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or pathlib.Path(temporary) / "runs"
        if not any(folder.glob("run_*")):
            count = make(folder, **sizes)
            print(f"{count:,} records written", flush=True)
        rounds = []
        for _ in range(options.rounds):
            command = time_command(folder, pathlib.Path(temporary) / "a")
            stages = time_stages(folder, pathlib.Path(temporary) / "b")
            seconds = {"the command": command, **stages}
            rounds.append(seconds)
            print(seconds, flush=True)
    median = {
        name: statistics.median(seconds[name] for seconds in rounds)
        for name in rounds[0]
    }
    rows = [(name, f"{second:.2f}") for name, second in median.items()]
    title = f"{options.runs} runs, {options.epochs} epochs, {options.sets} sets"
    reading_ratio = median["the command"] / median["read the records"]
    result_files.write(
        "report_speed",
        rounds,
        result_files.markdown((title, "seconds"), rows),
        ratios={"the command / reading": reading_ratio},
        out=options.out,
        sizes=sizes,
    )


if __name__ == "__main__":
    main()
