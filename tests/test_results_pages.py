"""The results pages have the numbers of the stored reports."""

import json
import pathlib
import re

import numpy as np
import pandas as pd
import scipy.stats

from jbias import models, stats
from studies import all_results, claims
from tests import cases

ROOT = pathlib.Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
WITHOUT_REPORT = (  # These studies only have rows in all.csv.
    "every-rate",
    "one-init",
    "one-order",
    "hundred-seeds",
    "thirty-epochs-constant",
    "thirty-epochs-cosine",
    "64-pixels",
    "tiny-imagenet",
    "photographs",
    "held-out-styles",
    "calibration",
)
FOLDERS = sorted(
    path
    for path in RESULTS.iterdir()
    if path.is_dir() and path.name not in WITHOUT_REPORT
)
PLANS = sorted((ROOT / "benchmarks/results").glob("method_plans-*.md"))
PAGE = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")


@cases.each("folder", FOLDERS)
def test_a_report_is_complete_and_has_no_path_of_a_machine(folder):
    for name in ("index.html", "results.json", "rates.json", "headline.md"):
        assert (folder / name).stat().st_size
    assert {path.suffix for path in folder.glob("tables/*")} == {".csv"}
    assert {path.suffix for path in folder.glob("figures/*")} == {".svg"}
    runs = pd.read_csv(folder / "tables/runs.csv")
    assert len([*folder.glob("configs/*.json")]) == runs["algorithm"].nunique()
    for path in folder.rglob("*.*"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"(?<![\w.-])/(work|home|root|tmp)/", text), path


def test_the_page_has_the_headline_of_the_first_study():
    assert (RESULTS / "shapes/headline.md").read_text(encoding="utf-8") in PAGE


@cases.each("folder", FOLDERS)
def test_the_page_links_to_each_report(folder):
    assert f"(results/{folder.name}/index.html)" in PAGE


def shape_bias_of_seeds(study, algorithm, variant=""):
    """Return the shape bias in % of a study's method, in the order of seeds."""
    path = RESULTS / study / "tables/seeds.csv"
    rows = pd.read_csv(path, keep_default_na=False)
    rows = rows[(rows["algorithm"] == algorithm) & (rows["variant"] == variant)]
    return 100 * rows.sort_values("seed")["value"].to_numpy()


@cases.each(
    ("name", "algorithm"),
    [("SagNet", "sagnet"), ("Debiased", "debiased"), ("InfoDrop", "infodrop+erm")],
)
def test_the_table_of_biasbeds_forms(name, algorithm):
    authors = shape_bias_of_seeds("variants", algorithm)
    biasbed = shape_bias_of_seeds("variants", algorithm.split("+")[0], "biasbed")
    p = scipy.stats.wilcoxon(authors, biasbed).pvalue
    printed_p = f"{p:.3f}" if p < 0.1 else f"{p:.2f}"
    cells = f"{np.median(authors):.0f} | {np.median(biasbed):.0f} | {printed_p}"
    assert f"| {name} | {cells} |" in PAGE


def test_the_text_on_ten_epochs():
    erm, cae = (
        shape_bias_of_seeds("longer", "erm", variant) for variant in ("", "cae")
    )
    page = " ".join(PAGE.split())
    five_epochs = np.median(shape_bias_of_seeds("shapes", "erm"))
    words = f"ERM's median shape bias is {np.median(erm):.0f} % instead of {five_epochs:.0f} %"
    assert words in page
    p = scipy.stats.wilcoxon(erm, shape_bias_of_seeds("shapes", "erm")).pvalue
    assert f"not significant (Wilcoxon's p = {p:.2f})" in page
    p = scipy.stats.wilcoxon(erm, cae).pvalue
    assert (cae > erm).sum() == 9
    words = f"DeepAugment's is {np.median(cae):.0f} %, and higher in nine of ten seeds"
    assert f"{words} (p = {p:.3f})" in page


@cases.each("name", ["shapes", "variants"])
def test_the_page_quotes_the_tests(name):
    tests = pd.read_csv(RESULTS / name / "tables/omnibus.csv")
    counts = tests.iloc[0]
    assert f"F({counts['df']}) = {counts['statistic']:.2f}" in " ".join(PAGE.split())
    pairs = pd.read_csv(RESULTS / name / "tables/posthoc.csv")
    differ = pairs[pairs["nemenyi"] < 0.05]
    differ = differ if float(counts["p"]) < 0.05 else differ.head(0)
    sentence = (
        f"{len(differ)} of {len(pairs)} pairs" if len(differ) else "No pair differs"
    )
    assert sentence in PAGE


