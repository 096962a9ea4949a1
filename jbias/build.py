"""Builds what a config names: the network, the algorithm and the batch transforms.

Each is one of ours or a user's own (extensions.py), whose errors name its file and line.
"""

import collections
import difflib
import functools
import inspect
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import linen as nn

from jbias import algos, augment, data, extensions, models
from jbias import config as jc
from jbias.algos import base
from jbias.models import taps
from jbias.runtime import mesh, messages


class BatchTransform(NamedTuple):
    """A batch transform: its random stream, how many examples it mixes, and its views."""

    stream: str
    apply: Callable  # (batch, key) -> batch
    mix_group: int
    views: int  # In how many rows it shows what was one.


def _is(kind: type) -> Callable[[Any], bool]:
    return lambda made: isinstance(made, kind)


ALGORITHMS, MODELS, TRANSFORMS = (
    extensions.Kind(
        *("algorithms", algos.ALGOS, "a base.Algo", _is(base.Algo)),
        fields=("static", "decide", "settle"),
    ),
    extensions.Kind("models", models.MODELS, "a flax module", _is(nn.Module)),
    extensions.Kind("transforms", augment.AUGMENTS, "(batch, key) -> batch", callable),
)


def lookup(
    where: str, options: Mapping[str, Any], known: Mapping | extensions.Kind
) -> tuple[Callable, dict[str, Any]]:
    """Looks `options.name` up; returns the callable and the options beside the name.

    known: where the user may add some, a kind.
    """
    name = _name_of(where, options)
    options = {key: value for key, value in options.items() if key != "name"}
    if isinstance(known, extensions.Kind):
        return extensions.find(f"{where}.name", name, known), options
    jc.check_known(f"{where}.name", name, known)
    return known[name], options


def check_name(
    where: str, options: Mapping[str, Any], known: Mapping | extensions.Kind
) -> None:
    """Raise ValueError where `lookup` knows no `options.name`; run no code of a user."""
    name = _name_of(where, options)
    if isinstance(known, extensions.Kind):
        extensions.check_name(f"{where}.name", name, known)
    else:
        jc.check_known(f"{where}.name", name, known)


def _name_of(where: str, options: Mapping[str, Any]) -> str:
    """Return `options.name`; raise ValueError where it is missing or no text."""
    jc.check_type(where, options, dict)
    if "name" not in options:
        raise ValueError(
            f"{where}: must have a name, got {dict(options)}; add name=..."
        )
    jc.check_type(f"{where}.name", options["name"], str)
    return options["name"]


def call_checked(where: str, make: Callable, *args: Any, **options: Any) -> Any:
    """Calls `make`; an option it does not take is refused by name."""
    check_options(where, make, options, len(args))
    jc.check_annotations(where, make, options)
    return make(*args, **options)


def check_options(where: str, make: Callable, options: Mapping, given: int) -> None:
    """Refuses options that `make` does not take, and says which it must have.

    given: how many arguments come before them.
    """
    accepted = inspect.signature(make).parameters
    before, of = list(accepted)[:given], inspect.Parameter
    single = (of.KEYWORD_ONLY, of.POSITIONAL_OR_KEYWORD)
    named = {
        name: parameter.default is parameter.empty
        for name, parameter in accepted.items()
        if parameter.kind in single and name not in before
    }
    for option in options:
        if not any(p.kind is p.VAR_KEYWORD for p in accepted.values()):
            jc.check_known(where, option, named, "option")
    for option, required in named.items():
        if required and option not in options:
            jc.refuse(where, f"have the option {option!r}; add {option}=...")


def algorithm(
    options: Mapping, net: nn.Module, columns: Mapping[str, np.ndarray] | None = None
) -> base.Algo:
    """The algorithm of ours, or the user's own.

    One that takes `columns` gets those of the training data, where these are known. Its
    losses are those of `refuse_idle_taps`.
    """
    where, asked = "config.algo", options
    if ":" not in options["name"]:
        options = resolve_functions(where, options)
    make, options = lookup(where, options, ALGORITHMS)
    if asked["name"] not in algos.ALGOS:
        make = _guarded(extensions.file_of(asked["name"], make), make)
    takes = inspect.signature(make).parameters
    if "columns" in options:
        raise ValueError(f"{where}.columns: is filled in from the data; remove it")
    if columns is not None and "columns" in takes:
        options["columns"] = columns
    algo = call_checked(where, make, net, **options)
    defaults = (p.default for key, p in takes.items() if key not in asked)
    return refuse_idle_taps(asked, algo, *defaults)


