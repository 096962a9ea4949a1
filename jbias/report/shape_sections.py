"""Sections on shape, texture and people of the page of measured networks."""

import itertools
import math
import re
from collections.abc import Iterator, Mapping

import numpy as np

from jbias.evals import (
    cue_conflict,
    cue_decomposition,
    decisions,
    human,
    suppression,
    trials,
)
from jbias.report import network_page, network_plots, published_shape_biases, tables

MeasuredNetwork, Place = network_page.MeasuredNetwork, network_page.Place
Page, Blocks, COLUMNS = network_page.Page, network_page.Blocks, network_page.COLUMNS
ended = network_page.ended


def shape_bias(page: Page) -> Blocks:
    every = page.class_counts("shape_bias", "shape_bias")
    for dataset, counts in every.items() if page.drawn else ():
        names = [*dict.fromkeys(itertools.chain(*counts.values()))]
        by: dict[str, dict] = {network: {} for network in counts}
        for network, each in counts.items():
            for name, (count, n) in each.items():
                bias = count / n if n else math.nan, count, n - count
                by[network][names.index(name)] = cue_conflict.ShapeBias(*bias)
        people, beside = _people(page, dataset), ""
        if people and set(people) <= set(names):
            beside = " and people"
            by[network_plots.PEOPLE] = {names.index(k): v for k, v in people.items()}
        drawn = network_plots.cue_decisions(by, names)
        ending = f"_{dataset}" * (len(every) > 1)
        facts = dict(beside=beside, set=dataset)
        yield page.figure("shape_bias", drawn, ending, **facts)
    metrics = *ended("shape_bias"), "accuracy_shape", "accuracy_texture"
    metrics += "fraction_shape", "fraction_texture", "fraction_neither"
    metrics += "mrr_shape", "mrr_texture", "mrr_relative"
    rows = [
        row
        | {"rule": one.rule(place, number.condition)}
        | one.values(place, metrics, number.condition)
        | {"shape": number.count, "either": number.n}
        for one, place, row, number in page.numbers("shape_bias", metrics[0])
        if "class=" not in number.condition
    ]
    yield page.table("shape_bias", rows)
    yield page.shares("shape_bias_by_class", "class", every, "shape_bias")
    if page.published:
        yield published_shape_biases.comparison_table([*_like_published(page)])


_PAIRED = {
    "configural_substitute": "pairs with both right",
    "accuracy": "pictures of pairs right",
    "foil_rate": "pictures of pairs taken for the other",
}
_ORDER = {"order_dependence": "right only if no tile is swapped"}


def order_of_parts(page: Page) -> Blocks:
    every: dict[str, dict] = {}
    for probe, rows in (("configural", _PAIRED), ("tile_order", _ORDER)):
        for metric, row in rows.items():
            for one, place, _, number in page.numbers(probe, metric):
                if not number.condition:
                    by = every.setdefault(place[1], {}).setdefault(one.name, {})
                    by[row] = network_page.cell(one, place, number)
    words = "intervals of 95 %: of pictures of pairs a bootstrap's over pairs, else Wilson's"
    yield page.intervals("configural", "share", every, words)


def edges_or_texture(page: Page) -> Blocks:
    """Yield figure and table by set; means are over networks with the same measure."""
    kinds, rows = (cue_decomposition.DIFFUSED, cue_decomposition.SHUFFLED), []
    for ending, place, those in page.places("cue_decomposition", always=True):
        found: list[dict] = []
        counts: dict[str, dict] = {one.name: {} for one in page.networks}
        for one in those:
            by = {k: one.number(place, "accuracy", k) for k in ("", *kinds)}
            shown = {k: (int(x.count), x.n) for k, x in by.items()}
            counts[one.name] = {k or "as they are": x for k, x in shown.items()}
            row = {"network": one.name, "set": place[1], "n": by[""].n}
            row |= {k or "clean": number.value for k, number in by.items()}
            found.append(row | one.values(place, ended("cue_robustness")))
        alike = len({str(one.measures[place]["measure"]) for one in those}) == 1
        if not alike:
            told = f"{place[0]} on {place[1]} was not made alike for all networks"
            page.notes.append(f"{told}, so there is no shape part.")
        elif len(found) > 1:
            kept = [[row[kind] for row in found] for kind in kinds]
            means = {f"mean_{k}": np.mean(x) for k, x in zip(kinds, kept, strict=True)}
            parts = cue_decomposition.shape_part(*kept)
            pairs = zip(found, parts, strict=True)
            found = [row | {"shape_part": part, **means} for row, part in pairs]
        rows += found
        if page.drawn:
            drawn = network_plots.accuracies(counts)
            yield page.figure("cue_decomposition", drawn, ending, set=place[1])
    yield page.table("cue_decomposition", rows)


