"""Reads published files and our own exports as (module, variables).

state_dicts.py finds the state dict in a file. NAMES in each network's file says which entry
is which of our arrays (see weight_names.py). Here candidate networks are tried on the
arrays: what a file does not say (the number of classes, the kind of stem, the patch size)
is inferred from shapes, by the function `fitted` in the network's file, and what does not
fit is reported.
"""

import contextlib
import itertools
import json
import os
import pathlib
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import errors
from flax import linen as nn

from jbias import config as jc
from jbias.models import registry, state_dicts, weight_names

Linear = tuple[np.ndarray, np.ndarray]  # Weight (classes, features) and bias.


class Fit(NamedTuple):
    """How a state dict would fill one network."""

    model: str
    options: dict[str, Any]  # `classes` among them.
    arrays: dict[str, np.ndarray]  # By published name, without prefixes.
    expected: dict[str, weight_names.Entry]
    difference: weight_names.Difference
    publisher: str = ""  # Whose names the file has, where these tell the constants.


def _fit_own_names(model, arrays, options) -> Fit:
    """How arrays under our own names, such as params/fc/kernel, fill a network."""
    # The first linear layer of some networks is made for images of one size.
    side = registry.definitions(model).get("side", lambda at: registry.SIDE)
    given = {path: array.shape for path, array in arrays.items()}
    drawn = registry.shapes(model, options, side(lambda p: given.get(f"params/{p}")))
    expected = weight_names.entries(drawn, None)
    difference = weight_names.compare(expected, arrays)
    return Fit(model, options, dict(arrays), expected, difference)


def best_fit(model, arrays, linear, options, *, named: bool) -> Fit | None:
    """The best reading of the arrays as this network, over prefixes and dialects.

    Where nobody named it, networks are not drawn that cannot be meant.
    """
    if not set(options) <= set(registry.option_names(model)):
        return None
    found = []
    of = registry.dialects(model)
    publishers = registry.definitions(model).get("PUBLISHERS", (None,) * len(of))
    for names, publisher in zip(of, publishers, strict=True):
        told = {"mean": publisher.mean, "std": publisher.std} if publisher else {}
        who = publisher.name if publisher else ""
        for short in state_dicts.strip_prefixes(arrays):
            if named or weight_names.plausible(short, names):
                # Where what the shapes tell makes no such network, it may be another.
                with contextlib.suppress(*(() if named else (ValueError,))):
                    fit = _reading(model, names, short, linear, {**told, **options})
                    found.append(fit._replace(publisher=who))
    return max(found, key=_quality, default=None)


def _quality(fit: Fit) -> tuple[int, int]:
    missing, spare, misshapen, fitting = fit.difference
    return fitting + len(misshapen), fitting - len(spare) - len(missing)


def _reading(model, names, arrays, linear, options) -> Fit:
    """How the arrays fill the network under one system of names."""

    def at(path: str) -> tuple[int, ...] | None:
        given = weight_names.published_names(path.split("/"), names)
        return arrays[given[0]].shape if given and given[0] in arrays else None

    # vit_base16 is that, whatever the patches of a file.
    preset = registry.preset(model)
    read = registry.definitions(model).get("fitted", lambda at: {})(at).items()
    options = {**{k: v for k, v in read if k not in preset}, **options}
    sizes = {"classes": registry.OPEN_CLASSES, **options}
    expected = weight_names.entries(registry.shapes(model, sizes), names)
    open_ended = {n: e for n, e in expected.items() if registry.OPEN_CLASSES in e.shape}
    renamed = _renamed_head(arrays, expected, open_ended)
    if linear is not None:
        # The head that the body's file has is not the one that is asked for.
        arrays = _with_head(renamed or arrays, linear, open_ended)
    else:
        arrays = renamed or arrays
    for name, entry in open_ended.items():
        axis = entry.shape.index(registry.OPEN_CLASSES)
        given = arrays[name].shape if name in arrays else ()
        options.setdefault("classes", given[axis] if axis < len(given) else 1000)
        shape = (*entry.shape[:axis], options["classes"], *entry.shape[axis + 1 :])
        expected[name] = entry._replace(shape=shape)
    return Fit(model, options, arrays, expected, weight_names.compare(expected, arrays))


