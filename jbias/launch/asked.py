"""What search is asked for: by arguments, by a file, or by what a folder was begun with."""

import argparse
import hashlib
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from jbias import config as jc
from jbias import config_files, kinds, presets
from jbias.launch import axes, stopping, trials
from jbias.runtime import files

DEFAULTS = {"search": "grid", "trials": 10, "seed": 0}
DEFAULTS |= {"stop": "never", "fewest": stopping.FEWEST, "grace": 0}
_OF_FILES = {"config": str | list[str], "changes": dict, "axes": dict}


def settled(args: argparse.Namespace, workdir: pathlib.Path) -> dict[str, Any]:
    """The search as JSON: what was asked for now, else what the folder was begun with."""
    given = {key: getattr(args, key) for key in DEFAULTS}
    given = {key: value for key, value in given.items() if value is not None}
    if args.config and args.sweep:
        raise ValueError("--sweep: the file names the configs; leave --config out")
    if args.config or args.sweep:
        file = _of_file(args.sweep) if args.sweep else {"config": args.config}
        changes = [*file.pop("changes", ()), *args.changes]
        return {**DEFAULTS, **file, **given, "changes": changes}
    path = _memory(workdir)
    if not path.exists():
        raise ValueError(
            f"{workdir}: no search was begun there; name it: --config=configs/erm.py "
            "--config.optim.rate=[0.03,0.1]"
        )
    if args.changes:
        raise ValueError(f"{args.changes[0]}: needs --config, or --sweep")
    return {**DEFAULTS, **_remembered(path), **given}


def _remembered(path: pathlib.Path) -> dict[str, Any]:
    """The search that a folder was begun with; code that others named is not run.

    ValueError where it is damaged, or names files of code and was not begun here.
    """
    text = path.read_text()
    try:
        told = json.loads(text)
        configs, changes = told["config"], told["changes"]
        whole = all(isinstance(one, str) for one in (*configs, *changes))
        whole &= isinstance(configs, list) and isinstance(changes, list)
        whole &= all(type(told.get(k, v)) is type(v) for k, v in DEFAULTS.items())
    except (ValueError, RecursionError, KeyError, TypeError):
        whole = False
    if not whole:
        raise ValueError(
            f"{path}: must be the JSON of a search; remove it, and give --config again"
        )
    foreign = [one for one in configs if not one.startswith(presets.PREFIX)]
    known = _mark(path, text).exists() or os.environ.get("JBIAS_OWN_CODE")
    if foreign and not known:
        raise ValueError(
            f"{path}: was not begun by you here, and names code that would be run: "
            f"{foreign[0]}; give --config again, or set JBIAS_OWN_CODE=1 if you trust it"
        )
    return told


def _mark(path: pathlib.Path, text: str) -> pathlib.Path:
    """What stands in this user's cache once a search of these words was begun there."""
    words = hashlib.sha256(f"{path.resolve()}\n{text}".encode()).hexdigest()
    return files.cache_path("searches") / words


def _of_file(named: str) -> dict[str, Any]:
    """What a file's get_sweep gives, with its axes as changes."""
    path, _, arg = presets.path(named, "sweep").partition(":")
    if not pathlib.Path(path).is_file():
        raise ValueError(f"--sweep: no file {path!r}")
    told = config_files.given("sweep", path, "get_sweep", arg)
    if not isinstance(told, Mapping):
        raise ValueError(  # noqa: TRY004
            f"--sweep: {path}: get_sweep must return a dict, got {told!r}"
        )
    told = {"config": (), "changes": {}, "axes": {}, **told}
    known = {key: type(value) for key, value in DEFAULTS.items()} | _OF_FILES
    for key, value in told.items():
        jc.check_known("--sweep", key, known, "key")
        kinds.check(f"--sweep: {key}", value, known[key])
    configs = told["config"]
    told["config"] = [configs] if isinstance(configs, str) else [*configs]
    changes = axes.told(told.pop("changes"))
    for key, values in told.pop("axes").items():
        changes.append(f"--config.{key}={axes.written(axes.given(key, values))}")
    return {**told, "changes": changes}


def search(asked: Mapping[str, Any]) -> trials.Search:
    """The search, its axes apart from what holds for all trials."""
    fixed, found, keys = [], [], []
    for change in asked["changes"]:
        key, _, text = change.removeprefix("--config.").partition("=")
        axis = axes.read(key, text)
        fixed += [change] if axis is None else []
        found += [axis] if axis else []
        keys.append(key)
    if twice := [axis.key for axis in found if keys.count(axis.key) > 1]:
        raise ValueError(
            f"--config.{twice[0]}: is given twice, once as an axis; list all its values "
            "in one"
        )
    if not asked["config"]:
        raise ValueError("--config is missing, e.g. --config=jbias:erm")
    return trials.Search(
        tuple(asked["config"]),
        tuple(fixed),
        tuple(found),
        asked["search"],
        asked["trials"],
        asked["seed"],
    )


def _memory(workdir: pathlib.Path) -> pathlib.Path:
    return workdir / ".sweep" / "search.json"


def remember(asked: Mapping[str, Any], workdir: pathlib.Path) -> None:
    """Keeps the search, for `status` and `retry`."""
    path, text = _memory(workdir), json.dumps(asked, indent=1) + "\n"
    with trials.whole(path) as part:
        part.write_text(text)
    mark = _mark(path, text)
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()
