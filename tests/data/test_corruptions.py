"""All corruptions: tables, bytes, seeds, order of severities, refusals, frost."""

import cv2
import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from jbias.data import corruptions
from jbias.data.corruptions import host_operations
from tests import cases

KNOWN = corruptions.KNOWN
FIFTEEN = (
    *("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur"),
    *("motion_blur", "zoom_blur", "snow", "frost", "fog", "brightness", "contrast"),
    *("elastic_transform", "pixelate", "jpeg_compression"),
)
# Settings whose damage falls from one severity to the next, in the reference too; that
# of frost hangs on the photographs.
UNEVEN = {"glass_blur", "elastic_transform", "saturate", "frost"}
UNEVEN_SIDES = {("snow", 224), ("spatter", 64), ("spatter", 32), ("motion_blur", 32)}


def smooth(side, seed):
    """Return an image whose colours change slowly, from 0 to 255."""
    field = np.random.default_rng(seed).standard_normal((side, side, 3))
    field = ndimage.gaussian_filter(field, (side / 20, side / 20, 0), mode="wrap")
    field -= field.min()
    return (field * (255 / field.max())).astype(np.uint8)


@pytest.fixture(scope="module")
def ice(tmp_path_factory):
    """Folder of photographs of noise."""
    folder = tmp_path_factory.mktemp("ice")
    rng = np.random.default_rng(0)
    for name in host_operations.FROSTS:
        image = rng.integers(0, 256, (300, 320, 3), np.uint8)
        Image.fromarray(image).save(folder / name)
    return folder


def corrupt(image, name, severity, seed, ice):
    rng = np.random.default_rng(seed)
    return corruptions.corrupt(image, name, severity, rng, frost=ice)


def test_tables_are_complete():
    entries = corruptions.CORRUPTIONS
    assert tuple(name for name in entries if not entries[name].extra) == FIFTEEN
    assert len(entries) == 19 and len(corruptions.BAR) == 10
    for name, entry in KNOWN.items():
        assert entry.apply.__name__ == name
        sides = (0,) if name in corruptions.BAR else corruptions.SIDES
        assert tuple(sorted(entry.published.settings)) == sides
        assert {len(rows) for rows in entry.published.settings.values()} == {5}
        every_row = [row for rows in entry.published.settings.values() for row in rows]
        assert {len(row) for row in every_row} == {len(entry.published.columns)}


@pytest.mark.slow
@cases.each("name", KNOWN)
@cases.each("side", [32, 64, 224])
def test_bytes_in_bytes_out_by_seed_alone(name, side, ice):
    image = smooth(side, 5)
    original = image.copy()
    for severity in (1, 5):
        out = corrupt(image, name, severity, 1, ice)
        assert out.dtype == np.uint8 and out.shape == image.shape
        assert out.flags.writeable and not np.shares_memory(out, image)
        np.testing.assert_array_equal(image, original)
        np.testing.assert_array_equal(out, corrupt(image, name, severity, 1, ice))
    fixed = {"defocus_blur", "zoom_blur", "gaussian_blur", "brightness", "contrast"}
    fixed |= {"saturate", "pixelate", "jpeg_compression"}
    other = corrupt(image, name, 5, 2, ice)
    assert (other == out).all() == (name in fixed)


@cases.each("name", KNOWN)
def test_array_views_give_the_same_pixels(name, ice):
    view = smooth(32, 1).transpose(1, 0, 2)[::-1, :, ::-1]
    view.flags.writeable = False
    expected = corrupt(np.ascontiguousarray(view), name, 3, 0, ice)
    np.testing.assert_array_equal(corrupt(view, name, 3, 0, ice), expected)


EVEN = [(name, side) for name in KNOWN for side in (32, 64, 224) if name not in UNEVEN]


@cases.each(
    ("name", "side"),
    [case for case in EVEN if case not in UNEVEN_SIDES],
    quick=("fog",),
)
def test_damage_grows_with_severity(name, side, ice):
    damage = np.zeros(5)
    for seed in range(2 if side == 224 else 8):
        image = smooth(side, seed)
        for severity in corruptions.SEVERITIES:
            out = corrupt(image, name, severity, seed, ice)
            damage[severity - 1] += np.abs(out.astype(int) - image).mean()
    assert (np.diff(damage) > 0).all(), damage


def test_other_sides_need_a_table():
    image, rng = smooth(96, 0), np.random.default_rng
    message = r"side must be one of \(32, 64, 224\).* got 96; .*table=224"
    with pytest.raises(ValueError, match=message):
        corruptions.corrupt(image, "contrast", 1, rng(0))
    strong = corruptions.corrupt(image, "contrast", 1, rng(0), table=224)
    weak = corruptions.corrupt(image, "contrast", 1, rng(0), table=32)
    assert strong.std() / weak.std() == pytest.approx(0.4 / 0.75, rel=0.01)
    assert corruptions.corrupt(image, "sparkles", 1, rng(0)).shape == image.shape
    assert corruptions.corrupt(image[:33, :33], "blue_noise_sample", 1, rng(0)).any()


