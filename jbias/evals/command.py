"""Shared steps of the commands that measure networks: load, prepare, run, store.

    load      `Command.load` opens the networks of the flags, one after the other
    prepare   prepared_sets maps the suite's sets to the network's classes
    run       runner.NetworkEvaluation runs it; jbias.look reads its maps
    store     runner.NetworkEvaluation writes records, which jbias.audit reads; jbias.look
              writes figures

A network, set or measure that fails is left out and named, and the rest is done; the exit
code says whether anything was left out.
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
    """Return the config of --suite with changes, --devices and further entries of its `run`."""
    config = jc.to_dict(jc.load(args.suite, changes, flag="suite"))
    jc.check_type("suite.run", config.setdefault("run", {}), dict)
    config["run"] |= run
    if args.devices:
        config["run"]["devices"] = args.devices
    return config


@dataclasses.dataclass
class Command:
    """The progress of one call of a command: what is done, and what is left out.

    verb: the participle in messages, such as "measured". strict: if not "", leaving out
    raises a ValueError that begins with it. done: names. left_out: reasons by name.
    """

    verb: str
    strict: str = ""
    say: probe.Say = dataclasses.field(default_factory=lambda: console.logger(None))
    done: list[str] = dataclasses.field(default_factory=list)
    left_out: dict[str, str] = dataclasses.field(default_factory=dict)

    def leave_out(self, name: str, reason: str) -> None:
        """Note and say that something is left out; the reason contains its name."""
        if self.strict:
            raise ValueError(f"{self.strict}: {reason}")
        self.left_out[name] = f"not {self.verb}: {reason}"
        self.say(self.left_out[name])

    @contextlib.contextmanager
    def leaving_out(
        self, name: str, errors: type | tuple = networks.NETWORK_ERRORS
    ) -> Iterator[None]:
        """Return a context in which errors lead to `name` being left out."""
        try:
            yield
        except errors as error:
            self.leave_out(name, f"{name}: {networks.describe_error(error)}")

    def load(
        self, paths: Sequence[str], args: argparse.Namespace, step: int | str = "best"
    ) -> Iterator[networks.Network]:
        """Yield the networks of files and runs; those that cannot be opened are left out.

        step: of runs, without --step.
        """
        return networks.open_networks(paths, args, self.say, self.leave_out, step)

    @property
    def code(self) -> int:
        """Return the exit code: 0 all is done, 1 something is left out, 2 nothing is done."""
        if not self.done:
            return 2
        return 1 if self.left_out else 0
