"""The section of a card for a model card: a short table, and what the shape bias is and is not."""

import re
from collections.abc import Mapping
from typing import Any

from jbias.cards import badge, claims

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
        *(_row(content, number) for number in content["numbers"]),
        "",
        _sentence(bias),
    ]
    lines += _parts(content)
    if content["model"]["asked"]:
        rows = sum(x["rows"] for x in content["decisions"] if not x["measure"])
        lines += ["", _question(content["model"]["asked"], rows=rows)]
    for line in content["doubts"]:
        lines += ["", f"**Doubt:** {escape(line)}."]
    versions = content["versions"]
    reader = f", answers read by {versions['reader']}" if versions["reader"] else ""
    source = (
        f"Measured with jbias {escape(versions['jbias'])} on {content['date'][:10]}, model "
        f"`{_code(content['model']['name'])}` ({escape(content['model']['digest'])}), stimuli "
        f"{', '.join(map(_stimuli, content['stimuli'].values()))}"
        f"{escape(reader)}; all decisions are beside [card.json](card.json), and "
        "`jbias card --verify=card.json` computes the numbers again."
    )
    return "\n".join([*lines, "", source]) + "\n"


def _parts(content: Mapping[str, Any]) -> list[str]:
    """Return a paragraph on sets of which only a part was decided; [] for none."""
    phrases = [
        f"{badge.part_of(entry)} of {escape(entry['name'])}"
        for entry in content["stimuli"].values()
        if badge.part_of(entry)
    ]
    if not phrases:
        return []
    return [
        "",
        f"**Part of a published set:** the numbers are of {', '.join(phrases)}.",
    ]


def _stimuli(stimuli: Mapping[str, Any]) -> str:
    """Return a set of images with its number, digest and preprocessing; an entry of card.json."""
    images = badge.part_of(stimuli) or f"{stimuli['images']:,} images"
    phrases = [images, stimuli["digest"][:16], escape(stimuli["preprocessing"])]
    return f"`{_code(stimuli['name'])}` ({'; '.join(filter(None, phrases))})"


def _question(question: Mapping[str, Any], *, rows: int) -> str:
    """Return the paragraph on the question that a model behind an endpoint was asked.

    rows: the number of decisions about unchanged images on the card.
    """
    order = {"drawn": "drawn for each image", "": "none"}.get(
        question["order"], question["order"]
    )
    temperature = question["temperature"]
    shown = "the endpoint's own" if temperature is None else f"{temperature:g}"
    served = ", ".join(f"`{_code(name)}`" for name in question["served_models"])
    dates = " to ".join(dict.fromkeys((question["first"][:10], question["last"][:10])))
    num_images = question["answers"] + question["refused_images"]
    num_refused = question["refused"] + question["refused_images"]
    part = "" if rows == num_images else f" {rows:,} of these images are on this card."
    extra = question["extra"]
    fields = (
        f"further fields `{_code(extra)}`" if extra != "{}" else "no further fields"
    )
    return (
        f"Asked at `{_code(question['endpoint'])}` as `{_code(question['model'])}` (served: "
        f"{served or 'unknown'}), {escape(dates) or 'at an unknown date'}: "
        f'"{escape(question["words"])}" Order of options: {escape(order)}, seed '
        f"{question['seed']}; temperature {shown}; at most {question['answer_tokens']} tokens; "
        f"detail {escape(question['detail']) or 'unknown'}; {fields}. "
        f"{num_refused:,} of {num_images:,} requests were refused, "
        f"{question['cut_off']:,} answers were cut off.{part}"
    )


def _row(content: Mapping[str, Any], number: Mapping[str, Any]) -> str:
    """Return a number's row of the table."""
    is_share = number["name"] in _SHARES
    value, lower, upper = (
        _text(number[key], is_share=is_share) for key in ("value", "lower", "upper")
    )
    method = "bootstrap" if number["seed"] is not None else "Wilson"
    interval = f"{lower} to {upper} ({method})"
    if None in (number["lower"], number["upper"]):
        interval = "undefined"
    shown = f"{value} %" if is_share and number["value"] is not None else value
    if not claims.has_claim(content, number):
        shown, interval = "no claim", "no claim"
    unanswered = number["unanswered"]
    part = badge.part_of(content["stimuli"][number["set"]])
    n = f"{number['n']:,} {number['unit']}"
    if number["name"] == "shape_bias":
        n += f", of {number['neither']['n']:,} conflicts"
    cells = [
        number["label"],
        f"{escape(number['set'])}{part and f', {part}'}",
        shown,
        interval,
        n,
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
    neither, unanswered = bias["neither"], bias["unanswered"]
    share, silent = neither["count"] / neither["n"], unanswered["count"] / neither["n"]
    no_answer = f", the {100 * silent:.1f} % without an answer" if silent else ""
    return (
        f"Shape bias is the share of decisions for the shape among the {bias['n']:,} decisions "
        f"for either cue, on {neither['n']:,} images with the shape of one class and the texture "
        f"of another ({_PAPER}); it is not an accuracy, and says nothing about the "
        f"{100 * share:.1f} % of these images that were decided as neither class{no_answer}, "
        "other images or robustness."
    )


def escape(text: str) -> str:
    """Return a text in which no letter has a meaning in Markdown or HTML, on one line."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~&])", r"\\\1", " ".join(text.split()))


def _code(text: str) -> str:
    """Return a text for a span of code: without backticks, pipes and line breaks."""
    return " ".join(re.sub(r"[`|]", "'", text).split())
