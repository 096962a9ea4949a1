import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from jbias import evals
from jbias.evals import probe, probe_registry, spectral, spectral_filter
from tests import cases

# specs: the radii at 224 pixels of the published protocol.
LOW = [1, 11, 22, 33, 44, 56, 67, 78, 89, 100, 110]
HIGH = [110, 100, 89, 78, 67, 56, 44, 33, 22, 11, 1]


def images(side: int, count: int = 2) -> np.ndarray:
    return np.random.default_rng(side).random((count, side, side, 3), np.float32)


def show(image, params):
    n = len(image)
    rows = probe.Rows(jnp.asarray(image), jnp.arange(n), jnp.zeros(n, int), None)
    return np.asarray(jax.jit(spectral_filter.show)(rows, params))


def box(cutoff: float, side: int, *, high: bool, symmetric: bool = False):
    """The mask as the text has it, zero frequency in the middle."""
    c = side // 2
    r = int((1 - cutoff) * c) if high else int(cutoff * c)
    mask = np.zeros((side, side))
    mask[c - r : c + r + symmetric, c - r : c + r + symmetric] = 1
    return 1 - mask if high else mask


def oracle(image: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Transforms, shifts, masks, and comes back, in float64."""
    seen = np.fft.fftshift(np.fft.fft2(image.astype(float), axes=(1, 2)), axes=(1, 2))
    seen = np.fft.ifftshift(seen * mask[None, :, :, None], axes=(1, 2))
    return np.clip(np.fft.ifft2(seen, axes=(1, 2)).real, 0, 1)


def test_radii_are_the_published_ones():
    for cutoff, low, high in zip(spectral.CUTOFFS, LOW, HIGH, strict=True):
        assert spectral.radius(cutoff, 224, high=False) == low
        assert spectral.radius(cutoff, 224, high=True) == high
    # (1 - 0.9) 10 is just below 1, and int() truncates.
    assert spectral.radius(0.9, 20, high=True) == 0


@cases.each("symmetric", [False, True])
@cases.each("side", [28, 33, 64])
def test_filters_are_those_of_a_transform(side, symmetric):
    made = spectral_filter.make(
        side=side, symmetric=symmetric, cutoffs=(0, 0.3, 0.9, 1)
    )
    image = images(side)
    np.testing.assert_array_equal(show(image, made.conditions["unfiltered"]), image)
    for high in (False, True):
        for cutoff in (0, 0.3, 0.9, 1):
            mask = box(cutoff, side, high=high, symmetric=symmetric)
            shown = show(
                image, made.conditions[spectral.condition_name(cutoff, high=high)]
            )
            np.testing.assert_allclose(shown, oracle(image, mask), atol=1e-5)


def test_published_side_is_as_exact():
    made = spectral_filter.make()
    assert len(made.conditions) == 23
    image = images(224, 1)
    for name, high, cutoff in (("low 0.3", False, 0.3), ("high 0.9", True, 0.9)):
        expected = oracle(image, box(cutoff, 224, high=high))
        np.testing.assert_allclose(
            show(image, made.conditions[name]), expected, atol=1e-5
        )


def test_low_and_high_of_one_radius_add_to_the_image():
    # Before the clip: 0.25 of 32 is radius 4 from below, 0.75 from above.
    made = spectral_filter.make(side=32, cutoffs=(0.25, 0.75))
    image = jnp.asarray(images(32))
    # Compiled as `show` is: one by one, some CPUs round its operations otherwise.
    passed = jax.jit(spectral_filter.low_pass)
    low = passed(image, made.conditions["low 0.25"])
    rest = passed(image, made.conditions["high 0.75"])
    np.testing.assert_array_equal(low, rest)
    shown = show(image, made.conditions["high 0.75"])
    np.testing.assert_array_equal(shown, np.clip(image - low, 0, 1))


def test_constant_images_are_low():
    made = spectral_filter.make(side=32, cutoffs=(0.01, 0.5))
    image = np.full((1, 32, 32, 3), 0.4, np.float32)
    np.testing.assert_allclose(show(image, made.conditions["low 0.5"]), 0.4, atol=1e-6)
    np.testing.assert_allclose(show(image, made.conditions["high 0.5"]), 0, atol=1e-6)
    # No pixel of radius: nothing passes.
    np.testing.assert_array_equal(show(image, made.conditions["low 0.01"]), 0)


def test_one_program_shows_all_conditions():
    made = spectral_filter.make(side=28)
    shapes = {
        str(jax.tree.map(lambda x: (x.shape, x.dtype), one))
        for one in made.conditions.values()
    }
    assert len(shapes) == 1


def decided(rights: dict[str, int], n: int) -> dict[str, evals.Decisions]:
    label = np.zeros(n, int)
    return {
        name: evals.Decisions((np.arange(n) >= right).astype(int), {"label": label})
        for name, right in rights.items()
    }


def test_biases_are_mean_ratios_in_both_conventions():
    made = spectral_filter.make(side=32, draws=200)
    rights = dict.fromkeys(made.conditions, 0) | {"unfiltered": 80}
    low, high = (10, 40, 60, 70, 80), (0, 0, 4, 8, 28)
    for cutoff, *both in zip((0.1, 0.2, 0.3, 0.4, 0.5), low, high):
        rights |= {f"low {cutoff}": both[0], f"high {cutoff}": both[1]}
    told = made.numbers(decided(rights, 100))
    by = {(one.metric, one.condition): one for one in told}
    assert len(by) == len(told)
    value = {name: one.value for (name, condition), one in by.items() if not condition}
    assert value["low_freq_bias"] == pytest.approx(np.mean(low) / 80)
    assert value["low_freq_bias_text"] == pytest.approx(np.mean(low[:4]) / 80)
    assert value["high_freq_bias"] == pytest.approx(np.mean(high) / 80)
    assert value["high_freq_bias_text"] == pytest.approx(np.mean(high[:4]) / 80)
    assert value["spectral_ratio"] == pytest.approx(40 / (260 + 40))
    assert by["accuracy", "low 0.2"][1:4] == (0.4, 40, 100)
    assert by["accuracy_ratio", "low 0.2"].value == 0.5
    for metric in ("low_freq_bias", "high_freq_bias", "spectral_ratio"):
        lower, upper = value[f"{metric}_lower"], value[f"{metric}_upper"]
        assert lower < value[metric] < upper


def test_published_biases_come_back():
    """From the accuracy ratios of 48 networks, to their six decimals."""
    path = pathlib.Path(__file__).parents[2] / "examples" / "published" / "biases.csv"
    table = pd.read_csv(path)
    assert len(table) == 48
    for direction in ("low", "high"):
        names = [f"{direction}_{c}" for c in spectral.CONVENTIONS[""]]
        ours = spectral.bias(table[names].to_numpy(), np.ones(48))
        np.testing.assert_allclose(ours, table[f"{direction}_freq"], atol=1.1e-6)


def test_no_right_answer_at_all_has_no_bias():
    made = spectral_filter.make(side=32, draws=10)
    told = made.numbers(decided(dict.fromkeys(made.conditions, 0), 5))
    value = {one.metric: one.value for one in told if not one.condition}
    assert value["low_freq_bias"] is None
    assert value["spectral_ratio"] is None
    assert value["low_freq_bias_undefined"] == 1


def test_cutoffs_left_out_leave_out_their_bias():
    made = spectral_filter.make(side=32, cutoffs=(0.1, 0.2, 0.3, 0.4), high=False)
    told = made.numbers(decided(dict.fromkeys(made.conditions, 1), 2))
    metrics = {one.metric for one in told}
    assert "low_freq_bias_text" in metrics
    assert not {"low_freq_bias", "high_freq_bias", "spectral_ratio"} & metrics


def test_intervals_cover_what_they_say():
    """The interval of one ratio is near the one of the delta method."""
    n, rng = 2000, np.random.default_rng(0)
    clean = rng.random(n) < 0.8
    filtered = clean & (rng.random(n) < 0.5)
    names = [f"low {c}" for c in (0.1, 0.2, 0.3, 0.4, 0.5)]
    by_condition = {
        name: evals.Decisions(1 - right.astype(int), {"label": np.zeros(n, int)})
        for name, right in [("unfiltered", clean), *((one, filtered) for one in names)]
    }
    value = {o.metric: o.value for o in spectral.numbers(by_condition, draws=4000)}
    ratio = filtered.sum() / clean.sum()
    # Given the number right, the filtered ones are binomial among them.
    expected = 1.96 * np.sqrt(ratio * (1 - ratio) / clean.sum())
    assert value["low_freq_bias"] == pytest.approx(ratio)
    half = (value["low_freq_bias_upper"] - value["low_freq_bias_lower"]) / 2
    assert half == pytest.approx(expected, rel=0.08)


@cases.each(
    ("wrong", "complaint"),
    [
        (dict(cutoffs=()), "at least one"),
        (dict(cutoffs=(0.1, 30)), r"in \[0, 1\]"),
        (dict(cutoffs=(0.1, 0.1)), "different"),
        (dict(low=False, high=False), "neither"),
        (dict(side=0), "at least 2, got 0"),
        (dict(draws=0), "draws must be"),
    ],
)
def test_wrong_options_are_refused(wrong, complaint):
    with pytest.raises(ValueError, match=f"spectral: .*{complaint}"):
        spectral_filter.make(**wrong)


def test_it_is_a_probe():
    assert probe_registry.PROBES["spectral"] is spectral_filter.make


def test_conditions_of_different_images_are_refused():
    by_condition = decided({"unfiltered": 1}, 3) | decided({"low 0.1": 1}, 4)
    with pytest.raises(ValueError, match=r"of the same images.*\[3, 4\]"):
        spectral.numbers(by_condition)


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
    made = probe_registry.PROBES[name](side=28, draws=20, **options)
    rng, label = np.random.default_rng(0), np.arange(40) % 2
    one, other = (
        {
            condition: evals.Decisions(rng.integers(0, 2, 40), {"label": label})
            for condition in made.conditions
        }
        for _ in range(2)
    )
    both = one | {f"{c} mean_logit": decided for c, decided in other.items()}
    alone = [
        number._replace(condition=f"{number.condition} mean_logit".strip())
        for number in made.numbers(other)
    ]
    assert made.numbers(both) == made.numbers(one) + alone
