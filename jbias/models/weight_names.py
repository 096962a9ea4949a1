r"""Conversion of published state dicts to variables of this package's networks, and back.

The file of a network defines NAMES, rules of (pattern of our module's path, template of
the published module's name), such as
(r"stage(\d)_block(\d+)/conv(\d)", r"layer\1.\2.conv\3"). The first pattern that matches
the whole path is used. Names of arrays follow from their kind (a dense kernel is the
transpose of `weight`). A pattern may also match the path of an array, module and name;
its template is then the published name of the array. A tuple of templates means that our
array is the concatenation of these published arrays along their first axis.

A network published under several naming schemes has a tuple of such tables, DIALECTS, and
PUBLISHERS: for each scheme the `Publisher` whose mean and std all networks of the scheme use,
or None if networks use different constants.
"""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import traverse_util

from jbias.runtime import messages

Names = Sequence[tuple[str, str | tuple[str, ...]]]
Arrays = Mapping[str, np.ndarray]

_LEAVES = {
    "kernel": "weight",
    "scale": "weight",
    "bias": "bias",
    "mean": "running_mean",
    "var": "running_var",
}
# By rank: the axes of our kernel, in the order of the published array.
_KERNEL_AXES = {4: (3, 2, 0, 1), 2: (1, 0)}
_MAX_ROWS = 10  # Rows of a table in an error message.


class Publisher(NamedTuple):
    """A publisher whose networks share one naming scheme and one mean and std."""

    name: str
    mean: tuple[float, ...]
    std: tuple[float, ...]


class ArrayEntry(NamedTuple):
    """The array of our network that an entry of a published state dict fills."""

    collection: str
    path: tuple[str, ...]
    shape: tuple[int, ...]  # Shape of the published entry.
    axes: tuple[int, ...]  # published = ours.transpose(axes)
    # The entry is chunk number `chunk` of `num_chunks` along the first published axis.
    chunk: int = 0
    num_chunks: int = 1


def published_names(path: Sequence[str], names: Names) -> tuple[str, ...]:
    """Return the published names of our array at a path; empty if no rule matches.

    Several names: our array is the concatenation of the arrays with these names.
    """
    module, leaf = "/".join(path[:-1]), path[-1]
    for pattern, template in names:
        if match := re.fullmatch(pattern, "/".join(path)):
            return tuple(map(match.expand, np.atleast_1d(template).tolist()))
        if isinstance(template, str) and (match := re.fullmatch(pattern, module)):
            stem = match.expand(template)
            return (f"{stem}.{_LEAVES.get(leaf, leaf)}".lstrip("."),)
    return ()


