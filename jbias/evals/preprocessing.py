"""What a model of another framework says about the preprocessing of its images.

`read` asks a module: timm's `pretrained_cfg`, or an attribute such as `preprocess`.
`parse` reads a description itself: timm's dictionary, the transforms of torchvision's
weights, an image processor of transformers, a Compose or a list of such transforms.
`resolve` joins what a caller says with what the model says, and keeps where each value is
from.

Mean and deviation are applied to images by predictors.Predictor. Size, crop and
interpolation belong to a suite's sets, which all of its networks share: of these `describe`
says what the model asks for.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

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
    "fit": ("crop_mode",),
}
# How an image becomes square, as decoding.FITS has it, by timm's name.
_FITS = {"center": "crop", "squash": "squeeze", "border": "border"}
_PILLOW = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box"}
_SIDES = ("shortest_edge", "width", "height", "longest_edge")  # Which counts first.
_BYTES = 1 / 255  # By what processors make numbers in [0, 1] of bytes.
_OFFSETS = ("rescale_offset", "do_offset", "offset")  # 1 is taken off what is rescaled.
# What processors do to pixels beyond a mean and a deviation.
_OTHER_FIELDS = ("do_flip_channel_order", "do_color_quantize", "do_grayscale")
_OF_PROCESSORS = ("do_rescale", "rescale_factor", "do_normalize")
# Steps of a Compose that make images of numbers: in [0, 1], or bytes as they are.
_TO_UNIT = ("ToTensor", "MaybeToTensor", "ConvertImageDtype")
_TO_BYTES = ("ToImage", "PILToTensor", "MaybePILToTensor", "ToTensorV2")
_PLAIN_STEPS = ("RGB",)  # Steps that change no number.
_LISTS = ("Compose", "Sequential")  # Steps that hold others.


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """The preprocessing of a network's images.

    values: by name ("mean", "std": three numbers; "size": pixels; "resize": pixels of the
    short side before the crop; "crop": the side of the crop by that of the resized image;
    "interpolation"; "fit": one of data.decoding.FITS). origins: by the same names, where
    each value is from. others: contradictions and steps that could not be read, in words.
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
            if _is_normalising_layer(model, source):
                reason = (
                    f"the module's own layer {name}, which normalises, is not read: give "
                    "mean=0, std=1 if it is part of forward, else its numbers"
                )
                return Preprocessing(others=(reason,))
            try:
                parsed = _parse(source, name)
            except (ValueError, TypeError, AttributeError) as error:
                if name in _OF_TIMM:
                    raise
                unread.append(
                    f"attribute {name} is not read ({messages.shorten(error)})"
                )
                continue
            if parsed.values:
                return parsed
            if name not in _OF_TIMM and not hasattr(source, "named_modules"):
                kind = _kind_in_words(source)
                unread.append(f"attribute {name} is not read (it is {kind})")
        inner = (getattr(model, name, None) for name in _WRAPPED)
        inner = [one for one in inner if one is not None]
        if not inner:
            break
        model = inner[0]
    return Preprocessing(others=tuple(unread))


def _is_own_method(model: Any, source: Any) -> bool:
    """Return whether an attribute is a method of the model, which describes nothing."""
    return getattr(source, "__self__", None) is model


def _is_normalising_layer(model: Any, source: Any) -> bool:
    """Return whether an attribute is a layer that normalises: forward may apply it."""
    kind = type(source).__name__
    if not hasattr(model, "named_modules") or kind not in ("Normalize", "Sequential"):
        return False
    return any(type(step).__name__ == "Normalize" for step in _flat([source]))


def parse(source: Any, origin: str = "preprocess=") -> Preprocessing:
    """Return what a description says; see the head of this file for what it may be.

    origin: what the values are said to be from. ValueError for what is no description,
    for values that cannot be, and for what is done to pixels beyond mean and deviation.
    """
    parsed = _parse(source, origin)
    if not parsed.values and not isinstance(source, Preprocessing):
        must = (
            "describe mean and std, as timm's pretrained_cfg, an image processor or a "
            "Compose of transforms does"
        )
        remedy = "give mean= and std=, or let the model do its own preprocessing"
        raise ValueError(
            f"{origin}: must {must}, got {_kind_in_words(source)}; {remedy}"
        )
    return parsed


def _parse(source: Any, origin: str) -> Preprocessing:
    """Return what a description says; an empty Preprocessing if nothing is understood."""
    if isinstance(source, Preprocessing):
        return source
    if isinstance(getattr(source, "transforms", None), functools.partial):
        source = source.transforms  # Of weights of torchvision.
    if isinstance(source, functools.partial) and inspect.isclass(source.func):
        source = source()
    inner = _get(source, "image_processor")
    if inner is not None:  # Of a processor of images and texts.
        return _parse(inner, origin)
    steps, others = _steps_of(source), ()
    if steps is not None:
        told, others = _of_steps(steps, origin)
    elif inspect.isroutine(source) or inspect.isclass(source):
        told = {}
    else:
        told = _of_fields(source, origin)
    values = {key: _checked(origin, key, value) for key, value in told.items()}
    resized = values.get("resize", 0)
    if resized and "size" in values and "crop" not in values:
        values["crop"] = round(values["size"] / resized, 4)
    others = tuple(f"{origin} has {one}, which is not applied" for one in others)
    return Preprocessing(values, dict.fromkeys(values, origin), others)


