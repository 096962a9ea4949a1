"""Text and tables of docs/reproduction-biasbed-tables.md: BiasBed's tables, recomputed.

`python -m studies.reproduction` writes it.
"""

from collections.abc import Iterable

import pandas as pd

from jbias.report import tables as report_tables
from studies import biasbed, prose

NAME = "reproduction-biasbed-tables.md"
_EIGHT = "the same, pAdaIN without runs 2 and 5"


def text() -> str:
    """Return the page on BiasBed as Markdown."""
    sections = [_opening(), _table1(), _scores(), _friedman(), *_pairs(), _notes()]
    return "\n\n".join(prose.wrap(section.strip()) for section in sections) + "\n"


def tables() -> dict[str, pd.DataFrame]:
    """Return the full tables behind the page, by the names of their files."""
    numbers = (2, 3)
    return {
        "biasbed_selection": biasbed.table1(),
        "biasbed_scores": pd.concat(
            biasbed.differences(number).assign(table=number) for number in numbers
        ),
        "biasbed_tenth_run": pd.concat(
            biasbed.implied_run(number).assign(table=number) for number in numbers
        ),
        "biasbed_tests": _tests(),
        "biasbed_pairs": pd.concat(
            biasbed.pairs(setting).assign(datasets=setting)
            for setting in biasbed.PRINTED_F
        ),
    }


def _tests() -> pd.DataFrame:
    rows = []
    for scores, frame in biasbed.inputs().items():
        for setting, datasets in biasbed.settings().items():
            test = biasbed.iman_davenport(frame, datasets)
            row = (
                scores,
                setting,
                len(datasets),
                test.f,
                test.f_untied,
                prose.format_exponent(test.p),
                prose.format_exponent(test.p_conover),
            )
            rows.append(row)
    names = ["scores", "datasets", "n_datasets", "f", "f_untied", "p", "p_other_df"]
    return pd.DataFrame(rows, columns=names)


def _opening() -> str:
    return """
# BiasBed, recomputed

The tables and tests of *BiasBed* ([Kalischek et al., CVPR 2023](https://arxiv.org/abs/2211.13190)), recomputed from
[the published runs](../examples/published/README.md), with every difference that rounding does not explain
([claims and verdicts](reproduction-biasbed.md)). This command writes the page and its CSV files:

```bash
python -m studies.reproduction --out=docs
```
"""


def _table1() -> str:
    frame = biasbed.table1()
    off = frame[(frame["recomputed"] - frame["difference"]).abs() > 0.05]
    (wrong,) = off.itertuples()
    num_equal = (frame["best_validation"] == frame["table2"]).sum()
    return f"""
## Table 1: the oracle against validation

Single epochs are not published, so only the printed differences can be checked. {len(frame) - len(off)} of
[{len(frame)}](results/biasbed_selection.csv) agree. {wrong.algorithm} on {wrong.dataset} is misprinted: the difference is
{-wrong.recomputed:.1f}, not {-wrong.difference:.1f}. The column of best validation equals Table 2 in {num_equal} cells.
"""


def _scores() -> str:
    agree, gaps = {}, []
    for table in (2, 3):
        frame = biasbed.differences(table)
        agree[table] = f"{len(frame) - frame['beyond'].sum()} of {len(frame)}"
        explained = frame[~frame["algorithm"].isin([biasbed.PADAIN, biasbed.CAE])]
        assert not explained["beyond"].any()
        gaps.append(explained[["mean_off", "std_off"]].abs().max())
    widest = pd.DataFrame(gaps).max()
    cells = biasbed.differences(2).set_index(biasbed.KEYS)
    edge = cells.loc[(biasbed.PADAIN, "Edge")]
    (twins,) = biasbed.duplicates("biasbed_runs")
    assert not biasbed.duplicates("published/biasbed_last30")
    second = biasbed.implied_run(2).set_index("dataset")
    tenth = second.loc["Edge"]
    return f"""
## Tables 2 and 3: means and deviations

Table 2 is over the runs of appendix C.2. Table 3 pools runs and epochs of appendix C.1:
std² = (R − 1) / R between² + mean(within²). {agree[2]} cells of Table 2 agree and {agree[3]} of Table 3, as far as rounding allows
([all cells](results/biasbed_scores.csv)). All others are of {biasbed.PADAIN} and {biasbed.CAE}. For the other methods means
differ by at most {widest["mean_off"]:.3f} and deviations by at most {widest["std_off"]:.3f}.

**pAdaIN.** The printed row is the mean of eight of the ten listed runs, without runs 2 and 5. Over all ten, Edge is
{edge["mean"]:.2f} ± {edge["std"]:.2f}, printed {edge["mean_printed"]:.1f} ± {edge["std_printed"]:.1f}. Runs {twins[1]} and
{twins[2]} are equal in all of C.2 and differ in C.1: one of them is a copy.

**DeepAugERM-CAE.** {int(tenth["listed"])} runs are listed, but the printed means are those of ten. The
[implied tenth run](results/biasbed_tenth_run.csv) resembles plain ERM: {tenth["tenth"]:.1f} on Edge (± 0.95 by rounding). With it
the deviation on Edge is {tenth["std"]:.2f}, printed {tenth["std_printed"]:.1f}.
"""


