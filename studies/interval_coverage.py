"""Simulate how often 95 % intervals over resampled seeds and data sets cover the true value.

    python -m studies.interval_coverage

Writes OUT/interval-coverage.md: the share of simulated studies whose interval covers the true
value, in two tables:

- Seeds: the mean of one algorithm on one data set, over resampled runs (jbias.stats.intervals).
  Scores are normal, or bimodal like the shape bias of ERM: near 0.06 with probability 0.76 and
  otherwise near 0.9, both with standard deviation 0.03.
- Data sets: the difference between two algorithms over resampled runs and data sets
  (jbias.stats.mean_differences with datasets=True). The true difference varies between data sets
  with standard deviation 3; scores of runs vary with standard deviation 1. Rows named
  "before widening" use intervals without jbias.stats.bootstrap_intervals.widening.

Takes about two minutes on two cores.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from jbias import stats
from jbias.stats import bootstrap_intervals
from studies import command

LOW, HIGH, SHARE_HIGH = 0.06, 0.9, 0.24


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return normal scores with mean 0."""
    return rng.normal(size=shape)


def two_humps(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return bimodal scores with mean 0."""
    modes = np.where(rng.random(shape) < SHARE_HIGH, HIGH, LOW)
    return modes + 0.03 * rng.normal(size=shape) - (0.76 * LOW + 0.24 * HIGH)


def seed_coverage(draw: Callable, runs: int, *, studies: int, seed: int = 0) -> float:
    """Return the share of intervals of a mean over resampled runs that cover 0.

    A study is a cell of a table of two data sets; algorithms are resampled independently.
    draw: maps a generator and a shape to scores with mean 0.
    """
    rng, hits = np.random.default_rng(seed), []
    for first in range(0, studies, 200):
        scores = draw(rng, (2, min(200, studies - first) // 2, runs))
        cells = stats.intervals(
            scores, larger_is_better=True, draws=2000, seed=first
        ).cells
        hits.append((cells.low <= 0) & (cells.high >= 0))
    return float(np.mean(np.concatenate(hits, axis=1)))


def dataset_coverage(
    datasets: int, runs: int, *, studies: int, seed: int = 0
) -> tuple[float, float]:
    """Return the shares of intervals over resampled data sets that cover 0.

    First before widening, then as they are. datasets, runs: numbers in a study.
    """
    rng, hits = np.random.default_rng(seed), np.zeros(2)
    factor = bootstrap_intervals.widening(datasets, 0.95)
    for study in range(studies):
        scores = rng.normal(size=(datasets, 2, runs))
        scores[:, 0] += 3 * rng.normal(size=(datasets, 1))
        pairs = stats.mean_differences(
            scores, larger_is_better=True, datasets=True, draws=1000, seed=study
        ).pairs
        value, ends = pairs.value[0, 1], np.array([pairs.low[0, 1], pairs.high[0, 1]])
        for i, scale in enumerate((1 / factor, 1.0)):
            low, high = value + scale * (ends - value)
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
    """Simulate, and write the page."""
    parser = command.parser("interval_coverage", __doc__)
    parser.add_argument(
        "--studies",
        type=int,
        default=4000,
        metavar="N",
        help="simulated studies per cell of the tables (default: %(default)s)",
    )
    command.add_out(parser, "the page", command.RESULTS)
    options = parser.parse_args()
    studies = options.studies
    seeds = {
        name: [seed_coverage(draw, r, studies=studies) for r in (3, 5, 10)]
        for name, draw in (("normal scores", normal), ("two humps", two_humps))
    }
    datasets = {}
    for runs in (3, 10):
        shares = [dataset_coverage(n, runs, studies=studies) for n in (5, 10, 20)]
        datasets[f"{runs} seeds, before widening"] = [
            unwidened for unwidened, _ in shares
        ]
        datasets[f"{runs} seeds, now"] = [widened for _, widened in shares]
    text = page(seeds, datasets, studies=studies)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "interval-coverage.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
