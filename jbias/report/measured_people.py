"""Tables of what measured networks have in common with people."""

from jbias.evals import human
from jbias.report import measured_cells, measured_read, tables


def by_set(one: measured_read.Network) -> dict[str, list]:
    """Gives what a network has in common with people, by set of model-vs-human."""
    return {one.split(place[1]): one.numbers[place] for place in one.of("human")}


def agreement(one: measured_read.Network) -> tuple[float | None, int]:
    """Gives error consistency with people over the sets that were measured, and how many."""
    found = by_set(one)
    for number in human.overall(found) if found else ():
        if number.metric == "error_consistency":
            return number.value, number.n
    return None, 0


def people(networks: measured_cells.Networks) -> tables.Table | None:
    metrics = (
        *("ood_accuracy", "human_accuracy"),
        *measured_cells.ended("error_consistency"),
        *("human_error_consistency", "observed_consistency", "accuracy_difference"),
    )
    rows = []
    for one in networks:
        for place in one.of("human"):
            row = {"network": one.name, "set": place[1]}
            rows.append(row | measured_cells.values(one, place, metrics))
        found = by_set(one)
        if found:
            told = {n.metric: n.value for n in human.overall(found)}
            words = f"mean of {len(found)} of {len(human.SETS)} sets"
            rows.append({"network": one.name, "set": words, **told})
    return tables.from_rows(
        "people",
        "Networks and people. Error consistency is Cohen's kappa of being right: 0 as by "
        "chance, 1 where errors are the same, with a bootstrap interval of 95 % over images; "
        "beside it that among people. Accuracies in %, over the conditions that count; "
        "observed: share of images that both get right or both wrong; difference: squared "
        "difference to people's accuracy. The last line of a network is the mean over sets.",
        rows,
        {
            "network": ("Network", str),
            "set": ("set", str),
            "ood_accuracy": ("accuracy", tables.percent),
            "human_accuracy": ("people's", tables.percent),
            "error_consistency": ("error consistency", tables.digits(3)),
            "error_consistency_lower": ("from", tables.digits(3)),
            "error_consistency_upper": ("to", tables.digits(3)),
            "human_error_consistency": ("among people", tables.digits(3)),
            "observed_consistency": ("observed", tables.digits(3)),
            "accuracy_difference": ("difference", tables.digits(3)),
        },
    )


def by_degree(networks: measured_cells.Networks) -> tables.Table | None:
    """Gives accuracies by degree of distortion, of sets that have degrees."""
    rows = []
    for one in networks:
        for place in one.of("human"):
            told = one.provenance.get("data", {}).get(place[1], {})
            decided = one.decided(place).get("")
            for code, name in enumerate(told.get("values", {}).get("condition", ())):
                found = measured_cells.values(
                    one, place, ("human_accuracy", "error_consistency"), name
                )
                if found["human_accuracy"] is None:
                    continue
                row = {"network": one.name, "set": place[1], "degree": name, **found}
                if decided is not None:
                    here = decided.columns["condition"] == code
                    right = decided.prediction == decided.columns["label"]
                    row |= {"accuracy": right[here].mean(), "n": int(here.sum())}
                rows.append(row)
    return tables.from_rows(
        "people_by_degree",
        "Networks and people by degree of distortion, as the sets name it, those that do not "
        "count included; accuracies in %.",
        rows,
        {
            "network": ("Network", str),
            "set": ("set", str),
            "degree": ("degree", str),
            "n": ("images", tables.whole),
            "accuracy": ("accuracy", tables.percent),
            "human_accuracy": ("people's", tables.percent),
            "error_consistency": ("error consistency", tables.digits(3)),
        },
    )
