"""What was to be reached of what compilers predict: before, goal and now."""

import re
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from benchmarks import measured
from jbias.training import seed_axis

GIB = 2**30
Found = Mapping[str, Mapping[str, Any]]  # By row, of one target.
BASE = "imagenet/erm"


class Goal(NamedTuple):
    """A number of some rows that should be at most so large."""

    what: str
    before: str
    most: float
    value: Callable[[Found], float]  # KeyError where a row is not there.


def _cycles(name: str, of: str = BASE) -> Callable[[Found], float]:
    return lambda found: found[name]["cycles"] / found[of]["cycles"]


def _temporary(name: str, of: str = BASE) -> Callable[[Found], float]:
    return lambda found: found[name]["temporary"] / found[of]["temporary"]


def _bytes(name: str, of: str = BASE) -> Callable[[Found], float]:
    return lambda found: found[name]["bytes"] / found[of]["bytes"]


def _share(name: str, part: str) -> Callable[[Found], float]:
    return lambda found: found[name]["parts"][part] / found[name]["cycles"]


def _largest(part: str) -> Callable[[Found], float]:
    """The largest share of a part among the rows that train by us a network of use."""

    def value(found: Found) -> float:
        ours = [
            one
            for one in found
            if not one.startswith(("pixels/", "tiny/"))
            and "/evaluate" not in one
            and not re.search("/(flax|bare)", one)
        ]
        return max(_share(name, part)(found) for name in ours)

    return value


def _over_flops(name: str, of: str = BASE) -> Callable[[Found], float]:
    """Cycles of another step's, over what they should be by its operations."""

    def value(found: Found) -> float:
        flops, base = (found[one]["times"] * found[one]["flops"] for one in (name, of))
        return _cycles(name, of)(found) * base / flops

    return value


def _auto(setting: str) -> Callable[[Found], float]:
    """What "auto" takes by this estimate, of what it takes first."""

    def value(found: Found) -> float:
        first, *others = (
            found[f"{setting}/erm*10:{how}"]["cycles"]
            for how in seed_axis.AUTO_CANDIDATES["tpu"]
        )
        return min(first, *others) / first

    return value


def _traffic(*, pairs: bool) -> Callable[[Found], float]:
    """The most that collectives bring, over gradients, without sums of norms.

    pairs: of SimCLR, whose loss is of all pairs of images; else of all other algorithms.
    """

    def value(found: Found) -> float:
        return max(
            one["moved_other"] / one["gradients"]
            for name, one in found.items()
            if one["devices"] > 1 and one["gradients"]
            if name.endswith("/simclr") == pairs
        )

    return value


def _with_inputs(name: str) -> Callable[[Found], float]:
    """ERM's cycles and those of an input alone, likewise over what they should be."""

    def value(found: Found) -> float:
        base, none, one = (found[row] for row in (BASE, "pixels/erm", name))
        cycles, flops = (
            (one["views"] * base[key] + one[key] - none[key]) / base[key]
            for key in ("cycles", "flops")
        )
        return cycles / flops

    return value


def _goals() -> Iterator[Goal]:
    flax, bare, padain = (f"imagenet/{name}" for name in ("flax", "bare", "padain"))
    yield Goal("ERM, of Flax's example", "1.032", 0.97, _cycles(BASE, flax))
    yield Goal(
        "ERM, of Flax's example with our option of the compiler",
        *("", 0.97, _cycles(BASE, f"{flax},vmem=32768")),
    )
    yield Goal("ERM, of the bare step", "", 1.0, _cycles(BASE, bare))
    yield Goal("data, of a step (largest)", "0.81", 0.01, _largest("data"))
    yield Goal("guard, of a step (ResNet-50)", "0.023", 0.003, _share(BASE, "guard"))
    yield Goal("guard, of a step (largest)", "0.037", 0.003, _largest("guard"))
    yield Goal("pAdaIN, of ERM", "fits no v5e", 1.10, _cycles(padain))
    yield Goal("pAdaIN, temporary memory", "5.7", 1.15, _temporary(padain))
    for name, before, most in (
        ("sagnet", "1.77", 1.65),
        ("debiased", "2.03", 1.95),
        ("infodrop", "> 1.30", 1.15),
    ):
        yield Goal(f"{name}, of ERM", before, most, _cycles(f"imagenet/{name}"))
    yield Goal("infodrop, bytes of ERM", "32", 1.15, _bytes("imagenet/infodrop"))
    for name in ("dsu", "mixstyle", "efdmix"):
        what = f"{name}, of ERM, over its FLOPs'"
        yield Goal(what, "", 1.15, _over_flops(f"imagenet/{name}"))
    for name in ("mixup", "cutmix", "fmix", "augmix", "rand_conv", "stylize"):
        what = f"ERM and {name} by itself, of ERM, over its FLOPs'"
        yield Goal(what, "", 1.15, _with_inputs(f"pixels/erm+{name}"))
    for setting, most in (("cifar16", 0.8), ("cifar64", 1.02)):
        before = {"cifar16": "0.24", "cifar64": "0.67"}[setting]
        what = f"ten seeds, {setting}, auto of looped"
        yield Goal(what, before, most, _auto(setting))
    what = "bytes of collectives, of gradients"
    yield Goal(f"{what} (largest but SimCLR)", "", 1.05, _traffic(pairs=False))
    yield Goal(f"{what} (SimCLR)", "", 1.05, _traffic(pairs=True))
    yield Goal(
        "temporary GiB of a seed, cifar16",
        "0.58",
        0.03,
        lambda found: found["cifar16/erm"]["temporary"] / GIB,
    )


GOALS = tuple(_goals())


def reached(found: Found) -> dict[str, Mapping[str, Any]]:
    """All goals whose rows are there."""
    told = {}
    for goal in GOALS:
        try:
            now = goal.value(found)
        except (KeyError, ValueError, ZeroDivisionError):
            continue  # Not compiled, for fewer devices, or without an estimate.
        told[goal.what] = types.MappingProxyType(
            dict(before=goal.before, most=goal.most, now=now, reached=now <= goal.most)
        )
    return {what: dict(one) for what, one in told.items()}


def table(found: Found, target: str) -> str:
    """The goals as Markdown; empty where none of their rows is there."""
    rows = [
        (
            what,
            one["before"] or "–",
            f"{one['most']:g}",
            f"{one['now']:.4g}",
            _mark(one),
        )
        for what, one in reached(found).items()
    ]
    if not rows:
        return ""
    head = ("predicted, not measured", "before", "at most", "now", "reached")
    return f"Target: {target}.\n\n{measured.markdown(head, rows)}"


def _mark(one: Mapping[str, Any]) -> str:
    return "yes" if one["reached"] else "no"
