"""Are published networks imported rightly? Their logits against ours, on photographs.

    python benchmarks/imported.py make --images=DIR --out=DIR
    python benchmarks/imported.py compare --src=DIR

`make` needs PyTorch, torchvision, timm and transformers, and not this project: it draws
random networks of theirs, saves them as they save, and what they say of each image.
`compare` needs this project, and none of them. Measured: docs/models.md.
"""

import argparse
import pathlib
import time

import numpy as np

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
HALF = (0.5, 0.5, 0.5)
# File: mean, std.
FILES = {
    "torchvision_resnet50.pth": (MEAN, STD),
    "timm_vit_base_patch16_224.safetensors": (HALF, HALF),
    "torchvision_vit_b_16.pth": (MEAN, STD),
    "transformers_vit_base.bin": (HALF, HALF),
}


def photographs(folder: pathlib.Path, count: int) -> np.ndarray:
    """The middles of the first images below a folder, uint8, 224 pixels a side."""
    from PIL import Image

    paths = sorted(
        p for p in folder.rglob("*") if p.suffix.lower() in (".jpeg", ".jpg")
    )
    found = []
    for path in paths[:: max(1, len(paths) // count)][:count]:
        image = Image.open(path).convert("RGB")
        scale = 256 / min(image.size)
        size = [max(256, round(n * scale)) for n in image.size]
        left, top = ((n - 224) // 2 for n in size)
        image = image.resize(size, Image.Resampling.BILINEAR)
        found.append(np.asarray(image.crop((left, top, left + 224, top + 224))))
    return np.stack(found)


def make(images: str, out: str, count: int) -> None:
    """Draws the networks and saves them with their answers."""
    import safetensors.torch
    import timm
    import torch
    import torchvision
    import transformers

    torch.manual_seed(0)
    nets = {
        "torchvision_resnet50.pth": torchvision.models.resnet50(),
        "timm_vit_base_patch16_224.safetensors": timm.create_model(
            "vit_base_patch16_224"
        ),
        "torchvision_vit_b_16.pth": torchvision.models.vit_b_16(),
        "transformers_vit_base.bin": transformers.ViTForImageClassification(
            transformers.ViTConfig(num_labels=1000, layer_norm_eps=1e-6)
        ),
    }
    for net in nets.values():  # Statistics and biases that say something.
        for module in net.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                torch.nn.init.normal_(module.running_mean, 0, 0.1)
                torch.nn.init.uniform_(module.running_var, 0.5, 1.5)
                torch.nn.init.uniform_(module.weight, 0.4, 0.8)
        for name, parameter in net.named_parameters():
            if name.endswith("bias") or name.startswith("head"):
                torch.nn.init.normal_(parameter, 0, 0.02)
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    shown = photographs(pathlib.Path(images), count)
    np.save(out / "images.npy", shown)
    x = torch.from_numpy(shown).permute(0, 3, 1, 2).float() / 255
    for file, net in nets.items():
        if file.endswith(".safetensors"):
            safetensors.torch.save_file(net.state_dict(), out / file)
        else:
            torch.save(net.state_dict(), out / file)
        mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in FILES[file])
        with torch.no_grad():
            parts = [net.eval()((part - mean) / std) for part in x.split(8)]
        logits = torch.cat([getattr(part, "logits", part) for part in parts])
        np.save(out / f"{file}.npy", logits.numpy())
        print(f"{file}: {tuple(logits.shape)}")


def compare(src: str) -> None:
    """Imports each network and prints how far its logits are from its library's."""
    import jax

    from jbias import models

    folder = pathlib.Path(src)
    shown = np.load(folder / "images.npy")
    print("| file | found | seconds | images | logits | largest gap | same class |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for file, (mean, std) in FILES.items():
        began = time.monotonic()
        net, variables = models.load(folder / file, mean=mean, std=std)
        seconds = time.monotonic() - began
        apply = jax.jit(net.apply)
        parts = range(0, len(shown), 8)
        logits = np.concatenate(
            [apply(variables, shown[i : i + 8].astype(np.float32) / 255) for i in parts]
        )
        theirs = np.load(folder / f"{file}.npy")
        gap, same = np.abs(logits - theirs).max(), logits.argmax(1) == theirs.argmax(1)
        print(
            f"| {file} | {type(net).__name__} of {net.classes} | {seconds:.1f} |"
            f" {len(shown)} | to {np.abs(theirs).max():.2f} | {gap:.1e} |"
            f" {same.sum()} of {len(same)} |"
        )
        if gap >= 1e-4:
            raise SystemExit(f"{file}: gap {gap}, at most 1e-4 expected")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    first = commands.add_parser("make")
    first.set_defaults(command=make)
    first.add_argument("--images", required=True, help="a folder of photographs")
    first.add_argument("--out", required=True, help="the folder to write")
    first.add_argument("--count", type=int, default=32, help="images")
    second = commands.add_parser("compare")
    second.set_defaults(command=compare)
    second.add_argument("--src", required=True, help="the folder that make wrote")
    arguments = vars(parser.parse_args())
    arguments.pop("command")(**arguments)


if __name__ == "__main__":
    main()
