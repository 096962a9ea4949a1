"""Rows of `benchmarks.compiled`: each names one program in a line of text.

    SETTING/ALGORITHM[,OPTION=VALUE...][+INPUT...][*SEEDS:STRATEGY][/evaluate[/folded]]

Examples: cifar16/erm, imagenet/padain,p=0.05, cifar16/erm+flip+mixup, cifar64/erm*10:vmapped.
imagenet/erm/evaluate evaluates the network with its batch norms, imagenet/erm/evaluate/folded
with batch norms folded into convolutions. pixels/erm+mixup compiles the inputs without a
network. The option sharpness=RADIUS of any algorithm adds SAM: cifar16/erm,sharpness=0.05;
average=NAME keeps an average of weights with its default options: cifar16/erm,average=uniform.
Training steps are step 5 of 10, counted from 0. step=N compiles step N of 10, for algorithms
whose steps differ: cifar16/dann trains the discriminator, cifar16/dann,step=4 the network.
Two peers may replace the algorithm: `flax`, the ResNet-50 of Flax's example for ImageNet, and
`bare`, a minimal step of the same network. For peers, `vmem=N` sets the vector memory in KiB
that one operation may use on a TPU (jbias.runtime.xla.compiler_options).
"""

import ast
import dataclasses
import inspect
import re
import types
from collections.abc import Mapping
from typing import Any

from jbias import algos, augment

PEERS = ("flax", "bare")


@dataclasses.dataclass(frozen=True)
class Setting:
    """A network of jbias.models, its images, and how they are fed."""

    model: Mapping[str, Any]  # Empty: compile the inputs without a network.
    size: int  # Pixels of a side.
    classes: int
    batch: int  # Images per seed and device.
    resident: int  # Images stored on the device; 0: each batch is sent there.


def _cifar(width: int, batch: int = 128, resident: int = 50_000) -> Setting:
    model = dict(name="resnet18", width=width, stem="small")
    return Setting(model, size=32, classes=10, batch=batch, resident=resident)


SETTINGS: Mapping[str, Setting] = types.MappingProxyType(
    {
        "tiny": _cifar(4, 32, 1_000),
        "cifar16": _cifar(16),
        "cifar64": _cifar(64),
        "imagenet": Setting(
            dict(name="resnet50"), size=224, classes=1000, batch=128, resident=0
        ),
        # The inputs alone, at ImageNet's size.
        "pixels": Setting({}, size=224, classes=1000, batch=128, resident=0),
    }
)
# Required options of algorithms and inputs, and options of their presets.
_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    # A style network's cost would hide the algorithm's cost.
    "debiased": dict(transfer="recoloured"),
    "half": dict(which="bottom", mix=dict(name="mixup")),
    "random_masks": dict(spectrum="released"),
    "standardise_as": dict(mean=(0.5,), std=(0.5,), as_mean=(0.4,), as_std=(0.2,)),
    "stylize": dict(transfer=dict(name="small")),
}
# Inputs that an algorithm needs; for simclr those of its preset.
_NEEDED = {"simclr": ("views", "random_resized_crop", "flip", "colour_jitter")}
_INPUTS_WITH_SECOND_SET = ("pixmix", "replace")


@dataclasses.dataclass(frozen=True)
class Row:
    """A program to compile: a training step, an evaluation, or inputs alone."""

    name: str
    setting: Setting
    algo: str  # A key of algos.ALGOS or one of PEERS.
    options: Mapping[str, Any]  # Options of the algorithm.
    inputs: tuple[Mapping[str, Any], ...]
    seeds: int
    strategy: str
    evaluates: bool
    folds: bool  # Whether batch norms are folded into convolutions in evaluation.
    sharpness: float = 0.0  # Radius of SAM; 0: none.
    average: str = ""  # Name of an average of weights; "": none.
    step: int = 5  # Number of the training step, counted from 0, of 10 steps.

    @property
    def has_second_set(self) -> bool:
        """True if an input mixes in images of a second set."""
        return any(entry["name"] in _INPUTS_WITH_SECOND_SET for entry in self.inputs)

    @property
    def branch_chance(self) -> float:
        """The chance that the algorithm's conditional branch runs in a step."""
        make = algos.ALGOS.get(self.algo)
        known = inspect.signature(make).parameters if make else {}
        default = known["p"].default if "p" in known else 0.5
        return float(self.options.get("p", default))


_ROW = re.compile(
    r"(?P<setting>\w+)/(?P<algo>\w+)(?P<options>(?:,\w+=[^,+*/]+)*)"
    r"(?P<inputs>(?:\+\w+)*)(?:\*(?P<seeds>\d+):(?P<strategy>\w+))?"
    r"(?P<evaluate>/evaluate)?(?P<folds>(?<=/evaluate)/folded)?"
)


def parse(text: str) -> Row:
    """Return the row that `text` names; raise ValueError if it is malformed."""
    match = _ROW.fullmatch(text)
    if not match:
        raise ValueError(
            f"row: must be like cifar16/erm+mixup*10:vmapped, got {text!r}"
        )
    names = [name for name in match["inputs"].split("+") if name]
    algo, setting = match["algo"], match["setting"]
    for kind, name, known in (
        ("setting", setting, SETTINGS),
        ("algorithm", algo, (*algos.ALGOS, *PEERS)),
        *(("input", name, augment.AUGMENTS) for name in names),
    ):
        if name not in known:
            raise ValueError(
                f"row: the {kind} must be one of {', '.join(known)}, got {name!r}"
            )
    options = dict(_OPTIONS.get(algo, {}))
    for option in filter(None, match["options"].split(",")):
        key, value = option.split("=")
        options[key] = _value(value)
    radius, average = options.pop("sharpness", 0.0), options.pop("average", "")
    step = options.pop("step", 5)
    inputs = () if match["evaluate"] else (*_NEEDED.get(algo, ()), *names)
    return Row(
        name=text,
        setting=SETTINGS[setting],
        algo=algo,
        options=options,
        inputs=tuple({"name": name, **_OPTIONS.get(name, {})} for name in inputs),
        seeds=int(match["seeds"] or 1),
        strategy=match["strategy"] or "looped",
        evaluates=bool(match["evaluate"]),
        folds=bool(match["folds"]),
        sharpness=radius,
        average=average,
        step=step,
    )


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


# Strategies that are compared for ten seeds.
STRATEGIES = ("looped", "vmapped", "unrolled", "unrolled_convolutions")
# Rows with goals for a ResNet-50.
LARGE = (
    "erm",
    "flax",
    "flax,vmem=32768",
    "bare",
    "padain",
    "sagnet",
    "debiased",
    "infodrop",
    "dsu",
    "mixstyle",
    "efdmix",
    "erm/evaluate",
    "erm/evaluate/folded",
)
SMALL = (
    *algos.ALGOS,
    "cdann,step=4",
    "dann,step=4",
    "erm,sharpness=0.05",
    *(f"erm*10:{strategy}" for strategy in STRATEGIES),
    "erm/evaluate",
    "erm/evaluate/folded",
)
INPUTS = ("erm", *(f"erm+{name}" for name in augment.AUGMENTS))
# The most important first.
ROWS = (
    *(f"cifar16/{name}" for name in SMALL),
    "cifar64/erm",
    *(f"cifar64/erm*10:{strategy}" for strategy in STRATEGIES),
    *(f"imagenet/{name}" for name in LARGE),
    *(f"pixels/{name}" for name in INPUTS),
    *(f"tiny/{name}" for name in algos.ALGOS),
)
# Default rows for targets of several devices, whose collectives are counted.
SHARED = tuple(f"tiny/{name}" for name in algos.ALGOS)
