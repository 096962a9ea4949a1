"""The page of measured networks: accuracy, biases, probes, and how they were measured."""

import functools
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from jbias.data import tables as data_tables
from jbias.evals import accuracy, calibration, cue_conflict, decisions, human, trials
from jbias.report import document, network_frame, network_plots, tables

Network, Place = network_frame.Network, network_frame.Place
Networks = Sequence[Network]
Blocks = Iterator[document.Block | None]
Counts = Mapping[str, Mapping[str, tuple[int, int]]]  # By network and row, of how many.

MOST = 8  # Networks on one figure; more nobody tells apart.
_CLASSES = 100  # Of a confusion that is drawn.
_COMMONEST = 10  # Confusions of a network that are told.
_FEW = f"*: fewer than {network_frame.FEW}, which says next to nothing"
_NOT_KEPT = "its decisions were not kept (the suite's run.decisions)"
_WILSON = "with Wilson intervals of 95 %"
_BOOTSTRAP = "with bootstrap intervals of 95 % over images"


def _columns(form: Callable[..., str], **heads: str) -> dict:
    """Gives columns that are shown alike, with their heads."""
    return {key: (head, form) for key, head in heads.items()}


def _ended(metric: str) -> tuple[str, str, str]:
    return metric, f"{metric}_lower", f"{metric}_upper"


_ONE, _TWO, _THREE, _FOUR = map(tables.digits, (1, 2, 3, 4))
_SET = _columns(str, network="Network", set="set")
_IMAGES = _columns(tables.whole, n="images")


def _with_ends(metric: str, head: str, form=_THREE) -> dict:
    """Gives the columns of a number and of its interval."""
    return dict(zip(_ended(metric), ((told, form) for told in (head, "from", "to"))))


class _Page(NamedTuple):
    networks: Networks
    drawn: Networks  # All or, where they are too many for figures, none.
    notes: list[str]  # What else a reader must know; parts add to it.


def report(networks: Networks, told: Sequence[str] = ()) -> document.Report:
    """Gives the page.

    told: what else a reader must know, such as which networks were left out.
    """
    notes: list[str] = []
    shown = [*blocks(networks, notes)]
    few = {n.name: n.row["shape_n"] for n in networks if "shape_n" in n.row}
    missing = [*told, *network_frame.few_decisions(few), *_missing(networks)]
    missing += dict.fromkeys(notes)
    names = [one.name for one in networks]
    places = {place for one in networks for place in one.measures}
    columns = ["run", "seed", "step", "dataset", "condition", "metric"]
    columns += ["value", "count", "n"]
    frames = {one.name: one.records[columns] for one in networks}
    numbers = pd.concat(frames, names=["network"]).reset_index("network")
    return document.Report(
        title="jbias measured",
        heading=tables.join(names)
        if len(names) < 4
        else f"{len(names)} measured networks",
        subtitle="Measured networks, jbias report",
        answer=headline(networks),
        facts={
            "Networks": len(networks),
            "Measures": len({measure for measure, _ in places}),
            "Sets": len({dataset for _, dataset in places}),
            "Numbers": f"{len(numbers):,}",
        },
        sections=document.sections(
            {name: part.title for name, part in _PARTS.items()},
            shown,
            [("caveats", document.Text(missing))],
        ),
        results={
            "networks": [*map(_result, networks)],
            "missing": missing,
            "numbers": numbers,
        },
        source=f"Made from {', '.join(str(n.workdir) for n in networks)}.",
        frames={"numbers": numbers},
    )


def blocks(
    networks: Networks, notes: list[str]
) -> Iterator[tuple[str, document.Block]]:
    """Gives sections with their figures and tables; adds to `notes` what is not drawn."""
    drawn = networks
    if len(networks) > MOST:
        drawn = []
        notes.append(
            f"{len(networks)} networks are more than figures can tell apart, so there are "
            f"tables alone; name {MOST} or fewer for figures."
        )
    for name, part in _PARTS.items():
        for block in part.blocks(_Page(networks, drawn, notes)):
            if block is not None:
                yield name, block


def _result(one: Network) -> dict:
    """Gives what results.json says of a network beside its numbers."""
    return {
        "network": one.name,
        "workdir": str(one.workdir),
        "weights": one.config.get("run", {}).get("digest"),
        "row": one.row,
        "measured_on": one.places,
        "measures": [
            {"measure": measure, "dataset": dataset}
            | {key: told.get(key) for key in ("images", "seconds", "precision")}
            | {"options": told["measure"]["options"]}
            for (measure, dataset), told in one.measures.items()
        ],
    }


# In words.


def headline(networks: Networks) -> tuple[str, str]:
    """Gives the answer in one sentence and what it rests on."""
    asked = [told for one in networks for told in one.asked]
    shown, seconds = (sum(told[key] for told in asked) for key in ("images", "seconds"))
    measures = sum(len(one.measures) for one in networks)
    count = f"{len(networks)} network" + "s" * (len(networks) > 1)
    basis = f"{count}, {shown:,} images shown in {measures} measures, {seconds:,.0f} s."
    told = [*(_one(*networks) if len(networks) == 1 else _range(networks))]
    return f"{'; '.join(told) or f'{count} measured'}.", basis


