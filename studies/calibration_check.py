r"""Compute the main numbers of the study of calibration again, independently.

    python -m studies.calibration_check --results=docs/results/calibration
    python -m studies.calibration_check --results=docs/results/calibration/hidden \
        --rules=docs/results/calibration/rules.json \
        --curves=docs/results/calibration/hidden/curves.json

Reads networks.csv, readings.csv and rules.json of --results with pandas, and imports nothing of
jbias.calibrating: rank correlations and isotonic regression are those of scipy and scikit-learn,
the rest is written again from the definitions in docs/calibrate.md, also flags, and the dial of
trained networks, from the shares of decisions that verify it. Compares rho, the lower end of its
interval, error, and error of dials in the middle of each measure, and bias and coverage of those
that have them, with measures.csv, and prints a line for each. With --curves, networks are read by
the curves of this file, as hidden ones are. Exit code 1 if a number differs by more than 1e-5 (the
lower end by more than 0.03, as other clusters are drawn), if one of the two is missing, and
without any number to compare.

Takes about ten seconds on two cores.
"""

import json
import math
import pathlib
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from scipy import stats
from sklearn import isotonic

from studies import command

TOLERANCE = 1e-5  # measures.csv has six significant digits.
TOLERANCES = {"rho_lower": 0.03}  # Other bootstrap draws.
DRAWS = 4000
DECIMALS = 12  # Differences of shares that are equal differ in their last bits.
COLUMNS = ("rho", "rho_lower", "error", "middle_error", "bias", "coverage")
ESTIMATES_DIAL = ("shape_bias", "shape_bias_free")
SEES_IMAGES = ("trained", "mixed_images")
DIAL_IS_KNOWN = ("rule", "mixed_images")
# Measures whose authors expect lower values for reliance on shape, and those of which they expect
# neither.
FALLING = (
    "accuracy_by_texture",
    "high_frequency_bias",
    "spectral_ratio",
    "critical_bandwidth",
    "texture_accuracy",
)
UNSIGNED = (
    "suppression_colour",
    "critical_centre",
    "grid_shuffle_di",
    "cut_occlusion",
    "iocclusion",
    "recoloured_accuracy",
)
Row = Mapping[str, str]


