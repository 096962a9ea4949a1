"""Folders of decisions: good ones are accepted, hostile ones refused or doubted with a reason."""

import csv
import functools
import io
import json
import os
import pathlib
import time
import unicodedata
import zipfile

import numpy as np
import pandas as pd
import pytest

from jbias import submit
from jbias.answers import (
    letter_answers,
    parsing,
    submission,
    submission_info,
    submission_tables,
    tables,
)
from jbias.data import class_maps
from jbias.data import tables as data_tables
from tests import cases

NAMES = data_tables.cue_conflicts()
CLASSES = tuple(class_maps.geirhos16())
SHAPES = tuple("".join(x for x in n.split("-")[0] if x.isalpha()) for n in NAMES)
TEXTURES = tuple("".join(x for x in n.split("-")[1] if x.isalpha()) for n in NAMES)
INFO = {
    "name": "Toy 7B",
    "kind": "VLM",
    "task": "multiple choice",
    "prompt": "Which option describes the image? A. airplane B. bear ...",
    "link": "https://example.org/toy?size=7b",
    "licence": "CC BY 4.0",
    "decided_by": "the first letter of the answer",
}


@functools.cache
def answers(seed=0):
    """Return answers to NAMES: in half of the images the shape, in 30 % the texture."""
    rng = np.random.default_rng(seed)
    cue = rng.choice(3, len(NAMES), p=[0.5, 0.3, 0.2])
    other = rng.choice(CLASSES, len(NAMES))
    return tuple(
        (SHAPES[i], TEXTURES[i], str(other[i]))[number] for i, number in enumerate(cue)
    )


@functools.cache
def good_csv():
    """Return a good table as CSV."""
    return table().to_csv(index=False)


def table(**changes):
    """Return a good table; changes: columns by name, and `names` or `answers`."""
    columns = {
        "imagename": changes.pop("names", NAMES),
        "object_response": changes.pop("answers", None) or answers(),
    }
    return pd.DataFrame(columns | changes)


def write(folder, frame=None, *, file="toy.csv", info=None, **entries):
    """Write a submission; entries: values of submission.json that differ from INFO."""
    folder.mkdir(exist_ok=True)
    content = good_csv() if frame is None else frame.to_csv(index=False)
    (folder / file).write_text(content, encoding="utf-8")
    text = json.dumps(INFO | entries) if info is None else info
    (folder / "submission.json").write_text(text, encoding="utf-8")
    return folder


def renamed(index, name):
    """Return NAMES with another name at an index."""
    return [name if i == index else old for i, old in enumerate(NAMES)]


def answered(index, answer):
    """Return answers with another one at an index."""
    return [answer if i == index else old for i, old in enumerate(answers())]


def stored(name, *, num_changed=0):
    """Return the answers of a row of the standing table, the first ones without an answer."""
    (row,) = [
        x
        for x in letter_answers.read(str(letter_answers.ANSWERS))
        if x["observer"] == name
    ]
    decided = [CLASSES[int(x, 16)] if x.isalnum() else "na" for x in row["answers"]]
    assert "na" not in decided[:num_changed]
    return ["na"] * num_changed + decided[num_changed:]


def linked(folder):
    """Write a good submission, with a table that is a link out of the folder."""
    write(folder)
    outside = folder.parent / "outside.csv"
    table(answers=answers(1)).to_csv(outside, index=False)
    (folder / "link.csv").symlink_to(outside)


def with_archive(folder):
    """Write a good submission, with an archive."""
    write(folder)
    with zipfile.ZipFile(folder / "more.zip", "w") as archive:
        archive.writestr("more.csv", good_csv())


def archive_named_table(folder):
    """Write a submission whose table is an archive with another ending."""
    write(folder)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("more.csv", good_csv())
    (folder / "toy.csv").write_bytes(content.getvalue())


def with_file(name, content):
    """Return a function that writes a good submission, with a further file."""

    def make(folder):
        write(folder)
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        else:
            (folder / name).write_text(content)

    return make


def with_folder(folder):
    """Write a good submission with a folder."""
    write(folder)
    write(folder / "inside", file="other.csv")


def with_pipe(folder):
    """Write a good submission with a named pipe, which would block a reader."""
    write(folder)
    os.mkfifo(folder / "pipe.csv")


def good(**options):
    """Return a function that writes a submission with these options of `write`."""
    return lambda folder: write(folder, **options)


def several(*frames):
    """Return a function that writes a submission with tables a.csv, b.csv, ..."""

    def make(folder):
        write(folder, frames[0], file="a.csv")
        for letter, frame in zip("bcdefg", frames[1:], strict=False):
            frame.to_csv(folder / f"{letter}.csv", index=False)

    return make


def empty(folder):
    """Make an empty folder."""
    folder.mkdir()


def without(key):
    """Return submission.json without a key."""
    return json.dumps({name: INFO[name] for name in INFO if name != key})


def nearly(share):
    """Return answers(0) with a share of them replaced by another class."""
    count = round(share * len(NAMES))
    return [
        CLASSES[(CLASSES.index(x) + 1) % 16] if i < count else x
        for i, x in enumerate(answers())
    ]


def towards_shape(step):
    """Return answers(0), every step-th of them replaced by the class of the shape."""
    return [SHAPES[i] if i % step == 0 else x for i, x in enumerate(answers())]


