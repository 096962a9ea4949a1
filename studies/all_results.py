"""Read docs/results/all.csv and format tables for the pages of results."""

import pathlib

import numpy as np
import pandas as pd

from jbias.report import workdirs

ROOT = pathlib.Path(__file__).parents[1]
# Names of methods as in papers.
NAMES = workdirs.NAMES | {
    "erm (gaussian_noise)": "Gaussian noise",
    "erm (stylize+small)": "Stylized ERM",
}


# Studies of three seeds: studies of many seeds in turn leave these out.
OF_THREE_SEEDS = ("photographs", "held-out-styles")


def read_of_more_seeds() -> pd.DataFrame:
    """Return docs/results/all.csv without the studies of three seeds."""
    rows = pd.read_csv(ROOT / "docs/results/all.csv")
    return rows[~rows["study"].isin(OF_THREE_SEEDS)]


def rows_of(study: str, metric: str) -> pd.DataFrame:
    """Return the rows of a study and metric; column `set` is renamed to `dataset`."""
    rows = pd.read_csv(ROOT / "docs/results/all.csv")
    rows = rows[(rows["study"] == study) & (rows["metric"] == metric)]
    return rows.rename(columns={"set": "dataset"}).assign(run=rows["seed"])


def methods(rows: pd.DataFrame) -> pd.Series:
    """Return the name of each row's method: "algorithm (variant)"."""
    variant = " (" + rows["variant"].astype(object) + ")"
    return rows["algorithm"].astype(object) + variant.where(rows["variant"] != "", "")


def by_method(study: str, metric: str, **where: object) -> dict[str, np.ndarray]:
    """Return scores in %, in the order of seeds, by the name of the method.

    where: values of further columns, such as dataset="test".
    """
    rows = rows_of(study, metric)
    for column, value in where.items():
        rows = rows[rows[column] == value]
    return {
        NAMES.get(name, name): 100 * group.sort_values("seed")["score"].to_numpy()
        for name, group in rows.groupby("method")
    }


def p_value(p: float) -> str:
    """Return a p-value as text: one digit below 0.001, else three decimals."""
    return f"{p:.1g}" if p < 0.001 else f"{p:.3f}"


def spread(values: np.ndarray) -> str:
    """Return "median [lowest, highest]", rounded to integers."""
    return f"{np.median(values):.0f} [{min(values):.0f}, {max(values):.0f}]"


def table(head: tuple[str, ...], lines: list[tuple[str, ...]]) -> str:
    """Return a Markdown table; all columns but the first are aligned to the right."""
    rule = "| --- |" + " --: |" * (len(head) - 1)
    head_row, *rows = (f"| {' | '.join(cells)} |" for cells in (head, *lines))
    return "\n".join((head_row, rule, *rows)) + "\n"
