import json
import pathlib

import numpy as np
import pytest

from jbias.evals import linear_decoding

ORACLE = pathlib.Path(__file__).parents[1] / "oracles" / "logistic.json"


def test_weights_are_scikit_learns():
    stored = json.loads(ORACLE.read_text())
    x, y = np.array(stored["x"]), np.array(stored["y"])
    for answer in stored["answers"]:
        exact = dict(tolerance=1e-10, steps=2000)
        found = linear_decoding.fit_logistic(x, y, strength=answer["strength"], **exact)
        np.testing.assert_allclose(found.coef_.T, answer["matrix"], atol=1e-6)
        # A constant added to all logits changes nothing.
        bias, own = np.array(answer["bias"]), found.intercept_
        np.testing.assert_allclose(own - own.mean(), bias - bias.mean(), atol=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
def test_no_weights_nearby_have_a_smaller_loss(classes):
    """The loss as the text has it: with a penalty on all columns, also of two."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((50, 4)), np.arange(50) % classes
    fit = linear_decoding.fit_logistic(x, y, strength=0.1, tolerance=1e-10)
    w, b = fit.coef_.T, fit.intercept_
    if classes == 2:
        w, b = np.hstack([-w / 2, w / 2]), np.concatenate([-b / 2, b / 2])

    def loss(w, b):
        logits = x @ w + b
        right = logits[np.arange(50), y]
        return (np.log(np.exp(logits).sum(1)) - right).mean() + 0.05 * (w**2).sum()

    for _ in range(50):
        dw, db = (1e-3 * rng.standard_normal(one.shape) for one in (w, b))
        assert loss(w + dw, b + db) > loss(w, b)


def test_the_start_does_not_matter():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((50, 4)), rng.integers(0, 3, 50)
    exact = dict(strength=0.01, tolerance=1e-10)
    start = linear_decoding.fit_logistic(x, rng.permutation(y), strength=1e-4)
    before = start.coef_.copy()
    one = linear_decoding.fit_logistic(x, y, **exact)
    other = linear_decoding.fit_logistic(x, y, **exact, start=start)
    np.testing.assert_allclose(one.coef_, other.coef_, atol=1e-7)
    np.testing.assert_array_equal(start.coef_, before)


def test_held_out_decisions_know_nothing_of_their_fold():
    """Labels of one fold may be anything: decisions about it stay as they are."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    x = np.eye(3)[y] + 0.7 * rng.standard_normal((60, 3))
    fold = np.arange(60) // 3 % 4
    decided = linear_decoding.cross_validate(x, y, fold).decided
    assert (decided == y).mean() > 0.6
    wrong = np.where(fold == 2, (y + 1) % 3, y)
    again = linear_decoding.cross_validate(x, wrong, fold).decided
    # Fold 2 is what chooses the strength for fold 1, so only itself is compared.
    np.testing.assert_array_equal(again[fold == 2], decided[fold == 2])


def test_fits_that_are_stopped_on_the_way_are_counted():
    """None of usual ones; decisions are those of fits that go on for far longer."""
    rng = np.random.default_rng(0)
    y = np.arange(300) % 5
    x = (np.eye(5)[y] + rng.standard_normal((300, 5))) @ rng.standard_normal((5, 40))
    x += 0.01 * rng.standard_normal(x.shape)
    fold = np.arange(300) // 5 % 3
    held = linear_decoding.cross_validate(x, y, fold)
    assert (held.fits, held.unfinished) == (3 * (len(linear_decoding.STRENGTHS) + 1), 0)
    longer = linear_decoding.cross_validate(x, y, fold, steps=20_000)
    np.testing.assert_array_equal(held.decided, longer.decided)
    few = linear_decoding.cross_validate(x, y, fold, steps=2)
    assert 0 < few.unfinished <= few.fits
    assert (few.decided != held.decided).any()


def test_noise_is_decided_at_chance():
    rng = np.random.default_rng(0)
    y = np.arange(400) % 4
    fold = np.arange(400) // 4 % 5
    held = linear_decoding.cross_validate(rng.standard_normal((400, 10)), y, fold)
    right = (held.decided == y).mean()
    assert abs(right - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 400)


def test_exemplars_are_never_torn_and_every_class_is_in_every_fold():
    rng = np.random.default_rng(0)
    group = rng.permutation(np.repeat(np.arange(24), 5))
    y = group % 4
    fold = linear_decoding.deal_folds(y, group, max_folds=5, seed=0, factor="shape")
    for one in range(24):
        assert len(set(fold[group == one])) == 1
    assert set(fold) == set(range(5))
    for one in range(4):
        assert set(fold[y == one]) == set(range(5))
    # Three exemplars a class are three folds.
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
