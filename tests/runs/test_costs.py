"""Device hours and energy: formulas, measured phases, and sums over resumed starts."""

import json
import types

import pytest
from etils import epath

from jbias import run_spec
from jbias.configs import erm
from jbias.runs import costs, workdirs
from jbias.training import setup
from jbias.training.tuning import memory_estimate
from tests import cases

H200 = costs.Devices("NVIDIA H200", 2)


def test_energy_is_hours_times_power():
    cost = costs.estimate(1800, H200)
    assert cost["device_hours"] == 1.0 and cost["energy_kwh"] == pytest.approx(0.7)
    assert cost["kg_co2e"] is None and cost["intensity"] is None
    energy = costs.Energy(share=0.5, pue=1.2, intensity=0.4)
    cost = costs.estimate(1800, H200, energy)
    assert cost["energy_kwh"] == pytest.approx(0.7 * 0.5 * 1.2)
    assert cost["kg_co2e"] == pytest.approx(0.7 * 0.5 * 1.2 * 0.4)
    assert (cost["watts"], cost["share"], cost["pue"]) == (700, 0.5, 1.2)
    cost_of_given_power = costs.estimate(3600, H200, costs.Energy(watts=100))
    assert (
        cost_of_given_power["energy_kwh"] == pytest.approx(0.2)
        and cost_of_given_power["source"] == "given"
    )


@cases.each(
    ("kind", "watts"),
    [
        ("NVIDIA H200", 700),
        ("NVIDIA H100 80GB HBM3", 700),
        ("NVIDIA H100 PCIe", 350),
        ("NVIDIA A100-SXM4-40GB", 400),
        ("NVIDIA A100-PCIE-40GB", 250),
        ("NVIDIA A100 80GB PCIe", 300),
        ("Tesla V100-SXM2-16GB", 300),
        ("TPU v4", 192),
        ("TPU v3", 131),
        ("cpu", 12),
        ("TPU v5 lite", None),
        ("Radeon", None),
    ],
)
def test_the_longest_matching_name_gives_the_power(kind, watts):
    cost = costs.estimate(3600, costs.Devices(kind, 1))
    assert cost["watts"] == watts
    assert (cost["energy_kwh"] is None) == (watts is None)
    assert cost["source"] == "not published" or watts


@cases.each("wrong", [{"share": 1.5}, {"pue": 0.9}, {"watts": -1}, {"intensity": -0.1}])
def test_assumptions_without_meaning_are_refused(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=rf"^config.run.energy.{name}: must be from"):
        costs.parse_energy("config.run.energy", wrong)


def test_every_second_belongs_to_one_phase():
    clock = types.SimpleNamespace(now=10.0)
    meter = costs.Stopwatch(lambda: clock.now)
    clock.now += 1
    with meter.during("stepping"):
        clock.now += 2
        with meter.during("compiling"):
            clock.now += 4
        clock.now += 8
        with pytest.raises(ZeroDivisionError), meter.during("evaluating"):
            clock.now += 16
            raise ZeroDivisionError
        assert sum(meter.spent().values()) == 31
    clock.now += 32
    expected = {"opening": 33, "compiling": 4, "stepping": 10, "evaluating": 16}
    assert meter.spent() == expected == meter.spent()


def test_steps_that_are_compiled_before_training_count_as_compiling(
    tmp_path, monkeypatch
):
    clock = types.SimpleNamespace(now=0.0)
    meter = costs.Stopwatch(lambda: clock.now)
    fit_stages = memory_estimate.fit_stages

    def slow(*args, **options):
        clock.now += 7
        return fit_stages(*args, **options)

    monkeypatch.setattr(memory_estimate, "fit_stages", slow)
    spec = run_spec.RunSpec.from_config(erm.get_config("smoke,seeds=1"))
    workdir = epath.Path(tmp_path)
    run = setup.open_run(spec, workdir, lambda line: None, meter=meter)
    run.store.checkpoints.close()
    assert run.log.meter is meter
    expected = {"opening": 0, "compiling": 7, "stepping": 0, "evaluating": 0}
    assert meter.spent() == expected


def test_starts_add_up_and_an_unknown_one_leaves_the_sum_unknown():
    spent = {
        "opening": 360.0,
        "compiling": 720.0,
        "stepping": 1800.0,
        "evaluating": 720,
    }
    energy = costs.Energy(intensity=0.5)

    def start(kind, count):
        return costs.of_start("now", spent, costs.Devices(kind, count), energy, 7)

    on_gpus = start("NVIDIA H200", 2)
    both = costs.total([on_gpus, start("cpu", 4)])
    assert both["starts"] == 2 and both["device_hours"] == pytest.approx(2 + 4)
    assert both["energy_kwh"] == pytest.approx(2 * 0.7 + 4 * 0.012)
    assert both["kg_co2e"] == pytest.approx(both["energy_kwh"] / 2)
    assert both["hours"]["stepping"] == pytest.approx(3.0)
    assert sum(both["hours"].values()) == pytest.approx(both["device_hours"])
    with_unknown = costs.total([on_gpus, start("TPU v9", 1)])
    assert with_unknown["energy_kwh"] is None
    assert with_unknown["device_hours"] == pytest.approx(3)


def test_a_start_replaces_its_own_entry_only(tmp_path):
    def start(at, seconds):
        return costs.of_start(at, {"stepping": seconds}, H200, costs.DEFAULT_ENERGY, 1)

    for start_ in (start("first", 10), start("first", 20), start("second", 7)):
        total = workdirs.record_cost(tmp_path, start_)
    content = json.loads((tmp_path / "costs.json").read_text())
    assert [start_["seconds"]["stepping"] for start_ in content["starts"]] == [20, 7]
    assert content["total"] == total == costs.total(content["starts"])
    assert costs.describe(total) == "0.015 device hours, about 0.0105 kWh"
