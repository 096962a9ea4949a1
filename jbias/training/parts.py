"""Makes what a config names: network, algorithm, batch transforms, optimisers."""

import difflib
import hashlib
import inspect
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import optax
from flax import linen as nn

from jbias import algos, augment, entries, kinds, models, optim
from jbias import config as jc
from jbias.algos import base
from jbias.models import taps
from jbias.runtime import mesh
from jbias.training import own


class Input(NamedTuple):
    """A batch transform: its random stream, how many examples it mixes, and its views."""

    stream: str
    apply: Callable  # (batch, key) -> batch
    mix_group: int
    views: int  # In how many rows it shows what was one.


def named(where: str, options: Mapping[str, Any], known: Mapping[str, Callable]):
    """Looks `options.name` up; returns the callable and the options beside the name."""
    kinds.check(where, options, dict)
    options = dict(options)
    if "name" not in options:
        raise ValueError(f"{where}: must have a name, got {options}; add name=...")
    name = options.pop("name")
    kinds.check(f"{where}.name", name, str)
    jc.check_known(f"{where}.name", name, known)
    return known[name], options


def call(where: str, make: Callable, *args: Any, **options: Any) -> Any:
    """Calls `make`; an option it does not take is refused by name."""
    check_options(where, make, options, len(args))
    kinds.options(where, make, options)
    return make(*args, **options)


def check_options(
    where: str, make: Callable, options: Mapping[str, Any], given: int
) -> None:
    """Refuses options that `make` does not take, and says which it must have.

    given: how many arguments come before them.
    """
    accepted = inspect.signature(make).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in accepted.values()):
        of = inspect.Parameter
        taken = (of.KEYWORD_ONLY, of.POSITIONAL_OR_KEYWORD)
        names = [n for n, p in list(accepted.items())[given:] if p.kind in taken]
        for option in options:
            jc.check_known(where, option, names, "option")
    named = {*options, *list(accepted)[:given]}
    for option, parameter in accepted.items():
        several = parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        required = parameter.default is parameter.empty and not several
        if required and option not in named:
            raise ValueError(
                f"{where}: must have the option {option!r}; add {option}=..."
            )


def algorithm(
    options: Mapping[str, Any],
    net: nn.Module,
    columns: Mapping[str, np.ndarray] | None = None,
) -> base.Algo:
    """The algorithm of ours, or the one at `path/to/file.py:function`.

    One that takes `columns` gets those of the training data, where these are known. Its
    losses are those of `acting`.
    """
    asked, name, known = options, options["name"], algos.ALGOS
    if ":" in name:
        known = {name: own.algorithm(name)}
    else:
        options = with_functions("config.algo", options)
    make, options = named("config.algo", options, known)
    algo = call("config.algo", make, net, **_told(make, options, columns))
    takes = inspect.signature(make).parameters.items()
    return acting(asked, algo, *(p.default for key, p in takes if key not in asked))


def acting(options: Mapping[str, Any], algo: base.Algo, *defaults: Any) -> base.Algo:
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
            f"{jc.nearest(str(got), sites, taps.abbreviate(sites))}"
        )

    return algo._replace(losses=taps.check_acting(algo.losses, refuse))


def trusted(config: dict[str, Any], workdir: str | os.PathLike) -> dict[str, Any]:
    """The config that a workdir holds, which may have come from anywhere.

    ValueError where it is none, or names a file of Python that would be run: unless the
    user says by JBIAS_OWN_CODE=1 that it may be.
    """
    where = os.fspath(workdir)
    entries.fit(f"{where}/config.json", config)
    names = [part["algo"]["name"] for part in jc.stages(config)]
    code = [name for name in names if ":" in name]
    if code and not os.environ.get("JBIAS_OWN_CODE"):
        raise ValueError(
            f"{where}: its config.json names the algorithm {code[0]!r}, a file that would "
            "be run; if you trust it, set JBIAS_OWN_CODE=1"
        )
    return config


def _told(make: Callable, options: dict, columns: Mapping | None) -> dict[str, Any]:
    if "columns" in options:
        raise ValueError("config.algo.columns: is filled in from the data; remove it")
    takes = columns is not None and "columns" in inspect.signature(make).parameters
    return {**options, "columns": columns} if takes else options


