"""How the steps of a stage are fed, as its config says: from memory, or from files."""

import dataclasses
import functools
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Int, UInt8

from jbias import feed, mesh, sets, streams
from jbias import order as orders
from jbias.data import crops, sources, spec

CROP = "random_resized_crop"
_DEVICE_KEYS = ("window", "canvas")
_WINDOW = 16384  # Examples.


class Stream(NamedTuple):
    """How a set is streamed: the options crop, window and canvas of config.train."""

    crop: str  # "host", or "device".
    steps: int | None  # Batches in a window; None without windows.
    canvas: int | None  # Pixels; None where the evaluation's preprocessing is taken.
    window: Mapping[str, Any] | None  # Of random_resized_crop, where the host cuts.

    @property
    def words(self) -> str:
        """Says what is done, for logs and tables."""
        if self.crop == "host":
            cut = "random crops of the original, each seed its own"
            whole = "as for evaluation, decoded for each seed"
            return f"streamed: {whole if self.window is None else cut}"
        side = self.canvas
        shown = f"squeezed to {side}x{side}" if side else "as for evaluation"
        return f"streamed: {shown}, in windows of {self.steps} batches for all seeds"


class Plan(NamedTuple):
    """One stream of a stage: the sets, how they are fed, and what the device does."""

    opened: Mapping[str, spec.Source]  # By what messages and provenance call them.
    columns: Mapping[str, np.ndarray]  # Of the examples of all sets.
    stream: Stream | None  # None: all of it lives on the device.
    inputs: Sequence[Mapping[str, Any]]  # The transforms left to the device.
    order: orders.Order
    name: str  # Of its random streams.


def plans(
    number: int, config: Mapping[str, Any], train: sets.TrainSet
) -> dict[str, Plan]:
    """Plans how stage `number` is fed: "train", and "other" if there is one."""
    at = f"config.stages[{number}].train" if number else "config.train"
    options, suffix = config["train"], f"/{number}" * (number > 0)
    named, beside = train.named(number), f"train/{number}/other"
    found = {
        "train": _plan(
            at,
            options,
            config["inputs"],
            {name: one for name, one in named.items() if name != beside},
            sets.columns(train.sources),
            f"order{suffix}",
            config["size"],
        )
    }
    if train.other:
        other = {**options["other"], "batch": options["batch"]}
        inputs, opened = other.get("inputs", ()), {beside: train.other}
        found["other"] = _plan(
            f"{at}.other", other, inputs, opened, {}, f"other{suffix}", config["size"]
        )
    return found


def _plan(where, options, inputs, opened, columns, name, size) -> Plan:
    stream, left = streamed(where, options, inputs, size)
    for source in opened.values() if stream else ():
        if sources.in_memory(source):
            raise ValueError(
                f"{where}.crop: must be left out for {source.name}, whose images are "
                "in memory as they are"
            )
    counts = [len(source) for source in opened.values()]
    order = _order(where, options, stream, counts, name)
    return Plan(opened, columns, stream, left, order, name)


def _order(
    where: str,
    options: Mapping[str, Any],
    stream: Stream | None,
    counts: Sequence[int],
    name: str,
) -> orders.Order:
    shares, batch = options.get("shares"), options["batch"]
    steps = stream.steps if stream else None
    try:
        if shares:
            return orders.Shares.of(counts, shares, batch, name, steps=steps)
        return orders.make(sum(counts), batch, steps, name)
    except ValueError as error:
        key = "shares" if "shares" in str(error) else "batch"
        said = f"for `other` {error}" if where.endswith(".other") else error
        where = where.removesuffix(".other")
        raise ValueError(f"{where}.{key}: {said}") from error


