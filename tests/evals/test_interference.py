"""The DI index: its laws, its limits, and the released loop as an oracle."""

import math

import numpy as np
import pytest

from jbias import evals
from jbias.evals import interference
from tests import cases


def decided(prediction, label) -> evals.Decisions:
    return evals.Decisions(np.asarray(prediction), {"label": np.asarray(label)})


def runs(seed: int, *, r=5, k=10, n=2000, pull=0.0):
    """Runs that err at random, and a share `pull` of them for class 3 where distorted."""
    random = np.random.default_rng(seed)
    label = np.arange(n) % k
    clean, distorted = [], []
    for _ in range(r):
        for found, wrong in ((clean, 0.1), (distorted, 0.6)):
            prediction = np.where(
                random.random(n) < wrong, random.integers(0, k, n), label
            )
            drawn = random.random(n) < pull * random.random()
            if found is distorted:
                prediction = np.where(drawn, 3, prediction)
            found.append(decided(prediction, label))
    return clean, distorted


def released(clean, distorted, classes):
    """Return the index of the authors' DI.py, loop for loop, but with exact counts."""
    dif = np.zeros((len(clean), classes))
    for sign, all_runs in ((-1, clean), (1, distorted)):
        for run, one in enumerate(all_runs):
            cnt = np.zeros(classes)
            for p, y in zip(one.prediction, one.columns["label"], strict=True):
                if p != y:
                    cnt[p] += 1
            dif[run] += sign * cnt / cnt.sum()
    grown = np.clip(dif, 0, None) * dif.shape[1] / 100
    cls = np.argmax(grown.mean(axis=0))
    di = grown[:, cls] / grown.sum(axis=1) * grown[:, cls].mean()
    return cls, 100 * di.mean(), 100 * di.std(ddof=1)


@cases.each("pull", [0.0, 0.3, 1.0])
@cases.each("k", [4, 10, 37])
def test_as_released(k, pull):
    clean, distorted = runs(k, k=k, pull=pull)
    cls, mean, std = released(clean, distorted, k)
    found = interference.of_runs(clean, distorted, classes=k)
    assert found.dominant == cls
    assert found.mean == pytest.approx(mean) and found.std == pytest.approx(std)
    if pull == 1:
        assert cls == 3


def test_by_hand():
    """Two runs, three classes: all new errors of the one in class 0, half of the other."""
    clean = np.array([[2, 2, 4], [2, 2, 0]])
    distorted = np.array([[8, 4, 4], [4, 0, 4]])
    grown = interference.increase(clean, distorted, 20)
    # q: (1/4, 1/4, 1/2) -> (1/2, 1/4, 1/4); (1/2, 1/2, 0) -> (1/2, 0, 1/2).
    np.testing.assert_allclose(grown, 3 * np.array([[0.25, 0, 0], [0, 0, 0.5]]))
    found = interference.index(grown)
    assert found.dominant == 2
    np.testing.assert_allclose(found.runs, [0, 0.75])  # Share 1, weight mean 1.5 / 2.
    assert found.worst == pytest.approx((0 + 1.5) / 2)
    grown = interference.increase(clean, distorted, 20, variant="count")
    np.testing.assert_allclose(grown, [[30, 10, 0], [10, 0, 20]])
    found = interference.index(grown, variant="count")
    assert found.dominant == 0
    np.testing.assert_allclose(found.runs, [30**2 / 40, 10**2 / 30])
    assert found.worst == pytest.approx((30 / 40 * 30 + 10 / 30 * 30) / 2)


@cases.each("variant", interference.VARIANTS)
def test_no_distortion_is_no_interference(variant):
    clean, _ = runs(0)
    found = interference.of_runs(clean, clean, classes=10, variant=variant)
    assert found.mean == found.std == found.worst == 0
    assert found.dominant is None


@cases.each("variant", interference.VARIANTS)
@cases.each("seed", range(5))
def test_bounds(variant, seed):
    k = 4 + 7 * seed
    clean, distorted = runs(seed, k=k, r=1 + seed, pull=seed / 4)
    found = interference.of_runs(clean, distorted, classes=k, variant=variant)
    top = k if variant == "share" else 100
    assert (found.runs >= 0).all() and (found.runs <= top).all()
    assert found.mean <= found.worst <= top


