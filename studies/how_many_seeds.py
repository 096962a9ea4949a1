r"""Write docs/how-many-seeds.md and its figures.

    python -m studies.how_many_seeds

Reads the text of the page in studies/how_many_seeds.md, which has a field for every number, and the
tables in studies/results that `studies.sequential_nulls`, `studies.breaking_the_guarantee`,
`studies.sequential_power`, `studies.sequential_equivalence` and `studies.sequential_replay` write.
Writes OUT/how-many-seeds.md, OUT/how-many-seeds.svg and OUT/how-many-seeds-replay.svg.
Takes about ten seconds.
"""

import math
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import ticker

from jbias import stats
from jbias.report import plots
from jbias.stats import sequential
from studies import (
    all_results,
    command,
    prose,
    sequential_equivalence,
    sequential_nulls,
    sequential_power,
    sequential_replay,
)

TEMPLATE = pathlib.Path(__file__).with_suffix(".md")
PAGE, FIGURE, REPLAY_FIGURE = (
    "how-many-seeds.md",
    "how-many-seeds.svg",
    "how-many-seeds-replay.svg",
)
ALPHA = sequential_power.ALPHA
# Laws of scores with a column; "hundred" is the shape bias of a hundred seeds of ERM.
HUNDRED = "hundred"
SPREADS = (
    "accuracy lower",
    "accuracy median",
    "shape_bias median",
    "shape_bias upper",
    HUNDRED,
)
WIDE = sequential_power.BOUNDS[0]
RULES = {
    "mean": "means",
    "wins": "wins",
    "t": "t-test, seeds fixed",
}
# The first lines: differences, and the seeds of the command.
START = {"large": 0.4, "middle": 0.2, "small": 0.1}
START_CAP = 30
CORES = 2  # Of the machine that trained the benchmark in small.
WEAK_POWER = 0.75  # t-tests with less are marked.
MARGINS = (20, 10)  # Rows on equivalence, in points.
# The replayed example is SagNet with ERM of this study, at the first rate; the other is undecided.
EXAMPLE_STUDY, EXAMPLE_RATE, OTHER_RATE = "every-rate", 0.05, 0.1
# Titles of the rows of the replay: studies that are compared with their own ERM.
FAMILIES = {
    "eight methods, three rates": "every-rate",
    "fifteen methods": "shapes",
}
CONTROL = 8  # Methods of a study with a control.
# Attacks outside of the guarantee that the page lists; the others are in the table.
OUTSIDE = (
    "takes the better of two runs of each seed of the method",
    "leaves out seeds of the method below 5 %",
    "restarts with 50 new seeds, up to 20 times",
    "claims if any of 10 metrics is decided",
)


def read(name: str) -> pd.DataFrame:
    """Return a table of studies/results."""
    return pd.read_csv(command.RESULTS / name)


class Tables:
    """The stored tables of the four commands."""

    def __init__(self) -> None:
        self.spreads = read(sequential_power.SPREADS)
        self.power = read(sequential_power.TABLE)
        self.replay = read(sequential_replay.TABLE)
        self.halves = read(sequential_replay.HALVES)
        self.equivalence = read(sequential_equivalence.TABLE)
        self.nulls = read("sequential_nulls.csv")
        self.attacks = read("breaking_the_guarantee.csv")

    def row(
        self,
        spread: str,
        difference: float,
        rule: str,
        *,
        methods: int = 2,
        bounds: tuple[float, float] = WIDE,
    ) -> pd.Series:
        """Return a row of the table of power."""
        rows = self.power[
            (self.power["spread"] == spread)
            & np.isclose(self.power["difference"], difference)
            & (self.power["rule"] == rule)
            & (self.power["methods"] == methods)
        ]
        if rule != "t":
            rows = rows[(rows["low"] == bounds[0]) & (rows["high"] == bounds[1])]
        (label,) = rows.index
        return rows.loc[label]


def points(share: float) -> str:
    """Return a share as percentage points without decimals."""
    return f"{100 * share:.0f}"


def count(value: float) -> str:
    """Return a number of seeds; infinite ones are above the largest simulated number."""
    most = sequential_power.MOST
    return f">{most:,}" if math.isinf(value) else f"{value:,.0f}"