@cases.each("folder", FOLDERS)
def test_the_rate_of_each_run_is_the_best_in_validation(folder):
    """The best rate lies between other rates that were tried."""
    rates = json.loads((folder / "rates.json").read_text())
    configs = {path.stem: path for path in folder.glob("configs/*.json")}
    for name, tuning in rates.items():
        config = configs[name.replace(":", "-").replace("=", "-")]
        chosen = json.loads(config.read_text())["optim"]["rate"]
        assert tuning["chosen"] == chosen
        tried = {float(rate): valid for rate, valid in tuning["valid"].items()}
        if None not in tried.values():
            assert tried[chosen] == max(tried.values())
            assert min(tried) < chosen < max(tried)


def test_the_page_quotes_the_tests_over_blocks_of_sets():
    scores = pd.read_csv(RESULTS / "shapes/tables/scores.csv")
    table = scores.pivot(index="dataset", columns="algorithm", values="mean")
    page = " ".join(PAGE.split())
    assert (
        f"information of about {stats.participation_ratio(table):.1f} independent ones"
        in page
    )
    for method, count, printed in (
        ("deviations", 4, "(p = 2e-4, by permutation"),
        ("spearman", 2, "(p = 0.089)"),
    ):
        labels = stats.find_blocks(table, method=method).labels
        assert len({*labels}) == count and printed in page
        options = dict(larger_is_better=True)
        means_test = stats.friedman_blocked(table, blocks=labels, **options).means
        number = float(printed.removeprefix("(p = ").split(",")[0].rstrip(")"))
        assert abs(means_test.pvalue - number) < max(
            2 * means_test.standard_error, number / 20
        )
        pairs = stats.nemenyi(table.groupby(labels).mean(), **options)
        differ = int((np.asarray(pairs.pvalues) < 0.05).sum()) // 2
        assert differ == {4: 3, 2: 0}[count]
    assert "but only 3 of 105 pairs" in page
    left_out = ["uncorrelated", "corrupted_uncorrelated", "cue_conflict", "stylized"]
    pairs = stats.nemenyi(table.drop(left_out), **options)
    place = pairs.algorithms.index
    differ = int((pairs.pvalues < 0.05).sum()) // 2
    p = pairs.pvalues[place("erm (cae)"), place("erm")]
    first, last = (f"`{left_out[0]}`", f"`{left_out[-1]}`")
    words = f"({first}, `{left_out[1]}`, `{left_out[2]}` and {last}), {differ} pairs"
    assert words in page
    assert f"differ; DeepAugment (CAE) and ERM do not (p = {p:.2f})" in page


def test_the_page_has_the_claims_that_the_command_wrote():
    claims_text = (ROOT / "studies/results/claims.md").read_text(encoding="utf-8")
    assert claims_text in PAGE
    scores = pd.read_csv(RESULTS / "shapes/tables/scores.csv")
    table = scores.pivot(index="dataset", columns="algorithm", values="mean")
    pairs = stats.nemenyi(table, larger_is_better=True)
    place = pairs.algorithms.index
    p = pairs.pvalues[place("erm (cae)"), place("erm")]
    assert f"| DeepAugment (CAE) ranks above ERM | {p:.3f} |" in claims_text


