"""Functions named in a config or suite, from jbias, a user's file or an installed package.

A user's own function is named `path/to/file.py:function`, or is provided by an installed
package as an entry point of one of the groups jbias.algorithms, jbias.models, jbias.data,
jbias.measures and jbias.transforms. Packages are searched only for unknown names. Errors in
such a function, or in a function that it returns, name its file and line
(messages.UserCodeError).
"""

import ast
import contextlib
import functools
import hashlib
import inspect
import os
import pathlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from jbias import config as jc
from jbias import errors, signatures
from jbias.runtime import messages


class Registry(NamedTuple):
    """The functions that may be named in one entry of a config or suite."""

    group: str  # Of entry points, without "jbias.".
    known: Mapping[str, Any]  # The functions of jbias, by name.
    must: str  # For messages: the required result of a user's function, in words.
    fits: Callable[[Any], bool]  # Returns True for a valid result.
    allowed_errors: tuple[type[Exception], ...] = ()  # Errors raised unchanged.
    # Fields of the result, a NamedTuple, and of NamedTuples in it, that hold functions, which
    # `guard` wraps, too.
    guarded_fields: tuple[str, ...] = ()


# Public modules and names of earlier versions, with what a user's file imports instead.
_MOVED = {
    "jbias.augment.sampling": "jbias.augment.batch_permutations for permute, orders, "
    "orders_across, split_groups, reorder and inverse; jbias.augment.random_numbers for keys, "
    "draw_each, uniforms and integers",
    "jbias.data.labels": "jbias.data.class_maps",
    "jbias.data.base.Spec": "jbias.data.base.DataSet",
    "jbias.data.base.check_int": "jbias.errors.check_whole",
    "jbias.data.base.check_whole": "jbias.errors.check_whole",
    "jbias.data.base.did_you_mean": "jbias.errors.suggest",
    **{
        f"jbias.config.{name}": f"jbias.errors.{name}"
        for name in (
            "refuse",
            "suggest",
            "check_known",
            "check_all_known",
            "check_type",
            "check_annotations",
            "check_folder_name",
            "type_name",
        )
    },
    "jbias.evals.decisions": "jbias.measures.decisions; its functions that read and write "
    "files are in jbias.evals.decision_files",
    "jbias.evals.probe": "jbias.stimuli.shown, and return shown.Stimuli(conditions, show, "
    "numbers) instead of probe.Probe; for unchanged images jbias.measures.counting, and "
    "return counting.Counting(numbers); check, check_choices and NotFiniteError are in "
    "jbias.errors",
    "jbias.evals.probe_registry": "jbias.evals.registry",
}

ANYTHING = Registry(group="", known={}, must="anything", fits=lambda result: True)


def find(where: str, name: str, registry: Registry, noun: str = "") -> Any:
    """Return the function with a name, from jbias, a user's file or an installed package.

    where: start of error messages, such as "config.algo.name". noun: kind of the name for
    messages, such as "data". A user's function is wrapped: it raises UserCodeError for an
    error in its code, and for a result that does not fit the registry. ValueError if there is
    no such function, or if several packages provide the name.
    """
    if name in registry.known:
        return registry.known[name]
    if ":" in name:
        function = _load(where, name)
        return guard(file_of(name, function), function, registry)
    _check_not_file(where, name)
    entry_point, *duplicates = _entry_points(where, name, registry, noun)
    if duplicates:
        errors.refuse(where, "be provided by one package", name, "uninstall the others")
    with messages.user_code(entry_point.value, 1), _explain_moves():
        function = entry_point.load()
    return guard(file_of(name, function), function, registry)


def check_name(where: str, name: str, registry: Registry, noun: str = "") -> None:
    """Raise ValueError if `find` would not find the name; do not run the user's code.

    A user's file is only checked to exist. Arguments: see `find`.
    """
    if name in registry.known:
        return
    if ":" in name:
        _check_file(where, name)
    else:
        _check_not_file(where, name)
        _entry_points(where, name, registry, noun)


def _entry_points(
    where: str, name: str, registry: Registry, noun: str
) -> list["metadata.EntryPoint"]:
    """Return the entry points with a name; ValueError if no package provides the name.

    Arguments: see `find`.
    """
    entry_points = provided(group=f"jbias.{registry.group}")
    names = [entry_point.name for entry_point in entry_points]
    errors.check_known(where, name, {*registry.known, *names}, noun)
    return [entry_point for entry_point in entry_points if entry_point.name == name]


def file_of(name: str, function: Any) -> str:
    """Return the path of the file of a function; "" if the file is unknown.

    name: the function's name in a config, such as mine.py:make or a package's name.
    """
    if ":" in name:
        return os.path.abspath(name.rpartition(":")[0])
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code.co_filename if code else ""


