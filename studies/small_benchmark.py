r"""Run the small benchmark: tune each method's learning rate, train many seeds, write one report.

    python -m studies.small_benchmark
    python -m studies.small_benchmark --methods=erm+sagnet --set=model.width=16 --set=epochs=12.0

Tuning: the learning rate with the best final validation accuracy is selected. The accuracy is
the mean over tuning seeds, which are used nowhere else; test sets are not used. If the best
rate is the lowest or the highest of `--rates`, half or twice the rate is tried as well, until
the best rate is neither, or eight rates were tried. A single rate is used without tuning.

Training and report: all seeds are trained with the selected rate. The report covers all methods
in `--runs`, also those of earlier calls, and the runs of `--beside`. With `--every-rate` all
seeds are trained with each of `--rates` and no further rates are tried; a second report in the
folder `rates` shows which differences hold at all rates. Run the same command again to continue
an interrupted benchmark.

`--of` are arguments of all configs (configs/common.py), such as
data=pacs,root=DIR,style=photo. A method may have arguments too: deepaugment:nets=cae. `--set`
sets an entry of every config.

Writes the report to `--out`, with each run's config (`configs/`), the rates with their validation
accuracies (`rates.json`), the shape bias of each seed (`tables/seeds.csv`) and a summary table
(`headline.md`).

These commands make the studies `shapes`, `longer`, `variants` and `every-rate` of
docs/results.md:

    jbias prepare deepaugment --net=cae --data=shapes --split=train --n=4096 --out=prepared/cae
    jbias prepare deepaugment --net=edsr --data=shapes --split=train --n=4096 --out=prepared/edsr
    SMALL="python -m studies.small_benchmark --of=small,more --show=silhouette+stylized"
    CAE=deepaugment:nets=cae
    FIRST=erm+sagnet+padain+infodrop+debiased+stylized_erm+$CAE+deepaugment:nets=edsr
    SECOND=mixup+cutmix+mixstyle+efdmix+rand_conv+gaussian_noise+dsu
    $SMALL --runs=runs/shapes --out=docs/results/shapes --methods=$FIRST+$SECOND
    $SMALL --runs=runs/longer --out=docs/results/longer --set=epochs=10.0 --rates=0.1 \
        --methods=erm --beside=runs/shapes/seeds/deepaugment-nets-cae
    $SMALL --runs=runs/variants --out=docs/results/variants --rates=0.1 \
        --methods=debiased:variant=biasbed --beside=runs/shapes/seeds/erm
    $SMALL --runs=runs/variants --out=docs/results/variants --rates=0.02 \
        --methods=sagnet:variant=biasbed+infodrop:variant=biasbed \
        --beside=runs/shapes/seeds/erm --beside=runs/shapes/seeds/sagnet \
        --beside=runs/shapes/seeds/infodrop --beside=runs/shapes/seeds/debiased
    EIGHT=erm+sagnet+padain+mixstyle+rand_conv+gaussian_noise+stylized_erm+$CAE
    $SMALL --runs=runs/every-rate --out=report-every-rate --every-rate --tuning-seeds=5 \
        --methods=$EIGHT --set=precision=float32 --set=run.strategy=vmapped \
        --set='save_every=1000 epochs'
    python -m studies.every_rate

Takes about half an hour per method on two cores.
"""

import json
import pathlib
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence

import pandas as pd

from jbias.report import workdirs
from jbias.runs import results, selection
from studies import collect_results, command

METHODS = (
    "erm",
    "stylized_erm",
    "debiased",
    "infodrop",
    "sagnet",
    "padain",
    "mixup",
    "cutmix",
    "mixstyle",
    "efdmix",
    "rand_conv",
    "gaussian_noise",
)
ROOT = pathlib.Path(__file__).parents[1]
TUNING_SEED = 1000


def folder_name(method: str) -> str:
    """Return the name of the folder of a method's runs."""
    return method.replace(":", "-").replace("=", "-")


def seeds_folder(
    runs: pathlib.Path, method_folder: str, rate: float, *, every_rate: bool
) -> pathlib.Path:
    """Return the folder of a method's seeds that were trained with `rate`.

    every_rate: prefer the folder that a call with --every-rate writes.
    """
    branch = runs / "rates" / method_folder / "vary" / f"optim.rate={rate:g}"
    single = runs / "seeds" / method_folder
    preferred, alternative = (branch, single) if every_rate else (single, branch)
    return preferred if preferred.exists() else alternative


def train(config: str, workdir: pathlib.Path, flags: Sequence[str]) -> None:
    """Train or resume a run; exit with its exit code if it fails. flags: further ones."""
    command = [sys.executable, "-m", "jbias.main", f"--config={config}"]
    process = subprocess.run([*command, f"--workdir={workdir}", *flags], check=False)
    if process.returncode == 3:
        print(f"small: {workdir}: every seed diverged")
    elif process.returncode:
        raise SystemExit(process.returncode)


