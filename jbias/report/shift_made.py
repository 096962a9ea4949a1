"""What the networks of a report of shifts were made of: runs, and the tables they realise."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jbias.report import document, shift_read, tables


def runs(cells: Sequence[shift_read.Cell]) -> tables.Table | None:
    """Gives a row a run."""
    rows = []
    for cell in cells:
        for run in cell.runs:
            device = run.provenance.get("device") or {}
            code = run.provenance.get("code") or {}
            rows.append(
                {
                    "workdir": run.workdir,
                    **cell.recipe._asdict(),
                    "setting": cell.recipe.told or None,
                    "attribute": cell.attribute,
                    "level": cell.level,
                    "seeds": ", ".join(map(str, run.seeds)),
                    "ended": "yes" if run.finished else "no",
                    "device": device.get("kind"),
                    "commit": code.get("commit"),
                    "images": cell.images or None,
                }
            )
    words = ("workdir", "model", "algorithm", "data", "setting", "attribute", "level")
    words += ("seeds", "ended", "device", "commit")
    return tables.from_rows(
        "runs",
        "The runs, with the seeds that have records, and images trained on.",
        rows,
        {name: (name if i else "Workdir", str) for i, name in enumerate(words)}
        | {"images": ("images", tables.whole)},
    )


def realised(cells: Sequence[shift_read.Cell]) -> Iterator[dict[str, Any]]:
    """Gives the tables of counts of each data, attribute, level and options, each once.

    As provenance has them, by set: rows are classes, columns values.
    """
    told = set()
    for cell in cells:
        options = tuple(sorted(cell.options.items()))
        key = (cell.recipe.data, cell.attribute, cell.level, options)
        found = _tables(cell)
        if key in told or not found:
            continue
        told.add(key)
        yield {
            "data": cell.recipe.data,
            "attribute": cell.attribute,
            "level": cell.level,
            "options": dict(options),
            "sets": found,
        }


def _tables(cell: shift_read.Cell) -> dict[str, dict[str, Any]]:
    found = {}
    for name, told in (cell.runs[0].provenance.get("data") or {}).items():
        told = told if isinstance(told, Mapping) else {}
        counted = told.get("tables") or {}
        column = next((x for x in ("attribute", cell.attribute) if x in counted), None)
        if column is not None:
            found[name] = {
                "classes": told.get("names") or [],
                "values": (told.get("values") or {}).get(column) or [],
                "counts": counted[column],
            }
    return found


def folded(found: Sequence[Mapping[str, Any]]) -> Iterator[document.Folded]:
    """Gives the tables of each level, folded."""
    for one in found:
        yield document.Folded(_title(one), _text(one["sets"]))


def _title(one: Mapping[str, Any]) -> str:
    options = ", ".join(f"{k}={v}" for k, v in one["options"].items() if v)
    ending = f" ({options})" if options else ""
    return f"Images of {one['data']} by {one['attribute']}, {one['level']}{ending}"


def _text(sets: Mapping[str, Mapping[str, Any]]) -> str:
    """Gives counts in columns, each set under its name."""
    blocks = []
    for name, told in sets.items():
        counts = told["counts"]
        values = [str(x) for x in told["values"]] or list(
            map(str, range(len(counts[0])))
        )
        classes = [str(x) for x in told["classes"]] or list(
            map(str, range(len(counts)))
        )
        rows = [("", *values, "all")]
        for label, row in zip(classes, counts, strict=False):
            rows.append((label, *map(str, row), str(sum(row))))
        totals = [sum(column) for column in zip(*counts, strict=True)]
        rows.append(("all", *map(str, totals), str(sum(totals))))
        wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.rjust(n) for cell, n in zip(row, wide, strict=True))
            for row in rows
        ]
        blocks.append("\n".join([name, *lines]))
    return "\n\n".join(blocks)


def caveats(cells: Sequence[shift_read.Cell]) -> Iterator[str]:
    """Says what of the runs limits what can be told."""
    single = sorted({cell.recipe.label for cell in cells if len(cell.seeds) < 2})
    if single:
        yield (
            f"One seed alone does not show how seeds vary: {shift_read.few(single)}. "
            "Intervals and tests of it are of test images only. Train more, such as with "
            "seeds=5 after the colon of --config."
        )
    sizes = [n for cell in cells for n in cell.tested]
    least = math.ceil(100 / (2 * math.sqrt(min(sizes)))) if sizes else 0
    if sizes and least >= 3:
        yield (
            f"The smallest test set has {min(sizes):,} images: an accuracy on it is not "
            f"known better than to about {least} points (a standard error at 50 %)."
        )
    yield from _uncontrolled(cells)
    if any(not cell.images for cell in cells):
        yield "Of some runs provenance does not say how many images they trained on."


def _uncontrolled(cells: Sequence[shift_read.Cell]) -> Iterator[str]:
    """Names kinds that were run without their control."""
    there: dict[tuple, set[float]] = {}
    for cell in cells:
        if cell.kind:
            there.setdefault((*cell.candidate, cell.kind), set()).add(cell.share)
    lost = [
        f"{kind} by {attribute} of {recipe.label}"
        for (recipe, attribute, kind), shares in there.items()
        if shift_read.CONTROL not in shares
    ]
    if lost:
        yield (
            f"Without its control (M0, C0, J0), a drop is not only of the shift: "
            f"{shift_read.few(lost)}. Their drops are compared with 0."
        )
