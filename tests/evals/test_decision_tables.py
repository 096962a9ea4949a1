"""Decisions given as tables: the numbers are the network's own; invalid tables are refused."""

import csv
import json
import os
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from etils import epath
from PIL import Image

from jbias import ask, evals, evaluate, export_stimuli, models
from jbias import config as jc
from jbias.answers import columns as answer_columns
from jbias.answers import observers, tables
from jbias.data import class_maps
from jbias.evals import decision_tables, networks, runner, suites
from jbias.evals import measured as results_of_model
from jbias.measures import human, human_answers
from tests import cases, chat_server

SUITE = """
import ml_collections

def get_config(text=""):
    c = ml_collections.ConfigDict()
    c.size = 32
    c.run = dict(batch=50)
    common = dict(data="shapes", correlation=0.99)
    c.sets = dict(
        edge=dict(split="edge", n=48, **common),
        cue_conflict=dict(split="cue_conflict", n=240, **common),
    )
    c.measures = dict(
        accuracy=dict(probe="plain", sets=("edge", "cue_conflict")),
        calibration=dict(sets=("edge",)),
        classes=dict(sets=("edge",)),
        grid_shuffle=dict(sets=("edge",), grids=(2,)),
        shape_bias=dict(sets=("cue_conflict",)),
    )
    return c
"""
MEASURES_OF_NAMES = ["accuracy", "classes", "shape_bias"]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    (folder / "s.py").write_text(SUITE)
    only_argument = f"--only={','.join(MEASURES_OF_NAMES)}"
    arguments = [f"--suite={folder}/s.py", only_argument, f"--out={folder}/stimuli"]
    assert export_stimuli.main(arguments) == 0
    return folder


@pytest.fixture(scope="module")
def network(exported):
    config = jc.load(f"{exported}/s.py", (), flag="suite")
    suite = suites.open_suite(config, print, only=MEASURES_OF_NAMES)
    source = suite.sources["edge"]
    net = models.MODELS["cnn"](len(source.classes), width=4)
    variables = net.init(jax.random.key(1), jnp.zeros((1, 32, 32, 3)))
    fields = dict(
        run="net",
        algorithm="net",
        variant="",
        model="decisions",
        train_data="unknown",
        stage=0,
        seed=0,
        step=0,
        epoch=0.0,
    )
    flax_network = networks.FlaxNetwork(
        "net",
        tuple(source.classes),
        source.space,
        "d",
        fields,
        {"category": "net"},
        net,
        variables,
    )
    out = epath.Path(exported / "direct")
    assert not runner.run_suite(flax_network, suite, out, print)
    return flax_network


def read_index(exported):
    with (exported / "stimuli/index.csv").open() as file:
        return list(csv.DictReader(file))


def write_table(path, rows):
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(rows)
    return path


@pytest.fixture(scope="module")
def answered(exported, network):
    """Return the rows of the index with the decisions of the network about the files."""
    index_rows = read_index(exported)
    apply = networks.make_apply(network.net)
    images = np.stack(
        [Image.open(exported / "stimuli" / x["imagename"]) for x in index_rows]
    )
    logits = jax.jit(apply)(network.variables, images.astype(np.float32) / 255)
    for row, best in zip(index_rows, np.argmax(logits, -1), strict=True):
        row |= {"subj": "net", "object_response": network.classes[best]}
    return index_rows


def measure_table(exported, out, *args):
    return evaluate.main([f"--suite={exported}/s.py", f"--out={out}", *args])


def read_records(folder):
    """Return the records of a measured network by the name of their file."""
    records = {}
    for path in sorted(pathlib.Path(folder).glob("evals/*.jsonl")):
        lines = path.read_text().splitlines()
        records[path.name] = [json.loads(line) for line in lines]
    return records


