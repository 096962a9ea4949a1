"""What the commands of this room share: arguments, their types, and how they end."""

import argparse
import os
import pathlib
import sys
import types
from collections.abc import Callable, Iterable, Sequence

from jbias.terminal import messages, parsing


def spread(argv: Sequence[str] | None, flag: str) -> list[str]:
    """Gives arguments in which `flag=a b`, as a shell leaves a glob, is `flag a b`."""
    argv = sys.argv[1:] if argv is None else argv
    found = []
    for one in argv:
        name, _, value = one.partition("=")
        found += [name, value] if name == flag and value else [one]
    return found


def folder(text: str) -> str:
    """Reads a folder to write into, which need not be there yet."""
    path = pathlib.Path(text)
    if "://" in text:
        raise argparse.ArgumentTypeError(
            f"must be a local folder, got {text!r}; copy it afterwards"
        )
    if any(one.exists() and not one.is_dir() for one in (path, *path.parents)):
        raise argparse.ArgumentTypeError(
            f"must be a folder, got {text!r}, which is or is in a file; name another"
        )
    return text


chance = parsing.number(float, lambda a: 0 < a < 1, "a number between 0 and 1")
draws = parsing.at_least(100)
at_least_one, natural = parsing.at_least(1), parsing.at_least(0)

# Arguments of several commands, but for what each says of them.
WORKDIRS = types.MappingProxyType(dict(nargs="+", action="extend", metavar="WORKDIR"))
OUT = types.MappingProxyType(dict(type=folder, required=True, metavar="DIR"))
ALPHA = types.MappingProxyType(dict(type=chance, default=0.05))


def add_permutation_tests(to: argparse.ArgumentParser) -> None:
    """Adds what tests by random orders take: --adjust, --alpha, --permutations, --seed."""
    add = to.add_argument
    add(
        "--adjust",
        choices=("none", "holm", "bh"),
        default="holm",
        help="p-values that say what is significant (default: %(default)s)",
    )
    add("--alpha", **ALPHA, help="level (default: %(default)s)")
    add(
        "--permutations",
        type=at_least_one,
        default=9_999,
        metavar="N",
        help="random orders behind a p-value (default: %(default)s)",
    )
    add("--seed", type=int, default=0, help="of the orders (default: %(default)s)")


def answered(command: str, make: Callable[[], Iterable[str]]) -> int:
    """Prints the lines that `make` gives; returns 0, or 2 with one line on stderr."""
    try:
        lines = make()
    except (ValueError, OSError) as error:
        print(f"{command}: {messages.line(error)}", file=sys.stderr)
        return 2
    try:
        for line in lines:
            coding = (
                getattr(sys.stdout, "encoding", None) or "utf-8"
            )  # Which may have few letters.
            print(line.encode(coding, "backslashreplace").decode(coding))
        sys.stdout.flush()
    except BrokenPipeError:  # Whoever read has seen enough, as `head` does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
