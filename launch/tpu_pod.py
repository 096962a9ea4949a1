"""Runs trials one after another on one TPU slice that is a queued resource (gcloud).

Never run against the cloud: the script is checked by shellcheck, and the train step by
lowering it for TPUs. Source of the commands:
https://docs.cloud.google.com/tpu/docs/queued-resources and .../tpu/docs/jax-pods.
"""

import pathlib
import re
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
    if trials.host_count(options["type"]) > 1:
        trials.check_devices(todo, f"tpu_pod:type={options['type']}")
    python = shlex.quote(options["python"])
    install = (
        "rm -rf jbias && mkdir jbias && tar -xzf jbias.tgz -C jbias && "
        f"sudo apt-get install -y -qq {shlex.quote(options['python'] + '-venv')} && "
        f"{python} -m venv env && env/bin/python -m pip install -q './jbias[tpu,gcs]'"
    )
    commands = (
        trials.shell_line(trials.command(trial, "../env/bin/python", options["runs"]))
        for trial in todo
    )
    runs = (
        f"on_all {shlex.quote(f'cd jbias && {one}')} || failed=$((failed + 1))"
        for one in commands
    )
    told = {
        **{key: shlex.quote(str(options[key])) for key in ("name", "zone", "type")},
        "runtime": shlex.quote(options["runtime"]),
        "spot": " --spot" if options["spot"] else "",
        "install": shlex.quote(install),
        "runs": "\n".join(runs),
        "count": str(len(todo)),
    }
    text = _SCRIPT.read_text("utf-8")
    return re.sub(r"(?<!\$)\{(\w+)\}", lambda found: told[found[1]], text)