def _load(where: str, name: str) -> Any:
    """Return a function of a Python file; run the file, once for each version of its content.

    where: start of error messages. name: such as mine.py:make. ValueError if the file has no
    such function, UserCodeError for an error in its code.
    """
    path, _, function = name.rpartition(":")
    _check_file(where, name)
    path = os.path.abspath(path)
    explain = lambda: f"{where} names that file"
    with messages.user_code(path, 1, explain), _explain_moves():
        names = _run(path, pathlib.Path(path).read_bytes())
    if not callable(names.get(function)):
        hint = errors.suggest(function, (key for key in names if callable(names[key])))
        text = f"{where}: {path} has no function {function!r}; {hint}"
        raise ValueError(text)  # noqa: TRY004
    return names[function]


@contextlib.contextmanager
def _explain_moves() -> Iterator[None]:
    """Add a note to an ImportError of the context if it is of a module or name that has moved."""
    try:
        yield
    except ImportError as error:
        for old_name, remedy in _MOVED.items():
            package, _, module = old_name.rpartition(".")
            is_from_package = error.name == package and f"'{module}'" in str(error)
            if error.name == old_name or is_from_package:
                error.add_note(f"{old_name} has moved: import {remedy}")
        raise


def _check_file(where: str, name: str) -> None:
    """Raise ValueError unless a name has the form mine.py:make, and the file exists.

    where: start of the error message.
    """
    path, _, function = name.rpartition(":")
    if os.path.isfile(path) and jc.FUNCTION_IN_FILE.fullmatch(name):
        return
    if not function:
        _check_not_file(where, path)
    if not path.endswith(".py") and os.path.isfile(f"{path}.py"):
        raise ValueError(f"{where}: no file {path!r}; write {path}.py:{function}")
    raise ValueError(f"{where}: no file {path!r}; give path/to/file.py:make")


def _check_not_file(where: str, name: str) -> None:
    """Raise ValueError if `name` ends with .py, because it names a file but no function.

    where: start of the error message, which ends with a suggestion such as mine.py:make.
    The names of functions are read from the file's text; its code is not run.
    """
    if not name.endswith(".py"):
        return
    if not os.path.isfile(name):
        raise ValueError(f"{where}: no file {name!r}; give path/to/file.py:make")
    functions = signatures.functions(name)
    function = functions[0] if len(functions) == 1 else "make"
    remedy = f"write {name}:{function}"
    if functions and function not in functions:
        remedy = f"write {name}:NAME, of {', '.join(functions)}"
    raise ValueError(f"{where}: {name!r} names a file but no function; {remedy}")


@functools.lru_cache(64)
def _run(path: str, content: bytes) -> dict[str, Any]:
    """Run a Python file and return its global variables by name; cached by the content.

    content: content of the file.
    """
    stem = f"{pathlib.Path(path).stem}_{hashlib.sha256(content).hexdigest()[:8]}"
    return vars(jc.import_file(stem, path))


def guard(path: str, function: Any, registry: Registry | None = None) -> Any:
    """Return the function, wrapped so that its errors name the user's file and line.

    If the function returns a function of this file, that function is wrapped, too.

    path: the file. registry: the registry in which the function is named; its checks are
    applied to the result. None: no checks, and a function of another file, or an object that is not
    a function, is returned unchanged.
    """
    line = line_of(path, function) or int(registry is not None)
    if not line:
        return function
    checks = registry or ANYTHING

    @functools.wraps(function)
    def guarded(*args: Any, **options: Any) -> Any:
        """Call the function and check its result; return it, with its functions guarded."""
        with messages.user_code(path, line, passing=checks.allowed_errors):
            result = function(*args, **options)
            if not checks.fits(result):
                name = getattr(function, "__name__", "it")
                raise TypeError(f"{name} must return {checks.must}, got {result!s:.80}")
        if checks.guarded_fields:
            return _guard_fields(path, result, checks.guarded_fields)
        return guard(path, result)

    return guarded


def _guard_fields(path: str, result: Any, names: Collection[str]) -> Any:
    """Return a NamedTuple with its functions guarded, also those of NamedTuples in it.

    path: the user's file. names: the fields that hold functions or NamedTuples of functions.
    """
    guarded = {}
    for name in result._fields:
        value = getattr(result, name)
        if name in names:
            is_tuple = hasattr(value, "_fields")
            guarded[name] = (
                _guard_fields(path, value, names) if is_tuple else guard(path, value)
            )
    return result._replace(**guarded)


