"""Compiles the program of one row for one target, in a process of its own.

    python -m benchmarks.compiled_step ROW TARGET FOLDER [known]

A target is one of jbias.training.targets; the name of a kind alone, such as v5e, is one
device of it. What the compiler says is kept by a digest of what it was given: the same
program is compiled once; with `known` not even that, where the results have the row's.
"""

import functools
import gzip
import hashlib
import importlib.metadata
import json
import math
import os
import pathlib
import re
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from benchmarks import collectives, compiled_peers, compiled_rows, measured
from jbias import build
from jbias.algos import base
from jbias.evals import inference
from jbias.models import folding
from jbias.runtime import xla
from jbias.training import (
    gpu_time,
    input_pipeline,
    memory,
    optim,
    seed_axis,
    stages,
    targets,
)
from jbias.training import step as train_step

PACKAGES = ("jax", "jaxlib", "libtpu", "jax-cuda13-plugin", "flax", "optax")
ROOT = pathlib.Path(__file__).parents[1]
GROUPS = 4  # Classes' attributes, and domains.


def mesh_of(text: str) -> tuple[targets.Target, jax.sharding.Mesh]:
    """A target and its devices; the name of a kind alone is one of these."""
    kind = targets.KINDS.get(text)
    host = ":2x2" + "x1" * (kind.axes - 2) if kind and kind.axes else ""
    target = targets.parse(text + host)
    there = targets.devices(target)[: 1 if kind else None]
    types = (AxisType.Auto, AxisType.Auto)
    grid = np.reshape(np.array(there), (1, -1))
    return target, jax.sharding.Mesh(grid, ("seed", "data"), axis_types=types)


def recoloured(batch: base.Batch, permute: Any, alpha: float, style: Any = None) -> Any:
    """Stands in for style transfer: images take the mean colours of others."""
    image = batch["image"]
    colour = image.mean((1, 2), keepdims=True)
    new = (
        permute(colour) if style is None else style["image"].mean((1, 2), keepdims=True)
    )
    return image + alpha * (new - colour)


def _algorithm(row: compiled_rows.Row) -> tuple[base.Algo, list[build.BatchTransform]]:
    setting = row.setting
    inputs = build.transforms("inputs", row.inputs)
    config = {"model": setting.model, "precision": "bfloat16"}
    views = math.prod(one.views for one in inputs)
    net = build.network(config, setting.classes, views)
    count = setting.held or 1_000
    columns = {
        "label": np.arange(count) % setting.classes,
        "attribute": np.arange(count) % GROUPS,
        "domain": np.arange(count) % GROUPS,
    }
    options = dict(row.options)
    if options.get("transfer") == "recoloured":
        options["transfer"] = recoloured
    return build.algorithm({"name": row.algo, **options}, net, columns), inputs


def _fed(setting: compiled_rows.Setting, batch: int, *, labelled: bool) -> tuple:
    """Shapes of what a step takes of a set, and of what is held of it."""

    def rows(count: int) -> dict[str, jax.ShapeDtypeStruct]:
        names = ("label", "attribute", "domain") if labelled else ()
        found = {name: jax.ShapeDtypeStruct((count,), jnp.int32) for name in names}
        image = (count, setting.size, setting.size, 3)
        return {"image": jax.ShapeDtypeStruct(image, jnp.uint8), **found}

    if setting.held:
        places = jax.ShapeDtypeStruct((batch,), jnp.int32)
        return places, jax.eval_shape(input_pipeline.flatten_images, rows(setting.held))
    return rows(batch), {}


def _placed(tree: PyTree, devices: jax.sharding.Mesh, *axes: str) -> PyTree:
    place = NamedSharding(devices, PartitionSpec(*axes))
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), tree
    )


