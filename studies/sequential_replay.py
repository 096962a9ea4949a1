"""Replay docs/results/all.csv as if every comparison had looked after each seed.

    python -m studies.sequential_replay

Compares every method with ERM, per study, rate, data set and metric (accuracy, shape bias), by
`jbias.stats.compare` at alpha = 0.05, in ascending order of seeds, and by t-tests of all seeds.
Writes OUT/sequential_replay.csv, a row per comparison:

    study, rate, method     the method
    reference_study, reference_rate, reference
                            the reference: ERM of the same study at the same rate; if the study has
                            no such run, its only ERM; for `variants` and `longer`, ERM of `shapes`
    dataset, metric         where both are measured
    pairs                   pairs of seeds
    decision, seeds         of `compare`: "higher" (the method), "lower" or empty, and after how
                            many pairs of seeds
    lower, upper            the confidence sequence after all pairs
    further                 if undecided: further pairs of seeds that would decide it with
                            probability 80 % by `jbias.stats.sequential.forecast`; inf: more than 500
    wins_decision, wins_seeds
                            the same for quantity="wins"
    wins                    share of pairs in which the method is higher, ties count half
    correlation             of both methods' scores over pairs
    paired_difference, paired_p
                            mean over pairs and Student's t-test of the differences
    seeds_method, seeds_reference, difference, welch_p
                            mean difference and Welch's t-test of all seeds of both
    paired_holm, welch_holm p-values after Holm's adjustment over the comparisons of a family: the
                            rows of one study (of the hundred seeds of ERM: all rows with them)

The hundred seeds of ERM are compared with the methods of other studies with the same setting
(rate 0.1, five epochs, 32 pixels), and their halves with each other: seed 0 with seed 50, and so on.
The halves may differ: each consists of two runs of 25 seeds. So OUT/sequential_halves.csv has the
share of random halves that are decided, by data set and metric: no split is a difference of methods.

The studies `one-init` and `one-order` are left out: they fix a source of randomness, so their seeds
are not drawn as those of ERM are.

Takes about three minutes on one core.
"""

import math
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.stats

from jbias import stats
from jbias.stats import multiple_testing, sequential
from studies import all_results, command, sequential_power

ALPHA = 0.05
TABLE, HALVES = "sequential_replay.csv", "sequential_halves.csv"
SPLITS = 2000  # Random halves of the hundred seeds.
HUNDRED = "hundred-seeds"
# Studies without ERM at their setting: the study whose ERM is the reference.
REFERENCE_STUDIES = {"variants": "shapes", "longer": "shapes"}
LEFT_OUT = ("one-init", "one-order")
# Studies with the setting of the hundred seeds, at its rate and number of epochs.
LIKE_HUNDRED = ("every-rate", "shapes", "variants")
DIRECTIONS = {"a": "higher", "b": "lower", None: ""}


class Runs(NamedTuple):
    """The seeds of a method: where they are from, and the score per seed."""

    study: str
    rate: float
    method: str
    scores: pd.Series  # By seed, ascending.


def read() -> pd.DataFrame:
    """Return accuracies and shape biases of docs/results/all.csv, of more than three seeds."""
    rows = all_results.read_of_more_seeds()
    rows = rows[rows["metric"].isin(["accuracy", "shape_bias"])]
    return rows[~rows["study"].isin(LEFT_OUT)]


def runs_of(rows: pd.DataFrame) -> list[Runs]:
    """Return the methods of one data set and metric."""
    return [
        Runs(study, rate, method, group.set_index("seed")["score"].sort_index())
        for (study, rate, method), group in rows.groupby(["study", "rate", "method"])
    ]


def reference_of(runs: Runs, candidates: Sequence[Runs]) -> Runs | None:
    """Return the ERM with which a method is compared; None for the reference itself."""
    study = REFERENCE_STUDIES.get(runs.study, runs.study)
    erms = [x for x in candidates if x.study == study and x.method == "erm"]
    same_rate = [x for x in erms if x.rate == runs.rate]
    (reference,) = same_rate or erms
    is_itself = runs.study == reference.study and runs.method == "erm"
    return None if is_itself else reference


def pairs_of_runs(rows: pd.DataFrame) -> Iterator[tuple[Runs, Runs]]:
    """Yield (method, reference) of all comparisons of one data set and metric."""
    candidates = runs_of(rows)
    hundred = [x for x in candidates if x.study == HUNDRED]
    for runs in candidates:
        if runs.study == HUNDRED:
            continue
        reference = reference_of(runs, candidates)
        if reference is not None:
            yield runs, reference
        for erm in hundred:
            is_alike = runs.study in LIKE_HUNDRED and runs.rate == erm.rate
            if is_alike and runs.method != "erm":
                yield runs, erm
    for erm in hundred:
        yield halves(erm)


def halves(runs: Runs) -> tuple[Runs, Runs]:
    """Return the first and the second half of the seeds, renumbered from 0 to pair."""
    size = len(runs.scores) // 2
    first, second = (
        runs._replace(
            method=f"{runs.method} (seeds {start} to {start + size - 1})",
            scores=runs.scores.iloc[start : start + size].reset_index(drop=True),
        )
        for start in (0, size)
    )
    return first, second


