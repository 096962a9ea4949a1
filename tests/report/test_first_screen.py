"""The page starts with answer, warnings, scores and ranks; other sections are folded."""

import dataclasses
import io
import json
import re
import shutil
import subprocess
import types
import xml.etree.ElementTree as ET

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from matplotlib import text
from PIL import Image

from jbias import report, stats
from jbias.report import document, plots, tables, workdirs
from jbias.report import options as options_lib
from jbias.report.pages.benchmark import (
    analysis,
    benchmark_page,
    benchmark_scores,
    bibliography,
    curve_section,
    inputs,
    prose,
    score_section,
    seed_sections,
)
from tests import cases
from tests.report import conftest, test_runs

# Four data sets on which the F distribution rejects and the permutation test does not.
DISPUTED = [[-0.8, 1.4, 0.5], [0.7, 2.3, 1.7], [0.4, 1.5, 1.8], [-0.9, -0.8, 3.6]]
CLEAR = [[10, 20, 30, 40], [11, 22, 31, 45], [12, 20, 33, 41], [15, 22, 31, 42]]
CLEAR += [[17, 23, 37, 44], [9, 25, 36, 51], [21, 24, 29, 47], [19, 28, 34, 46]]
SVG = "{http://www.w3.org/2000/svg}"


def study(folder, matrix, *, runs=1, names="abcdefgh", **options):
    """Return the study of a CSV file of scores, data sets in rows."""
    lines = ["algorithm,dataset,run,score"]
    for i, row in enumerate(matrix):
        for name, score in zip(names, row, strict=False):
            lines += [f"{name},set {i},{run},{score + run / 8}" for run in range(runs)]
    path = folder / "scores.csv"
    path.write_text("\n".join(lines))
    return inputs.from_scores(str(path), options_lib.Options(**options))


