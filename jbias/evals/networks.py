"""Networks to measure: what one is, and how those are opened that a command's flags name.

`find_checkpoints` lists the files and runs that paths name; `from_file` and `from_run` open
them, a run's seeds each by itself. `load` opens all that a command's flags name, one after
the other, and `follow` what a run under way saves.
"""

import argparse
import dataclasses
import functools
import glob
import hashlib
import inspect
import json
import os
import pathlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from flax import errors, serialization
from flax import linen as nn

from jbias import build, data, extensions, models, numerals, run_spec
from jbias import config as jc
from jbias.data import base, labels, tables
from jbias.evals import inference, probe
from jbias.models import class_names, importing, state_dicts, taps, trained
from jbias.runs import checkpoints, evaluations
from jbias.runtime import cli, files, hub, mesh, messages
from jbias.untrusted import opening

# Of one measure: its options, shapes, memory. Others may be made.
MEASURE_ERRORS = (ValueError, MemoryError, errors.FlaxError, jax.errors.JaxRuntimeError)
# Of one network, its files among them. Others may be measured.
NETWORK_ERRORS = (OSError, *MEASURE_ERRORS)
_LETTERS = 500  # Of a fault: allocators print tables.


def describe_error(error: BaseException) -> str:
    """What went wrong, in one line."""
    return messages.one_line(error)[:_LETTERS] or type(error).__name__


@dataclasses.dataclass(frozen=True, eq=False)
class Network:
    """What can be measured: a model of any kind that says who it is, and answers images.

    name: of its folder of records. classes, space: what it decides among, as
    data.labels.LabelSpace has it. digest: tells other weights apart. fields: of its
    records: run, algorithm, variant, model, train_data, stage, seed, step, epoch. about:
    what else a study wants to know: its category, "config" of a run trained here, and
    "answers", the pairs of data.labels.LabelSpace, as a dictionary.
    """

    name: str
    classes: tuple[str, ...]
    space: str
    digest: str  # Of the file, with that of its head, or of the weights.
    fields: Mapping[str, Any]
    about: Mapping[str, Any]

    @property
    def preprocessing(self) -> dict[str, Any]:
        """What it does to images in [0, 1] before all else, as its identity has it."""
        return {}

    def answered(self, dataset: str, conditions: Collection[str]) -> np.ndarray | None:
        """Return which images of a set it can answer, bool (n); by itself None: all."""
        return None

    def dtype(self, asked: Any) -> Any:
        """What it computes in where a precision is asked for; by itself no other."""
        return jnp.float32

    def bind(self, asked: Any, devices: jax.sharding.Mesh) -> Any:
        """What answers, a inference.Bound, in a precision and on devices: by itself, itself."""
        return self


def identity(network: Network) -> dict[str, Any]:
    """What decides its answers: measures of another are not measures of this one."""
    names = json.dumps([network.space, *network.classes])
    classes = hashlib.sha256(names.encode()).hexdigest()[:16]
    own = {"digest": network.digest, "model": network.fields["model"]}
    return {**own, "classes": classes, **network.preprocessing}


