"""Write nets.npz: shapes and logits of networks in PyTorch 2.13.0 (CPU).

    PYTHONPATH=... python tests/oracles/nets.py

Networks are those of torchvision 0.29.2 and of these files, in a folder that PYTHONPATH
names:

    fmix_resnet.py  https://github.com/ecs-vlc/FMix at e5991dc, models/resnet.py
    bagnet.py       https://github.com/wielandbrendel/bag-of-local-features-models at
                    8493fb4, bagnets/pytorchnet.py

Logits are of float64, stored as float32. Needs numpy too.
"""

import functools
import json
import pathlib

import bagnet as bagnet_file
import fmix_resnet
import nets_cases
import numpy as np
import resnet_weights as drawn
import torch
import torchvision
from torch import nn
from torchvision.models import resnet, vgg

FOLDER = pathlib.Path(__file__).parent
SIDES = range(1, 80)  # Image sizes that are tried to find the smallest.


def resnext50(classes, *, depths):
    return resnet.ResNet(
        resnet.Bottleneck, list(depths), classes, groups=32, width_per_group=4
    )


def vgg11(classes, *, width, hidden, batch_norm=False):
    plan = (1, "M", 2, "M", 4, 4, "M", 8, 8, "M", 8, 8, "M")
    plan = [v if v == "M" else v * width for v in plan]
    net = vgg.VGG(vgg.make_layers(plan, batch_norm), classes, init_weights=False)
    return with_hidden(net, {0: 49 * 8 * width, 3: hidden, 6: hidden}, hidden)


def vgg11_bn(classes, **options):
    return vgg11(classes, batch_norm=True, **options)


def alexnet(classes, *, hidden):
    net = torchvision.models.alexnet(num_classes=classes)
    return with_hidden(net, {1: 36 * 256, 4: hidden, 6: hidden}, hidden)


def preact_resnet18(classes):
    return fmix_resnet.ResNet18(classes)


def densenet121(classes, *, depths, growth, width):
    return torchvision.models.DenseNet(growth, depths, width, num_classes=classes)


def mobilenet(version, classes, *, multiplier=1.0):
    builder = torchvision.models.get_model_builder(version)
    return builder(num_classes=classes, width_mult=multiplier)


def squeezenet(version, classes):
    return torchvision.models.get_model(version, num_classes=classes)


def bagnet(kernels, classes, *, depths):
    return bagnet_file.BagNet(
        bagnet_file.Bottleneck, list(depths), [2, 2, 2, 1], kernels, classes
    )


def with_hidden(net, layers: dict[int, int], hidden: int):
    """Replace linear layers, given the inputs of each, by smaller layers."""
    for i, fan_in in layers.items():
        last = i == max(layers)
        out = net.classifier[i].out_features if last else hidden
        net.classifier[i] = nn.Linear(fan_in, out)
    return net


BUILDERS = {
    "resnext50": resnext50,
    "vgg11": vgg11,
    "vgg11_bn": vgg11_bn,
    "alexnet": alexnet,
    "preact_resnet18": preact_resnet18,
    "densenet121": densenet121,
    "mobilenetv3_large": functools.partial(mobilenet, "mobilenet_v3_large"),
    "mobilenetv3_small": functools.partial(mobilenet, "mobilenet_v3_small"),
    "squeezenet1_0": functools.partial(squeezenet, "squeezenet1_0"),
    "squeezenet1_1": functools.partial(squeezenet, "squeezenet1_1"),
    "bagnet9": functools.partial(bagnet, [1, 1, 0, 0]),
    "bagnet17": functools.partial(bagnet, [1, 1, 1, 0]),
    "bagnet33": functools.partial(bagnet, [1, 1, 1, 1]),
}


def weights(net, factor: float) -> dict:
    drawn_weights = {}
    for name, value in net.state_dict().items():
        if not name.endswith("num_batches_tracked"):
            value = drawn.draw(name, tuple(value.shape))
            value = torch.from_numpy(nets_cases.scaled(name, value, factor)).double()
        drawn_weights[name] = value
    return drawn_weights


def case(model: str, size: int, factor: float, options: dict) -> dict[str, np.ndarray]:
    """Return logits, the smallest image size, and the first batch norm's running statistics."""
    net = BUILDERS[model](drawn.CLASSES, **options)
    net.load_state_dict(weights(net, factor))
    image = torch.from_numpy(drawn.images(size)).double().permute(0, 3, 1, 2)
    mean = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)
    std = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1)
    image = (image - mean) / std
    outputs = {"logits": net.eval()(image), "least": torch.tensor(least(net))}
    norms = [n for n, m in net.named_modules() if isinstance(m, nn.BatchNorm2d)]
    for name in norms[:1]:
        net.train()(image)
        norm = net.get_submodule(name)
        outputs[f"{name}.running_mean"] = norm.running_mean
        outputs[f"{name}.running_var"] = norm.running_var
    return {name: value.detach().float().numpy() for name, value in outputs.items()}


def least(net) -> int:
    """Return the smallest side length of an image that the net accepts."""
    for side in SIDES:
        try:
            net(torch.zeros(1, 3, side, side))
            return side
        except RuntimeError:
            continue
    raise ValueError(f"no image up to {SIDES.stop} pixels")


def shapes(net) -> dict[str, list[int]]:
    return {
        name: list(value.shape)
        for name, value in net.state_dict().items()
        if not name.endswith("num_batches_tracked")
    }


def main():
    published = {}
    with torch.device("meta"):
        for name, torchvision_name in nets_cases.PUBLISHED.items():
            published[name] = shapes(torchvision.models.get_model(torchvision_name))
        published["preact_resnet18"] = shapes(fmix_resnet.ResNet18(1000))
        for name in ("bagnet9", "bagnet17", "bagnet33"):
            published[name] = shapes(getattr(bagnet_file, name)())
    text = json.dumps(published, separators=(",", ":")).encode()
    stored = {"shapes": np.frombuffer(text, np.uint8)}
    torch.set_default_dtype(torch.float64)
    for name, (model, size, factor, options) in nets_cases.CASES.items():
        outputs = case(model, size, factor, options)
        print(name, outputs["logits"].std(), int(outputs["least"]))
        stored |= {f"{name}/{key}": value for key, value in outputs.items()}
    np.savez_compressed(FOLDER / "nets.npz", **stored)


if __name__ == "__main__":
    main()
