"""`jbias report decisions`: numbers, figures and files of the page; errors in one line."""

import csv
import dataclasses
import html
import itertools
import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from jbias.answers import observers, scores, stimulus_names, tables
from jbias.report import decisions, document
from jbias.report.pages.decisions import (
    decision_plots,
    decisions_page,
    factor_section,
    standing,
    standing_sections,
)
from jbias.stats import consistency, ratios
from tests.answers import published

CLASSES = ("airplane", "bear", "bird", "cat")


def conflicts(count):
    """Return names of `count` stimuli of four classes, of which some have equal cues."""
    names = []
    for number in range(count):
        shape, texture = CLASSES[number % 4], CLASSES[(number // 4) % 4]
        names.append(f"{shape}{1 + number % 10}-{texture}{1 + number // 16 % 10}")
    return sorted(set(names))


def cues(image):
    """Return (shape, texture) of an image's name."""
    return re.fullmatch(r"([a-z]+)\d+-([a-z]+)\d+", image).groups()


def random_decisions(images, seed, *, shape=0.5, texture=0.3, none=0.05):
    """Return a decision per image: the shape, the texture, no answer, or any class."""
    rng = np.random.default_rng(seed)
    decided = []
    for image in images:
        draw = rng.random()
        if draw < shape:
            decided.append(cues(image)[0])
        elif draw < shape + texture:
            decided.append(cues(image)[1])
        elif draw < shape + texture + none:
            decided.append("None")
        else:
            decided.append(str(rng.choice(CLASSES)))
    return decided


def write(path, images, decided, *, header=("image", "pred_label"), extra=()):
    """Write a file of decisions; extra: further columns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(header)
        columns = [images, decided, *extra]
        table.writerows(np.transpose(columns).tolist())
    return path


IMAGES = conflicts(400)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder of two people and of a model with two tasks and three prompts."""
    root = tmp_path_factory.mktemp("answers")
    for number, (name, shape) in enumerate(
        {
            "people/cue-conflict_subject-01_session_1.csv": 0.9,
            "people/cue-conflict_subject-02_session_1.csv": 0.85,
            "vlm/vqa/alpha.csv": 0.5,
            "vlm/captioning/alpha.csv": 0.6,
            "vlm/vqa/beta.csv": 0.4,
            "vlm/captioning/beta.csv": 0.55,
            "clip/net_None.csv": 0.3,
            "clip/net_CLS.csv": 0.35,
            "clip/other_None.csv": 0.2,
            "clip/other_CLS.csv": 0.25,
        }.items()
    ):
        decided = random_decisions(
            IMAGES, number, shape=shape, texture=0.9 - shape if shape < 0.85 else 0.02
        )
        if "subject" in name:
            subject = re.search(r"subject-\d+", name)[0]
            write(
                root / name,
                [subject] * len(IMAGES),
                IMAGES,
                header=("subj", "imagename", "object_response"),
                extra=([x.replace("None", "na") for x in decided],),
            )
        else:
            write(root / name, IMAGES, decided)
    return root


@pytest.fixture(scope="module")
def page(folder, tmp_path_factory):
    """Return the written report of the folder and its results.json."""
    out = tmp_path_factory.mktemp("page")
    assert decisions.main([f"--decisions={folder}", f"--out={out}"]) == 0
    return out, json.loads((out / "results.json").read_text())


def by_pandas(path):
    """Return counts of a file by pandas alone: shape, texture, none, conflicts, right, n."""
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    column = "object_response" if "object_response" in frame else "pred_label"
    image = frame["imagename" if "imagename" in frame else "image"]
    stem = image.str.removesuffix(".png").str.split("_").str[-1]
    words = stem.str.extract(r"^([a-z]+)\d+-([a-z]+)\d+$")
    decided = frame[column].str.lower()
    conflict = words[0] != words[1]
    known = decided.isin({*words[0]})
    return {
        "shape": int((conflict & (decided == words[0])).sum()),
        "texture": int((conflict & (decided == words[1])).sum()),
        "unanswered": int((conflict & ~known).sum()),
        "conflicts": int(conflict.sum()),
        "right": int((decided == words[0]).sum()),
        "rows": len(frame),
    }


def test_numbers_of_the_page_are_those_of_the_files(folder, page):
    """Every count, shape bias and accuracy, recomputed with pandas from the files."""
    out, results = page
    rows = results["sets"]["cue-conflict"]["observers"]
    assert len(rows) == 10
    for row in rows:
        expected = by_pandas(row["file"])
        for key in ("shape", "texture", "unanswered", "conflicts", "rows"):
            assert row[key] == expected[key], (row["observer"], key)
        either = expected["shape"] + expected["texture"]
        assert row["shape_bias"] == expected["shape"] / either
        assert row["shape_bias_n"] == either
        assert row["accuracy"] == expected["right"] / expected["rows"]
        assert row["shape_bias_lower"] <= row["shape_bias"] <= row["shape_bias_upper"]
        assert row["sentence"] == (
            f"shape bias {row['shape_bias']:.3f} of {either:,} decisions; "
            f"{expected['unanswered']:,} of {expected['conflicts']:,} unanswered"
        )
    values = [row["shape_bias"] for row in rows]
    assert values == sorted(values, reverse=True)
    table = pd.read_csv(out / "tables/standing.csv")
    assert table["shape_bias"].tolist() == values


def test_the_standing_sorts_numbers_and_words(page):
    """Columns of words after columns of numbers are marked, so that the page sorts them as words."""
    text = (page[0] / "index.html").read_text()
    heads = re.findall(r'<th scope="col"( data-words)?[^>]*>([^<]*)</th>', text)[:9]
    assert [head for words, head in heads if words] == [
        *("Observer", "group", "task", "prompt")
    ]
    assert [head for words, head in heads if not words] == [
        *("shape bias", "of", "unanswered", "rank", "accuracy")
    ]


def test_ranks_contain_the_rank_and_the_narrower_interval(page):
    """The simultaneous interval contains the interval of the observer alone."""
    for row in page[1]["sets"]["cue-conflict"]["observers"]:
        low, high = row["shape_bias_rank_lower"], row["shape_bias_rank_upper"]
        assert 1 <= low <= row["shape_bias_rank"] <= high <= 10
        assert low <= row["shape_bias_rank_marginal_lower"]
        assert row["shape_bias_rank_marginal_upper"] <= high


def test_the_headline_counts_the_pairs_of_the_table(page):
    out, results = page
    pairs = pd.read_csv(out / "tables/pairs.csv")
    pairs = pairs[pairs["score"] == "shape bias"]
    assert len(pairs) == 45
    unadjusted = int((pairs["pvalue"] <= 0.05).sum())
    holm = int((pairs["adjusted"] <= 0.05).sum())
    assert 0 < holm < unadjusted < 45
    counts = results["sets"]["cue-conflict"]["count"]
    assert counts == {"pairs": 45, "unadjusted": unadjusted, "holm": holm}
    words = f"Of 45 pairs of observers, {unadjusted} differ in shape bias"
    assert words in results["headline"]
    assert f"and {holm} after Holm" in results["headline"]


def test_pairs_are_also_counted_with_shared_pictures_drawn(page, folder):
    """The names of images carry their two pictures; fewer pairs differ."""
    out, results = page
    panel = observers.panels(tables.read(str(folder)))["cue-conflict"]
    names = np.array(panel.images)[panel.is_conflict]
    pictures = [*np.char.partition(names, "-")[:, [0, 2]].T]
    score = scores.shape_bias(panel)
    compared = ratios.compare_ratios(
        score.numerator, score.denominator, clusters=pictures
    )
    unadjusted, holm = (
        int((p <= 0.05).sum()) for p in (compared.pvalue, compared.adjusted)
    )
    assert 0 < holm < results["sets"]["cue-conflict"]["count"]["holm"]
    text = (out / "index.html").read_text("utf-8")
    shapes, textures = (len({*x}) for x in pictures)
    assert f"these {shapes} shape and {textures} texture pictures" in text
    assert f"{unadjusted} differ without adjustment, and {holm} after Holm" in text


def test_the_headline_has_the_mean_and_range_of_each_group(page):
    """Before the numbers of pairs; a group with two tasks is shown by task."""
    results = page[1]
    rows = pd.DataFrame(results["sets"]["cue-conflict"]["observers"])
    rows["group"] += (" (" + rows["task"] + ")").fillna("")
    groups = rows.groupby("group")["shape_bias"]
    expected = groups.agg(["mean", "min", "max", "size"]).sort_values("mean")[::-1]
    assert [*expected.index] == ["people", "vlm (captioning)", "vlm (vqa)", "clip"]
    words = [
        f"{name} {row['mean']:.2f} ({row['min']:.2f} to {row['max']:.2f}, "
        f"{row['size']:.0f} observers)"
        for name, row in expected.iterrows()
    ]
    start = f"Mean shape bias (range): {', '.join(words)}. Of 45 pairs"
    assert results["headline"].startswith(start)
    largest = results["sets"]["cue-conflict"]["observers"][0]
    assert f"Largest: {largest['observer']}, {largest['sentence']}" in results["basis"]


def test_the_signs_of_pairs_are_those_of_the_scores(page):
    """Rows follow the page; `larger` names the observer with the larger score, by each p-value."""
    out, results = page
    observed = results["sets"]["cue-conflict"]["observers"]
    names = [row["observer"] for row in observed]
    pairs = pd.read_csv(out / "tables/pairs.csv", keep_default_na=False)
    for score, key in (("shape bias", "shape_bias"), ("accuracy", "accuracy")):
        values = {row["observer"]: row[key] for row in observed}
        frame = pairs[pairs["score"] == score]
        order = [*zip(frame["first"], frame["second"], strict=True)]
        assert order == [*itertools.combinations(names, 2)]
        for row in frame.itertuples():
            difference = values[row.first] - values[row.second]
            assert row.first_minus_second == pytest.approx(difference, abs=1e-12)
            assert row.lower <= row.first_minus_second <= row.upper
            larger = row.first if difference > 0 else row.second
            assert row.larger == (larger if row.pvalue <= 0.05 else "")
            assert row.larger_after_holm == (larger if row.adjusted <= 0.05 else "")
    assert {"", *names} > {*pairs["larger"]}


def test_the_page_says_for_each_pair_which_is_larger(page):
    """Two menus with the observers in order, and a sentence per row of the table of pairs."""
    out, results = page
    text = html.unescape((out / "index.html").read_text())
    rows = results["sets"]["cue-conflict"]["observers"]
    names = [row["observer"] for row in rows]
    menus = re.findall(r"<select[^>]*>(.*?)</select>", text)
    assert [re.findall("<option>(.*?)</option>", menu) for menu in menus] == [names] * 2
    (block,) = re.findall(r'<div class="pairs">(.*?)</details>', text, re.DOTALL)
    sentences = re.findall("<li>(.*?)</li>", block)
    pairs = pd.read_csv(out / "tables/pairs.csv", keep_default_na=False)
    pairs = pairs[pairs["score"] == "shape bias"]
    assert len(sentences) == len(pairs)
    for sentence, row in zip(sentences, pairs.itertuples(), strict=True):
        smaller = row.second if row.larger == row.first else row.first
        start = f"{row.larger} has more shape bias than {smaller}"
        expected = start if row.larger else "No difference in shape bias is shown."
        assert sentence.startswith(expected)
        doubt = ", but not after adjustment for all pairs"
        assert (doubt in sentence) == bool(row.larger and not row.larger_after_holm)
        sign = "+" if row.first_minus_second > 0 else ""
        difference = f"{sign}{row.first_minus_second:.3f} [".replace("-", "−")
        assert f"{row.first} less {row.second}: {difference}" in sentence


def test_factors_have_a_verdict_and_their_levels_are_explained(folder, page):
    """Medians of differences between levels and between models decide the words."""
    text = html.unescape((page[0] / "index.html").read_text())
    factors = page[1]["sets"]["cue-conflict"]["factors"]
    rows = page[1]["sets"]["cue-conflict"]["observers"]
    bias = {row["observer"]: row["shape_bias"] for row in rows}
    levels = [abs(bias[f"{x}_CLS"] - bias[f"{x}_None"]) for x in ("net", "other")]
    models = [abs(bias[f"net_{x}"] - bias[f"other_{x}"]) for x in ("CLS", "None")]
    sizes = factors["prompt"]["sizes"]
    assert sizes["levels"] == pytest.approx(np.median(levels), abs=1e-12)
    assert sizes["models"] == pytest.approx(np.median(models), abs=1e-12)
    ratio = sizes["levels"] / sizes["models"]
    word = "less" if ratio < 0.5 else "more" if ratio > 2 else "about as much"
    assert f"the prompt matters {word}" in text
    assert "none: None in the file's name, which is no template" in text
    assert "vqa: a question with options" in text


def test_a_small_share_of_variance_is_set_beside_the_mean_difference(tmp_path):
    """Levels that differ a little for all models, and models that differ much."""
    for name, shape in (("a", 0.1), ("b", 0.5), ("c", 0.8)):
        decided = random_decisions(IMAGES, 0, shape=shape, texture=0.9 - shape)
        write(tmp_path / f"{name}_None.csv", IMAGES, decided)
        textures = [i for i, x in enumerate(IMAGES) if decided[i] == cues(x)[1]]
        for i in textures[:6]:
            decided[i] = cues(IMAGES[i])[0]
        write(tmp_path / f"{name}_CLS.csv", IMAGES, decided)
    panel = observers.panels(tables.read(str(tmp_path)))["cue-conflict"]
    ranked = standing.Standing(panel)
    crossed = factor_section.find_crossed(ranked, "prompt")
    (mean,) = factor_section.mean_differences(ranked, crossed).itertuples()
    components = factor_section.variance_components(ranked, crossed)
    assert mean.lower > 0 and components["share"][1] < 0.05
    (table,) = (
        x
        for x in factor_section.factor_section(ranked)
        if getattr(x, "name", "") == "prompt_variance"
    )
    words = f"does not contradict the mean difference of +{mean.difference:.3f}"
    assert words in table.caption
    assert f"{mean.difference**2 / 2:.5f}, is the variance" in table.caption


def test_a_further_observer_changes_no_unadjusted_row_of_a_pair(folder, tmp_path):
    """To the bit, also if the further observer has other images."""
    files = sorted(folder.rglob("alpha.csv"))
    third = write(tmp_path / "third.csv", IMAGES[:50], random_decisions(IMAGES[:50], 9))
    frames = []
    for paths in (files, [*files, third]):
        panel = observers.panels(tables.read([*map(str, paths)]))["cue-conflict"]
        frame = standing.Standing(panel).pair_frame("shape_bias")
        is_pair = frame["first"].str.startswith("alpha")
        is_pair &= frame["second"].str.startswith("alpha")
        row = frame[is_pair].drop(columns=["adjusted", "larger_after_holm"])
        assert len(row) == 1
        frames.append(row.reset_index(drop=True))
    pd.testing.assert_frame_equal(frames[0], frames[1], check_exact=True)


def test_error_consistency_is_that_of_the_statistics(folder, page):
    """Each kappa, and the means with people, from the files by pandas."""
    results = page[1]["sets"]["cue-conflict"]
    correct = {}
    for row in results["observers"]:
        frame = pd.read_csv(row["file"], dtype=str, keep_default_na=False)
        image = frame["imagename" if "imagename" in frame else "image"]
        column = "object_response" if "object_response" in frame else "pred_label"
        right = frame[column] == image.str.extract(r"^([a-z]+)\d+")[0]
        correct[row["observer"]] = right.set_axis(image).sort_index().to_numpy()
    kappas = {}
    for row in results["consistency"]:
        names = row["first"], row["second"]
        expected = consistency.error_consistency(*(correct[name] for name in names))
        assert row["kappa"] == expected.kappa
        assert row["num_images"] == len(IMAGES)
        kappas[frozenset(names)] = row["kappa"]
    people = ["subject-01", "subject-02"]
    for row in results["people"]:
        partners = [name for name in people if name != row["observer"]]
        mean = np.mean(
            [kappas[frozenset((row["observer"], name))] for name in partners]
        )
        assert row["value"] == pytest.approx(mean, abs=1e-12)
        assert row["lower"] < row["value"] < row["upper"]
    assert results["among_people"][0] == pytest.approx(kappas[frozenset(people)])


def test_variance_components_are_those_of_a_crossed_analysis_of_variance(folder):
    """By mean squares: model (MS_m - MS_e) / levels, level (MS_l - MS_e) / models."""
    panel = observers.panels(tables.read(str(folder)))["cue-conflict"]
    ranked = standing.Standing(panel)
    for factor, models in (("task", ["alpha", "beta"]), ("prompt", ["net", "other"])):
        crossed = factor_section.find_crossed(ranked, factor)
        assert sorted(crossed.observers) == models
        x = np.array(
            [
                [
                    ranked.main.value[crossed.observers[model][level]]
                    for level in crossed.levels
                ]
                for model in crossed.complete
            ]
        )
        k, n = x.shape
        residuals = x - x.mean(1, keepdims=True) - x.mean(0) + x.mean()
        error = (residuals**2).sum() / ((k - 1) * (n - 1))
        between = n * x.mean(1).var(ddof=1)
        levels = k * x.mean(0).var(ddof=1)
        frame = factor_section.variance_components(ranked, crossed)
        variance = frame["variance"].tolist()
        expected = [(between - error) / n, (levels - error) / k, error]
        assert variance[:3] == pytest.approx(expected, abs=1e-12)
        assert variance[3] == pytest.approx(sum(expected), abs=1e-12)


def test_differences_of_levels_are_those_of_the_pairs(folder):
    """The sign follows the order of the levels; Holm is over these rows alone."""
    panel = observers.panels(tables.read(str(folder)))["cue-conflict"]
    ranked = standing.Standing(panel)
    crossed = factor_section.find_crossed(ranked, "task")
    frame = factor_section.difference_frame(ranked, crossed)
    assert frame["level"].tolist() == ["captioning"] * 2
    for row in frame.itertuples():
        first, second = (crossed.observers[row.model][x] for x in (row.level, row.less))
        value = ranked.main.value
        assert row.difference == pytest.approx(value[first] - value[second], abs=1e-15)
        assert row.lower < row.difference < row.upper
    smallest = frame["pvalue"].min()
    assert frame["adjusted"].min() == pytest.approx(min(1, 2 * smallest))
    means = factor_section.mean_differences(ranked, crossed)
    assert means["difference"][0] == pytest.approx(frame["difference"].mean())


def test_the_multi_comparison_matrix_counts_images(folder):
    """Wins are images on which the row decides for the shape and the column for the texture."""
    panel = observers.panels(tables.read(str(folder)))["cue-conflict"]
    ranked = standing.Standing(panel)
    matrix = standing_sections.matrix(ranked)
    shape = panel.decision == panel.label
    texture = panel.decision == panel.texture
    conflict = panel.is_conflict
    for i, j in itertools.permutations(range(len(panel.names)), 2):
        wins = (shape[i] & texture[j] & conflict).sum()
        both = (shape[i] | texture[i]) & (shape[j] | texture[j]) & conflict
        assert matrix.wins[i, j] == wins
        assert matrix.wins[i, j] + matrix.ties[i, j] + matrix.losses[i, j] == both.sum()
        assert matrix.pvalues[i, j] == matrix.pvalues[j, i]
        difference = ranked.main.value[i] - ranked.main.value[j]
        assert matrix.differences[i, j] == pytest.approx(difference, abs=1e-12)


def test_two_files_give_a_page_without_factors_and_people(tmp_path, capsys):
    for number in (1, 2):
        path = tmp_path / f"in/net{number}.csv"
        write(path, IMAGES, random_decisions(IMAGES, number))
    out = tmp_path / "out"
    assert decisions.main(["--decisions", str(tmp_path / "in"), f"--out={out}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"written: {out / 'index.html'}"
    text = (out / "index.html").read_text()
    sections = re.findall(r'<section id="(\w+)"', text)
    expected = ["standing", "ranks", "pairs", "consistency", "answers", "methods"]
    assert sections == expected
    assert "Of 1 pair of observers" in lines[0]


def test_a_single_file_has_a_headline_and_no_pairs(tmp_path, capsys):
    path = write(tmp_path / "net.csv", IMAGES, random_decisions(IMAGES, 1))
    out = tmp_path / "out"
    assert decisions.main(["--decisions", str(path), f"--out={out}"]) == 0
    line = capsys.readouterr().out.splitlines()[0]
    assert re.match(
        r"net: shape bias 0\.\d{3} of \d+ decisions; \d+ of \d+ unanswered", line
    )
    assert "ranks" not in re.findall(
        r'<section id="(\w+)"', (out / "index.html").read_text()
    )


def test_a_set_without_textures_has_accuracy_only(tmp_path, capsys):
    """Two sets on a page: the titles of sections name the set."""
    names = [f"{i}.png" for i in range(60)]
    labels = [CLASSES[i % 4] for i in range(60)]
    rng = np.random.default_rng(0)
    for net in ("a", "b"):
        decided = [
            x if rng.random() < 0.7 else str(rng.choice(CLASSES)) for x in labels
        ]
        decided[0] = "none"
        write(
            tmp_path / f"in/plain/{net}.csv",
            names,
            labels,
            header=("image", "label", "prediction"),
            extra=(decided,),
        )
        write(tmp_path / f"in/{net}.csv", IMAGES, random_decisions(IMAGES, ord(net)))
    out = tmp_path / "out"
    assert decisions.main(["--decisions", str(tmp_path / "in"), f"--out={out}"]) == 0
    sets = json.loads((out / "results.json").read_text())["sets"]
    assert len(sets) == 2
    (plain,) = {*sets} - {"cue-conflict"}
    assert sets[plain]["score"] == "accuracy"
    for row in sets[plain]["observers"]:
        assert "shape_bias" not in row
        assert row["right"] + row["wrong"] + row["unanswered"] == 60
        assert row["sentence"].endswith("of 60 images; 1 of 60 unanswered")
    text = (out / "index.html").read_text()
    assert f"{plain}: Standing" in text
    assert (out / f"tables/pairs_{plain}.csv").exists()


def test_an_observer_without_a_decision_is_not_measured(tmp_path):
    """Never 0: a constant answer for neither cue, and no answer at all, have no shape bias."""
    images = [name for name in IMAGES if "cat" not in name]
    write(tmp_path / "in/net.csv", images, random_decisions(images, 1))
    write(tmp_path / "in/constant.csv", images, ["cat"] * len(images))
    write(tmp_path / "in/silent.csv", images, ["None"] * len(images))
    out = tmp_path / "out"
    assert decisions.main(["--decisions", str(tmp_path / "in"), f"--out={out}"]) == 0
    results = json.loads((out / "results.json").read_text())
    rows = {x["observer"]: x for x in results["sets"]["cue-conflict"]["observers"]}
    for name in ("constant", "silent"):
        assert rows[name]["shape_bias"] is None
        assert rows[name]["shape_bias_rank"] is None
        assert "shape bias not measured" in rows[name]["sentence"]
    assert rows["net"]["shape_bias_rank"] == 1
    text = (out / "index.html").read_text()
    assert text.count(">not measured<") == 2
    warnings = " ".join(results["warnings"])
    assert "constant (cat, 100% of" in warnings
    assert "Shape bias not measured" in warnings
    assert "Fewer than half of the images have an answer: silent" in warnings


def test_raw_words_are_parsed_again_and_reasons_are_counted(tmp_path):
    """Published decisions by default; with --parse=raw, those of the parser."""
    images = IMAGES[:40]
    words = [f"The answer is {cues(name)[0]}." for name in images]
    words[0], words[1] = "", "I am sorry, I cannot answer."
    decided = [cues(name)[1] for name in images]
    path = tmp_path / "net.csv"
    write(
        path,
        images,
        words,
        header=("image", "response", "pred_label"),
        extra=(decided,),
    )
    rows = {}
    for parse in ("published", "raw"):
        out = tmp_path / parse
        flags = ["--decisions", str(path), f"--out={out}", f"--parse={parse}"]
        assert decisions.main(flags) == 0
        results = json.loads((out / "results.json").read_text())
        (rows[parse],) = results["sets"]["cue-conflict"]["observers"]
    assert rows["published"]["shape_bias"] == 0
    assert rows["published"]["reasons"] == {}
    assert rows["raw"]["shape_bias"] == 1
    assert sum(rows["raw"]["reasons"].values()) == 2
    assert rows["raw"]["reasons"]["refusal"] == 1
    assert rows["raw"]["parser"] and not rows["published"]["parser"]
    raw, published_page = (
        (tmp_path / parse / "index.html").read_text() for parse in ("raw", "published")
    )
    assert "read from raw words by the parser of jbias" in raw
    assert "Reasons:" in raw and "2 unanswered images" in raw
    assert not re.search("Reasons:|Parser:|raw words by", published_page)
    frame = pd.read_csv(
        tmp_path / "raw/tables/unanswered.csv", keep_default_na=False
    ).set_index("image")
    assert frame.loc[images[:2], "words"].tolist() == words[:2]
    assert frame.loc[images[1], "reason"] == "refusal" and len(frame) == 2
    assert not (tmp_path / "published/tables/unanswered.csv").exists()


def test_numbers_of_unanswered_images_say_which_images_they_count(page):
    """Over all rows, and over the conflicts, in one cell and in one table."""
    out, results = page
    rows = pd.DataFrame(results["sets"]["cue-conflict"]["observers"])
    answers = pd.read_csv(out / "tables/answers.csv")
    for key in ("unanswered", "unanswered_rows"):
        assert answers[key].tolist() == rows[key].tolist()
    totals = rows[["unanswered_rows", "unanswered", "conflicts"]].sum()
    assert totals["unanswered_rows"] > totals["unanswered"]
    cell = (
        f"{totals['unanswered_rows']:,} of all rows; {totals['unanswered']:,} of "
        f"{totals['conflicts']:,} for shape bias"
    )
    assert cell in (out / "index.html").read_text()


def test_html_in_names_is_escaped(tmp_path):
    name = "<script>alert(1)</script>&\"'"
    for number, observer in enumerate((name, "b")):
        write(
            tmp_path / f"in/{number}.csv",
            [observer] * len(IMAGES),
            IMAGES,
            header=("subj", "imagename", "object_response"),
            extra=(random_decisions(IMAGES, number),),
        )
    out = tmp_path / "out"
    assert decisions.main(["--decisions", str(tmp_path / "in"), f"--out={out}"]) == 0
    text = (out / "index.html").read_text()
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in text
    for path in (out / "figures").iterdir():
        assert "<script>" not in path.read_text()


def test_a_table_of_names_gives_labels_and_groups(folder, tmp_path, capsys):
    names = tmp_path / "names.csv"
    names.write_text(
        "name,label,group\nnet_CLS,CLIP with a prompt,old/new\nsubject-01,Ada,\n"
        "unknown,x,y\n"
    )
    out = tmp_path / "out"
    flags = [f"--decisions={folder}", f"--out={out}", f"--names={names}"]
    assert decisions.main(flags) == 0
    results = json.loads((out / "results.json").read_text())
    groups = {
        row["observer"]: row["group"]
        for row in results["sets"]["cue-conflict"]["observers"]
    }
    assert groups["CLIP with a prompt"] == "old/new"
    assert groups["Ada"] == groups["subject-02"] == "people"
    assert groups["net_None"] == "clip"
    assert any("no observer is called 'unknown'" in x for x in results["warnings"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("label,group\na,b\n", "must have the column name"),
        ("name\na\n", "must have the column name, and label or group"),
        ("name,label\na,b\na,c\n", r":2: names must be unique"),
        ("name,label\nnet_CLS,x\nnet_None,x\n", "labels must be unique, got 'x'"),
    ],
)
def test_wrong_tables_of_names_are_refused_in_one_line(
    folder, tmp_path, capsys, text, message
):
    names = tmp_path / "names.csv"
    names.write_text(text)
    flags = [f"--decisions={folder}", f"--out={tmp_path / 'out'}", f"--names={names}"]
    assert decisions.main(flags) == 2
    captured = capsys.readouterr()
    assert len(captured.err.splitlines()) == 1
    assert re.search(message, captured.err)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("airplane1-bear2", "zebra")], "zebra"),
        ([("airplane1-bear2", "bear"), ("airplane1-bear2", "bear")], "decided"),
    ],
)
def test_wrong_files_are_refused_in_one_line(tmp_path, capsys, rows, message):
    images = [image for image, _ in rows]
    path = write(tmp_path / "net.csv", images, [decided for _, decided in rows])
    flags = ["--decisions", str(path), f"--out={tmp_path / 'out'}"]
    assert decisions.main(flags) == 2
    captured = capsys.readouterr()
    assert len(captured.err.splitlines()) == 1
    assert message in captured.err


