"""Networks trained under chosen shifts, read from their runs: by recipe, attribute and level.

A cell is what a point of a curve stands for: seeds of one recipe trained at one level of a
shift of one attribute. A recipe is a model, an algorithm, data and settings. Runs are pooled
where nothing but their network seeds differs; recipes that would be called alike are told
apart by the settings in which they differ, such as the number of images.
"""

import dataclasses
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from jbias import config as jc
from jbias.data import shifts
from jbias.report import inputs, tables, workdirs
from jbias.report import options as options_lib
from jbias.runs import selection as selection_lib

ID, OOD = "id", "ood"
ONLY = "only-"  # Levels that train on one value.
_TESTED = re.compile(f"{ID}|{OOD}(-.*)?")  # Sets in and out of distribution.
CONTROL = 0.5  # The share at which nothing is shifted.
# Settings that runs of one recipe need not share: how they ran, and what a cell says.
_NO_RECIPE = ("run", "seeds", "workdir", "label", "valid", "tests")
_OF_CELL = ("level", "attribute", "part")
_MOST, _LONG = 3, 40  # Settings that a name holds, and letters of one.
Seeds = Float[np.ndarray, "s"]


class Recipe(NamedTuple):
    """How networks were trained, but for the shift; words as the page has them."""

    model: str
    algorithm: str
    data: str
    dealt: str = ""  # How images were dealt to parts, where recipes differ in it.
    setting: str = ""  # What else recipes of one name differ in.

    @property
    def told(self) -> str:
        """What a name has in brackets."""
        return ", ".join(filter(None, (self.dealt, self.setting)))

    @property
    def network(self) -> str:
        """The model, and how it was trained where several ways were taken."""
        return f"{self.model} [{self.setting}]" if self.setting else self.model

    @property
    def label(self) -> str:
        ending = f" [{self.told}]" if self.told else ""
        return f"{self.algorithm}, {self.model}, {self.data}{ending}"


@dataclasses.dataclass(frozen=True, eq=False)
class Cell:
    """Seeds of one recipe, trained at one level of a shift of one attribute."""

    recipe: Recipe
    attribute: str
    level: str
    images: int  # Trained on; 0 where that is not known.
    options: Mapping[str, str]  # Those of the shift that are not of the level.
    settings: Mapping[str, str]
    runs: tuple[workdirs.Run, ...]
    seeds: tuple[int, ...] = ()  # Without any, nothing that follows is known.
    accuracy: Mapping[str, Seeds] | None = None  # By test set, from 0 to 1.
    sizes: Mapping[str, int] | None = None  # Images of each; of unlike ones the fewest.
    groups: Mapping[tuple[str, str], Seeds] | None = None  # By set and metric.
    rows: pd.DataFrame | None = None  # What was selected.

    @property
    def single(self) -> str:
        """The one value that was trained on, "" of other shifts."""
        return self.level.removeprefix(ONLY) if self.level.startswith(ONLY) else ""

    @property
    def kind(self) -> str:
        return "" if self.single else shifts.LEVELS[self.level].kind

    @property
    def share(self) -> float:
        return 1.0 if self.single else shifts.LEVELS[self.level].share

    @property
    def others(self) -> dict[str, Seeds]:
        """Accuracies by value that was not trained on."""
        start = f"{OOD}-"
        named = self.accuracy.items()
        return {k.removeprefix(start): x for k, x in named if k.startswith(start)}

    @property
    def inside(self) -> Seeds:
        return self.accuracy[ID]

    @property
    def outside(self) -> Seeds:
        """Accuracy out of distribution; of several sets the plain mean."""
        if OOD in self.accuracy:
            return self.accuracy[OOD]
        return np.mean(list(self.others.values()), axis=0)

    @property
    def tested(self) -> tuple[int, int]:
        """Images in and out of distribution."""
        outside = sum(n for name, n in self.sizes.items() if name.startswith(f"{OOD}-"))
        return self.sizes[ID], self.sizes.get(OOD, outside)


Cells = Sequence[Cell]


class Study(NamedTuple):
    """All that was read."""

    cells: tuple[Cell, ...]
    rule: str  # Of selection, in words.
    oracle: bool
    frame: pd.DataFrame  # Records of the runs of the cells.
    notes: tuple[str, ...]