def test_decisions_from_a_table_give_the_numbers_of_the_network_itself(
    exported, answered, tmp_path
):
    table = write_table(tmp_path / "mine.csv", answered[::-1])
    only = f"--only={','.join(MEASURES_OF_NAMES)}"
    out = tmp_path / "out"
    assert measure_table(exported, out, f"--decisions={table}", only) == 0
    direct = read_records(exported / "direct/net")
    assert len(direct) == 4
    ranked = {"mrr_shape", "mrr_texture", "mrr_relative"}  # Names have no ranks.
    (bias,) = (name for name in direct if name.startswith("shape_bias"))
    assert ranked <= {record["metric"] for record in direct[bias]}
    for name, records in direct.items():
        direct[name] = [r for r in records if r["metric"] not in ranked]
    assert read_records(out / "net") == direct
    table = tmp_path / "mine.parquet"
    pd.DataFrame(answered).to_parquet(table)
    out = tmp_path / "parquet"
    assert measure_table(exported, out, f"--decisions={table}", only) == 0
    assert read_records(out / "net") == direct
    assert len({row["object_response"] for row in answered}) > 1


def test_an_index_has_the_classes_of_both_cues(exported):
    cue_rows = [row for row in read_index(exported) if row["set"] == "cue_conflict"]
    assert len(cue_rows) == 240 and all(row["texture"] for row in cue_rows)
    assert {row["exact"] for row in cue_rows} == {"yes"}


def test_measures_that_need_probabilities_or_other_stimuli_are_left_out(
    exported, answered, tmp_path, capsys
):
    table = write_table(tmp_path / "mine.csv", answered)
    assert measure_table(exported, tmp_path / "out", f"--decisions={table}") == 1
    error_output = capsys.readouterr().err
    assert "calibration needs probabilities or logits, got names" in error_output
    assert "no decisions about edge under" in error_output


def _twice(rows):
    return [*rows, rows[0]]


def _unknown_class(rows):
    return [{**rows[0], "object_response": "unicorn"}, *rows[1:]]


def _no_image(rows):
    return [{**rows[0], "imagename": "edge/as it is/999999.png"}, *rows[1:]]


def _no_column(rows):
    return [
        {k: value for k, value in row.items() if k != "object_response"} for row in rows
    ]


def _no_set(rows):
    keys = ("imagename", "object_response")
    return [{k: row[k].rpartition("/")[2] for k in keys} for row in rows]


@cases.each(
    ("change", "message"),
    [
        (_no_set, "mine.csv:2: 48 of the file's 48 images are not among the 48 of the"),
        (_twice, "must be decided about once"),
        (_unknown_class, "one of edge's classes: unknown 'unicorn'"),
        (
            _no_image,
            "mine.csv:2: 1 of the file's 48 images are not among the 48 of the set",
        ),
        (_no_image, "edge, the first is 'edge/as it is/999999.png'; give the folder"),
        (_no_column, "must have the column(s) object_response, got "),
    ],
)
def test_wrong_files_are_refused_in_a_line(
    exported, answered, tmp_path, capsys, change, message
):
    edge = [row for row in answered if row["set"] == "edge"]
    table = write_table(tmp_path / "mine.csv", change(edge))
    args = f"--decisions={table}", "--only=classes"
    assert measure_table(exported, tmp_path / "out", *args) == 2
    assert message in capsys.readouterr().err


def test_a_file_about_some_images_is_measured_on_these(
    exported, answered, tmp_path, capsys
):
    """Numbers are over the images with a row; a line says how many have none."""
    edge = [row for row in answered if row["set"] == "edge"]
    num_correct = sum(row["object_response"] == row["category"] for row in edge[:20])
    table = write_table(tmp_path / "mine.csv", edge[:20])
    for only, code in (("accuracy,classes", 1), ("classes", 0), ("classes", 0)):
        args = f"--decisions={table}", f"--only={only}"
        assert measure_table(exported, tmp_path / "out", *args) == code
        error_output = capsys.readouterr().err
        assert (
            "28 of the 48 images of edge have no decision; measured on the"
            in error_output
        )
        # A set of the suite without any row is left out.
        assert ("no decisions about cue_conflict" in error_output) == (code == 1)
    records = read_records(tmp_path / "out/net")["accuracy@edge.jsonl"]
    (accuracy,) = (x for x in records if x["metric"] == "accuracy")
    assert (accuracy["count"], accuracy["n"]) == (num_correct, 20)


