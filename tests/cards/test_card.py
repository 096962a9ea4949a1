"""Numbers of cards are those of the decisions; cards of few decisions are refused."""

import json
import pathlib
import shutil
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy import stats

from jbias.answers import letter_answers
from jbias.cards import badge, card, cli, eval_results, numbers, section, verify
from jbias.measures import critical_band, decisions, spectral_bias
from tests.answers import published
from tests.cards import planted


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Return results with 60 shape, 90 texture, 40 other decisions and 10 unanswered images."""
    folder = tmp_path_factory.mktemp("planted")
    return planted.measure(folder, planted.decide(60, 90, 40, 10))


def test_numbers_are_the_counts_of_planted_decisions(measured, tmp_path):
    content = planted.read(planted.write_card(measured, tmp_path))
    by_name = {number["name"]: number for number in content["numbers"]}
    expected = {
        "shape_bias": (60, 150),
        "accuracy_shape": (60, 200),
        "accuracy_texture": (90, 200),
    }
    assert by_name.keys() == expected.keys()
    for name, (count, n) in expected.items():
        number = by_name[name]
        assert (number["value"], number["count"], number["n"]) == (count / n, count, n)
        interval = stats.binomtest(count, n).proportion_ci(method="wilson")
        ends = number["lower"], number["upper"]
        np.testing.assert_allclose(ends, [interval.low, interval.high], rtol=1e-12)
        assert number["neither"] == {"count": 40, "n": 200}
        assert number["unanswered"] == {"count": 10, "n": 200}
    assert content["model"]["name"] == "planted" and not content["doubts"]
    entry = content["stimuli"]["cue-conflict"]
    assert entry["name"] == "geirhos/cue-conflict"
    assert (entry["images"], entry["published"]) == (200, 1280)


def test_the_table_of_a_card_is_measured_to_the_same_card(measured, tmp_path):
    folder = planted.write_card(measured, tmp_path / "first")
    table = tmp_path / "planted.csv"
    shutil.copy(folder / "decisions/cue-conflict.csv", table)
    flags = [f"--out={tmp_path / 'measured'}", f"--cards={tmp_path / 'second'}"]
    assert cli.main([str(table), *flags]) == 0
    again = planted.read(tmp_path / "second/planted")
    assert again["numbers"] == planted.read(folder)["numbers"]


def test_fewer_than_the_smallest_number_of_decisions_are_refused(tmp_path, capsys):
    too_few = planted.measure(tmp_path, planted.decide(50, 49, 30, 0), name="few")
    assert cli.main([too_few, f"--cards={tmp_path / 'cards'}"]) == 1
    assert "at least 100 decisions for either cue" in capsys.readouterr().err
    assert not (tmp_path / "cards").exists()
    enough = planted.measure(tmp_path, planted.decide(50, 50, 30, 0), name="enough")
    folder = planted.write_card(enough, tmp_path / "cards")
    assert not verify.verify(folder).differences


def test_the_smallest_number_bounds_the_interval_by_ten_points():
    def reach(n):
        return max(
            max(count / n - lower, upper - count / n)
            for count in range(n + 1)
            for lower, upper in [decisions.wilson_interval(count, n)]
        )

    assert reach(card.MIN_DECISIONS) < 0.1
    assert reach(card.MIN_DECISIONS // 2) > 0.13


@pytest.mark.slow
def test_error_consistency_is_that_of_the_measure(tmp_path):
    """The decisions of a stored model, compared with all ten people."""
    rows = letter_answers.read(str(letter_answers.ANSWERS))
    row = next(row for row in rows if "llava_1_5_7b" in row["observer"])
    (observer,) = letter_answers.to_observers([row])
    answers = [*observer.classes, "na"]
    decided = {
        image: answers[i] for image, i in zip(observer.images, observer.decision)
    }
    people = planted.write_people(tmp_path / "people", 10)
    measured = planted.measure(tmp_path, decided, f"--humans={people}")
    folder = planted.write_card(measured, tmp_path)
    content = planted.read(folder)
    by_name = {number["name"]: number for number in content["numbers"]}
    records = (pathlib.Path(measured) / "evals/human@cue-conflict.jsonl").read_text()
    recorded = {x["metric"]: x["value"] for x in map(json.loads, records.splitlines())}
    number = by_name["error_consistency"]
    for key, ending in {"value": "", "lower": "_lower", "upper": "_upper"}.items():
        expected = recorded[f"error_consistency{ending}"]
        assert number[key] == pytest.approx(expected, rel=1e-12)
    assert by_name["shape_bias"]["count"] == observer.shape_bias.n_shape
    assert not verify.verify(folder).differences


@pytest.mark.slow
def test_other_answers_of_people_are_not_on_the_card(tmp_path):
    people = planted.write_people(tmp_path / "people", 3)
    decided = dict.fromkeys(planted.CONFLICTS, "na") | planted.decide(60, 90, 40, 0)
    measured = planted.measure(tmp_path, decided, f"--humans={people}")
    folder = planted.write_card(measured, tmp_path)
    content = planted.read(folder)
    assert "other answers of people" in content["left_out"][0]
    assert "error_consistency" not in {x["name"] for x in content["numbers"]}
    assert not verify.verify(folder).differences


def test_records_of_other_decisions_are_refused(measured, tmp_path, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(measured, copy)
    path = copy / "evals/shape_bias@cue-conflict.jsonl"
    changed = path.read_text().replace("0.4,", f"{61 / 151},")
    changed = changed.replace('"count": 60, "n": 150', '"count": 61, "n": 151')
    path.write_text(changed)
    assert cli.main([str(copy), f"--cards={tmp_path / 'cards'}"]) == 1
    assert "must be that of the decisions" in capsys.readouterr().err


def test_frequencies_are_the_numbers_of_their_measures(tmp_path):
    band_names = ["noise 0"] + [
        critical_band.condition_name(sigma, frequency)
        for sigma in critical_band.SIGMAS[1:]
        for frequency in critical_band.octave_frequencies(32)
    ]
    filters = [
        spectral_bias.condition_name(cutoff, high=high)
        for high in (False, True)
        for cutoff in spectral_bias.CUTOFFS
    ]
    options = {"draws": 100, "seed": 2, "side": 32}
    spectral = planted.filtered_table(
        "spectral", [spectral_bias.CLEAN, *filters], num_images=40, **options
    )
    band = planted.filtered_table("critical_band", band_names, num_images=40, **options)
    cues = planted.conflict_table(planted.decide(60, 90, 40, 0))
    content = card.make(planted.results(cues, spectral, band), str(tmp_path / "card"))
    by_name = {x["name"]: x for x in content["numbers"]}
    expected = spectral_bias.numbers(spectral.by_condition, draws=100, seed=2)
    expected += critical_band.bvg_numbers(
        band.by_condition, side=32, draws=100, seed=2, continuous=False
    )
    value_of = {x.metric: x.value for x in expected if not x.condition}
    for name, metric in {
        "low_frequency_bias": "low_freq_bias",
        "high_frequency_bias": "high_freq_bias",
        "critical_band_bandwidth": "critical_band_bandwidth",
    }.items():
        assert by_name[name]["value"] == value_of[metric]
        assert by_name[name]["lower"] == value_of[f"{metric}_lower"]
        assert (by_name[name]["n"], by_name[name]["seed"]) == (40, 2)
    assert not verify.verify(tmp_path / "card").differences


def test_guesses_and_constant_answers_are_doubted(tmp_path):
    guesses = planted.conflict_table(planted.decide(60, 60, 1080, 0))
    assert "guessing" in numbers.doubts([guesses])[0]
    constant = {name: "cat" for name in planted.CONFLICTS}
    lines = numbers.doubts([planted.conflict_table(constant)])
    assert any("is called 'cat'" in line for line in lines)
    assert not numbers.doubts([planted.conflict_table(planted.decide(60, 60, 400, 0))])
    content = card.make(planted.results(guesses), str(tmp_path / "card"))
    assert "no more than guessing" in badge.draw(content)
    assert "**Doubt:**" in section.write(content)


def test_guesses_are_counted_among_answered_images(tmp_path):
    """A model with few answers that are for a cue is no guesser, but its answers are a selection."""
    refuser = planted.conflict_table(planted.decide(80, 40, 8, 1072))
    (line,) = numbers.doubts([refuser])
    assert line.startswith("1,072 of 1,200 conflicts on cue-conflict have no answer")
    content = card.make(planted.results(refuser), str(tmp_path / "card"))
    assert "66.7 %" in badge.draw(content) and line in section.write(content)
    guesser = planted.conflict_table(planted.decide(55, 55, 770, 320))
    assert "guessing" in numbers.doubts([guesser])[0]


def test_a_shape_bias_of_guesses_is_nowhere_claimed(tmp_path):
    guesses = planted.conflict_table(planted.decide(60, 60, 1080, 0))
    hub = eval_results.parse("owner/set")
    content = card.make(planted.results(guesses), str(tmp_path / "card"), hub=hub)
    assert "shape_bias" not in eval_results.write(content)
    assert "accuracy_shape" in eval_results.write(content)
    rows = section.write(content).splitlines()
    (row,) = [x for x in rows if x.startswith("| shape bias |")]
    assert "| no claim | no claim |" in row and "50.0" not in row


HOSTILE = "a<b>&\"'|`*_[x](y)\n</title><script>"


def test_badge_is_xml_of_twenty_pixels_with_a_title(tmp_path):
    cues = planted.conflict_table(planted.decide(60, 90, 40, 0))
    for name in ("net", HOSTILE):
        results = planted.results(cues, name=name)
        content = card.make(results, str(tmp_path / "card"))
        root = ElementTree.fromstring(badge.draw(content))
        space = "{http://www.w3.org/2000/svg}"
        assert root.get("height") == "20"
        title = root.findtext(f"{space}title")
        expected = (
            "40.0 %, 95 % interval 32.5 to 48.0 %, n = 150 decisions for either cue on 190 "
            "images whose cues conflict, of geirhos/cue-conflict (190 of 1,280 images)"
        )
        assert expected in title and name in title
        texts = [text.text for text in root.iter(f"{space}text")]
        counts = "n = 150 for either cue of 190 conflicts, 190 of 1,280 images"
        assert texts == [
            "shape bias on geirhos/cue-conflict",
            f"40.0 % [32.5, 48.0], {counts}",
        ]
        lengths = [float(x.get("textLength")) for x in root.iter(f"{space}text")]
        assert sum(lengths) < float(root.get("width")) < sum(lengths) + 40


def test_section_has_a_row_per_number_and_no_html(tmp_path):
    cues = planted.conflict_table(planted.decide(60, 90, 40, 10))
    content = card.make(planted.results(cues, name=HOSTILE), str(tmp_path / "card"))
    text = section.write(content)
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 2 + len(content["numbers"])
    assert {row.replace("\\|", "").count("|") for row in rows} == {7}
    part = "200 of 1,280 images"
    start = (
        f"| shape bias | cue-conflict, {part} | 40.0 % | 32.5 to 48.0 (Wilson) | 150 "
    )
    assert start in text and f"numbers are of {part} of geirhos/cue-conflict" in text
    assert "is not an accuracy" in text and "20.0 % of these images" in text
    assert "the 5.0 % without an answer" in text
    assert HOSTILE not in text and "\n</title>" not in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name MODEL or --verify=CARD"),
        (["nowhere"], "nothing is at 'nowhere'"),
        (["--verify=nowhere"], "must be a card or its folder"),
        (["x", "--source=https://a.org"], "--source: must be given with --benchmark"),
        (["x", "--benchmark=a"], "--benchmark: must be OWNER/NAME"),
        (["x", "--benchmark=a/b", "--source=http://a.org"], "begin with https://"),
        (["MEASURED", "--size=8"], "--size: must be left out for"),
        (["MEASURED", "--suite.size=8"], "must be left out for measured results"),
        (["x", "--verify=y"], "MODEL: must be left out for --verify"),
    ],
)
def test_wrong_arguments_are_one_line(words, message, measured, capsys):
    words = [measured if word == "MEASURED" else word for word in words]
    assert cli.main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_a_folder_with_other_files_is_kept(measured, tmp_path, capsys):
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted/thesis.txt").write_text("mine")
    assert cli.main([measured, f"--cards={tmp_path}"]) == 1
    assert "must be a new folder, or that of a card" in capsys.readouterr().err
    assert (tmp_path / "planted/thesis.txt").read_text() == "mine"


def test_a_card_is_replaced_as_a_whole(measured, tmp_path):
    folder = planted.write_card(measured, tmp_path, "--benchmark=owner/set")
    assert (folder / ".eval_results/jbias.yaml").exists()
    (folder / "decisions/old.csv").write_text("old")
    planted.write_card(measured, tmp_path)
    assert not (folder / ".eval_results").exists()
    assert not verify.verify(folder).differences


@published.needed
def test_a_published_vision_language_model_has_a_card(tmp_path):
    path = next(published.VLM.glob("vlm/vqa/*llava_1_5_7b*.csv"))
    flags = [f"--out={tmp_path / 'measured'}", f"--cards={tmp_path / 'cards'}"]
    assert cli.main([str(path), *flags]) == 0
    (folder,) = (tmp_path / "cards").iterdir()
    content = planted.read(folder)
    assert content["versions"]["reader"] == "published label"
    bias = content["numbers"][0]
    assert (bias["count"], bias["n"]) == (595, 969)
    assert not verify.verify(folder).differences


MODEL = """
import numpy as np
from jbias import data

