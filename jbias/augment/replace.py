"""Takes the images of the second source in the place of those of the first."""

from collections.abc import Callable

from jbias.augment import mixing


def make() -> Callable:
    """Replaces images by those of batch["other"]; labels stay."""

    def apply(batch, key):
        del key
        return {**batch, "image": mixing.second("replace", batch)}

    return apply
