r"""Write docs/how-many-seeds.md and its figures.

    python -m studies.how_many_seeds

Reads the text of the page in studies/how_many_seeds.md, which has a field for every number, and the
tables in studies/results that `studies.sequential_nulls`, `studies.breaking_the_guarantee`,
`studies.sequential_power` and `studies.sequential_replay` write. Writes OUT/how-many-seeds.md,
OUT/how-many-seeds.svg and OUT/how-many-seeds-replay.svg.
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
# "hundred" is the shape bias of a hundred seeds of ERM; the others have a column.
HUNDRED = "hundred"
SPREADS = ("accuracy lower", "accuracy median", "shape_bias median", "shape_bias upper")
WIDE = sequential_power.BOUNDS[0]
RULES = {
    "mean": "means",
    "wins": "wins",
    "t": "t-test, seeds fixed",
}
# Titles of the rows of the replay, with the families of `sequential_replay.families`.
FAMILIES = {
    "eight methods, three rates": ("every-rate",),
    "fifteen methods": ("shapes",),
    "ERM's hundred seeds": ("hundred-seeds",),
    "variants": ("variants", "longer"),
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


def least_without_assumptions(difference: float, alpha: float = ALPHA) -> int:
    """Return the pairs of seeds below which no rule for means in [0, 1] can claim a difference.

    If all n pairs differ by d, the means may still be equal: a share d / (1 + d) of pairs may
    differ by -1. The probability of no such pair is (1 + d)^-n, which must be at most alpha.
    """
    return math.ceil(math.log(1 / alpha) / math.log1p(difference))


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
            "jbias": int(tables.row(HUNDRED, d, "mean")["least"]),
        }
        for d in sequential_power.DIFFERENCES
    }
    bounds = [
        tables.row("accuracy median", 0.05, "mean", bounds=x)["needed"]
        for x in sequential_power.BOUNDS
    ]
    is_t = tables.power["rule"] == "t"
    wrong = tables.power.loc[~is_t, "wrong_200"]
    two_methods = tables.power[tables.power["methods"] == 2]
    errors = two_methods.loc[two_methods["rule"] != "t", "error"]
    powers = tables.power.loc[is_t, "power"]
    return {
        "target": sequential_power.POWER,
        "least": least,
        "least_pairs": sequential.least_pairs(ALPHA),
        "least_pairs_control": sequential.least_pairs(ALPHA / (CONTROL - 1)),
        "bounds": [*map(count, bounds)],
        "wrong": float(wrong.max()),
        "error": float(errors.max()),
        "t_power": {"low": float(powers.min()), "high": float(powers.max())},
        "t_error": float(two_methods.loc[two_methods["rule"] == "t", "error"].max()),
    }


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
    ten = tables.replay[(tables.replay["pairs"] == 10) & ~is_half]
    halves = tables.replay[is_half]
    return {
        "five": int((tables.replay["pairs"] == 5).sum()),
        **replay_counts(ten),
        "smallest_mean": float(
            ten.loc[ten["decision"].notna(), "difference"].abs().min()
        ),
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
            "welch": int((rows["welch_p"] <= ALPHA)[is_decided].sum()),
            "seeds": float(seeds.mean()) if len(seeds) else math.nan,
            "saved": int((rows.loc[is_decided, "pairs"] - seeds).sum()),
            "budget": int(rows.loc[is_decided, "pairs"].sum()),
        }
    for test in ("paired", "welch"):
        for kind in ("p", "holm"):
            column = f"{test}_{kind}"
            counts[column] = int((rows[column] <= ALPHA).sum())
    return counts


def example() -> sequential.SequentialResult:
    """Return the comparison of the page's example: SagNet with a hundred seeds of ERM."""
    rows = pd.read_csv(all_results.ROOT / "docs/results/all.csv")
    rows = rows[(rows["metric"] == "shape_bias") & (rows["rate"] == 0.1)]
    erm = rows.loc[rows["study"] == "hundred-seeds", "score"]
    is_sagnet = (rows["study"] == "every-rate") & (rows["method"] == "sagnet")
    return stats.compare(rows.loc[is_sagnet, "score"], erm)


