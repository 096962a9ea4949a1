"""Networks shared by a test and its oracle, most of them narrow or shallow.

Weights, images and classes are those of resnet_weights.py, but for a factor in the
scales of batch norms, which keeps networks without shortcuts from forgetting the image.
"""

# Name: model, size of the images in pixels, factor, options of the model.
CASES = {
    "resnext50": ("resnext50", 64, 1, dict(depths=(1, 1, 1, 1))),
    "vgg11": ("vgg11", 64, 1, dict(width=8, hidden=24)),
    "vgg11_at_224": ("vgg11", 224, 1, dict(width=4, hidden=24)),
    "vgg11_bn": ("vgg11_bn", 96, 2, dict(width=8, hidden=24)),
    "alexnet": ("alexnet", 120, 1, dict(hidden=24)),
    "preact_resnet18": ("preact_resnet18", 32, 1.3, {}),
    "densenet121": (
        "densenet121",
        70,
        1.5,
        dict(depths=(2, 3, 2, 2), growth=8, width=16),
    ),
    "mobilenetv3_large": ("mobilenetv3_large", 70, 1.5, dict(multiplier=0.5)),
    "mobilenetv3_small": ("mobilenetv3_small", 65, 1.8, {}),
    "squeezenet1_0": ("squeezenet1_0", 70, 1, {}),
    "squeezenet1_1": ("squeezenet1_1", 65, 1, {}),
    "bagnet9": ("bagnet9", 40, 1, dict(depths=(1, 1, 1, 1))),
    "bagnet17": ("bagnet17", 41, 1, dict(depths=(1, 2, 1, 1))),
    "bagnet33": ("bagnet33", 50, 1, dict(depths=(1, 1, 1, 1))),
}
# Name: torchvision's name of the model.
PUBLISHED = {
    "resnet18": "resnet18",
    "resnet34": "resnet34",
    "resnet50": "resnet50",
    "resnet101": "resnet101",
    "resnet152": "resnet152",
    "resnext50": "resnext50_32x4d",
    "vgg11": "vgg11",
    "vgg16": "vgg16",
    "vgg19": "vgg19",
    "vgg11_bn": "vgg11_bn",
    "vgg16_bn": "vgg16_bn",
    "vgg19_bn": "vgg19_bn",
    "alexnet": "alexnet",
    "densenet121": "densenet121",
    "mobilenetv3_large": "mobilenet_v3_large",
    "mobilenetv3_small": "mobilenet_v3_small",
    "squeezenet1_0": "squeezenet1_0",
    "squeezenet1_1": "squeezenet1_1",
}


def scaled(name: str, drawn, factor: float):
    """Return the weight of a network; drawn: random values for its name."""
    scale = drawn.ndim == 1 and name.endswith(".weight")
    return drawn * factor if scale else drawn
