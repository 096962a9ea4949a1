"""One measure of a suite: its entry, read and checked, and the probe that it makes."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from jbias import config as jc
from jbias import kinds
from jbias.data import base, labels
from jbias.evals import decisions, probe, probes
from jbias.training import parts

_OWN = ("probe", "sets", "images", "aggregates", "others")
_OWN_KINDS = {
    **dict.fromkeys(("probe", "others"), str),
    "sets": list[str],
    "images": int,
    "aggregates": str | list[str],
}
# What a probe takes that is known of an open set alone.
_OF_A_SET = {"measures", "dataset", "files"}


class Measure(NamedTuple):
    """One probe, and where it is shown."""

    name: str
    probe: str
    datasets: tuple[str, ...]
    images: int
    aggregates: tuple[str, ...]
    options: Mapping[str, Any]  # Of the probe.
    others: str = ""  # A set; "" is the one that is shown.

    @property
    def inside(self) -> bool:
        """Whether it looks into the network, and decides nothing."""
        return self.probe in probes.INSIDE

    @property
    def description(self) -> dict[str, Any]:
        """What decides its numbers, as JSON has it; options where they are unusual."""
        told = dict(
            probe=self.probe,
            images=self.images,
            aggregates=self.aggregates,
            options=unusual(self.probe, self.options),
        )
        return jc.plain({**told, **({"others": self.others} if self.others else {})})


class Task(NamedTuple):
    """One measure on one set."""

    measure: Measure
    dataset: str

    @property
    def name(self) -> str:
        return f"{self.measure.name}@{self.dataset}"


def read(name: str, options: Mapping[str, Any], known: Mapping) -> Measure:
    """Reads one entry of a suite's measures; `known` are its sets."""
    where = f"suite.measures.{name}"
    if "@" in name or "/" in name:
        raise ValueError(f"{where}: a measure's name must be without @ and /")
    for key, kind in _OWN_KINDS.items():
        if key in options:
            kinds.check(f"{where}.{key}", options[key], kind)
    shown = options.get("probe", name)
    known_probes = {**probes.PROBES, **probes.INSIDE}
    jc.check_known(f"{where}.probe", shown, known_probes)
    others = options.get("others", "")
    for key, dataset in (
        *(("sets", one) for one in options.get("sets", ())),
        *([("others", others)] if others else []),
    ):
        jc.check_known(f"{where}.{key}", dataset, known)
    taken = inspect.signature(known_probes[shown]).parameters
    if others and "others" not in taken:
        raise ValueError(f"{where}.others: {shown} shows no other images; leave it out")
    images = options.get("images", 0)
    if type(images) is not int or images < 0:
        raise ValueError(f"{where}.images: must be 0 (all) or more, got {images!r}")
    aggregates = options.get("aggregates", ("mean_prob",))
    if isinstance(aggregates, str) or not aggregates:
        raise ValueError(
            f"{where}.aggregates: must be one or more of "
            f"{', '.join(labels.AGGREGATES)}, got {aggregates!r}"
        )
    for rule in aggregates:
        jc.check_known(f"{where}.aggregates", rule, labels.AGGREGATES)
    return Measure(
        name=name,
        probe=shown,
        datasets=tuple(options.get("sets", ())),
        images=images,
        aggregates=tuple(aggregates),
        options={key: value for key, value in options.items() if key not in _OWN},
        others=others,
    )


def unusual(shown: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """A probe's options but for those that are as if nothing had been said."""
    known = {**probes.PROBES, **probes.INSIDE}
    taken = inspect.signature(known[shown]).parameters if shown in known else {}
    usual = {key: one.default for key, one in taken.items()}
    return {
        key: value
        for key, value in options.items()
        if key not in usual or _frozen(value) != _frozen(usual[key])
    }


def check(measure: Measure, side: int) -> None:
    """Refuses options that are wrong whatever the sets are, which need not be open."""
    if measure.inside:
        inside(measure)
        return
    make, where = probes.PROBES[measure.probe], f"suite.measures.{measure.name}"
    blank = np.zeros((1, side, side, 3), np.uint8)
    beside = {"side": side, "classes": ()}
    if measure.others or needs_others(measure):
        beside["others"] = probe.Others("", "", lambda: blank)
    of_a_set = _OF_A_SET & inspect.signature(make).parameters.keys()
    if of_a_set:
        options = {**dict.fromkeys(of_a_set), **measure.options}
        parts.check_options(where, make, options, 0)
        kinds.options(where, make, measure.options)
        return
    try:
        probe_of(measure, beside)
    except base.Missing:
        pass  # Told with what else is not here.


def inside(
    measure: Measure, classes: tuple[str, ...] = ()
) -> Callable[..., list[decisions.Number]]:
    """What looks into a network, with the measure's options in place.

    classes: names of what it decides among, for what takes them.
    """
    look = probes.INSIDE[measure.probe]
    where = f"suite.measures.{measure.name}"
    parts.check_options(where, look, measure.options, 4)
    kinds.options(where, look, measure.options)
    takes = "classes" in inspect.signature(look).parameters
    beside = {"classes": classes} if takes else {}
    return functools.partial(look, **{**beside, **measure.options})


def needs_others(measure: Measure) -> bool:
    """Whether its probe puts images into others, and has no way to do without."""
    taken = inspect.signature(probes.PROBES[measure.probe]).parameters
    return "others" in taken and taken["others"].default is inspect.Parameter.empty


def probe_of(measure: Measure, beside: Mapping[str, Any]) -> probe.Probe:
    """Makes a measure's probe, with what of `beside` it takes; the same each time."""
    taken = inspect.signature(probes.PROBES[measure.probe]).parameters
    given = {key: value for key, value in beside.items() if key in taken}
    return _made(measure.name, measure.probe, _frozen({**given, **measure.options}))


@functools.cache
def _made(name: str, shown: str, options: tuple) -> probe.Probe:
    return parts.call(f"suite.measures.{name}", probes.PROBES[shown], **dict(options))


def forget() -> None:
    """Makes all probes anew: what they read, such as people's answers, may be another."""
    _made.cache_clear()


def _frozen(tree: Any) -> Any:
    """A hashable copy of options: lists are tuples, dicts are pairs."""
    if isinstance(tree, Mapping):
        return tuple((key, _frozen(value)) for key, value in sorted(tree.items()))
    return tuple(map(_frozen, tree)) if isinstance(tree, list | tuple) else tree
