"""Averages of a network's weights over the steps of a stage (config.optim.average).

The average is evaluated, exported and passed to the next stage in place of the current network;
training itself does not depend on it. A network here is a dict {"params", "stats"}: its weights,
and the running statistics of its batch norms.

exponential: a moving average, average <- d average + (1 - d) w, as in Kingma and Ba, "Adam", ICLR
  2015 (https://arxiv.org/abs/1412.6980), section 7.2. In step t of the stage, counted from 0, d is
  at most (1 + t) / (10 + t), so that the initial weights soon have little influence; the paper
  divides by 1 - d^t instead.

uniform: the simple moving average of Arpit et al., "Ensemble of Averages", NeurIPS 2022
  (https://arxiv.org/abs/2110.10832): the mean of the weights after each step from step `first`
  on, w_first, ..., w_n. Until step `first`, the average is the current network.
  Code: https://github.com/salesforce/ensemble-of-averages at 19183f1, domainbed/algorithms.py,
  class MovingAvg. Deviations: its first mean is of w_99 and w_100, the paper's and ours of w_100
  and w_101 (first="100 steps"); it freezes batch norms, whose statistics are then constant.
  Each step rounds the mean twice, by at most half a unit in the last place of float32.

swad: Cha et al., NeurIPS 2021 (https://arxiv.org/abs/2102.08604): the mean over a stretch of
  training that validation losses choose (`loss_valley`). The validation losses are those of the
  current network on the run's validation set, measured before each evaluation, which then
  evaluates the average as if training ended there. Without convergence, the average is that of the
  steps since the evaluation before. Records of training have the stretch (`Valley`).
  Code: https://github.com/khanrc/swad at
  252190e, domainbed/swad.py and trainer.py. Deviations: the first evaluation is after the first
  interval, not after the first step; a run goes on after the valley has ended, and its average
  stays; losses are means over all validation images, not over domains.

Memory per seed, in copies of the network: 1 for exponential and uniform; 3 and
max(n_converge, n_tolerance) for swad, 9 by default. Each step reads and writes 1 copy (swad: 2).

A rollback (config.rollback) restores the average with the weights, and the number of its steps,
so that discarded steps do not count. SWAD cannot be rolled back.

Statistics of batch norms: "average" averages running statistics like weights. "recompute"
replaces them, before each evaluation and each save, by the means of the batch statistics over
`batches` training batches, the first of the stage, as torch.optim.swa_utils.update_bn does. The
batches, their augmentation and the network's random draws are equal at every evaluation. Statistics
that training leaves unchanged, as a linear probe does, stay. The images are those of the training
set after `inputs`, without images that an algorithm makes itself, such as PGD's and Debiased's.
A checkpoint that is saved after an error, or after a stop signal while images are read from files,
lacks the recomputation: it is for resuming only.

Images that are read from files are read again at every recomputation. All seeds share the window
of a set with `window`: on ImageNet, 100 batches of 256 are two of its 79 windows, and the window
of training is read once more, so that an evaluation per epoch reads 4 % more images. Windows are
not kept, because each would take 3.2 GB of the host's memory (16,384 images of 256 pixels). With
crop="host" each seed reads batches of its own, which would take 3.9 GB for each seed.
"""

import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from jbias import build, errors
from jbias import config as jc
from jbias.algos import base
from jbias.models import layers, trained
from jbias.training.averaging import loss_valley

Net = Mapping[str, PyTree]  # {"params", "stats"}.
AverageState = dict[str, PyTree]  # The averaged "params" and "stats", and more entries.

KEY = trained.AVERAGE  # Key of the average in the `stats` of a train state.
COUNT = "count"  # Key of the number of steps in an average's state; see `counting`.
_NET_KEYS = ("params", "stats")
STATISTICS = ("average", "recompute")


