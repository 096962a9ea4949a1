"""The page of an audit: which attributes hurt a model, how much, and which way."""

import dataclasses
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, UInt8
from matplotlib import figure as mpl_figure
from matplotlib import lines

from jbias.evals import attribute_audit, attribute_reliance
from jbias.report import document, image_sheets, plots, tables

KINDS = {
    "marginal": "accuracy depends on the value, whatever the class",
    "conditional": "the value is taken for a cue to the class",
    "joint": "accuracy depends on the value, and the value is taken for a cue",
}
points = tables.percent
SIDES = {"within": "in distribution", "outside": "out of distribution"}
BINS = 20  # Of probabilities.
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
_LOOKS = {
    "within": dict(color=plots.COLOURS[0], linestyle="-"),
    "outside": dict(color=plots.COLOURS[1], linestyle="--"),
}


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
    candidates: Sequence[attribute_audit.Candidate]
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
    def tested(self) -> list[attribute_audit.Candidate]:
        return [one for one in self.candidates if one.kind]

    @property
    def bugs(self) -> list[attribute_audit.Candidate]:
        return [one for one in self.candidates if one.verdict == "bug"]

    @property
    def kinds(self) -> list[str]:
        """The kinds of shift that were asked for; none where nothing could be tested."""
        return [kind for one in self.tested[:1] for kind in one.result.kinds]

    @property
    def shown(self) -> list[attribute_audit.Candidate]:
        """Those that figures are drawn of: what hurts, else the first."""
        hurt = [one for one in self.tested if one.verdict in ("bug", "some")]
        return (hurt or self.tested[:1])[:4]

    def names(self, one: attribute_audit.Candidate) -> tuple[list[str], list[str]]:
        """Classes and values that take part."""
        values = self.values[one.name]
        return (
            [self.classes[k] for k in one.result.classes],
            [values[a] for a in one.result.values],
        )

    def weights(self, one: attribute_audit.Candidate) -> dict[str, np.ndarray]:
        """What images weigh on sets of the extreme level, in and out of distribution."""
        column = self.columns[one.name]
        both = attribute_audit.shift_weights(one.result, one.kind, self.label, column)
        return dict(zip(SIDES, both, strict=True))


def write(
    every: Sequence[Audited], out: pathlib.Path, told: Sequence[str] = ()
) -> list[str]:
    """Writes a page for each model, and one over several; gives lines that sum it up.

    told: what else a reader must know, such as which networks were left out.
    """
    reports = [report(found, told) for found in every]
    if len(every) == 1:
        return [*reports[0].answer, document.write(reports[0], out)]
    names = [_plain(found.model) for found in every]
    folders = [
        f"models/{name}" if names.count(name) == 1 else f"models/{name}-{number}"
        for number, name in enumerate(names, start=1)
    ]
    pages = {folder: document.render(one) for folder, one in zip(folders, reports)}
    over = document.render(_over(every, folders, told))
    for folder, files in pages.items():
        document.save(files, out / folder)
    return [*(one.answer[0] for one in reports), document.save(over, out)]


