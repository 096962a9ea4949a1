r"""Which entry of a published state dict is which array of ours.

A file of networks has NAMES = ((pattern of our module's path, template of the published
module's name), ...), such as (r"stage(\d)_block(\d+)/conv(\d)", r"layer\1.\2.conv\3").
The first pattern that matches the whole path counts. Names of arrays follow from their
kind (a dense kernel is the transpose of `weight`). A pattern may match the array's path
as well, module and name, and its template is then the published name of the array; a
tuple of templates means that several published arrays, one after the other along their
first axis, are ours. Networks published under several systems of names have a tuple of
such tables, DIALECTS; PUBLISHERS says of each what all who use it take off images,
None where they differ.
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

_LEAVES = dict(
    kernel="weight", scale="weight", bias="bias", mean="running_mean", var="running_var"
)
# The axes of ours, in the order in which the published array has them, by rank.
_KERNELS = {4: (3, 2, 0, 1), 2: (1, 0)}
_ROWS = 10  # Of a table in a refusal.


class Publisher(NamedTuple):
    """Whose networks have one system of names, and take the same constants."""

    name: str
    mean: tuple[float, ...]
    std: tuple[float, ...]


class Entry(NamedTuple):
    """An array of ours, or some of its published rows."""

    collection: str
    path: tuple[str, ...]
    shape: tuple[int, ...]  # As published.
    axes: tuple[int, ...]  # published = ours.transpose(axes)
    part: int = 0  # Which of
    parts: int = 1  # so many pieces along the first published axis.


def published_names(path: Sequence[str], names: Names) -> tuple[str, ...]:
    """The published names of one of our arrays; empty where no rule has it."""
    module, leaf = "/".join(path[:-1]), path[-1]
    for pattern, template in names:
        if match := re.fullmatch(pattern, "/".join(path)):
            return tuple(map(match.expand, np.atleast_1d(template).tolist()))
        if isinstance(template, str) and (match := re.fullmatch(pattern, module)):
            stem = match.expand(template)
            return (f"{stem}.{_LEAVES.get(leaf, leaf)}".lstrip("."),)
    return ()


def entries(variables: Mapping[str, Any], names: Names | None) -> dict[str, Entry]:
    """What a state dict of these variables, or of their shapes, holds, by name.

    names: None is our own, such as params/fc/kernel.

    ValueError where no rule names one of ours, or two have one name.
    """
    found: dict[str, Entry] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(variables):
        collection, *keys = whole = [entry.key for entry in path]
        axes = tuple(range(len(leaf.shape)))
        if keys[-1] == "kernel" and names is not None:
            axes = _KERNELS.get(len(axes), axes)
        shape = tuple(leaf.shape[axis] for axis in axes)
        given = ("/".join(whole),) if names is None else published_names(keys, names)
        if not given:
            name = "/".join(keys)
            raise ValueError(f"models.weight_names: no rule of NAMES has {name}")
        if len(given) > 1:
            shape = (shape[0] // len(given), *shape[1:])
        for part, one in enumerate(given):
            if one in found:
                raise ValueError(f"models.weight_names: NAMES has {one} for two arrays")
            found[one] = Entry(collection, tuple(keys), shape, axes, part, len(given))
    return found


def to_variables(expected: Mapping[str, Entry], state: Arrays) -> dict[str, Any]:
    """The variables that a state dict makes, float32, in our layout."""
    flat, pieces = {}, {}
    for name, entry in sorted(expected.items(), key=lambda item: item[1].part):
        array = (entry.collection, *entry.path), entry.axes
        pieces.setdefault(array, []).append(state[name])
    for (path, axes), rows in pieces.items():
        array = rows[0] if len(rows) == 1 else np.concatenate(rows)
        flat[path] = np.array(array.transpose(np.argsort(axes)), np.float32, order="C")
    return traverse_util.unflatten_dict(flat)


def to_state_dict(variables: Mapping[str, Any], names: Names | None) -> Arrays:
    """The state dict of variables: the inverse of `to_variables`."""
    state, flat = {}, traverse_util.flatten_dict(variables)
    for name, entry in entries(variables, names).items():
        leaf = flat[(entry.collection, *entry.path)]
        array = np.asarray(leaf, np.float32).transpose(entry.axes)
        if entry.parts > 1:
            array = np.split(array, entry.parts)[entry.part]
        state[name] = np.ascontiguousarray(array)
    return state


def templates(names: Names) -> list[str]:
    """The forms of the published names of one system."""
    return [one for _, form in names for one in np.atleast_1d(form).tolist()]


def plausible(arrays: Arrays, names: Names) -> bool:
    """Whether a third of the arrays have names of that form, and each rule may have one.

    That is told without a network.
    """
    if len(arrays) < len(names):
        return False
    parts = [re.split(r"\\(?:\d|g<\d>)", one) for one in templates(names)]
    forms = ["[^.]+".join(map(re.escape, part)) for part in parts]
    known = re.compile(rf"(?:{'|'.join(forms)})(?:\.?[a-z_]+)?")
    return 3 * sum(known.fullmatch(name) is not None for name in arrays) >= len(arrays)


def tokens(names: Iterable[str]) -> set[str]:
    """The words in names or templates, without numbers and what leaves are called."""
    found = {word for name in names for word in re.findall("[A-Za-z]+", name)}
    return found - {*_LEAVES.values(), "running", "mean", "var"}


class Difference(NamedTuple):
    """In what a state dict is not what a network needs."""

    missing: tuple[str, ...]
    spare: tuple[str, ...]
    misshapen: tuple[str, ...]
    fitting: int

    def __bool__(self) -> bool:
        return bool(self.missing or self.spare or self.misshapen)


def compare(expected: Mapping[str, Entry], arrays: Arrays) -> Difference:
    """Names and shapes that are expected beside those that are there."""
    missing = (f"{n} {_text(e.shape)}" for n, e in expected.items() if n not in arrays)
    spare = (f"{n} {_text(a.shape)}" for n, a in arrays.items() if n not in expected)
    both = [(n, e.shape, arrays[n].shape) for n, e in expected.items() if n in arrays]
    wrong = [f"{n} needs {_text(a)}, has {_text(b)}" for n, a, b in both if a != b]
    fitting = len(both) - len(wrong)
    return Difference(tuple(missing), tuple(spare), tuple(wrong), fitting)


def format_difference(difference: Difference) -> str:
    """The columns of a difference side by side, the first of each and how many more."""
    named = zip(("missing", "spare", "of another shape"), difference)
    columns = [_column(title, rows) for title, rows in named if rows]
    rows = itertools.zip_longest(*columns, fillvalue="")
    return "\n  ".join(messages.align_columns(rows))


def _column(title: str, rows: Sequence[str]) -> list[str]:
    shown = [row if len(row) <= 70 else f"{row[:67]}..." for row in rows[:_ROWS]]
    more = [f"and {len(rows) - _ROWS} more"] if len(rows) > _ROWS else []
    return [f"{title} ({len(rows)})", *shown, *more]


def _text(shape: Iterable[int]) -> str:
    return "x".join(map(str, shape)) or "one number"
