"""Report page of measured networks of the data-distortion study."""

import collections
import glob
import itertools
import json
import math
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib import patches

from jbias.evals import interference
from jbias.report import distortion_study as study_lib
from jbias.report import document, network_sections, plots, tables, workdirs

DistortionStudy, Group = study_lib.DistortionStudy, study_lib.Group
Key, NumberKey = study_lib.Key, study_lib.NumberKey
Values, QUANTITIES = study_lib.Values, study_lib.QUANTITIES
UNKNOWN = "cannot be told"
SECTIONS = {
    "values": "Every method",
    "figures": "Two measures of occlusion",
    "wrong": "Where errors gather",
    "curves": "Curves of what is hidden",
    "detail": "Every distortion",
    "caveats": "What to keep in mind",
    "costs": "What it cost",
    "made": "What was measured",
}
ALWAYS = """\
The DI index is above 0 by chance, and more so of few errors and few seeds: the class that \
errors gather in is chosen by them. Rows "by chance" say how much.
""".splitlines()
_SPREAD = "Mean ± std (n - 1) over n seeds, and Student's interval of 95 % of the mean."
_INDEX = (
    "A DI index stands with the class that errors gather in. Its deviation leaves out that of "
    "its weight, a mean over seeds. Its brackets are no interval but the middle 95 % of redraws "
    "of five seeds or more, which hold the true index in 65 to 85 of 100 cases where one class "
    "gathers, and in none where no class is preferred. By chance: each seed's errors dealt out "
    "anew between plain and distorted images; it falls with n, so compare as many seeds."
)
_ENERGY = "Device hours of a CPU are core hours; energy is an estimate, with the building's PUE."
_COSTS = ["device_hours", "energy_kwh", "kg_co2e"]
_VALUES = ["quantity", "source", "data", "training", "mean"]
number = tables.digits(2)
_HEADS = {"told": "known", "each": "seconds a network", "share_dominant": "class"}
_HEADS |= {"share_low": "from", "share_high": "to"}
for _name in ("share", "count", "digit", "photo"):
    _HEADS |= {f"{_name}_mean": _name, f"{_name}_std": "±", f"{_name}_worst": "worst"}
_HEADS |= {"iocclusion_std": "±", "std": "±"}
_CAVEATS = {
    "single": "One seed alone has no deviation and no test: {}. Train more, such as with seeds=5 "
    "after the colon of --config.",
    "unlike": '{}: seeds are {}. The index of fewer is larger by chance: look at the row "by '
    'chance".',
    "one class": "{}: no index of {}, which decide nearly all plain images for one class.",
}
_LEADS = ("Data", "training", "measure")
_CAPTIONS = {
    "values": "GST: accuracy in % on Geirhos' style transfer images by the label of the shape and "
    "of the texture. CutOcclusion: accuracy in % where images of another set hide 30 %.",
    "indices": "The DI index in % under each distortion. Share: growth of a class's share of the "
    "wrong predictions; count: of its number, by the images. Worst: every seed with its largest "
    "growth. From, to: the middle 95 % of redraws. By chance: were no class preferred.",
    "gaps": f"Where {float(study_lib.HIDDEN):.0%} of the pixels are hidden: accuracy in % "
    "on training and test images, their gap without hiding in points with its standard error, "
    "and iOcclusion, what is left of that gap: the mean of the seeds' ratios, as in the paper, "
    f"and (of means) the ratio of mean gaps. {study_lib.RULE} The CSV file has every "
    "fraction.",
    "digits": "Stacked images whose halves are of different classes: the share in % answered by "
    "the digit and by the photograph, over n seeds. Lead: the second less the first, with "
    "Student's interval of 95 %. A digit flips where basic networks answer it, and these the "
    "photograph: yes where both intervals are beyond 0, no where one is on the other side.",
    "training": f"What training the runs cost, by costs.json of each. {_ENERGY}",
    "seconds": "How long each measure took, compiling included: seconds a network, and hours and "
    f"cost of n networks. What was decided for another measure already is left out. {_ENERGY}",
    "groups": "Networks by what they were trained with; accuracy in % on plain test images.",
}
_COLUMNS = {
    "indices": "model data method training measure condition share_dominant n:d images:d "
    "share_mean:.2 share_std:.2 share_low:.2 share_high:.2 by_chance:.2 share_worst:.2 "
    "count_mean:.2 count_std:.2 count_worst:.2",
    "gaps": "model data method training fill way n:d train_images:d test_images:d train:% test:% "
    "gap:% gap_error:% told:d iocclusion:.2 iocclusion_std:.2 of_means:.2",
    "digits": "model digit method flips n:d digit_mean:.1 digit_std:.1 photo_mean:.1 photo_std:.1 "
    "change:.1 lead:.1[]",
    "training": "run method data assumed seeds:d measured:d device_hours:.3 energy_kwh:.3 "
    "kg_co2e:.3",
    "seconds": "model data measure device n:d each:.1 hours:.3 device_hours:.3 energy_kwh:.3 "
    "kg_co2e:.3",
    "groups": "model data method training seeds n:d images:d accuracy:.2 std:.2",
}


