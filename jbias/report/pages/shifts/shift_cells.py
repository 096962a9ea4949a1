"""Reader of runs trained under a shift: networks by recipe, attribute and level.

A cell is one point of a curve: seeds of one recipe trained at one level of a shift of one
attribute. A recipe is a model, an algorithm, data and settings. Runs are pooled if only their
network seeds differ. Recipes with the same name get the settings in which they differ as a suffix,
such as the number of images.
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
from jbias.report import options as options_lib
from jbias.report import tables, workdirs
from jbias.report.pages.benchmark import inputs
from jbias.runs import selection as selection_lib

ID, OOD = "id", "ood"
ONLY = "only-"  # Prefix of levels that train on a single value.
_TESTED = re.compile(f"{ID}|{OOD}(-.*)?")  # Test sets in and out of distribution.
CONTROL = 0.5  # Share without any shift.
# Settings in which runs of one recipe may differ: how they ran, and fields of the cell.
_NO_RECIPE = ("run", "seeds", "workdir", "label", "valid", "tests")
_OF_CELL = ("level", "attribute", "part")
_MAX_SETTINGS, _MAX_LENGTH = 3, 40  # Most settings in a name, most letters of a value.
Seeds = Float[np.ndarray, "s"]


class Recipe(NamedTuple):
    """A training recipe without the shift: model, algorithm, data and settings, as text."""

    model: str
    algorithm: str
    data: str
    dealt: str = ""  # Settings of the split into parts, if recipes differ in these.
    setting: str = ""  # Other settings, if recipes of the same name differ in these.

    @property
    def details(self) -> str:
        """The settings that distinguish recipes of the same name; "" if none."""
        return ", ".join(filter(None, (self.dealt, self.setting)))

    @property
    def network(self) -> str:
        """The model, with the settings if several recipes have its name."""
        return f"{self.model} [{self.setting}]" if self.setting else self.model

    @property
    def label(self) -> str:
        """The name of the recipe on the page."""
        ending = f" [{self.details}]" if self.details else ""
        return f"{self.algorithm}, {self.model}, {self.data}{ending}"


@dataclasses.dataclass(frozen=True, eq=False)
class ShiftCell:
    """Seeds of one recipe, trained at one level of a shift of one attribute."""

    recipe: Recipe
    attribute: str
    level: str
    images: int  # Number of training images; 0 if unknown.
    options: Mapping[str, str]  # Options of the shift besides level and attribute.
    settings: Mapping[str, str]
    runs: tuple[workdirs.Run, ...]
    seeds: tuple[int, ...] = ()  # Seeds with results; () before results are added.
    accuracy: Mapping[str, Seeds] | None = None  # By test set, from 0 to 1.
    sizes: Mapping[str, int] | None = None  # Fewest images of each test set over seeds.
    groups: Mapping[tuple[str, str], Seeds] | None = None  # By set and metric.
    rows: pd.DataFrame | None = None  # Records of the selected evaluations.

    @property
    def only_value(self) -> str:
        """The value of a level that trains on a single value of the attribute, else ""."""
        return self.level.removeprefix(ONLY) if self.level.startswith(ONLY) else ""

    @property
    def kind(self) -> str:
        """The kind of shift; "" for levels that train on a single value of the attribute."""
        return "" if self.only_value else shifts.LEVELS[self.level].kind

    @property
    def share(self) -> float:
        """Share of a class's training images with the preferred values; 0.5: no shift."""
        return 1.0 if self.only_value else shifts.LEVELS[self.level].share

    @property
    def others(self) -> dict[str, Seeds]:
        """Accuracies by seed of the test sets out of distribution, by value of the attribute."""
        start = f"{OOD}-"
        return {
            name.removeprefix(start): accuracies
            for name, accuracies in self.accuracy.items()
            if name.startswith(start)
        }

    @property
    def inside(self) -> Seeds:
        """Accuracy in distribution, by seed."""
        return self.accuracy[ID]

    @property
    def outside(self) -> Seeds:
        """Accuracy out of distribution, by seed; the mean over test sets if there are several."""
        if OOD in self.accuracy:
            return self.accuracy[OOD]
        return np.mean(list(self.others.values()), axis=0)

    @property
    def tested(self) -> tuple[int, int]:
        """Return (number of test images in distribution, number out of distribution)."""
        outside = sum(n for name, n in self.sizes.items() if name.startswith(f"{OOD}-"))
        return self.sizes[ID], self.sizes.get(OOD, outside)


ShiftCells = Sequence[ShiftCell]


