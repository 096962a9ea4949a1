"""Corruptions of a checkpoint's records, and the attacked accuracies that are published."""

import csv
import pathlib

import numpy as np
import pytest

from jbias.data import corruptions
from jbias.evals import corruption_error

STUDY = pathlib.Path(__file__).parents[2] / "examples/published/biases.csv"


def test_attacked_accuracies_count_48_images_too_many():
    """Every published one is a number of fooled images of 50,048; the right share of
    50,000 is lower, by what 48 images more among the robust make at most.
    """
    with STUDY.open(newline="") as file:
        published = np.array([float(one["pgd"]) for one in csv.DictReader(file)]) / 100
    assert len(published) == 48
    fooled = (1 - published) * 50_048
    assert np.abs(fooled - fooled.round()).max() < 0.01
    right = 1 - fooled / 50_000
    assert 0 < (published - right).min() and (published - right).max() < 0.000845


def made(names, value, dataset="imagenet", measure="made"):
    return {
        (dataset, f"{measure}/{name}-{s}", "accuracy"): value + s / 10
        for name in names
        for s in corruptions.SEVERITIES
    }


def means(records):
    found = corruption_error.corruption_means(records)
    return {name: pytest.approx(mean.value) for name, mean in found.items()}


def test_means_are_of_all_conditions():
    found = made(corruptions.BAR, 0) | made(corruptions.BAR, 0.5, "cifar")
    found["fog-3", "", "accuracy"] = 0.5
    assert means(found) == {"imagenet_cbar": 0.3}
    found.popitem()  # fog-3
    found["imagenet", f"made/{next(iter(corruptions.BAR))}-1", "accuracy"] = np.nan
    assert means(found) == {}


def test_files_go_before_corruptions_made_here():
    """One by one: what they lack is filled by one measure."""
    found = made(corruptions.CORRUPTIONS, 0.1)
    (mean,) = corruption_error.corruption_means(found).values()
    assert mean == (pytest.approx(0.4), 0, ("made", "imagenet"))
    found |= {(key[1].removeprefix("made/"), "", "accuracy"): 0.2 for key in found}
    (mean,) = corruption_error.corruption_means(found).values()
    assert mean == (pytest.approx(0.2), 95, corruption_error.FILES)
    del found["fog-3", "", "accuracy"]  # 0.4 of those made.
    (mean,) = corruption_error.corruption_means(found).values()
    assert mean == (pytest.approx(0.2 + 0.2 / 95), 94, ("made", "imagenet"))


def test_two_measures_of_a_set_are_kept_apart():
    """They may share conditions; neither fills what the other lacks."""
    names = list(corruptions.BAR)
    found = made(names[:6], 0, measure="x") | made(names[4:], 0.1, measure="y")
    cells = corruption_error.by_corruption(found)
    assert cells["x", "imagenet"][names[4], 3] == 0.3
    assert cells["y", "imagenet"][names[4], 3] == 0.4
    assert means(found) == {}
    assert means(found | made(names, 0.2, measure="z")) == {"imagenet_cbar": 0.5}


def test_two_files_of_one_condition_are_refused():
    found = {(f"{a}/fog-3", "", "accuracy"): len(a) / 9 for a in ("x", "yy")}
    with pytest.raises(ValueError, match="fog 3 must have one accuracy"):
        corruption_error.by_corruption(found)
