"""Reads networks from the workdir of a run; writes them as a run or as safetensors.

config.json has the model and the seeds, each checkpoint holds the states of all seeds, and
next to it lies how accurate each seed was on the validation set at that step.
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
import orbax.checkpoint as ocp
from etils import epath
from flax import linen as nn

from jbias import config as jc
from jbias import seals
from jbias.models import importing, registry, safetensors, weight_names
from jbias.runtime import heap, messages

Net = dict[str, Any]  # {"params": ..., "stats": ...}


def load(
    workdir: str | os.PathLike,
    model: str | None,
    *,
    seed: int | None = None,
    step: int | str = "best",
    **options: Any,
) -> tuple[nn.Module, dict[str, Any]]:
    """Reads one seed's network; `models.load` says the rest.

    A folder such as WORKDIR/vary/optim.rate=0.1 names one branch of a run.
    """
    where, workdir = os.fspath(workdir), pathlib.Path(workdir).resolve()
    whole, branch = workdir, ""
    if workdir.parent.name == "vary":
        whole, branch = workdir.parent.parent, workdir.name
    config, checkpoints = whole / "config.json", whole / "checkpoints"
    if not config.is_file() or not checkpoints.is_dir():
        jc.refuse(where, "be the workdir of a run, with config.json and checkpoints")
    config = read_json(config, ("model.name", "seeds", "size"))
    name, own = config["model"]["name"], dict(config["model"])
    jc.check_type(f"{where}: model.name", name, str)
    if model not in (None, name):
        raise ValueError(f"{where}: holds the model {name!r}, not {model!r}")
    if name not in registry.MODELS:
        raise ValueError(f"{where}: its model {name!r} is not one of models.MODELS")
    own = {k: tuple(v) if isinstance(v, list) else v for k, v in own.items()}
    jc.check_type(f"{where}: seeds", config["seeds"], list[int])
    jc.check_type(f"{where}: size", config["size"], int)
    seeds = config["seeds"]
    seed = seeds[0] if seed is None and len(seeds) == 1 else seed
    if seed not in seeds:
        raise ValueError(f"{where}: seed must be one of {seeds}, got {seed}")
    place = _branch(where, branch, config) * len(seeds) + seeds.index(seed)
    entry = ", ".join(filter(None, (str(seed), *branch.split(","))))
    found = read_nets(checkpoints, choose_step(whole, step, entry))[0][place]
    found = {key: value for key, value in found.items() if value}
    options = {**{k: v for k, v in own.items() if k != "name"}, **options}
    net = _network(where, name, found, options, config["size"])
    return net, jax.tree.map(jnp.asarray, found)


def read_json(path: str | os.PathLike, needed: Sequence[str]) -> dict[str, Any]:
    """What a file of a workdir holds as JSON; ValueError where an entry lacks.

    needed: entries such as "model.name", which is `name` in `model`.
    """
    where = os.fspath(path)
    try:
        found = json.loads(epath.Path(path).read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: must be JSON: {error}") from error
    for key in needed:
        inner = found
        for word in key.split("."):
            if not isinstance(inner, Mapping) or word not in inner:
                raise ValueError(f"{where}: must be a run's, with {key}, got none")
            inner = inner[word]
    return found


def _branch(where: str, folder: str, config: Mapping[str, Any]) -> int:
    """Which branch of a run whose numbers vary has its records in that folder."""
    varied = config.get("vary") or []
    if bool(varied) != bool(folder):
        raise ValueError(
            f"{where}: must be one branch, such as vary/optim.rate=0.1 in the workdir,"
            " of a run that has such, and the workdir of any other run"
        )
    pairs = [pair.partition("=")[::2] for pair in folder.split(",") if pair]
    with contextlib.suppress(ValueError):  # What is no number names no branch.
        keys, asked = [one["key"] for one in varied], [(k, float(v)) for k, v in pairs]
        for i, values in enumerate(itertools.product(*(v["values"] for v in varied))):
            if list(zip(keys, map(float, values), strict=True)) == asked:
                return i
    raise ValueError(f"{where}: the run has no branch {folder!r}")


def choose_step(workdir: str | os.PathLike, step: int | str, entry: str) -> int:
    """The checkpoint to read: a number, the latest, or the first best by validation.

    entry: a seed's name among those of the run, such as "0" or "0, optim.rate=0.1".
    """
    where, workdir = os.fspath(workdir), pathlib.Path(workdir)
    folder = workdir / "checkpoints"
    steps = sorted(int(p.name) for p in folder.iterdir() if p.name.isdecimal())
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
    found = [(_valid(workdir, number, entry), number) for number in steps]
    last = max((stage for (stage, _), _ in found), default=-1)
    known = [(-value, number) for (stage, value), number in found if stage == last]
    if last < 0:
        raise ValueError(
            f"{where}: no checkpoint has a validation accuracy of seed {entry}; choose "
            f"one by step='latest' or one of {steps}"
        )
    return min(known)[1]


def _valid(workdir: pathlib.Path, step: int, entry: str) -> tuple[int, float]:
    """The stage of a checkpoint and its validation accuracy; (-1, 0) if unknown."""
    path = workdir / "checkpoints" / str(step) / "metrics" / "metrics"
    try:
        metrics = json.loads(path.read_text("utf-8")) if path.is_file() else {}
        metrics = metrics or _written(workdir, step)
        found = [
            (int(key.partition("/")[0]), float(value))
            for key, value in metrics.items()
            if key.partition("/")[2] == entry
        ]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise ValueError(
            f"{workdir}: what tells of the validation at step {step} is damaged; choose "
            "another step, or step='latest'"
        ) from None
    return max(found, default=(-1, 0.0))


def _written(workdir: pathlib.Path, step: int) -> dict[str, float]:
    """What another process wrote about a step, of a run without branches."""
    path = workdir / "evals" / f"{step}.jsonl"
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    return {
        f"{r['stage']}/{r['seed']}": r["value"]
        for r in map(json.loads, lines)
        if (r["dataset"], r["metric"], r["status"]) == ("valid", "accuracy", "ok")
    }


def read_nets(
    checkpoints: str | os.PathLike, step: int
) -> tuple[list[Net], dict[str, Any]]:
    """Return the networks of a step, one a seed of each branch, and the step's info.

    Where the run keeps an average of its weights, that, as its evaluation did. Arrays are
    the host's, and nothing on the disk is changed. ValueError where the checkpoint cannot
    be read, or is not of the run that the workdir's config.json describes.
    """
    path = pathlib.Path(checkpoints).resolve() / str(step)
    config = path.parents[1] / "config.json"
    try:
        sealed = json.loads((path / "info" / "metadata").read_text("utf-8"))
        info = json.loads(sealed["body"])
        seals.check_number(info, step)
        if config.is_file():
            run = read_json(config, ())
            if differing := seals.differences(info, run):
                raise seals.foreign_error(path, differing)
        nets = [_net_of(state) for state in _states(path / "state")]
        # Damaged bytes may still be numbers. Older checkpoints have no such sums.
        if "nets" in sealed and sealed["nets"] != nets_checksums(nets):
            raise ValueError("its weights do not match their sum")
        return nets, info
    except (
        MemoryError,
        PermissionError,
        jax.errors.JaxRuntimeError,
        seals.ForeignError,
    ):
        raise
    # Of damaged bytes orbax raises anything.
    except Exception as error:
        heap.collect_silently()
        told = f"cannot be read ({messages.shorten(error)}); take another step"
        raise ValueError(f"checkpoint: {path} {told}") from error


def _states(path: pathlib.Path) -> Any:
    # A checkpointer would warn that the state lies there without a step around it.
    with contextlib.closing(ocp.StandardCheckpointHandler()) as reader:
        # Arrays of numpy ask for such, whatever device they were saved from.
        blank = lambda x: np.zeros((), x.dtype)
        target = jax.tree.map(blank, reader.metadata(path).tree)
        return reader.restore(path, args=ocp.args.StandardRestore(target))


def nets_of(states: Sequence[Any]) -> list[Net]:
    """Return what evaluation sees of each train state: its network, or its average."""
    return [_net_of({"params": s.params, "stats": s.stats}) for s in states]


def nets_checksums(nets: Sequence[Net]) -> list[int]:
    """Return a sum of each network's bytes, params before stats, by sorted names."""
    return [_checksum([net["params"], net["stats"]]) for net in nets]


