"""Report sections on measured networks: filtered images and the critical band."""

import dataclasses
import itertools
import math
import re
from collections.abc import Iterator

import pandas as pd

from jbias.measures import critical_band
from jbias.report import document, network_records
from jbias.report.pages.networks import network_blocks, network_plots

MeasuredNetwork = network_records.MeasuredNetwork
Measurement = network_records.Measurement
NetworksPage, Blocks = network_blocks.NetworksPage, document.Blocks


_FILTER = re.compile(r"(low|high) ([\d.]+)")


def frequencies(page: NetworksPage) -> Blocks:
    """Yield figures of accuracy on filtered images, and the table of spectral biases.

    The table has a row per network and measurement: accuracy on unfiltered images, its number of
    images, both biases with intervals, and the spectral ratio. Without measurements, None is
    yielded instead of the table.
    """
    if page.has_figures:
        for suffix, measurement, networks in page.by_measurement("spectral"):
            rows = [
                point
                for network in networks
                for point in _filter_points(network, measurement)
            ]
            drawn = page.curves(rows)
            if drawn is not None:
                yield document.Figure(
                    f"filters{suffix}",
                    f"Accuracy on filtered images of {measurement.dataset}: low-pass filters keep "
                    "the inner share of frequencies, high-pass filters the outer one.",
                    drawn,
                )
    metrics = network_records.ended("low_freq_bias", "high_freq_bias")
    metrics.append("spectral_ratio")
    rows = []
    for network, measurement, row in page.measurements("spectral"):
        clean = network.number(measurement, "accuracy", "unfiltered")
        row |= {"clean": clean and clean.value, "n": clean and clean.n}
        rows.append(row | network.values(measurement, metrics))
    yield network_blocks.table(
        "spectral",
        "Spectral biases: mean ratio, over the cut-offs 0.1 to 0.5, of accuracy on filtered "
        "images to that on clean ones. Spectral ratio: high / (low + high). "
        f"{network_blocks.BRACKETS}",
        rows,
        network_blocks.columns(
            "network set n:d clean:% low_freq_bias:.3[] high_freq_bias:.3[] spectral_ratio:.3",
            n="images",
            clean="clean accuracy",
        ),
    )


def _filter_points(
    network: MeasuredNetwork, measurement: Measurement
) -> Iterator[tuple[str, str, float, str, float | None]]:
    """Yield (panel, x label, cut-off, network, accuracy) of each filter, for `NetworksPage.curves`.

    The panel is "low-pass" or "high-pass"; accuracy is from 0 to 1.
    """
    for number in network.numbers[measurement]:
        match = _FILTER.fullmatch(number.condition)
        if match and number.metric == "accuracy":
            x_label = "cut-off, share of frequencies"
            cut_off = float(match[2])
            yield f"{match[1]}-pass", x_label, cut_off, network.name, number.value


_NOISE = re.compile(r"(?:noise|original) ([\d.]+)(?: at ([\d.]+))?")
# Reasons why there is no band, by the flag of jbias.measures.critical_band.
_FLAG_REASONS = {
    "all_critical": "all strengths do harm in each octave",
    "no_critical_band": "no strength does harm",
    "flat": "all octaves do the same harm",
    "narrow": "narrower than octaves can resolve",
    "center_below": "its centre is below the octaves",
    "center_above": "its centre is above the octaves",
    "unknown": "too few images for all octaves",
}


def noise_band(page: NetworksPage) -> Blocks:
    """Yield heat maps of accuracy under noise with the fitted bands, and the table of bands.

    There is a figure per measurement. The table has a row per network and measurement. For a
    network without a band, the numbers are missing, and the column "why" has the reason.
    """
    if page.has_figures:
        for suffix, measurement, networks in page.by_measurement("critical_band"):
            figure = _critical_band_figure(page, measurement, networks)
            # One figure per measurement, named after the measurement if there are several.
            yield dataclasses.replace(figure, name=suffix[1:] or figure.name)
    names = network_records.ended(
        "bandwidth", "center_frequency", "peak_noise_sensitivity"
    )
    rows = []
    for network, measurement, row in page.measurements("critical_band"):
        prefix = _band_prefix(network, measurement)
        reason = why_no_band(network, measurement)
        numbers = network.values(measurement, [f"{prefix}{name}" for name in names])
        width = network.number(measurement, f"{prefix}bandwidth")
        undefined = network.number(measurement, f"{prefix}bandwidth_undefined")
        row = {"network": network.name, "measure": measurement.measure} | row
        for name in names:
            row[name] = None if reason else numbers[f"{prefix}{name}"]
        row["n"] = width and width.n
        row["undefined"] = undefined and undefined.value
        row["why"] = reason
        rows.append(row)
    yield network_blocks.table(
        "critical_band",
        "The critical band, a Gaussian fitted over octaves: bandwidth in octaves, "
        "centre in nominal cycles per image; without a band: bootstrap's draws in %. An end of the "
        f"centre's interval that is not given is outside the octaves. {network_blocks.BRACKETS}",
        rows,
        network_blocks.columns(
            "network measure set n:d bandwidth:.2[] center_frequency:.2[] "
            "peak_noise_sensitivity:.3[] undefined:% why",
            n="images",
            undefined="without a band",
        ),
    )


