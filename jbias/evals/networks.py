"""Networks to measure, and functions that open them from files and runs.

`find_checkpoints` lists the files and runs under some paths; `from_file` opens a file, and
`from_run` each seed of a run. `open_networks` opens all networks that a command's flags name,
one after the other, and `follow` opens the checkpoints of a run in progress.
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
from flax import errors as flax_errors
from flax import linen as nn
from flax import serialization
from jaxtyping import Array, Bool

from jbias import build, data, errors, extensions, models, numerals, run_spec
from jbias import config as jc
from jbias.data import base, class_maps, tables
from jbias.evals import inference
from jbias.models import class_names, importing, state_dicts, taps, trained
from jbias.runs import checkpoints, record_store
from jbias.runtime import (
    cli,
    console,
    files,
    hub,
    mesh,
    messages,
    model_paths,
    timm_names,
)
from jbias.stimuli import shown
from jbias.untrusted import opening

# Errors of a single measure (options, shapes, memory): other measures can continue.
MEASURE_ERRORS = (
    ValueError,
    MemoryError,
    flax_errors.FlaxError,
    jax.errors.JaxRuntimeError,
)
# Errors of a single network, such as of its files: other networks can continue.
NETWORK_ERRORS = (OSError, *MEASURE_ERRORS)
_MAX_LETTERS = 500  # Of an error's text: allocators print tables.


def describe_error(error: BaseException) -> str:
    """Return an error's text in one line of at most 500 characters; its type if it has no text."""
    return messages.one_line(error)[:_MAX_LETTERS] or type(error).__name__


@dataclasses.dataclass(frozen=True, eq=False)
class Network:
    """A model of any kind that can be measured, with its identity and its classes.

    name: the name of its folder of results. classes, space: names and kind of its outputs, as
    in data.class_maps.LabelSpace. digest: hash that identifies its weights. fields: entries of its
    records: run, algorithm, variant, model, train_data, stage, seed, step, epoch. about:
    further entries of its config.json: "category", "config" of a run trained here, "answers",
    the pairs of data.class_maps.LabelSpace, as a dictionary, and "size" and "soup" of
    models.trained.read_entries.
    """

    name: str
    classes: tuple[str, ...]
    space: str
    digest: str  # Hash of the file (and of its head's file), or of the weights.
    fields: Mapping[str, Any]
    about: Mapping[str, Any]

    @property
    def preprocessing(self) -> dict[str, Any]:
        """Return the constants of the network's input normalisation, by name; by default {}."""
        return {}

    def answered(
        self, dataset: str, conditions: Collection[str]
    ) -> Bool[np.ndarray, "n"] | None:
        """Return, for each image of a set, True if there is a decision under all `conditions`.

        Tables of decisions may lack images. None, the default, means that all images have
        decisions. dataset: name of the set. conditions: a probe's conditions.
        """
        return None

    def dtype(self, requested: Any) -> Any:
        """Return the precision (a dtype) that the network computes in; by default float32.

        requested: the dtype that the suite asks for.
        """
        return jnp.float32

    def bind(self, dtype: Any, devices: jax.sharding.Mesh) -> Any:
        """Return an inference.BoundNetwork in a precision and on devices; by default self.

        dtype: result of the method `dtype`. devices: a mesh with the axis "data".
        """
        return self


def identity(network: Network) -> dict[str, Any]:
    """Return the entries that identify a network, to detect stored results of another network.

    Keys: "digest", "model", "classes" (a hash), and the keys of `preprocessing`.
    """
    names = json.dumps([network.space, *network.classes])
    return {
        "digest": network.digest,
        "model": network.fields["model"],
        "classes": hashlib.sha256(names.encode()).hexdigest()[:16],
        **network.preprocessing,
    }