def analysed(scores):
    """Return all tests of `BenchmarkScores`."""
    return analysis.with_evidence(analysis.analyse(scores))


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Return the page of three algorithms on five data sets, three runs each, and its path."""
    folder = tmp_path_factory.mktemp("three")
    rng = np.random.default_rng(0)
    matrix = np.round(rng.uniform(30, 60, size=(5, 1)) + [[0, 3, 6]], 1)
    report = benchmark_page.report(study(folder, matrix, runs=3))
    document.write(report, folder / "out")
    path = folder / "out" / "index.html"
    return path.read_text(), path


def test_the_headline_has_the_p_of_the_permutation_test(tmp_path):
    """The F distribution rejects here and the permutation test does not."""
    matrix = np.array(DISPUTED)
    f = stats.friedman(matrix, larger_is_better=True).pvalue
    exact = stats.friedman_permutation(matrix, larger_is_better=True).pvalue
    assert f < 0.05 < exact
    headline, basis = prose.answer(analysis.analyse(study(tmp_path, DISPUTED)))
    assert headline == (
        "No significant difference between the 3 algorithms was found "
        f"(p = {exact:.3f}, Friedman's test by permutation over 4 data sets)."
    )
    assert f"p = {exact:.3f} by permutation, which decides" in basis
    assert f"approximation gives p = {f:.3f}." in basis


def test_without_a_difference_the_page_lists_the_evidence(tmp_path):
    """Each item is a sentence or two; results.json keeps them as one paragraph."""
    disputed = benchmark_page.report(study(tmp_path, DISPUTED, runs=3))
    assert len(disputed.points) == 3
    assert all(len(point) < 200 for point in disputed.points)
    p = prose.p_by_permutation(analysis.analyse(study(tmp_path, DISPUTED)).permutation)
    assert f"{p} by permutation." in disputed.points[0]
    document.write(disputed, tmp_path / "out")
    page = (tmp_path / "out" / "index.html").read_text()
    assert page.count("<li>", 0, page.index("<dl")) >= 3
    tree = json.loads((tmp_path / "out" / "results.json").read_text())
    assert (tree["headline"], tree["basis"]) == disputed.answer
    clear = benchmark_page.report(study(tmp_path, CLEAR))
    assert [*clear.points] == [clear.answer[1]]


def test_a_p_without_hits_among_random_permutations_is_a_bound(tmp_path):
    """p = (1 + hits) / (1 + draws): without a hit p is only a bound."""
    matrix = [[*row, *(row[-1] + x for x in (10, 20, 30, 40))] for row in CLEAR]
    result = analysis.analyse(study(tmp_path, matrix))
    assert not result.permutation.exact
    assert result.permutation.pvalue == 1 / (1 + result.permutation.permutations)
    headline, basis = prose.answer(result)
    assert "(p ≤ 1.0e-4, " in headline and "p ≤ 1.0e-4 by permutation" in basis


def test_the_answer_names_the_better_algorithms(tmp_path):
    headline, _ = prose.answer(analysis.analyse(study(tmp_path, CLEAR)))
    better = "d ranks better than a and b; c ranks better than a."
    assert headline.endswith(f", and 3 of 6 pairs differ: {better}")
    two = [[x, x + 1] for x in range(8)]
    headline, _ = prose.answer(analysis.analyse(study(tmp_path, two)))
    assert headline.startswith("b ranks significantly better than a (p = 0.008, ")


@cases.each(
    ("number", "words"),
    [(0, "0 runs"), (1, "1 run"), (2, "2 runs"), (1200, "1,200 runs")],
)
def test_nouns_agree_with_their_number(number, words):
    assert tables.count(number, "run") == words


def test_excluded_sets_have_a_note_and_unfit_sets_a_warning(
    tmp_path,
):
    pairs = tmp_path / "seen.csv"
    pairs.write_text("algorithm,dataset\na,set 0\n")
    result = analysed(study(tmp_path, CLEAR, strict=True, trained_on=str(pairs)))
    (note,) = [x for x in prose.caveats(result) if "is not in the tests" in x]
    assert note == "set 0 is not in the tests: a trained on it."
    assert note in prose.notes(result) and note not in prose.warnings(result)
    unfit = (("set 1", "its fingerprint is not the same"),)
    scores = dataclasses.replace(study(tmp_path, CLEAR), unfit=unfit)
    result = analysed(scores)
    warning = "set 1 is not in the tests: its fingerprint is not the same."
    assert warning in prose.warnings(result) and warning not in prose.notes(result)


def test_a_plain_table_has_no_warnings(tmp_path):
    assert prose.warnings(analysis.analyse(study(tmp_path, CLEAR))) == []


def test_a_wide_table_of_scores_is_transposed_on_the_page(tmp_path):
    """The table on the page is transposed with its marks; the files are not."""
    rng = np.random.default_rng(1)
    matrix = np.round(rng.uniform(30, 60, size=(15, 1)) + [[0, 3, 6]], 1)
    result = analysed(study(tmp_path, matrix, runs=3))
    table = score_section.scores_table(result)
    shown = table.on_page
    assert shown.head == ("Data set", "a", "b", "c") and len(shown.rows) == 2 + 15
    for i, row in enumerate(table.rows):
        for j, cell in enumerate(row[1:]):
            assert shown.rows[j][i + 1] == cell
            assert shown.marks(j, i + 1) == table.marks(i, j + 1)
    assert table.bold and shown.print_width < tables.FITS < table.print_width
    narrow = score_section.scores_table(analysis.analyse(study(tmp_path, CLEAR)))
    assert narrow.on_page is narrow


def test_methods_are_one_paragraph_with_bibtex_keys(page):
    words, _ = page
    (block,) = re.findall(r'<div id="methods">(.*?)<details>', words, re.DOTALL)
    (paragraph,) = re.findall(r"<p>(.*?)</p>", block, re.DOTALL)
    assert "<" not in paragraph and "\n" not in paragraph
    assert len(paragraph.split()) < 170
    keys = ";".join(re.findall(r"\[([\w; ]+)\]", paragraph)).replace(" ", "").split(";")
    assert (
        {"friedman1937", "nemenyi1963", "demsar2006"}
        <= {*keys}
        <= {*bibliography.ENTRIES}
    )


def test_only_scores_and_ranks_are_unfolded(page):
    words, _ = page
    folded = re.findall(
        r"<details class=\"section.*?</details></section>", words, re.DOTALL
    )
    ids = [re.search(r'<div id="(\w+)">', part)[1] for part in folded]
    assert ids[0] == "tests" and "power" in ids and ids[-1] == "methods"
    opened = words
    for part in folded:
        assert "<h2>" in part.partition("</summary>")[0]
        opened = opened.replace(part, "")
    assert 'aria-label="Figure: Critical difference"' in opened
    assert opened.count("<table") == 1 and '<section id="scores">' in opened


def test_sections_are_open_unless_a_report_folds_them():
    makers = [
        document.SectionMaker("a", "First", lambda words: [document.Text(words)]),
        document.SectionMaker(
            "b",
            "Second",
            lambda words: [document.Text(words)],
            is_folded=True,
            is_printed=False,
        ),
    ]
    first, second = document.make_sections(makers, "words")
    assert (first.is_folded, second.is_folded) == (False, True)
    assert (first.is_printed, second.is_printed) == (True, False)


def test_a_table_of_a_new_section_says_that_it_is_in_results(tmp_path, monkeypatch):
    """A section is a function and a line of SECTIONS; no other list has its tables."""

    def make(computed):
        rows = [{"algorithm": name, "x": 1.5} for name in computed.analysis.algorithms]
        columns = tables.columns("algorithm x:.1")
        yield tables.from_rows("more", "More.", rows, columns, in_results=True)
        yield tables.from_rows("page_only", "On the page.", rows, columns)

    expected = benchmark_page.report(study(tmp_path, CLEAR)).results
    section = document.SectionMaker("own", "Own", make)
    sections = (*benchmark_page.SECTIONS, section)
    monkeypatch.setattr(benchmark_page, "SECTIONS", sections)
    results = dict(benchmark_page.report(study(tmp_path, CLEAR)).results)
    assert results.pop("more").to_dict("list") == {
        "algorithm": [*"abcd"],
        "x": [1.5] * 4,
    }
    assert [*results] == [*expected]


def diagram(names, ranks, cliques=(), difference=1.0):
    looks = [plots.style_of(i)["color"] for i in range(len(names))]
    return plots.critical_difference(
        names, np.array(ranks, float), cliques, difference, alpha=0.05, colours=looks
    )


def test_the_rank_diagram_has_the_best_algorithms_on_the_left():
    """The better half is left of the axis with the best on top; the worse half is right."""
    fig = diagram(["w", "x", "y", "z"], [3.5, 1.25, 2.0, 3.25], [(2, 3)])
    places = {t.get_text(): t.get_position() for t in fig.findobj(text.Text)}
    left, right = places["1"][0], places["4"][0]
    assert places["x"][0] < left and places["y"][0] < left
    assert places["w"][0] > right and places["z"][0] > right
    assert places["x"][1] > places["y"][1] and places["w"][1] > places["z"][1]
    assert {"1.25", "2.00", "3.25", "3.50", "CD = 1.00 (α = 0.05)"} <= {*places}
    scale = (right - left) / 3
    lines = [line.get_xdata() for line in fig.axes[0].lines if line.get_linewidth() > 3]
    (bar,) = lines
    assert bar == pytest.approx([left + scale * 1.0, left + scale * 2.25])


def test_marks_have_their_values_as_titles():
    """Values are SVG titles; names are escaped, and there is no link or script."""
    name = 'a & <b> "q"'
    svg = plots.to_svg(diagram([name, "c"], [1.25, 1.75], [(0, 1)]))
    titles = [title.text for title in ET.fromstring(svg).iter(f"{SVG}title")]
    assert titles.count(f"{name}: mean rank 1.250") == 2  # The label and the dot.
    assert f"not significantly different: {name}, c" in titles
    assert "<a " not in svg and "hover:" not in svg
    frame = pd.DataFrame([[0.125, 0.5]], ["one"], [10, 20])
    svg = plots.to_svg(plots.power(frame, target=0.8, labels=("data sets", "seeds")))
    assert ">seeds one, data sets 10: 0.125</title>" in svg
    fig = plots.intervals(["m"], np.array([0.5]), np.array([0.25]), np.array([0.75]))
    assert ">m: 0.50 [0.25, 0.75]</title>" in plots.to_svg(fig)
    rows = [("p", "l", x, x / 4) for x in (1, 2)]
    frame = pd.DataFrame(rows, columns=["panel", "line", "x", "value"])
    svg = plots.to_svg(plots.curves(frame, {"l": plots.style_of(0)}, ("epoch", "")))
    assert ">l: 0.25 at epoch 1</title>" in svg and ">l: 0.5 at epoch 2</title>" in svg


@cases.each(
    ("fields", "name"),
    [
        ({"settings": {"inputs": [{"name": "mixup", "alpha": 1.0}]}}, "Mixup"),
        ({"settings": {"inputs": [{"name": "crop"}]}}, "ERM"),
        ({"settings": {"inputs": [{"name": "mixup"}], "label": "mine"}}, "mine"),
        (
            {"settings": {"inputs": [{"name": "mixup"}]}, "variant": "wide"},
            "ERM (wide)",
        ),
        ({"settings": {"inputs": "mixup"}}, "ERM"),
    ],
)
def test_erm_with_an_input_method_has_the_name_of_the_method(fields, name):
    assert test_runs.bare_run(**fields).base_label == name
    assert workdirs.method_name("erm", "mixup") == "Mixup"


def make_sagnet_guess(runs, share, classes=16):
    """Let SagNet decide for a cue in a share of images, and record the number of classes."""

    def edit(records):
        return [
            test_runs.replace_value(record, 1 - share)
            if record.metric == "fraction_neither"
            else record
            for record in records
        ]

    test_runs.change(runs / "sagnet", edit)
    for path in runs.glob("*/provenance.json"):
        rule = f'"decision": "argmax over {classes} classes", "n"'
        path.write_text(path.read_text().replace('"n"', rule))


@cases.each(("share", "is_doubted"), [(0.05, True), (0.125, True), (0.16, False)])
def test_shape_biases_at_chance_have_a_warning(tmp_path, share, is_doubted):
    """For 1,280 images and 16 classes, Wilson's interval of 12.5 % ends at 14.4 %."""
    sets = ("edge", "cue_conflict")
    folder = conftest.make_runs(tmp_path / "runs", epochs=1, sets=sets)
    make_sagnet_guess(folder, share)
    for metric in ("accuracy", "shape_bias"):
        options = options_lib.Options(metric=metric)
        scores = inputs.from_runs([f"{folder}/*"], options)
        cues = [x for x in scores.at_chance if x["metric"] == benchmark_scores.CUES]
        named = [(x["algorithm"], x["dataset"], x["chance"]) for x in cues]
        assert named == [("SagNet", "cue_conflict", 0.125)] * is_doubted
    doubts = [x for x in prose.warnings(analysis.analyse(scores)) if "either cue" in x]
    assert len(doubts) == is_doubted
    start = "1 of 3 shares of decisions for either cue is at chance (12.5 %, two of 16 classes)"
    assert all(words.startswith(f"{start}: SagNet on cue_") for words in doubts)


