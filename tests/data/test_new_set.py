"""A new data set is a row and, for a new layout, a reader; CONTRIBUTING.md has these."""

import json
import pathlib
import re
import sys
import textwrap

import numpy as np
import pytest

from jbias import data
from jbias.configs import erm
from jbias.data import base, sets
from tests import cases

TEXT = (pathlib.Path(__file__).parents[2] / "CONTRIBUTING.md").read_text("utf-8")
SECTION = TEXT.partition("### A data set, step by step")[2]
JSON, CODE = re.findall(r"(?s)```(?:json|python)\n(.*?)```", SECTION)
ROW = json.loads(f"{{{JSON}}}")["owls"]


@pytest.fixture
def add_set(monkeypatch, tmp_path_factory):
    """Function add_set(row) that adds the data set "owls" to DATASETS."""
    folder = tmp_path_factory.mktemp("package")
    (folder / "reader_of_owls.py").write_text(textwrap.dedent(CODE))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "reader_of_owls", raising=False)

    def add(row):
        table = {**data.DATASETS, "owls": sets.make_data_set("owls", row)}
        monkeypatch.setattr(data, "DATASETS", table)

    return add


def test_a_row_is_a_data_set(add_set, tree):
    add_set(ROW)
    root = tree({f"Day/{kind}": 4 for kind in ("barn", "eagle", "tawny")})
    source = data.load("owls", "day[:50%]", root=str(root), size=8)
    assert source.name == "owls/day[:50%]"
    assert source.classes == ("barn", "eagle", "tawny")
    assert np.bincount(source.columns["label"]).tolist() == [2, 2, 2]
    assert source.note == "12 images on disk, the published set has 600"
    assert source.cite == ROW["cite"]
    assert data.DATASETS["owls"].splits == ("day", "night")
    with pytest.raises(base.Missing, match="expected: 3 kinds of owls.*0.1 GB, from"):
        data.load("owls", "night", root=str(root))


def test_a_reader_is_a_function_of_the_files(add_set, tmp_path, image):
    add_set({**ROW, "read": "reader_of_owls:read"})
    for name in ("barn_1.png", "barn_2.png", "tawny_1.png", "barn_3.gif"):
        image(tmp_path / "night" / name)
    options = {"root": str(tmp_path), "size": 8, "ending": ".png"}
    source = data.load("owls", "night", **options)
    assert source.files == ("barn_1.png", "barn_2.png", "tawny_1.png")
    assert source.columns["label"].tolist() == [0, 0, 1]
    assert source.image(0).shape == (8, 8, 3)
    with pytest.raises(
        base.Missing, match="must have images, got none; expected: 3 kinds"
    ):
        data.load("owls", "night", **options | {"ending": ".bmp"})
    with pytest.raises(ValueError, match="got 'endng'; did you mean 'ending'"):
        data.load("owls", "night", root=str(tmp_path), endng=".png")


def test_the_set_trains_without_a_preset(add_set):
    add_set(ROW)
    config = erm.get_config("data=owls,root=DIR,train=day,tests=night")
    assert config.train.split == "day[:90%]"
    assert config.tests.night.to_dict() == dict(data="owls", split="night", root="DIR")


@cases.each(
    ("change", "error"),
    [
        ({"reed": "x"}, TypeError),
        ({"read": "jbias.data.sets.folder:reed"}, AttributeError),
        ({"read": "jbias.data.sets.folders:read"}, ImportError),
    ],
)
def test_a_wrong_row_fails(change, error):
    """The test of all sets looks at the options of each, and so finds a wrong name."""
    with pytest.raises(error):
        assert sets.make_data_set("owls", {**ROW, **change}).options
