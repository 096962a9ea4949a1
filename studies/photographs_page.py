"""Write the tables and the figure of docs/photographs.md.

    python -m studies.photographs_page

Reads the studies `photographs` and `held-out-styles` in docs/results/all.csv, and in
docs/results/photographs the claims (claims.json) and the validation accuracies that choose each
method's learning rate (rates.json). Tests the claims (`studies.photographs_tests`) and prints the
tables. When all runs have results, also writes studies/results/photographs.md and --figure;
before, there are no verdicts.

Takes about a minute on two cores.
"""

import pathlib
import sys
from collections.abc import Mapping, Sequence

import numpy as np

from jbias.report import plots
from jbias.runtime import cli
from studies import all_results, command, photographs
from studies import photographs_scores as scores_lib
from studies import photographs_tests as tests

FILE = command.RESULTS / "photographs.md"
FIGURE = command.DOCS / "photographs.svg"
NOT_RUN, NONE = "not run", "–"
NAMES = {
    "erm": "ERM",
    "eoa": "EoA",
    "swad": "SWAD",
    "sam": "SAM",
    "sagnet": "SagNet",
    "padain": "pAdaIN",
    "stylized_erm": "Stylized ERM",
    "infodrop": "InfoDrop",
    "debiased": "Debiased",
    "deepaugment-cae": "DeepAugment (CAE)",
    "deepaugment-edsr": "DeepAugment (EDSR)",
}
# (metric, set) by heading.
PHOTOGRAPH_COLUMNS = {
    "shape bias": ("shape_bias", "cue-conflict"),
    "neither cue": ("fraction_neither", "cue-conflict"),
    "val": ("accuracy", "val"),
    "cue-conflict": ("accuracy", "cue-conflict"),
    "edge": ("accuracy", "edge"),
    "silhouette": ("accuracy", "silhouette"),
}
STYLE_COLUMNS = {name: ("accuracy", name) for name in photographs.STYLES} | {
    "mean": ("accuracy", scores_lib.MEAN)
}
# Methods without which claims 8 and 9 are tested again: below the largest class on held-out styles.
LEFT_OUT = (("stylized_erm",), ("stylized_erm", "infodrop"))
# Cue conflicts whose texture is of another of the eleven classes: shape bias counts these.
CONFLICTS = 550
# Scores of guessing: 26 classes on val; eleven on Geirhos' stimuli, as a decision among the
# sixteen classes can only be one of those that were trained; seven classes of PACS.
GUESSING = {
    "shape bias": 1 / 2,
    "neither cue": 9 / 11,
    "val": 1 / 26,
    "cue-conflict": 1 / 11,
    "edge": 1 / 11,
    "silhouette": 1 / 11,
} | dict.fromkeys(STYLE_COLUMNS, 1 / 7)
# The images of the largest class and of the set, counted in the folders of PACS: horse, elephant,
# person, person.
LARGEST_CLASS = {
    "sketch": 816 / 3929,
    "cartoon": 457 / 2344,
    "art_painting": 449 / 2048,
    "photo": 432 / 1670,
}
LARGEST_CLASS["mean"] = sum(LARGEST_CLASS.values()) / len(LARGEST_CLASS)
# (study, metric, set) of the scores that rates, figure and power are shown for, by heading.
MAIN_SCORES = {
    "shape bias": (photographs.PHOTOGRAPHS, "shape_bias", "cue-conflict"),
    "val": (photographs.PHOTOGRAPHS, "accuracy", "val"),
    "mean of styles": (photographs.HELD_OUT, "accuracy", scores_lib.MEAN),
}
GUESSING_OF_MAIN = {"shape bias": 1 / 2, "val": 1 / 26, "mean of styles": 1 / 7}


def points(value: float) -> str:
    """Return a difference of fractions as points with a sign and one decimal; a dash for NaN."""
    if np.isnan(value):
        return NONE
    return f"{round(100 * value, 1) + 0.0:+.1f}".replace("-", "−")  # No −0.0.


def with_interval(value: float, ends: tuple[float, float]) -> str:
    """Return a difference in points with its interval in brackets; a dash for NaN."""
    if np.isnan(value):
        return NONE
    return f"{points(value)} [{points(ends[0])}, {points(ends[1])}]"


def p_text(p: float, standard_error: float = 0.0) -> str:
    """Return p as text; a dash for NaN.

    Four decimals and "± standard error" if p is within three standard errors of LEVEL. Smaller p
    than 0.0001 are not shown, as Dunnett's is computed with an error of that size.
    """
    if np.isnan(p):
        return NONE
    if abs(p - tests.LEVEL) < 3 * standard_error:
        return f"{p:.4f} ± {standard_error:.4f}"
    if p < 1e-4:
        return "< 0.0001"
    return all_results.p_value(p)


