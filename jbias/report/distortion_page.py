"""The page on networks of one's own: what distortion does to them, by how they were trained."""

import collections
import dataclasses
import glob
import json
import math
import pathlib
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from jbias.evals import interference
from jbias.report import (
    distortion_plots,
    distortion_study,
    document,
    network_records,
    network_sections,
    tables,
    workdirs,
)

Study, Cell = distortion_study.Study, distortion_study.Cell
QUANTITIES = distortion_study.QUANTITIES
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
_SPREAD = (
    "Mean ± standard deviation (n - 1) over n seeds, and Student's interval of 95 % of the "
    "mean, no accuracy beyond 0 and 100."
)
_INDEX = (
    "A DI index stands with the class that errors gather in. Its deviation leaves out that of "
    "its weight, a mean over seeds. Its brackets are no interval but the middle 95 % of redraws "
    "of five seeds or more: the true index is in 65 to 85 of 100 of five seeds where one class "
    "gathers, and in none where no class is preferred. By chance: each seed's errors dealt out "
    "anew between plain and distorted images; it falls with n, so compare indices of as many "
    f"seeds. Seeds that decide more than {distortion_study.ONE_CLASS:.0%} of the plain images "
    "for one class have no index, as it cannot grow."
)
_ENERGY = (
    "Device hours of a CPU are core hours; energy is an estimate, hours times power in use "
    "times the building's factor (PUE)."
)
_COSTS = ["device_hours", "energy_kwh", "kg_co2e"]
_VALUES = ["quantity", "source", "data", "training", "mean"]
number, _one, _three = tables.digits(2), tables.digits(1), tables.digits(3)
_HEADS = {"energy_kwh": "kWh", "kg_co2e": "kg CO2e", "iocclusion": "iOcclusion"}
_HEADS |= {"told": "known", "each": "seconds a network"}
_ENDINGS = dict(std="±", low="from", high="to", worst="worst", dominant="class")


def columns(*forms: tuple[Callable[..., str], str]) -> dict[str, tuple[str, Callable]]:
    """Gives columns of a table by how they are shown, and their names."""
    found = {}
    for form, names in forms:
        for name in names.split():
            head = _HEADS.get(name) or _ENDINGS.get(name.rpartition("_")[2])
            head = head or name.removesuffix("_mean").replace("_", " ")
            found[name] = head if found else head.capitalize(), form
    return found


def _declared(section: str, caption: str, *forms: tuple[Callable[..., str], str]):
    return section, caption, columns(*forms)


