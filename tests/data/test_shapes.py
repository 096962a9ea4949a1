"""The embedded set: pure, balanced, with the requested correlation, and each split as
documented.
"""

import dataclasses
import itertools

import numpy as np
import pytest

from jbias import data
from jbias.data.embedded import shape_scenes, shapes
from tests import cases


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JBIAS_CACHE", str(tmp_path / "cache"))


def is_equal(a, b) -> bool:
    return np.array_equal(a.images, b.images) and all(
        np.array_equal(a.columns[k], b.columns[k]) for k in a.columns | b.columns
    )


@cases.each(
    "split",
    shapes.SPLITS,
    quick=(
        "silhouette",
        "test",
        "edge",
    ),
)
def test_shapes_are_a_pure_function_of_the_arguments(split, monkeypatch, tmp_path):
    first = shapes.make(split, n=480)
    read = shapes.make(split, n=480)
    monkeypatch.setenv("JBIAS_CACHE", str(tmp_path / "elsewhere"))
    drawn = shapes.make(split, n=480)
    assert is_equal(first, read) and is_equal(first, drawn)
    assert first.fingerprint == drawn.fingerprint
    other = shapes.make(split, n=480, seed=1)
    assert not is_equal(first, other) and first.fingerprint != other.fingerprint


@pytest.mark.slow
@cases.each("split", shapes.SPLITS)
def test_a_smaller_set_is_the_beginning_of_a_larger(split):
    n = 240 if split == "cue_conflict" else 304
    small, large = shapes.make(split, n=n), shapes.make(split, n=720)
    assert np.array_equal(small.images, large.images[:n])
    assert all(
        np.array_equal(small.columns[k], large.columns[k][:n]) for k in small.columns
    )


def test_train_valid_and_test_share_no_image():
    sets = [shapes.make(split, n=480).images for split in ("train", "valid", "test")]
    rows = [{image.tobytes() for image in images} for images in sets]
    assert [len(r) for r in rows] == [480] * 3
    assert all(not a & b for a, b in itertools.combinations(rows, 2))


