"""Read the operations of a compiled program from its HLO text: runs, cycles, bytes, FLOPs.

Cycles are estimates of the compiler for TPUs; other compilers give no estimates. An operation
in a loop runs once per iteration; an operation in a branch is weighted by the probability of
the branch.
"""

import collections
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

PARTS = (
    "data",
    "inputs",
    "convolutions",
    "normalisation",
    "activations",
    "algorithm",
    "optimiser",
    "guard",
    "collectives",
)
COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "all-to-all",
    "collective-permute",
    "reduce-scatter",
    "collective-broadcast",
)
# Operations that do work, but for which the compiler for TPUs estimates no cycles.
_UNESTIMATED = {"sort", "select-and-scatter", "scatter", "gather", "custom-call", "fft"}
# Custom calls that do no work.
_FREE = {"ConcatBitcast", "AssumeGatherIndicesInBound", "AllocateBuffer", "Sharding"}

_COMPUTATION = re.compile(r"^(ENTRY )?%?(?P<name>[\w.-]+) \(.*\{$")
_INSTRUCTION = re.compile(
    r"^\s+(?:ROOT )?%?(?P<name>[\w.-]+) = (?P<out>\(.*?\)|\S+) (?P<code>[\w-]+)"
    r"\((?P<operands>[^)]*)"
)
_NAME = re.compile(r"%([\w.-]+)")
# Instructions that touch no memory: they name values or run other computations.
_NO_MEMORY = {
    "parameter",
    "constant",
    "tuple",
    "get-tuple-element",
    "bitcast",
    "after-all",
    "while",
    "conditional",
    "call",
    "optimization-barrier",
    "partition-id",
}
_CALLERS = ("while", "conditional", "call")
_PRODUCTS = ("convolution", "dot")
_GPU_PRODUCTS = {
    "__cudnn$convForward",
    "__cudnn$convBackwardInput",
    "__cudnn$convBackwardFilter",
    "__cudnn$convBiasActivationForward",
    "__cublas$gemm",
    "__cublas$lt$matmul",
}
# The layout of a convolution's kernel, with "o" at the axis of the output channels.
_KERNEL_LAYOUT = re.compile(r"dim_labels=\w+_(\w+)->\w+")
# The axes over which a matrix product sums.
_CONTRACTED_AXES = re.compile(
    r'(?:lhs_contracting_dims=\{([\d,]*)\}|"lhs_contracting_dimensions":\[([\d,"]*)\])'
)
_ARRAY = re.compile(r"\b([a-z]+)(\d*)(?:e\d\w*)?\[([\d,]*)\]")
_SCOPE = re.compile(r'op_name="([^"]*)"')
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_CALLED = re.compile(
    r"(body|condition|calls|to_apply|true_computation|false_computation)=%?([\w.-]+)"
)
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
# The probability in the name of a gate's scope, see algos/padain.py.
_GATE_PROBABILITY = re.compile(r"chance=([\d.e+-]+)\)*/cond/branch_1")
_NUM_ITERATIONS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_TARGET = re.compile(r'custom_call_target="([^"]*)"')
_FUSED = re.compile(r" fusion\(.*calls=%?([\w.-]+)")


class Operation(NamedTuple):
    """An instruction that a program runs; a fusion is a single operation."""

    name: str
    code: str  # Such as fusion, copy or all-reduce.
    scope: str  # JAX's op_name: the path of the Python functions and named scopes.
    out: str  # Types and shapes of the output.
    cycles: int  # Estimated cycles of one run; 0 if the compiler gives no estimate.
    times: float | None  # Runs; None: in a loop whose length depends on the data.
    target: str = ""  # Target of a custom call, else "".
    bytes: int = 0  # Bytes read and written by one run.
    flops: int = 0  # FLOPs of convolutions and matrix products, in one run.
    factor_bytes: int = 0  # Bytes per element of the operands of these products.

    @property
    def part(self) -> str:
        """The part of the training step, one of PARTS."""
        if self.code.removesuffix("-start") in COLLECTIVES:
            return "collectives"
        return part(self.scope)

    @property
    def total(self) -> float:
        """Estimated cycles of all runs."""
        return self.cycles * self.runs

    @property
    def runs(self) -> float:
        """The number of runs; 1 if the number depends on the data."""
        return 1 if self.times is None else self.times