class ShiftStudy(NamedTuple):
    """Results of all runs trained under a shift."""

    cells: tuple[ShiftCell, ...]
    rule: str  # Rule of selection, in words.
    oracle: bool  # True if evaluations were selected by test accuracy.
    frame: pd.DataFrame  # Records of the runs of the cells.
    notes: tuple[str, ...]


def read(
    patterns: Sequence[str],
    *,
    selection: str = "best_validation",
    last: int | None = None,
) -> ShiftStudy:
    """Return the results of runs trained under a shift, with the selected evaluation of each seed.

    patterns: workdirs (paths or globs). selection: a rule of `inputs.Rules`. last: number of
    evaluations that last_n averages; None for 30 % of all.

    Seeds without accuracy in and out of distribution are left out, with a note. Raises ValueError
    if no run was trained under a shift, if none has a seed left, and for an unknown level. Runs
    that would be pooled raise ValueError if they share a seed or have different images. Also
    raises errors of `workdirs.read` and of the rule of selection.
    """
    records = workdirs.read(patterns)
    frame = records.pop_frame()
    runs = records.runs
    empty = records.empty
    shifted = {run.workdir: run for run in runs if _shift_of(run)}
    if not shifted:
        raise ValueError(
            f"--runs: must hold runs trained under a shift (config.train.shift), got "
            f"{len(runs)} without; train one, such as with shift=C6,attribute=colour after "
            "the colon of --config"
        )
    frame = frame[frame["workdir"].isin(list(shifted))].reset_index(drop=True)
    selected, rule = _selected(frame, shifted, selection, last)
    notes = list(_notes(empty, runs, shifted, frame))
    cells = []
    incomplete = []
    for cell in _by_cell(frame, shifted):
        names = [run.workdir for run in cell.runs]
        cell, cell_notes = _measured(cell, selected[selected["workdir"].isin(names)])
        cells += [cell] if cell.seeds else []
        incomplete += [f"{tables.few(names)}: {line}" for line in cell_notes]
    if not cells:
        raise ValueError(f"--runs: {incomplete[0]}")
    return ShiftStudy(
        tuple(cells), rule, selection == "oracle", frame, (*notes, *incomplete)
    )


def _notes(
    empty: Sequence, runs: Sequence[workdirs.Run], shifted: Mapping, frame: pd.DataFrame
) -> Iterator[str]:
    """Yield notes on runs that were left out or are incomplete.

    In this order: one note on all runs without a shift, and a note per workdir without an
    evaluation, per unfinished run and per diverged seed. empty: workdirs without an evaluation.
    shifted: runs trained under a shift, by workdir. frame: their records.
    """
    plain = [run.workdir for run in runs if run.workdir not in shifted]
    if plain:
        names = tables.few(plain)
        yield f"Left out, since not trained under a shift (config.json): {names}."
    for path in empty:
        yield f"{path} matches the pattern but has no evaluation; it is left out."
    for run in shifted.values():
        if not run.finished:
            yield f"{run.workdir} is not finished (it has no file `done`)."
    for row in selection_lib.diverged(frame).to_dict("records"):
        yield (
            f"Seed {row['seed']} of {row['run']} diverged at step {row['step']} and is "
            "left out."
        )


def _selected(
    frame: pd.DataFrame,
    shifted: Mapping[str, workdirs.Run],
    selection: str,
    last: int | None,
) -> tuple[pd.DataFrame, str]:
    """Return (records of the selected evaluations, the selection rule in words).

    Columns: SELECTED of `jbias.runs.selection`, label (name of the algorithm) and step (NaN if the
    rule averages evaluations). There is one row per seed, data set and metric. Records under a
    condition, or without a value, are left out.

    frame: records of the runs. shifted: runs by workdir. selection, last: see `read`; None or 0 for
    `last` is the default of `inputs.default_last`.
    """
    evaluations = inputs.evaluated(frame)
    accuracies = evaluations[evaluations["metric"] == "accuracy"]
    labels = {name: run.label for name, run in shifted.items()}
    last = last or inputs.default_last(accuracies)
    options = options_lib.Options(last=last, epoch=math.nan)
    rules = inputs.Rules(options, accuracies["dataset"].unique(), labels)
    rows = rules.select(evaluations, selection)
    rows = rows[(rows["condition"] == "") & rows["value"].notna()]
    key = ["workdir", "seed", "epoch"]
    steps = evaluations[[*key, "step"]].drop_duplicates(key).astype({"workdir": "str"})
    return rows.merge(steps, on=key, how="left"), rules.words(selection)