def _friedman() -> str:
    titles = {
        "means of the runs of C.2": "all listed runs",
        _EIGHT: "eight runs of pAdaIN, nine of DeepAugERM-CAE",
    }
    tests = {
        (scores, setting): biasbed.iman_davenport(
            biasbed.inputs()[scores], biasbed.settings()[setting]
        )
        for setting in biasbed.PRINTED_F
        for scores in titles
    }
    rows = []
    for setting in biasbed.PRINTED_F:
        for scores, title in titles.items():
            test = tests[scores, setting]
            p_conover = prose.format_exponent(test.p_conover)
            row = (
                setting,
                title,
                f"{test.f:.4f}",
                prose.format_exponent(test.p),
                p_conover,
            )
            rows.append(row)
        f, p = biasbed.PRINTED_F[setting], biasbed.PRINTED_P[setting]
        rows.append((setting, "**printed**", f, "", p))
    every, strict = (tests[_EIGHT, setting] for setting in biasbed.PRINTED_F)
    nine = biasbed.recomputed(2).set_index(biasbed.KEYS)["mean"]
    pair = [nine[(name, "DeepAug-CAE")] for name in ("ERM", "InfoDrop")]
    head = ("Data sets", "Scores", "F", "p", "p, other df")
    return f"""
## The test of Iman and Davenport

*Strict* leaves out the sets that an algorithm was trained on ([trained_on.csv](../examples/published/trained_on.csv)):
StylizedImageNet, DeepAug-CAE and DeepAug-EDSR, but not {biasbed.TRAINED}. p is of F(k − 1, (k − 1)(N − 1)); the last column uses the
degrees of freedom of the package behind the paper, k − 1 − 2/N and N − 1 times that.

{prose.markdown(head, rows)}

[The full table](results/biasbed_tests.csv) has more scores and settings. Both printed F are from eight runs of pAdaIN and nine of
DeepAugERM-CAE, although the printed row of DeepAugERM-CAE has ten. Both printed p use the other degrees of freedom,
F({every.df_conover[0]:.1f}, {every.df_conover[1]:.1f}) and F({strict.df_conover[0]:.3f}, {strict.df_conover[1]:.3f}). 4.98 and
0.00045 are truncated, not rounded.

The printed table has {len(biasbed.ties())} ties, which `biasbed_paper_configuration.csv` breaks as the printed pairs require. One is broken against
the listed runs: on DeepAug-CAE ERM has {pair[0]:.2f} and InfoDrop {pair[1]:.2f}, but the printed p values need InfoDrop first. F is the
same either way.
"""


def _pairs() -> Iterable[str]:
    first = (
        "Nemenyi's p with the paper's configuration ([all pairs](results/biasbed_pairs.csv)). "
        "Printed values come from an interpolated table that ends at 0.9."
    )
    for table, setting, opening in ((4, "all", first), (5, "strict", "")):
        frame = biasbed.pairs(setting)
        uncapped = frame[~frame["capped"]]
        off = (uncapped["exact"] - uncapped["p"]).abs()
        capped = frame.loc[frame["capped"], "exact"]
        significant = frame[frame["exact"] < 0.05]
        names = report_tables.join(
            [
                f"{r.algorithm_a} and {r.algorithm_b} ({r.exact:.4f})"
                for r in significant.itertuples()
            ]
        )
        yield f"""
## Table {table}: pairs, {setting}

{opening} Significant at 0.05, as in print: {names}. The critical difference is {biasbed.critical_difference(setting):.4f}.
Printed values differ from the exact ones by at most {off.max():.4f}, except for {len(capped)} printed as 0.9.
"""


def _notes() -> str:
    return """
## Other findings

- Equation 6 of the paper exchanges the numbers of algorithms and data sets, and the two-sided p of equation 3 is always 1. The
  printed numbers were computed correctly.
- CueConflict's accuracy counts all 1,280 images, with the shape as label.
"""
