"""The sections on other settings and on a hundred seeds hold what the tables say, by other means."""

import itertools
import json
import pathlib

import numpy as np
import pandas as pd
import scipy.stats

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
RATES = {"ERM": 0.05, "SagNet": 0.02, "MixStyle": 0.02, "Stylized ERM": 0.02}


def scores(study, name, dataset=None, rate=None):
    """In %, in the order of seeds: shape bias, or accuracy on a set."""
    of = NAMES[name]
    if study == "tiny-imagenet" and name == "Stylized ERM":
        of = "erm (stylize+small)"
    rows = ALL[(ALL["study"] == study) & (ALL["method"] == of)]
    rows = rows[rows["metric"] == ("accuracy" if dataset else "shape_bias")]
    rows = rows[rows["set"] == dataset] if dataset else rows
    rows = rows[rows["rate"] == rate] if rate else rows
    assert len(rows) in (5, 10) and rows["seed"].is_unique
    return 100 * rows.sort_values("seed")["score"].to_numpy()


def cell(x):
    return f"{np.median(x):.0f} [{min(x):.0f}, {max(x):.0f}]"


def told(p):
    return f"{p:.3f}" if p >= 0.001 else f"{p:.1g}"


def holm(p):
    order, adjusted = np.argsort(p), np.empty(len(p))
    adjusted[order] = np.maximum.accumulate(np.sort(p) * np.arange(len(p), 0, -1))
    return np.minimum(adjusted, 1)


def tables():
    path = ROOT / "benchmarks/results/other-settings.md"
    parts = path.read_text(encoding="utf-8").strip().split("\n\n")
    assert all(part in TEXT for part in parts)
    return [
        [[x.strip() for x in line.strip("|").split("|")] for line in part.split("\n")]
        for part in parts
    ]


def epochs(method, schedule):
    """Epochs x sets of each seed, in %."""
    rows = EPOCHS[(EPOCHS["method"] == method) & (EPOCHS["schedule"] == schedule)]
    of = [seed.sort_values("epoch") for _, seed in rows.groupby("seed")]
    assert len(of) == 5 and all([*x["epoch"]] == [*range(1, 31)] for x in of)
    return [100 * x.drop(columns=["method", "schedule", "seed", "epoch"]) for x in of]


@cases.each(
    ("study", "methods"),
    [
        ("thirty-epochs-constant", ("ERM", "SagNet", "Stylized ERM")),
        ("thirty-epochs-cosine", ("ERM", "SagNet", "Stylized ERM")),
        ("64-pixels", tuple(RATES)),
        ("tiny-imagenet", tuple(NAMES)),
    ],
)
def test_the_configs_are_those_of_the_rows(study, methods):
    paths = (RESULTS / study / "configs").glob("*.json")
    own = [json.loads(path.read_text()) for path in paths]
    assert len(own) == len(methods)
    assert {(*one["seeds"],) for one in own} == {(0, 1, 2, 3, 4)}
    assert {one["precision"] for one in own} == {"float32"}
    rows = ALL[ALL["study"] == study]
    assert {*rows["epochs"]} == {one["epochs"] for one in own}
    assert sorted({one["optim"]["rate"] for one in own}) == sorted({*rows["rate"]})
    assert {one["size"] for one in own} == {64 if study == "64-pixels" else 32}
    schedule = "constant" if study.endswith("constant") else "cosine"
    assert {one["optim"]["schedule"]["name"] for one in own} == {schedule}


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
        moved = [abs(x["shape_bias"].iloc[29] - x["shape_bias"].iloc[4]) for x in seeds]
        assert late == f"{max(moved):.0f}"
        sets = [s for s in seeds[0] if s not in ("shape_bias", "valid")]
        assert len(sets) == 10
        over = {
            s: np.mean([x[s].max() - x[s].iloc[at] for x, at in zip(seeds, best)])
            for s in sets
        }
        most = max(over, key=over.get)
        assert gap == f"{np.mean([*over.values()]):.1f}; {over[most]:.1f} ({most})"
        swing = {
            s: np.mean([np.abs(np.diff(x[s]))[9:].mean() for x in seeds])
            for s in (*sets, "valid")
        }
        assert valid == f"{swing.pop('valid'):.1f}"
        del swing["test"]
        most = max(swing, key=swing.get)
        middle = np.mean([*swing.values()])
        assert outside == f"{middle:.1f}; {swing[most]:.1f} ({most})"


