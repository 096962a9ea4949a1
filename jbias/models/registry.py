"""Tables by name of networks (MODELS), style transfers (TRANSFERS) and weights (CONVERTERS).

CONVERTERS are the published weights that `jbias prepare weights` converts.
"""

import dataclasses
import functools
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

from flax import linen as nn

from jbias.models import (
    alexnet,
    bagnet,
    cae,
    cnn,
    densenet,
    edsr,
    mobilenetv3,
    preact_resnet,
    resnet,
    squeezenet,
    style_transfer,
    taps,
    vgg,
    vit,
    weight_files,
    weight_names,
)

partial = functools.partial
_RESNEXT = dict(bottleneck=True, groups=32, width_per_group=4)
# Called with the number of classes, and other fields of the network as options.
MODELS: Mapping[str, Callable[..., nn.Module]] = types.MappingProxyType(
    {
        "cnn": cnn.CNN,
        "resnet18": partial(resnet.ResNet, depths=(2, 2, 2, 2), bottleneck=False),
        "resnet34": partial(resnet.ResNet, depths=(3, 4, 6, 3), bottleneck=False),
        "resnet50": partial(resnet.ResNet, depths=(3, 4, 6, 3), bottleneck=True),
        "resnet101": partial(resnet.ResNet, depths=(3, 4, 23, 3), bottleneck=True),
        "resnet152": partial(resnet.ResNet, depths=(3, 8, 36, 3), bottleneck=True),
        "resnext50": partial(resnet.ResNet, depths=(3, 4, 6, 3), **_RESNEXT),
        "vgg11": partial(vgg.VGG, depths=(1, 1, 2, 2, 2)),
        "vgg16": partial(vgg.VGG, depths=(2, 2, 3, 3, 3)),
        "vgg19": partial(vgg.VGG, depths=(2, 2, 4, 4, 4)),
        "vgg11_bn": partial(vgg.VGG, depths=(1, 1, 2, 2, 2), batch_norm=True),
        "vgg16_bn": partial(vgg.VGG, depths=(2, 2, 3, 3, 3), batch_norm=True),
        "vgg19_bn": partial(vgg.VGG, depths=(2, 2, 4, 4, 4), batch_norm=True),
        "alexnet": alexnet.AlexNet,
        "preact_resnet18": preact_resnet.PreActResNet,
        "densenet121": densenet.DenseNet,
        "mobilenetv3_large": mobilenetv3.MobileNetV3,
        "mobilenetv3_small": partial(mobilenetv3.MobileNetV3, **mobilenetv3.SMALL),
        "squeezenet1_0": squeezenet.SqueezeNet,
        "squeezenet1_1": partial(squeezenet.SqueezeNet, **squeezenet.VERSION_1_1),
        "bagnet9": partial(bagnet.BagNet, wide=2),
        "bagnet17": partial(bagnet.BagNet, wide=3),
        "bagnet33": partial(bagnet.BagNet, wide=4),
        "vit_small16": partial(vit.ViT, width=384, heads=6, patch=16),
        "vit_small32": partial(vit.ViT, width=384, heads=6, patch=32),
        "vit_base16": partial(vit.ViT, width=768, heads=12, patch=16),
        "vit_base32": partial(vit.ViT, width=768, heads=12, patch=32),
    }
)

# Style transfer: make(**options) -> transfer(batch, permute, alpha, style=None) -> image.
# Row i of the result is the content of image i in the style of the image that `permute`
# moves to row i. permute: a tree of arrays with one row per image -> the tree with its rows
# exchanged, so that style features are computed once. style: a batch whose images are the
# styles; None is the batch itself. alpha in [0, 1]: strength of the transfer. The result
# has no gradient.
TRANSFERS: Mapping[str, Callable[..., Callable]] = types.MappingProxyType(
    {
        "render": style_transfer.render,
        "small": style_transfer.small,
        "vgg": style_transfer.vgg,
    }
)

OPEN_CLASSES = 9973  # Stands for an unknown number of classes; no other axis has it.
SIDE = 224  # Side of a published network's images in pixels, unless its weights fix it.


def dialects(model: str) -> tuple[weight_names.Names, ...]:
    """Return the naming schemes that a network was published under; empty if none."""
    file = definitions(model)
    return file.get("DIALECTS", (file["NAMES"],) if "NAMES" in file else ())


def class_of(model: str) -> type[nn.Module]:
    """Return the module class of a network."""
    return type(MODELS[model](1))


def preset(model: str) -> Mapping[str, Any]:
    """Return the options that a network's name fixes, such as the depth, by name; {} if none."""
    make = MODELS[model]
    return make.keywords if isinstance(make, functools.partial) else {}


def definitions(model: str) -> dict[str, Any]:
    """Return the globals, by name, of the Python module that defines a network."""
    return vars(sys.modules[class_of(model).__module__])


def option_names(model: str) -> tuple[str, ...]:
    """Return the names of the options of a network, `classes` included."""
    names = [field.name for field in dataclasses.fields(class_of(model))]
    return tuple(name for name in names if name not in ("parent", "name"))


def shapes(model: str, options: Mapping[str, Any], side: int = SIDE) -> Any:
    """Return a network's variables as a tree of jax.ShapeDtypeStruct, without computing them.

    model, options: key of MODELS, and options of the network. side: side of the images, in
    pixels.
    """
    return taps.shapes(MODELS[model](**options), side).variables


_PUBLISHED = (style_transfer.PUBLISHED, cae.PUBLISHED, edsr.PUBLISHED)
CONVERTERS: Mapping[str, weight_files.PublishedWeights] = {
    weights.name: weights for weights in _PUBLISHED
}
