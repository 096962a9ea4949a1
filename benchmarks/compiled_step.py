"""Compile the program of one row for one target.

    python -m benchmarks.compiled_step ROW TARGET FOLDER [known]

jbias.training.tuning.targets lists targets; a kind alone, such as v5e, means one device. The
compiler's analysis is stored in FOLDER under a digest of the program, so the same program is
compiled once. With `known`, a program that the committed results describe is not compiled.

Takes from seconds to 47 minutes (a ResNet-50) on two cores.
"""

import argparse
import functools
import gzip
import hashlib
import importlib.metadata
import json
import math
import os
import pathlib
import re
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from benchmarks import collectives, compiled_peers, compiled_rows, result_files
from jbias import build
from jbias.algos import base
from jbias.evals import inference
from jbias.models import folding
from jbias.runtime import cuda_graphs, xla
from jbias.training import input_pipeline, optim, stages, strategies
from jbias.training import step as train_step
from jbias.training.averaging import averages
from jbias.training.perturbing import sharpness
from jbias.training.tuning import gpu_time, memory_estimate, targets

PACKAGES = ("jax", "jaxlib", "libtpu", "jax-cuda13-plugin", "flax", "optax")
ROOT = pathlib.Path(__file__).parents[1]
GROUPS = 4  # Number of attributes, and of domains.
_NUM_STEPS = 10


class RowProgram(NamedTuple):
    """A lowered row.

    times: runs of the program in one step of all seeds. gradient_bytes: bytes of one
    gradient of the weights that the step trains, of all seeds; 0 for a program that does not
    train.
    """

    lowered: jax.stages.Lowered
    times: int
    gradient_bytes: int


def make_mesh(text: str) -> tuple[targets.Target, jax.sharding.Mesh]:
    """Return a target and a mesh of its devices; a kind alone means one device."""
    kind = targets.KINDS.get(text)
    host = ":2x2" + "x1" * (kind.axes - 2) if kind and kind.axes else ""
    target = targets.parse(text + host)
    devices = targets.devices(target)[: 1 if kind else None]
    types = (AxisType.Auto, AxisType.Auto)
    grid = np.reshape(np.array(devices), (1, -1))
    return target, jax.sharding.Mesh(grid, ("seed", "data"), axis_types=types)


def recoloured(batch: base.Batch, permute: Any, alpha: float, style: Any = None) -> Any:
    """Return images with the mean colours of other images, in place of style transfer.

    permute: reorders images of the batch; gives the other images if `style` is None.
    alpha: strength in [0, 1]. style: a batch of style images.
    """
    image = batch["image"]
    colour = image.mean((1, 2), keepdims=True)
    if style is None:
        new_colour = permute(colour)
    else:
        new_colour = style["image"].mean((1, 2), keepdims=True)
    return image + alpha * (new_colour - colour)


def _algorithm(row: compiled_rows.Row) -> tuple[base.Algo, list[build.BatchTransform]]:
    setting = row.setting
    inputs = build.transforms("inputs", row.inputs)
    config = {"model": setting.model, "precision": "bfloat16"}
    views = math.prod(transform.views for transform in inputs)
    net = build.network(config, setting.classes, views)
    count = setting.resident or 1_000
    columns = {
        "label": np.arange(count) % setting.classes,
        "attribute": np.arange(count) % GROUPS,
        "domain": np.arange(count) % GROUPS,
    }
    options = dict(row.options)
    if options.get("transfer") == "recoloured":
        options["transfer"] = recoloured
    return build.algorithm({"name": row.algo, **options}, net, columns), inputs


