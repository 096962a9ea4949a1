"""Tables of scores: all forms give the same table, and invalid ones raise errors."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from jbias import stats
from jbias.stats import score_table
from tests import cases

N, K, R = 5, 3, 4


@pytest.fixture
def array():
    return np.random.default_rng(0).normal(size=(N, K, R))


def tidy(array, algorithms="abc", datasets="vwxyz"):
    cells = np.ndindex(array.shape)
    rows = [(algorithms[j], datasets[i], r, array[i, j, r]) for i, j, r in cells]
    return pd.DataFrame(rows, columns=["algorithm", "dataset", "run", "score"])


def test_all_forms_give_the_same_table(array):
    frame = tidy(array).sample(frac=1, random_state=1)
    table = score_table.read(frame).only(datasets="vwxyz", algorithms="abc")
    np.testing.assert_allclose(table.means, array.mean(axis=2), rtol=1e-12)
    np.testing.assert_allclose(table.stds, array.std(axis=2, ddof=1), rtol=1e-12)
    assert table.counts.tolist() == [R] * K
    means = array.mean(axis=2)
    named = pd.DataFrame(means, index=list("vwxyz"), columns=list("abc"))
    for matrix, axis in [(means, 1), (means.T, 0), (named, 1), (named.T, 0)]:
        np.testing.assert_array_equal(score_table.read(matrix, axis=axis).means, means)
        read = score_table.read(matrix, axis=axis)
        result = stats.friedman(read, larger_is_better=True)
        expected = stats.friedman(frame, larger_is_better=True)
        assert result.pvalue == pytest.approx(expected.pvalue)
    assert score_table.read(named).algorithms == ("a", "b", "c")


def test_algorithms_may_have_different_numbers_of_runs(array):
    frame = tidy(array)
    frame = frame[(frame["algorithm"] != "b") | (frame["run"] > 1)]
    table = score_table.read(frame)
    assert table.counts.tolist() == [R, R - 2, R]
    np.testing.assert_allclose(table.runs("b"), array[:, 1, 2:])
    np.testing.assert_allclose(table.means[:, 1], array[:, 1, 2:].mean(axis=1))


def test_missing_cells_are_listed_and_dropped_only_if_asked(array):
    frame = tidy(array)
    is_missing = (
        (frame["algorithm"] == "b") & (frame["dataset"] == "x") & (frame["run"] == 2)
    )
    with pytest.raises(ValueError, match="got none for b on x; fill the cells or"):
        score_table.read(frame[~is_missing])
    for drop, shape in [
        ("datasets", (N - 1, K, R)),
        ("algorithms", (N, K - 1, R)),
        ("runs", (N, K, R)),
    ]:
        left = score_table.read(
            score_table.drop_incomplete(frame[~is_missing], drop=drop)
        )
        assert left.values.shape == shape
    assert left.counts.tolist() == [R, R - 1, R]
    with pytest.raises(ValueError, match="drop: must be"):
        score_table.drop_incomplete(frame, drop="cells")


def test_runs_may_have_no_names(array):
    frame = tidy(array[:, :, :1]).drop(columns="run")
    assert score_table.read(frame).values.shape == (N, K, 1)
    is_missing = (frame["algorithm"] == "b") & (frame["dataset"] != "x")
    with pytest.raises(
        ValueError, match="got none for b on v; b on w; b on y; b on z;"
    ):
        score_table.read(frame[~is_missing])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_scores_that_are_not_finite_are_refused(array, value):
    array[2, 1, 0] = value
    with pytest.raises(ValueError, match="scores: .* finite"):
        score_table.read(tidy(array))
    if np.isnan(value):
        with pytest.raises(ValueError, match="none for 1 on 2"):
            score_table.read(array[:, :, 0])


def test_refuses_doubled_cells_and_tables_too_small(array):
    frame = tidy(array)
    with pytest.raises(ValueError, match="must occur once, got 2 rows .* a, v, 0;"):
        score_table.read(pd.concat([frame, frame.iloc[:1]]))
    with pytest.raises(ValueError, match="must occur once"):
        score_table.read(frame.drop(columns="run"))
    for small in (frame[frame["algorithm"] == "a"], frame[frame["dataset"] == "v"]):
        with pytest.raises(ValueError, match="at least 2 data sets"):
            score_table.read(small)
    with pytest.raises(ValueError, match="axis: must be 0 or 1"):
        score_table.read(array, axis=2)
    with pytest.raises(ValueError, match="algorithm: must be one of a, b, c, got 'd'"):
        score_table.read(frame).runs("d")


def test_runs_of_algorithms_with_numbers_for_names(array):
    frame = tidy(array, algorithms=(1, 2, 3))
    left = score_table.drop_incomplete(frame.iloc[1:], drop="runs")
    table = score_table.read(left)
    assert table.algorithms == ("1", "2", "3")
    assert table.counts.tolist() == [R - 1, R, R]


@pytest.mark.parametrize("axis", [0, 1])
def test_a_matrix_with_swapped_axis_names_is_refused(array, axis):
    means = pd.DataFrame(array.mean(axis=2), index=list("vwxyz"), columns=list("abc"))
    for sets, methods in [
        ("dataset", "algorithm"),
        ("Test set", None),
        (None, "method"),
    ]:
        named = means.rename_axis(index=sets, columns=methods)
        right, wrong = (named, named.T) if axis == 1 else (named.T, named)
        expected = means.to_numpy()
        np.testing.assert_array_equal(
            score_table.read(right, axis=axis).means, expected
        )
        message = f"scores: with axis={axis} .*{methods or sets}.*; give .*read.scores, axis={1 - axis}"
        with pytest.raises(ValueError, match=message):
            score_table.read(wrong, axis=axis)
    unknown_names = means.rename_axis(index="picture", columns="network")
    assert score_table.read(unknown_names).algorithms == ("a", "b", "c")


@cases.each(
    "names",
    [
        {"algorithm": "method"},
        {"algorithm": "Model", "dataset": "Data Set", "score": "accuracy"},
        {"run": "seed", "score": "top1", "dataset": "test domain"},
    ],
)
def test_a_tidy_frame_with_other_names_is_read_as_one(array, names):
    plain = score_table.read(tidy(array))
    renamed = score_table.read(tidy(array).rename(columns=names))
    np.testing.assert_array_equal(renamed.values, plain.values)
    assert (renamed.datasets, renamed.algorithms) == (plain.datasets, plain.algorithms)


def test_a_column_with_an_unknown_name_is_refused(array):
    with pytest.raises(ValueError, match="must name the algorithms, got who, dataset"):
        score_table.read(tidy(array).rename(columns={"algorithm": "who"}))


def test_a_matrix_with_its_data_sets_in_a_column_is_read(array):
    means = pd.DataFrame(array.mean(axis=2), index=list("vwxyz"), columns=list("abc"))
    table = score_table.read(means.rename_axis("dataset").reset_index())
    assert (table.datasets, table.algorithms) == (tuple("vwxyz"), tuple("abc"))
    np.testing.assert_allclose(table.means, means)


@cases.each("value", ["71 %", 1j, {"erm": [1, 2]}, [[1, 2], [3]]])
def test_scores_that_are_no_numbers_are_refused(value):
    frame = pd.DataFrame({"algorithm": [*"ab"] * 2, "dataset": [*"xxyy"], "score": 1.0})
    scores = frame.assign(score=value) if isinstance(value, str | complex) else value
    with pytest.raises(ValueError, match="^scores: a score must be a real number"):
        score_table.read(scores)


@pytest.mark.parametrize("name", ["algorithm", "dataset"])
def test_a_row_without_a_name_is_refused(name):
    frame = pd.DataFrame({"algorithm": [*"ab"] * 2, "dataset": [*"xxyy"], "score": 1.0})
    with pytest.raises(ValueError, match=f"{name} must be named in every row"):
        score_table.read(frame.assign(**{name: [None, "a", "b", "c"]}))


def runs_by_method():
    """Return an array (methods, seeds, data sets) of distinct scores."""
    return np.random.default_rng(0).normal(60, 5, (3, 4, 5))


def frame_of_levels(**names):
    """Return rows (method, seed) and a column a data set; `names` rename the levels."""
    values = runs_by_method()
    rows = pd.MultiIndex.from_product(
        [["ERM", "SagNet", "pAdaIN"], range(4)],
        names=names.get("rows", ["method", "seed"]),
    )
    columns = pd.Index([f"D{i}" for i in range(5)], name=names.get("columns"))
    return pd.DataFrame(values.reshape(12, 5), index=rows, columns=columns)


FORMS = {
    "rows of method and seed": lambda frame: frame,
    "the other way round": lambda frame: frame.T,
    "levels swapped": lambda frame: frame.swaplevel(),
    "seeds beside data sets": lambda frame: frame.rename_axis(
        columns="dataset"
    ).unstack("seed"),
    "a series": lambda frame: frame.rename_axis(columns="dataset").stack(),
    "a column of scores": lambda frame: (
        frame.rename_axis(columns="dataset").stack().to_frame("accuracy")
    ),
}


@cases.each("form", FORMS)
def test_a_frame_with_levels_is_read_by_their_names(form):
    """Means of methods and data sets are those of the array; seeds are runs."""
    table = score_table.read(FORMS[form](frame_of_levels()))
    assert set(table.algorithms) == {"ERM", "SagNet", "pAdaIN"}
    assert set(table.datasets) == {f"D{i}" for i in range(5)}
    table = table.only(
        datasets=[f"D{i}" for i in range(5)], algorithms=["ERM", "SagNet", "pAdaIN"]
    )
    assert (table.counts == 4).all()
    np.testing.assert_allclose(table.means, runs_by_method().mean(axis=1).T)


@cases.each(
    "names",
    [
        dict(rows=[None, None]),
        dict(rows=["method", "optimiser"]),
        dict(columns="metric"),
        dict(rows=["seed", "fold"]),
    ],
)
def test_a_frame_with_ambiguous_levels_is_refused(names):
    with pytest.raises(ValueError, match="must call them algorithm, dataset and run"):
        score_table.read(frame_of_levels(**names))


def test_a_masked_score_is_a_missing_one():
    values = np.ma.masked_greater(runs_by_method().mean(axis=1).T, 62)
    with pytest.raises(ValueError, match="got none for"):
        score_table.read(values)


@cases.each("value", [True, "50_63", "high", 1j, np.datetime64("2020-01-01")])
def test_matrices_with_other_values_than_real_numbers_are_refused(value):
    frame = pd.DataFrame({"A": [50.0, 51.0], "B": [value, value]}, dtype=object)
    with pytest.raises(ValueError, match="must be a (finite|real) number|may be"):
        score_table.read(frame)


@cases.each("name", ["seed", "run", "fold", "id", "Unnamed: 0"])
def test_a_column_of_numbers_that_are_no_scores_is_no_algorithm(name):
    frame = pd.DataFrame({name: [0, 1, 2], "A": [1.0, 2, 3], "B": [2.0, 3, 5]})
    with pytest.raises(ValueError, match="must contain only scores|a column must name"):
        score_table.read(frame)


@cases.each(
    ("name", "values"),
    [
        ("seed", [17, 42, 1234]),
        ("seed", [17, 17, 42]),
        ("run", [1, 1, 1]),
        ("fold", [0, 1, 0]),
        ("train_id", [3, 1, 2]),
        ("Index", [5, 6, 7]),
        ("method", [0, 1, 2]),
    ],
)
def test_whole_numbers_with_a_name_of_bookkeeping_are_no_scores(name, values):
    """This holds for columns and rows next to scores with one decimal."""
    frame = pd.DataFrame({"A": [61.3, 72.4, 58.9], name: values, "B": [60.2, 70.0, 59]})
    for matrix in (frame, frame.T):
        with pytest.raises(
            ValueError, match=f"row or column '{name}' of whole numbers"
        ):
            score_table.read(matrix)


@cases.each(
    "name", ["ID", "in_id", "train_id", "test_set", "fold", "method", "Index", "seed"]
)
def test_scores_may_have_a_name_of_bookkeeping(name):
    """Decided by values: ID next to OOD is a data set in whole per cents."""
    frame = pd.DataFrame({"A": [61.3, 72.4], name: [60.0, 70.1], "B": [60.2, 70.5]})
    assert score_table.read(frame).algorithms == ("A", name, "B")
    assert score_table.read(frame.T).datasets == ("A", name, "B")
    if "id" in name.lower().split("_"):
        frame = pd.DataFrame({name: [90, 85], "Near-OOD": [61, 64], "B": [40, 43]})
        assert score_table.read(frame.T).datasets == (name, "Near-OOD", "B")
        with pytest.raises(ValueError, match="must contain only scores"):
            score_table.read(frame.assign(**{name: [1, 0]}))


@cases.each("name", ["score", "data", "accuracy"])
def test_a_data_set_may_have_the_name_of_a_column(name):
    frame = pd.DataFrame({"A": [1.0, 2], "B": [2.0, 1]}, index=[name, "photo"])
    assert score_table.read(frame).datasets == (name, "photo")


@cases.each("names", [["A", "A "], [1, "1"], ["A", None], ["A", np.nan], ["A", ""]])
def test_indistinguishable_names_are_refused(names):
    frame = pd.DataFrame([[1.0, 2], [2, 1]], index=["photo", "edge"], columns=names)
    with pytest.raises(ValueError, match="must occur once|must be named"):
        score_table.read(frame)


def test_a_run_without_any_score_is_not_dropped_silently():
    frame = frame_of_levels()
    frame.loc[("ERM", 2)] = np.nan
    with pytest.raises(ValueError, match="run '2' of ERM has no score"):
        score_table.read(frame)


@cases.each("columns", [["algorithm"], ["dataset", "run"], ["run"]])
def test_a_frame_with_runs_may_lack_runs_but_no_data_set_and_no_algorithm(columns):
    """Rows, or columns, are the runs of all algorithms: an algorithm may have fewer."""
    scores = frame_of_levels().rename_axis(
        index=["algorithm", "run"], columns="dataset"
    )
    scores = scores.stack().sort_index()
    fewer = scores.copy()
    fewer.loc[("ERM", 2)] = np.nan
    counts = dict(
        zip(
            score_table.read(fewer.unstack(columns)).algorithms,
            score_table.read(fewer.unstack(columns)).counts.tolist(),
            strict=True,
        )
    )
    assert counts == {"ERM": 3, "SagNet": 4, "pAdaIN": 4}
    without = scores.copy()
    without.loc["ERM"] = np.nan
    with pytest.raises(ValueError, match="got none for ERM on D0; ERM on D1"):
        score_table.read(without.unstack(columns))
    without = scores.copy()
    without[without.index.get_level_values("dataset") == "D3"] = np.nan
    with pytest.raises(ValueError, match="none for ERM on D3; SagNet on D3"):
        score_table.read(without.unstack(columns))


def test_runs_are_paired_by_name_in_any_order_of_rows(array):
    """Run r of all algorithms has the same name; the paired test pairs these runs."""
    frame = tidy(array)
    options = dict(larger_is_better=True, rope=0.1, paired=True)
    expected = stats.correlated_t(frame, **options).better
    differences = array[:, 0] - array[:, 1]
    for seed in range(4):
        table = score_table.read(frame.sample(frac=1, random_state=seed)).only(
            datasets="vwxyz", algorithms="abc"
        )
        result = np.sort(table.values[:, 0] - table.values[:, 1], axis=1)
        np.testing.assert_allclose(result, np.sort(differences, axis=1))
        better = stats.correlated_t(table, **options).better
        np.testing.assert_allclose(better, expected)


def test_runs_to_drop_are_found_in_any_order_of_rows(array):
    """The cell of run 2 of b is missing: only that run is dropped."""
    frame = tidy(array)
    is_missing = (
        (frame["algorithm"] == "b") & (frame["dataset"] == "x") & (frame["run"] == 2)
    )
    is_run = (frame["algorithm"] == "b") & (frame["run"] == 2)
    for seed in range(4):
        shuffled = frame[~is_missing].sample(frac=1, random_state=seed)
        remaining = score_table.drop_incomplete(shuffled, drop="runs")
        pd.testing.assert_frame_equal(remaining.sort_index(), frame[~is_run])


SCALARS = {
    "JAX": jnp.float32,
    "JAX's bfloat16": jnp.bfloat16,
    "integers of JAX": jnp.int32,
    "means of JAX": lambda x: jnp.mean(jnp.asarray(x)),
    "NumPy": np.float32,
    "arrays without axes": np.array,
}


@cases.each("kind", SCALARS)
def test_scalars_of_array_libraries_are_read(kind):
    """Scalars are read from lists, from frames and from a tidy column."""
    matrix = np.array([[1.0, 2, 4], [8, 16, 32]])
    rows = [[SCALARS[kind](x) for x in row] for row in matrix]
    for scores in (rows, pd.DataFrame(rows)):
        np.testing.assert_array_equal(score_table.read(scores).means, matrix)
    tidy_rows = [
        {"algorithm": j, "dataset": i, "score": rows[i][j]}
        for i, j in np.ndindex(matrix.shape)
    ]
    table = score_table.read(pd.DataFrame(tidy_rows))
    np.testing.assert_array_equal(table.means, matrix)
    rows[0][1] = SCALARS["means of JAX"](np.nan)
    with pytest.raises(ValueError, match="got none for 1 on 0"):
        score_table.read(rows)


@cases.each(
    "value",
    [
        jnp.bool_(True),
        jnp.complex64(1j),
        np.array(True),
        np.array("high"),
        np.array(np.datetime64("2020-01-01", "ns")),
        jnp.ones(2),
    ],
)
def test_scalars_that_are_no_real_numbers_are_refused(value):
    frame = pd.DataFrame({"A": [50.0, 51.0], "B": [2.0, 1.0]}, dtype=object)
    frame.iat[0, 1] = value
    with pytest.raises(ValueError, match="a score must be a real number"):
        score_table.read(frame)


def as_tidy():
    """Return a tidy frame of three algorithms, five data sets and four runs."""
    scores = frame_of_levels().rename_axis(
        index=["algorithm", "run"], columns="dataset"
    )
    return scores.stack().rename("score").reset_index()


PIVOTS = {
    "pivoted, all columns": lambda frame: frame.pivot(
        index=["dataset", "run"], columns="algorithm"
    ),
    "pivoted, a list of values": lambda frame: frame.pivot_table(
        index="dataset", columns="algorithm", values=["score"]
    ),
    "pivoted, another metric": lambda frame: frame.rename(
        columns={"score": "top1"}
    ).pivot_table(index="dataset", columns=["algorithm", "run"], values=["top1"]),
    "two levels beside runs": lambda frame: frame.set_index(["algorithm", "dataset"]),
    "two levels beside seeds": lambda frame: frame.rename(
        columns={"run": "seed", "score": "accuracy"}
    ).set_index(["dataset", "algorithm"]),
    "one level": lambda frame: frame.set_index("dataset"),
    "one column": lambda frame: frame.set_index(["algorithm", "dataset", "run"]),
    "a constant level": lambda frame: frame.assign(optimiser="sgd").set_index(
        ["algorithm", "dataset", "run", "optimiser"]
    ),
}


@cases.each("form", PIVOTS)
def test_a_frame_of_pivot_and_of_set_index_is_read(form):
    table = score_table.read(PIVOTS[form](as_tidy()))
    table = table.only(
        datasets=[f"D{i}" for i in range(5)], algorithms=["ERM", "SagNet", "pAdaIN"]
    )
    is_averaged = form == "pivoted, a list of values"
    assert (table.counts == (1 if is_averaged else 4)).all()
    np.testing.assert_allclose(table.means, runs_by_method().mean(axis=1).T)


def test_two_metrics_in_one_frame_are_refused():
    frame = as_tidy().assign(loss=1.0)
    for form in ("pivoted, all columns", "two levels beside runs"):
        with pytest.raises(ValueError, match="must call them algorithm, dataset"):
            score_table.read(PIVOTS[form](frame))


def test_runs_keep_their_names_in_the_order_of_their_scores():
    """The rows of one algorithm are in another order; names stay with their scores."""
    frame = as_tidy()
    reordered = pd.concat([frame[frame["algorithm"] != "RSC"], frame[::-1]])
    table = score_table.read(reordered.drop_duplicates(["algorithm", "dataset", "run"]))
    for j, algorithm in enumerate(table.algorithms):
        for r, run in enumerate(table.run_names[j]):
            cells = frame[
                (frame["algorithm"] == algorithm) & (frame["run"] == int(run))
            ]
            expected = cells.set_index("dataset")["score"][list(table.datasets)]
            np.testing.assert_array_equal(table.values[:, j, r], expected)


def test_tests_over_data_sets_refuse_a_table_of_one():
    """This also holds if the table is a part of a larger one."""
    table = score_table.read(as_tidy()).only(datasets=["D0"])
    for test in (stats.friedman, stats.nemenyi):
        with pytest.raises(ValueError, match="at least 2 data sets"):
            test(table, larger_is_better=True)
    assert stats.compare_seeds(table, larger_is_better=True).tests
