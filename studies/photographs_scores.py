"""Read the scores of the study of photographs: chosen rates, seeds, sets and blocks of sets.

All functions read docs/results/all.csv and docs/results/photographs/rates.json, which has the
validation accuracies of the tuning seed for each finished run of `studies.photographs`.
"""

import json
import pathlib
from typing import NamedTuple

import numpy as np
import pandas as pd

from studies import all_results, photographs

FOLDER = pathlib.Path(__file__).parents[1] / "docs/results/photographs"
MEAN, ALL = "mean", "all"  # Instead of the name of a set, in claims.
# Sets of each block, by study. A block counts as one set.
BLOCKS = {
    photographs.PHOTOGRAPHS: {
        "photographs": ("val",),
        "stimuli": ("cue-conflict", "edge", "silhouette"),
    },
    photographs.HELD_OUT: {
        "photographs": ("photo",),
        "art": ("art_painting",),
        "drawings": ("cartoon", "sketch"),
    },
}
Scores = dict[str, np.ndarray]  # By method: scores of seeds, in their order.


class Choice(NamedTuple):
    """The learning rate that validation of the tuning seed chose.

    rate: the lower of tied rates; NaN if the seed diverged at each rate. is_tied: the accuracies
    are equal. accuracies: in the order of photographs.RATES; NaN where the seed diverged.
    """

    rate: float
    is_tied: bool
    accuracies: tuple[float, ...]


def choose(accuracies: tuple[float, ...]) -> Choice:
    """Return the choice among photographs.RATES by validation accuracies, in their order."""
    if np.isnan(accuracies).all():
        return Choice(float("nan"), is_tied=False, accuracies=accuracies)
    best = np.nanmax(accuracies)
    is_best = [accuracy == best for accuracy in accuracies]
    rate = photographs.RATES[is_best.index(True)]  # Rates are in ascending order.
    return Choice(rate, is_tied=sum(is_best) > 1, accuracies=accuracies)


def choices(study: str) -> dict[tuple[str, str], Choice]:
    """Return the choice of each finished run of a study, by method and held-out style."""
    runs = json.loads((FOLDER / "rates.json").read_text()).get(study, {})
    by_cell = {}
    for cell in photographs.cells([*photographs.METHODS]):
        by_rate = runs.get(cell.name.rpartition("/")[2])
        if cell.study == study and by_rate is not None:
            values = [by_rate.get(f"{rate:g}") for rate in photographs.RATES]
            by_cell[cell.method, cell.style] = choose(
                tuple(float("nan") if value is None else value for value in values)
            )
    return by_cell


def unfinished_cells() -> list[photographs.Cell]:
    """Return the runs without results, in the order in which they are trained."""
    finished = {study: choices(study) for study in BLOCKS}
    return [
        cell
        for cell in photographs.cells([*photographs.METHODS])
        if (cell.method, cell.style) not in finished[cell.study]
    ]


def rows_at(study: str, metric: str, rate: float | None) -> pd.DataFrame:
    """Return the rows of a study at one rate; None: at each method's chosen rate.

    For held-out styles, a method has a chosen rate for each style.
    """
    rows = all_results.rows_of(study, metric)
    if rate is not None:
        return rows[rows["rate"] == rate]
    chosen = {key: choice.rate for key, choice in choices(study).items()}
    is_held_out = study == photographs.HELD_OUT
    keys = zip(rows["method"], rows["dataset"] if is_held_out else [""] * len(rows))
    expected = [chosen.get(key, np.nan) for key in keys]
    return rows[rows["rate"] == expected]


def scores_of(rows: pd.DataFrame, name: str) -> Scores:
    """Return the scores on a set, or their mean over sets if `name` is MEAN or ALL, by method.

    Methods without a score of each seed, on each set for a mean, are left out. Methods are in the
    order of photographs.METHODS.
    """
    sets = sorted({*rows["dataset"]}) if name in (MEAN, ALL) else [name]
    table = rows.pivot_table(index="method", columns=["dataset", "run"], values="score")
    columns = pd.MultiIndex.from_product([sets, photographs.SEEDS])
    complete = table.reindex(columns=columns).dropna()
    return {
        method: complete.loc[method].to_numpy().reshape(len(sets), -1).mean(axis=0)
        for method in photographs.METHODS
        if method in complete.index
    }


def block_means(rows: pd.DataFrame, study: str) -> pd.DataFrame:
    """Return the mean scores over the sets of each block, as rows whose set is the block.

    Methods and seeds that lack a set of a block have no row of the block.
    """
    table = rows.pivot_table(index=["method", "run"], columns="dataset", values="score")
    frames = []
    for block, sets in BLOCKS[study].items():
        scores = table.reindex(columns=[*sets]).dropna().mean(axis=1)
        frames.append(scores.rename("score").reset_index().assign(dataset=block))
    return pd.concat(frames, ignore_index=True)


def missing_scores() -> list[str]:
    """Return a text for each rate at which seeds of a finished run have no scores: they diverged."""
    texts = []
    for study in BLOCKS:
        rows = all_results.rows_of(study, "accuracy")
        for method, style in choices(study):
            is_of_cell = rows["method"] == method
            if style:
                is_of_cell &= rows["dataset"] == style
            for rate in photographs.RATES:
                scored = {*rows[is_of_cell & (rows["rate"] == rate)]["run"]}
                lacking = [seed for seed in photographs.SEEDS if seed not in scored]
                if lacking:
                    seeds = ", ".join(map(str, lacking))
                    place = f"{study}, {style} held out" if style else study
                    texts.append(f"{method} ({place}) at rate {rate:g}: seed {seeds}")
    return texts