def own_files(config: Mapping[str, Any]) -> dict[str, str]:
    """Digests of the users' own algorithms and weights, which no commit of ours covers."""
    names = {part["algo"]["name"] for part in jc.stages(config)}
    paths = {name.rpartition(":")[0] for name in names if ":" in name}
    paths |= {os.path.expanduser(path) for path in _weights(config)}
    return {
        path: hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()[:16]
        for path in sorted(paths)
        if os.path.isfile(path)  # Else what wants it says so, or it is a folder.
    }


def _weights(config: Any) -> Iterator[str]:
    """All files that some option `weights` names."""
    if isinstance(config, Mapping):
        for key, value in config.items():
            if key == "weights" and isinstance(value, str):
                yield value
            else:
                yield from _weights(value)
    elif isinstance(config, list | tuple):
        for value in config:
            yield from _weights(value)


def network(config: Mapping[str, Any], classes: int, views: int = 1) -> nn.Module:
    """The plain backbone that the config names, for batches of so many views an image.

    Its `norm_group` counts images, that of the network rows.
    """
    make, options = named("config.model", config["model"], models.MODELS)
    # A config that was kept as JSON has lists, with which a module is no key.
    options = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
    if "norm_group" in options:
        options["norm_group"] *= views
    return call(
        "config.model", make, classes, dtype=mesh.dtype(config["precision"]), **options
    )


def with_functions(where: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Replaces what names a function that an algorithm or transform calls by it.

    These are `transfer`, a style transfer, and `mix`, a batch transform, which gets the
    `mix_group` that stands beside it.
    """
    options = dict(options)
    if isinstance(options.get("transfer"), Mapping):
        here = f"{where}.transfer"
        make, rest = named(here, options["transfer"], models.TRANSFERS)
        options["transfer"] = call(here, make, **rest)
    if isinstance(options.get("mix"), Mapping):
        here = f"{where}.mix"
        make, rest = named(here, options["mix"], augment.AUGMENTS)
        if "mix_group" in inspect.signature(make).parameters:
            rest = {"mix_group": options.get("mix_group", 32), **rest}
        options["mix"] = call(here, make, **rest)
    return options


def transforms(where: str, inputs: Iterable[Mapping[str, Any]]) -> list[Input]:
    """The batch transforms, in order."""
    made, inputs = [], list(inputs)
    for i, options in enumerate(inputs):
        here = f"{where}[{i}]"
        make, rest = named(here, with_functions(here, options), augment.AUGMENTS)
        before = sum(other["name"] == options["name"] for other in inputs[:i])
        defaults = inspect.signature(make).parameters
        group, views = (
            rest.get(name, defaults[name].default if name in defaults else 1)
            for name in ("mix_group", "views")
        )
        stream = f"{options['name']}/{before}"
        made.append(Input(stream, call(here, make, **rest), group, views))
    return made


def optimiser(
    options: Mapping[str, Any], update: base.Update, total: int, steps_per_epoch: int
) -> optax.GradientTransformation:
    """One update's optimiser with its schedule over `total` steps."""
    options = dict(options)
    options.pop("average", None)
    if not update.decay:
        options["decay"] = 0.0
    where, warmup = "config.optim.warmup", options.pop("warmup", 0) or 0
    if warmup:
        steps = jc.steps(
            warmup, steps_per_epoch=steps_per_epoch, total=total, where=where
        )
        if steps >= total:
            raise ValueError(
                f"{where}: must be shorter than the stage's {total} steps, got "
                f"{warmup!r} = {steps} steps; shorten it or train longer"
            )
        warmup = steps
    make, shape = named(
        "config.optim.schedule", options.pop("schedule"), optim.SCHEDULES
    )
    rate = options.pop("rate")
    rate = float(rate) if type(rate) is int else rate  # Of any size.
    schedule = call("config.optim.schedule", make, rate, total, warmup, **shape)
    make, rest = named("config.optim", options, optim.OPTIMISERS)
    return call("config.optim", make, optim.warmed(schedule, rate, warmup), **rest)
