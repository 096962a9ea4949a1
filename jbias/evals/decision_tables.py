"""Reader of tables of decisions that other programs or human observers made.

The decisions are measured like those of a network. A CSV or Parquet file has one row per
stimulus; the columns are model-vs-human's, or others that answers/columns.py recognises:

    object_response    the decided class, by its name in the set
    imagename          the stimulus: its name from `export_stimuli`, or the set's file
                       (image_names.py describes the accepted spellings)
    subj               the observer; default: the file's name
    set                the suite's set; default: the set that the path of an exported
                       stimulus, or the file's name, begins with; else the only set that
                       has an image of that name

A table with a column drawn_options has a model's words (raw_response), which are parsed.
Other columns are ignored. Tables have no probabilities: confidences are NaN. A response such as
"na" or "None" (answers/parsing.py) means no answer: the decision is for none of the classes.
Images without a row are left out.

Source of the format: bethgelab/model-vs-human at 79ed7cd, raw-data.
"""

import collections
import dataclasses
import hashlib
import itertools
import os
import re
import urllib.parse
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from jbias import errors
from jbias.answers import observers, parsing, stimulus_names, tables
from jbias.data import base
from jbias.data.sets import geirhos
from jbias.evals import image_names, inference, networks, set_batches, suites
from jbias.evals.activations import inside
from jbias.measures import cue_conflict, human_answers
from jbias.runtime import console
from jbias.stimuli import shown

_NUM_COMPARED = (
    4  # Images that are compared to recognise equal stimuli of two measures.
)
StimulusKey = tuple[str, str]  # A set, and a probe's condition.
Responses = Int[np.ndarray, "n"]  # By image of a set: class id, NO_ROW or NO_ANSWER.


@dataclasses.dataclass(frozen=True, eq=False)
class DecidedNetwork(networks.Network):
    """A network with stored decisions instead of weights; implements inference.BoundNetwork.

    decided: by (set, condition), for each image of the set a class id,
    observers.NO_ROW or observers.NO_ANSWER.
    """

    decided: Mapping[StimulusKey, Responses]
    apply = at = net = None
    graded = False
    variables = ()

    def answered(
        self, dataset: str, conditions: Collection[str]
    ) -> Bool[np.ndarray, "n"] | None:
        """Return True for each image of a set that has a row under all of the conditions.

        dataset: name of the set. None if a condition has no rows, or there is no condition.
        """
        responses = [self.decided.get((dataset, condition)) for condition in conditions]
        if not responses or any(response is None for response in responses):
            return None
        return np.all([response != observers.NO_ROW for response in responses], axis=0)

    def predict(
        self, image: shown.Images, origin: inference.StimulusOrigin
    ) -> inference.Logits:
        """Return logits that are +inf for the decided class and 0 for others.

        image: stimuli, which are ignored; origin: the set, condition and image numbers that the
        stimuli were made from. Logits are NaN if the table has "na" for an image. ValueError if a
        stimulus has no row, or if the set has no rows under this condition.
        """
        stimuli_text = origin.dataset
        if origin.condition:
            stimuli_text += f" under {origin.condition!r}"
        responses = self.decided.get((origin.dataset, origin.condition))
        if responses is None:
            raise ValueError(
                f"{self.name}: no decisions about {stimuli_text}; export these stimuli and "
                "decide about them, or leave the measure out by --only"
            )
        response = responses[np.asarray(origin.index)]
        if (response == observers.NO_ROW).any():
            lacking = int((responses == observers.NO_ROW).sum())
            raise ValueError(
                f"{self.name}: must have decided about every stimulus of {stimuli_text}, "
                f"{lacking:,} of {len(responses):,} are missing; give the whole file, and "
                "the suite that the stimuli were exported from"
            )
        is_decided = response[:, None] == np.arange(len(self.classes))
        logits = np.where(is_decided, np.inf, 0.0)
        logits[response == observers.NO_ANSWER] = np.nan
        return jnp.asarray(logits, jnp.float32)


def stimuli(suite: suites.Suite) -> dict[StimulusKey, suites.Task]:
    """Return, by (set, condition), the first task of the suite that shows these stimuli.

    Stimuli that depend on a network, such as attacks, are left out. ValueError if two
    measures show different stimuli under one name.
    """
    first_task: dict[StimulusKey, suites.Task] = {}
    for task in suite.tasks():
        built = _make_probe(suite, task)
        if isinstance(built, inside.Inside):
            continue
        shown_probe = suites.as_stimuli(built)
        if shown_probe.network_steps:
            continue
        for condition in shown_probe.conditions:
            other = first_task.setdefault((task.dataset, condition), task)
            if other is not task and not _are_equal(suite, condition, task, other):
                raise ValueError(
                    f"suite.measures: {task.measure.name} and {other.measure.name} show "
                    f"different stimuli of {task.dataset} under the name {condition!r}; "
                    "choose one of them by --only"
                )
    return first_task


