"""Write deepaugment.npz: outputs of PyTorch 2.13.0 (CPU) with weights drawn from names,
deepaugment.json: names and shapes of these weights; deepaugment_cae.pth and
deepaugment_edsr.pth: files in the published form with the tensors of torch_made.py.

    python tests/oracles/deepaugment.py

Independent implementations, with PyTorch's own layers and padding, of the two networks
of DeepAugment at their published sizes, and PyTorch's outputs for some damages of
weights; in float64, stored as float32. Needs torch and numpy only.
"""

import collections
import json
import pathlib

import deepaugment_weights as drawn
import numpy as np
import torch
import torch_made as made
from torch import nn

FOLDER = pathlib.Path(__file__).parent


def block() -> nn.Sequential:
    return nn.Sequential(
        nn.ZeroPad2d(1),
        nn.Conv2d(128, 128, 3),
        nn.LeakyReLU(),
        nn.ZeroPad2d(1),
        nn.Conv2d(128, 128, 3),
    )


def down(inside: int, outside: int) -> nn.Sequential:
    return nn.Sequential(
        nn.ZeroPad2d((1, 2, 1, 2)), nn.Conv2d(inside, outside, 5, 2), nn.LeakyReLU()
    )


def up(inside: int, between: int, outside: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inside, between, 3),
        nn.LeakyReLU(),
        nn.ZeroPad2d(1),
        nn.ConvTranspose2d(between, outside, 2, 2),
    )


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.e_conv_1, self.e_conv_2 = down(3, 64), down(64, 128)
        self.e_block_1, self.e_block_2, self.e_block_3 = block(), block(), block()
        self.e_conv_3 = nn.Sequential(nn.Conv2d(128, 32, 5, padding=2), nn.Tanh())
        self.d_up_conv_1 = up(32, 64, 128)
        self.d_block_1, self.d_block_2, self.d_block_3 = block(), block(), block()
        self.d_up_conv_2 = up(128, 32, 256)
        self.d_up_conv_3 = nn.Sequential(
            nn.Conv2d(256, 16, 3),
            nn.LeakyReLU(),
            nn.ReflectionPad2d(2),
            nn.Conv2d(16, 3, 3),
            nn.Tanh(),
        )

    def encode(self, x):
        x = self.e_conv_2(self.e_conv_1(x))
        for residual in (self.e_block_1, self.e_block_2, self.e_block_3):
            x = residual(x) + x
        return self.e_conv_3(x)

    def decode(self, code):
        x = self.d_up_conv_1(2 * code - 1)
        for residual in (self.d_block_1, self.d_block_2, self.d_block_3):
            x = residual(x) + x
        return self.d_up_conv_3(self.d_up_conv_2(x))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1)
        )

    def forward(self, x):
        return x + self.body(x)


class SuperResolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.sub_mean, self.add_mean = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)
        self.head = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1))
        self.body = nn.Sequential(
            *(Residual() for _ in range(16)), nn.Conv2d(64, 64, 3, padding=1)
        )
        double = [nn.Conv2d(64, 256, 3, padding=1), nn.PixelShuffle(2)]
        double += [nn.Conv2d(64, 256, 3, padding=1), nn.PixelShuffle(2)]
        self.tail = nn.Sequential(
            nn.Sequential(*double), nn.Conv2d(64, 3, 3, padding=1)
        )

    def forward(self, x):
        x = self.head(self.sub_mean(255 * x))
        return self.add_mean(self.tail(x + self.body(x))) / 255


def filled(net: nn.Module) -> nn.Module:
    state = net.state_dict()
    net.load_state_dict(
        {
            name: torch.from_numpy(drawn.draw(name, tuple(value.shape))).double()
            for name, value in state.items()
        }
    )
    return net


def channels_first(x: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(x).double().permute(0, 3, 1, 2)


def save(net: str, shapes: dict[str, tuple[int, ...]]) -> None:
    """Write views of a small storage in the format of PyTorch before 1.6."""
    storage = torch.from_numpy(made.storage())
    state = collections.OrderedDict(
        (name, torch.as_strided(storage, shape, made.strides(shape), made.offset(name)))
        for name, shape in shapes.items()
    )
    path = FOLDER / f"deepaugment_{net}.pth"
    torch.save(state, path, _use_new_zipfile_serialization=False)


def main():
    torch.set_default_dtype(torch.float64)
    cae, edsr = filled(Autoencoder()), filled(SuperResolution())
    weight = torch.from_numpy(drawn.kernels(0)).double()
    bank = torch.from_numpy(drawn.kernels(1)).double()
    with torch.no_grad():
        images = {
            "cae/latent": cae.encode(channels_first(drawn.image(18, 13))),
            "cae/decoded": cae.decode(channels_first(drawn.code(3, 4))),
            "edsr/enlarged": edsr(channels_first(drawn.image(7, 6))),
        }
        weights = {
            "gelu": nn.functional.gelu(weight),
            "rotated": torch.rot90(weight, 1, (2, 3)),
            "rotated/channels": torch.rot90(weight, 3, (0, 1)),
            "filtered": nn.functional.conv2d(weight, bank, padding=1),
        }
    shapes = {
        net: {name: tuple(value.shape) for name, value in module.state_dict().items()}
        for net, module in (("cae", cae), ("edsr", edsr))
    }
    (FOLDER / "deepaugment.json").write_text(json.dumps(shapes) + "\n")
    for net, shapes_of_net in shapes.items():
        save(net, shapes_of_net)
    outputs = {name: value.permute(0, 2, 3, 1) for name, value in images.items()}
    np.savez_compressed(
        FOLDER / "deepaugment.npz",
        **{name: value.float().numpy() for name, value in (outputs | weights).items()},
    )


if __name__ == "__main__":
    main()
