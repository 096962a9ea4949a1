"""The questions are the published ones, and the order of options is drawn fairly."""

import collections
import os
import pathlib

import numpy as np
import pytest
from scipy import stats

from jbias.answers import stimulus_names
from jbias.asking import plan, questions, stimuli
from tests.asking import stub_images

CLASSES = stimulus_names.CLASSES16
# README.md of paulgavrikov/vlm_shapebias at 459198f, with its "\n".
PUBLISHED = (
    r"Which option best describes the image?\nA. airplane\nB. bear\nC. bicycle\nD. bird\nE. boat"
    r"\nF. bottle\nG. car\nH. cat\nI. chair\nJ. clock\nK. dog\nL. elephant\nM. keyboard\nN. knife"
    r"\nO. oven\nP. truck\nAnswer with the option's letter from the given choices directly."
)


def make(image="x.png", *, prompt="choice", order="drawn", seed=0):
    return questions.make(prompt, CLASSES, image=image, order=order, seed=seed)


def test_the_words_are_the_published_ones():
    assert make(order="fixed").text == PUBLISHED.replace(r"\n", "\n")
    caption = make(prompt="caption")
    assert caption == ("Describe the image. Keep your response short.", {})


def test_the_letters_are_those_of_the_text():
    question = make()
    lines = question.text.splitlines()[1:-1]
    assert lines == [f"{letter}. {name}" for letter, name in question.options.items()]
    assert sorted(question.options.values()) == sorted(CLASSES)
    assert [*question.options] == [*"ABCDEFGHIJKLMNOP"]


def test_the_order_depends_on_the_image_and_the_seed_alone():
    assert make() == make()
    assert make() != make(seed=1)
    assert make() != make("y.png")
    reversed_classes = questions.make(
        "choice", CLASSES[::-1], image="x.png", order="drawn", seed=0
    )
    assert make() == reversed_classes


def test_a_changed_folder_keeps_the_orders(tmp_path, monkeypatch):
    """Images that are added, removed, changed or listed in another order change no other question."""
    names = stub_images.draw_names(12)
    stub_images.write(tmp_path / "a", names)
    stub_images.write(
        tmp_path / "elsewhere/b", [*names[:6], *stub_images.draw_names(30)[12:]]
    )
    (tmp_path / "c").symlink_to(tmp_path / "a")
    whole = _questions(tmp_path / "a")
    assert len({tuple(x.options.values()) for x in whole.values()}) == 12
    assert _questions(tmp_path / "c") == whole
    other = _questions(tmp_path / "elsewhere/b")
    shared = {*other} & {*whole}
    assert len(shared) == 6 and {*other} - shared
    assert {name: other[name] for name in shared} == {x: whole[x] for x in shared}
    monkeypatch.chdir(tmp_path / "a")
    walk = os.walk
    monkeypatch.setattr(
        os,
        "walk",
        lambda top, followlinks: reversed([*walk(top, followlinks=followlinks)]),
    )
    assert _questions(pathlib.Path(".")) == whole


def _questions(folder):
    """Return the questions of a plan for a folder, by path of the image."""
    planned = plan.make(
        stimuli.read(str(folder)),
        answered=(),
        refused=(),
        model="vlm",
        endpoint="http://localhost/v1",
        prompt="choice",
        order="drawn",
        seed=3,
        limit=None,
        detail="auto",
        tokens_per_image=0,
        answer_tokens=5,
    )
    return {item.name: item.question for item in planned.items}


def test_names_in_both_forms_of_unicode_have_one_order():
    assert make("\u00e9.png") == make("e\u0301.png")


def test_every_class_is_at_every_letter_equally_often():
    """Chi-squared tests of the 16 by 16 counts, and of the letters of the shapes."""
    counts = np.zeros((16, 16))
    shape_letters = collections.Counter()
    for name in stub_images.CONFLICTS:
        options = make(f"{name}.png").options
        for place, drawn in enumerate(options.values()):
            counts[CLASSES.index(drawn), place] += 1
        letters = {drawn: letter for letter, drawn in options.items()}
        shape_letters[letters[stub_images.cues(name)[0]]] += 1
    # Rows and columns have fixed sums: (16 - 1)^2 degrees of freedom.
    expected = len(stub_images.CONFLICTS) / 16
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert 0.01 < stats.chi2.sf(statistic, 15**2) < 0.99
    assert stats.chisquare([*shape_letters.values()]).pvalue > 0.01


def test_a_choice_has_two_to_26_plain_classes():
    questions.check_classes("choice", CLASSES)
    questions.check_classes("caption", [*map(str, range(100))])
    for classes in (
        ["cat"],
        [*map(str, range(27))],
        ["cat", "dog, brown"],
        ["a=b", "c"],
        ["Fox", "fox"],
    ):
        with pytest.raises(ValueError, match="must (have|differ)"):
            questions.check_classes("choice", classes)
