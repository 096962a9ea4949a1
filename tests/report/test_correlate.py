"""`jbias report correlate`: numbers, files, figures and errors."""

import csv
import json
import pathlib

import numpy as np
import pandas as pd
import pytest

from jbias.report import correlate, document
from jbias.report.pages.correlations import (
    correlation_plots,
    correlations_page,
    model_correlations,
)
from jbias.stats import correlation
from tests import cases
from tests.report import test_figures

TABLE = pathlib.Path(__file__).parents[2] / "examples" / "published" / "biases.csv"
X, Y = ("shape", "cb_bw"), ("ID", "Adversarial")
FLAGS = (
    "--x=shape,cb_bw",
    "--y=ID,Adversarial",
    "--category=training",
    "--permutations=199",
)


def run(out, *options, table=TABLE):
    return correlate.main([f"--table={table}", f"--out={out}", *FLAGS, *options])


@pytest.fixture(scope="module")
def study():
    options = model_correlations.CorrelationOptions(
        x=X,
        y=Y,
        category="training",
        among=(("imagenet", "pgd", "imagenet_r"),),
        split="adversarial_training",
        size="epsilon",
        permutations=199,
    )
    frame = correlate.read(str(TABLE), options.measures, "training", "epsilon")
    return model_correlations.analyse(frame, options, source="biases.csv")


def test_numbers_match_the_statistics(study):
    assert [family.n for family in study.families.values()] == [48, 15, 33]
    frame = study.frame[study.frame["training"] != "adversarial_training"]
    expected = correlation.pairwise_matrix(frame, X, Y, permutations=199)
    rows = study.pairs[study.pairs["models"] == "not adversarial_training"]
    for row in rows.itertuples():
        for name in ("statistic", "pvalue", "holm", "bh"):
            assert getattr(row, name) == getattr(expected, name).loc[row.x, row.y]
        assert row.low < row.statistic < row.high
        assert -1 <= row.partial <= 1
    # One category alone has nothing to control for.
    alone = study.pairs[study.pairs["models"] == "adversarial_training"]
    assert alone["partial"].isna().all()


@pytest.mark.slow
def test_writes_a_page_tables_figures_and_numbers(tmp_path, capsys):
    args = "--among=imagenet,pgd", "--size=epsilon", "--figures=pdf"
    assert run(tmp_path, *args) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"written: {tmp_path / 'index.html'}"
    report = json.loads((tmp_path / "results.json").read_text())
    assert report["headline"] == lines[0]
    with open(tmp_path / "tables" / "correlations.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(r["statistic"]) for r in rows] == pytest.approx(
        [r["statistic"] for r in report["correlations"]]
    )
    page = (tmp_path / "index.html").read_text()
    assert page.count("<svg") == 3
    assert "http" not in page.replace("http://www.w3.org", "").replace("http-equiv", "")
    names = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.*")}
    for name in ("correlations", "among_1", "models"):
        assert {f"figures/{name}.svg", f"figures/{name}.pdf"} <= names
    for name in ("correlations", "among_1", "influential"):
        assert {f"tables/{name}.csv", f"tables/{name}.tex"} <= names


def test_reports_kendall_without_adjustment(tmp_path):
    assert run(tmp_path, "--method=kendall", "--adjust=none") == 0
    report = json.loads((tmp_path / "results.json").read_text())
    assert "unadjusted" in report["headline"]
    assert "Kendall" in report["basis"]


@pytest.fixture(scope="module")
def controlled_study():
    options = model_correlations.CorrelationOptions(
        x=("shape",),
        y=("Concepts", "ID"),
        category="training",
        given=("imagenet",),
        split="adversarial_training",
        permutations=199,
    )
    frame = correlate.read(str(TABLE), options.measures, "training", None)
    return model_correlations.analyse(frame, options, source="biases.csv")


def test_controlling_for_a_measure_gives_partial_correlations(controlled_study):
    """Numbers match the statistics; a measure with almost no variance left has no interval."""
    rows = controlled_study.given.pairs.set_index(["models", "x", "y"])
    row, frame = rows.loc[("all", "shape", "Concepts")], controlled_study.frame
    covariates = [frame["imagenet"]]
    x, y = frame["shape"], frame["Concepts"]
    ends = correlation.bootstrap_interval(x, y, resamples=1_999, covariates=covariates)
    assert (row["statistic"], row["low"], row["high"]) == pytest.approx(
        (ends.statistic, ends.low, ends.high)
    )
    expected = correlation.partial(x, y, permutations=199, covariates=covariates)
    assert row["pvalue"] == expected.pvalue
    within = correlation.partial(
        x, y, groups=frame["training"], permutations=9, covariates=covariates
    )
    assert row["partial"] == pytest.approx(within.statistic)
    assert row["x_left"] == pytest.approx(
        correlation.unexplained(x, covariates=covariates)
    )
    assert 0.1 < row["x_left"] < 0.5
    assert rows.loc["adversarial_training"]["low"].isna().all()
    assert np.isnan(rows.loc[("all", "shape", "ID"), "low"])
    caveats = " ".join(correlations_page.caveats(controlled_study))
    assert "shape in adversarial_training (2.1%), ID in all (3.2%)" in caveats
    assert "Controlling for imagenet is not an experiment" in caveats


