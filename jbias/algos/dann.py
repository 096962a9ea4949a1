"""DANN and CDANN: the features of different environments should be indistinguishable.

A discriminator predicts the environment from the inputs of the linear layer; the network is
trained to classify, and to make the discriminator fail.

DANN. Source: Ganin et al., "Domain-Adversarial Training of Neural Networks", JMLR 2016,
https://arxiv.org/abs/1505.07818.
CDANN. Source: Li et al., "Deep Domain Generalization via Conditional Invariant Adversarial
Networks", ECCV 2018,
https://openaccess.thecvf.com/content_ECCV_2018/html/Ya_Li_Deep_Domain_Generalization_ECCV_2018_paper.html.
Reference code of both: https://github.com/facebookresearch/DomainBed at b93c22a, classes
AbstractDANN, DANN and CDANN, and MLP of networks.py. CDANN is the reference's, where one
discriminator gets features plus an embedding of the class; the paper has one discriminator per
class.
Deviations: With weight=0 the result is ERM, which trains the network in every step. Soft labels
have the mean of the embeddings of their classes. Schedules of the learning rate follow all
steps; the reference's rates are constant. d_steps=0 is the paper's form, where each step trains
the discriminator and the network by the same gradients; in the reference it never trains the
discriminator. The paper lets the weight grow from 0 to 1; here, as in the reference, the
weight is constant. Batch norms use the statistics of all environments together, and update
their running statistics in the discriminator's steps, too; the reference's pretrained ResNets have
fixed statistics.
"""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float

from jbias import errors
from jbias.algos import base, erm, groups
from jbias.augment import options
from jbias.models import layers

# Static arguments of steps that train only the discriminator, or only the network.
DISCRIMINATOR, NETWORK = "discriminator", "network"
# Options that the discriminator's optimiser may have instead of those of config.optim.
OPTIM_OPTIONS = ("b1", "b2", "decay", "momentum")


def make(
    net: nn.Module,
    *,
    conditional: bool = False,
    weight: float = 1.0,
    grad_penalty: float = 0.0,
    d_steps: int = 1,
    d_rate: float = 1.0,
    d_optim: Mapping[str, Any] | None = None,
    width: int = 256,
    depth: int = 3,
    dropout: float = 0.0,
    by: str = "",
    columns: groups.Columns | None = None,
) -> base.Algo:
    """Return DANN: the network minimises R - weight * D, the discriminator minimises D.

    R is the class loss, and D = mean_i [l_i + grad_penalty * |d l_i / d h_i|^2], with l_i the
    cross-entropy of the discriminator's prediction of example i's environment, and h_i the
    discriminator's input, here the input of the linear layer. With weight=0 this equals ERM
    bit for bit.

    Losses: "class" is R, "discriminator" D, "adversarial" R - weight * D. The metric
    "domain_accuracy" is the discriminator's share of correct predictions.

    conditional: return CDANN, whose discriminator knows the class, and weighs all classes
      equally: D = sum_i l_i / (n_i K) + grad_penalty * mean_i |d l_i / d h_i|^2. n_i is the
      number of the batch's examples of example i's class, and K is 1 + the largest class in
      the batch. h_i is the input of the linear layer plus a trained embedding of the class.
    d_steps: steps of the discriminator for each step of the network. Steps are counted from 1;
      step n trains the discriminator if n % (1 + d_steps) < d_steps, else the network. 0: every
      step trains both, by gradients at the same weights.
    d_rate: factor on the learning rate of the discriminator.
    d_optim: options of the discriminator's optimiser that replace those of config.optim: b1,
      b2, decay or momentum.
    width, depth, dropout: features of each hidden layer, number of layers, and rate of dropout
      of the discriminator.
    by: column of the environments, or several joined by +; by default "domain" (the number of
      the source, or a column of the data set) or, without such a column, "attribute".
    columns: columns of the training data, which a run fills in. None: return an algorithm
      for evaluation only, whose losses raise ValueError.

    ValueError for options out of range, for columns that `groups.from_columns` refuses, and
    for training data with one environment.
    """
    name = "cdann" if conditional else "dann"
    errors.check_condition(
        name,
        "at least 0",
        weight=weight,
        grad_penalty=grad_penalty,
        d_steps=d_steps,
        d_rate=d_rate,
    )
    errors.check_condition(name, "at least 1", width=width)
    errors.check(depth >= 2, name, "be at least 2", depth, "raise depth", name="depth")
    errors.check_condition(name, "in [0, 1)", dropout=dropout)
    d_optim = dict(d_optim or {})
    errors.check_all_known(f"{name}.d_optim", d_optim, OPTIM_OPTIONS, "option")
    if options.is_statically(weight, 0):
        return erm.make(net)
    if columns is None:
        return groups.evaluation_only(name, net)
    known = groups.environments(name, columns, by)
    has_examples = known.counts > 0
    domains = int(np.count_nonzero(has_examples))
    errors.check(
        domains > 1,
        name,
        f"have training data of at least 2 environments, by {'+'.join(known.names)}",
        domains,
        "name a column with several values by by=...",
    )
    # The discriminator has no output for a combination of values without examples.
    index_of_group = jnp.asarray(np.cumsum(has_examples) - 1)
    discriminator = Discriminator(domains, width, depth, dropout, conditional)

    def losses(params, stats, batch, key, static=None):
        """Return the losses "class", "discriminator" and "adversarial" by name, and `base.Aux`.

        See base.Algo. The metric is "domain_accuracy".
        """
        logits, h, net_stats = base.forward_features(
            net, params["net"], stats["net"], batch["image"], key
        )
        domain = index_of_group[known.number(batch)]
        d_key = jax.random.fold_in(key, 1)

        def discriminate(h):
            """Return (sum of the examples' cross-entropies, (cross-entropies, hits))."""
            variables = {"params": params["discriminator"]}
            outputs = discriminator.apply(
                variables, h, batch["target"], d_key, train=True
            )
            log_p = jax.nn.log_softmax(outputs)
            risks = -jnp.take_along_axis(log_p, domain[:, None], axis=1)[:, 0]
            return jnp.sum(risks), (risks, jnp.argmax(outputs, axis=1) == domain)

        if options.is_statically(grad_penalty, 0):
            _, (risks, hits) = discriminate(h)
            penalty = 0.0
        else:
            slopes, (risks, hits) = jax.grad(discriminate, has_aux=True)(h)
            square = jnp.sum(jnp.square(slopes), axis=1)
            penalty = grad_penalty * base.weighted_mean(square, batch)
        mean = class_balanced_mean if conditional else base.weighted_mean
        named = {
            "class": base.objective(logits, batch),
            "discriminator": mean(risks, batch) + penalty,
        }
        named["adversarial"] = named["class"] - weight * named["discriminator"]
        hits = hits.astype(jnp.float32)
        metrics = {"domain_accuracy": base.weighted_mean(hits, batch)}
        return named, base.Aux({**stats, "net": net_stats}, metrics)

    def init(key, image, net_variables):
        """Return the initial {"params"} of the discriminator; see base.Algo.parts."""

        def features_of(variables):
            """Return the net's logits and the inputs of its linear layer."""
            params, stats = variables["params"], variables.get("stats", {})
            return base.forward_features(net, params, stats, image, key, train=False)

        logits, h, _ = jax.eval_shape(features_of, net_variables)
        features = jnp.zeros((1, h.shape[-1]))
        return discriminator.init(key, features, jnp.zeros((1, logits.shape[-1])))

    def in_turn(step: int, steps: int) -> str:
        """Return the static argument of a step, counted from 0 (see `make` for the rule)."""
        is_for_discriminator = (step + 1) % (1 + d_steps) < d_steps
        return DISCRIMINATOR if is_for_discriminator else NETWORK

    updates = (
        base.Update("adversarial", _in_net, when=NETWORK if d_steps else None),
        base.Update(
            "discriminator",
            _in_discriminator,
            when=DISCRIMINATOR if d_steps else None,
            rate=d_rate,
            optim=d_optim,
        ),
    )
    return base.Algo(
        net,
        losses,
        updates,
        parts={"discriminator": init},
        static=in_turn if d_steps else base.no_static,
        whole_batch=conditional,
    )


