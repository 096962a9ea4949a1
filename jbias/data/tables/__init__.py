"""Tables that lie in the package as JSON: class names, WordNet ids, published settings."""

import functools
import json
from importlib import resources
from typing import Any


def read(name: str) -> Any:
    """Reads jbias/data/tables/<name>.json."""
    path = resources.files("jbias.data") / "tables" / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))


@functools.cache
def data_sets() -> dict[str, dict[str, str]]:
    """What is said of each data set: cite, licence, about, size, where."""
    return read("data_sets")


def cite(name: str) -> str:
    """Whom to cite for a set, or for one form of it, "colored_mnist/shifts"."""
    return data_sets()[name]["cite"]


@functools.cache
def class_names(name: str) -> tuple[str, ...]:
    """The classes of "cifar10", "cifar100" (fine) or "office_home", by label."""
    return tuple(read("class_names")[name])
