#!/usr/bin/env bash
set -euo pipefail
xpk workload create --cluster=c --zone=us-east5-b --project=p --tpu-type=v6e-8 --num-slices=1 --max-restarts=10 --docker-image=img --restart-on-exit-codes=69 --workload=erm-shapes-01234567 '--command=python -m jbias.main --config=configs/erm.py:demo --config.run.devices=0 --config.optim.rate=0.1 --workdir=gs://bucket/runs/erm-shapes-01234567'
xpk workload create --cluster=c --zone=us-east5-b --project=p --tpu-type=v6e-8 --num-slices=1 --max-restarts=10 --docker-image=img --restart-on-exit-codes=69 --workload=stylized-erm-x-shapes-89abcdef '--command=python -m jbias.main --config=configs/stylized_erm+x.py:demo --config.run.devices=0 --config.optim.rate=0.1 --workdir=gs://bucket/runs/stylized_erm+x-shapes-89abcdef'