def _measured(cell: ShiftCell, rows: pd.DataFrame) -> tuple[ShiftCell, list[str]]:
    """Return (the cell with its results, notes on seeds); without results the cell has no seeds.

    Seeds without accuracy on a test set that other seeds have are left out, with a note. No seed
    has results if there are no test sets in or out of distribution, or no number of images. rows:
    selected records of the runs of the cell.
    """
    table = rows.pivot_table(
        index="seed", columns=["dataset", "metric"], values="value", aggfunc="first"
    )
    names = [x for x, y in table.columns if y == "accuracy" and _TESTED.fullmatch(x)]
    has_both = ID in names and len(names) > 1
    is_complete = table[[(name, "accuracy") for name in names]].notna().all(axis=1)
    sizes = rows[rows["metric"] == "accuracy"].groupby("dataset")["n"].min()[names]
    complete = table[is_complete] if has_both and sizes.notna().all() else table[:0]
    complete = complete[[name for name in complete if name[0] in names]]
    values = {name: complete[name].to_numpy(np.float64) for name in complete}
    groups = ("worst_group", "group_balanced", "class_balanced")
    notes = []
    if has_both and not is_complete.all():
        incomplete = ", ".join(map(str, table.index[~is_complete]))
        notes.append(
            f"seeds without accuracy on {ID} or on {OOD} are left out: {incomplete}."
        )
    if not len(complete):
        return cell, [*notes, f"must have accuracy on {ID} and {OOD}, got neither."]
    return dataclasses.replace(
        cell,
        seeds=tuple(map(int, complete.index)),
        accuracy={name: values[name, "accuracy"] for name in names},
        sizes={name: int(sizes[name]) for name in names},
        groups={
            key: accuracies
            for key, accuracies in values.items()
            if key[1].startswith(groups)
        },
        rows=rows,
    ), notes


def _shift_of(run: workdirs.Run) -> Mapping[str, Any]:
    """Return the options of the shift that a run was trained under; {} without a shift.

    If several stages have a shift, the last of these stages is used. Raises ValueError for an
    unknown level.
    """
    stages = run.settings.get("stages") or ()
    trained = [run.settings, *(stage for stage in stages if stage)]
    options = [(settings.get("train") or {}).get("shift") for settings in trained]
    shift = next((shift for shift in reversed(options) if shift), {})
    level = shift.get("level", "")
    if shift and level not in shifts.LEVELS and not str(level).startswith(ONLY):
        raise ValueError(
            f"{run.workdir}: level of the shift must be one of {', '.join(shifts.LEVELS)} "
            f"or {ONLY}<value>, got {level!r}; restore its config.json"
        )
    return shift


def _by_cell(
    frame: pd.DataFrame, shifted: Mapping[str, workdirs.Run]
) -> list[ShiftCell]:
    """Return cells without results, pooled over runs, in the order of the page.

    frame: records of the runs. shifted: runs trained under a shift, by workdir. Raises ValueError
    if runs of one cell have a seed in common or different training images.
    """
    last = frame.drop_duplicates("workdir", keep="last").set_index("workdir")
    run_cells = [_of_run(run, last.loc[workdir]) for workdir, run in shifted.items()]
    # Recipes of any model that differ in the options of the shift get these in their name.
    peers = [
        (
            cell.recipe.algorithm,
            cell.recipe.data,
            cell.attribute,
            bool(cell.only_value),
        )
        for cell in run_cells
    ]
    dealt = _names(peers, [cell.options for cell in run_cells], run_cells)
    # Recipes that still have the same name get the other settings in which they differ.
    rivals = list(zip([cell.recipe for cell in run_cells], peers, dealt, strict=True))
    settings = _names(rivals, [cell.settings for cell in run_cells], run_cells)
    pooled: dict[tuple, ShiftCell] = {}
    for cell, dealt_name, setting in zip(run_cells, dealt, settings, strict=True):
        recipe = cell.recipe._replace(dealt=dealt_name, setting=setting)
        named_cell = dataclasses.replace(cell, recipe=recipe)
        key = _sort_key(named_cell)
        first = pooled.setdefault(key, named_cell)
        if first is not named_cell:
            _check_poolable(first, named_cell.runs[0])
            pooled[key] = dataclasses.replace(
                first, runs=(*first.runs, *named_cell.runs)
            )
    return [pooled[key] for key in sorted(pooled)]


