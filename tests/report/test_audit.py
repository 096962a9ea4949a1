"""Page and files of an audit report the planted attributes."""

import dataclasses
import json
import re

import numpy as np
import pandas as pd
import pytest

from jbias.data import shifts
from jbias.measures import attribute_audit, attribute_reliance
from jbias.report.pages import audit_page

K, N = 4, 1600
CLASSES = ("cat", "dog", "<elk>", "fox")
VALUES = {
    "hair": ("black", "blond", "brown", "grey"),
    "hat": ("no", "yes"),
    "class": CLASSES,
    "sky & sea": ("blue", "red"),
}


def make_audit(
    planted=True,
    networks=1,
    dead=0,
    model="net",
    kinds=shifts.KINDS,
    has_reference=False,
):
    """Return the audit of a model that uses black and blond as cues to cat and dog."""
    rng = np.random.default_rng(0)
    label, hair = rng.integers(0, K, N), rng.integers(0, 4, N)
    hat = np.where(rng.random(N) < 0.15, rng.integers(0, 2, N), hair < 2).astype(int)
    sky = rng.integers(0, 2, N)
    columns = {"hat": hat, "class": label, "sky & sea": sky, "hair": hair}
    agrees = (label < 2) == (hair < 2) if planted else np.ones(N, bool)
    correct = rng.random((networks, N)) < np.where(agrees, 0.95, 0.4)
    correct[networks - dead :] = rng.random((dead, N)) < 0.25
    likelihood = np.where(correct, 0.7, 0.1) + 0.2 * rng.random(correct.shape)
    measured = {
        name: attribute_reliance.measure(
            *(correct, label, column),
            names=(CLASSES, VALUES[name]),
            kinds=kinds,
            draws=200,
        )
        for name, column in columns.items()
    }
    ranked = attribute_audit.rank_candidates(correct, label, columns, measured)
    first = next(candidate for candidate in ranked if candidate.kind)
    side = attribute_audit.agreement(
        first.result, first.kind, label, columns[first.name]
    )
    pairs = attribute_audit.flipping_pairs(
        correct[0], likelihood[0], side, label, np.array([hat, sky]), 4
    )
    images = rng.integers(0, 256, (2, len(pairs), 8, 8, 3)).astype(np.uint8)
    return audit_page.Audited(
        model=model,
        networks=tuple(f"{model}-seed{i}" for i in range(networks)),
        reference=("clean",) if has_reference else (),
        dataset="pets/test",
        classes=CLASSES,
        answers=CLASSES,
        index=np.arange(N) + 7,
        label=label,
        columns=columns,
        values=VALUES,
        prediction=np.where(correct, label, (label + 1) % K),
        correct=correct,
        likelihood=likelihood,
        confidence=np.maximum(likelihood, 0.5),
        candidates=ranked,
        examples={first.name: audit_page.Examples(pairs, images[0], images[1])}
        if pairs
        else {},
        notes=("a note",),
        tau=0.05,
        alpha=0.05,
        draws=200,
        seed=0,
    )


@pytest.fixture(scope="module")
def planted():
    return make_audit()


@pytest.fixture(scope="module")
def written(planted, tmp_path_factory):
    out = tmp_path_factory.mktemp("audit")
    return out, list(
        audit_page.write(
            [planted], out, notes=["not audited: other.pth"], figures=["pdf"]
        )
    )


def test_the_planted_attribute_is_ranked_first(planted):
    table = audit_page.ranked(planted)
    rows = table.data.set_index("attribute")
    assert [*rows.index] == ["hair", "hat", "sky & sea", "class"]
    assert [*rows["verdict"]] == ["bug", "goes with", "none", "untestable"]
    assert rows.loc["hair", "kind"] == "conditional"
    assert rows.loc["hat", "other"] == "hair"
    assert rows.loc["hair", "drop_low"] < rows.loc["hair", "drop"]
    assert rows.loc["hair", "drop"] == rows.loc["hair", "conditional_drop"]
    within, outside = rows.loc["hair", ["within", "outside"]]
    assert within - outside == pytest.approx(rows.loc["hair", "drop"])
    assert table.rows[0][:4] == ("hair", "bug", "conditional", "4")
    assert table.rows[1][1] == "goes with hair"
    assert table.rows[3][2] == "–" and table.rows[3][4:] == ("–",) * 7


