"""What `shift=` in a config's argument makes of a data preset: its four parts.

All come out of the whole split that the preset trains on: one to train on, one to
validate, a test like training and a test out of its distribution.
"""

from collections.abc import Collection, Mapping
from typing import Any

import ml_collections

from jbias import config as jc
from jbias.data import annotations, colored_mnist, shapes

# Of config.train, what says how it is fed.
_FED = ("batch",)
_POOL = 8192  # Scenes of the embedded set that parts are taken from.


def settle(arg, given: Collection[str]) -> None:
    """Chooses the form of a set in which every class has every value alike.

    ValueError for an attribute that the embedded set has not.
    """
    known = ("attribute", *shapes.FACTOR_NAMES)
    plain = {*arg.attribute.split("+")} <= {*known} or arg.columns
    if arg.data == "shapes" and not plain:
        raise ValueError(
            f"config argument: the embedded set has no attribute {arg.attribute!r};"
            f" {jc.nearest(arg.attribute, known)}"
        )
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
    whole["split"] = base(whole)
    whole |= _own(arg, given)
    told = dict(attribute=arg.attribute, images=arg.images, seed=arg.shift_seed)

    def part(name: str) -> dict:
        return {**whole, "shift": dict(level=arg.shift, part=name, **told)}

    c.train = {**part("train"), **fed}
    c.valid = part("valid")
    c.tests = {name: part(name) for name in ("id", *_outside(arg))}


def base(part: Mapping[str, Any]) -> str:
    """The split that a set is a part of."""
    return part["split"].partition("[")[0]


def _outside(arg) -> tuple[str, ...]:
    """The parts out of distribution; of a single value, each of the others."""
    if not arg.shift.startswith("only-"):
        return ("ood",)
    values: dict[str, Collection[str]] = {}
    if arg.data == "colored_mnist":
        values["attribute"] = colored_mnist.PALETTE
    values |= shapes.FACTORS if arg.data == "shapes" else {}
    values |= annotations.read_values(arg.columns) if arg.columns else {}
    own = arg.shift.removeprefix("only-")
    others = [one for one in values.get(arg.attribute, ()) if one != own]
    return tuple(f"ood-{one}" for one in others) or ("ood",)


def _own(arg, given: Collection[str]) -> dict:
    """What a preset must have so that attribute and class can be told apart."""
    if arg.data != "shapes":
        return {}
    by_texture = arg.attribute in ("attribute", "pattern")
    own: dict[str, Any] = dict(n=(2048 if by_texture else 512) if arg.smoke else _POOL)
    if by_texture and "correlation" not in given:
        own["correlation"] = 1 / len(shapes.CLASSES)
    if {*arg.attribute.split("+")} & {*shapes.FACTOR_NAMES}:
        own["factors"] = True
    return own
