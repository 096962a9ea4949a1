"""The embedded data set "cues": scenes whose shape, texture, colour and size are chosen freely.

The scenes are those of "shapes", with a figure in one of sixteen hues and four sizes. Each cue
stands for a class: shape and texture for one of sixteen, as in "shapes"; colour k for class k;
and size k, together with the shape, for class 4 k + (shape mod 4), so that an image of which all
cues agree has one class.

    train, valid       images whose labels follow planted reliance on the cues, see `make`
    test               all cues are of the label's class
    cue_conflict       shape of one class, texture of another; as in style transfer, the colour is
                       of the texture's class and the size of the shape's class
    cue_conflict_free  the same pairs; colour and size are of neither class
    factorial          every combination of the four cues: 16,384 images
    single_cue         a black silhouette on white, or a texture without a shape (column "cue")
    silhouette, edge, sketch
                       as in "shapes"
    texture            textures without a shape
    stylized           textures that no class has, in unrelated colours
    recoloured         as test, in the colour of another class

Labels that follow planted reliance are for networks with known reliance on shape, on which
measures of shape bias are calibrated (`jbias.planting`). Two designs:

"salience": all cues are independent. The label of a scene with shape s and texture t is fixed for
the pair: s for the share `dial` of the 240 pairs of two classes, else t. Each shape and each
texture has a salience, and the more salient cue is the label. So the best decision about every
pair is known, and a sum of evidence for both cues is enough to make it. A shortcut decides
instead in the fixed share `strength` of the hues, or of the sizes.
"agreement": each cue agrees with the label independently, in a share of the images (`agrees`),
and is of another class otherwise. Then the best decision follows the most reliable cue.

After the planted features of Hermann and Lampinen, NeurIPS 2020,
https://arxiv.org/abs/2006.12433, who vary how well and how easily features predict labels.
Deviation: pairs whose label is fixed for the pair.
"""

import dataclasses
import functools
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from jbias import errors
from jbias.data import cache, sources
from jbias.data.embedded import shape_scenes, shapes

VERSION = 2  # Of the drawing: change it with any change of a pixel.
BLOCK = 240  # Scenes drawn from one generator.
CLASSES = shapes.CLASSES
TEXTURES = tuple(shape_scenes.TEXTURES)
NUM_CLASSES = len(CLASSES)
SCALES = (0.48, 0.6, 0.74, 0.9)  # Of the figure, by size.
JITTER = 0.02  # Of the scale.
NUM_SIZES = len(SCALES)
NUM_COMBINATIONS = NUM_CLASSES**3 * NUM_SIZES
HUES = tuple(f"hue {360 * k / NUM_CLASSES:g}" for k in range(NUM_CLASSES))
SIZES = ("small", "medium", "large", "huge")
CUES = ("shape", "texture", "colour", "size")
SHORTCUTS = ("", "colour", "size")
DESIGNS = ("salience", "agreement")
TRAINING = ("train", "valid")
CONFLICTS = ("cue_conflict", "cue_conflict_free")
_FLAT = ("silhouette", "edge", "sketch")
SPLITS = (
    *TRAINING,
    "test",
    *CONFLICTS,
    "factorial",
    "single_cue",
    *_FLAT,
    "texture",
    "stylized",
    "recoloured",
)
_COUNTS = {"train": 4096, "factorial": NUM_COMBINATIONS}  # Else 480.
_TABLE_SEED = 2206  # Of saliences and of the order in which hues and sizes decide.
_MOSAIC = 4  # Tiles per side of a hidden shape.

Ids = Int[np.ndarray, "n"]


class Cues(NamedTuple):
    """The four cues of n images, as indices."""

    shape: Ids  # In CLASSES.
    texture: Ids  # In TEXTURES, or beyond for textures that no class has.
    colour: Ids  # In HUES.
    size: Ids  # In SIZES.

    @property
    def size_class(self) -> Ids:
        """Return the class that the size stands for: in the size's group, at the shape's place."""
        return NUM_SIZES * self.size + self.shape % NUM_SIZES

    @property
    def classes(self) -> dict[str, Ids]:
        """Return the class that each of CUES stands for, by name."""
        return {
            "shape": self.shape,
            "texture": self.texture,
            "colour": self.colour,
            "size": self.size_class,
        }


