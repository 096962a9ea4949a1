r"""Test measures of shape bias on networks whose reliance on shape is planted.

    jbias calibrate --out=calibration
    jbias calibrate --out=calibration --stages=analyse --only=shape_bias,suppression
    jbias calibrate --out=calibration --hidden --rules=rules.json --curves=curves.json

Stages, each of which the same command resumes:

    make       plants networks: decision rules, networks trained on labels that follow shape for a
               given share of pairs, mixtures of two streams, and failing networks; writes
               networks.csv
    measure    computes all measures of shape on each network; writes readings.csv
    analyse    compares each measure with the dial, a network's reliance on shape: as planted by
               construction, or verified for trained networks; writes measures.csv and further
               tables, and curves.json, the calibration curves

Images are drawn shapes of the embedded data set `cues`. Networks at chance, of few decisions, or
suspected of a shortcut are flagged and not ranked. --hidden makes, measures and analyses a second
set of networks by rules and curves that are fixed: both files must be in a git commit before the
hidden networks are made, and sealed.json records it, with the seed from which the dials are drawn.
docs/calibrate.md explains the tables.

Takes three core-hours, and --smoke about ten minutes; --minutes stops before the next network, and
the same command continues. Two processes share the work by --networks.

Exit codes: 0 all stages are complete; 1 some networks or measures failed, or the time is spent;
2 an error, which standard error explains; 130 stopped by Ctrl-C, 143 by SIGTERM.
"""

import argparse
import fnmatch
import pathlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from jbias import errors
from jbias.runtime import cli, console, messages

if TYPE_CHECKING:
    from jbias.planting import making, plans

