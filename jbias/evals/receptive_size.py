"""How large a receptive field is; counted in pixels."""

import numpy as np
from jaxtyping import Float


def area(field: Float[np.ndarray, "h w"], share: float) -> int:
    """How many pixels, the strongest, hold a share of the field."""
    held = np.cumsum(np.sort(field, axis=None)[::-1])
    return int(np.searchsorted(held, share * held[-1])) + 1


def radius(field: Float[np.ndarray, "h w"], share: float) -> float:
    """Distance from the centre of mass within which a share of the field lies."""
    distance = np.indices(field.shape) - centre(field)[:, None, None]
    distance = np.sqrt(np.square(distance).sum(0)).ravel()
    order = np.argsort(distance, kind="stable")
    held = np.cumsum(field.ravel()[order])
    return float(distance[order][np.searchsorted(held, share * held[-1])])


def centre(field: Float[np.ndarray, "h w"]) -> Float[np.ndarray, "2"]:
    """Row and column of the centre of mass."""
    return (np.indices(field.shape) * field).sum((1, 2)) / field.sum()
