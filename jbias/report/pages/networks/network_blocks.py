"""Tables, figures and curves shared by the sections on measured networks."""

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from jbias.data import tables as data_tables
from jbias.measures import decisions
from jbias.report import network_frame, network_records, plots, tables

MeasuredNetwork = network_records.MeasuredNetwork
Measurement, Number = network_records.Measurement, network_records.Number
Networks = Sequence[MeasuredNetwork]
Counts = Mapping[str, Mapping[str, tuple[int, int]]]  # (count, n) by network and row.
_SHARES = ["value", "low", "high"]
FEW = f"*: fewer than {network_frame.FEW}, which is unreliable"
BRACKETS = "In brackets: 95 % bootstrap intervals over images."


class IntervalCell(NamedTuple):
    """A value with the ends of its interval; `count` of `n` images if the value is a share."""

    metric: str
    value: float
    low: float | None
    high: float | None
    count: int | None  # pyright: ignore[reportIncompatibleMethodOverride]: a field
    n: int


def by_model(networks: Networks) -> list[MeasuredNetwork]:
    """Return the networks with those of one model and several prompts in a row.

    The order is otherwise unchanged; a model is at the place of its first network.
    """
    groups: dict[str, list[MeasuredNetwork]] = {}
    for network in networks:
        key = network.factors.get("model", network.name)
        groups.setdefault(key, []).append(network)
    return [network for group in groups.values() for network in group]


def interval_cell(
    network: MeasuredNetwork, measurement: Measurement, number: Number
) -> IntervalCell:
    """Return a number of a measurement with its interval; None for an end that is not stored."""
    _, low, high = network.interval(measurement, number.metric, number.condition)
    return IntervalCell(
        metric=number.metric,
        value=number.value,
        low=low,
        high=high,
        count=None if number.count is None else int(number.count),
        n=number.n,
    )


def wilson_cell(count: int, n: int, *, metric: str) -> IntervalCell:
    """Return the share count / n of independent images with its 95 % Wilson interval.

    metric: name of the metric, which is stored in the cell. For n = 0, the value is NaN and the
    interval is [0, 1].
    """
    low, high = decisions.wilson_interval(count, n)
    value = count / n if n else math.nan
    return IntervalCell(metric, value, low=low, high=high, count=count, n=n)


def columns(specification: str, **heads: str) -> dict[str, tables.Column]:
    """Return `tables.columns` with intervals in the fields <key>_lower and <key>_upper.

    Arguments: see `tables.columns`.
    """
    return tables.columns(specification, ends=("_lower", "_upper"), **heads)


DECISIONS = tables.Column("of", network_frame.decisions_text)


def table(
    name: str,
    caption: str,
    rows: Iterable[Mapping],
    columns: Mapping[str, tables.Column],
    *,
    csv_only: Collection[str] = (),
) -> tables.Table | None:
    """Return a table of rows given as values by key, or None without rows.

    columns: shown columns by key, in their order; a column without any value is left out. Each key
    of a row must have a column, be an argument of a column such as the end of an interval, or be
    in `csv_only`, the keys that only the CSV and Parquet files have.
    """
    rows = [*rows]
    known = {*columns, *csv_only}
    for column in columns.values():
        known.update(column.argument_keys)
    unknown = sorted({key for row in rows for key in row} - known)
    assert not unknown, (
        f"table {name}: {', '.join(unknown)} would not be on the page; add columns, or name the "
        "keys in csv_only"
    )
    return tables.from_rows(name, caption, rows, columns)


class NumberRow(NamedTuple):
    """A result of a network; `row` has the first columns of its table row, by key."""

    network: MeasuredNetwork
    measurement: Measurement
    row: dict[str, str]
    number: Number


class NetworkFigure(NamedTuple):
    """A network and a measurement that have a separate figure."""

    suffix: str  # Of the figure's name; "" for the only figure.
    measurement: Measurement
    network: MeasuredNetwork


