"""The packaged names of Geirhos' cue conflicts are those of the published decisions."""

import collections
import csv
import pathlib
import re

import pytest

from jbias.data import class_maps, tables


def test_names_are_those_of_a_balanced_set():
    """80 images per shape class, of ten pictures; 80 images with cues of one class."""
    names = tables.cue_conflicts()
    assert len(names) == len({*names}) == 1280
    assert names == tuple(sorted(names))
    matched_names = [
        re.fullmatch(r"([a-z]+)(\d+)-([a-z]+)(\d+)", name) for name in names
    ]
    by_shape = collections.Counter(part[1] for part in matched_names)
    assert by_shape == dict.fromkeys(class_maps.geirhos16(), 80)
    assert {part[3] for part in matched_names} == {*class_maps.geirhos16()}
    assert {(part[1], int(part[2])) for part in matched_names} == {
        (name, i) for name in class_maps.geirhos16() for i in range(1, 11)
    }
    assert {int(part[4]) for part in matched_names} == {1, 2, 3}
    assert sum(part[1] == part[3] for part in matched_names) == 80


def test_names_are_those_of_published_decisions(test_data):
    folder = pathlib.Path(test_data).parent / "paper/decisions"
    if not folder.is_dir():
        pytest.skip(f"needs published decisions in {folder}")
    for path in sorted(folder.glob("*.csv")):
        with path.open(newline="") as file:
            images = [row["imagename"] for row in csv.DictReader(file)]
        stimuli = [pathlib.Path(name).stem.split("_")[-1] for name in images]
        assert sorted(stimuli) == list(tables.cue_conflicts()), path.name
