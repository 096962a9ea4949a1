"""The command line of the checks: the parser and the flags that several of them share.

Imports no package that must be installed, because qa.imported_networks runs without jbias's
requirements.
"""

import argparse
import pathlib
from collections.abc import Collection

from jbias import errors
from jbias.runtime import cli

RESULTS = pathlib.Path(__file__).parent / "results"


def parser(module: str, doc: str) -> cli.Parser:
    """Return a parser of the arguments of `python -m qa.MODULE`.

    doc: the module's docstring, the description at the top of --help.
    """
    return cli.Parser(prog=f"python -m qa.{module}", doc=doc)


def add_out(arguments: argparse.ArgumentParser, contents: str) -> None:
    """Add --out, the folder to write to; the default is qa/results.

    contents: the files that are written to the folder, for --help.
    """
    arguments.add_argument(
        "--out",
        type=pathlib.Path,
        default=RESULTS,
        metavar="DIR",
        help=f"folder for {contents} (default: qa/results)",
    )


def add_only(arguments: argparse.ArgumentParser, kinds: Collection[str]) -> None:
    """Add --only, a kind of input; None means all. An unknown kind is an error of one line."""

    def kind(text: str) -> str:
        if text not in kinds:
            hint = errors.suggest(text, kinds)
            raise argparse.ArgumentTypeError(f"no kind {text!r}; {hint}")
        return text

    arguments.add_argument(
        "--only",
        type=kind,
        metavar="KIND",
        help=f"the only kind of input to try: {', '.join(kinds)} (default: all kinds)",
    )