def _make_probe(suite: suites.Suite, task: suites.Task) -> suites.Built:
    """Return the probe of a task's measure, for decisions among the set's own classes."""
    classes = tuple(suite.sources[task.dataset].classes)
    return suite.make_probe(task.measure, task.dataset, classes)


def _are_equal(
    suite: suites.Suite, condition: str, task: suites.Task, other: suites.Task
) -> bool:
    """Return True if two measures of a set show equal stimuli under a condition.

    Values x and y, in [0, 1], are equal if |x - y| <= 1e-6 + 1e-5 y. Only the first _NUM_COMPARED
    images are compared. task, other: the two measures, both on the set of `task`; y is of `other`.
    """
    count = min(_NUM_COMPARED, len(suite.sources[task.dataset]))
    index = np.arange(count, dtype=np.int32)
    few = set_batches.select(suite, task.dataset, index)
    (batch,) = set_batches.device_batches(suite, few)
    images, other_images = (
        _make_stimuli(suites.as_stimuli(_make_probe(suite, x)), batch, condition)
        for x in (task, other)
    )
    return images.shape == other_images.shape and np.allclose(
        images, other_images, atol=1e-6
    )


def _make_stimuli(
    shown_probe: shown.Stimuli, batch: inference.Batch, condition: str
) -> Float[np.ndarray, "b h w 3"]:
    """Return the stimuli of a condition for a batch, in [0, 1], made without a network."""
    if shown_probe.show is shown.identity:
        return np.asarray(batch.image, np.float32) / 255
    return np.asarray(
        inference.make_stimuli(set_batches.NO_NETWORK, shown_probe, batch, condition)
    )


def stimulus_file(dataset: str, condition: str, image: int) -> str:
    """Return the path of an exported stimulus, such as "voc/fog-3/000012.png".

    dataset: name of the set. condition: the probe's condition; "" becomes the folder
    "as it is". image: number of the image in the set.
    """
    folder = urllib.parse.quote(condition or set_batches.UNCHANGED, safe=" ,=+")
    return f"{dataset}/{folder}/{image:06d}.png"


def load(
    path: str,
    suite: suites.Suite,
    columns: Mapping[str, str],
    say: console.Say = lambda line: None,
) -> Iterator[DecidedNetwork]:
    """Yield the networks whose decisions are in the tables of a path.

    path: see `answers.tables.decision_files`. columns: result of `answers.columns.parse`. say: called with lines on images
    without a row or without an answer. ValueError, beginning with the file and the line number,
    for a row that is not a decision about a stimulus of the suite, and for a second decision
    about a stimulus. ValueError if no row is about a set that is measured, and if a network's
    sets have different classes.
    """
    stimulus_keys = stimuli(suite)
    images = {name: _Images(suite, name, stimulus_keys) for name, _ in stimulus_keys}
    by_network: dict[tuple[str, str], dict[StimulusKey, Responses]] = {}
    first_row: dict[tuple, str] = {}
    for file in tables.decision_files(path, columns=columns, say=say):
        for row in _located_rows(file, columns, suite, images):
            network_key = row.network, row.prompt
            row_key = *network_key, row.dataset, row.condition, row.number
            if row_key in first_row:
                raise ValueError(
                    f"{row.where}: a stimulus must be decided about once, got "
                    f"{row.image!r} again after {first_row[row_key]}; leave one of them "
                    "out"
                )
            first_row[row_key] = row.where
            decided = by_network.setdefault(network_key, {})
            stimulus = row.dataset, row.condition
            if stimulus not in decided:
                size = len(suite.sources[row.dataset])
                decided[stimulus] = np.full(size, observers.NO_ROW, np.int32)
            decided[stimulus][row.number] = row.response
    if not by_network:
        raise ValueError(
            f"{path}: must hold decisions about {', '.join(images)}, got none; choose "
            "the suite that these stimuli are of"
        )
    names = _network_names([*by_network])
    for (model, prompt), decided in by_network.items():
        network = names[model, prompt]
        for line in describe_lacking(decided, suite.sources):
            say(f"{network}: {line}")
        factors = {"factors": {"model": model, "prompt": prompt}} if prompt else {}
        yield make_network(
            network,
            path,
            sources=suite.sources,
            decided=decided,
            details=factors,
        )


