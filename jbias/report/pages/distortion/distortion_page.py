"""The page of the data-distortion study: its sections, tables and caveats."""

import collections
import glob
import json
import math
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from jbias.measures import interference
from jbias.report import document, tables, workdirs
from jbias.report.pages.distortion import distortion_figures
from jbias.report.pages.distortion import distortion_groups as study_lib
from jbias.report.pages.networks import provenance_section

DistortionStudy, NetworkGroup = study_lib.DistortionStudy, study_lib.NetworkGroup
GroupKey, NumberKey = study_lib.GroupKey, study_lib.NumberKey
QuantityValues, QUANTITIES = study_lib.QuantityValues, study_lib.QUANTITIES
Blocks = document.Blocks
UNKNOWN = "cannot be told"
# Caveats of every page.
ALWAYS = [
    (
        "The DI index is above 0 by chance, the more so with few errors and few seeds, because "
        'the preferred class is chosen by the errors themselves. Rows "by chance" give the '
        "expected index without any preferred class."
    )
]
_SPREAD = "Mean ± std (n - 1) over n seeds, and Student's interval of 95 % of the mean."
_INDEX = (
    "A DI index is given with the preferred class, whose share of the errors grows most. Its "
    "standard deviation does not include the deviation of its weight, a mean over seeds. Its "
    "brackets are not a confidence interval but the middle 95 % of redraws of five seeds or "
    "more: these include the true index in 65 to 85 of 100 cases if one class is preferred, and "
    "in none if no class is preferred. By chance: each seed's errors redistributed at random "
    "between plain and distorted images; this falls with n, so compare equal numbers of seeds."
)
_ENERGY = "Device hours of a CPU are core hours; energy is an estimate, with the building's PUE."
_COSTS = ["device_hours", "energy_kwh", "kg_co2e"]
_VALUES = ["quantity", "source", "data", "training", "mean"]
number = tables.digits(2)
_HEADS = {
    "each": "seconds per network",
    "share_dominant": "class",
    "share_low": "from",
    "share_high": "to",
    "share_mean": "share",
    "share_std": "±",
    "share_worst": "worst",
    "count_mean": "count",
    "count_std": "±",
    "count_worst": "worst",
    "digit_mean": "digit",
    "digit_std": "±",
    "photo_mean": "photo",
    "photo_std": "±",
    "iocclusion_std": "±",
    "std": "±",
}
_CAVEATS = {
    "single": "Groups with one seed have no standard deviation and no test: {}. Train more seeds, "
    "such as with seeds=5 after the colon of --config.",
    "unlike": "{}: numbers of seeds differ ({}). An index of fewer seeds is larger by chance: "
    'compare with the row "by chance".',
    "one class": "{}: no index for {}, with decisions for one class on nearly all plain images.",
}
_LEADS = ("Data", "training", "measure")


class ValueLayout(NamedTuple):
    """Layout of a table of values: heads of its columns, and keys of the numbers in its rows.

    rows: (texts of the first columns, `NumberKey` of each further column).
    """

    name: str
    caption: str
    head: Sequence[str]
    rows: Sequence[tuple[tuple[str, ...], Sequence[NumberKey]]]


class DistortionData(NamedTuple):
    """Data that the sections of the page show."""

    study: DistortionStudy
    hiding: pd.DataFrame  # The result of `distortion_groups.hiding`.
    value_table: tables.Table | None
    caveats: Sequence[str]
    runs: Sequence[str]  # Workdirs that trained the networks (paths or globs).