class Steps(NamedTuple):
    """Numbers of steps of a stage that an average depends on."""

    total: int
    per_epoch: int
    per_evaluation: int

    @property
    def num_evaluations(self) -> int:
        """Number of evaluations in the stage, also at its last step."""
        return -(-self.total // self.per_evaluation)


class Average(NamedTuple):
    """An average, as functions of its state.

    start: (first network) -> the initial state.
    update: (state, network after a step, number of the step in the stage from 0) -> new state.
    valley: options of SWAD, which needs validation losses; None for other averages.
    steps: the steps of the stage, for SWAD.
    batches: number of batches to recompute the statistics of batch norms from; 0: none.
    """

    start: Callable[[Net], AverageState]
    update: Callable[[AverageState, Net, Int[Array, ""]], AverageState]
    valley: loss_valley.Options | None = None
    batches: int = 0
    steps: Steps | None = None


network = (
    trained.network_of
)  # The network to evaluate, from a state's params and stats.


def current(state: Any) -> dict[str, PyTree]:
    """Return the current network of a train state, not its average."""
    return {"params": state.params["net"], "stats": state.stats["net"]}


def copy(net: Net) -> AverageState:
    """Return a copy of a network, as a step cannot donate the same buffer twice."""
    return jax.tree.map(jnp.copy, dict(net))


def exponential(*, decay: float) -> Average:
    """Return an exponential moving average; decay: in (0, 1)."""

    def update(state: AverageState, net: Net, t: Int[Array, ""]) -> AverageState:
        d = jnp.minimum(decay, (1 + t) / (10 + t))
        return jax.tree.map(lambda a, b: d * a + (1 - d) * b, dict(state), dict(net))

    return Average(start=copy, update=update)


def uniform(*, first: int) -> Average:
    """Return the mean of the networks after step `first` and all later steps."""

    def update(state: AverageState, net: Net, t: Int[Array, ""]) -> AverageState:
        return _add_to_mean(dict(state), dict(net), jnp.maximum(t + 1 - first, 0))

    return Average(start=copy, update=update)


def _add_to_mean(mean: PyTree, new: PyTree, count: Int[Array, ""]) -> PyTree:
    """Return the mean of `count` + 1 trees: `mean` is of the first `count`, `new` the last.

    With a count of 0, return `new` unchanged.
    """

    def add(old: Array, new: Array) -> Array:
        return jnp.where(count == 0, new, old + (new - old) / (count + 1))

    return jax.tree.map(add, mean, new)


def swad(options: loss_valley.Options, steps: Steps) -> Average:
    """Return the average of SWAD.

    Entries of its state, beside the network to evaluate:
    segment: the mean of the networks since the latest evaluation.
    permanent: the mean of the segments that are in the average for good.
    queue: the latest segments, stacked, the oldest first.
    losses: the validation loss of each evaluation of the stage; NaN for later evaluations.
    """

    def start(net: Net) -> AverageState:
        return {
            **copy(net),
            "segment": copy(net),
            "permanent": jax.tree.map(jnp.zeros_like, dict(net)),
            "queue": jax.tree.map(
                lambda x: jnp.zeros((options.depth, *x.shape), x.dtype), dict(net)
            ),
            "losses": jnp.full(steps.num_evaluations, jnp.nan, jnp.float32),
        }

    def update(state: AverageState, net: Net, t: Int[Array, ""]) -> AverageState:
        segment = _add_to_mean(state["segment"], dict(net), t % steps.per_evaluation)
        is_unevaluated = jnp.isnan(state["losses"]).all()
        net_to_evaluate = jax.tree.map(
            lambda old, new: jnp.where(is_unevaluated, new, old),
            {key: state[key] for key in _NET_KEYS},
            dict(net),
        )
        return {**state, **net_to_evaluate, "segment": segment}

    return Average(start=start, update=update, valley=options, steps=steps)


class Plan(NamedTuple):
    """A host's decision about a seed's average at an evaluation.

    Coefficients are of the mean `permanent`, and then of each segment of the queue, which already has
    the new segment.
    """

    loss: Float[Any, ""]
    evaluation: Int[Any, ""]  # Number of the evaluation in the stage, from 0.
    is_active: Any  # False: nothing changes.
    permanent: Float[Any, "q+1"]
    net: Float[Any, "q+1"]


def is_undecided(
    losses: Float[Any, "n"], evaluation: int, options: loss_valley.Options
) -> bool:
    """Return True if an evaluation may still change a seed's average of SWAD.

    False if the evaluation's loss is stored, and after the end of the valley. losses: the entry
    "losses" of the seed's average. evaluation: number of the evaluation in the stage, from 0.
    """
    if not np.isnan(losses[evaluation]):
        return False
    earlier = [float(x) for x in losses if not np.isnan(x)]
    return not (earlier and loss_valley.select(earlier, options).is_dead)


def plan(
    losses: Float[Any, "n"],
    loss: float,
    evaluation: int,
    *,
    options: loss_valley.Options,
) -> Plan:
    """Return the plan of SWAD for a seed at an evaluation.

    losses: the entry "losses" of the seed's average. loss: the validation loss of the current
    network. evaluation: number of the evaluation in the stage, from 0.
    """
    loss = np.float32(loss)
    earlier = [float(x) for x in losses if not np.isnan(x)]
    previous = loss_valley.select(earlier, options) if earlier else None
    selection = loss_valley.select([*earlier, float(loss)], options)
    num_added = len(previous.added) if previous else 0
    is_active = is_undecided(losses, evaluation, options)

    def coefficients(segments: tuple[int, ...], num_permanent: int) -> Any:
        """Return the coefficients of the mean of segments, whose first `num_permanent` stay."""
        weights = np.zeros(options.depth + 1, np.float32)
        if num_permanent:
            weights[0] = num_permanent / len(segments)
        for segment in segments[num_permanent:] if is_active else ():
            place = options.depth - (len(earlier) - segment)
            assert place >= 1, f"segment {segment} has left the queue"
            weights[place] += 1 / len(segments)
        return weights

    return Plan(
        loss=loss,
        evaluation=np.int32(evaluation),
        is_active=np.bool_(is_active),
        permanent=coefficients(selection.added, num_added),
        net=coefficients(selection.evaluated, len(selection.added)),
    )


class Valley(NamedTuple):
    """The stretch of a stage that a seed's average of SWAD covers, in steps from 1.

    has_begun: the validation losses have converged; if False, the average is that of the segment
    since the evaluation before, as in the authors' code, which then logs an error. has_ended: later
    losses change nothing. num_steps: number of different steps in the average.
    """

    has_begun: bool
    has_ended: bool
    first_step: int
    last_step: int
    num_steps: int

    @property
    def metrics(self) -> dict[str, float]:
        """The values of the valley as metrics of training records, by name."""
        return {
            "swad_begun": float(self.has_begun),
            "swad_ended": float(self.has_ended),
            "swad_first_step": float(self.first_step),
            "swad_last_step": float(self.last_step),
            "swad_steps": float(self.num_steps),
        }


def find_valley(
    losses: Float[Any, "n"], *, options: loss_valley.Options, steps: Steps
) -> Valley | None:
    """Return the valley of the losses of a seed's evaluations; None before the first evaluation.

    losses: the entry "losses" of the seed's average. steps: of the stage.
    """
    measured = [float(x) for x in losses if not np.isnan(x)]
    if not measured:
        return None
    selection = loss_valley.select(measured, options)
    length = steps.per_evaluation
    segments = [
        range(i * length + 1, min((i + 1) * length, steps.total) + 1)
        for i in sorted(set(selection.evaluated))
    ]
    return Valley(
        has_begun=selection.converged is not None,
        has_ended=selection.is_dead,
        first_step=segments[0][0],
        last_step=segments[-1][-1],
        num_steps=sum(map(len, segments)),
    )


def describe_change(old: Valley | None, new: Valley, *, is_last: bool) -> str:
    """Return text about a valley that begins or ends at an evaluation; "" if it does neither.

    old: the valley at the evaluation before; None before the first evaluation. is_last: True at the
    last evaluation of the stage, at which the average is final, and always described.
    """
    if is_last and not new.has_begun:
        return (
            "swad: the validation loss never converged, so that the average covers "
            f"steps {new.first_step} to {new.last_step} alone; train longer or evaluate "
            "more often (config.eval_every)"
        )
    stretch = f"steps {new.first_step} to {new.last_step}"
    if is_last:
        return f"swad: the final average is of {stretch}"
    if new.has_ended and not (old and old.has_ended):
        return f"swad: the valley has ended, the average stays that of {stretch}"
    if new.has_begun and not (old and old.has_begun):
        return f"swad: the validation loss has converged, the average so far is of {stretch}"
    return ""


def carry_out(state: AverageState, decided: Plan) -> AverageState:
    """Return the state of SWAD's average after an evaluation."""

    def push(queue: Array, segment: Array) -> Array:
        return jnp.concatenate([queue[1:], segment[None]])

    queue = jax.tree.map(push, state["queue"], state["segment"])

    def combine(weights: Float[Array, "q+1"], permanent: PyTree) -> PyTree:
        """Return the sum of `permanent` and the segments of the queue, times their weights."""

        def combine_leaf(x: Array, segments: Array) -> Array:
            factors = weights[1:].reshape(-1, *(1,) * x.ndim)
            return weights[0] * x + jnp.sum(factors * segments, axis=0)

        return jax.tree.map(combine_leaf, permanent, queue)

    permanent = combine(decided.permanent, state["permanent"])
    new_state = {
        **state,
        **combine(decided.net, permanent),
        "segment": state["segment"],
        "permanent": permanent,
        "queue": queue,
        "losses": state["losses"].at[decided.evaluation].set(decided.loss),
    }
    return jax.tree.map(
        lambda new, old: jnp.where(decided.is_active, new, old), new_state, state
    )


def counting(average: Average) -> Average:
    """Return the average with the number of its steps in its state, the entry COUNT.

    A rollback restores the entry with the weights, so that discarded steps count neither as steps
    nor as networks of a mean. Without it, the number of the step in the stage is used.
    """

    def start(net: Net) -> AverageState:
        return {**average.start(net), COUNT: jnp.zeros((), jnp.int32)}

    def update(state: AverageState, net: Net, t: Int[Array, ""]) -> AverageState:
        count = state[COUNT]
        inner = {k: v for k, v in state.items() if k != COUNT}
        return {**average.update(inner, net, count), COUNT: count + 1}

    return average._replace(start=start, update=update)


def recomputing(average: Average, batches: int) -> Average:
    """Return the average with statistics that are recomputed from `batches` batches.

    Its state also has an entry trained.RECOMPUTED, the recomputed statistics.
    """

    def start(net: Net) -> AverageState:
        return {
            **average.start(net),
            trained.RECOMPUTED: jax.tree.map(jnp.copy, net["stats"]),
        }

    def update(state: AverageState, net: Net, t: Int[Array, ""]) -> AverageState:
        recomputed = state[trained.RECOMPUTED]
        inner = {k: v for k, v in state.items() if k != trained.RECOMPUTED}
        return {**average.update(inner, net, t), trained.RECOMPUTED: recomputed}

    return average._replace(start=start, update=update, batches=batches)


def add_statistics(
    state: AverageState,
    net: nn.Module,
    image: Float[Array, "b h w c"],
    key: PRNGKeyArray,
    number: Int[Array, ""],
    *,
    is_frozen: PyTree | None = None,
) -> AverageState:
    """Return the state with a further batch in the mean of its recomputed statistics.

    number: number of the batch from 0; batch 0 starts a new mean. is_frozen: for each statistic,
    True if training leaves it unchanged; None: all change. Frozen statistics, and those of batch
    norms that the network does not use, are the averaged ones.
    """

    def keep_batch_statistic(call, args, options, context):
        """Return the statistic of the batch instead of the new running statistic."""
        is_update = context.method_name == "_update_average"
        if is_update and isinstance(context.module, layers.BatchNorm):
            _, new = args
            return new.mean(0) if new.ndim > 1 else new
        return call(*args, **options)

    with nn.intercept_methods(keep_batch_statistic):
        _, stats = base.forward(net, state["params"], state["stats"], image, key)
    if is_frozen is not None:
        stats = jax.tree.map(
            lambda frozen, averaged, new: averaged if frozen else new,
            is_frozen,
            state["stats"],
            stats,
        )
    mean = _add_to_mean(state[trained.RECOMPUTED], stats, number)
    return {**state, trained.RECOMPUTED: mean}


def _make_exponential(where: str, steps: Steps, *, decay: float) -> Average | None:
    """Return the exponential average of the options; None if `decay` is 0."""
    errors.check(0 <= decay < 1, f"{where}.decay", "be in [0, 1)", decay)
    return exponential(decay=decay) if decay else None


def _make_uniform(where: str, steps: Steps, *, first: str = "100 steps") -> Average:
    """Return the uniform average of the options.

    first: a duration such as "100 steps" or "25 %"; from the stage's last step on, the average is
    the last network.
    """
    first_step = jc.to_steps(
        first,
        steps_per_epoch=steps.per_epoch,
        total=steps.total,
        where=f"{where}.first",
    )
    return uniform(first=first_step)


def _make_swad(
    where: str,
    steps: Steps,
    *,
    n_converge: int = 3,
    n_tolerance: int = 6,
    tolerance_ratio: float = 0.3,
) -> Average:
    """Return the average of SWAD; options: see `loss_valley.Options`."""
    errors.check_whole(where, n_converge, low=1, name="n_converge")
    errors.check_whole(where, n_tolerance, low=1, name="n_tolerance")
    errors.check(tolerance_ratio >= 0, where, "be 0 or more", tolerance_ratio)
    if steps.num_evaluations <= n_converge:
        errors.refuse(
            where,
            f"have {n_converge + 1} evaluations or more in its stage, because swad "
            f"compares n_converge={n_converge} losses",
            steps.num_evaluations,
            "evaluate more often, such as --config.eval_every='5 %'",
        )
    options = loss_valley.Options(n_converge, n_tolerance, tolerance_ratio)
    return swad(options, steps)


# By name, functions (place in messages, steps of the stage, **options).
AVERAGES = types.MappingProxyType(
    {"exponential": _make_exponential, "uniform": _make_uniform, "swad": _make_swad}
)
# By name, the default of the option "statistics".
_STATISTICS = types.MappingProxyType(
    {"exponential": "average", "uniform": "average", "swad": "recompute"}
)


def check_name(where: str, option: float | Mapping[str, Any]) -> None:
    """Raise ValueError if config.optim.average has entries and an unknown name.

    where: name of the entry in the config.
    """
    if isinstance(option, Mapping):
        build.check_name(where, option, AVERAGES)


def from_options(
    option: float | Mapping[str, Any],
    steps: Steps,
    *,
    where: str = "config.optim.average",
    rolls_back: bool = False,
) -> Average | None:
    """Return the average of config.optim.average; None without an average.

    option: a dict with a name of AVERAGES and options, or the decay of an exponential average, 0
    for none. Options of all averages: `statistics`, one of STATISTICS, and `batches` (default:
    100), only with statistics="recompute". where: name of the entry in the config. rolls_back: True
    if a seed that fails is rolled back (config.rollback). ValueError for wrong options, and for
    swad with a rollback.
    """
    if not isinstance(option, Mapping):
        average = exponential(decay=option) if option else None
        return counting(average) if average and rolls_back else average
    make, options = build.lookup(where, option, AVERAGES)
    statistics = options.pop("statistics", _STATISTICS[option["name"]])
    errors.check_choice(f"{where}.statistics", statistics, STATISTICS)
    batches = 0
    if statistics == "recompute":
        batches = options.pop("batches", 100)
        errors.check_whole(f"{where}.batches", batches, low=1)
    average = build.call_checked(where, make, where, steps, **options)
    if average and rolls_back:
        if average.valley:
            raise ValueError(
                f"{where}: swad must not be rolled back, because its segments end at the run's "
                "evaluations; remove config.rollback"
            )
        average = counting(average)
    return recomputing(average, batches) if average and batches else average
