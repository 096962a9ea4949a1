"""Readers of the preprocessing of images that models of other frameworks describe.

`read` reads the attributes of a module: timm's `pretrained_cfg`, or others such as
`preprocess`. `parse` reads a description: timm's dictionary, the transforms of torchvision's
weights, an image processor of transformers, a Compose or a list of such transforms.
`resolve` combines the caller's values with the model's, and records the origin of each value.

predictors.Predictor applies mean and standard deviation. Size, crop and interpolation belong
to a suite's sets, which all of its networks share: `describe` only reports the values that the
model describes.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from jbias import errors
from jbias.runtime import messages

# Attributes of a module that describe its preprocessing; the first that exists counts.
_OF_TIMM = ("pretrained_cfg", "default_cfg")
ATTRIBUTES = (
    *_OF_TIMM,
    "preprocess_cfg",
    "preprocess",
    "image_processor",
    "processor",
    "transforms",
)
# Attributes of wrappers that contain the wrapped module.
_WRAPPED = ("module", "_orig_mod", "of", "visual")
_MAX_DEPTH = 4  # Of nested wrappers.
# Names of the same value in timm, torchvision, open_clip and transformers.
_NAMES = {
    "mean": ("mean", "image_mean"),
    "std": ("std", "image_std"),
    "size": ("crop_size", "input_size", "size", "image_size"),
    "interpolation": ("interpolation", "resample"),
    "crop": ("crop_pct",),
    "resize": ("resize_size",),
    "fit": ("crop_mode",),
}
# Names in decoding.FITS of how an image becomes square, by timm's name.
_FITS = {"center": "crop", "squash": "squeeze", "border": "border"}
_PILLOW = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box"}
_SIDES = ("shortest_edge", "width", "height", "longest_edge")  # By precedence.
_BYTES = 1 / 255  # Factor that turns bytes into numbers in [0, 1].
_OFFSETS = ("rescale_offset", "do_offset", "offset")  # Subtract 1 after rescaling.
# Steps of processors that change pixels in other ways than mean and std.
_OTHER_FIELDS = ("do_flip_channel_order", "do_color_quantize", "do_grayscale")
_OF_PROCESSORS = ("do_rescale", "rescale_factor", "do_normalize")
# Steps of a Compose that turn images into numbers: in [0, 1], or bytes.
_TO_UNIT = ("ToTensor", "MaybeToTensor", "ConvertImageDtype")
_TO_BYTES = ("ToImage", "PILToTensor", "MaybePILToTensor", "ToTensorV2")
_PLAIN_STEPS = ("RGB",)  # Steps that change no number.
_LISTS = ("Compose", "Sequential")  # Steps that contain other steps.


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """The preprocessing of a network's images.

    values: by name: "mean" and "std", three numbers for images in [0, 1]; "size", in pixels;
    "resize", the short side before the crop, in pixels; "crop", the side of the crop divided
    by the side of the resized image; "interpolation", a name; "fit", one of
    data.decoding.FITS. origins: by the same names, the source of each value in words. notes:
    contradictions and steps that could not be read, in words.
    """

    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    origins: Mapping[str, str] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()


def read(model: Any) -> Preprocessing:
    """Return the preprocessing that a module, or a module that it wraps, describes.

    model: a module of PyTorch, or any object; its attributes ATTRIBUTES are read, in this order,
    until one has values; then the attributes of the module that it wraps, and so on, for up to
    four modules.
    If an attribute is a layer that normalises images, the search ends with a note. Without
    values, `values` is empty. ValueError for invalid values in timm's configuration; other
    attributes that cannot be read are named in `notes`.
    """
    unread = []
    for _ in range(_MAX_DEPTH):
        for name in ATTRIBUTES:
            source = getattr(model, name, None)
            if source is None or _is_own_method(model, source):
                continue
            if _is_normalising_layer(model, source):
                reason = (
                    f"the module's own layer {name}, which normalises, is not read: give "
                    "mean=0, std=1 if it is part of forward, else its numbers"
                )
                return Preprocessing(notes=(reason,))
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
        wrapped = (getattr(model, name, None) for name in _WRAPPED)
        wrapped = [module for module in wrapped if module is not None]
        if not wrapped:
            break
        model = wrapped[0]
    return Preprocessing(notes=tuple(unread))


def _is_own_method(model: Any, source: Any) -> bool:
    """Return True if `source`, an attribute of the model, is one of its methods."""
    return getattr(source, "__self__", None) is model


def _is_normalising_layer(model: Any, source: Any) -> bool:
    """Return True if `source`, an attribute of a module, is a layer that normalises images.

    Such a layer may be part of the module's forward pass.
    """
    kind = type(source).__name__
    if not hasattr(model, "named_modules") or kind not in ("Normalize", "Sequential"):
        return False
    return any(type(step).__name__ == "Normalize" for step in _flat([source]))


def parse(source: Any, origin: str = "preprocess=") -> Preprocessing:
    """Return the preprocessing in a description of another framework.

    source: timm's dictionary, the transforms of torchvision's weights, an image processor of
    transformers, a Compose or a list of such transforms, or a Preprocessing. origin: start of
    error messages, and the origin of the values. ValueError for an unknown form, for invalid
    values, and for steps that change pixels in other ways than mean and std.
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
    """Return the preprocessing in a description; without values if its form is unknown.

    If "size" and "resize" are known and "crop" is not, "crop" is size / resize. Arguments and
    errors: see `parse`.
    """
    if isinstance(source, Preprocessing):
        return source
    if isinstance(getattr(source, "transforms", None), functools.partial):
        source = source.transforms  # Weights of torchvision.
    if isinstance(source, functools.partial) and inspect.isclass(source.func):
        source = source()
    inner = _get(source, "image_processor")
    if inner is not None:  # A processor of images and texts.
        return _parse(inner, origin)
    steps, unread_steps = _steps_of(source), ()
    if steps is not None:
        raw_values, unread_steps = _read_steps(steps, origin)
    elif inspect.isroutine(source) or inspect.isclass(source):
        raw_values = {}
    else:
        raw_values = _read_fields(source, origin)
    values = {
        key: _checked_value(origin, key, value) for key, value in raw_values.items()
    }
    resized = values.get("resize", 0)
    if resized and "size" in values and "crop" not in values:
        values["crop"] = round(values["size"] / resized, 4)
    notes = tuple(f"{origin} has {step}, which is not applied" for step in unread_steps)
    return Preprocessing(values, dict.fromkeys(values, origin), notes)