def read(patterns: Sequence[str], *, selection="best_validation", last=None) -> Study:
    """Reads workdirs of runs (paths or globs) and selects an evaluation of each seed.

    selection, last: a rule of `inputs.Rules`, and how many evaluations last_n averages.

    Raises ValueError where no run was trained under a shift, where a level is not known,
    where runs to be pooled have the same seeds or other images, and as `results.read` and
    the rules of selection do.
    """
    records = workdirs.read(patterns)
    frame, runs, empty = records.pop_frame(), records.runs, records.empty
    shifted = {run.workdir: run for run in runs if _shift_of(run)}
    if not shifted:
        raise ValueError(
            f"--runs: must hold runs trained under a shift (config.train.shift), got "
            f"{len(runs)} without; train one, such as with shift=C6,attribute=colour after "
            "the colon of --config"
        )
    frame = frame[frame["workdir"].isin(list(shifted))].reset_index(drop=True)
    selected, rule = _selected(frame, shifted, selection, last)
    notes, cells, lost = list(_notes(empty, runs, shifted, frame)), [], []
    for cell in _by_cell(frame, shifted):
        names = [run.workdir for run in cell.runs]
        cell, told = _measured(cell, selected[selected["workdir"].isin(names)])
        cells += [cell] if cell.seeds else []
        lost += [f"{tables.few(names)}: {line}" for line in told]
    if not cells:
        raise ValueError(f"--runs: {lost[0]}")
    return Study(tuple(cells), rule, selection == "oracle", frame, (*notes, *lost))


def _notes(empty, runs, shifted, frame: pd.DataFrame) -> Iterator[str]:
    if plain := [run.workdir for run in runs if run.workdir not in shifted]:
        named = tables.few(plain)
        yield f"Not trained under a shift, by config.json, and left out: {named}."
    for path in empty:
        yield f"{path} matches the pattern and holds no evaluation; it is not in here."
    for run in shifted.values():
        if not run.finished:
            yield f"{run.workdir} has not ended (it has no file `done`)."
    for row in selection_lib.diverged(frame).to_dict("records"):
        where = f"{row['run']} diverged at step {row['step']}"
        yield f"Seed {row['seed']} of {where} and is left out."


def _selected(frame, shifted, selection: str, last) -> tuple[pd.DataFrame, str]:
    """Gives what counts of each seed, with its step, and the rule by which."""
    chosen = inputs.evaluated(frame)
    asked = chosen[chosen["metric"] == "accuracy"]
    labels = {name: run.label for name, run in shifted.items()}
    last = last or inputs.default_last(asked)
    wanted = options_lib.Options(last=last, epoch=math.nan)
    rules = inputs.Rules(wanted, asked["dataset"].unique(), labels)
    rows = rules.select(chosen, selection)
    rows = rows[(rows["condition"] == "") & rows["value"].notna()]
    key = ["workdir", "seed", "epoch"]
    steps = chosen[[*key, "step"]].drop_duplicates(key).astype({"workdir": "str"})
    return rows.merge(steps, on=key, how="left"), rules.words(selection)


def _measured(cell: Cell, rows: pd.DataFrame) -> tuple[Cell, list[str]]:
    """Gives the cell with its numbers, and what to know of seeds; without, it has no seeds."""
    by = dict(index="seed", columns=["dataset", "metric"], values="value")
    table = rows.pivot_table(**by, aggfunc="first")
    names = [x for x, y in table.columns if y == "accuracy" and _TESTED.fullmatch(x)]
    both = ID in names and len(names) > 1
    whole = table[[(name, "accuracy") for name in names]].notna().all(axis=1)
    counted = rows[rows["metric"] == "accuracy"].groupby("dataset")["n"].min()[names]
    kept = table[whole] if both and counted.notna().all() else table[:0]
    kept = kept[[name for name in kept if name[0] in names]]
    values = {name: kept[name].to_numpy(np.float64) for name in kept}
    groups = ("worst_group", "group_balanced", "class_balanced")
    told = []
    if both and not whole.all():
        lost = ", ".join(map(str, table.index[~whole]))
        told.append(f"seeds without accuracy on {ID} or on {OOD} are left out: {lost}.")
    if not len(kept):
        return cell, [*told, f"must have accuracy on {ID} and {OOD}, got neither."]
    return dataclasses.replace(
        cell,
        seeds=tuple(map(int, kept.index)),
        accuracy={name: values[name, "accuracy"] for name in names},
        sizes={name: int(counted[name]) for name in names},
        groups={key: one for key, one in values.items() if key[1].startswith(groups)},
        rows=rows,
    ), told


def _shift_of(run: workdirs.Run) -> Mapping[str, Any]:
    """Gives the options of the shift that a run was trained under, {} if none.

    Of several stages, that of the last with one. Raises ValueError for an unknown level.
    """
    stages = run.settings.get("stages") or ()
    trained = [run.settings, *(stage for stage in stages if stage)]
    found = [(one.get("train") or {}).get("shift") for one in trained]
    shift = next((one for one in reversed(found) if one), {})
    level = shift.get("level", "")
    if shift and level not in shifts.LEVELS and not str(level).startswith(ONLY):
        raise ValueError(
            f"{run.workdir}: level of the shift must be one of {', '.join(shifts.LEVELS)} "
            f"or {ONLY}<value>, got {level!r}; restore its config.json"
        )
    return shift


