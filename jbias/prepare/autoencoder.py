"""Trains the small network that `prepare deepaugment` damages.

jbias prepare autoencoder --net=cae --data=shapes --out=cae.npz
jbias prepare autoencoder --net=edsr --data=folder --root=photos --out=edsr.npz

cae learns to give images back through 2 bits a pixel, edsr to give them back from
`scale` times smaller ones. Before, images are made `enlarge` times larger: the damage is
as coarse as a code's pixel, and should be small beside what the image shows.
"""

import argparse
import functools
import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray, UInt8

from jbias import config as jc
from jbias.augment import deepaugment_cae, deepaugment_edsr
from jbias.data import base
from jbias.models import cae, edsr, weight_files
from jbias.prepare import dataset
from jbias.training import prng

Images = UInt8[np.ndarray, "n h w 3"]


class Net(NamedTuple):
    """A network from images to images.

    apply(weights, image, keys, *, damaged): images in [0, 1], (b h w 3), to `scale`
    times larger ones; `keys` (b).
    """

    model: types.ModuleType  # Its PUBLISHED weights, `init` and `sizes_of`.
    unit: int  # Sides of what enters are a multiple of it.
    apply: Callable[..., Float[Array, "b scale*h scale*w 3"]]
    damage: Callable[..., dict[str, Any]]  # (weights, key) -> weights
    loss: Callable[..., Float[Array, ""]]  # (found, image)
    trained: Callable[[str], bool]  # By the name of a weight.
    # For small images: sizes of the network, how many times they are enlarged, and
    # how it is trained.
    small: Mapping[str, int]
    enlarge: int
    steps: int
    rate: float