@dataclasses.dataclass(frozen=True, eq=False)
class FlaxNetwork(Network):
    """A network of flax with its weights."""

    net: nn.Module
    variables: Mapping[str, Any]
    # (variables, float image) -> logits, of an algorithm that answers in its own way.
    decide: Callable | None = None
    code: str = ""  # The user's file that the module is in.

    @property
    def preprocessing(self) -> dict[str, Any]:
        """The constants of its first layer, of a module that has some."""
        found = {key: getattr(self.net, key, None) for key in _CONSTANTS}
        return {key: list(value) for key, value in found.items() if value}

    def _check_weights(self) -> None:
        """Raise probe.NotFiniteError, naming arrays, where a weight is NaN or infinite.

        Logits do not always show it: max pooling may drop a NaN.
        """
        broken = []
        for path, leaf in jax.tree_util.tree_leaves_with_path(self.variables):
            count = int((~jnp.isfinite(leaf)).sum())
            if count:
                name = "/".join(str(entry.key) for entry in path)
                broken.append(f"{count:,} of {leaf.size:,} in {name}")
        if broken:
            more = f" and {len(broken) - 2} more arrays" if len(broken) > 2 else ""
            raise probe.NotFiniteError(
                f"weights must be finite, NaN or infinite are "
                f"{', '.join(broken[:2])}{more}; give other weights, such as those of an "
                "earlier step"
            )

    def dtype(self, asked: Any) -> Any:
        """An algorithm that answers in its own way keeps the precision of its run.

        A module of the user's that has none to choose computes in float32.
        """
        own = getattr(self.net, "dtype", None)
        return asked if own and not self.decide else own or jnp.float32

    def bind(self, asked: Any, devices: jax.sharding.Mesh) -> inference.BoundNetwork:
        """Return the network in a precision, the same program for equal nets.

        probe.NotFiniteError where a weight is NaN or infinite.
        """
        self._check_weights()
        net, variables = self.net, mesh.replicate(self.variables, devices)
        if hasattr(net, "dtype"):
            net = net.clone(dtype=asked)
        inside = net if hasattr(net, "tap") else None  # Else it has no sites.
        if self.decide:
            return inference.BoundNetwork(self.decide, variables, net=inside)
        of = variables, inside and _looking(net), inside
        return inference.BoundNetwork(plain_apply(net, self.code), *of)


@functools.cache
def plain_apply(net: nn.Module, code: str = "") -> Callable:
    """A net's logits in evaluation; the same object for equal nets, so compiled once.

    code: the user's file that the module is in, whose errors are told as its own.
    """
    takes = inspect.signature(type(net).__call__).parameters
    given = {"train": False} if "train" in takes else {}
    apply = functools.partial(net.apply, **given)
    return extensions.guard(code, apply, _LOGITS) if code else apply


# What a module of the user's must return.
_LOGITS = extensions.Registry(
    group="",
    known={},
    must="logits (images, classes), an array of two axes",
    fits=lambda logits: getattr(logits, "ndim", 0) == 2,
)


@functools.cache
def _looking(net: nn.Module) -> Callable:
    """What probe.Rows.at gives of a net; the same object for equal nets."""

    def at(variables, image, site):
        largest = lambda logits: logits.max(-1)
        return taps.site_gradient(net, variables, image, site, largest)

    return at


_CONSTANTS = ("mean", "std")
_FLAG = "--checkpoint (or --runs)"


def find_checkpoints(paths: Sequence[str], *, any_file: bool = False) -> list[str]:
    """The files and runs that paths, folders of them, and globs name, in order.

    any_file: whether a file that is named need not be called as weights are.
    ValueError for what is neither. A folder is a run if it holds config.json; else all
    files below it that are named as weights are, and all runs; not what begins with a
    dot, nor what lies behind a link to a folder that is no run. What is there under
    several spellings counts once, as first spelled; files of several names do not: by
    its own a published file is known, wherever a link of that name leads. Weights on the
    hub keep their name, hf:OWNER/NAME@COMMIT; they are fetched when they are opened.
    """
    found: dict[pathlib.Path, str] = {}
    for given in paths:
        if hub.is_hub(given):
            hub.parse(given, _FLAG)
            found.setdefault(pathlib.Path(given), given)
            continue
        path = os.path.expanduser(files.local_copy(given, _FLAG, checkpoints=True))
        matches = [path] if os.path.exists(path) else sorted(glob.glob(path))
        if not matches:
            raise ValueError(f"{_FLAG}: nothing is at {given!r}; check it")
        for match in matches:
            whole = any_file and os.path.isfile(match)
            inside = [match] if whole else list(_inside(match))
            if not inside and len(matches) == 1:
                raise ValueError(
                    f"--checkpoint: {match} must be a file of weights "
                    f"({', '.join(state_dicts.SUFFIXES)}), a run's workdir, or a folder of these"
                )
            for one in inside:
                real = pathlib.Path(one)
                own = real.name if real.is_file() else ""
                found.setdefault((real.parent if own else real).resolve() / own, one)
    return list(found.values())


