"""MLDG: a step on some environments should also lower the losses of the others.

Source: Li, Yang, Song and Hospedales, "Learning to Generalize: Meta-Learning for Domain
Generalization", AAAI 2018, https://arxiv.org/abs/1710.03463.
Reference code: https://github.com/HAHA-DL/MLDG at 1913486, the authors'; of variant="domainbed"
https://github.com/facebookresearch/DomainBed at b93c22a, class MLDG and split_meta_train_test.
Deviations: The gradient is of first order, as in DomainBed: it is not taken through the inner
step. (The authors' code can do both.) F is a mean over environments, as in the paper; the authors'
code has the sum. All environments pass through the
network together, so that batch norm uses the statistics of all, and weight decay is not part of
the inner step. variant="domainbed": a loss of an environment is the mean over all its examples in
the batch; the reference drops examples of the larger of two environments. Its steps are on
batches of single environments; here each has the costs of the whole batch.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from jbias import errors
from jbias.algos import base, erm, groups

VARIANTS = ("", "domainbed")
_ADAM_EPSILON = 1e-8


def make(
    net: nn.Module,
    *,
    beta: float = 1.0,
    inner_rate: float = 0.1,
    meta_test: int = 1,
    variant: str = "",
    by: str = "",
    columns: groups.Columns | None = None,
) -> base.Algo:
    """Return MLDG, with L = F(w) + beta G(w - inner_rate dF/dw).

    F and G are the means of the losses R_e over environments e for meta-train and meta-test; R_e
    is the mean loss of environment e in the batch, w are the weights. Each step draws
    `meta_test` environments for meta-test; the others are for meta-train. The gradient is of
    first order: the inner step is a constant in it. A step costs two steps of ERM.

    beta: weight of G. inner_rate: rate of the inner step, such as config.optim.rate.
    meta_test: number of environments for meta-test. With meta_test=0 this equals ERM bit for
      bit.
    variant: "domainbed": L = 1/n sum_(i, j) [R_i(w) + beta R_j(w - step(dR_i/dw))] over pairs of
      one of the environments for meta-train and one for meta-test, which follow in turn. The
      inner step is the first step of Adam, step(g) = inner_rate * g / (|g| + 1e-8). A step costs
      up to 2 (n - meta_test) steps of ERM for n environments.
    by: column of the environments, or several joined by +; by default "domain" (the number of
      the source, or a column of the data set) or, without such a column, "attribute".
    columns: columns of the training data, which a run fills in. None: return an algorithm
      for evaluation only, whose losses raise ValueError.

    Losses: "class", and "meta", which is minimised. Metric: "meta_test", G after the inner
    step. Environments without examples in the batch are left out. ValueError for a negative
    number, an unknown variant, a `meta_test` that leaves no environment for meta-train, and for
    columns that `groups.from_columns` refuses.
    """
    errors.check_condition("mldg", "at least 0", beta=beta, inner_rate=inner_rate)
    errors.check_choice("mldg", variant, VARIANTS, "change variant", name="variant")
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
        order = draw_order(k_order, numbers)
        present = (jnp.sum(members, axis=0) > 0).astype(jnp.float32)
        tasks = make_tasks(order, meta_test, present, variant=variant)
        factor = 1 / len(numbers) if variant else 1.0
        train_grads = jax.tree.map(jnp.zeros_like, weights)
        test_losses = []
        for task in tasks:
            (grads,) = pull((task.train, jnp.zeros(())))
            step = inner_step(grads, rate=inner_rate, variant=variant)
            adapted = jax.tree.map(jnp.subtract, weights, step)
            (adapted_risks, _), _ = evaluate(adapted, k_test)
            train_grads = jax.tree.map(jnp.add, train_grads, grads)
            test_losses.append(jnp.sum(task.test * adapted_risks))
        train_loss = factor * sum(jnp.sum(task.train * risks) for task in tasks)
        grads = jax.tree.map(lambda g: factor * g, train_grads)
        if "consistency" in batch:
            (divergence_grads,) = pull((jnp.zeros_like(risks), jnp.ones(())))
            grads = jax.tree.map(jnp.add, grads, divergence_grads)
        total = with_gradient(train_loss + divergence, grads, weights)
        total += beta * factor * sum(test_losses)
        named = {"class": base.objective(logits, batch), "meta": total}
        metrics = {"meta_test": sum(test_losses) / len(test_losses)}
        return named, base.Aux({**stats, "net": net_stats}, metrics)

    return base.Algo(net, losses, (base.Update("meta"),), whole_batch=True)


class Task(NamedTuple):
    """An inner step and its test: weights of the environments' losses in both."""

    train: Float[Array, "e"]
    test: Float[Array, "e"]


def draw_order(key: PRNGKeyArray, numbers: Int[np.ndarray, "n"]) -> Int[Array, "n"]:
    """Return the numbers of the environments in a random order; the last are for meta-test."""
    return jax.random.permutation(key, jnp.asarray(numbers))


def make_tasks(
    order: Int[Array, "n"], meta_test: int, present: Float[Array, "e"], *, variant: str
) -> list[Task]:
    """Return the inner steps for environments in this order; see `make`.

    The last `meta_test` environments are for meta-test, the others for meta-train. present: 1
    for environments in the batch, else 0; weights of the others are 0.
    """
    selected = jax.nn.one_hot(order, len(present)) * present[None]
    num_train = len(order) - meta_test
    train, test = selected[:num_train], selected[num_train:]
    if variant:
        return [Task(train[p], test[p % meta_test]) for p in range(num_train)]
    return [Task(_mean_row(train), _mean_row(test))]


def _mean_row(selected: Float[Array, "n e"]) -> Float[Array, "e"]:
    """Return the mean of the rows that are not 0; 0 if all rows are 0."""
    return jnp.sum(selected, axis=0) / jnp.maximum(jnp.sum(selected), 1)


def inner_step(grads: PyTree, *, rate: float, variant: str) -> PyTree:
    """Return the change of the weights that the inner step subtracts; see `make`."""
    if not variant:
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
