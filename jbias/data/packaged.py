"""Tables that lie in the package as JSON: class names, WordNet ids, settings of others."""

import json
from importlib import resources
from typing import Any


def table(name: str) -> Any:
    """Reads jbias/data/tables/<name>.json."""
    path = resources.files("jbias.data") / "tables" / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))
