"""Objects of Google Cloud Storage: there whole or not at all, replaced on conditions.

Through gcsfs (the extra `gcs`), as which epath reads `gs://`, and orbax where it does not
leave it to tensorstore.
"""

import contextlib
import datetime
import errno
import functools
import logging
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import aiohttp
import fsspec
import google.auth
from etils import epath
from fsspec import asyn
from gcsfs import core, retry
from google.auth import exceptions

MARK = "commit_success.txt"  # What orbax writes last into a folder that is whole.
_PAUSE = 1.0  # Seconds: the store takes no more than one write a second of an object.


class Files(core.GCSFileSystem):
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
        with told():
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


class Seen(NamedTuple):
    """An object as it was once."""

    content: bytes
    generation: int  # Changes whenever it is written; 0: there is none.
    updated: float  # When that was by the store's clock, in seconds since 1970.


class Away(OSError):
    """The store cannot be reached, or does not do what it is asked to."""

    remedy = (
        "what was saved before is whole: see to the network, the login and its rights, "
        "and run the same command again"
    )

    def __str__(self) -> str:
        return f"store: {self.strerror}; {self.remedy}"


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Gives what gcsfs and its libraries raise of networks and rights as OSErrors."""
    try:
        yield
    except (FileNotFoundError, FileExistsError, Away):
        raise
    except (
        OSError,
        retry.HttpError,
        retry.ChecksumError,
        aiohttp.ClientError,
        exceptions.GoogleAuthError,
    ) as error:
        raise Away(errno.EIO, _line(error)) from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


@functools.cache
def files() -> Files:
    """The store, as epath and orbax reach it from now on."""
    if not os.environ.get("JBIAS_TRACEBACK"):
        # What is tried again without success is told once, by who asked for it.
        logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
    for name in ("gs", "gcs"):
        fsspec.register_implementation(name, Files, clobber=True)
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
    files().hurried = False


def write(path: epath.PathLike, content: bytes) -> None:
    """Writes an object."""
    path = os.fspath(path)
    files().pause(path)
    files().pipe_file(path, content)


def read(path: epath.PathLike) -> Seen:
    """An object, and which one; of generation 0 and empty where there is none."""
    for _ in range(5):
        told = about(path)
        if told is None:
            return Seen(b"", 0, 0.0)
        try:
            of = dict(alt="media", generation=told["generation"])
            _, content = files().call("GET", "b/{}/o/{}", *_names(path), **of)
        except FileNotFoundError:
            continue  # It was written meanwhile.
        return Seen(content, int(told["generation"]), updated(told))
    raise OSError(errno.EBUSY, f"{os.fspath(path)} changes all the time")


def about(path: epath.PathLike) -> dict[str, Any] | None:
    """What the store tells of an object; None where there is none."""
    try:
        return files().call("GET", "b/{}/o/{}", *_names(path), json_out=True)
    except FileNotFoundError:
        return None


def updated(told: Mapping[str, Any]) -> float:
    """When an object was written, in seconds since 1970 by the store's clock."""
    return datetime.datetime.fromisoformat(told["updated"]).timestamp()


def replace(path: epath.PathLike, content: bytes, generation: int) -> int:
    """Writes an object where it still is of that generation; returns its new one.

    FileExistsError where it is of another: also where an answer was lost and the request
    sent again, so who cares must look.
    """
    bucket, key = _names(path)
    files().pause(os.fspath(path))
    to = files().base.replace("/storage/", "/upload/storage/", 1) + "b/{}/o"
    how = dict(uploadType="media", name=key, ifGenerationMatch=str(generation))
    told = files().call("POST", to, bucket, data=content, json_out=True, **how)
    return int(told["generation"])


def delete(path: epath.PathLike, generation: int) -> None:
    """Deletes an object of that generation; FileExistsError as for `replace`."""
    how = dict(ifGenerationMatch=str(generation))
    files().call("DELETE", "b/{}/o/{}", *_names(path), **how)


def move(path: epath.PathLike, target: epath.PathLike) -> None:
    """Moves a folder so that at any time one of the two is whole.

    All is copied before anything goes; what marks a whole one comes last and goes first.
    """
    source, target = ("/".join(_names(one)) for one in (path, target))
    names = files().find(source)
    names.sort(key=lambda name: (name.endswith(f"/{MARK}"), -name.count("/")))
    for name in names:
        files().cp_file(name, target + name[len(source) :])
    for name in reversed(names):
        files().rm_file(name)


def _names(path: epath.PathLike) -> tuple[str, str]:
    """The bucket, and what the object is called in it."""
    bucket, _, key = os.fspath(path).removeprefix("gs://").partition("/")
    return bucket, key
