"""Class for the results of an audit of a model, and functions that build the report page.

An audit finds the attributes of images that lower accuracy, and the size of the drops.
"""

import dataclasses
import itertools
import pathlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, UInt8

from jbias.measures import attribute_audit, attribute_reliance
from jbias.report import document, image_sheets, plots, tables
from jbias.runtime import outputs

KINDS = {
    "marginal": "accuracy depends on the value, whatever the class",
    "conditional": "networks use the value as a cue to the class",
    "joint": "accuracy depends on the value, and networks use the value as a cue",
}
points = tables.percent
SIDES = {"within": "in distribution", "outside": "out of distribution"}
_NAMED = 6  # Largest number of names in one sentence.
_MOST = 8  # Largest number of attributes in one figure.
_CELLS = 400  # Largest number of cells of a table on the page.
_ROWS = ("agrees", "disagrees")  # Rows of the figure of flipped answers.
# Line 2 applies only with a reference, line 4 only to one network, line 6 only to several networks.
_CAVEATS = """\
Drop: accuracy in distribution minus out of it at the extreme level (M4, C6, J4); it is 0 at the \
control (M0, C0, J0). Accuracy on a test set is a table P(value | class) of jbias.data.shifts \
times the accuracies of the cells, without sampling; classes have equal weights. A network does \
not change with the level, so curves are straight lines. The values to compare are chosen on one \
half of each cell's images and tested on the other half, then vice versa; the drop is the mean.
All drops are those beyond the drops of the reference networks {beyond}: images that are as hard \
for these count as no drop. Accuracies and probabilities are of the audited networks only.
Intervals: 95 %, percentiles of {draws:,} draws of {drawn} within cells and halves, for the chosen \
values; without any effect of the attribute they are slightly too narrow, but the test is valid. \
p: one-sided, H0 that the drop is at most {tau} points, from the standard errors of both halves \
and {error}; \
Holm over {tests} tests, attributes times kinds.
One network: the results do not extend to other networks trained the same way.
Bug: the interval is above {tau} points, Holm's p is at most {alpha:g}, and both still hold when \
any bug ranked before is held fixed. The kind shown has the largest drop relative to the accuracy \
in distribution; joint only if the marginal and the conditional drop are bugs, too.
Bug of some networks: the same criteria over images only, and networks differ.
A drop says that accuracy differs between these images, not why: an attribute may be a proxy for \
another that is not in the table, and properties that all images share have no effect here.
{n:,} images; the smallest class and value tested has {least}.
Chance: 1 / the number of classes, the highest expected accuracy, averaged over classes, of answers \
that ignore the images; with Wilson's 95 % interval.
"""
_LINES = zip(SIDES.values(), plots.COLOURS, ("-", "--"))
_LINE_STYLES = {
    side: {"color": colour, "linestyle": line} for side, colour, line in _LINES
}
Candidate = attribute_audit.Candidate
Blocks = document.Blocks
_HARDER = (
    " These images may be harder for any network: compare with a network trained on "
    "all values equally (--reference)."
)


class Examples(NamedTuple):
    """Pairs of images of one class: the first network is right on one and wrong on the other.

    There are p pairs. agrees, disagrees: first and second image (h x w pixels, RGB) of each pair,
    in the order of `pairs`. The value of the attribute agrees with the class in the first image,
    and disagrees in the second.
    """

    pairs: Sequence[attribute_audit.Pair]
    agrees: UInt8[np.ndarray, "p h w 3"]
    disagrees: UInt8[np.ndarray, "p h w 3"]


