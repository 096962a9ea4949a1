"""The frame of the commands that measure networks: load, prepare, run, store.

    load      `Command.load` opens what the flags name, one network after the other
    prepare   prepared_sets brings the suite's sets into the network's classes
    run       runner.Measuring asks it; jbias.look looks into it
    store     runner.Measuring writes records, which jbias.audit reads; jbias.look figures

What one network cannot give, or one set or measure of it, is left out by name, and the
rest done; the exit code says whether all was.
"""

import argparse
import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from jbias import config as jc
from jbias.evals import networks, probe
from jbias.runtime import console


def load_suite(
    args: argparse.Namespace, changes: Sequence[str], **run: Any
) -> dict[str, Any]:
    """What --suite names, with the changes, --devices and other entries of its `run`."""
    config = jc.to_dict(jc.load(args.suite, changes, flag="suite"))
    jc.check_type("suite.run", config.setdefault("run", {}), dict)
    config["run"] |= run | ({"devices": args.devices} if args.devices else {})
    return config


@dataclasses.dataclass
class Command:
    """One call of a command: what it did, and what it had to leave out.

    verb: what is done, as in "not measured: ...". strict: begins the ValueError that takes
    the place of leaving out.
    """

    verb: str
    strict: str = ""
    say: probe.Say = dataclasses.field(default_factory=lambda: console.logger(None))
    done: list[str] = dataclasses.field(default_factory=list)
    left_out: dict[str, str] = dataclasses.field(default_factory=dict)  # And why.

    def leave_out(self, what: str, why: str) -> None:
        """Goes on without something; `why` names it."""
        if self.strict:
            raise ValueError(f"{self.strict}: {why}")
        self.left_out[what] = f"not {self.verb}: {why}"
        self.say(self.left_out[what])

    @contextlib.contextmanager
    def leaving_out(
        self, what: str, errors: type | tuple = networks.NETWORK_ERRORS
    ) -> Iterator[None]:
        """Leaves out what cannot be done."""
        try:
            yield
        except errors as error:
            self.leave_out(what, f"{what}: {networks.describe_error(error)}")

    def load(
        self, paths: Sequence[str], args: argparse.Namespace, step: int | str = "best"
    ) -> Iterator[networks.Network]:
        """Opens files and runs; those that are none are left out.

        step: of runs, where --step says none.
        """
        return networks.load(paths, args, self.say, self.leave_out, step)

    @property
    def code(self) -> int:
        """The exit code: 0 all is done, 1 something is left out, 2 nothing is done."""
        return 2 if not self.done else 1 if self.left_out else 0
