"""Margins of tables, such as All of pandas, are neither algorithms nor data sets."""

import pytest

from jbias import scores
from tests import cases
from tests.scores.test_headers import METHODS, SETS, runs, source_of, write


def with_margins(statistics="mean", **options):
    """Return means with margins over all rows, of which ERM has fewer than the others."""
    return (
        runs()
        .iloc[2:]
        .pivot_table(
            index="method",
            columns="dataset",
            values="acc",
            aggfunc=statistics,
            margins=True,
            **options,
        )
    )


FORMS = {
    "means": with_margins,
    "means and deviations": lambda: with_margins(["mean", "std"]),
    "another name": lambda: with_margins(margins_name="Total"),
    "an average": lambda: with_margins(margins_name="Average"),
    "sums": lambda: with_margins("sum"),
    "data sets in rows": lambda: with_margins().T,
    "long": lambda: with_margins().stack().to_frame("acc"),
}


@cases.each("form", FORMS)
@cases.each("ending", ["csv", "xlsx", "frame"])
def test_margins_of_pandas_are_left_out_with_a_line(tmp_path, form, ending):
    source = source_of(FORMS[form](), ending, tmp_path)
    reading = scores.read(source)
    assert set(reading.tidy["algorithm"]) == set(METHODS)
    assert set(reading.tidy["dataset"]) == set(SETS)
    assert "margins=keep keeps it" in reading.description[2]
    every = scores.read(source, margins="keep").tidy
    assert every["algorithm"].nunique() == 4 and every["dataset"].nunique() == 5


@cases.each("axis", [0, 1])
def test_a_margin_of_one_axis_has_two_readings(tmp_path, axis):
    """With unequal numbers of seeds it is only near the mean of the others."""
    frame = with_margins().drop("All", axis=axis)
    path = write(frame, tmp_path / "t.csv")
    with pytest.raises(
        scores.UnclearError, match="--margins=ignore or --margins=keep"
    ) as refusal:
        scores.read(path)
    assert ("data sets" if axis == 0 else "algorithms") in str(refusal.value)
    tidy = scores.read(path, margins="ignore").tidy
    assert set(tidy["algorithm"]) == set(METHODS) and set(tidy["dataset"]) == set(SETS)


@cases.each("name", ["Average", "All", "mean"])
def test_a_method_with_the_name_of_a_margin_is_one_where_its_scores_say_so(
    tmp_path, name
):
    """An average of models is better than each model; All combines all parts of a method."""
    path = tmp_path / "t.csv"
    path.write_text(f"method,PACS,VLCS\nERM,80.5,70\nRSC,81,72\n{name},85,76\n")
    assert name in set(scores.read(path).tidy["algorithm"])
    path.write_text(f"method,PACS,VLCS\nERM,80.5,70\nRSC,82.5,72\n{name},81.4,71\n")
    with pytest.raises(scores.UnclearError, match="or an algorithm of that name"):
        scores.read(path)
    assert name in set(scores.read(path, margins="keep").tidy["algorithm"])


@cases.each("margin", ["Total,141,121", "Average,70.7,60.7"])
@cases.each("place", [0, 1, 2])
@cases.each("is_turned", [False, True])
def test_a_sum_or_a_mean_at_any_place_has_two_readings(
    tmp_path, margin, place, is_turned
):
    """All of pandas is not the last once the rows are sorted."""
    lines = ["ERM,70,60", "RSC,71,61"]
    lines.insert(place, margin)
    axis = "dataset" if is_turned else "method"
    path = tmp_path / "t.csv"
    path.write_text("\n".join([f"{axis},x,y", *lines]))
    with pytest.raises(scores.UnclearError, match="the mean or sum of the other"):
        scores.read(path)
    tidy = scores.read(path, margins="ignore").tidy
    assert tidy["score"].tolist() == [70, 60, 71, 61]


def test_margins_of_sorted_rows_and_columns_are_left_out():
    frame = with_margins().rename(columns={"VLCS": "Art"}, index={"RSC": "ADA"})
    tidy = scores.read(frame.sort_index(axis=0).sort_index(axis=1)).tidy
    assert "All" not in {*tidy["algorithm"], *tidy["dataset"]}


def test_a_printed_average_over_data_sets_is_kept(tmp_path):
    """The report notes it, with the flag that leaves it out."""
    path = tmp_path / "t.csv"
    path.write_text(
        "method,PACS,VLCS,DN,Avg\nERM,80.5,70,40.2,63.6\nRSC,81,72,41,64.7\n"
    )
    assert "Avg" in set(scores.read(path).tidy["dataset"])
    path.write_text("method,PACS,Overall,VLCS\nERM,80.5,71,70\nRSC,81,72,73\n")
    assert "Overall" in set(scores.read(path).tidy["dataset"])
