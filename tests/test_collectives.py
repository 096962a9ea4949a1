"""Collectives: a step moves its gradients between devices and little else."""

import functools

import pytest

from benchmarks import collectives
from jbias import algos
from jbias.runtime import mesh, xla
from tests import cases, programs, smoke_runs
from tests.methods import METHODS

TEXT = """\
HloModule jit_one, is_scheduled=true

%turn (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %sum.1 = f32[8]{0} all-reduce(%x), to_apply=%add, metadata={op_name="jit(one)/bn1/sum"}
}

%guess (p: (s32[], pred[])) -> (s32[], pred[]) {
  %any.1 = pred[] all-reduce(%p), to_apply=%or, metadata={op_name="jit(one)/beta"}
}

%taken (p: f32[4]) -> f32[4] {
  ROOT %gather.1 = bf16[16,4]{1,0} all-gather(%p), dimensions={0}
}

ENTRY %main.7 (a: f32[8]) -> f32[8] {
  %both = (f32[3,3,8]{2,1,0}, /*index=1*/f32[]) all-reduce(%a, %b), to_apply=%add, \
metadata={op_name="jit(one)/conv1/dot"}
  %start = (f32[2]{0}, f32[16]{0}) all-gather-start(%a), dimensions={0}
  %done = f32[16]{0:T(8,128)} all-gather-done(%start)
  %loop.1 = (s32[], f32[8]) while(%t), condition=%c, body=%turn, \
backend_config={"known_trip_count":{"n":"10"}}
  %loop.2 = (s32[], pred[]) while(%t), condition=%c, body=%guess
  %cond = f32[4] conditional(%i, %a, %b), branch_computations={%taken, %other}
  ROOT %add = f32[8]{0} add(%all-reduce.1, %all-reduce.2)
}
"""


def test_every_collective_counts_as_often_as_it_runs():
    outputs = [
        (output.kind, output.shape, output.bytes, output.times, output.role)
        for output in collectives.collective_outputs(TEXT)
    ]
    assert outputs == [
        ("all-reduce", (8,), 320, 10, "norm"),
        ("all-reduce", (), 1, None, "scalars"),
        ("all-gather", (16, 4), 128, 1, "other"),
        ("all-reduce", (3, 3, 8), 288, 1, "other"),
        ("all-reduce", (), 4, 1, "scalars"),
        ("all-gather", (16,), 64, 1, "other"),
    ]


QUICK = ("erm", "padain", "sagnet")
GROUPED = ("erm,norm_group=8", "erm,norm_group=16", "erm,accumulate=2,norm_group=4")


@functools.cache
def compile_programs(*names: str) -> dict:
    """Return the collectives of the algorithms' steps on eight devices, by name."""
    return smoke_runs.on_eight("tests.programs", *names)


def check_budget(program: dict, budget: float, passes: float = 1) -> None:
    """Assert that a step moves at most `budget` times the bytes of its gradients.

    passes: number of passes through the same batch norms, each of which moves its moments.
    """
    outputs = [collectives.CollectiveOutput(*row) for row in program["moved"]]
    by_role = collectives.by_role(outputs)
    largest = sorted(outputs, key=lambda output: -output.bytes)[:5]
    assert by_role["other"] <= budget * program["gradients"], largest
    # All gradients are moved.
    assert by_role["other"] + by_role["norm"] >= program["gradients"]
    # Two floats per channel forwards, and two backwards for each loss.
    most = passes * (1 + program["losses"]) * program["statistics"]
    assert by_role["norm"] <= most, by_role
    assert by_role["scalars"] <= 100, by_role
    is_counted = [output.times or output.role == "scalars" for output in outputs]
    assert all(is_counted), largest


@pytest.mark.slow
@cases.each(
    "name",
    QUICK,
    quick=(
        "sagnet",
        "padain",
    ),
)
def test_a_step_moves_only_its_gradients(name):
    check_budget(compile_programs(*QUICK)[name], METHODS[name].communicated)


