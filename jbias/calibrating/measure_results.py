"""The results of one measure in a study: how well its values recover the dial.

Definitions are in `analysis.py`.
"""

import functools
import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from jbias.calibrating import curves as curves_lib
from jbias.calibrating import measures as measures_lib
from jbias.calibrating import recovery, rows
from jbias.calibrating import rules as rules_lib
from jbias.calibrating import study as study_lib

TOO_FEW = "too few networks"
MEASURES_SHAPE = "measures reliance on shape"
RANKS = "ranks networks only"
WEAK = "follows reliance on shape weakly"
REVERSED = "falls with reliance on shape"
NO_RELATION = "no relation shown"
VERDICTS = (MEASURES_SHAPE, RANKS, WEAK, NO_RELATION, REVERSED, TOO_FEW)


def verdict(
    rho: recovery.Interval, error: float, networks: int, rules: rules_lib.Rules
) -> str:
    """Return one of VERDICTS, from rho, its interval, the error and the number of networks."""
    if networks < rules.least_networks or math.isnan(rho.lower):
        return TOO_FEW
    if rho.lower >= rules.least_rho:
        return MEASURES_SHAPE if error <= rules.most_error else RANKS
    if rho.lower > 0:
        return WEAK
    return REVERSED if rho.upper < 0 else NO_RELATION


class Recovered(NamedTuple):
    """The recovery of the dials of some networks: rho of the values, and the error."""

    networks: int
    rho: recovery.Interval
    error: float


