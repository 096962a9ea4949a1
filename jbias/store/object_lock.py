"""Who holds a directory of a store: one object, replaced only as it was last seen.

The store does what the kernel's lock does on a disk: of two that would replace the same
generation one is refused. The owner replaces it every few seconds; one that does not for a
while is gone, on whatever machine. No two clocks are compared.
"""

import contextlib
import dataclasses
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from etils import epath

from jbias.store import disk, lock, lock_owner


def _store() -> Any:
    """The module of the store, which needs the extra `gcs`."""
    from jbias.store import objects

    return objects


@dataclasses.dataclass
class Held:
    """A lock that this process has; `check` before writing what it protects."""

    path: epath.Path
    owner: lock_owner.Owner
    generation: int  # As this process wrote it last.
    beats: int = 0
    mutex: threading.RLock = dataclasses.field(default_factory=threading.RLock)

    def check(self) -> None:
        """OSError where it is gone, or another's."""
        where = self.path.parent
        with self.mutex, disk.writing(f"workdir {where}"):
            told = _store().about(self.path)
            if told and int(told["generation"]) == self.generation:
                return
            seen = _store().read(self.path)
            owner = lock_owner.read(seen.content)
            if owner is not None and owner.token == self.owner.token:
                self.generation = seen.generation  # The answer to a beat was lost.
                return
        if not seen.generation:
            raise OSError(
                f"workdir: {where} has gone away (no object lock); {disk.REMEDY}"
            )
        raise lock_owner.taken_over(where, owner)

    def beat(self) -> None:
        """Gives a sign of life; FileExistsError where another has taken it over."""
        with self.mutex:
            told = {**dataclasses.asdict(self.owner), "beats": self.beats}
            content = json.dumps(told).encode()
            self.generation = _store().replace(self.path, content, self.generation)
            self.beats += 1

    def end(self) -> None:
        """Nothing is open."""


@contextlib.contextmanager
def hold(
    path: epath.Path, work: str, say: Callable[[str], None] = print
) -> Iterator[Held]:
    """As lock.hold."""
    before = _store().read(path)
    generation, who = before.generation, lock_owner.read(before.content)
    if generation:
        generation = _watch(path, before, work, say)
    # Of no kernel: even this machine's must not be asked who is there.
    held = Held(
        path, dataclasses.replace(lock_owner.this_process(), boot=""), generation
    )
    try:
        _begin(held, work)
    except FileNotFoundError as error:
        bucket = os.fspath(path).split("/")[2]
        raise ValueError(
            f"workdir: there is no bucket {bucket!r}, or none that you may write to; "
            "make it, or name another --workdir"
        ) from error
    if generation and who is not None:
        say(f"took over the lock of {who}, which is gone")
    try:
        with lock.beating(held):
            yield held
    finally:
        with contextlib.suppress(OSError), held.mutex:
            _store().delete(path, held.generation)


def is_held(path: epath.PathLike) -> bool:
    """As lock.is_held."""
    seen = _store().read(path)
    return bool(seen.generation) and _age(seen) < lock.PATIENCE_SECONDS


def _begin(held: Held, work: str) -> None:
    """Writes the first sign of life, unless another was faster."""
    try:
        held.beat()
    except FileExistsError:
        seen = _store().read(held.path)
        owner = lock_owner.read(seen.content)
        if owner is None or owner.token != held.owner.token:
            _refuse(seen, work)
        held.generation = seen.generation


def _watch(path: epath.Path, before: Any, work: str, say: Callable[[str], None]) -> int:
    """Returns which generation to replace once its owner has shown no sign of life."""
    began = time.monotonic()
    say(
        lock_owner.waiting(
            path.parent,
            lock_owner.read(before.content),
            _age(before),
            lock.PATIENCE_SECONDS,
        )
    )
    while time.monotonic() - began < lock.PATIENCE_SECONDS:
        time.sleep(min(1.0, lock.PATIENCE_SECONDS / 10))
        told = _store().about(path)
        if told is None:
            return 0
        if int(told["generation"]) != before.generation:
            _refuse(_store().read(path), work)
    return before.generation


def _refuse(seen: Any, work: str) -> None:
    raise lock_owner.refusal(work, lock_owner.read(seen.content), _age(seen))


def _age(seen: Any) -> float:
    """Seconds since it was written; shown, never decided by."""
    return max(0.0, time.time() - seen.updated)
