"""Notes on scores that count twice, are constant, have two units, or are outliers."""

import itertools
import json
import math
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from jbias import report
from jbias.report import options
from jbias.report.pages.benchmark import derived, inputs, score_notes
from tests import cases
from tests.report import test_scores

EXAMPLES = test_scores.EXAMPLES
DEMSAR = """
adult,.763,.768,.771,.798
breast,.599,.591,.590,.569
wisconsin,.954,.971,.968,.967
cmc,.628,.661,.654,.657
ionosphere,.882,.888,.886,.898
iris,.936,.931,.916,.931
liver,.661,.668,.609,.685
lung,.583,.583,.563,.625
lymphography,.775,.838,.866,.875
mushroom,1,1,1,1
tumor,.940,.962,.965,.962
rheum,.619,.666,.614,.669
voting,.972,.981,.975,.975
wine,.957,.978,.946,.970
"""


def drawn(k, n, runs, *, digits=1, seed=0):
    """Return random scores (algorithms, data sets, runs), rounded."""
    rng = np.random.default_rng(seed)
    scores = 60 + rng.normal(0, 12, (1, n, 1)) + rng.normal(0, 2, (k, 1, 1))
    return np.round(scores + rng.normal(0, 3, (k, n, runs)), digits)


def frame(scores, **more):
    """Return a tidy frame of scores and of data sets that are computed from the scores."""
    k, n, runs = scores.shape
    rows = []
    for a, r in itertools.product(range(k), range(runs)):
        row = {f"D{d}": scores[a, d, r] for d in range(n)}
        row |= {name: make(scores[a, :, r]) for name, make in more.items()}
        rows += [(f"A{a}", name, str(r), value) for name, value in row.items()]
    return pd.DataFrame(rows, columns=["algorithm", "dataset", "seed", "value"])


def texts(items):
    return [(item.name, item.text) for item in items]


@cases.each(
    ("name", "make", "text"),
    [
        ("avg", np.mean, "the mean of D0, D1, D2 and D3"),
        ("X", np.mean, "the mean of D0, D1, D2 and D3"),
        ("OOD", lambda x: x[1:].mean(), "the mean of D1, D2 and D3"),
        ("some", lambda x: x[[0, 2]].mean(), "the mean of D0 and D2"),
        ("middle", np.median, "the median of D0, D1, D2 and D3"),
        ("total", np.sum, "the sum of D0, D1, D2 and D3"),
        ("again", lambda x: x[1], "a copy of D1"),
        ("error", lambda x: 100 - x[1], "100 less D1"),
        ("fraction", lambda x: x[1] / 100, "a hundredth of D1"),
        ("error rate", lambda x: 1 - x[1] / 100, "1 less a hundredth of D1"),
        ("H", lambda x: 2 / (1 / x[0] + 1 / x[1]), "the harmonic mean of D0 and D1"),
    ],
)
def test_a_data_set_made_of_others_is_named(name, make, text):
    """Its numbers decide, not its name; the numbers may be rounded."""
    digits = 3 if name in ("fraction", "error rate") else 1
    for rounded in (make, lambda x: round(float(make(x)), digits)):
        items = derived.of_datasets(frame(drawn(5, 4, 3), **{name: rounded}))
        assert texts(items) == [(name, text)]


