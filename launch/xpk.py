"""Executor that runs each trial as a workload of a GKE cluster, by xpk.

Kueue queues the workloads. Not tested in a cloud; docs/launch.md lists the tests.
Source: https://github.com/AI-Hypercomputer/xpk.
"""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from jbias.launch import trials
from jbias.runtime import signals

OPTIONS = {
    "runs": "",  # Folder of the workdirs, for all hosts: gs://BUCKET/runs.
    "cluster": "",
    "zone": "",
    "project": "",
    "image": "",
    "type": "v6e-8",  # The value of xpk's --tpu-type.
    "slices": 1,
    "restarts": 10,  # Maximum number per workload after the loss of a host.
    "python": "python",
}
NEEDED = ("runs", "cluster", "zone", "project", "image")
PROGRAM = "xpk"
_FLAGS = {  # Flags of xpk by option.
    "cluster": "cluster",
    "zone": "zone",
    "project": "project",
    "type": "tpu-type",
    "slices": "num-slices",
    "restarts": "max-restarts",
    "image": "docker-image",
}


def script(todo: Sequence[trials.Trial], options: Mapping[str, Any]) -> str:
    """Return a bash script that creates an xpk workload for each trial.

    options: of --on=xpk. ValueError for values that xpk cannot write into YAML, and for
    trials that cannot run on several hosts.
    """
    kind = options["type"]
    hosts = trials.host_count(kind, chips=4) * options["slices"]
    trials.check_devices(todo, f"xpk:type={kind}", hosts=hosts)
    lines = ["#!/usr/bin/env bash", "set -euo pipefail"]
    for trial in todo:
        command = trials.command(trial, options["python"], runs=options["runs"])
        values = {
            **{flag: options[key] for key, flag in _FLAGS.items()},
            "restart-on-exit-codes": signals.EXIT_LOST,
            "workload": trials.label(trial),
            "command": shlex.join(command),
        }
        for flag, value in values.items():
            if not str(value).isprintable():
                raise ValueError(
                    f"--on=xpk: {flag} must be one line without control characters, "
                    f"because xpk copies it into YAML, got {value!r}"
                )
        flags = [f"--{flag}={value}" for flag, value in values.items()]
        lines.append(shlex.join(["xpk", "workload", "create", *flags]))
    return "\n".join(lines) + "\n"
