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
RELATED = (MEASURES_SHAPE, RANKS, WEAK)  # Verdicts of a relation to the dial.
ALL = "all"  # Instead of a strength, in rows of shortcuts, or of a level, in rows of families.
# The level of decision rules that bias and coverage are of: with many guesses, how often intervals
# contain the dial depends on the share of guesses that was chosen.
KNOWN_LEVEL = "high"


def verdict(recovered: "Recovered", middle: "Recovered", rules: rules_lib.Rules) -> str:
    """Return one of VERDICTS, from the recovery of all dials, and of those in the middle.

    Errors are NaN if the networks are of one group, so that no curve could be tested.
    """
    rho = recovered.rho
    if (
        recovered.networks < rules.least_networks
        or middle.networks < rules.least_middle_networks
        or math.isnan(rho.lower)
        or math.isnan(recovered.error)
    ):
        return TOO_FEW
    if rho.lower >= rules.least_rho:
        error = max(recovered.error, middle.error)
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
        self.frame = frame
        self.values, self.dials = frame["value"].to_numpy(), frame["dial"].to_numpy()
        self.knots = self._knots(frozen)
        self.held_out = self._held_out(frame)
        self.read = self._read(frame, self.held_out)
        self.rho = self._rho(frame)
        self.error = recovery.mean_error(self.read, self.dials)
        self.bins = recovery.accuracy_bins(
            frame["above_chance"].to_numpy(),
            self.read,
            self.dials,
            edges=rules.bin_edges,
        )

    @property
    def sign(self) -> int:
        """Return 1 if the value should rise with the dial, else -1.

        If nothing is expected of a measure, it is the direction of its curve, for hidden networks
        of the fixed one.
        """
        if self.entry.direction or self.knots is None:
            return self.entry.direction or 1
        return -1 if self.knots.dials[-1] < self.knots.dials[0] else 1

    @functools.cached_property
    def middle(self) -> Recovered:
        """Return the recovery of the dials that are in rules.middle_dials."""
        low, high = self.rules.middle_dials
        is_middle = (low < self.dials) & (self.dials < high)
        return Recovered(
            int(is_middle.sum()),
            self._rho(self.frame[is_middle]),
            recovery.mean_error(self.read[is_middle], self.dials[is_middle]),
        )

    @property
    def accuracy_range(self) -> tuple[float, float] | None:
        """Return the range of accuracy in which the error is within the bound, or None."""
        return recovery.accuracy_range(
            self.bins,
            most_error=self.rules.most_error,
            least_networks=self.rules.bin_networks,
        )

    @functools.cached_property
    def curve(self) -> curves_lib.DialCurve | None:
        """Return the curve with its range of validity; None without ranked networks."""
        if self.knots is None:
            return None
        row = self.row
        return curves_lib.DialCurve(
            measure=self.measure,
            title=self.entry.title,
            knots=self.knots,
            networks=len(self.dials),
            error=None if math.isnan(self.error) else self.error,
            rho=(self.rho.value, self.rho.lower, self.rho.upper),
            accuracy=self.accuracy_range,
            images=row["images_needed"],
            lies=tuple(filter(None, row["lies"].split("; "))),
            verdict=self.verdict,
        )

    @functools.cached_property
    def row(self) -> dict:
        """Return the row of the measure in the table of measures."""
        num_ranked = int(self.study.networks["is_ranked"].sum())
        sizes = self.size_rows
        is_within = [row["is_within"] for row in sizes]
        needed = recovery.smallest_size([row["images"] for row in sizes], is_within)
        low, high = self.accuracy_range or (math.nan, math.nan)
        accuracy = self.frame["above_chance"].to_numpy()
        values = self.values * self.sign
        unranked = self._dials_without_reliance()
        pooled = [row for row in self.shortcut_rows if row["strength"] == ALL]
        tested = {row["shortcut"] for row in pooled if row["is_tested"]}
        # Decision rules read cues, and take no time for images.
        sees_images = self.all["family"].isin(rows.IMAGE_FAMILIES)
        seconds = self.all.loc[sees_images, "seconds"].dropna()
        return {
            "measure": self.measure,
            "title": self.entry.title,
            "verdict": self.verdict,
            "networks": len(values),
            "without_value": num_ranked - len(values),
            "expected_direction": self.entry.direction,
            "direction": self.sign,
            "rho": self.rho.value,
            "rho_lower": self.rho.lower,
            "rho_upper": self.rho.upper,
            "rho_given_accuracy": recovery.partial_rho(values, self.dials, accuracy),
            "rho_of_accuracy": recovery.partial_rho(values, accuracy, self.dials),
            "error": self.error,
            "error_of_guess": recovery.guessing_error(
                self.dials, self.frame["group"].to_numpy()
            ),
            "middle_networks": self.middle.networks,
            "middle_rho": self.middle.rho.value,
            "middle_error": self.middle.error,
            **self._without_selection(),
            **self._known(),
            **self._verified(),
            "images_needed": needed,
            "sizes": len(sizes),
            "accuracy_lower": low,
            "accuracy_upper": high,
            "lies": "; ".join(row["shortcut"] for row in pooled if row["lies"]),
            "untested": "; ".join(x for x in rows.SHORTCUTS if x and x not in tested),
            "unranked_lower": unranked[0],
            "unranked_upper": unranked[1],
            "seconds": float(seconds.median()) if len(seconds) else math.nan,
            "seconds_first": float(seconds.max()) if len(seconds) else math.nan,
        }

    @functools.cached_property
    def family_rows(self) -> list[dict]:
        """Return rho, error, bias and coverage of each family, over all levels and of each.

        Only rho if the family's dial is no share. Dials of decision rules are read by the curve of
        the networks that see images.
        """
        result = []
        for family, group in self.all[self.all["is_comparable"]].groupby("family"):
            by_level = [(ALL, group), *group.groupby("level")]
            for level, part in by_level:
                result.append(self._family_row(family, level, part))
        return result

    def _family_row(self, family: str, level: str, group: pd.DataFrame) -> dict:
        """Return the row of the networks of a family and level; see `family_rows`."""
        is_share = family in self.rules.share_families
        rho = self._rho(group)
        known = group if is_share else group[:0]
        read = self._read(known, self.held_out)
        covered = self._coverage(known)
        return {
            "measure": self.measure,
            "family": family,
            "level": level,
            "networks": len(group),
            "rho": rho.value,
            "rho_lower": rho.lower,
            "rho_upper": rho.upper,
            "error": recovery.mean_error(read, known["dial"].to_numpy()),
            "bias": _mean(self._biases(known)),
            "coverage": covered.value,
            "intervals": covered.n,
        }

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
        result = []
        for images, group in readings.groupby("images"):
            by_draw = [
                self._size_of_draw(draw)
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
        """Return the change of read dial minus dial under each shortcut, by strength and over all.

        A network is compared with the ranked networks of its family, level and planned dial, each
        by its read dial minus its dial, so that a measure may follow a changed reliance. Networks
        without such networks are left out, and mixtures that are not as planted. Hidden networks
        have no such networks: they are compared with a difference of 0, and with the mean error of
        all ranked networks.

        error_increase is the mean increase of the absolute difference, with a bootstrap interval
        over planned dials, as networks of one planned dial are compared with the same networks.
        Networks that have not learned the shortcut are left out and counted (not_learned).
        `is_tested` tells whether there are enough networks for an interval, and whether the measure
        shows a relation to the dial; otherwise a shortcut cannot make it wrong. `lies`: the
        increase is more than the rules allow, and its interval is above 0.
        """
        frame = self._with_shortcut()
        result = []
        for shortcut, group in frame.groupby("shortcut"):
            by_strength = [(f"{x:g}", part) for x, part in group.groupby("strength")]
            for strength, part in [*by_strength, (ALL, group)]:
                result.append(self._shortcut_row(shortcut, strength, part))
        return result

    def _with_shortcut(self) -> pd.DataFrame:
        """Return the networks with a shortcut; see `shortcut_rows`.

        Columns: difference (read dial minus dial), base_difference and base_error (mean difference
        and absolute difference without the shortcut).
        """
        if self.knots is None:
            return self.all[:0]
        frame = self.all[
            self.all["dial"].notna()
            & (self.all["shortcut"] != "")
            & (~self.all["is_flagged"] | self.all["is_shortcut_only"])
            & self.all["is_planted"]
            & self.all["is_learned"]
            & self.all["family"].isin(self.rules.ranked_families)
        ]
        read = self._read(frame, self.held_out)
        frame = frame.assign(difference=read - frame["dial"].to_numpy())
        frame = frame[frame["difference"].notna()]
        if self.is_hidden:
            return frame.assign(base_difference=0.0, base_error=self.error)
        keys = ["family", "level", "planned_dial"]
        differences = self.read - self.dials
        base = self.frame.assign(
            base_difference=differences, base_error=np.abs(differences)
        )
        means = base.groupby(keys)[["base_difference", "base_error"]].mean()
        return frame.merge(means.reset_index(), on=keys, how="inner")

    def _shortcut_row(self, shortcut: str, strength: str, group: pd.DataFrame) -> dict:
        """Return the row of some networks with a shortcut; see `shortcut_rows`."""
        by_dial = group.assign(cluster=group["planned_dial"].astype(str))
        shift = self._mean_interval(
            group["difference"] - group["base_difference"], by_dial
        )
        increase = self._mean_interval(
            group["difference"].abs() - group["base_error"], by_dial
        )
        is_tested = (
            len(group) >= self.rules.least_shortcut_networks
            and not math.isnan(increase.lower)
            and self.verdict in RELATED
        )
        planted = self.all[self.all["shortcut"] == shortcut]
        if strength != ALL:
            planted = planted[planted["strength"] == float(strength)]
        is_trained = planted["family"].isin(self.rules.ranked_families)
        return {
            "measure": self.measure,
            "shortcut": shortcut,
            "strength": strength,
            "networks": len(group),
            "not_learned": int((is_trained & ~planted["is_learned"]).sum()),
            "suspected": int(group["is_flagged"].sum()),
            "shift": shift.value,
            "shift_lower": shift.lower,
            "shift_upper": shift.upper,
            "error": float(group["difference"].abs().mean()),
            "error_without": float(group["base_error"].mean()),
            "error_increase": increase.value,
            "increase_lower": increase.lower,
            "increase_upper": increase.upper,
            "is_tested": is_tested,
            "lies": is_tested
            and increase.value > self.rules.most_shift
            and increase.lower > 0,
        }

    @functools.cached_property
    def verdict(self) -> str:
        """Return the verdict."""
        recovered = Recovered(len(self.dials), self.rho, self.error)
        return verdict(recovered, self.middle, self.rules)

    def error_by_network(self) -> pd.Series:
        """Return the absolute difference of read dial and dial, by name of the ranked network."""
        return pd.Series(
            np.abs(self.read - self.dials), index=self.frame["network"].to_numpy()
        )

    def _size_of_draw(self, draw: pd.DataFrame) -> tuple[float, float]:
        """Return error and rho of the readings of one draw."""
        values, dials = draw["value"].to_numpy(), draw["dial"].to_numpy()
        error = recovery.mean_error(self._read(draw, self.held_out), dials)
        return error, recovery.rho(values * self.sign, dials)

    def _knots(self, frozen: curves_lib.Curves | None) -> curves_lib.Knots | None:
        """Return the fixed curve, or that of all ranked networks; None without either."""
        if frozen is not None:
            fixed = frozen.by_measure.get(self.measure)
            return None if fixed is None else fixed.knots
        if not len(self.values):
            return None
        return recovery.fit(self.values, self.dials, direction=self.entry.direction)

    def _held_out(self, frame: pd.DataFrame) -> dict[str, curves_lib.Knots | None]:
        """Return the curve of all other networks by group; {} for hidden networks."""
        if self.is_hidden:
            return {}
        return recovery.held_out_knots(
            frame["value"].to_numpy(),
            frame["dial"].to_numpy(),
            frame["group"].to_numpy(),
            direction=self.entry.direction,
        )

    def _read(
        self,
        frame: pd.DataFrame,
        held_out: Mapping[str, curves_lib.Knots | None],
        *,
        column: str = "value",
    ) -> Float[np.ndarray, "n"]:
        """Return the dial of each network by the curve that its group is read by.

        held_out: curves by group; a group without one is read by the curve of all ranked networks,
        which has none of its networks, and hidden networks by the fixed curve.
        """
        knots = [held_out.get(group, self.knots) for group in frame["group"]]
        return recovery.read_dials(knots, frame[column].to_numpy())

    def _rho(self, frame: pd.DataFrame) -> recovery.Interval:
        """Return rho of value and dial, with its sign as expected, and its interval."""
        return recovery.rho_interval(
            frame["value"].to_numpy() * self.sign,
            frame["dial"].to_numpy(),
            families=frame["family"].to_numpy(),
            clusters=frame["cluster"].to_numpy(),
            draws=self.rules.draws,
            seed=self.rules.seed,
        )

    def _mean_interval(
        self, numbers: pd.Series, frame: pd.DataFrame
    ) -> recovery.Interval:
        """Return the mean of a number of each network, with its interval."""
        return recovery.mean_interval(
            numbers.to_numpy(),
            families=frame["family"].to_numpy(),
            clusters=frame["cluster"].to_numpy(),
            draws=self.rules.draws,
            seed=self.rules.seed,
        )

    def _natural(self, column: pd.Series) -> np.ndarray:
        """Return values on the scale of the dial; NaN for a measure without this scale."""
        values = column.to_numpy()
        if not self.entry.is_share:
            return np.full(len(values), math.nan)
        return values if self.sign > 0 else 1 - values

    def _recover(self, frame: pd.DataFrame) -> Recovered:
        """Return rho and error of some networks; for hidden networks, by the fixed curve."""
        read = self._read(frame, self._held_out(frame))
        error = recovery.mean_error(read, frame["dial"].to_numpy())
        return Recovered(len(frame), self._rho(frame), error)

    def _without_selection(self) -> dict:
        """Return rho and error with the mixtures whose verified reliance is far from the dial.

        The numbers show what leaving them out does for measures that resemble verification.
        """
        frame = self.all[
            self.all["dial"].notna()
            & (self.all["shortcut"] == "")
            & ~self.all["is_flagged"]
            & self.all["family"].isin(self.rules.ranked_families)
        ]
        recovered = self._recover(frame)
        return {
            "unselected_networks": recovered.networks,
            "unselected_rho": recovered.rho.value,
            "unselected_error": recovered.error,
        }

    def _known(self) -> dict:
        """Return bias and coverage over the networks whose dial holds by construction.

        These are decision rules of KNOWN_LEVEL and mixtures by images; the dial of trained networks
        is counted in decisions. bias: mean of value minus dial, over all dials, those below 1/2, and those
        above; a measure that shrinks all values towards 1/2 has no bias over all dials. coverage:
        of the dial by intervals of values. read_coverage: by the read dials of the ends of these
        intervals. NaN without the scale, or without networks.
        """
        is_known = (
            self.all["is_comparable"]
            & self.all["family"].isin(self.rules.known_families)
            & (self.all["level"] == KNOWN_LEVEL)
        )
        frame = self.all[is_known]
        dials, biases = frame["dial"].to_numpy(), self._biases(frame)
        covered = self._coverage(frame)
        first, second = (
            self._read(frame, self.held_out, column=name) for name in ("lower", "upper")
        )
        read = recovery.coverage(
            np.minimum(first, second), np.maximum(first, second), dials
        )
        return {
            "bias": _mean(biases),
            "bias_below_half": _mean(biases[dials < 0.5]),
            "bias_above_half": _mean(biases[dials > 0.5]),
            "coverage": covered.value,
            "coverage_lower": covered.lower if covered.n else math.nan,
            "coverage_upper": covered.upper if covered.n else math.nan,
            "intervals": covered.n,
            "read_coverage": read.value,
        }

    def _biases(self, frame: pd.DataFrame) -> Float[np.ndarray, "n"]:
        """Return value minus dial of some networks; NaN without the scale."""
        return self._natural(frame["value"]) - frame["dial"].to_numpy()

    def _coverage(self, frame: pd.DataFrame) -> recovery.Share:
        """Return the share of intervals of values that contain the dial."""
        lower, upper = self._natural_ends(frame)
        return recovery.coverage(lower, upper, frame["dial"].to_numpy())

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
