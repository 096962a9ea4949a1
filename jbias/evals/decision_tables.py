"""Networks known by what they decided elsewhere: tables take the place of a model.

A CSV or Parquet file has a row a stimulus; columns are model-vs-human's by themselves:

    object_response    the decided class, by its name in the set
    imagename          which stimulus: as `export_stimuli` named it, or as the set's file
                       (image_names.py has the spellings that are understood)
    subj               who decided; the file's name where there is no such column
    set                the suite's set; where there is none, what the path of an exported
                       stimulus, or the file's name before its first "_", begins with;
                       else the only set that has an image of that name

Others are ignored. Decisions say nothing of probabilities: confidences are NaN. The response
"na" is no answer: the decision is for none of the classes. Images without a row are not shown.

Source of the form: bethgelab/model-vs-human at 79ed7cd, raw-data.
"""

import collections
import csv
import dataclasses
import functools
import glob
import hashlib
import io
import itertools
import os
import re
import urllib.parse
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, NoReturn

import jax.numpy as jnp
import numpy as np
import pandas as pd

from jbias import config as jc
from jbias.data import base
from jbias.data.sets import geirhos
from jbias.evals import (
    image_names,
    inference,
    networks,
    prepared_sets,
    probe,
    suites,
    trials,
)
from jbias.untrusted import opening

COLUMNS: Mapping[str, str] = {
    "response": "object_response",
    "image": "imagename",
    "network": "subj",
    "set": "set",
}
_NEEDED = ("response", "image")
_COMPARED = 4  # Images, to tell whether two measures show the same.
Shown = tuple[str, str]  # A set, and a probe's condition.
# In tables, in the place of a class.
_NO_ROW, _NO_ANSWER = -1, -2


@dataclasses.dataclass(frozen=True, eq=False)
class DecidedNetwork(networks.Network):
    """A network of which decisions are all that is known, and a inference.BoundNetwork."""

    # By an image's number in the set: a class, _NO_ROW or _NO_ANSWER.
    decided: Mapping[Shown, np.ndarray]
    apply = at = net = None
    graded = False
    variables = ()

    def answered(self, dataset: str, conditions: Collection[str]) -> np.ndarray | None:
        """Return which images of a set have a row under all conditions.

        None where a condition has no rows at all.
        """
        tables = [self.decided.get((dataset, condition)) for condition in conditions]
        if not tables or any(table is None for table in tables):
            return None
        return np.all([table != _NO_ROW for table in tables], axis=0)

    def predict(
        self, image: probe.Images, shown: inference.StimulusOrigin
    ) -> inference.Logits:
        """Infinite for the decided class: it is decided for, and no probability is known.

        NaN for all classes where the response is no answer. ValueError where some of these
        stimuli have no row.
        """
        what = f"{shown.dataset}{f' under {shown.condition!r}' * bool(shown.condition)}"
        table = self.decided.get((shown.dataset, shown.condition))
        if table is None:
            raise ValueError(
                f"{self.name}: no decisions about {what}; export these stimuli and "
                "decide about them, or leave the measure out by --only"
            )
        answer = table[np.asarray(shown.index)]
        if (answer == _NO_ROW).any():
            lacking = int((table == _NO_ROW).sum())
            raise ValueError(
                f"{self.name}: must have decided about every stimulus of {what}, "
                f"{lacking:,} of {len(table):,} are missing; give the whole file, and the suite "
                "that the stimuli were exported from"
            )
        chosen = answer[:, None] == np.arange(len(self.classes))
        logits = np.where(chosen, np.inf, 0.0)
        logits[answer == _NO_ANSWER] = np.nan
        return jnp.asarray(logits, jnp.float32)


