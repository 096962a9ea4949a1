"""One owner at a time for a folder: a lock file that names its process and shows it is alive.

On one machine the kernel's lock (flock) tells whether the owner is alive, and ends with
its process. On a file system that several machines share, flock may not reach across
machines or be missing. So the file names its owner, who rewrites it every few seconds; an
owner on another machine that has stopped doing so is gone, and the lock is taken over.

In an object store the lock is an object that is replaced only at the generation last seen:
of two processes that would replace the same one the store refuses one. No two clocks are
ever compared.
"""

import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import platform
import stat
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from etils import epath

from jbias.runtime import files, messages


@dataclasses.dataclass(frozen=True)
class Owner:
    """A process that holds, or held, a lock."""

    host: str
    boot: str  # Which kernel: where it is ours, flock tells the truth.
    pid: int
    since: str  # For people.
    token: str  # Of this one time.

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


def this_process() -> Owner:
    """The owner that this process would be."""
    since, token = messages.utc_now(), os.urandom(8).hex()
    return Owner(_host(), boot_id(), os.getpid(), since, token)


def _host() -> str:
    return platform.node().encode("ascii", "replace").decode()[:64]


def boot_id() -> str:
    """What the machine's kernel is known by, from its start to its end."""
    with contextlib.suppress(OSError):
        return epath.Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()
    return _host()


def taken_over(where: epath.Path, who: Owner | None) -> OSError:
    """What the earlier owner is told."""
    return OSError(
        f"workdir: {where} was taken over by {who or 'another process'}, as nothing was "
        "heard of this process; it goes on there, and what it had saved is whole"
    )


def read_owner(content: bytes) -> Owner | None:
    """Whom the file names; None for nobody, or if it is damaged."""
    try:
        fields = json.loads(content)
        return Owner(**{f.name: fields[f.name] for f in dataclasses.fields(Owner)})
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


class Seen(NamedTuple):
    """A lock's file or object as it was once."""

    content: bytes
    generation: int  # Of an object; of a file 1. 0: nobody's.
    age: float  # Seconds since it was written; shown, never decided by.

    @property
    def owner(self) -> Owner | None:
        """Whom it names; None for nobody, or if it is damaged."""
        return read_owner(self.content)


def _see_file(file: int) -> Seen:
    content = os.pread(file, _WIDTH, 0)
    age = max(0.0, time.time() - os.fstat(file).st_mtime)
    return Seen(content, int(bool(content.strip())), age)


def _see_object(path: epath.PathLike) -> Seen:
    content, generation, updated = files.object_store().read(path)
    return Seen(content, generation, max(0.0, time.time() - updated))


def _refusal(work: str, seen: Seen) -> ValueError:
    return ValueError(
        f"workdir: another process {work}: {seen.owner or 'an unnamed process'}, last "
        f"heard of {seen.age:.0f} s ago; wait for it or stop it"
    )


def _watch(
    before: Seen, look: Callable, path: epath.Path, work: str, say: messages.Say
) -> Seen:
    """Returns what is there once an owner out of sight has shown no sign of life.

    Another process of this machine that waits likewise shows as little.
    """
    began = time.monotonic()
    who = before.owner or "a process that cannot be read"
    say(
        f"{path.parent} is held by {who}, last heard of {before.age:.0f} s ago; it is "
        f"taken over if nothing is heard for {PATIENCE_SECONDS:.0f} s ..."
    )
    while time.monotonic() - began < PATIENCE_SECONDS:
        time.sleep(min(1.0, PATIENCE_SECONDS / 10))
        now = look()
        if not now.generation:
            return now
        if now[:2] != before[:2]:
            raise _refusal(work, now)
    return before


BEAT_SECONDS = 10.0
PATIENCE_SECONDS = 45.0  # Without a beat, another machine's owner is gone.
# What a file system says that has no locks.
_UNKNOWN = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
_WIDTH = 320  # Bytes of the file: written in one piece, never longer or shorter.


