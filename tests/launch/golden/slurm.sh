#!/bin/bash

# Parameters
#SBATCH --account=lab
#SBATCH --array=0-1%2
#SBATCH --error=/shared/runs/.sweep/slurm/%A_%a_0_log.err
#SBATCH --gpus-per-node=1
#SBATCH --job-name=jbias
#SBATCH --mem=16384M
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output=/shared/runs/.sweep/slurm/%A_%a_0_log.out
#SBATCH --partition=gpu
#SBATCH --requeue
#SBATCH --signal=USR1@120
#SBATCH --time=240
#SBATCH --wckey=submitit

# setup
export SUBMITIT_PREEMPT_SIGNAL=USR1

# command
export SUBMITIT_EXECUTOR=slurm
srun --unbuffered --output /shared/runs/.sweep/slurm/%A_%a_%t_log.out --error /shared/runs/.sweep/slurm/%A_%a_%t_log.err /env/bin/python -u -m submitit.core._submit /shared/runs/.sweep/slurm

# commands of the jobs:
# 0: /env/bin/python -m jbias.main --config=configs/erm.py:demo --config.run.devices=0 --config.optim.rate=0.1 --workdir=/shared/runs/erm-shapes-01234567
# 1: /env/bin/python -m jbias.main --config=configs/stylized_erm+x.py:demo --config.run.devices=0 --config.optim.rate=0.1 --workdir=/shared/runs/stylized_erm+x-shapes-89abcdef
