"""Metrics of all seeds on the host, and the seeds that diverged or were rolled back.

The compiled step itself freezes a seed or rolls it back (`divergence`). The host reads the metrics
some steps later, so that devices do not wait. This delay does not affect the weights, which depend
only on the config, the seed and the step.
"""

import collections
import dataclasses
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from jbias.training import divergence

# Steps whose metrics are not read yet, so that devices do not wait for the host.
DEPTH = 4


class Divergence(NamedTuple):
    """The failure of a training step of one seed; `step` is counted from 1."""

    seed: Hashable
    step: int
    cause: str  # The values that are not finite: "loss", "gradient" or "weights".
    rolled_back: bool  # False: the seed is frozen.


@dataclasses.dataclass
class Monitor:
    """Sums of each seed's metrics since the last evaluation, and the seeds that diverged.

    A seed diverged, or was rolled back, at the first step whose metric FROZEN or ROLLED_BACK is 1,
    or whose loss is not finite. `state` is part of a checkpoint, so that a resumed run has the same
    means.

    diverged: the step at which a seed diverged, by seed. rolled_back: failed steps by seed. sums,
    maxima: values by metric, by seed; maxima only for norms of gradients. counts: number of steps
    in each sum, by metric, by seed; steps may have different metrics. resets: number of
    calls of `reset`.
    latest: class loss of the last step that was read, averaged over the seeds that did not fail;
    None before such a step. _pending: (step, metrics, split) of each step that is not read yet, the
    oldest first; see `add`.
    """

    seeds: tuple[Hashable, ...]  # Names of the seeds, in the order of the metrics.
    diverged: dict[Hashable, int] = dataclasses.field(default_factory=dict)
    rolled_back: dict[Hashable, list[int]] = dataclasses.field(default_factory=dict)
    sums: dict[Hashable, dict[str, float]] = dataclasses.field(default_factory=dict)
    maxima: dict[Hashable, dict[str, float]] = dataclasses.field(default_factory=dict)
    counts: dict[Hashable, dict[str, int]] = dataclasses.field(default_factory=dict)
    resets: int = 0
    latest: float | None = None
    _pending: collections.deque = dataclasses.field(default_factory=collections.deque)

    def add(
        self, step: int, metrics: Any, split: Callable[[Any], Sequence] = tuple
    ) -> list[Divergence]:
        """Queue a step's metrics; return the failures in steps that leave the queue.

        The queue holds the last DEPTH steps; metrics of older steps are read and added to
        the sums.

        metrics: metrics of all seeds, on the devices. split: maps the metrics, after they
          are copied to the host, to one mapping per seed, or None for a diverged seed that
          takes no more steps.
        """
        self._pending.append((step, metrics, split))
        return self._read_pending(DEPTH)

    def flush(self) -> list[Divergence]:
        """Wait for all queued steps; return their failures."""
        return self._read_pending(0)

    def _read_pending(self, depth: int) -> list[Divergence]:
        """Read the oldest queued metrics until `depth` steps are left; return their failures.

        Updates sums, maxima, counts, `diverged` and `rolled_back`; `latest` becomes the mean
        class loss of a step over its finite seeds. Failed steps and seeds that diverged earlier
        are not part of the sums.
        """
        events = []
        while len(self._pending) > depth:
            step, metrics, split = self._pending.popleft()
            finite_losses = []
            metrics_by_seed = split(jax.device_get(metrics))
            for seed, values in zip(self.seeds, metrics_by_seed, strict=True):
                if seed in self.diverged:
                    continue
                values = {name: float(value) for name, value in values.items()}
                event = _pop_failure(seed, step, values)
                if event is None:
                    losses = [v for k, v in values.items() if k.startswith("loss_")]
                    finite_losses.append(values.get("loss_class", losses[0]))
                    self._accumulate(seed, values)
                    continue
                events.append(event)
                if event.rolled_back:
                    self.rolled_back.setdefault(seed, []).append(step)
                else:
                    self.diverged[seed] = step
            if finite_losses:
                self.latest = sum(finite_losses) / len(finite_losses)
        return events

    def _accumulate(self, seed: Hashable, values: Mapping[str, float]) -> None:
        """Add a step's metrics to a seed's sums, and update its count and maxima.

        Only norms of gradients have maxima.
        """
        sums = self.sums.setdefault(seed, {})
        maxima = self.maxima.setdefault(seed, {})
        counts = self.counts.setdefault(seed, {})
        for name, value in values.items():
            sums[name] = sums.get(name, 0.0) + value
            counts[name] = counts.get(name, 0) + 1
            if name.startswith("gradient_norm_"):
                maxima[name] = max(value, maxima.get(name, value))

    def rollback(
        self, seed: Hashable, step: int, rollback: divergence.Rollback
    ) -> tuple[int, float]:
        """Return the step that a seed returned to after a failed step, and its rate factor.

        The factor multiplies the learning rate of all later steps: rollback.factor to the power
        of the seed's number of rollbacks in the stage until `step`.

        seed: name of a seed that was rolled back. step: the failed step. rollback: the options of
        the step's stage.
        """
        failed_steps = self.rolled_back[seed]
        count = sum(rollback.first < failed <= step for failed in failed_steps)
        return rollback.target(step), rollback.factor**count

    @property
    def all_diverged(self) -> bool:
        """True if every seed diverged."""
        return len(self.diverged) == len(self.seeds)

    def means(self, seed: Hashable) -> dict[str, float]:
        """Return a seed's mean of each metric, by name, over the steps since the last reset.

        The mean is over the steps that have the metric.

        For norms of gradients the largest value is added as <name>_max. The result is empty if the
        seed took no step since the reset.
        """
        counts = self.counts.get(seed, {})
        sums = self.sums.get(seed, {})
        means = {name: total / counts[name] for name, total in sums.items()}
        maxima = self.maxima.get(seed, {}).items()
        return {**means, **{f"{name}_max": value for name, value in maxima}}

    def reset(self) -> None:
        """Clear sums, maxima and counts."""
        self.sums, self.maxima, self.counts = {}, {}, {}
        self.resets += 1

    def state(self) -> dict[str, Any]:
        """Return all fields that a resumed run needs as a JSON object, for `load`.

        The object maps a field to its values by seed, with the seed as text. The key of
        `maxima` is "most".
        """
        fields = {
            "diverged": self.diverged,
            "rolled_back": self.rolled_back,
            "sums": self.sums,
            "most": self.maxima,
            "counts": self.counts,
        }
        return {
            name: {str(seed): value for seed, value in by_seed.items()}
            for name, by_seed in fields.items()
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore the fields; state: the return value of the method `state`.

        Fields that `state` lacks become empty. A count of an old checkpoint, of all seeds or of
        all metrics of a seed, becomes the count of each metric. KeyError for seeds that the
        monitor lacks.
        """
        seeds = {str(seed): seed for seed in self.seeds}

        def by_seed(name: str) -> dict[Hashable, Any]:
            return {seeds[k]: v for k, v in state.get(name, {}).items()}

        self.diverged = by_seed("diverged")
        self.rolled_back = by_seed("rolled_back")
        self.sums = by_seed("sums")
        self.maxima = by_seed("most")
        self.counts = by_seed("counts")
        if "count" in state:  # Checkpoints from before rollback have one common count.
            self.counts = dict.fromkeys(self.sums, state["count"])
        for seed, count in self.counts.items():
            if isinstance(count, int):
                self.counts[seed] = dict.fromkeys(self.sums.get(seed, {}), count)


def _pop_failure(
    seed: Hashable, step: int, values: dict[str, float]
) -> Divergence | None:
    """Return the failure of a seed's step, or None if the step did not fail.

    A step failed if FROZEN or ROLLED_BACK is not 0 or a loss is not finite. The cause is "loss"
    or "gradient", the first that is not finite, else "weights". values: the step's metrics;
    FROZEN and ROLLED_BACK are removed from this dict.
    """
    rolled_back = values.pop(divergence.ROLLED_BACK, 0.0)
    frozen = values.pop(divergence.FROZEN, 0.0)
    nonfinite = {
        name.partition("_")[0]
        for name, value in divergence.finite_metrics(values).items()
        if not math.isfinite(value)
    }
    if not rolled_back and not frozen and "loss" not in nonfinite:
        return None
    cause = "loss" if "loss" in nonfinite else "gradient" if nonfinite else "weights"
    return Divergence(seed, step, cause, bool(rolled_back))
