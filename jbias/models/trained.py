"""Reader of networks in the workdir of a run; writer of networks as a run or as safetensors.

In a workdir config.json has the model and the seeds, and each checkpoint has the states of
all seeds, with the validation accuracy of each seed at that step.
"""

import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from flax import linen as nn

from jbias import errors, seals
from jbias.models import class_names, importing, registry, safetensors, weight_names
from jbias.runtime import checkpoint_files, heap, messages

Net = dict[str, Any]  # {"params": ..., "stats": ...}

# Keys of an average of the network in the stats of a train state, and, in the average, of
# statistics that were computed from training images for the averaged weights.
AVERAGE, RECOMPUTED = "average", "recomputed_stats"
# Entry of a checkpoint's info: its recomputed statistics are those of earlier weights.
OUTDATED = "statistics_outdated"


def load(
    workdir: str | os.PathLike,
    model: str | None,
    *,
    seed: int | None = None,
    step: int | str = "best",
    **options: Any,
) -> tuple[nn.Module, dict[str, Any]]:
    """Return the network of one seed as (module, variables); see `models.load`.

    workdir: workdir of a run, or the folder of one branch, such as
      WORKDIR/vary/optim.rate=0.1.
    model: key of MODELS that the run must have; None: any.
    seed: a seed of the run; None: its only seed. step: see `choose_step`.
    options: options of the network; they override the options of the run.

    ValueError if the folder is not the workdir of a run or branch, or lacks the model, seed or
    checkpoint; if no seed is given and the run has several; and for an unknown option.
    """
    where, folder = os.fspath(workdir), pathlib.Path(workdir).resolve()
    workdir, branch = folder, ""
    if folder.parent.name == "vary":
        workdir, branch = folder.parent.parent, folder.name
    config_path, checkpoints = workdir / "config.json", workdir / "checkpoints"
    if not config_path.is_file() or not checkpoints.is_dir():
        errors.refuse(
            where, "be the workdir of a run, with config.json and checkpoints"
        )
    config = read_json(config_path, ("model.name", "seeds", "size"))
    name = config["model"]["name"]
    errors.check_type(f"{where}: model.name", name, str)
    if model not in (None, name):
        raise ValueError(f"{where}: holds the model {name!r}, not {model!r}")
    if name not in registry.MODELS:
        raise ValueError(f"{where}: its model {name!r} is not one of models.MODELS")
    config_options = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in config["model"].items()
        if key != "name"
    }
    errors.check_type(f"{where}: seeds", config["seeds"], list[int])
    errors.check_type(f"{where}: size", config["size"], int)
    seeds = config["seeds"]
    seed = seeds[0] if seed is None and len(seeds) == 1 else seed
    errors.check(seed in seeds, where, f"be one of {seeds}", seed, name="seed")
    index = _branch_index(where, branch, config) * len(seeds) + seeds.index(seed)
    entry = ", ".join(filter(None, (str(seed), *branch.split(","))))
    nets, _ = read_nets(checkpoints, choose_step(workdir, step, entry))
    variables = {key: value for key, value in nets[index].items() if value}
    net = _make_network(
        where,
        name,
        variables=variables,
        options={**config_options, **options},
        side=config["size"],
    )
    return net, jax.tree.map(jnp.asarray, variables)