def _get(source: Any, name: str) -> Any:
    """Return an entry of a dictionary, or an attribute of an object; None without it."""
    if isinstance(source, Mapping):
        return source.get(name)
    return getattr(source, name, None)


def _kind_in_words(source: Any) -> str:
    if isinstance(source, str):
        return repr(source)
    if isinstance(source, Mapping):
        keys = ", ".join(str(key) for key in [*source][:4])
        return f"a dict of {keys or 'nothing'}"
    name = getattr(source, "__name__", "") if callable(source) else ""
    return f"{type(source).__name__} {name}".strip()


class _Normalisation(NamedTuple):
    """(x - mean) / std, of images x in [0, 1]."""

    mean: np.ndarray
    std: np.ndarray

    def then(self, mean: Any, std: Any) -> "_Normalisation":
        """Return the one normalisation that equals this and then another."""
        mean, std = np.asarray(mean, float), np.asarray(std, float)
        return _Normalisation(self.mean + self.std * mean, self.std * std)

    @property
    def values(self) -> dict[str, Any]:
        """Return mean and std by name."""
        return {"mean": self.mean.tolist(), "std": self.std.tolist()}


_UNCHANGED = _Normalisation(np.zeros(3), np.ones(3))


def _of_fields(source: Any, origin: str) -> dict[str, Any]:
    """Return what the entries of a dictionary, or the attributes of an object, say."""
    get = functools.partial(_get, source)
    found = {}
    for key, names in _NAMES.items():
        values = [get(name) for name in names]
        values = [x for x in values if x is not None and not callable(x)]
        if values:
            found[key] = values[0]
    sides = _sides(get("size"))
    if get("do_center_crop") is False:
        found["size"] = get("size") or found.get("size")
    elif get("crop_size") and sides and "shortest_edge" in sides:
        found["resize"] = sides["shortest_edge"]
    elif get("crop_size") and sides and "height" in sides:
        found["resize"], found["fit"] = sides["height"], "squash"
    if sides and "height" in sides and "crop" not in found:
        found["fit"] = "squash"
    if any(get(name) is not None for name in _OF_PROCESSORS):
        found |= _of_processor(get, found, origin)
    elif "mean" in found:
        _refuse_mean_of_bytes(origin, found["mean"])
    return {key: value for key, value in found.items() if value is not None}


def _of_processor(
    get: Callable[[str], Any], found: Mapping[str, Any], origin: str
) -> dict[str, Any]:
    """Return mean and std that equal all steps of a processor of transformers.

    The processor rescales bytes, subtracts 1 if it has an offset, then normalises, twice
    for EfficientNet's `include_top`. ValueError for a step that is no normalisation.
    """
    for name in _OTHER_FIELDS:
        if get(name):
            raise ValueError(
                f"{origin}: pixels must be changed by mean and std alone, got "
                f"{name}={get(name)}, which is not applied; do it inside the model, and "
                "give mean= and std= instead"
            )
    mean, std = found.get("mean"), found.get("std")
    if get("do_normalize") is False:
        mean, std = 0.0, 1.0
    elif mean is None and get("do_normalize"):
        jc.refuse(f"{origin}: image_mean", "be three numbers, or one", mean)
    mean = np.asarray(_checked(origin, "mean", 0.0 if mean is None else mean))
    std = np.asarray(_checked(origin, "std", 1.0 if std is None else std))
    normalised = _rescaling(get, mean, std, origin).then(mean, std)
    if get("include_top") is True:
        again = _checked(origin, "std", get("image_std"))
        normalised = normalised.then(0.0, again)
    return normalised.values


def _rescaling(
    get: Callable[[str], Any], mean: np.ndarray, std: np.ndarray, origin: str
) -> _Normalisation:
    """Return the normalisation that a processor applies before mean and std.

    Without rescaling, images are bytes if mean or std is above 1, else in [0, 1].
    """
    scale = get("rescale_factor")
    if get("do_rescale") is False:
        if (mean == 0).all() and (std == 1).all():
            raise ValueError(
                f"{origin}: images must be in [0, 1] or bytes, got do_rescale=False with "
                "mean 0 and std 1, which leaves both open; give mean= and std= instead"
            )
        if max(mean.max(), std.max()) <= 1:
            return _UNCHANGED
        return _UNCHANGED.then(0.0, _BYTES)
    if scale is None:
        _refuse_mean_of_bytes(origin, mean)
        return _UNCHANGED
    scale = constants(f"{origin}: rescale_factor", scale, positive=True)
    rescaled = _UNCHANGED.then(0.0, _BYTES / np.asarray(scale))
    has_offset = any(get(name) is True for name in _OFFSETS)
    return rescaled.then(1.0, 1.0) if has_offset else rescaled


