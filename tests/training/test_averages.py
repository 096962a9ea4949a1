"""Averages of weights: their definitions, and that training does not depend on them."""

import itertools

import jax
import ml_collections
import numpy as np
import pytest

from benchmarks import common
from jbias import data, models, train
from jbias.algos import base
from jbias.runs import results
from jbias.runtime import mesh, signals
from jbias.training import experiment, initial_nets, placement
from jbias.training import step as train_step
from jbias.training.averaging import averages, loss_valley
from tests import smoke_runs, test_resume
from tests.oracles import swad as swad_oracle

EPS = np.finfo(np.float32).eps


def config(average, **entries):
    """Return the config, a dict, of a small run of a CNN; see `smoke_runs.small`."""
    c = smoke_runs.small(epochs=3.0, **entries)
    with c.unlocked():
        del c.optim.average, c.model
        c.optim.average = average
        c.model = dict(name="cnn", width=4)
    return c.to_dict()


def nets_by_step(average, which=(0, 1), steps=6):
    """Return, for each step, per seed (current network, network to evaluate), on the host."""
    stage = common.with_seeds(smoke_runs.stage(config(average)), which)
    placed = placement.fit_to_devices(stage, mesh.make(1), strategy="unrolled")
    states, nets = placed.start(), []
    for step in range(steps):
        states, _ = placed.advance(states, placed.take(step, 1))
        of_step = []
        for state in jax.device_get(placed.layout.unpack(states)):
            current = {"params": state.params["net"], "stats": state.stats["net"]}
            of_step.append((current, train_step.net_of(state)))
        nets.append(of_step)
    return nets


@pytest.fixture(scope="module")
def plain():
    """Return the networks of steps without an average."""
    return nets_by_step(0.0)


@pytest.fixture(scope="module")
def uniform():
    """Return the networks of steps with a mean from step 3 on."""
    return nets_by_step(dict(name="uniform", first="3 steps"))


def assert_equal(a, b):
    """Assert that two trees are equal to the bit."""
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_a_uniform_average_is_the_mean_of_the_networks_from_its_first_step(uniform):
    """The oracle is NumPy's mean in float64 over the networks after each step.

    Each step rounds the mean twice: the difference, and the sum.
    """
    for seed, number in itertools.product((0, 1), (3, 4, 6)):
        count = number - 2
        saved = [jax.tree.leaves(of_step[seed][0]) for of_step in uniform[2:number]]
        for i, average in enumerate(jax.tree.leaves(uniform[number - 1][seed][1])):
            weights = np.asarray([leaves[i] for leaves in saved], np.float64)
            assert len(weights) == count
            bound = count * EPS * np.abs(weights).max()
            np.testing.assert_allclose(average, weights.mean(0), rtol=0, atol=bound)


def test_a_uniform_average_is_the_network_itself_up_to_its_first_step(uniform):
    for of_step in uniform[:3]:
        for current, average in of_step:
            assert_equal(current, average)
    current, average = uniform[5][0]
    different = jax.tree.map(lambda a, b: (a != b).any(), current, average)
    assert any(jax.tree.leaves(different))


@pytest.mark.parametrize(
    "average",
    [
        dict(name="exponential", decay=0.0),
        dict(name="uniform", first="100 %"),
    ],
)
def test_an_average_without_weight_on_earlier_steps_is_plain_training(plain, average):
    """The networks to evaluate are those of training without an average, to the bit."""
    steps = 12 if average["name"] == "uniform" else 6
    nets = nets_by_step(average, steps=steps)
    for of_step, plain_of_step in zip(nets, plain):
        for (current, evaluated), (plain_net, _) in zip(of_step, plain_of_step):
            assert_equal(current, plain_net)
            assert_equal(evaluated, plain_net)
    for current, evaluated in nets[-1]:
        assert_equal(current, evaluated)


def test_training_does_not_depend_on_an_average(plain, uniform):
    for of_step, plain_of_step in zip(uniform, plain, strict=True):
        for (current, _), (plain_net, _) in zip(of_step, plain_of_step, strict=True):
            assert_equal(current, plain_net)