def read_json(path: str | os.PathLike, needed: Sequence[str]) -> dict[str, Any]:
    """Return the content of a JSON file in a workdir as a dict.

    needed: entries that must exist, such as "model.name", which is `name` in `model`.
    ValueError if the file is not JSON or an entry is missing; OSError if the file cannot be
    read.
    """
    where = os.fspath(path)
    try:
        content = json.loads(epath.Path(path).read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: must be JSON: {error}") from error
    for key in needed:
        inner = content
        for word in key.split("."):
            if not isinstance(inner, Mapping) or word not in inner:
                raise ValueError(f"{where}: must be a run's, with {key}, got none")
            inner = inner[word]
    return content


def _branch_index(where: str, folder: str, config: Mapping[str, Any]) -> int:
    """Return the index of the branch of a run with this folder name.

    where: path, for messages. folder: "" for a run without branches, with index 0. config: config
    of the run. ValueError if there is no such branch.
    """
    varied = config.get("vary") or []
    if bool(varied) != bool(folder):
        raise ValueError(
            f"{where}: must be one branch, such as vary/optim.rate=0.1 in the workdir,"
            " of a run that has such, and the workdir of any other run"
        )
    pairs = [pair.partition("=")[::2] for pair in folder.split(",") if pair]
    with contextlib.suppress(
        ValueError
    ):  # No branch is named by a value that is not a number.
        keys = [axis["key"] for axis in varied]
        wanted = [(key, float(value)) for key, value in pairs]
        branches = itertools.product(*(axis["values"] for axis in varied))
        for i, values in enumerate(branches):
            if list(zip(keys, map(float, values), strict=True)) == wanted:
                return i
    raise ValueError(f"{where}: the run has no branch {folder!r}")


def choose_step(workdir: str | os.PathLike, step: int | str, entry: str) -> int:
    """Return the step of the checkpoint to read.

    step: a number, "latest", or "best": the first step with the highest validation accuracy
      in the last stage, or the only step.
    entry: name of a seed, with its branch, such as "0" or "0, optim.rate=0.1".

    ValueError if there is no such checkpoint, or, for "best", if none has a validation
    accuracy.
    """
    where, workdir = os.fspath(workdir), pathlib.Path(workdir)
    folder = workdir / "checkpoints"
    steps = sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal())
    if not steps:
        raise ValueError(f"{where}: holds no checkpoint yet")
    if step == "latest" or (step == "best" and len(steps) == 1):
        return steps[-1]
    if step != "best":
        if step not in steps:
            raise ValueError(
                f"{where}: step must be best, latest or one of {steps}, got {step!r}"
            )
        return int(step)
    results = [(number, *_validation(workdir, number, entry)) for number in steps]
    last_stage = max((stage for _, stage, _ in results), default=-1)
    if last_stage < 0:
        raise ValueError(
            f"{where}: no checkpoint has a validation accuracy of seed {entry}; choose "
            f"one by step='latest' or one of {steps}"
        )
    candidates = [
        (-accuracy, number)
        for number, stage, accuracy in results
        if stage == last_stage
    ]
    return min(candidates)[1]


def _validation(workdir: pathlib.Path, step: int, entry: str) -> tuple[int, float]:
    """Return the stage of a checkpoint and its validation accuracy; (-1, 0.0) if unknown.

    entry: name of a seed, see `choose_step`. The accuracy is a fraction. ValueError if the
    stored metrics are damaged.
    """
    path = checkpoint_files.metrics_file(workdir / "checkpoints" / str(step))
    try:
        metrics = json.loads(path.read_text("utf-8")) if path.is_file() else {}
        metrics = metrics or _read_evaluation(workdir, step)
        accuracies = [
            (int(key.partition("/")[0]), float(value))
            for key, value in metrics.items()
            if key.partition("/")[2] == entry
        ]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise ValueError(
            f"{workdir}: the validation metrics of step {step} are damaged; choose "
            "another step, or step='latest'"
        ) from None
    return max(accuracies, default=(-1, 0.0))


def _read_evaluation(workdir: pathlib.Path, step: int) -> dict[str, float]:
    """Return the validation accuracies that a separate evaluation process wrote.

    The accuracies are fractions. Keys are "<stage>/<seed>". {} if there is no such file;
    runs with branches have no such file.
    """
    path = workdir / "evals" / f"{step}.jsonl"
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    accuracies = {}
    for record in map(json.loads, lines):
        kind = (record["dataset"], record["metric"], record["status"])
        if kind == ("valid", "accuracy", "ok"):
            accuracies[f"{record['stage']}/{record['seed']}"] = record["value"]
    return accuracies


def read_nets(
    checkpoints: str | os.PathLike, step: int
) -> tuple[list[Net], dict[str, Any]]:
    """Return (networks, info) of a checkpoint: one network per seed, branch after branch.

    A network is {"params", "stats"}, trees of NumPy arrays: the average if the run averages its
    weights. info: the description that was stored with the checkpoint, a dict with "stage", "step"
    and the identity of the run (see `jbias.seals`).

    checkpoints: the folder of the checkpoints in the workdir. Files are not changed. ValueError if
    the checkpoint cannot be read or belongs to another run than the workdir's config.json, or was
    saved after an error or a stop signal without recomputed statistics. Lack of
    memory and PermissionError are raised unchanged.
    """
    path = pathlib.Path(checkpoints).resolve() / str(step)
    config = path.parents[1] / "config.json"
    try:
        sealed = json.loads(checkpoint_files.info_file(path).read_text("utf-8"))
        info = json.loads(sealed["body"])
        seals.check_number(info, step)
        if config.is_file():
            run = read_json(config, ())
            differing = seals.differences(info, run)
            if differing:
                raise seals.foreign_error(path, differing)
        stored = checkpoint_files.read_stored_states(path)
        nets = [network_of(state["params"], state["stats"]) for state in stored]
        # Damaged bytes may still be valid numbers. Older checkpoints have no checksums.
        if "nets" in sealed and sealed["nets"] != nets_checksums(nets):
            raise ValueError("its weights do not match their sum")
    except (
        MemoryError,
        PermissionError,
        jax.errors.JaxRuntimeError,
        seals.ForeignError,
    ):
        raise
    # Orbax raises errors of any type for damaged bytes.
    except Exception as error:
        heap.collect_silently()
        problem = f"cannot be read ({messages.shorten(error)}); take another step"
        raise ValueError(f"checkpoint: {path} {problem}") from error
    check_statistics(path, info)
    return nets, info