class Layout(NamedTuple):
    """Layout of a table of values: its columns, and its rows with their leading texts."""

    name: str
    caption: str
    head: Sequence[str]
    rows: Sequence[tuple[tuple[str, ...], Sequence[NumberKey]]]


def report(study: DistortionStudy, *, notes=(), runs=()) -> document.Report:
    """Return the page; its last caveats are `ALWAYS`.

    notes: what else to know of the networks. runs: workdirs that trained them (paths or
    globs), for what that cost.
    """
    hiding = study_lib.hiding(study.groups.values())
    every = comparison(_every_value(study), study)
    values = every.data if every else pd.DataFrame(columns=_VALUES, dtype=str)
    placed = {"values": [every], "costs": [_training(study, runs), _seconds(study)]}
    placed["detail"] = _indices(study), _table("gaps", hiding), _digits(study)
    placed["made"] = _groups(study), network_sections.provenance_table(study.networks)
    shown = [(name, one) for name in SECTIONS for one in placed.get(name, ())]
    caveats = [*_caveats(study, values, hiding, notes), *ALWAYS]
    texts = [("caveats", document.Text(caveats))]
    groups = {key: list(group.networks) for key, group in study.groups.items()}
    facts = {"Networks": len(study.networks), "Methods": len(study.names("method"))}
    facts["Data sets"] = len(study.names("data"))
    return document.Report(
        title="jbias data distortion",
        heading="What distortion does to analysis",
        subtitle="Interference, occlusion and mixed-sample training, jbias report",
        answer=_headline(values),
        facts=facts | {"Seeds each": tables.span(map(len, groups.values()), "–")},
        sections=document.sections(SECTIONS, figures(study, hiding), shown, texts),
        results={
            "groups": [key._asdict() | {"seeds": x} for key, x in groups.items()],
            "caveats": caveats,
            "iocclusion": study_lib.RULED,
            "tables": {table.name: table.data for _, table in shown if table},
        },
        source="The measures are those of Marcu and Prügel-Bennett, On the Effects of "
        "Artificial Data Modification, ICML 2022.",
    )


def particular(page: document.Report, always: Sequence[str]) -> list[str]:
    """Return the caveats of a page that are not in `always`."""
    return [line for line in page.results["caveats"] if line not in always]


def _table(name: str, frame: pd.DataFrame) -> tables.Table | None:
    """Return a table of a frame, with only the share `HIDDEN` if there are several."""
    if "training" in frame:
        frame = frame.replace({"training": {"": None}})
    rows, data = frame, frame.dropna(axis=1, how="all")
    if "hidden" in frame:
        at = float(study_lib.HIDDEN)
        rows = frame[np.isclose(frame["hidden"].astype(float), at)]
    shown = tables.columns(_COLUMNS[name], **_HEADS)
    return tables.from_rows(name, _CAPTIONS[name], rows, shown, data=data)


