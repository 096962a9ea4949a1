"""Spectral filters: equal to Fourier masks; biases equal the published ones."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from jbias import evals
from jbias.evals import registry
from jbias.measures import spectral_bias
from jbias.stimuli import frequency_filters, shown
from tests import cases

# specs: the radii at 224 pixels of the published protocol.
LOW = [1, 11, 22, 33, 44, 56, 67, 78, 89, 100, 110]
HIGH = [110, 100, 89, 78, 67, 56, 44, 33, 22, 11, 1]


def images(side: int, count: int = 2) -> np.ndarray:
    return np.random.default_rng(side).random((count, side, side, 3), np.float32)


def show(image, params):
    n = len(image)
    rows = shown.Rows(jnp.asarray(image), jnp.arange(n), jnp.zeros(n, int), None)
    return np.asarray(jax.jit(frequency_filters.show)(rows, params))


def box_mask(cutoff: float, side: int, *, high: bool, symmetric: bool = False):
    """Return the mask as the paper's text defines it, with frequency zero in the middle."""
    c = side // 2
    r = int((1 - cutoff) * c) if high else int(cutoff * c)
    mask = np.zeros((side, side))
    mask[c - r : c + r + symmetric, c - r : c + r + symmetric] = 1
    return 1 - mask if high else mask


