"""Write statsmodels_mixed.json: mixed models by statsmodels 0.15.0, REML.

python -m venv v && v/bin/pip install statsmodels==0.15.0
v/bin/python tests/oracles/statsmodels_mixed.py > tests/oracles/statsmodels_mixed.json

score ~ algorithm + (1|dataset) + (1|dataset:algorithm) + (1|algorithm:run)
"""

import json
import sys
import warnings

import numpy as np
import pandas as pd
import statsmodels.formula.api as smf


def table(rng, n, k, r):
    scores = rng.normal(0, 3, size=(n, 1, 1)) + np.linspace(0, 1, k)[:, None]
    scores = scores + rng.normal(0, 1.0, size=(n, k, 1))
    scores = scores + rng.normal(0, 0.7, size=(1, k, r))
    return (scores + rng.normal(0, 0.5, size=(n, k, r))).round(3)


def main():
    rng = np.random.default_rng(0)
    cases = []
    for n, k, r in [(6, 3, 4), (8, 2, 5)]:
        scores = table(rng, n, k, r)
        cells = [
            (f"d{i}", f"a{j}", f"a{j}r{u}", scores[i, j, u])
            for i, j, u in np.ndindex(scores.shape)
        ]
        frame = pd.DataFrame(cells, columns=["dataset", "algorithm", "run", "score"])
        frame["one"] = 1
        frame["cell"] = frame["dataset"] + frame["algorithm"]
        model = smf.mixedlm(
            "score ~ C(algorithm)",
            frame,
            groups="one",
            re_formula="0",
            vc_formula={
                "dataset": "0 + C(dataset)",
                "cell": "0 + C(cell)",
                "run": "0 + C(run)",
            },
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit = model.fit(reml=True, method=["lbfgs", "powell"])
        names = model.exog_vc.names
        cases.append(
            dict(
                scores=scores.tolist(),
                effects=fit.fe_params.tolist(),
                errors=fit.bse_fe.tolist(),
                variances=dict(zip(names, map(float, fit.vcomp), strict=True)),
                residual=float(fit.scale),
            )
        )
        print(fit.summary(), file=sys.stderr)
    print(json.dumps({"cases": cases}))


main()
