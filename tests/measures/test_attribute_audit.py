"""Attribute audits: the planted attribute is blamed, with its kind, and no other attribute."""

import dataclasses

import numpy as np
import pytest
import scipy.stats

from jbias.measures import attribute_audit, attribute_reliance
from tests import cases

K, N = 4, 1600


def draw_world(seed, *, planted="", n=N):
    """Return answers, labels and ten candidate attributes of a model that relies on "real".

    planted: kind of the reliance on "real"; "" for none. "proxy" mostly equals "real"; all
    other candidates are independent of "real".
    """
    rng = np.random.default_rng(seed)
    label, real = rng.integers(0, K, n), rng.integers(0, 4, n)
    proxy = np.where(rng.random(n) < 0.25, rng.integers(0, 4, n), real)
    unrelated = {f"other {i}": rng.integers(0, 2 + i % 3, n) for i in range(8)}
    agrees = {
        "": np.ones(n, bool),
        "conditional": (label < K // 2) == (real < 2),
        "marginal": real < 2,
    }[planted]
    correct = rng.random((1, n)) < np.where(agrees, 0.95, 0.5)
    return correct, label, {"proxy": proxy, **unrelated, "real": real}


def rank_drawn(seed, **options):
    """Return the audited candidates of a drawn world, worst first."""
    correct, label, candidates = draw_world(seed, **options)
    reliances = {
        name: attribute_reliance.measure(correct, label, value, draws=200, seed=seed)
        for name, value in candidates.items()
    }
    return attribute_audit.rank_candidates(correct, label, candidates, reliances)


@pytest.mark.slow
@pytest.mark.quick("conditional")
@pytest.mark.parametrize("kind", ["conditional", "marginal"])
def test_the_planted_attribute_is_blamed_and_a_correlated_one_is_not(kind):
    for seed in range(5):
        first, second, *other_candidates = rank_drawn(seed, planted=kind)
        assert (first.name, first.verdict, first.kind) == ("real", "bug", kind)
        assert first.drop == pytest.approx(0.45, abs=0.12)
        assert (second.name, second.verdict) == ("proxy", "goes with")
        assert second.other == "real"
        assert second.drop > 0.2 > abs(second.remains.drop)
        assert {candidate.verdict for candidate in other_candidates} == {"none"}
        assert first.other == "" and first.remains is None


@pytest.mark.slow
def test_nothing_is_blamed_without_a_bug():
    """Holm's level is 5 % per audit, and a bug also needs an interval above 5 points."""
    num_clean = 0
    for seed in range(20):
        verdicts = {candidate.verdict for candidate in rank_drawn(seed)}
        num_clean += verdicts == {"none"}
    assert num_clean >= 19


def test_two_bugs_are_both_blamed():
    correct, label, candidates = draw_world(0, planted="conditional", n=4000)
    rng = np.random.default_rng(1)
    correct = correct & (rng.random(4000) < np.where(candidates["other 1"] > 0, 1, 0.6))
    reliances = {
        name: attribute_reliance.measure(correct, label, candidates[name], draws=200)
        for name in ("other 0", "other 1", "real", "proxy")
    }
    audited = attribute_audit.rank_candidates(correct, label, candidates, reliances)
    assert {
        candidate.name: (candidate.verdict, candidate.kind) for candidate in audited[:3]
    } == {
        "real": ("bug", "conditional"),
        "proxy": ("goes with", "conditional"),
        "other 1": ("bug", "marginal"),
    }
    assert (audited[0].name, audited[3].verdict) == ("real", "none")


def test_identical_attributes_cannot_be_distinguished():
    correct, label, candidates = draw_world(0, planted="conditional")
    reliance = attribute_reliance.measure(correct, label, candidates["real"], draws=200)
    twins = {"real": candidates["real"], "twin": candidates["real"]}
    first, second = attribute_audit.rank_candidates(
        correct, label, twins, dict.fromkeys(twins, reliance)
    )
    assert (first.verdict, second.verdict, second.other) == (
        "bug",
        "goes with",
        first.name,
    )
    assert second.remains is None


def test_attributes_that_cannot_be_tested_come_last():
    correct, label, candidates = draw_world(0, planted="marginal")
    candidates = {"class": label, "real": candidates["real"]}
    reliances = {
        name: attribute_reliance.measure(correct, label, value, draws=200)
        for name, value in candidates.items()
    }
    audited = attribute_audit.rank_candidates(correct, label, candidates, reliances)
    assert [candidate.verdict for candidate in audited] == ["bug", "untestable"]
    assert audited[1].kind == "" and np.isnan(audited[1].drop)


def measure_exact(rows):
    """Return the reliance for images with exactly these accuracies, (classes, values)."""
    rows = np.array(rows)
    label, value = (np.repeat(i.ravel(), 400) for i in np.indices(rows.shape))
    right = (np.arange(400) < np.round(400 * rows.ravel())[:, None]).ravel()
    return attribute_reliance.measure(right, label, value, draws=200)


HIGH, LOW, MID = [0.9] * 4, [0.3] * 4, [0.6] * 4


@cases.each(
    ("rows", "kind"),
    [
        ([[0.9, 0.9, 0.3, 0.3]] * 4, "marginal"),
        ([[0.9, 0.9, 0.9, 0.3]] * 4, "marginal"),  # The joint drop is as large.
        ([[0.9, 0.9, 0.3, 0.3]] * 2 + [[0.3, 0.3, 0.9, 0.9]] * 2, "conditional"),
        ([[0.9, 0.6, 0.6, 0.6]] * 2 + [[0.3, 0.6, 0.6, 0.6]] * 2, "conditional"),
        ([[0.9, 0.9, 0.3, 0.6]] * 2 + [[0.3, 0.9, 0.9, 0.6]] * 2, "joint"),
    ],
)
def test_the_kind_of_shift_is_identified(rows, kind):
    reliance = measure_exact(rows)
    pvalues = {name: result.pvalue for name, result in reliance.kinds.items()}
    assert attribute_audit.harmful_kind(reliance, pvalues) == (kind, True)
    assert attribute_audit.harmful_kind(reliance, pvalues, tau=0.99)[1] is False
    assert (
        attribute_audit.harmful_kind(reliance, dict.fromkeys(pvalues, 0.06))[1] is False
    )


def test_a_drop_that_a_reference_also_has_is_no_bug():
    """Images of two values are harder: a bug, unless references have the same drop."""
    correct, label, candidates = draw_world(0, planted="marginal", n=3000)
    rng = np.random.default_rng(5)
    accuracy = np.where(candidates["real"] < 2, 0.95, 0.5)
    reference_correct = rng.random((2, len(label))) < accuracy
    for reference, verdict in ((None, "bug"), (reference_correct, "none")):
        reliances = {
            name: attribute_reliance.measure(
                correct, label, candidates[name], against=reference, draws=200
            )
            for name in ("real", "other 0", "proxy")
        }
        audited = attribute_audit.rank_candidates(
            correct, label, candidates, reliances, against=reference
        )
        verdicts = {candidate.name: candidate.verdict for candidate in audited}
        assert verdicts["real"] == verdict


def test_a_smaller_drop_than_the_references_is_no_bug():
    reference_correct, label, candidates = draw_world(0, planted="marginal", n=3000)
    correct = np.random.default_rng(6).random((1, 3000)) < 0.7
    value = {"real": candidates["real"]}
    reliance = attribute_reliance.measure(
        correct, label, value["real"], against=reference_correct, draws=200
    )
    assert reliance.kinds["marginal"].extreme.low > attribute_audit.TAU
    (candidate,) = attribute_audit.rank_candidates(
        correct, label, value, {"real": reliance}, against=reference_correct
    )
    assert candidate.verdict == "none"


def test_the_drop_with_a_constant_held_fixed_is_the_drop_itself():
    correct, label, candidates = draw_world(0, planted="conditional")
    value = candidates["real"]
    reliance = attribute_reliance.measure(correct, label, value, draws=100)
    constant = np.zeros(N, int)
    for kind, result in reliance.kinds.items():
        stratified = attribute_audit.stratified_drop(
            correct, label, value, constant, reliance, kind
        )
        assert stratified.drop == pytest.approx(result.drop)


def test_the_stratified_drop_is_a_least_squares_fit_over_images():
    """The oracle is numpy's fit of indicators of both attributes, image by image."""
    correct, label, candidates = draw_world(3, planted="conditional")
    value, other = candidates["proxy"], candidates["real"]
    share, kind = correct[0].astype(float), "joint"
    reliance = attribute_reliance.measure(correct, label, value, draws=100)
    total = 0.0
    for choice, h in zip(reliance.kinds[kind].tried, (1, 0)):
        for row, k in zip(choice.contrast(), reliance.classes):
            is_used = (reliance.half == h) & (label == k)
            dummies = np.concatenate(
                [np.eye(4)[value[is_used]], np.eye(4)[other[is_used]]], axis=1
            )
            effects = np.linalg.lstsq(dummies, share[is_used], rcond=None)[0]
            total += row @ effects[:4] / 2
    stratified = attribute_audit.stratified_drop(
        correct, label, value, other, reliance, kind
    )
    assert stratified.drop == pytest.approx(total)
    assert stratified.low < stratified.drop < stratified.high


def test_p_tests_the_threshold_and_has_holms_correction_over_all_tests():
    """The oracle: a normal for one network, Student's t for several, then Holm by hand."""
    correct, label, candidates = draw_world(2, planted="marginal")
    for tau, answers in (
        (0.05, correct),
        (0.2, np.vstack([correct, correct[:, ::-1]])),
    ):
        reliances = {
            name: attribute_reliance.measure(answers, label, value, draws=200)
            for name, value in candidates.items()
        }
        raw_pvalues = {}
        for name, reliance in reliances.items():
            for kind, result in reliance.kinds.items():
                excess, error = result.drop - tau, result.error**2
                if len(answers) == 1:
                    raw_pvalues[name, kind] = scipy.stats.norm.sf(excess / error**0.5)
                    continue
                spread = np.var(result.by_network, ddof=1) / 2
                free = (spread + error) ** 2 / spread**2
                p = scipy.stats.t.sf(excess / (spread + error) ** 0.5, free)
                raw_pvalues[name, kind] = p
        running, expected = 0.0, {}
        for i, (test, p) in enumerate(
            sorted(raw_pvalues.items(), key=lambda item: item[1])
        ):
            running = max(running, min((len(raw_pvalues) - i) * p, 1))
            expected[test] = running
        rows = attribute_audit.rank_candidates(
            answers, label, candidates, reliances, tau=tau
        )
        for row in rows:
            for kind, p in row.pvalues.items():
                assert p == pytest.approx(expected[row.name, kind], rel=1e-6)


def test_an_interval_that_contains_the_threshold_is_no_bug():
    reliance = measure_exact([[0.9, 0.9, 0.3, 0.3]] * 4)
    result = reliance.kinds["marginal"]
    assert attribute_audit.harmful_kind(reliance, dict.fromkeys(reliance.kinds, 0.0))[1]
    wide_point = result.curve[-1]._replace(low=0.04)
    kinds = {
        "marginal": dataclasses.replace(result, curve=(*result.curve[:-1], wide_point))
    }
    changed_reliance = dataclasses.replace(reliance, kinds=kinds)
    assert attribute_audit.harmful_kind(changed_reliance, {"marginal": 0.0}) == (
        "marginal",
        False,
    )


@pytest.mark.slow
@pytest.mark.quick("2")
@pytest.mark.parametrize("seeds", [2, 3])
def test_intervals_of_few_networks_cover(seeds):
    """Drops of 0.4 +- 0.08 over networks; images are many, so their noise is small."""
    covered, times, n = 0, 200, 4000
    label, value = np.arange(n) % 4, np.arange(n) // 4 % 2
    for i in range(times):
        rng = np.random.default_rng([seeds, i])
        drops = rng.normal(0.4, 0.08, (seeds, 1))
        correct = rng.random((seeds, n)) < 0.5 + drops / 2 * np.where(value, -1, 1)
        kinds = attribute_reliance.measure(
            correct, label, value, kinds=("marginal",), draws=200
        )
        end = kinds.kinds["marginal"].extreme
        covered += end.low <= 0.4 <= end.high
    assert covered / times > 0.9


def test_the_accuracy_compared_with_chance_has_wilsons_interval():
    """With classes of equal size it is the interval that scipy computes."""
    label = np.repeat(np.arange(8), 40)
    correct = np.zeros(320, bool)
    correct[::7] = True
    test = attribute_audit.compare_with_chance(correct, label)
    oracle = scipy.stats.binomtest(int(correct.sum()), 320).proportion_ci(
        method="wilson"
    )
    assert (test.accuracy, test.chance) == (pytest.approx(correct.mean()), 1 / 8)
    assert (test.low, test.high) == pytest.approx((oracle.low, oracle.high))
    assert test.verdict == "guesses"


@pytest.mark.parametrize(
    "preferences", [[1, 0, 0, 0], [0.25, 0.25, 0.25, 0.25], [0.1, 0.2, 0.3, 0.4]]
)
@pytest.mark.parametrize("num_networks", [1, 5])
def test_answers_that_ignore_the_images_are_seldom_above_chance(
    preferences, num_networks
):
    """This holds for any preferred class and for classes of unequal size."""
    rng = np.random.default_rng(0)
    above = 0
    for _ in range(400):
        label = rng.choice(4, 200, p=[0.7, 0.1, 0.1, 0.1])
        answers = rng.choice(4, (num_networks, 200), p=preferences)
        test = attribute_audit.compare_with_chance(answers == label, label)
        assert test.chance == 1 / 4
        above += test.verdict in ("near", "above")
    # A level of 2.5 %, and three standard errors of 400 draws.
    assert above / 400 < 0.025 + 3 * np.sqrt(0.025 * 0.975 / 400)


@pytest.mark.parametrize(
    ("share", "verdict"),
    [(0.0, "below"), (0.25, "guesses"), (0.28, "near"), (0.6, "above")],
)
def test_the_verdict_on_chance_follows_the_interval(share, verdict):
    label = np.arange(20_000) % 4
    correct = np.arange(20_000) // 4 < share * 5_000
    assert attribute_audit.compare_with_chance(correct, label).verdict == verdict


def test_a_network_below_the_share_of_the_largest_class_may_be_above_chance():
    """The network is right on 60 % of both classes; one class has 90 % of the images."""
    label = (np.arange(2000) % 10 == 0).astype(int)
    correct = np.arange(2000) // 10 % 5 < 3
    test = attribute_audit.compare_with_chance(correct, label)
    assert correct.mean() == pytest.approx(0.6)
    assert (test.chance, test.verdict) == (0.5, "above")


def test_five_identical_networks_have_the_interval_of_one():
    label = np.arange(400) % 4
    correct = np.random.default_rng(0).random(400) < 0.3
    test_of_one = attribute_audit.compare_with_chance(correct, label)
    test_of_five = attribute_audit.compare_with_chance(np.stack([correct] * 5), label)
    assert (test_of_five.low, test_of_five.high) == pytest.approx(
        (test_of_one.low, test_of_one.high), abs=2e-4
    )