def spread(values: np.ndarray, unit: float = 100.0, digits: int = 1) -> str:
    """Return "mean [lowest, highest]" of values times `unit`."""
    mean, low, high = (unit * x for x in (np.mean(values), min(values), max(values)))
    return f"{mean:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def outcome_p(outcome: tests.Outcome) -> str:
    """Return p of an outcome as text."""
    return p_text(outcome.p, outcome.standard_error)


def claims_table(results: Sequence[tests.Verdict]) -> str:
    """Return the registered claims with their verdicts as Markdown."""
    lines = []
    for verdict in results:
        blocked = verdict.over_blocks
        lines.append(
            (
                f"{verdict.claim['id']}. {verdict.claim['text']}",
                with_interval(verdict.chosen.difference, verdict.interval),
                outcome_p(verdict.chosen),
                *(outcome_p(outcome) for outcome in verdict.at_rates),
                outcome_p(blocked) if blocked else NONE,
                p_text(verdict.chosen.welch),
                verdict.text,
                ", ".join(verdict.changes) or NONE,
                verdict.registered or NONE,
            )
        )
    rates = [f"p (Holm) at rate {rate:g}" for rate in photographs.RATES]
    head = (
        "Registered claim",
        "points [interval]",
        "p (Holm)",
        *rates,
        "p (Holm), mean of blocks",
        "p (Welch)",
        "verdict",
        "why withdrawn",
        "by the first rules",
    )
    return all_results.table(head, lines)


def registered_tests_line() -> str:
    """Return p of the registered tests that all methods are equal, which do not decide."""
    items = []
    for study in (photographs.HELD_OUT, photographs.PHOTOGRAPHS):
        rows = scores_lib.rows_at(study, "accuracy", None)
        items.append(f"{study} {p_text(tests.registered_differ_pvalue(rows))}")
    return f"Friedman's test over sets, as registered (p): {', '.join(items)}.\n"


def missing_line() -> str:
    """Return the methods whose seeds diverged, as a line."""
    missing = scores_lib.missing_scores()
    return f"Diverged, without scores: {'; '.join(missing) or 'none'}.\n"


def scores_table(study: str, columns: Mapping[str, tuple[str, str]]) -> str:
    """Return means [lowest, highest] of the seeds in %, methods by columns, as Markdown.

    columns: (metric, set) by heading. The last lines are of guessing and, for held-out styles, of
    choosing the set's largest class.
    """
    by_heading = {
        heading: scores_lib.scores_of(scores_lib.rows_at(study, metric, None), name)
        for heading, (metric, name) in columns.items()
    }
    lines = [
        (NAMES[method], *(_cell(scores, method) for scores in by_heading.values()))
        for method in photographs.METHODS
    ]
    levels = {"guessing": GUESSING}
    if study == photographs.HELD_OUT:
        levels["always the largest class"] = LARGEST_CLASS
    for name, level in levels.items():
        lines.append((name, *(f"{100 * level[heading]:.1f}" for heading in columns)))
    head, lines = ["Method, %", *columns], [list(line) for line in lines]
    if study == photographs.PHOTOGRAPHS:
        head.insert(2, f"decisions, of {CONFLICTS}")
        for method, line in zip(photographs.METHODS, lines):
            line.insert(2, _decisions(by_heading["neither cue"], method))
        lines[-1].insert(2, f"{CONFLICTS * (1 - GUESSING['neither cue']):.0f}")
    return all_results.table(tuple(head), [tuple(line) for line in lines])


def _cell(scores: scores_lib.Scores, method: str) -> str:
    """Return mean [lowest, highest] of a method's seeds in %, or that it was not run."""
    return spread(scores[method]) if method in scores else NOT_RUN


def _decisions(neither: scores_lib.Scores, method: str) -> str:
    """Return mean [lowest, highest] of the conflicts that seeds decide for either cue."""
    if method not in neither:
        return NOT_RUN
    return spread(1 - neither[method], unit=CONFLICTS, digits=0)


def rates_table() -> str:
    """Return means [lowest, highest] of the seeds in % at each learning rate, as Markdown."""
    by_heading = {
        f"{heading} at {rate:g}": scores_lib.scores_of(
            scores_lib.rows_at(study, metric, rate), name
        )
        for heading, (study, metric, name) in MAIN_SCORES.items()
        for rate in photographs.RATES
    }
    lines = [
        (NAMES[method], *(_cell(scores, method) for scores in by_heading.values()))
        for method in photographs.METHODS
    ]
    return all_results.table(("Method, %", *by_heading), lines)


