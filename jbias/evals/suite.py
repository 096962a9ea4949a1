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
                gives each, such as "stimuli=DIR"; may be left out

A missing set is reported, and the rest is measured.
"""

import functools
import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import UInt8

from jbias import build
from jbias import config as jc
from jbias.data import base, labels, loader, splits
from jbias.evals import probe, probes
from jbias.runs import costs
from jbias.runtime import mesh

_COMMON_KINDS = {
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
    def takes_others(self) -> bool:
        """Whether it names images of a set to put into its own, or cannot do without."""
        needed = _parameters(self.probe).get("others")
        return bool(self.others) or bool(needed and needed.default is needed.empty)

    @property
    def description(self) -> dict[str, Any]:
        """What decides its numbers, as JSON has it; options where they are unusual."""
        told = dict(
            probe=self.probe,
            images=self.images,
            aggregates=self.aggregates,
            options=unusual_options(self.probe, self.options),
        )
        return jc.to_dict({**told, **({"others": self.others} if self.others else {})})


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
    if "@" in name or "/" in name:
        raise ValueError(f"{where}: a measure's name must be without @ and /")
    for key, kind in _COMMON_KINDS.items():
        if key in options:
            jc.check_type(f"{where}.{key}", options[key], kind)
    shown = options.get("probe", name)
    jc.check_known(f"{where}.probe", shown, _makers())
    others = options.get("others", "")
    datasets = tuple(options.get("sets", ()))
    for dataset in datasets:
        jc.check_known(f"{where}.sets", dataset, known)
    if others:
        jc.check_known(f"{where}.others", others, known)
    if others and "others" not in _parameters(shown):
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
        datasets=datasets,
        images=images,
        aggregates=tuple(aggregates),
        options={key: options[key] for key in options if key not in _COMMON_KINDS},
        others=others,
    )


def _makers() -> dict[str, Callable]:
    """Of what a measure may show, and of what may look inside."""
    return {**probes.PROBES, **probes.INSIDE}


def _parameters(shown: str) -> Mapping[str, inspect.Parameter]:
    """What a probe takes; nothing where it is unknown."""
    make = _makers().get(shown)
    return inspect.signature(make).parameters if make else {}


def unusual_options(shown: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """A probe's options that differ from its defaults."""
    usual = {key: one.default for key, one in _parameters(shown).items()}
    return {
        key: value
        for key, value in options.items()
        if key not in usual or _frozen(value) != _frozen(usual[key])
    }


def check_measure(measure: Measure, side: int) -> None:
    """Refuses options that are wrong whatever the sets are, which need not be open."""
    make, where = _makers()[measure.probe], f"suite.measures.{measure.name}"
    blank = np.zeros((1, side, side, 3), np.uint8)
    beside = {"side": side, "classes": ()}
    if measure.takes_others:
        beside["others"] = probe.Partners("", "", lambda: blank)
    if of_a_set := _OF_A_SET & _parameters(measure.probe).keys():
        options = {**dict.fromkeys(of_a_set), **measure.options}
        build.check_options(where, make, options, 0)
        jc.check_annotations(where, make, measure.options)
        return
    try:
        build_probe(measure, beside)
    except base.Missing:
        pass  # Told with what else is not here.


def build_probe(measure: Measure, beside: Mapping[str, Any]) -> probe.Probe:
    """Makes a measure's probe, with what of `beside` it takes; the same each time."""
    taken = _parameters(measure.probe)
    given = {key: value for key, value in beside.items() if key in taken}
    return _cached_probe(
        measure.name, measure.probe, _frozen({**given, **measure.options})
    )