def least_without_assumptions(
    difference: float, alpha: float = ALPHA, power: float = 1.0
) -> int:
    """Return the pairs of seeds that any rule for means in [0, 1] needs for data that all differ by d.

    If all n pairs differ by d, the means may still be equal: both methods may fail together, so that
    a share d / (1 + d) of pairs differs by -1. The probability of no such pair is (1 + d)^-n. A rule
    that claims a difference with the probability `power` in data that all differ by d claims it with
    at least the probability power (1 + d)^-n if means are equal, which must be at most alpha.

    The bound is about such data, not about every difference of means. If the seeds of both methods
    are independent and their scores are (1 + d) / 2 and (1 - d) / 2, failures are independent, too,
    and the probability of none is (1 + d)^(-2n): half as many pairs.
    """
    return math.ceil(math.log(power / alpha) / math.log1p(difference))


def spreads_numbers(tables: Tables) -> dict[str, Any]:
    """Return the quartiles of standard deviations over seeds, by metric."""
    return {
        metric: rows.set_index("quartile")["deviation"].to_dict()
        | {"groups": int(rows["groups"].iloc[0])}
        for metric, rows in tables.spreads.groupby("metric")
    }


def power_numbers(tables: Tables) -> dict[str, Any]:
    """Return numbers of the table of power that sentences use."""
    least = {
        round(100 * d): {
            "any": least_without_assumptions(d),
            "target": least_without_assumptions(d, power=sequential_power.POWER),
            "jbias": int(tables.row(HUNDRED, d, "mean")["least"]),
        }
        for d in sequential_power.DIFFERENCES
    }
    bounds = [
        tables.row("accuracy lower", 0.05, "mean", bounds=x)["needed"]
        for x in sequential_power.BOUNDS
    ]
    is_t = tables.power["rule"] == "t"
    wrong = tables.power.loc[~is_t, "wrong_200"]
    powers = tables.power.loc[is_t, "power"]
    return {
        "target": sequential_power.POWER,
        "least": least,
        "least_pairs": sequential.least_pairs(ALPHA),
        "least_pairs_control": sequential.least_pairs(ALPHA / (CONTROL - 1)),
        "bounds": [*map(count, bounds)],
        "wrong": float(wrong.max()),
        "t_power": {"low": float(powers.min()), "high": float(powers.max())},
        "weak": WEAK_POWER,
    }


def start_numbers(tables: Tables) -> dict[str, Any]:
    """Return the numbers of the first lines: seeds, chance and hours with ERM's shape bias.

    hours: of so many seeds of SagNet and of ERM, from the costs of the benchmark in small.
    """
    hours_of_a_seed = sum(map(hours_per_seed, ("sagnet", "erm"))) / CORES
    numbers: dict[str, Any] = {"cap": START_CAP, "hours": START_CAP * hours_of_a_seed}
    for name, difference in START.items():
        row = tables.row(HUNDRED, difference, "mean")
        numbers[name] = {
            "points": points(difference),
            "seeds": count(row["needed"]),
            "chance": float(row[f"right_{START_CAP}"]),
            "hours": row["needed"] * hours_of_a_seed,
        }
    return numbers


def hours_per_seed(method: str) -> float:
    """Return the core hours of a seed in the benchmark in small, whose runs have ten seeds."""
    folder = all_results.ROOT / "docs/results/shapes/tables"
    runs = pd.read_csv(folder / "runs.csv")
    seeds = runs.loc[runs["algorithm"] == method, "seed"]
    (run,) = {name.rpartition(":")[0] for name in seeds}
    hours = pd.read_csv(folder / "costs.csv").set_index("run")["device_hours"]
    return float(hours[run]) / len(seeds)


def nulls_numbers(tables: Tables) -> dict[str, Any]:
    """Return the largest and smallest shares of simulated studies with a false claim."""
    equal = tables.nulls[
        (tables.nulls["difference"] == 0) & tables.nulls["points"].isna()
    ]
    return {
        rule: {
            "low": float(rows["share"].min()),
            "high": float(rows["share"].max()),
            "studies": int(rows["studies"].min()),
        }
        for rule, rows in equal.groupby("rule")
    }


