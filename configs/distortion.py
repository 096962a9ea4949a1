r"""Training as in the data distortion paper (Marcu and Pruegel-Bennett, ICML 2022,
arXiv:2110.13968): plain, and with four ways to mix images. Cost: 1.0 of ERM each.

    jbias train --config=configs/distortion.py:method=fmix,data=cifar10,root=DIR

PreAct-ResNet18, SGD with 0.1, a tenth after half and three quarters of 200 epochs,
momentum 0.9, decay 1e-4, batches of 128, five seeds; shifts by up to 4 pixels and flips
(only flips for Tiny ImageNet, only shifts for MNIST); alpha 1, FMix's decay 3; images
normalised by the constants of the paper's code. 98 % of the training images train, 2 %
validate; the paper trains on all. For ImageNet the paper measures published ResNet-101s,
which `jbias evaluate` imports; training there follows the recipe of FMix's authors. The
embedded set keeps its preset's epochs and batch.

The paper's other networks are model=bagnet9, bagnet17 and vgg16_bn. VGGs have the paper's
head: one linear layer on 512 means, no dropout. They need 32 pixels, so images of MNIST
and Fashion-MNIST get a black frame of 2 pixels, as with size=32 for any network.

Arguments besides those of configs/common.py:

:method=basic       basic, mixup, cutmix (one centre per image, labels by the drawn
                    share), fmix, rm (three masks per seed)
:spectrum=isotropic spectrum of the masks of FMix and RM; `released` is that of the
                    authors' code
:partner=same       the reformulated objective: labels are not mixed and the share of the
                    image itself is drawn from Beta(2, 1). `same` mixes with images of the
                    training set; cifar10, cifar100, mnist or fashion_mnist with images of
                    that set in `partner_root`. Images of 28 pixels are padded to 32 with
                    black, then shifted and cut to 32; the paper's code shifts and cuts at
                    28 pixels and pads afterwards, which keeps up to 2 rows and columns
                    fewer. Each set is normalised by its own constants
:drop=truck         trains and tests without a class, or without several: truck+ship
:keep=FILE          trains and validates only on these images of the training set
                    (docs/data.md)
:mix_group=0        number of neighbours in a batch among which partners are drawn; 0: the
                    whole batch, as published, which must fit on one device
:small              minutes on two cores: a quarter of the width, a tenth of the training
                    images, 10 epochs, five seeds; tests on all images
:smoke              runs every part once: an eighth of the width, a hundredth of the
                    training and a twentieth of the test images, two epochs, two seeds

With data=stacked only the digits are mixed, and labels are not. The run's variant names
what it was trained on: mixup, mixup-with-fashion_mnist, fmix-without-truck,
basic-kept-tail.
"""

import os
import types
from collections.abc import Mapping
from typing import Any

import ml_collections

from jbias import config as jc
from jbias import errors
from jbias.configs import common

