"""The study on photographs: its cells and configs, and verdicts on planted scores."""

import importlib
import itertools
import json

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from jbias import config as jc
from studies import (
    all_results,
    command,
    photographs,
    photographs_page,
    photographs_scores,
    photographs_tests,
)

LOW, HIGH = photographs.RATES
SETS = {
    photographs.PHOTOGRAPHS: ("val", "cue-conflict", "edge", "silhouette"),
    photographs.HELD_OUT: photographs.STYLES,
}
PAGE = command.DOCS / "photographs.md"


def at_both_rates(method, difference, *sets):
    """Return differences of a method at each rate, on all sets or on some."""
    keys = itertools.product([method], photographs.RATES, sets or [""])
    return {tuple(filter(None, key)): difference for key in keys}


@pytest.fixture
def plant(monkeypatch, tmp_path):
    """Return a function that plants rows and chosen rates of all methods.

    differences: from ERM by (method, rate), or (method, rate, set). spreads: standard deviation of
    seeds by method (default: 0.001). missing: (method, rate, seed) without rows. unfinished:
    methods without runs. The lower rate is chosen.
    """

    def write(differences=(), spreads=(), missing=(), unfinished=()):
        differences, spreads = dict(differences), dict(spreads)
        methods = [name for name in photographs.METHODS if name not in unfinished]
        cells = [(s, x) for s, names in SETS.items() for x in names]
        keys = itertools.product(
            cells, enumerate(methods), photographs.RATES, photographs.SEEDS
        )
        rows = []
        for (study, dataset), (number, method), rate, seed in keys:
            if (method, rate, seed) in missing:
                continue
            score = 0.3 + spreads.get(method, 0.001) * ((seed + number) % 3)
            score += differences.get((method, rate), 0.0)
            score += differences.get((method, rate, dataset), 0.0)
            row = dict(study=study, method=method, dataset=dataset, run=seed)
            row |= dict(rate=rate, score=score)
            metrics = ("accuracy", "shape_bias", "fraction_neither")
            rows += [row | dict(metric=metric) for metric in metrics]
        table = pd.DataFrame(rows)

        def rows_of(study, metric):
            """Return the planted rows as studies.all_results does."""
            return table[(table["study"] == study) & (table["metric"] == metric)]

        monkeypatch.setattr(all_results, "rows_of", rows_of)
        rates = {study: {} for study in SETS}
        for cell in photographs.cells(methods):
            name = cell.name.rpartition("/")[2]
            rates[cell.study][name] = {f"{LOW:g}": 0.6, f"{HIGH:g}": 0.5}
        (tmp_path / "rates.json").write_text(json.dumps(rates))
        claims = (photographs_scores.FOLDER / "claims.json").read_text()
        (tmp_path / "claims.json").write_text(claims)
        monkeypatch.setattr(photographs_scores, "FOLDER", tmp_path)
        monkeypatch.setattr(photographs_tests, "PERMUTATIONS", 2000)

    return write


def by_claim():
    """Return the verdicts by the claim's number."""
    return {v.claim["id"]: v for v in photographs_tests.verdicts()}


def holm(p):
    """Return p after Holm's adjustment, by its definition."""
    order, adjusted = np.argsort(p), np.empty(len(p))
    adjusted[order] = np.maximum.accumulate(np.sort(p) * np.arange(len(p), 0, -1))
    return np.minimum(adjusted, 1)


def test_planted_differences_get_their_verdicts(plant):
    plant(
        at_both_rates("stylized_erm", 0.2)
        | at_both_rates("swad", -0.2)
        | {("sam", LOW): 0.2}  # At the chosen rate alone.
    )
    verdicts = by_claim()
    texts = {number: verdict.text for number, verdict in verdicts.items()}
    assert texts[1] == texts[7] == "confirmed"
    assert texts[2] == texts[4] == "undecided"
    assert texts[3] == "confirmed"  # EoA is ERM up to 0.1 points.
    assert texts[5] == "the opposite holds"
    assert texts[6] == "withdrawn" and verdicts[6].changes == ("rate 0.1",)
    assert verdicts[1].chosen.difference == pytest.approx(0.2, abs=2e-3)