@dataclasses.dataclass
class Lock:
    """A lock that this process has; `check` before writing what it protects."""

    path: epath.Path
    file: int
    owner: Owner
    beats: int = 0

    def check(self) -> None:
        """OSError where the directory is gone or another's, or has another in its place.

        What is mounted over or under may be any directory; nothing is written there.
        """
        where = self.path.parent
        try:
            with open(self.path, "rb") as now:
                same = os.path.samestat(os.fstat(now.fileno()), os.fstat(self.file))
                seen = _see_file(now.fileno())
        except OSError as error:
            raise OSError(
                f"workdir: {where} has gone away ({files.system_message(error)}); {files.REMEDY}"
            ) from error
        if not same:
            raise OSError(
                f"workdir: {where} is not the directory any more that this run began "
                f"in; {files.REMEDY}"
            )
        # One that took it over and ended leaves it empty.
        if not seen.generation or seen.owner and seen.owner.token != self.owner.token:
            raise taken_over(where, seen.owner)

    def beat(self) -> None:
        """Gives a sign of life."""
        text = json.dumps({**dataclasses.asdict(self.owner), "beats": self.beats})
        self.beats += 1
        os.pwrite(self.file, text.ljust(_WIDTH - 1).encode() + b"\n", 0)

    def end(self) -> None:
        """Closes the file, once nobody gives signs of life any more."""
        os.close(self.file)


@contextlib.contextmanager
def acquire(
    path: epath.Path, work: str, say: messages.Say = messages.print_text
) -> Iterator[Lock]:
    """Holds `path`; ValueError where another process does, naming it and its last sign.

    `work`: what the owner does there, such as "is at work in runs/x". `say` is told what
    is waited for, and which owner's lock is taken over.
    """
    if files.is_remote(path):
        with _acquire_object(path, work, say) as held:
            yield held
        return
    file, known = _locked(path, work)

    def look() -> Seen:
        # Opened anew, which looks past what is cached of another machine's.
        with open(path, "rb") as again:
            return _see_file(again.fileno())

    try:
        before = _see_file(file)
        owner = before.owner
        if before.generation and not (known and owner and owner.boot == boot_id()):
            _watch(before, look, path, work, say)
        held = Lock(path, os.dup(file), this_process())
        held.beat()
        os.ftruncate(file, _WIDTH)
        if owner is not None:
            say(f"took over the lock of {owner}, which is gone")
        try:
            with keep_alive(held):
                yield held
        finally:
            with contextlib.suppress(OSError):
                if read_owner(os.pread(file, _WIDTH, 0)) == held.owner:
                    os.ftruncate(file, 0)
    finally:
        with contextlib.suppress(OSError):  # What is late must not keep it locked.
            fcntl.flock(file, fcntl.LOCK_UN)
        os.close(file)


def is_held(path: epath.PathLike) -> bool:
    """Whether a process holds it, to show it; a killed one leaves its file behind.

    Of another machine's owner this is a guess by the file's age; `acquire` waits and sees.
    """
    if files.is_remote(path):
        seen = _see_object(path)
        return bool(seen.generation) and seen.age < PATIENCE_SECONDS
    if not os.path.isfile(path):  # epath takes a pipe for a file, and opening waits.
        return False  # No process can hold what is no file.
    try:
        with open(path, "rb") as file:
            known = _flocked(file.fileno(), fcntl.LOCK_SH)
            seen = _see_file(file.fileno())
            owner = seen.owner
            unseen = owner is not None and (not known or owner.boot != boot_id())
            return unseen and seen.age < PATIENCE_SECONDS
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True


def is_held_elsewhere(path: epath.PathLike) -> bool:
    """Whether another process than this one holds it."""
    if not is_held(path):
        return False
    with contextlib.suppress(OSError):
        owner = read_owner(epath.Path(path).read_bytes())
        return owner is None or (owner.boot, owner.pid) != (boot_id(), os.getpid())
    return False


def _locked(path: epath.Path, work: str) -> tuple[int, bool]:
    """The file, opened and locked, and whether its file system has locks at all."""
    for left in reversed(range(3)):
        file = _open(path)
        try:
            known = _flocked(file, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(file), os.stat(path)):
                return file, known
        except FileNotFoundError:
            pass  # The one before removed it, having left nothing else.
        except BlockingIOError:
            if not left:
                seen = _see_file(file)
                os.close(file)
                raise _refusal(work, seen) from None
            time.sleep(0.1)  # `is_held` has it for less.
        os.close(file)
    raise ValueError(f"workdir: another process {work}; wait for it or stop it")


