"""Ratios over images: closed forms, simulated error rates, published decisions and pandas."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from jbias.stats import bootstrap_intervals, multiple_testing, ratios
from tests import cases

VLM = "paper/decisions-vlm/vlm/vqa"


def simulate(rng, *, num_images, decided, shares):
    """Return (numerator, denominator): decisions that agree on difficult and on easy images.

    decided: expected number of decisions of each observer. shares: expected score of each.
    """
    k = len(shares)
    is_decided = rng.random((k, num_images)) < np.divide(decided, num_images)[:, None]
    is_decided[:, 0] = True
    difficulty = rng.normal(size=num_images)
    threshold = math.sqrt(2) * scipy.stats.norm.ppf(shares)
    latent = rng.normal(size=(k, num_images)) + difficulty + threshold[:, None]
    return is_decided * (latent > 0), is_decided * 1


def published(test_data):
    """Return (numerator, denominator, frames) of the multiple-choice answers of published VLMs."""
    folder = test_data.parent / VLM
    if not folder.is_dir():
        pytest.skip(f"needs published decisions: {folder} is no folder")
    frames = []
    for path in sorted(folder.glob("*.csv")):
        frame = pd.read_csv(path, keep_default_na=False).sort_values("image")
        cues = frame["image"].str.extract(r"^(\D+)\d+-(\D+)\d+$")
        frame["shape"] = cues[0] == frame["pred_label"]
        frame["texture"] = cues[1] == frame["pred_label"]
        frames.append(frame[cues[0] != cues[1]].reset_index(drop=True))
    numerator = np.stack([frame["shape"] for frame in frames]) * 1
    denominator = np.stack([frame["shape"] | frame["texture"] for frame in frames]) * 1
    return numerator, denominator, frames


def bootstrap_scores(numerator, denominator, draws=100_000):
    """Return the scores in draws of images, the same images for all observers: (draws, k)."""
    rng = np.random.default_rng(5)
    n = numerator.shape[1]
    result = []
    for _ in range(draws // 1000):
        weights = rng.multinomial(n, np.full(n, 1 / n), size=1000).astype(np.float64)
        result.append((weights @ numerator.T) / (weights @ denominator.T))
    return np.concatenate(result)


def test_scores_of_published_models_equal_those_of_pandas(test_data):
    numerator, denominator, frames = published(test_data)
    result = ratios.bootstrap_ratios(numerator, denominator, draws=200)
    for j, frame in enumerate(frames):
        shape, texture = frame["shape"].sum(), frame["texture"].sum()
        assert result.count[j] == shape and result.n[j] == shape + texture
        assert result.value[j] == shape / (shape + texture)
    assert (result.lower < result.value).all() and (result.value < result.upper).all()


def test_standard_errors_and_pvalues_of_published_models_are_those_of_a_paired_bootstrap(
    test_data,
):
    """100,000 draws: standard errors within 2 %, p within 0.015."""
    numerator, denominator, _ = published(test_data)
    result = ratios.compare_ratios(numerator, denominator)
    order = np.argsort(result.pvalue)
    scores = bootstrap_scores(numerator, denominator)
    for p in order[::9]:
        drawn = scores[:, result.first[p]] - scores[:, result.second[p]]
        assert result.standard_error[p] == pytest.approx(drawn.std(), rel=0.02)
        share = 2 * min(np.mean(drawn <= 0), np.mean(drawn >= 0))
        assert result.pvalue[p] == pytest.approx(share, abs=0.015)
        low, high = np.quantile(drawn, [0.025, 0.975])
        assert (result.lower[p], result.upper[p]) == pytest.approx(
            (low, high), abs=0.06 * drawn.std()
        )


def test_standard_errors_of_simulated_decisions_are_those_of_a_paired_bootstrap():
    """100,000 draws of all images and the extra ones: the linearisation is within 2 %."""
    rng = np.random.default_rng(0)
    numerator, denominator = simulate(
        rng, num_images=300, decided=[250, 150], shares=[0.4, 0.5]
    )
    result = ratios.compare_ratios(numerator, denominator)
    drawn = bootstrap_scores(*ratios.with_extra_images(numerator, denominator))
    deviation = np.std(drawn[:, 0] - drawn[:, 1])
    assert result.standard_error[0] == pytest.approx(deviation, rel=0.02)


@cases.each("n", [20, 1200, 50_000])
def test_comparison_of_accuracies_is_mcnemars_test(n):
    """z is (b - c) / sqrt(b + c - (b - c)^2 / (n + 4)); for large n, McNemar's z."""
    b, c = 13, 4
    numerator = np.zeros((2, n))
    numerator[:, 17:] = np.random.default_rng(0).random(n - 17) < 0.7
    numerator[0, :b], numerator[1, b : b + c] = 1, 1
    result = ratios.compare_ratios(numerator, np.ones((2, n)))
    assert result.difference[0] == pytest.approx((b - c) / n)
    z = (b - c) / math.sqrt(b + c - (b - c) ** 2 / (n + 4))
    assert result.pvalue[0] == pytest.approx(2 * scipy.stats.norm.sf(z), rel=1e-9)
    centre = (b - c) / (n + 4)
    assert result.standard_error[0] == pytest.approx(centre / z, rel=1e-9)
    half = scipy.stats.norm.ppf(0.975) * centre / z
    assert result.lower[0] == pytest.approx(centre - half, rel=1e-9)
    assert result.upper[0] == pytest.approx(centre + half, rel=1e-9)
    if n >= 1200:
        mcnemar = scipy.stats.chi2.sf((b - c) ** 2 / (b + c), 1)
        assert result.pvalue[0] == pytest.approx(mcnemar, rel=0.02)


