r"""Estimate whether a run fits into the memory of devices, how long it takes and what it costs.

    jbias plan --config=jbias:sagnet --on=h100
    jbias plan --config=configs/erm.py:data=imagenet,root=DIR,seeds=3 \
        --on=v5e:4x4 --price=1.2
    jbias plan --config=jbias:erm --compare=v5e-1,h100x8,cpu --json
    jbias plan --runs=runs/x

You need neither the devices nor the images: jbias compiles the training step for the devices,
but does not run this step. The compilation takes as long as at the start of the run (minutes for a
ResNet-50). Install the compilers with `pip install 'jbias[plan]'`.

The devices of --on and --compare are
  v5e:4x4         a TPU slice, by its topology in chips
  v5e-16, v4-32   a TPU slice, by its name in Google Cloud; the number counts chips for v5e
                  and v6e, and cores (two per chip) for v2, v3, v4 and v5p
  h100x8, h200    GPUs: a100, h100, h200 or b200, then x and their number; h200 means one GPU
  cpu             this machine

Each line of the output ends with an explanation. All numbers are estimates:
  memory          the memory that the compiler reserves
  time on TPUs    the compiler's estimate of clock cycles
  time on GPUs    the sum over all kernels of the time for memory traffic or for floating-point
                  operations, whichever is longer, plus the time to launch kernels; steps
                  measured on an H100 and an H200 took 0.7 to 1.2 times the estimate
  time on CPUs    a lower bound, from the highest rates of this machine (the roofline)
The estimates do not include the time to compile, to save and to read files, or, on TPUs, the
time that the host needs to start each step. With --runs, the output also has the measured values
of an existing run.

Exit codes: 0 the run fits (with --compare: on at least one target); 1 it does not fit;
2 the arguments, the config or the data are wrong, or a compiler is missing; 130 stopped by
Ctrl-C, 143 by SIGTERM.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from jbias import config as jc
from jbias.runtime import cli, messages

_USAGE = """%(prog)s --config FILE:ARGS --on TARGET [options]
       %(prog)s --config FILE:ARGS --compare A,B [options]
       %(prog)s --runs WORKDIR [--on TARGET] [options]"""
_ESTIMATES = {
    "cycles": "the compiler's estimate",
    "kernels": "the sum of its kernels and launches",
    "roofline": "a lower bound, as no compiler estimates it",
}
# Lines of a page: name, and format of the plan's numbers. _TIME_LINES are left out if the
# time of a step is unknown.
_MEMORY_LINES = (
    ("run", "{run}"),
    ("devices", "{devices} of {target}, {hosts} host(s)"),
    ("fits", "{yes}"),
    ("seeds at once", "{seeds_at_once} of {seeds}, {strategy}"),
    (
        "memory of each device",
        "{memory_gib:.3g} of {usable_gib:.3g} GiB ({capacity_gib:.3g} in all)",
    ),
)
_AVERAGES_LINE = "passes for averages"  # Left out if there are none.
_TIME_LINES = (
    ("  products or bytes alone", "{roofline_ms:.4g} ms"),
    ("images", "{images_per_second:,.0f} per second"),
    ("epoch", "{epoch_s:,.4g} s"),
    ("evaluations", "{evaluations}, {evaluation_s:.4g} s each"),
    (_AVERAGES_LINE, "{average_hours:.4g} h"),
    ("whole run", "{run_hours:.4g} h, {run_device_hours:.4g} device hours"),
    ("hosts deliver", "{input_bytes_per_second:,.0f} bytes per second"),
    ("  images to decode", "{input_images_per_second:,.0f} per second"),
    ("between devices", "{moved_bytes_per_step:,.0f} bytes per step"),
)
# Explanations by the name of the line; {} is filled with the strategy or the estimate.
_MEANINGS: Mapping[str, str] = {
    "run": "name of the run: algorithm, training data, and a hash of its config",
    "devices": "number of devices that the run uses, and of their machines (hosts)",
    "fits": "yes if at least one seed fits into the memory of its devices",
    "seeds at once": "seeds on the devices together; {}",
    "memory of each device": "largest need of a device, of its usable memory",
    "state": "kept between steps: weights, optimiser state, statistics",
    "work": "used during a step: activations, gradients, temporary buffers",
    "sets": "data sets in the device's memory",
    "batches": "batches that wait for their step",
    "remedy": "a change of the config with which one seed would fit",
    "step of all seeds": "one update of the weights of every seed; {}",
    "data": "selecting images and gathering them into a batch",
    "inputs": "augmentation and other input transforms",
    "convolutions": "convolutions and matrix products of the forward pass",
    "convolutions backwards": "the gradients of those products",
    "normalisation": "batch norm and other normalisation, with gradients",
    "activations": "the network's other layers (ReLU, pooling, sums), with gradients",
    "algorithm": "loss, additions of the method, and everything without a line",
    "optimiser": "update of the weights from gradients",
    "guard": "check that training has not diverged",
    "collectives": "sums and exchanges between devices",
    "launches": "starting CUDA graphs, cuDNN calls and single kernels",
    "products or bytes alone": "shortest time at the device's peak rates (roofline)",
    "images": "training images, all seeds together",
    "epoch": "one pass over the training images, of all seeds",
    "evaluations": "number of evaluations on all test sets, and time of one",
    "passes for averages": "for averaged weights: validation losses, batch norms; at most",
    "whole run": "steps, evaluations, averages; device hours are hours times devices",
    "hosts deliver": "data that the machines must read and prepare",
    "images to decode": "JPEG or PNG files to read; 0 for a set in memory",
    "between devices": "data that each device receives from other devices",
    "money": "device hours times --price",
    "predicted": "a line without the word measured is an estimate",
    "measured device": "kind of the devices that the run used last",
    "measured devices": "number of these devices",
    "measured steps": "steps trained on these devices so far",
    "measured step_ms": "time of one step of all seeds, as a ratio to the plan's",
    "measured run_device_hours": "device hours used so far, on these devices",
    "measured memory_gib": "peak use of a device's memory",
}
_STRATEGIES: Mapping[str, str] = {
    "looped": "one program, one seed after the other",
    "threaded": "one program, one thread per seed",
    "unrolled": "one program that computes all seeds",
    "vmapped": "seeds stacked, in grouped convolutions",
    "unrolled_convolutions": "seeds stacked, one convolution per seed",
}
_COLUMNS: Mapping[str, str] = {
    "target": "the devices, as given to --on",
    "devices": "number of devices that the run uses",
    "fits": _MEANINGS["fits"],
    "seeds_at_once": "seeds on the devices together",
    "memory_gib": "largest need of a device, in GiB",
    "capacity_gib": "the memory of a device, in GiB",
    "step_ms": "time of one update of the weights of every seed, in ms",
    "images_per_second": "training images per second, all seeds together",
    "epoch_s": "seconds of one pass over the training images, of all seeds",
    "run_hours": "hours of the whole run, with evaluations",
    "run_device_hours": "hours times devices (of a CPU: times cores)",
    "money": _MEANINGS["money"],
    "estimate": (
        "cycles: the compiler's estimate; kernels: sum of kernels and launches; roofline: a "
        "lower bound"
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command `jbias plan`; return the exit code.

    Exit codes: see the module's docstring. Invalid arguments raise SystemExit(2).
    argv: the arguments; None: the process's arguments.
    """
    args, changes = cli.parse(parser(), argv, "config", jc.check)
    if bool(args.config) == bool(args.runs):
        parser().error("give one of --config and --runs, e.g. --config=jbias:erm")
    if args.runs and (changes or args.compare):
        parser().error(
            "--runs takes the config and the devices of the run; leave out --config.KEY "
            "and --compare"
        )
    if args.config and bool(args.on) == bool(args.compare):
        parser().error("give one of --on and --compare, e.g. --on=v5e:4x4")
    num_targets = len(args.compare or (args.on,))
    if args.price and len(args.price) not in (1, num_targets):
        parser().error(
            f"--price: must be one number or {num_targets}, got {len(args.price)}"
        )
    return cli.run(lambda: _work(args, changes), rerun="starts again")