@cases.each(
    ("change", "message"),
    [
        ({"name": "gausian_noise"}, "got 'gausian_noise'; did you mean 'gaussian_noi"),
        ({"severity": 0}, r"severity must be one of \(1, 2, 3, 4, 5\), got 0"),
        ({"severity": 6}, "got 6"),
        ({"table": 50}, r"table must be one of \(32, 64, 224\), got 50"),
        ({"image": np.zeros((32, 32, 3))}, r"got float64 \(32, 32, 3\)"),
        ({"image": np.zeros((32, 40, 3), np.uint8)}, r"h = w .* got uint8 \(32, 40, 3"),
        ({"image": np.zeros((32, 32), np.uint8)}, r"got uint8 \(32, 32\)"),
        ({"image": np.zeros((8, 8, 3), np.uint8)}, "at least 32"),
        ({"image": [[1]]}, "got a list"),
    ],
)
def test_bad_arguments_are_refused_by_name(change, message):
    options = dict(
        image=smooth(32, 0), name="fog", severity=1, rng=np.random.default_rng(0)
    )
    with pytest.raises(ValueError, match=f"^data.corrupt: .*{message}") as error:
        corruptions.corrupt(**options | change)
    assert "\n" not in str(error.value)


def test_published_is_jpeg_of_quality_85():
    image = smooth(64, 0)
    stored = host_operations.compressed(image, 85)
    ok, code = cv2.imencode(".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 85])
    assert ok
    expected = cv2.imdecode(code, cv2.IMREAD_COLOR)[..., ::-1].astype(int)
    assert np.abs(stored - expected).max() <= 2


def test_frost_mixes_a_crop_of_one_photograph(tmp_path):
    """Each photograph's red channel encodes its number, its green and blue channels the
    pixel's place.
    """
    rows, columns = np.mgrid[:300, :310]
    for k, name in enumerate(host_operations.FROSTS):
        coded = np.stack([np.full_like(rows, 50 * k), rows // 2, columns // 2], -1)
        path = tmp_path / name
        Image.fromarray(coded.astype(np.uint8)).save(path, "PNG")
    rng, photograph_numbers, tops = np.random.default_rng(0), [], []
    image = np.zeros((224, 224, 3), np.uint8)
    for _ in range(200):
        out = corruptions.corrupt(image, "frost", 3, rng, frost=tmp_path) / 0.7
        photograph_numbers.append(round(out[0, 0, 0] / 50))
        tops.append(out[0, 0, 1] * 2)
        assert out[-1, 0, 1] - out[0, 0, 1] == pytest.approx(223 / 2, abs=3)
        assert out[0, -1, 2] - out[0, 0, 2] == pytest.approx(223 / 2, abs=3)
    assert (np.bincount(photograph_numbers, minlength=5) > 20).all()
    assert min(tops) < 8 and 66 < max(tops) < 79
    grey = np.full((224, 224, 3), 200, np.uint8)
    on_black = corrupt(image, "frost", 5, seed=0, ice=tmp_path)
    on_grey = corrupt(grey, "frost", 5, seed=0, ice=tmp_path)
    expected = np.minimum(0.6 * 200 + on_black.astype(float), 255)
    np.testing.assert_allclose(on_grey, expected, atol=1)


def test_frost_names_the_missing_files_and_their_folder(tmp_path):
    image, rng = smooth(224, 0), np.random.default_rng(0)
    with pytest.raises(
        ValueError, match=r"not shipped.*pass a folder with frost1\.png"
    ):
        corruptions.corrupt(image, "frost", 1, rng)
    for name in host_operations.FROSTS[:4]:
        Image.fromarray(image).save(tmp_path / name, "PNG")
    with pytest.raises(ValueError, match=r"none named frost5\.jpg; pass a folder"):
        corruptions.corrupt(image, "frost", 1, rng, frost=tmp_path)
    Image.fromarray(image).save(tmp_path / "frost5.jpg", "PNG")
    with pytest.raises(ValueError, match=r"larger than 224 pixels.*got 224x224"):
        corruptions.corrupt(image, "frost", 1, rng, frost=tmp_path)
    broken = tmp_path / "broken"
    broken.mkdir()
    for name in host_operations.FROSTS:
        (broken / name).write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"frost\d\.\w+: must be an image"):
        corruptions.corrupt(image, "frost", 1, rng, frost=broken)
