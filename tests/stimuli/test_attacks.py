"""Attacks as probes: closed forms, the ball of allowed changes, and restarts."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias.measures import decisions
from jbias.stimuli import attacks, shown
from tests import cases

EPS = 0.5 / 255
RANDOM = np.random.default_rng(0)


def attack_images(attack, logits, image, label, index=None, *, loop=False):
    """Return decisions and stimuli by condition, computed from the parts of the probe."""
    index = jnp.arange(len(image)) if index is None else jnp.asarray(index)
    rows = shown.Rows(jnp.asarray(image), index, jnp.asarray(label), logits)
    show = jax.jit(lambda params: attack.show(rows, params))
    move = jax.jit(lambda params, x: attack.network_steps.move(rows, params, x))

    @jax.jit
    def move_repeatedly(params, x, steps):
        return jax.lax.fori_loop(
            0, steps, lambda _, x: attack.network_steps.move(rows, params, x), x
        )

    decisions_by_condition, stimuli = {}, {}
    for name, params in attack.conditions.items():
        params = jax.tree.map(jnp.asarray, params)
        x, steps = show(params), attack.network_steps.counts.get(name, 0)
        if loop:
            x = move_repeatedly(params, x, steps)
        else:
            for _ in range(steps):
                x = move(params, x)
        stimuli[name] = np.asarray(x)
        answer = np.asarray(jax.jit(logits)(x)).argmax(-1)
        decisions_by_condition[name] = decisions.Decisions(
            answer, {"label": np.asarray(label)}
        )
    return decisions_by_condition, stimuli


def measure_attack(attack, *arguments, **options):
    numbers = attack.numbers(attack_images(attack, *arguments, **options)[0])
    return {(number.metric, number.condition): number for number in numbers}


@functools.cache
def linear(n=200, side=4):
    """Return a linear network of two classes: logits, image, label, margin, and weights w.

    Pixels are farther from 0 and 1 than any eps of the tests.
    """
    w = RANDOM.normal(size=(side, side, 3)).astype(np.float32)
    image = RANDOM.uniform(0.3, 0.7, (n, side, side, 3)).astype(np.float32)
    score = np.tensordot(image, w, 3)
    shift = float(np.median(score))
    label = (RANDOM.random(n) < 0.9) == (score > shift)
    score = (score - shift) * np.where(label, 1, -1)

    def logits(x):
        s = jnp.einsum("bhwc,hwc->b", x, w) - shift
        return jnp.stack([jnp.zeros_like(s), s], 1)

    return logits, image, label.astype(np.int32), score, w


@functools.cache
def make_net():
    """Return logits, image and label of a small network that is right except on 6 images."""
    random = np.random.default_rng(3)
    kernel = random.normal(size=(3, 3, 3, 4)).astype(np.float32)
    head = random.normal(size=(4, 5)).astype(np.float32)
    image = random.random((64, 6, 6, 3), np.float32)

    def logits(x):
        x = jax.lax.conv_general_dilated(
            x - 0.5, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return jax.nn.relu(x).mean((1, 2)) @ head

    label = np.asarray(jax.jit(logits)(image)).argmax(-1).astype(np.int32)
    label[:6] = (label[:6] + 1) % 5
    return logits, image, label


@pytest.mark.slow
@cases.each("make", [attacks.make, attacks.make_fgsm])
@cases.each("norm", ["linf", "l2"])
def test_linear_network_has_a_closed_form(make, norm):
    """An image is robust iff its margin exceeds eps times the dual norm of w.

    40 steps turn a random direction of 48 numbers to w up to 0.4 % of its length.
    """
    logits, image, label, margin, w = linear()
    budgets = (0.004, 0.01) if norm == "linf" else (0.02, 0.06)
    attack = make(norm=norm, eps=budgets)
    decisions_by_condition, stimuli = attack_images(attack, logits, image, label)
    dual = np.abs(w).sum() if norm == "linf" else np.sqrt(np.square(w).sum())
    for eps, name in zip(budgets, attack.conditions, strict=True):
        is_clear = np.abs(margin - eps * dual) > 1e-4 + 0.01 * eps * dual * (
            norm == "l2"
        )
        assert is_clear.mean() > 0.95
        is_robust = decisions_by_condition[name].prediction == label
        np.testing.assert_array_equal(
            is_robust[is_clear], (margin > eps * dual)[is_clear]
        )
        assert 0.1 < is_robust.mean() < 0.9
        change = (stimuli[name] - image).astype(np.float64).reshape(len(image), -1)
        size = (
            np.abs(change).max(1) if norm == "linf" else np.linalg.norm(change, axis=1)
        )
        assert (size <= eps + (1e-7 if norm == "linf" else 1e-6)).all()


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_stimuli_stay_within_the_ball_and_the_range_of_pixels(norm):
    logits, image, label = make_net()
    image = np.clip(image * 1.4 - 0.2, 0, 1)  # Many values lie at the ends.
    attack = attacks.make(norm=norm, eps=(0.0, 0.1, 0.5), steps=4)
    stimuli = attack_images(attack, logits, image, label)[1]
    for eps, x in zip((0.0, 0.1, 0.5), stimuli.values(), strict=True):
        change = (x.astype(np.float64) - image).reshape(len(image), -1)
        size = (
            np.abs(change).max(1) if norm == "linf" else np.linalg.norm(change, axis=1)
        )
        assert (size <= eps + (1e-7 if norm == "linf" else 1e-6)).all()
        assert x.min() >= 0 and x.max() <= 1
        if eps == 0:
            np.testing.assert_array_equal(x, image)
        else:
            assert (size > eps / 2).mean() > 0.9


def test_defaults_are_the_published_protocol():
    attack = attacks.make()
    assert list(attack.conditions) == ["linf 0.5/255"]
    assert attack.network_steps.counts == {"linf 0.5/255": 40}
    params = attack.conditions["linf 0.5/255"]
    np.testing.assert_allclose(params["eps"], 0.5 / 255, rtol=1e-6)
    np.testing.assert_allclose(params["step_size"], 2 / 255, rtol=1e-6)
    fast = attacks.make_fgsm()
    assert fast.network_steps.counts == {"linf 0.5/255": 1}


def test_curve_falls_from_the_clean_accuracy():
    logits, image, label = make_net()
    curve = (0.0, 1e-4, 0.03, 0.3)
    attack = attacks.make(eps=curve, steps=10, strict=True)
    numbers = measure_attack(attack, logits, image, label)
    clean = (np.asarray(logits(image)).argmax(-1) == label).mean()
    robust = [n.value for (metric, _), n in numbers.items() if metric == "pgd_accuracy"]
    assert robust[0] == clean == 58 / 64
    assert (np.diff(robust) <= 0).all() and robust[-1] < 0.3
    for (metric, condition), number in numbers.items():
        assert number.n == 64
        if metric == "pgd_accuracy_strict":
            assert number.count <= numbers["pgd_accuracy", condition].count


def test_strict_counts_images_that_are_right_with_and_without_the_attack():
    label = np.array([0, 0, 1, 1])
    decisions_by_condition = {
        "": decisions.Decisions(np.array([0, 1, 1, 0]), {"label": label}),
        "linf 1/255": decisions.Decisions(np.array([0, 0, 0, 1]), {"label": label}),
    }
    attack = attacks.make(eps=1 / 255, strict=True)
    counts = {n.metric: n.count for n in attack.numbers(decisions_by_condition)}
    assert counts == {"pgd_accuracy": 3, "pgd_accuracy_strict": 1}


def test_an_image_is_robust_only_under_all_restarts():
    label = np.array([0, 0, 1, 1])
    attack = attacks.make(eps=1 / 255, restarts=2)
    names = list(attack.conditions)
    assert names == [f"linf 1/255 2 restarts restart {i}" for i in (1, 2)]
    answers = [0, 1, 1, 0], [0, 0, 1, 0]
    by_mean_prob = {
        name: decisions.Decisions(np.array(answer), {"label": label})
        for name, answer in zip(names, answers, strict=True)
    }
    by_both_rules = by_mean_prob | {
        f"{name} mean_logit": by_mean_prob[names[0]] for name in names
    }
    counts = [(n.condition, n.count, n.n) for n in attack.numbers(by_both_rules)]
    assert counts == [
        ("linf 1/255 2 restarts", 2, 4),
        ("linf 1/255 2 restarts mean_logit", 2, 4),
    ]


def test_restarts_have_different_starts_and_budgets_have_the_same():
    logits, image, label = make_net()
    attack = attacks.make(eps=(0.1, 0.2), restarts=2)
    no_steps = attack.network_steps._replace(counts={})
    attack = attack._replace(network_steps=no_steps)
    starts = [
        x - image for x in attack_images(attack, logits, image, label)[1].values()
    ]
    is_inside = np.all([(image > 0.2) & (image < 0.8)], axis=0)
    assert np.abs(np.corrcoef(starts[0][is_inside], starts[1][is_inside])[0, 1]) < 0.1
    np.testing.assert_allclose(
        2 * starts[0][is_inside], starts[2][is_inside], atol=1e-6
    )


def test_random_starts_depend_only_on_the_index_of_the_image():
    logits, image, label = make_net()
    attack = attacks.make(eps=0.1, steps=2)
    (all_stimuli,) = attack_images(attack, logits, image, label)[1].values()
    rows = np.array([40, 3, 17])
    (some_stimuli,) = attack_images(attack, logits, image[rows], label[rows], rows)[
        1
    ].values()
    np.testing.assert_allclose(some_stimuli, all_stimuli[rows], atol=1e-6)


def test_a_compiled_loop_gives_the_stimuli_of_separate_calls():
    logits, image, label = make_net()
    attack = attacks.make(eps=(0.01, 0.1), steps=3, strict=True)
    called = attack_images(attack, logits, image, label)[1]
    looped = attack_images(attack, logits, image, label, loop=True)[1]
    for name in called:
        np.testing.assert_allclose(called[name], looped[name], atol=1e-6)


def test_an_image_without_a_right_class_does_not_change():
    logits, image, label = make_net()
    label = np.where(np.arange(64) < 3, -1, label)
    attack = attacks.make(eps=0.1, steps=3, random_start=False)
    decisions_by_condition, stimuli = attack_images(attack, logits, image, label)
    (x,) = stimuli.values()
    np.testing.assert_array_equal(x[:3], image[:3])
    assert not attack.numbers(decisions_by_condition)[0].count > 61


def test_names_of_conditions_have_all_deviations_from_the_published_protocol():
    attack = attacks.make(eps=(1 / 255, 8 / 255), steps=10, restarts=2)
    assert list(attack.conditions)[2] == "linf 8/255 10 steps 2 restarts restart 1"
    (name,) = attacks.make(norm="l2", eps=0.5).conditions
    assert name == "l2 0.5 40 steps"
    (name,) = attacks.make(step_size=1 / 255, random_start=False).conditions
    assert name == "linf 0.5/255 step linf 1/255 no start"


@cases.each(
    ("options", "message"),
    [
        ({"norm": "l1"}, "norm must be one of linf, l2, got 'l1'"),
        ({"eps": ()}, "eps must be one number or several"),
        ({"eps": -0.1}, "eps must be one number or several"),
        ({"eps": (0.1, 0.1)}, "each eps must be given once"),
        ({"eps": (0.1, 0.100001)}, "each eps must differ from the others in four"),
        ({"steps": 0}, "steps must be 1 or more, got 0"),
        ({"restarts": 1.5}, "restarts must be 1 or more, got 1.5"),
        ({"restarts": 2, "random_start": False}, "2 restarts must start at random"),
        ({"step_size": 0}, "step_size must be above 0, got 0"),
    ],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        attacks.make(**options)
