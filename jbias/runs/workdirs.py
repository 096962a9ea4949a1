"""The workdir of a run: its lock, config, provenance and costs."""

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
from jbias.runtime import files, messages, workdir_lock, xla

# Packages whose versions are recorded.
PACKAGES = (
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "orbax-checkpoint",
    "numpy",
    "pillow",
    "grain",
    "array-record",
    "simplejpeg",
    "cykooz-resizer",
)

# Files that are deleted with the workdir if nothing else is in it.
_TEMPORARY = ("lock", "log.txt", "log.jsonl")
# Files that jbias may write to a workdir before its config.json.
_EARLY_FILES = (*_TEMPORARY, "evaluate.lock", "traceback.txt", "stopped.json")
# Files of a run that has computed something.
_RESULTS = ("checkpoints/*", "replaced/*", "evals/*", "vary/*/evals/*", "done")


@contextlib.contextmanager
def claim(
    workdir: epath.Path,
    config: Mapping[str, Any],
    say: messages.Say = messages.print_text,
    *,
    command: str = "",
) -> Iterator[workdir_lock.Lock]:
    """Lock a workdir, which is created if needed, for training with a config; yield the lock.

    If the context raises an error other than an OSError or a plain ValueError, the traceback is
    written to the workdir. A workdir that has only a lock and logs after the context is removed.

    say: logs a line about a lock that is taken over.
    command: the arguments that name the config, for an error about another config.
    ValueError if the workdir has results of another config (the message names the entries that
    differ), if the workdir has files but no run, or if another process trains in the workdir.
    ValueError, too, if its config.json, provenance.json or costs.json is damaged, and for a gs://
    workdir with options that need local files.
    """
    if files.is_remote(workdir):
        _check_remote(workdir, config)
    checksums.check(workdir, checksums.is_fact)
    _check_identity(workdir, config, command)
    provenance(workdir)
    read_costs(workdir)
    with files.translate_os_errors(f"workdir {workdir}"):
        workdir.mkdir(parents=True, exist_ok=True)
    with workdir_lock.acquire(
        workdir / "lock", f"is at work in {workdir}", say
    ) as run_lock:
        try:
            # Again, because the previous owner of the lock may have started a run.
            _check_identity(workdir, config, command)
            yield run_lock
        except OSError:
            files.stop_retrying(workdir)
            raise
        except Exception as error:
            is_refusal = isinstance(error, ValueError)
            if not is_refusal or isinstance(error, messages.UserCodeError):
                messages.save_traceback(error, workdir, run_lock.check)
            raise
        finally:
            with contextlib.suppress(OSError):
                run_lock.check()  # Raises if another process has taken the workdir over.
                if all(path.name in _TEMPORARY for path in workdir.iterdir()):
                    for name in _TEMPORARY:
                        files.discard(workdir / name)
                    workdir.rmdir()


def _check_remote(workdir: epath.Path, config: Mapping[str, Any]) -> None:
    """Raise ValueError for a gs:// workdir with options that need local files.

    The options are config.run.write and config.run.profile, with other values than "" and False.
    """
    files.resolve(workdir)
    for key, default in (("write", ""), ("profile", False)):
        if config.get("run", {}).get(key, default) != default:
            raise ValueError(
                f"config.run.{key}: is written to a local directory only, not to "
                f"{workdir}; leave it out, or name a local --workdir"
            )


def claim_evaluation(
    workdir: epath.Path, say: messages.Say = messages.print_text
) -> contextlib.AbstractContextManager[workdir_lock.Lock]:
    """Return a context that locks a run for evaluation and yields the lock.

    say: logs a line about a lock that is taken over. ValueError if another process has the lock.
    """
    return workdir_lock.acquire(workdir / "evaluate.lock", f"evaluates {workdir}", say)


def record_run(
    workdir: epath.Path, spec: run_spec.RunSpec, entries: Mapping[str, Any]
) -> list[str]:
    """Write config.json and provenance.json to the workdir and to the branches' folders.

    An existing config.json is replaced only if the workdir has a run without results
    (`never_ran`). Old checksums of both files are removed.
    entries: entries of the provenance, in addition to `environment`. Returns the differences
    between the first start and this start, as `record_provenance` does. ValueError as
    `record_provenance` raises it.
    """
    record_config(workdir, spec.config, anew=True)
    # A kill while the files are rewritten must not leave them with old checksums.
    sums = checksums.read(workdir)
    if sums:
        record_sums = {k: v for k, v in sums.items() if not checksums.is_fact(k)}
        checksums.write(workdir, record_sums)
    differing = record_provenance(workdir, entries)
    for branch in spec.branches if spec.config["vary"] else ():
        folder = workdir / branch.folder
        folder.mkdir(parents=True, exist_ok=True)
        record_config(folder, branch.config)
        record_provenance(folder, {**entries, "config": branch.config})
    return differing


