"""Logistic regression and its folds: weights equal scikit-learn's."""

import json
import pathlib

import numpy as np
import pytest

from jbias.evals.activations import linear_decoding

ORACLE = pathlib.Path(__file__).parents[1] / "oracles" / "logistic.json"


def test_weights_are_scikit_learns():
    stored = json.loads(ORACLE.read_text())
    x, y = np.array(stored["x"]), np.array(stored["y"])
    for answer in stored["answers"]:
        options = dict(tolerance=1e-10, steps=2000)
        fit = linear_decoding.fit_logistic(x, y, strength=answer["strength"], **options)
        np.testing.assert_allclose(fit.coef_.T, answer["matrix"], atol=1e-6)
        # Biases are determined up to a constant.
        bias, intercept = np.array(answer["bias"]), fit.intercept_
        np.testing.assert_allclose(
            intercept - intercept.mean(), bias - bias.mean(), atol=1e-6
        )


@pytest.mark.parametrize("classes", [2, 3])
def test_weights_nearby_have_a_larger_loss(classes):
    """The loss has a penalty on the weights of all classes, also if there are two."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((50, 4)), np.arange(50) % classes
    fit = linear_decoding.fit_logistic(x, y, strength=0.1, tolerance=1e-10)
    w, b = fit.coef_.T, fit.intercept_
    if classes == 2:
        w, b = np.hstack([-w / 2, w / 2]), np.concatenate([-b / 2, b / 2])

    def loss(w, b):
        logits = x @ w + b
        logits_of_labels = logits[np.arange(50), y]
        return (np.log(np.exp(logits).sum(1)) - logits_of_labels).mean() + 0.05 * (
            w**2
        ).sum()

    for _ in range(50):
        dw, db = (1e-3 * rng.standard_normal(array.shape) for array in (w, b))
        assert loss(w + dw, b + db) > loss(w, b)


def test_the_start_does_not_matter():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((50, 4)), rng.integers(0, 3, 50)
    options = dict(strength=0.01, tolerance=1e-10)
    start = linear_decoding.fit_logistic(x, rng.permutation(y), strength=1e-4)
    start_weights = start.coef_.copy()
    fit = linear_decoding.fit_logistic(x, y, **options)
    fit_from_start = linear_decoding.fit_logistic(x, y, **options, start=start)
    np.testing.assert_allclose(fit.coef_, fit_from_start.coef_, atol=1e-7)
    np.testing.assert_array_equal(start.coef_, start_weights)


def test_decisions_do_not_depend_on_the_labels_of_their_fold():
    """Other labels of one fold do not change the decisions about that fold."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    x = np.eye(3)[y] + 0.7 * rng.standard_normal((60, 3))
    fold = np.arange(60) // 3 % 4
    decided = linear_decoding.cross_validate(x, y, fold).decided
    assert (decided == y).mean() > 0.6
    changed_labels = np.where(fold == 2, (y + 1) % 3, y)
    decided_again = linear_decoding.cross_validate(x, changed_labels, fold).decided
    # Fold 2 chooses the strength for fold 1, so only fold 2 is compared.
    np.testing.assert_array_equal(decided_again[fold == 2], decided[fold == 2])


def test_fits_that_have_not_converged_are_counted():
    """With the default steps all converge, and far more steps give the same decisions."""
    rng = np.random.default_rng(0)
    y = np.arange(300) % 5
    x = (np.eye(5)[y] + rng.standard_normal((300, 5))) @ rng.standard_normal((5, 40))
    x += 0.01 * rng.standard_normal(x.shape)
    fold = np.arange(300) // 5 % 3
    held_out = linear_decoding.cross_validate(x, y, fold)
    assert (held_out.fits, held_out.unfinished) == (
        3 * (len(linear_decoding.STRENGTHS) + 1),
        0,
    )
    longer = linear_decoding.cross_validate(x, y, fold, steps=20_000)
    np.testing.assert_array_equal(held_out.decided, longer.decided)
    stopped_early = linear_decoding.cross_validate(x, y, fold, steps=2)
    assert 0 < stopped_early.unfinished <= stopped_early.fits
    assert (stopped_early.decided != held_out.decided).any()


def test_noise_is_decided_at_chance():
    rng = np.random.default_rng(0)
    y = np.arange(400) % 4
    fold = np.arange(400) // 4 % 5
    held_out = linear_decoding.cross_validate(rng.standard_normal((400, 10)), y, fold)
    accuracy = (held_out.decided == y).mean()
    assert abs(accuracy - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 400)


def test_folds_keep_exemplars_together_and_have_all_classes():
    rng = np.random.default_rng(0)
    group = rng.permutation(np.repeat(np.arange(24), 5))
    y = group % 4
    fold = linear_decoding.deal_folds(y, group, max_folds=5, seed=0, factor="shape")
    for exemplar in range(24):
        assert len(set(fold[group == exemplar])) == 1
    assert set(fold) == set(range(5))
    for class_id in range(4):
        assert set(fold[y == class_id]) == set(range(5))
    # Classes of three exemplars give three folds.
    fold = linear_decoding.deal_folds(
        y[group < 12], group[group < 12], max_folds=5, seed=0, factor="shape"
    )
    assert set(fold) == {0, 1, 2}


def test_too_few_exemplars_are_refused():
    y = np.array([0, 0, 0, 1, 1, 1])
    with pytest.raises(
        ValueError, match=r"^a shape needs three pictures .*class 1 \(from 0\) has 2$"
    ):
        linear_decoding.deal_folds(
            y, np.array([0, 1, 2, 3, 4, 4]), max_folds=5, seed=0, factor="shape"
        )
    with pytest.raises(ValueError, match="each shape exemplar must be of one shape"):
        linear_decoding.deal_folds(
            y, np.array([0, 1, 2, 2, 3, 4]), max_folds=5, seed=0, factor="shape"
        )
