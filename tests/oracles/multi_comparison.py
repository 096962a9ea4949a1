"""Write multi_comparison.json: the authors' Multi-Comparison Matrix of two tables of examples/.

python3.11 -m venv v && v/bin/pip install multi-comp-matrix==0.0.4  # Installs scipy 1.11.4.
v/bin/python tests/oracles/multi_comparison.py tests/oracles/multi_comparison.json
"""

import json
import pathlib
import sys
import tempfile
import warnings

import pandas as pd
from multi_comp_matrix import MCM

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
TABLES = ("biasbed_table2.csv", "biasbed_paper_configuration.csv")


def compare(table):
    rows = pd.read_csv(EXAMPLES / table)
    scores = rows.pivot(index="dataset", columns="algorithm", values="score")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # On normal approximations where scores are equal.
        analysis = MCM.get_analysis(
            scores, output_dir=f"{folder}/", save_as_json=False, used_statistic="Score"
        )
    names = analysis["ordered-comparate-names"]
    keys = ("mean", "win", "tie", "loss", "pvalue", "is-significant")
    pairs = [
        [a, b, *(analysis[f"{a}-vs-{b}"][key] for key in keys)]
        for i, a in enumerate(names)
        for b in names[i + 1 :]
    ]
    return {
        "order": [str(name) for name in names],
        "means": [float(mean) for mean in analysis["ordered-stats"]],
        "pairs": [
            [*map(str, pair[:2]), float(pair[2]), *pair[3:6], float(pair[6]), pair[7]]
            for pair in pairs
        ],
    }


def main():
    answers = {table: compare(table) for table in TABLES}
    with open(sys.argv[1], "w") as file:
        json.dump(answers, file)
        file.write("\n")


main()
