"""The probe of corruptions: draws by image and condition alone, and what is counted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias.data import corruptions as published
from jbias.evals import (
    corruption_error,
    corruptions,
    inference,
    probe,
    probe_registry,
    suites,
)
from jbias.evals.decisions import Decisions
from tests import cases

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (6, 32, 32, 3), np.uint8)


def shown(made, condition, index, images=IMAGES):
    @jax.jit
    def run(image, index, params):
        rows = probe.Rows(image / 255, index, jnp.zeros(len(index), int), lambda x: x)
        return made.show(rows, params, made.static(condition))

    index = np.array(index)
    return np.asarray(run(np.float32(images[index]), index, made.conditions[condition]))


def test_conditions_are_all_of_the_paper():
    made = corruptions.make(side=32)
    names = [name for name in published.CORRUPTIONS if name != "frost"]
    expected = [f"{name}-{s}" for name in names for s in range(1, 6)]
    assert list(made.conditions) == expected
    assert {made.static(c) for c in made.conditions} == set(names)
    made = probe_registry.PROBES["corruptions"](
        names="imagenet_c_bar", severities=(2, 3), side=32
    )
    assert [made.static(c) for c in made.conditions][::2] == list(published.BAR)
    for name in (made.static(c) for c in made.conditions):
        one, two = (made.conditions[f"{name}-{s}"] for s in (2, 3))
        types = [
            jax.tree.map(lambda x: (x.shape, x.dtype), tree) for tree in (one, two)
        ]
        assert types[0] == types[1]


def test_an_image_is_a_function_of_its_number_and_the_condition():
    made = corruptions.make(names=("gaussian_noise",), side=32)
    out = shown(made, "gaussian_noise-3", [0, 1, 2, 3])
    np.testing.assert_array_equal(
        shown(made, "gaussian_noise-3", [3, 5, 0, 4])[[2, 0]], out[[0, 3]]
    )
    grey = np.full_like(IMAGES, 128)
    three, four = (
        shown(made, f"gaussian_noise-{s}", [0, 1, 2, 3], grey) * 255 - 128
        for s in (3, 4)
    )
    for one, two in ((three, four), (three[:1], three[1:2])):
        assert abs(np.corrcoef(one.ravel(), two.ravel())[0, 1]) < 0.1
    other = corruptions.make(names="gaussian_noise", severities=(3,), side=32, seed=1)
    assert (shown(other, "gaussian_noise-3", [0, 1, 2, 3]) != out).mean() > 0.5


@pytest.mark.slow
def test_stored_as_published():
    """JPEG of quality 85 but for the settings of 32 pixels."""
    make, jpeg = corruptions.make, published.kernels.jpeg_compression
    for side, table, stored in ((32, None, False), (40, 224, True), (40, 32, False)):
        images = RNG.integers(0, 256, (2, side, side, 3), np.uint8)
        options = dict(names=("contrast",), severities=(1,), side=side, table=table)
        plain = shown(make(**options, stored=False), "contrast-1", [0, 1], images)
        out = shown(make(**options), "contrast-1", [0, 1], images)
        plain, out = (np.rint(x * 255).astype(np.uint8) for x in (plain, out))
        expected = [jpeg(x, None, 85) for x in plain] if stored else plain
        np.testing.assert_array_equal(out, expected)
    free = make(names=("gaussian_noise",), side=64, quantise=False)
    out = shown(free, "gaussian_noise-5", [0], np.zeros((1, 64, 64, 3)))
    assert out.min() == 0 and len(np.unique(out)) > 1000


def test_a_network_is_asked_about_all_of_them():
    made = corruptions.make(names=("contrast", "pixelate"), severities=(1, 5), side=32)
    network = inference.BoundJaxNetwork(
        lambda v, x: x.mean((1, 2)) * v, jnp.ones((1, 3))
    )
    index, label = jnp.arange(6), IMAGES.mean((1, 2)).argmax(-1)
    batches = [
        inference.Batch(jnp.asarray(IMAGES), index, jnp.asarray(label), index, count=6)
    ]
    found = inference.run_probe(network, made, batches, {"": inference.DecisionRule(6)})
    numbers = made.numbers(inference.to_decisions(found, {"label": label}))
    told = {(one.metric, one.condition): one for one in numbers}
    assert told["accuracy", "contrast-1"].n == 6
    assert told["accuracy", "pixelate-1"].value == 1  # Means of channels stay.
    assert told["corruption_accuracy_part", ""].n == 24


def decided(shares, n=1000):
    """Decisions of which such shares are right."""
    label = np.zeros(n, int)
    return {
        name: Decisions(
            (np.arange(n) >= round(share * n)).astype(int), {"label": label}
        )
        for name, share in shares.items()
    }


def shares(names, severities=(1, 2, 3, 4, 5)):
    names = [f"{name}-{s}" for name in names for s in severities]
    rng = np.random.default_rng(1)
    return dict(zip(names, rng.integers(100, 900, len(names)) / 1000, strict=True))


def told(numbers):
    return {(one.metric, one.condition): one for one in numbers}


def test_means_are_over_cells():
    of = shares(published.CORRUPTIONS)
    got = told(corruption_error.numbers(decided(of)))
    assert len(got) == 95 + 19 + 2
    assert all(got["accuracy", name].value == share for name, share in of.items())
    cells = np.array(list(of.values())).reshape(19, 5)
    whole = got["corruption_accuracy", ""]
    assert whole.value == pytest.approx(cells.mean())
    assert (whole.count, whole.n) == (round(cells.sum() * 1000), 95_000)
    fifteen = [not one.extra for one in published.CORRUPTIONS.values()]
    assert got["corruption_accuracy_15", ""].value == pytest.approx(
        cells[fifteen].mean()
    )
    fog = got["corruption_accuracy", "fog"].value
    assert fog == pytest.approx(cells[list(published.CORRUPTIONS).index("fog")].mean())


def test_means_without_frost_say_so():
    names = [name for name in published.CORRUPTIONS if name != "frost"]
    got = told(corruption_error.numbers(decided(shares(names))))
    mean = np.mean(list(shares(names).values()))
    assert got["corruption_accuracy_without_frost", ""].value == pytest.approx(mean)
    assert ("corruption_accuracy_15_without_frost", "") in got
    assert ("corruption_accuracy", "") not in got
    bar = told(corruption_error.numbers(decided(shares(published.BAR))))
    assert [key for key in bar if key[1] == ""] == [("corruption_accuracy", "")]


@pytest.mark.parametrize("frost", ["", "_without_frost"])
def test_the_common_fifteen_are_a_part_of_nineteen(frost):
    """Their mean is that of the paper's tables, and not the one over all."""
    names = [name for name in corruption_error.COMMON if not frost or name != "frost"]
    got = told(corruption_error.numbers(decided(shares(names))))
    means = {key[0] for key in got if key[1] == ""}
    assert means == {"corruption_accuracy_part", f"corruption_accuracy_15{frost}"}
    for name in means:
        assert got[name, ""].value == pytest.approx(np.mean([*shares(names).values()]))


