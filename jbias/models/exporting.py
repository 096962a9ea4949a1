"""Networks as files for others, and as checkpoints that training can start from."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from flax import linen as nn

from jbias.models import catalogue, class_names, mapping, registry, safetensors

# Of training alone; an export of a network has none.
_PASSING = frozenset(
    ("classes", "tap", "dtype", "remat", "dropout", "norm_group", "parent", "name")
)


def save_safetensors(
    path: str | os.PathLike,
    module: nn.Module,
    variables: Mapping[str, Any],
    names: str = "published",
    classes: class_names.Classes | None = None,
) -> None:
    """Writes a file that `models.load` reads without being told the model."""
    _check_classes("models.save_safetensors", module, classes)
    if names not in ("published", "own"):
        raise ValueError(
            f"models.save_safetensors: names must be 'published' or 'own', got {names!r}"
        )
    model, options = described(module)
    tree = {collection: dict(inner) for collection, inner in variables.items()}
    if names == "own":
        arrays = {
            "/".join(entry.key for entry in key): np.asarray(leaf, np.float32)
            for key, leaf in jax.tree_util.tree_leaves_with_path(tree)
        }
    else:
        known = catalogue.dialects(model)
        if not known:
            raise ValueError(
                f"models.save_safetensors: {model} has no published names; use "
                "names='own'"
            )
        arrays = mapping.emptied(tree, known[0])
    said = {"model": model, "names": names, "options": options}
    said |= classes.stored() if classes else {}
    safetensors.write(path, arrays, {"format": "pt", "jbias": json.dumps(said)})


def _check_classes(
    where: str, module: nn.Module, classes: class_names.Classes | None
) -> None:
    if classes and len(classes.names) != module.classes:
        raise ValueError(
            f"{where}: classes must name the network's {module.classes}, got "
            f"{len(classes.names)}"
        )


def described(module: nn.Module) -> tuple[str, dict[str, Any]]:
    """The key of MODELS and the options that make a network, `classes` among them.

    ValueError where it is none of MODELS.
    """
    found = []
    for name, make in registry.MODELS.items():
        plain = make(module.classes)
        if type(plain) is not type(module):
            continue
        ours, theirs = _fields(module), _fields(plain)
        options = {k: v for k, v in ours.items() if v != theirs[k]}
        found.append((len(options), name, options))
    if not found:
        raise ValueError(
            f"models.save_safetensors: {type(module).__name__} is no network of MODELS"
        )
    _, name, options = min(found, key=lambda one: one[0])
    # Always said, whatever the defaults become.
    always = {k: v for k, v in _fields(module).items() if k in ("mean", "std")}
    return name, {"classes": module.classes, **options, **always}


def _fields(module: nn.Module) -> dict[str, Any]:
    return {
        field.name: vars(module)[field.name]
        for field in dataclasses.fields(module)
        if field.name not in _PASSING
    }


def save_run(
    workdir: str | os.PathLike,
    module: nn.Module,
    variables: Mapping[str, Any],
    classes: class_names.Classes | None = None,
) -> None:
    """Writes a workdir of one seed, which `config.init` can name and `models.load` reads.

    ValueError where something is there already.
    """
    _check_classes("models.save_run", module, classes)
    workdir = pathlib.Path(workdir).resolve()
    if workdir.exists() and any(workdir.iterdir()):
        raise ValueError(f"{os.fspath(workdir)}: must be a new folder; name another")
    model, options = described(module)
    del options["classes"]
    # config.init reads checkpoints, seeds and branches; models.load the model as well.
    config = {
        "model": {"name": model, **options},
        "seeds": [0],
        "vary": [],
        "size": 224,
        **(classes.stored() if classes else {}),
    }
    net = {key: jax.tree.map(np.asarray, dict(variables[key])) for key in variables}
    state = {
        "params": {"net": net["params"]},
        "stats": {"net": net.get("stats", {})},
    }
    workdir.mkdir(parents=True, exist_ok=True)
    at_once = ocp.CheckpointManagerOptions(enable_async_checkpointing=False)
    manager = ocp.CheckpointManager(
        workdir / "checkpoints", options=at_once, item_names=("state", "info")
    )
    info = {"body": json.dumps({"stage": 0, "step": 0})}
    manager.save(
        0,
        args=ocp.args.Composite(
            state=ocp.args.StandardSave((state,)), info=ocp.args.JsonSave(info)
        ),
    )
    manager.close()
    (workdir / "config.json").write_text(json.dumps(config, indent=1))
