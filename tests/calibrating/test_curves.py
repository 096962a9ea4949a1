"""Laws of calibration curves: identity, reversal, monotone least squares, files."""

import json
import math

import numpy as np
import pytest

from jbias.calibrating import curves as curves_lib
from jbias.calibrating import flags

DIALS = np.linspace(0, 1, 11)


def curve(**changes) -> curves_lib.DialCurve:
    entries = {
        "measure": "shape_bias",
        "title": "shape bias",
        "knots": curves_lib.Knots((0.1, 0.9), (0.0, 1.0)),
        "networks": 20,
        "error": 0.05,
        "rho": (0.9, 0.8, math.nan),
        "accuracy": (0.2, 1.0),
        "images": 240,
        "lies": ("colour",),
        "verdict": "measures shape",
    }
    return curves_lib.DialCurve(**entries | changes)


@pytest.mark.parametrize(
    "value_of", [lambda x: x, lambda x: x**3, lambda x: 5 + np.log1p(x)]
)
@pytest.mark.parametrize("direction", [1, -1])
def test_a_curve_of_a_strictly_monotone_measure_returns_each_dial(value_of, direction):
    values = direction * value_of(DIALS)
    knots = curves_lib.fit(values, DIALS, direction=direction)
    np.testing.assert_allclose(knots.read(values), DIALS, atol=1e-12)


def test_a_reversed_measure_has_the_constant_curve_at_the_mean_dial():
    """The monotone fit of a falling relation is constant, so the curve says nothing."""
    knots = curves_lib.fit(1 - DIALS, DIALS, direction=1)
    np.testing.assert_allclose(knots.read([0, 0.3, 1]), 0.5)


def test_the_fit_is_the_nearest_monotone_function():
    """No other monotone function, of many drawn, has a smaller sum of squares."""
    rng = np.random.default_rng(0)
    values = rng.permutation(30) / 30
    dials = np.clip(values + rng.normal(0, 0.2, 30), 0, 1)
    fitted = curves_lib.fit(values, dials, direction=1).read(values)
    assert (np.diff(fitted[np.argsort(values)]) >= -1e-12).all()
    order = np.argsort(values)
    squares = ((fitted - dials) ** 2).sum()
    for _ in range(200):
        noise = np.sort(rng.normal(0, 0.05, 30))
        other = np.sort(fitted[order] + rng.permutation(noise))
        assert ((other - dials[order]) ** 2).sum() >= squares - 1e-12


def test_equal_values_are_their_mean_and_ends_are_constant():
    knots = curves_lib.fit([0.2, 0.2, 0.6], [0.0, 0.4, 1.0], direction=1)
    np.testing.assert_allclose(knots.read([-1, 0.2, 0.4, 7]), [0.2, 0.2, 0.6, 1.0])
    assert knots.contains(0.2) and knots.contains(0.6)
    assert not knots.contains(0.61) and not knots.contains(0.1)


def test_points_inside_constant_stretches_change_nothing():
    values = np.arange(8.0)
    knots = curves_lib.fit(values, [0, 0, 0, 0, 1, 1, 1, 1], direction=1)
    assert len(knots.values) == 4
    np.testing.assert_allclose(knots.read([1.5, 3.5, 5.5]), [0, 0.5, 1])


@pytest.mark.parametrize(
    ("values", "dials", "direction"),
    [([], [], 1), ([0.1], [0.1], 0), ([math.nan], [0.1], 1), ([0.1, 0.2], [0.1], 1)],
)
def test_wrong_points_are_refused(values, dials, direction):
    with pytest.raises(ValueError, match="curve"):
        curves_lib.fit(values, dials, direction=direction)


def test_files_return_the_curves_that_were_written(tmp_path):
    path = tmp_path / "curves.json"
    written = curves_lib.Curves(
        "20 networks.", flags.Limits(chance_p=0.01), {"shape_bias": curve()}
    )
    path.write_text(curves_lib.to_json(written))
    read = curves_lib.read(path)
    assert read.description == "20 networks."
    assert read.limits == flags.Limits(chance_p=0.01)
    ours, theirs = curve(), read.by_measure["shape_bias"]
    assert math.isnan(theirs.rho[2])
    assert theirs == curve(rho=theirs.rho) and theirs.rho[:2] == ours.rho[:2]
    assert curves_lib.to_json(read) == path.read_text()


def test_absent_files_have_no_curves_and_damaged_files_are_refused(tmp_path):
    path = tmp_path / "curves.json"
    assert curves_lib.read(path) is None
    for text in ("{", "[]", json.dumps({"version": 1}), json.dumps({"version": 2})):
        path.write_text(text)
        with pytest.raises(ValueError, match="jbias calibrate"):
            curves_lib.read(path)


@pytest.mark.parametrize("verdict", ["absent", None, ""])
def test_a_file_without_a_verdict_is_refused(tmp_path, verdict):
    """Nobody could see whether a dial may be read from such a curve."""
    written = curves_lib.Curves("20 networks.", flags.Limits(), {"shape_bias": curve()})
    content = json.loads(curves_lib.to_json(written))
    content["measures"]["shape_bias"]["verdict"] = verdict
    if verdict == "absent":
        del content["measures"]["shape_bias"]["verdict"]
    path = tmp_path / "curves.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="verdict.*jbias calibrate"):
        curves_lib.read(path)


@pytest.mark.parametrize(
    ("values", "dials"),
    [((), ()), ((0.2, 0.1), (0.0, 1.0)), ((0.1, 0.2, 0.3), (0.0, 1.0, 0.5))],
)
def test_knots_are_increasing_and_monotone(values, dials):
    with pytest.raises(ValueError, match="curve: "):
        curves_lib.Knots(values, dials)
