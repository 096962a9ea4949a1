"""Networks to measure: files that others wrote, and runs of ours, each seed by itself.

`find_checkpoints` lists the files and runs that paths name; `from_file` and `from_run` open
them.
"""

import dataclasses
import functools
import glob
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from etils import epath
from flax import errors
from flax import linen as nn

from jbias import build, models, run_spec
from jbias import config as jc
from jbias.data import tables
from jbias.evals import predict
from jbias.models import class_names, importing, state_dicts, taps, trained
from jbias.runs import evaluations
from jbias.runtime import files, messages


def find_checkpoints(paths: Sequence[str]) -> list[str]:
    """The files and runs that paths, folders of them, and globs name, in order.

    ValueError for what is neither. A folder is a run if it holds config.json; else all
    files below it that are named as weights are, and all runs; not what begins with a
    dot, nor what lies behind a link to a folder that is no run. What is there under
    several spellings counts once, as first spelled; files of several names do not.
    """
    found: dict[str, str] = {}
    for given in paths:
        where = "--checkpoint (or --runs)"
        path = os.path.expanduser(files.local_copy(given, where, checkpoints=True))
        matches = [path] if os.path.exists(path) else sorted(glob.glob(path))
        if not matches:
            raise ValueError(
                f"--checkpoint (or --runs): nothing is at {given!r}; check it"
            )
        for match in matches:
            inside = list(_inside(match))
            if not inside and len(matches) == 1:
                raise ValueError(
                    f"--checkpoint: {match} must be a file of weights "
                    f"({', '.join(state_dicts.SUFFIXES)}), a run's workdir, or a folder of these"
                )
            for one in inside:
                found.setdefault(_real(one), one)
    return list(found.values())


def _real(path: str) -> str:
    """What all spellings of a path have in common; a file keeps its own name.

    By this a published file is known, wherever a link of that name leads.
    """
    if os.path.isdir(path):
        return os.path.realpath(path)
    folder, name = os.path.split(path)
    return os.path.join(os.path.realpath(folder), name)


def _inside(path: str) -> Iterator[str]:
    if os.path.isfile(path):
        if path.lower().endswith(state_dicts.SUFFIXES):
            yield path
        return
    if is_run(path):
        yield path
        return
    for name in sorted(os.listdir(path)):
        inner = os.path.join(path, name)
        # Of links to folders none is followed that may lead back here.
        if name[0] != "." and (
            os.path.isfile(inner) or is_run(inner) or not os.path.islink(inner)
        ):
            yield from _inside(inner)


def is_run(path: str) -> bool:
    """Whether a folder is the workdir of a run, or what models.save_run makes."""
    whole = epath.Path(path)
    return (whole / "config.json").exists() and (whole / "checkpoints").exists()


def is_trained(path: str) -> bool:
    """Whether it is a run that was trained here, and knows its classes and seeds."""
    return is_run(path) and (epath.Path(path) / "provenance.json").exists()


def path_stem(path: str) -> str:
    """What a file's network is called if nothing else names it."""
    name = os.path.basename(path.rstrip("/"))
    return name if os.path.isdir(path) else name.rsplit(".", 1)[0]


IMAGENET = "imagenet"  # In the place of a file of classes.
# What a run's config must have for its networks to be made and named.
_OF_A_RUN = (
    *("seeds", "vary", "precision", "variant"),
    *("model.name", "algo.name", "train.data"),
)


@dataclasses.dataclass(frozen=True, eq=False)
class Network:
    """A network with its weights, and what records say of it."""

    name: str  # Of its folder of records.
    net: nn.Module
    variables: Mapping[str, Any]
    apply: Callable  # (variables, float image) -> logits, in the net's own precision.
    classes: tuple[str, ...]
    space: str  # Of data.base.SPACES.
    digest: str  # Of the file, with that of its head, or of the weights.
    fields: Mapping[str, Any]  # Of its records: run, algorithm, ..., epoch.
    about: Mapping[str, Any]  # What else a study wants to know, such as its category.

    @property
    def identity(self) -> dict[str, Any]:
        """What decides its answers: measures of another are not measures of this one."""
        names = json.dumps([self.space, *self.classes])
        return {
            "digest": self.digest,
            "model": self.fields["model"],
            "classes": hashlib.sha256(names.encode()).hexdigest()[:16],
            "mean": list(self.net.mean),
            "std": list(self.net.std),
        }

    @property
    def is_trained(self) -> bool:
        """Whether it is of a run that was trained here, and knows its classes."""
        return "config" in self.about

    @property
    def is_plain(self) -> bool:
        """Whether it answers as its net does, and no algorithm in a way of its own."""
        return self.apply is plain_apply(self.net)

    def dtype(self, asked: Any) -> Any:
        """What it computes in where a precision is asked for; see `network`."""
        return asked if self.is_plain else self.net.dtype

    def network(self, dtype: Any) -> predict.BoundNetwork:
        """The network in a precision, the same program for equal nets.

        An algorithm that answers in its own way keeps the precision of its run.
        """
        if not self.is_plain:
            return predict.BoundNetwork(self.apply, self.variables)
        net = self.net.clone(dtype=dtype)
        return predict.BoundNetwork(plain_apply(net), self.variables, _looking(net))


