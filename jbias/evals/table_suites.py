"""Suites without images, for tables of decisions whose images have known classes.

The names of cue conflicts and of model-vs-human's images say the classes, or a column of the
table does (answers/stimulus_names.py). Measures of decisions need no more: each image is one
black pixel here, and records equal those of the same set with its images.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jbias import errors
from jbias.answers import observers, stimulus_names, tables
from jbias.data import base, sources
from jbias.data import tables as data_tables
from jbias.data.sets import geirhos
from jbias.evals import decision_tables, registry, suites
from jbias.runtime import console

# The suite of biases has these sets of model-vs-human under another name.
SUITE_NAMES: Mapping[str, str] = {"stylized": "stylized16"}
_BATCH = 1024  # Images per batch; of single pixels.


class Table(NamedTuple):
    """A network of decisions, and the suite of its sets."""

    network: decision_tables.DecidedNetwork
    suite: suites.Suite


def load(
    path: str,
    *,
    columns: Mapping[str, str],
    dataset: str,
    parse: str,
    options: Mapping[str, str] | None = None,
    humans: str,
    only: Sequence[str],
    devices: int,
    say: console.Say,
    refuse: Callable[[str, str], None],
) -> list[Table]:
    """Return the networks whose decisions are in the tables of a path, each with its suite.

    path, columns, dataset, parse, options: see `answers.tables.read`. humans: folder of people's answers,
    with which decisions are compared; "" for none. only: names of measures; empty: all that
    decisions on a network's sets allow. devices: as in a suite's `run`. say: called with lines for
    the user. refuse: called with (name, reason) for a network that cannot be measured, which is
    left out. Networks with equal sets share a suite. ValueError for a file that is no table of
    decisions, for files that contradict each other, and for an unknown measure.
    """
    read_observers = tables.read(
        path,
        columns=columns,
        dataset=dataset,
        parse=parse,
        options=options,
        say=say,
    )
    observers.panels(read_observers)  # An error if classes or labels differ.
    by_name: dict[str, list[observers.Observer]] = {}
    for observer in read_observers:
        by_name.setdefault(observer.name, []).append(observer)
    sets_by_name = {
        name: {_set_name(x): _source(x) for x in members}
        for name, members in by_name.items()
    }
    known = {
        measure: True
        for open_sets in sets_by_name.values()
        for measure in _measures(open_sets, humans)
    }
    for measure in only:
        errors.check_known("--only", measure, known)
    shared: dict[str, suites.Suite] = {}  # By the fingerprints of the sets.
    name_of_folder: dict[str, str] = {}
    loaded = []
    for name, members in by_name.items():
        open_sets = sets_by_name[name]
        try:
            folder = folder_name(name)
            _check_names(folder, open_sets)
            first = name_of_folder.setdefault(folder, name)
            if first != name:
                raise ValueError(
                    f"its folder of results, {folder!r}, must be its own, got that of "
                    f"{first!r}; rename one of them"
                )
            key = json.dumps({x: y.fingerprint for x, y in open_sets.items()})
            if key not in shared:
                shared[key] = _suite(
                    open_sets, humans=humans, only=only, devices=devices, say=say
                )
            network = _network(folder, path, members, open_sets)
        except ValueError as error:
            refuse(_shown(name), f"{_shown(name)}: {error}")
            continue
        for line in decision_tables.describe_lacking(network.decided, open_sets):
            say(f"{folder}: {line}")
        loaded.append(Table(network, shared[key]))
    return loaded


def numbered(tables_to_measure: Sequence[Table], say: console.Say) -> Iterator[tuple]:
    """Yield (network, suite, say) of each table; its lines begin with "[3/57] ".

    say: the function that prints the lines. A single table has no number.
    """
    total = len(tables_to_measure)
    for i, table in enumerate(tables_to_measure, 1):
        prefix = f"[{i}/{total}] " if total > 1 else ""

        def say_numbered(line: str, prefix: str = prefix) -> None:
            """Print a line after the number of its table; events are printed unchanged."""
            say(line if isinstance(line, console.LogEvent) else f"{prefix}{line}")

        yield table.network, table.suite, say_numbered


def folder_name(name: str) -> str:
    """Return the name of an observer's folder of results: its name, with "-" for slashes."""
    return name.replace("/", "-").replace("\\", "-")


def _check_names(folder: str, open_sets: Mapping[str, base.Source]) -> None:
    """Raise ValueError if a folder or file of results cannot have the name of its content."""
    errors.check_folder_name("an observer's name", folder)
    for name in open_sets:
        errors.check_folder_name("a set's name", name)


def _shown(name: str) -> str:
    """Return a name for a message, at most 60 letters; as Python text if not printable."""
    cut = name if len(name) <= 60 else f"{name[:60]}..."
    return cut if cut.isprintable() and cut else repr(cut)


def _set_name(observer: observers.Observer) -> str:
    """Return the name of an observer's set in the records."""
    return SUITE_NAMES.get(observer.dataset, observer.dataset)