def test_what_is_said_of_thirty_epochs():
    _, _, *rows = tables()[0]
    by = {
        schedule: [row for row in rows if row[0].endswith(schedule)]
        for schedule in ("constant", "cosine")
    }
    largest = {
        schedule: max(float(row[3].split("; ")[1].split()[0]) for row in of)
        for schedule, of in by.items()
    }
    assert largest == {"constant": 10.6, "cosine": 4.1}
    means = {k: sorted(float(row[5].split(";")[0]) for row in v) for k, v in by.items()}
    assert "by 2.5 to 4.1 points a epoch".replace("a epoch", "an epoch") in PAGE
    assert (means["constant"][0], means["constant"][-1]) == (2.5, 4.1)
    assert (means["cosine"][0], means["cosine"][-1]) == (1.1, 1.3)
    validation = sorted(float(row[4]) for row in by["constant"])
    assert (validation[0], validation[-1]) == (0.8, 2.3)
    assert "in validation by 0.8 to 2.3" in PAGE and "4.1 at most" in PAGE
    moved = {k: max(int(row[2]) for row in v) for k, v in by.items()}
    assert moved == {"constant": 36, "cosine": 13}
    for method, schedule in itertools.product(("ERM", "SagNet"), by):
        shape = [x["shape_bias"].to_numpy() for x in epochs(method, schedule)]
        rho = scipy.stats.spearmanr([x[4] for x in shape], [x[29] for x in shape])
        assert 0.9 <= round(rho.statistic, 9) <= 1
    p = [
        scipy.stats.mannwhitneyu(
            scores(f"thirty-epochs-{schedule}", name),
            scores("every-rate", name, rate=RATES[name]),
        ).pvalue
        for name in ("ERM", "SagNet", "Stylized ERM")
        for schedule in by
    ]
    p = [f"{x:.3f}" for x in holm(p)]
    assert p[:4] == ["0.040", "0.067", "0.619", "0.679"]
    assert "p = 0.040 and 0.067 after Holm over six" in PAGE
    assert "(p = 0.62 and 0.68)" in PAGE


def test_the_table_of_pixels():
    _, _, *rows = tables()[1]
    assert {row[0] for row in rows} == {*RATES}
    found = {}
    for name, rate in RATES.items():
        small = scores("every-rate", name, rate=rate)
        large = scores("64-pixels", name, rate=rate)
        assert (len(small), len(large)) == (10, 5)
        found[name] = small, large, scipy.stats.mannwhitneyu(small, large).pvalue
    p = dict(zip(found, holm([x[2] for x in found.values()]), strict=True))
    for name, *cells in rows:
        small, large, _ = found[name]
        right = np.median(scores("64-pixels", name, "test"))
        asked = f"{RATES[name]:g}", cell(small), cell(large), told(p[name])
        assert cells == [*asked, f"{right:.0f}"]
    below = [found[name][1].max() for name in ("ERM", "SagNet", "MixStyle")]
    assert round(max(below)) == 3 and "has more than 3 %" in PAGE