def _refuse_mean_of_bytes(origin: str, mean: Any) -> None:
    """Raise ValueError where a mean for images in [0, 1] is above 1."""
    numbers = constants(f"{origin}: mean", mean, positive=False)
    if max(numbers) > 1:
        remedy = "divide mean and std by 255 if they are of bytes"
        jc.refuse(f"{origin}: mean", "be of images in [0, 1]", numbers, remedy)


def _steps_of(source: Any) -> Sequence | None:
    """Return the steps of a list of transforms; None of anything else."""
    if isinstance(source, list | tuple):
        return source
    inner = getattr(source, "_modules", None)
    if type(source).__name__ == "Sequential" and isinstance(inner, Mapping):
        return [*inner.values()]
    steps = getattr(source, "transforms", None)
    is_list = isinstance(steps, Sequence) and not isinstance(steps, str)
    return steps if is_list else None


def _flat(steps: Sequence) -> Iterator[Any]:
    """Yield the steps, and those of a Compose among them."""
    for step in steps:
        is_list = isinstance(step, list | tuple) or type(step).__name__ in _LISTS
        inner = _steps_of(step) if is_list else None
        if inner is None:
            yield step
        else:
            yield from _flat(inner)


def _of_steps(steps: Sequence, origin: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what the steps of a Compose say, and those that cannot be read, by name.

    Without a Normalize, steps that make numbers of images say mean 0 and std 1.
    """
    found, others = {}, []
    normalised, has_bytes, has_numbers = _UNCHANGED, False, False
    for step in _flat(steps):
        kind = type(step).__name__
        if kind == "Normalize":
            normalised = normalised.then(*_of_normalize(step, origin, has_bytes))
            has_bytes, has_numbers = False, True
        elif kind == "Resize":
            side = _size_of_step(step)
            found["resize"] = found["size"] = side
            if isinstance(side, Sequence) and len(side) == 2:
                found["fit"] = "squash"
            found["interpolation"] = getattr(step, "interpolation", None)
        elif kind == "CenterCrop":
            found["size"] = _size_of_step(step)
        elif kind in _TO_UNIT or kind == "ToDtype":
            has_bytes = has_bytes and getattr(step, "scale", True) is False
            has_numbers = True
        elif kind in _TO_BYTES:
            has_bytes, has_numbers = has_bytes or not has_numbers, True
        elif kind not in _PLAIN_STEPS and not _is_to_rgb(step):
            others.append(_kind_in_words(step))
    if has_bytes:
        normalised = normalised.then(0.0, _BYTES)
    if has_numbers:
        found |= normalised.values
    return {key: x for key, x in found.items() if x is not None}, tuple(others)


def _of_normalize(step: Any, origin: str, has_bytes: bool) -> tuple[Any, Any]:
    """Return mean and std of a Normalize as they are of images in [0, 1].

    has_bytes: whether the step gets bytes. The numbers of Albumentations' Normalize are
    shares of its max_pixel_value.
    """
    mean = np.asarray(_checked(origin, "mean", getattr(step, "mean", None)))
    std = np.asarray(_checked(origin, "std", getattr(step, "std", None)))
    highest = getattr(step, "max_pixel_value", None)
    rule = getattr(step, "normalization", "standard")
    if rule != "standard":
        must = "normalise by fixed numbers"
        jc.refuse(f"{origin}: Normalize", must, rule, "give mean= and std= instead")
    if highest is not None:
        where = f"{origin}: max_pixel_value"
        times = _BYTES * constants(where, highest, positive=True)[0]
    elif has_bytes:
        times = _BYTES
    else:
        _refuse_mean_of_bytes(origin, mean)
        times = 1.0
    return mean * times, std * times


def _size_of_step(step: Any) -> Any:
    """Return the size of a Resize or a CenterCrop; None if it has none."""
    size = getattr(step, "size", None)
    return getattr(step, "width", None) if size is None else size


def _is_to_rgb(step: Any) -> bool:
    """Return whether a step is a function whose name ends with "to_rgb"."""
    function = getattr(step, "lambd", step)  # Of a Lambda.
    return str(getattr(function, "__name__", "")).endswith("to_rgb")


def _sides(value: Any) -> dict[str, Any] | None:
    """Return the named sides of a size of transformers; None for any other size."""
    if isinstance(value, Mapping):
        return {key: side for key, side in value.items() if side is not None}
    sides = {name: getattr(value, name, None) for name in _SIDES}
    return {key: side for key, side in sides.items() if side is not None} or None


def _checked(origin: str, key: str, value: Any) -> Any:
    """Return a value in one form; ValueError where it cannot be."""
    where = f"{origin}: {key}" if origin else key
    if key in ("mean", "std"):
        return constants(where, value, positive=key == "std")
    if key == "interpolation":
        return _interpolation(value)
    if key == "fit":
        jc.check_known(f"{where} (crop_mode)", str(value), _FITS)
        return _FITS[str(value)]
    sides = _sides(value)
    if sides is not None:
        known = [sides[name] for name in _SIDES if name in sides]
        value = known[0] if known else [*sides.values()]
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
    values = {
        key: value if key == "fit" else _checked(origins[key], key, value)
        for key, value in values.items()
    }
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
