"""Train the small network that `jbias prepare deepaugment` damages.

jbias prepare autoencoder --net=cae --data=shapes --out=cae.npz
jbias prepare autoencoder --net=edsr --data=folder --root=photos --out=edsr.npz

cae learns to reconstruct images from a code of 2 bits per pixel. edsr learns to reconstruct
images from copies that are smaller by the factor --scale. For cae and edsr, images are first
enlarged by the factor --enlarge. A damaged network changes the enlarged image in blocks of
pixels, and the blocks should be small compared with the objects in the image.
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

from jbias import errors
from jbias.augment import deepaugment_cae, deepaugment_edsr
from jbias.data import base
from jbias.models import cae, edsr, weight_files
from jbias.prepare import dataset
from jbias.training import prng

Images = UInt8[np.ndarray, "n h w 3"]


class Net(NamedTuple):
    """An image-to-image network, with its sizes and training options for small images.

    apply(weights, image, keys, *, damaged) -> images `scale` times larger, for images in
    [0, 1], (b h w 3). keys (b): a random key per image. damaged: True damages the code or
    the features of each image.
    """

    model: types.ModuleType  # Has PUBLISHED (weights), `init` and `sizes_of`.
    unit: int  # Sides of input images are multiples of this number.
    apply: Callable[..., Float[Array, "b scale*h scale*w 3"]]
    damage: Callable[..., dict[str, Any]]  # (weights, key) -> weights
    loss: Callable[..., Float[Array, ""]]  # (output, image)
    trained: Callable[[str], bool]  # Name of a weight -> True if it is trained.
    small: Mapping[str, int]  # Sizes of the network for small images.
    enlarge: int  # Factor by which small images are enlarged.
    steps: int  # Training steps.
    rate: float  # Peak learning rate.


def same_size(
    net: Net,
    weights: Mapping[str, Array],
    image: Float[Array, "b h w 3"],
    keys: PRNGKeyArray,
    *,
    enlarge: int = 1,
    **options: bool,
) -> Float[Array, "b h w 3"]:
    """Return the network's output, resized to the size of the input images.

    image: square images in [0, 1]. keys: (b), one for each image. enlarge: factor by which
    images are enlarged before the network. options: further arguments of net.apply, such as
    `damaged`. With `enlarge` above 1, the output is clipped to [0, 1] and then resized; with 1,
    the output has the image's size and is not clipped.
    """
    scale = net.model.sizes_of(weights).get("scale", 1)
    enlarged = _resized(image, image.shape[1] * enlarge // scale)
    output = net.apply(weights, enlarged, keys, **options)
    if enlarge == 1:
        return output
    return _resized(jnp.clip(output, 0, 1), image.shape[1])


def check_size(net: Net, size: int, sizes: Mapping[str, int], enlarge: int) -> None:
    """Raise ValueError unless size * enlarge is a multiple of the network's unit times scale.

    ValueError also if `enlarge` is below 1. size: side of the images in pixels. sizes: sizes of
    the network, such as {"scale": 2}. enlarge: factor by which images are enlarged.
    """
    multiple = net.unit * sizes.get("scale", 1)
    if enlarge < 1 or size * enlarge % multiple:
        must = f"prepare: --size times --enlarge must be a multiple of {multiple}"
        name = net.model.PUBLISHED.name
        raise ValueError(f"{must} for {name}, got {size} times {enlarge}")


def _resized(image: Float[Array, "b h w 3"], size: int) -> Array:
    """Return images resized to size x size pixels, bilinearly and with antialiasing."""
    return jax.image.resize(image, (len(image), size, size, 3), "linear")


def _cae(
    weights: Mapping[str, Array],
    image: Float[Array, "b h w 3"],
    keys: PRNGKeyArray,
    *,
    damaged: bool,
) -> Float[Array, "b h w 3"]:
    """Return the output of cae; used as Net.apply, see `Net` for the arguments."""
    bit_keys, damage_keys = _split_keys(keys)
    if not damaged:
        return cae.apply(weights, image, bit_keys, damage=None)
    return cae.apply(
        weights,
        image,
        bit_keys,
        damage=lambda code: deepaugment_cae.latent(code, damage_keys),
    )


def _edsr(
    weights: Mapping[str, Array],
    image: Float[Array, "b h w 3"],
    keys: PRNGKeyArray,
    *,
    damaged: bool,
    true_swaps: bool = False,
    true_skips: bool = False,
) -> Float[Array, "b scale*h scale*w 3"]:
    """Return the output of edsr; used as Net.apply, see `Net` for the other arguments.

    true_swaps, true_skips: see deepaugment_edsr.before and deepaugment_edsr.body; no effect
    unless `damaged`.
    """
    if not damaged:
        return edsr.apply(weights, image)
    before_keys, body_keys = _split_keys(keys)
    before = functools.partial(
        deepaugment_edsr.before, keys=before_keys, true_swaps=true_swaps
    )
    body = functools.partial(
        deepaugment_edsr.body, keys=body_keys, true_skips=true_skips
    )
    return edsr.apply(weights, image, before=before, body=body)


def _split_keys(keys: PRNGKeyArray) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """Return two arrays (b) of keys: each key is split into two."""
    split = jax.vmap(jax.random.split)(keys)
    return split[:, 0], split[:, 1]


NETS: Mapping[str, Net] = {
    "cae": Net(
        model=cae,
        unit=4,
        apply=_cae,
        damage=deepaugment_cae.damage,
        loss=lambda output, image: jnp.mean((output - image) ** 2),
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
        loss=lambda output, image: jnp.mean(jnp.abs(output - image)),
        trained=edsr.is_trainable,
        small={"features": 32, "blocks": 8, "scale": 2},
        enlarge=1,
        steps=2000,
        rate=2e-3,
    ),
}

NET_HELP = (
    "network to damage: cae (a compressive autoencoder) or edsr (a super-resolution network, "
    "which enlarges images)"
)
# Flags for sizes of the networks -> help.
_SIZES = {
    "width": "only for cae: number of channels, a multiple of 8 (default: 32; the published "
    "network has 128)",
    "features": "only for edsr: number of channels (default: 32; the published network has 64)",
    "blocks": "only for edsr: number of residual blocks, at least 4 (default: 8; the published "
    "network has 16)",
    "scale": "only for edsr: factor by which the network enlarges images, 2 or 4 (default: 2; "
    "the published network has 4)",
}
_WHERE, BATCH, IMAGES = "prepare autoencoder", 8, 10_000
_CHECKED_IMAGES = 256


def add(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `jbias prepare autoencoder` to its parser."""
    add = parser.add_argument
    absent = argparse.SUPPRESS  # No entry in the arguments: the network's default.
    add("--net", required=True, metavar="NET", help=NET_HELP)
    out_help = "weights file to write, ending in .npz"
    dataset.add_options(parser, out=out_help, out_metavar="FILE")
    steps_help = "number of training steps (default: 5000 for cae, 2000 for edsr)"
    add("--steps", type=int, default=absent, metavar="N", help=steps_help)
    batch_help = f"number of images per training step (default: {BATCH})"
    add("--batch", type=int, default=BATCH, metavar="N", help=batch_help)
    rate_help = "peak learning rate of Adam, with warm-up and a cosine decay "
    rate_help += "(default: 0.004 for cae, 0.002 for edsr)"
    add("--rate", type=float, default=absent, metavar="RATE", help=rate_help)
    enlarge_help = "whole factor by which images are enlarged before the network "
    enlarge_help += "(default: 2 for cae, 1 for edsr)"
    add("--enlarge", type=int, default=absent, metavar="N", help=enlarge_help)
    images_help = (
        "largest number of training images; from a larger data set, this many are "
    )
    images_help += f"chosen at random (default: {IMAGES})"
    add("--images", type=int, default=IMAGES, metavar="N", help=images_help)
    seed_help = "random seed of the training (default: 0)"
    add("--seed", type=int, default=0, metavar="N", help=seed_help)
    for name, size_help in _SIZES.items():
        add(f"--{name}", type=int, default=absent, metavar="N", help=size_help)


