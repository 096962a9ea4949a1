"""The report of shifts: what it reads, tells apart, refuses, and writes."""

import json
import shutil

import pandas as pd
import pytest

from jbias.report import shift_drops, shift_page, shift_runs, shifts
from jbias.runs import results
from tests import cases
from tests.report import shifted, test_page

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return shifted.write_study(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def out(runs, tmp_path_factory):
    out = tmp_path_factory.mktemp("report")
    args = [f"--runs={runs}/*", f"--out={out}", "--draws=200", "--figures=png"]
    assert shifts.main(args) == 0
    return out


def refused(capsys, *args):
    """The one line that refuses."""
    assert shifts.main(list(args)) == 2
    err = capsys.readouterr().err
    assert err.startswith("shifts: ") and err.count("\n") == 1
    return err


@pytest.mark.slow
def test_the_page_is_whole_and_needs_no_network(out):
    text = (out / "index.html").read_text()
    page = test_page.Reader(text)
    assert not page.open and len(set(page.ids)) == len(page.ids)
    assert all(load.startswith("#") for load in page.loads)
    for name, title in shift_page.SECTIONS.items():
        assert f'id="{name}"' in text and title in text, name
    assert "Images of colored_mnist by colour, C6" in text
    assert "the best validation accuracy of each seed" in text


@pytest.mark.slow
def test_every_figure_and_table_has_its_files(out):
    names = {path.stem for path in (out / "figures").iterdir()}
    assert names == {
        *("levels_marginal", "levels_conditional", "levels_joint", "in_against_out"),
        *("learning_curves", "probabilities", "sizes"),
    }
    for name in names:
        for ending in ("svg", "png"):
            assert (out / f"figures/{name}.{ending}").stat().st_size
    tables = {path.stem for path in (out / "tables").glob("*.csv")}
    assert tables == {path.stem for path in (out / "tables").glob("*.tex")}
    told = json.loads((out / "results.json").read_text(), parse_constant=pytest.fail)
    assert set(told["tables"]) == tables
    assert tables == {"verdicts", "kinds", "remedies", "levels", "ranks", "runs"}


@pytest.mark.slow
def test_numbers_are_those_of_the_records(out):
    levels = pd.read_csv(out / "tables/levels.csv")
    row = levels.query("model == 'cnn' and level == 'C6' and algorithm == 'erm'").iloc[
        0
    ]
    records = results.read(shifted_paths(out, "cnn-C6"))
    records = records[records["metric"] == "accuracy"]
    means = records.groupby("dataset", observed=True)["value"].mean()
    assert row["id_mean"] == pytest.approx(100 * means["id"])
    assert row["drop"] == pytest.approx(100 * (means["id"] - means["ood"]))
    assert row["percent"] == pytest.approx(100 * (1 - means["ood"] / means["id"]))
    assert row["drop_low"] < row["drop"] < row["drop_high"]
    kinds = pd.read_csv(out / "tables/kinds.csv")
    curve = kinds.query("model == 'cnn' and kind == 'conditional'").iloc[0]
    control = levels.query("model == 'cnn' and level == 'C0'").iloc[0]
    assert curve["over"] == pytest.approx(row["drop"] - control["drop"])
    assert curve["area"] == pytest.approx((row["drop"] + control["drop"]) / 2)


def shifted_paths(out, name):
    rows = json.loads((out / "results.json").read_text())["tables"]["runs"]
    return [row["workdir"] for row in rows if row["workdir"].endswith(f"/{name}")]


def test_clean_attributes_are_none_and_last(out):
    told = json.loads((out / "results.json").read_text())["verdicts"]
    assert {one["attribute"] for one in told[-2:]} == {"size", "place"}
    assert {one["verdict"] for one in told[-2:]} == {"none found"}
    assert all(one["verdict"] == "bug" for one in told[:-2])
    assert told[0]["kind"] == "conditional"


def test_groups_are_shown_where_they_are_there(out):
    remedies = pd.read_csv(out / "tables/remedies.csv").set_index("algorithm")
    column = remedies["worst_group_accuracy@ood"]
    assert column["group_dro"] == pytest.approx(50) and pd.isna(column["erm"])
    assert "50.00 ± 0.00" in (out / "index.html").read_text()
    assert remedies.loc["group_dro", "closed"] > remedies.loc["irm", "closed"]


def read(tmp_path, **how):
    return shift_runs.read([f"{tmp_path}/*"], **how)


def test_settings_tell_recipes_apart_and_seeds_are_pooled(tmp_path):
    fine = {"id": 0.9, "ood": 0.5}
    shifted.write(tmp_path / "a", "C6", fine, seeds=(0, 1))
    shifted.write(tmp_path / "b", "C6", fine, seeds=(2,), run={"workers": 9})
    shifted.write(tmp_path / "c", "C6", fine, epochs=9)
    shifted.write(tmp_path / "d", "C6", fine, images=1_000, trained=800)
    shifted.write(tmp_path / "e", "C6", fine, shift_seed=1)
    shifted.write(tmp_path / "f", "C0", fine, attribute="size")
    cells = read(tmp_path).cells
    assert sorted((c.recipe.dealt, c.recipe.setting) for c in cells) == [
        ("", ""),  # Of another attribute, so of no rival.
        ("images=0, shift_seed=0", "epochs=5"),
        ("images=0, shift_seed=0", "epochs=9"),
        ("images=0, shift_seed=1", ""),
        ("images=1000, shift_seed=0", ""),
    ]
    assert {cell.seeds for cell in cells} == {(0, 1, 2)}
    assert sorted(c.images for c in cells) == [800, 8_000, 8_000, 8_000, 8_000]


def test_how_images_are_dealt_is_told_of_all_models_alike(tmp_path):
    fine = {"id": 0.9, "ood": 0.5}
    shifted.write(tmp_path / "a", "C6", fine, images=1_000)
    shifted.write(tmp_path / "b", "C6", fine, images=5_000)
    shifted.write(tmp_path / "c", "C6", fine, images=5_000, model="cnn", epochs=2)
    shifted.write(tmp_path / "d", "C6", fine, images=5_000, inputs=["x" * 50])
    recipes = {c.runs[0].workdir[-1]: c.recipe for c in read(tmp_path).cells}
    assert recipes["a"].network == "resnet18" and recipes["c"].network == "cnn"
    assert [recipes[name].dealt for name in "abcd"] == ["images=1000"] + [
        "images=5000"
    ] * 3
    assert recipes["d"].setting.startswith("as run-d")  # Too long to be told.


def test_levels_of_stages_are_of_one_recipe(tmp_path):
    for level in ("C0", "C6"):
        shift = dict(level=level, attribute="colour", images=0, seed=0, part="train")
        stages = [{"algo": {"name": "erm"}}, {"train": {"data": "x", "shift": shift}}]
        where, accuracies = tmp_path / level, {"id": 0.9, "ood": 0.5}
        shifted.write(where, level, accuracies, stages=stages, variant="dfr")
    cells = read(tmp_path).cells
    assert len({cell.recipe for cell in cells}) == 1
    assert cells[0].recipe.algorithm == "erm (dfr)"


def test_seeds_twice_and_other_images_are_refused(tmp_path, capsys):
    fine = {"id": 0.9, "ood": 0.5}
    shifted.write(tmp_path / "a", "C6", fine)
    shifted.write(tmp_path / "b", "C6", fine, seeds=(2, 3))
    args = f"--runs={tmp_path}/*", f"--out={tmp_path}/out"
    assert "got seed 2 of ERM" in refused(capsys, *args)
    shutil.rmtree(tmp_path / "b")
    shifted.write(tmp_path / "b", "C6", fine, seeds=(3,), trained=7_000)
    assert "must be trained on the images of" in refused(capsys, *args)
    assert not (tmp_path / "out").exists()
    shutil.rmtree(tmp_path / "b")
    shifted.write(tmp_path / "b", "C6", fine, seeds=(2,), valid={"data": "other"})
    assert "got seed 2 in both" in refused(capsys, *args)


def test_what_is_left_out_is_told(tmp_path):
    fine = {"id": 0.9, "ood": 0.5}
    shifted.write(tmp_path / "a", "C6", fine, done=False)
    shifted.write(tmp_path / "b", "M4", {"id": 0.9}, seeds=(5,))
    shifted.write(tmp_path / "c", "C6", fine, attribute="size")
    plain = tmp_path / "c/config.json"
    config = json.loads(plain.read_text())
    del config["train"]["shift"]
    plain.write_text(json.dumps(config))
    (tmp_path / "empty").mkdir()
    study = read(tmp_path)
    assert [cell.level for cell in study.cells] == ["C6"]
    told = "\n".join(study.notes)
    assert f"{tmp_path}/a is not finished" in told
    assert f"not trained under a shift (config.json): {tmp_path}/c." in told
    assert f"{tmp_path}/b: must have accuracy on id and ood" in told
    assert f"{tmp_path}/empty matches the pattern" in told
    caveats = "\n".join(shift_page._caveats(study, [], "erm"))
    assert "Without a control (M0, C0, J0)" in caveats


def test_a_seed_that_diverged_is_told_and_left_out(tmp_path):
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


def test_selection_says_which_evaluation_counts(tmp_path):
    steps = (100, 200, 300)
    accuracies = {
        "valid": {100: 0.5, 200: 0.9, 300: 0.7},
        "id": {100: 0.6, 200: 0.8, 300: 0.7},
        "ood": {100: 0.4, 200: 0.1, 300: 0.3},
    }
    shifted.write(tmp_path / "a", "C6", accuracies, steps=steps)
    found = {}
    for name in ("best_validation", "last_n", "oracle"):
        study = read(tmp_path, selection=name, last=1)
        cell = study.cells[0]
        found[name] = round(cell.inside[0], 3), round(cell.outside[0], 3)
        assert study.oracle == (name == "oracle")
    assert found == {
        "best_validation": (0.8, 0.1),
        "last_n": (0.7, 0.3),
        "oracle": (0.8, 0.4),
    }
    mean = read(tmp_path, selection="last_n", last=2).cells[0]
    assert mean.outside[0] == pytest.approx(0.2)


def test_probabilities_are_those_of_what_was_selected(tmp_path):
    kept = {"id": [0.9, 0.8], "ood": [0.1]}
    where = tmp_path / "a"
    shifted.write(where, "C6", {"id": 0.9, "ood": 0.5}, likelihood=kept, seeds=(0, 4))
    wrong = pd.read_parquet(where / "decisions/id/100.parquet")
    wrong.assign(likelihood=0.0).to_parquet(where / "decisions/id/50.parquet")
    (cell,) = read(tmp_path).cells
    found = shift_page.likelihoods(cell, "id")
    assert found == pytest.approx([0.9, 0.8] * 2)
    assert len(shift_page.likelihoods(cell, "ood")) == 2


def test_realised_tables_are_shown_with_their_sums(tmp_path):
    shifted.write(tmp_path / "a", "C6", {"id": 0.9, "ood": 0.5}, trained=80)
    (one,) = shift_page._image_counts(read(tmp_path).cells)
    assert one["sets"]["train/0"]["counts"] == [[10, 10, 0, 0], [10, 10, 0, 0]]
    lines = [line.split() for line in shift_page._folded(one).text.splitlines()]
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
def test_bad_input_is_one_line(args, words, runs, tmp_path, capsys):
    args = [one.format(runs=runs) for one in args]
    assert words in refused(capsys, *args, f"--out={tmp_path}/out")


def test_runs_without_a_shift_are_one_line(tmp_path, capsys):
    shifted.write(tmp_path / "a", "C6", {"id": 0.9, "ood": 0.5})
    path = tmp_path / "a/config.json"
    config = json.loads(path.read_text())
    args = f"--runs={tmp_path}/*", f"--out={tmp_path}/out"
    config["train"]["shift"]["level"] = "C9"
    path.write_text(json.dumps(config))
    assert "level of the shift must be one of M0" in refused(capsys, *args)
    del config["train"]["shift"]
    path.write_text(json.dumps(config))
    assert "must hold runs trained under a shift" in refused(capsys, *args)


def test_one_run_alone_makes_a_report(tmp_path, capsys):
    where, out = tmp_path / "a", tmp_path / "out"
    shifted.write(where, "only-red", {"id": 0.9, "ood-blue": 0.5}, seeds=(7,))
    assert shifts.main([f"--runs={where}", f"--out={out}"]) == 0
    assert "No shift beyond the control was run" in capsys.readouterr().out
    told = json.loads((out / "results.json").read_text())
    assert told["basis"].endswith("see jbias papers shifts.")
    assert "One seed does not show the variation" in " ".join(told["caveats"])


@cases.each("asked", (["--printed"], ["--printed=examples/published"]))
def test_what_the_paper_printed_is_of_another_command(asked, capsys):
    with pytest.raises(SystemExit):
        shifts.main(["--runs=x", *asked])
    err = capsys.readouterr().err
    assert "--printed: this flag has moved; use `jbias papers shifts` instead" in err
    assert err.count("\n") == 1


def test_remedies_without_the_plain_recipe_are_told(tmp_path):
    fine = {"id": 0.9, "ood": 0.5}
    for name, level in (("erm", "C6"), ("irm", "C6"), ("coral", "M4")):
        shifted.write(tmp_path / name, level, fine, algorithm=name)
    study = read(tmp_path)
    found = shift_drops.remedies(study.cells, shift_drops.Draws(200, 0))
    assert [row["algorithm"] for row in found] == ["erm", "irm"]
    caveats = shift_page._caveats(study, found, "erm")
    (caveat,) = (line for line in caveats if "drop closed by" in line)
    assert caveat.startswith("The drop closed by coral is unknown")
