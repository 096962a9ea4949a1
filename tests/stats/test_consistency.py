"""Error consistency against published values, exact sums, invariants and coverage."""

import dataclasses
import itertools
import pathlib

import numpy as np
import pytest
import scipy.stats

from jbias import evals
from jbias.stats import consistency
from tests import cases

ORACLE = np.load(pathlib.Path(__file__).parents[1] / "oracles" / "human.npz")
CORRECT = ORACLE["cue-conflict/response"] == ORACLE["cue-conflict/category"]
RESNET, PEOPLE = 1, range(3, 13)


def test_published_answers():
    """ResNet-50 and ten people on all 1,280 cue conflicts; an answer is right if it is the shape."""
    with_people = [
        evals.error_consistency(CORRECT[RESNET], CORRECT[i]).kappa for i in PEOPLE
    ]
    assert np.mean(with_people) == pytest.approx(0.0674, abs=5e-5)
    pairs = list(itertools.combinations(PEOPLE, 2))
    among = [evals.error_consistency(CORRECT[i], CORRECT[j]).kappa for i, j in pairs]
    assert len(among) == 45
    assert np.mean(among) == pytest.approx(0.3311, abs=5e-5)
    value, low, high = consistency.mean_kappa(CORRECT, pairs, draws=200)
    assert value == pytest.approx(np.mean(among), abs=1e-12)
    assert low < value < high


def test_bounds_and_symmetry():
    random = np.random.default_rng(0)
    for share in (0.1, 0.5, 0.9):
        a, b = random.random((2, 200)) < share
        forward, backward = evals.error_consistency(a, b), evals.error_consistency(b, a)
        assert forward == backward and forward.kappa <= 1
        assert evals.error_consistency(a, a).kappa == 1
        assert forward.observed == (a == b).mean()
        p, q = a.mean(), b.mean()
        assert forward.expected == pytest.approx(p * q + (1 - p) * (1 - q))


def test_always_right_agrees_with_always_right():
    yes, no = np.ones(5, bool), np.zeros(5, bool)
    assert evals.error_consistency(yes, yes).kappa == 1
    assert evals.error_consistency(no, no).kappa == 1
    never = evals.error_consistency(yes, no)
    assert (never.kappa, never.observed, never.expected) == (0, 0, 0)


def test_independent_errors_are_not_consistent():
    a, b = np.random.default_rng(1).random((2, 200_000)) < [[0.7], [0.4]]
    assert abs(evals.error_consistency(a, b).kappa) < 0.01


@pytest.mark.slow
def test_interval_covers():
    """95 % intervals contain kappa for 95 % of 200 pairs with a known kappa, within chance."""
    random = np.random.default_rng(2)
    common, n = 0.3, 400
    # With this share of images the second copies the first: kappa is that share.
    num_covered = 0
    for i in range(200):
        a, b = random.random((2, n)) < 0.6
        b = np.where(random.random(n) < common, a, b)
        _, low, high = consistency.mean_kappa(
            np.stack([a, b]), ((0, 1),), draws=300, seed=i
        )
        num_covered += low <= common <= high
    assert 0.90 <= num_covered / 200 <= 0.99


def test_conditions_have_equal_weights():
    """The value is the mean over conditions, independent of their numbers of images."""
    random = np.random.default_rng(3)
    correct = random.random((2, 90)) < 0.5
    names = np.array(["a"] * 60 + ["b"] * 30)
    kappas = [
        evals.error_consistency(*correct[:, names == name]).kappa for name in "ab"
    ]
    value, _, _ = consistency.mean_kappa(correct, ((0, 1),), names.tolist(), draws=10)
    assert value == pytest.approx(np.mean(kappas), abs=1e-12)


def test_invalid_answers_are_refused():
    with pytest.raises(ValueError, match=r"got shapes \(3,\) and \(2,\)"):
        evals.error_consistency(np.ones(3, bool), np.ones(2, bool))
    with pytest.raises(ValueError, match=r"got shapes \(0,\) and \(0,\)"):
        evals.error_consistency(np.ones(0, bool), np.ones(0, bool))
    with pytest.raises(ValueError, match="must be true or false, true where"):
        evals.error_consistency(np.arange(3), np.arange(3))


