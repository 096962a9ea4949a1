"""The standing table is made of the stored answers, and stored answers are the published ones."""

import csv
import html
import io
import json
import math
import pathlib
import re

import numpy as np
import pandas as pd
import pytest

from jbias.answers import letter_answers, observers, submission_info
from jbias.data import tables
from studies import standing_table, stored_answers
from tests.answers import published

DOCS = pathlib.Path(__file__).parents[1] / "docs"
ANSWERS = stored_answers.read()
NUMBERS = pd.read_csv(DOCS / standing_table.NUMBERS).set_index("observer")
PAIRS = pd.read_csv(DOCS / standing_table.PAIRS)
NAMES = pd.Series(tables.cue_conflicts()).str.extract(r"^([a-z]+)\d+-([a-z]+)\d+$")
CLASSES = sorted({*NAMES[0]})
SHAPE, TEXTURE = NAMES[0].to_numpy(), NAMES[1].to_numpy()
SOME = [
    "people/subject-01",
    "people/subject-02",
    "texture-vs-shape/resnet50",
    "clip/clip_RN50_openai_CLS",
    "vlm/vqa/openai_vision",
    "vlm/vqa/emu2_chat",
]


def decided(letters):
    """Return the decided class of each image, None for no answer."""
    return np.array([dict(zip("0123456789abcdef", CLASSES)).get(x) for x in letters])


def some_rows():
    """Return six stored observers."""
    return ANSWERS[ANSWERS["observer"].isin(SOME)]


def planted(answers, name="planted", **columns):
    """Return a row of an observer with these answers."""
    row = dict.fromkeys(stored_answers.COLUMNS, "")
    row |= {
        "observer": f"submissions/{name}",
        "kind": "other",
        "model": name,
        "group": letter_answers.SUBMISSIONS,
        "source": "https://example.org/model",
        "answers": answers,
    }
    return pd.DataFrame([row | columns])


def test_numbers_are_those_of_a_count_by_pandas():
    conflict = SHAPE != TEXTURE
    num_submissions = (ANSWERS["group"] == letter_answers.SUBMISSIONS).sum()
    assert conflict.sum() == 1200
    assert len(NUMBERS) == len(ANSWERS) == 83 + num_submissions
    for row in ANSWERS.itertuples():
        decision = decided(row.answers)
        n_shape = (conflict & (decision == SHAPE)).sum()
        n_texture = (conflict & (decision == TEXTURE)).sum()
        numbers = NUMBERS.loc[row.observer]
        assert numbers["shape"] == n_shape
        assert numbers["decisions"] == n_shape + n_texture
        assert numbers["shape_bias"] == round(n_shape / (n_shape + n_texture), 4)
        assert numbers["accuracy"] == round((decision == SHAPE).mean(), 4)
        assert numbers["unanswered"] == sum(x is None for x in decision[conflict])
    gpt = standing_table.sentence(NUMBERS.loc["vlm/vqa/openai_vision"])
    assert gpt == "shape bias 0.479 of 837 decisions; 126 of 1,200 unanswered"


def test_consistency_with_people_is_mean_kappa():
    people = ANSWERS.loc[ANSWERS["group"] == "people", "answers"]
    correct = np.array([decided(answers) == SHAPE for answers in people])
    for name in ("texture-vs-shape/resnet50", "vlm/vqa/internvl_chat"):
        (answers,) = ANSWERS.loc[ANSWERS["observer"] == name, "answers"]
        marks = decided(answers) == SHAPE
        agreement = (marks == correct).mean(1)
        a, b = marks.mean(), correct.mean(1)
        chance = a * b + (1 - a) * (1 - b)
        kappa = np.mean((agreement - chance) / (1 - chance))
        assert NUMBERS.loc[name, "like_people"] == round(kappa, 4)


def test_intervals_contain_the_values_and_ranks_are_in_order():
    for name in ("", "accuracy_"):
        value = NUMBERS["accuracy" if name else "shape_bias"]
        assert value.between(NUMBERS[f"{name}lower"], NUMBERS[f"{name}upper"]).all()
    rank = NUMBERS["shape_bias"].rank(ascending=False, method="min").astype(int)
    # Shape biases of the file are rounded, so ranks of equal ones may differ.
    assert (NUMBERS["rank"] - rank).abs().max() <= 1
    assert NUMBERS["rank"].between(NUMBERS["rank_lower"], NUMBERS["rank_upper"]).all()


