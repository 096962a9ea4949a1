"""Make, check and convert data sets, and weights files of networks.

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
    jbias prepare soup --runs runs/erm --kind=greedy --out=runs/soup
    jbias prepare style --out=small_adain.npz
    jbias prepare autoencoder --net=cae --data=shapes --out=cae.npz
    jbias prepare deepaugment --net=cae --data=shapes --out=prepared/cae

Run `jbias prepare COMMAND --help` for the options of a command. Exit codes: 0 done; 1 `check`
found damaged images; 2 an error, with one line on standard error.
"""

import importlib
import pathlib
import sys
import types
from collections.abc import Collection, Mapping, Sequence

from jbias.runtime import cli, messages, outputs, switches

# Subcommand -> help. Each is a module of this package: `add` adds its arguments to a parser,
# `run` takes the parsed arguments and returns lines to print. A module is imported only for
# its own subcommand, since most modules need JAX.
COMMANDS: Mapping[str, str] = types.MappingProxyType(
    {
        "samples": "draw a figure with one image of each split and class of a data set",
        "check": "decode and count every image of a data set",
        "inputs": "draw figures of what each batch transform does to images",
        "records": "copy a data set into ArrayRecord shards, which are fast to read",
        "tfds": "download a data set of TensorFlow Datasets",
        "corrupt": "make test sets with common corruptions, as ImageNet-C",
        "stylize": "make a stylised copy of a data set, as Stylized-ImageNet",
        "colored-mnist": "make Colored MNIST: digits in colours that correlate with the class",
        "clusters": "find attributes of images: clusters of a network's features",
        "weights": "convert the published weights of a style transfer or of DeepAugment",
        "export": "write a network to a file to share, or to a workdir to train from",
        "soup": "average the weights of several seeds into one network",
        "style": "train the small style transfer of `stylize`",
        "autoencoder": "train the small network that `deepaugment` damages",
        "deepaugment": "make the extra training set of DeepAugment",
    }
)


class DamagedImages(Exception):
    """Raised by `check` for damaged images; args[0] is the list of lines to print."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return the exit code: 0, 1 or 2, see the module's docstring.

    The lines that the subcommand returns are printed, and the line of an error goes to standard
    error; with JBIAS_TRACEBACK set, errors are raised. argv: the subcommand and its flags;
    None: the arguments of the command line.
    """
    arguments = sys.argv[1:] if argv is None else argv
    args = parser(COMMANDS.keys() & set(arguments[:1])).parse_args(arguments)
    try:
        out = getattr(args, "out", "") or ""
        if pathlib.PurePath(out).suffix in outputs.KINDS:  # Fail before computing.
            outputs.check_file(out)
        _print_lines(args.command(args))
    except DamagedImages as error:
        with messages.stdout_errors_exit():
            _print_lines(error.args[0])
        return 1
    except Exception as error:
        if switches.is_on("JBIAS_TRACEBACK"):
            raise
        is_expected = isinstance(error, (ValueError, OSError))
        line = messages.one_line(
            error if is_expected else messages.describe_crash(error)
        )
        messages.print_text(f"jbias: {line}", to_stderr=True)
        return 2
    return 0


def _print_lines(lines: str | Sequence[str]) -> None:
    """Print a line or several lines, with control characters in names escaped."""
    for line in [lines] if isinstance(lines, str) else lines:
        messages.print_text(messages.printable(line))


def parser(names: Collection[str]) -> cli.Parser:
    """Return the parser of all subcommands, with flags and `command` only for `names`.

    names: keys of COMMANDS. Parsed arguments have `command`, the function to call with them.
    The modules of the other subcommands are not imported.
    """
    first, *_, last = __doc__.strip().split("\n\n")  # Without the examples.
    top = cli.Parser("prepare", f"{first}\n\n{last}")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    for name, help_text in COMMANDS.items():
        subparser = commands.add_parser(name, help=help_text)
        if name in names:
            module = importlib.import_module(f"jbias.prepare.{name.replace('-', '_')}")
            subparser.description = module.__doc__
            module.add(subparser)
            subparser.set_defaults(command=module.run)
    return top
