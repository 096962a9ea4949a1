"""Import published weight files and exports of this package as (module, variables).

state_dicts.py finds the state dict in a file. NAMES in each network's file maps the entries of
the state dict to our arrays (see weight_names.py). This module tries candidate networks on the
arrays. Options that a file does not store (the number of classes, the kind of stem, the patch
size) are inferred from shapes, by the function `infer_options` in the network's file; entries
that do not fit are reported.
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
from flax import errors as flax_errors
from flax import linen as nn

from jbias import errors
from jbias.models import registry, state_dicts, weight_names

Linear = tuple[np.ndarray, np.ndarray]  # Weight (classes, features) and bias.
Entries = Mapping[str, weight_names.ArrayEntry]  # By published name.


class NetworkMatch(NamedTuple):
    """The entries of a state dict, matched to the arrays of one network.

    options: options of the network, `classes` included.
    arrays: the state dict, by published name, without prefixes.
    expected: the entries that the network needs.
    publisher: name of the publisher whose naming scheme fixes mean and std; "" if none.
    """

    model: str
    options: dict[str, Any]
    arrays: dict[str, np.ndarray]
    expected: dict[str, weight_names.ArrayEntry]
    difference: weight_names.Difference
    publisher: str = ""


def _match_own_names(
    model: str, arrays: Mapping[str, np.ndarray], options: Mapping[str, Any]
) -> NetworkMatch:
    """Return the match of a network and arrays named as in this package (params/fc/kernel).

    Entries that are missing, spare or of another shape are in the result's `difference`; they are
    no error. model: a key of MODELS. arrays: by name. options: options of the network.
    """
    # The linear layer of some networks depends on the size of images.
    infer_side = registry.definitions(model).get("infer_side")
    side = registry.SIDE
    if infer_side is not None:
        array_shapes = {path: array.shape for path, array in arrays.items()}
        side = infer_side(lambda path: array_shapes.get(f"params/{path}"))
    expected = weight_names.entries(registry.shapes(model, options, side), None)
    difference = weight_names.compare(expected, arrays)
    return NetworkMatch(
        model=model,
        options=dict(options),
        arrays=dict(arrays),
        expected=expected,
        difference=difference,
    )


def best_match(
    model: str,
    arrays: Mapping[str, np.ndarray],
    *,
    head: Linear | None,
    options: Mapping[str, Any],
    is_named: bool,
) -> NetworkMatch | None:
    """Return the best match of the arrays to a network, by `_quality`, or None without a match.

    All prefixes and naming schemes are tried.

    model: a key of MODELS. arrays: the state dict, by name in the file.
    head: weight and bias that replace the file's last layer; None: keep the file's layer.
    options: options of the network; None is returned if the network does not have them.
    is_named: whether the caller named the model. If not, naming schemes that the file
      cannot use are skipped, and inferred options that make no network raise no error.
    """
    if not set(options) <= set(registry.option_names(model)):
        return None
    matches = []
    dialects = registry.dialects(model)
    publishers = registry.definitions(model).get("PUBLISHERS", (None,) * len(dialects))
    ignored = () if is_named else (ValueError,)
    for names, publisher in zip(dialects, publishers, strict=True):
        all_options = dict(options)
        if publisher:
            all_options = {"mean": publisher.mean, "std": publisher.std, **options}
        for stripped in state_dicts.strip_prefixes(arrays):
            if is_named or weight_names.is_plausible(stripped, names):
                with contextlib.suppress(*ignored):
                    match = _match_names(
                        model, stripped, names=names, head=head, options=all_options
                    )
                    publisher_name = publisher.name if publisher else ""
                    matches.append(match._replace(publisher=publisher_name))
    return max(matches, key=_quality, default=None)


def _quality(match: NetworkMatch) -> tuple[int, int]:
    """Return the sort key of matches: the largest is the best match.

    The first element is the number of entries with the right names. The second element is the
    number of entries that also have the right shape, minus the number of unexpected and missing
    entries.
    """
    difference = match.difference
    num_fitting, num_spare = difference.num_fitting, len(difference.spare)
    return (
        num_fitting + len(difference.misshapen),
        num_fitting - num_spare - len(difference.missing),
    )


def _match_names(
    model: str,
    arrays: Mapping[str, np.ndarray],
    *,
    names: weight_names.Names,
    head: Linear | None,
    options: Mapping[str, Any],
) -> NetworkMatch:
    """Return the match of the arrays to a network under one naming scheme.

    Options that are not given are inferred from shapes; `classes` is 1000 if the file has no
    last layer.

    names: rules of the naming scheme. Other arguments: see `best_match`.
    """

    def shape_of(path: str) -> tuple[int, ...] | None:
        """Return the published shape of our array at a path, None if the file lacks it."""
        published = weight_names.published_names(path.split("/"), names)
        if published and published[0] in arrays:
            return arrays[published[0]].shape
        return None

    infer_options = registry.definitions(model).get("infer_options")
    inferred = infer_options(shape_of) if infer_options is not None else {}
    # A model's name fixes options: vit_base16 has patches of 16 pixels.
    preset = registry.preset(model)
    inferred = {key: value for key, value in inferred.items() if key not in preset}
    options = {**inferred, **options}
    sizes = {"classes": registry.OPEN_CLASSES, **options}
    expected = weight_names.entries(registry.shapes(model, sizes), names)
    # The entries of the network's head, whose shapes depend on the number of classes.
    head_entries = {
        name: entry
        for name, entry in expected.items()
        if registry.OPEN_CLASSES in entry.shape
    }
    arrays = _rename_head(arrays, expected, head_entries) or arrays
    if head is not None:
        arrays = _replace_head(arrays, head, head_entries)
    for name, entry in head_entries.items():
        axis = entry.shape.index(registry.OPEN_CLASSES)
        shape = arrays[name].shape if name in arrays else ()
        options.setdefault("classes", shape[axis] if axis < len(shape) else 1000)
        shape = (*entry.shape[:axis], options["classes"], *entry.shape[axis + 1 :])
        expected[name] = entry._replace(shape=shape)
    return NetworkMatch(
        model=model,
        options=options,
        arrays=arrays,
        expected=expected,
        difference=weight_names.compare(expected, arrays),
    )


def _spare_layers(arrays: Mapping[str, np.ndarray], expected: Entries) -> list[str]:
    """Return the prefixes, such as "fc.", of linear layers that the network does not expect.

    arrays: the state dict. expected: entries of the network, by published name.
    """
    spare = {name: array for name, array in arrays.items() if name not in expected}
    return state_dicts.linear_layers(spare)


def _rename_head(
    arrays: Mapping[str, np.ndarray], expected: Entries, head_entries: Entries
) -> dict[str, np.ndarray] | None:
    """Return the arrays with the file's last layer under the network's name, or None.

    The layer is renamed only if there is no other possibility: the network's own head is
    missing, and the file has one linear layer too many, with a head's name, a bias and the
    number of features that the head needs. A square layer may be the first layer of a
    projection and is not renamed. None: no layer is renamed.

    expected: entries of the network. head_entries: entries of its last layer, weight and bias.
    """
    stems = {f"{name.rpartition('.')[0]}." for name in head_entries}
    layers = _spare_layers(arrays, expected)
    has_head = any(name in arrays for name in head_entries)
    if len(stems) != 1 or has_head or len(layers) != 1:
        return None
    (stem,), (layer,) = stems, layers
    weight, bias = arrays[f"{layer}weight"], arrays.get(f"{layer}bias")
    if not state_dicts.is_head(layer) or bias is None or bias.shape != weight.shape[:1]:
        return None
    needed = head_entries[f"{stem}weight"].shape
    if weight.shape[1] != needed[1] or weight.shape[0] == weight.shape[1]:
        return None
    old_names = (f"{layer}weight", f"{layer}bias")
    renamed = {name: array for name, array in arrays.items() if name not in old_names}
    if len(needed) == 4:
        weight = weight.reshape(*weight.shape[:2], 1, 1)
    else:
        weight = weight.reshape(weight.shape[:2])
    return {**renamed, f"{stem}weight": weight, f"{stem}bias": bias}


def _replace_head(
    arrays: Mapping[str, np.ndarray], head: Linear, head_entries: Entries
) -> dict[str, np.ndarray]:
    """Return the arrays with another linear layer in place of the network's last layer.

    head: weight and bias of the new layer. head_entries: entries of the network's last layer,
    by published name.
    """
    weight, bias = head
    stems = tuple({f"{name.rpartition('.')[0]}." for name in head_entries})
    replaced = {
        name: array for name, array in arrays.items() if not name.startswith(stems)
    }
    for name, entry in head_entries.items():
        replaced[name] = bias if len(entry.shape) == 1 else weight
        if len(entry.shape) == 4:  # A 1x1 convolution.
            replaced[name] = weight[:, :, None, None]
    return replaced


_MAX_NUMBERS = 2**31
_MAX_OPTION = 100_000  # No number of classes, channels or blocks is larger.
_MAX_NAMED = 5  # Candidates that an error message names.
# Errors of options that make no network.
_INVALID_OPTIONS = (ValueError, TypeError, ArithmeticError, flax_errors.FlaxError)


class ImportedNetwork(NamedTuple):
    """A network from a file, and the origins of its normalisation constants.

    origins: the origins of "mean" and "std" in words, except of constants that the caller gave.
    """

    net: nn.Module
    variables: dict[str, Any]
    origins: dict[str, str]


def read(
    path: str | os.PathLike,
    model: str | None,
    *,
    entry: str | None = None,
    head: str | os.PathLike | None = None,
    **options: Any,
) -> ImportedNetwork:
    """Return the network in a weight file.

    path: file of weights. model: a key of MODELS; None: find the model that fits.
    entry: name of the state dict, if the file has several.
    head: second file, with the network's linear layer.
    options: options of the network; they override the options in the file. Errors: see
    `models.load`.
    """
    where = os.fspath(path)
    if not pathlib.Path(path).is_file():
        raise FileNotFoundError(f"{where}: no such checkpoint")
    state = state_dicts.read(path, entry)
    metadata = _export_metadata(where, state.metadata)
    if metadata and metadata.names == "own" and model not in (None, metadata.model):
        raise ValueError(f"{where}: holds the model {metadata.model!r}, not {model!r}")
    model = metadata.model if metadata and model is None else model
    check_options(model, options)
    file = _File(
        where=where,
        arrays=state.arrays,
        head=state_dicts.read_head(head) if head is not None else None,
        constants=state.constants,
        metadata=metadata,
        options=options,
    )
    match = _select_match(file, model, _find_matches(file, model))
    if sum(array.size for array in match.arrays.values()) > _MAX_NUMBERS:
        raise ValueError(f"{where}: has more than {_MAX_NUMBERS} numbers")
    variables = weight_names.to_variables(match.expected, match.arrays)
    net = registry.MODELS[match.model](**match.options)
    not_given = {"mean", "std"} - options.keys()
    origins = {key: file.origin(match, key) for key in sorted(not_given)}
    return ImportedNetwork(net, jax.tree.map(jnp.asarray, variables), origins)


class _ExportMetadata(NamedTuple):
    """Metadata of a file that `trained.save_safetensors` wrote."""

    model: str  # Key of MODELS.
    names: str  # Naming scheme of the weights, "published" or "own".
    options: dict[str, Any]  # Options of the model.


class _File(NamedTuple):
    """The content of a weight file and the caller's arguments."""

    where: str  # Path of the file, for messages.
    arrays: dict[str, np.ndarray]
    head: Linear | None  # From the file of the head, if the caller gave one.
    constants: dict[str, Any]  # "mean" and "std" of a normalisation layer in the file.
    metadata: _ExportMetadata | None
    options: dict[str, Any]  # Options of the caller.

    def all_options(self, model: str | None) -> dict[str, Any]:
        """Return the options of a network; the caller's override the file's.

        model: a key of MODELS; None: not yet known.
        """
        stored = {}
        if self.metadata and self.metadata.model == model:
            stored = self.metadata.options
        return {**self.constants, **stored, **self.options}

    def origin(self, match: NetworkMatch, key: str) -> str:
        """Return the origin, in words, of a constant that the caller did not give.

        key: "mean" or "std".
        """
        metadata = self.metadata
        if metadata and metadata.model == match.model and key in metadata.options:
            return "the file's metadata"
        if key in self.constants:
            return "the file's own first layer"
        if match.publisher:
            return f"{match.publisher}'s, whose names the file has"
        return f"the default of {match.model}"


