"""How a stage is fed, as its config says: from memory, by rows from files, or by windows."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import UInt8

from jbias import build, run_spec
from jbias.algos import groups
from jbias.data import base, decoding, loader, sources, splits
from jbias.runtime import mesh
from jbias.training import input_pipeline, samplers

CROP = "random_resized_crop"
_DEVICE_KEYS = ("window", "canvas")
_WINDOW = 16384  # Examples.


class StreamOptions(NamedTuple):
    """How a set is streamed: the options crop, window and canvas of config.train."""

    crop: str  # "host", or "device".
    size: int  # Pixels of what is cut on the host.
    steps: int | None = None  # Batches in a window; None without windows.
    canvas: int | None = None  # Pixels; None where evaluation's preprocessing is taken.
    window: Mapping[str, Any] | None = None  # What the host cuts at random, likewise.


class InputPlan(NamedTuple):
    """One stream of a stage: the sets, how they are fed, and what the device does."""

    opened: Mapping[str, base.Source]  # By what messages and provenance call them.
    columns: Mapping[str, np.ndarray]  # Of the examples of all sets.
    stream: StreamOptions | None  # None: all of it lives on the device.
    inputs: Sequence[Mapping[str, Any]]  # The transforms left to the device.
    order: samplers.Sampler
    name: str  # Of its random streams.

    @property
    def streams(self) -> bool:
        """Whether images are read while it is trained."""
        return self.stream is not None

    @property
    def source(self) -> base.Source:
        """The first of the sets, which says what the classes are."""
        return next(iter(self.opened.values()))

    @property
    def description(self) -> str:
        """Says how it streams, for logs and tables."""
        stream, order, by = self.stream, self.order, decoding.decoder_name()
        if stream.crop == "host":
            cut = f"random crops of the original to {stream.size} pixels ({by})"
            words = "as for evaluation" if stream.window is None else cut
            return f"streamed: {words}, for each seed its own"
        side = stream.canvas
        words = f"squeezed to {side}x{side} ({by})" if side else "as for evaluation"
        return f"streamed: {words}, {order.span} examples at a time for all seeds"


def plan_stages(
    stages: Sequence[run_spec.StageSpec], train: Sequence[splits.TrainSet]
) -> list[dict[str, InputPlan]]:
    """Plans how each stage is fed from its training set."""
    return list(map(plan_inputs, stages, train))


def plan_inputs(
    stage: run_spec.StageSpec, train: splits.TrainSet
) -> dict[str, InputPlan]:
    """Plans how a stage is fed: "train", and "other" if there is one."""
    number, at, config = stage
    options, suffix = config["train"], f"/{number}" * (number > 0)
    _misplaced(f"{at}.train", options)
    named, beside = train.named(number), f"train/{number}/other"
    opened = {name: one for name, one in named.items() if name != beside}
    places = (f"{at}.train", f"{at}.inputs")
    columns = splits.join_columns(train.sources)
    inputs, name = config["inputs"], f"order{suffix}"
    found = {"train": _plan(places, options, inputs, opened, columns, name)}
    if train.other:
        places = (f"{at}.train.other", f"{at}.train.other.inputs")
        options = {**options["other"], "batch": options["batch"]}
        inputs, opened = options.get("inputs", ()), {beside: train.other}
        other = _plan(places, options, inputs, opened, {}, f"other{suffix}")
        if pair := options.get("pair"):
            other = _paired(places[0], pair, found["train"], other)
        found["other"] = other
    return found


def _misplaced(where: str, options: Mapping[str, Any]) -> None:
    if "pair" in options:
        raise ValueError(
            f"{where}.pair: belongs to the second set; move it to {where}.other"
        )
    if "balance" in (options.get("other") or {}):
        raise ValueError(
            f"{where}.other.balance: labels of a second set are not used; remove it"
        )


def _paired(where: str, pair: str, train: InputPlan, other: InputPlan) -> InputPlan:
    """Gives each example of the training set one of its class as its partner."""
    if pair != "class":
        raise ValueError(f"{where}.pair: must be 'class', got {pair!r}; or remove it")
    if (
        train.stream
        or other.stream
        or not isinstance(train.order, samplers.EpochSampler)
    ):
        raise ValueError(
            f"{where}.pair: needs both sets in memory and neither shares nor balance; "
            "remove crop, shares and balance, or pair"
        )
    (source,) = other.opened.values()
    of = train.order, train.columns["label"], source.columns["label"], other.name
    try:
        return other._replace(order=samplers.PairedSampler(*of))
    except ValueError as error:
        raise ValueError(f"{where}.{error}") from error


def _plan(places, options, inputs, opened, columns, name) -> InputPlan:
    where = places[0]
    shapes = {source.shape for source in opened.values()}
    if len(shapes) > 1:
        raise ValueError(
            f"{where}.size: all sets must have images of one size, got {sorted(shapes)}"
        )
    size = max(source.size for source in opened.values())
    stream, left = read_stream_options(*places, options, inputs, size)
    for i, source in enumerate(opened.values() if stream else ()):
        if sources.in_memory(source):
            also = f"{where}.also[{i - 1}]: must be a set of files" if i else ""
            said = also or f"{where}.crop: must be left out"
            raise ValueError(
                f"{said}, got {source.name}, whose images are in memory as they are"
            )
    counts = [len(source) for source in opened.values()]
    if options.get("balance"):
        order = _balanced(where, options, stream, columns, name)
    else:
        order = _order(where, options, stream, counts, name)
    return InputPlan(opened, columns, stream, left, order, name)


def _order(
    where: str,
    options: Mapping[str, Any],
    stream: StreamOptions | None,
    counts: Sequence[int],
    name: str,
) -> samplers.Sampler:
    shares, batch = options.get("shares"), options["batch"]
    steps = stream.steps if stream else None
    try:
        if shares:
            return samplers.MixtureSampler.from_shares(
                counts, shares, batch, name, steps=steps
            )
        return samplers.make_sampler(sum(counts), batch, steps, name)
    except ValueError as error:
        key = "shares" if "shares" in str(error) else "batch"
        said = f"for `other` {error}" if where.endswith(".other") else error
        where = where.removesuffix(".other")
        raise ValueError(f"{where}.{key}: {said}") from error


def _balanced(
    where: str,
    options: Mapping[str, Any],
    stream: StreamOptions | None,
    columns: Mapping[str, np.ndarray],
    name: str,
) -> samplers.BalancedSampler:
    """Equal shares of the groups that config.train.balance names."""
    if options.get("shares") or (stream and stream.steps is not None):
        clash = "shares" if options.get("shares") else "crop='device'"
        raise ValueError(
            f"{where}.balance: cannot be had with {clash}; remove one of them"
        )
    _, numbers = groups.select_columns(f"{where}.balance", columns, options["balance"])
    _, of = np.unique(np.stack(numbers), axis=1, return_inverse=True)
    try:
        return samplers.BalancedSampler(of.ravel(), options["batch"], name)
    except ValueError as error:
        raise ValueError(f"{where}.batch: {error}") from error


def read_stream_options(
    where: str,
    listed: str,
    options: Mapping[str, Any],
    inputs: Sequence[Mapping],
    size: int,
) -> tuple[StreamOptions | None, list[Mapping]]:
    """Reads the options; returns how to stream, and the inputs left to the device.

    None where the set lives on the device as a whole. `where` and `listed` are the
    places of the options and of the inputs.
    """
    crop, inputs = options.get("crop"), list(inputs)
    for key in _DEVICE_KEYS:
        if key in options and crop != "device":
            raise ValueError(
                f"{where}.{key}: needs crop='device', got crop={crop!r}; remove {key}"
            )
    if not isinstance(crop, str):
        return None, inputs
    if crop not in ("host", "device"):
        raise ValueError(
            f"{where}.crop: must be host, device, True or False, got {crop!r}"
        )
    build.transforms(listed, inputs)  # Refuses unknown options of what is cut here.
    if crop == "host":
        return _on_host(where, inputs, size)
    return _on_device(where, options, inputs, size)


def _on_host(
    where: str, inputs: list, size: int
) -> tuple[StreamOptions, list[Mapping]]:
    names = [one["name"] for one in inputs]
    if CROP in names[1:]:
        raise ValueError(
            f"{where}.crop: 'host' cuts the {CROP} that inputs begin with, got it "
            f"after {names[0]}; take crop='device'"
        )
    if names[:1] != [CROP]:
        return StreamOptions("host", size), inputs
    first, *left = inputs
    window = {key: first[key] for key in ("area", "aspect") if key in first}
    return StreamOptions("host", first.get("size") or size, window=window), left


def _on_device(
    where: str, options: Mapping[str, Any], inputs: list, size: int
) -> tuple[StreamOptions, list[Mapping]]:
    names, batch = [one["name"] for one in inputs], options["batch"]
    window = _at_least(where, options, "window", batch, max(batch, _WINDOW))
    if CROP not in names:
        if "canvas" in options:
            raise ValueError(
                f"{where}.canvas: needs a {CROP} among the inputs, got {names}"
            )
        return StreamOptions("device", size, steps=window // batch), inputs
    first = names.index(CROP)
    canvas = _at_least(where, options, "canvas", size, round(size * 256 / 224))
    inputs[first] = {"size": size, **inputs[first]}
    return StreamOptions("device", size, steps=window // batch, canvas=canvas), inputs


def _at_least(
    where: str, options: Mapping[str, Any], key: str, least: int, default: int
) -> int:
    value = options.get(key, default)
    if type(value) is not int or value < least:
        raise ValueError(
            f"{where}.{key}: must be a whole number of at least {least}, got {value!r}"
        )
    return value


def make_pipeline(
    plan: InputPlan,
    images: Mapping[str, UInt8[np.ndarray, "n h w c"]],
    devices: jax.sharding.Mesh,
    *,
    seeds: Sequence[int],
    steps: int,
    reading: loader.ReaderOptions,
) -> input_pipeline.InputPipeline:
    """Makes what feeds `steps` steps of these seeds.

    `images` are those of the sets that do not stream, by name.
    """
    stream, order = plan.stream, plan.order
    if stream is None:
        several = [images[name] for name in plan.opened]
        joined = several[0] if len(several) == 1 else np.concatenate(several)
        held = input_pipeline.flatten_images({"image": joined, **plan.columns})
        held = mesh.replicate(held, devices)
        return input_pipeline.ResidentInput(order, held)
    opened = tuple(plan.opened.values())
    files = input_pipeline.JoinedSources(opened, plan.columns)
    if stream.crop == "host":
        read = input_pipeline.BatchReader(
            files, order, plan.name, stream.size, stream.window
        )
        parts = functools.partial(mesh.assemble, mesh=devices)
        place = parts if reading.parts > 1 else None  # Whole, they are placed later.
        return input_pipeline.StreamedInput(order, read, seeds, steps, reading, place)
    several = isinstance(order, samplers.MixtureSampler)
    firsts = np.cumsum([0, *(len(source) for source in opened[:-1])])
    read = [
        input_pipeline.WindowReader(files, int(first), stream.canvas)
        for first in (firsts if several else firsts[:1])
    ]
    place = functools.partial(mesh.gather, mesh=devices)
    return input_pipeline.WindowedInput(order, read, steps, reading, place)
