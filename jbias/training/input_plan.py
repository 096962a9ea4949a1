"""Plan a stage's training inputs from config.train: data sets, order, memory or streaming."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import UInt8

from jbias import build, errors, run_spec
from jbias.algos import groups
from jbias.data import base, config_sets, decoding, loader
from jbias.data import sources as data_sources
from jbias.runtime import mesh
from jbias.training import input_pipeline, samplers

CROP = "random_resized_crop"
_WINDOW_EXAMPLES = 16384


class StreamOptions(NamedTuple):
    """Options of a streamed training set: crop, window and canvas of config.train."""

    crop: str  # Where images are cropped at random: "host" or "device".
    size: int  # Side of the images that the host makes for crop="host", in pixels.
    steps: int | None = None  # Batches per window; None: no windows.
    # Side of the images that the host makes for a crop on the device, in pixels; None:
    # preprocessed as for evaluation.
    canvas: int | None = None
    # Options of the random crop on the host; None: preprocessed as for evaluation.
    window: Mapping[str, Any] | None = None


class InputPlan(NamedTuple):
    """The plan of one input of a stage: its data sets, their order and the transforms."""

    sources: Mapping[str, base.Source]  # By name, as in messages and provenance.
    columns: Mapping[str, np.ndarray]  # Columns of all examples.
    stream: StreamOptions | None  # None: all examples are in the device's memory.
    inputs: Sequence[Mapping[str, Any]]  # Options of the transforms on the device.
    order: samplers.Sampler
    name: str  # Name of the input's random stream.

    @property
    def streams(self) -> bool:
        """True if images are read from files during training."""
        return self.stream is not None

    @property
    def source(self) -> base.Source:
        """The first source, which defines the classes."""
        return next(iter(self.sources.values()))

    @property
    def description(self) -> str:
        """Description of the streamed images, for logs and tables; only if `streams`."""
        stream, decoder = self.stream, decoding.decoder_name()
        if stream.crop == "host":
            crops = f"random crops of the original to {stream.size} pixels ({decoder})"
            images = "as for evaluation" if stream.window is None else crops
            return f"streamed: {images}, for each seed its own"
        images = "as for evaluation"
        if stream.canvas:
            images = f"squeezed to {stream.canvas}x{stream.canvas} ({decoder})"
        return f"streamed: {images}, {self.order.span} examples at a time for all seeds"


class _Places(NamedTuple):
    """The names of an input's entries in the config, for messages."""

    options: str  # Such as "config.train".
    inputs: str  # Such as "config.inputs".


def plan_stages(
    stages: Sequence[run_spec.StageSpec], train_sets: Sequence[config_sets.TrainSet]
) -> list[dict[str, InputPlan]]:
    """Return the plans of each stage by name: "train", and "other" for a second set.

    train_sets: the opened training set of each stage. ValueError for wrong options of
    config.train.
    """
    return [
        _plan_stage(stage, train_set) for stage, train_set in zip(stages, train_sets)
    ]


def _plan_stage(
    stage: run_spec.StageSpec, train_set: config_sets.TrainSet
) -> dict[str, InputPlan]:
    """Return a stage's plans by name: "train", and "other" if it has a second set.

    train_set: the opened training set. ValueError for options of config.train that do not fit
    the data.
    """
    number, at, config = stage
    options = config["train"]
    where, other_where = f"{at}.train", f"{at}.train.other"
    suffix = f"/{number}" if number > 0 else ""
    other_name = f"train/{number}/other"
    named = train_set.named(number)
    plans = {
        "train": _plan(
            _Places(where, f"{at}.inputs"),
            options,
            inputs=config["inputs"],
            sources={name: x for name, x in named.items() if name != other_name},
            columns=config_sets.join_columns(train_set.sources),
            name=f"order{suffix}",
        )
    }
    if train_set.other:
        other_options = {**options["other"], "batch": options["batch"]}
        other = _plan(
            _Places(other_where, f"{other_where}.inputs"),
            other_options,
            inputs=other_options.get("inputs", ()),
            sources={other_name: train_set.other},
            columns={},
            name=f"other{suffix}",
        )
        if other_options.get("pair"):
            other = _with_partners(other_where, plans["train"], other=other)
        plans["other"] = other
    return plans


