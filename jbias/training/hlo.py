"""What a compiled program does, read from its HLO text: how often, how long, for what.

Cycles are the estimates of the compiler for TPUs; other compilers give none. What lies in
a loop counts as often as it turns, what lies in a branch with the chance that it runs.
"""

import collections
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

PARTS = (
    *("data", "inputs", "convolutions", "normalisation", "activations"),
    *("algorithm", "optimiser", "guard", "collectives"),
)
COLLECTIVES = (
    *("all-reduce", "all-gather", "all-to-all", "collective-permute"),
    *("reduce-scatter", "collective-broadcast"),
)
# What does work though compilers for TPUs estimate no cycles of it.
_UNESTIMATED = {"sort", "select-and-scatter", "scatter", "gather", "custom-call", "fft"}
# Custom calls that do none.
_FREE = {"ConcatBitcast", "AssumeGatherIndicesInBound", "AllocateBuffer", "Sharding"}

_HEAD = re.compile(r"^(ENTRY )?%?(?P<name>[\w.-]+) \(.*\{$")
_LINE = re.compile(
    r"^\s+(?:ROOT )?%?(?P<name>[\w.-]+) = (?P<out>\(.*?\)|\S+) (?P<code>[\w-]+)"
    r"\((?P<given>[^)]*)"
)
_NAME = re.compile(r"%([\w.-]+)")
# What names things, or runs others, and touches no memory itself.
_NAMING = {
    *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all"),
    *("while", "conditional", "call", "optimization-barrier", "partition-id"),
}
_RUNNING = ("while", "conditional", "call")
_PRODUCTS = ("convolution", "dot")
_GPU_PRODUCTS = {
    *("__cudnn$convForward", "__cudnn$convBackwardInput", "__cudnn$convBackwardFilter"),
    *("__cudnn$convBiasActivationForward", "__cublas$gemm", "__cublas$lt$matmul"),
}
# The place of output channels in the weights; what a matrix product sums over.
_LABELS = re.compile(r"dim_labels=\w+_(\w+)->\w+")
_SUMMED = re.compile(
    r'(?:lhs_contracting_dims=\{([\d,]*)\}|"lhs_contracting_dimensions":\[([\d,"]*)\])'
)
_ARRAY = re.compile(r"\b([a-z]+)(\d*)(?:e\d\w*)?\[([\d,]*)\]")
_SCOPE = re.compile(r'op_name="([^"]*)"')
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_CALLED = re.compile(
    r"(body|condition|calls|to_apply|true_computation|false_computation)=%?([\w.-]+)"
)
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
# See algos/padain.py.
_CHANCE = re.compile(r"chance=([\d.e+-]+)\)*/cond/branch_1")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_TARGET = re.compile(r'custom_call_target="([^"]*)"')
_FUSED = re.compile(r" fusion\(.*calls=%?([\w.-]+)")


class Operation(NamedTuple):
    """An instruction that runs as such; what is fused into another is a part of that."""

    name: str
    code: str  # Such as fusion, copy or all-reduce.
    scope: str  # What asked for it, as jax calls it.
    out: str  # Types and shapes of what it gives.
    cycles: int  # Of one run; 0 where the compiler estimates none.
    times: float | None  # Runs; None: in a loop whose length depends on the data.
    target: str = ""  # Of a custom call.
    bytes: int = 0  # Of what it is given and gives, in one run.
    flops: int = 0  # Of its convolutions and matrix products, in one run.
    factor_bytes: int = 0  # Of an element that these products multiply.

    @property
    def part(self) -> str:
        """One of PARTS."""
        if self.code.removesuffix("-start") in COLLECTIVES:
            return "collectives"
        return part(self.scope)

    @property
    def total(self) -> float:
        """Cycles of all its runs."""
        return self.cycles * self.runs

    @property
    def runs(self) -> float:
        """Runs; one where nobody knows."""
        return 1 if self.times is None else self.times


class Product(NamedTuple):
    """Convolutions and matrix products of an instruction or a computation."""

    flops: int
    factor_bytes: int  # Of an element that they multiply.

    def plus(self, other: "Product") -> "Product":
        """Return both together; elements are as wide as the widest."""
        widest = max(self.factor_bytes, other.factor_bytes)
        return Product(self.flops + other.flops, widest)


