"""Check of a submission: a folder of decisions about the published cue conflicts.

    submission = check("mymodel")
    submission.problems  # Lines; none if the submission is accepted.

A submission is a folder with submission.json (see submission_info.py) and one or more tables of
decisions, CSV or Parquet. Each observer decides about each of the 1,280 published images once; no
answer is a decision. README and LICENSE files are allowed. The folder has no other files.

Decisions that no observer can have made by looking at the images are refused: the same class for
all images, and the class of the shape, or of the texture, for all images. In published decisions,
people give the shape's class in at most 87 % of the images, and networks give either cue's class
in less. These decisions are more likely labels than answers.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool

from jbias import errors
from jbias.answers import (
    letter_answers,
    observers,
    parsing,
    submission_info,
    submission_tables,
    tables,
)
from jbias.runtime import messages
from jbias.stats import ratios

_MAX_FILES = 100
_MAX_TOTAL_BYTES = 2**26  # Of all tables.
_ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".zst", ".7z", ".rar")
_TEXTS = ("readme", "license", "licence")  # Names, without endings, that are left out.
# Shares from which decisions are doubted. Two published observers agree on at most 95 % of the
# images: one network with two prompts.
_NEAR_COPY = 0.97
_ONE_CUE = 0.97
_ONE_CLASS = 0.9
_UNANSWERED = 0.5
# Share of conflicts with a decision for either cue, below which answers may be shuffled; random
# answers have 0.125.
_EITHER = 0.2
_DIFFERENT = 0.05  # Of the words that name one class.


@dataclasses.dataclass(frozen=True)
class Submission:
    """The observers of a folder, and the reasons why it is refused or doubted, a line each."""

    folder: str
    info: submission_info.Info | None  # None if submission.json has problems.
    observers: tuple[observers.Observer, ...]  # Of the tables without problems.
    problems: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def is_accepted(self) -> bool:
        """True without problems."""
        return not self.problems


def check(folder: str, known: Sequence[observers.Observer] | None = None) -> Submission:
    """Return the observers of a submission, with all its problems and warnings.

    known: observers on the same set whose names and decisions are in the table already; None: those
    of the standing table in this version of jbias. ValueError if `folder` is no folder.
    """
    if known is None:
        known = letter_answers.standing_table()
    folder = os.fspath(folder)
    if not os.path.isdir(folder):
        errors.refuse("jbias submit", "name a folder", folder, "check its name")
    table_paths, problems, warnings = _sort_files(folder)
    info = None
    info_path = os.path.join(folder, submission_info.FILE)
    if os.path.isfile(info_path) and not os.path.islink(info_path):
        info, info_problems = submission_info.read(info_path)
        problems += info_problems
    read_observers: list[observers.Observer] = []
    for path in table_paths:
        table = submission_tables.read(path)
        read_observers += table.observers
        problems += table.problems
        warnings += table.warnings
    problems += _name_problems(read_observers)
    named = _with_info(read_observers, info, is_single=len(table_paths) == 1)
    known_names = {observer.name.casefold() for observer in known}
    for i, observer in enumerate(named):
        if observer.name.casefold() in known_names:
            problems.append(
                f"{observer.path}: the name {observer.name!r} is in the table already; "
                "choose another, or say in it what differs"
            )
        implausible, doubts = _plausibility(observer)
        copied, similar = _copies(observer, [*known, *named[:i]])
        problems += implausible + copied
        warnings += doubts + similar + _word_doubts(observer)
    return Submission(folder, info, tuple(named), tuple(problems), tuple(warnings))


def _sort_files(folder: str) -> tuple[list[str], list[str], list[str]]:
    """Return the paths of a folder's tables, and the problems and warnings about its files."""
    names = sorted(os.listdir(folder))
    if len(names) > _MAX_FILES:
        line = f"{folder}: must have at most {_MAX_FILES} files, got {len(names):,}"
        return [], [f"{line}; leave one table per observer"], []
    table_paths, problems, warnings = [], [], []
    for name in names:
        path = os.path.join(folder, name)
        fault = _file_fault(path, name)
        if fault:
            problems.append(messages.printable(f"{path}: {fault}"))
        elif name.startswith("."):
            warnings.append(messages.printable(f"{path}: is hidden and not read"))
        elif name.lower().endswith(tables.SUFFIXES):
            table_paths.append(path)
    total = sum(os.path.getsize(path) for path in table_paths)
    if total > _MAX_TOTAL_BYTES:
        problems.append(
            f"{folder}: must have at most {_MAX_TOTAL_BYTES:,} bytes of tables, got {total:,}; "
            "submit it in parts"
        )
        return [], problems, warnings
    if not names:
        problems.append(f"{folder}: is empty; add a table of decisions")
    elif not table_paths:
        problems.append(
            f"{folder}: has no table of decisions that can be read; add a CSV or Parquet file"
        )
    if submission_info.FILE not in names:
        problems.append(
            f"{folder}: lacks {submission_info.FILE}; `jbias submit DIR --init` writes a "
            "template"
        )
    return table_paths, problems, warnings


