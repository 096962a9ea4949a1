"""What a model of another framework says about the preprocessing of its images.

`read` asks a module: timm's `pretrained_cfg`, or an attribute such as `preprocess`.
`parse` reads a description itself: timm's dictionary, the transforms of torchvision's
weights, an image processor of transformers, a Compose of such transforms. `resolve` joins
what a caller says with what the model says, and keeps where each value is from.

Mean and deviation are applied to images by predictors.Predictor. Size, crop and
interpolation belong to a suite's sets, which all of its networks share: of these `describe`
says what the model asks for.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jbias import config as jc
from jbias.runtime import messages

# Attributes of a module that describe its preprocessing; the first that is there counts.
_OF_TIMM = ("pretrained_cfg", "default_cfg")
ATTRIBUTES = (
    *_OF_TIMM,
    "preprocess_cfg",
    *("preprocess", "image_processor", "processor", "transforms"),
)
_WRAPPED = (
    "module",
    "_orig_mod",
    "of",
    "visual",
)  # What a wrapper holds its module as.
_DEPTH = 4  # Of wrappers in each other.
# The names of one thing in timm, torchvision, open_clip and transformers.
_NAMES = {
    "mean": ("mean", "image_mean"),
    "std": ("std", "image_std"),
    "size": ("crop_size", "input_size", "size", "image_size"),
    "interpolation": ("interpolation", "resample"),
    "crop": ("crop_pct",),
    "resize": ("resize_size",),
}
_PILLOW = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box"}
_BYTES = 1 / 255  # By what processors make numbers in [0, 1] of bytes.
# Steps of a Compose without a number that matters here.
_PLAIN_STEPS = ("ToTensor", "MaybeToTensor", "ToImage", "ToDtype", "PILToTensor")
_PLAIN_STEPS += ("ConvertImageDtype", "function", "Lambda", "RGB")


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """What is done to the images of a network.

    values: by name ("mean", "std": three numbers; "size": pixels; "crop": the side of the
    crop by that of the resized image; "interpolation") what is said. origins: by the same
    names, who says so. others: contradictions, and steps that could not be read, in words.
    """

    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    origins: Mapping[str, str] = dataclasses.field(default_factory=dict)
    others: tuple[str, ...] = ()


def read(model: Any) -> Preprocessing:
    """Return what a module, or what it wraps, says of its preprocessing; nothing if silent.

    ValueError where timm's configuration says something that cannot be. Another attribute
    may only have such a name: what cannot be read is named among `others`.
    """
    unread = []
    for _ in range(_DEPTH):
        for name in ATTRIBUTES:
            source = getattr(model, name, None)
            if source is None or _is_own_method(model, source):
                continue
            if type(source).__name__ == "Normalize" and hasattr(model, "named_modules"):
                # A layer, which the module itself applies, or nobody does.
                told = f"the module's own layer {name}, which normalises, is not read: give"
                told += " mean=0, std=1 if it is part of forward, else its numbers"
                return Preprocessing(others=(told,))
            try:
                found = parse(source, name)
            except (ValueError, TypeError, AttributeError) as error:
                if name in _OF_TIMM:
                    raise
                unread.append(
                    f"attribute {name} is not read ({messages.shorten(error)})"
                )
                continue
            if found.values:
                return found
        inner = (getattr(model, name, None) for name in _WRAPPED)
        inner = [one for one in inner if one is not None]
        if not inner:
            break
        model = inner[0]
    return Preprocessing(others=tuple(unread))


def _is_own_method(model: Any, source: Any) -> bool:
    """Return whether an attribute is a method of the model, which describes nothing."""
    return getattr(source, "__self__", None) is model


def parse(source: Any, origin: str = "preprocess=") -> Preprocessing:
    """Return what a description says; see the head of this file for what it may be.

    origin: what the values are said to be from. ValueError for values that cannot be.
    """
    if isinstance(source, Preprocessing):
        return source
    if isinstance(getattr(source, "transforms", None), functools.partial):
        source = source.transforms  # Of weights of torchvision.
    if isinstance(source, functools.partial):
        source = source()
    steps = getattr(source, "transforms", None)
    if isinstance(steps, Sequence):
        told, others = _of_steps(steps)
    else:
        told, others = _of_fields(source), ()
    values = {key: _checked(origin, key, value) for key, value in told.items()}
    resized = values.pop("resize", 0)
    if resized and "size" in values and "crop" not in values:
        values["crop"] = round(values["size"] / resized, 4)
    others = tuple(f"{origin} has {one}, which is not applied" for one in others)
    return Preprocessing(values, dict.fromkeys(values, origin), others)


def _of_fields(source: Any) -> dict[str, Any]:
    """Return what the entries of a dictionary, or the attributes of an object, say."""

    def get(name: str) -> Any:
        if isinstance(source, Mapping):
            return source.get(name)
        return getattr(source, name, None)

    found = {}
    for key, names in _NAMES.items():
        told = (get(name) for name in names)
        told = [one for one in told if one is not None and not callable(one)]
        if told:
            found[key] = told[0]
    size = get("size")
    if get("do_center_crop") is False:
        found["size"] = size or found.get("size")
    elif get("crop_size") and isinstance(size, Mapping) and "shortest_edge" in size:
        found["resize"] = size["shortest_edge"]
    if get("do_normalize") is False:
        found |= {"mean": 0.0, "std": 1.0}
    scale = get("rescale_factor")
    if scale is not None and get("do_rescale") is not False and "mean" in found:
        # Mean and deviation are of bytes times that factor.
        times = _BYTES / float(scale)
        if abs(times - 1) > 1e-6:
            for key in ("mean", "std"):
                found[key] = (np.asarray(found[key], float) * times).tolist()
    return found


def _of_steps(steps: Sequence) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what the steps of a Compose say, and those that cannot be read, by name."""
    found, others = {}, []
    for step in steps:
        kind = type(step).__name__
        if kind == "Normalize":
            found |= {"mean": step.mean, "std": step.std}
        elif kind == "Resize":
            found["resize"] = found["size"] = step.size
            found["interpolation"] = getattr(step, "interpolation", None)
        elif kind == "CenterCrop":
            found["size"] = step.size
        elif kind not in _PLAIN_STEPS:
            others.append(kind)
    return {key: x for key, x in found.items() if x is not None}, tuple(others)


