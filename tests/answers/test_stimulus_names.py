"""Sets, ids and correct classes follow from images' names; contradictions are refused."""

import pytest

from jbias.answers import stimulus_names
from tests import cases
from tests.answers import published


def rows(*names, labels=(), conditions=()):
    """Return rows with these image names; labels and conditions default to ""."""
    count = len(names)
    return [
        stimulus_names.Row(f"f.csv:{i + 2}", name, label, condition)
        for i, (name, label, condition) in enumerate(
            zip(
                names,
                labels or [""] * count,
                conditions or [""] * count,
                strict=True,
            )
        )
    ]


@cases.each(
    "name",
    [
        "airplane1-bicycle2",
        "airplane1-bicycle2.png",
        "airplane/airplane1-bicycle2.png",
        "cue-conflict\\airplane\\airplane1-bicycle2.png",
        "/data/cue-conflict/airplane/airplane1-bicycle2.PNG",
        "0001_s5n_dnn_0_airplane_00_airplane1-bicycle2.png",
        "0001_s5n_s01_0_airplane_00_airplane1-bicycle2.png",
        " Airplane1-Bicycle2 ",
    ],
)
def test_all_spellings_of_a_cue_conflict_are_one_image(name):
    stimuli = stimulus_names.recognise(rows(name), stem="mine")
    classes = stimuli.classes
    assert stimuli.dataset == "cue-conflict"
    assert stimuli.images == ("airplane1-bicycle2",)
    assert classes[stimuli.label[0]] == "airplane"
    assert classes[stimuli.texture[0]] == "bicycle"


def test_a_set_of_model_vs_human_is_named_by_its_file():
    stimuli = stimulus_names.recognise(
        rows(
            "0001_cop_dnn_c30_knife_10_n03041632_7380.png",
            "0002_cop_dnn_c50_car_10_n03041632_7381.png",
            conditions=["c30", "c50"],
        ),
        stem="contrast_subject-01_session_1",
    )
    assert stimuli.dataset == "contrast"
    assert stimuli.images == ("n03041632_7380", "n03041632_7381")
    assert [stimuli.classes[i] for i in stimuli.label] == ["knife", "car"]
    assert stimuli.texture is None


def test_edges_with_names_of_two_classes_are_no_cue_conflicts():
    edge = rows("bird1-bird1.png", labels=["bird"])
    for options in ({"stem": "edge_mine"}, {"stem": "mine", "dataset": "edge"}):
        stimuli = stimulus_names.recognise(edge, **options)
        assert (stimuli.dataset, stimuli.texture) == ("edge", None)


def test_another_set_has_the_classes_of_its_column_of_labels():
    stimuli = stimulus_names.recognise(
        rows("a.png", "b.png", "c.png", labels=["zebra", "ant", "zebra"]),
        stem="mine",
        dataset="zoo",
    )
    assert (stimuli.dataset, stimuli.classes) == ("zoo", ("ant", "zebra"))
    assert stimuli.label.tolist() == [1, 0, 1]
    assert stimuli.images == ("a.png", "b.png", "c.png")


def test_an_image_under_two_conditions_is_two_stimuli():
    stimuli = stimulus_names.recognise(
        rows("a.png", "a.png", labels=["cat", "cat"], conditions=["fog", "rain"]),
        stem="mine",
    )
    assert stimuli.images == ("fog/a.png", "rain/a.png")


@cases.each(
    ("table", "options", "message"),
    [
        (
            rows("dog1-cat2", "dog1_cat3"),
            {},
            (
                "f.csv:3: the image must be named as the other images of cue-conflict, "
                "<shape><i>-<texture><j> with two of the 16 classes, got 'dog1_cat3'; names of"
            ),
        ),
        (
            rows("dog1-zebra2"),
            {},
            (
                "f.csv:2: the image must have a known form, or its correct class in a column, got "
                "'dog1-zebra2'; names of the set cue-conflict, such as 'airplane1-bicycle2', carry"
            ),
        ),
        (
            rows("IMG_0001.JPG"),
            {},
            "--columns=label=YOURS, or measure them with their images",
        ),
        (
            rows("x1", labels=["dog"]),
            {"dataset": "cue-conflict"},
            "images must be named as images of the set cue-conflict",
        ),
        (
            rows("dog1-cat2", labels=["cat"]),
            {},
            (
                "f.csv:2: 'dog1-cat2' must have the correct class 'dog' that its name says, got "
                "'cat'; check the column of correct classes, or name another"
            ),
        ),
        (
            rows("cat/dog1-cat2.png"),
            {},
            "must have the correct class 'dog' that its name",
        ),
        (
            rows("0001_s5n_dnn_0_cat_00_dog1-cat2.png"),
            {},
            "must have the correct class 'dog' that its name says, got 'cat'",
        ),
        (
            rows("0001_cop_dnn_c30_knife_10_n03041632_7380.png", labels=["oven"]),
            {"dataset": "contrast"},
            "must have the correct class 'knife' that its name says, got 'oven'",
        ),
        (
            rows("a.png", labels=["zebra"]),
            {"dataset": "sketch"},
            "f.csv:2: unknown class of sketch: 'zebra'",
        ),
    ],
)
def test_altered_names_and_wrong_labels_are_refused(table, options, message):
    with pytest.raises(ValueError) as error:
        stimulus_names.recognise(table, stem="mine", **options)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@published.needed
def test_published_cue_conflicts_have_the_published_categories():
    """The 1,280 names agree with the column `category` of a human observer's file."""
    import pandas as pd

    table = pd.read_csv(
        published.PEOPLE / "cue-conflict_subject-01_session_1.csv", dtype=str
    )
    stimuli = stimulus_names.recognise(rows(*table["imagename"]), stem="x")
    classes = stimuli.classes
    assert [classes[i] for i in stimuli.label] == [*table["category"]]
    assert len({*stimuli.images}) == 1280
    assert (stimuli.label == stimuli.texture).sum() == 80
