"""Runs trials one after another on one TPU slice that is a queued resource (gcloud).

Never run against the cloud: the script is checked by shellcheck, and the train step by
lowering it for TPUs. Source of the commands:
https://docs.cloud.google.com/tpu/docs/queued-resources and .../tpu/docs/jax-pods.
"""

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

_SCRIPT = """\
#!/usr/bin/env bash
# Trains on a queued TPU resource, and gives it back. What the cloud took away meanwhile
# goes on when the same command is given again.
set -euo pipefail
name={name}
zone={zone}
archive=$(mktemp)
failed=0
held=0 # Whether there is a resource to give back.
waited=0

state() {{
  gcloud compute tpus queued-resources describe "$name" --zone="$zone" \\
    --format='value(state.state)' 2>/dev/null || true
}}
create() {{
  gcloud compute tpus queued-resources create "$name" --node-id="$name" --zone="$zone" \\
    --accelerator-type={type} --runtime-version={runtime}{spot}
}}
delete() {{
  gcloud compute tpus queued-resources delete "$name" --zone="$zone" --force --quiet
}}
on_all() {{
  gcloud compute tpus tpu-vm ssh "$name" --zone="$zone" --worker=all --command="$1"
}}
leave() {{ # However this ends, nothing stays that costs.
  code=$?
  trap - EXIT
  rm -f "$archive"
  if [ "$held" = 1 ] && ! delete; then
    echo "$name in $zone was not given back, and costs; give it back yourself:" >&2
    echo "gcloud compute tpus queued-resources delete '$name' --zone='$zone' --force" >&2
    code=1
  fi
  exit "$code"
}}
trap leave EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

until now=$(state) && [ "$now" = ACTIVE ]; do
  case "$now" in
    "")
      create
      held=1
      ;;
    FAILED | SUSPENDED)
      echo "$name is $now: asking for another" >&2
      held=1
      delete
      held=0
      ;;
    *)
      held=1
      if [ "$((waited % 60))" = 0 ]; then
        echo "$name is $now, waited for $((waited / 60)) min" >&2
      fi
      sleep 30
      waited=$((waited + 30))
      ;;
  esac
done
held=1

git archive --format=tar.gz --output="$archive" HEAD
gcloud compute tpus tpu-vm scp "$archive" "$name:jbias.tgz" --zone="$zone" --worker=all
on_all {install}

{runs}

if [ "$failed" -gt 0 ]; then
  echo "$failed of {count} runs did not finish; the same command goes on" >&2
  exit 1
fi
"""


def script(todo: Sequence[trials.Trial], options: Mapping[str, Any]) -> str:
    """A program of bash that asks for the slice, trains on all its hosts, and frees it."""
    if trials.hosts_of(options["type"]) > 1:
        trials.check_devices(todo, f"tpu_pod:type={options['type']}")
    python = shlex.quote(options["python"])
    install = (
        "rm -rf jbias && mkdir jbias && tar -xzf jbias.tgz -C jbias && "
        f"sudo apt-get install -y -qq {shlex.quote(options['python'] + '-venv')} && "
        f"{python} -m venv env && env/bin/python -m pip install -q './jbias[tpu,gcs]'"
    )
    commands = (
        trials.shown(trials.command(trial, "../env/bin/python", options["runs"]))
        for trial in todo
    )
    runs = (
        f"on_all {shlex.quote(f'cd jbias && {one}')} || failed=$((failed + 1))"
        for one in commands
    )
    told = {key: shlex.quote(str(options[key])) for key in ("name", "zone", "type")}
    return _SCRIPT.format(
        **told,
        runtime=shlex.quote(options["runtime"]),
        spot=" --spot" if options["spot"] else "",
        install=shlex.quote(install),
        runs="\n".join(runs),
        count=len(todo),
    )