def marks(text):
    return np.array([*text]) == "1"


SEVEN, FOUR = marks("0100111111"), marks("0001011111")


def test_small_samples():
    """Kappas of small samples equal those of the authors' code."""
    assert evals.error_consistency(SEVEN, FOUR).kappa == pytest.approx(0.3478261)
    kappa = evals.error_consistency(marks("0101111"), marks("0110000")).kappa
    assert kappa == pytest.approx(-0.2068966)


def test_bounds():
    assert consistency.kappa_bounds(0.8, 0.6) == pytest.approx((-0.3636364, 0.5454545))
    for other in (0.75, 0.9642857):
        assert consistency.kappa_bounds(0.9, other)[1] == pytest.approx(0.5)
    # The bounds are reached if as many, or as few, errors as possible are shared.
    a, two_answers = np.arange(10) < 8, (np.arange(10) < 6, np.arange(10) >= 4)
    ends = [evals.error_consistency(a, b).kappa for b in two_answers]
    assert ends[::-1] == pytest.approx(consistency.kappa_bounds(0.8, 0.6))


def exact_p(a, b, prior, reaches):
    """Return the p of independence, summed over the possible numbers of right answers."""
    n, observed = len(a), abs(evals.error_consistency(a, b).kappa)
    count, p = np.arange(n + 1), 0.0
    distributions = [
        scipy.stats.betabinom(n, x.sum() + prior, n - x.sum() + prior).pmf(count)
        for x in (a, b)
    ]
    for i, j in itertools.product(count, count):
        both = np.arange(max(0, i + j - n), min(i, j) + 1)
        agreement, chance = (
            (n - i - j + 2 * both) / n,
            (i * j + (n - i) * (n - j)) / n**2,
        )
        with np.errstate(invalid="ignore"):
            kappa = np.where(agreement == 1, 1, (agreement - chance) / (1 - chance))
        distribution = scipy.stats.hypergeom(n, i, j).pmf(both)
        p += (
            distributions[0][i]
            * distributions[1][j]
            * distribution[reaches(np.abs(kappa), observed)].sum()
        )
    return p


def test_independence_is_the_exact_sum():
    """p equals the exact sum; its variant without 1/2 and ties equals the authors' p."""
    # If both have everything right, the authors' kappa is NaN and never counts: 0.8 %.
    theirs = exact_p(
        SEVEN, FOUR, 0, lambda kappa, observed: (kappa > observed) & (kappa < 1)
    )
    assert theirs == pytest.approx(0.193, abs=0.01)
    expected = exact_p(
        SEVEN, FOUR, 0.5, lambda kappa, observed: kappa >= observed - 1e-12
    )
    result = consistency.independence_test(SEVEN, FOUR, draws=100_000)
    assert result == pytest.approx(expected, abs=0.005)


def test_independence_is_symmetric_and_always_defined():
    a, b = np.random.default_rng(0).random((2, 300)) < 0.7
    p = consistency.independence_test(a, b)
    assert consistency.independence_test(~a, ~b) == pytest.approx(p, abs=0.02)
    assert consistency.independence_test(a, a) == 1 / 10_000
    never = np.zeros(300, bool)
    assert consistency.independence_test(a, never) == 1  # kappa is 0.


def test_independence_has_its_size():
    random, num_rejected = np.random.default_rng(1), 0
    for i in range(400):
        a, b = random.random((2, 80)) < [[0.7], [0.6]]
        num_rejected += consistency.independence_test(a, b, draws=199, seed=i) <= 0.05
    assert num_rejected / 400 == pytest.approx(0.05, abs=0.035)


def answers(n=120, seed=0):
    """Return the marks of two networks and three people; the first network errs like people."""
    random = np.random.default_rng(seed)
    hard = random.random(n)
    people = random.random((3, n)) + hard < 1.3
    likely = np.stack([hard, random.random(n)])
    return consistency.Experiment(random.random((2, n)) + likely < 1.2, people)


def with_people(network, people):
    """Return the mean kappa of a network with people, by the formula."""
    p, q = network.mean(), people.mean(axis=1)
    chance = p * q + (1 - p) * (1 - q)
    return np.mean(((network == people).mean(axis=1) - chance) / (1 - chance))