def test_chance_is_judged_by_the_images_of_each_data_set(monkeypatch):
    """The interval of a share of 0.16 is above 0.125 for 1,000 images, not for 100."""
    frame = pd.DataFrame(
        {
            "label": "SagNet",
            "dataset": ["small", "large"],
            "n": [100, 1000],
            "value": 0.84,
        }
    )
    study = types.SimpleNamespace(decisions_for_neither=lambda: frame)
    classes = {"small": 16, "large": 16}
    monkeypatch.setattr(benchmark_scores, "_classes", lambda study: classes)
    cells = [
        (cell["dataset"], cell["n"]) for cell in benchmark_scores._cues_at_chance(study)
    ]
    assert cells == [("small", 100)]


def test_the_headline_claims_no_shape_bias_of_guesses(tmp_path):
    """SagNet is one of three algorithms and guesses: only pairs without it are claimed."""
    sets = ("edge", "cue_conflict")
    folder = conftest.make_runs(tmp_path / "runs", epochs=1, sets=sets)
    make_sagnet_guess(folder, 0.05)
    options = {"metric": "shape_bias", "datasets": ("cue_conflict",)}
    for names, start, remark in (
        ((), "of SagNet on 'cue_conflict': decisions of SagNet are at chance. On ", ""),
        (
            ("ERM", "SagNet"),
            "on 'cue_conflict': ",
            "(Tests over seeds: on 'cue_conflict',",
        ),
    ):
        chosen_options = options_lib.Options(**options, algorithms=names)
        result = analysis.analyse(inputs.from_runs([f"{folder}/*"], chosen_options))
        headline, _ = seed_sections.answer(result)
        assert headline.startswith(f"No claim about shape bias {start}")
        assert remark in headline and "better" not in headline
        if not names:
            assert "SagNet" not in headline.partition("at chance.")[2]
        page = " ".join(block.caption for block in seed_sections.blocks(result))
        assert "etter" not in page and "95% t interval" in page
    named = {"algorithms": ("ERM", "SagNet"), "datasets": ("edge",)}
    result = analysis.analyse(
        inputs.from_runs([f"{folder}/*"], options_lib.Options(**named))
    )
    assert "No claim" not in seed_sections.answer(result)[0]


