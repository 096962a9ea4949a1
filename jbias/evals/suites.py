"""Suites: the data sets and measures of an evaluation, opened and checked.

A suite is a config (configs/suites/) with

    size        side length of the images, in pixels
    sets        by name, options of data.load: dict(data=..., split=..., root=...)
    measures    by name, dict(probe=..., sets=(...), and the options of the probe):
                `images`, the number of images of a set to show, evenly spaced (0: all);
                `aggregates`, rules that combine several network classes into one class
                of the set;
                `others`, the set of partner images, which a probe combines with these
                (default: the same set, if the probe needs such images)
    run         step (of a run: best, latest or a number; used without --step),
                batch (0: 256 on accelerators, 32 on CPU), precision, agree (number of
                images that are also decided in float32, if the precision is lower, under
                the first and the last condition of a measure), decisions (true: store them),
                devices, gib, threads, energy (assumptions for costs: entries of
                costs.Energy)
    needs       for entries of `sets` and of `measures` (also absent ones): the argument
                that provides them, such as "stimuli=DIR"

`run` and `needs` are optional. Missing sets are reported, and the remaining sets are measured.
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

from jbias import build, errors, evals, extensions
from jbias import config as jc
from jbias.data import base, class_maps, config_sets, loader
from jbias.evals import inference, registry
from jbias.evals.activations import inside
from jbias.measures import counting
from jbias.runs import costs
from jbias.runtime import console, mesh
from jbias.stimuli import shown

_COMMON_KINDS = {
    "probe": str,
    "others": str,
    "sets": list[str],
    "images": int,
    "aggregates": str | list[str],
}
# Arguments of probes whose values are known only once a set is open.
_SET_ARGUMENTS = {"measures", "dataset", "files"}


# What the name of a probe in a suite stands for.
Built = counting.Counting | shown.Stimuli | inside.Inside


class Measure(NamedTuple):
    """A probe with its options and the sets whose images are shown."""

    name: str
    probe: str  # A key of registry.PROBES, or the name of the user's own probe.
    datasets: tuple[str, ...]  # Names of sets.
    images: int  # Number of images of a set to show; 0: all.
    aggregates: tuple[str, ...]  # Rules, some of data.class_maps.AGGREGATES.
    options: Mapping[str, Any]  # Options of the probe.
    others: str = ""  # The set of the partner images; "" is the set that is shown.

    @property
    def takes_others(self) -> bool:
        """Return True if the probe combines the images that it shows with partner images.

        True if the config names the set of partner images, or if the probe has a required
        argument `others`.
        """
        parameter = _probe_parameters(self.probe).get("others")
        is_required = parameter and parameter.default is parameter.empty
        return bool(self.others) or bool(is_required)

    @property
    def description(self) -> dict[str, Any]:
        """Return the entries that determine the measure's numbers, as JSON types.

        Keys: "probe", "images", "aggregates", "options" (only those that differ from the
        probe's defaults) and, if given, "others".
        """
        description = {
            "probe": self.probe,
            "images": self.images,
            "aggregates": self.aggregates,
            "options": changed_options(self.probe, self.options),
        }
        if self.others:
            description["others"] = self.others
        return jc.to_dict(description)


class Task(NamedTuple):
    """A measure with one of its sets."""

    measure: Measure
    dataset: str  # Name of the set.

    @property
    def name(self) -> str:
        """Return "measure@set"."""
        return f"{self.measure.name}@{self.dataset}"


def read_measure(
    name: str, options: Mapping[str, Any], set_options: Mapping[str, Mapping[str, Any]]
) -> Measure:
    """Return one entry of a suite's `measures` as a Measure; ValueError if it is invalid.

    name, options: key and value of the entry. set_options: the suite's `sets`, by name.
    """
    where = f"suite.measures.{name}"
    if "@" in name:
        raise ValueError(f"{where}: a measure's name must be without @, got {name!r}")
    errors.check_folder_name("suite.measures: a name", name)
    for key, kind in _COMMON_KINDS.items():
        if key in options:
            errors.check_type(f"{where}.{key}", options[key], kind)
    if "sets" not in options:
        errors.refuse(f"{where}.sets", "name sets of the suite, got none")
    probe_name = options.get("probe", name)
    datasets = options["sets"]
    images = options.get("images", 0)
    aggregates = options.get("aggregates", ("mean_prob",))
    others = options.get("others", "")
    _find_maker(where, probe_name)
    for dataset in datasets:
        errors.check_known(f"{where}.sets", dataset, set_options)
        if "aggregates" in options and "aggregate" in set_options[dataset]:
            raise ValueError(
                f"{where}.aggregates: suite.sets.{dataset} has an aggregate of its own, "
                "which takes precedence; remove one of the two"
            )
    if others:
        errors.check_known(f"{where}.others", others, set_options)
    if others and "others" not in _probe_parameters(probe_name):
        raise ValueError(
            f"{where}.others: {probe_name} shows no other images; leave it out"
        )
    errors.check(images >= 0, f"{where}.images", "be 0 (all) or more", images)
    has_rules = not isinstance(aggregates, str) and bool(aggregates)
    must = f"be one or more of {', '.join(class_maps.AGGREGATES)}"
    errors.check(has_rules, f"{where}.aggregates", must, aggregates)
    for rule in aggregates:
        errors.check_known(f"{where}.aggregates", rule, class_maps.AGGREGATES)
    return Measure(
        name=name,
        probe=probe_name,
        datasets=tuple(datasets),
        images=images,
        aggregates=tuple(aggregates),
        options={key: options[key] for key in options if key not in _COMMON_KINDS},
        others=others,
    )


_REGISTRY = extensions.Registry(
    group="measures",
    known=registry.PROBES,
    must="a jbias.stimuli.shown.Stimuli, jbias.measures.counting.Counting or "
    "jbias.evals.activations.inside.Inside",
    fits=lambda result: isinstance(
        result, counting.Counting | shown.Stimuli | inside.Inside
    ),
    guarded_fields=("show", "numbers", "static", "network_steps", "move", "look"),
)


def _find_maker(where: str, probe_name: str) -> Callable:
    """Return the function that makes a probe, built in or the user's; ValueError if unknown.

    where: the entry of the suite, for the error message.
    """
    if probe_name in registry.PROBES:
        return registry.PROBES[probe_name].load()
    return extensions.find(f"{where}.probe", probe_name, _REGISTRY)


def _is_inside(probe_name: str) -> bool:
    """Return True for the name of a measure of jbias that reads activations."""
    row = registry.PROBES.get(probe_name)
    return row is not None and row.kind is inside.Inside


def _probe_parameters(probe_name: str) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a probe's maker by name; empty for an unknown probe."""
    with contextlib.suppress(ValueError):
        return inspect.signature(_find_maker("suite", probe_name)).parameters
    return {}


def changed_options(probe_name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options, by name, whose values differ from the defaults of the probe.

    Options without a default are included; for an unknown probe, all options are included.
    """
    defaults = {
        key: _freeze(parameter.default)
        for key, parameter in _probe_parameters(probe_name).items()
    }
    return {
        key: value
        for key, value in options.items()
        if key not in defaults or _freeze(value) != defaults[key]
    }


def check_measure(measure: Measure, side: int) -> None:
    """Raise ValueError for options of a measure that are invalid for any set; sets stay closed.

    If the probe has an argument that only an open set provides, such as the names of its files,
    only names and types of the options are checked. Files that the probe lacks raise nothing.
    side: image side in pixels.
    """
    where = f"suite.measures.{measure.name}"
    make = _find_maker(where, measure.probe)
    set_arguments = _SET_ARGUMENTS & _probe_parameters(measure.probe).keys()
    if set_arguments:
        options = {**dict.fromkeys(set_arguments), **measure.options}
        build.check_options(where, make, options, num_positional=0)
        errors.check_annotations(where, make, measure.options)
        return
    blank = np.zeros((1, side, side, 3), np.uint8)
    context = {"side": side, "classes": ()}
    if measure.takes_others:
        context["others"] = shown.Partners("", "", lambda: blank)
    with contextlib.suppress(base.Missing):  # Reported with all that is missing.
        build_probe(measure, context)


def build_probe(measure: Measure, context: Mapping[str, Any]) -> Built:
    """Return a new probe of a measure; ValueError for an invalid option.

    context: values that depend on the set, by argument name, such as "side". The probe gets the
    values for which it has arguments; the measure's own options take precedence.
    """
    where = f"suite.measures.{measure.name}"
    options = dict(_probe_options(measure, context))
    make = _find_maker(where, measure.probe)
    if not _is_inside(measure.probe):
        return build.call_checked(where, make, **options)
    build.check_options(where, make, options, num_positional=4)
    errors.check_annotations(where, make, options)
    return inside.Inside(functools.partial(make, **options))


def _probe_options(
    measure: Measure, context: Mapping[str, Any]
) -> tuple[tuple[str, Any], ...]:
    """Return the options of a measure's probe, hashable; context: see `build_probe`."""
    parameters = _probe_parameters(measure.probe)
    arguments = {key: value for key, value in context.items() if key in parameters}
    return _freeze({**arguments, **measure.options})


def conditions(built: Built) -> tuple[str, ...]:
    """Return the names of the conditions that are shown; ("",) for unchanged images only."""
    return tuple(built.conditions) if isinstance(built, shown.Stimuli) else ("",)


def network_conditions(built: Built) -> list[str]:
    """Return the conditions whose stimuli depend on the network, such as attacks."""
    if not isinstance(built, shown.Stimuli):
        return []
    counts = inference.step_counts(built)
    return [name for name in built.conditions if counts.get(name)]


def includes_unknown(built: Built) -> bool:
    """Return True if images of classes that the network lacks are shown, too."""
    return isinstance(built, counting.Counting) and built.include_unknown


def as_stimuli(built: counting.Counting | shown.Stimuli) -> shown.Stimuli:
    """Return stimuli unchanged, and for a measure of decisions the unchanged images."""
    return built if isinstance(built, shown.Stimuli) else shown.unchanged(built)


def _freeze(tree: Any) -> Any:
    """Return a hashable copy of options: lists are tuples, dicts are sorted pairs."""
    if isinstance(tree, Mapping):
        return tuple((key, _freeze(value)) for key, value in sorted(tree.items()))
    return tuple(map(_freeze, tree)) if isinstance(tree, list | tuple) else tree


_RUN = {  # Default and type of each entry of `run`.
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
_REQUIRED = {"size": int, "sets": dict, "measures": dict}
_MAX_SIDE = 16_384
ABSENT = "not here, so not measured: "
# Limits of the images of another set that a probe gets: number, and bytes.
MAX_PARTNERS = 2048
MAX_PARTNER_BYTES = 2**28


class Suite(NamedTuple):
    """The sets and measures that each network is evaluated on."""

    size: int  # Side of the images, in pixels.
    sources: Mapping[str, base.Source]  # Open sets by name.
    # By set; None: read from files each time.
    images: Mapping[str, UInt8[np.ndarray, "n h w c"] | None]
    missing: Mapping[str, str]  # By set or task, the reason why it cannot be used.
    measures: tuple[Measure, ...]
    run: Mapping[str, Any]  # The entry `run` of the config, with defaults.
    config: Mapping[str, Any]
    stimuli: inference.StimulusCache
    probes: dict[tuple, Built]  # Those that were made, by measure and options.

    @property
    def devices(self) -> jax.sharding.Mesh:
        """Return the devices that networks run on, as a mesh with the axis "data"."""
        return mesh.make(self.run["devices"])

    @property
    def dtype(self) -> Any:
        """Return the requested precision as a dtype."""
        return mesh.dtype(self.run["precision"])

    @property
    def reader_options(self) -> loader.ReaderOptions:
        """Return the options for reading images that are not in memory."""
        return loader.ReaderOptions(self.run["threads"] or num_cores())

    @property
    def missing_lines(self) -> list[str]:
        """Return "name: reason" for each missing set or task."""
        return [
            f"{name}: {reason.removeprefix(f'suite.sets.{name}: ')}"
            for name, reason in self.missing.items()
        ]

    def make_probe(
        self, measure: Measure, dataset: str, classes: tuple[str, ...] = ()
    ) -> Built:
        """Return the probe of a measure on a set; the same object for equal arguments.

        classes: names of the classes that the network decides among on this set. base.Missing
        if a file that the probe reads does not exist.
        """
        source = self.sources[dataset]
        context = {
            "side": self.size,
            "measures": tuple(source.measures),
            "dataset": source.name.partition("/")[2].partition("[")[0],
            "files": tuple(getattr(source, "files", ())),  # () without names.
            "classes": classes,
        }
        if measure.takes_others:
            context["others"] = self.make_partners(measure.others or dataset)
        key = measure.name, measure.probe, _probe_options(measure, context)
        if key not in self.probes:
            self.probes[key] = build_probe(measure, context)
        return self.probes[key]

    def make_partners(self, dataset: str) -> shown.Partners:
        """Return images of a set, evenly spaced, which a probe combines with the shown images.

        dataset: name of the set. There are at most MAX_PARTNERS images and MAX_PARTNER_BYTES;
        they are read each time that `read` of the result is called. The fingerprint also has the
        suite's image size and number of devices.
        """
        source = self.sources[dataset]

        def read() -> UInt8[jax.Array, "n h w 3"]:
            """Return the partner images as bytes, replicated on the suite's devices.

            They are images of `dataset`, an argument of the enclosing function.
            """
            bytes_per_image = 3 * self.size**2
            count = min(MAX_PARTNERS, MAX_PARTNER_BYTES // bytes_per_image, len(source))
            rows = np.linspace(0, len(source) - 1, count).round().astype(np.int64)
            images = self.select_images(dataset, rows)
            if isinstance(images, loader.EncodedImages):
                images = next(loader.batches([images], count, self.reader_options))
            return mesh.replicate(images, self.devices)

        fingerprint = f"{source.fingerprint} {self.size} {self.run['devices']}"
        return shown.Partners(dataset, fingerprint, read)

    def select_images(
        self, dataset: str, index: Int[np.ndarray, "n"]
    ) -> UInt8[np.ndarray, "n h w 3"] | loader.EncodedImages:
        """Return the images of a set with the given indices.

        An array for a set in memory, else a loader.EncodedImages, which reads files.
        """
        images = self.images[dataset]
        if images is not None:
            return images[index]
        return loader.EncodedImages(self.sources[dataset], index)

    def tasks(self) -> Iterator[Task]:
        """Yield each measure on each of its sets.

        Tasks in `missing`, and those whose set or set of partner images is missing, are left out.
        """
        for measure in self.measures:
            for dataset in measure.datasets:
                task = Task(measure, dataset)
                sets = {dataset, measure.others or dataset}
                if sets <= self.sources.keys() and task.name not in self.missing:
                    yield task


def open_suite(
    config: Mapping[str, Any], say: console.Say, *, only: Sequence[str] = ()
) -> Suite:
    """Return a suite whose options are checked and whose available sets are open.

    config: the suite's config; see the module. say: called with a line on each missing set.
    only: names of the measures to keep; empty: all. Sets of other measures are not opened.
    ValueError for an invalid option, or if no set or no task is available.
    """
    config, needs, run, measures = _check_config(config, only)
    sources, missing = _open_sets(config, measures, needs["sets"], say)
    threads = run["threads"] or num_cores()
    in_memory = loader.load_into_memory(
        {}, sources, say, gib=run["gib"], threads=threads
    )
    suite = Suite(
        size=config["size"],
        sources=sources,
        images={name: in_memory.get(name) for name in sources},
        missing=missing,
        measures=measures,
        run=run,
        config=config,
        stimuli=inference.StimulusCache(),
        probes={},
    )
    return _drop_missing_tasks(suite, needs["measures"], say)


def of_sources(
    config: Mapping[str, Any],
    sources: Mapping[str, base.Source],
    say: console.Say,
    *,
    only: Sequence[str] = (),
) -> Suite:
    """Return a suite of sets in memory, one for each entry of config["sets"].

    Other arguments and errors: see `open_suite`.
    """
    config, needs, run, measures = _check_config(config, only)
    suite = Suite(
        size=config["size"],
        sources=sources,
        images={
            name: loader.decode_all(source, workers=1)
            for name, source in sources.items()
        },
        missing={},
        measures=measures,
        run=run,
        config=config,
        stimuli=inference.StimulusCache(),
        probes={},
    )
    return _drop_missing_tasks(suite, needs["measures"], say)


class _Checked(NamedTuple):
    """A suite's config whose options are valid, and its parts."""

    config: dict[str, Any]  # Without the entry "needs".
    needs: dict[
        str, Mapping[str, str]
    ]  # The entry, with the keys "sets" and "measures".
    run: dict[str, Any]  # The entry, with defaults.
    measures: tuple[Measure, ...]


def _check_config(config: Mapping[str, Any], only: Sequence[str]) -> _Checked:
    """Return the checked parts of a suite's config; arguments and errors: see `open_suite`."""
    config = jc.to_dict(config)
    needs = {"sets": {}, "measures": {}, **config.pop("needs", {})}
    run = _check_kinds(config)
    for name in only:
        needed = needs["measures"].get(name)
        if needed and name not in config["measures"]:
            where = "in the argument of the suite, FILE:ARGS"
            raise ValueError(f"--only: {name!r} needs {needed} {where}; add it")
        errors.check_known("--only", name, config["measures"])
    costs.parse_energy("suite.run.energy", run["energy"])
    for key, options in config["sets"].items():
        for name in options.get("measures", ()):
            evals.find_measure(name, f"suite.sets.{key}.measures")
    measures = tuple(
        read_measure(name, options, config["sets"])
        for name, options in config["measures"].items()
        if not only or name in only
    )
    for measure in measures:
        check_measure(measure, config["size"])
    return _Checked(config, needs, run, measures)


def _open_sets(
    config: Mapping[str, Any],
    measures: Sequence[Measure],
    needs: Mapping[str, str],
    say: console.Say,
) -> tuple[dict[str, base.Source], dict[str, str]]:
    """Return (open sets, reasons why sets are missing), two dicts by set, for some measures.

    needs: by set, the suite's argument that provides it. say: called with a line on missing
    sets. ValueError if all are missing, or if a set that exists cannot be opened.
    """
    used = {
        name for measure in measures for name in (*measure.datasets, measure.others)
    }
    sources, missing = {}, {}
    # Sets of one folder are missing for the same reason, which is reported once.
    names_by_reason: dict[tuple[str, str], list[str]] = {}
    for name, options in config["sets"].items():
        errors.check_folder_name("suite.sets: a name", name)
        if name not in used:
            continue
        where = f"suite.sets.{name}"
        try:
            sources[name] = config_sets.open_test_source(where, options, config["size"])
        except ValueError as error:
            cause = error if isinstance(error, base.Missing) else error.__cause__
            if not isinstance(cause, base.Missing):
                raise
            missing[name] = " ".join(str(error).split())
            needed = needs.get(name, "")
            key = _missing_reason(cause, needed), needed
            names_by_reason.setdefault(key, []).append(name)
    for (reason, _), names in names_by_reason.items():
        expected = "".join(missing[names[0]].partition("; expected: ")[1:])
        say(f"{ABSENT}suite.sets.{', '.join(names)}: {reason}{expected}")
    if not sources:
        raise ValueError("suite: none of its sets was found; see above what each needs")
    return sources, missing


def _check_kinds(config: Mapping[str, Any]) -> dict[str, Any]:
    """Check the entries of a suite; return its entry `run`, completed with the defaults of _RUN.

    ValueError for a missing, unknown or mistyped entry of the suite, a number that is NaN or
    infinite, a size that is not 1 to 16,384 pixels, and a negative batch, agree, threads or gib.
    """
    for key in config:
        errors.check_known("suite", key, (*_REQUIRED, "run", "needs"), "key")
    jc.check_finite("suite", config)
    for key, kind in _REQUIRED.items():
        if key not in config:
            raise ValueError(f"suite: {key!r} is missing")
        errors.check_type(f"suite.{key}", config[key], kind)
    fits, must = 1 <= config["size"] <= _MAX_SIDE, f"be 1 to {_MAX_SIDE} pixels"
    errors.check(fits, "suite.size", must, config["size"])
    for section in ("sets", "measures"):
        for name, options in config[section].items():
            errors.check_type(f"suite.{section}.{name}", options, dict)
    run = config.get("run", {})
    errors.check_type("suite.run", run, dict)
    for key, value in run.items():
        errors.check_known("suite.run", key, _RUN)
        errors.check_type(f"suite.run.{key}", value, _RUN[key][1])
        if key in ("batch", "agree", "threads", "gib") and value < 0:
            raise ValueError(f"suite.run.{key}: must be 0 or more, got {value}")
    return {key: default for key, (default, _) in _RUN.items()} | run


def _drop_missing_tasks(
    suite: Suite, needs: Mapping[str, str], say: console.Say
) -> Suite:
    """Return the suite with the tasks whose probe lacks a file, if any, added to `missing`.

    An example is a file of human answers. needs: by measure, the suite's argument that provides its
    files. say: called with a line on each reason. ValueError if no task is left.
    """
    reasons: dict[str, str] = {}  # By task.
    for task in suite.tasks():
        try:
            suite.make_probe(task.measure, task.dataset)
        except base.Missing as error:
            name = task.measure.name
            # Its first argument, such as "humans=".
            flag = f"{needs[name].partition('=')[0]}=" if name in needs else ""
            reasons[task.name] = f"{flag}{error}"
    for reason in dict.fromkeys(reasons.values()):
        names = (
            name.partition("@")[0] for name, why in reasons.items() if why == reason
        )
        say(f"{ABSENT}suite.measures.{', '.join(dict.fromkeys(names))}: {reason}")
    suite = suite._replace(missing={**suite.missing, **reasons})
    if reasons and not any(suite.tasks()):
        raise ValueError("suite: nothing is left to measure; see above what is missing")
    return suite


def _missing_reason(error: base.Missing, needed: str) -> str:
    """Return the reason why a set is missing, without its name and the expected files.

    error: the error raised for the set. needed: the suite's argument that gives the set's
    folder, such as "stimuli=DIR", or "".
    """
    reason = " ".join(str(error).split()).partition("; expected: ")[0]
    reason = reason.partition(": ")[2] or reason
    if needed and reason.startswith("root "):
        return f"{needed.partition('=')[0]}={reason.removeprefix('root')}"
    return reason


def num_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))
