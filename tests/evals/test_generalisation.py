"""A checkpoint's records as a row: the published tables from the published raw results."""

import csv
import pathlib

import numpy as np
import pytest

from jbias.data import corruptions
from jbias.evals import generalisation

ORACLE = np.load(pathlib.Path(__file__).parents[1] / "oracles" / "biases.npz")
MODELS = ORACLE["models"].tolist()
COLUMNS = {name: ORACLE[f"{name}/columns"].tolist() for name in ("accuracy", "bias")}


def line(model: str) -> dict[str, str]:
    """A line of the raw results, as csv.DictReader gives it."""
    values = ORACLE["raw"][MODELS.index(model)]
    return {
        name: "" if np.isnan(value) else repr(float(value))
        for name, value in zip(ORACLE["raw/columns"].tolist(), values, strict=True)
    }


ROWS = {m: generalisation.row(generalisation.published(line(m))) for m in MODELS}


@pytest.mark.parametrize("table", ["accuracy", "bias"])
def test_published_tables(table):
    """All 48 lines, to the two digits that are printed.

    Where nothing could be fitted (a bandwidth of thousands), the centre frequencies
    that the paper prints are known to be others than those of the raw results.
    """
    printed = ORACLE[table].astype(float)
    made = np.array(
        [[row.values[name] for name in COLUMNS[table]] for row in ROWS.values()]
    )
    gap = np.abs(made - printed)
    if table == "bias":
        column = COLUMNS["bias"].index("cb_cf")
        degenerate = printed[:, COLUMNS["bias"].index("cb_bw")] > 1000
        assert degenerate.sum() == (gap[:, column] > 0.01).sum() == 27
        gap[degenerate, column] = 0
    assert gap.max() < 0.00501  # Half of the last digit, and float32.


def test_nothing_of_the_study_is_missing():
    names = {*generalisation.BENCHMARKS, *generalisation.BIASES}
    assert names == {*COLUMNS["accuracy"], *COLUMNS["bias"]}
    assert not any(row.missing for row in ROWS.values())


def test_averages_of_the_baseline():
    """Of the authors' columns at full precision, as their notebook averages them."""
    found = ROWS["tv_resnet50"].categories
    expected = {
        "ID": 75.263022,
        "Robustness": 26.950203,
        "Concepts": 32.457772,
        "Adversarial": 18.390345,
    }
    assert found == pytest.approx(expected, abs=2e-5)


def test_fifteen_corruptions_are_harder_than_nineteen():
    """1.51 points on average over the 48, as recomputed from the raw results."""
    gaps = [r.values["imagenet_c"] - r.values["imagenet_c15"] for r in ROWS.values()]
    assert np.mean(gaps) == pytest.approx(1.51, abs=0.005)


def test_attacked_accuracies_count_48_images_too_many():
    """Every published one is a number of fooled images of 50,048; the right share of
    50,000 is lower, by what 48 images more among the robust make at most.
    """
    published = np.array([row.values["pgd"] for row in ROWS.values()]) / 100
    fooled = (1 - published) * generalisation.PGD_COUNTED
    assert np.abs(fooled - fooled.round()).max() < 0.01
    right = np.array([generalisation.corrected_pgd(p) for p in published])
    np.testing.assert_allclose(right * 50_000, 50_000 - fooled, atol=1e-6)
    assert 0 < (published - right).min() and (published - right).max() < 0.000845


def test_real_accuracies_are_of_the_last_batch_only():
    """Known of the published column: 326 images; shown so that nobody trusts it."""
    shares = np.array([row.values["imagenet_real"] for row in ROWS.values()]) / 100
    assert np.abs(shares * 326 - (shares * 326).round()).max() < 0.01


