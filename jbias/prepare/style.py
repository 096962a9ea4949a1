"""Trains the compact style transfer, the `small` of models.TRANSFERS.

jbias prepare style --out=small_adain.npz
jbias prepare style --data=folder --root=DIR --size=64 --out=mine.npz

It learns from pictures drawn with a known texture, so that the target of every pair is
exact: the one's shapes in the other's colours, under the other's pattern. With --data a
third of the pictures are windows of 32 pixels of that set's images, smoothed, under drawn
patterns: the network then knows their shapes and colours as well.
"""

import argparse
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import cv2
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt8

from jbias.data.embedded import shape_scenes
from jbias.models import style_transfer, weight_files
from jbias.prepare import dataset
from jbias.runtime import console
from jbias.training import prng

Rng = np.random.Generator

SIDE = 32  # Of a picture.
PERIOD = 48  # Of a tile, a multiple of nearly all patterns' periods.
SCALES = (1, 2)  # Patterns as the embedded set has them at 32 and at 64 pixels.
_PATTERNS = tuple(shape_scenes.TEXTURES.values())
NO_PATTERN = len(SCALES) * len(_PATTERNS)  # The pattern that is none.
_LEAVES = 6

Planes = Float[np.ndarray, "n h w"]
Images = Float[np.ndarray, "n h w 3"]
Photos = UInt8[np.ndarray, "m h w 3"]


class Pictures(NamedTuple):
    """n pictures whose texture is known apart from what they show.

    `carrier` is `image` without its texture and noise. A style transfer can learn from
    them exactly: the target is what one shows, in its flat colours moved to another's,
    under the other's pattern. Half are scenes of the embedded set; the others are layers
    of shapes in flat colours over the whole frame, after the dead leaves model, which
    hold edges, sizes and colours of all kinds.
    """

    image: UInt8[np.ndarray, "n h w 3"]
    carrier: UInt8[np.ndarray, "n h w 3"]
    pattern: Int[np.ndarray, "n"]  # A row of `tiles`, or NO_PATTERN.
    strength: Float[np.ndarray, "n"]  # How far its two tones lie apart, of 1.


@functools.cache
def tiles() -> Float[np.ndarray, "patterns side side"]:
    """Draws every pattern at every scale, and NO_PATTERN, as shares of the second tone."""
    table = np.random.default_rng(7).uniform(-1, 1, (1, 32, 32)).astype(np.float32)
    ticks = np.arange(PERIOD, dtype=np.float32) + np.float32(0.5)
    x, y = np.meshgrid(ticks, -ticks)
    drawn = []
    for scale in SCALES:
        period = np.float32(shape_scenes.PERIOD * SIDE / 2 * scale)
        for pattern in _PATTERNS:
            border = pattern((x / period)[None], (y / period)[None], table)[0]
            drawn.append(np.clip(0.5 - border * period, 0, 1))
    return np.stack([*drawn, np.full((PERIOD, PERIOD), 0.5, np.float32)])


