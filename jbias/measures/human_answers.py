"""Answers of human observers and networks to single images, in the format of model-vs-human.

A CSV file has the answers of one subject (a person or a network) on one set,
<set>_<subject>_session_<n>.csv, with the columns subj, session, trial, rt, object_response,
category, condition and imagename. Responses are Geirhos' 16 classes, or "na" for no answer
in time.

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

from jbias import errors
from jbias.data import base, class_maps, set_options
from jbias.data.sets import geirhos
from jbias.untrusted import opening

COLUMNS = (
    "subj",
    "session",
    "trial",
    "rt",
    "object_response",
    "category",
    "condition",
    "imagename",
)
NONE = "na"
ORIGIN = "raw-data of https://github.com/bethgelab/model-vs-human"
_PHOTO = re.compile(r"n\d{8}")


@dataclasses.dataclass(frozen=True, eq=False)
class Trials:
    """The answers of one subject to images of one set, with one answer per image."""

    subject: str  # Name of a person or network.
    image: tuple[str, ...]  # Ids, see `image_id`.
    response: Int[np.ndarray, "n"]  # One of Geirhos' 16 classes, -1 for none.
    category: Int[np.ndarray, "n"]  # The correct class.
    condition: tuple[str, ...]

    def select(self, image: Sequence[str]) -> "Trials":
        """Return the answers to images, in the given order; ValueError if an image is missing.

        image: ids, see `image_id`.
        """
        places = {name: i for i, name in enumerate(self.image)}
        lacking = [name for name in image if name not in places]
        if lacking:
            raise ValueError(
                f"{self.subject}: must have answered every image of the set,"
                f" {len(lacking):,} of {len(image):,} lack, first {lacking[0]!r};"
                " compare answers to the same set"
            )
        index = [places[name] for name in image]
        return Trials(
            subject=self.subject,
            image=tuple(image),
            response=self.response[index],
            category=self.category[index],
            condition=tuple(self.condition[i] for i in index),
        )


def image_id(name: str) -> str:
    """Return the id of an image, independent of the subject, such as "n03041632_7380".

    The id is the last token, separated by "_", of the file's name without folder and suffix;
    with the token before it if that token is a WordNet id. Another example: "cat7-elephant1".
    """
    *tokens, last = posixpath.splitext(posixpath.basename(name))[0].split("_")
    is_photo = tokens and _PHOTO.fullmatch(tokens[-1])
    return f"{tokens[-1]}_{last}" if is_photo else last


def read(path: str, dataset: str = "") -> Trials:
    """Return the answers in one file, sorted by image id.

    Conditions are spelled as in geirhos.CONDITIONS. dataset: one of geirhos.CONDITIONS; for
    other names, conditions are not checked.
    ValueError, with the line number, for another header, an empty cell, a response or category
    that is not one of the 16 classes, an unknown condition of the set, two answers to one image,
    or two subjects; and for a file without rows.
    """
    classes = tuple(class_maps.geirhos16())
    known = geirhos.CONDITIONS.get(dataset, ())
    ids = {name: i for i, name in enumerate(classes)}
    rows, line_of_image = [], {}
    for where, row in _read_rows(path):
        must = "be one of Geirhos' 16 classes"
        errors.check_known(
            where,
            row["object_response"],
            (*classes, NONE),
            "object_response",
            must=f"{must} or {NONE}",
        )
        errors.check_known(where, row["category"], classes, "category", must=must)
        condition, image = row["condition"], image_id(row["imagename"])
        if known:
            number = geirhos.condition_index(condition, known)
            must = f"be one of {dataset}'s, {', '.join(known)}"
            errors.check(number is not None, where, must, condition, name="condition")
            condition = known[number]
        if image in line_of_image:
            raise ValueError(
                f"{where}: an image must be answered once, got {image!r} again after"
                f" line {line_of_image[image]}; leave one session"
            )
        if rows and row["subj"] != rows[0][0]:
            raise ValueError(
                f"{where}: a file must be of one subject, got {row['subj']!r} after"
                f" {rows[0][0]!r}; split it"
            )
        line_of_image[image] = where.rpartition(":")[2]
        response = ids.get(row["object_response"], -1)
        rows.append((row["subj"], image, response, ids[row["category"]], condition))
    rows.sort(key=lambda row: row[1])
    subject, image, response, category, condition = zip(*rows)
    return Trials(subject[0], image, np.array(response), np.array(category), condition)


def people(folder: str, dataset: str) -> tuple[Trials, ...]:
    """Return the answers of each observer on a set, from <folder>[/<set>]/<set>_subject-*.csv.

    Answers are sorted by the file's name. Files in <folder>/<set> take precedence over those in
    <folder>. base.Missing without such files, or without the folder. ValueError if an observer has
    two files, or if observers have different images, conditions or correct classes, and as `read`
    raises.
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
    all_trials = [read(path, dataset) for path in paths]
    first, path_of_subject = all_trials[0], {}
    for path, person in zip(paths, all_trials, strict=True):
        if person.subject in path_of_subject:
            raise ValueError(
                f"{path}: a subject must have one file, got {person.subject!r} again after"
                f" {path_of_subject[person.subject]}; leave one session"
            )
        path_of_subject[person.subject] = path
        for field in ("image", "condition", "category"):
            if tuple(getattr(person, field)) != tuple(getattr(first, field)):
                raise ValueError(
                    f"{path}: must have the same images, conditions and categories as"
                    f" {paths[0]}, got others ({field}); compare people on one set"
                )
    return tuple(all_trials)


def digest(people: Sequence[Trials]) -> str:
    """Return a hash (16 hex digits) of human answers, independent of their files and order."""
    entries = []
    for person in people:
        entry = [
            person.subject,
            person.image,
            person.condition,
            person.response.tolist(),
            person.category.tolist(),
        ]
        entries.append(json.dumps(entry))
    return hashlib.sha256("\n".join(sorted(entries)).encode()).hexdigest()[:16]


def _read_rows(path: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield ("file.csv:2", cells by column) for each row; ValueError for an invalid file.

    Spaces around cells are removed, and column names are in lower case. A file is invalid without
    rows, if its header lacks one of COLUMNS or repeats it, and if a row has another number of
    cells than the header or an empty cell that is needed.
    """
    must = f"{path}: answers must be a CSV file in UTF-8, got "
    with (
        base.explain_errors(must, *set_options.CSV_ERRORS),
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
            errors.check(cells[name], where, "not be empty", cells[name], name=name)
        yield where, cells
