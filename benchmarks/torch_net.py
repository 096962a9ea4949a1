"""The ResNets of jbias.models.resnet in PyTorch, initialised as PyTorch does."""

import torch
from torch import nn

from benchmarks.settings import CLASSES, Setting

DEPTHS = {
    "resnet18": (2, 2, 2, 2),
    "resnet34": (3, 4, 6, 3),
    "resnet50": (3, 4, 6, 3),
}


# Not nested in a function: torch.compile compiles once for all networks of one class.
class Residual(nn.Module):
    """A residual block of two 3x3 convolutions, or a 1x1, 3x3, 1x1 bottleneck."""

    def __init__(self, fan_in: int, width: int, stride: int, bottleneck: bool):
        super().__init__()
        plan = ((3, width, stride), (3, width, 1))
        if bottleneck:
            plan = ((1, width, 1), (3, width, stride), (1, 4 * width, 1))
        layers, c = [], fan_in
        for side, features, step in plan:
            layers += [_conv(c, features, side, step), nn.BatchNorm2d(features)]
            layers += [nn.ReLU(inplace=True)]
            c = features
        self.inner, self.out = nn.Sequential(*layers[:-1]), c
        self.skip = nn.Identity()
        if stride > 1 or c != fan_in:
            self.skip = nn.Sequential(_conv(fan_in, c, 1, stride), nn.BatchNorm2d(c))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.inner(x) + self.skip(x))


def _conv(fan_in: int, fan_out: int, side: int, stride: int) -> nn.Module:
    """Return a convolution without bias; side: of the kernel, in pixels."""
    return nn.Conv2d(fan_in, fan_out, side, stride, side // 2, bias=False)


def network(setting: Setting) -> nn.Module:
    """Return the network of a setting."""
    bottleneck, c = setting.model == "resnet50", setting.width
    has_large_stem = setting.stem == "imagenet"
    stem_side, stem_stride = (7, 2) if has_large_stem else (3, 1)
    layers = [_conv(3, c, stem_side, stem_stride)]
    layers += [nn.BatchNorm2d(c), nn.ReLU(inplace=True)]
    if has_large_stem:
        layers.append(nn.MaxPool2d(3, 2, 1))
    for stage, depth in enumerate(DEPTHS[setting.model]):
        for block in range(depth):
            stride = 2 if stage and not block else 1
            layers.append(Residual(c, setting.width * 2**stage, stride, bottleneck))
            c = layers[-1].out
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, CLASSES)]
    return nn.Sequential(*layers, *head)
