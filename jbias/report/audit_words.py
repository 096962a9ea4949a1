"""Sentences of an audit: what hurts, which way, and what the numbers are made of."""

from collections.abc import Iterator, Sequence

import numpy as np

from jbias.evals import attribute_audit
from jbias.report import audited, tables

KINDS = {
    "marginal": "accuracy depends on the value, whatever the class",
    "conditional": "the value is taken for a cue to the class",
    "joint": "accuracy depends on the value, and the value is taken for a cue",
}
_NAMED = 6  # Classes or values that a sentence names.


def points(value: float) -> str:
    return f"{100 * value:.1f}"


def interval(one: attribute_audit.Candidate) -> str:
    """The drop of the kind that is told, with its interval, in points."""
    extreme = one.result.kinds[one.kind].extreme
    return f"{points(one.drop)} [{points(extreme.low)}, {points(extreme.high)}]"


def verdict(one: attribute_audit.Candidate) -> str:
    """The verdict, complete in itself."""
    whole = {"goes with": f"goes with {one.other}", "some": "bug of some networks"}
    return whole.get(one.verdict, one.verdict)


def answer(found: audited.Audited) -> tuple[str, str]:
    """The finding in one sentence, and what it rests on."""
    tested = [one for one in found.candidates if one.kind]
    count = f"{len(found.candidates)} attribute{'s' * (len(found.candidates) != 1)}"
    networks = _count(found.networks)
    basis = (
        f"{networks}, {len(found.label):,} images of {found.dataset}, {count}"
        f" ({len(tested)} tested), accuracy {points(found.correct.mean())} %"
        + (
            f"; drops beyond those of {_count(found.reference)} of reference."
            if found.reference
            else "."
        )
    )
    if not tested:
        return "Nothing could be tested: see below which images are missing.", basis
    if found.bugs:
        told = [
            f"{one.name} ({one.kind}, {interval(one)} points)" for one in found.bugs
        ]
        hurt = "hurts" if len(told) == 1 else "hurt"
        return f"{found.model}: {tables.join(told)} {hurt}.", basis
    first = tested[0]
    if first.verdict == "some":
        most = points(max(first.result.kinds[first.kind].each))
        return (
            f"{found.model}: {first.name} hurts some networks, by up to {most} points"
            f" ({first.kind}), and others less or not at all; see below."
        ), basis
    return (
        f"{found.model}: of no attribute a drop of more than {points(found.tau)} points is"
        " sure;"
        f" the largest drop is that of {first.name}, {interval(first)}."
    ), basis


def _count(networks: Sequence[str]) -> str:
    return f"{len(networks)} network{'s' * (len(networks) != 1)}"


def direction(found: audited.Audited, one: attribute_audit.Candidate) -> str:
    """Which values go with which classes, or do better than which."""
    chosen = one.result.kinds[one.kind].chosen
    contrast = chosen.contrast()
    values = [found.values[one.name][a] for a in one.result.values]
    classes = [found.classes[k] for k in one.result.classes]

    def better(row) -> list[str]:
        return [name for name, w in zip(values, row, strict=True) if w > 1e-12]

    if one.kind == "marginal":
        worse = [v for v, w in zip(values, contrast[0], strict=True) if w < -1e-12]
        return f"{_some(better(contrast[0]))} better than {_some(worse)}"
    told = []
    for group in (0, 1):
        mine = np.flatnonzero(chosen.groups == group)
        names = [classes[k] for k in mine]
        told.append(f"{_some(better(contrast[mine[0]]))} with {_some(names)}")
    return "; ".join(told)


def links(
    found: audited.Audited, one: attribute_audit.Candidate, count: int = 4
) -> str:
    """Classes and values whose accuracy is most above what both let expect."""
    accuracy = one.result.accuracy
    apart = accuracy - accuracy.mean(0) - accuracy.mean(1, keepdims=True)
    apart = apart + accuracy.mean()
    order = np.argsort(-apart, axis=None)[:count]
    told = []
    for k, a in zip(*np.unravel_index(order, apart.shape), strict=True):
        value = found.values[one.name][one.result.values[a]]
        name = found.classes[one.result.classes[k]]
        told.append(f"{value} with {name} (+{points(apart[k, a])})")
    return ", ".join(told)


