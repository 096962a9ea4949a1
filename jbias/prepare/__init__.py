"""Prepares data sets and weights: makes, samples, converts and trains them.

    jbias prepare samples --data=shapes --out=docs/shapes.png
    jbias prepare check --src=data/photos
    jbias prepare inputs --out=docs/inputs
    jbias prepare records --src=DIR --split=train --dst=DIR
    jbias prepare tfds --name=imagenette/320px
    jbias prepare corrupt --data=pacs --root=DIR --split=photo --out=c
    jbias prepare stylize --data=folder --root=photos --out=photos-stylized
    jbias prepare colored-mnist --root=DIR --out=colored
    jbias prepare clusters --checkpoint=resnet50.pth --data=folder --root=DIR
    jbias prepare weights --net=vgg_adain --src=DIR --out=vgg_adain.npz
    jbias prepare export --checkpoint=resnet50.pth --out=x.safetensors
    jbias prepare style --out=small_adain.npz
    jbias prepare autoencoder --net=cae --data=shapes --out=cae.npz
    jbias prepare deepaugment --net=cae --data=shapes --out=prepared/cae
    jbias prepare samples --help

Exit codes: 0 done, 1 `check` found damaged images, 2 what is asked cannot be done, in one line on standard error.
"""

import importlib
import pathlib
import sys
import types
from collections.abc import Collection, Mapping, Sequence

from jbias.runtime import cli, messages, outputs, switches

# Each is a module here: `add` adds its arguments, `run` takes them and returns what it did. It
# is imported when it is asked for, since most need JAX.
COMMANDS: Mapping[str, str] = types.MappingProxyType(
    {
        "samples": "a figure with samples of each split of a data set",
        "check": "decodes every image of a set and counts them",
        "inputs": "a figure of what each batch transform does to images",
        "records": "images of any form into ArrayRecord shards",
        "tfds": "a set of TensorFlow Datasets, to be read without TensorFlow",
        "corrupt": "a set under common corruptions, as test sets",
        "stylize": "a set in the style of other images, as a set to train on",
        "colored-mnist": "digits in colours that tell their class, as arrays",
        "clusters": "finds attributes: clusters of what a network sees in images",
        "weights": "converts weights that others published",
        "export": "a network for others, or for runs to start from",
        "style": "trains the compact style transfer",
        "autoencoder": "trains the small network that deepaugment damages",
        "deepaugment": "images through damaged networks, as a set to train on",
    }
)


class DamagedImages(Exception):
    """Some images of a set are; the message is the lines to print."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one subcommand; returns the exit code."""
    asked = sys.argv[1:] if argv is None else argv
    args = parser(COMMANDS.keys() & set(asked[:1])).parse_args(asked)
    try:
        out = getattr(args, "out", "") or ""
        if pathlib.PurePath(out).suffix in outputs.KINDS:  # Before it is computed.
            outputs.check_file(out)
        _print_lines(args.command(args))
    except DamagedImages as found:
        with messages.stdout_errors_exit():
            _print_lines(found.args[0])
        return 1
    except Exception as error:
        if switches.is_on("JBIAS_TRACEBACK"):
            raise
        known = isinstance(error, (ValueError, OSError))
        told = messages.one_line(error if known else messages.describe_crash(error))
        messages.print_text(f"jbias: {told}", to_stderr=True)
        return 2
    return 0


def _print_lines(told: str | Sequence[str]) -> None:
    """Prints a line, or several; names in them come from files."""
    for line in [told] if isinstance(told, str) else told:
        messages.print_text(messages.printable(line))


def parser(names: Collection[str]) -> cli.Parser:
    """Reads the arguments of these subcommands, and lists the others."""
    made = cli.Parser("prepare", __doc__.splitlines()[0])
    commands = made.add_subparsers(required=True, metavar="COMMAND")
    for name, told in COMMANDS.items():
        one = commands.add_parser(name, help=told)
        if name in names:
            module = importlib.import_module(f"jbias.prepare.{name.replace('-', '_')}")
            one.description = module.__doc__
            module.add(one)
            one.set_defaults(command=module.run)
    return made
