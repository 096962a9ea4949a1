"""Write colored_mnist.npz: outputs of the released IRM code for stored random draws.

    git clone https://github.com/facebookresearch/InvariantRiskMinimization
    git -C InvariantRiskMinimization checkout fc185d0
    python tests/oracles/colored_mnist.py InvariantRiskMinimization

Needs numpy and torch. The code's make_environment is extracted from its script; torch.rand
is replaced by draws that are stored together with the outputs. No part of the code is stored.
"""

import ast
import importlib.util
import pathlib
import sys
import tempfile

import numpy as np
import torch

FLIPS, PER_ENVIRONMENT = (0.2, 0.1, 0.9), 40


def main(checkout: str) -> None:
    path = pathlib.Path(checkout) / "code/colored_mnist/main.py"
    (function,) = (
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name == "make_environment"
    )
    with tempfile.TemporaryDirectory() as folder:
        extracted = pathlib.Path(folder) / "irm.py"
        extracted.write_text(f"import torch\n{ast.unparse(function)}\n")
        spec = importlib.util.spec_from_file_location("irm", extracted)
        irm = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(irm)
    torch.Tensor.cuda = lambda self: self
    rng = np.random.default_rng(0)
    n = len(FLIPS) * PER_ENVIRONMENT
    stored = {
        "pixels": rng.integers(0, 256, (n, 28, 28), np.uint8),
        "digits": rng.permutation(np.arange(n) % 10),
        "draws": rng.random((len(FLIPS), 2, PER_ENVIRONMENT)),
    }
    images, labels = [], []
    for i, flip in enumerate(FLIPS):
        draws = [torch.tensor(numbers) for numbers in stored["draws"][i]]
        torch.rand = lambda size, draws=draws: draws.pop(0)
        selection = slice(i * PER_ENVIRONMENT, (i + 1) * PER_ENVIRONMENT)
        pixels, digits = (
            torch.tensor(stored[key][selection]) for key in ("pixels", "digits")
        )
        environment = irm.make_environment(pixels, digits, flip)
        images.append(np.rint(environment["images"].numpy() * 255).astype(np.uint8))
        labels.append(environment["labels"].numpy()[:, 0].astype(np.uint8))
    stored |= {"images": np.stack(images), "labels": np.stack(labels)}
    np.savez_compressed(pathlib.Path(__file__).with_suffix(".npz"), **stored)


if __name__ == "__main__":
    main(sys.argv[1])
