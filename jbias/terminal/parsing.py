"""The command line of every command: flags are written out, and a wrong one is told."""

import argparse
import difflib
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jbias.terminal import messages


def unknown(word: str, known: Iterable[str]) -> str:
    """Says that an argument such as --dta=pacs is none, and which flag is nearest."""
    name, dot, key = word.lstrip("-").partition("=")[0].partition(".")
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean --{close[0]}{dot}{key}?" if close else "see --help"
    return f"unknown argument {word!r}; {hint}"


class Parser(argparse.ArgumentParser):
    """Reads the arguments of `python -m jbias.<command>`; its help begins with `doc`."""

    entries = ""  # The flag whose --<entries>.KEY=VALUE are others' to read.

    def __init__(self, command: str = "", doc: str = "", **options: Any):
        given: dict[str, Any] = dict(
            prog=f"python -m jbias.{command}",
            description=doc,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        super().__init__(**{**given, **options})

    def parse_known_args(self, args: Sequence[str] | None = None, namespace=None):
        """Before anything is said of what is missing, refuses flags that are not there."""
        words = sys.argv[1:] if args is None else list(args)
        known = [name[2:] for name in self._option_string_actions if name[:2] == "--"]
        for word in words:
            if word == "--" or self._subparsers and word[:1] != "-":
                break  # A command knows its own.
            entry = self.entries and word.startswith(f"--{self.entries}.")
            if (
                word[:2] == "--"
                and word[2:].partition("=")[0] not in known
                and not entry
            ):
                self.error(unknown(word, known))
        return super().parse_known_args(words, namespace)

    def error(self, message: str):
        """Ends with one line and exit code 2."""
        self.exit(2, f"{self.prog}: error: {messages.line(message)}\n")


def number(kind: type, fits: Callable[[Any], bool], what: str) -> Callable[[str], Any]:
    """What reads a number of that kind that fits, which `what` names."""

    def read(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not fits(value):
            raise argparse.ArgumentTypeError(f"must be {what}, got {text!r}")
        return value

    return read


def at_least(least: int) -> Callable[[str], int]:
    """What reads a whole number of at least that."""
    what = f"a whole number of at least {least}"
    return number(int, lambda value: value >= least, what)


positive = number(float, lambda value: 0 < value < math.inf, "a number above 0")


def names(text: str) -> tuple[str, ...]:
    """Reads "A,B"; each once."""
    found = tuple(map(str.strip, text.split(",")))
    if not all(found) or len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(
            f"must be different names, as A,B, got {text!r}"
        )
    return found