def _headline(values: pd.DataFrame) -> tuple[str, str]:
    """Return the answer: highest and lowest method of the first quantity of two methods."""
    whole = values[(values["training"] == "") & values["mean"].notna()]
    for (quantity, *about), each in whole.groupby(_VALUES[:3], sort=False):
        if len(each) > 1:
            low, *_, high = each.sort_values("mean").itertuples()
            return (
                f"{QUANTITIES[quantity].title}, {' on '.join(about)}: of {len(each)} methods "
                f"{high.method} has the largest, {number(high.mean)}, and {low.method} the "
                f"smallest, {number(low.mean)}."
            ), "Means over seeds; their order is not tested."
    return "No two methods have a measure in common.", "Each is shown alone."


def _every_value(study: DistortionStudy) -> Layout:
    methods, rows = study.names("method"), []
    for x, training in dict.fromkeys((k.data, k.training) for k in study.groups):
        for name, one in QUANTITIES.items():
            cells = [NumberKey(name, x, method, training) for method in methods]
            rows.append(((x, training or "–", one.title), cells))
    return Layout("values", _CAPTIONS["values"], (*_LEADS, *methods), rows)


def comparison(
    layout: Layout, study: DistortionStudy, printed=None
) -> tables.Table | None:
    """Return a table of measured values, with published values below; None without values.

    printed: published mean, std and n, by key of the number.
    """

    def row(source: str, cell: NumberKey) -> Mapping | None:
        if source == "paper":
            return (printed or {}).get(cell)
        value = study.value(cell.quantity, cell.key(source))
        return value and value.row

    rows, data = [], []
    for words, cells in layout.rows:
        for source in (*study.names("model"), "paper"):
            found = [row(source, cell) for cell in cells]
            known = [(cell, one) for cell, one in zip(cells, found, strict=True) if one]
            data += [{"source": source, **x._asdict(), **one} for x, one in known]
            ours = known if source != "paper" else ()
            sizes = {one["n"] + one["left_out"] for _, one in ours}
            named = source + (f", n={min(sizes)}" if len(sizes) == 1 else "")
            if known:
                shown = (_shown(one, counted=len(sizes) > 1) for one in found)
                rows.append((*words, named, *shown))
            chances = [(one or {}).get("by_chance", math.nan) for one in found]
            if not np.isnan(chances).all():
                rows.append((*words, f"{named} by chance", *map(number, chances)))
    frame = pd.DataFrame(data)
    if "images" not in frame:
        return None
    images = tables.span(frame["images"].dropna().astype(int))
    caption = f"{layout.caption} {_SPREAD} Networks here were shown {images} images"
    caption += " each."
    for name, text in {"di_": _INDEX, "iocclusion": study_lib.RULE}.items():
        if frame["quantity"].str.startswith(name).any():
            caption += f" {text}"
    frame = frame.astype(dict.fromkeys(("n", "left_out", "images"), "Int64"))
    texts = len(layout.rows[0][0])
    head = (*layout.head[:texts], "networks", *layout.head[texts:])
    return tables.Table(layout.name, caption, head, tuple(rows), frame, texts=texts + 1)


def _shown(one: Mapping | None, *, counted: bool) -> str:
    """Return a mean as text, with its spread, the number of seeds if `counted`, and a class."""
    if one is None:
        return "–"
    lost, low = one.get("left_out", 0), one.get("low", math.nan)
    parts = [number(one["mean"])]
    parts += [] if math.isnan(one["std"]) else [f"± {number(one['std'])}"]
    parts += [] if math.isnan(low) else [f"[{number(low)}, {number(one['high'])}]"]
    if lost or counted:
        whole = f" of {one['n'] + lost}" if lost else ""
        parts.append(f"(n = {one['n']}{whole})")
    return " ".join(filter(None, [*parts, one.get("dominant")]))


