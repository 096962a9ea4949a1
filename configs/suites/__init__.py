"""What the suites share: their arguments' checks, and how networks are run."""

import types
from collections.abc import Collection, Mapping
from typing import Any

from jbias import config as jc

WHERE = "suite argument"
# What all data read, by its default.
SHARED_ARGUMENTS = types.MappingProxyType(
    dict(data="shapes", size=0, images=0, smoke=False)
)


def parse_arguments(
    text: str,
    used: Mapping[str, Collection[str]],
    shared: Mapping[str, Any] = SHARED_ARGUMENTS,
    **more,
) -> types.SimpleNamespace:
    """The arguments of a suite; ValueError, one line, for what is wrong with them.

    used: by data, which of `more` have a say there; those of `shared` always have.
    """
    arg = jc.parse_arg(text, WHERE, **shared, **more)
    jc.check_known(WHERE, arg.data, used, "data")
    jc.check_applicable(text, arg.data, shared, used, WHERE)
    if arg.data != "shapes" and not arg.root:
        raise ValueError(f"{WHERE}: data={arg.data} needs root=<directory>")
    return arg


def run_options(**more) -> dict[str, Any]:
    """How networks are run."""
    return dict(
        **more,
        batch=0,  # 256 on accelerators, 32 on CPU.
        precision="auto",  # bfloat16 on accelerators.
        agree=256,  # So many images float32 answers, too, where that is lower.
        **dict(decisions=True, devices=0, gib=16.0, threads=0),
        energy=dict(watts=0.0, share=1.0, pue=1.0, intensity=0.0),
    )


def suppression_measures(arg: types.SimpleNamespace, clean: str) -> dict[str, Any]:
    """Feature suppression on a set; on ImageNet's 16 classes what people saw, too."""
    found = {"suppression": dict(sets=(clean,), images=arg.images)}
    if arg.data == "imagenet":
        found["suppression_people"] = dict(
            probe="suppression",
            sets=("imagenet16",),
            families=("people",),
            aggregates=("sum_prob",),
            images=arg.images,
        )
    return found
