"""Takes the colour out of a share of the images.

Source: SimCLR, Chen et al., ICML 2020, https://arxiv.org/abs/2002.05709.
Reference code: torchvision.transforms.RandomGrayscale,
https://github.com/pytorch/vision at 0ffa6ae.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jbias.augment import colour_jitter, examples, options


def make(*, p: float = 0.2) -> Callable:
    """Gives all channels 0.2989 R + 0.587 G + 0.114 B, with chance p an image."""
    options.within("grayscale", "p", p, 0, 1)

    def one(image, key):
        colourless = colour_jitter.grey(jnp.moveaxis(image, -1, 0))[..., None]
        return jnp.where(jax.random.bernoulli(key, p), colourless, image)

    def apply(batch, key):
        if options.surely(p, 0):
            return batch
        image = batch["image"]
        keys = examples.keys(key, len(image))
        return {**batch, "image": jax.vmap(one)(image, keys)}

    return apply