def results(tables: Tables) -> dict[str, Any]:
    """Return all fields of the page."""
    return {
        "spread": spreads_numbers(tables),
        "power": power_numbers(tables),
        "nulls": nulls_numbers(tables),
        "attacks": attacks_numbers(tables),
        "replay": replay_numbers(tables),
        "example": repr(example()),
        "table_needed": _needed_table(tables),
        "table_shares": _shares_table(tables),
        "table_nulls": _nulls_table(tables),
        "table_replay": _replay_table(tables),
        "table_outside": _attacks_table(tables),
    }


def _needed_table(tables: Tables) -> str:
    """Return the table of seeds needed: by means, by wins, and by a t-test."""
    titles = [
        f"spread {points(tables.row(spread, 0.1, 't')['deviation'])}"
        for spread in SPREADS
    ]
    rows = [
        (
            f"{points(difference)} points",
            *(
                ", ".join(
                    count(tables.row(spread, difference, rule)["needed"])
                    for rule in RULES
                )
                for spread in SPREADS
            ),
        )
        for difference in sequential_power.DIFFERENCES
    ]
    return prose.markdown(("Difference", *titles), rows)


def _shares_table(tables: Tables) -> str:
    """Return the table of decided studies with ERM's shape bias, and of the t-test."""
    rows = []
    for difference in sequential_power.DIFFERENCES:
        mean, wins, t = (tables.row(HUNDRED, difference, rule) for rule in RULES)
        control = tables.row(HUNDRED, difference, "mean", methods=CONTROL)
        t_control = tables.row(HUNDRED, difference, "t", methods=CONTROL)
        cells = (
            f"{points(difference)} points",
            *(
                ", ".join(
                    f"{100 * row[f'right_{cap}']:.0f}" for cap in sequential_power.CAPS
                )
                for row in (mean, wins)
            ),
            f"{mean['mean_200']:.0f}, {count(mean['median'])}",
            f"{t['needed']:,.0f} ({100 * t['power']:.0f})",
            f"{count(control['needed'])} ({t_control['needed']:,.0f})",
        )
        rows.append(cells)
    head = (
        "Difference",
        "% within 30, 100, 200 seeds: means",
        "wins",
        "means: seeds until decided, mean (at most 200), median",
        "t-test: seeds (real power, %)",
        f"{CONTROL} methods, seeds for 80 %: means (t-test)",
    )
    return prose.markdown(head, rows)


def _nulls_table(tables: Tables) -> str:
    """Return the table of simulated studies with a false claim."""
    equal = tables.nulls[
        (tables.nulls["difference"] == 0) & tables.nulls["points"].isna()
    ]
    rows = []
    for shape, group in equal.groupby("shape", sort=False):
        cells = [
            ", ".join(
                f"{100 * share:.1f}" if rule == "sequential" else f"{100 * share:.0f}"
                for share in group[group["rule"] == rule].sort_values("methods")[
                    "share"
                ]
            )
            for rule in ("sequential", "paired t-test")
        ]
        rows.append((shape, *cells))
    head = ("Scores", "jbias: %, for 2, 5, 8 methods", "t-test after every seed")
    return prose.markdown(head, rows)


def _replay_table(tables: Tables) -> str:
    """Return the table of the replay by family, for comparisons with ten seeds."""
    table = tables.replay
    ten = table[table["pairs"] == 10]
    family = sequential_replay.families(ten)
    rows = []
    for title, names in FAMILIES.items():
        counts = replay_counts(ten[family.isin(names)])
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
        "t-test of all seeds: p ≤ 0.05",
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
        "SagNet less ERM": example(),
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
            panel.plot(
                looks[mark], lower[mark], "o", color=plots.COLOURS[1], clip_on=False
            )
    axes.flat[0].set_ylabel("difference in shape bias, points", **plots.ink())
    legend = {"mean difference": line, "confidence sequence, 95 %": band}
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
