"""Attribute reliance: drops equal closed forms for known accuracies; tests hold their level."""

import numpy as np
import pytest

from jbias.data import shifts
from jbias.measures import attribute_reliance
from tests import cases

HIGH, LOW, MID = 0.9, 0.3, 0.6


def make_exact_answers(accuracy, n=20):
    """Return is_right, label and value of n images per cell with exactly the given accuracy.

    accuracy: of each cell, (classes, values).
    """
    accuracy = np.asarray(accuracy)
    label, value = map(np.ravel, np.indices(accuracy.shape))
    is_right = np.arange(n) < np.round(n * accuracy.ravel())[:, None]
    order = np.random.default_rng(0).permutation(is_right.size)
    columns = is_right.ravel(), np.repeat(label, n), np.repeat(value, n)
    return tuple(column[order] for column in columns)


def draw_answers(accuracy, n, seed, num_networks=1):
    """Return is_right (networks, n), label and value of n images with random answers."""
    rng = np.random.default_rng(seed)
    label, value = (rng.integers(0, size, n) for size in accuracy.shape)
    return rng.random((num_networks, n)) < accuracy[label, value], label, value


def shortcut_accuracy(k=4, m=4):
    """Return the accuracies of a model that links the first values to the first classes."""
    agrees = (np.arange(k) < k // 2)[:, None] == (np.arange(m) < m // 2)
    return np.where(agrees, HIGH, LOW)


def unseen_accuracy(k=4, m=4):
    """Return the accuracies of a model that has learned only one half of the values."""
    return np.tile(np.where(np.arange(m) < m // 2, HIGH, LOW), (k, 1))


def joint_accuracy():
    """Return the accuracies of a model of the extreme joint shift: see `shifts.tables`."""
    first, second = [HIGH, HIGH, LOW, MID], [LOW, HIGH, HIGH, MID]
    return np.array([first, first, second, second])


def measure_drops(accuracy):
    """Return the drop under each kind of shift."""
    correct, label, value = make_exact_answers(accuracy, 400)
    reliance = attribute_reliance.measure(correct, label, value, draws=100)
    return {kind: result.drop for kind, result in reliance.kinds.items()}


@cases.each(
    ("accuracy", "expected"),
    [
        (
            shortcut_accuracy(),
            dict(marginal=0, conditional=HIGH - LOW, joint=(HIGH - LOW) / 2),
        ),
        (shortcut_accuracy(10, 6), dict(marginal=0, conditional=0.6, joint=0.3)),
        (shortcut_accuracy(2, 2), dict(marginal=0, conditional=HIGH - LOW, joint=0.3)),
        (
            unseen_accuracy(),
            dict(marginal=HIGH - LOW, conditional=0, joint=(HIGH - LOW) / 2),
        ),
        (joint_accuracy(), dict(marginal=0.15, conditional=0.3, joint=0.45)),
        (np.full((4, 4), HIGH), dict(marginal=0, conditional=0, joint=0)),
    ],
)
def test_known_drops(accuracy, expected):
    """A pure kind has half its drop under a joint shift, and none under the other kind."""
    assert measure_drops(accuracy) == pytest.approx(expected, abs=0.03)


def test_cells_have_equal_weight_for_any_number_of_images():
    """The number of images in a cell does not change the drop under a shift."""
    small_cells = make_exact_answers(shortcut_accuracy(), 40)
    large_cells = make_exact_answers(shortcut_accuracy(), 400)
    # Cell (0, 0) is small, all others are large.
    is_other_cell = (large_cells[1] > 0) | (large_cells[2] > 0)
    is_first_cell = (small_cells[1] == 0) & (small_cells[2] == 0)
    correct, label, value = (
        np.concatenate([a[is_other_cell], b[is_first_cell]])
        for a, b in zip(large_cells, small_cells, strict=True)
    )
    reliance = attribute_reliance.measure(correct, label, value, draws=100)
    result = reliance.kinds["conditional"]
    assert result.drop == pytest.approx(HIGH - LOW, abs=0.03)


@cases.each("kind", shifts.KINDS)
def test_curves_are_accuracies_on_sets_drawn_under_the_shift(kind):
    """The curve has the mean accuracy on 20 data sets that `shifts.make_shift` draws."""
    correct, label, value = draw_answers(joint_accuracy(), 6000, 0)
    reliance = attribute_reliance.measure(
        correct, label, value, kinds=(kind,), draws=100
    )
    result = reliance.kinds[kind]
    for point in result.curve[::2]:
        tables = result.chosen.tables(point.share)
        sizes = {"train": 0, "id_test": 800, "ood_test": 800}
        within, outside = [], []
        for seed in range(20):
            shift = shifts.make_shift(label, value, *tables, sizes, seed)
            within.append(correct[0, shift.id_test].mean())
            outside.append(correct[0, shift.ood_test].mean())
        assert np.mean(within) == pytest.approx(point.within, abs=0.015)
        assert np.mean(outside) == pytest.approx(point.outside, abs=0.015)


def test_curves_start_at_no_shift_and_are_straight():
    reliance = attribute_reliance.measure(
        *draw_answers(joint_accuracy(), 2000, 1), draws=200
    )
    for kind, result in reliance.kinds.items():
        share, drop, low, high = np.array(
            [(p.share, p.drop, p.low, p.high) for p in result.curve]
        ).T
        assert [p.level for p in result.curve] == [
            name for name, level in shifts.LEVELS.items() if level.kind == kind
        ]
        assert drop[0] == low[0] == high[0] == 0
        assert drop == pytest.approx((2 * share - 1) * result.drop)
        assert result.area == pytest.approx(result.drop / 2)
        assert (low[1:] < high[1:]).all()


@pytest.mark.slow
@cases.each(
    ("accuracy", "kind", "n"),
    [
        (np.full((2, 2), 0.7), "marginal", 200),
        (np.full((2, 2), 0.98), "conditional", 60),  # Many cells have no error.
        (np.full((10, 4), 0.8), "joint", 800),
        (unseen_accuracy(), "conditional", 400),
        (shortcut_accuracy(), "marginal", 400),
        (unseen_accuracy(2, 2), "conditional", 100),
    ],
    quick=("accuracy5",),
)
def test_tests_hold_their_level_without_an_effect(accuracy, kind, n):
    """At most 5 % of the tests reject at 5 %, up to 3 Monte Carlo errors."""
    tests = 300
    reliances = [
        attribute_reliance.measure(
            *draw_answers(accuracy, n, seed), kinds=(kind,), draws=100, seed=seed
        )
        for seed in range(tests)
    ]
    is_rejected = [
        reliance.kinds[kind].pvalue <= 0.05 for reliance in reliances if reliance.kinds
    ]
    assert len(is_rejected) > 0.9 * tests
    assert np.mean(is_rejected) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / len(is_rejected))


@pytest.mark.slow
def test_choosing_does_not_bias_the_drop():
    """Without an effect the mean drop is 0; without cross-fitting it would be far above."""
    accuracy, drops, drops_without_cross_fitting = np.full((6, 4), 0.7), [], []
    for seed in range(150):
        reliance = attribute_reliance.measure(
            *draw_answers(accuracy, 480, seed), draws=100, seed=seed
        )
        result = reliance.kinds["conditional"]
        drops.append(result.drop)
        drops_without_cross_fitting.append(
            (result.chosen.contrast() * reliance.accuracy).sum()
        )
    error = np.std(drops) / np.sqrt(len(drops))
    assert abs(np.mean(drops)) < 3 * error
    assert np.mean(drops_without_cross_fitting) > 0.05 > 10 * error


@pytest.mark.slow
@pytest.mark.quick("conditional")
@pytest.mark.parametrize("kind", ["conditional", "joint"])
def test_has_power_and_intervals_hold_the_truth(kind):
    accuracy, is_covered, pvalues = joint_accuracy(), [], []
    for seed in range(100):
        reliance = attribute_reliance.measure(
            *draw_answers(accuracy, 800, seed), draws=300, seed=seed
        )
        result = reliance.kinds[kind]
        truth = np.mean([(a.contrast() * accuracy).sum() for a in result.tried])
        is_covered.append(result.extreme.low <= truth <= result.extreme.high)
        pvalues.append(result.pvalue)
    assert np.mean(np.array(pvalues) < 1e-3) > 0.95
    assert np.mean(is_covered) > 0.95 - 3 * np.sqrt(0.05 * 0.95 / 100)


def test_identical_networks_count_as_one():
    correct, label, value = draw_answers(shortcut_accuracy(), 800, 0)
    reliance_of_one = attribute_reliance.measure(correct, label, value)
    reliance_of_three = attribute_reliance.measure(
        np.repeat(correct, 3, 0), label, value
    )
    for kind in shifts.KINDS:
        single, triple = (
            reliance_of_one.kinds[kind].extreme,
            reliance_of_three.kinds[kind].extreme,
        )
        assert triple.drop == pytest.approx(single.drop)
        assert triple.high - triple.low == pytest.approx(
            single.high - single.low, rel=0.15
        )


def test_differences_between_networks_widen_the_interval():
    """One network relies on the attribute, one does not: the interval covers both."""
    correct_with_shortcut, label, value = draw_answers(shortcut_accuracy(), 4000, 0)
    correct_without = np.random.default_rng(9).random((1, 4000)) < MID
    correct = np.concatenate([correct_with_shortcut, correct_without])
    reliance = attribute_reliance.measure(correct, label, value)
    extreme = reliance.kinds["conditional"].extreme
    assert extreme.drop == pytest.approx(0.3, abs=0.05)
    assert extreme.low < 0.05
    assert extreme.high > 0.55


def test_a_network_compared_with_itself_has_no_drop():
    correct, label, value = draw_answers(joint_accuracy(), 900, 0)
    reliance = attribute_reliance.measure(
        correct, label, value, against=correct, draws=200
    )
    for result in reliance.kinds.values():
        extreme = result.extreme
        assert (result.drop, extreme.low, extreme.high) == pytest.approx((0, 0, 0))
        assert result.pvalue == pytest.approx(0.5)


def test_only_the_drop_beyond_the_references_remains():
    """All networks are worse on some values; the audited ones also have a shortcut."""
    value_effect = np.tile([0, 0, -0.3, -0.3], (4, 1))
    correct, label, value = draw_answers(
        shortcut_accuracy() + value_effect, 9000, 0, num_networks=2
    )
    rng = np.random.default_rng(7)
    reference_correct = rng.random((3, 9000)) < (0.7 + value_effect)[label, value]
    reliance = attribute_reliance.measure(
        correct, label, value, against=reference_correct, draws=200
    )
    assert reliance.kinds["marginal"].drop == pytest.approx(0, abs=0.03)
    result = reliance.kinds["conditional"]
    assert result.drop == pytest.approx(HIGH - LOW, abs=0.03)
    assert result.extreme.low < HIGH - LOW < result.extreme.high
    assert np.mean(result.by_network) == pytest.approx(result.drop)
    assert result.extreme.within == pytest.approx(HIGH - 0.15, abs=0.03)


@pytest.mark.slow
def test_tests_with_a_reference_hold_their_level():
    """The audited network and the reference have the same accuracies, which vary by value."""
    accuracy, is_rejected = unseen_accuracy(), []
    for seed in range(300):
        correct, label, value = draw_answers(accuracy, 400, seed)
        rng = np.random.default_rng(1000 + seed)
        reference_correct = rng.random((1, 400)) < accuracy[label, value]
        reliance = attribute_reliance.measure(
            correct,
            label,
            value,
            against=reference_correct,
            kinds=("marginal",),
            draws=100,
        )
        is_rejected.append(reliance.kinds["marginal"].pvalue <= 0.05)
    assert np.mean(is_rejected) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 300)


def test_same_seed_same_numbers():
    correct, label, value = draw_answers(shortcut_accuracy(), 400, 0)
    curves = []
    for seed in (0, 0, 1):
        reliance = attribute_reliance.measure(correct, label, value, seed=seed)
        curves.append([result.curve for result in reliance.kinds.values()])
    assert curves[0] == curves[1] != curves[2]


def test_rare_values_are_left_out_with_a_note():
    correct, label, value = make_exact_answers(unseen_accuracy(), 20)
    is_removed = (label == 1) & (value == 3)
    is_removed[np.flatnonzero(is_removed)[0]] = False  # One image remains.
    correct, label, value = (column[~is_removed] for column in (correct, label, value))
    names = ("cat", "dog", "elk", "fox"), ("red", "green", "blue", "grey")
    reliance = attribute_reliance.measure(correct, label, value, names=names, draws=100)
    assert reliance.missing == (
        "left out: value grey has 1 of dog, 2 of each are needed"
    )
    assert reliance.values.tolist() == [0, 1, 2]
    assert reliance.classes.tolist() == [0, 1, 2, 3]
    assert (reliance.count == 20).all()


def test_an_attribute_without_two_common_values_cannot_be_tested():
    """Each class has a value of its own: a perfect shortcut."""
    label = np.repeat([0, 1], 10)
    reliance = attribute_reliance.measure(np.ones(20), label, label)
    assert reliance.kinds == {}
    assert reliance.missing.startswith("cannot be tested: fewer than two ")
    assert "has 0 of" in reliance.missing


def test_images_without_a_value_are_ignored():
    correct, label, value = draw_answers(shortcut_accuracy(), 900, 0)
    value = np.where(np.arange(900) < 100, -1, value)
    with_unknown = attribute_reliance.measure(correct, label, value)
    without_unknown = attribute_reliance.measure(
        correct[:, 100:], label[100:], value[100:]
    )
    assert (with_unknown.half[:100] == -1).all()
    assert with_unknown.count.tolist() == without_unknown.count.tolist()
    assert with_unknown.kinds["joint"].drop == pytest.approx(
        without_unknown.kinds["joint"].drop
    )


@cases.each(
    ("change", "message"),
    [
        (
            dict(label=np.zeros(3, int)),
            r"^reliance: correct must be \(networks, images",
        ),
        (dict(against=np.zeros((2, 3))), "^reliance: against must be .* of the same"),
        (dict(draws=10), "^reliance: draws must be 100 or more, got 10"),
    ],
)
def test_invalid_arguments_are_refused(change, message):
    correct, label, value = draw_answers(shortcut_accuracy(), 80, 0)
    arguments = dict(correct=correct, label=label, value=value) | change
    with pytest.raises(ValueError, match=message):
        attribute_reliance.measure(**arguments)