def mostly_shape(count):
    """Return the class of the shape for so many images, and the next class for the others."""
    rng = np.random.default_rng(0)
    chosen = {*rng.permutation(len(NAMES))[:count].tolist()}
    return [
        x if i in chosen else CLASSES[(CLASSES.index(x) + 1) % 16]
        for i, x in enumerate(SHAPES)
    ]


BIDI = "\u202e"
WIDE = {f"x{i}": "0" for i in range(80)}
HALF_NONE = ["na" if i % 3 else x for i, x in enumerate(answers())]
WORDS_OF = [*answers()]
CAPTIONS = [f"There is a {x} in this picture" for x in answers()]
WORDS = [f"{chr(65 + CLASSES.index(x))}. {x}" for x in answers()]
# Name: what writes the folder, and a part of the line that refuses it.
FILES = {
    "empty folder": (empty, "is empty; add a table"),
    "no submission.json": (
        lambda folder: (write(folder) / "submission.json").unlink(),
        "lacks submission.json; `jbias submit DIR --init` writes a template",
    ),
    "no table": (
        lambda folder: (write(folder) / "toy.csv").unlink(),
        "has no table of decisions that can be read",
    ),
    "link out of the folder": (linked, "link.csv: is a symbolic link"),
    "archive": (with_archive, "more.zip: is an archive; unpack it"),
    "archive named .csv": (archive_named_table, "toy.csv: must be CSV in UTF-8"),
    "program": (with_file("run.py", "print(1)"), "run.py: is no table of decisions"),
    "page": (with_file("x.html", "<script>"), "x.html: is no table of decisions"),
    "folder in the folder": (with_folder, "inside: is a folder"),
    "pipe": (with_pipe, "pipe.csv: is a device or pipe"),
    "HTML in a file's name": (
        with_file("<img src=x>.csv", good_csv()),
        "has HTML or other markup (< > ` | & or a link) in its name",
    ),
    "direction mark in a file's name": (
        with_file(f"toy{BIDI}vsc.csv", good_csv()),
        "has a mark of writing direction (U+202E) in its name",
    ),
    "large file": (
        with_file("big.csv", b"x" * (submission_tables.MAX_BYTES + 1)),
        "big.csv: must have at most 16,777,216 bytes",
    ),
    "zero bytes": (with_file("zero.csv", b"imagename\0,x\n"), "zero.csv: must be CSV"),
    "UTF-16": (
        with_file("wide.csv", good_csv().encode("utf-16")),
        "wide.csv: must be CSV in UTF-8",
    ),
    "no Parquet": (
        with_file("toy.parquet", b"PAR1 no table PAR1"),
        "toy.parquet: must be a Parquet file",
    ),
    "large together": (
        lambda folder: [
            (write(folder) / f"{i}.csv").write_bytes(b"x" * 2**23) for i in range(8)
        ],
        "must have at most 67,108,864 bytes of tables",
    ),
    "many files": (
        lambda folder: [
            (write(folder) / f"{i}.csv").write_text("a\n") for i in range(101)
        ],
        "must have at most 100 files, got 103",
    ),
}
TABLES = {
    "scores": (
        good(frame=pd.DataFrame({"model": ["toy"], "shape_bias": [0.9]})),
        "toy.csv:1: has scores, column 'shape_bias'; scores are not accepted",
    ),
    "scores per image": (
        good(frame=pd.DataFrame({"image": NAMES, "accuracy": 1})),
        "has scores, column 'accuracy'; scores are not accepted",
    ),
    "many columns": (good(frame=table(**WIDE)), "must have at most 64 columns, got 82"),
    "long cell": (
        good(frame=table(note=["x" * 30_000] + [""] * 1279)),
        "1 cell(s) have more than 20,000 letters",
    ),
    "cell above the reader's limit": (
        good(frame=table(note=["x" * 200_000] + [""] * 1279)),
        "must be CSV in UTF-8 (field larger than field limit (131072))",
    ),
    "many rows": (
        good(frame=pd.concat([table()] * 101)),
        "must have at most 128,000 rows",
    ),
    "two columns of decisions": (
        good(frame=table(prediction=answers(1))),
        "got 'object_response' and 'prediction'; name the columns imagename and",
    ),
    "no decisions": (
        good(frame=pd.DataFrame({"imagename": NAMES})),
        "must have the column(s) object_response",
    ),
    "header alone": (
        good(frame=table()[:0]),
        "must hold decisions, got a header alone",
    ),
    "cut off": (
        with_file("cut.csv", good_csv()[:-9] + '"'),
        "cut.csv",
    ),
}
IMAGES = {
    "altered name": (
        good(frame=table(names=renamed(0, "airplane01-bicycle2"))),
        "first 'airplane01-bicycle2'; did you mean airplane1-bicycle2?",
    ),
    "underscore for a hyphen": (
        good(frame=table(names=[name.replace("-", "_") for name in NAMES])),
        "none of 1,280 row(s) is about a published cue conflict, first 'airplane1_bicycle2'",
    ),
    "letter of another script": (
        good(frame=table(names=renamed(0, "\u0430irplane1-bicycle2"))),
        "1 row(s) have altered or unknown image names",
    ),
    "unpublished image": (
        good(frame=table(names=renamed(5, "truck10-truck3x"))),
        "1 row(s) have altered or unknown image names",
    ),
    "additional image": (
        good(
            frame=pd.concat(
                [table(), table(names=renamed(0, "airplane1-bicycle3"))[:1]]
            )
        ),
        "toy.csv:1282: 1 row(s) have altered or unknown image names",
    ),
    "missing images": (
        good(frame=table()[7:]),
        "7 of 1,280 images are missing, first airplane1-bicycle2; add a row for each",
    ),
    "conflicts alone": (
        good(frame=table()[np.array(SHAPES) != np.array(TEXTURES)]),
        "80 of 1,280 images are missing",
    ),
    "twice": (
        good(frame=pd.concat([table(), table()[:3]])),
        "toy.csv:1282: 3 image(s) have more than one decision",
    ),
    "twice by another spelling": (
        good(
            frame=pd.concat(
                [table(), table(names=["x/AIRPLANE1-bicycle2.png"] * 1280)[:1]]
            )
        ),
        "1 image(s) have more than one decision, first 'x/AIRPLANE1-bicycle2.png'",
    ),
    "another set by its file's name": (
        good(file="edge_toy.csv"),
        "is named for the set edge; only decisions about the set cue-conflict",
    ),
    "another set by its column": (
        good(frame=table(set=["edge"] * 1280)),
        "1,280 row(s) are about another set, first 'edge'",
    ),
    "other stimuli": (
        good(
            frame=pd.DataFrame(
                {"imagename": [f"{x}{i}.png" for i, x in enumerate(SHAPES)]}
            ).assign(object_response=answers(), category=SHAPES)
        ),
        "none of 1,280 row(s) is about a published cue conflict",
    ),
    "HTML in an image's name": (
        good(frame=table(names=renamed(0, "<b>airplane1-bicycle2</b>"))),
        "1 image name(s) have HTML, control or invisible characters",
    ),
    "escape in an image's name": (
        good(frame=table(names=renamed(0, "\x1b[2Jairplane1-bicycle2"))),
        r"first '\x1b[2Jairplane1-bicycle2'",
    ),
    "invisible letter in an image's name": (
        good(frame=table(names=renamed(0, "airplane1\u200b-bicycle2"))),
        "1 image name(s) have HTML, control or invisible characters",
    ),
    "labels are textures": (
        good(frame=table(category=TEXTURES)),
        "1,200 row(s) contradict the classes in the image's name, first 'airplane1-",
    ),
    "folder contradicts the name": (
        good(frame=table(names=renamed(0, "truck/airplane1-bicycle2.png"))),
        "1 row(s) contradict the classes in the image's name",
    ),
}
ANSWERS = {
    "no class": (
        good(frame=table(answers=answered(3, "zebra"))),
        "toy.csv:5: 1 answer(s) are neither a class nor a word for no answer",
    ),
    "numbers": (
        good(frame=table(answers=["0.93"] * 1280)),
        "1,280 answer(s) are neither a class nor a word for no answer such as na, first '0.93'",
    ),
    "no answer at all": (
        good(frame=table(answers=["na"] * 1280)),
        "Toy 7B has no answer to any image",
    ),
    "constant": (
        good(frame=table(answers=["dog"] * 1280)),
        "gives the answer 'dog' to all images",
    ),
    "constant where answered": (
        good(frame=table(answers=["dog" if i % 2 else "na" for i in range(1280)])),
        "gives the answer 'dog' to all images",
    ),
    "shape everywhere": (
        good(frame=table(answers=list(SHAPES))),
        "gives the class of the shape in 100.0% of 1,200 answered conflicts, published observers",
    ),
    "texture everywhere": (
        good(frame=table(answers=list(TEXTURES))),
        "gives the class of the texture in 100.0% of 1,200 answered conflicts",
    ),
    "shape everywhere but once": (
        good(frame=table(answers=["oven", *SHAPES[1:]])),
        "gives the class of the shape in 99.9% of 1,200 answered conflicts",
    ),
    "shape or no answer": (
        good(
            frame=table(answers=[x if i % 50 else "na" for i, x in enumerate(SHAPES)])
        ),
        "gives the class of the shape in 100.0% of 1,177 answered conflicts",
    ),
    "shape, else texture": (
        good(
            frame=table(
                answers=[
                    cues[i % 3 == 0]
                    for i, cues in enumerate(zip(SHAPES, TEXTURES, strict=True))
                ]
            )
        ),
        "gives the class of the shape or the texture in 100.0% of 1,200 answered conflicts",
    ),
    "few decisions": (
        good(frame=table(answers=[SHAPES[0], "oven", *SHAPES[2:60], *["na"] * 1220])),
        "decision(s) for a cue, at least 100 are needed for a shape bias",
    ),
    "words that say another class": (
        good(frame=table(answers=nearly(0.1), response=WORDS)),
        "has 128 decisions that differ from the class in the model's options, of 1,280 words",
    ),
    "some decisions towards the shape, against the words": (
        good(frame=table(answers=towards_shape(25), response=WORDS)),
        "decisions that differ from the class in the model's options, of 1,280 words",
    ),
    "no answer, against the words": (
        good(frame=table(answers=["na"] * 20 + WORDS_OF[20:], response=WORDS)),
        "has 20 decisions that differ from the class in the model's options, of 1,280",
    ),
    "captions that name another class": (
        good(frame=table(answers=nearly(0.06), response=CAPTIONS)),
        "has 77 decisions that differ from the class in the model's words, of 1,280 words",
    ),
    "never a cue": (
        good(
            frame=table(
                answers=[
                    next(x for x in CLASSES[i % 9 :] if x not in cues)
                    for i, cues in enumerate(zip(SHAPES, TEXTURES, strict=True))
                ]
            )
        ),
        "never decides for a cue, so it has no shape bias",
    ),
}
OBSERVERS = {
    "one observer in two tables": (
        several(table(subj="toy"), table(subj="Toy", answers=answers(1))),
        "b.csv: observer 'Toy' has a table in",
    ),
    "two names that differ in case": (
        good(
            frame=pd.concat([table(subj="toy"), table(subj="TOY", answers=answers(1))])
        ),
        "observer 'toy' has a table in the same file already",
    ),
    "one table twice": (
        several(table(), table()),
        "b.csv: b agrees with a on all 1,280 images",
    ),
    "copy of a row of the standing table": (
        good(frame=table(answers=stored("vlm/vqa/llava_1_5_7b"))),
        "Toy 7B agrees with vlm/vqa/llava_1_5_7b on all 1,280 images",
    ),
    "shuffled copy of a row with images without an answer": (
        good(
            frame=table(answers=stored("vlm/vqa/openai_vision")).sample(
                frac=1, random_state=0
            )
        ),
        "Toy 7B agrees with vlm/vqa/openai_vision on all 1,280 images",
    ),
    "name of a row of the standing table": (
        good(name="VLM/vqa/emu2_chat"),
        "the name 'VLM/vqa/emu2_chat' is in the table already",
    ),
    "name of a row of the standing table with an accent": (
        good(name="vlm/vqa/\u00e9mu2_chat"),
        "is in the table already",
    ),
    "two names that differ in an accent": (
        good(
            frame=pd.concat(
                [table(subj="Modele"), table(subj="Mod\u00e8le", answers=answers(1))]
            )
        ),
        "has a table in the same file already",
    ),
    "HTML in an observer's name": (
        good(frame=table(subj="<script>alert(1)</script>")),
        "the observer's name '<script>alert(1)</script>' has HTML",
    ),
    "formula in an observer's name": (
        good(frame=table(subj='=HYPERLINK("x")')),
        "has a beginning or characters other than",
    ),
    "long observer's name": (
        good(frame=table(subj="a" * 81)),
        "has 81 letters, at most 80 are allowed",
    ),
}
ENTRIES = {
    "no JSON": (good(info="{name: toy"), "submission.json: must be JSON in UTF-8"),
    "JSON that is no object": (
        good(info="[1]"),
        "must be one JSON object, {...}, got 'list'",
    ),
    "deep JSON": (good(info="[" * 60_000), "submission.json: must be JSON in UTF-8"),
    "large JSON": (
        good(info=" " * 70_000),
        "must have at most 65,536 bytes, got 70000",
    ),
    "template": (good(info=submission_info.template()), "name must not be empty"),
    "key twice": (
        good(info='{"name": "a", "name": "b"}'),
        "must give each key once, got 'name'",
    ),
    "missing key": (good(info=without("licence")), "lacks the key 'licence'"),
    "unknown key": (good(extra="x"), "has 1 unknown key(s), first 'extra'"),
    "score in submission.json": (
        good(shape_bias=0.99),
        "must not have scores, got 'shape_bias'",
    ),
    "unknown kind": (
        good(kind="AGI"),
        "kind must be a known kind, got 'AGI'; write one of",
    ),
    "value that is no text": (good(task=3), "task must be text, got 3"),
    "HTML in the name": (
        good(name="<a href='x'>Toy</a>"),
        "name must be plain text, got HTML",
    ),
    "entity in the prompt": (
        good(prompt="x &#60;img"),
        "prompt must be plain text, got HTML",
    ),
    "link in the licence": (
        good(licence="[x](javascript:alert(1))"),
        "licence must be plain text, got HTML",
    ),
    "control character": (
        good(task="vqa\x07"),
        "task must be plain text, got a control character (U+0007)",
    ),
    "line break": (
        good(decided_by="a\nb"),
        "got a control character (U+000A), such as a line break",
    ),
    "line break in the name": (
        good(name="a\nb"),
        "got a control character (U+000A), such as a line break",
    ),
    "HTML in the prompt": (
        good(prompt="<image>\nWhat is <b>this</b>?"),
        "prompt must be plain text, got HTML",
    ),
    "HTML with attributes in the prompt": (
        good(prompt="<image onerror=alert(1)>"),
        "prompt must be plain text, got HTML",
    ),
    "comment in the prompt": (
        good(prompt="a <!-- b"),
        "prompt must be plain text, got HTML",
    ),
    "link in the prompt": (
        good(prompt="[x](https://example.org)"),
        "prompt must be plain text, got HTML",
    ),
    "control character in the prompt": (
        good(prompt="\x1b[2J"),
        "prompt must be plain text, got a control character (U+001B)",
    ),
    "licence that forbids to republish": (
        good(licence="all rights reserved"),
        "licence must allow everyone to publish the decisions again, got 'all rights",
    ),
    "licence for no money": (
        good(licence="CC BY-NC 4.0"),
        "got 'CC BY-NC 4.0'; write the licence of the decisions, one of CC0 1.0, CC BY 4.0,",
    ),
    "licence without a version": (
        good(licence="CC BY"),
        "licence must allow everyone to publish the decisions again, got 'CC BY'",
    ),
    "direction mark": (
        good(name=f"Toy {BIDI}B7"),
        "name must be plain text, got a mark of writing direction (U+202E)",
    ),
    "invisible letter": (
        good(name="Toy\u200b 7B"),
        "name must be plain text, got an invisible character (U+200B)",
    ),
    "letters of another script": (
        good(name="T\u043ey"),
        "name must be plain text, got a beginning or characters other than",
    ),
    "long text": (
        good(prompt="x" * 5000),
        "got 5,000 letters, at most 2,000 are allowed",
    ),
    "http": (
        good(link="http://example.org"),
        "link must begin with https://, got 'http://example.org'",
    ),
    "script as a link": (good(link="javascript:alert(1)"), "link must be plain text"),
    "data as a link": (good(link="data:text/plain,x"), "link must begin with https://"),
    "user in a link": (
        good(link="https://github.com@evil.example"),
        "link must have a public host without user and port",
    ),
    "this machine as a link": (
        good(link="https://localhost/x"),
        "link must have a public host",
    ),
    "number as a host": (good(link="https://127.0.0.1/x"), "must have a public host"),
    "letters of another script in a link": (
        good(link="https://ex\u0430mple.org"),
        "link must be ASCII",
    ),
}
REFUSED = FILES | TABLES | IMAGES | ANSWERS | OBSERVERS | ENTRIES
# Name: what writes the folder, and a part of the line that warns.
DOUBTED = {
    "hidden file": (with_file(".DS_Store", b"\0"), ".DS_Store: is hidden and not read"),
    "score beside decisions": (
        good(frame=table(accuracy="1")),
        "column 'accuracy' is not read: scores are computed",
    ),
    "capitals": (
        good(frame=table(names=[name.upper() for name in NAMES])),
        "1,280 image name(s) are written with capitals",
    ),
    "mostly unanswered": (
        good(frame=table(answers=HALF_NONE)),
        "has no answer to 67% of the images",
    ),
    "words that are parsed": (
        good(
            frame=table(answers=WORDS).rename(columns={"object_response": "response"})
        ),
        "1,280 of 1,280 decisions are read from the words in 'response' (parser",
    ),
    "a few decisions against the words": (
        good(frame=table(answers=nearly(8 / 1280), response=WORDS)),
        "has 8 decisions that differ from the class in the model's options, of 1,280 words",
    ),
    "captions that name another class": (
        good(frame=table(answers=nearly(58 / 1280), response=CAPTIONS)),
        "has 58 decisions that differ from the class in the model's words, of 1,280 words",
    ),
    "nearly constant": (
        good(
            frame=table(
                answers=["dog" if i % 16 else x for i, x in enumerate(answers())]
            )
        ),
        "gives the answer 'dog' to 94% of the answered images",
    ),
    "nearly shape everywhere": (
        good(frame=table(answers=mostly_shape(1180))),
        "answered conflicts, published observers in at most 86%; check that these are answers",
    ),
    "shuffled": (
        good(
            frame=table(
                answers=np.random.default_rng(0).permutation(answers()).tolist()
            )
        ),
        "of the answered conflicts, random answers in 12 %: rows may be shuffled",
    ),
    "near copy of a row of the standing table": (
        good(frame=table(answers=stored("vlm/vqa/llava_1_5_7b", num_changed=30))),
        "Toy 7B agrees with vlm/vqa/llava_1_5_7b on 97.7% of the images",
    ),
    "near copy": (
        several(table(), table(answers=nearly(0.02))),
        "b agrees with a on 98.0% of the images",
    ),
}


