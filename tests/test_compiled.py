"""Programs that the TPU compiler makes of a training step, without a TPU."""

import functools
import importlib.util
import math
import re
import subprocess
import sys

import jax
import pytest

from benchmarks import (
    collectives,
    compiled_goals,
    compiled_peers,
    compiled_read,
    compiled_rows,
    compiled_step,
    roofline,
)
from jbias import algos, models
from jbias.runtime import mesh, xla
from jbias.training.tuning import hlo, memory_estimate
from tests import cases, programs, smoke_runs

NAMES = ("erm", "padain", "infodrop")
needs_libtpu = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None,
    reason="needs the compiler for TPUs: pip install libtpu",
)


@pytest.mark.skipif(
    importlib.util.find_spec("jax_cuda13_plugin") is None,
    reason="needs the compiler for GPUs: pip install 'jbias[plan]'",
)
@cases.each(
    "row",
    [
        "cifar16/erm",
        pytest.param("cifar16/erm*10:unrolled_convolutions", marks=pytest.mark.slow),
    ],
)
def test_a_step_of_a_small_network_is_one_graph(row, tmp_path):
    """A step is one CUDA graph, for one seed and for ten seeds in one program."""
    subprocess.run(
        [sys.executable, "-m", "benchmarks.compiled_step", row, "h100", tmp_path],
        cwd=smoke_runs.ROOT,
        check=True,
    )
    program = compiled_read.read_program(row, "h100", tmp_path)
    assert program["launches"] == {"kCommandBuffer": 1} and program["times"] == 1


# Compiling for TPUs takes minutes.
ONE_QUICK = ("erm", *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES[1:]))


@functools.cache
def compiled(name: str) -> dict:
    """Return the program of a step on one v5e device that stores 300 MB of images."""
    return smoke_runs.on_eight("tests.programs", "v5e", name)[name]


def operations(name: str) -> list[hlo.Operation]:
    return [hlo.Operation(*fields) for fields in compiled(name)["operations"]]


def summaries(operations: list[hlo.Operation]) -> list[tuple]:
    return [(x.name, x.code, x.scope, x.out) for x in operations]


@pytest.mark.slow
@needs_libtpu
@cases.each("name", ONE_QUICK)
def test_no_step_copies_the_stored_set_to_another_layout(name):
    large = programs.NUM_IMAGES_OF_LARGE_SET * 3 * programs.SIZE**2 // 2
    naming = {"parameter", "bitcast", "tuple", "get-tuple-element"}
    large_outputs = [
        operation
        for operation in operations(name)
        if operation.code not in naming
        and max((size for _, size in hlo.arrays(operation.out)), default=0) > large
    ]
    assert not summaries(large_outputs)


@pytest.mark.slow
@needs_libtpu
@cases.each("name", ONE_QUICK)
def test_data_are_next_to_nothing(name):
    """Reading data takes less than 2 % of the cycles, even with a small network."""
    step = operations(name)
    cycles = hlo.by_part(step)
    data = [operation for operation in step if operation.part == "data"]
    data = [operation for operation in data if operation.cycles]
    assert cycles["data"] < 0.02 * sum(cycles.values()), summaries(data)


@needs_libtpu
@cases.each("name", ONE_QUICK)
def test_the_guard_reads_no_kernel_and_no_map(name):
    """The guard reads only sums and statistics of channels."""
    widest = 4 * 64  # Bytes of the most channels.
    guard = [operation for operation in operations(name) if operation.part == "guard"]
    assert guard
    large = [operation for operation in guard if operation.bytes > 16 * widest]
    assert not summaries(large)


@needs_libtpu
def test_a_seed_needs_little_more_memory_than_its_maps():
    """Memory is at most three times the convolutions' outputs in float32.

    The three are the outputs, the normalised outputs and the gradients.
    """
    net = programs.network()
    _, outputs, _ = roofline.forward(net, programs.SIZE)
    assert compiled("erm")["temporary"] <= 3 * 4 * outputs * programs.BATCH