def _by_cell(frame: pd.DataFrame, shifted: Mapping[str, workdirs.Run]) -> list[Cell]:
    """Gives cells without numbers, of runs by their workdirs; refuses to pool unlike ones."""
    last = frame.drop_duplicates("workdir", keep="last").set_index("workdir")
    alone = [_of_run(run, last.loc[workdir]) for workdir, run in shifted.items()]
    # Peers, of any model, are named by how images were dealt to them if that differs,
    peers = [(*x.recipe[1:3], x.attribute, bool(x.single)) for x in alone]
    dealt = _names(peers, [one.options for one in alone], alone)
    # and rivals by whatever else differs.
    rivals = list(zip([one.recipe for one in alone], peers, dealt, strict=True))
    settings = _names(rivals, [one.settings for one in alone], alone)
    found: dict[tuple, Cell] = {}
    for one, *told in zip(alone, dealt, settings, strict=True):
        one = dataclasses.replace(one, recipe=Recipe(*one.recipe[:3], *told))
        first = found.setdefault(_place(one), one)
        if first is not one:
            _refuse_unlike(first, one.runs[0])
            both = (*first.runs, *one.runs)
            found[_place(one)] = dataclasses.replace(first, runs=both)
    return [found[key] for key in sorted(found)]


def _of_run(run: workdirs.Run, row: pd.Series) -> Cell:
    """Gives a cell of one run, whose recipe lacks what tells it apart."""
    shift = _shift_of(run)
    algorithm = f"{run.algorithm} ({run.variant})" if run.variant else run.algorithm
    form = (run.settings.get("train") or {}).get("form")
    data = f"{row['train_data']}/{form}" if form else str(row["train_data"])
    kept = {k: v for k, v in run.settings.items() if k not in _NO_RECIPE}
    kept = workdirs.flatten(_of_recipe(kept))
    options = {key: str(shift[key]) for key in shift if key not in _OF_CELL}
    sizes = {
        str(one.get("fingerprint", key)): int(one.get("n") or 0)
        for key, one in run.data.items()
        if key.startswith("train/") and key.count("/") == 1
    }
    images = sum(sizes.values()) or int(options.get("images") or 0)
    settings = {k: v for k, v in kept.items() if "train.shift." not in k}
    attribute, level = str(shift.get("attribute", "attribute")), str(shift["level"])
    recipe = Recipe(str(row["model"]), algorithm, data)
    return Cell(recipe, attribute, level, images, options, settings, (run,))


def _of_recipe(tree: Any, inside: str = "") -> Any:
    """Leaves out where data lies and, of shifts, what says a cell."""
    if isinstance(tree, Mapping):
        of_cell = _OF_CELL if inside == "shift" else ()
        return {
            key: _of_recipe(value, key)
            for key, value in tree.items()
            if key not in of_cell and not jc.is_place(key, value)
        }
    return [_of_recipe(one) for one in tree] if isinstance(tree, list) else tree


def _names(alike: Sequence, settings: Sequence[Mapping], cells: Cells) -> list[str]:
    """Names how the settings of cells that are alike differ; "" where they do not."""
    names = dict.fromkeys(range(len(alike)), "")
    for key in dict.fromkeys(alike):
        mine = [i for i in names if alike[i] == key]
        keys = workdirs.differing([settings[i] for i in mine])
        shorts = [name.rpartition(".")[2] for name in keys]
        words = ["shift_" * (short == "seed") + short for short in shorts]
        each = zip(keys, shorts, words, strict=True)
        shown = [name if shorts.count(x) > 1 else word for name, x, word in each]
        values = {i: [settings[i].get(name, "default") for name in keys] for i in mine}
        longest = max(map(len, itertools.chain(*values.values())), default=0)
        for i in mine:
            words = map("=".join, zip(shown, values[i], strict=True))
            names[i] = ", ".join(words)
            if len(keys) > _MOST or longest > _LONG:
                first = next(j for j in mine if values[j] == values[i])
                names[i] = f"as {cells[first].runs[0].name}"
    return list(names.values())


def _refuse_unlike(first: Cell, run: workdirs.Run) -> None:
    """Refuses to pool runs of the same seeds, or of other training images."""
    prints = [one.data.get("train/0") for one in (first.runs[0], run)]
    prints = [one.get("fingerprint") for one in prints if isinstance(one, Mapping)]
    if None not in prints and len({*prints}) > 1:
        raise ValueError(
            f"{run.workdir}: must be trained on the images of {first.runs[0].workdir} to be "
            "pooled with it, got others; report them apart"
        )
    for other in first.runs:
        for seed in run.seeds:
            if seed in other.seeds:
                raise ValueError(
                    f"{run.workdir}: seeds must differ from those of {other.workdir} to be "
                    f"pooled, got seed {seed} of both; leave one out"
                )


def _place(cell: Cell) -> tuple:
    """What a cell is of, in the order in which cells are told."""
    known = [*shifts.LEVELS, cell.level]
    recipe, level = cell.recipe, (known.index(cell.level), cell.level)
    return recipe.data, cell.attribute, recipe, *level