shown = data.load("shapes", "cue_conflict", size=32)
known = (np.asarray(shown.images, np.float32) / 255).reshape(len(shown), -1)
columns = shown.columns
answer = np.where(np.arange(len(shown)) % 3, columns["texture"], columns["label"])


def predict(images):
    flat = np.asarray(images, np.float32).reshape(len(images), -1)
    distance = (known**2).sum(1) - 2 * flat @ known.T
    return 5 * np.eye(16, dtype=np.float32)[answer[distance.argmin(1)]]
"""


@pytest.mark.slow
def test_a_model_is_measured_and_its_card_has_the_numbers_of_its_records(tmp_path):
    """The card of a function of images; `jbias card` compares all numbers with the records."""
    (tmp_path / "model.py").write_text(MODEL)
    flags = [
        str(tmp_path / "model.py"),
        "--data=shapes",
        "--classes=folders",
        "--images=64",
        "--only=accuracy,shape_bias,spectral,critical_band",
        f"--out={tmp_path / 'measured'}",
        f"--cards={tmp_path / 'cards'}",
    ]
    assert cli.main(flags) == 0
    content = planted.read(tmp_path / "cards/model")
    by_name = {number["name"]: number for number in content["numbers"]}
    assert {"low_frequency_bias", "critical_band_bandwidth"} <= by_name.keys()
    bias = by_name["shape_bias"]
    assert (bias["count"], bias["n"]) == (160, 480)
    assert not verify.verify(tmp_path / "cards/model").differences
