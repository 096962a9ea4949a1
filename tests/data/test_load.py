"""The table of data sets, and load's refusals by name."""

import inspect

import pytest

from jbias import data
from jbias.data import base
from tests import cases


@cases.each("name", data.DATASETS)
def test_every_data_set_is_fully_described(name):
    entry = data.DATASETS[name]
    assert next(iter(inspect.signature(entry.open).parameters)) == "split"
    assert "size" in entry.options
    for text in (entry.cite, entry.licence, entry.about):
        assert text
        assert "\n" not in text


def test_loads_by_name(tree):
    source = data.load("folder", "photo", root=str(tree({"photo/dog": 3})), size=8)
    assert isinstance(source, base.Source)
    assert len(source) == 3


@cases.each(
    ("args", "options", "message"),
    [
        (("pcas", "photo"), {}, "got 'pcas'; did you mean 'pacs'? Known: anagrams, "),
        (
            ("pacs", "art-painting[:90%]"),
            {"root": "x"},
            (
                "the split of 'pacs' must be a known one, got 'art-painting'; did you mean"
                " 'art_painting'? Known: art_painting, cartoon, photo, sketch"
            ),
        ),
        (("geirhos", "cue_conflict"), {}, "did you mean 'cue-conflict'?"),
        (("tiny_imagenet", "test"), {}, "Known: train, val"),
        (
            ("pacs", "photo"),
            {"root": "x", "sise": 3},
            "options of 'pacs' must be known ones, got 'sise'; did you mean 'size'?",
        ),
        (("pacs", "photo"), {"size": 3}, "must have the option 'root', got ['size']"),
        (("shapes", "edges"), {}, "did you mean 'edge'?"),
        (("shapes", "edge"), {"root": "x"}, "options of 'shapes' must be known ones"),
    ],
)
def test_unknown_names_are_refused_with_the_nearest(args, options, message):
    with pytest.raises(ValueError) as error:
        data.load(*args, **options)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


HAVE_TO_BE_GOT = [name for name, entry in data.DATASETS.items() if entry.where]


@cases.each("name", HAVE_TO_BE_GOT)
def test_errors_for_missing_sets_name_the_download(name, tmp_path):
    entry = data.DATASETS[name]
    split = entry.splits[0] if entry.splits else "val"
    for options in ({}, {"root": str(tmp_path / "none")}, {"root": str(tmp_path)}):
        if name == "imagenet_real":
            options["real"] = "real.json"
        with pytest.raises(base.Missing) as error:
            data.load(name, split, **options)
        error_text = str(error.value)
        assert error_text.endswith(f"expected: {entry.needs}")
        assert "https://" in entry.where or "http://cs231n" in entry.where
        assert "\n" not in error_text


def test_drawn_sets_need_no_files():
    drawn = [name for name in data.DATASETS if name not in HAVE_TO_BE_GOT]
    assert {"shapes", "fractals", "folder"} <= {*drawn}
    assert not any(data.DATASETS[name].where for name in drawn)
