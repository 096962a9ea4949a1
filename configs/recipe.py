r"""Improved recipes for plain training: `recipe=a1`, `a2`, `a3` or `v2`.

    python -m jbias.main --config=configs/recipe.py:recipe=a2
    python -m jbias.main --config=configs/recipe.py:recipe=a3,data=imagenet,root=DIR

a1, a2, a3: "ResNet strikes back" (Wightman, Touvron and Jegou, arXiv:2110.00476): LAMB,
    cosine, MixUp and CutMix, RandAugment, binary cross-entropy with a threshold of 0.2;
    600, 300, 100 epochs.
v2: torchvision's second weights (https://pytorch.org/blog, "How to Train
    State-Of-The-Art Models", 2021): SGD, cosine, label smoothing, MixUp and CutMix,
    random erasing, a moving average; 600 epochs.

Cost: 1.0 of ERM a step. Deviations: no stochastic depth and no repeated augmentation;
RandAugment with torchvision's operations, and without timm's spread of strengths (timm's
level of 7 of 10 is 21 of 30); it stands for torchvision's TrivialAugment in v2, whose
average there moves every 32 steps and here a 32nd as far every step; every size is that of the data
preset (a3 trains at 160 and v2 at 176 pixels: --config.size). Elsewhere than on ImageNet
epochs and batches are those of the data preset; LAMB's rates are the paper's still.
a1 smooths labels and asks then whether they exceed 0.2: it is the classes of a mixture
with a share of about 0.22 or more.
"""

import ml_collections

from configs import common

RECIPES = {
    "a1": dict(epochs=600.0, rate=5e-3, decay=0.01, mixup=0.2, level=21, smooth=0.1),
    "a2": dict(epochs=300.0, rate=5e-3, decay=0.02, mixup=0.1, level=21, smooth=0.0),
    "a3": dict(epochs=100.0, rate=8e-3, decay=0.02, mixup=0.1, level=18, smooth=0.0),
}


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """The experiment; `recipe` beside the arguments of configs/common.py."""
    chosen, rest = common.own(arg, recipe="a2")
    if chosen.recipe == "v2":
        return _v2(rest)
    if chosen.recipe not in RECIPES:
        raise ValueError(
            f"config argument: recipe must be one of a1, a2, a3, v2, got {chosen.recipe!r}"
        )
    r = RECIPES[chosen.recipe]
    inputs = [dict(name="rand_augment", magnitude=r["level"])]
    if r["smooth"]:
        inputs.append(dict(name="smooth_labels", smoothing=r["smooth"]))
    inputs += [
        dict(name="one_of", alphas=(r["mixup"], 1.0)),
        dict(name="binary_targets", threshold=0.2),
    ]
    c = common.experiment(
        rest,
        dict(name="erm"),
        inputs=inputs,
        imagenet=dict(epochs=r["epochs"], train=dict(batch=2048)),
    )
    c.variant = chosen.recipe
    smoke = "smoke" in common.given(rest)
    c.optim = dict(
        name="lamb",
        rate=r["rate"],
        decay=r["decay"],
        schedule=dict(name="cosine"),
        warmup="5 epochs" if common.data_of(rest) == "imagenet" and not smoke else "",
        average=0.0,
    )
    return c


def _v2(arg: str) -> ml_collections.ConfigDict:
    c = common.experiment(
        arg,
        dict(name="erm"),
        inputs=(
            dict(name="rand_augment", magnitude=9),
            dict(name="random_erasing", p=0.1),
            dict(name="smooth_labels", smoothing=0.1),
            dict(name="one_of", alphas=(0.2, 1.0)),
        ),
        imagenet=dict(
            epochs=600.0,
            train=dict(batch=1024),
            optim=dict(
                rate=0.5,
                decay=2e-5,
                warmup="5 epochs",
                schedule=dict(name="cosine"),
                average=0.999966,
            ),
        ),
    )
    c.variant = "v2"
    c.optim.decay_all = False
    c.optim.average = c.optim.average or 0.99
    return c
