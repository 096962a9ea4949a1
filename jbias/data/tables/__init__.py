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
def data_sets() -> dict[str, dict[str, Any]]:
    """What is said of each data set: cite, licence, about, size, where, and, where it is
    published, images of each split, or of every one, classes and folders of splits.
    """
    return read("data_sets")


def cite(name: str) -> str:
    """Whom to cite for a set, or for one form of it, "colored_mnist/shifts"."""
    return data_sets()[name]["cite"]


def published(name: str, split: str) -> dict[str, Any]:
    """What a source of a split of a set, or of a part of it, says of itself.

    Its name, whom to cite, and how many images are published of the split.
    """
    images = data_sets()[name].get("images")
    if isinstance(images, dict):
        images = images.get(split.partition("[")[0])
    return dict(name=f"{name}/{split}", cite=cite(name), published=images)


def folders(name: str, split: str) -> tuple[str, ...]:
    """Where a split's folder may lie, beside one of its name."""
    known = data_sets()[name].get("folders", {})
    return tuple(known.get(split.partition("[")[0], ()))


@functools.cache
def class_names(name: str) -> tuple[str, ...]:
    """The classes of "cifar10", "cifar100" (fine) or "office_home", by label."""
    return tuple(read("class_names")[name])