def _find_matches(file: _File, model: str | None) -> list[NetworkMatch]:
    """Return the matches of the file to `model`; for the model None, to all plausible models.

    If no model is plausible, the match to the model with the most similar names is returned.
    An export with this package's names has one match, to the model in its metadata. Empty if
    no match is possible. ValueError if no network can be built with
    the options.
    """
    options = file.all_options(model)
    try:
        if file.metadata and file.metadata.names == "own":
            return [_match_own_names(file.metadata.model, file.arrays, options)]
        matches = [
            best_match(
                candidate,
                file.arrays,
                head=file.head,
                options=options,
                is_named=bool(model),
            )
            for candidate in ([model] if model else registry.MODELS)
        ]
        matches = [match for match in matches if match is not None]
        return matches or ([] if model else _match_similar_names(file))
    except _INVALID_OPTIONS as error:
        raise ValueError(
            f"{file.where}: its options, {str(options)[:200]}, must make a "
            f"{model or 'network'}: {' '.join(str(error).split())[:200]}"
        ) from error


def _match_similar_names(file: _File) -> list[NetworkMatch]:
    """Return a list with one match, to the network whose names are the most similar to the file's.

    The similarity is the number of words that both have, divided by the number of words of either.
    The list is empty if the network cannot be built with the options of the file and the caller, or
    if `best_match` has no match.
    """
    words = weight_names.tokens(file.arrays)

    def similarity(model: str) -> float:
        """Return the share of words that the names of the model and the file have in common."""
        templates = map(weight_names.templates, registry.dialects(model))
        known = weight_names.tokens(itertools.chain.from_iterable(templates))
        return len(words & known) / max(1, len(words | known))

    model = max(registry.MODELS, key=similarity)
    with contextlib.suppress(*_INVALID_OPTIONS):
        options = file.all_options(model)
        match = best_match(
            model, file.arrays, head=None, options=options, is_named=True
        )
        return [match] if match else []
    return []