@dataclasses.dataclass(frozen=True, eq=False)
class FlaxNetwork(Network):
    """A flax module with its weights."""

    net: nn.Module
    variables: Mapping[str, Any]
    # (variables, float image) -> logits, for an algorithm with its own decision rule.
    decide: Callable | None = None
    code: str = ""  # The user's file that defines the module.

    @property
    def preprocessing(self) -> dict[str, Any]:
        """Return the "mean" and "std" that the module normalises images by, if set."""
        constants = {key: getattr(self.net, key, None) for key in _CONSTANTS}
        return {key: list(value) for key, value in constants.items() if value}

    def _check_weights(self) -> None:
        """Raise errors.NotFiniteError, naming arrays, if a weight is NaN or infinite.

        Logits do not always show such a weight: max pooling may drop a NaN.
        """
        broken = []
        for path, leaf in jax.tree_util.tree_leaves_with_path(self.variables):
            count = int((~jnp.isfinite(leaf)).sum())
            if count:
                name = "/".join(str(entry.key) for entry in path)
                broken.append(f"{count:,} of {leaf.size:,} in {name}")
        if broken:
            more = f" and {len(broken) - 2} more arrays" if len(broken) > 2 else ""
            raise errors.NotFiniteError(
                f"weights must be finite, NaN or infinite are "
                f"{', '.join(broken[:2])}{more}; give other weights, such as those of an "
                "earlier step"
            )

    def dtype(self, requested: Any) -> Any:
        """Return the requested dtype if the module can change its precision, else its own dtype.

        An algorithm with its own `decide` keeps the precision of its run. A user's module
        without a `dtype` computes in float32.
        """
        module_dtype = getattr(self.net, "dtype", None)
        if module_dtype and not self.decide:
            return requested
        return module_dtype or jnp.float32

    def bind(self, dtype: Any, devices: jax.sharding.Mesh) -> inference.BoundJaxNetwork:
        """Return the network in a precision, with weights replicated on the devices.

        dtype: result of the method `dtype`; an algorithm with its own `decide` computes in its
        run's precision whatever it is. devices: a mesh. Equal modules share compiled programs. Of
        the result, `at` is None for an algorithm with its own `decide`; `at` and `net` are None for
        a module without a `tap`. errors.NotFiniteError if a weight is NaN or infinite.
        """
        self._check_weights()
        net, variables = self.net, mesh.replicate(self.variables, devices)
        if hasattr(net, "dtype"):
            net = net.clone(dtype=dtype)
        readable = net if hasattr(net, "tap") else None  # None: it has no sites.
        if self.decide:
            return inference.BoundJaxNetwork(self.decide, variables, net=readable)
        return inference.BoundJaxNetwork(
            apply=make_apply(net, self.code),
            variables=variables,
            at=readable and _make_site_reader(net),
            net=readable,
        )


@functools.cache
def make_apply(net: nn.Module, code: str = "") -> Callable:
    """Return a function (variables, images in [0, 1]) -> logits in evaluation mode.

    Equal modules get the same function object, so that it is compiled once. code: the user's
    file that defines the module, for error messages; "" for a module of this package.
    """
    parameters = inspect.signature(type(net).__call__).parameters
    options = {"train": False} if "train" in parameters else {}
    apply = functools.partial(net.apply, **options)
    return extensions.guard(code, apply, _LOGITS) if code else apply


# Check of the output of a user's module.
_LOGITS = extensions.Registry(
    group="",
    known={},
    must="logits (images, classes), an array of two axes",
    fits=lambda logits: getattr(logits, "ndim", 0) == 2,
)


@functools.cache
def _make_site_reader(net: nn.Module) -> Callable:
    """Return the function `at` of an inference.BoundNetwork; one object for equal modules."""

    def at(
        variables: Mapping[str, Any], image: shown.Images, site: str
    ) -> tuple[Array, Array]:
        """Return (activations at a site, gradients of each image's largest logit there)."""
        largest = lambda logits: logits.max(-1)
        return taps.site_gradient(net, variables, image, site, largest)

    return at


_CONSTANTS = ("mean", "std")
_FLAG = "--checkpoint (or --runs)"


