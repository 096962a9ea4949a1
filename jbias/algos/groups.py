"""Groups of examples, by class and attribute or environment, and penalties on them.

A spec names the columns, joined by +, such as "class+attribute" or "domain", where "class"
is the label and "group" short for "class+attribute".
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
    """All combinations of the values of some columns, the last column's fastest.

    counts: training examples of each; of some there may be none.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    counts: Int[np.ndarray, "g"]

    def number(self, batch: base.Batch) -> Int[Array, "b"]:
        """The group of every example; its class is the target's largest."""
        number = 0
        for name, size in zip(self.names, self.sizes, strict=True):
            own = jnp.argmax(batch["target"], axis=1) if name == CLASS else batch[name]
            number = number * size + own
        return number

    def members(self, batch: base.Batch) -> Float[Array, "b g"]:
        """The weight of every example in its own group, and 0 in the others."""
        of = jax.nn.one_hot(self.number(batch), len(self.counts))
        return of * batch["weight"][:, None] if "weight" in batch else of


def from_columns(where: str, columns: Columns, by: str) -> Groups:
    """Says which groups the training examples are of, by the columns that `by` names.

    ValueError, which begins with `where`, for a column that is not there.
    """
    names, numbers = select_columns(where, columns, by)
    sizes = tuple(int(one.max()) + 1 for one in numbers)
    flat = np.ravel_multi_index(numbers, sizes)
    return Groups(names, sizes, np.bincount(flat, minlength=math.prod(sizes)))


def select_columns(
    where: str, columns: Columns, by: str
) -> tuple[tuple[str, ...], list[Int[np.ndarray, "n"]]]:
    """The columns that `by` names, which have whole numbers from 0 on."""
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
    """The environments of the training examples: by `by`, if it says anything.

    Else which of several sources they are from, or a set's own "domain"; where there is
    none, their "attribute".
    """
    usual = "domain" if "domain" in columns else "attribute"
    return from_columns(f"{where}: by", columns, by or usual)


def means(
    each: Float[Array, "b"], members: Float[Array, "b g"]
) -> tuple[Float[Array, "g"], Float[Array, "g"]]:
    """The mean of every group by weights, and 1 where the batch has some of it, else 0.

    The mean of an absent group is 0.
    """
    total = jnp.sum(members, axis=0)
    present = (total > 0).astype(each.dtype)
    summed = jnp.matmul(each, members, precision=jax.lax.Precision.HIGHEST)
    return summed / jnp.where(total > 0, total, 1), present


def mean_present(each: Float[Array, "g"], there: Float[Array, "g"]) -> Float[Array, ""]:
    """The mean over the groups that are present."""
    return jnp.sum(each * there) / jnp.maximum(jnp.sum(there), 1)


def evaluation_only(name: str, net: nn.Module) -> base.Algo:
    """An algorithm that was told of no training data: it can be evaluated alone."""

    def losses(params, stats, batch, key, static=None):
        raise ValueError(
            f"{name}: must be told the columns of the training data, got none; give "
            "columns=..., as a run does"
        )

    return base.Algo(net, losses)
