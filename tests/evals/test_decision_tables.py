"""Decisions made elsewhere: the same numbers as of the network, and what is refused."""

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

from jbias import config as jc
from jbias import evals, evaluate, export_stimuli, models
from jbias.data import labels
from jbias.evals import decision_tables, human, networks, runner, suites, trials
from jbias.evals import measured as results_of_model
from tests import cases

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
MINE = ["accuracy", "classes", "shape_bias"]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    (folder / "s.py").write_text(SUITE)
    only = f"--only={','.join(MINE)}"
    given = [f"--suite={folder}/s.py", only, f"--out={folder}/stimuli"]
    assert export_stimuli.main(given) == 0
    return folder


@pytest.fixture(scope="module")
def network(exported):
    config = jc.load(f"{exported}/s.py", (), flag="suite")
    asked = suites.open_suite(config, print, only=MINE)
    source = asked.sources["edge"]
    net = models.MODELS["cnn"](len(source.classes), width=4)
    variables = net.init(jax.random.key(1), jnp.zeros((1, 32, 32, 3)))
    fields = dict(run="net", algorithm="net", variant="", model="decisions")
    fields |= dict(train_data="unknown", stage=0, seed=0, step=0, epoch=0.0)
    of = tuple(source.classes), source.space, "d", fields, {"category": "net"}
    made = networks.FlaxNetwork("net", *of, net, variables)
    assert not runner.run_suite(made, asked, epath.Path(exported / "direct"), print)
    return made


def rows(exported):
    with (exported / "stimuli/index.csv").open() as file:
        return list(csv.DictReader(file))


def write(path, found):
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, found[0])
        table.writeheader()
        table.writerows(found)
    return path


@pytest.fixture(scope="module")
def answered(exported, network):
    """The index with what the network decides about the files, by itself."""
    found = rows(exported)
    bound = networks.make_apply(network.net)
    images = np.stack(
        [Image.open(exported / "stimuli" / x["imagename"]) for x in found]
    )
    logits = jax.jit(bound)(network.variables, images.astype(np.float32) / 255)
    for row, best in zip(found, np.argmax(logits, -1), strict=True):
        row |= {"subj": "net", "object_response": network.classes[best]}
    return found


def measured(exported, out, *given):
    of = [f"--suite={exported}/s.py", f"--out={out}"]
    return evaluate.main([*of, *given])


def numbers(folder):
    found = {}
    for path in sorted(pathlib.Path(folder).glob("evals/*.jsonl")):
        found[path.name] = [json.loads(line) for line in path.read_text().splitlines()]
    return found


def test_by_way_of_files_the_numbers_are_the_networks_own(exported, answered, tmp_path):
    mine = write(tmp_path / "mine.csv", answered[::-1])
    given = f"--decisions={mine}", f"--only={','.join(MINE)}"
    assert measured(exported, tmp_path / "out", *given) == 0
    direct = numbers(exported / "direct/net")
    assert len(direct) == 4
    ranked = {"mrr_shape", "mrr_texture", "mrr_relative"}  # Names have no ranks.
    (bias,) = (name for name in direct if name.startswith("shape_bias"))
    assert ranked <= {one["metric"] for one in direct[bias]}
    for name, found in direct.items():
        direct[name] = [one for one in found if one["metric"] not in ranked]
    assert numbers(tmp_path / "out/net") == direct
    pd.DataFrame(answered).to_parquet(tmp_path / "mine.parquet")
    given = f"--decisions={tmp_path / 'mine.parquet'}", *given[1:]
    assert measured(exported, tmp_path / "parquet", *given) == 0
    assert numbers(tmp_path / "parquet/net") == direct
    assert len({row["object_response"] for row in answered}) > 1


def test_an_index_tells_the_classes_of_both_cues(exported):
    found = [row for row in rows(exported) if row["set"] == "cue_conflict"]
    assert len(found) == 240 and all(row["texture"] for row in found)
    assert {row["exact"] for row in found} == {"yes"}


def test_what_needs_probabilities_or_other_stimuli_is_left_out(
    exported, answered, tmp_path, capsys
):
    mine = write(tmp_path / "mine.csv", answered)
    assert measured(exported, tmp_path / "out", f"--decisions={mine}") == 1
    said = capsys.readouterr().err
    assert "calibration needs probabilities or logits, got names" in said
    assert "no decisions about edge under" in said


def _twice(found):
    return [*found, found[0]]


def _unknown_class(found):
    return [{**found[0], "object_response": "unicorn"}, *found[1:]]