def run(args: argparse.Namespace) -> str:
    """Train a network and write its weights to --out; return a line with the network's error.

    args: the flags of `add`. ValueError for an unknown network, data set or option.
    """
    errors.check_known(f"{_WHERE}: --net", args.net, NETS)
    net, source = NETS[args.net], dataset.open_source(args)
    own_sizes = dataset.select(args, *_SIZES)
    for name in own_sizes:
        if name not in net.small:
            must = f"{_WHERE}: --{name} is no size of {args.net}"
            raise ValueError(f"{must}, which has {', '.join(net.small)}; leave it out")
    sizes = {**net.small, **own_sizes}
    training_options = dataset.select(
        args, "steps", "batch", "rate", "images", "enlarge", "seed"
    )
    weights, error = train_on_source(net, source, sizes, **training_options)
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
    """Return the trained weights and the root mean square error of the reconstruction.

    The error is for values in [0, 1], on up to 256 of the training images. ValueError if the
    error is not below the error of a single colour per image, if steps, batch, images or
    enlarge is below 1, or if the size of the images does not fit the network.

    source: the training images. sizes: sizes of the network, such as {"scale": 2}.
    images: largest number of training images; if the source has more, a random sample is used.
    options: steps, batch, rate and enlarge of `train`; default: the values of `net`, and a
    batch of 8.
    """
    options = {
        "steps": net.steps,
        "batch": BATCH,
        "rate": net.rate,
        "enlarge": net.enlarge,
        **options,
    }
    name = net.model.PUBLISHED.name
    check_size(net, source.size, sizes=sizes, enlarge=options["enlarge"])
    steps, batch = options["steps"], options["batch"]
    if min(steps, batch, images) < 1:
        must = f"{_WHERE}: --steps, --batch and --images must be at least 1"
        raise ValueError(f"{must}, got {steps}, {batch} and {images}")
    train_images = dataset.read_sample(source, images, seed)
    key = prng.stream(prng.key(seed), "autoencoder")
    weights = train(net, train_images, sizes, key, **options)
    checked_images = train_images[:_CHECKED_IMAGES]
    error = rms_error(net, weights, images=checked_images, enlarge=options["enlarge"])
    # The error of the mean colour of each image.
    variance = np.var(checked_images.astype(np.float32) / 255, axis=(1, 2))
    flat_error = np.sqrt(np.mean(variance))
    if not error < flat_error:
        must = f"{_WHERE}: {name} must give images back better than one"
        got = f"colour for each does, got an error of {error:.3f} for {flat_error:.3f}"
        remedy = f"take a lower --rate than {options['rate']:g}, or other --images"
        use = "and give the result to deepaugment by --weights"
        raise ValueError(f"{must} {got} after {steps} steps; {remedy}, {use}")
    return weights, error


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
    """Return {name: array}, the weights of a network trained by Adam to reconstruct images.

    sizes: sizes of the network, such as {"scale": 2}. steps: number of training steps.
    batch: images per step. rate: peak learning rate, after a warm-up and before a cosine
    decay. enlarge: factor by which images are enlarged; training uses random windows of the
    enlarged images, of the original size. Weights that net.trained excludes do not change.
    """
    init_key, order_key, step_key = (
        prng.stream(key, name) for name in ("init", "order", "steps")
    )
    weights = net.model.init(init_key, **sizes)
    schedule = optax.warmup_cosine_decay_schedule(0, rate, min(steps // 10, 100), steps)
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule))
    state, step = tx.init(weights), _make_step(net, tx, enlarge)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(order_key)))
    for i in dataset.track(f"training {net.model.PUBLISHED.name}", range(steps)):
        step_images = images[rng.integers(len(images), size=batch)]
        weights, state = step(
            weights, state, step_images, jax.random.fold_in(step_key, i)
        )
    return {name: np.asarray(value) for name, value in weights.items()}


