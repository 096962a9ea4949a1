"""The distortion interference (DI) index: its laws and bounds; oracle: the released code."""

import math

import numpy as np
import pytest

from jbias import evals
from jbias.measures import interference
from tests import cases


def make_decisions(prediction, label) -> evals.Decisions:
    return evals.Decisions(np.asarray(prediction), {"label": np.asarray(label)})


def draw_runs(seed: int, *, r=5, k=10, n=2000, pull=0.0):
    """Return decisions of r runs on n clean and n distorted images, with random errors.

    pull: largest share of distorted images, drawn for each run, that are answered class 3.
    """
    random = np.random.default_rng(seed)
    label = np.arange(n) % k
    clean, distorted = [], []
    for _ in range(r):
        for decisions_of_runs, error_rate in ((clean, 0.1), (distorted, 0.6)):
            prediction = np.where(
                random.random(n) < error_rate, random.integers(0, k, n), label
            )
            is_pulled = random.random(n) < pull * random.random()
            if decisions_of_runs is distorted:
                prediction = np.where(is_pulled, 3, prediction)
            decisions_of_runs.append(make_decisions(prediction, label))
    return clean, distorted


def released_index(clean, distorted, classes):
    """Return the index of the authors' DI.py, loop for loop, but with exact counts."""
    dif = np.zeros((len(clean), classes))
    for sign, all_runs in ((-1, clean), (1, distorted)):
        for run, decided in enumerate(all_runs):
            cnt = np.zeros(classes)
            labels = decided.columns["label"]
            for p, y in zip(decided.prediction, labels, strict=True):
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
    clean, distorted = draw_runs(k, k=k, pull=pull)
    cls, mean, std = released_index(clean, distorted, k)
    interference_index = interference.of_runs(clean, distorted, classes=k)
    assert interference_index.dominant == cls
    assert interference_index.mean == pytest.approx(
        mean
    ) and interference_index.std == pytest.approx(std)
    if pull == 1:
        assert cls == 3


def test_by_hand():
    """Two runs and three classes: one run has all its new errors in class 0, one in class 2."""
    clean = np.array([[2, 2, 4], [2, 2, 0]])
    distorted = np.array([[8, 4, 4], [4, 0, 4]])
    increase = interference.increase(clean, distorted, 20)
    # q: (1/4, 1/4, 1/2) -> (1/2, 1/4, 1/4); (1/2, 1/2, 0) -> (1/2, 0, 1/2).
    np.testing.assert_allclose(increase, 3 * np.array([[0.25, 0, 0], [0, 0, 0.5]]))
    result = interference.index(increase)
    assert result.dominant == 2
    np.testing.assert_allclose(result.runs, [0, 0.75])  # Share 1, weight mean 1.5 / 2.
    assert result.worst == pytest.approx((0 + 1.5) / 2)
    increase = interference.increase(clean, distorted, 20, variant="count")
    np.testing.assert_allclose(increase, [[30, 10, 0], [10, 0, 20]])
    result = interference.index(increase, variant="count")
    assert result.dominant == 0
    np.testing.assert_allclose(result.runs, [30**2 / 40, 10**2 / 30])
    assert result.worst == pytest.approx((30 / 40 * 30 + 10 / 30 * 30) / 2)


@cases.each("variant", interference.VARIANTS)
def test_no_distortion_is_no_interference(variant):
    clean, _ = draw_runs(0)
    result = interference.of_runs(clean, clean, classes=10, variant=variant)
    assert result.mean == result.std == result.worst == 0
    assert result.dominant is None


@cases.each("variant", interference.VARIANTS)
@cases.each("seed", range(5))
def test_the_index_is_within_its_bounds(variant, seed):
    k = 4 + 7 * seed
    clean, distorted = draw_runs(seed, k=k, r=1 + seed, pull=seed / 4)
    result = interference.of_runs(clean, distorted, classes=k, variant=variant)
    upper_bound = k if variant == "share" else 100
    assert (result.runs >= 0).all() and (result.runs <= upper_bound).all()
    assert result.mean <= result.worst <= upper_bound


@cases.each("variant", interference.VARIANTS)
def test_names_of_classes_do_not_matter(variant):
    clean, distorted = draw_runs(1, pull=0.5)
    order = np.random.default_rng(2).permutation(10)

    def permute(all_runs):
        return [
            make_decisions(order[decided.prediction], order[decided.columns["label"]])
            for decided in all_runs
        ]

    original = interference.of_runs(clean, distorted, classes=10, variant=variant)
    permuted = interference.of_runs(
        permute(clean), permute(distorted), classes=10, variant=variant
    )
    np.testing.assert_allclose(permuted.runs, original.runs)
    assert permuted.dominant == order[original.dominant] and original.dominant == 3


