"""Networks: a plain backbone each, with named taps. MODELS is the table of contents."""

import os
import types
from collections.abc import Callable, Mapping
from typing import Any

from flax import linen as nn

from jbias.models import (
    adain,
    alexnet,
    bagnet,
    class_names,
    cnn,
    densenet,
    mobilenetv3,
    preact_resnet,
    render,
    resnet,
    small_adain,
    squeezenet,
    vgg,
    vit,
)

MODELS: Mapping[str, Callable[..., nn.Module]] = types.MappingProxyType(
    {
        "cnn": cnn.CNN,
        "resnet18": resnet.resnet18,
        "resnet34": resnet.resnet34,
        "resnet50": resnet.resnet50,
        "resnet101": resnet.resnet101,
        "resnet152": resnet.resnet152,
        "resnext50": resnet.resnext50,
        "vgg11": vgg.vgg11,
        "vgg16": vgg.vgg16,
        "vgg19": vgg.vgg19,
        "vgg11_bn": vgg.vgg11_bn,
        "vgg16_bn": vgg.vgg16_bn,
        "vgg19_bn": vgg.vgg19_bn,
        "alexnet": alexnet.AlexNet,
        "preact_resnet18": preact_resnet.PreActResNet,
        "densenet121": densenet.DenseNet,
        "mobilenetv3_large": mobilenetv3.mobilenetv3_large,
        "mobilenetv3_small": mobilenetv3.mobilenetv3_small,
        "squeezenet1_0": squeezenet.squeezenet1_0,
        "squeezenet1_1": squeezenet.squeezenet1_1,
        "bagnet9": bagnet.bagnet9,
        "bagnet17": bagnet.bagnet17,
        "bagnet33": bagnet.bagnet33,
        "vit_small16": vit.vit_small16,
        "vit_small32": vit.vit_small32,
        "vit_base16": vit.vit_base16,
        "vit_base32": vit.vit_base32,
    }
)

# Style transfer: make(**options) -> transfer(batch, permute, alpha, style=None) -> image.
# Each image of the batch becomes its content in the style that `permute` puts in its
# row. permute takes a tree of arrays with a row an image, and exchanges rows: what makes
# a style is computed once and exchanged after. `style` is a batch whose images have the
# styles, where these are others. alpha in [0, 1] says how far to go. No gradient passes.
TRANSFERS: Mapping[str, Callable[..., Callable]] = types.MappingProxyType(
    {
        "render": render.make,
        "small": small_adain.make,
        "vgg": adain.vgg,
    }
)


def load(
    path: str | os.PathLike, model: str | None = None, **options: Any
) -> tuple[nn.Module, dict[str, Any]]:
    """Reads a checkpoint as (module, variables): module.apply(variables, image) -> logits.

    path: .pth, .pt, .tar, .bin, .ckpt, .safetensors, or .npz of vision transformers, read
      without PyTorch and without running anything that they say; or the workdir of a run.
    model: a key of MODELS; None finds the one that fits.
    options: `entry` names the state dict where a file has several; `head` is a second
      file, with the linear layer; `seed` and `step` ("best", by validation, "latest" or a
      number) choose in a workdir. All others are the network's own, such as mean, std,
      dtype; they come before what the file says.

    Raises ValueError for a file that is damaged, holds anything but weights, or does not
    fit, with what is missing, spare and of another shape; FileNotFoundError.
    """
    from jbias.models import importing, runs

    if os.path.isdir(path):
        return runs.load(path, model, **options)
    return importing.from_file(path, model, **options)


def save_safetensors(
    path: str | os.PathLike,
    module: nn.Module,
    variables: Mapping[str, Any],
    names: str = "published",
    classes: class_names.Classes | None = None,
) -> None:
    """Writes a network as float32, with model, options, mean and std in its metadata.

    names: "published" (as torchvision or timm have it, in PyTorch's layout) or "own".
    classes: what class_names.read gives back of the file.
    ValueError where the module is none of MODELS, or has no published names.
    """
    from jbias.models import exporting

    exporting.save_safetensors(path, module, variables, names, classes)


def save_run(
    workdir: str | os.PathLike,
    module: nn.Module,
    variables: Mapping[str, Any],
    classes: class_names.Classes | None = None,
) -> None:
    """Writes a network as a run of one seed, for `config.init` and `load`.

    ValueError where the folder is not empty or the module is none of MODELS.
    """
    from jbias.models import exporting

    exporting.save_run(workdir, module, variables, classes)
