"""Which runs under a shift are of one recipe, and what tells recipes apart.

Runs are pooled where nothing but their network seeds differs. Recipes that would be called
alike are told apart by the settings in which they differ, such as the number of images.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from jbias.data import shifts
from jbias.report import workdirs

ONLY = "only-"  # Levels that train on one value.
# Settings that runs of one recipe need not share: how they ran, and what a cell says.
_NO_RECIPE = ("run", "seeds", "workdir", "save_every", "eval_every", "valid", "tests")
_OF_CELL = ("level", "attribute", "part")
_MOST = 3  # Settings that a name holds.


class Recipe(NamedTuple):
    """How networks were trained, but for the shift; words as the page has them."""

    model: str
    algorithm: str
    data: str
    setting: str = ""

    @property
    def label(self) -> str:
        ending = f" [{self.setting}]" if self.setting else ""
        return f"{self.algorithm}, {self.model}, {self.data}{ending}"


@dataclasses.dataclass(frozen=True, eq=False)
class Fact:
    """What a workdir says of itself."""

    run: workdirs.Run
    base: Recipe
    attribute: str
    level: str
    options: Mapping[str, str]  # Of the shift, but for those of the level.
    settings: Mapping[str, str]

    @property
    def rivals(self) -> tuple:
        """What must be told apart by settings."""
        return self.base, self.attribute, self.level.startswith(ONLY)

    @property
    def frozen(self) -> tuple:
        return tuple(sorted(self.settings.items()))

    @property
    def trained_on(self) -> Mapping[str, Any]:
        """What provenance says of the training images, {} where it says nothing."""
        data = self.run.provenance.get("data") or {}
        told = data.get("train/0") or {}
        return told if isinstance(told, Mapping) else {}

    @property
    def images(self) -> int:
        """How many were trained on; 0 where that is not known."""
        return int(self.trained_on.get("n") or self.options.get("images") or 0)


Recipes = dict[tuple[Recipe, str, str], list[Fact]]  # By recipe, attribute and level.


def shift_of(run: workdirs.Run) -> Mapping[str, Any]:
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


def of(frame: pd.DataFrame, shifted: Mapping[str, workdirs.Run]) -> Recipes:
    """Sorts workdirs (by name, with records) by recipe, attribute and level.

    Raises ValueError where runs to be pooled were trained on other images.
    """
    facts = _facts(frame, shifted)
    rivals: dict[tuple, dict[tuple, Fact]] = {}
    for fact in facts:
        rivals.setdefault(fact.rivals, {}).setdefault(fact.frozen, fact)
    names = {key: _told_apart(list(those.values())) for key, those in rivals.items()}
    found: Recipes = {}
    for fact in facts:
        setting = names[fact.rivals][fact.frozen]
        key = fact.base._replace(setting=setting), fact.attribute, fact.level
        found.setdefault(key, []).append(fact)
    for those in found.values():
        _refuse_other_images(those)
    return {key: found[key] for key in sorted(found, key=_place)}


def _facts(frame: pd.DataFrame, shifted: Mapping[str, workdirs.Run]) -> list[Fact]:
    last = frame.drop_duplicates("workdir", keep="last").set_index("workdir")
    found = []
    for workdir, run in shifted.items():
        row, shift = last.loc[workdir], shift_of(run)
        algorithm = f"{run.algorithm} ({run.variant})" if run.variant else run.algorithm
        form = (run.settings.get("train") or {}).get("form")
        data = f"{row['train_data']}/{form}" if form else str(row["train_data"])
        options = {key: str(shift[key]) for key in shift if key not in _OF_CELL}
        kept = {k: v for k, v in run.settings.items() if k not in _NO_RECIPE}
        found.append(
            Fact(
                run=run,
                base=Recipe(str(row["model"]), algorithm, data),
                attribute=str(shift.get("attribute", "attribute")),
                level=str(shift["level"]),
                options=options,
                settings=workdirs.flatten(_of_recipe(kept)),
            )
        )
    return found


def _of_recipe(tree: Any, inside: str = "") -> Any:
    """Leaves out where data lies and, of shifts, what says a cell."""
    if isinstance(tree, Mapping):
        lost = ("root", *(_OF_CELL if inside == "shift" else ()))
        return {k: _of_recipe(v, k) for k, v in tree.items() if k not in lost}
    return [_of_recipe(one) for one in tree] if isinstance(tree, list) else tree


def _told_apart(those: Sequence[Fact]) -> dict[tuple, str]:
    """Names the settings in which recipes of one name differ; "" where there is one."""
    keys = workdirs.differing([fact.settings for fact in those])
    if len(keys) > _MOST:
        return {fact.frozen: f"as {fact.run.name}" for fact in those}
    shorts = [
        key.rpartition(".")[2] if not key.endswith("shift.seed") else "shift_seed"
        for key in keys
    ]
    shown = [
        short if shorts.count(short) == 1 else key
        for key, short in zip(keys, shorts, strict=True)
    ]
    return {
        fact.frozen: ", ".join(
            f"{name}={fact.settings.get(key, 'unset')}"
            for name, key in zip(shown, keys, strict=True)
        )
        for fact in those
    }


def _refuse_other_images(those: Sequence[Fact]) -> None:
    """Refuses to pool runs whose training images are not the same."""
    first = those[0]
    for fact in those[1:]:
        pair = [one.trained_on.get("fingerprint") for one in (first, fact)]
        if None not in pair and pair[0] != pair[1]:
            raise ValueError(
                f"{fact.run.workdir}: must be trained on the images of "
                f"{first.run.workdir} to be pooled with it, got others; report them apart"
            )


def _place(key: tuple[Recipe, str, str]) -> tuple:
    recipe, attribute, level = key
    levels = list(shifts.LEVELS)
    rank = levels.index(level) if level in levels else len(levels)
    return recipe.data, attribute, recipe, rank, level