def report(
    study: DistortionStudy, *, notes: Sequence[str] = (), runs: Sequence[str] = ()
) -> document.Report:
    """Return the report page of a data-distortion study.

    The last caveats of the page are those in `ALWAYS`. notes: further caveats. runs: workdirs that
    trained the networks (paths or globs), for the table of training costs. Raises ValueError if
    `runs` is not empty but matches no run, and as `distortion_groups.find_measurement` does.
    """
    hiding = study_lib.hiding(study.groups.values())
    value_table = comparison(value_layout(study), study)
    values = pd.DataFrame(columns=_VALUES, dtype=str)
    if value_table:
        values = value_table.data
    caveats = [*_caveats(study, values=values, hiding=hiding, notes=notes), *ALWAYS]
    page = DistortionData(study, hiding, value_table, caveats=caveats, runs=runs)
    sections = document.make_sections(SECTIONS, page)
    seeds = {key: list(group.networks) for key, group in study.groups.items()}
    return document.Report(
        title="jbias data distortion",
        heading="What distortion does to analysis",
        subtitle="Interference, occlusion and mixed-sample training, jbias report",
        answer=_headline(values),
        facts={
            "Networks": len(study.networks),
            "Methods": len(study.names("method")),
            "Data sets": len(study.names("data")),
            "Seeds each": tables.span(map(len, seeds.values()), "–"),
        },
        sections=sections,
        results={
            "groups": [key._asdict() | {"seeds": x} for key, x in seeds.items()],
            "caveats": caveats,
            "iocclusion": study_lib.RULE_ENTRY,
            "tables": {
                block.name: block.data
                for section in sections
                for block in section.blocks
                if isinstance(block, tables.Table)
            },
        },
        source="The measures are those of Marcu and Prügel-Bennett, On the Effects of "
        "Artificial Data Modification, ICML 2022.",
    )


def particular_caveats(page: document.Report, always: Sequence[str]) -> list[str]:
    """Return the caveats of a page that are not in `always`."""
    return [line for line in page.results["caveats"] if line not in always]


def _table(
    name: str, caption: str, specification: str, frame: pd.DataFrame
) -> tables.Table | None:
    """Return a table of a frame; None for a frame without rows.

    If the frame has a column `hidden`, the page shows only the rows with the share `HIDDEN`. The
    files have all rows, without empty columns. specification: the columns of the page, see
    `tables.columns`.
    """
    if "training" in frame:
        frame = frame.replace({"training": {"": None}})
    rows = frame
    data = frame.dropna(axis=1, how="all")
    if "hidden" in frame:
        hidden = frame["hidden"].astype(float)
        rows = frame[np.isclose(hidden, float(study_lib.HIDDEN))]
    columns = tables.columns(specification, **_HEADS)
    return tables.from_rows(name, caption, rows, columns, data=data)


def _headline(values: pd.DataFrame) -> tuple[str, str]:
    """Return (headline, further sentence) on the methods with the largest and smallest mean.

    The compared quantity is the first quantity with values of two methods of one source on one data
    set, for groups with an empty `training`. If there is no such quantity, the headline says so.
    values: data of the table of values.
    """
    plain = values[(values["training"] == "") & values["mean"].notna()]
    for (quantity, source, data), group in plain.groupby(_VALUES[:3], sort=False):
        if len(group) > 1:
            low, *_, high = group.sort_values("mean").itertuples()
            return (
                f"{QUANTITIES[quantity].title}, {source} on {data}: of {len(group)} methods "
                f"{high.method} has the largest, {number(high.mean)}, and {low.method} the "
                f"smallest, {number(low.mean)}."
            ), "Means over seeds; their order is not tested."
    return (
        "No measure is shared by two methods, so methods are not compared.",
        "Every method is shown separately.",
    )


def value_layout(study: DistortionStudy) -> ValueLayout:
    """Return the layout of the table of all quantities, with a column per method.

    There is a row per data set, training and quantity.
    """
    methods = study.names("method")
    rows = []
    groups = dict.fromkeys((key.data, key.training) for key in study.groups)
    for data, training in groups:
        for name, quantity in QUANTITIES.items():
            keys = [NumberKey(name, data, method, training) for method in methods]
            rows.append(((data, training or "–", quantity.title), keys))
    caption = (
        "GST: accuracy in % on Geirhos' style transfer images with the shape or the texture as "
        "the label. CutOcclusion: accuracy in % with 30 % of the pixels hidden by images of "
        "another set."
    )
    return ValueLayout("values", caption, head=(*_LEADS, *methods), rows=rows)


