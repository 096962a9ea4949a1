r"""Make the extra training set of DeepAugment, by networks with random damage.

Each image of the data set is passed through an image-to-image network whose weights or
activations were changed at random.

jbias prepare deepaugment --net=cae --data=shapes --out=prepared/cae
jbias prepare deepaugment --net=edsr --data=shapes --out=prepared/edsr
jbias prepare deepaugment --net=cae --weights=cae.npz --short=512 \
    --format=jpeg --data=folder --space=wnid --root=/data/imagenet --out=/data/cae

The first two commands train a small network on the data set, and write it to OUT/<net>.npz (see
`jbias prepare autoencoder`), before they make images. The third command uses the published
network (see `jbias prepare weights`). The authors' images have a short side of 512 pixels for
cae and 128 pixels for edsr, which --short sets. The long side is rounded to a multiple of a
sixteenth of the short side. The authors do not round it; rounding makes compilation faster.

Writes OUT/<split>/<class>/<number>.png, where the number is the index of the image in the data
set, and the settings to OUT/<split>.json. Each image depends only on the data set, the options
and its number, so if you start the command again, it makes only the missing images.
"""

import argparse
import pathlib
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int
from PIL import Image

from jbias import errors, numerals
from jbias.augment import deepaugment as law
from jbias.data import base, decoding, sources
from jbias.data.forms import listing
from jbias.models import weight_files
from jbias.prepare import autoencoder, dataset
from jbias.training import prng

_WHERE = "prepare deepaugment"
_BATCH = 8  # Images per call of the network; a damaged network has 20 on average.
_FORMATS = {"png": {}, "jpeg": {"quality": 75}}
_FLAGS = ("true_swaps", "true_skips")  # Of edsr.