@dataclasses.dataclass(frozen=True, eq=False)
class Audited:
    """Audit of one model (one or several networks trained the same way) on one set of images.

    There are s networks and n images. likelihood: probability of the correct class. confidence:
    probability of the predicted class. tau: threshold of a bug, a drop in accuracy as a fraction.
    alpha: significance level. draws, seed: number and seed of the bootstrap draws.
    """

    model: str
    networks: tuple[str, ...]
    # Reference networks, whose drops are subtracted; usually none.
    reference: tuple[str, ...]
    dataset: str
    classes: tuple[str, ...]  # Classes of the data set.
    answers: tuple[str, ...]  # Classes among which networks decide.
    index: Int[np.ndarray, "n"]  # Indices of the images in the data set.
    label: Int[np.ndarray, "n"]
    columns: Mapping[
        str, Int[np.ndarray, "n"]
    ]  # Value index of each image, by candidate.
    values: Mapping[str, tuple[str, ...]]
    prediction: Int[np.ndarray, "s n"]  # Indices into `answers`.
    correct: Bool[np.ndarray, "s n"]
    likelihood: Float[np.ndarray, "s n"]
    confidence: Float[np.ndarray, "s n"]
    candidates: Sequence[Candidate]
    examples: Mapping[str, Examples]  # By name of the candidate.
    notes: Sequence[str]  # Reasons why data were left out.
    tau: float
    alpha: float
    draws: int
    seed: int

    @property
    def accuracy(self) -> float:
        """Mean accuracy over networks and images."""
        return float(self.correct.mean())

    @property
    def chance(self) -> attribute_audit.ChanceTest:
        """Comparison of the accuracy of all networks with chance."""
        return attribute_audit.compare_with_chance(
            self.correct, self.label, tau=self.tau
        )

    @property
    def guessing(self) -> list[str]:
        """Names of the networks whose accuracy is not significantly above chance."""
        verdicts = [
            attribute_audit.compare_with_chance(row, self.label, tau=self.tau).verdict
            for row in self.correct
        ]
        return [
            network
            for network, verdict in zip(self.networks, verdicts, strict=True)
            if verdict in ("guesses", "below")
        ]

    @property
    def tested(self) -> list[Candidate]:
        """Candidates with enough images for a test, in the order of the ranking."""
        return [candidate for candidate in self.candidates if candidate.kind]

    @property
    def bugs(self) -> list[Candidate]:
        """Candidates with the verdict "bug", in the order of the ranking."""
        return [
            candidate for candidate in self.candidates if candidate.verdict == "bug"
        ]

    @property
    def kinds(self) -> list[str]:
        """Kinds of shift that the audit tested; empty if no candidate was tested."""
        return list(self.tested[0].result.kinds) if self.tested else []

    @property
    def shown(self) -> list[Candidate]:
        """Candidates with figures: the first 4 with the verdict "bug" or "some".

        If there are no such candidates, the list has the first tested candidate. Empty if no
        candidate was tested.
        """
        harmful = [
            candidate
            for candidate in self.tested
            if candidate.verdict in ("bug", "some")
        ]
        return (harmful or self.tested[:1])[:4]

    def names(self, candidate: Candidate) -> tuple[list[str], list[str]]:
        """Return (names of the tested classes, names of the tested values) of a candidate."""
        classes = [self.classes[k] for k in candidate.result.classes]
        return classes, [
            self.values[candidate.name][a] for a in candidate.result.values
        ]

    def weights(self, candidate: Candidate) -> dict[str, np.ndarray]:
        """Return the images' weights (n,) in both test sets of the most extreme level of shift.

        Keys: "within" (in distribution) and "outside" (out of distribution). candidate: one of
        `tested`.
        """
        column = self.columns[candidate.name]
        within, outside = attribute_audit.shift_weights(
            candidate.result, candidate.kind, self.label, column
        )
        return {"within": within, "outside": outside}


def write(
    audits: Sequence[Audited],
    out: pathlib.Path,
    *,
    notes: Sequence[str] = (),
    figures: Collection[str] = ("svg",),
) -> list[str]:
    """Write the page of the audits to the folder `out`; return the lines to print.

    With several models, `out` has an overview, and each model has its page in a folder of
    out/models, named by `_file_name`; models with the same name get "-" and the model's number in
    `audits`, from 1. For one model, the lines are the headline, the sentences on data and tests
    below the headline of the page (the entry "basis" of results.json), and "written: <path of the
    page>". For several models, the lines are the headline of each model and "written: <path of the
    overview>".

    audits: one for each model. notes: further caveats, such as networks that were left out.
    figures: file formats of the figures, as for `document.write`. Raises ValueError as
    `document.write` does, before anything is written.
    """
    reports = [report(audited, notes) for audited in audits]
    if len(audits) == 1:
        return [*reports[0].answer, document.write(reports[0], out, figures=figures)]
    names = [_file_name(audited.model) for audited in audits]
    folders = []
    for number, name in enumerate(names, start=1):
        ending = f"-{number}" if names.count(name) > 1 else ""
        folders.append(f"models/{name}{ending}")
    pages = {
        folder: document.render(page, figures=figures)
        for folder, page in zip(folders, reports)
    }
    overview = document.render(_overview(audits, folders, notes), figures=figures)
    outputs.check_report_files(out, overview)
    for folder, files in pages.items():
        outputs.check_report_files(out / folder, files)
    # The overview is written first, since it marks the folder as a report.
    written = document.save(overview, out)
    for folder, files in pages.items():
        document.save(files, out / folder)
    return [*(page.answer[0] for page in reports), written]


class AuditData(NamedTuple):
    """Data that the sections of the page of one model show."""

    audited: Audited
    levels: pd.DataFrame  # The result of `curves`.
    ranking: tables.Table
    sentences: Sequence[str]  # The result of `findings`.
    caveats: Sequence[str]


