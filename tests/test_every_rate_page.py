"""The section on rates has the numbers of the table of all results, by numpy and scipy."""

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
METHODS = {  # By the name on the page: names in the table of all results, and of the folder.
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
        * rows[(rows["method"] == method) & (rows["rate"] == rate)]["score"]
        for name, (method, _) in METHODS.items()
        for rate in RATES
    }


def holm(p):
    order, adjusted = np.argsort(p), np.empty(len(p))
    adjusted[order] = np.maximum.accumulate(np.sort(p) * np.arange(len(p), 0, -1))
    return np.minimum(adjusted, 1)


def tables():
    text = (ROOT / "studies/results/every-rate.md").read_text(encoding="utf-8")
    results_text = (ROOT / "docs/results.md").read_text(encoding="utf-8")
    assert text.split("\n\n")[0] in results_text
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
    method_rows, _ = tables()
    assert {row[0] for row in method_rows} == {*METHODS}
    for name, *cells, accuracies, mean_ranks, chosen_rate in method_rows:
        method, folder = METHODS[name]
        for rate, cell in zip(RATES, cells, strict=True):
            biases = values[name, rate]
            assert (
                cell
                == f"{np.median(biases):.0f} [{min(biases):.0f}, {max(biases):.0f}]"
            )
        assert accuracies == ", ".join(f"{on_test[method, rate]:.0f}" for rate in RATES)
        assert mean_ranks == ", ".join(f"{ranks[rate][method]:.1f}" for rate in RATES)
        tried_rates = rates[folder]["valid"]
        assert {*map(float, tried_rates)} == {*RATES} and rates[folder][
            "tuning_seeds"
        ] == 5
        assert tried_rates[chosen_rate] == max(tried_rates.values())


def test_the_table_of_differences():
    values, (_, difference_rows) = shape_biases(), tables()
    assert {row[0] for row in difference_rows} == {*METHODS} - {"ERM"}
    p = [
        scipy.stats.mannwhitneyu(values[row[0], rate], values["ERM", rate]).pvalue
        for row in difference_rows
        for rate in RATES
    ]
    p = holm(p).reshape(7, 3)
    for (name, *cells, num_above), adjusted in zip(difference_rows, p, strict=True):
        for rate, cell, pvalue in zip(RATES, cells, adjusted, strict=True):
            gap = np.median(values[name, rate]) - np.median(values["ERM", rate])
            number, _, printed_p = cell.removesuffix(")").partition(" (p = ")
            assert number == f"{gap:+.0f}" and abs(float(printed_p) - pvalue) <= 0.0005
        assert num_above == f"{above(values, name, np.median)} of 9"
    everywhere = {
        row[0]
        for row, pvalue in zip(difference_rows, p, strict=True)
        if max(pvalue) < 0.05
    }
    assert everywhere == {"Stylized ERM"}
    assert "Only Stylized ERM differs from ERM significantly at each rate" in PAGE
    assert sum(row[4] == "9 of 9" for row in difference_rows) == 6
    assert sum(above(values, row[0], np.mean) == 9 for row in difference_rows) == 5
    assert "By medians, six of seven methods are above ERM at every pair of" in PAGE
    assert "rates; by means, five are (not tested)." in PAGE


def above(values, name, average):
    """Return the number of pairs of rates at which a method is above ERM."""
    pairs = itertools.product(RATES, RATES)
    return sum(average(values[name, a]) > average(values["ERM", b]) for a, b in pairs)


def test_seeds_explain_most_of_the_variance():
    def shares(rows):
        y, total = rows["score"], ((rows["score"] - rows["score"].mean()) ** 2).sum()
        fits = {
            factors: rows.groupby(list(factors))["score"].transform("mean")
            for factors in (("method",), ("rate",), ("method", "rate"))
        }
        method, rate, both_factors = (
            ((x - y.mean()) ** 2).sum() for x in fits.values()
        )
        sums = (total - both_factors, method, rate, both_factors - method - rate)
        return [f"{100 * sum_of_squares / total:.0f}" for sum_of_squares in sums]

    rows = rows_of("shape_bias")
    seed, method, rate, both_factors = shares(rows)
    words = f"seeds explain {seed} %, the method {method} %, the rate {rate} %, and the"
    assert f"{words} interaction of method and rate {both_factors} %." in PAGE
    *first_shares, last_share = shares(rows[rows["method"] != "erm (stylize)"])
    assert (
        f"Without Stylized ERM the shares are {', '.join(first_shares)} and {last_share} %."
        in PAGE
    )


