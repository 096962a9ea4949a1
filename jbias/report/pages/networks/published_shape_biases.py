"""Reader of published shape biases of networks and humans, and a table with measured networks.

All shape biases are for the 1,280 cue conflicts of Geirhos et al., ICLR 2019. A CSV file in this
folder has the published shape biases: counts of decisions that were published image by image, and
rounded numbers from papers. `python -m studies.published_shape_biases` writes the file and names
its sources.
"""

import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from jbias.measures import decisions
from jbias.report import tables

FILE = pathlib.Path(__file__).parent / "published_shape_biases.csv"
IMAGES = 1280
PEOPLE = "people (10)"
HERE = "measured here"  # Source of the networks of the page.
_CAPTION = (
    f"Networks of this page (bold, {HERE}) and published shape biases of people and of other "
    "networks on Geirhos' cue conflicts; no other number of this page is from these. Counted: "
    "from decisions published image by image, with Wilson's 95 % interval (none for people, ten "
    "of whom saw the same images); printed: as rounded in the paper. Like people: error "
    "consistency with ten people on these images; in the line of people, among them."
)


def read() -> pd.DataFrame:
    """Return a frame with one row per network, and one row for humans, by increasing shape bias.

    Columns: network, training, shape_bias (a fraction), source, licence and url; with published
    decisions also shape (number of shape decisions), either (number of shape and texture
    decisions), shape_bias_lower, shape_bias_upper and error_consistency. The row for humans has no
    interval: all ten observers saw the same images, so their decisions are not independent.
    """
    frame = pd.read_csv(FILE)
    has_interval = (frame["either"] > 0) & (frame["network"] != PEOPLE)
    ends = []
    for count, n, known in zip(
        frame["shape"], frame["either"], has_interval, strict=True
    ):
        unknown = (math.nan, math.nan)
        ends.append(decisions.wilson_interval(count, n) if known else unknown)
    frame["shape_bias_lower"], frame["shape_bias_upper"] = zip(*ends, strict=True)
    shares = frame["shape"] / frame["either"]
    frame["shape_bias"] = shares.fillna(frame.pop("printed"))
    return frame.sort_values("shape_bias", kind="stable", ignore_index=True)


def comparison_table(rows: Sequence[Mapping[str, Any]]) -> tables.Table | None:
    """Return a table of measured and published shape biases; None without `rows`.

    One row per network and a row for humans, by increasing shape bias; names of measured networks
    are bold. rows: measured networks, with the columns of `read`.
    """
    if not rows:
        return None
    frame = pd.concat([pd.DataFrame(rows).assign(source=HERE), read()])
    frame = frame.sort_values("shape_bias", kind="stable", ignore_index=True)
    columns = tables.columns("network training rule source licence", training="trained")
    columns["shape_bias"] = tables.Column(
        "shape bias", _bias, ("either", "shape_bias_lower", "shape_bias_upper")
    )
    columns |= tables.columns(
        "either:d error_consistency:.3", either="of", error_consistency="like people"
    )
    return tables.from_rows(
        "shape_bias_published",
        _CAPTION,
        frame,
        columns,
        bold=lambda row: ["network"] if row["source"] == HERE else [],
    )


def _bias(
    bias: float, either: float | None, low: float | None, high: float | None
) -> str:
    """Return a shape bias as text with its interval: 3 digits, or 2 digits if from a paper.

    bias, low, high: from 0 to 1. either: number of shape and texture decisions, None or 0 for a
    number from a paper. low, high: ends of the interval; None or NaN: no interval.
    """
    return tables.interval(tables.digits(3 if either else 2))(bias, low, high)
