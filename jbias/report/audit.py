"""The page of an audit: which attributes hurt a model, how much, and which way."""

import dataclasses
import itertools
import pathlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, UInt8

from jbias.evals import attribute_audit, attribute_reliance
from jbias.report import document, image_sheets, plots, tables
from jbias.runtime import outputs

KINDS = {
    "marginal": "accuracy depends on the value, whatever the class",
    "conditional": "the value is taken for a cue to the class",
    "joint": "accuracy depends on the value, and the value is taken for a cue",
}
points = tables.percent
SIDES = {"within": "in distribution", "outside": "out of distribution"}
_NAMED = 6  # Classes or values that a sentence names.
_MOST = 8  # Attributes in one figure.
_CELLS = 400  # Of an attribute whose groups the page shows.
_ROWS = ("agrees", "disagrees")  # Of images that flip.
_SECTIONS = {
    "found": "What was found",
    "ranked": "Which attributes hurt",
    "curves": "By level",
    "flips": "Images that flip",
    "likelihood": "How probable the right class is",
    "groups": "Group by group",
    "caveats": "What to keep in mind",
}
_CAPTIONS = {
    "alone": "Each model is tested by itself; p-values are adjusted within a model alone.",
    "models": "Each model with its bugs, and the first attribute of its ranking.",
    "ranked": "Attributes by how much they hurt. Drop: accuracy in distribution minus out of it "
    "at the extreme level, in points, [95 % interval]; {kinds}: under this kind of shift; left "
    "within others: the drop where the bug before it that explains most is held fixed. Bold: bugs.",
    "groups": "{name}: accuracy in % (images) of each class and value. Shaded: where they agree "
    "({kind}). Bold: the worst group. Mean over groups: {mean} %.",
    "means": "Mean probability of the right class, and of the decided one, at the extreme level.",
    "drops": "Drops in points by level, with 95 % intervals, of the table's first attributes{most}.",
    "levels": "{name}: accuracy in (line) and out of distribution (dashes) by level; cross-fitted.",
    "likelihood": "{name}: images by the probability of their right class at the extreme level "
    "({kind}); dots are means. Both are alike where a network does not rely on it.",
    "flips": "{name}: images of one class, right where the value agrees with it (above) and "
    "wrong where not (below), with what {network} decided; the most wrong, each with the image "
    "that shares most other attributes.",
    "harder": " Such images may be harder for any network: give one that was trained on all "
    "values alike as --reference.",
}
# Some are of networks beyond others, of one network, and of several.
_CAVEATS = """\
Drop: accuracy in distribution minus out of it at the extreme level (M4, C6, J4); it is 0 at the \
control (M0, C0, J0). Test sets are without end: each is a table P(value | class) of \
jbias.data.shifts times the accuracies of the cells; classes weigh alike. As a given network does \
not change with the level, curves are straight lines. What is set against what is chosen on one \
half of each cell's images and tried on the other, then the other way round; the drop is the mean.
All drops are beyond those of {beyond}, networks of reference: what is as hard for them is no \
drop. Accuracies and probabilities are of the audited networks alone.
Intervals: 95 %, percentiles of {draws:,} draws of {drawn} within cells and halves, for what was \
chosen; where nothing depends on the attribute they are somewhat too narrow, the test is not. p: \
one-sided, that the drop is at most {tau} points, by both halves' standard errors and {error}; \
Holm over {tests} tests, attributes times kinds.
One network: nothing is known of how another, trained alike, would do.
Bug: a kind whose interval lies above {tau} points, with Holm's p at most {alpha:g}, and with that \
much left within each bug ranked before it. The kind is the one with the larger drop in relation \
to the accuracy in distribution; joint only where the other two are there as well.
Bug of some networks: the same by images alone, and networks differ.
A drop says that accuracy differs between these images, not why: an attribute may stand for \
another that is no column, and what is alike in all images is not seen.
{n:,} images; the smallest class and value tested has {least}.
Chance: 1 / the number of classes, which no answers that ignore the images exceed in the mean over \
classes; with Wilson's interval of 95 %.
"""
_LINES = zip(SIDES.values(), plots.COLOURS, ("-", "--"))
_LOOKS = {side: dict(color=colour, linestyle=line) for side, colour, line in _LINES}
Candidate = attribute_audit.Candidate