def _data_shapes(
    setting: compiled_rows.Setting, batch: int, *, labelled: bool
) -> tuple[PyTree, PyTree]:
    """Return the shapes of a step's data and of the data set stored on the device.

    A step takes indices of a stored set, else images. labelled: with labels, attributes
    and domains.
    """

    def rows(count: int) -> dict[str, jax.ShapeDtypeStruct]:
        names = ("label", "attribute", "domain") if labelled else ()
        columns = {name: jax.ShapeDtypeStruct((count,), jnp.int32) for name in names}
        image = (count, setting.size, setting.size, 3)
        return {"image": jax.ShapeDtypeStruct(image, jnp.uint8), **columns}

    if setting.resident:
        indices = jax.ShapeDtypeStruct((batch,), jnp.int32)
        stored = rows(setting.resident)
        return indices, jax.eval_shape(input_pipeline.flatten_images, stored)
    return rows(batch), {}


def _add_sharding(tree: PyTree, devices: jax.sharding.Mesh, *axes: str) -> PyTree:
    sharding = NamedSharding(devices, PartitionSpec(*axes))
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree
    )


def lower_training(row: compiled_rows.Row, devices: jax.sharding.Mesh) -> RowProgram:
    """Return the lowered training step of a row."""
    setting, batch = row.setting, row.setting.batch * devices.size
    algo, inputs = _algorithm(row)

    def txs_at(scale: Any) -> tuple:
        rate = optim.cosine(0.1 * scale, 10_000)
        return (optim.sgd(rate, momentum=0.9, decay=1e-4),) * len(algo.updates)

    shapes = {"train": _data_shapes(setting, batch, labelled=True)}
    if row.has_second_set:
        shapes["other"] = _data_shapes(setting, batch, labelled=False)
    step_data = {name: data for name, (data, _) in shapes.items()}
    stored = {name: data for name, (_, data) in shapes.items()}
    average = averages.from_options(
        {"name": row.average} if row.average else 0.0,
        averages.Steps(total=10_000, per_epoch=390, per_evaluation=390),
    )
    seed_step = stages.make_seed_step(
        algo,
        txs_at,
        inputs,
        setting.classes,
        block=algo.mix_group,
        sharpness=sharpness.from_options({"radius": row.sharpness}),
        average=average,
    )
    init = stages.make_initialiser(
        algo, txs_at(1), shape=(setting.size,) * 2, first=0, average=average
    )
    key = jax.eval_shape(lambda: jax.random.key(0))
    state = jax.eval_shape(init, key, None)
    strategy = strategies.resolve_strategy(row.strategy, devices)
    in_one_program = strategy.stacked or strategy.dispatch == "unrolled"
    static = algo.static(row.step, _NUM_STEPS)
    step_shapes = stages.StepShapes(state, key, step_data, stored, static)
    count = row.seeds if in_one_program else 1
    lowered = memory_estimate.lower_step(
        seed_step, strategy, step_shapes, devices, count
    )
    size = collectives.gradient_bytes(algo, state.params, static=static)
    times = 1 if in_one_program else row.seeds
    return RowProgram(lowered, times, gradient_bytes=row.seeds * size)


def lower_evaluation(row: compiled_rows.Row, devices: jax.sharding.Mesh) -> RowProgram:
    """Return the lowered program that computes a network's logits for a batch."""
    setting = row.setting
    algo, _ = _algorithm(row)
    decide = algo.decide or functools.partial(algo.net.apply, train=False)
    decide = folding.fold_norms(decide) if row.folds else decide
    init = stages.make_initialiser(
        algo, _no_optimisers(algo), shape=(setting.size,) * 2, first=0
    )
    state = jax.eval_shape(init, jax.random.key(0), None)
    net = jax.eval_shape(train_step.net_of, state)
    shape = (setting.batch * devices.size, setting.size, setting.size, 3)
    image = _add_sharding(jax.ShapeDtypeStruct(shape, jnp.uint8), devices, "data")
    program = jax.jit(
        inference.make_scorer(decide),
        static_argnums=3,
        compiler_options=xla.compiler_options(_device_kind(devices)),
    )
    lowered = program.lower(_add_sharding(net, devices), None, image, None)
    return RowProgram(lowered, times=1, gradient_bytes=0)


