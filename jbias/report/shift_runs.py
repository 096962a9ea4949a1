"""Networks trained under chosen shifts, read from their runs: by recipe, attribute and level.

A cell is what a point of a curve stands for: seeds of one recipe trained at one level of a
shift of one attribute. A recipe is a model, an algorithm, data and settings. Runs are pooled
where nothing but their network seeds differs; recipes that would be called alike are told
apart by the settings in which they differ, such as the number of images.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from jbias.data import shifts
from jbias.report import inputs, workdirs
from jbias.runs import results
from jbias.runs import selection as selection_lib

ID, OOD = "id", "ood"
ONLY = "only-"  # Levels that train on one value.
CONTROL = 0.5  # The share at which nothing is shifted.
# Settings that runs of one recipe need not share: how they ran, and what a cell says.
_NO_RECIPE = ("run", "seeds", "workdir", "label", "valid", "tests")
_OF_CELL = ("level", "attribute", "part")
_MOST, _LONG = 3, 40  # Settings that a name holds, and letters of one.


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
        return 1.0 if self.single else shifts.LEVELS[self.level].share

    @property
    def others(self) -> dict[str, Float[np.ndarray, "s"]]:
        """Accuracies by value that was not trained on."""
        start = f"{OOD}-"
        named = self.accuracy.items()
        return {k.removeprefix(start): x for k, x in named if k.startswith(start)}

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
        outside = sum(n for name, n in self.sizes.items() if name.startswith(f"{OOD}-"))
        return self.sizes[ID], self.sizes.get(OOD, outside)


class Study(NamedTuple):
    """All that was read."""

    cells: tuple[Cell, ...]
    rule: str  # Of selection, in words.
    oracle: bool
    frame: pd.DataFrame  # Records of the runs of the cells.
    notes: tuple[str, ...]


class _Fact(NamedTuple):
    """What a workdir says of itself."""

    run: workdirs.Run
    recipe: Recipe  # Without what tells it apart.
    attribute: str
    level: str
    options: Mapping[str, str]  # Of the shift, but for those of the level.
    settings: Mapping[str, str]

    @property
    def fingerprint(self) -> Any:
        """What the images trained on are known by; None where that is not known."""
        told = (self.run.provenance.get("data") or {}).get("train/0")
        return told.get("fingerprint") if isinstance(told, Mapping) else None

    @property
    def images(self) -> int:
        """How many different ones were trained on in all stages; 0 where not known."""
        data = self.run.provenance.get("data") or {}
        named = {
            f"{one.get('fingerprint', key)}": int(one.get("n") or 0)
            for key, one in data.items()
            if key.startswith("train/") and key.count("/") == 1
        }
        return sum(named.values()) or int(self.options.get("images") or 0)


def read(
    patterns: Sequence[str],
    *,
    selection: str = "best_validation",
    last: int | None = None,
) -> Study:
    """Reads workdirs of runs (paths or globs) and selects an evaluation of each seed.

    Raises ValueError where no run was trained under a shift, where a level is not known,
    where runs to be pooled have the same seeds or other images, and as `results.read` and
    the rules of selection do.
    """
    full, empty = results.find_workdirs(patterns)
    if not full:
        raise ValueError(
            f"--runs: must match runs with evaluations, got none: {' '.join(patterns)}"
        )
    frame = results.read(full)
    runs = workdirs.load(frame)
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
    cells, lost = [], []
    by_workdir = dict(iter(selected.groupby("workdir")))
    for key, those in _by_cell(frame, shifted).items():
        rows = [by_workdir[f.run.workdir] for f in those if f.run.workdir in by_workdir]
        cell, *told = _cell(key, those, pd.concat(rows) if rows else selected[:0])
        cells += [cell] if cell else []
        lost += [f"{few([fact.run.workdir for fact in those])}: {x}" for x in told]
    if not cells:
        raise ValueError(f"--runs: {lost[0]}")
    return Study(tuple(cells), rule, selection == "oracle", frame, (*notes, *lost))


def few(names: Sequence[str], most: int = 4) -> str:
    """Names the first of many."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def _notes(empty, runs, shifted, frame: pd.DataFrame) -> Iterator[str]:
    plain = [run.workdir for run in runs if run.workdir not in shifted]
    if plain:
        yield f"Not trained under a shift, by config.json, and left out: {few(plain)}."
    for path in empty:
        yield f"{path} matches the pattern and holds no evaluation; it is not in here."
    for run in shifted.values():
        if not run.finished:
            yield f"{run.workdir} has not ended (it has no file `done`)."
    for row in selection_lib.diverged(frame).to_dict("records"):
        yield (
            f"Seed {row['seed']} of {row['run']} diverged at step {row['step']} and is "
            "left out."
        )


