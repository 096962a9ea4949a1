"""Runs trials as managed jobs of SkyPilot, which finds machines and replaces lost ones.

One task for all of them, queued once for each: a job's rank says which run it is.
Source: https://docs.skypilot.co/en/stable/reference/yaml-spec.html. Never run against a cloud; docs/launch.md says what was tried.
"""

import importlib.util
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml

from jbias.launch import trials

OPTIONS = {
    "bucket": "",  # Mounted at /runs, where workdirs are: gs://bucket or s3://bucket.
    "accelerators": "H100:1",  # Or tpu-v6e-8.
    "extra": "gpu",  # Of the installation: gpu or tpu.
    "infra": "",  # Such as gcp/us-east5; "" is wherever it is cheapest.
    "spot": True,
    "pool": "",  # Whose machines, which stay and have the bucket and jbias, run the jobs.
}
NEEDED = ("bucket",)
_RUNS = "/runs"


def task(todo: Sequence[trials.Trial], options: Mapping[str, Any]) -> dict[str, Any]:
    """All trials as a SkyPilot task, for as many jobs."""
    kind = options["accelerators"]
    trials.check_devices(todo, f"sky:accelerators={kind}", trials.host_count(kind))
    resources = {"accelerators": kind, "use_spot": options["spot"]}
    resources |= {"infra": options["infra"]} if options["infra"] else {}
    commands = (shlex.join(trials.command(one, "python", _RUNS)) for one in todo)
    cases = [f"{rank}) {command} ;;" for rank, command in enumerate(commands)]
    run = "\n".join(['case "$SKYPILOT_JOB_RANK" in', *cases, "esac", ""])
    name = trials.label(todo[0]) if len(todo) == 1 else "jbias"
    made = {"name": name, "resources": resources, "run": run}
    if not options["pool"]:
        made["workdir"] = "."
        made["file_mounts"] = {_RUNS: {"source": options["bucket"], "mode": "MOUNT"}}
        made["setup"] = f"pip install -q {shlex.quote('.[' + options['extra'] + ']')}"
    return made


def script(todo: Sequence[trials.Trial], options: Mapping[str, Any]) -> str:
    """The task as YAML, as `sky jobs launch --num-jobs` takes it."""
    pool = f" --pool={shlex.quote(options['pool'])}" if options["pool"] else ""
    head = f"# sky jobs launch --num-jobs={len(todo)}{pool} task.yaml\n"
    return head + yaml.safe_dump(task(todo, options), sort_keys=False, width=10**6)


def start(
    todo: Sequence[trials.Trial], options: Mapping[str, Any], say: Callable[[str], None]
) -> None:
    """Queues a managed job for each trial."""
    if not importlib.util.find_spec("sky"):
        raise ValueError("--on=sky: needs SkyPilot; pip install 'jbias[sky]'")
    import sky

    made = sky.Task.from_yaml_config(task(todo, options))
    pool, count = options["pool"] or None, len(todo)
    try:
        numbers, _ = sky.get(sky.jobs.launch(made, pool=pool, num_jobs=count))
    except Exception as error:  # Of clouds, credentials, the server of SkyPilot's API.
        raise ValueError(f"--on=sky: {type(error).__name__}: {error}") from error
    say(f"managed jobs: {numbers}; sky jobs queue shows them")
