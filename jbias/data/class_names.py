"""Classes of sets whose files do not name them, or not in one way."""

import functools
import json
from importlib import resources


@functools.cache
def of(name: str) -> tuple[str, ...]:
    """The classes of "cifar10", "cifar100" (fine) or "office_home", by label."""
    table = resources.files("jbias.data") / "tables" / "class_names.json"
    return tuple(json.loads(table.read_text(encoding="utf-8"))[name])
