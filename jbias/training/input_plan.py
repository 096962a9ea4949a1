"""How a stage is fed, as its config says: from memory, by rows from files, or by windows."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import UInt8

from jbias import build, run_spec
from jbias import config as jc
from jbias.algos import groups
from jbias.data import base, decoding, loader, sources, splits
from jbias.runtime import mesh
from jbias.training import input_pipeline, samplers

CROP = "random_resized_crop"
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
    """Plans how each stage is fed from its set: "train", and "other" if there is one."""
    return list(map(_plan_stage, stages, train))


def _plan_stage(stage: run_spec.StageSpec, train: splits.TrainSet) -> dict:
    number, at, config = stage
    where, options, suffix = f"{at}.train", config["train"], f"/{number}" * (number > 0)
    beside, there = f"train/{number}/other", f"{where}.other"
    if "pair" in options:
        raise ValueError(f"{where}.pair: belongs to the second set; move it to {there}")
    if "balance" in (options.get("other") or {}):
        text = "labels of a second set are not used; remove it"
        raise ValueError(f"{there}.balance: {text}")
    opened = {name: x for name, x in train.named(number).items() if name != beside}
    columns = splits.join_columns(train.sources)
    places, name = (where, f"{at}.inputs"), f"order{suffix}"
    found = {"train": _plan(places, options, config["inputs"], opened, columns, name)}
    if train.other:
        places = (there, f"{there}.inputs")
        options = {**options["other"], "batch": options["batch"]}
        inputs, opened = options.get("inputs", ()), {beside: train.other}
        other = _plan(places, options, inputs, opened, {}, f"other{suffix}")
        if pair := options.get("pair"):
            other = _paired(places[0], pair, found["train"], other)
        found["other"] = other
    return found


def _paired(where: str, pair: str, train: InputPlan, other: InputPlan) -> InputPlan:
    """Gives each example of the training set one of its class as its partner."""
    if pair != "class":
        raise ValueError(f"{where}.pair: must be 'class', got {pair!r}; or remove it")
    whole = isinstance(train.order, samplers.EpochSampler)
    if train.stream or other.stream or not whole:
        raise ValueError(
            f"{where}.pair: needs both sets in memory and neither shares nor balance; "
            "remove crop, shares and balance, or pair"
        )
    of = train.order, train.columns["label"], other.source.columns["label"], other.name
    try:
        return other._replace(order=samplers.PairedSampler(*of))
    except ValueError as error:
        raise ValueError(f"{where}.{error}") from error


def _plan(places, options, inputs, opened, columns, name) -> InputPlan:
    where, several = places[0], opened.values()
    shapes = {source.shape for source in several}
    if len(shapes) > 1:
        must = "all sets must have images of one size"
        raise ValueError(f"{where}.size: {must}, got {sorted(shapes)}")
    size = max(source.size for source in several)
    stream, left = _read_stream(*places, options, inputs, size)
    for i, source in enumerate(several if stream else ()):
        if sources.is_in_memory(source):
            also = f"{where}.also[{i - 1}]: must be a set of files" if i else ""
            said = also or f"{where}.crop: must be left out"
            why = "whose images are in memory as they are"
            raise ValueError(f"{said}, got {source.name}, {why}")
    if options.get("balance"):
        order = _balanced(where, options, stream, columns, name)
    else:
        order = _order(where, options, stream, [*map(len, several)], name)
    return InputPlan(opened, columns, stream, left, order, name)


def _order(where, options, stream, counts, name) -> samplers.Sampler:
    shares, batch = options.get("shares"), options["batch"]
    steps = stream.steps if stream else None
    try:
        if shares:
            make = samplers.MixtureSampler.from_shares
            return make(counts, shares, batch, name, steps=steps)
        return samplers.make_sampler(sum(counts), batch, steps, name)
    except ValueError as error:
        key = "shares" if "shares" in str(error) else "batch"
        said = f"for `other` {error}" if where.endswith(".other") else error
        where = where.removesuffix(".other")
        raise ValueError(f"{where}.{key}: {said}") from error


def _balanced(where, options, stream, columns, name) -> samplers.Sampler:
    """Equal shares of the groups that config.train.balance names."""
    balance = f"{where}.balance"
    if options.get("shares") or (stream and stream.steps is not None):
        clash = "shares" if options.get("shares") else "crop='device'"
        raise ValueError(f"{balance}: cannot be had with {clash}; remove one of them")
    _, numbers = groups.select_columns(balance, columns, options["balance"])
    _, of = np.unique(np.stack(numbers), axis=1, return_inverse=True)
    try:
        return samplers.BalancedSampler(of.ravel(), options["batch"], name)
    except ValueError as error:
        raise ValueError(f"{where}.batch: {error}") from error


def _read_stream(
    where: str, listed: str, options: Mapping[str, Any], inputs: Sequence, size: int
) -> tuple[StreamOptions | None, list[Mapping]]:
    """Reads the options; returns how to stream, and the inputs left to the device.

    None where the set lives on the device as a whole. `where` and `listed` are the
    places of the options and of the inputs.
    """
    crop, inputs, batch = options.get("crop"), list(inputs), options["batch"]
    for key in ("window", "canvas"):
        if key in options and crop != "device":
            got = f"got crop={crop!r}; remove {key}"
            raise ValueError(f"{where}.{key}: needs crop='device', {got}")
    if not isinstance(crop, str):
        return None, inputs
    if crop not in ("host", "device"):
        jc.refuse(f"{where}.crop", "be host, device, True or False", crop)
    build.transforms(listed, inputs)  # Refuses unknown options of what is cut here.
    names = [one["name"] for one in inputs]
    if crop == "host":
        if CROP in names[1:]:
            raise ValueError(
                f"{where}.crop: 'host' cuts the {CROP} that inputs begin with, got it "
                f"after {names[0]}; take crop='device'"
            )
        if names[:1] != [CROP]:
            return StreamOptions("host", size), inputs
        first, *left = inputs
        cut = {key: first[key] for key in ("area", "aspect") if key in first}
        return StreamOptions("host", first.get("size") or size, window=cut), left

    def at_least(key: str, least: int, default: int) -> int:
        value = options.get(key, default)
        if type(value) is not int or value < least:
            must = f"be a whole number of at least {least}"
            jc.refuse(f"{where}.{key}", must, value)
        return value

    steps = at_least("window", batch, max(batch, _WINDOW)) // batch
    if CROP in names:
        first = names.index(CROP)
        canvas = at_least("canvas", size, round(size * 256 / 224))
        inputs[first] = {"size": size, **inputs[first]}
        return StreamOptions("device", size, steps, canvas), inputs
    if "canvas" in options:
        where = f"{where}.canvas"
        raise ValueError(f"{where}: needs a {CROP} among the inputs, got {names}")
    return StreamOptions("device", size, steps), inputs


def make_pipeline(
    plan: InputPlan,
    images: Mapping[str, UInt8[np.ndarray, "n h w c"]],
    devices: jax.sharding.Mesh,
    *,
    seeds: Sequence[int],
    steps: int,
    reading: loader.ReaderOptions,
    fix: Mapping[str, int],
) -> input_pipeline.InputPipeline:
    """Return the input pipeline of a plan for `steps` steps of the seeds.

    images: by name, the sets that are not streamed. fix: config.fix.
    """
    stream, order = plan.stream, plan.order
    if stream is None:
        several = [images[name] for name in plan.opened]
        joined = several[0] if len(several) == 1 else np.concatenate(several)
        held = input_pipeline.flatten_images({"image": joined, **plan.columns})
        held = mesh.replicate(held, devices)
        return input_pipeline.ResidentInput(order, held, fix.get("order"))
    opened = tuple(plan.opened.values())
    files = input_pipeline.JoinedSources(opened, plan.columns)
    if stream.crop == "host":
        cut = (stream.size, stream.window)
        read = input_pipeline.BatchReader(files, order, plan.name, *cut, fix)
        parts = functools.partial(mesh.assemble, mesh=devices)
        place = parts if reading.parts > 1 else None  # Whole, they are placed later.
        return input_pipeline.StreamedInput(order, read, seeds, steps, reading, place)
    firsts = np.cumsum([0, *map(len, opened[:-1])]).tolist()
    several = isinstance(order, samplers.MixtureSampler)
    reader = functools.partial(input_pipeline.WindowReader, files, canvas=stream.canvas)
    read = [reader(first) for first in (firsts if several else firsts[:1])]
    place = functools.partial(mesh.gather, mesh=devices)
    part, parts, each = mesh.local_part(devices, devices.axis_names)
    reading = reading._replace(part=part, parts=parts, devices=each)
    how = steps, reading, place, fix.get("order")
    return input_pipeline.WindowedInput(order, read, *how)