def test_controlling_for_a_constant_changes_nothing(controlled_study):
    study = model_correlations.analyse(
        controlled_study.frame.assign(imagenet=70.0),
        controlled_study.options,
        source="biases.csv",
    )
    for plain, partial in zip(study.pairs["statistic"], study.given.pairs["statistic"]):
        assert partial == pytest.approx(plain)
    caveats = " ".join(correlations_page.caveats(study))
    assert "imagenet explains nothing of any measure" in caveats
    assert "explains nothing" not in " ".join(
        correlations_page.caveats(controlled_study)
    )


def test_reversed_partial_correlations_are_counted():
    """x and y correlate negatively over all models, positively at equal accuracy."""
    accuracy = np.repeat(np.arange(10.0), 10)
    within = np.tile(np.arange(10.0), 10)
    frame = pd.DataFrame({"x": within - 2 * accuracy, "y": within + 2 * accuracy})
    frame = frame.assign(accuracy=accuracy, kind=[*"ab"] * 50)
    options = model_correlations.CorrelationOptions(
        x=("x",), y=("y",), category="kind", given=("accuracy",), permutations=99
    )
    _, basis = correlations_page.headline(
        model_correlations.analyse(frame, options, source="s")
    )
    assert basis.endswith(
        "Given accuracy, 1 of 1 are significant, 1 of them with the other sign."
    )
    few = frame.iloc[:4].assign(accuracy=[1.0, 2, 3, 2])
    study = model_correlations.analyse(few, options, source="s")
    basis = correlations_page.headline(study)[1]
    assert basis.endswith("Given accuracy, no correlation can be tested.")
    caveats = correlations_page.caveats(study)
    assert any("x in all given accuracy" in line for line in caveats)


@pytest.mark.slow
def test_partial_correlations_have_tables_and_figures(controlled_study, tmp_path):
    document.write(correlations_page.report(controlled_study), tmp_path)
    report = json.loads((tmp_path / "results.json").read_text())
    with open(tmp_path / "tables" / "given.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(r["statistic"]) for r in rows] == pytest.approx(
        [r["statistic"] for r in report["given"]]
    )
    assert (tmp_path / "figures" / "correlations_given.svg").exists()
    drawn = {
        figure.name: figure.drawn
        for figure in correlations_page.figures(controlled_study)
    }
    assert list(test_figures.overlapping(test_figures.boxes(drawn["given"]))) == []
    # The marker of each plain and each partial correlation, and the line at 0.
    for axes, choice in zip(
        drawn["given"].axes, controlled_study.families, strict=True
    ):
        shown = sorted(
            float(x)
            for line in axes.lines
            if line.get_marker() != "None"
            for x in line.get_xdata()
        )
        pairs = pd.concat([controlled_study.pairs, controlled_study.given.pairs])
        expected = sorted(pairs[pairs["models"] == choice]["statistic"])
        assert shown == pytest.approx(expected)


@pytest.mark.slow
def test_figures_are_legible(study):
    """No text overlaps another or is cut off; cells that are not significant are hatched."""
    figures = [*correlations_page.figures(study)]
    for figure in figures:
        name, fig = figure.name, figure.drawn
        boxes = test_figures.boxes(fig)
        if name != "models":  # Boxes of slanted names overlap where the names do not.
            boxes = [
                box for box in boxes if box[0] not in (*X, *Y, *study.options.among[0])
            ]
        assert list(test_figures.overlapping(boxes)) == [], name
        drawn, (width, height) = fig.get_tightbbox(), fig.get_size_inches()
        assert drawn.x0 >= -0.02
        assert drawn.y0 >= -0.02
        assert drawn.x1 <= width + 0.02
        assert drawn.y1 <= height + 0.02
    panels = figures[0].drawn.axes[:-1]
    hatched = [sum(bool(p.get_hatch()) for p in axes.patches) for axes in panels]
    assert hatched == [
        int((~study.tested(family)).to_numpy().sum())
        for family in study.families.values()
    ]
    assert 0 < sum(hatched) < 12


def test_marker_areas_match_the_publication():
    """The area is (epsilon + 1) / 5 of the unit if the strongest attack is 8."""
    areas = correlation_plots.areas_of(pd.Series([0, 1, 8, np.nan])) / 26
    assert areas == pytest.approx([0.2, 0.4, 1.8, 1])


