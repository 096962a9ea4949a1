"""Operations, runs, cycles and parts are read from a compiled program's text."""

import pytest

from jbias.training.tuning import hlo

TEXT = """\
HloModule jit_step, is_scheduled=true

%body (p.1: f32[8,4]) -> f32[8,4] {
  %p.1 = f32[8,4]{1,0} parameter(0)
  ROOT %conv.1 = f32[8,4]{1,0} fusion(%p.1, %p.1), kind=kOutput, metadata={op_name="jit(step)/transpose(jvp(stage1))/conv1/conv_general_dilated"}, backend_config={"estimated_cycles":"100"}
}

%turn (p.2: f32[8,4]) -> pred[] {
  %p.2 = f32[8,4]{1,0} parameter(0)
  ROOT %less.1 = pred[] fusion(%p.2), kind=kLoop, backend_config={"estimated_cycles":"1"}
}

%off (p.3: f32[8,4]) -> f32[8,4] {
  ROOT %p.3 = f32[8,4]{1,0} parameter(0)
}

%on (p.4: f32[8,4]) -> f32[8,4] {
  %p.4 = f32[8,4]{1,0} parameter(0)
  ROOT %swap.1 = f32[8,4]{1,0} fusion(%p.4), kind=kLoop, metadata={op_name="jit(step)/stage1/tap/mul"}, backend_config={"estimated_cycles":"40"}
}

ENTRY %main (x.1: f32[8,4], set.1: u8[50000,48]) -> (f32[8,4], f32[4]) {
  %x.1 = f32[8,4]{1,0:T(8,128)} parameter(0)
  %set.1 = u8[50000,48]{1,0:T(8,128)(4,1)} parameter(1)
  %rows.1 = u8[8,48]{1,0} fusion(%set.1), kind=kCustom, metadata={op_name="jit(step)/data/gather"}, backend_config={"estimated_cycles":"7"}
  %loop.1 = f32[8,4]{1,0} while(%x.1), condition=%turn, body=%body, backend_config={"known_trip_count":{"n":"3"}}
  %gate.1 = f32[8,4]{1,0} conditional(%loop.1, %loop.1), branch_computations={%off, %on}
  %order.1 = (f32[8]{0}, s32[8]{0}) sort(%gate.1), dimensions={0}, to_apply=%off
  %own.1 = f32[4]{0} custom-call(%gate.1), custom_call_target="Mine"
  %none.1 = f32[4]{0} custom-call(%own.1), custom_call_target="ConcatBitcast"
  %sum.1 = f32[4]{0} all-reduce(%none.1), replica_groups={{0,1}}, to_apply=%off
  %norm.1 = f32[4]{0} fusion(%sum.1), kind=kLoop, metadata={op_name="jit(step)/stage1/bn1/mul"}, backend_config={"estimated_cycles":"5"}
  %new.1 = f32[4]{0} fusion(%norm.1), kind=kLoop, metadata={op_name="jit(step)/optimiser/add"}, backend_config={"estimated_cycles":"9"}
  ROOT %out.1 = (f32[8,4]{1,0}, f32[4]{0}) tuple(%gate.1, %new.1)
}
"""


def operations_by_name(branch_probability):
    operations = hlo.operations(TEXT, branch_probability=branch_probability)
    return {operation.name: operation for operation in operations}


def test_loops_and_branches_count_as_often_as_they_run():
    by_name = operations_by_name(0.25)
    names = ("conv.1", "less.1", "swap.1")
    assert [by_name[name].times for name in names] == [3, 4, 0.25]
    assert "swap.1" not in operations_by_name(0.0)


def test_parts_add_up_to_all_cycles():
    operations = operations_by_name(0.5).values()
    cycles = hlo.by_part(operations)
    assert cycles["convolutions backwards"] == 300
    assert cycles["algorithm"] == 40 / 2 + 4  # The gate, and operations without scope.
    known = {"data": 7, "normalisation": 5, "optimiser": 9, "convolutions": 0}
    assert {name: cycles[name] for name in known} == known
    assert sum(cycles.values()) == sum(operation.total for operation in operations)


def test_operations_without_an_estimate_are_returned():
    assert hlo.unestimated(operations_by_name(0.5).values()) == {"sort": 1, "Mine": 1}


