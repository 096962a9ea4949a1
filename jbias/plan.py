r"""Says whether a run would fit on devices, how long it would take, and what it would cost.

    jbias plan --config=jbias:sagnet --on=h100
    jbias plan --config=configs/erm.py:data=imagenet,root=DIR,seeds=3 \
        --on=v5e:4x4 --price=1.2
    jbias plan --config=jbias:erm --compare=v5e-1,h100x8,cpu --json
    jbias plan --runs=runs/x

The devices need not be here, nor the images: the program of a step is compiled for them
from shapes alone, which takes as long as it will in the run (minutes for a ResNet-50), by
the compilers that the extra `plan` brings. --on takes a TPU's topology (v5e:4x4), so many
of its cores as clouds name them (v5e-16, v4-32), so many GPUs (h100x8, a100x4, h200), or
cpu, this machine. --config and --config.KEY=VALUE are as for jbias train.

Each line ends with what it means. All numbers are predicted: memory by the compiler's own
count, the time of TPUs by its estimate of cycles. The time of GPUs is the sum over the
program's kernels, of the time that their bytes or products need, and over its launches
(CUDA graphs, calls of cuDNN, single kernels): steps measured on an H100 took 0.7 to 1.2 of
it. The time of a CPU is bounded from below by what it can do at most (the roofline). Compiling, saving, reading, and on TPUs starting each step from the host are left out. With
--runs the plan of a run that is there, on its own devices, stands beside what was measured.

Exit codes: 0 it fits (of several targets: on one), 1 it fits on none, 2 arguments, the
config or the data are wrong, or a compiler is missing; 130 or 143 stopped. --json prints
the plan alone, of --compare a list of them.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from jbias import config as jc
from jbias.runtime import cli, messages

_BOUND = {
    "cycles": "the compiler's estimate",
    "kernels": "the sum of its kernels and launches",
    "roofline": "a lower bound, as no compiler estimates it",
}
# Lines of a page: name, numbers of the plan; the second where a time is known.
_FITS = (
    ("run", "{run}"),
    ("devices", "{devices} of {target}, {hosts} host(s)"),
    ("fits", "{yes}"),
    ("seeds at once", "{seeds_at_once} of {seeds}, {strategy}"),
    (
        "memory of each device",
        "{memory_gib:.3g} of {usable_gib:.3g} GiB ({capacity_gib:.3g} in all)",
    ),
)
_TAKES = (
    ("  products or bytes alone", "{roofline_ms:.4g} ms"),
    ("images", "{images_per_second:,.0f} a second"),
    ("epoch", "{epoch_s:,.4g} s"),
    ("evaluations", "{evaluations}, {evaluation_s:.4g} s each"),
    ("whole run", "{run_hours:.4g} h, {run_device_hours:.4g} device hours"),
    ("hosts deliver", "{input_bytes_per_second:,.0f} bytes a second"),
    ("  images to decode", "{input_images_per_second:,.0f} a second"),
    ("between devices", "{moved_bytes_per_step:,.0f} bytes a step"),
)
# Explanations of the lines, by their names; {} is that of the strategy or the estimate.
_MEANINGS: Mapping[str, str] = {
    "run": "name of the run: algorithm, training data, and a hash of its config",
    "devices": "devices that the run uses, and the machines that hold them",
    "fits": "whether at least one seed fits into the memory of its devices",
    "seeds at once": "seeds side by side, the others later; {}",
    "memory of each device": "the most it needs, of what a run may use of it",
    "state": "kept from step to step: weights, optimiser state, running statistics",
    "work": "while a step runs: activations, gradients, temporary buffers",
    "sets": "data sets that stay on the device",
    "batches": "batches that wait for their step",
    "remedy": "the first change with which one seed would fit",
    "step of all seeds": "one update of the weights of every seed; {}",
    "data": "drawing images and gathering them into a batch",
    "inputs": "augmentation and other input transforms",
    "convolutions": "convolutions and matrix products, forwards",
    "convolutions backwards": "the gradients of those products",
    "normalisation": "batch norm and other normalisation, with gradients",
    "activations": "the network's other layers (ReLU, pooling, sums), with gradients",
    "algorithm": "loss and what the method adds, and all that has no other line",
    "optimiser": "the change of weights from gradients",
    "guard": "the check that training has not diverged",
    "collectives": "sums and exchanges between devices",
    "launches": "starting CUDA graphs, calls of cuDNN and single kernels from the host",
    "products or bytes alone": "least time at this device's peak rates (roofline)",
    "images": "training images, all seeds together",
    "epoch": "one pass over the training images, of all seeds",
    "evaluations": "how often all test sets are scored, and how long once takes",
    "whole run": "steps and evaluations; device hours are what is paid for",
    "hosts deliver": "what the machines' disks and processors must keep up with",
    "images to decode": "JPEG or PNG files to read; 0 where the set is in memory",
    "between devices": "what each device receives from the others",
    "money": "device hours times --price",
    "predicted": "no line above was measured, unless it says so",
    "measured device": "the devices that the run had last",
    "measured devices": "their number",
    "measured steps": "steps that they did so far",
    "measured step_ms": "time of one step of all seeds, beside the plan's",
    "measured run_device_hours": "what has been paid for so far, on these devices",
    "measured memory_gib": "peak of a device's memory",
}
_STRATEGIES: Mapping[str, str] = {
    "looped": "one program, one seed after the other",
    "threaded": "one program, a thread for each seed",
    "unrolled": "one program of all seeds side by side",
    "vmapped": "seeds stacked, in grouped convolutions",
    "unrolled_convolutions": "seeds stacked, a convolution for each",
}
_COLUMNS: Mapping[str, str] = {
    "target": "the devices, as --on takes them",
    "devices": "how many of them the run uses",
    "fits": _MEANINGS["fits"],
    "seeds_at_once": "seeds trained side by side",
    "memory_gib": "the most that a device needs, in GiB",
    "capacity_gib": "the memory of a device, in GiB",
    "step_ms": "time of one update of the weights of every seed, in ms",
    "images_per_second": "training images a second, all seeds together",
    "epoch_s": "seconds of one pass over the training images, of all seeds",
    "run_hours": "hours of the whole run, with evaluations",
    "run_device_hours": "hours times devices (of a CPU, cores): what is paid for",
    "money": _MEANINGS["money"],
    "estimate": (
        "cycles: the compiler's; kernels: sum of kernels and launches; roofline: a lower bound"
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Does what the arguments say; returns the exit code."""
    args, changes = cli.parse(parser(), argv, "config", jc.check)
    if bool(args.config) == bool(args.runs):
        parser().error("give one of --config and --runs, e.g. --config=jbias:erm")
    if args.runs and (changes or args.compare):
        parser().error("--runs has a config and devices of its own; leave others out")
    if args.config and bool(args.on) == bool(args.compare):
        parser().error("give one of --on and --compare, e.g. --on=v5e:4x4")
    many = len(args.compare or (args.on,))
    if args.price and len(args.price) not in (1, many):
        parser().error(f"--price: must be one number or {many}, got {len(args.price)}")
    return cli.run(lambda: _work(args, changes), stopped="begins anew")