def report(audited: Audited, notes: Sequence[str]) -> document.Report:
    """Return the report on one model.

    The frames of the report are the results of `curves`, `cells` and `flips`. Figures, tables of
    groups and probabilities are left out if no attribute was tested. notes: caveats, which precede
    the caveats of the audit.
    """
    levels = curves(audited)
    pairs = flips(audited)
    ranking = ranked(audited)
    sentences = list(findings(audited))
    caveats = [*notes, *method_notes(audited)]
    page = AuditData(audited, levels, ranking, sentences=sentences, caveats=caveats)
    return document.Report(
        title=f"jbias audit: {audited.model}",
        heading=audited.model,
        subtitle=f"Audit on {audited.dataset}, jbias report",
        answer=answer(audited),
        facts={
            "Networks": len(audited.networks),
            "Images": f"{len(audited.label):,}",
            "Attributes": len(audited.candidates),
            "Accuracy": f"{points(audited.accuracy)} %",
            "Threshold": f"{points(audited.tau)} points",
        },
        sections=document.make_sections(SECTIONS, page),
        results={
            "model": audited.model,
            "networks": audited.networks,
            "reference": audited.reference,
            "dataset": audited.dataset,
            "accuracy": audited.accuracy,
            "tau": audited.tau,
            "alpha": audited.alpha,
            "draws": audited.draws,
            "seed": audited.seed,
            "images": len(audited.label),
            "bugs": [candidate.name for candidate in audited.bugs],
            "chance": {**audited.chance._asdict(), "guessing": audited.guessing},
            "findings": sentences,
            "ranked": ranking.data,
            "curves": levels,
            "flips": pairs,
            "caveats": caveats,
        },
        frames={"curves": levels, "cells": cells(audited), "flips": pairs},
    )


def _overview(
    audits: Sequence[Audited], folders: Sequence[str], notes: Sequence[str]
) -> document.Report:
    """Return the overview page of several models, with a table and links to their pages.

    The table has a row per model: number of networks, accuracy in %, bugs, and the first tested
    attribute with its kind of shift and drop, or dashes. folders: folder of each model's page, in
    the order of `audits`. notes: caveats.
    """
    head = ("model", "networks", "accuracy, %", "bugs", "first", "kind", "drop, points")
    rows = []
    trees = []
    for audited, folder in zip(audits, folders, strict=True):
        bugs = [candidate.name for candidate in audited.bugs]
        trees.append(
            {
                "model": audited.model,
                "folder": folder,
                "bugs": bugs,
                "chance": audited.chance._asdict(),
            }
        )
        name = kind = drop = "–"
        if audited.tested:
            first = audited.tested[0]
            name = first.name
            kind = first.kind
            drop = interval(first)
        networks = str(len(audited.networks))
        accuracy = points(audited.accuracy)
        bug_names = ", ".join(bugs) or "none"
        rows.append((audited.model, networks, accuracy, bug_names, name, kind, drop))
    data = pd.DataFrame(rows, columns=head)
    table = tables.Table(
        "models",
        "Models with their bugs and the first attribute of their ranking.",
        head,
        tuple(rows),
        data,
    )
    links = document.Links(
        {tree["model"]: f"{tree['folder']}/index.html" for tree in trees}
    )
    at_chance = [audited.model for audited in audits if chance_sentence(audited)]
    basis = "Each model is tested separately; p-values are adjusted within each model."
    if at_chance:
        basis += f" Accuracy near chance, so that little can be said: {_abbreviate(at_chance)}."
    guilty = sum(bool(audited.bugs) for audited in audits)
    return document.Report(
        title="jbias audit",
        heading=f"{len(audits)} audited models",
        subtitle=f"Audit on {audits[0].dataset}, jbias report",
        answer=(f"{guilty} of {len(audits)} models have a bug.", basis),
        facts={"Models": len(audits), "Attributes": len(audits[0].candidates)},
        sections=[
            document.Section("models", "Models", [table, links]),
            document.Section("caveats", "Caveats", [document.Text(notes)]),
        ],
        results={"models": trees, "missing": list(notes)},
        source="Each model has its own page.",
    )


def _file_name(name: str) -> str:
    """Return the name with unsafe characters for file names replaced by "-"."""
    return re.sub(r"[^\w.-]+", "-", name)


def interval(candidate: Candidate) -> str:
    """Return "drop [low, high]" in percentage points, under the candidate's kind of shift.

    candidate: a tested attribute.
    """
    extreme = candidate.result.kinds[candidate.kind].extreme
    return tables.with_ends(candidate.drop, extreme.low, extreme.high)


