"""The commands as a user starts them, in this process, and without what takes long.

Training opens everything that a config names and traces a step of each stage; a report
leaves out its figures, and no network is measured.
"""

import pathlib
import sys

import jax
from absl import flags
from absl.testing import flagsaver

from jbias import evaluate, prepare, train
from jbias import main as main_lib
from jbias.evals import runner
from jbias.launch import sweep
from jbias.report import benchmark, cli
from jbias.runtime import signals
from jbias.training import prng


def training(argv: tuple[str, ...]) -> int:
    """`python -m jbias.main`, up to the first step."""
    held, kept = flagsaver.save_flag_values(flags.FLAGS), (sys.argv, train._train)
    sys.argv, train._train = ["jbias.main", *argv], _traced
    try:
        return main_lib.main(main_lib._parse(sys.argv), signals.StopSignal())
    finally:
        sys.argv, train._train = kept
        flagsaver.restore_flag_values(held, flags.FLAGS)


def _traced(job) -> None:
    """Traces a step of each stage, as it would be compiled."""
    before = None
    for stage in job.stages:
        state = jax.eval_shape(stage.program.draw, prng.key(0), before)
        index, held = stage.batch(job.seeds[0], stage.first), stage.shared(stage.first)
        static = stage.static(stage.first)

        def step(state, stage=stage, index=index, held=held, static=static):
            return stage.program.step(state, (prng.key(0), index), held, static)

        jax.eval_shape(step, state)
        before = {"params": state.params["net"], "stats": state.stats["net"]}
        stage.close()
    job.checkpoints.close()


def measuring(argv: tuple[str, ...]) -> int:
    """`python -m jbias.evaluate`, up to the first measure."""
    kept, runner.run_suite = runner.run_suite, lambda *_, **__: []
    try:
        return evaluate.main(list(argv))
    finally:
        runner.run_suite = kept


def preparing(argv: tuple[str, ...]) -> int:
    """`python -m jbias.prepare`."""
    return prepare.main(list(argv))


def reporting(argv: tuple[str, ...]) -> int:
    """`python -m jbias.report`, without figures."""
    kept, benchmark.figures = benchmark.figures, lambda *_: iter(())
    try:
        return cli.main(list(argv))
    finally:
        benchmark.figures = kept


def sweeping(argv: tuple[str, ...]) -> int:
    """`python -m launch.sweep`; its table of trials, which is made anew, goes again."""
    (workdir,) = (one.partition("=")[2] for one in argv if one.startswith("--workdir="))
    try:
        return sweep.main(list(argv))
    finally:
        (pathlib.Path(workdir) / "trials.csv").unlink(missing_ok=True)
