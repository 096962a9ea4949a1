"""Files of decisions are read as observers without images; doubtful files are refused."""

import csv
import os
import pathlib
import subprocess
import sys

import pandas as pd
import pytest

from jbias.answers import columns, observers, parsing, scores, tables
from jbias.untrusted import limits
from tests import cases
from tests.answers import published

IMAGES = ("airplane1-bicycle2", "bear3-bear1", "cat7-elephant1", "dog3-clock1")


def write(path, rows, header=("image", "pred_label")):
    """Write a CSV file and return its path as text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(header)
        table.writerows(rows)
    return str(path)


def refusal(path, **options):
    """Return the message with which a file is refused; it is one line that names the file."""
    with pytest.raises(ValueError) as error:
        tables.read(path, **options)
    message = str(error.value)
    assert "\n" not in message
    assert os.path.basename(path) in message
    return message


@published.needed
def test_all_published_files_are_read_unmodified_in_two_seconds_without_jax():
    """The seconds are of one processor, in a process of its own: the best of three readings."""
    code = (
        "import sys, time\n"
        "from jbias.answers import tables\n"
        "def seconds():\n"
        "    start = time.process_time()\n"
        "    names = [x.name for x in tables.read(sys.argv[1:])]\n"
        "    assert len(set(names)) == 57, names\n"
        "    return time.process_time() - start\n"
        "print(min(seconds() for _ in range(3)))\n"
        "assert not {'jax', 'flax', 'torch'} & set(sys.modules)\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", code, str(published.VLM), str(published.PEOPLE)],
        check=True,
        capture_output=True,
        text=True,
        cwd=pathlib.Path(__file__).parents[2],
    )
    assert float(process.stdout) < 2


@published.needed
def test_shape_biases_are_those_that_pandas_counts():
    """Ten files and more: numbers of shape and texture decisions, computed by pandas alone."""
    paths = [*published.VLM.rglob("*.csv"), *published.PEOPLE.glob("*.csv")]
    read = {x.path: x for x in tables.read([str(published.VLM), str(published.PEOPLE)])}
    assert len(paths) == len(read) == 57
    for path in paths:
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
        is_human = "object_response" in table
        decided = table["object_response" if is_human else "pred_label"]
        names = table["imagename" if is_human else "image"]
        cues = names.str.extract(r"([a-z]+)\d+-([a-z]+)\d+(?:\.png)?$")
        conflict = cues[0] != cues[1]
        observer = read[str(path)]
        bias = observer.shape_bias
        assert bias.n_shape == (conflict & (decided == cues[0])).sum()
        assert bias.n_texture == (conflict & (decided == cues[1])).sum()
        assert observer.accuracy == (decided == cues[0]).mean()
        assert observer.is_unanswered.sum() == decided.isin(["na", "None", ""]).sum()
        assert observer.is_conflict.sum() == conflict.sum() == 1200
    assert (
        round(
            read[str(published.PEOPLE / "cue-conflict_resnet50.csv")].shape_bias.value,
            4,
        )
        == 0.2207
    )


def test_a_table_is_read_with_any_ending_case_and_order(tmp_path):
    """A byte order mark, CRLF, line breaks in cells, other columns and empty lines."""
    path = tmp_path / "20240205_205457_mine.csv"
    text = (
        "Image,Note,PRED_LABEL\r\n"
        'dog3-clock1.png,"a\r\nb, ""c""",Dog \r\n'
        "\r\n"
        "cat7-elephant1,,ELEPHANT\r\n"
        "bear3-bear1,,None\r\n"
    )
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    (observer,) = tables.read(str(path))
    assert (observer.name, observer.dataset) == ("mine", "cue-conflict")
    assert observer.images == ("bear3-bear1", "cat7-elephant1", "dog3-clock1")
    names = [observer.classes[i] if i >= 0 else "" for i in observer.decision]
    assert names == ["", "elephant", "dog"]
    assert (observer.shape_bias.n_shape, observer.shape_bias.n_texture) == (1, 1)
    assert observer.responses is None and observer.parser == ""


