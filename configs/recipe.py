r"""Improved recipes for ERM: `recipe=a1`, `a2`, `a3`, `v2`, or `pod` for TPU pods.

    jbias train --config=configs/recipe.py:recipe=a2
    jbias train --config=configs/recipe.py:recipe=a3,data=imagenet,root=DIR
    jbias train --config=configs/recipe.py:recipe=pod,data=imagenet,root=DIR

a1, a2, a3: "ResNet strikes back" (Wightman, Touvron and Jegou, arXiv:2110.00476): LAMB,
    cosine, MixUp and CutMix, RandAugment, binary cross-entropy with a threshold of 0.2;
    600, 300, 100 epochs.
v2: torchvision's second weights (https://pytorch.org/blog, "How to Train
    State-Of-The-Art Models", 2021): SGD, cosine, label smoothing, MixUp and CutMix,
    random erasing, a moving average; 600 epochs.
pod: batches of 8192 for many devices, or of `batch=`; the rate follows. LARS (You, Gitman
    and Ginsburg, arXiv:1708.03888) with the constants of MLPerf's reference for ResNet-50
    at 8192 images (mlcommons/training, image_classification/tensorflow2;
    mlcommons/logging, rcp_checker/training_1.0.0/rcps_resnet.json): rate
    17 sqrt(batch / 8192) after 5 epochs of warm-up, falling quadratically to 1e-4, decay
    2e-4, label smoothing 0.1, batch norm over 64 images; 44 epochs, to 75.9 %. The square
    root is ours: their rates, 8.5, 10, 17 and 21.2 at 2048, 4096, 8192 and 32768, grow
    slower than the batch, and the largest batches warm up longer. `optimiser=sgd` is Goyal et
    al., "ImageNet in 1 Hour" (arXiv:1706.02677): rate 0.1 batch / 256 after 5 epochs of
    warm-up, divided by ten after 30, 60 and 80 of 90 epochs, decay 1e-4, Nesterov momentum,
    batch norm over 32 images. Neither decays biases and norms. If a device cannot hold its
    share of the batch, set --config.train.accumulate.

Cost: 1.0 of ERM per step. Deviations: no stochastic depth and no repeated augmentation.
RandAugment has torchvision's operations, without timm's random spread of strengths (timm's
level of 7 of 10 is 21 of 30), and replaces torchvision's TrivialAugment in v2. The average
of v2 moves a 32nd as far in every step (torchvision: every 32 steps). The image size is the
data preset's (a3 trains at 160 and v2 at 176 pixels: --config.size). On other data than
ImageNet, epochs and batches are the data preset's, and LAMB's rates the paper's.
In pod LARS divides by |g + decay w|, the reference by |g| + decay |w|; the warm-up starts
at 0, Goyal's at 0.1; residual branches start with a scale of 1, Goyal's with 0.
a1 smooths labels before comparing them with 0.2, which selects the classes that have a
share of about 0.22 or more in a mixture.
"""

import math

import ml_collections

from jbias import config as jc
from jbias import errors
from jbias.configs import common

