"""Tables of measured networks; each only of what was measured."""

import functools
from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from jbias.data import tables as data_tables
from jbias.evals import accuracy, decisions
from jbias.report import (
    bias_models,
    measured_cells,
    measured_made,
    measured_people,
    measured_probes,
    measured_read,
    tables,
)

Sections = Iterator[tuple[str, tables.Table]]
_COMMONEST = 10  # Confusions of a network that are told.
_FEW = f"*: fewer than {bias_models.FEW}, which says next to nothing"


def of(networks: measured_cells.Networks) -> Sections:
    """Gives sections and tables."""
    for section, make in (
        ("overview", _overview),
        ("accuracy", _accuracy),
        ("shape_bias", _shape_bias),
        ("shape_bias", _shape_bias_by_class),
        ("people", measured_people.people),
        ("people", measured_people.by_degree),
        ("spectral", measured_probes.spectral),
        ("critical_band", measured_probes.critical_band),
        ("corruptions", measured_probes.corruptions),
        ("attacks", measured_probes.attacks),
        ("calibration", measured_probes.calibration),
        ("classes", _classes),
        ("classes", _confused),
        ("decoding", measured_probes.decoding),
        ("receptive_field", measured_probes.receptive_fields),
        ("made", measured_made.speed),
        ("made", measured_made.provenance),
    ):
        made = make(networks)
        for table in made if isinstance(made, list) else [made]:
            if table is not None:
                yield section, table


def numbers(networks: measured_cells.Networks) -> pd.DataFrame:
    """Gives every record of every network."""
    columns = ["dataset", "condition", "metric", "value", "count", "n"]
    frames = [
        one.records[["run", "seed", "step", *columns]].assign(network=one.name)
        for one in networks
    ]
    frame = pd.concat(frames, ignore_index=True)
    return frame[["network", *frame.columns.drop("network")]]


def _overview(networks: measured_cells.Networks) -> tables.Table | None:
    rows = []
    for one in networks:
        dataset, number = one.accuracy or ("", None)
        row = {"network": one.name, "set": dataset or None}
        row["accuracy"] = number.value if number else None
        row |= {key: one.row.get(key) for key in ("shape", "low_freq", "high_freq")}
        row["decisions"] = one.row.get("shape_n")
        row |= {key: one.row.get(key) for key in ("cb_bw", "cb_cf", "cb_pns")}
        for name in ("imagenet_c", "pgd"):
            row[name] = one.row[name] / 100 if name in one.row else None
        for place in one.of("calibration")[:1]:
            row |= measured_cells.values(one, place, ("ece",))
        told, n = measured_people.agreement(one)
        row |= {"error_consistency": told, "sets": n or None}
        rows.append(row)
    return tables.from_rows(
        "overview",
        "What was measured, in short; each has a section of its own. Shape bias: share of "
        f"shape among so many decisions for either cue ({_FEW}). Low, high: mean ratio of accuracy on filtered "
        "images to that on clean ones. Band: bandwidth in octaves, centre in nominal cycles "
        "per image and peak noise sensitivity of the critical band. Corrupted: mean over the "
        "corruptions of ImageNet-C. Attacked: PGD, as the section says. "
        "Like people: error consistency, over so many sets.",
        rows,
        {
            "network": ("Network", str),
            "set": ("set", str),
            "accuracy": ("accuracy in %", tables.percent),
            "shape": ("shape bias", tables.digits(3)),
            "decisions": ("of", bias_models.decisions),
            "low_freq": ("low", tables.digits(3)),
            "high_freq": ("high", tables.digits(3)),
            "cb_bw": ("band", tables.digits(2)),
            "cb_cf": ("centre", tables.digits(1)),
            "cb_pns": ("sensitivity", tables.digits(2)),
            "imagenet_c": ("corrupted in %", tables.percent),
            "pgd": ("attacked in %", tables.percent),
            "ece": ("ECE", tables.digits(3)),
            "error_consistency": ("like people", tables.digits(3)),
            "sets": ("sets", tables.whole),
        },
    )


def accuracy_counts(
    networks: measured_cells.Networks,
) -> dict[str, dict[str, tuple[int, int]]]:
    """Gives right and shown by network and set, the main set first; single corruptions
    are no sets.
    """
    found = {}
    for one in networks:
        found[one.name] = {}
        main = one.accuracy and one.accuracy[0]
        for place in sorted(one.of("plain"), key=lambda place: place[1] != main):
            measure, dataset = place
            number = one.number(place, "accuracy") or one.number(place, "real_accuracy")
            if number and number.n and not one.is_corruption(dataset):
                name = dataset if measure == "accuracy" else f"{dataset} ({measure})"
                found[one.name][name] = int(number.count), number.n
    return found


def _accuracy(networks: measured_cells.Networks) -> tables.Table | None:
    caption = "Accuracy on each set as it is."
    return measured_cells.beside(
        "accuracy", caption, "set", networks, accuracy_counts(networks)
    )