_STAGES = ("make", "measure", "analyse")
_NETWORKS, _READINGS, _SEAL = "networks.csv", "readings.csv", "sealed.json"
_CHOSEN = "chosen"  # Folder of the tables of --only.


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command `jbias calibrate`; return the exit code.

    argv: the arguments; None: the process's arguments. Invalid arguments raise SystemExit(2).
    """
    args = parser().parse_args(argv)
    return cli.run(
        lambda: _run(args),
        rerun="resumes",
        uses_jax=_needs_jax(args.stages),
        check=lambda: _check(args),
    )


def parser() -> cli.Parser:
    """Return the parser of the command line."""
    arguments = cli.Parser("calibrate", __doc__)
    arguments.add_argument(
        "--out",
        **cli.OUT,
        help="folder of the study: networks, readings, tables and curves",
    )
    cli.add_names(
        arguments,
        "--stages",
        default=_STAGES,
        help="stages to run, of make, measure and analyse (default: all)",
    )
    cli.add_names(
        arguments,
        "--only",
        default=None,
        help="measure and analyse: keys of measures; an unknown key is refused with a list of all; "
        "their tables are written to chosen/ in --out (default: all measures)",
    )
    arguments.add_argument(
        "--minutes",
        type=cli.positive,
        metavar="N",
        help="make and measure: start no network after N minutes (default: no limit)",
    )
    arguments.add_argument(
        "--smoke",
        action="store_true",
        help="few and tiny networks, and few images, to try the command (default: the whole "
        "study)",
    )
    texts = {
        "--networks=GLOB": "make and measure: names of networks, such as 'rule-*' in quotes "
        "(default: all)",
        "--rules=FILE": "analyse: JSON file with the bounds by which measures are judged "
        "(default: those of docs/results/calibration/rules.json)",
        "--curves=FILE": "with --hidden: the fixed curves (default: curves.json in --out)",
    }
    cli.add_texts(arguments, texts)
    arguments.add_argument(
        "--hidden",
        action="store_true",
        help="use the hidden networks; tables are written to hidden/ in --out (default: use the "
        "open networks)",
    )
    return arguments


def _needs_jax(stages: Sequence[str]) -> bool:
    """Return True if a stage makes or shows networks."""
    return "make" in stages or "measure" in stages


def _check(args: argparse.Namespace) -> None:
    """Raise ValueError for unknown stages, and for flags that fit no stage; no slow imports."""
    errors.check_choices("--stages", args.stages, _STAGES)
    if args.curves and not args.hidden:
        errors.refuse("--curves", "be given with --hidden", args.curves)
    if args.hidden and not args.rules:
        errors.refuse(
            "--hidden",
            "have --rules=FILE, a file in a git commit",
            remedy="name the file",
        )


def _run(args: argparse.Namespace) -> int:
    """Run the stages in their order; return the highest exit code.

    Stages after one that is not complete are run too, on what there is. ValueError, before any
    network is made, for unknown measures and for files that cannot be read.
    """
    _check_inputs(args)
    work = {"make": _make, "measure": _measure, "analyse": _analyse}
    deadline = None if args.minutes is None else time.monotonic() + 60 * args.minutes
    return max(work[stage](args, deadline) for stage in _STAGES if stage in args.stages)


def _check_inputs(args: argparse.Namespace) -> None:
    """Raise ValueError or OSError for unknown measures, invalid rules and missing tables."""
    from jbias.calibrating import measures
    from jbias.calibrating import rules as rules_lib

    if args.only:
        measures.check_keys("--only", args.only)
    if args.rules:
        rules_lib.read(pathlib.Path(args.rules))
    if {*args.stages} == {"analyse"}:
        for name, stage in ((_NETWORKS, "make"), (_READINGS, "measure")):
            path = pathlib.Path(args.out) / name
            remedy = f"run --stages={stage} with this --out first"
            errors.check(
                path.exists(), str(path), "exist", errors.Words("none"), remedy
            )


def _make(args: argparse.Namespace, deadline: float | None) -> int:
    """Make and verify networks; return 1 if some are not made, else 0."""
    from jbias.planting import making

    planned = _plans(args, may_seal=True)
    study = _study(args, lambda: deadline is not None and time.monotonic() > deadline)
    num_made = len(making.make(study, planned))
    messages.print_text(f"made: {num_made:,} of {len(planned):,} networks")
    return int(num_made < len(planned) or bool(study.failures))


def _measure(args: argparse.Namespace, deadline: float | None) -> int:
    """Measure networks; return 1 if some are not measured, else 0."""
    from jbias.planting import measuring

    planned = _plans(args, may_seal=False)
    clock = Clock(len(planned), deadline, say=console.logger(None))
    study = _study(args, clock.is_due)
    readings = measuring.measure(study, planned, only=args.only or ())
    num_measured = len({reading.network for reading in readings})
    messages.print_text(f"measured: {num_measured:,} of {len(planned):,} networks")
    if study.failures:
        messages.print_text(
            f"not measured: {len(study.failures):,} failures, listed above and as reasons in "
            f"{_READINGS}; the same command tries again"
        )
    return int(num_measured < len(planned) or bool(study.failures))


class Clock:
    """Counts networks as they are started, and says how long the others take."""

    def __init__(
        self, total: int, deadline: float | None, *, say: Callable[[str], None]
    ):
        self.total, self.deadline, self.say = total, deadline, say
        self.started = 0
        self.start = self.last_line = time.monotonic()

    def is_due(self) -> bool:
        """Return True if no further network should be started; called before each network.

        A line with the time left, at the mean rate so far, is logged at most once a minute.
        """
        moment = time.monotonic()
        if self.started and moment - self.last_line >= 60:
            self.last_line = moment
            seconds = (moment - self.start) / self.started * (self.total - self.started)
            self.say(
                f"{self.started:,} of {self.total:,} networks, about "
                f"{seconds / 60:,.0f} min left"
            )
        self.started += 1
        return self.deadline is not None and moment > self.deadline


def _study(args: argparse.Namespace, is_due: Callable[[], bool]) -> "making.Study":
    """Return the study in --out."""
    from jbias.planting import making, plans

    return making.Study(
        args.out,
        scale=plans.SMOKE if args.smoke else plans.FULL,
        say=console.logger(None),
        is_due=is_due,
        arguments="smoke" if args.smoke else "",
    )


def _plans(args: argparse.Namespace, *, may_seal: bool) -> "list[plans.Plan]":
    """Return the networks to make or measure, of those that --networks names.

    may_seal: whether hidden networks may be planned for the first time.
    """
    from jbias.calibrating import rules as rules_lib
    from jbias.planting import plans

    scale = plans.SMOKE if args.smoke else plans.FULL
    if args.hidden:
        path = pathlib.Path(args.out) / _SEAL
        if may_seal:
            path.parent.mkdir(parents=True, exist_ok=True)
            _require_no_hidden_networks(path)
            rules_lib.seal(_fixed_files(args), path)
        planned = plans.hidden(rules_lib.hidden_seed(path), scale)
    else:
        planned = plans.visible(scale)
    pattern = args.networks or "*"
    chosen = [plan for plan in planned if fnmatch.fnmatchcase(plan.name, pattern)]
    errors.check(
        bool(chosen), "--networks", "match the names of networks", pattern, "check it"
    )
    return chosen


def _require_no_hidden_networks(seal: pathlib.Path) -> None:
    """Raise ValueError if a folder without a seal has hidden networks, which are of a lost seal."""
    from jbias.calibrating import rows

    table = seal.with_name(_NETWORKS)
    if seal.exists() or not table.exists():
        return
    errors.check(
        not any(row.hidden for row in rows.read(table, rows.PlantedNetwork)),
        str(seal),
        f"exist, as {_NETWORKS} has hidden networks",
        errors.Words("none"),
        "restore it, or name another --out for a new hidden set",
    )


def _analyse(args: argparse.Namespace, deadline: float | None) -> int:
    """Analyse the tables of the study, write the results and print them; return 0.

    Return 1 if the stage before, out of time, has measured no network. deadline: ignored, as the
    analysis takes seconds.
    """
    from jbias.calibrating import analysis as analysis_lib
    from jbias.calibrating import curves, measures, output, rows
    from jbias.calibrating import rules as rules_lib

    out = pathlib.Path(args.out)
    if not (out / _READINGS).exists() and "measure" in args.stages:
        messages.print_text("not analysed: no network is measured yet")
        return 1
    known = measures.MEASURES
    rules = (
        rules_lib.read(pathlib.Path(args.rules)) if args.rules else rules_lib.Rules()
    )
    frozen = None
    if args.hidden:
        fixed = _fixed_files(args)
        messages.print_text(rules_lib.check_seal(fixed, out / _SEAL))
        frozen = curves.read(fixed[1])
    analysis = analysis_lib.analyse(
        rows.read(out / _NETWORKS, rows.PlantedNetwork),
        rows.read(out / _READINGS, rows.Reading),
        rules,
        measures={key: known[key] for key in args.only or known},
        frozen=frozen,
    )
    folder = out / "hidden" if args.hidden else out
    if args.only:
        folder /= _CHOSEN  # The tables of all measures are kept.
    paths = output.write(analysis, folder, has_curves=not args.hidden)
    messages.print_text("\n".join(map(messages.printable, output.lines(analysis))))
    if args.smoke:
        messages.print_text(
            "--smoke: too few networks for a verdict on any measure, as expected"
        )
    messages.print_text(
        f"written: {', '.join(path.name for path in paths)} in {folder}"
    )
    return 0


def _fixed_files(args: argparse.Namespace) -> tuple[pathlib.Path, pathlib.Path]:
    """Return the paths of the fixed rules and curves."""
    from jbias.calibrating import output

    default = pathlib.Path(args.out) / output.CURVES
    return pathlib.Path(args.rules), pathlib.Path(args.curves or default)


if __name__ == "__main__":
    sys.exit(main())