def _one(network: Network) -> Iterator[str]:
    """Says the main numbers of one network."""
    if network.accuracy:
        dataset, number = network.accuracy
        ends = decisions.wilson_interval(int(number.count), number.n)
        yield f"{tables.with_ends(number.value, *ends)} % right on {dataset}"
    for place in network.of("shape_bias")[:1]:
        number = network.number(place, "shape_bias")
        if number.value is None:
            yield f"no decision for either cue on {place[1]}"
        else:
            value, low, high = network.values(place, _ended("shape_bias")).values()
            yield (
                f"shape bias {value:.3f} [{low:.3f}, {high:.3f}] of {number.n:,} decisions "
                f"on {place[1]}"
            )
    if "pgd" in network.row:
        of = f" of {network.attacked:,.0f} images" if network.attacked else ""
        how = network.methods["pgd"].text
        yield f"{network.row['pgd']:.1f} %{of} right under PGD ({how})"


def _range(networks: Networks) -> Iterator[str]:
    """Says between which networks the main numbers lie."""
    known = {n.name: n.accuracy for n in networks if n.accuracy}
    sets = {dataset for dataset, _ in known.values()}
    if len(known) > 1 and len(sets) == 1:
        values = {name: 100 * number.value for name, (_, number) in known.items()}
        yield _ends(f"Accuracy on {sets.pop()} in %", values, ".1f", {})
    rows = {n.name: n.row for n in networks}
    values = {
        k: row["shape"] for k, row in rows.items() if row.get("shape", math.nan) >= 0
    }
    if len(values) > 1:
        of = {
            name: f", of {network_frame.decisions_text(row['shape_n'])} decisions"
            for name, row in rows.items()
            if "shape_n" in row
        }
        yield _ends("shape bias", values, ".3f", of)


def _ends(what: str, values: Mapping, form: str, of: Mapping) -> str:
    """Says which are the smallest and the largest, and of what."""
    low, high = (
        f"{values[name]:{form}} ({name}{of.get(name, '')})"
        for name in (min(values, key=values.get), max(values, key=values.get))
    )
    return f"{what} from {low} to {high}"


def _missing(networks: Networks) -> Iterator[str]:
    """Says what was not measured, and how what was differs from what is published.

    Each line comes once, with the networks that it is about if these are not all.
    """
    for of in (_unmeasured, lambda one: one.lacking, _differing):
        lines: dict[str, list[str]] = {}
        for one in networks:
            for line in of(one):
                lines.setdefault(line[0].upper() + line[1:], []).append(one.name)
        for line, names in lines.items():
            whose = "" if len(names) == len(networks) else f": {', '.join(names)}"
            yield f"{line}{whose}."


def _unmeasured(one: Network) -> Iterator[str]:
    for name, part in _PARTS.items():
        published = name == "corruptions" and one.corrupted
        if part.probes and not published and not any(map(one.of, part.probes)):
            yield f"{part.title}: not measured (probe {' or '.join(part.probes)})"


def _differing(one: Network) -> Iterator[str]:
    """Says of which images, and how, benchmarks of the first table were made."""
    for name in ("imagenet_c", "imagenet_cbar", "pgd"):
        if name in one.places:
            yield f"{network_frame.TITLES[name]} here is made of {one.places[name]}"
    for place in one.of("corruptions"):
        if one.number(place, "corruption_accuracy_part"):
            yield (
                f"Only a part of {place[0]} was measured; its mean is not the published one, "
                "and is left out"
            )


# What several parts have.


def _each(networks: Networks, probe: str) -> Iterator[tuple[Network, Place, dict]]:
    """Gives networks with the measures of a probe, and what a row of these begins with."""
    for one in networks:
        for place in one.of(probe):
            yield one, place, {"network": one.name, "set": place[1]}


def _places(networks: Networks, probe: str) -> Iterator[tuple[str, Place, Networks]]:
    """Gives measures of a probe, an ending for their figures' names, and whose they are."""
    found: dict[Place, list] = {}
    for one, place, _ in _each(networks, probe):
        found.setdefault(place, []).append(one)
    for place, those in found.items():
        yield "_".join(("", *place)) if len(found) > 1 else "", place, those


def _singly(networks: Networks, probe: str) -> Iterator[tuple[str, Place, Network]]:
    """The same for figures of one network."""
    for ending, place, those in _places(networks, probe):
        for i, one in enumerate(those, 1):
            yield ending + (f"_{i}" if len(those) > 1 else ""), place, one