@cases.each("larger", [True, False])
def test_algorithms_with_more_bias_are_not_called_better(larger, tmp_path):
    """The algorithm with more bias is named first, or with less by --lower-is-better."""
    sets = ("edge", "cue_conflict")
    folder = conftest.make_runs(tmp_path / "runs", epochs=1, sets=sets)
    options = options_lib.Options(
        metric="shape_bias", algorithms=("ERM", "SagNet"), larger_is_better=larger
    )
    result = analysis.analyse(inputs.from_runs([f"{folder}/*"], options))
    (test,) = result.by_seeds.tests
    names = (test.first, test.second)[:: 1 if test.difference > 0 else -1]
    verb = "more" if larger else "less"
    claim = f"{names[0]} has {verb} shape bias than {names[1]} by "
    assert claim in seed_sections.answer(result)[0]
    side = "larger" if larger else "smaller"
    assert f"{side} ranks first." in prose.describe_scores(result)
    assert f"the {side[:-1]}st of a" in prose.describe_bold(result, has_bold=True)
    heads = seed_sections.table(result).head
    assert ("higher" if larger else "lower") in str(heads[1])


@cases.each(
    ("metric", "label"),
    [("accuracy", "Accuracy in %"), ("shape_bias", "Shape bias in %")],
)
def test_curves_name_both_axes_and_have_ticks_at_whole_epochs(metric, label, tmp_path):
    sets = ("edge", "cue_conflict")
    folder = conftest.make_runs(tmp_path / "runs", epochs=2, sets=sets)
    study = inputs.from_runs([f"{folder}/*"], options_lib.Options(metric=metric))
    figures = curve_section.blocks(analysis.analyse(study))
    (figure,) = [x for x in figures if x and x.name == f"curves_{metric}"]
    first, *other_axes = [axes for axes in figure.drawn.axes if axes.get_title("left")]
    assert first.get_ylabel() == label and not any(
        x.get_ylabel() for x in other_axes[:2]
    )
    assert "epoch" in {axes.get_xlabel() for axes in [first, *other_axes]}
    assert all(tick % 1 == 0 for tick in first.get_xticks())


