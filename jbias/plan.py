r"""Says whether a run would fit on devices, how long it would take, and what it would cost.

    python -m jbias.plan --config=jbias:sagnet --on=v5e:2x2
    python -m jbias.plan --config=configs/sagnet.py:data=imagenet,root=DIR,seeds=3 \
        --on=v5e:4x4 --price=1.2
    python -m jbias.plan --config=jbias:erm --compare=v5e-16,h100x8,cpu --json
    python -m jbias.plan --runs=runs/x

The devices need not be here, nor the images: the program of a step is compiled for them
from shapes alone, which takes as long as it will in the run (minutes for a ResNet-50), by
the compilers that the extra `plan` brings. --on takes a TPU's topology (v5e:4x4), so many
of its cores as clouds name them (v5e-16, v4-32), so many GPUs (h100x8, a100x4, h200), or
cpu, this machine. --config and --config.KEY=VALUE are as for jbias.main.

All numbers are predicted: memory by the compiler's own count, the time of TPUs by its
estimate of cycles. Of GPUs and CPUs it estimates none: their time is bounded from below
by what they can do at most (the roofline). Compiling, saving, reading, and starting each
step from the host are left out. With --runs the plan of a run that is there, on its own
devices, stands beside what was measured.

Exit codes: 0 it fits (of several targets: on one), 1 it fits on none, 2 arguments, the
config or the data are wrong, or a compiler is missing; 130 stopped. --json prints the plan
alone, of --compare a list of them.
"""

import argparse
import functools
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from jbias.measure import command
from jbias.terminal import parsing

_PARTS = "memory_by_part_gib"


def main(argv: Sequence[str] | None = None) -> int:
    """Does what the arguments say; returns the exit code."""
    args, changes = command.parse(parser(), argv, "config")
    if bool(args.config) == bool(args.runs):
        parser().error("give one of --config and --runs, e.g. --config=jbias:erm")
    if args.runs and (changes or args.compare):
        parser().error("--runs has a config and devices of its own; leave others out")
    if args.config and bool(args.on) == bool(args.compare):
        parser().error("give one of --on and --compare, e.g. --on=v5e:4x4")
    many = len(args.compare or (args.on,))
    if args.price and len(args.price) not in (1, many):
        parser().error(f"--price: must be one number or {many}, got {len(args.price)}")
    return command.run(lambda: _work(args, changes), stopped="begins anew")


def _work(args: argparse.Namespace, changes: Sequence[str]) -> int:
    from jbias import config as jc
    from jbias import config_files
    from jbias.training import predicted, targets

    measured = None
    if args.runs:
        config, on, measured = _run(args.runs, args.on)
        names = [on]
    else:
        config = jc.plain(config_files.load(args.config, changes, flag="config"))
        names = args.compare or [args.on]
    found, wanted = [], [targets.parse(name) for name in names]
    for number, target in enumerate(wanted):
        try:
            told = predicted.plan(
                config,
                target,
                _say,
                given=predicted.Given(args.images, args.classes),
                remedies=args.remedies,
            )
        except ValueError as error:
            if len(wanted) == 1:
                raise
            told = {"target": target.name, "error": " ".join(str(error).split())}
        if args.price and told.get("run_device_hours") is not None:
            price = args.price[min(number, len(args.price) - 1)]
            told |= {"price": price, "money": price * told["run_device_hours"]}
        if measured:
            told["measured"] = measured
            if told["step_ms"]:
                slower = measured["step_ms"] / told["step_ms"]
                measured["images_per_second"] = told["images_per_second"] / slower
        found.append({"run": jc.run_name(config), **told})
    if args.json:
        print(json.dumps(found if args.compare else found[0], indent=1))
    else:
        print(_table(_compared(found)) if args.compare else _page(found[0]))
    if all("error" in one for one in found):
        return 2
    return 0 if any(one.get("fits") for one in found) else 1


def _say(line: str) -> None:
    print(f"jbias: {line}", file=sys.stderr, flush=True)


def _run(workdir: str, on: str | None) -> tuple[dict[str, Any], str, dict[str, Any]]:
    """A run's config, the target that it ran on, and what was measured there."""
    from etils import epath

    from jbias.rundir import workdir as workdirs
    from jbias.store import disk
    from jbias.training import parts, targets

    path = epath.Path(workdir)
    config = disk.read_json(path / "config.json", dict, "name a run's workdir")
    here, steps, before, last = [], 0, 0, {}
    for start in workdirs.starts(path):
        kind = start["device"], start["devices"]
        if kind != (last.get("device"), last.get("devices")):
            here, steps = [], 0  # On other devices than before.
        here, steps = [*here, start], steps + max(0, start["step"] - before)
        before, last = start["step"], start
    took = sum(one["seconds"].get("stepping", 0.0) for one in here)
    if not took or not steps:
        raise ValueError(f"--runs: {workdir} has measured no steps; let it run first")
    measured = {
        "device": last["device"],
        "devices": last["devices"],
        "steps": steps,
        "step_ms": 1000 * took / steps,
        "run_device_hours": sum(one["device_hours"] for one in here),
    }
    if not on:
        on = targets.of_kind(last["device"], last["devices"]).name
    return parts.trusted(config, workdir), on, measured