def _inside(path: str) -> Iterator[str]:
    weights = path.lower().endswith(state_dicts.SUFFIXES) and os.path.isfile(path)
    if weights or is_run(path):
        yield path
        return
    for name in sorted(os.listdir(path)) if os.path.isdir(path) else ():
        inner = os.path.join(path, name)
        # Of links to folders none is followed that may lead back here.
        linked = os.path.islink(inner) and not os.path.isfile(inner)
        if name[0] != "." and (not linked or is_run(inner)):
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
    if hub.is_hub(path):
        named = hub.parse(path, _FLAG)
        return f"{named.owner}-{named.name}-{named.commit[:8]}"
    name = os.path.basename(path.rstrip("/"))
    return name if os.path.isdir(path) else name.rsplit(".", 1)[0]


IMAGENET = "imagenet"  # In the place of a file of classes.


def read_classes(space_or_file: str, count: int) -> labels.LabelSpace:
    """Return the classes of a file's network, as --classes says.

    space_or_file: a word for a list, a file with a name a line, or a CSV file as
    data.labels.of_outputs reads it. Names that are WordNet ids make the space "wnid", others
    "names". ValueError unless there are `count`.
    """
    names = list_classes(space_or_file)
    if len(names) != count:
        raise ValueError(
            f"--classes: must name the network's {count} classes, got {len(names)} from "
            f"{space_or_file}; {labels.listing_remedy(space_or_file)}"
        )
    if space_or_file == labels.GEIRHOS16 or labels.is_mapping(space_or_file):
        return labels.of_outputs(space_or_file, "--classes")
    space = "wnid" if set(names) <= set(tables.wnids()) else "names"
    return labels.LabelSpace(names, space)


def list_classes(space_or_file: str) -> tuple[str, ...]:
    """What --classes names; ValueError where it is no file, or names one twice."""
    if space_or_file == IMAGENET:
        return tables.wnids()
    if space_or_file == labels.GEIRHOS16 or labels.is_mapping(space_or_file):
        return tuple(labels.resolve_outputs(space_or_file, "--classes"))
    try:
        opening.require_regular(space_or_file)
        text = epath.Path(space_or_file).read_bytes().decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise ValueError(
            f"--classes: must be {cli.OUTPUT_LISTS}, got {space_or_file!r} ("
            f"{files.error_text(error)})"
        ) from None
    lines: dict[str, list[int]] = {}
    for number, name in enumerate(map(str.strip, text.splitlines()), 1):
        lines.setdefault(name, []).append(number)
    lines.pop("", None)
    again = {name: at for name, at in lines.items() if len(at) > 1}
    for name, at in again.items():
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
) -> FlaxNetwork:
    """Opens a file of weights, or a folder of models.save_run's.

    name: of the network, for its folder of records; by itself the file's. `options` are
    models.load's. `about["constants"]` says where mean and std are from; of those among
    `options` it is the caller's; "train_data" and "method" are what it was trained on and
    with, for its records. classes: see `read_classes`; None: what the file itself names, or
    ImageNet's. ValueError if it cannot be.
    """
    count, code = None, ""
    if model and model not in models.MODELS:
        count = len(list_classes(classes or IMAGENET))
        net, variables = _read_own(path, model, count, options)
        origins = dict.fromkeys(_CONSTANTS, "the module's")
        own = extensions.digests(model, [model])
        digest, code = "-".join([_file_digest(path), *own.values()]), _code(model, net)
    elif os.path.isdir(path):
        net, variables = trained.load(path, model, **options)
        origins = {key: "the folder's" for key in ("mean", "std") if key not in options}
        digest = trained.weights_digest([variables])
    else:
        net, variables, origins = importing.read(path, model, **options)
        digest = _file_digest(path, options.get("head"))
    count = count or net.classes
    if not count:
        headless = "the network gives features and no classes"
        raise ValueError(f"{path}: {headless}; give its linear layer")
    said = None if classes else class_names.read(path)
    if said and len(said.names) == count:
        own, named = labels.LabelSpace(*said), "the file's own"
    else:
        own = read_classes(classes or IMAGENET, count)
        named = f"--classes={classes}" if classes else f"{IMAGENET}, by itself"
    about = {**(about or {}), "classes_from": named}
    if own.answers:
        about["answers"] = dict(own.answers)
        digest += f"-{_digest_of_answers(own.answers)}"
    about["constants"] = {**origins, **about.get("constants", {})}
    name = about.get("id", name or path_stem(path))
    algorithm, method = about.get("name", name), about.get("method", "")
    fields = dict(run=name, algorithm=algorithm, variant=method, model=_model(net))
    fields["train_data"] = about.get("train_data", "unknown")
    fields |= dict(stage=0, seed=0, step=0, epoch=0.0)
    about = {"category": algorithm, "path": path, **about}
    of = name, own.classes, own.space, digest, fields, about
    return FlaxNetwork(*of, net, variables, code=code)


