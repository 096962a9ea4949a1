"""Keeps one table of all results, docs/results/all.csv, and the page that shows it, all.html.

    python -m benchmarks.standing
    python -m benchmarks.standing --runs='runs/mine/*' --study=mine

Without arguments the rows of the reports in docs/results are made anew, and those of other
studies stay; with --runs, the runs' scores at their best validation become the rows of
--study. A row is a score of one seed: study, method, set, metric, score (as a share of 1),
seed, rate and epochs of its training, rule of selection, commit of the code ("" where it is
not known).
"""

import argparse
import json
import pathlib
import sys

import pandas as pd

from benchmarks import all_results
from jbias.runs import results, selection

ROOT = pathlib.Path(__file__).parents[1]
COLUMNS = (
    *("study", "method", "set", "metric", "score", "seed", "rate", "epochs"),
    *("selection", "commit"),
)
KEY = ["study", "metric", "set", "method", "rate", "seed"]
METRICS = ("accuracy", "shape_bias", "fraction_neither")
RULE = "best validation"


def name_of(workdir: pathlib.PurePath) -> str:
    """What a run is called by its folder, or by that of the run that it is a branch of."""
    return (workdir.parents[1] if workdir.parent.name == "vary" else workdir).name


def training(config: dict) -> dict[str, float]:
    """The rate of a run, and the epochs of all its stages."""
    stages = config["stages"] or [{}]
    epochs = sum(stage.get("epochs", config["epochs"]) for stage in stages)
    return {"rate": config["optim"]["rate"], "epochs": epochs}


def of_report(folder: pathlib.Path) -> pd.DataFrame:
    """The rows of a report of benchmarks.small, but of runs that another one has."""
    tables = folder / "tables"
    about = pd.read_csv(tables / "provenance.csv", index_col="key")
    trained = {}
    for run in about.columns:
        if f"runs/{folder.name}/" not in about.at["workdir", run]:
            continue
        name = name_of(pathlib.PurePosixPath(about.at["workdir", run]))
        config = json.loads((folder / "configs" / f"{name}.json").read_text())
        commit = about.at["code.commit", run]
        trained[about.at["label", run]] = {
            **training(config),
            "commit": commit if isinstance(commit, str) and commit != "null" else "",
        }
    scores = pd.read_csv(tables / "runs.csv").melt(
        ["algorithm", "seed"], var_name="set", value_name="score"
    )
    scores["seed"] = scores["seed"].str.rpartition(":")[2].astype(int)
    parts = [scores.assign(metric="accuracy")]
    if (tables / "seeds.csv").exists():
        shape = pd.read_csv(tables / "seeds.csv", keep_default_na=False)
        shape["algorithm"] = all_results.methods(shape)
        if unknown := {*shape["algorithm"]} - {*scores["algorithm"]}:
            raise ValueError(f"{tables}/seeds.csv: has {unknown}, runs.csv has not")
        shape = shape.rename(columns={"dataset": "set", "value": "score"})
        parts.append(shape.assign(metric="shape_bias"))
    rows = pd.concat(parts).rename(columns={"algorithm": "method"})
    rows = rows[rows["method"].isin(trained)].reset_index(drop=True)
    told = pd.DataFrame([trained[name] for name in rows["method"]], index=rows.index)
    rows = pd.concat([rows, told], axis=1)
    return rows.assign(study=folder.name, selection=RULE)[[*COLUMNS]]


def of_runs(workdirs: list[str], study: str) -> pd.DataFrame:
    """The rows of runs, each seed where its validation is best."""
    rows = selection.best_validation(results.read(workdirs))
    rows = rows[rows["metric"].isin(METRICS) & (rows["condition"] == "")]
    rows = rows[rows["dataset"] != results.VALID].dropna(subset="value")
    told = {}
    for workdir in rows["workdir"].unique():
        path = pathlib.Path(workdir)
        about = json.loads((path / "provenance.json").read_text())
        told[workdir] = training(json.loads((path / "config.json").read_text()))
        told[workdir]["commit"] = about.get("code", {}).get("commit") or ""
    of_each = pd.DataFrame([told[one] for one in rows["workdir"]], index=rows.index)
    rows["method"] = all_results.methods(rows)
    rows = rows.rename(columns={"dataset": "set", "value": "score"})
    rows = pd.concat([rows, of_each], axis=1)
    return rows.assign(study=study, selection=RULE)[[*COLUMNS]]


