"""The reference of a search with --until-decided: a config, or finished runs of one method."""

import json
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from etils import epath

from jbias import config as jc
from jbias import extensions, run_spec
from jbias.deciding import seed_scores, state_file
from jbias.launch import trials
from jbias.runs import results
from jbias.runtime import files, messages

_CONFIG_NAME = re.compile(r"(jbias:|[^:]*\.py(:|$))")
# The config of further seeds, if the reference is runs, which have no config file.
_CONFIG_FILE = ".sweep/reference.py"
_CONFIG_CODE = '''"""Config of the runs of a reference; written by `jbias sweep --until-decided`."""

import json

_CONFIG = {text!r}


def get_config(_=""):
    """Return the config."""
    return json.loads(_CONFIG)
'''


class Reference(NamedTuple):
    """The reference of a comparison.

    argument: --config=..., of further seeds; "" for runs, see `write_config`. runs: workdirs of
    finished runs; empty if the reference is a config.
    """

    config: Mapping[str, Any]
    argument: str
    runs: Sequence[pathlib.Path]


def is_config(text: str) -> bool:
    """Return True if a reference is a config such as jbias:erm, not a path of runs."""
    return bool(_CONFIG_NAME.match(text))


def read(text: str) -> Reference:
    """Return the reference that --until-decided names.

    ValueError for an unknown config or path, for runs that have not ended, and for runs of
    different configs.
    """
    try:
        if is_config(text):
            config = trials.read_config(text, ())
            return Reference(config, f"--config={text}", ())
        runs = _finished_runs(text)
        return Reference(_common_config(runs), "", runs)
    except (ValueError, OSError) as error:
        line = files.describe_error(error).removeprefix("--config: ")
        raise ValueError(f"--until-decided: {line}") from error


def _finished_runs(text: str) -> list[pathlib.Path]:
    """Return the workdirs of runs that a path or glob names; ValueError if some have not ended."""
    runs, empty = results.find_workdirs(text)
    started = [path for path in empty if (path / "config.json").exists()]
    for path in (*runs, *started):
        if not seed_scores.is_finished(path):
            raise ValueError(
                f"{path} has not ended; end it by its own command, then run this command again"
            )
    if not runs:
        raise ValueError(f"{text} has no run; name a run's workdir or a config")
    return runs


def _common_config(runs: Sequence[pathlib.Path]) -> dict[str, Any]:
    """Return the config of runs that differ only in seeds; ValueError if they differ otherwise."""
    configs = [
        run_spec.check_trusted(seed_scores.config_of(path), path) for path in runs
    ]
    first = state_file.pinned_config(configs[0])
    for path, config in zip(runs, configs, strict=True):
        differing = jc.diff(first, state_file.pinned_config(config))
        if differing:
            raise ValueError(
                f"must name runs of one method, but {runs[0]} and {path} differ: "
                f"{messages.join_differences(differing)}; name fewer"
            )
    return configs[0]


def own_code(config: Mapping[str, Any]) -> dict[str, str]:
    """Return digests of the user's own files that a config names, and of the files they import."""
    return {**extensions.digests(config), **extensions.import_digests(config)}


def write_config(reference: Reference, workdir: pathlib.Path) -> None:
    """Write the config file for further seeds of runs, to the workdir of the search.

    ValueError if the user's own code has changed since the runs were trained.
    """
    from jbias.runs import workdirs  # Late: imports jax.

    workdirs.check_own_code(epath.Path(reference.runs[0]), own_code(reference.config))
    text = json.dumps(reference.config)
    files.write(workdir / _CONFIG_FILE, _CONFIG_CODE.format(text=text))


def config_argument(reference: Reference, workdir: pathlib.Path) -> str:
    """Return the argument --config=... of further seeds; workdir: of the search."""
    return reference.argument or f"--config={workdir / _CONFIG_FILE}"


def check_same_data(folders: Iterable[pathlib.Path]) -> None:
    """Raise ValueError if finished runs of a method were trained on different data or code."""
    from jbias.runs import workdirs

    identities = []
    for folder in folders:
        if (folder / "done").exists():
            recorded = workdirs.provenance(epath.Path(folder))
            # The initial weights of different seeds differ.
            identities.append(
                (folder, workdirs.data_identity(recorded) | {"init": None})
            )
    for folder, identity in identities[1:]:
        first_folder, first = identities[0]
        differing = jc.diff(first, identity)
        if differing:
            raise ValueError(
                f"{folder}: its data or code differ from those of {first_folder}: "
                f"{messages.join_differences(differing)}; restore them, or start again in another "
                "--workdir"
            )
