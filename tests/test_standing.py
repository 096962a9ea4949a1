"""The table of all results: its rows are whole, the reports', and the page's."""

import json
import pathlib

import pandas as pd
import pytest

from benchmarks import report, standing
from tests import cases

RESULTS = pathlib.Path(__file__).parents[1] / "docs/results"


def test_the_table_is_whole_and_the_page_has_it():
    rows = standing.read(RESULTS / "all.csv")
    text = (RESULTS / "all.csv").read_text(encoding="utf-8")
    assert '"' not in text and f">{text}</script>" in (RESULTS / "all.html").read_text()
    for study in rows["study"].unique():
        assert [*(RESULTS / study / "configs").glob("*.json")], study


def test_scores_of_reports_stand_in_the_table():
    rows = standing.read(RESULTS / "all.csv")
    parts = standing.reports(RESULTS)
    assert {"shapes", "longer", "variants"} <= {*parts}
    for study, made in parts.items():
        kept = rows[rows["study"] == study]
        key = ["method", "set", "metric", "seed"]
        both = made.merge(kept, on=key, validate="1:1", suffixes=("", "_kept"))
        assert len(both) == len(made) == len(kept)
        assert (both["score"] - both["score_kept"]).abs().max() < 1e-6
        for name in ("rate", "epochs", "commit"):
            assert (both[name] == both[f"{name}_kept"]).all()


def test_means_of_the_table_are_the_reports():
    rows = standing.read(RESULTS / "all.csv")
    rows = rows[(rows["study"] == "shapes") & (rows["metric"] == "accuracy")]
    means = rows.groupby(["method", "set"])["score"].mean()
    scores = pd.read_csv(RESULTS / "shapes/tables/scores.csv")
    scores = scores.rename(columns={"algorithm": "method", "dataset": "set"})
    told = scores.set_index(["method", "set"])["mean"]
    assert len(means) == len(told) and (means - told).abs().max() < 1e-6


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
def test_a_row_that_is_wrong_is_refused_by_its_line(tmp_path, name, value, words):
    rows = pd.read_csv(RESULTS / "all.csv", keep_default_na=False).head(5)
    rows[name] = rows[name].astype(object)
    rows.loc[3, name] = value
    rows.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(ValueError, match=f"a.csv, line 5: must have {words}"):
        standing.read(tmp_path / "a.csv")


def test_a_row_twice_is_refused(tmp_path):
    rows = pd.read_csv(RESULTS / "all.csv").head(3)
    pd.concat([rows, rows.tail(1)]).to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(ValueError, match="line 5: must have no row twice"):
        standing.read(tmp_path / "a.csv")


def test_runs_come_in_beside_the_others_and_replace_their_own(tmp_path, capsys):
    for path in ("all.csv", "all.html"):
        (tmp_path / path).write_text((RESULTS / path).read_text())
    before = standing.read(tmp_path / "all.csv")
    report.make(tmp_path / "runs", runs=4, seeds=2, algorithms=2, epochs=3, sets=3)
    for run in (tmp_path / "runs").iterdir():
        config = json.loads((run / "config.json").read_text())
        config |= {"optim": {"rate": 0.05}, "stages": []}
        (run / "config.json").write_text(json.dumps(config))
    asked = [f"--runs={tmp_path}/runs/*", "--study=mine", f"--out={tmp_path}"]
    for _ in range(2):
        assert standing.main(asked) == 0
        rows = standing.read(tmp_path / "all.csv")
        mine = rows[rows["study"] == "mine"]
        assert len(mine) == 2 * 4 and len(rows) == len(before) + len(mine)
        assert {*mine["set"]} == {"data_set_1", "data_set_2"}
        assert {*mine["rate"]} == {0.05} and {*mine["epochs"]} == {3}
    one = next(run for run in (tmp_path / "runs").iterdir())
    with pytest.raises(SystemExit):
        standing.main([f"--runs={one}", "--study=mine", f"--out={tmp_path}"])
    assert "which would be lost" in capsys.readouterr().err
    assert len(standing.read(tmp_path / "all.csv")) == len(rows)
    rest = rows[rows["study"] != "mine"].reset_index(drop=True)
    pd.testing.assert_frame_equal(
        rest.sort_values(standing.KEY, ignore_index=True),
        before.sort_values(standing.KEY, ignore_index=True),
    )
