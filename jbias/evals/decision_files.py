"""Files of decisions: those of all seeds on one set, or of one network under all conditions."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from etils import epath

from jbias.measures import decisions
from jbias.runs import checksums
from jbias.runtime import files

# Name of a set's column "condition" in files where "condition" is the probe's.
_SET_CONDITION = "set_condition"
# Beside the decisions of a network: the names of the set's images, a list.
NAMES = "images.json"


def write(
    path: epath.PathLike, by_seed: Mapping[int, decisions.Decisions]
) -> list[int]:
    """Write the decisions of all seeds on one set as a Parquet file and return its checksum.

    The file has the columns seed, image (from 0), prediction and the columns of the decisions.
    by_seed: decisions by seed. The checksum is a list of integers; see checksums.checksum.
    """
    frames = [
        _frame(decided, seed=seed, image=np.arange(len(decided.prediction)))
        for seed, decided in by_seed.items()
    ]
    return _write(path, pd.concat(frames))


def _frame(decided: decisions.Decisions, **first_columns: Any) -> pd.DataFrame:
    """Return decisions as a table with one row per image.

    Its columns are `first_columns` (by name, an array or a constant), "prediction" and the columns
    of the decisions.
    """
    return pd.DataFrame(
        {**first_columns, "prediction": decided.prediction, **decided.columns}
    )


def _write(path: epath.PathLike, frame: pd.DataFrame) -> list[int]:
    """Write a table as Parquet, creating folders, and return its checksum; see `write`."""
    path = epath.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = frame.to_parquet(index=False)
    files.write(path, content)
    return checksums.checksum(content)


def read(path: epath.PathLike) -> dict[int, decisions.Decisions]:
    """Return the decisions in a file that `write` wrote, by seed in ascending order.

    ValueError if the file lacks the column "seed" or "prediction".
    """
    by_seed = _read(path, "seed", ignored=["image"])
    return {int(seed): by_seed[seed] for seed in sorted(by_seed)}


def _read(
    path: epath.PathLike, key: str, ignored: Sequence[str] = ()
) -> dict[Any, decisions.Decisions]:
    """Return decisions by the values of the column `key`, in the order of the file.

    Columns other than `key` and "prediction" are the columns of the decisions; "set_condition" is
    called "condition" there. ignored: names of columns to leave out. ValueError without the
    column `key` or "prediction".
    """
    with epath.Path(path).open("rb") as file:
        frame = pd.read_parquet(file)
    lacking = {key, "prediction"} - set(frame.columns)
    if lacking:
        raise ValueError(f"{path}: decisions must have the column {min(lacking)!r}")
    names = frame.columns.difference(["prediction", key, *ignored])
    by_value = {}
    for value, rows in frame.groupby(key, sort=False, observed=True):
        columns = {name: rows[name].to_numpy() for name in names}
        if _SET_CONDITION in columns:
            columns["condition"] = columns.pop(_SET_CONDITION)
        by_value[value] = decisions.Decisions(rows["prediction"].to_numpy(), columns)
    return by_value


def write_conditions(path: epath.PathLike, by_condition: decisions.ByName) -> None:
    """Write one network's decisions under all conditions of a probe as one Parquet file.

    The probe's condition is the column "condition"; a column of the set that is called
    "condition" is written as "set_condition".
    """
    frames = [_frame(decided) for decided in by_condition.values()]
    frame = pd.concat(frames, ignore_index=True)
    frame = frame.rename(columns={"condition": _SET_CONDITION})
    codes = np.repeat(np.arange(len(frames)), [len(rows) for rows in frames])
    condition = pd.Categorical.from_codes(codes, list(by_condition))
    _write(path, frame.assign(condition=condition))


def read_conditions(path: epath.PathLike) -> dict[str, decisions.Decisions]:
    """Return decisions by condition, in the file's order, from a file of `write_conditions`.

    ValueError if the file lacks the column "condition" or "prediction".
    """
    by_condition = _read(path, "condition")
    return {str(name): decided for name, decided in by_condition.items()}
