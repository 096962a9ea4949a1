"""Time rank tests of 50 algorithms on 50 data sets, compared with other packages.

    python -m benchmarks.ranks [--algorithms=50] [--sets=50] [--permutations=10000]
        [--rounds=5] [--peers=PYTHON] [--out=DIR]

Nemenyi's test is compared with scikit-posthocs, which runs in a process of its own, in the
Python of --peers (default: this one, if scikit-posthocs is installed). Friedman's
permutation test is compared with scipy.stats.permutation_test, given ranks and a vectorised
statistic. All take turns, and ratios are of medians. The p-values are compared as well, and
the benchmark fails if they differ. Writes benchmarks/results/ranks.json and .md.

Takes less than a minute on two cores.
"""

import argparse
import contextlib
import importlib.util
import json
import math
import pathlib
import statistics
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import scipy.stats

from benchmarks import result_files, timing
from jbias import stats

PEER = """
import json, sys
import numpy as np
import scikit_posthocs
print(json.dumps(scikit_posthocs.__version__), flush=True)
scores = np.array(json.loads(sys.stdin.readline()))
for line in sys.stdin:
    p = scikit_posthocs.posthoc_nemenyi_friedman(scores)
    print(json.dumps(p.to_numpy().tolist()), flush=True)
"""
NEMENYI, POSTHOCS = "Nemenyi", "Nemenyi, scikit-posthocs"
FRIEDMAN, SCIPY = "Friedman, permutations", "Friedman, permutations, scipy"
MAX_T, WILCOXON = "max-T, permutations", "Wilcoxon, Holm"


class Posthocs:
    """A process with scikit-posthocs.

    pvalues: result of the last call of `nemenyi`.
    """

    def __init__(self, python: str, scores: np.ndarray):
        self.process = subprocess.Popen(
            [python, "-c", PEER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.version = self._read_reply()
        print(json.dumps(scores.tolist()), file=self.process.stdin, flush=True)
        self.pvalues: np.ndarray | None = None

    def nemenyi(self) -> None:
        """Compute the p-values of all pairs."""
        print(file=self.process.stdin, flush=True)
        self.pvalues = np.array(self._read_reply())

    def _read_reply(self):
        """Return the value of the next line of the process."""
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(
                f"benchmarks.ranks: --peers: its Python ended with {self.process.wait()}"
            )
        return json.loads(line)


@contextlib.contextmanager
def posthocs(python: str | None, scores: np.ndarray) -> Iterator[Posthocs | None]:
    """Yield the peer; None if scikit-posthocs is not installed and --peers not given."""
    if python is None and importlib.util.find_spec("scikit_posthocs") is None:
        yield None
        return
    peer = Posthocs(python or sys.executable, scores)
    try:
        yield peer
    finally:
        peer.process.stdin.close()
        peer.process.wait()


def by_scipy(scores: np.ndarray, permutations: int) -> float:
    """Return p of Friedman's test from scipy's permutations, in batches to fit memory."""

    def statistic(*columns, axis):
        return sum(np.sum(column, axis=axis) ** 2 for column in columns)

    result = scipy.stats.permutation_test(
        scipy.stats.rankdata(scores, axis=1).T,
        statistic,
        permutation_type="samples",
        vectorized=True,
        n_resamples=permutations,
        batch=500,
        alternative="greater",
        rng=0,
    )
    return float(result.pvalue)


def main() -> None:
    """Measure, compare the p-values and write the results."""
    options = _options()
    n, k, permutations = options.sets, options.algorithms, options.permutations
    scores = np.random.default_rng(0).normal(size=(n, k)) + np.linspace(0, 0.3, k)
    answers = {}

    def run_nemenyi() -> None:
        result = stats.nemenyi(scores, larger_is_better=True)
        answers[NEMENYI] = result.pvalues

    def run_friedman() -> None:
        answers[FRIEDMAN] = stats.friedman_permutation(
            scores, larger_is_better=True, permutations=permutations
        )

    def run_scipy() -> None:
        answers[SCIPY] = by_scipy(scores, permutations)

    def run_max_t() -> None:
        stats.max_t(scores, larger_is_better=True, permutations=permutations)

    def run_wilcoxon() -> None:
        stats.wilcoxon(scores, larger_is_better=True)

    with posthocs(options.peers, scores) as peer:
        variants = {
            NEMENYI: run_nemenyi,
            FRIEDMAN: run_friedman,
            SCIPY: run_scipy,
            MAX_T: run_max_t,
            WILCOXON: run_wilcoxon,
        }
        if peer:
            variants[POSTHOCS] = peer.nemenyi
        seconds = timing.in_turns(variants, options.rounds, warm=1)
    median = {name: statistics.median(turns) for name, turns in seconds.items()}
    ours, theirs = answers[FRIEDMAN], answers[SCIPY]
    error = math.sqrt(2) * ours.standard_error
    written_answers = {"permutation p": [ours.pvalue, theirs]}
    if abs(ours.pvalue - theirs) > 5 * error + 1 / permutations:
        raise SystemExit(f"benchmarks.ranks: p differ: {ours.pvalue} and {theirs}")
    ratios = {f"{FRIEDMAN} / scipy": median[SCIPY] / median[FRIEDMAN]}
    if peer:
        ratios[f"{NEMENYI} / scikit-posthocs"] = median[POSTHOCS] / median[NEMENYI]
        difference = float(np.abs(answers[NEMENYI] - peer.pvalues).max())
        written_answers["Nemenyi, largest difference"] = difference
        if difference > 1e-8:
            raise SystemExit(f"benchmarks.ranks: Nemenyi's p differ by {difference}")
    base = {NEMENYI: POSTHOCS, FRIEDMAN: SCIPY}
    rows = [
        (
            name,
            f"{second:.3g}",
            f"{median[base[name]] / second:.1f}" if base.get(name) in median else "",
        )
        for name, second in sorted(median.items())
    ]
    text = result_files.markdown(
        (f"{k} algorithms, {n} data sets", "seconds", "times as fast"), rows
    )
    version = f" scikit-posthocs {peer.version}," if peer else ""
    text += (
        f"\n{permutations:,} permutations; p by permutation {ours.pvalue:.4f}, by scipy's "
        f"{theirs:.4f};{version} scipy {scipy.__version__}.\n"
    )
    result_files.write(
        "ranks",
        {"seconds": seconds, "answers": written_answers},
        text,
        ratios=ratios,
        out=options.out,
    )


def _options() -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--algorithms",
        type=int,
        default=50,
        help="number of algorithms (default: %(default)s)",
    )
    add(
        "--sets",
        type=int,
        default=50,
        help="number of data sets (default: %(default)s)",
    )
    add(
        "--permutations",
        type=int,
        default=10_000,
        help="permutations of each test (default: %(default)s)",
    )
    add(
        "--rounds",
        type=int,
        default=5,
        help="rounds in which all tests take a turn (default: %(default)s)",
    )
    add(
        "--peers",
        metavar="PYTHON",
        help="Python with scikit-posthocs (default: this one, if installed)",
    )
    add(
        "--out",
        type=pathlib.Path,
        default=result_files.RESULTS,
        metavar="DIR",
        help="folder for the results (default: benchmarks/results)",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
