"""The sections on other settings and on a hundred seeds, recomputed independently."""

import itertools
import json
import pathlib

import numpy as np
import pandas as pd
import scipy.stats

from benchmarks import report_speed
from studies import all_results, other_settings
from tests import cases

ROOT = pathlib.Path(__file__).parents[1]
RESULTS = ROOT / "docs/results"
TEXT = (ROOT / "docs/results.md").read_text(encoding="utf-8")
PAGE = " ".join(TEXT.split())
ALL = pd.read_csv(RESULTS / "all.csv")
EPOCHS = pd.read_csv(RESULTS / "thirty_epochs.csv")
NAMES = {
    "ERM": "erm",
    "SagNet": "sagnet",
    "pAdaIN": "padain",
    "MixStyle": "mixstyle",
    "EFDMix": "efdmix",
    "RandConv": "erm (rand_conv)",
    "Gaussian noise": "erm (gaussian_noise)",
    "Stylized ERM": "erm (stylize)",
}
FILES = {
    "RandConv": "rand_conv",
    "Gaussian noise": "gaussian_noise",
    "Stylized ERM": "stylized_erm",
}
RATES = {"ERM": 0.05, "SagNet": 0.02, "MixStyle": 0.02, "Stylized ERM": 0.02}


def scores(study, name, dataset=None, rate=None, metric=None):
    """Return the shape bias, or the accuracy on a set, in %, in the order of seeds."""
    method = NAMES[name]
    if study == "tiny-imagenet" and name == "Stylized ERM":
        method = "erm (stylize+small)"
    rows = ALL[(ALL["study"] == study) & (ALL["method"] == method)]
    metric = metric or ("accuracy" if dataset else "shape_bias")
    rows = rows[rows["metric"] == metric]
    rows = rows[rows["set"] == dataset] if dataset else rows
    rows = rows[rows["rate"] == rate] if rate else rows
    assert len(rows) in (5, 10) and rows["seed"].is_unique
    return 100 * rows.sort_values("seed")["score"].to_numpy()


def assert_on_page(words):
    assert words in PAGE, words


def cell(x):
    return f"{np.median(x):.0f} [{min(x):.0f}, {max(x):.0f}]"


def format_p(p):
    return f"{p:.3f}" if p >= 0.001 else f"{p:.1g}"


def holm(p):
    order, adjusted = np.argsort(p), np.empty(len(p))
    adjusted[order] = np.maximum.accumulate(np.sort(p) * np.arange(len(p), 0, -1))
    return np.minimum(adjusted, 1)


def tables():
    path = ROOT / "studies/results/other-settings.md"
    table_texts = path.read_text(encoding="utf-8").strip().split("\n\n")
    assert all(table_text in TEXT for table_text in table_texts)
    return [
        [
            [x.strip() for x in line.strip("|").split("|")]
            for line in table_text.split("\n")
        ]
        for table_text in table_texts
    ]


def epochs(method, schedule):
    """Return a frame (epochs, sets) of accuracies and shape biases in % for each seed."""
    rows = EPOCHS[(EPOCHS["method"] == method) & (EPOCHS["schedule"] == schedule)]
    seeds = [seed.sort_values("epoch") for _, seed in rows.groupby("seed")]
    assert len(seeds) == 5 and all([*x["epoch"]] == [*range(1, 31)] for x in seeds)
    return [
        100 * x.drop(columns=["method", "schedule", "seed", "epoch"]) for x in seeds
    ]


def trained(study, name):
    return json.loads((RESULTS / study / "configs" / f"{name}.json").read_text())


@cases.each(
    ("study", "names"),
    [
        ("thirty-epochs-constant", ("ERM", "SagNet", "Stylized ERM")),
        ("thirty-epochs-cosine", ("ERM", "SagNet", "Stylized ERM")),
        ("64-pixels", tuple(RATES)),
        ("tiny-imagenet", tuple(NAMES)),
    ],
)
def test_the_configs_equal_those_of_the_rows(study, names):
    assert len([*(RESULTS / study / "configs").glob("*.json")]) == len(names)
    for name in names:
        file = FILES.get(name, NAMES[name])
        config, photographs = trained(study, file), study == "tiny-imagenet"
        other_name = (
            "erm (stylize+small)" if photographs and file == "stylized_erm" else None
        )
        rows = ALL[
            (ALL["study"] == study) & (ALL["method"] == (other_name or NAMES[name]))
        ]
        variant = f" ({config['variant']})" if config["variant"] else ""
        assert {*rows["method"]} == {f"{config['algo']['name']}{variant}"}
        assert {*rows["rate"]} == {config["optim"]["rate"]}
        assert config["optim"]["rate"] == (0.1 if photographs else RATES[name])
        assert {*rows["epochs"]} == {config["epochs"]}
        assert {*rows["seed"]} == {*config["seeds"]} == {0, 1, 2, 3, 4}
        assert config["precision"] == "float32"
        assert config["size"] == (64 if study == "64-pixels" else 32)
        schedule = "constant" if study.endswith("constant") else "cosine"
        assert config["optim"]["schedule"]["name"] == schedule
        data = ("tiny_imagenet", 64) if photographs else ("shapes", 32)
        assert (config["train"]["data"], config["train"]["batch"]) == data


