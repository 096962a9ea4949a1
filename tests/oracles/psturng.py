"""Write psturng.json: the table of the studentised range that BiasBed's numbers came from.

python -m venv v && v/bin/pip install statsmodels==0.15.0
v/bin/python tests/oracles/psturng.py > tests/oracles/psturng.json

statsmodels' `psturng` interpolates between tabled quantiles and stops at 0.001 and 0.9;
scikit-posthocs took its p-values for Nemenyi's test from there until it turned to scipy.
"""

import json
import math

import numpy as np
from statsmodels.stats import libqsturng


def main(k=8):
    tables = {}
    for name, n in [("all", 10), ("strict", 7)]:
        pvalues = {}
        for steps in range(
            1, 7 * n + 1
        ):  # Without ties mean ranks differ by steps of 1/n.
            q = math.sqrt(2) * steps / n / math.sqrt(k * (k + 1) / (6 * n))
            pvalues[steps] = float(np.squeeze(libqsturng.psturng(q, k, np.inf)))
        tables[name] = pvalues
    print(json.dumps(tables, indent=1))


main()