def test_seeds_that_train_together_have_the_averages_of_seeds_alone(uniform):
    alone = nets_by_step(dict(name="uniform", first="3 steps"), which=(1,))
    for (_, of_second), (of_alone,) in zip(uniform, alone, strict=True):
        assert_equal(of_second, of_alone)


def test_a_number_is_the_decay_of_an_exponential_average():
    """Configs of older runs have a number."""
    net = {"params": {"w": np.float32(3)}, "stats": {}}
    steps = averages.Steps(10, 5, 5)
    old = averages.from_options(0.5, steps)
    new = averages.from_options(dict(name="exponential", decay=0.5), steps)
    for average in (old, new):
        state = average.update(average.start(net), {**net, "params": {"w": 5.0}}, 20)
        assert state["params"]["w"] == 4
    assert averages.from_options(0.0, steps) is None


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (dict(name="uniform", first="soon"), r"average\.first: must be like"),
        (dict(name="uniform", start=3), "average.*start"),
        (dict(name="exponential", decay=1.0), r"decay: must be in \[0, 1\)"),
        (dict(name="exponential"), "decay"),
        (dict(name="median"), r"average\.name.*exponential"),
        (dict(first=3), "must have a name"),
        (dict(name="swad", n_converge=0), "n_converge must be a whole number >= 1"),
        (dict(name="swad", tolerance_ratio=-0.1), "must be 0 or more, got -0.1"),
        (dict(name="swad", statistics="none"), "statistics: must be one of average"),
        (dict(name="uniform", batches=5), "batches"),
        (dict(name="swad", batches=0), "batches: must be a whole number >= 1"),
    ],
)
def test_wrong_options_are_refused(option, message):
    with pytest.raises(ValueError, match=message):
        averages.from_options(option, averages.Steps(10, 5, 5))


def random_nets(number, count):
    """Return `count` networks of two weights, drawn by `number`."""
    draws = np.random.default_rng(number).normal(size=(count, 2)).astype(np.float32)
    return [{"params": {"w": x[:1]}, "stats": {"mean": x[1:]}} for x in draws]


@pytest.mark.parametrize("number", range(0, 36, 3))
def test_the_average_of_swad_is_the_mean_of_the_selected_segments(number):
    """The oracle is NumPy's mean over the segments that `loss_valley.select` names.

    A segment has three steps, the last one a single step. Values are of order 1; each mean of n
    numbers rounds at most n times.
    """
    options, losses = swad_oracle.losses_of(number)
    options = loss_valley.Options._make(options)
    total = 3 * len(losses) - 2
    average = averages.swad(options, averages.Steps(total, 3, 3))
    nets = random_nets(number, total + 1)
    state = average.start(nets[0])
    update, carry_out = jax.jit(average.update), jax.jit(averages.carry_out)
    for t, net in enumerate(nets[1:]):
        state = update(state, net, t)
        if t < 2:  # Before the first evaluation.
            assert_equal(averages_net(state), net)
        if (t + 1) % 3 and t + 1 < total:
            continue
        evaluation = t // 3
        decided = averages.plan(
            np.asarray(state["losses"]), losses[evaluation], evaluation, options=options
        )
        state = carry_out(state, decided)
        so_far = [np.float32(x) for x in losses[: evaluation + 1]]
        selected = loss_valley.select(so_far, options).evaluated
        means = [segment_mean(nets, i, total) for i in selected]
        np.testing.assert_allclose(
            weights_of(averages_net(state)), np.mean(means, axis=0), atol=1e-5
        )
    again = carry_out(state, decided._replace(is_active=np.bool_(False)))
    assert_equal(again, state)


def test_a_single_step_is_the_network_itself_to_the_bit():
    average = averages.swad(loss_valley.Options(), averages.Steps(1, 1, 1))
    first, net = random_nets(0, 2)
    state = average.update(average.start(first), net, 0)
    decided = averages.plan(np.asarray(state["losses"]), 0.5, 0, options=average.valley)
    assert_equal(averages_net(averages.carry_out(state, decided)), net)


def averages_net(state):
    """Return the network to evaluate, from an average's state."""
    return averages.network({}, {averages.KEY: state})


def weights_of(net):
    """Return the two weights of a network of `random_nets`."""
    return np.concatenate([net["params"]["w"], net["stats"]["mean"]])