class Examples(NamedTuple):
    """Pairs of images that flip, of the first network."""

    pairs: Sequence[attribute_audit.Pair]
    agrees: UInt8[np.ndarray, "p h w 3"]
    disagrees: UInt8[np.ndarray, "p h w 3"]


@dataclasses.dataclass(frozen=True, eq=False)
class Audited:
    """One model, of one network or several alike, on one set of images."""

    model: str
    networks: tuple[str, ...]
    # Networks beyond whose drops the drops are; mostly none.
    reference: tuple[str, ...]
    dataset: str
    classes: tuple[str, ...]  # Of the set.
    answers: tuple[str, ...]  # What networks decide among.
    index: Int[np.ndarray, "n"]  # The images' numbers in the set.
    label: Int[np.ndarray, "n"]
    columns: Mapping[str, Int[np.ndarray, "n"]]  # The candidates.
    values: Mapping[str, tuple[str, ...]]
    prediction: Int[np.ndarray, "s n"]  # In `answers`.
    correct: Bool[np.ndarray, "s n"]
    likelihood: Float[np.ndarray, "s n"]
    confidence: Float[np.ndarray, "s n"]
    candidates: Sequence[Candidate]
    examples: Mapping[str, Examples]  # By candidate.
    notes: Sequence[str]  # What was left out, and why.
    tau: float
    alpha: float
    draws: int
    seed: int

    @property
    def accuracy(self) -> float:
        return float(self.correct.mean())

    @property
    def chance(self) -> attribute_audit.ChanceTest:
        """The accuracy of all networks beside chance."""
        return attribute_audit.compare_with_chance(
            self.correct, self.label, tau=self.tau
        )

    @property
    def guessing(self) -> list[str]:
        """The networks that are not above chance."""
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
        return [one for one in self.candidates if one.kind]

    @property
    def bugs(self) -> list[Candidate]:
        return [one for one in self.candidates if one.verdict == "bug"]

    @property
    def kinds(self) -> list[str]:
        """The kinds of shift that were asked for; none where nothing could be tested."""
        return [kind for one in self.tested[:1] for kind in one.result.kinds]

    @property
    def shown(self) -> list[Candidate]:
        """Those that figures are drawn of: what hurts, else the first."""
        hurt = [one for one in self.tested if one.verdict in ("bug", "some")]
        return (hurt or self.tested[:1])[:4]

    def names(self, one: Candidate) -> tuple[list[str], list[str]]:
        """Classes and values that take part."""
        classes = [self.classes[k] for k in one.result.classes]
        return classes, [self.values[one.name][a] for a in one.result.values]

    def weights(self, one: Candidate) -> dict[str, np.ndarray]:
        """What images weigh on sets of the extreme level, in and out of distribution."""
        column = self.columns[one.name]
        both = attribute_audit.shift_weights(one.result, one.kind, self.label, column)
        return dict(zip(SIDES, both, strict=True))


def write(
    every: Sequence[Audited],
    out: pathlib.Path,
    *,
    told: Sequence[str] = (),
    figures: Collection[str] = ("svg",),
) -> list[str]:
    """Write a page for each model, and one over several; return lines that sum it up.

    told: what else a reader must know, such as which networks were left out. figures: forms
    of the figures' files, as `document.write` takes them.
    """
    reports = [report(found, told) for found in every]
    if len(every) == 1:
        return [*reports[0].answer, document.write(reports[0], out, figures=figures)]
    names = [_plain(found.model) for found in every]
    ends = [f"-{i}" if names.count(one) > 1 else "" for i, one in enumerate(names, 1)]
    folders = [f"models/{name}{end}" for name, end in zip(names, ends)]
    pages = {
        folder: document.render(one, figures=figures)
        for folder, one in zip(folders, reports)
    }
    over = document.render(_over(every, folders, told), figures=figures)
    outputs.check_report_files(out, over)
    for folder, files in pages.items():
        outputs.check_report_files(out / folder, files)
    written = document.save(over, out)  # First: it says whose the folder is.
    for folder, files in pages.items():
        document.save(files, out / folder)
    return [*(one.answer[0] for one in reports), written]


