"""Arguments, run options and shared measures of the evaluation suites."""

import types
from collections.abc import Collection, Mapping
from typing import Any

from jbias import config as jc
from jbias import errors

WHERE = "suite argument"
# Arguments of all data, with their defaults.
SHARED_ARGUMENTS = types.MappingProxyType(
    dict(data="shapes", size=0, images=0, smoke=False)
)
# The test split of data, and pixels a side.
SETS = types.MappingProxyType(
    {
        "shapes": ("test", 32),
        "cifar10": ("test", 32),
        "cifar100": ("test", 32),
        "mnist": ("test", 28),
        "fashion_mnist": ("test", 28),
        "stacked": ("test", 32),
        "tiny_imagenet": ("val", 64),
        "imagenet": ("val", 224),
        "folder": ("test", 224),
    }
)
# Families of feature suppression for small images, which the published blur hardly changes.
WITHOUT_BLUR = (
    "people",
    "shuffle",
    "rotation",
    "bilateral",
    "non_local_means",
    "grey",
    "channel_shuffle",
    "shuffle_grey",
    "bilateral_shuffle",
    "bilateral_12_shuffle",
    "bilateral_grey",
)


def parse_arguments(
    text: str,
    used: Mapping[str, Collection[str]],
    shared: Mapping[str, Any] = SHARED_ARGUMENTS,
    **defaults,
) -> types.SimpleNamespace:
    """Return a suite's arguments; raise a one-line ValueError for a wrong one.

    used: for each data, the names in `defaults` that it uses. shared: defaults of the
    arguments of all data. defaults: those of the other arguments.
    """
    arg = jc.parse_arg(text, WHERE, **shared, **defaults)
    errors.check_known(WHERE, arg.data, used, "data")
    jc.check_applicable(text, arg.data, shared, used, WHERE)
    required = _REQUIRED.get(arg.data, "root")
    if required and not getattr(arg, required):
        raise ValueError(f"{WHERE}: data={arg.data} needs {required}=<directory>")
    return arg


# The required argument of data that do not require `root`.
_REQUIRED = types.MappingProxyType({"cues": "", "shapes": "", "stimuli": "stimuli"})


def run_options() -> dict[str, Any]:
    """Return the default entries of a suite's `run`."""
    return dict(
        batch=0,  # 0: 256 on accelerators, 32 on a CPU.
        precision="auto",  # bfloat16 on accelerators.
        agree=256,  # Images that are also run in float32, to compare with bfloat16.
        decisions=True,
        devices=0,
        gib=16.0,
        threads=0,
        energy=dict(watts=0.0, share=1.0, pue=1.0, intensity=0.0),
    )


def people_sets(data: str, options: Mapping[str, Any]) -> dict[str, dict]:
    """Return the set for comparison with people: 50 images of each of 16 classes.

    data: as in the suite's arguments; only ImageNet has such a set, other data get {}.
    options: further options of the set.
    """
    if data != "imagenet":
        return {}
    return {"imagenet16_people": dict(options, data="imagenet16", each=50)}


def suppression_measures(
    arg: types.SimpleNamespace, clean: str, size: int
) -> dict[str, Any]:
    """Return the measures of feature suppression.

    clean: name of the set whose images are changed. size: image side in pixels. For
    ImageNet also the conditions shown to people, on its 16 classes.
    """
    is_small = size <= 64
    suppression = dict(sets=(clean,), images=arg.images)
    if is_small:
        suppression.update(families=WITHOUT_BLUR, reference=64)
    measures = {"suppression": suppression}
    for name in people_sets(arg.data, {}):
        suppression_people = dict(
            probe="suppression",
            sets=(name,),
            families=("people",),
            aggregates=("sum_prob",),
            images=arg.images,
        )
        if is_small:
            suppression_people["reference"] = 64
        measures["suppression_people"] = suppression_people
    return measures
