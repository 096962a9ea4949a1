"""The page on vision-language models has the numbers of the stored answers."""

import csv
import itertools
import json
import pathlib
import re
import string

import numpy as np
import pytest
import scipy.stats

from jbias.data import tables
from studies import stored_answers, vision_language
from tests.answers import published

DOCS = pathlib.Path(__file__).parents[1] / "docs"
PAGE = (DOCS / vision_language.PAGE).read_text("utf-8")
TEMPLATE = vision_language.TEMPLATE.read_text("utf-8")
NUMBERS = json.loads(vision_language.NUMBERS.read_text("utf-8"))
LETTERS = {row.observer: [*row.answers] for row in stored_answers.read().itertuples()}
CAPTIONS = {
    (row.observer, row.reader): [*row.answers]
    for row in stored_answers.read_captions().itertuples()
}
CUES = [re.findall(r"([a-z]+)\d+", name) for name in tables.cue_conflicts()]
CLASSES = sorted({name for cue in CUES for name in cue})
SHAPE, TEXTURE = (
    np.array(["0123456789abcdef"[CLASSES.index(cue[i])] for cue in CUES])
    for i in (0, 1)
)
CONFLICT = SHAPE != TEXTURE
CHOICE = [name for name in LETTERS if name.startswith("vlm/vqa/")]
# Digits of the page that no result decides: names, designs and years.
CONSTANTS = (
    r"1,200|0\.05|80 templates|16 objects|336 pixels|96 %|49%|72%|ICLR 2025|\(2024\)|"
    r"\(2025\)|2024\]|of 2025|early 2024|GPT-4V|ResNet-50|L/14|95 %|16 classes|arxiv\.org/\S+|^\d\. "
)


def marks(letters):
    """Return (shape decisions, decisions for either cue) on images with a conflict."""
    letters = np.array(letters)[CONFLICT]
    is_shape = letters == SHAPE[CONFLICT]
    return is_shape, is_shape | (letters == TEXTURE[CONFLICT])


def bias(letters):
    """Return the shape bias."""
    is_shape, is_either = marks(letters)
    return is_shape.sum() / is_either.sum()


def p_value(first, second):
    """Return the p-value of a paired z-test, linearised."""
    values, influences = [], []
    for letters in (first, second):
        is_shape, is_either = (x.astype(float) for x in marks(letters))
        value = is_shape.sum() / is_either.sum()
        influences.append((is_shape - value * is_either) / is_either.sum())
        values.append(value)
    error = np.sqrt(np.sum((influences[0] - influences[1]) ** 2))
    return 2 * scipy.stats.norm.sf(abs(values[0] - values[1]) / error)


def holm(pvalues):
    """Return which hypotheses are rejected at 0.05 by Holm's method."""
    order = np.argsort(pvalues)
    factors = np.arange(len(order), 0, -1)
    adjusted = np.maximum.accumulate(np.array(pvalues)[order] * factors)
    rejected = np.empty(len(order), bool)
    rejected[order] = adjusted <= 0.05
    return rejected


def test_every_number_of_the_page_is_a_field():
    text = "".join(literal for literal, *_ in string.Formatter().parse(TEMPLATE))
    text = re.sub(CONSTANTS, "", text, flags=re.MULTILINE)
    assert not re.findall(r".{0,20}\d.{0,20}", text)


def test_the_page_is_the_template_with_the_stored_numbers():
    names = re.findall(r"\{(table_\w+)\}", TEMPLATE)
    assert len(names) == 5
    text = vision_language.text(NUMBERS, dict.fromkeys(names, "TABLE"))
    position = 0
    for piece in text.strip().split("TABLE"):
        position = PAGE.index(piece.strip(), position) + len(piece.strip())
    assert position == len(PAGE.strip())


@pytest.mark.slow
def test_page_figures_and_numbers_are_rebuilt_to_the_byte(tmp_path, monkeypatch):
    monkeypatch.setattr(vision_language, "NUMBERS", tmp_path / "numbers.json")
    assert vision_language.main([f"--out={tmp_path}"]) == 0
    assert json.loads((tmp_path / "numbers.json").read_text("utf-8")) == NUMBERS
    for name in (
        vision_language.PAGE,
        vision_language.FIGURE,
        vision_language.READERS_FIGURE,
    ):
        assert (tmp_path / name).read_bytes() == (DOCS / name).read_bytes(), name


def test_pairs_that_differ_are_those_of_an_own_test():
    """A linearised paired z-test without jbias: 124 of 171 pairs, 91 after Holm's method."""
    pvalues = [
        p_value(LETTERS[a], LETTERS[b]) for a, b in itertools.combinations(CHOICE, 2)
    ]
    pairs = NUMBERS["ranking"]["pairs"]
    assert pairs["all"] == len(pvalues) == 171
    assert pairs["unadjusted"] == np.sum(np.array(pvalues) <= 0.05) == 124
    assert pairs["different"] == holm(pvalues).sum() == 91