def comparison(
    layout: ValueLayout,
    study: DistortionStudy,
    printed: Mapping[NumberKey, Mapping] | None = None,
) -> tables.Table | None:
    """Return a table of measured values, with published values below; None if nothing was measured.

    A row of `layout` becomes a row per model with values, a row "by chance" if an index has a value
    by chance, and a row of published values. The page has the columns of the layout, and networks
    (the model, or "paper"). The files have a row per value; columns: source, the fields of
    `NumberKey`, and the keys of `QuantityValues.row`. printed: published values by `NumberKey`,
    each a mapping with mean, std and n.
    """

    def value_row(source: str, key: NumberKey) -> Mapping | None:
        """Return a value as columns of a table, such as mean, std and n; None if unknown.

        source: "paper" for `printed`, or the name of a model of the study. key: key of the value.
        """
        if source == "paper":
            return (printed or {}).get(key)
        value = study.value(key.quantity, key.key(source))
        return value and value.row

    rows = []
    data = []
    for texts, keys in layout.rows:
        for source in (*study.names("model"), "paper"):
            values = [value_row(source, key) for key in keys]
            known = [value for value in values if value]
            for key, value in zip(keys, values, strict=True):
                if value:
                    data.append({"source": source, **key._asdict(), **value})
            sizes = set()
            if source != "paper":
                sizes = {value["n"] + value["left_out"] for value in known}
            source_text = source + (f", n={min(sizes)}" if len(sizes) == 1 else "")
            if known:
                cells = [_value_text(value, with_n=len(sizes) > 1) for value in values]
                rows.append((*texts, source_text, *cells))
            chances = [(value or {}).get("by_chance", math.nan) for value in values]
            if not np.isnan(chances).all():
                cells = [number(chance) for chance in chances]
                rows.append((*texts, f"{source_text} by chance", *cells))
    frame = pd.DataFrame(data)
    if "images" not in frame:
        return None
    images = tables.span(frame["images"].dropna().astype(int))
    caption = f"{layout.caption} {_SPREAD} Measured networks: {images} images each."
    for name, text in {"di_": _INDEX, "iocclusion": study_lib.RULE}.items():
        if frame["quantity"].str.startswith(name).any():
            caption += f" {text}"
    frame = frame.astype(dict.fromkeys(("n", "left_out", "images"), "Int64"))
    num_texts = len(layout.rows[0][0])
    return tables.Table(
        layout.name,
        caption,
        head=(*layout.head[:num_texts], "networks", *layout.head[num_texts:]),
        rows=tuple(rows),
        data=frame,
        texts=num_texts + 1,
    )


def _value_text(value: Mapping | None, *, with_n: bool) -> str:
    """Return a mean as text, with its spread, number of seeds and dominant class; "–" for None.

    Example: "4.20 ± 0.50 [3.10, 5.30] (n = 4 of 5) cat"; unknown parts are left out. value: columns
    as in `QuantityValues.row`, or published mean, std and n. with_n: True to add the number of
    seeds, which is always added if seeds are left out.
    """
    if value is None:
        return "–"
    num_left_out = value.get("left_out", 0)
    low = value.get("low", math.nan)
    texts = [number(value["mean"])]
    if not math.isnan(value["std"]):
        texts.append(f"± {number(value['std'])}")
    if not math.isnan(low):
        texts.append(f"[{number(low)}, {number(value['high'])}]")
    if num_left_out or with_n:
        total = f" of {value['n'] + num_left_out}" if num_left_out else ""
        texts.append(f"(n = {value['n']}{total})")
    return " ".join(filter(None, [*texts, value.get("dominant")]))


def _groups(study: DistortionStudy) -> tables.Table | None:
    """Return the table of groups of networks, one row per group.

    Columns: the fields of `GroupKey`, seeds (text), n (number of seeds), images, accuracy and std
    (in %; missing if not measured). The files also have the workdirs. None for a study without
    groups.
    """
    rows = []
    for key, group in study.groups.items():
        accuracy = study.value("accuracy", key)
        folders = [str(network.workdir) for network in group.networks.values()]
        rows.append(
            {
                **key._asdict(),
                "seeds": ", ".join(map(str, group.networks)),
                "n": len(group.networks),
                "images": accuracy and accuracy.images,
                "accuracy": accuracy and accuracy.mean,
                "std": accuracy and accuracy.std,
                "workdirs": " ".join(folders),
            }
        )
    return _table(
        "groups",
        "Groups of networks by training; accuracy in % on plain test images.",
        "model data method training seeds n:d images:d accuracy:.2 std:.2",
        pd.DataFrame(rows),
    )


