"""The arguments after a config's colon: which there are, and which are refused."""

import types

from jbias import config as jc
from jbias import data
from jbias.configs import datasets

EVERYWHERE = {
    "data",
    "balance",
    "inputs",
    "variant",
    "init",
    "vary",
    "seeds",
    "model",
    "size",
    "epochs",
    "crop",
    "skip",
    "columns",
    "shift",
    "attribute",
    "images",
    "shift_seed",
    "smoke",
}


def read(text: str) -> types.SimpleNamespace:
    """All arguments; ValueError, one line, for what is wrong with them."""
    arg = jc.parse_arg(
        text,
        data="shapes",
        correlation=0.99,
        root="",
        style="photo",
        stimuli="",
        subset=False,
        corrupted="",
        digits="",
        form="irm",
        grey=False,
        train="train",
        valid="",
        tests="",
        balance="",
        inputs="",
        variant="",
        init="",
        vary="",
        seeds=3,
        model="",
        size=0,
        epochs=0.0,
        crop="",
        skip="",
        label="",
        columns="",
        shift="",
        attribute="attribute",
        images=0,
        shift_seed=0,
        demo=False,
        more=False,
        smoke=False,
    )
    if arg.data in data.DATASETS and arg.data not in datasets.PRESETS:
        raise ValueError(
            f"config argument: data={arg.data} has no preset; name it in a config of "
            "your own, as docs/data.md shows"
        )
    jc.check_known("config argument", arg.data, datasets.PRESETS, "data")
    if arg.variant not in ("", "biasbed"):
        raise ValueError(
            f"config argument: variant must be biasbed or nothing, got {arg.variant!r}; "
            "a label of your own is --config.variant"
        )
    if arg.crop not in ("", "host", "device", "memory"):
        raise ValueError(
            f"config argument: crop must be host, device or memory, got {arg.crop!r}"
        )
    if arg.demo and arg.smoke:
        raise ValueError("config argument: take demo or smoke, not both")
    of_shift = {"attribute", "images", "shift_seed"} - datasets.USED[arg.data]
    if not arg.shift and (lone := jc.given(text) & of_shift):
        raise ValueError(
            f"config argument: {min(lone)!r} has a say with shift=... alone, e.g. shift=C6"
        )
    useless = jc.given(text) - EVERYWHERE - datasets.USED[arg.data]
    if useless:
        raise ValueError(
            f"config argument: {min(useless)!r} has no say with data={arg.data}; "
            f"these have: {', '.join(sorted(EVERYWHERE | datasets.USED[arg.data]))}"
        )
    return arg


def own(text: str, **defaults) -> tuple[types.SimpleNamespace, str]:
    """Takes a config's own arguments out of the text: their values, and the rest."""
    items = [item for item in (text or "").split(",") if item]
    mine = [item for item in items if item.partition("=")[0] in defaults]
    rest = ",".join(item for item in items if item not in mine)
    return jc.parse_arg(",".join(mine), **defaults), rest


def data_of(text: str) -> str:
    """Which data the arguments name, for recipes that depend on it."""
    return read(text).data


def is_released(text: str) -> bool:
    """Whether the arguments ask for BiasBed's variant."""
    return read(text).variant == "biasbed"
