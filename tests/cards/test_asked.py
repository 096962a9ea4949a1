"""Cards of models behind an endpoint: the question, and words that are parsed again."""

import shutil

import pytest

from jbias.answers import letter_options, parsing
from jbias.asking import answer_table, ledger, questions, settings, stimuli
from jbias.cards import cli, tables, verify
from tests.cards import forging, planted

SETTINGS = {
    "endpoint": "http://127.0.0.1:8000/v1",
    "model": "tiny",
    "prompt": questions.CHOICE,
    "words": questions.WORDS[questions.CHOICE],
    "order": questions.DRAWN,
    "seed": 7,
    "temperature": 0.0,
    "answer_tokens": 30,
    "detail": "auto",
    "extra": {"top_p": 1},
    "classes": list(planted.CLASSES),
    "images": 1280,
    "images_sha256": "0" * 64,
}
REFUSAL = "I'm sorry, I cannot help with that."


def ask(folder, decided, *, seed=7, num_refused=0):
    """Write a folder of `jbias ask` with a letter for each decision, and refusals for "na".

    num_refused: of the last images, which the endpoint refused.
    """
    folder.mkdir(parents=True)
    settings.open_folder(str(folder), {**SETTINGS, "seed": seed})
    book = ledger.Ledger(str(folder))
    shown = []
    for i, (image, decision) in enumerate(decided.items()):
        shape, texture = planted.cues(image)
        name = f"{shape}/{image}.png"
        shown.append(stimuli.Stimulus(name, shape, texture, "", ""))
        question = questions.make(
            questions.CHOICE, planted.CLASSES, image=name, order="drawn", seed=seed
        )
        letter = {x: y for y, x in question.options.items()}.get(decision)
        refusal = None if letter else REFUSAL
        content = {
            "response": f"{letter}. {decision}" if letter else REFUSAL,
            "refusal": refusal,
            "finish_reason": "stop",
            "served_model": "tiny-2026",
            "options": dict(question.options),
            "prompt_tokens": 9,
            "completion_tokens": 2,
        }
        request = book.send(name, input_tokens=9, answer_tokens=30)
        if i < len(decided) - num_refused:
            book.answer(request, name, content)
            continue
        line = {"options": dict(question.options)}
        book.fail(request, image=name, is_charged=False, reason="413", refused=line)
    book.close()
    answer_table.write(
        str(folder),
        shown,
        answers=book.answers,
        refused=book.refused,
        model="tiny",
        prompt=questions.CHOICE,
    )


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """Return the folder of a card of 50 shape, 60 texture, 20 neither and 5 refused answers."""
    folder = tmp_path_factory.mktemp("asked")
    ask(folder / "asked/tiny-choice", planted.decide(50, 60, 20, 5))
    flags = [f"--out={folder / 'measured'}", f"--cards={folder / 'cards'}"]
    assert cli.main([str(folder / "asked/tiny-choice"), *flags]) == 0
    (card_folder,) = (folder / "cards").iterdir()
    assert card_folder.name.startswith("tiny-choice-")
    return card_folder


@pytest.fixture
def folder(original, tmp_path):
    """Return a copy of the card that a test may change."""
    return forging.copy(original, tmp_path)


def test_a_card_says_what_was_asked(original):
    content = planted.read(original)
    question = content["model"]["asked"]
    for key in ("model", "prompt", "words", "order", "seed", "temperature"):
        assert question[key] == SETTINGS[key]
    assert question["endpoint"] == "127.0.0.1:8000"
    assert (
        question["served_models"] == ["tiny-2026"] and question["answer_tokens"] == 30
    )
    assert (question["answers"], question["refused"], question["cut_off"]) == (
        135,
        5,
        0,
    )
    assert question["first"] <= question["last"] and question["first"].endswith(
        "+00:00"
    )
    (entry,) = content["decisions"]
    assert entry["parser"] == content["versions"]["parser"] == parsing.VERSION
    assert entry["reasons"] == {"refusal": 5}
    text = (original / "section.md").read_text()
    assert "`tiny-2026`" in text and "5 of 135 requests were refused" in text
    assert not verify.verify(original).differences