class Product(NamedTuple):
    """The FLOPs of all convolutions and matrix products in an instruction or a computation."""

    flops: int
    factor_bytes: int  # Bytes per element of the operands.

    def plus(self, other: "Product") -> "Product":
        """Return a Product with the sum of the FLOPs and the larger `factor_bytes`."""
        widest = max(self.factor_bytes, other.factor_bytes)
        return Product(self.flops + other.flops, widest)


NO_PRODUCT = Product(0, 0)


def operations(
    text: str, branch_probability: float | None = 0.5, seeds: int = 1
) -> list[Operation]:
    """Return the operations that a program runs, in the order of its HLO text.

    A fusion is one operation; the instructions in it are left out. Instructions that touch
    no memory, such as parameters, are included with 0 bytes.

    text: HLO text of a compiled program.
    branch_probability: probability that the condition of a conditional is True, so that the
      second branch runs. A probability in the scope's name (algos/padain.py) takes precedence,
      also over None. If a conditional has more than two branches, all are equally likely. None:
      each branch of a conditional without a named probability counts as one run.
    seeds: number of seeds that jax.vmap runs in one program. It applies to conditionals under
      vmap whose scope names a probability p: the second branch runs with 1 - (1 - p)^seeds.
    """
    computation, entry = None, None
    # (computation, operation, bytes written, bytes read per operand) of each instruction.
    instructions: list[tuple[str, Operation, int, list[int]]] = []
    calls = collections.defaultdict(list)
    out_bytes: dict[str, int] = {}  # By instruction.
    out_arrays: dict[str, list] = {}  # By instruction.
    products: dict[str, Product] = {}  # By computation.
    optimiser_scopes: dict[str, str] = {}  # By computation.
    gate_probabilities: dict[str, float] = {}  # By computation, if its gate is named.
    for line in text.splitlines():
        head = _COMPUTATION.match(line)
        if head:
            computation = head["name"]
            entry = computation if head[1] else entry
            continue
        match = _INSTRUCTION.match(line)
        if not match or not computation:
            continue
        name, code = match["name"], match["code"]
        scope, fused = _first_group(_SCOPE, line), _FUSED.search(line)
        calls[computation] += _called(
            line,
            code,
            branch_probability=branch_probability,
            gate_probabilities=gate_probabilities,
        )
        gate = _GATE_PROBABILITY.search(line)
        if gate:
            is_shared = "vmap(" in line[: gate.start()]
            any_open = 1 - (1 - float(gate[1])) ** (seeds if is_shared else 1)
            gate_probabilities.setdefault(computation, any_open)
        if part(scope) == "optimiser":
            optimiser_scopes[computation] = scope
        elif fused and part(scope) == "guard":
            # A fusion has the name of its last operation. The guard's select adds no reads
            # to an optimiser's update, so the fusion counts as the optimiser's.
            scope = optimiser_scopes.get(fused[1], scope)
        target = _first_group(_TARGET, line)
        out_arrays[name] = [*arrays(match["out"])]
        written = out_bytes[name] = sum(size for _, size in out_arrays[name])
        operands = _NAME.findall(match["operands"])
        read = [out_bytes.get(operand, 0) for operand in operands]
        product = products.get(fused[1], NO_PRODUCT) if fused else NO_PRODUCT
        if code in _PRODUCTS or target in _GPU_PRODUCTS:
            operand_arrays = [out_arrays.get(operand) for operand in operands[:2]]
            product = _product(line, match["out"], operand_arrays)
        products[computation] = products.get(computation, NO_PRODUCT).plus(product)
        if part(scope) == "data":
            # A batch gathers some rows of a large set.
            read = [min(size, written) for size in read]
        is_asynchronous = code.endswith(("-start", "-done"))
        if code in _NO_MEMORY or target in _FREE or is_asynchronous:
            written, read = 0, []
        operation = Operation(
            name=name,
            code=code,
            scope=scope,
            out=match["out"],
            cycles=int(_first_group(_CYCLES, line) or 0),
            times=1.0,
            target=target,
            flops=product.flops,
            factor_bytes=product.factor_bytes,
        )
        instructions.append((computation, operation, written, read))
    runs_of, result = _num_runs(calls, entry), []
    for computation, operation, written, read in instructions:
        runs = runs_of[computation]
        if runs is None or runs > 1:  # In a loop: a branch runs less than once.
            # An iteration may read a slice of a large operand.
            read = [min(written, size) for size in read]
        if runs != 0:
            total_bytes = written + sum(read)
            result.append(operation._replace(times=runs, bytes=total_bytes))
    return result


