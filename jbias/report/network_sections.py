"""The sections of a page of measured networks, in their order: figures, and tables of all numbers.

Those of shape and texture lie in `shape_sections`, what they share in `network_page`.
"""

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from jbias.data import tables as data_tables
from jbias.evals import (
    accuracy,
    calibration,
    corruption_error,
    critical_band,
    decisions,
)
from jbias.report import network_frame, network_page, network_plots, tables
from jbias.report import shape_sections as shapes

MeasuredNetwork, Place = network_page.MeasuredNetwork, network_page.Place
Page, Blocks, ended = network_page.Page, network_page.Blocks, network_page.ended

_CLASSES = 100  # Of a confusion that is drawn.
_NOT_KEPT = "its decisions were not kept (the suite's run.decisions)"
_BRIEF = tables.columns(
    "network set accuracy:% shape:.3 decisions low_freq:.3 high_freq:.3 cb_bw:.2 cb_cf:.1 "
    "cb_pns:.2 imagenet_c:% pgd:% ece:.3 error_consistency:.3 sets:d",
    **network_frame.TITLES,
) | {"decisions": network_page.DECISIONS}


def _overview(page: Page) -> Blocks:
    rows = []
    for one in page.networks:
        found = network_frame.row_of(one).numbers
        dataset, number = one.accuracy or (None, None)
        told = shapes.like_people(one).get("error_consistency")
        row = {"network": one.name, "set": dataset, "accuracy": number and number.value}
        row |= {key: found.get(key) for key in ("shape", "low_freq", "high_freq")}
        row["decisions"] = found.get("shape_n")
        row |= {key: found.get(key) for key in ("cb_bw", "cb_cf", "cb_pns")}
        row |= {key: found.get(key, math.nan) / 100 for key in ("imagenet_c", "pgd")}
        for place in one.places_of("calibration")[:1]:
            row |= one.values(place, ["ece"])
        row |= {"error_consistency": told and told.value, "sets": told and told.n}
        rows.append(row)
    known = {key for row in rows for key, value in row.items() if pd.notna(value)}
    words = (told for key, told in network_page.OVERVIEW.items() if key in known)
    caption = " ".join((network_page.TABLES["overview"], *words))
    yield tables.from_rows("overview", caption, rows, _BRIEF)


def _accuracy(page: Page) -> Blocks:
    """Yield figure and table of accuracy by set, the main set first, without single corruptions."""
    counts: dict[str, dict] = {one.name: {} for one in page.networks}
    for one in page.networks:
        main = one.accuracy and one.accuracy[0]
        files = one.corrupted.get(corruption_error.FILES, ())
        single = {f"{name}-{severity}" for name, severity in files}
        for place in sorted(one.places_of("plain"), key=lambda place: place[1] != main):
            measure, dataset = place
            number = one.number(place, "accuracy") or one.number(place, "real_accuracy")
            if number and number.n and dataset not in single:
                name = dataset if measure == "accuracy" else f"{dataset} ({measure})"
                counts[one.name][name] = int(number.count), number.n
    if page.drawn and any(counts.values()):
        yield page.figure("accuracy", network_plots.accuracies(counts))
    yield page.shares("accuracy", "set", {"": counts})


_FILTER = re.compile(r"(low|high) ([\d.]+)")


def _spectral(page: Page) -> Blocks:
    for ending, place, those in page.places("spectral"):
        label = "cut-off, share of frequencies"
        rows = [
            (f"{match[1]}-pass", label, float(match[2]), one.name, number.value)
            for one in those
            for number in one.numbers[place]
            if number.metric == "accuracy"
            and (match := _FILTER.fullmatch(number.condition))
        ]
        yield page.figure("filters", page.curves(rows), ending, set=place[1])
    metrics, rows = ended("low_freq_bias", "high_freq_bias"), []
    for one, place, row in page.each("spectral"):
        clean = one.number(place, "accuracy", "unfiltered")
        row |= {"clean": clean and clean.value, "n": clean and clean.n}
        rows.append(row | one.values(place, [*metrics, "spectral_ratio"]))
    yield page.table("spectral", rows)


_NOISE = re.compile(r"(?:noise|original) ([\d.]+)(?: at ([\d.]+))?")
# The flags of jbias.evals.critical_band, as the numbers are called.
_WHY = {
    "all_critical": "all strengths do harm in each octave",
    "no_critical_band": "no strength does harm",
    "flat": "all octaves do the same harm",
    "narrow": "narrower than octaves can tell",
    "center_below": "its centre is below the octaves",
    "center_above": "its centre is above the octaves",
    "unknown": "too few images for all octaves",
}


