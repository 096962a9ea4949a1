"""Runs trials as managed jobs of SkyPilot, which finds machines and replaces lost ones.

Never run against a cloud: the tasks are checked against SkyPilot's own schema, the script
by shellcheck. Source: https://docs.skypilot.co/en/stable/reference/yaml-spec.html.
"""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from jbias.launch import trials

OPTIONS = {
    "bucket": "",  # Mounted at /runs, where workdirs are: gs://bucket or s3://bucket.
    "accelerators": "H100:1",  # Or tpu-v6e-8.
    "extra": "gpu",  # Of the installation: gpu or tpu.
    "infra": "",  # Such as gcp/us-east5; "" is wherever it is cheapest.
    "spot": True,
}
NEEDED = ("bucket",)
PROGRAM = "sky"
_RUNS = "/runs"


def task(trial: trials.Trial, options: Mapping[str, Any]) -> dict[str, Any]:
    """A trial as SkyPilot's task."""
    resources = {"accelerators": options["accelerators"], "use_spot": options["spot"]}
    if options["infra"]:
        resources["infra"] = options["infra"]
    command = trials.shell_line(trials.command(trial, "python", _RUNS))
    return {
        "name": trials.label(trial),
        "resources": resources,
        "workdir": ".",
        "file_mounts": {_RUNS: {"source": options["bucket"], "mode": "MOUNT"}},
        "setup": f"pip install -q {shlex.quote('.[' + options['extra'] + ']')}",
        "run": command,
    }


def script(todo: Sequence[trials.Trial], options: Mapping[str, Any]) -> str:
    """A program of bash that hands each trial to SkyPilot."""
    if trials.host_count(options["accelerators"]) > 1:
        trials.check_devices(todo, f"sky:accelerators={options['accelerators']}")
    lines = [
        "#!/usr/bin/env bash",
        "# Queues one managed job for each run; a lost machine is replaced, and it resumes.",
        "set -euo pipefail",
        "task=$(mktemp --suffix=.yaml)",
        "trap 'rm -f \"$task\"' EXIT",
        "",
    ]
    for trial in todo:
        text = yaml.safe_dump(task(trial, options), sort_keys=False, width=10**6)
        mark = "TASK"
        while mark in text:
            mark += "_"
        lines += [f"cat >\"$task\" <<'{mark}'", text.rstrip("\n"), mark]
        lines.append('sky jobs launch --yes --detach-run "$task"')
    return "\n".join(lines) + "\n"
