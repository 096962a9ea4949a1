"""Write pgd.npz: attacks on a small fixed net, by PyTorch 2.13.0 (CPU) in float64.

    python tests/oracles/pgd.py

An independent implementation of projected gradient ascent with PyTorch's own layers and
its own `renorm`, stored as float32; needs torch and numpy only. Cases, each with the
iterates 1 to 5: "linf" and "l2", whose steps leave the ball; "coarse", whose steps are
four times the ball, so that the loss goes up and down, with the best iterate after each
number of steps; "outside", near the limits of the pixels.
"""

import pathlib

import numpy as np
import torch
from torch import nn

FOLDER = pathlib.Path(__file__).parent
STEPS = 5
CASES = {  # norm, eps, step size
    "linf": ("linf", 0.05, 0.02),
    "l2": ("l2", 0.5, 0.2),
    "coarse": ("linf", 0.02, 0.08),
    "outside": ("l2", 3.0, 1.5),
}


def draw() -> dict[str, np.ndarray]:
    """Draw weights in PyTorch's order of axes, images (b h w c) and labels."""
    rng = np.random.default_rng(0)
    drawn = {
        "kernel": rng.normal(size=(4, 3, 3, 3)),
        "shift": rng.normal(size=4) / 4,
        "linear": rng.normal(size=(5, 64)) / 8,
        "image": rng.uniform(0, 1, (4, 8, 8, 3)),
    }
    drawn = {name: value.astype(np.float32) for name, value in drawn.items()}
    return drawn | {"label": np.array([0, 1, 2, 4])}


def losses(drawn: dict[str, torch.Tensor], image: torch.Tensor) -> torch.Tensor:
    x = nn.functional.conv2d(image, drawn["kernel"], drawn["shift"], padding=1)
    x = nn.functional.avg_pool2d(torch.relu(x), 2)
    logits = nn.functional.linear(x.flatten(1), drawn["linear"])
    return nn.functional.cross_entropy(logits, drawn["label"], reduction="none")


def attack(drawn, norm: str, eps: float, size: float):
    """Yield each iterate, and the best iterate so far, (b c h w)."""
    start = drawn["image"].permute(0, 3, 1, 2)
    x, best = start.clone(), start.clone()
    highest = losses(drawn, x)
    for _ in range(STEPS):
        x.requires_grad_(True)
        (g,) = torch.autograd.grad(losses(drawn, x).mean(), x)
        x = x.detach()
        if norm == "linf":
            x = x + size * torch.sign(g)
            moved = torch.minimum(torch.maximum(x, start - eps), start + eps)
        else:
            lengths = torch.linalg.vector_norm(g, dim=(1, 2, 3))
            x = x + size * g / (lengths.reshape(-1, 1, 1, 1) + 1e-10)
            moved = start + torch.renorm(x - start, p=2, dim=0, maxnorm=eps)
        x = torch.clamp(moved, 0, 1)
        loss = losses(drawn, x)
        for i in torch.nonzero(loss > highest).flatten():
            best[i], highest[i] = x[i], loss[i]
        yield x.clone(), best.clone()


def main():
    stored = draw()
    drawn = {
        name: torch.from_numpy(value).double()
        if name != "label"
        else torch.from_numpy(value)
        for name, value in stored.items()
    }
    for case, options in CASES.items():
        iterates, bests = zip(*attack(drawn, *options))
        outputs = {f"{case}/iterates": iterates}
        if case == "coarse":
            outputs[f"{case}/bests"] = bests
        for name, images in outputs.items():
            images = torch.stack(images).permute(0, 1, 3, 4, 2)
            stored[name] = images.float().numpy()
        print(case, [float(losses(drawn, x).mean().detach()) for x in iterates])
    np.savez_compressed(FOLDER / "pgd.npz", **stored)


if __name__ == "__main__":
    main()
