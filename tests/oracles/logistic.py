"""Multinomial logistic regression by scikit-learn, stored in logistic.json.

python -m venv env && env/bin/pip install scikit-learn==1.9.1
env/bin/python tests/oracles/logistic.py
"""

import json
import pathlib

import numpy as np
import sklearn
from sklearn import linear_model

n, d, k = 60, 5, 3
rng = np.random.default_rng(0)
y = rng.integers(0, k, n)
x = rng.standard_normal((n, d)).round(3) + np.eye(k, d)[y]
answers = []
for strength in (0.1, 0.01, 0.001):
    # Its penalty is on the sum of losses: C = 1 / (n strength).
    model = linear_model.LogisticRegression(
        C=1 / (n * strength), tol=1e-12, max_iter=100_000
    )
    model.fit(x, y)
    answers.append(
        dict(
            strength=strength,
            matrix=model.coef_.T.tolist(),
            bias=model.intercept_.tolist(),
        )
    )
stored = dict(version=sklearn.__version__, x=x.tolist(), y=y.tolist(), answers=answers)
path = pathlib.Path(__file__).with_suffix(".json")
path.write_text(json.dumps(stored) + "\n")