def check_statistics(path: os.PathLike, info: Mapping[str, Any]) -> None:
    """Raise ValueError if a checkpoint's statistics do not fit its average.

    path: of the checkpoint, for the message. info: the description that was stored with it.
    """
    if info.get(OUTDATED):
        raise ValueError(
            f"checkpoint: {path} was saved after an error or a stop signal, with statistics of "
            "batch norms that do not fit its average; resume the run, or take another step"
        )


def nets_of(states: Sequence[Any]) -> list[Net]:
    """Return the networks {"params", "stats"} that evaluation uses, one per train state.

    The average of the network is returned if the state has one, else the current network.
    """
    return [network_of(state.params, state.stats) for state in states]


def nets_checksums(nets: Sequence[Net]) -> list[int]:
    """Return the CRC-32 of each network's arrays, params before stats, by sorted names."""
    return [_checksum([net["params"], net["stats"]]) for net in nets]


def _checksum(tree: Any) -> int:
    """Return the CRC-32 of the bytes of all arrays of a tree, in the order of its leaves."""
    total = 0
    for leaf in jax.tree.leaves(jax.device_get(tree)):
        total = zlib.crc32(np.ascontiguousarray(leaf), total)
    return total


def network_of(params: Mapping[str, Any], stats: Mapping[str, Any]) -> Net:
    """Return the network to evaluate: the average if a train state has one, else the current one.

    params, stats: of the train state. Entries of the average that only training needs are left
    out.
    """
    if AVERAGE not in stats:
        return {"params": params["net"], "stats": stats["net"]}
    average = stats[AVERAGE]
    stats_of_net = average.get(RECOMPUTED, average["stats"])
    return {"params": average["params"], "stats": stats_of_net}


def _make_network(
    where: str,
    name: str,
    *,
    variables: Mapping[str, Any],
    options: Mapping[str, Any],
    side: int,
) -> nn.Module:
    """Return the network of a config, with the number of classes that its variables have.

    where: path, for messages. name, options: key of MODELS, and options of the network.
    side: side of the images, in pixels. ValueError if the variables are not the network's.
    """
    importing.check_options(name, options)
    probe = registry.OPEN_CLASSES
    expected = registry.shapes(name, {**options, "classes": probe}, side)

    def num_classes(expected: jax.ShapeDtypeStruct, array: np.ndarray) -> set[int]:
        """Return the sizes of the axes of an array that depend on the number of classes."""
        return {n for m, n in zip(expected.shape, array.shape) if m == probe}

    counts = jax.tree.leaves(jax.tree.map(num_classes, expected, variables))
    counts = set().union(*counts)
    if len(counts) != 1:
        raise ValueError(f"{where}: its arrays are not those of {name}")
    return registry.MODELS[name](**{**options, "classes": counts.pop()})


# Fields of modules that are not written: options of training, and fields stored elsewhere.
_NOT_EXPORTED = {
    "tap",
    "dtype",
    "remat",
    "dropout",
    "norm_group",
    "classes",
    "parent",
    "name",
}


def save_safetensors(
    path: str | os.PathLike,
    module: nn.Module,
    variables: Mapping[str, Any],
    *,
    names: str = "published",
    classes: class_names.Classes | None = None,
) -> None:
    """Write a network in float32 as a .safetensors file, which `models.load` reads.

    Arguments and errors: see `models.save_safetensors`.
    """
    _check_classes("models.save_safetensors", module, classes)
    if names not in ("published", "own"):
        raise ValueError(
            f"models.save_safetensors: names must be 'published' or 'own', got {names!r}"
        )
    model, options = describe(module)
    tree = {collection: dict(inner) for collection, inner in variables.items()}
    dialects = (None,) if names == "own" else registry.dialects(model)
    if not dialects:
        raise ValueError(
            f"models.save_safetensors: {model} has no published names; use names='own'"
        )
    arrays = weight_names.to_state_dict(tree, dialects[0])
    metadata = {"model": model, "names": names, "options": options}
    if classes:
        metadata |= classes.to_metadata()
    safetensors.write(path, arrays, {"format": "pt", "jbias": json.dumps(metadata)})


