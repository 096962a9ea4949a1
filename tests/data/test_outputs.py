"""The classes of a network's outputs, and their mapping to the classes of a data set."""

import numpy as np
import pytest

from jbias import data
from jbias.data import class_maps, tables

WNIDS, WORDS = tables.wnids(), [*tables.lemmas().values()]
SIXTEEN = tuple(class_maps.geirhos16())


def outputs_by_class(output_names, test, space, **options):
    """Return the outputs (numbers) that answer for each class of the test."""
    outputs = class_maps.of_outputs(output_names)
    class_map = class_maps.match(
        outputs.classes,
        outputs.space,
        test,
        space,
        answers=outputs.answers,
        **options,
    )
    matrix = class_map.matrix
    if matrix is None:
        matrix = np.eye(len(outputs.classes))
    return {
        name: np.flatnonzero(matrix[:, k]).tolist() if k >= 0 else []
        for name, k in zip(test, class_map.relabel, strict=True)
    }


@pytest.mark.parametrize(
    "output_names",
    [
        "imagenet",
        WNIDS,
        WORDS,  # Two are a crane.
        # As torchvision has it.
        [
            *WORDS[:134],
            "crane bird",
            *WORDS[135:639],
            "maillot tank suit",
            *WORDS[640:],
        ],
        [f"{word}, and its synonyms" for word in WORDS],
        dict(zip(map(str, range(1000)), WNIDS)),
    ],
)
def test_a_thousand_outputs_are_imagenets_under_any_names(output_names):
    outputs = class_maps.of_outputs(output_names)
    assert outputs.classes == WNIDS and outputs.space == "wnid"


def test_some_words_are_ids_and_a_word_of_two_classes_is_a_name():
    assert class_maps.of_outputs(["goldfish", "Tench"]).classes == (WNIDS[1], WNIDS[0])
    assert class_maps.of_outputs(["goldfish", "crane"]).space == "names"


def test_ids_answer_for_the_sixteen_and_names_for_those_that_they_name():
    dogs = class_maps.geirhos16()["dog"]
    output_names = {"x": WNIDS[0], "y": dogs[0], "z": dogs[1]}
    outputs = outputs_by_class(output_names, SIXTEEN, "entry16")
    assert outputs["dog"] == [1, 2] and outputs["cat"] == []
    outputs = outputs_by_class(["zebra", "dog", "car", "cat"], SIXTEEN, "entry16")
    assert (outputs["dog"], outputs["car"], outputs["cat"]) == ([1], [2], [3])
    assert not any(outputs[x] for x in set(SIXTEEN) - {"dog", "car", "cat"})


def test_several_outputs_answer_for_one_class_and_some_for_none():
    output_names = {"tabby": "cat", "siamese": "cat", "beagle": "dog", "sky": ""}
    outputs = outputs_by_class(output_names, SIXTEEN, "entry16")
    assert outputs["cat"] == [0, 1] and outputs["dog"] == [2]
    assert outputs_by_class(output_names, ("dog", "cat"), "names") == {
        "dog": [2],
        "cat": [0, 1],
    }
    output_names = {"gold": WNIDS[1], "red": WNIDS[1], "other": "tench"}
    assert outputs_by_class(output_names, WNIDS[:2], "wnid") == {
        WNIDS[0]: [2],
        WNIDS[1]: [0, 1],
    }
    twice = {
        "a": class_maps.geirhos16()["dog"][0],
        "b": class_maps.geirhos16()["dog"][0],
    }
    assert outputs_by_class(twice, SIXTEEN, "entry16")["dog"] == [0, 1]


def test_a_user_defined_set_needs_outputs_for_all_classes():
    assert outputs_by_class(["b", "a"], ("a", "b"), "names") == {"a": [1], "b": [0]}
    with pytest.raises(ValueError, match="training must have every class of the test"):
        outputs_by_class(["dog", "cat"], ("dog", "cat", "horse"), "names")


@pytest.mark.parametrize("more", [{}, {"nothing": ""}, {"again": "circle"}])
def test_classes_of_a_set_may_be_words_of_imagenet(more):
    """ImageNet has a class "hourglass", as the drawn shapes do."""
    classes = data.load("shapes", "test").classes
    output_names = {f"own {i}": name for i, name in enumerate(classes)}
    outputs = outputs_by_class({**output_names, **more}, classes, "names")
    expected = {name: [i] for i, name in enumerate(classes)}
    expected["circle"] += [16] * ("again" in more)
    assert outputs == expected


