"""The page on six measures has the numbers of the committed tables."""

import itertools
import pathlib

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from jbias.stats import correlation
from studies import six_measures

ROOT = pathlib.Path(__file__).parents[1]
RESULTS = ROOT / "studies/results/six-measures"
PAGE = (ROOT / "docs/six-measures.md").read_text(encoding="utf-8")
NETWORKS = pd.read_csv(RESULTS / "networks.csv")
AGREEMENT = pd.read_csv(RESULTS / "agreement.csv")
WORDS = " ".join(PAGE.split())


def printed(value):
    """Return a number as the page prints it."""
    return f"{value:.2f}".replace("-", "−")


def cells(first):
    """Return the remaining cells of the page's first table row that starts with `first`."""
    line = next(x for x in PAGE.splitlines() if x.startswith(f"| {first} |"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_rank_correlations_equal_scipys_and_partial_ones_equal_least_squares():
    correlations = six_measures.rank_correlations(NETWORKS)
    for i, j in itertools.combinations(range(len(six_measures.ALL)), 2):
        x, y = (NETWORKS[six_measures.ALL[k]] for k in (i, j))
        expected = [scipy.stats.spearmanr(x, y).statistic, np.nan]
        if y.name != "accuracy":
            partial = correlation.bootstrap_interval(
                x, y, covariates=[NETWORKS["accuracy"]], resamples=100
            )
            expected[1] = partial.statistic
        np.testing.assert_allclose(correlations[:, i, j], expected, atol=1e-9)
        row = AGREEMENT[AGREEMENT["x"].eq(x.name) & AGREEMENT["y"].eq(y.name)].iloc[0]
        committed = row["rho"], row["given_accuracy"]
        np.testing.assert_allclose(committed, expected, atol=1e-6)


@pytest.mark.slow
def test_intervals_are_over_methods():
    computed = six_measures.agreement(NETWORKS)
    numbers = AGREEMENT.select_dtypes("number").columns
    np.testing.assert_allclose(computed[numbers], AGREEMENT[numbers], atol=2e-6)
    pairs = NETWORKS.groupby("method").size()
    assert (pairs == 2).all() and len(pairs) == 13


@pytest.mark.parametrize("other", six_measures.ALL[1:])
def test_the_page_has_shape_bias_with_each_other(other):
    row = AGREEMENT[AGREEMENT["x"].eq("shape bias") & AGREEMENT["y"].eq(other)].iloc[0]
    rho, given_accuracy = (
        f"{printed(row[name])} [{printed(row[f'{name}_low'])}, {printed(row[f'{name}_high'])}]"
        for name in ("rho", "given_accuracy")
    )
    assert cells(other)[:2] == [rho, given_accuracy if other != "accuracy" else "–"]


def test_the_page_gives_the_agreement_of_the_measures():
    pairs = AGREEMENT[~AGREEMENT["y"].isin(["odd one out", "accuracy"])]
    ends = (
        pairs[column].agg(["min", "max"]).map(printed)
        for column in ("rho", "given_accuracy")
    )
    sentence = "Their ten rank correlations are {} to {}, and {} to {} given accuracy."
    assert sentence.format(*itertools.chain(*ends)) in WORDS and len(pairs) == 10
    rho = NETWORKS["odd one out"].corr(NETWORKS["accuracy"], method="spearman")
    assert f"no less with accuracy (ρ = {printed(rho)})" in WORDS
    assert rho > AGREEMENT.loc[AGREEMENT["y"].eq("odd one out"), "rho"].max()


def test_the_page_gives_examples_of_disagreement():
    low = NETWORKS[NETWORKS["shape bias"] < 0.2]
    without_texture = low["without texture"]
    assert len(low) == 13
    assert (
        f"go from {printed(without_texture.min())} to {printed(without_texture.max())},"
        in WORDS
    )
    odd_one_out = NETWORKS.set_index("method")["odd one out"]
    assert [*odd_one_out["CutMix"].map(printed)] == ["0.61", "0.64"]
    assert "Both CutMix networks decide by texture and have 0.61 and 0.64" in WORDS
    by_shape = NETWORKS[NETWORKS["shape bias"] > 0.7].set_index("method")["odd one out"]
    assert by_shape[["RandConv", "Gaussian noise"]].map(printed).eq("0.60").all()
    assert "that decide by shape have 0.60." in WORDS
    worst = NETWORKS.loc[NETWORKS["accuracy"].idxmin()]
    assert worst["method"] == "DSU" and printed(worst["shape bias"]) == "0.54"
    assert f"{worst['accuracy']:.2f} {worst['neither']:.2f}" == "0.51 0.51"
    assert worst["neither"] == NETWORKS["neither"].max()
    places = NETWORKS[[*six_measures.MEASURES[:5]]].rank().loc[worst.name]
    assert places.between(8, 19).all()  # Of 26.
    split = NETWORKS.groupby("method")
    ends = split["shape bias"].agg(["min", "max"])
    wide = ends[(ends["min"] < 0.2) & (ends["max"] > 0.7)].index
    method_names = "EFDMix, pAdaIN, RandConv, SagNet and Gaussian noise"
    assert {*wide} == {*method_names.replace(" and", ",").split(", ")}
    assert method_names in WORDS
    for name in wide:
        first, second = split.get_group(name)[[*six_measures.MEASURES[:5]]].to_numpy()
        assert abs(np.sign(first - second).sum()) == 5, name


def with_ends(values, name):
    """Return a value and its interval as the page prints them."""
    lower, upper = (printed(values[f"{name}_{end}"]) for end in ("lower", "upper"))
    return f"{printed(values[name])} [{lower}, {upper}]"


def test_the_page_has_the_network_of_photographs():
    rows = pd.read_csv(RESULTS / "photographs.csv").fillna({"condition": ""})
    value = rows.set_index(["condition", "metric"])["value"]
    section = PAGE.partition("## Photographs")[2].partition("## Published")[0]
    bias = value["shape_bias"]
    section = " ".join(section.split())
    words = f"a shape bias of {with_ends(bias, 'shape_bias')}, from 195 decisions"
    assert words in section
    neither = 100 * bias["fraction_neither"]
    words = f"{neither:.0f} % of the decisions on 550 conflicts are for neither"
    assert words in section


def test_the_page_has_the_published_decisions():
    rows = pd.read_csv(RESULTS / "decisions.csv").set_index(["condition", "metric"])
    names = {
        "densenet121": "DenseNet-121",
        "resnet50": "ResNet-50",
        "resnet50-train-60-epochs": "ResNet-50, Stylized-ImageNet",
    }
    known = pd.read_csv(ROOT / "jbias/report/pages/networks/published_shape_biases.csv")
    for network, name in names.items():
        decisions = rows[rows["network"] == network]
        bias, count = decisions["value"]["shape_bias"], decisions["count"]["shape_bias"]
        shares = [count[f"fraction_{x}"] / 12 for x in ("shape", "texture", "neither")]
        assert sum(shares) == pytest.approx(100)  # Per cent of 1,200.
        human = decisions["value"]["human"]
        lower, upper = (human[f"error_consistency_{end}"] for end in ("lower", "upper"))
        consistency = f"{human['error_consistency']:.3f} [{lower:.3f}, {upper:.3f}]"
        assert cells(name) == [
            with_ends(bias, "shape_bias"),
            ", ".join(f"{x:.0f}" for x in shares) + " %",
            consistency,
        ]
        counted = known["shape"] / known["either"]
        assert counted.sub(bias["shape_bias"]).abs().min() < 1e-4
        assert f"{human['human_error_consistency']:.3f}" in WORDS