class MeasureResult:
    """The statistics of one measure, each computed from its ranked networks."""

    def __init__(
        self,
        study: study_lib.Study,
        measure: str,
        entry: measures_lib.Measure,
        rules: rules_lib.Rules,
        frozen: curves_lib.Curves | None,
    ):
        self.study, self.measure, self.entry, self.rules = study, measure, entry, rules
        self.is_hidden = frozen is not None
        self.all = study.main(measure)
        frame = self.all[self.all["is_ranked"]]
        self.values, self.dials = frame["value"].to_numpy(), frame["dial"].to_numpy()
        self.families = frame["family"].to_numpy()
        self.frame = frame
        self.knots = self._knots(frozen)
        self.held_out = self._held_out(frozen)
        self.read = recovery.read_dials(self.held_out, self.values)
        self.rho = recovery.rho_interval(
            self.values * self.sign,
            self.dials,
            self.families,
            draws=rules.draws,
            seed=rules.seed,
        )
        self.error = recovery.mean_error(self.read, self.dials)
        self.bins = recovery.accuracy_bins(
            frame["above_chance"].to_numpy(),
            self.read,
            self.dials,
            edges=rules.bin_edges,
        )

    @property
    def sign(self) -> int:
        """Return 1 if the value should rise with the dial, or if nothing is expected, else -1."""
        return -1 if self.entry.direction < 0 else 1

    @functools.cached_property
    def curve(self) -> curves_lib.DialCurve | None:
        """Return the curve with its range of validity; None without ranked networks."""
        if self.knots is None:
            return None
        row = self.row
        span = recovery.accuracy_range(
            self.bins,
            most_error=self.rules.most_error,
            least_networks=self.rules.bin_networks,
        )
        return curves_lib.DialCurve(
            measure=self.measure,
            title=self.entry.title,
            knots=self.knots,
            networks=len(self.dials),
            error=None if math.isnan(self.error) else self.error,
            rho=(self.rho.value, self.rho.lower, self.rho.upper),
            accuracy=span,
            images=row["images_needed"],
            lies=tuple(filter(None, row["lies"].split("; "))),
            verdict=row["verdict"],
        )

    @functools.cached_property
    def row(self) -> dict:
        """Return the row of the measure in the table of measures."""
        num_ranked = int(self.study.networks["is_ranked"].sum())
        covered, read_covered = self._coverages()
        sizes = self.size_rows
        is_within = [row["is_within"] for row in sizes]
        needed = recovery.smallest_size([row["images"] for row in sizes], is_within)
        span = recovery.accuracy_range(
            self.bins,
            most_error=self.rules.most_error,
            least_networks=self.rules.bin_networks,
        )
        low, high = span or (math.nan, math.nan)
        accuracy = self.frame["above_chance"].to_numpy()
        values = self.values * self.sign
        unranked = self._dials_without_reliance()
        lies = [row["shortcut"] for row in self.shortcut_rows if row["lies"]]
        # Decision rules read cues, and take no time for images.
        sees_images = self.all["family"].isin(rows.IMAGE_FAMILIES)
        tested = {row["shortcut"] for row in self.shortcut_rows if row["is_tested"]}
        untested = [x for x in rows.SHORTCUTS if x and x not in tested]
        seconds = self.all.loc[sees_images, "seconds"].dropna()
        return {
            "measure": self.measure,
            "title": self.entry.title,
            "verdict": self._verdict(),
            "networks": len(values),
            "without_value": num_ranked - len(values),
            "rho": self.rho.value,
            "rho_lower": self.rho.lower,
            "rho_upper": self.rho.upper,
            "rho_given_accuracy": recovery.partial_rho(values, self.dials, accuracy),
            "rho_of_accuracy": recovery.partial_rho(values, accuracy, self.dials),
            "error": self.error,
            "error_of_guess": recovery.guessing_error(self.dials, self.families),
            **self._of_image_networks(),
            **self._without_selection(),
            **self._biases(),
            "coverage": covered.value,
            "coverage_lower": covered.lower if covered.n else math.nan,
            "coverage_upper": covered.upper if covered.n else math.nan,
            "intervals": covered.n,
            "read_coverage": read_covered.value,
            **self._verified(),
            "images_needed": needed,
            "accuracy_lower": low,
            "accuracy_upper": high,
            "lies": "; ".join(dict.fromkeys(lies)),
            "untested": "; ".join(untested),
            "unranked_lower": unranked[0],
            "unranked_upper": unranked[1],
            "seconds": float(seconds.median()) if len(seconds) else math.nan,
        }

    @functools.cached_property
    def family_rows(self) -> list[dict]:
        """Return rho, error, bias and coverage of each family; only rho if its dial is no share."""
        result = []
        for family, group in self.all[self.all["is_comparable"]].groupby("family"):
            inside = self.families == family
            dials, ranked_dials = group["dial"].to_numpy(), self.dials[inside]
            rho = recovery.rho_interval(
                group["value"].to_numpy() * self.sign,
                dials,
                group["family"].to_numpy(),
                draws=self.rules.draws,
                seed=self.rules.seed,
            )
            biases = self._natural(self.frame["value"])[inside] - ranked_dials
            lower, upper = self._natural_ends(self.frame[inside])
            covered = recovery.coverage(lower, upper, ranked_dials)
            result.append(
                {
                    "measure": self.measure,
                    "family": family,
                    "networks": len(group),
                    "rho": rho.value,
                    "rho_lower": rho.lower,
                    "rho_upper": rho.upper,
                    "error": recovery.mean_error(self.read[inside], ranked_dials),
                    "bias": _mean(biases),
                    "coverage": covered.value,
                    "intervals": covered.n,
                }
            )
        return result

    @functools.cached_property
    def accuracy_rows(self) -> list[dict]:
        """Return error and rho of each range of accuracy."""
        return [{"measure": self.measure, **entry._asdict()} for entry in self.bins]

    @functools.cached_property
    def size_rows(self) -> list[dict]:
        """Return the error and rho from each number of images, as means over draws.

        A number of images is left out if too few of the ranked networks have a reading from it.
        """
        readings = self.study.readings
        readings = readings[
            (readings["measure"] == self.measure)
            & readings["network"].isin(self.frame["network"])
        ]
        curve_of = dict(zip(self.frame["network"], self.held_out, strict=True))
        result = []
        for images, group in readings.groupby("images"):
            by_draw = [
                self._size_of_draw(draw, curve_of)
                for _, draw in group[group["value"].notna()].groupby("draw")
                if len(draw) >= self.rules.size_networks * len(self.frame)
            ]
            if by_draw:
                error, rho = np.mean(by_draw, axis=0).tolist()
                is_within = error <= self.rules.most_error
                row = {
                    "measure": self.measure,
                    "images": int(images),
                    "draws": len(by_draw),
                }
                result.append(
                    {**row, "error": error, "rho": rho, "is_within": is_within}
                )
        return result

    @functools.cached_property
    def shortcut_rows(self) -> list[dict]:
        """Return the change of read dial minus dial under each shortcut and strength.

        A network is compared with the ranked networks of its family, level and planned dial, each
        by its read dial minus its dial, so that a measure may follow a changed reliance. Networks
        without such networks are left out, and decision rules and mixtures that are not as
        planted. `is_tested` tells whether there are enough networks for `lies`. Hidden networks
        have no such networks: they are compared with a difference of 0, and with the mean error of
        all ranked networks.
        """
        if self.knots is None:
            return []
        frame = self.all[
            self.all["dial"].notna()
            & (self.all["shortcut"] != "")
            & (~self.all["is_flagged"] | self.all["is_shortcut_only"])
            & self.all["is_planted"]
        ]
        frame = frame[frame["family"].isin(self.rules.share_families)]
        if self.is_hidden:
            frame = frame.assign(base_difference=0.0, base_error=self.error)
        else:
            keys = ["family", "level", "planned_dial"]
            differences = self.knots.read(self.values) - self.dials
            base = self.frame.assign(
                base_difference=differences, base_error=np.abs(differences)
            )
            means = base.groupby(keys)[["base_difference", "base_error"]].mean()
            frame = frame.merge(means.reset_index(), on=keys, how="inner")
        result = []
        for (shortcut, strength), group in frame.groupby(["shortcut", "strength"]):
            moved = recovery.shift(
                self.knots.read(group["value"]) - group["dial"].to_numpy(),
                group["base_difference"].to_numpy(),
                group["base_error"].to_numpy(),
                draws=self.rules.draws,
                seed=self.rules.seed,
            )
            increase = moved.error - moved.error_without
            is_tested = moved.networks >= self.rules.least_shortcut_networks
            result.append(
                {
                    "measure": self.measure,
                    "shortcut": shortcut,
                    "strength": strength,
                    "networks": moved.networks,
                    "suspected": int(group["is_flagged"].sum()),
                    "shift": moved.shift.value,
                    "shift_lower": moved.shift.lower,
                    "shift_upper": moved.shift.upper,
                    "error": moved.error,
                    "error_without": moved.error_without,
                    "is_tested": is_tested,
                    "lies": bool(is_tested and increase > self.rules.most_shift),
                }
            )
        return result

    def _verdict(self) -> str:
        """Return the verdict.

        If nothing is expected of the sign of rho, it is that of the fixed curve for hidden
        networks, and does not matter for others.
        """
        rho = self.rho
        falls = rho.value < 0
        if self.is_hidden and self.knots is not None:
            falls = self.knots.dials[-1] < self.knots.dials[0]
        if self.entry.direction == 0 and falls:
            rho = recovery.Interval(-rho.value, -rho.upper, -rho.lower)
        return verdict(rho, self.error, len(self.dials), self.rules)

    def _size_of_draw(
        self, draw: pd.DataFrame, curve_of: Mapping[str, curves_lib.Knots | None]
    ) -> tuple[float, float]:
        """Return error and rho of the readings of one draw."""
        values, dials = draw["value"].to_numpy(), draw["dial"].to_numpy()
        knots = [curve_of[network] for network in draw["network"]]
        read = recovery.read_dials(knots, values)
        error = recovery.mean_error(read, dials)
        return error, recovery.rho(values * self.sign, dials)

    def _knots(self, frozen: curves_lib.Curves | None) -> curves_lib.Knots | None:
        """Return the fixed curve, or that of all ranked networks; None without either."""
        if frozen is not None:
            fixed = frozen.by_measure.get(self.measure)
            return None if fixed is None else fixed.knots
        if not len(self.values):
            return None
        return recovery.fit(self.values, self.dials, direction=self.entry.direction)

    def _held_out(
        self, frozen: curves_lib.Curves | None
    ) -> list[curves_lib.Knots | None]:
        """Return the curve by which each ranked network is read; see analysis.py."""
        if frozen is not None:
            return [self.knots] * len(self.values)
        return recovery.held_out_knots(
            self.values, self.dials, self.families, direction=self.entry.direction
        )

    def _natural(self, column: pd.Series) -> np.ndarray:
        """Return values on the scale of the dial; NaN for a measure without this scale."""
        values = column.to_numpy()
        if not self.entry.is_share:
            return np.full(len(values), math.nan)
        return values if self.sign > 0 else 1 - values

    def _recover(self, frame: pd.DataFrame) -> Recovered:
        """Return rho and error of some networks; for hidden networks, by the fixed curve."""
        values, dials = frame["value"].to_numpy(), frame["dial"].to_numpy()
        families = frame["family"].to_numpy()
        rho = recovery.rho_interval(
            values * self.sign,
            dials,
            families,
            draws=self.rules.draws,
            seed=self.rules.seed,
        )
        if self.is_hidden:
            knots = [self.knots] * len(values)
        else:
            knots = recovery.held_out_knots(
                values, dials, families, direction=self.entry.direction
            )
        read = recovery.read_dials(knots, values)
        return Recovered(len(values), rho, recovery.mean_error(read, dials))

    def _of_image_networks(self) -> dict:
        """Return rho and error over the ranked networks that see images.

        These are the same networks for all measures, so that measures can be compared.
        """
        sees_images = self.frame["family"].isin(rows.IMAGE_FAMILIES)
        recovered = self._recover(self.frame[sees_images])
        return {
            "image_networks": recovered.networks,
            "image_rho": recovered.rho.value,
            "image_rho_lower": recovered.rho.lower,
            "image_rho_upper": recovered.rho.upper,
            "image_error": recovered.error,
        }

    def _without_selection(self) -> dict:
        """Return rho and error with the networks whose verified reliance is far from the dial.

        These are decision rules and mixtures. The numbers show what leaving them out does for
        measures that resemble verification.
        """
        frame = self.all[
            self.all["dial"].notna()
            & (self.all["shortcut"] == "")
            & ~self.all["is_flagged"]
            & self.all["family"].isin(self.rules.share_families)
        ]
        recovered = self._recover(frame)
        return {
            "unselected_networks": recovered.networks,
            "unselected_rho": recovered.rho.value,
            "unselected_error": recovered.error,
        }

    def _biases(self) -> dict:
        """Return the mean of value minus dial: over all dials, those below 1/2, and those above.

        NaN without the scale, or without networks. A measure that shrinks all values towards 1/2
        has no bias over all dials.
        """
        biases = self._natural(self.frame["value"]) - self.dials
        return {
            "bias": _mean(biases),
            "bias_below_half": _mean(biases[self.dials < 0.5]),
            "bias_above_half": _mean(biases[self.dials > 0.5]),
        }

    def _verified(self) -> dict:
        """Return rho, bias and coverage of the verified reliance, over comparable networks."""
        frame = self.all[self.all["is_comparable"] & self.all["verified"].notna()]
        verified = frame["verified"].to_numpy()
        biases = self._natural(frame["value"]) - verified
        lower, upper = self._natural_ends(frame)
        covered = recovery.coverage(lower, upper, verified)
        return {
            "verified": len(frame),
            "rho_verified": recovery.rho(
                frame["value"].to_numpy() * self.sign, verified
            ),
            "bias_verified": _mean(biases),
            "coverage_verified": covered.value,
        }

    def _natural_ends(self, frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        """Return the lower and upper ends of intervals on the scale of the dial."""
        first, second = (self._natural(frame[name]) for name in ("lower", "upper"))
        return np.minimum(first, second), np.maximum(first, second)

    def _coverages(self) -> tuple[recovery.Share, recovery.Share]:
        """Return the coverage of the dial by intervals of values, and by those of read dials."""
        lower, upper = self._natural_ends(self.frame)
        first, second = (
            recovery.read_dials(self.held_out, self.frame[name].to_numpy())
            for name in ("lower", "upper")
        )
        of_read = recovery.coverage(
            np.minimum(first, second), np.maximum(first, second), self.dials
        )
        return recovery.coverage(lower, upper, self.dials), of_read

    def _dials_without_reliance(self) -> tuple[float, float]:
        """Return the smallest and largest dial read for failing networks, such as at chance.

        (NaN, NaN) without such networks.
        """
        values = self.all.loc[self.all["planned_dial"].isna(), "value"]
        if values.empty or self.knots is None:
            return math.nan, math.nan
        read = self.knots.read(values)
        return float(read.min()), float(read.max())


def _mean(values: Float[np.ndarray, "n"]) -> float:
    """Return the mean; NaN without values."""
    return float(np.mean(values)) if len(values) else math.nan