def add(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `jbias prepare deepaugment` to its parser."""
    add = parser.add_argument
    add("--net", required=True, metavar="NET", help=autoencoder.NET_HELP)
    dataset.add_options(parser, out="folder to write the images into")
    weights_help = (
        "weights file of the network, ending in .npz (default: first train a small "
    )
    weights_help += "network, and write it to OUT/<net>.npz)"
    add("--weights", default="", metavar="FILE", help=weights_help)
    short_help = (
        "only with --weights, for data sets that are read from files: resize images "
    )
    short_help += (
        "to this short side in pixels, a multiple of 16, and do not crop them "
    )
    short_help += "(default: 0, which crops squares of --size pixels)"
    add("--short", type=int, default=0, metavar="PIXELS", help=short_help)
    enlarge_help = (
        "not with --short: whole factor by which images are enlarged before the "
    )
    enlarge_help += (
        "network, and reduced again after the network (default: 2 for cae, 1 for "
    )
    enlarge_help += "edsr)"
    add("--enlarge", type=int, default=None, metavar="N", help=enlarge_help)
    format_help = (
        "file format of the images: png, or jpeg of quality 75, which the authors use "
    )
    format_help += "(default: png)"
    add("--format", default="png", metavar="FORMAT", help=format_help)
    renewal_help = (
        "probability, 0 to 1, that the network gets new damage after an image "
    )
    renewal_help += (
        f"(default: {law.RENEWAL}, with which about 20 images share the same damage)"
    )
    add(
        "--renewal",
        type=float,
        default=law.RENEWAL,
        metavar="SHARE",
        help=renewal_help,
    )
    seed_help = "random seed of the damage, and of the training of the small network "
    seed_help += "(default: 0)"
    add("--seed", type=int, default=0, metavar="N", help=seed_help)
    part_help = (
        "make only part K of N, from 1/N to N/N, to divide the images between N "
    )
    part_help += "processes (default: 1/1, all images)"
    add("--part", default="1/1", metavar="K/N", help=part_help)
    swaps_help = "only for edsr: swap channels as the paper describes (default: as the "
    swaps_help += "released code does)"
    add("--true-swaps", action="store_true", help=swaps_help)
    skips_help = "only for edsr: skip blocks as the paper describes (default: as the "
    skips_help += "released code does)"
    add("--true-skips", action="store_true", help=skips_help)


# Arguments that determine an image, with its data set and index.
_SETTINGS = ("net", "short", "enlarge", "format", "renewal", "seed", "flags")


def run(args: argparse.Namespace) -> str:
    """Write the missing images; return a line with their count and the options that read them.

    Without --weights, train the network first, unless OUT/<net>.npz exists. args: the flags of
    `add`. ValueError for an unknown option or data set, damaged images, or a folder with
    images of different settings.
    """
    split = args.split.partition("[")[0]
    source = dataset.open_source(args)
    errors.check_known(f"{_WHERE}: --net", args.net, autoencoder.NETS)
    net = autoencoder.NETS[args.net]
    args.flags = {flag: True for flag in _FLAGS if getattr(args, flag)}
    _check(source, args)
    if args.enlarge is None and not args.short:
        args.enlarge = net.enlarge
    part, folder = _part(args.part), pathlib.Path(args.out).expanduser()
    settings = {
        "made_by": "jbias.prepare deepaugment",
        **dataset.select(args, *_SETTINGS),
        **dataset.describe_source(source),
    }
    if args.short:
        settings["preprocessing"] = f"Pillow bilinear: short side {args.short}"
    dataset.check_settings(_WHERE, folder, split=split, settings=settings)
    paths = dataset.image_paths(folder / split, source, args.format, out=folder)
    weights_path = args.weights or _train_small(net, source, folder=folder, args=args)
    weights = weight_files.load(net.model.PUBLISHED, weights_path)
    if not args.short:
        sizes = net.model.sizes_of(weights)
        autoencoder.check_size(net, source.size, sizes=sizes, enlarge=args.enlarge)
    settings["weights"] = listing.digest_named(weights)
    dataset.claim(_WHERE, folder, split=split, settings=settings)
    num_made = _make_images(
        net, weights, source=source, paths=paths, args=args, part=part
    )
    return dataset.summary(folder, split, num_made=num_made, source=source)


def _check(source: base.Source, args: argparse.Namespace) -> None:
    """Raise ValueError for flags that are out of range or do not fit together.

    args.flags: {name: True} for each of --true-swaps and --true-skips that is given.
    """
    errors.check_choice(_WHERE, args.format, _FORMATS, name="--format")
    wrong, flags = "", ", ".join(args.flags)
    if not 0 <= args.renewal <= 1:
        wrong = f"--renewal must be in [0, 1], got {args.renewal}"
    if flags and args.net != "edsr":
        wrong = f"{flags} must be left out for {args.net}; edsr has it"
    if args.short < 0 or args.short % 16:
        wrong = f"--short must be a multiple of 16, got {args.short}"
    if args.short and not isinstance(source, sources.EncodedSource):
        wrong = f"--short is for files, {source.name} is drawn; set --size"
    if args.short and args.enlarge is not None:
        wrong = "--enlarge must come without --short, got both; remove one of the two"
    if wrong:
        raise ValueError(f"{_WHERE}: {wrong}")


def _part(text: str) -> tuple[int, int]:
    """Return (k - 1, n) for "k/n", part k of n parts; ValueError unless 1 <= k <= n."""
    match text.split("/"):
        case [k, n] if (
            numerals.is_count(k) and numerals.is_count(n) and 1 <= int(k) <= int(n)
        ):
            return int(k) - 1, int(n)
    raise ValueError(f"{_WHERE}: --part must be like 1/4, got {text!r}")


def _train_small(
    net: autoencoder.Net,
    source: base.Source,
    *,
    folder: pathlib.Path,
    args: argparse.Namespace,
) -> pathlib.Path:
    """Return the path of the small network's weights, folder/<net>.npz.

    If there is no such file, the network is trained on `source` first; with --short, ValueError
    instead.
    """
    path = folder / f"{args.net}.npz"
    if not path.exists():
        if args.short:
            must = f"{_WHERE}: --short must come with --weights, got none"
            raise ValueError(f"{must}; small networks are trained at --size")
        weights, _ = autoencoder.train_on_source(
            net, source, net.small, seed=args.seed, enlarge=args.enlarge
        )
        weight_files.write_npz(path, weights)
    return path


class _Block(NamedTuple):
    """Images that go through one damaged network together."""

    network: (
        int  # Number of the network: the index of its first image; seeds the damage.
    )
    index: Int[np.ndarray, "m"]  # Indices of the images.


def _make_images(
    net: autoencoder.Net,
    weights: Mapping[str, np.ndarray],
    *,
    source: base.Source,
    paths: Sequence[pathlib.Path],
    args: argparse.Namespace,
    part: tuple[int, int],
) -> int:
    """Write the missing images of a part of a source, and return their number.

    Images are processed in blocks that share a damaged network; a part has every n-th block.
    net, weights: the undamaged network. paths: paths of all images of the source. args: the
    flags of `add`. part: (index, number of parts), the result of `_part`.
    """
    root = prng.key(args.seed)
    order_key, n = prng.stream(root, "order"), len(source)
    order = law.draw_order(order_key, n, renewal=args.renewal)
    weight_key, feature_key = (prng.stream(root, x) for x in ("weights", "features"))
    run, read = _program(net, args), _reader(source, args.short)
    batch = 1 if args.short else _BATCH
    blocks = [
        _Block(int(run_index[0]), run_index[start : start + batch])
        for run_index in order.index_by_network
        for start in range(0, len(run_index), batch)
    ]
    first, step = part
    missing = [
        block
        for block in blocks[first::step]
        if not all(paths[i].exists() for i in block.index)
    ]

    def write(path: pathlib.Path, image: np.ndarray) -> None:
        kind, options = args.format.upper(), _FORMATS[args.format]
        dataset.write_image(path, image, kind, **options)

    num_made, network, damaged = 0, None, None
    with (
        futures.ThreadPoolExecutor(dataset.WORKERS) as writers,
        dataset.map_ahead(
            f"{args.net} {source.name}",
            lambda block: read(block.index),
            items=missing,
            total=sum(len(block.index) for block in missing),
            size=lambda block: len(block.index),
        ) as results,
    ):
        for block, images in results:
            if block.network != network:
                key = jax.random.fold_in(weight_key, block.network)
                network, damaged = block.network, net.damage(weights, key)
                damaged = jax.tree.map(jnp.asarray, damaged)
            # Short blocks repeat images, so that all blocks use one compiled program.
            padded = np.resize(block.index, batch)
            images = images[np.arange(batch) % len(block.index)]
            keys = jax.vmap(jax.random.fold_in, (None, 0))(feature_key, padded)
            changed = np.asarray(run(damaged, images, keys))
            new_paths, new_images = [], []
            for i, image in zip(block.index, changed):
                if not paths[i].exists():
                    new_paths.append(paths[i])
                    new_images.append(image)
            list(writers.map(write, new_paths, new_images))
            num_made += len(new_paths)
    return num_made


def _program(net: autoencoder.Net, args: argparse.Namespace) -> Callable:
    """Return a compiled function run(weights, images, keys) -> the damaged network's output.

    Images are bytes (b h w 3) before and after; with --short, the output is larger by the
    network's scale. weights: damaged. keys: (b), one for each image.
    """

    @jax.jit
    def run(weights, images, keys):
        """Return the damaged network's output for images, as bytes; arguments: see `_program`.

        Without --short, the output has the size of the images. Fractions of bytes are truncated.
        """
        images = images.astype(jnp.float32) / 255
        if args.short:
            changed = net.apply(weights, images, keys, damaged=True, **args.flags)
        else:
            changed = autoencoder.same_size(
                net,
                weights,
                images,
                keys,
                enlarge=args.enlarge,
                damaged=True,
                **args.flags,
            )
        # Truncated, not rounded, as the authors' images.
        return jnp.floor(jnp.clip(changed, 0, 1) * 255).astype(jnp.uint8)

    return run


def _reader(source: base.Source, short: int) -> Callable:
    """Return a function read(index) -> images (m h w 3) of the source, resized.

    short: short side in pixels, a multiple of 16; the long side is rounded to a multiple of
    short / 16, or of 4 if that is larger, so that few sizes occur. All images of a call must
    then have one size. short=0: the source's own size.
    """
    if not short:
        return lambda index: np.stack([source[int(i)]["image"] for i in index])

    def resize(image: Image.Image) -> Image.Image:
        unit = max(short // 16, 4)  # Each size needs a program to compile.
        long = round(short * max(image.size) / min(image.size) / unit) * unit
        is_wide = image.width > image.height
        width, height = (long, short) if is_wide else (short, long)
        return decoding.resize(image, width, height)

    return lambda index: np.stack([source.image(int(i), resize) for i in index])
