"""The time of a step on a GPU is estimated from its kernels and launches."""

import json
import pathlib
import re

import pytest

from benchmarks import plan_accuracy
from jbias import plan, run_estimates
from jbias.training.tuning import gpu_time, hlo, memory_estimate, targets

SEQUENCE = """\
000: kCustomKernel [source | sink] loop_fusion_1 grid: [1, 1, 1]
001: kCommandBuffer [source | sink]
    002: kCustomKernel [source | sink] loop_fusion_2 grid: [1, 1, 1]
    003: kConditional [source | sink]
      false_branch:
        004: kCopy [source | sink]
005: kConvolution [source | sink] cudnn-conv.1
006: kCustomKernel [source | sink] loop_fusion_3 grid: [1, 1, 1]
007: kWhile [source | sink]
condition:
    008: kCustomKernel [source | sink] loop_compare grid: [1, 1, 1]
  body:
    009: kCommandBuffer [source | sink]
        010: kCustomKernel [source | sink] loop_fusion_4 grid: [1, 1, 1]
    011: kConvolution [source | sink] cudnn-conv.2
012: kConditional [source | sink]
  false_branch:
    013: kCopy [source | sink]
  true_branch:
    014: kConvolution [source | sink] cudnn-conv.3
"""

# A convolution of 8 images of 4x4 pixels, with 3x3 weights from 2 to 6 channels, and both
# gradients; a product of (8, 5) and (5, 7) in float32, and the same inside a fusion.
TEXT = """\
HloModule jit_step, is_scheduled=true

%fused (p.1: f32[8,5], p.2: f32[5,7]) -> f32[8,7] {
  %p.1 = f32[8,5]{1,0} parameter(0)
  %p.2 = f32[5,7]{1,0} parameter(1)
  ROOT %dot.2 = f32[8,7]{1,0} dot(%p.1, %p.2), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

ENTRY %main (x: bf16[8,4,4,2], w: bf16[6,3,3,2], y: bf16[8,4,4,6], a: f32[8,5], b: f32[5,7]) -> f32[8,7] {
  %x = bf16[8,4,4,2]{3,2,1,0} parameter(0)
  %w = bf16[6,3,3,2]{3,2,1,0} parameter(1)
  %y = bf16[8,4,4,6]{3,2,1,0} parameter(2)
  %a = f32[8,5]{1,0} parameter(3)
  %b = f32[5,7]{1,0} parameter(4)
  %conv.1 = (bf16[8,4,4,6]{3,2,1,0}, u8[0]{0}) custom-call(%x, %w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_o01i->b01f, custom_call_target="__cudnn$convForward"
  %conv.2 = (bf16[8,4,4,2]{3,2,1,0}, u8[0]{0}) custom-call(%y, %w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_o01i->b01f, custom_call_target="__cudnn$convBackwardInput"
  %conv.3 = (bf16[6,3,3,2]{3,2,1,0}, u8[0]{0}) custom-call(%x, %y), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_o01i->b01f, custom_call_target="__cudnn$convBackwardFilter"
  %gemm.1 = (f32[8,7]{1,0}, s8[0]{0}) custom-call(%a, %b), custom_call_target="__cublas$gemm", backend_config={"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}
  ROOT %fusion.1 = f32[8,7]{1,0} fusion(%a, %b), kind=kCustom, calls=%fused
}
"""
KIND = targets.KINDS["h100"]


def operations_by_name():
    return {operation.name: operation for operation in hlo.operations(TEXT)}


def test_launches_are_counted_without_those_inside_a_graph():
    """Launches in a loop count per iteration, those in each of two branches half."""
    assert gpu_time.count_launches(SEQUENCE, turns=[3.0]) == {
        "kCustomKernel": 2 + 3,
        "kCommandBuffer": 1 + 3,
        "kConvolution": 1 + 3 + 1 / 2,
        "kWhile": 1,
        "kConditional": 1,
        "kCopy": 1 / 2,
    }


def test_a_program_without_a_sequence_has_no_launches(tmp_path):
    assert gpu_time.read_sequence(tmp_path) == ""
    assert gpu_time.count_launches("") == {}


def test_the_sequence_after_the_passes_is_preferred(tmp_path):
    (tmp_path / "module_1.step.thunk_sequence.txt").write_text("first")
    assert gpu_time.read_sequence(tmp_path) == "first"
    last = tmp_path / "module_1.step.thunk_sequence_after_thunk_passes.txt"
    last.write_text("last")
    assert gpu_time.read_sequence(tmp_path) == "last"


@pytest.mark.parametrize("name", ["conv.1", "conv.2", "conv.3"])
def test_a_convolution_and_its_gradients_have_equal_flops(name):
    """Two operations per output, input channel and weight of the window."""
    assert operations_by_name()[name].flops == 2 * (8 * 4 * 4 * 6) * (3 * 3 * 2)
    assert operations_by_name()[name].factor_bytes == 2