RECIPES = {
    "a1": dict(epochs=600.0, rate=5e-3, decay=0.01, mixup=0.2, level=21, smooth=0.1),
    "a2": dict(epochs=300.0, rate=5e-3, decay=0.02, mixup=0.1, level=21, smooth=0.0),
    "a3": dict(epochs=100.0, rate=8e-3, decay=0.02, mixup=0.1, level=18, smooth=0.0),
}


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config.

    arg: `recipe`, with recipe=pod also `batch` (0: 8192 on ImageNet) and `optimiser` (lars,
    sgd), and the arguments of configs/common.py.
    """
    explicit = jc.explicit_arguments(arg)
    chosen, arg = common.take_arguments(arg, recipe="a2", batch=0, optimiser="lars")
    if chosen.recipe == "pod":
        return _pod(arg, chosen.batch, chosen.optimiser)
    pod_only = explicit & {"batch", "optimiser"}
    if pod_only:
        raise ValueError(
            f"config argument: {min(pod_only)!r} is not used with "
            f"recipe={chosen.recipe}; it is used with recipe=pod"
        )
    if chosen.recipe == "v2":
        return _v2(arg)
    known = ("a1", "a2", "a3", "v2", "pod")
    errors.check_choice("config argument", chosen.recipe, known, name="recipe")
    recipe = RECIPES[chosen.recipe]
    inputs = [dict(name="rand_augment", magnitude=recipe["level"])]
    if recipe["smooth"]:
        inputs.append(dict(name="smooth_labels", smoothing=recipe["smooth"]))
    inputs += [
        dict(name="one_of", alphas=(recipe["mixup"], 1.0)),
        dict(name="binary_targets", threshold=0.2),
    ]
    imagenet = dict(epochs=recipe["epochs"], train=dict(batch=2048))
    c = common.experiment(arg, dict(name="erm"), inputs=inputs, imagenet=imagenet)
    c.variant = chosen.recipe
    c.optim = dict(
        name="lamb",
        rate=recipe["rate"],
        decay=recipe["decay"],
        schedule=dict(name="cosine"),
        warmup=_warmup(arg),
        average=0.0,
        sharpness=c.optim.sharpness.to_dict(),
    )
    return c


def _warmup(arg: str) -> str:
    """Return "5 epochs" for ImageNet; "" for other data and for smoke runs."""
    on_imagenet = common.data_name(arg) == "imagenet"
    is_smoke = "smoke" in jc.explicit_arguments(arg)
    return "5 epochs" if on_imagenet and not is_smoke else ""


def _v2(arg: str) -> ml_collections.ConfigDict:
    """Return the config of recipe=v2."""
    inputs = (
        dict(name="rand_augment", magnitude=9),
        dict(name="random_erasing", p=0.1),
        dict(name="smooth_labels", smoothing=0.1),
        dict(name="one_of", alphas=(0.2, 1.0)),
    )
    optim = dict(
        rate=0.5,
        decay=2e-5,
        warmup="5 epochs",
        average=0.999966,
        schedule=dict(name="cosine"),
    )
    imagenet = dict(epochs=600.0, train=dict(batch=1024), optim=optim)
    c = common.experiment(arg, dict(name="erm"), inputs=inputs, imagenet=imagenet)
    c.variant = "v2"
    c.optim.decay_all = False
    c.optim.average = c.optim.average or 0.99
    return c


PODS = {
    "lars": dict(
        imagenet=dict(epochs=44.0, train=dict(batch=8192), model=dict(norm_group=64)),
        rate=lambda batch: 17 * math.sqrt(batch / 8192),
        optim=dict(
            momentum=0.9,
            decay=2e-4,
            schedule=dict(name="polynomial", power=2.0, end=1e-4),
        ),
        inputs=(dict(name="smooth_labels", smoothing=0.1),),
    ),
    "sgd": dict(
        imagenet=dict(epochs=90.0, train=dict(batch=8192), model=dict(norm_group=32)),
        rate=lambda batch: 0.1 * batch / 256,
        optim=dict(
            momentum=0.9,
            decay=1e-4,
            nesterov=True,
            decay_all=False,
            schedule=dict(name="multistep", milestones=(1 / 3, 2 / 3, 8 / 9)),
        ),
        inputs=(),
    ),
}


def _pod(arg: str, batch: int, optimiser: str) -> ml_collections.ConfigDict:
    """Return the config of recipe=pod; `batch` 0 is the data preset's."""
    if optimiser not in PODS:
        raise ValueError(
            f"config argument: optimiser must be lars or sgd, got {optimiser!r}"
        )
    pod = PODS[optimiser]
    c = common.experiment(
        arg, dict(name="erm"), inputs=pod["inputs"], imagenet=pod["imagenet"]
    )
    c.variant = "pod" if optimiser == "lars" else "pod_sgd"
    c.train.batch = batch or c.train.batch
    c.optim = dict(
        pod["optim"],
        name=optimiser,
        rate=pod["rate"](c.train.batch),
        warmup=_warmup(arg),
        average=0.0,
        sharpness=c.optim.sharpness.to_dict(),
    )
    return c
