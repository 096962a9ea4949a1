"""Lock a folder by a file that names the owner, the process that uses the folder.

On one machine, the kernel's lock (flock) decides: the kernel releases it when the owner's
process ends. On a file system that several machines share, flock may be missing or may not
reach across machines. Therefore the owner also rewrites the file every few seconds (a
beat). If the owner is on another machine and its beats stop, the lock is taken over.

In an object store, the lock is an object that is replaced only if its generation has not
changed: if two processes try to take over the same lock, the store refuses one of them. The
clocks of two machines are never compared.
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
    """The process that holds a lock, as named in the lock file: machine and process id."""

    host: str
    boot: str  # Boot id of the owner's kernel; flock is reliable on the same kernel.
    pid: int
    since: str  # Time of creation, for messages.
    token: str  # Random, for this acquisition of the lock.

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


def this_process() -> Owner:
    """Return an Owner for this process, with a new token."""
    return Owner(
        host=_host(),
        boot=boot_id(),
        pid=os.getpid(),
        since=messages.utc_now(),
        token=os.urandom(8).hex(),
    )


def _host() -> str:
    """Return the machine's name in ASCII, cut to 64 letters."""
    return platform.node().encode("ascii", "replace").decode()[:64]


def boot_id() -> str:
    """Return the running kernel's id, which changes at each boot.

    Return the host name on a system without such an id.
    """
    with contextlib.suppress(OSError):
        return epath.Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()
    return _host()


def taken_over(folder: epath.Path, owner: Owner | None) -> OSError:
    """Return the error for a process whose lock on `folder` another process took over.

    owner: the new owner; None if unknown.
    """
    return OSError(
        f"workdir: {folder} was taken over by {owner or 'another process'}, because this "
        "process showed no sign of life; the run continues there, and all earlier saves "
        "are complete"
    )


def read_owner(content: bytes) -> Owner | None:
    """Return the owner in the content of a lock file; None for empty or damaged content."""
    try:
        fields = json.loads(content)
        return Owner(**{f.name: fields[f.name] for f in dataclasses.fields(Owner)})
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


class LockState(NamedTuple):
    """The content of a lock's file or object at one time."""

    content: bytes
    generation: int  # Generation of the object; 1 for a file. 0: the lock is free.
    age: float  # Seconds since the last write, for messages only.

    @property
    def owner(self) -> Owner | None:
        """The owner that the lock names; None if the lock is free or its content is damaged."""
        return read_owner(self.content)


def _read_file(file: int) -> LockState:
    """Return the state of a lock file, given its descriptor."""
    content = os.pread(file, _WIDTH, 0)
    age = max(0.0, time.time() - os.fstat(file).st_mtime)
    return LockState(content, generation=int(bool(content.strip())), age=age)


def _read_object(path: epath.PathLike) -> LockState:
    """Return the state of a lock in an object store."""
    content, generation, updated = files.object_store().read(path)
    age = max(0.0, time.time() - updated)
    return LockState(content, generation, age=age)


def _refusal(work: str, state: LockState) -> ValueError:
    """Return the error for a lock that another process holds.

    work: see `acquire`. state: state of the lock, which names the owner.
    """
    return ValueError(
        f"workdir: another process {work}: {state.owner or 'an unnamed process'}, last "
        f"sign of life {state.age:.0f} s ago; wait for it or stop it"
    )


def _wait_for_beat(
    first: LockState,
    read_state: Callable[[], LockState],
    path: epath.Path,
    work: str,
    say: messages.Say,
) -> LockState:
    """Wait PATIENCE_SECONDS for a beat of the owner; return `first` if no beat comes.

    If the lock becomes free, return its new state earlier. ValueError if the lock changes,
    because then the owner is alive. A second process that waits for the same lock does not
    change the lock.

    first: the lock's state before the wait. read_state: reads the current state. path: path of
    the lock. work: see `acquire`. say: logs a line about the wait.
    """
    start_time = time.monotonic()
    owner = first.owner or "an unknown process"
    say(
        f"{path.parent} is held by {owner}, last sign of life {first.age:.0f} s ago; the "
        f"lock is taken over after {PATIENCE_SECONDS:.0f} s without a sign of life ..."
    )
    while time.monotonic() - start_time < PATIENCE_SECONDS:
        time.sleep(min(1.0, PATIENCE_SECONDS / 10))
        state = read_state()
        if not state.generation:
            return state
        if state[:2] != first[:2]:
            raise _refusal(work, state)
    return first


BEAT_SECONDS = 10.0
PATIENCE_SECONDS = (
    45.0  # An owner on another machine without a beat for so long is gone.
)
# Error codes of flock on a file system without locks.
_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
_WIDTH = 320  # Bytes of the file, which is always written as a whole.