def _digest_of_answers(answers: Sequence[tuple[str, str]]) -> str:
    """Return a digest of the classes that outputs answer for."""
    return hashlib.sha256(json.dumps(answers).encode()).hexdigest()[:16]


def _read_own(path: str, maker: str, classes: int, options: Mapping[str, Any]) -> tuple:
    """A module that the user's own code makes, and its variables from a file of flax."""
    make = extensions.find("--model", maker, build.MODELS)
    net = build.call_checked("--model", make, classes, **options)
    must = f"{path}: must be what flax.serialization.to_bytes gives of all variables: "
    # Of damaged bytes msgpack raises anything.
    with base.explain_errors(must, Exception, reason=base.describe_error):
        variables = serialization.msgpack_restore(pathlib.Path(path).read_bytes())
        variables = jax.tree.map(jnp.asarray, variables)
        return net, {"params": variables.pop("params"), **variables}


def _code(name: str, net: nn.Module) -> str:
    """The user's file that a module of that name is in; "" of ours."""
    ours = name in models.MODELS
    return "" if ours else extensions.file_of(name, type(net).__call__)


def from_run(
    path: str, *, step: str = "best", seeds: Sequence[int] = ()
) -> Iterator[FlaxNetwork]:
    """Opens a run's seeds, of all its branches: each at "best", "latest" or a given step.

    "best" is the step with the first highest validation accuracy among those saved.
    """
    workdir = epath.Path(path)
    needed = ("seeds", "vary", "precision", "variant")
    needed += ("model.name", "algo.name", "train.data")
    config = trained.read_json(workdir / "config.json", needed)
    run_spec.check_vary(run_spec.check_trusted(config, path))
    members = run_spec.members(tuple(config["seeds"]), run_spec.branches(config))
    wanted = int(step) if numerals.is_count(step) else step
    held: dict[int, tuple] = {}
    for number, member in enumerate(members):
        if seeds and member.seed not in seeds:
            continue
        chosen = trained.choose_step(workdir, wanted, member.name)
        if chosen not in held:
            held[chosen] = trained.read_nets(workdir / "checkpoints", chosen)
        nets, info = held[chosen]
        yield _of_seed(workdir, member, nets[number], info["stage"], chosen)


