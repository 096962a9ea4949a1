"""Functions that add arguments of jbias.measure to messages that name flags of `jbias measure`."""

import contextlib
import re
from collections.abc import Iterator, Mapping

from jbias.runtime import console

_SAME = (
    "stimuli",
    "imagenet",
    "data",
    "humans",
    "size",
    "images",
    "only",
    "out",
    "classes",
    "trained",
    "method",
    "columns",
    "parse",
    "step",
    "mean",
    "std",
    "name",
)
_MODEL = "model, the first argument"
# By the word that a message has.
_ARGUMENTS: Mapping[str, str] = {
    **{f"--{name}": f"{name}=" for name in _SAME},
    "--random-weights": "random_weights=True",
    "--set": "dataset=",
    "--options": "letters=",
    "--suite": "changes=",
    "--devices": "changes=",
    "--checkpoint": _MODEL,
    "--decisions": _MODEL,
    "MODEL": _MODEL,
}
_WORD = re.compile(r"(?<![\w-])(?:--[a-z][a-z-]*|MODEL\b)")


def name_arguments(message: str) -> str:
    """Return a message, followed by the Python arguments that its flags correspond to.

    "--size: ..." becomes "--size: ... (in Python: size=)". The message is unchanged if it names
    no known flag, or already contains "in Python".
    """
    if "in Python" in message:
        return message
    words = dict.fromkeys(_WORD.findall(message))
    names = dict.fromkeys(_ARGUMENTS[word] for word in words if word in _ARGUMENTS)
    return f"{message} (in Python: {', '.join(names)})" if names else message


@contextlib.contextmanager
def named_in_errors() -> Iterator[None]:
    """Return a context in which the message of a ValueError is changed by `name_arguments`."""
    try:
        yield
    except ValueError as error:
        if len(error.args) == 1 and isinstance(error.args[0], str):
            error.args = (name_arguments(error.args[0]),)
        raise


def logger() -> console.Say:
    """Return a function that prints a line of the log, after `name_arguments`."""
    say = console.logger(None)

    def say_named(line: str) -> None:
        """Print a line with Python arguments; events are printed unchanged."""
        say(line if isinstance(line, console.LogEvent) else name_arguments(line))

    return say_named