def _work(args: argparse.Namespace, changes: Sequence[str]) -> int:
    """Print the plan of the run for each target; return the exit code.

    The code is 2 if no target could be planned, 0 if the run fits on at least one target, and
    otherwise 1. changes: the arguments --config.KEY=VALUE.
    """
    from jbias.training.tuning import targets

    measured = {}
    if args.runs:
        config, on, measured = _measured(args.runs, args.on)
        names = [args.on or on]
    else:
        config = jc.to_dict(jc.load(args.config, changes, flag="config"))
        names = args.compare or [args.on]
    wanted, prices = [targets.parse(name) for name in names], args.price or ()
    prices = prices * len(wanted) if len(prices) == 1 else prices
    plans = []
    for number, target in enumerate(wanted):
        plan = {"run": jc.run_name(config), **_plan(args, config, target)}
        if prices and plan.get("run_device_hours") is not None:
            money = prices[number] * plan["run_device_hours"]
            plan |= {"price": prices[number], "money": money}
        plans.append(plan | measured)
    if args.json:
        shown = plans if args.compare else plans[0]
        messages.print_text(messages.to_json(shown, indent=1))
    else:
        lines = _comparison_text(plans) if args.compare else _page_text(plans[0])
        messages.print_text("\n".join(lines))
    if all("error" in plan for plan in plans):
        return 2
    return 0 if any(plan.get("fits") for plan in plans) else 1


