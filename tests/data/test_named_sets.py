"""`jbias measure --data=NAME:DIR` measures a set of docs/data.md by its name."""

import csv

import numpy as np
import pytest

import jbias
from jbias import data
from jbias.data import class_maps, tables
from jbias.measuring import named_sets, sets
from tests import cases

REFINED = tables.read("refined_bias")


def write_folder(name, tree, image, tmp_path):
    """Write a small copy of a set and return its folder."""
    if name == "vlcs":
        classes = tables.class_names("vlcs")
        return tree({f"{f}/{x}": 1 for f in ("SUN09", "LabelMe") for x in classes})
    if name == "refined_bias":
        counts = {f"refined_bias_shape/{x}": 1 for x in REFINED["shape"]}
        return tree(
            counts | {f"refined_bias_texture/{x}": 1 for x in REFINED["texture"]}
        )
    if name == "frequency_cue_conflict":
        for low, high in (("airplane", "bear"), ("bear", "bear"), ("truck", "cat")):
            image(tmp_path / low / f"{low}1-{high}2.png")
        return tmp_path
    if name == "waterbirds":
        header = ["img_id", "img_filename", "y", "split", "place"]
        rows = [(f"001.A/{i}.png", i % 2, i % 3, i // 2 % 2) for i in range(12)]
        lines = [header, *([i, *row] for i, row in enumerate(rows))]
        for file, *_ in rows:
            image(tmp_path / file)
        with open(tmp_path / "metadata.csv", "w", newline="") as file:
            csv.writer(file).writerows(lines)
        return tmp_path
    lines = [("image_path", "label", "silhouette_path")]
    for label in ("aeroplane", "cat"):
        paths = [f"data/voc/{x}/{label}.png" for x in ("hq", "silhouette")]
        lines.append((paths[0], label, paths[1]))
        for path in paths:
            image(tmp_path / path)
    with open(tmp_path / "data/voc/metadata_with_silhouette.csv", "w") as file:
        csv.writer(file).writerows(lines)
    return tmp_path


# Sets of the suite; which of them measures change; a network's classes.
EXPECTED = {
    "vlcs": (("vlcs-labelme", "vlcs-sun09"), True, tables.class_names("vlcs")),
    "waterbirds": (("waterbirds",), True, ("landbird", "waterbird")),
    "refined_bias": (("refined_bias",), False, ()),
    "frequency_cue_conflict": (("frequency_cue_conflict",), False, ()),
    "barebones": (
        ("barebones-voc-hq", "barebones-voc-silhouette"),
        False,
        ("aeroplane", "cat"),
    ),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_named_set_is_planned_with_the_splits_of_its_folder(
    name, tree, image, tmp_path
):
    names, is_changed, classes = EXPECTED[name]
    root = write_folder(name, tree, image, tmp_path)
    folders = sets.check(sets.Folders(data=f"{name}:{root}"))
    images = sets.find_images(folders.data)
    assert images.classes == classes
    plan = sets.plan(folders, images, size=8, images=0, space="wnid")
    assert plan.first == names == tuple(plan.config.measures.accuracy.sets)
    assert ("spectral" in plan.config.measures) == is_changed
    assert any("attacks" in line for line in plan.missing) == (not is_changed)
    has_bias = "shape_bias" in plan.config.measures
    assert has_bias == (name == "frequency_cue_conflict")


def test_refined_bias_is_measured_by_ranks(tree, image, tmp_path):
    """A network whose largest logit is of a shape's class ranks one of ten shapes first."""
    root = write_folder("refined_bias", tree, image, tmp_path)
    member = class_maps.members("refined_bias")[next(iter(REFINED["shape"]))][0]
    best = [*tables.wnids()].index(member)

    def predict(images):
        logits = np.zeros((len(images), 1000))
        logits[:, best] = 9
        return logits

    measured = jbias.measure(
        predict, data=f"refined_bias:{root}", size=8, out=tmp_path / "out"
    )
    numbers = measured.numbers
    rows = numbers[(numbers["metric"] == "mrr_shape") & (numbers["condition"] == "")]
    ((value, n),) = rows[["value", "n"]].to_numpy()
    # Nine other shapes are below 999 equal logits, whose best has the highest id.
    assert n == 10 and 0.1 < value < 0.3
    assert "mrr_texture" in set(numbers["metric"])


def test_waterbirds_have_the_accuracy_of_groups(tree, image, tmp_path):
    root = write_folder("waterbirds", tree, image, tmp_path)
    measured = jbias.measure(
        lambda images: np.tile([0.0, 1.0], (len(images), 1)),
        data=f"waterbirds:{root}",
        size=8,
        only=["accuracy"],
        out=tmp_path / "out",
    )
    numbers = measured.numbers
    worst = numbers[numbers["metric"] == "worst_group_accuracy"]
    assert worst["value"].tolist() == [0] and measured.accuracy == 0.5


@cases.each(
    ("text", "message"),
    [
        ("vlcs", "give the folder of vlcs, --data=vlcs:DIR"),
        ("vlcs:nowhere", "vlcs must have a folder, got 'nowhere'"),
        ("water_birds:x", "did you mean waterbirds:DIR? Sets: pacs, "),
        (
            "cifar10:x",
            "jbias evaluate --checkpoint=MODEL --suite=jbias:suites/biases:data",
        ),
        ("nowhere", "check the path, or give NAME:DIR with a set of pacs"),
        ("vlcs:.", "expected: 5 classes in 4 collections"),
    ],
)
def test_other_names_are_refused_with_the_form_that_works(text, message):
    try:
        named_sets.check(text)
        sets.find_images(text)
    except ValueError as error:
        assert message in str(error) and "\n" not in str(error)
    else:
        raise AssertionError(text)


def test_names_are_those_of_data_sets():
    assert {*named_sets.NAMES} <= {*data.DATASETS}
    for name, splits in named_sets.SPLITS.items():
        assert {*splits} <= {*data.DATASETS[name].splits}