def _get(source: Any, name: str) -> Any:
    """Return an entry of a dictionary, or an attribute of an object; None if it is missing."""
    if isinstance(source, Mapping):
        return source.get(name)
    return getattr(source, name, None)


def _kind_in_words(source: Any) -> str:
    """Return the type and name of an object as text, such as "Resize" or "a dict of mean, std"."""
    if isinstance(source, str):
        return repr(source)
    if isinstance(source, Mapping):
        keys = ", ".join(str(key) for key in [*source][:4])
        return f"a dict of {keys or 'nothing'}"
    name = getattr(source, "__name__", "") if callable(source) else ""
    return f"{type(source).__name__} {name}".strip()


class _Normalisation(NamedTuple):
    """The normalisation (x - mean) / std of images x in [0, 1]."""

    mean: Float[np.ndarray, "3"]
    std: Float[np.ndarray, "3"]

    def then(self, mean: ArrayLike, std: ArrayLike) -> "_Normalisation":
        """Return the normalisation that equals this one followed by (x - mean) / std."""
        mean, std = np.asarray(mean, float), np.asarray(std, float)
        return _Normalisation(self.mean + self.std * mean, self.std * std)

    @property
    def values(self) -> dict[str, list[float]]:
        """Return {"mean": three numbers, "std": three numbers}."""
        return {"mean": self.mean.tolist(), "std": self.std.tolist()}


_UNCHANGED = _Normalisation(np.zeros(3), np.ones(3))


def _read_fields(source: Any, origin: str) -> dict[str, Any]:
    """Return preprocessing values from the entries of a dictionary or attributes of an object.

    Keys: names in Preprocessing.values, if the value is known. Values are unchecked, except the
    mean and std of a processor, which include its rescaling, for images in [0, 1]. "fit" is
    "squash" if the images are resized to a height and a width. "resize" is the side before a crop
    to a crop_size. origin: start of error messages. ValueError for a processor with steps other
    than normalisations.
    """
    get = functools.partial(_get, source)
    fields = {}
    for key, names in _NAMES.items():
        values = [get(name) for name in names]
        values = [x for x in values if x is not None and not callable(x)]
        if values:
            fields[key] = values[0]
    sides = _sides(get("size"))
    if get("do_center_crop") is False:
        fields["size"] = get("size") or fields.get("size")
    elif get("crop_size") and sides and "shortest_edge" in sides:
        fields["resize"] = sides["shortest_edge"]
    elif get("crop_size") and sides and "height" in sides:
        fields["resize"], fields["fit"] = sides["height"], "squash"
    if sides and "height" in sides and "crop" not in fields:
        fields["fit"] = "squash"
    if any(get(name) is not None for name in _OF_PROCESSORS):
        fields |= _read_processor(get, fields, origin)
    elif "mean" in fields:
        _refuse_mean_of_bytes(origin, fields["mean"])
    return {key: value for key, value in fields.items() if value is not None}


