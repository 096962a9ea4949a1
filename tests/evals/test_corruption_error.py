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


def cells(errors):
    """Accuracy by corruption and severity; all severities have the same error."""
    return {
        (name, severity): 1 - error
        for name, error in errors.items()
        for severity in (1, 2, 3, 4, 5)
    }


def test_alexnet_itself_has_an_mce_of_one():
    alexnet = corruption_error.ALEXNET_ERRORS
    found = corruption_error.summarise_errors(
        cells(alexnet), clean_error=corruption_error.ALEXNET_CLEAN_ERROR
    )
    assert (found.mce, found.relative_mce) == (pytest.approx(1), pytest.approx(1))
    assert found.mean == pytest.approx(np.mean([*alexnet.values()]))
    assert found.names == corruption_error.COMMON and not found.missing


def test_resnet_50_has_the_mce_of_the_paper():
    """From the ratios of the paper's table of ResNet-50, of two digits.

    Hendrycks and Dietterich 2019, table 1: clean error 23.9, mCE 76.7, relative mCE 105.0.
    """
    ratios = dict(
        gaussian_noise=80,
        shot_noise=82,
        impulse_noise=83,
        defocus_blur=75,
        glass_blur=89,
        motion_blur=78,
        zoom_blur=80,
        snow=78,
        frost=75,
        fog=66,
        brightness=57,
        contrast=71,
        elastic_transform=85,
        pixelate=77,
        jpeg_compression=77,
    )
    errors = {
        name: ratio / 100 * corruption_error.ALEXNET_ERRORS[name]
        for name, ratio in ratios.items()
    }
    found = corruption_error.summarise_errors(cells(errors), clean_error=0.239)
    assert 100 * found.mce == pytest.approx(76.7, abs=0.5)  # Half of the last digit.
    assert 100 * found.relative_mce == pytest.approx(105.0, abs=1)


def test_without_one_of_fifteen_corruptions_there_is_no_mce():
    errors = {k: v for k, v in corruption_error.ALEXNET_ERRORS.items() if k != "frost"}
    found = corruption_error.summarise_errors(cells(errors), clean_error=0.4)
    assert (found.mce, found.relative_mce, found.missing) == (None, None, ("frost",))
    assert found.mean == pytest.approx(np.mean([*errors.values()]))
    partial = cells(errors)
    del partial["fog", 3]
    found = corruption_error.summarise_errors(partial)
    assert found.missing == ("frost", "fog") and len(found.names) == 13
    assert corruption_error.summarise_errors({}).mean is None
