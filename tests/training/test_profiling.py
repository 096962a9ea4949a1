"""Profiles: labels of operations, and the page of a run."""

import re

import pytest

from jbias import train
from jbias.training.tuning import memory_estimate, profiling
from tests import smoke_runs

PROGRAM = """
ENTRY %main (a: f32[4]) -> f32[8] {
  %fusion.3 = f32[4]{0} fusion(%a), calls=%f, metadata={op_name="jit(one)/transpose(jvp(ResNet))/ResNet.features/stage1_block0/bn1/reduce_sum" id=5}
  ROOT convolution.7 = f32[8]{0} convolution(%b), metadata={op_name="jit(one)/jvp(ResNet)/ResNet._stages/stage2_block1/conv2/conv_general_dilated"}
  %copy.1 = f32[8]{0} copy(%c)
}
"""


def test_operations_are_labelled_by_kind_direction_and_module():
    assert profiling.label_operations(PROGRAM) == {
        "fusion.3": ("reduce_sum", "backward stage1_block0/bn1"),
        "convolution.7": ("conv_general_dilated", "stage2_block1/conv2"),
    }


@pytest.mark.slow
def test_a_profiled_run_has_the_records_of_a_run_without_a_profile(tmp_path):
    config = smoke_runs.small(epochs=1.0)
    config.run.steps_per_dispatch = 1
    train.run(config, tmp_path / "plain")
    config.run.profile = True
    train.run(config, tmp_path / "run")
    assert smoke_runs.records(tmp_path / "plain") == smoke_runs.records(
        tmp_path / "run"
    )
    page = (tmp_path / "run" / "profile.md").read_text()
    forward = dict(re.findall(r"\| (\w+) \|  \| ([\d.]+) % \|", page))
    backward = dict(re.findall(r"\| (\w+) \| backward \| ([\d.]+) % \|", page))
    # The share itself depends on the machine's load.
    assert float(forward["conv_general_dilated"]) > 0
    assert float(backward["conv_general_dilated"]) > 0
    assert "1 steps of 2 seeds on cpu" in page
    assert list((tmp_path / "run" / "profile").rglob("*.xplane.pb"))


@pytest.mark.slow
def test_steps_of_a_compiled_loop_are_profiled_one_by_one(tmp_path, monkeypatch):
    """The first of four steps compiles the program; the other three are traced."""
    monkeypatch.setattr(
        memory_estimate, "scanned_steps", lambda run: run.steps_per_dispatch
    )
    config = smoke_runs.small("erm", seeds=(0,), epochs=2.0)
    config.tests, config.run.steps_per_dispatch, config.run.profile = {}, 4, True
    assert train.run(config, tmp_path / "run")
    page = (tmp_path / "run" / "profile.md").read_text()
    assert page.startswith("# 3 steps of 1 seeds")
    assert "conv_general_dilated" in page
    files = (tmp_path / "run" / "evals").glob("*.jsonl")
    assert {path.stem for path in files} == {"4", "8"}
