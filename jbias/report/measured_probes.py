"""Tables of what probes measured."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from jbias.report import measured_cells, measured_read, tables

_PNS = "peak_noise_sensitivity"
# The flags of jbias.evals.critical_band, as the numbers are called.
_WHY = {
    "all_critical": "all strengths do harm in each octave",
    "no_critical_band": "no strength does harm",
    "flat": "all octaves do the same harm",
    "unknown": "too few images for all octaves",
}


def spectral(networks: measured_cells.Networks) -> tables.Table | None:
    metrics = [
        *measured_cells.ended("low_freq_bias"),
        *measured_cells.ended("high_freq_bias"),
        "spectral_ratio",
    ]
    rows = []
    for one in networks:
        for place in one.of("spectral"):
            clean = one.number(place, "accuracy", "unfiltered")
            row = {"network": one.name, "set": place[1]}
            row |= {"clean": clean and clean.value, "n": clean and clean.n}
            rows.append(row | measured_cells.values(one, place, metrics))
    return tables.from_rows(
        "spectral",
        "Spectral biases: mean ratio, over the cut-offs 0.1 to 0.5, of accuracy on filtered "
        "images to that on clean ones, with bootstrap intervals of 95 % over images. Ratio: "
        "high / (low + high).",
        rows,
        {
            "network": ("Network", str),
            "set": ("set", str),
            "n": ("images", tables.whole),
            "clean": ("clean in %", tables.percent),
            "low_freq_bias": ("low", tables.digits(3)),
            "low_freq_bias_lower": ("from", tables.digits(3)),
            "low_freq_bias_upper": ("to", tables.digits(3)),
            "high_freq_bias": ("high", tables.digits(3)),
            "high_freq_bias_lower": ("from", tables.digits(3)),
            "high_freq_bias_upper": ("to", tables.digits(3)),
            "spectral_ratio": ("ratio", tables.digits(3)),
        },
    )


def critical_band(networks: measured_cells.Networks) -> tables.Table | None:
    rows = []
    for one in networks:
        for place in one.of("critical_band"):
            prefix = band_prefix(one, place)
            metrics = ("bandwidth", "center_frequency", _PNS)
            row = {"network": one.name, "measure": place[0], "set": place[1]}
            for metric in metrics:
                told = measured_cells.values(
                    one, place, measured_cells.ended(f"{prefix}_{metric}")
                )
                row |= {k.removeprefix(f"{prefix}_"): v for k, v in told.items()}
            first, lost = (
                one.number(place, f"{prefix}_bandwidth{end}")
                for end in ("", "_undefined")
            )
            row |= {"n": first and first.n}
            row |= {"undefined": lost and lost.value, "why": why(one, place)}
            rows.append(row)
    return tables.from_rows(
        "critical_band",
        "The critical band: a Gaussian over octaves, fitted to how many strengths of noise do "
        "harm; with bootstrap intervals of 95 % over images. Bandwidth in octaves, centre "
        "in nominal cycles per image. –: no band. Without: share of the bootstrap's draws "
        "that have no band, in %.",
        rows,
        {
            "network": ("Network", str),
            "measure": ("measure", str),
            "set": ("set", str),
            "n": ("images", tables.whole),
            "bandwidth": ("bandwidth", tables.digits(2)),
            "bandwidth_lower": ("from", tables.digits(2)),
            "bandwidth_upper": ("to", tables.digits(2)),
            "center_frequency": ("centre", tables.digits(2)),
            "center_frequency_lower": ("from", tables.digits(2)),
            "center_frequency_upper": ("to", tables.digits(2)),
            _PNS: ("sensitivity", tables.digits(3)),
            f"{_PNS}_lower": ("from", tables.digits(3)),
            f"{_PNS}_upper": ("to", tables.digits(3)),
            "undefined": ("without", tables.percent),
            "why": ("why none", lambda words: words),
        },
    )


def why(one: measured_read.Network, place: measured_read.Place) -> str | None:
    """Says in words why a network has no critical band; None where it has one."""
    prefix = band_prefix(one, place)
    for flag, words in _WHY.items():
        number = one.number(place, f"{prefix}_{flag}")
        if number and number.value:
            return words
    return None


def band_prefix(one: measured_read.Network, place: measured_read.Place) -> str:
    """Gives what the names of a critical band's numbers begin with."""
    variant = one.measures[place]["measure"]["options"].get("variant", "bvg")
    return "critical_band" if variant == "bvg" else f"critical_band_{variant}"


def corruptions(networks: measured_cells.Networks) -> list[tables.Table]:
    """Gives a table for each set that was corrupted, and one of published files."""
    return [_corruptions(networks, *one) for one in measured_cells.corrupted(networks)]