def test_only_bugs_are_bold(planted):
    """An attribute related to a bug and ranked between bugs is not bold."""
    hair, hat, sky, _ = planted.candidates
    three = [hair, hat, sky._replace(verdict="bug")]
    table = audit_page.ranked(dataclasses.replace(planted, candidates=three))
    assert table.bold == {(i, j) for i in (0, 2) for j in range(5)}


def test_values_are_listed_with_their_classes(planted):
    hair = planted.candidates[0]
    sides_of = audit_page.direction(planted, hair).split("; ")
    assert sorted(sides_of) == [
        "black, blond with cat, dog",
        "brown, grey with <elk>, fox",
    ]
    first = audit_page.strongest_pairs(planted, hair, 1)
    value, _, name = first.partition(" (")[0].partition(" with ")
    assert (value in ("black", "blond")) == (name in ("cat", "dog"))
    findings = list(audit_page.findings(planted))
    assert findings[0].startswith("hair: conditional, networks use the value as a cue")
    assert findings[1].startswith("hat does not count as a bug: ")


def test_the_answer_is_one_sentence(planted):
    answer, basis = audit_page.answer(planted)
    assert answer.startswith("net: hair (conditional, 5")
    assert answer.endswith(" points) hurts.")
    assert basis.startswith(
        "1 network, 1,600 images of pets/test, 4 attributes (3 tested), accuracy "
    )
    answer, _ = audit_page.answer(make_audit(planted=False))
    assert (
        "no attribute lowers accuracy by more than 5.0 points with confidence" in answer
    )


def test_a_drop_of_only_some_networks_is_reported():
    """Two of three networks guess, so the results vary between networks."""
    audited = make_audit(networks=3, dead=2)
    first = audited.candidates[0]
    assert (first.name, first.verdict) == ("hair", "some")
    drops = first.result.kinds[first.kind].by_network
    assert drops[0] > 0.4
    assert max(map(abs, drops[1:])) < 0.1
    assert np.mean(drops) == pytest.approx(first.drop)
    assert "hurts some networks" in audit_page.answer(audited)[0]
    assert any("--apart" in line for line in audit_page.findings(audited))


@pytest.mark.slow
def test_all_files_have_the_same_numbers(planted, written):
    out, lines = written
    tree = json.loads((out / "results.json").read_text())
    assert tree["bugs"] == ["hair"]
    assert next(row["attribute"] for row in tree["ranked"]) == "hair"
    assert tree["ranked"][3]["drop"] is None
    ranked = pd.read_csv(out / "tables/ranked.csv")
    assert ranked["drop"][0] == pytest.approx(tree["ranked"][0]["drop"])
    curves = pd.read_csv(out / "tables/curves.csv")
    assert len(curves) == 3 * 17
    hair = curves[(curves["attribute"] == "hair") & (curves["level"] == "C6")]
    assert hair["drop"].item() == pytest.approx(ranked["drop"][0])
    cells = pd.read_csv(out / "tables/cells.csv")
    assert cells.query("attribute == 'hair'")["images"].sum() == N
    flips = pd.read_csv(out / "tables/flips.csv")
    assert (flips["agrees_decided"] == flips["class"]).all()
    assert (flips["disagrees_decided"] != flips["class"]).all()
    assert (flips["agrees_image"] >= 7).all()
    assert lines[-1] == f"written: {out / 'index.html'}"
    names = {"drops", "levels_hair", "likelihood_hair", "flips_hair"}
    drawn = {path.name for path in (out / "figures").iterdir()}
    assert drawn == {f"{n}.{kind}" for n in names for kind in ("svg", "pdf")}


def test_the_page_has_every_section_and_escapes_names(written):
    out, _ = written
    page = (out / "index.html").read_text()
    assert "<elk>" not in page and "&lt;elk&gt;" in page
    assert "sky &amp; sea" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    for words in (
        "not audited: other.pth",
        "a note",
        "Holm over 9 tests",
        "One network",
    ):
        assert words in page
    for section in ("ranked", "curves", "flips", "likelihood", "groups", "caveats"):
        assert f'<section id="{section}">' in page
    assert "cannot be tested: fewer than two" in page


def test_probabilities_are_those_of_the_extreme_sets(planted):
    hair = planted.candidates[0]
    (axes,) = audit_page.likelihood_figure(planted, hair).axes
    extreme = hair.result.kinds[hair.kind].extreme
    for patch, share in zip(axes.patches[::2], (extreme.within, extreme.outside)):
        heights, edges, _ = patch.get_data()
        assert heights.sum() == pytest.approx(100)
        right = edges[:-1] >= 0.5  # Correct images have a likelihood of at least 0.7.
        assert heights[right].sum() == pytest.approx(100 * share)