def stimuli(asked: suites.Suite) -> dict[Shown, suites.Task]:
    """What decisions can be about: of each set, each condition of a measure, once.

    What asks a network, as attacks do, is not among them. ValueError where two measures
    show other stimuli under one name.
    """
    found: dict[Shown, suites.Task] = {}
    for task in asked.tasks():
        made = asked.make_probe(*task, tuple(asked.sources[task.dataset].classes))
        if made.inside or made.move or made.look:
            continue
        for condition in made.conditions:
            other = found.setdefault((task.dataset, condition), task)
            if other is not task and not _same_stimuli(asked, condition, task, other):
                raise ValueError(
                    f"suite.measures: {task.measure.name} and {other.measure.name} show "
                    f"different stimuli of {task.dataset} under the name {condition!r}; "
                    "choose one of them by --only"
                )
    return found


def _same_stimuli(asked, condition: str, *tasks: suites.Task) -> bool:
    """Whether two measures show the same under a condition, by a few images."""
    dataset, shown = tasks[0].dataset, []
    count = min(_COMPARED, len(asked.sources[dataset]))
    few = prepared_sets.select(asked, dataset, np.arange(count, dtype=np.int32))
    (batch,) = prepared_sets.device_batches(asked, few)
    for task in tasks:
        made = asked.make_probe(*task, tuple(asked.sources[dataset].classes))
        if made.show is probe.identity:
            shown.append(np.asarray(batch.image, np.float32) / 255)
            continue
        of = prepared_sets.NO_NETWORK, made, batch, condition
        shown.append(np.asarray(inference.make_stimuli(*of)))
    return shown[0].shape == shown[1].shape and np.allclose(*shown, atol=1e-6)


def stimulus_file(dataset: str, condition: str, image: int) -> str:
    """The path of an exported stimulus, by its image's number in the set."""
    folder = urllib.parse.quote(condition or prepared_sets.UNCHANGED, safe=" ,=+")
    return f"{dataset}/{folder}/{image:06d}.png"


def parse_columns(text: str) -> dict[str, str]:
    """Reads --columns, "response=predicted,image=path"; others are as usual."""
    given = dict(COLUMNS)
    for pair in filter(None, text.split(",")):
        key, equals, name = pair.partition("=")
        jc.check_known("--columns", key, COLUMNS)
        if not equals or not name:
            raise ValueError(f"--columns: must be {key}=NAME, got {pair!r}; name it")
        given[key] = name
    return given


def find_files(path: str) -> list[str]:
    """Return the tables of a path, a folder's or a glob's in order; ValueError for none."""
    found = [path] if os.path.isfile(path) else []
    ends = ("csv", "parquet")
    inside = (glob.glob(os.path.join(glob.escape(path), f"*.{end}")) for end in ends)
    found = found or sorted(itertools.chain(*inside))
    if not found and glob.has_magic(path):
        found = sorted(name for name in glob.glob(path) if name.lower().endswith(ends))
    if not found:
        raise ValueError(
            f"--decisions: {path} must be a CSV or Parquet file or a folder of these, got "
            f"{'an empty one' if os.path.isdir(path) else 'nothing there'}; check it"
        )
    return found


def load(
    path: str,
    asked: suites.Suite,
    columns: Mapping[str, str],
    say: probe.Say = lambda line: None,
) -> Iterator[DecidedNetwork]:
    """Yield the networks whose decisions are in the tables of a path.

    say: gets a line on images without a decision, and on responses that are no answer.
    ValueError, in a line that begins with the file and its line, for what is no decision
    about a stimulus of the suite.
    """
    shown = stimuli(asked)
    images = {name: _Images(asked, name, shown) for name, _ in shown}
    tables: dict[str, dict[Shown, np.ndarray]] = {}
    first: dict[tuple, str] = {}
    for file in find_files(path):
        for row in _located_rows(file, columns, asked, images):
            key = row.network, row.dataset, row.condition, row.number
            if key in first:
                raise ValueError(
                    f"{row.where}: a stimulus must be decided about once, got "
                    f"{row.image!r} again after {first[key]}; leave one of them out"
                )
            first[key] = row.where
            shown_to = tables.setdefault(row.network, {})
            stimulus = row.dataset, row.condition
            if stimulus not in shown_to:
                size = len(asked.sources[row.dataset])
                shown_to[stimulus] = np.full(size, _NO_ROW, np.int32)
            shown_to[stimulus][row.number] = row.response
    if not tables:
        raise ValueError(
            f"{path}: must hold decisions about {', '.join(images)}, got none; choose "
            "the suite that these stimuli are of"
        )
    for network, decisions in tables.items():
        for line in _describe_lacking(decisions):
            say(f"{network}: {line}")
        yield _network(network, path, asked, decisions)