def test_refused_answers_are_unanswered_and_not_neither(original):
    bias = planted.read(original)["numbers"][0]
    assert bias["neither"] == {"count": 20, "n": 135}
    assert bias["unanswered"] == {"count": 5, "n": 135}
    assert bias["n"] + 20 + 5 == 135


def test_a_decision_that_is_not_that_of_the_words_is_found(original, folder):
    """All digests, checks and numbers are those of the changed decision."""
    _, rows = forging.read_rows(original)
    row = rows[0]
    assert row[1] == row[2]  # For the shape.
    row[1] = row[3]
    forging.forge(folder, rows)
    (line,) = verify.verify(folder).differences
    assert "1 decisions are not those of the model's words" in line and row[0] in line


def test_words_without_an_answer_that_were_changed_are_found(original, folder):
    header, rows = forging.read_rows(original)
    words = header.index("raw_response")
    row = next(row for row in rows if row[words] == f"[refused] {REFUSAL}")
    row[words] = ""
    forging.forge(folder, rows, reasons={"refusal": 5})
    (line,) = verify.verify(folder).differences
    assert "reasons for no answer are {'refusal': 5} in the card" in line


def test_words_that_were_removed_are_found(original, folder):
    header, rows = forging.read_rows(original)
    ends = header.index("raw_response")
    forging.forge(
        folder, [[*x[:ends], x[-1]] for x in rows], header=[*header[:ends], header[-1]]
    )
    lines = verify.verify(folder).differences
    assert lines and all("lacks the model's own words" in line for line in lines)
    content = planted.read(folder)
    content["decisions"][0] |= {"parser": "", "reasons": {}}
    forging.seal(folder, content)
    (line,) = verify.verify(folder).differences
    assert "lacks the model's own words, which the card says were asked for" in line


def test_numbers_of_requests_that_do_not_fit_the_rows_are_found(original, folder):
    for changes, word in {
        (("answers", 5), ("refused", 0)): "5 images were asked about by the card",
        (("answers", 130), ("refused_images", 5)): "at most 0 by its words",
        (("refused", 136),): "refused is more than",
        (("first", "**X** <b>"),): "must match",
    }.items():
        content = planted.read(original)
        content["model"]["asked"] |= dict(changes)
        forging.seal(folder, content)
        (line,) = verify.verify(folder).differences
        assert word in line


def test_another_table_beside_a_question_is_refused(tmp_path, capsys):
    """Another model's table, and a table that contradicts the stored answers."""
    ask(tmp_path / "tiny", planted.decide(60, 50, 0, 0))
    ask(tmp_path / "other", planted.decide(50, 60, 0, 0))
    flags = [f"--out={tmp_path / 'measured'}", f"--cards={tmp_path / 'cards'}"]
    another = (tmp_path / "other/decisions.csv").read_text()
    for name, word in {
        "other": "must be decisions.csv",
        "decisions": "other rows",
    }.items():
        (tmp_path / f"tiny/{name}.csv").write_text(another)
        assert cli.main([str(tmp_path / f"tiny/{name}.csv"), *flags]) == 1
        *_, line = capsys.readouterr().err.splitlines()
        assert line.startswith("jbias: no card: ") and word in line
    assert not (tmp_path / "cards").exists()


