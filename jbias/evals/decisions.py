"""What a network decided about each image of a set; every metric is a function of it."""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from etils import epath
from jaxtyping import Int, Shaped

from jbias.runs import checksums
from jbias.runtime import files

_SET = "set_condition"  # A set's column "condition" in a file that has the probe's.


@dataclasses.dataclass(frozen=True)
class Decisions:
    """One network on one set.

    columns: what is known of the images: "label", and "texture" where cues conflict,
    class ids in the space of `prediction` (-1 where it has none); and whatever else
    the set tells, such as "attribute", in the set's own numbers. Where a probe asked,
    also float32 "confidence" and "likelihood", the probabilities of the decided class
    and of the right one, and "index", the image's number in its set.
    """

    prediction: Int[np.ndarray, "n"]
    columns: Mapping[str, Shaped[np.ndarray, "n"]]

    def __post_init__(self):
        for name, column in self.columns.items():
            if len(column) != len(self.prediction):
                raise ValueError(
                    f"decisions: column {name} must have {len(self.prediction)} "
                    f"entries, got {len(column)}"
                )


class Number(NamedTuple):
    """A measured value: `count` of `n` where it is a share."""

    metric: str
    value: float | None
    count: int | None  # pyright: ignore[reportIncompatibleMethodOverride]: a field
    n: int
    condition: str = ""


def write(path: epath.PathLike, by_seed: Mapping[int, Decisions]) -> list[int]:
    """Writes the decisions of all seeds on one set as one Parquet file.

    Returns what its content is known by.
    """
    frames = [
        pd.DataFrame(
            {
                "seed": seed,
                "image": np.arange(len(decided.prediction)),
                "prediction": decided.prediction,
                **decided.columns,
            }
        )
        for seed, decided in by_seed.items()
    ]
    return _write(path, pd.concat(frames))


def _write(path: epath.PathLike, frame: pd.DataFrame) -> list[int]:
    path = epath.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = frame.to_parquet(index=False)
    files.write(path, content)
    return checksums.checksum(content)


def read(path: epath.PathLike) -> dict[int, Decisions]:
    """Reads the decisions of all seeds back."""
    with epath.Path(path).open("rb") as file:
        frame = pd.read_parquet(file)
    return {
        int(seed): Decisions(
            rows["prediction"].to_numpy(),
            {
                name: rows[name].to_numpy()
                for name in rows.columns.difference(["seed", "image", "prediction"])
            },
        )
        for seed, rows in frame.groupby("seed")
    }


def write_conditions(path: epath.PathLike, found: Mapping[str, Decisions]) -> None:
    """Writes one network's decisions under all conditions of a probe likewise.

    The probe's condition is the column "condition"; a set's own is "set_condition".
    """
    frames = [
        pd.DataFrame({"prediction": decided.prediction, **decided.columns}).rename(
            columns={"condition": _SET}
        )
        for decided in found.values()
    ]
    told = np.repeat(np.arange(len(frames)), [len(frame) for frame in frames])
    condition = pd.Categorical.from_codes(told, list(found))
    _write(path, pd.concat(frames, ignore_index=True).assign(condition=condition))


def read_conditions(path: epath.PathLike) -> dict[str, Decisions]:
    """Reads the decisions under all conditions back, in the order of the file."""
    with epath.Path(path).open("rb") as file:
        frame = pd.read_parquet(file)
    columns = frame.columns.difference(["prediction", "condition"])
    return {
        str(name): Decisions(
            rows["prediction"].to_numpy(),
            {
                "condition" if key == _SET else key: rows[key].to_numpy()
                for key in columns
            },
        )
        for name, rows in frame.groupby("condition", sort=False, observed=True)
    }
