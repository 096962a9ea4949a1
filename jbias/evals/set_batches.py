"""Prepare data sets for a network: select images of its classes, number labels, form batches.

`condition_images` returns the stimuli of a few images as arrays, for figures.
"""

import csv
import io
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Int, Shaped, UInt8

from jbias import data, errors
from jbias.data import base, class_maps, config_sets, loader, tables
from jbias.evals import inference, networks, suites
from jbias.evals.activations import inside
from jbias.measures import counting, cue_conflict
from jbias.runtime import console, mesh, signals, xla
from jbias.stimuli import shown

_MAX_LISTED = 20  # Outputs that a message names.
# Names in other data sets of Geirhos' 16 classes.
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


class SetRequest(NamedTuple):
    """A set to prepare for a network."""

    dataset: str  # Name of the set.
    keep_unanswerable: bool  # Whether to keep images whose class the network lacks.


class PreparedSet(NamedTuple):
    """The images of a set that a network is shown, and the rules for its decisions."""

    dataset: str  # Name of the set.
    # loader.EncodedImages read files.
    images: UInt8[np.ndarray, "n h w 3"] | loader.EncodedImages
    index: Int[np.ndarray, "n"]  # Number of each image in its set.
    columns: Mapping[str, Shaped[np.ndarray, "n"]]  # "label": decision class, or -1.
    target: Int[np.ndarray, "n"]  # Class among the network's own; -1 without a class.
    rules: Mapping[str, inference.DecisionRule]  # By aggregate.
    classes: tuple[str, ...]  # Names of the decision classes, by class id.


def prepare(
    network: networks.Network,
    suite: suites.Suite,
    dataset: str,
    say: console.Say,
    *,
    keep_unanswerable: bool = False,
    measures: Sequence[str] = (),
) -> PreparedSet:
    """Return a set with labels among the network's decision classes.

    dataset: name of the set in the suite. say: called with lines for the user.
    keep_unanswerable: keep images whose class the network lacks, with the label -1.
    measures: names of the measures that use the set, for a line on images that are left out.
    base.Mismatch, a ValueError, if no image has a class of the network. ValueError if the images
    have another aspect ratio than the network's training images. The result has one rule for each
    aggregate of the suite's measures on the set.
    """
    source = suite.sources[dataset]
    where = f"suite.sets.{dataset}"
    _check_aspect(where, source, network.fields["train_data"])
    options = suite.config["sets"][dataset]
    aggregates = dict.fromkeys(
        aggregate
        for measure in suite.measures
        if dataset in measure.datasets
        for aggregate in measure.aggregates
    )
    if source.aggregate and len(aggregates) > 1:
        raise ValueError(
            f"{where}: decisions must follow the rule of the set's authors,"
            f" {source.aggregate}, got measures with {', '.join(aggregates)}; leave their"
            " aggregates out, or give the set an aggregate"
        )
    answers = tuple(network.about.get("answers", {}).items())
    space = class_maps.LabelSpace(network.classes, network.space, answers)
    maps = {
        aggregate: config_sets.class_map(where, options, source, space, aggregate)
        for aggregate in aggregates
    }
    first_map = next(iter(maps.values()))
    label = np.asarray(source.columns["label"])
    is_answerable = (label >= 0) & (first_map.relabel[label] >= 0)
    if not is_answerable.any():
        raise base.Mismatch(f"{where}: no image has a class of the network's")
    index = np.flatnonzero(label >= 0 if keep_unanswerable else is_answerable)
    test = config_sets.test_set(
        dataset,
        source,
        first_map,
        suite.images[dataset],
        say,
        keep_unanswerable=keep_unanswerable,
        trained="the model",
        measures=measures,
    )
    new_label = test.columns["label"]
    target = np.where(new_label >= 0, _targets(first_map)[new_label], -1)
    rules = {
        aggregate: inference.DecisionRule(
            n=len(index), matrix=class_map.matrix, aggregate=class_map.aggregate
        )
        for aggregate, class_map in maps.items()
    }
    return PreparedSet(
        dataset=dataset,
        images=test.images,
        index=index.astype(np.int32),
        columns=test.columns,
        target=target.astype(np.int32),
        rules=rules,
        classes=first_map.classes,
    )


