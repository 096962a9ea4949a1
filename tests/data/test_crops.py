"""Training crops equal Pillow's crops of the same window, with every decoder."""

import io
import math
from concurrent import futures

import numpy as np
import pytest
import scipy.stats
import simplejpeg
from PIL import Image, JpegImagePlugin

from jbias.data import decoding
from tests import cases

DRAWS = 4000
LEAST_P = 1e-3  # Of a test with a fixed seed.
KINDS = {
    "444": dict(subsampling=0),
    "422": dict(subsampling=1),
    "420": dict(subsampling=2),
    "progressive": dict(subsampling=2, progressive=True),
    "restarts": dict(subsampling=2, restart_marker_rows=1),
    "rgb": dict(keep_rgb=True),
    "grey": dict(grey=True),
    "optimised": dict(optimize=True, quality=30),
}


def photograph(size, seed=0):
    """Return an image as smooth as a photograph: noise 40 pixels wide plus noise 1 pixel
    wide.
    """
    rng = np.random.default_rng(seed)
    width, height = size
    small = rng.integers(0, 256, (height // 40 + 2, width // 40 + 2, 3), np.uint8)
    smooth = np.asarray(Image.fromarray(small).resize(size, Image.BICUBIC), np.float32)
    return Image.fromarray(
        np.clip(smooth + rng.normal(0, 8, smooth.shape), 0, 255).astype(np.uint8)
    )


def save(path, kind, size):
    options = {"quality": 90, **KINDS[kind]}
    image = photograph(size)
    image = image.convert("L") if options.pop("grey", False) else image
    image.save(path, **options)


def resize_by_hand(file, window, size):
    """Return the pixels that torchvision's steps give on a Pillow image."""
    left, top, width, height = window
    with Image.open(file) as image:
        cut = image.convert("RGB").crop((left, top, left + width, top + height))
        return np.asarray(cut.resize((size, size), Image.BILINEAR))


def crop(path, window, size):
    return decoding.cropped(lambda: str(path), str(path), size, lambda w, h: window)


def distance(a, b):
    return np.abs(a.astype(int) - b).max()


def psnr(a, b):
    return 10 * math.log10(255**2 / np.square(a.astype(float) - b).mean())


@pytest.fixture
def no_pillow(monkeypatch):
    """Make decoding fail if a file falls back to Pillow."""
    monkeypatch.setattr(decoding, "decode", None)


@pytest.fixture(params=["turbojpeg", "simplejpeg"])
def decoder(request, monkeypatch):
    """Select each of the two decoders in turn, the first only where installed."""
    if request.param == "simplejpeg":
        monkeypatch.setattr(decoding, "turbojpeg_library", lambda: None)
    elif decoding.turbojpeg_library() is None:
        pytest.skip("needs TurboJPEG 3: `pip install turbojpeg`")


# Windows.


def torchvision_box(rng, width, height, scale, ratio):
    """Return the window of torchvision's get_params, ported line by line."""
    area, log_ratio = height * width, np.log(ratio)
    for _ in range(10):
        target_area = area * rng.uniform(scale[0], scale[1])
        aspect_ratio = np.exp(rng.uniform(log_ratio[0], log_ratio[1]))
        w = round(math.sqrt(target_area * aspect_ratio))
        h = round(math.sqrt(target_area / aspect_ratio))
        if 0 < w <= width and 0 < h <= height:
            i = rng.integers(0, height - h + 1)
            j = rng.integers(0, width - w + 1)
            return j, i, w, h
    in_ratio = width / height
    if in_ratio < min(ratio):
        w, h = width, round(width / min(ratio))
    elif in_ratio > max(ratio):
        h, w = height, round(height * max(ratio))
    else:
        w, h = width, height
    return (width - w) // 2, (height - h) // 2, w, h


@cases.each(
    "size", [(500, 375), (97, 400), (1200, 100), (3, 2), (1, 1)], quick=("size0",)
)
@cases.each("area", [(0.08, 1), (0.9, 1.0)])
def test_windows_follow_torchvisions_rule(size, area):
    rng, reference_rng = np.random.default_rng(0), np.random.default_rng(1)
    ratio = (3 / 4, 4 / 3)
    width, height = size
    windows = np.array(
        [decoding.random_window(rng, width, height, area=area) for _ in range(DRAWS)]
    )
    expected = [
        torchvision_box(reference_rng, width, height, area, ratio) for _ in range(DRAWS)
    ]
    left, top, w, h = windows.T
    assert (0 <= left).all() and (0 < w).all() and (left + w <= width).all()
    assert (0 <= top).all() and (0 < h).all() and (top + h <= height).all()
    for a, b in zip(windows.T, np.array(expected).T, strict=True):
        assert scipy.stats.ks_2samp(a, b, method="asymp").pvalue > LEAST_P


def test_windows_that_always_fit_have_the_documented_distributions():
    """Area and place are uniform and aspect log-uniform, up to rounding to pixels."""
    rng, side, area = np.random.default_rng(2), 10_000, (0.08, 0.5)
    drawn = [decoding.random_window(rng, side, side, area=area) for _ in range(DRAWS)]
    left, top, w, h = np.array(drawn).T
    uniform = {
        "area": ((w * h) / side**2 - 0.08) / 0.42,
        "aspect": np.log(w / h) / np.log(16 / 9) + 0.5,
        "left": left / (side - w),
        "top": top / (side - h),
    }
    for name, values in uniform.items():
        assert scipy.stats.kstest(values, "uniform").pvalue > LEAST_P, name


@cases.each(
    ("size", "window"),
    [
        ((1000, 10), (493, 0, 13, 10)),
        ((10, 1001), (0, 494, 10, 13)),
        ((50, 45), (0, 0, 50, 45)),
    ],
)
def test_the_window_is_central_where_no_window_fits(size, window):
    width, height = size
    rng = np.random.default_rng(0)
    assert decoding.random_window(rng, width, height, area=(5, 6)) == window


# Ordinary JPEG files.

WINDOWS = [
    (0, 0, 333, 251),
    (0, 0, 64, 64),
    (0, 0, 40, 15),  # Ends one row above a unit of 16.
    (17, 3, 40, 29),  # Ends at a unit.
    (100, 90, 233, 161),
    (332, 250, 1, 1),
    (5, 200, 300, 20),
]


@cases.each("kind", KINDS)
def test_crops_equal_pillows(tmp_path, kind, decoder, no_pillow, monkeypatch):
    """Crops equal Pillow's to the bit where Pillow resizes, else to one level: both round
    twice.
    """
    path = tmp_path / "a.JPEG"
    save(path, kind, (333, 251))
    expected = [resize_by_hand(path, window, 64) for window in WINDOWS]
    for window, pixels in zip(WINDOWS, expected, strict=True):
        assert distance(crop(path, window, 64), pixels) <= 1, window
    monkeypatch.setattr(decoding, "resizer", None)
    for window, pixels in zip(WINDOWS, expected, strict=True):
        np.testing.assert_array_equal(crop(path, window, 64), pixels)


@cases.each("resizer", [True, False])
@cases.each("kind", KINDS)
def test_reduced_decoding_is_close_to_full_decoding(
    tmp_path, kind, resizer, decoder, no_pillow, monkeypatch
):
    """A window shifted by one of the reduced pixels would have 35 decibels."""
    if not resizer:
        monkeypatch.setattr(decoding, "resizer", None)
    used, decode = [], decoding._decode_reduced

    def watched(*args):
        used.append(args[-1])
        return decode(*args)

    monkeypatch.setattr(decoding, "_decode_reduced", watched)
    path, size = tmp_path / "a.JPEG", 24
    save(path, kind, (501, 455))
    for reduction in (2, 4, 8):
        side = 2 * reduction * size
        window = (37, 29, side + 7, side)
        assert psnr(crop(path, window, size), resize_by_hand(path, window, size)) > 36
        crop(path, (37, 29, side + 7, side - 1), size)
    assert used == [2, 1, 4, 2, 8, 4]


def test_real_photographs(unpacked):
    root = unpacked("imagenet-sample", "imagenet-sample/original")
    rng, errors = np.random.default_rng(0), []
    for path in sorted(root.rglob("*.JPEG"))[::4]:
        with Image.open(path) as image:
            window = decoding.random_window(rng, *image.size)
        expected = resize_by_hand(path, window, 224)
        if min(window[2:]) < 4 * 224:
            assert distance(crop(path, window, 224), expected) <= 1
        errors.append(psnr(crop(path, window, 32), resize_by_hand(path, window, 32)))
    assert min(errors) > 38 and np.median(errors) > 45


def test_threads_do_not_disturb_each_other(tmp_path, decoder):
    path = tmp_path / "a.jpg"
    photograph((333, 251)).save(path, quality=90)
    windows = [(i, 2 * i, 40 + 3 * i, 60 + i) for i in range(60)]
    expected = [crop(path, window, 48) for window in windows]
    with futures.ThreadPoolExecutor(8) as pool:
        threaded = pool.map(lambda window: crop(path, window, 48), windows * 4)
        for i, pixels in enumerate(threaded):
            np.testing.assert_array_equal(pixels, expected[i % len(expected)])


def test_both_decoders_give_the_same_pixels(tmp_path, monkeypatch):
    """Pixels of a run do not depend on the installed decoder."""
    if decoding.turbojpeg_library() is None:
        pytest.skip("needs TurboJPEG 3: `pip install turbojpeg`")
    rng = np.random.default_rng(0)
    for kind in KINDS:
        path = tmp_path / f"{kind}.jpg"
        save(path, kind, (333, 251))
        windows = [decoding.random_window(rng, 333, 251) for _ in range(20)]
        for size in (9, 32, 64):
            turbojpeg_crops = [crop(path, window, size) for window in windows]
            with monkeypatch.context() as patch:
                patch.setattr(decoding, "turbojpeg_library", lambda: None)
                pillow_crops = [crop(path, window, size) for window in windows]
            np.testing.assert_array_equal(turbojpeg_crops, pillow_crops)


def test_files_in_memory_are_read_too(tmp_path):
    path, window = tmp_path / "a.jpg", (3, 4, 30, 20)
    photograph((50, 40)).save(path)
    content = path.read_bytes()
    pixels = decoding.cropped(lambda: io.BytesIO(content), "a", 16, lambda w, h: window)
    np.testing.assert_array_equal(pixels, crop(path, window, 16))


@cases.each("suffix", ["jpg", "png"])
def test_the_window_is_drawn_once_with_the_original_size(tmp_path, suffix):
    path, sizes = tmp_path / f"a.{suffix}", []
    photograph((50, 40)).save(path)

    def draw(width, height):
        sizes.append((width, height))
        return 0, 0, width, height

    decoding.cropped(lambda: str(path), "a", 4, draw)
    assert sizes == [(50, 40)]


@cases.each("suffix", ["jpg", "png"])
@cases.each("window", [(-1, 0, 9, 9), (0, 0, 51, 9), (0, 32, 9, 9), (0, 0, 0, 9)])
def test_windows_outside_the_image_are_refused(tmp_path, suffix, window):
    path = tmp_path / f"a.{suffix}"
    photograph((50, 40)).save(path)
    with pytest.raises(ValueError, match="must lie inside the image of 50x40, got"):
        crop(path, window, 4)


# Canvases.


@cases.each("size", [(500, 375), (40, 90), (700, 600)])
def test_a_canvas_is_the_whole_image_squeezed(tmp_path, size, decoder, no_pillow):
    path = tmp_path / "a.jpg"
    photograph(size).save(path, quality=90)
    pixels, aspect = decoding.canvas(lambda: str(path), "a", 128)
    assert aspect == size[0] / size[1]
    expected = resize_by_hand(path, (0, 0, *size), 128)
    assert pixels.shape == (128, 128, 3) and psnr(pixels, expected) > 45


# Odd files. ImageNet has a PNG called JPEG, 22 in CMYK, and grey ones.


def exif():
    """Return EXIF data with the orientation "rotate by 90 degrees"."""
    tags = Image.Exif()
    tags[0x0112] = 6
    return tags


def ycck(path, image):
    """Write a file in Adobe's YCCK, inverted: the channels of a CMYK file with marker 2."""
    image.convert("CMYK").save(path, quality=90)
    data = path.read_bytes()
    at = data.index(b"Adobe") + 11
    path.write_bytes(data[:at] + b"\x02" + data[at + 1 :])


ODD = {
    "grey": lambda path, image: image.convert("L").save(path),
    "cmyk": lambda path, image: image.convert("CMYK").save(path, quality=90),
    "ycck": ycck,
    "exif": lambda path, image: image.save(path, exif=exif(), quality=90),
    "png": lambda path, image: image.save(path, "PNG"),
    "alpha": lambda path, image: image.convert("RGBA").save(path, "PNG"),
    "palette": lambda path, image: image.convert("P").save(path, "PNG"),
    "webp": lambda path, image: image.save(path, "WEBP"),
    "trailing": lambda path, image: (
        image.save(path),
        path.write_bytes(path.read_bytes() + bytes(9)),
    ),
}


@cases.each("kind", ODD)
def test_odd_files_decode_as_by_hand(tmp_path, kind):
    path, window = tmp_path / "n02105855_2933.JPEG", (20, 30, 150, 100)
    ODD[kind](path, photograph((251, 199)))
    squeezed = decoding.read(path, decoding.preprocess(64, crop=False))
    np.testing.assert_array_equal(squeezed, resize_by_hand(path, (0, 0, 251, 199), 64))
    cropped = crop(path, window, 64)
    if kind in ("exif", "grey"):
        assert distance(cropped, resize_by_hand(path, window, 64)) <= 1
    else:
        np.testing.assert_array_equal(cropped, resize_by_hand(path, window, 64))
    pixels, aspect = decoding.canvas(lambda: str(path), "a", 64)
    assert aspect == 251 / 199 and distance(pixels, squeezed) <= 1


@cases.each("suffix", ["jpg", "png", "webp"])
@cases.each("keep", [0.0, 0.1, 0.6, 0.95, 0.999])
def test_cut_off_files_are_refused_by_name(tmp_path, truncate, suffix, keep, decoder):
    """Truncated files are refused even where all rows of the window are present."""
    path = tmp_path / f"broken.{suffix}"
    photograph((128, 128)).save(path)
    truncate(path, keep)
    with pytest.raises(ValueError, match=rf"broken\.{suffix}: \w+: \S"):
        crop(path, (0, 0, 16, 16), 8)


def test_missing_files_are_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match=r"gone\.jpg: FileNotFoundError"):
        crop(tmp_path / "gone.jpg", (0, 0, 8, 8), 8)


def test_damage_is_treated_as_in_evaluation(tmp_path, decoder):
    """Wherever a byte is wrong, training and evaluation both accept the file or both
    refuse it.
    """
    path = tmp_path / "a.jpg"
    photograph((64, 64)).save(path, quality=50)
    data, rng = path.read_bytes(), np.random.default_rng(0)
    preprocess = decoding.preprocess(32, crop=False)
    outcomes = []
    for at in [*range(2, 700, 7), *rng.integers(700, len(data) - 2, 50)]:
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])
        decoded = []
        for read in (
            lambda: decoding.read(path, preprocess),
            lambda: decoding.canvas(lambda: str(path), "a", 32)[0],
        ):
            try:
                decoded.append(read())
            except ValueError:
                decoded.append(None)
        in_evaluation, in_training = decoded
        assert (in_evaluation is None) == (in_training is None), at
        if in_evaluation is not None:
            assert distance(in_evaluation, in_training) <= 1, at
        outcomes.append(in_evaluation is None)
    assert 0 < sum(outcomes) < len(outcomes)


def test_evaluation_never_reduces(tmp_path, monkeypatch):
    path = tmp_path / "large.jpg"
    photograph((1024, 768)).save(path)
    expected = resize_by_hand(path, (0, 0, 1024, 768), 32)
    monkeypatch.setattr(JpegImagePlugin.JpegImageFile, "draft", None)
    monkeypatch.setattr(simplejpeg, "decode_jpeg", None)
    monkeypatch.setattr(decoding, "decode_region", None)
    pixels = decoding.read(path, decoding.preprocess(32, crop=False))
    np.testing.assert_array_equal(pixels, expected)