def report(found: Audited, told: Sequence[str]) -> document.Report:
    """Gives the page of one model."""
    shown, pairs, ranks = curves(found), flips(found), ranked(found)
    words, caveats = list(findings(found)), [*told, *made_of(found)]
    asked = "model networks reference dataset accuracy tau alpha draws seed"
    return document.Report(
        title=f"jbias audit: {found.model}",
        heading=found.model,
        subtitle=f"Audit on {found.dataset}, jbias report",
        answer=answer(found),
        facts={
            "Networks": len(found.networks),
            "Images": f"{len(found.label):,}",
            "Attributes": len(found.candidates),
            "Accuracy": f"{points(found.accuracy)} %",
            "Threshold": f"{points(found.tau)} points",
        },
        sections=document.sections(
            _SECTIONS,
            [("found", document.Text(words)), ("ranked", ranks)],
            figures(found) if found.tested else (),
            [("likelihood", likelihood_table(found))],
            [("groups", groups(found, one)) for one in found.shown],
            [("caveats", document.Text(caveats))],
        ),
        results={
            **{key: getattr(found, key) for key in asked.split()},
            "images": len(found.label),
            "bugs": [one.name for one in found.bugs],
            "findings": words,
            "ranked": ranks.data,
            "curves": shown,
            "flips": pairs,
            "caveats": caveats,
        },
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
        trees.append(dict(model=found.model, folder=folder, bugs=bugs))
        first = [(one.name, one.kind, interval(one)) for one in found.tested[:1]]
        row = (found.model, str(len(found.networks)), points(found.accuracy))
        rows.append((*row, ", ".join(bugs) or "none", *(first or ["–" * 3])[0]))
    models = tables.Table(
        name="models",
        caption="Each model with its bugs, and the attribute that is first in its ranking,"
        " with its drop at the extreme level, [95 % interval].",
        head=head,
        rows=tuple(rows),
        data=pd.DataFrame(rows, columns=head),
    )
    pages = {tree["model"]: f"{tree['folder']}/index.html" for tree in trees}
    return document.Report(
        title="jbias audit",
        heading=f"{len(every)} audited models",
        subtitle=f"Audit on {every[0].dataset}, jbias report",
        answer=(
            f"{sum(bool(found.bugs) for found in every)} of {len(every)} models have a bug.",
            "Each model is tested by itself; p-values are adjusted within a model alone.",
        ),
        facts={"Models": len(every), "Attributes": len(every[0].candidates)},
        sections=[
            document.Section("models", "Models", [models, document.Links(pages)]),
            document.Section("caveats", _SECTIONS["caveats"], [document.Text(told)]),
        ],
        results={"models": trees, "missing": list(told)},
        source="Each model has a page of its own.",
    )


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)


def interval(one: attribute_audit.Candidate) -> str:
    """The drop of the kind that is told, with its interval, in points."""
    extreme = one.result.kinds[one.kind].extreme
    return tables.with_ends(one.drop, extreme.low, extreme.high)


def answer(found: Audited) -> tuple[str, str]:
    """The finding in one sentence, and what it rests on."""
    basis = (
        f"{_count(found.networks, 'network')}, {len(found.label):,} images of"
        f" {found.dataset}, {_count(found.candidates, 'attribute')}"
        f" ({len(found.tested)} tested), accuracy {points(found.accuracy)} %"
    )
    if found.reference:
        beside = _count(found.reference, "network")
        basis += f"; drops beyond those of {beside} of reference"
    if not found.tested:
        lacks = "Nothing could be tested: see below which images are missing."
        return lacks, f"{basis}."
    first = found.tested[0]
    most = points(max(first.result.kinds[first.kind].each))
    told = (
        f"of no attribute a drop of more than {points(found.tau)} points is sure; the"
        f" largest drop is that of {first.name}, {interval(first)}"
    )
    bugs = [f"{one.name} ({one.kind}, {interval(one)} points)" for one in found.bugs]
    if bugs:
        told = f"{tables.join(bugs)} hurt{'s' * (len(bugs) == 1)}"
    elif first.verdict == "some":
        told = (
            f"{first.name} hurts some networks, by up to {most} points ({first.kind}), and"
            " others less or not at all; see below"
        )
    return f"{found.model}: {told}.", f"{basis}."


def _count(things: Sequence, name: str) -> str:
    return f"{len(things)} {name}{'s' * (len(things) != 1)}"


def direction(found: Audited, one: attribute_audit.Candidate) -> str:
    """Which values go with which classes, or do better than which."""
    chosen = one.result.kinds[one.kind].chosen
    classes, values = map(np.array, found.names(one))
    contrast = chosen.contrast()
    if one.kind == "marginal":
        better, worse = (values[sign * contrast[0] > 1e-12] for sign in (1, -1))
        return f"{_some(better)} better than {_some(worse)}"
    groups = [np.flatnonzero(chosen.groups == group) for group in (0, 1)]
    return "; ".join(
        f"{_some(values[contrast[mine[0]] > 1e-12])} with {_some(classes[mine])}"
        for mine in groups
    )


def _some(names: Sequence[str]) -> str:
    if len(names) <= _NAMED:
        return ", ".join(names)
    return f"{', '.join(names[: _NAMED - 1])} and {len(names) - _NAMED + 1} more"


