"""Groups of examples by the values of columns, and means over groups.

A specification names the columns, joined by +, such as "class+attribute" or "domain".
"class" is the label, and "group" is short for "class+attribute".
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int

from jbias.algos import base

Columns = Mapping[str, np.ndarray]  # Of the training examples; "label" is the class.
CLASS = "class"
GROUP = "class+attribute"


class Groups(NamedTuple):
    """Groups of examples: all combinations of the values of some columns.

    The number of a group is the index of its combination; the last column varies fastest.

    names: names of the columns. sizes: number of values of each column.
    counts: number of training examples of each group, possibly 0.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    counts: Int[np.ndarray, "g"]

    def number(self, batch: base.Batch) -> Int[Array, "b"]:
        """Return the index of each example's group.

        Groups are counted like digits: the values of the last column change fastest. The class
        of an example is the argmax of its target.
        """
        number = 0
        for name, size in zip(self.names, self.sizes, strict=True):
            if name == CLASS:
                values = jnp.argmax(batch["target"], axis=1)
            else:
                values = batch[name]
            number = number * size + values
        return number

    def members(self, batch: base.Batch) -> Float[Array, "b g"]:
        """Return a row per example: its weight in the column of its group, 0 elsewhere.

        The weight is batch["weight"], or 1 without such an entry.
        """
        one_hot = jax.nn.one_hot(self.number(batch), len(self.counts))
        return one_hot * batch["weight"][:, None] if "weight" in batch else one_hot


def from_columns(where: str, columns: Columns, by: str) -> Groups:
    """Return the groups of the training examples, by the columns that `by` names.

    where: start of the error message. columns: columns of the training data, by name. by:
    names joined by +, such as "class+attribute". ValueError for a column that is unknown or
    does not have whole numbers from 0 on.
    """
    names, selected = select_columns(where, columns, by)
    sizes = tuple(int(column.max()) + 1 for column in selected)
    flat = np.ravel_multi_index(selected, sizes)
    return Groups(names, sizes, np.bincount(flat, minlength=math.prod(sizes)))


def select_columns(
    where: str, columns: Columns, by: str
) -> tuple[tuple[str, ...], list[Int[np.ndarray, "n"]]]:
    """Return the names and values of the columns in `by`, in the order of `by`.

    In `by`, "class" is the column "label", and "group" alone means "class+attribute".
    Arguments: see `from_columns`. ValueError for a column that is unknown, has several axes, or
    has values that are not integers >= 0.
    """
    by = GROUP if by == "group" else by
    known = {
        CLASS if name == "label" else name: x
        for name, x in columns.items()
        if x.ndim == 1 and np.issubdtype(x.dtype, np.integer) and x.min(initial=0) >= 0
    }
    names = tuple(by.split("+"))
    for name in names:
        if name not in known:
            raise ValueError(
                f"{where}: must name columns of the training data, got {name!r}; it has "
                f"{', '.join(sorted(known))}; join several by +"
            )
    return names, [known[name] for name in names]


def environments(where: str, columns: Columns, by: str) -> Groups:
    """Return the environments of the training examples, by the columns that `by` names.

    If `by` is "", the column is "domain" (the number of the source, or a column of the data
    set) or, without such a column, "attribute"; ValueError without either. where, columns: see
    `from_columns`, which also lists the other errors.
    """
    default = "domain" if "domain" in columns else "attribute"
    if not by and default not in columns:
        raise ValueError(
            f"{where}: training images must be of several environments: several sources "
            "(config.train.also), or a column domain or attribute; this set has "
            f"{', '.join(sorted(columns))}; see docs/data.md#attributes, or name a column by "
            "config.algo.by"
        )
    return from_columns(f"{where}: by", columns, by or default)


def means(
    values: Float[Array, "b"], members: Float[Array, "b g"]
) -> tuple[Float[Array, "g"], Float[Array, "g"]]:
    """Return two arrays: the weighted mean of each group, and 1 if the batch has the group.

    Both are 0 for a group that the batch lacks. members: weights of the examples in the
    groups, from Groups.members.
    """
    total = jnp.sum(members, axis=0)
    present = (total > 0).astype(values.dtype)
    summed = jnp.matmul(values, members, precision=jax.lax.Precision.HIGHEST)
    return summed / jnp.where(total > 0, total, 1), present


def mean_present(
    values: Float[Array, "g"], present: Float[Array, "g"]
) -> Float[Array, ""]:
    """Return the mean of `values` over the groups that are in the batch; 0 if there are none.

    present: 1 for groups in the batch, else 0, from `means`.
    """
    return jnp.sum(values * present) / jnp.maximum(jnp.sum(present), 1)


def evaluation_only(name: str, net: nn.Module) -> base.Algo:
    """Return an algorithm for evaluation without training data: its losses raise ValueError.

    name: name of the algorithm, for the message.
    """

    def losses(params, stats, batch, key, static=None):
        """Raise ValueError: this algorithm cannot be trained."""
        raise ValueError(
            f"{name}: training needs the columns of the training data, got none; give "
            "columns=..., as a run does"
        )

    return base.Algo(net, losses)