def _source(observer: observers.Observer) -> sources.ArraySource:
    """Return the set of an observer's images, as single black pixels.

    All published cue conflicts belong to their set, also those that the observer has no row for.
    """
    images, label, texture = observer.images, observer.label, observer.texture
    published = data_tables.cue_conflicts()
    is_conflict = observer.dataset == stimulus_names.CUE_CONFLICT
    if is_conflict and {*images} <= {*published}:
        rows = [stimulus_names.Row("", name, "", "") for name in sorted(published)]
        stimuli = stimulus_names.recognise(rows, stem="", dataset=observer.dataset)
        images, label, texture = stimuli.images, stimuli.label, stimuli.texture
    columns = {"label": label}
    cues = texture is not None
    if cues:
        columns["texture"] = texture
    if cues and all(map(stimulus_names.pictures, images)):
        columns |= geirhos.cues(observer.dataset, images, observer.classes)
    content = [
        observer.classes,
        images,
        label.tolist(),
        texture.tolist() if cues else None,
    ]
    is_16 = observer.classes == geirhos.CLASSES
    return sources.ArraySource(
        name=f"{_data_set(observer.dataset)}/{observer.dataset}",
        classes=observer.classes,
        space="entry16" if is_16 else "names",
        columns={name: np.asarray(x, np.int32) for name, x in columns.items()},
        measures=("accuracy", "shape_bias") if cues else ("accuracy",),
        preprocessing="no pixels: decisions alone",
        fingerprint=hashlib.sha256(json.dumps(content).encode()).hexdigest(),
        cite="",
        images=np.zeros((len(images), 1, 1, 3), np.uint8),
        files=images,
    )


def _data_set(dataset: str) -> str:
    """Return the name of the data set that a set belongs to: "decisions" if it is not published."""
    if dataset in geirhos.STIMULI:
        return "geirhos"
    return "model_vs_human" if dataset in geirhos.CONDITIONS else "decisions"


def _measures(
    open_sets: Mapping[str, base.Source], humans: str
) -> dict[str, dict[str, Any]]:
    """Return the measures of the suite of biases that decisions on these sets allow.

    Options are by name; arguments: see `_suite`.
    """
    conflicts = tuple(x for x, y in open_sets.items() if "texture" in y.columns)
    own_sets = tuple(x for x, y in open_sets.items() if y.name.startswith("decisions/"))
    labelled = tuple(name for name in own_sets if name not in conflicts)
    measures: dict[str, dict[str, Any]] = {
        "accuracy": {"probe": "plain", "sets": tuple(open_sets)}
    }
    if labelled:
        for name, row in registry.PROBES.items():
            if row.in_default_suite and row.needs_classes_only:
                measures[name] = {"probe": name, "sets": labelled}
    if conflicts:
        measures["shape_bias"] = {"probe": "shape_bias", "sets": conflicts}
    shown_to_people = tuple(name for name in open_sets if name not in own_sets)
    if humans and shown_to_people:
        measures["human"] = {"probe": "human", "sets": shown_to_people, "root": humans}
    return measures


def _suite(
    open_sets: Mapping[str, sources.ArraySource],
    *,
    humans: str,
    only: Sequence[str],
    devices: int,
    say: console.Say,
) -> suites.Suite:
    """Return the suite of sets without images; other arguments: see `load`.

    ValueError if none of the measures `only` is possible on these sets.
    """
    measures = _measures(open_sets, humans)
    chosen = [name for name in only if name in measures]
    if only and not chosen:
        raise ValueError(
            f"--only: must name a measure of the decisions on {', '.join(open_sets)}, got "
            f"{', '.join(only)}; there are {', '.join(measures)}"
        )
    config = {
        "size": 1,
        "sets": {
            name: {"data": source.name.partition("/")[0], "split": name}
            for name, source in open_sets.items()
        },
        "measures": measures,
        "run": {"batch": _BATCH, "devices": devices},
        "needs": {"measures": {"human": "humans=DIR"}},
    }
    return suites.of_sources(config, open_sets, say, only=chosen)


def _network(
    folder: str,
    path: str,
    members: Sequence[observers.Observer],
    open_sets: Mapping[str, base.Source],
) -> decision_tables.DecidedNetwork:
    """Return the network of one observer's decisions on its sets.

    folder: its name. path: the path that was read. members: the observer on each of its sets.
    """
    decided = {}
    for observer in members:
        name = _set_name(observer)
        place = {image: i for i, image in enumerate(open_sets[name].files)}
        responses = np.full(len(place), observers.NO_ROW, np.int32)
        rows = [place[image] for image in observer.images]
        responses[rows] = observer.decision
        decided[name, ""] = responses
    details = {
        "tables": [
            {
                "set": _set_name(observer),
                "path": observer.path,
                "sha256": observer.sha256,
                "parser": observer.parser,
                "reader": observer.reader,
            }
            for observer in members
        ],
        "factors": {key: x for key, x in members[0].factors.items() if x},
    }
    return decision_tables.make_network(
        folder, path, sources=open_sets, decided=decided, details=details
    )