# By name, where a table stands, what it says, and its columns by how they are shown.
_TABLES = {
    "indices": _declared(
        "detail",
        "The DI index in % under each distortion. Share: growth of a class's share of the "
        "wrong predictions, as released and in the tables above; count: of its number, by the "
        "images, as the paper words it. Worst: every seed with the largest growth of any. From, "
        "to: the middle 95 % of redraws of five seeds or more, no interval. By chance: share, "
        "were no class preferred.",
        (str, "model data method training measure condition share_dominant"),
        (tables.whole, "n images"),
        (number, "share_mean share_std share_low share_high by_chance share_worst"),
        (number, "count_mean count_std count_worst"),
    ),
    "gaps": _declared(
        "detail",
        f"Where {float(distortion_study.HIDDEN):.0%} of the pixels are hidden: accuracy in % on "
        "training images, without augmentation, and test images, and iOcclusion, what is left "
        "of the gap between the two by the gap without hiding (in points, with its standard "
        "error). Means over n seeds; iOcclusion, as in the paper the mean of the seeds' ratios, "
        "± its standard deviation, over those that are known. Of means: the ratio of mean gaps "
        "of all n seeds, steadier and not the paper's; orderings are tested by it. "
        f"{distortion_study.RULE} The CSV file has every fraction.",
        (str, "model data method training fill way"),
        (tables.whole, "n train_images test_images"),
        (tables.percent, "train test gap gap_error"),
        (tables.whole, "told"),
        (number, "iocclusion iocclusion_std of_means"),
    ),
    "digits": _declared(
        "detail",
        "Which digits flip: of stacked images whose halves are of different classes, the share "
        "in % that is answered by the digit and by the photograph, mean ± standard deviation "
        "over n seeds. Change: of answers by the photograph against basic networks, in points. "
        "Lead: the photograph less the digit, with Student's interval of 95 %. A digit flips "
        "where basic networks answer it more often, and these the photograph: yes where both "
        "intervals are beyond 0, no where one is on the other side, else it cannot be told. In "
        "brackets the photographs' class of that number.",
        (str, "model digit method flips"),
        (tables.whole, "n"),
        (
            _one,
            "digit_mean digit_std photo_mean photo_std change lead lead_low lead_high",
        ),
    ),
    "training": _declared(
        "costs",
        "Runs that trained networks, how many of their seeds are measured here, and what "
        f"training cost, by costs.json of each. {_ENERGY}",
        (str, "run method data assumed"),
        (tables.whole, "seeds measured"),
        (_three, "device_hours energy_kwh kg_co2e"),
    ),
    "seconds": _declared(
        "costs",
        "How long each measure took, compiling included: seconds a network, and hours and cost "
        "of n networks of all methods together. What was decided for another measure already "
        f"is left out. {_ENERGY}",
        (str, "model data measure device"),
        (tables.whole, "n"),
        (_one, "each"),
        (_three, "hours device_hours energy_kwh kg_co2e"),
    ),
    "groups": _declared(
        "made",
        "Networks by what they were trained with, and accuracy in % on the test images as they "
        "are, mean and standard deviation over n seeds.",
        (str, "model data method training seeds"),
        (tables.whole, "n images"),
        (number, "accuracy std"),
    ),
}


class Layout(NamedTuple):
    """A table of values: its columns, and what leads each row with its cells."""

    name: str
    caption: str
    head: Sequence[str]
    rows: Sequence[tuple[tuple[str, ...], Sequence[Cell]]]


def report(
    study: Study, *, notes: Sequence[str] = (), runs: Sequence[str] = ()
) -> document.Report:
    """Gives the page; the last of its caveats are `ALWAYS`.

    runs: workdirs that trained the networks (paths or globs), for what that cost.
    """
    hiding = distortion_study.hiding(study.groups.values())
    every = comparison(_every_value(study), study)
    values = every.data if every else pd.DataFrame(columns=_VALUES)
    frames = {"indices": _indices(study), "gaps": hiding, "digits": _digits(study)}
    frames |= {"training": _training(study, runs), "seconds": _seconds(study)}
    frames["groups"] = _groups(study)
    made = [("values", every)]
    for name, (section, caption, shown) in _TABLES.items():
        made.append((section, _table(name, caption, frames[name], shown)))
    made.append(("made", network_sections.provenance(study.networks)))
    made = [(section, table) for section, table in made if table is not None]
    caveats = [*_caveats(study, values, hiding, notes), *ALWAYS]
    figures, text = distortion_plots.figures(study, hiding), document.Text(caveats)
    sizes = sorted({len(group.networks) for group in study.groups.values()})
    return document.Report(
        title="jbias data distortion",
        heading="What distortion does to analysis",
        subtitle="Interference, occlusion and mixed-sample training, jbias report",
        answer=_headline(values),
        facts={
            "Networks": len(study.networks),
            "Methods": len({key.method for key in study.groups}),
            "Data sets": len(study.data),
            "Seeds each": "–".join(map(str, dict.fromkeys((sizes[0], sizes[-1])))),
        },
        sections=document.sections(SECTIONS, figures, made, [("caveats", text)]),
        results={
            "groups": [
                k._asdict() | {"seeds": x.seeds} for k, x in study.groups.items()
            ],
            "caveats": caveats,
            "iocclusion": distortion_study.RULED,
            "tables": {table.name: table.data for _, table in made},
        },
        source="The measures are those of Marcu and Prügel-Bennett, On the Effects of "
        "Artificial Data Modification, ICML 2022.",
    )


