"""What is measured: a suite's sets, opened, and its measures, checked.

A suite is a config (configs/suites/) with

    size        pixels of the images' sides
    sets        by name, options of data.load: dict(data=..., split=..., root=...)
    measures    by name, dict(probe=..., sets=(...), and the probe's own options);
                `images`, how many of a set are shown, evenly spaced (0: all);
                `aggregates`, rules for several classes that answer for one;
                `others`, the set whose images a probe puts into these (by itself the
                same set, where the probe cannot do without)
    run         step (of a run: best, latest or a number, where --step says nothing),
                batch (0: 256 on accelerators, 32 on CPU), precision, agree (how many
                images float32 answers too where that is lower, under a measure's first
                condition and its last), decisions (whether they are kept), devices,
                gib, threads, energy (what costs assume: entries of costs.Energy)
    needs       of `sets`, and of `measures` that it has or would have, the argument that
                gives each, such as "stimuli=DIR"

`run` and `needs` may be left out. A missing set is reported, and the rest is measured.
"""

import contextlib
import functools
import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Int, UInt8

from jbias import build, evals, extensions
from jbias import config as jc
from jbias.data import base, labels, loader, splits
from jbias.evals import inference, probe, probe_registry
from jbias.runs import costs
from jbias.runtime import mesh

_COMMON_KINDS = {"probe": str, "others": str, "sets": list[str], "images": int}
_COMMON_KINDS["aggregates"] = str | list[str]
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
        return self.probe in probe_registry.INSIDE

    @property
    def takes_others(self) -> bool:
        """Whether it names images of a set to put into its own, or cannot do without."""
        needed = _parameters(self.probe).get("others")
        return bool(self.others) or bool(needed and needed.default is needed.empty)

    @property
    def description(self) -> dict[str, Any]:
        """What decides its numbers, as JSON has it; options where they are unusual."""
        told = dict(probe=self.probe, images=self.images, aggregates=self.aggregates)
        told |= {"options": unusual_options(self.probe, self.options)}
        return jc.to_dict(told | ({"others": self.others} if self.others else {}))


class Task(NamedTuple):
    """One measure on one set."""

    measure: Measure
    dataset: str

    @property
    def name(self) -> str:
        return f"{self.measure.name}@{self.dataset}"


def read_measure(name: str, options: Mapping[str, Any], known: Mapping) -> Measure:
    """Reads one entry of a suite's measures; `known` are its sets."""
    where = f"suite.measures.{name}"
    if "@" in name:
        raise ValueError(f"{where}: a measure's name must be without @, got {name!r}")
    jc.check_folder_name("suite.measures: a name", name)
    for key, kind in _COMMON_KINDS.items():
        if key in options:
            jc.check_type(f"{where}.{key}", options[key], kind)
    if "sets" not in options:
        jc.refuse(f"{where}.sets", "name sets of the suite, got none")
    usual = dict(probe=name, sets=(), images=0, aggregates=("mean_prob",), others="")
    given = {key: options.get(key, default) for key, default in usual.items()}
    shown, datasets, images, aggregates, others = given.values()
    _maker(where, shown)
    for dataset in datasets:
        jc.check_known(f"{where}.sets", dataset, known)
        if "aggregates" in options and "aggregate" in known[dataset]:
            raise ValueError(
                f"{where}.aggregates: suite.sets.{dataset} has an aggregate of its own, "
                "which goes before; leave one of the two"
            )
    if others:
        jc.check_known(f"{where}.others", others, known)
    if others and "others" not in _parameters(shown):
        raise ValueError(f"{where}.others: {shown} shows no other images; leave it out")
    probe.check(images >= 0, f"{where}.images", "must be 0 (all) or more", images)
    some = not isinstance(aggregates, str) and bool(aggregates)
    must = f"must be one or more of {', '.join(labels.AGGREGATES)}"
    probe.check(some, f"{where}.aggregates", must, aggregates)
    for rule in aggregates:
        jc.check_known(f"{where}.aggregates", rule, labels.AGGREGATES)
    own = {key: options[key] for key in options if key not in _COMMON_KINDS}
    of = tuple(datasets), images, tuple(aggregates)
    return Measure(name, shown, *of, own, others)