def _of_seed(workdir: epath.Path, member, net, stage: int, step: int) -> FlaxNetwork:
    config = member.branch.config
    needed = ("data.train/0.space",)
    told = trained.read_json(workdir / "provenance.json", needed)["data"]["train/0"]
    if "names" not in told:
        begun = "was begun before class names were stored"
        raise ValueError(f"{workdir}: {begun}; resume or retrain it")
    part = jc.stage_configs(config)[stage]
    module = build.network(part, len(told["names"]))
    # As the run's own records of that step have it; 0 where there are none.
    records = evaluations.records_path(workdir / member.branch.folder, step)
    own = (
        json.loads(records.read_text("utf-8").splitlines()[0])
        if records.exists()
        else {}
    )
    run, algorithm = jc.run_name(config), jc.algorithm_name(config)
    fields = dict(run=run, algorithm=algorithm, variant=config["variant"])
    model, data_name = config["model"]["name"], jc.train_data_name(config)
    fields |= dict(model=jc.plain_name(model), train_data=data_name, stage=stage)
    fields |= dict(seed=member.seed, step=step, epoch=own.get("epoch", 0.0))
    name, digest = f"{run}-seed{member.seed}-step{step}", trained.weights_digest([net])
    about = {"category": algorithm, "path": str(workdir), "config": config}
    of = name, tuple(told["names"]), told["space"], digest, fields, about
    variables = jax.tree.map(jnp.asarray, net)
    decide = build.algorithm(part["algo"], module).decide
    return FlaxNetwork(*of, module, variables, decide, _code(model, module))


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


def _file_digest(*paths: str | os.PathLike | None) -> str:
    """Tells other weights apart, the linear layer in a file of its own among them."""
    digest = hashlib.sha256()
    for path in filter(None, paths):
        with open(path, "rb") as file:
            hashlib.file_digest(file, lambda: digest)
    return digest.hexdigest()[:16]


_DONE = "done"  # Is in the workdir of a run that has ended.


def check_arguments(
    args: argparse.Namespace, out: str, config: Mapping[str, Any]
) -> list[str]:
    """What --checkpoint names; ValueError for what is wrong with any argument.

    Before sets are opened, which may take minutes.
    """
    if args.model:
        extensions.find("--model", args.model, build.MODELS)
    own = args.model not in (None, *models.MODELS)
    paths = find_checkpoints(args.checkpoint, any_file=own)
    list_classes(args.classes or IMAGENET)
    kinds = {is_trained(path) for path in paths}
    if args.trained:
        jc.check_known("--trained", args.trained, data.DATASETS)
    for key in ("model", "classes", "mean", "std", "trained", "method"):
        if kinds == {True} and getattr(args, key) is not None:
            nothing = "says nothing of runs that were trained here"
            raise ValueError(f"--{key}: {nothing}; leave it out")
    if kinds == {False} and args.step:
        raise ValueError("--step: says nothing of files; leave it out")
    try:
        cli.output_folder(out)
    except argparse.ArgumentTypeError as error:
        raise ValueError(f"--out: {error}") from None
    if args.zoo and not os.path.isfile(args.zoo):
        raise ValueError(f"--zoo: no file {args.zoo!r}; --zoo= looks in no table")
    said = config.get("run", {}).get("step")
    for where, step in (("--step", args.step), ("suite.run.step", said)):
        if step in (None, "", "best", "latest"):
            continue
        if not numerals.is_count(str(step)):
            raise ValueError(f"{where}: must be best, latest or a number, got {step!r}")
        held = {s for path in paths for s in checkpoints.steps(f"{path}/checkpoints")}
        if kinds == {True} and held and int(step) not in held:
            known = ", ".join(map(str, sorted(held)))
            raise ValueError(f"{where}: no run has step {step}; there are {known}")
    return paths


Refuse = Callable[[str, str], None]  # (name or path, why, in a line that names it)


def load(
    paths: Sequence[str], args, say: probe.Say, refuse: Refuse, step: int | str = "best"
) -> Iterator[Network]:
    """Opens files and runs, one after the other; `refuse` hears of those that cannot be.

    step: of runs, where --step says none.
    """
    named = "jbias:zoo" if args.zoo is None else args.zoo
    zoo = None
    if named:
        path = jc.resolve_preset(named, "zoo")
        with jc.refusing_exit("--zoo", path):
            zoo = jc.import_file("zoo", path)
    stems = [path_stem(path) for path in paths]
    for path, stem in zip(paths, stems, strict=True):
        if zoo and zoo.is_head(path):
            continue  # It is read with its backbone.
        if stems.count(stem) > 1:
            stem = f"{os.path.basename(os.path.dirname(os.path.abspath(path)))}-{stem}"
        try:
            if is_trained(path):
                if not (epath.Path(path) / _DONE).exists():
                    say(f"{path}: has not ended; what it saved so far is measured")
                yield from from_run(path, step=str(args.step or step))
            else:
                yield _from_file(path, stem, args, zoo, say)
        except NETWORK_ERRORS as error:
            line = describe_error(error)
            refuse(path, line if path in line else f"{path}: {line}")


