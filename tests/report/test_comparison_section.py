"""The section on every pair on its own: its law, its table and its figure."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from matplotlib import colors, text

from jbias import stats
from jbias.report import comparison_figure, document, options, plots, tables
from jbias.report.pages.benchmark import analysis, comparison_section, inputs
from tests import cases
from tests.report import test_figures, test_scores

TABLE2 = test_scores.EXAMPLES / "biasbed_table2.csv"


def read_blocks(path, missing=frozenset(), **flags):
    """Return the analysis of a file of scores, and the blocks of the section by type.

    missing: pairs (algorithm, data set) whose scores are removed, as runs may lack them.
    """
    study = inputs.from_scores(str(path), options.Options(**flags))
    keys = zip(study.values["algorithm"], study.values["dataset"], strict=True)
    has_score = [key not in missing for key in keys]
    study = dataclasses.replace(study, values=study.values[has_score])
    analysed = analysis.analyse(study)
    shown = [*comparison_section.blocks(analysed)]
    kinds = (document.Text, document.Figure, tables.Table)
    return analysed, [[b for b in shown if isinstance(b, kind)] for kind in kinds]


def rows_of(table, names):
    """Return the cells and the unrounded numbers of the pairs among these algorithms."""
    is_shown = table.data[["first", "second"]].isin([*names]).all(axis=1)
    cells = [row for row in table.rows if {*row[:2]} <= {*names}]
    return cells, table.data[is_shown].to_numpy().tolist()


def write(path, frame):
    """Write a frame of scores (data sets, algorithms) as a tidy file."""
    rows = frame.rename_axis("dataset").reset_index().melt("dataset", None, "algorithm")
    rows = rows.rename(columns={"value": "score"})
    rows[["algorithm", "dataset", "score"]].to_csv(path, index=False)
    return path


def third_algorithms(frame):
    """Yield (table with another third algorithm, data sets without a score of it)."""
    rng = np.random.default_rng(0)
    third = frame.assign(third=rng.uniform(0, 100, len(frame)))
    yield third, ()
    yield frame.assign(third=frame["a"] + 1e-9), ()
    yield third, frame.index[:3]
    yield third, frame.index[1:]
    yield third.assign(fourth=frame["b"])[["fourth", "third", "b", "a", "c"]], ()


def test_no_third_algorithm_changes_a_row_of_the_table(tmp_path):
    """The text and the unrounded numbers of a pair are the same, also with missing cells."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        rng.uniform(20, 80, size=(9, 3)).round(1),
        index=[f"set {i}" for i in range(9)],
        columns=list("abc"),
    )
    frame.loc["set 1":"set 2", "b"] = frame["a"]
    _, (_, _, (alone,)) = read_blocks(write(tmp_path / "alone.csv", frame[["a", "b"]]))
    expected = rows_of(alone, "ab")
    assert len(expected[0]) == 1
    for i, (changed, without) in enumerate(third_algorithms(frame)):
        missing = {("third", name) for name in without}
        path = write(tmp_path / f"{i}.csv", changed)
        analysed, (_, _, (table,)) = read_blocks(path, missing=missing)
        assert rows_of(table, "ab") == expected
        assert len(table.rows) >= 3
        # The tests of ranks leave out data sets with a missing cell.
        assert len(analysed.datasets) == 9 - len(without)


def test_strict_leaves_out_sets_that_one_of_the_pair_trained_on(tmp_path):
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(rng.uniform(20, 80, size=(8, 3)).round(1), columns=list("abc"))
    frame.index = [f"set {i}" for i in range(8)]
    path = write(tmp_path / "scores.csv", frame)
    trained = tmp_path / "trained.csv"
    trained.write_text("algorithm,dataset\nc,set 0\nc,set 1\n")
    _, (_, _, (table,)) = read_blocks(path, trained_on=str(trained), strict=True)
    _, (_, _, (everything,)) = read_blocks(path)
    assert rows_of(table, "ab") == rows_of(everything, "ab")
    counts = table.data[["wins", "ties", "losses"]].sum(axis=1)
    has_c = (table.data[["first", "second"]] == "c").any(axis=1)
    assert counts.tolist() == np.where(has_c, 6, 8).tolist()


def test_the_table_has_all_pairs_and_the_numbers_of_the_matrix():
    _, (texts, (figure,), (table,)) = read_blocks(TABLE2)
    scores = pd.read_csv(TABLE2)
    result = stats.multi_comparison_matrix(scores, larger_is_better=True)
    pd.testing.assert_frame_equal(table.data, result.to_frame(0.05), rtol=1e-12)
    assert table.head == (
        "First",
        "second",
        "mean difference",
        "wins",
        "ties",
        "losses",
        "p value",
        "significant",
    )
    assert table.in_results and (table.name, figure.name) == ("comparison_matrix",) * 2
    significant = table.data["significant"]
    assert [row[-1] == "yes" for row in table.rows] == significant.tolist()
    assert {i for i, _ in table.bold} == {*np.flatnonzero(significant)}
    (words,) = (block.words for block in texts)
    assert "p is not adjusted, on purpose" in words
    assert "among 28 pairs of equal algorithms, expect up to 1.4 with p < 0.05" in words
    assert "“What is significant”" in words


