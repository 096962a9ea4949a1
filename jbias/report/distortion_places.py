"""Which measures a group of networks has, and what they decided: by seed, by condition."""

import functools
import json
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from jaxtyping import Float

from jbias.evals import decisions
from jbias.report import distortion_read, measured_read, tables

# Sets that are never what is meant by "test".
_NO_TESTS = (
    *("train", "valid", "other", "edge", "silhouette", "cue-conflict"),
    *("stacked_cifar", "stacked_mnist"),
)
# What a probe does where the suite says nothing.
_DEFAULTS = {
    "cut_occlusion": {
        "area": "beta",
        "placement": "unrestricted",
        "fills": ("black", "mean", "other"),
    },
    "occlusion": {"fill": "black", "site": "stage3", "quantise": False},
}
# Options that say which conditions there are; others say what a condition is.
_WHICH = ("fills", "fractions", "grids", "masks", "orders")


def where(
    group: distortion_read.Group, probe: str, *, on: str = "test", **wanted
) -> measured_read.Place | None:
    """Gives the measure of a probe with such options on a set, and the set.

    on: "test" is any set that is neither of training nor validation, and no cue conflict.
    ValueError where several measures fit, or the networks' differ in their options.
    """
    found: dict[measured_read.Place, dict[str, measured_read.Network]] = {}
    for one in group.networks:
        for place in one.of(probe):
            if _fits(one, place, probe, wanted):
                found.setdefault(place, {})[_kind(one, place, probe)] = one
    sets = [place for place in found if place[1] == on]
    if not sets and on == "test":
        sets = [place for place in found if place[1] not in _NO_TESTS]
        sets = [place for place in sets if place[1] == sets[0][1]]
    if len(sets) > 1 or any(len(found[place]) > 1 for place in sets):
        names = ", ".join("@".join(place) for place in sets)
        last = list(found[sets[-1]].values())[-1]
        raise ValueError(
            f"{last.workdir}: must have one measure of {probe} for this, with the same "
            f"options for all seeds of {group.key.words}, got {names} "
            f"({sum(len(found[place]) for place in sets)} kinds); name workdirs of one"
        )
    return sets[0] if sets else None


def _options(one, place, probe: str) -> dict:
    return _DEFAULTS.get(probe, {}) | one.measures[place]["measure"].get("options", {})


def _kind(one, place, probe: str) -> str:
    """Says what a condition of a measure is, as text: seeds must have the same."""
    options = _options(one, place, probe)
    what = {name: value for name, value in options.items() if name not in _WHICH}
    return json.dumps(what, sort_keys=True)


def caveats(
    groups: Mapping[distortion_read.Key, distortion_read.Group],
) -> Iterator[str]:
    """Says which measures are not alike for all groups, or not of usual saliency."""
    found: dict[tuple, dict[str, list[str]]] = {}
    for key, group in groups.items():
        for one in group.networks:
            for place, told in one.measures.items():
                kind = _kind(one, place, told["measure"]["probe"])
                by = found.setdefault((key.model, key.data, "@".join(place)), {})
                by.setdefault(kind, []).append(key.method)
    for (model, data, measure), by in found.items():
        usual = [json.loads(kind) for kind in by]
        odd = any(
            x.get("quantise") or x.get("site", "stage3") != "stage3" for x in usual
        )
        if len(by) > 1 or odd:
            told = (f"{tables.join(dict.fromkeys(x))} {kind}" for kind, x in by.items())
            yield (
                f"{measure} ({data}, {model}) was measured in {len(by)} ways: "
                f"{'; '.join(told)}."
            )


def _fits(one, place, probe: str, wanted: Mapping) -> bool:
    options = _options(one, place, probe)
    if "fills" in options and "fill" in wanted:
        options["fill"] = wanted["fill"] if wanted["fill"] in options["fills"] else ""
    return all(options.get(name) == value for name, value in wanted.items())


def hidden(
    group: distortion_read.Group, *, fill: str, on: str
) -> dict[int, dict[str, decisions.Number]]:
    """Gives, by seed, accuracy in [0, 1] by what is hidden; "" is nothing."""
    place = where(group, "occlusion", on=on, fill=fill)
    told = {
        seed: accuracies(one, place)
        for seed, one in zip(group.seeds, group.networks, strict=True)
    }
    return {seed: by for seed, by in told.items() if "" in by}


def joined(
    found: Mapping[int, Mapping[str, decisions.Number]], seeds: Sequence[int]
) -> dict[str, Float[np.ndarray, "r"]]:
    """Gives the values of seeds by condition, of conditions that all of them have."""
    first, *others = (found[seed] for seed in seeds)
    return {
        name: np.array([found[seed][name].value for seed in seeds])
        for name in first
        if all(name in one for one in others)
    }


def accuracies(
    one: measured_read.Network, place: measured_read.Place | None
) -> dict[str, decisions.Number]:
    """Gives accuracy in [0, 1] by condition."""
    return {
        number.condition: number
        for number in one.numbers.get(place, ())
        if number.metric == "accuracy" and number.value is not None
    }


def classes(
    group: distortion_read.Group, place: measured_read.Place
) -> tuple[str, ...]:
    """Gives the names of what the networks of a group decided among at a place.

    A class that none decided for counts, too. ValueError where they were not kept, or are
    not those of all.
    """
    those = [one for one in group.networks if place in one.measures]
    named = dict.fromkeys(one.classes(place) for one in those)
    file = those[0].workdir / "measures" / f"{'@'.join(place)}.json"
    if len(named) != 1 or not all(named):
        raise ValueError(
            f"{file}: must have the classes, the same for all seeds of {group.key.words}"
            f" ({group.key.model}), got {len(named)} lists of"
            f" {', '.join(str(len(one)) for one in named)}; measure them again"
        )
    return next(iter(named))


def decided(
    group: distortion_read.Group, place: measured_read.Place | None, condition: str
) -> list[tuple[int, tuple[decisions.Decisions, decisions.Decisions]]]:
    """Gives seeds and their decisions on the images as they are and as distorted."""
    found = []
    for seed, one in zip(group.seeds, group.networks, strict=True):
        if place in one.measures:
            by = _kept(one, place)
            if "" in by and condition in by:
                found.append((seed, (by[""], by[condition])))
    return found


@functools.lru_cache(maxsize=16)
def _kept(one: measured_read.Network, place: measured_read.Place) -> dict:
    return one.decided(place)