def test_errors_that_all_move_to_one_class_have_the_largest_index():
    """If uniform errors all move to one class, i = (1 - 1/K) K, and no other class grows."""
    k = 10
    clean = np.full((1, k), 7)
    distorted = np.zeros((1, k), int)
    distorted[0, 6] = 500
    result = interference.index(interference.increase(clean, distorted, 1000))
    assert result.mean == pytest.approx((1 - 1 / k) * k) and result.dominant == 6


def test_the_index_is_defined_without_errors():
    """Without errors the shares are 0, so the increase is the share with distortion, or 0."""
    no_errors, errors = np.zeros((1, 4), int), np.array([[0, 3, 1, 0]])
    np.testing.assert_allclose(
        interference.increase(no_errors, errors, 8), [[0, 3, 1, 0]]
    )
    assert interference.index(interference.increase(errors, no_errors, 8)).mean == 0
    assert (
        interference.index(interference.increase(no_errors, no_errors, 8)).dominant
        is None
    )


def test_the_dominant_of_equal_classes_is_the_lowest():
    increase = interference.increase(np.array([[1, 1, 4]]), np.array([[4, 4, 4]]), 20)
    result = interference.index(increase)
    assert result.dominant == 0
    assert result.mean == pytest.approx(increase[0, 0] / 2)


def test_an_unchanged_run_has_index_zero():
    clean = np.array([[1, 1, 1], [5, 2, 2]])
    distorted = np.array([[1, 1, 4], [5, 2, 2]])
    result = interference.index(interference.increase(clean, distorted, 20))
    assert result.runs[0] > 0 and result.runs[1] == 0


def test_the_index_of_one_run_has_no_spread():
    clean, distorted = draw_runs(3, r=1, pull=0.4)
    for variant in interference.VARIANTS:
        result = interference.of_runs(clean, distorted, classes=10, variant=variant)
        increase = result.increase[0]
        assert result.mean == pytest.approx(increase.max() ** 2 / increase.sum())
        assert result.worst == pytest.approx(result.mean)
        assert math.isnan(result.std) and math.isnan(result.low)


@cases.each("variant", interference.VARIANTS)
def test_ranges_need_five_runs(variant):
    clean, distorted = draw_runs(4, pull=0.6)
    options = dict(classes=10, variant=variant)
    result, result_again = (
        interference.of_runs(clean, distorted, **options) for _ in range(2)
    )
    assert result.low < result.mean < result.high
    assert (result.low, result.high) == (result_again.low, result_again.high)
    of_four_runs = interference.of_runs(clean[:4], distorted[:4], **options)
    assert math.isnan(of_four_runs.low) and math.isnan(of_four_runs.high)


@cases.each(
    ("pull", "smallest", "largest"), [(0, 0, 0.05), (0.1, 0.5, 0.8), (0.4, 0.65, 0.95)]
)
def test_ranges_do_not_have_the_coverage_of_an_interval(pull, smallest, largest):
    """The share of 100 studies of 5 runs whose range covers the true index is known to 0.1."""
    random = np.random.default_rng(1)

    def draw_increase(r, errors):
        share = np.clip(pull * (1 + 0.3 * random.normal(size=r)), 0, 1)[:, None]
        class_shares = (1 - share) * 0.1 + share * (np.arange(10) == 9)
        clean = random.multinomial(errors, np.full(10, 0.1), size=r)
        distorted = np.stack([random.multinomial(6 * errors, p) for p in class_shares])
        return interference.increase(clean, distorted, 10_000)

    large_study = interference.index(draw_increase(2_000, 10**7), draws=1)
    truth = large_study.mean if pull else 0.0
    study_results = [
        interference.index(draw_increase(5, 500), draws=300) for _ in range(100)
    ]
    coverage = np.mean([result.low <= truth <= result.high for result in study_results])
    assert smallest <= coverage <= largest


@cases.each("variant", interference.VARIANTS)
def test_a_draw_is_the_index_of_the_drawn_runs(variant):
    increase = np.random.default_rng(5).random((4, 6))
    counts_of_draws = np.array([[2, 0, 1, 1], [0, 0, 4, 0], [1, 1, 1, 1]])
    values, _, dominant = interference._index(increase, counts_of_draws, variant)
    for row, counts in enumerate(counts_of_draws):
        expected = interference.index(
            np.repeat(increase, counts, axis=0), variant=variant
        )
        assert dominant[row] == expected.dominant
        np.testing.assert_allclose(np.repeat(values[row], counts), expected.runs)


