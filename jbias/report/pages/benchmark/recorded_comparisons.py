"""Comparisons that chose the number of seeds of runs: comparison.json beside the runs' workdirs.

`jbias train --until-decided` and searches write the file, see `jbias.deciding.state_file`. Its
settings hold for the comparison of its metric and data set, whatever the options of the report are.
"""

import collections
import dataclasses
import math
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jbias import config as jc
from jbias.deciding import comparison as comparison_lib
from jbias.deciding import descriptions, state_file
from jbias.report import tables, workdirs
from jbias.report.pages.benchmark import recorded_commands

_LEAST_SEEDS = 30  # Of --max-seeds in the command that continues a comparison.


class Recorded(NamedTuple):
    """A comparison of a method with the reference of a folder.

    folder: of comparison.json. plan: the comparison, with the labels of the page as names. look:
    the state at the last look. outlook: a forecast; None if decided, or with fewer than 4 pairs.
    command: continues the comparison; None if decided, if it would probably need more than 500
    further seeds, or if the command that started it is not known. is_search: True if a search
    trains the seeds.
    """

    folder: str
    plan: comparison_lib.Comparison
    look: comparison_lib.Look
    outlook: comparison_lib.Outlook | None
    command: str | None
    is_search: bool

    @property
    def settings(self) -> comparison_lib.Settings:
        """The settings that were fixed before the first score was seen."""
        return self.plan.settings

    @property
    def subject(self) -> str:
        """The metric and data set as text, such as "shape bias on cue_conflict"."""
        return f"{self.settings.metric.replace('_', ' ')} on {self.settings.dataset}"

    @property
    def is_decided(self) -> bool:
        """True if the comparison is decided."""
        return self.look.result.decision is not None

    def concerns(self, metric: str, dataset: str, names: set[str]) -> bool:
        """Return True for this metric, data set and pair of labels."""
        pair = {self.look.method, self.plan.reference}
        settings = self.settings
        return (metric, dataset, names) == (settings.metric, settings.dataset, pair)


def read(runs: Sequence[workdirs.Run]) -> tuple[Recorded, ...]:
    """Return the comparisons of all folders whose batches are among the runs, with a score.

    A method without a run among `runs` is left out. ValueError for a damaged comparison.json.
    """
    folders = dict.fromkeys(pathlib.Path(run.workdir).parent for run in runs)
    return tuple(
        recorded
        for folder in folders
        if (folder / state_file.NAME).exists()
        for recorded in _of_folder(folder, runs)
    )


def _of_folder(
    folder: pathlib.Path, runs: Sequence[workdirs.Run]
) -> Iterator[Recorded]:
    """Yield the comparisons of a folder with comparison.json."""
    state = state_file.read(folder)
    plan = state.comparison
    names = {batch.folder: batch.method for batch in plan.batches}
    batches: dict[str, list[workdirs.Run]] = collections.defaultdict(list)
    for run in runs:
        path = pathlib.Path(run.workdir)
        if path.parent == folder and path.name in names:
            batches[names[path.name]].append(run)
    if plan.are_trained:
        batches[plan.reference] += _trained_reference(state, runs, set(names), folder)
    labels = {name: members[0].label for name, members in batches.items() if members}
    relabelled = _relabelled(plan, labels)
    is_search = (folder / ".sweep").exists()
    for name, look in zip(plan.methods, comparison_lib.look(relabelled).values()):
        if name not in labels or not look.scores:
            continue
        outlook = command = None
        if look.result.decision is None:
            outlook = comparison_lib.outlook(relabelled, look, _limits(look))
            max_seeds = _max_seeds(look, outlook)
            if max_seeds and not is_search:
                command = recorded_commands.continue_comparison(
                    folder,
                    plan,
                    batches[name],
                    reference_runs=batches[plan.reference],
                    max_seeds=max_seeds,
                )
        yield Recorded(str(folder), relabelled, look, outlook, command, is_search)


def _trained_reference(
    state: state_file.State,
    runs: Sequence[workdirs.Run],
    batch_folders: set[str],
    folder: pathlib.Path,
) -> list[workdirs.Run]:
    """Return the runs outside of the folder that have the config of the reference."""
    expected = state.configs[state.comparison.reference]

    def has_config(settings: Mapping[str, Any]) -> bool:
        """Return True if the entries on which scores depend are those of the reference."""
        entries = state_file.pinned_config(settings)
        return not jc.diff({key: expected.get(key) for key in entries}, entries)

    return [
        run
        for run in runs
        if run.settings
        and not (
            pathlib.Path(run.workdir).parent == folder
            and pathlib.Path(run.workdir).name in batch_folders
        )
        and has_config(run.settings)
    ]


def _relabelled(
    plan: comparison_lib.Comparison, labels: Mapping[str, str]
) -> comparison_lib.Comparison:
    """Return the comparison with labels in place of names, unless two labels would be equal."""
    names = (*plan.methods, plan.reference)
    chosen = [labels.get(name, name) for name in names]
    if len({*chosen}) < len(chosen):
        return plan
    new_names = dict(zip(names, chosen, strict=True))
    return dataclasses.replace(
        plan,
        methods=tuple(map(new_names.get, plan.methods)),
        reference=new_names[plan.reference],
        batches=tuple(
            batch._replace(method=new_names[batch.method]) for batch in plan.batches
        ),
        scores={new_names[name]: scores for name, scores in plan.scores.items()},
    )


