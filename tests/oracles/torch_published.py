"""Write weight files in published forms, of a ResNet-18 of two channels, with PyTorch.

    python tests/oracles/torch_published.py

PyTorch 2.13.0. Names and shapes are torchvision's; numbers are drawn from names.
published.pth.tar has the form of training on several devices, published_robust.pt that of the
robustness library, in the older file format.
"""

import collections
import pathlib

import numpy as np
import resnet_weights as drawn
import torch

FOLDER = pathlib.Path(__file__).parent
WIDTH, CLASSES = 2, 5


def shapes() -> dict[str, tuple[int, ...]]:
    shape_by_name = {"conv1.weight": (WIDTH, 3, 3, 3), **norm("bn1", WIDTH)}
    fan_in = WIDTH
    for stage in range(1, 5):
        width = WIDTH * 2 ** (stage - 1)
        for block in range(2):
            stem = f"layer{stage}.{block}"
            shape_by_name[f"{stem}.conv1.weight"] = (width, fan_in, 3, 3)
            shape_by_name |= norm(f"{stem}.bn1", width)
            shape_by_name[f"{stem}.conv2.weight"] = (width, width, 3, 3)
            shape_by_name |= norm(f"{stem}.bn2", width)
            if fan_in != width:
                shape_by_name[f"{stem}.downsample.0.weight"] = (width, fan_in, 1, 1)
                shape_by_name |= norm(f"{stem}.downsample.1", width)
            fan_in = width
    return {**shape_by_name, "fc.weight": (CLASSES, fan_in), "fc.bias": (CLASSES,)}


def norm(name: str, width: int) -> dict[str, tuple[int, ...]]:
    ends = ("weight", "bias", "running_mean", "running_var")
    return {f"{name}.{end}": (width,) for end in ends}


def main():
    state = {k: torch.from_numpy(drawn.draw(k, s)) for k, s in shapes().items()}
    counted = {
        f"{key.removesuffix('running_var')}num_batches_tracked": torch.tensor(7)
        for key in state
        if key.endswith("running_var")
    }
    parameters = [torch.nn.Parameter(x) for x in state.values()]
    optimiser = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    optimiser.state[parameters[0]]["momentum_buffer"] = torch.ones(2)
    ordered = collections.OrderedDict(
        (f"module.{key}", value) for key, value in {**state, **counted}.items()
    )
    ordered._metadata = collections.OrderedDict(version=1)
    checkpoint = {
        "epoch": 90,
        "arch": "resnet18",
        "state_dict": ordered,
        "best_acc1": torch.tensor(69.5),
        "optimizer": optimiser.state_dict(),
        "loss": np.float64(1.5),
        "seen": np.int64(3),
        "dtype": torch.float32,
        "size": torch.Size([1, 3]),
        "list": [1.5, None, True, b"bytes", ("a", 2**70)],
        "default": collections.defaultdict(dict, a=1),
        "device": torch.device("cpu"),
    }
    torch.save(checkpoint, FOLDER / "published.pth.tar")
    robust = {f"module.model.{k}": v for k, v in {**state, **counted}.items()}
    robust |= {f"module.attacker.model.{k}": v for k, v in state.items()}
    for layer in ("module.normalizer", "module.attacker.normalize"):
        robust[f"{layer}.new_mean"] = torch.tensor([0.4, 0.5, 0.6]).view(3, 1, 1)
        robust[f"{layer}.new_std"] = torch.tensor([0.2, 0.3, 0.25]).view(3, 1, 1)
    torch.save(
        {"model": robust, "epoch": 3},
        FOLDER / "published_robust.pt",
        _use_new_zipfile_serialization=False,
    )


if __name__ == "__main__":
    main()