def odd_one_out(page: Page) -> Blocks:
    every: dict[str, dict] = {}
    for one, place, _, number in page.numbers("odd_one_out", "odd_one_out"):
        by = every.setdefault(place[1], {}).setdefault(one.name, {})
        if number.condition:  # Else it is that of the last site again.
            by[number.condition] = network_page.cell(one, place, number)
    words = "bootstrap intervals of 95 % over images"
    yield page.intervals("odd_one_out", "site", every, words)


def _like_published(page: Page) -> Iterator[dict]:
    """Yield rows of shape biases measured on the same images as the published ones."""
    for one, place, _, number in page.numbers("shape_bias", "shape_bias"):
        same = one.split(place[1]) == "cue-conflict"
        same &= one.measures[place]["images"] == published_shape_biases.IMAGES
        if same and number.value is not None and "class=" not in number.condition:
            row = {"network": one.name, "rule": one.rule(place, number.condition)}
            row |= {"shape": number.count, "either": number.n}
            row |= one.values(place, ended("shape_bias"), number.condition)
            for other in one.places_of("human"):
                if other[1] == place[1]:
                    row |= one.values(other, ["error_consistency"], number.condition)
            yield row


def _people(page: Page, dataset: str) -> Mapping[str, cue_conflict.ShapeBias]:
    """Return people's shape bias by class, if networks were compared with people."""
    for one, place, _ in page.each("human"):
        if place[1] == dataset and one.split(dataset) == "cue-conflict":
            root = one.measures[place]["measure"]["options"]["root"]
            try:
                found = human.shape_biases(trials.people(root, "cue-conflict"))
            except ValueError as error:
                why = f"People are not in the figure of shape bias: {error}."
                page.notes.append(why)
                return {}
            names = one.classes(place)
            return {names[k]: v for k, v in found.items()} if names else {}
    return {}


def like_people(one: MeasuredNetwork) -> dict[str, decisions.Number]:
    """Return measures of agreement with people, by metric: means over n sets."""
    found = {
        one.split(place[1]): one.numbers[place] for place in one.places_of("human")
    }
    return {told.metric: told for told in human.overall(found)} if found else {}


def beside_people(page: Page) -> Blocks:
    metrics = "ood_accuracy", "human_accuracy", *ended("error_consistency")
    metrics += "human_error_consistency", "observed_consistency", "accuracy_difference"
    rows = []
    for one in page.networks:
        for place in one.places_of("human"):
            row = {"network": one.name, "set": place[1]}
            rows.append(row | one.values(place, metrics))
        if told := like_people(one):
            n = next(iter(told.values())).n
            mean = f"mean of {n} of {len(human.SETS)} sets"
            values = {metric: number.value for metric, number in told.items()}
            rows.append({"network": one.name, "set": mean} | values)
    yield page.table("people", rows)
    yield by_degree(page)


def by_degree(page: Page) -> tables.Table | None:
    """Return the table of accuracies by degree of distortion, for sets with degrees."""
    rows = []
    for one, place, row in page.each("human"):
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
    return page.table("people_by_degree", rows)


