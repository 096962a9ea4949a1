"""The training data of a stage: batches of each seed, by data set."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from jbias.training import input_pipeline, input_plan, samplers


@dataclasses.dataclass(frozen=True)
class Feed:
    """The data sets of a stage: "train", and "other" if it has a second set (train.other).

    A `step` is counted over the whole run. first: the step before the stage's first update.
    """

    pipelines: Mapping[str, input_pipeline.InputPipeline | input_plan.InputPlan]
    first: int

    @property
    def order(self) -> samplers.Sampler:
        """The sampler of the training set."""
        return self.pipelines["train"].order

    @property
    def streams(self) -> bool:
        """True if images are read from files during training."""
        return any(pipeline.streams for pipeline in self.pipelines.values())

    def shapes(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the shapes of the results of `batch` and of `shared`."""
        batches, shared = {}, {}
        for name, pipeline in self.pipelines.items():
            batches[name], shared[name] = pipeline.shapes()
        return batches, shared

    def batch(self, seed: int, step: int) -> dict[str, Any]:
        """Return a seed's batch at a step, by data set.

        A batch consists of rows, or of indices of rows in the shared rows (see `shared`).
        """
        return {
            name: pipeline.batch(seed, step - self.first)
            for name, pipeline in self.pipelines.items()
        }

    def shared(self, step: int) -> dict[str, input_pipeline.Rows]:
        """Return the rows on the devices that all seeds draw from at a step, by data set."""
        return {
            name: pipeline.shared(step - self.first)
            for name, pipeline in self.pipelines.items()
        }

    def next_change(self, step: int) -> int:
        """Return the first step after `step` at which the result of `shared` changes.

        Return a number of at least `samplers.NEVER` if there is no such step.
        """
        changes = (
            pipeline.next_change(step - self.first)
            for pipeline in self.pipelines.values()
        )
        return self.first + min(changes)

    def wait(self, step: int, stop_requested: Callable[[], bool]) -> bool:
        """Wait for the data of a step; return True once they are ready.

        Return False if `stop_requested` returns True first.
        """
        return all(
            pipeline.wait(step - self.first, stop_requested)
            for pipeline in self.pipelines.values()
        )

    def close(self) -> None:
        """Stop the readers of streamed data sets."""
        for pipeline in self.pipelines.values():
            pipeline.close()