def test_equal_methods_have_no_verdict_but_equivalence(plant):
    plant()
    texts = {number: verdict.text for number, verdict in by_claim().items()}
    assert texts.pop(3) == "confirmed"
    assert {*texts.values()} == {"undecided"}


def test_an_incomplete_study_has_no_verdicts(plant):
    """The difference is as large as in the test of planted differences, but a run is missing."""
    plant(at_both_rates("stylized_erm", 0.2), unfinished=("padain",))
    verdicts = by_claim()
    assert {v.text for v in verdicts.values()} == {"not complete"}
    assert all(np.isnan(v.chosen.p) for v in verdicts.values())
    assert len(photographs_scores.unfinished_cells()) == 5
    table = photographs_page.claims_table([*verdicts.values()])
    assert table.count("| not complete | – |") == 9 and "confirmed" not in table


def test_claims_about_a_diverged_seed_have_no_verdict(plant):
    plant(at_both_rates("stylized_erm", 0.2), missing=[("eoa", HIGH, 1)])
    verdicts = by_claim()
    lacking = {number for number, v in verdicts.items() if v.text == "no scores"}
    assert lacking == {3, 4, 8, 9}  # EoA's, and those of all methods.
    assert verdicts[1].text == "confirmed"
    assert np.isnan(verdicts[4].at_rates[1].p) and not np.isnan(verdicts[4].chosen.p)
    assert "eoa (photographs) at rate 0.1: seed 1" in photographs_page.missing_line()


def test_holm_is_always_over_the_seven_claims(plant):
    assert photographs_tests.adjust([0.01, *[float("nan")] * 6])[0] == 0.01 * 7
    plant({("sam", LOW): 0.0025, ("stylized_erm", LOW): 0.0035, ("swad", LOW): 0.004})
    claims = photographs_tests.read_claims()
    raw = []
    for claim in claims[:7]:
        rows = photographs_scores.rows_at(claim["study"], claim["metric"], None)
        scores = photographs_scores.scores_of(rows, claim["set"])
        method, erm = scores[claim["method"]], scores.pop("erm")
        if claim["relation"] == "within":
            tests = [
                scipy.stats.ttest_ind(method + s, erm, equal_var=False, alternative=a)
                for s, a in ((0.05, "greater"), (-0.05, "less"))
            ]
            raw.append(max(test.pvalue for test in tests))
            continue
        result = scipy.stats.dunnett(*scores.values(), control=erm, random_state=1)
        raw.append(result.pvalue[[*scores].index(claim["method"])])
    expected = holm(np.array(raw))
    actual = [x.p for x in photographs_tests.outcomes(claims, None)[:7]]
    # Dunnett's p is computed from random points.
    np.testing.assert_allclose(actual, expected, atol=0.003)
    assert np.sum((np.array(raw) < 0.05) & (expected >= 0.05)) >= 1


def test_a_verdict_is_withdrawn_by_the_adjusted_p_of_a_rate(plant):
    """At the other rate p is below 5 % before Holm's adjustment, and above after it."""
    plant({("sam", LOW): 0.2, ("sam", HIGH): 0.0026})
    (claim,) = (c for c in photographs_tests.read_claims() if c["id"] == 6)
    rows = photographs_scores.rows_at(claim["study"], claim["metric"], HIGH)
    single = photographs_tests.outcome(claim, rows)
    assert single.p < 0.05 and single.welch < 0.05 and single.difference > 0
    verdict = by_claim()[6]
    assert verdict.text == "withdrawn" and verdict.changes == ("rate 0.1",)
    assert verdict.at_rates[1].p >= 0.05


