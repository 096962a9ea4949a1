"""What a name in a config or a suite stands for: one of ours, or one of the user's own.

A user's own is a function in a file, `path/to/file.py:function`, or what an installed
package offers under that name as an entry point of a group: jbias.algorithms,
jbias.models, jbias.data, jbias.measures or jbias.transforms. Packages are asked only for
names that are not known. What goes wrong in such a function, or in one that it returns,
is told with its own file and line (messages.UserCodeError).
"""

import ast
import contextlib
import functools
import hashlib
import inspect
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from jbias import config as jc
from jbias import signatures
from jbias.runtime import messages


class Kind(NamedTuple):
    """What names in one place stand for, and what a function of the user's must return.

    group: of entry points, without "jbias.". must, fits: what is returned, in words, and
    how one tells. passing: errors that it may raise as they are. fields: functions that
    what is returned holds, whose errors are told likewise.
    """

    group: str
    known: Mapping[str, Any]
    must: str
    fits: Callable[[Any], bool]
    passing: tuple[type[Exception], ...] = ()
    fields: tuple[str, ...] = ()


ANYTHING = Kind("", {}, "anything", lambda made: True)


def find(where: str, name: str, kind: Kind, what: str = "") -> Any:
    """What a name stands for; ValueError, which begins with `where`, if for nothing.

    A user's own function raises UserCodeError where it returns what it must not. what:
    the name would be of, for messages.
    """
    if name in kind.known:
        return kind.known[name]
    if ":" in name:
        made = _load(where, name)
        return guard(file_of(name, made), made, kind)
    _check_not_file(where, name)
    offer, *duplicates = _offers(where, name, kind, what)
    if duplicates:
        jc.refuse(where, "be offered by one package", name, "uninstall the others")
    with messages.user_code(offer.value, 1):
        made = offer.load()
    return guard(file_of(name, made), made, kind)


def check_name(where: str, name: str, kind: Kind, what: str = "") -> None:
    """Raise ValueError where `find` would refuse the name; run no code of a user.

    Of a file, check only that it exists.
    """
    if name in kind.known:
        return
    if ":" in name:
        _check_file(where, name)
    else:
        _check_not_file(where, name)
        _offers(where, name, kind, what)


def _offers(
    where: str, name: str, kind: Kind, what: str
) -> list["metadata.EntryPoint"]:
    """Return what packages offer under a name; ValueError where none does."""
    offers = offered(group=f"jbias.{kind.group}")
    known = {*kind.known, *(offer.name for offer in offers)}
    jc.check_known(where, name, known, what)
    return [offer for offer in offers if offer.name == name]


def file_of(name: str, function: Any) -> str:
    """The file of a function that a name stands for; "" where Python does not know."""
    if ":" in name:
        return os.path.abspath(name.rpartition(":")[0])
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code.co_filename if code else ""


def _load(where: str, name: str) -> Any:
    """A function of a file, which runs once for as long as it stays as it is."""
    path, _, function = name.rpartition(":")
    _check_file(where, name)
    path = os.path.abspath(path)
    with messages.user_code(path, 1, lambda: f"{where} names that file"):
        known = _run(path, pathlib.Path(path).read_bytes())
    if not callable(made := known.get(function)):
        hint = jc.suggest(function, (key for key in known if callable(known[key])))
        text = f"{where}: {path} has no function {function!r}; {hint}"
        raise ValueError(text)  # noqa: TRY004
    return made


def _check_file(where: str, name: str) -> None:
    """Raise ValueError unless a name such as mine.py:make has a file that is there."""
    path, _, function = name.rpartition(":")
    if os.path.isfile(path) and jc.FUNCTION_IN_FILE.fullmatch(name):
        return
    if not function:
        _check_not_file(where, path)
    if not path.endswith(".py") and os.path.isfile(f"{path}.py"):
        raise ValueError(f"{where}: no file {path!r}; write {path}.py:{function}")
    raise ValueError(f"{where}: no file {path!r}; give path/to/file.py:make")