def particular(page: document.Report, always: Sequence[str]) -> list[str]:
    """Gives the caveats that are not those of every page."""
    return [line for line in page.results["caveats"] if line not in always]


def _table(name: str, caption: str, frame: pd.DataFrame, shown: Mapping):
    """Makes a table of a frame; of one that has every share that is hidden, of one share."""
    frame = frame.replace({"training": {"": None}}) if "training" in frame else frame
    if "hidden" not in frame:
        return tables.from_rows(name, caption, frame, shown)
    part = frame[
        np.isclose(frame["hidden"].astype(float), float(distortion_study.HIDDEN))
    ]
    table = tables.from_rows(name, caption, part, shown)
    return table and dataclasses.replace(table, data=frame.dropna(axis=1, how="all"))


def _headline(values: pd.DataFrame) -> tuple[str, str]:
    """Says of the first measure that two methods share which has most and least of it."""
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


def _every_value(study: Study) -> Layout:
    methods = list(dict.fromkeys(key.method for key in study.groups))
    trained = dict.fromkeys((key.data, key.training) for key in study.groups)
    rows = [
        ((x, training or "–", one.title), [Cell(name, x, m, training) for m in methods])
        for x, training in trained
        for name, one in QUANTITIES.items()
    ]
    return Layout(
        "values",
        "What was measured, by method. GST: accuracy in % on Geirhos' style transfer images by "
        "the label of the shape and of the texture. CutOcclusion: accuracy in % where images "
        "of another data set hide a rectangle of 30 %.",
        ("Data", "training", "measure", *methods),
        rows,
    )


def comparison(
    layout: Layout,
    study: Study,
    printed: Mapping[Cell, Mapping] = types.MappingProxyType({}),
) -> tables.Table | None:
    """Makes a table of the values that are known, printed ones below; None of none.

    printed: mean, std and n of what others published.
    """
    rows, data = [], []
    for words, cells in layout.rows:
        for source in (*study.models, "paper"):
            theirs = source == "paper"
            found = [printed.get(x) if theirs else study.row(x, source) for x in cells]
            known = [(cell, one) for cell, one in zip(cells, found, strict=True) if one]
            data += [{"source": source, **x._asdict(), **one} for x, one in known]
            sizes = {one["n"] + one["left_out"] for _, one in known if not theirs}
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
    caption = [layout.caption, _SPREAD]
    sizes = distortion_study.span(frame["images"].dropna().astype(int))
    caption.append(f"Networks here were shown {sizes} images each.")
    for name, text in {"di_": _INDEX, "iocclusion": distortion_study.RULE}.items():
        caption += [text] if frame["quantity"].str.startswith(name).any() else []
    texts = len(layout.rows[0][0])
    return tables.Table(
        name=layout.name,
        caption=" ".join(caption),
        head=(*layout.head[:texts], "networks", *layout.head[texts:]),
        rows=tuple(rows),
        data=frame.astype(dict.fromkeys(("n", "left_out", "images"), "Int64")),
        texts=texts + 1,
    )


def _shown(one: Mapping | None, *, counted: bool) -> str:
    """Shows a mean, what is known of its spread, the number of seeds if asked, and a class."""
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


def _groups(study: Study) -> pd.DataFrame:
    rows = []
    for key, group in study.groups.items():
        found = study.value("accuracy", key)
        row = {**key._asdict(), "seeds": ", ".join(map(str, group.seeds))}
        row |= {"n": len(group.networks), "images": found and found.images}
        row |= {"accuracy": found and found.mean, "std": found and found.std}
        folders = (str(one.workdir) for one in group.networks.values())
        rows.append(row | {"workdirs": " ".join(folders)})
    return pd.DataFrame(rows)


def _indices(study: Study) -> pd.DataFrame:
    """Gives both variants of the index, and the worst case, under every distortion."""
    rows = []
    for key, place, condition in dict.fromkeys(_conditions(study)):
        both = {
            x: distortion_study.index(study.groups[key], place, condition, variant=x)
            for x in interference.VARIANTS
        }
        if share := both["share"]:
            row = {**key._asdict(), "measure": "@".join(place), "condition": condition}
            row |= dict(n=share.n, by_chance=share.by_chance, images=share.images)
            for variant, one in both.items():
                for name in ("mean", "std", "low", "high", "worst"):
                    row[f"{variant}_{name}"] = getattr(one, name)
                row[f"{variant}_dominant"] = one.dominant or "none"
            rows.append(row)
    return pd.DataFrame(rows)