@cases.each(
    "word", ["", "na", "NA", "None", "NaN", "n/a", "null", "Refused", "unparsable"]
)
def test_no_answer_is_an_answer(tmp_path, word):
    path = write(tmp_path / "mine.csv", [(IMAGES[0], "airplane"), (IMAGES[2], word)])
    (observer,) = tables.read(path)
    assert observer.decision.tolist() == [0, observers.NO_ANSWER]
    assert observer.accuracy == 1 / 2


def test_a_parquet_file_is_read_as_the_csv_file_of_the_table(tmp_path):
    table = pd.DataFrame({"image": IMAGES, "pred_label": ["bird", None, "cat", "na"]})
    table.to_parquet(tmp_path / "mine.parquet")
    table.to_csv(tmp_path / "other.csv", index=False)
    from_parquet, from_csv = tables.read(str(tmp_path))
    assert from_parquet.decision.tolist() == from_csv.decision.tolist()
    assert from_parquet.is_unanswered.sum() == 2


def test_a_parquet_file_may_have_the_images_as_its_index(tmp_path):
    table = pd.DataFrame({"pred_label": ["bird", "bear", "cat", "na"]}, index=IMAGES)
    table.rename_axis("image").to_parquet(tmp_path / "mine.parquet")
    (observer,) = tables.read(str(tmp_path))
    assert observer.images == tuple(sorted(IMAGES))


@cases.each("name", ["cue-conflict", "cue_conflict", "Cue-Conflict", " CUE CONFLICT "])
def test_a_published_set_is_one_set_in_every_spelling(tmp_path, name):
    header = ("set", "image", "pred_label")
    path = write(tmp_path / "a.csv", [(name, "dog3-clock1", "dog")], header)
    assert tables.read(path)[0].dataset == "cue-conflict"
    path = write(tmp_path / "b.csv", [("dog3-clock1", "dog")])
    assert tables.read(path, dataset=name)[0].dataset == "cue-conflict"


def test_a_prompt_in_a_written_table_is_no_missing_value(tmp_path):
    """pandas reads "None", which some published files have in their names, as missing."""
    path = write(tmp_path / "RN50_None.csv", [(IMAGES[0], "airplane")])
    (observer,) = tables.read(path)
    pd.DataFrame([observer.factors]).to_csv(tmp_path / "factors.csv", index=False)
    assert pd.read_csv(tmp_path / "factors.csv")["prompt"].tolist() == ["none"]


def test_rows_of_several_observers_and_sets_are_several_observers(tmp_path):
    header = ("subj", "set", "image", "category", "response")
    rows = [
        ("ann", "cue-conflict", "dog3-clock1", "dog", "dog"),
        ("bob", "cue-conflict", "dog3-clock1", "dog", "clock"),
        ("ann", "sketch", "n01.png", "cat", "na"),
        ("ann", "sketch", "n02.png", "dog", "dog"),
    ]
    read = tables.read(write(tmp_path / "people.csv", rows, header))
    assert [(x.name, x.dataset) for x in read] == [
        ("ann", "cue-conflict"),
        ("ann", "sketch"),
        ("bob", "cue-conflict"),
    ]
    assert [x.accuracy for x in read] == [1, 0.5, 0]
    assert read[1].texture is None
    assert {*observers.panels(read)} == {"cue-conflict", "sketch"}


def test_names_are_unique_by_the_folder_and_factors_follow_from_the_path(tmp_path):
    row = [(IMAGES[0], "airplane")]
    for name in (
        "vlm/vqa/20240205_205457_llava.csv",
        "vlm/captioning/2024xxxx_yyyyyy_llava.csv",
        "clip/RN50_None.csv",
        "clip/RN50_a_photo_of_a_CLS..csv",
        "cue-conflict_subject-01_session_1.csv",
    ):
        write(tmp_path / name, row)
    (tmp_path / "README.md").write_text("# Not a table")
    (tmp_path / "clip/scores.json").write_text("{}")
    write(tmp_path / ".ipynb_checkpoints/RN50_None.csv", row)
    read = tables.read(str(tmp_path))
    names = ("model", "task", "prompt", "group")
    factors = {x.name: tuple(x.factors[name] for name in names) for x in read}
    assert factors == {
        "llava (vqa)": ("llava", "vqa", "", "vlm/vqa"),
        "llava (captioning)": ("llava", "captioning", "", "vlm/captioning"),
        "RN50_None": ("RN50", "", "none", "clip"),
        "RN50_a_photo_of_a_CLS.": ("RN50", "", "a_photo_of_a_CLS.", "clip"),
        "subject-01": ("subject-01", "", "", ""),
    }
    assert [x.name for x in read] == sorted(factors)


