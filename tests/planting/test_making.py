"""A study's folder has one study, its tables keep other rows, and failures are reported."""

import pytest

from jbias.calibrating import rows
from jbias.evals import runner
from jbias.planting import making, measuring, plans, rules
from tests.calibrating import simulated

PLAN = plans.Plan("rule-a", "rule", 0.5)
FAILING = plans.Plan("none-a", "none", None, level="chance")


def study_in(folder, **options):
    """Return a study of decision rules that remembers its lines in `lines`."""
    lines = []
    study = making.Study(
        folder,
        **{"scale": plans.SMOKE, "arguments": "smoke", "say": lines.append, **options},
    )
    return study, lines


def reading(measure, value, network="rule-a"):
    """Return a reading of all images."""
    return rows.Reading(network, measure, 240, 0, value, None, None, 240)


def test_a_folder_with_a_small_study_is_refused_by_a_large_one(tmp_path):
    small, _ = study_in(tmp_path)
    small.claim()
    study_in(tmp_path)[0].claim()
    for options in ({"scale": plans.FULL}, {"arguments": ""}):
        other, _ = study_in(tmp_path, **options)
        for call in (making.make, measuring.measure):
            with pytest.raises(ValueError, match="study.json.*another --out"):
                call(other, [PLAN])
    assert not (tmp_path / "networks.csv").exists()


def test_readings_of_other_measures_and_networks_stay_in_the_table(tmp_path):
    path = tmp_path / "readings.csv"
    first = [reading("shape_bias", 0.1), reading("cue_rank", 0.2)]
    first.append(reading("shape_bias", 0.3, network="rule-b"))
    making.write_rows(path, first, rows.Reading)
    making.write_rows(path, [reading("shape_bias", 0.9)], rows.Reading)
    stored = {(x.network, x.measure): x.value for x in rows.read(path, rows.Reading)}
    assert stored == {
        ("rule-a", "shape_bias"): 0.9,
        ("rule-a", "cue_rank"): 0.2,
        ("rule-b", "shape_bias"): 0.3,
    }


def test_failures_are_said_and_counted_for_networks_with_a_dial_only(
    tmp_path, monkeypatch
):
    """A failed measure is a reason in the table, not just an empty value."""
    monkeypatch.setenv("JBIAS_CACHE", str(tmp_path / "cache"))
    study, lines = study_in(tmp_path / "study")
    made_networks = [
        simulated.networks()[0]._replace(network=plan.name) for plan in (PLAN, FAILING)
    ]
    study.claim()
    making.write_rows(study.folder / "networks.csv", made_networks, rows.PlantedNetwork)
    monkeypatch.setattr(runner, "run_suite", lambda *_, **__: ["it broke"])
    readings = measuring.measure(study, [PLAN, FAILING], only=["shape_bias"])
    assert {x.reason for x in readings if x.network == "rule-a"} == {"it broke"}
    assert study.failures == ["rule-a: it broke"]
    assert "none-a: it broke" in lines
    assert making.make(study, [PLAN]) == []
    assert study.failures == ["rule-a: it broke"] * 2


@pytest.mark.parametrize("family", ["trained", "mixed_images"])
def test_the_dial_of_a_trained_network_is_verified_and_that_of_a_mixture_planned(
    family, tmp_path, monkeypatch
):
    """A network of the planned dial 0.5 that decides by shape in nine of ten images."""
    monkeypatch.setenv("JBIAS_CACHE", str(tmp_path / "cache"))
    plan = plans.Plan("a", family, 0.5)
    decider = plans.Plan("a", "rule", 0.9)
    monkeypatch.setattr(
        making,
        "open_network",
        lambda study, _: rules.open_network(decider, study.space),
    )
    study, _ = study_in(tmp_path / "study")
    row = making.make_row(study, plan)
    assert row.planned_dial == 0.5 and row.verified_reliance > 0.75
    assert row.dial == (row.verified_reliance if family == "trained" else 0.5)
