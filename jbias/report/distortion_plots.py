"""A figure of the classes that wrong predictions are for."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib import figure as mpl_figure
from matplotlib import patches

from jbias.report import plots

MOST = 12  # Classes of one panel.
_LETTER, _ROW, _WIDE, _ASIDE = 0.078, 0.34, 2.3, 3  # Inches, but for the last.
_CLEAN, _DISTORTED = plots.COLOURS[0], plots.COLOURS[1]

Shares = tuple[
    Sequence[str], Float[np.ndarray, "r k"], Float[np.ndarray, "r k"]
]  # Classes, and shares in % clean and distorted.


def wrong_classes(panels: Mapping[str, Shares]) -> mpl_figure.Figure:
    """Draws, a panel a title, each class's share of the errors before and after.

    All panels have the same classes. Of more than `MOST` those with the largest growth in
    some panel are drawn, the largest first.
    """
    names, chosen = _chosen(panels)
    left = _LETTER * max(map(len, names)) + 0.25
    tall = _ROW * len(names)
    aside = min(_ASIDE, len(panels))
    below = -(-len(panels) // aside)
    height, step = below * (tall + 0.85) + 0.35, tall + 0.85
    fig = plots.blank(left + aside * (_WIDE + 0.25), height)
    most = max(max(a.max(), b.max()) for _, a, b in panels.values())
    for i, (title, (_, clean, distorted)) in enumerate(panels.items()):
        down, across = divmod(i, aside)
        foot = (below - 1 - down) * step + 0.5
        axes = plots.axes_at(fig, (left + across * (_WIDE + 0.25), foot, _WIDE, tall))
        for shares, off, colour in (
            (clean, -0.2, _CLEAN),
            (distorted, 0.2, _DISTORTED),
        ):
            _bars(axes, shares[:, chosen], off, colour)
        axes.set(xlim=(0, 1.05 * max(most, 1)), ylim=(len(names) - 0.5, -0.5))
        axes.set_yticks(range(len(names)), names if not across else [])
        axes.tick_params(axis="y", length=0)
        axes.set_title(
            plots.plain([title])[0], fontsize=8.5, color=plots.INK, loc="left"
        )
        if down == below - 1 or i + aside >= len(panels):
            axes.set_xlabel("share of wrong predictions in %", **plots.ink())
    fig.legend(
        [patches.Patch(color=colour) for colour in (_CLEAN, _DISTORTED)],
        ["as they are", "distorted"],
        loc="upper left",
        ncols=2,
        frameon=False,
        labelcolor=plots.INK,
        fontsize=8,
    )
    return plots.literal(fig)


def _chosen(panels: Mapping[str, Shares]) -> tuple[list[str], np.ndarray]:
    """Gives the classes that are drawn: all in their order, or those that grow most."""
    names = next(iter(panels.values()))[0]
    growth = np.max([(b - a).mean(axis=0) for _, a, b in panels.values()], axis=0)
    chosen = np.arange(len(names))
    if len(names) > MOST:
        chosen = np.argsort(-growth, kind="stable")[:MOST]
    return plots.plain([names[c] for c in chosen]), chosen


def _bars(axes, shares: Float[np.ndarray, "r k"], off: float, colour: str) -> None:
    places = np.arange(shares.shape[1]) + off
    axes.barh(places, shares.mean(axis=0), 0.36, color=colour, linewidth=0, alpha=0.75)
    if len(shares) > 1:
        axes.plot(
            shares.T,
            places,
            "o",
            color=plots.INK,
            markersize=2,
            markeredgewidth=0,
            alpha=0.7,
        )