def replay_numbers(tables: Tables) -> dict[str, Any]:
    """Return the counts of the replay over comparisons with ten seeds, and of the halves."""
    is_half = tables.replay["study"] == sequential_replay.HUNDRED
    within = tables.replay["study"] == tables.replay["reference_study"]
    own_erm = tables.replay[within & ~is_half]
    ten = own_erm[own_erm["study"].isin(FAMILIES.values()) & (own_erm["pairs"] == 10)]
    halves = tables.replay[is_half]
    return {
        "five": int((own_erm["pairs"] == 5).sum()),
        **replay_counts(ten),
        "halves": replay_counts(halves),
        "halves_seeds": int(halves["wins_seeds"].max()),
        "random": {
            quantity: {
                "low": float(tables.halves[quantity].min()),
                "high": float(tables.halves[quantity].max()),
            }
            for quantity in ("mean", "wins")
        },
    }


def replay_counts(rows: pd.DataFrame) -> dict[str, Any]:
    """Return the counts of some rows of the replay."""
    counts: dict[str, Any] = {"comparisons": len(rows)}
    signs = np.sign(rows["difference"])
    for rule, prefix in (("mean", ""), ("wins", "wins_")):
        decision = rows[f"{prefix}decision"].map({"higher": 1, "lower": -1})
        is_decided = decision.notna()
        seeds = rows.loc[is_decided, f"{prefix}seeds"]
        counts[rule] = {
            "decided": int(is_decided.sum()),
            "agree": int((decision == signs)[is_decided].sum()),
            "weak": int((rows["welch_holm"] > ALPHA)[is_decided].sum()),
            "seeds": float(seeds.mean()) if len(seeds) else math.nan,
        }
    for test in ("paired", "welch"):
        for kind in ("p", "holm"):
            column = f"{test}_{kind}"
            counts[column] = int((rows[column] <= ALPHA).sum())
    return counts


def example(rate: float = EXAMPLE_RATE) -> tuple[pd.Series, pd.Series]:
    """Return the shape biases of SagNet and of ERM in one study at one rate, by seed."""
    rows = _shape_biases()
    rows = rows[(rows["study"] == EXAMPLE_STUDY) & (rows["rate"] == rate)]
    scores = rows.pivot(index="seed", columns="method", values="score")
    return scores["sagnet"], scores["erm"]


def example_texts() -> dict[str, Any]:
    """Return what the page's example prints, and the forecast at the other rate."""
    sagnet, erm = example(OTHER_RATE)
    assert stats.compare(sagnet, erm).decision is None
    return {
        "rate": EXAMPLE_RATE,
        "repr": repr(stats.compare(*example())),
        "other": {
            "rate": OTHER_RATE,
            "pairs": f"{stats.forecast(sagnet, erm).pairs:.0f}",
        },
    }


def results(tables: Tables) -> dict[str, Any]:
    """Return all fields of the page."""
    return {
        "start": start_numbers(tables),
        "spread": spreads_numbers(tables),
        "power": power_numbers(tables),
        "nulls": nulls_numbers(tables),
        "attacks": attacks_numbers(tables),
        "replay": replay_numbers(tables),
        "example": example_texts(),
        "table_needed": _needed_table(tables),
        "table_shares": _shares_table(tables),
        "table_nulls": _nulls_table(tables),
        "table_replay": _replay_table(tables),
        "table_outside": _attacks_table(tables),
    }


def _needed_table(tables: Tables) -> str:
    """Return the table of seeds needed, a row for each difference and rule, and for equivalence."""
    equivalence = tables.equivalence.set_index(["spread", "points"])
    deviations = {
        spread: points(equivalence["deviation"][spread, MARGINS[0]])
        for spread in SPREADS
    }
    titles = [f"spread {deviations[spread]}" for spread in SPREADS[:-1]]
    titles.append(f"ERM's shape bias: {deviations[HUNDRED]}")
    rows = []
    for difference in sequential_power.DIFFERENCES:
        for rule, title in zip(RULES, ("means", "wins", "t-test")):
            cells = []
            for spread in SPREADS:
                row = tables.row(spread, difference, rule)
                is_weak = rule == "t" and row["power"] < WEAK_POWER
                cells.append(count(row["needed"]) + ("\\*" if is_weak else ""))
            first = f"{points(difference)} points" if rule == "mean" else ""
            rows.append((first, title, *cells))
    needed = equivalence["needed"]
    for i, margin in enumerate(MARGINS):
        cells = [count(needed[spread, margin]) for spread in SPREADS]
        rows.append(("equal" if i == 0 else "", f"within {margin}", *cells))
    return prose.markdown(("Difference", "", *titles), rows)