def _describe_lacking(decisions: Mapping[Shown, np.ndarray]) -> Iterator[str]:
    """Yield lines on a network's images without a row, and without an answer, by set."""
    for dataset in dict.fromkeys(name for name, _ in decisions):
        tables = [table for (name, _), table in decisions.items() if name == dataset]
        whole = np.concatenate(tables)
        rows = int((whole != _NO_ROW).sum())
        if rows < len(whole):
            yield (
                f"{len(whole) - rows:,} of the {len(whole):,} images of {dataset} have no "
                f"decision; measured on the other {rows:,}"
            )
        silent = int((whole == _NO_ANSWER).sum())
        if silent:
            yield (
                f"{silent:,} of the {rows:,} decisions on {dataset} are {trials.NONE!r}, "
                "no answer: they count as wrong, and for neither cue"
            )


class _LocatedRow(NamedTuple):
    """A row of a table whose stimulus is found in the suite."""

    where: str  # The file and its line.
    image: str  # As the file spells it.
    network: str
    dataset: str
    condition: str
    number: int  # Of the image in the set.
    response: int  # A class of the set, or _NO_ANSWER.


def _located_rows(
    file: str,
    columns: Mapping[str, str],
    asked: suites.Suite,
    images: Mapping[str, "_Images"],
) -> Iterator[_LocatedRow]:
    """Yield the rows of a file that are about a stimulus to measure.

    images: of the suite's sets that are shown. ValueError, after the last row, where names
    are those of no image.
    """
    stem = os.path.basename(file).rsplit(".", 1)[0]
    sets = asked.config["sets"]
    stimuli_in_name = _longest_begin(stem, geirhos.STIMULI)
    lacking: dict[str, list[tuple[str, str]]] = {}  # Rows of no image, by set.
    counts: collections.Counter[str] = collections.Counter()  # Rows by set.
    for where, row in _rows(file, columns):
        image = row[columns["image"]]
        dataset = row.get(columns["set"]) or _likely_set(stem, image, images, sets)
        if not dataset:
            dataset = _only_set(where, image, images, columns["set"])
            split = images[dataset].split if dataset else ""
            # Edges and silhouettes have images of the same names.
            is_published = stimuli_in_name and split in geirhos.STIMULI
            if is_published and split != stimuli_in_name:
                raise ValueError(
                    f"{where}: the file is named for the set {stimuli_in_name}, which is "
                    f"not among the sets here ({', '.join(images)}); give its folder, or "
                    f"name the images' set in a column {columns['set']!r}"
                )
        if not dataset:
            lacking.setdefault("", []).append((where, image))
            continue
        must = f"{where}: {columns['set']} must be one of the suite's sets"
        jc.check_known(must, dataset, sets)
        if dataset not in images:
            continue  # Not here, or of measures that --only leaves out.
        counts[dataset] += 1
        classes = tuple(asked.sources[dataset].classes)
        response = _as_class(row[columns["response"]], classes)
        if response == trials.NONE and response not in classes:
            chosen = _NO_ANSWER
        else:
            must = f"{where}: {columns['response']} must be one of {dataset}'s classes"
            jc.check_known(must, response, classes)
            chosen = classes.index(response)
        located = images[dataset].find(where, image)
        if located is None:
            if not images[dataset].is_of_other_condition(image):
                lacking.setdefault(dataset, []).append((where, image))
            continue
        network = row.get(columns["network"]) or stem
        condition, number = located
        yield _LocatedRow(where, image, network, dataset, condition, number, chosen)
    unknown = lacking.pop("", [])
    if unknown and len(counts) == 1:  # The other rows say the set.
        (dataset,) = counts
        counts[dataset] += len(unknown)
        lacking.setdefault(dataset, []).extend(unknown)
    elif unknown:
        where, _ = unknown[0]
        column = columns["set"]
        remedy = "add it, or begin the file's name or the images with it; "
        remedy += jc.suggest(stem.partition("_")[0], sets)
        jc.refuse(where, f"name the suite's set in a column {column!r}", remedy=remedy)
    for dataset, rows in lacking.items():
        images[dataset].refuse(rows, counts[dataset])