def _shares(
    name: str, caption: str, first: str, page: _Page, counts: Counts, metric="accuracy"
) -> tables.Table | None:
    """Makes a table of shares: a row a name, a column a network."""
    order = dict.fromkeys(row for each in counts.values() for row in each)
    data, rows = [], []
    for row in order:
        cells = [row]
        for one in page.networks:
            count, n = counts.get(one.name, {}).get(row, (0, None))
            low, high = decisions.wilson_interval(count, n or 0)
            cells.append(tables.with_ends(count / n, low, high) if n else "–")
            if n is not None:
                value = count / n if n else math.nan
                data.append({first: row, "network": one.name, "metric": metric})
                data[-1] |= dict(value=value, low=low, high=high, count=count, n=n)
        rows.append(tuple(cells))
    if not rows:
        return None
    return tables.Table(
        name=name,
        caption=f"{caption} In %, {_WILSON}.",
        head=(first.capitalize(), *(one.name for one in page.networks)),
        rows=tuple(rows),
        data=pd.DataFrame(data),
    )


def class_counts(networks: Networks, probe: str, metric: str) -> dict[str, Counts]:
    """Gives `count` of n by set, network and class, by names that can be read."""
    found: dict[str, dict] = {}
    for one, place, _ in _each(networks, probe):
        for number in one.numbers[place]:
            rule, told, name = number.condition.partition("class=")
            if number.metric == metric and told and not rule:
                by = found.setdefault(place[1], {}).setdefault(one.name, {})
                by[data_tables.readable(name)] = int(number.count), number.n
    return found


def _joined(counts: Mapping[str, Counts]) -> Counts:
    """Gives counts by network and class, with the set in the name where there are several."""
    found: dict[str, dict] = {}
    for dataset, by_network in counts.items():
        before = f"{dataset}: " if len(counts) > 1 else ""
        for network, by_class in by_network.items():
            by = {f"{before}{name}": pair for name, pair in by_class.items()}
            found.setdefault(network, {}).update(by)
    return found


def _panels(rows: Sequence[tuple], networks: Networks) -> dict[str, tuple]:
    """Gives panels of curves of (title, label, place, network, share)."""
    frame = pd.DataFrame(rows, columns=["title", "label", "x", "network", "value"])
    panels = {}
    for (title, label), part in frame.groupby(["title", "label"], sort=False):
        wide = part.pivot(index="network", columns="x", values="value")
        panels[title] = label, 100 * wide.reindex([one.name for one in networks])
    return panels


# The parts.


def _overview(page: _Page) -> Blocks:
    rows = []
    for one in page.networks:
        dataset, number = one.accuracy or (None, None)
        told = like_people(one).get("error_consistency")
        row = {"network": one.name, "set": dataset, "accuracy": number and number.value}
        row |= {key: one.row.get(key) for key in ("shape", "low_freq", "high_freq")}
        row["decisions"] = one.row.get("shape_n")
        row |= {key: one.row.get(key) for key in ("cb_bw", "cb_cf", "cb_pns")}
        row |= {key: one.row.get(key, math.nan) / 100 for key in ("imagenet_c", "pgd")}
        for place in one.of("calibration")[:1]:
            row |= one.values(place, ["ece"])
        row |= {"error_consistency": told and told.value, "sets": told and told.n}
        rows.append(row)
    yield tables.from_rows(
        "overview",
        "What was measured, in short; each has a section of its own. Shape bias: share of "
        f"shape among so many decisions for either cue ({_FEW}). Low, high: mean ratio of "
        "accuracy on filtered images to that on clean ones. Band: bandwidth in octaves, "
        "centre in nominal cycles per image and peak noise sensitivity of the critical band. "
        "Corrupted: mean over the corruptions of ImageNet-C. Attacked: PGD. Like people: "
        "error consistency, over so many sets.",
        rows,
        _SET
        | _columns(tables.percent, accuracy="accuracy in %")
        | _columns(_THREE, shape="shape bias")
        | _columns(network_frame.decisions_text, decisions="of")
        | _columns(_THREE, low_freq="low", high_freq="high")
        | _columns(_TWO, cb_bw="band")
        | _columns(_ONE, cb_cf="centre")
        | _columns(_TWO, cb_pns="sensitivity")
        | _columns(tables.percent, imagenet_c="corrupted in %", pgd="attacked in %")
        | _columns(_THREE, ece="ECE", error_consistency="like people")
        | _columns(tables.whole, sets="sets"),
    )


def _accuracy(page: _Page) -> Blocks:
    """Shows accuracy by set, the main set first; single corruptions are no sets."""
    counts: dict[str, dict] = {one.name: {} for one in page.networks}
    for one in page.networks:
        main = one.accuracy and one.accuracy[0]
        for place in sorted(one.of("plain"), key=lambda place: place[1] != main):
            measure, dataset = place
            number = one.number(place, "accuracy") or one.number(place, "real_accuracy")
            if number and number.n and not one.is_corruption(dataset):
                name = dataset if measure == "accuracy" else f"{dataset} ({measure})"
                counts[one.name][name] = int(number.count), number.n
    told = "Accuracy on each set as it is"
    if page.drawn and any(counts.values()):
        drawn = network_plots.accuracies(counts)
        yield document.Figure("accuracy", f"{told}, {_WILSON} over images.", drawn)
    yield _shares("accuracy", f"{told}.", "set", page, counts)


