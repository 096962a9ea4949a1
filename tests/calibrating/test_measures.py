"""The table of measures: each is read from numbers that its probe gives."""

import math

import pytest

from jbias.calibrating import measures
from jbias.measures import decisions

CONFLICT = ("shape_bias", "cue_conflict")


def test_a_measure_of_one_number_has_its_value_interval_and_count():
    numbers = {CONFLICT: [decisions.share("shape_bias", 30, 40)]}
    value = measures.read(measures.MEASURES["shape_bias"], numbers)
    assert (value.value, value.n, value.reason) == (0.75, 40, "")
    assert (value.lower, value.upper) == decisions.wilson_interval(30, 40)


def test_ends_that_the_probe_gives_take_precedence_over_wilsons():
    share = decisions.share("configural_substitute", 30, 40)
    ends = [
        decisions.quantity("configural_substitute_lower", 0.5, 40),
        decisions.quantity("configural_substitute_upper", 0.9, 40),
    ]
    numbers = {("configural", "anagrams"): [share, *ends]}
    value = measures.read(measures.MEASURES["configural"], numbers)
    assert (value.lower, value.upper) == (0.5, 0.9)


def test_a_measure_of_several_numbers_is_their_function_without_an_interval():
    numbers = {
        ("accuracy", "silhouette"): [decisions.share("accuracy", 24, 48)],
        ("accuracy", "test"): [decisions.share("accuracy", 90, 100)],
    }
    value = measures.read(measures.MEASURES["silhouette_accuracy"], numbers)
    assert value.value == pytest.approx(0.5 / 0.9)
    assert (value.lower, value.upper, value.n) == (None, None, 48)


def test_a_measure_of_the_last_site_reads_no_other_site():
    numbers = []
    for site, shape, texture in (("stage1", 0.2, 0.9), ("stage4", 0.8, 0.3)):
        numbers.append(decisions.quantity("shape_decodability", shape, 9, site))
        numbers.append(decisions.quantity("texture_decodability", texture, 9, site))
    by_key = {("decoding", "cue_conflict_free"): numbers}
    value = measures.read(measures.MEASURES["decodability"], by_key)
    assert value.value == pytest.approx(0.5)


def test_a_missing_or_undefined_number_gives_a_reason_and_no_value():
    measure = measures.MEASURES["shape_bias"]
    assert "not measured" in measures.read(measure, {}).reason
    other = {CONFLICT: [decisions.share("accuracy_shape", 1, 2)]}
    assert "not measured" in measures.read(measure, other).reason
    undefined = measures.read(
        measure, {CONFLICT: [decisions.share("shape_bias", 0, 0)]}
    )
    assert undefined.value is None and "undefined" in undefined.reason
    clean_zero = {
        ("accuracy", "edge"): [decisions.share("accuracy", 3, 48)],
        ("accuracy", "test"): [decisions.share("accuracy", 0, 100)],
    }
    value = measures.read(measures.MEASURES["edge_accuracy"], clean_zero)
    assert value.value is None and "undefined" in value.reason


def test_the_part_of_edges_does_not_depend_on_other_networks():
    """Equal accuracies on edges and on texture are 1/2 whatever their size."""
    key = ("cue_decomposition", "test")
    for count in (10, 90):
        numbers = {
            key: [
                decisions.share("accuracy", count, 100, "diffused"),
                decisions.share("accuracy", count, 100, "cells"),
            ]
        }
        assert measures.read(measures.MEASURES["edge_part"], numbers).value == 0.5


@pytest.mark.parametrize("key", measures.MEASURES)
def test_every_row_is_complete(key):
    measure = measures.MEASURES[key]
    assert measure.direction in (-1, 0, 1) and measure.needs in measures.NEEDS
    assert measure.title and measure.source and measure.records
    assert measure.combine is not None or len(measure.records) == 1
    assert not measure.is_share or measure.direction == 1


@pytest.mark.parametrize("key", measures.MEASURES)
def test_every_measure_has_a_value_or_a_reason_for_any_accuracies(key):
    measure = measures.MEASURES[key]
    for share in (0.0, 0.5, 1.0):
        numbers = {}
        for record in measure.records:
            is_last = record.condition == measures.LAST_SITE
            condition = "stage4" if is_last else record.condition
            number = decisions.quantity(record.metric, share, 40, condition)
            numbers.setdefault(record.key, []).append(number)
        value = measures.read(measure, numbers)
        assert (value.value is None) == bool(value.reason)
        assert value.value is None or math.isfinite(value.value)
        assert value.n == 40


def test_unknown_measures_are_refused_by_name():
    measures.check_keys("--only", ["shape_bias"])
    with pytest.raises(ValueError, match="--only.*shape_bias"):
        measures.check_keys("--only", ["shape_bais"])
