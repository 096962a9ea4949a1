"""Cache of drawn data sets and listings on disk, under $JBIAS_CACHE or ~/.cache/jbias."""

import contextlib
import hashlib
import os
import uuid
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jbias.data import base
from jbias.runtime import files, messages

Arrays = dict[str, np.ndarray]
Make = Callable[..., Arrays]
# Version of the rules by which files are listed: a change makes older listings invalid.
_RULES = 4


def load(name: str, words: str) -> Arrays | None:
    """Return {key: array} that `save` wrote with this name and words; None if there is no file.

    words: exact description of the contents. For a damaged file (each array has a CRC-32) or a
    file with a different description, warn and return None: the caller then makes the arrays
    again.
    """
    path = files.cache_path(f"{name}.npz")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {key: stored[key] for key in stored.files}
        stored_words = str(arrays.pop("words"))
        if stored_words != words:
            raise ValueError(f"holds {stored_words!r}")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        reason = base.one_line(error)
        line = f"{path}: damaged ({reason}); made anew"
        warnings.warn(messages.one_line(line), stacklevel=3)
        return None
    return arrays


def save(name: str, words: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays to the file <name>.npz of the cache, atomically; warn if that fails.

    words: exact description of the contents. arrays: {key: array}.
    """
    path = files.cache_path(f"{name}.npz")
    partial_path = path.with_name(f"{name}.{uuid.uuid4().hex}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial_path.open("xb") as file:
            np.savez(file, words=np.array(words), **arrays)
            file.flush()
            os.fsync(file.fileno())
        partial_path.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial_path.unlink()
        line = f"{path}: not cached ({base.one_line(error)}); set JBIAS_CACHE"
        warnings.warn(messages.one_line(line), stacklevel=3)


def remember(kind: str, words: str, make: Make, *args: Any, **options: Any) -> Arrays:
    """Return the arrays make(*args, **options), from the cache if stored with the same `words`.

    kind: start of the cache file's name. words: exact description of the result, with all
    arguments that it depends on.
    """
    name = f"{kind}-{hashlib.sha256(words.encode()).hexdigest()[:16]}"
    arrays = load(name, words)
    if arrays is None:
        arrays = make(*args, **options)
        save(name, words, arrays)
    return arrays


def for_files(kind: str, paths: Sequence[str], make: Make, *args: Any) -> Arrays:
    """Return the arrays make(*args), from the cache until a file at `paths` changes.

    A file has changed if its size or its time of modification differs. kind: start of the cache
    file's name. `args` must be determined by `kind` and `paths`: the cache does not compare
    them. OSError if a file does not exist.
    """
    stats = [(os.path.abspath(path), os.stat(path)) for path in paths]
    versions = [(path, stat.st_size, stat.st_mtime_ns) for path, stat in stats]
    versions.append(("rules", _RULES))
    words = hashlib.sha256(repr(versions).encode()).hexdigest()
    return remember(kind, words, make, *args)