def _spare_layers(arrays, expected) -> list[str]:
    """Return the stems of linear layers in a file that a network has no place for."""
    spare = {name: array for name, array in arrays.items() if name not in expected}
    return state_dicts.linear_layers(spare)


def _renamed_head(arrays, expected, heads) -> dict[str, np.ndarray] | None:
    """Return the arrays with the file's last layer under the network's name, or None.

    It is renamed only where nothing else can be meant: the network's own head is missing,
    the file has one linear layer too many, whose name is a head's, with a bias and the
    number of features that the head needs. A square layer is none: it may as well be the
    first of a projection's.
    """
    stems = {f"{name.rpartition('.')[0]}." for name in heads}
    layers = _spare_layers(arrays, expected)
    if len(stems) != 1 or any(name in arrays for name in heads) or len(layers) != 1:
        return None
    (stem,), (layer,) = stems, layers
    weight, bias = arrays[f"{layer}weight"], arrays.get(f"{layer}bias")
    if not state_dicts.is_head(layer) or bias is None or bias.shape != weight.shape[:1]:
        return None
    needed = heads[f"{stem}weight"].shape
    if weight.shape[1] != needed[1] or weight.shape[0] == weight.shape[1]:
        return None
    own = (f"{layer}weight", f"{layer}bias")
    kept = {name: array for name, array in arrays.items() if name not in own}
    shaped = weight.reshape(weight.shape[:2] + (1, 1) * (len(needed) == 4))
    return {**kept, f"{stem}weight": shaped, f"{stem}bias": bias}


def _with_head(arrays, linear: Linear, heads) -> dict[str, np.ndarray]:
    """The arrays with another linear layer in the place of what ends the network."""
    weight, bias = linear
    stems = {f"{name.rpartition('.')[0]}." for name in heads}
    kept = {k: v for k, v in arrays.items() if not k.startswith(tuple(stems))}
    for name, entry in heads.items():
        kept[name] = bias if len(entry.shape) == 1 else weight
        if len(entry.shape) == 4:  # A convolution of one pixel.
            kept[name] = weight[:, :, None, None]
    return kept


_NUMBERS = 2**31
_LARGEST = 100_000  # No number of classes, channels or blocks is larger.
_NAMED = 5  # Candidates that a refusal names.
# What options raise that make no network.
_UNMADE = (ValueError, TypeError, ArithmeticError, errors.FlaxError)


class Read(NamedTuple):
    """A network, and where its constants are from."""

    net: nn.Module
    variables: dict[str, Any]
    origins: dict[str, str]  # Of "mean" and "std", in words, if the caller gave none.


def read(
    path: str | os.PathLike,
    model: str | None,
    *,
    entry: str | None = None,
    head: str | os.PathLike | None = None,
    **options: Any,
) -> Read:
    """Reads a file, as `models.load` says, and where its mean and std are from."""
    where = os.fspath(path)
    if not pathlib.Path(path).is_file():
        raise FileNotFoundError(f"{where}: no such checkpoint")
    state = state_dicts.read(path, entry)
    said = _said(where, state.metadata)
    if said and said.names == "own" and model not in (None, said.model):
        raise ValueError(f"{where}: holds the model {said.model!r}, not {model!r}")
    model = said.model if said and model is None else model
    check_options(model, options)
    linear = state_dicts.read_head(head) if head is not None else None
    file = _File(where, state.arrays, linear, state.constants, said, options)
    fit = _chosen(file, model, _tried(file, model))
    if sum(array.size for array in fit.arrays.values()) > _NUMBERS:
        raise ValueError(f"{where}: has more than {_NUMBERS} numbers")
    variables = weight_names.to_variables(fit.expected, fit.arrays)
    net = registry.MODELS[fit.model](**fit.options)
    untold = {"mean", "std"} - options.keys()
    origins = {key: file.origin(fit, key) for key in sorted(untold)}
    return Read(net, jax.tree.map(jnp.asarray, variables), origins)


