"""The results pages quote what the committed reports hold."""

import json
import pathlib
import re

import numpy as np
import pandas as pd

from jbias import stats
from tests import cases

ROOT = pathlib.Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
WITHOUT_REPORT = (  # Rows of all.csv.
    *("every-rate", "one-init", "one-order", "hundred-seeds"),
    *("thirty-epochs-constant", "thirty-epochs-cosine", "64-pixels", "tiny-imagenet"),
)
FOLDERS = sorted(
    path
    for path in RESULTS.iterdir()
    if path.is_dir() and path.name not in WITHOUT_REPORT
)
PLANS = sorted((ROOT / "benchmarks/results").glob("planned-*.md"))
PAGE = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")


@cases.each("folder", FOLDERS)
def test_a_report_is_whole_and_names_no_machine(folder):
    for name in ("index.html", "results.json", "rates.json", "headline.md"):
        assert (folder / name).stat().st_size
    assert {path.suffix for path in folder.glob("tables/*")} == {".csv"}
    assert {path.suffix for path in folder.glob("figures/*")} == {".svg"}
    runs = pd.read_csv(folder / "tables/runs.csv")
    assert len([*folder.glob("configs/*.json")]) == runs["algorithm"].nunique()
    for path in folder.rglob("*.*"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"(?<![\w.-])/(work|home|root|tmp)/", text), path


@cases.each("folder", FOLDERS)
def test_its_headline_stands_on_the_page(folder):
    assert (folder / "headline.md").read_text(encoding="utf-8") in PAGE


@cases.each("name", ["shapes", "variants"])
def test_the_page_quotes_the_tests(name):
    tests = pd.read_csv(RESULTS / name / "tables/omnibus.csv")
    counts = tests.iloc[0]
    assert f"F({counts['df']}) = {counts['statistic']:.2f}" in " ".join(PAGE.split())
    pairs = pd.read_csv(RESULTS / name / "tables/posthoc.csv")
    differ = pairs[pairs["nemenyi"] < 0.05]
    differ = differ if float(counts["p"]) < 0.05 else differ.head(0)
    told = f"{len(differ)} of {len(pairs)} pairs" if len(differ) else "No pair differs"
    assert told in PAGE


@cases.each("folder", FOLDERS)
def test_the_rate_of_each_run_is_the_best_in_validation(folder):
    """And lies between others that were tried."""
    rates = json.loads((folder / "rates.json").read_text())
    configs = {path.stem: path for path in folder.glob("configs/*.json")}
    for name, told in rates.items():
        config = configs[name.replace(":", "-").replace("=", "-")]
        chosen = json.loads(config.read_text())["optim"]["rate"]
        assert told["chosen"] == chosen
        tried = {float(rate): valid for rate, valid in told["valid"].items()}
        if None not in tried.values():
            assert tried[chosen] == max(tried.values())
            assert min(tried) < chosen < max(tried)


def test_the_page_quotes_the_tests_over_blocks_of_sets():
    scores = pd.read_csv(RESULTS / "shapes/tables/scores.csv")
    table = scores.pivot(index="dataset", columns="algorithm", values="mean")
    page = " ".join(PAGE.split())
    assert f"the ten amount to {stats.participation_ratio(table):.1f} (" in page
    for method, count, told in (
        ("deviations", 4, "(p = 2e-4, by permutation"),
        ("spearman", 2, "(p = 0.089)"),
    ):
        labels = stats.find_blocks(table, method=method).labels
        assert len({*labels}) == count and told in page
        asked = dict(larger_is_better=True)
        found = stats.friedman_blocked(table, blocks=labels, **asked).means
        number = float(told.removeprefix("(p = ").split(",")[0].rstrip(")"))
        assert abs(found.pvalue - number) < max(2 * found.standard_error, number / 20)
        pairs = stats.nemenyi(table.groupby(labels).mean(), **asked)
        differ = int((np.asarray(pairs.pvalues) < 0.05).sum()) // 2
        assert differ == {4: 3, 2: 0}[count]
    assert "but only 3 of 105 pairs" in page


def test_claims_stand_on_the_page_as_its_command_wrote_them():
    told = (ROOT / "benchmarks/results/claims.md").read_text(encoding="utf-8")
    assert told in PAGE
    scores = pd.read_csv(RESULTS / "shapes/tables/scores.csv")
    table = scores.pivot(index="dataset", columns="algorithm", values="mean")
    pairs = stats.nemenyi(table, larger_is_better=True)
    place = pairs.algorithms.index
    p = pairs.pvalues[place("erm (cae)"), place("erm")]
    assert f"| DeepAugment (CAE) ranks above ERM | {p:.3f} |" in told
    eight = ["padain", "mixstyle", "sagnet", "erm"]
    eight += [
        f"erm ({one})" for one in ("cae", "stylize", "rand_conv", "gaussian_noise")
    ]
    pairs = stats.nemenyi(table[eight], larger_is_better=True)
    control = stats.bonferroni_dunn(
        table[eight], control="erm", adjust="holm", larger_is_better=True
    )
    alone = dict(zip(control.algorithms, control.adjusted, strict=True))
    numbers = [pairs.pvalues[4, 3], alone["erm (cae)"], alone["erm (stylize)"]]
    first, second, third = (f"{one:.3f}" for one in numbers)
    words = (
        f"of the eight at these rates, {first}, {second} and {third} for DeepAugment"
    )
    assert words in " ".join(PAGE.split())


def test_strategies_stand_on_the_page_of_performance():
    told = (ROOT / "benchmarks/results/strategies.md").read_text(encoding="utf-8")
    page = (ROOT / "docs/performance.md").read_text(encoding="utf-8")
    assert all(table in page for table in told.strip().split("\n\n"))


@cases.each("path", PLANS)
def test_plans_stand_on_the_pages_of_their_devices(path):
    told = path.read_text(encoding="utf-8").splitlines()
    table = "\n".join(line for line in told if line.startswith("|"))
    page = "tpus" if path.stem.startswith("planned-v") else "gpus"
    assert table in (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")
