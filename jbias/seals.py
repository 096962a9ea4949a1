"""The seal of a checkpoint: the identity of the run that wrote it.

A checkpoint stores the identity of its run and the identity of the run's data; the checksum
of its position (stage and step) covers the two identities. Readers compare the seal with the run
for which they read the checkpoint. Checkpoints of older versions have no seal and are accepted.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from jbias import config as jc
from jbias.runtime import messages

KEY = "run"  # The key of the seal in a checkpoint's info.
_REMEDY = (
    "move that folder out of the workdir, or restore this run's own, and run the same "
    "command again"
)


class ForeignError(ValueError):
    """Raised for an undamaged checkpoint that belongs to another run."""


def foreign_error(checkpoint: Any, differing: Sequence[str]) -> ForeignError:
    """Return the error for a checkpoint of another run, with the differing entries.

    checkpoint: its path or step. differing: lines `key: checkpoint's value != run's value`.
    """
    return ForeignError(
        f"checkpoint: {checkpoint} is of another run (checkpoint != this run): "
        f"{messages.join_differences(differing)}; {_REMEDY}"
    )


def check_number(info: Mapping[str, Any], number: int) -> None:
    """Raise ValueError if a checkpoint's step differs from the name of its folder.

    info: the checkpoint's info. number: the name of the folder, a step.
    """
    step = info.get("step", number)
    if step != number:
        raise ValueError(
            f"it holds step {step}: a folder renamed or copied; rename it back to {step}"
        )


def differences(info: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    """Return the differences of a checkpoint's config from a run's, as lines.

    A line is `key: checkpoint's value != run's value`. info: the checkpoint's info; without a
    seal, return [].
    """
    seal = info.get(KEY)
    return [] if seal is None else jc.diff(seal["config"], config)


@dataclasses.dataclass(frozen=True)
class Seal:
    """The seal of a run's checkpoints.

    config: the run's config; checkpoints store its identity. data: identity of the data
    sets and of the user's code. members: names of all seeds of all branches. runs: the
    branches' names in records. last_steps: the last step of each stage.
    """

    config: Mapping[str, Any]
    data: Mapping[str, Any]
    members: Sequence[str]
    runs: Sequence[str]
    last_steps: Sequence[int]

    def to_json(self) -> dict[str, Any]:
        """Return the seal as a checkpoint stores it: the entries "config" and "data"."""
        return {"config": jc.identity(self.config), "data": dict(self.data)}

    def differences(self, info: Mapping[str, Any]) -> list[str]:
        """Return the differences of a checkpoint from this run, as lines.

        A line is `key: checkpoint's value != run's value`. info: the checkpoint's info.
        Without a seal, only its step, seeds and runs are compared.
        """
        seal = info.get(KEY)
        if seal is None:
            return self._differences_without_seal(info)
        config = jc.diff(seal["config"], self.config)
        return config + jc.diff(seal.get("data") or {}, self.data)

    def _differences_without_seal(self, info: Mapping[str, Any]) -> list[str]:
        """Return [], or a line on a checkpoint's first property that is impossible in this run.

        info: the checkpoint's info. Tested in this order, with the form of the line:
        - The stage exists: "stage: 3 != 1 at most".
        - The step is at most the stage's last step: "step: 900 != 800 at most".
        - All seeds with accuracies or metrics belong to this run: "seeds: <foreign> != <seeds>".
        - All runs named in the records belong to this run: "run: <foreign> != <runs>".
        In the last two forms, names are joined by ", "; <seeds> and <runs> are those of this run.
        """
        stage, step = info.get("stage", 0), info.get("step", 0)
        if stage >= len(self.last_steps):
            return [f"stage: {stage} != {len(self.last_steps) - 1} at most"]
        if step > self.last_steps[stage]:
            return [f"step: {step} != {self.last_steps[stage]} at most"]
        values = [info.get("best"), *(info.get("watch") or {}).values()]
        seeds = {
            name for by_seed in values if isinstance(by_seed, dict) for name in by_seed
        }
        foreign_seeds = sorted(seeds - {*self.members})
        if foreign_seeds:
            return [f"seeds: {', '.join(foreign_seeds)} != {', '.join(self.members)}"]
        lines = (info.get("records") or "").splitlines()
        runs = {json.loads(line)["run"] for line in lines}
        foreign_runs = sorted(runs - {*self.runs})
        if foreign_runs:
            return [f"run: {', '.join(foreign_runs)} != {', '.join(self.runs)}"]
        return []