def lower_inputs(row: compiled_rows.Row, devices: jax.sharding.Mesh) -> RowProgram:
    """Return the lowered program that prepares a batch in bfloat16, without a network."""
    setting, batch = row.setting, row.setting.batch * devices.size
    inputs = build.transforms("inputs", row.inputs)
    train_data, stored = _data_shapes(setting, batch, labelled=True)
    second_data, _ = _data_shapes(setting, batch, labelled=False)

    def prepare(key: Any, train: PyTree, second: PyTree, stored: PyTree) -> PyTree:
        with jax.named_scope("data"):
            batch = input_pipeline.assemble_batch(stored, train, setting.classes)
            if row.has_second_set:
                batch["other"] = input_pipeline.assemble_batch(stored, second, None)
        batch = stages.transform_batch(batch, key, 0, inputs)
        columns = ("image", "target", "label", "domain", "attribute")
        batch["image"] = batch["image"].astype(jnp.bfloat16)
        return {name: batch[name] for name in columns if name in batch}

    key = jax.eval_shape(lambda: jax.random.key(0))
    options = xla.compiler_options(_device_kind(devices))
    lowered = jax.jit(prepare, compiler_options=options).lower(
        _add_sharding(key, devices),
        _add_sharding(train_data, devices, "data"),
        _add_sharding(second_data, devices, "data"),
        _add_sharding(stored, devices),
    )
    return RowProgram(lowered, times=1, gradient_bytes=0)


def _device_kind(devices: jax.sharding.Mesh) -> str:
    return devices.devices.flat[0].device_kind


def _no_optimisers(algo: base.Algo) -> tuple:
    return (optim.sgd(optim.constant(0.0, 1)),) * len(algo.updates)


def lower_peer(row: compiled_rows.Row, devices: jax.sharding.Mesh) -> RowProgram:
    """Return the lowered step of a peer, which takes its images as an argument."""
    setting = row.setting
    make_step = compiled_peers.STEPS[row.algo]
    peer_step = make_step(setting.classes, setting.batch * devices.size, setting.size)
    vmem_kib = row.options.get("vmem")
    options = {"xla_tpu_scoped_vmem_limit_kib": str(vmem_kib)} if vmem_kib else None
    step = jax.jit(peer_step.step, donate_argnums=0, compiler_options=options)
    lowered = step.lower(
        _add_sharding(peer_step.state, devices),
        _add_sharding(peer_step.batch, devices, "data"),
    )
    return RowProgram(lowered, times=1, gradient_bytes=0)


def lower(row: compiled_rows.Row, devices: jax.sharding.Mesh) -> RowProgram:
    """Return the lowered program of a row for a mesh of devices."""
    if row.algo in compiled_rows.PEERS:
        return lower_peer(row, devices)
    if not row.setting.model:
        return lower_inputs(row, devices)
    if row.evaluates:
        return lower_evaluation(row, devices)
    return lower_training(row, devices)


