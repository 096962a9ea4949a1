"""The report's other tests, seeds, power and methods, besides Friedman and Nemenyi."""

import dataclasses
import html
import json
import re
import types

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from jbias import report, stats
from jbias.report import options as options_lib
from jbias.report.pages.benchmark import (
    analysis,
    bibliography,
    inputs,
    rank_test_section,
    stability_section,
)
from jbias.stats import bootstrap_intervals, score_table
from tests import cases
from tests.report import conftest, test_scores

EXAMPLES = test_scores.EXAMPLES
REFERENCE = test_scores.REFERENCE


def read_training_pairs() -> pd.DataFrame:
    """Return (algorithm, data set) of training, without ImageNet, as in the study."""
    pairs = pd.read_csv(EXAMPLES / "published" / "trained_on.csv")
    return pairs[pairs["dataset"] != "ImageNet1k"]


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """Return the report folder of the published runs, with ERM as the reference."""
    out = tmp_path_factory.mktemp("evidence") / "out"
    scores = EXAMPLES / "biasbed_runs.csv"
    trained = out.with_name("trained_on.csv")
    read_training_pairs().to_csv(trained, index=False)
    flags = [f"--trained-on={trained}", "--reference=ERM", "--points=2"]
    assert report.main([f"--scores={scores}", f"--out={out}", *flags]) == 0
    return out


@pytest.fixture(scope="module")
def tree(out):
    return json.loads((out / "results.json").read_text(), parse_constant=pytest.fail)


@pytest.mark.slow
def test_all_omnibus_and_posthoc_tests_are_in_results(tree):
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


@pytest.mark.slow
def test_the_strict_setting_is_reported_and_can_be_selected(tree, tmp_path):
    both = {row["setting"]: row for row in tree["strict"]}
    assert both["all test sets"]["F"] == pytest.approx(7.3212, abs=5e-5)
    assert both["strict"]["F"] == pytest.approx(4.7749, abs=5e-5)
    assert both["strict"]["datasets"] == 7
    frame = pd.read_csv(EXAMPLES / "biasbed_runs.csv")
    pairs = read_training_pairs()
    pairs = set(zip(pairs["algorithm"], pairs["dataset"], strict=True))
    keys = zip(frame["algorithm"], frame["dataset"], strict=True)
    marks = ["yes" if key in pairs else "" for key in keys]
    frame.assign(trained_on=marks).to_csv(tmp_path / "scores.csv", index=False)
    strict_tree = test_scores.run(tmp_path / "scores.csv", tmp_path / "out", "--strict")
    assert strict_tree["friedman"]["F"] == both["strict"]["F"]
    reasons = {
        entry["name"]: entry["reason"] for entry in strict_tree["tested"]["left_out"]
    }
    assert reasons["StylizedImageNet"] == "StylizedERM trained on it"
    assert len(reasons) == 3
    assert len(strict_tree["datasets"]) == 10


def test_the_file_of_training_data_may_name_unselected_sets_and_algorithms(tmp_path):
    args = [f"--trained-on={EXAMPLES / 'published' / 'trained_on.csv'}"]
    args += ["--datasets=Edge,Sketch,StylizedImageNet", "--algorithms=ERM,StylizedERM"]
    scores = EXAMPLES / "biasbed_runs.csv"
    tree = test_scores.run(scores, tmp_path / "out", *args)
    assert tree["trained_on"] == [["StylizedERM", "StylizedImageNet"]]


@pytest.mark.slow
def test_scores_on_data_of_training_are_underlined(out):
    page = (out / "index.html").read_text()
    row = re.search(r"<tr><th[^>]*>StylizedImageNet</th>(.*?)</tr>", page).group(1)
    under = re.findall(r'<td[^>]*class="[^"]*under[^"]*"[^>]*>(.*?)</td>', row)
    assert under == ["53.2 ± 0.2"]
    assert "Underlined: the algorithm trained on that kind of data." in page


@pytest.mark.slow
def test_stability_over_seeds_and_power_are_reported(out, tree):
    page = html.unescape((out / "index.html").read_text())
    assert "would decide otherwise on at least one pair" in page
    assert re.search(r"With 10 data sets and 9 to 10 runs, a difference of 2 is", page)
    rows = {row["algorithm"]: row for row in tree["stability"]}
    for row in rows.values():
        assert row["mean_rank_low"] <= row["mean_rank"] <= row["mean_rank_high"]
    ranks = tree["friedman"]["mean_ranks"]
    assert {a: r["mean_rank"] for a, r in rows.items()} == pytest.approx(ranks)
    powers = {r["test"]: r["power"] for r in tree["power"] if r["seeds"] == "here"}
    assert set(powers) == {"t", "wilcoxon", "nemenyi"}
    assert powers["wilcoxon"] == 0  # With 10 data sets and 28 pairs it cannot reject.
    assert "it can never reject here" in page


