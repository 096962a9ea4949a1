"""The transforms FMix and RM (random masks), which paste large patches of another image.

FMix draws a mask for every batch.
Source: Harris et al., "FMix: Enhancing Mixed Sample Data Augmentation", 2020,
https://arxiv.org/abs/2002.12047.
Reference code: https://github.com/ecs-vlc/FMix at e5991dc.
Deviation: the released code takes real and imaginary parts from the wrong axis, so that
its masks have a single frequency across the width; spectrum="released" reproduces the released
code; the default is the paper's spectrum.

RM (`random_masks`) is FMix with a few masks that are drawn once per run.
Source: Marcu and Prügel-Bennett, "On the Effects of Artificial Data Modification", ICML
2022 (before: "On the Effects of Data Distortion on Model Analysis and Training"),
https://arxiv.org/abs/2110.13968.
Reference code: https://github.com/AntoniaMarcu/Data-Modification at 1cb7717, as bytecode
only.
Deviation: masks have the size of the images, not 32 pixels. The authors' masks have the
"released" spectrum.

Deviation of FMix and RM: partners are drawn inside groups (`jbias.augment.mixing`).
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jbias import errors
from jbias.augment import batch_permutations, mixing, options

Grey = Float[Array, "h w"]
SPECTRA = ("isotropic", "released")


def make(
    *,
    alpha: float = 1.0,
    decay: float = 3.0,
    max_soft: float = 0.0,
    spectrum: str = "isotropic",
    reformulated: bool = False,
    p: float = 1.0,
    partner: str = "batch",
    mix_group: int = 32,
) -> options.Transform:
    """Return the FMix transform: x' = M x + (1 - M) x_partner, with one 0/1 mask M per batch.

    The mean of M is lam ~ Beta(alpha, alpha), which also weights the labels.

    decay: exponent of the spectrum, 1 / f^decay; larger values make larger patches.
    max_soft: width of a soft edge, in [0, 0.5]; see `binarise`.
    spectrum: "isotropic" or "released"; see `field`.
    reformulated, p, partner, mix_group: see mixing.make.
    ValueError for an invalid option.
    """
    return mixing.make(
        "fmix",
        mix_sampler(alpha, decay=decay, max_soft=max_soft, spectrum=spectrum),
        alpha=alpha,
        reformulated=reformulated,
        p=p,
        partner=partner,
        mix_group=mix_group,
    )


def mix_sampler(
    alpha: float,
    *,
    decay: float = 3.0,
    max_soft: float = 0.0,
    spectrum: str = "isotropic",
    where: str = "fmix",
) -> mixing.Sampler:
    """Return a function draw(key, batch, keep_label) -> mixing.Mix, with one random mask per call.

    alpha, decay, max_soft, spectrum: see `make`; ValueError for an unknown spectrum and for
    `max_soft` out of range. where: start of error messages.
    """
    errors.check_range(where, 0, 0.5, max_soft=max_soft)
    errors.check_choice(where, spectrum, SPECTRA, "change spectrum", name="spectrum")

    def draw(key, batch, keep_label):
        """Return a Mix: a random mask (1 h w 1) for all images, and lam, nearly the mask's mean.

        key, batch, keep_label: see mixing.Sampler; only the size of the batch's images is used.
        """
        _, height, width, _ = batch["image"].shape
        k_lam, k_up, k_normal = jax.random.split(key, 3)
        lam = mixing.draw_lambda(k_lam, alpha, keep_label)
        normal = jax.random.normal(k_normal, noise_shape(height, width, spectrum))
        grey = field(normal, height, width, decay=decay, spectrum=spectrum)
        mask = binarise(grey, lam, jax.random.bernoulli(k_up), max_soft=max_soft)
        return mixing.Mix(mask.reshape(1, height, width, 1), lam)

    return draw


def noise_shape(height: int, width: int, spectrum: str) -> tuple[int, int, int]:
    """Return the shape of the normal numbers that `field` needs; arguments: see `field`."""
    if spectrum == "isotropic":
        return height, width // 2 + 1, 2
    # For odd widths the released code has an extra column, of a negative frequency.
    return 2, width // 2 + 1 + width % 2, 2


def field(
    normal: Float[Array, "i j 2"],
    height: int,
    width: int,
    *,
    decay: float = 3.0,
    spectrum: str = "isotropic",
) -> Float[Array, "h w"]:
    """Return a random grey image with large structures, scaled to minimum 0 and maximum 1.

    normal: N(0, 1) numbers n and n', of the shape of `noise_shape`.
    height, width: of the image, in pixels.
    spectrum: "isotropic": the image is the inverse real FFT of
      (n + i n') / max(f, 1 / max(h, w))^decay, with f = sqrt(fx^2 + fy^2) in cycles a
      pixel. "released": the image is the inverse real FFT of
      S[a, c] = n[0, a, c] / g(0, a) + i n[1, a, c] / g(1, a), for a cycles down and c in {0, 1}
      cycles across; higher frequencies across are 0. g(r, a) is the divisor above at
      fy = r / h and fx = a / w.
    """
    isotropic = spectrum == "isotropic"
    down, across = np.fft.fftfreq(height), np.fft.rfftfreq(width)
    if not isotropic:
        down, across = down[:2], np.fft.fftfreq(width)[: normal.shape[1]]
    f = np.sqrt(down[:, None] ** 2 + across[None, :] ** 2)
    scale = np.maximum(f, 1 / max(height, width)) ** -decay
    scaled = jnp.asarray(scale, jnp.float32)[..., None] * normal
    if isotropic:
        real, imaginary = scaled[..., 0], scaled[..., 1]
    else:
        real, imaginary = scaled[0], scaled[1]
    grey = _inverse_fft(jax.lax.complex(real, imaginary), height, width)
    grey = grey - jnp.min(grey)
    return grey / jnp.max(grey)


def _inverse_fft(spectral: Array, height: int, width: int) -> Float[Array, "h w"]:
    """Return the inverse real FFT of a spectrum, cut or padded with zeros to the size.

    Imaginary parts of coefficients that must be real are dropped, as numpy does; FFTs of
    devices treat them differently.
    """
    half = jnp.fft.ifft(spectral, height, axis=0)
    half = half[:, : width // 2 + 1]
    missing = width // 2 + 1 - half.shape[1]
    half = jnp.pad(half, ((0, 0), (0, missing)))
    real = np.zeros(half.shape[1], bool)
    real[0] = True
    real[-1] |= width % 2 == 0
    half = jnp.where(real[None, :], half.real.astype(half.dtype), half)
    return jnp.fft.irfft(half, width, axis=1)


def binarise(
    grey: Grey,
    lam: Float[Array, ""],
    round_up: Bool[Array, ""],
    *,
    max_soft: float = 0.0,
) -> Grey:
    """Return a mask: 1 for the lightest lam h w pixels, 0 for all other pixels.

    lam: share of ones, in [0, 1].
    round_up: True rounds the number of ones up, False down.
    max_soft: if positive, a ramp from 1 to 0 over the ranks of pixels replaces the edge,
      2 floor(h w min(max_soft, lam, 1 - lam)) pixels long.
    """
    n = grey.size
    count = jnp.where(round_up, jnp.ceil(lam * n), jnp.floor(lam * n))
    count = count.astype(jnp.int32)
    rank = ranks(grey.ravel())
    mask = (rank < count).astype(jnp.float32)
    if not options.is_statically(max_soft, 0):
        share = jnp.minimum(max_soft, jnp.minimum(lam, 1 - lam))
        soft = jnp.floor(n * share).astype(jnp.int32)
        ramp = (count + soft - 1 - rank) / jnp.maximum(2 * soft - 1, 1)
        mask = jnp.where(soft > 0, jnp.clip(ramp, 0, 1), mask)
    return mask.reshape(grey.shape)


def ranks(values: Float[Array, "n"]) -> Int[Array, "n"]:
    """Return the rank of each value, 0 for the largest; equal values rank in their order."""
    return batch_permutations.inverse(jnp.argsort(values, descending=True))


def random_masks(
    *,
    count: int = 3,
    alpha: float = 1.0,
    decay: float = 3.0,
    max_soft: float = 0.0,
    spectrum: str = "isotropic",
    reformulated: bool = False,
    p: float = 1.0,
    partner: str = "batch",
    mix_group: int = 32,
) -> options.Transform:
    """Return the RM transform: FMix with `count` fixed pairs of lam and mask.

    Each batch uses one of the pairs, all equally likely. The pairs depend on the random key
    batch["once"], which is the same at every step of a seed; a batch without "once" raises
    ValueError. lam is uniform at alpha = 1, so that the masks of a seed can differ much.

    Other options: see `make`. ValueError for an invalid option.
    """
    errors.check_condition("random_masks", "1 or more", count=count)
    sample = mix_sampler(
        alpha,
        decay=decay,
        max_soft=max_soft,
        spectrum=spectrum,
        where="random_masks",
    )

    def draw(key, batch, keep_label):
        if "once" not in batch:
            must = "random_masks: the batch must have the key 'once', got none"
            raise ValueError(f"{must}; add one that is the same at every step")
        choice = jax.random.randint(key, (), 0, count)
        return sample(jax.random.fold_in(batch["once"], choice), batch, keep_label)

    return mixing.make(
        "random_masks",
        draw,
        alpha=alpha,
        reformulated=reformulated,
        p=p,
        partner=partner,
        mix_group=mix_group,
    )
