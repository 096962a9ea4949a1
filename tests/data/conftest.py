"""Small image folders, whole and damaged."""

import pathlib

import numpy as np
import pytest
from PIL import Image


def draw(path: pathlib.Path, size=(8, 8), mode: str = "RGB") -> pathlib.Path:
    """Write an image of noise that depends on the file's name alone, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(list(path.name.encode()))
    pixels = rng.integers(0, 256, (size[1], size[0], 3), np.uint8)
    Image.fromarray(pixels).convert(mode).save(path)
    return path


def cut(path: pathlib.Path, keep: float = 0.6) -> None:
    """Cut off the end of a file, as a broken download does."""
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])


@pytest.fixture
def image():
    """Function image(path, size=(w, h), mode="RGB") that writes an image."""
    return draw


@pytest.fixture
def truncate():
    """Function truncate(path, keep=0.6) that cuts off the end of a file."""
    return cut


@pytest.fixture
def tree(tmp_path):
    """Function tree({"photo/dog": 5, ...}) that returns a root with that many images in
    each folder.
    """

    def write_tree(counts, size=(8, 8), suffix=".png") -> pathlib.Path:
        for folder, n in counts.items():
            (tmp_path / folder).mkdir(parents=True, exist_ok=True)
            for i in range(n):
                draw(tmp_path / folder / f"{i:03}{suffix}", size)
        return tmp_path

    return write_tree