def test_no_answer_is_wrong_and_no_decision_for_a_cue(
    exported, answered, tmp_path, capsys
):
    """The response "na", of people in model-vs-human, is no class."""
    cues = [row for row in answered if row["set"] == "cue_conflict"]
    unanswered = [{**row, "object_response": "na"} for row in cues[:30]]
    shape = [{**row, "object_response": row["category"]} for row in cues[30:]]
    table = write_table(tmp_path / "mine.csv", [*unanswered, *shape])
    args = f"--decisions={table}", "--only=shape_bias"
    assert measure_table(exported, tmp_path / "out", *args) == 0
    assert measure_table(exported, tmp_path / "out", *args) == 0  # It resumes.
    error_output = capsys.readouterr().err
    assert "30 of the 240 decisions on cue_conflict are no answer" in error_output
    records = read_records(tmp_path / "out/net")["shape_bias@cue_conflict.jsonl"]
    records_by_metric = {
        x["metric"]: x for x in records if x["condition"] == "shape_bias"
    }
    conflicts = sum(row["category"] != row["texture"] for row in cues)
    no_answer = sum(row["category"] != row["texture"] for row in cues[:30])
    assert records_by_metric["shape_bias"]["value"] == 1
    assert records_by_metric["shape_bias"]["n"] == conflicts - no_answer
    assert records_by_metric["fraction_neither"]["count"] == 0
    assert records_by_metric["unanswered"]["count"] == no_answer > 0
    assert records_by_metric["accuracy_shape"]["count"] == 210


def test_columns_and_words_of_other_tables_are_recognised_without_a_flag(tmp_path):
    """Published files have `image` and `pred_label`; every word for no answer is read."""
    images = tmp_path / "photos/test"
    words = {"1": "Bird ", "2": "None", "3": "", "4": "refused", "5": "CAT"}
    for folder in ("bird", "cat"):
        (images / folder).mkdir(parents=True)
        for name in words:
            Image.new("RGB", (8, 8)).save(images / folder / f"{name}.png")
    table = tmp_path / "mine.csv"
    lines = [f"bird/{name}.png,some words,{word}" for name, word in words.items()]
    table.write_text("\n".join(["image,response,pred_label", *lines]) + "\n")
    config = {
        "size": 8,
        "sets": {
            "photos": dict(data="folder", split="test", root=str(tmp_path / "photos"))
        },
        "measures": dict(accuracy=dict(probe="plain", sets=("photos",))),
    }
    suite = suites.open_suite(config, lambda line: None)
    (network,) = decision_tables.load(str(table), suite, {})
    no_row, no_answer = observers.NO_ROW, observers.NO_ANSWER
    (decided,) = network.decided.values()
    assert decided.tolist() == [0, no_answer, no_answer, no_answer, 1, *[no_row] * 5]


def test_a_table_without_any_answer_is_not_one_of_a_constant_class(
    exported, answered, tmp_path
):
    cues = [row for row in answered if row["set"] == "cue_conflict"]
    unanswered = [{**row, "object_response": "na"} for row in cues]
    table = write_table(tmp_path / "mine.csv", unanswered)
    args = f"--decisions={table}", "--only=shape_bias"
    assert measure_table(exported, tmp_path / "out", *args) == 0
    measured_network = results_of_model.read(tmp_path / "out/net")
    (line,) = measured_network.doubts()
    assert line.startswith("decisions for either cue on cue_conflict are no more than")


