"""The embedded data set "shapes": shapes are the classes, and textures are the shortcut.

Sixteen shapes, each filled with a texture, on a background that may show a fainter
copy of the texture, at random pose and colour. In training the texture agrees with
the class with probability `correlation`, so that texture is the easier cue to learn.
After Trifeature: Hermann and Lampinen, NeurIPS 2020, https://arxiv.org/abs/2006.12433.
Deviations: drawn from distance fields at any size; 16 shapes and 24 textures of our
own; colour is random; test sets that mirror the test sets of the shape-bias literature.

    train, valid      texture agrees with the class with probability `correlation`
    test              as train, with the same scenes as all sets below
    silhouette        black shape on white
    edge              outline, black on white
    sketch            wobbly, broken outline with hatching
    cue_conflict      texture of another class: each of the 240 pairs equally often
    stylized          one of eight textures never seen in training, independent of the class
    recoloured        as test, in hues never seen in training
    corrupted         as test, with noise, blur and so on (shape_scenes.CORRUPTIONS)

Scene i of every test set has one shape and pose, so test sets can be compared in pairs.

A correlation of 1/16 makes texture independent of class. By default one texture in a
hundred disagrees with the class: enough for methods that learn from such images, too few for
standard training (at 0.95, on an earlier version, accuracy on silhouette was 67 after 6
epochs). Measured with ResNet-18 of width 16, small stem, 32 pixels, 15 epochs of batches of 64,
SGD 0.1 with momentum 0.9, cosine, decay 5e-4, no augmentation, seed 0; accuracy in per cent,
shape bias as a share:

    correlation   valid  silhouette  edge  sketch  stylized  cue_conflict  bias
    0.99           98.6        35.8  26.7    26.0      15.2           6.5  0.071
    1/16           96.9       100.0  39.0    37.3      94.8          97.1  0.996

With `factors=True`, the other random properties of an image become attributes. A factor is a
property of the scene, divided into two values at a constant, so that an image's value depends
on the image alone. All factors except "pattern" are independent of the class and, except
"warmth" of "fill" and "paper", of each other by construction. With the usual hues, each value
of each factor has at least three in ten images; "recoloured" has no grey.

    size        small, large        scale of the shape below 0.75 or not
    tilt        right, left         the shape is turned clockwise or counter-clockwise
    across      left, right         horizontal position of the shape
    height      low, high           vertical position of the shape
    fill        grey, coloured      tint of the shape
    paper       grey, coloured      tint of the background
    warmth      warm, cool          both tints together are more red than blue, or less
    background  dark, light         compared with both tones of the shape
    margin      faint, strong       the background's distance to the nearer tone: below 0.2 or not
    contrast    low, high           between both tones of the shape: below 0.4 or not
    ink         dark, light         the second tone, compared with the first
    echo        plain, patterned    without or with the texture's copy in the background
    grain       fine, coarse        period of the texture below PERIOD or not
    turn        right, left         the texture is turned clockwise or counter-clockwise
    shade       left, right         the lighter side of the background, hardly visible
    noise       low, high           standard deviation of the noise: below 0.015 or not
    pattern     straight, curved    kind of texture, correlated with the class as texture is
"""

import functools
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from jbias import errors
from jbias.data import cache, sets, sources
from jbias.data.embedded import shape_scenes
from jbias.data.forms import listing

CURVED = (
    "dots",
    "waves",
    "scales",
    "rings",
    "blobs",
    "speckle",
    "streaks",
    "marble",
    "ripples",
)
_TEXTURES = (*shape_scenes.TEXTURES, *shape_scenes.HELD_OUT)
_Rule = Callable[[shape_scenes.Scenes], Bool[np.ndarray, "n"]]


def _is_cool(scenes: shape_scenes.Scenes) -> Bool[np.ndarray, "n"]:
    """Return a mask of the images in which the sum of the two tints is less red than blue."""
    tint = scenes.fill + scenes.paper
    return tint[:, 0] < tint[:, 2]


def _margin(scenes: shape_scenes.Scenes) -> Float[np.ndarray, "n"]:
    """Return the distance of each background's tone to the nearer tone of its image's shape."""
    return np.abs(scenes.tones[:, :2] - scenes.tones[:, 2:]).min(1)


# Factor -> names of its two values, and the rule for the second value.
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
    """Return {factor: value of each image}; values are indices in FACTORS[factor], 0 or 1.

    texture: index of each image's texture among all 24; None for images without texture,
    which have only the factors of _OUTLINE.
    """
    rules = _OUTLINE if texture is None else {**_OUTLINE, **_FILLED}
    columns = {name: rule(scenes) for name, (_, rule) in rules.items()}
    if texture is not None:
        is_curved = np.array([name in CURVED for name in _TEXTURES])
        columns["pattern"] = is_curved[texture]
    return {name: column.astype(np.int32) for name, column in columns.items()}


