"""Networks trained under chosen shifts, by recipe, attribute and level.

A cell is what a point of a curve stands for: seeds of one recipe trained at one level of a
shift of one attribute. A recipe is a model, an algorithm, data and settings; settings are
told where recipes would be alike without them.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from jbias.data import shifts
from jbias.report import gather, selection_rules, shift_recipes, workdirs
from jbias.runs import results
from jbias.runs import selection as selection_lib

ID, OOD = "id", "ood"
ONLY = shift_recipes.ONLY
CONTROL = 0.5  # The share at which nothing is shifted.
SELECTIONS = ("best_validation", "last_n", "oracle")
Recipe = shift_recipes.Recipe


@dataclasses.dataclass(frozen=True, eq=False)
class Cell:
    """Seeds of one recipe, trained at one level of a shift of one attribute."""

    recipe: Recipe
    attribute: str
    level: str
    images: int  # Trained on; 0 where that is not known.
    options: Mapping[str, str]  # Those of the shift that are not of the level.
    settings: Mapping[str, str]
    seeds: tuple[int, ...]
    accuracy: Mapping[str, Float[np.ndarray, "s"]]  # By test set, from 0 to 1.
    sizes: Mapping[str, int]  # Images of each; of unlike ones the fewest.
    groups: Mapping[tuple[str, str], Float[np.ndarray, "s"]]  # By set and metric.
    runs: tuple[workdirs.Run, ...]
    rows: pd.DataFrame  # What was selected.

    @property
    def single(self) -> str:
        """The one value that was trained on, "" of other shifts."""
        return self.level.removeprefix(ONLY) if self.level.startswith(ONLY) else ""

    @property
    def kind(self) -> str:
        return "" if self.single else shifts.LEVELS[self.level].kind

    @property
    def share(self) -> float:
        return math.nan if self.single else shifts.LEVELS[self.level].share

    @property
    def candidate(self) -> tuple[Recipe, str]:
        return self.recipe, self.attribute

    @property
    def others(self) -> dict[str, Float[np.ndarray, "s"]]:
        """Accuracies by value that was not trained on."""
        ending = f"{OOD}-"
        return {
            name.removeprefix(ending): values
            for name, values in self.accuracy.items()
            if name.startswith(ending)
        }

    @property
    def inside(self) -> Float[np.ndarray, "s"]:
        return self.accuracy[ID]

    @property
    def outside(self) -> Float[np.ndarray, "s"]:
        """Accuracy out of distribution; of several sets the plain mean."""
        if OOD in self.accuracy:
            return self.accuracy[OOD]
        return np.mean(list(self.others.values()), axis=0)

    @property
    def tested(self) -> tuple[int, int]:
        """Images in and out of distribution."""
        outside = [n for name, n in self.sizes.items() if name.startswith(f"{OOD}-")]
        return self.sizes[ID], self.sizes.get(OOD, sum(outside))


class Study(NamedTuple):
    """All that was read."""

    cells: tuple[Cell, ...]
    rule: str  # Of selection, in words.
    oracle: bool
    frame: pd.DataFrame  # Records of the runs of the cells.
    notes: tuple[str, ...]


def read(
    patterns: Sequence[str], *, selection: str = SELECTIONS[0], last: int | None = None
) -> Study:
    """Reads workdirs of runs (paths or globs) and selects an evaluation of each seed.

    Raises ValueError where no run was trained under a shift, where a level is not known,
    and as `results.read` and the rules of selection do.
    """
    full, empty = results.find_workdirs(patterns)
    if not full:
        raise ValueError(
            f"--runs: must match runs with evaluations, got none: {' '.join(patterns)}"
        )
    frame = results.read(full)
    runs = workdirs.load(frame)
    shifted = {run.workdir: run for run in runs if shift_recipes.shift_of(run)}
    if not shifted:
        raise ValueError(
            f"--runs: must hold runs trained under a shift (config.train.shift), got "
            f"{len(runs)} without; train one, such as with shift=C6,attribute=colour after "
            "the colon of --config"
        )
    notes = list(_notes(empty, runs, shifted))
    frame = frame[frame["workdir"].isin(list(shifted))].reset_index(drop=True)
    selected, rules = _selected(frame, shifted, selection, last)
    for row in selection_lib.diverged(frame).to_dict("records"):
        notes.append(
            f"Seed {row['seed']} of {row['run']} diverged at step {row['step']} and is "
            "left out."
        )
    cells, told = _cells(selected, shift_recipes.of(frame, shifted))
    if not cells:
        raise ValueError(f"--runs: {told[0]}")
    oracle = selection == "oracle"
    return Study(cells, rules.words(selection), oracle, frame, (*notes, *told))


def _selected(
    frame: pd.DataFrame, shifted, selection: str, last: int | None
) -> tuple[pd.DataFrame, selection_rules.Rules]:
    """Gives what counts of each seed, with its step, and the rules by which."""
    chosen = gather.evaluated(frame)
    asked = chosen[chosen["metric"] == "accuracy"]
    rules = selection_rules.Rules(
        last=last or selection_rules.default_last(asked),
        epoch=math.nan,
        best_on="",
        metric="accuracy",
        larger_is_better=True,
        datasets=tuple(asked["dataset"].unique()),
        labels={name: run.label for name, run in shifted.items()},
    )
    selected = rules.select(chosen, selection)
    selected = selected[(selected["condition"] == "") & selected["value"].notna()]
    return _with_steps(selected, chosen), rules


def _notes(empty, runs, shifted) -> Iterator[str]:
    plain = [run.workdir for run in runs if run.workdir not in shifted]
    if plain:
        yield (
            f"Not trained under a shift, by config.json, and left out: {few(plain)}."
        )
    for path in empty:
        yield f"{path} matches the pattern and holds no evaluation; it is not in here."
    for run in shifted.values():
        if not run.finished:
            yield f"{run.workdir} has not ended (it has no file `done`)."


def few(names: Sequence[str], most: int = 4) -> str:
    """Names the first of many."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def _cells(
    selected: pd.DataFrame, recipes: shift_recipes.Recipes
) -> tuple[tuple[Cell, ...], list[str]]:
    """Gives the cells, and what to know of seeds that are in none."""
    cells, notes = [], []
    by_workdir = dict(iter(selected.groupby("workdir")))
    for (recipe, attribute, level), those in recipes.items():
        rows = [by_workdir[f.run.workdir] for f in those if f.run.workdir in by_workdir]
        rows = pd.concat(rows) if rows else selected[:0]
        parts, lost = _measured(rows)
        where = few([fact.run.workdir for fact in those])
        if lost:
            notes.append(
                f"{where}: seeds without accuracy on {ID} or on {OOD} are left out: "
                f"{', '.join(map(str, lost))}."
            )
        if not parts:
            notes.append(f"{where}: must have accuracy on {ID} and {OOD}, got neither.")
            continue
        cells.append(
            Cell(
                recipe=recipe,
                attribute=attribute,
                level=level,
                images=those[0].images,
                options=those[0].options,
                settings=those[0].settings,
                runs=tuple(fact.run for fact in those),
                rows=rows,
                **parts,
            )
        )
    return tuple(cells), notes