def validation_accuracies(tuning: pathlib.Path) -> dict[float, float]:
    """Return the final validation accuracy of each rate of a run, as means over seeds."""
    accuracies = {}
    for folder in sorted(tuning.glob("vary/*")):
        steps = sorted(folder.glob("evals/*.jsonl"), key=lambda path: int(path.stem))
        rate = json.loads((folder / "config.json").read_text())["optim"]["rate"]
        values = [
            record.value
            for record in results.loads(steps[-1].read_text(), where=str(steps[-1]))
            if (record.dataset, record.metric) == (results.VALID, "accuracy")
        ]
        accuracies[rate] = (
            statistics.fmean(value or 0.0 for value in values) if values else 0.0
        )
    return accuracies


def best_rate(accuracies: dict[float, float]) -> float:
    """Return the rate with the highest validation accuracy, the smaller of equal ones."""
    return max(sorted(accuracies), key=accuracies.get)


def tune(
    config: str,
    tuning: pathlib.Path,
    rates: str,
    *,
    seeds: int,
    extend: bool,
    flags: tuple[str, ...],
) -> dict[float, float | None]:
    """Train with each rate; return the validation accuracy by rate.

    A single rate is not trained; its accuracy is None.

    tuning: folder of the runs. rates: rates, joined by +. seeds: number of tuning seeds.
    extend: try further rates until the best one is neither the lowest nor the highest, or
    eight were tried. flags: further flags of every run.
    """
    tuning_seeds = tuple(range(TUNING_SEED, TUNING_SEED + seeds))
    run_flags = (f"--config.seeds={tuning_seeds}", "--config.eval_every=1000 epochs")

    def try_rates(values: str) -> dict[float, float]:
        run = tuning / (values if seeds == 1 else f"{values} of {seeds} seeds")
        train(f"{config},vary=optim.rate={values}", run, (*run_flags, *flags))
        return validation_accuracies(run)

    if "+" not in rates:
        return {float(rates): None}
    accuracies = try_rates(rates)
    while extend and len(accuracies) < 8:
        best, lowest, highest = best_rate(accuracies), min(accuracies), max(accuracies)
        if best not in (lowest, highest):
            break
        next_rate = best / 2 if best == lowest else best * 2
        accuracies |= try_rates(f"{next_rate:g}")
    return accuracies


def format_column(table: pd.DataFrame) -> dict[str, str]:
    """Return the cells of one column of the headline, by algorithm."""
    percent = 100 * table.set_index("algorithm").filter(
        ["mean", "median", "lowest", "highest"]
    )
    cell = "{median:.1f} [{lowest:.1f}, {highest:.1f}]"
    cell = cell if "median" in percent else "{mean:.1f}"
    return {name: cell.format(**row) for name, row in percent.iterrows()}


def headline(tables: pathlib.Path, datasets: tuple[str, ...]) -> str:
    """Return medians [lowest, highest] over seeds in % and mean ranks, as Markdown.

    Means where the tables have no medians. Medians are shown because scores of seeds are
    often bimodal and bounded.

    tables: folder of the report's CSV files. datasets: test sets that get a column.
    """
    frames = {
        name: pd.read_csv(tables / f"{name}.csv")
        for name in ("validation", "scores", "shape_bias", "ranks")
        if (tables / f"{name}.csv").exists()
    }
    scores = frames["scores"]
    column_frames = {"Validation": frames["validation"]}
    for name in datasets:
        column_frames[name] = scores[scores["dataset"] == name]
    if "shape_bias" in frames:
        column_frames["Shape bias"] = frames["shape_bias"]
    ranks = frames["ranks"].set_index("algorithm")["mean_rank"].sort_values()
    columns = {name: format_column(frame) for name, frame in column_frames.items()}
    lines = [f"| Method | {' | '.join(columns)} | Mean rank |"]
    lines.append("| --- |" + " --: |" * (len(columns) + 1))
    for algorithm, rank in ranks.items():
        cells = " | ".join(column[algorithm] for column in columns.values())
        lines.append(f"| {algorithm} | {cells} | {rank:.2f} |")
    return "\n".join(lines) + "\n"


def write_report(runs: list[pathlib.Path], out: pathlib.Path, *flags: str) -> bool:
    """Write a report of the runs to `out`; return True if that worked."""
    report = [sys.executable, "-m", "jbias.report", "--last=3", f"--out={out}", *flags]
    process = subprocess.run([*report, "--runs", *map(str, runs)], check=False)
    if not process.returncode:
        # Not stored: the report's command makes these files again.
        for suffix in ("tex", "parquet", "pdf", "png", "md"):
            for file in out.glob(f"*/*.{suffix}"):
                file.unlink()
    return not process.returncode