def test_probabilities_of_outperforming_match_the_runs_of_the_file():
    """Each row agrees with numbers computed from the file; one algorithm lacks a run."""
    path, name = EXAMPLES / "biasbed_runs.csv", "ERM"
    options = options_lib.Options(reference=name)
    analysed = analysis.analyse(inputs.from_scores(str(path), options))
    runs, _ = analysis.seeds_of(analysed)
    analysed = dataclasses.replace(analysed, runs=runs)
    table = stability_section.outperforming_table(analysed)
    file = pd.read_csv(path).set_index(["algorithm", "dataset", "run"])["score"]
    file = file.sort_index()
    assert len(table.rows) == 7 and len(table.data) == 70
    assert set(table.data["pairs"]) == {9, 10}
    for row in table.data.to_dict("records"):
        both = pd.concat(
            [file[row["algorithm"], row["dataset"]], file[name, row["dataset"]]], axis=1
        )
        scores, reference_scores = both.dropna().to_numpy().T
        assert (
            row["pairs"] == len(scores)
            and row["p"] == (scores > reference_scores).mean()
        )
        assert row["better"] == (row["p_low"] > 0.5 and row["p_high"] >= 0.75)
    means = table.data.groupby("algorithm", sort=False)["p"].mean()
    better = table.data.groupby("algorithm", sort=False)["better"].sum()
    for row in table.rows:
        cells = dict(zip(table.head, row, strict=True))
        assert cells["P(A > B)"].split()[0] == f"{means[row[0]]:.2f}"
        assert cells["better"] == str(better[row[0]])


def test_pairs_of_seeds_do_not_depend_on_other_algorithms():
    """A third algorithm with two runs of a seed does not change the pairs of the others."""
    rows = [
        (name, run, seed, seed + (name == "A"))
        for name, runs in {"A": "a", "B": "b", "C": "cd"}.items()
        for run in runs
        for seed in range(3)
    ]
    values = pd.DataFrame(rows, columns=["algorithm", "run", "seed", "value"])
    values["seed"] = values["run"] + ":" + values["seed"].astype(str)
    study = types.SimpleNamespace(values=values.assign(dataset="test"))
    analysed = types.SimpleNamespace(study=study, datasets=["test"])
    first, second = analysis.shared_seeds(analysed, "A", "B")
    assert (first - second).tolist() == [[1, 1, 1]]
    assert analysis.shared_seeds(analysed, "A", "C")[0].size == 0


@pytest.mark.slow
def test_results_compare_each_algorithm_with_the_reference(tree):
    assert len(tree["outperforming"]) == 70


@pytest.mark.slow
def test_single_runs_have_no_results_over_seeds(tmp_path):
    tree = test_scores.run(EXAMPLES / "biasbed_table2.csv", tmp_path / "out")
    assert "stability" not in tree
    page = (tmp_path / "out" / "index.html").read_text()
    assert "The effect of other runs is unknown: there is a single run of each" in page
    assert "Power is not known: there is a single run" in page
    scores = page.split("</table>")[0]
    bold = re.findall(r'<td[^>]*class="[^"]*best[^"]*"[^>]*>(.*?)</td>', scores)
    ranks = {f"{rank:.2f}" for rank in tree["friedman"]["mean_ranks"].values()}
    assert bold  # Mean ranks, and no score.
    assert set(bold) <= ranks


@pytest.mark.slow
def test_methods_cite_the_tests_that_were_used(out, tree):
    bib = (out / "methods.bib").read_text()
    both = f"{tree['methods']} {tree['methods_of_other_sections']}"
    cited = set(re.findall(r"\[([^\]]*)\]", both))
    cited = {key for keys in cited for key in keys.split("; ")}
    assert set(re.findall(r"@\w+\{(\w+),", bib)) == cited | {"jbias"}
    assert "F(7, 63) = 7.321" in tree["methods"]
    assert " ".join((out / "methods.md").read_text().split()) == both
    for entry in bibliography.ENTRIES.values():
        assert entry.count("{") == entry.count("}")


def test_best_cells_are_those_not_worse_by_welchs_test():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(3, 4, 8))
    values[0, 0] += 9  # A single best cell.
    values[1, :2] += 9  # Two equal cells.
    table = score_table.read(values)
    best = analysis.best_cells(table, larger_is_better=True, alpha=0.001)
    assert sorted(best) == [(0, 0), (0, 1), (1, 1)]
    p = [
        scipy.stats.ttest_ind(values[0, 0], values[0, j], equal_var=False) for j in (1,)
    ]
    assert p[0].pvalue < 0.001
    negated = score_table.read(-values)
    assert analysis.best_cells(negated, larger_is_better=False, alpha=0.001) == best