def _product(
    line: str, out: str, operands: list[list[tuple[tuple[int, ...], int]] | None]
) -> Product:
    """Return the `Product` of the convolution or matrix product in a line of HLO text.

    out: type and shape of the output. operands: for each operand, the (shape, bytes) of its
      arrays; None if they are not known. Return NO_PRODUCT if a shape is not known.
    """
    if len(operands) < 2 or not all(operands):
        return NO_PRODUCT
    (left, left_bytes), (right, _) = operands[0][0], operands[1][0]
    out_shape, _ = next(arrays(out))
    factor_bytes = left_bytes // max(1, math.prod(left))
    layout = _KERNEL_LAYOUT.search(line)
    if layout:
        images, kernel = out_shape, right
        if "convBackwardFilter" in line:
            images, kernel = right, out_shape
        elif "convBackwardInput" in line:
            images, kernel = left, right
        num_outputs = max(1, kernel[layout[1].index("o")])
        per_output = math.prod(kernel) // num_outputs
        return Product(2 * math.prod(images) * per_output, factor_bytes)
    axes = _CONTRACTED_AXES.search(line)
    if axes is None:
        return NO_PRODUCT
    lengths = [left[int(axis)] for axis in re.findall(r"\d+", axes[0])]
    return Product(2 * math.prod(out_shape) * math.prod(lengths), factor_bytes)


def loop_turns(text: str) -> list[float]:
    """Return the number of iterations of each loop in a program, outer loops before inner.

    text: HLO text. A loop whose length depends on the data counts as one iteration.
    """
    calls, computation, entry = collections.defaultdict(list), "", ""
    for line in text.splitlines():
        head = _COMPUTATION.match(line)
        if head:
            computation = head["name"]
            entry = computation if head[1] else entry
            continue
        match = _INSTRUCTION.match(line)
        if not match or match["code"] not in _CALLERS:
            continue
        names = [name for _, name in _CALLED.findall(line)]
        branches = _BRANCHES.search(line)
        if branches:
            names += _NAME.findall(branches[1])
        iterations = None
        if match["code"] == "while":
            iterations = float(_first_group(_NUM_ITERATIONS, line) or 1)
        calls[computation].append((iterations, names))

    def walk(name: str) -> Iterator[float]:
        """Yield the iterations of the loops in a computation and in all computations it calls."""
        for iterations, names in calls[name]:
            if iterations is not None:
                yield iterations
            for called in names:
                yield from walk(called)

    return [*walk(entry)]


def _first_group(pattern: re.Pattern, line: str) -> str:
    """Return the first group of the first match in a line; "" without a match."""
    match = pattern.search(line)
    return match[1] if match else ""


