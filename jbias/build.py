"""Functions that build the network, the algorithm and the batch transforms of a config.

Each function is part of jbias, or is written by a user (extensions.py). Errors in a user's code
name its file and line. A tap is a function of an algorithm that changes features inside the
network, at named layers (sites).
"""

import collections
import functools
import inspect
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import jax
import numpy as np
from flax import linen as nn

from jbias import algos, augment, data, errors, extensions, models
from jbias import config as jc
from jbias.algos import base
from jbias.models import taps
from jbias.runtime import mesh, messages


class BatchTransform(NamedTuple):
    """A function that transforms a batch, with its properties."""

    stream: str  # Name of its random stream.
    apply: Callable  # (batch, key) -> batch
    mix_group: int  # Number of neighbouring examples that are mixed.
    views: int  # Number of output rows per input row of the batch.


ALGORITHMS = extensions.Registry(
    group="algorithms",
    known=algos.ALGOS,
    must="a base.Algo",
    fits=lambda result: isinstance(result, base.Algo),
    guarded_fields=("static", "decide", "settle"),
)
MODELS = extensions.Registry(
    group="models",
    known=models.MODELS,
    must="a flax module",
    fits=lambda result: isinstance(result, nn.Module),
)
TRANSFORMS = extensions.Registry(
    group="transforms",
    known=augment.AUGMENTS,
    must="(batch, key) -> batch",
    fits=callable,
)


def lookup(
    where: str, options: Mapping[str, Any], known: Mapping | extensions.Registry
) -> tuple[Callable, dict[str, Any]]:
    """Return the function with the name options["name"], and the other options.

    where: start of the error message, such as "config.algo". known: functions by name; a
    Registry if users may add their own. ValueError for a missing or unknown name.
    """
    name = _name_of(where, options)
    options = {key: value for key, value in options.items() if key != "name"}
    if isinstance(known, extensions.Registry):
        return extensions.find(f"{where}.name", name, known), options
    errors.check_known(f"{where}.name", name, known)
    return known[name], options


def check_name(
    where: str, options: Mapping[str, Any], known: Mapping | extensions.Registry
) -> None:
    """Raise ValueError if `lookup` rejects options["name"]; do not run the user's code.

    where, options, known: see `lookup`.
    """
    name = _name_of(where, options)
    if isinstance(known, extensions.Registry):
        extensions.check_name(f"{where}.name", name, known)
    else:
        errors.check_known(f"{where}.name", name, known)


def _name_of(where: str, options: Mapping[str, Any]) -> str:
    """Return options["name"]; raise ValueError if it is missing or not text.

    where: start of the error message.
    """
    errors.check_type(where, options, dict)
    if "name" not in options:
        raise ValueError(
            f"{where}: must have a name, got {dict(options)}; add name=..."
        )
    errors.check_type(f"{where}.name", options["name"], str)
    return options["name"]


def call_checked(
    where: str, make: Callable[..., Any], *args: Any, **options: Any
) -> Any:
    """Return make(*args, **options); raise ValueError for unknown, missing or wrong options.

    An option is wrong if its value has another type than its annotation.
    where: start of the error message, such as "config.algo".
    """
    check_options(where, make, options, num_positional=len(args))
    errors.check_annotations(where, make, options)
    return make(*args, **options)


def check_options(
    where: str,
    make: Callable[..., Any],
    options: Mapping[str, Any],
    *,
    num_positional: int,
) -> None:
    """Raise ValueError for options that `make` does not have, and for missing ones.

    where: start of the error message. options: keywords by name. num_positional: number of
    arguments that are passed before the options. If `make` has **keywords, it has all options.
    """
    parameters = inspect.signature(make).parameters
    positional = list(parameters)[:num_positional]
    by_keyword = (
        inspect.Parameter.KEYWORD_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    )
    is_required = {
        name: parameter.default is parameter.empty
        for name, parameter in parameters.items()
        if parameter.kind in by_keyword and name not in positional
    }
    accepts_any = any(
        parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
    )
    if not accepts_any:
        errors.check_all_known(where, options, is_required, "option")
    for option, required in is_required.items():
        if required and option not in options:
            errors.refuse(where, f"have the option {option!r}; add {option}=...")