@cases.each("variant", interference.VARIANTS)
def test_names_of_classes_do_not_matter(variant):
    clean, distorted = runs(1, pull=0.5)
    order = np.random.default_rng(2).permutation(10)

    def renamed(some):
        return [
            decided(order[one.prediction], order[one.columns["label"]]) for one in some
        ]

    one = interference.of_runs(clean, distorted, classes=10, variant=variant)
    other = interference.of_runs(
        renamed(clean), renamed(distorted), classes=10, variant=variant
    )
    np.testing.assert_allclose(other.runs, one.runs)
    assert other.dominant == order[one.dominant] and one.dominant == 3


def test_all_errors_in_one_class():
    """If uniform errors all move to one class, i = (1 - 1/K) K, and no other class grows."""
    k = 10
    clean = np.full((1, k), 7)
    distorted = np.zeros((1, k), int)
    distorted[0, 6] = 500
    found = interference.index(interference.increase(clean, distorted, 1000))
    assert found.mean == pytest.approx((1 - 1 / k) * k) and found.dominant == 6


def test_nothing_wrong_before_or_after():
    """Then the shares are zeros: an increase is the share itself, or nothing."""
    none, some = np.zeros((1, 4), int), np.array([[0, 3, 1, 0]])
    np.testing.assert_allclose(interference.increase(none, some, 8), [[0, 3, 1, 0]])
    assert interference.index(interference.increase(some, none, 8)).mean == 0
    assert interference.index(interference.increase(none, none, 8)).dominant is None


def test_equal_classes_give_the_lowest():
    grown = interference.increase(np.array([[1, 1, 4]]), np.array([[4, 4, 4]]), 20)
    found = interference.index(grown)
    assert found.dominant == 0
    assert found.mean == pytest.approx(grown[0, 0] / 2)


def test_a_run_that_is_not_touched_has_zero():
    clean = np.array([[1, 1, 1], [5, 2, 2]])
    distorted = np.array([[1, 1, 4], [5, 2, 2]])
    found = interference.index(interference.increase(clean, distorted, 20))
    assert found.runs[0] > 0 and found.runs[1] == 0


def test_one_run():
    clean, distorted = runs(3, r=1, pull=0.4)
    for variant in interference.VARIANTS:
        found = interference.of_runs(clean, distorted, classes=10, variant=variant)
        i = found.increase[0]
        assert found.mean == pytest.approx(i.max() ** 2 / i.sum())
        assert found.worst == pytest.approx(found.mean)
        assert math.isnan(found.std) and math.isnan(found.low)


@cases.each("variant", interference.VARIANTS)
def test_ranges_are_of_five_runs_or_more(variant):
    clean, distorted = runs(4, pull=0.6)
    options = dict(classes=10, variant=variant)
    found, again = (interference.of_runs(clean, distorted, **options) for _ in range(2))
    assert found.low < found.mean < found.high
    assert (found.low, found.high) == (again.low, again.high)
    few = interference.of_runs(clean[:4], distorted[:4], **options)
    assert math.isnan(few.low) and math.isnan(few.high)


@cases.each(
    ("pull", "least", "most"), [(0, 0, 0.05), (0.1, 0.5, 0.8), (0.4, 0.65, 0.95)]
)
def test_a_range_is_no_interval(pull, least, most):
    """The share of ranges with the true index, of 100 studies of 5 runs, is known to about 0.1."""
    random = np.random.default_rng(1)

    def grown(r, errors):
        share = np.clip(pull * (1 + 0.3 * random.normal(size=r)), 0, 1)[:, None]
        of_each = (1 - share) * 0.1 + share * (np.arange(10) == 9)
        clean = random.multinomial(errors, np.full(10, 0.1), size=r)
        after = np.stack([random.multinomial(6 * errors, p) for p in of_each])
        return interference.increase(clean, after, 10_000)

    many = interference.index(grown(2_000, 10**7), draws=1)
    truth = many.mean if pull else 0.0
    found = [interference.index(grown(5, 500), draws=300) for _ in range(100)]
    held = np.mean([one.low <= truth <= one.high for one in found])
    assert least <= held <= most


@cases.each("variant", interference.VARIANTS)
def test_a_draw_is_the_index_of_the_drawn_runs(variant):
    i = np.random.default_rng(5).random((4, 6))
    often = np.array([[2, 0, 1, 1], [0, 0, 4, 0], [1, 1, 1, 1]])
    values, _, dominant = interference._index(i, often, variant)
    for row, counts in enumerate(often):
        again = interference.index(np.repeat(i, counts, axis=0), variant=variant)
        assert dominant[row] == again.dominant
        np.testing.assert_allclose(np.repeat(values[row], counts), again.runs)


