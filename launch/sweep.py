r"""Searches over config entries: a run for each combination, started where you say.

    jbias sweep run --config=configs/erm.py:demo --workdir=runs/rates \
        --config.optim.rate=[0.03,0.1,0.3]
    jbias sweep run --config=configs/padain.py:demo --workdir=runs/padain \
        --sampler=tpe --trials=20 --pruner=median \
        --config.optim.rate='log_uniform(0.01, 1)' --config.algo.p='uniform(0, 0.1)'
    jbias sweep run --sweep=configs/sweeps/eight.py --workdir=runs/eight \
        --on=slurm:partition=gpu,gpus=1,minutes=240
    jbias sweep status --workdir=runs/rates --importance
    jbias sweep retry --workdir=runs/rates

An entry's value is an axis where it is a list, choice(a, b), uniform(low, high) or
log_uniform(low, high); any other holds for all trials. Each trial is a run with a workdir
<workdir>/<algorithm>-<data>-<hash> of its own: what is done is never done again, the same
command goes on where it was stopped, and --dry-run shows what it would start. `status`
and `retry` take the search that --workdir was begun with. <workdir>/trials.csv lists all.
The search is an Optuna study in <workdir>/.sweep/study.log, which optuna-dashboard shows;
launch.sweep needs the extra `search`.

--on=NAME:OPTION=VALUE,... says where they run (docs/launch.md):
  local    this machine, one job a GPU, or shares of the cores: jobs, devices (0+2)
  slurm    an array of SLURM jobs, by submitit: partition, account, qos, constraint,
           minutes (60), nodes (1), gpus and cpus of a node, gib, parallel (256), warn
           (120 seconds), requeues (10)
  tpu_pod  one run on a TPU slice, by gcloud: runs, zone, type (v6e-8), runtime, name,
           python, spot
  xpk      workloads of GKE: runs, cluster, zone, project, image, type (v6e-8), slices,
           restarts (10), python
  sky      managed jobs of SkyPilot: bucket, accelerators (H100:1), extra, infra, spot,
           pool

Exit codes: 0 all trials are done (also diverged or stopped), or handed over, or told
by `status`; 1 some are not, and it says why; 2
nothing was begun, arguments are wrong; 130 or 143 stopped with all work saved.
"""

import argparse
import importlib.util
import sys
from collections.abc import Sequence

from jbias import config as jc
from jbias.runtime import cli


def main(argv: Sequence[str] | None = None) -> int:
    """Does what the arguments say; returns the exit code."""
    args, changes = cli.parse(parser(), argv, "config", jc.check)
    args.changes = changes
    return cli.run(lambda: _work(args), stopped="goes on")


def _work(args: argparse.Namespace) -> int:
    if not importlib.util.find_spec("optuna"):
        raise ValueError("launch.sweep: needs Optuna; pip install 'jbias[search]'")
    from jbias.launch import runner

    return runner.run_sweep(args)


_FILE = "FILE:ARGUMENTS"
_VALUES = {
    "--sweep": (str, _FILE, "a file with get_sweep instead"),
    "--trials": (int, "N", "random, tpe: draws for each config (default: 10)"),
    "--seed": (int, "N", "of the draws (default: 0)"),
    "--fewest": (int, "N", "median: trials done before any is stopped (default: 3)"),
    "--grace": (int, "STEP", "no trial is stopped up to this step (default: 0)"),
    "--storage": (str, "PATH|URL", "of Optuna (default: <workdir>/.sweep/study.log)"),
}
_SWITCHES = {
    "--dry-run": "shows what would be started",
    "--wait": "slurm: until all jobs have ended",
    "--stopped": "retry: stopped trials, too",
    "--importance": "writes importance.png and .csv: how much each axis says",
}


def parser() -> cli.Parser:
    """The command line."""
    made = cli.Parser(
        doc=__doc__,
        prog="jbias sweep",
        usage="%(prog)s run|status|retry --workdir=DIR [--config=FILE:ARGUMENTS ...] "
        "[--config.KEY=VALUE ...] [options]",
    )
    add = made.add_argument
    add("what", choices=("run", "status", "retry"), help=argparse.SUPPRESS)
    add(
        "--workdir", required=True, metavar="DIR", help="where the trials' workdirs are"
    )
    what = "as for jbias train; may be given several times"
    add("--config", action="append", default=[], metavar=_FILE, help=what)
    what = "how trials are drawn; tpe: by the results of earlier ones (default: grid)"
    names = ("grid", "random", "tpe")
    add("--sampler", "--search", dest="search", choices=names, help=what)
    what = "stops trials by their validation accuracy while they train (default: never)"
    names = ("never", "median", "hyperband", "asha")
    add("--pruner", "--stop", dest="stop", choices=names, help=what)
    for flag, (kind, metavar, what) in _VALUES.items():
        add(flag, type=kind, metavar=metavar, help=what)
    add("--on", default="local", metavar="WHERE:OPTIONS", help="(default: local)")
    for flag, what in _SWITCHES.items():
        add(flag, action="store_true", help=what)
    what = "between lines of progress (default: 60)"
    add("--every", type=float, default=60.0, metavar="SECONDS", help=what)
    return made


if __name__ == "__main__":
    sys.exit(main())