def _page(told: Mapping[str, Any]) -> str:
    """One plan, a line a number."""
    how = {
        "cycles": "by the compiler's estimate",
        "roofline": "at least, by the roofline",
    }
    by = how[told["estimate"]]
    rows = [
        ("run", told["run"]),
        ("devices", f"{told['devices']} of {told['target']}, {told['hosts']} host(s)"),
        ("fits", "yes" if told["fits"] else "no"),
        ("remedy", (told["remedy"] or "none was found") if "remedy" in told else ""),
        ("seeds at once", f"{told['seeds_at_once']} of {told['seeds']}"),
        (
            "memory of each device",
            _of_memory(told),
        ),
        *((f"  {name}", f"{gib:.3g} GiB") for name, gib in told[_PARTS].items()),
    ]
    if told["step_ms"] is not None:
        rows += [
            ("step of all seeds", f"{told['step_ms']:.4g} ms, {by}"),
            *(
                (f"  {name}", f"{ms:.4g} ms, {100 * ms / told['step_ms']:.1f} %")
                for name, ms in told["by_part"].items()
                if ms
            ),
            ("  by the roofline", f"{told['roofline_ms']:.4g} ms at least"),
            (
                "images",
                f"{told['images_per_second']:,.0f} a second, all seeds together",
            ),
            ("epoch", f"{told['epoch_s']:,.4g} s"),
            (
                "evaluations",
                f"{told['evaluations']}, {told['evaluation_s']:.4g} s each",
            ),
            (
                "whole run",
                f"{told['run_hours']:.4g} h, {told['run_device_hours']:.4g} device hours",
            ),
            (
                "hosts deliver",
                f"{told['input_bytes_per_second'] / 1e6:,.4g} MB a second",
            ),
            ("  images to decode", f"{told['input_images_per_second']:,.0f} a second"),
            (
                "between devices",
                f"{told['moved_bytes_per_step'] / 1e6:,.4g} MB a step to each",
            ),
        ]
    if "money" in told:
        rows.append(
            ("money", f"{told['money']:,.2f} at {told['price']:g} a device hour")
        )
    if measured := told.get("measured"):
        for key, name in _MEASURED.items():
            value, planned = measured.get(key), told.get(key)
            if value is not None:
                ratio = f", {value / planned:.3g} of the plan" if planned else ""
                rows.append((f"measured {name}", f"{value:.4g}{ratio}"))
    rows += [("note", note) for note in told["notes"]]
    return (
        _table([row for row in rows if row[1]])
        + "\nAll of this is predicted"
        + (", but for what is called measured." if measured else ".")
    )


def _of_memory(told: Mapping[str, Any]) -> str:
    needed, usable, whole = (
        f"{told[key]:.3g}" for key in ("memory_gib", "usable_gib", "capacity_gib")
    )
    return f"{needed} GiB of {usable} to use, {whole} in all"


_MEASURED = {
    "step_ms": "step, ms",
    "images_per_second": "images/s",
    "run_device_hours": "device hours so far",
}
_COLUMNS = {
    "target": "target",
    "devices": "devices",
    "fits": "fits",
    "seeds_at_once": "seeds at once",
    "memory_gib": "GiB",
    "capacity_gib": "of GiB",
    "step_ms": "step, ms",
    "images_per_second": "images/s",
    "epoch_s": "epoch, s",
    "run_hours": "run, h",
    "run_device_hours": "device hours",
    "money": "money",
    "estimate": "time by",
}


def _compared(found: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Several plans, a line a target."""
    known = [key for key in _COLUMNS if any(key in one for one in found)]
    rows = [tuple(_COLUMNS[key] for key in known)]
    for one in found:
        if "error" in one:
            rows.append((one["target"], one["error"]))
        else:
            rows.append(tuple(_cell(one.get(key)) for key in known))
    return rows


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Columns side by side; the last cell of a row may be of any length."""
    widths: dict[int, int] = {}
    for row in rows:
        for i, cell in enumerate(row[:-1]):
            widths[i] = max(widths.get(i, 0), len(cell))
    return "\n".join(
        "  ".join(
            [*(cell.ljust(widths[i]) for i, cell in enumerate(row[:-1])), row[-1]]
        )
        for row in rows
    )


def parser() -> parsing.Parser:
    """The command line."""
    made = parsing.Parser("plan", __doc__)
    add = made.add_argument
    add("--config", metavar="FILE:ARGS", help="the experiment, as for jbias.main")
    add("--on", metavar="TARGET", help="devices, such as v5e:4x4, h100x8, a100x4, cpu")
    add(
        "--compare",
        type=parsing.names,
        metavar="A,B",
        help="several targets, in a table; one that cannot be planned says why",
    )
    add(
        "--runs",
        metavar="WORKDIR",
        help="a run: plans it for the devices that it ran on, beside what was measured",
    )
    add(
        "--price",
        type=_prices,
        metavar="X[,Y]",
        help="of a device hour, in any currency; with --compare one for all or for each",
    )
    at_least = functools.partial(parsing.at_least, 1)
    for flag, what in (("images", "images"), ("classes", "classes")):
        add(
            f"--{flag}",
            type=at_least(),
            default=0,
            metavar="N",
            help=f"{what} of sets that are not there and not known to us",
        )
    add(
        "--no-remedies",
        dest="remedies",
        action="store_false",
        help="where it does not fit, compiles nothing to find out what would",
    )
    add("--json", action="store_true", help="prints JSON")
    return made


def _prices(text: str) -> tuple[float, ...]:
    return tuple(map(parsing.positive, text.split(",")))


if __name__ == "__main__":
    sys.exit(main())
