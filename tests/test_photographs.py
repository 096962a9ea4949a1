"""The study on photographs: its cells and configs, and verdicts on planted scores."""

import importlib
import json

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from jbias import config as jc
from studies import all_results, photographs, photographs_page

SETS = {
    photographs.PHOTOGRAPHS: ("val", "cue-conflict", "edge", "silhouette"),
    photographs.HELD_OUT: photographs.STYLES,
}


@pytest.fixture
def plant(monkeypatch, tmp_path):
    """Return a function that plants rows and chosen rates.

    Its argument maps (method, rate) to a difference from ERM; scores of seeds differ by 0.002.
    """

    def write(differences):
        rows = []
        methods = ("erm", "eoa", "swad", "sam", "sagnet", "stylized_erm")
        cells = [(s, x) for s, names in SETS.items() for x in names]
        for study, dataset in cells:
            for number, method in enumerate(methods):
                for rate in photographs.RATES:
                    for seed in photographs.SEEDS:
                        score = 0.5 + 0.001 * ((seed + number) % 3)
                        score += differences.get((method, rate), 0.0)
                        row = dict(study=study, method=method, set=dataset, seed=seed)
                        row |= dict(rate=rate, score=score)
                        rows += [
                            row | dict(metric=metric)
                            for metric in ("accuracy", "shape_bias")
                        ]
        table = pd.DataFrame(rows)

        def rows_of(study, metric):
            """Return the planted rows as studies.all_results does."""
            is_chosen = (table["study"] == study) & (table["metric"] == metric)
            chosen = table[is_chosen].rename(columns={"set": "dataset"})
            return chosen.assign(run=chosen["seed"])

        monkeypatch.setattr(all_results, "rows_of", rows_of)
        low, high = photographs.RATES
        rates = {study: {} for study in SETS}
        for cell in photographs.cells(methods):
            name = cell.name.rpartition("/")[2]
            rates[cell.study][name] = {f"{low:g}": 0.6, f"{high:g}": 0.5}
        (tmp_path / "rates.json").write_text(json.dumps(rates))
        claims = (photographs_page.FOLDER / "claims.json").read_text()
        (tmp_path / "claims.json").write_text(claims)
        monkeypatch.setattr(photographs_page, "FOLDER", tmp_path)

    return write


def texts():
    """Return the verdict in words by the claim's number."""
    return {v.claim["id"]: v.text for v in photographs_page.verdicts()}


def test_planted_differences_get_their_verdicts(plant):
    low, high = photographs.RATES
    differences = {
        ("stylized_erm", low): 0.2,  # At each rate: confirmed.
        ("stylized_erm", high): 0.2,
        ("sam", low): 0.2,  # At the chosen rate alone: withdrawn.
        ("swad", low): -0.2,
        ("swad", high): -0.2,
    }
    plant(differences)
    verdicts = texts()
    assert verdicts[1] == verdicts[7] == "confirmed"
    assert verdicts[2] == verdicts[4] == "undecided"
    assert verdicts[3] == "confirmed"  # EoA is ERM up to 0.1 points.
    assert verdicts[5] == "the opposite holds"
    assert verdicts[6] == "withdrawn"
    (sam,) = (v for v in photographs_page.verdicts() if v.claim["id"] == 6)
    assert sam.changes == ("rate 0.1",)


def test_equal_methods_have_no_verdict(plant):
    plant({})
    verdicts = texts()
    assert {verdicts[i] for i in (1, 2, 4, 5, 6, 7)} == {"undecided"}


def test_claims_of_methods_without_scores_have_no_verdict(plant, monkeypatch):
    plant({})
    rows_of = all_results.rows_of

    def rows_without_a_seed(study, metric):
        """Return the planted rows without one seed of EoA at the higher rate."""
        rows = rows_of(study, metric)
        is_missing = (rows["method"] == "eoa") & (rows["seed"] == 1)
        return rows[~(is_missing & (rows["rate"] == photographs.RATES[1]))]

    monkeypatch.setattr(all_results, "rows_of", rows_without_a_seed)
    assert texts()[4] == "undecided"  # At the chosen rate, all seeds are there.
    (verdict,) = (v for v in photographs_page.verdicts() if v.claim["id"] == 4)
    assert np.isnan(verdict.rate_pvalues[1]) and not np.isnan(verdict.rate_pvalues[0])
    monkeypatch.setattr(
        all_results, "rows_of", lambda study, metric: rows_of(study, metric)[:0]
    )
    assert {*texts().values()} == {"no scores"}