def _shape_bias(networks: measured_cells.Networks) -> tables.Table | None:
    metrics = (
        *measured_cells.ended("shape_bias"),
        *("accuracy_shape", "accuracy_texture", "fraction_shape", "fraction_texture"),
    )
    rows = []
    for one in networks:
        for place in one.of("shape_bias"):
            for number in one.numbers[place]:
                rule = number.condition
                if number.metric != "shape_bias" or "class=" in rule:
                    continue
                row = {
                    "network": one.name,
                    "set": place[1],
                    "rule": one.rule(place, rule),
                }
                row |= measured_cells.values(one, place, metrics, rule)
                row |= {"shape": number.count, "either": number.n}
                rows.append(row)
    return tables.from_rows(
        "shape_bias",
        "Shape bias: decisions for the shape among those for either cue, where cues conflict, "
        f"with Wilson's interval of 95 % ({_FEW}). Accuracy by shape and by texture: all images, with "
        "either cue as the label (Geirhos' style transfer test), in %. Rule: how the answers "
        "of several classes count.",
        rows,
        {
            "network": ("Network", str),
            "set": ("set", str),
            "rule": ("rule", str),
            "shape_bias": ("shape bias", tables.digits(3)),
            "shape_bias_lower": ("from", tables.digits(3)),
            "shape_bias_upper": ("to", tables.digits(3)),
            "shape": ("for shape", tables.whole),
            "either": ("of", bias_models.decisions),
            "accuracy_shape": ("accuracy by shape", tables.percent),
            "accuracy_texture": ("by texture", tables.percent),
        },
    )


def class_counts(
    networks: measured_cells.Networks, probe: str, metric: str
) -> dict[str, dict[str, dict[str, tuple[int, int]]]]:
    """Gives `count` of n by set, network and class, by names that can be read."""
    found: dict[str, dict] = {}
    for one in networks:
        for place in one.of(probe):
            for number in one.numbers[place]:
                rule, told, name = number.condition.partition("class=")
                if number.metric == metric and told and not rule:
                    by = found.setdefault(place[1], {}).setdefault(one.name, {})
                    by[data_tables.readable(name)] = int(number.count), number.n
    return found


def _shape_bias_by_class(networks: measured_cells.Networks) -> tables.Table | None:
    counts = class_counts(networks, "shape_bias", "shape_bias")
    return measured_cells.beside(
        "shape_bias_by_class",
        "Shape bias by class of shapes: decisions for the shape among those for either cue.",
        "class",
        networks,
        _joined(counts),
        metric="shape_bias",
    )


def _joined(counts: Mapping[str, Mapping[str, Mapping]]) -> dict[str, dict]:
    """Gives counts by network and class, with the set in the name where there are several."""
    found: dict[str, dict] = {}
    for dataset, by_network in counts.items():
        for network, by_class in by_network.items():
            for name, pair in by_class.items():
                told = f"{dataset}: {name}" if len(counts) > 1 else name
                found.setdefault(network, {})[told] = pair
    return found


def _classes(networks: measured_cells.Networks) -> tables.Table | None:
    counts = _joined(class_counts(networks, "classes", "class_accuracy"))
    return measured_cells.beside(
        "classes",
        "Accuracy by class.",
        "class",
        networks,
        counts,
        metric="class_accuracy",
    )


def confusion(one: measured_read.Network, place: measured_read.Place):
    """Gives the confusion in per cent and the names of its classes, or None."""
    decided = one.decided(place).get("")
    if decided is None:
        return None
    label = decided.columns["label"]
    k = int(max(label.max(), decided.prediction.max())) + 1
    names = one.classes(place) or tuple(map(str, range(k)))
    matrix = accuracy.confusion(decided.prediction, label, len(names))
    return matrix, tuple(map(data_tables.readable, names))


def _confused(networks: measured_cells.Networks) -> tables.Table | None:
    rows = []
    for one in networks:
        for place in one.of("classes"):
            found = confusion(one, place)
            if found is None:
                continue
            matrix, names = found
            told = [*names, "no response"]
            label = one.decided(place)[""].columns["label"]
            shown = np.bincount(label[label >= 0], minlength=len(names))
            wrong = np.rint(np.nan_to_num(matrix) / 100 * shown).astype(int)
            np.fill_diagonal(wrong, 0)
            # The sure ones first: of one image a wrong answer is no confusion yet.
            wilson = functools.cache(decisions.wilson_interval)
            cells = [
                (i, j, *wilson(wrong[i, j], shown[j])) for i, j in np.argwhere(wrong)
            ]
            cells.sort(key=lambda cell: -cell[2])
            for i, j, low, high in cells[:_COMMONEST]:
                row = {"network": one.name, "set": place[1], "class": names[j]}
                row |= {"as": told[i], "count": wrong[i, j], "n": shown[j]}
                row |= {"share": wrong[i, j] / shown[j], "low": low, "high": high}
                rows.append(row)
    return tables.from_rows(
        "confusions",
        f"What is taken for what most often: the {_COMMONEST} largest shares of a class "
        "that got one wrong answer, in % of the class, by the lower end of Wilson's interval "
        "of 95 %; of how many images of the class.",
        rows,
        {
            "network": ("Network", str),
            "set": ("set", str),
            "class": ("class", str),
            "as": ("taken for", str),
            "count": ("images", tables.whole),
            "n": ("of", tables.whole),
            "share": ("% of the class", tables.percent),
            "low": ("from", tables.percent),
            "high": ("to", tables.percent),
        },
    )
