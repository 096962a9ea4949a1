"""A set prepared for a network: the images it can answer, how it answers them, and batches.

`condition_images` are what a measure shows of a few images, as arrays to look at.
"""

import csv
import difflib
import io
import itertools
import types
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int, Shaped

from jbias import data
from jbias.data import base, labels, loader, splits, tables
from jbias.evals import cue_conflict, inference, networks, probe, suites
from jbias.runtime import mesh, signals, xla

_LISTED = 20  # Outputs that a message names.
# Words of other data sets for Geirhos' 16 classes.
_SYNONYMS = types.MappingProxyType(
    {
        "automobile": "car",
        "ship": "boat",
        "plane": "airplane",
        "aeroplane": "airplane",
        "bike": "bicycle",
        "lorry": "truck",
    }
)
Wanted = tuple[str, bool]  # A set by name, and whether `prepare` keeps it whole.


class PreparedSet(NamedTuple):
    """The images of a set that a network is shown, and how it answers them."""

    dataset: str
    images: Any  # Resident, or in their files.
    index: np.ndarray  # Each image's number in its set.
    columns: Mapping[str, np.ndarray]
    target: np.ndarray  # In the network's own classes.
    rules: Mapping[str, inference.Rule]
    classes: tuple[str, ...]  # What it decides among, by id.


def prepare(
    network: networks.Network,
    asked: suites.Suite,
    dataset: str,
    say,
    *,
    whole=False,
    measures: Sequence[str] = (),
) -> PreparedSet:
    """Brings a set into the network's classes; base.Mismatch where it has none.

    whole: images of classes that the network lacks stay, with the label -1. measures: names
    of those that the set is for, for a line about images that the network lacks. ValueError
    where its images have another form than those that the network was trained on.
    """
    source = asked.sources[dataset]
    where = f"suite.sets.{dataset}"
    _check_form(where, source, network.fields["train_data"])
    options = asked.config["sets"][dataset]
    shown = (one.aggregates for one in asked.measures if dataset in one.datasets)
    wanted = dict.fromkeys(itertools.chain(*shown))
    answers = tuple(network.about.get("answers", {}).items())
    own = labels.LabelSpace(network.classes, network.space, answers)
    maps = {x: splits.class_map(where, options, source, own, x) for x in wanted}
    first = next(iter(maps.values()))
    label = np.asarray(source.columns["label"])
    known = (label >= 0) & (first.relabel[label] >= 0)
    if not known.any():
        raise base.Mismatch(f"{where}: no image has a class of the network's")
    index = np.flatnonzero(label >= 0 if whole else known)
    held, n = asked.images[dataset], len(index)
    test = splits.test_set(
        dataset,
        source,
        first,
        held,
        say,
        keep_unanswerable=whole,
        trained="the model",
        measures=measures,
    )
    right = test.columns["label"]
    target = np.where(right >= 0, _targets(first)[right], -1).astype(np.int32)
    rules = {k: inference.Rule(n, x.matrix, x.aggregate) for k, x in maps.items()}
    of = dataset, test.images, index.astype(np.int32), test.columns
    return PreparedSet(*of, target, rules, first.classes)


def _check_form(where: str, source: base.Source, trained: str) -> None:
    """Refuses images that are higher or wider, of their size, than those of training.

    trained: of a network's records; what is no data set's name says nothing.
    """
    known = data.DATASETS.get(trained.partition("+")[0])
    if known is None:
        return
    (down, across), (height, width) = known.aspect, source.shape
    if height * across != width * down:
        raise ValueError(
            f"{where}: images must be {down} to {across} in height to width, as those of"
            f" {trained}, which the network was trained on, got {height} x {width} pixels;"
            " choose a suite of that set"
        )


def prepare_all(
    network: networks.Network,
    asked: suites.Suite,
    wanted: Mapping[Wanted, Sequence[str]],
    say,
    errors=(),
) -> tuple[dict[Wanted, PreparedSet], list[str]]:
    """Return prepared sets by name and `whole`, and lines on sets that cannot be prepared.

    wanted: the names of the measures of each set. errors: kinds of errors of a single set,
    which stop no other set.
    """
    prepared, foreign, faults = {}, {}, {}
    for (dataset, whole), measures in wanted.items():
        try:
            prepared[dataset, whole] = prepare(
                network, asked, dataset, say, whole=whole, measures=measures
            )
        except base.Mismatch:
            foreign[dataset] = True
        except errors as error:
            signals.raise_interrupt(error)
            faults[f"{dataset}: {networks.describe_error(error)}"] = True
    for line in _describe_unused(network, asked, prepared):
        say(f"{network.name}: {line}")
    mismatch = [_describe_mismatch(network, asked, foreign)] if foreign else []
    return prepared, [*mismatch, *faults]


