"""BiasBed's tables recomputed from its runs, and the differences from the printed tables.

Source: Kalischek et al., CVPR 2023, https://arxiv.org/abs/2211.13190: Tables 1 to 5 and
the runs of appendices C.1 (last 30 epochs) and C.2 (best validation).
"""

import dataclasses
import pathlib

import numpy as np
import pandas as pd

from jbias import stats

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"
PUBLISHED = EXAMPLES / "published"
KEYS = ["algorithm", "dataset"]
TRAINED = "ImageNet1k"  # Most were trained on it; the paper's tests keep it.
CAE, PADAIN = "DeepAugERM-CAE", "pAdaIN"
LAST = "published/biasbed_last30"
# A run and a print are each rounded to 0.1: a mean of runs may miss a print by 0.05 + 0.05.
# A deviation moves by up to 0.05 sqrt(n / (n-1)) with its runs, 0.053 for ten.
MEAN_OFF, STD_OFF = 0.1, 0.103
PRINTED_F = {"all": "7.46", "strict": "4.98"}
PRINTED_P = {"all": "0.000002", "strict": "0.00045"}
LEFT_OUT = (2, 5)  # Runs of pAdaIN that the printed rows do not include.


def scores(name: str) -> pd.DataFrame:
    """Return a table of the folder examples/."""
    return pd.read_csv(EXAMPLES / f"{name}.csv")


def printed(table: int) -> pd.DataFrame:
    """Return Table 2 or 3 as printed: algorithm, dataset, mean, std."""
    if table == 3:
        return scores("published/biasbed_table3").rename(columns={"score": "mean"})
    means = scores("biasbed_table2").rename(columns={"score": "mean"})
    return means.merge(scores("published/biasbed_table2_std"), on=KEYS)


def selected(runs: pd.DataFrame) -> pd.DataFrame:
    """Return mean and deviation (n - 1) over runs, as in Table 2."""
    return _in_order(runs.groupby(KEYS)["score"].agg(["mean", "std"]), runs)


def pooled(last: pd.DataFrame) -> pd.DataFrame:
    """Return mean and deviation over runs and epochs together, as in Table 3.

    std^2 = (R - 1) / R between^2 + mean(within^2): R runs of 30 epochs each.
    """
    groups = last.assign(square=last["std"] ** 2).groupby(KEYS)
    between = groups["mean"].var(ddof=0)
    table = pd.DataFrame(
        {
            "mean": groups["mean"].mean(),
            "std": np.sqrt(between + groups["square"].mean()),
        }
    )
    return _in_order(table, last)


def recomputed(table: int, *, without: tuple[int, ...] = ()) -> pd.DataFrame:
    """Return Table 2 or 3 from its runs; `without` are runs of pAdaIN to leave out."""
    runs = scores("biasbed_runs" if table == 2 else LAST)
    runs = runs[(runs["algorithm"] != PADAIN) | ~runs["run"].isin(without)]
    return selected(runs) if table == 2 else pooled(runs)


def differences(table: int, *, without: tuple[int, ...] = ()) -> pd.DataFrame:
    """Return recomputed minus printed cells, in the order of print.

    Column `beyond` is true where rounding cannot explain the difference. `without` are
    runs of pAdaIN to leave out.
    """
    both = printed(table).merge(
        recomputed(table, without=without), on=KEYS, suffixes=("_printed", "")
    )
    both["mean_off"] = both["mean"] - both["mean_printed"]
    both["std_off"] = both["std"] - both["std_printed"]
    both["beyond"] = (both["mean_off"].abs() > MEAN_OFF + 1e-9) | (
        both["std_off"].abs() > STD_OFF + 1e-9
    )
    return both


def implied_run(table: int) -> pd.DataFrame:
    """Return the tenth run of DeepAugERM-CAE that the means of Table 2 or 3 imply.

    The tenth run is ten times the printed mean minus the sum of the nine listed runs. Column
    `std` is the deviation of the ten. For Table 3 the deviation within the tenth run is
    taken as the root mean square of the deviations within the nine others.
    """
    name, value = ("biasbed_runs", "score") if table == 2 else (LAST, "mean")
    runs = scores(name)
    by_dataset = dict(list(runs[runs["algorithm"] == CAE].groupby("dataset")))
    rows = []
    for row in printed(table)[lambda t: t["algorithm"] == CAE].itertuples():
        listed = by_dataset[row.dataset]
        tenth = 10 * row.mean - listed[value].sum()
        std = np.std([*listed[value], tenth], ddof=1 if table == 2 else 0)
        if table == 3:
            std = np.sqrt(std**2 + (listed["std"] ** 2).mean())
        rows.append((row.dataset, len(listed), tenth, std, row.std))
    return pd.DataFrame(
        rows, columns=["dataset", "listed", "tenth", "std", "std_printed"]
    )


def table1() -> pd.DataFrame:
    """Return Table 1 with recomputed differences and the values of Table 2."""
    table = scores("published/biasbed_table1")
    table["recomputed"] = (table["best_validation"] - table["best_epoch_oracle"]).round(
        1
    )
    both = table.merge(printed(2)[[*KEYS, "mean"]], on=KEYS)
    return both.rename(columns={"mean": "table2"})


