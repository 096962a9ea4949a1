"""Small drawn cue conflicts in a folder, and the command `jbias ask` about them."""

import io
import pathlib
import re

import numpy as np
from PIL import Image

from jbias import ask
from jbias.data import tables

KEY = "sk-secret-0123456789abcdef"
CONFLICTS = tuple(
    name for name in tables.cue_conflicts() if re.match(r"([a-z]+)\d+-(?!\1)", name)
)


def draw_names(count: int) -> list[str]:
    """Return the names of published images whose cues conflict."""
    rng = np.random.default_rng(59)
    return [CONFLICTS[i] for i in rng.choice(len(CONFLICTS), count, replace=False)]


def write(folder: pathlib.Path, names) -> dict[str, bytes]:
    """Write an image of its own for each name; return their content by name in the folder."""
    rng = np.random.default_rng(1)
    contents = {}
    for name in names:
        file = f"{re.match('[a-z]+', name)[0]}/{name}.png"
        image = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).save(image, "PNG")
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(image.getvalue())
        contents[file] = image.getvalue()
    return contents


def cues(name: str) -> tuple[str, str]:
    """Return the classes of the shape and the texture of an image."""
    return re.search(r"([a-z]+)\d+-([a-z]+)\d+", name).groups()


def arguments(folder: pathlib.Path, url: str, *args: str) -> list[str]:
    """Return the arguments of a run about folder/stimuli into folder/out."""
    return [
        "--model=vlm",
        f"--endpoint={url}",
        f"--stimuli={folder / 'stimuli'}",
        f"--out={folder / 'out'}",
        *args,
    ]


def run(folder: pathlib.Path, url: str, *args: str) -> int:
    """Run the command in this process; return its exit code."""
    return ask.main(arguments(folder, url, *args))
