r"""Write a bias card: shape bias and other numbers, with the decisions that prove them.

    jbias card resnet50.pth --stimuli=/data/geirhos    # measures first
    jbias card measured/resnet50
    jbias card decisions.csv
    jbias card asked/gpt-4o-choice                     # answers of `jbias ask`
    jbias card --verify=cards/resnet50

MODEL is a folder of results that `jbias measure` wrote, such as measured/resnet50, a folder of
`jbias ask`, or any MODEL of `jbias measure`. The last two are measured first, with the same
options. For each network, the folder CARDS/<network>/ gets the following files; for a folder of
`jbias ask` it is CARDS/<model>-<prompt>-<digits>/, with digits of the whole question.

    card.json      the numbers, with n, interval, share of neither cue, images, preprocessing,
                   digests and versions; card.schema.json describes its form
    badge.svg      a badge with the shape bias, its interval and n
    section.md     a section for a model card
    decisions/     all decisions, from which each number is computed
    .eval_results/ with --benchmark: results in the form that the Hugging Face Hub reads

A card needs at least 100 decisions for either cue: Wilson's interval of the shape bias then
reaches at most 10 points to each side. --verify computes all numbers again and prints a line for
each number, decision, digest or text that has changed, and for each file that is not of the card.

Exit codes: 0 all cards are written, or the card is verified; 1 a card is refused, a measure
failed, or the card has differences; 2 nothing was measured, or arguments are wrong; 130 stopped
by Ctrl-C, 143 by SIGTERM.
"""

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jbias import config as jc
from jbias import errors
from jbias.cards import paths
from jbias.measuring import cli as measuring_cli
from jbias.runtime import cli, messages

if TYPE_CHECKING:
    from jbias.cards import verify

_USAGE = "%(prog)s MODEL|measured/NAME [options]\n       %(prog)s --verify=CARD"
_OWN_FLAGS = ("MODEL", "cards", "benchmark", "source", "verify")


def main(argv: Sequence[str] | None = None) -> int:
    """Run `jbias card`; return the exit code (see the module).

    argv: the arguments; None: the arguments of the process.
    """
    args, changes = cli.parse(parser(), argv, "suite", jc.check)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if args.verify:
        return cli.run(
            lambda: _verify(args),
            rerun="checks again",
            uses_jax=False,
            check=lambda: _check_verify(args),
        )
    return cli.run(
        lambda: _write(args, changes),
        rerun="resumes",
        uses_jax=not paths.is_measured(args.MODEL or ""),
        check=lambda: _check(args, changes),
    )


def parser() -> cli.Parser:
    """Return the parser of `jbias card`."""
    arguments = cli.Parser("cards", __doc__, usage=_USAGE)
    arguments.add_argument(
        "MODEL",
        nargs="?",
        help="a folder of results such as measured/NAME, a folder of `jbias ask`, or a MODEL of "
        "`jbias measure`",
    )
    texts = {
        "--verify=CARD": "check a card, by its folder or card.json, and write nothing (default: "
        "write cards)",
        "--benchmark=OWNER/NAME": "data set on the Hugging Face Hub, a benchmark, that the "
        "numbers are results on; @REVISION may follow (default: no .eval_results)",
        "--source=URL": "with --benchmark: address that the Hub links to (default: none)",
    }
    cli.add_texts(arguments, texts)
    arguments.add_argument(
        "--cards",
        type=cli.output_folder,
        default="cards",
        metavar="DIR",
        help="folder to write into; the card of a network is DIR/<network>/ (default: "
        "%(default)s)",
    )
    measuring_cli.add_flags(arguments)
    return arguments


def _check_verify(args: argparse.Namespace) -> None:
    """Raise ValueError for other flags beside --verify, and for a path at which nothing is."""
    _refuse_flags(args, "--verify", allowed=("verify",))
    if not os.path.lexists(args.verify):
        errors.refuse(args.verify, "be a card or its folder", remedy="check the path")


def _verify(args: argparse.Namespace) -> int:
    """Check a card and print its differences; return the exit code."""
    from jbias.cards import verify

    checked = verify.verify(args.verify)
    messages.print_text("\n".join(_verdict(checked)))
    return 1 if checked.differences else 0


