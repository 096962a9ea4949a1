"""iOcclusion in the report: seeds with a measurable gap, and notes on other seeds."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from jbias.measures import iocclusion
from jbias.report import distortion
from jbias.report.pages.distortion import (
    distortion_figures,
    distortion_groups,
)
from tests.report import distorted

OCCLUSION, N = "grad_cam most", distorted.N
HIDDEN_ACCURACIES = {0.1: (0.5, 0.45), 0.3: (0.4, 0.37), 0.6: (0.3, 0.28)}
# Training and test accuracy; a gap of 0.05 of 0.9 and 0.95 is 1.9 standard errors.
CLEAR_GAP, SMALL_GAP, NO_GAP = (0.95, 0.80), (0.95, 0.90), (0.9, 0.9)
CLEAN_ACCURACIES = {
    "basic": [CLEAR_GAP] * 3,
    "mixup": [CLEAR_GAP, CLEAR_GAP, SMALL_GAP, NO_GAP, CLEAR_GAP],
    "cutmix": [SMALL_GAP, (0.92, 0.9)],
}


def write_network(folder, method, seed, clean, fill="other", scale=1.0):
    measurements = {}
    for i, split in enumerate(("train", "test")):
        numbers = [distorted.accuracy(clean[i])]
        for occlusion in (OCCLUSION, "rectangle"):
            numbers += [
                distorted.accuracy(
                    pair[1] + (1 - i) * (pair[0] - pair[1]) * scale,
                    f"{occlusion} {fraction:g}",
                )
                for fraction, pair in HIDDEN_ACCURACIES.items()
            ]
        measurements[f"occlusion_{fill}", "occlusion", split] = (
            numbers,
            None,
            {"fill": fill},
        )
    distorted.write(folder, measurements, method=method, data="cifar10", seed=seed)


def draw_curves(folder, last_scale):
    """Draw four methods; the gap left by the last method is scaled by `last_scale`."""
    scales = zip(
        ("basic", "mixup", "fmix", "cutmix"), (1, 2, 3, last_scale), strict=True
    )
    for method, scale in scales:
        for seed in range(2):
            workdir = folder / f"{method}-{seed}"
            write_network(workdir, method, seed, CLEAR_GAP, "black", scale)
    study, _ = distortion_groups.read([f"{folder}/*"])
    hiding = distortion_groups.hiding(study.groups.values())
    figures_by_name = {
        figure.name: figure for figure in distortion_figures.curve_pairs(study, hiding)
    }
    figure = figures_by_name["curves_black_cifar10"]
    titles = {axes.get_title(loc="left"): axes for axes in figure.drawn.axes}
    return titles["CutOcclusion"], titles["iOcclusion"], figure.caption


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gaps")
    for method, pairs in CLEAN_ACCURACIES.items():
        for seed, clean in enumerate(pairs):
            write_network(folder / f"{method}-{seed}", method, seed, clean)
    return folder


@pytest.fixture(scope="module")
def study(measured):
    return distortion_groups.read([f"{measured}/*"])[0]


def key(method):
    return distortion_groups.GroupKey("preact_resnet18", "CIFAR-10", method)


def test_gaps_are_known_from_two_standard_errors_on(study):
    gaps = distortion_groups.gaps(study.groups[key("MixUp")], "other")
    random = np.random.default_rng(0)
    for i, (train, test) in enumerate(CLEAN_ACCURACIES["mixup"]):
        differences = random.binomial(N, train, 50_000) - random.binomial(
            N, test, 50_000
        )
        # The standard deviation of 50 000 draws is accurate to 0.3 %.
        assert gaps.error[i] == pytest.approx(np.std(differences / N), rel=0.02)
    assert gaps.known.tolist() == [True, True, False, False, True]
    assert gaps.images.tolist() == [[N] * 5] * 2
    index = gaps.index(OCCLUSION)
    assert index.shape == (4, 3)
    np.testing.assert_allclose(index[0], 1)
    np.testing.assert_allclose(index[2], 0.03 / 0.15)


def test_the_test_uses_the_ratio_of_mean_gaps_of_all_seeds(study):
    """Mean and interval are those of seeds with a known gap."""
    value = study.value("iocclusion", key("MixUp"))
    assert value.seeds == (0, 1, 4) and value.left_out == 2
    assert value.mean == pytest.approx(0.2) and len(value.units) == 5
    assert value.tested == pytest.approx(0.03 / 0.1)
    unknown = study.value("iocclusion", key("CutMix"))
    assert np.isnan([unknown.mean, unknown.std, unknown.low, unknown.tested]).all()
    assert (len(unknown.runs), unknown.left_out) == (0, 2)


def test_the_ratio_of_means_uses_all_seeds_and_varies_less(study):
    gaps = distortion_groups.gaps(study.groups[key("MixUp")], "other")
    assert gaps.gap.mean() == pytest.approx((3 * 0.15 + 0.05) / 5)
    np.testing.assert_allclose(gaps.of_means(OCCLUSION)[2], 0.03 / gaps.gap.mean())
    unknown = distortion_groups.gaps(study.groups[key("CutMix")], "other")
    assert np.isnan(unknown.of_means(OCCLUSION)).all()
    # Five seeds and 1000 images; hiding halves a gap of 6 points.
    random, estimates = np.random.default_rng(0), ([], [])
    for _ in range(300):
        train, test, hidden_train, hidden_test = (
            random.binomial(1000, p, 5) / 1000 for p in (0.56, 0.5, 0.33, 0.3)
        )
        simulated = distortion_groups.Gaps(
            seeds=tuple(range(5)),
            images=np.full((2, 5), 1000),
            clean=np.stack([train, test]),
            curves=iocclusion.curves(
                {"": train, f"{OCCLUSION} 0.3": hidden_train},
                {"": test, f"{OCCLUSION} 0.3": hidden_test},
            ),
        )
        estimates[0].append(simulated.curves[OCCLUSION].iocclusion[1].mean())
        estimates[1].append(simulated.of_means(OCCLUSION)[1])
    ratios, means = (np.nanquantile(values, (0.05, 0.95)) for values in estimates)
    assert np.diff(means) < np.diff(ratios) and means[0] < 0.5 < means[1]


def test_the_report_names_methods_with_omitted_seeds(measured, tmp_path):
    out = distorted.report(distortion, f"{measured}/*", tmp_path / "out")
    results = json.loads((out / "results.json").read_text())
    assert results["iocclusion"] == {"rule": distortion_groups.RULE, "errors": 2.0}
    (line,) = [line for line in results["caveats"] if line.startswith("No iOcclusion")]
    words = "2 of 5 seeds of MixUp and 2 of 2 seeds of CutMix have a gap too small to measure with 200 "
    assert words in line
    page = (out / "index.html").read_text()
    assert len(re.findall(f"<figcaption>[^<]*{words}", page)) == 2
    assert f"hidden by images of another data set): {words}" in page
    assert "n = 3 of 5" in page and "– (n = 0 of 2)" in page
    gaps = pd.read_csv(out / "tables/gaps.csv").set_index(
        ["method", "masking", "hidden"]
    )
    assert gaps.loc[("MixUp", OCCLUSION, 0.3), "known"] == 3
    assert gaps.loc[("MixUp", OCCLUSION, 0.3), "iocclusion"] == pytest.approx(0.2)
    assert np.isnan(gaps.loc[("CutMix", OCCLUSION, 0.3), "iocclusion"])
    row = distorted.row(out, "values", quantity="iocclusion", method="MixUp")
    assert (int(row["n"]), int(row["left_out"])) == (3, 2)


def test_curves_without_any_value_of_a_table_are_reported(tmp_path):
    write_network(tmp_path / "in", "basic", 0, CLEAR_GAP, "black")
    out = distorted.report(distortion, tmp_path / "in", tmp_path / "out")
    results = json.loads((out / "results.json").read_text())
    assert results["headline"].startswith("No measure is shared by two methods")
    assert (out / "tables/gaps.csv").exists() and "values" not in results["tables"]


def test_without_training_images_there_is_no_gap(tmp_path):
    for seed in range(2):
        numbers = distorted.fake_occlusion(np.random.default_rng(seed), "basic", "test")
        measurements = {
            ("occlusion", "occlusion", "test"): (numbers, None, {"fill": "other"})
        }
        folder = tmp_path / str(seed)
        distorted.write(folder, measurements, method="basic", data="cifar10", seed=seed)
    study, _ = distortion_groups.read([f"{tmp_path}/*"])
    hiding = distortion_groups.hiding(study.groups.values())
    assert hiding["test"].notna().all() and hiding["train"].isna().all()
    assert not hiding["known"].any() and hiding["iocclusion"].isna().all()
    assert distortion_groups.without_iocclusion(hiding) == ""
    assert study.value("iocclusion", key("basic")) is None
    figures = [
        *distortion_figures.curve_pairs(study, hiding),
        *distortion_figures.wrong_predictions(study),
        *distortion_figures.occlusion_curves(study, hiding),
    ]
    assert {figure.name for figure in figures} == {
        "accuracy_other_cifar10",
        "curves_other_cifar10",
    }


def test_a_curve_beyond_the_axis_has_a_marker(tmp_path):
    """One method is far above the others: the axis fits the other methods."""
    accuracy_axes, index_axes, caption = draw_curves(tmp_path, 40)
    assert (
        index_axes.get_ylim() == pytest.approx((0, 2))
        and "A triangle at the edge" in caption
    )
    (markers,) = (line for line in index_axes.lines if line.get_marker() == "^")
    np.testing.assert_allclose(markers.get_xydata(), [[10, 2], [30, 2], [60, 2]])
    assert not [line for line in accuracy_axes.lines if line.get_marker() == "^"]


def test_an_axis_that_holds_all_curves_is_not_cut(tmp_path):
    """A peak of 3: above twice the median, not above twice the axis."""
    _, index_axes, caption = draw_curves(tmp_path, 9)
    assert index_axes.get_ylim()[1] > 3 and "triangle" not in caption
    assert not [line for line in index_axes.lines if line.get_marker() == "^"]
