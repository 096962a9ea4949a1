"""Report of shifts: runs that it reads, groups and refuses, and files that it writes."""

import json
import shutil

import pandas as pd
import pytest

from jbias.report import shifts
from jbias.report.pages.shifts import (
    shift_cells,
    shift_drops,
    shift_figures,
    shifts_page,
)
from jbias.runs import results
from tests import cases
from tests.report import shifted, test_page

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return shifted.write_study(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def report_dir(runs, tmp_path_factory):
    report_dir = tmp_path_factory.mktemp("report")
    args = [f"--runs={runs}/*", f"--out={report_dir}", "--draws=200", "--figures=png"]
    assert shifts.main(args) == 0
    return report_dir


def refusal(capsys, *args):
    """Return the only line of the error of a refused command."""
    assert shifts.main(list(args)) == 2
    error = capsys.readouterr().err
    assert error.startswith("shifts: ") and error.count("\n") == 1
    return error


@pytest.mark.slow
def test_the_page_has_every_section_and_loads_no_file(report_dir):
    text = (report_dir / "index.html").read_text()
    page = test_page.Reader(text)
    assert not page.open and len(set(page.ids)) == len(page.ids)
    assert all(load.startswith("#") for load in page.loads)
    for section in shifts_page.SECTIONS:
        assert f'id="{section.id}"' in text and section.title in text, section.id
    assert "Images of colored_mnist by colour, C6" in text
    assert "the best validation accuracy of each seed" in text


@pytest.mark.slow
def test_every_figure_and_table_has_files(report_dir):
    names = {path.stem for path in (report_dir / "figures").iterdir()}
    assert names == {
        *("levels_marginal", "levels_conditional", "levels_joint", "in_against_out"),
        *("learning_curves", "probabilities", "sizes"),
    }
    for name in names:
        for ending in ("svg", "png"):
            assert (report_dir / f"figures/{name}.{ending}").stat().st_size
    tables = {path.stem for path in (report_dir / "tables").glob("*.csv")}
    assert tables == {path.stem for path in (report_dir / "tables").glob("*.tex")}
    results_tree = json.loads(
        (report_dir / "results.json").read_text(), parse_constant=pytest.fail
    )
    assert set(results_tree["tables"]) == tables
    assert tables == {"verdicts", "kinds", "remedies", "levels", "ranks", "runs"}


@pytest.mark.slow
def test_table_numbers_match_the_records(report_dir):
    levels = pd.read_csv(report_dir / "tables/levels.csv")
    row = levels.query("model == 'cnn' and level == 'C6' and algorithm == 'erm'").iloc[
        0
    ]
    records = results.read(shifted_paths(report_dir, "cnn-C6"))
    records = records[records["metric"] == "accuracy"]
    means = records.groupby("dataset", observed=True)["value"].mean()
    assert row["id_mean"] == pytest.approx(100 * means["id"])
    assert row["drop"] == pytest.approx(100 * (means["id"] - means["ood"]))
    assert row["percent"] == pytest.approx(100 * (1 - means["ood"] / means["id"]))
    assert row["drop_low"] < row["drop"] < row["drop_high"]
    kinds = pd.read_csv(report_dir / "tables/kinds.csv")
    curve = kinds.query("model == 'cnn' and kind == 'conditional'").iloc[0]
    control = levels.query("model == 'cnn' and level == 'C0'").iloc[0]
    assert curve["over"] == pytest.approx(row["drop"] - control["drop"])
    assert curve["area"] == pytest.approx((row["drop"] + control["drop"]) / 2)


def shifted_paths(report_dir, name):
    rows = json.loads((report_dir / "results.json").read_text())["tables"]["runs"]
    return [row["workdir"] for row in rows if row["workdir"].endswith(f"/{name}")]


def test_attributes_without_a_drop_come_last(report_dir):
    verdicts = json.loads((report_dir / "results.json").read_text())["verdicts"]
    assert {row["attribute"] for row in verdicts[-2:]} == {"size", "place"}
    assert {row["verdict"] for row in verdicts[-2:]} == {"none found"}
    assert all(row["verdict"] == "bug" for row in verdicts[:-2])
    assert verdicts[0]["kind"] == "conditional"


def test_group_metrics_are_shown_for_runs_that_have_them(report_dir):
    remedies = pd.read_csv(report_dir / "tables/remedies.csv").set_index("algorithm")
    column = remedies["worst_group_accuracy@ood"]
    assert column["group_dro"] == pytest.approx(50) and pd.isna(column["erm"])
    assert "50.00 ± 0.00" in (report_dir / "index.html").read_text()
    assert remedies.loc["group_dro", "closed"] > remedies.loc["irm", "closed"]


def read(tmp_path, **selection_options):
    return shift_cells.read([f"{tmp_path}/*"], **selection_options)


def test_recipes_differ_by_settings_and_seeds_are_pooled(tmp_path):
    accuracies = {"id": 0.9, "ood": 0.5}
    shifted.write(tmp_path / "a", "C6", accuracies, seeds=(0, 1))
    shifted.write(tmp_path / "b", "C6", accuracies, seeds=(2,), run={"workers": 9})
    shifted.write(tmp_path / "c", "C6", accuracies, epochs=9)
    shifted.write(tmp_path / "d", "C6", accuracies, images=1_000, trained=800)
    shifted.write(tmp_path / "e", "C6", accuracies, shift_seed=1)
    shifted.write(tmp_path / "f", "C0", accuracies, attribute="size")
    cells = read(tmp_path).cells
    assert sorted((c.recipe.dealt, c.recipe.setting) for c in cells) == [
        ("", ""),  # No other recipe has its attribute, so no setting is named.
        ("images=0, shift_seed=0", "epochs=5"),
        ("images=0, shift_seed=0", "epochs=9"),
        ("images=0, shift_seed=1", ""),
        ("images=1000, shift_seed=0", ""),
    ]
    assert {cell.seeds for cell in cells} == {(0, 1, 2)}
    assert sorted(c.images for c in cells) == [800, 8_000, 8_000, 8_000, 8_000]


def test_recipes_of_all_models_name_the_number_of_images(tmp_path):
    accuracies = {"id": 0.9, "ood": 0.5}
    shifted.write(tmp_path / "a", "C6", accuracies, images=1_000)
    shifted.write(tmp_path / "b", "C6", accuracies, images=5_000)
    shifted.write(tmp_path / "c", "C6", accuracies, images=5_000, model="cnn", epochs=2)
    shifted.write(tmp_path / "d", "C6", accuracies, images=5_000, inputs=["x" * 50])
    recipes = {c.runs[0].workdir[-1]: c.recipe for c in read(tmp_path).cells}
    assert recipes["a"].network == "resnet18" and recipes["c"].network == "cnn"
    assert [recipes[name].dealt for name in "abcd"] == ["images=1000"] + [
        "images=5000"
    ] * 3
    # The setting is too long to show.
    assert recipes["d"].setting.startswith("as run-d")


def test_levels_of_a_two_stage_run_have_the_same_recipe(tmp_path):
    for level in ("C0", "C6"):
        shift = dict(level=level, attribute="colour", images=0, seed=0, part="train")
        stages = [{"algo": {"name": "erm"}}, {"train": {"data": "x", "shift": shift}}]
        accuracies = {"id": 0.9, "ood": 0.5}
        shifted.write(tmp_path / level, level, accuracies, stages=stages, variant="dfr")
    cells = read(tmp_path).cells
    assert len({cell.recipe for cell in cells}) == 1
    assert cells[0].recipe.algorithm == "erm (dfr)"


def test_repeated_seeds_and_other_training_images_are_refused(tmp_path, capsys):
    accuracies = {"id": 0.9, "ood": 0.5}
    shifted.write(tmp_path / "a", "C6", accuracies)
    shifted.write(tmp_path / "b", "C6", accuracies, seeds=(2, 3))
    args = f"--runs={tmp_path}/*", f"--out={tmp_path}/out"
    assert "got seed 2 of ERM" in refusal(capsys, *args)
    shutil.rmtree(tmp_path / "b")
    shifted.write(tmp_path / "b", "C6", accuracies, seeds=(3,), trained=7_000)
    assert "must be trained on the images of" in refusal(capsys, *args)
    assert not (tmp_path / "out").exists()
    shutil.rmtree(tmp_path / "b")
    shifted.write(tmp_path / "b", "C6", accuracies, seeds=(2,), valid={"data": "other"})
    assert "got seed 2 in both" in refusal(capsys, *args)


def test_omitted_runs_have_notes(tmp_path):
    accuracies = {"id": 0.9, "ood": 0.5}
    shifted.write(tmp_path / "a", "C6", accuracies, done=False)
    shifted.write(tmp_path / "b", "M4", {"id": 0.9}, seeds=(5,))
    shifted.write(tmp_path / "c", "C6", accuracies, attribute="size")
    path = tmp_path / "c/config.json"
    config = json.loads(path.read_text())
    del config["train"]["shift"]
    path.write_text(json.dumps(config))
    (tmp_path / "empty").mkdir()
    study = read(tmp_path)
    assert [cell.level for cell in study.cells] == ["C6"]
    notes = "\n".join(study.notes)
    assert f"{tmp_path}/a is not finished" in notes
    assert f"not trained under a shift (config.json): {tmp_path}/c." in notes
    assert f"{tmp_path}/b: must have accuracy on id and ood" in notes
    assert f"{tmp_path}/empty matches the pattern" in notes
    caveats = "\n".join(shifts_page._caveats(study, [], "erm"))
    assert "Without a control (M0, C0, J0)" in caveats


def test_a_diverged_seed_is_left_out_with_a_note(tmp_path):
    shifted.write(tmp_path / "a", "C6", {"id": 0.9, "ood": [0.5, 0.5, 0.1]})
    path = tmp_path / "a/evals/100.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        if row["seed"] == 2:
            row |= {"status": "diverged", "value": None, "count": None}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    study = read(tmp_path)
    assert study.cells[0].seeds == (0, 1)
    assert any("Seed 2 of" in note and "diverged" in note for note in study.notes)


def test_selection_chooses_the_evaluation(tmp_path):
    steps = (100, 200, 300)
    accuracies = {
        "valid": {100: 0.5, 200: 0.9, 300: 0.7},
        "id": {100: 0.6, 200: 0.8, 300: 0.7},
        "ood": {100: 0.4, 200: 0.1, 300: 0.3},
    }
    shifted.write(tmp_path / "a", "C6", accuracies, steps=steps)
    means = {}
    for name in ("best_validation", "last_n", "oracle"):
        study = read(tmp_path, selection=name, last=1)
        cell = study.cells[0]
        means[name] = round(cell.inside[0], 3), round(cell.outside[0], 3)
        assert study.oracle == (name == "oracle")
    assert means == {
        "best_validation": (0.8, 0.1),
        "last_n": (0.7, 0.3),
        "oracle": (0.8, 0.4),
    }
    mean = read(tmp_path, selection="last_n", last=2).cells[0]
    assert mean.outside[0] == pytest.approx(0.2)


def test_probabilities_are_those_of_the_selected_step(tmp_path):
    likelihood = {"id": [0.9, 0.8], "ood": [0.1]}
    workdir = tmp_path / "a"
    shifted.write(
        workdir, "C6", {"id": 0.9, "ood": 0.5}, likelihood=likelihood, seeds=(0, 4)
    )
    other_step = pd.read_parquet(workdir / "decisions/id/100.parquet")
    other_step.assign(likelihood=0.0).to_parquet(workdir / "decisions/id/50.parquet")
    (cell,) = read(tmp_path).cells
    likelihoods = shift_figures.likelihoods(cell, "id")
    assert likelihoods == pytest.approx([0.9, 0.8] * 2)
    assert len(shift_figures.likelihoods(cell, "ood")) == 2


def test_image_counts_are_shown_with_sums(tmp_path):
    shifted.write(tmp_path / "a", "C6", {"id": 0.9, "ood": 0.5}, trained=80)
    (counts,) = shifts_page._image_counts(read(tmp_path).cells)
    assert counts["sets"]["train/0"]["counts"] == [[10, 10, 0, 0], [10, 10, 0, 0]]
    lines = [line.split() for line in shifts_page._folded(counts).text.splitlines()]
    assert lines[:2] == [["train/0"], [*shifted.COLOURS, "all"]]
    assert ["low", "10", "10", "0", "0", "20"] in lines
    assert ["all", "20", "20", "0", "0", "40"] in lines


@cases.each(
    ("args", "words"),
    [
        (["--runs=nothing/*"], "nothing/*: no folder matches"),
        (["--runs={runs}/irm", "--reference=x"], "--reference: must be an algorithm"),
        (
            ["--runs={runs}/irm", "--selection=last_n", "--last=9"],
            "needs 9 evaluations",
        ),
    ],
)
def test_bad_input_is_refused_in_one_line(args, words, runs, tmp_path, capsys):
    args = [arg.format(runs=runs) for arg in args]
    assert words in refusal(capsys, *args, f"--out={tmp_path}/out")


def test_runs_without_a_shift_are_refused_in_one_line(tmp_path, capsys):
    shifted.write(tmp_path / "a", "C6", {"id": 0.9, "ood": 0.5})
    path = tmp_path / "a/config.json"
    config = json.loads(path.read_text())
    args = f"--runs={tmp_path}/*", f"--out={tmp_path}/out"
    config["train"]["shift"]["level"] = "C9"
    path.write_text(json.dumps(config))
    assert "level of the shift must be one of M0" in refusal(capsys, *args)
    del config["train"]["shift"]
    path.write_text(json.dumps(config))
    assert "must hold runs trained under a shift" in refusal(capsys, *args)


def test_a_single_run_gives_a_report(tmp_path, capsys):
    workdir, report_dir = tmp_path / "a", tmp_path / "out"
    shifted.write(workdir, "only-red", {"id": 0.9, "ood-blue": 0.5}, seeds=(7,))
    assert shifts.main([f"--runs={workdir}", f"--out={report_dir}"]) == 0
    assert "No shift beyond the control was run" in capsys.readouterr().out
    results_tree = json.loads((report_dir / "results.json").read_text())
    assert results_tree["basis"].endswith("see jbias papers shifts.")
    assert "One seed does not show the variation" in " ".join(results_tree["caveats"])


@cases.each("args", (["--printed"], ["--printed=examples/published"]))
def test_the_printed_flag_names_the_new_command(args, capsys):
    with pytest.raises(SystemExit):
        shifts.main(["--runs=x", *args])
    error = capsys.readouterr().err
    assert "--printed: this flag has moved; use `jbias papers shifts` instead" in error
    assert error.count("\n") == 1


def test_remedies_without_a_plain_recipe_have_a_caveat(tmp_path):
    accuracies = {"id": 0.9, "ood": 0.5}
    for name, level in (("erm", "C6"), ("irm", "C6"), ("coral", "M4")):
        shifted.write(tmp_path / name, level, accuracies, algorithm=name)
    study = read(tmp_path)
    remedies = shift_drops.remedies(study.cells, shift_drops.AccuracyDraws(200, 0))
    assert [row["algorithm"] for row in remedies] == ["erm", "irm"]
    caveats = shifts_page._caveats(study, remedies, "erm")
    (caveat,) = (line for line in caveats if "drop closed by" in line)
    assert caveat.startswith("The drop closed by coral is unknown")
