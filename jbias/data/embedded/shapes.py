"""The embedded set: shapes are the classes, textures the shortcut.

Sixteen shapes, each filled with a texture, on a background that may show a fainter
copy of the texture, at random pose and colour. In training the texture agrees with
the class with probability `correlation`, so that a lazy learner learns texture.
After Trifeature: Hermann and Lampinen, NeurIPS 2020, https://arxiv.org/abs/2006.12433.
Deviations: drawn from distance fields at any size; 16 shapes and 24 textures of our
own; colour is random; test sets that mirror those of the shape-bias literature.

    train, valid      texture agrees with the class with probability `correlation`
    test              the same, and the scenes of all sets below
    silhouette        black shape on white
    edge              outline, black on white
    sketch            wobbly, broken outline with hatching
    cue_conflict      texture of another class: each of the 240 pairs equally often
    stylized          one of eight textures never seen in training, whatever the class
    recoloured        as test, in hues never seen in training
    corrupted         as test, with noise, blur and so on (shape_scenes.CORRUPTIONS)

Scene i of every test set has one shape and pose, so sets can be compared in pairs.

A correlation of 1/16 makes texture independent of class. By default one texture in a
hundred disagrees: enough for methods that need exceptions to find some, too few for
plain training to use them (at 0.95, on an earlier drawing, silhouette was 67 after 6
epochs). Measured with ResNet-18 of width 16, small stem, 32 pixels, 15 epochs of
batches of 64, SGD 0.1 with momentum 0.9, cosine, decay 5e-4, no augmentation, seed 0;
accuracy in per cent, shape bias as a share:

    correlation   valid  silhouette  edge  sketch  stylized  cue_conflict  bias
    0.99           98.6        35.8  26.7    26.0      15.2           6.5  0.071
    1/16           96.9       100.0  39.0    37.3      94.8          97.1  0.996

Factors, with `factors=True`, are what else is random in an image, as attributes. Each is
read off the scene that the image was drawn from, and halved at a constant: an image's value
depends on nothing but the image. All but "pattern" are independent of the
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

import functools
import zlib
from collections.abc import Callable, Iterator, Mapping

import numpy as np
from jaxtyping import Bool, Int

from jbias.data import base, cache, sources, tables
from jbias.data.embedded import shape_scenes
from jbias.data.forms import listing

CURVED = ("dots", "waves", "scales", "rings", "blobs", "speckle")
CURVED += ("streaks", "marble", "ripples")
_TEXTURES = (*shape_scenes.TEXTURES, *shape_scenes.HELD_OUT)
_Rule = Callable[[shape_scenes.Scenes], Bool[np.ndarray, "n"]]


def _is_cool(scenes: shape_scenes.Scenes) -> Bool[np.ndarray, "n"]:
    tint = scenes.fill + scenes.paper
    return tint[:, 0] < tint[:, 2]


def _margin(scenes: shape_scenes.Scenes) -> np.ndarray:
    return np.abs(scenes.tones[:, :2] - scenes.tones[:, 2:]).min(1)


# Name -> the values, and when it is the second.
_OUTLINE: Mapping[str, tuple[tuple[str, str], _Rule]] = {
    "size": (("small", "large"), lambda s: s.scale >= 0.75),
    "tilt": (("right", "left"), lambda s: s.angle >= 0),
    "across": (("left", "right"), lambda s: s.shift[:, 0] >= 0),
    "height": (("low", "high"), lambda s: s.shift[:, 1] >= 0),
}
_FILLED: Mapping[str, tuple[tuple[str, str], _Rule]] = {
    "fill": (("grey", "coloured"), lambda s: s.fill.min(1) < 1),
    "paper": (("grey", "coloured"), lambda s: s.paper.min(1) < 1),
    "warmth": (("warm", "cool"), _is_cool),
    "background": (("dark", "light"), lambda s: s.tones[:, 2] > s.tones[:, 0]),
    "margin": (("faint", "strong"), lambda s: _margin(s) >= 0.2),
    "contrast": (("low", "high"), lambda s: np.ptp(s.tones[:, :2], 1) >= 0.4),
    "ink": (("dark", "light"), lambda s: s.tones[:, 1] > s.tones[:, 0]),
    "echo": (("plain", "patterned"), lambda s: s.echo != 0),
    "grain": (("fine", "coarse"), lambda s: s.grain >= 1),
    "turn": (("right", "left"), lambda s: s.turn >= 0),
    "shade": (("left", "right"), lambda s: s.slope[:, 0] >= 0),
    "noise": (("low", "high"), lambda s: s.sensor >= 0.015),
}
FACTORS: Mapping[str, tuple[str, str]] = {
    **{name: values for name, (values, _) in {**_OUTLINE, **_FILLED}.items()},
    "pattern": ("straight", "curved"),
}
FACTOR_NAMES = tuple(FACTORS)


def scene_factors(
    scenes: shape_scenes.Scenes, texture: Int[np.ndarray, "n"] | None
) -> dict[str, Int[np.ndarray, "n"]]:
    """The factors that images of these scenes show; texture: None where they have none."""
    rules = _OUTLINE if texture is None else {**_OUTLINE, **_FILLED}
    found = {name: rule(scenes) for name, (_, rule) in rules.items()}
    if texture is not None:
        found["pattern"] = np.array([t in CURVED for t in _TEXTURES])[texture]
    return {name: column.astype(np.int32) for name, column in found.items()}


VERSION = 1  # Of the drawing: change it with any change of a pixel.
SIZES = (32, 224)
BLOCK = 240  # Scenes drawn from one generator: every pair of class and other class.
CLASSES = tuple(shape_scenes.SHAPES)
_COUNTS = {"train": 4096, "valid": 512}  # Else 480.
_VALUES = {"attribute": _TEXTURES, "corruption": shape_scenes.CORRUPTIONS}
# Without texture.
_FLAT = {name: getattr(shape_scenes, name) for name in ("silhouette", "edge", "sketch")}
_UNCORRELATED = (*_FLAT, "cue_conflict", "stylized")
_RENDERED = ("train", "valid", "test", "cue_conflict", "recoloured")
SPLITS = ("train", "valid", "test", *_UNCORRELATED, "recoloured", "corrupted")


def check_drawing(
    name: str, split: str, splits: tuple[str, ...], size: int, seed: int
) -> None:
    """Raises ValueError, one line, for arguments of a drawn set outside their range."""
    base.check_known(f"{name}: split must be a known one", split, splits)
    base.check_int(f"{name}: size", size, *SIZES)
    base.check_int(f"{name}: seed", seed, 0)


def describe(name: str, split: str, size: int, arrays: Mapping, *words: str) -> dict:
    """What a source of a drawn set says of itself; words: that it was drawn by."""
    about = dict(images=arrays["image"], name=f"{name}/{split}", cite=tables.cite(name))
    about["fingerprint"] = listing.digest_named(arrays, *words)
    return about | {"preprocessing": f"drawn at {size} pixels"}


def _check(split: str, n: int, correlation: float, renders: bool) -> None:
    """Raises ValueError, one line, for arguments outside their range."""
    unit = BLOCK if split == "cue_conflict" else len(CLASSES)
    if not isinstance(n, int | np.integer) or n < unit or n % unit:
        must = f"n must be a positive multiple of {unit}, so that classes are balanced"
        near = max(1, round(n / unit)) * unit
        raise ValueError(f"shapes/{split}: {must}, got {n}; try {near}")
    if not 0 <= correlation <= 1:
        must = f"shapes: correlation must be in [0, 1], got {correlation}"
        raise ValueError(f"{must}; 1/16 makes texture independent of class")
    if renders and split not in _RENDERED:
        known = f"{', '.join(_RENDERED)}, whose images show textures of the classes"
        raise ValueError(f"shapes: renders must be of one of {known}, got {split!r}")


def _generator(split: str, purpose: str, block: int, seed: int) -> np.random.Generator:
    """Gives what draws one thing for one block; the test sets share their streams."""
    stream = split if split in ("train", "valid") else "test"
    code = zlib.crc32(f"{stream}/{purpose}".encode())
    return np.random.default_rng([seed, code, block])


def _blocks(split: str, n: int, seed: int) -> Iterator[tuple]:
    """Of each block what draws, the numbers of its first images, and their scenes.

    All of a block's scenes are drawn, however many are taken.
    """
    new = {"hues": shape_scenes.NEW_HUES, "least": 0.5} if split == "recoloured" else {}
    for start in range(0, n, BLOCK):
        draw = functools.partial(_generator, split, block=start // BLOCK, seed=seed)
        number = np.arange(start, min(start + BLOCK, n))
        scenes = shape_scenes.draw(draw("scene"), BLOCK, **new)
        yield draw, number, scenes[number - start]


def _block(split, draw, number, scenes, *, size, correlation) -> dict[str, np.ndarray]:
    """Draws the images of a block."""
    k, count = len(CLASSES), len(number)
    turn, shape = np.divmod(number, k)
    if split in _FLAT:
        image = _FLAT[split](scenes, shape, size)
        return {"image": shape_scenes.quantise(image), "label": shape}
    agree = draw("agree").random(BLOCK)[:count] < correlation
    other = (shape + draw("other").integers(1, k, BLOCK)[:count]) % k
    texture = np.where(agree, shape, other)
    columns, names = {}, shape_scenes.CORRUPTIONS
    if split == "cue_conflict":
        columns["texture"] = texture = (shape + 1 + turn % (k - 1)) % k
    if split == "stylized":
        new = draw("stylized").integers(0, len(shape_scenes.HELD_OUT), BLOCK)
        texture = k + new[:count]
    image = shape_scenes.textured(scenes, shape, texture, size, draw("sensor"))
    if split == "corrupted":
        kind = columns["corruption"] = turn % len(names)
        image = shape_scenes.corrupt(image, kind, [draw(name) for name in names])
    image = shape_scenes.quantise(image)
    return {"image": image, "label": shape, "attribute": texture, **columns}


def _renders(split: str, n: int, size: int, seed: int) -> dict[str, np.ndarray]:
    """Draws every scene with each texture of the classes, as `_block` draws it."""
    k = len(CLASSES)
    renders = np.empty((n, k, size, size, 3), np.uint8)
    for draw, number, scenes in _blocks(split, n, seed):
        for texture in range(k):
            which, sensor = np.full(len(number), texture), draw("sensor")
            image = shape_scenes.textured(scenes, number % k, which, size, sensor)
            renders[number, texture] = shape_scenes.quantise(image)
    return {"renders": renders}


def _with_factors(source, split, seed) -> sources.ArraySource:
    """Draws the scenes anew, and adds what their images show."""
    texture = source.columns.get("attribute")
    own = lambda number: None if texture is None else texture[number]
    blocks = _blocks(split, len(source), seed)
    parts = [scene_factors(scenes, own(number)) for _, number, scenes in blocks]
    found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return sources.add(source, found, {name: FACTORS[name] for name in found})


def _draw(split: str, n: int, *, seed: int, **options) -> dict[str, np.ndarray]:
    parts = [_block(split, *one, **options) for one in _blocks(split, n, seed)]
    joined = {k: np.concatenate([part[k] for part in parts]) for k in parts[0]}
    return {k: v if k == "image" else v.astype(np.int32) for k, v in joined.items()}


def make(
    split: str,
    *,
    size: int = 32,
    n: int | None = None,
    correlation: float = 0.99,
    seed: int = 0,
    renders: bool = False,
    factors: bool = False,
) -> sources.ArraySource:
    """Draws, or reads from the cache, one split of n images.

    n is a multiple of 16, or of 240 for cue_conflict (4096 for training, 512 for
    validation, else 480, if None); image i does not depend on n.
    renders: also gives, as arrays["renders"] (n, 16, size, size, 3), every scene drawn
    with each of the 16 textures; the one of its own "attribute" is the image.
    factors: also gives a column for each of FACTOR_NAMES that the images show.
    Raises ValueError, one line, for arguments outside their range.
    """
    n = _COUNTS.get(split, 480) if n is None else n
    check_drawing("shapes", split, SPLITS, size, seed)
    _check(split, n, correlation, renders)
    if split in _UNCORRELATED:
        correlation = 0.0  # Has no say in these sets: one cache entry for all values.
    options = dict(size=int(size), correlation=float(correlation), seed=int(seed))
    words = f"shapes {VERSION} {split} {int(n)} {sorted(options.items())}"
    drawn = split, int(n)
    arrays = cache.remember(f"shapes-{split}", words, _draw, *drawn, **options)
    more, also = {}, ""
    if renders:
        options.pop("correlation")  # Has no say, either.
        also = f"shapes {VERSION} {split} {int(n)} renders {sorted(options.items())}"
        kind = f"shapes-{split}-renders"
        more = cache.remember(kind, also, _renders, *drawn, **options)
    about = describe("shapes", split, size, arrays, words, also) | {"arrays": more}
    about["measures"] = ("accuracy", "shape_bias")[: 1 + (split == "cue_conflict")]
    about["values"] = {name: known for name, known in _VALUES.items() if name in arrays}
    columns = {key: array for key, array in arrays.items() if key != "image"}
    source = sources.ArraySource(classes=CLASSES, columns=columns, **about)
    return _with_factors(source, split, int(seed)) if factors else source
