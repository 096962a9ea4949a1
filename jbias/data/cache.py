"""Caches drawn sets and listings on disk, under $JBIAS_CACHE or ~/.cache/jbias."""

import contextlib
import hashlib
import os
import uuid
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from jbias.data import base
from jbias.runtime import files, messages

Arrays = dict[str, np.ndarray]
Make = Callable[..., Arrays]
# Raise it where files are read by other rules: older listings are made anew.
_RULES = 4


def load(name: str, words: str) -> Arrays | None:
    """Reads arrays that `save` wrote for the same words, or gives None.

    A damaged file (each array has a CRC-32) is worth a warning, not an error: what it
    held can be made again.
    """
    path = files.cache_path(f"{name}.npz")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {key: stored[key] for key in stored.files}
        if (found := str(arrays.pop("words"))) != words:
            raise ValueError(f"holds {found!r}")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        reason = base.one_line(error)
        line = f"{path}: damaged ({reason}); made anew"
        warnings.warn(messages.one_line(line), stacklevel=3)
        return None
    return arrays


def save(name: str, words: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays so that no reader sees half a file; warns where it cannot."""
    path = files.cache_path(f"{name}.npz")
    part = path.with_name(f"{name}.{uuid.uuid4().hex}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("xb") as file:
            np.savez(file, words=np.array(words), **arrays)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        line = f"{path}: not cached ({base.one_line(error)}); set JBIAS_CACHE"
        warnings.warn(messages.one_line(line), stacklevel=3)


def remember(kind: str, words: str, make: Make, *args, **options) -> Arrays:
    """What `make` gives of its arguments, made where it was not under the same words."""
    name = f"{kind}-{hashlib.sha256(words.encode()).hexdigest()[:16]}"
    if (found := load(name, words)) is None:
        found = make(*args, **options)
        save(name, words, found)
    return found


def for_files(kind: str, paths: Sequence[str], make: Make, *args) -> Arrays:
    """What `make` finds out about files, kept until one of them changes."""
    stats = [(os.path.abspath(path), os.stat(path)) for path in paths]
    facts = [(path, stat.st_size, stat.st_mtime_ns) for path, stat in stats]
    facts.append(("rules", _RULES))
    return remember(kind, hashlib.sha256(repr(facts).encode()).hexdigest(), make, *args)
