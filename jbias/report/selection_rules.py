"""Rules of selection, with what each of them needs and what it is called."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from jbias.runs import results, selection

SHARE_OF_LAST = 0.3  # BiasBed averages the last 30 of 100 epochs.


@dataclasses.dataclass(frozen=True)
class Rules:
    """Rules of selection with what each of them needs."""

    last: int
    epoch: float  # NaN where seeds have none in common.
    best_on: str
    metric: str
    larger_is_better: bool
    datasets: Sequence[str]
    labels: Mapping[str, str]  # By workdir.

    def select(self, frame: pd.DataFrame, rule: str) -> pd.DataFrame:
        """Gives one row a number of each seed."""
        if rule == "best_validation":
            return self._labelled(selection.best_validation(frame))
        if rule == "last_n":
            return self._labelled(selection.last_n(self._often(frame), self.last))
        if rule == "at_epoch":
            if math.isnan(self.epoch):
                raise ValueError(
                    "at_epoch: every seed needs an evaluation at one epoch, got no epoch "
                    "that all seeds have"
                )
            return self._labelled(selection.at_epoch(frame, self.epoch))
        if rule == "best_on":
            return self._labelled(selection.best_on(frame, self.best_on))
        better = {"metric": self.metric, "larger_is_better": self.larger_is_better}
        return self._labelled(selection.oracle(frame, **better))

    def name(self, rule: str) -> str:
        """What a table calls it."""
        return {
            "best_validation": "best validation",
            "last_n": f"last {self.last}",
            "at_epoch": f"epoch {self.epoch:g}",
            "best_on": f"best on {self.best_on}",
        }.get(rule, rule)

    def words(self, rule: str) -> str:
        """What a caption says."""
        return {
            "best_validation": "the evaluation with the best validation accuracy of each "
            "seed (the first, if several)",
            "last_n": f"the mean of the last {self.last} "
            f"evaluation{'s' if self.last > 1 else ''} of each seed",
            "at_epoch": f"the evaluation after epoch {self.epoch:g} of each seed",
            "best_on": "the evaluation with the best accuracy of each seed on "
            f"{self.best_on}, which is no test set then",
            "oracle": "the best evaluation of each seed on each data set, chosen by looking "
            "at that data set: an oracle, not a result that could be had",
        }[rule]

    def _often(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Leaves out what is not asked for and was evaluated less than `last` times."""
        cells, _ = pd.factorize(results.number_rows(frame, selection.CELL))
        asked = (frame["metric"] == self.metric) & frame["dataset"].isin(self.datasets)
        return frame[asked | (np.bincount(cells)[cells] >= self.last)]

    def _labelled(self, rows: pd.DataFrame) -> pd.DataFrame:
        return rows.assign(label=rows["workdir"].map(self.labels))


def common_epoch(rows: pd.DataFrame) -> float:
    """Gives the last epoch that all seeds were evaluated at, NaN if there is none."""
    digits = round(-math.log10(selection.EPOCH_ATOL))
    rows = rows[[*selection.UNIT, "epoch"]].assign(epoch=rows["epoch"].round(digits))
    rows = rows[
        ~pd.Series(results.number_rows(rows, list(rows)), rows.index).duplicated()
    ]
    seeds = rows["epoch"].value_counts()
    common = seeds.index[seeds == len(set(results.number_rows(rows, selection.UNIT)))]
    return float(common.max()) if len(common) else math.nan


def default_last(rows: pd.DataFrame) -> int:
    """Gives 30 % of the evaluations of what was evaluated least, at least one."""
    cells = pd.Series(results.number_rows(rows, selection.CELL))
    fewest = min(cells.value_counts(), default=0)
    return max(1, round(SHARE_OF_LAST * fewest))
