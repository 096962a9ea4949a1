"""Makes data sets, shows what is in them, converts and trains weights.

    python -m jbias.prepare samples --data=shapes --out=docs/shapes.png
    python -m jbias.prepare check --src=data/photos
    python -m jbias.prepare inputs --out=docs/inputs
    python -m jbias.prepare records --src=DIR --split=train --dst=DIR
    python -m jbias.prepare corrupt --data=pacs --root=DIR --split=photo --out=c
    python -m jbias.prepare stylize --data=folder --root=photos --out=photos-stylized
    python -m jbias.prepare colored-mnist --root=DIR --out=colored
    python -m jbias.prepare weights --net=vgg_adain --src=DIR --out=vgg_adain.npz
    python -m jbias.prepare style --out=small_adain.npz
    python -m jbias.prepare autoencoder --net=cae --data=shapes --out=cae.npz
    python -m jbias.prepare deepaugment --net=cae --data=shapes --out=prepared/cae
    python -m jbias.prepare samples --help

Exit codes: 0 done, 1 `check` found damaged images, 2 what is asked cannot be done, in one line on standard error.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from jbias.prepare import (
    autoencoder,
    check,
    colored_mnist,
    corrupt,
    deepaugment,
    inputs,
    records,
    samples,
    style,
    stylize,
    weights,
)

# Each has a function that adds it.
COMMANDS = (
    samples,
    check,
    inputs,
    records,
    corrupt,
    stylize,
    colored_mnist,
    weights,
    style,
    autoencoder,
    deepaugment,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one subcommand; returns the exit code."""
    arguments = vars(_parser().parse_args(argv))
    command = arguments.pop("command")
    try:
        print(command(**arguments))
    except check.Damaged as found:
        print(found)
        return 1
    except (ValueError, OSError) as error:
        if os.environ.get("JBIAS_TRACEBACK"):
            raise
        print(f"jbias: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m jbias.prepare", description=__doc__.splitlines()[0]
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add(commands)
    return parser