def _only_set(
    where: str, image: str, images: Mapping[str, "_Images"], column: str
) -> str:
    """Return the only set that has an image of that name, or the only set; "" for none.

    ValueError where several sets have such an image.
    """
    if len(images) == 1:
        return next(iter(images))
    having = [name for name, those in images.items() if those.has(image)]
    if len(having) > 1:
        raise ValueError(
            f"{where}: {image!r} is an image of the sets {' and '.join(having)}; name the "
            f"set in a column {column!r}, or begin the file's name with it, such as "
            f"{having[0]}_NAME.csv"
        )
    return having[0] if having else ""


@functools.lru_cache(4096)
def _as_class(response: str, classes: tuple[str, ...]) -> str:
    """Return a response in the set's spelling, whose accents may be composed otherwise."""
    (name,) = base.match_spelling((response,), classes)
    return name


def _network(name, path, asked, decided) -> DecidedNetwork:
    sources = {dataset: asked.sources[dataset] for dataset, _ in decided}
    spaces = {(tuple(one.classes), one.space) for one in sources.values()}
    if len(spaces) > 1:
        raise ValueError(
            f"{path}: {name}'s sets must have the same classes, got other ones in "
            f"{', '.join(sources)}; give a folder for each"
        )
    ((classes, space),) = spaces
    digest = hashlib.sha256()
    for (dataset, condition), table in sorted(decided.items()):
        digest.update(f"{dataset}\0{condition}\0".encode() + table.tobytes())
    fields = dict(run=name, algorithm=name, variant="", model="decisions")
    fields |= dict(train_data="unknown", stage=0, seed=0, step=0, epoch=0.0)
    about = {"category": name, "path": path}
    known = digest.hexdigest()[:16]
    return DecidedNetwork(name, classes, space, known, fields, about, decided)


class _Images:
    """The images of a set, to look up what a table of decisions calls them."""

    def __init__(self, asked: suites.Suite, dataset: str, shown: Sequence[Shown]):
        self.dataset, source = dataset, asked.sources[dataset]
        conditions = [condition for name, condition in shown if name == dataset]
        self.pairs = [*itertools.product(conditions, range(len(source)))]
        exported = [stimulus_file(dataset, *pair) for pair in self.pairs]
        self.exported = dict(zip(exported, self.pairs, strict=True))
        self.conditions = {name.split("/")[1] for name in exported}
        self.stimuli = image_names.ImageNames(
            [name.removeprefix(f"{dataset}/") for name in exported],
            folders=[dataset],
            without_folder=False,
        )
        self.store = getattr(source, "store", None)
        names = getattr(self.store, "names", ())
        options = asked.config["sets"][dataset]
        self.split = split = str(options.get("split", "")).partition("[")[0]
        folder = os.path.basename(getattr(self.store, "root", ""))
        self.files = image_names.ImageNames(names, folders=[dataset, split, folder])
        self.published = _published_names(options.get("data"), split, names)

    def find(self, where: str, image: str) -> tuple[str, int] | None:
        """Return the condition and the image's number; None where no image has the name.

        ValueError where several have.
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
        """Return whether a name is that of one or several images."""
        return bool(
            image in self.exported
            or self.files.find(image)
            or self.published.find(image)
            or self.stimuli.find(image)
        )

    def refuse(self, rows: Sequence[tuple[str, str]], count: int) -> NoReturn:
        """Raise ValueError for rows, (where, image), of no image; count: rows of the set."""
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
        """Return the folder of the set's images in words, or ""."""
        root = getattr(self.store, "root", "")
        return f" ({root})" if root else ""

    def is_of_other_condition(self, image: str) -> bool:
        """Return whether a name is that of a stimulus under a condition not asked for."""
        dataset, _, rest = image_names.plain_path(image).partition("/")
        folder, _, name = rest.rpartition("/")
        is_stimulus = dataset == self.dataset and _STIMULUS.fullmatch(name)
        return bool(is_stimulus and folder and folder not in self.conditions)


