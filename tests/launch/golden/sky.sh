#!/usr/bin/env bash
# Queues one managed job for each run; a lost machine is replaced, and it resumes.
set -euo pipefail
task=$(mktemp --suffix=.yaml)
trap 'rm -f "$task"' EXIT

cat >"$task" <<'TASK'
name: erm-shapes-01234567
resources:
  accelerators: tpu-v6e-8
  use_spot: true
  infra: gcp/us-east5
workdir: .
file_mounts:
  /runs:
    source: gs://bucket
    mode: MOUNT
setup: pip install -q '.[tpu]'
run: python -m jbias.main --config=configs/erm.py:demo --config.run.devices=0 --config.optim.rate=0.1 --workdir=/runs/erm-shapes-01234567
TASK
sky jobs launch --yes --detach-run "$task"
cat >"$task" <<'TASK'
name: stylized-erm-x-shapes-89abcdef
resources:
  accelerators: tpu-v6e-8
  use_spot: true
  infra: gcp/us-east5
workdir: .
file_mounts:
  /runs:
    source: gs://bucket
    mode: MOUNT
setup: pip install -q '.[tpu]'
run: python -m jbias.main --config=configs/stylized_erm+x.py:demo --config.run.devices=0 --config.optim.rate=0.1 --workdir=/runs/stylized_erm+x-shapes-89abcdef
TASK
sky jobs launch --yes --detach-run "$task"