def _read_processor(
    get: Callable[[str], Any], fields: Mapping[str, Any], origin: str
) -> dict[str, list[float]]:
    """Return the "mean" and "std", for images in [0, 1], that are equal to a processor's steps.

    get: returns an attribute of the processor by name, None if it is missing. fields: values
    of the processor by name, of which "mean" and "std" are read. origin: start of error
    messages. The processor (of transformers) rescales bytes, subtracts 1 if it has an offset,
    then normalises, twice for EfficientNet's `include_top`. ValueError for a step that is no
    normalisation.
    """
    for name in _OTHER_FIELDS:
        if get(name):
            raise ValueError(
                f"{origin}: pixels must be changed by mean and std alone, got "
                f"{name}={get(name)}, which is not applied; do it inside the model, and "
                "give mean= and std= instead"
            )
    mean, std = fields.get("mean"), fields.get("std")
    if get("do_normalize") is False:
        mean, std = 0.0, 1.0
    elif mean is None and get("do_normalize"):
        errors.refuse(f"{origin}: image_mean", "be three numbers, or one", mean)
    mean = np.asarray(_checked_value(origin, "mean", 0.0 if mean is None else mean))
    std = np.asarray(_checked_value(origin, "std", 1.0 if std is None else std))
    normalisation = _rescaling(get, mean, std, origin).then(mean, std)
    if get("include_top") is True:
        second_std = _checked_value(origin, "std", get("image_std"))
        normalisation = normalisation.then(0.0, second_std)
    return normalisation.values


def _rescaling(
    get: Callable[[str], Any],
    mean: Float[np.ndarray, "3"],
    std: Float[np.ndarray, "3"],
    origin: str,
) -> _Normalisation:
    """Return the normalisation of images in [0, 1] that a processor applies before mean and std.

    Arguments: see `_read_processor`. With do_rescale=False, mean and std are for bytes if any value
    is above 1 (the result is x -> 255 x), else for images in [0, 1] (no change); ValueError for
    mean 0 and std 1, which fit both. Otherwise, without a rescale_factor: no change, and
    ValueError for a mean of bytes. With a rescale_factor: x -> 255 rescale_factor x, minus 1 if a
    field of `_OFFSETS` is True.
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


def _refuse_mean_of_bytes(origin: str, mean: ArrayLike) -> None:
    """Raise ValueError if a mean for images in [0, 1] is above 1.

    origin: start of the error message.
    """
    numbers = constants(f"{origin}: mean", mean, positive=False)
    if max(numbers) > 1:
        remedy = "divide mean and std by 255 if they are of bytes"
        errors.refuse(f"{origin}: mean", "be of images in [0, 1]", numbers, remedy)


def _steps_of(source: Any) -> Sequence | None:
    """Return the steps of a list, tuple, Compose or Sequential; None for anything else."""
    if isinstance(source, list | tuple):
        return source
    inner = getattr(source, "_modules", None)
    if type(source).__name__ == "Sequential" and isinstance(inner, Mapping):
        return [*inner.values()]
    steps = getattr(source, "transforms", None)
    is_list = isinstance(steps, Sequence) and not isinstance(steps, str)
    return steps if is_list else None


def _flat(steps: Sequence) -> Iterator[Any]:
    """Yield the steps in order; a Compose, Sequential or list is replaced by its steps."""
    for step in steps:
        is_list = isinstance(step, list | tuple) or type(step).__name__ in _LISTS
        inner = _steps_of(step) if is_list else None
        if inner is None:
            yield step
        else:
            yield from _flat(inner)


def _read_steps(steps: Sequence, origin: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return (unchecked values by name, descriptions of unknown steps) of a Compose's steps.

    Several Normalize steps are combined into one mean and std. "size" is from the last Resize or
    CenterCrop, "resize" from the last Resize. With a step that turns images into numbers and
    without a Normalize, the values are mean 0 and std 1, or std 1/255 if the numbers are bytes.
    origin: start of error messages.
    ValueError as `_read_normalize` raises.
    """
    values, unread = {}, []
    normalisation, has_bytes, has_numbers = _UNCHANGED, False, False
    for step in _flat(steps):
        kind = type(step).__name__
        if kind == "Normalize":
            mean, std = _read_normalize(step, origin, has_bytes)
            normalisation = normalisation.then(mean, std)
            has_bytes, has_numbers = False, True
        elif kind == "Resize":
            side = _size_of_step(step)
            values["resize"] = values["size"] = side
            if isinstance(side, Sequence) and len(side) == 2:
                values["fit"] = "squash"
            values["interpolation"] = getattr(step, "interpolation", None)
        elif kind == "CenterCrop":
            values["size"] = _size_of_step(step)
        elif kind in _TO_UNIT or kind == "ToDtype":
            has_bytes = has_bytes and getattr(step, "scale", True) is False
            has_numbers = True
        elif kind in _TO_BYTES:
            has_bytes, has_numbers = has_bytes or not has_numbers, True
        elif kind not in _PLAIN_STEPS and not _is_to_rgb(step):
            unread.append(_kind_in_words(step))
    if has_bytes:
        normalisation = normalisation.then(0.0, _BYTES)
    if has_numbers:
        values |= normalisation.values
    values = {key: value for key, value in values.items() if value is not None}
    return values, tuple(unread)