def choices_table() -> str:
    """Return the tuning seed's validation accuracies and the chosen rates as Markdown.

    Rows are methods; columns are the photographs and the held-out styles.
    """
    chosen = {study: scores_lib.choices(study) for study in scores_lib.BLOCKS}
    cells = [(photographs.PHOTOGRAPHS, "")]
    cells += [(photographs.HELD_OUT, style) for style in photographs.STYLES]
    lines = [
        (
            NAMES[method],
            *(
                choice_text(chosen[study].get((method, style)))
                for study, style in cells
            ),
        )
        for method in photographs.METHODS
    ]
    heads = [f"without {style}" if style else study for study, style in cells]
    return all_results.table(("Method", *heads), lines)


def choice_text(choice: scores_lib.Choice | None) -> str:
    """Return the accuracies in % in the order of rates, the chosen rate, and whether they tie."""
    if choice is None:
        return NOT_RUN
    accuracies = " / ".join(
        "diverged" if np.isnan(accuracy) else f"{100 * accuracy:.1f}"
        for accuracy in choice.accuracies
    )
    rate = "none" if np.isnan(choice.rate) else f"{choice.rate:g}"
    return f"{accuracies}: {rate}{' (tie)' if choice.is_tied else ''}"


def blocks_table() -> str:
    """Return differences of mean accuracies to ERM in points, methods by blocks, as Markdown."""
    by_heading = {}
    for study, blocks in scores_lib.BLOCKS.items():
        rows = scores_lib.rows_at(study, "accuracy", None)
        blocked = scores_lib.block_means(rows, study)
        for block, sets in blocks.items():
            by_heading[", ".join(sets)] = scores_lib.scores_of(blocked, block)

    def difference(scores: scores_lib.Scores, method: str) -> str:
        """Return the difference of means as text."""
        if method not in scores or "erm" not in scores:
            return NOT_RUN
        return points(scores[method].mean() - scores["erm"].mean())

    lines = [
        (NAMES[method], *(difference(scores, method) for scores in by_heading.values()))
        for method in photographs.METHODS
        if method != "erm"
    ]
    return all_results.table(("Method, points", *by_heading), lines)


def sets_table(results: Sequence[tests.Verdict]) -> str:
    """Return the tests that methods differ on each set and block, as Markdown."""
    lines = [
        (
            f"{verdict.claim['id']}",
            test.name,
            *map(p_text, (test.p, test.adjusted, *test.at_rates)),
        )
        for verdict in results
        for test in verdict.sets
    ]
    rates = [f"p (Holm over sets) at rate {rate:g}" for rate in photographs.RATES]
    head = ("Claim", "set", "p", "p (Holm over sets)", *rates)
    return all_results.table(head, lines)


def without_table() -> str:
    """Return p of claims 8 and 9 without the methods of LEFT_OUT, as Markdown; not registered."""
    lines = []
    for study in (photographs.HELD_OUT, photographs.PHOTOGRAPHS):
        for left_out in LEFT_OUT:
            pvalues = []
            for rate in (None, *photographs.RATES):
                rows = scores_lib.rows_at(study, "accuracy", rate)
                pvalues.append(tests.differ(rows, without=left_out)[0])
            names = ", ".join(NAMES[method] for method in left_out)
            lines.append((study, names, *map(p_text, pvalues)))
    rates = [f"p at rate {rate:g}" for rate in photographs.RATES]
    return all_results.table(("Study", "without", "p", *rates), lines)


def pairs_table() -> str:
    """Return paired differences of EoA and SWAD to ERM at each rate, as Markdown."""
    lines = []
    for method in ("eoa", "swad"):
        for heading, (study, metric, name) in MAIN_SCORES.items():
            results = [
                tests.paired_differences(method, study, metric, name, rate)
                for rate in photographs.RATES
            ]
            texts = [with_interval(*x) if x else NOT_RUN for x in results]
            lines.append((f"{NAMES[method]}, {heading}", *texts))
    rates = [f"points [95 %] at rate {rate:g}" for rate in photographs.RATES]
    return all_results.table(("Difference to ERM, paired by seed", *rates), lines)


def power_table(results: Sequence[tests.Verdict]) -> str:
    """Return the power of the test of each claim of the family, as Markdown."""
    lines = [
        (
            f"{verdict.claim['id']}. {verdict.claim['text']}",
            "0" if verdict.claim["relation"] == "within" else points(tests.DIFFERENCE),
            NONE if np.isnan(verdict.power) else f"{100 * verdict.power:.0f} %",
        )
        for verdict in results
        if verdict.claim["relation"] != "differ"
    ]
    size = len(lines)
    head = (
        "Registered claim",
        "true difference, points",
        f"power at level {tests.LEVEL:g}/{size} (first step of Holm)",
    )
    return all_results.table(head, lines)