def follow(
    args: argparse.Namespace, say: probe.Say, refuse: Refuse
) -> Iterator[Network]:
    """Opens each checkpoint of a run as it comes, until the run is done."""
    workdir, seen, over = epath.Path(args.follow), set(), False
    say(f"following {workdir}")
    while not over:
        over = args.once or (workdir / _DONE).exists()
        for step in checkpoints.steps(workdir / "checkpoints"):
            if step in seen:
                continue
            seen.add(step)
            try:
                yield from from_run(str(workdir), step=str(step))
            except NETWORK_ERRORS as error:
                if step in checkpoints.steps(workdir / "checkpoints"):
                    refuse(f"step {step}", f"step {step}: {describe_error(error)}")
        if not over:
            time.sleep(args.interval)


def _from_file(
    path: str, name: str, args: argparse.Namespace, zoo: Any, say: probe.Say
) -> FlaxNetwork:
    """Opens a file, and says what is taken off its images.

    Of one that the zoo knows --model may say nothing else; what is said of its constants
    goes before the zoo's.
    """
    given = {key: x for key in _CONSTANTS if (x := getattr(args, key)) is not None}
    origins = {key: f"--{key}" for key in given}
    said = {"train_data": args.trained, "method": args.method}
    said = {key: value for key, value in said.items() if value}
    file = known_as = path
    if hub.is_hub(path):
        file, said["path"] = hub.fetch(path, _FLAG), path
        known_as = os.path.join(hub.parse(path, _FLAG).id, os.path.basename(file))
    opened = functools.partial(from_file, file, classes=args.classes)
    entry, network = zoo.find(known_as) if zoo else None, None
    if entry:
        if args.model not in (None, entry.model):
            raise ValueError(
                f"--model: {path} has the name of {entry.id}, which is {entry.model}, got "
                f"{args.model!r}; leave --model out, rename the file, or look in no table "
                "by --zoo="
            )
        options = entry.options(os.path.dirname(file) or ".")
        known = {key: f"those of {entry.id}" for key in _CONSTANTS if key in options}
        about = dict(id=entry.id, name=entry.name, category=entry.category)
        about |= dict(norm=entry.norm, epsilon=entry.eps, constants=known | origins)
        network = opened(model=entry.model, about=about | said, **options | given)
        got = {key: (x, getattr(network.net, key)) for key, x in entry.needs.items()}
        other = [f"{k} {x}, got {own}" for k, (x, own) in got.items() if own != x]
        if other:
            told = f"{path}: has the name of {entry.id} and is another, which needs "
            say(f"{told}{'; '.join(other)}; taken for a file that no table knows")
            network = None
    if network is None:
        about = {"constants": origins, **said}
        network = opened(name=name, model=args.model, about=about, **given)
    if network.preprocessing:
        say(_constants(network))
    return network


def _constants(network: FlaxNetwork) -> str:
    """What is taken off a file's images, and who says so."""
    numbers, origins = [], network.about["constants"]
    for key, values in network.preprocessing.items():
        values = values[:1] if len(set(values)) == 1 else values
        numbers.append(f"{key} {' '.join(f'{x:g}' for x in values)}")
    words = [origins[key] for key in network.preprocessing]
    if len(set(words)) > 1:
        numbers = [f"{n} ({word})" for n, word in zip(numbers, words, strict=True)]
        told = ""
    else:
        told = f": {words[0]}"
    return f"{network.name}: {', '.join(numbers)}{told}; --mean and --std change it"