def _read_normalize(
    step: Any, origin: str, has_bytes: bool
) -> tuple[Float[np.ndarray, "3"], Float[np.ndarray, "3"]]:
    """Return (mean, std) of a Normalize step, converted to images in [0, 1].

    origin: start of error messages. has_bytes: whether the step's input is bytes. The numbers
    of Albumentations' Normalize are shares of its max_pixel_value. ValueError for invalid
    numbers, and for a normalisation by each image's own statistics.
    """
    mean = np.asarray(_checked_value(origin, "mean", getattr(step, "mean", None)))
    std = np.asarray(_checked_value(origin, "std", getattr(step, "std", None)))
    highest = getattr(step, "max_pixel_value", None)
    rule = getattr(step, "normalization", "standard")
    if rule != "standard":
        must = "normalise by fixed numbers"
        errors.refuse(f"{origin}: Normalize", must, rule, "give mean= and std= instead")
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
    """Return the unchecked `size`, or else `width`, of a Resize or CenterCrop; None if missing."""
    size = getattr(step, "size", None)
    return getattr(step, "width", None) if size is None else size


def _is_to_rgb(step: Any) -> bool:
    """Return True if a step is a function whose name ends with "to_rgb"."""
    function = getattr(step, "lambd", step)  # The function of a Lambda.
    return str(getattr(function, "__name__", "")).endswith("to_rgb")


def _sides(value: Any) -> dict[str, Any] | None:
    """Return the side lengths in the `size` of a Hugging Face image processor, by name.

    Sides that are None are left out. value: a dictionary, or an object with some of _SIDES as
    attributes. None for another object, such as a number.
    """
    if isinstance(value, Mapping):
        return {key: side for key, side in value.items() if side is not None}
    sides = {name: getattr(value, name, None) for name in _SIDES}
    return {key: side for key, side in sides.items() if side is not None} or None


def _checked_value(origin: str, key: str, value: Any) -> Any:
    """Return a value in the form of Preprocessing.values; ValueError if it is invalid.

    If a size has several named sides, the first of _SIDES is returned; of several numbers, the
    last one, the width. Sizes are rounded. The name of an interpolation is not checked.
    origin: start of the error message, or "". key: the name of the value.
    """
    where = f"{origin}: {key}" if origin else key
    if key in ("mean", "std"):
        return constants(where, value, positive=key == "std")
    if key == "interpolation":
        return _interpolation(value)
    if key == "fit":
        errors.check_known(f"{where} (crop_mode)", str(value), _FITS)
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
        errors.refuse(where, "be numbers above 0", value)
    number = float(numbers[-1])  # The width of (channels, height, width).
    return number if key == "crop" else round(number)