@cases.each("mark", ["_", "-"])
def test_sessions_without_common_images_are_one_observer(tmp_path, mark):
    """The joined observer is the one of a file with all rows; common images are refused."""
    rows = [("subject-01", name, "dog") for name in IMAGES]
    header = ("subj", "imagename", "object_response")
    first = tmp_path / f"in/cue-conflict_subject-01_session{mark}1.csv"
    second = tmp_path / f"in/cue-conflict_subject-01_session{mark}2.csv"
    write(first, [rows[3], rows[1]], header)
    write(second, [rows[2], rows[0]], header)
    (joined,) = tables.read(str(first.parent))
    (whole,) = tables.read(write(tmp_path / "whole.csv", rows, header))
    assert (joined.name, joined.images) == (whole.name, whole.images)
    assert joined.decision.tolist() == whole.decision.tolist()
    assert joined.label.tolist() == whole.label.tolist()
    assert joined.texture.tolist() == whole.texture.tolist()
    assert joined.path == str(first) and len(joined.sha256) == 64
    write(second, rows[:2], header)
    assert "an observer must have one file on the set" in refusal(str(first.parent))


OWN_HEADER = ("image", "label", "prediction")


def own_rows(names):
    """Return rows about images of a set of one's own, with classes in turn."""
    classes = ("pot", "tea")
    return [(name, classes[i % 2], "pot") for i, name in enumerate(names)]


@cases.each(
    ("first", "second", "ids"),
    [
        (
            ["/home/a/img/0.png", "/home/a/img/1.png"],
            ["img/0.png", "img/1.png"],
            ["0.png", "1.png"],
        ),
        (
            ["img/cat/0.png", "img/dog/0.png"],
            ["cat/0.png", "dog/0.png"],
            ["cat/0.png", "dog/0.png"],
        ),
        (["0.png", "1.png"], ["img\\0.png", "img\\1.png"], ["0.png", "1.png"]),
    ],
)
def test_images_are_the_same_under_paths_of_which_one_ends_with_the_other(
    tmp_path, first, second, ids
):
    write(tmp_path / "a.csv", own_rows(first), OWN_HEADER)
    write(tmp_path / "b.csv", own_rows(second), OWN_HEADER)
    lines = []
    read = tables.read(str(tmp_path), say=lines.append)
    assert [x.images for x in read] == [tuple(ids)] * 2 and not lines
    assert [x.label.tolist() for x in read] == [[0, 1]] * 2
    # An observer alone has the names in its file.
    (alone,) = tables.read(str(tmp_path / "a.csv"))
    assert alone.images == tuple(first)


@cases.each(
    ("first", "second"),
    [
        (["train/0.png", "train/1.png"], ["val/0.png", "val/1.png"]),
        (["0.png", "1.png"], ["2.png", "3.png"]),
        (["a/0.png", "b/0.png"], ["0.png", "1.png"]),
    ],
)
def test_observers_without_a_common_image_are_named(tmp_path, first, second):
    write(tmp_path / "a.csv", own_rows(first), OWN_HEADER)
    write(tmp_path / "b.csv", own_rows(second), OWN_HEADER)
    lines = []
    read = tables.read(str(tmp_path), say=lines.append)
    assert [x.images for x in read] == [tuple(first), tuple(second)]
    (line,) = lines
    assert line.startswith("images: a and b share no image")


