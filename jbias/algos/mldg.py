"""MLDG: a step on some environments should also lower the losses of the others.

Source: Li, Yang, Song and Hospedales, "Learning to Generalize: Meta-Learning for Domain
Generalization", AAAI 2018, https://arxiv.org/abs/1710.03463.
Reference code: https://github.com/facebookresearch/DomainBed at b93c22a, class MLDG and
split_meta_train_test in lib/misc.py. The authors' https://github.com/HAHA-DL/MLDG at 1913486
takes one inner step on the sum of the meta-train losses, differentiates through it, and has a
single meta-test environment.
Deviations: The inner step is plain gradient descent, as in the paper; inner="adam" is the
reference's, the first step of Adam from zero moments, here without weight decay. By default
one environment is for meta-test, as in the paper; DomainBed's default is two. A loss of an
environment is the mean over all its examples in the batch; the reference drops examples of the
larger of two environments. All environments pass through the network together, so that batch
norm uses the statistics of all, and a step costs as much as with batches of that size for each
environment. Terms of an environment that a batch lacks are 0.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from jbias import errors
from jbias.algos import base, erm, groups

INNER_STEPS = ("sgd", "adam")
_ADAM_EPSILON = 1e-8


def make(
    net: nn.Module,
    *,
    beta: float = 1.0,
    inner_rate: float = 0.1,
    inner: str = "sgd",
    meta_test: int = 1,
    by: str = "",
    columns: groups.Columns | None = None,
) -> base.Algo:
    """Return MLDG, with L = 1/n sum_(i, j) [R_i(w) + beta R_j(w - step(dR_i/dw))].

    R_e is the mean loss of environment e in the batch, n the number of environments, w are the
    weights. Each step splits the environments at random in `meta_test` ones for meta-test and
    the others for meta-train; the pairs (i, j) have each of these once, with the meta-test
    environments in turn (see `pairs`). The gradient is of first order: the inner step is a
    constant in it.

    beta: weight of the meta-test losses. inner_rate: rate of the inner step.
    inner: "sgd", step(g) = inner_rate * g, or "adam", inner_rate * g / (|g| + 1e-8), the first
      step of Adam.
    meta_test: number of environments for meta-test. With meta_test=0 this equals ERM bit for
      bit.
    by: column of the environments, or several joined by +; by default "domain" (the number of
      the source, or a column of the data set) or, without such a column, "attribute".
    columns: columns of the training data, which a run fills in. None: return an algorithm
      for evaluation only, whose losses raise ValueError.

    Losses: "class", and "meta", which is minimised. Metric: "meta_test", the mean of R_j after
    the inner steps. ValueError for a negative number, an unknown `inner`, for a `meta_test`
    that leaves no environment for meta-train, and for columns that `groups.from_columns`
    refuses.

    A step costs about 2 (n - meta_test) steps of ERM.
    """
    errors.check_condition("mldg", "at least 0", beta=beta, inner_rate=inner_rate)
    errors.check_choice("mldg", inner, INNER_STEPS, "change inner", name="inner")
    errors.check_whole("mldg", meta_test, low=0, name="meta_test")
    if meta_test == 0:
        return erm.make(net)
    if columns is None:
        return groups.evaluation_only("mldg", net)
    known = groups.environments("mldg", columns, by)
    numbers = np.flatnonzero(known.counts)
    errors.check(
        meta_test < len(numbers),
        "mldg",
        f"be below the number of environments, {len(numbers)}",
        meta_test,
        "lower meta_test or change by",
        name="meta_test",
    )

    def losses(params, stats, batch, key, static=None):
        """Return the losses "class" and "meta", and `base.Aux`; see base.Algo.

        Metric: "meta_test".
        """
        k_order, k_train, k_test = jax.random.split(key, 3)
        members = known.members(batch)

        def evaluate(weights, key):
            """Return ((losses of environments, divergence of views), (logits, statistics))."""
            logits, net_stats = base.forward(
                net, weights, stats["net"], batch["image"], key
            )
            risks, _ = groups.means(base.example_losses(logits, batch), members)
            divergence = base.with_consistency(jnp.zeros(()), logits, batch)
            return (risks, divergence), (logits, net_stats)

        weights = params["net"]
        (risks, divergence), pull, (logits, net_stats) = jax.vjp(
            lambda weights: evaluate(weights, k_train),
            jax.lax.stop_gradient(weights),
            has_aux=True,
        )
        train_losses, train_grads, test_losses = [], [], []
        for i, j in pairs(draw_order(k_order, numbers), meta_test):
            selected = jax.nn.one_hot(i, len(risks))
            (grads,) = pull((selected, jnp.zeros(())))
            step = inner_step(grads, rate=inner_rate, inner=inner)
            adapted = jax.tree.map(jnp.subtract, weights, step)
            (adapted_risks, _), _ = evaluate(adapted, k_test)
            train_losses.append(risks[i])
            train_grads.append(grads)
            test_losses.append(adapted_risks[j])
        train_loss = sum(train_losses) / len(numbers)
        grads = jax.tree.map(lambda *g: sum(g) / len(numbers), *train_grads)
        if "consistency" in batch:
            (divergence_grads,) = pull((jnp.zeros_like(risks), jnp.ones(())))
            grads = jax.tree.map(jnp.add, grads, divergence_grads)
        total = with_gradient(train_loss + divergence, grads, weights)
        total += beta * sum(test_losses) / len(numbers)
        named = {"class": base.objective(logits, batch), "meta": total}
        metrics = {"meta_test": sum(test_losses) / len(test_losses)}
        return named, base.Aux({**stats, "net": net_stats}, metrics)

    return base.Algo(net, losses, (base.Update("meta"),), whole_batch=True)


def draw_order(key: PRNGKeyArray, numbers: Int[np.ndarray, "n"]) -> Int[Array, "n"]:
    """Return the numbers of the environments in a random order; the last are for meta-test."""
    return jax.random.permutation(key, jnp.asarray(numbers))


def pairs(
    order: Int[Array, "n"], meta_test: int
) -> list[tuple[Int[Array, ""], Int[Array, ""]]]:
    """Return pairs (meta-train environment, meta-test environment) of an order.

    The last `meta_test` environments of the order are for meta-test; each of the others occurs
    in one pair, with the meta-test environments in turn.
    """
    num_train = len(order) - meta_test
    return [(order[p], order[num_train + p % meta_test]) for p in range(num_train)]


def inner_step(grads: PyTree, *, rate: float, inner: str) -> PyTree:
    """Return the change of the weights that the inner step subtracts; see `make`."""
    if inner == "sgd":
        return jax.tree.map(lambda g: rate * g, grads)
    return jax.tree.map(lambda g: rate * g / (jnp.abs(g) + _ADAM_EPSILON), grads)


def with_gradient(
    value: Float[Array, ""], grads: PyTree, weights: PyTree
) -> Float[Array, ""]:
    """Return `value` as a function of the weights whose gradient is `grads`.

    The gradient is known, so that no second backward pass is needed.
    """
    terms = jax.tree.map(
        lambda g, w: jnp.sum(g * (w - jax.lax.stop_gradient(w))), grads, weights
    )
    return value + sum(jax.tree.leaves(terms))


ALGOS = {"mldg": make}
