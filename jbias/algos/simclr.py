"""SimCLR: learns features by which two views of one image find each other.

Source: Chen, Kornblith, Norouzi and Hinton, "A Simple Framework for Contrastive
Learning of Visual Representations", ICML 2020, https://arxiv.org/abs/2002.05709.
Reference code: https://github.com/google-research/simclr at 383d414.
Deviations: the loss is the paper's mean over all views, half of what the code has; the
optimiser is the config's, where the authors' is LARS, which decays neither biases nor
normalisations; the projection has the paper's two layers, where the code's later default
is three. What is compared is what the linear layer reads, in any network: pooled maps,
hidden layers of a VGG, the class token of a transformer.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float

from jbias.algos import base, linear_probe
from jbias.augment import options
from jbias.models import layers


def make(net: nn.Module, *, temperature: float = 0.1, features: int = 128) -> base.Algo:
    """Trains all but the linear layer on the "contrast" loss; there is no class loss.

    The batch needs two views of each image, as consecutive rows. A projection of what
    the linear layer reads is compared between all images of the batch, wherever they
    are: this is the algorithm that moves embeddings between devices. The metric
    "contrast_accuracy" says how often a view's nearest other row is its partner.

    temperature: 0.1 suits large batches and long training, 0.5 small ones (the
      authors' for CIFAR-10).
    features: dimensions of the projection.
    """
    options.check_plain("simclr", "positive", temperature=temperature)
    options.check_plain("simclr", "at least 1", features=features)
    # A transformer has no batch norm, and so no such option.
    projection = Projection(features, vars(net).get("norm_group", 0))

    def losses(params, stats, batch, key, static=None):
        if batch.get("views") != 2:
            raise ValueError(
                f"simclr: needs 2 views of each image, got {batch.get('views', 1)}; "
                'put dict(name="views", views=2) first into config.inputs'
            )
        own = params["net"], stats["net"]
        _, h, seen = base.forward_features(net, *own, batch["image"], key)
        own = params["projection"], stats["projection"]
        z, noted = base.forward(projection, *own, h, None)
        each, found = contrast(z, temperature)
        metrics = {"contrast_accuracy": jnp.mean(found.astype(jnp.float32))}
        new = {**stats, "net": seen, "projection": noted}
        return {"contrast": base.weighted_mean(each, batch)}, base.Aux(new, metrics)

    def init(key, image, net_variables):
        def width(variables):
            own = variables["params"], variables.get("stats", {})
            return base.forward_features(net, *own, image, key, train=False)[1]

        h = jax.eval_shape(width, net_variables)
        return projection.init(key, jnp.zeros((1, h.shape[-1])))

    updates = (base.Update("contrast", _trained),)
    return base.Algo(net, losses, updates, {"projection": init}, whole_batch=True)


class Projection(nn.Module):
    """Linear, batch norm, ReLU, linear, batch norm; the hidden size is the input's."""

    features: int
    norm_group: int = 0  # As of the net.

    @nn.compact
    def __call__(self, h: Float[Array, "b c"], key=None, *, train: bool = False):
        own = dict(use_bias=False, kernel_init=nn.initializers.normal(0.01))
        for i, size in enumerate((h.shape[-1], self.features), 1):
            h = nn.relu(h) if i > 1 else h
            h = nn.Dense(size, **own, name=f"linear{i}")(h)
            h = layers.BatchNorm(group=self.norm_group, name=f"bn{i}")(h, train=train)
        return h


def contrast(
    z: Float[Array, "b d"], temperature: float
) -> tuple[Float[Array, "b"], Bool[Array, "b"]]:
    """NT-Xent of each row, and whether its partner is the row most like it.

    -log(exp(s_ij / t) / sum_(k != i) exp(s_ik / t)), s the cosine similarities, j the
    other of rows 2n and 2n + 1.
    """
    rows = jnp.arange(len(z))
    length = jnp.sqrt(jnp.maximum(jnp.sum(jnp.square(z), 1, keepdims=True), 1e-12))
    z = z / length
    # In full precision: the default of accelerators is off by a hundredth here.
    similar = jnp.matmul(z, z.T, precision=jax.lax.Precision.HIGHEST)
    scores = jnp.where(rows[:, None] == rows[None, :], -jnp.inf, similar / temperature)
    each = -jax.nn.log_softmax(scores)[rows, rows ^ 1]
    return each, jnp.argmax(scores, axis=1) == rows ^ 1


def _trained(path: base.Path) -> bool:
    """All but the linear layer, and the shift that the reference's last norm lacks."""
    return not linear_probe.in_linear(path) and path != ("projection", "bn2", "bias")