def random_halves(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the shares of random halves of the hundred seeds that means and wins decide."""
    records = []
    for (dataset, metric), group in rows[rows["study"] == HUNDRED].groupby(
        ["set", "metric"]
    ):
        scores = np.tile(group.sort_values("seed")["score"], (SPLITS, 1))
        shuffled = np.random.default_rng(0).permuted(scores, axis=1)
        first, second = np.split(shuffled, 2, axis=1)
        record: dict[str, Any] = {
            "dataset": dataset,
            "metric": metric,
            "splits": SPLITS,
        }
        for quantity, differences in (
            ("mean", first - second),
            ("wins", np.sign(first - second)),
        ):
            (stops,) = sequential_power.find_stops((1 + differences) / 2, [ALPHA])
            record[quantity] = np.mean(np.isfinite(stops.pairs))
        records.append(record)
    return pd.DataFrame(records)


def compare(runs: Runs, reference: Runs) -> dict[str, Any]:
    """Return the columns of a comparison that need no other comparison."""
    both = pd.concat([runs.scores, reference.scores], axis=1, join="inner").to_numpy()
    a, b = both.T
    mean = stats.compare(a, b, alpha=ALPHA)
    wins = stats.compare(a, b, alpha=ALPHA, quantity="wins")
    more_seeds = math.nan
    if mean.decision is None:
        more_seeds = sequential.forecast(a, b, alpha=ALPHA).pairs
    return {
        "study": runs.study,
        "rate": runs.rate,
        "method": runs.method,
        "reference_study": reference.study,
        "reference_rate": reference.rate,
        "reference": reference.method,
        "pairs": len(a),
        "decision": DIRECTIONS[mean.decision],
        "seeds": mean.stopped_at,
        "lower": mean.difference.lower[-1],
        "upper": mean.difference.upper[-1],
        "further": more_seeds,
        "wins_decision": DIRECTIONS[wins.decision],
        "wins_seeds": wins.stopped_at,
        "wins": np.mean((1 + np.sign(a - b)) / 2),
        "correlation": np.corrcoef(a, b)[0, 1],
        "paired_difference": np.mean(a - b),
        "paired_p": scipy.stats.ttest_rel(a, b).pvalue,
        "seeds_method": len(runs.scores),
        "seeds_reference": len(reference.scores),
        "difference": runs.scores.mean() - reference.scores.mean(),
        "welch_p": scipy.stats.ttest_ind(
            runs.scores, reference.scores, equal_var=False
        ).pvalue,
    }


def families(table: pd.DataFrame) -> pd.Series:
    """Return the name of each row's family: its study, or that of the hundred seeds."""
    is_hundred = table["reference_study"] == HUNDRED
    return table["study"].where(~is_hundred, HUNDRED)


def replay(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the table of all comparisons; rows: as `read` returns them."""
    records = [
        compare(runs, reference) | {"dataset": dataset, "metric": metric}
        for (dataset, metric), group in rows.groupby(["set", "metric"])
        for runs, reference in pairs_of_runs(group)
    ]
    table = pd.DataFrame(records)
    family = families(table)
    for test in ("paired", "welch"):
        adjusted = table[f"{test}_p"].groupby(family).transform(_holm)
        table[f"{test}_holm"] = adjusted
    keys = ["reference_study", "study", "rate", "method", "metric", "dataset"]
    return table.sort_values(keys, kind="stable", ignore_index=True)


def _holm(pvalues: pd.Series) -> pd.Series:
    """Return p-values after Holm's adjustment; missing ones (no variance at all) count as 1."""
    return pd.Series(
        multiple_testing.adjust(pvalues.fillna(1.0), "holm"), index=pvalues.index
    )


COLUMNS = (
    *("study", "rate", "method", "reference_study", "reference_rate", "reference"),
    *("dataset", "metric", "pairs", "decision", "seeds", "lower", "upper", "further"),
    *("wins_decision", "wins_seeds", "wins", "correlation", "paired_difference"),
    *("paired_p", "paired_holm", "seeds_method", "seeds_reference", "difference"),
    *("welch_p", "welch_holm"),
)


def write(table: pd.DataFrame, columns: Sequence[str], path: pathlib.Path) -> None:
    """Write a table as CSV."""
    table.to_csv(
        path,
        columns=columns,
        index=False,
        float_format=sequential_power.format_number,
        lineterminator="\n",
    )
    print(f"written: {path}")


def main(argv: Sequence[str] | None = None) -> int:
    """Write both tables."""
    parser = command.parser("sequential_replay", __doc__)
    command.add_out(parser, "the tables", command.RESULTS)
    args = parser.parse_args(argv)
    rows = read()
    write(replay(rows), COLUMNS, args.out / TABLE)
    halves_table = random_halves(rows)
    write(halves_table, [*halves_table], args.out / HALVES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