@functools.cache
def plain_apply(net: nn.Module) -> Callable:
    """A net's logits in evaluation; the same object for equal nets, so compiled once."""
    return functools.partial(net.apply, train=False)


@functools.cache
def _looking(net: nn.Module) -> Callable:
    """What probe.Rows.at gives of a net; the same object for equal nets."""

    def at(variables, image, site):
        return taps.site_gradient(
            net, variables, image, site, lambda logits: logits.max(-1)
        )

    return at


def read_classes(space_or_file: str, count: int) -> tuple[tuple[str, ...], str]:
    """The classes of a file's network: "imagenet", or a file with a name a line.

    Names that are WordNet ids make the space "wnid", others "names".
    """
    found = list_classes(space_or_file)
    if len(found) != count:
        raise ValueError(
            f"--classes: must name the network's {count} classes, got {len(found)} from "
            f"{space_or_file}; give a file with a name or WordNet id a line"
        )
    known = set(tables.wnids())
    return found, "wnid" if set(found) <= known else "names"


def list_classes(space_or_file: str) -> tuple[str, ...]:
    """What --classes names; ValueError where it is no file, or names one twice."""
    if space_or_file == IMAGENET:
        return tables.wnids()
    try:
        text = epath.Path(space_or_file).read_text()
    except OSError as error:
        raise ValueError(
            f"--classes: must be imagenet or a file with a name a line, got "
            f"{space_or_file!r} ({error.strerror or error})"
        ) from None
    rows = [(n, line.strip()) for n, line in enumerate(text.splitlines(), 1)]
    lines: dict[str, list[int]] = {}
    for number, name in rows:
        if name:
            lines.setdefault(name, []).append(number)
    again = [(name, at) for name, at in lines.items() if len(at) > 1]
    if again:
        name, at = again[0]
        more = f" ({len(again) - 1} more are)" if len(again) > 1 else ""
        raise ValueError(
            f"--classes: must name each class once, got {name!r} in lines "
            f"{', '.join(map(str, at[:8]))} of {space_or_file}{more}; tell them apart"
        )
    return tuple(lines)


def from_file(
    path: str,
    *,
    name: str = "",
    model: str | None = None,
    classes: str | None = None,
    about: Mapping[str, Any] | None = None,
    **options: Any,
) -> Network:
    """Opens a file of weights, or a folder of models.save_run's.

    name: of the network, for its folder of records; by itself the file's. `options` are
    models.load's. `about["constants"]` says where mean and std are from; of those among
    `options` it is the caller's; "train_data" and "method" are what it was trained on and
    with, for its records. classes: see `read_classes`; None: what the file itself names, or
    ImageNet's. ValueError if it cannot be.
    """
    if os.path.isdir(path):
        net, variables = trained.load(path, model, **options)
        origins = {key: "the folder's" for key in ("mean", "std") if key not in options}
    else:
        net, variables, origins = importing.read(path, model, **options)
    if not net.classes:
        raise ValueError(
            f"{path}: the network gives features and no classes; give its linear layer"
        )
    said = None if classes else class_names.read(path)
    if said and len(said.names) == net.classes:
        (found, space), named = said, "the file's own"
    else:
        found, space = read_classes(classes or IMAGENET, net.classes)
        named = f"--classes={classes}" if classes else f"{IMAGENET}, by itself"
    about = {**(about or {}), "classes_from": named}
    about["constants"] = {**origins, **about.get("constants", {})}
    name = about.get("id", name or path_stem(path))
    fields = dict(
        run=name,
        algorithm=about.get("name", name),
        variant=about.get("method", ""),
        model=_model(net),
        train_data=about.get("train_data", "unknown"),
        stage=0,
        seed=0,
        step=0,
        epoch=0.0,
    )
    return Network(
        name=name,
        net=net,
        variables=variables,
        apply=plain_apply(net),
        classes=found,
        space=space,
        digest=trained.weights_digest([variables])
        if os.path.isdir(path)
        else _file_digest(path, options.get("head")),
        fields=fields,
        about={"category": fields["algorithm"], **about, "path": path},
    )


