"""Functions that build the page of decisions: headline, warnings, sections and results."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from jbias.answers import observers
from jbias.report import document, tables
from jbias.report.pages.decisions import (
    answers_section,
    consistency_section,
    factor_section,
    methods_section,
    standing_sections,
)
from jbias.report.pages.decisions import standing as standing_lib

Standing = standing_lib.Standing

_MAX_GROUPS = 8  # In the headline.

# Sections of each set, in their order.
SECTIONS = (
    document.SectionMaker("standing", "Standing", standing_sections.standing_section),
    document.SectionMaker("ranks", "Ranks", standing_sections.rank_section),
    document.SectionMaker(
        "pairs", "Which differences are real", standing_sections.pair_section
    ),
    document.SectionMaker(
        "consistency",
        "Do they make the same errors",
        consistency_section.consistency_section,
    ),
    document.SectionMaker("factors", "Prompt and task", factor_section.factor_section),
    document.SectionMaker("answers", "Answers", answers_section.answers_section),
)


def report(
    panels: Mapping[str, observers.Panel], *, notes: Sequence[str] = ()
) -> document.Report:
    """Return the page of the observers of all sets.

    panels: by name of the set, as `observers.panels` returns. notes: further warnings.
    """
    standings = [
        Standing(panel, suffix=f"_{name}" if len(panels) > 1 else "")
        for name, panel in panels.items()
    ]
    num_observers = len({name for standing in standings for name in standing.names})
    return document.Report(
        title="jbias decisions",
        heading=f"Decisions of {tables.count(num_observers, 'observer')}",
        subtitle=f"{tables.join([*panels])}, jbias report",
        answer=headline(standings),
        warnings=[*notes, *(line for x in standings for line in warnings(x))],
        facts=facts(standings),
        sections=sections(standings),
        results={"sets": {x.panel.dataset: results(x) for x in standings}},
        source="Made from decisions about single images; the table of files has their digests.",
        frames=dict(frame for x in standings for frame in frames(x)),
    )


def facts(standings: Sequence[Standing]) -> dict[str, object]:
    """Return the cells of the table at the top of the page, by label."""
    total = sum(x.counts[["rows", "unanswered_rows"]].sum() for x in standings)
    unanswered = f"{total['unanswered_rows']:,} of all rows"
    with_cues = [x.counts for x in standings if x.panel.texture is not None]
    if with_cues:
        cues = sum(counts[["conflicts", "unanswered"]].sum() for counts in with_cues)
        unanswered += (
            f"; {cues['unanswered']:,} of {cues['conflicts']:,} for shape bias"
        )
    return {
        "Sets": tables.join([x.panel.dataset for x in standings]),
        "Observers": len({name for x in standings for name in x.names}),
        "Images": f"{sum(len(x.panel.images) for x in standings):,}",
        "Rows": f"{total['rows']:,}",
        "Unanswered": unanswered,
    }


def sections(standings: Sequence[Standing]) -> list[document.Section]:
    """Return the sections of all sets, then the section on methods.

    With several sets, the titles of sections name the set.
    """
    set_sections = []
    for standing in standings:
        for section in document.make_sections(SECTIONS, standing):
            if len(standings) > 1:
                section = dataclasses.replace(
                    section,
                    id=f"{section.id}_{len(set_sections)}",
                    title=f"{standing.panel.dataset}: {section.title}",
                )
            set_sections.append(section)
    methods = document.SectionMaker(
        "methods", "Methods and limits", methods_section.methods_section
    )
    return [*set_sections, *document.make_sections([methods], standings)]


def headline(standings: Sequence[Standing]) -> tuple[str, str]:
    """Return (scores of groups and numbers of pairs by set, sentences on extremes and data)."""
    answers = [_headline_of_set(standing, len(standings) > 1) for standing in standings]
    basis = []
    for standing in standings:
        panel = standing.panel
        conflicts = int(panel.is_conflict.sum())
        text = (
            f"{panel.dataset}: {tables.count(len(standing.names), 'observer')}, "
            f"{tables.count(len(panel.images), 'image')}"
        )
        if panel.texture is not None:
            text += f", {conflicts:,} of them with a conflict of shape and texture"
        basis.append(f"{text}.{_extremes(standing)}")
    return " ".join(answers), " ".join(basis)


def _headline_of_set(standing: Standing, is_named: bool) -> str:
    """Return the headline of one set. is_named: True to name the set."""
    prefix = f"{standing.panel.dataset}: " if is_named else ""
    known = [i for i in standing.order if standing.main.is_known[i]]
    if not known:
        return f"{prefix}no observer has a {standing.main_name}."
    if len(known) == 1:
        text = f"{standing.names[known[0]]}: {standing.sentence(known[0])}."
        return f"{prefix}{text}"
    doubted = np.flatnonzero(standing.is_doubted)
    if len(doubted) == len(known):
        names = standing_lib.names_of(standing, doubted)
        text = f"{standing_lib.GUESSES}: {names}."
        text = text if prefix else text[:1].upper() + text[1:]
        return f"{prefix}{text} {standing_sections.pair_sentence(standing)}"
    groups = [_group_words(row) for row in standing.groups.itertuples()]
    if [*standing.groups["group"]] == [standing_lib.NO_GROUP]:
        groups = [groups[0].removeprefix(f"{standing_lib.NO_GROUP} ")]
    text = f"mean {standing.main_name} (range): {tables.few(groups, _MAX_GROUPS)}."
    if len(doubted):
        names = standing_lib.names_of(standing, doubted)
        text += f" Left out of the mean ({standing_lib.GUESSES}): {names}."
    text = text if prefix else text[:1].upper() + text[1:]
    return f"{prefix}{text} {standing_sections.pair_sentence(standing)}"


def _group_words(row: Any) -> str:
    """Return the mean and the range of a group as text; row: of `Standing.groups`."""
    if row.observers == 1:
        return f"{row.group} {row.mean:.2f} (1 observer)"
    return (
        f"{row.group} {row.mean:.2f} ({row.lowest:.2f} to {row.highest:.2f}, "
        f"{row.observers} observers)"
    )


def _extremes(standing: Standing) -> str:
    """Return a sentence on the largest and the smallest score; "" for fewer than two."""
    known = [i for i in standing.order if standing.main.is_known[i]]
    if len(known) < 2:
        return ""
    largest, smallest = (
        f"{standing.names[i]}, {standing.sentence(i)}" for i in (known[0], known[-1])
    )
    return f" Largest: {largest}. Smallest: {smallest}."


def warnings(standing: Standing) -> Iterator[str]:
    """Yield the warnings on observers of a set."""
    prefix = f"{standing.panel.dataset}: " if standing.suffix else ""
    frame = answers_section.answer_frame(standing)
    frequent = frame[frame["frequent_share"] >= standing_lib.FREQUENT]
    if len(frequent):
        entries = [
            f"{row.observer} ({row.frequent}, {row.frequent_share:.0%} of {row.answers:,} answers)"
            for row in frequent.itertuples()
        ]
        yield (
            f"{prefix}The same answer to at least {standing_lib.FREQUENT:.0%} of the answered "
            f"images, so that no claim follows from the scores: {tables.few(entries)}."
        )
    doubted = np.flatnonzero(standing.is_doubted)
    if len(doubted):
        yield (
            f"{prefix}Doubt, {standing_lib.GUESSES} from shape bias: "
            f"{standing_lib.names_of(standing, doubted)}."
        )
    main = standing.main
    missing = np.flatnonzero(~main.is_known)
    if len(missing):
        yield (
            f"{prefix}{standing.main_name.capitalize()} not measured, as no decision is for either "
            f"cue: {standing_lib.names_of(standing, missing)}."
        )
    few = np.flatnonzero(main.is_known & (main.n < standing_lib.FEW_DECISIONS))
    if len(few):
        yield (
            f"{prefix}Fewer than {standing_lib.FEW_DECISIONS} decisions, so that numbers are "
            f"uncertain: {standing_lib.names_of(standing, few)}."
        )
    answers = standing.counts["answers"].to_numpy()
    silent = np.flatnonzero(answers < 0.5 * standing.counts["rows"].to_numpy())
    if len(silent):
        yield (
            f"{prefix}Fewer than half of the images have an answer: "
            f"{standing_lib.names_of(standing, silent)}."
        )


def results(standing: Standing) -> dict[str, Any]:
    """Return the entry of a set in results.json.

    Keys: score (name of the main score), observers (see `Standing.frame`, with reasons), groups (see
    `Standing.groups`), count (see `standing_sections.count_pairs`), pairs, consistency, people, among_people and factors.
    """
    rows = standing.frame.to_dict("records")
    for row, i in zip(rows, standing.order, strict=True):
        row["reasons"] = standing.reasons[i]
    kappa = standing.consistency
    people = kappa.people.assign(observer=standing.names)
    return {
        "score": standing.main.score.name,
        "confidence": standing_lib.CONFIDENCE,
        "alpha": standing_lib.ALPHA,
        "observers": rows,
        "groups": standing.groups,
        "count": standing_sections.count_pairs(standing),
        "pairs": _pairs(standing),
        "consistency": consistency_section.pair_frame(standing),
        "people": people[["observer", "value", "lower", "upper", "images"]],
        "among_people": kappa.among_people,
        "factors": factor_section.results(standing),
    }


def _pairs(standing: Standing) -> pd.DataFrame:
    """Return the differences of all pairs in all scores of a set."""
    return pd.concat(
        [standing.pair_frame(name) for name in standing.scores], ignore_index=True
    )


def frames(standing: Standing) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield (name, frame) of the tables that only files have.

    These are the pairs, error consistency and, where words are known, unanswered images.
    """
    if len(standing.unanswered_frame):
        yield f"unanswered{standing.suffix}", standing.unanswered_frame
    yield f"pairs{standing.suffix}", _pairs(standing)
    yield (
        f"error_consistency{standing.suffix}",
        consistency_section.pair_frame(standing),
    )