def constants(where: str, value: Any, *, positive: bool) -> tuple[float, float, float]:
    """Return three floats, rounded to seven digits, from one number or three.

    where: start of the error message. positive: whether all must be above 0. ValueError for
    anything else, and for NaN or infinity.
    """
    try:
        numbers = np.asarray(value, float).ravel()
    except (TypeError, ValueError):
        numbers = np.zeros(0)
    fits = numbers.size in (1, 3) and np.isfinite(numbers).all()
    if not fits or positive and not (numbers > 0).all():
        errors.refuse(where, f"be three numbers, or one{', above 0' * positive}", value)
    # Seven digits: the number that was meant before it was rounded to float32.
    first, second, third = (float(f"{x:.7g}") for x in np.broadcast_to(numbers, 3))
    return first, second, third


def _interpolation(value: Any) -> str:
    """Return the name of an interpolation, given by name, Pillow's number or an enum."""
    value = getattr(value, "value", value)
    return _PILLOW.get(value, str(value)) if isinstance(value, int) else str(value)


def resolve(
    described: Preprocessing, explicit: Mapping[str, Any], defaults: Mapping[str, Any]
) -> Preprocessing:
    """Return the preprocessing to apply: the caller's values, else the model's, else defaults.

    described: the model's preprocessing. explicit: the caller's values by name; None: not
    given. defaults: default values by name. The origin of a value is, for instance, "mean=" for
    the caller's value, the model's origin for the model's value, or a phrase that begins "by
    default". A contradiction between caller and model is added to `notes`. ValueError for an
    invalid value.
    """
    values, origins = dict(described.values), dict(described.origins)
    notes = list(described.notes)
    for key, value in defaults.items():
        if key not in values:
            values[key], origins[key] = value, "by default: the model says nothing"
    for key, value in explicit.items():
        if value is None:
            continue
        checked = _checked_value("", key, value)
        if key in described.values:
            model_value = described.values[key]
            if isinstance(checked, str):
                is_equal = checked == model_value
            else:
                is_equal = np.allclose(checked, model_value, atol=1e-6)
            if not is_equal:
                notes.append(
                    f"{key}={format_value(checked)} was given, while "
                    f"{described.origins[key]} says {format_value(model_value)}"
                )
        values[key], origins[key] = checked, f"{key}="
    values = {
        key: value if key == "fit" else _checked_value(origins[key], key, value)
        for key, value in values.items()
    }
    return Preprocessing(values, origins, tuple(notes))


def format_value(value: Any) -> str:
    """Return a value, text or numbers, as short text; three equal numbers are written once."""
    if isinstance(value, str):
        return value
    numbers = [f"{x:.6g}" for x in np.atleast_1d(value)]
    return numbers[0] if len({*numbers}) == 1 else " ".join(numbers)


def describe(applied: Preprocessing, size: int, sets: Sequence[str] = ()) -> str:
    """Return a line of text on the preprocessing of images, with the origin of each value.

    applied: result of `resolve`. size: side of the suite's images in pixels. sets: preparations
    of the suite's sets, in words, without repetitions.
    """
    images = f"images of {size} pixels (the suite's"
    if sets:
        images += f": {' / '.join(sets[:3])}"
    if len(sets) > 3:
        images += f" and {len(sets) - 3} other ways"
    phrases = [f"{images})", *_describe_ignored(applied, size)]
    constant_names = [key for key in ("mean", "std") if key in applied.values]
    for key in constant_names:
        value = format_value(applied.values[key])
        phrases.append(f"{key} {value} ({applied.origins[key]})")
    if not constant_names:
        phrases.append("in [0, 1], nothing taken off (by default for a function)")
    return "; ".join([*phrases, *applied.notes])


def _describe_ignored(applied: Preprocessing, size: int) -> Iterator[str]:
    """Yield a phrase on the model's size, crop and interpolation, which are not applied.

    Yields nothing if the model describes none of these. size: side of the suite's images in
    pixels; an equal size is not mentioned.
    """
    phrases = []
    if "size" in applied.values and applied.values["size"] != size:
        phrases.append(f"{applied.values['size']} pixels ({applied.origins['size']})")
    for key, words in (("crop", "crop fraction "), ("interpolation", "")):
        if key in applied.values:
            value = format_value(applied.values[key])
            phrases.append(f"{words}{value} ({applied.origins[key]})")
    if phrases:
        yield f"not applied, as the suite's sets decide: {', '.join(phrases)}"
