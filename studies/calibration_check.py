r"""Compute the main numbers of the study of calibration again, independently.

    python -m studies.calibration_check --results=docs/results/calibration

Reads networks.csv, readings.csv and rules.json of --results with the csv module, and imports nothing
of jbias.calibrating: rank correlations and isotonic regression are those of scipy and
scikit-learn, the rest is written again from the definitions in docs/calibrate.md, also the dial of
trained networks, from the shares of decisions that verify it. For the measures
with the smallest error, compares rho, error, bias and coverage with measures.csv, ten numbers in
all, and prints a line for each. Exit code 1 if one differs by more than 1e-5.

Takes about ten seconds on two cores.
"""

import csv
import json
import math
import pathlib
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence

from scipy import stats
from sklearn import isotonic

from studies import command

NUMBERS = 10
TOLERANCE = 1e-5  # measures.csv has six significant digits.
METRICS = ("rho", "error", "bias", "coverage")
Row = Mapping[str, str]


def read(path: pathlib.Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def ranked(
    networks: Sequence[Row], readings: Sequence[Row], rules: Mapping
) -> dict[str, Row]:
    """Return the ranked networks by name, each with its dial; see docs/calibrate.md.

    The dial of trained networks is computed from the verified shares; the column "dial" is not read.
    """
    limits = rules["limits"]
    by_cue = {
        row["network"]: (int(row["n"]), int(row["images"]))
        for row in readings
        if row["measure"] == "shape_bias" and row["n"]
    }
    result = {}
    for row in networks:
        if not row["planned_dial"] or row["shortcut"] or not row["accuracy"]:
            continue
        if row["family"] not in rules["share_families"]:
            continue
        images, chance = int(row["images"]), float(row["chance"])
        tests = [(round(float(row["accuracy"]) * images), images, chance)]
        if row["network"] in by_cue:
            count, conflicts = by_cue[row["network"]]
            tests.append((count, conflicts, 2 / int(row["classes"])))
            if count < limits["least_decisions"]:
                continue
        pvalues = [
            stats.binomtest(count, n, p, alternative="greater").pvalue
            for count, n, p in tests
            if n
        ]
        if max(pvalues) > limits["chance_p"]:
            continue
        shares = [row[f"verified_{cue}"] for cue in ("colour", "size")]
        if any(share and float(share) > limits["most_shortcut"] for share in shares):
            continue
        verified = verified_reliance(row)
        if verified is None:
            continue
        dial = verified if row["family"] == "trained" else float(row["planned_dial"])
        if abs(verified - dial) > rules["most_planting_error"]:
            continue
        result[row["network"]] = {**row, "dial": str(dial)}
    return result


def verified_reliance(row: Row) -> float | None:
    """Return the share of decisions for shape among those for shape or texture, less guesses.

    Both shares are of the images with all combinations of cues. None without such decisions.
    """
    if not row["verified_shape"]:
        return None
    guesses = float(row["verified_neither"] or 0) / (int(row["classes"]) - 4)
    shape, texture = (
        max(0.0, float(row[f"verified_{cue}"]) - guesses)
        for cue in ("shape", "texture")
    )
    return shape / (shape + texture) if shape + texture else None


def recompute(
    measure: str, networks: Mapping[str, Row], readings: Sequence[Row]
) -> dict[str, float]:
    """Return rho, error, bias and coverage of a measure whose value rises with the dial."""
    rows = [
        (networks[row["network"]], row)
        for row in readings
        if row["measure"] == measure and row["value"] and row["network"] in networks
    ]
    dials = [float(network["dial"]) for network, _ in rows]
    values = [float(row["value"]) for _, row in rows]
    differences = []
    for family in {network["family"] for network, _ in rows}:
        is_other = [network["family"] != family for network, _ in rows]
        fit = isotonic.IsotonicRegression(out_of_bounds="clip").fit(
            [value for value, other in zip(values, is_other, strict=True) if other],
            [dial for dial, other in zip(dials, is_other, strict=True) if other],
        )
        members = [k for k, other in enumerate(is_other) if not other]
        read_dials = fit.predict([values[k] for k in members])
        differences += [
            abs(x - dials[k]) for x, k in zip(read_dials, members, strict=True)
        ]
    covered = [
        float(row["lower"]) <= dial <= float(row["upper"])
        for dial, (_, row) in zip(dials, rows, strict=True)
        if row["lower"] and row["upper"]
    ]
    pairs = zip(values, dials, strict=True)
    return {
        "rho": float(stats.spearmanr(values, dials).statistic),
        "error": statistics.fmean(differences),
        "bias": statistics.fmean(value - dial for value, dial in pairs),
        "coverage": statistics.fmean(covered) if covered else math.nan,
    }


def compare(folder: pathlib.Path) -> Iterator[tuple[str, float, float]]:
    """Yield (measure and metric, published number, recomputed number), ten in all.

    Measures on the scale of the dial come first, as these have all four metrics.
    """
    readings = read(folder / "readings.csv")
    rules = json.loads((folder / "rules.json").read_text("utf-8"))
    networks = ranked(read(folder / "networks.csv"), readings, rules)
    measures = [row for row in read(folder / "measures.csv") if row["error"]]
    measures.sort(key=lambda row: (not row["bias"], float(row["error"])))
    count = 0
    for row in measures:
        numbers = recompute(row["measure"], networks, readings)
        for metric in METRICS:
            if row[metric] and count < NUMBERS:
                count += 1
                yield f"{row['measure']} {metric}", float(row[metric]), numbers[metric]


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
    options = arguments.parse_args(argv)
    code = 0
    for name, published, recomputed in compare(options.results):
        is_equal = abs(published - recomputed) <= TOLERANCE
        verdict = "equal" if is_equal else "DIFFERENT"
        print(f"{name}: {published:.5f}, recomputed {recomputed:.5f}: {verdict}")
        code = max(code, int(not is_equal))
    return code


if __name__ == "__main__":
    sys.exit(main())