_STRENGTHS = {
    "shuffle": "tiles a side",
    "rotation": "tiles a side",
    "bilateral": "diameter, pixels of {} a side",
    "blur": "length of the kernel, pixels of {} a side",
    "non_local_means": "h",
    "grey": "share of grey",
}
_CUES = {
    condition: f"{cue} ({condition})".replace("_", " ")
    for cue, condition in suppression.CUES.items()
}


def suppressed_cues(page: Page) -> Blocks:
    seen_by_people = {
        (one.name, place)
        for one, place, _ in page.each("suppression")
        if page.published and one.family(place[1]) == "imagenet16"
    }
    for ending, place, those in page.places("suppression"):
        kept = {one.name: without_cues(one, place) for one in page.networks}
        words = ""
        if any((one.name, place) in seen_by_people for one in those):
            _, *values = suppression.PUBLISHED[network_plots.PEOPLE]
            rows = dict(zip(_CUES.values(), values))
            kept[network_plots.PEOPLE] = {row: (x, x, x) for row, x in rows.items()}
            words = " Humans: as published, of other images."
        if any(kept.values()):
            drawn = network_plots.relative_accuracies(kept)
            facts = dict(set=place[1], people=words)
            yield page.figure("suppression", drawn, ending, **facts)
        rows = [row for one in those for row in by_strength(one, place)]
        if drawn := page.curves(rows, least=2, of="above chance, %"):
            yield page.figure("suppression_curves", drawn, ending, set=place[1])
    rows = []
    for one, place, row in page.each("suppression"):
        clean = one.number(place, "accuracy")
        row |= {"clean": clean and clean.value, "n": clean and clean.n}
        for cue, condition in suppression.CUES.items():
            told = one.interval(place, "relative_accuracy", condition)
            row |= zip(ended(cue), told, strict=True)
        rows.append(row)
    keys = ["clean", *suppression.CUES]
    for name, values in suppression.PUBLISHED.items() if seen_by_people else ():
        row = {"network": name, "set": "16 classes, published", "n": 800}
        rows.append(row | dict(zip(keys, values)))
    cues = " ".join(f"{cue}:%[]" for cue in suppression.CUES)
    caption = network_page.TABLES["suppression"]
    if seen_by_people:
        caption += f" {network_page.PUBLISHED_CUES}"
    columns = COLUMNS | network_page.columns(cues)
    yield tables.from_rows("suppression", caption, rows, columns)


def without_cues(one: MeasuredNetwork, place: Place) -> dict[str, tuple]:
    """Return the share of accuracy without a cue, with its interval, by condition."""
    found = {
        row: (*one.interval(place, "relative_accuracy", condition),)
        for condition, row in _CUES.items()
    }
    return {row: told for row, told in found.items() if None not in told}


def by_strength(one: MeasuredNetwork, place: Place) -> Iterator[tuple]:
    """Yield points of curves over the strength of the first step that varies."""
    options = one.measures[place]["measure"]["options"]
    side = options.get("reference", suppression.SIDE)
    for family, conditions in suppression.FAMILIES.items():
        parts = [*zip(*map(suppression.steps, conditions), strict=True)]
        vary = [part for part in parts if len({*part}) > 1]
        kinds = {kind for kind, _ in vary[0]} if vary else {}
        if len(kinds) != 1:
            continue
        for condition, (kind, strength) in zip(conditions, vary[0], strict=True):
            told = one.interval(place, "relative_accuracy_chance", condition)
            if None not in told:
                title = family.replace("_", " ")
                label = _STRENGTHS[kind].format(side)
                yield title, label, strength, one.name, *told


def decoded_cues(page: Page) -> Blocks:
    for ending, place, one in page.singly("decoding"):
        drawn = network_plots.decodability(one.numbers[place], title=one.name)
        facts = dict(network=one.name, set=place[1])
        yield page.figure("decoding", drawn, ending, **facts)
    metrics = [name for name in COLUMNS if re.search("_decoding|_dimensions", name)]
    rows = [
        row | {"site": number.condition} | one.values(place, metrics, number.condition)
        for one, place, row, number in page.numbers("decoding", metrics[0])
    ]
    yield page.table("decoding", rows)