def test_constant_measures_have_a_caveat(tmp_path):
    table = tmp_path / "t.csv"
    lines = [f"m{i},{'ab'[i % 2]},1,{i},{i * i % 7}" for i in range(8)]
    table.write_text("\n".join(["name,training,shape,ID,Adversarial", *lines]))
    out = tmp_path / "out"
    args = [f"--table={table}", f"--out={out}", "--x=shape", "--y=ID,Adversarial"]
    assert correlate.main([*args, "--category=training", "--permutations=99"]) == 0
    report = json.loads((out / "results.json").read_text())
    assert {row["statistic"] for row in report["correlations"]} == {None}
    undefined = [
        line for line in report["caveats"] if line.startswith("Undefined because ")
    ]
    assert len(undefined) == 1 and undefined[0].endswith("have both: shape in all.")
    assert report["headline"] == (
        "No correlation can be tested: shape is constant over all models."
    )


def test_undefined_correlations_share_one_caveat():
    """A bias of three models, a constant average, and a pair with too few models."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.random((8, 4)), columns=["a", "b", "Y", "Z"])
    frame = frame.assign(c=frame["a"], X=1.0, training=list("uuuuvvvv"))
    frame.loc[3:, "c"] = frame.loc[:2, "Z"] = frame.loc[7:, "b"] = np.nan
    options = model_correlations.CorrelationOptions(
        x=("a", "b", "c"), y=("X", "Y", "Z"), category="training", permutations=20
    )
    study = model_correlations.analyse(frame, options, source="s")
    assert "over 4 to 8 models" in correlations_page.headline(study)[1]
    caveats = correlations_page.caveats(study)
    (line,) = [line for line in caveats if line.startswith("Undefined because ")]
    assert line.endswith("fewer than 4 models have both: c, X in all.")
    assert any("not independent: the partial" in line for line in caveats)
    single_categories = model_correlations.analyse(
        frame.assign(training=list("stuvwxyz")), options, source="s"
    )
    assert not any(
        "partial" in line for line in correlations_page.caveats(single_categories)
    )
    frame.loc[4:, "b"] = np.nan
    caveats = correlations_page.caveats(
        model_correlations.analyse(frame, options, source="s")
    )
    (line,) = [line for line in caveats if line.startswith("Undefined because ")]
    assert line.endswith("have both: c, X, b with Z in all.")
    frame = frame[["X", "training"]].assign(a=[1.0, 2, 3, *[np.nan] * 5], X=range(8))
    options = model_correlations.CorrelationOptions(
        x=("a",), y=("X",), category="training"
    )
    answer, _ = correlations_page.headline(
        model_correlations.analyse(frame, options, source="s")
    )
    assert answer == (
        "No correlation can be tested: no pair of x and y has values of at least 4 models."
    )


def test_columns_may_have_any_name(tmp_path):
    """Names of columns in the report's own tables are allowed."""
    table, out = tmp_path / "t.csv", tmp_path / "out"
    head = "name,statistic,n,pvalue,measure,model,without"
    lines = [
        f"m{i},{'ab'[i % 2]},{i if i else 99},{i},{i * i % 7},{i % 5},{i % 3}"
        for i in range(12)
    ]
    table.write_text("\n".join([head, *lines]))
    args = [f"--table={table}", f"--out={out}", "--x=n,model", "--y=pvalue,without"]
    args += ["--among=n,measure,pvalue", "--category=statistic", "--permutations=99"]
    assert correlate.main(args) == 0
    report = json.loads((out / "results.json").read_text())
    assert {"model": "m0", "category": "a"}.items() <= report["influential"][0].items()
    with open(out / "tables" / "among_1.csv") as file:
        assert file.readline() == "measure,n,measure (name),pvalue\n"


BAD_TABLES = {
    "column": ("name,training,shape\na,b,1", "must name the column 'cb_bw'"),
    "number": ("n,training,shape,cb_bw,ID,Adversarial\na,b,1,2,x,3", ":2: ID must be"),
    "fields": ("n,training,shape,cb_bw,ID,Adversarial\na,b,1,2", "have 6 fields"),
    "twice": (
        "n,training,shape,cb_bw,ID,Adversarial\na,b,1,2,3,4\na,b,1,2,3,4",
        "'a' occurs again, first in ",
    ),
    "kind": ("n,training,shape,cb_bw,ID,Adversarial\na,,1,2,3,4", "must not be empty"),
    "few": ("n,training,shape,cb_bw,ID,Adversarial\na,b,1,2,3,4", "at least 4 models"),
}


