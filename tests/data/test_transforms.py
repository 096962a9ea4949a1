"""Preprocessing equals torchvision's on Pillow images; damaged images are never ignored."""

import resource

import numpy as np
import pytest
from PIL import Image, ImageFile

from jbias import data
from jbias.data import decoding
from tests import cases


def reference(image, short, size):
    """Return the pixels of torchvision's Resize(short) and CenterCrop(size), step by step."""
    width, height = image.size
    if width <= height:
        new_width, new_height = short, int(short * height / width)
    else:
        new_width, new_height = int(short * width / height), short
    image = image.resize((new_width, new_height), Image.BILINEAR)
    top = round((new_height - size) / 2.0)
    left = round((new_width - size) / 2.0)
    return np.asarray(image)[top : top + size, left : left + size]


@cases.each(
    "size", [(300, 200), (200, 301), (513, 97), (97, 100), (224, 224), (256, 256)]
)
@cases.each("resize", [256, 231, 224])
def test_equals_resize_then_centre_crop(tmp_path, image, size, resize):
    path = image(tmp_path / "a.png", size)
    got = decoding.read(path, decoding.preprocess(224, resize))
    with Image.open(path) as image_file:
        np.testing.assert_array_equal(got, reference(image_file, resize, 224))


def test_parity_on_real_photographs(unpacked):
    root = unpacked("imagenet-sample", "imagenet-sample/original")
    paths = sorted(root.rglob("*.JPEG"))
    assert len(paths) == 84
    for path in paths[::4]:
        got = decoding.read(path, decoding.preprocess(224))
        with Image.open(path) as image_file:
            np.testing.assert_array_equal(
                got, reference(image_file.convert("RGB"), 256, 224)
            )


def test_offsets_round_half_to_even(tmp_path, image):
    path = image(tmp_path / "a.png", (13, 8))  # (13 - 8) / 2 = 2.5 -> 2
    pixels = np.asarray(Image.open(path))
    got = decoding.read(path, decoding.preprocess(8))
    np.testing.assert_array_equal(got, pixels[:, 2:10])


@cases.each(
    ("options", "words"),
    [
        ((224,), "short side 256, centre crop 224; 224x224 images as they are"),
        ((224, 256), "short side 256, centre crop 224"),
        ((64,), "short side 64, centre crop 64"),
        ((224, None, False), "squeezed to 224x224"),
    ],
)
def test_the_description_lists_the_steps_of_preprocessing(options, words):
    step = decoding.preprocess(*options)
    assert step.description == f"Pillow bilinear antialias: {words}"


def test_images_of_the_right_size_are_unchanged_unless_resized(tmp_path, image):
    path = image(tmp_path / "a.png", (224, 224))
    pixels = np.asarray(Image.open(path))
    for preprocess in (
        decoding.preprocess(224),
        decoding.preprocess(224, native=True),
        decoding.preprocess(224, 224),
        decoding.preprocess(224, None, False),
    ):
        np.testing.assert_array_equal(decoding.read(path, preprocess), pixels)
    cropped = decoding.read(path, decoding.preprocess(224, 256))
    assert (cropped != pixels).any()


def test_squeeze_keeps_no_ratio(tmp_path, image):
    path = image(tmp_path / "a.png", (40, 20))
    got = decoding.read(path, decoding.preprocess(16, crop=False))
    expected = Image.open(path).resize((16, 16), Image.BILINEAR)
    np.testing.assert_array_equal(got, np.asarray(expected))


@cases.each(
    ("mode", "suffix"),
    [("CMYK", "jpg"), ("L", "jpg"), ("P", "png"), ("RGBA", "png"), ("1", "png")],
)
def test_every_8_bit_mode_becomes_rgb(tmp_path, image, mode, suffix):
    path = image(tmp_path / f"a.{suffix}", (8, 8), mode)
    with Image.open(path) as image_file:
        assert image_file.mode == mode
        expected = np.asarray(image_file.convert("RGB"))
    got = decoding.read(path, decoding.preprocess(8))
    assert got.dtype == np.uint8
    np.testing.assert_array_equal(got, expected)


def test_palette_with_transparency_keeps_its_colours_without_a_warning(tmp_path, image):
    path = image(tmp_path / "a.png", (8, 8), "P")
    with Image.open(path) as image_file:
        expected = np.asarray(image_file.convert("RGB"))
        image_file.save(tmp_path / "b.png", transparency=bytes(range(256)))
    got = decoding.read(tmp_path / "b.png", decoding.preprocess(8))
    np.testing.assert_array_equal(got, expected)