def each_case(table_of_cases):
    """Return (name, function that writes the folder, expected part of a line)."""
    return [(name, make, line) for name, (make, line) in table_of_cases.items()]


@cases.each(("name", "make", "expected"), each_case(FILES))
def test_hostile_files_are_refused(name, make, expected, tmp_path):
    check_refused(make, expected, tmp_path)


@cases.each(("name", "make", "expected"), each_case(TABLES))
def test_hostile_tables_are_refused(name, make, expected, tmp_path):
    check_refused(make, expected, tmp_path)


@cases.each(("name", "make", "expected"), each_case(IMAGES))
def test_hostile_image_names_are_refused(name, make, expected, tmp_path):
    check_refused(make, expected, tmp_path)


@cases.each(("name", "make", "expected"), each_case(ANSWERS | OBSERVERS))
def test_hostile_answers_and_observers_are_refused(name, make, expected, tmp_path):
    check_refused(make, expected, tmp_path)


@cases.each(("name", "make", "expected"), each_case(ENTRIES))
def test_hostile_entries_of_submission_json_are_refused(name, make, expected, tmp_path):
    check_refused(make, expected, tmp_path)


def check_refused(make, expected, tmp_path):
    """Check that a submission is refused, with a line that contains `expected`."""
    make(tmp_path / "toy")
    checked = submission.check(tmp_path / "toy")
    assert not checked.is_accepted
    assert [line for line in checked.problems if expected in line], checked.problems
    for line in checked.problems:
        assert line.startswith(str(tmp_path / "toy")), line
        assert line.isprintable() and len(line) < 1000, line
        assert "--columns" not in line and "--suite" not in line, line


