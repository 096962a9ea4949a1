"""Networks known by what they decided elsewhere: tables take the place of a model.

A CSV or Parquet file has a row a stimulus; columns are model-vs-human's by themselves:

    object_response    the decided class, by its name in the set
    imagename          which stimulus: as `export_stimuli` named it, or as the set's file
                       (image_names.py has the spellings that are understood)
    subj               who decided; the file's name where there is no such column
    set                the suite's set; where there is none, what the path of an exported
                       stimulus, or the file's name before its first "_", begins with

Others are ignored. Decisions say nothing of probabilities: confidences are NaN.

Source of the form: bethgelab/model-vs-human at 79ed7cd, raw-data.
"""

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
from collections.abc import Collection, Iterator, Mapping, Sequence

import jax.numpy as jnp
import numpy as np
import pandas as pd

from jbias import config as jc
from jbias.data import base
from jbias.data.sets import geirhos
from jbias.evals import image_names, networks, predict, prepared_sets, probe, suite
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


@dataclasses.dataclass(frozen=True, eq=False)
class DecidedNetwork(networks.Network):
    """A network of which decisions are all that is known, and a predict.Bound."""

    decided: Mapping[Shown, np.ndarray]  # By an image's number in the set; -1: none.
    apply = at = net = None
    graded = False
    variables = ()

    def predict(self, image: probe.Images, shown: predict.Shown) -> predict.Logits:
        """Infinite for the decided class: it is decided for, and no probability is known.

        ValueError where some of these stimuli were not answered.
        """
        what = f"{shown.dataset}{f' under {shown.condition!r}' * bool(shown.condition)}"
        table = self.decided.get((shown.dataset, shown.condition))
        if table is None:
            raise ValueError(
                f"{self.name}: no decisions about {what}; export these stimuli and "
                "decide about them, or leave the measure out by --only"
            )
        answer = table[np.asarray(shown.index)]
        if (answer < 0).any():
            lacking = int((table < 0).sum())
            raise ValueError(
                f"{self.name}: must have decided about every stimulus of {what}, "
                f"{lacking:,} of {len(table):,} are missing; give the whole file, and the suite "
                "that the stimuli were exported from"
            )
        chosen = answer[:, None] == np.arange(len(self.classes))
        return jnp.where(chosen, jnp.inf, 0.0).astype(jnp.float32)


def stimuli(asked: suite.Suite) -> dict[Shown, suite.Task]:
    """What decisions can be about: of each set, each condition of a measure, once.

    What asks a network, as attacks do, is not among them. ValueError where two measures
    show other stimuli under one name.
    """
    found: dict[Shown, suite.Task] = {}
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


def _same_stimuli(asked, condition: str, *tasks: suite.Task) -> bool:
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
        shown.append(np.asarray(predict.make_stimuli(*of)))
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
    path: str, asked: suite.Suite, columns: Mapping[str, str]
) -> Iterator[DecidedNetwork]:
    """Reads the decisions that a path holds, a network for each who decided.

    ValueError, in a line that begins with the file and its line, for what is no decision
    about a stimulus of the suite.
    """
    shown = stimuli(asked)
    names = {name: _Images(asked, name, shown) for name, _ in shown}
    tables: dict[str, dict[Shown, np.ndarray]] = {}
    first: dict[tuple, str] = {}
    for file in find_files(path):
        stem = os.path.basename(file).rsplit(".", 1)[0]
        for where, row in _rows(file, columns):
            image = row[columns["image"]]
            known = asked.config["sets"]
            dataset = row.get(columns["set"]) or _likely_set(stem, image, names, known)
            if not dataset:
                must = f"name the suite's set in a column {columns['set']!r}"
                begin = "begin the file's name or the images with it"
                near = jc.suggest(stem.partition("_")[0], known)
                jc.refuse(where, must, remedy=f"add it, or {begin}; {near}")
            must = f"{where}: {columns['set']} must be one of the suite's sets"
            jc.check_known(must, dataset, known)
            if dataset not in names:
                continue  # Not here, or of measures that --only leaves out.
            source = asked.sources[dataset]
            classes = tuple(source.classes)
            response = _as_class(row[columns["response"]], classes)
            must = f"{where}: {columns['response']} must be one of {dataset}'s classes"
            jc.check_known(must, response, classes)
            found = names[dataset].find(where, image)
            if found is None:
                continue
            condition, number = found
            network = row.get(columns["network"]) or stem
            key = network, dataset, condition, number
            if key in first:
                raise ValueError(
                    f"{where}: a stimulus must be decided about once, got {image!r} "
                    f"again after {first[key]}; leave one of them out"
                )
            first[key] = where
            of = tables.setdefault(network, {})
            empty = lambda n: np.full(n, -1, np.int32)
            table = of.setdefault((dataset, condition), empty(len(source)))
            table[number] = classes.index(response)
    if not tables:
        raise ValueError(
            f"{path}: must hold decisions about {', '.join(names)}, got none; choose "
            "the suite that these stimuli are of"
        )
    for network, of in tables.items():
        yield _network(network, path, asked, of)


@functools.lru_cache(4096)
def _as_class(response: str, classes: tuple[str, ...]) -> str:
    """Return a response in the set's spelling, whose accents may be composed otherwise."""
    (name,) = base.spelled_as((response,), classes)
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

    def __init__(self, asked: suite.Suite, dataset: str, shown: Sequence[Shown]):
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
        split = str(options.get("split", "")).partition("[")[0]
        folder = os.path.basename(getattr(self.store, "root", ""))
        self.files = image_names.ImageNames(names, folders=[dataset, split, folder])
        self.published = _published_names(options.get("data"), split, names)

    def find(self, where: str, image: str) -> tuple[str, int] | None:
        """Return the condition and the image's number; None of conditions not asked for.

        ValueError where the name is that of no image of the set, or of several.
        """
        if image in self.exported:
            return self.exported[image]
        numbers = self.files.find(image) or self.published.find(image)
        if len(numbers) == 1:
            return "", numbers[0]
        if numbers:
            candidates = " and ".join(repr(self.store.key(i)) for i in numbers[:2])
            has = f"{len(numbers)} of that name: {candidates}"
            remedy = "name each image by its path in the set"
        elif stimuli := self.stimuli.find(image):
            return self.pairs[stimuli[0]]
        elif self._is_of_other_condition(image):
            return None
        else:
            has, remedy = "none", "name stimuli as export-stimuli does"
            if self.store is not None:
                remedy += f", or as the set's files, such as {self.store.names[0]!r}"
        raise ValueError(
            f"{where}: {image!r} must be an image of the set {self.dataset}, which "
            f"has {has}; {remedy}"
        )

    def _is_of_other_condition(self, image: str) -> bool:
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
    begins = [name for name in known if stem == name or stem.startswith(f"{name}_")]
    by_file = max(begins, key=len, default="")
    if by_file in names and names[by_file].files.has_path(image):
        return by_file
    first = image_names.plain_path(image).partition("/")[0]
    return first if first in known else by_file


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
        file = opening.text(path, newline="")
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
