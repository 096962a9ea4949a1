"""Write resnet.npz: outputs of PyTorch 2.13.0 (CPU) with weights drawn from names.

    python tests/oracles/resnet.py

An independent implementation with PyTorch's own layers, in float64, stored as float32;
needs torch and numpy only.
"""

import pathlib

import numpy as np
import resnet_weights as drawn
import torch
from torch import nn

FOLDER = pathlib.Path(__file__).parent
WATCHED_NORMS = ("bn1", "layer1.0.bn1", "layer2.0.downsample.1", "layer4.1.bn2")
WATCHED_GRADIENTS = ("conv1.weight", "layer2.0.bn1.weight", "fc.bias")


class Block(nn.Module):
    def __init__(self, inside: int, width: int, stride: int, bottleneck: bool):
        super().__init__()
        self.bottleneck = bottleneck
        outside = 4 * width if bottleneck else width
        if bottleneck:
            self.conv1 = nn.Conv2d(inside, width, 1, bias=False)
            self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
            self.conv3 = nn.Conv2d(width, outside, 1, bias=False)
            self.bn3 = nn.BatchNorm2d(outside)
        else:
            self.conv1 = nn.Conv2d(inside, width, 3, stride, 1, bias=False)
            self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.downsample = nn.Identity()
        if stride != 1 or inside != outside:
            self.downsample = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False),
                nn.BatchNorm2d(outside),
            )

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        if self.bottleneck:
            y = self.bn3(self.conv3(torch.relu(y)))
        return torch.relu(y + self.downsample(x))


class Net(nn.Module):
    def __init__(self, depths, bottleneck: bool, stem: str):
        super().__init__()
        if stem == "imagenet":
            self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
            self.pool = nn.MaxPool2d(3, 2, 1)
        else:
            self.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
            self.pool = nn.Identity()
        self.bn1 = nn.BatchNorm2d(64)
        inside = 64
        for stage, depth in enumerate(depths):
            blocks = []
            for i in range(depth):
                stride = 2 if stage and not i else 1
                blocks.append(Block(inside, 64 << stage, stride, bottleneck))
                inside = (64 << stage) * (4 if bottleneck else 1)
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(inside, drawn.CLASSES)

    def forward(self, image):
        mean = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)
        std = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1)
        x = self.pool(torch.relu(self.bn1(self.conv1((image - mean) / std))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


def compute_outputs(depths, bottleneck, stem, size) -> dict[str, np.ndarray]:
    net = Net(depths, bottleneck, stem)
    net.load_state_dict(
        {
            name: value
            if name.endswith("num_batches_tracked")
            else torch.from_numpy(drawn.draw(name, tuple(value.shape))).double()
            for name, value in net.state_dict().items()
        }
    )
    image = torch.from_numpy(drawn.images(size)).double().permute(0, 3, 1, 2)
    outputs = {"eval": net.eval()(image)}
    outputs["train"] = net.train()(image)
    loss = nn.functional.cross_entropy(outputs["train"], torch.tensor(drawn.labels()))
    loss.backward()
    for name in WATCHED_NORMS:
        layer = net.get_submodule(name)
        outputs[f"{name}.running_mean"] = layer.running_mean
        outputs[f"{name}.running_var"] = layer.running_var
    for name in () if bottleneck else WATCHED_GRADIENTS:
        outputs[f"grad.{name}"] = net.get_parameter(name).grad
    return {name: value.detach().float().numpy() for name, value in outputs.items()}


def main():
    torch.set_default_dtype(torch.float64)
    stored = {}
    for name, (depths, bottleneck, stem, size) in drawn.CASES.items():
        outputs = compute_outputs(depths, bottleneck, stem, size)
        stored |= {f"{name}/{key}": value for key, value in outputs.items()}
    np.savez_compressed(FOLDER / "resnet.npz", **stored)


if __name__ == "__main__":
    main()