class Discriminator(nn.Module):
    """An MLP that predicts the environment from features, and from the class if conditional.

    domains: number of environments. Other fields: see `make`.
    """

    domains: int
    width: int
    depth: int
    dropout: float
    conditional: bool

    @nn.compact
    def __call__(
        self,
        h: Float[Array, "b c"],
        target: Float[Array, "b k"],
        key=None,
        *,
        train: bool = False,
    ) -> Float[Array, "b e"]:
        """Return the logits of the environments.

        h: inputs of the net's linear layer. target: probabilities of the classes, used only if
        `conditional`. key: of dropout, which is active if `train`.
        """
        if self.conditional:
            shape = (target.shape[-1], h.shape[-1])
            table = self.param("embedding", nn.initializers.normal(1.0), shape)
            exact = jax.lax.Precision.HIGHEST
            h = h + jnp.matmul(target, table, precision=exact)
        for i in range(self.depth - 1):
            h = self._linear(h, self.width, i + 1)
            if self.dropout and train:
                drop = nn.Dropout(self.dropout, deterministic=False)
                h = drop(h, rng=jax.random.fold_in(key, i))
            h = nn.relu(h)
        return self._linear(h, self.domains, self.depth)

    def _linear(self, h: Float[Array, "b i"], size: int, number: int):
        """Return the outputs (b, size) of the linear layer with this number."""
        fan_in = h.shape[-1]
        layer = nn.Dense(
            size,
            kernel_init=layers.TORCH,
            bias_init=layers.torch_bias(fan_in),
            name=f"linear{number}",
        )
        return layer(h)


def class_balanced_mean(
    values: Float[Array, "b"], batch: base.Batch
) -> Float[Array, ""]:
    """Return sum_i w_i values_i / (n_i K), with w_i the example's weight, or 1 without one.

    n_i is the sum of the weights of example i's class, and K is 1 + the largest class in the
    batch, as in the reference. The class of an example is the argmax of its target. Rows of
    weight 0 are not used.
    """
    target = batch["target"]
    label = jnp.argmax(target, axis=1)
    weight = batch.get("weight", jnp.ones(len(label)))
    counts = jnp.sum(jax.nn.one_hot(label, target.shape[1]) * weight[:, None], axis=0)
    num_classes = 1 + jnp.max(jnp.where(weight > 0, label, 0))
    # Rows of weight 0 may be all of their class.
    count = jnp.where(weight > 0, counts[label], 1)
    return jnp.sum(weight * values / (count * num_classes))


def _in_net(path: base.Path) -> bool:
    """Return True if a parameter belongs to the network."""
    return path[0] == "net"


def _in_discriminator(path: base.Path) -> bool:
    """Return True if a parameter belongs to the discriminator."""
    return path[0] == "discriminator"


ALGOS = {"cdann": functools.partial(make, conditional=True), "dann": make}