def _called(
    line: str,
    code: str,
    *,
    branch_probability: float | None,
    gate_probabilities: Mapping[str, float],
) -> Iterator[tuple[str, float | None]]:
    """Yield (name of a computation, its runs) for each computation that a line calls.

    line: an instruction in HLO text. code: its opcode, such as "while"; opcodes other than
    conditional, while, call and async-start yield nothing. branch_probability: see
    `operations`. gate_probabilities: probability of a branch by the name of its computation,
    for conditionals whose scope gives the probability. Runs are counted per run of the line;
    None for a loop whose number of iterations is unknown.
    """
    called = dict(_CALLED.findall(line))
    if code == "conditional":
        branches = _BRANCHES.search(line)
        if branches:
            names = [name.strip().lstrip("%") for name in branches[1].split(",")]
        else:
            names = [called["false_computation"], called["true_computation"]]
        gate = _GATE_PROBABILITY.search(line)
        if not gate:
            branch_probability = gate_probabilities.get(names[-1], branch_probability)
        elif branch_probability:
            # This gate is inside a conditional that runs if any of several gates is open.
            branch_probability /= max(branch_probability, float(gate[1]))
        if branch_probability is None:
            runs = [1.0] * len(names)
        elif len(names) == 2:
            runs = [1 - branch_probability, branch_probability]
        else:
            runs = [1 / len(names)] * len(names)
        yield from zip(names, runs, strict=True)
    elif code == "while":
        iterations = _NUM_ITERATIONS.search(line)
        yield called["body"], float(iterations[1]) if iterations else None
        yield called["condition"], float(iterations[1]) + 1 if iterations else None
    elif code in ("call", "async-start"):
        yield from ((name, 1.0) for name in called.values())


def _num_runs(
    calls: Mapping[str, Iterable[tuple[str, float | None]]], entry: str | None
) -> dict[str, float | None]:
    """Return the number of runs of each computation by name, in one run of the program.

    None for a number that depends on the data; 0 for a computation that is never called.

    calls: the results of `_called`, by name of the caller, in the order of the text, in which a
    computation precedes its callers. entry: name of the program's main computation.
    """
    runs_of = collections.defaultdict(float, {entry: 1.0})
    for caller in reversed([*calls]):
        for name, runs in calls[caller]:
            if runs_of[caller] is None or runs is None:
                runs_of[name] = None
            elif runs_of[name] is not None:
                runs_of[name] += runs_of[caller] * runs
    return runs_of


def part(scope: str) -> str:
    """Return the part of the training step that a scope belongs to, one of PARTS.

    scope: JAX's op_name, such as "jit(step)/net/conv1". The first rule that applies is used:
    the scope has the word "data", "inputs", "guard" or "optimiser", in this order; its
    operation is a convolution or a matrix product ("convolutions"); it has the word "tap", a
    change of features by an algorithm ("algorithm"); it has the name of a layer
    ("normalisation" or "activations"); other scopes belong to "algorithm". "collectives" is
    never returned.
    """
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
    is_layer = any(word.startswith(("stage", "stem", "fc", "conv")) for word in words)
    return "activations" if is_layer or ".features" in scope else "algorithm"


def is_backward(scope: str) -> bool:
    """Return True if a scope (JAX's op_name) is in the computation of a gradient."""
    return "transpose(" in scope


def by_part(
    operations: Iterable[Operation],
    cost: Callable[[Operation], float] = lambda operation: operation.total,
) -> dict[str, float]:
    """Return the total cost of each part in PARTS, and of "convolutions backwards".

    cost: returns the cost of all runs of an operation; default: estimated cycles.
    Convolutions of gradients count as "convolutions backwards" only.
    """
    costs = dict.fromkeys((*PARTS, "convolutions backwards"), 0.0)
    for operation in operations:
        name = operation.part
        if name == "convolutions" and is_backward(operation.scope):
            name = "convolutions backwards"
        costs[name] += cost(operation)
    return costs


def unestimated(operations: Iterable[Operation]) -> dict[str, float]:
    """Return the number of runs, by kind, of operations without an estimate of cycles.

    The keys are opcodes, or the targets of custom calls. Only opcodes that do work, such as
    "sort" and "gather", are counted.
    """
    counts = collections.Counter()
    for operation in operations:
        does_work = operation.code in _UNESTIMATED and operation.target not in _FREE
        if not operation.cycles and does_work:
            counts[operation.target or operation.code] += operation.runs
    return dict(counts)


def arrays(out: str) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield (shape, bytes) of each array in an output's type, such as "f32[8,3]{1,0}".

    Tokens are left out.
    """
    for kind, bits, sides in _ARRAY.findall(out):
        shape = tuple(int(side) for side in sides.split(",") if side)
        itemsize = max(1, int(bits) // 8) if bits else 1  # `pred` has no bits.
        if kind != "token":
            yield shape, itemsize * math.prod(shape)
