"""Write domainbed_meta.json: losses and gradients of DomainBed's MLDG, RSC, Fishr and EQRM.

    git clone https://github.com/facebookresearch/DomainBed
    git -C DomainBed checkout b93c22a1cfc3b2428398272c1a116c8de1f4139e
    pip install torch==2.13.0 scipy
    python tests/oracles/domainbed_meta.py DomainBed

MLDG has the first four examples of each environment, because its code drops examples of the
larger of two environments, and with torch's SGD two environments. The classes run unchanged, in float64 (RSC in float32), on a small network with stored weights. Their optimiser
is replaced by an optimiser that stores the gradients and changes no weight, so that all
updates are at the same weights. MLDG's draw of the environments is stored. Its inner
optimiser is the code's, Adam, or torch's SGD. Fishr's gradients of single examples, which the
code has from BackPACK, are those of torch.autograd, one example after the other. No part of the code is stored.
"""

import json
import pathlib
import sys
import types

import numpy as np
import torch

SIZES = (4, 6, 5)  # Examples of the environments.
INPUTS, WIDTH, CLASSES, BATCHES = 6, 8, 3, 3
NETWORK = {
    "mlp_width": WIDTH,
    "mlp_depth": 2,
    "mlp_dropout": 0.0,
    "nonlinear_classifier": False,
    "lr": 0.05,
    "weight_decay": 0.0,
}
_ADAM = {"inner": "adam", "sizes": (4, 4, 4)}
_SGD = {"inner": "sgd", "sizes": (4, 4)}
# Algorithm and its options. MLDG: "inner" is the optimiser of the inner step, and "sizes" are
# the examples of the environments.
CASES = (
    ("ERM", {}),
    ("MLDG", {"mldg_beta": 0.7, "n_meta_test": 1, **_ADAM}),
    ("MLDG", {"mldg_beta": 1.5, "n_meta_test": 2, **_ADAM}),
    ("MLDG", {"mldg_beta": 0.7, "n_meta_test": 1, **_SGD}),
    ("RSC", {"rsc_f_drop_factor": 1 / 3, "rsc_b_drop_factor": 1 / 3}),
    ("RSC", {"rsc_f_drop_factor": 0.5, "rsc_b_drop_factor": 0.2}),
    ("RSC", {"rsc_f_drop_factor": 2 / 7, "rsc_b_drop_factor": 3 / 7}),
    ("Fishr", {"lambda": 10.0, "penalty_anneal_iters": 0, "ema": 0.95}),
    ("Fishr", {"lambda": 3.0, "penalty_anneal_iters": 1, "ema": 0.6}),
    ("EQRM", {"eqrm_quantile": 0.75, "eqrm_burnin_iters": 0, "eqrm_lr": 1e-6}),
    ("EQRM", {"eqrm_quantile": 0.99, "eqrm_burnin_iters": 0, "eqrm_lr": 1e-6}),
    ("EQRM", {"eqrm_quantile": 0.2, "eqrm_burnin_iters": 0, "eqrm_lr": 1e-6}),
)


class Recorder:
    """An optimiser that stores the gradients of named parameters and changes no weight."""

    def __init__(self, network):
        self.named = dict(network.named_parameters())
        self.gradients = {}

    def zero_grad(self):
        for p in self.named.values():
            p.grad = None

    def step(self):
        self.gradients = {name: p.grad.numpy() for name, p in self.named.items()}


def load(checkout: str):
    """Return DomainBed's module of algorithms, without its packages for images."""
    for name in ("torchvision", "torchvision.models", "timm"):
        sys.modules[name] = types.ModuleType(name)
    sys.path.insert(0, checkout)
    from domainbed import algorithms

    algorithms.backpack = "not used"
    algorithms.extend = lambda module: module
    return algorithms


def example_gradients(classifier, logits, y) -> dict[str, torch.Tensor]:
    """Return the gradients of each example's loss by the classifier's weights, (b n)."""
    named = dict(classifier.named_parameters())
    losses = torch.nn.functional.cross_entropy(logits, y, reduction="none")
    rows = [
        torch.autograd.grad(loss, list(named.values()), create_graph=True)
        for loss in losses
    ]
    return {
        name: torch.stack([gradients[i].flatten() for gradients in rows])
        for i, name in enumerate(named)
    }