_STIMULUS = re.compile(r"\d{6}\.png")


def _published_names(
    data: str, split: str, names: Sequence[str]
) -> image_names.PublishedNames:
    """Return the published names of a set of Geirhos' stimuli; none for other sets."""
    if data == "geirhos":
        return image_names.PublishedNames(names)
    if data == "model_vs_human":
        return image_names.PublishedNames(names, geirhos.CONDITIONS[split])
    return image_names.PublishedNames(())


def _likely_set(
    stem: str,
    image: str,
    names: Mapping[str, _Images],
    known: Collection[str],
) -> str:
    """Return the set that a file's name or an image's path begins with; "" for none.

    The path goes first, unless it is that of an image in the set of the file's name.
    """
    by_file = _longest_begin(stem, known)
    if by_file in names and names[by_file].files.has_path(image):
        return by_file
    first = image_names.plain_path(image).partition("/")[0]
    return first if first in known else by_file


def _longest_begin(stem: str, sets: Iterable[str]) -> str:
    """Return the longest name of a set that a file's name begins with; "" for none."""
    begins = [name for name in sets if stem == name or stem.startswith(f"{name}_")]
    return max(begins, key=len, default="")


def _rows(path: str, columns: Mapping[str, str]) -> Iterator[tuple[str, dict]]:
    """The rows of a file, each with its place; ValueError for none or half a one."""
    if path.endswith(".parquet"):
        try:
            text = pd.read_parquet(path).to_csv(index=False)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"{path}: must be a Parquet file ({base.one_line(error)})"
            ) from None
        file = io.StringIO(text)
    else:
        file = opening.open_text(path, newline="")
    needed = [columns[key] for key in _NEEDED]
    with file:
        rows = csv.DictReader(file)
        try:
            header = rows.fieldnames or ()
            doubled = [name for name in header if header.count(name) > 1]
            if doubled:
                raise ValueError(
                    f"{path}:1: must name every column once, got {doubled[0]!r} twice; "
                    "remove one of the two"
                )
            if lacking := [name for name in needed if name not in header]:
                raise ValueError(
                    f"{path}:1: must have the column(s) {', '.join(lacking)}, got "
                    f"{', '.join(header) or 'none'}; name yours: --columns="
                    + ",".join(f"{key}=YOURS" for key in _NEEDED)
                )
            count = 0
            for row in rows:
                where, count = f"{path}:{rows.line_num}", count + 1
                if None in row or None in row.values():
                    must = f"must have {len(header)} cells as the header"
                    raise ValueError(f"{where}: {must}; the file is damaged or cut off")
                yield where, row
        except (UnicodeDecodeError, csv.Error) as error:
            raise ValueError(
                f"{path}: must be CSV in UTF-8 ({base.one_line(error)})"
            ) from None
    if not count:
        raise ValueError(f"{path}: must hold decisions, got a header alone; check it")