def _shape_bias(page: _Page) -> Blocks:
    every = class_counts(page.networks, "shape_bias", "shape_bias")
    for dataset, counts in every.items() if page.drawn else ():
        names = list(dict.fromkeys(name for each in counts.values() for name in each))
        by = {
            network: {
                names.index(name): cue_conflict.ShapeBias(
                    count / n if n else math.nan, count, n - count
                )
                for name, (count, n) in each.items()
            }
            for network, each in counts.items()
        }
        people, beside = _people(page, dataset), ""
        if people and set(people) <= set(names):
            beside = " and people"
            by[network_plots.PEOPLE] = {names.index(k): v for k, v in people.items()}
        yield document.Figure(
            "shape_bias" + (f"_{dataset}" if len(every) > 1 else ""),
            f"Decisions for shape and for texture of networks{beside} on {dataset}, by class "
            "of shapes; vertical lines are the shares over all classes together. As figure 4 "
            "of Geirhos et al., ICLR 2019.",
            network_plots.cue_decisions(by, names),
        )
    metrics = *_ended("shape_bias"), "accuracy_shape", "accuracy_texture"
    metrics += "fraction_shape", "fraction_texture"
    yield tables.from_rows(
        "shape_bias",
        "Shape bias: decisions for the shape among those for either cue, where cues conflict, "
        f"with Wilson's interval of 95 % ({_FEW}). Accuracy by shape and by texture: all "
        "images, with either cue as the label (Geirhos' style transfer test), in %. Rule: how "
        "the answers of several classes count.",
        [
            row
            | {"rule": one.rule(place, number.condition)}
            | one.values(place, metrics, number.condition)
            | {"shape": number.count, "either": number.n}
            for one, place, row in _each(page.networks, "shape_bias")
            for number in one.numbers[place]
            if number.metric == "shape_bias" and "class=" not in number.condition
        ],
        _SET
        | _columns(str, rule="rule")
        | _with_ends("shape_bias", "shape bias")
        | _columns(tables.whole, shape="for shape")
        | _columns(network_frame.decisions_text, either="of")
        | _columns(tables.percent, accuracy_shape="accuracy by shape")
        | _columns(tables.percent, accuracy_texture="by texture"),
    )
    told = "Shape bias by class of shapes: decisions for the shape among those for either cue."
    joined = _joined(every)
    yield _shares("shape_bias_by_class", told, "class", page, joined, "shape_bias")


def _people(page: _Page, dataset: str) -> Mapping[str, cue_conflict.ShapeBias]:
    """Gives people's shape bias by class, if networks were compared with people."""
    for one, place, _ in _each(page.networks, "human"):
        if place[1] == dataset and one.split(dataset) == "cue-conflict":
            root = one.measures[place]["measure"]["options"]["root"]
            try:
                found = human.shape_biases(trials.people(root, "cue-conflict"))
            except ValueError as error:
                page.notes.append(
                    f"People are not in the figure of shape bias: {error}."
                )
                return {}
            names = one.classes(place)
            return {names[k]: v for k, v in found.items()} if names else {}
    return {}


def like_people(one: Network) -> dict[str, decisions.Number]:
    """Gives what a network has in common with people, by metric: means over n sets."""
    found = {one.split(place[1]): one.numbers[place] for place in one.of("human")}
    return {told.metric: told for told in human.overall(found)} if found else {}


def _human(page: _Page) -> Blocks:
    metrics = "ood_accuracy", "human_accuracy", *_ended("error_consistency")
    metrics += "human_error_consistency", "observed_consistency", "accuracy_difference"
    rows = []
    for one in page.networks:
        for _, place, row in _each([one], "human"):
            rows.append(row | one.values(place, metrics))
        told = like_people(one)
        if told:
            n = next(iter(told.values())).n
            means = {"set": f"mean of {n} of {len(human.SETS)} sets"}
            means |= {metric: number.value for metric, number in told.items()}
            rows.append({"network": one.name} | means)
    yield tables.from_rows(
        "people",
        "Networks and people. Error consistency is Cohen's kappa of being right: 0 as by "
        f"chance, 1 where errors are the same, {_BOOTSTRAP}; beside it that among people. "
        "Accuracies in %, over the conditions that count; observed: share of images that both "
        "get right or both wrong; difference: squared difference to people's accuracy. The "
        "last line of a network is the mean over sets.",
        rows,
        _SET
        | _columns(tables.percent, ood_accuracy="accuracy", human_accuracy="people's")
        | _with_ends("error_consistency", "error consistency")
        | _columns(_THREE, human_error_consistency="among people")
        | _columns(_THREE, observed_consistency="observed")
        | _columns(_THREE, accuracy_difference="difference"),
    )
    yield by_degree(page.networks)


