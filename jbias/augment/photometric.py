"""Transforms of pixel values: colour jitter, grayscale, lighting, blur and noise.

Sources and reference code, by transform:
colour_jitter: Howard, 2013, https://arxiv.org/abs/1312.5402; the recipe of Szegedy et al. as in
  fb.resnet.torch and torchvision, and the colour distortion of SimCLR,
  https://arxiv.org/abs/2002.05709.
  torchvision.transforms.ColorJitter on float tensors, https://github.com/pytorch/vision at
  0ffa6ae. Deviation: random numbers differ between the images of a batch.
grayscale: SimCLR, Chen et al., ICML 2020, https://arxiv.org/abs/2002.05709.
  torchvision.transforms.RandomGrayscale, https://github.com/pytorch/vision at 0ffa6ae.
lighting: Krizhevsky, Sutskever and Hinton, "ImageNet Classification with Deep Convolutional
  Neural Networks", NeurIPS 2012, section 4.1. https://github.com/clovaai/CutMix-PyTorch at
  5ee7b8d, train.py, with ImageNet's principal axes from fb.resnet.torch. Deviation: the result
  is clipped to [0, 1].
standardise_as: networks here normalise all images by one mean and deviation, in their first
  layer. This transform is for images of a second data set with different constants.
blur: SimCLR, appendix A. https://github.com/google-research/simclr at 244e712,
  data_util.py. Deviation: images are mirrored at the border, as in torchvision; in the
  reference, pixels beyond the border are black.
gaussian_noise: Rusak et al., "A simple way to make neural networks robust against diverse
  image corruptions", ECCV 2020, https://arxiv.org/abs/2001.06057.
  https://github.com/bethgelab/game-of-noise at 2989b43. Deviation: each image stays clean
  with some probability; in the reference, half of each batch stays clean.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jbias import errors
from jbias.augment import options, random_numbers

Image = Float[Array, "h w 3"]
Planes = Float[Array, "3 h w"]
Map = Float[Array, "h w c"]
RGB = Sequence[float]  # One value or three.
Range = tuple[float, float]
LUMA = (0.2989, 0.587, 0.114)


def colour_jitter(
    *,
    brightness: float = 0.4,
    contrast: float = 0.4,
    saturation: float = 0.4,
    hue: float = 0.1,
    p: float = 1.0,
) -> options.Transform:
    """Return a transform that randomly changes the colours of each image with probability p.

    Changes of brightness, contrast and saturation replace x by f x + (1 - f) d, clipped to
    [0, 1]. Here f ~ U(max(0, 1 - s), 1 + s), where s is the option's value, and d is black for
    brightness, the image's mean grey for contrast, and each pixel's grey for saturation. The
    hue is rotated by U(-hue, hue) of a full circle. The order of the four changes is random
    for each image. With all four at 0, or p=0, images do not change.
    ValueError for negative options, a hue above 0.5, and p above 1.
    """
    strengths = dict(brightness=brightness, contrast=contrast, saturation=saturation)
    errors.check_range("colour_jitter", 0, math.inf, **strengths)
    errors.check_range("colour_jitter", 0, 0.5, hue=hue)
    errors.check_range("colour_jitter", 0, 1, p=p)
    is_identity = all(options.is_statically(s, 0) for s in (*strengths.values(), hue))

    def jitter(image: Image, key) -> Image:
        """Return an image after the four changes in random order, or unchanged.

        The image is unchanged with probability 1 - p. key: random key.
        """
        gate, share, turn, place = random_numbers.uniforms(key, (), (3,), (), (4,))
        s = jnp.stack([jnp.asarray(s, image.dtype) for s in strengths.values()])
        low = jnp.maximum(1 - s, 0)
        factors = jnp.append(low + share * (1 + s - low), 1.0)
        shift, order = hue * (2 * turn - 1), jnp.argsort(place)

        def step(i, x):
            new = blend(x, order[i], factors[order[i]])
            if options.is_statically(hue, 0):
                return new
            return jnp.where(order[i] == 3, rotate_hue(x, shift), new)

        # Channels come first, because a CPU vectorises along the last axis.
        jittered = jax.lax.fori_loop(0, 4, step, jnp.moveaxis(image, -1, 0))
        return jnp.where(gate < p, jnp.moveaxis(jittered, 0, -1), image)

    return options.each_image(jitter, p=0 if is_identity else p)


def luminance(planes: Planes) -> Float[Array, "h w"]:
    """Return the grey value 0.2989 R + 0.587 G + 0.114 B of each pixel."""
    return sum(share * plane for share, plane in zip(LUMA, planes))


def blend(planes: Planes, which: Array, factor: Float[Array, ""]) -> Planes:
    """Return f x + (1 - f) d, clipped to [0, 1], with f the factor and x the planes.

    which: 0: d is black; 1: d is the image's mean grey; 2: d is each pixel's grey;
      3: returns x.
    """
    grey = luminance(planes)
    d = jnp.where(which == 2, grey, jnp.where(which == 1, jnp.mean(grey), 0))
    mixed = jnp.clip(factor * planes + (1 - factor) * d[None], 0, 1)
    return jnp.where(which == 3, planes, mixed)


def rotate_hue(planes: Planes, shift: Float[Array, ""]) -> Planes:
    """Return the image with its hue rotated by `shift`, a share of the full circle.

    Value and saturation do not change. Each channel is
    v - (v - low) clip(min(k, 4 - k), 0, 1), k = (n + 6 h) mod 6 with n = 5, 3, 1 for red,
    green, blue: the conversion to HSV and back in one formula. v and low are the pixel's
    largest and smallest channel, h the rotated hue.
    """
    red, green, blue = planes
    high, low = jnp.max(planes, 0), jnp.min(planes, 0)
    span = jnp.where(high == low, 1, high - low)
    other = jnp.where(high == green, 2 + (blue - red) / span, 4 + (red - green) / span)
    sixth = jnp.where(high == red, (green - blue) / span, other)

    def channel(n: int) -> Array:
        k = n + sixth + 6 * shift
        k = k - 6 * jnp.floor(k / 6)  # k % 6 is slow on a CPU.
        return high - (high - low) * jnp.clip(jnp.minimum(k, 4 - k), 0, 1)

    return jnp.stack([channel(n) for n in (5, 3, 1)])


def grayscale(*, p: float = 0.2) -> options.Transform:
    """Return a transform that makes each image grey with probability p.

    Grey is 0.2989 R + 0.587 G + 0.114 B. ValueError unless p is in [0, 1].
    """
    errors.check_range("grayscale", 0, 1, p=p)

    def to_grey(image, key):
        grey = luminance(jnp.moveaxis(image, -1, 0))[..., None]
        return jnp.where(jax.random.bernoulli(key, p), grey, image)

    return options.each_image(to_grey, p=p)


# Deviations of ImageNet's colours along each axis, and the axes, as columns.
_COLOUR_DEVIATIONS = (0.2175, 0.0188, 0.0045)
_COLOUR_AXES = (
    (-0.5675, 0.7192, 0.4009),
    (-0.5808, -0.0045, -0.8140),
    (-0.5836, -0.6948, 0.4203),
)


def lighting(*, std: float = 0.1) -> options.Transform:
    """Return a transform that shifts colours: x' = x + sum_i a_i l_i e_i, clipped to [0, 1].

    a_i ~ N(0, std^2) for each image; e_i are the principal axes of ImageNet's colours and
    l_i the standard deviations along them. ValueError if `std` is negative.
    """
    errors.check_range("lighting", 0, math.inf, std=std)
    scaled = np.float32(_COLOUR_AXES) * np.float32(_COLOUR_DEVIATIONS)

    def shift_colours(image, key):
        shift = jnp.sum(scaled * (std * jax.random.normal(key, (1, 3))), 1)
        return jnp.clip(image + shift[None, None], 0, 1)

    return options.each_image(shift_colours, std=std)


def standardise_as(
    *, mean: RGB, std: RGB, as_mean: RGB, as_std: RGB
) -> options.Transform:
    """Return a transform that maps images x to (x - mean) / std * as_std + as_mean.

    The result is not clipped. The network's first layer maps the result to (x - mean) / std.
    mean, std: normalisation of the data set. as_mean, as_std: normalisation of the network.
      Each is a sequence of one value, or of one value per channel; ValueError for a wrong
      length, and for a standard deviation that is not positive.
    """
    constants = dict(mean=mean, std=std, as_mean=as_mean, as_std=as_std)
    for name, values in constants.items():
        if len(values) not in (1, 3) or ("std" in name and min(values) <= 0):
            must = f"standardise_as: {name} must be one or three numbers"
            raise ValueError(f"{must}, deviations above 0, got {values}; change {name}")
    mean, std, as_mean, as_std = (jnp.float32([[[x]]]) for x in constants.values())

    def apply(batch, key):
        return {**batch, "image": (batch["image"] - mean) / std * as_std + as_mean}

    return apply


def blur(
    *, sigma: Range = (0.1, 2.0), kernel: float = 0.1, p: float = 0.5
) -> options.Transform:
    """Return a transform that blurs each image by a Gaussian with probability p.

    sigma: range of the Gaussian's standard deviation in pixels, uniform.
    kernel: width of the filter as a share of the image's height h: the filter has 2 r + 1
      points a side, r = floor(h kernel) // 2, but at least 1.
    ValueError for options out of range: sigma below 0.001 or descending, kernel or p outside
    [0, 1].
    """
    errors.check_range("blur", 1e-3, math.inf, sigma=sigma[0])
    errors.check_range("blur", sigma[0], math.inf, sigma=sigma[1])
    errors.check_range("blur", 0, 1, kernel=kernel, p=p)

    def blur_image(image: Image, key) -> Image:
        k_gate, k_sigma = jax.random.split(key)
        spread = jax.random.uniform(k_sigma, minval=sigma[0], maxval=sigma[1])
        radius = max(1, int(image.shape[0] * kernel) // 2)
        blurred = gaussian_blur(image, spread, radius)
        return jnp.where(jax.random.bernoulli(k_gate, p), blurred, image)

    return options.each_image(blur_image, p=p)


def gaussian_blur(image: Map, sigma: Float[Array, ""], radius: int) -> Map:
    """Return the map convolved with a Gaussian along both axes, clipped to [0, 1].

    The Gaussian is exp(-i^2 / 2 sigma^2) for |i| <= radius pixels, divided by its sum. Edges are
    mirrored.
    """
    i = jnp.arange(-radius, radius + 1)
    weights = jnp.exp(-(i**2) / (2 * sigma**2))
    weights /= jnp.sum(weights)
    for axis in (0, 1):
        pad = [(radius, radius) if a == axis else (0, 0) for a in range(3)]
        length = image.shape[axis]
        padded = jnp.pad(image, pad, mode="reflect")
        image = sum(
            weight * jax.lax.slice_in_dim(padded, k, k + length, axis=axis)
            for k, weight in enumerate(weights)
        )
    return jnp.clip(image, 0, 1)


def gaussian_noise(
    *, sigma: float | Sequence[float] = 0.5, p: float = 0.5
) -> options.Transform:
    """Return a transform that adds noise: x' = clip(x + sigma n, 0, 1), n ~ N(0, 1).

    sigma: standard deviation, for images in [0, 1]. Of several values, one is drawn for each
      image, all equally likely. The paper uses 0.5 and (0.08, 0.12, 0.18, 0.26, 0.38).
    p: probability that an image gets noise.
    ValueError for a negative or an empty sigma, and for p outside [0, 1].
    """
    sigmas = tuple(sigma) if isinstance(sigma, Sequence) else (sigma,)
    for value in sigmas:
        errors.check_range("gaussian_noise", 0, math.inf, sigma=value)
    if not sigmas:
        must = "gaussian_noise: sigma must be a number or several"
        raise ValueError(f"{must}, got none; give one")
    errors.check_range("gaussian_noise", 0, 1, p=p)

    def noisy(x, k):
        k_gate, k_sigma, k_noise = jax.random.split(k, 3)
        scale = jax.random.choice(k_sigma, jnp.asarray(sigmas, x.dtype))
        noise = scale * jax.random.normal(k_noise, x.shape, x.dtype)
        return jnp.where(jax.random.bernoulli(k_gate, p), jnp.clip(x + noise, 0, 1), x)

    return options.each_image(noisy, p=p)
