"""The folder of a run: locked by one process, bound to one config, with its provenance."""

import contextlib
import importlib.metadata
import json
import os
import pathlib
import platform
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

import jax
from etils import epath

import jbias
from jbias import config as jc
from jbias import run_spec
from jbias.runs import checksums, costs
from jbias.runtime import files, lock, messages, xla

PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "pillow")
PACKAGES += ("grain", "array-record", "simplejpeg", "cykooz-resizer")

# What jbias itself may have left in a workdir that has no identity yet; of this, what goes
# with a run that never was.
_PASSING = ("lock", "log.txt", "log.jsonl")
_FIRST = (*_PASSING, "evaluate.lock", "traceback.txt", "stopped.json")
# What a run leaves that has computed something.
_MADE = ("checkpoints/*", "replaced/*", "evals/*", "vary/*/evals/*", "done")


@contextlib.contextmanager
def claim(
    workdir: epath.Path,
    config: Mapping[str, Any],
    say: messages.Say = messages.print_text,
    *,
    command: str = "",
) -> Iterator[lock.Lock]:
    """Hold a workdir for this config and this process alone; a crash leaves its traceback.

    command: the arguments that name the config, for an error about another config.
    ValueError where it holds a run of another identity that has computed something,
    naming the keys that differ, where what it says of its run is damaged, or where
    another process is at work in it. `say` is told of a lock that is taken over.
    """
    if files.is_remote(workdir):
        _check_remote(workdir, config)
    checksums.check(workdir, checksums.is_fact)
    _check_identity(workdir, config, command)
    provenance(workdir)
    read_costs(workdir)
    with files.translate_os_errors(f"workdir {workdir}"):
        workdir.mkdir(parents=True, exist_ok=True)
    with lock.acquire(workdir / "lock", f"is at work in {workdir}", say) as held:
        try:
            _check_identity(
                workdir, config, command
            )  # The one before may have begun a run.
            yield held
        except OSError:
            files.stop_retrying(workdir)
            raise
        except Exception as error:
            refused = isinstance(error, ValueError)
            if not refused or isinstance(error, messages.UserCodeError):
                messages.save_traceback(error, workdir, held.check)
            raise
        finally:
            with contextlib.suppress(OSError):
                held.check()  # The workdir may be another's.
                if all(path.name in _PASSING for path in workdir.iterdir()):
                    for name in _PASSING:  # It never became a run.
                        files.discard(workdir / name)
                    workdir.rmdir()


def _check_remote(workdir: epath.Path, config: Mapping[str, Any]) -> None:
    """ValueError for what other packages write, which know local files only."""
    files.resolve(workdir)
    for key, off in (("write", ""), ("profile", False)):
        if config.get("run", {}).get(key, off) != off:
            raise ValueError(
                f"config.run.{key}: is written to a local directory only, not to "
                f"{workdir}; leave it out, or name a local --workdir"
            )


def claim_evaluation(
    workdir: epath.Path, say: messages.Say = messages.print_text
) -> contextlib.AbstractContextManager[lock.Lock]:
    """Lets this process alone evaluate a run; ValueError where another does."""
    return lock.acquire(workdir / "evaluate.lock", f"evaluates {workdir}", say)


def record_run(
    workdir: epath.Path, spec: run_spec.RunSpec, facts: Mapping[str, Any]
) -> list[str]:
    """Notes what is run, in the workdir and in the folder of each branch.

    Returns as `record_provenance` does.
    """
    record_config(workdir, spec.config, anew=True)
    if sums := checksums.read(workdir):  # Until what changes now stands.
        others = {k: v for k, v in sums.items() if not checksums.is_fact(k)}
        checksums.write(workdir, others)
    differing = record_provenance(workdir, facts)
    for branch in spec.branches if spec.config["vary"] else ():
        folder = workdir / branch.folder
        folder.mkdir(parents=True, exist_ok=True)
        record_config(folder, branch.config)
        record_provenance(folder, {**facts, "config": branch.config})
    return differing


def record_config(workdir: epath.Path, config: Mapping, anew: bool = False) -> None:
    """Gives the workdir its identity, once everything that the config names is there.

    anew: also in the place of a run that computed nothing, of which nothing stays.
    """
    path = workdir / "config.json"
    if anew := anew and _never_ran(workdir):
        files.discard(workdir / checksums.NAME)
    if anew or not path.exists():
        files.save(path, json.dumps(jc.to_dict(config), indent=1) + "\n")
    if anew:
        for name in ("vary", "wandb", "decisions"):
            (workdir / name).rmtree(missing_ok=True)
        files.discard(workdir / "provenance.json")


