"""The runs of the clouds' scripts lower for a mesh of the requested TPUs."""

import functools
import pathlib
import re

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType

from benchmarks import collectives
from jbias import run_spec
from jbias.launch import trials
from jbias.runtime import mesh
from jbias.training import input_plan, setup, stages

GOLDEN = pathlib.Path(__file__).parent / "golden"
# ml_collections still calls what Python 3.12 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")


def arguments_and_chips(target: str) -> tuple[str, int]:
    """Return the arguments of the first run of a frozen script, and its number of chips."""
    text = (GOLDEN / f"{target}.sh").read_text()
    run = re.search(r"-m jbias\.main ((?:--config\S+ )+)--workdir", text)
    return run[1].strip(), int(re.search(r"v6e-(\d+)", text)[1])


@functools.cache
def lowered(arguments: str, chips: int) -> tuple[str, int]:
    """Return the step in StableHLO, and the number of examples per batch."""
    named, *changes = arguments.split()
    config = trials.read_config(named.removeprefix("--config="), tuple(changes))
    # All chips of the slice: of several hosts no run may leave any out.
    assert config["run"]["devices"] == 0
    types = (AxisType.Auto, AxisType.Auto)
    devices = AbstractMesh((1, chips), ("seed", "data"), axis_types=types)
    spec = run_spec.RunSpec.from_config(config)
    plans = input_plan.plan_stages(spec.stages, setup.open_train_sets(spec))
    (stage,) = stages.build_stages(spec, plans, None, devices)
    mesh.check_batch(stage.order.batch, stage.algo.mix_group, devices)
    plan = stage.feed.pipelines["train"]
    image = np.zeros((1, *stage.shape, 3), np.uint8)
    count = sum(map(len, plan.sources.values()))
    rows = {
        name: jax.ShapeDtypeStruct((count, *column.shape[1:]), column.dtype)
        for name, column in {"image": image, **plan.columns}.items()
    }
    traced = collectives.trace_step(
        *(
            stage.program.step,
            stage.program.draw,
            {"train": rows},
            stage.order.batch,
            stage.static(0),
        ),
        devices,
    )
    return traced.lower(lowering_platforms=("tpu",)).as_text(), stage.order.batch


@pytest.fixture
def on_tpus(monkeypatch):
    """Fixture: the step is lowered for TPUs, with their precision."""
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")


@pytest.mark.slow
@pytest.mark.parametrize("target", ["tpu_pod", "xpk", "sky"])
def test_the_step_lowers_for_the_slice_that_is_asked_for(target, on_tpus):
    arguments, chips = arguments_and_chips(target)
    text, batch = lowered(arguments, chips)
    assert f"mhlo.num_partitions = {chips} : i32" in text
    assert f'sdy.mesh @mesh = <["seed"=1, "data"={chips}]>' in text
    # Of all that comes in, what says which examples to take is shared out, no more.
    head = text.split("func.func public @main(")[1].split(") -> (")[0]
    shared = re.findall(r'tensor<(\w+)> {[^%]*\{"data"\}', head)
    assert shared == [f"{batch}xi32"]
    # Nothing that another platform's library, or Python on the host, would have to do.
    assert "custom_call" not in text
    convolved = re.findall(r"stablehlo\.convolution.*-> tensor<[\dx]+x(\w+)>", text)
    assert len(convolved) > 40 and {*convolved} == {"bf16"}
    assert {*re.findall(r"%arg\d+: tensor<(?:\d+x){4}(\w+)>", head)} == {"f32", "ui8"}