def test_parts_name_no_class_and_make_the_index():
    clean, distorted = runs(4, pull=0.6)
    found = interference.of_runs(clean, distorted, classes=10)
    part, growth = found.parts.T
    np.testing.assert_allclose(part * growth.mean(), found.runs)
    order = np.random.default_rng(0).permutation(10)
    np.testing.assert_allclose(
        interference.index(found.increase[:, order]).parts, found.parts
    )
    nothing = interference.index(np.zeros((3, 4)))
    assert nothing.parts.tolist() == [[0, 0]] * 3


@cases.each(("r", "mean"), [(1, 0.09), (5, 0.03)])
def test_by_chance(r, mean):
    """Errors on ten classes at random: the index is small, as docs/distortion.md has it.

    Dealing the errors of such runs out anew says the same; of errors that gather it does
    not see more.
    """
    random = np.random.default_rng(7)
    label = np.arange(10_000) % 10

    def drawn(errors, pull=0.0):
        prediction = label.copy()
        wrong = random.choice(10_000, errors, replace=False)
        prediction[wrong] += random.integers(1, 10, errors)
        prediction %= 10
        return decided(np.where(random.random(10_000) < pull, 3, prediction), label)

    found, told = [], []
    for i in range(150):
        both = [[drawn(errors) for _ in range(r)] for errors in (500, 5000)]
        found.append(interference.of_runs(*both, classes=10, draws=1).mean)
        if i < 6:
            told.append(interference.by_chance(*both, classes=10))
    assert np.mean(found) == pytest.approx(mean, abs=0.015)
    assert np.mean(told) == pytest.approx(mean, abs=0.015)
    both = [[drawn(500) for _ in range(r)], [drawn(1000, 0.5) for _ in range(r)]]
    assert interference.by_chance(*both, classes=10) < 0.2
    assert interference.of_runs(*both, classes=10).mean > 3


def test_numbers_by_condition_and_rule():
    clean, distorted = runs(6, r=2, pull=0.5)
    found = {
        "": clean[0],
        "mean_logit": clean[1],
        "2x2": distorted[0],
        "2x2 mean_logit": distorted[1],
        "grad_cam most 0.3": clean[0],
    }
    told = {
        (n.metric, n.condition): n.value
        for n in interference.numbers(found, classes=10)
    }
    assert len(told) == 5 + 3
    for i, rule in enumerate(("", " mean_logit")):
        one = interference.of_runs([clean[i]], [distorted[i]], classes=10)
        assert told["di_index", f"2x2{rule}"] == one.mean > 0
        right = distorted[i].prediction == distorted[i].columns["label"]
        assert told["accuracy", f"2x2{rule}"] == right.mean()
    assert told["di_index", "grad_cam most 0.3"] == 0


def test_images_without_a_right_class_are_left_out():
    one = decided([0, 1, 1], [0, -1, 0])
    np.testing.assert_array_equal(interference.wrong_by_class(one, 2), [0, 1])
    grown = interference.of_runs(
        [decided([0, 0, 0], [0, -1, 0])], [one], classes=2, variant="count"
    )
    assert grown.increase.tolist() == [[0, 50]]


def test_what_is_refused():
    one = decided([0, 3], [0, 1])
    with pytest.raises(ValueError, match=r"0 ... 1, got 0 ... 3"):
        interference.wrong_by_class(one, 2)
    with pytest.raises(ValueError, match="1 and 0 runs"):
        interference.of_runs([one], [], classes=4)
    with pytest.raises(ValueError, match="images"):
        interference.of_runs([one], [decided([0], [0])], classes=4)
    with pytest.raises(ValueError, match="variant"):
        interference.of_runs([one], [one], classes=4, variant="both")
    for measure in (interference.of_runs, interference.by_chance):
        with pytest.raises(ValueError, match="1 other labels in run 0; measure"):
            measure([one], [decided([0, 3], [1, 1])], classes=4)
    with pytest.raises(ValueError, match="by run and class, clean and distorted alike"):
        interference.increase(np.zeros((1, 3)), np.zeros((2, 3)), 5)