def find_checkpoints(paths: Sequence[str], *, any_file: bool = False) -> list[str]:
    """Return the paths of weight files and runs under some paths and globs, in order.

    paths: files, folders, globs, weights on the hub (hf:OWNER/NAME@COMMIT), or networks of timm
    (timm_names.parse). any_file: accept a file in `paths` with any suffix. ValueError for a path without weights or runs; if a
    glob has several matches, those without weights or runs are skipped.

    A folder with config.json and checkpoints is a run. For any other folder, all weight files (by
    suffix) and runs below it are returned, except for hidden files and folders, and for files and
    runs behind a link to a folder that is not a run. A file or run with several matching paths is
    returned once, under the first of these paths. Links with different names to one file count as
    different files, because a published file is recognised by its name. Weights on the hub keep
    their name and are fetched when they are opened.
    """
    first_path: dict[pathlib.Path, str] = {}  # By real path.
    for pattern in paths:
        if hub.is_hub(pattern):
            hub.parse(pattern, _FLAG)
            first_path.setdefault(pathlib.Path(pattern), pattern)
            continue
        if timm_names.is_timm(pattern):
            timm_names.parse(pattern, _FLAG)
            first_path.setdefault(pathlib.Path(pattern), pattern)
            continue
        path = os.path.expanduser(files.local_copy(pattern, _FLAG, checkpoints=True))
        matches = [path] if os.path.exists(path) else sorted(glob.glob(path))
        if not matches:
            model_paths.refuse_nothing(pattern, _FLAG)
        for match in matches:
            is_accepted = any_file and os.path.isfile(match)
            checkpoint_paths = [match] if is_accepted else list(_find_below(match))
            if not checkpoint_paths and len(matches) == 1:
                raise ValueError(
                    f"--checkpoint: {match} must be a file of weights "
                    f"({', '.join(state_dicts.SUFFIXES)}), a run's workdir, or a folder of these"
                )
            for checkpoint_path in checkpoint_paths:
                first_path.setdefault(_real_path(checkpoint_path), checkpoint_path)
    return list(first_path.values())


def _real_path(path: str) -> pathlib.Path:
    """Return a path with links resolved, except that a file's own name is not resolved."""
    real = pathlib.Path(path)
    if real.is_file():
        return real.parent.resolve() / real.name
    return real.resolve()


def _find_below(path: str) -> Iterator[str]:
    """Yield the weight files and runs at a path or below it, sorted; see `find_checkpoints`."""
    is_weights = path.lower().endswith(state_dicts.SUFFIXES) and os.path.isfile(path)
    if is_weights or is_run(path):
        yield path
        return
    for name in sorted(os.listdir(path)) if os.path.isdir(path) else ():
        inner = os.path.join(path, name)
        # Links to folders may lead back here.
        is_folder_link = os.path.islink(inner) and not os.path.isfile(inner)
        if name[0] != "." and (not is_folder_link or is_run(inner)):
            yield from _find_below(inner)


def is_run(path: str) -> bool:
    """Return True if a folder is the workdir of a run, or was written by models.save_run."""
    folder = epath.Path(path)
    return (folder / "config.json").exists() and (folder / "checkpoints").exists()


def is_trained(path: str) -> bool:
    """Return True if a folder is the workdir of a run that jbias trained."""
    return is_run(path) and (epath.Path(path) / "provenance.json").exists()


def path_stem(path: str) -> str:
    """Return the default name of the network in a file, a folder or a repository on the hub.

    The name is the file's name without its last suffix, the folder's name, OWNER-NAME-COMMIT
    with eight digits of the commit, or for timm the name in timm_names.TimmName.
    """
    if hub.is_hub(path):
        repository = hub.parse(path, _FLAG)
        return f"{repository.owner}-{repository.name}-{repository.commit[:8]}"
    if timm_names.is_timm(path):
        return timm_names.parse(path, _FLAG).network_name
    name = os.path.basename(path.rstrip("/"))
    return name if os.path.isdir(path) else name.rsplit(".", 1)[0]


IMAGENET = "imagenet"  # --classes=imagenet, instead of a file.


