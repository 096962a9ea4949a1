"""Which layer holds what: decodability of shape and texture over a network's sites."""

from collections.abc import Sequence

from matplotlib import figure as mpl_figure
from matplotlib import ticker

from jbias.evals import decisions
from jbias.report import plots

FACTORS = ("shape", "texture")
_MARKERS = {"shape": "o", "texture": "s"}
_LETTER, _STEP = 0.057, 0.2  # Inches.


def decodability(
    numbers: Sequence[decisions.Number], *, title: str = ""
) -> mpl_figure.Figure:
    """Draws decoding accuracy by site, in the order in which the network passes them.

    numbers: those of decoding.measure, of one network on one set. Shuffled labels are
    dashed, chance is a dotted line for each factor that has another one. ValueError
    where there is no site.
    """
    by = {(one.metric, one.condition): one.value for one in numbers}
    sites = [c for m, c in by if m == "shape_decoding"]
    if not sites:
        raise ValueError(
            "decodability: numbers must hold shape_decoding at a site, as"
            f" decoding.measure gives them, got {len(numbers)} without"
        )
    names = plots.plain(sites)
    width = max(4.2, 0.9 + _STEP * len(sites))
    foot = _LETTER * max(map(len, names)) + 0.25
    height = foot + 2.2 + 0.85
    fig = plots.blank(width, height)
    axes = plots.axes_at(fig, (0.6, foot, width - 0.75, 2.2))
    places = range(len(sites))
    for i, factor in enumerate(FACTORS):
        colour = plots.COLOURS[i]
        look = dict(color=colour, linewidth=1.5, markersize=3.5)
        right = [100 * by[f"{factor}_decoding", site] for site in sites]
        axes.plot(places, right, marker=_MARKERS[factor], label=factor, **look)
        mixed = [100 * by[f"{factor}_decoding_shuffled", site] for site in sites]
        label = f"{factor}, labels shuffled"
        axes.plot(places, mixed, label=label, linestyle=(0, (4, 1.5)), **look)
    chances = {100 * by[f"{factor}_decoding_chance", ""] for factor in FACTORS}
    for i, chance in enumerate(sorted(chances)):
        axes.axhline(
            chance,
            color=plots.INK,
            linewidth=0.9,
            linestyle=(0, (1, 1.5)),
            label=None if i else "chance",
        )
    axes.set_xticks(list(places), names, rotation=90, fontsize=7)
    axes.set(ylim=(0, 102), xlim=(-0.5, len(sites) - 0.5))
    axes.yaxis.set_major_locator(ticker.MultipleLocator(25))
    axes.set_ylabel("decoded, % of images", color=plots.INK, fontsize=8)
    axes.tick_params(labelsize=7)
    if title:
        axes.set_title(
            plots.plain([title])[0], fontsize=9, color=plots.INK, loc="left", pad=44
        )
    handles, _ = axes.get_legend_handles_labels()
    axes.legend(
        handles=[*handles[::2], *handles[1::2]],
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=2,
        frameon=False,
        fontsize=7,
        labelcolor=plots.INK,
    )
    return plots.literal(fig)
