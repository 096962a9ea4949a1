"""The table of all results is valid, and agrees with the reports and the page."""

import json
import pathlib

import pandas as pd
import pytest

from benchmarks import report_speed
from studies import collect_results
from tests import cases

RESULTS = pathlib.Path(__file__).parents[1] / "docs/results"


def test_the_table_is_valid_and_the_page_contains_it():
    rows = collect_results.read(RESULTS / "all.csv")
    text = (RESULTS / "all.csv").read_text(encoding="utf-8")
    assert '"' not in text and f">{text}</script>" in (RESULTS / "all.html").read_text()
    for study in rows["study"].unique():
        assert [*(RESULTS / study / "configs").glob("*.json")], study


def test_the_table_contains_the_scores_of_all_reports():
    rows = collect_results.read(RESULTS / "all.csv")
    reports = collect_results.reports(RESULTS)
    assert {"shapes", "longer", "variants"} <= {*reports}
    for study, report_rows in reports.items():
        table_rows = rows[rows["study"] == study]
        key = ["method", "set", "metric", "seed"]
        merged = report_rows.merge(
            table_rows, on=key, validate="1:1", suffixes=("", "_table")
        )
        assert len(merged) == len(report_rows) == len(table_rows)
        assert (merged["score"] - merged["score_table"]).abs().max() < 1e-6
        for name in ("rate", "epochs", "commit"):
            assert (merged[name] == merged[f"{name}_table"]).all()


def test_means_of_the_table_equal_the_reports():
    rows = collect_results.read(RESULTS / "all.csv")
    rows = rows[(rows["study"] == "shapes") & (rows["metric"] == "accuracy")]
    means = rows.groupby(["method", "set"])["score"].mean()
    scores = pd.read_csv(RESULTS / "shapes/tables/scores.csv")
    scores = scores.rename(columns={"algorithm": "method", "dataset": "set"})
    expected = scores.set_index(["method", "set"])["mean"]
    assert len(means) == len(expected) and (means - expected).abs().max() < 1e-6


@cases.each(
    "name, value, words",
    [
        ("score", 1.2, "a score from 0 to 1"),
        ("rate", 0, "a rate and epochs above 0"),
        ("epochs", "many", "a rate and epochs above 0"),
        ("seed", -1, "a seed of at least 0"),
        ("metric", "speed", "a metric of accuracy, shape_bias, fraction_neither"),
        ("method", "", "a study, a method and a set"),
    ],
)
def test_an_invalid_row_is_refused_with_its_line(tmp_path, name, value, words):
    rows = pd.read_csv(RESULTS / "all.csv", keep_default_na=False).head(5)
    rows[name] = rows[name].astype(object)
    rows.loc[3, name] = value
    rows.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(ValueError, match=f"a.csv, line 5: must have {words}"):
        collect_results.read(tmp_path / "a.csv")


def test_a_repeated_row_is_refused(tmp_path):
    rows = pd.read_csv(RESULTS / "all.csv").head(3)
    pd.concat([rows, rows.tail(1)]).to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(ValueError, match="line 5: must have no row twice"):
        collect_results.read(tmp_path / "a.csv")


def test_rows_of_runs_are_added_and_replace_earlier_rows_of_their_study(
    tmp_path, capsys
):
    for path in ("all.csv", "all.html"):
        (tmp_path / path).write_text((RESULTS / path).read_text())
    old_rows = collect_results.read(tmp_path / "all.csv")
    report_speed.make(
        tmp_path / "runs", runs=4, seeds=2, algorithms=2, epochs=3, sets=3
    )
    for run in (tmp_path / "runs").iterdir():
        config = json.loads((run / "config.json").read_text())
        config |= {"optim": {"rate": 0.05}, "stages": []}
        (run / "config.json").write_text(json.dumps(config))
    argv = [f"--runs={tmp_path}/runs/*", "--study=mine", f"--out={tmp_path}"]
    for _ in range(2):
        assert collect_results.main(argv) == 0
        rows = collect_results.read(tmp_path / "all.csv")
        study_rows = rows[rows["study"] == "mine"]
        assert len(study_rows) == 2 * 4 and len(rows) == len(old_rows) + len(study_rows)
        assert {*study_rows["set"]} == {"data_set_1", "data_set_2"}
        assert {*study_rows["rate"]} == {0.05} and {*study_rows["epochs"]} == {3}
    single_run = next(run for run in (tmp_path / "runs").iterdir())
    with pytest.raises(SystemExit):
        collect_results.main(
            [f"--runs={single_run}", "--study=mine", f"--out={tmp_path}"]
        )
    assert "which would be lost" in capsys.readouterr().err
    assert len(collect_results.read(tmp_path / "all.csv")) == len(rows)
    other_rows = rows[rows["study"] != "mine"].reset_index(drop=True)
    pd.testing.assert_frame_equal(
        other_rows.sort_values(collect_results.KEY, ignore_index=True),
        old_rows.sort_values(collect_results.KEY, ignore_index=True),
    )
