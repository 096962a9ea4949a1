"""What is compiled, each in a line of text: the rows of `benchmarks.compiled`.

    SETTING/ALGORITHM[,OPTION=VALUE...][+INPUT...][*SEEDS:STRATEGY][/evaluate[/folded]]

such as cifar16/erm, imagenet/padain,p=0.05, cifar16/erm+flip+mixup, cifar64/erm*10:vmapped
or imagenet/erm/evaluate, with batch norms as they are, and imagenet/erm/evaluate/folded, with
batch norms folded into convolutions; pixels/erm+mixup is what the network is given. Instead of
an algorithm there are `flax`, the ResNet-50 of Flax's example for ImageNet, and `bare`, the
least that a step of that network can be; `vmem=N` of these is a TPU's vector memory that an
operation may take, in KiB (jbias.runtime.xla.compiler_options).
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

    model: Mapping[str, Any]  # Empty: its inputs alone.
    size: int  # Pixels of a side.
    classes: int
    batch: int  # Of one seed on one device.
    held: int  # Images that lie on the device; 0: each batch is sent there.


def _cifar(width: int, batch: int = 128, held: int = 50_000) -> Setting:
    model = dict(name="resnet18", width=width, stem="small")
    return Setting(model, 32, 10, batch, held)


SETTINGS: Mapping[str, Setting] = types.MappingProxyType(
    {
        "tiny": _cifar(4, 32, 1_000),
        "cifar16": _cifar(16),
        "cifar64": _cifar(64),
        "imagenet": Setting(dict(name="resnet50"), 224, 1000, 128, 0),
        # What a network is given at ImageNet's size, without one.
        "pixels": Setting({}, 224, 1000, 128, 0),
    }
)
# What an algorithm or an input must be told, or has in its preset.
_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "debiased": dict(transfer="recoloured"),  # That of a network is the latter's cost.
    "half": dict(which="bottom", mix=dict(name="mixup")),
    "random_masks": dict(spectrum="released"),
    "standardise_as": dict(mean=(0.5,), std=(0.5,), as_mean=(0.4,), as_std=(0.2,)),
    "stylize": dict(transfer=dict(name="small")),
}
# Inputs without which an algorithm has no meaning; those of simclr's preset.
_NEEDED = {"simclr": ("views", "random_resized_crop", "flip", "colour_jitter")}
_OTHER = ("pixmix", "replace")  # They take a second set.


@dataclasses.dataclass(frozen=True)
class Row:
    """One program of one setting."""

    name: str
    setting: Setting
    algo: str  # Or one of PEERS.
    options: Mapping[str, Any]  # Of the algorithm.
    inputs: tuple[Mapping[str, Any], ...]
    seeds: int
    strategy: str
    evaluates: bool
    folds: bool  # Whether batch norms are folded into convolutions in evaluation.

    @property
    def other(self) -> bool:
        """Whether it takes a second set."""
        return any(one["name"] in _OTHER for one in self.inputs)

    @property
    def taken(self) -> float:
        """The chance of the algorithm's gates, as it is told or by itself."""
        make = algos.ALGOS.get(self.algo)
        known = inspect.signature(make).parameters if make else {}
        default = known["p"].default if "p" in known else 0.5
        return float(self.options.get("p", default))


_ROW = re.compile(
    r"(?P<setting>\w+)/(?P<algo>\w+)(?P<options>(?:,\w+=[^,+*/]+)*)"
    r"(?P<inputs>(?:\+\w+)*)(?:\*(?P<seeds>\d+):(?P<strategy>\w+))?"
    r"(?P<what>/evaluate)?(?P<folds>(?<=/evaluate)/folded)?"
)


def parse(text: str) -> Row:
    """Reads a row; ValueError for one that cannot be."""
    found = _ROW.fullmatch(text)
    if not found:
        raise ValueError(
            f"row: must be like cifar16/erm+mixup*10:vmapped, got {text!r}"
        )
    names = [name for name in found["inputs"].split("+") if name]
    algo, setting = found["algo"], found["setting"]
    for kind, name, known in (
        ("setting", setting, SETTINGS),
        ("algorithm", algo, (*algos.ALGOS, *PEERS)),
        *(("input", name, augment.AUGMENTS) for name in names),
    ):
        if name not in known:
            raise ValueError(
                f"row: the {kind} must be one of {', '.join(known)}, got {name!r}"
            )
    given = (one.split("=") for one in found["options"].split(",") if one)
    inputs = ((*_NEEDED.get(algo, ()), *names)) if not found["what"] else ()
    return Row(
        name=text,
        setting=SETTINGS[setting],
        algo=algo,
        options={**_OPTIONS.get(algo, {}), **{k: _value(v) for k, v in given}},
        inputs=tuple({"name": name, **_OPTIONS.get(name, {})} for name in inputs),
        seeds=int(found["seeds"] or 1),
        strategy=found["strategy"] or "looped",
        evaluates=bool(found["what"]),
        folds=bool(found["folds"]),
    )


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


TEN = ("looped", "vmapped", "unrolled", "unrolled_convolutions")
# Whose goals are those of a ResNet-50.
LARGE = (
    *("erm", "flax", "flax,vmem=32768", "bare", "padain", "sagnet", "debiased"),
    *("infodrop", "dsu", "mixstyle", "efdmix", "erm/evaluate", "erm/evaluate/folded"),
)
SMALL = (
    *algos.ALGOS,
    *(f"erm*10:{how}" for how in TEN),
    *("erm/evaluate", "erm/evaluate/folded"),
)
INPUTS = ("erm", *(f"erm+{name}" for name in augment.AUGMENTS))
# The most important first.
ROWS = (
    *(f"cifar16/{name}" for name in SMALL),
    *(f"cifar64/erm{how}" for how in ("", *(f"*10:{how}" for how in TEN))),
    *(f"imagenet/{name}" for name in LARGE),
    *(f"pixels/{name}" for name in INPUTS),
    *(f"tiny/{name}" for name in algos.ALGOS),
)
# Whose collectives are counted where a target has many devices.
SHARED = tuple(f"tiny/{name}" for name in algos.ALGOS)