def literal(experiment, draws):
    """Return the result of the published procedure, written literally with loops."""
    random, result = np.random.default_rng(5), []
    (a, b), n = experiment.networks, experiment.people.shape[1]
    for _ in range(draws):
        rows = random.integers(n, size=n)
        swap, people = random.random(n) < 0.5, experiment.people[:, rows]
        x, y = a[rows], b[rows]
        pairs = (x, y), (np.where(swap, x, y), np.where(swap, y, x))
        result.append(
            [with_people(x, people) - with_people(y, people) for x, y in pairs]
        )
    return np.array(result).T


def test_comparison_is_the_published_procedure():
    for experiment in (answers(), answers(40, seed=3)):
        redrawn, exchanged = literal(experiment, 1000)
        comparison = consistency.compare_networks([experiment], draws=3000)
        pairs = [(0, i + 1) for i in range(3)]
        for network, kappa in zip(experiment.networks, comparison.kappas, strict=True):
            mean = consistency.mean_kappa(
                np.vstack([network[None], experiment.people]), pairs
            )
            assert kappa == pytest.approx(mean[0], abs=1e-12)
        ends = np.quantile(redrawn, (0.025, 0.975))
        assert (comparison.low, comparison.high) == pytest.approx(ends, abs=0.04)
        p = (np.abs(exchanged) >= abs(comparison.difference) - 1e-12).mean()
        assert comparison.pvalue == pytest.approx(p, abs=0.04)


def test_comparison_is_antisymmetric_and_of_identical_ones_nothing():
    experiment = answers()
    turned = dataclasses.replace(experiment, networks=experiment.networks[::-1])
    comparison, other = (
        consistency.compare_networks([x], draws=500) for x in (experiment, turned)
    )
    assert (
        other.difference == -comparison.difference
        and other.kappas == comparison.kappas[::-1]
    )
    assert other.pvalue == comparison.pvalue
    identical = dataclasses.replace(experiment, networks=experiment.networks[[0, 0]])
    comparison = consistency.compare_networks([identical], draws=500)
    assert (
        comparison.difference,
        comparison.low,
        comparison.high,
        comparison.pvalue,
    ) == (0, 0, 0, 1)


def test_comparison_averages_conditions_then_experiments():
    """Weights do not depend on the numbers of images, people and conditions."""
    large, small = answers(60), answers(30, seed=1)
    two_conditions = consistency.Experiment(
        np.concatenate([large.networks, small.networks], axis=1),
        np.concatenate([large.people, small.people], axis=1),
        ["a"] * 60 + ["b"] * 30,
    )
    one_condition = dataclasses.replace(
        answers(50, seed=2), people=answers(50, seed=2).people[:2]
    )
    kappas = [
        consistency.compare_networks([x], draws=10).kappas
        for x in (large, small, one_condition)
    ]
    result = consistency.compare_networks(
        [two_conditions, one_condition], draws=10
    ).kappas
    expected = (np.mean(kappas[:2], axis=0) + kappas[2]) / 2
    assert result == pytest.approx(expected, abs=1e-12)


def test_copy_model_of_the_authors():
    model = consistency.copy_model(0.5, 0.8, 0.7)
    assert (model.copied, model.latent) == pytest.approx((0.59375, 0.5538462))
    assert consistency.copy_model(0.5, 0.7, 0.8) == model


@cases.each("kappa", [-0.2, 0, 0.3, 0.55])
def test_copies_have_the_requested_kappa_and_accuracies(kappa):
    model = consistency.copy_model(kappa, 0.65, 0.75)
    kappas = model.kappas(100_000, 200, np.random.default_rng(0))
    assert kappas.mean() == pytest.approx(kappa, abs=0.002)
    share = abs(model.copied)
    source = model.accuracy if model.copied > 0 else 1 - model.accuracy
    assert share * source + (1 - share) * model.latent == pytest.approx(0.65)


def test_ends_of_the_copy_model():
    """Every kappa that two accuracies allow has a model; if all is copied, kappa is unique."""
    for first, second in ((0.9, 0.6), (0.3, 0.2), (0.8, 0.8)):
        for kappa in consistency.kappa_bounds(first, second):
            assert 0 <= consistency.copy_model(kappa, first, second).latent <= 1
    model = consistency.copy_model(1, 0.8, 0.8)
    assert (model.kappas(50, 20, np.random.default_rng(0)) == 1).all()