CIFAR = dict(mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010))
GREY = dict(mean=(0.1307,) * 3, std=(0.3081,) * 3)
CONSTANTS = {  # Other sets are normalised by the constants of ImageNet.
    "cifar10": CIFAR,
    "cifar100": CIFAR,
    "stacked": CIFAR,
    "mnist": GREY,
    "fashion_mnist": GREY,
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
SMALL_IMAGES = (
    "cifar10",
    "cifar100",
    "mnist",
    "fashion_mnist",
    "stacked",
    "tiny_imagenet",
)
# Channels of the first stage, percent of training and test images, epochs, seeds.
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
    """Return the experiment's config; the top of this file documents `arg`."""
    own, other_arguments = common.take_arguments(
        arg,
        method="basic",
        spectrum="isotropic",
        mix_group=0,
        small=False,
        partner="",
        partner_root="",
        drop="",
        keep="",
    )
    data = common.data_name(other_arguments)
    explicit = jc.explicit_arguments(other_arguments)
    _check(own, data, explicit)
    short = ""
    if own.small:
        short = "small"
    elif "smoke" in explicit:
        short = "smoke"
    on_imagenet = data == "imagenet"
    defaults: dict[str, Any] = {
        "model": "resnet101" if on_imagenet else "preact_resnet18",
        "seeds": 1 if on_imagenet else 5,
    }
    if short:
        defaults["seeds"] = REDUCED[short]["seeds"]
    if data in DIGITS and "model=vgg" in other_arguments:
        defaults["size"] = 32
    arguments = [other_arguments] if other_arguments else []
    for name, value in defaults.items():
        if name not in explicit:
            arguments.append(f"{name}={value}")
    c = common.experiment(",".join(arguments), dict(name="erm"), imagenet=IMAGENET)
    if not on_imagenet:
        common.update(c, dict(optim=dict(rate=0.1, decay=1e-4, schedule=MULTISTEP)))
    if data in SMALL_IMAGES:
        _apply_protocol(c, data, explicit)
    if short and data in SMALL_IMAGES:
        _reduce(c, explicit, REDUCED[short])
    with c.unlocked():
        c.model.update(CONSTANTS.get(data, {}))
    _add_mixing(c, own, data)
    _leave_out(c, own, data)
    c.variant = "+".join(filter(None, (_label(own), c.variant)))
    return c


def _check(own: types.SimpleNamespace, data: str, explicit: set[str]) -> None:
    """Raise ValueError for arguments that are unknown or contradict each other.

    own: the arguments of this file. explicit: names of the other arguments that the user
    wrote.
    """
    for name, value, known in (
        ("method", own.method, tuple(METHODS)),
        ("partner", own.partner, ("", *PARTNERS)),
        ("spectrum", own.spectrum, ("isotropic", "released")),
    ):
        errors.check_known("config argument", value, known, name)
    problem = ""
    if own.partner and own.method == "basic":
        problem = "partner needs a method that mixes, got method=basic"
    elif own.partner and data == "stacked":
        problem = "partner is not used with data=stacked, whose digits are mixed"
    elif own.drop and data == "stacked":
        problem = "drop is not used with data=stacked, whose digits have all classes"
    elif own.partner not in ("", "same", data) and data not in ("cifar10", "cifar100"):
        problem = f"partner={own.partner} needs data=cifar10 or cifar100, got {data}"
    elif own.partner == data:
        problem = f"partner={data} is the training set; take partner=same"
    elif own.partner not in ("", "same") and not own.partner_root:
        problem = f"partner={own.partner} needs partner_root=<directory>"
    elif own.partner in ("", "same") and own.partner_root:
        problem = "partner_root is used only with a partner other than same; add one"
    elif own.small and ("smoke" in explicit or data not in SMALL_IMAGES):
        problem = f"small needs data=one of {', '.join(SMALL_IMAGES)}, and no smoke"
    if problem:
        raise ValueError(f"config argument: {problem}")


def _apply_protocol(
    c: ml_collections.ConfigDict, data: str, explicit: set[str]
) -> None:
    """Set the paper's protocol for small images."""
    if "epochs" not in explicit:
        c.epochs = 200.0
    common.update(c, dict(model=dict(width=64)))
    if c.model.name.startswith("vgg"):
        common.update(c, dict(model=dict(hidden=0, dropout=0.0)))
    if data in DIGITS and c.size == 32:
        for options in (c.train, c.valid, *c.tests.values()):
            common.update(options, dict(pad=2))
    if data == "tiny_imagenet":
        c.inputs = (FLIP,)
    elif data != "stacked":  # The preset shifts and flips the halves of stacked images.
        c.inputs = (SHIFT,) if data == "mnist" else (SHIFT, FLIP)
    c.train.batch = 128
    c.eval_every = c.save_every = "5 epochs"
    c.train.split, c.valid.split = "train[:98%]", "train[98%:]"
    if "other" in c.train:
        c.train.other.split = c.train.split


def _reduce(
    c: ml_collections.ConfigDict, explicit: set[str], reduced: Mapping[str, Any]
) -> None:
    """Set width, images and epochs of a row of REDUCED, but not its seeds."""
    if "epochs" not in explicit:
        c.epochs = reduced["epochs"]
    c.model.width = reduced["width"]
    c.train.split = f"train[:{reduced['train']}%]"
    if "other" in c.train:
        c.train.other.split = c.train.split
    if reduced["test"] < 100:
        for options in c.tests.values():
            options.split = f"{options.split}[:{reduced['test']}%]"


def _add_mixing(
    c: ml_collections.ConfigDict, own: types.SimpleNamespace, data: str
) -> None:
    """Append the method to config.inputs, and set the second set that it mixes with."""
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
        partner = dict(data=own.partner, split="train", root=own.partner_root)
        if own.partner in DIGITS:
            partner["pad"] = 2
        inputs = [SHIFT, FLIP]
        constants = CONSTANTS[own.partner]
        if constants != CONSTANTS[data]:
            standardise = dict(
                name="standardise_as",
                mean=constants["mean"],
                std=constants["std"],
                as_mean=CONSTANTS[data]["mean"],
                as_std=CONSTANTS[data]["std"],
            )
            inputs.append(standardise)
        c.train.other = partner
        c.train.other.inputs = tuple(inputs)
    if data == "stacked":
        mix = dict(name="half", which="top", mix=mix, mix_group=group)
    c.inputs = (*c.inputs, mix)


def _leave_out(
    c: ml_collections.ConfigDict, own: types.SimpleNamespace, data: str
) -> None:
    """Set `drop` and `keep` on the sets that they apply to."""
    if own.drop:
        tests = [test for test in c.tests.values() if test.data == data]
        for options in (c.train, c.valid, *tests):
            options.drop = own.drop
    if own.keep:
        for options in (c.train, c.valid):
            options.keep = own.keep


def _label(own: types.SimpleNamespace) -> str:
    """Return the run's variant, such as fmix-without-truck."""
    stem = os.path.splitext(os.path.basename(own.keep))[0]
    words = [
        own.method,
        own.partner and f"with-{own.partner}",
        own.drop and f"without-{own.drop}",
        own.keep and f"kept-{stem}",
        "released" if own.spectrum == "released" else "",
    ]
    return "-".join(filter(None, words))