def test_the_set_follows_from_the_names_of_images(tmp_path):
    """No column is needed if only one set has such an image, or if there is only one set."""
    for split, stem in (
        ("edge", "cat1"),
        ("silhouette", "cat1"),
        ("other", "cat1-dog2"),
    ):
        for name in ("cat", "dog"):
            path = tmp_path / split / name / f"{stem.replace('cat', name)}.png"
            path.parent.mkdir(parents=True)
            Image.new("RGB", (8, 8)).save(path)

    def load(image, sets, file="mine.csv"):
        table = tmp_path / file
        table.write_text(f"imagename,object_response\n{image},cat\n")
        config = {
            "size": 8,
            "sets": {
                name: dict(data="folder", split=name, root=str(tmp_path))
                for name in sets
            },
            "measures": dict(accuracy=dict(probe="plain", sets=sets)),
        }
        suite = suites.open_suite(config, lambda line: None)
        (network,) = decision_tables.load(str(table), suite, {})
        return [dataset for dataset, _ in network.decided]

    all_sets = ("edge", "silhouette", "other")
    assert load("cat1.png", ("edge",)) == ["edge"]
    assert load("dog1-dog2.png", all_sets) == ["other"]
    assert load("cat1.png", ("edge", "other")) == ["edge"]
    with pytest.raises(ValueError, match="is an image of the sets edge and silhouette"):
        load("cat1.png", all_sets)
    with pytest.raises(ValueError, match="must name the suite's set in a column 'set'"):
        load("cat9.png", all_sets)
    with pytest.raises(
        ValueError, match="1 of the file's 1 images are not among the 2"
    ):
        load("cat9.png", ("edge",))
    # Images of edges and silhouettes have the same names, so the name of the file counts.
    assert load("cat1.png", ("edge", "other"), "edge_mine.csv") == ["edge"]
    assert load("dog1-dog2.png", ("other",), "edge_mine.csv") == ["other"]
    message = "is named for the set edge, which is not among the sets here .silhouette"
    for sets in (("silhouette",), ("silhouette", "other")):
        with pytest.raises(ValueError, match=message):
            load("cat1.png", sets, "edge_mine.csv")


def test_empty_folders_and_files_cut_off_are_refused(
    exported, answered, tmp_path, capsys
):
    (tmp_path / "none").mkdir()
    assert (
        measure_table(exported, tmp_path / "out", f"--decisions={tmp_path}/none") == 2
    )
    assert "got an empty one" in capsys.readouterr().err
    edge = [row for row in answered if row["set"] == "edge"]
    table = write_table(tmp_path / "mine.csv", edge)
    table.write_text(
        table.read_text()[: len(table.read_text()) // 2].rpartition(",")[0]
    )
    args = f"--decisions={table}", "--only=classes"
    assert measure_table(exported, tmp_path / "out", *args) == 2
    assert "damaged or cut off" in capsys.readouterr().err
    args = f"--decisions={table.rename(tmp_path / 'mine.parquet')}", *args[1:]
    assert measure_table(exported, tmp_path / "out", *args) == 2
    assert "mine.parquet: must be a Parquet file" in capsys.readouterr().err


def test_columns_are_named_by_a_flag():
    columns = answer_columns.parse("response=predicted,image=path")
    assert columns == {"response": "predicted", "image": "path"}
    with pytest.raises(ValueError, match="unknown 'respnse'; did you mean 'response'"):
        answer_columns.parse("respnse=x")


PUBLISHED = pathlib.Path(os.environ.get("JBIAS_TEST_DATA", "nowhere"))
PUBLISHED = PUBLISHED.parent / "paper/decisions"
WITH_PUBLISHED = pytest.mark.skipif(
    not PUBLISHED.is_dir(), reason="needs published decisions beside JBIAS_TEST_DATA"
)
CUES = """
import ml_collections

def get_config(text=""):
    c = ml_collections.ConfigDict()
    c.size = 16
    c.sets = {"cue-conflict": dict(data="geirhos", split="cue-conflict", root=ROOT)}
    sets = ("cue-conflict",)
    c.measures = dict(shape_bias=dict(sets=sets), human=dict(sets=sets, root=PEOPLE))
    return c
"""


@WITH_PUBLISHED
def test_published_decisions_have_the_published_shape_bias(tmp_path):
    """Shape bias is as printed by Geirhos et al. (ICLR 2019): .2207 (ResNet-50), .8061 (on SIN).

    The images are blank, as only the decisions matter.
    """
    published = human_answers.read(
        PUBLISHED / "cue-conflict_resnet50.csv", "cue-conflict"
    )
    classes = [*class_maps.geirhos16()]
    for image, shape in zip(published.image, published.category, strict=True):
        folder = tmp_path / "cue-conflict" / classes[shape]
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16)).save(folder / f"{image}.png")
    text = f"ROOT, PEOPLE = {str(tmp_path)!r}, {str(PUBLISHED)!r}"
    (tmp_path / "s.py").write_text(text + CUES)
    arguments = f"--suite={tmp_path}/s.py", f"--out={tmp_path}/out"
    for name in ("resnet50", "resnet50_train_60_epochs"):
        table = PUBLISHED / f"cue-conflict_{name}.csv"
        assert evaluate.main([*arguments, f"--decisions={table}"]) == 0
    people = human_answers.people(PUBLISHED, "cue-conflict")
    for name, bias in (("resnet50", 0.2207), ("resnet50-train-60-epochs", 0.8061)):
        by_file = read_records(tmp_path / "out" / name).values()
        all_records = [x for records in by_file for x in records]
        summary_records = [
            x for x in all_records if x["condition"] in ("shape_bias", "human")
        ]
        value = {x["metric"]: x["value"] for x in summary_records}
        assert round(value["shape_bias"], 4) == bias
        path = PUBLISHED / f"cue-conflict_{name.replace('-', '_')}.csv"
        network_trials = human_answers.read(path, "cue-conflict").select(
            people[0].image
        )
        is_correct = network_trials.response == network_trials.category
        kappas = [
            evals.error_consistency(is_correct, x.response == x.category).kappa
            for x in (person.select(network_trials.image) for person in people)
        ]
        np.testing.assert_allclose(value["error_consistency"], np.mean(kappas))