def training(row: compiled_rows.Row, devices: jax.sharding.Mesh) -> tuple:
    """The lowered step, how many such programs all seeds take, and gradients' bytes."""
    setting, batch = row.setting, row.setting.batch * devices.size
    algo, inputs = _algorithm(row)

    def txs_at(scale: Any) -> tuple:
        rate = optim.cosine(0.1 * scale, 10_000)
        return (optim.sgd(rate, momentum=0.9, decay=1e-4),) * len(algo.updates)

    fed = {"train": _fed(setting, batch, labelled=True)}
    if row.other:
        fed["other"] = _fed(setting, batch, labelled=False)
    taken, held = ({name: one[i] for name, one in fed.items()} for i in range(2))
    one = stages.make_seed_step(
        algo, txs_at, inputs, setting.classes, block=algo.mix_group
    )
    draw = stages.make_initialiser(algo, txs_at(1), (setting.size,) * 2, 0, 0.0)
    own = jax.eval_shape(lambda: jax.random.key(0))
    state = jax.eval_shape(draw, own, None)
    strategy = seed_axis.resolve_strategy(row.strategy, devices)
    together = strategy.stacked or strategy.dispatch == "unrolled"
    given = stages.StepShapes(state, own, taken, held, algo.static(5, 10))
    count = row.seeds if together else 1
    program = memory.lower_step(one, strategy, given, devices, count)
    gradients = row.seeds * collectives.gradient_bytes(algo, state.params)
    return program, 1 if together else row.seeds, gradients


def evaluation(row: compiled_rows.Row, devices: jax.sharding.Mesh) -> tuple:
    """Likewise, of a network's logits of a batch."""
    setting = row.setting
    algo, _ = _algorithm(row)
    decide = algo.decide or functools.partial(algo.net.apply, train=False)
    decide = folding.fold_norms(decide) if row.folds else decide
    draw = stages.make_initialiser(
        algo, _no_optimisers(algo), (setting.size,) * 2, 0, 0.0
    )
    state = jax.eval_shape(draw, jax.random.key(0), None)
    net = jax.eval_shape(train_step.net_of, state)
    shape = (setting.batch * devices.size, setting.size, setting.size, 3)
    image = _placed(jax.ShapeDtypeStruct(shape, jnp.uint8), devices, "data")
    options = xla.compiler_options(_kind(devices))
    program = jax.jit(
        inference.make_scorer(decide), static_argnums=3, compiler_options=options
    )
    return program.lower(_placed(net, devices), None, image, None), 1, 0


def shown(row: compiled_rows.Row, devices: jax.sharding.Mesh) -> tuple:
    """Likewise, of what a network would be given: the inputs alone, in bfloat16."""
    setting, batch = row.setting, row.setting.batch * devices.size
    inputs = build.transforms("inputs", row.inputs)
    taken, held = _fed(setting, batch, labelled=True)
    beside, _ = _fed(setting, batch, labelled=False)

    def program(key: Any, taken: PyTree, beside: PyTree, held: PyTree) -> PyTree:
        with jax.named_scope("data"):
            batch = input_pipeline.assemble_batch(held, taken, setting.classes)
            if row.other:
                batch["other"] = input_pipeline.assemble_batch(held, beside, None)
        batch = stages.transform_batch(batch, key, 0, inputs)
        kept = ("image", "target", "label", "domain", "attribute")
        batch["image"] = batch["image"].astype(jnp.bfloat16)
        return {name: batch[name] for name in kept if name in batch}

    own = jax.eval_shape(lambda: jax.random.key(0))
    given = (_placed(one, devices, "data") for one in (taken, beside))
    compiled = jax.jit(program, compiler_options=xla.compiler_options(_kind(devices)))
    lowered = compiled.lower(_placed(own, devices), *given, _placed(held, devices))
    return lowered, 1, 0


def _kind(devices: jax.sharding.Mesh) -> str:
    return devices.devices.flat[0].device_kind


def _no_optimisers(algo: base.Algo) -> tuple:
    return (optim.sgd(optim.constant(0.0, 1)),) * len(algo.updates)


def peer(row: compiled_rows.Row, devices: jax.sharding.Mesh) -> tuple:
    """Likewise, of a peer's step, whose images come as an argument."""
    setting = row.setting
    made = compiled_peers.STEPS[row.algo](
        setting.classes, setting.batch * devices.size, setting.size
    )
    state, batch = _placed(made.state, devices), _placed(made.batch, devices, "data")
    room = row.options.get("vmem")
    more = {"xla_tpu_scoped_vmem_limit_kib": str(room)} if room else None
    step = jax.jit(made.step, donate_argnums=0, compiler_options=more)
    return step.lower(state, batch), 1, 0


