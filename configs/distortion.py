r"""Training as in the data distortion paper (Marcu and Pruegel-Bennett, ICML 2022,
arXiv:2110.13968): plain, and with four ways to mix images. Cost: 1.0 of ERM each.

    jbias train --config=configs/distortion.py:method=fmix,data=cifar10,root=DIR

PreAct-ResNet18, SGD with 0.1, a tenth after half and three quarters of 200 epochs,
momentum 0.9, decay 1e-4, batches of 128, five seeds; shifts by up to 4 pixels and flips
(Tiny ImageNet flips alone, MNIST shifts alone); alpha 1, FMix's decay 3; images normalised
by the constants of the paper's code. 98 % of the training images train, the rest
validates; the paper trains on all. On ImageNet it measures published ResNet-101s, which
`evaluate` imports; the recipe there is that of FMix's authors. The embedded set keeps its
preset's epochs and batch.

The paper's other networks are model=bagnet9, bagnet17 and vgg16_bn. VGGs have its head
here: one linear layer on 512 means, no dropout. They need 32 pixels, so images of MNIST
and Fashion-MNIST get a black frame of 2, as with size=32 for any network.

Beside the arguments of configs/common.py:

:method=basic       basic, mixup, cutmix (a centre for each image, labels by the share
                    drawn), fmix, rm (three masks a seed)
:spectrum=isotropic of FMix's and RM's masks; `released` is that of the authors' code
:partner=same       labels stay and the share of the image itself is from Beta(2, 1), the
                    reformulated objective; `same` mixes with the set itself, cifar10,
                    cifar100, mnist or fashion_mnist with images of that set, which lies
                    at `partner_root`. Of 28 pixels they are padded to 32 with black and
                    then shifted and cut to 32, where the paper's code shifts and cuts
                    at 28 and pads afterwards: up to 2 rows and columns more stay. All
                    are normalised by constants of their own
:drop=truck         trains and tests without a class, or several: truck+ship
:keep=FILE          trains and validates on these images of the training set alone
                    (docs/data.md)
:mix_group=0        among how many neighbours of a batch partners are drawn; 0 is all,
                    as published, which one device must hold
:small              two cores, minutes: a quarter of the width, a tenth of the training
                    images, 10 epochs, five seeds; tests on all images
:smoke              every part once: an eighth of the width, a hundredth of the training
                    and a twentieth of the test images, two epochs, two seeds

With data=stacked a method mixes digits alone, and labels stay. What a run trains on is
its variant: mixup, mixup-with-fashion_mnist, fmix-without-truck, basic-kept-tail.
"""

import os
import types
from collections.abc import Mapping
from typing import Any

import ml_collections

from jbias import config as jc
from jbias.configs import common

CIFAR = dict(mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010))
GREY = dict(mean=(0.1307,) * 3, std=(0.3081,) * 3)
CONSTANTS = {  # Other sets are normalised as ImageNet.
    **dict.fromkeys(("cifar10", "cifar100", "stacked"), CIFAR),
    **dict.fromkeys(("mnist", "fashion_mnist"), GREY),
}
SHIFT, FLIP = dict(name="pad_crop", pad=4), dict(name="flip")
METHODS = {
    "basic": None,
    "mixup": dict(name="mixup"),
    "cutmix": dict(name="cutmix", variant="torchbearer"),
    "fmix": dict(name="fmix", decay=3.0),
    "rm": dict(name="random_masks", count=3, decay=3.0),
}
PARTNERS = ("same", "cifar10", "cifar100", "mnist", "fashion_mnist")
SMALL_IMAGES = ("cifar10", "cifar100", "mnist", "fashion_mnist", "stacked")
SMALL_IMAGES += ("tiny_imagenet",)
# Channels of the first stage, images in percent, epochs, seeds.
REDUCED = {
    "small": dict(width=16, train=10, test=100, epochs=10.0, seeds=5),
    "smoke": dict(width=8, train=1, test=5, epochs=2.0, seeds=2),
}
DIGITS = ("mnist", "fashion_mnist")  # Of 28 pixels.
MULTISTEP = dict(name="multistep", milestones=(0.5, 0.75), gamma=0.1)
# ResNet-101 as FMix's authors train it; see configs/fmix.py.
STEPS = dict(name="multistep", milestones=(1 / 3, 2 / 3, 8 / 9), gamma=0.1)
IMAGENET = dict(optim=dict(rate=0.4, warmup="5 epochs", schedule=STEPS))


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """The experiment; see above for `arg`."""
    own, rest = common.take_arguments(
        arg,
        **dict(method="basic", spectrum="isotropic", mix_group=0, small=False),
        **dict.fromkeys(("partner", "partner_root", "drop", "keep"), ""),
    )
    data, given = common.data_name(rest), jc.explicit_arguments(rest)
    _check(own, data, given)
    model = "resnet101" if data == "imagenet" else "preact_resnet18"
    usual = {"model": model, "seeds": 1 if data == "imagenet" else 5}
    short = "small" if own.small else "smoke" if "smoke" in given else ""
    if short:
        usual["seeds"] = REDUCED[short]["seeds"]
    if data in DIGITS and "model=vgg" in rest:
        usual["size"] = 32
    rest = [rest, *(f"{k}={v}" for k, v in usual.items() if k not in given)]
    rest = ",".join(filter(None, rest))
    c = common.experiment(rest, dict(name="erm"), imagenet=IMAGENET)
    if data != "imagenet":
        common.update(c, dict(optim=dict(rate=0.1, decay=1e-4, schedule=MULTISTEP)))
    if data in SMALL_IMAGES:
        _protocol(c, data, given)
    if short and data in SMALL_IMAGES:
        _reduce(c, given, REDUCED[short])
    with c.unlocked():
        c.model.update(CONSTANTS.get(data, {}))
    _mixed(c, own, data)
    _chosen(c, own, data)
    c.variant = "+".join(filter(None, (_label(own), c.variant)))
    return c


