"""The page of six measures holds the numbers of the committed tables, recomputed here."""

import itertools
import pathlib

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from benchmarks import six_measures
from jbias.stats import correlation

ROOT = pathlib.Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results/six-measures"
PAGE = (ROOT / "docs/six-measures.md").read_text(encoding="utf-8")
NETWORKS = pd.read_csv(RESULTS / "networks.csv")
AGREEMENT = pd.read_csv(RESULTS / "agreement.csv")


def shown(value):
    return f"{value:.2f}".replace("-", "−")


def cells(first):
    """Of the first row of that name."""
    line = next(x for x in PAGE.splitlines() if x.startswith(f"| {first} |"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_rank_correlations_are_those_of_scipy_and_partial_ones_of_least_squares():
    both = six_measures.rank_correlations(NETWORKS)
    for i, j in itertools.combinations(range(len(six_measures.MEASURES)), 2):
        x, y = (NETWORKS[six_measures.MEASURES[k]] for k in (i, j))
        rho = scipy.stats.spearmanr(x, y).statistic
        of = dict(covariates=[NETWORKS["accuracy"]], resamples=100)
        partial = correlation.bootstrap_interval(x, y, **of).statistic
        np.testing.assert_allclose(both[:, i, j], [rho, partial], atol=1e-9)
        row = AGREEMENT[AGREEMENT["x"].eq(x.name) & AGREEMENT["y"].eq(y.name)].iloc[0]
        told = row["rho"], row["given_accuracy"]
        np.testing.assert_allclose(told, [rho, partial], atol=1e-6)


def test_intervals_are_over_methods():
    found = six_measures.agreement(NETWORKS)
    numbers = AGREEMENT.select_dtypes("number").columns
    np.testing.assert_allclose(found[numbers], AGREEMENT[numbers], atol=2e-6)
    pairs = NETWORKS.groupby("method").size()
    assert (pairs == 2).all() and len(pairs) == 13
    alone = NETWORKS.assign(method=NETWORKS["network"])  # Each network by itself.
    narrower = six_measures.agreement(alone, draws=500)
    span = lambda of: (of["rho_high"] - of["rho_low"]).mean()
    assert span(narrower) < span(found)


@pytest.mark.parametrize("other", six_measures.MEASURES[1:])
def test_the_page_has_shape_bias_with_each_other(other):
    row = AGREEMENT[AGREEMENT["x"].eq("shape bias") & AGREEMENT["y"].eq(other)].iloc[0]
    told = [
        f"{shown(row[of])} [{shown(row[f'{of}_low'])}, {shown(row[f'{of}_high'])}]"
        for of in ("rho", "given_accuracy")
    ]
    assert cells(other)[:2] == told


def test_the_page_says_what_the_networks_are():
    words = " ".join(PAGE.split())
    five = AGREEMENT[AGREEMENT["y"] != "odd one out"]
    ends = (five[of].agg(["min", "max"]).map(shown) for of in ("rho", "given_accuracy"))
    assert (
        "Their ten rank correlations are {} to {}, and {} to {} at".format(
            *itertools.chain(*ends)
        )
        in words
        and len(five) == 10
    )
    low = NETWORKS[NETWORKS["shape bias"] < 0.2]
    rho = low[[*six_measures.MEASURES]].corr(method="spearman")["shape bias"]
    kept = low["without texture"]
    assert len(low) == 13
    assert f"goes from {shown(kept.min())} to {shown(kept.max())}:" in words
    assert {*low.loc[kept.nlargest(3).index, "method"]} == {
        *("RandConv", "EFDMix", "SagNet")
    }
    assert f"ρ is {shown(rho['without texture'])}, and" in words
    assert f"the odd one out {shown(rho['odd one out'])}." in words
    of = NETWORKS["odd one out"].corr(NETWORKS["accuracy"], method="spearman")
    assert f"goes with accuracy ({shown(of)}) more than with any of them" in words
    assert of > AGREEMENT.loc[AGREEMENT["y"].eq("odd one out"), "rho"].max()
    worst = NETWORKS.loc[NETWORKS["accuracy"].idxmin()]
    assert worst["method"] == "DSU" and f"{worst['neither']:.2f}" == "0.51"
    for of in ("shape bias", "accuracy", "rank of shape", "order of parts"):
        assert shown(worst[of]) in words
    split = NETWORKS.groupby("method")
    ends = split["shape bias"].agg(["min", "max"])
    wide = ends[(ends["min"] < 0.2) & (ends["max"] > 0.7)].index
    told = "EFDMix, pAdaIN, RandConv, SagNet and Gaussian noise"
    assert {*wide} == {*told.replace(" and", ",").split(", ")} and told in words
    for name in wide:
        first, second = split.get_group(name)[[*six_measures.MEASURES[:5]]].to_numpy()
        assert abs(np.sign(first - second).sum()) == 5, name


def test_the_page_has_the_network_of_photographs():
    one = pd.read_csv(RESULTS / "photographs.csv").iloc[0]
    photographs = PAGE.partition("## Photographs")[2]
    for of in ("shape bias", "odd one out"):
        assert f"| {of} | {shown(one[of])} [" in photographs
    assert (
        f"| rank of shape, of texture | {shown(one['rank of shape'])}, " in photographs
    )
    kept, left, _ = map(float, cells("without texture, shape, colour")[0].split(", "))
    assert kept - left == pytest.approx(one["without texture"], abs=0.01)
    assert f"| edges | {one['diffused']:.2f}, {one['cells']:.3f} |" in photographs
    assert f"{100 * one['accuracy']:.1f} % right" in photographs
    assert f"{100 * one['neither']:.0f} % of 550 conflicts" in photographs