def _shares_table(tables: Tables) -> str:
    """Return the table of decided studies with ERM's shape bias, and of the t-test."""
    rows = []
    for difference in sequential_power.DIFFERENCES[1:]:
        mean, wins = (
            tables.row(HUNDRED, difference, rule) for rule in ("mean", "wins")
        )
        control, t_control = (
            tables.row(HUNDRED, difference, rule, methods=CONTROL)
            for rule in ("mean", "t")
        )
        row = (
            f"{points(difference)} points",
            *(points(mean[f"right_{cap}"]) for cap in sequential_power.CAPS),
            points(wins[f"right_{sequential_power.CAPS[-1]}"]),
            *(count(mean[column]) for column in ("median", "needed")),
            count(control["needed"]),
            f"{t_control['needed']:,.0f}",
        )
        rows.append(row)
    first_cap, *later_caps = sequential_power.CAPS
    head = (
        "Difference",
        f"% decided in {first_cap} seeds",
        *map(str, later_caps),
        f"wins: {later_caps[-1]}",
        "seeds for 50 %",
        "80 %",
        f"{CONTROL} methods: 80 %",
        "t-test",
    )
    return prose.markdown(head, rows)


def _nulls_table(tables: Tables) -> str:
    """Return the table of simulated studies with a false claim."""
    equal = tables.nulls[
        (tables.nulls["difference"] == 0) & tables.nulls["points"].isna()
    ]
    rules = {
        sequential_nulls.SEQUENTIAL: "means",
        sequential_nulls.WINS: "wins",
        sequential_nulls.PAIRED: "t-test after every seed",
    }
    two = equal[equal["methods"] == 2]
    rows = []
    for shape, group in two.groupby("shape", sort=False):
        shares = group.set_index("rule")["share"]
        cells = [
            f"{100 * shares[rule]:.1f}" if rule in shares else "–" for rule in rules
        ]
        rows.append((shape, *cells))
    return prose.markdown(("Scores", *rules.values()), rows)


def _replay_table(tables: Tables) -> str:
    """Return the table of the replay by family, for comparisons with ten seeds."""
    table = tables.replay
    ten = table[table["pairs"] == 10]
    rows = []
    for title, study in FAMILIES.items():
        is_own = (ten["study"] == study) & (ten["reference_study"] == study)
        counts = replay_counts(ten[is_own])
        numbers = (
            counts["comparisons"],
            counts["mean"]["decided"],
            counts["wins"]["decided"],
            counts["welch_p"],
            counts["welch_holm"],
        )
        rows.append((title, *map(str, numbers)))
    head = (
        "Against ERM",
        "comparisons",
        "decided by means",
        "wins",
        "t-test: p ≤ 0.05",
        "after Holm",
    )
    return prose.markdown(head, rows)


def _attacks_table(tables: Tables) -> str:
    """Return the table of attacks outside of the guarantee."""
    shares = tables.attacks.set_index("attack")["share"]
    rows = [(name, f"{100 * shares[name]:.0f} %") for name in OUTSIDE]
    return prose.markdown(("A researcher who", "false claims"), rows)


def attacks_numbers(tables: Tables) -> dict[str, Any]:
    """Return the number of attacks inside of the guarantee, and their largest share."""
    inside = tables.attacks[tables.attacks["guarantee"] == "inside"]
    return {"inside": len(inside), "high": float(inside["share"].max())}


def text(fields: Mapping[str, Any]) -> str:
    """Return the page as Markdown; fields: of `results`."""
    return prose.fill(TEMPLATE.read_text("utf-8"), fields)