def report(found: Audited, told: Sequence[str]) -> document.Report:
    """Gives the page of one model."""
    shown, pairs, ranks = curves(found), flips(found), ranked(found)
    words, caveats = list(findings(found)), [*told, *made_of(found)]
    asked = "model networks reference dataset accuracy tau alpha draws seed"
    results = {key: getattr(found, key) for key in asked.split()}
    results |= {"images": len(found.label), "bugs": [one.name for one in found.bugs]}
    results["chance"] = {**found.chance._asdict(), "guessing": found.guessing}
    results |= {"findings": words, "ranked": ranks.data, "curves": shown}
    facts = {"Networks": len(found.networks), "Images": f"{len(found.label):,}"}
    facts |= {"Attributes": len(found.candidates)}
    facts |= {"Accuracy": f"{points(found.accuracy)} %"}
    return document.Report(
        title=f"jbias audit: {found.model}",
        heading=found.model,
        subtitle=f"Audit on {found.dataset}, jbias report",
        answer=answer(found),
        facts=facts | {"Threshold": f"{points(found.tau)} points"},
        sections=document.sections(
            _SECTIONS,
            [("found", document.Text(words)), ("ranked", ranks)],
            figures(found) if found.tested else (),
            [("likelihood", likelihood_table(found))],
            [("groups", groups(found, one)) for one in found.shown],
            [("caveats", document.Text(caveats))],
        ),
        results=results | {"flips": pairs, "caveats": caveats},
        frames={"curves": shown, "cells": cells(found), "flips": pairs},
    )


def _over(
    every: Sequence[Audited], folders: Sequence[str], told: Sequence[str]
) -> document.Report:
    """The page over several models: what hurts each, and what comes first in its ranking."""
    head = ("model", "networks", "accuracy, %", "bugs", "first", "kind", "drop, points")
    rows, trees = [], []
    for found, folder in zip(every, folders, strict=True):
        bugs = [one.name for one in found.bugs]
        chance = found.chance._asdict()
        trees.append(dict(model=found.model, folder=folder, bugs=bugs, chance=chance))
        first = [(one.name, one.kind, interval(one)) for one in found.tested[:1]]
        row = (found.model, str(len(found.networks)), points(found.accuracy))
        rows.append((*row, ", ".join(bugs) or "none", *(first or ["–" * 3])[0]))
    data = pd.DataFrame(rows, columns=head)
    table = tables.Table("models", _CAPTIONS["models"], head, tuple(rows), data)
    links = document.Links({x["model"]: f"{x['folder']}/index.html" for x in trees})
    at_chance = [found.model for found in every if chance_sentence(found)]
    alone = _CAPTIONS["alone"]
    if at_chance:
        alone += f" Near chance, so that little can be said: {_some(at_chance)}."
    guilty = sum(bool(found.bugs) for found in every)
    return document.Report(
        title="jbias audit",
        heading=f"{len(every)} audited models",
        subtitle=f"Audit on {every[0].dataset}, jbias report",
        answer=(f"{guilty} of {len(every)} models have a bug.", alone),
        facts={"Models": len(every), "Attributes": len(every[0].candidates)},
        sections=[
            document.Section("models", "Models", [table, links]),
            document.Section("caveats", _SECTIONS["caveats"], [document.Text(told)]),
        ],
        results={"models": trees, "missing": list(told)},
        source="Each model has a page of its own.",
    )


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)


def interval(one: Candidate) -> str:
    """The drop of the kind that is told, with its interval, in points."""
    extreme = one.result.kinds[one.kind].extreme
    return tables.with_ends(one.drop, extreme.low, extreme.high)