def test_ids_do_not_depend_on_the_number_of_conditions(tmp_path):
    header = (*OWN_HEADER, "condition")
    rows = own_rows(["0.png", "1.png"])
    write(tmp_path / "a.csv", [(*row, "c10") for row in rows], header)
    both = [(*row, condition) for row in rows for condition in ("c10", "c20")]
    write(tmp_path / "b.csv", both, header)
    write(tmp_path / "c.csv", [(*row, "c20") for row in rows], header)
    lines = []
    a, b, c = tables.read(str(tmp_path), say=lines.append)
    assert a.images == ("c10/0.png", "c10/1.png")
    assert b.images == (*a.images, *c.images)
    assert lines[0].startswith("images: a and c share no image")


def test_names_with_signs_of_other_languages_are_kept_as_text(tmp_path):
    name = "<script>alert(1)</script> ../\u202ex"
    path = write(
        tmp_path / "mine.csv",
        [(name, IMAGES[0], "airplane")],
        ("model", "image", "pred_label"),
    )
    assert tables.read(path)[0].name == name


def test_a_file_named_twice_is_read_once(tmp_path):
    path = write(tmp_path / "mine.csv", [(IMAGES[0], "airplane")])
    assert len(tables.read([path, str(tmp_path)])) == 1


def test_words_are_parsed_where_there_is_no_decision(tmp_path):
    """A column `response` of classes has decisions; of sentences, it is parsed."""
    words = [(IMAGES[0], "A. airplane"), (IMAGES[2], "I'm sorry, I cannot say")]
    lines = []
    path = write(tmp_path / "words.csv", words, ("image", "response"))
    (observer,) = tables.read(path, say=lines.append)
    assert observer.decision.tolist() == [0, observers.NO_ANSWER]
    assert observer.parser == parsing.VERSION
    assert observer.responses == ("A. airplane", "I'm sorry, I cannot say")
    (line,) = lines
    assert line == (
        f"{path}: 2 of 2 decisions are read from the words in 'response' (parser "
        f"{parsing.VERSION}): 1 name a class, 1 give no answer"
    )
    classes = [(IMAGES[0], "airplane"), (IMAGES[2], "None")]
    path = write(tmp_path / "classes.csv", classes, ("image", "response"))
    (observer,) = tables.read(path)
    assert observer.decision.tolist() == [0, observers.NO_ANSWER]
    assert observer.parser == ""


def test_published_decisions_can_be_parsed_again(tmp_path):
    rows = [
        (IMAGES[0], "A", "bicycle"),
        (IMAGES[1], "no idea", "bear"),
        (IMAGES[2], "H. cat", "H"),
    ]
    path = write(tmp_path / "a.csv", rows, ("image", "response", "pred_label"))
    (published_decisions,) = tables.read(path)
    (parsed,) = tables.read(path, parse="raw")
    cat = parsing.CLASSES16.index("cat")
    # "H" is no class: the words of this row are parsed.
    assert published_decisions.decision.tolist() == [2, 1, cat]
    assert parsed.decision.tolist() == [0, observers.NO_ANSWER, cat]
    assert published_decisions.parser == parsed.parser == parsing.VERSION
    with pytest.raises(ValueError, match="must be one of published, raw"):
        tables.read(path, parse="again")


GOOD = [(name, "airplane") for name in IMAGES]
PAIR = ("image", "pred_label")


@cases.each(
    ("rows", "header", "message"),
    [
        ([*GOOD, ("dog9-cat1",)], PAIR, "mine.csv:6: must have 2 cells as the header"),
        ([*GOOD, ("dog9-cat1", "a", "b")], PAIR, "the file is damaged or cut off"),
        (GOOD, ("image", "image"), "must name every column once, got 'image' twice"),
        (
            [("dog9-cat1", "dog", "cat")],
            ("image", "object_response", "pred_label"),
            "choose by --columns=response=object_response",
        ),
        (
            [*GOOD, ("dog9-cat1", "unicorn")],
            PAIR,
            (
                "mine.csv:6: pred_label must be one of the set's classes or a word for no "
                "answer, such as na, got 'unicorn'"
            ),
        ),
        ([*GOOD, ("dog9-cat1", "dogs")], PAIR, "got 'dogs'; did you mean 'dog'?"),
        (
            [("dog9-cat1", "dog", "cat")],
            ("image", "pred_label", "category"),
            "mine.csv:2: 'dog9-cat1' must have the correct class 'dog' that its name says",
        ),
        (
            [*GOOD, ("dog3-clock1.png", "dog")],
            PAIR,
            (
                "mine.csv:6: an image must be decided about once, got 'dog3-clock1.png' again "
                "after "
            ),
        ),
        (
            [*GOOD, ("dog9-kitten1", "dog")],
            PAIR,
            "mine.csv:6: the image must be named as",
        ),
        ([("IMG_1", "dog")], PAIR, "or its correct class in a column, got 'IMG_1'"),
        ([], PAIR, "must hold decisions, got a header alone"),
    ],
)
def test_hostile_tables_are_refused(tmp_path, rows, header, message):
    path = write(tmp_path / "mine.csv", rows, header)
    assert message in refusal(path)
    # One bad file refuses its folder, with its own path.
    write(tmp_path / "good.csv", GOOD)
    assert "mine.csv" in refusal(str(tmp_path))


