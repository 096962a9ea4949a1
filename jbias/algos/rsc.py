"""RSC: mute the features on which the prediction of the label depends most.

Source: Huang, Wang, Xing and Huang, "Self-Challenging Improves Cross-Domain Generalization",
ECCV 2020, https://arxiv.org/abs/2007.02454.
Reference code: https://github.com/facebookresearch/DomainBed at b93c22a, class RSC. The authors'
https://github.com/DeLightCMU/RSC at bf6d280 mutes positions or channels of the last feature map,
each in half of the steps, and mutes more examples in later epochs; neither is done here.
Deviations: With a share of 0 nothing is muted; DomainBed then still mutes the largest feature
of one example. Soft labels weigh the gradients and the probabilities of the classes. `anneal` is
ours: both references fine-tune trained networks.

In a network with random weights RSC fails, by DomainBed's code as here. Inputs of the last layer
are not negative, so that muting the features with the largest weights makes the logit of the
label very negative. The loss is then above that of equal logits, which features of 0 have, and
the network shrinks its features before it has learned any. Measured by
tests/oracles/domainbed_rsc.py with a CNN of width 8, on 2,048 drawn images of 16 classes, in 4
epochs of SGD at 0.01: ERM has a validation accuracy of 68 %, and DomainBed's RSC of 12 %, where
88 % of the features are 0 (ERM: 29 %). After two epochs of ERM it has 59 %, after one epoch 39 %.
By Adam at 0.001, RSC has 12 % and ERM 32 %.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from jbias import errors
from jbias.algos import base, erm
from jbias.augment import options


def make(
    net: nn.Module,
    *,
    features: float = 1 / 3,
    examples: float = 1 / 3,
    anneal: float = 0.0,
) -> base.Algo:
    """Return RSC, with L = mean_i CE(W (m_i h_i) + b, t_i) for the inputs h of the last layer.

    m_i is 0 at the features whose gradient, d(t_i z_i) / d(h_i) of the logits z_i, is at least
    the (1 - features) quantile of the example's gradients. It is 1 elsewhere, and everywhere
    for examples that need these features less: those whose probability of the label falls, by
    muting, by less than the (1 - examples) quantile of the batch. Masks have no gradient.

    features: share of the features that are muted. examples: share of the batch's examples
      with muted features. If one is 0, this equals ERM bit for bit.
    anneal: first share of the stage in which nothing is muted, for networks with random weights.
      With anneal=1 this equals ERM bit for bit.

    Losses: "class" of all features, and "challenged", which is minimised. Metric: "muted", the
    share of all features of the batch that are muted. ValueError for a number outside [0, 1],
    and for a net that does not end in a linear layer.
    """
    errors.check_range("rsc", 0, 1, features=features, examples=examples, anneal=anneal)
    mutes_nothing = options.is_statically(features, 0)
    mutes_nothing |= options.is_statically(examples, 0)
    if mutes_nothing or options.is_statically(anneal, 1):
        return erm.make(net)
    base.check_linear_head("rsc", net)

    def losses(params, stats, batch, key, static=None):
        """Return the losses "class" and "challenged", and `base.Aux`; see base.Algo.

        Metric: "muted".
        """
        logits, h, net_stats = base.forward_features(
            net, params["net"], stats["net"], batch["image"], key
        )
        loss = base.objective(logits, batch)
        if static is False:
            named = {"class": loss, "challenged": loss}
            new_stats = {**stats, "net": net_stats}
            return named, base.Aux(new_stats, {"muted": jnp.zeros(())})
        linear = params["net"]["fc"]
        mask = unmuted(
            jax.lax.stop_gradient(linear),
            jax.lax.stop_gradient(h),
            batch,
            features=features,
            examples=examples,
        )
        challenged = _logits(linear, h * mask)
        named = {
            "class": loss,
            "challenged": base.objective(challenged, batch),
        }
        metrics = {"muted": 1 - jnp.mean(mask.astype(jnp.float32))}
        return named, base.Aux({**stats, "net": net_stats}, metrics)

    updates = (base.Update("challenged"),)
    static = base.after_share(anneal)
    return base.Algo(net, losses, updates, static=static, whole_batch=True)


def unmuted(
    linear: dict[str, Array],
    h: Float[Array, "b c"],
    batch: base.Batch,
    *,
    features: float,
    examples: float,
) -> Bool[Array, "b c"]:
    """Return the mask of RSC: False at the features that are muted; see `make`.

    linear: {"kernel", "bias"} of the last layer. h: its inputs. Examples of weight 0 do not
    change the masks of other examples.
    """
    exact = jax.lax.Precision.HIGHEST
    slopes = jnp.matmul(batch["target"], linear["kernel"].T, precision=exact)
    is_weak = is_below_quantile(slopes, 1 - features, slopes.shape[1])
    plain, muted = _logits(linear, h), _logits(linear, h * is_weak)
    change = label_probabilities(plain, batch) - label_probabilities(muted, batch)
    count = len(change)
    if "weight" in batch:
        change = jnp.where(batch["weight"] > 0, change, jnp.inf)
        count = jnp.sum(batch["weight"] > 0)
    is_robust = is_below_quantile(change, 1 - examples, count)
    return is_weak | is_robust[:, None]


def is_below_quantile(
    values: Float[Array, "*b n"], quantile: float, count: int | Int[Array, ""]
) -> Bool[Array, "*b n"]:
    """Return a mask of the values below a quantile of the last axis, by linear interpolation.

    count: number of values of the last axis that matter; the others are infinite. Between the
    sorted values k and k + 1 the values below the quantile are those below value k + 1, so
    that no interpolation is needed: position p of the quantile counts as ceil(p), where p is
    an integer if it is within 1e-6 * count above one.
    """
    position = quantile * (count - 1) - 1e-6 * count
    index = jnp.maximum(jnp.ceil(position), 0).astype(jnp.int32)
    threshold = jnp.take(jnp.sort(values, axis=-1), index, axis=-1)
    return values < threshold[..., None]


def _logits(linear: dict[str, Array], h: Float[Array, "b c"]) -> Float[Array, "b k"]:
    """Return the logits of the linear layer {"kernel", "bias"} for inputs h."""
    return h @ linear["kernel"] + linear["bias"][None]


def label_probabilities(
    logits: Float[Array, "b k"], batch: base.Batch
) -> Float[Array, "b"]:
    """Return the predicted probability of each example's label.

    It is sum_k t_k p_k for soft labels t, and for a "binary" batch the mean over the classes
    of the probability of the right answer.
    """
    target = batch["target"]
    if batch.get("binary"):
        p = jax.nn.sigmoid(logits)
        return jnp.mean(target * p + (1 - target) * (1 - p), axis=-1)
    return jnp.sum(target * jax.nn.softmax(logits), axis=-1)


ALGOS = {"rsc": make}