def _check_aspect(where: str, source: base.Source, trained: str) -> None:
    """Raise ValueError if images have another aspect ratio than the training images.

    where: start of the error message. source: the images. trained: name of the network's
    training set; of several names joined by "+", the first is used. Unknown names are not checked.
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
    suite: suites.Suite,
    measures_by_request: Mapping[SetRequest, Sequence[str]],
    say: console.Say,
    errors: tuple[type[BaseException], ...] = (),
) -> tuple[dict[SetRequest, PreparedSet], list[str]]:
    """Return (prepared sets by request, messages on the sets that cannot be prepared).

    The first message is on all sets of which the network has no class; each other set has a
    message of its own. measures_by_request: names of the measures that use each set. say:
    called with lines for the user. errors: types of errors that become messages instead of
    being raised.
    """
    prepared, foreign, faults = {}, {}, {}  # Dicts, as ordered sets.
    for request, measures in measures_by_request.items():
        try:
            prepared[request] = prepare(
                network,
                suite,
                request.dataset,
                say,
                keep_unanswerable=request.keep_unanswerable,
                measures=measures,
            )
        except base.Mismatch:
            foreign[request.dataset] = True
        except errors as error:
            signals.raise_interrupt(error)
            faults[f"{request.dataset}: {networks.describe_error(error)}"] = True
    datasets = [request.dataset for request in prepared]
    for line in _describe_unused(network, suite, datasets):
        say(f"{network.name}: {line}")
    mismatch = [_describe_mismatch(network, suite, foreign)] if foreign else []
    return prepared, [*mismatch, *faults]


def _describe_unused(
    network: networks.Network,
    suite: suites.Suite,
    datasets: Sequence[str],
) -> Iterator[str]:
    """Yield messages on outputs that belong to none of Geirhos' 16 classes.

    An example is an output "automobile", as the class is called "car". datasets: names of
    prepared sets. Yields nothing if the network's classes were given as a dictionary, which
    states which outputs have no class, or as WordNet ids.
    """
    answers = network.about.get("answers", {})
    if network.space != "names" or any(
        output != class_name for output, class_name in answers.items()
    ):
        return
    unused: dict[tuple, list[str]] = {}
    for dataset in datasets:
        source, options = suite.sources[dataset], suite.config["sets"][dataset]
        outputs = tuple(name for name in network.classes if name not in answers)
        if source.space == "entry16" and outputs and not options.get("mapping"):
            lacking = tuple(name for name in source.classes if name not in answers)
            unused.setdefault((outputs, lacking), []).append(dataset)
    for (outputs, lacking), names in unused.items():
        near = {name: _near_class(name, lacking) for name in outputs}
        words = [
            f"{name!r} (near {near[name]!r})" if near[name] else repr(name)
            for name in outputs[:_MAX_LISTED]
        ]
        more = len(outputs) - len(words)
        words += [f"{more:,} more"] if more else []
        lines = [
            _csv_line(name, near[name]) for name in outputs[:_MAX_LISTED] if near[name]
        ]
        example = f", such as {' and '.join(lines)}" if lines else ""
        yield (
            f"{len(outputs):,} of its {len(network.classes):,} outputs answer no class of "
            f"{', '.join(dict.fromkeys(names))}: {', '.join(words)}; no output answers "
            f"{', '.join(lacking) or 'none'}; if two of these mean the same, write a "
            "dictionary (classes=), or a CSV file (--classes) with lines "
            f"train_class,test_class for all outputs in order{example}"
        )


def _csv_line(*cells: str) -> str:
    """Return cells as a line of a CSV file, quoted if necessary."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(cells)
    return line.getvalue()


def _near_class(name: str, classes: Iterable[str]) -> str:
    """Return the class whose name is a word of `name`, a synonym of a word, or similar to `name`.

    "" for none. Case is ignored.
    """
    by_lower = {x.lower(): x for x in classes}
    words = name.lower().replace("_", " ").replace("-", " ").split()
    words += [_SYNONYMS.get(word, word) for word in words]
    near = [by_lower[word] for word in words if word in by_lower]
    return near[0] if near else errors.nearest(name, by_lower.values(), cutoff=0.7)


def _describe_mismatch(
    network: networks.Network, suite: suites.Suite, datasets: Iterable[str]
) -> str:
    """Return a message that compares a network's classes with the classes of some data sets.

    datasets: names of the data sets of which the network has no class.
    """
    by_space: dict[class_maps.LabelSpace, list[str]] = {}
    for dataset in datasets:
        source = suite.sources[dataset]
        space = class_maps.LabelSpace(tuple(source.classes), source.space)
        by_space.setdefault(space, []).append(dataset)
    sides = "; ".join(
        f"{', '.join(names)} want {space}" for space, names in by_space.items()
    )
    if "config" in network.about:
        remedy = "choose a suite of its classes, or map them by the sets' mapping=FILE"
    else:
        remedy = (
            "map its outputs to the images' classes by --classes=FILE.csv with lines "
            "train_class,test_class, all outputs in order (docs/measure-a-model.md)"
        )
        if network.classes == tables.wnids():
            remedy += ", or measure it on ImageNet by `jbias measure --imagenet=DIR`"
    output_space = class_maps.LabelSpace(network.classes, network.space)
    return f"its classes are {output_space}, while {sides}; {remedy}"


