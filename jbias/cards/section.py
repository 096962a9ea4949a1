"""The section of a card for a model card: a short table, and what the shape bias is and is not."""

import re
from collections.abc import Mapping
from typing import Any

_SHARES = (
    "shape_bias",
    "accuracy_shape",
    "accuracy_texture",
    "accuracy",
)  # Shown in per cent.
_PAPER = "[Geirhos et al. 2019](https://arxiv.org/abs/1811.12231)"


def write(content: Mapping[str, Any]) -> str:
    """Return the section in Markdown; content: of card.json."""
    bias = next(x for x in content["numbers"] if x["name"] == "shape_bias")
    lines = [
        "## Shape bias",
        "",
        "![Shape bias](badge.svg)",
        "",
        "| | Images | Value | 95 % interval | n | Unanswered |",
        "| --- | --- | --- | --- | --- | --- |",
        *(_row(number) for number in content["numbers"]),
        "",
        _sentence(bias),
    ]
    for line in content["doubts"]:
        lines += ["", f"**Doubt:** {escape(line)}."]
    versions, stimuli = content["versions"], content["stimuli"][bias["set"]]
    reader = f", answers read by {versions['reader']}" if versions["reader"] else ""
    source = (
        f"Measured with jbias {escape(versions['jbias'])} on {content['date'][:10]}, model "
        f"`{_code(content['model']['name'])}` ({_code(content['model']['digest'])}), stimuli "
        f"`{_code(stimuli['name'])}` ({stimuli['images']:,} images, {stimuli['digest'][:16]})"
        f"{escape(reader)}; all decisions are beside [card.json](card.json), and "
        "`jbias card --verify=card.json` computes the numbers again."
    )
    return "\n".join([*lines, "", source]) + "\n"


def _row(number: Mapping[str, Any]) -> str:
    """Return a number's row of the table."""
    is_share = number["name"] in _SHARES
    value, lower, upper = (
        _text(number[key], is_share=is_share) for key in ("value", "lower", "upper")
    )
    method = "bootstrap" if number["seed"] is not None else "Wilson"
    interval = f"{lower} to {upper} ({method})"
    if None in (number["lower"], number["upper"]):
        interval = "undefined"
    unanswered = number["unanswered"]
    cells = [
        number["label"],
        escape(number["set"]),
        f"{value} %" if is_share and number["value"] is not None else value,
        interval,
        f"{number['n']:,} {number['unit']}",
        f"{unanswered['count']:,} of {unanswered['n']:,}",
    ]
    return f"| {' | '.join(cells)} |"


def _text(value: float | None, *, is_share: bool) -> str:
    """Return a number for the table."""
    if value is None:
        return "undefined"
    return f"{100 * value:.1f}" if is_share else f"{value:.3f}"


def _sentence(bias: Mapping[str, Any]) -> str:
    """Return the sentence that says what the shape bias is and is not."""
    neither = bias["neither"]
    share = neither["count"] / neither["n"]
    return (
        f"Shape bias is the share of decisions for the shape among the {bias['n']:,} decisions "
        "for either cue, on images with the shape of one class and the texture of another "
        f"({_PAPER}); it is not an accuracy, and says nothing about the {100 * share:.1f} % of "
        "these images that were decided as neither class, about other images or about "
        "robustness."
    )


def escape(text: str) -> str:
    """Return a text in which no letter has a meaning in Markdown or HTML, on one line."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~&])", r"\\\1", " ".join(text.split()))


def _code(text: str) -> str:
    """Return a text for a span of code: without backticks, pipes and line breaks."""
    return " ".join(re.sub(r"[`|]", "'", text).split())
