"""The study's command writes tables, curves and figure; its main numbers are computed again."""

import csv
import json

import numpy as np
import pandas as pd
import pytest

from jbias.calibrating import analysis, curves, output, rows
from jbias.calibrating import rules as rules_lib
from studies import calibration, calibration_check
from tests.calibrating import simulated


@pytest.fixture(autouse=True)
def few_draws(monkeypatch):
    """Recompute intervals from a quarter of the draws, which the tolerance allows."""
    monkeypatch.setattr(calibration_check, "DRAWS", 1000)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Return the folder of the published tables of a simulated study with noise."""
    folder = tmp_path_factory.mktemp("study")
    rng = np.random.default_rng(0)
    networks = simulated.leaning(simulated.networks(families=simulated.WITH_RULES))
    networks = [
        network._replace(group=f"{network.family}-{network.level}")
        for network in networks
    ]
    odd = simulated.guessing_networks(3)
    odd += simulated.networks(families=("mixed_logits",))
    odd += simulated.networks(families=("rule",), shortcut="colour", strength=0.5)
    odd.append(simulated.with_reliance(networks[-1], 0.9)._replace(network="far"))
    unverified = {"verified_shape": 0.0, "verified_texture": 0.0, "verified_size": 1.0}
    trained = simulated.networks(families=("trained",))[0]
    odd.append(trained._replace(network="unverified", dial=None, **unverified))
    noisy = simulated.binomial_readings(networks, rng)
    readings = [reading._replace(measure="shape_bias") for reading in noisy]
    for name in ("mrr_relative", "low_frequency_bias", "order_dependence"):
        readings += simulated.readings(
            networks,
            lambda network: float(np.round(network.dial**2 + rng.normal(0, 0.1), 2)),
            name=name,
        )
    readings += simulated.readings(odd, lambda network: 0.3, name="mrr_relative")
    few = simulated.binomial_readings(networks, rng, images=30)
    readings += [reading._replace(measure="shape_bias", n=None) for reading in few]
    rows.write(folder / "networks.csv", [*networks, *odd], rows.PlantedNetwork)
    rows.write(folder / "readings.csv", readings, rows.Reading)
    arguments = [f"--study={folder}", "--stages=analyse", f"--out={folder / 'out'}"]
    arguments += [f"--curves={folder / 'out.json'}", f"--figure={folder / 'out.svg'}"]
    assert calibration.main(arguments) == 0
    rules = (calibration.RESULTS / "rules.json").read_text()
    (folder / "out/rules.json").write_text(rules)
    return folder


def test_ten_numbers_are_equal_when_they_are_computed_independently(published):
    rules = json.loads((published / "out/rules.json").read_text())
    numbers = [*calibration_check.compare(published / "out", rules)]
    assert len(numbers) == 4 * 4 + 2
    for name, stored, recomputed in numbers:
        tolerance = 0.03 if name.endswith("rho_lower") else 1e-5
        assert stored == pytest.approx(recomputed, abs=tolerance), name
    metrics = {name.split()[1] for name, *_ in numbers}
    assert metrics == {*calibration_check.COLUMNS}
    assert calibration_check.main([f"--results={published / 'out'}"]) == 0


def test_the_numbers_of_hidden_networks_are_computed_with_the_fixed_curves(
    published, tmp_path, capsys
):
    """If the fixed curves read other dials, the recomputed errors differ."""
    stored = rows.read(published / "networks.csv", rows.PlantedNetwork)
    rows.write(
        tmp_path / "networks.csv",
        [*stored, *(x._replace(hidden=1, network=f"h-{x.network}") for x in stored)],
        rows.PlantedNetwork,
    )
    readings = rows.read(published / "readings.csv", rows.Reading)
    of_hidden = [x._replace(network=f"h-{x.network}") for x in readings]
    rows.write(tmp_path / "readings.csv", [*readings, *of_hidden], rows.Reading)
    networks, of_networks = (
        rows.read(tmp_path / f"{name}.csv", kind)
        for name, kind in (
            ("networks", rows.PlantedNetwork),
            ("readings", rows.Reading),
        )
    )
    fixed = curves.read(published / "out.json")
    rules = rules_lib.read(published / "out/rules.json")
    output.write(analysis.analyse(networks, of_networks, rules, frozen=fixed), tmp_path)
    rows.write(
        tmp_path / "networks.csv",
        [network for network in networks if network.hidden],
        rows.PlantedNetwork,
    )
    full = calibration.full_readings(of_networks)
    rows.write(tmp_path / "readings.csv", full, rows.Reading)
    arguments = [f"--results={tmp_path}", f"--rules={published / 'out/rules.json'}"]
    assert (
        calibration_check.main([*arguments, f"--curves={published / 'out.json'}"]) == 0
    )
    assert calibration_check.main(arguments) == 1
    assert "shape_bias error" in capsys.readouterr().out


def test_a_changed_number_is_noticed(published, tmp_path, capsys):
    folder = tmp_path / "changed"
    folder.mkdir()
    for path in (published / "out").glob("*.*"):
        (folder / path.name).write_bytes(path.read_bytes())
    with (folder / "measures.csv").open(newline="") as file:
        measures = list(csv.DictReader(file))
    measures[0]["error"] = str(float(measures[0]["error"]) + 0.001)
    with (folder / "measures.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, measures[0].keys())
        writer.writeheader()
        writer.writerows(measures)
    assert calibration_check.main([f"--results={folder}"]) == 1
    assert "DIFFERENT" in capsys.readouterr().out


def test_the_dials_of_trained_networks_are_computed_again(published, tmp_path, capsys):
    """Numbers that were computed with the planned dials are noticed."""
    stored = rows.read(published / "networks.csv", rows.PlantedNetwork)
    wrong = [
        row._replace(dial=row.planned_dial) if row.family == "trained" else row
        for row in stored
    ]
    study, out = tmp_path / "study", tmp_path / "study/out"
    study.mkdir()
    rows.write(study / "networks.csv", wrong, rows.PlantedNetwork)
    (study / "readings.csv").write_bytes((published / "readings.csv").read_bytes())
    arguments = [f"--study={study}", "--stages=analyse", f"--out={out}"]
    arguments += [f"--curves={study / 'c.json'}", f"--figure={study / 'f.svg'}"]
    assert calibration.main(arguments) == 0
    (out / "rules.json").write_bytes((published / "out/rules.json").read_bytes())
    assert calibration_check.main([f"--results={out}"]) == 1
    assert "DIFFERENT" in capsys.readouterr().out


def test_readings_from_fewer_images_are_not_published(published):
    readings = rows.read(published / "out/readings.csv", rows.Reading)
    assert {reading.images for reading in readings} == {simulated.IMAGES}
    sizes = (published / "out/sizes.csv").read_text()
    assert "\nshape_bias,30," in sizes


def test_the_package_gets_the_curves_and_the_page_a_figure(published):
    read = curves.read(published / "out.json")
    assert {"shape_bias", "mrr_relative"} <= set(read.by_measure)
    assert "known reliance on shape" in (published / "out.svg").read_text()


def test_a_row_of_the_page_has_the_numbers_of_its_measure():
    row = {
        "title": "a measure",
        "verdict": "ranks networks only",
        "networks": 40,
        "expected_direction": 0,
        "rho": 0.9,
        "rho_lower": -0.05,
        "rho_upper": 0.95,
        "error": 0.123,
        "middle_error": 0.2,
        "behind_best": 0.2,
        "behind_best_lower": np.nan,
        "behind_best_upper": np.nan,
        "bias": -0.001,
        "bias_below_half": 0.1,
        "bias_above_half": -0.1,
        "coverage": np.nan,
        "images_needed": 480.0,
        "sizes": 1,
        "accuracy_lower": 0.4,
        "accuracy_upper": 1.0,
        "lies": "",
        "untested": "size",
        "seconds": 61.2,
        "seconds_first": 200.0,
    }
    cells = (
        "a measure | ranks networks only | 40 | 0.90 [−0.05, 0.95] either | 0.12 (0.20) | "
        "0.20 | 0.00 (0.10, −0.10) | – | ≤ 480 | 0.4 to 1 | size: not tested | 2e+02, 61"
    )
    assert calibration._row(row, never=set()) == f"| {cells} |"
    without_size = cells.replace("size: not tested", "–")
    assert calibration._row(row, never={"size"}) == f"| {without_size} |"


def test_the_table_of_hidden_networks_has_their_coverage_and_the_open_verdict():
    number = {
        "measure": "shape_bias",
        "title": "a measure",
        "networks": 12,
        "rho": 0.9,
        "rho_lower": 0.8,
        "rho_upper": 0.95,
        "error": 0.05,
        "middle_error": 0.0612,
        "coverage": 0.9,
        "coverage_lower": 0.75,
        "coverage_upper": 0.96,
        "verdict": "too few networks",
    }
    hidden = pd.DataFrame([number])
    opened = pd.DataFrame([{**number, "verdict": "measures reliance on shape"}])
    *_, line = calibration.hidden_table(hidden, opened).splitlines()
    assert line == (
        "| a measure | measures reliance on shape | 12 | 0.90 [0.80, 0.95] | 0.05 (0.06) | "
        "90 % [75, 96] | too few networks |"
    )
