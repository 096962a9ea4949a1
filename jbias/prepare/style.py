"""Train the small style transfer, which `jbias prepare stylize` uses.

jbias prepare style --out=small_adain.npz
jbias prepare style --data=folder --root=DIR --size=64 --out=mine.npz

The network learns from drawn pictures with known textures. Its input is a pair of pictures; the
target has the shapes of the first picture, and the colours and the pattern of the second
picture. With the default --data=shapes, all pictures are drawn. With another data set, a third
of the pictures are made from its images: a window of 32 pixels is cut out, smoothed, and
covered with a drawn pattern. The network then also learns the shapes and colours of that data
set. To use the result, give it to `jbias prepare stylize` as its weights file.
"""

import argparse
import functools
from collections.abc import Callable, Sequence
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
NO_PATTERN = len(SCALES) * len(_PATTERNS)  # Number for pictures without a pattern.
_LEAVES = 6

Planes = Float[np.ndarray, "n h w"]
Images = Float[np.ndarray, "n h w 3"]
Photos = UInt8[np.ndarray, "m h w 3"]


class Pictures(NamedTuple):
    """n pictures with a known texture, and the same pictures without texture.

    `carrier` is `image` without its texture and noise. The exact target of a style transfer
    is one picture's carrier in the colours and under the pattern of another picture.
    Half of the pictures are scenes of the embedded data set "shapes"; the second half are
    layers of shapes in flat colours over the whole frame, after the dead leaves model, with
    edges, sizes and colours of all kinds. With photographs, a third each are scenes, layers and
    windows of photographs.
    """

    image: UInt8[np.ndarray, "n h w 3"]
    carrier: UInt8[np.ndarray, "n h w 3"]
    pattern: Int[np.ndarray, "n"]  # Index in `tiles`; NO_PATTERN is the last.
    strength: Float[np.ndarray, "n"]  # Difference of the pattern's tones, from 0 to 1.