def answer(audited: Audited) -> tuple[str, str]:
    """Return (main finding, sentence on the audited data).

    The finding names all bugs. Without bugs, the finding names the first attribute, as a bug of
    some networks or as the largest drop. A `chance_sentence` precedes the finding. If no attribute
    was tested, the finding says so.
    """
    data = f"{_count(audited.networks, 'network')}, {len(audited.label):,} images of {audited.dataset}"
    tested = f"{_count(audited.candidates, 'attribute')} ({len(audited.tested)} tested)"
    basis = f"{data}, {tested}, accuracy {points(audited.accuracy)} %"
    if audited.reference:
        references = _count(audited.reference, "network")
        basis += f"; drops beyond those of {references} of reference"
    if not audited.tested:
        headline = "Nothing could be tested: see below which images are missing."
        return _after_chance(audited, headline), f"{basis}."
    first = audited.tested[0]
    finding = (
        f"no attribute lowers accuracy by more than {points(audited.tau)} points with"
    )
    finding += (
        f" confidence; the largest drop is that of {first.name}, {interval(first)}"
    )
    bugs = [
        f"{candidate.name} ({candidate.kind}, {interval(candidate)} points)"
        for candidate in audited.bugs
    ]
    if bugs:
        finding = f"{tables.join(bugs)} hurt{'s' * (len(bugs) == 1)}"
    elif first.verdict == "some":
        largest = points(max(first.result.kinds[first.kind].by_network))
        finding = f"{first.name} hurts some networks, by up to {largest} points"
        finding += f" ({first.kind}), and others less or not at all; see below"
    return _after_chance(audited, f"{audited.model}: {finding}."), f"{basis}."


def _after_chance(audited: Audited, headline: str) -> str:
    """Return the headline, preceded by the model and its `chance_sentence` if there is one."""
    sentence = chance_sentence(audited)
    return f"{audited.model}: {sentence} {headline}" if sentence else headline


def chance_sentence(audited: Audited) -> str:
    """Return a sentence on accuracy near or below chance, or on guessing networks; "" for neither.

    An accuracy is near chance if it is less than `tau` above chance, or not significantly above
    chance. For a higher accuracy, the sentence names the networks that guess; the sentence is ""
    for a single network, or if no network guesses. Networks that follow an attribute may have
    chance accuracy without guessing: the sentence names attributes that lower accuracy.
    """
    test = audited.chance
    guessing = audited.guessing
    is_plural = len(audited.networks) > 1
    hurting = [
        candidate.name
        for candidate in audited.candidates
        if candidate.verdict in ("bug", "some")
    ]
    if test.verdict == "above":
        if not guessing or not is_plural:
            return ""
        return (
            f"{len(guessing)} of {len(audited.networks)} networks guess "
            f"({_abbreviate(guessing)}) but are included below; leave them out."
        )
    subject = "the network"
    guess_verb = "guesses"
    rely_phrase = "it relies"
    if is_plural:
        subject = "the networks"
        guess_verb = "guess"
        rely_phrase = "they rely"
    counts = np.bincount(audited.label)
    is_balanced = len({*counts[counts > 0].tolist()}) == 1
    accuracy = "accuracy" if is_balanced else "accuracy averaged over the classes"
    value, chance, low, high = (f"{100 * x:.3g}" for x in test[:4])
    numbers = f"{accuracy} is {value} %, chance is {chance} %, 95 % interval"
    numbers += f" [{low}, {high}]"
    if hurting:
        explanation = f"but does not guess: it follows {tables.join(hurting)}"
        if is_plural:
            explanation = f"but do not guess: they follow {tables.join(hurting)}"
        amount = "hardly more" if test.verdict == "near" else "no more"
        verb = "are" if is_plural else "is"
        return f"{numbers}: {subject} {verb} right {amount} often than by chance, {explanation}."
    warning = f"the ranking below says nothing about what {rely_phrase} on"
    if test.verdict == "near":
        margin = f"less than {points(audited.tau)} points above chance"
        return f"{numbers}: {margin}; the ranking below says little about what {rely_phrase} on."
    if test.verdict == "below":
        reason = (
            "is below chance, as where classes are in another order (see --classes)"
        )
        return f"{numbers}, which {reason}; {warning}."
    return f"{numbers}: {subject} {guess_verb}; {warning}."


def _count(items: Sequence, noun: str) -> str:
    """Return the number of items with the noun, such as "2 networks"."""
    return f"{len(items)} {noun}{'s' * (len(items) != 1)}"


def direction(audited: Audited, candidate: Candidate) -> str:
    """Return a phrase that names the values with higher accuracy in each of two groups of classes.

    candidate: a tested attribute. Examples: "red with cat; blue with dog"; for the kind "marginal",
    "red better than blue".
    """
    chosen = candidate.result.kinds[candidate.kind].chosen
    classes, values = map(np.array, audited.names(candidate))
    is_better = chosen.contrast() > 1e-12
    if candidate.kind == "marginal":
        is_worse = chosen.contrast()[0] < -1e-12
        return f"{_abbreviate(values[is_better[0]])} better than {_abbreviate(values[is_worse])}"
    groups = [np.flatnonzero(chosen.groups == group) for group in (0, 1)]
    phrases = [
        f"{_abbreviate(values[is_better[k[0]]])} with {_abbreviate(classes[k])}"
        for k in groups
    ]
    return "; ".join(phrases)


def _abbreviate(names: Sequence[str]) -> str:
    """Return the names joined by commas; for more than 6 names, the first 5 and "and N more"."""
    if len(names) <= _NAMED:
        return ", ".join(names)
    return f"{', '.join(names[: _NAMED - 1])} and {len(names) - _NAMED + 1} more"