def _groups(study: DistortionStudy) -> tables.Table | None:
    rows = []
    for key, group in study.groups.items():
        found = study.value("accuracy", key)
        row = {**key._asdict(), "seeds": ", ".join(map(str, group.networks))}
        row |= {"n": len(group.networks), "images": found and found.images}
        row |= {"accuracy": found and found.mean, "std": found and found.std}
        folders = (str(one.workdir) for one in group.networks.values())
        rows.append(row | {"workdirs": " ".join(folders)})
    return _table("groups", pd.DataFrame(rows))


def _indices(study: DistortionStudy) -> tables.Table | None:
    """Return the table of both variants of the index, and the worst case, by distortion."""
    rows = []
    for key, place, condition in dict.fromkeys(_conditions(study)):
        group, at = study.groups[key], (place, condition)
        ways = interference.VARIANTS
        both = {x: study_lib.index(group, *at, variant=x) for x in ways}
        if share := both["share"]:
            row = {**key._asdict(), "measure": "@".join(place), "condition": condition}
            row |= dict(n=share.n, by_chance=share.by_chance, images=share.images)
            for variant, one in both.items():
                for name in ("mean", "std", "low", "high", "worst"):
                    row[f"{variant}_{name}"] = getattr(one, name)
                row[f"{variant}_dominant"] = one.dominant or "none"
            rows.append(row)
    return _table("indices", pd.DataFrame(rows))


def _conditions(study: DistortionStudy) -> Iterator[tuple[Key, tuple, str]]:
    """Yield distortions whose decisions may be stored; of curves only the share `HIDDEN`."""
    for key, one, place in study.measures:
        probe = one.measures[place]["measure"]["probe"]
        for name in dict.fromkeys(found.condition for found in one.numbers[place]):
            part = probe == "occlusion" and name.endswith(f" {study_lib.HIDDEN}")
            whole = probe in ("grid_shuffle", "cut_occlusion") and name
            if place[1] != "train" and (part or whole):
                yield key, place, name


def _digits(study: DistortionStudy) -> tables.Table | None:
    """Return the table of answers for the digit and for the photograph, by digit."""
    rows, basic = [], {}
    for key, group in study.groups.items():
        for digit, shares in followed(group).items():
            own, photo = (study_lib.summarise((), each) for each in shares.T)
            lead = shares[:, 1] - shares[:, 0]
            lead = study_lib.summarise((), lead, within=(-100, 100))
            row = {"model": key.model, "digit": digit, "method": key.method, "n": own.n}
            row |= {"digit_mean": own.mean, "digit_std": own.std}
            row |= {"photo_mean": photo.mean, "photo_std": photo.std}
            row |= {"lead": lead.mean, "lead_low": lead.low, "lead_high": lead.high}
            whose = key._replace(method="basic"), digit
            if key.method == "basic":  # The first of its model and data.
                basic[whose] = photo.mean, lead
            elif whose in basic:
                before, led = basic[whose]
                row |= {"change": photo.mean - before, "flips": flips(led, lead)}
            rows.append(row)
    return _table("digits", pd.DataFrame(rows))


def flips(before: Values, now: Values) -> str:
    """Return "yes" if the lead changes from digit to photograph, "no" if not, or UNKNOWN."""
    if before.high < 0 < now.low:
        return "yes"
    return "no" if before.low > 0 or now.high < 0 else UNKNOWN


