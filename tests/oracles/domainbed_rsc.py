"""Write domainbed_rsc.json: DomainBed's ERM and RSC, trained from random weights.

    git clone https://github.com/facebookresearch/DomainBed
    git -C DomainBed checkout b93c22a1cfc3b2428398272c1a116c8de1f4139e
    pip install torch==2.13.0 .
    python tests/oracles/domainbed_rsc.py DomainBed

The classes run unchanged. Their network is replaced by the package's CNN, of width 8, and for SGD
their optimiser by torch's. Images are 2,048 drawn images of the embedded set, in one domain; weights,
the order of images and the rate of each step are functions of this file. "losses" are those of the
first steps, of the weights at the beginning of each step. "accuracy" is that of the 512 validation
images after each epoch, "zeros" the share of 0 in their inputs of the last layer. In the first `erm`
epochs of a case the network is trained by DomainBed's ERM, then by `name`.

Takes about 3 minutes.
"""

import json
import math
import pathlib
import sys
import types

import numpy as np

IMAGES, SIZE, CLASSES, WIDTH, BATCH, EPOCHS = 2048, 32, 16, 8, 64, 4
STEPS = IMAGES // BATCH * EPOCHS
SHARE = 1 / 3  # Of features and of examples that are muted.
MOMENTUM, DECAY = 0.9, 5e-4  # Of SGD; Adam has none of both.
NUM_LOSSES = 16
SGD, ADAM = {"optimiser": "sgd", "rate": 0.01}, {"optimiser": "adam", "rate": 0.001}
CASES = (
    {"name": "ERM", **SGD, "erm": 0},
    {"name": "RSC", **SGD, "erm": 0},
    {"name": "RSC", **SGD, "erm": 1},
    {"name": "RSC", **SGD, "erm": 2},
    {"name": "ERM", **ADAM, "erm": 0},
    {"name": "RSC", **ADAM, "erm": 0},
)


def draw_weights() -> dict[str, np.ndarray]:
    """Return random weights, with axes in the order of Flax; biases are 0."""
    rng = np.random.default_rng(0)
    shapes = {
        "stage1_conv": (5, 5, 3, WIDTH),
        "stage2_conv": (5, 5, WIDTH, 2 * WIDTH),
        "fc": ((SIZE // 4) ** 2 * 2 * WIDTH, CLASSES),
    }
    return {
        name: (rng.normal(size=shape) / math.sqrt(math.prod(shape[:-1]))).astype("f4")
        for name, shape in shapes.items()
    }


def draw_order() -> np.ndarray:
    """Return the indices of each step's images, (steps, batch)."""
    rng = np.random.default_rng(1)
    return np.concatenate(
        [rng.permutation(IMAGES).reshape(-1, BATCH) for _ in range(EPOCHS)]
    )


def rate_at(step: int, rate: float) -> float:
    """Return the learning rate of a step, which falls to 0 by half a cosine."""
    return rate * 0.5 * (1 + math.cos(math.pi * step / STEPS))


def load(checkout: str):
    """Return DomainBed's module of algorithms, without its packages for images."""
    for name in ("torchvision", "torchvision.models", "timm"):
        sys.modules[name] = types.ModuleType(name)
    sys.path.insert(0, checkout)
    from domainbed import algorithms

    return algorithms


def make_network(torch):
    """Return the network up to the inputs of its last layer, in Flax's order, in torch."""

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.stage1_conv = torch.nn.Conv2d(3, WIDTH, 5, padding=2, bias=False)
            self.stage1_bn = torch.nn.BatchNorm2d(WIDTH)
            self.stage2_conv = torch.nn.Conv2d(
                WIDTH, 2 * WIDTH, 5, padding=2, bias=False
            )
            self.stage2_bn = torch.nn.BatchNorm2d(2 * WIDTH)
            self.n_outputs = (SIZE // 4) ** 2 * 2 * WIDTH

        def forward(self, x):
            for conv, bn in (
                (self.stage1_conv, self.stage1_bn),
                (self.stage2_conv, self.stage2_bn),
            ):
                x = torch.max_pool2d(torch.relu(bn(conv(x))), 2)
            return x.permute(0, 2, 3, 1).flatten(1)

    network = Network()
    weights = draw_weights()
    with torch.no_grad():
        for name in ("stage1_conv", "stage2_conv"):
            kernel = torch.tensor(weights[name]).permute(3, 2, 0, 1)
            getattr(network, name).weight.copy_(kernel)
    return network


def make_algorithm(algorithms, torch, case: dict):
    """Return DomainBed's algorithm of a case, with the drawn weights and its optimiser."""
    algorithms.networks.Featurizer = lambda shape, hparams: make_network(torch)
    hparams = {
        "lr": case["rate"],
        "weight_decay": 0.0,
        "nonlinear_classifier": False,
        "rsc_f_drop_factor": SHARE,
        "rsc_b_drop_factor": SHARE,
    }
    algorithm = algorithms.get_algorithm_class(case["name"])(
        (3, SIZE, SIZE), CLASSES, 1, hparams
    )
    with torch.no_grad():
        algorithm.classifier.weight.copy_(torch.tensor(draw_weights()["fc"]).T)
        algorithm.classifier.bias.zero_()
    if case["optimiser"] == "sgd":
        algorithm.optimizer = torch.optim.SGD(
            algorithm.network.parameters(),
            lr=case["rate"],
            momentum=MOMENTUM,
            weight_decay=DECAY,
        )
    return algorithm


def run(algorithms, torch, images, case: dict) -> dict:
    """Return a case with its losses, accuracies and shares of 0."""
    torch.manual_seed(0)
    (x, y), (valid_x, valid_y) = images
    algorithm, order = make_algorithm(algorithms, torch, case), draw_order()
    losses, accuracies, zeros = [], [], []
    steps_per_epoch = len(order) // EPOCHS
    for step, rows in enumerate(order):
        algorithm.train()
        for group in algorithm.optimizer.param_groups:
            group["lr"] = rate_at(step, case["rate"])
        is_early = step < case["erm"] * steps_per_epoch
        update = algorithms.ERM.update if is_early else type(algorithm).update
        losses.append(update(algorithm, [(x[rows], y[rows])])["loss"])
        if (step + 1) % steps_per_epoch == 0:
            algorithm.eval()
            with torch.no_grad():
                features = algorithm.featurizer(valid_x)
                is_right = algorithm.classifier(features).argmax(1) == valid_y
            accuracies.append(is_right.float().mean().item())
            zeros.append((features == 0).float().mean().item())
    return {
        **case,
        "losses": [float(f"{loss:.7g}") for loss in losses[:NUM_LOSSES]],
        "accuracy": [round(accuracy, 4) for accuracy in accuracies],
        "zeros": [round(share, 4) for share in zeros],
    }


def main(checkout: str) -> None:
    import torch

    from jbias import data

    torch.set_num_threads(1)
    algorithms = load(checkout)
    images = []
    for split, options in (("train", {"n": IMAGES}), ("valid", {})):
        source = data.load("shapes", split, size=SIZE, **options)
        stacked = np.stack([source.image(i) for i in range(len(source))])
        x = torch.tensor(stacked).permute(0, 3, 1, 2).float() / 255 * 2 - 1
        images.append((x, torch.tensor(source.columns["label"]).long()))
    stored = {"torch": torch.__version__, "cases": []}
    path = pathlib.Path(__file__).with_suffix(".json")
    for case in CASES:
        stored["cases"].append(run(algorithms, torch, images, case))
        print(stored["cases"][-1], flush=True)
    path.write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