def _critical_band(page: Page) -> Blocks:
    for ending, place, those in page.places("critical_band"):
        panels = {one.name: noise(one, place) for one in those}
        bands = {one.name: band(one, place, panels[one.name]) for one in those}
        lost = {one.name: no_band(one, place) for one in those if not bands[one.name]}
        lost = [f"{name} ({why})" if why else name for name, why in lost.items()]
        lost = f" No band: {', '.join(lost)}." if lost else ""
        look = dict(across="cycles per image", down="strength of noise", bands=bands)
        drawn = network_plots.heat(panels, cell=(0.42, 0.22), **look)
        facts = dict(measure=place[0], set=place[1], lost=lost)
        told = page.figure("critical_band", drawn, **facts)
        yield told if not ending else dataclasses.replace(told, name=ending[1:])
    metrics = ended("bandwidth", "center_frequency", "peak_noise_sensitivity")
    rows = []
    for one, place, row in page.each("critical_band"):
        prefix = _prefix(one, place)
        told = one.values(place, [prefix + name for name in metrics]).values()
        if why := no_band(one, place):
            told = [None] * len(metrics)
        width = one.number(place, f"{prefix}bandwidth")
        lost = one.number(place, f"{prefix}bandwidth_undefined")
        row = {"network": one.name, "measure": place[0]} | row
        row |= dict(zip(metrics, told, strict=True))
        row |= {"n": width and width.n, "undefined": lost and lost.value}
        rows.append(row | {"why": why})
    yield page.table("critical_band", rows)


def _prefix(one: MeasuredNetwork, place: Place) -> str:
    """Return the prefix of the metrics of a critical band."""
    variant = one.measures[place]["measure"]["options"].get("variant", "bvg")
    return "critical_band_" if variant == "bvg" else f"critical_band_{variant}_"


def no_band(one: MeasuredNetwork, place: Place) -> str | None:
    """Return the reason, as text, why a network has no critical band; None if it has one."""
    prefix = _prefix(one, place)
    told = one.values(place, [prefix + flag for flag in _WHY]).values()
    flagged = next(itertools.compress(_WHY.values(), told), None)
    names = [prefix + end for end in ("bandwidth", "center_frequency")]
    numbers = one.values(place, names).values()
    if flagged or None in numbers:
        return flagged
    frequencies = [float(column) for column in noise(one, place).columns]
    return _WHY.get(critical_band.flag_of_numbers(*numbers, frequencies))


def noise(one: MeasuredNetwork, place: Place) -> pd.DataFrame:
    """Return accuracy by strength of noise (rows, weakest last) and octave (columns)."""
    found = {
        match.groups(): number.value
        for number in one.numbers[place]
        if number.metric == "accuracy" and (match := _NOISE.fullmatch(number.condition))
    }
    noisy = {(float(a), float(b)): value for (a, b), value in found.items() if b}
    frame = pd.Series(noisy, dtype=float).unstack()
    if 0.0 not in frame.index:  # No noise is the same in all octaves.
        frame.loc[0.0] = next((v for (_, b), v in found.items() if not b), math.nan)
    frame = frame.sort_index(ascending=False)
    return frame.rename(columns="{:g}".format, index="{:g}".format)


def band(
    one: MeasuredNetwork, place: Place, cells: pd.DataFrame
) -> network_plots.Band | None:
    """Return the fitted band in octaves above the lowest column of `cells`, or None."""
    names = [_prefix(one, place) + end for end in ("bandwidth", "center_frequency")]
    width, centre = one.values(place, names).values()
    if None in (width, centre) or no_band(one, place):
        return None
    at = math.log2(centre / float(cells.columns[0]))
    return network_plots.Band(at - width / 2, at, at + width / 2)


def _corruption_errors(page: Page) -> tables.Table | None:
    """Return the table of mean errors and mCE, with the reason for a missing mCE."""
    rows, notes = [], {}
    for network in page.networks:
        for place in network.corrupted:
            for summary in network.error_summaries(place):
                images = _corrupted_images(network, place, summary)
                row = {"network": network.name, "images": images}
                row["corruptions"] = len(summary.names)
                row |= {"mean_error": summary.mean, "mce": summary.mce}
                rows.append(row | {"relative_mce": summary.relative_mce})
                if note := why_no_mce(network, place, summary):
                    notes.setdefault(note, []).append(network.name)
    told = [
        note if len(names) == len(page.networks) else f"{', '.join(names)}: {note}"
        for note, names in notes.items()
    ]
    percent = {
        "mean_error": ("mean error", tables.percent),
        "mce": ("mCE", tables.percent),
        "relative_mce": ("relative mCE", tables.percent),
    }
    caption = network_page.TABLES["corruption_errors"]
    return tables.from_rows(
        "corruption_errors",
        caption.format(notes="".join(f" {note}" for note in told)),
        rows,
        tables.columns("network images corruptions:d") | percent,
    )