def _describe_unused(
    network: networks.Network,
    asked: suites.Suite,
    prepared: Mapping[Wanted, PreparedSet],
) -> Iterator[str]:
    """Yield a line on outputs that mean none of Geirhos' 16 classes, as "automobile" does.

    Only of a list of names: a dictionary says by itself which outputs have no meaning.
    """
    answers = network.about.get("answers", {})
    if network.space != "names" or any(own != x for own, x in answers.items()):
        return
    unused: dict[tuple, list[str]] = {}
    for dataset, _ in prepared:
        source, options = asked.sources[dataset], asked.config["sets"][dataset]
        outputs = tuple(name for name in network.classes if name not in answers)
        if source.space == "entry16" and outputs and not options.get("mapping"):
            lacking = tuple(name for name in source.classes if name not in answers)
            unused.setdefault((outputs, lacking), []).append(dataset)
    for (outputs, lacking), datasets in unused.items():
        near = {name: _near_class(name, lacking) for name in outputs}
        words = [
            f"{name!r} (near {near[name]!r})" if near[name] else repr(name)
            for name in outputs[:_LISTED]
        ]
        more = len(outputs) - len(words)
        words += [f"{more:,} more"] if more else []
        lines = [
            _csv_line(name, near[name]) for name in outputs[:_LISTED] if near[name]
        ]
        example = f", such as {' and '.join(lines)}" if lines else ""
        yield (
            f"{len(outputs):,} of its {len(network.classes):,} outputs answer no class of "
            f"{', '.join(dict.fromkeys(datasets))}: {', '.join(words)}; no output answers "
            f"{', '.join(lacking) or 'none'}; if two of these mean the same, write a "
            "dictionary (classes=), or a CSV file (--classes) with lines "
            f"train_class,test_class for all outputs in order{example}"
        )


def _csv_line(*cells: str) -> str:
    """Return cells as a line of a CSV file, quoted where they have to be."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(cells)
    return line.getvalue()


def _near_class(name: str, classes: Iterable[str]) -> str:
    """Return the class whose name is the most similar, or that it has as a word, or ""."""
    spelled = {x.lower(): x for x in classes}
    words = name.lower().replace("_", " ").replace("-", " ").split()
    words += [_SYNONYMS.get(word, word) for word in words]
    near = [spelled[word] for word in words if word in spelled]
    near += [
        spelled[x] for x in difflib.get_close_matches(name.lower(), spelled, 1, 0.7)
    ]
    return near[0] if near else ""


def _describe_mismatch(
    network: networks.Network, asked: suites.Suite, names: Iterable[str]
) -> str:
    """Says which classes a network has and which these sets want, and what to do."""
    wanted: dict[labels.LabelSpace, list[str]] = {}
    for name in names:
        source = asked.sources[name]
        side = labels.LabelSpace(tuple(source.classes), source.space)
        wanted.setdefault(side, []).append(name)
    sides = "; ".join(f"{', '.join(of)} want {side}" for side, of in wanted.items())
    if "config" in network.about:
        remedy = "choose a suite of its classes, or map them by the sets' mapping=FILE"
    else:
        remedy = (
            "map its outputs to the images' classes by --classes=FILE.csv with lines "
            "train_class,test_class, all outputs in order (docs/measure-a-model.md)"
        )
        if network.classes == tables.wnids():
            remedy += ", or measure it on ImageNet by `jbias measure --imagenet=DIR`"
    own = labels.LabelSpace(network.classes, network.space)
    return f"its classes are {own}, while {sides}; {remedy}"


def check_needs(
    what: str, made: probe.Probe, bound: inference.Bound, given: PreparedSet
) -> None:
    """Refuses a probe that needs what the network has not, or not for this set.

    Stimuli that follow its gradients are of its own classes.
    """
    follows = made.move or made.look
    if follows and bound.apply is None or made.inside and bound.net is None:
        lacking = f"a network's {'sites inside' if made.inside else 'gradients'}"
        raise ValueError(f"{what} needs {lacking}, got none; leave the measure out")
    matrices = [x.matrix for x in given.rules.values() if x.matrix is not None]
    unanswered = any(not (matrix > 0).any(1).all() for matrix in matrices)
    if not bound.graded and (made.graded or unanswered):
        why = "classes that answer for none of the set's" if unanswered else "no more"
        raise ValueError(
            f"{what} needs probabilities or logits, got names of classes and {why}; "
            "leave the measure out"
        )
    grouped = bool(matrices)
    if grouped and follows:
        raise ValueError(
            f"{what} must be on the network's own classes, whose gradients it follows;"
            f" here it decides among {len(given.classes):,} others or some of them;"
            " choose another set"
        )


def _targets(answer: labels.ClassMap) -> np.ndarray:
    """The network's class for each decision class, -1 where it is not just one."""
    if answer.matrix is None:
        return np.arange(len(answer.classes), dtype=np.int32)
    members = answer.matrix > 0
    return np.where(members.sum(0) == 1, members.argmax(0), -1)