def few_seeds_line(heading: str, level: float) -> str:
    """Return the difference to ERM that three seeds detect with power 80 %, in points.

    heading: of MAIN_SCORES. level: of Dunnett's test.
    """
    study, metric, name = MAIN_SCORES[heading]
    scores = scores_lib.scores_of(scores_lib.rows_at(study, metric, None), name)
    deviations = [float(x.std(ddof=1)) for x in scores.values()]
    deviation = float(np.sqrt(np.mean(np.square(deviations))))
    smallest = deviation * tests.detectable(len(photographs.METHODS), level)
    return (
        f"- {heading}: the standard deviation of seeds is {100 * deviation:.1f} points; Dunnett's "
        f"test at level {level:.4f} together with Welch's at {tests.LEVEL:g} detects a difference "
        f"of {100 * smallest:.1f} points with power 80 %.\n"
    )


def figure() -> plots.Figure:
    """Return the figure: a dot per seed, methods by rows; panels are the MAIN_SCORES."""
    by_rate = {f"rate {rate:g}": rate for rate in photographs.RATES}
    looks = plots.marks(by_rate)
    methods = [*photographs.METHODS]
    fig, (cells,) = plots.grid(
        len(MAIN_SCORES),
        (*by_rate, "guessing", "largest class"),
        cell=(3.1, 0.27 * len(methods) + 0.6),
        sharey=True,
    )
    for axes, (heading, (study, metric, name)) in zip(cells, MAIN_SCORES.items()):
        for lane, (label, rate) in enumerate(by_rate.items()):
            rows = scores_lib.rows_at(study, metric, rate)
            scores = scores_lib.scores_of(rows, name)
            for row, method in enumerate(methods):
                values = 100 * scores.get(method, np.array([]))
                y = np.full(len(values), row + 0.3 * (lane - 0.5))
                axes.plot(values, y, ls="", ms=4, mew=0, alpha=0.8, **looks[label])
        guess = axes.axvline(100 * GUESSING_OF_MAIN[heading], color=plots.INK, lw=1)
        axes.set_title(f"{heading}, %", loc="left", **plots.ink(9))
        axes.tick_params(axis="y", length=0)
    largest = cells[-1].axvline(
        100 * LARGEST_CLASS["mean"], color=plots.INK, lw=1, ls=(0, (4, 1.5))
    )
    cells[0].set_ylim(len(methods) - 0.5, -0.5)
    cells[0].set_yticks(range(len(methods)), [NAMES[method] for method in methods])
    legend = plots.handles(looks) | {"guessing": guess, "largest class": largest}
    plots.legend_above(fig, legend)
    return plots.laid_out(fig)


def sections(results: Sequence[tests.Verdict]) -> dict[str, list[str]]:
    """Return tables and lines by section of the page. results: of `photographs_tests.verdicts`."""
    is_complete = all(verdict.is_complete for verdict in results)
    level = tests.first_holm_level([verdict.claim for verdict in results])
    lines = [few_seeds_line(heading, level) for heading in MAIN_SCORES]
    return {
        "Verdicts": [
            claims_table(results),
            missing_line(),
            *([registered_tests_line()] if is_complete else []),
        ],
        "Scores": [
            scores_table(photographs.PHOTOGRAPHS, PHOTOGRAPH_COLUMNS),
            scores_table(photographs.HELD_OUT, STYLE_COLUMNS),
            pairs_table(),
        ],
        "Sets and blocks": [
            blocks_table(),
            *([sets_table(results), without_table()] if is_complete else []),
        ],
        "Rates": [choices_table(), rates_table()],
        "What three seeds can detect": [power_table(results), "".join(lines)],
    }


def parser() -> cli.Parser:
    """Return the parser of the command line."""
    arguments = command.parser("photographs_page", __doc__)
    arguments.add_argument(
        "--figure",
        type=pathlib.Path,
        metavar="FILE",
        help="SVG file of the figure, also written before all runs have results "
        "(default: docs/photographs.svg, when they have)",
    )
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables, and write them and the figure when all runs have results; return 0."""
    options = parser().parse_args(argv)
    unfinished = scores_lib.unfinished_cells()
    texts = []
    for heading, texts_of_section in sections(tests.verdicts()).items():
        texts += [f"## {heading}\n", *texts_of_section]
    text = "\n".join(texts)
    print(text)
    path = options.figure or (None if unfinished else FIGURE)
    if path is not None:
        path.write_text(plots.to_svg(figure()), encoding="utf-8")
    if unfinished:
        total = len(photographs.cells([*photographs.METHODS]))
        print(f"not complete: {len(unfinished)} of {total} runs have no results")
    else:
        FILE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