def read(path: pathlib.Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    return pd.read_csv(path, dtype=str, keep_default_na=False).to_dict("records")


def comparable(networks: Sequence[Row], rules: Mapping) -> dict[str, Row]:
    """Return the comparable networks by name, each with its dial; see docs/calibrate.md.

    The dial of trained networks is computed from the verified shares; the column "dial" is not read.
    """
    result = {}
    for row in networks:
        is_planned = row["planned_dial"] and not row["shortcut"]
        if not is_planned or row["family"] not in rules["share_families"]:
            continue
        if not row["verified_shape"] or is_flagged(row, rules["limits"]):
            continue
        verified = verified_reliance(row)
        if verified is None:
            continue
        dial = verified if row["family"] == "trained" else float(row["planned_dial"])
        is_mixed = row["family"] == "mixed_images"
        if is_mixed and abs(verified - dial) > rules["most_planting_error"]:
            continue
        result[row["network"]] = {**row, "dial": str(dial)}
    return result


def is_flagged(row: Row, limits: Mapping[str, float]) -> bool:
    """Return True for a network at chance, of few decisions, or that follows a shortcut."""
    images, verified_images = int(row["images"]), int(row["verified_images"])
    shape, texture, colour, size = (
        float(row[f"verified_{cue}"]) for cue in ("shape", "texture", "colour", "size")
    )
    tests = (
        (round(float(row["accuracy"]) * images), images, float(row["chance"])),
        (
            round((shape + texture) * verified_images),
            verified_images,
            2 / int(row["classes"]),
        ),
    )
    pvalues = [
        stats.binomtest(count, n, p, alternative="greater").pvalue
        for count, n, p in tests
    ]
    decisions = (shape + texture - 2 * guesses(row)) * verified_images
    return (
        max(pvalues) > limits["chance_p"]
        or round(decisions) < limits["least_decisions"]
        or colour + size - 2 * guesses(row) > limits["most_shortcut"]
    )


def guesses(row: Row) -> float:
    """Return the share of guesses for one class."""
    return float(row["verified_neither"] or 0) / (int(row["classes"]) - 4)


def verified_reliance(row: Row) -> float | None:
    """Return the share of decisions for shape among those for shape or texture, less guesses.

    Both shares are of the images with all combinations of cues. None without such decisions.
    """
    shape, texture = (
        max(0.0, float(row[f"verified_{cue}"]) - guesses(row))
        for cue in ("shape", "texture")
    )
    return shape / (shape + texture) if shape + texture else None


def read_dials(
    measure: str, pairs: Sequence[tuple[Row, Row]], curve: Mapping | None
) -> list[float]:
    """Return the dial that is read for each network, by the curve of the other groups.

    pairs: network and reading. curve: "values" and "dials" of a fixed curve; None: none is fixed.
    """
    values = [round(float(reading["value"]), DECIMALS) for _, reading in pairs]
    if curve is not None:
        return np.interp(values, curve["values"], curve["dials"]).tolist()
    dials = [float(network["dial"]) for network, _ in pairs]
    result = []
    for value, (network, _) in zip(values, pairs, strict=True):
        places = [k for k, (x, _) in enumerate(pairs) if x["group"] != network["group"]]
        x, y = ([numbers[k] for k in places] for numbers in (values, dials))
        rises = measure not in FALLING
        if measure in UNSIGNED:
            rises = not stats.spearmanr(x, y).statistic < 0
        fit = isotonic.IsotonicRegression(increasing=rises, out_of_bounds="clip")
        result.append(float(fit.fit(x, y).predict([value])[0]))
    return result


def recompute(
    measure: str,
    networks: Mapping[str, Row],
    readings: Sequence[Row],
    curve: Mapping | None,
    rules: Mapping,
) -> dict[str, float]:
    """Return the numbers of a measure by column of measures.csv; NaN with too few networks.

    curve: see `read_dials`. rules: content of rules.json.
    """
    pairs = [
        (networks[row["network"]], row)
        for row in readings
        if row["measure"] == measure and row["value"] and row["network"] in networks
    ]
    ranked = [pair for pair in pairs if pair[0]["family"] in SEES_IMAGES]
    result = dict.fromkeys(COLUMNS, math.nan)
    dials = np.array([float(network["dial"]) for network, _ in ranked])
    values = np.array([float(reading["value"]) for _, reading in ranked])
    values = values.round(DECIMALS)
    if len(ranked) > 2 and np.ptp(values) > 0 and np.ptp(dials) > 0:
        values *= direction(measure, values, dials, curve)
        result["rho"] = float(stats.spearmanr(values, dials).statistic)
        result["rho_lower"] = rho_lower(values, dials, [pair[0] for pair in ranked])
    if ranked and (
        curve is not None or len({network["group"] for network, _ in ranked}) > 1
    ):
        errors = np.abs(np.array(read_dials(measure, ranked, curve)) - dials)
        result["error"] = float(errors.mean())
        low, high = rules["middle_dials"]
        is_middle = (low < dials) & (dials < high)
        if is_middle.any():
            result["middle_error"] = float(errors[is_middle].mean())
    known = [
        pair
        for pair in pairs
        if pair[0]["family"] in DIAL_IS_KNOWN and pair[0]["level"] == "high"
    ]
    if known and measure in ESTIMATES_DIAL:
        result["bias"] = statistics.fmean(
            float(row["value"]) - float(network["dial"]) for network, row in known
        )
    covered = [
        float(row["lower"]) - 1e-12
        <= float(network["dial"])
        <= float(row["upper"]) + 1e-12
        for network, row in known
        if row["lower"] and row["upper"]
    ]
    if covered and measure in ESTIMATES_DIAL:
        result["coverage"] = statistics.fmean(covered)
    return result


def direction(
    measure: str,
    values: np.ndarray,
    dials: np.ndarray,
    curve: Mapping | None,
) -> int:
    """Return -1 if a measure falls with the dial, else 1; see `recompute` for curve."""
    if measure not in UNSIGNED:
        return -1 if measure in FALLING else 1
    if curve is not None:
        return -1 if curve["dials"][-1] < curve["dials"][0] else 1
    return -1 if stats.spearmanr(values, dials).statistic < 0 else 1


def rho_lower(values: np.ndarray, dials: np.ndarray, networks: Sequence[Row]) -> float:
    """Return the 2.5 % quantile of rho when clusters are drawn anew within families.

    NaN for fewer than five clusters.
    """
    clusters: dict[str, dict[str, list[int]]] = {}
    for place, network in enumerate(networks):
        of_family = clusters.setdefault(network["family"], {})
        of_family.setdefault(network["cluster"], []).append(place)
    if sum(map(len, clusters.values())) < 5:
        return math.nan
    rng = np.random.default_rng(1)
    drawn = []
    for _ in range(DRAWS):
        places = [
            place
            for of_family in clusters.values()
            for number in rng.integers(len(of_family), size=len(of_family))
            for place in [*of_family.values()][number]
        ]
        x, y = values[places], dials[places]
        if np.ptp(x) > 0 and np.ptp(y) > 0:
            ranks = stats.rankdata(x), stats.rankdata(y)
            drawn.append(np.corrcoef(ranks)[0, 1])
    return float(np.quantile(drawn, 0.025)) if drawn else math.nan


def compare(
    folder: pathlib.Path,
    rules: Mapping,
    curves: Mapping[str, Mapping] | None = None,
) -> Iterator[tuple[str, float, float]]:
    """Yield (measure and metric, published number, recomputed number).

    rules: content of rules.json. curves: knots by measure, for hidden networks.
    """
    readings = read(folder / "readings.csv")
    networks = comparable(read(folder / "networks.csv"), rules)
    for row in read(folder / "measures.csv"):
        measure = row["measure"]
        if curves is not None and measure not in curves:
            continue
        curve = None if curves is None else curves[measure]["knots"]
        numbers = recompute(measure, networks, readings, curve, rules)
        for metric, number in numbers.items():
            published = float(row[metric] or "nan")
            if not (math.isnan(published) and math.isnan(number)):
                yield f"{measure} {metric}", published, number


def main(argv: Sequence[str] | None = None) -> int:
    """Print the comparison; return 1 if a number differs, else 0."""
    arguments = command.parser("calibration_check", __doc__)
    arguments.add_argument(
        "--results",
        type=pathlib.Path,
        default=command.DOCS / "results/calibration",
        metavar="DIR",
        help="folder of the study's tables (default: docs/results/calibration)",
    )
    arguments.add_argument(
        "--rules",
        type=pathlib.Path,
        metavar="FILE",
        help="rules of the study (default: rules.json in --results)",
    )
    arguments.add_argument(
        "--curves",
        type=pathlib.Path,
        metavar="FILE",
        help="fixed curves, for hidden networks (default: fit curves again)",
    )
    options = arguments.parse_args(argv)
    rules = json.loads(
        (options.rules or options.results / "rules.json").read_text("utf-8")
    )
    curves = None
    if options.curves is not None:
        curves = json.loads(options.curves.read_text("utf-8"))["measures"]
    numbers = [*compare(options.results, rules, curves)]
    code = int(not numbers)
    if not numbers:
        print(f"{options.results}: no number to compare")
    for name, published, recomputed in numbers:
        tolerance = TOLERANCES.get(name.split()[1], TOLERANCE)
        is_equal = abs(published - recomputed) <= tolerance  # False for NaN.
        verdict = "equal" if is_equal else "DIFFERENT"
        print(f"{name}: {published:.5f}, recomputed {recomputed:.5f}: {verdict}")
        code = max(code, int(not is_equal))
    return code


if __name__ == "__main__":
    sys.exit(main())
