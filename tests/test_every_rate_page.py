"""The section on rates holds what the table of all results says, by numpy and scipy alone."""

import itertools
import json
import pathlib

import numpy as np
import pandas as pd
import scipy.stats

ROOT = pathlib.Path(__file__).parents[1]
RESULTS = ROOT / "docs/results"
PAGE = " ".join((ROOT / "docs/results.md").read_text(encoding="utf-8").split())
ALL = pd.read_csv(RESULTS / "all.csv")
METHODS = {  # As papers call them: in the table, among folders.
    "ERM": ("erm", "erm"),
    "pAdaIN": ("padain", "padain"),
    "MixStyle": ("mixstyle", "mixstyle"),
    "SagNet": ("sagnet", "sagnet"),
    "DeepAugment (CAE)": ("erm (cae)", "deepaugment:nets=cae"),
    "RandConv": ("erm (rand_conv)", "rand_conv"),
    "Gaussian noise": ("erm (gaussian_noise)", "gaussian_noise"),
    "Stylized ERM": ("erm (stylize)", "stylized_erm"),
}
RATES = (0.02, 0.05, 0.1)


def rows_of(metric):
    return ALL[(ALL["study"] == "every-rate") & (ALL["metric"] == metric)]


def shape_biases():
    rows = rows_of("shape_bias")
    assert len(rows) == 8 * 3 * 10
    return {
        (name, rate): 100
        * rows[(rows["method"] == of) & (rows["rate"] == rate)]["score"]
        for name, (of, _) in METHODS.items()
        for rate in RATES
    }


def holm(p):
    order, adjusted = np.argsort(p), np.empty(len(p))
    adjusted[order] = np.maximum.accumulate(np.sort(p) * np.arange(len(p), 0, -1))
    return np.minimum(adjusted, 1)