def _work(args: argparse.Namespace, changes: Sequence[str]) -> int:
    from jbias.training import targets

    measured = {}
    if args.runs:
        config, on, measured = _measured(args.runs, args.on)
        names = [args.on or on]
    else:
        config = jc.to_dict(jc.load(args.config, changes, flag="config"))
        names = args.compare or [args.on]
    wanted, prices = [targets.parse(name) for name in names], args.price or ()
    prices = prices * len(wanted) if len(prices) == 1 else prices
    found = []
    for number, target in enumerate(wanted):
        told = {"run": jc.run_name(config), **_plan(args, config, target)}
        if prices and told.get("run_device_hours") is not None:
            money = prices[number] * told["run_device_hours"]
            told |= {"price": prices[number], "money": money}
        found.append(told | measured)
    if args.json:
        shown = found if args.compare else found[0]
        messages.print_text(messages.to_json(shown, indent=1))
    else:
        lines = _compared_text(found) if args.compare else _page_text(found[0])
        messages.print_text("\n".join(lines))
    if all("error" in one for one in found):
        return 2
    return 0 if any(one.get("fits") for one in found) else 1


def _plan(args: argparse.Namespace, config: dict, target: Any) -> dict[str, Any]:
    """The plan of one target; of several, why there is none."""
    from jbias import run_estimates

    def say(line: str) -> None:
        messages.print_text(f"jbias: {line}", to_stderr=True)

    given = run_estimates.AssumedSize(args.images, args.classes)
    try:
        return run_estimates.plan(config, target, say, given, remedies=args.remedies)
    except ValueError as error:
        if not args.compare:
            raise
        return {"target": target.name, "error": " ".join(str(error).split())}