def by_degree(networks: Networks) -> tables.Table | None:
    """Gives accuracies by degree of distortion, of sets that have degrees."""
    rows = []
    for one, place, row in _each(networks, "human"):
        about = one.provenance.get("data", {}).get(place[1], {})
        decided = one.decided(place).get("")
        for code, name in enumerate(about.get("values", {}).get("condition", ())):
            found = one.values(place, ("human_accuracy", "error_consistency"), name)
            if found["human_accuracy"] is not None:
                rows.append(row | {"degree": name} | found)
                if decided is not None:
                    here = decided.columns["condition"] == code
                    right = decided.prediction == decided.columns["label"]
                    rows[-1] |= {"accuracy": right[here].mean(), "n": int(here.sum())}
    return tables.from_rows(
        "people_by_degree",
        "Networks and people by degree of distortion, as the sets name it, those that do not "
        "count included; accuracies in %.",
        rows,
        _SET
        | _columns(str, degree="degree")
        | _IMAGES
        | _columns(tables.percent, accuracy="accuracy", human_accuracy="people's")
        | _columns(_THREE, error_consistency="error consistency"),
    )


_FILTER = re.compile(r"(low|high) ([\d.]+)")


def _spectral(page: _Page) -> Blocks:
    for ending, place, those in _places(page.drawn, "spectral"):
        label = "cut-off, share of frequencies"
        rows = [
            (f"{match[1]}-pass", label, float(match[2]), one.name, number.value)
            for one in those
            for number in one.numbers[place]
            if number.metric == "accuracy"
            and (match := _FILTER.fullmatch(number.condition))
        ]
        yield document.Figure(
            f"filters{ending}",
            f"Accuracy on filtered images of {place[1]}: low-pass filters keep the inner share "
            "of frequencies, high-pass filters the outer one.",
            network_plots.curves(_panels(rows, page.networks)),
        )
    metrics = *_ended("low_freq_bias"), *_ended("high_freq_bias"), "spectral_ratio"
    rows = []
    for one, place, row in _each(page.networks, "spectral"):
        clean = one.number(place, "accuracy", "unfiltered")
        row |= {"clean": clean and clean.value, "n": clean and clean.n}
        rows.append(row | one.values(place, metrics))
    yield tables.from_rows(
        "spectral",
        "Spectral biases: mean ratio, over the cut-offs 0.1 to 0.5, of accuracy on filtered "
        f"images to that on clean ones, {_BOOTSTRAP}. Ratio: high / (low + high).",
        rows,
        _SET
        | _IMAGES
        | _columns(tables.percent, clean="clean in %")
        | _with_ends("low_freq_bias", "low")
        | _with_ends("high_freq_bias", "high")
        | _columns(_THREE, spectral_ratio="ratio"),
    )


_NOISE = re.compile(r"(?:noise|original) ([\d.]+)(?: at ([\d.]+))?")
# The flags of jbias.evals.critical_band, as the numbers are called.
_WHY = {
    "all_critical": "all strengths do harm in each octave",
    "no_critical_band": "no strength does harm",
    "flat": "all octaves do the same harm",
    "unknown": "too few images for all octaves",
}


def _critical_band(page: _Page) -> Blocks:
    for ending, place, those in _places(page.drawn, "critical_band"):
        panels = {one.name: noise(one, place) for one in those}
        bands = {one.name: band(one, place, panels[one.name]) for one in those}
        lost = {one.name: no_band(one, place) for one in those if not bands[one.name]}
        lost = [f"{name} ({why})" if why else name for name, why in lost.items()]
        yield document.Figure(
            ending.removeprefix("_") or "critical_band",
            f"{place[0]} on {place[1]}: accuracy in % under noise, by its strength and its "
            "octave in nominal cycles per image. Over the cells the fitted band with its "
            "centre, cut where the cells end."
            + (f" No band: {', '.join(lost)}." if lost else ""),
            network_plots.heat(
                panels,
                across="cycles per image",
                down="strength of noise",
                cell=(0.42, 0.22),
                bands=bands,
            ),
        )
    columns = (
        _with_ends("bandwidth", "bandwidth", _TWO)
        | _with_ends("center_frequency", "centre", _TWO)
        | _with_ends("peak_noise_sensitivity", "sensitivity")
    )
    rows = []
    for one, place, row in _each(page.networks, "critical_band"):
        prefix = _prefix(one, place)
        told = one.values(place, [prefix + name for name in columns])
        width = one.number(place, f"{prefix}bandwidth")
        lost = one.number(place, f"{prefix}bandwidth_undefined")
        row = {"network": one.name, "measure": place[0]} | row
        row |= dict(zip(columns, told.values(), strict=True))
        row |= {"n": width and width.n, "undefined": lost and lost.value}
        rows.append(row | {"why": no_band(one, place)})
    yield tables.from_rows(
        "critical_band",
        "The critical band: a Gaussian over octaves, fitted to how many strengths of noise do "
        f"harm; {_BOOTSTRAP}. Bandwidth in octaves, centre in nominal cycles per image. –: no "
        "band. Without: share of the bootstrap's draws that have no band, in %.",
        rows,
        _columns(str, network="Network", measure="measure", set="set")
        | _IMAGES
        | columns
        | _columns(tables.percent, undefined="without")
        | _columns(lambda words: words, why="why none"),
    )