def test_the_configs_of_a_hundred_seeds():
    configs = [trained("hundred-seeds", f"erm-{k}") for k in range(4)]
    assert [seed for config in configs for seed in config["seeds"]] == [*range(100)]
    for config in configs:
        del config["seeds"]
        assert config == configs[0] and config["optim"]["rate"] == 0.1
        assert (config["algo"]["name"], config["epochs"]) == ("erm", 5)


def test_the_table_of_thirty_epochs():
    _, _, *rows = tables()[0]
    assert len(rows) == 6
    for name, shape, late, gap, valid, outside in rows:
        method, schedule = name.split(", ")
        seeds = epochs(method, schedule)
        best = [x["valid"].to_numpy().argmax() for x in seeds]
        chosen = [x["shape_bias"].iloc[at] for x, at in zip(seeds, best)]
        assert shape == cell(chosen)
        # The rows of the table of all results are the same networks.
        rows = scores(f"thirty-epochs-{schedule}", method)
        np.testing.assert_allclose(chosen, rows, atol=1e-4)
        shape = [x["shape_bias"].to_numpy() for x in seeds]
        assert late == f"{max(np.abs(x[5:] - x[4]).max() for x in shape):.0f}"
        sets = [s for s in seeds[0] if s not in ("shape_bias", "valid")]
        assert len(sets) == 10
        oracle_gain = {
            s: np.mean([x[s].max() - x[s].iloc[at] for x, at in zip(seeds, best)])
            for s in sets
        }
        largest = max(oracle_gain, key=oracle_gain.get)
        assert (
            gap
            == f"{np.mean([*oracle_gain.values()]):.1f}; {oracle_gain[largest]:.1f} ({largest})"
        )
        swing = {
            s: np.mean([np.abs(np.diff(x[s]))[9:].mean() for x in seeds])
            for s in (*sets, "valid")
        }
        assert valid == f"{swing.pop('valid'):.1f}"
        del swing["test"]
        largest = max(swing, key=swing.get)
        mean_swing = np.mean([*swing.values()])
        assert outside == f"{mean_swing:.1f}; {swing[largest]:.1f} ({largest})"


def test_the_text_on_thirty_epochs():
    _, _, *rows = tables()[0]
    cells_by_name = {row[0]: row[1:] for row in rows}
    gap = {
        name: float(row[2].split("; ")[1].split()[0])
        for name, row in cells_by_name.items()
    }
    gap_by_method = {
        name: gap[f"{name}, constant"] for name in ("SagNet", "Stylized ERM", "ERM")
    }
    assert all(
        "(edge)" in cells_by_name[f"{name}, constant"][2]
        for name in [*gap_by_method][:2]
    )
    assert_on_page(
        "At a constant rate an oracle is up to {SagNet} points better for SagNet and "
        "{Stylized ERM} for Stylized ERM, both on edges, and {ERM} for ERM".format(
            **gap_by_method
        )
    )
    cosine = max(value for name, value in gap.items() if name.endswith("cosine"))
    swing = {
        schedule: sorted(
            float(row[4].split(";")[0])
            for name, row in cells_by_name.items()
            if name.endswith(schedule)
        )
        for schedule in ("constant", "cosine")
    }
    first, second = (f"{x[0]} to {x[-1]}" for x in (swing["cosine"], swing["constant"]))
    assert_on_page(
        f"which ends at zero, the gap is {cosine} at most, and test sets swing by {first} "
        f"points per epoch instead of {second}."
    )
    largest_move = {
        s: max(
            int(cells_by_name[name][1]) for name in cells_by_name if name.endswith(s)
        )
        for s in swing
    }
    assert_on_page(
        f"cosine no seed moves by more than {largest_move['cosine']} points after the fifth"
    )
    assert_on_page(
        f"rate shape bias keeps rising, by up to {largest_move['constant']} points."
    )
    rho = []
    for method, schedule in itertools.product(("ERM", "SagNet"), swing):
        shape = [x["shape_bias"].to_numpy() for x in epochs(method, schedule)]
        first, last = [x[4] for x in shape], [x[29] for x in shape]
        rho.append(scipy.stats.spearmanr(first, last).statistic)
    assert_on_page(
        f"(rank correlations {min(rho):.1g} to {max(rho):.1g}, of five seeds)"
    )
    names = ("ERM", "SagNet", "Stylized ERM")
    five = {name: scores("every-rate", name, rate=RATES[name]) for name in names}
    thirty = {
        (name, schedule): scores(f"thirty-epochs-{schedule}", name)
        for name in names
        for schedule in swing
    }
    p = [scipy.stats.mannwhitneyu(x, five[key[0]]).pvalue for key, x in thirty.items()]
    p = {key: f"{x:.3f}" for key, x in zip(thirty, holm(p), strict=True)}
    m = {key: f"{np.median(x):.0f}" for key, x in (thirty | five).items()}
    constant = ("ERM", "constant")
    assert_on_page(
        f"{m[constant]} % at a constant rate instead of {m['ERM']} % (Mann-Whitney, "
        f"p = {p[constant]} after Holm over six)"
    )


