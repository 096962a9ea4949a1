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
# What feature suppression shows of small images, which a blur as published leaves as they
# are.
WITHOUT_BLUR = (
    *("people", "shuffle", "rotation", "bilateral", "non_local_means", "grey"),
    *("channel_shuffle", "shuffle_grey", "bilateral_shuffle", "bilateral_12_shuffle"),
    "bilateral_grey",
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
    needed = _NEEDED.get(arg.data, "root")
    if needed and not getattr(arg, needed):
        raise ValueError(f"{WHERE}: data={arg.data} needs {needed}=<directory>")
    return arg


# The argument that data cannot do without, where that is not root.
_NEEDED = types.MappingProxyType({"shapes": "", "stimuli": "stimuli"})


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


def people_sets(data: str, own: Mapping[str, Any]) -> dict[str, dict]:
    """As many images of ImageNet's 16 classes as people saw without cues: 50 of each."""
    people = dict(own, data="imagenet16", each=50)
    return {"imagenet16_people": people} if data == "imagenet" else {}


def suppression_measures(
    arg: types.SimpleNamespace, clean: str, size: int
) -> dict[str, Any]:
    """Feature suppression on a set; on ImageNet's 16 classes what people saw, too."""
    small = size <= 64
    shown = dict(images=arg.images, **(dict(reference=64) if small else {}))
    some = dict(families=WITHOUT_BLUR) if small else {}
    found = {"suppression": dict(sets=(clean,), **some, **shown)}
    for name in people_sets(arg.data, {}):
        found["suppression_people"] = dict(
            probe="suppression",
            sets=(name,),
            families=("people",),
            aggregates=("sum_prob",),
            **shown,
        )
    return found