def test_pvalues_have_no_floor():
    numerator = np.zeros((2, 2000))
    numerator[0, :1300], numerator[1, :700] = 1, 1
    result = ratios.compare_ratios(numerator, np.ones((2, 2000)))
    assert 0 < result.pvalue[0] < 1e-150 and result.verdict.tolist() == [1]


def test_standard_error_against_a_constant_is_that_of_agresti_and_coull():
    """One observer against a score of 1/2 without error: sqrt(w (1 - w) / (n + 4))."""
    decided, right, n = 12, 9, 10**6
    numerator, denominator = np.zeros((2, n)), np.zeros((2, n))
    numerator[0, :right], denominator[0, :decided] = 1, 1
    numerator[1, n // 2 :], denominator[1, decided:] = 1, 1  # On other images.
    numerator[1, : n // 2] = 0
    result = ratios.compare_ratios(numerator, denominator)
    w = (right + 2) / (decided + 4)
    assert result.standard_error[0] == pytest.approx(
        math.sqrt(w * (1 - w) / (decided + 4)), rel=1e-4
    )


@cases.each(
    ("decided", "share"),
    [
        pytest.param((1200, 1200), 0.5, marks=pytest.mark.slow),
        ((600, 800), 0.2),
        pytest.param((40, 800), 0.05, marks=pytest.mark.slow),
        ((5, 800), 0.5),
    ],
)
def test_equal_scores_are_rejected_at_the_level(decided, share):
    """1,500 pairs, level 5 %: at most 5 % + 3 standard errors (0.6 points).

    With enough decisions also at least 5 % - 3 standard errors. Without extra images, 13 % (40
    decisions) and 15 % (5 decisions) would be rejected.
    """
    rng = np.random.default_rng(1)
    rejected = [
        ratios.compare_ratios(
            *simulate(rng, num_images=1200, decided=decided, shares=[share, share])
        ).pvalue[0]
        <= 0.05
        for _ in range(1500)
    ]
    rate, error = np.mean(rejected), math.sqrt(0.05 * 0.95 / 1500)
    assert rate < 0.05 + 3 * error
    assert min(decided) < 100 or rate > 0.05 - 3 * error


def test_a_pair_and_an_interval_do_not_depend_on_other_observers_and_images():
    """To the bit: with more observers, and with images that only these have."""
    rng = np.random.default_rng(2)
    numerator, denominator = simulate(
        rng, num_images=300, decided=[200] * 5, shares=[0.3, 0.4, 0.5, 0.6, 0.6]
    )
    has_row = np.ones((5, 300), bool)
    has_row[2:, ::7] = False
    has_row[:2, ::11] = False
    numerator, denominator = numerator * has_row, denominator * has_row
    some = np.ix_([0, 1], has_row[0])
    alone = ratios.compare_ratios(numerator[some], denominator[some])
    panel = ratios.compare_ratios(numerator, denominator, has_row)
    for field in ("difference", "lower", "upper", "standard_error", "pvalue"):
        assert getattr(alone, field)[0] == getattr(panel, field)[0]
    assert alone.num_images[0] == panel.num_images[0] == has_row[0].sum()
    assert alone.verdict[0] == panel.verdict[0]
    interval = ratios.bootstrap_ratios(numerator[some], denominator[some], draws=500)
    intervals = ratios.bootstrap_ratios(
        numerator, denominator, has_row=has_row, draws=500
    )
    assert (interval.lower == intervals.lower[:2]).all()
    assert (interval.upper == intervals.upper[:2]).all()


def test_pairs_are_over_common_images_and_adjusted_together():
    rng = np.random.default_rng(3)
    numerator, denominator = simulate(
        rng, num_images=100, decided=[90] * 4, shares=[0.2, 0.4, 0.6, 0.8]
    )
    has_row = rng.random((4, 100)) < 0.8
    numerator, denominator = numerator * has_row, denominator * has_row
    result = ratios.compare_ratios(numerator, denominator, has_row, confidence=0.9)
    pairs = list(itertools.combinations(range(4), 2))
    assert list(zip(result.first, result.second, strict=True)) == pairs
    for p, (a, b) in enumerate(pairs):
        common = has_row[a] & has_row[b]
        assert result.num_images[p] == common.sum()
        means = [
            numerator[j, common].sum() / denominator[j, common].sum() for j in (a, b)
        ]
        assert result.difference[p] == means[0] - means[1]
    holm = multiple_testing.adjust(result.pvalue, "holm")
    assert (result.adjusted == holm).all() and result.adjustment == "holm"
    differs = np.where(result.pvalue <= 0.1, np.sign(result.difference), 0)
    assert (result.verdict == differs).all()
    # The interval of a pair excludes 0 where its test rejects.
    assert (((result.lower > 0) | (result.upper < 0)) == (result.pvalue <= 0.1)).all()
    adjusted = np.where(holm <= 0.1, np.sign(result.difference), 0)
    assert (result.adjusted_verdict == adjusted).all()
    matrix = bootstrap_intervals.pair_matrix(result.difference, np.negative)
    assert matrix[3, 1] == -matrix[1, 3] == -result.difference[pairs.index((1, 3))]


def test_observers_without_a_decision_have_no_number_and_do_not_count_in_the_adjustment():
    numerator = np.array([[1, 0, 1, 1], [0, 0, 0, 0], [0, 0, 1, 0]])
    denominator = np.array([[1, 1, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]])
    intervals = ratios.bootstrap_ratios(numerator, denominator, draws=100)
    assert np.isnan([intervals.value[1], intervals.lower[1], intervals.upper[1]]).all()
    assert intervals.n.tolist() == [4, 0, 4] and intervals.count.tolist() == [3, 0, 1]
    result = ratios.compare_ratios(numerator, denominator)
    for field in ("difference", "lower", "upper", "pvalue", "adjusted"):
        assert np.isnan(getattr(result, field)).tolist() == [True, False, True]
    assert result.adjusted[1] == result.pvalue[1]
    assert result.verdict.tolist() == [0, 0, 0]
    assert result.num_images.tolist() == [4, 4, 4]


def test_equal_observers_do_not_differ():
    numerator = np.random.default_rng(0).random((1, 50)).repeat(2, axis=0)
    result = ratios.compare_ratios(numerator, np.ones((2, 50)))
    assert (result.pvalue[0], result.difference[0], result.standard_error[0]) == (
        1,
        0,
        0,
    )
    nothing_in_common = ratios.compare_ratios(
        np.eye(2), np.eye(2), np.eye(2, dtype=bool)
    )
    assert nothing_in_common.num_images[0] == 0
    assert np.isnan(nothing_in_common.pvalue[0])


@cases.each(("n", "right"), [(30, 11), (1200, 1200), (1200, 0), (3, 3)])
def test_bootstrap_interval_of_an_accuracy_is_that_of_the_binomial_distribution(
    n, right
):
    """Draws are binomial of n + 4 images; quantiles within one image and 2 % of the length."""
    numerator = (np.arange(n) < right)[None]
    result = ratios.bootstrap_ratios(numerator, np.ones((1, n)), draws=20_000)
    binomial = scipy.stats.binom(n + 4, (right + 2) / (n + 4))
    low, high = binomial.ppf([0.025, 0.975]) / (n + 4)
    limit = 1 / (n + 4) + 0.02 * (high - low)
    assert result.lower[0] == pytest.approx(min(low, right / n), abs=limit)
    assert result.upper[0] == pytest.approx(max(high, right / n), abs=limit)
    assert result.lower[0] < result.upper[0]
    assert result.lower[0] <= result.value[0] <= result.upper[0]


def test_three_decisions_for_the_shape_do_not_prove_a_shape_bias_of_one():
    numerator, denominator = np.zeros((2, 1000)), np.zeros((2, 1000))
    numerator[0, :3], denominator[0, :3] = 1, 1
    numerator[1, :600], denominator[1] = 1, 1
    intervals = ratios.bootstrap_ratios(numerator, denominator, draws=5000)
    assert intervals.value[0] == 1 and intervals.lower[0] < 0.5
    assert intervals.upper[0] == 1
    assert ratios.compare_ratios(numerator, denominator).pvalue[0] > 0.3


@cases.each("confidence", [0.1, 0.5, 0.99])
def test_intervals_contain_the_value_at_every_confidence(confidence):
    numerator = np.array([[1, 1, 1, 0, 0], [0, 0, 0, 0, 0], [1, 1, 0, 0, 0]])
    denominator = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 1, 0, 0, 1]])
    result = ratios.bootstrap_ratios(
        numerator, denominator, draws=1000, confidence=confidence
    )
    assert (result.lower <= result.value).all() and (result.value <= result.upper).all()


