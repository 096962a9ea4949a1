"""How long a report takes: records that were never measured, read, selected, tested, drawn.

    python -m benchmarks.report [--runs=1000] [--epochs=100] [--sets=50]
        [--algorithms=20] [--seeds=10] [--rounds=1] [--keep=DIR]

Writes --runs / --seeds workdirs of --seeds seeds each, one file of records an epoch, as
training writes them. In every round a new process makes the report of all of them, and
another one tells how long each stage takes: reading, a selection by each rule, the tests,
the page. --keep writes the records to a folder that stays, or uses those that are there.
Files may lie in the system's memory. Writes benchmarks/results/report.json and .md.
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

from benchmarks import measured
from jbias.report import analysis, benchmark, document, inputs
from jbias.report import options as options_lib
from jbias.runs import results, selection

ROOT = pathlib.Path(__file__).parents[1]


def make(folder: pathlib.Path, *, runs, seeds, algorithms, epochs, sets) -> int:
    """Writes workdirs; gives the number of records in each line of every file."""
    names = ["valid", *(f"data_set_{i}" for i in range(1, sets))]
    count = 0
    for i in range(-(-runs // seeds)):
        algorithm, part = f"algorithm {i % algorithms}", i // algorithms
        mine = range(part * seeds, min((part + 1) * seeds, part * seeds + runs))
        workdir = folder / f"run_{i}"
        (workdir / "evals").mkdir(parents=True)
        config = {"algo": {"name": algorithm}, "seeds": list(mine), "epochs": epochs}
        (workdir / "config.json").write_text(json.dumps(config))
        (workdir / "provenance.json").write_text("{}")
        (workdir / "done").write_text("")
        rng = np.random.default_rng(i)
        base = rng.uniform(0.2, 0.6) + 0.02 * (i % algorithms)
        for epoch in range(1, epochs + 1):
            lines = []
            right = base + 0.3 * (1 - np.exp(-epoch / 10))
            counts = rng.binomial(1000, min(right, 1), size=(len(mine), sets)).tolist()
            for seed, row in zip(mine, counts, strict=True):
                for name, right in zip(names, row, strict=True):
                    lines.append(
                        f'{{"run": "run_{i}", "algorithm": "{algorithm}", "variant": "", '
                        '"model": "resnet18", "train_data": "shapes", "stage": 0, '
                        f'"seed": {seed}, "step": {100 * epoch}, "epoch": {epoch}.0, '
                        f'"dataset": "{name}", "condition": "", "metric": "accuracy", '
                        f'"value": {right / 1000}, "count": {right}, "n": 1000, '
                        '"status": "ok"}\n'
                    )
            path = workdir / "evals" / f"{100 * epoch}.jsonl"
            path.write_text("".join(lines))
            count += len(lines)
    return count


def stages(folder: pathlib.Path, out: pathlib.Path) -> dict[str, float]:
    """Seconds of each stage; those of one process, so that files were read before."""
    took = {}

    def timed(name, function, *args, **kwargs):
        began = time.perf_counter()
        gave = function(*args, **kwargs)
        took[name] = time.perf_counter() - began
        return gave

    patterns, options = [f"{folder}/run_*"], options_lib.Options()
    frame = timed("read the records", results.read, patterns)
    chosen = timed("leave out what does not count", selection.evaluations, frame)
    timed("best validation", selection.best_validation, chosen)
    timed("last 30", selection.last_n, chosen, min(30, chosen["step"].nunique()))
    timed("oracle", selection.oracle, chosen)
    del frame, chosen
    study = timed("gather: all of the above", inputs.from_runs, patterns, options)
    timed("test", analysis.analyse, study)
    made = timed("the same, with tables and figures", benchmark.report, study)
    timed("write the page", document.write, made, out)
    return took


def whole(folder: pathlib.Path, out: pathlib.Path) -> float:
    """Seconds of the command, from its start to its end."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "jbias.report", f"--runs={folder}/run_*"]
    subprocess.run(
        [*command, f"--out={out}"], cwd=ROOT, check=True, capture_output=True
    )
    return time.perf_counter() - began


def main() -> None:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sizes = {"runs": 1000, "seeds": 10, "algorithms": 20, "epochs": 100, "sets": 50}
    for name, default in {**sizes, "rounds": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=measured.RESULTS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or pathlib.Path(temporary) / "runs"
        if not any(folder.glob("run_*")):
            made = make(folder, **{name: getattr(options, name) for name in sizes})
            print(f"{made:,} records written", flush=True)
        found = []
        for _ in range(options.rounds):
            seconds = {"the command": whole(folder, pathlib.Path(temporary) / "a")}
            seconds |= stages(folder, pathlib.Path(temporary) / "b")
            found.append(seconds)
            print(seconds, flush=True)
    median = {k: statistics.median(one[k] for one in found) for k in found[0]}
    rows = [(name, f"{second:.2f}") for name, second in median.items()]
    what = f"{options.runs} runs, {options.epochs} epochs, {options.sets} sets"
    measured.write(
        "report",
        found,
        measured.markdown((what, "seconds"), rows),
        ratios={
            "the command / reading": median["the command"] / median["read the records"]
        },
        out=options.out,
        sizes={name: getattr(options, name) for name in sizes},
    )


if __name__ == "__main__":
    main()
