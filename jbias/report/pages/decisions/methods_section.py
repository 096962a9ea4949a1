"""Section on the methods and limits of the page of decisions."""

from collections.abc import Iterator, Sequence

from jbias.report import document, tables
from jbias.report.pages.decisions import standing as standing_lib

Standing, Blocks = standing_lib.Standing, document.Blocks


def methods_section(standings: Sequence[Standing]) -> Blocks:
    """Yield a paragraph per method with its sources, and the list of limits."""
    for paragraph in _methods(standings):
        yield document.Text(paragraph)
    yield document.Text([*_limits(standings)])


def _methods(standings: Sequence[Standing]) -> Iterator[str]:
    """Yield a paragraph per method."""
    level = standing_lib.LEVEL
    yield (
        f"Intervals of scores: percentile bootstrap, {standing_lib.DRAWS:,} draws of images with "
        "replacement, the same images for all observers. Intervals and tests count four extra images, "
        "two with and two without the shape (the right class), so that an observer with few "
        "decisions, all alike, has no interval of length 0 (Agresti and Coull 1998, "
        "https://doi.org/10.1080/00031305.1998.10480550); values do not count these images."
    )
    yield (
        "Pairs: difference of the scores on the images that both observers have; its standard "
        "error by linearisation of the two ratios, which keeps the pairing; two-sided normal "
        "p-value. The unadjusted p-value does not depend on other observers. Holm: Holm 1979, over "
        "all pairs of the set."
    )
    yield (
        f"Ranks: simultaneous {level} confidence intervals from all pairwise differences, by the "
        "studentised bootstrap of their maximum with a step-down: Mogstad, Romano, Shaikh and "
        "Wilhelm 2024, Review of Economic Studies, https://doi.org/10.1093/restud/rdad006. The "
        "interval of a single observer uses the same method for this observer alone."
    )
    if any(standing.panel.texture is not None for standing in standings):
        yield (
            "Shape bias: Geirhos et al. 2019, https://arxiv.org/abs/1811.12231. Decisions for "
            "neither cue, and images without an answer, do not count."
        )
    yield (
        "Error consistency: Geirhos, Meding and Wichmann 2020, https://arxiv.org/abs/2006.16736; "
        f"intervals from {standing_lib.KAPPA_DRAWS:,} bootstrap draws of images."
    )
    yield (
        "Variance components: mean squared differences of pairs of scores that share one factor "
        "(Bouthillier et al. 2021, https://arxiv.org/abs/2103.03098), which for crossed factors "
        "equal the estimates of an analysis of variance."
    )


def _limits(standings: Sequence[Standing]) -> Iterator[str]:
    """Yield a paragraph per limit of the numbers."""
    if any(standing.panel.texture is not None for standing in standings):
        yield (
            "Images of a cue-conflict set share their pictures and textures (the same texture is "
            "on many shapes). Intervals, ranks and tests treat images as independent: they are "
            "about further combinations of these pictures, and too narrow for other pictures and "
            "textures. The section on pairs says how many pairs differ if the pictures are counted "
            "as drawn, too (standard errors clustered in two ways: Cameron, Gelbach and Miller "
            "2011, https://doi.org/10.1198/jbes.2010.07136)."
        )
        yield (
            "Shape bias says nothing about how often shapes are recognised: an observer that is "
            "rarely right for either cue can have any shape bias. Read it with the number of "
            "decisions and with accuracy."
        )
    yield (
        "Published decisions come from different parsers and class maps. An answer that one "
        "parser reads may be unanswered for another; the table of answers has the numbers."
    )
    for standing in standings:
        sizes = standing.panel.has_row.sum(axis=1)
        if (sizes < len(standing.panel.images)).any():
            yield (
                f"{standing.panel.dataset}: observers have {tables.span(sizes)} of "
                f"{len(standing.panel.images):,} images. Pairs are compared on common images; "
                "scores and ranks use all images of each observer."
            )
