"""SAM and ASAM by their PyTorch code, stored in sharpness.json.

    git clone https://github.com/davda54/sam && git -C sam checkout 3c3afdb
    git clone https://github.com/SamsungLabs/ASAM && git -C ASAM checkout f156a68
    python -m venv env && env/bin/pip install torch==2.13.0 numpy
    env/bin/python tests/oracles/sharpness.py sam ASAM

Three steps of a small network with a batch norm, in float64, by both repositories' classes and SGD
with momentum and weight decay. As in sam/example/train.py, batch norm updates its running
statistics in the first pass only. Cases: "sam" by davda54/sam, "sam_of_asam", "asam" and
"asam_without_eta" by SamsungLabs/ASAM.
"""

import copy
import importlib.util
import json
import pathlib
import sys

import numpy as np
import torch
from torch import nn

STEPS, BATCH, CLASSES = 3, 6, 3
RATE, MOMENTUM, DECAY = 0.1, 0.9, 5e-4


def load(folder: str, name: str):
    """Return the module of a file in a repository's folder."""
    path = pathlib.Path(folder, f"{name}.py")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Net(nn.Module):
    """A convolution with a bias, a batch norm and a linear layer."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.bn = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4, CLASSES)

    def forward(self, x):
        x = torch.relu(self.bn(self.conv(x)))
        return self.fc(x.mean((2, 3)))


def rounded(tree: dict[str, torch.Tensor]) -> dict[str, list]:
    """Return the arrays as lists of numbers with 9 digits."""
    return {
        name: np.vectorize(lambda value: float(f"{value:.9g}"))(x.numpy()).tolist()
        for name, x in tree.items()
        if x.dtype.is_floating_point
    }


def train(net, ascend, descend, images, labels):
    """Return the losses of both passes and the state dict, step by step."""
    steps = []
    for image, label in zip(images, labels):
        loss = nn.functional.cross_entropy(net(image), label)
        loss.backward()
        ascend()
        net.bn.momentum = 0.0
        perturbed = nn.functional.cross_entropy(net(image), label)
        perturbed.backward()
        grads = {name: p.grad.clone() for name, p in net.named_parameters()}
        descend()
        net.bn.momentum = 0.1
        steps.append(
            {
                "loss": loss.item(),
                "perturbed_loss": perturbed.item(),
                "gradient": rounded(grads),
                "state": rounded(net.state_dict()),
            }
        )
    return steps


def main(sam_folder: str, asam_folder: str) -> None:
    """Write sharpness.json; the arguments are folders of the two repositories."""
    sam, asam = load(sam_folder, "sam"), load(asam_folder, "asam")
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    start = Net()
    with torch.no_grad():
        for p in start.parameters():
            p.copy_(torch.from_numpy(rng.normal(scale=0.4, size=p.shape)).float())
        start.bn.weight.add_(1)
    images = rng.normal(size=(STEPS, BATCH, 5, 5, 3)).astype(np.float32)
    labels = rng.integers(0, CLASSES, (STEPS, BATCH))
    start = start.double()
    batches = torch.from_numpy(images).double().permute(0, 1, 4, 2, 3)
    targets = torch.from_numpy(labels)
    cases = {
        "sam": dict(radius=0.05),
        "sam_of_asam": dict(radius=0.1),
        "asam": dict(radius=0.5, adaptive=True, eta=0.01),
        "asam_without_eta": dict(radius=0.5, adaptive=True, eta=0.0),
    }
    sgd = dict(lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)
    results = {}
    for name, options in cases.items():
        net = copy.deepcopy(start)
        if name == "sam":
            optimiser = sam.SAM(
                net.parameters(), torch.optim.SGD, rho=options["radius"], **sgd
            )
            ascend = lambda optimiser=optimiser: optimiser.first_step(zero_grad=True)
            descend = lambda optimiser=optimiser: optimiser.second_step(zero_grad=True)
        else:
            kind = asam.ASAM if options.get("adaptive") else asam.SAM
            minimiser = kind(
                torch.optim.SGD(net.parameters(), **sgd),
                net,
                rho=options["radius"],
                eta=options.get("eta", 0.0),
            )
            ascend, descend = minimiser.ascent_step, minimiser.descent_step
        steps = train(net, ascend, descend, batches, targets)
        results[name] = {"options": options, "steps": steps}
    stored = {
        "torch": torch.__version__,
        "sgd": dict(rate=RATE, momentum=MOMENTUM, decay=DECAY),
        "images": rounded({"images": torch.from_numpy(images)})["images"],
        "labels": labels.tolist(),
        "start": rounded(start.state_dict()),
        "cases": results,
    }
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(stored) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
