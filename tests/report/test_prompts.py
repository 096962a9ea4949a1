"""Prompts are a factor of a model: in tables of decisions, and in folders of measured networks."""

import csv
import json

import numpy as np
import pandas as pd
import pytest

from jbias.answers import columns, tables
from jbias.data import tables as data_tables
from jbias.data.sets import geirhos
from jbias.evals import measured as measured_results
from jbias.measures import cue_conflict
from jbias.measures import decisions as measures
from jbias.report import decisions, measured, measured_observers
from tests import cases
from tests.report import measure_files

PUBLISHED = tuple(data_tables.cue_conflicts())
LABEL = np.array(
    [geirhos.CLASSES.index(x.split("-")[0].rstrip("0123456789")) for x in PUBLISHED]
)
TEXTURE = geirhos.cues("cue-conflict", PUBLISHED, geirhos.CLASSES)["texture"]
CONFLICTS = np.flatnonzero(LABEL != TEXTURE)
PROMPTS = {"choice": 300, "caption": 900}  # Numbers of shape decisions.


def planted(num_shape):
    """Return class ids: the shape of the first conflicts, the texture of all other images."""
    decided = TEXTURE.copy()
    decided[CONFLICTS[:num_shape]] = LABEL[CONFLICTS[:num_shape]]
    return decided