@cases.each(("name", "make", "expected"), each_case(DOUBTED))
def test_doubtful_submissions_are_accepted_with_a_warning(
    name, make, expected, tmp_path
):
    make(tmp_path / "toy")
    checked = submission.check(tmp_path / "toy")
    assert not checked.problems
    assert [line for line in checked.warnings if expected in line], checked.warnings
    assert all(line.isprintable() for line in checked.warnings)


def test_no_hostile_case_shares_its_reason_with_a_good_submission(tmp_path):
    checked = submission.check(write(tmp_path / "toy"))
    assert checked.problems == checked.warnings == ()
    assert len(REFUSED) + len(DOUBTED) >= 30


def test_scores_are_those_of_the_decisions(tmp_path):
    decided = answered(3, "na")
    checked = submission.check(write(tmp_path / "toy", table(answers=decided)))
    frame = pd.DataFrame({"d": decided, "shape": SHAPES, "texture": TEXTURES})
    conflicts = frame[frame["shape"] != frame["texture"]]
    num_shape = (conflicts["d"] == conflicts["shape"]).sum()
    num_either = num_shape + (conflicts["d"] == conflicts["texture"]).sum()
    (observer,) = checked.observers
    scores = submission.scores(observer)
    assert scores["shape_bias"] == num_shape / num_either
    assert scores["num_decisions"] == num_either
    assert scores["accuracy"] == (frame["d"] == frame["shape"]).mean()
    assert (scores["num_unanswered"], scores["num_conflicts"]) == (1, 1200)
    assert scores["lower"] < scores["shape_bias"] < scores["upper"]
    assert observer.name == "Toy 7B"
    assert observer.factors["task"] == "multiple choice"


