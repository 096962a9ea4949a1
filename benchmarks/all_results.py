"""Reads the table of all results for the pages of results, and writes their tables."""

import pathlib

import numpy as np
import pandas as pd

from jbias.report import workdirs

ROOT = pathlib.Path(__file__).parents[1]
# Methods of the small benchmark as papers call them.
NAMES = workdirs.NAMES | {
    "erm (gaussian_noise)": "Gaussian noise",
    "erm (stylize+small)": "Stylized ERM",
}


def rows_of(study: str, metric: str) -> pd.DataFrame:
    """The rows of a study, the column `set` as `dataset`."""
    rows = pd.read_csv(ROOT / "docs/results/all.csv")
    rows = rows[(rows["study"] == study) & (rows["metric"] == metric)]
    return rows.rename(columns={"set": "dataset"}).assign(run=rows["seed"])


def methods(rows: pd.DataFrame) -> pd.Series:
    """What the table calls the method of each row: algorithm (variant)."""
    variant = " (" + rows["variant"].astype(object) + ")"
    return rows["algorithm"].astype(object) + variant.where(rows["variant"] != "", "")


def by_method(study: str, metric: str, **where: object) -> dict[str, np.ndarray]:
    """Scores in %, in the order of seeds, by the name of the method.

    where: values of further columns, such as dataset="test".
    """
    rows = rows_of(study, metric)
    for column, value in where.items():
        rows = rows[rows[column] == value]
    return {
        NAMES.get(name, name): 100 * of.sort_values("seed")["score"].to_numpy()
        for name, of in rows.groupby("method")
    }


def p_value(p: float) -> str:
    """A p-value as the pages have it."""
    return f"{p:.1g}" if p < 0.001 else f"{p:.3f}"


def spread(values: np.ndarray) -> str:
    """The median [lowest, highest]."""
    return f"{np.median(values):.0f} [{min(values):.0f}, {max(values):.0f}]"


def table(head: tuple[str, ...], lines: list[tuple[str, ...]]) -> str:
    """Markdown: the first column to the left, the others to the right."""
    rule = "| --- |" + " --: |" * (len(head) - 1)
    first, *rest = (f"| {' | '.join(cells)} |" for cells in (head, *lines))
    return "\n".join((first, rule, *rest)) + "\n"
