"""How often each test rejects where all algorithms are alike.

    python -m benchmarks.calibration [--tables=1000] [--draws=199] [--out=DIR]

Draws tables of scores of algorithms that do not differ, gives them to the functions of
jbias.stats, and counts p <= 0.05: for tests of pairs, any adjusted p <= 0.05 (family-wise
error). Scores are normal with a mean of each data set's own; with ties, they are rounded
so that about a fifth of all pairs in a data set tie. Tests by permutation draw
`--draws` times a table where they do not take all permutations; with ties, tables are a
fifth as many for them. A mark tells rates that lie more than three standard errors above
0.05. Writes benchmarks/results/calibration.json and .md.
"""

import argparse
import math
import pathlib
from collections.abc import Callable

import numpy as np

from benchmarks import measured
from jbias import stats

ALPHA = 0.05
SETS, ALGORITHMS = (5, 7, 10, 20), (3, 5, 8)
STEP = 0.7  # Of rounding, in standard deviations of a score: a fifth of pairs tie.
UP = {"larger_is_better": True}


def pairs(test: Callable, **asked) -> Callable[[np.ndarray], float]:
    """The least adjusted p of a test of many pairs."""
    return lambda scores: float(test(scores, **UP, **asked).adjusted.min())


def plain(test: Callable, **asked) -> Callable[[np.ndarray], float]:
    """The p of one test."""
    return lambda scores: test(scores, **UP, **asked).pvalue


def tests(draws: int) -> dict[str, tuple[Callable[[np.ndarray], float], bool]]:
    """What gives a p, and whether it draws."""
    drawn = {"permutations": draws}
    return {
        "Friedman, F": (plain(stats.friedman), False),
        "Friedman, chi2": (
            lambda scores: stats.friedman(scores, **UP).chi2_pvalue,
            False,
        ),
        "Friedman, permutation": (plain(stats.friedman_permutation, **drawn), True),
        "Quade": (plain(stats.quade), False),
        "aligned ranks": (plain(stats.aligned_ranks), False),
        "Nemenyi": (pairs(stats.nemenyi), False),
        "Conover, Holm": (pairs(stats.conover), False),
        "max-T": (pairs(stats.max_t, **drawn), True),
        "Wilcoxon, Holm": (pairs(stats.wilcoxon), False),
        "Wilcoxon, Shaffer": (pairs(stats.wilcoxon, adjust="shaffer"), False),
        "control: Dunn": (pairs(stats.bonferroni_dunn, control=0), False),
        "control: rank z, Hommel": (
            pairs(stats.bonferroni_dunn, control=0, adjust="hommel"),
            False,
        ),
        "control: Wilcoxon, Holm": (pairs(stats.wilcoxon, control=0), False),
    }


def table(rng: np.random.Generator, n: int, k: int, tied: bool) -> np.ndarray:
    """Scores of algorithms that do not differ."""
    scores = rng.normal(size=(n, k)) + 3 * rng.normal(size=(n, 1))
    return np.round(scores / STEP) if tied else scores


def rates(n: int, k: int, tied: bool, options) -> dict[str, dict[str, float]]:
    """The share of tables that each test rejects, and its standard error."""
    rng = np.random.default_rng([options.seed, n, k, tied])
    made = [table(rng, n, k, tied) for _ in range(options.tables)]
    found = {}
    for name, (test, draws) in tests(options.draws).items():
        few = draws and tied  # Their null is another for each table, and is made anew.
        given = made[: max(options.tables // 5, 1)] if few else made
        rate = np.mean([test(scores) <= ALPHA for scores in given])
        error = math.sqrt(ALPHA * (1 - ALPHA) / len(given))
        found[name] = {"rate": float(rate), "error": error, "tables": len(given)}
    return found


def ties(tied: bool) -> str:
    """A word for it."""
    return "ties" if tied else "no ties"


def shown(found: dict[str, float]) -> str:
    """A rate in per cent; one that is too large is marked."""
    mark = "!" if found["rate"] > ALPHA + 3 * found["error"] else ""
    return f"{100 * found['rate']:.1f}{mark}"


def main() -> None:
    """Measures all and writes the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--tables", type=int, default=1000, help="drawn for each n, k, with and without"
    )
    add("--draws", type=int, default=199, help="permutations of a table")
    add("--seed", type=int, default=0)
    add("--out", type=pathlib.Path, default=measured.RESULTS)
    options = parser.parse_args()
    results, text = {}, ""
    for tied in (False, True):
        columns = {}
        for k in ALGORITHMS:
            for n in SETS:
                columns[n, k] = rates(n, k, tied, options)
                print(f"{ties(tied)}, n={n}, k={k} done", flush=True)
        head = [f"{ties(tied)}; n, k:", *(f"{n}, {k}" for n, k in columns)]
        rows = [
            [name, *(shown(column[name]) for column in columns.values())]
            for name in tests(options.draws)
        ]
        text += measured.markdown(head, rows) + "\n"
        results[ties(tied)] = {f"n={n}, k={k}": c for (n, k), c in columns.items()}
    errors = {
        one["tables"]: one["error"] for one in columns[SETS[0], ALGORITHMS[0]].values()
    }
    told = " and ".join(
        f"{100 * error:.1f} for {tables} tables" for tables, error in errors.items()
    )
    text += (
        "Rejections at 0.05 in per cent, of n data sets and k algorithms; ! is more than "
        f"three standard errors above 5. A standard error is {told}.\n"
    )
    measured.write("calibration", results, text, ratios={}, out=options.out)


if __name__ == "__main__":
    main()
