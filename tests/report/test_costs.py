"""The table of what runs cost, from their costs.json."""

import json
import types

from jbias.report import sources, workdirs
from jbias.runs import costs, results
from tests.report import conftest

SPENT = {"opening": 0.0, "compiling": 0.0, "stepping": 3600.0, "evaluating": 1800.0}


def write(workdir, *devices):
    energy = costs.Energy(intensity=0.4)
    starts = [
        costs.of_start(str(i), SPENT, costs.Devices(kind, count), energy, 7)
        for i, (kind, count) in enumerate(devices)
    ]
    told = {"starts": starts, "total": costs.total(starts)}
    (workdir / "costs.json").write_text(json.dumps(told))


def test_runs_with_costs_have_a_row_each(tmp_path):
    conftest.make_runs(tmp_path, seeds=(0,), epochs=1)
    write(tmp_path / "erm", ("NVIDIA H200", 2), ("NVIDIA H200", 1))
    write(tmp_path / "padain", ("TPU v9", 1))
    study = types.SimpleNamespace(runs=workdirs.load(results.read(f"{tmp_path}/*")))
    table = sources.costs_table(study)
    assert len(table.rows) == 2, "a run that says nothing is not there"
    known, unknown = (dict(zip(table.head, row)) for row in table.rows)
    shown = [known[key] for key in ("device hours", "stepping", "kWh", "kg CO2e")]
    assert shown == ["4.5", "3", "3.15", "1.26"]
    for said in ("2 × NVIDIA H200, 700 W each", "1 × NVIDIA H200"):
        assert said in known["assumed"]
    assert unknown["kWh"] == unknown["kg CO2e"] == "–"
    assert "power not known" in unknown["assumed"]
    assert sources.costs_table(types.SimpleNamespace(runs=())) is None