def segment_mean(nets, segment, total):
    """Return NumPy's mean of the weights after the steps of a segment."""
    steps = range(3 * segment + 1, min(3 * segment + 3, total) + 1)
    return np.mean([weights_of(nets[step]).astype(np.float64) for step in steps], 0)


def test_a_decision_of_swad_is_made_once():
    options = loss_valley.Options()
    losses = np.asarray([1.0, np.nan], np.float32)
    assert averages.plan(losses, 0.5, 1, options=options).is_active
    assert not averages.plan(losses, 0.5, 0, options=options).is_active


def test_nothing_is_decided_once_the_valley_has_ended():
    options = loss_valley.Options(n_converge=1, n_tolerance=1, tolerance_ratio=0.0)
    losses = np.asarray([1.0, 2.0, np.nan], np.float32)
    assert loss_valley.select([1.0, 2.0], options).is_dead
    assert not averages.is_undecided(losses, 2, options)
    losses[1] = 0.5
    assert averages.is_undecided(losses, 2, options)


def test_recomputed_statistics_are_the_means_over_the_first_batches():
    """The oracle recovers each batch's statistics from running statistics with a decay of 0.9.

    The recovery multiplies rounding by ten. Recomputing again changes no bit.
    """
    average = dict(name="uniform", first="1 step", statistics="recompute", batches=3)
    stage = common.with_seeds(smoke_runs.stage(config(average, inputs=())), (0,))
    placed = placement.fit_to_devices(stage, mesh.make(1))
    states, _ = placed.advance(placed.start(), placed.take(0, 1))
    (trained,) = jax.device_get(placed.layout.unpack(states))
    *_, states = placed.recompute_statistics(states)
    (recomputed,) = jax.device_get(placed.layout.unpack(states))
    assert_equal(recomputed.params, trained.params)
    old, images = trained.stats[averages.KEY], stage.feed.shared(0)["train"]["image"]
    statistics = []
    for step in range(3):
        image = images[stage.feed.batch(0, step)["train"]].astype(np.float32) / 255
        _, new = base.forward(stage.algo.net, old["params"], old["stats"], image, None)
        of_batch = jax.tree.map(lambda n, o: (n - 0.9 * o) / 0.1, new, old["stats"])
        statistics.append(jax.tree.leaves(of_batch))
    evaluated = train_step.net_of(recomputed)
    assert_equal(evaluated["params"], old["params"])
    for i, mean in enumerate(jax.tree.leaves(evaluated["stats"])):
        expected = np.mean([leaves[i] for leaves in statistics], axis=0)
        np.testing.assert_allclose(mean, expected, rtol=1e-4, atol=1e-5)
    *_, states = placed.recompute_statistics(states)
    (again,) = jax.device_get(placed.layout.unpack(states))
    assert_equal(again.stats, recomputed.stats)


def test_recomputed_statistics_of_norm_groups_are_the_means_over_their_batches():
    """Each group of 4 images passes through the network as a batch of its own."""
    images = np.random.default_rng(0).random((8, 8, 8, 3), np.float32)
    plain, grouped = (
        models.MODELS["cnn"](5, width=2, norm_group=group) for group in (0, 4)
    )
    variables = plain.init(jax.random.key(0), images)
    net = {"params": variables["params"], "stats": variables["stats"]}
    average = averages.recomputing(averages.exponential(decay=0.5), 2)
    start = average.start(net)
    together = averages.add_statistics(start, grouped, images, None, 0)
    apart = start
    for number in range(2):
        batch = images[4 * number : 4 * (number + 1)]
        apart = averages.add_statistics(apart, plain, batch, None, number)
    assert_equal(together["stats"], net["stats"])
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6),
        averages_net(together)["stats"],
        averages_net(apart)["stats"],
    )


@pytest.mark.slow
def test_statistics_that_training_leaves_unchanged_are_not_recomputed():
    """A linear probe uses the running statistics, which here are those at the start."""
    average = dict(name="uniform", first="1 step", statistics="recompute", batches=3)
    options = config(average, algo=dict(name="linear_probe"))
    stage = common.with_seeds(smoke_runs.stage(options), (0,))
    placed = placement.fit_to_devices(stage, mesh.make(1))
    (start,) = jax.device_get(placed.layout.unpack(placed.start()))
    states, _ = placed.advance(placed.start(), placed.take(0, 1))
    *_, states = placed.recompute_statistics(states)
    (recomputed,) = jax.device_get(placed.layout.unpack(states))
    assert jax.tree.leaves(start.stats["net"])
    assert_equal(train_step.net_of(recomputed)["stats"], start.stats["net"])


