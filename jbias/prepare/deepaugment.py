r"""Sends a set through damaged networks: DeepAugment's second training set.

jbias prepare deepaugment --net=cae --data=shapes --out=prepared/cae
jbias prepare deepaugment --net=edsr --data=shapes --out=prepared/edsr
jbias prepare deepaugment --net=cae --weights=cae.npz --short=512 \
    --format=jpeg --data=folder --space=wnid --root=/data/imagenet --out=/data/cae

The first two train a small network on the set first, OUT/<net>.npz (see `prepare
autoencoder`); the third takes the published one (see `prepare weights`) and feeds it as
its authors did, but for the long side, which is rounded to a sixteenth of the short one
(512 pixels for cae, 128 for edsr), so that few programs are compiled. Writes
OUT/<split>/<class>/<number>.png, where the number is the image's place in the set, and
OUT/<split>.json, what they were made by. Image i is a function of the set, the options
and i: started again, or in parts, the command makes what is missing.
"""

import argparse
import functools
import pathlib
from collections.abc import Callable
from concurrent import futures

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

from jbias import config as jc
from jbias import numerals
from jbias.augment import deepaugment as law
from jbias.data import base, decoding, sources
from jbias.data.forms import listing
from jbias.models import weight_files
from jbias.prepare import autoencoder, dataset
from jbias.training import prng

_WHERE = "prepare deepaugment"
_TOGETHER = 8  # Images in one call of the network; of a run of 20 on average.
_FORMATS = {"png": {}, "jpeg": {"quality": 75}}
_FLAGS = ("true_swaps", "true_skips")  # Of edsr.


def add(parser) -> None:
    """Adds the arguments of the subcommand."""
    add = parser.add_argument
    add("--net", required=True, help=f"one of {', '.join(autoencoder.NETS)}")
    dataset.add_options(parser, out="the folder to write into")
    add("--weights", default="", help="of the network, .npz; empty: trains a small one")
    short = "short side that files are resized to, uncropped; 0: --size decides"
    add("--short", type=int, default=0, help=short)
    enlarge = "times that images of --size are larger in the network; cae 2, edsr 1"
    add("--enlarge", type=int, default=None, help=enlarge)
    add("--format", default="png", help="png, or jpeg of quality 75 as the authors")
    add("--renewal", type=float, default=law.RENEWAL, help="chance of new weights")
    add("--seed", type=int, default=0, help="of training and damage")
    add("--part", default="1/1", help="makes the k-th of n parts: k/n")
    for flag in _FLAGS:
        name = f"--{flag.replace('_', '-')}"
        add(name, action="store_true", help="edsr: as meant, not as released")


# What an image depends on beside its set and number.
_SETTINGS = ("net", "short", "enlarge", "format", "renewal", "seed", "flags")


def run(args: argparse.Namespace) -> str:
    """Makes the images of one split; returns what it did.

    Raises ValueError, one line, for an unknown option or set, damaged images, or a
    folder that holds images of other settings.
    """
    split = args.split.partition("[")[0]
    source = dataset.open_source(args)
    jc.check_known(f"{_WHERE}: --net", args.net, autoencoder.NETS)
    net = autoencoder.NETS[args.net]
    args.flags = {flag: True for flag in _FLAGS if getattr(args, flag)}
    _check(source, args)
    if args.enlarge is None and not args.short:
        args.enlarge = net.enlarge
    part, folder = _part(args.part), pathlib.Path(args.out).expanduser()
    own = {"made_by": "jbias.prepare deepaugment", **dataset.select(args, *_SETTINGS)}
    own |= dataset.made_of(source)
    if args.short:
        own["preprocessing"] = f"Pillow bilinear: short side {args.short}"
    dataset.refuse_others(_WHERE, folder, split, own)
    paths = dataset.image_paths(folder / split, source, args.format, out=folder)
    weights = args.weights or _small(net, source, folder, args)
    stored = weight_files.load(net.model.PUBLISHED, weights)
    if not args.short:
        sizes = net.model.sizes_of(stored)
        autoencoder.check_size(net, source.size, sizes, args.enlarge)
    own["weights"] = listing.digest_named(stored)
    dataset.claim(_WHERE, folder, split, own)
    made = _make(net, stored, source, paths, args, part)
    return dataset.summary(folder, split, made, source)