def test_more_answers_than_were_measured_are_refused_until_measured_again(
    tmp_path, capsys
):
    decided = planted.decide(60, 70, 0, 0)
    images = [*decided]
    ask(tmp_path / "tiny", {x: decided[x] for x in (*images[:55], *images[60:115])})
    flags = [f"--out={tmp_path / 'measured'}", f"--cards={tmp_path / 'cards'}"]
    assert cli.main([str(tmp_path / "tiny"), *flags]) == 0
    (measured,) = (tmp_path / "measured").glob("*/*/tiny")
    shutil.rmtree(tmp_path / "tiny")
    ask(tmp_path / "tiny", decided)
    capsys.readouterr()
    assert cli.main([str(measured), flags[1]]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "must be the table that was measured" in line
    (card_folder,) = (tmp_path / "cards").iterdir()
    assert planted.read(card_folder)["model"]["asked"]["answers"] == 110
    code = cli.main([str(tmp_path / "tiny"), *flags])
    assert code == 0, capsys.readouterr().err
    assert planted.read(card_folder)["model"]["asked"]["answers"] == 130
    assert not verify.verify(card_folder).differences


def test_two_questions_to_one_model_have_a_card_each(tmp_path):
    flags = [f"--out={tmp_path / 'measured'}", f"--cards={tmp_path / 'cards'}"]
    for seed in (7, 8):
        folder = tmp_path / f"seed{seed}/out"
        ask(folder, planted.decide(50 + seed, 60, 0, 0), seed=seed)
        assert cli.main([str(folder), *flags]) == 0
    cards = [planted.read(folder) for folder in (tmp_path / "cards").iterdir()]
    assert {x["model"]["asked"]["seed"] for x in cards} == {7, 8}


def test_images_that_the_endpoint_refused_are_counted(tmp_path):
    """The ledger has a refusal for each of 20 images, and no words."""
    ask(tmp_path / "tiny", planted.decide(60, 60, 0, 0), num_refused=20)
    flags = [f"--out={tmp_path / 'measured'}", f"--cards={tmp_path / 'cards'}"]
    assert cli.main([str(tmp_path / "tiny"), *flags]) == 0
    (folder,) = (tmp_path / "cards").iterdir()
    question = planted.read(folder)["model"]["asked"]
    assert (question["answers"], question["refused_images"]) == (100, 20)
    assert "20 of 120 requests were refused" in (folder / "section.md").read_text()
    assert not verify.verify(folder).differences


def test_another_parser_asks_for_another_jbias(original, folder, monkeypatch):
    """Even if the current parser would read another decision: the card is not called forged."""
    monkeypatch.setattr(parsing, "VERSION", "99")
    (line,) = verify.verify(folder).differences
    assert (
        f"words were read by parser {planted.read(original)['versions']['parser']}"
        in line
    )
    assert "this jbias has parser 99; this is no sign of a forged card" in line


def test_the_table_of_a_card_is_measured_to_the_same_numbers(original, tmp_path):
    flags = [f"--out={tmp_path / 'measured'}", f"--cards={tmp_path / 'cards'}"]
    table = original / "decisions/cue-conflict.csv"
    assert cli.main([str(table), "--parse=raw", *flags]) == 0
    (again,) = (tmp_path / "cards").iterdir()
    assert planted.read(again)["numbers"] == planted.read(original)["numbers"]


def test_a_folder_without_answers_is_refused(tmp_path, capsys):
    settings.open_folder(str(tmp_path), SETTINGS)
    assert cli.main([str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "must have answers, decisions.csv" in line


def test_options_of_the_question_are_beside_the_words(original):
    header, rows = forging.read_rows(original)
    i, words = header.index("drawn_options"), header.index("raw_response")
    orders = {row[i] for row in rows}
    assert len(orders) > 100
    for row in rows:
        options = letter_options.parse_cell(row[i], "")
        assert {*options.values()} == {*planted.CLASSES}
        letter, _, name = row[words].partition(". ")
        assert row[1] == "na" or options[letter] == name == row[1]


def test_words_of_captions_are_parsed_again_without_letters():
    table = tables.Table(
        dataset="mine",
        num_classes=16,
        images=("x", "y"),
        label=("bottle", "cat"),
        texture=None,
        decided={"": ("na", "cat")},
        words=("F. a metal hook", "a cat"),
        letters=("{}", "{}"),
        parser=parsing.VERSION,
    )
    assert [x.decision for x in tables.parse_words(table)] == ["", "cat"]