@pytest.mark.slow
def test_a_checkpoint_without_recomputed_statistics_is_only_resumed(
    tmp_path, monkeypatch
):
    """An error after step 5 saves the states; the average has the statistics of step 4."""
    average = dict(name="uniform", first="1 step", statistics="recompute", batches=2)
    c = config(average, eval_every="4 steps", save_every="4 steps", seeds=(0,))
    c["run"]["steps_per_dispatch"] = 1
    take = experiment.Experiment.take

    def fail(self, step, until):
        """Take the next steps, or fail after step 5."""
        if step == 5:
            raise RuntimeError("no more steps")
        return take(self, step, until)

    with monkeypatch.context() as patch:
        patch.setattr(experiment.Experiment, "take", fail)
        with pytest.raises(RuntimeError, match="no more steps"):
            train.run(c, tmp_path)
    with pytest.raises(ValueError, match="do not fit its average; resume the run"):
        initial_nets.load_initial_nets(tmp_path, (0,))
    train.run(c, tmp_path)
    assert len(initial_nets.load_initial_nets(tmp_path, (0,))) == 1


SWAD = dict(name="swad", n_converge=2, n_tolerance=2, tolerance_ratio=0.5)


def test_swad_needs_more_evaluations_than_the_losses_it_compares():
    with pytest.raises(
        ValueError, match=r"4 evaluations .* got 3; evaluate more often"
    ):
        averages.from_options(dict(name="swad"), averages.Steps(30, 10, 10))
    assert averages.from_options(dict(name="swad"), averages.Steps(31, 10, 10))


@pytest.mark.parametrize(
    ("losses", "valley", "text"),
    [
        ([4, 3, 2, 1], (False, False, 10, 11, 2), "never converged"),
        ([4, 3], (False, False, 4, 6, 3), ""),
        ([4, 1, 2], (True, False, 7, 9, 3), "the average so far is of steps 7 to 9"),
        ([1, 2, 9], (True, True, 4, 6, 3), "has ended, the average stays"),
        ([4, 1, 2, 9], (True, True, 7, 9, 3), "final average is of steps 7 to 9"),
        ([4, 1, 2, 1], (True, False, 7, 11, 5), "final average is of steps 7 to 11"),
    ],
)
def test_a_valley_is_described_by_the_steps_in_its_average(losses, valley, text):
    """Segments of three steps, the last of two; losses converge at the first rise."""
    options = loss_valley.Options(n_converge=2, n_tolerance=1, tolerance_ratio=1.0)
    steps = averages.Steps(11, 3, 3)
    old, new = (
        averages.find_valley(np.float32(x), options=options, steps=steps)
        for x in (losses[:-1], losses)
    )
    assert new == valley
    is_last = len(losses) == 4
    assert text in averages.describe_change(old, new, is_last=is_last)
    assert bool(text) == bool(averages.describe_change(old, new, is_last=is_last))