def test_a_study_of_given_records_equals_that_of_files(tmp_path):
    folder = conftest.make_runs(tmp_path / "runs", epochs=2, sets=("edge",))
    patterns, options = [f"{folder}/*"], options_lib.Options()
    records = workdirs.read(patterns)
    study = inputs.from_runs(patterns, options, records=records)
    other = inputs.from_runs(patterns, options)
    pd.testing.assert_frame_equal(study.values, other.values)
    pd.testing.assert_frame_equal(study.evaluations, other.evaluations)
    assert records.frame is None  # The memory of the records is released.


def test_epochs_with_all_seeds_of_a_line_are_selected():
    frame = pd.DataFrame(
        [(p, n, x) for p in "ab" for n in "cd" for x in (1.0, 2.0, 2.5) for _ in "123"],
        columns=["panel", "line", "x"],
    ).assign(value=0.5)
    frame = frame.drop(index=[4, 20, 21]).astype({"panel": "category"})
    sizes = frame.value_counts(["panel", "line", "x"])
    expected = [
        sizes[tuple(row)] == 3 for row in frame[["panel", "line", "x"]].to_numpy()
    ]
    assert curve_section._has_all_seeds(frame).tolist() == expected


def test_the_help_lists_the_metrics_of_runs(capsys):
    with pytest.raises(SystemExit):
        report.main(["--help"])
    words = " ".join(capsys.readouterr().out.split())
    for metric in (
        "(default: accuracy)",
        "shape_bias",
        "fraction_neither",
        "mrr_shape",
    ):
        assert metric in words