@pytest.mark.slow
@cases.each("split", shapes.SPLITS)
def test_classes_are_balanced_and_documented(split):
    source = data.load("shapes", split)
    assert len(source) == {"train": 4096, "valid": 512}.get(split, 480)
    counts = np.bincount(source.columns["label"], minlength=16)
    assert (counts == len(source) // 16).all()
    assert source.space == "names" and "Hermann" in source.cite
    assert source.name == f"shapes/{split}"
    assert source[17]["label"] == source.columns["label"][17]
    conflict = split == "cue_conflict"
    assert ("shape_bias" in source.measures) == conflict
    assert ("texture" in source.columns) == conflict


@pytest.mark.slow
@cases.each(
    "correlation",
    [0, 1 / 16, 0.5, 0.99, 1],
    quick=(
        "1",
        "0",
    ),
)
def test_correlation_is_realised(correlation):
    columns = shapes.make("train", correlation=correlation).columns
    agree = columns["label"] == columns["attribute"]
    # Five deviations of a binomial share: one false alarm in two million.
    slack = 5 * np.sqrt(correlation * (1 - correlation) / len(agree))
    assert abs(agree.mean() - correlation) <= slack
    steps = (columns["attribute"] - columns["label"])[~agree] % 16
    other_steps = np.bincount(steps, minlength=16)[1:]
    expected = (~agree).sum() / 15
    assert abs(other_steps - expected).max() <= 5 * np.sqrt(expected)


def test_every_pair_of_cues_conflicts_equally_often():
    columns = shapes.make("cue_conflict").columns
    pairs = np.zeros((16, 16), int)
    np.add.at(pairs, (columns["label"], columns["texture"]), 1)
    assert np.array_equal(pairs, 2 * (1 - np.eye(16, dtype=int)))


@pytest.mark.slow
def test_stylized_textures_are_new_and_uninformative():
    assert not set(shape_scenes.TEXTURES) & set(shape_scenes.HELD_OUT)
    columns = shapes.make("stylized", n=4800).columns
    assert set(columns["attribute"]) == set(range(16, 24))
    table = np.zeros((16, 8))
    np.add.at(table, (columns["label"], columns["attribute"] - 16), 1)
    expected = 4800 / 128
    chi2 = ((table - expected) ** 2 / expected).sum()
    assert chi2 < 120 + 5 * np.sqrt(2 * 120)  # Mean and deviation of chi2, 120 df.
    for split in ("train", "valid", "test", "recoloured", "corrupted", "cue_conflict"):
        assert shapes.make(split, n=480).columns["attribute"].max() < 16


def test_patterns_differ_from_one_another():
    """No two of the 24 patterns agree in a single pose, in either polarity."""
    scenes = shape_scenes.draw(np.random.default_rng(0), 24)
    repeated_scene = scenes[np.zeros(24, int)]
    share = shape_scenes.shares(repeated_scene, np.arange(24), 64)
    for a, b in itertools.combinations(share, 2):
        assert 0.2 < np.abs(a - b).mean() < 0.8


def test_either_tone_and_either_ground_may_be_the_lighter():
    first, second, ground = shape_scenes.draw(np.random.default_rng(0), 4000).tones.T
    assert 0 <= min(first.min(), second.min()) and max(first.max(), second.max()) <= 1
    # Five deviations of a fair coin.
    assert abs((first < second).mean() - 0.5) < 2.5 / np.sqrt(4000)
    assert abs((first < ground).mean() - 0.5) < 2.5 / np.sqrt(4000)
    between = (np.sign(ground - first) != np.sign(ground - second)).mean()
    assert between == 0


def test_patterns_have_both_tones_about_equally():
    scenes = shape_scenes.draw(np.random.default_rng(0), 24 * 16)
    share = shape_scenes.shares(scenes, np.arange(24 * 16) % 24, 64)
    means = share.reshape(16, 24, -1).mean((0, 2))
    assert np.abs(means - 0.5).max() < 0.1


@pytest.mark.slow
@cases.each("column", ["label", "attribute"], quick=("label",))
def test_mean_colour_and_contrast_predict_neither_cue(column):
    def features(source):
        x = source.images / 255
        return np.concatenate([x.mean((1, 2)), x.std((1, 2))], 1)

    train = shapes.make("train", correlation=1 / 16)
    test = shapes.make("test", n=1920, correlation=1 / 16)
    a, b = features(train), features(test)
    a, b = a / a.std(0), b / a.std(0)
    y = train.columns[column]
    centroids = np.stack([a[y == k].mean(0) for k in range(16)])
    guess = ((b[:, None] - centroids) ** 2).sum(-1).argmin(1)
    # Chance is 6.25 %; a network reads either cue to more than 90 %.
    assert (guess == test.columns[column]).mean() < 0.12


@cases.each("size", [32, 64, 224])
@cases.each("split", ["valid", "silhouette", "sketch"])
def test_sizes_show_the_same_pictures(split, size):
    n = 16
    source = shapes.make(split, size=size, n=n)
    assert source.images.shape == (n, size, size, 3)
    assert source.images.dtype == np.uint8
    coarse = source.images.reshape(n, 32, size // 32, 32, size // 32, 3).mean((2, 4))
    small = shapes.make(split, size=32, n=n).images
    # Sensor noise (3 % of 255 at most) and antialiasing are all that differs.
    assert np.abs(coarse - small).mean() < 12


def test_flat_sets_are_ink_on_paper():
    silhouette = shapes.make("silhouette").images
    edge = shapes.make("edge").images
    sketch = shapes.make("sketch").images
    for images in (silhouette, edge, sketch):
        assert np.ptp(images, axis=-1).max() == 0  # Grey.
    ink = [(images < 128).mean() for images in (silhouette, edge, sketch)]
    assert ((silhouette > 25) & (silhouette < 230)).mean() < 0.12  # Else a border.
    assert ink[1] < 0.6 * ink[0] and ink[2] < 0.6 * ink[0]
    assert (sketch == 0).sum() == 0 and not np.array_equal(edge, sketch)


def test_scene_i_has_one_pose_in_every_test_set():
    """Cue conflict and stylized show the background where the silhouette is white."""
    outside = shapes.make("silhouette").images[..., 0] == 255
    inside = shapes.make("silhouette").images[..., 0] == 0
    plain = shape_scenes.draw(np.random.default_rng([0]), 240)
    tinted = shape_scenes.draw(
        np.random.default_rng([0]), 240, hues=shape_scenes.NEW_HUES, least=0.5
    )
    for field in dataclasses.fields(plain):
        if field.name not in ("fill", "paper"):
            a, b = getattr(plain, field.name), getattr(tinted, field.name)
            assert np.array_equal(a, b)
    for split in ("test", "cue_conflict", "stylized"):
        x = shapes.make(split).images.astype(float).mean(-1)
        figure = np.array([im[m].mean() for im, m in zip(x, inside, strict=True)])
        ground = np.array([im[m].mean() for im, m in zip(x, outside, strict=True)])
        assert (np.abs(figure - ground) > 10).mean() > 0.85
    edge = shapes.make("edge").images[..., 0] < 128
    # Only thin parts are all outline: ink lies on the border of the silhouette.
    assert (edge & inside).sum() > 0 and (edge & outside).sum() < 0.6 * edge.sum()


def test_recoloured_hues_are_not_in_training():
    def hues(split):
        x = shapes.make(split, n=480).images.reshape(-1, 3).astype(float)
        top, low = x.max(-1), x.min(-1)
        x = x[top - low > 110]  # Colourful enough for noise not to turn the hue.
        first, last = x.argmax(-1), x.argmin(-1)
        middle = x.sum(-1) - x.max(-1) - x.min(-1)
        return first, last, (middle - x.min(-1)) / np.ptp(x, axis=-1)

    first, last, _ = hues("recoloured")
    greens = (first == 1).mean()
    assert 0.2 < greens < 0.8  # The rest is purple: green is the least channel.
    assert ((first == 1) | (last == 1)).mean() > 0.99
    first, last, middle = hues("train")
    # Green leads only in yellow (towards red) and cyan (towards blue), never alone.
    assert (((first == 1) & (middle < 0.5)).mean()) < 0.01


def test_corruptions_are_of_the_test_images():
    clean, dirty = shapes.make("test"), shapes.make("corrupted")
    kinds = dirty.columns["corruption"]
    names = shape_scenes.CORRUPTIONS
    assert np.array_equal(np.bincount(kinds), [80] * len(names))
    a, b = clean.images / 255, dirty.images / 255
    spread = {}
    for k, name in enumerate(names):
        rows = kinds == k
        assert 0.01 < np.abs(a[rows] - b[rows]).mean() < 0.5, name
        step = [np.abs(np.diff(x[rows], axis=1)).mean() for x in (a, b)]
        spread[name] = step[1] / step[0]
    assert spread["noise"] > 1.1 and spread["impulse"] > 1.1
    assert spread["blur"] < 0.7 and spread["contrast"] < 0.35


@cases.each("kind", shape_scenes.SHAPES)
def test_masks_are_distance_fields(kind):
    ticks = np.linspace(-1.5, 1.5, 151, dtype=np.float32)
    x, y = np.meshgrid(ticks, ticks)
    field = shape_scenes.SHAPES[kind](x, y)
    steps = np.abs(np.diff(field, axis=0)).max(), np.abs(np.diff(field)).max()
    assert max(steps) < 0.02 * 1.001  # A distance changes no faster than its points.
    assert np.hypot(x, y)[field < 0].max() < 1.2
    assert 1.1 < (field < 0).sum() * 0.02**2 < 2.7  # None is told by its area.


def test_masks_turn_scale_and_shift():
    grid = np.stack(np.meshgrid(np.linspace(-1, 1, 41), np.linspace(-1, 1, 41)))
    x, y = grid[:, None].astype(np.float32)
    still = dict(scale=np.ones(1), angle=np.zeros(1), shift=np.zeros((1, 2)))
    moved = {**still, "shift": np.array([[0.1, 0.2]])}
    turned = {**still, "angle": np.array([np.pi / 2])}
    small = {**still, "scale": np.array([0.5])}
    base = shape_scenes.signed_distance("arrow", x, y, **still)
    assert np.allclose(
        shape_scenes.signed_distance("arrow", x + 0.1, y + 0.2, **moved),
        base,
        atol=1e-5,
    )
    assert np.allclose(
        shape_scenes.signed_distance("arrow", -y, x, **turned), base, atol=1e-5
    )
    assert np.allclose(
        shape_scenes.signed_distance("arrow", x / 2, y / 2, **small),
        base / 2,
        atol=1e-5,
    )


@cases.each(
    ("split", "options", "message"),
    [
        ("silhouete", {}, "did you mean 'silhouette'"),
        ("train", {"size": 31}, "size must be .* 32 to 224, got 31"),
        ("train", {"size": 225}, "got 225"),
        ("train", {"size": 64.0}, "got 64.0"),
        ("train", {"n": 100}, "multiple of 16, .* got 100; try 96"),
        ("train", {"n": 0}, "got 0; try 16"),
        ("cue_conflict", {"n": 512}, "multiple of 240, .* got 512; try 480"),
        ("train", {"correlation": 1.1}, r"\[0, 1\], got 1.1"),
        ("train", {"correlation": float("nan")}, "got nan"),
        ("train", {"seed": -1}, "seed must be .* got -1"),
    ],
)
def test_bad_options_are_refused_in_one_line(split, options, message):
    with pytest.raises(ValueError, match=f"^shapes.*{message}") as caught:
        shapes.make(split, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@cases.each("split", ["train", "cue_conflict", "recoloured"], quick=("train",))
def test_renders_are_the_scene_in_every_texture(split):
    """The render in the image's own texture equals the image with noise; other renders
    differ.
    """
    source = shapes.make(split, n=480, correlation=0.5, renders=True)
    renders = source.arrays["renders"]
    assert renders.shape == (480, 16, 32, 32, 3) and renders.dtype == np.uint8
    own_texture = source.columns["attribute"]
    assert np.array_equal(renders[np.arange(480), own_texture], source.images)
    for step in range(1, 16):
        other = renders[np.arange(480), (own_texture + step) % 16]
        assert (other != source.images).any((1, 2, 3)).all()
    plain = shapes.make(split, n=480, correlation=0.5)
    assert is_equal(source, plain) and not plain.arrays
    assert source.fingerprint != plain.fingerprint


@pytest.mark.slow
def test_renders_do_not_depend_on_the_correlation():
    """Renders are drawn once for all correlations; a smaller set is the beginning of a
    larger.
    """
    small = shapes.make("train", n=304, correlation=0.99, renders=True)
    large = shapes.make("train", n=480, correlation=0.1, renders=True)
    assert np.array_equal(small.arrays["renders"], large.arrays["renders"][:304])


@cases.each("split", ["silhouette", "stylized", "corrupted"])
def test_renders_are_refused_where_there_are_none(split):
    with pytest.raises(ValueError, match="renders must be of one of train, valid"):
        shapes.make(split, renders=True)


def test_textures_and_corruptions_have_names():
    source = shapes.make("corrupted", n=48)
    names = source.values["attribute"]
    assert len(names) == len(set(names)) == 24
    assert source.values["corruption"] == shape_scenes.CORRUPTIONS
    assert not shapes.make("silhouette", n=48).values