def followed(group: Group) -> dict[str, Float[np.ndarray, "r 2"]]:
    """Return, by digit and seed, the shares in % of answers for digit and for photograph.

    For stacked images with conflicting halves, and seeds with stored decisions.
    """
    place = study_lib.where(group, "plain", on="stacked_cifar")
    shares_by_digit: dict[str, list[list[float]]] = {}
    for network in group.networks.values():
        decided = (
            network.read_decisions(place).get("") if place in network.measures else None
        )
        if decided is None or "texture" not in decided.columns:
            continue
        photo, digit = decided.columns["label"], decided.columns["texture"]
        names = network.classes(place)
        for c in np.unique(digit[digit >= 0]):
            among = (digit == c) & (photo != c)
            if among.any():
                name = f"{c} ({names[c]})" if names else str(c)
                answers = decided.prediction[among]
                shares = [100 * float((answers == x).mean()) for x in (c, photo[among])]
                shares_by_digit.setdefault(name, []).append(shares)
    return {name: np.array(shares) for name, shares in shares_by_digit.items()}


def _training(study: DistortionStudy, patterns: Sequence[str]) -> tables.Table | None:
    """Return the table of training costs by run; raise ValueError if patterns match no run."""
    paths = [one.config.get("run", {}).get("path") for one in study.networks]
    measured = collections.Counter(pathlib.Path(x).resolve() for x in paths if x)
    rows = []
    for place in (x for one in patterns for x in sorted(glob.glob(one)) or [one]):
        path = pathlib.Path(place)
        if config := workdirs.read_json(path / "config.json"):
            costs = workdirs.read_json(path / "costs.json")
            assumed = dict.fromkeys(map(workdirs.assumed, costs.get("starts", ())))
            row = {"run": place, "method": config.get("variant") or None}
            row["data"] = config.get("train", {}).get("data")
            row["assumed"] = "; ".join(assumed) or None
            row["seeds"] = len(config.get("seeds", ()))
            row["measured"] = measured[path.resolve()]
            rows.append(row | {x: costs.get("total", {}).get(x) for x in _COSTS})
    if patterns and not rows:
        raise ValueError(
            f"--runs: must match workdirs of runs, got none: {' '.join(patterns)}; check it"
        )
    sums = _with_totals(rows, "run", "assumed", ["seeds", "measured"])
    return _table("training", sums)


def _seconds(study: DistortionStudy) -> tables.Table | None:
    rows = []
    for key, network, place in study.measures:
        settings = network.measures[place]
        if settings["seconds"] is not None:
            row = {"model": key.model, "data": key.data, "measure": "@".join(place)}
            row |= {
                "device": _device(settings),
                "n": 1,
                "hours": settings["seconds"] / 3600,
            }
            costs = settings.get("cost") or {}
            rows.append(row | {name: costs.get(name) for name in _COSTS})
    if rows:
        words = ["model", "data", "measure", "device"]
        rows = _sums(pd.DataFrame(rows), words, ["n", "hours"])
        rows.insert(5, "each", 3600 * rows["hours"] / rows["n"])
    return _table("seconds", _with_totals(rows, "model", "device", ["hours"]))


def _with_totals(rows, lead: str, device: str, names: list[str]) -> pd.DataFrame:
    """Return the rows followed by sums for each device; lead: column for the word total."""
    frame = pd.DataFrame(rows)
    if frame.empty:
        return frame
    total = _sums(frame, [device], names).assign(**{lead: "total"})
    return pd.concat([frame, total], ignore_index=True)


def _sums(frame: pd.DataFrame, by: list[str], names: list[str]) -> pd.DataFrame:
    """Return sums by group; a sum with a missing cost is NaN."""
    frame = frame.astype(dict.fromkeys(_COSTS, float))
    groups = frame.groupby(by, sort=False, dropna=False)[[*names, *_COSTS]]
    return groups.agg(lambda each: each.sum(skipna=False)).reset_index()


def _device(made: Mapping) -> str:
    """Return the device of a measure, and the assumptions of its energy."""
    if made.get("cost"):
        return workdirs.assumed(made["cost"])
    device = made.get("environment", {}).get("device", {})
    return f"{device.get('count', '?')} × {device.get('kind', '?')}"


