"""The paper's tables in its layout, with our and the printed numbers."""

import html
import json
import pathlib
import re

import numpy as np
import pandas as pd
import pytest

from jbias import stats
from jbias.papers import shifts, shifts_published
from jbias.report.pages.shifts import shift_cells, shift_drops, shifts_page
from tests.report import shifted

PUBLISHED = pathlib.Path(__file__).parents[2] / "examples/published"
DRAWS = shift_drops.AccuracyDraws(200, 0)


@pytest.fixture(scope="module")
def printed():
    return shifts_published.read(str(PUBLISHED))


def published(name):
    return pd.read_csv(PUBLISHED / f"ood_{name}.csv")


def test_printed_drops_of_table_1_are_relative_and_of_averages():
    table = published("table1")
    drop = 100 * (table["id_acc"] - table["ood_acc"]) / table["id_acc"]
    # Accuracies are rounded to 0.01, and so are drops.
    assert np.abs(drop - table["drop_pct"]).max() < 0.02
    models = table[table["model"] != "Average"].groupby(["dataset", "shift"])
    average = table[table["model"] == "Average"].set_index(["dataset", "shift"])
    means = models[["id_acc", "ood_acc"]].mean()
    assert np.abs(means - average[means.columns]).to_numpy().max() < 0.011
    difference = models["drop_pct"].mean() - average["drop_pct"]
    # Hence printed averages are not averages of drops.
    assert difference.abs().max() > 0.03


def test_printed_drops_of_table_2_are_three_quarters_of_the_drop_except_one():
    """The paper's mean is over four columns, of which one is 0; one row repeats."""
    table, drops = published("table2"), published("table2_drops")
    key = ["model", "train_colour", "train_size"]
    expected_drops = {
        names: shift_drops.percent(
            rows.loc[rows["is_id"] == 1, "accuracy"].item(),
            rows.loc[rows["is_id"] == 0, "accuracy"].mean(),
        )
        for names, rows in table.groupby(key)
    }
    assert len(expected_drops) == 16
    deviating = {}
    for names, printed in drops.set_index(key)["drop_pct"].items():
        expected = shifts_published.paper_compat(float(expected_drops[names]), 4)
        if abs(printed - expected) > 0.02:
            deviating[names] = printed, round(expected, 2)
    assert deviating == {("2-layer CNN", "B", "1K"): (12.26, 12.45)}
    drop_by_names = drops.set_index(key)["drop_pct"]
    assert (
        drop_by_names["2-layer CNN", "G", "1K"]
        == drop_by_names["2-layer CNN", "B", "1K"]
    )


def test_ranks_of_the_printed_models(printed):
    ranks = {(x["data"], x["kind"]): x for x in shifts_published.printed_ranks(printed)}
    rho = {"marginal": 0.66, "conditional": -0.03, "joint": 0.94}
    for kind, expected in rho.items():
        rank = ranks["CelebA", kind]
        assert rank["rho"] == pytest.approx(expected, abs=0.005)
        assert rank["n"] == 6 and rank["pairs"] == 15
        rows = published("table1").query("dataset == 'CelebA' and shift == @kind")
        rows = rows[rows["model"] != "Average"]
        tau = stats.kendall(rows["id_acc"], rows["ood_acc"])
        assert (rank["tau"], rank["tau_p"]) == (tau.statistic, tau.pvalue)


def read(folder):
    return shift_cells.read([f"{folder}/*"]).cells


def write_single_value_runs(folder, value, *, other_accuracies, name="", **options):
    accuracies = {f"ood-{x}": y for x, y in other_accuracies.items()}
    shifted.write(
        folder / f"{name}{value}",
        f"only-{value}",
        {"id": 0.99, **accuracies},
        **options,
    )