def write_table(path, prompts, *, model="gpt"):
    """Write a table with the columns that `jbias ask` writes, one prompt after the other."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["imagename", "object_response", "model", "prompt"])
        for prompt, num_shape in prompts.items():
            for image, class_id in zip(PUBLISHED, planted(num_shape), strict=True):
                table.writerow([image, geirhos.CLASSES[class_id], model, prompt])
    return path


def write_measured(folder, num_shape, factors, *, unanswered=0):
    """Write the folder of a measured network with planted decisions.

    unanswered: number of last conflicts without an answer.
    """
    cues = geirhos.cues("cue-conflict", PUBLISHED, geirhos.CLASSES)
    prediction = planted(num_shape)
    prediction[CONFLICTS[len(CONFLICTS) - unanswered :]] = -1
    columns = {"label": LABEL, "index": np.arange(len(PUBLISHED)), **cues}
    decided = {"": measures.Decisions(prediction, columns)}
    name = folder.name
    fields = dict(run=name, algorithm=name, variant="", model=name, seed=0)
    fields |= dict(train_data="unknown", stage=0, step=0, epoch=0.0)
    description = {
        "measure": {"probe": "shape_bias", "options": {}},
        "dataset": {"n": len(PUBLISHED)},
        "classes": geirhos.CLASSES,
        "images": len(PUBLISHED),
        "seconds": 1.0,
    }
    measure_files.write(
        folder,
        fields,
        "shape_bias",
        "cue-conflict",
        cue_conflict.numbers(decided, classes=geirhos.CLASSES),
        description,
        decided,
    )
    config = {"algorithm": name, "model": {"name": name}, "factors": factors}
    (folder / "config.json").write_text(json.dumps(config))
    sets = {"shape_bias": {"sets": ["cue-conflict"]}}
    provenance = {"suite": {"measures": sets}, "data": {}}
    (folder / "provenance.json").write_text(json.dumps(provenance))
    return folder


def page(tmp_path, paths):
    """Return results.json of the page of paths, and its HTML."""
    out = tmp_path / "page"
    assert decisions.main([f"--decisions={x}" for x in paths] + [f"--out={out}"]) == 0
    results = json.loads((out / "results.json").read_text())
    return results["sets"]["cue-conflict"], (out / "index.html").read_text()


def check_ranges(results, model):
    """Assert that the factor prompt has the planted range."""
    (row,) = results["factors"]["prompt"]["ranges"]
    count = len(CONFLICTS)
    assert (row["model"], row["levels"]) == (model, 2)
    assert (row["lowest"], row["highest"]) == ("choice", "caption")
    assert row["lowest_score"] == pytest.approx(300 / count)
    assert row["range"] == pytest.approx(600 / count)
    assert 0.02 < row["interval"] < 0.08  # 2 * 1.96 * sqrt(p (1 - p) / 1,200) is 0.05.


@pytest.mark.parametrize("files", [1, 2])
def test_prompts_of_a_column_are_levels_of_a_model(tmp_path, files):
    if files == 1:
        paths = [write_table(tmp_path / "all.csv", PROMPTS)]
    else:
        paths = [
            write_table(tmp_path / f"gpt-{prompt}" / "decisions.csv", {prompt: count})
            for prompt, count in PROMPTS.items()
        ]
    results, html = page(tmp_path, paths)
    rows = {row["observer"]: row for row in results["observers"]}
    assert {*rows} == {"gpt, choice", "gpt, caption"}
    assert rows["gpt, choice"]["prompt"] == "choice"
    assert rows["gpt, choice"]["model"] == "gpt"
    check_ranges(results, "gpt")
    assert "How much the prompt changes shape bias" in html


def test_measured_networks_with_prompts_are_levels_of_a_model(tmp_path):
    for prompt, count in PROMPTS.items():
        factors = {"model": "clip", "prompt": prompt}
        write_measured(tmp_path / "measured" / f"clip-{prompt}", count, factors)
    write_measured(tmp_path / "measured" / "resnet", 100, {})
    table = write_table(tmp_path / "gpt.csv", {"choice": 300})
    results, _ = page(tmp_path, [tmp_path / "measured", table])
    rows = {row["observer"]: row for row in results["observers"]}
    assert {*rows} == {"clip, choice", "clip, caption", "resnet", "gpt"}
    check_ranges(results, "clip")
    # The images have the names of the published files: decisions are compared with a table's.
    pairs = {(x["first"], x["second"]): x for x in results["pairs"]}
    pair = pairs.get(("clip, choice", "gpt")) or pairs["gpt", "clip, choice"]
    assert pair["num_images"] == len(PUBLISHED) and pair["first_minus_second"] == 0


def test_the_page_of_measured_networks_has_prompts_as_a_factor(tmp_path):
    for name in ("a-net", "b-net"):
        for prompt, count in PROMPTS.items():
            folder = tmp_path / "measured" / f"{prompt}-{name}"
            write_measured(folder, count, {"model": name, "prompt": prompt})
    write_measured(tmp_path / "measured" / "resnet", 100, {})
    out = tmp_path / "page"
    assert measured.main([f"--measured={tmp_path}/measured/*", f"--out={out}"]) == 0
    for name in ("overview", "shape_bias"):
        table = pd.read_csv(out / f"tables/{name}.csv", keep_default_na=False)
        rows = [*zip(table["model"], table["prompt"], strict=True)]
        assert rows == [
            ("a-net", "caption"),
            ("a-net", "choice"),
            ("b-net", "caption"),
            ("b-net", "choice"),
            ("", ""),
        ]
    table = pd.read_csv(out / "tables/shape_bias_by_prompt.csv")
    assert [*table["model"]] == ["a-net", "b-net"]
    row = table.iloc[0]
    assert (row["lowest"], row["highest"]) == ("choice", "caption")
    assert row["range"] == pytest.approx(600 / len(CONFLICTS))
    ends = [
        measures.wilson_interval(count, len(CONFLICTS)) for count in PROMPTS.values()
    ]
    widths = [upper - lower for lower, upper in ends]
    assert row["interval"] == pytest.approx(np.mean(widths))


def test_refusals_are_no_decisions_on_both_pages(tmp_path):
    """120 of 1,200 conflicts have no answer, and all answers are for a cue: neither is 0."""
    folder = write_measured(tmp_path / "measured" / "net", 300, {}, unanswered=120)
    out = tmp_path / "page"
    assert measured.main([f"--measured={folder}", f"--out={out}"]) == 0
    (row,) = pd.read_csv(out / "tables/shape_bias.csv").to_dict("records")
    assert (row["fraction_neither"], row["unanswered"]) == (0, 0.1)
    assert row["shape_bias"] == pytest.approx(300 / 1080)
    results, _ = page(tmp_path, [folder])
    (row,) = results["observers"]
    assert (row["neither"], row["unanswered"]) == (0, 120)
    assert (row["shape"], row["texture"]) == (300, 780)


def test_a_model_that_refuses_most_questions_does_not_guess(tmp_path, capsys):
    """All 100 answers of 1,200 are for a cue: far above 2 of 16 classes."""
    folder = write_measured(tmp_path / "net", 300, {}, unanswered=1100)
    assert measured.main([f"--measured={folder}", f"--out={tmp_path / 'page'}"]) == 0
    assert "chance" not in capsys.readouterr().out
    assert not [*measured_results.read(folder).doubts()]


def test_questions_that_differ_by_image_are_no_prompts(tmp_path):
    path = tmp_path / "model.csv"
    rows = [f"{x},cat,Is it {i}?" for i, x in enumerate(PUBLISHED)]
    path.write_text("\n".join(["image,pred_label,prompt", *rows]))
    (observer,) = tables.read(str(path))
    assert observer.name == "model" and observer.factors["prompt"] == ""


def test_a_single_prompt_does_not_change_the_name(tmp_path):
    path = write_table(tmp_path / "decisions.csv", {"choice": 3})
    (observer,) = tables.read(str(path))
    assert observer.name == "gpt" and observer.factors["prompt"] == "choice"


def test_long_prompts_that_begin_alike_have_different_names(tmp_path):
    prompts = {"Which option best describes the image? " * 3 + x: 5 for x in "ab"}
    path = write_table(tmp_path / "decisions.csv", prompts)
    names = [x.name for x in tables.read(str(path))]
    assert len({*names}) == 2 and max(map(len, names)) < 80
    assert all(name.startswith("gpt, Which option") for name in names)


def test_a_column_of_another_name_is_chosen_by_the_flag(tmp_path):
    path = write_table(tmp_path / "decisions.csv", PROMPTS)
    path.write_text(path.read_text().replace("model,prompt", "model,question"))
    with pytest.raises(ValueError, match="decided about once"):
        tables.read(str(path))
    read = tables.read(str(path), columns=columns.parse("prompt=question"))
    assert [x.factors["prompt"] for x in read] == ["caption", "choice"]


@cases.each(
    ("names", "message"),
    [((), "must have decisions/SET"), (("a", "a"), "must have different names")],
)
def test_folders_without_decisions_and_equal_names_are_refused(
    tmp_path, names, message
):
    folders = []
    for number, name in enumerate(names):
        factors = {"model": name, "prompt": "p"}
        folder = tmp_path / str(number) / "same"
        folders.append(write_measured(folder, 5, factors))
    if not folders:
        (tmp_path / "empty" / "measures").mkdir(parents=True)
        (tmp_path / "empty" / "config.json").write_text("{}")
        folders = [tmp_path / "empty"]
    with pytest.raises(ValueError, match=message):
        measured_observers.read(folders)