def test_the_table_of_pixels():
    _, _, *rows = tables()[1]
    assert {row[0] for row in rows} == {*RATES}
    results_by_method = {}
    for name, rate in RATES.items():
        small = scores("every-rate", name, rate=rate)
        large = scores("64-pixels", name, rate=rate)
        assert (len(small), len(large)) == (10, 5)
        results_by_method[name] = (
            small,
            large,
            scipy.stats.mannwhitneyu(small, large).pvalue,
        )
    p = dict(
        zip(
            results_by_method,
            holm([x[2] for x in results_by_method.values()]),
            strict=True,
        )
    )
    for name, *cells in rows:
        small, large, _ = results_by_method[name]
        expected_cells = f"{RATES[name]:g}", cell(small), cell(large), format_p(p[name])
        accuracies_at_32 = scores("every-rate", name, "test", rate=RATES[name])
        assert cells == [
            *expected_cells,
            cell(accuracies_at_32),
            cell(scores("64-pixels", name, "test")),
        ]
    below = [results_by_method[name][1].max() for name in ("ERM", "SagNet", "MixStyle")]
    assert_on_page(f"ERM, SagNet and MixStyle all have {max(below):.0f} % or less**")
    assert_on_page(
        f"Stylized ERM stays near {np.median(results_by_method['Stylized ERM'][1]):.0f} %"
    )


def test_the_table_of_photographs():
    _, _, *rows = tables()[2]
    assert {row[0] for row in rows} == {*NAMES}
    shape = {name: scores("tiny-imagenet", name) for name in NAMES}
    other_methods = [name for name in NAMES if name != "ERM"]
    # Dunnett's p is an integral computed by random draws.
    p = scipy.stats.dunnett(
        *(shape[name] for name in other_methods), control=shape["ERM"], rng=7
    ).pvalue
    p = dict(zip(other_methods, p, strict=True))
    sets = ("val", "cue-conflict", "edge", "silhouette")
    median_accuracies = {
        name: [np.median(scores("tiny-imagenet", name, x)) for x in sets]
        for name in NAMES
    }
    fraction_options = dict(metric="fraction_neither")
    neither = {
        name: np.median(scores("tiny-imagenet", name, **fraction_options))
        for name in NAMES
    }
    for name, bias, adjusted, *printed_accuracies in rows:
        assert bias == cell(shape[name])
        assert printed_accuracies == [
            f"{x:.0f}" for x in (neither[name], *median_accuracies[name])
        ]
        if name != "ERM":
            small = adjusted == "< 0.001"
            assert p[name] < 0.001 if small else abs(float(adjusted) - p[name]) < 0.005
    differ = {name for name in other_methods if p[name] < 0.05}
    assert differ == {"RandConv", "Stylized ERM", "MixStyle"}
    ranks = [
        scipy.stats.mannwhitneyu(shape[x], shape["ERM"]).pvalue for x in other_methods
    ]
    ranks = dict(zip(other_methods, holm(ranks), strict=True))
    assert {name for name in other_methods if f"{ranks[name]:.3f}" == "0.056"} == differ
    assert f"{min(ranks.values()):.3f}" == "0.056"
    assert_on_page(
        "cannot give p below 0.056 after Holm over seven; the three with small p"
    )
    welch = [
        scipy.stats.ttest_ind(shape[x], shape["ERM"], equal_var=False)
        for x in other_methods
    ]
    welch = dict(zip(other_methods, holm([x.pvalue for x in welch]), strict=True))
    assert {name for name in other_methods if welch[name] < 0.05} == differ
    difference = {
        name: np.median(shape[name]) - np.median(shape["ERM"]) for name in differ
    }
    share = {
        name: 100 * median_accuracies[name][0] / median_accuracies["ERM"][0]
        for name in differ
    }
    assert_on_page(
        "by {RandConv:.0f} and {Stylized ERM:.0f} points, at ".format(**difference)
        + "{RandConv:.0f} and {Stylized ERM:.0f} % of ERM's accuracy.".format(**share)
    )
    assert_on_page(
        f"lowers it by {-difference['MixStyle']:.0f}; for four no difference is found."
    )
    assert len(other_methods) - len(differ) == 4


