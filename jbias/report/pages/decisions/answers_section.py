"""Section on the answers of each observer: numbers by kind of answer, parser and file."""

import dataclasses
import pathlib

import pandas as pd

from jbias.report import document, tables
from jbias.report.pages.decisions import standing as standing_lib

Standing, Blocks = standing_lib.Standing, document.Blocks

_DIGEST_LETTERS = 12  # Of the SHA-256 on the page; the CSV file has all.

_FREQUENT = "most frequent answer"
_WORDS = ("reasons", _FREQUENT)  # Columns with words.
_MAX_UNANSWERED = 200  # Unanswered images on the page; the CSV file has all.
_MAX_LETTERS = 300  # Of a model's words on the page.


def answers_section(standing: Standing) -> Blocks:
    """Yield the table of answers, the list of unanswered images, and the table of files."""
    frame = answer_frame(standing)
    has_textures = standing.panel.texture is not None
    kinds = "shape:d texture:d neither:d" if has_textures else "right:d wrong:d"
    is_parsed = frame["parser"].fillna("").ne("").any()
    columns = tables.columns(
        f"observer rows:d conflicts:d {kinds} unanswered:d unanswered_rows:d reasons frequent "
        "frequent_share:%",
        unanswered_rows="unanswered, all rows",
        frequent=_FREQUENT,
        frequent_share="its share of answers, %",
    )
    if not has_textures:
        del columns["conflicts"], columns["unanswered_rows"]
    table = tables.from_rows(
        f"answers{standing.suffix}",
        "Answers by kind. Rows: images in the file. "
        + (
            "Conflicts: images whose cues have different classes; shape, texture, neither and "
            "unanswered sum to this number. “Unanswered, all rows” and the most frequent answer "
            "count images with equal cues, too. "
            if has_textures
            else ""
        )
        + (
            "Reasons: why the parser found no answer in the raw words, over all rows; – if the "
            "decisions are those of the file. "
            if is_parsed
            else ""
        )
        + "Bold: an observer that mostly gives the same answer.",
        frame,
        columns,
        bold=lambda row: (
            ["frequent", "frequent_share"]
            if row["frequent_share"] >= standing_lib.FREQUENT
            else []
        ),
    )
    words = (j for j, head in enumerate(table.head) if head in _WORDS)
    yield dataclasses.replace(table, word_columns=frozenset(words))
    yield unanswered_list(standing)
    files = frame[["observer", "parser", "file", "sha256"]].copy()
    files["_file"] = [pathlib.PurePath(path).name for path in files["file"].fillna("")]
    yield tables.from_rows(
        f"files{standing.suffix}",
        "Files of decisions. "
        + (
            "Parser: version of the parser of jbias that made the decisions from raw words; –: "
            "decisions as published. "
            if is_parsed
            else "All decisions are those of the files; none was parsed from raw words. "
        )
        + "The CSV file has complete paths and digests.",
        files.replace("", None),
        {
            "observer": tables.Column("observer", str),
            "_file": tables.Column("file", str),
            "sha256": tables.Column("SHA-256", lambda text: text[:_DIGEST_LETTERS]),
            "parser": tables.Column("parser", str),
        },
    )


def unanswered_list(standing: Standing) -> document.Folded | None:
    """Return the list of unanswered images with the observers' words; None without words."""
    frame = standing.unanswered_frame
    if frame.empty:
        return None
    lines = [
        f"{row.observer} | {row.image} | {row.reason} | "
        f"{' '.join(row.words.split())[:_MAX_LETTERS] or '(empty)'}"
        for row in frame[:_MAX_UNANSWERED].itertuples()
    ]
    hidden = len(frame) - len(lines)
    where = f"tables/unanswered{standing.suffix}.csv"
    lines.append(f"{hidden:,} more are in {where}" if hidden else f"Also in {where}")
    title = (
        f"{tables.count(len(frame), 'unanswered image')} of observers whose words are in the "
        "files, over all rows: observer, image, reason, words"
    )
    return document.Folded(title, "\n".join(lines))


def answer_frame(standing: Standing) -> pd.DataFrame:
    """Return the answers of each observer, by decreasing main score.

    Columns: observer; columns of `Standing.counts`; frequent_share; reasons (text, None if
    decisions are those of the file), parser, file and sha256.
    """
    frame = standing.counts.copy()
    frame.insert(0, "observer", standing.names)
    frame["frequent_share"] = frame["frequent_count"] / frame["answers"]
    frame["reasons"] = [
        standing_lib.describe(reasons) if observer.parser else None
        for reasons, observer in zip(
            standing.reasons, standing.panel.observers, strict=True
        )
    ]
    for key, name in (("parser", "parser"), ("path", "file"), ("sha256", "sha256")):
        frame[name] = [getattr(observer, key) for observer in standing.panel.observers]
    return frame.iloc[standing.order].reset_index(drop=True)
