"""The benchmark in small: methods with tuned rates, many seeds, one report.

    python -m benchmarks.small [--of=small,more] [--methods=erm+sagnet] [--seeds=10]
        [--rates=0.02+0.05+0.1] [--runs=runs/small] [--out=docs/results/shapes]
        [--show=silhouette+stylized] [--set=model.width=16] [--set=epochs=12.0]
        [--tuning-seeds=1] [--beside=runs/other/seeds/erm] [--every-rate]

Each method's rate is the one with the best validation accuracy at the end of runs of
seeds that are used nowhere else (their mean); test sets have no say. Where the best is the
lowest or the highest of `rates`, half or twice of it is tried too, until one lies between
others. A single rate is taken untried. Then it is trained with that rate and all seeds, and
the report is made of all, with what earlier calls left in `runs` and with `--beside`, runs
that lie elsewhere. With `--every-rate` all seeds are trained with each of `rates`, no others
are tried, and a second report, in `rates`, says which differences hold at all of them.
Stopped and started again, it goes on. `of` are the configs' arguments
(configs/common.py), such as data=pacs,root=DIR,style=photo; a method may have arguments
too: deepaugment:nets=cae; `--set` is an entry of every config. Beside the report lie each
run's config; the rates with what validation said of them, `rates.json`; the shape bias of
each seed, `tables/seeds.csv`; and a table, `headline.md`.
"""

import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys

import pandas as pd

from benchmarks import standing
from jbias.report import workdirs
from jbias.runs import results, selection

METHODS = (
    *("erm", "stylized_erm", "debiased", "infodrop", "sagnet", "padain"),
    *("mixup", "cutmix", "mixstyle", "efdmix", "rand_conv", "gaussian_noise"),
)
ROOT = pathlib.Path(__file__).parents[1]
TUNING_SEED = 1000


def named(method: str) -> str:
    """The folder of a method's runs."""
    return method.replace(":", "-").replace("=", "-")


def place(runs: pathlib.Path, folder: str, rate: float, every: bool) -> pathlib.Path:
    """Where a method's seeds are that were trained with a rate, as this call does it or not."""
    branch = runs / "rates" / folder / "vary" / f"optim.rate={rate:g}"
    alone = runs / "seeds" / folder
    first, second = (branch, alone) if every else (alone, branch)
    return first if first.exists() else second


def trained(config: str, workdir: pathlib.Path, *flags: str) -> None:
    """Runs the main job, which goes on or has nothing to do; ends where it fails."""
    command = [sys.executable, "-m", "jbias.main", f"--config={config}"]
    done = subprocess.run([*command, f"--workdir={workdir}", *flags], check=False)
    if done.returncode == 3:
        print(f"small: {workdir}: every seed diverged")
    elif done.returncode:
        raise SystemExit(done.returncode)


def valid(tuning: pathlib.Path) -> dict[float, float]:
    """The validation accuracy of each rate of a run, at its end: means of its seeds."""
    found = {}
    for folder in sorted(tuning.glob("vary/*")):
        steps = sorted(folder.glob("evals/*.jsonl"), key=lambda path: int(path.stem))
        asked = json.loads((folder / "config.json").read_text())["optim"]["rate"]
        values = [
            r.value
            for r in results.loads(steps[-1].read_text(), where=str(steps[-1]))
            if (r.dataset, r.metric) == (results.VALID, "accuracy")
        ]
        found[asked] = statistics.fmean(v or 0.0 for v in values) if values else 0.0
    return found


def best(found: dict[float, float]) -> float:
    """The rate with the highest validation accuracy, the smaller of equal ones."""
    return max(sorted(found), key=found.get)


def tune(
    config: str,
    tuning: pathlib.Path,
    rates: str,
    seeds: int,
    more: bool,
    changes: tuple,
) -> dict[float, float | None]:
    """Tries the rates, and with `more` further ones until the best lies between others.

    A single rate is taken as it is, untried: None.
    """
    own = tuple(range(TUNING_SEED, TUNING_SEED + seeds))
    only_end = (f"--config.seeds={own}", "--config.eval_every=1000 epochs")

    def tried(some: str) -> dict[float, float]:
        config_of = f"{config},vary=optim.rate={some}"
        run = tuning / (some if seeds == 1 else f"{some} of {seeds} seeds")
        trained(config_of, run, *only_end, *changes)
        return valid(run)

    if "+" not in rates:
        return {float(rates): None}
    found = tried(rates)
    while more and (edge := best(found)) in (min(found), max(found)) and len(found) < 8:
        found |= tried(f"{edge / 2 if edge == min(found) else edge * 2:g}")
    return found


def told(table: pd.DataFrame) -> dict[str, str]:
    """Gives the cell of each algorithm in one column of the headline."""
    percent = 100 * table.set_index("algorithm").filter(
        ["mean", "median", "lowest", "highest"]
    )
    shape = "{median:.1f} [{lowest:.1f}, {highest:.1f}]"
    shape = shape if "median" in percent else "{mean:.1f}"
    return {name: shape.format(**row) for name, row in percent.iterrows()}


