"""Update the table of all results, OUT/all.csv, and the page that shows it, OUT/all.html.

    python -m studies.collect_results
    python -m studies.collect_results --runs='runs/mine/*' --study=mine

Both commands recompute the rows of the reports in OUT (folders OUT/*/tables) and keep the rows of
other studies. With --runs, adds rows for --study, or replaces them: each seed's scores at the
evaluation with its best validation accuracy. A row has study, method, set, metric, score (a
fraction of 1), seed, learning rate and epochs of the training, checkpoint selection rule, and
commit of the code ("" if unknown). docs/all-results.md describes the columns.

Takes about three seconds on two cores, and longer with many runs.
"""

import json
import pathlib
import sys

import pandas as pd

from jbias.runs import results, selection
from studies import all_results, command

ROOT = pathlib.Path(__file__).parents[1]
COLUMNS = (
    "study",
    "method",
    "set",
    "metric",
    "score",
    "seed",
    "rate",
    "epochs",
    "selection",
    "commit",
)
KEY = ["study", "metric", "set", "method", "rate", "seed"]
METRICS = ("accuracy", "shape_bias", "fraction_neither")
RULE = "best validation"
LAST = "last evaluation"


def name_of(workdir: pathlib.PurePath) -> str:
    """Return a run's name: its folder's, or for a branch that of the whole run's folder."""
    return (workdir.parents[1] if workdir.parent.name == "vary" else workdir).name


def training_fields(config: dict) -> dict[str, float]:
    """Return the learning rate of a run, and the epochs of all its stages."""
    stages = config["stages"] or [{}]
    epochs = sum(stage.get("epochs", config["epochs"]) for stage in stages)
    return {"rate": config["optim"]["rate"], "epochs": epochs}


def report_rows(folder: pathlib.Path) -> pd.DataFrame:
    """Return the rows of a report of studies.small_benchmark, without runs of other reports.

    folder: the report's folder in docs/results.
    """
    tables = folder / "tables"
    provenance = pd.read_csv(tables / "provenance.csv", index_col="key")
    fields_by_method = {}
    for run in provenance.columns:
        if f"runs/{folder.name}/" not in provenance.at["workdir", run]:
            continue
        name = name_of(pathlib.PurePosixPath(provenance.at["workdir", run]))
        config = json.loads((folder / "configs" / f"{name}.json").read_text())
        commit = provenance.at["code.commit", run]
        has_commit = isinstance(commit, str) and commit != "null"
        fields_by_method[provenance.at["label", run]] = {
            **training_fields(config),
            "commit": commit if has_commit else "",
        }
    scores = pd.read_csv(tables / "runs.csv").melt(
        ["algorithm", "seed"], var_name="set", value_name="score"
    )
    scores["seed"] = scores["seed"].str.rpartition(":")[2].astype(int)
    frames = [scores.assign(metric="accuracy")]
    if (tables / "seeds.csv").exists():
        shape = pd.read_csv(tables / "seeds.csv", keep_default_na=False)
        shape["algorithm"] = all_results.methods(shape)
        unknown = {*shape["algorithm"]} - {*scores["algorithm"]}
        if unknown:
            raise ValueError(f"{tables}/seeds.csv: has {unknown}, runs.csv has not")
        shape = shape.rename(columns={"dataset": "set", "value": "score"})
        frames.append(shape.assign(metric="shape_bias"))
    rows = pd.concat(frames).rename(columns={"algorithm": "method"})
    rows = rows[rows["method"].isin(fields_by_method)].reset_index(drop=True)
    fields = [fields_by_method[name] for name in rows["method"]]
    rows = pd.concat([rows, pd.DataFrame(fields, index=rows.index)], axis=1)
    return rows.assign(study=folder.name, selection=RULE)[[*COLUMNS]]


def run_rows(workdirs: list[str], study: str, *, rule: str = RULE) -> pd.DataFrame:
    """Return the rows of runs, for each seed at the evaluation that a rule selects.

    rule: RULE, or LAST, the last evaluation. Diverged seeds have no rows.
    """
    records = results.read(workdirs)
    if rule == LAST:
        rows = selection.last_n(records, n=1)
    else:
        rows = selection.best_validation(records)
    rows = rows[rows["metric"].isin(METRICS) & (rows["condition"] == "")]
    rows = rows[rows["dataset"] != results.VALID].dropna(subset="value")
    fields_by_workdir = {}
    for workdir in rows["workdir"].unique():
        path = pathlib.Path(workdir)
        provenance = json.loads((path / "provenance.json").read_text())
        config = json.loads((path / "config.json").read_text())
        fields_by_workdir[workdir] = {
            **training_fields(config),
            "commit": provenance.get("code", {}).get("commit") or "",
        }
    fields = [fields_by_workdir[workdir] for workdir in rows["workdir"]]
    fields = pd.DataFrame(fields, index=rows.index)
    rows["method"] = all_results.methods(rows)
    rows = rows.rename(columns={"dataset": "set", "value": "score"})
    rows = pd.concat([rows, fields], axis=1)
    return rows.assign(study=study, selection=rule)[[*COLUMNS]]