def test_a_verdict_is_withdrawn_without_welchs_test(plant):
    """Dunnett's test pools variances: SAM's is 400 times that of the other methods."""
    plant(at_both_rates("sam", 0.02), spreads={"sam": 0.02})
    verdict = by_claim()[6]
    assert verdict.chosen.p < 0.05 <= verdict.chosen.welch
    assert verdict.changes == (
        "Welch's test",
        *(
            f"Welch's test at rate {rate:g} (p {at_rate.welch:.3f})"
            for rate, at_rate in zip(photographs.RATES, verdict.at_rates, strict=True)
        ),
    )


def test_the_first_rules_need_no_welch_test_and_test_sets_as_blocks(plant):
    """By claims.json alone; differences on all sets make Friedman's test over sets significant."""
    plant(at_both_rates("sam", 0.02), spreads={"sam": 0.02})
    verdicts = by_claim()
    assert verdicts[6].text == "withdrawn" and verdicts[6].registered == "confirmed"
    assert verdicts[5].registered == "undecided"
    for number, study in ((8, photographs.HELD_OUT), (9, photographs.PHOTOGRAPHS)):
        rows = photographs_scores.rows_at(study, "accuracy", None)
        table = rows.groupby(["dataset", "method"])["score"].mean().unstack()
        blocks, methods = table.shape
        statistic = scipy.stats.friedmanchisquare(*table.to_numpy().T).statistic
        with np.errstate(divide="ignore"):  # Infinite if all sets have the same order.
            f = (blocks - 1) * statistic / (blocks * (methods - 1) - statistic)
        p = scipy.stats.f.sf(f, methods - 1, (blocks - 1) * (methods - 1))
        registered = photographs_tests.registered_differ_pvalue(rows)
        assert (registered < 0.05) == (verdicts[number].registered == "confirmed")
        assert registered == pytest.approx(p, rel=1e-9)


def test_the_detectable_difference_has_the_power_of_the_claims_test():
    """Normal scores of eleven methods, drawn and tested here by scipy."""
    smallest = photographs_tests.detectable(11, 0.05 / 7)
    rng, hits = np.random.default_rng(1), 0
    for _ in range(400):
        samples = rng.normal(size=(11, 3))
        samples[1] += smallest
        welch = scipy.stats.ttest_ind(samples[1], samples[0], equal_var=False).pvalue
        pooled = np.sqrt(samples.var(axis=1, ddof=1).mean() * 2 / 3)
        t = (samples[1].mean() - samples[0].mean()) / pooled
        hits += welch < 0.05 and abs(t) > photographs_tests.critical_value(11, 0.05 / 7)
    assert hits / 400 == pytest.approx(0.8, abs=0.06)


def test_a_verdict_is_withdrawn_if_the_mean_of_blocks_is_not_significant(plant):
    """The mean over sets differs by 0.0041, the mean over blocks by 0.0027."""
    plant(
        at_both_rates("sam", 0.008, "cartoon", "sketch")
        | at_both_rates("sam", 0.0001, "photo", "art_painting")
    )
    verdict = by_claim()[6]
    assert verdict.chosen.p < 0.05 <= verdict.over_blocks.p
    assert verdict.over_blocks.difference > 0
    assert verdict.text == "withdrawn" and verdict.changes == ("mean of blocks",)


def test_a_verdict_is_withdrawn_if_one_block_has_another_direction(plant):
    plant(at_both_rates("sam", 0.2) | at_both_rates("sam", -0.21, "photo"))
    assert by_claim()[6].changes == ("block photographs",)


def test_a_verdict_is_withdrawn_if_one_seed_decides_its_direction():
    claim = dict(id=6, relation="above")
    chosen = photographs_tests.Outcome(p=0.01, difference=0.1, welch=0.01)
    verdict = photographs_tests.Verdict(claim, chosen=chosen, at_rates=(chosen, chosen))
    subsets = {"without seed 0": 0.1, "without seed 1": -0.01, "block art": 0.2}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            photographs_tests, "_differences_of_subsets", lambda claim: subsets
        )
        assert photographs_tests.changes(claim, verdict) == ("without seed 1",)