def strongest_pairs(audited: Audited, candidate: Candidate, count: int = 4) -> str:
    """Return "value with class (+points), ..." for the pairs with the largest excess accuracy.

    Excess: accuracy of the pair beyond the mean effects of its class and of its value, in
    percentage points. count: maximal number of pairs. candidate: a tested attribute.
    """
    accuracy, (classes, values) = candidate.result.accuracy, audited.names(candidate)
    excess = accuracy - accuracy.mean(0) - accuracy.mean(1, keepdims=True)
    excess = excess + accuracy.mean()
    largest = np.argsort(-excess, axis=None)[:count]
    pairs = zip(*np.unravel_index(largest, excess.shape), strict=True)
    phrases = [
        f"{values[a]} with {classes[k]} (+{points(excess[k, a])})" for k, a in pairs
    ]
    return ", ".join(phrases)


def findings(audited: Audited) -> Iterator[str]:
    """Yield a paragraph per bug, then per attribute with the verdict "goes with" or "some".

    "goes with": another attribute may explain the drop. "some": a bug of some networks only.
    """
    for candidate in audited.bugs:
        extreme = candidate.result.kinds[candidate.kind].extreme
        detail = f" Largest accuracy beyond class and value effects: {strongest_pairs(audited, candidate)}."
        if candidate.kind == "marginal":
            detail = "" if audited.reference else _HARDER
        sentence = f"{candidate.name}: {candidate.kind}, {KINDS[candidate.kind]}: {direction(audited, candidate)}."
        sentence += f" Accuracy is {points(extreme.within)} % in distribution and"
        yield f"{sentence} {points(extreme.outside)} % out of distribution.{detail}"
    for candidate in audited.candidates:
        if candidate.verdict == "goes with":
            reason = f"no images separate this attribute from {candidate.other}"
            remaining = candidate.remains
            if remaining:
                drop = tables.with_ends(remaining.drop, remaining.low, remaining.high)
                reason = f"{drop} points of the drop remain with {candidate.other} held fixed"
            yield f"{candidate.name} does not count as a bug: {reason}."
        if candidate.verdict == "some":
            drops = tables.join(
                [
                    *map(
                        points,
                        sorted(candidate.result.kinds[candidate.kind].by_network),
                    )
                ]
            )
            yield (
                f"{candidate.name}: {candidate.kind}, {direction(audited, candidate)}. Networks "
                f"differ, with drops of {drops} points, so that the result may not extend to other "
                "networks trained the same way; --apart audits each network separately."
            )


def method_notes(audited: Audited) -> Iterator[str]:
    """Yield caveats: the lines of `_CAVEATS` that apply, `audited.notes`, and missing data.

    The last lines name the attributes with a reason in `result.missing`.
    """
    is_plural = len(audited.networks) > 1
    drawn = "networks (Student's t, as they are few) and of " * is_plural + "images"
    error = "the deviation between networks" if is_plural else "for this network alone"
    smallest_cell = min(
        (int(candidate.result.count.min()) for candidate in audited.tested), default=0
    )
    applies = [
        True,
        audited.reference,
        True,
        not is_plural,
        True,
        is_plural,
        True,
        True,
        True,
    ]
    for line in itertools.compress(_CAVEATS.splitlines(), applies):
        yield line.format(
            draws=audited.draws,
            drawn=drawn,
            error=error,
            alpha=audited.alpha,
            tau=points(audited.tau),
            n=len(audited.label),
            beyond=_abbreviate(audited.reference),
            tests=sum(len(candidate.pvalues) for candidate in audited.candidates),
            least=smallest_cell,
        )
    yield from audited.notes
    for candidate in audited.candidates:
        if candidate.result.missing:
            yield f"{candidate.name}: {candidate.result.missing}."


def ranked(audited: Audited) -> tables.Table | None:
    """Return the table of all candidates in the order of the ranking, one row per candidate.

    The page has the columns attribute, verdict, kind, values, drop, p, the drop under each kind of
    shift, accuracy in and out of distribution, and the remaining drop within another attribute.
    Attributes that were not tested have dashes. Bugs are bold. Drops are in percentage points on
    the page, and are fractions in the files. The result is None without candidates; an audit always
    has candidates.
    """
    rows = []
    for number, candidate in enumerate(audited.candidates, start=1):
        verdicts = {
            "goes with": f"goes with {candidate.other}",
            "some": "bug of some networks",
        }
        row = {
            "rank": number,
            "attribute": candidate.name,
            "values": len(audited.values[candidate.name]),
            "verdict": candidate.verdict,
            "kind": candidate.kind,
            "other": candidate.other,
            "_verdict": verdicts.get(candidate.verdict, candidate.verdict),
        }
        rows.append(row | (_numbers(audited, candidate) if candidate.kind else {}))
    columns = tables.columns(
        "attribute _verdict kind values:d drop:%[] p_holm:p",
        _verdict="verdict",
        drop="drop, points",
        p_holm="p, Holm",
    )
    columns["kind"] = tables.Column("kind", lambda kind: kind or "–")
    leading = [*columns][:5]
    columns |= {f"{kind}_drop": (kind, points) for kind in audited.kinds}
    format_arrow = lambda within, outside: f"{points(within)} → {points(outside)}"
    columns["within"] = tables.Column("in → out, %", format_arrow, ("outside",))
    columns |= {"_left": ("left within others", str)}
    caption = (
        "Attributes by drop in accuracy. Drop: accuracy in distribution minus accuracy out of "
        "distribution at the extreme level, in points, [95 % interval]; "
        f"{tables.join(audited.kinds)}: drop under that kind of shift; left within others: the "
        "drop that remains when the earlier bug that explains most of it is held fixed. Bold: bugs."
    )
    return tables.from_rows(
        "ranked",
        caption,
        rows,
        columns,
        bold=lambda row: leading if row["verdict"] == "bug" else (),
        data=pd.DataFrame(rows).filter(regex="^[^_]"),
    )