@cases.each(("name", "num_sums"), [*zip(GROUPED, (1, 1, 2))], quick=GROUPED[1:2])
def test_groups_and_micro_batches_move_no_activation(name, num_sums):
    """Cases: norm groups within a device, over two devices, and with micro-batches."""
    program = compile_programs(name)[name]
    outputs = [collectives.CollectiveOutput(*output) for output in program["moved"]]
    assert {output.kind for output in outputs} == {"all-reduce"}
    by_role = collectives.by_role(outputs)
    budget = num_sums * (program["gradients"] + program["statistics"])
    assert program["gradients"] < by_role["other"] + by_role["norm"] <= 1.02 * budget
    forwards = [
        output.name
        for output in outputs
        if output.shape
        and "/jvp(" in output.name
        and "_update_average/" not in output.name
    ]
    # With groups inside a device no layer waits for another device.
    assert bool(forwards) == (name == "erm,norm_group=16"), forwards[:3]


@pytest.mark.slow
def test_on_tpus_micro_batches_sum_their_gradients_once():
    """Only sums of batch norms are communicated in the loop; XLA for GPUs has the same pass."""
    pytest.importorskip("libtpu")
    program = compile_programs("tpu", "sagnet,accumulate=2")["sagnet,accumulate=2"]
    outputs = [collectives.CollectiveOutput(*output) for output in program["moved"]]
    after_loop, in_loop = (
        [output for output in outputs if output.times == n] for n in (1, None)
    )
    assert collectives.by_role(in_loop)["other"] == 0
    assert collectives.by_role(after_loop)["other"] <= 1.05 * program["gradients"]
    assert len(after_loop) + len(in_loop) == len(outputs)


OTHER_ALGORITHMS = sorted(set(algos.ALGOS) - set(QUICK))
SHARP = ("erm,radius=0.05", "sagnet,radius=0.05", "fishr,radius=0.05")
AVERAGED = ("erm,average=uniform", "erm,average=swad")


@functools.cache
def compile_other_programs() -> dict:
    """Return the collectives of all programs that are not quick, by name and step."""
    names = ["erm", *SHARP, *AVERAGED]
    for name in OTHER_ALGORITHMS:
        names += [f"{name},step={step}" for step in programs.first_steps(name)]
    return compile_programs(*names)


@pytest.mark.slow
@cases.each("name", OTHER_ALGORITHMS)
def test_steps_of_all_other_algorithms_move_only_their_gradients(name):
    method, steps = METHODS[name], programs.first_steps(name)
    budgets = method.communicated
    if not isinstance(budgets, tuple):
        budgets = (budgets,) * len(steps)
    for step, budget in zip(steps, budgets, strict=True):
        program = compile_other_programs()[f"{name},step={step}"]
        check_budget(program, budget, method.passes)


@pytest.mark.slow
@cases.each("name", SHARP)
def test_a_second_pass_moves_gradients_twice(name):
    """The direction of SAM's perturbation is the gradient of the whole batch.

    Of several updates, each has a pass of its own through the batch norms, for one loss: two
    floats per channel forwards, and two backwards.
    """
    program = compile_other_programs()[name]
    method = METHODS[name.partition(",")[0]]
    passes = 1 + 2 * program["losses"] / (1 + program["losses"])
    check_budget(program, 2 * method.communicated, passes)
    outputs = map(collectives.CollectiveOutput._make, program["moved"])
    by_role = collectives.by_role(outputs)
    assert by_role["other"] + by_role["norm"] >= 2 * program["gradients"]


@pytest.mark.slow
@cases.each("name", AVERAGED)
def test_an_average_of_weights_moves_nothing_more(name):
    compiled_programs = compile_other_programs()
    moved, moved_by_erm = (
        sorted(tuple(output[:4]) for output in compiled_programs[x]["moved"])
        for x in (name, "erm")
    )
    assert moved == moved_by_erm


@pytest.mark.slow
@cases.each(
    "name",
    algos.ALGOS,
    quick=(
        "padain",
        "erm",
    ),
)
def test_a_step_lowers_for_tpus(name):
    with xla.compiling_for("tpu"):
        traced = programs.traced(name, mesh.make(1))
        lowered = traced.lower(lowering_platforms=("tpu",))
    assert "func.func public @main" in lowered.as_text()
