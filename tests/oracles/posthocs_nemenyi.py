"""Write posthocs_nemenyi.json: Nemenyi's p-values by scikit-posthocs 0.17.1, scipy 1.17.1.

python -m venv v && v/bin/pip install scikit-posthocs==0.17.1
v/bin/python tests/oracles/posthocs_nemenyi.py > tests/oracles/posthocs_nemenyi.json
"""

import json

import numpy as np
import scikit_posthocs


def main():
    rng = np.random.default_rng(0)
    cases = []
    for n, k, ties in [(2, 2, 0), (5, 3, 1), (7, 8, 0), (12, 5, 1), (40, 10, 1)]:
        scores = rng.normal(size=(n, k)) + np.linspace(0, 1, k)
        scores = scores.round(1 if ties else 6)
        # Ranks ascend there; the p-values do not depend on the direction.
        pvalues = scikit_posthocs.posthoc_nemenyi_friedman(scores).to_numpy()
        cases.append({"scores": scores.tolist(), "pvalues": pvalues.tolist()})
    print(json.dumps({"cases": cases}))


main()