def _numbers(audited: Audited, candidate: Candidate) -> dict[str, object]:
    """Return the columns with numbers of a tested candidate's row, by key of the column.

    Keys: drop, drop_low, drop_high and p_holm of the candidate's kind of shift; <kind>_drop, _low,
    _high, _relative, _area and _p_holm for each kind; within and outside (accuracies); remaining,
    remaining_low and remaining_high (None if unknown); direction and _left, which are text. Drops
    and accuracies are fractions.
    """
    remaining = candidate.remains
    pvalues = candidate.pvalues
    extreme = candidate.result.kinds[candidate.kind].extreme
    row = {
        "drop": candidate.drop,
        "drop_low": extreme.low,
        "drop_high": extreme.high,
        "p_holm": pvalues[candidate.kind],
    }
    for kind, shift in candidate.result.kinds.items():
        row |= {
            f"{kind}_drop": shift.drop,
            f"{kind}_low": shift.extreme.low,
            f"{kind}_high": shift.extreme.high,
            f"{kind}_relative": shift.relative,
            f"{kind}_area": shift.area,
            f"{kind}_p_holm": pvalues[kind],
        }
    left = "–"
    if candidate.other:
        left = points(remaining.drop) if remaining else "not separable"
        left = f"{left} ({candidate.other})"
    return row | {
        "within": extreme.within,
        "outside": extreme.outside,
        "remaining": remaining and remaining.drop,
        "remaining_low": remaining and remaining.low,
        "remaining_high": remaining and remaining.high,
        "direction": direction(audited, candidate),
        "_left": left,
    }


def curves(audited: Audited) -> pd.DataFrame:
    """Return accuracies and drops (fractions), one row per attribute, kind of shift and level.

    Columns: attribute, kind, and the fields of `attribute_reliance.Point`.
    """
    rows = []
    for candidate in audited.candidates:
        for kind, shift in candidate.result.kinds.items():
            rows += [(candidate.name, kind, *point) for point in shift.curve]
    columns = ["attribute", "kind", *attribute_reliance.Point._fields]
    return pd.DataFrame(rows, columns=columns)


def cells(audited: Audited) -> pd.DataFrame:
    """Return accuracies, one row per attribute, tested class and tested value.

    Columns: attribute, class, value, images (number of images) and accuracy (a fraction).
    """
    rows = []
    for candidate in audited.candidates:
        (classes, values), accuracy = (
            audited.names(candidate),
            candidate.result.accuracy,
        )
        for (k, a), n in np.ndenumerate(candidate.result.count):
            rows.append((candidate.name, classes[k], values[a], n, accuracy[k, a]))
    columns = ["attribute", "class", "value", "images", "accuracy"]
    return pd.DataFrame(rows, columns=columns)


def groups(audited: Audited, candidate: Candidate) -> tables.Table | None:
    """Return the table of accuracy by class (row) and value (column); None above 400 cells.

    Columns: class, and one per value of the attribute. The page shows accuracies in % and numbers
    of images; the files have fractions. The worst cell is bold; cells in distribution are shaded.
    candidate: a tested attribute.
    """
    accuracy = candidate.result.accuracy
    count = candidate.result.count
    if count.size > _CELLS:
        return None
    classes, values = audited.names(candidate)
    contrast = candidate.result.kinds[candidate.kind].chosen.contrast()
    worst, place = np.unravel_index(accuracy.argmin(), accuracy.shape)
    data = pd.DataFrame(accuracy, columns=tables.distinct_keys(values, ["class"]))
    data.insert(0, "class", classes)
    texts = np.vectorize("{:.0f} ({})".format, otypes=[object])(100 * accuracy, count)
    return tables.Table(
        name=_file_name(f"groups_{candidate.name}"),
        caption=f"{candidate.name}: accuracy in % (number of images) by class and value. Shaded: "
        f"groups in distribution ({candidate.kind}). Bold: the worst group. Mean over groups: "
        f"{points(accuracy.mean())} %.",
        head=("class", *values),
        rows=tuple((name, *row) for name, row in zip(classes, texts, strict=True)),
        data=data,
        bold=frozenset({(int(worst), int(place) + 1)}),
        shade={(k, a + 1): 0.35 for k, a in np.argwhere(contrast > 1e-12).tolist()},
    )


