"""What was measured of many models: biases and benchmarks in one frame.

Source: Gavrikov and Keuper, CVPR 2024, https://arxiv.org/abs/2404.01509.
"""

import dataclasses
import math
import re
import types
from collections.abc import Mapping, Sequence

import pandas as pd

from jbias.evals import corruption_error
from jbias.report import csv_rows

AT = "adversarial_training"
# What each average is the unweighted mean of: for models of ImageNet, as published.
MEMBERS = corruption_error.CATEGORIES
# For others, such as those of the embedded set.
OTHERS = types.MappingProxyType(
    {
        "ID": ("test", "val"),
        "Robustness": ("corrupted", "imagenet_c", "imagenet_cbar"),
        "Concepts": ("sketch", "edge", "silhouette", "stylized", "recoloured"),
        "Adversarial": ("pgd",),
    }
)
BIASES = ("shape", "low_freq", "high_freq", "cb_bw", "cb_cf", "cb_pns")
FEW = 10  # Decisions for either cue; a shape bias of fewer says next to nothing.
# Where no shape of a band can be fitted the reference prints a width of 11295.35.
DEGENERATE = 1_000.0
TITLES = types.MappingProxyType(
    {
        "imagenet": "ImageNet",
        "imagenet_real": "ReaL",
        "imagenet_v2": "ImageNet-v2",
        "imagenet_a": "ImageNet-A",
        "imagenet_c": "ImageNet-C",
        "imagenet_cbar": "ImageNet-C-bar",
        "imagenet_r": "ImageNet-R",
        "imagenet_sketch": "ImageNet-Sketch",
        "stylized16": "Stylized (16)",
        "pgd": "PGD",
        "shape": "shape bias",
        "shape_lower": "from",
        "shape_upper": "to",
        "shape_n": "of",
        "low_freq": "low-frequency bias",
        "high_freq": "high-frequency bias",
        "cb_bw": "bandwidth",
        "cb_cf": "centre frequency",
        "cb_pns": "peak noise sensitivity",
        "cb_bw_raw": "bandwidth, not normalised",
        "cb_cf_raw": "centre frequency, not normalised",
        "cb_pns_raw": "peak noise sensitivity, not normalised",
        "all": "all",
        AT: "adversarial training",
        f"not {AT}": "not adversarial training",
        "training_recipes": "training recipes",
        "epsilon": "ε",
    }
)


@dataclasses.dataclass(frozen=True, eq=False)
class Models:
    """One row a model.

    frame: index model; name, training (its category), epsilon (strength of adversarial
      training, NaN without), benchmarks and averages in %, biases, low_<c> and high_<c>
      (accuracy ratio at a cut-off), threshold_<f> (of the critical band, at nominal
      cycles per image); where known, shape_n, the decisions for either cue that a shape
      bias is of, and shape_lower and shape_upper, its interval of 95 %.
    """

    source: str
    frame: pd.DataFrame
    members: Mapping[str, tuple[str, ...]]  # Of each average, those that are there.
    biases: tuple[str, ...]
    told: tuple[str, ...] = ()  # What a reader must know of these numbers.
    counted: tuple[str, ...] = ()  # Of that, what counts as a model.
    made: pd.DataFrame | None = None  # How each column was measured, where it is known.
    # What is known to be wrong with them, by section of the page.
    anomalies: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    @property
    def benchmarks(self) -> tuple[str, ...]:
        return sum(self.members.values(), ())

    def places(self, kind: str) -> dict[str, float]:
        """Gives the columns "low_0.1", ... of a kind with the numbers in their names."""
        found = {
            name: float(name.removeprefix(f"{kind}_"))
            for name in self.frame
            if re.fullmatch(rf"{kind}_[\d.]+", name)
        }
        return dict(sorted(found.items(), key=lambda one: one[1]))


