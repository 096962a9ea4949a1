"""The files of an analysis, and its lines in a terminal."""

import math
import pathlib
from collections.abc import Iterator

import pandas as pd

from jbias.calibrating import analysis as analysis_lib
from jbias.calibrating import curves as curves_lib
from jbias.calibrating import measure_results
from jbias.runtime import files

CURVES = "curves.json"
_MAX_FLAGGED = 10  # Printed lines on flagged networks; flagged.csv has all.


def write(
    analysis: analysis_lib.Analysis, folder: pathlib.Path, *, has_curves: bool = True
) -> list[pathlib.Path]:
    """Write a CSV file per table, and curves.json; return their paths.

    has_curves: False for hidden networks, whose curves were fixed before. Tables without rows have
    no file, and the file of an earlier analysis is removed. Numbers have six significant digits.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, table in analysis.tables().items():
        path = folder / f"{name}.csv"
        if table.empty:
            path.unlink(missing_ok=True)
            continue
        files.write(path, table.to_csv(index=False, float_format="%.6g"))
        paths.append(path)
    if has_curves:
        path = folder / CURVES
        files.write(path, curves_lib.to_json(analysis.curves))
        paths.append(path)
    return paths


def in_order(measures: pd.DataFrame) -> pd.DataFrame:
    """Return the table of measures by verdict, then by error; an error of none is last."""
    return measures.sort_values(
        ["verdict", "error"],
        key=lambda column: (
            column.map(measure_results.VERDICTS.index)
            if column.name == "verdict"
            else column
        ),
        na_position="last",
        kind="stable",
    )


def lines(analysis: analysis_lib.Analysis) -> Iterator[str]:
    """Yield a line per measure, `in_order`, then lines on failing and flagged networks."""
    yield f"{analysis.curves.description}:"
    rows = in_order(analysis.measures)
    width = max(map(len, rows["title"]), default=0)
    for row in rows.to_dict("records"):
        yield f"  {row['title']:{width}}  {_numbers(row)}"
    failing = analysis.planted[analysis.planted["family"] == "none"]
    if len(failing):
        counts = f"{failing['flagged'].sum():,} of {failing['networks'].sum():,}"
        yield f"failing networks that are flagged: {counts}"
    num_flagged = len(analysis.flagged)
    if num_flagged:
        yield f"not ranked, {num_flagged:,} flagged networks:"
    for row in analysis.flagged.head(_MAX_FLAGGED).to_dict("records"):
        yield f"  {row['network']}: {row['flags']}: {row['flag_texts']}"
    if num_flagged > _MAX_FLAGGED:
        yield f"  and {num_flagged - _MAX_FLAGGED:,} more in flagged.csv"


def _numbers(row: dict) -> str:
    """Return verdict, rho, error, images needed and shortcuts of a measure as text."""
    words = [f"{row['verdict']}: rho {_text(row['rho'])}"]
    if not math.isnan(row["rho_lower"]):
        words[-1] += f" [{_text(row['rho_lower'])}, {_text(row['rho_upper'])}]"
    words.append(f"error {_text(row['error'])} of {row['networks']:,} networks")
    if row["images_needed"] == row["images_needed"] and row["images_needed"]:
        words.append(f"from {row['images_needed']:,.0f} images")
    if row["lies"]:
        words.append(f"wrong under a shortcut of {row['lies']}")
    return ", ".join(words)


def _text(value: float) -> str:
    """Return a number with two decimals; "none" for NaN."""
    return "none" if math.isnan(value) else f"{value:.2f}"
