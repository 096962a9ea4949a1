"""Which checkpoints stay: the latest, the best of each seed, those still to be evaluated."""

import contextlib
import dataclasses
import json
import types
from collections.abc import Callable, Sequence
from typing import Any

from etils import epath
from orbax.checkpoint import checkpoint_managers

from jbias.rundir import seal
from jbias.store import disk


class _Spec(dict):
    """Where a store is, as its own JSON."""

    to_json = dict.copy


# Tensorstore (seen in 0.1.69 to 0.1.86, the latest) never frees the JSON that it makes for
# Python: some 300 bytes for each array of each save, and its counters, which orbax logs.
# Of an orbax that asks elsewhere long runs would grow again; a test says so.
with contextlib.suppress(ImportError, AttributeError):
    from orbax.checkpoint._src.serialization import tensorstore_utils

    _freed = types.SimpleNamespace(**vars(tensorstore_utils.ts))
    _freed.experimental_collect_matching_metrics = lambda _: []
    _freed.KvStore = types.SimpleNamespace(open=_freed.KvStore.open, Spec=_Spec)
    tensorstore_utils.ts = _freed
# The validation accuracies at a step, by "stage/seed"; None while there are none yet.
Valid = Callable[[int], dict[str, float] | None]


@dataclasses.dataclass(frozen=True)
class LatestAndBest(checkpoint_managers.PreservationPolicy):
    """Keeps the latest steps, and each seed's first best by validation in each stage.

    Metrics are named "stage/seed". A step with none at all is evaluated elsewhere: it is
    kept until `valid_at` has its metrics.
    """

    keep: int
    valid_at: Valid

    def should_preserve(self, checkpoints: Sequence, *, context: Any) -> list[bool]:
        del context
        kept = set(range(len(checkpoints))[-self.keep :])
        best = {}
        for i, checkpoint in enumerate(checkpoints):
            metrics = checkpoint.metrics
            if metrics == {}:
                metrics = self.valid_at(checkpoint.step)
                kept |= {i} if metrics is None else set()
            for seed, accuracy in (metrics or {}).items():
                if seed not in best or accuracy > best[seed][0]:
                    best[seed] = (accuracy, i)
        kept |= {i for _, i in best.values()}
        return [i in kept for i in range(len(checkpoints))]


def mend(directory: epath.Path) -> None:
    """Writes metrics anew that are damaged: orbax reads all, and fails at the first.

    What they say stands beside the states too, under a sum.
    """
    for path in directory.glob("*/metrics/metrics"):
        step = path.parent.parent.name
        if not step.isdecimal():
            continue  # Of a save that a kill ended.
        known = (told(path.parent.parent) or {}).get("valid")
        try:
            held = json.loads(path.read_text())
            numbers = all(isinstance(x, float | int) for x in held.values())
        except (ValueError, AttributeError, RecursionError):
            held, numbers = None, False
        if not numbers or known is not None and held != known:
            disk.write(path, json.dumps(known or {}))


def told(checkpoint: epath.Path) -> dict[str, Any] | None:
    """What stands beside a checkpoint's states; None where nothing whole does."""
    try:
        return seal.opened(json.loads((checkpoint / "info/metadata").read_text()))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