@WITH_PUBLISHED
def test_people_have_the_published_shape_bias():
    """The shape bias of the decisions of ten people together is .9587."""
    people = human_answers.people(PUBLISHED, "cue-conflict")
    biases = human.shape_biases(people).values()
    shape = sum(bias.n_shape for bias in biases)
    texture = sum(bias.n_texture for bias in biases)
    assert round(shape / (shape + texture), 4) == 0.9587


def test_a_column_that_is_named_twice_is_refused(tmp_path):
    path = tmp_path / "edge_mine.csv"
    path.write_text("imagename,object_response,object_response\na.png,star,disc\n")
    with pytest.raises(ValueError, match="must name every column once"):
        tables.read_cells(str(path), {})


@pytest.mark.parametrize("name", ["/outside/evil", "../evil", "a/b"])
def test_a_set_that_is_named_as_a_path_is_refused(name):
    config = dict(size=32, run={}, sets={name: dict(data="shapes", split="edge", n=4)})
    config["measures"] = dict(accuracy=dict(probe="plain", sets=(name,)))
    with pytest.raises(ValueError, match="suite.sets: a name: must be a plain name"):
        suites.open_suite(config, print)


def test_a_glob_names_several_tables(tmp_path):
    for name in ("a.csv", "b.csv", "c.txt", "mycsv"):
        (tmp_path / name).write_text("x\n")
    files = tables.find_files(str(tmp_path / "*"))
    assert files == [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]
    with pytest.raises(ValueError, match="got nothing there"):
        tables.find_files(str(tmp_path / "*.parquet"))


def test_a_chat_models_answers_about_exported_stimuli_are_measured(
    exported, tmp_path, monkeypatch
):
    """A model that names the shape by its drawn letter has the accuracy and shape bias 1."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    stimuli = exported / "stimuli"
    with (stimuli / "index.csv").open(newline="") as file:
        category = {row["imagename"]: row["category"] for row in csv.DictReader(file)}
    images = {name: (stimuli / name).read_bytes() for name in category}

    def answer(question):
        return f"({chat_server.letter_of(question, category[question.name])})"

    with chat_server.ChatServer(images, answer=answer) as server:
        flags = ["--model=vlm", f"--endpoint={server.url}", "--limit=70"]
        flags += [f"--stimuli={stimuli}", f"--out={tmp_path}/asked", "--parallel=8"]
        assert ask.main(flags) == 0
    arguments = [
        f"--decisions={tmp_path}/asked/decisions.csv",
        f"--suite={exported}/s.py",
    ]
    arguments += ["--only=accuracy,shape_bias", f"--out={tmp_path}/measured"]
    assert evaluate.main(arguments) == 0
    results = results_of_model.read(tmp_path / "measured/vlm")
    assert results.shape_bias == 1.0
    accuracies = results.numbers[results.numbers["metric"] == "accuracy"]
    assert {*accuracies["dataset"]} == {"edge", "cue_conflict"}
    assert {*accuracies["value"]} == {1.0}
