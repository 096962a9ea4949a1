"""Who holds a directory: one process at a time, told by name and by signs of life.

On one machine the kernel's lock (flock) says who is there, and ends with its process. On a
file system of several machines it may not reach from one to another, or be missing: so
the file names its owner, who changes it every few seconds. Another machine's owner that
does not for a while is gone, and the lock is taken over. No two clocks are compared.
"""

import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Iterator

from etils import epath

from jbias.store import disk, lock_owner

BEAT_SECONDS = 10.0
PATIENCE_SECONDS = 45.0  # Without a beat, another machine's owner is gone.
# What a file system says that has no locks.
_UNKNOWN = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
_WIDTH = 320  # Bytes of the file: written in one piece, never longer or shorter.


@dataclasses.dataclass
class Held:
    """A lock that this process has; `check` before writing what it protects."""

    path: epath.Path
    file: int
    owner: lock_owner.Owner
    beats: int = 0

    def check(self) -> None:
        """OSError where the directory is gone or another's, or has another in its place.

        What is mounted over or under may be any directory; nothing is written there.
        """
        where = self.path.parent
        try:
            with _opened(self.path) as now:
                same = os.path.samestat(os.fstat(now), os.fstat(self.file))
                content = os.pread(now, _WIDTH, 0)
        except OSError as error:
            raise OSError(
                f"workdir: {where} has gone away ({disk.gist(error)}); {disk.REMEDY}"
            ) from error
        if not same:
            raise OSError(
                f"workdir: {where} is not the directory any more that this run began "
                f"in; {disk.REMEDY}"
            )
        owner = lock_owner.read(content)
        # One that took it over and ended leaves it empty.
        if not content.strip() or owner is not None and owner.token != self.owner.token:
            raise lock_owner.taken_over(where, owner)

    def beat(self) -> None:
        """Gives a sign of life."""
        text = json.dumps({**dataclasses.asdict(self.owner), "beats": self.beats})
        self.beats += 1
        os.pwrite(self.file, text.ljust(_WIDTH - 1).encode() + b"\n", 0)

    def end(self) -> None:
        """Closes the file, once nobody gives signs of life any more."""
        os.close(self.file)


@contextlib.contextmanager
def hold(
    path: epath.Path, work: str, say: Callable[[str], None] = print
) -> Iterator[Held]:
    """Holds `path`; ValueError where another process does, naming it and its last sign.

    `work`: what the owner does there, such as "is at work in runs/x". `say` is told what
    is waited for, and which owner's lock is taken over.
    """
    if disk.is_remote(path):
        from jbias.store import object_lock

        with object_lock.hold(path, work, say) as held:
            yield held
        return
    file, known = _locked(path, work)
    try:
        before = os.pread(file, _WIDTH, 0)
        owner = lock_owner.read(before)
        if before.strip() and (
            not known or owner is None or owner.boot != lock_owner.boot()
        ):
            _watch(file, path, work, say)
        held = Held(path, os.dup(file), lock_owner.this_process())
        held.beat()
        os.ftruncate(file, _WIDTH)
        if owner is not None:
            say(f"took over the lock of {owner}, which is gone")
        try:
            with beating(held):
                yield held
        finally:
            with contextlib.suppress(OSError):
                if lock_owner.read(os.pread(file, _WIDTH, 0)) == held.owner:
                    os.ftruncate(file, 0)
    finally:
        with contextlib.suppress(OSError):  # What is late must not keep it locked.
            fcntl.flock(file, fcntl.LOCK_UN)
        os.close(file)


def is_held(path: epath.PathLike) -> bool:
    """Whether a process holds it, to show it; a killed one leaves its file behind.

    Of another machine's owner this is a guess by the file's age; `hold` waits and sees.
    """
    if disk.is_remote(path):
        from jbias.store import object_lock

        return object_lock.is_held(path)
    try:
        with _opened(path) as file:
            known = _flocked(file, fcntl.LOCK_SH)
            owner = lock_owner.read(os.pread(file, _WIDTH, 0))
            unseen = owner is not None and (
                not known or owner.boot != lock_owner.boot()
            )
            return unseen and _age(file) < PATIENCE_SECONDS
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True


def is_others(path: epath.PathLike) -> bool:
    """Whether another process than this one holds it."""
    if not is_held(path):
        return False
    with contextlib.suppress(OSError):
        owner = lock_owner.read(epath.Path(path).read_bytes())
        return owner is None or (owner.boot, owner.pid) != (
            lock_owner.boot(),
            os.getpid(),
        )
    return False


def _locked(path: epath.Path, work: str) -> tuple[int, bool]:
    """The file, opened and locked, and whether its file system has locks at all."""
    for left in reversed(range(3)):
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            known = _flocked(file, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(file), os.stat(path)):
                return file, known
        except FileNotFoundError:
            pass  # The one before removed it, having left nothing else.
        except BlockingIOError:
            if not left:
                _refuse(file, work)
            time.sleep(0.1)  # `is_held` has it for less.
        os.close(file)
    raise ValueError(f"workdir: another process {work}; wait for it or stop it")


def _flocked(file: int, how: int) -> bool:
    """Whether the file system has locks; BlockingIOError where another process has it."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno not in _UNKNOWN:
            raise
        return False
    return True


def _refuse(file: int, work: str) -> None:
    who, age = lock_owner.read(os.pread(file, _WIDTH, 0)), _age(file)
    os.close(file)
    raise lock_owner.refusal(work, who, age)


def _watch(file: int, path: epath.Path, work: str, say: Callable) -> None:
    """Returns once an owner out of the kernel's sight has shown no sign of life.

    Another process of this machine that waits likewise shows as little.
    """
    before, began = os.pread(file, _WIDTH, 0), time.monotonic()
    say(
        lock_owner.waiting(
            path.parent, lock_owner.read(before), _age(file), PATIENCE_SECONDS
        )
    )
    while time.monotonic() - began < PATIENCE_SECONDS:
        time.sleep(min(1.0, PATIENCE_SECONDS / 10))
        with _opened(path) as again:
            now = os.pread(again, _WIDTH, 0)
        if not now.strip():
            return
        if now != before:
            _refuse(os.dup(file), work)


@contextlib.contextmanager
def _opened(path: epath.Path) -> Iterator[int]:
    """The file opened anew, which looks past what is cached of another machine's."""
    file = os.open(path, os.O_RDONLY)
    try:
        yield file
    finally:
        os.close(file)


@contextlib.contextmanager
def beating(held: Held) -> Iterator[None]:
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


def _age(file: int) -> float:
    """Seconds since the file changed; shown, never decided by."""
    return max(0.0, time.time() - os.fstat(file).st_mtime)