def _prefix(one: Network, place: Place) -> str:
    """Gives what the names of a critical band's numbers begin with."""
    variant = one.measures[place]["measure"]["options"].get("variant", "bvg")
    return "critical_band_" if variant == "bvg" else f"critical_band_{variant}_"


def no_band(one: Network, place: Place) -> str | None:
    """Says in words why a network has no critical band; None where it has one."""
    told = one.values(place, [_prefix(one, place) + flag for flag in _WHY]).values()
    return next((why for why, is_so in zip(_WHY.values(), told) if is_so), None)


def noise(one: Network, place: Place) -> pd.DataFrame:
    """Gives accuracy by strength of noise, weakest last, and octave."""
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


def band(one: Network, place: Place, cells: pd.DataFrame) -> network_plots.Band | None:
    """Gives the fitted band in octaves above the lowest of the cells, if there is one."""
    names = [_prefix(one, place) + end for end in ("bandwidth", "center_frequency")]
    width, centre = one.values(place, names).values()
    if None in (width, centre):
        return None
    at = math.log2(centre / float(cells.columns[0]))
    return network_plots.Band(at - width / 2, at, at + width / 2)


def _corruptions(page: _Page) -> Blocks:
    """Shows each set that was corrupted, and the published files."""
    for ending, told, cells in _corrupted(page.networks):
        those = [one.name for one in page.networks if one.name in cells]
        names = dict.fromkeys(name for each in cells.values() for name, _ in each)
        rows = [
            (one, told, name, severity, value)
            for name in names
            for one in those
            for (other, severity), value in cells[one].items()
            if other == name
        ]
        keys = ["network", "images", "corruption", "severity", "accuracy"]
        data = pd.DataFrame(rows, columns=keys)
        severities = sorted(data["severity"].unique())
        by = {
            one: part.pivot(index="corruption", columns="severity", values="accuracy")
            .reindex(index=names, columns=severities)
            .rename(index=lambda name: name.replace("_", " "))
            for one, part in data.groupby("network", sort=False)
        }
        if page.drawn:
            yield document.Figure(
                f"corruptions{ending}",
                f"Accuracy in % on corrupted {told}, by corruption and severity.",
                network_plots.heat(
                    {one: by[one] for one in those},
                    across="severity",
                    down="",
                    cell=(0.34, 0.2),
                ),
            )
        means = pd.DataFrame({one: by[one].mean(axis=1) for one in those})
        yield tables.Table(
            name=f"corruptions{ending}",
            caption=f"Accuracy in % on corrupted {told}, mean over severity "
            f"{tables.join(map(str, severities))}; the CSV file has each.",
            head=("Corruption", *those),
            rows=tuple(
                (
                    name,
                    *("–" if math.isnan(one) else tables.percent(one) for one in row),
                )
                for name, *row in means.itertuples()
            ),
            data=data,
        )


def _corrupted(networks: Networks) -> Iterator[tuple[str, str, dict[str, dict]]]:
    """Gives an ending, of which images, and accuracy by network, corruption and severity.

    Measures of one set are together, such as ImageNet-C and C-bar, unless they share a
    condition.
    """
    shared = {
        a[1]
        for one in networks
        for a, b in itertools.combinations(one.corrupted, 2)
        if a[1] == b[1] and one.corrupted[a].keys() & one.corrupted[b].keys()
    }
    found: dict[tuple[str, ...], dict[str, dict]] = {}
    for one in networks:
        for place, cells in one.corrupted.items():
            key = place if place[1] in shared else place[1:]
            found.setdefault(key, {}).setdefault(one.name, {}).update(cells)
    for key, by_network in found.items():
        ending = "_".join(("", *key)) if len(found) > 1 and any(key) else ""
        told = f"images of {key[-1]}" if key[-1] else "images as published"
        told += f" (measure {key[0]})" if len(key) > 1 else ""
        yield ending, told, by_network


_ATTACK = re.compile(r"(linf|l2) ([\d.]+)(/255)?(.*)")
_NORMS = {"linf": "ℓ∞", "l2": "ℓ2"}


def _attacks(page: _Page) -> Blocks:
    rows = []
    counts: dict[str, dict] = {}
    for probe in ("pgd", "fgsm"):
        for one, place, _ in _each(page.networks, probe):
            by = counts.setdefault(one.name, {})
            for number in one.numbers[place]:
                strict = ", right before, too" if "_strict" in number.metric else ""
                if "_accuracy" in number.metric and number.count is not None:
                    name = f"{place[0]} {number.condition}{strict}"
                    by[name] = int(number.count), number.n
                match = _ATTACK.fullmatch(number.condition)
                if match and number.metric == f"{probe}_accuracy":
                    norm = _NORMS[match[1]]
                    title = f"{place[0]} on {place[1]}, {norm}{match[4]}"
                    label = f"budget ({norm}{', in 1/255' if match[3] else ''})"
                    budget = float(match[2])
                    rows.append((title, label, budget, one.name, number.value))
    panels = _panels(rows, page.networks)
    panels = {title: panel for title, panel in panels.items() if panel[1].shape[1] > 1}
    if page.drawn and panels:
        yield document.Figure(
            "attacks",
            "Accuracy under attack by budget. Attacks with one budget are in the table.",
            network_plots.curves(panels),
        )
    told = "Accuracy under attack, by measure, norm and budget."
    yield _shares("attacks", told, "attack", page, counts)


