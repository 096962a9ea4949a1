"""The RandConv transform: random convolutions, which change textures and preserve shapes.

Source: Xu et al., "Robust and Generalizable Visual Representation Learning via Random
Convolutions", ICLR 2021, https://arxiv.org/abs/2007.13003.
Reference code: https://github.com/wildphoton/RandConv at 861a231.
Deviations: images are clipped to [0, 1] by default (`clip`). All views are made from the
clean image, as in the paper; the released loop makes the second and third view from the
first. Views pass through the network in one batch, not one after the other.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jbias import errors
from jbias.augment import compose, options
from jbias.runtime import xla

Images = Float[Array, "b h w c"]
Filter = Float[Array, "k k c c"]


def make(
    *,
    sizes: Sequence[int] = (1, 3, 5, 7),
    mix: bool = True,
    p: float = 1.0,
    views: int = 3,
    consistency: float = 10.0,
    clip: bool = True,
    mean: Sequence[float] = (0.485, 0.456, 0.406),
    std: Sequence[float] = (0.229, 0.224, 0.225),
) -> options.Transform:
    """Return the RandConv transform, which convolves normalised images with random filters.

    x' = a F(x) + (1 - a) x with a ~ U(0, 1), one filter F and one a per batch and view.
    F(x) has as many channels as x; the kernel size k of F is one of `sizes`, all equally
    likely, and its weights are N(0, 1 / (k^2 c)) for c channels.

    mix: False: a = 1.
    p: probability that a view is filtered; in the authors' runs 1 with `mix`, 0.5 without.
    views: views of each image; only the first has weight in the class loss. With views=1
      this is augmentation only.
    consistency: factor of the Jensen-Shannon divergence between views in the loss; the
      authors use 10 with `mix`, 5 without.
    clip: True: clip the result to [0, 1]. The authors do not clip; use clip=False only in
      the last transform.
    mean, std: normalisation of images before the convolution.

    If p is the number 0 and views = 1, the batch is returned unchanged. ValueError for an
    invalid option, such as an empty `sizes` or an even size. With views > 1, the transform
    raises ValueError for a batch that already has several views.
    """
    if not sizes or any(size < 1 or size % 2 == 0 for size in sizes):
        must = "rand_conv: sizes must be odd and at least one"
        raise ValueError(f"{must}, got {tuple(sizes)}; change sizes")
    errors.check_condition("rand_conv", "1 or more", views=views)
    errors.check_range("rand_conv", 0, 1, p=p)
    errors.check_range("rand_conv", 0, math.inf, consistency=consistency)
    for deviation in std:
        errors.check_condition("rand_conv", "positive", std=deviation)

    def filtered(image, key):
        """Return a F(x) + (1 - a) x for images x (b h w c), with one random filter F.

        a: U(0, 1), or 1 without `mix`. The result is clipped to [0, 1] if `clip`. key: random
        key.
        """
        k_filter, k_share = jax.random.split(key)
        share = jax.random.uniform(k_share) if mix else 1.0
        m, s = (jnp.asarray(v, image.dtype).reshape(1, 1, 1, -1) for v in (mean, std))
        kernel = draw_filter(k_filter, sizes, image.shape[-1])
        out = convolve((image - m) / s, kernel) * s + m
        out = share * out + (1 - share) * image
        return jnp.clip(out, 0, 1) if clip else out

    def sometimes(image, key):
        if options.is_statically(p, 0):
            return image
        k_gate, k_out = jax.random.split(key)
        gate = jax.random.bernoulli(k_gate, p)
        return jax.lax.cond(gate, filtered, lambda x, _: x, image, k_out)

    def apply(batch, key):
        """Return the batch with `views` rows per image, each view filtered with probability p.

        With `views` above 1, "consistency" is set, and ValueError is raised for a batch that has
        several views already. With views=1, the batch's own views are filtered. key: random
        key; all images of a view have the same filter.
        """
        if views > 1 and batch.get("views", 1) > 1:
            must = f"rand_conv: views={views} must have a batch of one row an image"
            got = f"got {batch['views']}; use views=1"
            raise ValueError(f"{must}, {got} or drop the transform that repeats them")
        if views > 1:
            batch = compose.repeat_unweighted(batch, views)
            batch = {**batch, "consistency": consistency}
        elif options.is_statically(p, 0):
            return batch
        image, num_views = batch["image"], batch.get("views", 1)
        by_view = image.reshape(-1, num_views, *image.shape[1:])
        keys = jax.random.split(key, num_views)
        new = [sometimes(by_view[:, i], keys[i]) for i in range(num_views)]
        return {**batch, "image": jnp.stack(new, axis=1).reshape(image.shape)}

    return apply


def draw_filter(key: PRNGKeyArray, sizes: Sequence[int], channels: int) -> Filter:
    """Return a random filter, padded with zeros to the largest of `sizes`; see `make`."""
    k_size, k_weights = jax.random.split(key)
    largest = max(sizes)
    size = jax.random.choice(k_size, jnp.asarray(sizes))
    weights = jax.random.normal(k_weights, (largest, largest, channels, channels))
    offset = np.abs(np.arange(largest) - largest // 2)
    reach = np.maximum(offset[:, None], offset[None, :])[..., None, None]
    return jnp.where(reach <= size // 2, weights, 0) / (size * math.sqrt(channels))


def convolve(image: Images, kernel: Filter) -> Images:
    """Return the images cross-correlated with a filter, at the same size, zeros outside."""
    # Errors of TF32 would be visible in 8-bit images. On a TPU "high" is three products in
    # bfloat16, which is precise enough.
    return jax.lax.conv_general_dilated(
        image,
        kernel,
        window_strides=(1, 1),
        padding="SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        precision="high" if xla.platform() == "tpu" else "highest",
    )