def tables():
    text = (ROOT / "benchmarks/results/every-rate.md").read_text(encoding="utf-8")
    page = (ROOT / "docs/results.md").read_text(encoding="utf-8")
    assert all(table in page for table in text.strip().split("\n\n"))
    return [
        [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
        for lines in (table.splitlines() for table in text.strip().split("\n\n"))
    ]


def test_the_table_of_methods():
    values, accuracy = shape_biases(), rows_of("accuracy")
    rates = json.loads((RESULTS / "every-rate/rates.json").read_text())
    assert len(accuracy) == 8 * 3 * 10 * 10
    means = accuracy.groupby(["rate", "set", "method"])["score"].mean().round(9)
    ranks = {rate: (-means[rate].unstack()).rank(axis=1).mean() for rate in RATES}
    on_test = accuracy[accuracy["set"] == "test"].groupby(["method", "rate"])["score"]
    on_test = 100 * on_test.median()
    first, _ = tables()
    assert {row[0] for row in first} == {*METHODS}
    for name, *cells, right, placed, chosen in first:
        of, folder = METHODS[name]
        for rate, cell in zip(RATES, cells, strict=True):
            x = values[name, rate]
            assert cell == f"{np.median(x):.0f} [{min(x):.0f}, {max(x):.0f}]"
        assert right == ", ".join(f"{on_test[of, rate]:.0f}" for rate in RATES)
        assert placed == ", ".join(f"{ranks[rate][of]:.1f}" for rate in RATES)
        tried = rates[folder]["valid"]
        assert {*map(float, tried)} == {*RATES} and rates[folder]["tuning_seeds"] == 5
        assert tried[chosen] == max(tried.values())


def test_the_table_of_differences():
    values, (_, second) = shape_biases(), tables()
    assert {row[0] for row in second} == {*METHODS} - {"ERM"}
    p = [
        scipy.stats.mannwhitneyu(values[row[0], rate], values["ERM", rate]).pvalue
        for row in second
        for rate in RATES
    ]
    p = holm(p).reshape(7, 3)
    for (name, *cells, every), adjusted in zip(second, p, strict=True):
        for rate, cell, one in zip(RATES, cells, adjusted, strict=True):
            gap = np.median(values[name, rate]) - np.median(values["ERM", rate])
            number, _, told = cell.removesuffix(")").partition(" (p = ")
            assert number == f"{gap:+.0f}" and abs(float(told) - one) <= 0.0005
        assert every == f"{above(values, name, np.median)} of 9"
    everywhere = {row[0] for row, one in zip(second, p, strict=True) if max(one) < 0.05}
    assert everywhere == {"Stylized ERM"}
    assert "Only Stylized ERM differs from ERM significantly at each rate." in PAGE
    assert sum(row[4] == "9 of 9" for row in second) == 6
    assert sum(above(values, row[0], np.mean) == 9 for row in second) == 5
    assert "By medians, six of seven methods are above ERM at every pair of" in PAGE
    assert "rates; by means, five are (not tested)." in PAGE


def above(values, name, middle):
    """At how many pairs of rates a method is above ERM."""
    pairs = itertools.product(RATES, RATES)
    return sum(middle(values[name, a]) > middle(values["ERM", b]) for a, b in pairs)


def test_seeds_decide_most():
    def shares(rows):
        y, whole = rows["score"], ((rows["score"] - rows["score"].mean()) ** 2).sum()
        fits = {
            of: rows.groupby(list(of))["score"].transform("mean")
            for of in (("method",), ("rate",), ("method", "rate"))
        }
        method, rate, both = (((x - y.mean()) ** 2).sum() for x in fits.values())
        parts = (whole - both, method, rate, both - method - rate)
        return [f"{100 * part / whole:.0f}" for part in parts]

    rows = rows_of("shape_bias")
    seed, method, rate, both = shares(rows)
    words = f"seeds explain {seed} %, the method {method} %, the rate {rate} %, and the"
    assert f"{words} interaction of method and rate {both} %." in PAGE
    *some, last = shares(rows[rows["method"] != "erm (stylize)"])
    assert (
        f"Without Stylized ERM the shares are {', '.join(some)} and {last} %." in PAGE
    )


def test_which_methods_hang_on_the_rate():
    values = shape_biases()
    p = holm(
        [
            scipy.stats.mannwhitneyu(values[name, 0.02], values[name, 0.1]).pvalue
            for name in METHODS
        ]
    )
    p = dict(zip(METHODS, p, strict=True))
    assert [name for name, one in p.items() if one < 0.05] == ["MixStyle"]
    assert f"p = {p['MixStyle']:.3f} after Holm over the eight" in PAGE
    assert f"pAdaIN's rises from 6 to 64 % (p = {p['pAdaIN']:.2f})" in PAGE
    rows = rows_of("accuracy")
    rows = rows[(rows["set"] == "test") & (rows["score"] < 0.25)]
    assert {*rows["rate"]} == {0.1}
    assert rows["method"].value_counts().to_dict() == {
        "erm (rand_conv)": 6,
        "sagnet": 4,
    }
    assert "six seeds of RandConv and four of SagNet hardly learned" in PAGE
    rest = {}
    for name in ("RandConv", "SagNet"):
        failed = rows.loc[rows["method"] == METHODS[name][0], "seed"]
        of = rows_of("shape_bias")
        of = of[(of["method"] == METHODS[name][0]) & (of["rate"] == 0.1)]
        rest[name] = 100 * of.loc[~of["seed"].isin(failed), "score"].median()
    words = "RandConv's median is {RandConv:.0f} % and SagNet's {SagNet:.0f} %."
    assert words.format(**rest) in PAGE
    assert sum(values["ERM", 0.1] > 89) == 3
    assert "three of ERM's ten seeds are above 89 %" in PAGE


def test_pairs_that_keep_their_order():
    for metric, told in (("shape_bias", 11), ("accuracy", 15)):
        rows = rows_of(metric).groupby(["method", "rate", "set"])["score"].mean()
        means = rows.groupby(["method", "rate"]).mean()
        kept = []
        for a, b in itertools.combinations(sorted({*means.index.levels[0]}), 2):
            pairs = itertools.product(RATES, RATES)
            signs = {means[a, x] > means[b, y] for x, y in pairs}
            kept += [{a, b}] * (len(signs) == 1)
        assert len(kept) == told
        assert sum("erm (stylize)" in pair for pair in kept) == 7
        if metric == "accuracy":
            assert sum("erm (cae)" in pair for pair in kept) == 7
    assert "11 keep their order in shape bias, and 15 in accuracy" in PAGE


def test_no_difference_from_the_cpu_is_found():
    both = ALL[ALL["study"].isin(["shapes", "every-rate"])]
    both = both[both["metric"] == "shape_bias"]
    p = []
    for _, of in both.groupby(["method", "rate"]):
        parts = [one["score"] for _, one in of.groupby("study")]
        if len(parts) == 2:
            p.append(scipy.stats.mannwhitneyu(*parts).pvalue)
    assert len(p) == 8
    assert f"p from {min(p):.2f} to {max(p):.2f}, not adjusted" in PAGE


def test_plain_seeds_that_learn_the_shape():
    rows = ALL[(ALL["method"] == "erm") & (ALL["rate"] == 0.1)]
    for study, count, told in (
        ("shapes", 1, "0.3 to 45 %"),
        ("every-rate", 3, "7 to 65 %"),
    ):
        of = rows[rows["study"] == study]
        bias = of[of["metric"] == "shape_bias"].set_index("seed")["score"]
        assert (bias > 0.5).sum() == count and len(bias) == 10
        exact = scipy.stats.binomtest(count, 10).proportion_ci(method="exact")
        low, high = 100 * exact.low, 100 * exact.high
        assert f"{low:.1g} to {high:.0f} %" == told and told in PAGE


def test_what_is_kept_of_the_reports_is_the_table_s():
    folder, values = RESULTS / "every-rate", shape_biases()
    page = (ROOT / "docs/results.md").read_text(encoding="utf-8")
    headline = (folder / "headline.md").read_text(encoding="utf-8")
    assert "(results/every-rate/headline.md)" in page
    labels = {"Gaussian noise": "ERM (gaussian_noise)"}
    labels = {name: labels.get(name, name) for name in METHODS}
    rates = json.loads((folder / "rates.json").read_text())
    rows = rows_of("accuracy")
    grid = pd.read_csv(folder / "grid.csv").set_index(["metric", "algorithm", "value"])
    assert len(grid) == 2 * 24
    for (name, rate), x in values.items():
        of, file = METHODS[name]
        mine = rows[(rows["method"] == of) & (rows["rate"] == rate)]
        score = grid["score"]
        assert abs(score["shape_bias", labels[name], rate] - x.mean()) < 1e-6
        own = 100 * mine.groupby("set")["score"].mean().mean()
        assert abs(score["accuracy", labels[name], rate] - own) < 1e-6
        if rate == rates[file]["chosen"]:
            config = file.replace(":", "-").replace("=", "-")
            config = json.loads((folder / f"configs/{config}.json").read_text())
            assert config["optim"]["rate"] == rate
            lines = headline.splitlines()
            (line,) = (one for one in lines if one.startswith(f"| {labels[name]} |"))
            parts = [
                100 * mine[mine["set"] == s]["score"]
                for s in ("silhouette", "stylized")
            ]
            for column in (*parts, x):
                told = f"{column.median():.1f} [{column.min():.1f}, {column.max():.1f}]"
                assert told in line
    pairs = pd.read_csv(folder / "grid_pairs.csv").groupby("metric")["combinations"]
    kept = pairs.agg(lambda share: (share == 1).sum()).to_dict()
    assert kept == {"accuracy": 15, "shape_bias": 11}