def test_files_list_names_or_map_outputs_to_classes(tmp_path):
    (tmp_path / "names.txt").write_text("goldfish\n\n tench \n")
    assert class_maps.of_outputs(str(tmp_path / "names.txt")).classes == WNIDS[1::-1]
    (tmp_path / "map.csv").write_text("train_class,test_class\ntabby,cat\npuss,cat\n")
    outputs = class_maps.of_outputs(str(tmp_path / "map.csv"))
    assert outputs.answers == (("tabby", "cat"), ("puss", "cat"))


@pytest.mark.parametrize(
    ("output_names", "message"),
    [
        (["a", "b", "a"], "must name each class once, got 'a' twice"),
        ([], "must be names"),
        (["a", 3], "must be names"),
        ({"a": 3}, "must map names to names"),
        ({"a": ""}, "must map names to names"),
        ("nowhere.txt", "must be imagenet, geirhos16 .*, folders .*, a file"),
    ],
)
def test_bad_output_names_are_refused_in_one_line(output_names, message):
    with pytest.raises(ValueError, match=message) as refused:
        class_maps.of_outputs(output_names)
    assert "\n" not in str(refused.value) and str(refused.value).startswith("classes: ")


BIG_CATS = ("lion", "tiger", "zebra")
IDS = tuple(class_maps.of_outputs(BIG_CATS).classes)


@pytest.mark.parametrize(
    "output_names",
    [
        BIG_CATS[::-1],
        dict(zip(("a", "b", "c"), BIG_CATS[::-1])),
        dict(zip(("a", "b", "c", "d"), (*BIG_CATS[::-1], "lion"))),
    ],
)
def test_words_mean_classes_of_that_name_or_else_their_ids(output_names):
    """The rule also holds where all words are words of ImageNet."""
    lions = [2, 3] if len(output_names) == 4 else [2]
    expected = [lions, [1], [0]]
    assert outputs_by_class(output_names, BIG_CATS, "names") == dict(
        zip(BIG_CATS, expected)
    )
    assert outputs_by_class(output_names, IDS, "wnid") == dict(zip(IDS, expected))


def test_ids_answer_a_set_with_folders_of_those_names_in_any_space():
    assert outputs_by_class(IDS, IDS[::-1], "names") == {
        x: [i] for i, x in enumerate(IDS)
    }
    label_space = class_maps.LabelSpace(IDS, "names")
    class_map = class_maps.match(
        label_space.classes, label_space.space, IDS[:1], "wnid"
    )
    assert class_map.matrix is None and class_map.relabel.tolist() == [0]


def test_words_must_cover_all_classes_of_a_user_defined_set():
    with pytest.raises(ValueError, match="label spaces must be the same"):
        outputs_by_class(BIG_CATS, (*BIG_CATS, "unicorn"), "names")


def test_names_of_numbers_are_names_and_no_positions():
    assert outputs_by_class(["5", "7", "0"], ("0", "5"), "names") == {
        "0": [2],
        "5": [0],
    }


def test_given_meanings_take_precedence_over_the_outputs_names():
    output_names = {"cat": "dog", "tabby": "cat", "dog": "cat"}
    assert outputs_by_class(output_names, ("cat", "dog"), "names") == {
        "cat": [1, 2],
        "dog": [0],
    }


def test_a_mapping_may_use_the_given_names_of_outputs(tmp_path):
    path = tmp_path / "map.csv"
    path.write_text("train_class,test_class\nlion,cat\ntiger,cat\nzebra,horse\n")
    options = dict(mapping=str(path))
    outputs = outputs_by_class(BIG_CATS, ("cat", "horse"), "names", **options)
    assert outputs == {"cat": [0, 1], "horse": [2]}
    path.write_text(path.read_text() + f"{IDS[0]},horse\n")
    with pytest.raises(ValueError, match="must be mapped once, got 'n02129165' for"):
        outputs_by_class(BIG_CATS, ("cat", "horse"), "names", **options)