def refuse_idle_taps(options: Mapping, algo: base.Algo, *defaults: Any) -> base.Algo:
    """The algorithm, whose losses raise ValueError where its tap acts at no site.

    A number among its options, or the defaults of others, that is 0 may switch it off,
    unless another names a site that the network has not. Where steps differ for the
    compiler the tap may be off in some of them: nothing is refused.
    """

    def refuse(sites: Sequence[str]) -> None:
        given = {key: value for key, value in options.items() if key != "name"}
        unknown = [
            (f"config.algo.{key}", name)
            for key, value in given.items()
            for name in (value if isinstance(value, list | tuple) else [value])
            if isinstance(name, str) and name and name not in sites
        ]
        values = (*given.values(), *defaults)
        numbers = (x for x in values if isinstance(x, int | float))
        if algo.static is not base.no_static or not (unknown or all(numbers)):
            return
        unknown.sort(key=lambda one: not difflib.get_close_matches(one[1], sites))
        where, got = unknown[0] if unknown else ("config.algo", given)
        raise ValueError(
            f"{where}: must let the tap of {options['name']} act at a site of "
            f"{type(algo.net).__name__}{f', got {got!r}' if got else ''}, but it acts at "
            "none; leave the tap out to train without, or name a site: "
            f"{jc.suggest(str(got), sites, taps.abbreviate(sites))}"
        )

    return algo._replace(losses=taps.check_acting(algo.losses, refuse))


def user_file_digests(config: Mapping[str, Any]) -> dict[str, str]:
    """Digests of the users' own code and weights, which no commit of ours covers."""
    ours = {*algos.ALGOS, *models.MODELS, *augment.AUGMENTS, *data.DATASETS}
    names = [*_values(config, "data")]
    for stage in jc.stage_configs(config):
        parts = (stage["algo"], stage.get("model", {}), *stage.get("inputs", ()))
        names += [part["name"] for part in parts if "name" in part]
    names += [name for listed in _values(config, "measures") for name in listed]
    others = (name for name in names if name not in ours and ":" not in name)
    found = extensions.digests(config, others)
    named = (x for x in _values(config, "weights") if isinstance(x, str))
    paths = {os.path.expanduser(path) for path in named}
    return found | {
        path: extensions.file_digest(path)
        for path in sorted(paths)
        if os.path.isfile(path)  # Else what wants it says so, or it is a folder.
    }


def _values(config: Any, key: str) -> Iterator[Any]:
    """All that entries of that name hold, wherever they are."""
    if isinstance(config, Mapping):
        if isinstance(config.get(key), str | list | tuple):
            yield config[key]
        config = [*config.values()]
    for value in config if isinstance(config, list | tuple) else ():
        yield from _values(value, key)


def network(config: Mapping[str, Any], classes: int, views: int = 1) -> nn.Module:
    """The plain backbone that the config names, for batches of so many views an image.

    Its `norm_group` counts images, that of the network rows.
    """
    where, dtype = "config.model", mesh.dtype(config["precision"])
    make, options = lookup(where, config["model"], MODELS)
    # A config that was kept as JSON has lists, with which a module is no key.
    options = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
    if "norm_group" in options:
        options["norm_group"] *= views
    # One's own that does not take it computes in what it says itself.
    own = {"dtype": dtype} if "dtype" in inspect.signature(make).parameters else {}
    return call_checked(where, make, classes, **own, **options)