@cases.each(
    "header", [("name", "score"), ("image", "top_tokens"), ("name", "pred_label")]
)
def test_a_table_without_decisions_is_left_out_of_a_folder_and_refused_alone(
    tmp_path, header
):
    path = write(tmp_path / "mine.csv", GOOD, header)
    assert "must have the column(s)" in refusal(path)
    assert "must have the column(s)" in refusal(str(tmp_path))  # There is no other.
    write(tmp_path / "good.csv", GOOD)
    lines = []
    (observer,) = tables.read(str(tmp_path), say=lines.append)
    assert observer.name == "good"
    (line,) = [line for line in lines if "is left out" in line]
    assert line.startswith(f"{path} is left out") and ", ".join(header) in line


def test_another_delimiter_in_a_folder_is_an_error(tmp_path):
    write(tmp_path / "good.csv", GOOD)
    (tmp_path / "mine.csv").write_text("image;pred_label\ndog9-cat1;dog\n")
    assert "mine.csv:1: must have commas" in refusal(str(tmp_path))


def refusal_of_bytes(path, content):
    """Return the message with which a file of these bytes is refused."""
    path.write_bytes(content)
    return refusal(str(path))


def test_files_that_are_no_tables_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "mine.csv"
    assert "got none" in refusal_of_bytes(path, b"")
    assert "UTF-8" in refusal_of_bytes(path, b"image,pred_label\ndog9-cat1,d\xff\xfe\n")
    assert "UTF-8" in refusal_of_bytes(path, b"image,pred_label\ndog9-cat1,d\0og\n")
    cut = b'image,pred_label,response\ndog9-cat1,dog,"a dog\non a'
    assert "the file is damaged or cut off" in refusal_of_bytes(path, cut)
    long = b"image,pred_label\ndog9-cat1," + b"x" * 200_000
    message = refusal_of_bytes(path, long)
    assert "field larger than" in message and "leave its column out" in message
    wide = "image,pred_label\ndog9-cat1,dog\n".encode("utf-16")
    assert "is in UTF-16, save it in UTF-8" in refusal_of_bytes(path, wide)
    message = refusal_of_bytes(path, b"image;pred_label\ndog9-cat1;dog\n")
    assert "must have commas between its columns, got ';'" in message
    assert "must be a Parquet file" in refusal_of_bytes(tmp_path / "a.parquet", b"PAR1")
    monkeypatch.setattr(limits, "MAX_TABLE_BYTES", 20)
    message = refusal_of_bytes(path, b"image,pred_label\ndog9-cat1,dog\n")
    assert "must have at most 20 bytes" in message


def test_two_files_of_an_observer_in_a_folder_are_refused(tmp_path):
    write(tmp_path / "20240205_205457_a.csv", GOOD)
    write(tmp_path / "20240206_205457_a.csv", GOOD)
    with pytest.raises(ValueError, match="an observer must have one file on the set"):
        tables.read(str(tmp_path))