def links(found: Audited, one: attribute_audit.Candidate, count: int = 4) -> str:
    """Classes and values whose accuracy is most above what both let expect."""
    accuracy, (classes, values) = one.result.accuracy, found.names(one)
    apart = accuracy - accuracy.mean(0) - accuracy.mean(1, keepdims=True)
    apart = apart + accuracy.mean()
    most = np.argsort(-apart, axis=None)[:count]
    return ", ".join(
        f"{values[a]} with {classes[k]} (+{points(apart[k, a])})"
        for k, a in zip(*np.unravel_index(most, apart.shape), strict=True)
    )


def findings(found: Audited) -> Iterator[str]:
    """A sentence for each bug, and for what goes with it."""
    for one in found.bugs:
        extreme = one.result.kinds[one.kind].extreme
        more = f" Most above what class and value let expect: {links(found, one)}."
        if one.kind == "marginal" and found.reference:
            more = ""
        elif one.kind == "marginal":
            more = (
                " Such images may be harder for any network: give one that was trained on"
                " all values alike as --reference."
            )
        yield (
            f"{one.name}: {one.kind}, {KINDS[one.kind]}: {direction(found, one)}."
            f" Accuracy is {points(extreme.within)} % where they agree and"
            f" {points(extreme.outside)} % where not.{more}"
        )
    for one in found.candidates:
        if one.verdict == "goes with":
            left = f"no images tell it apart from {one.other}"
            if rest := one.remains:
                drop = tables.with_ends(rest.drop, rest.low, rest.high)
                left = f"of its drop {drop} points are left where {one.other} is held fixed"
            yield f"{one.name} is not blamed: {left}."
        if one.verdict == "some":
            each = sorted(one.result.kinds[one.kind].each)
            yield (
                f"{one.name}: {one.kind}, {direction(found, one)}. Networks differ, their"
                f" drops are {tables.join([*map(points, each)])} points, so that little is"
                " said of others trained alike; --apart audits each alone."
            )


def made_of(found: Audited) -> Iterator[str]:
    """What the numbers are, and are not."""
    several, tau = len(found.networks) > 1, points(found.tau)
    yield (
        "Drop: accuracy in distribution minus out of it at the extreme level (M4, C6, J4);"
        " it is 0 at the control (M0, C0, J0). Test sets are without end: each is a table"
        " P(value | class) of jbias.data.shifts times the accuracies of the cells; classes"
        " weigh alike. As a given network does not change with the level, curves are"
        " straight lines. What is set against what is chosen on one half of each cell's"
        " images and tried on the other, then the other way round; the drop is the mean."
    )
    if found.reference:
        yield (
            f"All drops are beyond those of {_some(found.reference)}, networks of"
            " reference: what is as hard for them is no drop. Accuracies and probabilities"
            " are of the audited networks alone."
        )
    drawn, error = "images", "for this network alone"
    if several:
        drawn = "networks (Student's t, as they are few) and of images"
        error = "the deviation between networks"
    yield (
        f"Intervals: 95 %, percentiles of {found.draws:,} draws of {drawn} within cells and"
        " halves, for what was chosen; where nothing depends on the attribute they are"
        f" somewhat too narrow, the test is not. p: one-sided, that the drop is at most {tau}"
        f" points, by both halves' standard errors and {error}; Holm over"
        f" {sum(len(one.pvalues) for one in found.candidates)} tests, attributes times kinds."
    )
    if not several:
        yield "One network: nothing is known of how another, trained alike, would do."
    yield (
        f"Bug: a kind whose interval lies above {tau} points, with Holm's p at most"
        f" {found.alpha:g}, and with that much left within each bug ranked before it. The"
        " kind is the one with the larger drop in relation to the accuracy in distribution;"
        " joint only where the other two are there as well."
    )
    if several:
        yield "Bug of some networks: the same by images alone, and networks differ."
    yield (
        "A drop says that accuracy differs between these images, not why: an attribute may"
        " stand for another that is no column, and what is alike in all images is not seen."
    )
    least = min((int(one.result.count.min()) for one in found.tested), default=0)
    yield f"{len(found.label):,} images; the smallest class and value tested has {least}."
    yield from found.notes
    lacks = {one.name: one.result.missing for one in found.candidates}
    yield from (f"{name}: {missing}." for name, missing in lacks.items() if missing)