def _no_image(found):
    return [{**found[0], "imagename": "edge/as it is/999999.png"}, *found[1:]]


def _no_column(found):
    return [{k: x for k, x in row.items() if k != "object_response"} for row in found]


def _no_set(found):
    keys = ("imagename", "object_response")
    return [{k: row[k].rpartition("/")[2] for k in keys} for row in found]


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
    mine = write(tmp_path / "mine.csv", change(edge))
    given = f"--decisions={mine}", "--only=classes"
    assert measured(exported, tmp_path / "out", *given) == 2
    assert message in capsys.readouterr().err


def test_a_file_about_some_images_is_measured_on_these(
    exported, answered, tmp_path, capsys
):
    """Shares are over the images with a row, and a line says how many have none."""
    edge = [row for row in answered if row["set"] == "edge"]
    right = sum(row["object_response"] == row["category"] for row in edge[:20])
    mine = write(tmp_path / "mine.csv", edge[:20])
    for only, code in (("accuracy,classes", 1), ("classes", 0), ("classes", 0)):
        given = f"--decisions={mine}", f"--only={only}"
        assert measured(exported, tmp_path / "out", *given) == code
        said = capsys.readouterr().err
        assert "28 of the 48 images of edge have no decision; measured on the" in said
        # A set without any row, which the suite asks for, is left out.
        assert ("no decisions about cue_conflict" in said) == (code == 1)
    records = numbers(tmp_path / "out/net")["accuracy@edge.jsonl"]
    (accuracy,) = (x for x in records if x["metric"] == "accuracy")
    assert (accuracy["count"], accuracy["n"]) == (right, 20)


def test_no_answer_is_wrong_and_for_neither_cue(exported, answered, tmp_path, capsys):
    """The response "na" of model-vs-human's people is no class."""
    cues = [row for row in answered if row["set"] == "cue_conflict"]
    silent = [{**row, "object_response": "na"} for row in cues[:30]]
    shape = [{**row, "object_response": row["category"]} for row in cues[30:]]
    mine = write(tmp_path / "mine.csv", [*silent, *shape])
    given = f"--decisions={mine}", "--only=shape_bias"
    assert measured(exported, tmp_path / "out", *given) == 0
    assert measured(exported, tmp_path / "out", *given) == 0  # It resumes.
    said = capsys.readouterr().err
    assert "30 of the 240 decisions on cue_conflict are 'na', no answer" in said
    records = numbers(tmp_path / "out/net")["shape_bias@cue_conflict.jsonl"]
    value = {x["metric"]: x for x in records if x["condition"] == "shape_bias"}
    conflicts = sum(row["category"] != row["texture"] for row in cues)
    neither = sum(row["category"] != row["texture"] for row in cues[:30])
    assert value["shape_bias"]["value"] == 1
    assert value["shape_bias"]["n"] == conflicts - neither
    assert value["fraction_neither"]["count"] == neither > 0
    assert value["accuracy_shape"]["count"] == 210


def test_a_table_without_any_answer_is_not_one_of_a_constant_class(
    exported, answered, tmp_path
):
    cues = [row for row in answered if row["set"] == "cue_conflict"]
    silent = [{**row, "object_response": "na"} for row in cues]
    mine = write(tmp_path / "mine.csv", silent)
    given = f"--decisions={mine}", "--only=shape_bias"
    assert measured(exported, tmp_path / "out", *given) == 0
    found = results_of_model.read(tmp_path / "out/net")
    (line,) = found.doubts()
    assert line.startswith("decisions for either cue on cue_conflict are no more than")