WIDTHS = {
    (0, 0.75): (0.39, 0.28, 0.20, 0.14, 0.10),
    (0.25, 0.75): (0.40, 0.28, 0.19, 0.14, 0.09),
    (0.25, 0.95): (0.65, 0.53, 0.38, 0.26, 0.18),
    (0.5, 0.75): (0.33, 0.24, 0.17, 0.12, 0.085),
}


@cases.each("setting", list(WIDTHS))
def test_trials_needed(setting):
    """Widths equal those of the authors' code with 2,000 runs, within 0.02."""
    kappa, accuracy = setting
    model = consistency.copy_model(kappa, accuracy, accuracy)
    for n, width in zip((100, 200, 400, 800, 1600), WIDTHS[setting], strict=True):
        kappas = model.kappas(n, 10_000, np.random.default_rng(n))
        assert np.ptp(np.quantile(kappas, (0.025, 0.975))) == pytest.approx(
            width, abs=0.025
        )
    options = dict(kappa=kappa, accuracies=(accuracy, accuracy))
    n = consistency.trials_needed(WIDTHS[setting][2], **options)
    assert 300 < n < 520
    assert consistency.trials_needed(
        WIDTHS[setting][2] / 2, **options
    ) == pytest.approx(4 * n, rel=0.15)


@cases.each("width", [0.1, 0.2])
def test_high_accuracies_need_many_trials(width):
    """With few images all answers are correct, so that kappa is 1 for any true value."""
    options = dict(kappa=0.3, accuracies=(0.99, 0.99))
    n = consistency.trials_needed(width, **options)
    model = consistency.copy_model(0.3, 0.99, 0.99)
    for more, wide in ((0.8, True), (1.25, False), (4, False)):
        drawn = model.kappas(round(more * n), 10_000, np.random.default_rng(1))
        assert (np.ptp(np.quantile(drawn, (0.025, 0.975))) > width) == wide, (n, more)


def test_conditions_may_be_an_array():
    correct = np.random.default_rng(0).random((3, 40)) < 0.8
    names = ["a", "b"] * 20
    pairs = ((0, 1), (0, 2))
    kappa = consistency.mean_kappa(correct, pairs, np.array(names), draws=50)
    assert kappa == consistency.mean_kappa(correct, pairs, names, draws=50)


@cases.each(
    "call, why",
    [
        (
            lambda: consistency.copy_model(0.3, 0.6, 0.9),
            "allow kappa from .* to 0.285714, got 0.3",
        ),
        (
            lambda: consistency.kappa_bounds(1, 0.5),
            "accuracy: must lie between 0 and 1, got 1",
        ),
        (
            lambda: consistency.trials_needed(0, kappa=0, accuracies=(0.5, 0.5)),
            "width must lie in",
        ),
        (
            lambda: consistency.mean_kappa(np.ones((2, 5), bool), ((0, 1),), draws=0),
            "draws: must be at least 1",
        ),
        (lambda: consistency.compare_networks([]), "experiments: must be at least 1"),
        (
            lambda: consistency.compare_networks(
                [consistency.Experiment(np.ones((2, 5), bool), np.ones((2, 5), bool))],
                draws=0,
            ),
            "draws: must be at least 1",
        ),
        (
            lambda: consistency.compare_networks(
                [consistency.Experiment(np.ones((3, 5), bool), np.ones((2, 5), bool))]
            ),
            "two networks",
        ),
        (
            lambda: consistency.compare_networks(
                [consistency.Experiment(np.ones((2, 5)), np.ones((2, 5), bool))]
            ),
            "as bool, got float64",
        ),
        (
            lambda: consistency.compare_networks(
                [
                    consistency.Experiment(
                        np.ones((2, 5), bool), np.ones((2, 5), bool), "abc"
                    )
                ]
            ),
            "conditions",
        ),
        (lambda: consistency.independence_test(SEVEN, SEVEN[:3]), "of the same images"),
    ],
)
def test_one_line_refusals(call, why):
    with pytest.raises(ValueError, match=why) as error:
        call()
    assert "\n" not in str(error.value)