def _check(source: base.Source, args: argparse.Namespace) -> None:
    """Refuses options that do not fit."""
    base.check_choice(f"{_WHERE}: --format", args.format, _FORMATS)
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
    match text.split("/"):
        case [k, n] if (
            numerals.is_count(k) and numerals.is_count(n) and 1 <= int(k) <= int(n)
        ):
            return int(k) - 1, int(n)
    raise ValueError(f"{_WHERE}: --part must be like 1/4, got {text!r}")


def _small(net, source, folder, args) -> pathlib.Path:
    """Trains the small network, or takes that of an earlier call; where it lies."""
    path = folder / f"{args.net}.npz"
    if not path.exists():
        if args.short:
            must = f"{_WHERE}: --short must come with --weights, got none"
            raise ValueError(f"{must}; small networks are trained at --size")
        how = dict(seed=args.seed, enlarge=args.enlarge)
        weights, _ = autoencoder.train_on_source(net, source, net.small, **how)
        weight_files.write_npz(path, weights)
    return path


def _make(net, weights, source, paths, args, part) -> int:
    """Makes the missing images of a part; returns how many."""
    root = prng.key(args.seed)
    drawn, n = prng.stream(root, "order"), len(source)
    order = law.draw_order(drawn, n, renewal=args.renewal)
    damages, changes = (prng.stream(root, name) for name in ("weights", "features"))
    run, read = _program(net, args), _reader(source, args.short)
    kind, options = args.format.upper(), _FORMATS[args.format]
    write = functools.partial(dataset.write_image, kind=kind, **options)
    together = 1 if args.short else _TOGETHER
    blocks = [  # Of the runs of one damaged network: its name, images.
        (int(those[0]), those[start : start + together])
        for those in order.runs
        for start in range(0, len(those), together)
    ][part[0] :: part[1]]
    todo = [block for block in blocks if not all(paths[i].exists() for i in block[1])]
    made, owner, damaged = 0, None, None
    title, size = f"{args.net} {source.name}", lambda block: len(block[1])
    total = sum(map(size, todo))
    with (
        futures.ThreadPoolExecutor(dataset.WORKERS) as writers,
        dataset.map_ahead(title, lambda b: read(b[1]), todo, total, size=size) as ready,
    ):
        for (first, index), images in ready:
            if first != owner:
                key = jax.random.fold_in(damages, first)
                owner, damaged = first, net.damage(weights, key)
                damaged = jax.tree.map(jnp.asarray, damaged)
            filled = np.resize(index, together)  # Again from the first where too few.
            images = images[np.arange(together) % len(index)]
            keys = jax.vmap(jax.random.fold_in, (None, 0))(changes, filled)
            found = np.asarray(run(damaged, images, keys))
            new = [(paths[i], x) for i, x in zip(index, found) if not paths[i].exists()]
            list(writers.map(lambda one: write(*one), new))
            made += len(new)
    return made


def _program(net: autoencoder.Net, args: argparse.Namespace) -> Callable:
    enlarged = functools.partial(autoencoder.same_size, net, enlarge=args.enlarge)
    apply = net.apply if args.short else enlarged

    @jax.jit
    def run(weights, images, keys):
        images = images.astype(jnp.float32) / 255
        found = apply(weights, images, keys, damaged=True, **args.flags)
        # Cut off, not rounded, as the authors' images are.
        return jnp.floor(jnp.clip(found, 0, 1) * 255).astype(jnp.uint8)

    return run


def _reader(source: base.Source, least: int) -> Callable:
    """Makes the function from indices to images (m h w 3); least: their short side."""
    if not least:
        return lambda index: np.stack([source[int(i)]["image"] for i in index])

    def short(image: Image.Image) -> Image.Image:
        unit = max(least // 16, 4)  # Few sizes: each is a program to compile.
        long = round(least * max(image.size) / min(image.size) / unit) * unit
        wide = image.width > image.height
        size = (long, least) if wide else (least, long)
        return decoding.resize(image, *size)

    return lambda index: np.stack([source.image(int(i), short) for i in index])
