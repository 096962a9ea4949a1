"""Executor that runs trials as managed jobs of SkyPilot, which finds machines for them.

One task serves all trials: it is queued once per trial, and a job's rank selects the trial.
Make a pool with `sky jobs pool apply -p NAME pool.yaml`, where pool.yaml is the output of
--dry-run without `pool`, with `pool: {workers: 4}` instead of `run`.
Source: https://docs.skypilot.co/en/stable/reference/yaml-spec.html. Not tested in a cloud;
docs/launch.md lists the tests.
"""

import importlib.util
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml

from jbias.launch import trials

OPTIONS = {
    "bucket": "",  # gs://BUCKET or s3://BUCKET, mounted at /runs, for the workdirs.
    "accelerators": "H100:1",  # Or tpu-v6e-8.
    "extra": "gpu",  # Extra of jbias to install: gpu or tpu.
    "infra": "",  # Such as gcp/us-east5; "": the cheapest.
    "spot": True,
    "pool": "",  # A pool of machines that have the bucket and jbias already.
}
NEEDED = ("bucket",)
_RUNS = "/runs"


def task(todo: Sequence[trials.Trial], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a SkyPilot task, as nested dicts, that runs the trial with the job's rank.

    options: of --on=sky. ValueError for trials that cannot run on the machines.
    """
    kind = options["accelerators"]
    trials.check_devices(
        todo, f"sky:accelerators={kind}", hosts=trials.host_count(kind)
    )
    resources = {"accelerators": kind, "use_spot": options["spot"]}
    if options["infra"]:
        resources["infra"] = options["infra"]
    commands = [
        shlex.join(trials.command(trial, "python", runs=_RUNS)) for trial in todo
    ]
    cases = [f"{rank}) {command} ;;" for rank, command in enumerate(commands)]
    run = "\n".join(['case "$SKYPILOT_JOB_RANK" in', *cases, "esac", ""])
    name = trials.label(todo[0]) if len(todo) == 1 else "jbias"
    config = {"name": name, "resources": resources, "run": run}
    if not options["pool"]:
        config["workdir"] = "."
        config["file_mounts"] = {_RUNS: {"source": options["bucket"], "mode": "MOUNT"}}
        config["setup"] = f"pip install -q {shlex.quote('.[' + options['extra'] + ']')}"
    return config


def script(todo: Sequence[trials.Trial], options: Mapping[str, Any]) -> str:
    """Return the task of `task` as YAML for `sky jobs launch --num-jobs`."""
    pool = f" --pool={shlex.quote(options['pool'])}" if options["pool"] else ""
    head = f"# sky jobs launch --num-jobs={len(todo)}{pool} task.yaml\n"
    return head + yaml.safe_dump(task(todo, options), sort_keys=False, width=10**6)


def start(
    todo: Sequence[trials.Trial], options: Mapping[str, Any], say: Callable[[str], None]
) -> None:
    """Queue a managed job for each trial, and log the numbers of the jobs.

    options: of --on=sky. say: logs a line.
    """
    if not importlib.util.find_spec("sky"):
        raise ValueError("--on=sky: needs SkyPilot; pip install 'jbias[sky]'")
    import sky

    sky_task = sky.Task.from_yaml_config(task(todo, options))
    pool = options["pool"] or None
    try:
        request = sky.jobs.launch(sky_task, pool=pool, num_jobs=len(todo))
        numbers, _ = sky.get(request)
    # Errors of clouds, credentials and SkyPilot's API server have no common type.
    except Exception as error:
        raise ValueError(f"--on=sky: {type(error).__name__}: {error}") from error
    say(f"managed jobs: {numbers}; sky jobs queue shows them")