def test_table_1_has_measured_and_printed_rows(tmp_path, printed):
    for level, inside, outside in (
        ("M4", 0.96, 0.48),
        ("C6", 0.98, 0.0),
        ("J4", 0.9, 0.3),
    ):
        for model, added in (
            ("resnet18", 0.0),
            ("squeezenet1_0", 0.02),
            ("mine", 0.04),
        ):
            folder = tmp_path / f"{model}-{level}"
            shifted.write(
                folder, level, {"id": inside, "ood": outside + added}, model=model
            )
    shifted.write(tmp_path / "M0", "M0", {"id": 0.9, "ood": 0.9})
    (table,) = shifts_published.make_tables(read(tmp_path), printed, DRAWS)
    assert table.name == "table1_kinds" and table.texts == 3
    rows = {row[1:3]: row[3:] for row in table.rows}
    ours = rows["resnet18", "here, n=3"]
    assert ours[0:2] == ("96.00 ± 0.00", "48.00 ± 0.00")
    assert ours[2].startswith("50.00 [")
    assert ours[5].startswith("100.00 [")
    paper = ("96.80", "49.51", "48.85", "98.17", "0.21", "99.79")
    assert rows["resnet18: ResNet18", "paper"][:6] == paper
    average = rows["Average", "here, n=3"]
    assert average[:2] == ("96.00", "50.00")
    assert average[2].startswith(f"{100 * (96 - 50) / 96:.2f} [")
    assert rows["Average", "paper"][:3] == ("93.88", "37.90", "59.63")
    assert ("mine", "here, n=3") in rows and ("ResNet34", "paper") in rows
    assert sum(label == "here, n=3" for _, label in rows) == 4
    by_model = table.data.set_index(["model", "kind"])
    assert by_model.loc[("mine", "joint"), "drop_percent"] == pytest.approx(
        100 * 0.56 / 0.9
    )


def test_averages_of_the_same_models(tmp_path, printed):
    for model in ("resnet18", "resnet34"):
        shifted.write(tmp_path / model, "M4", {"id": 0.9, "ood": 0.5}, model=model)
    (table,) = shifts_published.make_tables(read(tmp_path), printed, DRAWS)
    rows = {row[1:3]: row[3:] for row in table.rows}
    inside, outside = (96.8 + 98) / 2, (49.51 + 41.21) / 2
    drop = f"{100 * (inside - outside) / inside:.2f}"
    cells = rows["Average of these models", "paper"][:3]
    assert cells == (f"{inside:.2f}", f"{outside:.2f}", drop)


def test_a_level_other_than_the_last_is_named(tmp_path):
    shifted.write(tmp_path / "a", "C5", {"id": 0.9, "ood": 0.5})
    (table,) = shifts_published.make_tables(
        read(tmp_path), shifts_published.read(""), DRAWS
    )
    assert table.rows[0][8].endswith("(C5)") and table.rows[0][5] == "–"


def test_table_2_has_a_column_per_value(tmp_path, printed):
    write_single_value_runs(
        tmp_path,
        "green",
        other_accuracies={"red": 0.2, "yellow": 0.6, "blue": 0.1},
        trained=1_000,
    )
    write_single_value_runs(
        tmp_path,
        "red",
        other_accuracies={"green": 0.2, "yellow": 0.6, "blue": 0.1},
        model="mine",
    )
    (table,) = shifts_published.make_tables(read(tmp_path), printed, DRAWS)
    assert (
        table.head[4:8] == shifted.COLOURS
    )  # In the order of the data, not of letters.
    own_row, green, paper = table.rows
    assert own_row[1:4] == ("mine", "red", "here, n=3, 8,000 images")
    assert green[4:8] == (
        "20.00 ± 0.00",
        "60.00 ± 0.00",
        "99.00 ± 0.00",
        "10.00 ± 0.00",
    )
    drop = 100 * (0.99 - 0.3) / 0.99
    assert green[8:] == ("30.00 ± 0.00", f"{drop:.2f}", f"{0.75 * drop:.2f}")
    assert paper[3:] == (
        *("paper, 1K", "14.40", "19.90", "99.10", "14.00"),
        *("16.10", "83.75", "62.82"),
    )
    assert table.bold == {(0, 4), (1, 6), (2, 6)}
    relative = [(0.99 - x) / 0.99 for x in (0.2, 0.6, 0.1, 0.99)]
    drops = table.data.query("model == 'resnet18'")["drop_paper_compat"]
    assert drops.iloc[0] == pytest.approx(100 * np.mean(relative))