def test_ranks_in_a_task_are_among_models_with_the_same_task_and_prompt():
    """Each model has one row in such a group; people have no rank in a task."""
    models = NUMBERS[NUMBERS["kind"] != "person"].fillna({"prompt": ""})
    assert NUMBERS["rank_in_task"].isna().sum() == len(NUMBERS) - len(models)
    sizes = set()
    for _, rows in models.groupby(["task", "prompt"]):
        assert rows["model"].is_unique and (rows["rank_in_task_of"] == len(rows)).all()
        rank = rows["shape_bias"].rank(ascending=False, method="min")
        assert (rows["rank_in_task"] - rank).abs().max() <= 1
        assert (rows["rank_in_task_lower"] <= rows["rank_in_task"]).all()
        assert (rows["rank_in_task"] <= rows["rank_in_task_upper"]).all()
        assert rows["rank_in_task_upper"].max() <= len(rows)
        sizes.add(len(rows))
    assert {19, 23, 7} <= sizes


def test_the_example_and_the_columns_of_the_files_are_explained():
    page = (DOCS / standing_table.PAGE).read_text("utf-8")
    text = " ".join(page.split())
    gpt, vit = standing_table.EXAMPLE
    row = PAIRS.set_index(["first", "second"]).loc[(vit, gpt)]
    sign = "+" if row["difference"] < 0 else "−"
    difference = f"{sign}{abs(row['difference']):.3f} ["
    assert f"`{vit}`: GPT-4V less this model is {difference}" in text
    verb = "differ" if row["pvalue"] <= 0.05 else "do not differ"
    assert f"p = {row['pvalue']:.2f}, so that they {verb} significantly" in text
    gpt_row = NUMBERS.loc[gpt]
    rank = "{rank_in_task:.0f} [{rank_in_task_lower:.0f}, {rank_in_task_upper:.0f}]"
    assert f"GPT-4V's is {rank.format(**gpt_row)} of" in text
    for frame, name in ((NUMBERS.reset_index(), "numbers"), (PAIRS, "pairs")):
        names = re.findall(r"^\| ([a-z_, ]+) \| ", page, flags=re.MULTILINE)
        words = {x for cell in names for x in cell.split(", ")}
        assert {*frame} <= words, name


def test_pairs_are_rebuilt_to_the_byte():
    text = (DOCS / standing_table.PAIRS).read_text("utf-8")
    assert standing_table.format_pairs(standing_table.pairs(ANSWERS)) == text
    assert len(PAIRS) == math.comb(len(ANSWERS), 2)


@pytest.mark.slow
def test_the_page_and_its_numbers_are_rebuilt_to_the_byte(tmp_path):
    assert standing_table.main([f"--out={tmp_path}"]) == 0
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {standing_table.PAGE, standing_table.NUMBERS, standing_table.PAIRS}
    for name in names:
        assert (tmp_path / name).read_bytes() == (DOCS / name).read_bytes(), name