def _never_ran(workdir: epath.Path) -> bool:
    """Whether it has a run that computed nothing, and that nobody waits to evaluate."""
    made = any(next(iter(workdir.glob(one)), None) for one in _MADE)
    begun = made or lock.is_held(workdir / "evaluate.lock")
    return not begun and (workdir / "provenance.json").exists()  # No other's config.


def _check_identity(
    workdir: epath.Path, config: Mapping[str, Any], command: str
) -> None:
    """Raise ValueError where a workdir holds a run of another config, or no run."""
    path = workdir / "config.json"
    if not path.exists():
        names = [p.name for p in workdir.iterdir()] if workdir.exists() else []
        if any(name[:1] != "." and name not in _FIRST for name in names):
            raise ValueError(
                f"workdir: {workdir} holds files but no run (no config.json); name "
                "another --workdir"
            )
        return
    held = files.read_json(path, dict, "restore it or name another --workdir")
    differing = jc.diff(held, config)
    if differing and not _never_ran(workdir):
        raise ValueError(
            _another_config(
                workdir,
                differing,
                first=provenance(workdir).get("command", ""),
                command=command,
            )
        )


def _another_config(
    workdir: epath.Path, differing: list[str], *, first: str, command: str
) -> str:
    """Return the message that a workdir holds a run of another config.

    first, command: the arguments that began the run, and those of now; "": not known.
    """
    begun = f"it was started with {first}" * bool(first)
    begun += f", not with {command}" * bool(first and command)
    remedy = f", or give {first} to resume the run" * bool(first)
    plural = "entry differs" if len(differing) == 1 else "entries differ"
    return (
        f"workdir: {workdir} holds another config: {begun}{'; ' * bool(begun)}"
        f"{len(differing)} {plural} (started != given): "
        f"{messages.join_differences(differing)}; name another --workdir{remedy}"
    )


def read_done(workdir: epath.Path) -> str:
    """Return how a run ended, "finished" or "diverged"; "" where it has not.

    OSError where that cannot be read. A file that says something else, as a power loss may
    leave it, is written anew when the run ends.
    """
    path = workdir / "done"
    if not path.exists():
        return ""
    with files.explain_os_errors("workdir"):
        content = path.read_bytes()
    ends = (b"finished", b"diverged")
    return content.strip().decode() if content.strip() in ends else ""


def software_versions() -> dict[str, Any]:
    """What runs here."""
    packages = {}
    for name in PACKAGES:
        packages[name] = "absent"
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            packages[name] = importlib.metadata.version(name)
    return {
        "code": {"version": jbias.__version__, "commit": _commit()},
        "packages": packages,
        "python": platform.python_version(),
    }


def environment() -> dict[str, Any]:
    """Return what the numbers may depend on beside the config."""
    device, several = jax.devices()[0], jax.process_count()
    found = {
        "platform": device.platform,
        "kind": device.device_kind,
        "count": jax.device_count(),
        "cores": len(os.sched_getaffinity(0)),
    }
    found |= {"processes": several} if several > 1 else {}
    settings = xla.recorded_settings()
    return {**software_versions(), "device": found, "settings": settings}


