"""Functions that read the options of functions in a Python file, without running the file.

The options are needed before the file may run: the compiler's flags must be set, and the
other processes of the run must be joined, before a user's code runs.
"""

import ast
import contextlib
import dataclasses
import pathlib
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

_PLAIN: Mapping[str, type] = {
    "bool": bool,
    "float": float,
    "int": int,
    "str": str,
    "list": list,
    "tuple": tuple,
    "dict": dict,
}


@dataclasses.dataclass(frozen=True)
class Option:
    """A parameter of a function: its type, or NoneType if unknown, and its default, or None."""

    kind: type
    default: Any = None


@dataclasses.dataclass(frozen=True)
class Signature:
    """The options of a function.

    is_complete: False if the function may take further options, by **kwargs, a decorator or
    a base class.
    """

    options: Mapping[str, Option]
    is_complete: bool


UNKNOWN_OPTION = Option(kind=type(None))
_UNKNOWN = Signature(options={}, is_complete=False)


def functions(path: str) -> list[str]:
    """Return the names of public functions and classes at the top level of a Python file.

    Names that start with _ are left out. [] if the file cannot be read or is not valid Python.
    """
    return [node.name for node in _definitions(path) if node.name[0] != "_"]


def read(path: str, function: str, *, positional: int = 1) -> Signature:
    """Return the signature of a function or class at the top level of a file.

    positional: number of first arguments that are no options, such as the network of an
    algorithm. The options of a class are its annotated fields; `is_complete` is then False, as
    a base class may have further ones. A function that the file does not define, such as an
    imported one, has no known options, and `is_complete` is False.
    """
    node = {node.name: node for node in _definitions(path)}.get(function)
    if node is None:
        return _UNKNOWN
    if isinstance(node, ast.ClassDef):  # A Flax module: its fields are its options.
        fields = [x for x in node.body if isinstance(x, ast.AnnAssign)]
        named = {
            field.target.id: _option(field.annotation, field.value)
            for field in fields
            if isinstance(field.target, ast.Name)
        }
        options = dict([*named.items()][positional:])
        return Signature(options=options, is_complete=False)
    arguments = node.args
    ordered = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(ordered) - len(arguments.defaults)) + arguments.defaults
    pairs = [*zip(ordered, defaults, strict=True)][positional:]
    pairs = [pair for pair in pairs if pair[0] not in arguments.posonlyargs]
    pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return Signature(
        options={
            argument.arg: _option(argument.annotation, default)
            for argument, default in pairs
        },
        is_complete=not arguments.kwarg and not node.decorator_list,
    )


def _definitions(path: str) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    """Yield the functions and classes at the top level of a file.

    Yield nothing if the file cannot be read or is not valid Python.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(pathlib.Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node


def _option(annotation: ast.expr | None, default: ast.expr | None) -> Option:
    """Return the Option of a parameter.

    Its type is read from the annotation, or else from the default. The default is None unless
    it is a literal of a type in _PLAIN.
    """
    value = None
    if default is not None:
        with contextlib.suppress(ValueError, TypeError, SyntaxError):
            value = ast.literal_eval(default)
    if type(value) not in _PLAIN.values():
        value = None
    kind = _PLAIN.get(_name_of_type(annotation), type(value))
    return Option(kind=kind, default=value)


def _name_of_type(annotation: ast.expr | None) -> str:
    """Return the name X of an annotation X, "X", X[...] or X | None; else ""."""
    match annotation:
        case ast.Name(id=name):
            return name
        case ast.Constant(value=str(text)):
            with contextlib.suppress(SyntaxError, ValueError):
                return _name_of_type(ast.parse(text, mode="eval").body)
        case ast.Subscript(value=outer):
            return _name_of_type(outer)
        case ast.BinOp(left=left, right=ast.Constant(value=None)):
            return _name_of_type(left)
    return ""