def check_needs(
    measure_name: str,
    built: counting.Counting | shown.Stimuli | inside.Inside,
    bound: inference.BoundNetwork,
    prepared: PreparedSet,
) -> None:
    """Raise ValueError if a measure needs gradients, sites or logits that the network lacks.

    ValueError also if stimuli follow gradients and the set's classes are not the network's own,
    and if a network gives class names only, some of which belong to none of the set's classes.
    measure_name: for the message. built: the measure or probe. bound: the network.
    prepared: the set.
    """
    follows_gradients = isinstance(built, shown.Stimuli) and built.network_steps
    needs_sites = isinstance(built, inside.Inside)
    if follows_gradients and bound.apply is None or needs_sites and bound.net is None:
        lacking = f"a network's {'sites inside' if needs_sites else 'gradients'}"
        raise ValueError(
            f"{measure_name} needs {lacking}, got none; leave the measure out"
        )
    matrices = [
        rule.matrix for rule in prepared.rules.values() if rule.matrix is not None
    ]
    has_unused = any(not (matrix > 0).any(1).all() for matrix in matrices)
    needs_grades = not needs_sites and built.graded
    if not bound.graded and (needs_grades or has_unused):
        extra = "classes that answer for none of the set's" if has_unused else "no more"
        raise ValueError(
            f"{measure_name} needs probabilities or logits, got names of classes and "
            f"{extra}; leave the measure out"
        )
    if matrices and follows_gradients:
        raise ValueError(
            f"{measure_name} must be on the network's own classes, whose gradients it "
            f"follows; here it decides among {len(prepared.classes):,} others or some of "
            "them; choose another set"
        )


def _targets(class_map: class_maps.ClassMap) -> Int[np.ndarray, "d"]:
    """Return the network's class id of each decision class; -1 unless there is exactly one."""
    if class_map.matrix is None:
        return np.arange(len(class_map.classes), dtype=np.int32)
    is_member = class_map.matrix > 0
    return np.where(is_member.sum(0) == 1, is_member.argmax(0), -1)


def subsample(prepared: PreparedSet, count: int) -> PreparedSet:
    """Return the prepared set with only `count` images, evenly spaced.

    Return the set itself if `count` is 0 or at least its number of images.
    """
    n = len(prepared.index)
    if not 0 < count < n:
        return prepared
    return _take(prepared, np.linspace(0, n - 1, count).round().astype(np.int64))


def answered(
    prepared: PreparedSet, network: networks.Network, conditions: Collection[str]
) -> PreparedSet:
    """Return the prepared set with only the images that have a decision of the network.

    A table of decisions may lack images; any other network decides about all images. conditions:
    the probe's conditions; an image must have a decision under all of them. All images are returned
    if no image has: then the network's `predict` raises an error with the reason.
    """
    has_answer = network.answered(prepared.dataset, conditions)
    if has_answer is None:
        return prepared
    rows = np.flatnonzero(has_answer[prepared.index])
    return _take(prepared, rows) if 0 < len(rows) < len(prepared.index) else prepared


def _take(prepared: PreparedSet, rows: Int[np.ndarray, "m"]) -> PreparedSet:
    """Return the prepared set with only the images at the positions `rows` of its arrays."""
    rules = {name: rule._replace(n=len(rows)) for name, rule in prepared.rules.items()}
    return prepared._replace(
        images=prepared.images[rows],
        index=prepared.index[rows],
        columns={name: column[rows] for name, column in prepared.columns.items()},
        target=prepared.target[rows],
        rules=rules,
    )