def algorithm(
    options: Mapping[str, Any],
    net: nn.Module,
    columns: Mapping[str, np.ndarray] | None = None,
) -> base.Algo:
    """Return the algorithm of config.algo.

    options: config.algo. net: the backbone. columns: columns of the training data, for
    algorithms that have the option `columns`; None if they are not known yet. The losses
    raise ValueError if the algorithm's tap acts at no site (`refuse_idle_taps`). ValueError
    for an unknown name, and for unknown, missing or wrong options.
    """
    where = "config.algo"
    config = options
    if ":" not in config["name"]:
        options = resolve_functions(where, options)
    make, options = lookup(where, options, ALGORITHMS)
    if config["name"] not in algos.ALGOS:
        make = _guarded(extensions.file_of(config["name"], make), make)
    parameters = inspect.signature(make).parameters
    if "columns" in options:
        raise ValueError(f"{where}.columns: is filled in from the data; remove it")
    if columns is not None and "columns" in parameters:
        options["columns"] = columns
    algo = call_checked(where, make, net, **options)
    defaults = [
        parameter.default
        for name, parameter in parameters.items()
        if name not in config
    ]
    return refuse_idle_taps(config, algo, defaults)


def refuse_idle_taps(
    options: Mapping[str, Any], algo: base.Algo, defaults: Sequence[Any] = ()
) -> base.Algo:
    """Return the algorithm with losses that raise ValueError if its tap acts at no site.

    options: config.algo. defaults: values of the options that config.algo leaves out.
    No error is raised in two cases. If an option is 0, the tap may be switched off; an option that
    names a site that the network does not have is still an error. If static arguments change from
    step to step, the tap may act in other steps.
    """

    def refuse(sites: Sequence[str]) -> None:
        """Raise ValueError unless the tap may be off; sites: the network's site names."""
        set_options = {key: value for key, value in options.items() if key != "name"}
        unknown_sites = []
        for key, value in set_options.items():
            names = value if isinstance(value, list | tuple) else [value]
            for name in names:
                if isinstance(name, str) and name and name not in sites:
                    unknown_sites.append((f"config.algo.{key}", name))
        values = [*set_options.values(), *defaults]
        numbers = [value for value in values if isinstance(value, int | float)]
        may_be_off = not all(numbers) and not unknown_sites
        if algo.static is not base.no_static or may_be_off:
            return
        where, got = "config.algo", set_options
        if unknown_sites:  # The one that is most like a site's name.
            unknown_sites.sort(
                key=lambda site: not errors.nearest(site[1], sites, cutoff=0.6)
            )
            where, got = unknown_sites[0]
        got_text = f", got {got!r}" if got else ""
        raise ValueError(
            f"{where}: must let the tap of {options['name']} act at a site of "
            f"{type(algo.net).__name__}{got_text}, but it acts at "
            "none; leave the tap out to train without, or name a site: "
            f"{errors.suggest(str(got), sites, taps.abbreviate(sites))}"
        )

    return algo._replace(losses=taps.check_acting(algo.losses, refuse))


def user_file_digests(config: Mapping[str, Any]) -> dict[str, str]:
    """Return digests of the user's files and versions of the user's packages, as one dict.

    Digests (`extensions.file_digest`) of files of code and weights are by path; files that do not
    exist and folders are left out. Versions, such as "mypackage 1.2", are by the name in the config
    that the package provides. A run records this dict, because the commit of jbias does not cover
    these files and packages.
    """
    of_package = {*algos.ALGOS, *models.MODELS, *augment.AUGMENTS, *data.DATASETS}
    names = [*_values(config, "data")]
    for stage in jc.stage_configs(config):
        entries = (stage["algo"], stage.get("model", {}), *stage.get("inputs", ()))
        names += [entry["name"] for entry in entries if "name" in entry]
    for measures in _values(config, "measures"):
        names += measures
    provided = [name for name in names if name not in of_package and ":" not in name]
    digests = extensions.digests(config, provided)
    weights = [path for path in _values(config, "weights") if isinstance(path, str)]
    for path in sorted(set(map(os.path.expanduser, weights))):
        # A missing file is reported where it is read; a folder has no digest.
        if os.path.isfile(path):
            digests[path] = extensions.file_digest(path)
    return digests


def _values(config: Any, key: str) -> Iterator[Any]:
    """Yield the values of all entries named `key` that are text or lists, at any depth."""
    if isinstance(config, Mapping):
        if isinstance(config.get(key), str | list | tuple):
            yield config[key]
        config = [*config.values()]
    for value in config if isinstance(config, list | tuple) else ():
        yield from _values(value, key)