def test_a_caveat_has_the_type_1_error_for_few_data_sets(tmp_path):
    rng = np.random.default_rng(1)
    cells = [(a, d) for a in "abc" for d in "vwxyz"]
    lines = [f"{a},{d},{rng.uniform(10, 90):.2f}" for a, d in cells]
    path = tmp_path / "scores.csv"
    path.write_text("\n".join(["algorithm,dataset,score", *lines]))
    tree = test_scores.run(path, tmp_path / "out")
    size = stats.type_1_error(5, 3)
    sentence = f"it rejects in {100 * size.f:.1f} % of tables"
    assert any(sentence in caveat for caveat in tree["caveats"])


def table(tmp_path, lines, name="scores.csv"):
    path = tmp_path / name
    path.write_text("\n".join(["algorithm,dataset,run,score", *lines]))
    return path


def test_a_rejection_by_f_alone_is_not_claimed(tmp_path):
    """Two algorithms on three sets in the same order: F is infinite, and p is a quarter."""
    rows = ["a,x,1,1", "b,x,1,2", "a,y,1,3", "b,y,1,5", "a,z,1,0", "b,z,1,4"]
    tree = test_scores.run(table(tmp_path, rows), tmp_path / "out")
    assert tree["permutation"] == {"p": 0.25, "exact": True, "standard_error": 0}
    assert tree["headline"].startswith("No significant difference")
    assert "F(1, 2) = ∞, p = 0.250 by permutation" in tree["basis"]
    assert (
        "F is infinite because all data sets rank the algorithms in the same"
        in tree["basis"]
    )
    assert "= ∞ (the ranks are the same on all data sets), with p" in tree["methods"]
    page = (tmp_path / "out" / "index.html").read_text()
    assert page.count("F is infinite because ") == 1  # Below the table of ranks.
    assert "Conover&#39;s test divides by the same disagreement" in page
    assert "p = 0," not in tree["methods"]


@pytest.mark.slow
def test_equal_algorithms_and_runs_have_caveats(tmp_path):
    cells = [(d, r, f"{3 * i + r}") for i, d in enumerate("wxyz") for r in (1, 2)]
    lines = [f"{a},{d},{r},{s}" for a in ("one", "two") for d, r, s in cells]
    lines += [f"three,{d},{r},{50 + i}" for i, d in enumerate("wxyz") for r in (1, 2)]
    tree = test_scores.run(table(tmp_path, lines), tmp_path / "out")
    sentences = [
        text for text in tree["caveats"] if "identical scores on all data sets" in text
    ]
    assert [text.split(" have ")[0] for text in sentences] == [
        "one and two",
        "three run 1 and three run 2",
    ]


@pytest.mark.slow
def test_few_runs_and_a_large_points_flag_have_warnings(tmp_path):
    rng = np.random.default_rng(2)
    cells = [(a, d, r) for a in "abc" for d in "vwxyz" for r in (1, 2, 3)]
    lines = [f"{a},{d},{r},{rng.uniform(0.2, 0.9):.3f}" for a, d, r in cells]
    path = table(tmp_path, lines)
    tree = test_scores.run(path, tmp_path / "out")
    assert any(
        "with 3 runs, a 95 % interval contains" in text for text in tree["caveats"]
    )
    assert "equivalence of 0.01" in tree["methods_of_other_sections"]
    tree = test_scores.run(path, tmp_path / "out", "--points=1")
    assert any("--points=1 is larger than the range" in x for x in tree["warnings"])


def test_percentile_coverage_matches_simulation():
    """Coverage of percentile intervals of the mean of three normal runs is simulated."""
    rng = np.random.default_rng(0)
    runs = rng.normal(size=(2000, 3))
    half = 1.96 * runs.std(axis=1) / np.sqrt(3)
    coverage = np.mean(np.abs(runs.mean(axis=1)) <= half)
    assert bootstrap_intervals.percentile_coverage(3) == pytest.approx(
        coverage, abs=0.03
    )
    assert bootstrap_intervals.percentile_coverage(30) > 0.92


def test_equal_algorithms_rarely_have_a_bold_cell():
    """With equal algorithms, at most about alpha of the data sets have a bold cell."""
    rng = np.random.default_rng(0)
    for k, r, step in [(8, 10, 0.0), (4, 2, 0.625)]:
        values = rng.normal(50, 0.6, size=(400, k, r))
        values = np.round(values / step) * step if step else values
        best = analysis.best_cells(
            score_table.read(values), larger_is_better=True, alpha=0.05
        )
        assert len({i for _, i in best}) / 400 < 0.07