def _calibration(page: _Page) -> Blocks:
    for ending, place, those in _places(page.drawn, "calibration"):
        found = {}
        for one in those:
            decided = one.decided(place).get("")
            if decided is None:
                page.notes.append(f"{one.name}: no reliability is drawn: {_NOT_KEPT}.")
            else:
                options = one.measures[place]["measure"]["options"]
                bins = options.get("bins", calibration.BINS)
                found[one.name] = calibration.of_decisions(decided, bins=bins)
        if found:
            yield document.Figure(
                f"reliability{ending}",
                f"Reliability on {place[1]}: accuracy over confidence, in bins of equal width. "
                "Below the diagonal a network is surer than it is right. Underneath, the share "
                "of images in each bin.",
                network_plots.reliability(found),
            )
    metrics = ("ece", "ece_mass", "nll", "brier_top")
    yield tables.from_rows(
        "calibration",
        "Calibration; smaller is better in all. ECE: expected calibration error over 15 bins "
        "of equal width, and over bins of equally many images; NLL in nats; Brier: that of "
        "the decided class.",
        [
            row
            | {"rule": one.rule(place, number.condition), "n": number.n}
            | one.values(place, metrics, number.condition)
            for one, place, row in _each(page.networks, "calibration")
            for number in one.numbers[place]
            if number.metric == "ece"
        ],
        _SET
        | _columns(str, rule="rule")
        | _IMAGES
        | _columns(_FOUR, ece="ECE", ece_mass="ECE, equal bins")
        | _columns(_THREE, nll="NLL")
        | _columns(_FOUR, brier_top="Brier"),
    )


def _classes(page: _Page) -> Blocks:
    every = class_counts(page.networks, "classes", "class_accuracy")
    for dataset, counts in every.items() if page.drawn else ():
        whole = {one.name: counts.get(one.name, {}) for one in page.networks}
        yield document.Figure(
            "classes" + (f"_{dataset}" if len(every) > 1 else ""),
            f"Accuracy by class on {dataset}, {_WILSON} over images.",
            network_plots.accuracies(whole, best_first=True),
        )
    for ending, place, one in _singly(page.drawn, "classes"):
        found = confusion(one, place)
        if found is None:
            page.notes.append(f"{one.name}: no confusion is told: {_NOT_KEPT}.")
        elif len(found[1]) > _CLASSES:
            page.notes.append(
                f"{one.name}: {len(found[1])} classes are too many to draw their confusion; "
                "the table has the largest shares."
            )
        else:
            yield document.Figure(
                f"confusion{ending}",
                f"{one.name}: what images of each class of {place[1]} are taken for, in % of "
                "the class.",
                network_plots.confusion(*found[:2]),
            )
    joined = _joined(every)
    yield _shares(
        "classes", "Accuracy by class.", "class", page, joined, "class_accuracy"
    )
    yield confusions(page.networks)


def confusion(one: Network, place: Place):
    """Gives the confusion in per cent, the names of its classes and their images, or None."""
    decided = one.decided(place).get("")
    if decided is None:
        return None
    label = decided.columns["label"]
    k = int(max(label.max(), decided.prediction.max())) + 1
    names = one.classes(place) or tuple(map(str, range(k)))
    matrix = accuracy.confusion(decided.prediction, label, len(names))
    sizes = np.bincount(label[label >= 0], minlength=len(names))
    return matrix, tuple(map(data_tables.readable, names)), sizes


def confusions(networks: Networks) -> tables.Table | None:
    """Gives what is taken for what, the sure ones first.

    Of one image a wrong answer is no confusion yet.
    """
    wilson = functools.cache(decisions.wilson_interval)
    rows = []
    for one, place, row in _each(networks, "classes"):
        found = confusion(one, place)
        if found is None:
            continue
        matrix, names, sizes = found
        wrong = np.rint(np.nan_to_num(matrix) / 100 * sizes).astype(int)
        np.fill_diagonal(wrong, 0)
        cells = [(i, j, *wilson(wrong[i, j], sizes[j])) for i, j in np.argwhere(wrong)]
        cells.sort(key=lambda cell: -cell[2])
        for i, j, low, high in cells[:_COMMONEST]:
            told = {"class": names[j], "as": [*names, "no response"][i]}
            told |= {"count": wrong[i, j], "n": sizes[j]}
            told |= {"share": wrong[i, j] / sizes[j], "low": low, "high": high}
            rows.append(row | told)
    return tables.from_rows(
        "confusions",
        f"What is taken for what most often: the {_COMMONEST} largest shares of a class "
        "that got one wrong answer, in % of the class, by the lower end of Wilson's interval "
        "of 95 %; of how many images of the class.",
        rows,
        _SET
        | {"class": ("class", str), "as": ("taken for", str)}
        | _columns(tables.whole, count="images", n="of")
        | _columns(tables.percent, share="% of the class", low="from", high="to"),
    )


