"""Estimates of tokens equal the examples of OpenAI's guide, and counts that users published."""

import pytest

from jbias.asking import token_counts


@pytest.mark.parametrize(
    ("size", "detail", "tokens"),
    [  # The examples of the guide "Images and vision", for GPT-4o.
        ((1024, 1024), "high", 765),
        ((2048, 4096), "high", 1105),
        ((4096, 8192), "low", 85),
        ((224, 224), "auto", 255),
        ((512, 512), "high", 255),
        ((513, 512), "high", 425),
    ],
)
def test_tiles_are_counted_as_in_the_guide(size, detail, tokens):
    assert (
        token_counts.of_image(size[0], size[1], model="gpt-4o", detail=detail) == tokens
    )


@pytest.mark.parametrize(
    ("model", "billed", "text"),
    [  # An image of 128 by 64 pixels, high detail; OpenAI's forum, 1262691.
        ("o3-2025-04-16", 236, 11),
        ("o4-mini-2025-04-16", 26, 12),
        ("gpt-4.1-2025-04-14", 267, 12),
        ("gpt-4.1-mini-2025-04-14", 26, 12),
        ("gpt-4.1-nano-2025-04-14", 33, 12),
        ("gpt-4o-2024-11-20", 267, 12),
        ("openai/gpt-4o-mini-2024-07-18", 8512, 12),
    ],
)
def test_images_are_counted_as_billed(model, billed, text):
    """`text`: about five words and the frame of the message; it is within two tokens."""
    assert abs(token_counts.of_image(128, 64, model=model) + text - billed) <= 2


def test_other_models_have_the_formula_of_gpt_4o():
    assert token_counts.formula("Qwen/Qwen2.5-VL-7B-Instruct") == "gpt-4o"
    assert token_counts.of_image(224, 224, model="llava") == 255


def test_text_has_a_token_for_every_four_characters():
    assert [token_counts.of_text("x" * n) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]