def test_exif_orientation_is_ignored(tmp_path, image):
    path = image(tmp_path / "a.png", (8, 8))
    with Image.open(path) as image_file:
        exif = Image.Exif()
        exif[0x0112] = 6  # Orientation: rotate by 90 degrees.
        image_file.save(tmp_path / "b.png", exif=exif)
    step = decoding.preprocess(8)
    turned = decoding.read(tmp_path / "b.png", step)
    np.testing.assert_array_equal(turned, decoding.read(path, step))


def test_16_bit_is_refused_not_clipped(tmp_path):
    path = tmp_path / "deep.png"
    Image.fromarray(np.full((8, 8), 40_000, np.uint16)).save(path)
    with pytest.raises(ValueError, match=r"deep\.png.*8 bits a channel, got mode I"):
        decoding.read(path, decoding.preprocess(8))


@cases.each("suffix", ["jpg", "png", "webp"])
@cases.each("keep", [0.0, 0.1, 0.6, 0.95])
def test_cut_off_files_are_refused_by_name(tmp_path, image, truncate, suffix, keep):
    path = image(tmp_path / f"broken.{suffix}", (64, 64))
    truncate(path, keep)
    with pytest.raises(ValueError, match=rf"broken\.{suffix}: \w+: \S") as error:
        decoding.read(path, decoding.preprocess(8))
    assert "\n" not in str(error.value)


def test_truncated_images_must_not_be_let_through(tmp_path, image, monkeypatch):
    path = image(tmp_path / "a.png")
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    with pytest.raises(RuntimeError, match="LOAD_TRUNCATED_IMAGES must be off"):
        decoding.read(path, decoding.preprocess(8))


@cases.each(
    ("options", "message"),
    [
        ((0,), "size must be a whole number >= 1, got 0"),
        ((64.0,), "size must be a whole number >= 1, got 64.0"),
        (
            (224, 200),
            "resize, no smaller than size, must be a whole number >= 224, got 200",
        ),
        ((224, 256, False), "crop=False squeezes .* remove one"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        decoding.preprocess(*options)


@cases.each("size", [(1, 2_000_000), (2_000_000, 1)])
def test_a_thin_image_that_would_fill_the_memory_is_refused_by_name(size, tmp_path):
    """With a short side of 64 pixels, the long side would have 128 million."""
    path = tmp_path / "thin.png"
    Image.new("L", size).save(path)
    memory_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=r"thin\.png: .*at most 178,956,970") as error:
        decoding.read(path, decoding.preprocess(64))
    assert "\n" not in str(error.value)
    assert (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory_before < 2**20
    )  # KiB.


def test_a_thin_array_is_refused_by_the_name_of_its_set(tmp_path):
    images, labels = np.zeros((1, 1, 3_000_000), np.uint8), np.zeros(1, np.int64)
    np.savez_compressed(tmp_path / "thin.npz", images=images, labels=labels)
    with pytest.raises(ValueError, match=r"^data\.npz .*thin: .*at most 178,956,970"):
        data.load("npz", "thin", root=str(tmp_path), size=64)


def test_a_panorama_is_resized_as_other_images(tmp_path, image):
    path = image(tmp_path / "wide.png", (1500, 20))
    with Image.open(path) as image_file:
        expected = reference(image_file, 64, 64)
    np.testing.assert_array_equal(
        decoding.read(path, decoding.preprocess(64)), expected
    )


def test_a_border_keeps_the_whole_image_and_squeezing_fills_the_square(tmp_path):
    path = tmp_path / "wide.png"
    Image.new("RGB", (20, 10), (200, 100, 50)).save(path)
    border = decoding.preprocess(10, fit="border", fill=(1, 2, 3))
    pixels = decoding.read(str(path), border)
    assert (pixels[2:7] == (200, 100, 50)).all()  # 5 rows, of 20 x 10 at half size.
    assert (pixels[:2] == (1, 2, 3)).all() and (pixels[7:] == (1, 2, 3)).all()
    squeezed = decoding.read(str(path), decoding.preprocess(10, fit="squeeze"))
    assert (squeezed == (200, 100, 50)).all()
    with pytest.raises(ValueError, match="crop=False .* without fit"):
        decoding.preprocess(10, crop=False, fit="border")
    with pytest.raises(ValueError, match="interpolation must be one of"):
        decoding.preprocess(10, interpolation="cubic")


@cases.each("interpolation", ["bicubic", "lanczos", "nearest"])
def test_interpolations_are_pillows(tmp_path, image, interpolation):
    path = image(tmp_path / "a.png", (90, 60))
    got = decoding.read(path, decoding.preprocess(32, 32, interpolation=interpolation))
    with Image.open(path) as image_file:
        resampling = Image.Resampling[interpolation.upper()]
        expected = np.asarray(image_file.resize((48, 32), resampling))[:, 8:40]
    np.testing.assert_array_equal(got, expected)
