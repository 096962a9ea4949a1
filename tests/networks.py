"""Every network of MODELS in a small form, for tests over all of them."""

from jbias import models
from jbias.models import (
    alexnet,
    bagnet,
    cnn,
    densenet,
    mobilenetv3,
    preact_resnet,
    resnet,
    squeezenet,
    vgg,
    vit,
)

_BLOCKS = (
    ((3, 16, 8, True, False, 2),),
    ((3, 24, 8, False, False, 2),),
    ((5, 24, 8, True, True, 2),),
    ((5, 24, 8, True, True, 1),),
)
# Options that make a network of a class small, and the side of its images.
SMALL = {
    cnn.CNN: (dict(width=4), 28),
    resnet.ResNet: (dict(width=16, depths=(1, 1, 1, 1)), 128),
    vgg.VGG: (dict(width=4, hidden=8, depths=(2, 1, 1, 1, 1)), 128),
    alexnet.AlexNet: (dict(width=4, hidden=8), 128),
    preact_resnet.PreActResNet: (dict(width=4, depths=(1, 1, 1, 1)), 32),
    densenet.DenseNet: (dict(depths=(1, 2, 1, 1), growth=4, width=8), 128),
    mobilenetv3.MobileNetV3: (dict(multiplier=0.5, hidden=16, blocks=_BLOCKS), 128),
    squeezenet.SqueezeNet: (dict(squeezed=4, stem_width=8), 128),
    bagnet.BagNet: (dict(width=4, depths=(1, 1, 1, 1)), 128),
    vit.ViT: (dict(width=8, heads=2, depth=4), 128),
}


def small(name: str, classes: int = 5):
    """Return the network in a small form, and the side length of its images.

    Some are equal then: those that differ in depth or width alone.
    """
    make = models.MODELS[name]
    options, side = SMALL[type(make(classes))]
    return make(classes, **options), side