@pytest.mark.slow
def test_kinds_can_be_chosen(tmp_path):
    """With one kind, Holm counts as many tests as testable attributes."""
    audited = make_audit(kinds=("conditional",))
    list(audit_page.write([audited], tmp_path))
    ranked = pd.read_csv(tmp_path / "tables/ranked.csv")
    assert [*ranked["kind"].dropna()] == ["conditional"] * 3
    assert "marginal_drop" not in ranked
    assert set(pd.read_csv(tmp_path / "tables/curves.csv")["kind"]) == {"conditional"}
    assert "Holm over 3 tests" in (tmp_path / "index.html").read_text()


@pytest.mark.slow
def test_reference_networks_are_named(tmp_path):
    list(audit_page.write([make_audit(has_reference=True)], tmp_path))
    tree = json.loads((tmp_path / "results.json").read_text())
    assert tree["reference"] == ["clean"]
    assert "beyond those of 1 network of reference" in tree["basis"]
    expected = "All drops are those beyond the drops of the reference networks clean"
    assert any(expected in line for line in tree["caveats"])


@pytest.mark.slow
def test_several_models_have_separate_pages_and_an_overview(tmp_path):
    every = [make_audit(model="a/b"), make_audit(planted=False, model="a b")]
    lines = list(audit_page.write(every, tmp_path))
    assert len(lines) == 3
    tree = json.loads((tmp_path / "results.json").read_text())
    assert [model["bugs"] for model in tree["models"]] == [["hair"], []]
    folders = [model["folder"] for model in tree["models"]]
    assert folders == ["models/a-b-1", "models/a-b-2"]
    page = (tmp_path / "index.html").read_text()
    for folder in folders:
        assert (tmp_path / folder / "index.html").exists()
        assert f'href="{folder}/index.html"' in page
    assert "1 of 2 models have a bug" in page


def make_guessing_audit(networks=1, share=0.25):
    """Return the audit of a model that is right on a random share of images."""
    audited = make_audit(planted=False, networks=networks)
    correct = np.random.default_rng(1).random((networks, N)) < share
    return dataclasses.replace(audited, correct=correct)


def test_the_answer_begins_with_a_warning_for_a_network_at_chance():
    audited = make_guessing_audit()
    test = audited.chance
    assert test.verdict == "guesses"
    answer, _ = audit_page.answer(audited)
    numbers = rf"{100 * test.accuracy:.3g} %, chance is 25 %, 95 % interval \["
    assert re.match(
        rf"net: accuracy averaged over the classes is {numbers}.*\]: the network guesses; "
        r"the ranking below says nothing about what it relies on\. net: no attribute lowers",
        answer,
    )
    several = audit_page.answer(make_guessing_audit(networks=3))[0]
    assert "the networks guess; the ranking below" in several


def test_an_accuracy_below_chance_suggests_another_order_of_classes():
    assert "see --classes" in audit_page.answer(make_guessing_audit(share=0.05))[0]


def test_an_accuracy_just_above_chance_has_a_warning():
    audited = make_guessing_audit(networks=20, share=0.28)
    assert "less than 5.0 points above chance; the ranking below says little" in (
        audit_page.chance_sentence(audited)
    )


def test_a_network_above_chance_has_no_warning(planted):
    assert planted.chance.verdict == "above"
    assert audit_page.chance_sentence(planted) == ""


def test_a_network_that_follows_an_attribute_does_not_guess(planted):
    """The accuracy of such a network may be at chance, for example on cue conflicts."""
    biased = dataclasses.replace(planted, correct=make_guessing_audit().correct)
    answer, _ = audit_page.answer(biased)
    assert "no more often than by chance, but does not guess: it follows hair" in answer
    assert "says nothing" not in answer


def test_guessing_networks_among_several_are_named():
    audited = make_audit(networks=3, dead=2)
    assert audited.guessing == ["net-seed1", "net-seed2"]
    sentence = audit_page.chance_sentence(audited)
    assert sentence.startswith("2 of 3 networks guess (net-seed1, net-seed2)")


def test_results_have_the_accuracy_and_the_chance_level():
    audited = make_guessing_audit()
    results = audit_page.report(audited, []).results
    assert results["chance"] == {
        "accuracy": audited.chance.accuracy,
        "chance": 0.25,
        "low": audited.chance.low,
        "high": audited.chance.high,
        "verdict": "guesses",
        "guessing": ["net-seed0"],
    }