def _conditions(study: Study) -> Iterator[tuple[distortion_study.Key, tuple, str]]:
    """Gives distortions of which decisions may be kept; of curves those of tables."""
    for key, one, place in study.measures:
        probe = one.measures[place]["measure"]["probe"]
        for name in dict.fromkeys(found.condition for found in one.numbers[place]):
            part = probe == "occlusion" and name.endswith(f" {distortion_study.HIDDEN}")
            whole = probe in ("grid_shuffle", "cut_occlusion") and name
            if place[1] != "train" and (part or whole):
                yield key, place, name


def _digits(study: Study) -> pd.DataFrame:
    """Gives, by digit, how often it and how often the photograph below it is answered."""
    rows, basic = [], {}
    for key, group in study.groups.items():
        for digit, shares in followed(group).items():
            own, photo = (distortion_study.summarise((), each) for each in shares.T)
            lead = shares[:, 1] - shares[:, 0]
            lead = distortion_study.summarise((), lead, within=(-100, 100))
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
    return pd.DataFrame(rows)


def flips(before: distortion_study.Values, now: distortion_study.Values) -> str:
    """Whether the digit led before and the photograph does now."""
    if before.high < 0 < now.low:
        return "yes"
    return "no" if before.low > 0 or now.high < 0 else UNKNOWN


def followed(group: distortion_study.Group) -> dict[str, Float[np.ndarray, "r 2"]]:
    """Gives, by digit and seed, the shares in % answered by digit and by photograph.

    Of stacked images whose halves conflict, of the seeds whose decisions were kept.
    """
    place = distortion_study.where(group, "plain", on="stacked_cifar")
    found: dict[str, list[list[float]]] = {}
    for one in group.networks.values():
        decided = one.decided(place).get("") if place in one.measures else None
        if decided is None or "texture" not in decided.columns:
            continue
        photo, digit = decided.columns["label"], decided.columns["texture"]
        names = one.classes(place)
        for c in np.unique(digit[digit >= 0]):
            among = (digit == c) & (photo != c)
            if among.any():
                name = f"{c} ({names[c]})" if names else str(c)
                answers = decided.prediction[among]
                shares = [100 * float((answers == x).mean()) for x in (c, photo[among])]
                found.setdefault(name, []).append(shares)
    return {name: np.array(shares) for name, shares in found.items()}


def _training(study: Study, patterns: Sequence[str]) -> pd.DataFrame:
    """Gives what training cost in runs. ValueError where patterns match none."""
    paths = [one.config.get("run", {}).get("path") for one in study.networks]
    measured = collections.Counter(pathlib.Path(x).resolve() for x in paths if x)
    rows = []
    for place in (x for one in patterns for x in sorted(glob.glob(one)) or [one]):
        if config := network_records.read_config(place):
            path = pathlib.Path(place)
            paid = path / "costs.json"
            costs = network_records.read_json(paid) if paid.exists() else {}
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
    return _with_totals(rows, "run", "assumed", ["seeds", "measured"])


def _seconds(study: Study) -> pd.DataFrame:
    rows = []
    for key, one, place in study.measures:
        made = one.measures[place]
        if made["seconds"] is not None:
            row = {"model": key.model, "data": key.data, "measure": "@".join(place)}
            row |= {"device": _device(made), "n": 1, "hours": made["seconds"] / 3600}
            costs = made.get("cost") or {}
            rows.append(row | {name: costs.get(name) for name in _COSTS})
    if rows:
        words = ["model", "data", "measure", "device"]
        rows = _sums(pd.DataFrame(rows), words, ["n", "hours"])
        rows.insert(5, "each", 3600 * rows["hours"] / rows["n"])
    return _with_totals(rows, "model", "device", ["hours"])