class _Said(NamedTuple):
    """What an export of ours says about its network; see trained.py."""

    model: str
    names: str
    options: dict[str, Any]


class _File(NamedTuple):
    """What is known of a file before it is taken for any network."""

    where: str
    arrays: dict[str, np.ndarray]
    linear: Linear | None
    constants: dict[str, Any]  # Of a normaliser in it.
    said: _Said | None
    options: dict[str, Any]  # The caller's.

    def all_options(self, model: str | None) -> dict[str, Any]:
        """All that is said of a network's options."""
        said = self.said.options if self.said and self.said.model == model else {}
        return {**self.constants, **said, **self.options}

    def origin(self, fit: Fit, key: str) -> str:
        """Where "mean" or "std" is from, which the caller did not give."""
        if self.said and self.said.model == fit.model and key in self.said.options:
            return "the file's metadata"
        if key in self.constants:
            return "the file's own first layer"
        if fit.publisher:
            return f"{fit.publisher}'s, whose names the file has"
        return f"the default of {fit.model}"


def _tried(file: _File, model: str | None) -> list[Fit]:
    """How the file would fill the model, or without one all that may be meant."""
    options = file.all_options(model)
    try:
        if file.said and file.said.names == "own":
            return [_fit_own_names(file.said.model, file.arrays, options)]
        names, given = [model] if model else registry.MODELS, (file.arrays, file.linear)
        fits = [best_fit(n, *given, options, named=bool(model)) for n in names]
        fits = [fit for fit in fits if fit is not None]
        return fits or ([] if model else _by_tokens(file))
    except _UNMADE as error:
        raise ValueError(
            f"{file.where}: its options, {str(options)[:200]}, must make a "
            f"{model or 'network'}: {' '.join(str(error).split())[:200]}"
        ) from error


def _by_tokens(file: _File) -> list[Fit]:
    """How a file that nothing fits would fill the network of the most alike names."""
    words = weight_names.tokens(file.arrays)

    def alike(model: str) -> float:
        known = map(weight_names.templates, registry.dialects(model))
        known = weight_names.tokens(itertools.chain.from_iterable(known))
        return len(words & known) / max(1, len(words | known))

    model = max(registry.MODELS, key=alike)
    with contextlib.suppress(*_UNMADE):
        fit = best_fit(model, file.arrays, None, file.all_options(model), named=True)
        return [fit] if fit else []
    return []


def _others(file: _File, model: str) -> list[str]:
    """The other networks that the file fills, by those of the options that they have."""
    found = []
    for name in registry.MODELS:
        known = registry.option_names(name)
        options = {k: v for k, v in file.all_options(name).items() if k in known}
        with contextlib.suppress(*_UNMADE):
            fit = best_fit(name, file.arrays, file.linear, options, named=False)
            if name != model and fit is not None and not fit.difference:
                found.append(name)
    return found


def _said(where: str, metadata: Mapping[str, str]) -> _Said | None:
    if "jbias" not in metadata:
        return None
    try:
        said = json.loads(metadata["jbias"])
        items = said["options"].items()
        options = {k: tuple(v) if isinstance(v, list) else v for k, v in items}
        made = _Said(said["model"], said["names"], options)
        check_options(made.model, options)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{where}: its metadata under 'jbias' must say model, names and options of "
            f"a network: {' '.join(str(error).split())[:200]}"
        ) from error
    return made


def check_options(model: str | None, options: Mapping[str, Any]) -> None:
    """Refuses unknown networks and unknown options of known ones."""
    if model is None:
        return
    if model not in registry.MODELS:
        raise ValueError(
            f"models.load: model must be one of {', '.join(registry.MODELS)}, got {model!r}"
        )
    for option in options:
        if option not in registry.option_names(model):
            raise ValueError(
                f"models.load: {model} has no option {option!r}; it has "
                f"{', '.join(registry.option_names(model))}"
            )
    where = f"models.load: {model}"
    jc.check_annotations(where, registry.MODELS[model], options)
    for option, value in options.items():
        numbers = value if isinstance(value, tuple) else (value,)
        if any(isinstance(n, int) and not 0 <= n <= _LARGEST for n in numbers):
            jc.refuse(f"{where}.{option}", f"be from 0 to {_LARGEST:,}", value)


