"""Calibration curves: which reliance on shape a value of a measure stands for.

Networks whose reliance on shape against texture is known, the dial, have been measured. A curve
is the monotone least-squares fit of the dial on the value (isotonic regression), with linear
interpolation between the values of networks, and constant beyond the smallest and the largest
value. Source of the fit: Barlow et al. 1972, Statistical Inference under Order Restrictions.

The file curves.json beside this module has the curves of the published study. Without this
file, nothing is shown.
"""

import dataclasses
import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from jaxtyping import Float
from scipy import optimize

from jbias import errors
from jbias.calibrating import flags

FILE = pathlib.Path(__file__).with_name("curves.json")
VERSION = 1


@dataclasses.dataclass(frozen=True)
class Knots:
    """A piecewise linear map from values of a measure to the dial.

    values: strictly increasing. dials: monotone, one for each value.
    """

    values: tuple[float, ...]
    dials: tuple[float, ...]

    def __post_init__(self):
        values, steps = np.array(self.values), np.diff(self.dials)
        errors.check(
            len(values) == len(self.dials) > 0 and bool((np.diff(values) > 0).all()),
            "curve: values",
            "increase, with a dial for each",
            self.values,
        )
        errors.check(
            bool((steps >= 0).all() or (steps <= 0).all()),
            "curve: dials",
            "be monotone",
            self.dials,
        )

    def read(self, values: npt.ArrayLike) -> Float[np.ndarray, "n"]:
        """Return the dials of values; those of the ends for values beyond the ends."""
        return np.interp(np.asarray(values, float), self.values, self.dials)

    def contains(self, value: float) -> bool:
        """Return True for a value between the ends of the curve."""
        return self.values[0] <= value <= self.values[-1]


def fit(values: npt.ArrayLike, dials: npt.ArrayLike, *, direction: int) -> Knots:
    """Return the monotone least-squares fit of dials on values.

    direction: 1 if values rise with the dial, -1 if they fall. Equal values are one point, the
    mean of their dials, with their number as weight. Points inside a constant stretch are left out,
    as they change nothing. ValueError without values, for another direction and for a number that
    is not finite.
    """
    x, y = np.asarray(values, float), np.asarray(dials, float)
    errors.check_choice("curve: direction", direction, (1, -1))
    is_usable = x.shape == y.shape and x.size and np.isfinite([x, y]).all()
    errors.check(bool(is_usable), "curve", "have finite values, and a dial for each", x)
    points, index = np.unique(x, return_inverse=True)
    counts = np.bincount(index)
    means = np.bincount(index, weights=y) / counts
    fitted = optimize.isotonic_regression(
        means, weights=counts, increasing=direction > 0
    ).x
    is_inner = np.zeros(len(points), bool)
    is_inner[1:-1] = (fitted[1:-1] == fitted[:-2]) & (fitted[1:-1] == fitted[2:])
    return Knots(tuple(points[~is_inner].tolist()), tuple(fitted[~is_inner].tolist()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class DialCurve:
    """The curve of one measure, with the range in which it was tested.

    measure, title: key of the measure in measures.MEASURES, and its name in sentences.
    networks: number of networks behind the curve.
    error: mean absolute error of the dial, each group of networks that are made alike predicted
      from the others; None with one group.
    rho: Spearman's rho with the dial, and the ends of its 95 % interval.
    accuracy: lowest and highest accuracy above chance, from 0 (chance) to 1, between which the
      error is within the study's bound; None: nowhere.
    images: number of images of each set, decided or not, from which the error is within the
      bound; None: from no number.
    lies: shortcuts under which the measure is wrong, such as ("colour",).
    verdict: one of measure_results.VERDICTS. No dial is to be read unless it says that the measure
      measures or ranks reliance on shape.
    """

    measure: str
    title: str
    knots: Knots
    networks: int
    error: float | None
    rho: tuple[float, float, float]
    accuracy: tuple[float, float] | None
    images: int | None
    lies: tuple[str, ...]
    verdict: str


@dataclasses.dataclass(frozen=True)
class Curves:
    """The curves of a study by measure, with a phrase on its networks, and the limits of flags."""

    description: str
    limits: flags.Limits
    by_measure: Mapping[str, DialCurve]


def read(path: pathlib.Path = FILE) -> Curves | None:
    """Return the curves of a file; None if it does not exist.

    ValueError for a file of another version, or that is damaged, such as without verdicts.
    """
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text("utf-8"))
        version = content["version"]
        if version == VERSION:
            entries = {
                measure: _from_json(measure, entry)
                for measure, entry in content["measures"].items()
            }
            limits = flags.Limits(**content["limits"])
            return Curves(content["description"], limits, entries)
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise ValueError(
            f"{path}: must be a file of calibration curves, got {error!r}; run "
            "jbias calibrate --stages=analyse again"
        ) from error
    errors.refuse(
        str(path),
        f"be of version {VERSION}",
        version,
        "run jbias calibrate --stages=analyse again",
    )


def to_json(curves: Curves) -> str:
    """Return the content of a file of curves.

    Numbers are rounded to six decimals, except those of knots, whose values must differ.
    """
    entries = {}
    for measure, curve in curves.by_measure.items():
        entry = dataclasses.asdict(curve)
        del entry["measure"]
        knots = entry.pop("knots")
        entries[measure] = {**_rounded(entry), "knots": knots}
    content = {
        "version": VERSION,
        "description": curves.description,
        "limits": dataclasses.asdict(curves.limits),
        "measures": entries,
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def _from_json(measure: str, entry: Mapping[str, Any]) -> DialCurve:
    """Return the curve of an entry of a file."""
    accuracy, verdict = entry["accuracy"], entry["verdict"]
    if not isinstance(verdict, str) or not verdict:
        raise TypeError(f"{measure}: verdict {verdict!r}")
    rho, low, high = (math.nan if x is None else x for x in entry["rho"])
    return DialCurve(
        measure=measure,
        title=entry["title"],
        knots=Knots(tuple(entry["knots"]["values"]), tuple(entry["knots"]["dials"])),
        networks=entry["networks"],
        error=entry["error"],
        rho=(rho, low, high),
        accuracy=None if accuracy is None else (accuracy[0], accuracy[1]),
        images=entry["images"],
        lies=tuple(entry["lies"]),
        verdict=verdict,
    )


def _rounded(tree: Any) -> Any:
    """Return a tree of JSON with floats rounded to six decimals; None for NaN."""
    if isinstance(tree, Mapping):
        return {key: _rounded(value) for key, value in tree.items()}
    if isinstance(tree, Sequence) and not isinstance(tree, str):
        return [_rounded(value) for value in tree]
    if isinstance(tree, float):
        return None if math.isnan(tree) else round(tree, 6)
    return tree