@needs_libtpu
@pytest.mark.slow
@pytest.mark.xfail(strict=True, reason="what passes a condition lies in main memory")
def test_permuted_adain_keeps_little_more_than_erm():
    assert compiled("padain")["temporary"] <= 1.15 * compiled("erm")["temporary"]


@needs_libtpu
@pytest.mark.slow
@cases.each("name", ["erm", "padain", "sagnet"])
def test_devices_send_each_other_gradients(name):
    program = shared()[name]
    moved = [collectives.CollectiveOutput(*fields) for fields in program["moved"]]
    by_role = collectives.by_role(moved)
    largest = sorted(moved, key=lambda output: -output.bytes)[:5]
    assert by_role["other"] <= 1.05 * program["gradients"], largest
    assert by_role["other"] + by_role["norm"] >= program["gradients"], largest


@functools.cache
def shared() -> dict:
    """Return what steps move between eight v5e devices, by algorithm."""
    return smoke_runs.on_eight("tests.programs", "tpu", "erm", "padain", "sagnet")


_GATHER = re.compile(
    r'"stablehlo\.(?:dynamic_)?gather".*slice_sizes = array<i64: ([\d, ]+)>.*'
    r"-> tensor<([\dx]+)x\w+>"
)


def _slices(line: str) -> int:
    sizes, out = _GATHER.search(line).groups()
    size = math.prod(map(int, sizes.split(",")))
    return math.prod(map(int, out.split("x"))) // size


@pytest.mark.slow
@cases.each(
    "name",
    algos.ALGOS,
    quick=(
        "sagnet",
        "erm",
    ),
)
def test_nothing_gathers_pixel_by_pixel(name):
    """A TPU takes rows of a batch quickly, and single numbers one after the other."""
    with xla.compiling_for("tpu"):
        traced = programs.traced(name, mesh.make(1))
        text = traced.lower(lowering_platforms=("tpu",)).as_text()
    channels = 64 * programs.BATCH  # As many as there are numbers of channels.
    gathers = [line for line in text.splitlines() if _GATHER.search(line)]
    assert gathers
    slow = [line.strip() for line in gathers if _slices(line) > channels]
    assert not slow


def test_rows_describe_the_compiled_programs():
    row = compiled_rows.parse("cifar16/padain,p=0.5+flip+mixup*10:vmapped")
    assert (row.algo, row.options, row.branch_chance) == ("padain", {"p": 0.5}, 0.5)
    assert [entry["name"] for entry in row.inputs] == ["flip", "mixup"]
    assert (row.seeds, row.strategy, row.evaluates) == (10, "vmapped", False)
    assert compiled_rows.parse("imagenet/padain").branch_chance == 0.01
    network = compiled_rows.parse("cifar16/dann,step=4")
    assert (network.step, network.options) == (4, {})
    assert compiled_rows.parse("cifar16/dann").step == 5
    exact, folded = map(
        compiled_rows.parse, ("tiny/erm/evaluate", "tiny/erm/evaluate/folded")
    )
    assert (exact.evaluates, exact.folds) == (True, False)
    assert (folded.evaluates, folded.folds) == (True, True)
    for wrong in (
        "cifar16",
        "cifar17/erm",
        "cifar16/ermm",
        "cifar16/erm+mixdown",
        "cifar16/erm/folded",
    ):
        with pytest.raises(ValueError, match="row: "):
            compiled_rows.parse(wrong)


def test_a_step_counts_the_gradients_of_the_weights_that_it_trains(monkeypatch):
    """A step of DANN trains the network or the discriminator, which has three layers."""
    monkeypatch.setattr(memory_estimate, "lower_step", lambda *args: None)
    erm, network, discriminator = (
        compiled_step.lower_training(compiled_rows.parse(name), mesh.make(1))
        for name in ("tiny/erm", "tiny/dann,step=4", "tiny/dann,step=5")
    )
    assert network.gradient_bytes == erm.gradient_bytes
    features, width, groups = 32, 256, compiled_step.GROUPS
    sizes = (features + 1) * width, (width + 1) * width, (width + 1) * groups
    assert discriminator.gradient_bytes == 4 * sum(sizes)