def headline(tables: pathlib.Path, shown: tuple[str, ...]) -> str:
    """Medians [lowest, highest] over seeds, in %, and mean ranks, as Markdown.

    Means where no more is known. Scores of seeds have two humps, and end at 0 and 100.
    shown: the test sets that get a column, beside validation and shape bias.
    """
    read = {
        name: pd.read_csv(tables / f"{name}.csv")
        for name in ("validation", "scores", "shape_bias", "ranks")
        if (tables / f"{name}.csv").exists()
    }
    scores = read["scores"]
    parts = {"Validation": read["validation"]}
    parts |= {name: scores[scores["dataset"] == name] for name in shown}
    if "shape_bias" in read:
        parts["Shape bias"] = read["shape_bias"]
    ranks = read["ranks"].set_index("algorithm")["mean_rank"].sort_values()
    columns = {name: told(table) for name, table in parts.items()}
    lines = [f"| Method | {' | '.join(parts)} | Mean rank |"]
    lines.append("| --- |" + " --: |" * (len(parts) + 1))
    for algorithm, rank in ranks.items():
        cells = " | ".join(column[algorithm] for column in columns.values())
        lines.append(f"| {algorithm} | {cells} | {rank:.2f} |")
    return "\n".join(lines) + "\n"


def reported(runs: list[pathlib.Path], out: pathlib.Path, *flags: str) -> bool:
    """Whether the report of some runs could be made."""
    report = [sys.executable, "-m", "jbias.report", "--last=3", f"--out={out}", *flags]
    done = subprocess.run([*report, "--runs", *map(str, runs)], check=False)
    if not done.returncode:
        # The command makes them again.
        for kind in ("tex", "parquet", "pdf", "png", "md"):
            for file in out.glob(f"*/*.{kind}"):
                file.unlink()
    return not done.returncode


def keep(
    runs: dict[str, pathlib.Path], out: pathlib.Path, rates: dict, shown: str
) -> None:
    """Puts the configs, the rates' validation and the headline beside the report."""
    (out / "configs").mkdir(exist_ok=True)
    for name, run in runs.items():
        shutil.copy(run / "config.json", out / "configs" / f"{name}.json")
    (out / "rates.json").write_text(json.dumps(rates, indent=1) + "\n")
    table = headline(out / "tables", tuple(shown.split("+")))
    (out / "headline.md").write_text(table)
    frame = results.read([*map(str, runs.values())])
    labels = {run.workdir: run.label for run in workdirs.load(frame)}
    rows = selection.best_validation(frame)
    rows = rows[rows["metric"] == "shape_bias"].sort_values(["run", "seed"])
    rows = rows.assign(algorithm=rows["workdir"].map(labels), variant="")
    biases = rows[["algorithm", "variant", "dataset", "seed", "value"]]
    if len(biases):  # Not every set of test sets has cue conflicts.
        biases.to_csv(out / "tables/seeds.csv", index=False)


def main(argv: list[str] | None = None) -> int:
    """Tunes, trains and reports."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--of", default="small,more", help="the configs' arguments")
    add("--methods", default="+".join(METHODS), help="configs, joined by +")
    add("--seeds", type=int, default=10)
    add("--tuning-seeds", type=int, default=1, help="whose mean validation chooses")
    add("--rates", default="0.02+0.05+0.1")
    add("--set", action="append", default=[], metavar="KEY=VALUE")
    add("--show", default="silhouette+stylized", help="test sets of the headline")
    add("--beside", type=pathlib.Path, action="append", default=[], metavar="DIR")
    add("--every-rate", action="store_true", help="trains all seeds with each rate")
    add("--runs", type=pathlib.Path, default=pathlib.Path("runs/small"))
    add("--out", type=pathlib.Path, default=pathlib.Path("report-small"))
    options = parser.parse_args(argv)
    if options.tuning_seeds < 1:
        parser.error(f"--tuning-seeds: must be at least 1, got {options.tuning_seeds}")
    for method in options.methods.split("+"):
        if not (ROOT / f"configs/{method.partition(':')[0]}.py").exists():
            parser.error(f"--methods: no configs/{method.partition(':')[0]}.py")
    try:
        [float(rate) for rate in options.rates.split("+")]
    except ValueError:
        parser.error(f"--rates: must be numbers joined by +, got {options.rates!r}")
    known = options.runs / "rates.json"
    rates = json.loads(known.read_text()) if known.exists() else {}
    changes = tuple(f"--config.{change}" for change in options.set)
    for method in options.methods.split("+"):
        name, _, own = method.partition(":")
        of = ",".join(filter(None, (own, options.of)))
        folder = named(method)
        config = f"configs/{name}.py:{of}"
        tuning = options.runs / "tuning" / folder
        some = options.tuning_seeds, not options.every_rate
        found = tune(config, tuning, options.rates, *some, changes)
        rate = best(found)
        print(f"small: {method}: rate {rate:g} of {found}", flush=True)
        seeds = f"{config},seeds={options.seeds}"
        if options.every_rate:
            grid = options.runs / "rates" / folder
            values = "+".join(f"{one:g}" for one in sorted(found))
            trained(f"{seeds},vary=optim.rate={values}", grid, *changes)
        else:
            run = options.runs / "seeds" / folder
            trained(seeds, run, f"--config.optim.rate={rate}", *changes)
        tuned_by = options.tuning_seeds if len(found) > 1 else 0
        rates[method] = {"chosen": rate, "valid": found, "tuning_seeds": tuned_by}
        known.write_text(json.dumps(rates, indent=1) + "\n")
    chosen = {
        named(method): place(
            options.runs, named(method), rate["chosen"], options.every_rate
        )
        for method, rate in sorted(rates.items())
    }
    for run in options.beside:
        name = standing.name_of(run)
        if name in chosen:
            parser.error(f"--beside: {run} is called {name}, as another run is")
        chosen[name] = run
    if not reported([*chosen.values()], options.out, "--reference=ERM"):
        return 1
    keep(chosen, options.out, rates, options.show)
    grids = sorted((options.runs / "rates").glob("*"))
    if grids and not reported(grids, options.out / "rates"):
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
