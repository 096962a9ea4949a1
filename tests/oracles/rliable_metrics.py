"""Write rliable_metrics.json: aggregates by rliable 1.2.0, scipy 1.17.1.

python -m venv v && v/bin/pip install rliable==1.2.0
v/bin/python tests/oracles/rliable_metrics.py > tests/oracles/rliable_metrics.json
"""

import json

import numpy as np
from rliable import metrics


def main():
    rng = np.random.default_rng(0)
    cases = []
    for n, k, r, digits in [(5, 3, 4, 6), (10, 4, 9, 1), (3, 2, 7, 1)]:
        # Scores (data sets, algorithms, runs), already normalised; some lie above 1.
        scores = (rng.random((n, k, r)) * 1.2 + np.linspace(0, 0.2, k)[:, None]).round(
            digits
        )
        runs_by_algorithm = [scores[:, j].T for j in range(k)]
        cases.append(
            {
                "scores": scores.tolist(),
                "mean": [metrics.aggregate_mean(x) for x in runs_by_algorithm],
                "iqm": [metrics.aggregate_iqm(x) for x in runs_by_algorithm],
                "optimality_gap": [
                    metrics.aggregate_optimality_gap(x) for x in runs_by_algorithm
                ],
                "probability_of_improvement": [
                    [
                        metrics.probability_of_improvement(x, y)
                        for y in runs_by_algorithm
                    ]
                    for x in runs_by_algorithm
                ],
            }
        )
    print(json.dumps({"cases": cases}))


main()
