"""Read and write files in Google Cloud Storage, copy them to a local cache, append to logs.

This module uses gcsfs (the extra `gcs`). epath also uses gcsfs for `gs://`, and orbax uses
gcsfs for paths that orbax does not pass to tensorstore.

`fetch` copies objects into the cache (JBIAS_CACHE) for code that reads local files: one
file per object, with its name and time. A second `fetch` copies objects that have changed,
and deletes copies of objects that were deleted.

A `Log` is one object that is rewritten every few seconds, because objects cannot grow. Two
processes may write to one log: one that trains, and one that evaluates on another machine.
So a process replaces the object only if no other process has written since this process last read
the object; otherwise the process first reads the new lines.
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

MARK = "commit_success.txt"  # The file that orbax writes last into a checkpoint folder.
_WRITE_INTERVAL = 1.0  # Seconds: the store allows one write per second and object.


class FileSystem(core.GCSFileSystem):
    """A file system of gcsfs without a cache of listings; it raises every failure as an OSError.

    A cached listing could be out of date, because other processes write to the store.

    hurried: whether failed requests raise immediately instead of being retried.
    """

    def __init__(self, **options: Any):
        options["use_listings_cache"] = False
        super().__init__(**options)
        self._write_times: dict[str, float] = {}
        self.hurried = False

    async def _request(self, *args: Any, **options: Any) -> Any:
        request = core.GCSFileSystem._request
        if self.hurried:
            request = request.__wrapped__  # Without gcsfs's retries.
        return await request(self, *args, **options)

    async def _call(self, *args: Any, **options: Any) -> Any:
        with translate_errors():
            return await super()._call(*args, **options)

    call = asyn.sync_wrapper(_call)

    async def _mkdir(self, path: str, **options: Any) -> None:
        """Do nothing: folders are parts of names. gcsfs would create the bucket."""

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Do nothing, like `_mkdir`."""

    mkdir, makedirs = asyn.sync_wrapper(_mkdir), asyn.sync_wrapper(_makedirs)

    def pause(self, path: str) -> None:
        """Wait until the store accepts another write of an object."""
        elapsed = time.monotonic() - self._write_times.get(path, -_WRITE_INTERVAL)
        time.sleep(max(0.0, _WRITE_INTERVAL - elapsed))
        self._write_times[path] = time.monotonic()


class Snapshot(NamedTuple):
    """The content of an object at one time."""

    content: bytes
    generation: int  # Changes with each write; 0: the object does not exist.
    updated: float  # Time of the write by the store's clock, in seconds since 1970.


class Unavailable(OSError):
    """Raised if the store cannot be reached, or if a request to the store fails."""

    remedy = (
        "all earlier saves are complete: check the network, the login and its permissions, "
        "and run the same command again"
    )

    def __str__(self) -> str:
        return f"store: {self.strerror}; {self.remedy}"


# Errors of networks and permissions in gcsfs and its libraries.
_FAILURES = (
    OSError,
    retry.HttpError,
    retry.ChecksumError,
    aiohttp.ClientError,
    exceptions.GoogleAuthError,
)


@contextlib.contextmanager
def translate_errors() -> Iterator[None]:
    """Raise errors of networks and permissions in gcsfs and its libraries as Unavailable.

    FileNotFoundError and FileExistsError are raised unchanged.
    """
    try:
        yield
    except (FileNotFoundError, FileExistsError, Unavailable):
        raise
    except _FAILURES as error:
        line = " ".join(str(error).split())[:300] or type(error).__name__
        raise Unavailable(errno.EIO, line) from error


@functools.cache
def filesystem() -> FileSystem:
    """Return the store's file system, and register it for epath and orbax.

    Each call returns the same object.
    """
    if not switches.is_on("JBIAS_TRACEBACK"):
        # gcsfs logs each retry; the caller reports the final error.
        logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
    for name in ("gs", "gcs"):
        fsspec.register_implementation(name, FileSystem, clobber=True)
    # With the options of epath, so that fsspec returns the same instance to epath.
    return fsspec.filesystem("gcs", finalize_on_close=True)


def check(path: str, where: str) -> None:
    """Raise ValueError unless a path is gs://BUCKET/FOLDER and a user is logged in.

    Also lets failed requests be retried from now on (`FileSystem.hurried`). where: start of
    the error message, such as "workdir".
    """
    bucket, key = _split_path(path)
    if not bucket or not key:
        raise ValueError(f"{where}: must be gs://BUCKET/FOLDER, got {path}")
    if not os.environ.get("STORAGE_EMULATOR_HOST"):
        try:
            google.auth.default()
        except exceptions.DefaultCredentialsError as error:
            raise ValueError(
                f"{where}: {path} needs a login to Google Cloud, found none; run "
                "`gcloud auth application-default login`, or set "
                "GOOGLE_APPLICATION_CREDENTIALS to a key file"
            ) from error
    filesystem().hurried = False