def figure(tables: Tables) -> str:
    """Return the figure of seeds needed by difference as SVG, a panel for each spread."""
    spreads = {
        "accuracy median": "accuracy, median spread",
        HUNDRED: "shape bias of ERM",
    }
    fig, axes = plots.grid(len(spreads), [*RULES.values()], cell=(3.4, 2.8))
    legend = {}
    differences = [*map(float, map(points, sequential_power.DIFFERENCES))]
    for panel, (spread, title) in zip(axes.flat, spreads.items()):
        for i, (rule, rule_title) in enumerate(RULES.items()):
            needed = [
                tables.row(spread, difference, rule)["needed"]
                for difference in sequential_power.DIFFERENCES
            ]
            (line,) = panel.plot(
                differences,
                [math.nan if math.isinf(n) else n for n in needed],
                **plots.style_of(i),
                marker=plots.MARKERS[i],
                markersize=4,
                linewidth=1.5,
            )
            legend[rule_title] = line
        panel.set(xscale="log", yscale="log", ylim=(1.5, 6000))
        panel.set_xticks(differences, [f"{x:.0f}" for x in differences])
        panel.xaxis.set_minor_locator(ticker.NullLocator())
        panel.set_yticks([2, 10, 100, 1000], ["2", "10", "100", "1,000"])
        panel.set_title(title, **plots.ink())
        panel.set_xlabel("difference, points", **plots.ink())
    axes.flat[0].set_ylabel("seeds of each method", **plots.ink())
    plots.legend_above(fig, legend)
    return plots.to_svg(plots.laid_out(fig))


def replay_figure() -> str:
    """Return the figure of two replayed confidence sequences as SVG."""
    (erm,) = (
        runs
        for runs in sequential_replay.runs_of(_shape_biases())
        if runs.study == sequential_replay.HUNDRED
    )
    first, second = sequential_replay.halves(erm)
    panels = {
        "SagNet less ERM": stats.compare(*example()),
        "ERM less ERM (other seeds)": stats.compare(first.scores, second.scores),
    }
    fig, axes = plots.grid(len(panels), ["x"], cell=(3.4, 2.8))
    for panel, (title, result) in zip(axes.flat, panels.items()):
        looks = np.arange(1, result.looks + 1)
        lower, upper, estimate = (
            100 * x
            for x in (
                result.difference.lower,
                result.difference.upper,
                result.difference.estimate,
            )
        )
        band = panel.fill_between(
            looks, lower, upper, alpha=0.25, color=plots.COLOURS[0], linewidth=0
        )
        (line,) = panel.plot(looks, estimate, color=plots.COLOURS[0], linewidth=1.5)
        panel.axhline(0, color=plots.INK, linewidth=0.8)
        panel.set(ylim=(-100, 100), xlim=(1, result.looks))
        panel.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
        panel.set_title(title, **plots.ink())
        panel.set_xlabel("seeds of each method", **plots.ink())
        if result.stopped_at is not None:
            mark = result.stopped_at - 1
            (dot,) = panel.plot(
                looks[mark],
                lower[mark],
                "o",
                color=plots.COLOURS[1],
                clip_on=False,
                linestyle="none",
            )
    axes.flat[0].set_ylabel("difference in shape bias, points", **plots.ink())
    legend = {
        "mean difference": line,
        "confidence sequence, 95 %": band,
        "decided": dot,
    }
    plots.legend_above(fig, legend)
    return plots.to_svg(plots.laid_out(fig))


def _shape_biases() -> pd.DataFrame:
    """Return the shape biases of docs/results/all.csv."""
    rows = sequential_replay.read()
    return rows[(rows["metric"] == "shape_bias") & (rows["set"] == "cue_conflict")]


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page and its figures."""
    parser = command.parser("how_many_seeds", __doc__)
    command.add_out(parser, "the page and its figures")
    args = parser.parse_args(argv)
    tables = Tables()
    for name, content in (
        (PAGE, text(results(tables))),
        (FIGURE, figure(tables)),
        (REPLAY_FIGURE, replay_figure()),
    ):
        (args.out / name).write_text(content, encoding="utf-8")
        print(f"written: {args.out / name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