def _file_fault(path: str, name: str) -> str:
    """Return the reason why a file may not be in a submission; "" if it may."""
    if os.path.islink(path):
        return "is a symbolic link; put the file itself into the folder"
    is_hidden = name.startswith(".")
    if is_hidden:
        return ""
    fault = submission_info.name_fault(name)
    if fault:
        return f"has {fault} in its name; rename it"
    if os.path.isdir(path):
        return "is a folder; put the tables into the submission's folder itself"
    if not os.path.isfile(path):
        return "is a device or pipe, not a file; remove it"
    lower = name.lower()
    if lower.endswith(_ARCHIVES):
        return "is an archive; unpack it and put the tables into the folder"
    is_known = (
        name == submission_info.FILE
        or lower.endswith(tables.SUFFIXES)
        or lower.partition(".")[0] in _TEXTS
    )
    return "" if is_known else "is no table of decisions, CSV or Parquet; remove it"


def _name_problems(read_observers: Sequence[observers.Observer]) -> list[str]:
    """Return the problems with the names in tables."""
    problems = []
    first_path: dict[str, str] = {}
    for observer in read_observers:
        fault = submission_info.name_fault(observer.name)
        if fault:
            shown = messages.printable(errors.abbreviate(observer.name))
            problems.append(
                f"{observer.path}: the observer's name {shown} has {fault}; rename it"
            )
        key = observer.name.casefold()
        if key in first_path:
            where = first_path[key]
            place = "the same file" if where == observer.path else where
            shown = messages.printable(errors.abbreviate(observer.name))
            problems.append(
                f"{observer.path}: observer {shown} has a table in {place} already; leave "
                "one of them out, or rename it"
            )
        first_path.setdefault(key, observer.path)
    return problems


def _with_info(
    read_observers: Sequence[observers.Observer],
    info: submission_info.Info | None,
    *,
    is_single: bool,
) -> list[observers.Observer]:
    """Return the observers with names and factors of submission.json.

    A single observer has the name in submission.json, several keep those of the tables.
    is_single: True if the folder has one table.
    """
    if info is None:
        return [*read_observers]
    named = []
    is_single = is_single and len(read_observers) == 1
    for observer in read_observers:
        factors = {
            "model": info.name if is_single else observer.factors.get("model", ""),
            "task": info.task,
            "prompt": info.prompt or observer.factors.get("prompt", ""),
            "group": "",
        }
        name = info.name if is_single else observer.name
        named.append(dataclasses.replace(observer, name=name, factors=factors))
    return named


def _plausibility(observer: observers.Observer) -> tuple[list[str], list[str]]:
    """Return the reasons to refuse, and to doubt, that decisions are about the images."""
    answered = observer.decision[~observer.is_unanswered]
    conflict = observer.is_conflict
    where = f"{observer.path}: {observer.name}"
    if not len(answered):
        return [
            f"{where} has no answer to any image; check the column of decisions"
        ], []
    counts = np.bincount(answered)
    largest = f"{observer.classes[counts.argmax()]!r}"
    if counts.max() == len(answered):
        line = f"{where} gives the answer {largest} to all images; check the column"
        return [f"{line} of decisions: constant answers say nothing about cues"], []
    bias = observer.shape_bias
    for cue, count in (("shape", bias.n_shape), ("texture", bias.n_texture)):
        if count == conflict.sum():
            line = f"{where} gives the class of the {cue} for all {count:,} conflicts, as no"
            line += " published observer does; these are probably labels: submit the answers"
            return [line], []
    doubts = []
    if counts.max() >= _ONE_CLASS * len(answered):
        share = counts.max() / len(answered)
        doubts.append(
            f"{where} gives the answer {largest} to {share:.0%} of the answered images"
        )
    for cue, count in (("shape", bias.n_shape), ("texture", bias.n_texture)):
        share = count / conflict.sum()
        if share >= _ONE_CUE:
            doubts.append(
                f"{where} gives the class of the {cue} for {share:.1%} of conflicts"
            )
    share = observer.is_unanswered.mean()
    if share > _UNANSWERED:
        doubts.append(
            f"{where} has no answer to {share:.0%} of the images; scores are of the others"
        )
    num_answered = (conflict & ~observer.is_unanswered).sum()
    either = (bias.n_shape + bias.n_texture) / max(num_answered, 1)
    if either < _EITHER:
        doubts.append(
            f"{where} decides for a cue in {either:.0%} of the answered conflicts, random "
            "answers in 12 %: rows may be shuffled"
        )
    if not bias.n_shape + bias.n_texture:
        return [f"{where} never decides for a cue, so it has no shape bias"], doubts
    return [], doubts