def _caveats(
    study: DistortionStudy, values, hiding, notes: Sequence[str]
) -> Iterator[str]:
    single = [k.words for k, group in study.groups.items() if len(group.networks) < 2]
    if single:
        few = tables.join(single[:4]) + " and others" * (len(single) > 4)
        yield _CAVEATS["single"].format(few)
    lacking = collections.Counter(
        x for one in study.networks for x in one.missing_measures
    )
    for line, count in lacking.items():
        whose = "" if count == len(study.networks) else f" ({count} networks)"
        yield f"{line[0].upper()}{line[1:]}{whose}."
    yield from notes
    filled = hiding.groupby(["model", "data", "fill"], sort=False)
    for (model, data, fill), each in filled:
        if lost := study_lib.left_out(each):
            by = study_lib.FILLS.get(fill, fill)
            yield f"No iOcclusion ({data}, {model}, hidden by {by}): {lost}."
    yield from unlike_indices(values)
    yield from unlike_measures(study)


def unlike_indices(values: pd.DataFrame) -> Iterator[str]:
    """Yield notes on missing DI indices, and on indices of different numbers of seeds."""
    indices = values[values["quantity"].str.startswith("di_")]
    for (quantity, *details), each in indices.groupby(_VALUES[:4], sort=False):
        title = f"{QUANTITIES[quantity].title} ({', '.join(filter(None, details))})"
        if each["n"].nunique() > 1:
            sizes = ", ".join(each["method"] + " " + each["n"].astype(str))
            yield _CAVEATS["unlike"].format(title, sizes)
        incomplete = each[each["left_out"] > 0].itertuples()
        if whose := [f"{row.left_out} of {row.method}" for row in incomplete]:
            yield _CAVEATS["one class"].format(title, tables.join(whose))


def unlike_measures(study: DistortionStudy) -> Iterator[str]:
    """Yield notes on measures with different options, or with unusual saliency maps."""
    ways_by_measure: dict[tuple, dict[str, dict[str, None]]] = {}
    for key, network, place in study.measures:
        ways = ways_by_measure.setdefault(("@".join(place), key.data, key.model), {})
        ways.setdefault(study_lib.kind(network, place), {})[key.method] = None
    for (measure, *details), ways in ways_by_measure.items():
        options = [{"site": "stage3"} | json.loads(way) for way in ways]
        odd = any(
            network.get("quantise") or network["site"] != "stage3"
            for network in options
        )
        if len(ways) > 1 or odd:
            each = "; ".join(f"{tables.join(x)} {kind}" for kind, x in ways.items())
            yield f"{measure} ({', '.join(details)}) was measured in {len(ways)} ways: {each}."


# Figures.

MOST = 12  # Most classes of a panel.
_TOP = 2.0  # Least upper limit of an axis of iOcclusion.
_WAYS = {"grad_cam": "Grad-CAM,", "rectangle": "Rectangle", "fourier": "Fourier"}
_DISTORTED = {
    "di_grid": "tiles are shuffled",
    "di_black": "a black rectangle hides part",
    "di_anywhere": "a rectangle of another data set's images hides part",
    "di_other": "a rectangle of another data set's images hides 30 %",
}


_OVER = "over the share of pixels hidden by {by}: {about}."
_DRAWN = {
    "accuracy": f"Accuracy in % on test images {_OVER}",
    "iocclusion": "iOcclusion, the remaining share of the gap between training and test accuracy, "
    f"{_OVER}",
    "curves": "CutOcclusion, accuracy in [0, 1] on test images under a rectangle, and iOcclusion "
    "of what is most salient by Grad-CAM, where pixels are replaced by {by}; trained on {about}.",
    "wrong": "Shares in % of the wrong predictions by predicted class, on unchanged test images "
    "and where {by}: {about}. Bars are means over {seeds} seeds, dots seeds; of {images} "
    "images. Above: the DI index and its class. Of many classes those that grow most.",
}
_DRAWN["parts"] = _DRAWN["curves"].replace("{about}", "parts of {about}")