def answer(found: Audited) -> tuple[str, str]:
    """The finding in one sentence, and what it rests on."""
    of = f"{_count(found.networks, 'network')}, {len(found.label):,} images of {found.dataset}"
    tested = f"{_count(found.candidates, 'attribute')} ({len(found.tested)} tested)"
    basis = f"{of}, {tested}, accuracy {points(found.accuracy)} %"
    if found.reference:
        beside = _count(found.reference, "network")
        basis += f"; drops beyond those of {beside} of reference"
    if not found.tested:
        lacks = "Nothing could be tested: see below which images are missing."
        return _after_chance(found, lacks), f"{basis}."
    first = found.tested[0]
    told = f"of no attribute a drop of more than {points(found.tau)} points is sure"
    told += f"; the largest drop is that of {first.name}, {interval(first)}"
    bugs = [f"{one.name} ({one.kind}, {interval(one)} points)" for one in found.bugs]
    if bugs:
        told = f"{tables.join(bugs)} hurt{'s' * (len(bugs) == 1)}"
    elif first.verdict == "some":
        most = points(max(first.result.kinds[first.kind].each))
        told = f"{first.name} hurts some networks, by up to {most} points"
        told += f" ({first.kind}), and others less or not at all; see below"
    return _after_chance(found, f"{found.model}: {told}."), f"{basis}."


def _after_chance(found: Audited, headline: str) -> str:
    """Return the headline, after the sentence on chance where there is one."""
    sentence = chance_sentence(found)
    return f"{found.model}: {sentence} {headline}" if sentence else headline


def chance_sentence(found: Audited) -> str:
    """Return that the networks guess, or nearly so; "" where they do not.

    Networks that are led by an attribute may be right as seldom as by guessing, and yet
    do not guess: where an attribute hurts, the sentence says so.
    """
    test, guessing = found.chance, found.guessing
    several = len(found.networks) > 1
    hurting = [one.name for one in found.candidates if one.verdict in ("bug", "some")]
    if test.verdict == "above":
        if not guessing or not several:
            return ""
        return (
            f"{len(guessing)} of {len(found.networks)} networks guess "
            f"({_some(guessing)}), and count below as the others do; leave them out."
        )
    who, guess, rely = "the network", "guesses", "it relies"
    if several:
        who, guess, rely = "the networks", "guess", "they rely"
    counts = np.bincount(found.label)
    is_balanced = len({*counts[counts > 0].tolist()}) == 1
    accuracy = "accuracy" if is_balanced else "accuracy averaged over the classes"
    value, chance, low, high = (f"{100 * x:.3g}" for x in test[:4])
    numbers = f"{accuracy} is {value} %, chance is {chance} %, 95 % interval"
    numbers += f" [{low}, {high}]"
    if hurting:
        but = f"but does not guess: it follows {tables.join(hurting)}"
        if several:
            but = f"but do not guess: they follow {tables.join(hurting)}"
        near = "hardly more" if test.verdict == "near" else "no more"
        verb = "are" if several else "is"
        return f"{numbers}: {who} {verb} right {near} often than by chance, {but}."
    below = f"the ranking below says nothing about what {rely} on"
    if test.verdict == "near":
        less = f"less than {points(found.tau)} points above chance"
        return f"{numbers}: {less}; the ranking below says little about what {rely} on."
    if test.verdict == "below":
        order = "is below chance, as where classes are in another order (see --classes)"
        return f"{numbers}, which {order}; {below}."
    return f"{numbers}: {who} {guess}; {below}."


def _count(things: Sequence, name: str) -> str:
    return f"{len(things)} {name}{'s' * (len(things) != 1)}"


def direction(found: Audited, one: Candidate) -> str:
    """Which values go with which classes, or do better than which."""
    chosen = one.result.kinds[one.kind].chosen
    classes, values = map(np.array, found.names(one))
    agrees = chosen.contrast() > 1e-12
    if one.kind == "marginal":
        worse = chosen.contrast()[0] < -1e-12
        return f"{_some(values[agrees[0]])} better than {_some(values[worse])}"
    groups = [np.flatnonzero(chosen.groups == group) for group in (0, 1)]
    both = [f"{_some(values[agrees[k[0]]])} with {_some(classes[k])}" for k in groups]
    return "; ".join(both)


def _some(names: Sequence[str]) -> str:
    if len(names) <= _NAMED:
        return ", ".join(names)
    return f"{', '.join(names[: _NAMED - 1])} and {len(names) - _NAMED + 1} more"


def links(found: Audited, one: Candidate, count: int = 4) -> str:
    """Classes and values whose accuracy is most above what both let expect."""
    accuracy, (classes, values) = one.result.accuracy, found.names(one)
    apart = accuracy - accuracy.mean(0) - accuracy.mean(1, keepdims=True)
    apart = apart + accuracy.mean()
    most = np.argsort(-apart, axis=None)[:count]
    pairs = zip(*np.unravel_index(most, apart.shape), strict=True)
    told = [f"{values[a]} with {classes[k]} (+{points(apart[k, a])})" for k, a in pairs]
    return ", ".join(told)


