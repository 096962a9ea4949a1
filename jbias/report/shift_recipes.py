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
_NO_RECIPE = ("run", "seeds", "workdir", "valid", "tests")
_OF_CELL = ("level", "attribute", "part")
_SHIFT = "train.shift."
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
class Fact:
    """What a workdir says of itself."""

    run: workdirs.Run
    base: Recipe
    attribute: str
    level: str
    options: Mapping[str, str]  # Of the shift, but for those of the level.
    settings: Mapping[str, str]

    @property
    def peers(self) -> tuple:
        """Of these images must be dealt alike, or it is told; they may be other models."""
        single = self.level.startswith(ONLY)
        return self.base.algorithm, self.base.data, self.attribute, single

    @property
    def rivals(self) -> tuple:
        """Of these settings must be alike, or it is told."""
        return self.base, self.peers, _frozen(self.options)

    @property
    def trained_on(self) -> Mapping[str, Any]:
        """What provenance says of the training images, {} where it says nothing."""
        data = self.run.provenance.get("data") or {}
        told = data.get("train/0") or {}
        return told if isinstance(told, Mapping) else {}

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

    Raises ValueError where runs to be pooled have the same seeds or other images.
    """
    facts = _facts(frame, shifted)
    dealt = _names(facts, "peers", "options")
    settings = _names(facts, "rivals", "settings")
    found: Recipes = {}
    for fact in facts:
        recipe = fact.base._replace(
            dealt=dealt[fact.peers, _frozen(fact.options)],
            setting=settings[fact.rivals, _frozen(fact.settings)],
        )
        found.setdefault((recipe, fact.attribute, fact.level), []).append(fact)
    for those in found.values():
        _refuse_unlike(those)
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
        kept = workdirs.flatten(_of_recipe(kept))
        found.append(
            Fact(
                run=run,
                base=Recipe(str(row["model"]), algorithm, data),
                attribute=str(shift.get("attribute", "attribute")),
                level=str(shift["level"]),
                options=options,
                settings={k: v for k, v in kept.items() if _SHIFT not in k},
            )
        )
    return found


def _of_recipe(tree: Any, inside: str = "") -> Any:
    """Leaves out where data lies and, of shifts, what says a cell."""
    if isinstance(tree, Mapping):
        lost = ("root", *(_OF_CELL if inside == "shift" else ()))
        return {k: _of_recipe(v, k) for k, v in tree.items() if k not in lost}
    return [_of_recipe(one) for one in tree] if isinstance(tree, list) else tree


def _frozen(settings: Mapping[str, str]) -> tuple:
    return tuple(sorted(settings.items()))


def _names(facts: Sequence[Fact], by: str, of: str) -> dict[tuple, str]:
    """Names what differs in `of` among those that are alike in `by`; "" where nothing does."""
    groups: dict[tuple, dict[tuple, Fact]] = {}
    for fact in facts:
        alike = groups.setdefault(getattr(fact, by), {})
        alike.setdefault(_frozen(getattr(fact, of)), fact)
    return {
        (key, frozen): name
        for key, those in groups.items()
        for frozen, name in zip(those, _told_apart(list(those.values()), of))
    }


def _told_apart(those: Sequence[Fact], of: str) -> list[str]:
    """Gives each a name of the settings in which they differ."""
    settings = [getattr(fact, of) for fact in those]
    keys = workdirs.differing(settings)
    shorts = [key.rpartition(".")[2] for key in keys]
    shown = [
        short if shorts.count(short) == 1 else key
        for key, short in zip(keys, shorts, strict=True)
    ]
    shown = [{"seed": "shift_seed"}.get(name, name) for name in shown]
    values = [[one.get(key, "unset") for key in keys] for one in settings]
    if len(keys) > _MOST or any(len(x) > _LONG for row in values for x in row):
        return [f"as {fact.run.name}" for fact in those]
    return [
        ", ".join(f"{name}={value}" for name, value in zip(shown, row, strict=True))
        for row in values
    ]


def _refuse_unlike(those: Sequence[Fact]) -> None:
    """Refuses to pool runs of the same seeds, or of other training images."""
    first, seen = those[0], {}
    for fact in those:
        pair = [one.trained_on.get("fingerprint") for one in (first, fact)]
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