def write_extras(
    runs: dict[str, pathlib.Path], out: pathlib.Path, rates: dict, datasets: str
) -> None:
    """Add configs, rates, the headline and the seeds' shape biases to a report's folder.

    runs: folders of runs by name. rates: contents of rates.json. datasets: test sets of the
    headline, joined by +.
    """
    (out / "configs").mkdir(exist_ok=True)
    for name, run in runs.items():
        shutil.copy(run / "config.json", out / "configs" / f"{name}.json")
    (out / "rates.json").write_text(json.dumps(rates, indent=1) + "\n")
    table = headline(out / "tables", tuple(datasets.split("+")))
    (out / "headline.md").write_text(table)
    frame = results.read([*map(str, runs.values())])
    labels = {run.workdir: run.label for run in workdirs.load(frame)}
    rows = selection.best_validation(frame)
    rows = rows[rows["metric"] == "shape_bias"].sort_values(["run", "seed"])
    rows = rows.assign(algorithm=rows["workdir"].map(labels), variant="")
    biases = rows[["algorithm", "variant", "dataset", "seed", "value"]]
    if len(biases):  # Empty if no test set has cue conflicts.
        biases.to_csv(out / "tables/seeds.csv", index=False)


def main(argv: list[str] | None = None) -> int:
    """Tune, train and report all methods; return 1 if a report fails."""
    parser = command.parser("small_benchmark", __doc__)
    add = parser.add_argument
    add(
        "--of",
        default="small,more",
        metavar="ARGUMENTS",
        help="arguments of all configs, joined by commas (default: %(default)s)",
    )
    add(
        "--methods",
        default="+".join(METHODS),
        help="methods, joined by +: names in configs/ "
        f"(default: the twelve methods {', '.join(METHODS)})",
    )
    add(
        "--seeds",
        type=int,
        default=10,
        metavar="N",
        help="number of seeds per method (default: %(default)s)",
    )
    add(
        "--tuning-seeds",
        type=int,
        default=1,
        metavar="N",
        help="number of tuning seeds per rate (default: %(default)s)",
    )
    add(
        "--rates",
        default="0.02+0.05+0.1",
        help="learning rates to try, joined by + (default: 0.02+0.05+0.1)",
    )
    add(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="entry of every config to set; may be repeated (default: none)",
    )
    add(
        "--show",
        default="silhouette+stylized",
        help="test sets of headline.md, joined by + (default: silhouette+stylized)",
    )
    add(
        "--beside",
        type=pathlib.Path,
        action="append",
        default=[],
        metavar="DIR",
        help="workdir of a run outside --runs to include in the report; may be repeated "
        "(default: none)",
    )
    add(
        "--every-rate",
        action="store_true",
        help="train all seeds with each of --rates (default: with the selected rate)",
    )
    add(
        "--runs",
        type=pathlib.Path,
        default=pathlib.Path("runs/small"),
        metavar="DIR",
        help="folder for the runs (default: %(default)s)",
    )
    command.add_out(parser, "the report", pathlib.Path("report-small"))
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
    rates_path = options.runs / "rates.json"
    rates = json.loads(rates_path.read_text()) if rates_path.exists() else {}
    flags = tuple(f"--config.{entry}" for entry in options.set)
    for method in options.methods.split("+"):
        name, _, method_arguments = method.partition(":")
        arguments = ",".join(filter(None, (method_arguments, options.of)))
        folder = folder_name(method)
        config = f"configs/{name}.py:{arguments}"
        accuracies = tune(
            config,
            options.runs / "tuning" / folder,
            options.rates,
            seeds=options.tuning_seeds,
            extend=not options.every_rate,
            flags=flags,
        )
        rate = best_rate(accuracies)
        print(f"small: {method}: rate {rate:g} of {accuracies}", flush=True)
        config_with_seeds = f"{config},seeds={options.seeds}"
        if options.every_rate:
            grid = options.runs / "rates" / folder
            values = "+".join(f"{value:g}" for value in sorted(accuracies))
            train(f"{config_with_seeds},vary=optim.rate={values}", grid, flags)
        else:
            run = options.runs / "seeds" / folder
            train(config_with_seeds, run, (f"--config.optim.rate={rate}", *flags))
        rates[method] = {
            "chosen": rate,
            "valid": accuracies,
            "tuning_seeds": options.tuning_seeds if len(accuracies) > 1 else 0,
        }
        rates_path.write_text(json.dumps(rates, indent=1) + "\n")
    runs = {}
    for method, tuned in sorted(rates.items()):
        folder = folder_name(method)
        runs[folder] = seeds_folder(
            options.runs, folder, tuned["chosen"], every_rate=options.every_rate
        )
    for run in options.beside:
        name = collect_results.name_of(run)
        if name in runs:
            parser.error(f"--beside: {run}: another run has the name {name}, too")
        runs[name] = run
    if not write_report(list(runs.values()), options.out, "--reference=ERM"):
        return 1
    write_extras(runs, options.out, rates, options.show)
    grids = sorted((options.runs / "rates").glob("*"))
    if grids and not write_report(grids, options.out / "rates"):
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