def _chosen(file: _File, model: str | None, fits: list[Fit]) -> Fit:
    """The one that fits; ValueError that says what does not, and which others do."""
    where = file.where
    whole = [fit for fit in fits if not fit.difference]
    if len(whole) == 1:
        return whole[0]
    if whole:
        named = ", ".join(fit.model for fit in whole)
        raise ValueError(f"{where}: fits {named}; say which by model=...")
    right = ", ".join(_others(file, model)) if model else ""
    right = f"; it fits {right}: give that model, or none" if right else ""
    near = sorted(fits, key=_quality, reverse=True)
    near = [fit for fit in near if fit.difference.fitting][:_NAMED]
    if not near:
        of = model or "any network of models.MODELS"
        like = model or f"the nearest by names, {fits[0].model if fits else ''},"
        wants = f"; {like} has {_abbreviate(fits[0].expected)}" if fits else ""
        then = right or (
            f"; it has {_abbreviate(file.arrays)}{wants}; rename its entries to a "
            "network's of docs/models.md, or give another file"
        )
        raise ValueError(f"{where}: has no entry of {of}, under any known name{then}")
    best = near[0]
    lacks = "" if model else "fits no network of models.MODELS; nearest is "
    rest = ", ".join(f"{f.model} ({f.difference.fitting})" for f in near[1:])
    more = f"\n  then by entries that fit: {rest}" if rest else ""
    raise ValueError(
        f"{where}: {lacks or 'does not fit '}{best.model}, {best.difference.fitting} of "
        f"{len(best.expected)} entries do{right or _remedy(best)}\n  "
        f"{weight_names.format_difference(best.difference)}{more}"
    )


def _abbreviate(names: Collection[str]) -> str:
    """The first of them, and how many there are."""
    more = ", ..." if len(names) > _NAMED else ""
    return f"{', '.join([*names][:_NAMED])}{more} ({len(names)} in all)"


def _remedy(fit: Fit) -> str:
    """Return what to do about a file that lacks nothing but the network's last layer."""
    lacking = {line.split(" ")[0] for line in fit.difference.missing}
    classes, expected = fit.options["classes"], fit.expected.items()
    ends = {name for name, entry in expected if classes in entry.shape}
    if not lacking or not lacking <= ends or fit.difference.misshapen:
        return ""
    layers = _spare_layers(fit.arrays, fit.expected)
    stem = f"{min(ends).rpartition('.')[0]}."
    if not layers:
        return "; its linear layer lies elsewhere: give that file by head=..."
    named = ", ".join(layer.rstrip(".") for layer in layers[:_NAMED])
    if not [layer for layer in layers if state_dicts.is_head(layer)]:
        return (
            f"; no layer is named as a head; it has {named} beside {fit.model}'s: if one "
            f"is the head, rename its entries to {stem}weight and {stem}bias, else give "
            "the head's file by head=..."
        )
    if len(layers) > 1:
        return (
            f"; its head may be any of the layers {named}, while {fit.model} has one, "
            f"{stem[:-1]}: if one of them is the whole head, rename its entries to "
            f"{stem}weight and {stem}bias and leave the others out; else measure the "
            "network by --predict or jbias.torch.wrap, or give another head by head=..."
        )
    needed, layer = fit.expected[f"{stem}weight"].shape[1], layers[0]
    return (
        f"; its head may be the layer {layer[:-1]}, of shape "
        f"{'x'.join(map(str, fit.arrays[f'{layer}weight'].shape))} where {fit.model} needs "
        f"(classes)x{needed} and a bias: if it is, rename its entries to {stem}weight and "
        f"{stem}bias (zeros if there is none); else give its file by head=..."
    )
