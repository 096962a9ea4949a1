"""The badge of a card: an SVG of 20 pixels with the shape bias, its interval, n and the stimuli.

    shape bias on geirhos/cue-conflict | 21.4 % [18.7, 24.5], n = 760 for either cue of 1,200 conflicts

Of a part of a published set, the number of images follows: "640 of 1,280 images".
"""

from collections.abc import Mapping
from typing import Any
from xml.sax import saxutils

from jbias.cards import claims

HEIGHT = 20
_LABEL_COLOUR, _COLOUR, _DOUBT_COLOUR = "#4a4a4a", "#0b6e8a", "#757575"
_PADDING = 6
# Advance widths of Verdana at 11 pixels, of letters that differ from _WIDTH.
_WIDTH = 7.0
_WIDTHS = {
    **dict.fromkeys(" ./,f-", 3.9),
    **dict.fromkeys("ijl", 3.0),
    **dict.fromkeys("[]();:t", 4.7),
    **dict.fromkeys("rcs", 5.5),
    **dict.fromkeys("mw", 10.0),
    "=": 9.0,
    "%": 11.8,
}


_LONGEST_NAME = 28  # Letters of the stimuli's name.


def draw(content: Mapping[str, Any]) -> str:
    """Return the badge of a card as SVG.

    content: of card.json. If the decisions may be guesses, the badge is grey and has no value.
    """
    bias = next(x for x in content["numbers"] if x["name"] == "shape_bias")
    is_doubted = not claims.has_claim(content, bias)
    stimuli = content["stimuli"][bias["set"]]
    label = f"shape bias on {_shorten(stimuli['name'])}"
    message = _message(bias, stimuli, is_doubted=is_doubted)
    label_width, message_width = (
        _text_width(x) + 2 * _PADDING for x in (label, message)
    )
    title = _title(content, bias, is_doubted=is_doubted)
    return _SVG.format(
        width=label_width + message_width,
        height=HEIGHT,
        title=saxutils.escape(title),
        corners=f"corners-{content['digest'][:12]}",  # For several badges in one page.
        label_text=saxutils.escape(title, {'"': "&quot;"}),
        label_width=label_width,
        message_width=message_width,
        label_colour=_LABEL_COLOUR,
        colour=_DOUBT_COLOUR if is_doubted else _COLOUR,
        label=saxutils.escape(label),
        message=saxutils.escape(message),
        label_middle=label_width / 2,
        message_middle=label_width + message_width / 2,
        label_length=label_width - 2 * _PADDING,
        message_length=message_width - 2 * _PADDING,
    )


def _shorten(name: str) -> str:
    """Return a name on one line, cut if it is long."""
    line = " ".join(name.split())
    return line if len(line) <= _LONGEST_NAME else f"{line[: _LONGEST_NAME - 3]}..."


def _message(
    bias: Mapping[str, Any], stimuli: Mapping[str, Any], *, is_doubted: bool
) -> str:
    """Return the right text of the badge; stimuli: entry of the set."""
    conflicts = (
        f"n = {bias['n']:,} for either cue of {bias['neither']['n']:,} conflicts"
    )
    words = [conflicts, *([part_of(stimuli)] if part_of(stimuli) else [])]
    if is_doubted:
        return ", ".join(["no more than guessing", *words])
    value, lower, upper = (100 * bias[key] for key in ("value", "lower", "upper"))
    return ", ".join([f"{value:.1f} % [{lower:.1f}, {upper:.1f}]", *words])


def part_of(stimuli: Mapping[str, Any]) -> str:
    """Return "640 of 1,280 images" for a part of a published set, else "".

    stimuli: entry of the set in card.json.
    """
    if stimuli["published"] in (None, stimuli["images"]):
        return ""
    return f"{stimuli['images']:,} of {stimuli['published']:,} images"


def _title(
    content: Mapping[str, Any], bias: Mapping[str, Any], *, is_doubted: bool
) -> str:
    """Return the badge in words, for screen readers and tooltips."""
    stimuli = content["stimuli"][bias["set"]]
    images = part_of(stimuli) or f"{stimuli['images']:,} images"
    counts = (
        f"n = {bias['n']:,} {bias['unit']} on {bias['neither']['n']:,} images whose cues "
        f"conflict, of {stimuli['name']} ({images})"
    )
    if is_doubted:
        return (
            f"shape bias of {content['model']['name']}: no claim, because {counts} are no "
            "more than guessing gives"
        )
    value, lower, upper = (100 * bias[key] for key in ("value", "lower", "upper"))
    return (
        f"shape bias of {content['model']['name']}: {value:.1f} %, 95 % interval "
        f"{lower:.1f} to {upper:.1f} %, {counts}"
    )


def _text_width(text: str) -> int:
    """Return the width of a text in whole pixels."""
    return round(sum(_WIDTHS.get(letter, _WIDTH) for letter in text))


_SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" \
viewBox="0 0 {width} {height}" role="img" aria-label="{label_text}">
<title>{title}</title>
<clipPath id="{corners}"><rect width="{width}" height="{height}" rx="3"/></clipPath>
<g clip-path="url(#{corners})">
<rect width="{label_width}" height="{height}" fill="{label_colour}"/>
<rect x="{label_width}" width="{message_width}" height="{height}" fill="{colour}"/>
</g>
<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,Geneva,sans-serif" \
font-size="11" aria-hidden="true">
<text x="{label_middle}" y="14" textLength="{label_length}">{label}</text>
<text x="{message_middle}" y="14" textLength="{message_length}">{message}</text>
</g>
</svg>
"""
