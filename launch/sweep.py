r"""Search over entries of a config: train one run per combination, here or on a cluster.

    jbias sweep run --config=configs/erm.py:demo --workdir=runs/rates \
        --config.optim.rate=[0.03,0.1,0.3]
    jbias sweep run --config=configs/padain.py:demo --workdir=runs/padain \
        --sampler=tpe --trials=20 --pruner=median \
        --config.optim.rate='log_uniform(0.01, 1)' --config.algo.p='uniform(0, 0.1)'
    jbias sweep run --sweep=configs/sweeps/eight.py --workdir=runs/eight \
        --on=slurm:partition=gpu,gpus=1,minutes=240
    jbias sweep status --workdir=runs/rates --importance
    jbias sweep retry --workdir=runs/rates

`run` starts the search, or resumes a stopped search and skips finished trials. `status` prints
the state of the search in --workdir. `retry` does the same as `run`, and also starts failed
trials again.

--until-decided=REFERENCE trains seeds of each combination until it is decided whether it is better
or worse than the reference, or equivalent to it (docs/launch.md):

    jbias sweep run --config=jbias:sagnet:demo --config=jbias:padain:demo --workdir=runs/decide \
        --until-decided=jbias:erm:demo --metric=shape_bias

Each combination is a method. In each round, all methods that are not decided get further seeds, and
the reference the seeds that it lacks. A trial is a run of these seeds of one method. REFERENCE is a
config, or the runs of one method (a workdir, a glob or a folder of workdirs); --config.KEY=VALUE
does not change it. The probability of any false decision is at most --alpha, however many methods
there are. <workdir>/comparisons.csv lists the comparisons. `status` prints them. `run` resumes a
stopped comparison; settings that the decisions depend on cannot be changed later. Seeds after those
of a failed trial do not count until `retry` has ended it. seeds=N is the number of seeds at a time
(default: the number of cores of a trial, at most 4; on GPUs 8).

An entry whose value is a list, choice(a, b), uniform(low, high) or log_uniform(low, high) is an
axis of the search: its value differs between trials. Other entries are the same in all trials.
Each trial is a run with its own workdir <workdir>/<algorithm>-<data>-<hash>, and
<workdir>/trials.csv lists all trials with their settings and scores. The search is an Optuna
study in <workdir>/.sweep/study.log, which optuna-dashboard can show. The command needs
`pip install 'jbias[search]'`.

--on=TARGET:OPTION=VALUE,... selects where the trials run (docs/launch.md). Defaults are in
brackets. An option without brackets is either marked as required, or has the cluster's own
default.

local: this machine. One trial at a time on each GPU. Without GPUs, trials share the cores.
    --on=local:devices=0+2
  devices       indices of the GPUs to use, joined by + (all)
  jobs          number of trials at a time (one per GPU; 1 without GPUs)

slurm: an array of SLURM jobs, submitted by submitit.
    --on=slurm:partition=gpu,gpus=1,minutes=240
  partition, account, qos, constraint
                the options of sbatch with these names
  minutes       time limit of a job, in minutes (60)
  nodes         number of nodes of each trial (1)
  gpus          number of GPUs per node
  cpus          number of CPU cores per node
  gib           memory per node, in GiB
  parallel      largest number of jobs that run at the same time (256)
  warn          a job saves its work this many seconds before its time limit (120)
  requeues      a job is queued again after its time limit, or the loss of a node, up to this
                many times (10)

tpu_pod: a single run on all hosts of a TPU slice, started by gcloud.
    --on=tpu_pod:runs=gs://bucket/runs,zone=us-east5-b,type=v6e-32,spot
  runs          required: folder of the workdirs in a bucket
  zone          required: zone of Google Cloud
  type          type of the slice, the accelerator type in gcloud (v6e-8)
  runtime       software version of the TPU (v2-alpha-tpuv6e)
  name          name of the slice (jbias)
  python        Python on the hosts (python3.11)
  spot          use a cheaper slice that the cloud may take away (False)

xpk: workloads of Google Kubernetes Engine (GKE), started by xpk.
    --on=xpk:runs=gs://bucket/runs,cluster=c,zone=us-east5-b,project=p,image=img
  runs          required: folder of the workdirs in a bucket
  cluster       required: name of the cluster
  zone          required: zone of the cluster
  project       required: project of Google Cloud
  image         required: container image with jbias
  type          type of a slice, the TPU type in xpk (v6e-8)
  slices        number of slices of each trial (1)
  restarts      largest number of restarts of a workload after the loss of a host (10)
  python        Python in the image (python)

sky: managed jobs of SkyPilot, which finds machines.
    --on=sky:bucket=gs://bucket,accelerators=H100:1
  bucket        required: bucket of the workdirs, gs://BUCKET or s3://BUCKET
  accelerators  kind and number of devices, such as H100:8 or tpu-v6e-8 (H100:1)
  extra         extra of jbias to install, gpu or tpu (gpu)
  infra         cloud and region, such as gcp/us-east5 (the cheapest)
  spot          use cheaper machines that the cloud may take away (True; spot=False does not)
  pool          pool of machines that already have the bucket and jbias (none)

Exit codes: 0 all trials have ended (done, diverged, or stopped by the pruner) or were submitted
to a cloud, or with --until-decided all comparisons are decided; 1 some trials are not done, with a
message; 2 arguments are wrong, and nothing was started; 4 --until-decided ended, and some comparisons
are not decided; 130 stopped by Ctrl-C, 143 by SIGTERM, with all work saved. `status` always exits with 0.
"""