def findings(found: Audited) -> Iterator[str]:
    """A sentence for each bug, and for what goes with it."""
    for one in found.bugs:
        extreme = one.result.kinds[one.kind].extreme
        more = f" Most above what class and value let expect: {links(found, one)}."
        if one.kind == "marginal":
            more = "" if found.reference else _CAPTIONS["harder"]
        told = f"{one.name}: {one.kind}, {KINDS[one.kind]}: {direction(found, one)}."
        told += f" Accuracy is {points(extreme.within)} % where they agree and"
        yield f"{told} {points(extreme.outside)} % where not.{more}"
    for one in found.candidates:
        if one.verdict == "goes with":
            left = f"no images tell it apart from {one.other}"
            if rest := one.remains:
                drop = tables.with_ends(rest.drop, rest.low, rest.high)
                left = f"of its drop {drop} points are left where {one.other} is held fixed"
            yield f"{one.name} is not blamed: {left}."
        if one.verdict == "some":
            each = tables.join([*map(points, sorted(one.result.kinds[one.kind].each))])
            told = f"{one.name}: {one.kind}, {direction(found, one)}. Networks differ, their"
            told += f" drops are {each} points, so that little is said of others"
            yield f"{told} trained alike; --apart audits each alone."


def made_of(found: Audited) -> Iterator[str]:
    """What the numbers are, and are not."""
    several = len(found.networks) > 1
    drawn = "networks (Student's t, as they are few) and of " * several + "images"
    error = "the deviation between networks" if several else "for this network alone"
    facts = dict(draws=found.draws, drawn=drawn, error=error, alpha=found.alpha)
    facts |= dict(tau=points(found.tau), n=len(found.label))
    facts["beyond"] = _some(found.reference)
    facts["tests"] = sum(len(x.pvalues) for x in found.candidates)
    facts["least"] = min((int(x.result.count.min()) for x in found.tested), default=0)
    wanted = [True, found.reference, True, not several, True, several, True, True, True]
    told = itertools.compress(_CAVEATS.splitlines(), wanted)
    yield from (line.format(**facts) for line in told)
    yield from found.notes
    lacks = {x.name: x.result.missing for x in found.candidates}
    yield from (f"{name}: {missing}." for name, missing in lacks.items() if missing)


def ranked(found: Audited) -> tables.Table:
    """Attributes by how much they hurt."""
    rows = []
    for number, one in enumerate(found.candidates, start=1):
        row = dict(rank=number, attribute=one.name, values=len(found.values[one.name]))
        row |= dict(verdict=one.verdict, kind=one.kind, other=one.other)
        words = {"goes with": f"goes with {one.other}", "some": "bug of some networks"}
        row["_verdict"] = words.get(one.verdict, one.verdict)
        rows.append(row | (_numbers(found, one) if one.kind else {}))
    heads = dict(_verdict="verdict", drop="drop, points", p_holm="p, Holm")
    keys = "attribute _verdict kind values:d drop:%[] p_holm:p"
    columns = tables.columns(keys, **heads)
    columns["kind"] = "kind", lambda kind: kind or "–"
    leading = [*columns][:5]
    columns |= {f"{kind}_drop": (kind, points) for kind in found.kinds}
    arrow = lambda within, outside: f"{points(within)} → {points(outside)}"
    columns |= {"within": ("in → out, %", arrow, "outside")}
    columns |= {"_left": ("left within others", str)}
    caption = _CAPTIONS["ranked"].format(kinds=tables.join(found.kinds))
    more = dict(bold=lambda row: leading if row["verdict"] == "bug" else ())
    more["data"] = pd.DataFrame(rows).filter(regex="^[^_]")
    return tables.from_rows("ranked", caption, rows, columns, **more)