def _indices(study: DistortionStudy) -> tables.Table | None:
    """Return the table of DI indices in %, one row per group, measurement and distortion.

    Columns: the fields of `GroupKey`, measure, condition, n, images and by_chance. Each of the
    variants "share" and "count" has the columns <variant>_mean, _std, _low, _high, _worst and
    _dominant (a class or "none"). None without stored decisions.
    """
    rows = []
    for key, measurement, condition in dict.fromkeys(_conditions(study)):
        group = study.groups[key]
        indices = {
            variant: study_lib.index(group, measurement, condition, variant=variant)
            for variant in interference.VARIANTS
        }
        share = indices["share"]
        if not share:
            continue
        row = {
            **key._asdict(),
            "measure": "@".join(measurement),
            "condition": condition,
            "n": share.n,
            "by_chance": share.by_chance,
            "images": share.images,
        }
        for variant, values in indices.items():
            row[f"{variant}_mean"] = values.mean
            row[f"{variant}_std"] = values.std
            row[f"{variant}_low"] = values.low
            row[f"{variant}_high"] = values.high
            row[f"{variant}_worst"] = values.worst
            row[f"{variant}_dominant"] = values.dominant or "none"
        rows.append(row)
    return _table(
        "indices",
        "The DI index in % under each distortion. Share: growth of a class's share of the wrong "
        "predictions; count: growth of its number, divided by the number of images. Worst: each "
        "seed with the class of its largest growth. From, to: the middle 95 % of redraws. By "
        "chance: expected index if no class is preferred.",
        "model data method training measure condition share_dominant n:d images:d "
        "share_mean:.2 share_std:.2 share_low:.2 share_high:.2 by_chance:.2 share_worst:.2 "
        "count_mean:.2 count_std:.2 count_worst:.2",
        pd.DataFrame(rows),
    )


def _conditions(
    study: DistortionStudy,
) -> Iterator[tuple[GroupKey, study_lib.Measurement, str]]:
    """Yield (key of the group, measurement, condition) of distortions of test images.

    Distortions are the conditions of grid_shuffle and cut_occlusion, and of occlusion with the
    share `HIDDEN` of hidden pixels. An item is yielded again for each network of the group.
    """
    for key, network, measurement in study.measures:
        if measurement.dataset == "train":
            continue
        probe = network.measures[measurement]["measure"]["probe"]
        numbers = network.numbers[measurement]
        for condition in dict.fromkeys(number.condition for number in numbers):
            is_distorted = probe in ("grid_shuffle", "cut_occlusion") and condition
            if probe == "occlusion":
                is_distorted = condition.endswith(f" {study_lib.HIDDEN}")
            if is_distorted:
                yield key, measurement, condition


def _digits(study: DistortionStudy) -> tables.Table | None:
    """Return the table of decisions for digit and photograph in %, one row per group and digit.

    Columns: model, digit (see `digit_shares`), method, n, mean and deviation of the shares for
    digit and photograph, and lead (photograph minus digit, in points, with its interval). Rows of
    other methods than basic training also have change (difference to the basic photo_mean) and
    flips (see `flips`). None without stored decisions on stacked images.
    """
    rows = []
    basic = {}
    for key, group in study.groups.items():
        for digit, shares in digit_shares(group).items():
            digit_share = study_lib.summarise((), shares[:, 0])
            photo_share = study_lib.summarise((), shares[:, 1])
            leads = shares[:, 1] - shares[:, 0]
            lead = study_lib.summarise((), leads, within=(-100, 100))
            row = {
                "model": key.model,
                "digit": digit,
                "method": key.method,
                "n": digit_share.n,
                "digit_mean": digit_share.mean,
                "digit_std": digit_share.std,
                "photo_mean": photo_share.mean,
                "photo_std": photo_share.std,
                "lead": lead.mean,
                "lead_low": lead.low,
                "lead_high": lead.high,
            }
            basic_key = key._replace(method="basic"), digit
            if key.method == "basic":  # Groups with basic training come first.
                basic[basic_key] = photo_share.mean, lead
            elif basic_key in basic:
                basic_mean, basic_lead = basic[basic_key]
                row["change"] = photo_share.mean - basic_mean
                row["flips"] = flips(basic_lead, lead)
            rows.append(row)
    return _table(
        "digits",
        "Stacked images whose halves are of different classes: share of decisions in % for the "
        "digit and for the photograph, over n seeds. Lead: the share for the photograph minus "
        "the share for the digit, with Student's interval of 95 %. A digit flips if basic "
        "networks decide for the digit and the networks of the row for the photograph: yes if "
        "both intervals exclude 0, no if one interval is on the other side of 0.",
        "model digit method flips n:d digit_mean:.1 digit_std:.1 photo_mean:.1 photo_std:.1 "
        "change:.1 lead:.1[]",
        pd.DataFrame(rows),
    )


