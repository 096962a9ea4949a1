"""What outputs of anybody's network are, and which classes of sets they answer for."""

import numpy as np
import pytest

from jbias import data
from jbias.data import labels, tables

WNIDS, WORDS = tables.wnids(), [*tables.lemmas().values()]
SIXTEEN = tuple(labels.geirhos16())


def answered(given, test, space, **options):
    """By class of the test, which outputs answer for it."""
    own = labels.of_outputs(given)
    of = own.classes, own.space, test, space
    found = labels.match(*of, answers=own.answers, **options)
    matrix = np.eye(len(own.classes)) if found.matrix is None else found.matrix
    return {
        name: np.flatnonzero(matrix[:, k]).tolist() if k >= 0 else []
        for name, k in zip(test, found.relabel, strict=True)
    }


@pytest.mark.parametrize(
    "given",
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
def test_a_thousand_outputs_are_imagenets_however_they_are_called(given):
    own = labels.of_outputs(given)
    assert own.classes == WNIDS and own.space == "wnid"


def test_some_words_are_ids_and_a_word_of_two_classes_is_a_name():
    assert labels.of_outputs(["goldfish", "Tench"]).classes == (WNIDS[1], WNIDS[0])
    assert labels.of_outputs(["goldfish", "crane"]).space == "names"


def test_ids_answer_for_the_sixteen_and_names_for_those_that_they_name():
    of = labels.geirhos16()["dog"]
    found = answered({"x": WNIDS[0], "y": of[0], "z": of[1]}, SIXTEEN, "entry16")
    assert found["dog"] == [1, 2] and found["cat"] == []
    found = answered(["zebra", "dog", "car", "cat"], SIXTEEN, "entry16")
    assert (found["dog"], found["car"], found["cat"]) == ([1], [2], [3])
    assert not any(found[x] for x in set(SIXTEEN) - {"dog", "car", "cat"})


def test_several_outputs_answer_for_one_class_and_some_for_none():
    given = {"tabby": "cat", "siamese": "cat", "beagle": "dog", "sky": ""}
    found = answered(given, SIXTEEN, "entry16")
    assert found["cat"] == [0, 1] and found["dog"] == [2]
    assert answered(given, ("dog", "cat"), "names") == {"dog": [2], "cat": [0, 1]}
    given = {"gold": WNIDS[1], "red": WNIDS[1], "other": "tench"}
    assert answered(given, WNIDS[:2], "wnid") == {WNIDS[0]: [2], WNIDS[1]: [0, 1]}
    twice = {"a": labels.geirhos16()["dog"][0], "b": labels.geirhos16()["dog"][0]}
    assert answered(twice, SIXTEEN, "entry16")["dog"] == [0, 1]


def test_a_set_of_ones_own_is_answered_whole_or_not_at_all():
    assert answered(["b", "a"], ("a", "b"), "names") == {"a": [1], "b": [0]}
    with pytest.raises(ValueError, match="training must have every class of the test"):
        answered(["dog", "cat"], ("dog", "cat", "horse"), "names")


@pytest.mark.parametrize("more", [{}, {"nothing": ""}, {"again": "circle"}])
def test_classes_of_a_set_may_be_words_of_imagenet(more):
    """An hourglass is one."""
    known = data.load("shapes", "test").classes
    given = {f"own {i}": name for i, name in enumerate(known)}
    found = answered({**given, **more}, known, "names")
    expected = {name: [i] for i, name in enumerate(known)}
    expected["circle"] += [16] * ("again" in more)
    assert found == expected


def test_files_list_names_or_say_which_answers_for_which(tmp_path):
    (tmp_path / "names.txt").write_text("goldfish\n\n tench \n")
    assert labels.of_outputs(str(tmp_path / "names.txt")).classes == WNIDS[1::-1]
    (tmp_path / "map.csv").write_text("train_class,test_class\ntabby,cat\npuss,cat\n")
    own = labels.of_outputs(str(tmp_path / "map.csv"))
    assert own.answers == (("tabby", "cat"), ("puss", "cat"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["a", "b", "a"], "must name each class once, got 'a' twice"),
        ([], "must be names"),
        (["a", 3], "must be names"),
        ({"a": 3}, "must map names to names"),
        ({"a": ""}, "must map names to names"),
        ("nowhere.txt", "must be imagenet, geirhos16 .*, folders .*, a file"),
    ],
)
def test_what_names_no_classes_is_refused_in_one_line(given, said):
    with pytest.raises(ValueError, match=said) as refused:
        labels.of_outputs(given)
    assert "\n" not in str(refused.value) and str(refused.value).startswith("classes: ")


BIG_CATS = ("lion", "tiger", "zebra")
IDS = tuple(labels.of_outputs(BIG_CATS).classes)


@pytest.mark.parametrize(
    "given",
    [
        BIG_CATS[::-1],
        dict(zip(("a", "b", "c"), BIG_CATS[::-1])),
        dict(zip(("a", "b", "c", "d"), (*BIG_CATS[::-1], "lion"))),
    ],
)
def test_words_mean_the_classes_that_a_set_calls_so_or_else_their_ids(given):
    """Also where all of them are words of ImageNet."""
    lions = [2, 3] if len(given) == 4 else [2]
    expected = [lions, [1], [0]]
    assert answered(given, BIG_CATS, "names") == dict(zip(BIG_CATS, expected))
    assert answered(given, IDS, "wnid") == dict(zip(IDS, expected))


def test_ids_answer_a_set_whose_folders_are_called_so_in_any_space():
    assert answered(IDS, IDS[::-1], "names") == {x: [i] for i, x in enumerate(IDS)}
    own = labels.LabelSpace(IDS, "names")
    found = labels.match(own.classes, own.space, IDS[:1], "wnid")
    assert found.matrix is None and found.relabel.tolist() == [0]


def test_words_answer_a_set_of_ones_own_whole_or_not_at_all():
    with pytest.raises(ValueError, match="label spaces must be the same"):
        answered(BIG_CATS, (*BIG_CATS, "unicorn"), "names")


def test_names_of_numbers_are_names_and_no_positions():
    assert answered(["5", "7", "0"], ("0", "5"), "names") == {"0": [2], "5": [0]}


def test_what_outputs_are_said_to_mean_goes_before_their_own_names():
    given = {"cat": "dog", "tabby": "cat", "dog": "cat"}
    assert answered(given, ("cat", "dog"), "names") == {"cat": [1, 2], "dog": [0]}


def test_a_mapping_may_use_the_names_that_outputs_were_given(tmp_path):
    path = tmp_path / "map.csv"
    path.write_text("train_class,test_class\nlion,cat\ntiger,cat\nzebra,horse\n")
    options = dict(mapping=str(path))
    found = answered(BIG_CATS, ("cat", "horse"), "names", **options)
    assert found == {"cat": [0, 1], "horse": [2]}
    path.write_text(path.read_text() + f"{IDS[0]},horse\n")
    with pytest.raises(ValueError, match="must be mapped once, got 'n02129165' for"):
        answered(BIG_CATS, ("cat", "horse"), "names", **options)