@functools.cache
def _cached_probe(name: str, shown: str, options: tuple) -> probe.Probe:
    where, options = f"suite.measures.{name}", dict(options)
    if shown not in probes.INSIDE:
        return build.call_checked(where, probes.PROBES[shown], **options)
    look = probes.INSIDE[shown]
    build.check_options(where, look, options, 4)
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

    @property
    def devices(self) -> jax.sharding.Mesh:
        """Where networks are measured."""
        return mesh.make(self.run["devices"])

    @property
    def reading(self) -> loader.ReaderOptions:
        """How images are read that lie in their files."""
        return loader.ReaderOptions(self.run["threads"] or cores())

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
            return mesh.replicate(chosen(), self.devices)

        def chosen() -> UInt8[np.ndarray, "n h w 3"]:
            count, size = OTHERS
            count = min(count, size // (3 * self.size**2), len(source))
            rows = np.linspace(0, len(source) - 1, count).round().astype(np.int64)
            held = self.images[dataset]
            if held is not None:
                return held[rows]
            kept = loader.EncodedImages(source, rows)
            return next(loader.batches([kept], count, self.reading))

        told = f"{source.fingerprint} {self.size} {self.run['devices']}"
        return probe.Partners(dataset, told, read)

    def tasks(self) -> Iterator[Task]:
        """Each measure on each of its sets, of those that are here."""
        for one in self.measures:
            for dataset in one.datasets:
                if {dataset, one.others or dataset} <= set(self.sources):
                    yield Task(one, dataset)


def open_suite(
    config: Mapping[str, Any], say: Callable[[str], None], *, only: Sequence[str] = ()
) -> Suite:
    """Opens every set that is there, and checks all options before anything is measured.

    only: names of measures; none is all. Other measures' sets are not opened.
    """
    _cached_probe.cache_clear()  # What probes read, such as answers, may be another.
    config = jc.to_dict(config)
    needs = {"sets": {}, "measures": {}, **config.pop("needs", {})}
    for key in config:
        jc.check_known("suite", key, (*_PARTS, "run", "needs"), "key")
    _check_kinds(config)
    run = {key: usual for key, (usual, _) in _RUN.items()} | config.get("run", {})
    for key in run:
        jc.check_known("suite.run", key, _RUN)
    for name in only:
        needed = needs["measures"].get(name)
        if needed and name not in config["measures"]:
            raise ValueError(
                f"--only: {name!r} needs {needed} in the argument of the "
                "suite, FILE:ARGS; add it"
            )
        jc.check_known("--only", name, config["measures"])
    costs.parse_energy("suite.run.energy", run["energy"])
    measures = tuple(
        read_measure(name, options, config["sets"])
        for name, options in config["measures"].items()
        if not only or name in only
    )
    for one in measures:
        check_measure(one, config["size"])
    used = {name for one in measures for name in (*one.datasets, one.others) if name}
    found, missing, told = {}, {}, {}
    for name, options in config["sets"].items():
        if name not in used:
            continue
        try:
            found[name] = splits.open_test_source(
                f"suite.sets.{name}", options, config["size"]
            )
        except ValueError as error:
            if not _is_absent(error):
                raise
            missing[name] = " ".join(str(error).split())
            # Sets that lie in one folder are told of once.
            told.setdefault(_reason(error, needs["sets"].get(name, "")), []).append(
                name
            )
    for one in measures:
        asked = "aggregates" in config["measures"][one.name]
        for name in one.datasets if asked else ():
            if "aggregate" in config["sets"][name]:
                raise ValueError(
                    f"suite.measures.{one.name}.aggregates: suite.sets.{name} has an "
                    "aggregate of its own, which goes before; leave one of the two"
                )
    for (why, _), names in told.items():
        lacking = ", ".join(names)
        expected = missing[names[0]].partition("; expected: ")[1:]
        say(
            f"not here, so not measured: suite.sets.{lacking}: {why}{''.join(expected)}"
        )
    if not found:
        raise ValueError("suite: none of its sets is there; see what each needs above")
    images = loader.load_into_memory(
        {}, found, say, gib=run["gib"], threads=run["threads"] or cores()
    )
    images = {name: images.get(name) for name in found}
    suite = Suite(config["size"], found, images, missing, measures, run, config)
    return _checked(suite, needs["measures"], say)


def _check_kinds(config: Mapping[str, Any]) -> None:
    """Refuses a suite that lacks a part, or has values of another kind in it."""
    jc.check_finite("suite", config)
    for key, kind in _PARTS.items():
        if key not in config:
            raise ValueError(f"suite: {key!r} is missing")
        jc.check_type(f"suite.{key}", config[key], kind)
    if not 1 <= config["size"] <= _SIDE:
        raise ValueError(
            f"suite.size: must be 1 to {_SIDE} pixels, got {config['size']}"
        )
    for part in ("sets", "measures"):
        for name, options in config[part].items():
            jc.check_type(f"suite.{part}.{name}", options, dict)
    jc.check_type("suite.run", config.get("run", {}), dict)
    for key, value in config.get("run", {}).items():
        jc.check_type(f"suite.run.{key}", value, _RUN.get(key, (None, Any))[1])
        if key in ("batch", "agree", "threads", "gib") and value < 0:
            raise ValueError(f"suite.run.{key}: must be 0 or more, got {value}")


def _checked(
    suite: Suite, needs: Mapping[str, str], say: Callable[[str], None]
) -> Suite:
    """The suite, its options in order, without what lacks more than a set.

    Such are people's answers, which a probe reads.
    """
    lacking: dict[tuple[str, str], str] = {}
    for one, dataset in suite.tasks():
        try:
            suite.make_probe(one, dataset)
        except base.Missing as error:
            lacking[one.name, dataset] = f"{_argument(needs, one.name)}{error}"
    for why in dict.fromkeys(lacking.values()):
        names = dict.fromkeys(
            name for (name, _), said in lacking.items() if said == why
        )
        say(f"not here, so not measured: suite.measures.{', '.join(names)}: {why}")
    left = tuple(
        one._replace(
            datasets=tuple(d for d in one.datasets if (one.name, d) not in lacking)
        )
        for one in suite.measures
    )
    absent = {f"{name}@{dataset}": why for (name, dataset), why in lacking.items()}
    suite = suite._replace(measures=left, missing={**suite.missing, **absent})
    if absent and not any(suite.tasks()):
        raise ValueError("suite: nothing is left to measure; see above what is lacking")
    return suite


def _argument(needs: Mapping[str, str], name: str) -> str:
    """The first argument that gives a measure: "humans=", or nothing."""
    return needs[name].partition("=")[0] + "=" if name in needs else ""


def _reason(error: ValueError, needed: str) -> tuple[str, str]:
    """Why sets are not there, without what each of them is, and what is expected."""
    cause = error if isinstance(error, base.Missing) else error.__cause__
    why = " ".join(str(cause).split()).partition("; expected: ")[0]
    why = why.partition(": ")[2] or why
    if needed and why.startswith("root "):
        why = f"{needed.partition('=')[0]}={why.removeprefix('root')}"
    return why, needed


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _is_absent(error: ValueError) -> bool:
    return isinstance(error, base.Missing) or isinstance(error.__cause__, base.Missing)
