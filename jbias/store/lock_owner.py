"""Whom a lock's file names, and what is said of its owner."""

import contextlib
import dataclasses
import datetime
import json
import os
import platform

from etils import epath


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
    since = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    token = os.urandom(8).hex()
    return Owner(_host(), boot(), os.getpid(), since, token)


def _host() -> str:
    return platform.node().encode("ascii", "replace").decode()[:64]


def boot() -> str:
    """What the machine's kernel is known by, from its start to its end."""
    with contextlib.suppress(OSError):
        return epath.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return _host()


def refusal(work: str, who: Owner | None, age: float) -> ValueError:
    """What is said where another process is at work."""
    return ValueError(
        f"workdir: another process {work}: {who or 'an unnamed process'}, last heard of "
        f"{age:.0f} s ago; wait for it or stop it"
    )


def waiting(where: epath.Path, who: Owner | None, age: float, patience: float) -> str:
    """What is said before an owner is taken for gone."""
    return (
        f"{where} is held by {who or 'a process that cannot be read'}, last heard of "
        f"{age:.0f} s ago; it is taken over if nothing is heard for "
        f"{patience:.0f} s ..."
    )


def taken_over(where: epath.Path, who: Owner | None) -> OSError:
    """What the earlier owner is told."""
    return OSError(
        f"workdir: {where} was taken over by {who or 'another process'}, as nothing was "
        "heard of this process; it goes on there, and what it had saved is whole"
    )


def read(content: bytes) -> Owner | None:
    """Whom the file names; None for nobody, or if it is damaged."""
    try:
        told = json.loads(content)
        return Owner(**{f.name: told[f.name] for f in dataclasses.fields(Owner)})
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
