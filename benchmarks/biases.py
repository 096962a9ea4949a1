"""The correlations of 48 ImageNet models, recomputed, and what the anomalies move.

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
CHOICES = ("all", AT, f"not {AT}")  # As the poster's file has them.
PERMUTATIONS = 99_999


@functools.cache
def models() -> pd.DataFrame:
    """One row a model: training, epsilon, biases, benchmarks in %, their averages."""
    return study().frame


@functools.cache
def study() -> network_frame.Models:
    """The authors' results."""
    return biases_published.read(str(FOLDER / "biases_benchmark.csv"))


@functools.cache
def printed_cells() -> pd.DataFrame:
    """Tables 1 and 2 as printed and as computed here."""
    return biases_published.cells(study(), FOLDER)


@functools.cache
def printed_pairs() -> pd.DataFrame:
    """The printed correlations and those computed here."""
    named = dict(zip(CHOICES, families().values(), strict=True))
    among = correlation.pairwise_matrix(models(), BIASES, permutations=PERMUTATIONS)
    return biases_published.correlations(named, among, FOLDER)


def chosen() -> dict[str, pd.DataFrame]:
    """Gives all models, the adversarially trained, and the others."""
    frame = models()
    trained = frame["training"] == AT
    return {"all": frame, "AT": frame[trained], "nonAT": frame[~trained]}


@functools.cache
def families() -> dict[str, correlation.MatrixResult]:
    """Correlates 6 biases with 4 averages in each choice of models."""
    return {
        name: correlation.pairwise_matrix(
            frame, BIASES, tuple(MEMBERS), permutations=PERMUTATIONS
        )
        for name, frame in chosen().items()
    }


@functools.cache
def partials() -> pd.DataFrame:
    """Gives rho of all models with training categories controlled for: bias, average."""
    frame = models()
    rows = []
    for bias in BIASES:
        for name in MEMBERS:
            found = stats.partial(
                frame[bias],
                frame[name],
                groups=frame["training"],
                permutations=9_999,
            )
            rows.append((bias, name, found.statistic, found.pvalue))
    return pd.DataFrame(rows, columns=["bias", "average", "rho", "p"])


def averages() -> pd.DataFrame:
    """Gives the unweighted means of each average's benchmarks."""
    frame = models()
    return pd.DataFrame({k: frame[list(m)].mean(axis=1) for k, m in MEMBERS.items()})


def spectral(cuts: tuple[float, ...] = CUTS) -> pd.DataFrame:
    """Gives the low- and high-frequency bias: mean accuracy ratios over cut-offs."""
    frame = models()
    return pd.DataFrame(
        {
            f"{name}_freq": frame[[f"{name}_{cut}" for cut in cuts]].mean(axis=1)
            for name in ("low", "high")
        }
    )


def by_training() -> pd.DataFrame:
    """Gives the number of models and mean averages of each training category."""
    groups = models().groupby("training", sort=False)
    table = groups[list(MEMBERS)].mean()
    table.insert(0, "models", groups.size())
    return table


def agreement() -> pd.Series:
    """Gives each benchmark's mean rho with the others, without stylized16 and pgd."""
    names = [name for name in BENCHMARKS if name not in ("stylized16", "pgd")]
    table = rho(models()[names])
    return (table.sum() - 1) / (len(names) - 1)


def rho(frame: pd.DataFrame) -> pd.DataFrame:
    """Gives Spearman's rho of columns."""
    return frame.rank().corr()


def granularity() -> dict[str, float]:
    """Gives how far accuracies lie from whole images, where a wrong number was meant.

    In images: ReaL of 326, stylized16 of 800, PGD of 50,048. Half is the most.
    """
    sizes = {"imagenet_real": 326, "stylized16": 800, "pgd": 50_048}
    frame = models()
    images = {name: frame[name] * size / 100 for name, size in sizes.items()}
    return {k: float((v - v.round()).abs().max()) for k, v in images.items()}


def without(average: str, member: str) -> pd.Series:
    """Gives rho of every bias with an average that leaves a benchmark out."""
    frame = models()
    rest = [name for name in MEMBERS[average] if name != member]
    left = frame[list(BIASES)].assign(rest=frame[rest].mean(axis=1))
    return rho(left)["rest"].drop("rest")


def rounded() -> float:
    """Gives rho of high_freq and ID from two decimals, as the tables print them."""
    frame = models()
    table = frame[["high_freq", *BENCHMARKS]].round(2)
    table["ID"] = table[list(MEMBERS["ID"])].mean(axis=1)
    return float(rho(table[["high_freq", "ID"]]).iloc[0, 1])


def significant(alpha: float = 0.05) -> dict[str, dict[str, int]]:
    """Counts the pairs of each choice of models that pass, by adjustment."""
    return {
        name: {
            how: int(np.sum(getattr(family, how).to_numpy() <= alpha))
            for how in ("pvalue", "holm", "bh")
        }
        for name, family in families().items()
    }