def _checksum(tree: Any) -> int:
    """Return the CRC-32 of the bytes of all arrays of a tree, in its order."""
    total = 0
    for leaf in jax.tree.leaves(jax.device_get(tree)):
        total = zlib.crc32(np.ascontiguousarray(leaf), total)
    return total


def _net_of(state: Mapping[str, Any]) -> Net:
    plain = {"params": state["params"]["net"], "stats": state["stats"]["net"]}
    return state["stats"].get("average", plain)


def _network(where, name, found, options, side) -> nn.Module:
    """The network of the config, with the classes that its arrays have."""
    importing.check_options(name, options)
    probe = registry.OPEN_CLASSES
    drawn = registry.shapes(name, {**options, "classes": probe}, side)

    def classes(drawn: jax.ShapeDtypeStruct, found: np.ndarray) -> set[int]:
        return {n for m, n in zip(drawn.shape, found.shape) if m == probe}

    sizes = set().union(*jax.tree.leaves(jax.tree.map(classes, drawn, found)))
    if len(sizes) != 1:
        raise ValueError(f"{where}: its arrays are not those of {name}")
    return registry.MODELS[name](**{**options, "classes": sizes.pop()})


# Of training alone; an export of a network has none.
_PASSING = {"tap", "dtype", "remat", "dropout", "norm_group"}
_PASSING |= {"classes", "parent", "name"}  # And what is said elsewhere.