def read_classes(space_or_file: str, count: int) -> class_maps.LabelSpace:
    """Return the classes of a network's outputs, in order, as given by --classes.

    count: the number of outputs. space_or_file: the name of a known list, a file with one
    class name per line, or a CSV file as read by data.class_maps.of_outputs. WordNet ids make the
    space "wnid", other names "names". ValueError unless there are `count` classes.
    """
    names = list_classes(space_or_file)
    if len(names) != count:
        raise ValueError(
            f"--classes: must name the network's {count} classes, got {len(names)} from "
            f"{space_or_file}; {class_maps.listing_remedy(space_or_file)}"
        )
    if space_or_file == class_maps.GEIRHOS16 or class_maps.is_mapping(space_or_file):
        return class_maps.of_outputs(space_or_file, "--classes")
    space = "wnid" if set(names) <= set(tables.wnids()) else "names"
    return class_maps.LabelSpace(names, space)


def list_classes(space_or_file: str) -> tuple[str, ...]:
    """Return the names of outputs, in order, as given by --classes.

    space_or_file: see `read_classes`; "imagenet" gives its WordNet ids. Blank lines of a file
    are skipped, and spaces around names are removed. ValueError if there is no such list or
    file, or if a name is repeated.
    """
    if space_or_file == IMAGENET:
        return tables.wnids()
    if space_or_file == class_maps.GEIRHOS16 or class_maps.is_mapping(space_or_file):
        return tuple(class_maps.resolve_outputs(space_or_file, "--classes"))
    try:
        opening.require_regular(space_or_file)
        text = epath.Path(space_or_file).read_bytes().decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise ValueError(
            f"--classes: must be {cli.OUTPUT_LISTS}, got {space_or_file!r} ("
            f"{files.error_text(error)})"
        ) from None
    line_numbers: dict[str, list[int]] = {}
    for number, name in enumerate(map(str.strip, text.splitlines()), 1):
        line_numbers.setdefault(name, []).append(number)
    line_numbers.pop("", None)
    repeated = [name for name, numbers in line_numbers.items() if len(numbers) > 1]
    if repeated:
        name, more = repeated[0], ""
        if len(repeated) > 1:
            more = f" ({len(repeated) - 1} more are)"
        raise ValueError(
            f"--classes: must name each class once, got {name!r} in lines "
            f"{', '.join(map(str, line_numbers[name][:8]))} of {space_or_file}{more}; "
            "tell them apart"
        )
    return tuple(line_numbers)


def from_file(
    path: str,
    *,
    name: str = "",
    model: str | None = None,
    classes: str | None = None,
    about: Mapping[str, Any] | None = None,
    **options: Any,
) -> FlaxNetwork:
    """Return the network in a file of weights, or in a folder written by models.save_run.

    name: name of the network's folder of results; default: the file's name. model: a name in
    models.MODELS or path/to/file.py:function; None: read from the file. classes: see
    `read_classes`; None: the names in the file itself, if they are as many as the outputs, else
    ImageNet's classes. about: entries of `Network.about`; "id", if given, replaces `name`, and
    "name" replaces the algorithm in the records; "constants" has the origins of "mean" and "std" in
    words, if `options` give these; "train_data" and "method" are the training set and method for
    the records; without "train_data", the training set in the folder's config.json. options:
    further keyword arguments of models.load, or of the user's function.
    ValueError if the file cannot be read, has no classes, or has another number of classes than
    `classes`.
    """
    count, code, stored_entries = None, "", {}
    if model and model not in models.MODELS:
        count = len(list_classes(classes or IMAGENET))
        net, variables = _read_user_model(path, model, count, options)
        origins = dict.fromkeys(_CONSTANTS, "the module's")
        code_digests = extensions.digests(model, [model])
        digest = "-".join([_file_digest(path), *code_digests.values()])
        code = _code_file(model, net)
    elif os.path.isdir(path):
        net, variables = trained.load(path, model, **options)
        origins = {key: "the folder's" for key in ("mean", "std") if key not in options}
        digest = trained.weights_digest([variables])
        stored_entries = trained.read_entries(path)
    else:
        net, variables, origins = importing.read(path, model, **options)
        digest = _file_digest(path, options.get("head"))
    count = count or net.classes
    if not count:
        raise ValueError(
            f"{path}: the network gives features and no classes; give its linear layer"
        )
    stored = None if classes else class_names.read(path)
    if stored and len(stored.names) == count:
        space, classes_from = (
            class_maps.LabelSpace(stored.names, stored.space),
            "the file's own",
        )
    else:
        space = read_classes(classes or IMAGENET, count)
        classes_from = f"--classes={classes}" if classes else f"{IMAGENET}, by itself"
    about = {**stored_entries, **(about or {}), "classes_from": classes_from}
    if space.answers:
        about["answers"] = dict(space.answers)
        digest += f"-{_digest_of_answers(space.answers)}"
    about["constants"] = {**origins, **about.get("constants", {})}
    name = about.get("id", name or path_stem(path))
    algorithm = about.get("name", name)
    fields = {
        "run": name,
        "algorithm": algorithm,
        "variant": about.get("method", ""),
        "model": _model_name(net),
        "train_data": about.get("train_data", "unknown"),
        "stage": 0,
        "seed": 0,
        "step": 0,
        "epoch": 0.0,
    }
    return FlaxNetwork(
        name=name,
        classes=space.classes,
        space=space.space,
        digest=digest,
        fields=fields,
        about={"category": algorithm, "path": path, **about},
        net=net,
        variables=variables,
        code=code,
    )


