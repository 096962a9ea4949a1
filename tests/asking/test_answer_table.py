"""The table of answers, read by all readers of decisions."""

import pathlib

import numpy as np
import pytest

from jbias.answers import letter_answers, observers, parsing, submission, tables
from jbias.asking import answer_table, questions, stimuli

PUBLISHED = "vlm/vqa/llava_1_5_7b"


def write(folder: pathlib.Path, words, *, prompt="choice") -> str:
    """Write the table of answers to all published cue conflicts; words: by options and image."""
    all_stimuli, answers = [], {}
    for number, image in enumerate(letter_answers.images()):
        name = f"{image}.png"
        question = questions.make(
            prompt,
            letter_answers.stimulus_names.CLASSES16,
            image=name,
            order="drawn",
            seed=0,
        )
        letters = {drawn: letter for letter, drawn in question.options.items()}
        all_stimuli.append(stimuli.Stimulus(name, "", "", "", ""))
        answers[name] = {
            "response": words(number, letters),
            "options": question.options,
            "finish_reason": "stop",
            "served_model": None,
            "prompt_tokens": None,
            "completion_tokens": 5,
            "request": number + 1,
        }
    folder.mkdir(parents=True, exist_ok=True)
    return answer_table.write(
        str(folder),
        all_stimuli,
        answers=answers,
        refused={},
        model="a/vlm",
        prompt=prompt,
    )


@pytest.fixture(scope="module")
def published():
    (observer,) = (x for x in letter_answers.standing_table() if x.name == PUBLISHED)
    place = {image: i for i, image in enumerate(observer.images)}
    order = [place[image] for image in letter_answers.images()]
    return observer.decision[order]


def test_published_decisions_survive_drawn_letters(tmp_path, published):
    """Answers by letters in drawn orders are read as the decisions that they stand for."""
    classes = letter_answers.stimulus_names.CLASSES16

    def words(number, letters):
        decision = published[number]
        if decision == observers.NO_ANSWER:
            return ""
        name = classes[decision]
        return (letters[name], f"{letters[name]}. {name}", f"({letters[name]})")[
            number % 3
        ]

    path = write(tmp_path / "mine", words)
    notes = []
    (observer,) = tables.read(path, say=notes.append)
    place = {image: i for i, image in enumerate(observer.images)}
    order = [place[image] for image in letter_answers.images()]
    assert (observer.decision[order] == published).all()
    assert observer.name == "a/vlm" and observer.parser == parsing.VERSION
    assert any("the options that the table names for each image" in x for x in notes)
    assert not any("contradict" in x for x in notes)
    assert observer.options_of(0) != observer.options_of(1)
    # A submission of these decisions is recognised as a copy of the published ones.
    pathlib.Path(path).rename(tmp_path / "mine/answers.csv")
    checked = submission.check(
        str(tmp_path / "mine"), known=letter_answers.standing_table()
    )
    assert any("agrees with" in x and PUBLISHED in x for x in checked.problems)


def test_letters_that_contradict_the_drawn_options_are_no_answer(tmp_path, published):
    classes = letter_answers.stimulus_names.CLASSES16

    def words(number, letters):
        name = classes[published[number]]
        # A and B, C and D ... are exchanged.
        return f"{chr((ord(letters[name]) - 1 ^ 1) + 1)}. {name}"

    notes = []
    (observer,) = tables.read(write(tmp_path, words), say=notes.append)
    assert (observer.decision == observers.NO_ANSWER).all()
    assert any("check the drawn ones" in note for note in notes)


def test_letters_in_captions_are_no_answer(tmp_path, published):
    forms = ("F", "F.", "F. A photo of a metal hook", "F-16 fighter jet")

    def words(number, letters):
        return forms[number % len(forms)]

    (observer,) = tables.read(write(tmp_path, words, prompt="caption"))
    assert (observer.decision == observers.NO_ANSWER).all()


def test_words_are_marked_where_they_are_refused_or_cut_off():
    def raw(words, finish_reason="stop", refusal=None):
        return answer_table.raw_response(
            {"response": words, "finish_reason": finish_reason, "refusal": refusal}
        )

    assert raw("D") == raw("D", None) == "D"
    assert raw("a cat", "content_filter") == "[refused] a cat"
    assert raw("a cat", "stop", "a cat") == "[refused] a cat"
    assert raw("", "content_filter") == "[refused]"
    assert raw("a cat", "length") == "a cat [cut off]"
    assert raw("", "length") == ""
    long = raw("D\n" + "a" * 200_000)
    assert len(long) < 131_072 and long.endswith("[cut off]")


def test_captions_have_no_options(tmp_path, published):
    classes = letter_answers.stimulus_names.CLASSES16

    def words(number, letters):
        assert not letters
        return f'A photo of a {classes[published[number]]}, in "grey".'

    (observer,) = tables.read(write(tmp_path, words, prompt="caption"))
    # The table says that there were none, so that no letter is read.
    assert not any(observer.drawn_options)
    shares = np.bincount(observer.decision, minlength=16)
    assert (shares == np.bincount(published, minlength=16)).all()