def test_draws_of_images_depend_on_their_number_and_the_seed_alone():
    first, again, other = (
        np.vstack([*ratios.weight_chunks(50, draws=2000, seed=seed)])
        for seed in (0, 0, 1)
    )
    assert (first == again).all() and (first != other).any()
    assert (first.sum(axis=1) == 50).all()
    # Multinomial: variance 1 - 1/n of each image, covariance -1/n of two.
    assert first.var() == pytest.approx(1 - 1 / 50, rel=0.02)
    assert np.cov(first[:, :2].T)[0, 1] == pytest.approx(-1 / 50, abs=0.07)


ONES = np.ones((2, 5))


@cases.each(
    ("call", "words"),
    [
        (
            lambda: ratios.compare_ratios(ONES, ONES[:1]),
            "numerator: must have the shape",
        ),
        (
            lambda: ratios.compare_ratios(2 * ONES, ONES),
            "2 of 1 for observer 0, image 0",
        ),
        (lambda: ratios.compare_ratios(-ONES, ONES), "be from 0 to the denominator"),
        (lambda: ratios.bootstrap_ratios(ONES * np.nan, ONES), "both finite"),
        (lambda: ratios.bootstrap_ratios(ONES, ONES * np.inf), "both finite"),
        (lambda: ratios.compare_ratios(ONES, ONES, ONES), "has_row: must be True or"),
        (lambda: ratios.compare_ratios(ONES, ONES, ONES == 0), "be 0 where has_row"),
        (lambda: ratios.compare_ratios(ONES, ONES, adjust="hlm"), "holm"),
        (lambda: ratios.compare_ratios(ONES, ONES, confidence=95), "confidence"),
        (lambda: ratios.bootstrap_ratios(ONES, ONES, confidence=0), "confidence"),
        (lambda: ratios.bootstrap_ratios(ONES, ONES, draws=50), "draws: must be at"),
    ],
)
def test_wrong_arguments_are_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_clustered_standard_errors_are_sums_over_images_that_share_a_cluster():
    """All pairs of images, one by one; G / (G - 1) of the smaller number of clusters."""
    rng = np.random.default_rng(0)
    numerator, denominator = simulate(
        rng, num_images=60, decided=[40, 50, 60], shares=[0.3, 0.5, 0.6]
    )
    shape, texture = np.arange(60) % 12, np.arange(60) // 12
    result = ratios.compare_ratios(
        numerator, denominator, clusters=[shape, [f"t{i}" for i in texture]]
    )
    _, influence = ratios.influence_values(numerator, denominator)
    shares = (shape[:, None] == shape) | (texture[:, None] == texture)
    for p, (a, b) in enumerate(itertools.combinations(range(3), 2)):
        d = influence[a] - influence[b]
        one_way = [
            sum(d[:60][ids == i].sum() ** 2 for i in np.unique(ids))
            for ids in (shape, texture)
        ]
        largest = max([d[:60] @ shares @ d[:60], *one_way])
        expected = math.sqrt(largest * 5 / 4 + np.sum(d[60:] ** 2))
        assert result.standard_error[p] == pytest.approx(expected, rel=1e-12)
        centre = (result.lower[p] + result.upper[p]) / 2
        p_value = 2 * scipy.stats.t.sf(abs(centre) / expected, 4)
        assert result.pvalue[p] == pytest.approx(p_value, rel=1e-9)


