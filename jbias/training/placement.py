"""`PlacedStage`: a stage on devices, with compiled functions for all seeds together."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Container, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, PyTree

from jbias.runtime import mesh
from jbias.training import seed_axis, stages, strategies
from jbias.training import step as train_step
from jbias.training.averaging import averages


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
    add_statistics: seed_axis.MultiStep  # `SeedProgram.add_statistics` of all members.
    carry_out: seed_axis.WaveFunction  # `SeedProgram.carry_out` of a wave.

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

    def evaluation_number(self, step: int) -> int:
        """Return the number, in the stage from 0, of the evaluation after a step."""
        return -(-(step - self.stage.first) // self.stage.eval_interval) - 1

    def losses(self, states: seed_axis.PackedStates) -> list[Float[np.ndarray, "n"]]:
        """Return the validation losses that each member's average of SWAD has stored."""
        stored = tuple(
            tuple(tree.stats[averages.KEY]["losses"] for tree in wave)
            for wave in states
        )
        return [*self.layout.split(mesh.fetch(stored, self.layout.devices))]

    def carry_out_plans(
        self, states: seed_axis.PackedStates, plans: Sequence[averages.Plan]
    ) -> seed_axis.PackedStates:
        """Return the states after the plans of SWAD; plans: one per member. Donates `states`."""
        packed_plans = self.layout.pack_on_devices(plans)
        new_states = []
        for number, wave in enumerate(states):
            on_devices = self.layout.to_device(wave, number)
            new_wave = self.carry_out(on_devices, packed_plans[number], None, None)
            if len(states) > 1:  # Waves that are not computed are on the host.
                new_wave = mesh.fetch(new_wave, self.layout.devices)
            new_states.append(new_wave)
        return tuple(new_states)

    def statistics_step(self, number: int) -> int:
        """Return the step whose batch is that of a number in `recompute_statistics`."""
        return self.stage.first + number % (self.stage.last - self.stage.first)

    def recompute_statistics(
        self, states: seed_axis.PackedStates
    ) -> Iterator[seed_axis.PackedStates]:
        """Yield the states after each batch of recomputing the statistics of averages.

        The batches are those of the stage's first steps. `states`, and each yielded value, are
        donated. ValueError if an image cannot be read.
        """
        stage = self.stage
        for number in range(stage.average.batches):
            step = self.statistics_step(number)
            (arguments,) = self.batches(step)
            shared = (stage.feed.shared(step), np.int32(number))
            states, _ = self.add_statistics(states, [arguments], shared, None)
            yield states

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
        add_statistics=seed_axis.multi_step(program.add_statistics, resolved, layout),
        carry_out=seed_axis.map_seeds(program.carry_out, resolved, layout, donate=True),
        can_skip_members=resolved.dispatch != "unrolled" and not layout.width(0),
        scanned=scanned,
    )
