"""Figures of the effects of batch transforms."""

import numpy as np
import pytest
from PIL import Image

from jbias import augment, prepare
from jbias.prepare import inputs
from tests import cases


def run_inputs(tmp_path, *args: str) -> int:
    return prepare.main(["inputs", f"--out={tmp_path}", "--size=32", *args])


@pytest.mark.slow
def test_the_figure_has_a_row_of_images_and_a_row_per_transform(tmp_path, capsys):
    assert run_inputs(tmp_path, "--methods=flip+augmix") == 0
    assert "2 figures of shapes" in capsys.readouterr().out
    flip, augmix = (
        np.asarray(Image.open(tmp_path / f"{name}.png").convert("RGB"))
        for name in ("flip", "augmix")
    )
    assert flip.shape == augmix.shape, "an image and three rows, draws or views"
    assert (flip[6:70, 90:] == augmix[6:70, 90:]).all(), "the same images above"
    assert (flip[73:137, 90:] != augmix[73:137, 90:]).any()


def test_every_visible_transform_can_be_shown():
    assert set(inputs.WITHOUT_FIGURE) < set(augment.AUGMENTS)
    assert set(inputs.OPTIONS) < set(augment.AUGMENTS)


@cases.each(
    ("args", "message"),
    [
        (("--methods=flop",), "--methods: unknown 'flop'; did you mean 'flip'"),
        (("--methods=views",), "--methods: unknown 'views'"),
        (("--data=shape",), "did you mean 'shapes'"),
        (("--columns=99",), "--columns must be 1 to 32, got 99"),
    ],
)
def test_bad_arguments_are_refused(tmp_path, capsys, args, message):
    assert run_inputs(tmp_path, *args) == 2
    assert message in capsys.readouterr().err