def _numbers(found: Audited, one: Candidate) -> dict[str, object]:
    """What the table has of a tested attribute."""
    kinds, rest, p = one.result.kinds, one.remains, one.pvalues
    extreme = kinds[one.kind].extreme
    row = dict(drop=one.drop, drop_low=extreme.low, drop_high=extreme.high)
    row["p_holm"] = p[one.kind]
    for kind, here in kinds.items():
        each = dict(drop=here.drop, low=here.extreme.low, high=here.extreme.high)
        each |= dict(relative=here.relative, area=here.area, p_holm=p[kind])
        row |= {f"{kind}_{key}": number for key, number in each.items()}
    row |= dict(within=extreme.within, outside=extreme.outside)
    row |= dict(remaining=rest and rest.drop, remaining_low=rest and rest.low)
    row |= dict(remaining_high=rest and rest.high, direction=direction(found, one))
    left = f"{points(rest.drop) if rest else 'not told apart'} ({one.other})"
    return row | {"_left": left if one.other else "–"}


def curves(found: Audited) -> pd.DataFrame:
    """Every level of every attribute."""
    rows = []
    for one in found.candidates:
        for kind, here in one.result.kinds.items():
            rows += [(one.name, kind, *point) for point in here.curve]
    columns = ["attribute", "kind", *attribute_reliance.Point._fields]
    return pd.DataFrame(rows, columns=columns)


def cells(found: Audited) -> pd.DataFrame:
    """Every class and value that has a part, of every attribute."""
    rows = []
    for one in found.candidates:
        (classes, values), accuracy = found.names(one), one.result.accuracy
        for (k, a), n in np.ndenumerate(one.result.count):
            rows.append((one.name, classes[k], values[a], n, accuracy[k, a]))
    columns = ["attribute", "class", "value", "images", "accuracy"]
    return pd.DataFrame(rows, columns=columns)


def groups(found: Audited, one: Candidate) -> tables.Table | None:
    """Accuracy of each class and value, deep where they agree; None of very many."""
    share, count = one.result.accuracy, one.result.count
    if count.size > _CELLS:
        return None
    classes, values = found.names(one)
    contrast = one.result.kinds[one.kind].chosen.contrast()
    worst, place = np.unravel_index(share.argmin(), share.shape)
    data = pd.DataFrame(share, columns=tables.apart(values, ["class"]))
    data.insert(0, "class", classes)
    about = dict(name=one.name, kind=one.kind, mean=points(share.mean()))
    told = np.vectorize("{:.0f} ({})".format, otypes=[object])(100 * share, count)
    return tables.Table(
        name=_plain(f"groups_{one.name}"),
        caption=_CAPTIONS["groups"].format(**about),
        head=("class", *values),
        rows=tuple((name, *row) for name, row in zip(classes, told, strict=True)),
        data=data,
        bold=frozenset({(int(worst), int(place) + 1)}),
        shade={(k, a + 1): 0.35 for k, a in np.argwhere(contrast > 1e-12).tolist()},
    )


def likelihood_table(found: Audited) -> tables.Table | None:
    """Means of probabilities in and out of distribution."""
    columns, three = tables.columns("attribute kind"), tables.digits(3)
    for side, where in zip(SIDES, ("in", "out"), strict=True):
        columns[f"likelihood_{side}"] = f"right, {where}", three
        columns[f"confidence_{side}"] = f"decided, {where}", three
    rows = []
    for one in found.tested:
        rows.append({"attribute": one.name, "kind": one.kind})
        for side, weight in found.weights(one).items():
            for of in ("likelihood", "confidence"):
                mean = (getattr(found, of) * weight).sum(1).mean()
                rows[-1][f"{of}_{side}"] = float(mean)
    return tables.from_rows("likelihood", _CAPTIONS["means"], rows, columns)


def flips(found: Audited) -> pd.DataFrame:
    """The pairs that are drawn."""
    rows = []
    for name, shown in found.examples.items():
        for pair in shown.pairs:
            row = {"attribute": name, "class": found.classes[found.label[pair.agrees]]}
            for side in _ROWS:
                i = getattr(pair, side)
                row |= {
                    f"{side}_image": int(found.index[i]),
                    f"{side}_value": found.values[name][found.columns[name][i]],
                    f"{side}_decided": found.answers[found.prediction[0, i]],
                    f"{side}_confidence": float(found.confidence[0, i]),
                    f"{side}_likelihood": float(found.likelihood[0, i]),
                }
            rows.append(row | {"shared": pair.shared})
    return pd.DataFrame(rows)


