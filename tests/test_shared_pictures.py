"""Pairs of vision-language models that differ, with and without shared pictures drawn.

docs/statistics.md has these numbers.
"""

import pathlib
import re

import numpy as np

from jbias.data import tables
from jbias.stats import ratios
from studies import stored_answers

STATISTICS = pathlib.Path(__file__).parents[1] / "docs/statistics.md"


def test_the_docs_have_the_numbers_of_pairs_with_and_without_shared_pictures():
    pictures = [re.findall(r"[a-z]+\d+", name) for name in tables.cue_conflicts()]
    classes = sorted(
        {re.sub(r"\d", "", picture) for pair in pictures for picture in pair}
    )
    letters = dict(zip(classes, "0123456789abcdef", strict=True))
    cues = np.array(
        [[letters[re.sub(r"\d", "", x)] for x in pair] for pair in pictures]
    )
    is_conflict = cues[:, 0] != cues[:, 1]
    shape, texture = cues[is_conflict].T
    rows = stored_answers.read()
    rows = rows[rows["observer"].str.startswith("vlm/vqa/")]
    answers = np.array([[*text] for text in rows["answers"]])[:, is_conflict]
    is_shape, is_texture = answers == shape, answers == texture
    clusters = np.array(pictures)[is_conflict].T
    assert [len({*column}) for column in clusters] == [160, 48]
    images, drawn = (
        ratios.compare_ratios(is_shape, is_shape | is_texture, clusters=ways)
        for ways in ((), clusters)
    )
    counts = [
        int(np.sum(p <= 0.05))
        for p in (images.pvalue, drawn.pvalue, images.adjusted, drawn.adjusted)
    ]
    text = " ".join(STATISTICS.read_text("utf-8").split())
    assert (
        f"of the {len(images.pvalue)} pairs of [{len(answers)} vision-language" in text
    )
    assert f"{counts[0]} then become {counts[1]} that differ" in text
    assert f"and {counts[2]} after Holm {counts[3]}." in text
    assert "1,200 conflicts combine 160 shapes with 48 textures" in text
