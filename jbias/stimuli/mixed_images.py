"""Affinity, diversity and MixDiversity of a network on mixed images.

Each image is shown mixed with another image, as in training (jbias.augment). The label of a mixed
image, its majority label, is the label of the image with the larger share.

Source: Gontijo-Lopes, Smullin, Cubuk and Dyer, ICLR 2021, https://arxiv.org/abs/2002.08973
(affinity, diversity); Marcu and Pruegel-Bennett, https://arxiv.org/abs/2110.13968
(MixDiversity, and the protocol of mixed images).
Deviations: each image has a share, mask and partner of its own, keyed by its number in the
set, while training draws one share per batch. The means are the same, with less variance. Losses
are from the trained network in evaluation mode, not of the last epoch of training. CutMix is the
variant "torchbearer", as in the second paper.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jbias import errors
from jbias.augment import cutmix, fmix, geometric, mixup
from jbias.measures import decisions
from jbias.stimuli import occlusion, random_draws, shown

METHODS = ("mixup", "cutmix", "fmix")
SHARED = "by share"  # Ending of the conditions that MixDiversity is computed from.


def make(
    *,
    others: shown.Partners,
    methods: Sequence[str] = METHODS,
    alpha: float = 1.0,
    spectrum: str = "isotropic",
    crop: int = 0,
    mirror: bool = False,
    seed: int = 0,
) -> shown.Stimuli:
    """Return a probe that shows images unchanged, and mixed with `others` by each method.

    others: the set of images to mix with. methods: some of METHODS. alpha: the share of an image is
    drawn from Beta(alpha, alpha). spectrum: the spectrum of FMix's masks, one of
    jbias.augment.fmix.SPECTRA. crop, mirror: shift images by up to `crop` pixels, and mirror
    them with probability 1/2, before they are mixed, as in training; meant for diversity,
    while affinity uses test images without shifts. Metrics: see `numbers`. ValueError for invalid
    options.

    Conditions are "" and two for each method, such as "mixup" and "mixup by share". Under "mixup"
    the image has the larger share and the partner the smaller share. Under "mixup by share" the
    image has the share lam with probability lam, and else the share 1 - lam. MixDiversity needs
    the labels of both images, and the label of the partner is not known here. With these random
    shares the label is not needed: over random pairs, E[CE(z, y_image)] = E[lam CE(z, y_first) +
    (1 - lam) CE(z, y_second)], because each image of a pair is the first image with the same
    probability. If partners are of another set, the result is the reformulated loss of
    jbias.augment.mixing: the mean of CE(z, y_image), where the share of the image is drawn from
    Beta(alpha + 1, alpha).
    """
    errors.check_choices("mixing", methods, METHODS, name="methods")
    is_positive = isinstance(alpha, int | float) and 0 < alpha < float("inf")
    errors.check(is_positive, "mixing", "be above 0", alpha, name="alpha")
    errors.check_choice(
        "mixing", spectrum, fmix.SPECTRA, "change spectrum", name="spectrum"
    )
    is_count = type(crop) is int and crop >= 0
    errors.check(is_count, "mixing", "be 0 pixels or more", crop, name="crop")
    samplers = {
        "mixup": mixup.mix_sampler(alpha),
        "cutmix": cutmix.mix_sampler(alpha, "torchbearer"),
        "fmix": fmix.mix_sampler(alpha, spectrum=spectrum),
    }
    moves = []
    if crop > 0:
        moves.append(geometric.pad_crop(pad=crop))
    if mirror:
        moves.append(geometric.flip())

    def show(rows: shown.Rows, params: Any, method: str) -> shown.Images:
        """Return images mixed with partner images by `method`, or unchanged for "".

        method: one of METHODS, or "". params: an entry of `_Conditions`: "salt" of the random
        draws, "others", the partners as bytes, and "by_share", see `make`.
        """
        if not method:
            return rows.image

        def mix(
            image: Float[Array, "h w 3"], key: PRNGKeyArray
        ) -> Float[Array, "h w 3"]:
            """Return an image mixed with a random partner, after `moves` are applied to both.

            method, params: see `show`.
            """
            k_mix, k_role, k_other, *k_moves = jax.random.split(key, 5)
            other = jax.random.randint(k_other, (), 0, len(params["others"]))
            partner = params["others"][other].astype(jnp.float32) / 255
            pair = [{"image": x[None]} for x in (image, partner)]
            for place, move in enumerate(moves):
                keys = [jax.random.fold_in(k, place) for k in k_moves]
                pair = [move(x, k) for x, k in zip(pair, keys, strict=True)]
            image, partner = (x["image"][0] for x in pair)
            mask, lam = samplers[method](k_mix, {"image": image[None]}, False)
            is_first_by_share = jax.random.uniform(k_role) < lam
            is_first = jnp.where(params["by_share"], is_first_by_share, lam >= 0.5)
            weight = jnp.where(is_first, mask[0], 1 - mask[0])
            return weight * image + (1 - weight) * partner

        keys = random_draws.image_keys(seed, params["salt"], rows.index)
        return jax.vmap(mix)(rows.image, keys)

    return shown.Stimuli(
        _Conditions(others, tuple(methods)),
        show,
        functools.partial(numbers, methods=tuple(methods)),
        static=_method,
        graded=True,
    )


def _method(condition: str) -> str:
    """Return the method of a condition; "" for unchanged images."""
    return condition.removesuffix(SHARED).strip()


class _Conditions(Mapping):
    """Mapping from condition to the arrays for `show`; partner images are read on first use."""

    def __init__(self, others: shown.Partners, methods: tuple[str, ...]):
        self._others = others
        self._names = ["", *methods, *(f"{name} {SHARED}" for name in methods)]

    def __getitem__(self, name: str) -> dict[str, Array]:
        if name not in self._names:
            raise KeyError(f"{name!r}; known: {', '.join(self._names)}")
        return {
            "salt": random_draws.salt(_method(name)),
            "by_share": np.bool_(name.endswith(SHARED)),
            "others": occlusion.images_on_device(self._others),
        }

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@decisions.per_rule
def numbers(
    by_condition: decisions.ByName, *, methods: Sequence[str] = METHODS
) -> Iterator[decisions.Number]:
    """Return accuracies, and the affinity, diversity and mix_diversity of each method.

    by_condition: decisions under "", and for each of `methods`, such as "mixup", under
    "mixup" and "mixup by share".
    accuracy: the share of images decided as their label, under "" and each method.
    affinity: accuracy on mixed images, by the majority label, minus accuracy on unchanged images,
      in percentage points; meant for test images and a network trained without mixing.
    diversity: the mean cross-entropy of the majority label, in nats, over mixed images; meant for
      training images and a network trained with this method.
    mix_diversity: the mean of lam CE(y) + (1 - lam) CE(y'), in nats, over the same images.
    Cross-entropies (CE) are computed by decisions.cross_entropy over images with a class;
    without such images, diversity and mix_diversity are None. Without any images, affinity has
    the value None, too.
    """
    accuracies = {}
    for name in ("", *methods):
        number = decisions.mean("accuracy", by_condition[name].right, name)
        yield number
        accuracies[name], n = number.value, number.n
    for name in methods:
        affinity = None
        if None not in (accuracies[name], accuracies[""]):
            affinity = 100 * (accuracies[name] - accuracies[""])
        yield decisions.Number("affinity", affinity, None, n, name)
        diversity = _loss(by_condition[name])
        yield decisions.Number("diversity", diversity, None, n, name)
        mix_diversity = _loss(by_condition[f"{name} {SHARED}"])
        yield decisions.Number("mix_diversity", mix_diversity, None, n, name)


def _loss(decided: decisions.Decisions) -> float | None:
    """Return the mean cross-entropy in nats over images with a class; None without such images."""
    has_class = decided.columns["label"] >= 0
    likelihood = np.asarray(decided.columns["likelihood"], np.float64)[has_class]
    return decisions.cross_entropy(likelihood) if len(likelihood) else None
