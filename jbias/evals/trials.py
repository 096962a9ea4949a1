"""Answers of people and networks to single images, as model-vs-human keeps them.

A CSV file holds one decision maker on one set, <set>_<subject>_session_<n>.csv, with the
columns subj, session, trial, rt, object_response, category, condition and imagename. The
responses are Geirhos' 16 classes, or "na" where none was given in time.

Source: bethgelab/model-vs-human at 79ed7cd, raw-data and helper/plotting_helper.py.
"""

import csv
import dataclasses
import glob
import hashlib
import json
import os
import posixpath
import re
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Int

from jbias.data import base, labels, set_options
from jbias.data.sets import geirhos
from jbias.evals import probe
from jbias.untrusted import opening

COLUMNS = ("subj", "session", "trial", "rt", "object_response")
COLUMNS += ("category", "condition", "imagename")
NONE = "na"
ORIGIN = "raw-data of https://github.com/bethgelab/model-vs-human"
_PHOTO = re.compile(r"n\d{8}")


@dataclasses.dataclass(frozen=True, eq=False)
class Trials:
    """One decision maker's answers on one set, each image once; sorted by `image`."""

    subject: str
    image: tuple[str, ...]  # As `image_id` has it.
    response: Int[np.ndarray, "n"]  # One of Geirhos' 16, -1 for none.
    category: Int[np.ndarray, "n"]  # The right one.
    condition: tuple[str, ...]

    def select(self, image: Sequence[str]) -> "Trials":
        """The answers to some images, in their order; ValueError where one lacks."""
        places = {name: i for i, name in enumerate(self.image)}
        lacking = [name for name in image if name not in places]
        if lacking:
            raise ValueError(
                f"{self.subject}: must have answered every image of the set,"
                f" {len(lacking):,} of {len(image):,} lack, first {lacking[0]!r};"
                " compare answers to the same set"
            )
        index = [places[name] for name in image]
        answers = self.response[index], self.category[index]
        condition = tuple(self.condition[i] for i in index)
        return Trials(self.subject, tuple(image), *answers, condition)


def image_id(name: str) -> str:
    """What names an image whoever sees it: "n03041632_7380", "cat7-elephant1".

    The last "_" token, with the one before if that is a WordNet id; no folder, no suffix.
    """
    *before, last = posixpath.splitext(posixpath.basename(name))[0].split("_")
    photo = before and _PHOTO.fullmatch(before[-1])
    return f"{before[-1]}_{last}" if photo else last


def read(path: str, dataset: str = "") -> Trials:
    """Reads one file; conditions are spelled as data.geirhos has them.

    ValueError, with the line, for what is no such file: another header, a response or
    category that is none of the 16, an unknown condition of the set, two answers to one
    image, two subjects.
    """
    classes = tuple(labels.geirhos16())
    known = geirhos.CONDITIONS.get(dataset, ())
    ids = {name: i for i, name in enumerate(classes)}
    rows, seen = [], {}
    for where, row in _lines(path):
        must = "must be one of Geirhos' 16 classes"
        what = f"{where}: object_response {must} or {NONE}"
        base.check_known(what, row["object_response"], (*classes, NONE))
        base.check_known(f"{where}: category {must}", row["category"], classes)
        condition, image = row["condition"], image_id(row["imagename"])
        if known:
            number = geirhos.condition_index(condition, known)
            must = f"condition must be one of {dataset}'s, {', '.join(known)}"
            probe.check(number is not None, where, must, condition)
            condition = known[number]
        if image in seen:
            raise ValueError(
                f"{where}: an image must be answered once, got {image!r} again after"
                f" line {seen[image]}; leave one session"
            )
        if rows and row["subj"] != rows[0][0]:
            raise ValueError(
                f"{where}: a file must be of one subject, got {row['subj']!r} after"
                f" {rows[0][0]!r}; split it"
            )
        seen[image] = where.rpartition(":")[2]
        response = ids.get(row["object_response"], -1)
        rows.append((row["subj"], image, response, ids[row["category"]], condition))
    rows.sort(key=lambda row: row[1])
    subject, image, response, category, condition = zip(*rows)
    return Trials(subject[0], image, np.array(response), np.array(category), condition)


def people(folder: str, dataset: str) -> tuple[Trials, ...]:
    """Reads the answers of all people on a set: <folder>[/<set>]/<set>_subject-*.csv.

    base.Missing where there is none; ValueError where they saw different images, or
    the same under different conditions.
    """
    folder = os.path.expanduser(folder)
    if not os.path.isdir(folder):
        must = "must be a folder of people's answers, which does not exist"
        raise base.Missing(f"{folder}: {must}; they are in {ORIGIN}")
    name, paths = f"{dataset}_subject-*.csv", []
    for place in (os.path.join(folder, dataset), folder):
        paths = paths or sorted(glob.glob(os.path.join(glob.escape(place), name)))
    if not paths:
        raise base.Missing(
            f"{folder}: must hold people's answers on {dataset},"
            f" {dataset}/{name} or {name}, got none; they are in {ORIGIN}"
        )
    each = [read(path, dataset) for path in paths]
    first, met = each[0], {}
    for path, one in zip(paths, each, strict=True):
        if one.subject in met:
            raise ValueError(
                f"{path}: a subject must have one file, got {one.subject!r} again after"
                f" {met[one.subject]}; leave one session"
            )
        met[one.subject] = path
        for what in ("image", "condition", "category"):
            if tuple(getattr(one, what)) != tuple(getattr(first, what)):
                raise ValueError(
                    f"{path}: must have the same images, conditions and categories as"
                    f" {paths[0]}, got others ({what}); compare people on one set"
                )
    return tuple(each)


def digest(people: Sequence[Trials]) -> str:
    """Tells whether answers are still the same, wherever and in whichever order."""
    each = []
    for one in people:
        answers = one.response.tolist(), one.category.tolist()
        each.append(json.dumps([one.subject, one.image, one.condition, *answers]))
    return hashlib.sha256("\n".join(sorted(each)).encode()).hexdigest()[:16]


def _lines(path: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Places such as "file.csv:2", and what stands there."""
    what = f"{path}: answers must be a CSV file in UTF-8, got "
    with (
        base.explain_errors(what, *set_options.CSV_ERRORS),
        opening.open_text(os.path.expanduser(path), newline="") as file,
    ):
        table = csv.DictReader(file)
        header = [name.strip().lower() for name in table.fieldnames or ()]
        table.fieldnames = header
        rows = [(f"{path}:{table.line_num}", row) for row in table]
    missing = [name for name in COLUMNS if header.count(name) != 1]
    if missing:
        raise ValueError(
            f"{path}:1: the header must have {', '.join(COLUMNS)} once each,"
            f" {missing[0]} does not, got {','.join(header)!r}"
        )
    if not rows:
        raise ValueError(f"{path}: must have a line for each image, got the header")
    for where, row in rows:
        if None in row or None in row.values():
            count = sum(x is not None for x in row.values()) + len(row.get(None, ()))
            raise ValueError(
                f"{where}: must have {len(header)} cells, as the header, got {count}"
            )
        cells = {name: cell.strip() for name, cell in row.items()}
        for name in ("subj", *COLUMNS[4:]):
            probe.check(cells[name], where, f"{name} must not be empty", cells[name])
        yield where, cells
