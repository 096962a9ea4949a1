"""Multinomial logistic regression, and how well it does on what it has not seen.

The loss is the mean of -log softmax(x W + b)[y] and strength / 2 times the squares of
W; b is free. It is convex, so whoever minimises it gets the same: scikit-learn's C is
1 / (n strength).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import optimize, special

STRENGTHS = (1e-1, 1e-2, 1e-3, 1e-4)


class Weights(NamedTuple):
    """Logits are x @ matrix + bias."""

    matrix: Float[np.ndarray, "d k"]
    bias: Float[np.ndarray, "k"]
    ended: bool = True  # Where the gradient is small, not on the way.


class Held(NamedTuple):
    """Decisions by weights that were fitted without the example."""

    decided: Int[np.ndarray, "n"]
    fits: int
    unfinished: int  # Fits that were stopped on the way.


def fit(
    x: Float[np.ndarray, "n d"],
    y: Int[np.ndarray, "n"],
    classes: int,
    *,
    strength: float,
    start: Weights | None = None,
    tolerance: float = 1e-4,
    steps: int = 500,
) -> Weights:
    """Minimises the loss by L-BFGS over all examples, from `start` or from 0.

    Sums are of the type of x. It ends where no entry of the gradient exceeds the
    tolerance, or after so many steps: for a small strength and classes that can be told
    apart, with an answer on the way.
    """
    n, d = x.shape
    right = np.zeros((n, classes), x.dtype)
    right[np.arange(n), y] = 1

    def loss(flat):
        w = flat.reshape(d + 1, classes).astype(x.dtype)
        logits = x @ w[:-1] + w[-1]
        peak = special.logsumexp(logits, axis=1, keepdims=True)
        off = np.exp(logits - peak) - right
        value = (peak[:, 0] - (logits * right).sum(1)).mean()
        value += strength / 2 * (w[:-1] ** 2).sum()
        slope = np.empty_like(w)
        slope[:-1] = x.T @ off / n + strength * w[:-1]
        slope[-1] = off.mean(0)
        return float(value), slope.reshape(-1).astype(float)

    first = np.zeros((d + 1, classes)) if start is None else np.vstack(start[:2])
    found = optimize.minimize(
        loss,
        first.reshape(-1),
        jac=True,
        method="L-BFGS-B",
        options=dict(gtol=tolerance, ftol=0, maxiter=steps, maxfun=2 * steps),
    )
    w = found.x.reshape(d + 1, classes).astype(x.dtype)
    return Weights(w[:-1], w[-1], bool(found.success))


def predict(weights: Weights, x: Float[np.ndarray, "n d"]) -> Int[np.ndarray, "n"]:
    """The classes with the largest logits."""
    return (x @ weights.matrix + weights.bias).argmax(1)


def held_out(
    x: Float[np.ndarray, "n d"],
    y: Int[np.ndarray, "n"],
    fold: Int[np.ndarray, "n"],
    *,
    strengths: Sequence[float] = STRENGTHS,
    steps: int = 500,
) -> Held:
    """Decides about each example by weights that were fitted without its fold.

    For every fold, weights of each strength are fitted without it and the next one; the
    strength that is right most often on the next (the largest of equals) is then fitted
    to all but the fold itself. A single strength needs no choice. fold: of at least
    three, counted from 0. steps: at most, of each fit.
    """
    classes, count = int(y.max()) + 1, int(fold.max()) + 1
    decided, ended = np.full(len(y), -1), []
    for test in range(count):
        outer, valid = fold != test, fold == (test + 1) % count
        inner, weights, best = outer & ~valid, None, (-1, strengths[0], None)
        for strength in sorted(strengths, reverse=True) if len(strengths) > 1 else ():
            weights = fit(
                *(x[inner], y[inner], classes),
                strength=strength,
                start=weights,
                steps=steps,
            )
            ended.append(weights.ended)
            right = int((predict(weights, x[valid]) == y[valid]).sum())
            if right > best[0]:
                best = right, strength, weights
        _, strength, start = best
        final = fit(
            x[outer], y[outer], classes, strength=strength, start=start, steps=steps
        )
        ended.append(final.ended)
        decided[~outer] = predict(final, x[~outer])
    return Held(decided, len(ended), ended.count(False))


def folds(
    y: Int[np.ndarray, "n"],
    group: Int[np.ndarray, "n"],
    *,
    most: int,
    seed: int,
    what: str,
    names: Sequence[str] = (),
) -> Int[np.ndarray, "n"]:
    """Deals groups into folds at random: no group is in two, every class in all.

    As many folds as the rarest class has groups, at most `most`. ValueError where that
    is less than three, or a group has several classes. names: of the classes.
    """
    rng = np.random.default_rng(seed)
    members = {c: np.unique(group[y == c]) for c in np.unique(y)}
    if sum(map(len, members.values())) != len(np.unique(group)):
        raise ValueError(f"each {what} exemplar must be of one {what}")
    rarest = min(members, key=lambda c: len(members[c]))
    count = min(most, len(members[rarest]))
    if count < 3:
        name = names[rarest] if names else f"class {rarest} (from 0)"
        raise ValueError(
            f"a {what} needs three pictures of its own; {name} has"
            f" {len(members[rarest])}"
        )
    where = {}
    for pictures in members.values():
        first = rng.integers(count)
        for i, name in enumerate(rng.permutation(pictures)):
            where[name] = (first + i) % count
    return np.array([where[name] for name in group])
