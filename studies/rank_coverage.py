"""Simulate how often confidence intervals of ranks contain the true ranks.

    python -m studies.rank_coverage

Each simulated study has 20 models that decide about the same 1,200 images for the shape or the
texture, or for neither. A model decides for the shape if the sum of the image's difficulty, a
number of the model's own, and a threshold is positive. The difficulty is shared, so the decisions
of models are correlated (0.5 before the threshold). A model's threshold gives it a true shape bias.
New images are drawn in every study. The designs differ in the true shape biases and in the number
of decisions for either cue:

- equal: all models have a shape bias of 0.6, with 800 decisions.
- published: the shape biases and the numbers of decisions of 20 published vision-language models
  (Gavrikov et al. 2025, rounded).
- near ties: 0.5 to 0.595 in steps of 0.005, with 800 decisions.
- few decisions: 0.3 to 0.7, with 15 to 60 decisions.
- equal, few decisions: all models have a shape bias of 0.6, with 15 to 60 decisions.

The true rank is 1 + the number of models with a strictly larger true shape bias. Writes to the
file OUT, for the simultaneous and the marginal intervals of jbias.stats.rank_intervals, and for the
naive percentiles of ranks in bootstrap draws, all called 95 %:

- simultaneous: share of studies in which all 20 intervals contain the true rank.
- with_ties: the same, for all ranks of a group of models with equal true shape biases.
- per_model, worst_model: share of intervals that contain the true rank, of all models and of the
  model with the smallest share.
- ranks: mean number of ranks in an interval.

Takes about ten minutes on one core.
"""

import argparse
import json
import pathlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import scipy.stats
from jaxtyping import Bool, Float

from jbias.stats import rank_intervals
from studies import command

OUT = command.RESULTS / "rank_coverage.json"
CONFIDENCE = 0.95
MODELS, IMAGES = 20, 1200
METHODS = ("simultaneous", "marginal", "naive")


class Design(NamedTuple):
    """True values of the models of a simulated study."""

    shape_bias: Float[np.ndarray, "k"]
    decided: Float[np.ndarray, "k"]  # Expected number of decisions for either cue.


# Of the published models in the docstring, in the order of shape bias.
SHAPE_BIASES = (
    "0.388 0.572 0.591 0.596 0.597 0.611 0.611 0.614 0.617 0.629 "
    "0.632 0.634 0.635 0.64 0.641 0.641 0.648 0.682 0.683 0.732"
)
NUMBERS_OF_DECISIONS = (
    "770 1000 960 990 990 900 1090 970 820 710 "
    "900 960 780 780 960 990 1000 960 1070 910"
)
FEW = np.tile([15.0, 30.0, 45.0, 60.0], MODELS // 4)
DESIGNS: Mapping[str, Design] = {
    "equal": Design(np.full(MODELS, 0.6), np.full(MODELS, 800.0)),
    "published": Design(
        np.array(SHAPE_BIASES.split(), float),
        np.array(NUMBERS_OF_DECISIONS.split(), float),
    ),
    "near ties": Design(0.5 + 0.005 * np.arange(MODELS), np.full(MODELS, 800.0)),
    "few decisions": Design(np.linspace(0.3, 0.7, MODELS), FEW),
    "equal, few decisions": Design(np.full(MODELS, 0.6), FEW),
}


def simulate(
    design: Design, rng: np.random.Generator
) -> tuple[Bool[np.ndarray, "k n"], Bool[np.ndarray, "k n"]]:
    """Return the decisions for the shape, and for either cue, of a simulated study."""
    shape = (len(design.shape_bias), IMAGES)
    threshold = np.sqrt(2) * scipy.stats.norm.ppf(design.shape_bias)
    latent = rng.normal(size=IMAGES) + rng.normal(size=shape) + threshold[:, None]
    is_decided = rng.random(shape) < design.decided[:, None] / IMAGES
    return is_decided & (latent > 0), is_decided


def coverage(
    design: Design, *, studies: int, draws: int, seed: int = 0
) -> dict[str, dict[str, float]]:
    """Return coverages and lengths by method; see the module.

    seed: seed of the first study; studies and their draws have consecutive seeds.
    """
    true = scipy.stats.rankdata(-design.shape_bias, method="min")
    true_last = scipy.stats.rankdata(-design.shape_bias, method="max")
    intervals = np.stack(
        [
            _intervals(*simulate(design, np.random.default_rng(number)), draws, number)
            for number in range(seed, seed + studies)
        ]
    )  # (studies, methods, k, 2)
    lower, upper = np.moveaxis(intervals, 3, 0)
    covers = (lower <= true) & (true <= upper)
    covers_ties = (lower <= true) & (true_last <= upper)
    return {
        method: {
            "simultaneous": float(covers[:, i].all(axis=1).mean()),
            "with_ties": float(covers_ties[:, i].all(axis=1).mean()),
            "per_model": float(covers[:, i].mean()),
            "worst_model": float(covers[:, i].mean(axis=0).min()),
            "ranks": float((upper - lower + 1)[:, i].mean()),
        }
        for i, method in enumerate(METHODS)
    }


def _intervals(
    numerator: np.ndarray, denominator: np.ndarray, draws: int, seed: int
) -> np.ndarray:
    """Return the intervals of a study: (methods, k, 2)."""
    result = rank_intervals.rank_intervals(
        numerator, denominator, confidence=CONFIDENCE, draws=draws, seed=seed
    )
    naive = rank_intervals.naive_rank_percentiles(
        numerator, denominator, confidence=CONFIDENCE, draws=draws, seed=seed
    )
    simultaneous = np.stack([result.lower, result.upper], axis=1)
    marginal = np.stack([result.marginal_lower, result.marginal_upper], axis=1)
    return np.stack([simultaneous, marginal, naive])


def table(written: Mapping) -> str:
    """Return the coverages of a written file as a Markdown table."""
    lines = [
        "| Design | All 20: simultaneous | naive | One: marginal | naive | Ranks: simultaneous "
        + "| marginal | naive |",
        "| --- | --: | --: | --: | --: | --: | --: | --: |",
    ]
    for name, by_method in written["designs"].items():
        simultaneous, marginal, naive = (by_method[method] for method in METHODS)
        shares = [
            simultaneous["simultaneous"],
            naive["simultaneous"],
            marginal["per_model"],
            naive["per_model"],
        ]
        ranks = [by_method[method]["ranks"] for method in METHODS]
        cells = [f"{100 * share:.1f} %" for share in shares]
        cells += [f"{number:.1f}" for number in ranks]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Simulate, write the file, and print the table."""
    parser: argparse.ArgumentParser = command.parser("rank_coverage", __doc__)
    parser.add_argument(
        "--studies",
        type=int,
        default=1000,
        metavar="N",
        help="simulated studies per design (default: %(default)s)",
    )
    parser.add_argument(
        "--draws",
        type=int,
        default=1000,
        metavar="N",
        help="bootstrap draws per study (default: %(default)s)",
    )
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        default=OUT,
        metavar="FILE",
        help=f"file to write (default: {OUT.relative_to(command.ROOT)})",
    )
    options = parser.parse_args()
    designs = {}
    for name, design in DESIGNS.items():
        designs[name] = coverage(design, studies=options.studies, draws=options.draws)
        print(name, json.dumps(designs[name]), flush=True)
    written = {
        "confidence": CONFIDENCE,
        "studies": options.studies,
        "draws": options.draws,
        "models": MODELS,
        "images": IMAGES,
        "designs": designs,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    print(table(written))


if __name__ == "__main__":
    main()