def write(path: epath.PathLike, content: bytes) -> None:
    """Write an object, whether or not it exists; OSError if the store fails."""
    path = os.fspath(path)
    filesystem().pause(path)
    filesystem().pipe_file(path, content)


def read(path: epath.PathLike) -> Snapshot:
    """Return the content of an object; empty, of generation 0, if it does not exist.

    OSError if the store fails, or if the object is rewritten too often to be read.
    """
    bucket, key = _split_path(path)
    for _ in range(5):
        info = metadata(path)
        if info is None:
            return Snapshot(b"", generation=0, updated=0.0)
        try:
            _, content = filesystem().call(
                "GET",
                "b/{}/o/{}",
                bucket,
                key,
                alt="media",
                generation=info["generation"],
            )
        except FileNotFoundError:
            continue  # A new generation was written meanwhile.
        updated = datetime.datetime.fromisoformat(info["updated"]).timestamp()
        return Snapshot(content, generation=int(info["generation"]), updated=updated)
    raise OSError(errno.EBUSY, f"{os.fspath(path)} is rewritten too often to be read")


def metadata(path: epath.PathLike) -> dict[str, Any] | None:
    """Return the store's metadata of an object by name, such as "generation" and "size".

    None if the object does not exist; OSError if the store fails.
    """
    bucket, key = _split_path(path)
    try:
        return filesystem().call("GET", "b/{}/o/{}", bucket, key, json_out=True)
    except FileNotFoundError:
        return None


def replace(path: epath.PathLike, content: bytes, generation: int) -> int:
    """Write an object if it still has the given generation; return its new generation.

    generation: from an earlier `read`; 0: the object must not exist. FileExistsError if the
    generation has changed. The caller must then read the object: this call itself may have
    changed the generation, if the store's answer was lost and the request was sent again.
    """
    bucket, key = _split_path(path)
    filesystem().pause(os.fspath(path))
    base_url = filesystem().base.replace("/storage/", "/upload/storage/", 1)
    info = filesystem().call(
        "POST",
        base_url + "b/{}/o",
        bucket,
        data=content,
        json_out=True,
        uploadType="media",
        name=key,
        ifGenerationMatch=str(generation),
    )
    return int(info["generation"])


def delete(path: epath.PathLike, generation: int) -> None:
    """Delete an object of the given generation; FileExistsError if it has changed."""
    bucket, key = _split_path(path)
    filesystem().call(
        "DELETE", "b/{}/o/{}", bucket, key, ifGenerationMatch=str(generation)
    )


def move(path: epath.PathLike, target: epath.PathLike) -> None:
    """Move a folder; at any time the old or the new folder is complete.

    All objects are copied before any is deleted. The file that marks a complete folder is
    copied last and deleted first.
    """
    source, target = "/".join(_split_path(path)), "/".join(_split_path(target))
    names = filesystem().find(source)
    names.sort(key=lambda name: (name.endswith(f"/{MARK}"), -name.count("/")))
    for name in names:
        filesystem().cp_file(name, target + name[len(source) :])
    for name in reversed(names):
        filesystem().rm_file(name)


def _split_path(path: epath.PathLike) -> tuple[str, str]:
    """Return the bucket and the object's name of gs://BUCKET/NAME."""
    bucket, _, key = os.fspath(path).removeprefix("gs://").partition("/")
    return bucket, key


_SET_ASIDE = ("damaged", "replaced")  # Folders of checkpoints that are not used.


def fetch(pattern: str, where: str, home: pathlib.Path, *, checkpoints: bool) -> str:
    """Copy the objects that match a gs:// path or glob into `home`; return the local glob.

    Objects below a matching folder are copied, too. Copies that match but whose objects were
    deleted are removed. where: start of the error message, such as "--runs". home: folder of
    the copies. checkpoints: whether to copy complete checkpoints, too. ValueError if nothing
    matches, or the name of an object cannot be a local path. OSError if the store fails.
    """
    pattern_parts = pattern.removeprefix("gs://").strip("/").split("/")
    fixed_parts = list(
        itertools.takewhile(lambda part: not glob.has_magic(part), pattern_parts)
    )
    try:
        objects = filesystem().find("/".join(fixed_parts), detail=True)
    except FileNotFoundError:
        objects = {}
    wanted = {
        name
        for name in objects
        if _is_wanted(name, pattern_parts, checkpoints=checkpoints)
        and _is_complete(name, objects)
    }
    if not wanted:
        raise ValueError(
            f"{where}: nothing is at {pattern}; check the path for mistakes"
        )
    with futures.ThreadPoolExecutor(16) as threads:
        exists = threads.map(lambda name: _copy_object(home, objects[name]), wanted)
        copied = {
            name for name, is_there in zip(wanted, exists, strict=True) if is_there
        }
    for path in sorted(home.joinpath(*fixed_parts).rglob("*"), reverse=True):
        name = path.relative_to(home).as_posix()
        if path.is_dir():
            with contextlib.suppress(OSError):
                path.rmdir()  # Only if it is empty.
        elif name not in copied and _is_wanted(
            name, pattern_parts, checkpoints=checkpoints
        ):
            path.unlink(missing_ok=True)
    return str(home.joinpath(*pattern_parts))


