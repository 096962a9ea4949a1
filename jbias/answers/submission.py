"""Check of a submission: a folder of decisions about the published cue conflicts.

    submission = check("mymodel")
    submission.problems  # Lines; none if the submission is accepted.

A submission is a folder with submission.json (see submission_info.py) and one or more tables of
decisions, CSV or Parquet. Each observer decides about each of the 1,280 published images once; no
answer is a decision. README and LICENSE files are allowed. The folder has no other files.

Decisions that no observer is known to make by looking at the images are refused: the same class for
all images, and the class of the shape, of the texture, or of either in a larger share of the answered
conflicts than any published observer, with a margin (`CUES`). These are more likely labels
than answers. Refused are also fewer than MIN_DECISIONS decisions for a cue, from which no shape bias can
be computed, and decisions that differ from the model's own words in the table in a larger share than
errors of the parser explain (`WORDS`).
"""

import dataclasses
import os
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

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
from jbias.answers import scores as scores_lib
from jbias.runtime import messages
from jbias.stats import ratios

_MAX_FILES = 100
_MAX_TOTAL_BYTES = 2**26  # Of all tables.
_ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".zst", ".7z", ".rar")
_TEXTS = ("readme", "license", "licence")  # Names, without endings, that are left out.
# Shares from which decisions are doubted. Two published observers agree on at most 95 % of the
# images: one network with two prompts.
_NEAR_COPY = 0.97
_ONE_CLASS = 0.9
_UNANSWERED = 0.5
# Share of conflicts with a decision for either cue, below which answers may be shuffled; random
# answers have 0.125.
_EITHER = 0.2
MIN_DECISIONS = 100  # For a cue; the fewest of a published observer are 632.


class Cue(NamedTuple):
    """Shares of the answered conflicts that have a class of this cue."""

    name: str
    largest: float  # Of the published observers.
    doubted: float  # Larger shares are doubted, ...
    refused: float  # ... and these refused.


CUES = (
    Cue("the shape", largest=0.86, doubted=0.90, refused=0.95),
    Cue("the texture", largest=0.63, doubted=0.75, refused=0.90),
    Cue("the shape or the texture", largest=0.92, doubted=0.95, refused=0.98),
)


class Words(NamedTuple):
    """Shares of the words that name one class, in which the decision is another."""

    kind: str
    largest: float  # Of the published files.
    doubted: float  # Larger shares are doubted, ...
    refused: float  # ... and these refused.


# A parser reads options, such as "D. bird", nearly without errors; captions that name one class may
# rightly be decided otherwise.
WORDS = (
    Words("options", largest=0.003, doubted=0.005, refused=0.01),
    Words("words", largest=0.029, doubted=0.04, refused=0.05),
)
_OPTION_RULES = frozenset(
    ("letter", "letter and class", "first of a list", "conclusion")
)


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
        for observer in table.observers:
            name = unicodedata.normalize("NFC", observer.name)
            read_observers.append(dataclasses.replace(observer, name=name))
        problems += table.problems
        warnings += table.warnings
    problems += _name_problems(read_observers)
    named = _with_info(read_observers, info, is_single=len(table_paths) == 1)
    known_names = {submission_info.plain_name(observer.name) for observer in known}
    for i, observer in enumerate(named):
        if submission_info.plain_name(observer.name) in known_names:
            problems.append(
                f"{observer.path}: the name {observer.name!r} is in the table already; "
                "choose another, or say in it what differs"
            )
        implausible, doubts = _plausibility(observer)
        copied, similar = _copies(observer, [*known, *named[:i]])
        contradicted, word_doubts = _word_faults(observer)
        problems += implausible + copied + contradicted
        warnings += doubts + similar + word_doubts
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
        key = submission_info.plain_name(observer.name)
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
    problems, doubts = _cue_faults(observer)
    if counts.max() >= _ONE_CLASS * len(answered):
        share = counts.max() / len(answered)
        doubts.append(
            f"{where} gives the answer {largest} to {share:.0%} of the answered images"
        )
    share = observer.is_unanswered.mean()
    if share > _UNANSWERED:
        doubts.append(
            f"{where} has no answer to {share:.0%} of the images; scores are of the others"
        )
    return problems, doubts


def _cue_faults(observer: observers.Observer) -> tuple[list[str], list[str]]:
    """Return the reasons to refuse, and to doubt, the number of decisions for cues."""
    where = f"{observer.path}: {observer.name}"
    bias = observer.shape_bias
    num_either = bias.n_shape + bias.n_texture
    if not num_either:
        return [f"{where} never decides for a cue, so it has no shape bias"], []
    num_answered = int((observer.is_conflict & ~observer.is_unanswered).sum())
    problems, doubts = [], []
    if num_either < MIN_DECISIONS:
        problems.append(
            f"{where} has {num_either:,} decision(s) for a cue, at least {MIN_DECISIONS} are "
            "needed for a shape bias; submit all answers of the model"
        )
    implausible, implausible_doubts = [], []
    counts = bias.n_shape, bias.n_texture, num_either
    for cue, count in zip(CUES, counts, strict=True):
        share = count / num_answered
        line = (
            f"{where} gives the class of {cue.name} in {share:.1%} of {num_answered:,} "
        )
        line += f"answered conflicts, published observers in at most {cue.largest:.0%}"
        if share >= cue.refused:
            implausible.append(f"{line}; these are probably labels: submit the answers")
        elif share >= cue.doubted:
            implausible_doubts.append(f"{line}; check that these are answers")
    problems += implausible[:1]
    doubts += [] if implausible else implausible_doubts[:1]
    if num_either < _EITHER * num_answered:
        doubts.append(
            f"{where} decides for a cue in {num_either / num_answered:.0%} of the answered "
            "conflicts, random answers in 12 %: rows may be shuffled"
        )
    return problems, doubts


def _word_faults(observer: observers.Observer) -> tuple[list[str], list[str]]:
    """Return the reasons to refuse, and to doubt, decisions that differ from the model's words."""
    if observer.responses is None or observer.parser:
        return [], []
    parsed = {
        words: parsing.parse(words, classes=observer.classes)
        for words in {*observer.responses}
    }
    num_named = num_different = num_options = 0
    for words, decision in zip(observer.responses, observer.decision, strict=True):
        named = parsed[words].decision
        if not named:
            continue
        num_named += 1
        if decision < 0 or named != observer.classes[decision]:
            num_different += 1
            num_options += parsed[words].rule in _OPTION_RULES
    problems, doubts = [], []
    for limits, count in zip(WORDS, (num_options, num_different), strict=True):
        line = f"{observer.path}: {observer.name} has {count:,} decisions that differ from the "
        line += f"class in the model's {limits.kind}, of {num_named:,} words that name one class"
        line += f", published files in at most {limits.largest:.1%}"
        if count > limits.refused * num_named:
            problems.append(f"{line}; correct the decisions, or leave them out")
            break
        if count > limits.doubted * num_named:
            doubts.append(f"{line}; check the decisions")
            break
    return problems, doubts


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
    panel = observers.panels([observer])[observer.dataset]
    score = scores_lib.shape_bias(panel)
    bias = ratios.bootstrap_ratios(score.numerator, score.denominator)
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