def record_config(
    workdir: epath.Path, config: Mapping[str, Any], anew: bool = False
) -> None:
    """Write config.json to a workdir unless it exists.

    anew: True to delete the files of an earlier run that has computed nothing
    (`never_ran`), and to write config.json again.
    """
    path = workdir / "config.json"
    replaces_run = anew and never_ran(workdir)
    if replaces_run:
        files.discard(workdir / checksums.NAME)
    if replaces_run or not path.exists():
        files.save(path, json.dumps(jc.to_dict(config), indent=1) + "\n")
    if replaces_run:
        for name in ("vary", "wandb", "decisions"):
            (workdir / name).rmtree(missing_ok=True)
        files.discard(workdir / "provenance.json")


def never_ran(workdir: epath.Path) -> bool:
    """Return True if a workdir has a run without results, and no process waits to evaluate it.

    False if the workdir has no run.
    """
    has_results = any(next(iter(workdir.glob(x)), None) for x in _RESULTS)
    is_in_use = has_results or workdir_lock.is_held(workdir / "evaluate.lock")
    # Without a provenance.json, the config.json may be the user's own file.
    return not is_in_use and (workdir / "provenance.json").exists()


def _check_identity(
    workdir: epath.Path, config: Mapping[str, Any], command: str
) -> None:
    """Raise ValueError if the workdir has a run of another config, or files but no run.

    A run without results (`never_ran`), hidden files and `_EARLY_FILES` are allowed. command: the
    command's arguments, for the message; "" if unknown.
    """
    path = workdir / "config.json"
    if not path.exists():
        names = [p.name for p in workdir.iterdir()] if workdir.exists() else []
        if any(name[:1] != "." and name not in _EARLY_FILES for name in names):
            raise ValueError(
                f"workdir: {workdir} holds files but no run (no config.json); name "
                "another --workdir"
            )
        return
    old_config = files.read_json(path, dict, "restore it or name another --workdir")
    differing = jc.diff(old_config, config)
    if differing and not never_ran(workdir):
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
    """Return the message that a workdir has a run of another config.

    differing: lines "key: old != new". first: the arguments that started the run; command:
    the arguments of this command; both "" if unknown.
    """
    origin, remedy = "", ""
    if first and first == command:
        origin = f"the config of {first} has changed since the run was started; "
    elif first:
        not_with = f", not with {command}" if command else ""
        origin = f"it was started with {first}{not_with}; "
        remedy = f", or give {first} to resume the run"
    plural = "entry differs" if len(differing) == 1 else "entries differ"
    return (
        f"workdir: {workdir} holds another config: {origin}"
        f"{len(differing)} {plural} (started != given): "
        f"{messages.join_differences(differing)}; name another --workdir{remedy}"
    )


def read_done(workdir: epath.Path) -> str:
    """Return "finished" or "diverged" for a run that has ended, else "".

    OSError if the file `done` cannot be read. For other content, which a loss of power may leave,
    return "": the run rewrites the file when it ends.
    """
    path = workdir / "done"
    if not path.exists():
        return ""
    with files.explain_os_errors("workdir"):
        content = path.read_bytes()
    ends = (b"finished", b"diverged")
    return content.strip().decode() if content.strip() in ends else ""


def software_versions() -> dict[str, Any]:
    """Return the versions of jbias, its packages and Python by name, and jbias's commit.

    Keys: "code" ("version" and "commit"), "packages" (by name; "absent" if not installed) and
    "python".
    """
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
    """Return the software, devices and settings that results may depend on, by name.

    Keys: the keys of `software_versions`, "device" (of jax, with the number of CPU cores) and
    "settings" (of XLA).
    """
    first_device, num_processes = jax.devices()[0], jax.process_count()
    device = {
        "platform": first_device.platform,
        "kind": first_device.device_kind,
        "count": jax.device_count(),
        "cores": len(os.sched_getaffinity(0)),
    }
    if num_processes > 1:
        device["processes"] = num_processes
    settings = xla.recorded_settings()
    return {**software_versions(), "device": device, "settings": settings}