def _decoding(page: _Page) -> Blocks:
    for ending, place, one in _singly(page.drawn, "decoding"):
        yield document.Figure(
            f"decoding{ending}",
            f"{one.name}: how often a linear decoder reads shape and texture off the "
            f"features at each site, for images of {place[1]}.",
            network_plots.decodability(one.numbers[place], title=one.name),
        )
    columns = (
        _columns(
            tables.percent, shape_decoding="shape", shape_decoding_shuffled="shuffled"
        )
        | _columns(tables.percent, texture_decoding="texture")
        | _columns(tables.percent, texture_decoding_shuffled="shuffled")
        | _columns(_THREE, shape_dimensions="neurons: shape")
        | _columns(_THREE, texture_dimensions="texture", residual_dimensions="rest")
    )
    yield tables.from_rows(
        "decoding",
        "What a linear decoder reads off the features at each site, in % of images; shuffled: "
        "where nothing is known. Neurons: shares for shape, texture and the rest.",
        [
            row
            | {"site": number.condition}
            | one.values(place, columns, number.condition)
            for one, place, row in _each(page.networks, "decoding")
            for number in one.numbers[place]
            if number.metric == "shape_decoding"
        ],
        _columns(str, network="Network", site="site") | columns,
    )


def _fields(page: _Page) -> Blocks:
    rows: dict[tuple, dict] = {}
    heads = {}
    for one, place, _ in _each(page.networks, "receptive_field"):
        for number in one.numbers[place]:
            site, _, share = number.condition.rpartition(" ")
            begun = {"network": one.name, "site": site}
            row = rows.setdefault((one.name, *place, site), begun)
            row[f"{number.metric} {share}"] = number.value
            if number.metric.startswith("receptive_"):
                kind = number.metric.removeprefix("receptive_")
                heads[f"{number.metric} {share}"] = f"{kind} {share.replace('%', ' %')}"
    yield tables.from_rows(
        "receptive_fields",
        "Effective receptive field of each site's middle unit: the pixels that hold a share of "
        "it (area), and the radius in pixels of the disc that does.",
        [*rows.values()],
        _columns(str, network="Network", site="site") | _columns(_ONE, **heads),
    )


def _made(page: _Page) -> Blocks:
    rows = []
    for one in page.networks:
        for (measure, dataset), told in one.measures.items():
            row = {"network": one.name, "measure": measure, "set": dataset}
            row |= {key: told.get(key) for key in ("images", "seconds", "precision")}
            seconds = told["seconds"]
            rows.append(row | {"rate": told["images"] / seconds if seconds else None})
    yield tables.from_rows(
        "speed",
        "How long each measure took, compiling included. Images: shown, under all conditions "
        "together. –: its decisions were another measure's already.",
        rows,
        _columns(str, network="Network", measure="measure", set="set")
        | _columns(str, precision="precision")
        | _columns(tables.whole, images="images")
        | _columns(_ONE, seconds="seconds", rate="images/s"),
    )
    yield provenance(page.networks)


def provenance(networks: Networks) -> tables.Table | None:
    """Shows what each network is, and with what it was measured."""
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
        rows.append(row | {"seconds": sum(told["seconds"] for told in one.asked)})
    return tables.from_rows(
        "provenance",
        "What was measured with what. Weights: digest of the file, or of the run's weights. "
        "Sets and their fingerprints are in each network's provenance.json.",
        rows,
        _columns(str, network="Network", model="model", weights="weights", path="from")
        | _columns(str, device="device", code="jbias", packages="packages")
        | _columns(str, python="Python")
        | _columns(tables.digits(0), seconds="seconds in all"),
    )


class _Part(NamedTuple):
    """A section of the page: its title, what makes it, and of which probes it is."""

    title: str
    blocks: Callable[[_Page], Blocks]
    probes: tuple[str, ...] = ()


_PARTS = {
    "overview": _Part("In short", _overview),
    "caveats": _Part("What to keep in mind", lambda page: iter(())),
    "accuracy": _Part("Accuracy", _accuracy, ("plain",)),
    "shape_bias": _Part("Shape or texture", _shape_bias, ("shape_bias",)),
    "people": _Part("Like people", _human, ("human",)),
    "spectral": _Part("Low and high frequencies", _spectral, ("spectral",)),
    "critical_band": _Part("Critical band", _critical_band, ("critical_band",)),
    "corruptions": _Part("Corruptions", _corruptions, ("corruptions",)),
    "attacks": _Part("Attacks", _attacks, ("pgd", "fgsm")),
    "calibration": _Part("Calibration", _calibration, ("calibration",)),
    "classes": _Part("Classes", _classes, ("classes",)),
    "decoding": _Part("Shape and texture by layer", _decoding, ("decoding",)),
    "receptive_field": _Part(
        "Effective receptive fields", _fields, ("receptive_field",)
    ),
    "made": _Part("How it was measured", _made),
}