def settings() -> dict[str, tuple[str, ...]]:
    """Return the data sets of each setting of the tests.

    Setting "strict" has the data sets that no algorithm was trained on, and ImageNet1k, as
    in the paper.
    """
    trained = set(scores("published/trained_on")["dataset"])
    every = tuple(dict.fromkeys(scores("biasbed_table2")["dataset"]))
    unseen = tuple(d for d in every if d not in trained)
    return {
        "all": every,
        "strict": tuple(d for d in every if d in unseen or d == TRAINED),
        f"all without {TRAINED}": tuple(d for d in every if d != TRAINED),
        f"strict without {TRAINED}": unseen,
    }


def inputs() -> dict[str, pd.DataFrame]:
    """Return tables of scores that the paper's tests may have used, by description."""
    frames = {
        "Table 2 as printed": scores("biasbed_table2"),
        "means of the runs of C.2": recomputed(2),
        "the same, pAdaIN without runs 2 and 5": recomputed(2, without=LEFT_OUT),
        "the same, pAdaIN without run 4": recomputed(2, without=(4,)),
        "Table 3 as printed": scores("published/biasbed_table3"),
        "means of the runs of C.1": recomputed(3),
        "the paper's configuration": scores("biasbed_paper_configuration"),
    }
    return {
        name: frame.rename(columns={"mean": "score"})[[*KEYS, "score"]]
        for name, frame in frames.items()
    }


def matrix(frame: pd.DataFrame, datasets: tuple[str, ...]) -> pd.DataFrame:
    """Return scores as data sets by algorithms, both in the order of print."""
    algorithms = list(dict.fromkeys(scores("biasbed_table2")["algorithm"]))
    return frame.pivot(index="dataset", columns="algorithm", values="score").loc[
        list(datasets), algorithms
    ]


@dataclasses.dataclass(frozen=True)
class ImanDavenport:
    """Iman and Davenport's test of a table of scores over some data sets."""

    f: float
    f_untied: float  # Without correction for ties.
    p: float  # F(k-1, (k-1)(N-1)).
    p_conover: float  # With the degrees of freedom of the package pingouin.
    df: tuple[float, float]
    df_conover: tuple[float, float]


def iman_davenport(frame: pd.DataFrame, datasets: tuple[str, ...]) -> ImanDavenport:
    """Return the test of equal ranks of all algorithms over the data sets."""
    table = matrix(frame, datasets)
    plain = stats.friedman(table, larger_is_better=True)
    conover = stats.friedman(table, larger_is_better=True, df="conover")
    untied = stats.friedman(table, larger_is_better=True, ties=False)
    return ImanDavenport(
        f=plain.statistic,
        f_untied=untied.statistic,
        p=plain.pvalue,
        p_conover=conover.pvalue,
        df=plain.df,
        df_conover=conover.df,
    )


def ties() -> list[str]:
    """Return texts that name the ties of Table 2 with nine runs of DeepAugERM-CAE."""
    table = printed(2).set_index(KEYS)["mean"]
    nine = recomputed(2).set_index(KEYS)["mean"]
    table.loc[CAE] = nine.loc[CAE].to_numpy()
    texts = []
    for dataset, rows in table.reset_index().groupby("dataset", sort=False):
        for score, tied in rows.groupby("mean"):
            if len(tied) > 1:
                algorithms = " and ".join(tied["algorithm"])
                texts.append(f"{algorithms} on {dataset} ({score:g})")
    return texts


def pairs(setting: str) -> pd.DataFrame:
    """Return printed and exact p of Nemenyi's test: Table 4 (all) or 5 (strict).

    Column `capped` is true where the printed p is 0.9, the largest of the printed table.
    """
    table = matrix(scores("biasbed_paper_configuration"), settings()[setting])
    result = stats.nemenyi(table, larger_is_better=True)
    exact = pd.DataFrame(result.pvalues, table.columns, table.columns)
    frame = scores("published/biasbed_nemenyi")
    frame = frame[frame["datasets"] == setting].drop(columns="datasets")
    frame["exact"] = [
        exact.loc[a, b] for a, b in zip(frame["algorithm_a"], frame["algorithm_b"])
    ]
    frame["capped"] = frame["p"] == 0.9
    return frame.reset_index(drop=True)


def critical_difference(setting: str, alpha: float = 0.05) -> float:
    """Return the critical difference of mean ranks in Nemenyi's test."""
    table = matrix(scores("biasbed_paper_configuration"), settings()[setting])
    result = stats.nemenyi(table, larger_is_better=True)
    return result.critical_difference(alpha)


def duplicates(name: str) -> list[tuple[str, int, int]]:
    """Return pairs of runs with equal scores on all data sets: (algorithm, run, run).

    name: of a table in examples/.
    """
    runs = scores(name)
    value = "score" if "score" in runs else "mean"
    pairs = []
    for algorithm, rows in runs.groupby("algorithm", sort=False):
        wide = rows.pivot(index="run", columns="dataset", values=value)
        pairs += [
            (algorithm, a, b)
            for i, a in enumerate(wide.index)
            for b in wide.index[i + 1 :]
            if (wide.loc[a] == wide.loc[b]).all()
        ]
    return pairs


def _in_order(table: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    order = runs[KEYS].drop_duplicates()
    return order.merge(table.reset_index(), on=KEYS)
