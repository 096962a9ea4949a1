"""iOcclusion in the report: of which seeds it can be told, and how that is said."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from jbias.evals import iocclusion
from jbias.report import distortion, distortion_page, distortion_study
from tests.report import distorted

WAY, N = "grad_cam most", distorted.N
HIDDEN = {0.1: (0.5, 0.45), 0.3: (0.4, 0.37), 0.6: (0.3, 0.28)}
# Training and test accuracy; a gap of 0.05 of 0.9 and 0.95 is 1.9 standard errors.
SURE, UNSURE, NONE = (0.95, 0.80), (0.95, 0.90), (0.9, 0.9)
PARTS = {
    "basic": [SURE] * 3,
    "mixup": [SURE, SURE, UNSURE, NONE, SURE],
    "cutmix": [UNSURE, (0.92, 0.9)],
}


def network(folder, method, seed, clean, fill="other", scale=1.0):
    found = {}
    for i, on in enumerate(("train", "test")):
        numbers = [distorted.accuracy(clean[i])]
        for way in (WAY, "rectangle"):
            numbers += [
                distorted.accuracy(
                    pair[1] + (1 - i) * (pair[0] - pair[1]) * scale, f"{way} {part:g}"
                )
                for part, pair in HIDDEN.items()
            ]
        found[f"occlusion_{fill}", "occlusion", on] = numbers, None, {"fill": fill}
    distorted.write(folder, found, method=method, data="cifar10", seed=seed)


def drawn(folder, last):
    """The figure of four methods, of which the last has so much of its gap left."""
    scales = zip(("basic", "mixup", "fmix", "cutmix"), (1, 2, 3, last), strict=True)
    for method, scale in scales:
        for seed in range(2):
            where = folder / f"{method}-{seed}"
            network(where, method, seed, SURE, "black", scale)
    study, _ = distortion_study.read([f"{folder}/*"])
    hiding = distortion_study.hiding(study.groups.values())
    found = {one.name: one for _, one in distortion_page.figures(study, hiding)}
    figure = found["curves_black_cifar10"]
    titles = {axes.get_title(loc="left"): axes for axes in figure.drawn.axes}
    return titles["CutOcclusion"], titles["iOcclusion"], figure.caption


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gaps")
    for method, each in PARTS.items():
        for seed, clean in enumerate(each):
            network(folder / f"{method}-{seed}", method, seed, clean)
    return folder


@pytest.fixture(scope="module")
def study(measured):
    return distortion_study.read([f"{measured}/*"])[0]


def key(method):
    return distortion_study.Key("preact_resnet18", "CIFAR-10", method)


def test_seeds_are_told_by_two_errors_of_a_difference(study):
    gaps = distortion_study.gaps(study.groups[key("MixUp")], "other")
    random = np.random.default_rng(0)
    for i, (train, test) in enumerate(PARTS["mixup"]):
        drawn = random.binomial(N, train, 50_000) - random.binomial(N, test, 50_000)
        # The deviation of 50 000 draws is sure to 0.3 %.
        assert gaps.error[i] == pytest.approx(np.std(drawn / N), rel=0.02)
    assert gaps.known.tolist() == [True, True, False, False, True]
    assert gaps.images.tolist() == [[N] * 5] * 2
    index = gaps.index(WAY)
    assert index.shape == (4, 3)
    np.testing.assert_allclose(index[0], 1)
    np.testing.assert_allclose(index[2], 0.03 / 0.15)


def test_what_is_tested_is_the_ratio_of_mean_gaps_of_all_seeds(study):
    """Mean and interval are those of the seeds that are told."""
    value = study.value("iocclusion", key("MixUp"))
    assert value.seeds == (0, 1, 4) and value.left_out == 2
    assert value.mean == pytest.approx(0.2) and len(value.units) == 5
    assert value.tested == pytest.approx(0.03 / 0.1)
    lost = study.value("iocclusion", key("CutMix"))
    assert np.isnan([lost.mean, lost.std, lost.low, lost.tested]).all()
    assert (len(lost.runs), lost.left_out) == (0, 2)


def test_the_ratio_of_means_is_of_all_seeds_and_steadier(study):
    gaps = distortion_study.gaps(study.groups[key("MixUp")], "other")
    assert gaps.gap.mean() == pytest.approx((3 * 0.15 + 0.05) / 5)
    np.testing.assert_allclose(gaps.of_means(WAY)[2], 0.03 / gaps.gap.mean())
    none = distortion_study.gaps(study.groups[key("CutMix")], "other")
    assert np.isnan(none.of_means(WAY)).all()
    # Five seeds and 1000 images; hiding halves a gap of 6 points.
    random, found = np.random.default_rng(0), ([], [])
    for _ in range(300):
        train, test, hidden_train, hidden_test = (
            random.binomial(1000, p, 5) / 1000 for p in (0.56, 0.5, 0.33, 0.3)
        )
        one = distortion_study.Gaps(
            seeds=tuple(range(5)),
            images=np.full((2, 5), 1000),
            clean=np.stack([train, test]),
            curves=iocclusion.curves(
                {"": train, f"{WAY} 0.3": hidden_train},
                {"": test, f"{WAY} 0.3": hidden_test},
            ),
        )
        found[0].append(one.curves[WAY].iocclusion[1].mean())
        found[1].append(one.of_means(WAY)[1])
    ratios, means = (np.nanquantile(values, (0.05, 0.95)) for values in found)
    assert np.diff(means) < np.diff(ratios) and means[0] < 0.5 < means[1]


def test_report_says_whose_seeds_are_left_out(measured, tmp_path):
    out = distorted.report(distortion, f"{measured}/*", tmp_path / "out")
    told = json.loads((out / "results.json").read_text())
    assert told["iocclusion"] == {"rule": distortion_study.RULE, "errors": 2.0}
    (line,) = [line for line in told["caveats"] if line.startswith("No iOcclusion")]
    words = "2 of 5 seeds of MixUp and 2 of 2 seeds of CutMix have a gap too small to measure with 200 "
    assert words in line
    page = (out / "index.html").read_text()
    assert len(re.findall(f"<figcaption>[^<]*{words}", page)) == 2
    assert f"hidden by images of another data set): {words}" in page
    assert "n = 3 of 5" in page and "– (n = 0 of 2)" in page
    gaps = pd.read_csv(out / "tables/gaps.csv").set_index(["method", "way", "hidden"])
    assert gaps.loc[("MixUp", WAY, 0.3), "told"] == 3
    assert gaps.loc[("MixUp", WAY, 0.3), "iocclusion"] == pytest.approx(0.2)
    assert np.isnan(gaps.loc[("CutMix", WAY, 0.3), "iocclusion"])
    row = distorted.one(out, "values", quantity="iocclusion", method="MixUp")
    assert (int(row["n"]), int(row["left_out"])) == (3, 2)


def test_curves_without_any_value_of_a_table_are_reported(tmp_path):
    network(tmp_path / "in", "basic", 0, SURE, "black")
    out = distorted.report(distortion, tmp_path / "in", tmp_path / "out")
    told = json.loads((out / "results.json").read_text())
    assert told["headline"].startswith("No measure is shared by two methods")
    assert (out / "tables/gaps.csv").exists() and "values" not in told["tables"]


def test_test_images_alone_have_accuracies_and_no_gap(tmp_path):
    for seed in range(2):
        numbers = distorted.hidden(np.random.default_rng(seed), "basic", "test")
        found = {("occlusion", "occlusion", "test"): (numbers, None, {"fill": "other"})}
        folder = tmp_path / str(seed)
        distorted.write(folder, found, method="basic", data="cifar10", seed=seed)
    study, _ = distortion_study.read([f"{tmp_path}/*"])
    hiding = distortion_study.hiding(study.groups.values())
    assert hiding["test"].notna().all() and hiding["train"].isna().all()
    assert not hiding["told"].any() and hiding["iocclusion"].isna().all()
    assert distortion_study.without_iocclusion(hiding) == ""
    assert study.value("iocclusion", key("basic")) is None
    figures = {one.name for _, one in distortion_page.figures(study, hiding)}
    assert figures == {"accuracy_other_cifar10", "curves_other_cifar10"}


def test_a_curve_that_leaves_the_axis_has_a_sign(tmp_path):
    """One method is far above the others: the axis is that of the others."""
    cut, index, told = drawn(tmp_path, 40)
    assert (
        index.get_ylim() == pytest.approx((0, 2)) and "A triangle at the edge" in told
    )
    (signs,) = (line for line in index.lines if line.get_marker() == "^")
    np.testing.assert_allclose(signs.get_xydata(), [[10, 2], [30, 2], [60, 2]])
    assert not [line for line in cut.lines if line.get_marker() == "^"]


def test_an_axis_that_holds_all_curves_is_not_cut(tmp_path):
    """A peak of 3: above twice the median, not above twice the axis."""
    _, index, told = drawn(tmp_path, 9)
    assert index.get_ylim()[1] > 3 and "triangle" not in told
    assert not [line for line in index.lines if line.get_marker() == "^"]