def test_bytes_are_the_sum_of_operands_and_results():
    by_name = operations_by_name(0.5)
    assert by_name["norm.1"].bytes == 4 * (4 + 4)
    assert by_name["rows.1"].bytes == 2 * 8 * 48  # Only the gathered rows of the set.
    assert not any(by_name[name].bytes for name in ("loop.1", "out.1", "none.1"))


def test_the_runs_in_a_loop_of_unknown_length_are_unknown():
    text = TEXT.replace(', backend_config={"known_trip_count":{"n":"3"}}', "")
    operation = next(x for x in hlo.operations(text) if x.name == "conv.1")
    assert operation.times is None and operation.total == 100


@pytest.mark.parametrize(
    ("out", "wanted"),
    [
        ("bf16[2,3]{1,0:T(8,128)(2,1)}", [((2, 3), 12)]),
        ("(f32[], pred[5]{0}, token[])", [((), 4), ((5,), 5)]),
    ],
)
def test_shapes_and_bytes(out, wanted):
    assert list(hlo.arrays(out)) == wanted


def test_a_named_probability_applies_to_its_conditional():
    """Inner gates keep the default; the compiler drops the name of the conditional."""
    text = """HloModule m

%plain (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %a.1 = f32[8]{0} add(%p, %p), backend_config={"estimated_cycles":"100"}
}

%open (q: f32[8]) -> f32[8] {
  %q = f32[8]{0} parameter(0)
  %s.1 = f32[1]{0} slice(%q), slice={[0:1]}
  ROOT %b.1 = f32[8]{0} add(%q, %q), metadata={op_name="jit(f)/jvp(chance=0.2500)/cond/branch_1_fun/cond/branch_1_fun/add"}, backend_config={"estimated_cycles":"1000"}
}

%shut (r: f32[8]) -> f32[8] {
  ROOT %r = f32[8]{0} parameter(0)
}

%gated (s: f32[8]) -> f32[8] {
  %s = f32[8]{0} parameter(0)
  %i = s32[] constant(0)
  %c.1 = f32[8]{0} conditional(%i, %s, %s), branch_computations={%shut, %open}, metadata={op_name="jit(f)/jvp(chance=0.2500)/cond/branch_1_fun/cond"}
  ROOT %d.1 = f32[8]{0} add(%c.1, %s), metadata={op_name="jit(f)/jvp(chance=0.2500)/cond/branch_1_fun/add"}, backend_config={"estimated_cycles":"10"}
}

ENTRY %main (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %j = s32[] constant(0)
  ROOT %e.1 = f32[8]{0} conditional(%j, %x, %x), branch_computations={%plain, %gated}
}
"""
    operations = hlo.operations(text, branch_probability=0.1)
    times = {operation.name: operation.times for operation in operations}
    estimated = [operation.name for operation in operations if operation.cycles]
    assert {name: times[name] for name in estimated} == pytest.approx(
        {"a.1": 0.75, "b.1": 0.1, "d.1": 0.25}
    )
    # Outside of a loop, a slice reads its whole operand.
    (slice_operation,) = (x for x in operations if x.name == "s.1")
    assert slice_operation.bytes == 4 + 32
    # Two seeds share the conditional, also if each seed sums micro-batches.
    for scope in ("vmap(jvp(chance=0.2500))", "vmap()/while/body/jvp(chance=0.2500)"):
        shared = text.replace("jvp(chance=0.2500)", scope)
        (plain,) = (x for x in hlo.operations(shared, 0.1, 2) if x.name == "a.1")
        assert plain.times == 0.75**2


def test_iterations_of_loops_are_in_the_order_of_running():
    assert hlo.loop_turns(TEXT) == [3]
    inner = "  %inner.1 = f32[8,4]{1,0} while(%p.1), condition=%turn, body=%off"
    other = "  %last.1 = f32[8,4]{1,0} while(%x.1), condition=%turn, body=%on"
    text = TEXT.replace("  ROOT %conv.1", f"{inner}\n  ROOT %conv.1")
    text = text.replace("  ROOT %out.1", f"{other}\n  ROOT %out.1")
    assert hlo.loop_turns(text) == [3, 1, 1]
