"""Looks and actions as lines of text."""

import math
from collections.abc import Mapping
from typing import Any

from jbias import config as jc
from jbias.deciding import comparison as comparison_lib
from jbias.deciding.comparison import Comparison, End, Limits, Look
from jbias.runtime import messages


def describe_look(
    comparison: Comparison, method_look: Look, limits: Limits | None = None
) -> str:
    """Return one line: seeds, difference with its interval in points, verdict and forecast.

    limits: None leaves the forecast out.
    """
    result = method_look.result
    line = (
        f"comparison after {method_look.num_seeds} seeds: {method_look.method} - "
        f"{comparison.reference} "
    )
    if not result.looks:
        return f"{line}has no score yet{_diverged(method_look)}"
    unit = comparison_lib.points_of_unit(comparison.settings)
    estimate, low, high = (
        unit * float(values[-1])
        for values in (
            result.difference.estimate,
            result.difference.lower,
            result.difference.upper,
        )
    )
    noun = "points of wins" if comparison.settings.quantity == "wins" else "points"
    line += f"{estimate:+.1f} {noun}, {100 * (1 - comparison.level):.3g} % interval "
    line += f"[{low:+.1f}, {high:+.1f}]{_diverged(method_look)}, "
    if result.decision is not None or limits is None:
        return line + verdict(comparison, method_look)
    forecast = comparison_lib.outlook(comparison, method_look, limits)
    line += f"undecided, {_describe_outlook(forecast)}"
    if forecast and method_look.num_seeds + forecast.pairs > limits.max_seeds:
        return f"{line}; more than --max-seeds={limits.max_seeds}"
    likely = _likely_decision(comparison, method_look)
    return f"{line}, probably: {likely}" if forecast and likely else line


def verdict(comparison: Comparison, method_look: Look) -> str:
    """Return the decision of a comparison in words, such as "decided: sagnet is higher"."""
    result, settings = method_look.result, comparison.settings
    if result.decision is None:
        return "undecided"
    if result.decision == "equivalent":
        words = f"equivalent, the difference is below {settings.points:g} points"
    else:
        name = method_look.method if result.decision == "a" else comparison.reference
        words = f"{name} {_verb(settings)}"
    return f"decided after {result.stopped_at} pairs: {words}"


def describe_end(comparison: Comparison, method: str, end: End, limits: Limits) -> str:
    """Return one line with the reason why an open comparison gets no further seeds."""
    line = f"{method} - {comparison.reference}: not decided: "
    if end.reason == "hours":
        return (
            f"{line}the limit of {limits.max_hours:g} device hours is reached; raise --max-hours "
            "to continue"
        )
    if end.reason == "diverged":
        return (
            f"{line}of every pair a seed diverged or has no {comparison.settings.metric}; lower "
            "config.optim.rate, or train for more epochs"
        )
    if end.reason == "seeds":
        line += f"the limit of {limits.max_seeds} seeds is reached, "
    else:
        line += f"it can hardly be decided within {limits.max_seeds} seeds, "
    line += _describe_outlook(end.outlook)
    if end.outlook is None or math.isinf(end.outlook.pairs):
        return f"{line}; raise --max-seeds to continue"
    num_seeds = comparison_lib.look(comparison)[method].num_seeds
    return f"{line}; to continue: --max-seeds={num_seeds + end.outlook.pairs:.0f}"


def describe_start(comparison: Comparison, limits: Limits) -> list[str]:
    """Return lines on what is compared, and on equivalence that needs more than the limit of seeds."""
    settings, count = comparison.settings, len(comparison.methods)
    who = comparison.methods[0] if count == 1 else f"{count} methods"
    lines = [
        f"{settings.metric} on {settings.dataset}: {who} against {comparison.reference}, level "
        + f"{comparison.level:.3g}, at most {limits.max_seeds} seeds"
    ]
    least = comparison_lib.least_equivalent_pairs(comparison)
    if least and least > limits.max_seeds:
        lines.append(
            f"equivalence within {settings.points:g} points needs at least {least} seeds, and mostly "
            f"many more: with --max-seeds={limits.max_seeds} only a difference can be decided"
        )
    return lines


def describe_differences(
    configs: Mapping[str, Mapping[str, Any]], comparison: Comparison
) -> list[str]:
    """Return a line for each method with the entries beyond the algorithm that the reference differs in.

    configs: by name, as in `state_file.State`. Methods without such entries have no line.
    """
    lines = []
    reference = _beyond_algorithm(configs[comparison.reference])
    for method in comparison.methods:
        differing = jc.diff(_beyond_algorithm(configs[method]), reference)
        if differing:
            lines.append(
                f"{method} and {comparison.reference} differ beyond the algorithm: "
                f"{messages.join_differences(differing, most=6)}; the decision is about all of it"
            )
    return lines


def _beyond_algorithm(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a config that are not the algorithm's, its name or code."""
    excluded = ("algo", "variant", "own_code", "name")
    return {key: value for key, value in config.items() if key not in excluded}


def _likely_decision(comparison: Comparison, method_look: Look) -> str:
    """Return the decision that the difference so far points to; "" if it is 0."""
    settings = comparison.settings
    difference = comparison_lib.points_of_unit(settings) * float(
        method_look.result.difference.estimate[-1]
    )
    if settings.points is not None and abs(difference) < settings.points:
        return "equivalent"
    if difference == 0:
        return ""
    name = method_look.method if difference > 0 else comparison.reference
    return f"{name} {_verb(settings)}"


def _verb(settings: comparison_lib.Settings) -> str:
    """Return the words after the name of the better method."""
    return "wins more pairs" if settings.quantity == "wins" else "is higher"


def _describe_outlook(forecast: comparison_lib.Outlook | None) -> str:
    """Return a forecast in words, such as "about 12 more seeds would decide it (80 %)"."""
    if forecast is None:
        return "too few seeds for a forecast"
    if math.isinf(forecast.pairs):
        return "more than 500 further seeds would be needed"
    plural = "" if forecast.pairs == 1 else "s"
    return f"about {forecast.pairs:.0f} more seed{plural} would decide it (80 %)"


def _diverged(method_look: Look) -> str:
    """Return a remark on pairs that are left out; "" if there are none."""
    count = method_look.num_diverged
    return f" ({count} left out, diverged or undefined)" if count else ""
