"""Columns are recognised by their names; doubtful tables are refused with the flag that decides."""

import pytest

from jbias.answers import columns
from tests import cases

PEOPLE = "subj,session,trial,rt,object_response,category,condition,imagename"


@cases.each(
    ("header", "options", "expected"),
    [
        (
            PEOPLE,
            "",
            {
                "image": "imagename",
                "decision": "object_response",
                "observer": "subj",
                "label": "category",
                "condition": "condition",
            },
        ),
        (
            "image,timestamp,response,pred_label,pred_conf,pred_llm_judge",
            "",
            {"image": "image", "decision": "pred_label", "raw": "response"},
        ),
        ("image,pred_label", "", {"image": "image", "decision": "pred_label"}),
        ("image,response", "", {"image": "image", "raw": "response"}),
        (
            "Image Name,PRED_LABEL,Set,Model",
            "",
            {
                "image": "Image Name",
                "decision": "PRED_LABEL",
                "dataset": "Set",
                "observer": "Model",
            },
        ),
        (
            "path,image,pred_label,object_response",
            "response=object_response,image=path",
            {"image": "path", "decision": "object_response"},
        ),
        (
            "image,answer,response,decision",
            "raw=answer",
            {"image": "image", "decision": "decision", "raw": "answer"},
        ),
    ],
)
def test_roles_follow_from_the_names(header, options, expected):
    roles = columns.recognise("f.csv:1", header.split(","), columns.parse(options))
    assert {role: name for role, name in vars(roles).items() if name} == expected


@cases.each(
    ("header", "options", "message"),
    [
        (
            "image,pred_label,object_response",
            "",
            (
                "f.csv:1: must have one column for the decision, got 'pred_label' and "
                "'object_response'; choose by --columns=response=pred_label"
            ),
        ),
        (
            "image,filename,pred_label",
            "",
            (
                "one column for the image, got 'image' and 'filename'; choose by "
                "--columns=image=image"
            ),
        ),
        (
            "image,Image,pred_label",
            "",
            "got 'image' and 'Image'; choose by --columns=image=image",
        ),
        (
            "image,image,pred_label",
            "",
            "must name every column once, got 'image' twice",
        ),
        (
            "image,score",
            "",
            "must have the column(s) object_response, got image, score",
        ),
        (
            "name,pred",
            "",
            "must have the column(s) imagename, got name, pred; name yours",
        ),
        (
            "image,pred",
            "response=guess",
            "must have the column(s) guess, got image, pred",
        ),
        ("", "", "must have the column(s) object_response, imagename, got none"),
        ("\x1b[31m\n", "", "got ?[31m?; name yours"),
    ],
)
def test_doubtful_tables_are_refused(header, options, message):
    with pytest.raises(ValueError) as error:
        columns.recognise("f.csv:1", header.split(","), columns.parse(options))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_the_flag_has_known_keys_and_names():
    assert columns.parse("") == {}
    assert columns.parse("raw=words,label=truth") == {"raw": "words", "label": "truth"}
    with pytest.raises(ValueError, match="unknown 'imge'; did you mean 'image'"):
        columns.parse("imge=x")
    with pytest.raises(ValueError, match="must be image=NAME, got 'image='"):
        columns.parse("image=")


def test_no_name_fits_two_roles():
    names = [name for names in columns.NAMES.values() for name in names]
    assert len(names) == len(set(names))
    assert {*columns.NAMES} == {*columns.KEYS}


@cases.each(
    ("header", "delimiter"),
    [
        ("image;pred_label", "';'"),
        ("image\tpred_label", "tabs"),
        ("image|pred_label", "'|'"),
    ],
)
def test_another_delimiter_is_named(header, delimiter):
    with pytest.raises(
        ValueError, match="must have commas between its columns"
    ) as error:
        columns.recognise("a.csv:1", [header], {})
    assert f"got {delimiter}; save" in str(error.value)


def test_a_role_is_named_in_words():
    with pytest.raises(ValueError, match="one column for the model's own words, got"):
        columns.recognise("a.csv:1", ["image", "response", "answer"], {})


@cases.each(
    ("header", "named", "expected"),
    [
        (["image", "pred_label"], "", True),
        (["Image_Name", "Raw response"], "", True),
        (["image", "tokens"], "", False),
        (["name", "pred_label"], "", False),
        (["image", "tokens"], "raw=tokens", True),
        (["name", "tokens"], "image=name,response=tokens", True),
        (["name", "tokens"], "image=name", False),
        (["image;pred_label"], "", True),  # `recognise` names the delimiter.
        (["image", "image"], "", True),  # `recognise` refuses these.
    ],
)
def test_tables_without_images_or_answers_are_known_by_their_columns(
    header, named, expected
):
    assert columns.may_have_decisions(header, columns.parse(named)) == expected
