"""What all drawn fractals share: palettes, and averages of what is drawn finer."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

Image = Float[np.ndarray, "size size 3"]
Plane = Float[np.ndarray, "size size"]

TRIES = 10  # Drafts of a picture, of which the first good one is drawn.
DRAFT = 24  # Pixels of a draft.


def palette(rng: np.random.Generator) -> Callable[[Plane], Image]:
    """Colours of numbers, once around per unit: m + s cos(2 pi (f t + phase)) / 2."""
    phase, middle = rng.random(3), rng.uniform(0.35, 0.65, 3)
    strength = rng.uniform(0.3, 1, 3) * rng.uniform(0.4, 1)
    waves = rng.integers(1, 3, 3)

    def colour(t: Plane) -> Image:
        turns = waves * t[..., None] + phase
        return np.clip(middle + 0.5 * strength * np.cos(2 * np.pi * turns), 0, 1)

    return colour


def shrunk(image: Image, factor: int) -> Image:
    """The means of squares of `factor` pixels."""
    size = len(image) // factor
    return image.reshape(size, factor, size, factor, 3).mean((1, 3))


def finer(size: int) -> int:
    """How many times finer a picture is drawn before it is averaged."""
    return 2 if size <= 112 else 1
