"""Measure how often each statistical test rejects when the algorithms do not differ.

    python -m studies.rejection_rates

Draws tables of scores under the null hypothesis and applies the tests of jbias.stats. A test
rejects if p is at most 0.05; a test of pairs rejects if its smallest adjusted p is at most 0.05
(family-wise error). Scores are normal, with a random mean per data set; with ties, scores are
rounded so that about a fifth of the pairs in a data set tie. Permutation tests draw --draws
permutations of a table unless they can enumerate all; with ties, permutation tests use a fifth of
the tables, because they are slow. Writes OUT/rejection-rates.json and OUT/rejection-rates.md,
which marks rates more than three standard errors above 0.05.

Takes about half an hour on two cores (an estimate).
"""

import argparse
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from benchmarks import result_files
from jbias import stats
from studies import command

ALPHA = 0.05
SETS, ALGORITHMS = (5, 7, 10, 20), (3, 5, 8)
ROUNDING = 0.7  # In standard deviations of a score: a fifth of pairs tie.


class NullTest(NamedTuple):
    """A test under the null hypothesis.

    pvalue: maps scores (data sets algorithms) to p, the least adjusted one of several.
    permutes: True if the test draws permutations, which takes longer.
    """

    pvalue: Callable[[np.ndarray], float]
    permutes: bool = False


def single(test: Callable, **options) -> Callable[[np.ndarray], float]:
    """Return a function that maps scores to the p of a test of all algorithms."""
    return lambda scores: test(scores, larger_is_better=True, **options).pvalue


def pairs(test: Callable, **options) -> Callable[[np.ndarray], float]:
    """Return a function that maps scores to the least adjusted p of a test of pairs."""

    def pvalue(scores: np.ndarray) -> float:
        comparisons = test(scores, larger_is_better=True, **options)
        return float(comparisons.adjusted.min())

    return pvalue


def null_tests(draws: int) -> dict[str, NullTest]:
    """Return all tests by their titles; draws: permutations of a table."""

    def friedman_chi2(scores: np.ndarray) -> float:
        return stats.friedman(scores, larger_is_better=True).chi2_pvalue

    friedman_permutation = single(stats.friedman_permutation, permutations=draws)
    return {
        "Friedman, F": NullTest(single(stats.friedman)),
        "Friedman, chi2": NullTest(friedman_chi2),
        "Friedman, permutation": NullTest(friedman_permutation, permutes=True),
        "Quade": NullTest(single(stats.quade)),
        "aligned ranks": NullTest(single(stats.aligned_ranks)),
        "Nemenyi": NullTest(pairs(stats.nemenyi)),
        "Conover, Holm": NullTest(pairs(stats.conover)),
        "max-T": NullTest(pairs(stats.max_t, permutations=draws), permutes=True),
        "Wilcoxon, Holm": NullTest(pairs(stats.wilcoxon)),
        "Wilcoxon, Shaffer": NullTest(pairs(stats.wilcoxon, adjust="shaffer")),
        "control: Dunn": NullTest(pairs(stats.bonferroni_dunn, control=0)),
        "control: rank z, Hommel": NullTest(
            pairs(stats.bonferroni_dunn, control=0, adjust="hommel")
        ),
        "control: Wilcoxon, Holm": NullTest(pairs(stats.wilcoxon, control=0)),
    }


def draw_scores(
    rng: np.random.Generator, num_sets: int, num_algorithms: int, *, tied: bool
) -> np.ndarray:
    """Return random scores (data sets algorithms) of algorithms that do not differ."""
    scores = rng.normal(size=(num_sets, num_algorithms))
    scores = scores + 3 * rng.normal(size=(num_sets, 1))
    return np.round(scores / ROUNDING) if tied else scores


def rejection_rates(
    num_sets: int, num_algorithms: int, *, tied: bool, options: argparse.Namespace
) -> dict[str, dict[str, float]]:
    """Return for each test the share of tables it rejects, and the standard error."""
    rng = np.random.default_rng([options.seed, num_sets, num_algorithms, tied])
    tables = [
        draw_scores(rng, num_sets, num_algorithms, tied=tied)
        for _ in range(options.tables)
    ]
    rates = {}
    for name, test in null_tests(options.draws).items():
        # With ties every table has a null distribution of its own, computed anew.
        is_slow = test.permutes and tied
        test_tables = tables[: max(options.tables // 5, 1)] if is_slow else tables
        rate = np.mean([test.pvalue(scores) <= ALPHA for scores in test_tables])
        error = math.sqrt(ALPHA * (1 - ALPHA) / len(test_tables))
        rates[name] = {
            "rate": float(rate),
            "error": error,
            "tables": len(test_tables),
        }
    return rates


def format_rate(rate: Mapping[str, float]) -> str:
    """Return a rate in per cent, marked with "!" if it is too large."""
    mark = "!" if rate["rate"] > ALPHA + 3 * rate["error"] else ""
    return f"{100 * rate['rate']:.1f}{mark}"


def main() -> None:
    """Measure all rates, and write the results."""
    parser = command.parser("rejection_rates", __doc__)
    add = parser.add_argument
    add(
        "--tables",
        type=int,
        default=1000,
        metavar="N",
        help="tables for each number of data sets and algorithms, with and without ties"
        " (default: %(default)s)",
    )
    add(
        "--draws",
        type=int,
        default=199,
        metavar="N",
        help="permutations drawn per table in permutation tests (default: %(default)s)",
    )
    add(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="random seed of the tables (default: %(default)s)",
    )
    command.add_out(parser, "the results", command.RESULTS)
    options = parser.parse_args()
    results, text = {}, ""
    for tied in (False, True):
        title = "ties" if tied else "no ties"
        columns = {}
        for k in ALGORITHMS:
            for n in SETS:
                columns[n, k] = rejection_rates(n, k, tied=tied, options=options)
                print(f"{title}, n={n}, k={k} done", flush=True)
        head = [f"{title}; n, k:", *(f"{n}, {k}" for n, k in columns)]
        rows = [
            [name, *(format_rate(column[name]) for column in columns.values())]
            for name in null_tests(options.draws)
        ]
        text += result_files.markdown(head, rows) + "\n"
        results[title] = {f"n={n}, k={k}": c for (n, k), c in columns.items()}
    last_rates = columns[SETS[0], ALGORITHMS[0]].values()
    errors = {rate["tables"]: rate["error"] for rate in last_rates}
    described_errors = " and ".join(
        f"{100 * error:.1f} for {tables} tables" for tables, error in errors.items()
    )
    text += (
        "Rejections at 0.05 in per cent, of n data sets and k algorithms; ! is more than "
        f"three standard errors above 5. A standard error is {described_errors}.\n"
    )
    result_files.write("rejection-rates", results, text, ratios={}, out=options.out)


if __name__ == "__main__":
    main()