def records() -> dict:
    """Records as `evaluate` names them: a probe's have the measure's name in front."""
    found = {
        ("imagenet", "", "accuracy"): 0.7,
        ("imagenet_real", "", "real_accuracy"): 0.8,
        ("imagenet_v2", "", "accuracy"): 0.6,
        ("stylized1000", "", "accuracy"): 0.05,
        ("cue-conflict", "shape_bias", "shape_bias"): 0.25,
        ("cue-conflict", "shape_bias/mean_logit", "shape_bias"): 0.5,
        ("cue-conflict", "shape_bias/class=cat", "shape_bias"): 0.75,
        ("imagenet", "pgd/linf 0.5/255", "pgd_accuracy"): 0.1,
        ("imagenet", "pgd/linf 1/255", "pgd_accuracy"): 0.05,
        ("imagenet", "spectral", "low_freq_bias"): 0.6,
        ("imagenet", "spectral", "high_freq_bias"): None,
        ("imagenet", "spectral/unfiltered", "accuracy"): 0.71,
    }
    for name in corruptions.BAR:
        for severity in (1, 2, 3, 4, 5):
            condition = f"imagenet_c_bar/{name}-{severity}"
            found["imagenet", condition, "accuracy"] = severity / 10
            found["cifar", condition, "accuracy"] = 0.9
    found["fog-3", "", "accuracy"] = 0.5
    return found


def test_row_of_measured_records():
    row = generalisation.row(records())
    assert row.values == pytest.approx(
        {
            "imagenet": 70,
            "imagenet_real": 80,
            "imagenet_v2": 60,
            "stylized1000": 5,
            "shape_bias": 0.25,
            "pgd": 10,
            "low_freq_bias": 0.6,
            "imagenet_cbar": 30,
        }
    )
    assert row.categories == pytest.approx({"ID": 70, "Adversarial": 10})
    assert row.missing[:3] == (
        "imagenet_c (1 of 95 conditions)",
        "imagenet_a",
        "imagenet_r",
    )
    assert "high_freq_bias" in row.missing and "stylized16" in row.missing


def test_sets_of_other_names():
    found = {
        ("val", "", "accuracy"): 0.5,
        ("val", "attack/linf 0.5/255", "pgd_accuracy"): 0,
    }
    row = generalisation.row(found, sets={"imagenet": "val"})
    assert row.values == {"imagenet": 50, "pgd": 0}
    assert not generalisation.row(found).values


def test_files_go_before_corruptions_made_here():
    found = {
        ("imagenet", f"made/{name}-{s}", "accuracy"): 0.1
        for name in corruptions.CORRUPTIONS
        for s in (1, 2, 3, 4, 5)
    }
    assert generalisation.row(found).values["imagenet_c"] == pytest.approx(10)
    found |= {(key[1].removeprefix("made/"), "", "accuracy"): 0.2 for key in found}
    assert generalisation.row(found).values["imagenet_c"] == pytest.approx(20)


def test_two_values_of_one_number_are_refused():
    found = {
        ("imagenet", "a/linf 0.5/255", "pgd_accuracy"): 0.1,
        ("imagenet", "b/linf 0.5/255", "pgd_accuracy"): 0.2,
    }
    with pytest.raises(
        ValueError, match="pgd_accuracy on imagenet must have one value"
    ):
        generalisation.row(found)
    found = {("imagenet", f"{a}/fog-3", "accuracy"): len(a) / 9 for a in ("x", "yy")}
    with pytest.raises(ValueError, match="fog 3 must have one accuracy"):
        generalisation.row(found)


def test_rows_as_a_file(tmp_path):
    rows = {"tv_resnet50": ROWS["tv_resnet50"], "mine": generalisation.row(records())}
    generalisation.write(tmp_path / "rows.csv", rows, {"tv_resnet50": "baseline"})
    with (tmp_path / "rows.csv").open() as file:
        first, second = csv.DictReader(file)
    assert (first["model"], first["category"]) == ("tv_resnet50", "baseline")
    assert float(first["pgd"]) == ROWS["tv_resnet50"].values["pgd"]
    assert float(first["Concepts"]) == ROWS["tv_resnet50"].categories["Concepts"]
    assert second["imagenet_a"] == second["Concepts"] == "" and second["imagenet"]