def _network_names(keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return a name for each (model, prompt): the model, with the prompt if it has several."""
    prompts: dict[str, list[str]] = {}
    for model, prompt in keys:
        prompts.setdefault(model, []).append(prompt)
    names = {}
    for model, values in prompts.items():
        labels = tables.short_prompts(values)
        for prompt in values:
            is_named = bool(prompt) and len(values) > 1
            label = labels[prompt].replace("/", "-").replace("\\", "-")
            names[model, prompt] = f"{model}, {label}" if is_named else model
    return names


def describe_lacking(
    decided: Mapping[StimulusKey, Responses], sources: Mapping[str, base.Source]
) -> Iterator[str]:
    """Yield messages, by set, on the numbers of images without a row and without an answer.

    An image counts once per condition. There is no message if the number is 0. sources: sets by
    name, of which those with a column "texture" have cues.
    """
    for dataset in dict.fromkeys(name for name, _ in decided):
        responses = np.concatenate(
            [response for (name, _), response in decided.items() if name == dataset]
        )
        num_rows = int((responses != observers.NO_ROW).sum())
        if num_rows < len(responses):
            yield (
                f"{len(responses) - num_rows:,} of the {len(responses):,} images of "
                f"{dataset} have no decision; measured on the other {num_rows:,}"
            )
        is_unanswered = responses == observers.NO_ANSWER
        if is_unanswered.any():
            of_conflicts, consequence = "", "they count as wrong"
            columns = sources[dataset].columns
            if "texture" in columns:
                consequence += " for accuracy, and not at all for shape bias"
            if "texture" in columns and len(columns["texture"]) == len(responses):
                is_conflict = cue_conflict.find_conflicts(
                    np.asarray(columns["label"]), np.asarray(columns["texture"])
                ) & (responses != observers.NO_ROW)
                of_conflicts = (
                    f" ({(is_unanswered & is_conflict).sum():,} of the {is_conflict.sum():,} "
                    "whose cues conflict)"
                )
            yield (
                f"{is_unanswered.sum():,} of the {num_rows:,} decisions on {dataset} are no "
                f"answer, such as {human_answers.NONE!r}{of_conflicts}: {consequence}"
            )


class _LocatedRow(NamedTuple):
    """A row of a table whose stimulus was found in the suite."""

    where: str  # The file and its line.
    image: str  # As the file spells it.
    network: str
    prompt: str  # Of the table's column; "" without one.
    dataset: str
    condition: str
    number: int  # Number of the image in the set.
    response: int  # A class of the set, or observers.NO_ANSWER.


def _located_rows(
    file: str,
    columns: Mapping[str, str],
    suite: suites.Suite,
    images: Mapping[str, "_Images"],
) -> Iterator[_LocatedRow]:
    """Yield the rows of a file that are about a stimulus to measure.

    columns: result of `answers.columns.parse`. images: by name of the set, for the sets that are
    measured. Rows of other sets of the suite, and of exported stimuli under a condition that
    is not measured, are skipped. ValueError for an invalid row, and, after the last row, for
    names that belong to no image.
    """
    stem = os.path.basename(file).rsplit(".", 1)[0]
    sets = suite.config["sets"]
    stimuli_in_name = stimulus_names.longest_begin(stem, geirhos.STIMULI)
    lacking: dict[str, list[tuple[str, str]]] = {}  # Rows of no image, by set.
    counts: collections.Counter[str] = collections.Counter()  # Rows by set.
    cells, roles = tables.read_cells(file, columns)
    set_column = roles.dataset or "set"
    for row, prompt in zip(cells, tables.prompts_of(cells), strict=True):
        where, image = row.where, row.image
        answer = row.decision if roles.decision else row.raw
        dataset = row.dataset or _likely_set(stem, image, images, sets)
        if not dataset:
            dataset = _only_set(where, image, images, set_column)
            split = images[dataset].split if dataset else ""
            # Edges and silhouettes have images of the same names.
            is_published = stimuli_in_name and split in geirhos.STIMULI
            if is_published and split != stimuli_in_name:
                raise ValueError(
                    f"{where}: the file is named for the set {stimuli_in_name}, which is "
                    f"not among the sets here ({', '.join(images)}); give its folder, or "
                    f"name the images' set in a column {set_column!r}"
                )
        if not dataset:
            lacking.setdefault("", []).append((where, image))
            continue
        must = f"{where}: {set_column} must be one of the suite's sets"
        errors.check_known(must, dataset, sets)
        if dataset not in images:
            continue  # A missing set, or one that --only leaves out.
        counts[dataset] += 1
        classes = tuple(suite.sources[dataset].classes)
        response = parsing.match_class(answer, classes)
        is_parsed = not response and bool(roles.options) and not roles.decision
        if is_parsed:
            response = _read_words(row, classes)
        if not response and (is_parsed or parsing.is_no_answer(answer)):
            response_id = observers.NO_ANSWER
        else:
            column = roles.decision or roles.raw
            must = f"{where}: {column} must be one of {dataset}'s classes"
            errors.check_known(must, response or answer, classes)
            response_id = classes.index(response)
        located = images[dataset].find(where, image)
        if located is None:
            if not images[dataset].is_of_other_condition(image):
                lacking.setdefault(dataset, []).append((where, image))
            continue
        condition, number = located
        yield _LocatedRow(
            where=where,
            image=image,
            network=row.observer or stem,
            prompt=prompt,
            dataset=dataset,
            condition=condition,
            number=number,
            response=response_id,
        )
    unknown = lacking.pop("", [])
    if unknown and len(counts) == 1:  # The other rows are of a single set.
        (dataset,) = counts
        counts[dataset] += len(unknown)
        lacking.setdefault(dataset, []).extend(unknown)
    elif unknown:
        where, _ = unknown[0]
        remedy = "add it, or begin the file's name or the images with it; "
        remedy += errors.suggest(stem.partition("_")[0], sets)
        errors.refuse(
            where, f"name the suite's set in a column {set_column!r}", remedy=remedy
        )
    for dataset, rows in lacking.items():
        images[dataset].refuse(rows, counts[dataset])


def _read_words(row: tables.Cells, classes: tuple[str, ...]) -> str:
    """Return the class that a row's words name, by the options drawn for it; "" for no answer."""
    return parsing.parse(row.raw, tables.row_options(row, classes), classes).decision


def _only_set(
    where: str, image: str, images: Mapping[str, "_Images"], column: str
) -> str:
    """Return the name of the only set, or of the set that has an image; "" if no set has the image.

    where: start of the error message. image: name in the table. images: by set. column: name
    of the table's column of sets, for the message. ValueError if several sets have the image.
    """
    if len(images) == 1:
        return next(iter(images))
    matches = [name for name, of_set in images.items() if of_set.has(image)]
    if len(matches) > 1:
        raise ValueError(
            f"{where}: {image!r} is an image of the sets {' and '.join(matches)}; name the "
            f"set in a column {column!r}, or begin the file's name with it, such as "
            f"{matches[0]}_NAME.csv"
        )
    return matches[0] if matches else ""


def make_network(
    name: str,
    path: str,
    *,
    sources: Mapping[str, base.Source],
    decided: Mapping[StimulusKey, Responses],
    details: Mapping[str, Any] | None = None,
) -> DecidedNetwork:
    """Return a network with these decisions; ValueError if its sets have different classes.

    name: name of the network. path: path of the tables, for records and messages. sources: sets
    by name. decided: see `DecidedNetwork`. details: entries of `about` beside "category" and
    "path".
    """
    decided_sources = {dataset: sources[dataset] for dataset, _ in decided}
    spaces = {
        (tuple(source.classes), source.space) for source in decided_sources.values()
    }
    if len(spaces) > 1:
        raise ValueError(
            f"{path}: {name}'s sets must have the same classes, got other ones in "
            f"{', '.join(decided_sources)}; give a folder for each"
        )
    ((classes, space),) = spaces
    digest = hashlib.sha256()
    for (dataset, condition), responses in sorted(decided.items()):
        digest.update(f"{dataset}\0{condition}\0".encode() + responses.tobytes())
    fields = {
        "run": name,
        "algorithm": name,
        "variant": "",
        "model": "decisions",
        "train_data": "unknown",
        "stage": 0,
        "seed": 0,
        "step": 0,
        "epoch": 0.0,
    }
    return DecidedNetwork(
        name=name,
        classes=classes,
        space=space,
        digest=digest.hexdigest()[:16],
        fields=fields,
        about={"category": name, "path": path, **(details or {})},
        decided=decided,
    )


class _Images:
    """The names of a set's images and stimuli, for look-ups by the names in a table.

    stimulus_keys: (set, condition) pairs, from which the conditions of this set are taken.
    """

    def __init__(
        self,
        suite: suites.Suite,
        dataset: str,
        stimulus_keys: Iterable[StimulusKey],
    ):
        self.dataset, source = dataset, suite.sources[dataset]
        conditions = [condition for name, condition in stimulus_keys if name == dataset]
        self.pairs = [*itertools.product(conditions, range(len(source)))]
        exported = [
            stimulus_file(dataset, condition, image) for condition, image in self.pairs
        ]
        self.exported = dict(zip(exported, self.pairs, strict=True))
        self.conditions = {name.split("/")[1] for name in exported}
        self.stimuli = image_names.ImageNames(
            [name.removeprefix(f"{dataset}/") for name in exported],
            folders=[dataset],
            without_folder=False,
        )
        self.store = getattr(source, "store", None)
        names = getattr(self.store, "names", ())
        options = suite.config["sets"][dataset]
        self.split = split = str(options.get("split", "")).partition("[")[0]
        folder = os.path.basename(getattr(self.store, "root", ""))
        self.files = image_names.ImageNames(names, folders=[dataset, split, folder])
        self.published = _published_names(options.get("data"), split, names)

    def find(self, where: str, image: str) -> tuple[str, int] | None:
        """Return (condition, number of the image) of a name; None for an unknown name.

        The condition is "" for a file of the set. where: start of the error message. image:
        name in the table. ValueError if several images have the name.
        """
        if image in self.exported:
            return self.exported[image]
        numbers = self.files.find(image) or self.published.find(image)
        if len(numbers) == 1:
            return "", numbers[0]
        if numbers:
            candidates = " and ".join(repr(self.store.key(i)) for i in numbers[:2])
            raise ValueError(
                f"{where}: {image!r} must be an image of the set {self.dataset}, which has "
                f"{len(numbers)} of that name: {candidates}; name each image by its path "
                "in the set"
            )
        stimuli = self.stimuli.find(image)
        return self.pairs[stimuli[0]] if stimuli else None

    def has(self, image: str) -> bool:
        """Return True if at least one image or stimulus has the name."""
        return bool(
            image in self.exported
            or self.files.find(image)
            or self.published.find(image)
            or self.stimuli.find(image)
        )

    def refuse(self, rows: Sequence[tuple[str, str]], count: int) -> NoReturn:
        """Raise ValueError for rows, as (where, image), that belong to no image.

        count: the number of all rows of the set.
        """
        (where, image), size = rows[0], len({number for _, number in self.pairs})
        names = "name stimuli as export-stimuli does"
        if self.store is not None:
            names += f", or as the set's files, such as {self.store.names[0]!r}"
        if len(rows) < count:
            names = f"give the folder that has them all, or remove these rows; {names}"
        raise ValueError(
            f"{where}: {len(rows):,} of the file's {count:,} images are not among the "
            f"{size:,} of the set {self.dataset}{self._folder()}, the first is {image!r}; "
            f"{names}"
        )

    def _folder(self) -> str:
        """Return " (<folder of the set's images>)" for messages; "" if the set has no folder."""
        root = getattr(self.store, "root", "")
        return f" ({root})" if root else ""

    def is_of_other_condition(self, image: str) -> bool:
        """Return True if a name is an exported stimulus whose condition is not measured."""
        dataset, _, inner_path = stimulus_names.plain_path(image).partition("/")
        folder, _, name = inner_path.rpartition("/")
        is_stimulus = dataset == self.dataset and _STIMULUS.fullmatch(name)
        return bool(is_stimulus and folder and folder not in self.conditions)


_STIMULUS = re.compile(r"\d{6}\.png")


def _published_names(
    data: str, split: str, names: Sequence[str]
) -> image_names.PublishedNames:
    """Return the published names of a set's images; empty unless they are Geirhos' stimuli.

    data: the kind of set ("geirhos", "model_vs_human", ...). split: the split of that kind.
    names: the set's files.
    """
    if data == "geirhos":
        return image_names.PublishedNames(names)
    if data == "model_vs_human":
        return image_names.PublishedNames(names, geirhos.CONDITIONS[split])
    return image_names.PublishedNames(())


def _likely_set(
    stem: str,
    image: str,
    images: Mapping[str, _Images],
    known: Collection[str],
) -> str:
    """Return the name of the set that an image's path or the file's name begins with, or "".

    stem: the table's file name without its suffix. image: path in the table; its first folder
    takes precedence, unless the path is the path of an image in the set that the file is named for.
    images: by set, for the sets that are measured. known: names of all sets of the suite.
    """
    by_file = stimulus_names.longest_begin(stem, known)
    if by_file in images and images[by_file].files.has_path(image):
        return by_file
    first_folder = stimulus_names.plain_path(image).partition("/")[0]
    return first_folder if first_folder in known else by_file
