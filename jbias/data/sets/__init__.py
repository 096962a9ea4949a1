"""DATASETS: all data sets, each made from its row of tables/data_sets.json."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from jbias.data import base, corruptions, tables
from jbias.data.sets import kinds

# Corruptions that are the splits of a data set, by the value of `severities` in its row.
CORRUPTIONS = MappingProxyType({"c": corruptions.CORRUPTIONS, "c_bar": corruptions.BAR})


def make_data_set(name: str, row: Mapping[str, Any]) -> base.DataSet:
    """Return the data set of a row of tables/data_sets.json; name: the row's name."""
    fields = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
    if "make" in fields:
        return kinds.DrawnSet(name=name, **fields)
    if "severities" in fields:
        fields["folders"] = _severities(CORRUPTIONS[fields.pop("severities")])
        fields["splits"] = tuple(fields["folders"])
    if isinstance(fields.get("images"), Mapping):
        fields.setdefault("splits", tuple(fields["images"]))
    return kinds.FileSet(name=name, **fields)


def _severities(
    known: Mapping[str, corruptions.Corruption],
) -> dict[str, tuple[str, ...]]:
    """Return {split: its folders in the published archive}, {"fog/3": ("weather/fog/3",), ...}.

    known: {name of the corruption: the corruption}.
    """
    return {
        f"{name}/{level}": (
            f"{'extra' if corruption.extra else corruption.family}/{name}/{level}",
        )
        for name, corruption in known.items()
        for level in corruptions.SEVERITIES
    }


DATASETS: Mapping[str, base.DataSet] = MappingProxyType(
    {
        name: make_data_set(name, row)
        for name, row in tables.read("data_sets").items()
        if name != "about"
    }
)
