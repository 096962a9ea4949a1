"""Networks by name: MODELS and TRANSFERS are the tables of contents."""

import types
from collections.abc import Callable, Mapping

from flax import linen as nn

from jbias.models import (
    adain,
    alexnet,
    bagnet,
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