@dataclasses.dataclass
class Lock:
    """A lock file that this process holds; call `check` before writing to the folder.

    path: the lock file. file: its open descriptor. beats: number of beats so far.
    """

    path: epath.Path
    file: int
    owner: Owner
    beats: int = 0

    def check(self) -> None:
        """Raise OSError if the folder is missing or replaced, or the lock is taken over.

        A folder is replaced, for example, when a disk is mounted over it or unmounted.
        """
        folder = self.path.parent
        try:
            with open(self.path, "rb") as current:
                is_same_file = os.path.samestat(
                    os.fstat(current.fileno()), os.fstat(self.file)
                )
                state = _read_file(current.fileno())
        except OSError as error:
            reason = files.system_message(error)
            raise OSError(
                f"workdir: {folder} has disappeared ({reason}); {files.REMEDY}"
            ) from error
        if not is_same_file:
            raise OSError(
                f"workdir: {folder} is no longer the directory in which this run started; "
                f"{files.REMEDY}"
            )
        # A process that took the lock over and has ended leaves an empty file.
        is_free = not state.generation
        if is_free or state.owner and state.owner.token != self.owner.token:
            raise taken_over(folder, state.owner)

    def beat(self) -> None:
        """Rewrite the file, to show other processes that this process runs."""
        text = json.dumps({**dataclasses.asdict(self.owner), "beats": self.beats})
        self.beats += 1
        os.pwrite(self.file, text.ljust(_WIDTH - 1).encode() + b"\n", 0)

    def close(self) -> None:
        """Close the file, after the last beat."""
        os.close(self.file)


@contextlib.contextmanager
def acquire(
    path: epath.Path, work: str, say: messages.Say = messages.print_text
) -> Iterator["Lock | ObjectLock"]:
    """Hold the lock at `path` within the context; yield it as a Lock, or as an ObjectLock.

    An ObjectLock is yielded for a path in an object store. At the end of the context a lock file is
    emptied, and an object is deleted.

    A lock that was not released is taken over. Before this, wait PATIENCE_SECONDS for a beat of the
    owner in these cases: the file names an owner of another machine or of an earlier boot; the
    owner is unknown, because the file is damaged; the file system does not support flock; or the
    lock is in an object store. There is no wait for an owner of the same boot: flock decides.

    ValueError if another process holds the lock or beats during the wait, with its owner, if known,
    and the time of the last beat. ValueError also if the path is not a plain file; OSError if the
    lock file cannot be opened.

    work: the activity of an owner, for messages, such as "is at work in runs/x".
    say: logs a line about a wait, and about a lock that is taken over.
    """
    if files.is_remote(path):
        with _acquire_object(path, work, say) as object_lock:
            yield object_lock
        return
    file, has_flock = _open_locked(path, work)

    def read_state() -> LockState:
        # A new descriptor, because a network file system may cache the content.
        with open(path, "rb") as reopened:
            return _read_file(reopened.fileno())

    try:
        state = _read_file(file)
        owner = state.owner
        is_local = has_flock and owner and owner.boot == boot_id()
        if state.generation and not is_local:
            _wait_for_beat(state, read_state, path=path, work=work, say=say)
        lock = Lock(path, os.dup(file), owner=this_process())
        lock.beat()
        os.ftruncate(file, _WIDTH)
        if owner is not None:
            say(f"took over the lock of {owner}, which is gone")
        try:
            with keep_alive(lock):
                yield lock
        finally:
            with contextlib.suppress(OSError):
                if read_owner(os.pread(file, _WIDTH, 0)) == lock.owner:
                    os.ftruncate(file, 0)
    finally:
        # A late beat's duplicate of the descriptor must not keep the file locked.
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)
        os.close(file)


def is_held(path: epath.PathLike) -> bool:
    """Return True if a living process holds the lock at `path`; for display only.

    For an owner on another machine and in an object store, the result is a guess from the
    time of the last beat; only `acquire` decides. False if there is no lock file.
    """
    if files.is_remote(path):
        state = _read_object(path)
        return bool(state.generation) and state.age < PATIENCE_SECONDS
    # A lock is a plain file. To open a pipe would block.
    if not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as file:
            has_flock = _try_flock(file.fileno(), fcntl.LOCK_SH)
            state = _read_file(file.fileno())
            owner = state.owner
            is_elsewhere = owner is not None and (
                not has_flock or owner.boot != boot_id()
            )
            return is_elsewhere and state.age < PATIENCE_SECONDS
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True


def is_held_elsewhere(path: epath.PathLike) -> bool:
    """Return True if a process other than this one holds the lock at `path`.

    A guess, as in `is_held`. False if the lock file cannot be read.
    """
    if not is_held(path):
        return False
    with contextlib.suppress(OSError):
        owner = read_owner(epath.Path(path).read_bytes())
        return owner is None or (owner.boot, owner.pid) != (boot_id(), os.getpid())
    return False


def _open_locked(path: epath.Path, work: str) -> tuple[int, bool]:
    """Open and lock the file at `path`; return (descriptor, has_flock).

    has_flock: True if the file system supports flock. work: see `acquire`. ValueError if
    another process holds the lock.
    """
    for tries_left in reversed(range(3)):
        file = _open(path)
        try:
            has_flock = _try_flock(file, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(file), os.stat(path)):
                return file, has_flock
        except FileNotFoundError:
            pass  # The previous owner removed the file after we opened it.
        except BlockingIOError:
            if not tries_left:
                state = _read_file(file)
                os.close(file)
                raise _refusal(work, state) from None
            time.sleep(0.1)  # `is_held` holds the lock for a shorter time.
        os.close(file)
    raise ValueError(f"workdir: another process {work}; wait for it or stop it")