def read(path: pathlib.Path) -> pd.DataFrame:
    """Return the table; raise ValueError with the line of a malformed row."""
    rows = pd.read_csv(path, keep_default_na=False, dtype={"commit": str})
    return check(rows, str(path))


def check(rows: pd.DataFrame, path: str) -> pd.DataFrame:
    """Return `rows`; raise ValueError with the line of a malformed row.

    path: name of the table, for the message.
    """
    if tuple(rows.columns) != COLUMNS:
        raise ValueError(f"{path}: must have the columns {', '.join(COLUMNS)}")
    numbers = rows[["score", "rate", "epochs", "seed"]]
    numbers = numbers.apply(pd.to_numeric, errors="coerce")
    is_invalid = {
        "a score from 0 to 1": ~numbers["score"].between(0, 1),
        "a rate and epochs above 0": ~(numbers[["rate", "epochs"]] > 0).all(axis=1),
        "a seed of at least 0": ~(numbers["seed"] >= 0),
        f"a metric of {', '.join(METRICS)}": ~rows["metric"].isin(METRICS),
        "a study, a method and a set": (rows[["study", "method", "set"]] == "").any(
            axis=1
        ),
        "no row twice": rows.duplicated(KEY),
    }
    for requirement, invalid in is_invalid.items():
        if invalid.any():
            line = invalid.idxmax() + 2
            raise ValueError(f"{path}, line {line}: must have {requirement}")
    return rows


def reports(folder: pathlib.Path) -> dict[str, pd.DataFrame]:
    """Return the rows of each report in a folder, by the report's name."""
    paths = sorted(folder.glob("*/tables/runs.csv"))
    return {path.parts[-3]: report_rows(path.parents[1]) for path in paths}


def write(rows: pd.DataFrame, out: pathlib.Path) -> None:
    """Write all.csv, and all.html, which contains the same rows."""

    def format_exactly(x: float) -> str:
        # With fewer digits equal means of seeds could differ, and ranks would lose ties.
        return repr(float(x)).removesuffix(".0")

    text = rows.sort_values(KEY).to_csv(index=False, float_format=format_exactly)
    (out / "all.csv").write_text(text)
    page = (ROOT / "studies/all_results.html").read_text(encoding="utf-8")
    (out / "all.html").write_text(page.replace("{{rows}}", text), encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    """Write the table and the page."""
    parser = command.parser("collect_results", __doc__)
    results_folder = command.DOCS / "results"
    command.add_out(
        parser, "all.csv and all.html, which has the reports, too", results_folder
    )
    parser.add_argument(
        "--runs",
        nargs="+",
        metavar="WORKDIR",
        help="workdirs, or quoted patterns, of all runs of --study (default: none)",
    )
    parser.add_argument(
        "--study",
        metavar="NAME",
        help="name of the study in the table, required with --runs (default: none)",
    )
    options = parser.parse_args(argv)
    if bool(options.runs) != bool(options.study):
        parser.error("--runs and --study go together, e.g. --study=mine")
    frames = reports(options.out)
    if options.study in frames:
        parser.error(f"--study: {options.study} is a report here; name another")
    if options.runs:
        try:
            frames[options.study] = run_rows(options.runs, options.study)
        except ValueError as error:
            parser.error(f"--runs: {error}")
    path = options.out / "all.csv"
    if path.exists():
        old_rows = read(path)
        frames[""] = old_rows[~old_rows["study"].isin([*frames])]
        if options.runs:
            old_methods = {*old_rows.loc[old_rows["study"] == options.study, "method"]}
            lost = sorted(old_methods - {*frames[options.study]["method"]})
            if lost:
                parser.error(
                    f"--runs: {options.study} has rows of {', '.join(lost)}, too, which "
                    "would be lost; name all its runs, or another --study"
                )
    try:
        rows = check(pd.concat(frames.values(), ignore_index=True), "the new table")
    except ValueError as error:
        parser.error(f"{error}; runs that differ otherwise are another --study")
    options.out.mkdir(parents=True, exist_ok=True)
    write(rows, options.out)
    print(f"{path}: {len(rows):,} scores")
    return 0


if __name__ == "__main__":
    sys.exit(main())