def lowered(row: compiled_rows.Row, devices: jax.sharding.Mesh) -> tuple:
    """The program of a row, how often it runs, and bytes of its gradients."""
    if row.algo in compiled_rows.PEERS:
        return peer(row, devices)
    if not row.setting.model:
        return shown(row, devices)
    return evaluation(row, devices) if row.evaluates else training(row, devices)


def versions() -> dict[str, str]:
    """Of all that makes a program."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass  # Not needed for every target.
    return found


def source() -> str:
    """Return a digest of the code that makes programs, of the packages and XLA's flags."""
    digest = hashlib.sha256(json.dumps(versions()).encode())
    digest.update(os.environ.get("XLA_FLAGS", "").encode())
    ours = sorted((ROOT / "benchmarks").glob("compiled_*.py"))
    folders = (ROOT / "jbias", ROOT / "configs")
    whole = sorted(path for one in folders for path in one.rglob("*.py"))
    for path in (*whole, *ours):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _digest(program: jax.stages.Lowered, target: str, options: Any) -> str:
    """Of a program, with the names of what asked for its operations."""
    text = program.as_text(debug_info=True)
    names = re.findall(r'^#loc\d* = loc\("([^"]*)"\(', text, re.MULTILINE)
    digest = hashlib.sha256(program.as_text().encode())
    digest.update(json.dumps([target, versions(), names, options]).encode())
    return digest.hexdigest()[:24]


def file_of(name: str, target: str) -> str:
    """What the file of a row is called."""
    return re.sub(r"[^\w.,+=@-]+", "-", f"{name}@{target}") + ".json"


def results(target: str, what: str = "compiled") -> str:
    """What a target's file of results is called."""
    return f"{what}-{target.replace(':', '-')}"


def known(name: str, target: str) -> dict[str, Any] | None:
    """What the results say of a row; None where they have none."""
    path = measured.RESULTS / f"{results(target)}.json"
    rows = json.loads(path.read_text())["results"] if path.exists() else ()
    return next((one for one in rows if one["row"] == name), None)


def compiled(program: jax.stages.Lowered, platform: str) -> tuple[dict[str, Any], str]:
    """What the compiler says of a program, and its text."""
    began, launches = time.monotonic(), {}
    if platform == "gpu":
        made, launches = gpu_time.compile_launches(program)
    else:
        made = program.compile()
    counted, cost = made.memory_analysis(), made.cost_analysis() or {}
    said = {
        **({"launches": launches} if launches else {}),
        "flops": cost.get("flops"),
        "bytes": cost.get("bytes accessed"),
        "temporary": counted.temp_size_in_bytes,
        "arguments": counted.argument_size_in_bytes,
        "seconds": time.monotonic() - began,
        **versions(),
    }
    return said, made.as_text()


def main(name: str, target: str, folder: str, reuse: str = "") -> None:
    """Lowers a row, and compiles it unless the same program was."""
    earlier = known(name, target) if reuse == "known" else None
    keep, row = pathlib.Path(folder), compiled_rows.parse(name)
    for part in ("rows", "programs"):
        (keep / part).mkdir(parents=True, exist_ok=True)
    told: dict[str, Any] = {"row": name, "target": target, "source": source()}
    try:
        aim, devices = mesh_of(target)
        with xla.compiling_for(aim.platform):
            program, times, gradients = lowered(row, devices)
            options = [xla.compiler_options(_kind(devices)), row.options.get("vmem")]
            flags = os.environ.get("XLA_FLAGS")
            options += [flags] if flags else []
            told |= {
                "program": _digest(program, target, options),
                "times": times,
                "gradients": gradients,
                "devices": devices.size,
            }
            path = keep / "programs" / told["program"]
            same = earlier and earlier.get("program") == told["program"]
            if not (same or path.with_suffix(".json").exists()):
                said, text = compiled(program, aim.platform)
                path.with_suffix(".hlo.gz").write_bytes(gzip.compress(text.encode()))
                path.with_suffix(".json").write_text(json.dumps(said, indent=1))
    except (ValueError, jax.errors.JaxRuntimeError) as error:
        told["error"] = str(error).strip()[:2000]
    path = keep / "rows" / file_of(name, target)
    path.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