def _digest_of_answers(answers: Sequence[tuple[str, str]]) -> str:
    """Return a hash of the pairs (output, class) of data.class_maps.LabelSpace, 16 hex digits."""
    return hashlib.sha256(json.dumps(answers).encode()).hexdigest()[:16]


def _read_user_model(
    path: str, maker: str, classes: int, options: Mapping[str, Any]
) -> tuple[nn.Module, dict[str, Any]]:
    """Return (module made by the user's code, its variables from a flax file).

    The variables are a dict of trees of JAX arrays: "params", and other collections that the file
    has. path: path of the flax file. maker: path/to/file.py:function, called as function(classes,
    **options). classes: the number of outputs. ValueError for a damaged file.
    """
    make = extensions.find("--model", maker, build.MODELS)
    net = build.call_checked("--model", make, classes, **options)
    must = f"{path}: must be what flax.serialization.to_bytes gives of all variables: "
    # For damaged bytes msgpack raises errors of any type.
    with base.explain_errors(must, Exception, reason=base.describe_error):
        variables = serialization.msgpack_restore(pathlib.Path(path).read_bytes())
        variables = jax.tree.map(jnp.asarray, variables)
        return net, {"params": variables.pop("params"), **variables}


def _code_file(name: str, net: nn.Module) -> str:
    """Return the user's file that defines a module; "" for a built-in model name."""
    is_built_in = name in models.MODELS
    return "" if is_built_in else extensions.file_of(name, type(net).__call__)


def from_run(
    path: str, *, step: str = "best", seeds: Sequence[int] = ()
) -> Iterator[FlaxNetwork]:
    """Yield the network of each seed and each branch of a run, at a saved step.

    A branch is a combination of the values in config.vary; a run without config.vary has one.
    path: the run's workdir. step: "best", "latest" or a number; "best" is the first saved
    step with the highest validation accuracy. seeds: the seeds to open; empty: all; seeds that
    the run lacks are ignored. ValueError for an invalid run, or a step that was not saved.
    """
    workdir = epath.Path(path)
    needed = (
        "seeds",
        "vary",
        "precision",
        "variant",
        "model.name",
        "algo.name",
        "train.data",
    )
    config = trained.read_json(workdir / "config.json", needed)
    run_spec.check_vary(run_spec.check_trusted(config, path))
    members = run_spec.members(tuple(config["seeds"]), run_spec.branches(config))
    wanted_step = int(step) if numerals.is_count(step) else step
    checkpoints_by_step: dict[int, tuple] = {}
    for number, member in enumerate(members):
        if seeds and member.seed not in seeds:
            continue
        chosen_step = trained.choose_step(workdir, wanted_step, member.name)
        if chosen_step not in checkpoints_by_step:
            checkpoints_by_step[chosen_step] = trained.read_nets(
                workdir / "checkpoints", chosen_step
            )
        nets, info = checkpoints_by_step[chosen_step]
        yield _open_seed(
            workdir, member, nets[number], stage=info["stage"], step=chosen_step
        )


