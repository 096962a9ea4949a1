"""The command line of the studies: the parser and a flag that several of them share."""

import argparse
import pathlib

from jbias.runtime import cli

ROOT = pathlib.Path(__file__).parents[1]
DOCS, RESULTS = ROOT / "docs", ROOT / "studies/results"


def parser(module: str, doc: str) -> cli.Parser:
    """Return a parser of the arguments of `python -m studies.MODULE`.

    doc: the module's docstring, the description at the top of --help.
    """
    return cli.Parser(prog=f"python -m studies.{module}", doc=doc)


def add_out(
    arguments: argparse.ArgumentParser, contents: str, default: pathlib.Path = DOCS
) -> None:
    """Add --out, the folder to write to.

    contents: the files that are written to the folder, for --help. default: an absolute path
    in the checkout, or a path relative to the working directory.
    """
    shown = default.relative_to(ROOT) if default.is_absolute() else default
    arguments.add_argument(
        "--out",
        type=pathlib.Path,
        default=default,
        metavar="DIR",
        help=f"folder for {contents} (default: {shown})",
    )
