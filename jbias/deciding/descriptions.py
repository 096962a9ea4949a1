"""Looks and actions as lines of text."""

import math

from jbias.deciding import comparison as comparison_lib
from jbias.deciding.comparison import Comparison, End, Limits, Look


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
    unit = _points_of_unit(comparison)
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
    return line + f"undecided, {_describe_outlook(forecast)}"


def verdict(comparison: Comparison, method_look: Look) -> str:
    """Return the decision of a comparison in words, such as "decided: sagnet is higher"."""
    result, settings = method_look.result, comparison.settings
    if result.decision is None:
        return "undecided"
    if result.decision == "equivalent":
        words = f"equivalent, the difference is below {settings.points:g} points"
    else:
        name = method_look.method if result.decision == "a" else comparison.reference
        verb = "wins more pairs" if settings.quantity == "wins" else "is higher"
        words = f"{name} {verb}"
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
        return f"{line}a seed of every pair diverged; lower config.optim.rate"
    forecast = _describe_outlook(end.outlook)
    if end.reason == "seeds":
        return (
            f"{line}the limit of {limits.max_seeds} seeds is reached, {forecast}; raise "
            "--max-seeds to continue"
        )
    return (
        f"{line}it can hardly be decided within {limits.max_seeds} seeds (chance "
        f"{100 * end.outlook.chance:.1f} %), {forecast}; raise --max-seeds to continue"
    )


def _points_of_unit(comparison: Comparison) -> float:
    """Return the number of percentage points in the unit of the differences."""
    low, high = comparison.settings.bounds
    return 100.0 if comparison.settings.quantity == "wins" else 100 / (high - low)


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
    return f" ({count} left out, diverged)" if count else ""