def _word_doubts(observer: observers.Observer) -> list[str]:
    """Return lines about decisions that differ from the model's own words in the table."""
    if observer.responses is None or observer.parser:
        return []
    where = f"{observer.path}: {observer.name}"
    doubts = []
    by_words = {
        words: parsing.parse(words, classes=observer.classes).decision
        for words in {*observer.responses}
    }
    named = np.array([by_words[words] for words in observer.responses])
    decided = np.array([*observer.classes, ""])[observer.decision]
    num_named = (named != "").sum()
    num_different = ((named != "") & (named != decided)).sum()
    if num_different > _DIFFERENT * max(num_named, 1):
        doubts.append(
            f"{where} has {num_different:,} decisions that differ from the class in the "
            f"model's words, of {num_named:,} words that name one class; check the decisions"
        )
    return doubts


def _copies(
    observer: observers.Observer, known: Sequence[observers.Observer]
) -> tuple[list[str], list[str]]:
    """Return lines about observers with the same decisions, and with nearly the same."""
    problems, doubts = [], []
    for other in known:
        is_equal = _agreement(observer, other)
        if len(is_equal) < len(observer.images) / 2:
            continue  # Too few images that both have.
        share = is_equal.mean()
        line = f"{observer.path}: {observer.name} agrees with {other.name} on"
        if share == 1:
            problems.append(
                f"{line} all {len(is_equal):,} images; an observer is listed once: leave it out"
            )
        elif share >= _NEAR_COPY:
            doubts.append(
                f"{line} {share:.1%} of the images; check that it is another model"
            )
    return problems, doubts


def _agreement(
    first: observers.Observer, second: observers.Observer
) -> Bool[np.ndarray, "n"]:
    """Return, by image that both have, True if both decisions are equal."""
    if first.images == second.images:
        return first.decision == second.decision
    _, places, other_places = np.intersect1d(
        first.images, second.images, assume_unique=True, return_indices=True
    )
    return first.decision[places] == second.decision[other_places]


def scores(observer: observers.Observer) -> Mapping[str, Any]:
    """Return the scores of an observer by name; shape_bias is None without a decision.

    lower, upper: bootstrap interval of the shape bias over images, 95 %.
    """
    conflict = observer.is_conflict
    decision = observer.decision[conflict]
    is_shape = decision == observer.label[conflict]
    is_texture = decision == observer.texture[conflict]
    bias = ratios.bootstrap_ratios(is_shape[None], (is_shape | is_texture)[None])
    num_decisions = int(bias.n[0])
    return {
        "shape_bias": float(bias.value[0]) if num_decisions else None,
        "lower": float(bias.lower[0]) if num_decisions else None,
        "upper": float(bias.upper[0]) if num_decisions else None,
        "num_decisions": num_decisions,
        "accuracy": observer.accuracy,
        "num_unanswered": int((observer.is_unanswered & observer.is_conflict).sum()),
        "num_conflicts": int(observer.is_conflict.sum()),
    }


def sentence(observer: observers.Observer) -> str:
    """Return the scores of an observer as a sentence."""
    numbers = scores(observer)
    if numbers["shape_bias"] is None:
        bias = "no shape bias: no decision for a cue"
    else:
        bias = (
            f"shape bias {numbers['shape_bias']:.3f} [{numbers['lower']:.3f}, "
            f"{numbers['upper']:.3f}] of {numbers['num_decisions']:,} decisions"
        )
    return (
        f"{observer.name}: {bias}; accuracy {numbers['accuracy']:.3f}; "
        f"{numbers['num_unanswered']:,} of {numbers['num_conflicts']:,} unanswered"
    )
