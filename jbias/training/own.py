"""Algorithms in files of one's own: what goes wrong there names their own lines."""

import functools
import os
from collections.abc import Callable, Mapping
from typing import Any

import jax
from flax import linen as nn

from jbias import config as jc
from jbias import config_files
from jbias.algos import base
from jbias.runtime import messages

_WHERE = "config.algo.name"
_TAKEN = ("params", "stats", "batch", "key", "static")


def place(named: str) -> tuple[str, str]:
    """The whole path and the function of `path/to/file.py:function`."""
    path, _, name = named.rpartition(":")
    if not os.path.isfile(path):
        raise ValueError(f"{_WHERE}: no file {path!r}; give path/to/file.py:make")
    return os.path.abspath(path), name


def algorithm(named: str) -> Callable[..., base.Algo]:
    """The function at `path/to/file.py:function`, whose errors are faults.Own.

    So are those of all that the algorithm which it makes consists of.
    """
    path, name = place(named)
    with messages.user_code(path):
        known = vars(config_files.module(_WHERE, path))
    if not callable(made := known.get(name)):
        hint = jc.nearest(name, (key for key in known if callable(known[key])))
        raise ValueError(  # noqa: TRY004
            f"{_WHERE}: {path} has no function {name!r}; {hint}"
        )

    @functools.wraps(made)
    def make(net: Any, **options: Any) -> base.Algo:
        with messages.user_code(path, _line(path, made)):
            algo = made(net, **options)
            if not isinstance(algo, base.Algo):
                raise TypeError(f"{name} must return a base.Algo, got {str(algo)[:80]}")
            if not isinstance(algo.net, nn.Module):
                what = f"a flax module, got {str(algo.net)[:80]}"
                raise TypeError(f"net of base.Algo must be {what}")
        guard = functools.partial(_guarded, path)
        trains = {one.trains: guard(one.trains) for one in algo.updates}
        updates = (one._replace(trains=trains[one.trains]) for one in algo.updates)
        return algo._replace(
            losses=_losses(path, algo),
            updates=tuple(updates),
            parts={key: guard(init) for key, init in algo.parts.items()},
            **{k: guard(getattr(algo, k)) for k in ("static", "decide", "settle")},
        )

    return make


def _line(path: str, *functions: Any) -> int:
    """Where the first that is of that file begins; 0 if none is.

    Of functions, of objects that are called, and of what they wrap.
    """
    called = (of for one in functions for of in (one, type(one).__call__))
    codes = (getattr(one, "__code__", None) for one in called)
    found = (one.co_firstlineno for one in codes if one and one.co_filename == path)
    wraps = ("func", "__wrapped__")
    inner = [getattr(one, k) for one in functions for k in wraps if hasattr(one, k)]
    return next(found, 0) or (_line(path, *inner) if inner else 0)


def _guarded(path: str, function: Any) -> Any:
    """The function with its errors told as those of that file, if it is of it."""
    if not (line := _line(path, function)):
        return function  # As it stands by default.

    @functools.wraps(function)
    def called(*args: Any) -> Any:
        with messages.user_code(path, line):
            return function(*args)

    return called


def _losses(path: str, algo: base.Algo) -> Callable:
    """Likewise; they may be ours, around a tap of the user's, which counts as theirs."""
    tap = getattr(algo.net, "tap", None)
    names = {name for one in algo.updates for name in (one.loss, one.plus) if name}

    @functools.wraps(algo.losses)
    def losses(*args: Any) -> tuple[dict, base.Aux]:
        def given() -> str:
            words = (f"{key} {_told(value)}" for key, value in zip(_TAKEN, args))
            taps = "; a tap is called with (x, site, key)" if tap else ""
            return f"losses are called with {', '.join(words)}{taps}"

        with messages.user_code(path, _line(path, algo.losses, tap), given):
            told = algo.losses(*args)
            if not (
                type(told) is tuple and len(told) == 2 and isinstance(told[0], dict)
            ):
                raise TypeError(
                    "losses must return ({name: loss}, base.Aux(stats, metrics)), got "
                    f"{str(told)[:80]}"
                )
            found, aux = told
            shapes = {key: jax.numpy.shape(value) for key, value in found.items()}
            if names - shapes.keys() or any(shapes.values()):
                raise TypeError(
                    f"losses must be scalars under {', '.join(sorted(names))}, which "
                    f"updates follow, got {shapes}"
                )
            # Also of Python's numbers, which have no type, and of whole ones.
            found = {key: jax.numpy.multiply(one, 1.0) for key, one in found.items()}
            if not isinstance(aux, base.Aux):
                raise TypeError(
                    f"losses must come with a base.Aux, got {str(aux)[:80]}"
                )
            large = {k: jax.numpy.shape(value) for k, value in aux.metrics.items()}
            if any(large.values()):
                raise TypeError(f"metrics of base.Aux must be scalars, got {large}")
            want, got = _shapes(args[1]), _shapes(aux.stats)
            if want != got:
                at = max(k for k in want | got if want.get(k) != got.get(k))
                raise TypeError(
                    "base.Aux must have the whole new stats, {**stats, 'net': seen}, in "
                    f"their shapes: expected stats{at} of {want.get(at)}, got {got.get(at)}"
                )
            return found, aux

    return losses


def _shapes(tree: Any) -> dict[str, Any]:
    """The shape of each leaf by its place, and the structure of all under ""."""
    leaves = jax.tree.leaves_with_path(tree)
    shapes = {jax.tree_util.keystr(at): jax.numpy.shape(one) for at, one in leaves}
    return {**shapes, "": jax.tree.structure(tree)}


def _told(value: Any, depth: int = 1) -> str:
    """Keys, and dtype and shape of what lies under them."""
    if isinstance(value, Mapping):
        inner = (f"{key!r}: {_told(one, depth - 1)}" for key, one in value.items())
        return f"{{{', '.join(inner)}}}" if depth else "{...}"
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype}[{','.join(map(str, value.shape))}]"
    return repr(value)[:80]