def test_the_paper_compatible_drop_needs_the_number_of_values(tmp_path):
    folder = tmp_path / "a"
    shifted.write(folder, "only-red", {"id": 0.8, "ood": 0.2}, data="faces")
    (table,) = shifts_published.make_tables(
        read(tmp_path), shifts_published.read(""), DRAWS
    )
    assert table.rows[0][4:] == ("80.00 ± 0.00", "20.00 ± 0.00", "75.00", "56.25")
    path = folder / "provenance.json"
    path.write_text("{}")
    (table,) = shifts_published.make_tables(
        read(tmp_path), shifts_published.read(""), DRAWS
    )
    assert table.rows[0][-2:] == ("75.00", "–")


def test_table_3_has_clusters_in_their_order(tmp_path, printed):
    names = [f"D{i}" for i in range(1, 11)]
    for i in (10, 2, 1):
        accuracies = {name: 0.5 for name in names if name != f"D{i}"} | {"D5": 0.86}
        write_single_value_runs(
            tmp_path,
            f"D{i}",
            other_accuracies=accuracies,
            attribute="cluster",
            data="celeba",
        )
    (table,) = shifts_published.make_tables(read(tmp_path), printed, DRAWS)
    rows = [row[1:] for row in table.rows]
    assert [row[1] for row in rows] == ["D1", "D1", "D2", "D2", "D10", "mean"]
    assert rows[0][3:5] == ("99.00 ± 0.00", "54.00 ± 0.00")  # The plain mean of nine.
    assert rows[1] == ("resnet18: ResNet18", "D1", "paper", "96.06", "94.37", "1.76")
    assert rows[-1][3:5] == ("99.00", "54.00")


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """Return the folder of a report on a few runs for everything in the paper."""
    runs, out = (tmp_path_factory.mktemp(name) for name in ("runs", "report"))
    accuracies = {"id": 0.9, "ood": 0.5}
    for model in ("resnet18", "cnn", "squeezenet1_0"):
        shifted.write(runs / model, "C6", accuracies, model=model)
    write_single_value_runs(
        runs, "red", other_accuracies={"green": 0.2, "yellow": 0.6, "blue": 0.1}
    )
    write_single_value_runs(
        runs, "D1", other_accuracies={"D2": 0.5}, attribute="cluster", data="celeba"
    )
    args = [f"--runs={runs}/*", f"--out={out}", "--draws=100"]
    assert shifts.main([*args, f"--printed={PUBLISHED}"]) == 0
    return out


def test_the_page_has_the_sections_of_the_report_and_the_papers_tables(out):
    text = (out / "index.html").read_text()
    sections = re.findall(r'<section id="(\w+)">', text)
    expected = [x.id for x in shifts_page.SECTIONS if x.id in sections] + ["tables"]
    assert sorted(sections) == sorted(expected)
    assert sections.index("tables") + 1 == sections.index("ranks")
    assert "The paper's are computed from its Table 1" in html.unescape(text)
    results = json.loads((out / "results.json").read_text(), parse_constant=pytest.fail)
    tables = {path.stem for path in (out / "tables").glob("*.csv")}
    assert tables == set(results["tables"])
    assert {"table1_kinds", "table2_single_values", "table3_clusters"} <= tables
    assert {"verdicts", "kinds", "levels", "ranks", "runs"} <= tables
    ranks = pd.read_csv(out / "tables/ranks.csv")
    assert ranks["whose"].tolist() == ["here"] + 6 * ["paper"]
    assert len(ranks) == len(results["tables"]["ranks"])


def test_missing_or_damaged_numbers_are_one_line(tmp_path, capsys):
    args = ["--runs=x", f"--out={tmp_path}/out"]
    assert shifts.main([*args, "--printed=nowhere"]) == 2
    assert "--printed: nowhere/ood_table1.csv does not exist" in capsys.readouterr().err
    for path in PUBLISHED.glob("ood_*.csv"):
        (tmp_path / path.name).write_text(path.read_text().replace("96.8,", "?,"))
    assert shifts.main([*args, f"--printed={tmp_path}"]) == 2
    err = capsys.readouterr().err
    assert "ood_table1.csv:" in err and "must be as published" in err
    assert err.count("\n") == 1
