"""Executor that trains one run on a TPU slice, a queued resource of gcloud.

For several runs use sky or xpk. Not tested in the cloud: the script is checked by
shellcheck, and the train step by lowering it for TPUs. Source of the commands:
https://docs.cloud.google.com/tpu/docs/queued-resources and .../tpu/docs/jax-pods.
"""

import pathlib
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from jbias.launch import trials

OPTIONS = {
    "runs": "",  # Folder of the workdirs, for all hosts: gs://BUCKET/runs.
    "zone": "",
    "type": "v6e-8",  # The value of gcloud's --accelerator-type.
    "runtime": "v2-alpha-tpuv6e",
    "name": "jbias",
    "python": "python3.11",
    "spot": False,
}
NEEDED = ("runs", "zone")
PROGRAM = "gcloud"

_SCRIPT = pathlib.Path(__file__).with_suffix(".sh")


def script(todo: Sequence[trials.Trial], options: Mapping[str, Any]) -> str:
    """Return a bash script that requests a TPU slice, trains a trial and deletes the slice.

    todo: one trial. options: of --on=tpu_pod. ValueError for several trials.
    """
    if len(todo) > 1:
        raise ValueError(
            f"--on=tpu_pod: trains one run, got {len(todo)} trials; take --on=sky or xpk"
        )
    kind = options["type"]
    trials.check_devices(todo, f"tpu_pod:type={kind}", hosts=trials.host_count(kind))
    command = trials.command(todo[0], "../env/bin/python", runs=options["runs"])
    names = ("name", "zone", "type", "runtime", "python")
    variables = {name: options[name] for name in names}
    variables["spot"] = "yes" if options["spot"] else ""
    variables["run"] = f"cd jbias && {shlex.join(command)}"
    lines = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    return "\n".join(["#!/usr/bin/env bash", *lines, _SCRIPT.read_text("utf-8")])