def read(path: pathlib.Path) -> pd.DataFrame:
    """The table; ValueError, with the line, where a row is not as it must be."""
    rows = pd.read_csv(path, keep_default_na=False, dtype={"commit": str})
    return check(rows, str(path))


def check(rows: pd.DataFrame, path: str) -> pd.DataFrame:
    """The same rows; ValueError where one is not as it must be."""
    if tuple(rows.columns) != COLUMNS:
        raise ValueError(f"{path}: must have the columns {', '.join(COLUMNS)}")
    numbers = rows[["score", "rate", "epochs", "seed"]]
    numbers = numbers.apply(pd.to_numeric, errors="coerce")
    wrong = {
        "a score from 0 to 1": ~numbers["score"].between(0, 1),
        "a rate and epochs above 0": ~(numbers[["rate", "epochs"]] > 0).all(axis=1),
        "a seed of at least 0": ~(numbers["seed"] >= 0),
        f"a metric of {', '.join(METRICS)}": ~rows["metric"].isin(METRICS),
        "a study, a method and a set": (rows[["study", "method", "set"]] == "").any(
            axis=1
        ),
        "no row twice": rows.duplicated(KEY),
    }
    for words, bad in wrong.items():
        if bad.any():
            raise ValueError(f"{path}, line {bad.idxmax() + 2}: must have {words}")
    return rows


def reports(folder: pathlib.Path) -> dict[str, pd.DataFrame]:
    """The rows of each report in a folder, by its name."""
    made = sorted(folder.glob("*/tables/runs.csv"))
    return {path.parts[-3]: of_report(path.parents[1]) for path in made}


def write(rows: pd.DataFrame, out: pathlib.Path) -> None:
    """Writes all.csv, and all.html with these rows in it."""
    # Every digit: a mean of seeds that is another's must stay so, or ranks lose ties.
    whole = lambda x: repr(float(x)).removesuffix(".0")
    text = rows.sort_values(KEY).to_csv(index=False, float_format=whole)
    (out / "all.csv").write_text(text)
    page = (ROOT / "benchmarks/standing.html").read_text(encoding="utf-8")
    (out / "all.html").write_text(page.replace("{{rows}}", text), encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    """Makes the table and the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=pathlib.Path, default=ROOT / "docs/results", help="its folder"
    )
    parser.add_argument("--runs", nargs="+", metavar="WORKDIR")
    parser.add_argument("--study", help="the name of what --runs are")
    options = parser.parse_args(argv)
    if bool(options.runs) != bool(options.study):
        parser.error("--runs and --study go together, e.g. --study=mine")
    parts = reports(options.out)
    if options.study in parts:
        parser.error(f"--study: {options.study} is a report here; name another")
    if options.runs:
        try:
            parts[options.study] = of_runs(options.runs, options.study)
        except ValueError as error:
            parser.error(f"--runs: {error}")
    if (path := options.out / "all.csv").exists():
        kept = read(path)
        parts[""] = kept[~kept["study"].isin([*parts])]
        if options.runs:
            had = {*kept.loc[kept["study"] == options.study, "method"]}
            if lost := sorted(had - {*parts[options.study]["method"]}):
                parser.error(
                    f"--runs: {options.study} has rows of {', '.join(lost)}, too, which "
                    "would be lost; name all its runs, or another --study"
                )
    try:
        rows = check(pd.concat(parts.values(), ignore_index=True), "the new table")
    except ValueError as error:
        parser.error(f"{error}; runs that differ otherwise are another --study")
    options.out.mkdir(parents=True, exist_ok=True)
    write(rows, options.out)
    print(f"{path}: {len(rows):,} scores")
    return 0


if __name__ == "__main__":
    sys.exit(main())