def test_few_data_sets_cannot_be_significant_and_two_have_no_section(tmp_path):
    frame = pd.DataFrame({"a": [1.5, 2.5, 3.5, 4.0], "b": [1.0, 2.0, 3.0, 3.0]})
    frame.index = [f"set {i}" for i in range(4)]
    _, (texts, _, _) = read_blocks(write(tmp_path / "four.csv", frame))
    assert "cannot be below 0.125, so no pair can be significant" in texts[1].words
    _, blocks = read_blocks(write(tmp_path / "two.csv", frame[:2]))
    assert blocks == [[], [], []]


def test_the_figure_of_many_algorithms_has_the_best(tmp_path):
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(rng.normal(50, 1, size=(6, 23)) + np.arange(23)).round(1)
    frame.index = [f"set {i}" for i in range(6)]
    frame.columns = [f"A{j}" for j in range(23)]
    _, (_, (figure,), (table,)) = read_blocks(write(tmp_path / "scores.csv", frame))
    assert "The 20 algorithms with the best means" in figure.caption
    assert len(table.data) == 23 * 22 / 2
    labels = {t.get_text().split()[0] for t in figure.drawn.axes[0].get_yticklabels()}
    assert labels == {*frame.mean().nlargest(20).index}


def matrix_of(k, *, n=12, names="algorithm {}", larger_is_better=True):
    """Return the matrix of k drawn algorithms on n data sets."""
    rng = np.random.default_rng(k)
    scores = rng.normal(50, 1, size=(n, k)) + 0.3 * np.arange(k)
    frame = pd.DataFrame(scores.round(1), columns=[names.format(j) for j in range(k)])
    return stats.multi_comparison_matrix(frame, larger_is_better=larger_is_better)


@cases.each(
    ("k", "names"),
    [(2, "a long name {} [$x$]"), (3, "{}"), (8, "a long name {}"), (20, "name {}")],
    quick=("2", "3", "8"),
)
def test_the_figure_is_legible(k, names):
    fig = comparison_figure.draw(matrix_of(k, names=names), alpha=0.05)
    labels = test_figures.boxes(fig)
    assert len(labels) >= k * (k - 1) + 2 * k
    assert list(test_figures.overlapping(labels)) == []
    test_figures.assert_whole(fig)
    assert fig.get_size_inches()[0] <= 1.2 * plots.PAGE


@cases.each("larger_is_better", [True, False])
def test_cells_have_the_numbers_of_their_pair(larger_is_better):
    """Text: row less column; bold: p < alpha; blue: the row is better."""
    result = matrix_of(6, larger_is_better=larger_is_better)
    fig = comparison_figure.draw(result, alpha=0.05, digits=2, blocks="images")
    axes = fig.axes[0]
    order = result.order
    labels = [label.get_text().split("  ") for label in axes.get_yticklabels()]
    assert [name for name, _ in labels] == [result.methods[i] for i in order]
    assert [mean for _, mean in labels] == [f"{result.means[i]:.2f}" for i in order]
    cells = {
        (round(t.get_position()[1]), round(t.get_position()[0])): t
        for t in axes.findobj(text.Text)
        if t.get_text().count("\n") == 2
    }
    assert len(cells) == 6 * 5
    advantage = axes.collections[0].get_array().reshape(6, 6)
    is_bold = set()
    for (row, column), label in cells.items():
        i, j = order[row], order[column]
        difference, counts, p = label.get_text().replace("−", "-").split("\n")
        assert float(difference) == pytest.approx(result.differences[i, j], abs=0.005)
        expected = [result.wins[i, j], result.ties[i, j], result.losses[i, j]]
        assert [int(count) for count in counts.split(" / ")] == expected
        assert p == tables.p_text(result.pvalues[i, j])
        bold = label.get_fontweight() == "bold"
        assert bold == (result.pvalues[i, j] < 0.05)
        is_bold.add(bold)
        sign = 1 if larger_is_better else -1
        assert advantage[row, column] == pytest.approx(sign * result.differences[i, j])
    assert is_bold == {True, False}
    red, _, blue = axes.collections[0].cmap([0.1, 0.5, 0.9])[:, 0]
    assert blue < 0.5 < red
    svg = plots.to_svg(fig)
    assert "against algorithm" in svg and "images, equal on" in svg
    assert "data:image" not in svg, "a page loads nothing, also not from its own text"


def test_text_is_legible_on_the_darkest_colour():
    """The contrast of black text with the cell is at least 4.5 (WCAG 2.1, level AA)."""
    fig = comparison_figure.draw(matrix_of(8), alpha=0.05)
    cells = fig.axes[0].collections[0]
    values = cells.get_array()
    for value in (values.min(), values.max()):
        red_green_blue = np.array(colors.to_rgb(cells.to_rgba(value)))
        linear = np.where(
            red_green_blue <= 0.04045,
            red_green_blue / 12.92,
            ((red_green_blue + 0.055) / 1.055) ** 2.4,
        )
        assert (linear @ [0.2126, 0.7152, 0.0722] + 0.05) / 0.05 >= 4.5


def test_pairs_without_a_shared_block_have_a_dash():
    nan = np.nan
    scores = pd.DataFrame({"a": [1.0, 2, nan], "b": [nan, 1, 3], "c": [nan, nan, 5]})
    result = stats.shared_comparison_matrix(scores, larger_is_better=True)
    fig = comparison_figure.draw(result, alpha=0.05)
    assert "–\n0 / 0 / 0\n–" in test_figures.texts(fig)