def likelihood_table(audited: Audited) -> tables.Table | None:
    """Return a table of mean probabilities, in and out of distribution, per tested attribute.

    Columns: attribute, kind, likelihood_within and likelihood_outside (of the correct class),
    confidence_within and confidence_outside (of the decision). None without tested attributes.
    """
    columns = tables.columns("attribute kind")
    three = tables.digits(3)
    for side, side_text in zip(SIDES, ("in", "out"), strict=True):
        for measure, noun in (("likelihood", "right"), ("confidence", "decided")):
            columns[f"{measure}_{side}"] = tables.Column(f"{noun}, {side_text}", three)
    rows = []
    for candidate in audited.tested:
        rows.append({"attribute": candidate.name, "kind": candidate.kind})
        for side, weight in audited.weights(candidate).items():
            for measure in ("likelihood", "confidence"):
                mean = (getattr(audited, measure) * weight).sum(1).mean()
                rows[-1][f"{measure}_{side}"] = float(mean)
    return tables.from_rows(
        "likelihood",
        "Mean probability of the right class and of the decided class at the extreme level.",
        rows,
        columns,
    )


def flips(audited: Audited) -> pd.DataFrame:
    """Return the pairs of images shown in the figures of flipped decisions, one row per pair.

    Columns: attribute, class and shared (number of other attributes with the same value in both
    images). Each of the sides "agrees" and "disagrees" also has the columns <side>_image (index in
    the data set), <side>_value, <side>_decided (the predicted class), <side>_confidence and
    <side>_likelihood (probabilities of the predicted class and of the correct class). All decisions
    are by the first network. An empty frame has no columns.
    """
    rows = []
    for name, shown in audited.examples.items():
        for pair in shown.pairs:
            row = {
                "attribute": name,
                "class": audited.classes[audited.label[pair.agrees]],
            }
            for side in _ROWS:
                i = getattr(pair, side)
                row |= {
                    f"{side}_image": int(audited.index[i]),
                    f"{side}_value": audited.values[name][audited.columns[name][i]],
                    f"{side}_decided": audited.answers[audited.prediction[0, i]],
                    f"{side}_confidence": float(audited.confidence[0, i]),
                    f"{side}_likelihood": float(audited.likelihood[0, i]),
                }
            rows.append(row | {"shared": pair.shared})
    return pd.DataFrame(rows)


def _attribute_figure(
    kind: str, candidate: Candidate, caption: str, drawn: plots.Figure
) -> document.Figure:
    """Return a figure of one attribute, called "<kind>_<name of the attribute>".

    The caption begins with the name of the attribute.
    """
    name = _file_name(f"{kind}_{candidate.name}")
    return document.Figure(name, f"{candidate.name}: {caption}", drawn)


def by_level(
    frame: pd.DataFrame, looks: Mapping, label: str, *, tau: float | None = None
) -> plots.Figure:
    """Return a figure of lines over the levels of a shift, with a panel per kind of shift.

    frame: columns kind, share, level, line, value and optionally low and high (fractions). looks:
    line style by value of the column "line". label: label of the y axis, which is in %. tau:
    threshold to draw, in percentage points; None for no threshold and a y axis from 0 to 102.
    The x axis has the shares, with the levels as labels.
    """
    threshold = {"color": plots.INK, "linewidth": 0.7, "linestyle": (0, (2, 2))}
    columns = [name for name in ("value", "low", "high") if name in frame]
    frame = frame.rename(columns={"kind": "panel", "share": "x"})
    frame = frame.assign(**{name: 100 * frame[name] for name in columns})

    def finish(axes: plots.Axes, rows: pd.DataFrame) -> None:
        axes.set_xticks(rows["x"].unique(), rows["level"].unique())
        if tau is None:
            axes.set_ylim(0, 102)
        else:
            axes.axhline(tau, **threshold)

    looks = {**looks} | ({} if tau is None else {f"{tau:g} points": threshold})
    return plots.curves(
        frame,
        looks,
        ("", label),
        finish=finish,
        across=frame["panel"].nunique(),
        sharey=True,
    )


def likelihood_figure(audited: Audited, candidate: Candidate) -> plots.Figure:
    """Return a figure of histograms of the probability of the correct class, by test set.

    candidate: a tested attribute. The test sets have the attribute's most extreme level of shift.
    """
    values = audited.likelihood.ravel()
    networks = len(audited.likelihood)
    weights = (
        np.tile(weight, networks) for weight in audited.weights(candidate).values()
    )
    panel = {side: (values, weight) for side, weight in zip(SIDES.values(), weights)}
    return plots.histograms({"": panel}, _LINE_STYLES, "probability of the right class")