class NetworksPage(NamedTuple):
    """Networks of a page, with helpers for its tables and figures.

    Functions that make sections append caveats to `notes`.
    """

    networks: Networks
    has_figures: bool  # False if there are too many networks for figures.
    notes: list[str]
    published: bool = True  # True to include published results of other networks.

    def measurements(
        self, *probes: str
    ) -> Iterator[tuple[MeasuredNetwork, Measurement, dict]]:
        """Yield (network, measurement of one of the probes, first columns of its table row).

        The first columns are a dict with the keys network and set.
        """
        for probe in probes:
            for network in self.networks:
                for measurement in network.measurements_of(probe):
                    row = {"network": network.name, "set": measurement.dataset}
                    yield network, measurement, row

    def numbers(self, probe: str, metric: str) -> Iterator[NumberRow]:
        """Yield a `NumberRow` per network, measurement of a probe, and condition of a metric."""
        for network, measurement, row in self.measurements(probe):
            for number in network.numbers[measurement]:
                if number.metric == metric:
                    yield NumberRow(network, measurement, row=row, number=number)

    def by_measurement(self, probe: str) -> Iterator[tuple[str, Measurement, Networks]]:
        """Yield (suffix for names of figures, measurement of the probe, networks measured).

        The suffix is "" if there is only one measurement.
        """
        networks_by_measurement: dict[Measurement, list] = {}
        for network, measurement, _ in self.measurements(probe):
            networks_by_measurement.setdefault(measurement, []).append(network)
        for measurement, networks in networks_by_measurement.items():
            is_only = len(networks_by_measurement) == 1
            suffix = "" if is_only else f"_{measurement.measure}_{measurement.dataset}"
            yield suffix, measurement, networks

    def network_figures(self, probe: str) -> Iterator[NetworkFigure]:
        """Yield a `NetworkFigure` for each network and each of its measurements of a probe.

        Nothing is yielded if the page has no figures.
        """
        if not self.has_figures:
            return
        for suffix, measurement, networks in self.by_measurement(probe):
            for i, network in enumerate(networks, 1):
                number = f"_{i}" if len(networks) > 1 else ""
                yield NetworkFigure(f"{suffix}{number}", measurement, network)

    def class_counts(self, probe: str, metric: str) -> dict[str, Counts]:
        """Return (count, n) of a metric by data set, then by network, then by class.

        Classes have readable names. If several rules turned logits into decisions, only results of
        the first rule are included. probe, metric: a metric that the probe measures by class as a
        count of n images.
        """
        counts_by_set: dict[str, dict] = {}
        for network, measurement, _, number in self.numbers(probe, metric):
            rule, has_class, name = number.condition.partition("class=")
            if has_class and not rule:
                counts_by_network = counts_by_set.setdefault(measurement.dataset, {})
                counts = counts_by_network.setdefault(network.name, {})
                class_name = data_tables.readable(name)
                counts[class_name] = network_records.count_of(
                    network, measurement, number
                )
        return counts_by_set

    def shares(
        self,
        name: str,
        caption: str,
        row_title: str,
        counts: Mapping[str, Counts],
        metric: str = "accuracy",
    ) -> tables.Table | None:
        """Return a table of shares with Wilson intervals over independent images, or None.

        One row per data set and row name, one column per network, see `intervals`. name, caption,
        row_title: see `intervals`. counts: (count, n) by data set, network and row; without counts,
        None is returned. metric: name of the metric, for the CSV file.
        """
        cells_by_set = {
            dataset: {
                network: {
                    row: wilson_cell(count, n, metric=metric)
                    for row, (count, n) in counts_by_row.items()
                }
                for network, counts_by_row in counts_by_network.items()
            }
            for dataset, counts_by_network in counts.items()
        }
        return self.intervals(
            name,
            caption,
            row_title,
            cells_by_set,
            interval_words="Wilson intervals of 95 %",
        )

    def intervals(
        self,
        name: str,
        caption: str,
        row_title: str,
        cells_by_set: Mapping[str, Mapping[str, Mapping[str, IntervalCell]]],
        *,
        interval_words: str,
    ) -> tables.Table | None:
        """Return a table with a row per data set and row name, and a column per network, or None.

        caption: first sentences of the caption. row_title: head of the first column, such as
        "class". cells_by_set: cells by data set, network and row name. interval_words: kind of
        interval, for the caption. Every network of the page has a column, with a dash for a missing
        cell and for n = 0. Rows begin with the name of the data set if there are several. None if
        there are no cells.
        """
        data = []
        rows = []
        for dataset, cells_by_network in cells_by_set.items():
            prefix = f"{dataset}: " if len(cells_by_set) > 1 else ""
            for row in dict.fromkeys(itertools.chain(*cells_by_network.values())):
                texts = [f"{prefix}{row}"]
                for network in self.networks:
                    cell = cells_by_network.get(network.name, {}).get(row)
                    has_number = cell is not None and cell.n
                    texts.append(
                        tables.with_ends(cell.value, cell.low, cell.high)
                        if has_number
                        else "–"
                    )
                    if cell is not None:
                        labels = {row_title: texts[0], "network": network.name}
                        data.append(labels | cell._asdict())
                rows.append(tuple(texts))
        if not rows:
            return None
        return tables.Table(
            name,
            f"{caption} In %, with {interval_words}.",
            head=(row_title.capitalize(), *(network.name for network in self.networks)),
            rows=tuple(rows),
            data=pd.DataFrame(data),
        )

    def curves(
        self,
        rows: Sequence[tuple],
        *,
        min_points: int = 1,
        y_label: str = "accuracy in %",
    ) -> plots.Figure | None:
        """Return a figure with a line per network and a panel per value of "panel", or None.

        rows: (panel, x label, x, network, share) or (..., share, low, high); shares are from 0 to
        1. min_points: panels with fewer x values are left out; None if no panel is left. y_label:
        label of the y axis.
        """
        keys = ["panel", "label", "x", "line", *_SHARES]
        frame = pd.DataFrame(rows, columns=keys[: len(rows[0])] if rows else keys)
        point_counts = frame.groupby("panel")["x"].transform("nunique")
        shares = frame.columns.intersection(_SHARES)
        frame[shares] = 100 * frame[shares]
        frame = frame[point_counts >= min_points]
        if frame.empty:
            return None
        names = (network.name for network in self.networks)
        looks = plots.marks(names, {*frame["line"]})

        def finish(axes: plots.Axes, rows: pd.DataFrame) -> None:
            lowest = rows[shares].min().min()
            highest = rows[shares].max().max()
            axes.set(ylim=(min(0, lowest), max(102, highest)))
            axes.set_xlabel("; ".join(rows["label"].unique()), **plots.ink())

        return plots.curves(frame, looks, ("", y_label), finish=finish, cell=(3.4, 2.9))