PROMPTS = {
    "lines": (
        "Which is it?\r\n  A. airplane\n\n\tB. bear\n",
        "Which is it? A. airplane B. bear",
    ),
    "tokens": (
        "<|im_start|>user\n<image>\nIs it a <class> or <image_1>? <answer></answer>",
        "<|im_start|>user <image> Is it a <class> or <image_1>? <answer></answer>",
    ),
    "signs": ("A | B -> `C`, 1 < 2 & 3 > 2", "A | B -> `C`, 1 < 2 & 3 > 2"),
}


@cases.each(("name", "prompt", "stored_as"), [(k, *v) for k, v in PROMPTS.items()])
def test_prompts_of_real_models_are_accepted(name, prompt, stored_as, tmp_path):
    checked = submission.check(write(tmp_path / "toy", prompt=prompt))
    assert checked.problems == checked.warnings == ()
    assert checked.info.prompt == stored_as
    assert checked.observers[0].factors["prompt"] == stored_as


def test_names_may_have_accents_in_either_form_of_unicode(tmp_path):
    """The composed form is stored."""
    for form, folder in (("NFC", "a"), ("NFD", "b")):
        name = unicodedata.normalize(form, "Mod\u00e8le \u0141\u00f3d\u017a")
        checked = submission.check(write(tmp_path / folder, name=name))
        assert checked.is_accepted
        assert checked.observers[0].name == "Mod\u00e8le \u0141\u00f3d\u017a"
        frame = pd.concat([table(subj=name), table(subj="x", answers=answers(1))])
        checked = submission.check(write(tmp_path / f"{folder}2", frame))
        assert [x.name for x in checked.observers] == [
            "Mod\u00e8le \u0141\u00f3d\u017a",
            "x",
        ]


