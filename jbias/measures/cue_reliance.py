"""Metrics of feature suppression: accuracy on images without shape, texture or colour.

Source: Burgert, Stoll, Rota and Demir, "ImageNet-trained CNNs are not biased towards
texture: Revisiting feature reliance through controlled suppression", NeurIPS 2025,
https://arxiv.org/abs/2509.20234.
Reference code: https://github.com/tomburgert/feature-reliance at bdb101b,
reliance_protocol.py; for accuracy above chance, https://github.com/OliverStoll/Texture-Bias-DL at
a455be8.
Deviations: an image counts as correct if the decision is its class. In the paper's comparison with
human observers, an image counts as correct if the probabilities of the class's members sum to more
than 0.5. A condition that two families have in common, "bilateral 12 shuffle 10", is shown once.
"""

from collections.abc import Iterable, Mapping

from jbias.measures import accuracy, decisions

CLEAN = ""
SIDE = 224  # Pixels of the images that strengths are published for.
GRIDS = (2, 4, 6, 8, 10, 12, 14, 16)  # Tiles per side.
# Sigma of colours, in bytes, by diameter in pixels, for sides of 224 pixels.
BILATERAL: Mapping[int, int] = {4: 50, 6: 80, 8: 110, 10: 140, 12: 170, 14: 200}
# Sigma by the kernel's length, both in pixels, for sides of 224 pixels.
BLUR = {3: 0.33, 5: 0.66, 7: 1.0, 9: 1.33, 11: 1.66, 13: 2.0, 15: 2.33}
_EACH_GRID = [f"shuffle {g}" for g in GRIDS]
_EACH_BILATERAL = [f"bilateral {d}" for d in BILATERAL]


def _named(form: str, strengths: Iterable[float | str]) -> tuple[str, ...]:
    """Return the names of conditions, made from each strength by the format string `form`."""
    return tuple(form.format(strength) for strength in strengths)


# Conditions by family. A condition's name lists its steps in order, each with a strength.
FAMILIES: Mapping[str, tuple[str, ...]] = {
    "people": ("shuffle 3", "shuffle 6", "bilateral 12", "grey 1"),
    "shuffle": tuple(_EACH_GRID),
    "rotation": _named("rotation {}", GRIDS),
    "bilateral": tuple(_EACH_BILATERAL),
    "blur": _named("blur {}", BLUR),
    "non_local_means": _named("non_local_means {}", (5, 10, 15, 20, 25)),
    "grey": _named("grey {:g}", (0.2, 0.4, 0.6, 0.8, 1)),
    "channel_shuffle": ("channel_shuffle 1",),
    "shuffle_grey": _named("{} grey 1", _EACH_GRID),
    "bilateral_shuffle": tuple(map("{} {}".format, _EACH_BILATERAL, _EACH_GRID)),
    "bilateral_12_shuffle": _named("bilateral 12 {}", _EACH_GRID),
    "bilateral_grey": _named("{} grey 1", _EACH_BILATERAL),
}
# Conditions by the missing cue, or by the only cue: first the conditions that observers saw,
# then these two at a time.
CUES: Mapping[str, str] = {
    "no_global_shape": "shuffle 3",
    "no_local_shape": "shuffle 6",
    "no_texture": "bilateral 12",
    "no_colour": "grey 1",
    "shape_alone": "bilateral 12 grey 1",
    "texture_alone": "shuffle 6 grey 1",
    "colour_alone": "bilateral 12 shuffle 6",
}
# Accuracy on 800 images of 16 classes, and relative accuracy under the first four CUES. From a
# summary of the paper. Its text has these, rounded: people's local shape, the standard
# ResNet-50's shape and texture, and local shape of the modern ResNet-50 and of ConvNeXt V2.
PUBLISHED: Mapping[str, tuple[float, ...]] = {
    "humans": (0.969, 0.965, 0.763, 0.979, 0.999),
    "ResNet-50, standard": (0.954, 0.832, 0.276, 0.795, 0.924),
    "ResNet-50, modern": (0.931, 0.943, 0.618, 0.867, 0.948),
    "ConvNeXt V2": (0.940, 0.949, 0.647, 0.925, 0.969),
    "ViT": (0.929, 0.930, 0.636, 0.921, 0.977),
    "CLIP ViT": (0.936, 0.959, 0.758, 0.949, 0.984),
}


def steps(condition: str) -> tuple[tuple[str, float], ...]:
    """Return the steps of a condition, such as "blur 3 grey 1", as pairs (kind, strength).

    () for unchanged images.
    """
    words = condition.split()
    return tuple(zip(words[::2], map(float, words[1::2]), strict=True))


@decisions.per_rule
def numbers(
    by_condition: decisions.ByName,
    *,
    classes: int = 0,
    draws: int = 1000,
    seed: int = 0,
) -> decisions.Numbers:
    """Return accuracies by condition, and relative to the accuracy on unchanged images.

    relative_accuracy: A / A0, which may exceed 1. relative_accuracy_chance, if `classes`, the
    number K of decision classes, is given: (A - 1 / K) / (A0 - 1 / K), which may also be below
    0. Both ratios are undefined if the denominator is not above 0. Except under CLEAN, each of
    these ratios is followed by _lower and _upper, the ends of its 95 % interval by a bootstrap over
    images, with the same samples for all conditions. Under CLEAN, each is followed by _undefined,
    the share of samples in which the ratio is undefined. by_condition: decisions under CLEAN and
    the conditions of `steps`. draws: bootstrap samples.
    """
    counts, drawn, n = accuracy.resample(by_condition, draws=draws, seed=seed)
    clean = [*by_condition].index(CLEAN)
    subtracted = {"relative_accuracy": 0.0}
    if classes:
        subtracted["relative_accuracy_chance"] = n / classes
    numbers = []
    for i, condition in enumerate(by_condition):
        numbers.append(decisions.share("accuracy", counts[i], n, condition))
        for metric, chance in subtracted.items():
            value, drawn_values = (
                decisions.ratio(x[..., i] - chance, x[..., clean] - chance)
                for x in (counts, drawn)
            )
            numbers.append(decisions.quantity(metric, value, n, condition))
            lower, upper, undefined = accuracy.bootstrap_interval(
                metric, drawn_values, n, condition, value=value
            )
            # For unchanged images the ratio is 1, without an interval; the share of undefined
            # samples is the same for all conditions.
            numbers += [undefined] if condition == CLEAN else [lower, upper]
    return numbers
