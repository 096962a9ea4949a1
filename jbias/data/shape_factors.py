"""Factors of the embedded set: what else is random in an image, as attributes.

Each is read off the scene that the image was drawn from, and halved at a constant: an
image's value depends on nothing but the image. All but "pattern" are independent of the
class and of each other by construction, but for "warmth" with the two that say where
there is colour. With the usual hues both values of each have three in ten images or
more; "recoloured" has no grey.

    size        small, large        scale of the shape below 0.75 or not
    tilt        right, left         the shape is turned clockwise or counter-clockwise
    across      left, right         where the shape is
    height      low, high           where the shape is
    fill        grey, coloured      tint of the shape
    paper       grey, coloured      tint of the background
    warmth      warm, cool          both tints together are more red than blue, or less
    background  dark, light         against both tones of the shape
    margin      faint, strong       the background's distance to the nearer tone, 0.2
    contrast    low, high           between both tones of the shape, 0.4
    ink         dark, light         the second tone against the first
    echo        plain, patterned    the texture's copy in the background
    grain       fine, coarse        period of the texture below PERIOD or not
    turn        right, left         the texture is turned clockwise or the other way
    shade       left, right         the lighter side of the background, hardly seen
    noise       low, high           deviation of the sensor's noise, 0.015
    pattern     straight, curved    kind of texture: tells the class as far as it does
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from jaxtyping import Bool, Int

from jbias.data import shape_scenes, textures

CURVED = (
    *("dots", "waves", "scales", "rings", "blobs", "speckle"),
    *("streaks", "marble", "ripples"),
)
_TEXTURES = (*textures.TEXTURES, *textures.HELD_OUT)
_Rule = Callable[[shape_scenes.Scenes], Bool[np.ndarray, "n"]]


def _is_coloured(tint: np.ndarray) -> Bool[np.ndarray, "n"]:
    return tint.min(1) < 1


def _is_cool(scenes: shape_scenes.Scenes) -> Bool[np.ndarray, "n"]:
    tint = scenes.fill + scenes.paper
    return tint[:, 0] < tint[:, 2]


def _margin(scenes: shape_scenes.Scenes) -> np.ndarray:
    return np.abs(scenes.tones[:, :2] - scenes.tones[:, 2:]).min(1)


# Name -> the values, and when it is the second.
_OUTLINE: Mapping[str, tuple[tuple[str, str], _Rule]] = MappingProxyType(
    {
        "size": (("small", "large"), lambda s: s.scale >= 0.75),
        "tilt": (("right", "left"), lambda s: s.angle >= 0),
        "across": (("left", "right"), lambda s: s.shift[:, 0] >= 0),
        "height": (("low", "high"), lambda s: s.shift[:, 1] >= 0),
    }
)
_FILLED: Mapping[str, tuple[tuple[str, str], _Rule]] = MappingProxyType(
    {
        "fill": (("grey", "coloured"), lambda s: _is_coloured(s.fill)),
        "paper": (("grey", "coloured"), lambda s: _is_coloured(s.paper)),
        "warmth": (("warm", "cool"), _is_cool),
        "background": (("dark", "light"), lambda s: s.tones[:, 2] > s.tones[:, 0]),
        "margin": (("faint", "strong"), lambda s: _margin(s) >= 0.2),
        "contrast": (
            ("low", "high"),
            lambda s: np.abs(s.tones[:, 1] - s.tones[:, 0]) >= 0.4,
        ),
        "ink": (("dark", "light"), lambda s: s.tones[:, 1] > s.tones[:, 0]),
        "echo": (("plain", "patterned"), lambda s: s.echo != 0),
        "grain": (("fine", "coarse"), lambda s: s.grain >= 1),
        "turn": (("right", "left"), lambda s: s.turn >= 0),
        "shade": (("left", "right"), lambda s: s.slope[:, 0] >= 0),
        "noise": (("low", "high"), lambda s: s.sensor >= 0.015),
    }
)
VALUES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        **{name: values for name, (values, _) in {**_OUTLINE, **_FILLED}.items()},
        "pattern": ("straight", "curved"),
    }
)
NAMES = tuple(VALUES)


def of(
    scenes: shape_scenes.Scenes, texture: Int[np.ndarray, "n"] | None
) -> dict[str, Int[np.ndarray, "n"]]:
    """The factors that images of these scenes show; texture: None where they have none."""
    rules = _OUTLINE if texture is None else {**_OUTLINE, **_FILLED}
    found = {name: rule(scenes) for name, (_, rule) in rules.items()}
    if texture is not None:
        found["pattern"] = np.array([t in CURVED for t in _TEXTURES])[texture]
    return {name: column.astype(np.int32) for name, column in found.items()}