def _selected(
    frame: pd.DataFrame, shifted, selection: str, last: int | None
) -> tuple[pd.DataFrame, str]:
    """Gives what counts of each seed, with its step, and the rule by which."""
    chosen = inputs.evaluated(frame)
    asked = chosen[chosen["metric"] == "accuracy"]
    rules = inputs.Rules(
        last=last or inputs.default_last(asked),
        epoch=math.nan,
        best_on="",
        metric="accuracy",
        larger_is_better=True,
        datasets=tuple(asked["dataset"].unique()),
        labels={name: run.label for name, run in shifted.items()},
    )
    rows = rules.select(chosen, selection)
    rows = rows[(rows["condition"] == "") & rows["value"].notna()]
    key = ["workdir", "seed", "epoch"]
    steps = chosen[[*key, "step"]].drop_duplicates(key).astype({"workdir": "str"})
    return rows.merge(steps, on=key, how="left"), rules.words(selection)


def _cell(key: tuple, those: Sequence[_Fact], rows: pd.DataFrame) -> Iterator:
    """Gives the cell, 0 if nothing of it was measured; then what to know of seeds."""
    table = rows.pivot_table(
        index="seed", columns=["dataset", "metric"], values="value", aggfunc="first"
    )
    names = [
        name
        for name, metric in table.columns
        if metric == "accuracy" and (name in (ID, OOD) or name.startswith(f"{OOD}-"))
    ]
    both = ID in names and len(names) > 1
    whole = table[[(name, "accuracy") for name in names]].notna().all(axis=1)
    counted = rows[rows["metric"] == "accuracy"].groupby("dataset")["n"].min()[names]
    kept = table[whole] if both and counted.notna().all() else table[:0]
    values = {name: kept[name].to_numpy(np.float64) for name in kept}
    of_groups = ("worst_group", "group_balanced", "class_balanced")
    yield len(kept) and Cell(
        *key,
        images=those[0].images,
        options=those[0].options,
        settings=those[0].settings,
        seeds=tuple(map(int, kept.index)),
        accuracy={name: values[name, "accuracy"] for name in names},
        sizes={name: int(counted[name]) for name in names},
        groups={
            (name, metric): one
            for (name, metric), one in values.items()
            if name in names and metric.startswith(of_groups)
        },
        runs=tuple(fact.run for fact in those),
        rows=rows,
    )
    if both and not whole.all():
        lost = ", ".join(map(str, table.index[~whole]))
        yield f"seeds without accuracy on {ID} or on {OOD} are left out: {lost}."
    if not len(kept):
        yield f"must have accuracy on {ID} and {OOD}, got neither."


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


def _by_cell(
    frame: pd.DataFrame, shifted: Mapping[str, workdirs.Run]
) -> dict[tuple[Recipe, str, str], list[_Fact]]:
    """Sorts workdirs (by name, with records) by recipe, attribute and level."""
    last = frame.drop_duplicates("workdir", keep="last").set_index("workdir")
    facts = [_fact(run, last.loc[workdir]) for workdir, run in shifted.items()]
    # Peers, of any model, are named by how images were dealt to them if that differs,
    peers = [(*x.recipe[1:3], x.attribute, x.level.startswith(ONLY)) for x in facts]
    dealt = _names(peers, [one.options for one in facts], facts)
    # and rivals by whatever else differs.
    rivals = zip([one.recipe for one in facts], peers, dealt, strict=True)
    settings = _names(list(rivals), [one.settings for one in facts], facts)
    found: dict[tuple, list[_Fact]] = {}
    for fact, *told in zip(facts, dealt, settings, strict=True):
        recipe = Recipe(*fact.recipe[:3], *told)
        found.setdefault((recipe, fact.attribute, fact.level), []).append(fact)
    for those in found.values():
        _refuse_unlike(those)
    return {key: found[key] for key in sorted(found, key=_place)}