def same_size(
    net: Net,
    weights: Mapping[str, Array],
    image: Float[Array, "b h w 3"],
    keys: PRNGKeyArray,
    *,
    enlarge: int = 1,
    **options,
) -> Float[Array, "b h w 3"]:
    """Runs images through a network, `enlarge` times larger, and brings them back.

    Inside, the result is `enlarge` times as large as the image; it is cut to [0, 1]
    before it is made smaller. `options` are those of net.apply.
    """
    scale = net.model.sizes_of(weights).get("scale", 1)
    inside = _resized(image, image.shape[1] * enlarge // scale)
    found = net.apply(weights, inside, keys, **options)
    if enlarge == 1:
        return found
    return _resized(jnp.clip(found, 0, 1), image.shape[1])


def check_size(net: Net, size: int, sizes: Mapping[str, int], enlarge: int) -> None:
    """Refuses images of a size that the network does not give back."""
    multiple = net.unit * sizes.get("scale", 1)
    if enlarge < 1 or size * enlarge % multiple:
        must = f"prepare: --size times --enlarge must be a multiple of {multiple}"
        name = net.model.PUBLISHED.name
        raise ValueError(f"{must} for {name}, got {size} times {enlarge}")


def _resized(image: Float[Array, "b h w 3"], size: int) -> Array:
    """Bilinear, with antialiasing."""
    return jax.image.resize(image, (len(image), size, size, 3), "linear")


def _cae(weights, image, keys, *, damaged: bool) -> Array:
    bits, how = _two(keys)
    damage = (lambda x: deepaugment_cae.latent(x, how)) if damaged else None
    return cae.apply(weights, image, bits, damage=damage)


def _edsr(weights, image, keys, *, damaged, true_swaps=False, true_skips=False):
    if not damaged:
        return edsr.apply(weights, image)
    first, second = _two(keys)
    law, partial = deepaugment_edsr, functools.partial
    before = partial(law.before, keys=first, true_swaps=true_swaps)
    body = partial(law.body, keys=second, true_skips=true_skips)
    return edsr.apply(weights, image, before=before, body=body)


def _two(keys: PRNGKeyArray) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    split = jax.vmap(jax.random.split)(keys)
    return split[:, 0], split[:, 1]


NETS: Mapping[str, Net] = {
    "cae": Net(
        model=cae,
        unit=4,
        apply=_cae,
        damage=deepaugment_cae.damage,
        loss=lambda found, image: jnp.mean((found - image) ** 2),
        trained=lambda name: True,
        small={"width": 32},
        enlarge=2,
        steps=5000,
        rate=4e-3,
    ),
    "edsr": Net(
        model=edsr,
        unit=1,
        apply=_edsr,
        damage=deepaugment_edsr.damage,
        loss=lambda found, image: jnp.mean(jnp.abs(found - image)),
        trained=edsr.is_trainable,
        small={"features": 32, "blocks": 8, "scale": 2},
        enlarge=1,
        steps=2000,
        rate=2e-3,
    ),
}

_SIZES = {  # Of the networks, and what each is.
    "width": "channels of cae, a multiple of 8; 128 when published",
    "features": "channels of edsr; 64 when published",
    "blocks": "of edsr, at least 4; 16 when published",
    "scale": "of edsr, 2 or 4; 4 when published",
}
_WHERE, BATCH, IMAGES = "prepare autoencoder", 8, 10_000
_TEST_IMAGES = 256


def add(parser) -> None:
    """Adds the arguments of the subcommand."""
    add = parser.add_argument
    add("--net", required=True, help=f"one of {', '.join(NETS)}")
    dataset.add_options(parser, out="the file to write, .npz")
    own = dict(default=argparse.SUPPRESS)
    add("--steps", type=int, help="5000 for cae, 2000 for edsr", **own)
    add("--batch", type=int, default=BATCH)
    rate = "of Adam, which rises, then falls by a cosine"
    add("--rate", type=float, help=f"{rate}; 0.004 for cae, 0.002 for edsr", **own)
    enlarge = "times that images are made larger first; 2 for cae, 1 for edsr"
    add("--enlarge", type=int, help=enlarge, **own)
    add("--images", type=int, default=IMAGES, help="trains on at most so many")
    add("--seed", type=int, default=0)
    for name, text in _SIZES.items():
        add(f"--{name}", type=int, help=text, **own)


def run(args: argparse.Namespace) -> str:
    """Trains one network and writes its weights; returns what it did.

    Raises ValueError for an unknown network, set or option, one line.
    """
    jc.check_known(f"{_WHERE}: --net", args.net, NETS)
    net, source = NETS[args.net], dataset.open_source(args)
    given = dataset.select(args, *_SIZES)
    for name in given:
        if name not in net.small:
            must = f"{_WHERE}: --{name} is no size of {args.net}"
            raise ValueError(f"{must}, which has {', '.join(net.small)}; leave it out")
    sizes = {**net.small, **given}
    how = ("steps", "batch", "rate", "images", "enlarge", "seed")
    weights, error = train_on_source(net, source, sizes, **dataset.select(args, *how))
    weight_files.write_npz(args.out, weights)
    words = ", ".join(f"{name} {value}" for name, value in sizes.items())
    error = f"error {error:.3f} (root mean square, of 1)"
    return f"{args.out}: {args.net} with {words}, {error}"


def train_on_source(
    net: Net,
    source: base.Source,
    sizes: Mapping[str, int],
    *,
    seed: int,
    images: int = IMAGES,
    **options: Any,
) -> tuple[dict[str, np.ndarray], float]:
    """Trains on a set, or so many random images of it; returns weights and error.

    options: of `train`, in the place of what is the network's own.
    """
    usual = dict(steps=net.steps, batch=BATCH, rate=net.rate, enlarge=net.enlarge)
    options, name = usual | options, net.model.PUBLISHED.name
    check_size(net, source.size, sizes, options["enlarge"])
    steps, batch = options["steps"], options["batch"]
    if min(steps, batch, images) < 1:
        must = f"{_WHERE}: --steps, --batch and --images must be at least 1"
        raise ValueError(f"{must}, got {steps}, {batch} and {images}")
    read = dataset.read_sample(source, images, seed)
    key = prng.stream(prng.key(seed), "autoencoder")
    weights = train(net, read, sizes, key, **options)
    tested = read[:_TEST_IMAGES]
    left = rms_error(net, weights, tested, options["enlarge"])
    # Of one colour for each image, its mean.
    flat = np.sqrt(np.mean(np.var(tested.astype(np.float32) / 255, axis=(1, 2))))
    if not left < flat:
        must = f"{_WHERE}: {name} must give images back better than one"
        got = f"colour for each does, got an error of {left:.3f} for {flat:.3f}"
        remedy = f"take a lower --rate than {options['rate']:g}, or other --images"
        use = "and give the result to deepaugment by --weights"
        raise ValueError(f"{must} {got} after {steps} steps; {remedy}, {use}")
    return weights, left


def train(
    net: Net,
    images: Images,
    sizes: Mapping[str, int],
    key: PRNGKeyArray,
    *,
    steps: int,
    batch: int,
    rate: float,
    enlarge: int = 1,
) -> dict[str, np.ndarray]:
    """Trains a network to give the images back, by Adam; returns its weights.

    Of enlarged images it sees random windows of the images' own size.
    """
    init, order, numbers = (prng.stream(key, x) for x in ("init", "order", "steps"))
    weights = net.model.init(init, **sizes)
    falling = optax.warmup_cosine_decay_schedule(0, rate, min(steps // 10, 100), steps)
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(falling))
    state, step = tx.init(weights), _step(net, tx, enlarge)
    chosen = np.random.default_rng(np.asarray(jax.random.key_data(order)))
    for i in dataset.track(f"training {net.model.PUBLISHED.name}", range(steps)):
        some = images[chosen.integers(len(images), size=batch)]
        weights, state = step(weights, state, some, jax.random.fold_in(numbers, i))
    return {name: np.asarray(value) for name, value in weights.items()}


def _step(net: Net, tx: optax.GradientTransformation, enlarge: int) -> Callable:
    @jax.jit
    def step(weights, state, images, key):
        cut, bits = jax.random.split(key)
        images = _windows(images.astype(jnp.float32) / 255, enlarge, cut)
        keys = jax.random.split(bits, len(images))

        def loss(weights):
            found = same_size(net, weights, images, keys, damaged=False)
            return net.loss(found, images)

        grads = jax.grad(loss)(weights)
        grads = {k: g if net.trained(k) else 0 * g for k, g in grads.items()}
        updates, state = tx.update(grads, state)
        return optax.apply_updates(weights, updates), state

    return step


def _windows(images, enlarge, key) -> Float[Array, "b h w 3"]:
    """Enlarges images and cuts a window of their former size out of each."""
    b, h, w, c = images.shape
    if enlarge == 1:
        return images
    large = jax.image.resize(images, (b, h * enlarge, w * enlarge, c), "linear")
    rows = jax.random.randint(key, (b,), 0, h * (enlarge - 1) + 1)
    key = jax.random.fold_in(key, 1)
    columns = jax.random.randint(key, (b,), 0, w * (enlarge - 1) + 1)
    cut = jax.vmap(lambda x, y, z: jax.lax.dynamic_slice(x, (y, z, 0), (h, w, c)))
    return cut(large, rows, columns)


def rms_error(net: Net, weights: Mapping, images: Images, enlarge: int = 1) -> float:
    """Root mean square of what images lose in the undamaged network, of 1."""
    keys = jax.random.split(prng.key(0), len(images))
    images = images.astype(np.float32) / 255

    @jax.jit
    def back(images):
        return same_size(net, weights, images, keys, damaged=False, enlarge=enlarge)

    return float(np.sqrt(np.mean((np.clip(back(images), 0, 1) - images) ** 2)))
