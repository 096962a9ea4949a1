"""Options of a question: letters are read in the order that the user names, else alphabetically."""

import pathlib

import pytest

from jbias import errors
from jbias.answers import letter_options, parsing, tables
from jbias.data import tables as data_tables
from tests import cases
from tests.answers.test_tables import refusal, write

CLASSES = parsing.CLASSES16
CONFLICTS = data_tables.cue_conflicts()
REVERSED = dict(zip("ABCDEFGHIJKLMNOP", CLASSES[::-1], strict=True))
WORDS = ("image", "answer")


def shape(name):
    """Return the class of a cue conflict's shape."""
    return name.partition("-")[0].rstrip("0123456789")


def read_words(path, answers, **options):
    """Return the observer of answers to the first cue conflicts, and the lines that are said."""
    lines = []
    rows = zip(CONFLICTS, answers, strict=False)
    (observer,) = tables.read(write(path, rows, WORDS), say=lines.append, **options)
    return observer, lines


def test_pairs_and_a_file_name_the_same_options(tmp_path):
    rows = [*REVERSED.items()]
    path = write(tmp_path / "options.csv", rows, ("Letter", "class"))
    pairs = ",".join(f"{letter}={name}" for letter, name in rows)
    assert letter_options.parse(path) == letter_options.parse(pairs) == REVERSED
    assert letter_options.parse("") == {}


@cases.each(
    ("text", "message"),
    [
        ("A=cat,A=dog", "each must be named once, got 'A=dog'"),
        ("A=cat,B=cat", "each must be named once"),
        ("AB=cat", "the letter must be one of A to Z, got 'AB'"),
        ("A=cat,B=", "letter B must have a class"),
        ("A=cat,dog", "must be LETTER=CLASS,... or a file"),
        ("nothing.csv", "or a CSV file with the columns letter and class, got"),
    ],
)
def test_wrong_options_are_refused(text, message):
    with pytest.raises(ValueError) as error:
        letter_options.parse(text)
    assert message in str(error.value)


def test_bare_letters_have_the_order_that_is_named(tmp_path):
    """Right answers to reversed options are right only if the order is named; a line says it."""
    by_class = {name: letter for letter, name in REVERSED.items()}
    answers = [f"{by_class[shape(name)]}." for name in CONFLICTS]
    right, lines = read_words(tmp_path / "a.csv", answers, options=REVERSED)
    assert right.accuracy == 1
    assert "1,280 answers are letters without a class, read as A = truck" in lines[-1]
    assert "alphabetical" not in lines[-1]
    wrong, lines = read_words(tmp_path / "b.csv", answers)
    assert wrong.accuracy < 0.5
    assert lines[-1].endswith(
        "read as A = airplane, B = bear, C = bicycle, ..., P = truck (alphabetical order); if "
        "the question had another order, use --options"
    )


def test_letters_that_contradict_their_classes_are_a_warning(tmp_path):
    by_class = {name: letter for letter, name in REVERSED.items()}
    answers = [f"{by_class[shape(name)]}. {shape(name)}" for name in CONFLICTS[:100]]
    observer, lines = read_words(tmp_path / "a.csv", answers)
    assert observer.is_unanswered.all()
    assert (
        "in 100 of 100 answers with a letter and a class the two contradict"
        in lines[-1]
    )
    observer, lines = read_words(tmp_path / "a.csv", answers, options=REVERSED)
    assert observer.accuracy == 1 and len(lines) == 1


def test_classes_that_are_never_right_are_named_by_the_options(tmp_path):
    header = ("image", "pred_label", "truth")
    rows = [("1.jpg", "tea", "tea"), ("2.jpg", "cup", "pot")]
    path = write(tmp_path / "own.csv", rows, header)
    assert "name all of them by --options" in refusal(path)
    options = letter_options.parse("A=pot,B=tea,C=cup")
    (observer,) = tables.read(path, options=options)
    assert observer.classes == ("cup", "pot", "tea") and observer.accuracy == 1 / 2
    words = [("1.jpg", "B", "tea"), ("2.jpg", "C", "pot")]
    path = write(tmp_path / "own.csv", words, ("image", "answer", "truth"))
    (observer,) = tables.read(path, options=options)
    assert [observer.classes[i] for i in observer.decision] == ["tea", "cup"]
    conflicts = write(tmp_path / "a.csv", [(CONFLICTS[0], "A")], WORDS)
    with pytest.raises(ValueError, match="--options: unknown class of A: 'pot'"):
        tables.read(conflicts, options=options)