def test_methods_that_differ_on_one_set_alone_are_said_to(plant):
    differences = {}
    for number, method in enumerate(photographs.METHODS):
        differences |= at_both_rates(method, 0.01 * number, "val")
    plant(differences)
    verdicts = by_claim()
    assert verdicts[8].text == "undecided"
    assert verdicts[9].text == "confirmed, but of single sets only on val"
    pvalues = {test.name: test.p for test in verdicts[9].sets}
    assert pvalues.pop("val") < 0.05 <= min(pvalues.values())
    assert "block stimuli: cue-conflict, edge, silhouette" in pvalues


def test_methods_that_differ_on_all_sets_are_confirmed_without_a_remark(plant):
    differences = {}
    for number, method in enumerate(photographs.METHODS):
        differences |= at_both_rates(method, 0.01 * number)
    plant(differences)
    assert by_claim()[9].text == "confirmed"


def test_methods_whose_block_means_are_equal_are_not_said_to_differ(plant):
    """The mean over sets differs, as three sets are in one block."""
    differences = {}
    for number, method in enumerate(photographs.METHODS):
        differences |= at_both_rates(method, 0.01 * number, "val")
        differences |= at_both_rates(
            method, -0.01 * number, "cue-conflict", "edge", "silhouette"
        )
    plant(differences)
    verdict = by_claim()[9]
    assert verdict.chosen.p < 0.05 <= verdict.over_blocks.p
    assert verdict.text == "withdrawn" and verdict.changes == ("mean of blocks",)


def test_sets_of_the_same_networks_are_not_independent_observations(monkeypatch):
    """With a deviation of each network that all sets share, p is uniform under the null."""
    monkeypatch.setattr(photographs_tests, "PERMUTATIONS", 1000)
    rng = np.random.default_rng(0)
    pvalues = []
    for _ in range(200):
        shared = rng.normal(size=(len(photographs.METHODS), 3))
        rows = [
            dict(method=name, run=s, dataset=d, score=shared[m, s] + rng.normal())
            for m, name in enumerate(photographs.METHODS)
            for s in photographs.SEEDS
            for d in ("val", "edge", "silhouette")
        ]
        p, _ = photographs_tests.differ(pd.DataFrame(rows))
        pvalues.append(p)
    rejected = np.mean(np.array(pvalues) < 0.05)
    assert rejected < 0.1  # Binomial, 5 % of 200: above 0.1 in fewer than 1 of 1,000.


def test_the_permutation_test_is_precise_near_the_level():
    error = np.sqrt(0.05 * 0.95 / photographs_tests.PERMUTATIONS)
    assert error < 0.0005
    assert photographs_page.p_text(0.0504, error) == f"0.0504 ± {error:.4f}"
    assert photographs_page.p_text(0.052, error) == "0.052"
    assert photographs_page.p_text(0.0) == "< 0.0001"


def test_equivalence_is_not_claimed_outside_of_the_margin():
    """Welch's one-sided tests, against scipy's confidence interval of 90 %."""
    rng = np.random.default_rng(0)
    for shift in (0.0, 0.03, 0.049, 0.06):
        first, second = rng.normal(0.5 + shift, 0.004, 3), rng.normal(0.5, 0.004, 3)
        result = scipy.stats.ttest_ind(first, second, equal_var=False)
        interval = result.confidence_interval(0.9)
        is_inside = -0.05 < interval.low and interval.high < 0.05
        p = photographs_tests.equivalence_pvalues(first, second, 0.05)
        assert (p < 0.05) == is_inside


