"""`PlacedStage`: a stage on devices, with compiled functions for all seeds together."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
from jaxtyping import PyTree

from jbias.training import seed_axis, stages, strategies
from jbias.training import step as train_step


class Steps(NamedTuple):
    """Consecutive training steps, to be dispatched together."""

    arguments: list[seed_axis.PackedStates]  # Per step; see `PlacedStage.batches`.
    shared: dict[str, Any]  # Rows on the devices that all seeds draw from.
    static: Hashable  # Compile-time arguments.
    program: Hashable  # Identifies the compiled program.


@dataclasses.dataclass(frozen=True)
class PlacedStage:
    """A stage on devices, and the compiled functions that train and evaluate all its members.

    A member is a seed of a branch; all members are trained together. Packed states are the states
    of all members, as `layout` arranges them.
    """

    stage: stages.Stage
    layout: seed_axis.SeedLayout  # Arrangement of all members on the devices.
    step: seed_axis.MultiStep  # Several steps of all members.
    score: seed_axis.WaveFunction  # Logits of a wave.
    score_folded: seed_axis.WaveFunction  # `score` with folded norms.
    can_skip_members: bool  # True if `skip_members` is allowed.
    scanned: int  # Steps in one compiled loop; 0: steps are dispatched one by one.

    def scorer(self, eval_norm: str) -> seed_axis.WaveFunction:
        """Return the function that computes a wave's logits in evaluation.

        eval_norm: config.run.eval_norm, which decides whether batch norms are folded.
        """
        return self.score_folded if self.stage.folds_norms(eval_norm) else self.score

    def start(
        self,
        nets: Sequence[Mapping[str, PyTree]] | None = None,
        share: Callable[[PyTree], PyTree] = lambda state: state,
    ) -> seed_axis.PackedStates:
        """Return the initial states of all members, packed.

        nets: one net per member to start from; default: weights are drawn. share: returns
          the state that all processes use (a broadcast from process 0).
        """
        members = self.stage.members
        nets = nets or [None] * len(members)
        return self.layout.pack(
            share(self.stage.init_state(member.seed, net))
            for member, net in zip(members, nets, strict=True)
        )

    def nets(self, states: seed_axis.PackedStates) -> list[dict[str, PyTree]]:
        """Return the network of each member, {"params", "stats"}, from packed states."""
        return [train_step.net_of(state) for state in self.layout.unpack(states)]

    def count_steps(self, step: int, until: int, limit: int) -> int:
        """Return the number of steps, from `step` on, that can be dispatched together.

        The steps are at most `limit`. They end at the step `until`, at the next change of the rows
        that seeds share, or at the next change of the program.
        """
        static = self.stage.static(step)
        stop = min(until, self.stage.feed.next_change(step), step + limit)
        is_same = (self.stage.static(later) == static for later in range(step, stop))
        return sum(itertools.takewhile(bool, is_same))

    def take(self, step: int, count: int, frozen: Container[str] = ()) -> Steps:
        """Return `count` steps from `step` on, as `count_steps` returns this number.

        frozen: names of members that diverged; they skip the steps if `can_skip_members`.
        ValueError if an image cannot be read.
        """
        shared, static = self.stage.feed.shared(step), self.stage.static(step)
        arguments = self.batches(step, count)
        if self.can_skip_members:
            arguments = [self.skip_members(argument, frozen) for argument in arguments]
        dispatched = count if count == self.scanned else 1
        return Steps(arguments, shared, static, program=(static, dispatched))

    def advance(
        self, states: seed_axis.PackedStates, steps: Steps
    ) -> tuple[seed_axis.PackedStates, list[seed_axis.PackedStates]]:
        """Return (states after the steps, metrics of each step); `states` are donated."""
        return self.step(states, steps.arguments, steps.shared, steps.static)

    def batches(self, step: int, count: int = 1) -> list[seed_axis.PackedStates]:
        """Return the arguments of `count` steps from `step` on, one entry per step.

        An entry has for each wave one pair (seed argument, batch) per tree. Batches that are
        read from files are on the host; `advance` moves them to devices.
        """
        seeds = [member.seed for member in self.stage.members]
        arguments = []
        for later_step in range(step, step + count):
            # Members of several branches share their seed's batch.
            by_seed = {
                seed: self.stage.feed.batch(seed, later_step)
                for seed in dict.fromkeys(seeds)
            }
            batches = self.layout.group(by_seed[seed] for seed in seeds)
            arguments.append(
                tuple(
                    tuple(zip(wave_arguments, wave_batches, strict=True))
                    for wave_arguments, wave_batches in zip(
                        self._seed_arguments, batches, strict=True
                    )
                )
            )
        return arguments

    @functools.cached_property
    def _seed_arguments(self) -> seed_axis.PackedStates:
        """The argument of each member (`stages.seed_argument`), packed on the devices."""
        arguments = map(stages.seed_argument, self.stage.members)
        return self.layout.pack_on_devices(arguments)

    def skip_members(
        self, arguments: seed_axis.PackedStates, names: Container[str]
    ) -> seed_axis.PackedStates:
        """Return a step's arguments with None for the named members, which skip the step.

        arguments: an entry of `batches`, with one member per tree (`can_skip_members`).
        """
        members = iter(self.stage.members)
        return tuple(
            tuple(
                None if next(members).name in names else argument for argument in wave
            )
            for wave in arguments
        )


def fit_to_devices(
    stage: stages.Stage,
    devices: jax.sharding.Mesh,
    *,
    strategy: str = "auto",
    together: int = 0,
    scanned: int = 0,
) -> PlacedStage:
    """Return the stage on devices, with a layout and compiled functions for all members.

    strategy: a name, as for `strategies.resolve_strategy`. together: largest number of members
      on the devices at the same time; 0: all. scanned: the number of steps in one compiled
      loop, see `seed_axis.multi_step`.
    """
    resolved, count = strategies.resolve_strategy(strategy, devices), len(stage.members)
    layout = seed_axis.choose_layout(
        count, devices, stacked=resolved.stacked, together=together or count
    )
    program = stage.program
    return PlacedStage(
        stage=stage,
        layout=layout,
        step=seed_axis.multi_step(program.step, resolved, layout, scanned=scanned),
        score=seed_axis.map_seeds(program.logits, resolved, layout),
        score_folded=seed_axis.map_seeds(program.folded_logits, resolved, layout),
        can_skip_members=resolved.dispatch != "unrolled" and not layout.width(0),
        scanned=scanned,
    )
