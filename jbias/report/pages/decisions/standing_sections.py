"""Sections on the scores of observers: standing, ranks, differences of pairs."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Int

from jbias.report import comparison_figure, document, tables
from jbias.report.pages.decisions import decision_plots
from jbias.report.pages.decisions import standing as standing_lib
from jbias.stats import comparison_matrix

Standing, Blocks = standing_lib.Standing, document.Blocks

_SCORE_WORDS = {
    "shape_bias": "Shape bias: shape decisions divided by shape and texture decisions (of), over "
    "the images whose cues conflict. Accuracy: share of all images, with the shape as the right "
    "class; no answer is wrong.",
    "accuracy": "Accuracy: share of all images (of); no answer is wrong.",
}
_INTERVALS = (
    f"In brackets: {standing_lib.LEVEL} bootstrap intervals over images; of ranks, "
    "simultaneous intervals."
)

_WORDS = ("group", "task", "prompt")  # Columns with words.
_MAX_SENTENCES = 4_000  # Pairs that the page has in words, of up to 89 observers.


def standing_section(standing: Standing) -> Blocks:
    """Yield the table of scores, and the figure of the main score with its intervals."""
    yield standing_table(standing)
    score = standing.main.score.name
    frame = _rows(standing, standing.main.lower, standing.main.upper)
    frame["value"] = standing.main.value[standing.order]
    frame["text"] = [tables.digits(3)(value) for value in frame["value"]]
    looks = decision_plots.looks_of(sorted(set(standing.kinds)))
    yield document.Figure(
        f"{score}{standing.suffix}",
        f"{standing.main_name.capitalize()} with {standing_lib.LEVEL} bootstrap "
        "intervals over images, by group. A name without a dot has no number.",
        lambda: decision_plots.intervals(
            frame,
            looks,
            label=standing.main_name,
            limits=(-0.02, 1.02) if score == "shape_bias" else None,
        ),
    )


def _rows(
    standing: Standing, low: Sequence[float], high: Sequence[float]
) -> pd.DataFrame:
    """Return a frame for `decision_plots.intervals`, without values and texts.

    low, high: ends of the interval, by observer.
    """
    order = standing.order
    return pd.DataFrame(
        {
            "name": [standing.names[i] for i in order],
            "kind": [standing.kinds[i] for i in order],
            "low": np.asarray(low, float)[order],
            "high": np.asarray(high, float)[order],
            "words": [f"{standing.names[i]}: {standing.sentence(i)}" for i in order],
        }
    )


def standing_table(standing: Standing) -> tables.Table:
    """Return the table of all observers, by decreasing main score.

    A number that an observer lacks is shown as "not measured".
    """
    score = standing.main.score.name
    frame = standing.frame.copy()
    frame["_missing"] = [
        f"{row.unanswered:,} of {row.conflicts:,}" for row in frame.itertuples()
    ]
    show = tables.interval(tables.digits(3))
    rank_ends = (f"{score}_rank_lower", f"{score}_rank_upper")
    columns = {
        "observer": tables.Column("observer", str),
        score: tables.Column(
            standing.main_name, show, (f"{score}_lower", f"{score}_upper")
        ),
        f"{score}_n": tables.Column("of", tables.whole),
        "_missing": tables.Column("unanswered", str),
        f"{score}_rank": tables.Column("rank", tables.interval(_rank), rank_ends),
    }
    if score != "accuracy":
        ends = ("accuracy_lower", "accuracy_upper")
        columns["accuracy"] = tables.Column("accuracy", show, ends)
    columns |= {key: tables.Column(key, str) for key in _WORDS}
    unknown = frame[score].isna()
    table = tables.from_rows(
        f"standing{standing.suffix}",
        f"{_SCORE_WORDS[score]} {_INTERVALS} Unanswered: images without an answer, of "
        f"{'the conflicts' if score == 'shape_bias' else 'all images'}.{_parser_words(standing)}"
        f"{_doubt_words(standing)}",
        frame,
        columns,
        data=standing.frame,
        texts=1,
    )
    word_columns = (j for j, head in enumerate(table.head) if head in _WORDS)
    rows = [
        (f"{row[0]} (no claim)", *row[1:]) if doubt else row
        for row, doubt in zip(table.rows, frame["doubt"], strict=True)
    ]
    table = dataclasses.replace(
        table, rows=tuple(rows), word_columns=frozenset(word_columns)
    )
    return _say_not_measured(table, standing.main_name, unknown)


def _parser_words(standing: Standing) -> str:
    """Return a sentence on decisions that the parser made from raw words; "" if there are none."""
    parsed = [x for x in standing.panel.observers if x.parser]
    if not parsed:
        return ""
    versions = tables.join(sorted({x.parser for x in parsed}))
    return (
        f" Decisions of {tables.count(len(parsed), 'observer')} are read from raw words by the "
        f"parser of jbias (version {versions}); words that it cannot read are unanswered."
    )


def _doubt_words(standing: Standing) -> str:
    """Return a sentence on the mark "no claim"; "" if no observer has it."""
    return f" No claim: {standing_lib.GUESSES}." if standing.is_doubted.any() else ""


def _say_not_measured(
    table: tables.Table, head: str, unknown: pd.Series
) -> tables.Table:
    """Return the table with "not measured" in a column where `unknown` is True."""
    if head not in table.head:  # No observer has this number.
        return table
    column = table.head.index(head)
    rows = [
        (*row[:column], "not measured", *row[column + 1 :]) if missing else row
        for row, missing in zip(table.rows, unknown, strict=True)
    ]
    return dataclasses.replace(table, rows=tuple(rows))


def _rank(value: float) -> str:
    """Return a rank as text."""
    return f"{value:.0f}"


def rank_section(standing: Standing) -> Blocks:
    """Yield a sentence on the ranks, and the figure of their intervals.

    Nothing is yielded for fewer than two observers with a score.
    """
    ranks = standing.main.ranks
    if standing.main.is_known.sum() < 2:
        return
    widths = (ranks["upper"] - ranks["lower"]).dropna()
    num_certain = int((widths == 0).sum())
    yield document.Text(
        f"Rank 1 has the largest {standing.main_name}. With {standing_lib.LEVEL} "
        "confidence, all simultaneous intervals contain the true ranks at once; the interval of a "
        "single observer holds for this observer alone, so it must not be used to compare "
        f"several. Certain ranks: {num_certain} of {len(widths)}. Half of the simultaneous "
        f"intervals span {widths.median() + 1:.0f} ranks or more."
    )
    frame = _rows(standing, ranks["lower"], ranks["upper"])
    for name in ("inner_low", "inner_high"):
        end = "marginal_lower" if name == "inner_low" else "marginal_upper"
        frame[name] = ranks[end].to_numpy()[standing.order]
    frame["value"] = ranks["rank"].to_numpy()[standing.order]
    frame["text"] = [
        "not measured"
        if math.isnan(row.value)
        else tables.interval(_rank)(row.value, row.low, row.high)
        for row in frame.itertuples()
    ]
    looks = decision_plots.looks_of(sorted(set(standing.kinds)))
    yield document.Figure(
        f"ranks{standing.suffix}",
        f"Ranks by {standing.main_name}: simultaneous {standing_lib.LEVEL} intervals "
        "(thin lines and numbers) and the interval of each observer alone (thick).",
        lambda: decision_plots.intervals(
            frame,
            looks,
            label="rank (1: largest)",
            limits=(0.5, len(standing.names) + 0.5),
            inner="this observer alone",
            outer="all simultaneously",
        ),
    )


def pair_section(standing: Standing) -> Blocks:
    """Yield the numbers of pairs that differ, and the matrix of verdicts.

    Nothing is yielded for fewer than two observers with a score.
    """
    pairs = standing.main.pairs
    if pairs.empty:
        return
    yield document.Text(pair_sentence(standing))
    yield document.Text(picture_sentence(standing))
    yield document.Text(
        f"Each pair is compared on the images that both have. The unadjusted verdict of a pair "
        "depends on these two observers alone, whoever else takes part; Holm's adjustment depends "
        f"on the number of pairs and their p-values. tables/pairs{standing.suffix}.csv has "
        "differences, intervals and p-values of all pairs: first_minus_second is the score of the "
        "first less that of the second, and larger names the observer with the larger score."
    )
    yield pair_menus(standing)
    order = [i for i in standing.order if standing.main.is_known[i]]
    if len(order) <= comparison_figure.MAX_METHODS:
        cue = (
            "images that both decide for a cue, on which the row decides for the shape and the "
            "column for the texture / both for the same cue / the reverse"
            if standing.main.score.name == "shape_bias"
            else "images that only the row has right / both or neither / only the column"
        )
        yield document.Figure(
            f"pairs{standing.suffix}",
            f"Multi-Comparison Matrix (Ismail-Fawaz et al. 2023) of {standing.main_name}. A cell: "
            f"difference, row less column; {cue}; unadjusted p, bold below "
            f"{standing_lib.ALPHA:g}.",
            lambda: comparison_figure.draw(
                matrix(standing),
                alpha=standing_lib.ALPHA,
                digits=3,
                blocks="images",
            ),
        )
        return
    verdict = verdict_matrix(standing)[np.ix_(order, order)]
    names = [standing.names[i] for i in order]
    words = [_row_words(name, row) for name, row in zip(names, verdict, strict=True)]
    yield document.Figure(
        f"pairs{standing.suffix}",
        f"Verdicts on all pairs, in the order of {standing.main_name} (1: largest); p ≤ "
        f"{standing_lib.ALPHA:g}. A number above a column is that of the row.",
        lambda: decision_plots.verdicts(names, verdict, words),
    )


def pair_menus(standing: Standing) -> document.PairMenus | None:
    """Return menus with a sentence for each pair; None for more than `_MAX_SENTENCES` pairs."""
    frame = standing.pair_frame(standing.main.score.name)
    if len(frame) > _MAX_SENTENCES:
        return None
    names = [standing.names[i] for i in standing.order if standing.main.is_known[i]]
    return document.PairMenus(
        title=f"The {tables.count(len(frame), 'pair')} in words",
        question=f"Compare two observers in {standing.main_name}:",
        names=names,
        sentences=[_verdict_words(row) for row in frame.itertuples()],
    )


def _verdict_words(row: Any) -> str:
    """Return the verdict on a pair as a sentence; row: of `Standing.pair_frame`."""
    if math.isnan(row.pvalue):
        return f"{row.first} and {row.second} cannot be compared."
    show = tables.interval(tables.digits(3, plus=True))
    difference = show(row.first_minus_second, row.lower, row.upper)
    numbers = (
        f"{row.first} less {row.second}: {difference} on the {row.num_images:,} images of "
        f"both; p {_equals(row.pvalue)} ({tables.p_text(row.adjusted)} after Holm's adjustment)."
    )
    if not row.larger:
        return f"No difference in {row.score} is shown. {numbers}"
    smaller = row.second if row.larger == row.first else row.first
    doubt = "" if row.larger_after_holm else ", but not after adjustment for all pairs"
    return f"{row.larger} has more {row.score} than {smaller}{doubt}. {numbers}"


def _equals(pvalue: float) -> str:
    """Return "= 0.02" or "< 1e-9"."""
    text = tables.p_text(pvalue)
    return text if text[:1] in "<≤" else f"= {text}"


def matrix(standing: Standing) -> comparison_matrix.ComparisonMatrix:
    """Return the Multi-Comparison Matrix of the observers with the main score.

    Wins are images that count for both observers (for shape bias: both decide for a cue), on which
    only the row has the numerator 1. Differences and p-values are those of `ScoreResult.pairs`.
    """
    main, pairs = standing.main, standing.main.pairs
    known = [i for i in range(len(standing.names)) if main.is_known[i]]
    numerator = main.score.numerator[known].astype(int)
    denominator = main.score.denominator[known].astype(int)
    wins = numerator @ (denominator - numerator).T
    both = denominator @ denominator.T
    np.fill_diagonal(both, 0)
    np.fill_diagonal(wins, 0)
    place = {i: row for row, i in enumerate(known)}
    first = [place[int(i)] for i in pairs["first"]]
    second = [place[int(i)] for i in pairs["second"]]
    differences = np.zeros((len(known), len(known)))
    pvalues = np.ones_like(differences)
    differences[first, second] = pairs["difference"]
    differences[second, first] = 0 - pairs["difference"]
    pvalues[first, second] = pvalues[second, first] = pairs["pvalue"]
    return comparison_matrix.ComparisonMatrix(
        methods=tuple(standing.names[i] for i in known),
        means=main.value[known],
        differences=differences,
        wins=wins,
        ties=both - wins - wins.T,
        pvalues=pvalues,
        larger_is_better=True,
    )


def count_pairs(standing: Standing) -> dict[str, int]:
    """Return the number of pairs, and of those that differ unadjusted and after Holm.

    Keys: pairs, unadjusted, holm.
    """
    pairs = standing.main.pairs
    return {
        "pairs": len(pairs),
        "unadjusted": int((pairs["pvalue"] <= standing_lib.ALPHA).sum()),
        "holm": int((pairs["adjusted"] <= standing_lib.ALPHA).sum()),
    }


def pair_sentence(standing: Standing) -> str:
    """Return a sentence with the numbers of `count_pairs`."""
    counts = count_pairs(standing)
    pairs = tables.count(counts["pairs"], "pair")
    num_compared = int(standing.main.pairs["pvalue"].notna().sum())
    start = f"Of {pairs} of observers"
    if num_compared < counts["pairs"]:
        start = (
            f"{num_compared:,} of {pairs} of observers can be compared on common images"
        )
        if not num_compared:
            return f"{start}."
        start += ". Of these"
    verb = "differs" if counts["unadjusted"] == 1 else "differ"
    return (
        f"{start}, {counts['unadjusted']:,} "
        f"{verb} in {standing.main_name} without adjustment (p ≤ {standing_lib.ALPHA:g}), and "
        f"{counts['holm']:,} after Holm's adjustment."
    )


def picture_sentence(standing: Standing) -> str:
    """Return a sentence with the numbers of pairs that differ if shared pictures are drawn, or ""."""
    compared = standing.main.pairs_of_pictures
    if compared is None or np.isnan(compared.pvalue).all():
        return ""
    shapes, textures = (len({*names}) for names in standing.main.score.pictures)
    unadjusted, holm = (
        int((pvalue <= standing_lib.ALPHA).sum())
        for pvalue in (compared.pvalue, compared.adjusted)
    )
    return (
        f"This is about further combinations of these {shapes:,} shape and {textures:,} texture "
        f"pictures. For other pictures, too (both counted as drawn), {unadjusted:,} differ "
        f"without adjustment, and {holm:,} after Holm's."
    )


def verdict_matrix(standing: Standing) -> Int[np.ndarray, "k k"]:
    """Return the verdict on each pair of observers, an index into `decision_plots.VERDICTS`.

    -1 for the diagonal and for pairs without a p-value.
    """
    k = len(standing.names)
    verdict = np.full((k, k), -1)
    pairs = standing.main.pairs
    first, second = pairs["first"].to_numpy(int), pairs["second"].to_numpy(int)
    index = np.select(
        [
            pairs["pvalue"].isna(),
            pairs["adjusted"] <= standing_lib.ALPHA,
            pairs["pvalue"] <= standing_lib.ALPHA,
        ],
        [-1, 0, 1],
        2,
    )
    verdict[first, second] = verdict[second, first] = index
    return verdict


def _row_words(name: str, verdict: Int[np.ndarray, "k"]) -> str:
    """Return the numbers of verdicts on the pairs of an observer, for the text on hover."""
    counts = [
        f"{label}: {(verdict == index).sum()}"
        for index, label in enumerate(decision_plots.VERDICTS)
    ]
    return f"{name}; {'; '.join(counts)}"
