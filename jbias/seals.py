"""The seal of a checkpoint: the run whose states it holds.

A checkpoint stores the identity of its run and the identity of the run's data under the
same checksum as its position. Whoever reads a checkpoint compares them with the run that
they read it for. Checkpoints written before there were seals have none, and pass.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from jbias import config as jc
from jbias.runtime import messages

KEY = "run"  # Where a checkpoint's info holds its seal.
_REMEDY = (
    "move that folder out of the workdir, or restore this run's own, and run the same "
    "command again"
)


class ForeignError(ValueError):
    """A whole checkpoint that is not of the run that it is read for."""


def foreign_error(checkpoint: Any, differing: Sequence[str]) -> ForeignError:
    """Return the error that refuses a checkpoint, and says how it differs."""
    return ForeignError(
        f"checkpoint: {checkpoint} is of another run (checkpoint != this run): "
        f"{messages.join_differences(differing)}; {_REMEDY}"
    )


def check_number(info: Mapping[str, Any], number: int) -> None:
    """Raise ValueError where a checkpoint's folder is not named after its step."""
    if (step := info.get("step", number)) != number:
        raise ValueError(
            f"it holds step {step}: a folder renamed or copied; rename it back to {step}"
        )


def differences(info: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    """Return the keys in which a checkpoint's config and a run's differ, with values.

    `info` is what the checkpoint stores beside its states. A checkpoint without a seal
    has no differences.
    """
    seal = info.get(KEY)
    return [] if seal is None else jc.diff(seal["config"], config)


@dataclasses.dataclass(frozen=True)
class Seal:
    """The seal of a run's checkpoints, and the checks of what it is read from.

    config: of the run; of it the identity is stored. data: identity of the sets and of the
    user's own code. members: names of all seeds of all branches. runs: the branches' names
    in records. last_steps: the last step of each stage.
    """

    config: Mapping[str, Any]
    data: Mapping[str, Any]
    members: Sequence[str]
    runs: Sequence[str]
    last_steps: Sequence[int]

    def to_json(self) -> dict[str, Any]:
        """Return what a checkpoint stores."""
        return {"config": jc.identity(self.config), "data": dict(self.data)}

    def differences(self, info: Mapping[str, Any]) -> list[str]:
        """Return how the run of a checkpoint differs from this one: `key: one != other`."""
        if (seal := info.get(KEY)) is None:
            return self._differences_without_seal(info)
        config = jc.diff(seal["config"], self.config)
        return config + jc.diff(seal.get("data") or {}, self.data)

    def _differences_without_seal(self, info: Mapping[str, Any]) -> list[str]:
        """Compare seeds and position, which checkpoints have always stored."""
        stage, step = info.get("stage", 0), info.get("step", 0)
        if stage >= len(self.last_steps):
            return [f"stage: {stage} != {len(self.last_steps) - 1} at most"]
        if step > self.last_steps[stage]:
            return [f"step: {step} != {self.last_steps[stage]} at most"]
        seen = [info.get("best"), *(info.get("watch") or {}).values()]
        seeds = {
            name for by_seed in seen if isinstance(by_seed, dict) for name in by_seed
        }
        if foreign := sorted(seeds - {*self.members}):
            return [f"seeds: {', '.join(foreign)} != {', '.join(self.members)}"]
        lines = (info.get("records") or "").splitlines()
        runs = {json.loads(line)["run"] for line in lines}
        if foreign := sorted(runs - {*self.runs}):
            return [f"run: {', '.join(foreign)} != {', '.join(self.runs)}"]
        return []