def draw(rng: Rng, n: int, photos: Photos | None = None) -> Pictures:
    """Draws n pictures in a random order, a third from `photos` where there are some.

    Photographs of at least SIDE pixels give windows, whose fine detail is taken out
    before a pattern is put on.
    """
    kinds = [_scenes, _leaves]
    if photos is not None:
        kinds.append(functools.partial(_windows, photos))
    counts = np.bincount(np.arange(n) % (2 * len(kinds)), minlength=2 * len(kinds))
    parts = []
    for i, count in enumerate(counts):
        scale = i % len(SCALES)
        texture = rng.integers(0, len(_PATTERNS), count)
        image, carrier, strength = kinds[i // len(SCALES)](rng, SCALES[scale], texture)
        pattern = np.where(strength > 0, texture + scale * len(_PATTERNS), NO_PATTERN)
        noise = rng.standard_normal(image.shape, np.float32)
        image = image + noise * rng.uniform(0, 0.03, (count, 1, 1, 1))
        quantised = (shape_scenes.quantise(x) for x in (image, carrier))
        parts.append((*quantised, pattern, strength))
    order = rng.permutation(n)
    joined = (np.concatenate(x)[order] for x in zip(*parts, strict=True))
    image, carrier, pattern, strength = joined
    numbers = pattern.astype(np.int32), strength.astype(np.float32)
    return Pictures(image, carrier, *numbers)


def _scenes(rng: Rng, scale: int, texture: Int[np.ndarray, "n"]):
    """Scenes of the embedded set; in those the texture may fill the shape alone."""
    size, n = SIDE * scale, len(texture)
    scenes, shape = shape_scenes.draw(rng, n), rng.integers(0, 16, n)
    share = shape_scenes.shares(scenes, texture, size)
    plain = np.full_like(share, 0.5)
    drawn = (shape_scenes.composed(scenes, shape, s, size) for s in (share, plain))
    image, carrier = _cut(rng, *drawn)
    strength = 0.6 * np.abs(scenes.tones[:, 1] - scenes.tones[:, 0])
    return image, carrier, strength + 0.4 * np.abs(scenes.echo)


def _leaves(rng: Rng, scale: int, texture: Int[np.ndarray, "n"]):
    """Shapes of any size over each other, each in a colour of its own, and shading."""
    size, n = SIDE * scale, len(texture)
    x, y = shape_scenes.axes(n, size)
    carrier = _colour(rng, n) * np.ones((n, size, size, 1), np.float32)
    for _ in range(_LEAVES):
        shape = rng.integers(0, 16, n)
        pose = dict(
            scale=np.exp(rng.uniform(np.log(0.12), 0, n)).astype(np.float32),
            angle=rng.uniform(0, 2 * np.pi, n).astype(np.float32),
            shift=rng.uniform(-1, 1, (n, 2)).astype(np.float32),
        )
        field = shape_scenes.fields(shape, size, **pose)
        there = rng.random((n, 1, 1)) < 0.7
        over = (shape_scenes.coverage(field, size) * there)[..., None]
        carrier = carrier * (1 - over) + over * _colour(rng, n)
    slope = rng.uniform(-0.15, 0.15, (2, n, 1, 1)).astype(np.float32)
    carrier = carrier + (slope[0] * x + slope[1] * y)[..., None]
    share = shape_scenes.shares(shape_scenes.draw(rng, n), texture, size)
    return _patterned(rng, *_cut(rng, carrier, share))


def _windows(photos, rng, scale: int, texture: Int[np.ndarray, "n"]):
    """Windows of photographs, smoothed inside their edges."""
    n, (height, width) = len(texture), photos.shape[1:3]
    which = rng.integers(0, len(photos), n)
    top, left = rng.integers(0, (height - SIDE + 1, width - SIDE + 1), (n, 2)).T
    carrier = np.empty((n, SIDE, SIDE, 3), np.float32)
    for i in range(n):
        window = photos[which[i], top[i] :, left[i] :][:SIDE, :SIDE]
        smooth = cv2.pyrMeanShiftFiltering(np.ascontiguousarray(window), 4, 24)
        carrier[i] = smooth.astype(np.float32) / 255
    share = shape_scenes.shares(shape_scenes.draw(rng, n), texture, SIDE * scale)
    return _patterned(rng, carrier, *_cut(rng, share))


def _patterned(rng, carrier: Images, share: Planes):
    """Puts a pattern on the whole of a picture, on some not."""
    n = len(carrier)
    strength = rng.uniform(0.05, 0.6, n) * (rng.random(n) < 0.85)
    lighter = (strength[:, None, None] * (share - 0.5))[..., None]
    return carrier + lighter, carrier, strength


def _colour(rng: Rng, n: int) -> Images:
    tint = shape_scenes.tints(rng, n, ((0.0, 360.0),), -1.0)
    return (rng.uniform(0, 1, (n, 1)) * tint).astype(np.float32)[:, None, None]


def _cut(rng: Rng, *planes: np.ndarray) -> tuple[np.ndarray, ...]:
    """Cuts the same random window of SIDE pixels out of each."""
    n, size = planes[0].shape[:2]
    corner = rng.integers(0, size - SIDE + 1, (n, 2, 1))
    rows, columns = (corner + np.arange(SIDE)).swapaxes(0, 1)
    image = np.arange(n)[:, None, None]
    return tuple(x[image, rows[:, :, None], columns[:, None, :]] for x in planes)


STEPS, BATCH, RATE, PICTURES = 9000, 32, 1e-3, 16_384
_READING_STEPS, _DRAW_SIZE = 600, 512  # Steps that read only; pictures of a draw.
_PHOTOS, _TEST_PICTURES = 10_000, 256


def add(parser) -> None:
    """Adds the arguments of the subcommand."""
    add = parser.add_argument
    dataset.add_options(parser, out="the file to write, .npz")
    add("--steps", type=int, default=STEPS, help="of Adam")
    add("--pictures", type=int, default=PICTURES, help="how many are drawn")
    add("--seed", type=int, default=0)


def run(args: argparse.Namespace) -> str:
    """Trains the network and writes its weights; returns what it did.

    Raises ValueError for an unknown set or option, one line.
    """
    steps, seed, photos = args.steps, args.seed, None
    if steps < 1 or args.pictures < BATCH:
        must = f"prepare style: --steps must be at least 1 and --pictures {BATCH}"
        raise ValueError(f"{must}, got {steps} and {args.pictures}")
    if args.data != "shapes":  # Those are drawn in any case.
        if args.size < SIDE:
            must = f"prepare style: --size must be at least {SIDE} pixels"
            raise ValueError(f"{must}, got {args.size}")
        photos = dataset.read_sample(dataset.open_source(args), _PHOTOS, seed)
    rng = np.random.default_rng(seed)
    drawn = _draw_many(rng, args.pictures, photos)
    params = train(drawn, prng.key(seed), steps=steps)
    arrays = style_transfer.flatten(params)
    arrays = {k: np.asarray(v, np.float16) for k, v in arrays.items()}
    weight_files.write_npz(args.out, arrays)
    wrong = mean_error(params, _draw_many(rng, _TEST_PICTURES, photos))
    return f"{args.out}: {steps} steps, error {wrong:.3f} (mean absolute, of 1)"


def _draw_many(rng: Rng, n: int, photos) -> Pictures:
    parts = []
    with console.progress_bar("drawing pictures", n) as progress:
        for start in range(0, n, _DRAW_SIZE):
            parts.append(draw(rng, min(_DRAW_SIZE, n - start), photos))
            progress(start + len(parts[-1].image), n)
    return Pictures(*(np.concatenate(x) for x in zip(*parts, strict=True)))


def train(pictures: Pictures, key: PRNGKeyArray, *, steps: int) -> dict[str, Any]:
    """Trains on pairs of the pictures; returns the parameters of encoder and decoder.

    First the statistics learn to tell the pattern, since a decoder that meets blind
    ones learns flat colours and stays there; then all learns the targets.
    """
    init, head, order = (prng.stream(key, name) for name in ("init", "head", "order"))
    params = style_transfer.init_small(init)
    head = 0.05 * jax.random.normal(head, (style_transfer.CODE, len(tiles())))
    state = {"net": params, "head": head}
    rng = np.random.default_rng(np.asarray(jax.random.key_data(order)))
    reads = min(_READING_STEPS, steps // 4)
    for i in dataset.track("training small_adain", range(steps)):
        if i in (0, reads):
            count = reads if i < reads else steps - reads
            loss, warm = _reading_loss if i < reads else _loss, min(count // 10, 50)
            rate = optax.warmup_cosine_decay_schedule(0, RATE, warm, count)
            tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))
            opt, step = tx.init(state), _step(tx, loss)
        state, opt = step(state, opt, batch(rng, pictures))
    return jax.tree.map(np.asarray, state["net"])


def batch(rng: Rng, pictures: Pictures) -> dict[str, Any]:
    """Takes pictures, an order for their styles, and where the tiles begin."""
    rows = rng.integers(len(pictures.image), size=BATCH)
    return {
        **{name: x[rows] for name, x in pictures._asdict().items()},
        "order": rng.permutation(BATCH),
        "origin": rng.integers(PERIOD, size=2),
    }


def target(batch: dict[str, Array]) -> Float[Array, "b h w 3"]:
    """The carriers in the colours of others', under the others' patterns.

    A channel's colours are moved as AdaIN moves features, on the carrier's pixels.
    """
    carrier = batch["carrier"].astype(jnp.float32) / 255
    order, side = batch["order"], carrier.shape[1]
    mean = carrier.mean((1, 2), keepdims=True)
    std = jnp.sqrt(carrier.var((1, 2), keepdims=True) + 1e-3)
    moved = (carrier - mean) / std * std[order] + mean[order]
    rows, columns = ((batch["origin"][i] + jnp.arange(side)) % PERIOD for i in (0, 1))
    drawn = jnp.asarray(tiles())[:, rows[:, None], columns]
    shares = drawn[batch["pattern"][order]] - 0.5
    strength = batch["strength"][order][:, None, None]
    return jnp.clip(moved + (strength * shares)[..., None], 0, 1)


def _step(tx: optax.GradientTransformation, loss: Callable) -> Callable:
    @jax.jit
    def step(state, opt, batch):
        updates, opt = tx.update(jax.grad(loss)(state, batch), opt)
        return optax.apply_updates(state, updates), opt

    return step


def _features(state: dict, batch: dict) -> tuple[Array, style_transfer.Statistics]:
    image = batch["image"].astype(jnp.float32) / 255
    f = style_transfer.SmallEncoder().apply({"params": state["net"]["encoder"]}, image)
    return f, style_transfer.statistics(f)


def _pattern_loss(state, own, pattern) -> Array:
    """Cross-entropy of the pattern that a style's code tells."""
    code = {"params": state["net"]["decoder"]["code"]}
    logits = style_transfer.StyleCode().apply(code, own) @ state["head"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, pattern).mean()


def _reading_loss(state: dict, batch: dict) -> Float[Array, ""]:
    return _pattern_loss(state, _features(state, batch)[1], batch["pattern"])


def _loss(state: dict, batch: dict) -> Float[Array, ""]:
    f, own = _features(state, batch)
    wrong = _wrong(state["net"], f, own, batch)
    return 10 * wrong + 0.3 * _pattern_loss(state, own, batch["pattern"])


def _wrong(net: dict, f: Array, own: style_transfer.Statistics, batch: dict) -> Array:
    moved = style_transfer.adain(
        f, own, tuple(x[batch["order"]] for x in own), alpha=1.0
    )
    decoder = style_transfer.SmallDecoder()
    found = decoder.apply({"params": net["decoder"]}, moved, batch["origin"])
    return jnp.mean(jnp.abs(found - target(batch)))


def mean_error(params: dict[str, Any], pictures: Pictures) -> float:
    """Mean absolute error of pairs of other pictures, of 1."""
    rng, state = np.random.default_rng(0), {"net": params}
    wrong = jax.jit(lambda batch: _wrong(params, *_features(state, batch), batch))
    rounds = len(pictures.image) // BATCH
    return float(np.mean([wrong(batch(rng, pictures)) for _ in range(rounds)]))