def data_identity(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What a resumed run must find as it was: the sets' contents, own algorithms."""
    sets = {
        name: {key: of.get(key) for key in ("n", "scored", "fingerprint", "answers")}
        for name, of in (facts.get("data") or {}).items()
    }
    return {"data": sets, "own_code": facts.get("own_code"), "init": facts.get("init")}


def check_own_code(workdir: epath.Path, digests: Mapping[str, str]) -> None:
    """Raise ValueError where the user's own code is not that with which a run began.

    digests: by file or package, as `build.user_file_digests` and
    `extensions.import_digests` return them. Where the run has computed nothing, or recorded
    no digest, nothing is compared.
    """
    first = provenance(workdir)
    recorded = {**(first.get("own_code") or {}), **(first.get("own_imports") or {})}
    changed = [
        name for name, digest in digests.items() if recorded.get(name, digest) != digest
    ]
    if changed and not _never_ran(workdir):
        name = changed[0]
        raise ValueError(
            f"workdir: {workdir}: {name} has changed since this run began (hash "
            f"{recorded[name]}, now {digests[name]}); restore it, give another --workdir, "
            "or give the new version a file name of its own, so that a report can hold both"
        )


def _commit() -> str | None:
    """The commit of the code's checkout, with "+" where it has changes of its own."""
    here = pathlib.Path(__file__).parents[2]

    def git(*arguments: str) -> str:
        quiet = dict(text=True, stderr=subprocess.DEVNULL)
        return subprocess.check_output(["git", "-C", here, *arguments], **quiet).strip()

    folders = ("jbias", "configs", "launch")
    try:
        # The package may lie inside another project's checkout.
        git("ls-files", "--error-unmatch", "jbias/__init__.py")
        changes = git("status", "--porcelain", "--untracked-files=no", "--", *folders)
        return git("rev-parse", "HEAD") + "+" * bool(changes)
    except (OSError, subprocess.SubprocessError):
        return None


def provenance(workdir: epath.Path) -> dict[str, Any]:
    """What a run stored of where its numbers come from; empty before it did.

    ValueError where that is damaged.
    """
    path = workdir / "provenance.json"
    remedy = "restore it, or delete it: its data are then no more compared with before"
    stored = files.read_json(path, dict, remedy) if path.exists() else {}
    sets, starts = stored.get("data") or {}, stored.get("resumed", [])
    whole = isinstance(sets, dict) and isinstance(starts, list)
    if not (whole and all(isinstance(of, dict) for of in sets.values())):
        raise ValueError(f"workdir: {path} is damaged; {remedy}")
    return stored


def record_provenance(workdir: epath.Path, facts: Mapping[str, Any]) -> list[str]:
    """Stores where the numbers come from; a later start of the run is appended.

    Returns what differs between this start and the first, as `key: one != other`.
    """
    path, at = workdir / "provenance.json", messages.utc_now()
    facts, differing = {**facts, **environment()}, []
    if path.exists():
        differing = _differing(workdir, facts)
        facts = provenance(workdir)
        facts.setdefault("resumed", []).append({"at": at, "differing": differing})
    else:
        facts = {"started": at, **facts, "resumed": []}
    files.save(path, json.dumps(facts, indent=1))
    return differing


def billed_devices(devices: jax.sharding.Mesh, cores: int = 0) -> costs.Devices:
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
    starts = [one for one in read_costs(workdir) if one["at"] != start["at"]]
    starts.append(dict(start))
    total = costs.total(starts)
    files.save(path, json.dumps({"starts": starts, "total": total}, indent=1))
    return total


def read_costs(workdir: epath.Path) -> list[dict[str, Any]]:
    """What costs.json says of each start; ValueError where it is damaged."""
    path = workdir / "costs.json"
    if not path.exists():
        return []
    remedy = "restore it, or delete it: costs are then counted from now on"
    starts = files.read_json(path, dict, remedy).get("starts")
    try:
        costs.total(starts)
        {one["at"]: one["step"] for one in starts}
    except (KeyError, TypeError, AttributeError, ValueError):
        raise ValueError(f"workdir: {path} is damaged; {remedy}") from None
    return starts


def record_follower(
    workdir: epath.Path, facts: Mapping[str, Any], *, layout: Mapping[str, Any]
) -> list[str]:
    """Record that this process begins to evaluate a run that another process trains.

    In a file of its own, evaluate.json, as the other process writes too. layout: how this
    process evaluates. Returns as `record_provenance` does, with what differs of `layout`.
    """
    path, at = workdir / "evaluate.json", messages.utc_now()
    differing = _differing(workdir, {**facts, **environment()})
    trainer = (provenance(workdir).get("layout") or {}).get("folded_norms")
    if trainer != layout.get("folded_norms"):
        pair = {} if trainer is None else {"folded_norms": trainer}
        differing += jc.diff({"layout": pair}, {"layout": dict(layout)})
    before = files.read_json(path, list, "delete it") if path.exists() else []
    starts = [*before, {"at": at, "differing": differing, "layout": dict(layout)}]
    files.save(path, json.dumps(starts, indent=1))
    return differing


def _differing(workdir: epath.Path, facts: Mapping[str, Any]) -> list[str]:
    """What differs from the run's first start; ValueError where it must not."""
    first, facts = provenance(workdir), json.loads(json.dumps(facts))
    digests = {**(facts.get("own_code") or {}), **(facts.get("own_imports") or {})}
    check_own_code(workdir, digests)
    held = {key: first.get(key) for key in facts}
    if changed := jc.diff(data_identity(held), data_identity(facts)):
        raise ValueError(
            f"workdir: {workdir} was begun with other data or code (then != now): "
            f"{messages.join_differences(changed)}; restore them or name another --workdir"
        )
    parts = ["code", "packages", "python", "device", "layout"]
    if "settings" in first:  # Runs begun before they were recorded have none.
        parts.append("settings")
    return jc.diff(*({key: of.get(key) for key in parts} for of in (held, facts)))
