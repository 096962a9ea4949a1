"""The lines at the end of a run: requests, tokens, failures, and how the answers are read."""

import collections
import os
from collections.abc import Sequence

from jbias.answers import observers, tables
from jbias.asking import asker, ledger

CARD_DECISIONS = 100  # For either cue, as jbias.cards.card.MIN_DECISIONS.
_MAX_FAILED = 5  # Images that are named.


def lines(
    book: ledger.Ledger,
    outcome: asker.Outcome,
    *,
    num_asked: int,
    table: str,
    is_exported: bool,
    limit: str,
) -> list[str]:
    """Return the lines at the end of a run.

    num_asked: images of this run. table: path of the table of answers. is_exported: True for
    stimuli of `jbias export-stimuli`, whose answers are read with their suite. limit: the flag
    that limits an answer, such as "--answer-tokens=300".
    """
    text_lines = []
    line = (
        f"{book.num_requests:,} requests and {book.spent_tokens:,} tokens in all runs"
    )
    text_lines.append(f"{line}; {len(book.answers):,} images are answered")
    if outcome.failures:
        counts = ", ".join(f"{n:,} x {kind}" for kind, n in outcome.failures.items())
        text_lines.append(f"failed requests of this run: {counts}")
    ends = collections.Counter(
        answer["finish_reason"] or "none" for answer in book.answers.values()
    )
    if ends:
        shown = ", ".join(f"{kind} {n:,}" for kind, n in ends.most_common())
        text_lines.append(f"finish reasons: {shown}")
    if ends["length"]:
        text_lines.append(
            f"{ends['length']:,} answers are cut off at {limit}; raise this limit, with another --out"
        )
    if book.answers and book.refused:
        text_lines.append(
            f"{len(book.refused):,} images were refused by the endpoint: they are no answer, and "
            "only --retry-refused asks again"
        )
        for name, line in [*book.refused.items()][:_MAX_FAILED]:
            text_lines.append(f"{name} was refused: {line['reason']}")
    unanswered = {
        name: reason
        for name, reason in outcome.failed.items()
        if name not in book.refused
    }
    for name, reason in [*unanswered.items()][:_MAX_FAILED]:
        text_lines.append(f"{name} has no answer: {reason}")
    read = []
    if book.answers and not is_exported:
        read = tables.read(table, say=text_lines.append)
    num_left = num_asked - outcome.num_answered - outcome.num_refused
    if not book.answers:
        num_left = num_asked
    if num_left:
        why = f" ({outcome.reason})" if outcome.reason else ""
        remedy = "a larger budget" if outcome.is_budget else "the same command"
        text_lines.append(
            f"{num_left:,} images have no answer{why}; {remedy} continues"
        )
    if book.answers:
        command = f"jbias measure {table}"
        if is_exported:
            command = f"jbias evaluate --decisions={table} --suite=SUITE, as exported"
        text_lines.append(f"next: {command}")
    if book.answers and not is_exported:
        text_lines.append(_card_line(read, os.path.dirname(table)))
    return text_lines


def _card_line(read: Sequence[observers.Observer], folder: str) -> str:
    """Return the command that makes a card, or the reason why there is no card yet."""
    biases = [x.shape_bias for x in read if x.texture is not None]
    num_either = sum(bias.n_shape + bias.n_texture for bias in biases)
    if biases and num_either < CARD_DECISIONS:
        return (
            f"no card yet: {num_either:,} decisions are for either cue, and a card needs "
            f"{CARD_DECISIONS}; ask about more images"
        )
    return f"for a card: jbias card {folder}"