def ranked(found: Audited) -> tables.Table:
    """Attributes by how much they hurt."""
    whole = {"goes with": "goes with {}", "some": "bug of some networks"}
    rows, data = [], []
    for number, one in enumerate(found.candidates, start=1):
        values = len(found.values[one.name])
        record = dict(rank=number, attribute=one.name, values=values)
        record |= dict(verdict=one.verdict, kind=one.kind, other=one.other)
        verdict = whole.get(one.verdict, one.verdict).format(one.other)
        told = ["–"] * (4 + len(found.kinds))
        if one.kind:
            told, numbers = _numbers(found, one)
            record |= numbers
        rows.append((one.name, str(values), verdict, one.kind or "–", *told))
        data.append(record)
    return tables.Table(
        name="ranked",
        caption=(
            "Attributes by how much they hurt. Drop: accuracy in distribution minus out of"
            " it at the extreme level, in points, [95 % interval];"
            f" {tables.join(found.kinds)}: the drop under this kind of shift; in → out: both"
            " accuracies; left within others: the drop where the bug ranked before it that"
            " explains most of it is held fixed. Bold: bugs."
        ),
        head=(
            *("attribute", "values", "verdict", "kind", "drop, points", "p, Holm"),
            *(*found.kinds, "in → out, %", "left within others"),
        ),
        rows=tuple(rows),
        data=pd.DataFrame(data),
        strong=frozenset((i, j) for i in range(len(found.bugs)) for j in range(5)),
        texts=4,
    )


def _numbers(
    found: Audited, one: attribute_audit.Candidate
) -> tuple[list[str], dict[str, object]]:
    """Cells of a tested attribute, and the same in full."""
    kinds, rest = one.result.kinds, one.remains
    extreme, p = kinds[one.kind].extreme, one.pvalues[one.kind]
    record = dict(drop=one.drop, drop_low=extreme.low, drop_high=extreme.high, p_holm=p)
    for kind, here in kinds.items():
        keys = ("drop", "low", "high", "relative", "area", "p_holm")
        numbers = (here.drop, here.extreme.low, here.extreme.high)
        numbers += (here.relative, here.area, one.pvalues[kind])
        record |= {f"{kind}_{key}": number for key, number in zip(keys, numbers)}
    record |= dict(within=extreme.within, outside=extreme.outside)
    for key in ("drop", "low", "high"):
        left = getattr(rest, key) if rest else None
        record[f"remaining_{key}".removesuffix("_drop")] = left
    record["direction"] = direction(found, one)
    left = f"{points(rest.drop) if rest else 'not told apart'} ({one.other})"
    accuracies = f"{points(extreme.within)} → {points(extreme.outside)}"
    told = [interval(one), tables.p_text(p)]
    told += [points(here.drop) for here in kinds.values()]
    return [*told, accuracies, left if one.other else "–"], record


def curves(found: Audited) -> pd.DataFrame:
    """Every level of every attribute."""
    rows = [
        (one.name, kind, *point)
        for one in found.candidates
        for kind, here in one.result.kinds.items()
        for point in here.curve
    ]
    columns = ["attribute", "kind", *attribute_reliance.Point._fields]
    return pd.DataFrame(rows, columns=columns)


def cells(found: Audited) -> pd.DataFrame:
    """Every class and value that has a part, of every attribute."""
    rows = []
    for one in found.candidates:
        classes, values = found.names(one)
        rows += [
            (one.name, classes[k], values[a], int(n), float(one.result.accuracy[k, a]))
            for (k, a), n in np.ndenumerate(one.result.count)
        ]
    columns = ["attribute", "class", "value", "images", "accuracy"]
    return pd.DataFrame(rows, columns=columns)


