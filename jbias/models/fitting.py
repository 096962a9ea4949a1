"""How the arrays of a file would fill a network, whatever their names.

What the file does not say (the number of classes, the kind of stem, the size of patches)
is read off shapes, by the function `fitted` in the file of the network.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from jbias.models import catalogue, mapping, states

_CLASSES = 9973  # A number of classes that no other axis has.
Linear = tuple[np.ndarray, np.ndarray]  # Weight (classes, features) and bias.


class Fit(NamedTuple):
    """How a state dict would fill one network."""

    model: str
    options: dict[str, Any]  # `classes` among them.
    arrays: dict[str, np.ndarray]  # By published name, without prefixes.
    expected: dict[str, mapping.Entry]
    difference: mapping.Difference
    publisher: str = ""  # Whose names the file has, where these tell the constants.


def own(model: str, arrays: mapping.Arrays, options: dict[str, Any]) -> Fit:
    """How arrays under our own names, such as params/fc/kernel, fill a network."""
    # The first linear layer of some networks is made for images of one size.
    side = catalogue.file_of(model).get("side", lambda at: catalogue.SIDE)
    given = {path: array.shape for path, array in arrays.items()}
    drawn = catalogue.shapes(
        model, catalogue.frozen(options), side(lambda p: given.get(f"params/{p}"))
    )
    expected = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(drawn):
        keys = tuple(entry.key for entry in path)
        axes = tuple(range(len(leaf.shape)))
        expected["/".join(keys)] = mapping.Entry(keys[0], keys[1:], leaf.shape, axes)
    difference = mapping.compare(expected, arrays)
    return Fit(model, options, dict(arrays), expected, difference)


def best(
    model: str,
    arrays: mapping.Arrays,
    linear: Linear | None,
    options: Mapping[str, Any],
    *,
    named: bool,
) -> Fit | None:
    """The best reading of the arrays as this network, over prefixes and dialects.

    Where nobody named it, networks are not drawn that cannot be meant.
    """
    if not set(options) <= set(catalogue.fields(model)):
        return None
    found = []
    of = catalogue.dialects(model)
    publishers = catalogue.file_of(model).get("PUBLISHERS", (None,) * len(of))
    for names, publisher in zip(of, publishers, strict=True):
        told = {"mean": publisher.mean, "std": publisher.std} if publisher else {}
        for short in states.stripped(arrays):
            if not named and not mapping.plausible(short, names):
                continue
            try:
                fit = _reading(model, names, short, linear, {**told, **options})
                found.append(
                    fit._replace(publisher=publisher.name if publisher else "")
                )
            except ValueError:  # What the shapes tell makes no such network.
                if named:
                    raise
    return max(found, key=quality, default=None)


def quality(fit: Fit) -> tuple[int, int]:
    missing, spare, misshapen, fitting = fit.difference
    return fitting + len(misshapen), fitting - len(spare) - len(missing)


def _reading(
    model: str,
    names: mapping.Names,
    arrays: dict[str, np.ndarray],
    linear: Linear | None,
    options: dict[str, Any],
) -> Fit:
    """How the arrays fill the network under one system of names."""

    def at(path: str) -> tuple[int, ...] | None:
        given = mapping.published(path.split("/"), names)
        return arrays[given[0]].shape if given and given[0] in arrays else None

    # vit_base16 is that, whatever the patches of a file.
    preset = catalogue.preset(model)
    read = catalogue.file_of(model).get("fitted", _nothing)(at).items()
    options = {**{k: v for k, v in read if k not in preset}, **options}
    if "classes" in options:
        expected = mapping.entries(
            catalogue.shapes(model, catalogue.frozen(options)), names
        )
    else:
        drawn = catalogue.shapes(
            model, catalogue.frozen({**options, "classes": _CLASSES})
        )
        expected = mapping.entries(drawn, names)
    open_ended = {n: e for n, e in expected.items() if _CLASSES in e.shape}
    if linear is not None:
        arrays = _with_head(arrays, linear, open_ended)
    for name, entry in open_ended.items():
        axis = entry.shape.index(_CLASSES)
        given = arrays[name].shape if name in arrays else ()
        options.setdefault("classes", given[axis] if axis < len(given) else 1000)
        shape = (*entry.shape[:axis], options["classes"], *entry.shape[axis + 1 :])
        expected[name] = entry._replace(shape=shape)
    return Fit(model, options, arrays, expected, mapping.compare(expected, arrays))


def _nothing(at: Any) -> dict[str, Any]:
    del at
    return {}


def _with_head(
    arrays: dict[str, np.ndarray], linear: Linear, heads: Mapping[str, mapping.Entry]
) -> dict[str, np.ndarray]:
    """The arrays with another linear layer in the place of what ends the network."""
    weight, bias = linear
    stems = {f"{name.rpartition('.')[0]}." for name in heads}
    kept = {k: v for k, v in arrays.items() if not k.startswith(tuple(stems))}
    for name, entry in heads.items():
        kept[name] = bias if len(entry.shape) == 1 else weight
        if len(entry.shape) == 4:  # A convolution of one pixel.
            kept[name] = weight[:, :, None, None]
    return kept