def test_the_set_is_known_by_the_images_names(tmp_path):
    """No column is needed where one set alone has such an image, or there is one set."""
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
        asked = suites.open_suite(config, lambda line: None)
        (network,) = decision_tables.load(str(table), asked, decision_tables.COLUMNS)
        return [dataset for dataset, _ in network.decided]

    every = ("edge", "silhouette", "other")
    assert load("cat1.png", ("edge",)) == ["edge"]
    assert load("dog1-dog2.png", every) == ["other"]
    assert load("cat1.png", ("edge", "other")) == ["edge"]
    with pytest.raises(ValueError, match="is an image of the sets edge and silhouette"):
        load("cat1.png", every)
    with pytest.raises(ValueError, match="must name the suite's set in a column 'set'"):
        load("cat9.png", every)
    with pytest.raises(
        ValueError, match="1 of the file's 1 images are not among the 2"
    ):
        load("cat9.png", ("edge",))
    # Edges and silhouettes have the same names: a file named for one is not the other's.
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
    assert measured(exported, tmp_path / "out", f"--decisions={tmp_path}/none") == 2
    assert "got an empty one" in capsys.readouterr().err
    edge = [row for row in answered if row["set"] == "edge"]
    mine = write(tmp_path / "mine.csv", edge)
    mine.write_text(mine.read_text()[: len(mine.read_text()) // 2].rpartition(",")[0])
    given = f"--decisions={mine}", "--only=classes"
    assert measured(exported, tmp_path / "out", *given) == 2
    assert "damaged or cut off" in capsys.readouterr().err
    given = f"--decisions={mine.rename(tmp_path / 'mine.parquet')}", *given[1:]
    assert measured(exported, tmp_path / "out", *given) == 2
    assert "mine.parquet: must be a Parquet file" in capsys.readouterr().err


def test_columns_are_named_by_a_flag():
    found = decision_tables.parse_columns("response=predicted,image=path")
    assert found["response"] == "predicted" and found["network"] == "subj"
    with pytest.raises(ValueError, match="unknown 'respnse'; did you mean 'response'"):
        decision_tables.parse_columns("respnse=x")


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
    one = trials.read(PUBLISHED / "cue-conflict_resnet50.csv", "cue-conflict")
    classes = [*labels.geirhos16()]
    for image, shape in zip(one.image, one.category, strict=True):
        folder = tmp_path / "cue-conflict" / classes[shape]
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16)).save(folder / f"{image}.png")
    text = f"ROOT, PEOPLE = {str(tmp_path)!r}, {str(PUBLISHED)!r}"
    (tmp_path / "s.py").write_text(text + CUES)
    given = f"--suite={tmp_path}/s.py", f"--out={tmp_path}/out"
    for name in ("resnet50", "resnet50_train_60_epochs"):
        mine = PUBLISHED / f"cue-conflict_{name}.csv"
        assert evaluate.main([*given, f"--decisions={mine}"]) == 0
    people = trials.people(PUBLISHED, "cue-conflict")
    for name, bias in (("resnet50", 0.2207), ("resnet50-train-60-epochs", 0.8061)):
        by_file = numbers(tmp_path / "out" / name).values()
        found = [x for records in by_file for x in records]
        whole = [x for x in found if x["condition"] in ("shape_bias", "human")]
        value = {x["metric"]: x["value"] for x in whole}
        assert round(value["shape_bias"], 4) == bias
        path = PUBLISHED / f"cue-conflict_{name.replace('-', '_')}.csv"
        own = trials.read(path, "cue-conflict").select(people[0].image)
        right = own.response == own.category
        kappas = [
            evals.error_consistency(right, x.response == x.category).kappa
            for x in (person.select(own.image) for person in people)
        ]
        np.testing.assert_allclose(value["error_consistency"], np.mean(kappas))


@WITH_PUBLISHED
def test_people_have_the_published_shape_bias():
    """.9587, of the decisions of ten people together."""
    each = human.shape_biases(trials.people(PUBLISHED, "cue-conflict")).values()
    shape = sum(one.n_shape for one in each)
    assert round(shape / (shape + sum(one.n_texture for one in each)), 4) == 0.9587


def test_a_column_that_is_named_twice_is_refused(tmp_path):
    path = tmp_path / "edge_mine.csv"
    path.write_text("imagename,object_response,object_response\na.png,star,disc\n")
    columns = {key: decision_tables.COLUMNS[key] for key in decision_tables.COLUMNS}
    with pytest.raises(ValueError, match="must name every column once"):
        list(decision_tables._rows(str(path), columns))


@pytest.mark.parametrize("name", ["/outside/evil", "../evil", "a/b"])
def test_a_set_that_is_named_as_a_path_is_refused(name):
    config = dict(size=32, run={}, sets={name: dict(data="shapes", split="edge", n=4)})
    config["measures"] = dict(accuracy=dict(probe="plain", sets=(name,)))
    with pytest.raises(ValueError, match="suite.sets: a name: must be a plain name"):
        suites.open_suite(config, print)


def test_a_glob_names_several_tables(tmp_path):
    for name in ("a.csv", "b.csv", "c.txt"):
        (tmp_path / name).write_text("x\n")
    files = decision_tables.find_files(str(tmp_path / "*"))
    assert files == [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]
    with pytest.raises(ValueError, match="got nothing there"):
        decision_tables.find_files(str(tmp_path / "*.parquet"))