def _verdict(checked: "verify.Verified") -> list[str]:
    """Return the lines on a card that was checked."""
    lines = [f"difference: {line}" for line in checked.differences]
    if lines:
        return [*lines, f"{checked.path}: {len(lines):,} difference(s)"]
    counts = f"{checked.num_numbers:,} numbers of {checked.num_decisions:,} decisions"
    return [f"{checked.path}: verified, {counts}"]


def _check(args: argparse.Namespace, changes: Sequence[str]) -> None:
    """Raise ValueError for arguments that are wrong for any model; without slow imports.

    A folder of `jbias ask` becomes its table of answers, in place, and its results have a folder
    of their own, as the same model may have been asked other questions.
    """
    if not args.MODEL:
        errors.refuse("jbias card", "name MODEL or --verify=CARD")
    _hub(args)
    if paths.is_measured(args.MODEL):
        _refuse_flags(
            args, f"{args.MODEL}, which is measured already", allowed=_OWN_FLAGS
        )
        if changes:
            remedy = "remove it, or name the model itself"
            errors.refuse(changes[0], "be left out for measured results", remedy=remedy)
        return
    args.MODEL = paths.to_table(args.MODEL)
    if paths.is_asked(args.MODEL):
        from jbias.cards import asked

        question = asked.describe(os.path.dirname(args.MODEL))
        digest = asked.digest_table(args.MODEL)[:8]  # Later answers are measured again.
        args.out = os.path.join(args.out, asked.label(question), digest)
    measuring_cli.check_paths(args)


def _hub(args: argparse.Namespace) -> dict[str, str] | None:
    """Return the entry "hub" of card.json; None without --benchmark."""
    from jbias.cards import eval_results

    if args.benchmark:
        return eval_results.parse(args.benchmark, args.source or "")
    if args.source:
        errors.refuse("--source", "be given with --benchmark=OWNER/NAME")
    return None


def _write(args: argparse.Namespace, changes: Sequence[str]) -> int:
    """Measure the model if necessary and write cards; return the exit code."""
    hub = _hub(args)
    if paths.is_measured(args.MODEL):
        return _write_card(args.MODEL, args, hub)
    return _measure_and_write(args, changes, hub)


def _measure_and_write(
    args: argparse.Namespace, changes: Sequence[str], hub: dict[str, str] | None
) -> int:
    """Measure a model and write the cards of its networks; return the exit code."""
    from jbias.evals import command
    from jbias.measuring import run

    call = command.Command("measured")
    measurements = run.measure_networks(measuring_cli.request(args, changes), call)
    codes = [call.code]
    for measurement in measurements:
        messages.print_text(repr(measurement))
        codes.append(_write_card(os.fspath(measurement.folder), args, hub))
    return max(codes)


def _write_card(path: str, args: argparse.Namespace, hub: dict[str, str] | None) -> int:
    """Write the card of a folder of results; return the exit code."""
    from jbias.cards import asked, card, folders, tables

    try:
        results = folders.read(path)
        question = results.model["asked"]
        name = asked.label(question) if question else results.model["name"]
        target = os.path.join(args.cards, tables.safe_name(name))
        content = card.make(results, target, hub=hub)
    except ValueError as error:
        line = f"jbias: no card: {messages.one_line(error)}"
        messages.print_text(line, to_stderr=True)
        return 1
    num_rows = sum(entry["rows"] for entry in content["decisions"])
    counts = f"{len(content['numbers']):,} numbers of {num_rows:,} images"
    path = os.path.join(target, card.FILE)
    lines = [f"{path}: {counts}, with badge.svg, section.md and decisions/"]
    lines += [f"doubt: {line}" for line in content["doubts"]]
    lines += [f"not on the card: {line}" for line in content["left_out"]]
    if hub is None:
        lines.append(
            "no .eval_results: the Hugging Face Hub reads results on benchmarks; name one by "
            "--benchmark=OWNER/NAME"
        )
    lines.append(f"check: jbias card --verify={target}")
    messages.print_text("\n".join(map(messages.one_line, lines)))
    return 0


def _refuse_flags(
    args: argparse.Namespace, what_for: str, allowed: Sequence[str]
) -> None:
    """Raise ValueError if a flag was given that says nothing; allowed: flags that may be given."""
    defaults = parser().parse_args([])
    for name, value in vars(args).items():
        if name not in allowed and value != getattr(defaults, name):
            flag = "MODEL" if name == "MODEL" else f"--{name.replace('_', '-')}"
            errors.refuse(flag, f"be left out for {what_for}", value)