def groups(found: Audited, one: attribute_audit.Candidate) -> tables.Table | None:
    """Accuracy of each class and value, deep where they agree; None of very many."""
    share, count = one.result.accuracy, one.result.count
    if count.size > _CELLS:
        return None
    classes, values = found.names(one)
    contrast = one.result.kinds[one.kind].chosen.contrast()
    worst, place = np.unravel_index(share.argmin(), share.shape)
    data = pd.DataFrame(share, columns=tables.apart(values, ["class"]))
    data.insert(0, "class", classes)
    return tables.Table(
        name=_plain(f"groups_{one.name}"),
        caption=(
            f"{one.name}: accuracy in % (images) of each class and value. Shaded: where"
            f" they agree, as chosen on all images ({one.kind}). Bold: the worst group."
            f" Worst {points(share.min())} %, mean over groups {points(share.mean())} %."
        ),
        head=("class", *values),
        rows=tuple(
            (name, *(f"{100 * p:.0f} ({n})" for p, n in zip(*both, strict=True)))
            for name, *both in zip(classes, share, count, strict=True)
        ),
        data=data,
        strong=frozenset({(int(worst), int(place) + 1)}),
        shade={(k, a + 1): 0.35 for k, a in np.argwhere(contrast > 1e-12).tolist()},
    )


def likelihood(found: Audited, one: attribute_audit.Candidate) -> pd.DataFrame:
    """Shares of images by the probability of their right class, in and out."""
    edges = np.linspace(0, 1, BINS + 1)
    data = {"attribute": one.name, "low": edges[:-1], "high": edges[1:]}
    for side, weight in found.weights(one).items():
        each = [np.histogram(p, edges, weights=weight)[0] for p in found.likelihood]
        data[side] = np.mean(each, 0)
    return pd.DataFrame(data)


def likelihood_table(found: Audited) -> tables.Table | None:
    """Means of probabilities in and out of distribution."""
    rows, columns = [], {name: (name, str) for name in ("attribute", "kind")}
    for side, where in (("within", "in"), ("outside", "out")):
        for of, which in (("likelihood", "right"), ("confidence", "decided")):
            columns[f"{of}_{side}"] = f"{which}, {where}", tables.digits(3)
    for one in found.tested:
        rows.append({"attribute": one.name, "kind": one.kind})
        for side, weight in found.weights(one).items():
            for of in ("likelihood", "confidence"):
                mean = (getattr(found, of) * weight).sum(1).mean()
                rows[-1][f"{of}_{side}"] = float(mean)
    caption = (
        "Mean probability of the right class, and of the decided one, on sets of the"
        " extreme level, in and out of distribution."
    )
    return tables.from_rows("likelihood", caption, rows, columns)


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
    count = len(found.tested)
    most = f", {_MOST} of {count}" if count > _MOST else ""
    told = (
        "Accuracy in distribution minus out of it, in points, by level; bands: 95 %"
        f" intervals. The first attributes of the table{most}."
    )
    yield "curves", document.Figure("drops", told, drops(found))
    for one in found.shown:
        name = _plain(one.name)
        told = (
            f"{one.name}: accuracy in distribution (line) and out of it (dashes), by level;"
            " cross-fitted."
        )
        yield "curves", document.Figure(f"levels_{name}", told, levels(one))
        told = (
            f"{one.name}: images by the probability of their right class, on sets of the"
            f" extreme level of the {one.kind} shift; dots are means. A network that does"
            " not rely on it has both alike."
        )
        fig = likelihood_figure(found, one)
        yield "likelihood", document.Figure(f"likelihood_{name}", told, fig)
        if one.name in found.examples:
            told = (
                f"{one.name}: images of one class, right where the value agrees with it"
                " (above) and wrong where not (below), with the value, how probable the"
                " right class is, and what was decided. Of"
                f" {found.networks[0]}; the most wrong are chosen, each with the image that"
                " shares most other attributes."
            )
            fig = flips_figure(found, one.name)
            yield "flips", document.Figure(f"flips_{name}", told, fig)


def drops(found: Audited) -> mpl_figure.Figure:
    """Drop curves of the first attributes, a panel for each kind."""
    first = enumerate(found.tested[:_MOST])
    drawn = [(one.name, plots.style_of(i), one, "drop") for i, one in first]
    return _by_level(found.kinds, drawn, "drop, points", tau=100 * found.tau)