def figures(study: DistortionStudy, hiding: pd.DataFrame) -> document.Placed:
    """Yield the section and the figure, by model and data set."""
    for (model, data), each in itertools.groupby(study.groups, key=lambda key: key[:2]):
        keys = list(each)
        ending = "_".join([data, model] if len(study.names("model")) > 1 else [data])
        ending = ending.lower().replace(" ", "_").replace("-", "")
        at, part = (ending, f"{data}, {model}"), study_lib.PART
        whole = [key for key in keys if not key.training]
        yield from _occluded(hiding, {key: key.method for key in whole}, *at)
        for quantity in _DISTORTED:
            yield from _wrong(study, whole, quantity, *at)
        parts = [key for key in keys if key.training.startswith(part)]
        of = {key: key.training.removeprefix(part) or "all" for key in [*parts, *whole]}
        if parts:
            names = {key: f"{key.method}, {which}" for key, which in of.items()}
            yield from _occluded(hiding, names, *at, parts=True)


def _occluded(hiding, names: Mapping, ending, about, *, parts=False) -> document.Placed:
    """Yield figures of accuracy and iOcclusion by hidden share, with a panel per way.

    names: of the lines, by key of the group. parts: whether networks were trained on parts of
    a data set; then the figure has only one panel of each quantity.
    """
    keys = hiding[list(Key._fields)].itertuples(index=False, name=None)
    frame = hiding.assign(line=[names.get(key) for key in keys])
    for fill, each in frame.dropna(subset=["line"]).groupby("fill", sort=False):
        accuracy, index = _lines(each, "test"), _lines(each, "iocclusion")
        cut = accuracy[accuracy["panel"] == "Rectangle"].assign(panel="CutOcclusion")
        most = index[index["panel"] == "Grad-CAM, most"].assign(panel="iOcclusion")
        pair = pd.concat([cut, most])
        whole = dict(curves=pair, accuracy=accuracy, iocclusion=index)
        by = study_lib.FILLS.get(fill, fill)
        for name, lines in (dict(parts=pair) if parts else whole).items():
            if len(lines):
                scale = 100 if name == "accuracy" else 1
                fig, told = _drawn(lines, each, scale)
                lost = study_lib.left_out(each) if scale == 1 else ""
                told += f" Not in iOcclusion: {lost}." if lost else ""
                caption = f"{_DRAWN[name].format(by=by, about=about)} {told}"
                section = "figures" if lines is pair else "curves"
                yield section, document.Figure(f"{name}_{fill}_{ending}", caption, fig)


