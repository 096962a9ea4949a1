"""Write baycomp_tests.json: Bayesian tests by baycomp 1.0.3, the hierarchical one by Stan.

python -m venv v && v/bin/pip install baycomp==1.0.3 pystan==3.10.0
v/bin/python tests/oracles/baycomp_tests.py tests/oracles/baycomp_tests.json

Needs a C++ compiler and some minutes. baycomp's left is our second algorithm: x is better there.
"""

import json
import os
import sys
import tempfile

import baycomp
import numpy as np


def signed_rank(rng):
    cases = []
    for n, rope, prior in [(10, 0.5, 0.5), (10, 0.0, 0.5), (7, 0.2, 1.0), (15, 1, 0.5)]:
        x = rng.normal(size=n).round(1)
        y = (x + rng.normal(0.4, 1, size=n)).round(1)
        probs = baycomp.SignedRankTest.probs(
            x, y, rope, prior=prior, nsamples=50000, random_state=1
        )
        cases.append(dict(x=x.tolist(), y=y.tolist(), rope=rope, prior=prior))
        cases[-1]["probs"] = [float(p) for p in probs]
    return cases


def correlated(rng):
    cases = []
    for n, runs, rope in [(10, 1, 0.1), (20, 2, 0.0), (50, 5, 0.3)]:
        x = rng.normal(size=n).round(3)
        y = (x + rng.normal(0.2, 0.5, size=n)).round(3)
        probs = baycomp.CorrelatedTTest(x, y, rope, runs).probs()
        # Nadeau and Bengio's 1 / (folds - 1) is rho / (1 - rho) for rho = 1 / folds.
        cases.append(dict(x=x.tolist(), y=y.tolist(), rope=rope, rho=runs / n))
        cases[-1]["probs"] = [float(p) for p in probs]
    return cases


def hierarchical(rng):
    cases = []
    for n, r, rope, spread, noise in [(6, 8, 0.5, 1.0, 1.0), (10, 10, 0.3, 0.2, 0.6)]:
        x = rng.normal(size=(n, r)).round(3)
        effects = 0.4 + spread * rng.normal(size=(n, 1))
        y = (x + effects + noise * rng.normal(size=(n, r))).round(3)
        probs = baycomp.HierarchicalTest(x, y, rope, nsamples=10000).probs()
        cases.append(dict(x=x.tolist(), y=y.tolist(), rope=rope, rho=1 / r))
        cases[-1]["probs"] = [float(p) for p in probs]
    return cases


def main():
    path = os.path.abspath(sys.argv[1])
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # It writes its last sample where it stands.
        answers = dict(
            signed_rank=signed_rank(rng),
            correlated=correlated(rng),
            hierarchical=hierarchical(rng),
        )
    with open(path, "w") as file:
        json.dump(answers, file)


main()
