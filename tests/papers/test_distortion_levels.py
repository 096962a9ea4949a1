"""The level of the tests of claims in the data-distortion study.

Of 100 simulated studies without a difference, 3 to 5 (interference) and 3 to 8 (iOcclusion)
reject at 5 % per side. Brackets of the index of interference contain the true index in 65 to 85
of 100 if one class gathers errors, and in none if no class is preferred.
"""

import itertools

import numpy as np
import pytest

from jbias.measures import interference, iocclusion
from jbias.papers import distortion_published
from jbias.report.pages.distortion import distortion_groups
from jbias.stats import two_sample
from tests import cases

STUDIES = 120
CLAIM = distortion_published.Claim(
    "Table 1",
    "more than less",
    distortion_published.NumberKey("accuracy", "CIFAR-10", "basic"),
    distortion_published.NumberKey("accuracy", "CIFAR-10", "MixUp"),
)


def draw_parts(random, pull, dominant, seeds=5):
    """Return seeds for which about a share `pull` of errors is in one class."""
    clean = random.multinomial(500, np.full(10, 0.1), size=seeds)
    share = np.clip(pull * (1 + 0.3 * random.normal(size=seeds)), 0, 1)[:, None]
    probabilities = (1 - share) * 0.1 + share * (np.arange(10) == dominant)
    distorted = np.stack([random.multinomial(3000, p) for p in probabilities])
    return interference.index(
        interference.increase(clean, distorted, 10_000), draws=1
    ).parts


def draw_gaps(random, gap, fraction, seeds=5, n=1000):
    """Return seeds of networks that keep a share `fraction` of their gap under occlusion."""
    shares = (0.6 + gap, 0.6, 0.4 + fraction * gap, 0.4)
    spread = np.array(shares)[:, None] + 0.01 * random.normal(size=(4, seeds))
    train, test, *hidden = random.binomial(n, np.clip(spread, 0, 1)) / n
    gaps = distortion_groups.Gaps(
        seeds=tuple(range(seeds)),
        images=np.full((2, seeds), n),
        clean=np.stack([train, test]),
        curves=iocclusion.curves(
            {"": train, "x 0.3": hidden[0]}, {"": test, "x 0.3": hidden[1]}
        ),
    )
    return gaps.units("x")[1]


def count_rejections(pairs, statistic):
    """Return how often each side has p <= 0.05, in studies where both have a test."""
    results = [
        two_sample.exchange(first, second, statistic)
        for first, second in pairs
        if len(first) and len(second)
    ]
    return [
        sum(p <= 0.05 for p in pvalues)
        for pvalues in ([x.greater for x in results], [x.less for x in results])
    ]


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(5, 5), (5, 3)])
def test_the_same_index_in_another_class_is_no_difference(sizes):
    """Level 5 % a side: 14 of 120 studies is the 99.9 % quantile; 25 % would be 30 studies."""
    random = np.random.default_rng(0)
    pairs = [
        [draw_parts(random, 0.4, c, n) for c, n in zip((9, 3), sizes, strict=True)]
        for _ in range(STUDIES)
    ]
    assert max(count_rejections(pairs, distortion_groups.product)) <= 14


def test_a_different_index_is_detected():
    random = np.random.default_rng(1)
    pairs = [[draw_parts(random, pull, 9) for pull in (0.5, 0.25)] for _ in range(20)]
    more, less = count_rejections(pairs, distortion_groups.product)
    assert more >= 16 and less == 0


@pytest.mark.slow
def test_the_same_iocclusion_of_another_gap_is_no_difference():
    """Gaps of 20 and 6 points, half kept. Level 3 to 8 % a side, in 300 studies."""
    random = np.random.default_rng(2)
    pairs = [
        [draw_gaps(random, gap, 0.5) for gap in (0.2, 0.06)] for _ in range(STUDIES)
    ]
    assert max(count_rejections(pairs, distortion_groups.ratio)) <= 18
    pairs = [
        [draw_gaps(random, 0.2, fraction) for fraction in (0.9, 0.5)] for _ in range(20)
    ]
    more, less = count_rejections(pairs, distortion_groups.ratio)
    assert more >= 16 and less == 0


def test_both_sides_together_have_the_level():
    """At most 5 % of all 70 labellings of eight values have a verdict."""
    values, verdicts = np.random.default_rng(3).normal(size=8), []
    for chosen in itertools.combinations(range(8), 4):
        groups = values[list(chosen)], np.delete(values, chosen)
        more, less = (distortion_groups.summarise(range(4), x) for x in groups)
        side = distortion_published.tested(CLAIM, more, less)
        (judged,) = distortion_published.judged({("", CLAIM): side}, 0.05).values()
        verdicts.append(judged["verdict"])
    # One of 70 labellings on each side.
    assert verdicts.count("holds") == verdicts.count("does not hold") == 1


@cases.each(
    ("more", "less", "margin", "order"),
    [
        (2, 1, 0, "as claimed"),
        (1, 2, 0, "opposite"),
        (0, 0, 0, "equal"),
        (1, 1.5, 1, "as claimed"),
        (1, 2.0, 1, "as claimed"),
        (1, 2.5, 1, "opposite"),
        (1, np.nan, 0, ""),
    ],
)
def test_order_of_means(more, less, margin, order):
    claim = CLAIM._replace(margin=margin)
    assert distortion_published.order(claim, more, less) == order