def test_vlms_are_compared_with_their_encoders():
    for prompt, key in (("None", "choice_0"), ("CLS", "choice_1")):
        pairs = [
            (LETTERS[f"vlm/vqa/{name}"], LETTERS[f"{encoder}_{prompt}"])
            for name, encoder in vision_language.ENCODERS.items()
        ]
        differences = np.array([bias(a) - bias(b) for a, b in pairs])
        rejected = holm([p_value(a, b) for a, b in pairs])
        stored = NUMBERS["encoders"][key]
        assert stored["larger"] == (rejected & (differences > 0)).sum()
        assert stored["smaller"] == (rejected & (differences < 0)).sum()
        assert stored["difference"]["mean"] == pytest.approx(
            differences.mean(), abs=1e-6
        )
    assert (
        NUMBERS["encoders"]["choice_0"]["larger"],
        NUMBERS["encoders"]["choice_0"]["smaller"],
        NUMBERS["encoders"]["choice_classifier"]["larger"],
    ) == (1, 3, 10)


def test_readers_of_captions_are_counted():
    names = [name for name in LETTERS if name.startswith("vlm/captioning/")]
    readings = {
        reader: [CAPTIONS[name, reader] for name in names]
        for reader in stored_answers.READERS
    }
    readings["embedding"] = [LETTERS[name] for name in names]
    for reader, letters in readings.items():
        stored = NUMBERS["readers"][reader]
        biases = [*map(bias, letters)]
        assert stored["bias"]["mean"] == pytest.approx(np.mean(biases), abs=1e-6)
        assert stored["bias"]["low"] == pytest.approx(min(biases), abs=1e-6)
        share = np.mean([marks(x)[1].mean() for x in letters])
        assert stored["decisions"]["mean"] == pytest.approx(share, abs=1e-6)
    words, plurals = (readings[x] for x in ("words", "plurals"))
    pvalues = [p_value(a, b) for a, b in zip(words, plurals, strict=True)]
    larger = holm(pvalues) & [bias(a) > bias(b) for a, b in zip(words, plurals)]
    assert NUMBERS["readers"]["words_plurals"]["larger"] == larger.sum() == 23
    forced = [
        np.array(label)[CONFLICT & (np.array(judged) == "-")]
        for label, judged in zip(readings["embedding"], readings["judge"], strict=True)
    ]
    assert NUMBERS["readers"]["forced"]["captions"] == sum(map(len, forced))


def test_every_encoder_has_a_source():
    """Each VLM is named once, and its row on the page names its encoder."""
    sources = vision_language.ENCODER_SOURCES
    models = [model for names, _, _ in sources for model in names]
    assert sorted(models) == sorted(vision_language.ENCODERS)
    titles = {row.observer: row.model for row in stored_answers.read().itertuples()}
    for names, is_trained, source in sources:
        encoders = {titles[f"{vision_language.ENCODERS[x]}_None"] for x in names}
        vlms = ", ".join(titles[f"vlm/vqa/{x}"] for x in names)
        assert f"| {vlms} | {encoders.pop()} | {is_trained} | {source} |" in PAGE
        assert "](https://" in source and not encoders


def test_vlms_are_compared_with_transformers_and_fine_tuned_clips():
    """Counts by the test of this file; all three fine-tuned CLIPs are on the page."""
    vits = [x for x in LETTERS if x.startswith("inet_classifier/vit")]
    products = [*itertools.product(CHOICE, vits)]
    rejected = holm([p_value(LETTERS[a], LETTERS[b]) for a, b in products])
    larger = [bias(LETTERS[a]) > bias(LETTERS[b]) for a, b in products]
    stored = NUMBERS["transformers"]
    assert stored["pairs"]["all"] == len(products) == 19 * stored["models"]
    assert stored["pairs"]["larger"] == (rejected & larger).sum()
    gpt, vit = LETTERS["vlm/vqa/openai_vision"], LETTERS[vision_language._VIT_B]
    pvalue = p_value(gpt, vit)
    # jbias counts four extra images in the standard error, of some 800 decisions.
    assert stored["gpt"]["pvalue"] == pytest.approx(pvalue, abs=1e-3)
    assert pvalue > 0.05 and bias(gpt) > bias(vit)  # "does not differ from"
    fine_tuned = [x for x in vits if "_clip_" in x]
    assert {*fine_tuned} == {*vision_language.FINE_TUNED}
    assert stored["fine_tuned_clips"] == len(fine_tuned) == 3
    for name in fine_tuned:
        assert f"{bias(LETTERS[name]):.3f} (" in NUMBERS["encoders"]["fine_tuned"]
    clip = bias(LETTERS["clip/ViT_L_14_336_openai_None"])
    assert max(bias(LETTERS[name]) for name in fine_tuned) < clip
    top = max(fine_tuned, key=lambda name: bias(LETTERS[name]))
    vlms = [
        f"vlm/vqa/{name}"
        for name, encoder in vision_language.ENCODERS.items()
        if encoder in vision_language.CLASSIFIERS
    ]
    rejected = holm([p_value(LETTERS[name], LETTERS[top]) for name in vlms])
    larger = rejected & [bias(LETTERS[name]) > bias(LETTERS[top]) for name in vlms]
    assert NUMBERS["encoders"]["choice_largest_fine_tuned"]["larger"] == larger.sum()