def _other_models(file: _File, model: str) -> list[str]:
    """Return the names of the models other than `model` that the file fits.

    Options that a model does not have are ignored.
    """
    models = []
    for name in registry.MODELS:
        known = registry.option_names(name)
        options = {k: v for k, v in file.all_options(name).items() if k in known}
        with contextlib.suppress(*_INVALID_OPTIONS):
            match = best_match(
                name, file.arrays, head=file.head, options=options, is_named=False
            )
            if name != model and match is not None and not match.difference:
                models.append(name)
    return models


def _export_metadata(where: str, metadata: Mapping[str, str]) -> _ExportMetadata | None:
    """Return the description of the network in one of our exports, None for other files.

    where: path of the file, for messages. ValueError if the description is invalid.
    """
    if "jbias" not in metadata:
        return None
    try:
        entries = json.loads(metadata["jbias"])
        options = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in entries["options"].items()
        }
        parsed = _ExportMetadata(entries["model"], entries["names"], options)
        check_options(parsed.model, options)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{where}: its metadata under 'jbias' must say model, names and options of "
            f"a network: {' '.join(str(error).split())[:200]}"
        ) from error
    return parsed


def check_options(model: str | None, options: Mapping[str, Any]) -> None:
    """Raise ValueError for an unknown model, and for options that are unknown or invalid.

    Values must have the annotated types; ints must be from 0 to 100,000. model: None: nothing
    is checked.
    """
    if model is None:
        return
    errors.check_choice("models.load", model, registry.MODELS, name="model")
    for option in options:
        if option not in registry.option_names(model):
            raise ValueError(
                f"models.load: {model} has no option {option!r}; it has "
                f"{', '.join(registry.option_names(model))}"
            )
    where = f"models.load: {model}"
    errors.check_annotations(where, registry.MODELS[model], options)
    for option, value in options.items():
        numbers = value if isinstance(value, tuple) else (value,)
        if any(isinstance(n, int) and not 0 <= n <= _MAX_OPTION for n in numbers):
            errors.refuse(f"{where}.{option}", f"be from 0 to {_MAX_OPTION:,}", value)