def test_labels_that_the_words_do_not_contain_are_a_warning(tmp_path):
    header = ("image", "response", "pred_label")
    rows = [(name, "a painting", "cat") for name in CONFLICTS[:10]]
    rows += [(name, "cats and a carpet", "cat") for name in CONFLICTS[10:20]]
    rows += [(name, "scattered cards", "cat") for name in CONFLICTS[20:30]]
    lines = []
    path = write(tmp_path / "a.csv", rows, header)
    (observer,) = tables.read(path, say=lines.append)
    assert observer.reader == "published label"
    assert "only 10 of 30 answers contain the published class" in lines[0]
    rows = [(name, "H. cat", "cat") for name in CONFLICTS[:5]]
    rows += [(name, "(h)", "cat") for name in CONFLICTS[5:10]]
    lines.clear()
    (observer,) = tables.read(write(tmp_path / "b.csv", rows, header), say=lines.append)
    assert observer.reader == "published label" and not lines
    (observer,) = tables.read(str(tmp_path / "b.csv"), parse="raw")
    assert observer.reader == f"parser {parsing.VERSION}"


def test_altered_names_are_a_warning(tmp_path):
    rows = [(name, "cat") for name in (*CONFLICTS[:9], "cat99-dog99")]
    lines = []
    tables.read(write(tmp_path / "a.csv", rows), say=lines.append)
    assert "1 of 10 images are not among the published cue conflicts" in lines[0]
    assert "cat99-dog99" in lines[0]
    lines.clear()
    new_images = [(f"cat{i}-dog{i}", "cat") for i in range(900, 910)]
    tables.read(write(tmp_path / "b.csv", new_images), say=lines.append)
    assert not lines


def test_every_bad_file_has_a_line(tmp_path):
    for i in range(12):
        write(tmp_path / f"bad{i:02}.csv", [(CONFLICTS[0], f"x{i}")])
    write(tmp_path / "good.csv", [(CONFLICTS[0], "cat")])
    with pytest.raises(errors.SeveralErrors) as error:
        tables.read(str(tmp_path))
    lines = str(error.value).splitlines()
    assert len(lines) == 11 and lines[-1] == "and 2 more"
    names = [pathlib.Path(line.partition(":")[0]).name for line in lines[:10]]
    assert names == [f"bad{i:02}.csv" for i in range(10)]


@cases.each(
    ("rows", "header", "message"),
    [
        (
            [("dog9-cat1", "G. car")],
            ("image", "pred_label"),
            "--columns=raw=pred_label",
        ),
        (
            [("dog9-cat1", "x")],
            ("img", "answer_text"),
            "--columns=response=YOURS, with raw=YOURS in place of",
        ),
        ([("erm", "0.5")], ("algorithm", "score"), "is for jbias report"),
    ],
)
def test_errors_name_the_way_out(tmp_path, rows, header, message):
    assert message in refusal(write(tmp_path / "mine.csv", rows, header))


def test_empty_files_and_far_classes_have_no_wrong_advice(tmp_path):
    (tmp_path / "empty.csv").write_text("")
    assert "the file is empty" in refusal(str(tmp_path / "empty.csv"))
    path = write(tmp_path / "a.csv", [("dog9-cat1", "giraffe")])
    assert "did you mean" not in refusal(path)


def test_a_cell_says_whether_the_question_had_options():
    """No options are "{}", which is not the empty cell of a table that does not say."""
    for options in ({}, {"A": "truck", "B": "oven"}):
        cell = letter_options.format_cell(options)
        assert letter_options.parse_cell(f" {cell} ", "x") == options
    assert letter_options.format_cell({}) == "{}"
    assert letter_options.parse_cell("", "x") is None
    assert letter_options.of_classes({}, ("oven",)) == {}
    assert letter_options.of_classes(None, ("oven",)) is None
