"""Networks whose decisions are at chance: of these a score says nothing."""

import json
import pathlib
import re
from collections.abc import Mapping, Sequence

from jbias.deciding import comparison as comparison_lib
from jbias.deciding import seed_scores
from jbias.measures import decisions

_NUM_CLASSES = re.compile(r"over (?:the network's )?([\d,]+) classes")


def describe(
    settings: comparison_lib.Settings, folders: Mapping[str, Sequence[pathlib.Path]]
) -> list[str]:
    """Return a line for each method or reference with decisions at chance.

    folders: workdirs of the runs by name; runs that have not finished are left out.
    Shape bias is at chance if the share of decisions for the shape or the texture is not above
    2 / k with k classes; accuracy, if all methods have an accuracy that is not above 1 / k. The
    shares are means over seeds, and "not above" means that the lower end of Wilson's 95 % interval
    for the images of one network is not above. Other metrics are not checked.
    """
    lines = []
    for name, runs in folders.items():
        line = _describe(settings, name, [*filter(_has_scores, runs)])
        if line:
            lines.append(line)
    is_partly_above = settings.metric == "accuracy" and len(lines) < len(folders)
    return [] if is_partly_above else lines


def _has_scores(run: pathlib.Path) -> bool:
    """Return True for a finished run of which a seed did not diverge."""
    if not seed_scores.is_finished(run) or not any((run / "evals").glob("*.jsonl")):
        return False
    done = run / "done"
    return not done.exists() or done.read_text("utf-8").strip() != "diverged"


def _describe(
    settings: comparison_lib.Settings, name: str, runs: Sequence[pathlib.Path]
) -> str:
    """Return the line on one method; "" if its decisions are not at chance, or it is unknown."""
    is_bias = settings.metric == "shape_bias"
    if settings.metric not in ("shape_bias", "accuracy"):
        return ""
    metric = "fraction_neither" if is_bias else "accuracy"
    shares, sizes, classes = list[float](), set[int](), set[int | None]()
    for run in runs:
        rows = seed_scores.selected(run, settings)
        rows = rows[(rows["metric"] == metric) & (rows["condition"] == "")]
        rows = rows[(rows["dataset"] == settings.dataset)].dropna(subset=["value", "n"])
        shares += [1 - x if is_bias else x for x in rows["value"]]
        sizes |= {*map(int, rows["n"])}
        classes.add(_num_classes(run, settings.dataset))
    if len(sizes) != 1 or len(classes) != 1 or None in classes:
        return ""
    (n,), (num_classes,) = sizes, classes
    share = sum(shares) / len(shares)
    chance = (2 if is_bias else 1) / num_classes
    low, _ = decisions.wilson_interval(round(share * n), n)
    if chance >= 1 or low > chance:
        return ""
    quantity = "decisions for shape or texture" if is_bias else "accuracy"
    return (
        f"{name}: {quantity} at chance on {settings.dataset} ({100 * share:.1f} % with {num_classes} "
        f"classes, chance is {100 * chance:.1f} %): no claim about {settings.metric} follows; train "
        "for more epochs"
    )


def _num_classes(run: pathlib.Path, dataset: str) -> int | None:
    """Return the number of classes among which a run's networks decide; None if unknown."""
    try:
        recorded = json.loads((run / "provenance.json").read_text("utf-8"))
        match = _NUM_CLASSES.search(str(recorded["data"][dataset]["decision"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return int(match[1].replace(",", "")) if match else None