def streamed(
    where: str, options: Mapping[str, Any], inputs: Sequence[Mapping], size: int
) -> tuple[Stream | None, list[Mapping]]:
    """Reads the options; returns how to stream, and the inputs left to the device.

    None where the set lives on the device as a whole.
    """
    crop, inputs = options.get("crop"), list(inputs)
    names = [one.get("name") for one in inputs]
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
    if crop == "host":
        if CROP in names[1:]:
            raise ValueError(
                f"{where}.crop: 'host' cuts the {CROP} that inputs begin with, got it "
                f"after {names[0]}; take crop='device'"
            )
        window = None
        if names[:1] == [CROP]:
            window = {k: v for k, v in inputs.pop(0).items() if k != "name"}
        return Stream("host", None, None, window), inputs
    steps = max(1, _whole(where, options, "window", _WINDOW) // options["batch"])
    if CROP not in names:
        if "canvas" in options:
            raise ValueError(
                f"{where}.canvas: needs a {CROP} among the inputs, got {names}"
            )
        return Stream("device", steps, None, None), inputs
    first = names.index(CROP)
    inputs[first] = {"size": size, **inputs[first]}
    canvas = _whole(where, options, "canvas", round(size * 256 / 224))
    return Stream("device", steps, canvas, None), inputs


def _whole(where: str, options: Mapping[str, Any], key: str, default: int) -> int:
    value = options.get(key, default)
    if type(value) is not int or value < 1:
        raise ValueError(f"{where}.{key}: must be a whole number, got {value!r}")
    return value


def make(
    plan: Plan,
    images: Mapping[str, UInt8[np.ndarray, "n h w c"]],
    devices: jax.sharding.Mesh,
    *,
    seeds: Sequence[int],
    steps: int,
    size: int,
    reading: feed.Reading,
) -> feed.Feed:
    """Makes what feeds `steps` steps of these seeds with images of `size` pixels.

    `images` are those of the sets that do not stream, by name.
    """
    stream, order = plan.stream, plan.order
    if stream is None:
        parts = [images[name] for name in plan.opened]
        joined = parts[0] if len(parts) == 1 else np.concatenate(parts)
        rows = mesh.replicate({"image": joined, **plan.columns}, devices)
        return feed.Resident(order, rows)
    opened = tuple(plan.opened.values())
    files = Files(opened, plan.columns)
    if stream.crop == "host":
        read = Batch(files, order, plan.name, size, stream.window)
        place = functools.partial(mesh.assemble, mesh=devices)
        return streams.Streamed(order, read, seeds, steps, reading, place)
    several = isinstance(order, orders.Shares)
    firsts = np.cumsum([0, *(len(source) for source in opened[:-1])])
    read = [
        Members(files, int(first), stream.canvas)
        for first in (firsts if several else firsts[:1])
    ]
    place = functools.partial(mesh.gather, mesh=devices)
    return streams.Windowed(order, read, steps, reading, place)


@dataclasses.dataclass(frozen=True)
class Files:
    """Sets one after the other, and what is known of all their examples."""

    opened: tuple[spec.Source, ...]
    columns: Mapping[str, np.ndarray]

    def at(self, index: int) -> tuple[spec.Source, int]:
        """The set of an example, and its number there."""
        for source in self.opened:
            if index < len(source):
                return source, int(index)
            index -= len(source)
        raise IndexError(index)

    def rows(self, index: Int[np.ndarray, "m"], image: UInt8[np.ndarray, "m h w 3"]):
        """Images with their columns."""
        known = {name: column[index] for name, column in self.columns.items()}
        return {"image": image, "index": index.astype(np.int32), **known}


@dataclasses.dataclass(frozen=True)
class Batch:
    """Reads rows of one seed's batch, cut at random by the seed, step and row alone."""

    files: Files
    order: orders.Order
    name: str
    size: int
    window: Mapping[str, Any] | None  # None: preprocessed as for evaluation.

    def __call__(self, step: int, seed: int, rows: slice) -> feed.Rows:
        index = self.order.index(seed, step)[rows]
        image = np.empty((len(index), self.size, self.size, 3), np.uint8)
        for i, (row, example) in enumerate(zip(range(rows.start, rows.stop), index)):
            source, number = self.files.at(example)
            if self.window is None:
                image[i] = source.image(number)
                continue
            draw = functools.partial(
                crops.box, self.generator(seed, step, row), **self.window
            )
            image[i] = source.cropped(number, self.size, draw)
        return self.files.rows(index, image)

    def generator(self, seed: int, step: int, row: int) -> np.random.Generator:
        """What an image is cut by; cheaper than a jax key, and needs no device."""
        stream = zlib.crc32(f"crop/{self.name}".encode())
        return np.random.default_rng((seed, stream, step, row))


@dataclasses.dataclass(frozen=True)
class Members:
    """Reads members of a window: whole images squeezed to a canvas, or preprocessed."""

    files: Files
    first: int  # Example that the members are counted from.
    canvas: int | None

    def __call__(self, members: Int[np.ndarray, "m"]) -> feed.Rows:
        index = members + self.first
        source = self.files.opened[0]
        side = self.canvas or source.size
        image = np.empty((len(index), side, side, 3), np.uint8)
        aspect = np.ones(len(index), np.float32)
        for i, example in enumerate(index):
            source, number = self.files.at(example)
            if self.canvas:
                image[i], aspect[i] = source.canvas(number, side)
            else:
                image[i] = source.image(number)
        rows = self.files.rows(index, image)
        return rows | ({"aspect": aspect} if self.canvas else {})
