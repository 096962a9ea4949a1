"""The user's own mappings: a CSV file between the classes of training and test."""

import numpy as np
import pytest

from jbias.data import base, class_maps
from tests import cases

TRAIN = ("beagle", "poodle", "siamese", "tabby", "rake")
TEST = ("cat", "dog", "horse")
WHOLE = "train_class,test_class\nbeagle,dog\npoodle,dog\ntabby,cat\n"


def matched(tmp_path, text, **options):
    path = tmp_path / "pets.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return class_maps.match(TRAIN, "names", TEST, "names", mapping=str(path), **options)


def test_several_classes_map_to_one_and_unmapped_classes_to_none(tmp_path):
    mapped = matched(tmp_path, WHOLE)
    assert mapped.classes == TEST
    assert mapped.relabel.tolist() == [0, 1, -1], "no class answers for horses"
    cat, dog, horse = mapped.matrix.T.tolist()
    assert cat == [0, 0, 0, 1, 0]
    assert dog == [0.5, 0.5, 0, 0, 0]
    assert horse == [0] * 5
    p = np.array([[0.3, 0.1, 0.2, 0.25, 0.15]], np.float32)
    assert (p @ mapped.matrix).argmax() == 0, "0.25 against the mean of 0.3 and 0.1"
    summed = matched(tmp_path, WHOLE, aggregate="sum_prob")
    assert (p @ summed.matrix).argmax() == 1
    assert (mapped.aggregate, summed.aggregate) == ("mean_prob", "sum_prob")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (WHOLE + "siamse,cat\n", ValueError),
        ("train_class,test_class\nrose,dog\n", base.Mismatch),
    ],
)
def test_a_mapping_for_another_network_has_a_specific_error(tmp_path, text, kind):
    with pytest.raises(ValueError, match="train_class must be a class") as refused:
        matched(tmp_path, text)
    assert refused.type is kind


def test_restriction_keeps_the_classes_that_can_be_answered(tmp_path):
    mapped = matched(tmp_path, WHOLE, restrict=True)
    assert mapped.classes == ("cat", "dog")
    assert mapped.relabel.tolist() == [0, 1, -1]


def test_a_mapping_takes_precedence_over_the_spaces(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("train_class,test_class\ndog,cat\ncat,dog\n")
    mapped = class_maps.match(
        ("cat", "dog"), "names", ("cat", "dog"), "entry16", mapping=str(path)
    )
    assert mapped.matrix.tolist() == [[0, 1], [1, 0]]


@cases.each(
    "text",
    [
        "﻿" + WHOLE,
        WHOLE.replace(",", " , "),
        WHOLE.replace("\n", "\r\n"),
        "note,test_class,train_class\n,dog,beagle\nx,dog,poodle\n,cat,tabby\n",
        'train_class,test_class\n"beagle",dog\n\npoodle,dog\ntabby,cat',
    ],
)
def test_equivalent_files_give_the_same_mapping(tmp_path, text):
    expected, got = matched(tmp_path, WHOLE), matched(tmp_path, text)
    assert got.digest == expected.digest


@cases.each(
    ("text", "message"),
    [
        ("", "header must have train_class and test_class once each, .* got ''"),
        ("train_class;test_class\n", "got 'train_class;test_class'; name the columns"),
        ("train_class,test\nbeagle,dog\n", "test_class does not, got 'train_class,te"),
        ("train_class,train_class,test_class\n", "train_class does not"),
        ("train_class,test_class\n", "a line for some class, got the header alone"),
        (WHOLE + "siamse,cat\n", "csv:5: train_class must be a class of training, got"),
        (WHOLE + "siamse,cat\n", "'siamse'; did you mean 'siamese'"),
        (
            WHOLE + "siamese,cats\n",
            "csv:5: test_class must be a class of the test, got",
        ),
        (WHOLE + "siamese,cats\n", "'cats'; did you mean 'cat'"),
        (WHOLE + "siamese\n", "csv:5: test_class must be .* got ''"),
        (
            WHOLE + "siamese,cats\n",
            r"training has 5 of 'names' \(beagle, poodle, siamese, tabby, rake\)",
        ),
        (WHOLE + "siamese,cats\n", r"the test 3 of 'names' \(cat, dog, horse\)$"),
        (
            WHOLE + "beagle,cat\n",
            "csv:5: .* mapped once, got 'beagle' for 'dog' and ag",
        ),
        (WHOLE + "beagle,dog\n", "mapped once, got 'beagle' for 'dog'"),
        (b"train_class,test_class\nbeagl\xff,dog\n", "must be a CSV file in UTF-8"),
    ],
)
def test_bad_mappings_are_refused_in_one_line(tmp_path, text, message):
    with pytest.raises(ValueError, match=message) as refused:
        matched(tmp_path, text)
    assert "\n" not in str(refused.value)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ValueError, match="pets.csv: a mapping must be a CSV file"):
        class_maps.match(TRAIN, "names", TEST, "names", mapping=f"{tmp_path}/pets.csv")