def _limits(look: comparison_lib.Look) -> comparison_lib.Limits:
    """Return limits for a forecast, which considers at most 500 further seeds."""
    return comparison_lib.Limits(max_seeds=look.num_seeds + 500)


def _max_seeds(
    look: comparison_lib.Look, outlook: comparison_lib.Outlook | None
) -> int | None:
    """Return a limit of seeds that would probably decide it; None if more than 500 are needed."""
    if outlook is None:
        return max(_LEAST_SEEDS, 2 * look.num_seeds)
    if math.isinf(outlook.pairs):
        return None
    needed = look.num_seeds + outlook.pairs
    return max(_LEAST_SEEDS, math.ceil(needed / 10) * 10)


def describe(recorded: Recorded) -> str:
    """Return the sentence on the state of a comparison, with its forecast if it is open."""
    settings, level = recorded.settings, recorded.plan.level
    limits = None
    if recorded.outlook and math.isfinite(recorded.outlook.pairs):
        limits = _limits(recorded.look)
    line = descriptions.describe_look(recorded.plan, recorded.look, limits)
    equivalence = "equivalence is not tested"
    if settings.points is not None:
        equivalence = f"equivalent below {settings.points:g} points"
    wins = ", share of wins" if settings.quantity == "wins" else ""
    low, high = settings.bounds
    bounds = "" if (low, high) == (0, 1) else f", scores from {low:g} to {high:g}"
    return (
        f"{recorded.folder}, {recorded.subject} (level {level:.3g}{wins}, {equivalence}{bounds}; "
        f"settings as it was started with): {line}.{_describe_outlook(recorded)}"
    )


def _describe_outlook(recorded: Recorded) -> str:
    """Return the sentence on a missing forecast, with a space before it; "" with a forecast."""
    if recorded.is_decided:
        return ""
    if recorded.outlook is None:
        return " There are too few seeds for a forecast."
    if math.isinf(recorded.outlook.pairs):
        return " More than 500 further seeds would probably be needed."
    return ""


def headline(recorded: Sequence[Recorded], guessed: frozenset[tuple[str, str]]) -> str:
    """Return the verdicts for the headline, one sentence per comparison.

    guessed: (label, data set) with decisions or accuracies at chance.
    """
    sentences = []
    for item in recorded:
        look, plan = item.look, item.plan
        pair = f"{look.method} and {plan.reference}"
        verdict = descriptions.verdict(plan, look)
        if not item.is_decided:
            verdict = f"undecided after {tables.count(len(look.scores), 'pair')}"
        names = [
            name
            for name in (look.method, plan.reference)
            if (name, item.settings.dataset) in guessed
        ]
        chance = ""
        if names:
            chance = f", but {tables.join(names)} {'is' if len(names) == 1 else 'are'} at chance"
        sentences.append(
            f"{pair} in {item.subject}, looked at after each seed: {verdict}{chance}."
        )
    return " ".join(sentences)


def caveats(recorded: Sequence[Recorded]) -> list[str]:
    """Return a warning per metric and data set: tests with a fixed number of seeds are not valid."""
    by_subject: dict[str, dict[str, None]] = {}
    for item in recorded:
        names = by_subject.setdefault(item.subject, {})
        names |= dict.fromkeys([item.look.method, item.plan.reference])
    return [
        f"The number of seeds of {tables.join([*names])} was chosen while looking at their {subject}: "
        "for this metric and data set, t-tests, permutation tests and their p-values and intervals "
        "over these seeds are not valid, and the sequential comparison decides (section “Decided by "
        "now, and seeds needed”)."
        for subject, names in by_subject.items()
    ]


def methods(recorded: Sequence[Recorded]) -> str:
    """Return the sentences on methods for a paper; "" without comparisons."""
    by_plan: dict[str, list[Recorded]] = {}
    for item in recorded:
        by_plan.setdefault(item.folder, []).append(item)
    return " ".join(
        sentence for items in by_plan.values() for sentence in _methods_of_folder(items)
    )


def _methods_of_folder(items: Sequence[Recorded]) -> Iterator[str]:
    """Yield the sentences on methods of the comparisons in one folder."""
    plan = items[0].plan
    settings = plan.settings
    names = tables.join([item.look.method for item in items])
    quantity = "the difference of means"
    if settings.quantity == "wins":
        quantity = "the share of pairs won minus the share lost"
    points = ""
    if settings.points is not None:
        points = f", or lies within ±{settings.points:g} points (equivalent)"
    family = ""
    if len(plan.methods) > 1:
        family = f" (Bonferroni over {len(plan.methods)} comparisons)"
    yield (
        f"For {items[0].subject}, seeds of {names} and {plan.reference} were trained one batch after "
        f"another, with a look at the scores after each batch. Pairs of equal seeds are compared by a "
        f"confidence sequence of {quantity} that is valid at every look, for scores from "
        f"{settings.bounds[0]:g} to {settings.bounds[1]:g} of any distribution [waudbysmith2023], at "
        f"the level {plan.level:.3g}{family}; a comparison is decided when the interval no longer "
        f"contains 0{points}."
    )
    for item in items:
        line = descriptions.describe_look(plan, item.look)
        # Citations are in square brackets.
        line = re.sub(r"\[([^],]*), ([^],]*)\]", r"\1 to \2", line)
        yield f"{line[0].upper()}{line[1:]}."
    yield "Tests over seeds that assume a fixed number of seeds are not valid for these scores."