def flips(basic_lead: QuantityValues, lead: QuantityValues) -> str:
    """Return "yes" if the lead changes from digit to photograph, "no" if not, or `UNKNOWN`.

    "yes": the interval of basic_lead is below 0 and the interval of lead above 0. "no": the
    interval of basic_lead is above 0, or the interval of lead below 0.

    basic_lead: share for the photograph minus share for the digit, of basic networks. lead: the
    same difference for the compared networks.
    """
    if basic_lead.high < 0 < lead.low:
        return "yes"
    return "no" if basic_lead.low > 0 or lead.high < 0 else UNKNOWN


def digit_shares(group: NetworkGroup) -> dict[str, Float[np.ndarray, "r 2"]]:
    """Return the shares in % of decisions for digit and for photograph, for each digit.

    Keys are the number and the name of the digit's class, such as "3 (cat)", or "3" without class
    names. Arrays (r, 2) have the columns digit, photograph, and a row for each seed that has stored
    decisions on stacked images of the digit with conflicting halves; {} if there is no such seed.
    Raises ValueError as `find_measurement` does.
    """
    measurement = study_lib.find_measurement(group, "plain", dataset="stacked_cifar")
    shares_by_digit: dict[str, list[list[float]]] = {}
    for network in group.networks.values():
        if measurement not in network.measures:
            continue
        stored = network.read_decisions(measurement).get("")
        if stored is None or "texture" not in stored.columns:
            continue
        photo, digit = stored.columns["label"], stored.columns["texture"]
        classes = network.classes(measurement)
        for c in np.unique(digit[digit >= 0]):
            in_conflict = (digit == c) & (photo != c)
            if in_conflict.any():
                name = f"{c} ({classes[c]})" if classes else str(c)
                predictions = stored.prediction[in_conflict]
                digit_share = 100 * float((predictions == c).mean())
                photo_share = 100 * float((predictions == photo[in_conflict]).mean())
                shares = shares_by_digit.setdefault(name, [])
                shares.append([digit_share, photo_share])
    return {name: np.array(shares) for name, shares in shares_by_digit.items()}


def _training(study: DistortionStudy, patterns: Sequence[str]) -> tables.Table | None:
    """Return the table of training costs, one row per run, then the sum for each device.

    Columns: run, method, data, assumed (device and assumptions, text), seeds, measured (number of
    networks of the study), device_hours, energy_kwh and kg_co2e. Folders without a config.json are
    left out. patterns: workdirs (paths or globs); None is returned without patterns. Raises
    ValueError if no folder has a config.json.
    """
    sources = [network.config.get("run", {}).get("path") for network in study.networks]
    measured = collections.Counter(pathlib.Path(x).resolve() for x in sources if x)
    folders = []
    for pattern in patterns:
        folders += sorted(glob.glob(pattern)) or [pattern]
    rows = []
    for folder in folders:
        path = pathlib.Path(folder)
        config = workdirs.read_json(path / "config.json")
        if not config:
            continue
        costs = workdirs.read_json(path / "costs.json")
        assumed = dict.fromkeys(map(workdirs.assumed, costs.get("starts", ())))
        row = {
            "run": folder,
            "method": config.get("variant") or None,
            "data": config.get("train", {}).get("data"),
            "assumed": "; ".join(assumed) or None,
            "seeds": len(config.get("seeds", ())),
            "measured": measured[path.resolve()],
        }
        rows.append(row | {name: costs.get("total", {}).get(name) for name in _COSTS})
    if patterns and not rows:
        raise ValueError(
            f"--runs: must match workdirs of runs, got none: {' '.join(patterns)}; check the path"
        )
    frame = _with_totals(
        pd.DataFrame(rows), "run", device="assumed", sums=["seeds", "measured"]
    )
    return _table(
        "training",
        f"Cost of training the runs, from the costs.json of each run. {_ENERGY}",
        "run method data assumed seeds:d measured:d device_hours:.3 energy_kwh:.3 "
        "kg_co2e:.3",
        frame,
    )


