"""How often intervals over redrawn seeds and data sets hold what they are of.

    python -m benchmarks.interval_coverage [--studies=4000] [--out=benchmarks/results]

Simulates studies and writes interval-coverage.md: the share of them whose interval, called
95 %, holds the true value. Seeds: the mean of one algorithm on one data set over redrawn runs
(jbias.stats.intervals). Scores are normal, or have two humps as the shape bias of ERM: near
0.06 with the chance 0.76 and else near 0.9, both with the deviation 0.03. Data sets: the
difference of two algorithms over redrawn runs and data sets
(jbias.stats.mean_differences with datasets=True), where the true difference of a data set
deviates by 3 and a run by 1; "before" is the same without jbias.stats.resampling.widening.
"""

import argparse
import pathlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from jbias import stats
from jbias.stats import resampling

ROOT = pathlib.Path(__file__).parents[1]
UP = dict(larger_is_better=True)
HUMPS, SHARE = (0.06, 0.9), 0.24


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Scores of mean 0."""
    return rng.normal(size=shape)


def two_humps(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Scores of mean 0 near two values."""
    near = np.where(rng.random(shape) < SHARE, *HUMPS[::-1])
    return near + 0.03 * rng.normal(size=shape) - (0.76 * HUMPS[0] + 0.24 * HUMPS[1])


def of_seeds(draw: Callable, runs: int, *, studies: int, seed: int = 0) -> float:
    """Return how often the interval of a mean over redrawn runs holds 0.

    A study is a cell of a table of two data sets; runs of algorithms are drawn apart.
    """
    rng, hits = np.random.default_rng(seed), []
    for first in range(0, studies, 200):
        scores = draw(rng, (2, min(200, studies - first) // 2, runs))
        cells = stats.intervals(scores, **UP, draws=2000, seed=first).cells
        hits.append((cells.low <= 0) & (cells.high >= 0))
    return float(np.mean(np.concatenate(hits, axis=1)))


def of_datasets(
    datasets: int, runs: int, *, studies: int, seed: int = 0
) -> tuple[float, float]:
    """Return how often intervals over redrawn data sets hold 0: before widening, and now."""
    rng, hits = np.random.default_rng(seed), np.zeros(2)
    factor = resampling.widening(datasets, 0.95)
    for study in range(studies):
        scores = rng.normal(size=(datasets, 2, runs))
        scores[:, 0] += 3 * rng.normal(size=(datasets, 1))
        found = stats.mean_differences(
            scores, **UP, datasets=True, draws=1000, seed=study
        ).pairs
        value, ends = found.value[0, 1], np.array([found.low[0, 1], found.high[0, 1]])
        for i, by in enumerate((1 / factor, 1.0)):
            low, high = value + by * (ends - value)
            hits[i] += low <= 0 <= high
    return tuple(hits / studies)


Shares = Mapping[str, Sequence[float]]


def page(seeds: Shares, datasets: Shares, *, studies: int) -> str:
    """Return the page with both tables and the largest standard error of their shares."""
    shares = np.concatenate([*seeds.values(), *datasets.values()])
    error = 100 * np.sqrt(shares * (1 - shares) / studies).max()
    lines = [
        f"Share of {studies:,} simulated studies whose interval, called 95 %, holds the true",
        f"value; standard error at most {error:.1f} points.",
        "",
        "| Seeds redrawn | 3 seeds | 5 | 10 |",
        "| --- | --: | --: | --: |",
        *_rows(seeds),
        "",
        "| Seeds and data sets redrawn | 5 data sets | 10 | 20 |",
        "| --- | --: | --: | --: |",
        *_rows(datasets),
    ]
    return "\n".join(lines) + "\n"


def _rows(table: Shares) -> list[str]:
    """Return the rows of a table, shares in per cent."""
    return [
        f"| {name} | {' | '.join(f'{100 * share:.0f} %' for share in shares)} |"
        for name, shares in table.items()
    ]


def main() -> None:
    """Writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=4000)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "benchmarks/results")
    options = parser.parse_args()
    studies = options.studies
    seeds = {
        name: [of_seeds(draw, r, studies=studies) for r in (3, 5, 10)]
        for name, draw in (("normal scores", normal), ("two humps", two_humps))
    }
    datasets = {}
    for runs in (3, 10):
        both = [of_datasets(n, runs, studies=studies) for n in (5, 10, 20)]
        for name, shares in zip(("before widening", "now"), zip(*both), strict=True):
            datasets[f"{runs} seeds, {name}"] = shares
    text = page(seeds, datasets, studies=studies)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "interval-coverage.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