@functools.cache
def tiles() -> Float[np.ndarray, "patterns side side"]:
    """Return a PERIOD x PERIOD tile of each pattern: the share of the second tone, 0 to 1.

    First all patterns at SCALES[0], then all at SCALES[1], then NO_PATTERN, which is 0.5.
    """
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
    """Return n random pictures of SIDE x SIDE pixels in random order.

    photos: photographs with sides of at least SIDE pixels; a third of the pictures are windows
    of the photographs, without fine detail and under a pattern. None: all pictures are drawn.
    """
    kinds = [_scenes, _leaves]
    if photos is not None:
        kinds.append(functools.partial(_windows, photos))
    counts = np.bincount(np.arange(n) % (2 * len(kinds)), minlength=2 * len(kinds))
    drawn = []
    for i, count in enumerate(counts):
        scale = i % len(SCALES)
        texture = rng.integers(0, len(_PATTERNS), count)
        image, carrier, strength = kinds[i // len(SCALES)](rng, SCALES[scale], texture)
        pattern = np.where(strength > 0, texture + scale * len(_PATTERNS), NO_PATTERN)
        noise = rng.standard_normal(image.shape, np.float32)
        image = image + noise * rng.uniform(0, 0.03, (count, 1, 1, 1))
        drawn.append(
            Pictures(
                image=shape_scenes.quantise(image),
                carrier=shape_scenes.quantise(carrier),
                pattern=pattern.astype(np.int32),
                strength=strength.astype(np.float32),
            )
        )
    order = rng.permutation(n)
    joined = _concatenate(drawn)
    return Pictures(
        image=joined.image[order],
        carrier=joined.carrier[order],
        pattern=joined.pattern[order],
        strength=joined.strength[order],
    )


def _concatenate(sets: Sequence[Pictures]) -> Pictures:
    """Return the pictures of all sets, one set after the other."""
    return Pictures(
        image=np.concatenate([pictures.image for pictures in sets]),
        carrier=np.concatenate([pictures.carrier for pictures in sets]),
        pattern=np.concatenate([pictures.pattern for pictures in sets]),
        strength=np.concatenate([pictures.strength for pictures in sets]),
    )


# Images in [0, 1], the same images without a pattern, and strengths of the pattern.
Drawn = tuple[Images, Images, Float[np.ndarray, "n"]]


def _scenes(rng: Rng, scale: int, texture: Int[np.ndarray, "n"]) -> Drawn:
    """Return images, carriers and strengths of scenes of the embedded data set "shapes".

    scale: scale of the pattern, one of SCALES. texture: index of each picture's pattern in
    _PATTERNS. Images and carriers are (n SIDE SIDE 3), on the scale [0, 1]; strengths are (n).
    """
    size, n = SIDE * scale, len(texture)
    scenes, shape = shape_scenes.draw(rng, n), rng.integers(0, 16, n)
    share = shape_scenes.shares(scenes, texture, size)
    plain = np.full_like(share, 0.5)
    image = shape_scenes.composed(scenes, shape, share, size)
    carrier = shape_scenes.composed(scenes, shape, plain, size)
    image, carrier = _cut(rng, image, carrier)
    strength = 0.6 * np.abs(scenes.tones[:, 1] - scenes.tones[:, 0])
    return image, carrier, strength + 0.4 * np.abs(scenes.echo)


def _leaves(rng: Rng, scale: int, texture: Int[np.ndarray, "n"]) -> Drawn:
    """Return images, carriers and strengths of layers of shapes in flat colours.

    Arguments and result: see `_scenes`.
    """
    size, n = SIDE * scale, len(texture)
    x, y = shape_scenes.axes(n, size)
    carrier = _colour(rng, n) * np.ones((n, size, size, 1), np.float32)
    for _ in range(_LEAVES):
        shape = rng.integers(0, 16, n)
        field = shape_scenes.fields(
            shape,
            size,
            scale=np.exp(rng.uniform(np.log(0.12), 0, n)).astype(np.float32),
            angle=rng.uniform(0, 2 * np.pi, n).astype(np.float32),
            shift=rng.uniform(-1, 1, (n, 2)).astype(np.float32),
        )
        is_drawn = rng.random((n, 1, 1)) < 0.7
        cover = (shape_scenes.coverage(field, size) * is_drawn)[..., None]
        carrier = carrier * (1 - cover) + cover * _colour(rng, n)
    slope = rng.uniform(-0.15, 0.15, (2, n, 1, 1)).astype(np.float32)
    carrier = carrier + (slope[0] * x + slope[1] * y)[..., None]
    share = shape_scenes.shares(shape_scenes.draw(rng, n), texture, size)
    carrier, share = _cut(rng, carrier, share)
    return _add_pattern(rng, carrier, share)


def _windows(
    photos: Photos, rng: Rng, scale: int, texture: Int[np.ndarray, "n"]
) -> Drawn:
    """Return images, carriers and strengths of random windows of photographs, smoothed.

    photos: at least SIDE pixels a side. scale: scale of the pattern, one of SCALES.
    texture: index of each picture's pattern in _PATTERNS; its length is the number of
    windows. Result: see `_scenes`.
    """
    n, (height, width) = len(texture), photos.shape[1:3]
    which = rng.integers(0, len(photos), n)
    top, left = rng.integers(0, (height - SIDE + 1, width - SIDE + 1), (n, 2)).T
    carrier = np.empty((n, SIDE, SIDE, 3), np.float32)
    for i in range(n):
        window = photos[which[i], top[i] :, left[i] :][:SIDE, :SIDE]
        smooth = cv2.pyrMeanShiftFiltering(np.ascontiguousarray(window), 4, 24)
        carrier[i] = smooth.astype(np.float32) / 255
    share = shape_scenes.shares(shape_scenes.draw(rng, n), texture, SIDE * scale)
    (share,) = _cut(rng, share)
    return _add_pattern(rng, carrier, share)


def _add_pattern(rng: Rng, carrier: Images, share: Planes) -> Drawn:
    """Return (images, carriers, strengths): images are carriers with a pattern added.

    Strengths are random; 15 % of them are 0. share: share of the pattern's second tone in each
    pixel.
    """
    n = len(carrier)
    strength = rng.uniform(0.05, 0.6, n) * (rng.random(n) < 0.85)
    change = (strength[:, None, None] * (share - 0.5))[..., None]
    return carrier + change, carrier, strength


def _colour(rng: Rng, n: int) -> Images:
    """Return n random colours (n 1 1 3) in [0, 1]."""
    tint = shape_scenes.tints(rng, n, ((0.0, 360.0),), -1.0)
    return (rng.uniform(0, 1, (n, 1)) * tint).astype(np.float32)[:, None, None]


def _cut(rng: Rng, *planes: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the arrays (n h w ...), each cut to a random window of SIDE x SIDE pixels per image.

    All arrays have the same windows. Images must be square.
    """
    n, size = planes[0].shape[:2]
    corner = rng.integers(0, size - SIDE + 1, (n, 2, 1))
    rows, columns = (corner + np.arange(SIDE)).swapaxes(0, 1)
    image = np.arange(n)[:, None, None]
    return tuple(x[image, rows[:, :, None], columns[:, None, :]] for x in planes)


STEPS, BATCH, RATE, PICTURES = 9000, 32, 1e-3, 16_384
_PATTERN_STEPS = 600  # First steps, with the loss of the pattern only.
_DRAW_SIZE = 512  # Pictures drawn at a time.
_PHOTOS, _TEST_PICTURES = 10_000, 256


def add(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `jbias prepare style` to its parser."""
    add = parser.add_argument
    out_help = "weights file to write, ending in .npz"
    dataset.add_options(parser, out=out_help, out_metavar="FILE")
    steps_help = f"number of training steps (default: {STEPS})"
    add("--steps", type=int, default=STEPS, metavar="N", help=steps_help)
    pictures_help = f"number of training pictures to draw, at least {BATCH} "
    pictures_help += f"(default: {PICTURES})"
    add("--pictures", type=int, default=PICTURES, metavar="N", help=pictures_help)
    seed_help = "random seed of the pictures and the training (default: 0)"
    add("--seed", type=int, default=0, metavar="N", help=seed_help)


def run(args: argparse.Namespace) -> str:
    """Train the network and write its weights to --out; return a line with the network's error.

    args: the flags of `add`. ValueError for an unknown data set or option, and for too small
    --steps, --pictures or --size.
    """
    steps, seed, photos = args.steps, args.seed, None
    if steps < 1 or args.pictures < BATCH:
        must = f"prepare style: --steps must be at least 1 and --pictures {BATCH}"
        raise ValueError(f"{must}, got {steps} and {args.pictures}")
    if args.data != "shapes":  # Scenes of shapes are drawn for any data set.
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
    error = mean_error(params, _draw_many(rng, _TEST_PICTURES, photos))
    return f"{args.out}: {steps} steps, error {error:.3f} (mean absolute, of 1)"


def _draw_many(rng: Rng, n: int, photos: Photos | None) -> Pictures:
    """Return n pictures of `draw`, drawn in sets of up to _DRAW_SIZE, with a progress bar."""
    drawn = []
    with console.progress_bar("drawing pictures", n) as progress:
        for start in range(0, n, _DRAW_SIZE):
            drawn.append(draw(rng, min(_DRAW_SIZE, n - start), photos))
            progress(start + len(drawn[-1].image), n)
    return _concatenate(drawn)


def train(pictures: Pictures, key: PRNGKeyArray, *, steps: int) -> dict[str, Any]:
    """Return {"encoder", "decoder": parameters}, trained on random pairs of pictures.

    In the first 600 steps, at most a quarter of `steps`, only the loss of the pattern is used,
    so that the code of a style predicts the pattern: a decoder that is trained with
    uninformative codes learns flat colours only. Then all parameters are also trained on the
    targets.
    """
    init_key, head_key, order_key = (
        prng.stream(key, name) for name in ("init", "head", "order")
    )
    params = style_transfer.init_small(init_key)
    head = 0.05 * jax.random.normal(head_key, (style_transfer.CODE, len(tiles())))
    state = {"net": params, "head": head}
    rng = np.random.default_rng(np.asarray(jax.random.key_data(order_key)))
    pattern_steps = min(_PATTERN_STEPS, steps // 4)
    for i in dataset.track("training small_adain", range(steps)):
        if i in (0, pattern_steps):  # A new stage starts.
            is_first = i < pattern_steps
            loss = _first_stage_loss if is_first else _loss
            count = pattern_steps if is_first else steps - pattern_steps
            warmup = min(count // 10, 50)
            rate = optax.warmup_cosine_decay_schedule(0, RATE, warmup, count)
            tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))
            opt, step = tx.init(state), _make_step(tx, loss)
        state, opt = step(state, opt, batch(rng, pictures))
    return jax.tree.map(np.asarray, state["net"])


def batch(rng: Rng, pictures: Pictures) -> dict[str, Any]:
    """Return a random training batch of BATCH pictures as a dict.

    The batch has the fields of Pictures; "order" (b), the index in the batch of each picture's
    style picture; and "origin" (2), the row and column of the tiles at the first pixel.
    """
    rows = rng.integers(len(pictures.image), size=BATCH)
    return {
        **{name: x[rows] for name, x in pictures._asdict().items()},
        "order": rng.permutation(BATCH),
        "origin": rng.integers(PERIOD, size=2),
    }


def target(batch: dict[str, Array]) -> Float[Array, "b h w 3"]:
    """Return the exact stylised pictures in [0, 1] for a batch from the function `batch`.

    The exact pictures are the carriers in the colours and under the patterns of their style
    pictures. Colours are moved as AdaIN moves features: by mean and deviation of each channel.
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


def _make_step(tx: optax.GradientTransformation, loss: Callable) -> Callable:
    """Return a compiled function step(state, opt, batch) -> (state, opt), one training step.

    state: parameters. opt: state of the optimiser `tx`. loss: (state, batch) -> scalar.
    """

    @jax.jit
    def step(state, opt, batch):
        updates, opt = tx.update(jax.grad(loss)(state, batch), opt)
        return optax.apply_updates(state, updates), opt

    return step


def _features(
    state: dict[str, Any], batch: dict[str, Array]
) -> tuple[Float[Array, "b h w c"], style_transfer.Statistics]:
    """Return the encoder's features of the batch's images, and their statistics.

    state: "net" has the parameters of encoder and decoder.
    """
    image = batch["image"].astype(jnp.float32) / 255
    f = style_transfer.SmallEncoder().apply({"params": state["net"]["encoder"]}, image)
    return f, style_transfer.statistics(f)


def _pattern_loss(
    state: dict[str, Any],
    statistics: style_transfer.Statistics,
    pattern: Int[Array, "b"],
) -> Float[Array, ""]:
    """Return the mean cross-entropy of the pattern predicted from a style's code.

    state: "net" has the network's parameters, "head" the linear head of the prediction.
    pattern: the true pattern of each picture, an index in `tiles`.
    """
    code = {"params": state["net"]["decoder"]["code"]}
    logits = style_transfer.StyleCode().apply(code, statistics) @ state["head"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, pattern).mean()


def _first_stage_loss(
    state: dict[str, Any], batch: dict[str, Array]
) -> Float[Array, ""]:
    """Return the loss of the first steps: the cross-entropy of the pattern."""
    _, statistics = _features(state, batch)
    return _pattern_loss(state, statistics, batch["pattern"])


def _loss(state: dict[str, Any], batch: dict[str, Array]) -> Float[Array, ""]:
    """Return the loss of the later steps.

    The loss is 10 times the mean absolute error of the stylised pictures, plus 0.3 times the
    cross-entropy of the pattern.
    """
    f, statistics = _features(state, batch)
    error = _absolute_error(state["net"], f, statistics=statistics, batch=batch)
    return 10 * error + 0.3 * _pattern_loss(state, statistics, batch["pattern"])


def _absolute_error(
    net: dict[str, Any],
    f: Float[Array, "b h w c"],
    *,
    statistics: style_transfer.Statistics,
    batch: dict[str, Array],
) -> Float[Array, ""]:
    """Return the mean absolute error of the stylised pictures of a batch, in [0, 1].

    net: parameters of encoder and decoder. f, statistics: the results of `_features`.
    """
    moved = style_transfer.adain(
        f, statistics, tuple(x[batch["order"]] for x in statistics), alpha=1.0
    )
    decoder = style_transfer.SmallDecoder()
    output = decoder.apply({"params": net["decoder"]}, moved, batch["origin"])
    return jnp.mean(jnp.abs(output - target(batch)))


def mean_error(params: dict[str, Any], pictures: Pictures) -> float:
    """Return the mean absolute error on random pairs of pictures, for values in [0, 1].

    params: the result of `train`. pictures: at least BATCH; else NaN.
    """
    rng, state = np.random.default_rng(0), {"net": params}

    @jax.jit
    def error(batch):
        f, statistics = _features(state, batch)
        return _absolute_error(params, f, statistics=statistics, batch=batch)

    rounds = len(pictures.image) // BATCH
    return float(np.mean([error(batch(rng, pictures)) for _ in range(rounds)]))