@cases.each("name", BAD_TABLES)
def test_bad_tables_are_refused_in_one_line(name, tmp_path, capsys):
    text, message = BAD_TABLES[name]
    table = tmp_path / "t.csv"
    table.write_text(text)
    assert run(tmp_path / "out", table=table) == 2
    error = capsys.readouterr().err
    assert error.startswith("correlate: ")
    assert error.count("\n") == 1
    assert message in error
    assert not (tmp_path / "out").exists()


def test_options_that_do_not_fit_are_refused(tmp_path, capsys):
    for option, message in [
        (
            "--split=none",
            "--split: must be a value of the column training, got 'none'; choose ",
        ),
        ("--y=shape", "'shape' twice"),
        ("--seed=-1", "--seed: must be 0 or larger, got -1"),
        ("--category=shape", "--category: must be no measure, got 'shape', which --x"),
        (
            "--category=imagenet_c",
            "a column of categories, got 'imagenet_c', which",
        ),
        ("--category=Adversarial", "got 'Adversarial', which --y names, too; name the"),
        ("--given=ID", "--given: must be no measure of --x or --y, got 'ID'"),
        ("--given=training", "got 'training', which --given names, too; name the"),
        ("--size=training", "--size: must be a column of numbers, got 'training'"),
    ]:
        assert run(tmp_path / "out", option) == 2
        assert message in capsys.readouterr().err
    assert run(tmp_path / "out", "--given=pgd", "--method=kendall") == 2
    assert "--given: needs --method=spearman, got kendall" in capsys.readouterr().err
    assert correlate.main([f"--table={tmp_path / 'no.csv'}", "--out=o", *FLAGS]) == 2
    assert "no.csv" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run(tmp_path / "out", "--permutations=0")
    message = "--permutations: must be a whole number of at least 1, got '0'"
    assert message in capsys.readouterr().err


def perfect_correlations(n, tests):
    """Return measures of n models that all correlate perfectly."""
    frame = pd.DataFrame({f"y{i}": np.arange(n) ** (i + 1.0) for i in range(tests)})
    return frame.assign(x=range(n), training=list("ab" * n)[:n])


@pytest.mark.slow
@cases.each(
    ("n", "tests", "permutations", "adjust", "smallest", "advice"),
    [
        (12, 24, 99, "holm", 0.24, "with so few orders; set --permutations=479 or"),
        (12, 24, 479, "holm", 0.05, None),
        (12, 24, 99, "bh", 0.01, None),
        (12, 3, 9, "bh", 0.1, "with so few orders; set --permutations=19 or"),
        (4, 3, 9_999, "none", 2 / 24, "with so few models; measure more"),
        (5, 24, 99, "holm", 0.24, "with so few models; measure more"),
        (5, 24, 9_999, "holm", 0.4, "with so few models; measure more"),
        (7, 24, 9_999, "holm", 48 / 5040, None),
    ],
)
def test_unattainable_significance_has_a_caveat(
    n, tests, permutations, adjust, smallest, advice
):
    """The smallest attainable p is that of measures which all correlate perfectly."""
    y = tuple(f"y{i}" for i in range(tests))
    options = model_correlations.CorrelationOptions(
        x=("x",), y=y, category="training", permutations=permutations, adjust=adjust
    )
    study = model_correlations.analyse(
        perfect_correlations(n, tests), options, source="s"
    )
    assert study.attainable["all"] == pytest.approx(smallest)
    pvalues = getattr(
        study.families["all"], model_correlations.TESTED[adjust]
    ).to_numpy()
    # With 5 models, some random orders may equal the best order.
    assert pvalues.min() >= smallest * (1 - 1e-12)
    if n != 5 or permutations > 120:
        assert pvalues.min() == pytest.approx(smallest)
    answer, caveats = (
        correlations_page.headline(study)[0],
        " ".join(correlations_page.caveats(study)),
    )
    assert (f"p {model_correlations.WORDS[adjust]} is at least" in answer) == (
        advice is not None
    )
    assert (advice or "") in answer
    assert ("no p could be as small as 0.05" in caveats) == (advice is not None)
    tree = json.loads(document.to_json(correlations_page.results(study)))
    assert tree["attainable"] == {"all": study.attainable["all"]}


def test_only_defined_partial_correlations_are_counted():
    """One of two pairs has too few models for a correlation within categories."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=9), "y": rng.normal(size=9)})
    frame = frame.assign(z=[1.0, 3.0, 2.0, *[np.nan] * 6], kind=[*"aaabbbccc"])
    options = model_correlations.CorrelationOptions(
        x=("x",), y=("y", "z"), category="kind", permutations=9
    )
    _, basis = correlations_page.headline(
        model_correlations.analyse(frame, options, source="s")
    )
    assert " of 1 partial correlations" in basis
