r"""Evaluates the checkpoints of a run that another process trains.

    python -m jbias.main --config=configs/erm.py --config.run.evaluate=elsewhere \
        --workdir=runs/x
    python -m jbias.evaluate --follow=runs/x

Writes evals/<step>.jsonl into the run's workdir, as the run itself would have, and ends
when the run is done and all of it is evaluated. The same command goes on where it was
stopped. Exit codes: 0 done, 2 it cannot be done, in one line on standard error, 130
stopped.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from jbias import xla


def main(argv: Sequence[str] | None = None) -> int:
    """Does what the arguments say; returns the exit code."""
    args = parser().parse_args(argv)
    xla.set_flags()
    # Only now: --help and wrong arguments need none of it, and flags are set.
    from jbias import console, follow, opening

    console.hush()
    opening.keep_programs()
    try:
        follow.run(
            args.follow,
            interval=args.interval,
            once=args.once,
            devices=args.devices,
        )
    except (ValueError, OSError) as error:
        if os.environ.get("JBIAS_TRACEBACK"):
            raise
        print(f"jbias: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("jbias: stopped; the same command goes on", file=sys.stderr)
        return 130
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m jbias.evaluate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = made.add_argument
    add(
        "--follow",
        required=True,
        metavar="WORKDIR",
        help="the run, with --config.run.evaluate=elsewhere",
    )
    add(
        "--once",
        action="store_true",
        help="evaluates what is there, and does not wait for more",
    )
    add(
        "--interval",
        type=_seconds,
        default=10.0,
        metavar="SECONDS",
        help="between looks at the checkpoints (default: %(default)s)",
    )
    add(
        "--devices",
        type=int,
        default=0,
        metavar="N",
        help="of those here, whatever the run has; 0 is all (default: %(default)s)",
    )
    return made


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a positive number, got {text!r}")
    return value


if __name__ == "__main__":
    sys.exit(main())