def flips_figure(audited: Audited, name: str) -> plots.Figure:
    """Return a figure of pairs of images, one column per pair, with the class above the column.

    The value of the attribute agrees with the class in the first row, and disagrees in the second.
    Below an image are the value, the decision and its probability. A wrong decision also has the
    probability of the correct class below. name: name of a candidate, a key of `audited.examples`.
    """
    shown = audited.examples[name]
    pairs = flips(audited)
    pictures = {}
    notes = {}
    pairs = pairs[pairs["attribute"] == name].to_dict("records")
    images = zip(shown.agrees, shown.disagrees, strict=True)
    for row, (agrees, disagrees) in zip(pairs, images, strict=True):
        right = column = row["class"]
        while column in pictures:  # A class may have several pairs.
            column += " "
        hit = f"{row['agrees_decided']} {row['agrees_confidence']:.2f}"
        error = f"{row['disagrees_decided']} {row['disagrees_confidence']:.2f}"
        missed = f"{right} {row['disagrees_likelihood']:.2f}"
        pictures[column] = [agrees, disagrees]
        notes[column] = [
            image_sheets.PictureNote((row["agrees_value"], hit), is_correct=True),
            image_sheets.PictureNote(
                (row["disagrees_value"], missed, error), is_correct=False
            ),
        ]
    title = f"{name} flips the answer"
    return image_sheets.draw(pictures, _ROWS, notes=notes, title=title, across=8)


# The sections, in the order of the page.


def _by_level(page: AuditData) -> Blocks:
    """Yield the figure of drops over the levels, and a figure of accuracies per shown attribute.

    The first figure has the first 8 tested attributes. Nothing is yielded if none was tested.
    """
    audited = page.audited
    levels = page.levels
    count = len(audited.tested)
    if not count:
        return
    styles = plots.styles(x.name for x in audited.tested[:_MOST])
    drops = levels[levels["attribute"].isin([*styles])]
    drops = drops.assign(line=drops["attribute"], value=drops["drop"])
    selection = f", {_MOST} of {count}" if count > _MOST else ""
    caption = (
        "Drops in points by level, with 95 % intervals, of the table's first "
        f"attributes{selection}."
    )
    drawn = by_level(drops, styles, "drop, points", tau=100 * audited.tau)
    yield document.Figure("drops", caption, drawn)
    for candidate in audited.shown:
        rows = levels[levels["attribute"] == candidate.name]
        rows = rows.drop(columns=["low", "high"]).rename(columns=SIDES)
        id_columns = ["attribute", "kind", "level", "share"]
        rows = rows.melt(id_columns, [*_LINE_STYLES], "line")
        yield _attribute_figure(
            "levels",
            candidate,
            "accuracy in distribution (solid) and out of distribution (dashed) by level; "
            "cross-fitted.",
            by_level(rows, _LINE_STYLES, "accuracy, %"),
        )


def _flips(page: AuditData) -> Blocks:
    """Yield a figure of pairs of images for each shown attribute with examples."""
    audited = page.audited
    network = audited.networks[0]
    for candidate in audited.shown:
        if candidate.name in audited.examples:
            yield _attribute_figure(
                "flips",
                candidate,
                "pairs of images of one class. Above: the value agrees with the class and "
                f"{network} is right; below: the value disagrees and {network} is wrong. The most "
                "confident errors, each with the image that shares most other attributes.",
                flips_figure(audited, candidate.name),
            )


def _likelihood(page: AuditData) -> Blocks:
    """Yield a figure of probabilities for each shown attribute, and the table of means."""
    audited = page.audited
    for candidate in audited.shown:
        yield _attribute_figure(
            "likelihood",
            candidate,
            "images by the probability of their right class at the extreme level "
            f"({candidate.kind}); dots are means. The histograms agree if a network does not use "
            "the attribute.",
            likelihood_figure(audited, candidate),
        )
    yield likelihood_table(audited)


def _groups(page: AuditData) -> Blocks:
    """Yield the table of accuracy by class and value for each shown attribute."""
    for candidate in page.audited.shown:
        yield groups(page.audited, candidate)


SECTIONS = (
    document.SectionMaker(
        "found", "Findings", lambda page: [document.Text(page.sentences)]
    ),
    document.SectionMaker(
        "ranked", "Attributes by drop in accuracy", lambda page: [page.ranking]
    ),
    document.SectionMaker("curves", "By level", _by_level),
    document.SectionMaker("flips", "Pairs of images with flipped answers", _flips),
    document.SectionMaker("likelihood", "Probability of the right class", _likelihood),
    document.SectionMaker("groups", "Group by group", _groups),
    document.SectionMaker(
        "caveats", "Caveats", lambda page: [document.Text(page.caveats)]
    ),
)
