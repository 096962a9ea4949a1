#!/usr/bin/env bash
name=jbias
zone=us-east5-b
type=v6e-32
runtime=v2-alpha-tpuv6e
python=python3.11
spot=yes
run='cd jbias && ../env/bin/python -m jbias.main --config=configs/erm.py:demo --config.run.devices=0 --config.optim.rate=0.1 --workdir=gs://bucket/runs/erm-shapes-01234567'
# Trains on a queued TPU resource, and gives it back. What the cloud took away meanwhile
# goes on when the same command is given again.
set -euo pipefail
archive=$(mktemp)
held=0 # Whether there is a resource to give back.
waited=0

state() {
  gcloud compute tpus queued-resources describe "$name" --zone="$zone" \
    --format='value(state.state)' 2>/dev/null || true
}
create() {
  gcloud compute tpus queued-resources create "$name" --node-id="$name" --zone="$zone" \
    --accelerator-type="$type" --runtime-version="$runtime" ${spot:+--spot}
}
delete() {
  gcloud compute tpus queued-resources delete "$name" --zone="$zone" --force --quiet
}
on_all() {
  gcloud compute tpus tpu-vm ssh "$name" --zone="$zone" --worker=all --command="$1"
}
leave() { # However this ends, nothing stays that costs.
  code=$?
  trap - EXIT
  rm -f "$archive"
  if [ "$held" = 1 ] && ! delete; then
    echo "$name in $zone was not given back, and costs; give it back yourself:" >&2
    echo "gcloud compute tpus queued-resources delete '$name' --zone='$zone' --force" >&2
    code=1
  fi
  exit "$code"
}
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
python=$(printf %q "$python")
on_all "rm -rf jbias && mkdir jbias && tar -xzf jbias.tgz -C jbias && \
  sudo apt-get install -y -qq $python-venv && $python -m venv env && \
  env/bin/python -m pip install -q './jbias[tpu,gcs]'"
if ! on_all "$run"; then
  echo "the run did not finish; the same command goes on" >&2
  exit 1
fi