def _with_partners(where: str, train: InputPlan, *, other: InputPlan) -> InputPlan:
    """Return the plan of the second set with batches of the same classes as the first set.

    where: name of the second set's options, such as "config.train.other", for messages.
    train, other: plans of the first and the second set. ValueError unless both sets are in
    memory, without shares or balance, and the second set has examples of every class of the
    first.
    """
    has_epochs = isinstance(train.order, samplers.EpochSampler)
    if train.stream or other.stream or not has_epochs:
        raise ValueError(
            f"{where}.pair: needs both sets in memory and neither shares nor balance; "
            "remove crop, shares and balance, or pair"
        )
    try:
        order = samplers.PairedSampler(
            train.order,
            labels=train.columns["label"],
            other_labels=other.source.columns["label"],
            stream=other.name,
        )
    except ValueError as error:
        raise ValueError(f"{where}.{error}") from error
    return other._replace(order=order)


def _plan(
    places: _Places,
    options: Mapping[str, Any],
    *,
    inputs: Sequence[Mapping[str, Any]],
    sources: Mapping[str, base.Source],
    columns: Mapping[str, np.ndarray],
    name: str,
) -> InputPlan:
    """Return the plan of one input.

    places: names of the options in the config, for messages. options: config.train or
    config.train.other, with the batch. inputs: options of the batch transforms. sources,
    columns, name: fields of `InputPlan`. ValueError for wrong options, for sources with
    images of different sizes, and for streaming of a source without files.
    """
    where = places.options
    shapes = {source.shape for source in sources.values()}
    if len(shapes) > 1:
        must = "all sets must have images of one size"
        raise ValueError(f"{where}.size: {must}, got {sorted(shapes)}")
    size = max(source.size for source in sources.values())
    stream, device_inputs = _read_stream(places, options, inputs=inputs, size=size)
    if stream:
        _check_sources_have_files(where, sources.values())
    if options.get("balance"):
        order = _balanced_order(
            where, options, stream=stream, columns=columns, name=name
        )
    else:
        counts = [len(source) for source in sources.values()]
        order = _order(where, options, stream=stream, counts=counts, name=name)
    return InputPlan(
        sources=sources,
        columns=columns,
        stream=stream,
        inputs=device_inputs,
        order=order,
        name=name,
    )


def _check_sources_have_files(where: str, sources: Iterable[base.Source]) -> None:
    """Raise ValueError for a source without image files, which cannot be streamed.

    where: start of the error message.
    """
    for i, source in enumerate(sources):
        if data_sources.is_in_memory(source):
            must = f"{where}.crop: must be left out"
            if i:
                must = f"{where}.also[{i - 1}]: must be a set of files"
            raise ValueError(
                f"{must}, got {source.name}, whose images are in memory as they are"
            )


def _order(
    where: str,
    options: Mapping[str, Any],
    *,
    stream: StreamOptions | None,
    counts: Sequence[int],
    name: str,
) -> samplers.Sampler:
    """Return the sampler of one set, or of several sets with config.train.shares.

    where: name of the options, such as "config.train", for messages. options: the options, with
    `batch` and, for several sets, `shares`. stream: None if the examples are in memory. counts:
    number of examples per source. name: name of the random stream. ValueError for a wrong batch
    or wrong shares.
    """
    shares, batch = options.get("shares"), options["batch"]
    steps = stream.steps if stream else None
    try:
        if shares:
            return samplers.MixtureSampler.from_shares(
                counts, shares, batch=batch, stream=name, steps=steps
            )
        return samplers.make_sampler(sum(counts), batch, steps=steps, stream=name)
    except ValueError as error:
        key = "shares" if "shares" in str(error) else "batch"
        problem = f"for `other` {error}" if where.endswith(".other") else error
        where = where.removesuffix(".other")
        raise ValueError(f"{where}.{key}: {problem}") from error


def _balanced_order(
    where: str,
    options: Mapping[str, Any],
    *,
    stream: StreamOptions | None,
    columns: Mapping[str, np.ndarray],
    name: str,
) -> samplers.Sampler:
    """Return a sampler with equal shares of the groups of config.train.balance per batch.

    where: name of the options, such as "config.train", for messages. options: the options, with
    `balance` and `batch`. stream: None if the examples are in memory. columns: columns of the
    examples; `balance` names some of them, see `groups.select_columns`. name: name of the
    random stream. ValueError for sets in windows or with shares, for unknown columns, and for a
    batch of more than all examples.
    """
    balance = f"{where}.balance"
    if options.get("shares") or (stream and stream.steps is not None):
        clash = "shares" if options.get("shares") else "crop='device'"
        raise ValueError(
            f"{balance}: cannot be combined with {clash}; remove one of them"
        )
    _, attributes = groups.select_columns(balance, columns, options["balance"])
    _, group_of_example = np.unique(np.stack(attributes), axis=1, return_inverse=True)
    try:
        return samplers.BalancedSampler(
            group_of_example.ravel(), options["batch"], stream=name
        )
    except ValueError as error:
        raise ValueError(f"{where}.batch: {error}") from error


