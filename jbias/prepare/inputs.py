"""Figures of what each batch transform makes of images: one file a method.

jbias prepare inputs --out=docs/inputs
jbias prepare inputs --data=folder --root=DIR --split=val --out=figures
"""

import argparse
import os
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, UInt8

from jbias import augment, build, data, models
from jbias import config as jc
from jbias.prepare import dataset

_WHERE = "prepare inputs"
# They change no pixel, or serve others: a half, a second set.
WITHOUT_FIGURE = ("smooth_labels", "binary_targets", "views")
WITHOUT_FIGURE += ("half", "replace", "standardise_as")

# Beside the defaults: what a method needs, or what shows it.
OPTIONS: Mapping[str, Mapping] = {
    "random_erasing": {"p": 1.0},
    "grayscale": {"p": 1.0},
    "blur": {"p": 1.0},
    "augmix": {"severity": 3},
    "pixmix": {"severity": 3},
}
_BATCH, _DRAWS = 32, 3


def add(parser) -> None:
    """Adds the arguments of the subcommand."""
    add = parser.add_argument
    add("--data", default="shapes", help=f"one of {', '.join(data.DATASETS)}")
    add("--split", default="train", help="of that data set")
    add("--root", help="the folder of a data set of files")
    add("--out", required=True, help="the folder of the figures")
    add("--methods", default="", help="a+b+c; all if empty")
    add("--size", type=int, default=64, help="pixels")
    add("--columns", type=int, default=8, help="images in a figure")
    usual = f"of stylize, {', '.join(models.TRANSFERS)}; render on shapes, else small"
    add("--transfer", default="", help=usual)
    add("--weights", default="", help="the file of that transfer")
    add("--seed", type=int, default=0, help="of all draws")


def run(args: argparse.Namespace) -> str:
    """Writes out/<method>.png for each method; returns what it did.

    ValueError for an unknown data set, split or method, and for too few images.
    """
    visible = [name for name in augment.AUGMENTS if name not in WITHOUT_FIGURE]
    chosen, columns = args.methods.split("+") if args.methods else visible, args.columns
    jc.check_all_known(f"{_WHERE}: --methods", chosen, visible)
    if not 1 <= columns <= _BATCH:
        raise ValueError(f"{_WHERE}: --columns must be 1 to {_BATCH}, got {columns}")
    style = {"name": args.transfer or ("render" if args.data == "shapes" else "small")}
    style |= {"weights": args.weights} if args.weights else {}
    shown = {**OPTIONS, "stylize": {"transfer": style}}
    options = {"size": args.size, **({"root": args.root} if args.root else {})}
    batch, cite = _batch(args.data, args.split, options)
    for name in dataset.track("drawing", chosen):
        options = {"name": name, **shown.get(name, {})}
        rows = _rows(options, batch, columns, jax.random.key(args.seed))
        dataset.write_sheet(os.path.join(args.out, f"{name}.png"), rows, foot=cite)
    return f"{args.out}: {len(chosen)} figures of {args.data}"


def _batch(name: str, split: str, options: dict) -> tuple[dict, str]:
    """The first images of each class in turn, with all that a transform may ask for."""
    if name == "shapes":
        options["renders"] = True
    source = data.load(name, split, **options)
    labels = source.columns["label"]
    turn = pd.Series(labels).groupby(labels).cumcount()  # Which of its class each is.
    index = np.lexsort((labels, turn))[:_BATCH]
    if len(index) < _BATCH:
        must = f"{_WHERE}: {source.name} must have at least {_BATCH} images"
        raise ValueError(f"{must}, got {len(index)}")
    images = np.stack([source[int(i)]["image"] for i in index])
    other = data.load("fractals", "train", size=options["size"], n=_BATCH)
    known = {**source.columns, **source.arrays}
    batch = {key: jnp.asarray(column[index]) for key, column in known.items()}
    label = batch.pop("label")
    return {
        **batch,
        "image": _floats(images),
        "target": jax.nn.one_hot(label, len(source.classes)),
        "index": jnp.asarray(index),
        "other": {"image": _floats(np.asarray(other.images))},
    }, source.cite


def _rows(options, batch, columns, key) -> dict[str, list[np.ndarray]]:
    (transform,) = build.transforms(_WHERE, [options])

    @jax.jit
    def apply(batch, key):
        return transform.apply({**batch, "once": key}, key)["image"]

    rows = {"image": _bytes(batch["image"])[:columns]}
    for i in range(_DRAWS):
        found = _bytes(apply(batch, jax.random.fold_in(key, i)))
        views = len(found) // _BATCH
        if views > 1:  # Consecutive rows show one image.
            shown = (list(found[v::views][:columns]) for v in range(views))
            return rows | {f"view {v}": one for v, one in enumerate(shown, 1)}
        rows[f"draw {i + 1}"] = list(found[:columns])
    return rows


def _floats(images: UInt8[np.ndarray, "b h w 3"]) -> Float[Array, "b h w 3"]:
    return jnp.asarray(images, jnp.float32) / 255


def _bytes(images: Float[Array, "b h w 3"]) -> UInt8[np.ndarray, "b h w 3"]:
    return np.rint(np.clip(np.asarray(images), 0, 1) * 255).astype(np.uint8)
