"""The blocks of code in the documentation, and the folders in which they run."""

import pathlib
import re
import shlex
import shutil
from typing import NamedTuple

import numpy as np
from PIL import Image

from jbias.configs import datasets, erm

ROOT = pathlib.Path(__file__).parents[1]
PAGES = (
    *sorted(ROOT.glob("docs/**/*.md")),
    *(ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md")),
)
CODE = ("bash", "python", "pycon", "sh", "shell", "console")
REASONS = frozenset(  # Reasons not to run a block: what it needs.
    (
        *("imagenet", "photographs", "celeba", "cifar", "mnist", "people", "weights"),
        *("cluster", "install", "long", "endless", "terminals", "measured"),
        *("network", "docker", "submission"),
    )
)
FENCE = re.compile(
    r"(?m)^(?:<!-- (?P<mark>[^\n]*) -->\n)?```(?P<kind>\w+)\n(?P<code>.*?)^```$",
    re.DOTALL,
)


class Block(NamedTuple):
    """A block of code: its page, line number, language and text."""

    page: str
    line: int
    kind: str
    code: str
    mark: str  # The comment before the block, or "".

    @property
    def reason(self) -> str:
        """Return the reason why the block is not run, or ""."""
        return self.mark.removeprefix("not run: ") if self.mark else ""


def read() -> list[Block]:
    """Return all blocks of code of all pages."""
    blocks = []
    for path in PAGES:
        if not path.exists():
            continue
        text = path.read_text(encoding="utf-8")
        for match in FENCE.finditer(text):
            if match["kind"] in CODE:
                line = text.count("\n", 0, match.start("kind")) + 1
                page = str(path.relative_to(ROOT))
                blocks.append(
                    Block(
                        page,
                        line,
                        kind=match["kind"],
                        code=match["code"],
                        mark=match["mark"] or "",
                    )
                )
    return blocks


def commands(block: Block) -> list[str]:
    """Return the commands of a shell block, one a line, without comments."""
    lines = block.code.replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]


def shrunk(command: str) -> str:
    """Return the command with the smoke preset of its config and a narrow net."""
    words = shlex.split(command, comments=True)
    if words[0] == "jbias":  # The program of an installed package.
        words = ["python", "-m", *words]
    if "jbias.main" in words or words[2:4] == ["jbias", "train"]:
        words = [_smoke(w) if w.startswith("--config=") else w for w in words]
        words = [re.sub(r"^(--config\.model\.width)=\d+$", r"\1=4", w) for w in words]
    if "jbias.evaluate" in words or {*words[3:4]} & {"evaluate", "export-stimuli"}:
        words = [_smoke(w) if w.startswith("--suite=") else w for w in words]
    return shlex.join(words)


def _smoke(flag: str) -> str:
    """Return the flag with `smoke` added to its config's arguments, and without epochs."""
    preset = "=jbias:" in flag
    path, _, arguments = flag.replace("=jbias:", "=", 1).partition(":")
    path = path.replace("=", "=jbias:", 1) if preset else path
    options = [
        option for option in re.split(r",(?=\w+=|\w+$|\w+,)", arguments) if option
    ]
    sizes = ("epochs=", "demo", "small")
    options = [option for option in options if not option.startswith(sizes)]
    return f"{path}:{','.join(dict.fromkeys(('smoke', *options)))}"


def place(folder: pathlib.Path) -> None:
    """Make the folder look like a checkout's root, with some photographs in it."""
    for name in ("configs", "examples", "benchmarks", "studies", "qa", "launch"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "docs/results").mkdir(parents=True)
    for pattern in ("docs/*.md", "docs/*.csv", "docs/results/*.csv"):
        for path in ROOT.glob(pattern):
            shutil.copy(path, folder / path.relative_to(ROOT))
    rng = np.random.default_rng(0)
    for split, n in (("train", 80), ("test", 16), ("sketches", 16)):
        for level, name in enumerate(("bear", "cat")):
            place = folder / "photos" / split / name
            place.mkdir(parents=True)
            for i in range(n):
                pixels = rng.integers(0, 128, (80, 80, 3)) + 127 * level
                Image.fromarray(pixels.astype("uint8")).save(place / f"{i}.jpg")


def predefined_names(page: str) -> dict:
    """Return the variables that a page's Python blocks use without defining them."""
    if page != "docs/data.md":
        return {}
    config = erm.get_config()
    config.unlock()
    names = ["sunny"] * 160
    return {"c": config, "DIR": "data", "datasets": datasets, "names": names}
