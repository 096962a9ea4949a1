"""SimCLR: contrastive learning of features that match two views of an image.

Source: Chen, Kornblith, Norouzi and Hinton, "A Simple Framework for Contrastive
Learning of Visual Representations", ICML 2020, https://arxiv.org/abs/2002.05709.
Reference code: https://github.com/google-research/simclr at 383d414.
Deviations: The loss is the paper's mean over all views, half of the code's loss. The
optimiser is the config's; the authors' optimiser is LARS, which decays neither biases nor
normalisations. The projection has the paper's two layers; the code's later default is three
layers. The compared features are the inputs of the linear layer in any network: pooled maps,
hidden layers of a VGG, the class token of a transformer.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from jbias import errors
from jbias.algos import base, linear_probe
from jbias.models import layers


def make(net: nn.Module, *, temperature: float = 0.1, features: int = 128) -> base.Algo:
    """Return SimCLR, which trains all but the linear layer on the "contrast" loss only.

    The batch needs two views of each image, as consecutive rows (else ValueError). A
    projection of the linear layer's inputs is compared between all images of the batch, on
    all devices: this algorithm moves embeddings between devices. The metric
    "contrast_accuracy" is the fraction of views whose nearest row, apart from the view itself,
    is the second view of the same image.

    temperature: 0.1 suits large batches and long training, 0.5 small batches (the
      authors' value for CIFAR-10).
    features: dimensions of the projection.

    ValueError for a temperature that is not positive, and for less than 1 feature.
    """
    errors.check_condition("simclr", "positive", temperature=temperature)
    errors.check_condition("simclr", "at least 1", features=features)
    # A transformer has no batch norm, hence no norm_group.
    projection = Projection(features, vars(net).get("norm_group", 0))

    def losses(params, stats, batch, key, static=None):
        """Return {"contrast": loss} and `base.Aux`, with "contrast_accuracy"; see base.Algo.

        ValueError unless the batch has 2 views of each image.
        """
        if batch.get("views") != 2:
            raise ValueError(
                f"simclr: needs 2 views of each image, got {batch.get('views', 1)}; "
                'put dict(name="views", views=2) first into config.inputs'
            )
        _, h, net_stats = base.forward_features(
            net, params["net"], stats["net"], batch["image"], key
        )
        z, projection_stats = base.forward(
            projection, params["projection"], stats["projection"], h, None
        )
        row_losses, is_matched = contrast(z, temperature)
        metrics = {"contrast_accuracy": jnp.mean(is_matched.astype(jnp.float32))}
        new_stats = {**stats, "net": net_stats, "projection": projection_stats}
        loss = base.weighted_mean(row_losses, batch)
        return {"contrast": loss}, base.Aux(new_stats, metrics)

    def init(key, image, net_variables):
        """Return the initial {"params", "stats"} of the projection; see base.Algo.parts."""

        def features_of(variables):
            """Return the inputs of the linear layer."""
            params, stats = variables["params"], variables.get("stats", {})
            return base.forward_features(net, params, stats, image, key, train=False)[1]

        h = jax.eval_shape(features_of, net_variables)
        return projection.init(key, jnp.zeros((1, h.shape[-1])))

    updates = (base.Update("contrast", _is_trained),)
    return base.Algo(net, losses, updates, {"projection": init}, whole_batch=True)


class Projection(nn.Module):
    """The projection head: linear, batch norm, ReLU, linear, batch norm.

    The hidden layer has as many features as the input. features: number of outputs.
    norm_group: rows that are normalised together, as in the net; 0: all rows.
    """

    features: int
    norm_group: int = 0

    @nn.compact
    def __call__(self, h: Float[Array, "b c"], key=None, *, train: bool = False):
        """Return the embeddings (b, features) of h; key is not used."""
        init = nn.initializers.normal(0.01)
        for i, size in enumerate((h.shape[-1], self.features), 1):
            h = nn.relu(h) if i > 1 else h
            h = nn.Dense(size, use_bias=False, kernel_init=init, name=f"linear{i}")(h)
            h = layers.BatchNorm(group=self.norm_group, name=f"bn{i}")(h, train=train)
        return h


def contrast(
    z: Float[Array, "b d"], temperature: float
) -> tuple[Float[Array, "b"], Bool[Array, "b"]]:
    """Return each row's NT-Xent loss, and True if its most similar other row is its partner.

    -log(exp(s_ij / t) / sum_(k != i) exp(s_ik / t)), s the cosine similarities, j the
    partner of i: rows 2n and 2n + 1 are partners.
    """
    rows = jnp.arange(len(z))

    length = jnp.sqrt(jnp.maximum(jnp.sum(jnp.square(z), 1, keepdims=True), 1e-12))
    z = z / length
    # In full precision: the default precision of accelerators has errors of 0.01 here.
    similar = jnp.matmul(z, z.T, precision=jax.lax.Precision.HIGHEST)
    scores = jnp.where(rows[:, None] == rows[None, :], -jnp.inf, similar / temperature)
    losses = -jax.nn.log_softmax(scores)[rows, _partners(rows)]
    return losses, jnp.argmax(scores, axis=1) == _partners(rows)


def _partners(rows: Int[Array, "b"]) -> Int[Array, "b"]:
    """Return the index of each row's partner: rows 2n and 2n + 1 are partners."""
    return rows ^ 1


def _is_trained(path: base.Path) -> bool:
    """Return True if SimCLR trains a parameter.

    The net's linear layer and the bias of the projection's last batch norm are not trained; the
    reference does not have this bias.
    """
    return not linear_probe.in_linear(path) and path != ("projection", "bn2", "bias")


ALGOS = {"simclr": make}
