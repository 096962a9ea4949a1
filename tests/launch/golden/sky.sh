# sky jobs launch --num-jobs=2 task.yaml
name: jbias
resources:
  accelerators: tpu-v6e-8
  use_spot: true
  infra: gcp/us-east5
run: 'case "$SKYPILOT_JOB_RANK" in

  0) python -m jbias.main --config=configs/erm.py:demo --config.run.devices=0 --config.optim.rate=0.1 --workdir=/runs/erm-shapes-01234567 ;;

  1) python -m jbias.main --config=configs/stylized_erm+x.py:demo --config.run.devices=0 --config.optim.rate=0.1 --workdir=/runs/stylized_erm+x-shapes-89abcdef ;;

  esac

  '
workdir: .
file_mounts:
  /runs:
    source: gs://bucket
    mode: MOUNT
setup: pip install -q '.[tpu]'