def draw() -> dict[str, list]:
    """Return weights in PyTorch's order of axes, inputs and labels of all batches."""
    rng = np.random.default_rng(0)
    count = sum(SIZES)
    shapes = {
        "0.input.weight": (WIDTH, INPUTS),
        "0.input.bias": (WIDTH,),
        "0.output.weight": (WIDTH, WIDTH),
        "0.output.bias": (WIDTH,),
        "1.weight": (CLASSES, WIDTH),
        "1.bias": (CLASSES,),
    }
    weights = {k: rng.normal(size=shape) / 2 for k, shape in shapes.items()}
    return {
        "weights": {k: x.astype(np.float32).tolist() for k, x in weights.items()},
        "inputs": rng.normal(size=(BATCHES, count, INPUTS)).astype("f4").tolist(),
        "labels": rng.integers(0, CLASSES, (BATCHES, count)).tolist(),
        "environments": np.repeat(np.arange(len(SIZES)), SIZES).tolist(),
    }


def used_rows(sizes: tuple[int, ...]) -> list[int]:
    """Return the indices of the first examples of each environment, `sizes` of them."""
    starts = np.cumsum((0, *SIZES[:-1]))
    return [int(a) + i for a, size in zip(starts, sizes) for i in range(size)]


def short(x: np.ndarray) -> list:
    """Return an array as nested lists of numbers with nine digits."""
    if x.ndim:
        return [short(row) for row in x]
    return float(f"{x:.9g}")


def run(algorithms, drawn: dict[str, list], name: str, options: dict) -> list[dict]:
    """Return the loss, the gradients and the drawn order of each batch."""
    hparams = {**NETWORK, **options}
    make = algorithms.get_algorithm_class(name)
    algorithm = make((INPUTS,), CLASSES, len(options.get("sizes", SIZES)), hparams)
    state = {k: torch.tensor(x) for k, x in drawn["weights"].items()}
    algorithm.network.load_state_dict(state)
    # RSC makes its thresholds float32.
    dtype = torch.float32 if name == "RSC" else torch.float64
    algorithm.to(dtype)
    algorithm._init_optimizer = lambda: None
    algorithm._get_grads = lambda logits, y: example_gradients(
        algorithm.classifier, logits, y
    )
    adam = torch.optim.Adam
    recorder = Recorder(algorithm.network)

    def optimiser(parameters, **options):
        """Return MLDG's inner optimiser; EQRM makes its optimiser anew."""
        if name == "EQRM":
            return recorder
        inner = torch.optim.SGD if hparams["inner"] == "sgd" else adam
        return inner(parameters, **options)

    algorithm.optimizer = recorder
    torch.optim.Adam = optimiser
    orders, draw_order = [], torch.randperm

    def recorded_order(n):
        orders.append(draw_order(n))
        return orders[-1]

    torch.randperm = recorded_order
    results = []
    sizes = options.get("sizes", SIZES)
    rows = used_rows(sizes)
    for x, y in zip(drawn["inputs"], drawn["labels"], strict=True):
        x = torch.tensor(x, dtype=dtype)[rows].split(sizes)
        y = torch.tensor(y)[rows].split(sizes)
        orders.clear()
        values = algorithm.update([*zip(x, y, strict=True)])
        gradients = {k: short(g) for k, g in recorder.gradients.items()}
        order = orders[0].tolist() if orders else None
        results.append({"values": values, "gradients": gradients, "order": order})
    torch.optim.Adam, torch.randperm = adam, draw_order
    return results


def main(checkout: str) -> None:
    torch.manual_seed(0)
    algorithms = load(checkout)
    stored = draw()
    stored["cases"] = [
        {
            "name": name,
            "options": options,
            "rows": used_rows(options.get("sizes", SIZES)),
            "batches": run(algorithms, stored, name, options),
        }
        for name, options in CASES
    ]
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(stored) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