def _open_seed(
    workdir: epath.Path,
    member: run_spec.Member,
    weights: Mapping[str, Any],
    *,
    stage: int,
    step: int,
) -> FlaxNetwork:
    """Return the network of one seed of a run.

    member: the seed and its branch. weights: its variables in the checkpoint of `step`.
    stage: the number of the stage that saved the checkpoint. ValueError for a run that stored
    no class names.
    """
    config = member.branch.config
    needed = ("data.train/0.space",)
    provenance = trained.read_json(workdir / "provenance.json", needed)
    train_set = provenance["data"]["train/0"]
    if "names" not in train_set:
        raise ValueError(
            f"{workdir}: was begun before class names were stored; resume or retrain it"
        )
    stage_config = jc.stage_configs(config)[stage]
    module = build.network(stage_config, len(train_set["names"]))
    # From the run's own records of that step; 0 without records.
    epoch = 0.0
    records = record_store.records_path(workdir / member.branch.folder, step)
    if records.exists():
        first_record = json.loads(records.read_text("utf-8").splitlines()[0])
        epoch = first_record.get("epoch", 0.0)
    run, algorithm = jc.run_name(config), jc.algorithm_name(config)
    model = config["model"]["name"]
    fields = {
        "run": run,
        "algorithm": algorithm,
        "variant": config["variant"],
        "model": jc.plain_name(model),
        "train_data": jc.train_data_name(config),
        "stage": stage,
        "seed": member.seed,
        "step": step,
        "epoch": epoch,
    }
    return FlaxNetwork(
        name=f"{run}-seed{member.seed}-step{step}",
        classes=tuple(train_set["names"]),
        space=train_set["space"],
        digest=trained.weights_digest([weights]),
        fields=fields,
        about={"category": algorithm, "path": str(workdir), "config": config},
        net=module,
        variables=jax.tree.map(jnp.asarray, weights),
        decide=build.algorithm(stage_config["algo"], module).decide,
        code=_code_file(model, module),
    )


def _model_name(net: nn.Module) -> str:
    """Return the name in models.MODELS that makes modules of the type and arguments of `net`.

    Only arguments that the name fixes are compared; of several names, the one that fixes the most
    is returned. Without such a name, the name of the module's type.
    """
    num_fixed = {}  # By name, the number of arguments that the name fixes.
    for name, make in models.MODELS.items():
        fixed = getattr(make, "keywords", {})
        if type(net) is getattr(make, "func", make) and all(
            getattr(net, key) == value for key, value in fixed.items()
        ):
            num_fixed[name] = len(fixed)
    return max(num_fixed, key=num_fixed.get, default=type(net).__name__)


def _file_digest(*paths: str | os.PathLike | None) -> str:
    """Return one hash of the content of files, 16 hex digits; paths that are None are skipped."""
    digest = hashlib.sha256()
    for path in filter(None, paths):
        with open(path, "rb") as file:
            hashlib.file_digest(file, lambda: digest)
    return digest.hexdigest()[:16]


_DONE = "done"  # File in the workdir of a run that has ended.


