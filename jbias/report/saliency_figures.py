"""Where networks look: maps over images with what is decided, and mean maps."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from matplotlib import figure as mpl_figure

from jbias.report import contact_sheet

LEAST, ACROSS = 180, 12  # As of contact_sheet.draw.


class Seen(NamedTuple):
    """A network's maps of some images, and what it decides about each."""

    maps: Float[np.ndarray, "n h w"]
    decided: Sequence[str]  # Names of classes.
    chance: Float[np.ndarray, "n"]  # The probability of that.
    right: Bool[np.ndarray, "n"]


class Mean(NamedTuple):
    """The mean map of so many images, of which some had no evidence at all."""

    map: Float[np.ndarray, "h w"]
    count: int
    empty: int


def over(
    images: Float[np.ndarray, "n h w 3"],
    names: Sequence[str],
    seen: Mapping[str, Seen],
    *,
    title: str,
) -> mpl_figure.Figure:
    """Draws a row an image and a column a network, and below what it decides.

    names: of the images. seen: by the networks' names.
    """
    columns, notes = {"as it is": images}, {}
    for label, of in seen.items():
        columns[label] = [*map(contact_sheet.over, images, of.maps)]
        notes[label] = [
            contact_sheet.Note((name, f"{p:.0%}"), right)
            for name, p, right in zip(of.decided, of.chance, of.right.tolist())
        ]
    foot = (
        "Light is where the evidence for the decision lies; each map's largest value is 1."
        " Below: the decision and its probability."
    )
    look = dict(notes=notes, title=title, foot=foot, least=LEAST, across=ACROSS)
    return contact_sheet.draw(columns, names, **look)


def means(by_network: Mapping[str, Mean], *, title: str) -> mpl_figure.Figure:
    """Draws mean maps side by side, in the same colours."""
    top = max(float(one.map.max()) for one in by_network.values()) or 1.0
    notes = {
        label: [
            contact_sheet.Note(
                (f"to {one.map.max():.2f}", f"{one.empty} of {one.count} empty")
            )
        ]
        for label, one in by_network.items()
    }
    foot = f"From 0, black, to {top:.2f}, nearly white. Empty maps show no evidence."
    columns = {label: [one.map / top] for label, one in by_network.items()}
    look = dict(notes=notes, title=title, foot=foot, least=LEAST, across=ACROSS)
    return contact_sheet.draw(columns, **look)
