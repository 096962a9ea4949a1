"""Blocks on comparisons that chose the number of seeds: state, figure and the commands to continue.

See `recorded_comparisons`.
"""

import math

import numpy as np
import pandas as pd

from jbias.report import document, plots, tables
from jbias.report.pages.benchmark import (
    benchmark_scores,
    recorded_comparisons,
    until_decided_section,
)

_MAX_PANELS = 12


def blocks(study: benchmark_scores.BenchmarkScores) -> document.Blocks:
    """Yield sentences, the figure and the commands; nothing without such comparisons."""
    recorded = study.recorded
    if not recorded:
        return
    yield document.Text(
        "These seeds were trained until a comparison was decided (comparison.json). Its settings "
        "hold here, also where the options of this report differ:"
    )
    yield document.Text([recorded_comparisons.describe(item) for item in recorded])
    yield _table(study)
    yield document.Figure(
        "recorded_comparisons",
        "Difference of the two algorithms after each pair of seeds, in percentage points, with the "
        "settings that the comparison was started with: the estimate, and the interval that is "
        "valid at every look.",
        lambda: _draw(study),
    )
    commands = _commands_text(study)
    if commands:
        yield document.Folded("Commands that continue these comparisons", commands)


def _table(study: benchmark_scores.BenchmarkScores) -> tables.Table | None:
    """Return the table of comparisons, one row each.

    Files have the settings, the difference with its interval (in the unit of the scores; of wins, a
    difference of shares) and the command, too.
    """
    rows = []
    for item in study.recorded:
        settings, look, result = item.settings, item.look, item.look.result
        winners = {"a": look.method, "b": item.plan.reference}
        further_seeds = item.outlook.pairs if item.outlook else math.nan
        rows.append(
            {
                "folder": item.folder,
                "metric": settings.metric,
                "dataset": settings.dataset,
                "first": look.method,
                "second": item.plan.reference,
                "selection": settings.selection,
                "level": item.plan.level,
                "points": settings.points,
                "quantity": settings.quantity,
                "lowest_score": settings.bounds[0],
                "highest_score": settings.bounds[1],
                "pairs": len(look.scores),
                "left_out": look.num_diverged,
                "difference": result.difference.estimate[-1],
                "low": result.difference.lower[-1],
                "high": result.difference.upper[-1],
                "evalue": result.evalues[-1],
                "decision": winners.get(result.decision, result.decision),
                "decided_after": result.stopped_at,
                "further_seeds": further_seeds,
                "more_than_500_seeds": math.isinf(further_seeds),
                "command": item.command,
            }
        )
    data = pd.DataFrame(rows)
    columns = tables.columns(
        "metric dataset first second pairs:d left_out:d evalue decision decided_after:d",
        left_out="pairs left out",
        evalue="e-value",
        decision="higher",
        decided_after="decided after",
    )
    columns["evalue"] = tables.Column("e-value", "{:.3g}".format)
    caption = (
        "Comparisons that chose the number of seeds. e-value: evidence against equal means, or equal "
        "shares of wins. Higher: the algorithm with the higher mean, or with more wins, if decided."
    )
    shown = data.astype({"decided_after": float})
    return tables.from_rows(
        "recorded_comparisons", caption, shown, columns, data=data, in_results=True
    )


def _draw(study: benchmark_scores.BenchmarkScores) -> plots.Figure:
    """Return the figure of the confidence sequences of the first comparisons."""
    return until_decided_section.draw(
        [_comparison(item) for item in study.recorded[:_MAX_PANELS]], study
    )


def _comparison(
    item: recorded_comparisons.Recorded,
) -> until_decided_section.Comparison:
    """Return the scores and settings of a comparison, as the figure needs them."""
    settings, look = item.settings, item.look
    is_share = settings.quantity == "wins" or settings.bounds[1] <= 1
    return until_decided_section.Comparison(
        metric=settings.metric,
        dataset=settings.dataset,
        first=look.method,
        second=item.plan.reference,
        a=np.array(look.scores),
        b=np.array(look.reference_scores),
        left_out=look.num_diverged,
        level=item.plan.level,
        points=settings.points,
        bounds=settings.bounds,
        quantity=settings.quantity,
        unit=benchmark_scores.Unit(scale=100 if is_share else 1, digits=1, name="%"),
    )


def _commands_text(study: benchmark_scores.BenchmarkScores) -> str:
    """Return the commands with a comment above each; "" if there are no open comparisons."""
    entries = []
    for item in study.recorded:
        if item.is_decided:
            continue
        comment = f"# {item.look.method} and {item.plan.reference}, {item.subject}"
        if item.command:
            entries.append(f"{comment}\n{item.command}")
        elif item.outlook and math.isinf(item.outlook.pairs):
            entries.append(
                f"{comment}: more than 500 further seeds would probably be needed"
            )
        else:
            kind = "jbias sweep run" if item.is_search else "jbias train"
            entries.append(
                f"{comment}: continue with its {kind} command, with a higher --max-seeds and "
                f"--workdir={item.folder}"
            )
    if not entries:
        return ""
    intro = (
        "# Each command adds seeds to the same comparison. Another folder, or another setting\n"
        "# after the scores were seen, would start a new one, and the error would add up."
    )
    return "\n\n".join([intro, *entries])