def test_which_methods_depend_on_the_rate():
    values = shape_biases()
    p = holm(
        [
            scipy.stats.mannwhitneyu(values[name, 0.02], values[name, 0.1]).pvalue
            for name in METHODS
        ]
    )
    p = dict(zip(METHODS, p, strict=True))
    assert [name for name, pvalue in p.items() if pvalue < 0.05] == ["MixStyle"]
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
    medians = {}
    for name in ("RandConv", "SagNet"):
        failed = rows.loc[rows["method"] == METHODS[name][0], "seed"]
        bias_rows = rows_of("shape_bias")
        bias_rows = bias_rows[
            (bias_rows["method"] == METHODS[name][0]) & (bias_rows["rate"] == 0.1)
        ]
        medians[name] = (
            100 * bias_rows.loc[~bias_rows["seed"].isin(failed), "score"].median()
        )
    words = "RandConv's median is {RandConv:.0f} % and SagNet's {SagNet:.0f} %."
    assert words.format(**medians) in PAGE
    assert sum(values["ERM", 0.1] > 89) == 3
    assert "three of ERM's ten seeds are above 89 %" in PAGE


def test_pairs_that_keep_their_order():
    for metric, num_expected in (("shape_bias", 11), ("accuracy", 15)):
        rows = rows_of(metric).groupby(["method", "rate", "set"])["score"].mean()
        means = rows.groupby(["method", "rate"]).mean()
        ordered_pairs = []
        for a, b in itertools.combinations(sorted({*means.index.levels[0]}), 2):
            pairs = itertools.product(RATES, RATES)
            signs = {means[a, x] > means[b, y] for x, y in pairs}
            ordered_pairs += [{a, b}] * (len(signs) == 1)
        assert len(ordered_pairs) == num_expected
        assert sum("erm (stylize)" in pair for pair in ordered_pairs) == 7
        if metric == "accuracy":
            assert sum("erm (cae)" in pair for pair in ordered_pairs) == 7


def test_the_results_of_cpu_and_accelerator_do_not_differ():
    rows = ALL[ALL["study"].isin(["shapes", "every-rate"])]
    rows = rows[rows["metric"] == "shape_bias"]
    p = []
    for _, group in rows.groupby(["method", "rate"]):
        scores_by_study = [
            study_rows["score"] for _, study_rows in group.groupby("study")
        ]
        if len(scores_by_study) == 2:
            p.append(scipy.stats.mannwhitneyu(*scores_by_study).pvalue)
    assert len(p) == 8
    assert f"p from {min(p):.2f} to {max(p):.2f}, not adjusted" in PAGE


def test_plain_seeds_that_learn_the_shape():
    rows = ALL[(ALL["method"] == "erm") & (ALL["rate"] == 0.1)]
    for study, count, interval in (
        ("shapes", 1, "0.3 to 45 %"),
        ("every-rate", 3, "7 to 65 %"),
    ):
        study_rows = rows[rows["study"] == study]
        bias = study_rows[study_rows["metric"] == "shape_bias"].set_index("seed")[
            "score"
        ]
        assert (bias > 0.5).sum() == count and len(bias) == 10
        exact = scipy.stats.binomtest(count, 10).proportion_ci(method="exact")
        low, high = 100 * exact.low, 100 * exact.high
        assert f"{low:.1g} to {high:.0f} %" == interval and interval in PAGE


def test_the_stored_reports_have_the_numbers_of_the_table():
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
        method, file = METHODS[name]
        method_rows = rows[(rows["method"] == method) & (rows["rate"] == rate)]
        score = grid["score"]
        assert abs(score["shape_bias", labels[name], rate] - x.mean()) < 1e-6
        mean_accuracy = 100 * method_rows.groupby("set")["score"].mean().mean()
        assert abs(score["accuracy", labels[name], rate] - mean_accuracy) < 1e-6
        if rate == rates[file]["chosen"]:
            config = file.replace(":", "-").replace("=", "-")
            config = json.loads((folder / f"configs/{config}.json").read_text())
            assert config["optim"]["rate"] == rate
            lines = headline.splitlines()
            (line,) = (line for line in lines if line.startswith(f"| {labels[name]} |"))
            set_scores = [
                100 * method_rows[method_rows["set"] == s]["score"]
                for s in ("silhouette", "stylized")
            ]
            for column in (*set_scores, x):
                printed_cell = (
                    f"{column.median():.1f} [{column.min():.1f}, {column.max():.1f}]"
                )
                assert printed_cell in line
    pairs = pd.read_csv(folder / "grid_pairs.csv").groupby("metric")["combinations"]
    num_ordered = pairs.agg(lambda share: (share == 1).sum()).to_dict()
    assert num_ordered == {"accuracy": 15, "shape_bias": 11}