def _of_run(run: workdirs.Run, row: pd.Series) -> ShiftCell:
    """Return the cell of one run, without results.

    The fields `dealt` and `setting` of its recipe are still empty. row: a record of the run.
    """
    shift = _shift_of(run)
    algorithm = f"{run.algorithm} ({run.variant})" if run.variant else run.algorithm
    form = (run.settings.get("train") or {}).get("form")
    data = f"{row['train_data']}/{form}" if form else str(row["train_data"])
    recipe_settings = {k: v for k, v in run.settings.items() if k not in _NO_RECIPE}
    recipe_settings = workdirs.flatten(_of_recipe(recipe_settings))
    options = {key: str(shift[key]) for key in shift if key not in _OF_CELL}
    sizes = {
        str(dataset.get("fingerprint", key)): int(dataset.get("n") or 0)
        for key, dataset in run.data.items()
        if key.startswith("train/") and key.count("/") == 1
    }
    images = sum(sizes.values()) or int(options.get("images") or 0)
    settings = {k: v for k, v in recipe_settings.items() if "train.shift." not in k}
    attribute = str(shift.get("attribute", "attribute"))
    level = str(shift["level"])
    recipe = Recipe(str(row["model"]), algorithm, data)
    return ShiftCell(
        recipe=recipe,
        attribute=attribute,
        level=level,
        images=images,
        options=options,
        settings=settings,
        runs=(run,),
    )


def _of_recipe(tree: Any, inside: str = "") -> Any:
    """Return settings without paths of data and, within `shift`, without fields of the cell.

    tree: nested settings. inside: key of `tree` in its parent.
    """
    if isinstance(tree, Mapping):
        of_cell = _OF_CELL if inside == "shift" else ()
        return {
            key: _of_recipe(value, key)
            for key, value in tree.items()
            if key not in of_cell and not jc.is_place(key, value)
        }
    return [_of_recipe(item) for item in tree] if isinstance(tree, list) else tree


def _names(
    group_keys: Sequence, settings: Sequence[Mapping], cells: ShiftCells
) -> list[str]:
    """Return the settings of each cell that differ within its group, as one text per cell.

    group_keys, settings: one per cell; cells with equal keys are a group. The text is such as
    "width=64, depth=3", with "default" for a setting that the cell lacks, and "" if the settings of
    the group are equal. More than 3 settings, or values of more than 40 letters, become "as RUN",
    the first run with the same settings.
    """
    names = [""] * len(group_keys)
    for group_key in dict.fromkeys(group_keys):
        members = [i for i, key in enumerate(group_keys) if key == group_key]
        keys = workdirs.differing([settings[i] for i in members])
        last_parts = [key.rpartition(".")[2] for key in keys]
        labels = []
        for key, last_part in zip(keys, last_parts, strict=True):
            if last_parts.count(last_part) > 1:
                labels.append(key)
            else:
                labels.append("shift_seed" if last_part == "seed" else last_part)
        values = {i: [settings[i].get(key, "default") for key in keys] for i in members}
        longest = max(map(len, itertools.chain(*values.values())), default=0)
        for i in members:
            pairs = zip(labels, values[i], strict=True)
            names[i] = ", ".join(f"{label}={value}" for label, value in pairs)
            if len(keys) > _MAX_SETTINGS or longest > _MAX_LENGTH:
                first = next(j for j in members if values[j] == values[i])
                names[i] = f"as {cells[first].runs[0].name}"
    return names


def _check_poolable(first: ShiftCell, run: workdirs.Run) -> None:
    """Raise ValueError if `run` cannot be added to a cell.

    The reason is that the cell has a seed of the run, or that training images differ between the
    cell and the run. first: the cell.
    """
    datasets = [pooled.data.get("train/0") for pooled in (first.runs[0], run)]
    fingerprints = [
        dataset.get("fingerprint")
        for dataset in datasets
        if isinstance(dataset, Mapping)
    ]
    if None not in fingerprints and len({*fingerprints}) > 1:
        raise ValueError(
            f"{run.workdir}: must be trained on the images of {first.runs[0].workdir} to be "
            "pooled with it, got other images; make separate reports"
        )
    for other in first.runs:
        for seed in run.seeds:
            if seed in other.seeds:
                raise ValueError(
                    f"{run.workdir}: seeds must differ from those of {other.workdir} to be "
                    f"pooled, got seed {seed} in both; leave one out"
                )


def _sort_key(cell: ShiftCell) -> tuple:
    """Return a sort key of cells: (data, attribute, recipe, position of the level, level)."""
    known = [*shifts.LEVELS, cell.level]
    recipe = cell.recipe
    level = (known.index(cell.level), cell.level)
    return recipe.data, cell.attribute, recipe, *level
