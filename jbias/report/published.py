"""Shape biases that others published, for measured networks to stand among.

They are of the 1,280 cue conflicts of Geirhos et al., ICLR 2019, and lie in a file beside
this one: counts of decisions that were published image by image, and numbers as a paper prints
them. `python -m benchmarks.published_shape_biases` writes it, and says from what.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from jbias.evals import decisions
from jbias.report import document, tables

FILE = document.FOLDER / "published_shape_biases.csv"
IMAGES = 1280
PEOPLE = "people (10)"
HERE = "measured here"  # In the place of a source.
_CAPTION = (
    f"Networks of this page (bold, {HERE}) among people and networks whose shape bias on "
    "Geirhos' cue conflicts others published: no other number of this page is of these. "
    "Counted: of decisions published image by image, with Wilson's interval of 95 % (none of "
    "people, ten of whom saw the same images); printed: as the paper rounds it. Like people: error consistency with ten people on these images; "
    "in people's own line that among them."
)


def read() -> pd.DataFrame:
    """Gives a row for each network, and for people, from texture to shape.

    network, training, shape_bias, source, licence and url; where decisions are published, too,
    shape of either (counts), shape_bias_lower, shape_bias_upper and error_consistency. People
    have no interval: the ten saw the same images, so their decisions are not independent.
    """
    frame = pd.read_csv(FILE)
    known = (frame["either"] > 0) & (frame["network"] != PEOPLE)
    counts = zip(frame["shape"], frame["either"], known, strict=True)
    unknown = (math.nan, math.nan)
    ends = [decisions.wilson_interval(a, n) if one else unknown for a, n, one in counts]
    frame["shape_bias_lower"], frame["shape_bias_upper"] = zip(*ends, strict=True)
    shares = frame["shape"] / frame["either"]
    frame["shape_bias"] = shares.fillna(frame.pop("printed"))
    return frame.sort_values("shape_bias", kind="stable", ignore_index=True)


def beside(own: Sequence[Mapping[str, Any]]) -> tables.Table | None:
    """Gives a table of rows like those of `read`, with these among them; None of none."""
    if not own:
        return None
    frame = pd.concat([pd.DataFrame(own).assign(source=HERE), read()])
    frame = frame.sort_values("shape_bias", kind="stable", ignore_index=True)
    heads = {"training": "trained", "either": "of", "error_consistency": "like people"}
    columns = tables.columns("network training rule source licence", **heads)
    ends = ("either", "shape_bias_lower", "shape_bias_upper")
    columns |= {"shape_bias": ("shape bias", _bias, *ends)}
    columns |= tables.columns("either:d error_consistency:.3", **heads)
    more = dict(bold=lambda row: ["network"] if row["source"] == HERE else [])
    return tables.from_rows("shape_bias_published", _CAPTION, frame, columns, **more)


def _bias(bias: float, either: float | None, *ends: float | None) -> str:
    """Shows a shape bias with its interval, or as a paper rounds it."""
    return tables.interval(tables.digits(3 if either else 2))(bias, *ends)
