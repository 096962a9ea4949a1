"""Networks whose stem and four stages are a module each."""

from jaxtyping import Array

from jbias.models import backbone, taps


class Staged(backbone.BatchNormed):
    """A backbone made of parts.

    A subclass makes the modules `stem` and `stage1` to `stage4` in its setup, each called
    as part(x, key, train=train), and has the method `_head`. Modules of the head are named
    fc, the last of them, fc1 and so on. Sites are, besides those of Backbone, after each
    convolution one that ends in "conv" or "conv1", "conv2" and so on, and "fc1" ... after
    linear layers before the last and their activation, where x is of shape (b, c).
    """

    @staticmethod
    def stage_of(name: str) -> int:
        """Says to which stage a module belongs, given its name: 0 stem, 5 head."""
        if name.startswith("stage"):
            return int(name.removeprefix("stage"))
        return 0 if name == "stem" else 5

    def _least(self) -> int:
        """Pixels that an image must have on each side, for no layer to be empty."""
        return 1

    def _check_side(self, height: int, width: int) -> None:
        if min(height, width) < self._least():
            raise ValueError(
                f"{self._where()}: images must have at least {self._least()} pixels a "
                f"side, got {height}x{width}; resize them or take another model"
            )

    def _stem(self, x: Array, key, train: bool) -> Array:
        x = self.stem(x, key, train=train)
        return taps.through(self, x, "stem", key, train)

    def _stage(self, number: int, x: Array, key, train: bool) -> Array:
        stages = (self.stage1, self.stage2, self.stage3, self.stage4)
        return stages[number - 1](x, key, train=train)