def test_clusters_of_single_images_change_the_test_only_by_the_number_of_images():
    numerator, denominator = simulate(
        np.random.default_rng(1), num_images=400, decided=[300, 300], shares=[0.4, 0.5]
    )
    plain = ratios.compare_ratios(numerator, denominator)
    single = ratios.compare_ratios(
        numerator, denominator, clusters=[np.arange(400), np.arange(400)]
    )
    ratio = single.standard_error[0] / plain.standard_error[0]
    assert ratio == pytest.approx(math.sqrt(400 / 399), rel=1e-4)
    z = abs(scipy.stats.norm.ppf(plain.pvalue[0] / 2)) / ratio
    assert single.pvalue[0] == pytest.approx(2 * scipy.stats.t.sf(z, 399), rel=1e-6)


def test_tests_over_images_reject_equal_observers_too_often_where_pictures_matter():
    """40 shapes and 24 textures with effects of their own; 300 studies, p = 0.05.

    The clustered test rejects in 5 % of them within 3 standard errors (1.3 points each).
    """
    rng = np.random.default_rng(2)
    shape, texture = np.divmod(np.arange(960), 24)
    rejected = np.zeros(2)
    for _ in range(300):
        effect = (
            rng.normal(size=(2, 40))[:, shape] + rng.normal(size=(2, 24))[:, texture]
        )
        numerator = (effect + rng.normal(size=(2, 960)) > 0) * 1
        plain = ratios.compare_ratios(numerator, np.ones((2, 960)))
        clustered = ratios.compare_ratios(
            numerator, np.ones((2, 960)), clusters=[shape, texture]
        )
        rejected += [plain.pvalue[0] <= 0.05, clustered.pvalue[0] <= 0.05]
    plain_share, clustered_share = rejected / 300
    assert plain_share > 0.3
    assert abs(clustered_share - 0.05) <= 3 * math.sqrt(0.05 * 0.95 / 300)


@cases.each(
    ("clusters", "message"),
    [
        ([[0, 1, 0], [0, 1, 1], [0, 0, 1]], "at most two ways"),
        ([[0, 1]], "one entry for each of 3 images"),
        ([[1, 1, 1]], "at least two clusters"),
    ],
)
def test_wrong_clusters_are_refused(clusters, message):
    with pytest.raises(ValueError, match=message):
        ratios.compare_ratios(
            [[1, 0, 1], [0, 0, 1]], np.ones((2, 3)), clusters=clusters
        )