import argparse
import importlib.util
import sys
from collections.abc import Sequence

from jbias import config as jc
from jbias.runtime import cli


def main(argv: Sequence[str] | None = None) -> int:
    """Run `jbias sweep`; return the exit code."""
    args, changes = cli.parse(parser(), argv, overrides="config", check=jc.check)
    args.changes = changes
    return cli.run(lambda: _work(args), rerun="resumes the search")


def _work(args: argparse.Namespace) -> int:
    """Carry out the parsed arguments; return the exit code. ValueError without Optuna."""
    if not importlib.util.find_spec("optuna"):
        raise ValueError("sweep: needs Optuna; pip install 'jbias[search]'")
    from jbias.launch import runner

    return runner.run_sweep(args)


_FILE = "FILE:ARGUMENTS"
# Type, metavar and help of flags with a value.
_VALUE_FLAGS = {
    "--sweep": (
        str,
        _FILE,
        (
            "instead of --config: a Python file whose function get_sweep returns the search, such as "
            "configs/sweeps/eight.py"
        ),
    ),
    "--trials": (
        int,
        "N",
        "with --sampler=random or tpe: number of trials of each config (default: 10)",
    ),
    "--seed": (
        int,
        "N",
        (
            "random seed of the sampler, which draws the settings; not a seed of the trials "
            "(default: 0)"
        ),
    ),
    "--fewest": (
        int,
        "N",
        (
            "with --pruner=median: number of trials that must finish before the pruner stops any "
            "trial (default: 3)"
        ),
    ),
    "--grace": (
        int,
        "STEP",
        "with --pruner: training step up to which no trial is stopped (default: 0)",
    ),
    "--storage": (
        str,
        "PATH|URL",
        (
            "file, or address of a database, that stores the Optuna study (default: "
            "<workdir>/.sweep/study.log)"
        ),
    ),
}
_COMPARISON_FLAGS = {
    "--metric": (
        str,
        "NAME",
        "metric to compare (default: shape_bias on cue conflicts, else accuracy)",
    ),
    "--dataset": (
        str,
        "SET",
        "test set to compare on, a name in config.tests (default: the only one that has the metric)",
    ),
    "--points": (
        cli.positive,
        "P",
        (
            "methods are equivalent if their difference is below so many percentage points of the "
            "score, or of the share of wins with --quantity=wins (default: equivalence is not tested)"
        ),
    ),
    "--alpha": (
        cli.probability,
        "P",
        "probability of any false decision (default: 0.05)",
    ),
    "--max-seeds": (
        cli.at_least_1,
        "N",
        "largest number of seeds of each method (default: 30)",
    ),
    "--max-hours": (
        cli.positive,
        "H",
        (
            "device hours (of a CPU: hours times cores) of all trials after which no further round "
            "starts (default: no limit)"
        ),
    ),
    "--selection": (
        str,
        "RULE",
        (
            "rule that selects the evaluation of each seed: best_validation, worst_class, last_n:N, "
            "at_epoch:EPOCH or best_on:SET (default: best_validation)"
        ),
    ),
    "--bounds": (
        str,
        "LOW,HIGH",
        (
            "smallest and largest possible value of the metric; a narrower range needs fewer seeds "
            "(default: 0,1)"
        ),
    ),
}
_SWITCHES = {
    "--dry-run": "print the commands of the trials, and start no trial (default: start them)",
    "--wait": "with --on=slurm: wait until all jobs have ended (default: return when all jobs "
    "are queued; --until-decided always waits)",
    "--stopped": "also resume the trials that the pruner has stopped (default: leave them "
    "stopped)",
    "--importance": "write importance.png and importance.csv, which show how much each axis "
    "affects the accuracy, into --workdir (default: do not write them)",
}


