"""Methods over a grid of rates: chosen runs, ties, and the order of pairs."""

import json

import pandas as pd
import pytest

from jbias import report
from jbias.report import options as options_lib
from jbias.report.pages.benchmark import grids, inputs
from tests.report import conftest

SETS = ("silhouette", "cue_conflict")
# Accuracy on silhouettes and on validation, by method and rate.
SCORES = {
    "erm": {"0.05": (0.30, 0.90), "0.1": (0.50, 0.95)},
    "padain": {"0.05": (0.40, 0.95), "0.1": (0.60, 0.80)},
    "sagnet": {"0.02": (0.90, 0.70), "0.05": (0.95, 0.70)},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("grid") / "runs"
    for name, rates in SCORES.items():
        for rate, (silhouette, valid) in rates.items():
            run, values = f"{name}-{rate}", {"silhouette": silhouette, "valid": valid}
            records = [
                [
                    r._replace(value=values[r.dataset], count=None)
                    if r.metric == "accuracy" and r.dataset in values
                    else r
                    for r in epoch
                ]
                for epoch in conftest.fake_records(
                    run, name, 0.0, (0, 1), epochs=1, sets=SETS
                )
            ]
            config = conftest.fake_config(name, (0, 1)) | {
                "optim": {"rate": float(rate)}
            }
            conftest.write_run(folder / run, config, records)
    return folder


def study_of(folder):
    return inputs.from_runs([f"{folder}/*"], options_lib.Options())


def test_the_grid_is_the_only_setting_that_differs(runs):
    key, grid = grids.grid_of(study_of(runs))
    assert key == "optim.rate" and len(grid) == 6
    assert grid.groupby("algorithm")["value"].agg(list).to_dict() == {
        "ERM": ["0.05", "0.1"],
        "pAdaIN": ["0.05", "0.1"],
        "SagNet": ["0.02", "0.05"],
    }


def test_validation_chooses_runs_and_ties_are_marked(runs):
    study = study_of(runs)
    _, grid = grids.grid_of(study)
    rows = grids.frame(study, grid)
    chosen = rows[(rows["metric"] == "accuracy") & rows["chosen"]]
    choices = chosen.set_index("algorithm")["value"].to_dict()
    assert choices == {"ERM": "0.1", "pAdaIN": "0.05", "SagNet": "0.02"}
    tied = rows[(rows["metric"] == "accuracy") & rows["tied"]]
    assert tied.groupby("algorithm").size().to_dict() == {
        "ERM": 1,
        "pAdaIN": 1,
        "SagNet": 2,
    }


def test_pairs_are_compared_at_every_combination(runs):
    study = study_of(runs)
    _, grid = grids.grid_of(study)
    grid_rows = grids.frame(study, grid)
    # Merit is the accuracy on silhouettes in SCORES.
    scores = {"erm": "ERM", "padain": "pAdaIN", "sagnet": "SagNet"}
    grid_rows = grid_rows[grid_rows["metric"] == "accuracy"].copy()
    grid_rows["merit"] = [
        next(SCORES[key][v][0] for key, name in scores.items() if name == a)
        for a, v in zip(grid_rows["algorithm"], grid_rows["value"], strict=True)
    ]
    rows = grids.pairs(grid_rows).set_index(["better", "worse"])
    # The chosen runs have 0.5 (ERM) and 0.4 (pAdaIN); ERM is better in one of four
    # combinations, and never at equal rates.
    assert rows.loc[("ERM", "pAdaIN"), "combinations"] == 0.25
    assert rows.loc[("ERM", "pAdaIN"), "same_value"] == 0
    assert rows.loc[("ERM", "pAdaIN"), "difference"] == pytest.approx(0.1)
    assert rows.loc[("SagNet", "ERM"), "combinations"] == 1
    assert rows.loc[("SagNet", "pAdaIN"), "same_value"] == 1


def test_smaller_may_be_better_and_equal_scores_have_no_order(runs):
    options = options_lib.Options(larger_is_better=False)
    study = inputs.from_runs([f"{runs}/*"], options)
    _, grid = grids.grid_of(study)
    down = grids.frame(study, grid)
    up = grids.frame(study_of(runs), grid)
    assert (down["score"] == up["score"]).all()
    down_pairs, up_pairs = (
        grids.pairs(x).set_index("metric").loc["accuracy"] for x in (down, up)
    )
    pairs = {*zip(down_pairs["better"], down_pairs["worse"])}
    assert pairs == {*zip(up_pairs["worse"], up_pairs["better"])}
    down["merit"] = 1.0
    tied_pairs = grids.pairs(down)
    assert tied_pairs[["combinations", "same_value"]].isna().all(axis=None)
    assert len(tied_pairs) == 6


def test_a_run_without_a_score_is_left_out(runs):
    study = study_of(runs)
    _, grid = grids.grid_of(study)
    all_rows = grids.frame(study, grid)
    lost = all_rows[(all_rows["algorithm"] == "ERM") & all_rows["chosen"]][
        "label"
    ].iloc[0]
    study.values.loc[study.values["algorithm"] == lost, "value"] = float("nan")
    rows = grids.frame(study, grid)
    remaining = rows[(rows["metric"] == "accuracy") & (rows["algorithm"] == "ERM")]
    assert remaining["value"].tolist() == ["0.05"] and remaining["chosen"].all()


def test_the_report_has_the_section(runs, tmp_path):
    assert report.main([f"--runs={runs}/*", f"--out={tmp_path}"]) == 0
    page = (tmp_path / "index.html").read_text()
    assert "Methods at every value of a setting" in page
    assert "at all equal values in" in page and "0.02 = 0.05" in page
    rows = pd.read_csv(tmp_path / "tables/grid_pairs.csv")
    assert len(rows) == 6 and set(rows["metric"]) == {"accuracy", "shape_bias"}
    tree = json.loads((tmp_path / "results.json").read_text())
    assert len(tree["grid_pairs"]) == 6


def test_runs_with_a_single_setting_have_no_section(tmp_path):
    runs = conftest.make_runs(tmp_path / "runs", epochs=1, seeds=(0, 1), sets=SETS)
    assert [*grids.blocks(study_of(runs))] == []