VERSION = 1  # Of the drawing: change it with any change of a pixel.
SIZES = (32, 224)
BLOCK = 240  # Scenes drawn from one generator: every pair of class and other class.
CLASSES = tuple(shape_scenes.SHAPES)
_COUNTS = {"train": 4096, "valid": 512}  # Default numbers of images; else 480.
_VALUES = {"attribute": _TEXTURES, "corruption": shape_scenes.CORRUPTIONS}
# Splits without texture.
_FLAT = {name: getattr(shape_scenes, name) for name in ("silhouette", "edge", "sketch")}
_UNCORRELATED = (*_FLAT, "cue_conflict", "stylized")
_RENDERED = ("train", "valid", "test", "cue_conflict", "recoloured")
SPLITS = ("train", "valid", "test", *_UNCORRELATED, "recoloured", "corrupted")


def check_drawing(
    name: str, split: str, splits: tuple[str, ...], size: int, seed: int
) -> None:
    """Raise ValueError for arguments of a drawn data set outside their range.

    name: name of the data set, the start of the message. splits: the known splits. size: side
    in pixels; must be from 32 to 224 (SIZES). seed: must be at least 0.
    """
    errors.check_known(name, split, splits, "split", must="be a known one")
    errors.check_whole(name, size, low=SIZES[0], high=SIZES[1], name="size")
    errors.check_whole(name, seed, low=0, name="seed")


def source_fields(
    name: str,
    split: str,
    size: int,
    arrays: Mapping[str, np.ndarray],
    *words: str,
) -> dict[str, Any]:
    """Return fields of the ArraySource of a drawn split, as a dict of keyword arguments.

    The keys are images, name, cite, fingerprint and preprocessing. name: name of the data set, a
    key of sets.DATASETS. size: side of the images in pixels. arrays: all drawn arrays by name, with
    the images under "image". words: texts that describe the drawing exactly; the fingerprint covers
    arrays and words.
    """
    return {
        "images": arrays["image"],
        "name": f"{name}/{split}",
        "cite": sets.DATASETS[name].cite,
        "fingerprint": listing.digest_named(arrays, *words),
        "preprocessing": f"drawn at {size} pixels",
    }


def _check(split: str, n: int, *, correlation: float, renders: bool) -> None:
    """Raise ValueError for arguments outside their range.

    n must be a positive multiple of 16, or of 240 for cue_conflict; correlation in [0, 1];
    renders False for splits without textures of the classes.
    """
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
    """Return the random generator of one kind of draw in a block of scenes.

    purpose: name of the kind of draw, such as "scene". block: index of the block. All test
    splits have the same generators.
    """
    stream = split if split in ("train", "valid") else "test"
    code = zlib.crc32(f"{stream}/{purpose}".encode())
    return np.random.default_rng([seed, code, block])


class _Block(NamedTuple):
    """A block of scenes that are drawn from the same generators."""

    generator: Callable[[str], np.random.Generator]  # Purpose of a draw -> generator.
    number: Int[np.ndarray, "n"]  # Index of each image in the split.
    scenes: shape_scenes.Scenes


def _blocks(split: str, n: int, seed: int) -> Iterator[_Block]:
    """Yield the blocks of the first n images of a split.

    All scenes of a block are drawn, even if fewer are used, so that images do not depend
    on n.
    """
    for start in range(0, n, BLOCK):
        generator = functools.partial(
            _generator, split, block=start // BLOCK, seed=seed
        )
        number = np.arange(start, min(start + BLOCK, n))
        if split == "recoloured":
            scenes = shape_scenes.draw(
                generator("scene"), BLOCK, hues=shape_scenes.NEW_HUES, least=0.5
            )
        else:
            scenes = shape_scenes.draw(generator("scene"), BLOCK)
        yield _Block(generator, number, scenes[number - start])


def _draw_block(
    split: str, block: _Block, *, size: int, correlation: float
) -> dict[str, np.ndarray]:
    """Return {name: array}: "image" (n size size 3), "label" and further columns of a block.

    Further columns are "attribute", the texture's index among all 24 (not for splits without
    texture); "texture", the same, for cue_conflict; and "corruption", the index in
    shape_scenes.CORRUPTIONS, for corrupted. size, correlation: see `make`.
    """
    generator, number, scenes = block
    k, count = len(CLASSES), len(number)
    turn, shape = np.divmod(number, k)
    if split in _FLAT:
        image = _FLAT[split](scenes, shape, size)
        return {"image": shape_scenes.quantise(image), "label": shape}
    agrees = generator("agree").random(BLOCK)[:count] < correlation
    other = (shape + generator("other").integers(1, k, BLOCK)[:count]) % k
    texture = np.where(agrees, shape, other)
    columns, names = {}, shape_scenes.CORRUPTIONS
    if split == "cue_conflict":
        texture = (shape + 1 + turn % (k - 1)) % k
        columns["texture"] = texture
    if split == "stylized":
        num_new = len(shape_scenes.HELD_OUT)
        texture = k + generator("stylized").integers(0, num_new, BLOCK)[:count]
    image = shape_scenes.textured(
        scenes, shape, texture=texture, size=size, rng=generator("sensor")
    )
    if split == "corrupted":
        columns["corruption"] = turn % len(names)
        rngs = [generator(name) for name in names]
        image = shape_scenes.corrupt(image, columns["corruption"], rngs)
    image = shape_scenes.quantise(image)
    return {"image": image, "label": shape, "attribute": texture, **columns}