def test_error_relative_to_a_reference():
    of = {"fog-1": 0.5, "fog-2": 0.3, "snow-1": 0.9, "snow-2": 0.7}
    errors = {"fog": 0.8, "snow": 0.4}
    got = told(corruption_error.numbers(decided(of), errors=errors))
    expected = (0.6 / 0.8 + 0.2 / 0.4) / 2
    assert got["mean_corruption_error", ""].value == pytest.approx(expected)
    with pytest.raises(ValueError, match="not measured are frost"):
        corruption_error.numbers(decided(of), errors={"frost": 0.8})


def test_rules_are_kept_apart():
    of = {"fog-1": 0.5, "fog-1 mean_logit": 0.25}
    got = told(corruption_error.numbers(decided(of)))
    assert got["corruption_accuracy_part", ""].value == 0.5
    assert got["corruption_accuracy_part", "mean_logit"].value == 0.25
    assert got["corruption_accuracy_part", "fog mean_logit"].value == 0.25


@cases.each(
    ("call", "message"),
    [
        (
            lambda: corruptions.make(names="imagenet_d"),
            "got 'imagenet_d'; did you mean",
        ),
        (lambda: corruptions.make(names=()), "names must be one or more"),
        (lambda: corruptions.make(names=("fog", "fog")), "each once"),
        (lambda: corruptions.make(names=("frost",)), "must have its photographs"),
        (lambda: corruptions.make(severities=()), "severities must be one or more"),
        (lambda: corruptions.make(severities=(0,)), "severities must be one or more"),
        (lambda: corruptions.make(side=28), "got 28; .*table"),
        (lambda: corruptions.make(stored=True, quantise=False), "set quantise=True"),
        (lambda: corruption_error.numbers(decided({"fog-6": 0.5})), "got 'fog-6'"),
        (lambda: corruption_error.numbers(decided({"": 0.5})), "got ''"),
        (
            lambda: corruption_error.numbers(
                decided({"fog-1": 0.5, "fog-2": 0.5, "snow-1": 0.5})
            ),
            "got no snow-2",
        ),
    ],
)
def test_refuses_in_a_line(call, message):
    with pytest.raises(ValueError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


def test_errors_of_a_reference_come_from_a_suite():
    options = dict(names=("fog",), severities=(3,), errors={"fog": 0.5})
    entry = dict(probe="corruptions", sets=("edge",), **options)
    made = suites.build_probe(
        suites.read_measure("c", entry, {"edge": {}}), {"side": 32}
    )
    label = np.arange(4)
    found = made.numbers({"fog-3": Decisions(label // 2, {"label": label})})
    told = {number.metric: number.value for number in found}
    assert told["mean_corruption_error"] == (1 - told["accuracy"]) / 0.5