def _check_classes(
    where: str, module: nn.Module, classes: class_names.Classes | None
) -> None:
    """Raise ValueError if classes are given and their number is not the network's.

    where: start of the message.
    """
    if classes and len(classes.names) != module.classes:
        raise ValueError(
            f"{where}: classes must name the network's {module.classes}, got "
            f"{len(classes.names)}"
        )


def describe(module: nn.Module) -> tuple[str, dict[str, Any]]:
    """Return (key of MODELS, options) that make a network like the module.

    The options are `classes`, `mean`, `std` and all options that differ from the defaults of
    the model. Options of training, such as dtype and dropout, are left out. ValueError if the
    module is not a network of MODELS.
    """
    fields = _exported_fields(module)
    candidates = []
    for name, make in registry.MODELS.items():
        default = make(module.classes)
        if type(default) is type(module):
            defaults = _exported_fields(default)
            options = {k: v for k, v in fields.items() if v != defaults[k]}
            candidates.append((name, options))
    if not candidates:
        raise ValueError(
            f"models.save_safetensors: {type(module).__name__} is no network of MODELS"
        )
    name, options = min(candidates, key=lambda candidate: len(candidate[1]))
    # Always written, because the defaults may change.
    constants = {key: fields[key] for key in fields if key in ("mean", "std")}
    return name, {"classes": module.classes, **options, **constants}


def _exported_fields(module: nn.Module) -> dict[str, Any]:
    """Return the fields of a module that an export stores, by name."""
    names = (field.name for field in dataclasses.fields(module))
    return {name: vars(module)[name] for name in names if name not in _NOT_EXPORTED}


def save_run(
    workdir: str | os.PathLike,
    module: nn.Module,
    variables: Mapping[str, Any],
    *,
    classes: class_names.Classes | None = None,
    size: int = 224,
    entries: Mapping[str, Any] | None = None,
) -> None:
    """Write a network as the workdir of a run of one seed, for `config.init` and `models.load`.

    workdir: a new or empty folder (else ValueError). classes, size, entries and other errors: see
    `models.save_run`.
    """
    _check_classes("models.save_run", module, classes)
    workdir = pathlib.Path(workdir).resolve()
    if workdir.exists() and any(workdir.iterdir()):
        raise ValueError(f"{os.fspath(workdir)}: must be a new folder; name another")
    model, options = describe(module)
    del options["classes"]
    # config.init reads checkpoints, seeds and branches; models.load the model as well.
    config = {
        **(entries or {}),
        "model": {"name": model, **options},
        "seeds": [0],
        "vary": [],
        "size": size,
    }
    if classes:
        config |= classes.to_metadata()
    net = {key: jax.tree.map(np.asarray, dict(variables[key])) for key in variables}
    state = {
        "params": {"net": net["params"]},
        "stats": {"net": net.get("stats", {})},
    }
    workdir.mkdir(parents=True, exist_ok=True)
    folder = checkpoint_files.open_for_writing(workdir / "checkpoints")
    info = {"body": json.dumps({"stage": 0, "step": 0})}
    with contextlib.closing(folder):
        folder.save(0, (state,), info=info)
    (workdir / "config.json").write_text(json.dumps(config, indent=1), "utf-8")


def read_entries(workdir: str | os.PathLike) -> dict[str, Any]:
    """Return the training set of a network that `save_run` wrote, and its entries of a soup.

    Keys: "train_data" and "size" (side of the images in pixels) if the training set is stored,
    and "soup" for a soup, see prepare/soup.py. {} without these entries. ValueError if config.json
    is damaged.
    """
    path = pathlib.Path(workdir) / "config.json"
    if not path.is_file():
        return {}
    where, config, entries = os.fspath(path), read_json(path, ()), {}
    if "train" in config:
        config = read_json(path, ("train.data", "size"))
        entries = {"train_data": config["train"]["data"], "size": config["size"]}
        errors.check_type(f"{where}: train.data", entries["train_data"], str)
        errors.check_type(f"{where}: size", entries["size"], int)
    if "soup" in config:
        entries["soup"] = read_json(path, ("soup.members",))["soup"]
        errors.check_type(
            f"{where}: soup.members", entries["soup"]["members"], list[str]
        )
    return entries


def weights_digest(nets: Sequence[Net]) -> str:
    """Return the CRC-32 of all weights of the networks in hexadecimal, for provenance."""
    return f"{_checksum(nets):08x}"
