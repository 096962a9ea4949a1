"""Drops are closed forms where accuracies are known; tests hold their level."""

import numpy as np
import pytest

from jbias.data import shifts
from jbias.evals import attribute_reliance
from tests import cases

HIGH, LOW, MID = 0.9, 0.3, 0.6


def exact(accuracy, n=20):
    """n images of each cell, of which just that share is right."""
    accuracy = np.asarray(accuracy)
    label, value = map(np.ravel, np.indices(accuracy.shape))
    right = np.arange(n) < np.round(n * accuracy.ravel())[:, None]
    order = np.random.default_rng(0).permutation(right.size)
    columns = right.ravel(), np.repeat(label, n), np.repeat(value, n)
    return tuple(column[order] for column in columns)


def drawn(accuracy, n, seed, networks=1):
    rng = np.random.default_rng(seed)
    label, value = (rng.integers(0, size, n) for size in accuracy.shape)
    return rng.random((networks, n)) < accuracy[label, value], label, value


def shortcut(k=4, m=4):
    """A model that takes the first half of the values for the first half of the classes."""
    agrees = (np.arange(k) < k // 2)[:, None] == (np.arange(m) < m // 2)
    return np.where(agrees, HIGH, LOW)


def unseen(k=4, m=4):
    """A model that knows one half of the values."""
    return np.tile(np.where(np.arange(m) < m // 2, HIGH, LOW), (k, 1))


def both():
    """A model of the extreme of a joint shift: see `shifts.tables`."""
    first, second = [HIGH, HIGH, LOW, MID], [LOW, HIGH, HIGH, MID]
    return np.array([first, first, second, second])


def largest(accuracy):
    found = attribute_reliance.measure(*exact(accuracy, 400), draws=100)
    return {kind: one.drop for kind, one in found.kinds.items()}


@cases.each(
    ("accuracy", "expected"),
    [
        (shortcut(), dict(marginal=0, conditional=HIGH - LOW, joint=(HIGH - LOW) / 2)),
        (shortcut(10, 6), dict(marginal=0, conditional=0.6, joint=0.3)),
        (shortcut(2, 2), dict(marginal=0, conditional=HIGH - LOW, joint=0.3)),
        (unseen(), dict(marginal=HIGH - LOW, conditional=0, joint=(HIGH - LOW) / 2)),
        (both(), dict(marginal=0.15, conditional=0.3, joint=0.45)),
        (np.full((4, 4), HIGH), dict(marginal=0, conditional=0, joint=0)),
    ],
)
def test_known_drops(accuracy, expected):
    """A pure kind has half of its drop under a joint shift, and none under the other."""
    assert largest(accuracy) == pytest.approx(expected, abs=0.03)


def test_unlike_cells_and_classes_weigh_alike():
    """The number of images in a cell does not change the drop under a shift."""
    few = exact(shortcut(), 40)
    many = exact(shortcut(), 400)
    kept = (many[1] > 0) | (many[2] > 0)  # All of cell (0, 0) from the other.
    first = (few[1] == 0) & (few[2] == 0)
    mixed = [
        np.concatenate([a[kept], b[first]]) for a, b in zip(many, few, strict=True)
    ]
    found = attribute_reliance.measure(*mixed, draws=100).kinds["conditional"]
    assert found.drop == pytest.approx(HIGH - LOW, abs=0.03)


@cases.each("kind", shifts.KINDS)
def test_is_the_accuracy_on_sets_that_are_dealt(kind):
    """Levels against images that jbias.data.make_shift's module deals, many times."""
    correct, label, value = drawn(both(), 6000, 0)
    found = attribute_reliance.measure(correct, label, value, kinds=(kind,), draws=100)
    one = found.kinds[kind]
    for point in one.curve[::2]:
        tables = one.chosen.tables(point.share)
        sizes = {"train": 0, "id_test": 800, "ood_test": 800}
        within, outside = [], []
        for seed in range(20):
            made = shifts.make_shift(label, value, *tables, sizes, seed)
            within.append(correct[0, made.id_test].mean())
            outside.append(correct[0, made.ood_test].mean())
        assert np.mean(within) == pytest.approx(point.within, abs=0.015)
        assert np.mean(outside) == pytest.approx(point.outside, abs=0.015)


def test_curves_start_at_no_shift_and_are_straight():
    found = attribute_reliance.measure(*drawn(both(), 2000, 1), draws=200)
    for kind, one in found.kinds.items():
        share, drop, low, high = np.array(
            [(p.share, p.drop, p.low, p.high) for p in one.curve]
        ).T
        assert [p.level for p in one.curve] == [
            name for name, level in shifts.LEVELS.items() if level.kind == kind
        ]
        assert drop[0] == low[0] == high[0] == 0
        assert drop == pytest.approx((2 * share - 1) * one.drop)
        assert one.area == pytest.approx(one.drop / 2)
        assert (low[1:] < high[1:]).all()


@pytest.mark.slow
@cases.each(
    ("accuracy", "kind", "n"),
    [
        (np.full((2, 2), 0.7), "marginal", 200),
        (np.full((2, 2), 0.98), "conditional", 60),  # Many cells are all right.
        (np.full((10, 4), 0.8), "joint", 800),
        (unseen(), "conditional", 400),
        (shortcut(), "marginal", 400),
        (unseen(2, 2), "conditional", 100),
    ],
    quick=("accuracy5",),
)
def test_holds_its_level(accuracy, kind, n):
    """At most 5 % of tests of nothing say 5 %, up to 3 Monte Carlo errors."""
    tests = 300
    found = [
        attribute_reliance.measure(
            *drawn(accuracy, n, seed), kinds=(kind,), draws=100, seed=seed
        )
        for seed in range(tests)
    ]
    wrong = [one.kinds[kind].pvalue <= 0.05 for one in found if one.kinds]
    assert len(wrong) > 0.9 * tests
    assert np.mean(wrong) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / len(wrong))


@pytest.mark.slow
def test_choosing_does_not_bias_the_drop():
    """Without cross-fitting the mean drop of nothing at all would be far above 0."""
    accuracy, drops, chosen_by_itself = np.full((6, 4), 0.7), [], []
    for seed in range(150):
        found = attribute_reliance.measure(
            *drawn(accuracy, 480, seed), draws=100, seed=seed
        )
        one = found.kinds["conditional"]
        drops.append(one.drop)
        chosen_by_itself.append((one.chosen.contrast() * found.accuracy).sum())
    error = np.std(drops) / np.sqrt(len(drops))
    assert abs(np.mean(drops)) < 3 * error
    assert np.mean(chosen_by_itself) > 0.05 > 10 * error


@pytest.mark.slow
@pytest.mark.quick("conditional")
@pytest.mark.parametrize("kind", ["conditional", "joint"])
def test_has_power_and_intervals_hold_the_truth(kind):
    accuracy, inside, pvalues = both(), [], []
    for seed in range(100):
        found = attribute_reliance.measure(
            *drawn(accuracy, 800, seed), draws=300, seed=seed
        )
        one = found.kinds[kind]
        truth = np.mean([(a.contrast() * accuracy).sum() for a in one.tried])
        inside.append(one.extreme.low <= truth <= one.extreme.high)
        pvalues.append(one.pvalue)
    assert np.mean(np.array(pvalues) < 1e-3) > 0.95
    assert np.mean(inside) > 0.95 - 3 * np.sqrt(0.05 * 0.95 / 100)


def test_networks_alike_are_as_one():
    correct, label, value = drawn(shortcut(), 800, 0)
    one = attribute_reliance.measure(correct, label, value)
    two = attribute_reliance.measure(np.repeat(correct, 3, 0), label, value)
    for kind in shifts.KINDS:
        single, triple = one.kinds[kind].extreme, two.kinds[kind].extreme
        assert triple.drop == pytest.approx(single.drop)
        assert triple.high - triple.low == pytest.approx(
            single.high - single.low, rel=0.15
        )


def test_networks_unlike_widen_the_interval():
    """One relies on the attribute, one does not: another two may be otherwise."""
    relies, label, value = drawn(shortcut(), 4000, 0)
    clean = np.random.default_rng(9).random((1, 4000)) < MID
    found = attribute_reliance.measure(np.concatenate([relies, clean]), label, value)
    extreme = found.kinds["conditional"].extreme
    assert extreme.drop == pytest.approx(0.3, abs=0.05)
    assert extreme.low < 0.05
    assert extreme.high > 0.55


def test_beside_itself_there_is_no_drop():
    correct, label, value = drawn(both(), 900, 0)
    found = attribute_reliance.measure(
        correct, label, value, against=correct, draws=200
    )
    for one in found.kinds.values():
        extreme = one.extreme
        assert (one.drop, extreme.low, extreme.high) == pytest.approx((0, 0, 0))
        assert one.pvalue == pytest.approx(0.5)


def test_beside_a_reference_only_what_it_lacks_is_left():
    """Both are worse on some values; one takes the values for a cue as well."""
    hard = np.tile([0, 0, -0.3, -0.3], (4, 1))
    relies, label, value = drawn(shortcut() + hard, 9000, 0, networks=2)
    rng = np.random.default_rng(7)
    clean = rng.random((3, 9000)) < (0.7 + hard)[label, value]
    found = attribute_reliance.measure(relies, label, value, against=clean, draws=200)
    assert found.kinds["marginal"].drop == pytest.approx(0, abs=0.03)
    one = found.kinds["conditional"]
    assert one.drop == pytest.approx(HIGH - LOW, abs=0.03)
    assert one.extreme.low < HIGH - LOW < one.extreme.high
    assert np.mean(one.each) == pytest.approx(one.drop)
    assert one.extreme.within == pytest.approx(HIGH - 0.15, abs=0.03)


@pytest.mark.slow
def test_holds_its_level_beside_a_reference():
    """Both have the same accuracies, which depend on the value."""
    accuracy, wrong = unseen(), []
    for seed in range(300):
        correct, label, value = drawn(accuracy, 400, seed)
        rng = np.random.default_rng(1000 + seed)
        against = rng.random((1, 400)) < accuracy[label, value]
        found = attribute_reliance.measure(
            *(correct, label, value), against=against, kinds=("marginal",), draws=100
        )
        wrong.append(found.kinds["marginal"].pvalue <= 0.05)
    assert np.mean(wrong) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 300)


def test_same_seed_same_numbers():
    made = drawn(shortcut(), 400, 0)
    one, two, three = (
        attribute_reliance.measure(*made, seed=seed) for seed in (0, 0, 1)
    )
    told = [[k.curve for k in found.kinds.values()] for found in (one, two, three)]
    assert told[0] == told[1] != told[2]


def test_rare_values_are_left_out_and_told():
    correct, label, value = exact(unseen(), 20)
    lacking = (label == 1) & (value == 3)
    lacking[np.flatnonzero(lacking)[0]] = False  # One image is left.
    made = [column[~lacking] for column in (correct, label, value)]
    names = ("cat", "dog", "elk", "fox"), ("red", "green", "blue", "grey")
    found = attribute_reliance.measure(*made, names=names, draws=100)
    assert found.missing == ("left out: value grey has 1 of dog, 2 of each are needed")
    assert found.values.tolist() == [0, 1, 2]
    assert found.classes.tolist() == [0, 1, 2, 3]
    assert (found.count == 20).all()


def test_without_cells_it_cannot_be_tested():
    """Each class has a value of its own, as where a shortcut is perfect."""
    label = np.repeat([0, 1], 10)
    found = attribute_reliance.measure(np.ones(20), label, label)
    assert found.kinds == {}
    assert found.missing.startswith("cannot be tested: fewer than two ")
    assert "has 0 of" in found.missing


def test_images_without_a_value_have_no_part():
    correct, label, value = drawn(shortcut(), 900, 0)
    value = np.where(np.arange(900) < 100, -1, value)
    whole = attribute_reliance.measure(correct, label, value)
    part = attribute_reliance.measure(correct[:, 100:], label[100:], value[100:])
    assert (whole.half[:100] == -1).all()
    assert whole.count.tolist() == part.count.tolist()
    assert whole.kinds["joint"].drop == pytest.approx(part.kinds["joint"].drop)


@cases.each(
    ("change", "words"),
    [
        (
            dict(label=np.zeros(3, int)),
            r"^reliance: correct must be \(networks, images",
        ),
        (dict(against=np.zeros((2, 3))), "^reliance: against must be .* of the same"),
        (dict(draws=10), "^reliance: draws must be 100 or more, got 10"),
    ],
)
def test_refuses(change, words):
    correct, label, value = drawn(shortcut(), 80, 0)
    given = dict(correct=correct, label=label, value=value) | change
    with pytest.raises(ValueError, match=words):
        attribute_reliance.measure(**given)