def _open(path: epath.Path) -> int:
    """Open the lock file, create it if missing, and return its descriptor.

    OSError if the file cannot be opened; ValueError if the path is not a plain file: a link
    could lead to any file, which would be overwritten.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        file = os.open(path, flags, 0o644)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise _not_plain_file(path) from error
        reason = files.system_message(error)
        raise OSError(
            f"workdir: {path} cannot be opened ({reason}); make the folder and this file "
            "writable, or name another --workdir"
        ) from error
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise _not_plain_file(path)
    return file


def _not_plain_file(path: epath.Path) -> ValueError:
    """Return the error for a lock file that is a folder, a link or a device."""
    return ValueError(
        f"workdir: {path} must be a plain file, which locks the folder, but is a folder, a "
        "link or a device; remove it, or name another --workdir"
    )


def _try_flock(file: int, operation: int) -> bool:
    """Lock an open file; return False if its file system does not support flock.

    file: descriptor. operation: fcntl.LOCK_EX or LOCK_SH. BlockingIOError if another process
    holds the lock.
    """
    try:
        fcntl.flock(file, operation | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        return False
    return True


@contextlib.contextmanager
def keep_alive(lock: "Lock | ObjectLock") -> Iterator[None]:
    """Call `lock.beat` regularly in a thread within the context, then close the lock.

    The thread closes the lock, because its last beat may hang on a slow disk.
    """
    is_over = threading.Event()

    def beat_repeatedly() -> None:
        """Call `lock.beat` every BEAT_SECONDS until the context ends; then close the lock."""
        while not is_over.wait(BEAT_SECONDS):
            # If the disk fails, the next save of the run reports it.
            with contextlib.suppress(OSError):
                lock.check()
                if not is_over.is_set():
                    lock.beat()
        lock.close()

    thread = threading.Thread(target=beat_repeatedly, name="lock beats", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(timeout=1.0)


@dataclasses.dataclass
class ObjectLock:
    """A lock in an object store that this process holds; call `check` before writing."""

    path: epath.Path
    owner: Owner
    generation: int  # Generation of the last version that this process wrote.
    beats: int = 0
    mutex: threading.RLock = dataclasses.field(default_factory=threading.RLock)

    def check(self) -> None:
        """Raise OSError if the lock is missing or taken over, or if the store fails."""
        folder = self.path.parent
        with self.mutex, files.translate_os_errors(f"workdir {folder}"):
            metadata = files.object_store().metadata(self.path)
            if metadata and int(metadata["generation"]) == self.generation:
                return
            state = _read_object(self.path)
            if self.adopt(state):
                return  # The store's answer to our last beat was lost.
        if not state.generation:
            raise OSError(
                f"workdir: {folder} has disappeared (no object lock); {files.REMEDY}"
            )
        raise taken_over(folder, state.owner)

    def adopt(self, state: LockState) -> bool:
        """Return True if this process wrote the state; if so, store its generation here."""
        is_own = state.owner is not None and state.owner.token == self.owner.token
        if is_own:
            self.generation = state.generation
        return is_own

    def beat(self) -> None:
        """Rewrite the object, to show other processes that this process runs.

        FileExistsError if the lock is taken over.
        """
        with self.mutex:
            content = {**dataclasses.asdict(self.owner), "beats": self.beats}
            self.generation = files.object_store().replace(
                self.path,
                json.dumps(content).encode(),
                generation=self.generation,
            )
            self.beats += 1

    def close(self) -> None:
        """Do nothing: no file is open."""


@contextlib.contextmanager
def _acquire_object(
    path: epath.Path, work: str, say: messages.Say
) -> Iterator[ObjectLock]:
    """Hold the lock at a path of an object store within the context; yield the lock.

    Arguments and errors: see `acquire`. ValueError also if the bucket does not exist or may
    not be written.
    """
    first = _read_object(path)
    current = first
    if first.generation:
        current = _wait_for_beat(
            first, lambda: _read_object(path), path=path, work=work, say=say
        )
    # Without a boot id: flock says nothing about an object, even of this machine.
    owner = dataclasses.replace(this_process(), boot="")
    lock = ObjectLock(path, owner, generation=current.generation)
    try:
        lock.beat()
    except (
        FileExistsError
    ):  # Another process was faster, or the store's answer was lost.
        state = _read_object(path)
        if not lock.adopt(state):
            raise _refusal(work, state) from None
    except FileNotFoundError as error:
        bucket = os.fspath(path).split("/")[2]
        raise ValueError(
            f"workdir: there is no bucket {bucket!r}, or none that you may write to; "
            "make it, or name another --workdir"
        ) from error
    if current.generation and first.owner is not None:
        say(f"took over the lock of {first.owner}, which is gone")
    try:
        with keep_alive(lock):
            yield lock
    finally:
        with contextlib.suppress(OSError), lock.mutex:
            files.object_store().delete(path, lock.generation)