def test_verdicts_of_more_observers_than_a_matrix_has_are_drawn(tmp_path):
    """From 21 observers on the figure has verdicts, in the order of the scores."""
    for number in range(21):
        decided = random_decisions(IMAGES, number, shape=0.3 + 0.02 * number)
        write(tmp_path / f"net{number}.csv", IMAGES, decided)
    panel = observers.panels(tables.read(str(tmp_path)))["cue-conflict"]
    ranked = standing.Standing(panel)
    verdict = standing_sections.verdict_matrix(ranked)
    assert (verdict == verdict.T).all()
    assert (np.diag(verdict) == -1).all()
    counts = standing_sections.count_pairs(ranked)
    upper = verdict[np.triu_indices(21, 1)]
    assert (upper == 0).sum() == counts["holm"]
    assert (upper <= 1).sum() == counts["unadjusted"]
    blocks = [*standing_sections.pair_section(ranked)]
    (figure,) = [x for x in blocks if isinstance(x, document.Figure)]
    assert "Verdicts" in figure.caption
    legend = [text.get_text() for text in figure.drawn.legends[0].get_texts()]
    assert legend == [*decision_plots.VERDICTS]


def test_observers_with_few_images_are_compared_on_common_images():
    """A pair without a common image has no p-value and no kappa, and no verdict."""
    label, texture = np.array([0, 1, 2]), np.array([1, 2, 0])
    panel = observers.Panel(
        observers=tuple(
            observers.Observer(
                name=name,
                dataset="cue-conflict",
                classes=CLASSES,
                images=("i",),
                label=label[:1],
                texture=texture[:1],
                decision=label[:1],
            )
            for name in "abc"
        ),
        images=("i", "j", "k"),
        label=label,
        texture=texture,
        decision=np.array([[0, 1, -2], [0, 2, -2], [-2, -2, 2]]),
    )
    ranked = standing.Standing(panel)
    pairs = ranked.main.pairs.set_index(["first", "second"])
    assert pairs["pvalue"].isna().tolist() == [False, True, True]
    assert standing_sections.verdict_matrix(ranked)[2].tolist() == [-1, -1, -1]
    assert np.isnan(ranked.consistency.kappa[0, 2])
    assert ranked.consistency.num_images.tolist() == [[2, 2, 0], [2, 2, 0], [0, 0, 1]]
    assert decisions_page.report({"cue-conflict": panel}).results["sets"]


