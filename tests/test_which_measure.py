"""docs/which-measure.md has the tables and the counts of the files of its study."""

import hashlib
import json
import pathlib

import pandas as pd
import pytest

from jbias.calibrating import curves
from studies import calibration

ROOT = pathlib.Path(__file__).parents[1]
PAGE = (ROOT / "docs/which-measure.md").read_text("utf-8")
RESULTS = calibration.RESULTS


def read(name: str) -> pd.DataFrame:
    """Return a table of the study; skip the test if the study has not been run."""
    path = RESULTS / name
    if not path.exists():
        assert "has not been run" in PAGE
        pytest.skip(f"the study has no {name} yet, and the page says so")
    is_of_measures = path.name == "measures.csv"
    return calibration.read_measures(path) if is_of_measures else pd.read_csv(path)


def test_the_page_has_the_table_of_all_measures_and_the_figure():
    assert calibration.table(read("measures.csv")) in PAGE
    assert "(which-measure.svg)" in PAGE
    assert (ROOT / "docs/which-measure.svg").stat().st_size > 10_000


def test_the_page_has_the_table_of_hidden_networks():
    hidden = read("hidden/measures.csv")
    assert calibration.hidden_table(hidden, read("measures.csv")) in PAGE
    assert (RESULTS / "hidden/sealed.json").exists()


def test_hidden_networks_are_read_by_the_rules_and_curves_of_their_seal():
    sealed = json.loads((RESULTS / "hidden/sealed.json").read_text("utf-8"))
    files = {"rules.json": RESULTS, "curves.json": RESULTS / "hidden"}
    assert {*sealed["files"]} == {*files}
    for name, folder in files.items():
        content = (folder / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == sealed["files"][name]["sha256"]


def test_the_page_counts_networks_and_failing_networks():
    networks, flagged = read("networks.csv"), read("flagged.csv")
    failing = networks[networks["family"] == "none"]
    num_flagged = failing["network"].isin(flagged["network"]).sum()
    assert num_flagged == len(failing)
    assert f"All {len(failing)} failing networks are flagged" in PAGE
    assert f"{len(networks)} networks" in PAGE and f"{len(flagged)} are flagged" in PAGE


def test_the_package_has_the_curves_of_the_study():
    measures = read("measures.csv").set_index("measure")
    by_measure = curves.read().by_measure
    for measure, curve in by_measure.items():
        assert curve.verdict == measures.loc[measure, "verdict"]
        assert curve.error == pytest.approx(measures.loc[measure, "error"], rel=1e-4)