def entries(variables: Mapping[str, Any], names: Names | None) -> dict[str, ArrayEntry]:
    """Return the entries of a state dict that variables of a network need, by published name.

    variables: arrays or jax.ShapeDtypeStructs.
    names: rules of names; None uses our own names, such as params/fc/kernel.

    ValueError if no rule matches an array, or two arrays get the same name.
    """
    by_name: dict[str, ArrayEntry] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(variables):
        full_path = [entry.key for entry in path]
        collection, keys = full_path[0], tuple(full_path[1:])
        axes = tuple(range(len(leaf.shape)))
        if keys[-1] == "kernel" and names is not None:
            axes = _KERNEL_AXES.get(len(axes), axes)
        shape = tuple(leaf.shape[axis] for axis in axes)
        if names is None:
            array_names = ("/".join(full_path),)
        else:
            array_names = published_names(keys, names)
        if not array_names:
            name = "/".join(keys)
            raise ValueError(f"models.weight_names: no rule of NAMES matches {name}")
        if len(array_names) > 1:
            shape = (shape[0] // len(array_names), *shape[1:])
        for chunk, name in enumerate(array_names):
            if name in by_name:
                raise ValueError(
                    f"models.weight_names: NAMES maps two arrays to {name}"
                )
            by_name[name] = ArrayEntry(
                collection=collection,
                path=keys,
                shape=shape,
                axes=axes,
                chunk=chunk,
                num_chunks=len(array_names),
            )
    return by_name


def to_variables(expected: Mapping[str, ArrayEntry], state: Arrays) -> dict[str, Any]:
    """Return the nested variables of a network, in float32 and Flax's layout.

    expected: an entry for each published name, as `entries` returns them. state: arrays by
    published name; must have all expected names.
    """
    flat, chunks = {}, {}
    for name, entry in sorted(expected.items(), key=lambda item: item[1].chunk):
        target = (entry.collection, *entry.path), entry.axes
        chunks.setdefault(target, []).append(state[name])
    for (path, axes), arrays in chunks.items():
        array = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
        flat[path] = np.array(array.transpose(np.argsort(axes)), np.float32, order="C")
    return traverse_util.unflatten_dict(flat)


def to_state_dict(variables: Mapping[str, Any], names: Names | None) -> Arrays:
    """Return the state dict of variables in float32, by published name.

    The inverse of `to_variables`. names: see `entries`.
    """
    state, flat = {}, traverse_util.flatten_dict(variables)
    for name, entry in entries(variables, names).items():
        leaf = flat[(entry.collection, *entry.path)]
        array = np.asarray(leaf, np.float32).transpose(entry.axes)
        if entry.num_chunks > 1:
            array = np.split(array, entry.num_chunks)[entry.chunk]
        state[name] = np.ascontiguousarray(array)
    return state


def templates(names: Names) -> list[str]:
    """Return the templates of all rules in one list."""
    flat = []
    for _, template in names:
        flat += np.atleast_1d(template).tolist()
    return flat


def is_plausible(arrays: Arrays, names: Names) -> bool:
    """Return True if the array names of a state dict fit the naming rules `names`.

    At least a third of the array names must match a template, and there must be at least as many
    arrays as rules.
    """
    if len(arrays) < len(names):
        return False
    patterns = []
    for template in templates(names):
        literals = re.split(r"\\(?:\d|g<\d>)", template)
        patterns.append("[^.]+".join(map(re.escape, literals)))
    known = re.compile(rf"(?:{'|'.join(patterns)})(?:\.?[a-z_]+)?")
    return 3 * sum(known.fullmatch(name) is not None for name in arrays) >= len(arrays)


def tokens(names: Iterable[str]) -> set[str]:
    """Return the words in names or templates, without numbers and words such as "weight"."""
    words = {word for name in names for word in re.findall("[A-Za-z]+", name)}
    return words - {*_LEAVES.values(), "running", "mean", "var"}


class Difference(NamedTuple):
    """The differences between a state dict and the entries that a network expects.

    missing, spare, misshapen: descriptions of the entries that the state dict lacks, that the
    network does not have, and that have another shape. num_fitting: number of entries of the
    right shape. True as a boolean if there are differences.
    """

    missing: tuple[str, ...]
    spare: tuple[str, ...]
    misshapen: tuple[str, ...]
    num_fitting: int

    def __bool__(self) -> bool:
        return bool(self.missing or self.spare or self.misshapen)


def compare(expected: Mapping[str, ArrayEntry], arrays: Arrays) -> Difference:
    """Return the differences in names and shapes between expected entries and arrays.

    expected: entries by published name. arrays: a state dict. As a boolean, a `Difference` is False
    if there are no differences.
    """
    missing, misshapen, num_fitting = [], [], 0
    for name, entry in expected.items():
        needed = _format_shape(entry.shape)
        if name not in arrays:
            missing.append(f"{name} {needed}")
        elif entry.shape != arrays[name].shape:
            actual = _format_shape(arrays[name].shape)
            misshapen.append(f"{name} needs {needed}, has {actual}")
        else:
            num_fitting += 1
    spare = [
        f"{name} {_format_shape(array.shape)}"
        for name, array in arrays.items()
        if name not in expected
    ]
    return Difference(tuple(missing), tuple(spare), tuple(misshapen), num_fitting)


def format_difference(difference: Difference) -> str:
    """Return the text of a table of the differences, with a column for each kind that occurs.

    The heading of a column is its kind, "missing", "spare" or "of another shape", with the
    number of entries. At most ten entries follow, and a line with the number of further
    entries.
    """
    kinds = (
        ("missing", difference.missing),
        ("spare", difference.spare),
        ("of another shape", difference.misshapen),
    )
    columns = [_column(heading, rows) for heading, rows in kinds if rows]
    table = itertools.zip_longest(*columns, fillvalue="")
    return "\n  ".join(messages.align_columns(table))


def _column(heading: str, rows: Sequence[str]) -> list[str]:
    """Return the cells of a column: heading with count, the first rows, "and n more"."""
    shown = [row if len(row) <= 70 else f"{row[:67]}..." for row in rows[:_MAX_ROWS]]
    hidden = len(rows) - _MAX_ROWS
    more = [f"and {hidden} more"] if hidden > 0 else []
    return [f"{heading} ({len(rows)})", *shown, *more]


def _format_shape(shape: Iterable[int]) -> str:
    """Return a shape as text, such as "64x3x7x7"."""
    return "x".join(map(str, shape)) or "one number"