def versions() -> dict[str, str]:
    """Return the versions of installed packages that influence a program, by name."""
    version_by_package = {}
    for name in PACKAGES:
        try:
            version_by_package[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass  # Not needed for every target.
    return version_by_package


def source() -> str:
    """Return a digest of the code that makes programs, of the packages and XLA's flags."""
    digest = hashlib.sha256(json.dumps(versions()).encode())
    digest.update(os.environ.get("XLA_FLAGS", "").encode())
    benchmark_paths = sorted((ROOT / "benchmarks").glob("compiled_*.py"))
    folders = (ROOT / "jbias", ROOT / "configs")
    paths = sorted(path for folder in folders for path in folder.rglob("*.py"))
    for path in (*paths, *benchmark_paths):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _digest(program: jax.stages.Lowered, target: str, options: Any) -> str:
    """Return a digest of a program and of the names of its operations."""
    text = program.as_text(debug_info=True)
    names = re.findall(r'^#loc\d* = loc\("([^"]*)"\(', text, re.MULTILINE)
    digest = hashlib.sha256(program.as_text().encode())
    digest.update(json.dumps([target, versions(), names, options]).encode())
    return digest.hexdigest()[:24]


def file_of(name: str, target: str) -> str:
    """Return the name of the JSON file of a row for a target."""
    return re.sub(r"[^\w.,+=@-]+", "-", f"{name}@{target}") + ".json"


def results_name(target: str, prefix: str = "compiled") -> str:
    """Return the name, without a suffix, of a target's file of results."""
    return f"{prefix}-{target.replace(':', '-')}"


def read_committed(name: str, target: str) -> dict[str, Any] | None:
    """Return a row's program of the committed results; None if they do not have it."""
    path = result_files.RESULTS / f"{results_name(target)}.json"
    programs = json.loads(path.read_text())["results"] if path.exists() else ()
    return next((program for program in programs if program["row"] == name), None)


def compile_program(
    lowered: jax.stages.Lowered, platform: str
) -> tuple[dict[str, Any], str]:
    """Compile a program; return the compiler's analysis and the text of the program.

    The analysis has FLOPs, bytes of memory and traffic, seconds of compilation, versions
    of packages, and on GPUs the number of launches by kind.
    """
    began, launches = time.monotonic(), {}
    if platform == "gpu":
        compiled, launches = gpu_time.compile_launches(lowered)
    else:
        compiled = lowered.compile()
    need, cost = compiled.memory_analysis(), compiled.cost_analysis() or {}
    analysis = {
        **({"launches": launches} if launches else {}),
        "flops": cost.get("flops"),
        "bytes": cost.get("bytes accessed"),
        "temporary": need.temp_size_in_bytes,
        "arguments": need.argument_size_in_bytes,
        "seconds": time.monotonic() - began,
        **versions(),
    }
    return analysis, compiled.as_text()


def main(name: str, target: str, folder: str, reuse: str = "") -> None:
    """Lower a row, compile its program unless that was done before, and write both."""
    committed = read_committed(name, target) if reuse == "known" else None
    keep, row = pathlib.Path(folder), compiled_rows.parse(name)
    for subfolder in ("rows", "programs"):
        (keep / subfolder).mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = {"row": name, "target": target, "source": source()}
    try:
        parsed_target, devices = make_mesh(target)
        with xla.compiling_for(parsed_target.platform):
            program = lower(row, devices)
            in_graphs = cuda_graphs.are_requested(devices.size)
            kind_options = xla.compiler_options(_device_kind(devices))
            options = [
                cuda_graphs.compiler_options(cuda_graphs.LOOP_OPTIONS)
                if in_graphs
                else kind_options,
                row.options.get("vmem"),
            ]
            flags = os.environ.get("XLA_FLAGS")
            options += [flags] if flags else []
            record["program"] = _digest(program.lowered, target, options)
            record["times"] = program.times
            record["gradients"] = program.gradient_bytes
            record["devices"] = devices.size
            path = keep / "programs" / record["program"]
            is_known = committed and committed.get("program") == record["program"]
            if not (is_known or path.with_suffix(".json").exists()):
                analysis, text = compile_program(
                    program.lowered, parsed_target.platform
                )
                path.with_suffix(".hlo.gz").write_bytes(gzip.compress(text.encode()))
                path.with_suffix(".json").write_text(json.dumps(analysis, indent=1))
    except (ValueError, jax.errors.JaxRuntimeError) as error:
        record["error"] = str(error).strip()[:2000]
    path = keep / "rows" / file_of(name, target)
    path.write_text(json.dumps(record, indent=1) + "\n")


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    result = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    result.add_argument("row", metavar="ROW", help="row of benchmarks.compiled_rows")
    result.add_argument("target", metavar="TARGET", help="target to compile for")
    result.add_argument("folder", metavar="FOLDER", help="folder to write to")
    result.add_argument(
        "known",
        nargs="?",
        choices=["known"],
        help="do not compile a program that the committed results describe",
    )
    return result


if __name__ == "__main__":
    options = parser().parse_args()
    main(options.row, options.target, options.folder, options.known or "")