def _measured(workdir: str, elsewhere: str | None) -> tuple[dict, str, dict]:
    """A run's config, the devices that it had last, and what was measured there.

    The config has the strategy that the run chose, unless it is planned for elsewhere.
    """
    from etils import epath

    from jbias import run_spec
    from jbias.runs import workdirs
    from jbias.runtime import files
    from jbias.training import targets

    path = epath.Path(workdir)
    if not (path / "config.json").exists():
        raise ValueError(f"--runs: must be a run's workdir, got {workdir!r}; check it")
    config = files.read_json(path / "config.json", dict, "name a run's workdir")
    here, steps, timed, before, on = [], 0, 0, 0, ()
    for start in workdirs.read_costs(path):
        if (start["device"], start["devices"]) != on:
            on, here = (start["device"], start["devices"]), []
            steps = timed = 0
        here.append(start)
        steps += max(0, start["step"] - before)
        timed += start.get("stepped", max(0, start["step"] - before))
        before = start["step"]
    took = sum(one["seconds"].get("stepping", 0.0) for one in here)
    if not took or not timed:
        raise ValueError(f"--runs: {workdir} has measured no steps; let it run first")
    told = {"device": on[0], "devices": on[1], "steps": steps}
    told["step_ms"] = 1000 * took / timed
    told["run_device_hours"] = sum(one["device_hours"] for one in here)
    if peaks := [one["peak_gib"] for one in here if "peak_gib" in one]:
        told["memory_gib"] = max(peaks)
    config = run_spec.check_trusted(config, workdir)
    facts = workdirs.provenance(path)
    same = facts.get("device", {}).get("kind") == on[0]  # As when it chose.
    if same and not elsewhere and facts.get("chosen"):
        config["run"]["strategy"] = facts["chosen"]["strategy"]
    return config, targets.from_device_kind(*on).name, {"measured": told}


def _page(plan: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the lines of one plan: a name, numbers, and what they mean."""
    details = {
        "seeds at once": _STRATEGIES[plan["strategy"]],
        "step of all seeds": _BOUND[plan["estimate"]],
    }
    return [
        (name, numbers, _MEANINGS[name.strip()].format(details.get(name)))
        for name, numbers in _lines(plan)
    ]


def _lines(plan: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the lines of one plan: a name, which indentation puts under another, numbers."""
    values = {**plan, "yes": "yes" if plan["fits"] else "no"}
    rows = [(name, text.format_map(values)) for name, text in _FITS]
    parts = plan["memory_by_part_gib"].items()
    rows += [(f"  {name}", f"{gib:.3g} GiB") for name, gib in parts]
    if "remedy" in plan:
        rows.append(("remedy", plan["remedy"] or "none was found"))
    if step := plan["step_ms"]:
        rows.append(("step of all seeds", f"{step:.4g} ms"))
        rows += [
            (f"  {name}", f"{ms:,.3f} ms, {100 * ms / step:.1f} %")
            for name, ms in plan["by_part"].items()
            if ms
        ]
        rows += [(name, text.format_map(values)) for name, text in _TAKES]
    if "money" in plan:
        money = plan["money"]
        amount = f"{money:,.2f}" if money >= 0.1 else f"{money:.2g}"
        rows.append(("money", f"{amount} at {plan['price']:g} a device hour"))
    for key, value in plan.get("measured", {}).items():
        ratio = f", {value / step:.3g} of the plan" if step and key == "step_ms" else ""
        rows.append((f"measured {key}", f"{_cell(value)}{ratio}"))
    rows.append(("predicted", "all but what is called measured"))
    return rows


def _page_text(plan: Mapping[str, Any]) -> list[str]:
    """Return one plan as lines, its notes last."""
    notes = [f"note: {note}" for note in plan["notes"]]
    return [*messages.align_columns(_page(plan)), *notes]


def _compared_text(plans: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return several plans as a table, then what its columns mean, then notes."""
    table = _compared(plans)
    meanings = [(key, _COLUMNS[key]) for key in table[0]]
    lines = [*messages.align_columns(table), "", *messages.align_columns(meanings)]
    notes = dict.fromkeys(note for plan in plans for note in plan.get("notes", ()))
    return [*lines, *(f"note: {note}" for note in notes)]


def _compared(plans: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return several plans as rows of a table, a target each."""
    columns = tuple(key for key in _COLUMNS if any(key in plan for plan in plans))
    rows = [columns]
    for plan in plans:
        cells = (_cell(plan.get(key)) for key in columns)
        rows.append(
            (plan["target"], plan["error"]) if "error" in plan else tuple(cells)
        )
    return rows


def _cell(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "-", True: "yes", False: "no"}[value]
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
    return str(value)


def parser() -> cli.Parser:
    """The command line."""
    made = cli.Parser("plan", __doc__)
    add = made.add_argument
    add("--config", metavar="FILE:ARGS", help="the experiment, as for jbias train")
    add("--on", metavar="TARGET", help="devices, such as v5e:4x4, h100x8, a100x4, cpu")
    add("--compare", type=cli.names, metavar="A,B", help="several, in a table")
    add("--runs", metavar="WORKDIR", help="a run: its plan beside what was measured")
    prices = lambda text: tuple(map(cli.positive, text.split(",")))
    what = (
        "price of a device hour, in any currency; with --compare one, or A,B for each"
    )
    add("--price", type=prices, metavar="X", help=what)
    for name in ("images", "classes"):
        what = f"{name} of sets that are not there, if nobody published them"
        add(f"--{name}", type=cli.at_least(1), default=0, metavar="N", help=what)
    what = "where it does not fit, compiles nothing to find out what would"
    add("--no-remedies", dest="remedies", action="store_false", help=what)
    add("--json", action="store_true", help="prints JSON")
    return made


if __name__ == "__main__":
    sys.exit(main())
