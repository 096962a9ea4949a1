"""Trains the small network that `prepare deepaugment` damages.

python -m jbias.prepare autoencoder --net=cae --data=shapes --out=cae.npz
python -m jbias.prepare autoencoder --net=edsr --data=folder --root=photos --out=edsr.npz

cae learns to give images back through 2 bits a pixel, edsr to give them back from
`scale` times smaller ones. Before, images are made `enlarge` times larger: the damage is
as coarse as a code's pixel, and should be small beside what the image shows.
"""

import argparse
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray, UInt8

from jbias import seeds
from jbias.data import base
from jbias.models import published
from jbias.prepare import image_nets, reading
from jbias.runtime import console

BATCH, IMAGES = 8, 10_000
_TESTED = 256


def add(parser) -> None:
    """Adds the arguments of the subcommand."""
    parser.set_defaults(command=autoencoder)
    add = parser.add_argument
    add("--net", required=True, help=f"one of {', '.join(image_nets.NETS)}")
    add("--out", required=True, help="the file to write, .npz")
    reading.add_options(parser)
    own = dict(default=argparse.SUPPRESS)
    add("--steps", type=int, help="5000 for cae, 2000 for edsr", **own)
    add("--batch", type=int, default=BATCH)
    rate = "of Adam, which rises, then falls by a cosine"
    add("--rate", type=float, help=f"{rate}; 0.004 for cae, 0.002 for edsr", **own)
    enlarge = "times that images are made larger first; 2 for cae, 1 for edsr"
    add("--enlarge", type=int, help=enlarge, **own)
    add("--images", type=int, default=IMAGES, help="trains on at most so many")
    add("--seed", type=int, default=0)
    for name, text in (
        ("width", "channels of cae, a multiple of 8; 128 when published"),
        ("features", "channels of edsr; 64 when published"),
        ("blocks", "of edsr, at least 4; 16 when published"),
        ("scale", "of edsr, 2 or 4; 4 when published"),
    ):
        add(f"--{name}", type=int, help=text, **own)


def autoencoder(net: str, out: str, **arguments) -> str:
    """Trains one network and writes its weights; returns what it did.

    Raises ValueError for an unknown network, set or option, one line.
    """
    chosen = known(net, "prepare autoencoder")
    source = reading.source(arguments)
    known_options = ("steps", "batch", "rate", "images", "enlarge", "seed")
    options = {k: arguments.pop(k) for k in known_options if k in arguments}
    for name in arguments:
        if name not in chosen.small:
            raise ValueError(
                f"prepare autoencoder: --{name} is no size of {net}, which has"
                f" {', '.join(chosen.small)}; leave it out"
            )
    sizes = {**chosen.small, **arguments}
    weights, error = from_source(chosen, source, sizes, **options)
    published.write_npz(out, weights)
    words = ", ".join(f"{name} {value}" for name, value in sizes.items())
    return f"{out}: {net} with {words}, error {error:.3f} (root mean square, of 1)"


def known(net: str, where: str) -> image_nets.Net:
    """Finds a network by its name, or says which there are."""
    if net not in image_nets.NETS:
        raise ValueError(
            f"{where}: --net must be one of {', '.join(image_nets.NETS)}, got {net!r}"
        )
    return image_nets.NETS[net]


def from_source(
    net: image_nets.Net,
    source: base.Source,
    sizes: Mapping[str, int],
    *,
    seed: int,
    steps: int | None = None,
    batch: int = BATCH,
    rate: float | None = None,
    images: int = IMAGES,
    enlarge: int | None = None,
) -> tuple[dict[str, np.ndarray], float]:
    """Trains on a set, or so many random images of it; returns weights and error."""
    enlarge = net.enlarge if enlarge is None else enlarge
    image_nets.check_size(net, source.size, sizes, enlarge)
    steps = net.steps if steps is None else steps
    rate = net.rate if rate is None else rate
    if min(steps, batch, images) < 1:
        raise ValueError(
            "prepare autoencoder: --steps, --batch and --images must be at least 1, got"
            f" {steps}, {batch} and {images}"
        )
    read = reading.sample(source, images, seed)
    key = seeds.stream(seeds.key(seed), "autoencoder")
    title = f"training {net.published.name}"
    with console.progress_bar(title, steps) as progress:
        weights = train(
            net,
            read,
            sizes,
            key,
            steps=steps,
            batch=batch,
            rate=rate,
            enlarge=enlarge,
            progress=progress,
        )
    tested = read[:_TESTED]
    left, flat = error(net, weights, tested, enlarge), _flat(tested)
    if not left < flat:
        raise ValueError(
            f"prepare autoencoder: {net.published.name} must give images back better"
            f" than one colour for each does, got an error of {left:.3f} for"
            f" {flat:.3f} after {steps} steps; take a lower --rate than {rate:g}, or"
            " other --images, and give the result to deepaugment by --weights"
        )
    return weights, left