def line_of(path: str, *functions: Any) -> int:
    """Return the line number in a file at which the first of some functions starts.

    path: the file. functions: may be callable objects, or wrap the function. 0 if none of the
    functions is in the file.
    """
    for function in functions:
        for called in (function, type(function).__call__):
            code = getattr(called, "__code__", None)
            if code and code.co_filename == path:
                return code.co_firstlineno
    wrapped = [
        getattr(function, attribute)
        for function in functions
        for attribute in ("func", "__wrapped__")
        if hasattr(function, attribute)
    ]
    return line_of(path, *wrapped) if wrapped else 0


def names_file(text: str) -> bool:
    """Return True if a text contains the name of a function in a file, such as mine.py:make."""
    return jc.FUNCTION_IN_FILE.search(text) is not None


def files(tree: Any) -> list[str]:
    """Return the distinct names of the form mine.py:make in a config or suite, in order."""
    if isinstance(tree, Mapping):
        tree = [*tree.values()]
    if isinstance(tree, list | tuple):
        names = [name for branch in tree for name in files(branch)]
        return list(dict.fromkeys(names))
    is_name = isinstance(tree, str) and jc.FUNCTION_IN_FILE.fullmatch(tree)
    return [tree] if is_name else []


@contextlib.contextmanager
def naming_files(*trees: Any) -> Iterator[None]:
    """Add file and line to errors in the context that are raised in a user's files.

    trees: configs that name these files.
    """
    with contextlib.ExitStack() as stack:
        for name in files(trees):
            path = os.path.abspath(name.rpartition(":")[0])
            stack.enter_context(messages.user_code(path))
        yield


def digests(tree: Any, names: Iterable[str] = ()) -> dict[str, str]:
    """Return digests of the files that a config names, and versions of packages, as one dict.

    tree: a config or suite. Digests (`file_digest`) are by the file's path, for files that
    exist; versions, such as "mypackage 1.2", are by the names of entry points in `names`. A
    name without an entry point is left out.
    """
    paths = {name.rpartition(":")[0] for name in files(tree)}
    versions = {
        path: file_digest(path) for path in sorted(paths) if os.path.isfile(path)
    }
    for name in names:
        for entry_point in provided(name=name):
            package = entry_point.dist
            versions[name] = f"{package.name} {package.version}" if package else ""
    return versions


def import_digests(tree: Any) -> dict[str, str]:
    """Return digests, by relative path, of the files that a user's files import.

    tree: a config or suite, which names the user's files. The imported files are files in the
    folder of the importing file or in the working directory, and their own imports; of an
    imported package all files. Imports are read from the text, without running code: imports
    by a computed name are missed.
    """
    named = {os.path.abspath(name.rpartition(":")[0]) for name in files(tree)}
    reached, unread = set(named), [pathlib.Path(path) for path in sorted(named)]
    while unread:
        for imported in _imported_files(unread.pop()):
            if str(imported) not in reached:
                reached.add(str(imported))
                unread.append(imported)
    return {
        os.path.relpath(path): file_digest(path) for path in sorted(reached - named)
    }


def _imported_files(path: pathlib.Path) -> list[pathlib.Path]:
    """Return the user's files that a Python file imports; [] if it cannot be read or parsed.

    The result has absolute paths of files in the folder of the file or in the working directory,
    and all files of an imported package there. Files of jbias are left out.
    """
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return []  # The error is reported where the file runs.
    modules = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            modules.add(module)
            modules |= {f"{module}.{alias.name}".strip(".") for alias in node.names}
    imported = []
    for folder in dict.fromkeys((path.parent, pathlib.Path.cwd())):
        for module in sorted(modules - {""}):
            file = folder.joinpath(*module.split(".")).with_suffix(".py")
            package = folder / module.partition(".")[0]
            if file.is_file():
                imported.append(file)
            if (package / "__init__.py").is_file():
                imported += sorted(package.rglob("*.py"))
    # Editors leave broken links in a package, such as .#inner.py.
    return [
        file.absolute()
        for file in imported
        if file.is_file() and not _is_of_jbias(file)
    ]


def _is_of_jbias(path: pathlib.Path) -> bool:
    """Return True for a file of this package, as when working in its checkout."""
    return pathlib.Path(__file__).parent in path.absolute().parents


def file_digest(path: str | os.PathLike) -> str:
    """Return the first 16 hexadecimal digits of a file's SHA-256."""
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()[:16]


def provided(**selection: str) -> list["metadata.EntryPoint"]:
    """Return the entry points of installed packages in jbias's groups.

    selection: `group` or `name`, to select some of them.
    """
    from importlib import metadata  # Imported here: slow, and needed for few names.

    entry_points = metadata.entry_points(**selection)
    return [entry for entry in entry_points if entry.group.startswith("jbias.")]