def test_scores_count_images_by_hand():
    """Shape bias counts conflicts only; accuracy counts every row, no answer as wrong."""
    observed = observers.Observer(
        name="a",
        dataset="toy",
        classes=CLASSES,
        images=("i", "j", "k", "l"),
        label=np.array([0, 1, 2, 3]),
        texture=np.array([1, 1, 3, 2]),
        decision=np.array([0, 1, 3, observers.NO_ANSWER]),
    )
    panel = observers.panels([observed])["toy"]
    bias, accuracy = scores.shape_bias(panel), scores.accuracy(panel)
    assert bias.numerator.tolist() == [[True, False, False]]
    assert bias.denominator.tolist() == [[True, True, False]]
    assert accuracy.numerator.tolist() == [[True, True, False, False]]
    assert accuracy.denominator.all()


def test_mean_kappas_are_those_of_single_calls():
    """Groups share the draws of images, so each result is that of `mean_kappa` to the bit."""
    correct = np.random.default_rng(0).random((5, 90)) < 0.7
    condition = np.arange(90) % 3
    groups = [[(0, 1), (0, 2)], [(3, 4)], [(1, 4), (2, 4), (3, 0)]]
    together = consistency.mean_kappas(correct, groups, condition, draws=50)
    apart = [consistency.mean_kappa(correct, x, condition, draws=50) for x in groups]
    assert together == apart