def _open(path: epath.Path) -> int:
    """Return the lock's file, opened and made if need be.

    OSError where that cannot be done, ValueError where it is no file of its own: what a
    link leads to may be anybody's, and would be written over.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        file = os.open(path, flags, 0o644)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise _no_file(path) from error
        reason = files.system_message(error)
        raise OSError(
            f"workdir: {path} cannot be opened ({reason}); make the folder and this file "
            "yours to write, or name another --workdir"
        ) from error
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise _no_file(path)
    return file


def _no_file(path: epath.Path) -> ValueError:
    return ValueError(
        f"workdir: {path} must be a plain file, which locks the folder, and is a folder, a "
        "link or a device; remove it, or name another --workdir"
    )


def _flocked(file: int, how: int) -> bool:
    """Whether the file system has locks; BlockingIOError where another process has it."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _UNKNOWN:
            raise
        return False
    return True


@contextlib.contextmanager
def keep_alive(held: Lock) -> Iterator[None]:
    """Gives signs of life as long as the lock is ours, and ends it thereafter.

    On a disk that hangs the last sign may be late; it then has a file to go to still.
    """
    over = threading.Event()

    def beat() -> None:
        while not over.wait(BEAT_SECONDS):
            # Where the disk fails, the run finds out when it saves.
            with contextlib.suppress(OSError):
                held.check()
                if not over.is_set():
                    held.beat()
        held.end()

    thread = threading.Thread(target=beat, name="signs of life", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=1.0)


@dataclasses.dataclass
class ObjectLock:
    """A lock in an object store that this process has; `check` before writing what it protects."""

    path: epath.Path
    owner: Owner
    generation: int  # As this process wrote it last.
    beats: int = 0
    mutex: threading.RLock = dataclasses.field(default_factory=threading.RLock)

    def check(self) -> None:
        """OSError where it is gone, or another's."""
        where = self.path.parent
        with self.mutex, files.translate_os_errors(f"workdir {where}"):
            known = files.object_store().metadata(self.path)
            if known and int(known["generation"]) == self.generation:
                return
            if self._has(seen := _see_object(self.path)):
                return  # The answer to a beat was lost.
        if not seen.generation:
            gone = f"{where} has gone away (no object lock)"
            raise OSError(f"workdir: {gone}; {files.REMEDY}")
        raise taken_over(where, seen.owner)

    def _has(self, seen: Seen) -> bool:
        """Whether what is there is this process's own; then it is known from now on."""
        own = seen.owner is not None and seen.owner.token == self.owner.token
        self.generation = seen.generation if own else self.generation
        return own

    def beat(self) -> None:
        """Gives a sign of life; FileExistsError where another has taken it over."""
        with self.mutex:
            sign = {**dataclasses.asdict(self.owner), "beats": self.beats}
            now = self.path, json.dumps(sign).encode(), self.generation
            self.generation = files.object_store().replace(*now)
            self.beats += 1

    def end(self) -> None:
        """Nothing is open."""


@contextlib.contextmanager
def _acquire_object(
    path: epath.Path, work: str, say: messages.Say
) -> Iterator[ObjectLock]:
    """As `acquire`, of an object."""
    before = _see_object(path)
    now = before
    if before.generation:
        now = _watch(before, lambda: _see_object(path), path, work, say)
    # Of no kernel: even this machine's must not be asked who is there.
    owner = dataclasses.replace(this_process(), boot="")
    held = ObjectLock(path, owner, now.generation)
    try:
        held.beat()
    except FileExistsError:  # Another was faster, or the answer was lost.
        if not held._has(seen := _see_object(path)):
            raise _refusal(work, seen) from None
    except FileNotFoundError as error:
        bucket = os.fspath(path).split("/")[2]
        raise ValueError(
            f"workdir: there is no bucket {bucket!r}, or none that you may write to; "
            "make it, or name another --workdir"
        ) from error
    if now.generation and before.owner is not None:
        say(f"took over the lock of {before.owner}, which is gone")
    try:
        with keep_alive(held):
            yield held
    finally:
        with contextlib.suppress(OSError), held.mutex:
            files.object_store().delete(path, held.generation)
