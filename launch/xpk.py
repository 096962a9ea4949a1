"""Runs trials as workloads of a GKE cluster, by xpk: one each, queued by Kueue.

Never run against the cloud: the script is checked by shellcheck, and its flags against
those that xpk 1.16 has. Source: https://github.com/AI-Hypercomputer/xpk.
"""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from jbias.launch import trials

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


def script(todo: Sequence[trials.Trial], options: Mapping[str, Any]) -> str:
    """A program of bash that creates a workload for each trial."""
    if trials.host_count(options["type"]) > 1 or options["slices"] > 1:
        trials.check_devices(todo, f"xpk:type={options['type']}")
    lines = [
        "#!/usr/bin/env bash",
        "# Creates one workload for each run; a lost one is started again, and resumes.",
        "set -euo pipefail",
        "",
    ]
    for trial in todo:
        command = trials.command(trial, options["python"], options["runs"])
        given = {
            "cluster": options["cluster"],
            "zone": options["zone"],
            "project": options["project"],
            "workload": trials.label(trial),
            "tpu-type": options["type"],
            "num-slices": options["slices"],
            "max-restarts": options["restarts"],
            "docker-image": options["image"],
            "command": trials.shell_line(command),
        }
        for key, value in given.items():
            _check(key, str(value))
        flags = [f"--{key}={shlex.quote(str(value))}" for key, value in given.items()]
        lines.append(" \\\n  ".join(["xpk workload create", *flags]))
    return "\n".join(lines) + "\n"


def _check(key: str, value: str) -> None:
    if not value.isprintable():
        raise ValueError(
            f"--on=xpk: {key} must be one line without control characters, as xpk puts "
            f"it into YAML as it is, got {value!r}"
        )