def test_long_names_keep_their_ends():
    name = "EVA02_E_14_plus_laion2b_s9b_b144k_a_photo_of_a_CLS."
    short = decision_plots.shorten(name, 20)
    assert len(short) == 20
    assert short.startswith("EVA02") and short.endswith("a_CLS.")
    assert decision_plots.shorten("short", 20) == "short"


@published.needed
def test_published_files_give_a_page_with_their_numbers(tmp_path):
    """All 57 published files in one command, without JAX; numbers recomputed with pandas."""
    code = (
        "import sys\n"
        "from jbias.report import decisions\n"
        "assert decisions.main(sys.argv[1:]) == 0\n"
        "assert not {'jax', 'flax', 'torch'} & set(sys.modules)\n"
    )
    folders = [str(published.VLM), str(published.PEOPLE)]
    subprocess.run(
        [sys.executable, "-c", code, "--decisions", *folders, f"--out={tmp_path}"],
        check=True,
        capture_output=True,
        timeout=300,
    )
    results = json.loads((tmp_path / "results.json").read_text())
    rows = results["sets"]["cue-conflict"]["observers"]
    assert len(rows) == 57
    for row in rows:
        expected = by_pandas(row["file"])
        for key in ("shape", "texture", "unanswered", "conflicts", "rows"):
            assert row[key] == expected[key], (row["observer"], key)
        either = expected["shape"] + expected["texture"]
        assert row["shape_bias"] == expected["shape"] / either
        assert row["accuracy"] == expected["right"] / expected["rows"]
    assert {row["group"] for row in rows if row["observer"][:7] == "subject"} == {
        "people"
    }
    factors = results["sets"]["cue-conflict"]["factors"]
    assert len(factors["prompt"]["models"]) == 5
    assert factors["task"]["levels"] == ["captioning", "vqa"]