@cases.each(
    ("make", "text"),
    [
        (lambda x: round(x, 1), "a copy of D1"),
        (lambda x: 100 - round(x, 1), "100 less D1"),
        (lambda x: round(x / 100, 3), "a hundredth of D1"),
        (lambda x: round(1 - x / 100, 3), "1 less a hundredth of D1"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_a_rounded_copy_is_named_before_and_after_the_exact_one(make, text, first):
    table = frame(drawn(5, 4, 3, digits=9), R=lambda x: make(float(x[1])))
    if first:
        table = table.sort_values("dataset", key=lambda names: names != "R")
    assert texts(derived.of_datasets(table)) == [("R", text)]


def test_a_weighted_mean_is_named_where_rows_determine_its_weights():
    weights = np.array([0.1, 0.2, 0.3, 0.4])
    table = frame(drawn(8, 4, 3), pooled=lambda x: round(float(x @ weights), 1))
    items = derived.of_datasets(table)
    assert texts(items) == [("pooled", "a weighted mean of D0, D1, D2 and D3")]
    images = np.array([100, 200, 300, 400])
    few = frame(drawn(3, 4, 1, digits=6), pooled=lambda x: x @ weights)
    few["n"] = few["dataset"].map({f"D{i}": n for i, n in enumerate(images)})
    few["n"] = few["n"].fillna(1000)
    (item,) = derived.of_datasets(few)
    assert (item.name, item.relation) == ("pooled", "the mean, weighted by images, of")


def test_two_means_in_one_table_are_both_named():
    table = frame(
        drawn(6, 5, 2),
        OOD=lambda x: round(x[1:].mean(), 1),
        avg=lambda x: round(x.mean(), 1),
        copy=lambda x: x[0],
    )
    assert [item.name for item in derived.of_datasets(table)] == ["OOD", "avg", "copy"]


def test_a_name_that_says_so_needs_little_evidence():
    """With two single runs, only a name such as Avg is enough; else it may be chance."""
    scores = drawn(2, 4, 1)
    items = derived.of_datasets(frame(scores, Avg=lambda x: round(x.mean(), 1)))
    assert [item.name for item in items] == ["Avg"]
    assert not derived.of_datasets(frame(scores, E=lambda x: round(x.mean(), 1)))
    assert not derived.of_datasets(frame(scores, Avg=lambda x: x.mean() + 1))


def test_an_algorithm_or_a_run_that_is_the_mean_of_others_is_named():
    scores = drawn(4, 6, 3, digits=2)
    more = scores[:3].mean(axis=0, keepdims=True).round(2)
    items = derived.of_algorithms(frame(np.concatenate([scores, more])))
    assert texts(items) == [("A4", "the mean of A0, A1 and A2")]
    one_run = np.concatenate([scores, more])[:, :, :1]
    items = derived.of_algorithms(frame(one_run))
    assert texts(items) == [("A4", "the mean of A0, A1 and A2")]
    runs = np.concatenate([scores, scores.mean(axis=2, keepdims=True)], axis=2)
    assert texts(derived.of_runs(frame(runs))) == [("3", "the mean of 0, 1 and 2")]
    assert not derived.of_runs(frame(scores))


@pytest.mark.slow
def test_ordinary_tables_raise_no_alarm():
    """Published and random tables of many sizes and precisions give no note."""
    for path in EXAMPLES.glob("*.csv"):
        table = pd.read_csv(path).dropna(subset="score")
        table = table.rename(columns={"score": "value"})
        table["seed"] = table["run"].astype(str) if "run" in table else ""
        assert not derived.of_datasets(table), path
        assert not derived.of_algorithms(table), path
        assert not [*score_notes.of_outliers(table)], path
        assert not [*score_notes.of_fractions(table)], path
    rng = np.random.default_rng(0)
    for seed in range(40):
        k, n = rng.integers(2, 10, 2)
        runs, digits = int(rng.choice([1, 3])), int(rng.choice([0, 1, 2, 12]))
        table = frame(drawn(k, n, runs, digits=digits, seed=seed))
        if seed % 4 == 0:  # Accuracies over few images.
            table["value"] = (table["value"].clip(1, 99) * 0.48).round() / 48
        items = derived.of_datasets(table) + derived.of_algorithms(table)
        assert not items + derived.of_runs(table), (seed, k, n, runs, digits)


@cases.each("huge", [1e10, 1e12, -1e15])
def test_a_huge_score_invents_no_relation_and_hides_none(huge):
    """The tolerance for rounding depends only on the compared numbers."""
    for seed in range(5):
        scores = drawn(5, 4, 3, seed=seed)
        with_derived = frame(
            scores, avg=lambda x: round(x.mean(), 1), copy=lambda x: x[1]
        )
        expected = texts(derived.of_datasets(with_derived))
        plain = frame(scores)
        assert [name for name, _ in expected] == ["avg", "copy"]
        for table, texts_of_datasets in ((with_derived, expected), (plain, [])):
            table.loc[table.index[0], "value"] = huge  # A0 on D0: no mean any more.
            relations = texts(derived.of_datasets(table))
            assert relations == [x for x in texts_of_datasets if x[0] == "copy"]
            assert not derived.of_algorithms(table) + derived.of_runs(table)
        with_cost = frame(
            scores,
            avg=lambda x: round(x.mean(), 1),
            cost=lambda x: huge * (1 + x.sum() % 1),
        )
        relations = dict(texts(derived.of_datasets(with_cost)))
        assert relations == {"avg": "the mean of D0, D1, D2 and D3"}


def write(path, table):
    names = {"seed": "run", "value": "score"}
    table.rename(columns=names).to_csv(path, index=False)
    return path


def test_the_command_and_the_page_name_a_mean_and_the_flag(tmp_path, capsys):
    """Without the mean, p has one factor 1 / 3! less."""
    scores = drawn(1, 4, 3) + np.array([0, -1.3, 0.4])[:, None, None]
    path = write(tmp_path / "s.csv", frame(scores, avg=np.mean))
    tree = test_scores.run(path, tmp_path / "out")
    line = "avg is the mean of D0, D1, D2 and D3 in every run"
    notes = [x for x in capsys.readouterr().out.splitlines() if x.startswith("note: ")]
    assert len(notes) == 1 and line in notes[0]
    assert notes[0].endswith("leave it out: --datasets=D0,D1,D2,D3")
    assert line in (tmp_path / "out" / "index.html").read_text()
    assert line in tree["caveats"][0]
    assert tree["derived"][0]["sources"] == ["D0", "D1", "D2", "D3"]
    assert tree["permutation"]["p"] == pytest.approx((1 / 6) ** 4)
    alone = test_scores.run(path, tmp_path / "alone", "--datasets=D0,D1,D2,D3")
    assert alone["permutation"]["p"] == pytest.approx((1 / 6) ** 3)
    assert alone["derived"] == [] and "note:" not in capsys.readouterr().out


def test_a_row_of_equal_scores_is_ranked_with_ties(tmp_path):
    """Demsar (2006), table of AUC: the four tie on mushroom; scipy has chi2."""
    lines = [line.split(",") for line in DEMSAR.split()]
    rows = [(f"C{j}", d, float(x)) for d, *xs in lines for j, x in enumerate(xs)]
    path = tmp_path / "s.csv"
    names = ["algorithm", "dataset", "score"]
    pd.DataFrame(rows, columns=names).to_csv(path, index=False)
    tree = test_scores.run(path, tmp_path / "out")
    matrix = np.array([xs for _, *xs in lines], float)
    chi2 = scipy.stats.friedmanchisquare(*matrix.T).statistic
    assert tree["friedman"]["chi2"] == pytest.approx(chi2)
    assert tree["friedman"]["F"] == pytest.approx(13 * chi2 / (14 * 3 - chi2))
    ranks = scipy.stats.rankdata(-matrix, axis=1).mean(axis=0)
    assert [*tree["friedman"]["mean_ranks"].values()] == pytest.approx(ranks)
    assert any("equal of the data set mushroom (1)" in x for x in tree["caveats"])


@pytest.mark.slow
@cases.each("kind", ["algorithm", "dataset", "both", "all", "runs"], quick=("both",))
def test_equal_scores_are_a_note_and_no_refusal(kind, tmp_path):
    scores = drawn(3, 4, 3)
    if kind in ("algorithm", "both"):
        scores[0] = 25
    if kind in ("dataset", "both"):
        scores[:, 1] = 25
    if kind == "all":
        scores[:] = 25
    if kind == "runs":
        scores[:] = scores[:, :, :1]
    path = write(tmp_path / "s.csv", frame(scores))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        tree = test_scores.run(path, tmp_path / f"out-{kind}")
    means = scores.mean(axis=2).round(12)
    ranks = scipy.stats.rankdata(-means, axis=0).mean(axis=1)
    assert [*tree["friedman"]["mean_ranks"].values()] == pytest.approx(ranks)
    caveats = " ".join(tree["caveats"])
    assert ("All scores are equal of the data set" in caveats) == (
        kind in ("dataset", "both", "all")
    )
    assert ("All scores are equal of the algorithm" in caveats) == (
        kind in ("algorithm", "both", "all")
    )


def test_small_percentages_beside_large_ones_are_ranked(tmp_path, capsys):
    """Under attack the accuracy of an undefended network is almost 0 %."""
    names = ("Undefended", "AT", "TRADES", "MART")
    rows = [(0.3, 53.1, 56.2, 56.3), (0.1, 69.2, 71.0, 70.4), (0.0, 26.9, 28.1, 27.7)]
    rows.append((0.2, 34.9, 30.1, 31.0))
    table = pd.DataFrame(rows, columns=names).rename_axis("dataset").reset_index()
    table = table.melt("dataset", var_name="algorithm", value_name="score")
    table.to_csv(tmp_path / "s.csv", index=False)
    tree = test_scores.run(tmp_path / "s.csv", tmp_path / "out")
    assert tree["friedman"]["F"] == pytest.approx(6.231, abs=5e-4)
    assert "The scores of Undefended are all at most 1" in capsys.readouterr().out


def test_what_is_certainly_of_two_units_is_refused(tmp_path):
    """One run, or two of three runs, may have another unit than the others."""
    scores = drawn(3, 4, 3)
    for runs in ([1], [0, 2]):
        mixed = scores.copy()
        mixed[0][:, runs] /= 100
        path = write(tmp_path / "s.csv", frame(mixed))
        with pytest.raises(
            ValueError, match="scores must not mix fractions and percent"
        ):
            inputs.from_scores(str(path), options.Options())
    write(tmp_path / "s.csv", frame(scores / 100))
    study = inputs.from_scores(str(tmp_path / "s.csv"), options.Options())
    assert study.warnings == ()


@pytest.mark.slow
def test_small_percentages_like_fractions_need_their_unit(tmp_path, capsys):
    """0.6 to 0.9 % among 60 to 90 %: with --unit the ranks agree with scipy."""
    rng = np.random.default_rng(0)
    scores = np.round(rng.uniform(60, 90, (4, 5, 3)), 1)
    scores[1] = np.round(rng.uniform(0.6, 0.9, (5, 3)), 2)
    path = write(tmp_path / "s.csv", frame(scores))
    with pytest.raises(
        ValueError, match="or say that all are in percent: --unit=percent"
    ):
        inputs.from_scores(str(path), options.Options())
    tree = test_scores.run(path, tmp_path / "out", "--unit=percent")
    assert "The scores of A1 are all at most 1" in capsys.readouterr().out
    ranks = scipy.stats.rankdata(-scores.mean(axis=2).round(9), axis=0).mean(axis=1)
    assert [*tree["friedman"]["mean_ranks"].values()] == pytest.approx(ranks)


@cases.each(
    ("score", "shown"),
    [(1e8, "1e8"), (-1e8, "-1e8"), (0.5063, "0.5063"), (5063, "5063")],
)
def test_a_score_far_from_all_others_is_named(score, shown):
    scores = drawn(3, 5, 1)
    scores[2, 0, 0] = score
    low, high = np.sort(scores[:2, 0, 0])
    (text,) = score_notes.of_outliers(frame(scores))
    start = f"A2 on D0: {shown}, while the other scores of D0 are between {low:g} and {high:g}; "
    assert text.startswith(start)


def test_scores_of_other_sizes_are_no_outliers():
    """A data set, an algorithm or a whole table may have another scale."""
    scores = drawn(4, 5, 2)
    scores[:, 0] *= 1000
    assert not [*score_notes.of_outliers(frame(scores))]
    scores = drawn(4, 5, 2)
    scores[0] = 0.3
    assert not [*score_notes.of_outliers(frame(scores))]
    assert not [*score_notes.of_outliers(frame(scores / 100))]


def test_signed_scores_near_zero_are_no_outliers():
    """Gains over a baseline of -0.4 and 0.02 points among gains of 2 to 12."""
    rng = np.random.default_rng(0)
    scores = np.round(rng.uniform(2, 12, (4, 5, 1)), 1)
    scores[0, 0], scores[1, 1], scores[2, 1] = -0.4, -3.0, 0.02
    assert not [*score_notes.of_outliers(frame(scores))]
    scores = np.round(rng.uniform(-5, 5, (4, 5, 1)), 1)
    assert not [*score_notes.of_outliers(frame(scores))]
    scores[3, 2] = 1e8
    (text,) = score_notes.of_outliers(frame(scores))
    assert text.startswith("A3 on D2: 1e8, ")


@cases.each("size", [3e307, 1e76, 1e-200])
def test_scores_whose_squares_are_no_floats_are_refused_by_cell(size, tmp_path, capsys):
    path = write(tmp_path / "s.csv", frame(drawn(2, 4, 3) / 60 * size))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        line = test_scores.refused(capsys, path, tmp_path / "out")
    assert "A0 on D" in line or "A1 on D" in line
    assert "squares" in line


@pytest.mark.slow
def test_scores_of_any_other_size_are_reported(tmp_path):
    for size in (1e72, 1e-73):
        path = write(tmp_path / "s.csv", frame(drawn(3, 4, 3) * size))
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            assert report.main([f"--scores={path}", f"--out={tmp_path / 'out'}"]) == 0
        tree = json.loads((tmp_path / "out" / "results.json").read_text())
        assert math.isfinite(tree["friedman"]["F"])