def _with_steps(selected: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
    """Says at which step each selected number was measured, by its epoch."""
    key = ["workdir", "seed", "epoch"]
    steps = chosen[[*key, "step"]].drop_duplicates(key)
    return selected.merge(steps.astype({"workdir": "str"}), on=key, how="left")


def _measured(rows: pd.DataFrame) -> tuple[dict, list[int]]:
    """Gives what a cell knows of its seeds, and the seeds that lack a test set."""
    table = rows.pivot_table(
        index="seed", columns=["dataset", "metric"], values="value", aggfunc="first"
    )
    names = [
        name
        for name, metric in table.columns
        if metric == "accuracy" and (name in (ID, OOD) or name.startswith(f"{OOD}-"))
    ]
    if ID not in names or len(names) < 2:
        return {}, []
    whole = table[[(name, "accuracy") for name in names]].notna().all(axis=1)
    kept, lost = table[whole], list(table.index[~whole])
    counted = rows[rows["metric"] == "accuracy"].groupby("dataset")["n"].min()
    if not len(kept) or counted[names].isna().any():
        return {}, lost
    groups = {
        (name, metric): kept[name, metric].to_numpy(np.float64)
        for name, metric in kept.columns
        if name in names and _is_of_groups(metric)
    }
    return {
        "seeds": tuple(int(seed) for seed in kept.index),
        "accuracy": {n: kept[n, "accuracy"].to_numpy(np.float64) for n in names},
        "sizes": {name: int(counted[name]) for name in names},
        "groups": groups,
    }, lost


def _is_of_groups(metric: str) -> bool:
    return metric.startswith(("worst_group", "group_balanced", "class_balanced"))