def _corruptions(
    networks: measured_cells.Networks, ending: str, told: str, cells: Mapping
) -> tables.Table:
    names = dict.fromkeys(name for each in cells.values() for name, _ in each)
    those = [one for one in networks if one.name in cells]
    data, rows = [], []
    for name in names:
        row = [name.replace("_", " ")]
        for one in those:
            mine = {s: v for (other, s), v in cells[one.name].items() if other == name}
            row.append(tables.percent(np.mean([*mine.values()])) if mine else "–")
            for severity, value in mine.items():
                place = {"network": one.name, "images": told, "corruption": name}
                data.append({**place, "severity": severity, "accuracy": value})
        rows.append(tuple(row))
    severities = sorted({row["severity"] for row in data})
    return tables.Table(
        name=f"corruptions{ending}",
        caption=f"Accuracy in % on corrupted {told}, mean over severity "
        f"{tables.join([str(one) for one in severities])}; the CSV file has each.",
        head=("Corruption", *(one.name for one in those)),
        rows=tuple(rows),
        data=pd.DataFrame(data),
    )


def attacks(networks: measured_cells.Networks) -> tables.Table | None:
    counts: dict[str, dict] = {}
    for one in networks:
        for place in (*one.of("pgd"), *one.of("fgsm")):
            for number in one.numbers[place]:
                strict = ", right before, too" if "_strict" in number.metric else ""
                if "_accuracy" in number.metric and number.count is not None:
                    name = f"{place[0]} {number.condition}{strict}"
                    pair = int(number.count), number.n
                    counts.setdefault(one.name, {})[name] = pair
    caption = "Accuracy under attack, by measure, norm and budget."
    return measured_cells.beside("attacks", caption, "attack", networks, counts)


def calibration(networks: measured_cells.Networks) -> tables.Table | None:
    metrics = ("ece", "ece_mass", "nll", "brier_top")
    rows = []
    for one in networks:
        for place in one.of("calibration"):
            rules = dict.fromkeys(n.condition for n in one.numbers[place])
            for rule in rules:
                number = one.number(place, "ece", rule)
                row = {
                    "network": one.name,
                    "set": place[1],
                    "rule": one.rule(place, rule),
                }
                row |= {"n": number and number.n}
                rows.append(row | measured_cells.values(one, place, metrics, rule))
    return tables.from_rows(
        "calibration",
        "Calibration; smaller is better in all. ECE: expected calibration error over 15 bins "
        "of equal width, and over bins of equally many images; NLL in nats; Brier: that of "
        "the decided class.",
        rows,
        {
            "network": ("Network", str),
            "set": ("set", str),
            "rule": ("rule", str),
            "n": ("images", tables.whole),
            "ece": ("ECE", tables.digits(4)),
            "ece_mass": ("ECE, equal bins", tables.digits(4)),
            "nll": ("NLL", tables.digits(3)),
            "brier_top": ("Brier", tables.digits(4)),
        },
    )


def decoding(networks: measured_cells.Networks) -> tables.Table | None:
    metrics = (
        *("shape_decoding", "shape_decoding_shuffled"),
        *("texture_decoding", "texture_decoding_shuffled"),
        *("shape_dimensions", "texture_dimensions", "residual_dimensions"),
    )
    rows = [
        {"network": one.name, "set": place[1], "site": number.condition}
        | measured_cells.values(one, place, metrics, number.condition)
        for one in networks
        for place in one.of("decoding")
        for number in one.numbers[place]
        if number.metric == "shape_decoding"
    ]
    return tables.from_rows(
        "decoding",
        "What a linear decoder reads off the features at each site, in % of images; shuffled: "
        "where nothing is known. Neurons: shares for shape, texture and the rest.",
        rows,
        {
            "network": ("Network", str),
            "site": ("site", str),
            "shape_decoding": ("shape", tables.percent),
            "shape_decoding_shuffled": ("shuffled", tables.percent),
            "texture_decoding": ("texture", tables.percent),
            "texture_decoding_shuffled": ("shuffled", tables.percent),
            "shape_dimensions": ("neurons: shape", tables.digits(3)),
            "texture_dimensions": ("texture", tables.digits(3)),
            "residual_dimensions": ("rest", tables.digits(3)),
        },
    )


def receptive_fields(networks: measured_cells.Networks) -> tables.Table | None:
    rows: dict[tuple, dict] = {}
    for one in networks:
        for place in one.of("receptive_field"):
            for number in one.numbers[place]:
                site, _, share = number.condition.rpartition(" ")
                row = rows.setdefault(
                    (one.name, *place, site), {"network": one.name, "site": site}
                )
                row[f"{number.metric} {share}"] = number.value
    columns = dict.fromkeys(key for row in rows.values() for key in row)
    heads = {
        key: (
            f"{key.removeprefix('receptive_').replace('%', ' %')}",
            tables.digits(1),
        )
        for key in columns
        if key.startswith("receptive_")
    }
    return tables.from_rows(
        "receptive_fields",
        "Effective receptive field of each site's middle unit: the pixels that hold a share of "
        "it (area), and the radius in pixels of the disc that does.",
        list(rows.values()),
        {"network": ("Network", str), "site": ("site", str), **heads},
    )