@pytest.mark.slow
def test_a_run_by_swad_ends_with_the_mean_that_its_validation_losses_choose(tmp_path):
    """The oracle has the weights after each step, and NumPy's losses on the validation set."""
    average = {**SWAD, "statistics": "average"}
    c = config(average, eval_every="2 steps")
    train.run(c, tmp_path / "run")
    nets = nets_by_step(average, which=(0, 1), steps=12)
    valid = data.load("shapes", "valid", **{k: c["valid"][k] for k in ("n",)})
    images = np.stack([valid.image(i) for i in range(len(valid))]).astype("f4") / 255
    labels = np.asarray(valid.columns["label"])
    net = smoke_runs.stage(c).algo.net
    final = initial_nets.load_initial_nets(tmp_path / "run", (0, 1))
    for seed in (0, 1):
        current = [of_step[seed][0] for of_step in nets]
        losses = []
        for weights in current[1::2]:
            logits = np.asarray(net.apply(weights, images), np.float64)
            log_sums = np.log(np.exp(logits).sum(-1))
            losses.append(np.mean(log_sums - logits[np.arange(len(labels)), labels]))
        options = loss_valley.Options(2, 2, 0.5)
        selected = loss_valley.select(losses, options).evaluated
        assert len(selected) > 1
        steps = [step for i in selected for step in (2 * i, 2 * i + 1)]
        frame = results.read(tmp_path / "run")
        is_last = (frame.seed == seed) & (frame.step == 12)
        of_training = frame[is_last & (frame.dataset == results.TRAIN)]
        records = of_training.set_index("metric").value
        assert records["swad_first_step"] == min(steps) + 1
        assert records["swad_last_step"] == max(steps) + 1
        assert records["swad_steps"] == len(set(steps))
        saved = [jax.tree.leaves(current[step]) for step in steps]
        for i, weights in enumerate(jax.tree.leaves(final[seed])):
            expected = np.mean([leaves[i] for leaves in saved], axis=0)
            np.testing.assert_allclose(weights, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_seeds_that_train_together_have_the_averages_of_swad_of_seeds_alone(tmp_path):
    """To the bit: one program for both seeds makes the decisions of each alone."""
    options = {**SWAD, "batches": 2}
    for name, seeds in (("both", (0, 1)), ("alone", (1,))):
        c = config(options, eval_every="2 steps", seeds=seeds)
        c["run"]["strategy"] = "unrolled"
        train.run(c, tmp_path / name)
    (together,) = initial_nets.load_initial_nets(tmp_path / "both", (1,))
    (alone,) = initial_nets.load_initial_nets(tmp_path / "alone", (1,))
    assert_equal(together, alone)


@pytest.mark.slow
@pytest.mark.parametrize(
    "average",
    [
        0.9,
        dict(name="uniform", first="2 steps", statistics="recompute", batches=2),
        {**SWAD, "batches": 2},
    ],
    ids=["exponential", "uniform", "swad"],
)
def test_a_run_with_an_average_that_is_killed_ends_the_same(average, tmp_path):
    entries = dict(eval_every="2 steps", save_every="3 steps")
    c = ml_collections.ConfigDict(config(average, **entries))
    test_resume.finish(c, tmp_path / "unbroken")
    for trigger, number in (("step", 4), ("save", 3), ("rename", 5), ("step", 3)):
        process = smoke_runs.start(c, tmp_path / "run", trigger, str(number))
        process.communicate(timeout=600)
    test_resume.finish(c, tmp_path / "run")
    test_resume.assert_same_end(tmp_path / "unbroken", tmp_path / "run")


@pytest.mark.slow
def test_a_run_by_swad_that_was_stopped_at_an_evaluation_evaluates_it_again(tmp_path):
    """The state that was saved without its evaluation is not what later steps need."""
    c = config({**SWAD, "batches": 2}, eval_every="2 steps", save_every="3 steps")
    train.run(c, tmp_path / "unbroken")
    stop, num_checks = signals.StopSignal(), 0
    attach = stop.attach

    def attach_and_stop(agreed):
        """Request a stop at the first check after step 6."""
        attach(agreed)
        is_agreed = agreed.is_agreed

        def check(step=None):
            nonlocal num_checks
            num_checks += 1
            if step == 6:
                agreed.received = "SIGTERM"
            return is_agreed() if step is None else is_agreed(step)

        agreed.is_agreed = check

    stop.attach = attach_and_stop
    with pytest.raises(signals.Interrupted, match="at step 6"):
        train.run(c, tmp_path / "run", stop_signal=stop)
    assert num_checks
    # The second start evaluates step 6, and dies after step 7.
    second = smoke_runs.start(
        ml_collections.ConfigDict(c), tmp_path / "run", "step", "1"
    )
    second.communicate(timeout=600)
    assert (tmp_path / "run/evals/6.jsonl").exists()
    train.run(c, tmp_path / "run")
    test_resume.assert_same_end(tmp_path / "unbroken", tmp_path / "run")


def test_swad_is_refused_if_another_process_evaluates():
    c = config(SWAD)
    c["run"]["evaluate"] = "elsewhere"
    with pytest.raises(ValueError, match="swad needs validation losses"):
        smoke_runs.stage(c)