def resolve_functions(where: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Replaces what names a function that an algorithm or transform calls by it.

    These are `transfer`, a style transfer, and `mix`, a batch transform, which gets the
    `mix_group` that stands beside it.
    """
    options = dict(options)
    for key, known in (("transfer", models.TRANSFERS), ("mix", TRANSFORMS)):
        if isinstance(options.get(key), Mapping):
            make, rest = lookup(f"{where}.{key}", options[key], known)
            if key == "mix" and "mix_group" in inspect.signature(make).parameters:
                rest = {"mix_group": options.get("mix_group", 32), **rest}
            options[key] = call_checked(f"{where}.{key}", make, **rest)
    return options


def transforms(where: str, inputs: Iterable[Mapping[str, Any]]) -> list[BatchTransform]:
    """The batch transforms, in order."""
    made, seen = [], collections.Counter()
    for i, options in enumerate(inputs):
        here = f"{where}[{i}]"
        make, rest = lookup(here, resolve_functions(here, options), TRANSFORMS)
        defaults = inspect.signature(make).parameters
        group, views = (
            rest.get(name, defaults[name].default if name in defaults else 1)
            for name in ("mix_group", "views")
        )
        name = options["name"]
        apply = call_checked(here, make, **rest)
        made.append(BatchTransform(f"{name}/{seen[name]}", apply, group, views))
        seen[name] += 1
    return made


_LOSS_ARGUMENTS = ("params", "stats", "batch", "key", "static")


def _guarded(path: str, made: Callable[..., base.Algo]) -> Callable[..., base.Algo]:
    """Makes a user's own algorithm, whose errors are told as those of that file.

    So are those of all that it consists of.
    """

    @functools.wraps(made)
    def make(net: Any, **options: Any) -> base.Algo:
        algo = made(net, **options)
        with messages.user_code(path, extensions.line_of(path, made)):
            fine = isinstance(algo.net, nn.Module)
            _expect(fine, "net of base.Algo must be a flax module", algo.net)
        guard = functools.partial(extensions.guard, path)
        trains = {one.trains: guard(one.trains) for one in algo.updates}
        updates = (one._replace(trains=trains[one.trains]) for one in algo.updates)
        return algo._replace(
            losses=_losses(path, algo),
            updates=tuple(updates),
            parts={key: guard(init) for key, init in algo.parts.items()},
        )

    return make


def _expect(holds: bool, must: str, got: Any) -> None:
    if not holds:
        raise TypeError(f"{must}, got {str(got)[:80]}")


def _losses(path: str, algo: base.Algo) -> Callable:
    """Likewise; they may be ours, around a tap of the user's, which counts as theirs."""
    tap = getattr(algo.net, "tap", None)
    line = extensions.line_of(path, algo.losses, tap)
    names = {name for one in algo.updates for name in (one.loss, one.plus) if name}

    @functools.wraps(algo.losses)
    def losses(*args: Any) -> tuple[dict, base.Aux]:
        def given() -> str:
            words = map(" ".join, zip(_LOSS_ARGUMENTS, map(describe_tree, args)))
            taps = "; a tap is called with (x, site, key)" if tap else ""
            return f"losses are called with {', '.join(words)}{taps}"

        with messages.user_code(path, line, given):
            told = algo.losses(*args)
            pair = type(told) is tuple and len(told) == 2 and isinstance(told[0], dict)
            must = "losses must return ({name: loss}, base.Aux(stats, metrics))"
            _expect(pair, must, told)
            found, aux = told
            _check_losses(names, found)
            # Also of Python's numbers, which have no type, and of whole ones.
            found = {key: jax.numpy.multiply(one, 1.0) for key, one in found.items()}
            _expect(isinstance(aux, base.Aux), "losses must come with a base.Aux", aux)
            large = {k: jax.numpy.shape(value) for k, value in aux.metrics.items()}
            must = "metrics of base.Aux must be scalars"
            _expect(not any(large.values()), must, large)
            want, got = _shapes(args[1]), _shapes(aux.stats)
            if want != got:
                at = max(k for k in want | got if want.get(k) != got.get(k))
                raise TypeError(
                    "base.Aux must have the whole new stats, {**stats, 'net': seen}, in "
                    f"their shapes: expected stats{at} of {want.get(at)}, got {got.get(at)}"
                )
            return found, aux

    return losses


def _check_losses(names: Collection[str], losses: Mapping[str, Any]) -> None:
    """Raise TypeError unless there is a loss of each name, and all losses are scalars."""
    for name in sorted(names):
        if name not in losses:
            known = ", ".join(map(repr, losses)) or "none"
            raise TypeError(
                f"no loss is named {name!r} (names: {known}); return the loss that the "
                f"update uses as {{{name!r}: loss}}, or name it in base.Update"
            )
    for name, loss in losses.items():
        if shape := jax.numpy.shape(loss):
            raise TypeError(
                f"loss {name!r} must be a scalar, got shape {shape}; take jnp.mean or "
                "base.weighted_mean"
            )


def _shapes(tree: Any) -> dict[str, Any]:
    """The shape of each leaf by its place, and the structure of all under ""."""
    leaves = jax.tree.leaves_with_path(tree)
    shapes = {jax.tree_util.keystr(at): jax.numpy.shape(one) for at, one in leaves}
    return {**shapes, "": jax.tree.structure(tree)}


def describe_tree(value: Any, depth: int = 1) -> str:
    """Keys, and dtype and shape of what lies under them."""
    if isinstance(value, Mapping):
        inner = (f"{k!r}: {describe_tree(one, depth - 1)}" for k, one in value.items())
        return f"{{{', '.join(inner)}}}" if depth else "{...}"
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype}[{','.join(map(str, value.shape))}]"
    return repr(value)[:80]