def test_intervals_of_differences_are_cut_at_100_points(tmp_path):
    """Two very different seeds give a t interval beyond 100 points."""
    folder = conftest.make_runs(tmp_path / "runs", epochs=1, sets=("edge",))

    def edit(records):
        return [
            test_runs.replace_value(record, 0.1 + 0.8 * (record.seed % 2))
            if record.metric == "accuracy"
            else record
            for record in records
        ]

    test_runs.change(folder / "sagnet", edit)
    options = options_lib.Options(algorithms=("ERM", "SagNet"))
    result = analysis.analyse(inputs.from_runs([f"{folder}/*"], options))
    (test,) = result.by_seeds.tests
    assert -100 <= test.low <= test.difference <= test.high <= 100
    plain = scipy.stats.ttest_ind(
        *analysis.seed_rows(result).groupby("algorithm")["score"].agg(list),
        equal_var=False,
    ).confidence_interval()
    ends = sorted(map(abs, (test.low, test.high)))
    uncut_ends = sorted(map(abs, plain))
    assert ends == pytest.approx([min(end, 100) for end in uncut_ends])
    is_cut = (
        "cut at ±100, as no difference is larger" in seed_sections.answer(result)[1]
    )
    assert is_cut == (uncut_ends[1] > 100)
    assert uncut_ends[1] > 100


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("chromium"), reason="needs chromium")
def test_the_page_of_three_algorithms_prints_on_two_pages(page, tmp_path):
    _, path = page

    def browse(*flags):
        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", *flags]
        subprocess.run([*command, path.as_uri()], check=True, capture_output=True)

    shot, printed = tmp_path / "page.png", tmp_path / "page.pdf"
    browse("--hide-scrollbars", "--window-size=1280,6000", f"--screenshot={shot}")
    pixels = np.asarray(Image.open(io.BytesIO(shot.read_bytes())).convert("L"))
    height = np.flatnonzero((pixels != pixels[-1, 0]).any(axis=1))[-1]
    assert 600 < height < 3000
    browse(f"--print-to-pdf={printed}")
    assert len(re.findall(rb"/Type\s*/Page\b", printed.read_bytes())) == 2
