"""model-vs-human's sets: classes and conditions are read from the names of files."""

import numpy as np
import pytest

from jbias import data
from jbias.data import base, class_maps
from jbias.data.sets import geirhos
from tests import cases

CLASSES = tuple(class_maps.geirhos16())


@pytest.fixture
def root(tmp_path, image):
    """Folder with two images per class and condition of contrast, and a set without
    conditions.
    """
    number = 0
    for name in CLASSES:
        for condition in geirhos.CONDITIONS["contrast"]:
            for i in (1, 2):
                number += 1
                stem = f"{number:04}_cop_dnn_{condition}_{name}_10_n03041632_{i}"
                image(tmp_path / f"contrast/dnn/session-{i}/{stem}.png")
        stem = f"{number:04}_ske_dnn_0_{name}_00_{name}-0068-sketch-23.png"
        image(tmp_path / f"sketch/dnn/session-1/{stem}")
    return tmp_path


def test_class_and_condition_are_in_the_name(root):
    source = data.load("model_vs_human", "contrast", root=str(root), size=8)
    assert source.classes == CLASSES and source.space == "entry16"
    conditions = source.values["condition"]
    assert conditions == geirhos.CONDITIONS["contrast"]
    for i, name in enumerate(source.files):
        cells = name.split("/")[1].split("_")
        assert cells[3] == conditions[source.columns["condition"][i]]
        assert cells[4] == CLASSES[source.columns["label"][i]]
    assert (np.diff(source.columns["label"]) >= 0).all()
    assert source.note == "256 images on disk, the published set has 1,280"
    assert source[3]["condition"] == source.columns["condition"][3]


def test_one_condition_can_be_selected(root):
    options = dict(root=str(root), size=8, condition="c05")
    source = data.load("model_vs_human", "contrast", **options)
    assert len(source) == 32 and all("_c05_" in name for name in source.files)
    assert [*source.columns] == ["label"] and not source.values
    assert source.name == "model_vs_human/contrast/c05"
    assert source.note == "32 images on disk, the published set has 160"


def test_a_set_without_conditions_has_no_column(root):
    source = data.load("model_vs_human", "sketch", root=str(root), size=8)
    assert [*source.columns] == ["label"]
    assert len(source) == 16


@cases.each(
    ("name", "text", "number"),
    [
        ("uniform-noise", "0.10", 3),
        ("uniform-noise", "0.00", 0),
        ("high-pass", "inf", 0),
        ("high-pass", "3", 1),
        ("false-colour", "false", 1),
        ("contrast", "c05", 5),
        ("contrast", "c5", None),
        ("eidolonIII", "128-0-10", 7),
        ("power-equalisation", "pow", 1),
    ],
)
def test_conditions_are_parsed_from_file_names(name, text, number):
    assert geirhos.condition_index(text, geirhos.CONDITIONS[name]) == number


def test_conditions_are_equally_frequent():
    assert len(geirhos.CONDITIONS) == 14
    for name, conditions in geirhos.CONDITIONS.items():
        assert geirhos.MODEL_VS_HUMAN_COUNTS[name] % len(conditions) == 0


def test_bad_folders_and_options_are_refused(root, image):
    def message(**options):
        with pytest.raises(ValueError) as error:
            data.load("model_vs_human", "contrast", root=str(root), size=8, **options)
        assert "\n" not in str(error.value)
        return str(error.value)

    assert "must be one of c100, c50, c30, c15, " in message(condition="c7")
    odd = image(root / "contrast/dnn/session-1/0001_cop_dnn_c30_hat_10_x.png")
    assert "got 'session-1/0001_cop_dnn_c30_hat_10_x.png'" in message()
    odd.rename(odd.with_name("knife.png"))
    assert "files must be named <number>_<experiment>_dnn_" in message()
    (root / "low-pass/dnn").mkdir(parents=True)
    with pytest.raises(base.Missing, match="dnn/session-1 .*at most 0.2 GB a set"):
        data.load("model_vs_human", "low-pass", root=str(root))
