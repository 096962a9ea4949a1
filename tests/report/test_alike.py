"""Similar test sets: participation ratio, tests over blocks, and sentences."""

import re
import types

import numpy as np
import pandas as pd
import pytest
from matplotlib import text

from jbias import report, stats
from jbias.report import plots
from jbias.report.pages.benchmark import prose
from tests import cases
from tests.report import test_figures, test_scores

UP = dict(larger_is_better=True)
SCORES = test_scores.EXAMPLES / "biasbed_table2.csv"


def write(path, scores):
    rows = [(f"m{j}", f"d{i}", score) for (i, j), score in np.ndenumerate(scores)]
    frame = pd.DataFrame(rows, columns=["algorithm", "dataset", "score"])
    frame.to_csv(path, index=False)
    return path


def repeated(effect=0.0):
    """Return scores of nine algorithms on ten data sets that repeat two."""
    rng = np.random.default_rng(2)
    scores = np.repeat(rng.normal(size=(2, 9)), [8, 2], axis=0)
    return 50 + 10 * scores + rng.normal(size=(10, 9)) + effect * np.arange(9)


@pytest.mark.slow
def test_the_published_scores_have_their_blocks(tmp_path):
    tree = test_scores.run(SCORES, tmp_path / "out", "--blocks=4")
    frame = pd.read_csv(SCORES).pivot(
        index="dataset", columns="algorithm", values="score"
    )
    frame = frame.loc[tree["datasets"], tree["algorithms"]]
    rows = {row["by"]: row for row in tree["blocked"]}
    assert rows["each data set"]["f"] == tree["friedman"]["p"]
    assert rows["each data set"]["whole"] == tree["permutation"]["p"]
    page = (tmp_path / "out/index.html").read_text()
    assert "Similar test sets" in page and "until 4 are left" in page
    members = pd.DataFrame(tree["dataset_blocks"]).set_index("dataset")
    for by, method in (("scores", "spearman"), ("deviations", "deviations")):
        blocks = stats.find_blocks(frame, blocks=4, method=method)
        test = stats.friedman_blocked(frame, blocks=blocks.labels, **UP)
        assert (1 + blocks.labels).tolist() == members.loc[frame.index, by].tolist()
        assert rows[by]["blocks"] == 4 and rows[by]["whole"] == test.pvalue
        assert rows[by]["f"] == pytest.approx(test.means.approximate.pvalue)
        assert rows[by]["means"] == test.means.pvalue
        assert f"{blocks.participation_ratio:.2f}" in page
        assert (tmp_path / f"out/figures/alike_by_{by}.svg").exists()


def test_a_conclusion_that_depends_on_repeated_sets_has_a_warning(tmp_path):
    tree = test_scores.run(write(tmp_path / "a.csv", repeated()), tmp_path / "out")
    rows = {row["by"]: row for row in tree["blocked"]}
    assert tree["permutation"]["p"] < 0.05 < rows["deviations"]["whole"]
    warnings = " ".join(tree["warnings"])
    (shown,) = re.findall(r"with 2 blocks by deviations, p = ([\d.]+)\.", warnings)
    assert float(shown) == pytest.approx(rows["deviations"]["whole"], abs=5e-4)
    assert sum("are counted as one block" in text for text in tree["caveats"]) == 2
    assert "blocks by scores" not in warnings


def changed_conclusions(p, *, least=0.001, rejects=True):
    """Return the sentences on a changed conclusion for a p over three blocks."""
    blocks = types.SimpleNamespace(count=3)
    test = types.SimpleNamespace(pvalue=p, least=least)
    analysed = types.SimpleNamespace(
        alpha=0.05, rejects=rejects, dataset_blocks={"scores": (blocks, test)}
    )
    return [*prose._changed_conclusions(analysed, ["scores"])]


def test_only_a_changed_conclusion_is_reported():
    assert changed_conclusions(0.06) and changed_conclusions(0.04, rejects=False)
    assert not changed_conclusions(0.05) and not changed_conclusions(
        0.06, rejects=False
    )
    # With an attainable p of 0.051, these blocks could not have rejected.
    assert not changed_conclusions(0.06, least=0.051)


@pytest.mark.slow
def test_a_single_block_leaves_no_test(tmp_path):
    path = write(tmp_path / "a.csv", np.arange(8) + np.arange(4)[:, None])
    tree = test_scores.run(path, tmp_path / "out")
    rows = {row["by"]: row for row in tree["blocked"]}
    assert (rows["scores"]["blocks"], rows["scores"]["whole"]) == (1, 1)
    assert rows["scores"]["f"] is rows["scores"]["means"] is None
    assert rows["deviations"]["blocks"] == 4
    assert "count together" not in " ".join(tree["caveats"])


def test_more_blocks_than_data_sets_are_refused(tmp_path, capsys):
    flags = [f"--scores={SCORES}", f"--out={tmp_path / 'out'}", "--blocks=11"]
    assert report.main(flags) == 2
    line = capsys.readouterr().err
    assert "blocks: must be from 1 to 10, the number of data sets, got 11" in line


@cases.each("n", [2, 12])
def test_correlations_are_legible_and_their_blocks_framed(n):
    names = [f"corrupted_uncorrelated_{i}" for i in range(n)]
    values = -np.ones((n, n)) + 2 * np.eye(n)
    labels = np.minimum(np.arange(n), 3)
    fig = plots.blocks(pd.DataFrame(values, names, names), labels)
    boxes = test_figures.boxes(fig)
    assert [*test_figures.overlapping(boxes)] == []
    test_figures.assert_whole(fig)
    sizes = [x.get_fontsize() for x in fig.findobj(text.Text) if x.get_text()]
    assert min(sizes) >= plots.SMALL
    frames = [(box.get_x() + 0.5, box.get_width()) for box in fig.axes[0].patches]
    assert frames == [(0, 1), (1, 1), (2, 1), (3, n - 3)][: len(set(labels))]
    assert {"1.00", "−1.00"} <= {word for word, _ in boxes}


def test_hundreds_of_data_sets_fit_a_screen():
    names = [f"set {i}" for i in range(200)]
    fig = plots.blocks(pd.DataFrame(np.eye(200), names, names), np.arange(200) // 50)
    assert fig.get_size_inches()[0] < 14
    assert len(fig.axes[0].patches) == 4


def test_only_cells_below_zero_have_a_minus():
    _, cells = plots.grid(1)
    plots.matrix(cells[0, 0], pd.DataFrame([[-0.001, -0.5, 0.0]]), form="{:.2f}")
    assert [text.get_text() for text in cells[0, 0].texts] == ["0.00", "−0.50", "0.00"]


def test_three_algorithms_have_no_correlation_of_sets(tmp_path):
    path = write(tmp_path / "a.csv", repeated()[:, :3])
    tree = test_scores.run(path, tmp_path / "out")
    assert "Similar test sets" not in (tmp_path / "out/index.html").read_text()
    assert "blocked" not in tree and "friedman" in tree
