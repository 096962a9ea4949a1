r"""Search over config entries: train one run per combination, here or on a cluster.

    jbias sweep run --config=configs/erm.py:demo --workdir=runs/rates \
        --config.optim.rate=[0.03,0.1,0.3]
    jbias sweep run --config=configs/padain.py:demo --workdir=runs/padain \
        --sampler=tpe --trials=20 --pruner=median \
        --config.optim.rate='log_uniform(0.01, 1)' --config.algo.p='uniform(0, 0.1)'
    jbias sweep run --sweep=configs/sweeps/eight.py --workdir=runs/eight \
        --on=slurm:partition=gpu,gpus=1,minutes=240
    jbias sweep status --workdir=runs/rates --importance
    jbias sweep retry --workdir=runs/rates

An entry whose value is a list, choice(a, b), uniform(low, high) or log_uniform(low, high)
is an axis of the search; other entries hold for all trials. Each trial is a run with its
own workdir <workdir>/<algorithm>-<data>-<hash>. The same command resumes a stopped search
and skips finished trials; --dry-run shows the commands without running them. `status` and
`retry` read the search in --workdir. <workdir>/trials.csv lists all trials. The search is
an Optuna study in <workdir>/.sweep/study.log, which optuna-dashboard shows; it needs the
extra `search`.

--on=NAME:OPTION=VALUE,... selects where trials run (docs/launch.md):
  local    this machine, one job per GPU, or shares of the cores: jobs, devices (0+2)
  slurm    an array of SLURM jobs, by submitit: partition, account, qos, constraint,
           minutes (60), nodes (1), gpus and cpus per node, gib, parallel (256), warn
           (120 seconds), requeues (10)
  tpu_pod  one run on a TPU slice, by gcloud: runs, zone, type (v6e-8), runtime, name,
           python, spot
  xpk      workloads of GKE: runs, cluster, zone, project, image, type (v6e-8), slices,
           restarts (10), python
  sky      managed jobs of SkyPilot: bucket, accelerators (H100:1), extra, infra, spot,
           pool

Exit codes: 0 all trials are done, diverged or stopped, or were handed over to a cloud,
and always for `status`; 1 some trials are not done, with a message; 2 invalid arguments,
nothing was started; 130 or 143 stopped with all work saved.
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
        "a Python file whose get_sweep returns the search, instead of --config",
    ),
    "--trials": (
        int,
        "N",
        "number of trials per config for the samplers random and tpe (default: 10)",
    ),
    "--seed": (int, "N", "random seed of the samplers (default: 0)"),
    "--fewest": (
        int,
        "N",
        "number of finished trials before --pruner=median stops any trial (default: 3)",
    ),
    "--grace": (int, "STEP", "no trial is stopped up to this step (default: 0)"),
    "--storage": (
        str,
        "PATH|URL",
        "file or database of the Optuna study (default: <workdir>/.sweep/study.log)",
    ),
}
_SWITCHES = {
    "--dry-run": "show the commands of the trials, and start none",
    "--wait": "with --on=slurm, wait until all jobs have ended",
    "--stopped": "start trials again that the pruner has stopped",
    "--importance": "write importance.png and importance.csv: how much each axis affects "
    "the accuracy",
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
        help="folder of the search, for the workdirs of its trials",
    )
    add(
        "--config",
        action="append",
        default=[],
        metavar=_FILE,
        help="config as for jbias train; may be repeated, to search over several configs",
    )
    add(
        "--sampler",
        "--search",
        dest="search",
        choices=("grid", "random", "tpe"),
        help="how combinations are chosen: all, at random, or by the results of earlier "
        "trials (default: grid)",
    )
    add(
        "--pruner",
        "--stop",
        dest="stop",
        choices=("never", "median", "hyperband", "asha"),
        help="rule that stops trials of low validation accuracy early (default: never)",
    )
    for flag, (kind, metavar, flag_help) in _VALUE_FLAGS.items():
        add(flag, type=kind, metavar=metavar, help=flag_help)
    add(
        "--on",
        default="local",
        metavar="WHERE:OPTIONS",
        help="where trials run, see above (default: local)",
    )
    for flag, flag_help in _SWITCHES.items():
        add(flag, action="store_true", help=flag_help)
    add(
        "--every",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="seconds between lines of progress (default: 60)",
    )
    return sweep_parser


if __name__ == "__main__":
    sys.exit(main())
