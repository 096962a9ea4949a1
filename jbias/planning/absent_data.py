"""Stands in for data sets that are not here: their sizes, and shapes of what feeds a step."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from jbias import data, run_spec
from jbias.data import base, decoding, listing, sources, splits, tables
from jbias.training import input_pipeline, input_plan, samplers, setup


class UnknownSize(ValueError):
    """A set that is not there, and of which nobody says how large it is."""


class AssumedSize(NamedTuple):
    """What a user says of sets that are not there."""

    images: int = 0  # 0: not said.
    classes: int = 0


NOTHING_ASSUMED = AssumedSize()


class _AbsentStore(NamedTuple):
    """The store of a set that is not there."""

    names: range


def open_source(
    where: str,
    options: Mapping[str, Any],
    size: int,
    given: AssumedSize = NOTHING_ASSUMED,
) -> base.Source:
    """Opens a set; one that is not there has as many images as was published, or given."""
    try:
        return splits.open_source(where, options, size)
    except ValueError as error:
        name, missing = options.get("data"), isinstance(error.__cause__, base.Missing)
        if not missing or data.DATASETS[name].aspect != (1, 1):
            raise
        part = listing.parse_split(where, options["split"])
        spec = data.DATASETS[name]
        images = given.images
        if spec.classes and isinstance(spec.images, Mapping):
            images = spec.images.get(part.base, images)
        classes = spec.classes or given.classes
        if not images or not classes:
            raise UnknownSize(f"{error}; or give --images=N and --classes=K") from error
    left = listing.cut_index(images, part.stop) - listing.cut_index(images, part.start)
    names, wnids = [f"class {i}" for i in range(classes)], tables.wnids()
    return sources.EncodedSource(
        store=_AbsentStore(range(left)),
        transform=decoding.preprocess(options.get("size", size)),
        name=f"{name}/{options['split']}",
        classes=wnids if classes == len(wnids) else tuple(names),
        space="wnid" if classes == len(wnids) else "names",
        columns={"label": (np.arange(left) % classes).astype(np.int32)},
        measures=(),
        fingerprint="",
        cite="",
        note=f"not there: {left:,} images are assumed",
    )


@dataclasses.dataclass(frozen=True)
class _Shapes(input_pipeline.InputPipeline):
    """Shapes of what a set gives that is not read."""

    order: samplers.Sampler
    taken: PyTree
    rows: PyTree
    streams: bool = True

    def shapes(self) -> tuple[PyTree, PyTree]:
        return self.taken, self.rows

    def next_change(self, step: int) -> int:
        return self.order.next_change(step)


def pipeline_shapes(
    plan: input_plan.InputPlan, **_: Any
) -> input_pipeline.InputPipeline:
    """Shapes of what feeds the steps, as `input_plan.make_pipeline` has it."""
    (height, width), stream = next(iter(plan.opened.values())).shape, plan.stream
    columns = dict(plan.columns)
    if stream is not None:
        columns["index"] = np.zeros(1, np.int32)
        height = width = stream.canvas or stream.size
    if stream is not None and stream.canvas:
        columns["aspect"] = np.zeros(1, np.float32)

    def rows(count):
        image = jax.ShapeDtypeStruct((count, height, width, 3), np.uint8)
        return {"image": image, **input_pipeline.rows_shape(columns, count)}

    if stream is not None and stream.crop == "host":
        return _Shapes(plan.order, rows(plan.order.batch), {})
    count = plan.order.span if stream else sum(map(len, plan.opened.values()))
    held = jax.eval_shape(input_pipeline.flatten_images, rows(count))
    places = input_pipeline.index_shape(plan.order)
    return _Shapes(plan.order, places, held, stream is not None)


def open_or_assume(
    spec: run_spec.RunSpec, given: AssumedSize
) -> tuple[list[splits.TrainSet], list[base.Source], list[str]]:
    """What a run trains and tests on, there or not, and what is assumed of it."""
    setup.check_names(spec)
    size, tests, lost = spec.config["size"], [], []
    train = setup.open_train_sets(spec, functools.partial(open_source, given=given))
    for _, where, options in setup.test_options(spec.config):
        try:
            tests.append(splits.open_test_source(where, options, size, open_source))
        except UnknownSize as error:
            lost.append(f"left out of evaluation: {error}")
    all_ = [one for part in train for one in part.named(0).values()] + tests
    notes = [f"{one.name}: {one.note}" for one in all_ if one.note]
    return train, tests, list(dict.fromkeys([*notes, *lost]))
