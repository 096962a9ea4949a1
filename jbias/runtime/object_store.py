"""Google Cloud Storage: complete objects, conditional replacement, local copies, logs.

Through gcsfs (the extra `gcs`), which also serves epath for `gs://`, and orbax where it
does not leave a path to tensorstore.

`fetch` copies what lies there for readers of local files, beside the other caches
(JBIAS_CACHE): one file an object, with its name and time. Fetched again, what has changed
is copied, and what is gone there goes here.

A `Log` grows, which objects cannot: it is rewritten every few seconds. Two processes may
write to one log, the one that trains and one that evaluates elsewhere, so each replaces
only the version that it knows, and otherwise reads first what the other has added.
"""

import contextlib
import datetime
import errno
import fnmatch
import functools
import glob
import itertools
import logging
import os
import pathlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent import futures
from typing import Any, NamedTuple

import aiohttp
import fsspec
import google.auth
from etils import epath
from fsspec import asyn
from gcsfs import core, retry
from google.auth import exceptions

from jbias.runtime import switches

MARK = "commit_success.txt"  # What orbax writes last into a folder that is whole.
_PAUSE = 1.0  # Seconds: the store takes no more than one write a second of an object.


class FileSystem(core.GCSFileSystem):
    """gcsfs, but each look asks the store, and all that fails is an OSError.

    Of what it saw before, another process may have made something else.
    """

    def __init__(self, **options: Any):
        super().__init__(**{**options, "use_listings_cache": False})
        self._written: dict[str, float] = {}
        self.hurried = False  # Whether what fails is not tried again.

    async def _request(self, *args: Any, **options: Any) -> Any:
        ask = core.GCSFileSystem._request
        ask = ask.__wrapped__ if self.hurried else ask
        return await ask(self, *args, **options)

    async def _call(self, *args: Any, **options: Any) -> Any:
        with translate_errors():
            return await super()._call(*args, **options)

    call = asyn.sync_wrapper(_call)

    async def _mkdir(self, path: str, **options: Any) -> None:
        """Folders are parts of names; gcsfs would make the bucket."""

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Likewise."""

    mkdir, makedirs = asyn.sync_wrapper(_mkdir), asyn.sync_wrapper(_makedirs)

    def pause(self, path: str) -> None:
        """Waits until an object may be written again."""
        since = time.monotonic() - self._written.get(path, -_PAUSE)
        time.sleep(max(0.0, _PAUSE - since))
        self._written[path] = time.monotonic()


class Snapshot(NamedTuple):
    """An object as it was once."""

    content: bytes
    generation: int  # Changes whenever it is written; 0: there is none.
    updated: float  # When that was by the store's clock, in seconds since 1970.


class Unavailable(OSError):
    """The store cannot be reached, or does not do what it is asked to."""

    remedy = (
        "what was saved before is whole: see to the network, the login and its rights, "
        "and run the same command again"
    )

    def __str__(self) -> str:
        return f"store: {self.strerror}; {self.remedy}"


# What gcsfs and its libraries raise of networks and rights.
_FAILURES = (OSError, retry.HttpError, retry.ChecksumError, aiohttp.ClientError)
_FAILURES += (exceptions.GoogleAuthError,)


@contextlib.contextmanager
def translate_errors() -> Iterator[None]:
    """Gives what gcsfs and its libraries raise of networks and rights as OSErrors."""
    try:
        yield
    except (FileNotFoundError, FileExistsError, Unavailable):
        raise
    except _FAILURES as error:
        line = " ".join(str(error).split())[:300] or type(error).__name__
        raise Unavailable(errno.EIO, line) from error


@functools.cache
def filesystem() -> FileSystem:
    """The store, as epath and orbax reach it from now on."""
    if not switches.is_on("JBIAS_TRACEBACK"):
        # What is tried again without success is told once, by who asked for it.
        logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
    for name in ("gs", "gcs"):
        fsspec.register_implementation(name, FileSystem, clobber=True)
    return fsspec.filesystem("gcs", finalize_on_close=True)  # As epath asks for it.


def check(path: str, where: str) -> None:
    """ValueError where a path cannot be one of a store, or nobody is logged in."""
    bucket, key = _names(path)
    if not bucket or not key:
        raise ValueError(f"{where}: must be gs://BUCKET/FOLDER, got {path}")
    if not os.environ.get("STORAGE_EMULATOR_HOST"):
        try:
            google.auth.default()
        except exceptions.DefaultCredentialsError as error:
            raise ValueError(
                f"{where}: {path} needs a login to Google Cloud, found none; run "
                "`gcloud auth application-default login`, or let "
                "GOOGLE_APPLICATION_CREDENTIALS name a key file"
            ) from error
    filesystem().hurried = False


def write(path: epath.PathLike, content: bytes) -> None:
    """Writes an object."""
    path = os.fspath(path)
    filesystem().pause(path)
    filesystem().pipe_file(path, content)


def read(path: epath.PathLike) -> Snapshot:
    """An object, and which one; of generation 0 and empty where there is none."""
    for _ in range(5):
        known = metadata(path)
        if known is None:
            return Snapshot(b"", 0, 0.0)
        try:
            of = dict(alt="media", generation=known["generation"])
            _, content = filesystem().call("GET", "b/{}/o/{}", *_names(path), **of)
        except FileNotFoundError:
            continue  # It was written meanwhile.
        updated = datetime.datetime.fromisoformat(known["updated"]).timestamp()
        return Snapshot(content, int(known["generation"]), updated)
    raise OSError(errno.EBUSY, f"{os.fspath(path)} changes all the time")


def metadata(path: epath.PathLike) -> dict[str, Any] | None:
    """What the store tells of an object; None where there is none."""
    try:
        return filesystem().call("GET", "b/{}/o/{}", *_names(path), json_out=True)
    except FileNotFoundError:
        return None


def replace(path: epath.PathLike, content: bytes, generation: int) -> int:
    """Writes an object where it still is of that generation; returns its new one.

    FileExistsError where it is of another: also where an answer was lost and the request
    sent again, so who cares must look.
    """
    bucket, key = _names(path)
    filesystem().pause(os.fspath(path))
    to = filesystem().base.replace("/storage/", "/upload/storage/", 1) + "b/{}/o"
    how = dict(uploadType="media", name=key, ifGenerationMatch=str(generation))
    known = filesystem().call("POST", to, bucket, data=content, json_out=True, **how)
    return int(known["generation"])


def delete(path: epath.PathLike, generation: int) -> None:
    """Deletes an object of that generation; FileExistsError as for `replace`."""
    how = dict(ifGenerationMatch=str(generation))
    filesystem().call("DELETE", "b/{}/o/{}", *_names(path), **how)


def move(path: epath.PathLike, target: epath.PathLike) -> None:
    """Moves a folder so that at any time one of the two is whole.

    All is copied before anything goes; what marks a whole one comes last and goes first.
    """
    source, target = ("/".join(_names(one)) for one in (path, target))
    names = filesystem().find(source)
    names.sort(key=lambda name: (name.endswith(f"/{MARK}"), -name.count("/")))
    for name in names:
        filesystem().cp_file(name, target + name[len(source) :])
    for name in reversed(names):
        filesystem().rm_file(name)


def _names(path: epath.PathLike) -> tuple[str, str]:
    """The bucket, and what the object is called in it."""
    bucket, _, key = os.fspath(path).removeprefix("gs://").partition("/")
    return bucket, key


_ASIDE = ("damaged", "replaced")


def fetch(pattern: str, where: str, home: pathlib.Path, *, checkpoints: bool) -> str:
    """Copies what a path or glob of gs:// means to `home`; returns that of the copies.

    ValueError where nothing is there. `checkpoints`: those that are whole, too.
    """
    parts = pattern.removeprefix("gs://").strip("/").split("/")
    fixed = [*itertools.takewhile(lambda part: not glob.has_magic(part), parts)]
    try:
        found = filesystem().find("/".join(fixed), detail=True)
    except FileNotFoundError:
        found = {}
    asked = {name for name in found if _is_wanted(name, parts, checkpoints)}
    wanted = {name for name in asked if _is_complete(name, found)}
    if not wanted:
        raise ValueError(f"{where}: nothing is at {pattern}; check it")
    with futures.ThreadPoolExecutor(16) as threads:
        copied = threads.map(lambda name: _copied(home, found[name]), wanted)
        there = {name for name, got in zip(wanted, copied, strict=True) if got}
    for path in sorted(home.joinpath(*fixed).rglob("*"), reverse=True):
        name = path.relative_to(home).as_posix()
        if path.is_dir():
            with contextlib.suppress(OSError):
                path.rmdir()  # Unless it holds something.
        elif name not in there and _is_wanted(name, parts, checkpoints):
            path.unlink(missing_ok=True)
    return str(home.joinpath(*parts))


def _is_wanted(name: str, parts: Sequence[str], checkpoints: bool) -> bool:
    """Whether a glob means an object, or a folder that it is in."""
    own = name.split("/")
    if len(own) < len(parts) or not all(map(fnmatch.fnmatchcase, own, parts)):
        return False
    aside = _ASIDE if checkpoints else ("checkpoints", *_ASIDE)
    return not set(own[len(parts) :]) & set(aside)


def _is_complete(name: str, found: Mapping[str, Any]) -> bool:
    """Whether an object is not one of a checkpoint that is being saved, or never was."""
    head, middle, tail = name.partition("/checkpoints/")
    step = tail.partition("/")[0]
    return not (middle and step.isdecimal()) or f"{head}{middle}{step}/{MARK}" in found


def _copied(home: pathlib.Path, known: Mapping[str, Any]) -> bool:
    """Copies an object, unless it is here; False where it has gone meanwhile."""
    parts = known["name"].split("/")
    if {"", ".", ".."} & set(parts):
        name = known["name"]
        raise ValueError(f"gs://{name}: is no name of a file; rename the object")
    path, at = home.joinpath(*parts), known["mtime"].timestamp()
    with contextlib.suppress(OSError):
        held = path.stat()
        if held.st_size == known["size"] and abs(held.st_mtime - at) < 1e-3:
            return True
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.parent / f".{path.name}.{os.getpid()}.part"
    try:
        with translate_errors():
            filesystem().get_file(known["name"], str(part))
        os.utime(part, (at, at))
        part.replace(path)
    except FileNotFoundError:
        return False
    finally:
        part.unlink(missing_ok=True)
    return True


LOG_SECONDS = 5.0  # Between two writes of a log; what it lacks after a kill.
_RATE = 20_000  # Bytes a second that may go into writing a long one again.


class Log:
    """One log: lines go in, and are written in the background."""

    def __init__(self, path: str):
        self._path, self._pending = path, b""
        self._known = Snapshot(b"", 0, 0.0)
        self._lines, self._writing = threading.Lock(), threading.Lock()
        self._timer: threading.Timer | None = None

    def add(self, line: str) -> None:
        """Takes a line."""
        with self._lines:
            self._pending += line.encode() + b"\n"
            self._soon()

    def _soon(self) -> None:
        if self._timer is None:
            seconds = max(LOG_SECONDS, len(self._known.content) / _RATE)
            self._timer = threading.Timer(seconds, self._try)
            self._timer.daemon = True
            self._timer.start()

    def drop(self) -> None:
        """Forgets what was not written yet."""
        with self._lines:
            self._pending = b""

    def flush(self) -> None:
        """Writes what is there now; OSError where it cannot be, and stays to be written."""
        with self._writing:
            with self._lines:
                taken, self._pending = self._pending, b""
                self._timer = None
            if not taken:
                return
            try:
                self._known = self._written(taken)
            except BaseException:
                with self._lines:
                    self._pending = taken + self._pending
                raise

    def _try(self) -> None:
        """Writes; what cannot be written now is tried again."""
        try:
            self.flush()
        except OSError:
            with self._lines:
                self._soon()

    def _written(self, added: bytes) -> Snapshot:
        known = self._known
        for _ in range(10):
            whole = known.content + added
            try:
                generation = replace(self._path, whole, known.generation)
                return Snapshot(whole, generation, 0.0)
            except FileExistsError:
                known = read(self._path)
            if known.content.startswith(whole):
                return known  # Only the answer had been lost.
        raise OSError(f"{self._path} changes all the time")


@functools.cache
def log_of(path: str) -> Log:
    """The log of a path: one in a process."""
    return Log(path)
