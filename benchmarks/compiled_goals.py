"""Goals for the compilers' predictions: earlier value, goal and present value."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from benchmarks import result_files
from jbias.training import strategies

GIB = 2**30
Programs = Mapping[str, Mapping[str, Any]]  # Compiled programs of a target, by row.
BASE = "imagenet/erm"


class Goal(NamedTuple):
    """An upper bound for a number that is computed from compiled programs.

    name: name of the number. earlier: its value before the optimisation, as text.
    bound: the upper bound. value: computes the number; KeyError if a row is missing.
    """

    name: str
    earlier: str
    bound: float
    value: Callable[[Programs], float]


def _cycles(name: str, base: str = BASE) -> Callable[[Programs], float]:
    """Return a function to the ratio of cycles of rows `name` and `base`."""
    return lambda programs: programs[name]["cycles"] / programs[base]["cycles"]


def _temporary(name: str, base: str = BASE) -> Callable[[Programs], float]:
    """Return a function to the ratio of temporary memory of rows `name` and `base`."""
    return lambda programs: programs[name]["temporary"] / programs[base]["temporary"]


def _bytes(name: str, base: str = BASE) -> Callable[[Programs], float]:
    """Return a function to the ratio of accessed bytes of rows `name` and `base`."""
    return lambda programs: programs[name]["bytes"] / programs[base]["bytes"]


def _share(name: str, part: str) -> Callable[[Programs], float]:
    """Return a function to the share of a row's cycles that `part` takes."""
    return lambda programs: programs[name]["parts"][part] / programs[name]["cycles"]


def _largest(part: str) -> Callable[[Programs], float]:
    """Return a function to the largest share of cycles that `part` has in a row.

    Rows of inputs alone, tiny networks, evaluations and peers do not count.
    """

    def value(programs: Programs) -> float:
        names = [
            name
            for name in programs
            if not name.startswith(("pixels/", "tiny/"))
            and "/evaluate" not in name
            and not re.search("/(flax|bare)", name)
        ]
        return max(_share(name, part)(programs) for name in names)

    return value


def _over_flops(name: str, base: str = BASE) -> Callable[[Programs], float]:
    """Return a function to the ratio of cycles of two rows over their ratio of FLOPs."""

    def value(programs: Programs) -> float:
        flops = programs[name]["times"] * programs[name]["flops"]
        base_flops = programs[base]["times"] * programs[base]["flops"]
        return _cycles(name, base)(programs) * base_flops / flops

    return value


def _auto(setting: str) -> Callable[[Programs], float]:
    """Return a function to the cycles of the best strategy over those of the first.

    The strategies are the candidates of strategy "auto" on TPUs, for ten seeds of ERM.
    """

    def value(programs: Programs) -> float:
        cycles = [
            programs[f"{setting}/erm*10:{strategy}"]["cycles"]
            for strategy in strategies.AUTO_CANDIDATES["tpu"]
        ]
        return min(cycles) / cycles[0]

    return value


def _traffic(*, pairs: bool) -> Callable[[Programs], float]:
    """Return a function to the largest ratio of moved bytes to gradients' bytes.

    Moved bytes are the outputs of collectives, without sums of normalisation layers.

    pairs: only SimCLR, whose loss is over all pairs of images; else all other algorithms.
    """

    def value(programs: Programs) -> float:
        return max(
            program["moved_other"] / program["gradients"]
            for name, program in programs.items()
            if program["devices"] > 1 and program["gradients"]
            if name.endswith("/simclr") == pairs
        )

    return value


def _with_inputs(name: str) -> Callable[[Programs], float]:
    """Return a function to the cycles of ERM with an input over its share of FLOPs.

    name: the row of the input alone, without a network.
    """

    def value(programs: Programs) -> float:
        base, no_input, with_input = (
            programs[row] for row in (BASE, "pixels/erm", name)
        )
        cycles, flops = (
            (with_input["views"] * base[key] + with_input[key] - no_input[key])
            / base[key]
            for key in ("cycles", "flops")
        )
        return cycles / flops

    return value