class Planted(NamedTuple):
    """Planted reliance of the labels on the cues; fields as in `make`."""

    design: str = "salience"
    dial: float = 0.5
    shortcut: str = ""
    strength: float = 0.0
    noise: float = 0.0


INDEPENDENT = Planted()


def shape_wins(dial: float) -> Bool[np.ndarray, "shape texture"]:
    """Return for each shape and texture whether the shape is more salient.

    It is for round(240 dial) of the 240 pairs of two classes. Pairs of one class are False.
    """
    rng = np.random.default_rng(_TABLE_SEED)
    shape_salience, texture_salience = rng.random((2, NUM_CLASSES))
    lead = shape_salience[:, None] - texture_salience
    lead[np.eye(NUM_CLASSES, dtype=bool)] = -np.inf
    num_pairs = NUM_CLASSES * (NUM_CLASSES - 1)
    order = np.argsort(-lead, axis=None, kind="stable")
    wins = np.zeros(NUM_CLASSES**2, bool)
    wins[order[: round(num_pairs * dial)]] = True
    return wins.reshape(lead.shape)


def shortcut_values(shortcut: str, strength: float) -> Bool[np.ndarray, "values"]:
    """Return for each hue, or each size, whether it decides alone.

    strength: the share of values that do, rounded to sixteenths or quarters.
    """
    num_values = NUM_SIZES if shortcut == "size" else NUM_CLASSES
    order = np.random.default_rng([_TABLE_SEED, num_values]).permutation(num_values)
    decides = np.zeros(num_values, bool)
    decides[order[: round(strength * num_values)]] = True
    return decides


def planted_label(cues: Cues, planted: Planted) -> Ids:
    """Return the label of each image by the design "salience", without noise."""
    wins = shape_wins(planted.dial)[cues.shape, cues.texture]
    label = np.where(wins, cues.shape, cues.texture)
    if planted.shortcut:
        decides = shortcut_values(planted.shortcut, planted.strength)
        value = cues.colour if planted.shortcut == "colour" else cues.size
        label = np.where(decides[value], cues.classes[planted.shortcut], label)
    return label


def make(
    split: str,
    *,
    size: int = 32,
    n: int | None = None,
    seed: int = 0,
    design: str = "salience",
    dial: float = 0.5,
    shortcut: str = "",
    strength: float = 0.0,
    agrees: Sequence[float] = (0.9, 0.9, 0.0625, 0.25),
    hidden: Sequence[float] = (0.0, 0.0),
    noise: float = 0.0,
) -> sources.ArraySource:
    """Return the source of the first n images of a split, drawn or from the cache.

    Columns: "label"; "shape", "texture", "colour" and "size" as indices, if the split shows them;
    for stylized "attribute", the texture among all 24, instead of "texture"; and "cue" for
    single_cue, 0 for shape and 1 for texture.

    split: one of SPLITS; the module's docstring describes them. Options after `seed` have an
      effect on train and valid only.
    size: side in pixels, 32 to 224. n: default 4096 for training, 16384 for factorial, else 480.
      A multiple of 16, of 240 for cue conflicts, and of 32 for single_cue. Image i does not depend
      on n. seed: seed of the drawing.
    design: one of DESIGNS.
    dial: for "salience", the share of pairs whose label is the shape's class, 0 to 1.
    shortcut, strength: for "salience", one of SHORTCUTS, and the share of its values that decide.
    agrees: for "agreement", the share of images in which each of CUES is of the label's class.
    hidden: shares of the images without shape (its outline is cut into tiles, in random order) and
      without texture (a plain figure).
    noise: share of labels that are drawn at random from all classes.
    ValueError for arguments outside their range.
    """
    n = _COUNTS.get(split, 480) if n is None else n
    shapes.check_drawing("cues", split, splits=SPLITS, size=size, seed=seed)
    _check_count(split, n)
    planted = Planted(design, float(dial), shortcut, float(strength), float(noise))
    agrees, hidden = tuple(map(float, agrees)), tuple(map(float, hidden))
    _check_planted(planted, agrees, hidden)
    options = {"size": int(size), "seed": int(seed)}
    words = f"cues {VERSION} {split} {int(n)} {sorted(options.items())}"
    if split in TRAINING:
        options |= {"planted": planted, "agrees": agrees, "hidden": hidden}
        words += f" {tuple(planted)} {agrees} {hidden}"
    arrays = cache.remember(f"cues-{split}", words, _draw, split, int(n), **options)
    columns = {name: array for name, array in arrays.items() if name != "image"}
    values = {
        "shape": CLASSES,
        "attribute": (*TEXTURES, *shape_scenes.HELD_OUT),
        "colour": HUES,
        "size": SIZES,
        "cue": ("shape", "texture"),
    }
    extra = {"cue_conflict": "shape_bias", "single_cue": "cue_rank"}
    extra["cue_conflict_free"] = "shape_bias"
    return sources.ArraySource(
        **shapes.source_fields("cues", split, size, arrays, words),
        classes=CLASSES,
        columns=columns,
        measures=("accuracy", *filter(None, [extra.get(split)])),
        values={name: names for name, names in values.items() if name in columns},
    )