def test_the_page_shows_the_numbers_of_the_file():
    frame = NUMBERS.reset_index().fillna({"prompt": ""})
    page = (DOCS / standing_table.PAGE).read_text("utf-8")
    table = page.partition('<div class="sortable" markdown>')[2].partition("</div>")[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")][2:]
    assert len(lines) == len(frame)
    for line, row in zip(lines, frame.itertuples(), strict=True):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        shown = re.match(r"(\d\.\d{3}) \[(\d\.\d{3}), (\d\.\d{3})\]$", cells[1])
        values = row.shape_bias, row.lower, row.upper
        np.testing.assert_allclose([*map(float, shown.groups())], values, atol=6e-4)
        assert cells[2] == f"{row.rank} [{row.rank_lower}, {row.rank_upper}]"
        assert cells[7:9] == [f"{row.decisions:,}", f"{row.unanswered:,}"]
        ends = f"[{row.rank_in_task_lower:.0f}, {row.rank_in_task_upper:.0f}]"
        rank = f"{row.rank_in_task:.0f} {ends} of {row.rank_in_task_of:.0f}"
        is_person = row.kind == "person"
        assert cells[3] == (standing_table.NONE if is_person else rank)
        assert ("†</sup>" in cells[0]) == (row.unanswered > 60)


def test_an_added_model_changes_no_verdict_and_no_number_of_others():
    """Only ranks may differ, since there is one more."""
    rng = np.random.default_rng(0)
    answers = "".join(rng.choice([*"0123456789abcdef-"], 1280))
    stored = some_rows()
    extended = pd.concat([planted(answers), stored], ignore_index=True)
    old, new = standing_table.pairs(stored), standing_table.pairs(extended)
    is_new = new[["first", "second"]].eq("submissions/planted").any(axis=1)
    assert is_new.sum() == len(stored)
    pd.testing.assert_frame_equal(new[~is_new].reset_index(drop=True), old)
    old, new = (
        standing_table.numbers(rows).set_index("observer")
        for rows in (stored, extended)
    )
    unranked = [name for name in old if not name.startswith("rank")]
    pd.testing.assert_frame_equal(new.loc[old.index, unranked], old[unranked])
    assert len(new) == len(old) + 1


def test_what_was_not_measured_is_a_dash_and_not_zero():
    """Without an answer there is no shape bias; with texture answers alone it is 0."""
    texture = "".join("0123456789abcdef"[CLASSES.index(x)] for x in TEXTURE)
    rows = pd.concat([some_rows(), planted("-" * 1280), planted(texture, "texture")])
    frame = standing_table.numbers(rows)
    silent, textured = (
        frame[frame["model"] == name].iloc[0] for name in ("planted", "texture")
    )
    assert np.isnan(silent["shape_bias"]) and pd.isna(silent["rank"])
    assert textured["shape_bias"] == 0 and textured["rank"] == len(frame) - 1
    assert silent["unanswered"] == 1200 and np.isnan(silent["like_people"])
    lines = standing_table.format_table(frame).splitlines()
    (line,) = (line for line in lines if line.startswith("| [planted]"))
    assert line.count('title="not measured"') == 4 and line.count('title="none"') == 1
    (line,) = (line for line in lines if line.startswith("| [texture]"))
    assert "| 0.000 [0.000," in line and "not measured" not in line


def test_names_of_submissions_are_shown_as_text():
    name = "<script>alert(1)</script>|[x](javascript:y)`*_"
    rows = pd.concat([some_rows(), planted("0" * 1280, name, source="javascript:z")])
    table = standing_table.format_table(standing_table.numbers(rows))
    assert "<script" not in table and "](" not in table and "javascript:z" not in table
    (line,) = (line for line in table.splitlines() if "alert" in line)
    assert line.count("|") == len(standing_table.HEAD) + 1


def test_line_breaks_of_texts_do_not_break_the_table():
    escaped = standing_table.escape("a\r\n| b |\n\n<p>")
    assert escaped == "a &#124; b &#124; &lt;p&gt;"


def test_every_row_says_its_licence_and_the_step_that_decided():
    assert NUMBERS["licence"].notna().all() and NUMBERS["decided_by"].notna().all()
    is_published = ANSWERS["group"] != letter_answers.SUBMISSIONS
    licences = {*ANSWERS.loc[is_published, "licence"]}
    assert licences == {"CC BY-SA 4.0", "none stated"}
    added = {*ANSWERS.loc[~is_published, "licence"]}
    assert added <= {*submission_info.LICENCES}


def test_letters_are_read_as_they_are_written():
    decision = np.array([*range(16), observers.NO_ANSWER, observers.NO_ROW])
    assert letter_answers.encode(decision) == "0123456789abcdef-."
    np.testing.assert_array_equal(letter_answers.decode("0123456789abcdef-."), decision)
    assert letter_answers.decode("+") == [observers.NO_ANSWER]


@pytest.mark.parametrize("answers", ["0" * 1279, "0" * 1279 + "g", "0" * 1279 + "+"])
def test_a_file_of_wrong_symbols_is_refused(tmp_path, answers):
    path = tmp_path / "answers.csv"
    stored_answers.write(planted(answers), path)
    with pytest.raises(ValueError, match=r"answers\.csv: must have 1280 symbols"):
        stored_answers.read(path)


def test_an_observer_with_two_rows_is_refused(tmp_path):
    path = tmp_path / "answers.csv"
    stored_answers.write(pd.concat([planted("0" * 1280)] * 2), path)
    with pytest.raises(ValueError, match="name each observer once"):
        stored_answers.read(path)


def test_words_of_a_caption():
    assert stored_answers.named_classes("A collage of clocks.") == set()
    assert stored_answers.named_classes("A collage of Clocks.", plurals=True) == {9}
    assert stored_answers.named_classes("Two knives", plurals=True) == {13}
    assert stored_answers.named_classes("a cat on a car; carpets") == {6, 7}
    letters = [stored_answers._to_symbol(x) for x in (set(), {7}, {6, 7})]
    assert letters == ["-", "7", "+"]


def test_an_accepted_submission_is_added_and_a_refused_one_is_not(tmp_path, capsys):
    path, folder = tmp_path / "answers.csv", tmp_path / "mymodel"
    stored_answers.write(some_rows(), path)
    content = path.read_bytes()
    folder.mkdir()
    info = {
        "name": "My mod\u00e8le",
        "kind": "VLM",
        "task": "captions",
        "prompt": "<image>\nWhich <class> | `is` this?",
        "link": "https://example.org/mymodel",
        "licence": "cc-by-4.0",
        "decided_by": "largest of the 16 classes",
    }
    (folder / "submission.json").write_text(json.dumps(info), "utf-8")
    rng = np.random.default_rng(1)
    which = rng.random(1280)
    other = rng.choice(CLASSES, 1280)
    decision = np.where(which < 0.3, SHAPE, np.where(which < 0.7, TEXTURE, other))
    lines = [f"{x},{y}" for x, y in zip(tables.cue_conflicts(), decision, strict=True)]
    (folder / "answers.csv").write_text("\n".join(["image,response", *lines[:-1]]))
    assert standing_table.add(folder, path) == 1 and path.read_bytes() == content
    assert capsys.readouterr().err
    (folder / "answers.csv").write_text("\n".join(["image,response", *lines]))
    assert standing_table.add(folder, path) == 0
    rows = stored_answers.read(path).set_index("observer")
    row = rows.loc["submissions/My mod\u00e8le"]
    assert (row["kind"], row["licence"], row["source"]) == (
        "VLM",
        "CC BY 4.0",
        info["link"],
    )
    assert row["decided_by"] == info["decided_by"]
    assert row["prompt"] == "<image> Which <class> | `is` this?"
    frame = standing_table.numbers(rows.reset_index())
    numbers = csv.DictReader(io.StringIO(standing_table.format_numbers(frame)))
    (shown,) = (x for x in numbers if x["observer"] == "submissions/My mod\u00e8le")
    assert shown["decided_by"] == info["decided_by"]
    assert (shown["licence"], shown["prompt"]) == ("CC BY 4.0", row["prompt"])
    table = standing_table.format_table(frame)
    (line,) = (x for x in table.splitlines() if "My mod\u00e8le" in x)
    assert line.count("|") == len(standing_table.HEAD) + 1
    assert "<image>" not in line and "`" not in line
    assert html.unescape(html.unescape(line)).count("<image> Which <class> | `is`") == 1
    assert [*decided(row["answers"])] == [*decision]
    assert len(rows) == len(SOME) + 1
    content = path.read_bytes()
    assert standing_table.add(folder, path) == 1 and path.read_bytes() == content
    assert "My mod" in capsys.readouterr().err


@published.needed
def test_stored_answers_are_those_of_the_published_files():
    num_files = 0
    for row in ANSWERS.itertuples():
        path = (published.PEOPLE if "/" not in row.file else published.VLM) / row.file
        if not path.is_file():
            continue  # Some files of the repository are not in the folder.
        num_files += 1
        with path.open(newline="", encoding="utf-8") as file:
            rows = [*csv.DictReader(file)]
        image, label = (
            ("imagename", "object_response")
            if "imagename" in rows[0]
            else ("image", "pred_label")
        )
        answers = {re.sub(r"^.*_|\.png$", "", x[image]): x[label].lower() for x in rows}
        letters = [
            "0123456789abcdef"[CLASSES.index(answers[name])]
            if answers[name] in CLASSES
            else "-"
            for name in tables.cue_conflicts()
        ]
        assert row.answers == "".join(letters), row.file
    assert num_files >= 13 + 44 - 1
