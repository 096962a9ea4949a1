"""Functions that run the commands in this process, without the parts that take long.

Training opens everything that a config names and traces a step of each stage; a report
leaves out its figures, and no network is measured.
"""

import dataclasses
import pathlib
import sys
from collections.abc import Iterable

import jax
from absl import flags
from absl.testing import flagsaver

from jbias import evaluate, prepare, train
from jbias import main as main_lib
from jbias.evals import runner
from jbias.launch import sweep
from jbias.report import cli, document
from jbias.runtime import signals
from jbias.training import prng


def training(argv: tuple[str, ...]) -> int:
    """Run `jbias train` up to the first step; return the exit code."""
    saved_flags = flagsaver.save_flag_values(flags.FLAGS)
    saved_argv, saved_train = sys.argv, train._train
    sys.argv, train._train = ["jbias.main", *argv], _trace_stages
    try:
        return main_lib.main(main_lib._parse(sys.argv), signals.StopSignal())
    finally:
        sys.argv, train._train = saved_argv, saved_train
        flagsaver.restore_flag_values(saved_flags, flags.FLAGS)


def _trace_stages(run) -> None:
    """Trace a step of each stage, as it would be compiled."""
    previous = None
    for stage in (placed.stage for placed in run.stages):
        state = jax.eval_shape(stage.program.draw, prng.key(0), previous)
        batch, stored = (
            stage.feed.batch(run.spec.config["seeds"][0], stage.first),
            stage.feed.shared(stage.first),
        )
        static = stage.static(stage.first)

        def step(state, stage=stage, batch=batch, stored=stored, static=static):
            return stage.program.step(state, (prng.key(0), batch), stored, static)

        jax.eval_shape(step, state)
        previous = {"params": state.params["net"], "stats": state.stats["net"]}
        stage.feed.close()
    run.store.checkpoints.close()


def measuring(argv: tuple[str, ...]) -> int:
    """Run `jbias evaluate` up to the first measure; return the exit code."""
    saved, runner.run_suite = runner.run_suite, lambda *_, **__: []
    try:
        return evaluate.main(list(argv))
    finally:
        runner.run_suite = saved


def preparing(argv: tuple[str, ...]) -> int:
    """Run `jbias prepare`; return the exit code."""
    return prepare.main(list(argv))


def reporting(argv: tuple[str, ...]) -> int:
    """Run `jbias report` without figures; return the exit code."""
    make_sections = document.make_sections

    def without_figures(
        makers: Iterable[document.SectionMaker], data: object
    ) -> list[document.Section]:
        """Return the sections without their figures."""
        return [
            dataclasses.replace(
                section,
                blocks=[
                    x for x in section.blocks if not isinstance(x, document.Figure)
                ],
            )
            for section in make_sections(makers, data)
        ]

    document.make_sections = without_figures
    try:
        return cli.main(list(argv))
    finally:
        document.make_sections = make_sections


def sweeping(argv: tuple[str, ...]) -> int:
    """Run `jbias sweep`; return the exit code.

    Deletes the table of trials, which the command rewrites in each call.
    """
    flag = "--workdir="
    (workdir,) = (arg.removeprefix(flag) for arg in argv if arg.startswith(flag))
    try:
        return sweep.main(list(argv))
    finally:
        (pathlib.Path(workdir) / "trials.csv").unlink(missing_ok=True)