def _check_count(split: str, n: int) -> None:
    """Raise ValueError for a number of images that leaves classes unbalanced."""
    unit = NUM_CLASSES
    if split in CONFLICTS:
        unit = BLOCK
    elif split == "single_cue":
        unit = 2 * NUM_CLASSES
    errors.check_whole("cues", n, low=1, name="n")
    if n % unit:
        must = f"be a multiple of {unit} for {split}"
        near = max(1, round(n / unit)) * unit
        errors.refuse("cues", must, n, f"try {near}", name="n")


def _check_planted(
    planted: Planted, agrees: Sequence[float], hidden: Sequence[float]
) -> None:
    """Raise ValueError for options of planted labels outside their range."""
    errors.check_known("cues", planted.design, DESIGNS, "design")
    errors.check_known("cues", planted.shortcut, SHORTCUTS, "shortcut")
    shares = {
        "dial": (planted.dial,),
        "strength": (planted.strength,),
        "noise": (planted.noise,),
        "agrees": agrees,
        "hidden": hidden,
    }
    lengths = {"agrees": len(CUES), "hidden": 2}
    for name, values in shares.items():
        are_shares = all(0 <= value <= 1 for value in values)
        is_long = len(values) == lengths.get(name, 1)
        count = lengths.get(name, 1)
        must = "be from 0 to 1" if count == 1 else f"be {count} numbers from 0 to 1"
        errors.check(are_shares and is_long, "cues", must, values, name=name)


class _Block(NamedTuple):
    """A block of scenes that are drawn from the same generators."""

    number: Ids  # Index of each image in the split.
    stream: tuple[int, int, int]  # Seed, code of the split, and number of the block.
    scenes: shape_scenes.Scenes

    def generator(self, purpose: str) -> np.random.Generator:
        """Return the generator of one kind of draw in the block."""
        return _generator(self.stream, purpose)


def _generator(stream: tuple[int, int, int], purpose: str) -> np.random.Generator:
    """Return the generator of one kind of draw in a block; stream: see `_Block`."""
    return np.random.default_rng([*stream, zlib.crc32(purpose.encode())])


