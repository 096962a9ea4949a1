"""One measure of a suite: its entry, read and checked, and the probe that it makes."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jbias import config as jc
from jbias import parts
from jbias.data import labels
from jbias.evals import decisions, probe, probes

_OWN = ("probe", "sets", "images", "aggregates", "others")


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
    def told(self) -> dict[str, Any]:
        """What decides its numbers, as JSON has it."""
        told = dict(
            probe=self.probe,
            images=self.images,
            aggregates=self.aggregates,
            options=self.options,
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
    shown = options.get("probe", name)
    if shown not in (known_probes := {**probes.PROBES, **probes.INSIDE}):
        raise ValueError(
            f"{where}.probe: unknown {shown!r}; {jc.nearest(shown, known_probes)}"
        )
    others = options.get("others", "")
    for key, dataset in (
        *(("sets", one) for one in options.get("sets", ())),
        *([("others", others)] if others else []),
    ):
        if dataset not in known:
            raise ValueError(
                f"{where}.{key}: unknown {dataset!r}; {jc.nearest(dataset, known)}"
            )
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
        if rule not in labels.AGGREGATES:
            raise ValueError(
                f"{where}.aggregates: unknown {rule!r}; "
                f"{jc.nearest(rule, labels.AGGREGATES)}"
            )
    return Measure(
        name=name,
        probe=shown,
        datasets=tuple(options.get("sets", ())),
        images=images,
        aggregates=tuple(aggregates),
        options={key: value for key, value in options.items() if key not in _OWN},
        others=others,
    )


def inside(measure: Measure) -> Callable[..., list[decisions.Number]]:
    """What looks into a network, with the measure's options in place."""
    look = probes.INSIDE[measure.probe]
    parts.check_options(f"suite.measures.{measure.name}", look, measure.options, 4)
    return functools.partial(look, **measure.options)


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