def test_parts_multiply_to_the_index_and_do_not_depend_on_class_order():
    clean, distorted = draw_runs(4, pull=0.6)
    result = interference.of_runs(clean, distorted, classes=10)
    share, growth = result.parts.T
    np.testing.assert_allclose(share * growth.mean(), result.runs)
    order = np.random.default_rng(0).permutation(10)
    np.testing.assert_allclose(
        interference.index(result.increase[:, order]).parts, result.parts
    )
    nothing = interference.index(np.zeros((3, 4)))
    assert nothing.parts.tolist() == [[0, 0]] * 3


@cases.each(("r", "mean"), [(1, 0.09), (5, 0.03)])
def test_random_errors_have_a_small_index(r, mean):
    """The mean index of random errors on ten classes is that of docs/distortion.md.

    `by_chance` estimates it, also from runs whose errors concentrate in one class.
    """
    random = np.random.default_rng(7)
    label = np.arange(10_000) % 10

    def draw_decisions(errors, pull=0.0):
        prediction = label.copy()
        wrong = random.choice(10_000, errors, replace=False)
        prediction[wrong] += random.integers(1, 10, errors)
        prediction %= 10
        return make_decisions(
            np.where(random.random(10_000) < pull, 3, prediction), label
        )

    index_values, chance_values = [], []
    for i in range(150):
        clean = [draw_decisions(500) for _ in range(r)]
        distorted = [draw_decisions(5000) for _ in range(r)]
        result = interference.of_runs(clean, distorted, classes=10, draws=1)
        index_values.append(result.mean)
        if i < 6:
            chance = interference.by_chance(clean, distorted, classes=10)
            chance_values.append(chance)
    assert np.mean(index_values) == pytest.approx(mean, abs=0.015)
    assert np.mean(chance_values) == pytest.approx(mean, abs=0.015)
    clean = [draw_decisions(500) for _ in range(r)]
    distorted = [draw_decisions(1000, 0.5) for _ in range(r)]
    assert interference.by_chance(clean, distorted, classes=10) < 0.2
    assert interference.of_runs(clean, distorted, classes=10).mean > 3


def test_numbers_by_condition_and_rule():
    clean, distorted = draw_runs(6, r=2, pull=0.5)
    decisions_by_condition = {
        "": clean[0],
        "mean_logit": clean[1],
        "2x2": distorted[0],
        "2x2 mean_logit": distorted[1],
        "grad_cam most 0.3": clean[0],
    }
    values = {
        (n.metric, n.condition): n.value
        for n in interference.numbers(decisions_by_condition, classes=10)
    }
    assert len(values) == 5 + 3
    for i, rule in enumerate(("", " mean_logit")):
        result = interference.of_runs([clean[i]], [distorted[i]], classes=10)
        assert values["di_index", f"2x2{rule}"] == result.mean > 0
        is_right = distorted[i].prediction == distorted[i].columns["label"]
        assert values["accuracy", f"2x2{rule}"] == is_right.mean()
    assert values["di_index", "grad_cam most 0.3"] == 0


def test_images_without_a_right_class_are_left_out():
    decided = make_decisions([0, 1, 1], [0, -1, 0])
    np.testing.assert_array_equal(interference.wrong_by_class(decided, 2), [0, 1])
    result = interference.of_runs(
        [make_decisions([0, 0, 0], [0, -1, 0])], [decided], classes=2, variant="count"
    )
    assert result.increase.tolist() == [[0, 50]]


def test_invalid_decisions_are_refused():
    decided = make_decisions([0, 3], [0, 1])
    with pytest.raises(ValueError, match=r"0 ... 1, got 0 ... 3"):
        interference.wrong_by_class(decided, 2)
    with pytest.raises(ValueError, match="1 and 0 runs"):
        interference.of_runs([decided], [], classes=4)
    with pytest.raises(ValueError, match="images"):
        interference.of_runs([decided], [make_decisions([0], [0])], classes=4)
    with pytest.raises(ValueError, match="variant"):
        interference.of_runs([decided], [decided], classes=4, variant="both")
    for measure in (interference.of_runs, interference.by_chance):
        with pytest.raises(ValueError, match="1 other labels in run 0; measure"):
            measure([decided], [make_decisions([0, 3], [1, 1])], classes=4)
    with pytest.raises(ValueError, match="by run and class, clean and distorted alike"):
        interference.increase(np.zeros((1, 3)), np.zeros((2, 3)), 5)
