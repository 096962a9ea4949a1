"""Write ranks.json: results of other packages for the same scores and p-values.

python -m venv v
v/bin/pip install scikit-posthocs==0.17.1 autorank==1.3.0 statsmodels==0.15.0 statds==1.1.7
v/bin/python tests/oracles/ranks.py > tests/oracles/ranks.json
"""

import json
import warnings

import numpy as np
import pandas as pd
import scikit_posthocs
from autorank import _util
from scikit_posthocs import _plotting
from statds import no_parametrics
from statsmodels.stats import multitest

METHODS = {
    "bonferroni": "bonferroni",
    "holm": "holm",
    "hochberg": "simes-hochberg",
    "hommel": "hommel",
    "bh": "fdr_bh",
    "by": "fdr_by",
}


def tests_of(scores):
    """Larger is better; p-values of pairs do not depend on the direction."""
    frame = pd.DataFrame(scores, columns=[f"a{j}" for j in range(scores.shape[1])])
    frame.insert(0, "dataset", [str(i) for i in range(len(scores))])
    quade, aligned = (
        test(frame)[:3]
        for test in (no_parametrics.quade, no_parametrics.friedman_aligned_ranks)
    )
    conover = {
        ours: scikit_posthocs.posthoc_conover_friedman(scores, p_adjust=theirs)
        for ours, theirs in {**METHODS, "none": None}.items()
    }
    wilcoxon = scikit_posthocs.posthoc_wilcoxon(scores.T, method="exact")
    return {
        "scores": scores.tolist(),
        "conover": {name: p.to_numpy().tolist() for name, p in conover.items()},
        "wilcoxon": wilcoxon.to_numpy().tolist(),
        "quade": {"ranks": [*quade[0].values()], "f": quade[1], "p": quade[2]},
        "aligned": {"ranks": [*aligned[0].values()], "chi2": aligned[1]},
    }


def shaffer(rng, k, n):
    """Return Shaffer's p-values of z-values, from mean ranks."""
    ranks = rng.permuted(np.tile(np.arange(1, k + 1), (n, 1)), axis=1).mean(axis=0)
    table = no_parametrics.shaffer({f"a{j}": r for j, r in enumerate(ranks)}, n)[0]
    p, adjusted = (
        table[name].astype(float).tolist() for name in ("p-value", "Adjusted p-value")
    )
    return {"k": k, "p": p, "adjusted": adjusted}


def cliques(rng, k):
    """Return the groups of two or more that scikit-posthocs would connect by a bar."""
    near = rng.random((k, k)) < 0.5
    near = (near & near.T) | np.eye(k, dtype=bool)
    maximal = _plotting._find_maximal_cliques(pd.DataFrame(near.astype(int)))
    groups = sorted(
        sorted(int(i) for i in group) for group in maximal if len(group) > 1
    )
    return {"near": near.astype(int).tolist(), "groups": groups}


def main():
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    cases = []
    for n, k, ties in [(5, 3, 0), (7, 8, 0), (10, 8, 1), (12, 5, 1), (30, 10, 0)]:
        scores = rng.normal(size=(n, k)) * 3 + np.linspace(0, 2, k)
        cases.append(tests_of(np.round(scores) if ties else scores))
    adjusted = []
    for m in (1, 2, 5, 10, 28):
        p = np.round(rng.random(m) ** 3, 3)
        results = {
            name: multitest.multipletests(p, method=theirs)[1].tolist()
            for name, theirs in METHODS.items()
        }
        adjusted.append({"p": p.tolist(), "adjusted": results})
    distances = [
        {"alpha": a, "k": k, "n": n, "cd": float(_util._critical_distance(a, k, n))}
        for a, k, n in [(0.05, 3, 10), (0.05, 8, 10), (0.05, 8, 7), (0.01, 20, 30)]
    ]
    written = {
        "cases": cases,
        "adjusted": adjusted,
        "shaffer": [shaffer(rng, k, n) for k, n in [(3, 8), (4, 9), (6, 12), (8, 10)]],
        "critical_distances": distances,
        "cliques": [cliques(rng, k) for k in (2, 5, 8, 12)],
    }
    print(json.dumps(written))


main()
