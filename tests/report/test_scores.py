"""`--scores`: the published study end to end, and errors of invalid tables."""

import html
import io
import itertools
import json
import math
import pathlib
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from jbias import report
from jbias.report import options
from jbias.report.pages.benchmark import (
    analysis,
    benchmark_scores,
    inputs,
    prose,
    seed_sections,
)
from jbias.runtime import cli
from tests import cases

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
REFERENCE = json.loads((ROOT / "tests" / "oracles" / "biasbed_stats.json").read_text())
STRICT = ",".join(REFERENCE["datasets"]["strict"])


def run(path, out, *args):
    assert report.main([f"--scores={path}", f"--out={out}", *args]) == 0
    return json.loads((out / "results.json").read_text(), parse_constant=pytest.fail)


def refused(capsys, path, out, *args):
    """Return the only line on stderr of a command that fails and writes nothing."""
    assert report.main([f"--scores={path}", f"--out={out}", *args]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert not out.exists()
    return captured.err


@pytest.mark.slow
@cases.each(
    ("file", "name", "f", "uncorrected"),
    [
        ("biasbed_table2", "table2_printed/all", 7.538, 7.489),
        ("biasbed_table2", "table2_printed/strict", 4.957, 4.942),
        ("biasbed_runs", "c2_means/all", 7.321, 7.321),
        ("biasbed_runs", "c2_means/strict", 4.775, 4.775),
        ("biasbed_paper_configuration", "paper_configuration/all", 7.4634, 7.4634),
        ("biasbed_paper_configuration", "paper_configuration/strict", 4.9858, 4.9858),
    ],
)
def test_statistics_of_the_published_study_are_reproduced(
    tmp_path, file, name, f, uncorrected
):
    args = [f"--datasets={STRICT}"] if name.endswith("strict") else []
    tree = run(EXAMPLES / f"{file}.csv", tmp_path / "out", *args)
    expected = REFERENCE["inputs"][name]
    assert tree["friedman"]["F"] == pytest.approx(f, abs=5e-4)
    assert tree["friedman_uncorrected"]["F"] == pytest.approx(uncorrected, abs=5e-4)
    assert tree["friedman"]["p"] == pytest.approx(expected["p_F_demsar"], rel=1e-6)
    assert tree["friedman"]["chi2"] == pytest.approx(expected["chi2"], abs=1e-6)
    assert tree["friedman"]["df"] == [7, 7 * (expected["n"] - 1)]
    assert tree["friedman"]["mean_ranks"] == pytest.approx(
        expected["avg_ranks"], abs=1e-6
    )
    names = REFERENCE["algorithms"]
    for a, row in zip(names, expected["nemenyi_p"], strict=True):
        pvalues = dict(zip(names, row, strict=True))
        assert tree["nemenyi"]["p"][a] == pytest.approx(pvalues, abs=1e-6)
    distance = tree["nemenyi"]["critical_difference"]
    assert distance["0.05"] == pytest.approx(expected["CD_0_05"], abs=1e-6)
    assert distance["0.1"] == pytest.approx(expected["CD_0_10"], abs=1e-6)
    assert tree["selection"] == "given"
    assert len(tree["table"]) == 8 * expected["n"]


@pytest.mark.slow
def test_mean_and_deviation_over_runs(tmp_path):
    tree = run(EXAMPLES / "biasbed_runs.csv", tmp_path / "out")
    cells = {(c["algorithm"], c["dataset"]): c for c in tree["table"]}
    erm = cells["ERM", "Edge"]
    assert (round(erm["mean"], 1), round(erm["std"], 1), erm["n"]) == (22.6, 3.3, 10)
    assert cells["DeepAugERM-CAE", "Edge"]["n"] == 9


@pytest.mark.slow
def test_the_answer_names_the_pairs(tmp_path, capsys):
    out = tmp_path / "out"
    tree = run(EXAMPLES / "biasbed_paper_configuration.csv", out, "--reference=ERM")
    sentence = (
        "DeepAugERM-CAE ranks better than pAdaIN and SagNet; Debiased ranks better than "
        "pAdaIN and SagNet"
    )
    assert sentence in tree["headline"]
    assert sentence in capsys.readouterr().out
    page = (out / "index.html").read_text()
    assert sentence in page
    assert "Among all pairs no algorithm differs significantly from ERM." in page
    assert (out / "tables" / "reference.csv").exists()


def test_no_pair_is_claimed_without_friedman(tmp_path):
    path = tmp_path / "scores.csv"
    rows = ["a,x,1", "b,x,2", "a,y,3", "b,y,1", "a,z,1", "b,z,4"]
    path.write_text("\n".join(["algorithm,dataset,score", *rows]))
    tree = run(path, tmp_path / "out")
    assert tree["headline"].startswith(
        "No significant difference between the 2 algorithms"
    )
    assert "does not show that the algorithms are equal" in tree["basis"]
    assert tree["nemenyi"]["significant"] == []
    assert any("no pair can differ" in caveat for caveat in tree["caveats"])


@pytest.mark.slow
def test_smaller_may_be_better(tmp_path):
    path = EXAMPLES / "biasbed_table2.csv"
    up = run(path, tmp_path / "up")["friedman"]["mean_ranks"]
    down = run(path, tmp_path / "down", "--lower-is-better")["friedman"]["mean_ranks"]
    assert {name: 9 - rank for name, rank in up.items()} == pytest.approx(down)


def test_means_that_differ_by_float_noise_only_are_ties(tmp_path):
    path = tmp_path / "scores.csv"
    rows = ["algorithm,run,dataset,score"]
    for dataset in "xyz":
        for i, (a, b) in enumerate([(0.1, 0.3), (0.2, 0.1), (0.3, 0.2)]):
            rows += [f"a,{i},{dataset},{a}", f"b,{i},{dataset},{b}"]
    path.write_text("\n".join(rows))
    tree = run(path, tmp_path / "out")
    assert tree["friedman"]["mean_ranks"] == {"a": 1.5, "b": 1.5}
    assert tree["friedman"]["p"] == 1


def test_reports_without_tests_give_the_reason(tmp_path):
    """One algorithm, or a single run per data set, cannot be tested."""
    for name, rows, reason in [
        ("one", ["a,x,1", "a,y,2"], "a test needs 2 algorithms with scores"),
        ("set", ["a,x,1", "b,x,2"], "on 'x' each algorithm has a single run"),
        ("sets", ["a,x,1", "b,x,2", "a,y,1", "b,y,3"], "on 'x' and 'y' each algorithm"),
    ]:
        path = tmp_path / f"{name}.csv"
        path.write_text("\n".join(["algorithm,dataset,score", *rows]))
        tree = run(path, tmp_path / name)
        assert (tree["friedman"], tree["nemenyi"]) == (None, None), name
        assert tree["headline"].startswith("Nothing was tested"), name
        assert len(tree["table"]) == len(rows), name
        page = html.unescape((tmp_path / name / "index.html").read_text())
        assert reason in page, name


@cases.each(
    ("text", "message"),
    [
        ("", ":1: the first line must name the columns"),
        ("name,score\na,1\n", "'name' may name algorithms on one data set"),
        ("algorithm,dataset,score\n", "header alone"),
        (
            "algorithm,dataset,score\na,x,1\nb,x,high\n",
            ":3: score must be a finite number",
        ),
        (
            "algorithm,dataset,score\na,x,\n",
            "got none for a on x; add these scores",
        ),
        ("algorithm,dataset,score\na,x,inf\n", ":2: score must be a finite number"),
        ("algorithm,dataset,score\na,x\n", ":2: must have 3 fields"),
        ("algorithm,dataset,score\n,x,1\n", ":2: algorithm must not be empty"),
        ("algorithm,dataset,score\na,x,1\n\na,x,1\n", ":4: a score must occur once"),
        (
            "algorithm,dataset,score\na,x,1\na,y,1\nb,x,1\n",
            "got none for b on y; add these scores, or leave out incomplete parts with --drop=",
        ),
        ("algorithm,dataset,score\na,x,50_63\n", ":2: score must be a finite number"),
        (
            "algorithm,dataset,score,run\na,x,50,1\na,y,60,1\na,x,.5,2\na,y,.6,2\n",
            "scores must not mix fractions and percentages: the scores of a run 2 are all at",
        ),
        (
            "algorithm,dataset,score,trained_on\na,x,1,maybe\n",
            ":2: trained_on must be yes or no, got 'maybe'",
        ),
    ],
)
def test_refuses_tables_that_do_not_fit(tmp_path, capsys, text, message):
    path = tmp_path / "scores.csv"
    path.write_text(text)
    line = refused(capsys, path, tmp_path / "out")
    assert line.startswith(f"report: {path}")
    assert message in line


def test_refuses_missing_files_and_names(tmp_path, capsys):
    out, table2 = tmp_path / "out", EXAMPLES / "biasbed_table2.csv"
    assert "no such file or directory; check the path of the file of scores" in refused(
        capsys, tmp_path / "none.csv", out
    )
    assert "choose from ImageNet1k" in refused(capsys, table2, out, "--datasets=edge")
    message = refused(capsys, table2, out, "--reference=erm")
    assert (
        "there is no algorithm 'erm'; did you mean 'ERM'? Known: Debiased, " in message
    )
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\x80")
    refused(capsys, tmp_path / "binary.csv", out)


@cases.each(
    "args",
    [
        ["--out=x"],
        ["--scores=a.csv", "--runs=b", "--out=x"],
        ["--scores=a.csv", "--out=x", "--alpha=1.5"],
        ["--scores=a.csv", "--out=x", "--last=0"],
        ["--scores=a.csv", "--out=x", "--selection=best"],
    ],
)
def test_refuses_wrong_flags(args, capsys):
    with pytest.raises(SystemExit) as error:
        report.main(args)
    assert error.value.code == 2
    assert "error:" in capsys.readouterr().err


@pytest.mark.slow
@cases.each(
    ("drop", "algorithms", "datasets"),
    [
        ("datasets", ["a", "b", "c"], ["x", "z"]),
        ("algorithms", ["a", "c"], ["x", "y", "z"]),
        ("runs", ["a", "b", "c"], ["x", "y", "z"]),
    ],
    quick=(
        "runs",
        "datasets",
    ),
)
def test_incomplete_parts_are_left_out_with_the_flag(
    tmp_path, drop, algorithms, datasets
):
    rng = np.random.default_rng(0)
    cells = itertools.product("abc", "xyz", (1, 2))
    lines = [f"{a},{d},{r},{rng.uniform():.3f}" for a, d, r in cells]
    lines = [line for line in lines if not line.startswith("b,y,2")]
    path = tmp_path / "scores.csv"
    path.write_text("\n".join(["algorithm,dataset,run,score", *lines]))
    tree = run(path, tmp_path / "out", f"--drop={drop}")
    assert (tree["algorithms"], tree["datasets"]) == (algorithms, datasets)
    gone = {"datasets": "y", "algorithms": "b, b run 1, b run 2", "runs": "b run 2"}
    note = f"(--drop={drop}): {gone[drop]}."
    assert sum(note in line for line in tree["caveats"]) == 1
    assert not any(note in line for line in tree["warnings"])  # The flag was set.


@pytest.mark.slow
def test_parquet_is_read_like_csv(tmp_path):
    path = EXAMPLES / "biasbed_runs.csv"
    pd.read_csv(path).to_parquet(tmp_path / "scores.parquet")
    trees = [
        run(table, tmp_path / table.suffix[1:])
        for table in (path, tmp_path / "scores.parquet")
    ]
    assert trees[0]["friedman"] == trees[1]["friedman"]
    frame = pd.DataFrame({"algorithm": ["a"], "dataset": ["x"], "score": [math.nan]})
    frame.to_parquet(tmp_path / "bad.parquet")
    with pytest.raises(ValueError, match="bad.parquet: .*got none for a on x"):
        inputs.from_scores(tmp_path / "bad.parquet", options.Options())


def test_unused_columns_are_named(tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text("algorithm,dataset,score,lr\na,x,1,0\nb,x,2,0\na,y,1,0\nb,y,2,0\n")
    assert any(
        "not used: lr" in caveat for caveat in run(path, tmp_path / "out")["caveats"]
    )


def test_letters_outside_the_encoding_are_printed_as_codes(tmp_path, monkeypatch):
    output = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(output, "ascii"))
    assert cli.print_lines("report", lambda: ["α = 0.05"]) == 0
    assert output.getvalue() == b"\\u03b1 = 0.05\n"


def test_the_first_line_is_printed_before_slow_imports():
    code = (
        "import sys; from jbias.report import cli; "
        "cli._progress = lambda line: sys.exit(7 + ('pandas' in sys.modules)); "
        "cli.main(['--scores=x.csv', '--out=x'])"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 7


@cases.each(
    ("table", "page"),
    [
        ("biasbed_table2.csv", "docs/have-a-table.md"),
        ("tables/one_target.csv", "docs/own-table.md"),
    ],
)
def test_docs_pages_quote_the_headline(table, page):
    """Quoted lines of pages are prefixes of the headline, up to final dots."""
    study = inputs.from_scores(str(EXAMPLES / table), options.Options())
    analysed = analysis.analyse(study)
    headline, _ = prose.answer(analysed, seed_sections.answer(analysed))
    quotes = [
        line.strip().removesuffix("...").strip()
        for line in (EXAMPLES.parent / page).read_text("utf-8").splitlines()
        if line.startswith("    ") and line.endswith("...")
    ]
    assert any(headline.startswith(quote) for quote in quotes)


MEANS = """method,photo,art,sketch
ERM,73.8 ± 0.2,71.1 ± 0.4,60.1 ± 0.04
SagNet,75.8 ± 0.3,74.1 ± 0.4,63.1 ± 0.9
pAdaIN,74.8 ± 0.5,73.1 ± 0.3,62.1
"""


def test_means_are_shown_with_deviations_and_not_tested_over_runs(tmp_path):
    """Deviations are in the cells and not used; "1 run each" does not occur."""
    path = tmp_path / "means.csv"
    path.write_text(MEANS)
    tree = run(path, tmp_path / "out")
    page = html.unescape((tmp_path / "out" / "index.html").read_text())
    methods = " ".join((tmp_path / "out" / "methods.md").read_text().split())
    assert "<dt>Scores</dt><dd>means over runs</dd>" in page
    for text in (page, methods):
        assert "1 run each" not in text and "single run" not in text.split("@")[0]
    assert "with means over runs; the scores of each run are not known." in methods
    table = page.split("</table>")[0]
    for cell in ("73.8 ± 0.2", "60.1 ± 0.04", "63.1 ± 0.9", ">62.1<"):
        assert cell in table, cell
    assert "so no test over runs is possible" in page
    assert "Runs</th>" not in table and not (tmp_path / "out/tables/runs.csv").exists()
    deviations = {(c["algorithm"], c["dataset"]): c["deviation"] for c in tree["table"]}
    assert deviations["ERM", "photo"] == 0.2
    assert deviations["pAdaIN", "sketch"] is None


def test_means_on_one_data_set_are_not_called_single_runs(tmp_path):
    path = tmp_path / "means.csv"
    path.write_text("method,acc\nERM,73.8 ± 0.2\nSagNet,75.8 ± 0.3\n")
    tree = run(path, tmp_path / "out")
    assert (
        tree["headline"]
        == f"Nothing was tested on 'means': {benchmark_scores.MEANS_ALONE}."
    )
    assert "single run" not in (tmp_path / "out" / "methods.md").read_text()


def test_runs_with_deviations_are_not_means(tmp_path):
    path = tmp_path / "folds.csv"
    rows = ["ERM,0,73 ± 1", "ERM,1,74 ± 1", "RSC,0,75 ± 1", "RSC,1,78 ± 1"]
    path.write_text("\n".join(["method,fold,acc", *rows]))
    study = inputs.from_scores(str(path), options.Options())
    assert not study.is_of_means
    note = "2 runs each, from column 'fold'; the spread beside each score is not used"
    assert study.layout_notes[1] == note


def test_a_null_result_refers_to_tests_on_single_data_sets(tmp_path):
    """With several runs the basis refers to bold scores; with one run nothing is tested."""
    rows = [("a", 0), ("b", 1)]
    values = {"x": (1, 5), "y": (9, 2), "z": (4, 6)}
    for num_runs, words in ((1, "not tested over runs"), (3, "in the table of scores")):
        lines = [
            f"{name},{dataset},{run},{cells[i] + run / 8}"
            for name, i in rows
            for dataset, cells in values.items()
            for run in range(num_runs)
        ]
        path = tmp_path / f"{num_runs}.csv"
        path.write_text("\n".join(["algorithm,dataset,run,score", *lines]))
        tree = run(path, tmp_path / f"out{num_runs}")
        assert tree["headline"].startswith("No significant difference")
        assert words in tree["basis"] and tree["seed_tests"] is None
    assert "bold marks the best of each" in tree["basis"]
    assert "jbias.stats.compare_seeds tests all pairs on all data sets" in tree["basis"]