# Of what a measure may show, and of what may look inside.
MAKERS: Mapping[str, Callable] = {**probe_registry.PROBES, **probe_registry.INSIDE}
_REGISTRY = extensions.Registry(
    group="measures",
    known=MAKERS,
    must="a jbias.evals.probe.Probe",
    fits=lambda result: isinstance(result, probe.Probe),
    guarded_fields=("show", "numbers", "move", "static", "look"),
)


def _maker(where: str, shown: str) -> Callable:
    """What makes a probe, ours or the user's own; ValueError for none."""
    return extensions.find(f"{where}.probe", shown, _REGISTRY)


def _parameters(shown: str) -> Mapping[str, inspect.Parameter]:
    """What a probe takes; nothing where it is unknown."""
    with contextlib.suppress(ValueError):
        return inspect.signature(_maker("suite", shown)).parameters
    return {}


def unusual_options(shown: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """A probe's options that differ from its defaults."""
    usual = {key: _frozen(one.default) for key, one in _parameters(shown).items()}
    told = options.items()
    return {k: x for k, x in told if k not in usual or _frozen(x) != usual[k]}


def check_measure(measure: Measure, side: int) -> None:
    """Refuses options that are wrong whatever the sets are, which need not be open."""
    where = f"suite.measures.{measure.name}"
    make = _maker(where, measure.probe)
    if of_a_set := _OF_A_SET & _parameters(measure.probe).keys():
        options = {**dict.fromkeys(of_a_set), **measure.options}
        build.check_options(where, make, options, num_positional=0)
        jc.check_annotations(where, make, measure.options)
        return
    blank = np.zeros((1, side, side, 3), np.uint8)
    beside = {"side": side, "classes": ()}
    if measure.takes_others:
        beside["others"] = probe.Partners("", "", lambda: blank)
    with contextlib.suppress(base.Missing):  # Told with what else is not here.
        build_probe(measure, beside)


def build_probe(measure: Measure, beside: Mapping[str, Any]) -> probe.Probe:
    """Makes a measure's probe, with what of `beside` it takes; the same each time."""
    taken = _parameters(measure.probe)
    given = {key: value for key, value in beside.items() if key in taken}
    options = _frozen({**given, **measure.options})
    return _cached_probe(measure.name, measure.probe, options)


@functools.cache
def _cached_probe(name: str, shown: str, options: tuple) -> probe.Probe:
    where, options = f"suite.measures.{name}", dict(options)
    if shown not in probe_registry.INSIDE:
        return build.call_checked(where, _maker(where, shown), **options)
    look = probe_registry.INSIDE[shown]
    build.check_options(where, look, options, num_positional=4)
    jc.check_annotations(where, look, options)
    numbers = functools.partial(look, **options)
    return probe.Probe({"": ()}, probe.identity, numbers, inside=True)


def _frozen(tree: Any) -> Any:
    """A hashable copy of options: lists are tuples, dicts are pairs."""
    if isinstance(tree, Mapping):
        return tuple((key, _frozen(value)) for key, value in sorted(tree.items()))
    return tuple(map(_frozen, tree)) if isinstance(tree, list | tuple) else tree


_RUN = {  # By default, and of what type.
    "step": ("best", str | int),
    "batch": (0, int),
    "precision": ("auto", str),
    "agree": (256, int),
    "decisions": (True, bool),
    "devices": (0, int),
    "gib": (16.0, float),
    "threads": (0, int),
    "energy": ({}, dict),
}
_PARTS = {"size": int, "sets": dict, "measures": dict}
_SIDE = 16_384
ABSENT = "not here, so not measured: "
# So many images of another set a probe gets, or fewer that take so many bytes.
OTHERS = 2048, 2**28


class Suite(NamedTuple):
    """All that is measured of each network."""

    size: int
    sources: Mapping[str, base.Source]
    images: Mapping[str, UInt8[np.ndarray, "n h w c"] | None]  # None: read each time.
    missing: Mapping[str, str]  # What is not there, mostly sets, and what it needs.
    measures: tuple[Measure, ...]
    run: Mapping[str, Any]
    config: Mapping[str, Any]
    stimuli: inference.SlowStimuli

    @property
    def devices(self) -> jax.sharding.Mesh:
        """Where networks are measured."""
        return mesh.make(self.run["devices"])

    @property
    def dtype(self) -> Any:
        """The precision that is asked for."""
        return mesh.dtype(self.run["precision"])

    @property
    def reading(self) -> loader.ReaderOptions:
        """How images are read that lie in their files."""
        return loader.ReaderOptions(self.run["threads"] or cores())

    @property
    def lacking(self) -> list[str]:
        """The names of what is missing, each with the reason, a line each."""
        return [
            f"{name}: {reason.removeprefix(f'suite.sets.{name}: ')}"
            for name, reason in self.missing.items()
        ]

    def make_probe(
        self, measure: Measure, dataset: str, classes: tuple[str, ...] = ()
    ) -> probe.Probe:
        """The probe of a measure on a set; the same object each time.

        classes: names of what a network decides among there.
        """
        source = self.sources[dataset]
        store = getattr(source, "store", None)
        beside = {
            "side": self.size,
            "measures": tuple(source.measures),
            "dataset": source.name.partition("/")[2].partition("[")[0],
            "files": tuple(getattr(store, "names", ())),  # () where it has none.
            "classes": classes,
        }
        if measure.takes_others:
            beside["others"] = self.partners(measure.others or dataset)
        return build_probe(measure, beside)

    def partners(self, dataset: str) -> probe.Partners:
        """Images of a set, evenly spaced, few enough to be kept on each device."""
        source = self.sources[dataset]

        def read() -> UInt8[jax.Array, "n h w 3"]:
            most, size = OTHERS
            count = min(most, size // (3 * self.size**2), len(source))
            rows = np.linspace(0, len(source) - 1, count).round().astype(np.int64)
            images = self.stored(dataset, rows)
            if isinstance(images, loader.EncodedImages):
                images = next(loader.batches([images], count, self.reading))
            return mesh.replicate(images, self.devices)

        told = f"{source.fingerprint} {self.size} {self.run['devices']}"
        return probe.Partners(dataset, told, read)

    def stored(
        self, dataset: str, index: Int[np.ndarray, "n"]
    ) -> UInt8[np.ndarray, "n h w 3"] | loader.EncodedImages:
        """Images of a set by their numbers, in memory or in their files."""
        held = self.images[dataset]
        if held is not None:
            return held[index]
        return loader.EncodedImages(self.sources[dataset], index)

    def tasks(self) -> Iterator[Task]:
        """Each measure on each of its sets, of those that are here."""
        for one in self.measures:
            for task in (Task(one, dataset) for dataset in one.datasets):
                sets = {task.dataset, one.others or task.dataset}
                if sets <= self.sources.keys() and task.name not in self.missing:
                    yield task


def open_suite(
    config: Mapping[str, Any], say: probe.Say, *, only: Sequence[str] = ()
) -> Suite:
    """Opens every set that is there, and checks all options before anything is measured.

    only: names of measures; none is all. Other measures' sets are not opened.
    """
    _cached_probe.cache_clear()  # What probes read, such as answers, may be another.
    config = jc.to_dict(config)
    needs = {"sets": {}, "measures": {}, **config.pop("needs", {})}
    run = _check_kinds(config)
    for name in only:
        needed = needs["measures"].get(name)
        if needed and name not in config["measures"]:
            where = "in the argument of the suite, FILE:ARGS"
            raise ValueError(f"--only: {name!r} needs {needed} {where}; add it")
        jc.check_known("--only", name, config["measures"])
    costs.parse_energy("suite.run.energy", run["energy"])
    asked = {k: x for k, x in config["measures"].items() if not only or k in only}
    for key, options in config["sets"].items():
        for name in options.get("measures", ()):
            evals.find_measure(name, f"suite.sets.{key}.measures")
    measures = tuple(read_measure(*one, config["sets"]) for one in asked.items())
    for one in measures:
        check_measure(one, config["size"])
    used = {name for one in measures for name in (*one.datasets, one.others)}
    found, missing, told = {}, {}, {}
    for name, options in config["sets"].items():
        jc.check_folder_name("suite.sets: a name", name)
        if name not in used:
            continue
        where = f"suite.sets.{name}"
        try:
            found[name] = splits.open_test_source(where, options, config["size"])
        except ValueError as error:
            lack = error if isinstance(error, base.Missing) else error.__cause__
            if not isinstance(lack, base.Missing):
                raise
            missing[name] = " ".join(str(error).split())
            # Sets that lie in one folder are told of once.
            needed = needs["sets"].get(name, "")
            told.setdefault((_reason(lack, needed), needed), []).append(name)
    for (why, _), names in told.items():
        expected = "".join(missing[names[0]].partition("; expected: ")[1:])
        say(f"{ABSENT}suite.sets.{', '.join(names)}: {why}{expected}")
    if not found:
        raise ValueError("suite: none of its sets is there; see what each needs above")
    threads = run["threads"] or cores()
    images = loader.load_into_memory({}, found, say, gib=run["gib"], threads=threads)
    images = {name: images.get(name) for name in found}
    of = config["size"], found, images, missing, measures, run, config
    suite = Suite(*of, inference.SlowStimuli())
    return _checked(suite, needs["measures"], say)


def _check_kinds(config: Mapping[str, Any]) -> dict[str, Any]:
    """Refuses a suite that lacks a part, or has values of another kind; returns its `run`."""
    for key in config:
        jc.check_known("suite", key, (*_PARTS, "run", "needs"), "key")
    jc.check_finite("suite", config)
    for key, kind in _PARTS.items():
        if key not in config:
            raise ValueError(f"suite: {key!r} is missing")
        jc.check_type(f"suite.{key}", config[key], kind)
    fits, must = 1 <= config["size"] <= _SIDE, f"must be 1 to {_SIDE} pixels"
    probe.check(fits, "suite.size", must, config["size"])
    for part in ("sets", "measures"):
        for name, options in config[part].items():
            jc.check_type(f"suite.{part}.{name}", options, dict)
    given = config.get("run", {})
    jc.check_type("suite.run", given, dict)
    for key, value in given.items():
        jc.check_known("suite.run", key, _RUN)
        jc.check_type(f"suite.run.{key}", value, _RUN[key][1])
        if key in ("batch", "agree", "threads", "gib") and value < 0:
            raise ValueError(f"suite.run.{key}: must be 0 or more, got {value}")
    return {key: usual for key, (usual, _) in _RUN.items()} | given


def _checked(suite: Suite, needs: Mapping[str, str], say: probe.Say) -> Suite:
    """The suite, its options in order, without what lacks more than a set.

    Such are people's answers, which a probe reads.
    """
    absent: dict[str, str] = {}
    for task in suite.tasks():
        try:
            suite.make_probe(*task)
        except base.Missing as error:
            name = task.measure.name  # Its first argument: "humans=", or nothing.
            flag = f"{needs[name].partition('=')[0]}=" if name in needs else ""
            absent[task.name] = f"{flag}{error}"
    for why in dict.fromkeys(absent.values()):
        lack = (key.partition("@")[0] for key, said in absent.items() if said == why)
        say(f"{ABSENT}suite.measures.{', '.join(dict.fromkeys(lack))}: {why}")
    suite = suite._replace(missing={**suite.missing, **absent})
    if absent and not any(suite.tasks()):
        raise ValueError("suite: nothing is left to measure; see above what is lacking")
    return suite


def _reason(lack: base.Missing, needed: str) -> str:
    """Why a set is not there, without what it is, and what is expected."""
    why = " ".join(str(lack).split()).partition("; expected: ")[0]
    why = why.partition(": ")[2] or why
    if needed and why.startswith("root "):
        return f"{needed.partition('=')[0]}={why.removeprefix('root')}"
    return why


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))
