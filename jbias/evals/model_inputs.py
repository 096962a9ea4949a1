"""Preparation of a suite's sets for one network, by the preprocessing that the network describes.

All networks of a suite are shown the same images. If a single network is measured, the sets
can have the size, crop and interpolation that the network was trained for. `choose` reads
these from the network's description, and `prepare` adds them to the sets of a suite.
"""

import math
import statistics
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from jbias import data, errors
from jbias.data import base, decoding, sources
from jbias.evals import described_preprocessing
from jbias.untrusted import opening

_NUM_SAMPLED = 16  # Images of a set whose sizes are read.
# The values of a Preprocessing that are applied to sets.
_OF_SETS = ("size", "resize", "crop", "fit", "interpolation")


class Inputs(NamedTuple):
    """The preparation of images for a network, before mean and standard deviation.

    size: image side in pixels. options: keyword arguments of data.load for sets of
    photographs, some of "interpolation", "fit", "fill" and "resize". origins: the source of
    each value in words, by the names of described_preprocessing.Preprocessing.
    """

    size: int
    options: Mapping[str, Any]
    origins: Mapping[str, str]


def choose(
    described: described_preprocessing.Preprocessing, *, size: int | None, default: int
) -> Inputs:
    """Return the size and options of a network's images; ValueError for an unknown interpolation.

    described: the network's own preprocessing. size: requested by the caller, in pixels, or
    None. default: the size in pixels if neither `size` nor `described` gives a size. The described
    short side before the crop applies at the described size only. At another size, a crop
    fraction as in timm still applies: the short side is floor(size / fraction). Options that the
    model does not describe are left out, and so is the fit "crop"; with the fit "border", "fill"
    is the mean as bytes.
    """
    values, origins = described.values, dict(described.origins)
    own_size = values.get("size")
    if size is not None:
        origins["size"] = "size="
    elif own_size is None:
        origins["size"] = "by default"
    chosen_size = size or own_size or default
    options: dict[str, Any] = {}
    if "interpolation" in values:
        name = values["interpolation"]
        errors.check_choice(
            origins["interpolation"],
            name,
            decoding.INTERPOLATIONS,
            "give another by interpolation=",
            name="interpolation",
        )
        options["interpolation"] = name
    if values.get("fit", "crop") != "crop":
        options["fit"] = values["fit"]
    if values.get("fit") == "border":
        mean = values.get("mean", (0.0, 0.0, 0.0))
        options["fill"] = tuple(round(255 * number) for number in mean)
    resize = _resize(values, chosen_size)
    if resize is not None:
        options["resize"] = resize
    applied = {key: origins[key] for key in _OF_SETS if key in origins}
    return Inputs(chosen_size, options, applied)


def _resize(values: Mapping[str, Any], size: int) -> int | None:
    """Return the short side before the crop, in pixels, at least `size`; None if it is unknown.

    values: the values of a Preprocessing. size: side of the crop, in pixels.
    """
    if "resize" in values and values.get("size") == size:
        return max(values["resize"], size)
    if "crop" in values:
        return max(math.floor(size / values["crop"]), size)
    return None


def prepare(sets: Mapping[str, Mapping[str, Any]], inputs: Inputs) -> dict[str, dict]:
    """Return a suite's sets with the options of a network's inputs added.

    sets: options of data.load by name of the set. Sets that are published at one size, such as
    Geirhos' stimuli, are not cropped: only the interpolation applies. Options in `sets` take
    precedence. A set gets only options that it takes: generated sets and the user's own
    functions do not change.
    """
    prepared = {}
    for name, options in sets.items():
        known = data.DATASETS.get(options["data"])
        takes = known.options if known else {}
        is_native = known is not None and known.is_native
        added = {
            key: value
            for key, value in inputs.options.items()
            if key in takes and (key == "interpolation" or not is_native)
        }
        prepared[name] = {**added, **options}
    return prepared


def describe_enlarged(
    sets: Mapping[str, base.Source], size: int, remedy: str
) -> Iterator[str]:
    """Yield a line on each set whose images are enlarged.

    sets: the sets by name. size: side of the shown images, in pixels. remedy: advice at the
    end of the line, on choosing another size. A set counts as enlarged if the median short
    side of up to 16 of its images, evenly spaced, is below `size`. Sets in memory and files
    that cannot be read are skipped.
    """
    for name, source in sets.items():
        pixels = enlarged_sides(source, size)
        if pixels:
            yield f"{name}: images of {pixels} pixels are enlarged to {size}; {remedy}"


def enlarged_sides(source: base.Source, size: int) -> str:
    """Return the short sides of a set's image files, such as "64" or "60 to 64" pixels.

    Return "" unless the images are enlarged to `size`, see `describe_enlarged`.
    """
    sides = _short_sides(source)
    if not sides or statistics.median(sides) >= size:
        return ""
    low, high = min(sides), max(sides)
    return f"{low}" if low == high else f"{low} to {high}"


def _short_sides(source: base.Source) -> list[int]:
    """Return the short sides, in pixels, of up to _NUM_SAMPLED evenly spaced image files.

    Files that cannot be read are skipped. [] for a set without files.
    """
    if not isinstance(source, sources.EncodedSource):
        return []
    sides = []
    places = np.linspace(0, len(source) - 1, min(_NUM_SAMPLED, len(source)))
    for place in places.round().astype(int).tolist():
        try:
            with opening.open_image(source.store.open(place)) as image:
                sides.append(min(image.size))
        except (OSError, ValueError):
            continue  # The error is reported when the image is decoded.
    return sides


def describe(inputs: Inputs, *, has_photographs: bool) -> str:
    """Return a line of text on the size, crop and interpolation of images, with their origins.

    An example is "224 pixels (by default), stimuli are shown whole". has_photographs: whether the
    suite has a set that is cropped, which stimuli published at one size are not; without such a
    set, the crop is left out.
    """
    phrases = [f"{inputs.size} pixels ({inputs.origins['size']})"]
    if "resize" in inputs.options and has_photographs:
        origin = inputs.origins.get("crop") or inputs.origins["resize"]
        phrases.append(
            f"resized to {inputs.options['resize']} before the crop ({origin})"
        )
    for key in ("fit", "interpolation"):
        if key in inputs.options and (has_photographs or key != "fit"):
            phrases.append(f"{inputs.options[key]} ({inputs.origins[key]})")
    if not has_photographs:
        phrases.append("stimuli are shown whole")
    return ", ".join(phrases)
