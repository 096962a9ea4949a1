"""What a report says beside Friedman and Nemenyi: other tests, seeds, power, methods."""

import json
import re

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from jbias import report, stats
from jbias.report import evidence, methods
from jbias.stats import scores as scores_lib
from tests.report import test_scores

EXAMPLES = test_scores.EXAMPLES
REFERENCE = test_scores.REFERENCE
pytestmark = pytest.mark.usefixtures("no_pdf")


def seen() -> pd.DataFrame:
    """Who trained on what; ImageNet itself stays, as in the study."""
    pairs = pd.read_csv(EXAMPLES / "published" / "trained_on.csv")
    return pairs[pairs["dataset"] != "ImageNet1k"]


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """The published runs, who trained on what, ERM as the reference."""
    out = tmp_path_factory.mktemp("evidence") / "out"
    scores = EXAMPLES / "biasbed_runs.csv"
    trained = out.with_name("trained_on.csv")
    seen().to_csv(trained, index=False)
    flags = [f"--trained-on={trained}", "--reference=ERM", "--points=2"]
    assert report.main([f"--scores={scores}", f"--out={out}", *flags]) == 0
    return out


@pytest.fixture(scope="module")
def tree(out):
    return json.loads((out / "results.json").read_text(), parse_constant=pytest.fail)


def test_all_tests_stand_side_by_side(tree):
    p = {row["test"]: row["p"] for row in tree["omnibus"]}
    assert len(p) == 6
    table = pd.read_csv(EXAMPLES / "biasbed_runs.csv")
    means = table.groupby(["dataset", "algorithm"])["score"].mean().unstack()
    assert p["Friedman's χ²"] == pytest.approx(
        scipy.stats.friedmanchisquare(*means.to_numpy().T).pvalue, rel=1e-9
    )
    assert p["Quade"] == pytest.approx(
        stats.quade(means, larger_is_better=True).pvalue, rel=1e-9
    )
    golden = REFERENCE["inputs"]["c2_means/all"]
    names = REFERENCE["algorithms"]
    for row in tree["posthoc"]:
        i, j = (names.index(row[side]) for side in ("better", "worse"))
        assert row["nemenyi"] == pytest.approx(golden["nemenyi_p"][i][j], abs=1e-6)
        assert row["rank_difference"] >= 0
    assert len(tree["posthoc"]) == 28


def test_the_strict_setting_is_beside_all_and_can_be_asked_for(tree, tmp_path):
    both = {row["setting"]: row for row in tree["strict"]}
    assert both["all test sets"]["F"] == pytest.approx(7.3212, abs=5e-5)
    assert both["strict"]["F"] == pytest.approx(4.7749, abs=5e-5)
    assert both["strict"]["datasets"] == 7
    frame = pd.read_csv(EXAMPLES / "biasbed_runs.csv")
    pairs = seen()
    pairs = set(zip(pairs["algorithm"], pairs["dataset"], strict=True))
    keys = zip(frame["algorithm"], frame["dataset"], strict=True)
    marks = ["yes" if key in pairs else "" for key in keys]
    frame.assign(trained_on=marks).to_csv(tmp_path / "scores.csv", index=False)
    found = test_scores.run(tmp_path / "scores.csv", tmp_path / "out", "--strict")
    assert found["friedman"]["F"] == both["strict"]["F"]
    left = {one["name"]: one["reason"] for one in found["tested"]["left_out"]}
    assert left["StylizedImageNet"] == "StylizedERM trained on it"
    assert len(left) == 3
    assert len(found["datasets"]) == 10


def test_what_an_algorithm_trained_on_is_underlined(out):
    page = (out / "index.html").read_text()
    row = re.search(r"<tr><th[^>]*>StylizedERM</th>(.*?)</tr>", page).group(1)
    under = re.findall(r'<td[^>]*class="[^"]*under[^"]*"[^>]*>(.*?)</td>', row)
    assert under == ["53.2 ± 0.2"]
    assert "Underlined: the algorithm trained on that kind of data." in page


def test_other_seeds_and_power_are_told(out, tree):
    page = (out / "index.html").read_text()
    assert "some pair of Nemenyi&#x27;s test would" in page
    assert re.search(r"With 10 data sets and 9 to 10 runs, a difference of 2 is", page)
    rows = {row["algorithm"]: row for row in tree["stability"]}
    for row in rows.values():
        assert row["mean_rank_low"] <= row["mean_rank"] <= row["mean_rank_high"]
    ranks = tree["friedman"]["mean_ranks"]
    assert {a: r["mean_rank"] for a, r in rows.items()} == pytest.approx(ranks)
    here = {r["test"]: r["power"] for r in tree["power"] if r["seeds"] == "here"}
    assert set(here) == {"t", "wilcoxon", "nemenyi"}
    assert here["wilcoxon"] == 0  # With 10 data sets and 28 pairs it cannot reject.
    assert "it can never reject here" in page


def test_without_several_runs_nothing_is_said_of_seeds(tmp_path):
    tree = test_scores.run(EXAMPLES / "biasbed_table2.csv", tmp_path / "out")
    assert "stability" not in tree
    page = (tmp_path / "out" / "index.html").read_text()
    assert "Nothing is said of other runs: there is a single run of ERM, pAdaIN" in page
    assert "Power is not known: there is a single run" in page
    scores = page.split("</table>")[0]
    strong = re.findall(r'<td[^>]*class="[^"]*best[^"]*"[^>]*>(.*?)</td>', scores)
    ranks = {f"{rank:.2f}" for rank in tree["friedman"]["mean_ranks"].values()}
    assert strong  # Mean ranks, and no score.
    assert set(strong) <= ranks


def test_methods_cite_what_was_used(out, tree):
    bib = (out / "methods.bib").read_text()
    cited = set(re.findall(r"\[([^\]]*)\]", tree["methods"]))
    cited = {key for keys in cited for key in keys.split("; ")}
    assert set(re.findall(r"@\w+\{(\w+),", bib)) == cited | {"jbias"}
    assert "F(7, 63) = 7.321" in tree["methods"]
    assert " ".join((out / "methods.md").read_text().split()) == tree["methods"]
    for entry in methods.BIB.values():
        assert entry.count("{") == entry.count("}")


def test_cells_called_best_are_those_that_welch_leaves():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(3, 4, 8))
    values[0, 0] += 9  # One best.
    values[1, :2] += 9  # Two that are alike.
    table = scores_lib.read(values)
    found = evidence.best_cells(table, larger_is_better=True, alpha=0.001)
    assert sorted(found) == [(0, 0), (0, 1), (1, 1)]
    p = [
        scipy.stats.ttest_ind(values[0, 0], values[0, j], equal_var=False) for j in (1,)
    ]
    assert p[0].pvalue < 0.001
    turned = scores_lib.read(-values)
    assert evidence.best_cells(turned, larger_is_better=False, alpha=0.001) == found
    assert evidence.best_cells(None, larger_is_better=True, alpha=0.05) == []


def test_few_data_sets_are_told_with_the_size_of_the_test(tmp_path):
    rng = np.random.default_rng(1)
    cells = [(a, d) for a in "abc" for d in "vwxyz"]
    lines = [f"{a},{d},{rng.uniform(10, 90):.2f}" for a, d in cells]
    path = tmp_path / "scores.csv"
    path.write_text("\n".join(["algorithm,dataset,score", *lines]))
    tree = test_scores.run(path, tmp_path / "out")
    size = stats.approximation(5, 3)
    told = f"it rejects in {100 * size.f:.1f} % of tables"
    assert any(told in one for one in tree["caveats"])
