"""What `shift=` in a config's argument makes of a data preset: its four parts.

All come out of the whole split that the preset trains on: one to train on, one to
validate, a test like training and a test out of its distribution.
"""

from collections.abc import Collection

import ml_collections

from jbias.data import colored_mnist, shapes

# Of config.train, what says how it is fed.
_FED = ("batch",)
_POOL = 8192  # Scenes of the embedded set that parts are taken from.


def settle(arg, given: Collection[str]) -> None:
    """Chooses the form of a set in which every class has every value alike."""
    if arg.data == "colored_mnist":
        if "form" in given and arg.form != "uniform":
            raise ValueError(
                "config argument: shift needs form=uniform, where every digit has every"
                f" colour, got {arg.form}; leave the form out"
            )
        arg.form = "uniform"


def apply(c: ml_collections.ConfigDict, arg, given: Collection[str]) -> None:
    """Changes train, valid and tests of a config; `given` are the arguments' names."""
    fed = {key: c.train[key] for key in _FED if key in c.train}
    whole = {key: value for key, value in c.train.items() if key not in _FED}
    whole["split"] = whole["split"].partition("[")[0]
    whole |= _own(arg, given)
    told = dict(attribute=arg.attribute, images=arg.images, seed=arg.shift_seed)

    def part(name: str) -> dict:
        return {**whole, "shift": dict(level=arg.shift, part=name, **told)}

    c.train = {**part("train"), **fed}
    c.valid = part("valid")
    c.tests = {name: part(name) for name in ("id", *_outside(arg))}


def _outside(arg) -> tuple[str, ...]:
    """The parts out of distribution; of a single colour, each of the others."""
    if arg.data == "colored_mnist" and arg.shift.startswith("only-"):
        own = arg.shift.removeprefix("only-")
        return tuple(f"ood-{one}" for one in colored_mnist.PALETTE if one != own)
    return ("ood",)


def _own(arg, given: Collection[str]) -> dict:
    """What a preset must have so that attribute and class can be told apart."""
    if arg.data != "shapes":
        return {}
    texture = arg.attribute == "attribute" and "correlation" not in given
    even = dict(correlation=1 / len(shapes.CLASSES)) if texture else {}
    return dict(n=512 if arg.smoke else _POOL, **even)
