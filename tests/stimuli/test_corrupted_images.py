"""The probe of corruptions: random draws, storage, and means over corruptions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias.data import corruptions as published
from jbias.data.corruptions import host_operations
from jbias.evals import inference, registry, suites
from jbias.measures import corruption_error
from jbias.measures.decisions import Decisions
from jbias.stimuli import corrupted_images, shown
from tests import cases

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (6, 32, 32, 3), np.uint8)


def show_stimuli(corruption_probe, condition, index, images=IMAGES):
    @jax.jit
    def show(image, index, params):
        rows = shown.Rows(image / 255, index, jnp.zeros(len(index), int), lambda x: x)
        return corruption_probe.show(rows, params, corruption_probe.static(condition))

    index = np.array(index)
    return np.asarray(
        show(np.float32(images[index]), index, corruption_probe.conditions[condition])
    )


def test_conditions_are_all_corruptions_of_the_papers():
    corruption_probe = corrupted_images.make(side=32)
    names = [name for name in published.CORRUPTIONS if name != "frost"]
    expected = [f"{name}-{s}" for name in names for s in range(1, 6)]
    assert list(corruption_probe.conditions) == expected
    assert {corruption_probe.static(c) for c in corruption_probe.conditions} == set(
        names
    )
    corruption_probe = registry.PROBES["corruptions"].load()(
        names="imagenet_c_bar", severities=(2, 3), side=32
    )
    assert [corruption_probe.static(c) for c in corruption_probe.conditions][
        ::2
    ] == list(published.BAR)
    for name in (corruption_probe.static(c) for c in corruption_probe.conditions):
        parameters_at_2, parameters_at_3 = (
            corruption_probe.conditions[f"{name}-{s}"] for s in (2, 3)
        )
        types = [
            jax.tree.map(lambda x: (x.shape, x.dtype), tree)
            for tree in (parameters_at_2, parameters_at_3)
        ]
        assert types[0] == types[1]


def test_draws_depend_only_on_the_index_of_the_image_and_the_condition():
    corruption_probe = corrupted_images.make(names=("gaussian_noise",), side=32)
    stimuli = show_stimuli(corruption_probe, "gaussian_noise-3", [0, 1, 2, 3])
    np.testing.assert_array_equal(
        show_stimuli(corruption_probe, "gaussian_noise-3", [3, 5, 0, 4])[[2, 0]],
        stimuli[[0, 3]],
    )
    grey = np.full_like(IMAGES, 128)
    three, four = (
        show_stimuli(corruption_probe, f"gaussian_noise-{s}", [0, 1, 2, 3], grey) * 255
        - 128
        for s in (3, 4)
    )
    for first, second in ((three, four), (three[:1], three[1:2])):
        assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.1
    other_seed = corrupted_images.make(
        names="gaussian_noise", severities=(3,), side=32, seed=1
    )
    assert (
        show_stimuli(other_seed, "gaussian_noise-3", [0, 1, 2, 3]) != stimuli
    ).mean() > 0.5


@pytest.mark.slow
def test_corrupted_images_are_stored_as_published():
    """Images are JPEGs of quality 85, except with the settings for 32 pixels."""
    make, jpeg = corrupted_images.make, host_operations.compressed
    for side, table, stored in ((32, None, False), (40, 224, True), (40, 32, False)):
        images = RNG.integers(0, 256, (2, side, side, 3), np.uint8)
        options = dict(names=("contrast",), severities=(1,), side=side, table=table)
        plain = show_stimuli(
            make(**options, stored=False), "contrast-1", [0, 1], images
        )
        stimuli = show_stimuli(make(**options), "contrast-1", [0, 1], images)
        plain, stimuli = (np.rint(x * 255).astype(np.uint8) for x in (plain, stimuli))
        expected = [jpeg(x, 85) for x in plain] if stored else plain
        np.testing.assert_array_equal(stimuli, expected)
    unrounded_probe = make(names=("gaussian_noise",), side=64, quantise=False)
    stimuli = show_stimuli(
        unrounded_probe, "gaussian_noise-5", [0], np.zeros((1, 64, 64, 3))
    )
    assert stimuli.min() == 0 and len(np.unique(stimuli)) > 1000


def test_a_network_is_measured_on_all_conditions():
    corruption_probe = corrupted_images.make(
        names=("contrast", "pixelate"), severities=(1, 5), side=32
    )
    network = inference.BoundJaxNetwork(
        lambda v, x: x.mean((1, 2)) * v, jnp.ones((1, 3))
    )
    index, label = jnp.arange(6), IMAGES.mean((1, 2)).argmax(-1)
    batches = [
        inference.Batch(jnp.asarray(IMAGES), index, jnp.asarray(label), index, count=6)
    ]
    columns = inference.run_probe(
        network, corruption_probe, batches, {"": inference.DecisionRule(6)}
    )
    numbers = corruption_probe.numbers(
        inference.to_decisions(columns, {"label": label})
    )
    numbers_by_name = {(number.metric, number.condition): number for number in numbers}
    assert numbers_by_name["accuracy", "contrast-1"].n == 6
    assert (
        numbers_by_name["accuracy", "pixelate-1"].value == 1
    )  # Means of channels stay.
    assert numbers_by_name["corruption_accuracy_part", ""].n == 24


def make_decisions(shares, n=1000):
    """Return decisions by condition with the given shares of correct answers."""
    label = np.zeros(n, int)
    return {
        name: Decisions(
            (np.arange(n) >= round(share * n)).astype(int), {"label": label}
        )
        for name, share in shares.items()
    }


def draw_shares(names, severities=(1, 2, 3, 4, 5)):
    """Return a random accuracy for each corruption and severity."""
    names = [f"{name}-{s}" for name in names for s in severities]
    rng = np.random.default_rng(1)
    return dict(zip(names, rng.integers(100, 900, len(names)) / 1000, strict=True))


def by_name(numbers):
    return {(number.metric, number.condition): number for number in numbers}


def test_means_are_over_corruptions_and_severities():
    shares = draw_shares(published.CORRUPTIONS)
    numbers = by_name(corruption_error.numbers(make_decisions(shares)))
    assert len(numbers) == 95 + 19 + 2
    assert all(
        numbers["accuracy", name].value == share for name, share in shares.items()
    )
    cells = np.array(list(shares.values())).reshape(19, 5)
    overall = numbers["corruption_accuracy", ""]
    assert overall.value == pytest.approx(cells.mean())
    assert (overall.count, overall.n) == (round(cells.sum() * 1000), 95_000)
    fifteen = [not corruption.extra for corruption in published.CORRUPTIONS.values()]
    assert numbers["corruption_accuracy_15", ""].value == pytest.approx(
        cells[fifteen].mean()
    )
    fog = numbers["corruption_accuracy", "fog"].value
    assert fog == pytest.approx(cells[list(published.CORRUPTIONS).index("fog")].mean())


def test_means_without_frost_have_separate_names():
    names = [name for name in published.CORRUPTIONS if name != "frost"]
    numbers = by_name(corruption_error.numbers(make_decisions(draw_shares(names))))
    mean = np.mean(list(draw_shares(names).values()))
    assert numbers["corruption_accuracy_without_frost", ""].value == pytest.approx(mean)
    assert ("corruption_accuracy_15_without_frost", "") in numbers
    assert ("corruption_accuracy", "") not in numbers
    bar_numbers = by_name(
        corruption_error.numbers(make_decisions(draw_shares(published.BAR)))
    )
    assert [key for key in bar_numbers if key[1] == ""] == [("corruption_accuracy", "")]


@pytest.mark.parametrize("frost", ["", "_without_frost"])
def test_the_common_fifteen_are_a_part_of_nineteen(frost):
    """If only these are measured, their mean is given, and not the mean over all nineteen."""
    names = [name for name in corruption_error.COMMON if not frost or name != "frost"]
    numbers = by_name(corruption_error.numbers(make_decisions(draw_shares(names))))
    means = {key[0] for key in numbers if key[1] == ""}
    assert means == {"corruption_accuracy_part", f"corruption_accuracy_15{frost}"}
    for name in means:
        assert numbers[name, ""].value == pytest.approx(
            np.mean([*draw_shares(names).values()])
        )


def test_the_mean_corruption_error_is_relative_to_a_reference():
    shares = {"fog-1": 0.5, "fog-2": 0.3, "snow-1": 0.9, "snow-2": 0.7}
    errors = {"fog": 0.8, "snow": 0.4}
    numbers = by_name(corruption_error.numbers(make_decisions(shares), errors=errors))
    expected = (0.6 / 0.8 + 0.2 / 0.4) / 2
    assert numbers["mean_corruption_error", ""].value == pytest.approx(expected)
    with pytest.raises(ValueError, match="not measured are frost"):
        corruption_error.numbers(make_decisions(shares), errors={"frost": 0.8})


def test_decision_rules_have_separate_numbers():
    shares = {"fog-1": 0.5, "fog-1 mean_logit": 0.25}
    numbers = by_name(corruption_error.numbers(make_decisions(shares)))
    assert numbers["corruption_accuracy_part", ""].value == 0.5
    assert numbers["corruption_accuracy_part", "mean_logit"].value == 0.25
    assert numbers["corruption_accuracy_part", "fog mean_logit"].value == 0.25


@cases.each(
    ("call", "message"),
    [
        (
            lambda: corrupted_images.make(names="imagenet_d"),
            "got 'imagenet_d'; did you mean",
        ),
        (lambda: corrupted_images.make(names=()), "names must be one or more"),
        (lambda: corrupted_images.make(names=("fog", "fog")), "each once"),
        (lambda: corrupted_images.make(names=("frost",)), "must have its photographs"),
        (
            lambda: corrupted_images.make(severities=()),
            "severities must be one or more",
        ),
        (
            lambda: corrupted_images.make(severities=(0,)),
            "severities must be one or more",
        ),
        (lambda: corrupted_images.make(side=28), "got 28; .*table"),
        (
            lambda: corrupted_images.make(stored=True, quantise=False),
            "set quantise=True",
        ),
        (
            lambda: corruption_error.numbers(make_decisions({"fog-6": 0.5})),
            "got 'fog-6'",
        ),
        (lambda: corruption_error.numbers(make_decisions({"": 0.5})), "got ''"),
        (
            lambda: corruption_error.numbers(
                make_decisions({"fog-1": 0.5, "fog-2": 0.5, "snow-1": 0.5})
            ),
            "got no snow-2",
        ),
    ],
)
def test_invalid_options_are_refused_in_one_line(call, message):
    with pytest.raises(ValueError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


def test_errors_of_a_reference_come_from_a_suite():
    options = dict(names=("fog",), severities=(3,), errors={"fog": 0.5})
    entry = dict(probe="corruptions", sets=("edge",), **options)
    corruption_probe = suites.build_probe(
        suites.read_measure("c", entry, {"edge": {}}), {"side": 32}
    )
    label = np.arange(4)
    numbers = corruption_probe.numbers(
        {"fog-3": Decisions(label // 2, {"label": label})}
    )
    values = {number.metric: number.value for number in numbers}
    assert values["mean_corruption_error"] == (1 - values["accuracy"]) / 0.5