LICENCES = {
    "cc-by-4.0": "CC BY 4.0",
    "CC BY-SA 4.0": "CC BY-SA 4.0",
    "Creative Commons Attribution-ShareAlike 4.0 International": "CC BY-SA 4.0",
    "Creative Commons Zero v1.0 Universal": "CC0 1.0",
    "CC0": "CC0 1.0",
    "MIT License": "MIT",
    "Apache License, Version 2.0": "Apache 2.0",
    "BSD-3-Clause": "BSD 3-Clause",
    "ODbL-1.0": "ODbL 1.0",
}


@cases.each(("written", "stored_as"), LICENCES.items())
def test_licences_are_known_by_their_names_and_spdx_ids(written, stored_as, tmp_path):
    checked = submission.check(write(tmp_path / "toy", licence=written))
    assert checked.is_accepted and checked.info.licence == stored_as


def test_spdx_knows_the_licences():
    """packaging has the SPDX list; it refuses an id that is not in the list."""
    licenses = pytest.importorskip("packaging.licenses")
    for name in submission_info.LICENCES:
        spdx = name.replace(" ", "-")
        assert licenses.canonicalize_license_expression(spdx) == spdx
        assert submission_info.find_licence(spdx.lower()) == name


def test_published_observers_are_far_from_the_limits():
    """The largest shares are those that messages name, and no observer is doubted."""
    largest = np.zeros(3)
    rows = [
        row
        for row in letter_answers.read(str(letter_answers.ANSWERS))
        if row["group"] != letter_answers.SUBMISSIONS
    ]
    for observer in letter_answers.to_observers(rows):
        conflict = observer.is_conflict & ~observer.is_unanswered
        shape = (observer.decision == observer.label)[conflict].mean()
        texture = (observer.decision == observer.texture)[conflict].mean()
        largest = np.maximum(largest, [shape, texture, shape + texture])
        assert submission._cue_faults(observer) == ([], [])
    for cue, share in zip(submission.CUES, largest, strict=True):
        assert share <= cue.doubted < cue.refused
    published = [cue.largest for cue in submission.CUES]
    np.testing.assert_allclose(largest, published, atol=0.01)