def test_empty_and_missing_folders_are_refused(tmp_path):
    with pytest.raises(ValueError, match="got an empty one"):
        tables.read(str(tmp_path))
    with pytest.raises(ValueError, match="got nothing there"):
        tables.read(str(tmp_path / "missing"))
    for name in ("b.tsv", "c.jsonl", "d.csv.gz", ".hidden"):
        (tmp_path / name).write_text("image\tpred_label\n")
    message = "got other files, 'b.tsv' and 2 more; save them as CSV or Parquet files"
    with pytest.raises(ValueError, match=message):
        tables.read(str(tmp_path))


def test_the_flags_of_columns_and_set_decide(tmp_path):
    header = ("object_response", "pred_label", "path", "truth")
    path = write(tmp_path / "a.csv", [("ant", "bee", "1.jpg", "ant")], header)
    options = columns.parse("response=object_response,image=path")
    (observer,) = tables.read(path, columns=options, dataset="insects")
    assert (observer.dataset, observer.accuracy) == ("insects", 1)


@published.needed
def test_parsing_again_keeps_the_words_and_the_version():
    """Captions often name no class; answers by multiple choice nearly always do."""
    read = tables.read(str(published.VLM), parse="raw")
    share = {x.path: x.is_unanswered.mean() for x in read}
    by_task = {
        task: [share[x.path] for x in read if x.factors["task"] == task]
        for task in tables.TASKS
    }
    assert max(by_task["vqa"]) < 0.01 < min(by_task["captioning"])
    assert all(x.parser == parsing.VERSION for x in read if x.responses)
    assert all(x.parser == "" for x in read if not x.responses)


def test_the_classes_of_a_set_are_those_of_all_its_files(tmp_path):
    """Files with the labels of a part of the classes; decisions may be for all classes."""
    first = [("0.png", "pot", "pot"), ("1.png", "tea", "Cup")]
    second = [("2.png", "cup", "tea"), ("3.png", "tea", "jug")]
    write(tmp_path / "a.csv", first, OWN_HEADER)
    write(tmp_path / "b.csv", second, OWN_HEADER)
    assert "b.csv:3: prediction must be one of the set's classes" in refusal(
        str(tmp_path)
    )
    write(tmp_path / "b.csv", second[:1], OWN_HEADER)
    # Cue conflicts in the folder are a set of their own.
    conflict = [("dog3-clock1", "dog", "dog")]
    write(tmp_path / "c.csv", conflict, OWN_HEADER)
    a, b, c = tables.read(str(tmp_path))
    assert a.classes == b.classes == ("cup", "pot", "tea")
    assert (a.decision.tolist(), b.decision.tolist()) == ([1, 0], [2])
    assert (a.label.tolist(), b.label.tolist()) == ([1, 2], [0])
    assert c.classes == parsing.CLASSES16
    observers.panels([a, b, c])


OWN_CONFLICTS = (
    ("1.png", "star", "star", "moon"),
    ("2.png", "moon", "star", "moon"),
    ("3.png", "star", "moon", "star"),
    ("4.png", "sun", "moon", "star"),
    ("5.png", "star", "star", "star"),  # No conflict.
    ("6.png", "na", "moon", "star"),
)
HEADER = ("image", "object_response", "category", "texture")


def test_a_column_of_textures_makes_cue_conflicts_of_a_set_of_ones_own(tmp_path):
    """By hand: one shape and two texture decisions, one neither, one without answer."""
    rows = [*OWN_CONFLICTS, ("7.png", "sun", "sun", "")]
    path = write(tmp_path / "mine.csv", rows, HEADER)
    (observer,) = tables.read(path)
    assert observer.dataset == "images"
    assert observer.classes == ("moon", "star", "sun")
    bias = observer.shape_bias
    assert (bias.n_shape, bias.n_texture) == (1, 2)
    assert observer.is_conflict.tolist() == [True] * 4 + [False, True, False]
    assert observer.texture.tolist() == [0, 0, 1, 1, 1, 1, -1]
    assert observer.accuracy == 3 / 7


def test_a_texture_may_be_a_class_of_no_shape(tmp_path):
    path = write(tmp_path / "mine.csv", [("1.png", "wool", "star", "wool")], HEADER)
    (observer,) = tables.read(path)
    assert observer.classes == ("star", "wool")
    assert observer.shape_bias.n_texture == 1