NO_PRODUCT = Product(0, 0)


def operations(text: str, taken: float | None = 0.5, seeds: int = 1) -> list[Operation]:
    """All that a program runs, in the order of its text.

    taken: the chance that the second branch of a conditional runs, that of a condition
      that holds, unless that is named (algos/padain.py); of more than two branches all
      are as likely. None: each counts once.
    seeds: so many share a program by jax.vmap, and with it conditions that are named.
    """
    found, calls, where, entry = [], collections.defaultdict(list), None, None
    sizes: dict[str, int] = {}
    shapes: dict[str, list] = {}
    products: dict[str, Product] = {}  # What a computation multiplies.
    optimises: dict[str, str] = {}  # What lies in a computation.
    # The chance that a computation runs, where it is named.
    told: dict[str, float] = {}
    for line in text.splitlines():
        if head := _HEAD.match(line):
            where = head["name"]
            entry = where if head[1] else entry
        elif (made := _LINE.match(line)) and where:
            code, scope, fused = made["code"], _first(_SCOPE, line), _FUSED.search(line)
            calls[where] += _called(line, code, taken, told)
            if inside := _CHANCE.search(line):
                several = seeds if "vmap(" in line[: inside.start()] else 1
                told.setdefault(where, 1 - (1 - float(inside[1])) ** several)
            if part(scope) == "optimiser":
                optimises[where] = scope
            elif fused and part(scope) == "guard":
                # It has the name of its last operation; a choice from what the optimiser
                # makes reads nothing more.
                scope = optimises.get(fused[1], scope)
            cycles, called = int(_first(_CYCLES, line) or 0), _first(_TARGET, line)
            out = sizes[made["name"]] = sum(n for _, n in arrays(made["out"]))
            given = _NAME.findall(made["given"])
            moved = [sizes.get(name, 0) for name in given]
            shapes[made["name"]] = [*arrays(made["out"])]
            product = products.get(fused[1], NO_PRODUCT) if fused else NO_PRODUCT
            if code in _PRODUCTS or called in _GPU_PRODUCTS:
                product = _product(line, made, [shapes.get(x) for x in given[:2]])
            products[where] = products.get(where, NO_PRODUCT).plus(product)
            if part(scope) == "data":
                moved = [min(n, out) for n in moved]  # It takes some rows of many.
            idle = code in _NAMING or called in _FREE
            idle = idle or code.endswith(("-start", "-done"))
            one = Operation(
                made["name"], code, scope, made["out"], cycles, 1.0, called, 0, *product
            )
            found.append((where, one, (0,) if idle else (out, *moved)))
    times, ran = _times(calls, entry), []
    for where, one, (out, *given) in found:
        if (turns := times[where]) is None or turns > 1:  # A branch has less than one.
            given = [min(out, size) for size in given]  # A loop may take a slice.
        if turns != 0:
            ran.append(one._replace(times=turns, bytes=out + sum(given)))
    return ran


def _product(line: str, made: re.Match, factors: list) -> Product:
    """Return the product that a line computes; none where its shapes are not known.

    factors: shapes and bytes of what each of the two operands has.
    """
    if len(factors) < 2 or not all(factors):
        return NO_PRODUCT
    (left, left_bytes), (right, _) = factors[0][0], factors[1][0]
    out, _ = next(arrays(made["out"]))
    width = left_bytes // max(1, math.prod(left))
    if labels := _LABELS.search(line):
        images, kernel = out, right  # Forwards: of the output, and the weights.
        if "convBackwardFilter" in line:
            images, kernel = right, out
        elif "convBackwardInput" in line:
            images, kernel = left, right
        count = math.prod(kernel) // max(1, kernel[labels[1].index("o")])
        return Product(2 * math.prod(images) * count, width)
    if (summed := _SUMMED.search(line)) is None:
        return NO_PRODUCT
    sides = [left[int(axis)] for axis in re.findall(r"\d+", summed[0])]
    return Product(2 * math.prod(out) * math.prod(sides), width)