def _corrupted_images(
    network: MeasuredNetwork, place: Place, summary: corruption_error.ErrorSummary
) -> str:
    """Return what the corrupted images are called, such as "imagenet (imagenet_c)"."""
    measure, dataset = place
    if place == corruption_error.FILES:
        measure, dataset = "files", "as published"
    several = len([*network.error_summaries(place)]) > 1
    is_bar = {*summary.names, *summary.missing} != {*corruption_error.COMMON}
    family = "ImageNet-C-bar's" if is_bar else "ImageNet-C's"
    return f"{dataset} ({measure}{f', {family}' if several else ''})"


def why_no_mce(
    network: MeasuredNetwork, place: Place, summary: corruption_error.ErrorSummary
) -> str:
    """Return why there is no mCE over the fifteen corruptions; "" where there is.

    Of ImageNet-C-bar nobody expects one: "".
    """
    if summary.mce is not None or {*summary.names, *summary.missing} != {
        *corruption_error.COMMON
    }:
        return ""
    reasons = []
    if not network.is_imagenet_c(place):
        whose = "are not ImageNet's at 224 pixels with its 1,000 classes"
        reasons.append(f"images {f'of {place[1]}' if place[1] else 'here'} {whose}")
    if summary.missing:
        reasons.append(_why_missing(network, place, summary.missing))
    why = " and ".join(reasons)
    rest = "nor a mean error, as no corruption has all five severities"
    if summary.mean is not None:
        mean = tables.percent(summary.mean)
        rest = f"the mean error over the {len(summary.names)} that are here is {mean} %"
    why = f"{why[0].upper()}{why[1:]}"
    return f"{why}, so there is no mCE over 15 corruptions; {rest}."


def _why_missing(network: MeasuredNetwork, place: Place, missing: Sequence[str]) -> str:
    """Return which corruptions are left out, and why."""
    if [*missing] != ["frost"]:
        names = tables.join([name.replace("_", " ") for name in missing])
        are = "is" if len(missing) == 1 else "are"
        return f"{names} {are} left out, as not all five severities were measured"
    options = network.measures.get(place, {}).get("measure", {}).get("options", {})
    why = "not all five severities were measured"
    if place == corruption_error.FILES:
        why = "its files were not measured"
    elif not options.get("frost"):
        why = "its photographs are not shipped (frost=DIR names their folder)"
    return f"frost is left out because {why}"


def _corruptions(page: Page) -> Blocks:
    """Yield figures and tables of each corrupted set, and of the published files.

    Measures of one set are together, such as ImageNet-C and C-bar, unless they share a
    condition. Means and mCE come first.
    """
    yield _corruption_errors(page)
    cells = [
        (one.name, measure, dataset, name, severity, value)
        for one in page.networks
        for (measure, dataset), found in one.corrupted.items()
        for (name, severity), value in found.items()
    ]
    keys = ["network", "measure", "set", "corruption", "severity", "accuracy"]
    every = pd.DataFrame(cells, columns=keys)
    shared = every["set"][every.duplicated(["network", *keys[2:5]])]
    every["measure"] = every["measure"].where(every["set"].isin(shared), "")
    groups = every.groupby(["measure", "set"], sort=False)
    for (measure, on), part in groups:
        ending = "".join(f"_{x}" for x in (measure, on) if x) if len(groups) > 1 else ""
        images = f"images of {on}" if on else "images as published"
        images += f" (measure {measure})" if measure else ""
        names = {name: i for i, name in enumerate(part["corruption"].unique())}
        order = part["corruption"].map(names).sort_values(kind="stable").index
        data = part.loc[order, ["network", "corruption", "severity", "accuracy"]]
        data.insert(1, "images", images)
        networks, cell = part["network"].unique(), ["network", "corruption"]
        wide = data.pivot(index=cell, columns="severity", values="accuracy")
        by = [wide.loc[one].reindex([*names]) for one in networks]
        by = [one.rename(lambda name: name.replace("_", " ")) for one in by]
        if page.drawn:
            panels, look = dict(zip(networks, by)), dict(across="severity", down="")
            drawn = network_plots.heat(panels, cell=(0.34, 0.2), **look)
            yield page.figure("corruptions", drawn, ending, images=images)
        severities = tables.join(map(str, wide))
        facts = dict(images=images, severities=severities)
        for name, one in zip(networks, by, strict=True):
            if one.isna().any(axis=None):
                told = f"not every corruption of {images} has severity {severities}"
                page.notes.append(f"{name}: {told}; where one lacks, there is no mean.")
        means = pd.concat([one.mean(axis=1, skipna=False) for one in by], axis=1)
        yield tables.from_rows(
            f"corruptions{ending}",
            network_page.TABLES["corruptions"].format(**facts),
            means.reset_index(),
            tables.columns("corruption")
            | {i: (one, tables.percent) for i, one in enumerate(networks)},
            data=data,
        )