def test_several_observers_keep_their_names(tmp_path):
    several(table(), table(answers=answers(1)))(tmp_path / "toy")
    checked = submission.check(tmp_path / "toy")
    assert checked.is_accepted
    assert [observer.name for observer in checked.observers] == ["a", "b"]


def test_one_file_may_have_several_observers(tmp_path):
    frame = pd.concat([table(subj="x"), table(subj="y", answers=answers(1))])
    checked = submission.check(write(tmp_path / "toy", frame))
    assert checked.is_accepted
    assert [observer.name for observer in checked.observers] == ["x", "y"]


def test_names_and_decisions_of_the_table_are_known(tmp_path):
    """A name in the table is taken; equal decisions are a copy under any name."""
    first = submission.check(write(tmp_path / "first"))
    second = submission.check(write(tmp_path / "second"), known=first.observers)
    assert any("'Toy 7B' is in the table already" in line for line in second.problems)
    copy = submission.check(write(tmp_path / "copy", name="New"), first.observers)
    assert len(copy.problems) == 1
    assert "New agrees with Toy 7B on all 1,280 images" in copy.problems[0]
    near = write(tmp_path / "near", table(answers=nearly(0.02)), name="New")
    checked = submission.check(near, known=first.observers)
    assert checked.is_accepted and "on 98.0% of the images" in checked.warnings[0]
    other = write(tmp_path / "other", table(answers=answers(1)), name="New")
    assert submission.check(other, known=first.observers).warnings == ()


def test_all_problems_are_listed(tmp_path):
    """Faults of several rows, files and entries are all named."""
    folder = write(tmp_path / "toy", table()[9:], kind="x", link="x")
    table(answers=answered(0, "zebra")).to_csv(folder / "b.csv", index=False)
    (folder / "c.zip").write_bytes(b"")
    lines = "\n".join(submission.check(folder).problems)
    for part in (
        "9 of 1,280",
        "1 answer(s)",
        "is an archive",
        "kind must",
        "link must",
    ):
        assert part in lines, part


def test_times_and_other_columns_are_left_out(tmp_path):
    frame = table(timestamp="2024-01-01", rt="NaN", pred_conf="0.5", session="1")
    checked = submission.check(write(tmp_path / "toy", frame))
    assert checked.problems == checked.warnings == ()


@cases.each(("spelling",), [("cue-conflict",), ("cue_conflict",), ("Cue-Conflict",)])
def test_a_column_may_name_the_set_in_any_spelling(spelling, tmp_path):
    checked = submission.check(write(tmp_path / "toy", table(set=spelling)))
    assert checked.problems == checked.warnings == ()


def test_captions_without_a_class_are_accepted_and_letters_have_advice(tmp_path):
    """No note names a flag that `jbias submit` does not have."""
    captions = ["A picture of an object"] * 1280
    checked = submission.check(write(tmp_path / "a", table(response=captions)))
    assert checked.problems == checked.warnings == ()
    letters = [words[0] for words in WORDS]
    frame = table(answers=letters).rename(columns={"object_response": "raw_response"})
    checked = submission.check(write(tmp_path / "b", frame))
    assert checked.is_accepted and len(checked.warnings) == 2
    assert "1,280 answers are letters without a class" in checked.warnings[1]
    assert "give the class of each answer in object_response" in checked.warnings[1]
    assert not [line for line in checked.warnings if "--" in line]


def test_parquet_is_accepted(tmp_path):
    folder = write(tmp_path / "toy")
    (folder / "toy.csv").unlink()
    table().to_parquet(folder / "toy.parquet")
    assert submission.check(folder).is_accepted


def test_texts_beside_the_tables_are_accepted(tmp_path):
    folder = write(tmp_path / "toy")
    (folder / "README.md").write_text("<b>Toy</b>")
    (folder / "LICENSE").write_text("CC BY 4.0")
    checked = submission.check(folder)
    assert checked.problems == checked.warnings == ()