def save_safetensors(path, module, variables, names="published", classes=None) -> None:
    """Writes a file that `models.load` reads; `models.save_safetensors` says the rest."""
    _check_classes("models.save_safetensors", module, classes)
    if names not in ("published", "own"):
        raise ValueError(
            f"models.save_safetensors: names must be 'published' or 'own', got {names!r}"
        )
    model, options = describe(module)
    tree = {collection: dict(inner) for collection, inner in variables.items()}
    known = (None,) if names == "own" else registry.dialects(model)
    if not known:
        raise ValueError(
            f"models.save_safetensors: {model} has no published names; use names='own'"
        )
    arrays = weight_names.to_state_dict(tree, known[0])
    said = {"model": model, "names": names, "options": options}
    said |= classes.to_metadata() if classes else {}
    safetensors.write(path, arrays, {"format": "pt", "jbias": json.dumps(said)})


def _check_classes(where: str, module: nn.Module, classes) -> None:
    if classes and len(classes.names) != module.classes:
        raise ValueError(
            f"{where}: classes must name the network's {module.classes}, got "
            f"{len(classes.names)}"
        )


def describe(module: nn.Module) -> tuple[str, dict[str, Any]]:
    """The key of MODELS and the options that make a network, `classes` among them.

    ValueError where it is none of MODELS.
    """
    found = []
    for name, make in registry.MODELS.items():
        if type(plain := make(module.classes)) is type(module):
            ours, theirs = _exported_fields(module), _exported_fields(plain)
            options = {k: v for k, v in ours.items() if v != theirs[k]}
            found.append((len(options), name, options))
    if not found:
        raise ValueError(
            f"models.save_safetensors: {type(module).__name__} is no network of MODELS"
        )
    _, name, options = min(found, key=lambda one: one[0])
    # Always said, whatever the defaults become.
    always = {k: v for k, v in _exported_fields(module).items() if k in ("mean", "std")}
    return name, {"classes": module.classes, **options, **always}


def _exported_fields(module: nn.Module) -> dict[str, Any]:
    names = (field.name for field in dataclasses.fields(module))
    return {name: vars(module)[name] for name in names if name not in _PASSING}


def save_run(workdir, module, variables, classes=None) -> None:
    """Writes a workdir of one seed; `models.save_run` says the rest."""
    _check_classes("models.save_run", module, classes)
    workdir = pathlib.Path(workdir).resolve()
    if workdir.exists() and any(workdir.iterdir()):
        raise ValueError(f"{os.fspath(workdir)}: must be a new folder; name another")
    model, options = describe(module)
    del options["classes"]
    # config.init reads checkpoints, seeds and branches; models.load the model as well.
    config = dict(model={"name": model, **options}, seeds=[0], vary=[], size=224)
    config |= classes.to_metadata() if classes else {}
    net = {key: jax.tree.map(np.asarray, dict(variables[key])) for key in variables}
    kinds = {"params": net["params"], "stats": net.get("stats", {})}
    state = {kind: {"net": tree} for kind, tree in kinds.items()}
    workdir.mkdir(parents=True, exist_ok=True)
    at_once = ocp.CheckpointManagerOptions(enable_async_checkpointing=False)
    own = dict(options=at_once, item_names=("state", "info"))
    manager = ocp.CheckpointManager(workdir / "checkpoints", **own)
    state = ocp.args.StandardSave((state,))
    info = ocp.args.JsonSave({"body": json.dumps({"stage": 0, "step": 0})})
    manager.save(0, args=ocp.args.Composite(state=state, info=info))
    manager.close()
    (workdir / "config.json").write_text(json.dumps(config, indent=1), "utf-8")


def weights_digest(given: Sequence[Net]) -> str:
    """Tells other weights apart, for provenance."""
    return f"{_checksum(given):08x}"