def check_arguments(
    args: argparse.Namespace, out: str, config: Mapping[str, Any]
) -> list[str]:
    """Return the paths of files and runs in --checkpoint; ValueError for an invalid flag.

    Flags without an effect are also invalid: --model, --classes, --mean, --std, --trained and
    --method if all paths are runs that were trained here, and --step if no path is such a run. The
    step of --step or of the suite must be "best", "latest" or a number; if all paths are runs, a
    step that at least one run saved. Called before sets are opened, which may take minutes. args:
    the command's flags. out: the folder of results. config: the suite's config.
    """
    if args.model:
        extensions.find("--model", args.model, build.MODELS)
    is_user_model = args.model not in (None, *models.MODELS)
    paths = find_checkpoints(args.checkpoint, any_file=is_user_model)
    list_classes(args.classes or IMAGENET)
    kinds = {is_trained(path) for path in paths}
    if args.trained:
        errors.check_known("--trained", args.trained, data.DATASETS)
    for key in ("model", "classes", "mean", "std", "trained", "method"):
        if kinds == {True} and getattr(args, key) is not None:
            raise ValueError(
                f"--{key}: has no effect on runs that were trained here; leave it out"
            )
    if args.model and paths and all(map(timm_names.is_timm, paths)):
        raise ValueError("--model: has no effect on networks of timm; leave it out")
    if kinds == {False} and args.step:
        raise ValueError("--step: has no effect on files; leave it out")
    try:
        cli.output_folder(out)
    except argparse.ArgumentTypeError as error:
        raise ValueError(f"--out: {error}") from None
    if args.zoo and not os.path.isfile(args.zoo):
        raise ValueError(f"--zoo: no file {args.zoo!r}; --zoo= looks in no table")
    suite_step = config.get("run", {}).get("step")
    for where, step in (("--step", args.step), ("suite.run.step", suite_step)):
        if step in (None, "", "best", "latest"):
            continue
        if not numerals.is_count(str(step)):
            raise ValueError(f"{where}: must be best, latest or a number, got {step!r}")
        saved = {
            number
            for path in paths
            for number in checkpoints.steps(f"{path}/checkpoints")
        }
        if kinds == {True} and saved and int(step) not in saved:
            known = ", ".join(map(str, sorted(saved)))
            raise ValueError(f"{where}: no run has step {step}; there are {known}")
    return paths


# (name or path, line with the reason that begins with the name or path)
Refuse = Callable[[str, str], None]


def open_networks(
    paths: Sequence[str],
    args: argparse.Namespace,
    say: console.Say,
    refuse: Refuse,
    step: int | str = "best",
    open_timm: Callable[[str, str], Network] | None = None,
) -> Iterator[Network]:
    """Yield the networks of files, runs and names, opened one after the other.

    paths: result of `find_checkpoints`; the file of a head that --zoo lists is opened with its
    backbone. args: the command's flags. say: called with lines on normalisation and on
    unfinished runs. refuse: called with (path, reason) for each file or run that cannot be
    opened, which is skipped, as are the remaining seeds of a run. step: the checkpoint of runs
    if --step is not given, see `from_run`. open_timm: opens a network of timm, see
    timm_networks.opener; None: these cannot be opened.
    """
    zoo_name = "jbias:zoo" if args.zoo is None else args.zoo
    zoo = None
    if zoo_name:
        path = jc.resolve_preset(zoo_name, "zoo")
        with jc.refusing_exit("--zoo", path):
            zoo = jc.import_file("zoo", path)
    stems = [path_stem(path) for path in paths]
    for path, stem in zip(paths, stems, strict=True):
        if zoo and zoo.is_head(path):
            continue  # Opened together with its backbone.
        if stems.count(stem) > 1:
            stem = f"{os.path.basename(os.path.dirname(os.path.abspath(path)))}-{stem}"
        try:
            if timm_names.is_timm(path):
                yield _open_timm(path, stem, open_timm)
            elif is_trained(path):
                if not (epath.Path(path) / _DONE).exists():
                    say(f"{path}: has not ended; its checkpoints so far are measured")
                yield from from_run(path, step=str(args.step or step))
            else:
                yield _open_file(path, stem, args, zoo, say)
        except NETWORK_ERRORS as error:
            line = describe_error(error)
            refuse(path, line if path in line else f"{path}: {line}")


def _open_timm(
    path: str, name: str, open_timm: Callable[[str, str], Network] | None
) -> Network:
    """Return a network of timm, named `name`; ValueError without `open_timm`."""
    if open_timm is None:
        raise ValueError(
            f"{path}: networks of timm are for jbias measure, evaluate, look, card and audit; "
            "give a file of weights"
        )
    return open_timm(path, name)