def findings(found: audited.Audited) -> Iterator[str]:
    """A sentence for each bug, and for what goes with it."""
    for one in found.bugs:
        extreme = one.result.kinds[one.kind].extreme
        yield (
            f"{one.name}: {one.kind}, {KINDS[one.kind]}: {direction(found, one)}."
            f" Accuracy is {points(extreme.within)} % where they agree and"
            f" {points(extreme.outside)} % where not."
            + (
                " Such images may be harder for any network: give one that was trained"
                " on all values alike as --reference."
                if one.kind == "marginal" and not found.reference
                else ""
                if one.kind == "marginal"
                else f" Most above what class and value let expect: {links(found, one)}."
            )
        )
    for one in found.candidates:
        if one.verdict == "goes with":
            rest = one.remains
            left = (
                f"of its drop {points(rest.drop)} [{points(rest.low)},"
                f" {points(rest.high)}] points are left where {one.other} is held fixed"
                if rest
                else f"no images tell it apart from {one.other}"
            )
            yield f"{one.name} is not blamed: {left}."
        if one.verdict == "some":
            each = one.result.kinds[one.kind].each
            yield (
                f"{one.name}: {one.kind}, {direction(found, one)}. Networks differ, their"
                f" drops are {tables.join(sorted(map(points, each), key=float))} points,"
                " so that little is said of others trained alike; --apart audits each"
                " alone."
            )


_MADE = (
    (
        "Drop: accuracy in distribution minus out of it at the extreme level (M4, C6, J4)"
        " less that at the control (M0, C0, J0), where it is 0. Test sets are without end:"
        " each is a table P(value | class) of jbias.data.shifts times the accuracies of the"
        " cells, classes weigh alike. A given network does not change with the level, so"
        " curves are straight lines."
    ),
    (
        "Which classes and values are set against each other is not known of a given"
        " network: it is chosen on one half of each cell's images and tried on the other, and"
        " the other way round; the drop is the mean of both."
    ),
)
_SEVERAL = "networks (Student's t, as they are few) and of images"
_KEPT = (
    "A drop says that accuracy differs between these images. What is alike in all"
    " images, or differs with an attribute that is no column, is not seen; an attribute"
    " may stand for another one that is no column."
)


def made_of(found: audited.Audited) -> Iterator[str]:
    """What the numbers are, and are not."""
    several = len(found.networks) > 1
    yield from _MADE
    if found.reference:
        yield (
            f"All drops are beyond those of {_some(found.reference)}, networks of"
            " reference, under the same tables: what is as hard for them is no drop."
            " Accuracies and probabilities are of the audited networks alone."
        )
    yield (
        f"Intervals: 95 %, percentiles of {found.draws:,} draws of"
        f" {_SEVERAL if several else 'images'} within cells and halves, the arrangement"
        " given; where nothing depends on the attribute they are somewhat too narrow, the"
        " test is not. p: one-sided, that the cross-fitted drop is at most"
        f" {points(found.tau)} points, by the mean of both halves' standard errors"
        f"{' and the deviation between networks' if several else ', for this network'};"
        f" Holm over {sum(len(one.pvalues) for one in found.candidates)} tests (attributes"
        " times kinds)."
    )
    if not several:
        yield "One network: nothing is known of how another, trained alike, would do."
    yield (
        f"Bug: a kind whose interval lies above {points(found.tau)} points, with Holm's p"
        f" at most {found.alpha:g}; and where that much is left within each bug ranked"
        " before it. The kind is the one with the larger drop in relation to the"
        " accuracy in distribution; joint only where the other two are there as well."
    )
    if several:
        yield "Bug of some networks: the same by images alone, and networks differ."
    yield _KEPT
    parts = [int(one.result.count.min()) for one in found.candidates if one.kind]
    yield (
        f"{len(found.label):,} images; the smallest class and value that has a part has"
        f" {min(parts, default=0)}."
    )
    yield from found.notes
    for one in found.candidates:
        if one.result.missing:
            yield f"{one.name}: {one.result.missing}."


def _some(names: Sequence[str]) -> str:
    names = list(names)
    if len(names) <= _NAMED:
        return ", ".join(names)
    return f"{', '.join(names[: _NAMED - 1])} and {len(names) - _NAMED + 1} more"
