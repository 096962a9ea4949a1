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

A set that is not there is told about, and what is there is measured.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import UInt8

from jbias import config as jc
from jbias import kinds
from jbias.data import base, loader, splits
from jbias.evals import probe
from jbias.measure import suite_measure
from jbias.runs import costs
from jbias.runtime import mesh

_RUN = dict(
    step="best",
    batch=0,
    precision="auto",
    agree=256,
    decisions=True,
    devices=0,
    gib=16.0,
    threads=0,
    energy={},
)
_RUN_KINDS = dict(
    step=str | int,
    batch=int,
    precision=str,
    agree=int,
    decisions=bool,
    devices=int,
    gib=float,
    threads=int,
    energy=dict,
)
_SIDE = 16_384
# So many images of another set a probe gets, or fewer that take so many bytes.
OTHERS = 2048, 2**28


class Suite(NamedTuple):
    """All that is measured of each network."""

    size: int
    sources: Mapping[str, base.Source]
    images: Mapping[str, UInt8[np.ndarray, "n h w c"] | None]  # None: read each time.
    missing: Mapping[str, str]  # What is not there, mostly sets, and what it needs.
    measures: tuple[suite_measure.Measure, ...]
    run: Mapping[str, Any]
    config: Mapping[str, Any]

    def make_probe(
        self,
        measure: suite_measure.Measure,
        dataset: str,
        classes: tuple[str, ...] = (),
    ) -> probe.Probe:
        """The probe of a measure on a set; the same object each time.

        classes: names of what a network decides among there.
        """
        source = self.sources[dataset]
        beside = {
            "side": self.size,
            "measures": tuple(source.measures),
            "dataset": source.name.partition("/")[2].partition("[")[0],
            "files": _files(source),
            "classes": classes,
        }
        if measure.others or suite_measure.needs_others(measure):
            beside["others"] = self.some(measure.others or dataset)
        return suite_measure.probe_of(measure, beside)

    def some(self, dataset: str) -> probe.Others:
        """Images of a set, evenly spaced, few enough to be kept on each device."""
        source, devices = self.sources[dataset], self.run["devices"]

        def read() -> UInt8[jax.Array, "n h w 3"]:
            return mesh.replicate(chosen(), mesh.make(devices))

        def chosen() -> UInt8[np.ndarray, "n h w 3"]:
            count, size = OTHERS
            count = min(count, size // (3 * self.size**2), len(source))
            rows = np.linspace(0, len(source) - 1, count).round().astype(np.int64)
            held = self.images[dataset]
            if held is not None:
                return held[rows]
            kept = loader.EncodedImages(source, rows)
            reading = loader.ReaderOptions(self.run["threads"] or cores())
            return next(loader.batches([kept], count, reading))

        told = f"{source.fingerprint} {self.size} {devices}"
        return probe.Others(dataset, told, read)

    def tasks(self) -> Iterator[suite_measure.Task]:
        """Each measure on each of its sets, of those that are here."""
        for one in self.measures:
            for dataset in one.datasets:
                if {dataset, one.others or dataset} <= set(self.sources):
                    yield suite_measure.Task(one, dataset)


def open(
    config: Mapping[str, Any],
    say: Callable[[str], None],
    *,
    only: Sequence[str] = (),
) -> Suite:
    """Opens every set that is there, and checks all options before anything is measured.

    only: names of measures; none is all. Other measures' sets are not opened.
    """
    suite_measure.forget()
    config = jc.plain(config)
    needs = {"sets": {}, "measures": {}, **config.pop("needs", {})}
    for key in config:
        known = ("size", "sets", "measures", "run", "needs")
        jc.check_known("suite", key, known, "key")
    _check_kinds(config)
    run = {**_RUN, **config.get("run", {})}
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
        suite_measure.read(name, options, config["sets"])
        for name, options in config["measures"].items()
        if not only or name in only
    )
    for one in measures:
        suite_measure.check(one, config["size"])
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
        for name in (
            one.datasets if "aggregates" in config["measures"][one.name] else ()
        ):
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
    kinds.sound("suite", config)
    for key, kind in (("size", int), ("sets", dict), ("measures", dict)):
        if key not in config:
            raise ValueError(f"suite: {key!r} is missing")
        kinds.check(f"suite.{key}", config[key], kind)
    if not 1 <= config["size"] <= _SIDE:
        raise ValueError(
            f"suite.size: must be 1 to {_SIDE} pixels, got {config['size']}"
        )
    for part in ("sets", "measures"):
        for name, options in config[part].items():
            kinds.check(f"suite.{part}.{name}", options, dict)
    kinds.check("suite.run", config.get("run", {}), dict)
    for key, value in config.get("run", {}).items():
        kinds.check(f"suite.run.{key}", value, _RUN_KINDS.get(key, Any))
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
            suite_measure.inside(one) if one.inside else suite.make_probe(one, dataset)
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


def _files(source: base.Source) -> tuple[str, ...]:
    """The names of a set's files, in its order; () where it has none."""
    store = getattr(source, "store", None)
    return tuple(getattr(store, "names", ()))