_ATTACK = re.compile(r"(linf|l2) ([\d.]+)(/255)?(.*)")
_NORMS = {"linf": "ℓ∞", "l2": "ℓ2"}


def _attacks(page: Page) -> Blocks:
    rows, counts = [], {}
    for one, place, _ in page.each("pgd", "fgsm"):
        by = counts.setdefault(place[1], {}).setdefault(one.name, {})
        for number in one.numbers[place]:
            strict = ", right before, too" if "_strict" in number.metric else ""
            if "_accuracy" in number.metric and number.count is not None:
                name = f"{place[0]} {number.condition}{strict}"
                by[name] = int(number.count), number.n
            match = _ATTACK.fullmatch(number.condition)
            if match and number.metric in ("pgd_accuracy", "fgsm_accuracy"):
                norm = _NORMS[match[1]]
                title = f"{place[0]} on {place[1]}, {norm}{match[4]}"
                label = f"budget ({norm}{', in 1/255' if match[3] else ''})"
                rows.append((title, label, float(match[2]), one.name, number.value))
    if page.drawn and (drawn := page.curves(rows, least=2)):
        yield page.figure("attacks", drawn)
    yield page.shares("attacks", "attack", counts)


def _calibration(page: Page) -> Blocks:
    for ending, place, those in page.places("calibration"):
        found = {}
        for one in those:
            options = one.measures[place]["measure"]["options"]
            if decided := one.decided(place).get(""):
                bins = options.get("bins", calibration.BINS)
                found[one.name] = calibration.of_decisions(decided, bins=bins)
            else:
                page.notes.append(f"{one.name}: no reliability is drawn: {_NOT_KEPT}.")
        if found:
            drawn = network_plots.reliability(found)
            yield page.figure("reliability", drawn, ending, set=place[1])
    rows = [
        row
        | {"rule": one.rule(place, number.condition), "n": number.n}
        | one.values(place, ("ece", "ece_mass", "nll", "brier_top"), number.condition)
        for one, place, row, number in page.numbers("calibration", "ece")
    ]
    yield page.table("calibration", rows)


def _classes(page: Page) -> Blocks:
    every = page.class_counts("classes", "class_accuracy")
    for dataset, counts in every.items() if page.drawn else ():
        whole = {one.name: counts.get(one.name, {}) for one in page.networks}
        drawn = network_plots.accuracies(whole, best_first=True)
        ending = f"_{dataset}" * (len(every) > 1)
        yield page.figure("classes", drawn, ending, set=dataset)
    for ending, place, one in page.singly("classes"):
        if (found := confusion(one, place)) is None:
            page.notes.append(f"{one.name}: no confusion is told: {_NOT_KEPT}.")
        elif len(found[1]) > _CLASSES:
            told = f"{one.name}: {len(found[1])} classes are too many to draw their confusion"
            page.notes.append(f"{told}; the table has the largest shares.")
        else:
            drawn = network_plots.confusion(*found[:2])
            facts = dict(network=one.name, set=place[1])
            yield page.figure("confusion", drawn, ending, **facts)
    yield page.shares("classes", "class", every, "class_accuracy")
    yield confusions(page)


def confusion(one: MeasuredNetwork, place: Place):
    """Return the confusion matrix in %, its classes, and their numbers of images, or None."""
    decided = one.decided(place).get("")
    if decided is None:
        return None
    label = decided.columns["label"]
    k = int(max(label.max(), decided.prediction.max())) + 1
    names = one.classes(place) or tuple(map(str, range(k)))
    matrix = accuracy.confusion(decided.prediction, label, len(names))
    sizes = np.bincount(label[label >= 0], minlength=len(names))
    return matrix, tuple(map(data_tables.readable, names)), sizes


