"""Draw figures of what each batch transform, such as mixup, does to images.

jbias prepare inputs --out=docs/inputs
jbias prepare inputs --data=folder --root=DIR --split=val --out=figures

Writes one figure per transform to --out, named after the transform.
"""

import argparse
import os
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, PRNGKeyArray, UInt8

from jbias import augment, build, data, errors, models
from jbias.prepare import dataset

_WHERE = "prepare inputs"
# Transforms that change no pixel, or need a second data set or half of a batch.
WITHOUT_FIGURE = (
    "smooth_labels",
    "binary_targets",
    "views",
    "half",
    "replace",
    "standardise_as",
)

# Options of transforms for which the defaults show no effect, or are not enough.
OPTIONS: Mapping[str, Mapping] = {
    "random_erasing": {"p": 1.0},
    "grayscale": {"p": 1.0},
    "blur": {"p": 1.0},
    "augmix": {"severity": 3},
    "pixmix": {"severity": 3},
}
_BATCH, _DRAWS = 32, 3


def add(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `jbias prepare inputs` to its parser."""
    add = parser.add_argument
    add("--data", default="shapes", metavar="NAME", help=dataset.data_help("shapes"))
    split_help = "split of the data set (default: train)"
    add("--split", default="train", metavar="SPLIT", help=split_help)
    add("--root", metavar="DIR", help=dataset.ROOT_HELP)
    add("--out", required=True, metavar="DIR", help="folder to write the figures into")
    methods_help = "batch transforms to draw, joined by +, such as mixup+blur "
    methods_help += "(default: all)"
    add("--methods", default="", metavar="A+B", help=methods_help)
    size_help = "side of the images in pixels (default: 64)"
    add("--size", type=int, default=64, metavar="PIXELS", help=size_help)
    columns_help = f"number of images in each figure, 1 to {_BATCH} (default: 8)"
    add("--columns", type=int, default=8, metavar="N", help=columns_help)
    transfer_help = "style transfer that the transform stylize uses: one of "
    transfer_help += (
        f"{', '.join(models.TRANSFERS)} (default: render for --data=shapes, "
    )
    transfer_help += "else small)"
    add("--transfer", default="", metavar="NAME", help=transfer_help)
    weights_help = (
        "weights file of the style transfer: for vgg, where it is required, a file "
    )
    weights_help += (
        "of `jbias prepare weights`; for small, a file of `jbias prepare style` "
    )
    weights_help += "(default for small: the weights in the package)"
    add("--weights", default="", metavar="FILE", help=weights_help)
    seed_help = "random seed of the transforms (default: 0)"
    add("--seed", type=int, default=0, metavar="N", help=seed_help)


def run(args: argparse.Namespace) -> str:
    """Write OUT/<transform>.png for each transform; return a line with the number of files.

    args: the flags of `add`. ValueError for an unknown data set, split or transform, and for
    too few images.
    """
    visible = [name for name in augment.AUGMENTS if name not in WITHOUT_FIGURE]
    names, columns = args.methods.split("+") if args.methods else visible, args.columns
    errors.check_all_known(f"{_WHERE}: --methods", names, visible)
    if not 1 <= columns <= _BATCH:
        raise ValueError(f"{_WHERE}: --columns must be 1 to {_BATCH}, got {columns}")
    default_transfer = "render" if args.data == "shapes" else "small"
    transfer = {"name": args.transfer or default_transfer}
    if args.weights:
        transfer["weights"] = args.weights
    options_of = {**OPTIONS, "stylize": {"transfer": transfer}}
    set_options = {"size": args.size}
    if args.root:
        set_options["root"] = args.root
    batch, cite = _batch(args.data, args.split, set_options)
    for name in dataset.track("drawing", names):
        options = {"name": name, **options_of.get(name, {})}
        rows = _rows(options, batch, columns=columns, key=jax.random.key(args.seed))
        dataset.write_sheet(os.path.join(args.out, f"{name}.png"), rows, foot=cite)
    return f"{args.out}: {len(names)} figures of {args.data}"


def _batch(
    name: str, split: str, options: dict[str, Any]
) -> tuple[dict[str, Any], str]:
    """Return a batch with all entries that transforms use, and the data set's citation.

    The batch has _BATCH images: the first of each class, then the second of each class, and so
    on.
    Its entries are "image" in [0, 1], "target" (one-hot), "index", "other" (pictures of
    fractals), and the source's arrays and columns except "label".
    name, options: name and options of the data set; "renders" is added to `options` for
    "shapes". ValueError for too few images.
    """
    if name == "shapes":
        options["renders"] = True
    source = data.load(name, split, **options)
    labels = source.columns["label"]
    turn = pd.Series(labels).groupby(labels).cumcount()  # Rank within the class.
    index = np.lexsort((labels, turn))[:_BATCH]
    if len(index) < _BATCH:
        must = f"{_WHERE}: {source.name} must have at least {_BATCH} images"
        raise ValueError(f"{must}, got {len(index)}")
    images = np.stack([source[int(i)]["image"] for i in index])
    other = data.load("fractals", "train", size=options["size"], n=_BATCH)
    entries = {**source.columns, **source.arrays}
    batch = {key: jnp.asarray(column[index]) for key, column in entries.items()}
    label = batch.pop("label")
    return {
        **batch,
        "image": _floats(images),
        "target": jax.nn.one_hot(label, len(source.classes)),
        "index": jnp.asarray(index),
        "other": {"image": _floats(np.asarray(other.images))},
    }, source.cite


def _rows(
    options: Mapping[str, Any],
    batch: Mapping[str, Any],
    *,
    columns: int,
    key: PRNGKeyArray,
) -> dict[str, list[UInt8[np.ndarray, "h w 3"]]]:
    """Return {title: images}: a row of originals, then a row per draw of a transform.

    The titles are "image", "draw 1", "draw 2", ... For a transform that makes several views,
    there are, after the originals, a row per view of a single draw: "view 1", ...
    options: the transform's entry in a config, with "name". batch: the result of `_batch`.
    columns: number of images in a row.
    """
    (transform,) = build.transforms(_WHERE, [options])

    @jax.jit
    def apply(batch, key):
        return transform.apply({**batch, "once": key}, key)["image"]

    rows = {"image": _bytes(batch["image"])[:columns]}
    for i in range(_DRAWS):
        images = _bytes(apply(batch, jax.random.fold_in(key, i)))
        num_views = len(images) // _BATCH
        if num_views > 1:  # Views of an image are consecutive.
            for view in range(num_views):
                rows[f"view {view + 1}"] = list(images[view::num_views][:columns])
            return rows
        rows[f"draw {i + 1}"] = list(images[:columns])
    return rows


def _floats(images: UInt8[np.ndarray, "b h w 3"]) -> Float[Array, "b h w 3"]:
    """Return images of bytes, scaled to [0, 1]."""
    return jnp.asarray(images, jnp.float32) / 255


def _bytes(images: Float[Array, "b h w 3"]) -> UInt8[np.ndarray, "b h w 3"]:
    """Return images in [0, 1] as bytes, clipped and rounded."""
    return np.rint(np.clip(np.asarray(images), 0, 1) * 255).astype(np.uint8)