def _check(own: types.SimpleNamespace, data: str, given: set[str]) -> None:
    """Refuses arguments that have no meaning, or none together."""
    for name, value, known in (
        ("method", own.method, tuple(METHODS)),
        ("partner", own.partner, ("", *PARTNERS)),
        ("spectrum", own.spectrum, ("isotropic", "released")),
    ):
        jc.check_known("config argument", value, known, name)
    said = ""
    if own.partner and own.method == "basic":
        said = "partner needs a method that mixes, got method=basic"
    elif own.partner and data == "stacked":
        said = "partner has no say with data=stacked, whose digits mix among themselves"
    elif own.drop and data == "stacked":
        said = "drop has no say with data=stacked, whose digits are of all classes"
    elif own.partner not in ("", "same", data) and data not in ("cifar10", "cifar100"):
        said = f"partner={own.partner} needs data=cifar10 or cifar100, got {data}"
    elif own.partner == data:
        said = f"partner={data} is the training set; take partner=same"
    elif bool(own.partner_root) != (own.partner not in ("", "same")):
        said = "partner and partner_root=<directory> belong together, and same has none"
    elif own.small and ("smoke" in given or data not in SMALL_IMAGES):
        said = f"small needs data=one of {', '.join(SMALL_IMAGES)}, and no smoke"
    if said:
        raise ValueError(f"config argument: {said}")


def _protocol(c: ml_collections.ConfigDict, data: str, given: set[str]) -> None:
    """The paper's, where images are small."""
    if "epochs" not in given:
        c.epochs = 200.0
    common.update(c, dict(model=dict(width=64)))
    if c.model.name.startswith("vgg"):
        common.update(c, dict(model=dict(hidden=0, dropout=0.0)))
    if data in DIGITS and c.size == 32:
        for options in (c.train, c.valid, *c.tests.values()):
            common.update(options, dict(pad=2))
    if data == "tiny_imagenet":
        c.inputs = (FLIP,)
    elif data != "stacked":  # Whose halves the preset shifts and flips.
        c.inputs = (SHIFT,) if data == "mnist" else (SHIFT, FLIP)
    c.train.batch = 128
    c.eval_every = c.save_every = "5 epochs"
    c.train.split, c.valid.split = "train[:98%]", "train[98%:]"
    if "other" in c.train:
        c.train.other.split = c.train.split


def _reduce(
    c: ml_collections.ConfigDict, given: set[str], less: Mapping[str, Any]
) -> None:
    """Less of everything, but of seeds, which are chosen where arguments are read."""
    if "epochs" not in given:
        c.epochs = less["epochs"]
    c.model.width = less["width"]
    c.train.split = f"train[:{less['train']}%]"
    if "other" in c.train:
        c.train.other.split = c.train.split
    if less["test"] < 100:
        for options in c.tests.values():
            options.split = f"{options.split}[:{less['test']}%]"


def _mixed(c: ml_collections.ConfigDict, own: types.SimpleNamespace, data: str) -> None:
    """Adds the method to the inputs, and the second set that it mixes with."""
    if own.method == "basic":
        return
    group = own.mix_group or c.train.batch
    mix = dict(METHODS[own.method], alpha=1.0, mix_group=group)
    if own.method in ("fmix", "rm"):
        mix["spectrum"] = own.spectrum
    if own.partner or data == "stacked":
        mix["reformulated"] = True
    if own.partner not in ("", "same"):
        mix["partner"] = "other"
        pad = 2 if own.partner in DIGITS else 0
        known = dict(data=own.partner, split="train", root=own.partner_root)
        c.train.other = dict(known, **({"pad": pad} if pad else {}))
        inputs, constants = (SHIFT, FLIP), CONSTANTS[own.partner]
        if constants != CONSTANTS[data]:
            named = {f"as_{key}": value for key, value in CONSTANTS[data].items()}
            inputs += (dict(name="standardise_as", **constants, **named),)
        c.train.other.inputs = inputs
    if data == "stacked":
        mix = dict(name="half", which="top", mix=mix, mix_group=group)
    c.inputs = (*c.inputs, mix)


def _chosen(
    c: ml_collections.ConfigDict, own: types.SimpleNamespace, data: str
) -> None:
    """Leaves classes and images out."""
    mine = [c.train, c.valid, *(t for t in c.tests.values() if t.data == data)]
    for options in mine if own.drop else ():
        options.drop = own.drop
    for options in (c.train, c.valid) if own.keep else ():
        options.keep = own.keep


def _label(own: types.SimpleNamespace) -> str:
    stem = os.path.splitext(os.path.basename(own.keep))[0]
    parts = [
        own.method,
        own.partner and f"with-{own.partner}",
        own.drop and f"without-{own.drop}",
        own.keep and f"kept-{stem}",
        "released" if own.spectrum == "released" else "",
    ]
    return "-".join(filter(None, parts))