def test_algorithms_and_sets_may_have_the_names_of_columns(tmp_path):
    rng = np.random.default_rng(3)
    names = ("algorithm", "seed", "p", "mean_rank")
    cells = [(a, d, r) for a in names for d in names for r in (1, 2)]
    lines = [f"{a},{d},{r},{rng.uniform(10, 90):.2f}" for a, d, r in cells]
    out = tmp_path / "out"
    test_scores.run(table(tmp_path, lines), out, "--reference=p")
    ranks = pd.read_csv(out / "tables" / "ranks.csv")
    assert list(ranks) == [
        *("algorithm", "algorithm (name)", "seed", "p", "mean_rank (name)"),
        "mean_rank",
    ]
    reference = pd.read_csv(out / "tables" / "reference.csv")
    assert {"p", "p (name)"} <= set(reference)
    assert len(pd.read_csv(out / "tables" / "runs.csv")) == 8


@pytest.mark.slow
def test_tables_of_an_earlier_report_are_removed(out, tmp_path):
    out_folder = tmp_path / "out"
    test_scores.run(EXAMPLES / "biasbed_runs.csv", out_folder, "--reference=ERM")
    (out_folder / "tables" / "notes.txt").write_text("mine")
    assert (out_folder / "tables" / "control.tex").exists()
    test_scores.run(EXAMPLES / "biasbed_table2.csv", out_folder)
    assert not (out_folder / "tables" / "control.tex").exists()
    assert not (out_folder / "figures" / "iqm.svg").exists()
    assert (out_folder / "tables" / "notes.txt").exists()


@pytest.mark.slow
def test_rules_of_selection_are_tested_on_the_selected_data_sets(tmp_path):
    study = conftest.make_runs(tmp_path / "runs", sets=("edge", "sketch", "stylized"))
    trained_on = tmp_path / "trained.csv"
    trained_on.write_text("algorithm,dataset\nSagNet,stylized\n")
    flags = [f"--runs={study}/*", f"--out={tmp_path / 'out'}"]
    assert report.main([*flags, "--strict", f"--trained-on={trained_on}"]) == 0
    tree = json.loads((tmp_path / "out" / "results.json").read_text())
    rules = pd.read_csv(tmp_path / "out" / "tables" / "selection_tests.csv")
    p = rules[rules["selection"] == "best validation"]["p"].item()
    assert tree["tested"]["datasets"] == ["edge", "sketch"]
    assert p == pytest.approx(tree["friedman"]["p"], abs=1e-12)


@cases.each(
    "flags",
    [
        ["--selection=oracle"],
        ["--last=2"],
        ["--metric=loss"],
        ["--epoch=3"],
        ["--strict"],
    ],
)
def test_flags_without_effect_are_refused(tmp_path, capsys, flags):
    scores = f"--scores={EXAMPLES / 'biasbed_runs.csv'}"
    try:
        code = report.main([scores, f"--out={tmp_path / 'out'}", *flags])
    except SystemExit as error:
        code = error.code
    assert code == 2
    assert flags[0].split("=")[0] in capsys.readouterr().err


@pytest.mark.slow
def test_trained_on_in_parquet_is_read_as_in_csv(tmp_path):
    frame = pd.read_csv(EXAMPLES / "biasbed_runs.csv")
    marks = np.where(frame["dataset"] == "Edge", "yes", "no")
    frame.assign(trained_on=marks).to_parquet(tmp_path / "scores.parquet")
    tree = test_scores.run(tmp_path / "scores.parquet", tmp_path / "out", "--strict")
    assert [entry["name"] for entry in tree["tested"]["left_out"]] == ["Edge"]


def test_small_p_values_of_pairs_are_shaded_by_their_order():
    p = np.array([[1, 0.0004, 0.2], [0.0004, 1, 0.04], [0.2, 0.04, 1]])
    analysed = types.SimpleNamespace(
        algorithms=("a", "b", "c"),
        nemenyi=types.SimpleNamespace(pvalues=p, ranks=np.array([3.0, 1.0, 2.0])),
        order=np.array([1, 2, 0]),
        significant=[("b", "a", 0.0004)],
        alpha=0.05,
        critical_difference=1.0,
    )
    table = rank_test_section.nemenyi_table(analysed)
    assert [row[0] for row in table.rows] == ["b", "c", "a"]
    third = pytest.approx(1 / 3)
    assert table.shade == {(0, 4): 1, (2, 2): 1, (0, 3): third, (1, 2): third}
    assert table.bold == {(0, 4), (2, 2)}