def _critical_band_figure(
    page: NetworksPage, measurement: Measurement, networks: network_blocks.Networks
) -> document.Figure:
    """Return the figure of accuracy under noise: a heat map per network, with its fitted band.

    The caption lists networks without a band, with the reason if known.
    """
    panels = {}
    bands = {}
    without_band = []
    for network in networks:
        accuracies = noise_accuracies(network, measurement)
        band = fitted_band(network, measurement, accuracies)
        panels[network.name], bands[network.name] = accuracies, band
        if not band:
            reason = why_no_band(network, measurement)
            without_band.append(
                f"{network.name} ({reason})" if reason else network.name
            )
    drawn = network_plots.heat(
        panels,
        cell=(0.42, 0.22),
        x_label="cycles per image",
        y_label="strength of noise",
        bands=bands,
    )
    no_band = f" No band: {', '.join(without_band)}." if without_band else ""
    return document.Figure(
        "critical_band",
        f"{measurement.measure} on {measurement.dataset}: accuracy in % under noise, by its "
        "strength and its octave. Above: the fitted band with its centre, cut where the cells "
        f"end.{no_band}",
        drawn,
    )


def _band_prefix(network: MeasuredNetwork, measurement: Measurement) -> str:
    """Return the prefix of the metrics of a critical band, such as "critical_band_"."""
    options = network.measures[measurement]["measure"]["options"]
    variant = options.get("variant", "bvg")
    return "critical_band_" if variant == "bvg" else f"critical_band_{variant}_"


def why_no_band(network: MeasuredNetwork, measurement: Measurement) -> str | None:
    """Return a phrase on the reason why a network has no critical band.

    The reason is the first stored flag of `_FLAG_REASONS`, or that the stored band is too narrow or
    has its centre outside the octaves. None if the network has a band, or if the reason is unknown.
    """
    prefix = _band_prefix(network, measurement)
    flags = [f"{prefix}{flag}" for flag in _FLAG_REASONS]
    flag_values = network.values(measurement, flags).values()
    reason = next(itertools.compress(_FLAG_REASONS.values(), flag_values), None)
    names = [f"{prefix}bandwidth", f"{prefix}center_frequency"]
    width, centre = network.values(measurement, names).values()
    if reason or width is None or centre is None:
        return reason
    columns = noise_accuracies(network, measurement).columns
    frequencies = [float(column) for column in columns]
    flag = critical_band.flag_of_numbers(width, centre, frequencies)
    return _FLAG_REASONS.get(flag)


def noise_accuracies(
    network: MeasuredNetwork, measurement: Measurement
) -> pd.DataFrame:
    """Return accuracy from 0 to 1 by strength of noise (rows) and octave (columns).

    The weakest noise is last; the row "0" is accuracy without noise, NaN if not measured. The
    labels of rows and columns are text.
    """
    accuracies = {}
    clean = []
    for number in network.numbers[measurement]:
        match = _NOISE.fullmatch(number.condition)
        if match and number.metric == "accuracy":
            strength, frequency = match.groups()
            if frequency:
                accuracies[float(strength), float(frequency)] = number.value
            else:
                clean.append(number.value)
    frame = pd.Series(accuracies, dtype=float).unstack()
    if 0.0 not in frame.index:  # Without noise, accuracy is the same in all octaves.
        frame.loc[0.0] = clean[0] if clean else math.nan
    frame = frame.sort_index(ascending=False)
    return frame.rename(columns="{:g}".format, index="{:g}".format)


def fitted_band(
    network: MeasuredNetwork, measurement: Measurement, accuracies: pd.DataFrame
) -> network_plots.Band | None:
    """Return the fitted band in octaves above the lowest column of `accuracies`, or None.

    accuracies: the result of `noise_accuracies`. None if there is no band.
    """
    prefix = _band_prefix(network, measurement)
    names = [f"{prefix}bandwidth", f"{prefix}center_frequency"]
    width, centre = network.values(measurement, names).values()
    if width is None or centre is None or why_no_band(network, measurement):
        return None
    octave = math.log2(centre / float(accuracies.columns[0]))
    return network_plots.Band(octave - width / 2, octave, octave + width / 2)
