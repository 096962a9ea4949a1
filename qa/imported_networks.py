"""Compare the logits of imported networks with those of their own libraries.

    python -m qa.imported_networks make --images=DIR --out=imported
    python -m qa.imported_networks compare --src=imported

Both commands run in a checkout. `make` needs PyTorch, torchvision, timm, transformers and Pillow,
but none of jbias's requirements; `compare` needs those of jbias, but not these libraries.

`make` makes random networks: a ResNet-50 of torchvision, and vision transformers of torchvision,
timm and transformers. It writes images.npy, four weight files and their logits (FILE.npy) to
--out. `compare` imports the weight files, and prints a table with the largest difference between
logits and the number of equal classes. It ends with exit code 1 if logits of a network differ by
1e-4 or more. docs/benchmarks.md#checks has the result.

Takes about five minutes on two cores for each of the two commands (an estimate).
"""

import pathlib
import time

import numpy as np

from qa import command

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
    """Return centre crops of `count` images below a folder: uint8 (b 224 224 3)."""
    from PIL import Image

    paths = sorted(
        p for p in folder.rglob("*") if p.suffix.lower() in (".jpeg", ".jpg")
    )
    crops = []
    for path in paths[:: max(1, len(paths) // count)][:count]:
        image = Image.open(path).convert("RGB")
        scale = 256 / min(image.size)
        size = [max(256, round(n * scale)) for n in image.size]
        left, top = ((n - 224) // 2 for n in size)
        image = image.resize(size, Image.Resampling.BILINEAR)
        crops.append(np.asarray(image.crop((left, top, left + 224, top + 224))))
    return np.stack(crops)


def make(images: str, out: str, count: int) -> None:
    """Save random networks and their logits on `count` images of folder `images`."""
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
    for net in nets.values():  # Statistics and biases other than 0 and 1.
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
    crops = photographs(pathlib.Path(images), count)
    np.save(out / "images.npy", crops)
    x = torch.from_numpy(crops).permute(0, 3, 1, 2).float() / 255
    for file, net in nets.items():
        if file.endswith(".safetensors"):
            safetensors.torch.save_file(net.state_dict(), out / file)
        else:
            torch.save(net.state_dict(), out / file)
        mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in FILES[file])
        with torch.no_grad():
            outputs = [net.eval()((batch - mean) / std) for batch in x.split(8)]
        # transformers returns an object with `logits`, the others return logits.
        logits = torch.cat([getattr(output, "logits", output) for output in outputs])
        np.save(out / f"{file}.npy", logits.numpy())
        print(f"{file}: {tuple(logits.shape)}")


def compare(src: str) -> None:
    """Import each network of folder `src`, and print the largest gap to the saved logits.

    Raises SystemExit if the gap is 1e-4 or more.
    """
    import jax

    from jbias import models

    folder = pathlib.Path(src)
    images = np.load(folder / "images.npy")
    print("| file | network | seconds | images | logits | largest gap | same class |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for file, (mean, std) in FILES.items():
        start = time.monotonic()
        net, variables = models.load(folder / file, mean=mean, std=std)
        seconds = time.monotonic() - start
        apply = jax.jit(net.apply)
        outputs = []
        for first in range(0, len(images), 8):
            batch = images[first : first + 8].astype(np.float32) / 255
            outputs.append(apply(variables, batch))
        logits = np.concatenate(outputs)
        theirs = np.load(folder / f"{file}.npy")
        gap = np.abs(logits - theirs).max()
        is_same = logits.argmax(1) == theirs.argmax(1)
        print(
            f"| {file} | {type(net).__name__} of {net.classes} | {seconds:.1f} |"
            f" {len(images)} | to {np.abs(theirs).max():.2f} | {gap:.1e} |"
            f" {is_same.sum()} of {len(is_same)} |"
        )
        if gap >= 1e-4:
            raise SystemExit(f"{file}: gap {gap}, at most 1e-4 expected")


_MAKE = """\
Make random networks of PyTorch's libraries, and save them with their logits.

Writes images.npy, four weight files and their logits (.npy) to --out.

Takes about five minutes on two cores (an estimate).
"""
_COMPARE = """\
Compare the logits of imported networks with the saved ones.

Prints a table, and ends with exit code 1 if logits of a network differ by 1e-4 or more.

Takes about five minutes on two cores (an estimate).
"""


def main() -> None:
    """Run `make` or `compare`."""
    parser = command.parser("imported_networks", __doc__)
    commands = parser.add_subparsers(required=True, dest="command")
    make_parser = commands.add_parser(
        "make", help="save random networks and their logits", description=_MAKE
    )
    make_parser.add_argument(
        "--images",
        required=True,
        metavar="DIR",
        help="folder that is searched for .jpg and .jpeg files (required)",
    )
    make_parser.add_argument(
        "--out",
        required=True,
        metavar="DIR",
        help="folder to write the images, weight files and logits to (required)",
    )
    make_parser.add_argument(
        "--count",
        type=int,
        default=32,
        metavar="N",
        help="number of images (default: %(default)s)",
    )
    compare_parser = commands.add_parser(
        "compare", help="compare with saved logits", description=_COMPARE
    )
    compare_parser.add_argument(
        "--src",
        required=True,
        metavar="DIR",
        help="folder that `make` wrote (required)",
    )
    options = parser.parse_args()
    if options.command == "make":
        make(options.images, options.out, options.count)
    else:
        compare(options.src)


if __name__ == "__main__":
    main()
