"""Recompute the correlations of 48 ImageNet models, and the effect of anomalies.

Source: Gavrikov and Keuper, CVPR 2024, https://arxiv.org/abs/2404.01509, and the results
that they published at https://github.com/paulgavrikov/biases_vs_generalization.
"""

import functools
import pathlib

import numpy as np
import pandas as pd

from jbias import stats
from jbias.papers import biases_published
from jbias.report import network_frame
from jbias.stats import correlation

FOLDER = pathlib.Path(__file__).parents[1] / "examples" / "published"

BIASES = network_frame.BIASES
MEMBERS = dict(network_frame.MEMBERS)
BENCHMARKS = tuple(name for names in MEMBERS.values() for name in names)
CUTS = (0.1, 0.2, 0.3, 0.4, 0.5)
AT = network_frame.AT
CHOICES = ("all", AT, f"not {AT}")  # Names of groups in the poster's file.
PERMUTATIONS = 99_999


@functools.cache
def models() -> pd.DataFrame:
    """Return a row per model: training, epsilon, biases, benchmarks in %, averages."""
    return study().frame


@functools.cache
def study() -> network_frame.ModelTable:
    """Return the authors' results."""
    return biases_published.read(str(FOLDER / "biases_benchmark.csv"))


@functools.cache
def printed_cells() -> pd.DataFrame:
    """Return the cells of Tables 1 and 2, printed and recomputed."""
    return biases_published.cells(study(), FOLDER)


@functools.cache
def printed_pairs() -> pd.DataFrame:
    """Return the printed correlations and the recomputed ones."""
    by_choice = dict(zip(CHOICES, families().values(), strict=True))
    among = correlation.pairwise_matrix(models(), BIASES, permutations=PERMUTATIONS)
    return biases_published.correlations(by_choice, among, FOLDER)


def model_groups() -> dict[str, pd.DataFrame]:
    """Return the rows of all models, of adversarially trained ones, and of the others."""
    frame = models()
    is_adversarial = frame["training"] == AT
    return {"all": frame, "AT": frame[is_adversarial], "nonAT": frame[~is_adversarial]}


@functools.cache
def families() -> dict[str, correlation.MatrixResult]:
    """Return the correlations of 6 biases with 4 averages, for each group of models."""
    return {
        name: correlation.pairwise_matrix(
            frame, BIASES, tuple(MEMBERS), permutations=PERMUTATIONS
        )
        for name, frame in model_groups().items()
    }


@functools.cache
def partials() -> pd.DataFrame:
    """Return partial correlations over all models, given the training category.

    Columns: bias, average, rho, p.
    """
    frame = models()
    rows = []
    for bias in BIASES:
        for name in MEMBERS:
            correlated = stats.partial(
                frame[bias],
                frame[name],
                groups=frame["training"],
                permutations=9_999,
            )
            rows.append((bias, name, correlated.statistic, correlated.pvalue))
    return pd.DataFrame(rows, columns=["bias", "average", "rho", "p"])


def averages() -> pd.DataFrame:
    """Return each average as the unweighted mean of its benchmarks."""
    frame = models()
    return pd.DataFrame({k: frame[list(m)].mean(axis=1) for k, m in MEMBERS.items()})


def spectral(cuts: tuple[float, ...] = CUTS) -> pd.DataFrame:
    """Return low- and high-frequency bias: mean accuracy ratios over cut-offs."""
    frame = models()
    return pd.DataFrame(
        {
            f"{name}_freq": frame[[f"{name}_{cut}" for cut in cuts]].mean(axis=1)
            for name in ("low", "high")
        }
    )


def by_training() -> pd.DataFrame:
    """Return the number of models and the mean averages per training category."""
    groups = models().groupby("training", sort=False)
    table = groups[list(MEMBERS)].mean()
    table.insert(0, "models", groups.size())
    return table


def agreement() -> pd.Series:
    """Return each benchmark's mean rho with the other benchmarks.

    Leaves out stylized16 and pgd.
    """
    names = [name for name in BENCHMARKS if name not in ("stylized16", "pgd")]
    table = spearman(models()[names])
    return (table.sum() - 1) / (len(names) - 1)


def spearman(frame: pd.DataFrame) -> pd.DataFrame:
    """Return Spearman's rho of each pair of columns."""
    return frame.rank().corr()


def granularity() -> dict[str, float]:
    """Return the largest distance of accuracies from whole numbers of images.

    The numbers of images are those that the accuracies imply, not those of the paper: 326
    for ReaL, 800 for stylized16 and 50,048 for PGD. The largest possible distance is 0.5.
    """
    sizes = {"imagenet_real": 326, "stylized16": 800, "pgd": 50_048}
    frame = models()
    images = {name: frame[name] * size / 100 for name, size in sizes.items()}
    return {k: float((v - v.round()).abs().max()) for k, v in images.items()}


def correlations_without(average: str, member: str) -> pd.Series:
    """Return rho of every bias with an average that leaves benchmark `member` out."""
    frame = models()
    kept_members = [name for name in MEMBERS[average] if name != member]
    reduced = frame[list(BIASES)].assign(average=frame[kept_members].mean(axis=1))
    return spearman(reduced)["average"].drop("average")


def rho_of_rounded() -> float:
    """Return rho of high_freq and ID, with all values rounded to two printed decimals."""
    frame = models()
    table = frame[["high_freq", *BENCHMARKS]].round(2)
    table["ID"] = table[list(MEMBERS["ID"])].mean(axis=1)
    return float(spearman(table[["high_freq", "ID"]]).iloc[0, 1])


def count_significant(alpha: float = 0.05) -> dict[str, dict[str, int]]:
    """Return the number of significant pairs per group of models and adjustment."""
    counts = {}
    for name, family in families().items():
        tables = {"pvalue": family.pvalue, "holm": family.holm, "bh": family.bh}
        counts[name] = {
            adjustment: int(np.sum(pvalues.to_numpy() <= alpha))
            for adjustment, pvalues in tables.items()
        }
    return counts