def test_the_text_on_photographs():
    shape = {name: scores("tiny-imagenet", name) for name in NAMES}
    largest_range = np.ceil(max(np.ptp(x) for x in shape.values()))
    assert_on_page(f"Seeds differ by {largest_range:.0f} points at most")
    neither = np.median(scores("tiny-imagenet", "ERM", metric="fraction_neither"))
    medians = f"is at {np.median(shape['ERM']):.0f} and {neither:.0f} %,"
    assert_on_page(f"82 % for neither. ERM {medians}")
    assert round(100 * (1 - 2 / 11)) == 82
    for dataset, n in (("cue-conflict", 880), ("edge", 110), ("val", 1300)):
        counts = scores("tiny-imagenet", "ERM", dataset) * n / 100
        np.testing.assert_allclose(counts, counts.round(), atol=1e-6)
    # Eighty conflicts and ten silhouettes of each shape: eleven classes.
    assert 880 / 80 == 110 / 10 == 11 and PAGE.count("eleven") == 5
    decisions = []
    for name in NAMES:
        share = scores("tiny-imagenet", name, metric="fraction_neither") / 100
        counts = 550 * (1 - share)
        np.testing.assert_allclose(counts, counts.round(), atol=1e-6)
        shape_decisions = shape[name] / 100 * counts
        np.testing.assert_allclose(shape_decisions, shape_decisions.round(), atol=1e-6)
        decisions += [*counts]
    assert abs(np.mean(decisions) - 195) < 5
    deviation = 100 * np.sqrt(0.25 / 190)
    assert_on_page(
        f"about 190 decisions per seed alone give a standard deviation of {deviation:.1f}."
    )
    common_methods = [name for name in NAMES if name not in ("ERM", "EFDMix")]
    common_methods.append("ERM")
    assert len(common_methods) == 7
    biases = [np.median(shape[name]) for name in common_methods]
    rho = [
        scipy.stats.spearmanr(
            biases,
            [
                np.median(scores("every-rate", name, rate=rate))
                for name in common_methods
            ],
        ).statistic
        for rate in (0.02, 0.05, 0.1)
    ]
    assert_on_page(
        f"rank correlations of {min(rho):.2f} to {max(rho):.2f} with those at the"
    )
    for name in ("RandConv", "Stylized ERM", "Gaussian noise", "SagNet", "MixStyle"):
        for rate in (0.02, 0.05, 0.1):
            biases_of_drawn = scores("every-rate", name, rate=rate)
            assert np.median(biases_of_drawn) > np.median(
                scores("every-rate", "ERM", rate=rate)
            )