def network(config: Mapping[str, Any], classes: int, views: int = 1) -> nn.Module:
    """Return the network of config.model, a flax module, without any tap.

    classes: number of logits. views: rows of a batch per image: config.model.norm_group is a
    number of images, the network's `norm_group` a number of rows. ValueError for an unknown
    name, and for unknown, missing or wrong options.
    """
    where = "config.model"
    make, options = lookup(where, config["model"], MODELS)
    # A config read from JSON has lists; fields of a flax module must be hashable.
    options = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in options.items()
    }
    if "norm_group" in options:
        options["norm_group"] *= views
    # A user's network without this option chooses its dtype itself.
    if "dtype" in inspect.signature(make).parameters:
        options = {"dtype": mesh.dtype(config["precision"]), **options}
    return call_checked(where, make, classes, **options)


def resolve_functions(where: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the options with the mappings `transfer` and `mix` replaced by functions.

    transfer: options of a style transfer. mix: options of a batch transform; its `mix_group`
    is by default the `mix_group` of `options`, else 32. where: start of error messages.
    """
    options = dict(options)
    for key, known in (("transfer", models.TRANSFERS), ("mix", TRANSFORMS)):
        if isinstance(options.get(key), Mapping):
            make, inner_options = lookup(f"{where}.{key}", options[key], known)
            if key == "mix" and "mix_group" in inspect.signature(make).parameters:
                inner_options.setdefault("mix_group", options.get("mix_group", 32))
            options[key] = call_checked(f"{where}.{key}", make, **inner_options)
    return options


def transforms(where: str, inputs: Iterable[Mapping[str, Any]]) -> list[BatchTransform]:
    """Return the batch transforms of config.inputs, in order.

    where: start of error messages. ValueError for unknown names, and for unknown, missing or
    wrong options.
    """
    built = []
    counts: collections.Counter[str] = collections.Counter()
    for i, config in enumerate(inputs):
        place = f"{where}[{i}]"
        make, options = lookup(place, resolve_functions(place, config), TRANSFORMS)
        name = config["name"]
        built.append(
            BatchTransform(
                stream=f"{name}/{counts[name]}",
                apply=call_checked(place, make, **options),
                mix_group=_value_or_default(make, options, "mix_group"),
                views=_value_or_default(make, options, "views"),
            )
        )
        counts[name] += 1
    return built


def _value_or_default(
    make: Callable[..., Any], options: Mapping[str, Any], name: str
) -> int:
    """Return the value of the option `name`, or its default in `make`, or 1."""
    parameters = inspect.signature(make).parameters
    default = parameters[name].default if name in parameters else 1
    return options.get(name, default)


_LOSS_ARGUMENTS = ("params", "stats", "batch", "key", "static")


def _guarded(path: str, make: Callable[..., base.Algo]) -> Callable[..., base.Algo]:
    """Return the user's `make`, wrapped so that its errors name the user's file.

    Errors in the functions of the algorithm that it returns name the file, too. path: the
    file of `make`.
    """

    @functools.wraps(make)
    def guarded_make(net: Any, **options: Any) -> base.Algo:
        """Return the algorithm of `make` with guarded functions; arguments: see `make`.

        UserCodeError if `net` of the algorithm is not a flax module.
        """
        algo = make(net, **options)
        with messages.user_code(path, extensions.line_of(path, make)):
            if not isinstance(algo.net, nn.Module):
                _fail("net of base.Algo must be a flax module", algo.net)
        guard = functools.partial(extensions.guard, path)
        # Updates that share one `trains` must share its guard, too.
        guards = {update.trains: guard(update.trains) for update in algo.updates}
        updates = [
            update._replace(trains=guards[update.trains]) for update in algo.updates
        ]
        return algo._replace(
            losses=_guarded_losses(path, algo),
            updates=tuple(updates),
            parts={key: guard(init) for key, init in algo.parts.items()},
        )

    return guarded_make


def _fail(must: str, got: Any) -> NoReturn:
    """Raise a TypeError with the text "MUST, got GOT"; must: such as "x must be text"."""
    raise TypeError(f"{must}, got {str(got)[:80]}")


def _guarded_losses(
    path: str, algo: base.Algo
) -> Callable[..., tuple[dict[str, Any], base.Aux]]:
    """Return the algorithm's function of losses with checks of its results.

    Losses become floating arrays. Errors name the user's file at `path`, even if only the tap
    inside the network is from this file.
    """
    tap = getattr(algo.net, "tap", None)
    line = extensions.line_of(path, algo.losses, tap)
    names = {update.loss for update in algo.updates}
    names |= {update.plus for update in algo.updates}
    names = set(filter(None, names))

    @functools.wraps(algo.losses)
    def losses(*args: Any) -> tuple[dict, base.Aux]:
        """Return (losses by name, aux) of the algorithm, after checks of the losses and aux.

        args: the arguments of the losses, see _LOSS_ARGUMENTS. UserCodeError if a check fails
        or the algorithm raises an error.
        """

        def describe_call() -> str:
            """Return the arguments' names and shapes as text for an error message."""
            arguments = [
                f"{name} {describe_tree(value)}"
                for name, value in zip(_LOSS_ARGUMENTS, args)
            ]
            tap_call = "; a tap is called with (x, site, key)" if tap else ""
            return f"losses are called with {', '.join(arguments)}{tap_call}"

        with messages.user_code(path, line, describe_call):
            result = algo.losses(*args)
            is_pair = type(result) is tuple and len(result) == 2
            if not is_pair or not isinstance(result[0], dict):
                _fail(
                    "losses must return ({name: loss}, base.Aux(stats, metrics))",
                    result,
                )
            named_losses, aux = result
            _check_losses(names, named_losses)
            # Python numbers and integer arrays become floating arrays.
            named_losses = {
                name: jax.numpy.multiply(loss, 1.0)
                for name, loss in named_losses.items()
            }
            if not isinstance(aux, base.Aux):
                _fail("losses must come with a base.Aux", aux)
            shapes = {
                name: jax.numpy.shape(value) for name, value in aux.metrics.items()
            }
            if any(shapes.values()):
                _fail("metrics of base.Aux must be scalars", shapes)
            _check_stats(args[1], aux.stats)
            return named_losses, aux

    return losses


def _check_stats(stats: Any, new_stats: Any) -> None:
    """Raise TypeError if an algorithm's stats change structure or shapes in a step.

    stats, new_stats: the stats before and after the step.
    """
    expected, got = _shapes(stats), _shapes(new_stats)
    if expected != got:
        place = max(key for key in expected | got if expected.get(key) != got.get(key))
        raise TypeError(
            "base.Aux must have the whole new stats, {**stats, 'net': seen}, in "
            f"their shapes: expected stats{place} of {expected.get(place)}, got "
            f"{got.get(place)}"
        )


def _check_losses(names: Collection[str], losses: Mapping[str, Any]) -> None:
    """Raise TypeError unless every name has a loss, and all losses are scalars.

    names: names of the losses that the updates use. losses: by name.
    """
    for name in sorted(names):
        if name not in losses:
            known = ", ".join(map(repr, losses)) or "none"
            raise TypeError(
                f"no loss is named {name!r} (names: {known}); return the loss that the "
                f"update uses as {{{name!r}: loss}}, or name it in base.Update"
            )
    for name, loss in losses.items():
        shape = jax.numpy.shape(loss)
        if shape:
            raise TypeError(
                f"loss {name!r} must be a scalar, got shape {shape}; take jnp.mean or "
                "base.weighted_mean"
            )


def _shapes(tree: Any) -> dict[str, Any]:
    """Return the shape of each leaf of a tree by path, and the tree's structure by "".

    Use the result to compare two trees.
    """
    shapes = {"": jax.tree.structure(tree)}
    for path, leaf in jax.tree.leaves_with_path(tree):
        shapes[jax.tree_util.keystr(path)] = jax.numpy.shape(leaf)
    return shapes


def describe_tree(value: Any, depth: int = 1) -> str:
    """Return text with a tree's keys, dtypes and shapes, such as {'w': float32[3]}.

    depth: number of levels of mappings inside the first to print; deeper mappings are {...}. A leaf
    that is not an array is printed as its repr, cut to 80 characters.
    """
    if isinstance(value, Mapping):
        if not depth:
            return "{...}"
        entries = [
            f"{key!r}: {describe_tree(entry, depth - 1)}"
            for key, entry in value.items()
        ]
        return f"{{{', '.join(entries)}}}"
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype}[{','.join(map(str, value.shape))}]"
    return repr(value)[:80]