def _with_totals(
    rows: Sequence[Mapping] | pd.DataFrame, lead: str, device: str, names: list[str]
) -> pd.DataFrame:
    """Adds a row of sums for each device, as hours of unlike ones are not added up."""
    frame = pd.DataFrame(rows)
    if frame.empty:
        return frame
    total = _sums(frame, [device], names).assign(**{lead: "total"})
    return pd.concat([frame, total], ignore_index=True)


def _sums(frame: pd.DataFrame, by: list[str], names: list[str]) -> pd.DataFrame:
    """Adds up; a cost that one row does not have is not known of the sum, either."""
    frame = frame.astype(dict.fromkeys(_COSTS, float))
    groups = frame.groupby(by, sort=False, dropna=False)[[*names, *_COSTS]]
    return groups.agg(lambda each: each.sum(skipna=False)).reset_index()


def _device(made: Mapping) -> str:
    """Says what a measure ran on, and what its energy is of."""
    if made.get("cost"):
        return workdirs.assumed(made["cost"])
    device = made.get("environment", {}).get("device", {})
    return f"{device.get('count', '?')} × {device.get('kind', '?')}"


def _caveats(
    study: Study, values: pd.DataFrame, hiding: pd.DataFrame, notes: Sequence[str]
) -> Iterator[str]:
    single = [k.words for k, group in study.groups.items() if len(group.networks) < 2]
    if single:
        few = tables.join(single[:4]) + (" and others" if len(single) > 4 else "")
        yield (
            f"One seed alone has no deviation and no test: {few}. Train more, such as with "
            "seeds=5 after the colon of --config."
        )
    lacking = collections.Counter(x for one in study.networks for x in one.lacking)
    for line, count in lacking.items():
        whose = "" if count == len(study.networks) else f" ({count} networks)"
        yield f"{line[0].upper()}{line[1:]}{whose}."
    yield from notes
    of = ["model", "data", "fill"]
    for (model, data, fill), each in hiding.groupby(of, sort=False):
        if lost := distortion_study.left_out(each):
            by = distortion_study.FILLS.get(fill, fill)
            yield f"No iOcclusion ({data}, {model}, hidden by {by}): {lost}."
    yield from unlike_indices(values)
    yield from unlike_measures(study)


def unlike_indices(values: pd.DataFrame) -> Iterator[str]:
    """Says whose DI index is missing, and where indices are of unlike numbers of seeds."""
    indices = values[[x[:3] == "di_" for x in values["quantity"]]]
    for (quantity, *about), each in indices.groupby(_VALUES[:4], sort=False):
        what = f"{QUANTITIES[quantity].title} ({', '.join(filter(None, about))})"
        if each["n"].nunique() > 1:
            sizes = [f"{x} {n}" for x, n in zip(each["method"], each["n"], strict=True)]
            yield (
                f"{what}: seeds are {', '.join(sizes)}. The index of fewer is larger by "
                'chance: look at the row "by chance".'
            )
        lost = each[each["left_out"] > 0].itertuples()
        if whose := [f"{row.left_out} of {row.method}" for row in lost]:
            yield (
                f"{what}: no index of {tables.join(whose)}, which decide nearly all plain "
                "images for one class."
            )


def unlike_measures(study: Study) -> Iterator[str]:
    """Says which measures are not alike for all groups, or not of usual saliency."""
    found: dict[tuple, dict[str, dict[str, None]]] = {}
    for key, one, place in study.measures:
        ways = found.setdefault(("@".join(place), key.data, key.model), {})
        ways.setdefault(distortion_study.kind(one, place), {})[key.method] = None
    for (measure, *about), ways in found.items():
        odd = any(
            options.get("quantise") or options.get("site", "stage3") != "stage3"
            for options in map(json.loads, ways)
        )
        if len(ways) > 1 or odd:
            each = "; ".join(f"{tables.join(x)} {kind}" for kind, x in ways.items())
            yield f"{measure} ({', '.join(about)}) was measured in {len(ways)} ways: {each}."