def _select_match(
    file: _File, model: str | None, matches: list[NetworkMatch]
) -> NetworkMatch:
    """Return the only match without differences.

    ValueError, with the differences and the models that fit, if there is not exactly one.
    """
    where = file.where
    exact = [match for match in matches if not match.difference]
    if len(exact) == 1:
        return exact[0]
    if exact:
        named = ", ".join(match.model for match in exact)
        raise ValueError(f"{where}: fits {named}; say which by model=...")
    fitting = ", ".join(_other_models(file, model)) if model else ""
    hint = f"; it fits {fitting}: give that model, or none" if fitting else ""
    nearest = sorted(matches, key=_quality, reverse=True)
    nearest = [match for match in nearest if match.difference.num_fitting][:_MAX_NAMED]
    if not nearest:
        raise ValueError(_no_entry_message(file, model, matches=matches, hint=hint))
    best = nearest[0]
    problem = (
        "does not fit" if model else "fits no network of models.MODELS; nearest is"
    )
    runners_up = ", ".join(
        f"{match.model} ({match.difference.num_fitting})" for match in nearest[1:]
    )
    more = f"\n  then by entries that fit: {runners_up}" if runners_up else ""
    raise ValueError(
        f"{where}: {problem} {best.model}, {best.difference.num_fitting} of "
        f"{len(best.expected)} entries do{hint or _remedy(best)}\n  "
        f"{weight_names.format_difference(best.difference)}{more}"
    )