def test_bounds_of_unanswered_images():
    letters = np.array(LETTERS["vlm/vqa/openai_vision"])
    is_shape, is_either = marks(letters)
    unanswered = (letters[CONFLICT] == "-").sum()
    total = is_either.sum() + unanswered
    stored = NUMBERS["unanswered"]["gpt"]
    assert (is_shape.sum(), is_either.sum(), unanswered) == (401, 837, 126)
    expected = is_shape.sum() / total, (is_shape.sum() + unanswered) / total
    np.testing.assert_allclose(stored["bounds"], expected, atol=1e-6)
    nexts = sorted(map(bias, (LETTERS[name] for name in CHOICE)))
    assert nexts[0] == pytest.approx(stored["bias"], abs=1e-6)
    # The page says that the data do not order the last two.
    assert stored["bounds"][0] < nexts[1] < stored["bounds"][1]


def test_statements_without_numbers_hold():
    """The words of the page that no field decides."""
    people, groups = NUMBERS["people"], NUMBERS["people"]["groups"]
    assert groups["cnn"]["shape_bias"]["high"] < groups["choice"]["shape_bias"]["low"]
    assert people["upper"] < people["people_lower"]
    assert people["stylized"]["shape_bias"] > groups["choice"]["shape_bias"]["high"]
    stylized = people["stylized"]["like_people"]
    assert stylized < groups["choice"]["like_people"]["mean"]
    assert people["accuracy_like"]["rho"] > people["bias_like"]["rho"]
    assert people["alike"]["accuracy"] == groups["choice"]["accuracy"]["high"]
    low, high = (groups["people"]["like_people"][x] for x in ("low", "high"))
    assert low < people["alike"]["like_people"] < high
    prompts = NUMBERS["prompts"]
    assert prompts["pairs"]["different"] <= 1 and prompts["shares"]["model"] > 0.99
    agreement = NUMBERS["encoders"]["agreement"]
    assert agreement["models"] == NUMBERS["encoders"]["choice_0"]["all"]
    clips = {x for x in LETTERS if x.startswith("clip/") and x.endswith("_None")}
    twins = {"clip/ViT_L_14_openai", "clip/ViT_L_14_336_openai"}
    num_largest = 0
    for name, encoder in vision_language.ENCODERS.items():
        own_clips = twins if encoder in twins else {encoder}
        shares = {
            clip.removesuffix("_None"): np.mean(
                (np.array(LETTERS[clip]) == LETTERS[f"vlm/vqa/{name}"])[CONFLICT]
            )
            for clip in clips
        }
        own_share = shares[encoder if encoder not in twins else max(twins, key=len)]
        num_largest += own_share > max(
            v for k, v in shares.items() if k not in own_clips
        )
    assert agreement["own_is_largest"] == num_largest
    assert agreement["others"] == len(clips) - 2
    pictures, pairs = NUMBERS["pictures"], NUMBERS["ranking"]["pairs"]
    assert (pictures["shapes"], pictures["textures"]) == (160, 48)
    assert pictures["different"] < pairs["different"]
    assert pictures["unadjusted"] < pairs["unadjusted"]
    tasks = NUMBERS["tasks"]
    assert tasks["words"]["larger"] == tasks["models"] > tasks["embedding"]["larger"]
    percentiles = NUMBERS["ranking"]["ninth"]["percentiles"]
    assert np.ptp(percentiles) < np.ptp(NUMBERS["ranking"]["ninth"]["rank"])


@published.needed
def test_stored_readings_are_those_of_the_published_captions():
    """Read again by a few lines of this test, for the captions of the folder."""
    plurals = {f"{name}s": name for name in CLASSES} | {"knives": "knife"}
    for path in sorted(published.VLM.glob("vlm/captioning/*.csv")):
        name = re.sub(r"^(\d{8}_\d{6}|2024xxxx_yyyyyy)_", "", path.stem)
        with path.open(newline="", encoding="utf-8") as file:
            rows = {row["image"]: row for row in csv.DictReader(file)}
        for i, image in enumerate(tables.cue_conflicts()):
            words = re.findall("[a-z]+", rows[image]["response"].lower())
            singular = {word for word in words if word in CLASSES}
            either = singular | {plurals[word] for word in words if word in plurals}
            letters = {*re.findall(r"\b[A-P]\b", rows[image]["pred_llm_judge"])}
            for reader, expected in (
                ("words", singular),
                ("plurals", either),
                ("judge", {CLASSES["ABCDEFGHIJKLMNOP".index(x)] for x in letters}),
            ):
                stored = CAPTIONS[f"vlm/captioning/{name}", reader][i]
                if len(expected) == 1:
                    (decided,) = expected
                    assert stored == "0123456789abcdef"[CLASSES.index(decided)]
                else:
                    assert stored == ("+" if expected else "-")
