#!/usr/bin/env bash
name=jbias
zone=us-east5-b
type=v6e-32
runtime=v2-alpha-tpuv6e
python=python3.11
spot=yes
run='cd jbias && ../env/bin/python -m jbias.main --config=configs/erm.py:demo --config.run.devices=0 --config.optim.rate=0.1 --workdir=gs://bucket/runs/erm-shapes-01234567'
# Train on a queued TPU resource, and delete it afterwards. If the cloud takes the resource
# away, the same command resumes the run.
set -euo pipefail
archive=$(mktemp)
has_resource=0 # Whether there is a resource to delete.
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
leave() { # Delete the resource, which costs money, however the script ends.
  code=$?
  trap - EXIT
  rm -f "$archive"
  if [ "$has_resource" = 1 ] && ! delete; then
    echo "$name in $zone was not deleted and costs money; delete it yourself:" >&2
    echo "gcloud compute tpus queued-resources delete '$name' --zone='$zone' --force" >&2
    code=1
  fi
  exit "$code"
}
trap leave EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

until current_state=$(state) && [ "$current_state" = ACTIVE ]; do
  case "$current_state" in
    "")
      create
      has_resource=1
      ;;
    FAILED | SUSPENDED)
      echo "$name is $current_state: requesting it again" >&2
      has_resource=1
      delete
      has_resource=0
      ;;
    *)
      has_resource=1
      if [ "$((waited % 60))" = 0 ]; then
        echo "$name is $current_state, waited for $((waited / 60)) min" >&2
      fi
      sleep 30
      waited=$((waited + 30))
      ;;
  esac
done
has_resource=1

git archive --format=tar.gz --output="$archive" HEAD
gcloud compute tpus tpu-vm scp "$archive" "$name:jbias.tgz" --zone="$zone" --worker=all
python=$(printf %q "$python")
on_all "rm -rf jbias && mkdir jbias && tar -xzf jbias.tgz -C jbias && \
  sudo apt-get install -y -qq $python-venv && $python -m venv env && \
  env/bin/python -m pip install -q './jbias[tpu,gcs]'"
if ! on_all "$run"; then
  echo "the run did not finish; the same command resumes it" >&2
  exit 1
fi
