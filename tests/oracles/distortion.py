"""Write distortion.npz: outputs of the released code of the data distortion paper.

    git clone https://github.com/AntoniaMarcu/Data-Modification
    git -C Data-Modification checkout 1cb7717
    python tests/oracles/distortion.py Data-Modification

Grad-CAM maps of six images and the pixels that are hidden by them (gradcam.py with
models/resnet.py), and logits of its VGG-16 (models/vgg.py) with an eighth of the channels.
Needs numpy, opencv and torch (here 2.13.0, CPU). Weights are drawn by name; the random
choice of the code is replaced by both of its values. No part of the code is stored.
"""

import importlib
import pathlib
import sys
import types

import numpy as np
import resnet_weights as drawn
import torch

CLASSES, HIDDEN, NARROW = 10, 0.3, 8
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


def images() -> np.ndarray:
    """Six of 32 pixels: patches of 4 in colours, each with a little noise."""
    rng = np.random.default_rng(9)
    patches = rng.integers(0, 200, (6, 8, 8, 3)).repeat(4, 1).repeat(4, 2)
    return (patches + rng.integers(0, 56, patches.shape)).astype(np.uint8)


def with_weights(net: torch.nn.Module, factor: float) -> torch.nn.Module:
    state = net.state_dict()
    for name, value in state.items():
        if not name.endswith("num_batches_tracked"):
            new = drawn.draw(name, tuple(value.shape))
            is_scale = new.ndim == 1 and name.endswith(".weight")
            state[name] = torch.from_numpy(
                new * np.float32(factor) if is_scale else new
            )
    net.load_state_dict(state)
    return net.eval()


def saliency(images: torch.Tensor) -> dict[str, np.ndarray]:
    """Return maps in [0, 1], and masks of the most and the least salient pixels."""
    gradcam = importlib.import_module("gradcam")
    net = with_weights(sys.modules["models.resnet"].ResNet18(CLASSES), 1.3)
    net = gradcam.ResNet_CAM(net, 6).eval()
    resize, maps, masks = gradcam.cv2.resize, [], {}

    def resize_and_record(*args):
        maps.append(resize(*args))
        return maps[-1]

    gradcam.cv2 = types.SimpleNamespace(resize=resize_and_record)
    torch.Tensor.get_device = lambda self: "cpu"
    for side, name in enumerate(("most", "least")):
        maps.clear()
        torch.randint = lambda *_, side=side: torch.tensor([side])
        masked = gradcam.get_grad_cam(net, images, HIDDEN)
        # The mask multiplies the image, which is nowhere exactly 0.
        masks[f"{name} hidden"] = np.packbits((masked == 0).all(1).numpy())
    return {"maps": np.stack(maps).astype(np.float32), **masks}


def vgg(shown: torch.Tensor) -> np.ndarray:
    module = importlib.import_module("models.vgg")
    plan = module.cfg["VGG16"]
    module.cfg["VGG16"] = [n if n == "M" else n // NARROW for n in plan]
    net = module.vgg(CLASSES, 3)
    net.classifier = torch.nn.Linear(512 // NARROW, CLASSES)
    return with_weights(net, 2.0).double()(shown.double()).detach().float().numpy()


def main(checkout: str) -> None:
    sys.path.insert(0, checkout)
    package = types.ModuleType("models")  # Without what else it imports.
    package.__path__ = [str(pathlib.Path(checkout) / "models")]
    sys.modules["models"] = package
    image = images()
    shown = (image / np.float32(255) - np.float32(MEAN)) / np.float32(STD)
    shown = torch.from_numpy(shown.astype(np.float32)).permute(0, 3, 1, 2)
    stored = {"images": image, **saliency(shown), "vgg": vgg(shown)}
    print({key: (value.shape, value.std()) for key, value in stored.items()})
    np.savez_compressed(pathlib.Path(__file__).with_suffix(".npz"), **stored)


if __name__ == "__main__":
    main(*sys.argv[1:])