def _seconds(study: DistortionStudy) -> tables.Table | None:
    """Return the table of duration and costs, one row per model, data set, measure and device.

    The sum for each device follows. Columns: model, data, measure, device, n (networks), each
    (seconds per network), hours, device_hours, energy_kwh and kg_co2e (sums over networks).
    Measures that were not timed are left out. None if no measure was timed.
    """
    rows = []
    for key, network, measurement in study.measures:
        settings = network.measures[measurement]
        if settings["seconds"] is None:
            continue
        row = {
            "model": key.model,
            "data": key.data,
            "measure": "@".join(measurement),
            "device": _device(settings),
            "n": 1,
            "hours": settings["seconds"] / 3600,
        }
        costs = settings.get("cost") or {}
        rows.append(row | {name: costs.get(name) for name in _COSTS})
    frame = pd.DataFrame(rows)
    if rows:
        labels = ["model", "data", "measure", "device"]
        frame = _sums(frame, labels, ["n", "hours"])
        frame.insert(5, "each", 3600 * frame["hours"] / frame["n"])
    frame = _with_totals(frame, "model", device="device", sums=["hours"])
    return _table(
        "seconds",
        "Duration of each measure, including compilation: seconds per network, and hours "
        "and cost of n networks. Measures that reused the decisions of another one are left out. "
        f"{_ENERGY}",
        "model data measure device n:d each:.1 hours:.3 device_hours:.3 energy_kwh:.3 "
        "kg_co2e:.3",
        frame,
    )


def _with_totals(
    frame: pd.DataFrame, label: str, *, device: str, sums: list[str]
) -> pd.DataFrame:
    """Return the rows of a frame followed by a row of sums for each device.

    An empty frame is returned unchanged. label: column that gets the word "total". device: column
    of the device. sums: columns to sum, in addition to the costs.
    """
    if frame.empty:
        return frame
    total = _sums(frame, [device], sums)
    total[label] = "total"
    return pd.concat([frame, total], ignore_index=True)


def _sums(frame: pd.DataFrame, by: list[str], names: list[str]) -> pd.DataFrame:
    """Return sums of the columns `names` and of costs, one row per group of the columns `by`.

    A sum with a missing cost is NaN.
    """
    frame = frame.astype(dict.fromkeys(_COSTS, float))
    groups = frame.groupby(by, sort=False, dropna=False)[[*names, *_COSTS]]
    return groups.agg(lambda column: column.sum(skipna=False)).reset_index()


def _device(settings: Mapping) -> str:
    """Return the device of a measure, with the assumptions of its energy if costs are recorded.

    settings: settings of the measurement.
    """
    if settings.get("cost"):
        return workdirs.assumed(settings["cost"])
    device = settings.get("environment", {}).get("device", {})
    return f"{device.get('count', '?')} × {device.get('kind', '?')}"


def _caveats(
    study: DistortionStudy,
    *,
    values: pd.DataFrame,
    hiding: pd.DataFrame,
    notes: Sequence[str],
) -> Iterator[str]:
    """Yield the caveats of the page, one sentence or short paragraph each.

    values: data of the table of values. hiding: result of `distortion_groups.hiding`. notes:
    further caveats.
    """
    single = [k.words for k, group in study.groups.items() if len(group.networks) < 2]
    if single:
        few = tables.join(single[:4]) + " and others" * (len(single) > 4)
        yield _CAVEATS["single"].format(few)
    missing = collections.Counter(
        note for network in study.networks for note in network.missing_measures
    )
    for note, count in missing.items():
        ending = "" if count == len(study.networks) else f" ({count} networks)"
        yield f"{note[0].upper()}{note[1:]}{ending}."
    yield from notes
    groups = hiding.groupby(["model", "data", "fill"], sort=False)
    for (model, data, fill), group in groups:
        incomplete = study_lib.without_iocclusion(group)
        if incomplete:
            filling = study_lib.FILLS.get(fill, fill)
            yield f"No iOcclusion ({data}, {model}, hidden by {filling}): {incomplete}."
    yield from notes_on_indices(values)
    yield from notes_on_options(study)


