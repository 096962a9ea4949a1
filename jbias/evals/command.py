"""Shared steps of the commands that measure networks: load, prepare, run, store.

    load      `Command.load` opens the networks of the flags, one after the other
    prepare   set_batches maps the suite's sets to the network's classes
    run       runner.NetworkEvaluation measures the network; jbias.look computes its heatmaps
    store     runner.NetworkEvaluation writes records, which jbias.audit reads; jbias.look
              writes figures

A network, set or measure that fails is left out with a message, and the command continues. The
exit code shows whether anything was left out.
"""

import argparse
import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jbias import config as jc
from jbias import errors
from jbias.evals import networks
from jbias.runtime import console


def load_suite(
    args: argparse.Namespace, changes: Sequence[str], **run: Any
) -> dict[str, Any]:
    """Return the config of --suite as a dictionary, with changes applied.

    args: the command's flags, of which suite and devices are used. changes: "path=value"
    overrides of the command line. run: entries that replace entries of config["run"]; --devices, if
    given, replaces config["run"]["devices"]. ValueError for an invalid suite.
    """
    config = jc.to_dict(jc.load(args.suite, changes, flag="suite"))
    errors.check_type("suite.run", config.setdefault("run", {}), dict)
    config["run"] |= run
    if args.devices:
        config["run"]["devices"] = args.devices
    return config


@dataclasses.dataclass
class Command:
    """The networks, sets or measures that a command has finished or has left out.

    verb: the participle in messages, such as "measured". strict: if not "", `leave_out` raises a
    ValueError whose message begins with `strict`. say: called with lines for the user. done:
    names of finished networks or sets. left_out: messages by name.
    """

    verb: str
    strict: str = ""
    say: console.Say = dataclasses.field(default_factory=lambda: console.logger(None))
    done: list[str] = dataclasses.field(default_factory=list)
    left_out: dict[str, str] = dataclasses.field(default_factory=dict)

    def leave_out(self, name: str, reason: str) -> None:
        """Add a name to `left_out` and print the reason; ValueError if `strict` is set.

        name: a network, set or measure. reason: text that contains the name.
        """
        if self.strict:
            raise ValueError(f"{self.strict}: {reason}")
        self.left_out[name] = f"not {self.verb}: {reason}"
        self.say(self.left_out[name])

    @contextlib.contextmanager
    def leaving_out(
        self,
        name: str,
        kinds: type[Exception] | tuple[type[Exception], ...] = networks.NETWORK_ERRORS,
    ) -> Iterator[None]:
        """Return a context that catches `kinds` and then calls `leave_out` with `name`."""
        try:
            yield
        except kinds as error:
            self.leave_out(name, f"{name}: {networks.describe_error(error)}")

    def load(
        self,
        paths: Sequence[str],
        args: argparse.Namespace,
        step: int | str = "best",
        *,
        open_timm: Callable[[str, str], networks.Network] | None = None,
    ) -> Iterator[networks.Network]:
        """Yield the networks of files and runs; networks that cannot be opened are left out.

        paths: files of networks, folders of runs, or names of timm. args: the flags of the command.
        step: the checkpoint of runs ("best", "latest" or a number of steps) if --step is not given.
        open_timm: see networks.open_networks.
        """
        return networks.open_networks(
            paths, args, self.say, self.leave_out, step, open_timm
        )

    @property
    def code(self) -> int:
        """Return the exit code: 0 if nothing was left out, 2 if nothing was finished, else 1."""
        if not self.done:
            return 2
        return 1 if self.left_out else 0
