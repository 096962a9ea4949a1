"""Sheets of images: position, pixels, labels and saliency maps."""

import io

import numpy as np
import pytest
from PIL import Image

from jbias.report import image_sheets, plots
from tests import cases

IMAGES = np.random.default_rng(0).random((2, 8, 8, 3))
BYTES = np.rint(255 * IMAGES).astype(np.uint8)
COLUMNS = {
    "as it is": IMAGES,
    "bytes": BYTES,
    "the map of stage3": IMAGES[..., 0],
    "$mask 0.3": IMAGES[..., 0] > 0.5,
}


def pixels(fig) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(plots.to_png(fig))).convert("RGB"))


def cells(fig) -> list[np.ndarray]:
    """Return the part of the PNG of each picture, column by column."""
    sheet, pictures = pixels(fig), []
    height, width, _ = sheet.shape
    for axes in fig.axes:
        box = axes.get_position()
        columns = [round(width * value) for value in (box.x0, box.x1)]
        rows = [round(height * (1 - value)) for value in (box.y1, box.y0)]
        pictures.append(sheet[rows[0] : rows[1], columns[0] : columns[1]])
    return pictures


def words(fig) -> set[str]:
    return {text.get_text() for text in fig.texts}


def assert_texts_fit(fig) -> None:
    """Assert that no text is cut off or overlaps another text."""
    boxes = [text.get_window_extent() for text in fig.texts]
    width, height = fig.get_size_inches() * fig.dpi
    for i, box in enumerate(boxes):
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height
        for other in boxes[:i]:
            assert not box.overlaps(other)


def test_pictures_are_in_their_rows_and_columns():
    fig = image_sheets.draw(COLUMNS, ["first", "second"])
    assert len(fig.axes) == 8
    for j, (name, column) in enumerate(COLUMNS.items()):
        for i, image in enumerate(column):
            axes = fig.axes[2 * j + i]
            drawn = axes.images[0].get_array()
            np.testing.assert_array_equal(drawn, BYTES[i] if j == 0 else image, name)
            box, first = axes.get_position(), fig.axes[0].get_position()
            assert (box.x0 > first.x0) == (j > 0) and (box.y0 < first.y0) == (i > 0)
            assert 0 <= box.x0 < box.x1 <= 1 and 0 <= box.y0 < box.y1 <= 1
    assert words(fig) == {
        *("first", "second", "as it is", "bytes", "the map of\nstage3", "$mask 0.3")
    }
    assert_texts_fit(fig)


@cases.each("side", [8, 28, 32, 224])
def test_each_pixel_is_enlarged_to_a_square(side):
    images = np.random.default_rng(1).integers(0, 256, (2, side, side, 3), np.uint8)
    pictures = cells(
        image_sheets.draw({"a": images, "b": images[::-1]}, ["one", "two"])
    )
    for drawn, image in zip(pictures, [*images, *images[::-1]], strict=True):
        times = -(-128 // side)
        np.testing.assert_array_equal(drawn, image.repeat(times, 0).repeat(times, 1))


def test_many_columns_are_wrapped_and_kinds_stay_together():
    names = ["as it is", *(f"{kind} {i}" for kind in "abc" for i in range(3))]
    fig = image_sheets.draw({name: IMAGES for name in names}, across=5)
    rows = [round(axes.get_position().y0, 4) for axes in fig.axes[::2]]
    assert [rows.count(row) for row in dict.fromkeys(rows)] == [4, 3, 3]
    assert_texts_fit(fig)
    fig = image_sheets.draw({f"a {i}": IMAGES for i in range(7)}, across=3)
    assert len({round(axes.get_position().y0, 4) for axes in fig.axes[::2]}) == 3
    for drawn, i in zip(cells(fig), [0, 1] * 7, strict=True):
        np.testing.assert_array_equal(drawn, BYTES[i].repeat(16, 0).repeat(16, 1))


def test_long_names_are_wrapped_between_words():
    names = ("jpeg_compression-3", "linf 0.25/255 2 steps", "a/preact_resnet18 seed 10")
    fig = image_sheets.draw(dict.fromkeys(names, IMAGES), ["1234567 " + "w" * 40] * 2)
    assert_texts_fit(fig)
    assert "jpeg_\ncompression-3" in words(fig)


def test_decisions_are_below_and_correct_decisions_are_marked():
    saliency = image_sheets.NetworkMaps(
        maps=np.stack([np.zeros((8, 8)), np.eye(8)]),
        decisions=["cat", "dog (n02110185)"],
        confidence=np.array([0.5, 0.956]),
        is_correct=np.array([False, True]),
    )
    fig = image_sheets.saliency(
        IMAGES, ["1 cow", "2 dog"], {"a": saliency}, title="Grad-CAM"
    )
    assert {"cat\n✗ 50%", "dog (n02110185)\n✓ 96%"} < words(fig)
    assert_texts_fit(fig)
    grey = np.rint(255 * (0.4 * IMAGES[0] @ [0.299, 0.587, 0.114]))
    empty_map = fig.axes[2].images[0].get_array()
    assert np.abs(empty_map - (grey[..., None] + 0.6 * np.array([0, 0, 4]))).max() <= 1
    class_map = fig.axes[3].images[0].get_array().astype(int).sum(-1)
    assert class_map[np.eye(8) == 1].min() > class_map[np.eye(8) == 0].max()


def test_mean_maps_share_a_colour_scale():
    means = {
        "a": image_sheets.MeanMap(np.full((8, 8), 0.2), 9, 0),
        "b": image_sheets.MeanMap(np.full((8, 8), 0.4), 9, 3),
    }
    fig = image_sheets.mean_maps(means, title="Mean")
    first, second = (axes.images[0].get_array() for axes in fig.axes)
    assert (first == 0.5).all() and (second == 1).all()
    assert {"to 0.20\n0 of 9 empty", "to 0.40\n3 of 9 empty"} < words(fig)
    assert_texts_fit(fig)


def test_tall_images_keep_their_aspect_ratio():
    fig = image_sheets.draw({"stacked": np.zeros((3, 64, 32, 3))})
    width, height = fig.get_size_inches()
    box = fig.axes[0].get_position()
    assert box.height * height == pytest.approx(2 * box.width * width)


@cases.each(
    ("columns", "names"),
    [({}, ()), ({"a": IMAGES, "b": IMAGES[:1]}, ()), ({"a": IMAGES}, ["one"])],
)
def test_columns_of_other_lengths_are_refused(columns, names):
    with pytest.raises(ValueError, match="image_sheets: columns must have the same"):
        image_sheets.draw(columns, names)