def test_differences_have_the_intervals_of_their_tests(plant):
    plant(at_both_rates("sam", 0.01) | at_both_rates("eoa", 0.02))
    claims = {claim["id"]: claim for claim in photographs_tests.read_claims()}
    low, high = photographs_tests.interval(claims[6])
    # Dunnett's: wider than Welch's interval with the same pooled variance, and around 0.01.
    half = scipy.stats.t.ppf(0.975, 22) * 0.001 * np.sqrt(2 / 3)
    assert (low + high) / 2 == pytest.approx(0.01, abs=2e-4)
    assert 1.2 * half < (high - low) / 2 < 2 * half
    low, high = photographs_tests.interval(claims[3])
    welch_half = scipy.stats.t.ppf(0.95, 4) * 0.001 * np.sqrt(2 / 3)
    assert (low, high) == pytest.approx((0.02 - welch_half, 0.02 + welch_half))


def test_power_uses_dunnetts_statistic_and_its_critical_value():
    """Against scipy: at the critical value, Dunnett's p is the level."""
    rng = np.random.default_rng(0)
    samples = rng.normal(size=(1, 11, 3))
    (statistics,) = photographs_tests._dunnett_statistics(samples)
    result = scipy.stats.dunnett(*samples[0, 1:], control=samples[0, 0], rng=rng)
    np.testing.assert_allclose(statistics, result.statistic)
    level = 0.05 / 7
    critical = photographs_tests.critical_value(11, level)
    samples[0, 1] += (critical - statistics[0]) * np.sqrt(
        samples.var(axis=2, ddof=1).mean() * 2 / 3
    )
    result = scipy.stats.dunnett(*samples[0, 1:], control=samples[0, 0], rng=rng)
    # The quantile of 200,000 draws has a standard error of 0.0002 in p.
    assert result.pvalue[0] == pytest.approx(level, abs=0.001)


def test_power_falls_with_the_deviation_of_seeds(plant):
    claims = {claim["id"]: claim for claim in photographs_tests.read_claims()}
    level = photographs_tests.first_holm_level([*claims.values()])
    assert level == pytest.approx(0.05 / 7)
    powers = []
    for spread in (0.001, 0.02, 0.5):
        plant(spreads=dict.fromkeys(photographs.METHODS, spread))
        powers.append(
            [photographs_tests.power(claims[number], level) for number in (3, 6)]
        )
    (first_within, first), (within, above), (last_within, last) = powers
    assert first_within == first == 1.0
    assert 0 < within < 1 and 0 < above < 1
    assert last_within < 0.01 and last < 0.01
    assert np.isnan(photographs_tests.power(claims[8], level))


def test_paired_differences_have_t_intervals(plant):
    plant({("eoa", LOW): 0.02})
    mean, (low, high) = photographs_tests.paired_differences(
        "eoa", photographs.HELD_OUT, "accuracy", photographs_scores.MEAN, LOW
    )
    differences = np.array([0.021, 0.021, 0.018])  # Seeds of ERM and EoA are shifted.
    half = 4.302653 * differences.std(ddof=1) / np.sqrt(3)  # t of 2 degrees of freedom.
    assert (mean, low, high) == pytest.approx((0.02, 0.02 - half, 0.02 + half))


@pytest.mark.parametrize("method", ["eoa", "swad"])
@pytest.mark.parametrize("style", ["", "sketch"])
def test_averages_are_of_the_training_of_erm(method, style, tmp_path):
    """The configs differ in the average, in the evaluations, and in the name."""

    def config_of(name):
        """Return the config of a method without what does not change the training."""
        cell = photographs.Cell(name, style)
        *changes, text = photographs.train_flags(cell, root=tmp_path, runs=tmp_path)
        config = jc.load(text.removeprefix("--config="), changes, flag="config")
        training = json.loads(json.dumps(jc.to_dict(config)))
        average = training["optim"].pop("average")
        del training["eval_every"], training["variant"]
        return training, average

    (training, average), (erm, no_average) = config_of(method), config_of("erm")
    assert training == erm and average and not no_average