def filter_by_fft(image: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return the images after a masked Fourier transform in float64."""
    spectrum = np.fft.fftshift(
        np.fft.fft2(image.astype(float), axes=(1, 2)), axes=(1, 2)
    )
    spectrum = np.fft.ifftshift(spectrum * mask[None, :, :, None], axes=(1, 2))
    return np.clip(np.fft.ifft2(spectrum, axes=(1, 2)).real, 0, 1)


def test_radii_are_the_published_ones():
    for cutoff, low, high in zip(spectral_bias.CUTOFFS, LOW, HIGH, strict=True):
        assert spectral_bias.radius(cutoff, 224, high=False) == low
        assert spectral_bias.radius(cutoff, 224, high=True) == high
    # (1 - 0.9) 10 is just below 1, and int() truncates.
    assert spectral_bias.radius(0.9, 20, high=True) == 0


@cases.each("symmetric", [False, True])
@cases.each("side", [28, 33, 64])
def test_filters_equal_a_masked_fourier_transform(side, symmetric):
    filter_probe = frequency_filters.make(
        side=side, symmetric=symmetric, cutoffs=(0, 0.3, 0.9, 1)
    )
    image = images(side)
    np.testing.assert_array_equal(
        show(image, filter_probe.conditions["unfiltered"]), image
    )
    for high in (False, True):
        for cutoff in (0, 0.3, 0.9, 1):
            mask = box_mask(cutoff, side, high=high, symmetric=symmetric)
            stimuli = show(
                image,
                filter_probe.conditions[
                    spectral_bias.condition_name(cutoff, high=high)
                ],
            )
            np.testing.assert_allclose(stimuli, filter_by_fft(image, mask), atol=1e-5)


def test_filters_are_exact_at_the_published_side():
    filter_probe = frequency_filters.make()
    assert len(filter_probe.conditions) == 23
    image = images(224, 1)
    for name, high, cutoff in (("low 0.3", False, 0.3), ("high 0.9", True, 0.9)):
        expected = filter_by_fft(image, box_mask(cutoff, 224, high=high))
        np.testing.assert_allclose(
            show(image, filter_probe.conditions[name]), expected, atol=1e-5
        )


def test_low_and_high_of_one_radius_add_to_the_image():
    # Before the clip: 0.25 of 32 is radius 4 from below, 0.75 from above.
    filter_probe = frequency_filters.make(side=32, cutoffs=(0.25, 0.75))
    image = jnp.asarray(images(32))
    # Compiled, as `show` is: some CPUs round single operations differently.
    low_pass = jax.jit(frequency_filters.low_pass)
    low = low_pass(image, filter_probe.conditions["low 0.25"])
    low_of_high = low_pass(image, filter_probe.conditions["high 0.75"])
    np.testing.assert_array_equal(low, low_of_high)
    stimuli = show(image, filter_probe.conditions["high 0.75"])
    np.testing.assert_array_equal(stimuli, np.clip(image - low, 0, 1))


def test_constant_images_have_only_low_frequencies():
    filter_probe = frequency_filters.make(side=32, cutoffs=(0.01, 0.5))
    image = np.full((1, 32, 32, 3), 0.4, np.float32)
    np.testing.assert_allclose(
        show(image, filter_probe.conditions["low 0.5"]), 0.4, atol=1e-6
    )
    np.testing.assert_allclose(
        show(image, filter_probe.conditions["high 0.5"]), 0, atol=1e-6
    )
    # The radius is 0 pixels, so nothing passes.
    np.testing.assert_array_equal(show(image, filter_probe.conditions["low 0.01"]), 0)


def test_one_compiled_program_serves_all_conditions():
    filter_probe = frequency_filters.make(side=28)
    shapes = {
        str(jax.tree.map(lambda x: (x.shape, x.dtype), parameters))
        for parameters in filter_probe.conditions.values()
    }
    assert len(shapes) == 1


def make_decisions(
    num_correct: dict[str, int], num_images: int
) -> dict[str, evals.Decisions]:
    """Return decisions by condition with the given numbers of correct answers."""
    label, index = np.zeros(num_images, int), np.arange(num_images)
    return {
        name: evals.Decisions((index >= correct).astype(int), {"label": label})
        for name, correct in num_correct.items()
    }


def test_biases_are_mean_ratios_in_both_conventions():
    filter_probe = frequency_filters.make(side=32, draws=200)
    num_correct = dict.fromkeys(filter_probe.conditions, 0) | {"unfiltered": 80}
    low, high = (10, 40, 60, 70, 80), (0, 0, 4, 8, 28)
    for cutoff, low_correct, high_correct in zip((0.1, 0.2, 0.3, 0.4, 0.5), low, high):
        num_correct[f"low {cutoff}"] = low_correct
        num_correct[f"high {cutoff}"] = high_correct
    numbers = filter_probe.numbers(make_decisions(num_correct, 100))
    numbers_by_name = {(number.metric, number.condition): number for number in numbers}
    assert len(numbers_by_name) == len(numbers)
    value = {number.metric: number.value for number in numbers if not number.condition}
    assert value["low_freq_bias"] == pytest.approx(np.mean(low) / 80)
    assert value["low_freq_bias_text"] == pytest.approx(np.mean(low[:4]) / 80)
    assert value["high_freq_bias"] == pytest.approx(np.mean(high) / 80)
    assert value["high_freq_bias_text"] == pytest.approx(np.mean(high[:4]) / 80)
    assert value["spectral_ratio"] == pytest.approx(40 / (260 + 40))
    assert numbers_by_name["accuracy", "low 0.2"][1:4] == (0.4, 40, 100)
    assert numbers_by_name["accuracy_ratio", "low 0.2"].value == 0.5
    for metric in ("low_freq_bias", "high_freq_bias", "spectral_ratio"):
        lower, upper = value[f"{metric}_lower"], value[f"{metric}_upper"]
        assert lower < value[metric] < upper


def test_published_biases_are_reproduced():
    """The accuracy ratios of 48 networks give their biases, to six decimals."""
    path = pathlib.Path(__file__).parents[2] / "examples" / "published" / "biases.csv"
    table = pd.read_csv(path)
    assert len(table) == 48
    for direction in ("low", "high"):
        names = [f"{direction}_{c}" for c in spectral_bias.CONVENTIONS[""]]
        biases = spectral_bias.bias(table[names].to_numpy(), np.ones(48))
        np.testing.assert_allclose(biases, table[f"{direction}_freq"], atol=1.1e-6)


def test_the_bias_is_undefined_without_a_correct_answer():
    filter_probe = frequency_filters.make(side=32, draws=10)
    numbers = filter_probe.numbers(
        make_decisions(dict.fromkeys(filter_probe.conditions, 0), 5)
    )
    value = {number.metric: number.value for number in numbers if not number.condition}
    assert value["low_freq_bias"] is None
    assert value["spectral_ratio"] is None
    assert value["low_freq_bias_undefined"] == 1


def test_a_bias_needs_all_its_cutoffs():
    filter_probe = frequency_filters.make(
        side=32, cutoffs=(0.1, 0.2, 0.3, 0.4), high=False
    )
    numbers = filter_probe.numbers(
        make_decisions(dict.fromkeys(filter_probe.conditions, 1), 2)
    )
    metrics = {number.metric for number in numbers}
    assert "low_freq_bias_text" in metrics
    assert not {"low_freq_bias", "high_freq_bias", "spectral_ratio"} & metrics


def test_intervals_have_the_width_of_the_delta_method():
    """All ratios are equal here, so the bias is one ratio."""
    n, rng = 2000, np.random.default_rng(0)
    clean = rng.random(n) < 0.8
    filtered = clean & (rng.random(n) < 0.5)
    names = [f"low {c}" for c in (0.1, 0.2, 0.3, 0.4, 0.5)]
    by_condition = {
        name: evals.Decisions(1 - is_right.astype(int), {"label": np.zeros(n, int)})
        for name, is_right in [
            ("unfiltered", clean),
            *((low_name, filtered) for low_name in names),
        ]
    }
    value = {
        number.metric: number.value
        for number in spectral_bias.numbers(by_condition, draws=4000)
    }
    ratio = filtered.sum() / clean.sum()
    # Given the correct answers on clean images, the filtered ones are binomial.
    expected = 1.96 * np.sqrt(ratio * (1 - ratio) / clean.sum())
    assert value["low_freq_bias"] == pytest.approx(ratio)
    half_width = (value["low_freq_bias_upper"] - value["low_freq_bias_lower"]) / 2
    assert half_width == pytest.approx(expected, rel=0.08)


@cases.each(
    ("options", "message"),
    [
        (dict(cutoffs=()), "at least one"),
        (dict(cutoffs=(0.1, 30)), r"in \[0, 1\]"),
        (dict(cutoffs=(0.1, 0.1)), "different"),
        (dict(low=False, high=False), "neither"),
        (dict(side=0), "at least 2, got 0"),
        (dict(draws=0), "draws must be"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=f"spectral: .*{message}"):
        frequency_filters.make(**options)


def test_the_probe_is_registered():
    assert registry.PROBES["spectral"].load() is frequency_filters.make


def test_conditions_of_different_images_are_refused():
    by_condition = make_decisions({"unfiltered": 1}, 3) | make_decisions(
        {"low 0.1": 1}, 4
    )
    with pytest.raises(ValueError, match=r"of the same images.*\[3, 4\]"):
        spectral_bias.numbers(by_condition)


@cases.each(
    ("name", "options"),
    [
        ("spectral", {}),
        ("critical_band", {}),
        ("critical_band", {"variant": "original"}),
    ],
)
def test_each_rule_is_measured_by_its_own_decisions(name, options):
    """A second rule's numbers are those that it would have alone."""
    filter_probe = registry.PROBES[name].load()(side=28, draws=20, **options)
    rng, label = np.random.default_rng(0), np.arange(40) % 2
    by_mean_prob, by_mean_logit = (
        {
            condition: evals.Decisions(rng.integers(0, 2, 40), {"label": label})
            for condition in filter_probe.conditions
        }
        for _ in range(2)
    )
    by_both = by_mean_prob | {
        f"{c} mean_logit": make_decisions for c, make_decisions in by_mean_logit.items()
    }
    numbers_of_mean_logit = [
        number._replace(condition=f"{number.condition} mean_logit".strip())
        for number in filter_probe.numbers(by_mean_logit)
    ]
    assert (
        filter_probe.numbers(by_both)
        == filter_probe.numbers(by_mean_prob) + numbers_of_mean_logit
    )
