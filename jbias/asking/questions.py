"""The questions about an image, in the words of a published study.

Source: Gavrikov et al., "Are Vision Language Models Texture or Shape Biased and Can We Steer
Them?", 2024, arXiv:2403.09193; words as in paulgavrikov/vlm_shapebias at 459198f, README.md.

Deviation: the study lists the options in alphabetical order for every image, which is
order="fixed" here. By default the order is drawn for each image, so that a model that prefers a
letter prefers no class.
"""

import hashlib
import unicodedata
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jbias import errors
from jbias.answers import letter_options, parsing

CHOICE, CAPTION = "choice", "caption"
PROMPTS = (CHOICE, CAPTION)
DRAWN, FIXED = "drawn", "fixed"
ORDERS = (DRAWN, FIXED)
WORDS: Mapping[str, str] = {
    CHOICE: "Which option best describes the image?\n{options}\nAnswer with the option's letter "
    "from the given choices directly.",
    CAPTION: "Describe the image. Keep your response short.",
}


class Question(NamedTuple):
    """The words of a question, and the class of each letter in them; {} without options."""

    text: str
    options: Mapping[str, str]


def check_classes(prompt: str, classes: Sequence[str]) -> None:
    """Raise ValueError for classes that answers to a question cannot tell apart.

    Answers in words may differ from a class in case. A question with options has at most 26 classes.
    """
    by_name: dict[str, str] = {}
    for name in classes:
        other = by_name.setdefault(unicodedata.normalize("NFKC", name).casefold(), name)
        must = f"differ from {other!r} in more than case"
        errors.check(other == name, "--stimuli", must, name, "rename it", name="class")
    if prompt != CHOICE:
        return
    remedy = f"use --prompt={CAPTION}, or fewer classes"
    must = "have 2 to 26 classes for a question with options"
    errors.check(2 <= len(classes) <= 26, "--stimuli", must, len(classes), remedy)
    letter_options.format_cell(parsing.letter_options(classes))


def make(
    prompt: str, classes: Sequence[str], *, image: str, order: str, seed: int
) -> Question:
    """Return the question about an image.

    prompt: one of PROMPTS. classes: those that a choice offers. image: path of the image in its
    folder, with "/". It decides with the seed about the order of the options, if `order` is "drawn",
    and nothing else does: neither other images nor the order of files.
    """
    if prompt == CAPTION:
        return Question(WORDS[CAPTION], {})
    names = sorted(classes)
    image = unicodedata.normalize("NFC", image)  # Some file systems store NFD.
    if order == DRAWN:
        names.sort(key=lambda name: _draw(seed, image, name))
    options = {chr(ord("A") + i): name for i, name in enumerate(names)}
    lines = "\n".join(f"{letter}. {name}" for letter, name in options.items())
    return Question(WORDS[CHOICE].format(options=lines), options)


def _draw(seed: int, image: str, name: str) -> str:
    """Return a random text: sorting by it draws every order with the same probability."""
    return hashlib.sha256(f"{seed}\0option\0{image}\0{name}".encode()).hexdigest()
