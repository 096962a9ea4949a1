"""Analysis of a study: for each measure, how well it recovers the dial of planted networks.

`analyse` takes the rows of networks.csv and readings.csv, the rules and, for hidden networks, the
curves that were fixed before. Its tables have these definitions:

- dial: a network's reliance on shape against texture. Decision rules and mixtures have the dial
  that was planned, by construction; a trained network has the verified reliance
- group: the networks that are made alike, such as trained networks of one level; see
  rows.PlantedNetwork, also for cluster
- verified: the share of decisions for the shape among those for shape or texture, less guesses, on
  factorial stimuli, which have all combinations of cues (rows.PlantedNetwork.verified_reliance)
- comparable networks: with a dial, without a planted shortcut, without a flag, and, for mixtures by
  images, with a verified reliance near the dial
- ranked networks: the comparable networks that see images and whose dial is a share of decisions.
  All numbers of a measure are of these, as measures that change images, or read activations, have
  no value for decision rules. A weight of logits is no share, so networks of that family are
  compared among themselves only
- reading: the value from the most images, of draw 0
- read dial: the dial of the value by the curve of the other groups; for hidden networks, by the
  fixed curve
- error: mean absolute difference of read dial and dial, over ranked networks
- bias, coverage: over the networks whose dial holds by construction, decision rules of high accuracy
  and mixtures by images, for measures that estimate the dial itself
- behind best: the difference of errors to the measure with the smallest error among those with a
  relation to the dial and values for nearly all ranked networks, over the networks that both have
  values for; for hidden networks, to the measure that is the best by the fixed curves
- unselected: with the mixtures whose verified reliance is far from the dial
- shift under a shortcut: the mean of read dial minus dial of networks that have learned the
  shortcut, less that of ranked networks of the same family, level and planned dial

Intervals are between quantiles of a bootstrap over clusters within families.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import pandas as pd

from jbias.calibrating import curves as curves_lib
from jbias.calibrating import measure_results, recovery, rows
from jbias.calibrating import measures as measures_lib
from jbias.calibrating import rules as rules_lib
from jbias.calibrating import study as study_lib

Measures = Mapping[str, measures_lib.Measure]


@dataclasses.dataclass(frozen=True, eq=False)
class Analysis:
    """The results of an analysis: tables by the name of their CSV file, and curves.

    measures: a row per measure. families, accuracies, sizes, shortcuts: rows per measure and
    family with its level, range of accuracy, number of images, and shortcut with its strength.
    flagged: a row per
    flag of a network. planted: a row per family, level and shortcut, with the verified reliance
    against the planned dial.
    """

    measures: pd.DataFrame
    families: pd.DataFrame
    accuracies: pd.DataFrame
    sizes: pd.DataFrame
    shortcuts: pd.DataFrame
    flagged: pd.DataFrame
    planted: pd.DataFrame
    curves: curves_lib.Curves

    def tables(self) -> dict[str, pd.DataFrame]:
        """Return the tables by name."""
        names = [field.name for field in dataclasses.fields(self)]
        return {name: getattr(self, name) for name in names if name != "curves"}


def analyse(
    networks: Sequence[rows.PlantedNetwork],
    readings: Sequence[rows.Reading],
    rules: rules_lib.Rules,
    *,
    measures: Measures = measures_lib.MEASURES,
    frozen: curves_lib.Curves | None = None,
) -> Analysis:
    """Return the analysis of the open networks; with `frozen`, of the hidden ones.

    frozen: the curves that were fixed before the hidden networks existed.
    Measures without any reading are left out. ValueError as `study.prepare` does, without
    networks, and without readings of these measures.
    """
    study = study_lib.prepare(networks, readings, rules, hidden=frozen is not None)
    kind = "hidden" if frozen is not None else "open"
    if study.networks.empty:
        raise ValueError(f"networks.csv: must have {kind} networks, got none")
    present = {*study.readings["measure"]} & measures.keys()
    if not present:
        raise ValueError(
            f"readings.csv: must have readings of {kind} networks by the chosen measures, got "
            "none; run jbias calibrate --stages=measure"
        )
    results = {
        measure: measure_results.MeasureResult(study, measure, entry, rules, frozen)
        for measure, entry in measures.items()
        if measure in present
    }
    by_measure = {
        measure: result.curve
        for measure, result in results.items()
        if result.curve is not None
    }
    table = pd.DataFrame([result.row for result in results.values()])
    num_ranked = int(study.networks["is_ranked"].sum())
    description = (
        f"{num_ranked} ranked of {len(study.networks)} {kind} networks, on drawn shapes"
    )
    return Analysis(
        measures=table.merge(behind_best(results, study, rules, frozen), on="measure"),
        families=_frame(result.family_rows for result in results.values()),
        accuracies=_frame(result.accuracy_rows for result in results.values()),
        sizes=_frame(result.size_rows for result in results.values()),
        shortcuts=_frame(result.shortcut_rows for result in results.values()),
        flagged=study_lib.flagged(study.networks),
        planted=study_lib.planted(study.networks),
        curves=curves_lib.Curves(description, rules.limits, by_measure),
    )


def behind_best(
    results: Mapping[str, measure_results.MeasureResult],
    study: study_lib.Study,
    rules: rules_lib.Rules,
    frozen: curves_lib.Curves | None,
) -> pd.DataFrame:
    """Return the difference of each measure's error to that of the best measure, with an interval.

    Columns: measure, behind_best, behind_best_lower, behind_best_upper; NaN without a best measure.
    """
    errors = {measure: result.error_by_network() for measure, result in results.items()}
    by_measure = {
        measure: result.curve for measure, result in results.items() if result.curve
    }
    best = best_measure(frozen.by_measure if frozen else by_measure, rules)
    if best not in errors:
        best = None
    by_network = study.networks.set_index("network")
    rows = []
    for measure, of_measure in errors.items():
        differences = pd.Series(dtype=float)
        if best is not None:
            differences = (of_measure - errors[best]).dropna()
        compared = by_network.loc[differences.index]
        behind = recovery.mean_interval(
            differences.to_numpy(),
            families=compared["family"].to_numpy(),
            clusters=compared["cluster"].to_numpy(),
            draws=rules.draws,
            seed=rules.seed,
        )
        rows.append((measure, *behind))
    columns = ["measure", "behind_best", "behind_best_lower", "behind_best_upper"]
    return pd.DataFrame(rows, columns=columns)


def best_measure(
    by_measure: Mapping[str, curves_lib.DialCurve], rules: rules_lib.Rules
) -> str | None:
    """Return the measure with the smallest error; None if none has a relation to the dial.

    Only measures with values for nearly all networks count, as errors of other networks may be
    smaller.
    """
    most = max((curve.networks for curve in by_measure.values()), default=0)
    errors = {
        measure: curve.error
        for measure, curve in by_measure.items()
        if curve.verdict in measure_results.RELATED
        and curve.networks >= rules.best_networks * most
    }
    return min(errors, key=errors.get, default=None)


def _frame(groups) -> pd.DataFrame:
    """Return a frame with the rows of all groups."""
    return pd.DataFrame([row for group in groups for row in group])
