"""Estimates of the tokens of a request, before it is sent.

Text has a token for every four characters. Images have as many as OpenAI's guide "Images and
vision" says for a model of this name; other endpoints count otherwise, so that --tokens-per-image
can replace the formula.

- Tiles: the image is shrunk to at most 2,048 pixels a side, then until its shorter side has at
  most 768; it has base + tile * (number of squares of 512 pixels that cover it) tokens, and only
  base with detail "low".
- Patches: factor * (number of squares of 32 pixels that cover it), of which at most 1,536 count.
"""

import math
from collections.abc import Mapping

# By the beginning of the model's name; the longest that fits counts.
TILES: Mapping[str, tuple[int, int]] = {
    "gpt-4o-mini": (2833, 5667),
    "gpt-4o": (85, 170),
    "gpt-4.1": (85, 170),
    "gpt-4.5": (85, 170),
    "gpt-5": (70, 140),
    "o1": (75, 150),
    "o3": (75, 150),
}
PATCHES: Mapping[str, float] = {
    "gpt-4.1-mini": 1.62,
    "gpt-4.1-nano": 2.46,
    "gpt-5-mini": 1.62,
    "gpt-5-nano": 2.46,
    "o4-mini": 1.72,
}
OTHER = "gpt-4o"  # The formula for models that are not listed.
_MAX_PATCHES = 1536


def of_text(text: str) -> int:
    """Return the estimated number of tokens of a text."""
    return math.ceil(len(text) / 4)


def formula(model: str) -> str:
    """Return the name in TILES or PATCHES whose formula is used for a model.

    model: such as "gpt-4o-2024-08-06" or "openai/gpt-4o".
    """
    name = model.rpartition("/")[2].casefold()
    matches = [known for known in (*TILES, *PATCHES) if name.startswith(known)]
    return max(matches, key=len, default=OTHER)


def of_image(width: int, height: int, *, model: str, detail: str = "auto") -> int:
    """Return the estimated number of tokens of an image of this size, in pixels.

    detail: "low", "high" or "auto", which counts as high.
    """
    name = formula(model)
    if name in PATCHES:
        patches = math.ceil(width / 32) * math.ceil(height / 32)
        return math.ceil(PATCHES[name] * min(patches, _MAX_PATCHES))
    base, tile = TILES[name]
    if detail == "low":
        return base
    scale = min(1, 2048 / max(width, height))
    scale = min(scale, 768 / min(width, height))
    # Rounded, so that a side of exactly 512 pixels has one tile.
    columns, rows = (
        math.ceil(round(side * scale, 6) / 512) for side in (width, height)
    )
    return base + tile * columns * rows