def _read_stream(
    places: _Places,
    options: Mapping[str, Any],
    *,
    inputs: Sequence[Mapping[str, Any]],
    size: int,
) -> tuple[StreamOptions | None, list[Mapping[str, Any]]]:
    """Return the options of streaming, and the options of the transforms on the device.

    Unless the option `crop` is "host" or "device", the set is in the device's memory and the
    options of streaming are None. With "host", a random crop, if any, must be the first transform
    and is left out of the returned transforms.

    places: names of the options in the config, for messages. options: config.train or
    config.train.other. inputs: options of the batch transforms. size: side of the images in
    pixels, unless a crop has its own size. ValueError for wrong options.
    """
    where = places.options
    crop, inputs, batch = options.get("crop"), list(inputs), options["batch"]
    if not isinstance(crop, str):
        return None, inputs
    build.transforms(
        places.inputs, inputs
    )  # Raises for wrong options of the crop, too.
    names = [transform["name"] for transform in inputs]
    if crop == "host":
        if CROP in names[1:]:
            raise ValueError(
                f"{where}.crop: 'host' cuts the {CROP} that inputs begin with, got it "
                f"after {names[0]}; take crop='device'"
            )
        if names[:1] != [CROP]:
            return StreamOptions("host", size), inputs
        first, *device_inputs = inputs
        window = {key: first[key] for key in ("area", "aspect") if key in first}
        size = first.get("size") or size
        return StreamOptions("host", size, window=window), device_inputs

    def option_at_least(key: str, low: int, *, default: int) -> int:
        """Return the option `key`; ValueError unless it is an int of at least `low`."""
        value = options.get(key, default)
        if type(value) is not int or value < low:
            errors.refuse(
                f"{where}.{key}", f"be a whole number of at least {low}", value
            )
        return value

    window_examples = option_at_least(
        "window", batch, default=max(batch, _WINDOW_EXAMPLES)
    )
    steps = window_examples // batch
    if CROP in names:
        canvas = option_at_least("canvas", size, default=round(size * 256 / 224))
        position = names.index(CROP)
        inputs[position] = {"size": size, **inputs[position]}
        return StreamOptions("device", size, steps=steps, canvas=canvas), inputs
    if "canvas" in options:
        raise ValueError(
            f"{where}.canvas: needs a {CROP} among the inputs, got {names}"
        )
    return StreamOptions("device", size, steps=steps), inputs


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

    The pipeline is a ResidentInput without streaming, a StreamedInput for crop="host", and a
    WindowedInput for crop="device".

    images: the images of each source that is not streamed, by name of the source. reading:
    threads, worker processes and this process's share. fix: config.fix, seeds that all members
    share.
    """
    stream, order = plan.stream, plan.order
    if stream is None:
        arrays = [images[name] for name in plan.sources]
        joined = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
        rows = input_pipeline.flatten_images({"image": joined, **plan.columns})
        rows = mesh.replicate(rows, devices)
        return input_pipeline.ResidentInput(order, rows, fixed=fix.get("order"))
    sources = tuple(plan.sources.values())
    files = input_pipeline.JoinedSources(sources, plan.columns)
    if stream.crop == "host":
        read_batch = input_pipeline.BatchReader(
            files,
            order,
            name=plan.name,
            size=stream.size,
            window=stream.window,
            fix=fix,
        )
        place = None  # Complete batches are placed later.
        if reading.parts > 1:
            place = functools.partial(mesh.assemble, mesh=devices)
        return input_pipeline.StreamedInput(
            order, read_batch, seeds=seeds, steps=steps, reading=reading, place=place
        )
    first_examples = [0]  # First example of each source with windows of its own.
    if isinstance(order, samplers.MixtureSampler):
        counts = [len(source) for source in sources[:-1]]
        first_examples = np.cumsum([0, *counts]).tolist()
    read_windows = [
        input_pipeline.WindowReader(files, first, canvas=stream.canvas)
        for first in first_examples
    ]
    part = mesh.local_part(devices, devices.axis_names)
    reading = reading._replace(
        part=part.index, parts=part.count, devices=part.num_devices
    )
    return input_pipeline.WindowedInput(
        order,
        read_windows,
        steps=steps,
        reading=reading,
        place=functools.partial(mesh.gather, mesh=devices),
        fixed=fix.get("order"),
    )
