"""The study of the coverage of rank intervals: its simulation, its file and the docs' numbers."""

import json
import math
import re
import sys

import numpy as np
import pytest

from studies import command, rank_coverage

WRITTEN = json.loads(rank_coverage.OUT.read_text())
STATISTICS = (command.DOCS / "statistics.md").read_text(encoding="utf-8")


def standard_error(share=0.95):
    """Return the standard error of a share of the stored studies."""
    return math.sqrt(share * (1 - share) / WRITTEN["studies"])


def test_simultaneous_intervals_cover_and_naive_percentiles_do_not():
    """1,000 studies per design; a coverage of 95 % has the standard error 0.7 points."""
    assert (WRITTEN["studies"], WRITTEN["models"]) == (1000, 20)
    assert WRITTEN["designs"].keys() == rank_coverage.DESIGNS.keys()
    for by_method in WRITTEN["designs"].values():
        simultaneous, marginal, naive = (
            by_method[method] for method in rank_coverage.METHODS
        )
        for share in ("simultaneous", "with_ties", "per_model", "worst_model"):
            assert simultaneous[share] >= 0.95
        assert marginal["worst_model"] >= 0.95
        assert naive["simultaneous"] < 0.6 and naive["worst_model"] < 0.95
        assert naive["ranks"] < marginal["ranks"] <= simultaneous["ranks"]


def test_the_docs_have_the_numbers_of_the_file():
    assert rank_coverage.table(WRITTEN) in STATISTICS
    designs = WRITTEN["designs"]
    coverages = [
        100 * designs[name]["simultaneous"]["simultaneous"]
        for name in ("equal", "equal, few decisions")
    ]
    assert f"{coverages[0]:.1f} % and {coverages[1]:.1f} % of studies" in STATISTICS
    best_naive = max(design["naive"]["simultaneous"] for design in designs.values())
    assert f"at most {100 * best_naive:.1f} % of studies" in STATISTICS
    ranks = designs["published"]["simultaneous"]["ranks"]
    assert re.search(rf"{ranks:.1f} of\s20 ranks", STATISTICS)
    assert f"{100 * standard_error():.1f} points" in STATISTICS


def test_simulated_models_have_their_true_shape_biases_and_share_the_difficulty_of_images():
    """400 studies: within 4 standard errors; latent values correlate by 1/2."""
    design = rank_coverage.Design(
        np.array([0.5, 0.5, 0.8]), np.array([800.0, 800.0, 30])
    )
    rng = np.random.default_rng(0)
    decisions = [rank_coverage.simulate(design, rng) for _ in range(400)]
    shape, decided = np.concatenate(decisions, axis=2)
    assert not (shape & ~decided).any()
    for j in range(3):
        n, share = decided[j].sum(), design.shape_bias[j]
        error = math.sqrt(share * (1 - share) / n)
        assert shape[j].sum() / n == pytest.approx(share, abs=4 * error)
        expected = 400 * design.decided[j]
        assert n == pytest.approx(expected, abs=4 * math.sqrt(expected))
    both = decided[0] & decided[1]
    # P(both positive) of two normals with correlation 1/2 is 1/3 (Sheppard 1899).
    assert (shape[0] & shape[1])[both].mean() == pytest.approx(1 / 3, abs=0.004)


def test_coverage_of_models_that_are_far_apart_is_complete():
    """All methods find ranks 1 to 3 without error, and three equal models share rank 1."""
    apart = rank_coverage.Design(np.array([0.1, 0.5, 0.9]), np.full(3, 1000.0))
    result = rank_coverage.coverage(apart, studies=3, draws=100)
    for shares in result.values():
        assert set(shares.values()) == {1.0}
    equal = rank_coverage.Design(np.full(3, 0.5), np.full(3, 1000.0))
    result = rank_coverage.coverage(equal, studies=20, draws=100)
    assert result["simultaneous"]["with_ties"] <= result["simultaneous"]["simultaneous"]
    assert result["naive"]["per_model"] < 1 < result["naive"]["ranks"] < 3


def test_the_command_writes_the_file(tmp_path, monkeypatch, capsys):
    path = tmp_path / "new" / "coverage.json"
    monkeypatch.setattr(
        sys, "argv", ["rank_coverage", "--studies=1", "--draws=100", f"--out={path}"]
    )
    rank_coverage.main()
    written = json.loads(path.read_text())
    assert written.keys() == WRITTEN.keys() and written["studies"] == 1
    for name, by_method in written["designs"].items():
        assert by_method.keys() == WRITTEN["designs"][name].keys()
    assert rank_coverage.table(written) in capsys.readouterr().out


@pytest.mark.slow
def test_simulated_coverages_equal_the_stored_ones():
    """100 other studies of each design: within 4 standard errors of the stored shares."""
    for name, design in rank_coverage.DESIGNS.items():
        result = rank_coverage.coverage(
            design, studies=100, draws=WRITTEN["draws"], seed=10**6
        )
        for method, shares in result.items():
            stored = WRITTEN["designs"][name][method]
            for share in ("simultaneous", "with_ties"):
                p = min(max(stored[share], 0.02), 0.98)
                error = math.sqrt(p * (1 - p) / 100)
                assert shares[share] == pytest.approx(stored[share], abs=4 * error)
            assert shares["ranks"] == pytest.approx(stored["ranks"], abs=0.5)