def _plan(
    args: argparse.Namespace, config: dict[str, Any], target: "targets.Target"
) -> dict[str, Any]:
    """Return the plan for one target, with the keys of the result of `run_estimates.plan`.

    If that function raises a ValueError, --compare gives {"target": its name, "error": one line};
    without --compare the error is raised. args: the parsed flags. config: the run's config.
    """
    from jbias import run_estimates

    def say(line: str) -> None:
        messages.print_text(f"jbias: {line}", to_stderr=True)

    assumed = run_estimates.AssumedSize(args.images, args.classes)
    try:
        return run_estimates.plan(
            config, target, say=say, assumed=assumed, remedies=args.remedies
        )
    except ValueError as error:
        if not args.compare:
            raise
        return {"target": target.name, "error": " ".join(str(error).split())}


def _measured(
    workdir: str, elsewhere: str | None
) -> tuple[dict[str, Any], str, dict[str, dict[str, Any]]]:
    """Return a run's config, the target of the devices that it used last, and measurements.

    The target is a name such as "h100x8". Measurements are {"measured": values by name}: device,
    devices, steps, step_ms, run_device_hours and, if recorded, memory_gib, of the starts on the
    devices used last.
    elsewhere: another target to plan for; None: the run's own devices, for which the config
    gets the strategy that the run chose. ValueError if the workdir has no run, or a run
    without measured steps.
    """
    from etils import epath

    from jbias import run_spec
    from jbias.runs import workdirs
    from jbias.runtime import files
    from jbias.training.tuning import targets

    path = epath.Path(workdir)
    if not (path / "config.json").exists():
        raise ValueError(f"--runs: must be a run's workdir, got {workdir!r}; check it")
    config = files.read_json(path / "config.json", dict, "name a run's workdir")
    # The starts on the devices of the latest start, and their steps. Steps that compiled
    # have no time.
    starts, steps, timed_steps = [], 0, 0
    previous_step, kind, count = 0, None, None
    for start in workdirs.read_costs(path):
        if (start["device"], start["devices"]) != (kind, count):
            kind, count = start["device"], start["devices"]
            starts, steps, timed_steps = [], 0, 0
        starts.append(start)
        new_steps = max(0, start["step"] - previous_step)
        steps += new_steps
        timed_steps += start.get("stepped", new_steps)
        previous_step = start["step"]
    seconds = sum(start["seconds"].get("stepping", 0.0) for start in starts)
    if not seconds or not timed_steps:
        raise ValueError(f"--runs: {workdir} has measured no steps; let it run first")
    measured = {
        "device": kind,
        "devices": count,
        "steps": steps,
        "step_ms": 1000 * seconds / timed_steps,
        "run_device_hours": sum(start["device_hours"] for start in starts),
    }
    peaks = [start["peak_gib"] for start in starts if "peak_gib" in start]
    if peaks:
        measured["memory_gib"] = max(peaks)
    config = run_spec.check_trusted(config, workdir)
    provenance = workdirs.provenance(path)
    # The run chose its strategy on the devices of its first start.
    has_chosen_here = provenance.get("device", {}).get("kind") == kind
    if has_chosen_here and not elsewhere and provenance.get("chosen"):
        config["run"]["strategy"] = provenance["chosen"]["strategy"]
    target = targets.from_device_kind(kind, count)
    return config, target.name, {"measured": measured}