def _fact(run: workdirs.Run, row: pd.Series) -> _Fact:
    shift = _shift_of(run)
    algorithm = f"{run.algorithm} ({run.variant})" if run.variant else run.algorithm
    form = (run.settings.get("train") or {}).get("form")
    data = f"{row['train_data']}/{form}" if form else str(row["train_data"])
    kept = {k: v for k, v in run.settings.items() if k not in _NO_RECIPE}
    kept = workdirs.flatten(_of_recipe(kept))
    return _Fact(
        run=run,
        recipe=Recipe(str(row["model"]), algorithm, data),
        attribute=str(shift.get("attribute", "attribute")),
        level=str(shift["level"]),
        options={key: str(shift[key]) for key in shift if key not in _OF_CELL},
        settings={k: v for k, v in kept.items() if "train.shift." not in k},
    )


def _of_recipe(tree: Any, inside: str = "") -> Any:
    """Leaves out where data lies and, of shifts, what says a cell."""
    if isinstance(tree, Mapping):
        lost = ("root", *(_OF_CELL if inside == "shift" else ()))
        return {k: _of_recipe(v, k) for k, v in tree.items() if k not in lost}
    return [_of_recipe(one) for one in tree] if isinstance(tree, list) else tree


def _names(
    alike: Sequence[tuple],
    settings: Sequence[Mapping[str, str]],
    facts: Sequence[_Fact],
) -> list[str]:
    """Names how the settings of facts that are alike differ; "" where they do not."""
    groups: dict[tuple, dict[tuple, int]] = {}
    frozen = [tuple(sorted(one.items())) for one in settings]
    for i, key in enumerate(alike):
        groups.setdefault(key, {}).setdefault(frozen[i], i)
    names = {}
    for key, firsts in groups.items():
        unlike = [settings[i] for i in firsts.values()]
        keys = workdirs.differing(unlike)
        shorts = [name.rpartition(".")[2] for name in keys]
        shown = [
            {"seed": "shift_seed"}.get(short, short)
            if shorts.count(short) == 1
            else name
            for name, short in zip(keys, shorts, strict=True)
        ]
        values = [[one.get(name, "unset") for name in keys] for one in unlike]
        long = len(keys) > _MOST or any(len(x) > _LONG for row in values for x in row)
        for (one, i), row in zip(firsts.items(), values, strict=True):
            words = [f"{k}={v}" for k, v in zip(shown, row, strict=True)]
            names[key, one] = f"as {facts[i].run.name}" if long else ", ".join(words)
    return [names[place] for place in zip(alike, frozen, strict=True)]


def _refuse_unlike(those: Sequence[_Fact]) -> None:
    """Refuses to pool runs of the same seeds, or of other training images."""
    first, seen = those[0], {}
    for fact in those:
        pair = first.fingerprint, fact.fingerprint
        if None not in pair and pair[0] != pair[1]:
            raise ValueError(
                f"{fact.run.workdir}: must be trained on the images of "
                f"{first.run.workdir} to be pooled with it, got others; report them apart"
            )
        for seed in fact.run.seeds:
            other = seen.setdefault(seed, fact)
            if other is not fact:
                raise ValueError(
                    f"{fact.run.workdir}: seeds must differ from those of "
                    f"{other.run.workdir} to be pooled, got seed {seed} of both; leave one out"
                )


def _place(key: tuple[Recipe, str, str]) -> tuple:
    recipe, attribute, level = key
    levels = list(shifts.LEVELS)
    rank = levels.index(level) if level in levels else len(levels)
    return recipe.data, attribute, recipe, rank, level