def _make_step(net: Net, tx: optax.GradientTransformation, enlarge: int) -> Callable:
    """Return the compiled function step(weights, state, images, key) -> (weights, state).

    state: state of the optimiser `tx`. images: bytes (b h w 3). key: for the random windows
    and the network. enlarge: see `train`.
    """

    @jax.jit
    def step(weights, state, images, key):
        """Return (weights, state) after one step; arguments: see `_make_step`.

        The images are converted to [0, 1] and cut to `_windows`, which the network
        reconstructs; the gradients of weights that net.trained excludes are 0.
        """
        window_key, network_key = jax.random.split(key)
        images = _windows(images.astype(jnp.float32) / 255, enlarge, window_key)
        keys = jax.random.split(network_key, len(images))

        def loss(weights):
            output = same_size(net, weights, images, keys, damaged=False)
            return net.loss(output, images)

        grads = jax.grad(loss)(weights)
        grads = {k: g if net.trained(k) else 0 * g for k, g in grads.items()}
        updates, state = tx.update(grads, state)
        return optax.apply_updates(weights, updates), state

    return step


def _windows(
    images: Float[Array, "b h w 3"], enlarge: int, key: PRNGKeyArray
) -> Float[Array, "b h w 3"]:
    """Return a random h x w window of each image after an enlargement by `enlarge`.

    With enlarge=1, the images are returned unchanged.
    """
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
    """Return the root mean square error of the undamaged network, for values in [0, 1].

    The output is clipped to [0, 1]. images: bytes. enlarge: factor by which images are enlarged
    before the network.
    """
    keys = jax.random.split(prng.key(0), len(images))
    images = images.astype(np.float32) / 255

    @jax.jit
    def reconstruct(images):
        return same_size(net, weights, images, keys, damaged=False, enlarge=enlarge)

    output = np.clip(reconstruct(images), 0, 1)
    return float(np.sqrt(np.mean((output - images) ** 2)))