def test_tables_by_rate_and_by_block_have_the_planted_differences(plant):
    low, high = photographs.RATES
    plant({("sam", low): 0.2, ("sam", high): 0.1, ("swad", low): -0.1})
    by_rate, by_block = photographs_page.rates_table(), photographs_page.blocks_table()
    sam = ("70 [70, 70]", "60 [60, 60]")  # At each rate; the tables round.
    assert f"| sam | {' | '.join(sam * 3)} |" in by_rate
    assert f"| swad | {' | '.join(('40 [40, 40]', '50 [50, 50]') * 3)} |" in by_rate
    assert f"| sam | {' | '.join(['+20.0'] * 5)} |" in by_block
    assert f"| swad | {' | '.join(['-10.0'] * 5)} |" in by_block
    assert "| padain | not run |" in by_rate and "| padain | not run |" in by_block


def test_a_rate_at_which_the_tuning_seed_diverged_is_not_chosen(plant):
    plant({})
    path = photographs_page.FOLDER / "rates.json"
    rates = json.loads(path.read_text())
    rates[photographs.PHOTOGRAPHS]["sam"] = {"0.03": None, "0.1": 0.1}
    path.write_text(json.dumps(rates))
    chosen = photographs_page.chosen_rates(photographs.PHOTOGRAPHS)
    assert chosen["sam", ""] == 0.1 and chosen["erm", ""] == 0.03


def test_sets_of_the_same_networks_are_not_independent_observations():
    """With a deviation of each network that all sets share, p is uniform under the null."""
    rng = np.random.default_rng(0)
    pvalues = []
    for _ in range(200):
        shared = rng.normal(size=(5, 3))
        rows = [
            dict(method=f"m{m}", run=s, dataset=d, score=shared[m, s] + rng.normal())
            for m in range(5)
            for s in photographs.SEEDS
            for d in ("val", "edge", "silhouette")
        ]
        pvalues.append(photographs_page.differ_pvalue(pd.DataFrame(rows)))
    rejected = np.mean(np.array(pvalues) < 0.05)
    assert rejected < 0.1  # Binomial, 5 % of 200: above 0.1 in fewer than 1 of 1,000.


def test_equivalence_is_not_claimed_outside_of_the_margin():
    """Welch's one-sided tests, against scipy's confidence interval of 90 %."""
    rng = np.random.default_rng(0)
    for shift in (0.0, 0.03, 0.049, 0.06):
        first, second = rng.normal(0.5 + shift, 0.004, 3), rng.normal(0.5, 0.004, 3)
        result = scipy.stats.ttest_ind(first, second, equal_var=False)
        interval = result.confidence_interval(0.9)
        is_inside = -0.05 < interval.low and interval.high < 0.05
        p = photographs_page.equivalence_pvalues(first, second, 0.05)
        assert (p < 0.05) == is_inside


def test_each_cell_has_a_config_for_its_data(tmp_path):
    for cell in photographs.cells(["erm", "stylized_erm", "deepaugment-cae"]):
        text = photographs.config_text(cell, root=tmp_path, runs=tmp_path)
        file, _, arguments = text.partition(":")
        name = file.removeprefix("configs/").removesuffix(".py")
        module = importlib.import_module(f"jbias.configs.{name}")
        config = module.get_config(arguments)
        assert config.size == 32
        assert config.epochs == (2.5 if cell.method == "deepaugment-cae" else 5)
        assert config.eval_every == "1 epoch"
        assert config.vary == (dict(key="optim.rate", values=photographs.RATES),)
        expected = {cell.style} if cell.style else {*SETS[photographs.PHOTOGRAPHS]}
        assert {*config.tests} == expected


@pytest.mark.parametrize(
    ("method", "eval_every"), [("erm", "5 epochs"), ("swad", "5 %")]
)
def test_the_flags_of_a_cell_are_those_of_training(method, eval_every, tmp_path):
    """Flags that are given twice would be refused."""
    (cell, *_) = photographs.cells([method])
    *changes, text = photographs.train_flags(cell, root=tmp_path, runs=tmp_path)
    config = jc.load(text.removeprefix("--config="), changes, flag="config")
    assert config.eval_every == eval_every
    assert config.seeds == (0, 1, 2, 1000) and config.model.width == 8
    assert config.run.strategy == "looped" and config.precision == "float32"


def test_claims_name_methods_and_sets_of_the_study():
    claims = json.loads((photographs_page.FOLDER / "claims.json").read_text())
    assert {*claims["design"]["methods"]} == {*photographs.METHODS}
    for claim in claims["claims"]:
        names = (*SETS[claim["study"]], photographs_page.MEAN, photographs_page.ALL)
        assert claim["set"] in names
        assert claim["method"] in ("", *photographs.METHODS)