def test_every_algorithm_and_input_has_a_row():
    rows = [compiled_rows.parse(name) for name in compiled_rows.ROWS]
    assert {row.algo for row in rows} >= {*algos.ALGOS, *compiled_rows.PEERS}
    names = {transform["name"] for row in rows for transform in row.inputs}
    assert names == set(compiled_rows.augment.AUGMENTS)
    assert len({row.name for row in rows}) == len(rows)


def test_goals_compare_available_programs():
    def row(cycles, **cycles_by_part):
        return {"cycles": cycles, "parts": {"data": 0, "guard": 0, **cycles_by_part}}

    programs = {"imagenet/erm": row(90.0, guard=0.9), "imagenet/flax": row(100.0)}
    comparison = compiled_goals.compare(programs)
    assert comparison["ERM, of Flax's example"]["now"] == 0.9
    assert comparison["ERM, of Flax's example"]["reached"]
    assert not comparison["guard, of a step (ResNet-50)"]["reached"]
    assert "| 1.032 | 0.97 | 0.9 | yes |" in compiled_goals.table(programs, "v5e")


def test_operations_of_a_program_are_counted():
    program = jax.jit(lambda x: (x @ x).sum()).lower(jax.numpy.ones((8, 8))).compile()
    costs = compiled_read.sum_costs(program.as_text(), 0.5, times=3)
    assert costs["cycles"] == 0  # CPUs have no estimates.
    assert costs["kernels"] >= 3
    assert costs["kernels"] % 3 == costs["collectives"] == 0


@pytest.mark.slow
def test_peers_have_the_parameters_of_our_network():
    ours = compiled_rows.SETTINGS["imagenet"]
    _, _, parameters = roofline.forward(
        models.MODELS["resnet50"](ours.classes), ours.size
    )
    for name, make in compiled_peers.STEPS.items():
        step = make(ours.classes, 2, 32)
        params = step.state.params if name == "flax" else step.state[0]
        assert sum(x.size for x in jax.tree.leaves(params)) == parameters
        with jax.numpy_rank_promotion("allow"):  # Flax promotes, and so others may.
            next_state, metrics = jax.eval_shape(step.step, step.state, step.batch)
        shapes = jax.tree.map(lambda x: (x.shape, x.dtype), (step.state, next_state))
        assert shapes[0] == shapes[1]
        assert metrics["loss"].shape == ()


FUSED = """\
%updated (p.1: f32[8], p.2: pred[]) -> f32[8] {
  %p.1 = f32[8]{0} parameter(0)
  %new.1 = f32[8]{0} add(%p.1, %p.1), metadata={op_name="jit(one)/optimiser/add"}
  ROOT %which.1 = f32[8]{0} select(%p.2, %new.1, %p.1), \
metadata={op_name="jit(one)/guard/select_n"}
}

%chosen (p.3: f32[8], p.4: pred[]) -> f32[8] {
  %p.3 = f32[8]{0} parameter(0)
  ROOT %which.2 = f32[8]{0} select(%p.4, %p.3, %p.3), \
metadata={op_name="jit(one)/guard/select_n"}
}

ENTRY %main (w: f32[8], fine: pred[]) -> (f32[8], f32[8]) {
  %w = f32[8]{0} parameter(0)
  %one.1 = f32[8]{0} fusion(%w, %fine), kind=kLoop, calls=%updated, \
metadata={op_name="jit(one)/guard/select_n"}, backend_config={"estimated_cycles":"5"}
  %two.1 = f32[8]{0} fusion(%w, %fine), kind=kLoop, calls=%chosen, \
metadata={op_name="jit(one)/guard/select_n"}, backend_config={"estimated_cycles":"3"}
  %three.1 = f32[8]{0} copy(%two.1)
}
"""


def test_a_choice_within_an_update_is_the_optimiser_s():
    costs = compiled_read.sum_costs(FUSED, 0.5)
    assert (costs["parts"]["optimiser"], costs["parts"]["guard"]) == (5, 3)
    assert (costs["kernels"], costs["copies"], costs["copied"]) == (3, 1, 32)