def follow(
    args: argparse.Namespace, say: console.Say, refuse: Refuse
) -> Iterator[Network]:
    """Yield the networks of each checkpoint of a run once it is saved, until the run ends.

    Checkpoints that are already saved come first. A checkpoint that cannot be opened is not
    tried again; refuse is called with ("step <n>", reason) unless it was deleted meanwhile.
    args: flags; `follow` is the run's workdir, `interval` the seconds between checks for new
    checkpoints, `once` whether to stop after the first check. say: called with a line.
    """
    workdir, opened_steps, is_over = epath.Path(args.follow), set(), False
    say(f"following {workdir}")
    while not is_over:
        is_over = args.once or (workdir / _DONE).exists()
        for step in checkpoints.steps(workdir / "checkpoints"):
            if step in opened_steps:
                continue
            opened_steps.add(step)
            try:
                yield from from_run(str(workdir), step=str(step))
            except NETWORK_ERRORS as error:
                if step in checkpoints.steps(workdir / "checkpoints"):
                    refuse(f"step {step}", f"step {step}: {describe_error(error)}")
        if not is_over:
            time.sleep(args.interval)


def _open_file(
    path: str, name: str, args: argparse.Namespace, zoo: Any, say: console.Say
) -> FlaxNetwork:
    """Return the network of a file, and print the mean and std of its input normalisation.

    path: a file, a folder, or weights on the hub. name: name of the network, if the zoo does
    not have the file. args: the command's flags. zoo: the module with the table of published
    files, or None; flags for mean and std take precedence over its entry. A file that has the
    name of an entry of the zoo, but other properties, is opened as if the zoo had no such entry.
    say: called with lines for the user. ValueError if --model contradicts the zoo, and as
    `from_file` raises.
    """
    flags = {key: getattr(args, key) for key in _CONSTANTS}
    constants = {key: value for key, value in flags.items() if value is not None}
    origins = {key: f"--{key}" for key in constants}
    extra = {}
    if args.trained:
        extra["train_data"] = args.trained
    if args.method:
        extra["method"] = args.method
    file = published_name = path
    if hub.is_hub(path):
        file, extra["path"] = hub.fetch(path, _FLAG), path
        published_name = os.path.join(hub.parse(path, _FLAG).id, os.path.basename(file))
    entry, network = zoo.find(published_name) if zoo else None, None
    if entry:
        if args.model not in (None, entry.model):
            raise ValueError(
                f"--model: {path} has the name of {entry.id}, which is {entry.model}, got "
                f"{args.model!r}; leave --model out, rename the file, or look in no table "
                "by --zoo="
            )
        options = entry.options(os.path.dirname(file) or ".")
        zoo_origins = {
            key: f"those of {entry.id}" for key in _CONSTANTS if key in options
        }
        about = {
            "id": entry.id,
            "name": entry.name,
            "category": entry.category,
            "norm": entry.norm,
            "epsilon": entry.eps,
            "constants": zoo_origins | origins,
            **extra,
        }
        options |= constants
        network = from_file(
            file, model=entry.model, classes=args.classes, about=about, **options
        )
        differing = []
        for key, expected in entry.needs.items():
            actual = getattr(network.net, key)
            if actual != expected:
                differing.append(f"{key} {expected}, got {actual}")
        if differing:
            say(
                f"{path}: has the name of {entry.id} and is another file; that one has "
                f"{'; '.join(differing)}; opened as a file that is not in the table"
            )
            network = None
    if network is None:
        network = from_file(
            file,
            name=name,
            model=args.model,
            classes=args.classes,
            about={"constants": origins, **extra},
            **constants,
        )
    if network.preprocessing:
        say(_describe_constants(network))
    return network


def _describe_constants(network: FlaxNetwork) -> str:
    """Return a line of text on the mean and std of the input normalisation, with their origins.

    An example is "NAME: mean 0.5, std 0.5: the file's; --mean and --std change it". If the origins
    differ, each is in brackets after its numbers.
    """
    numbers, origins = [], network.about["constants"]
    for key, values in network.preprocessing.items():
        values = values[:1] if len(set(values)) == 1 else values
        numbers.append(f"{key} {' '.join(f'{x:g}' for x in values)}")
    words = [origins[key] for key in network.preprocessing]
    ending = f": {words[0]}"
    if len(set(words)) > 1:
        numbers = [f"{n} ({word})" for n, word in zip(numbers, words, strict=True)]
        ending = ""
    return f"{network.name}: {', '.join(numbers)}{ending}; --mean and --std change it"
