"""Accuracy on corrupted images: of each corruption and severity, and over all.

Source: Hendrycks and Dietterich, ICLR 2019, https://arxiv.org/abs/1903.12261.
"""

import collections
from collections.abc import Mapping

from jbias import evals
from jbias.data import corruptions
from jbias.evals import decisions
from jbias.evals.decisions import Number

COMMON = tuple(
    name for name, one in corruptions.CORRUPTIONS.items() if not one.extra
)  # The fifteen of the paper's tables.


def numbers(
    found: Mapping[str, decisions.Decisions],
    *,
    errors: Mapping[str, float] | None = None,
) -> list[Number]:
    """Accuracies of conditions "fog-3", of corruptions "fog", and over all, "".

    "accuracy" is that of a condition; "corruption_accuracy" the mean over severities of
    a corruption, and over corruptions and severities; "corruption_accuracy_15" that over
    the common fifteen. Means over all but frost are called "..._without_frost". Those over
    neither all nor these, as over the common fifteen alone, or over some of the severities,
    are called "..._part". What follows a space in a condition's name, such as a rule of
    decision, is kept apart.

    errors: of a reference, by corruption, each its mean error over the severities that
      are measured here. With it, "mean_corruption_error" is the mean over its corruptions
      of the error over the reference's; all of them must have been measured.

    Raises ValueError where a condition is no corruption and severity, or some
    corruption lacks a severity that another has.
    """
    by_rule = collections.defaultdict(dict)
    for condition, decided in found.items():
        shown, _, rule = condition.partition(" ")
        by_rule[rule][_parsed(shown)] = decided
    return [
        number._replace(condition=f"{number.condition} {rule}".strip())
        for rule, cells in by_rule.items()
        for number in _of(cells, errors)
    ]


def _parsed(condition: str) -> tuple[str, int]:
    name, _, severity = condition.rpartition("-")
    known = {**corruptions.CORRUPTIONS, **corruptions.BAR}
    if name not in known or severity not in map(str, corruptions.SEVERITIES):
        raise ValueError(
            "corruptions: a condition must be a corruption and a severity, such as"
            f" 'fog-3', got {condition!r}; name it so"
        )
    return name, int(severity)


def _of(
    cells: Mapping[tuple[str, int], decisions.Decisions],
    errors: Mapping[str, float] | None,
) -> list[Number]:
    each = {}
    for (name, severity), decided in cells.items():
        (share,) = evals.MEASURES["accuracy"](decided)
        each[name, severity] = share._replace(condition=f"{name}-{severity}")
    names = tuple(dict.fromkeys(name for name, _ in each))
    severities = tuple(dict.fromkeys(severity for _, severity in each))
    absent = [
        f"{name}-{severity}"
        for name in names
        for severity in severities
        if (name, severity) not in each
    ]
    if absent:
        raise ValueError(
            "corruptions: all corruptions must have the same severities, got no"
            f" {', '.join(absent)}; measure them, or leave their corruption out"
        )

    def mean(metric: str, of: tuple[str, ...], condition: str = "") -> Number:
        counted = [each[name, severity] for name in of for severity in severities]
        value = sum(one.value for one in counted) / len(counted)
        right, n = sum(one.count for one in counted), sum(one.n for one in counted)
        return Number(metric, value, right, n, condition)

    some = set(severities) != set(corruptions.SEVERITIES)
    part = "_part" * some
    means = [mean(f"corruption_accuracy{part}", (name,), name) for name in names]
    means.append(mean("corruption_accuracy" + (part or _lacking(names)), names))
    common = tuple(name for name in COMMON if name in names)
    if set(COMMON) - {"frost"} <= set(common) and not some:
        frost = "" if "frost" in common else "_without_frost"
        means.append(mean(f"corruption_accuracy_15{frost}", common))
    if errors is not None:
        wrong = {one.condition: 1 - one.value for one in means if one.condition}
        means.append(_compared(wrong, errors, sum(one.n for one in each.values())))
    return [*each.values(), *means]


def _lacking(names: tuple[str, ...]) -> str:
    """What a mean over corruptions that are not all of a family is called besides."""
    named = set(names)
    if named in (set(corruptions.CORRUPTIONS), set(corruptions.BAR)):
        return ""
    return (
        "_without_frost"
        if named | {"frost"} == set(corruptions.CORRUPTIONS)
        else "_part"
    )


def _compared(
    wrong: Mapping[str, float], errors: Mapping[str, float], n: int
) -> Number:
    absent = [name for name in errors if name not in wrong]
    if absent or not errors or min(errors.values()) <= 0:
        raise ValueError(
            "corruptions: errors must be above 0 and of corruptions that are measured,"
            f" got {dict(errors)}; not measured are {', '.join(absent) or 'none'}"
        )
    ratios = [wrong[name] / error for name, error in errors.items()]
    return Number("mean_corruption_error", sum(ratios) / len(ratios), None, n)