def _check_not_file(where: str, name: str) -> None:
    """Raise ValueError for a file without a function, such as mine.py; say what to write.

    The functions of a file that is there are named from its text: no code of a user runs.
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
    stem = f"{pathlib.Path(path).stem}_{hashlib.sha256(content).hexdigest()[:8]}"
    return vars(jc.import_file(stem, path))


def guard(path: str, function: Any, kind: Kind | None = None) -> Any:
    """The function with its errors told as those of that file.

    So are those of a function that it returns. Without a kind one that is not of that
    file stays as it is.
    """
    line = line_of(path, function) or int(kind is not None)
    if not line:
        return function
    *_, must, fits, passing, fields = kind or ANYTHING

    @functools.wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        with messages.user_code(path, line, passing=passing):
            made = function(*args, **options)
            if not fits(made):
                name = getattr(function, "__name__", "it")
                raise TypeError(f"{name} must return {must}, got {made!s:.80}")
        if fields:
            return made._replace(**{k: guard(path, getattr(made, k)) for k in fields})
        return guard(path, made)

    return called


def line_of(path: str, *functions: Any) -> int:
    """Where the first that is of that file begins; 0 if none is.

    Of functions, of objects that are called, and of what they wrap.
    """
    called = (of for one in functions for of in (one, type(one).__call__))
    codes = (getattr(one, "__code__", None) for one in called)
    found = (one.co_firstlineno for one in codes if one and one.co_filename == path)
    wraps = ("func", "__wrapped__")
    inner = [getattr(one, k) for one in functions for k in wraps if hasattr(one, k)]
    return next(found, 0) or (line_of(path, *inner) if inner else 0)


def names_file(text: str) -> bool:
    """Return whether a text has the name of a function in a file, such as mine.py:make."""
    return jc.FUNCTION_IN_FILE.search(text) is not None


def files(tree: Any) -> list[str]:
    """All names of functions in files, wherever a config or suite has them."""
    if isinstance(tree, Mapping):
        tree = [*tree.values()]
    if isinstance(tree, list | tuple):
        return list(dict.fromkeys(name for one in tree for name in files(one)))
    return (
        [tree] if isinstance(tree, str) and jc.FUNCTION_IN_FILE.fullmatch(tree) else []
    )


@contextlib.contextmanager
def naming_files(*trees: Any) -> Iterator[None]:
    """What goes wrong inside, in files that these name, is told with their line."""
    with contextlib.ExitStack() as stack:
        for name in files(trees):
            path = os.path.abspath(name.rpartition(":")[0])
            stack.enter_context(messages.user_code(path))
        yield


def digests(tree: Any, names: Iterable[str] = ()) -> dict[str, str]:
    """What tells the user's own code apart, which no commit of ours covers.

    Of each file that the tree names a digest; of each of `names` that a package offers
    the package's version.
    """
    paths = {name.rpartition(":")[0] for name in files(tree)}
    found = {path: file_digest(path) for path in sorted(paths) if os.path.isfile(path)}
    for name in names:
        for one in offered(name=name):
            found[name] = f"{one.dist.name} {one.dist.version}" if one.dist else ""
    return found


def import_digests(tree: Any) -> dict[str, str]:
    """Return a digest of each file that the user's own files import, by its path.

    Imported files are those beside the importing file or in the working directory, and what
    they import in turn; of a package, all files. Imports are read from the text, and no code
    runs: those by a computed name are missing.
    """
    named = {os.path.abspath(name.rpartition(":")[0]) for name in files(tree)}
    reached, unread = set(named), [pathlib.Path(path) for path in sorted(named)]
    while unread:
        for imported in _imported_files(unread.pop()):
            if str(imported) not in reached:
                reached.add(str(imported))
                unread.append(imported)
    return {os.path.relpath(x): file_digest(x) for x in sorted(reached - named)}


def _imported_files(path: pathlib.Path) -> list[pathlib.Path]:
    """Return the user's files that a file of Python imports."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return []  # Whoever runs it says so.
    modules = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add(node.module or "")
            modules |= {f"{node.module or ''}.{x.name}".strip(".") for x in node.names}
    imported = []
    for folder in dict.fromkeys((path.parent, pathlib.Path.cwd())):
        for module in sorted(modules - {""}):
            file = folder.joinpath(*module.split(".")).with_suffix(".py")
            package = folder / module.partition(".")[0]
            if file.is_file():
                imported.append(file)
            if (package / "__init__.py").is_file():
                imported += sorted(package.rglob("*.py"))
    # Editors leave links to nowhere in a package, such as .#inner.py.
    return [x.absolute() for x in imported if x.is_file() and not _is_of_jbias(x)]


def _is_of_jbias(path: pathlib.Path) -> bool:
    """Return whether a file is of this package, as where its checkout is worked in."""
    return pathlib.Path(__file__).parent in path.absolute().parents


def file_digest(path: str | os.PathLike) -> str:
    """Sixteen hexadecimal digits of what a file holds."""
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()[:16]


def offered(**asked: str) -> list["metadata.EntryPoint"]:
    """What installed packages offer, of that group or name."""
    from importlib import metadata  # Slow, and asked for by unknown names alone.

    found = metadata.entry_points(**asked)
    return [one for one in found if one.group.startswith("jbias.")]