def test_a_column_of_textures_must_agree_with_the_name(tmp_path):
    right = [(IMAGES[2], "cat", "cat", "elephant")]
    (observer,) = tables.read(write(tmp_path / "right.csv", right, HEADER))
    assert observer.shape_bias.n_shape == 1
    wrong = write(tmp_path / "wrong.csv", [(IMAGES[2], "cat", "cat", "dog")], HEADER)
    message = refusal(wrong)
    assert "texture 'elephant'" in message and "--columns=texture=YOURS" in message


def test_shared_pictures_are_those_of_published_names_alone(tmp_path):
    """Names such as "img-1.png" name no pictures."""
    rows = [(f"img-{name}", *cells) for name, *cells in OWN_CONFLICTS[:3]]
    own_panels = observers.panels(tables.read(write(tmp_path / "a.csv", rows, HEADER)))
    assert scores.shape_bias(own_panels["images"]).pictures == ()
    published_rows = [(IMAGES[0], "airplane"), (IMAGES[2], "cat")]
    panels = observers.panels(tables.read(write(tmp_path / "b.csv", published_rows)))
    shapes, textures = scores.shape_bias(panels["cue-conflict"]).pictures
    assert shapes.tolist() == ["airplane1", "cat7"]
    assert textures.tolist() == ["bicycle2", "elephant1"]


HEADER_OF_DRAWN = ("imagename", "raw_response", "drawn_options", "model")


def test_letters_are_read_by_the_options_that_were_drawn_for_the_row(tmp_path):
    rows = [
        ("airplane1-bicycle2", "A", "A=bicycle,B=airplane", "m"),
        ("bear3-bear1", "A", "A=bear,B=truck", "m"),
        ("cat7-elephant1", "B. cat", "A=elephant,B=cat", "m"),
        ("dog3-clock1", "B. dog", "A=dog,B=clock", "m"),  # They differ: no answer.
    ]
    path = write(tmp_path / "a.csv", rows, HEADER_OF_DRAWN)
    (observer,) = tables.read(path)
    decided = [observer.classes[i] if i >= 0 else "" for i in observer.decision]
    assert decided == ["bicycle", "bear", "cat", ""]
    assert observer.drawn_options[0] == {"A": "bicycle", "B": "airplane"}
    assert observer.options_of(3) == {"A": "dog", "B": "clock"}
    # Other names of the column are told by --columns.
    renamed = write(tmp_path / "b.csv", rows, (*HEADER_OF_DRAWN[:2], "order", "model"))
    named = columns.parse("options=order")
    (again,) = tables.read(renamed, columns=named)
    assert (again.decision == observer.decision).all()


def test_rows_without_drawn_options_have_those_of_the_file(tmp_path):
    rows = [("cat7-elephant1", "H", "", "m"), ("dog3-clock1", "H", "H=dog,A=cat", "m")]
    path = write(tmp_path / "a.csv", rows, HEADER_OF_DRAWN)
    (observer,) = tables.read(path)
    assert [observer.classes[i] for i in observer.decision] == ["cat", "dog"]
    (observer,) = tables.read(path, options={"H": "truck"})
    assert [observer.classes[i] for i in observer.decision] == ["truck", "dog"]


def test_classes_of_an_own_set_include_those_that_were_offered(tmp_path):
    rows = [("x/1.png", "B", "A=cup,B=tea", "m", "cup")]
    path = write(tmp_path / "a.csv", rows, (*HEADER_OF_DRAWN, "label"))
    (observer,) = tables.read(path)
    assert observer.classes == ("cup", "tea")
    assert observer.classes[observer.decision[0]] == "tea"


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("A=airplan,B=bear", "airplan"),
        ("A:airplane", "be LETTER=CLASS"),
        ("A=cat,A=dog", "be named once"),
        ("1=cat", "be one of A to Z"),
    ],
)
def test_wrong_drawn_options_are_refused_with_their_row(tmp_path, cell, words):
    rows = [("cat7-elephant1", "A", "", "m"), ("dog3-clock1", "A", cell, "m")]
    message = refusal(write(tmp_path / "a.csv", rows, HEADER_OF_DRAWN))
    assert ":3: " in message and words in message