def build(
    frame: pd.DataFrame,
    *,
    source: str,
    counted: Sequence[str] = (),
    told: Sequence[str] = (),
    anomalies: Mapping[str, tuple[str, ...]] | None = None,
    made: pd.DataFrame | None = None,
) -> Models:
    """Adds the averages to a frame of models; says what is absent.

    A benchmark that no model has is no member. A model that lacks one of its members has no
    average: a mean over other sets is another measure. Raises ValueError where no bias or
    no benchmark is left.
    """
    frame = frame.dropna(axis=1, how="all").copy()
    if "epsilon" not in frame:
        frame["epsilon"] = math.nan
    members = {
        name: tuple(one for one in ones if one in frame)
        for name, ones in (MEMBERS if "imagenet" in frame else OTHERS).items()
    }
    members = {name: ones for name, ones in members.items() if ones}
    biases = tuple(name for name in BIASES if name in frame)
    for kind, found in (("bias", biases), ("benchmark", members)):
        if not found:
            raise ValueError(f"{source}: must have at least one {kind}, got none")
    averages = {
        name: frame[list(ones)].mean(axis=1, skipna=False)
        for name, ones in members.items()
    }
    frame = frame.assign(**averages)
    wanted = sum(MEMBERS.values(), ()) if "imagenet" in frame else tuple(OTHERS)
    absent = [name for name in (*BIASES, *wanted) if name not in frame]
    told = [*counted, *told, *_absent(absent), *_lacking(frame, members, biases)]
    told += few(frame["shape_n"].dropna().to_dict() if "shape_n" in frame else {})
    return Models(
        source=source,
        frame=frame,
        members=members,
        biases=biases,
        told=tuple(told),
        counted=tuple(counted),
        made=made,
        anomalies=anomalies or {},
    )


def few(decisions: Mapping[str, float]) -> list[str]:
    """Names models whose shape bias is of few decisions."""
    names = [f"{name} ({n:.0f})" for name, n in decisions.items() if n < FEW]
    if not names:
        return []
    told = (
        f"Shape bias of fewer than {FEW} decisions for either cue says next to nothing"
    )
    return [f"{told}: {', '.join(names)}."]


def decisions(n: float) -> str:
    """Shows how many decisions a shape bias is of, with * if they are few."""
    return f"{n:,.0f}" + ("*" if n < FEW else "")


def _absent(names: Sequence[str]) -> list[str]:
    if not names:
        return []
    titles = ", ".join(TITLES.get(name, name) for name in names)
    return [f"Not measured, or undefined for every model: {titles}."]


def _lacking(frame: pd.DataFrame, members, biases) -> list[str]:
    lacks: dict[tuple[str, ...], list[str]] = {}
    for name in (*sum(members.values(), ()), *biases):
        missing = tuple(frame.index[frame[name].isna()])
        lacks.setdefault(missing, []).append(TITLES.get(name, name))
    return [
        f"{', '.join(names)}: {len(models)} of {len(frame)} models have none and are left "
        f"out of what needs it: {', '.join(models[:4])}"
        f"{' and others' if len(models) > 4 else ''}."
        for models, names in lacks.items()
        if models
    ]


def read_kinds(path: str) -> pd.DataFrame:
    """Reads model, name, training and, if any, epsilon of models: one line each.

    Raises ValueError by file and line.
    """
    head, lines = csv_rows.read(path)
    missing = [name for name in ("model", "name", "training") if name not in head]
    if missing:
        raise ValueError(
            f"{path}:1: must name the column {missing[0]!r}, and names {', '.join(head)}"
        )
    rows: dict[str, dict] = {}
    for place, fields in lines:
        model = fields["model"]
        if not model or not fields["training"] or model in rows:
            raise ValueError(
                f"{place}: model and training must not be empty, and a model must occur "
                f"once, got {model!r}"
            )
        rows[model] = {
            "name": fields["name"] or model,
            "training": fields["training"],
            "epsilon": number(fields.get("epsilon", ""), "epsilon", place),
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def number(field: str, name: str, place: str) -> float:
    """Reads a number; an empty field is NaN."""
    try:
        value = float(field) if field else math.nan
    except ValueError:
        value = math.inf
    if math.isinf(value):
        raise ValueError(f"{place}: {name} must be a finite number, got {field!r}")
    return value
