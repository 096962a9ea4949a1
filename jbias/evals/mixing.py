"""What mixed images do to a network: affinity, diversity and MixDiversity.

Each image is shown mixed with another, by the draws that training has (jbias.augment). The
label of a mixed image is that of the one with the larger share, its majority label.

Source: Gontijo-Lopes, Smullin, Cubuk and Dyer, ICLR 2021, https://arxiv.org/abs/2002.08973
(affinity, diversity); Marcu and Pruegel-Bennett, https://arxiv.org/abs/2110.13968
(MixDiversity, and the protocol of mixed images).
Deviations: each image has a share, mask and partner of its own, keyed by its number in the
set, where training draws one share for a batch: the same means, of less variance. Losses
are of the finished network in evaluation mode, not of the last epoch of its training.
CutMix is the variant "torchbearer", as there.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from jbias.augment import cutmix, fmix, geometric, mixup, options
from jbias.evals import decisions, occlusion, probe

METHODS = ("mixup", "cutmix", "fmix")
SHARED = "by share"  # Ends the name of the condition that MixDiversity is counted of.


def make(
    *,
    others: probe.Partners,
    methods: Sequence[str] = METHODS,
    alpha: float = 1.0,
    spectrum: str = "isotropic",
    crop: int = 0,
    mirror: bool = False,
    seed: int = 0,
) -> probe.Probe:
    """Shows images as they are, and mixed with `others` by each of the methods.

    alpha: of the share's distribution, Beta(alpha, alpha). spectrum: of FMix's masks
    (jbias.augment.fmix). crop, mirror: mixed images are made of images that were shifted
    by up to so many pixels, and mirrored half of the time, as in training. They are for
    diversity; affinity is of test images as they are. ValueError for anything else.

    Under the condition "mixup" the image is the one with the larger share. Under "mixup
    by share" it is either, with its share as the chance, and likewise for the other
    methods. That suffices for MixDiversity without the partner's label: with roles drawn
    so, E[CE(z, y)] = E[lam CE(z, y_first) + (1 - lam) CE(z, y_second)], as each image of
    a random ordered pair is as likely to be first. Partners of another set have no label
    here: then it is the reformulated loss, lam ~ Beta(alpha + 1, alpha) of the image.
    """
    probe.check_choices("mixing", "methods", methods, METHODS)
    positive = isinstance(alpha, int | float) and 0 < alpha < float("inf")
    probe.check(positive, "mixing", "alpha must be above 0", alpha)
    options.check_choice("mixing", "spectrum", spectrum, fmix.SPECTRA)
    whole = type(crop) is int and crop >= 0
    probe.check(whole, "mixing", "crop must be 0 pixels or more", crop)
    drawing = {"mixup": mixup.mix_sampler(alpha)}
    drawing["cutmix"] = cutmix.mix_sampler(alpha, "torchbearer")
    drawing["fmix"] = fmix.mix_sampler(alpha, spectrum=spectrum)
    moves = [geometric.pad_crop(pad=crop)] * (crop > 0)
    moves += [geometric.flip()] * bool(mirror)

    def show(rows: probe.Rows, params: Any, method: str) -> probe.Images:
        if not method:
            return rows.image

        def mixed(image: Float[Array, "h w 3"], key: PRNGKeyArray) -> Array:
            k_mix, k_role, k_other, *k_moves = jax.random.split(key, 5)
            other = jax.random.randint(k_other, (), 0, len(params["others"]))
            partner = params["others"][other].astype(jnp.float32) / 255
            both = [{"image": x[None]} for x in (image, partner)]
            for place, move in enumerate(moves):
                keys = [jax.random.fold_in(k, place) for k in k_moves]
                both = [move(x, k) for x, k in zip(both, keys, strict=True)]
            image, partner = (x["image"][0] for x in both)
            mask, lam = drawing[method](k_mix, {"image": image[None]}, False)
            by_share = jax.random.uniform(k_role) < lam
            first = jnp.where(params["by_share"], by_share, lam >= 0.5)
            own = jnp.where(first, mask[0], 1 - mask[0])
            return own * image + (1 - own) * partner

        keys = occlusion.image_keys(seed, params["salt"], rows.index)
        return jax.vmap(mixed)(rows.image, keys)

    conditions = _Conditions(others, tuple(methods))
    counted = functools.partial(numbers, methods=tuple(methods))
    return probe.Probe(conditions, show, counted, static=_method, graded=True)


def _method(condition: str) -> str:
    return condition.removesuffix(SHARED).strip()


class _Conditions(Mapping):
    """What `show` takes, by condition; partners are read when one is first asked for."""

    def __init__(self, others: probe.Partners, methods: tuple[str, ...]):
        self._others = others
        self._names = ["", *methods, *(f"{name} {SHARED}" for name in methods)]

    def __getitem__(self, name: str) -> dict[str, Array]:
        if name not in self._names:
            raise KeyError(f"{name!r}; known: {', '.join(self._names)}")
        own = {"salt": occlusion.salt(_method(name))}
        own["by_share"] = np.bool_(name.endswith(SHARED))
        return own | {"others": occlusion.images_on_device(self._others)}

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@decisions.per_rule
def numbers(
    by: decisions.ByName, *, methods: Sequence[str] = METHODS
) -> Iterator[decisions.Number]:
    """Of each method accuracy, affinity, diversity and mix_diversity; accuracy of "".

    affinity: accuracy on mixed images, by the majority label, minus that on the images
      themselves, in percentage points. Of a network trained without mixing and test images.
    diversity: the mean cross-entropy of the majority label, in nats, over mixed images. Of
      a network trained with that mixing and its training images.
    mix_diversity: the mean of lam CE(y) + (1 - lam) CE(y'), likewise.
    A likelihood below the smallest normal float32 counts as that: 87.3 nats.
    """
    right = {}
    for name in ("", *methods):
        yield (one := decisions.mean("accuracy", by[name].right, name))
        right[name] = one.value
    for name in methods:
        affinity = 100 * (right[name] - right[""])
        yield decisions.Number("affinity", affinity, None, one.n, name)
        losses = dict(diversity=by[name], mix_diversity=by[f"{name} {SHARED}"])
        for metric, decided in losses.items():
            yield decisions.Number(metric, _loss(decided), None, one.n, name)


def _loss(decided: decisions.Decisions) -> float | None:
    known = decided.columns["label"] >= 0
    likelihood = np.asarray(decided.columns["likelihood"], np.float64)[known]
    return decisions.cross_entropy(likelihood) if len(likelihood) else None