def _lines(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return curves by way of hiding (panel), for ways with more than 2 shares."""
    frame = frame.dropna(subset=[column])
    parts = frame.groupby("way", sort=False)["hidden"].transform("nunique")
    ways = (way.partition(" ") for way in frame["way"])
    panel = [f"{_WAYS.get(name, name)} {order}".strip() for name, _, order in ways]
    lines = frame[["line"]].assign(panel=panel, x=100 * frame["hidden"])
    lines = lines.assign(value=frame[column], std=frame[f"{column}_std"])
    return lines[parts > 2]


def _drawn(lines, frame, scale: float) -> tuple[plots.Figure, str]:
    """Return a figure with a colour per method, and the caption of its lines and bands.

    An axis that would be more than twice as high ends at twice the median of the methods'
    peaks, so that one curve of iOcclusion does not flatten all others.
    """
    tops = {}
    for title, rows in lines.groupby("panel"):
        top = max(_TOP, 2 * float(rows.groupby("line")["value"].max().median()))
        if (rows["value"] + rows["std"].fillna(0)).max() > 2 * top:
            tops[title] = scale * top
    order = dict.fromkeys([*study_lib.METHODS.values(), *frame["line"]])
    known = {*frame["line"]}
    looks = {x: plots.style_of(i) for i, x in enumerate(order) if x in known}

    def finish(axes, rows: pd.DataFrame) -> None:
        if top := tops.get(rows["panel"].iloc[0]):
            for name, above in rows[rows["value"] > top].groupby("line"):
                look = dict(color=looks[name]["color"], markersize=7, clip_on=False)
                axes.plot(above["x"], np.full(len(above), top), "^", **look)
            axes.set_ylim(0, top)

    lines = lines.assign(value=scale * lines["value"], std=scale * lines["std"])
    fig = plots.curves(lines, looks, ("pixels hidden in %", ""), finish=finish)
    told = f"Lines are means over {tables.span(frame['n'])} seeds, of "
    told += f"{tables.span(frame['test_images'])} test images, bands ± one standard deviation."
    cut = " A triangle at the edge is a mean above it; bands are cut."
    return fig, told + cut * bool(tops)


def _wrong(
    study: DistortionStudy, keys: Sequence[Key], quantity, *at: str
) -> document.Placed:
    """Yield a figure of wrong predictions by class, clean and distorted, if there are any."""
    found = {key.method: study.value(quantity, key) for key in keys}
    found = {name: one for name, one in found.items() if one and one.n}
    if found:
        each = found.values()
        words = {"seeds": tables.span(x.n for x in each), "by": _DISTORTED[quantity]}
        words |= {"images": tables.span(x.images for x in each), "about": at[1]}
        name = f"wrong_{quantity.removeprefix('di_')}_{at[0]}"
        caption = _DRAWN["wrong"].format(**words)
        yield "wrong", document.Figure(name, caption, wrong_classes(found))


def wrong_classes(values_by_method: Mapping[str, Values]) -> plots.Figure:
    """Draw each class's share of the errors in %, clean and distorted, a panel per method.

    Of more than `MOST` classes, only those with the largest growth in any panel are drawn, in
    decreasing order.
    """
    names, panels = next(iter(values_by_method.values())).classes, {}
    for name, values in values_by_method.items():
        index = ", ".join(filter(None, (f"{values.mean:.2f} %", values.dominant)))
        errors = np.maximum(values.wrong.sum(axis=2, keepdims=True), 1)
        panels[f"{name}: {index}"] = 100 * values.wrong / errors
    chosen = np.arange(len(names))
    if len(chosen) > MOST:
        growth = [np.diff(shares, axis=1).mean(axis=0)[0] for shares in panels.values()]
        chosen = np.argsort(-np.max(growth, axis=0), kind="stable")[:MOST]
    largest = max(1, *(shares.max() for shares in panels.values()))
    colours = dict(zip(("as they are", "distorted"), plots.COLOURS, strict=False))

    def draw(axes, shares: Float[np.ndarray, "r 2 k"]) -> None:
        for i, colour in enumerate(colours.values()):
            places, each = np.arange(len(chosen)) + 0.4 * i - 0.2, shares[:, i, chosen]
            axes.barh(places, each.mean(axis=0), 0.36, color=colour, lw=0, alpha=0.75)
            if len(each) > 1:
                axes.plot(each.T, places, "o", color=plots.INK, ms=2, mew=0, alpha=0.7)
        axes.set(xlim=(0, 1.05 * largest), ylim=(len(chosen) - 0.5, -0.5))
        axes.set_yticks(range(len(chosen)), plots.plain([names[c] for c in chosen]))
        axes.tick_params(axis="y", length=0)

    legend = {name: patches.Patch(color=colour) for name, colour in colours.items()}
    labels, cell = ("share of wrong predictions in %", ""), 0.34 * len(chosen) + 0.7
    return plots.multiples(panels, draw, labels, legend, cell=(2.8, cell), sharey=True)