def confusions(page: Page) -> tables.Table | None:
    """Return the table of the most frequent confusions; None without any.

    Confusions of a single image are left out.
    """
    wilson = functools.cache(decisions.wilson_interval)
    rows = []
    for one, place, row in page.each("classes"):
        if (found := confusion(one, place)) is None:
            continue
        matrix, names, sizes = found
        wrong = np.rint(np.nan_to_num(matrix) / 100 * sizes).astype(int)
        np.fill_diagonal(wrong, 0)
        cells = [(i, j, *wilson(wrong[i, j], sizes[j])) for i, j in np.argwhere(wrong)]
        cells.sort(key=lambda cell: -cell[2])
        for i, j, low, high in cells[: network_page.COMMONEST]:
            told = {"class": names[j], "as": [*names, "no response"][i]}
            told |= {"count": wrong[i, j], "n": sizes[j]}
            told |= {"share": wrong[i, j] / sizes[j], "low": low, "high": high}
            rows.append(row | told)
    return page.table("confusions", rows, n=("of", tables.whole))


def _fields(page: Page) -> Blocks:
    rows, heads = {}, {}
    for one, place, _ in page.each("receptive_field"):
        for number in one.numbers[place]:
            site, _, share = number.condition.rpartition(" ")
            key, begun = f"{number.metric} {share}", {"network": one.name, "site": site}
            rows.setdefault((one.name, *place, site), begun)[key] = number.value
            kind = number.metric.removeprefix("receptive_")
            heads[key] = f"{kind} {share.replace('%', ' %')}"
    columns = {key: (head, tables.digits(1)) for key, head in heads.items()}
    yield page.table("receptive_fields", rows.values(), **columns)


def _made(page: Page) -> Blocks:
    rows = []
    for one in page.networks:
        for (measure, dataset), told in one.measures.items():
            row = {"network": one.name, "measure": measure, "set": dataset}
            row |= {key: told.get(key) for key in ("images", "seconds", "precision")}
            seconds = told["seconds"]
            rows.append(row | {"rate": told["images"] / seconds if seconds else None})
    yield page.table("speed", rows)
    yield provenance(page.networks)


def provenance(networks: network_page.Networks) -> tables.Table | None:
    """Return the table of each network's weights, and of the device and software used."""
    rows = []
    for one in networks:
        made, run = one.provenance, one.config.get("run", {})
        device, code = made.get("device", {}), made.get("code", {})
        packages = made.get("packages", {})
        known = [name for name in ("jax", "flax", "numpy") if name in packages]
        row = {"network": one.name, "model": one.config["model"]["name"]}
        row |= {"weights": run.get("digest"), "path": run.get("path")}
        row["device"] = f"{device.get('count', '?')} × {device.get('kind', '?')}"
        row["code"] = f"{code.get('version', '?')} {str(code.get('commit'))[:10]}"
        row["packages"] = ", ".join(f"{name} {packages[name]}" for name in known)
        row |= {"python": made.get("python")}
        rows.append(
            row | {"seconds": sum(told["seconds"] for told in one.timed_measures)}
        )
    seconds = "seconds in all", tables.digits(0)
    return Page.table("provenance", rows, seconds=seconds)


class Part(NamedTuple):
    """A section of the page: its title, the function that makes its blocks, and its probes."""

    title: str
    blocks: Callable[[Page], Blocks]
    probes: str = ""


PARTS = {
    "overview": Part("In short", _overview),
    "caveats": Part("What to keep in mind", lambda page: iter(())),
    "accuracy": Part("Accuracy", _accuracy, "plain"),
    "shape_bias": Part("Shape or texture", shapes.shape_bias, "shape_bias"),
    "configural": Part(
        "Shape by the order of parts", shapes.order_of_parts, "configural tile_order"
    ),
    "cue_decomposition": Part(
        "Edges or texture", shapes.edges_or_texture, "cue_decomposition"
    ),
    "odd_one_out": Part("Odd one out by layer", shapes.odd_one_out, "odd_one_out"),
    "people": Part("Like people", shapes.beside_people, "human"),
    "spectral": Part("Low and high frequencies", _spectral, "spectral"),
    # Measured where a suite is asked for it: nobody misses it.
    "suppression": Part("Without shape, texture or colour", shapes.suppressed_cues),
    "critical_band": Part("Critical band", _critical_band, "critical_band"),
    "corruptions": Part("Corruptions", _corruptions, "corruptions"),
    "attacks": Part("Attacks", _attacks, "pgd fgsm"),
    "calibration": Part("Calibration", _calibration, "calibration"),
    "classes": Part("Classes", _classes, "classes"),
    "decoding": Part("Shape and texture by layer", shapes.decoded_cues, "decoding"),
    "receptive_field": Part("Effective receptive fields", _fields, "receptive_field"),
    "made": Part("How it was measured", _made),
}