def _checked(origin: str, key: str, value: Any) -> Any:
    """Return a value in one form; ValueError where it cannot be."""
    where = f"{origin}: {key}" if origin else key
    if key in ("mean", "std"):
        return constants(where, value, positive=key == "std")
    if key == "interpolation":
        return _interpolation(value)
    if isinstance(value, Mapping):  # Of transformers.
        value = [*value.values()]
    try:
        numbers = np.atleast_1d(np.asarray(value, float)).ravel()
    except (TypeError, ValueError):
        numbers = np.zeros(0)
    if not (numbers.size and np.isfinite(numbers).all() and (numbers > 0).all()):
        jc.refuse(where, "be numbers above 0", value)
    number = float(numbers[-1])  # Of (channels, height, width) the width.
    return number if key == "crop" else round(number)


def constants(where: str, value: Any, *, positive: bool) -> tuple[float, float, float]:
    """Return three numbers of one or three; ValueError for others.

    positive: whether they divide, so that none may be 0 or less.
    """
    try:
        numbers = np.asarray(value, float).ravel()
    except (TypeError, ValueError):
        numbers = np.zeros(0)
    fits = numbers.size in (1, 3) and np.isfinite(numbers).all()
    if not fits or positive and not (numbers > 0).all():
        jc.refuse(where, f"be three numbers, or one{', above 0' * positive}", value)
    # Seven digits: what was meant before it became float32.
    told = [float(f"{x:.7g}") for x in np.broadcast_to(numbers, 3)]
    return told[0], told[1], told[2]


def _interpolation(value: Any) -> str:
    value = getattr(value, "value", value)
    return _PILLOW.get(value, str(value)) if isinstance(value, int) else str(value)


def resolve(
    said: Preprocessing, explicit: Mapping[str, Any], defaults: Mapping[str, Any]
) -> Preprocessing:
    """Return what is applied: what the caller says, else the model, else the default.

    explicit: by name what the caller gives; None is nothing. Where the model says otherwise,
    that is kept in words. defaults: by name.
    """
    values, origins, others = dict(said.values), dict(said.origins), list(said.others)
    for key, value in defaults.items():
        if key not in values:
            values[key], origins[key] = value, "by default: the model says nothing"
    for key, value in explicit.items():
        if value is None:
            continue
        given = _checked("", key, value)
        if key in said.values and not np.allclose(given, said.values[key], atol=1e-6):
            own = f"{said.origins[key]} says {format_value(said.values[key])}"
            others.append(f"{key}={format_value(given)} was given, while {own}")
        values[key], origins[key] = given, f"{key}="
    values = {key: _checked(origins[key], key, value) for key, value in values.items()}
    return Preprocessing(values, origins, tuple(others))


def format_value(value: Any) -> str:
    """Return a value in a few letters; of three equal numbers one."""
    if isinstance(value, str):
        return value
    numbers = [f"{x:.6g}" for x in np.atleast_1d(value)]
    return numbers[0] if len({*numbers}) == 1 else " ".join(numbers)


def describe(told: Preprocessing, size: int, sets: Sequence[str] = ()) -> str:
    """Return one line: what is done to a network's images, and who says so.

    size: of the suite's images, in pixels. sets: how the suite's sets are prepared, in
    words, each once.
    """
    prepared = f"images of {size} pixels (the suite's"
    prepared += f": {' / '.join(sets[:3])}" * bool(sets)
    prepared += f" and {len(sets) - 3} other ways" * (len(sets) > 3) + ")"
    parts = [prepared, *_asked(told, size)]
    constant = [key for key in ("mean", "std") if key in told.values]
    parts += [
        f"{key} {format_value(told.values[key])} ({told.origins[key]})"
        for key in constant
    ]
    if not constant:
        parts.append("in [0, 1], nothing taken off (by default for a function)")
    return "; ".join([*parts, *told.others])


def _asked(told: Preprocessing, size: int) -> Iterator[str]:
    """Yield what the model asks of size, crop and interpolation, which sets decide."""
    asked = []
    if "size" in told.values and told.values["size"] != size:
        asked.append(f"{told.values['size']} pixels ({told.origins['size']})")
    for key, words in (("crop", "crop fraction "), ("interpolation", "")):
        if key in told.values:
            value = format_value(told.values[key])
            asked.append(f"{words}{value} ({told.origins[key]})")
    if asked:
        yield f"not applied, as the suite's sets decide: {', '.join(asked)}"
