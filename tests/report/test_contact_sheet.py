"""Every picture stands where its row and its column meet, and is what was given."""

import numpy as np
import pytest

from jbias.report import contact_sheet, figures

IMAGES = np.random.default_rng(0).random((2, 8, 8, 3))
COLUMNS = {
    "as it is": IMAGES,
    "bytes": np.round(255 * IMAGES).astype(np.uint8),
    "the map of stage3": IMAGES[..., 0],
    "$mask 0.3": IMAGES[..., 0] > 0.5,
}


def test_pictures_are_in_their_rows_and_columns():
    fig = contact_sheet.draw(COLUMNS, ["first", "second"])
    assert len(fig.axes) == 8
    for j, column in enumerate(COLUMNS.values()):
        for i, one in enumerate(column):
            axes = fig.axes[2 * j + i]
            np.testing.assert_array_equal(axes.images[0].get_array(), one)
            box, first = axes.get_position(), fig.axes[0].get_position()
            assert (box.x0 > first.x0) == (j > 0) and (box.y0 < first.y0) == (i > 0)
            assert 0 <= box.x0 < box.x1 <= 1 and 0 <= box.y0 < box.y1 <= 1
    words = {text.get_text() for text in fig.texts}
    told = {"first", "second", "as it is", "bytes", "the map of\nstage3", "$mask 0.3"}
    assert words == told
    assert figures.to_png(fig).startswith(b"\x89PNG")


def test_tall_images_keep_their_proportion():
    fig = contact_sheet.draw({"stacked": np.zeros((3, 64, 32, 3))})
    width, height = fig.get_size_inches()
    box = fig.axes[0].get_position()
    assert box.height * height == pytest.approx(2 * box.width * width)


@pytest.mark.parametrize(
    ("columns", "names"),
    [({}, ()), ({"a": IMAGES, "b": IMAGES[:1]}, ()), ({"a": IMAGES}, ["one"])],
)
def test_columns_of_other_lengths_are_refused(columns, names):
    with pytest.raises(ValueError, match="contact_sheet: columns must be of the same"):
        contact_sheet.draw(columns, names)