def data_identity(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a provenance that a resumed run must not change.

    Keys: "data" (for each data set, a dict of n, scored, fingerprint and answers: the numbers of
    images and of scored images, and the digests of the images and of the class map), "own_code"
    (digests of the user's code) and "init" (digest of the initial weights). A missing entry is
    None. recorded: content of provenance.json.
    """
    keys = ("n", "scored", "fingerprint", "answers")
    sets = {
        name: {key: dataset.get(key) for key in keys}
        for name, dataset in (recorded.get("data") or {}).items()
    }
    return {
        "data": sets,
        "own_code": recorded.get("own_code"),
        "init": recorded.get("init"),
    }


def check_own_code(workdir: epath.Path, digests: Mapping[str, str]) -> None:
    """Raise ValueError if the user's own code has changed since the run started.

    digests: by file or package, as `build.user_file_digests` and
    `extensions.import_digests` return them. A run without results or without recorded
    digests passes.
    """
    first = provenance(workdir)
    recorded = {**(first.get("own_code") or {}), **(first.get("own_imports") or {})}
    changed = [
        name for name, digest in digests.items() if recorded.get(name, digest) != digest
    ]
    if changed and not never_ran(workdir):
        name = changed[0]
        raise ValueError(
            f"workdir: {workdir}: {name} has changed since this run began (hash "
            f"{recorded[name]}, now {digests[name]}); restore it, give another --workdir, "
            "or give the new version a file name of its own, so that a report can hold both"
        )


def _commit() -> str | None:
    """Return the git commit of jbias's checkout, followed by "+" if files are changed.

    Only changes of tracked files in jbias, configs and launch are considered. None if jbias is not
    run from a git checkout.
    """
    checkout = pathlib.Path(__file__).parents[2]

    def git(*arguments: str) -> str:
        """Return the output of a git command in the checkout."""
        output = subprocess.check_output(
            ["git", "-C", checkout, *arguments], text=True, stderr=subprocess.DEVNULL
        )
        return output.strip()

    try:
        # Fails if the package is installed inside another project's checkout.
        git("ls-files", "--error-unmatch", "jbias/__init__.py")
        changes = git(
            "status",
            "--porcelain",
            "--untracked-files=no",
            "--",
            "jbias",
            "configs",
            "launch",
        )
        return git("rev-parse", "HEAD") + ("+" if changes else "")
    except (OSError, subprocess.SubprocessError):
        return None


def provenance(workdir: epath.Path) -> dict[str, Any]:
    """Return the content of provenance.json; {} if the file is missing.

    Keys: "started" (time of the first start, in UTC), the entries that `record_provenance` got at
    the first start, the keys of `environment`, and "resumed" (for each later start, a dict of "at"
    and "differing"). ValueError if the file is damaged.
    """
    path = workdir / "provenance.json"
    remedy = (
        "restore it, or delete it: later starts then do not compare their data with it"
    )
    stored = files.read_json(path, dict, remedy) if path.exists() else {}
    sets, starts = stored.get("data") or {}, stored.get("resumed", [])
    is_intact = isinstance(sets, dict) and isinstance(starts, list)
    if not (is_intact and all(isinstance(x, dict) for x in sets.values())):
        raise ValueError(f"workdir: {path} is damaged; {remedy}")
    return stored


def record_provenance(workdir: epath.Path, entries: Mapping[str, Any]) -> list[str]:
    """Write provenance.json at the first start; append to it at later starts.

    entries: entries of the provenance, in addition to `environment`.
    Returns the differences between the first start and this start, "key: first != now".
    ValueError if the data sets, the initial weights or the user's code differ.
    """
    path, at = workdir / "provenance.json", messages.utc_now()
    all_entries, differing = {**entries, **environment()}, []
    if path.exists():
        differing = _differences_from_first(workdir, all_entries)
        content = provenance(workdir)
        content.setdefault("resumed", []).append({"at": at, "differing": differing})
    else:
        content = {"started": at, **all_entries, "resumed": []}
    files.save(path, json.dumps(content, indent=1))
    return differing


def record_graphs(workdir: epath.Path, description: str) -> None:
    """Write a description of the steps that run as CUDA graphs to provenance.json.

    The description is the entry "graphs" of "layout".
    """
    content = provenance(workdir)
    content["layout"] = {**(content.get("layout") or {}), "graphs": description}
    files.save(workdir / "provenance.json", json.dumps(content, indent=1))


def billed_devices(mesh: jax.sharding.Mesh, cores: int = 0) -> costs.Devices:
    """Return the kind and number of devices of a mesh for `costs`; for CPUs, the number of cores.

    cores: number of CPU cores; 0: the cores that this process may use.
    """
    first_device = mesh.devices.flat[0]
    if first_device.platform == "cpu":
        return costs.Devices("cpu", cores or len(os.sched_getaffinity(0)))
    return costs.Devices(first_device.device_kind, mesh.size)


def record_cost(workdir: epath.Path, start: Mapping[str, Any]) -> dict[str, Any]:
    """Write the cost of this start of the run to costs.json; return `costs.total` of all starts.

    start: as `costs.of_start` returns it; replaces earlier numbers of this start. If the
    process is killed, its cost since the last call of this function is missing.
    """
    path = workdir / "costs.json"
    starts = [x for x in read_costs(workdir) if x["at"] != start["at"]]
    starts.append(dict(start))
    total = costs.total(starts)
    files.save(path, json.dumps({"starts": starts, "total": total}, indent=1))
    return total


def read_costs(workdir: epath.Path) -> list[dict[str, Any]]:
    """Return the cost of each start of a run, as `costs.of_start` returns it, in order.

    Empty if there is no costs.json. ValueError if costs.json is damaged.
    """
    path = workdir / "costs.json"
    if not path.exists():
        return []
    remedy = "restore it, or delete it: costs are then counted from now on"
    starts = files.read_json(path, dict, remedy).get("starts")
    try:
        costs.total(starts)
        {start["at"]: start["step"] for start in starts}
    except (KeyError, TypeError, AttributeError, ValueError):
        raise ValueError(f"workdir: {path} is damaged; {remedy}") from None
    return starts


def record_follower(
    workdir: epath.Path, entries: Mapping[str, Any], *, layout: Mapping[str, Any]
) -> list[str]:
    """Record in evaluate.json that this process evaluates a run that another process trains.

    The other process writes provenance.json.

    entries: entries of this process's provenance, in addition to `environment`. layout:
    settings by which this process evaluates. Returns lines "key: first != now" with the differences
    of the environment, entries and layout from the run's first start. ValueError as
    `record_provenance` raises it.
    """
    path, at = workdir / "evaluate.json", messages.utc_now()
    differing = _differences_from_first(workdir, {**entries, **environment()})
    folded_norms = (provenance(workdir).get("layout") or {}).get("folded_norms")
    if folded_norms != layout.get("folded_norms"):
        run_layout = {} if folded_norms is None else {"folded_norms": folded_norms}
        differing += jc.diff({"layout": run_layout}, {"layout": dict(layout)})
    old_starts = files.read_json(path, list, "delete it") if path.exists() else []
    starts = [*old_starts, {"at": at, "differing": differing, "layout": dict(layout)}]
    files.save(path, json.dumps(starts, indent=1))
    return differing


def _differences_from_first(
    workdir: epath.Path, entries: Mapping[str, Any]
) -> list[str]:
    """Return lines "key: first != now": differences in software and devices between starts.

    Compared are code, packages, python, device, layout and, if the first start has them, settings.
    entries: entries of this process's provenance, compared with the run's first start. ValueError
    if the data sets, the initial weights or the user's code differ.
    """
    first, new = provenance(workdir), json.loads(json.dumps(entries))
    digests = {**(new.get("own_code") or {}), **(new.get("own_imports") or {})}
    check_own_code(workdir, digests)
    then = {key: first.get(key) for key in new}
    changed = jc.diff(data_identity(then), data_identity(new))
    if changed:
        raise ValueError(
            f"workdir: {workdir} was begun with other data or code (then != now): "
            f"{messages.join_differences(changed)}; restore them or name another --workdir"
        )
    keys = ["code", "packages", "python", "device", "layout"]
    if "settings" in first:  # Older runs have no settings.
        keys.append("settings")
    return jc.diff(
        {key: then.get(key) for key in keys}, {key: new.get(key) for key in keys}
    )
