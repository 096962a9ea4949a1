"""Runs trials as workloads of a GKE cluster, by xpk: one each, queued by Kueue.

Never run against the cloud; docs/launch.md says what was tried.
Source: https://github.com/AI-Hypercomputer/xpk.
"""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from jbias.launch import trials
from jbias.runtime import signals

OPTIONS = {
    "runs": "",  # Where workdirs are, for all hosts: gs://bucket/runs.
    "cluster": "",
    "zone": "",
    "project": "",
    "image": "",
    "type": "v6e-8",  # What --tpu-type takes.
    "slices": 1,
    "restarts": 10,  # Of a workload whose hosts are lost.
    "python": "python",
}
NEEDED = ("runs", "cluster", "zone", "project", "image")
PROGRAM = "xpk"
_FLAGS = {  # xpk's, by option.
    **{key: key for key in ("cluster", "zone", "project")},
    "type": "tpu-type",
    "slices": "num-slices",
    "restarts": "max-restarts",
    "image": "docker-image",
}


def script(todo: Sequence[trials.Trial], options: Mapping[str, Any]) -> str:
    """A program of bash that creates a workload for each trial."""
    kind = options["type"]
    hosts = trials.host_count(kind, chips=4) * options["slices"]
    trials.check_devices(todo, f"xpk:type={kind}", hosts)
    lines = ["#!/usr/bin/env bash", "set -euo pipefail"]
    given = {flag: options[key] for key, flag in _FLAGS.items()}
    given["restart-on-exit-codes"] = signals.EXIT_LOST
    for trial in todo:
        command = trials.command(trial, options["python"], options["runs"])
        given |= {"workload": trials.label(trial), "command": shlex.join(command)}
        for key, value in given.items():
            if not str(value).isprintable():
                raise ValueError(
                    f"--on=xpk: {key} must be one line without control characters, as xpk "
                    f"puts it into YAML as it is, got {value!r}"
                )
        flags = (f"--{key}={value}" for key, value in given.items())
        lines.append(shlex.join(["xpk", "workload", "create", *flags]))
    return "\n".join(lines) + "\n"