def _flat(images: UInt8[np.ndarray, "n h w 3"]) -> float:
    """The error of one colour for each image, its mean."""
    images = images.astype(np.float32) / 255
    return float(np.sqrt(np.mean(np.var(images, axis=(1, 2)))))


def train(
    net: image_nets.Net,
    images: UInt8[np.ndarray, "n h w 3"],
    sizes: Mapping[str, int],
    key: PRNGKeyArray,
    *,
    steps: int,
    batch: int,
    rate: float,
    enlarge: int = 1,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, np.ndarray]:
    """Trains a network to give the images back, by Adam; returns its weights.

    Of enlarged images it sees random windows of the images' own size.
    """
    init, order, numbers = (
        seeds.stream(key, name) for name in ("init", "order", "steps")
    )
    weights = net.init(init, **sizes)
    falling = optax.warmup_cosine_decay_schedule(0, rate, min(steps // 10, 100), steps)
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(falling))
    state, step = tx.init(weights), _step(net, tx, enlarge)
    chosen = np.random.default_rng(np.asarray(jax.random.key_data(order)))
    for i in range(steps):
        some = images[chosen.integers(len(images), size=batch)]
        weights, state = step(weights, state, some, jax.random.fold_in(numbers, i))
        progress(i + 1, steps)
    return {name: np.asarray(value) for name, value in weights.items()}


def _step(
    net: image_nets.Net, tx: optax.GradientTransformation, enlarge: int
) -> Callable:
    @jax.jit
    def step(weights, state, images, key):
        cut, bits = jax.random.split(key)
        images = _windows(images.astype(jnp.float32) / 255, enlarge, cut)
        keys = jax.random.split(bits, len(images))

        def loss(weights):
            found = image_nets.same_size(net, weights, images, keys, damaged=False)
            return net.loss(found, images)

        grads = jax.grad(loss)(weights)
        grads = {k: g if net.trained(k) else 0 * g for k, g in grads.items()}
        updates, state = tx.update(grads, state)
        return optax.apply_updates(weights, updates), state

    return step


def _windows(
    images: Float[Array, "b h w 3"], enlarge: int, key: PRNGKeyArray
) -> Float[Array, "b h w 3"]:
    """Enlarges images and cuts a window of their former size out of each."""
    b, h, w, c = images.shape
    if enlarge == 1:
        return images
    large = jax.image.resize(images, (b, h * enlarge, w * enlarge, c), "linear")
    rows = jax.random.randint(key, (b,), 0, h * (enlarge - 1) + 1)
    columns = jax.random.randint(
        jax.random.fold_in(key, 1), (b,), 0, w * (enlarge - 1) + 1
    )
    cut = jax.vmap(lambda x, y, z: jax.lax.dynamic_slice(x, (y, z, 0), (h, w, c)))
    return cut(large, rows, columns)


def error(
    net: image_nets.Net,
    weights: Mapping,
    images: UInt8[np.ndarray, "n h w 3"],
    enlarge: int = 1,
) -> float:
    """Root mean square of what images lose in the undamaged network, of 1."""
    keys = jax.random.split(seeds.key(0), len(images))
    images = images.astype(np.float32) / 255

    @jax.jit
    def back(images):
        return image_nets.same_size(
            net, weights, images, keys, damaged=False, enlarge=enlarge
        )

    return float(np.sqrt(np.mean((np.clip(back(images), 0, 1) - images) ** 2)))
