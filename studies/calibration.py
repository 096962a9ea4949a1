r"""Run the study of docs/which-measure.md: networks, measures, tables, curves and figure.

    python -m studies.calibration
    python -m studies.calibration --hidden    # after rules and curves are committed

Plants networks, measures them and analyses the measures (`jbias calibrate`), in --study. Then
writes to --out: networks.csv, readings.csv (from all images), and the tables of the analysis; the
curves, which `jbias report measured` shows, to --curves; and the figure and the table of
docs/which-measure.md, the figure to --figure, the table to stdout. With --hidden, only tables and
networks of the hidden set and the fixed curves, to --out/hidden, and the table of hidden networks to
stdout. Each part is resumed; stopped by --minutes, the same command continues.

Takes three core-hours: 2.5 to train, half to measure, and three minutes to analyse, measured with
two processes of one core each (--networks of `jbias calibrate`). --hidden takes two thirds of that.

`python -m studies.calibration_check` computes the main numbers again from the two tables alone.
"""

import math
import pathlib
import shutil
import sys
from collections.abc import Sequence

import pandas as pd

from jbias import calibrate
from jbias.calibrating import analysis as analysis_lib
from jbias.calibrating import curves as curves_lib
from jbias.calibrating import output, rows
from jbias.calibrating import rules as rules_lib
from jbias.calibrating import study as study_lib
from jbias.report import plots
from jbias.runtime import cli, messages
from studies import command

RESULTS = command.DOCS / "results/calibration"
_PANELS_ACROSS = 5
# Families of the figure, as in its legend.
_FAMILY_NAMES = {
    "trained": "trained network",
    "mixed_images": "mixture by images",
    "rule": "decision rule (not in the curve)",
}
_CURVE = {"color": plots.INK, "lw": 1.0}


def full_readings(readings: Sequence[rows.Reading]) -> list[rows.Reading]:
    """Return the readings from all images, one per network and measure."""
    largest: dict[tuple[str, str], rows.Reading] = {}
    for reading in readings:
        key = reading.network, reading.measure
        if reading.draw == 0 and (
            key not in largest or reading.images > largest[key].images
        ):
            largest[key] = reading
    return [*largest.values()]


def figure(study: study_lib.Study, analysis: analysis_lib.Analysis) -> plots.Figure:
    """Return the figure: for each measure, values and dials of networks, with the curve.

    Networks are those whose dial is a share of decisions. Measures are in the order of the table;
    a measure without such networks is left out.
    """
    panels = {}
    for row in output.in_order(analysis.measures).to_dict("records"):
        readings = study.main(row["measure"])
        readings = readings[
            readings["is_comparable"] & readings["family"].isin(_FAMILY_NAMES)
        ]
        if len(readings):
            panels[row["title"]] = (
                analysis.curves.by_measure.get(row["measure"]),
                readings,
            )
    looks = plots.marks(_FAMILY_NAMES.values())

    def draw(
        axes: plots.Axes, panel: tuple[curves_lib.DialCurve | None, pd.DataFrame]
    ) -> None:
        curve, readings = panel
        for family, group in readings.groupby("family"):
            axes.plot(
                group["value"],
                group["dial"],
                ls="",
                ms=3,
                mew=0,
                **looks[_FAMILY_NAMES[family]],
            )
        if curve is not None:
            axes.plot(curve.knots.values, curve.knots.dials, **_CURVE)
        axes.set(ylim=(-0.05, 1.05))

    return plots.multiples(
        panels,
        draw,
        ("value of the measure", "known reliance on shape"),
        plots.handles(looks),
        across=_PANELS_ACROSS,
        cell=(2.1, 1.8),
    )


def read_measures(path: pathlib.Path) -> pd.DataFrame:
    """Return a file measures.csv; empty texts are "", and empty numbers NaN."""
    texts = ("lies", "untested")
    measures = pd.read_csv(path, dtype=dict.fromkeys(texts, str))
    return measures.fillna(dict.fromkeys(texts, ""))


