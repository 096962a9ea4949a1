"""Tests of 50 algorithms on 50 data sets: seconds, beside other packages.

    python -m benchmarks.ranks [--algorithms=50] [--sets=50] [--permutations=10000]
        [--rounds=5] [--peers=PYTHON] [--out=DIR]

Nemenyi's test beside scikit-posthocs, which runs in the Python that --peers names (this
one, if it has it) in a process of its own; Friedman's test by permutation beside
scipy.stats.permutation_test, given ranks and a vectorised statistic. All take turns, and a
ratio is one of medians. The p-values are compared too: a quick wrong answer is none.
Writes benchmarks/results/ranks.json and .md.
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

from benchmarks import measured
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
UP = {"larger_is_better": True}
OURS, POSTHOCS = "Nemenyi", "Nemenyi, scikit-posthocs"
DRAWN, SCIPY = "Friedman, permutations", "Friedman, permutations, scipy"
OTHERS = ("max-T, permutations", "Wilcoxon, Holm")


class Posthocs:
    """scikit-posthocs in a process that waits for its turn."""

    def __init__(self, python: str, scores: np.ndarray):
        self.process = subprocess.Popen(
            [python, "-c", PEER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.version = self._answer()
        print(json.dumps(scores.tolist()), file=self.process.stdin, flush=True)
        self.found = None

    def nemenyi(self) -> None:
        """Computes all p-values."""
        print(file=self.process.stdin, flush=True)
        self.found = np.array(self._answer())

    def _answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(
                f"benchmarks.ranks: --peers: its Python ended with {self.process.wait()}"
            )
        return json.loads(line)


@contextlib.contextmanager
def posthocs(python: str | None, scores: np.ndarray) -> Iterator[Posthocs | None]:
    """The peer; None where it is not there and nobody asked for it."""
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
    """p of Friedman's test as scipy permutes; in batches that fit the memory."""

    def statistic(*columns, axis):
        return sum(np.sum(column, axis=axis) ** 2 for column in columns)

    found = scipy.stats.permutation_test(
        scipy.stats.rankdata(scores, axis=1).T,
        statistic,
        permutation_type="samples",
        vectorized=True,
        n_resamples=permutations,
        batch=500,
        alternative="greater",
        rng=0,
    )
    return float(found.pvalue)


def main() -> None:
    """Measures, compares the answers and writes the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--algorithms", type=int, default=50)
    add("--sets", type=int, default=50)
    add("--permutations", type=int, default=10_000)
    add("--rounds", type=int, default=5)
    add("--peers", help="the Python that has scikit-posthocs, if not this one")
    add("--out", type=pathlib.Path, default=measured.RESULTS)
    options = parser.parse_args()
    n, k, draws = options.sets, options.algorithms, options.permutations
    scores = np.random.default_rng(0).normal(size=(n, k)) + np.linspace(0, 0.3, k)
    drawn = {**UP, "permutations": draws}
    found = {}
    with posthocs(options.peers, scores) as peer:
        ways = {
            OURS: lambda: found.update(nemenyi=stats.nemenyi(scores, **UP).pvalues),
            DRAWN: lambda: found.update(
                drawn=stats.friedman_permutation(scores, **drawn)
            ),
            SCIPY: lambda: found.update(scipy=by_scipy(scores, draws)),
            OTHERS[0]: lambda: stats.max_t(scores, **drawn),
            OTHERS[1]: lambda: stats.wilcoxon(scores, **UP),
        }
        if peer:
            ways[POSTHOCS] = peer.nemenyi
        seconds = measured.in_turns(ways, options.rounds, warm=1)
    median = {name: statistics.median(each) for name, each in seconds.items()}
    ours, theirs = found["drawn"], found["scipy"]
    error = math.sqrt(2) * ours.standard_error
    apart = {"permutation p": [ours.pvalue, theirs]}
    if abs(ours.pvalue - theirs) > 5 * error + 1 / draws:
        raise SystemExit(f"benchmarks.ranks: p differ: {ours.pvalue} and {theirs}")
    ratios = {f"{DRAWN} / scipy": median[SCIPY] / median[DRAWN]}
    if peer:
        ratios[f"{OURS} / scikit-posthocs"] = median[POSTHOCS] / median[OURS]
        apart["Nemenyi, largest difference"] = float(
            np.abs(found["nemenyi"] - peer.found).max()
        )
        if apart["Nemenyi, largest difference"] > 1e-8:
            raise SystemExit(f"benchmarks.ranks: Nemenyi's p differ: {apart}")
    base = {OURS: POSTHOCS, DRAWN: SCIPY}
    rows = [
        (
            name,
            f"{took:.3g}",
            f"{median[base[name]] / took:.1f}" if base.get(name) in median else "",
        )
        for name, took in sorted(median.items())
    ]
    text = measured.markdown(
        (f"{k} algorithms, {n} data sets", "seconds", "times as fast"), rows
    )
    version = f" scikit-posthocs {peer.version}," if peer else ""
    text += (
        f"\n{draws:,} permutations; p by permutation {ours.pvalue:.4f}, by scipy's "
        f"{theirs:.4f};{version} scipy {scipy.__version__}.\n"
    )
    measured.write(
        "ranks",
        {"seconds": seconds, "answers": apart},
        text,
        ratios=ratios,
        out=options.out,
    )


if __name__ == "__main__":
    main()