def _blocks(split: str, n: int, seed: int) -> Iterator[_Block]:
    """Yield the blocks of the first n images; whole blocks are drawn, also if n cuts one.

    The two splits of cue conflicts have the same scenes.
    """
    name = "cue_conflict" if split in CONFLICTS else split
    code = zlib.crc32(f"cues/{name}".encode())
    for start in range(0, n, BLOCK):
        number = np.arange(start, min(start + BLOCK, n))
        stream = (seed, code, start // BLOCK)
        scenes = shape_scenes.draw(_generator(stream, "scene"), BLOCK)
        yield _Block(number, stream, scenes[number - start])


def _draw(split: str, n: int, *, seed: int, **options) -> dict[str, np.ndarray]:
    """Return {name: array} of the first n images: "image", "label" and further columns."""
    blocks = [_draw_block(split, block, **options) for block in _blocks(split, n, seed)]
    return shapes.join_blocks(blocks)


def _draw_block(
    split: str,
    block: _Block,
    *,
    size: int,
    planted: Planted = INDEPENDENT,
    agrees: tuple[float, ...] = (),
    hidden: tuple[float, float] = (0.0, 0.0),
) -> dict[str, np.ndarray]:
    """Return {name: array} of a block; arguments: see `make`."""
    if split in TRAINING and planted.design == "agreement":
        cues, label = _agreeing_cues(block, agrees)
    else:
        cues = _cues_of(split, block)
        is_planted = split in TRAINING
        label = planted_label(cues, planted) if is_planted else cues.shape
    if split in TRAINING:
        label = _with_noise(block, label, planted.noise)
    columns = {"label": label, **cues._asdict()}
    scenes = with_cues(block.scenes, cues, block.generator("cues"))
    if split in _FLAT:
        image = getattr(shape_scenes, split)(scenes, cues.shape, size)
        columns = {name: columns[name] for name in ("label", "shape", "size")}
    else:
        image = _render(block, scenes, cues, size=size, hidden=hidden, split=split)
    if split == "stylized":
        columns = {**_without(columns, ("texture",)), "attribute": cues.texture}
    if split == "texture":
        columns = {"label": cues.texture, **_without(columns, ("label", "shape"))}
    if split == "single_cue":
        is_texture = block.number % 2 == 1
        flat = shape_scenes.silhouette(scenes, cues.shape, size)
        image = np.where(is_texture[:, None, None, None], image, flat)
        label = np.where(is_texture, cues.texture, cues.shape)
        columns = {"label": label, "cue": is_texture.astype(np.int32)}
    return {"image": shape_scenes.quantise(image), **columns}


def _without(
    columns: Mapping[str, np.ndarray], names: Sequence[str]
) -> dict[str, np.ndarray]:
    """Return the columns except those of some names."""
    return {name: column for name, column in columns.items() if name not in names}


def _cues_of(split: str, block: _Block) -> Cues:
    """Return the cues of a block's images; for training, all are independent."""
    k, count = NUM_CLASSES, len(block.number)
    turn, shape = np.divmod(block.number, k)
    texture, colour, size = (
        block.generator(name).integers(0, high, BLOCK)[:count]
        for name, high in (("texture", k), ("colour", k), ("size", NUM_SIZES))
    )
    group = shape // NUM_SIZES
    if split == "factorial":
        return combination(block.number)
    if split in CONFLICTS:
        texture = (shape + 1 + turn % (k - 1)) % k
    if split == "cue_conflict":
        colour, size = texture, group
    if split == "cue_conflict_free":
        hues = np.tile(np.arange(k), (count, 1))
        of_sizes = NUM_SIZES * np.arange(NUM_SIZES) + shape[:, None] % NUM_SIZES
        colour, size = (
            _draw_of_neither(block.generator(f"free {name}"), classes, shape, texture)
            for name, classes in (("colour", hues), ("size", of_sizes))
        )
    if split == "test":
        texture, colour, size = shape, shape, group
    if split == "recoloured":
        shift = 1 + block.generator("other colour").integers(0, k - 1, BLOCK)[:count]
        texture, colour, size = shape, (shape + shift) % k, group
    if split == "stylized":
        num_new = len(shape_scenes.HELD_OUT)
        texture = k + block.generator("stylized").integers(0, num_new, BLOCK)[:count]
    if split == "texture":
        texture = shape
    if split == "single_cue":
        texture = shape = (block.number // 2) % k
    return Cues(shape=shape, texture=texture, colour=colour, size=size)


def _draw_of_neither(
    rng: np.random.Generator,
    classes: Int[np.ndarray, "n values"],
    shape: Ids,
    texture: Ids,
) -> Ids:
    """Return for each image a random value of a cue that is of neither class.

    classes: the class that each value of the cue stands for, by image. A size that was drawn
    without regard would be of the shape's class in a quarter of the images.
    """
    is_of_either = (classes == shape[:, None]) | (classes == texture[:, None])
    score = rng.random((BLOCK, classes.shape[1]))[: len(classes)]
    return np.where(is_of_either, -1.0, score).argmax(1)


def combination(number: Ids) -> Cues:
    """Return the cues of images of the split "factorial" by number, from 0.

    All combinations occur once among 16,384 consecutive numbers from 0. The first 4,096 have
    every pair of shape and texture with every colour, with sizes in equal shares.
    """
    k = NUM_CLASSES
    shape, texture = number % k, number // k % k
    turn = number // k**2 % k
    lap = number // k**3
    colour = (turn + shape + texture) % k
    return Cues(shape, texture, colour, size=(lap + turn) % NUM_SIZES)


def _agreeing_cues(block: _Block, agrees: Sequence[float]) -> tuple[Cues, Ids]:
    """Return the cues and labels of images by the design "agreement"."""
    k, count = NUM_CLASSES, len(block.number)
    label = block.number % k
    indices = {}
    for name, share in zip(CUES, agrees, strict=True):
        num_values = NUM_SIZES if name == "size" else k
        right = label // NUM_SIZES if name == "size" else label
        rng = block.generator(f"agrees {name}")
        does_agree = rng.random(BLOCK)[:count] < share
        shift = 1 + rng.integers(0, num_values - 1, BLOCK)[:count]
        indices[name] = np.where(does_agree, right, (right + shift) % num_values)
    return Cues(**indices), label


def _with_noise(block: _Block, label: Ids, noise: float) -> Ids:
    """Return the labels, with a share of them drawn at random from all classes."""
    rng, count = block.generator("noise"), len(label)
    is_random = rng.random(BLOCK)[:count] < noise
    return np.where(is_random, rng.integers(0, NUM_CLASSES, BLOCK)[:count], label)


def with_cues(
    scenes: shape_scenes.Scenes, cues: Cues, rng: np.random.Generator
) -> shape_scenes.Scenes:
    """Return scenes with figures in the hue and the size of the cues.

    rng: generator of the jitter of hue, saturation and scale; scenes of the whole block are
    drawn from it, so that scenes do not depend on n.
    """
    count = len(cues.shape)
    hue_jitter, saturation, scale_jitter = (
        rng.uniform(-0.1, 0.1, BLOCK)[:count],
        rng.uniform(0.65, 0.9, BLOCK)[:count],
        rng.uniform(-JITTER, JITTER, BLOCK)[:count],
    )
    hue = 6 * cues.colour / NUM_CLASSES + hue_jitter
    scale = np.array(SCALES)[cues.size] + scale_jitter
    reach = (1 - scale) / (1 - scenes.scale)
    fields = {
        "fill": shape_scenes.tint(hue, saturation),
        "scale": scale,
        "shift": scenes.shift * reach[:, None],
    }
    fields = {name: value.astype(np.float32) for name, value in fields.items()}
    return dataclasses.replace(scenes, **fields)


def _render(
    block: _Block,
    scenes: shape_scenes.Scenes,
    cues: Cues,
    *,
    size: int,
    hidden: tuple[float, float],
    split: str,
) -> Float[np.ndarray, "n h w 3"]:
    """Return images with noise, of which some show no shape or no texture; see `make`."""
    count = len(block.number)
    no_shape, no_texture = (
        block.generator(f"hidden {name}").random(BLOCK)[:count] < share
        for name, share in zip(("shape", "texture"), hidden, strict=True)
    )
    share = shape_scenes.shares(scenes, cues.texture, size)
    share = np.where(no_texture[:, None, None], np.float32(0.5), share)
    outline = shape_scenes.outlines(scenes, cues.shape, size)
    inside = shape_scenes.coverage(outline, size)
    if split in ("texture", "single_cue"):
        inside = np.ones_like(inside)
    if no_shape.any():
        mosaic = _shuffle_tiles(inside, block.generator("tiles"))
        inside = np.where(no_shape[:, None, None], mosaic, inside)
    image = shape_scenes.painted(scenes, inside, share, size)
    grain = block.generator("sensor").standard_normal(image.shape, np.float32)
    return image + grain * scenes.sensor[:, None, None, None]


def _shuffle_tiles(
    planes: Float[np.ndarray, "n h w"], rng: np.random.Generator
) -> Float[np.ndarray, "n h w"]:
    """Return planes with their 4 x 4 tiles in random order; rows that tiles leave are empty."""
    side = planes.shape[1] // _MOSAIC
    shuffled = np.zeros_like(planes)
    orders = rng.permuted(np.tile(np.arange(_MOSAIC**2), (BLOCK, 1)), axis=1)
    place = functools.partial(_tile_slice, side=side)
    for number, plane in enumerate(planes):
        for target, origin in enumerate(orders[number]):
            shuffled[number][place(target)] = plane[place(int(origin))]
    return shuffled


def _tile_slice(tile: int, *, side: int) -> tuple[slice, slice]:
    """Return the rows and columns of a tile of `side` pixels, numbered row by row."""
    row, column = divmod(tile, _MOSAIC)
    return (
        slice(row * side, (row + 1) * side),
        slice(column * side, (column + 1) * side),
    )
