"""Trains one run on a TPU slice that is a queued resource (gcloud); for more: sky, xpk.

Never run against the cloud: the script is checked by shellcheck, and the train step by
lowering it for TPUs. Source of the commands:
https://docs.cloud.google.com/tpu/docs/queued-resources and .../tpu/docs/jax-pods.
"""

import pathlib
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from jbias.launch import trials

OPTIONS = {
    "runs": "",  # Where workdirs are, for all hosts: gs://bucket/runs.
    "zone": "",
    "type": "v6e-8",  # What --accelerator-type takes.
    "runtime": "v2-alpha-tpuv6e",
    "name": "jbias",
    "python": "python3.11",
    "spot": False,
}
NEEDED = ("runs", "zone")
PROGRAM = "gcloud"

_SCRIPT = pathlib.Path(__file__).with_suffix(".sh")


def script(todo: Sequence[trials.Trial], options: Mapping[str, Any]) -> str:
    """A program of bash that asks for the slice, trains on all its hosts, and frees it."""
    if len(todo) > 1:
        raise ValueError(
            f"--on=tpu_pod: trains one run, got {len(todo)} trials; take --on=sky or xpk"
        )
    kind = options["type"]
    trials.check_devices(todo, f"tpu_pod:type={kind}", trials.host_count(kind))
    command = trials.command(todo[0], "../env/bin/python", options["runs"])
    told = {key: options[key] for key in ("name", "zone", "type", "runtime", "python")}
    told["spot"] = "yes" if options["spot"] else ""
    told["run"] = f"cd jbias && {shlex.join(command)}"
    lines = [f"{key}={shlex.quote(value)}" for key, value in told.items()]
    return "\n".join(["#!/usr/bin/env bash", *lines, _SCRIPT.read_text("utf-8")])
