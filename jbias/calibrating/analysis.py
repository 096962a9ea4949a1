"""Analysis of a study: for each measure, how well it recovers the dial of planted networks.

`analyse` takes the rows of networks.csv and readings.csv, the rules and, for hidden networks, the
curves that were fixed before. Its tables have these definitions:

- dial: a network's reliance on shape against texture. Decision rules and mixtures have the dial
  that was planned, by construction; a trained network has the verified reliance
- verified: the share of decisions for the shape among those for shape or texture, less guesses, on
  factorial stimuli, which have all combinations of cues (rows.PlantedNetwork.verified_reliance)
- comparable networks: with a dial, without a planted shortcut, without a flag, and with a verified
  reliance near the dial, if their dial is a share of decisions. Trained networks always have
- ranked networks: the comparable networks whose dial is a share of decisions. A weight of logits
  is no share, so networks of that family are compared among themselves only
- reading: the value from the most images, of draw 0
- read dial: the dial of the value by the curve of the other families; for hidden networks, by the
  fixed curve
- error: mean absolute difference of read dial and dial, over ranked networks
- image networks: the ranked networks that see images. Measures are compared on these, as measures
  that change images, or read activations, have no value for decision rules
- unselected: with the networks whose verified reliance is far from the dial
- shift under a shortcut: the mean of read dial minus dial of networks with the shortcut, less that
  of ranked networks of the same family, level and planned dial

Networks that share trained streams are not independent, so intervals over networks are somewhat
too narrow.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import pandas as pd

from jbias.calibrating import curves as curves_lib
from jbias.calibrating import measure_results, rows
from jbias.calibrating import measures as measures_lib
from jbias.calibrating import rules as rules_lib
from jbias.calibrating import study as study_lib

Measures = Mapping[str, measures_lib.Measure]


@dataclasses.dataclass(frozen=True, eq=False)
class Analysis:
    """The results of an analysis: tables by the name of their CSV file, and curves.

    measures: a row per measure. families, accuracies, sizes, shortcuts: rows per measure and
    family, range of accuracy, number of images, and shortcut with its strength. flagged: a row per
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
    num_ranked = int(study.networks["is_ranked"].sum())
    description = (
        f"{num_ranked} ranked of {len(study.networks)} {kind} networks, on drawn shapes"
    )
    return Analysis(
        measures=pd.DataFrame([result.row for result in results.values()]),
        families=_frame(result.family_rows for result in results.values()),
        accuracies=_frame(result.accuracy_rows for result in results.values()),
        sizes=_frame(result.size_rows for result in results.values()),
        shortcuts=_frame(result.shortcut_rows for result in results.values()),
        flagged=study_lib.flagged(study.networks),
        planted=study_lib.planted(study.networks),
        curves=curves_lib.Curves(description, rules.limits, by_measure),
    )


def _frame(groups) -> pd.DataFrame:
    """Return a frame with the rows of all groups."""
    return pd.DataFrame([row for group in groups for row in group])