def device_batches(
    suite: suites.Suite,
    prepared: PreparedSet,
    ranked: Mapping[str, str] | None = None,
) -> Iterator[inference.Batch]:
    """Yield the images on the devices, in batches of one size, the last one padded.

    Padding images are black, with the index, label, target and cues of the last image.
    ranked: by name of a column of ranks, the column of classes to rank (counting.Counting.ranked);
    the classes become `cues` of the batches.
    """
    n, size = len(prepared.index), batch_size(suite, prepared)
    batches = loader.batches([prepared.images], size, suite.reader_options)
    all_cues = cue_conflict.cues_of(prepared.columns, ranked or {})
    for first, images in zip(range(0, n, size), batches, strict=True):
        rows = np.arange(first, first + size).clip(max=n - 1)
        host_index, host_target = prepared.index[rows], prepared.target[rows]
        cache_key = (prepared.dataset, host_index.tobytes(), host_target.tobytes())
        host_label = prepared.columns["label"][rows].astype(np.int32)
        host_cues = {name: cue[rows] for name, cue in all_cues.items()}
        arrays = (images, host_index, host_label, host_target, host_cues)
        image, index, label, target, cues = mesh.split(arrays, suite.devices)
        yield inference.Batch(
            image=image,
            index=index,
            label=label,
            target=target,
            count=min(size, n - first),
            dataset=prepared.dataset,
            source=suite.sources[prepared.dataset],
            cues=cues,
            keep=_stimulus_keeper(suite.stimuli, cache_key),
        )


def _stimulus_keeper(
    cache: inference.StimulusCache, batch_key: tuple
) -> Callable[[tuple, Callable[[], Array]], Array]:
    """Return a function (key, make) -> cached stimuli of one batch (inference.Batch.keep).

    batch_key: identifies the batch in the cache.
    """

    def keep(key: tuple, make: Callable[[], Array]) -> Array:
        return cache.get((*batch_key, *key), make)

    return keep


def batch_size(suite: suites.Suite, prepared: PreparedSet) -> int:
    """Return the number of images per batch, a multiple of the number of devices.

    The number is suite.run["batch"], or, if this entry is 0, 32 on a CPU and 256 elsewhere, but at
    most the number of images; the number is then rounded up to a multiple.
    """
    shards = suite.devices.shape["data"]
    default = 32 if xla.platform() == "cpu" else 256
    # No larger than the set: padding costs as much as images.
    size = min(suite.run["batch"] or default, len(prepared.index))
    return -(-size // shards) * shards


UNCHANGED = "as it is"
# For stimuli that depend on no network.
NO_NETWORK = inference.BoundJaxNetwork(apply=shown.identity, variables={})


def select(
    suite: suites.Suite,
    dataset: str,
    index: Int[np.ndarray, "n"],
    prepared: PreparedSet | None = None,
) -> PreparedSet:
    """Return the images of a set with the given indices, as a PreparedSet.

    dataset: name of the set. index: indices of the images in the set. prepared: the set prepared
    for a network, from which labels, targets, rules and classes are taken. Images that are not in
    `prepared` have label and target -1. Without `prepared`, all images have label and target -1,
    and there are no rules and no classes. "label" is the only column.
    """
    label, target = np.full((2, len(suite.sources[dataset])), -1, np.int32)
    if prepared is not None:
        label[prepared.index] = prepared.columns["label"]
        target[prepared.index] = prepared.target
    return PreparedSet(
        dataset=dataset,
        images=suite.select_images(dataset, index),
        index=index,
        columns={"label": label[index]},
        target=target[index],
        rules=prepared.rules if prepared else {},
        classes=prepared.classes if prepared else (),
    )


def read_images(
    suite: suites.Suite, prepared: PreparedSet
) -> UInt8[np.ndarray, "n h w 3"]:
    """Return all images of a prepared set in memory, uint8."""
    batches = device_batches(suite, prepared)
    return np.concatenate([np.asarray(batch.image)[: batch.count] for batch in batches])


def condition_images(
    suite: suites.Suite,
    task: suites.Task,
    bound: inference.BoundNetwork,
    conditions: Sequence[str],
    prepared: PreparedSet,
) -> dict[str, Shaped[np.ndarray, "n h w 3"]]:
    """Return the stimuli of all images of a prepared set, by condition.

    task: the measure and set. bound: the network, for stimuli that depend on it; else
    NO_NETWORK. conditions: names in the task's probe. Stimuli are floats in [0, 1], in the
    order of `conditions`; the key of condition "" is UNCHANGED. If "" is not among the
    conditions, there is a first entry UNCHANGED with the set's images as uint8.
    """
    built = suite.make_probe(task.measure, task.dataset, prepared.classes)
    shown_probe = suites.as_stimuli(built)
    chunks = {} if "" in conditions else {UNCHANGED: [read_images(suite, prepared)]}
    for batch in device_batches(suite, prepared):
        for condition in conditions:
            stimuli = inference.make_stimuli(bound, shown_probe, batch, condition)
            of_condition = chunks.setdefault(condition or UNCHANGED, [])
            of_condition.append(np.asarray(stimuli)[: batch.count])
    return {name: np.concatenate(by_batch) for name, by_batch in chunks.items()}
