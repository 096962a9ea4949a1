"""Write domainbed_alignment.json: steps of DomainBed's DANN, CDANN and MMD on fixed weights.

git clone https://github.com/facebookresearch/DomainBed && git -C DomainBed checkout b93c22a
python -m venv env && env/bin/pip install torch==2.13.0 numpy
env/bin/python tests/oracles/domainbed_alignment.py DomainBed \
    > tests/oracles/domainbed_alignment.json

Everything is computed in double precision. "steps" has, for each step, the weights before the
step, the reference's losses, and the gradients of the weights that the step trains; "end" are the
weights after all steps of Adam.
Packages of networks that are not used here are replaced by empty modules.
"""

import json
import sys
import types

import numpy as np
import torch

sys.path.insert(0, sys.argv[1])
for absent in ("torchvision", "torchvision.models", "timm"):
    sys.modules[absent] = types.ModuleType(absent)

from domainbed import algorithms

INPUTS, WIDTH, DOMAINS, CLASSES = 5, 6, 3, 4
HPARAMS = {
    "mlp_width": WIDTH,
    "mlp_depth": 3,
    "mlp_dropout": 0.0,
    "nonlinear_classifier": False,
    "lr": 0.02,
    "weight_decay": 0.0,
    "lr_d": 0.03,
    "lr_g": 0.02,
    "weight_decay_d": 0.0,
    "weight_decay_g": 0.0,
    "beta1": 0.5,
}
CASES = {
    "dann": {"lambda": 0.7, "grad_penalty": 0.0, "d_steps_per_g_step": 1},
    "dann_penalty": {"lambda": 0.7, "grad_penalty": 0.3, "d_steps_per_g_step": 1},
    "cdann": {"lambda": 1.3, "grad_penalty": 0.5, "d_steps_per_g_step": 2},
    "mmd": {"mmd_gamma": 2.0},
}
CLASS_OF = {"dann": "DANN", "dann_penalty": "DANN", "cdann": "CDANN", "mmd": "MMD"}


def numbers(tensor):
    """Return a tensor as nested lists of numbers with ten digits."""
    return json.loads(
        json.dumps(tensor.tolist()), parse_float=lambda x: float(f"{float(x):.10g}")
    )


def draw_weights(algorithm, rng):
    """Set all weights to short decimals."""
    for parameter in algorithm.parameters():
        drawn = (rng.standard_normal(tuple(parameter.shape)) * 0.4).round(2)
        parameter.data = torch.tensor(drawn, dtype=torch.float64)


def weights_of(algorithm):
    """Return all weights by name."""
    return {name: numbers(p) for name, p in algorithm.named_parameters()}


def draw_minibatches(rng, sizes):
    """Return a minibatch (x, y) per domain; the last class has no example."""
    minibatches = []
    for domain, size in enumerate(sizes):
        x = (rng.standard_normal((size, INPUTS)) + 0.3 * domain).round(2)
        y = rng.integers(0, CLASSES - 1, size)
        minibatches.append((torch.tensor(x), torch.tensor(y)))
    return minibatches


def run(name, options):
    """Return the stored steps of a case."""
    rng = np.random.default_rng(sorted(CASES).index(name))
    make = getattr(algorithms, CLASS_OF[name])
    torch.manual_seed(0)
    algorithm = make((INPUTS,), CLASSES, DOMAINS, {**HPARAMS, **options}).double()
    draw_weights(algorithm, rng)
    # MMD's class loss is a mean over domains, which equal shares make a mean over examples.
    sizes = (4, 4, 4) if name == "mmd" else (5, 3, 4)
    steps = []
    for _ in range(3 if name == "mmd" else 4):
        minibatches = draw_minibatches(rng, sizes)
        for parameter in algorithm.parameters():
            parameter.grad = None
        trained = None
        weights = weights_of(algorithm)
        losses = algorithm.update(minibatches)
        if "disc_loss" in losses:
            trained = ("discriminator", "class_embeddings")
        elif "gen_loss" in losses:
            trained = ("featurizer", "classifier")
        gradients = {
            parameter_name: numbers(p.grad)
            for parameter_name, p in algorithm.named_parameters()
            if p.grad is not None
            and (trained is None or parameter_name.startswith(trained))
        }
        steps.append(
            {
                "x": [numbers(x) for x, _ in minibatches],
                "y": [numbers(y) for _, y in minibatches],
                "weights": weights,
                "losses": losses,
                "gradients": gradients,
            }
        )
    return {"options": options, "steps": steps, "end": weights_of(algorithm)}


def discrepancy(sizes, scale):
    """Return features of domains of these sizes, the mean of MMD over pairs, and its gradient."""
    rng = np.random.default_rng(len(sizes))
    algorithm = algorithms.MMD(
        (INPUTS,), CLASSES, DOMAINS, {**HPARAMS, "mmd_gamma": 1.0}
    )
    features = [
        torch.tensor((scale * rng.standard_normal((n, 4)) + 0.2 * e).round(3))
        for e, n in enumerate(sizes)
    ]
    for x in features:
        x.requires_grad_()
    pairs = [(e, f) for e in range(len(sizes)) for f in range(e + 1, len(sizes))]
    value = sum(algorithm.mmd(features[e], features[f]) for e, f in pairs) / len(pairs)
    value.backward()
    return {
        "features": [numbers(x) for x in features],
        "value": value.item(),
        "gradient": [numbers(x.grad) for x in features],
    }


def main():
    """Print the stored results."""
    written = {name: run(name, options) for name, options in CASES.items()}
    written["discrepancies"] = [
        discrepancy(sizes, scale) for sizes, scale in [((3, 5), 0.1), ((4, 2, 6), 1.0)]
    ]
    written["versions"] = {"torch": torch.__version__, "DomainBed": "b93c22a"}
    print(json.dumps(written))


main()