def _page(plan: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the rows of one plan as texts: (name, numbers, meaning of the numbers).

    plan: result of `run_estimates.plan`, perhaps with the entry "measured" of `_measured`.
    """
    details = {
        "seeds at once": _STRATEGIES[plan["strategy"]],
        "step of all seeds": _ESTIMATES[plan["estimate"]],
    }
    return [
        (name, numbers, _MEANINGS[name.strip()].format(details.get(name)))
        for name, numbers in _lines(plan)
    ]


def _lines(plan: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the rows of one plan as texts, (name, numbers).

    In this order: devices and memory, the parts of the memory, a remedy if one was looked for,
    times and their parts if the time of a step is known, the price if it was given, and measured
    numbers. Names of parts are indented. plan: see `_page`.
    """
    values = {**plan, "yes": "yes" if plan["fits"] else "no"}
    rows = [(name, text.format_map(values)) for name, text in _MEMORY_LINES]
    rows += [
        (f"  {name}", f"{gib:.3g} GiB")
        for name, gib in plan["memory_by_part_gib"].items()
    ]
    if "remedy" in plan:
        rows.append(("remedy", plan["remedy"] or "none was found"))
    step = plan["step_ms"]
    if step:
        rows.append(("step of all seeds", f"{step:.4g} ms"))
        rows += [
            (f"  {name}", f"{ms:,.3f} ms, {100 * ms / step:.1f} %")
            for name, ms in plan["by_part"].items()
            if ms
        ]
        rows += [
            (name, text.format_map(values))
            for name, text in _TIME_LINES
            if name != _AVERAGES_LINE or values["average_hours"]
        ]
    if "money" in plan:
        money = plan["money"]
        amount = f"{money:,.2f}" if money >= 0.1 else f"{money:.2g}"
        rows.append(("money", f"{amount} at {plan['price']:g} per device hour"))
    for key, value in plan.get("measured", {}).items():
        ratio = f", {value / step:.3g} of the plan" if step and key == "step_ms" else ""
        rows.append((f"measured {key}", f"{_cell(value)}{ratio}"))
    rows.append(("predicted", "all lines except measured ones"))
    return rows


def _page_text(plan: Mapping[str, Any]) -> list[str]:
    """Return one plan as lines of text, with its notes at the end."""
    notes = [f"note: {note}" for note in plan["notes"]]
    return [*messages.align_columns(_page(plan)), *notes]


def _comparison_text(plans: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return several plans as lines of text: a table, the meaning of its columns, notes."""
    table = _comparison(plans)
    meanings = [(key, _COLUMNS[key]) for key in table[0]]
    lines = [*messages.align_columns(table), "", *messages.align_columns(meanings)]
    notes = dict.fromkeys(note for plan in plans for note in plan.get("notes", ()))
    return [*lines, *(f"note: {note}" for note in notes)]


def _comparison(plans: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return the rows of a table of plans: the header, then the cells of each target.

    Columns are the keys of _COLUMNS that any plan has. The row of a target with an error has only
    the target and the error.
    """
    columns = tuple(key for key in _COLUMNS if any(key in plan for plan in plans))
    rows = [columns]
    for plan in plans:
        cells = (_cell(plan.get(key)) for key in columns)
        rows.append(
            (plan["target"], plan["error"]) if "error" in plan else tuple(cells)
        )
    return rows


def _cell(value: Any) -> str:
    """Return a value as text for a table: None as "-", True as "yes", False as "no"."""
    if value is None or isinstance(value, bool):
        return {None: "-", True: "yes", False: "no"}[value]
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
    return str(value)


def parser() -> cli.Parser:
    """Return the parser of the command line."""
    parser = cli.Parser("plan", __doc__)
    parser.usage = _USAGE
    parser.add_argument(
        "--config",
        metavar="FILE:ARGS",
        help="config of the run to plan, as for `jbias train`, e.g. jbias:sagnet. "
        "--config.KEY=VALUE changes an entry",
    )
    parser.add_argument(
        "--on",
        metavar="TARGET",
        help="devices to plan for, e.g. v5e:4x4, h100x8, a100x4 or cpu (with --config, give "
        "--on or --compare; default with --runs: the devices that the run used last)",
    )
    parser.add_argument(
        "--compare",
        type=cli.names,
        metavar="A,B",
        help="instead of --on: several devices, which are compared in a table, e.g. "
        "v5e-1,h100x8",
    )
    parser.add_argument(
        "--runs",
        metavar="WORKDIR",
        help="instead of --config: workdir of an existing run; its measured values are "
        "printed with the estimates",
    )
    parser.add_argument(
        "--price",
        type=_prices,
        metavar="X",
        help="price of one device (a GPU, a TPU chip) for one hour, in any currency; the cost "
        "of the run is then printed. With --compare give one price for all devices, or one "
        "for each, as in --price=1.2,3 (default: print no cost)",
    )
    missing = (
        "needed only if the files of the data set are not on this machine and jbias does not "
        "know its size, as it does for published sets (default: counted)"
    )
    for name, text in {
        "images": "number of images in each split of the data set",
        "classes": "number of classes of the data set",
    }.items():
        parser.add_argument(
            f"--{name}",
            type=cli.at_least(1),
            default=0,
            metavar="N",
            help=f"{text}; {missing}",
        )
    parser.add_argument(
        "--no-remedies",
        dest="remedies",
        action="store_false",
        help="if the run does not fit, do not look for a change of the config with which it "
        "would fit; faster (default: look for it, and compile the step again for each attempt)",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the plan as JSON, and with --compare a list of plans (default: print text)",
    )
    return parser


def _prices(text: str) -> tuple[float, ...]:
    """Return the positive numbers in a text such as "1.2,3" (an argparse type)."""
    return tuple(cli.positive(price) for price in text.split(","))


if __name__ == "__main__":
    sys.exit(main())