def test_the_table_of_photographs():
    _, _, *rows = tables()[2]
    assert {row[0] for row in rows} == {*NAMES}
    shape = {name: scores("tiny-imagenet", name) for name in NAMES}
    others = [name for name in NAMES if name != "ERM"]
    # Another draw of the same integral: equal to two digits where p is not tiny.
    p = scipy.stats.dunnett(
        *(shape[name] for name in others), control=shape["ERM"], rng=7
    ).pvalue
    p = dict(zip(others, p, strict=True))
    for name, bias, adjusted, *right in rows:
        assert bias == cell(shape[name])
        sets = ("val", "cue-conflict", "edge", "silhouette")
        values = [np.median(scores("tiny-imagenet", name, x)) for x in sets]
        assert right == [f"{x:.0f}" for x in values]
        if name != "ERM":
            small = adjusted == "< 0.001"
            assert p[name] < 0.001 if small else abs(float(adjusted) - p[name]) < 0.005
    differ = {name for name in others if p[name] < 0.05}
    assert differ == {"RandConv", "Stylized ERM", "MixStyle"}
    lead = {name: np.median(shape[name]) - np.median(shape["ERM"]) for name in differ}
    words = "by {RandConv:.0f} and {Stylized ERM:.0f} points".format(**lead)
    assert words in PAGE and f"lowers it** by {-lead['MixStyle']:.0f};" in PAGE
    spread = max(np.ptp(x) for x in shape.values())
    assert f"by more than {np.ceil(spread):.0f} points" in PAGE
    val = {name: np.median(scores("tiny-imagenet", name, "val")) for name in NAMES}
    assert val["RandConv"] / val["ERM"] < 0.55 and val["Stylized ERM"] < val["ERM"] / 2
    conflict = {x: np.median(scores("tiny-imagenet", x, "cue-conflict")) for x in NAMES}
    assert max(conflict, key=conflict.get) == "RandConv"
    # Shares of 880, 110 and 1,300 images.
    for dataset, n in (("cue-conflict", 880), ("edge", 110), ("val", 1300)):
        counts = scores("tiny-imagenet", "ERM", dataset) * n / 100
        np.testing.assert_allclose(counts, counts.round(), atol=1e-6)


def test_a_hundred_seeds():
    rows = ALL[(ALL["study"] == "hundred-seeds") & (ALL["method"] == "erm")]
    shape = rows[rows["metric"] == "shape_bias"].set_index("seed")["score"] * 100
    right = rows[rows["set"] == "test"].set_index("seed")["score"]
    assert sorted(shape.index) == [*range(100)] and {*rows["rate"]} == {0.1}
    text = (ROOT / "docs/few-seeds.md").read_text(encoding="utf-8")
    page = " ".join(text.split())
    above, exact = (
        int(sum(shape > 50)),
        scipy.stats.binomtest(int(sum(shape > 50)), 100),
    )
    low, high = (100 * x for x in exact.proportion_ci())
    words = (
        f"{above} have more than 50 % shape bias (exact 95 % interval: {low:.0f} to "
        f"{high:.0f} %), {sum(shape > 90)} more than 90, and {sum(shape < 10)} less"
    )
    assert words in page and f"all of them are at {shape.mean():.0f} %" in page
    rho = scipy.stats.spearmanr(shape, right[shape.index])
    assert f"of {rho.statistic:.2f} with shape bias (p = {rho.pvalue:.2f})" in page
    assert not (shape[:10] > 50).any() and "the same ten have none here" in page
    chance = [100 * scipy.stats.binom.pmf(k, 10, above / 100) for k in (0, 1, 3)]
    words = "{:.0f} % of studies of ten have none, {:.0f} % have one and {:.0f} % have"
    assert words.format(*chance) in page
    told = (ROOT / "benchmarks/results/few-seeds.md").read_text(encoding="utf-8")
    _, _, apart, report = told.strip().split("\n\n")[-1].split("\n")
    counts = (1, 3, 5, 10, 20, 50)
    apart = [int(x.strip(" %")) for x in apart.strip("|").split("|")[1:]]
    report = [x.split(" to ") for x in report.strip("|").split("|")[1:]]
    values, rng = shape.to_numpy(), np.random.default_rng(11)
    for s, share, ends in zip(counts, apart, report, strict=True):
        drawn = np.array([rng.permutation(values)[: 2 * s] for _ in range(8000)])
        one, other = drawn[:, :s].mean(1), drawn[:, s:].mean(1)
        assert abs(100 * np.mean(abs(one - other) > 10) - share) < 3
        between = np.percentile(one, (2.5, 97.5))
        np.testing.assert_allclose([*map(float, ends)], between, atol=3)
    words = f"differ as much in {apart[1]} % of cases, with five in {apart[2]}, with"
    assert f"{words} twenty in {apart[4]}." in page
    assert f"may report {report[3][0].strip()} or {report[3][1].strip()}." in page