def test_shares_of_redrawn_seeds_equal_those_of_single_tables():
    """Each draw has the p of `jbias.stats` for its table; the README has the share."""
    scores = claims.study_scores("shapes", "accuracy")
    methods, up = list(scores), dict(larger_is_better=True)
    (ranks,) = claims.redrawn_ranks(scores, draws=20)
    pair = claims.Above("erm (cae)", "erm")
    control = claims.Above("erm (edsr)", "erm", control=True)
    i, j = map(methods.index, ("erm (cae)", "erm"))
    for drawn, *pvalues in zip(
        ranks,
        claims.Differ().pvalues(ranks, methods),
        pair.pvalues(ranks, methods),
        control.pvalues(ranks, methods),
        strict=True,
    ):
        table = pd.DataFrame(-drawn, columns=methods)
        nemenyi = stats.nemenyi(table, **up)
        dunn = stats.bonferroni_dunn(table, control="erm", adjust="holm", **up)
        ahead = drawn.mean(0)[methods.index("erm")] - drawn.mean(0)
        expected = [
            stats.friedman(table, **up).pvalue,
            nemenyi.pvalues[i, j] if ahead[i] > 0 else 1,
            dunn.adjusted[dunn.algorithms.index("erm (edsr)")],
        ]
        expected[2] = expected[2] if ahead[methods.index("erm (edsr)")] > 0 else 1
        np.testing.assert_allclose(pvalues, expected, rtol=1e-6, atol=1e-12)
    share = claims.share_significant(pair, scores, draws=8000)
    pvalues = (ROOT / "studies/results/claims.md").read_text(encoding="utf-8")
    quoted = int(re.search(r"CAE\) ranks above ERM \| 0.021 \| (\d+) %", pvalues)[1])
    assert (
        abs(100 * share - quoted) < 0.5 + 4 * 0.61
    )  # Digit, and error of 8,000 draws.
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"appears in {quoted} % of resamples of the seeds" in " ".join(
        readme.split()
    )


def test_pairs_of_seeds_are_tested_as_scipy_tests_them():
    rng = np.random.default_rng(0)
    differences = rng.normal(0.4, 1, (30, 9))
    differences[10:] = np.round(differences[10:] * 2) / 2  # Ties and zeros.
    pvalues = claims.wilcoxon_pvalues(differences)
    for row, p in zip(differences[:10], pvalues, strict=False):
        expected = scipy.stats.wilcoxon(row).pvalue if np.median(row) > 0 else 1
        assert abs(p - expected) < 1e-12
    signs = scipy.stats.PermutationMethod(n_resamples=np.inf)
    for row, p in zip(differences[10:14], pvalues[10:14], strict=True):
        nonzero = row[row != 0]
        exact = scipy.stats.wilcoxon(nonzero, method=signs).pvalue
        assert abs(p - (exact if np.median(row) > 0 else 1)) < 1e-9


PLAIN = {  # The baseline, combinations, and plain augmentation.
    "ERM",
    "Recipes",
    "One of several",
    "Random crop",
    "Colour jitter",
    "Blur",
    "Lighting",
}


def test_the_readme_has_the_right_counts():
    """The counts are those of the small benchmark, published networks, and algorithms."""
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    rows = all_results.rows_of("shapes", "accuracy")
    seeds = rows.groupby("method")["run"].nunique()
    assert len(seeds) == 15 and {*seeds} == {10}
    for text in (readme, index):
        assert "fifteen methods, ten seeds" in text
    pairs = pd.read_csv(RESULTS / "shapes/tables/posthoc.csv")
    differ = pairs[pairs["nemenyi"] < 0.05]
    names = differ.iloc[:, :2].isin(["erm (cutmix)", "dsu"]).any(axis=1)
    assert f"Only {len(differ)} of {len(pairs)} pairs differ significantly" in readme
    assert names.sum() == 10 and "ten of which involve CutMix or DSU" in readme
    page = (ROOT / "docs/models.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| `(\w+)` \|.*\| (.*) \|$", page, re.MULTILINE)
    assert {name for name, _ in table} == {*models.MODELS}
    count = sum(files != "none" for _, files in table)  # Networks with published files.
    assert f"[{count} published ones](docs/models.md)" in readme
    page = (ROOT / "docs/algorithms.md").read_text(encoding="utf-8")
    methods = {*re.findall(r"^\*\*([^*]+)\*\* \(`", page, re.MULTILINE)}
    assert methods > PLAIN
    assert 38 <= len(methods - PLAIN) <= 44
    assert "[some forty](docs/algorithms.md)" in readme


def test_the_page_of_performance_has_the_strategies():
    strategies = (ROOT / "benchmarks/results/strategies.md").read_text(encoding="utf-8")
    page = (ROOT / "docs/performance.md").read_text(encoding="utf-8")
    assert all(table in page for table in strategies.strip().split("\n\n"))


@cases.each("path", PLANS)
def test_the_pages_of_devices_have_their_plans(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    table = "\n".join(line for line in lines if line.startswith("|"))
    page = "tpus" if path.stem.startswith("method_plans-v") else "gpus"
    assert table in (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")