def figures(found: Audited) -> Iterator[tuple[str, document.Figure]]:
    """Gives sections and figures of a model with tested attributes."""
    every, count = curves(found), len(found.tested)
    looks = plots.styles(x.name for x in found.tested[:_MOST])
    drops = every[every["attribute"].isin([*looks])]
    drops = drops.assign(line=drops["attribute"], value=drops["drop"])
    most = f", {_MOST} of {count}" if count > _MOST else ""
    fig = by_level(drops, looks, "drop, points", tau=100 * found.tau)
    yield "curves", document.Figure("drops", _CAPTIONS["drops"].format(most=most), fig)
    for one in found.shown:
        about = dict(name=one.name, kind=one.kind, network=found.networks[0])
        levels = every[every["attribute"] == one.name].drop(columns=["low", "high"])
        named = ["attribute", "kind", "level", "share"]
        levels = levels.rename(columns=SIDES).melt(named, [*_LOOKS], "line")
        fig = by_level(levels, _LOOKS, "accuracy, %")
        yield "curves", _figure("levels", fig, about)
        yield "likelihood", _figure("likelihood", likelihood_figure(found, one), about)
        if one.name in found.examples:
            yield "flips", _figure("flips", flips_figure(found, one.name), about)


def _figure(kind: str, drawn, about: Mapping[str, str]) -> document.Figure:
    told = _CAPTIONS[kind].format(**about)
    return document.Figure(_plain(f"{kind}_{about['name']}"), told, drawn)


def by_level(
    frame: pd.DataFrame, looks: Mapping, label: str, *, tau: float | None = None
) -> plots.Figure:
    """Draws lines over the levels of each kind of shift, and a threshold in points.

    frame: kind, share, level, line, value and, if any, low and high, of 1.
    """
    threshold = dict(color=plots.INK, linewidth=0.7, linestyle=(0, (2, 2)))
    columns = [name for name in ("value", "low", "high") if name in frame]
    frame = frame.rename(columns={"kind": "panel", "share": "x"})
    frame = frame.assign(**{name: 100 * frame[name] for name in columns})

    def finish(axes, rows: pd.DataFrame) -> None:
        axes.set_xticks(rows["x"].unique(), rows["level"].unique())
        if tau is None:
            axes.set_ylim(0, 102)
        else:
            axes.axhline(tau, **threshold)

    looks = {**looks} | ({} if tau is None else {f"{tau:g} points": threshold})
    cells = dict(across=frame["panel"].nunique(), sharey=True)
    return plots.curves(frame, looks, ("", label), finish=finish, **cells)


def likelihood_figure(found: Audited, one: Candidate) -> plots.Figure:
    """Images by the probability of their right class, in and out of distribution."""
    values, networks = found.likelihood.ravel(), len(found.likelihood)
    weights = (np.tile(weight, networks) for weight in found.weights(one).values())
    panel = {side: (values, weight) for side, weight in zip(SIDES.values(), weights)}
    return plots.histograms({"": panel}, _LOOKS, "probability of the right class")


def flips_figure(found: Audited, name: str) -> plots.Figure:
    """Pairs side by side; below each what is decided, and how probable that is."""
    shown, pairs = found.examples[name], flips(found)
    pictures, notes = {}, {}
    pairs = pairs[pairs["attribute"] == name].to_dict("records")
    for row, *both in zip(pairs, shown.agrees, shown.disagrees, strict=True):
        right = column = row["class"]
        while column in pictures:  # A class may have several.
            column += " "
        both_said = [(row[f"{s}_decided"], row[f"{s}_confidence"]) for s in _ROWS]
        one, other = (f"{decided} {sure:.2f}" for decided, sure in both_said)
        missed = f"{right} {row['disagrees_likelihood']:.2f}"
        pictures[column] = both
        told = (row["agrees_value"], one), (row["disagrees_value"], missed, other)
        notes[column] = [*map(image_sheets.Note, told, (True, False))]
    title = f"{name} flips the answer"
    return image_sheets.draw(pictures, _ROWS, notes=notes, title=title, across=8)