def _is_wanted(name: str, pattern_parts: Sequence[str], *, checkpoints: bool) -> bool:
    """Return True if an object, or a folder that contains the object, matches the glob.

    name: name of the object. pattern_parts: the glob, split at "/". checkpoints: whether
    objects of checkpoints match. Objects in a folder of `_SET_ASIDE` below the match never
    match.
    """
    parts = name.split("/")
    if len(parts) < len(pattern_parts):
        return False
    if not all(map(fnmatch.fnmatchcase, parts, pattern_parts)):
        return False
    excluded = set(_SET_ASIDE) if checkpoints else {"checkpoints", *_SET_ASIDE}
    return not set(parts[len(pattern_parts) :]) & excluded


def _is_complete(name: str, objects: Mapping[str, Any]) -> bool:
    """Return False if an object belongs to a checkpoint that is not complete.

    objects: all objects by name, among them the markers of complete checkpoints.
    """
    run, folder, relative_name = name.partition("/checkpoints/")
    step = relative_name.partition("/")[0]
    is_in_checkpoint = folder and step.isdecimal()
    return not is_in_checkpoint or f"{run}{folder}{step}/{MARK}" in objects


def _copy_object(home: pathlib.Path, info: Mapping[str, Any]) -> bool:
    """Copy an object unless the copy is up to date; return False if it does not exist.

    home: folder of the copies. info: gcsfs's metadata of the object: "name", "size", "mtime".
    ValueError if the object's name cannot be a path, such as a//b.
    """
    parts = info["name"].split("/")
    if {"", ".", ".."} & set(parts):
        name = info["name"]
        raise ValueError(f"gs://{name}: is no name of a file; rename the object")
    path, modified = home.joinpath(*parts), info["mtime"].timestamp()
    with contextlib.suppress(OSError):
        status = path.stat()
        is_same_time = abs(status.st_mtime - modified) < 1e-3
        if status.st_size == info["size"] and is_same_time:
            return True
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.parent / f".{path.name}.{os.getpid()}.part"
    try:
        with translate_errors():
            filesystem().get_file(info["name"], str(part))
        os.utime(part, (modified, modified))
        part.replace(path)
    except FileNotFoundError:
        return False
    finally:
        part.unlink(missing_ok=True)
    return True


LOG_SECONDS = 5.0  # Between two writes of a log: a killed process loses these lines.
_BYTES_PER_SECOND = 20_000  # Average rate at which a long log is rewritten.


class Log:
    """A log in the store, such as gs://B/x/log.txt.

    Lines are collected, and written in the background every few seconds.
    """

    def __init__(self, path: str):
        self._path = path
        self._pending = b""  # Lines that are not written yet.
        self._timer: threading.Timer | None = None
        self._pending_lock = threading.Lock()  # Of `_pending` and `_timer`.
        self._last = Snapshot(b"", generation=0, updated=0.0)
        self._write_lock = threading.Lock()  # Of `_last`.

    def add(self, line: str) -> None:
        """Add a line, to be written within some seconds."""
        with self._pending_lock:
            self._pending += line.encode() + b"\n"
            self._schedule()

    def _schedule(self) -> None:
        """Start a timer that writes the pending lines, unless a timer is running."""
        if self._timer is None:
            seconds = max(LOG_SECONDS, len(self._last.content) / _BYTES_PER_SECOND)
            self._timer = threading.Timer(seconds, self._try_flush)
            self._timer.daemon = True
            self._timer.start()

    def drop(self) -> None:
        """Discard the lines that are not written yet."""
        with self._pending_lock:
            self._pending = b""

    def flush(self) -> None:
        """Write the pending lines; after an OSError they are still pending."""
        with self._write_lock:
            with self._pending_lock:
                lines, self._pending = self._pending, b""
                self._timer = None
            if not lines:
                return
            try:
                self._last = self._append(lines)
            except BaseException:
                with self._pending_lock:
                    self._pending = lines + self._pending
                raise

    def _try_flush(self) -> None:
        """Write the pending lines, or schedule another try."""
        try:
            self.flush()
        except OSError:
            with self._pending_lock:
                self._schedule()

    def _append(self, lines: bytes) -> Snapshot:
        """Append lines to the object, and return the object's new state.

        OSError if the store fails, or if other processes rewrite the object too often.
        """
        current = self._last
        for _ in range(10):
            content = current.content + lines
            try:
                generation = replace(self._path, content, generation=current.generation)
                return Snapshot(content, generation, updated=0.0)
            except FileExistsError:
                current = read(self._path)
            if current.content.startswith(content):
                return current  # The lines were written; only the answer was lost.
        raise OSError(f"{self._path} is rewritten too often to append to it")


@functools.cache
def log_of(path: str) -> Log:
    """Return the Log of a path; the same object for each call with this path."""
    return Log(path)