def test_tied_rates_choose_the_lower_and_are_marked():
    choose, text = photographs_scores.choose, photographs_page.choice_text
    assert choose((0.5, 0.5)).rate == LOW
    assert text(choose((0.5, 0.5))) == "50.0 / 50.0: 0.03 (tie)"
    assert text(choose((0.4, 0.5))) == "40.0 / 50.0: 0.1"
    nan = float("nan")
    assert text(choose((nan, 0.1))) == "diverged / 10.0: 0.1"
    assert text(choose((nan, nan))) == "diverged / diverged: none"


def test_a_rate_at_which_the_tuning_seed_diverged_is_not_chosen(plant):
    plant()
    path = photographs_scores.FOLDER / "rates.json"
    rates = json.loads(path.read_text())
    rates[photographs.PHOTOGRAPHS]["sam"] = {"0.03": None, "0.1": 0.1}
    path.write_text(json.dumps(rates))
    choices = photographs_scores.choices(photographs.PHOTOGRAPHS)
    assert choices["sam", ""].rate == 0.1 and choices["erm", ""].rate == 0.03


def test_tables_by_rate_and_by_block_have_the_planted_differences(plant):
    plant(
        {("sam", LOW): 0.2, ("sam", HIGH): 0.1, ("swad", LOW): -0.1},
        unfinished=("padain",),
    )
    by_rate, by_block = photographs_page.rates_table(), photographs_page.blocks_table()
    sam = ("50.1 [50.0, 50.2]", "40.1 [40.0, 40.2]")  # At each rate.
    assert f"| SAM | {' | '.join(sam * 3)} |" in by_rate
    swad = ("20.1 [20.0, 20.2]", "30.1 [30.0, 30.2]")
    assert f"| SWAD | {' | '.join(swad * 3)} |" in by_rate
    assert f"| SAM | {' | '.join(['+20.0'] * 5)} |" in by_block
    assert f"| SWAD | {' | '.join(['−10.0'] * 5)} |" in by_block
    assert "| pAdaIN | not run |" in by_rate and "| pAdaIN | not run |" in by_block


def test_scores_stand_beside_levels_of_guessing(plant):
    plant()
    table = photographs_page.scores_table(
        photographs.PHOTOGRAPHS, photographs_page.PHOTOGRAPH_COLUMNS
    )
    assert "| guessing | 50.0 | 100 | 81.8 | 3.8 | 9.1 | 9.1 | 9.1 |" in table
    # 550 conflicts, of which 69.8 to 70 % are decided.
    assert "| ERM | 30.1 [30.0, 30.2] | 384 [384, 385] |" in table
    table = photographs_page.scores_table(
        photographs.HELD_OUT, photographs_page.STYLE_COLUMNS
    )
    assert "| always the largest class | 20.8 | 19.5 | 21.9 | 25.9 | 22.0 |" in table


def test_shape_bias_counts_550_conflicts():
    rows = all_results.rows_of(photographs.PHOTOGRAPHS, "fraction_neither")
    counts = photographs_page.CONFLICTS * rows["score"]
    np.testing.assert_allclose(counts, counts.round(), atol=1e-6)


@pytest.mark.parametrize("unfinished", [(), ("padain",)])
def test_tables_and_figure_are_written_when_complete(
    plant, monkeypatch, tmp_path, capsys, unfinished
):
    plant(at_both_rates("sam", 0.2), unfinished=unfinished)
    file, figure = tmp_path / "photographs.md", tmp_path / "photographs.svg"
    monkeypatch.setattr(photographs_page, "FILE", file)
    monkeypatch.setattr(photographs_page, "FIGURE", figure)
    photographs_page.main([])
    printed = capsys.readouterr().out
    assert file.exists() == figure.exists() == (not unfinished)
    assert ("not complete: 5 of 55 runs" in printed) == bool(unfinished)
    if not unfinished:
        text = file.read_text()
        assert text in printed and "6. SAM is more accurate" in text
        assert "Claim | set | p" in text and "as registered" in text


