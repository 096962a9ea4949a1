"""Which runs belong together, what they are called, and what they were made of."""

import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from jbias.runs import results

# What may differ between runs whose seeds are pooled: how they ran, not what.
_NO_IDENTITY = ("run", "seeds", "workdir")


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """A workdir with its settings, as they are and flattened to dotted keys."""

    workdir: str
    name: str
    algorithm: str
    variant: str
    seeds: tuple[int, ...]  # Those with records.
    config: Mapping[str, str] | None  # None where there is no config.json.
    provenance: Mapping[str, Any]
    finished: bool
    settings: Mapping[str, Any]
    costs: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # costs.json.
    label: str = ""

    @property
    def identity(self) -> Mapping[str, str] | None:
        """Settings that must be equal for seeds to be pooled."""
        if self.config is None:
            return None
        return {
            k: v
            for k, v in self.config.items()
            if k.split(".")[0] not in _NO_IDENTITY and k.split(".")[-1] != "root"
        }

    @property
    def lost_seeds(self) -> list[str]:
        """Names the seeds that the settings list and the records lack."""
        try:
            listed = json.loads((self.config or {}).get("seeds", "[]"))
        except (ValueError, RecursionError):
            return []
        listed = listed if isinstance(listed, list) else []
        return [str(seed) for seed in listed if seed not in self.seeds]


def load(frame: pd.DataFrame) -> tuple[Run, ...]:
    """Reads config and provenance of the workdirs of all records, and labels the runs."""
    runs = []
    told = ["workdir", "stage", "run", "algorithm", "variant", "seed"]
    frame = frame[told][~pd.Series(results.number_rows(frame, told)).duplicated()]
    for workdir, rows in frame.groupby("workdir", sort=False):
        path = pathlib.Path(workdir)
        last = rows[rows["stage"] == rows["stage"].max()]
        named = last[["run", "algorithm", "variant"]].drop_duplicates()
        if len(named) > 1:
            raise ValueError(
                f"{path}: a workdir must hold one run of one algorithm in its last stage, "
                f"got {named.to_numpy().tolist()}; separate them"
            )
        config = _json(path / "config.json")
        runs.append(
            Run(
                workdir=workdir,
                name=named["run"].item(),
                algorithm=named["algorithm"].item(),
                variant=named["variant"].item(),
                seeds=tuple(sorted(set(rows["seed"]))),
                config=None if config is None else flatten(config),
                settings=config or {},
                provenance=_provenance(path / "provenance.json"),
                finished=(path / "done").exists(),
                costs=_costs(_root(path) / "costs.json"),
            )
        )
    return _labelled(runs)


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Gives the leaves of nested dicts by dotted keys, as text."""
    flat: dict[str, str] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{name}.")
        else:
            flat[name] = value if isinstance(value, str) else json.dumps(value)
    return flat


def differing(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """Names the keys that are not equal in all settings, in their order."""
    keys = dict.fromkeys(key for one in settings for key in one)
    return [key for key in keys if len({one.get(key) for one in settings}) > 1]


def _labelled(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Calls runs by algorithm and variant, and by what differs where that is not enough."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        base = f"{run.algorithm} ({run.variant})" if run.variant else run.algorithm
        groups.setdefault(base, []).append(run)
    labels: dict[str, str] = {}
    for base, group in groups.items():
        labels |= _group_labels(base, group)
    labelled = tuple(dataclasses.replace(r, label=labels[r.workdir]) for r in runs)
    _refuse_repeated_seeds(labelled)
    return labelled


def _group_labels(base: str, group: Sequence[Run]) -> dict[str, str]:
    if len(group) == 1:
        return {group[0].workdir: base}
    if any(run.identity is None for run in group):
        return {run.workdir: f"{base} [{run.name}]" for run in group}
    told = _told_apart([run.identity for run in group])
    if len(told) > 3:
        # Runs that differ in seeds alone share the name of the first of them.
        names: dict[tuple, str] = {}
        return {
            run.workdir: f"{base} [{names.setdefault(_frozen(run.identity), run.name)}]"
            for run in group
        }
    labels = {}
    for i, run in enumerate(group):
        suffix = ", ".join(f"{name}={values[i]}" for name, values in told)
        labels[run.workdir] = f"{base} [{suffix}]" if suffix else base
    return labels


def _frozen(settings: Mapping[str, str]) -> tuple:
    return tuple(sorted(settings.items()))


def _told_apart(settings: Sequence[Mapping[str, str]]) -> list[tuple[str, tuple]]:
    """Gives what differs as (short name, values); one setting of many sets once."""
    values = {
        key: tuple(one.get(key, "unset") for one in settings)
        for key in differing(settings)
    }
    shorts = {(key.rsplit(".", 1)[-1], of): key for key, of in values.items()}
    names = [short for short, _ in shorts]
    return [
        (short if names.count(short) == 1 else key, of)
        for (short, of), key in shorts.items()
    ]


def _refuse_repeated_seeds(runs: Sequence[Run]) -> None:
    owners: dict[tuple[str, int], Run] = {}
    for run in runs:
        for seed in run.seeds:
            other = owners.setdefault((run.label, seed), run)
            if other is not run:
                raise ValueError(
                    f"{run.workdir}: seeds of the same settings must differ to be pooled, "
                    f"got seed {seed} of {run.label} again (first in {other.workdir}); "
                    "leave one of the two workdirs out"
                )


def _root(workdir: pathlib.Path) -> pathlib.Path:
    """The workdir of the whole run, of which this may be a branch."""
    return workdir.parents[1] if workdir.parent.name == "vary" else workdir


def _costs(path: pathlib.Path) -> dict[str, Any]:
    """What a run cost; ValueError where that is nothing that a run writes."""
    told = _json(path) or {}
    total, starts = told.get("total", {}), told.get("starts", [])
    try:
        whole = all(map(_is_start, starts))
        numbers = [value for key, value in total.items() if key != "hours"]
        numbers += total.get("hours", {}).values()
    except (TypeError, AttributeError, KeyError):
        whole, numbers = False, []
    if not whole or not all(value is None or _is_number(value) for value in numbers):
        raise ValueError(f"{path}: must be what a run cost; restore or remove it")
    return told


def _is_start(one: Mapping[str, Any]) -> bool:
    numbers = [one["share"], one["pue"]]
    numbers += [n for n in (one["watts"], one.get("intensity")) if n is not None]
    return all(map(_is_number, numbers)) and _texts(one)


def _texts(one: Mapping[str, Any]) -> bool:
    return all(
        isinstance(one[key], str | int) for key in ("source", "devices", "device")
    )


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e300


def _provenance(path: pathlib.Path) -> dict[str, Any]:
    found = _json(path) or {}
    if not isinstance(found.get("data") or {}, dict):
        raise ValueError(  # noqa: TRY004
            f"{path}: data must be a JSON object of sets, got "
            f"{str(found['data'])[:60]!r}; restore the file"
        )
    return found


def _json(path: pathlib.Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{path}: must be a JSON object, got {error}; restore it"
        ) from None
