"""Names of timm's networks as MODEL or --checkpoint: timm:NAME, timm:NAME@FILE."""

import os
from typing import NamedTuple

from jbias import errors

PREFIX = "timm:"


class TimmName(NamedTuple):
    """A network of timm: its name in timm, and the source of its weights.

    file: path of its weights; "": the weights in the Hugging Face cache, unless is_random.
    """

    name: str
    file: str = ""
    is_random: bool = False

    @property
    def network_name(self) -> str:
        """The name of the network's folder of results: NAME, NAME-random or NAME-<file>.

        <file> is the name of the file without its suffix, and left out if it is NAME.
        """
        if self.is_random:
            return f"{self.name}-random"
        stem = os.path.splitext(os.path.basename(self.file))[0]
        return self.name if stem in ("", self.name) else f"{self.name}-{stem}"


def is_timm(path: object) -> bool:
    """Return True if a path is text that starts with timm:, which names a network of timm."""
    return isinstance(path, str) and path.startswith(PREFIX)


def parse(text: str, where: str, *, is_random: bool = False) -> TimmName:
    """Return the network that is named by timm:NAME, timm:NAME@FILE or timm:NAME?pretrained=false.

    where: start of error messages, such as "MODEL". is_random: use random weights for timm:NAME,
    as ?pretrained=false does. ValueError for another form, for a file that does not exist, and for
    is_random with a file or with ?pretrained=true.
    """
    name, at, file = text.removeprefix(PREFIX).partition("@")
    name, _, query = name.partition("?")
    if at:
        if query or is_random:
            remedy = "leave one of the two out"
            errors.refuse(where, "have a file or random weights", text, remedy)
        file = os.path.expanduser(file)
        if not os.path.isfile(file):
            must = "be timm:NAME@FILE, with the path of a file of weights"
            errors.refuse(where, must, text, "no such file")
        return TimmName(name, file)
    if query not in ("", "pretrained=false", "pretrained=true"):
        must = "end with ?pretrained=false, ?pretrained=true or neither"
        remedy = (
            f"for other options write my.py with net = timm.create_model({name!r}, ...), "
            "and give my.py:net"
        )
        errors.refuse(where, must, text, remedy)
    if query == "pretrained=true" and is_random:
        raise ValueError(f"{where}: {text} is pretrained; leave --random-weights out")
    return TimmName(name, is_random=is_random or query == "pretrained=false")
