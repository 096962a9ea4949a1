"""Classes of sets whose files do not name them, or not in one way."""

import functools

from jbias.data import packaged


@functools.cache
def of(name: str) -> tuple[str, ...]:
    """The classes of "cifar10", "cifar100" (fine) or "office_home", by label."""
    return tuple(packaged.table("class_names")[name])