@pytest.mark.parametrize("name", ["gemm.1", "fusion.1"])
def test_matrix_products_are_counted_in_calls_and_fusions(name):
    assert operations_by_name()[name].flops == 2 * 8 * 5 * 7
    assert operations_by_name()[name].factor_bytes == 4


@pytest.mark.parametrize(
    ("bytes_moved", "flops", "factor_bytes", "seconds"),
    [
        (2_000_000_000, 0, 0, 2e9 / (0.87 * 3352e9)),
        (4, 10**12, 2, 1e12 / (0.45 * 989e12)),
        (4, 10**12, 4, 1e12 / (0.45 * 494.5e12)),
        (4, 0, 0, 12e-6),
        (0, 0, 0, 0.0),
    ],
)
def test_a_kernels_time_is_the_largest_of_bytes_products_and_the_minimum(
    bytes_moved, flops, factor_bytes, seconds
):
    operation = operations_by_name()["conv.1"]._replace(
        bytes=bytes_moved, flops=flops, factor_bytes=factor_bytes, times=3.0
    )
    expected = 3 * (seconds + 1.5e-6) if bytes_moved else 0
    assert gpu_time.kernel_seconds(operation, KIND) == pytest.approx(expected)
    other = operation._replace(bytes=4, flops=0, target="__cublas$gemm")
    assert gpu_time.kernel_seconds(other, KIND) == pytest.approx(3 * 4e-6)


def test_a_plan_adds_kernels_and_launches():
    class Compiled:
        def as_text(self):
            return TEXT

    launches = {"kCommandBuffer": 2.0, "kConvolution": 3.0, "kCustomKernel": 4.0}
    program = run_estimates.Program(
        Compiled(), memory_estimate.Need(0, 0), 0.0, launches
    )
    cost = run_estimates.program_cost(program, KIND, 1)
    assert cost.parts["launches"] == pytest.approx((2 * 39 + 3 * 13 + 4 * 5) * 1e-6)
    kernels = cost.seconds - cost.parts["launches"]
    assert kernels == pytest.approx((3 * 13.5 + 2 * 4) * 1e-6)  # All are small.
    assert cost.notes == [gpu_time.MEASURED]
    uncounted = run_estimates.program_cost(program._replace(launches={}), KIND, 1)
    assert uncounted.notes == [gpu_time.UNCOUNTED]


def test_grouped_convolutions_are_named():
    assert not gpu_time.has_grouped_convolutions(TEXT)
    label = "dim_labels=b01f_o01i->b01f"
    text = TEXT.replace(label, f"{label}, feature_group_count=10", 1)
    assert gpu_time.has_grouped_convolutions(text)


def _ratios(is_selected=lambda result: True) -> list[float]:
    """Return the ratios of measured to planned time in the selected results."""
    root = pathlib.Path(__file__).parents[2]
    path = root / "benchmarks" / "results" / "plan_accuracy-gpu.json"
    plans = json.loads(path.read_text())["results"].values()
    return [x["measured"]["step_ms"] / x["step_ms"] for x in plans if is_selected(x)]


def test_the_stated_accuracy_of_plans_equals_the_results():
    steps = _ratios(
        lambda result: not result.get("fitted") and result["strategy"] != "vmapped"
    )
    words = re.search(r"took ([\d.]+) to ([\d.]+) of", gpu_time.MEASURED).groups()
    assert words == (f"{min(steps):.1f}", f"{max(steps):.1f}")
    assert " to ".join(words) in " ".join(plan.__doc__.split())
    runs = _ratios(lambda result: "fitted" not in result)
    assert len(runs) == 3 and all(1 / 1.3 < ratio < 1.3 for ratio in runs)
    vmapped = _ratios(lambda result: result["strategy"] == "vmapped")
    words = re.search(r"took ([\d.]+) and ([\d.]+) times", gpu_time.GROUPED).groups()
    assert words == (f"{min(vmapped):.1f}", f"{max(vmapped):.1f}")


def test_the_fitted_constants_solve_the_two_rates():
    """The planned times of the two fitted rows equal the measured times."""
    fitted = _ratios(lambda result: result.get("fitted"))
    assert len(fitted) == 2 and fitted == pytest.approx([1, 1], abs=0.03)


def test_known_rates_equal_the_results():
    root = pathlib.Path(__file__).parents[2]
    for rate in plan_accuracy.RATES:
        if rate.seeds == 4:
            continue  # Computed from seconds per step.
        path = root / "benchmarks" / "results" / f"gpu-{rate.device}.md"
        decimals = 1 if rate.device == "h100" else 0
        images = f"| {rate.images_per_second:,.{decimals}f} |"
        assert images in path.read_text(encoding="utf-8")