def test_the_page_has_the_generated_tables():
    """Before all runs have results there are no tables, and the page says so."""
    page = PAGE.read_text(encoding="utf-8")
    if photographs_scores.unfinished_cells():
        assert "not complete" in page and not photographs_page.FILE.exists()
        return
    text = photographs_page.FILE.read_text(encoding="utf-8")
    tables = [
        photographs_page.scores_table(
            photographs.PHOTOGRAPHS, photographs_page.PHOTOGRAPH_COLUMNS
        ),
        photographs_page.scores_table(
            photographs.HELD_OUT, photographs_page.STYLE_COLUMNS
        ),
        photographs_page.choices_table(),
        photographs_page.rates_table(),
        photographs_page.blocks_table(),
    ]
    assert all(table in text for table in tables)
    missing = [part for part in text.strip().split("\n\n") if part not in page]
    assert not missing
    assert "not complete" not in page and "photographs.svg" in page


def test_the_page_has_the_steps_of_each_method(tmp_path):
    """Epochs of the configs, times the batches of an epoch.

    An epoch of PACS is one pass over its first style: 1,503 photos, or 1,843 paintings if photos
    are left out. DeepAugment's batches have half as many clean images.
    """
    section = PAGE.read_text(encoding="utf-8").split("## Methods as run")[1]
    lines = section.split("\n## ")[0].splitlines()
    rows = [line.split(" | ") for line in lines]
    steps_on_page = {
        row[0].removeprefix("| "): row[1:4] for row in rows if len(row) > 4
    }
    for method, name in photographs_page.NAMES.items():
        expected = []
        for style, images, batch in (
            ("", 8190, 64),
            ("sketch", 1503, 32),
            ("photo", 1843, 32),
        ):
            cell = photographs.Cell(method, style)
            config = load_config(cell, tmp_path)
            if method.startswith("deepaugment"):
                images, batch = (images, 16) if style else (2 * images, 64)
            stages = [dict(stage) for stage in config.get("stages", ())] or [{}]
            epochs = [stage.get("epochs", config.epochs) for stage in stages]
            expected.append(sum(round(x * (images // batch)) for x in epochs))
        assert steps_on_page[name] == [str(number) for number in expected]


def load_config(cell, folder):
    """Return the config of a cell."""
    text = photographs.config_text(cell, root=folder, runs=folder)
    file, _, arguments = text.partition(":")
    name = file.removeprefix("configs/").removesuffix(".py")
    return importlib.import_module(f"jbias.configs.{name}").get_config(arguments)


def test_each_cell_has_a_config_for_its_data(tmp_path):
    for cell in photographs.cells(["erm", "stylized_erm", "deepaugment-cae"]):
        config = load_config(cell, tmp_path)
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
    claims = json.loads((photographs_scores.FOLDER / "claims.json").read_text())
    assert {*claims["design"]["methods"]} == {*photographs.METHODS}
    assert {*photographs_page.NAMES} == {*photographs.METHODS}
    for claim in claims["claims"]:
        names = (*SETS[claim["study"]], photographs_scores.MEAN, photographs_scores.ALL)
        assert claim["set"] in names
        assert claim["method"] in ("", *photographs.METHODS)


def test_amendments_say_when_and_why():
    path = photographs_scores.FOLDER / "amendments.json"
    amendments = json.loads(path.read_text())
    assert len(amendments["amendments"]) >= 19 and amendments["corrections"]
    for amendment in amendments["amendments"]:
        assert amendment["what"] and amendment["why"]
    for correction in amendments["corrections"]:
        assert correction["of"] and correction["what"] and correction["registered"]