def _goals() -> Iterator[Goal]:
    """Yield all goals."""
    flax, bare, padain = (f"imagenet/{name}" for name in ("flax", "bare", "padain"))
    yield Goal("ERM, of Flax's example", "1.032", 0.97, _cycles(BASE, flax))
    yield Goal(
        "ERM, of Flax's example with our option of the compiler",
        earlier="",
        bound=0.97,
        value=_cycles(BASE, f"{flax},vmem=32768"),
    )
    yield Goal("ERM, of the bare step", "", 1.0, _cycles(BASE, bare))
    yield Goal("data, of a step (largest)", "0.81", 0.01, _largest("data"))
    yield Goal("guard, of a step (ResNet-50)", "0.023", 0.003, _share(BASE, "guard"))
    yield Goal("guard, of a step (largest)", "0.037", 0.003, _largest("guard"))
    yield Goal("pAdaIN, of ERM", "fits no v5e", 1.10, _cycles(padain))
    yield Goal("pAdaIN, temporary memory", "5.7", 1.15, _temporary(padain))
    for name, earlier, bound in (
        ("sagnet", "1.77", 1.65),
        ("debiased", "2.03", 1.95),
        ("infodrop", "> 1.30", 1.15),
    ):
        yield Goal(f"{name}, of ERM", earlier, bound, _cycles(f"imagenet/{name}"))
    yield Goal("infodrop, bytes of ERM", "32", 1.15, _bytes("imagenet/infodrop"))
    for name in ("dsu", "mixstyle", "efdmix"):
        title = f"{name}, of ERM, over its FLOPs'"
        yield Goal(title, "", 1.15, _over_flops(f"imagenet/{name}"))
    for name in ("mixup", "cutmix", "fmix", "augmix", "rand_conv", "stylize"):
        title = f"ERM and {name} by itself, of ERM, over its FLOPs'"
        yield Goal(title, "", 1.15, _with_inputs(f"pixels/erm+{name}"))
    for setting, earlier, bound in (
        ("cifar16", "0.24", 0.8),
        ("cifar64", "0.67", 1.02),
    ):
        title = f"ten seeds, {setting}, auto of looped"
        yield Goal(title, earlier, bound, _auto(setting))
    title = "bytes of collectives, of gradients"
    yield Goal(f"{title} (largest but SimCLR)", "", 1.05, _traffic(pairs=False))
    yield Goal(f"{title} (SimCLR)", "", 1.05, _traffic(pairs=True))
    yield Goal(
        "temporary GiB of a seed, cifar16",
        "0.58",
        0.03,
        lambda programs: programs["cifar16/erm"]["temporary"] / GIB,
    )


GOALS = tuple(_goals())


def compare(programs: Programs) -> dict[str, dict[str, Any]]:
    """Return the present value of each goal, by the goal's name.

    Values: before, most, now, and `reached`, true if now <= most. Goals whose rows are
    missing in `programs` are left out.
    """
    comparison = {}
    for goal in GOALS:
        try:
            value = goal.value(programs)
        except (KeyError, ValueError, ZeroDivisionError):
            continue  # Not compiled, for fewer devices, or without an estimate.
        comparison[goal.name] = {
            "before": goal.earlier,
            "most": goal.bound,
            "now": value,
            "reached": value <= goal.bound,
        }
    return comparison


def table(programs: Programs, target: str) -> str:
    """Return the goals as a Markdown table, or "" if no goal has all its rows."""
    rows = [
        (
            name,
            goal["before"] or "–",
            f"{goal['most']:g}",
            f"{goal['now']:.4g}",
            "yes" if goal["reached"] else "no",
        )
        for name, goal in compare(programs).items()
    ]
    if not rows:
        return ""
    head = ("predicted, not measured", "before", "at most", "now", "reached")
    return f"Target: {target}.\n\n{result_files.markdown(head, rows)}"
