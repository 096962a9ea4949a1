"""comparison.json: the plan of a comparison, and the scores that were seen, in a workdir.

The file is written atomically before a batch starts and after each look, so a killed process
loses nothing. Settings that would break the guarantee of the comparison if they changed later are
compared with the file at each start.
"""

import dataclasses
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from jbias import config as jc
from jbias.deciding import comparison as comparison_lib
from jbias.runtime import files, messages

NAME = "comparison.json"
_VERSION = 1
_REMEDY = "restore it, or name another --workdir"


class State(NamedTuple):
    """A comparison and the configs of its methods and its reference.

    configs: by name; entries on which scores depend, without seeds, see `pinned_config`.
    """

    comparison: comparison_lib.Comparison
    configs: Mapping[str, Mapping[str, Any]]


def pinned_config(config: Mapping[str, Any], **entries: Any) -> dict[str, Any]:
    """Return the entries of a config on which the scores of a seed depend.

    entries: further entries, such as digests of the user's own code.
    """
    identity = jc.identity(config)
    identity.pop("seeds", None)
    return {**identity, **entries}


def write(workdir: str | os.PathLike, state: State) -> None:
    """Write comparison.json to a workdir, which must exist."""
    from etils import epath  # Late, for a fast --help.

    plan = state.comparison
    content = {
        "version": _VERSION,
        "settings": dataclasses.asdict(plan.settings),
        "methods": list(plan.methods),
        "reference": plan.reference,
        "first_seeds": list(plan.first_seeds),
        "are_trained": plan.are_trained,
        "configs": state.configs,
        "batches": [
            {"method": batch.method, "seeds": list(batch.seeds)}
            for batch in plan.batches
        ],
        "scores": {
            name: {str(seed): score for seed, score in scores.items()}
            for name, scores in plan.scores.items()
        },
    }
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    files.save(epath.Path(workdir) / NAME, text)


def read(workdir: str | os.PathLike) -> State | None:
    """Return the content of comparison.json; None without the file.

    ValueError if the file is damaged or of another version of jbias.
    """
    from etils import epath

    path = epath.Path(workdir) / NAME
    if not path.exists():
        return None
    content = files.read_json(path, dict, _REMEDY)
    if content.get("version") != _VERSION:
        raise ValueError(f"workdir: {path} is of another version of jbias; {_REMEDY}")
    try:
        settings = content["settings"]
        low, high = settings["bounds"]
        plan = comparison_lib.Comparison(
            settings=comparison_lib.Settings(**{**settings, "bounds": (low, high)}),
            methods=tuple(content["methods"]),
            reference=content["reference"],
            first_seeds=tuple(map(int, content["first_seeds"])),
            are_trained=bool(content["are_trained"]),
            batches=tuple(
                comparison_lib.Batch(batch["method"], tuple(map(int, batch["seeds"])))
                for batch in content["batches"]
            ),
            scores={
                name: {int(seed): score for seed, score in scores.items()}
                for name, scores in content["scores"].items()
            },
        )
        return State(plan, {name: dict(x) for name, x in content["configs"].items()})
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ValueError(f"workdir: {path} is damaged; {_REMEDY}") from None


def resume(workdir: str | os.PathLike, new: State) -> State:
    """Return the state in a workdir, or `new` without a comparison.json.

    new: a comparison without batches and scores. The order of the seeds of trained
    references is the stored one, so that runs which were added later change no pair.
    As long as no method has a score, the settings may change, but not the configs, because
    batches may have begun.
    ValueError, with the differing settings, if the workdir has another comparison, and for
    batches without comparison.json.
    """
    stored = read(workdir)
    if stored is None:
        _check_no_batches(workdir)
        return new
    if not any(map(stored.comparison.scores.get, stored.comparison.methods)):
        plan = dataclasses.replace(
            stored.comparison, settings=new.comparison.settings, scores={}
        )
        stored = stored._replace(comparison=plan)
    differing = jc.diff(_pinned(stored, stored), _pinned(new, stored))
    if differing:
        raise ValueError(
            f"workdir: {os.fspath(workdir)} holds another comparison (started != given): "
            f"{messages.join_differences(differing)}; a comparison is valid only with the settings "
            "that it was started with, another --workdir starts anew"
        )
    return stored


def _check_no_batches(workdir: str | os.PathLike) -> None:
    """Raise ValueError if a workdir without comparison.json has batches of a comparison."""
    batches = sorted(pathlib.Path(workdir).glob("*-seeds-*-*/config.json"))
    if batches:
        raise ValueError(
            f"workdir: {os.fspath(workdir)} has {batches[0].parent.name}, seeds of a comparison, but "
            f"no {NAME}; {_REMEDY}"
        )


def _pinned(state: State, stored: State) -> dict[str, Any]:
    """Return the entries of a state that must not change, as nested mappings.

    stored: gives the names of the configs, so that a method of another name differs only in the
    entries of its config that differ.
    """
    plan = state.comparison
    is_trained = plan.are_trained
    names = (*plan.methods, plan.reference)
    if len(plan.methods) == len(stored.comparison.methods):
        labels = (*stored.comparison.methods, stored.comparison.reference)
    else:
        labels = names
    # Lists, as in the file.
    return json.loads(
        json.dumps(
            {
                "comparison": dataclasses.asdict(plan.settings),
                "methods": list(plan.methods),
                "reference": {
                    "name": plan.reference,
                    "is": "runs" if is_trained else "a config",
                    "first_seed": None if is_trained else plan.first_seeds[0],
                },
                "config": {
                    label: state.configs.get(name)
                    for label, name in zip(labels, names, strict=True)
                },
            }
        )
    )