def test_a_hundred_seeds():
    rows = ALL[(ALL["study"] == "hundred-seeds") & (ALL["method"] == "erm")]
    shape = rows[rows["metric"] == "shape_bias"].set_index("seed")["score"] * 100
    accuracy = rows[rows["set"] == "test"].set_index("seed")["score"]
    assert sorted(shape.index) == [*range(100)] and {*rows["rate"]} == {0.1}
    text = (ROOT / "docs/few-seeds.md").read_text(encoding="utf-8")
    page = " ".join(text.split())
    above, exact = (
        int(sum(shape > 50)),
        scipy.stats.binomtest(int(sum(shape > 50)), 100),
    )
    is_low, high = (100 * x for x in exact.proportion_ci())
    words = (
        f"{above} have more than 50 % shape bias (exact 95 % interval: {is_low:.0f} to "
        f"{high:.0f} %), {sum(shape > 90)} more than 90, and {sum(shape < 10)} less"
    )
    assert words in page and f"whose mean is {shape.mean():.0f} %" in page
    assert f"hundred seeds](#a-hundred-seeds) {above} have more than 50 %" in page
    questions = (ROOT / "docs/faq.md").read_text(encoding="utf-8")
    assert f"(few-seeds.md#a-hundred-seeds), {above} exceed 50 %" in questions
    assert f"#a-hundred-seeds) {above} ({is_low:.0f} to {high:.0f} %)" in PAGE
    figure = (
        f"{sum(shape < 10)} of a hundred seeds are below 10 %, {sum(shape > 90)} ab"
    )
    assert figure in page
    accuracy = accuracy[shape.index]
    rho = scipy.stats.spearmanr(shape, accuracy)
    words = f"no rank correlation with shape bias ({rho.statistic:.2f}, p = "
    assert f"{words}{rho.pvalue:.2f})" in page
    is_low, is_hardly_trained = accuracy < 0.9, accuracy < 0.5
    assert (sum(is_low), sum(shape[is_low] > 50), sum(is_hardly_trained)) == (9, 7, 3)
    words = (
        "Of the nine seeds below 90 % accuracy, seven have more than 50 % shape bias"
    )
    assert f"{words}, and three hardly learned" in page
    ends = [
        f"{100 * x:.0f}" for x in (accuracy.min(), accuracy[is_hardly_trained].max())
    ]
    remaining = f"{sum(shape[~is_hardly_trained] > 50)} of {sum(~is_hardly_trained)}"
    words = (
        f"hardly learned ({' to '.join(ends)} %). Without these three, {remaining} have"
    )
    assert words in page
    assert not (shape[:10] > 50).any() and "Of seeds 0 to 9, none has" in page
    chance = [100 * scipy.stats.binom.pmf(k, 10, above / 100) for k in (0, 1, 3)]
    shares = (
        "{:.0f} % of studies of ten seeds have none, {:.0f} % have one and {:.0f} %"
    )
    words = f"with a share of {above} %, {shares.format(*chance)} have three."
    assert words in page
    table_text = (ROOT / "studies/results/few-seeds.md").read_text(encoding="utf-8")
    _, _, shares_apart, report = table_text.strip().split("\n\n")[-1].split("\n")
    counts = (1, 3, 5, 10, 20, 50)
    shares_apart = [int(x.strip(" %")) for x in shares_apart.strip("|").split("|")[1:]]
    report = [[*map(int, x.split(" to "))] for x in report.strip("|").split("|")[1:]]
    values, rng = shape.to_numpy(), np.random.default_rng(11)
    for s, share, ends in zip(counts, shares_apart, report, strict=True):
        orders = rng.random((40_000, 100)).argsort(axis=1)[:, : 2 * s]
        first, second = values[orders[:, :s]].mean(1), values[orders[:, s:]].mean(1)
        assert abs(100 * np.mean(abs(first - second) > 10) - share) < 1
        if s >= 20:  # Nearly normal, a little skewed.
            half = 1.96 * values.std() / np.sqrt(s)
            expected = values.mean() - half, values.mean() + half
            np.testing.assert_allclose(ends, expected, atol=1.5)
    assert f"may report {report[3][0]} or {report[3][1]} %." in page


def test_epochs_of_runs_are_their_records(tmp_path):
    report_speed.make(tmp_path, runs=2, seeds=2, algorithms=2, epochs=3, sets=3)
    lines = []
    for run in sorted(tmp_path.iterdir()):
        config = json.loads((run / "config.json").read_text())
        config |= {"optim": {"schedule": {"name": "cosine"}}}
        (run / "config.json").write_text(json.dumps(config))
        files = sorted(run.glob("evals/*.jsonl"))
        lines += [
            json.loads(x) for file in files for x in file.read_text().split("\n") if x
        ]
    epochs_read = other_settings.read_epochs(
        [str(run) for run in sorted(tmp_path.iterdir())]
    )
    assert epochs_read.index.names == ["method", "schedule", "seed", "epoch"]
    metrics = ("accuracy", "shape_bias")
    expected_records = [
        x for x in lines if x["metric"] in metrics and x["dataset"] != "train"
    ]
    assert len(expected_records) == epochs_read.notna().to_numpy().sum() > 0
    for record in expected_records:
        name = all_results.NAMES.get(record["algorithm"], record["algorithm"])
        row = epochs_read.loc[(name, "cosine", record["seed"], round(record["epoch"]))]
        shape = record["metric"] == "shape_bias"
        assert row["shape_bias" if shape else record["dataset"]] == record["value"]