def test_the_command_writes_a_template_once(tmp_path, capsys):
    folder = tmp_path / "toy"
    assert submit.main([str(folder), "--init"]) == 0
    assert "kind: one of CNN" in capsys.readouterr().out
    assert set(json.loads((folder / "submission.json").read_text())) == set(INFO)
    (folder / "submission.json").write_text(json.dumps(INFO))
    assert submit.main([str(folder), "--init"]) == 2
    assert "must not exist" in capsys.readouterr().err
    table().to_csv(folder / "toy.csv", index=False)
    assert submit.main([str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Toy 7B: shape bias 0.")
    assert lines[0].endswith("; 0 of 1,200 unanswered")
    assert lines[-1] == "accepted: 1 observer(s), 0 warning(s)"


def test_the_command_refuses_with_exit_code_1(tmp_path, capsys):
    folder = write(tmp_path / "toy", table()[1:])
    assert submit.main([str(folder)]) == 1
    out = capsys.readouterr().out
    assert "problem: " in out and "refused: 1 problem(s)" in out
    assert submit.main([str(folder), "--json"]) == 1
    result = json.loads(capsys.readouterr().out)
    assert not result["accepted"] and len(result["problems"]) == 1
    assert submit.main([str(tmp_path / "nothing")]) == 2
    assert "must name a folder" in capsys.readouterr().err


def test_json_has_the_scores(tmp_path, capsys):
    folder = write(tmp_path / "toy")
    assert submit.main([str(folder), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["accepted"] and result["submission"] == INFO
    (observer,) = result["observers"]
    assert observer["name"] == "Toy 7B" and 0.5 < observer["shape_bias"] < 0.75
    assert submit.main([str(folder), "--json", f"--known={folder / 'toy.csv'}"]) == 1
    assert "on all 1,280 images" in json.loads(capsys.readouterr().out)["problems"][0]


def test_the_command_compares_with_the_standing_table_and_known_files(tmp_path, capsys):
    """A newer answers.csv is read, too; its rows replace those of the same name."""
    folder = write(tmp_path / "toy", table(answers=stored("vlm/vqa/emu2_chat")))
    num_rows = len(letter_answers.standing_table())
    assert num_rows >= 83 and submit.main([str(folder)]) == 1
    out = capsys.readouterr().out
    assert f"compared with {num_rows} observers that are listed already" in out
    letters = "".join(f"{CLASSES.index(x):x}" for x in answers())
    newer = tmp_path / "newer" / "answers.csv"
    newer.parent.mkdir()
    newer.write_text(
        f"observer,answers\nsubmissions/Mine,{letters}\nvlm/vqa/emu2_chat,{letters}\n"
    )
    assert submit.main([str(folder), f"--known={newer.parent}"]) == 0
    out = capsys.readouterr().out
    assert f"compared with {num_rows + 1} observers that are listed already" in out
    folder = write(tmp_path / "toy2")
    assert submit.main([str(folder), f"--known={newer}", "--json"]) == 1
    result = json.loads(capsys.readouterr().out)
    assert result["num_compared"] == num_rows + 1
    lines = [
        line.partition(": ")[2].partition(" on ")[0] for line in result["problems"]
    ]
    assert lines == ["Toy 7B agrees with Mine", "Toy 7B agrees with vlm/vqa/emu2_chat"]
    assert submit.main([str(folder), f"--known={tmp_path / 'no'}"]) == 2
    assert capsys.readouterr().err.startswith("jbias: --known: ")


@pytest.mark.slow
def test_a_copy_of_any_row_of_the_standing_table_is_refused(tmp_path):
    names = [
        row["observer"] for row in letter_answers.read(str(letter_answers.ANSWERS))
    ]
    frames = [table(answers=stored(name), subj=f"x{i}") for i, name in enumerate(names)]
    checked = submission.check(write(tmp_path / "toy", pd.concat(frames)))
    assert len(names) == len(checked.problems) >= 83
    for i, name in enumerate(names):
        listed = name.removeprefix("submissions/")
        part = f": x{i} agrees with {listed} on all 1,280 images"
        assert [line for line in checked.problems if part in line]


@pytest.mark.slow
def test_published_files_are_accepted(test_data, tmp_path):
    """Each published file is a good submission, and none is like another."""
    paper = pathlib.Path(test_data).parent / "paper"
    if not paper.is_dir():
        pytest.skip(f"needs published decisions in {paper}")
    files = [*paper.glob("decisions-vlm/**/*.csv"), *paper.glob("decisions/*.csv")]
    assert len(files) >= 57
    known = []
    for i, path in enumerate(sorted(files)):
        folder = tmp_path / f"{i}"
        folder.mkdir()
        (folder / path.name).write_bytes(path.read_bytes())
        entries = INFO | {"name": f"{path.parent.name}/{path.stem}"[:80]}
        (folder / "submission.json").write_text(json.dumps(entries))
        checked = submission.check(folder, known=known)
        assert checked.problems == checked.warnings == (), path
        known += checked.observers
    read = {observer.sha256: observer for observer in tables.read([*map(str, files)])}
    for observer in known:
        assert observer.shape_bias == read[observer.sha256].shape_bias


LONG = {
    "line breaks": "x" + "\n" * 20_000 + "x",
    "spaces": " " * 20_000 + "x",
    "brackets": "x" + "(" * 20_000,
    "quotes": "'" * 20_000 + "x",
    "letters": "A. " * 6_000,
}


@cases.each(("name", "words"), LONG.items())
def test_long_words_take_no_long_time(name, words):
    """Unbounded repetitions took 5 to 30 seconds; bounded ones take some 0.05."""
    start = time.perf_counter()
    parsing.parse(words)
    assert time.perf_counter() - start < 2


def test_cases_are_written_as_csv_writes_them(tmp_path):
    """The tables of the cases are read back as they are meant."""
    folder = write(tmp_path / "toy", table(names=renamed(0, "<b>")))
    with (folder / "toy.csv").open(newline="", encoding="utf-8") as file:
        assert next(csv.DictReader(file))["imagename"] == "<b>"
