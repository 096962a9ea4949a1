"""Trains the compact style transfer, the `small` of models.TRANSFERS.

python -m jbias.prepare style --out=small_adain.npz
python -m jbias.prepare style --data=folder --root=DIR --size=64 --out=mine.npz

It learns from pictures drawn with a known texture, so that the target of every pair is
exact: the one's shapes in the other's colours, under the other's pattern. With --data a
third of the pictures are windows of 32 pixels of that set's images, smoothed, under drawn
patterns: the network then knows their shapes and colours as well.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jbias import seeds
from jbias.data import collages
from jbias.models import published, style_transfer
from jbias.prepare import reading
from jbias.runtime import console

STEPS, BATCH, RATE, PICTURES = 9000, 32, 1e-3, 16_384
_READING, _DRAWN = 600, 512  # Steps that read only; pictures of a draw.
_PHOTOS, _TESTED = 10_000, 256


def add(parser) -> None:
    """Adds the arguments of the subcommand."""
    parser.set_defaults(command=style)
    add = parser.add_argument
    add("--out", required=True, help="the file to write, .npz")
    reading.add_options(parser)
    add("--steps", type=int, default=STEPS, help="of Adam")
    add("--pictures", type=int, default=PICTURES, help="how many are drawn")
    add("--seed", type=int, default=0)


def style(
    out: str,
    *,
    steps: int = STEPS,
    pictures: int = PICTURES,
    seed: int = 0,
    **arguments,
) -> str:
    """Trains the network and writes its weights; returns what it did.

    Raises ValueError for an unknown set or option, one line.
    """
    if steps < 1 or pictures < BATCH:
        raise ValueError(
            f"prepare style: --steps must be at least 1 and --pictures {BATCH}, got"
            f" {steps} and {pictures}"
        )
    photos = None
    if arguments["data"] != "shapes":  # Those are drawn in any case.
        if arguments["size"] < collages.SIDE:
            raise ValueError(
                f"prepare style: --size must be at least {collages.SIDE} pixels, got"
                f" {arguments['size']}"
            )
        photos = reading.sample(reading.source(arguments), _PHOTOS, seed)
    rng = np.random.default_rng(seed)
    drawn = _draw(rng, pictures, photos)
    with console.progress_bar("training small_adain", steps) as progress:
        params = train(drawn, seeds.key(seed), steps=steps, progress=progress)
    arrays = style_transfer.flatten(params)
    published.write_npz(out, {k: np.asarray(v, np.float16) for k, v in arrays.items()})
    wrong = error(params, _draw(rng, _TESTED, photos))
    return f"{out}: {steps} steps, error {wrong:.3f} (mean absolute, of 1)"


def _draw(rng: np.random.Generator, n: int, photos) -> collages.Pictures:
    parts = []
    with console.progress_bar("drawing pictures", n) as progress:
        for start in range(0, n, _DRAWN):
            parts.append(collages.draw(rng, min(_DRAWN, n - start), photos))
            progress(start + len(parts[-1].image), n)
    return collages.Pictures(*(np.concatenate(x) for x in zip(*parts, strict=True)))


def train(
    pictures: collages.Pictures,
    key: PRNGKeyArray,
    *,
    steps: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Trains on pairs of the pictures; returns the parameters of encoder and decoder.

    First the statistics learn to tell the pattern, since a decoder that meets blind
    ones learns flat colours and stays there; then all learns the targets.
    """
    init, head, order = (seeds.stream(key, name) for name in ("init", "head", "order"))
    params = style_transfer.init_small(init)
    patterns = len(collages.tiles())
    head = 0.05 * jax.random.normal(head, (style_transfer.CODE, patterns))
    state = {"net": params, "head": head}
    rng = np.random.default_rng(np.asarray(jax.random.key_data(order)))
    reads = min(_READING, steps // 4)
    for first, last, loss in ((0, reads, _unread), (reads, steps, _loss)):
        tx = _tx(max(last - first, 1))
        opt, step = tx.init(state), _step(tx, loss)
        for i in range(first, last):
            state, opt = step(state, opt, batch(rng, pictures))
            progress(i + 1, steps)
    return jax.tree.map(np.asarray, state["net"])


def batch(rng: np.random.Generator, pictures: collages.Pictures) -> dict[str, Any]:
    """Takes pictures, an order for their styles, and where the tiles begin."""
    rows = rng.integers(len(pictures.image), size=BATCH)
    return {
        **{name: x[rows] for name, x in pictures._asdict().items()},
        "order": rng.permutation(BATCH),
        "origin": rng.integers(collages.PERIOD, size=2),
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
    rows, columns = (
        (batch["origin"][i] + jnp.arange(side)) % collages.PERIOD for i in (0, 1)
    )
    drawn = jnp.asarray(collages.tiles())[:, rows[:, None], columns]
    shares = drawn[batch["pattern"][order]] - 0.5
    strength = batch["strength"][order][:, None, None]
    return jnp.clip(moved + (strength * shares)[..., None], 0, 1)


def _tx(steps: int) -> optax.GradientTransformation:
    rate = optax.warmup_cosine_decay_schedule(0, RATE, min(steps // 10, 50), steps)
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))


def _step(tx: optax.GradientTransformation, loss: Callable) -> Callable:
    @jax.jit
    def step(state, opt, batch):
        grads = jax.grad(loss)(state, batch)
        updates, opt = tx.update(grads, opt)
        return optax.apply_updates(state, updates), opt

    return step


def _features(state: dict, batch: dict) -> tuple[Array, style_transfer.Statistics]:
    image = batch["image"].astype(jnp.float32) / 255
    f = style_transfer.SmallEncoder().apply({"params": state["net"]["encoder"]}, image)
    return f, style_transfer.statistics(f)


def _told(
    state: dict, own: style_transfer.Statistics, pattern: Int[Array, "b"]
) -> Array:
    """Cross-entropy of the pattern that a style's code tells."""
    code = {"params": state["net"]["decoder"]["code"]}
    logits = style_transfer.StyleCode().apply(code, own) @ state["head"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, pattern).mean()


def _unread(state: dict, batch: dict) -> Float[Array, ""]:
    return _told(state, _features(state, batch)[1], batch["pattern"])


def _loss(state: dict, batch: dict) -> Float[Array, ""]:
    f, own = _features(state, batch)
    wrong = _wrong(state["net"], f, own, batch)
    return 10 * wrong + 0.3 * _told(state, own, batch["pattern"])


def _wrong(net: dict, f: Array, own: style_transfer.Statistics, batch: dict) -> Array:
    moved = style_transfer.adain(f, own, tuple(x[batch["order"]] for x in own), 1.0)
    decoder = style_transfer.SmallDecoder()
    found = decoder.apply({"params": net["decoder"]}, moved, batch["origin"])
    return jnp.mean(jnp.abs(found - target(batch)))


def error(params: dict[str, Any], pictures: collages.Pictures) -> float:
    """Mean absolute error of pairs of other pictures, of 1."""
    rng, state = np.random.default_rng(0), {"net": params}
    wrong = jax.jit(lambda batch: _wrong(params, *_features(state, batch), batch))
    rounds = len(pictures.image) // BATCH
    return float(np.mean([wrong(batch(rng, pictures)) for _ in range(rounds)]))
