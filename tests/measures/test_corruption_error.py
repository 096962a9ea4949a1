"""Corruption means from records, mCE, and published accuracies under attack."""

import csv
import pathlib

import numpy as np
import pytest

from jbias.data import corruptions
from jbias.measures import corruption_error

STUDY = pathlib.Path(__file__).parents[2] / "examples/published/biases.csv"


def test_published_attacked_accuracies_count_48_images_too_many():
    """Published values are 1 - fooled / 50,048, though there are 50,000 images.

    So the true accuracies are lower, by at most 48 images.
    """
    with STUDY.open(newline="") as file:
        published = np.array([float(row["pgd"]) for row in csv.DictReader(file)]) / 100
    assert len(published) == 48
    fooled = (1 - published) * 50_048
    assert np.abs(fooled - fooled.round()).max() < 0.01
    true_accuracy = 1 - fooled / 50_000
    assert (
        0 < (published - true_accuracy).min()
        and (published - true_accuracy).max() < 0.000845
    )


def make_records(names, value, dataset="imagenet", measure="made"):
    return {
        (dataset, f"{measure}/{name}-{s}", "accuracy"): value + s / 10
        for name in names
        for s in corruptions.SEVERITIES
    }


def means(records):
    means_by_name = corruption_error.corruption_means(records)
    return {name: pytest.approx(mean.value) for name, mean in means_by_name.items()}


def test_means_need_all_conditions():
    records = make_records(corruptions.BAR, 0) | make_records(
        corruptions.BAR, 0.5, "cifar"
    )
    records["fog-3", "", "accuracy"] = 0.5
    assert means(records) == {"imagenet_cbar": 0.3}
    records.popitem()  # fog-3
    records["imagenet", f"made/{next(iter(corruptions.BAR))}-1", "accuracy"] = np.nan
    assert means(records) == {}


def test_corruptions_from_files_take_precedence_over_computed_ones():
    """Conditions missing in files are taken from one measure."""
    records = make_records(corruptions.CORRUPTIONS, 0.1)
    (mean,) = corruption_error.corruption_means(records).values()
    assert mean == (pytest.approx(0.4), 0, ("made", "imagenet"))
    records |= {(key[1].removeprefix("made/"), "", "accuracy"): 0.2 for key in records}
    (mean,) = corruption_error.corruption_means(records).values()
    assert mean == (pytest.approx(0.2), 95, corruption_error.FILES)
    del records["fog-3", "", "accuracy"]  # The computed accuracy is 0.4.
    (mean,) = corruption_error.corruption_means(records).values()
    assert mean == (pytest.approx(0.2 + 0.2 / 95), 94, ("made", "imagenet"))


def test_two_measures_of_a_set_are_not_combined():
    """Measures may share conditions; one does not fill the gaps of the other."""
    names = list(corruptions.BAR)
    records = make_records(names[:6], 0, measure="x") | make_records(
        names[4:], 0.1, measure="y"
    )
    make_cells = corruption_error.by_corruption(records)
    assert make_cells["x", "imagenet"][names[4], 3] == 0.3
    assert make_cells["y", "imagenet"][names[4], 3] == 0.4
    assert means(records) == {}
    assert means(records | make_records(names, 0.2, measure="z")) == {
        "imagenet_cbar": 0.5
    }


def test_two_files_of_one_condition_are_refused():
    records = {(f"{a}/fog-3", "", "accuracy"): len(a) / 9 for a in ("x", "yy")}
    with pytest.raises(ValueError, match="fog 3 must have one accuracy"):
        corruption_error.by_corruption(records)


def make_cells(errors):
    """Return accuracies by corruption and severity; all severities have the same error."""
    return {
        (name, severity): 1 - error
        for name, error in errors.items()
        for severity in (1, 2, 3, 4, 5)
    }


def test_alexnet_itself_has_an_mce_of_one():
    alexnet = corruption_error.ALEXNET_ERRORS
    summary = corruption_error.summarise_errors(
        make_cells(alexnet), clean_error=corruption_error.ALEXNET_CLEAN_ERROR
    )
    assert (summary.mce, summary.relative_mce) == (pytest.approx(1), pytest.approx(1))
    assert summary.mean == pytest.approx(np.mean([*alexnet.values()]))
    assert summary.names == corruption_error.COMMON and not summary.missing


def test_resnet_50_has_the_mce_of_the_paper():
    """Computed from the two-digit ratios of ResNet-50 in the paper's table.

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
    summary = corruption_error.summarise_errors(make_cells(errors), clean_error=0.239)
    assert 100 * summary.mce == pytest.approx(76.7, abs=0.5)  # Half of the last digit.
    assert 100 * summary.relative_mce == pytest.approx(105.0, abs=1)


def test_without_one_of_fifteen_corruptions_there_is_no_mce():
    errors = {k: v for k, v in corruption_error.ALEXNET_ERRORS.items() if k != "frost"}
    summary = corruption_error.summarise_errors(make_cells(errors), clean_error=0.4)
    assert (summary.mce, summary.relative_mce, summary.missing) == (
        None,
        None,
        ("frost",),
    )
    assert summary.mean == pytest.approx(np.mean([*errors.values()]))
    partial = make_cells(errors)
    del partial["fog", 3]
    summary = corruption_error.summarise_errors(partial)
    assert summary.missing == ("frost", "fog") and len(summary.names) == 13
    assert corruption_error.summarise_errors({}).mean is None