def from_run(
    path: str, *, step: str = "best", seeds: Sequence[int] = ()
) -> Iterator[Network]:
    """Opens a run's seeds, of all its branches: each at "best", "latest" or a given step.

    "best" is the step with the first highest validation accuracy among those saved.
    """
    workdir = epath.Path(path)
    config = run_spec.check_trusted(
        trained.read_json(workdir / "config.json", _OF_A_RUN), path
    )
    run_spec.check_vary(config)
    entries = run_spec.members(tuple(config["seeds"]), run_spec.branches(config))
    held: dict[int, tuple] = {}
    for number, entry in enumerate(entries):
        if seeds and entry.seed not in seeds:
            continue
        chosen = trained.choose_step(
            workdir, int(step) if step.isdecimal() else step, entry.name
        )
        if chosen not in held:
            held[chosen] = trained.read_nets(workdir / "checkpoints", chosen)
        net_of, info = held[chosen]
        yield _of_seed(workdir, entry, net_of[number], info, chosen)


def _of_seed(workdir: epath.Path, entry, net, info, step: int) -> Network:
    config = entry.branch.config
    part = jc.stage_configs(config)[info["stage"]]
    needed = ("data.train/0.space",)
    told = trained.read_json(workdir / "provenance.json", needed)["data"]["train/0"]
    if "names" not in told:
        raise ValueError(
            f"{workdir}: was begun before class names were stored; resume or retrain it"
        )
    module = build.network(part, len(told["names"]))
    algo = build.algorithm(part["algo"], module)
    run = jc.run_name(config)
    return Network(
        name=f"{run}-seed{entry.seed}-step{step}",
        net=module,
        variables=jax.tree.map(jnp.asarray, net),
        apply=algo.decide or plain_apply(module),
        classes=tuple(told["names"]),
        space=told["space"],
        digest=trained.weights_digest([net]),
        fields=dict(
            run=run,
            algorithm=jc.algorithm_name(config),
            variant=config["variant"],
            model=config["model"]["name"],
            train_data=jc.train_data_name(config),
            stage=info["stage"],
            seed=entry.seed,
            step=step,
            epoch=_epoch(workdir, entry, step),
        ),
        about={
            "category": jc.algorithm_name(config),
            "path": str(workdir),
            "config": config,
        },
    )


def _epoch(workdir: epath.Path, entry, step: int) -> float:
    """As the run's own records of that step have it; 0 where there are none."""
    path = evaluations.records_path(workdir / entry.branch.folder, step)
    if not path.exists():
        return 0.0
    return json.loads(path.read_text().splitlines()[0])["epoch"]


def _model(net: nn.Module) -> str:
    """The name in models.MODELS that makes such a net, the one that says most of it."""
    fits = {}
    for name, make in models.MODELS.items():
        fixed = getattr(make, "keywords", {})
        if type(net) is getattr(make, "func", make) and all(
            getattr(net, key) == value for key, value in fixed.items()
        ):
            fits[name] = len(fixed)
    return max(fits, key=fits.get, default=type(net).__name__)


def _file_digest(path: str, head: str | os.PathLike | None) -> str:
    """Tells other weights apart, the linear layer in a file of its own among them."""
    digest = hashlib.sha256()
    for one in (path, head) if head else (path,):
        with open(one, "rb") as file:
            while chunk := file.read(2**20):
                digest.update(chunk)
    return digest.hexdigest()[:16]


# Of one measure: its options, shapes, memory. Others may be made.
MEASURE_ERRORS = (ValueError, MemoryError, errors.FlaxError, jax.errors.JaxRuntimeError)
_LETTERS = 500  # Of a fault: allocators print tables.


def describe_error(error: BaseException) -> str:
    """What went wrong, in one line."""
    return messages.one_line(error)[:_LETTERS] or type(error).__name__