def parser() -> cli.Parser:
    """Return the parser of `jbias sweep`."""
    sweep_parser = cli.Parser(
        doc=__doc__,
        prog="jbias sweep",
        usage="%(prog)s run|status|retry --workdir=DIR [--config=FILE:ARGUMENTS ...] "
        "[--config.KEY=VALUE ...] [options]",
    )
    add = sweep_parser.add_argument
    add("what", choices=("run", "status", "retry"), help=argparse.SUPPRESS)
    add(
        "--workdir",
        required=True,
        metavar="DIR",
        help="required: folder of the search, in which each trial gets a workdir",
    )
    add(
        "--config",
        action="append",
        default=[],
        metavar=_FILE,
        help="config, as for `jbias train`; repeat the flag to search over several configs. "
        "--config.KEY=VALUE changes an entry or makes it an axis",
    )
    add(
        "--sampler",
        "--search",
        dest="search",
        choices=("grid", "random", "tpe"),
        help="how combinations of values are chosen: grid (all combinations), random, or tpe "
        "(Optuna's sampler, which learns from the results of earlier trials) (default: grid)",
    )
    add(
        "--pruner",
        "--stop",
        dest="stop",
        choices=("never", "median", "hyperband", "asha"),
        help="rule of Optuna that stops trials of low validation accuracy early: median, "
        "hyperband or asha; never stops no trial (default: never)",
    )
    for flag, (kind, metavar, flag_help) in _VALUE_FLAGS.items():
        add(flag, type=kind, metavar=metavar, help=flag_help)
    _add_comparison_flags(sweep_parser)
    add(
        "--on",
        default="local",
        metavar="TARGET:OPTIONS",
        help="where trials run: local, slurm, tpu_pod, xpk or sky, with options as above "
        "(default: local)",
    )
    for flag, flag_help in _SWITCHES.items():
        add(flag, action="store_true", help=flag_help)
    add(
        "--every",
        type=cli.at_least_0,
        default=60,
        metavar="SECONDS",
        help="seconds between two printed lines of progress (default: 60)",
    )
    return sweep_parser


def _add_comparison_flags(sweep_parser: cli.Parser) -> None:
    """Add --until-decided and the flags of its options, which have no value by default."""
    add = sweep_parser.add_argument
    add(
        "--until-decided",
        dest="reference",
        metavar="REFERENCE",
        help="train seeds until the comparison of each method with this reference is decided (see "
        "above): a config, or the runs of one method",
    )
    for flag, (kind, metavar, flag_help) in _COMPARISON_FLAGS.items():
        add(flag, type=kind, metavar=metavar, help=f"with --until-decided: {flag_help}")
    add(
        "--quantity",
        choices=("mean", "wins"),
        help="with --until-decided: compare the means, or the shares of seeds that each method "
        "wins (default: mean)",
    )


if __name__ == "__main__":
    sys.exit(main())
