"""Write corruptions.npz: pixels of three pictures, corrupted by the released code.

    git clone https://github.com/hendrycks/robustness
    git -C robustness checkout 8190fe3
    git clone https://github.com/facebookresearch/augmentation-corruption
    git -C augmentation-corruption checkout ba4d5a5
    python tests/oracles/corruptions.py robustness augmentation-corruption

Needs numpy, scipy, Pillow, opencv, scikit-image 0.26 and Wand with ImageMagick 6.9.
Numbers are drawn by numpy's RandomState, whose streams are frozen, with the severity as
seed. Every STRIDE-th row and column of each image is stored, and no part of the code.
"""

import ast
import ctypes
import importlib.util
import io
import pathlib
import sys
import tempfile

import cv2
import numpy as np
import PIL.Image
import scipy.ndimage
import skimage
import skimage.color
import skimage.filters
import wand.api
import wand.image

FILES = {32: "make_cifar_c", 64: "make_tinyimagenet_c", 224: "make_imagenet_c"}
STRIDE = {32: 5, 64: 9, 224: 27}
CORRUPTIONS = (
    *("gaussian_noise", "shot_noise", "speckle_noise"),
    *("gaussian_blur", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    *("snow", "fog", "spatter"),
    *("brightness", "saturate", "contrast", "pixelate", "elastic_transform"),
)


class Numpy:
    """Numpy with names of older versions, and with another random generator."""

    float_ = np.float64

    def __init__(self, random):
        self.random = random

    def __getattr__(self, name):
        return getattr(np, name)

    @staticmethod
    def fromstring(data, dtype):
        return np.frombuffer(data, dtype)


class Stream(np.random.RandomState):
    """A generator that replaces numpy.random and all generators created from it."""

    def RandomState(self, seed):
        return self

    def randint(self, low, high=None, size=None):
        if high == 2**32:  # A seed.
            return 0
        return super().randint(low, high, size)


def picture(side: int) -> np.ndarray:
    """Return an image of gradients and coloured checks, with grey and black corners."""
    y, x = np.mgrid[:side, :side] * 224 // side
    checks = (x // 28 + y // 20) % 3 * 50
    image = np.stack(
        [x // 2 + checks, y // 2 + checks, 200 - (x + y) // 4 - checks], -1
    )
    image[: side // 3, : side // 5] = 90
    image[-side // 6 :, -side // 5 :] = 0
    return np.clip(image, 0, 255).astype(np.uint8)


def gaussian(x, sigma, multichannel=False, **options):
    axis = -1 if multichannel else None
    return skimage.filters.gaussian(x, sigma=sigma, channel_axis=axis, **options)


def functions(path: pathlib.Path) -> dict:
    """Execute only the definitions of a file; return its namespace."""
    names = dict(
        sk=skimage,
        cv2=cv2,
        gaussian=gaussian,
        BytesIO=io.BytesIO,
        PILImage=PIL.Image,
        WandImage=wand.image.Image,
        wandlibrary=wand.api.library,
        ctypes=ctypes,
        scizoom=scipy.ndimage.zoom,
        map_coordinates=scipy.ndimage.map_coordinates,
        np=Numpy(Stream(0)),
    )
    known = {*CORRUPTIONS, "disk", "plasma_fractal", "clipped_zoom", "MotionImage"}
    tree = ast.parse(path.read_text())
    tree.body = [node for node in tree.body if getattr(node, "name", "") in known]
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(ast.unparse(tree))
        file.flush()
        spec = importlib.util.spec_from_file_location(path.stem, file.name)
        module = importlib.util.module_from_spec(spec)
        vars(module).update(names)
        spec.loader.exec_module(module)
    return vars(module)


def lattices() -> dict:
    """Return the random gradients and permutations of Perlin's generator, by severity."""
    module = importlib.import_module("utils.perlin_noise")
    generators = [
        module.PerlinNoiseGenerator(Stream(severity)) for severity in range(1, 6)
    ]
    return {
        "gradients": np.stack([generator.g[:256] for generator in generators]),
        "order": np.stack([generator.p[:256] for generator in generators]).astype(
            np.uint8
        ),
    }


def main(robustness: str, augmentation: str) -> None:
    stored = {}
    for side, file in FILES.items():
        step, image = STRIDE[side], picture(side)
        stored[f"picture/{side}"] = image
        code = functions(pathlib.Path(robustness, "ImageNet-C/create_c", f"{file}.py"))
        for name in CORRUPTIONS:
            outs = []
            for severity in range(1, 6):
                code["np"].random = Stream(severity)
                outs.append(np.uint8(code[name](PIL.Image.fromarray(image), severity)))
            stored[f"{side}/{name}"] = np.stack(outs)[:, ::step, ::step]
    sys.path.insert(0, str(pathlib.Path(augmentation, "imagenet_c_bar")))
    code = importlib.import_module("corrupt")
    stored |= lattices()
    rows = pathlib.Path(augmentation, "imagenet_c_bar/imagenet_c_bar.csv").read_text()
    classes = {c.name: c for c in vars(code).values() if hasattr(c, "tags")}
    for row in rows.split():
        name, *levels = row.split(",")
        for side in (32, 224):
            step, image = STRIDE[side], stored[f"picture/{side}"]
            outs = []
            for severity, level in enumerate(levels, 1):
                code.np = Numpy(Stream(severity))
                outs.append(classes[name](float(level), side)(image))
            stored[f"{side}/{name}"] = np.stack(outs)[:, ::step, ::step]
    np.savez_compressed(pathlib.Path(__file__).with_suffix(".npz"), **stored)


if __name__ == "__main__":
    main(*sys.argv[1:])
