"""The directory of a run: claimed by one process, held to one identity."""

import contextlib
import datetime
import fcntl
import importlib.metadata
import json
import os
import pathlib
import platform
import subprocess
import time
from collections.abc import Iterator, Mapping
from typing import IO, Any

import jax
from etils import epath

import jbias
from jbias import config as jc
from jbias import costs

PACKAGES = (
    *("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "pillow"),
    *("grain", "array-record", "simplejpeg", "cykooz-resizer"),
)


def write_text(path: epath.Path, text: str) -> None:
    """Writes a file that is there whole or not at all."""
    part = path.parent / f".{path.name}.part"
    part.write_text(text)
    part.replace(path)


@contextlib.contextmanager
def claim(workdir: epath.Path, config: Mapping[str, Any]):
    """Holds a workdir for this config and this process alone.

    ValueError where it holds a run of another identity, naming the keys that differ,
    or where another process is at work in it.
    """
    if "://" in os.fspath(workdir):
        raise ValueError(
            f"workdir: {workdir} is no local directory; object stores are not yet "
            "supported, mount it"
        )
    _check_identity(workdir, config)
    workdir.mkdir(parents=True, exist_ok=True)
    with _lock(workdir / "lock", f"another process is at work in {workdir}"):
        try:
            yield
        finally:
            _clear(workdir)  # Under the lock: the workdir may be another's.


def claimed(workdir: epath.Path) -> bool:
    """Whether a process is at work in it; a killed one leaves its lock's file behind."""
    try:
        with pathlib.Path(workdir / "lock").open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


@contextlib.contextmanager
def follow(workdir: epath.Path) -> Iterator[None]:
    """Lets this process alone evaluate a run; ValueError where another does."""
    with _lock(workdir / "evaluate.lock", f"another process evaluates {workdir}"):
        yield


def _clear(workdir: epath.Path) -> None:
    """Removes a workdir that never became a run."""
    names = [path.name for path in workdir.iterdir()]
    if all(name in ("lock", "log.txt") for name in names):
        for name in names:
            (workdir / name).unlink()
        workdir.rmdir()


def record_config(workdir: epath.Path, config: Mapping[str, Any]) -> None:
    """Gives the workdir its identity, once everything that the config names is there."""
    path = workdir / "config.json"
    if not path.exists():
        write_text(path, json.dumps(jc.plain(config), indent=1) + "\n")


def _check_identity(workdir: epath.Path, config: Mapping[str, Any]) -> None:
    path = workdir / "config.json"
    if not path.exists():
        if workdir.exists() and any(not _ours(p.name) for p in workdir.iterdir()):
            raise ValueError(
                f"workdir: {workdir} holds files but no run (no config.json); name "
                "another --workdir"
            )
        return
    try:
        held = json.loads(path.read_text())
    except ValueError:
        raise ValueError(
            f"workdir: {path} is not JSON; restore it or name another --workdir"
        ) from None
    differing = jc.differing(held, config)
    if differing:
        raise ValueError(
            f"workdir: {workdir} holds another config (held != asked): "
            f"{'; '.join(differing)}; name another --workdir"
        )


def _ours(name: str) -> bool:
    return name.startswith(".") or name in ("lock", "log.txt")


@contextlib.contextmanager
def _lock(path: epath.Path, held: str) -> Iterator[None]:
    with pathlib.Path(path).open("w") as file:
        if not (_locks(file) or _locks(file)):
            raise ValueError(f"workdir: {held}; wait for it or stop it")
        yield


def _locks(file: IO) -> bool:
    """Takes a file's lock, if no other has it; waits where one has, in case it looks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        time.sleep(0.1)  # `claimed` holds it for less.
        return False
    return True


def software() -> dict[str, Any]:
    """What runs here."""
    return {
        "code": {"version": jbias.__version__, "commit": _commit()},
        "packages": {name: _version(name) for name in PACKAGES},
        "python": platform.python_version(),
    }


def environment() -> dict[str, Any]:
    """What the numbers may depend on beside the config."""
    device, several = jax.devices()[0], jax.process_count()
    return {
        **software(),
        "device": {
            "platform": device.platform,
            "kind": device.device_kind,
            "count": jax.device_count(),
            "cores": len(os.sched_getaffinity(0)),
            **({"processes": several} if several > 1 else {}),
        },
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def contents(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What a resumed run must find as it was: the sets' contents, own algorithms."""
    sets = {
        name: {key: of.get(key) for key in ("n", "scored", "fingerprint", "answers")}
        for name, of in facts["data"].items()
    }
    return {
        "data": sets,
        "own_code": facts.get("own_code"),
        "init": facts.get("init"),
    }


def _environment_of(facts: Mapping[str, Any]) -> dict[str, Any]:
    named = ("code", "packages", "python", "device", "layout")
    return {key: facts.get(key) for key in named}


def _commit() -> str | None:
    """The commit of the code's checkout, with "+" where it has changes of its own."""
    root = pathlib.Path(__file__).parent.parent
    git = ["git", "-C", str(root)]
    try:
        # The package may lie inside another project's checkout.
        subprocess.check_call(
            [*git, "ls-files", "--error-unmatch", "jbias/__init__.py"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        head = subprocess.check_output(
            [*git, "rev-parse", "HEAD"], text=True, stderr=subprocess.DEVNULL
        ).strip()
        changes = subprocess.check_output(
            [*git, "status", "--porcelain", "--untracked-files=no", "--", "jbias"]
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return head + "+" * bool(changes)


def provenance(workdir: epath.Path) -> dict[str, Any]:
    """What a run stored of where its numbers come from; empty before it did."""
    path = workdir / "provenance.json"
    return json.loads(path.read_text()) if path.exists() else {}


def record_provenance(workdir: epath.Path, facts: Mapping[str, Any]) -> list[str]:
    """Stores where the numbers come from; a later start of the run is appended.

    Returns what differs between this start and the first, as `key: one != other`.
    """
    path = workdir / "provenance.json"
    at = now("seconds")
    facts = {**facts, **environment()}
    if not path.exists():
        facts = {"started": at, **facts, "resumed": []}
        write_text(path, json.dumps(facts, indent=1))
        return []
    differing = _differing(workdir, facts)
    first = json.loads(path.read_text())
    first["resumed"].append({"at": at, "differing": differing})
    write_text(path, json.dumps(first, indent=1))
    return differing


def now(timespec: str = "microseconds") -> str:
    """The time, in UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec=timespec)


def paid(devices: jax.sharding.Mesh, cores: int = 0) -> costs.Devices:
    """What the devices of a mesh are billed as: themselves, or CPU cores (0: those here)."""
    kind, count = devices.devices.flat[0].device_kind, devices.size
    if devices.devices.flat[0].platform == "cpu":
        kind, count = "cpu", cores or len(os.sched_getaffinity(0))
    return costs.Devices(kind, count)


def record_cost(workdir: epath.Path, start: Mapping[str, Any]) -> dict[str, Any]:
    """Writes costs.json: this start of the run in the place of what it said before.

    Returns the sums over all starts. What a process did after its latest word, before
    it was killed, nobody knows.
    """
    path = workdir / "costs.json"
    starts = json.loads(path.read_text())["starts"] if path.exists() else []
    starts = [one for one in starts if one["at"] != start["at"]] + [dict(start)]
    total = costs.total(starts)
    write_text(path, json.dumps({"starts": starts, "total": total}, indent=1))
    return total


def record_follower(workdir: epath.Path, facts: Mapping[str, Any]) -> list[str]:
    """Notes that this process begins to evaluate a run that another one trains.

    In a file of its own, evaluate.json: the other writes too. Returns as
    `record_provenance` does.
    """
    path = workdir / "evaluate.json"
    at = now("seconds")
    differing = _differing(workdir, {**facts, **environment()})
    before = json.loads(path.read_text()) if path.exists() else []
    starts = [*before, {"at": at, "differing": differing}]
    write_text(path, json.dumps(starts, indent=1))
    return differing


def _differing(workdir: epath.Path, facts: Mapping[str, Any]) -> list[str]:
    """What differs from the run's first start; ValueError where it must not."""
    first = provenance(workdir)
    facts = json.loads(json.dumps(facts))
    held = {key: first.get(key) for key in facts}
    changed = jc.differing(contents(held), contents(facts))
    if changed:
        raise ValueError(
            f"workdir: {workdir} was begun with other data or code (then != now): "
            f"{'; '.join(changed)}; restore them or name another --workdir"
        )
    return jc.differing(_environment_of(held), _environment_of(facts))