def _draw_renders(split: str, n: int, size: int, seed: int) -> dict[str, np.ndarray]:
    """Return {"renders": (n 16 size size 3)}, each scene with each of the classes' 16 textures.

    Arguments: see `make`.
    """
    k = len(CLASSES)
    renders = np.empty((n, k, size, size, 3), np.uint8)
    for generator, number, scenes in _blocks(split, n, seed):
        for texture in range(k):
            image = shape_scenes.textured(
                scenes,
                number % k,
                texture=np.full(len(number), texture),
                size=size,
                rng=generator("sensor"),
            )
            renders[number, texture] = shape_scenes.quantise(image)
    return {"renders": renders}


def _with_factors(
    source: sources.ArraySource, split: str, seed: int
) -> sources.ArraySource:
    """Return the source with a column for each factor that its images show, see FACTORS.

    The scenes are drawn again. split, seed: the source's split and seed.
    """
    texture = source.columns.get("attribute")
    block_factors = []
    for _, number, scenes in _blocks(split, len(source), seed):
        block_texture = None if texture is None else texture[number]
        block_factors.append(scene_factors(scenes, block_texture))
    columns = {
        name: np.concatenate([factors[name] for factors in block_factors])
        for name in block_factors[0]
    }
    return sources.add(source, columns, {name: FACTORS[name] for name in columns})


def _draw(
    split: str, n: int, *, seed: int, size: int, correlation: float
) -> dict[str, np.ndarray]:
    """Return {name: array} of the first n images of a split, see `_draw_block`.

    Arguments: see `make`.
    """
    blocks = [
        _draw_block(split, block, size=size, correlation=correlation)
        for block in _blocks(split, n, seed)
    ]
    return join_blocks(blocks)


def join_blocks(blocks: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return {name: array} of the images of all blocks, in order; columns become int32.

    blocks: {name: array} of each block: "image", and columns.
    """
    joined = {
        name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]
    }
    return {
        name: array if name == "image" else array.astype(np.int32)
        for name, array in joined.items()
    }


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
    """Return the source of the first n images of a split, drawn or from the cache.

    Columns in addition to "label": "attribute", the texture, except in silhouette, edge and
    sketch; "texture", the same, in cue_conflict; "corruption" in corrupted.

    split: one of SPLITS; the module's docstring describes them.
    size: side in pixels, 32 to 224. n: a multiple of 16, or of 240 for cue_conflict. Default:
      4096 for training, 512 for validation, else 480. Image i does not depend on n.
    correlation: probability that the texture is the class's own; otherwise the texture is
      another class's. No effect on splits without texture, cue_conflict and stylized.
    seed: seed of the drawing.
    renders: True adds arrays["renders"] (n, 16, size, size, 3), every scene drawn with each of
      the 16 textures of the classes; the render with the texture of "attribute" is the image.
      Only for train, valid, test, cue_conflict and recoloured.
    factors: True adds a column for each of FACTOR_NAMES that the images show.
    ValueError for arguments outside their range.
    """
    n = _COUNTS.get(split, 480) if n is None else n
    check_drawing("shapes", split, splits=SPLITS, size=size, seed=seed)
    _check(split, n, correlation=correlation, renders=renders)
    if split in _UNCORRELATED:
        correlation = 0.0  # Has no effect: one cache entry for all values.
    n, size, seed = int(n), int(size), int(seed)
    options = {"size": size, "correlation": float(correlation), "seed": seed}
    words = f"shapes {VERSION} {split} {n} {sorted(options.items())}"
    arrays = cache.remember(f"shapes-{split}", words, _draw, split, n, **options)
    render_arrays, render_words = {}, ""
    if renders:
        options.pop("correlation")  # Has no effect on the renders.
        render_words = f"shapes {VERSION} {split} {n} renders {sorted(options.items())}"
        render_arrays = cache.remember(
            f"shapes-{split}-renders",
            render_words,
            _draw_renders,
            split,
            n,
            **options,
        )
    has_conflict = split == "cue_conflict"
    source = sources.ArraySource(
        **source_fields("shapes", split, size, arrays, words, render_words),
        classes=CLASSES,
        columns={name: array for name, array in arrays.items() if name != "image"},
        arrays=render_arrays,
        measures=("accuracy", "shape_bias") if has_conflict else ("accuracy",),
        values={name: names for name, names in _VALUES.items() if name in arrays},
    )
    return _with_factors(source, split, seed) if factors else source
