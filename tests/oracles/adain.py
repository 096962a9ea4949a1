"""Write adain.npz: outputs of PyTorch 2.13.0 (CPU) with weights drawn from names.

    python tests/oracles/adain.py

An independent implementation with PyTorch's own layers, in float64, stored as float32;
needs torch and numpy only.
"""

import pathlib

import adain_weights as drawn
import numpy as np
import torch
from torch import nn

FOLDER = pathlib.Path(__file__).parent


def conv(inside: int, outside: int, relu: bool = True) -> list[nn.Module]:
    modules = [nn.ReflectionPad2d(1), nn.Conv2d(inside, outside, 3)]
    return modules + [nn.ReLU()] if relu else modules


def vgg() -> nn.Sequential:
    layers = [nn.Conv2d(3, 3, 1)]
    inside = 3
    for width in (64, 64, 0, 128, 128, 0, 256, 256, 256, 256, 0, 512):
        if width:
            layers += conv(inside, width)
            inside = width
        else:
            layers.append(nn.MaxPool2d(2, 2, ceil_mode=True))
    return nn.Sequential(*layers)


def decoder() -> nn.Sequential:
    layers = []
    inside = 512
    for width in (256, 0, 256, 256, 256, 128, 0, 128, 64, 0, 64, 3):
        if width:
            layers += conv(inside, width, relu=width > 3)
            inside = width
        else:
            layers.append(nn.Upsample(scale_factor=2, mode="nearest"))
    return nn.Sequential(*layers)


def filled(net: nn.Module, name: str) -> nn.Module:
    net.load_state_dict(
        {
            key: torch.from_numpy(drawn.draw(f"{name}/{key}", tuple(value.shape)))
            for key, value in net.state_dict().items()
        }
    )
    return net.double()


def moments(f):
    mean = f.mean((2, 3), keepdim=True)
    std = (f.flatten(2).var(2) + 1e-5).sqrt()[..., None, None]
    return mean, std


def main():
    encode, decode = filled(vgg(), "vgg"), filled(decoder(), "decoder")
    stored = {}
    for case in drawn.SIZES:
        content = torch.from_numpy(drawn.images(case)).double().permute(0, 3, 1, 2)
        style = content.roll(1, 0)
        with torch.no_grad():
            f, g = encode(content), encode(style)
            (mean, std), (style_mean, style_std) = moments(f), moments(g)
            t = (f - mean) / std * style_std + style_mean
            t = drawn.ALPHA * t + (1 - drawn.ALPHA) * f
            stored[f"{case}/features"] = f[:, ::8]
            stored[f"{case}/image"] = decode(t)
    arrays = {
        name: value.permute(0, 2, 3, 1).float().numpy()
        for name, value in stored.items()
    }
    np.savez_compressed(FOLDER / "adain.npz", **arrays)


if __name__ == "__main__":
    main()
