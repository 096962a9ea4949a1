"""The study's numbers beside those that its authors printed, cell by cell.

Sources: tables 1 and 2 of Gavrikov and Keuper, CVPR 2024, https://arxiv.org/abs/2404.01509,
and the correlations on their poster, https://github.com/paulgavrikov/biases_vs_generalization,
assets/poster.pdf, where 0.00 stands for what is not significant.
"""

import pathlib
from collections.abc import Mapping

import pandas as pd

from jbias.report import bias_models, csv_rows
from jbias.stats import correlation

TABLES, POSTER = "biases_printed.csv", "biases_poster.csv"
ACCURACIES = (
    *("imagenet", "imagenet_real", "imagenet_v2", "imagenet_a", "imagenet_c"),
    *("imagenet_cbar", "imagenet_r", "imagenet_sketch", "stylized16", "pgd"),
)
BIASES = (
    *("shape", "low_freq", "high_freq", "cb_bw_raw", "cb_cf_raw", "cb_pns_raw"),
    *("cb_bw", "cb_cf", "cb_pns"),
)
HALF = 0.005 + 1e-9  # Of the last printed digit.
LEVEL = 0.05  # At which the poster's zeros are those of p without adjustment.


def cells(models: bias_models.Models, folder: pathlib.Path) -> pd.DataFrame:
    """Compares tables 1 and 2: table, model, column, ours, printed, agrees.

    Cells agree where ours is within half of the last printed digit.
    """
    printed = _read(folder / TABLES, ("model", *ACCURACIES, *BIASES))
    rows = []
    for place, fields in printed:
        model = fields["model"]
        if model not in models.frame.index:
            raise ValueError(f"{place}: must be a model of the study, got {model!r}")
        for table, columns in ((1, ACCURACIES), (2, BIASES)):
            for column in columns:
                value = bias_models.number(fields[column], column, place)
                rows.append(
                    (table, model, column, models.frame.loc[model, column], value)
                )
    head = ["table", "model", "column", "ours", "printed"]
    frame = pd.DataFrame(rows, columns=head)
    return frame.assign(agrees=(frame["ours"] - frame["printed"]).abs() <= HALF)


def correlations(
    families: Mapping[str, correlation.MatrixResult],
    among: correlation.MatrixResult,
    folder: pathlib.Path,
) -> pd.DataFrame:
    """Compares figures 2 and 12: models, x, y, ours, p, printed, agrees.

    families: biases with averages by the choice of models; among: of biases. A printed 0.00
    agrees where p without adjustment is above 0.05, any other number where ours is within
    half of the last digit and p is not above it.
    """
    rows = []
    for place, fields in _read(folder / POSTER, ("models", "x", "y", "rho")):
        models, x, y = fields["models"], fields["x"], fields["y"]
        one = among if y in among.statistic else families.get(models)
        if one is None or x not in one.statistic.index or y not in one.statistic:
            raise ValueError(
                f"{place}: must be a pair of the study, got {models, x, y}"
            )
        ours, p = one.statistic.loc[x, y], one.pvalue.loc[x, y]
        printed = bias_models.number(fields["rho"], "rho", place)
        if printed == 0:
            agrees = p > LEVEL
        else:
            agrees = p <= LEVEL and abs(ours - printed) <= HALF
        rows.append((models, x, y, ours, p, printed, bool(agrees)))
    head = ["models", "x", "y", "ours", "p", "printed", "agrees"]
    return pd.DataFrame(rows, columns=head)


def _read(path: pathlib.Path, columns):
    head, lines = csv_rows.read(str(path))
    missing = [name for name in columns if name not in head]
    if missing:
        raise ValueError(f"{path}:1: must name the column {missing[0]!r}")
    return lines
