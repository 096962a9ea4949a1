"""The table of what runs cost, from their costs.json."""

import json
import types

from jbias import costs, results
from jbias.report import sources, workdirs
from tests.report import conftest

SPENT = {"opening": 0.0, "compiling": 0.0, "stepping": 3600.0, "evaluating": 1800.0}


def write(workdir, *devices):
    energy = costs.Energy(intensity=0.5)
    starts = [
        costs.start(str(i), SPENT, costs.Devices(kind, count), energy, 7)
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
    data = table.data.set_index(table.data["run"].str.split(r"\W").str[0])
    assert len(data) == 2, "a run that says nothing is not there"
    first = table.rows[0]
    assert dict(zip(table.head, first))["device hours"] == "4.5"
    assert dict(zip(table.head, first))["kWh"] == "3.15"
    assert dict(zip(table.head, first))["kg CO2e"] == "1.57"
    assert "2 x NVIDIA H200, 700 W each" in first[1] and "1 x NVIDIA" in first[1]
    unknown = dict(zip(table.head, table.rows[1]))
    assert unknown["kWh"] == unknown["kg CO2e"] == "–"
    assert "power not known" in table.rows[1][1]
    assert sources.costs_table(types.SimpleNamespace(runs=())) is None
