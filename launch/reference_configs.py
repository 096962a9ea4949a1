"""Configs of the further seeds of the reference of a search with --until-decided."""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

from etils import epath

from jbias import extensions
from jbias.deciding import references
from jbias.runtime import files

# The config of further seeds, if the reference is runs, which have no config file.
_CONFIG_FILE = ".sweep/reference.py"
_CONFIG_CODE = '''"""Config of the runs of a reference; written by `jbias sweep --until-decided`."""

import json

_CONFIG = {text!r}


def get_config(_=""):
    """Return the config."""
    return json.loads(_CONFIG)
'''


def own_code(config: Mapping[str, Any]) -> dict[str, str]:
    """Return digests of the user's own files that a config names, and of the files they import."""
    return {**extensions.digests(config), **extensions.import_digests(config)}


def write_config(reference: references.Reference, workdir: pathlib.Path) -> None:
    """Write the config file for further seeds of runs, to the workdir of the search.

    ValueError if the user's own code has changed since the runs were trained.
    """
    from jbias.runs import workdirs  # Late: imports jax.

    workdirs.check_own_code(epath.Path(reference.runs[0]), own_code(reference.config))
    text = json.dumps(reference.config)
    files.write(workdir / _CONFIG_FILE, _CONFIG_CODE.format(text=text))


def config_argument(reference: references.Reference, workdir: pathlib.Path) -> str:
    """Return the argument --config=... of further seeds; workdir: of the search."""
    return reference.argument or f"--config={workdir / _CONFIG_FILE}"