def subsample(given: PreparedSet, count: int) -> PreparedSet:
    """So many of the images, evenly spaced; all if that is 0, or more than there are."""
    n = len(given.index)
    if not 0 < count < n:
        return given
    return _take(given, np.linspace(0, n - 1, count).round().astype(np.int64))


def answered(
    prepared: PreparedSet, network: networks.Network, conditions: Collection[str]
) -> PreparedSet:
    """Return the images that a network can answer under all conditions.

    All images if it can answer none of these: its `predict` then says why.
    """
    has_answer = network.answered(prepared.dataset, conditions)
    if has_answer is None:
        return prepared
    rows = np.flatnonzero(has_answer[prepared.index])
    return _take(prepared, rows) if 0 < len(rows) < len(prepared.index) else prepared


def _take(prepared: PreparedSet, rows: Int[np.ndarray, "m"]) -> PreparedSet:
    """Return some of the images, by their places."""
    rules = {name: rule._replace(n=len(rows)) for name, rule in prepared.rules.items()}
    return prepared._replace(
        images=prepared.images[rows],
        index=prepared.index[rows],
        columns={name: column[rows] for name, column in prepared.columns.items()},
        target=prepared.target[rows],
        rules=rules,
    )


def device_batches(
    asked: suites.Suite, given: PreparedSet, ranked: Mapping[str, str] | None = None
) -> Iterator[inference.Batch]:
    """The images on the devices, in batches of one size; ranked: of a probe."""
    devices, n = asked.devices, len(given.index)
    size, source = batch_size(asked, given), asked.sources[given.dataset]
    batches = loader.batches([given.images], size, asked.reading)
    cues = cue_conflict.cues_of(given.columns, ranked or {})
    for first, images in zip(range(0, n, size), batches, strict=True):
        rows = np.arange(first, first + size).clip(max=n - 1)
        label = given.columns["label"][rows].astype(np.int32)
        ranks = {name: cue[rows] for name, cue in cues.items()}
        of = images, given.index[rows], label, given.target[rows], ranks
        told = given.dataset, of[1].tobytes(), of[3].tobytes()
        keep = lambda key, make, told=told: asked.stimuli.get((*told, *key), make)
        *of, ranks = mesh.split(of, devices)
        of = *of, min(size, n - first), given.dataset, source, ranks
        yield inference.Batch(*of, keep)


def batch_size(asked: suites.Suite, given: PreparedSet) -> int:
    """How many images a network is asked about at once."""
    shards = asked.devices.shape["data"]
    usual = 32 if xla.platform() == "cpu" else 256
    # No larger than the set: what fills a batch up costs as much as images.
    size = min(asked.run["batch"] or usual, len(given.index))
    return -(-size // shards) * shards


UNCHANGED = "as it is"
# Stands where no network is asked.
NO_NETWORK = inference.BoundNetwork(apply=probe.identity, variables={})


def select(
    asked: suites.Suite, dataset: str, index: Int[np.ndarray, "n"], given=None
) -> PreparedSet:
    """Images of a set by their numbers, and their classes where a network has these.

    given: what the network can answer of the set; there classes of other images are -1.
    """
    label, target = np.full((2, len(asked.sources[dataset])), -1, np.int32)
    if given is not None:
        label[given.index], target[given.index] = given.columns["label"], given.target
    rules, classes = (given.rules, given.classes) if given else ({}, ())
    of = dataset, asked.stored(dataset, index), index, {"label": label[index]}
    return PreparedSet(*of, target[index], rules, classes)


def read_images(asked: suites.Suite, few: PreparedSet) -> Shaped[np.ndarray, "n h w 3"]:
    """The images themselves, in bytes."""
    batches = device_batches(asked, few)
    return np.concatenate([np.asarray(one.image)[: one.count] for one in batches])


def condition_images(
    asked: suites.Suite, task: suites.Task, bound, conditions, few: PreparedSet
) -> dict[str, Shaped[np.ndarray, "n h w 3"]]:
    """What the network gets under some conditions; the image as it is comes first."""
    made = asked.make_probe(*task, few.classes)
    found = {} if "" in conditions else {UNCHANGED: [read_images(asked, few)]}
    for batch in device_batches(asked, few):
        for name in conditions:
            stimuli = inference.make_stimuli(bound, made, batch, name)
            parts = found.setdefault(name or UNCHANGED, [])
            parts.append(np.asarray(stimuli)[: batch.count])
    return {name: np.concatenate(parts) for name, parts in found.items()}
