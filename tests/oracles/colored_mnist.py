"""Makes colored_mnist.npz: what the released IRM code computes from given draws.

    git clone https://github.com/facebookresearch/InvariantRiskMinimization
    git -C InvariantRiskMinimization checkout fc185d0
    python tests/oracles/colored_mnist.py InvariantRiskMinimization

Needs numpy and torch. The code's make_environment is taken out of its script; torch.rand
is replaced by the draws that are stored beside its answers; nothing of the code is here.
"""

import ast
import importlib.util
import pathlib
import sys
import tempfile

import numpy as np
import torch

FLIPS, EACH = (0.2, 0.1, 0.9), 40


def main(checkout: str) -> None:
    path = pathlib.Path(checkout) / "code/colored_mnist/main.py"
    (function,) = (
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name == "make_environment"
    )
    with tempfile.TemporaryDirectory() as folder:
        alone = pathlib.Path(folder) / "irm.py"
        alone.write_text(f"import torch\n{ast.unparse(function)}\n")
        found = importlib.util.spec_from_file_location("irm", alone)
        irm = importlib.util.module_from_spec(found)
        found.loader.exec_module(irm)
    torch.Tensor.cuda = lambda self: self
    rng = np.random.default_rng(0)
    n = len(FLIPS) * EACH
    stored = {
        "pixels": rng.integers(0, 256, (n, 28, 28), np.uint8),
        "digits": rng.permutation(np.arange(n) % 10),
        "draws": rng.random((len(FLIPS), 2, EACH)),
    }
    images, labels = [], []
    for i, flip in enumerate(FLIPS):
        draws = [torch.tensor(one) for one in stored["draws"][i]]
        torch.rand = lambda size, draws=draws: draws.pop(0)
        here = slice(i * EACH, (i + 1) * EACH)
        pixels, digits = (
            torch.tensor(stored[key][here]) for key in ("pixels", "digits")
        )
        made = irm.make_environment(pixels, digits, flip)
        images.append(np.rint(made["images"].numpy() * 255).astype(np.uint8))
        labels.append(made["labels"].numpy()[:, 0].astype(np.uint8))
    stored |= {"images": np.stack(images), "labels": np.stack(labels)}
    np.savez_compressed(pathlib.Path(__file__).with_suffix(".npz"), **stored)


if __name__ == "__main__":
    main(sys.argv[1])