def levels(one: attribute_audit.Candidate) -> mpl_figure.Figure:
    """Both accuracies of one attribute, a panel for each kind."""
    drawn = [(SIDES[side], look, one, side) for side, look in _LOOKS.items()]
    return _by_level([*one.result.kinds], drawn, "accuracy, %")


def _by_level(
    kinds: Sequence[str],
    drawn: Sequence[tuple[str, Mapping, attribute_audit.Candidate, str]],
    label: str,
    *,
    tau: float | None = None,
) -> mpl_figure.Figure:
    """Draws lines: names, looks, attributes, and which number of each level; and a threshold."""
    names, looks = [name for name, *_ in drawn], [look for _, look, *_ in drawn]
    if tau is not None:
        names.append(f"{tau:g} points")
        looks.append(dict(color=plots.INK, linewidth=0.7, linestyle=(0, (2, 2))))
    fig, panels = plots.grid(len(kinds), names, across=len(kinds), sharey=True)
    for axes, kind in zip(panels.flat, kinds, strict=True):
        for _, look, one, key in drawn:
            curve = pd.DataFrame(one.result.kinds[kind].curve)
            share, low, high = curve["share"], 100 * curve["low"], 100 * curve["high"]
            axes.plot(share, 100 * curve[key], lw=1.5, marker="o", ms=2.5, **look)
            if key == "drop":
                axes.fill_between(
                    share, low, high, color=look["color"], alpha=0.12, lw=0
                )
        if tau is not None:
            axes.axhline(tau, **looks[-1])
        else:
            axes.set_ylim(0, 102)
        axes.set_title(kind, loc="left", **plots.ink(9))
        axes.set_xticks(share, curve["level"])
    plots.label_edges(panels, len(kinds), "", label)
    plots.legend_above(fig, [lines.Line2D([], [], **look) for look in looks], names)
    return plots.laid_out(fig)


def likelihood_figure(
    found: Audited, one: attribute_audit.Candidate
) -> mpl_figure.Figure:
    """Images by the probability of their right class, in and out of distribution."""
    names, data, weights = [*SIDES.values()], likelihood(found, one), found.weights(one)
    fig, ((axes,),) = plots.grid(1, names)
    for side, look in _LOOKS.items():
        shares, edges = 100 * data[side], [*data["low"], 1.0]
        axes.stairs(shares, edges, color=look["color"], alpha=0.25, fill=True, lw=0)
        axes.stairs(shares, edges, lw=1.4, **look)
        mean = (found.likelihood * weights[side]).sum(1).mean()
        where = dict(transform=axes.get_xaxis_transform(), clip_on=False)
        axes.plot(mean, 1, "o", color=look["color"], markersize=6, **where)
    axes.set_xlim(0, 1)
    axes.set_xlabel("probability of the right class", **plots.ink())
    axes.set_ylabel("images, %", **plots.ink())
    handles = [lines.Line2D([], [], **look) for look in _LOOKS.values()]
    plots.legend_above(fig, handles, names)
    return plots.laid_out(fig)


def flips_figure(found: Audited, name: str) -> mpl_figure.Figure:
    """Pairs side by side; below each what is decided, and how probable that is."""
    shown, pairs = found.examples[name], flips(found)
    pictures, notes = {}, {}
    pairs = pairs[pairs["attribute"] == name].to_dict("records")
    for row, *both in zip(pairs, shown.agrees, shown.disagrees, strict=True):
        right = column = row["class"]
        while column in pictures:  # A class may have several.
            column += " "
        decided = {
            s: f"{row[f'{s}_decided']} {row[f'{s}_confidence']:.2f}" for s in _ROWS
        }
        missed = f"{right} {row['disagrees_likelihood']:.2f}"
        pictures[column] = both
        wrong = (row["disagrees_value"], missed, decided["disagrees"])
        notes[column] = [
            image_sheets.Note((row["agrees_value"], decided["agrees"]), True),
            image_sheets.Note(wrong, False),
        ]
    title = f"{name} flips the answer"
    return image_sheets.draw(pictures, _ROWS, notes=notes, title=title, across=8)