def notes_on_indices(values: pd.DataFrame) -> Iterator[str]:
    """Yield notes on DI indices that some seeds lack, and on unequal numbers of seeds of methods.

    values: data of the table of values.
    """
    indices = values[values["quantity"].str.startswith("di_")]
    for (quantity, *details), group in indices.groupby(_VALUES[:4], sort=False):
        title = f"{QUANTITIES[quantity].title} ({', '.join(filter(None, details))})"
        if group["n"].nunique() > 1:
            sizes = ", ".join(group["method"] + " " + group["n"].astype(str))
            yield _CAVEATS["unlike"].format(title, sizes)
        incomplete = group[group["left_out"] > 0].itertuples()
        counts = [
            f"{tables.count(row.left_out, 'seed')} of {row.method}"
            for row in incomplete
        ]
        if counts:
            yield _CAVEATS["one class"].format(title, tables.join(counts))


def notes_on_options(study: DistortionStudy) -> Iterator[str]:
    """Yield notes on measures with different options, or with unusual saliency maps.

    Maps are unusual if they are quantised, or from a site other than "stage3".
    """
    # Methods by options, as keys of a dict to keep their order.
    methods_by_measure: dict[tuple, dict[str, dict[str, None]]] = {}
    for key, network, measurement in study.measures:
        title = "@".join(measurement), key.data, key.model
        methods_by_kind = methods_by_measure.setdefault(title, {})
        kind = study_lib.kind(network, measurement)
        methods_by_kind.setdefault(kind, {})[key.method] = None
    for (measure, data, model), methods_by_kind in methods_by_measure.items():
        options = [{"site": "stage3"} | json.loads(kind) for kind in methods_by_kind]
        is_unusual = any(x.get("quantise") or x["site"] != "stage3" for x in options)
        if len(methods_by_kind) > 1 or is_unusual:
            kinds = "; ".join(
                f"{tables.join(methods)} {kind}"
                for kind, methods in methods_by_kind.items()
            )
            yield (
                f"{measure} ({data}, {model}) was measured with {len(methods_by_kind)} sets of "
                f"options: {kinds}."
            )


# The sections, in the order of the page.


def _two_measures(page: DistortionData) -> Blocks:
    """Yield figures of CutOcclusion and iOcclusion over the share of hidden pixels."""
    yield from distortion_figures.curve_pairs(page.study, page.hiding)


def _wrong(page: DistortionData) -> Blocks:
    """Yield figures of wrong predictions by class."""
    yield from distortion_figures.wrong_predictions(page.study)


def _curves(page: DistortionData) -> Blocks:
    """Yield figures of accuracy and of iOcclusion for every masking."""
    yield from distortion_figures.occlusion_curves(page.study, page.hiding)


def _detail(page: DistortionData) -> Blocks:
    """Yield the tables of DI indices, of gaps, and of digits against photographs."""
    yield _indices(page.study)
    yield _table(
        "gaps",
        f"With {float(study_lib.HIDDEN):.0%} of the pixels hidden: accuracy in % "
        "on training and test images, their gap without hiding in points with its standard error, "
        "and iOcclusion, the remaining share of that gap: the mean of the seeds' ratios, as in the "
        f"paper, and (of means) the ratio of mean gaps. {study_lib.RULE} The CSV file has every "
        "fraction.",
        "model data method training fill masking n:d train_images:d test_images:d train:% test:% "
        "gap:% gap_error:% known:d iocclusion:.2 iocclusion_std:.2 of_means:.2",
        page.hiding,
    )
    yield _digits(page.study)


def _costs(page: DistortionData) -> Blocks:
    """Yield the tables of the costs of training and of measuring."""
    yield _training(page.study, page.runs)
    yield _seconds(page.study)


def _measured(page: DistortionData) -> Blocks:
    """Yield the tables of groups of networks, and of software and hardware."""
    yield _groups(page.study)
    yield provenance_section.provenance_table(page.study.networks)


SECTIONS = (
    document.SectionMaker("values", "Every method", lambda page: [page.value_table]),
    document.SectionMaker("figures", "Two measures of occlusion", _two_measures),
    document.SectionMaker("wrong", "Where errors gather", _wrong),
    document.SectionMaker("curves", "Curves of what is hidden", _curves),
    document.SectionMaker("detail", "Every distortion", _detail),
    document.SectionMaker(
        "caveats", "What to keep in mind", lambda page: [document.Text(page.caveats)]
    ),
    document.SectionMaker("costs", "What it cost", _costs),
    document.SectionMaker("made", "What was measured", _measured),
)