def table(measures: pd.DataFrame) -> str:
    """Return the table of docs/which-measure.md: a row per measure, in the order of `output`.

    measures: of `read_measures`. "wrong under" leaves out shortcuts that no measure is tested for.

    "either" marks a measure of which no direction was expected: its ρ has the sign of its curve.
    "error" has in brackets the error of dials in the middle. "behind best" is the difference of
    errors to the best measure. "bias" has in brackets the bias of dials below and above 1/2. An
    "images" of "≤ 480" says that no fewer were tested. "seconds" are those of the network that took
    longest, which includes drawing images and compiling, and of the median one.
    """
    head = (
        "| Measure | Verdict | networks | ρ [95 %] | error (middle) | behind best [95 %] | bias "
        "| coverage | images | accuracy | wrong under | seconds: first, further |\n"
        "| --- | --- | --: | --- | --- | --- | --- | --: | --: | --- | --- | --: |"
    )
    untested = [{*text.split("; ")} for text in measures["untested"]]
    never = set.intersection(*untested)
    order = output.in_order(measures).to_dict("records")
    return "\n".join([head, *(_row(row, never) for row in order)])


def hidden_table(hidden: pd.DataFrame, opened: pd.DataFrame) -> str:
    """Return the table of hidden networks in docs/which-measure.md, measures in `opened`'s order.

    hidden, opened: measures.csv of both sets. Errors are by the curves of the open networks.
    """
    head = (
        "| Measure | Verdict, open networks | hidden networks | hidden networks: ρ [95 %] "
        "| error (middle) | coverage [95 %] | verdict |\n"
        "| --- | --- | --: | --- | --- | --- | --- |"
    )
    by_measure = {row["measure"]: row for row in hidden.to_dict("records")}
    lines = [head]
    for open_row in output.in_order(opened).to_dict("records"):
        row = by_measure.get(open_row["measure"])
        if row is None:
            continue
        covered = [row[f"coverage{end}"] for end in ("", "_lower", "_upper")]
        shares = [f"{100 * x:.0f}" for x in covered if not math.isnan(x)]
        cells = [
            row["title"],
            open_row["verdict"],
            f"{row['networks']:,}",
            _with_interval(row, "rho"),
            f"{_number(row['error'])} ({_number(row['middle_error'])})",
            f"{shares[0]} % [{shares[1]}, {shares[2]}]" if shares else "–",
            row["verdict"],
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _row(row: dict, never: set[str]) -> str:
    """Return the row of a measure in the table. never: shortcuts to leave out."""
    low, high = row["accuracy_lower"], row["accuracy_upper"]
    cells = [
        row["title"],
        row["verdict"],
        f"{row['networks']:,}",
        _with_interval(row, "rho") + (" either" * (row["expected_direction"] == 0)),
        f"{_number(row['error'])} ({_number(row['middle_error'])})",
        _with_interval(row, "behind_best"),
        _biases(row),
        "–" if math.isnan(row["coverage"]) else f"{100 * row['coverage']:.0f} %",
        _images(row),
        "–" if math.isnan(low) else f"{low:g} to {high:g}",
        _shortcuts(row, never),
        f"{_seconds(row['seconds_first'])}, {_seconds(row['seconds'])}",
    ]
    return f"| {' | '.join(cells)} |"


def _with_interval(row: dict, name: str) -> str:
    """Return a number with its interval in brackets, if it has one."""
    lower, upper = (row[f"{name}_{end}"] for end in ("lower", "upper"))
    if math.isnan(lower):
        return _signed(row[name])
    return f"{_signed(row[name])} [{_signed(lower)}, {_signed(upper)}]"


def _images(row: dict) -> str:
    """Return the images that a measure needs, or a dash."""
    images = row["images_needed"]
    if images is None or math.isnan(images):
        return "–"
    return f"≤ {images:,.0f}" if row["sizes"] == 1 else f"{images:,.0f}"


def _seconds(value: float) -> str:
    """Return seconds with two significant digits, or a dash for NaN."""
    return "–" if math.isnan(value) else f"{value:.2g}"


def _biases(row: dict) -> str:
    """Return the bias over all dials, and in brackets below and above 1/2, or a dash."""
    if math.isnan(row["bias"]):
        return "–"
    halves = (_signed(row[f"bias_{side}_half"]) for side in ("below", "above"))
    return f"{_signed(row['bias'])} ({', '.join(halves)})"


def _shortcuts(row: dict, never: set[str]) -> str:
    """Return the shortcuts under which a measure is wrong, and those not tested but for `never`."""
    untested = [
        name for name in row["untested"].split("; ") if name not in {"", *never}
    ]
    texts = [row["lies"], *(f"{name}: not tested" for name in untested)]
    return "; ".join(filter(None, texts)) or "–"


def _number(value: float) -> str:
    """Return a number with two decimals, or a dash for NaN."""
    return "–" if math.isnan(value) else f"{round(value, 2) + 0.0:.2f}"  # No −0.00.


def _signed(value: float) -> str:
    """Return a number with two decimals and a minus sign, or a dash for NaN."""
    return _number(value).replace("-", "−")


def parser() -> cli.Parser:
    """Return the parser of the command line."""
    arguments = command.parser("calibration", __doc__)
    arguments.add_argument(
        "--study",
        type=pathlib.Path,
        default=pathlib.Path("calibration"),
        metavar="DIR",
        help="folder of networks and their results (default: calibration)",
    )
    command.add_out(arguments, "the tables", RESULTS)
    cli.add_texts(
        arguments,
        {
            "--figure=FILE": "SVG file of the figure (default: docs/which-measure.svg)",
            "--curves=FILE": "file of the curves (default: that of the package)",
            "--stages=A,B": "stages of jbias calibrate to run first (default: all)",
            "--minutes=N": "start no network after N minutes (default: no limit)",
        },
    )
    for flag, text in (
        ("--hidden", "the hidden networks (default: the open ones)"),
        ("--smoke", "few and tiny networks, to try the command"),
    ):
        arguments.add_argument(flag, action="store_true", help=text)
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Run the study; return the exit code of `jbias calibrate`."""
    options = parser().parse_args(argv)
    fixed = pathlib.Path(options.curves or curves_lib.FILE)
    code = calibrate.main(_arguments(options, fixed))
    if code == 2 or not (options.study / "readings.csv").exists():
        return code
    _publish(options, fixed)
    return code


def _arguments(options, fixed: pathlib.Path) -> list[str]:
    """Return the arguments of `jbias calibrate`. fixed: path of the curves."""
    arguments = [f"--out={options.study}", f"--rules={RESULTS / 'rules.json'}"]
    for name in ("stages", "minutes"):
        value = getattr(options, name)
        if value is not None:
            arguments.append(f"--{name}={value}")
    if options.hidden:
        arguments += ["--hidden", f"--curves={fixed}"]
    return [*arguments, "--smoke"] if options.smoke else arguments


def _publish(options, fixed: pathlib.Path) -> None:
    """Write tables, curves and figure, and print the table; see the module."""
    rules = rules_lib.read(RESULTS / "rules.json")
    networks = rows.read(options.study / "networks.csv", rows.PlantedNetwork)
    readings = rows.read(options.study / "readings.csv", rows.Reading)
    frozen = curves_lib.read(fixed) if options.hidden else None
    analysis = analysis_lib.analyse(networks, readings, rules, frozen=frozen)
    folder = options.out / "hidden" if options.hidden else options.out
    output.write(analysis, folder, has_curves=False)
    chosen = [x for x in networks if x.hidden == int(options.hidden)]
    names = {network.network for network in chosen}
    rows.write(folder / "networks.csv", chosen, rows.PlantedNetwork)
    rows.write(
        folder / "readings.csv",
        [reading for reading in full_readings(readings) if reading.network in names],
        rows.Reading,
    )
    if options.hidden:
        shutil.copy(options.study / "sealed.json", folder / "sealed.json")
        if fixed.resolve() != (folder / output.CURVES).resolve():
            shutil.copy(fixed, folder / output.CURVES)
        opened = read_measures(options.out / "measures.csv")
        messages.print_text(hidden_table(analysis.measures, opened))
    else:
        fixed.write_text(curves_lib.to_json(analysis.curves), "utf-8")
        study = study_lib.prepare(networks, readings, rules)
        path = pathlib.Path(options.figure or command.DOCS / "which-measure.svg")
        path.write_text(plots.to_svg(figure(study, analysis)), "utf-8")
        messages.print_text(table(analysis.measures))


if __name__ == "__main__":
    sys.exit(main())