def _no_entry_message(
    file: _File, model: str | None, *, matches: list[NetworkMatch], hint: str
) -> str:
    """Return the message for a file without any entry that fits.

    model: as given by the caller. matches: matches of the models that were tried. hint: text
    with the names of models that fit, or "".
    """
    network = model or "any network of models.MODELS"
    problem = f"{file.where}: has no entry of {network}, under any known name"
    if hint:
        return f"{problem}{hint}"
    expected = ""
    if matches:
        nearest = model or f"the nearest by names, {matches[0].model},"
        expected = f"; {nearest} has {_abbreviate(matches[0].expected)}"
    return (
        f"{problem}; it has {_abbreviate(file.arrays)}{expected}; rename its entries to a "
        "network's of docs/models.md, or give another file"
    )


def _abbreviate(names: Collection[str]) -> str:
    """Return text with the first five names, joined by commas, and the number of all names."""
    more = ", ..." if len(names) > _MAX_NAMED else ""
    return f"{', '.join([*names][:_MAX_NAMED])}{more} ({len(names)} in all)"


def _remedy(match: NetworkMatch) -> str:
    """Return advice for a file that lacks only the network's last layer, else ""."""
    missing = {line.split(" ")[0] for line in match.difference.missing}
    classes, expected = match.options["classes"], match.expected.items()
    heads = {name for name, entry in expected if classes in entry.shape}
    if not missing or not missing <= heads or match.difference.misshapen:
        return ""
    layers = _spare_layers(match.arrays, match.expected)
    stem = f"{min(heads).rpartition('.')[0]}."
    if not layers:
        return "; its linear layer lies elsewhere: give that file by head=..."
    named = ", ".join(layer.rstrip(".") for layer in layers[:_MAX_NAMED])
    if not [layer for layer in layers if state_dicts.is_head(layer)]:
        return (
            f"; no layer is named as a head; it has {named} beside {match.model}'s: if one "
            f"is the head, rename its entries to {stem}weight and {stem}bias, else give "
            "the head's file by head=..."
        )
    if len(layers) > 1:
        return (
            f"; its head may be any of the layers {named}, while {match.model} has one, "
            f"{stem[:-1]}: if one of them is the whole head, rename its entries to "
            f"{stem}weight and {stem}bias and leave the others out; else measure the "
            "network by --predict or jbias.torch.wrap, or give another head by head=..."
        )
    needed, layer = match.expected[f"{stem}weight"].shape[1], layers[0]
    shape = "x".join(map(str, match.arrays[f"{layer}weight"].shape))
    return (
        f"; its head may be the layer {layer[:-1]}, of shape {shape} where {match.model} needs "
        f"(classes)x{needed} and a bias: if it is, rename its entries to {stem}weight and "
        f"{stem}bias (zeros if there is none); else give its file by head=..."
    )