def loop_turns(text: str) -> list[float]:
    """Return the turns of each loop that a program runs, an outer one before its inner.

    A loop whose length depends on the data has one turn.
    """
    called, where, entry = collections.defaultdict(list), "", ""
    for line in text.splitlines():
        if head := _HEAD.match(line):
            where = head["name"]
            entry = where if head[1] else entry
        elif (made := _LINE.match(line)) and made["code"] in _RUNNING:
            names = [name for _, name in _CALLED.findall(line)]
            if branches := _BRANCHES.search(line):
                names += _NAME.findall(branches[1])
            turns = (
                float(_first(_TRIPS, line) or 1) if made["code"] == "while" else None
            )
            called[where].append((turns, names))

    def walk(name: str) -> Iterator[float]:
        for turns, names in called[name]:
            if turns is not None:
                yield turns
            for inner in names:
                yield from walk(inner)

    return [*walk(entry)]


def _first(pattern: re.Pattern, line: str) -> str:
    found = pattern.search(line)
    return found[1] if found else ""


def _called(line: str, code: str, taken: float | None, told: Mapping) -> Iterator:
    """Computations that a line runs, and how often; None where it does not say."""
    named = dict(_CALLED.findall(line))
    if code == "conditional":
        if several := _BRANCHES.search(line):
            names = [name.strip().lstrip("%") for name in several[1].split(",")]
        else:
            names = [named["false_computation"], named["true_computation"]]
        if not (inside := _CHANCE.search(line)):
            taken = told.get(names[-1], taken)
        elif taken:  # One of the gates of which some are open.
            taken /= max(taken, float(inside[1]))
        chances = [1.0 if taken is None else 1 / len(names)] * len(names)
        if taken is not None and len(names) == 2:
            chances = [1 - taken, taken]
        yield from zip(names, chances, strict=True)
    elif code == "while":
        turns = _TRIPS.search(line)
        yield named["body"], float(turns[1]) if turns else None
        yield named["condition"], float(turns[1]) + 1 if turns else None
    elif code in ("call", "async-start"):
        yield from ((name, 1.0) for name in named.values())


def _times(calls: Mapping, entry: str | None) -> dict[str, float | None]:
    """How often each computation runs; callers stand after what they call."""
    times = collections.defaultdict(float, {entry: 1.0})
    for caller in reversed([*calls]):
        for name, turns in calls[caller]:
            if times[caller] is None or turns is None:
                times[name] = None
            elif times[name] is not None:
                times[name] += times[caller] * turns
    return times


def part(scope: str) -> str:
    """Which part of a training step a scope is of; its last known word decides."""
    words = re.split(r"[/()]", scope)
    for name in ("data", "inputs", "guard", "optimiser"):
        if name in words:
            return name
    if words[-1] in ("conv_general_dilated", "dot_general"):
        return "convolutions"
    if "tap" in words:
        return "algorithm"
    for word in reversed(words):
        if word.startswith(("bn", "norm")):
            return "normalisation"
    layers = any(word.startswith(("stage", "stem", "fc", "conv")) for word in words)
    return "activations" if layers or ".features" in scope else "algorithm"


def is_backward(scope: str) -> bool:
    """Whether it is of a gradient."""
    return "transpose(" in scope


def by_part(
    found: Iterable[Operation],
    spent: Callable[[Operation], float] = lambda one: one.total,
) -> dict[str, float]:
    """What each part spends, estimated cycles; gradients' convolutions are apart."""
    total = dict.fromkeys((*PARTS, "convolutions backwards"), 0.0)
    for one in found:
        back = one.part == "convolutions" and is_backward(one.scope)
        total["convolutions backwards" if back else one.part] += spent(one)
    return total


def unestimated(found: Iterable[Operation]) -> dict[str, float]:
    """How often what does work, and of which no cycles are known, runs."""
    counts = collections.Counter()
    for one in found:
        if not one.cycles and one.code in _UNESTIMATED and one.target not in _FREE:
            counts[one.target or one.code] += one.runs
    return dict(counts)


def arrays(out: str) -> Iterator[tuple[tuple[int, ...], int]]:
    """Shapes and bytes of an instruction's output, an array or a tuple of them."""
    for kind, bits, sides in _ARRAY.findall(out):
        shape = tuple(int(side) for side in sides.split(",") if side)
        width = max(1, int(bits) // 8) if bits else 1  # `pred` has none.
        if kind != "token":
            yield shape, width * math.prod(shape)
