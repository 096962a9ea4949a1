"""Sources of variance: closed forms, an analysis of variance, and coverage."""

import numpy as np
import pandas as pd
import pytest

from jbias import stats
from tests import cases


def one_at_a_time(rng, r, spread=(1.0, 2.0, 0.5), total=3.0):
    """Return r runs that vary each source, and r that vary all; a fixed source has seed 0."""
    rows = []
    for k, deviation in enumerate(spread):
        seeds = np.zeros((r, 3), int)
        seeds[:, k] = 1 + np.arange(r)
        rows.append((seeds, rng.normal(0, deviation, r)))
    rows.append(
        (np.arange(r)[:, None] + 100 + np.zeros((1, 3), int), rng.normal(0, total, r))
    )
    seeds, scores = (np.concatenate(columns) for columns in zip(*rows))
    names = ["init", "order", "augmentation"]
    return pd.DataFrame(seeds, columns=names).assign(score=scores)


def crossed(rng, shape, spread, noise):
    """Return scores for all combinations of seeds of two sources, as a matrix and as runs."""
    effects = (
        rng.normal(size=shape[0]) * spread[0],
        rng.normal(size=shape[1]) * spread[1],
    )
    y = effects[0][:, None] + effects[1] + rng.normal(size=shape) * noise
    i, j = np.indices(shape)
    return y, pd.DataFrame({"init": i.ravel(), "order": j.ravel(), "score": y.ravel()})


def test_one_source_at_a_time_is_its_sample_variance():
    runs = one_at_a_time(np.random.default_rng(0), 6)
    runs["score"] += 70
    sources = stats.sources_of_variance(runs)
    for k, name in enumerate(sources.sources):
        other_sources = [source for source in sources.sources if source != name]
        group = runs[(runs[other_sources] == 0).all(axis=1)]
        assert len(group) == 6 and sources.pairs[k] == 15
        assert sources.alone.value[k] == pytest.approx(group["score"].var())
    total = runs[runs["init"] >= 100]["score"].var()
    assert sources.total.value == pytest.approx(total)
    assert sources.share.value == pytest.approx(sources.alone.value / total)
    assert np.isnan(sources.component).all() and np.isnan(sources.noise)
    # Seeds are names: their type does not matter.
    named = runs.astype({name: str for name in sources.sources})
    renamed = stats.sources_of_variance(named.sample(frac=1, random_state=0))
    assert renamed.share.value == pytest.approx(sources.share.value)


def test_components_of_crossed_seeds_equal_an_analysis_of_variance():
    y, runs = crossed(np.random.default_rng(1), (5, 6), (2.0, 1.0), 0.5)
    sources = stats.sources_of_variance(runs, sources=("init", "order"))
    residual = y - y.mean(1, keepdims=True) - y.mean(0) + y.mean()
    noise = (residual**2).sum() / 20
    components = (
        (6 * y.mean(1).var(ddof=1) - noise) / 6,
        (5 * y.mean(0).var(ddof=1) - noise) / 5,
    )
    assert sources.component == pytest.approx(components)
    assert sources.total.value == pytest.approx(sum(components) + noise)
    assert sources.alone.value[0] == pytest.approx(y.var(axis=0, ddof=1).mean())
    # The variance of a source alone is its component plus the interactions.
    assert sources.alone.value - sources.component == pytest.approx([noise, noise])


def test_the_noise_comes_from_runs_with_the_same_seeds():
    _, runs = crossed(np.random.default_rng(2), (3, 3), (1.0, 1.0), 0.0)
    twice = pd.concat([runs, runs.assign(score=runs["score"] + 0.2)])
    sources = stats.sources_of_variance(twice, sources=("init", "order"))
    assert sources.noise == pytest.approx(0.02)


def test_intervals_have_their_coverage():
    """95 % of 400 studies, within three standard errors (0.033)."""
    rng, is_covered = np.random.default_rng(3), []
    spread = np.array([1.0, 2.0, 0.5])
    for _ in range(400):
        runs = one_at_a_time(rng, 5)
        sources = stats.sources_of_variance(runs)
        share, true = sources.share, spread**2 / 9
        is_covered.append(
            [
                (sources.alone.low <= spread**2) & (spread**2 <= sources.alone.high),
                (share.low <= true) & (true <= share.high),
            ]
        )
    assert np.mean(is_covered, axis=0) == pytest.approx(0.95, abs=0.035)


def test_crossed_seeds_have_intervals_that_are_wide_enough():
    rng, is_covered = np.random.default_rng(4), []
    for _ in range(200):
        _, runs = crossed(rng, (5, 5), (1.0, 1.0), 1.0)
        sources = stats.sources_of_variance(runs, sources=("init", "order"))
        is_covered.append(
            [
                *((sources.alone.low <= 2) & (2 <= sources.alone.high)),
                *((sources.share.low <= 2 / 3) & (2 / 3 <= sources.share.high)),
            ]
        )
    assert (np.mean(is_covered, axis=0) > 0.92).all()


@cases.each(
    ("change", "message"),
    [
        (
            lambda runs: runs.drop(columns="order"),
            "runs: columns: must be one of .*got 'order'",
        ),
        (
            lambda runs: runs.assign(score=np.nan),
            "runs: score must be finite in every row",
        ),
        (
            lambda runs: runs.assign(order=[None, *runs["order"][1:]]),
            "runs: order must name a seed in every row",
        ),
        (
            lambda runs: runs.assign(init=range(len(runs)), order=range(len(runs))),
            "must differ in one source alone, got none",
        ),
    ],
)
def test_runs_without_information_are_refused(change, message):
    runs = one_at_a_time(np.random.default_rng(0), 3)
    with pytest.raises(ValueError, match=message):
        stats.sources_of_variance(change(runs), sources=("init", "order"))