def test_observers_without_a_common_image_have_no_verdict_and_no_certain_rank(tmp_path):
    """However far their scores are apart."""
    for name, images, shape in (("a", IMAGES[::2], 0.95), ("b", IMAGES[1::2], 0.02)):
        decided = random_decisions(images, 1, shape=shape, texture=0.97 - shape)
        write(tmp_path / f"in/{name}.csv", images, decided)
    out = tmp_path / "out"
    assert decisions.main(["--decisions", str(tmp_path / "in"), f"--out={out}"]) == 0
    results = json.loads((out / "results.json").read_text())
    words = "0 of 1 pair of observers can be compared on common images."
    assert results["headline"].endswith(words)
    for row in results["sets"]["cue-conflict"]["observers"]:
        for end in ("rank", "rank_marginal"):
            assert row[f"shape_bias_{end}_lower"] == 1
            assert row[f"shape_bias_{end}_upper"] == 2
    assert "Certain ranks: 0 of 2" in (out / "index.html").read_text()


def test_guesses_are_doubted_and_left_out_of_the_mean(tmp_path):
    """The rule of `jbias measure`: no more for either cue than 2 of the classes."""
    rng = np.random.default_rng(0)
    guesses = [str(rng.choice(stimulus_names.CLASSES16)) for _ in IMAGES]
    write(tmp_path / "in/guesses.csv", IMAGES, guesses)
    for number in (1, 2):
        path = tmp_path / f"in/net{number}.csv"
        write(path, IMAGES, random_decisions(IMAGES, number))
    out = tmp_path / "out"
    assert decisions.main(["--decisions", str(tmp_path / "in"), f"--out={out}"]) == 0
    results = json.loads((out / "results.json").read_text())
    rows = {x["observer"]: x for x in results["sets"]["cue-conflict"]["observers"]}
    assert [name for name, row in rows.items() if row["doubt"]] == ["guesses"]
    mean = np.mean([rows[name]["shape_bias"] for name in ("net1", "net2")])
    assert f"{mean:.2f} (" in results["headline"]
    assert f"Left out of the mean ({standing.GUESSES}): guesses." in results["headline"]
    assert any("Doubt" in line and "guesses" in line for line in results["warnings"])
    assert "guesses (no claim)" in (out / "index.html").read_text()


def test_totals_count_an_observer_once_and_conflicts_alone(tmp_path):
    """Two observers of two sets, of which one has textures."""
    names, labels = [f"{i}.png" for i in range(60)], [CLASSES[i % 4] for i in range(60)]
    header = ("image", "label", "prediction")
    for net in ("a", "b"):
        path = tmp_path / f"plain/{net}.csv"
        write(path, names, labels, header=header, extra=(labels,))
        write(tmp_path / f"{net}.csv", IMAGES, random_decisions(IMAGES, ord(net)))
    panels = observers.panels(
        [
            dataclasses.replace(x, name=pathlib.Path(x.path).stem)
            for x in tables.read(str(tmp_path))
        ]
    )
    totals = decisions_page.facts([standing.Standing(x) for x in panels.values()])
    num_conflicts = 2 * int(panels["cue-conflict"].is_conflict.sum())
    assert totals["Observers"] == 2
    assert totals["Unanswered"].endswith(f" of {num_conflicts:,} for shape bias")
