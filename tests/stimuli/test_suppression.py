"""Suppressed cues: filters agree with OpenCV, shuffling keeps tiles, numbers are of counts."""

import collections
import contextlib
import functools
import itertools

import cv2
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jbias
from jbias import config as jc
from jbias import data, evals
from jbias.evals import decision_files, inference, registry
from jbias.measures import cue_reliance
from jbias.stimuli import shown, suppression
from tests import cases

Y, X = np.mgrid[:224, :224]
# Three endless patterns; the tests have values of the authors' release for this image.
IMAGE = np.uint8(
    np.stack([3 * X + 5 * Y, 7 * X + (2 * Y**2) // 16, (X * Y) // 8], -1) % 256
)
SMALL = IMAGE[80:128, 150:198]


def show_stimuli(filter_probe, condition, image, index=(0,)):
    """Return a condition's stimuli, in [0, 255]: of an image, or a stack with several indices."""
    base_condition = filter_probe.onto.get(condition)
    if base_condition:
        image = show_stimuli(filter_probe, base_condition, image, index)
    image = np.broadcast_to(image, (len(index), *image.shape[-3:]))
    image = jnp.asarray(image, jnp.float32) / 255
    rows = shown.Rows(image, jnp.asarray(index), None, None)
    show = jax.jit(filter_probe.show, static_argnums=2)
    parameters = filter_probe.conditions[condition]
    stimuli = show(rows, parameters, filter_probe.static(condition))
    stimuli = np.asarray(stimuli, np.float64) * 255
    assert np.abs(stimuli - stimuli.round()).max() < 1e-4
    return stimuli.round()[0] if len(index) == 1 else stimuli.round()


@functools.cache
def make(side, *families):
    """Return a probe for images of a side, with the published radii in pixels."""
    return suppression.make(side=side, families=families, reference=side)


def test_there_are_69_conditions():
    """Two published conditions are equal; the coarse tiles people saw add one condition."""
    sizes = {
        name: len(conditions) for name, conditions in cue_reliance.FAMILIES.items()
    }
    assert [*sizes.values()] == [4, 8, 8, 6, 7, 5, 5, 1, 8, 6, 8, 6]
    assert sum(sizes.values()) - sizes["people"] + 1 == 69
    filter_probe = suppression.make()
    assert len(filter_probe.conditions) == 69 and filter_probe.conditions[""] == ()
    assert {*cue_reliance.CUES.values()} <= {*filter_probe.conditions}
    condition = "bilateral 12 shuffle 6"
    assert cue_reliance.steps(condition) == (("bilateral", 12.0), ("shuffle", 6.0))


@cases.each("condition", cue_reliance.FAMILIES["bilateral"])
def test_the_bilateral_filter_is_opencvs(condition):
    d = int(condition.split()[1])
    expected = cv2.bilateralFilter(SMALL, d, cue_reliance.BILATERAL[d], 75)
    stimuli = show_stimuli(make(48, "bilateral"), condition, SMALL)
    assert np.abs(stimuli - expected).max() <= 1
    assert (stimuli != expected).mean() < 1e-3  # OpenCV sums in single precision.


@cases.each("condition", cue_reliance.FAMILIES["blur"])
def test_the_blur_is_a_gaussian(condition):
    k = int(condition.split()[1])
    exact = cv2.GaussianBlur(SMALL.astype(float), (k, k), cue_reliance.BLUR[k])
    stimuli = show_stimuli(make(48, "blur"), condition, SMALL)
    assert np.abs(stimuli - exact).max() <= 0.5 + 1e-4


@cases.each("condition", cue_reliance.FAMILIES["non_local_means"])
def test_non_local_means_are_opencvs(condition):
    h = int(condition.split()[1])
    options = dict(h=h, templateWindowSize=14, searchWindowSize=21)
    noisy = 100 + np.random.default_rng(0).normal(0, 12, SMALL.shape)
    noisy[:, 24:] += 60
    image = noisy.round().astype(np.uint8)
    expected = cv2.fastNlMeansDenoising(image, None, **options).astype(float)
    stimuli = show_stimuli(make(48, "non_local_means"), condition, image)
    assert np.abs(stimuli - expected).max() <= 1  # OpenCV's weights are fixed-point.
    if h >= 20:
        assert np.abs(stimuli - image).mean() > 3


GREY_IMAGE = cv2.cvtColor(SMALL, cv2.COLOR_RGB2GRAY)[..., None]


@cases.each("condition", cue_reliance.FAMILIES["grey"])
def test_grey_is_opencvs_and_mixed(condition):
    share = float(condition.split()[1])
    exact = (1 - share) * SMALL + share * GREY_IMAGE
    stimuli = show_stimuli(make(48, "grey"), condition, SMALL)
    # OpenCV's grey is rounded: ties may go to the other side.
    assert np.abs(stimuli - np.floor(exact + 1e-6)).max() <= 1
    assert (stimuli != np.floor(exact + 1e-6)).mean() < 5e-3
    if share == 1:
        assert (stimuli == stimuli[..., :1]).all()


PUBLISHED = {
    "bilateral": (2.667, 6.116, 11.552, 18.531, 24.163, 28.934),
    "blur": (0.544, 8.611, 14.269, 19.251, 23.455, 27.272, 30.625),
    "grey": (10.386, 20.773, 31.163, 41.551, 51.946),
    "non_local_means": (0.0142, 0.0966, 0.3724, 1.2393, 3.3262),
}


@cases.each(
    ("family", "atol"),
    # The release blurs in fixed-point numbers, which moves single pixels by up to 1.7.
    [
        ("blur", 0.13),
        ("grey", 2e-3),
        pytest.param("bilateral", 1e-3, marks=pytest.mark.slow),
        pytest.param("non_local_means", 2e-3, marks=pytest.mark.slow),
    ],
)
def test_at_224_pixels_images_change_as_much_as_published(family, atol):
    filter_probe = suppression.make(families=(family,))
    conditions = cue_reliance.FAMILIES[family]
    stimuli = {name: show_stimuli(filter_probe, name, IMAGE) for name in conditions}
    changes = [np.abs(changed - IMAGE).mean() for changed in stimuli.values()]
    np.testing.assert_allclose(changes, PUBLISHED[family], atol=atol)
    if family == "blur":
        assert stimuli["blur 11"][100, 200].tolist() == [76, 94, 167]
    if family == "bilateral":
        assert stimuli["bilateral 12"][100, 200].tolist() == [75, 102, 155]


def to_luminance(image):
    """Return the luminance, in [0, 1], of an RGB image in [0, 255]."""
    return image @ (0.2125, 0.7154, 0.0721) / 255


def local_variance(grey, size=11):
    windows = np.lib.stride_tricks.sliding_window_view(grey, (size, size), (-2, -1))
    return windows.var((-2, -1)).mean()


def high_frequencies(grey):
    power = np.abs(np.fft.fftshift(np.fft.fft2(grey))) ** 2
    return power[np.hypot(Y - 112, X - 112) >= 11].sum() / power.sum()


def test_the_bilateral_filter_removes_texture_and_keeps_edges():
    """The authors' three checks have their values: texture falls, gradients remain."""
    table = suppression.settings("bilateral", 10, 224, 1.0)
    settings = jax.tree.map(jnp.asarray, {**table, "sigma": np.float32(170)})
    image = jnp.asarray(IMAGE, jnp.float32)
    smooth = suppression.bilateral(image, None, s=settings, largest_radius=7)
    grey, smooth_grey = to_luminance(IMAGE), to_luminance(np.asarray(smooth, float))
    variance_ratio = local_variance(smooth_grey) / local_variance(grey)
    frequency_ratio = high_frequencies(smooth_grey) / high_frequencies(grey)
    gradients = zip(np.gradient(grey), np.gradient(smooth_grey))
    correlations = [np.corrcoef(a.ravel(), b.ravel())[0, 1] for a, b in gradients]
    np.testing.assert_allclose(
        [variance_ratio, frequency_ratio, np.mean(correlations)],
        (0.2353, 0.2261, 0.8571),
        atol=1e-4,
    )


@pytest.mark.parametrize("size", [32, 64])
def test_small_images_lose_their_texture_as_the_suite_shows_them(size):
    """The local variance, in windows of 5, halves; with reference=224 most of it stays."""
    images = np.asarray(data.load("shapes", "test", n=16, size=size).images)
    suite = jc.load(f"jbias:suites/suppression:size={size}", flag="suite")
    variances = {}
    for reference in (224, suite["measures"]["suppression"]["reference"]):
        filter_probe = suppression.make(
            side=suite["size"], families=("bilateral",), reference=reference
        )
        smooth = show_stimuli(filter_probe, "bilateral 12", images, range(len(images)))
        variances[reference] = local_variance(to_luminance(smooth), 5)
    variance_of_images = local_variance(to_luminance(images), 5)
    assert variances[64] < 0.5 * variance_of_images < variances[224]


def split_tiles(image, g):
    """Return the tiles of a g x g grid by row and column, as slices of the image."""
    edges = np.linspace(0, len(image), g + 1).astype(int)
    ends = [slice(*pair) for pair in itertools.pairwise(edges)]
    return {(i, j): image[a, b] for i, a in enumerate(ends) for j, b in enumerate(ends)}


def count_tiles(tiles):
    """Return how often each tile occurs."""
    return collections.Counter((tile.shape, tile.tobytes()) for tile in tiles)


@cases.each("g", cue_reliance.GRIDS)
def test_shuffling_keeps_the_tiles(g):
    """This also holds if the grid does not divide the side, so that tiles have several sizes."""
    filter_probe = make(38, "shuffle")
    image = SMALL[:38, :38].astype(float)
    stimuli = show_stimuli(filter_probe, f"shuffle {g}", image)
    assert count_tiles(split_tiles(stimuli, g).values()) == count_tiles(
        split_tiles(image, g).values()
    )
    assert not np.array_equal(stimuli, image)


def test_tiles_of_different_sizes_do_not_change_places():
    filter_probe, image = make(33, "shuffle"), SMALL[:33, :33]
    np.testing.assert_array_equal(show_stimuli(filter_probe, "shuffle 2", image), image)
    corner = suppression.settings("shuffle", 3, 224, 1.0)["group"]
    # The corner tile keeps its place, as in the images that people saw.
    assert np.count_nonzero(corner == corner[0]) == 1


def test_all_tile_orders_are_equally_likely_and_depend_on_the_image():
    """The identity is one of the 24 orders of four tiles."""
    image = np.kron(np.arange(4).reshape(2, 2, 1), np.ones((16, 16, 3)))
    index, filter_probe = np.arange(1200), make(32, "shuffle")
    tile_orders = show_stimuli(filter_probe, "shuffle 2", image, index)[
        :, ::16, ::16, 0
    ].reshape(-1, 4)
    orders, counts = np.unique(tile_orders, axis=0, return_counts=True)
    assert len(orders) == 24
    # Chi squared of 23 degrees: 49.7 is passed once in a thousand.
    assert ((counts - 50) ** 2 / 50).sum() < 49.7
    orders_again = show_stimuli(filter_probe, "shuffle 2", image, index[[7, 900, 7]])[
        :, ::16, ::16, 0
    ]
    np.testing.assert_array_equal(orders_again.reshape(-1, 4), tile_orders[[7, 900, 7]])


@cases.each("g", [2, 4, 8, 16])
def test_tiles_are_turned_by_multiples_of_90_degrees(g):
    image = SMALL[:32, :32].astype(float)
    stimuli = show_stimuli(make(32, "rotation"), f"rotation {g}", image)
    tiles, turns = split_tiles(image, g), set()
    for place, tile in split_tiles(stimuli, g).items():
        is_equal = [np.array_equal(np.rot90(tiles[place], k), tile) for k in range(4)]
        assert any(is_equal)
        turns.add(is_equal.index(True))
    assert len(turns) == 4 or g == 2


@cases.each("sides", [(224, 228), (228, 224), (224, 230), (33, 34)])
def test_resizing_for_turns_is_opencvs(sides):
    image = np.resize(IMAGE, (sides[0], sides[0], 3))
    shape, bilinear = (sides[1],) * 2, cv2.INTER_LINEAR
    exact = cv2.resize(image.astype(np.float32), shape, interpolation=bilinear)
    resized = suppression._resize(jnp.asarray(image, jnp.float32), sides[1])
    assert np.abs(resized - exact).max() < 0.505
    # The release resizes in fixed-point numbers.
    of_bytes = cv2.resize(image, shape, interpolation=bilinear).astype(float)
    assert np.abs(resized - of_bytes).max() <= 1


def test_channels_take_all_orders():
    image = np.broadcast_to((10.0, 20.0, 30.0), (32, 32, 3))
    filter_probe = make(32, "channel_shuffle")
    stimuli = show_stimuli(filter_probe, "channel_shuffle 1", image, np.arange(600))
    assert (stimuli == stimuli[:, :1, :1]).all()
    orders, counts = np.unique(stimuli[:, 0, 0], axis=0, return_counts=True)
    assert len(orders) == 6
    # Chi squared of 5 degrees: 20.5 is passed once in a thousand.
    assert ((counts - 100) ** 2 / 100).sum() < 20.5


def test_conditions_of_two_cues_apply_one_filter_after_the_other():
    """An image's tiles get the same order in colour and in grey, sharp or smooth."""
    families = ("shuffle", "bilateral", "shuffle_grey", "bilateral_12_shuffle")
    filter_probe = make(48, *families, "bilateral_grey", "people")
    shuffled = show_stimuli(filter_probe, "shuffle 6", SMALL, (5, 5))[0]
    np.testing.assert_array_equal(
        show_stimuli(filter_probe, "shuffle 6 grey 1", SMALL, (5, 5))[0],
        show_stimuli(filter_probe, "grey 1", shuffled),
    )
    smooth = show_stimuli(filter_probe, "bilateral 12", SMALL)
    np.testing.assert_array_equal(
        show_stimuli(filter_probe, "bilateral 12 grey 1", SMALL),
        show_stimuli(filter_probe, "grey 1", smooth),
    )
    np.testing.assert_array_equal(
        show_stimuli(filter_probe, "bilateral 12 shuffle 6", SMALL),
        show_stimuli(filter_probe, "shuffle 6", smooth),
    )


def test_the_bilateral_filter_runs_once_for_all_conditions_that_begin_with_it(
    monkeypatch,
):
    """Its stimuli are, to the bit, those of a probe with one such condition."""
    filters_run, run_filters = [], inference._stimuli

    def note_filters(show, filters, *args):
        filters_run.append(filters)
        return run_filters(show, filters, *args)

    combined = make(48, "people", "bilateral", "bilateral_12_shuffle", "bilateral_grey")
    images = np.stack([SMALL, SMALL[::-1]])
    index = np.arange(2, dtype=np.int32)
    batch = inference.Batch(np.uint8(images), index, index, index, 2)
    network = inference.BoundJaxNetwork(lambda variables, image: image.mean((1, 2)), {})
    base_images = {}
    together = {
        name: inference.make_stimuli(
            network, combined, batch, name, base_images=base_images
        )
        for name in combined.conditions
    }
    assert {*base_images} == {*cue_reliance.FAMILIES["bilateral"]}
    for family, condition in (
        ("bilateral_grey", "bilateral 4 grey 1"),
        ("bilateral_12_shuffle", "bilateral 12 shuffle 16"),
    ):
        alone = make(48, family)
        assert not alone.onto
        expected = np.asarray(inference.make_stimuli(network, alone, batch, condition))
        np.testing.assert_array_equal(together[condition], expected)
        stimuli = inference.make_stimuli(network, combined, batch, condition)
        np.testing.assert_array_equal(stimuli, expected)
    monkeypatch.setattr(inference, "_stimuli", note_filters)
    outputs = inference._run_conditions(
        network,
        combined,
        [batch],
        {"": inference.DecisionRule(3)},
        contextlib.nullcontext,
    )
    assert len([*outputs]) == len(filters_run) == len(combined.conditions)
    assert [filters.count("bilateral") for filters in filters_run].count(1) == 6
    assert max(map(len, filters_run)) == 1


SIDES = {
    "bilateral": 48,
    "blur": 48,
    "non_local_means": 48,
    "grey": 48,
    "shuffle": 38,
    "rotation": 32,
    "channel_shuffle": 32,
}


@cases.each(("family", "side"), SIDES.items())
def test_uniform_grey_images_do_not_change(family, side):
    filter_probe, image = make(side, family), np.full((side, side, 3), 77)
    for condition in cue_reliance.FAMILIES[family]:
        stimuli = show_stimuli(filter_probe, condition, image)
        np.testing.assert_array_equal(stimuli, image, condition)


def test_filters_of_strength_zero_change_nothing():
    image = jnp.asarray(SMALL, jnp.float32)
    for kind, strength in (("grey", 0), ("shuffle", 1)):
        settings = suppression.settings(kind, strength, 48, 1.0)
        settings = jax.tree.map(jnp.asarray, settings)
        step = dict(grey="grey", shuffle="shuffle_tiles")[kind]
        stimuli = getattr(suppression, step)(image, jax.random.key(0), s=settings)
        np.testing.assert_array_equal(stimuli, SMALL)


def test_filter_radii_scale_with_the_side():
    """Images of half the published side have half the published radius."""
    full_size = suppression.settings("bilateral", 12, 224, 1.0)
    half_size = suppression.settings("bilateral", 12, 112, 0.5)
    largest_offsets = [
        np.abs(s["offset"][: s["count"]]).max() for s in (full_size, half_size)
    ]
    assert largest_offsets == [6, 3]
    assert [full_size["count"], half_size["count"]] == [113, 29]
    tiny = suppression.settings("bilateral", 4, 32, 32 / 224)
    assert tiny["count"] == 5  # A pixel and its neighbours.


def make_decisions(
    num_correct: dict[str, int], num_images: int
) -> dict[str, evals.Decisions]:
    """Return decisions by condition with the given number of correct answers."""
    label, index = np.zeros(num_images, int), np.arange(num_images)
    return {
        name: evals.Decisions((index >= correct).astype(int), {"label": label})
        for name, correct in num_correct.items()
    }


def by_name(numbers):
    """Return the numbers by metric and condition; each pair may occur once."""
    numbers_by_name = {(number.metric, number.condition): number for number in numbers}
    assert len(numbers_by_name) == len(numbers)
    return numbers_by_name


def test_relative_accuracy_is_a_fraction_of_the_accuracy_on_unchanged_images():
    num_correct = {"": 80, "shuffle 6": 45, "grey 1": 88, "shuffle 6 grey 1": 2}
    numbers = cue_reliance.numbers(
        make_decisions(num_correct, 100), classes=10, draws=50
    )
    numbers_by_name = by_name(numbers)
    for condition, correct in num_correct.items():
        assert numbers_by_name["accuracy", condition][1:4] == (
            correct / 100,
            correct,
            100,
        )
        value = numbers_by_name["relative_accuracy", condition].value
        assert value == pytest.approx(correct / 80)
        above_chance = numbers_by_name["relative_accuracy_chance", condition].value
        assert above_chance == pytest.approx((correct - 10) / 70)
    for metric in ("relative_accuracy", "relative_accuracy_chance"):
        assert numbers_by_name[metric, ""].value == 1
        assert numbers_by_name[f"{metric}_undefined", ""].value == 0
        low, value, high = (
            numbers_by_name[f"{metric}{end}", "shuffle 6"].value
            for end in ("_lower", "", "_upper")
        )
        assert low < value < high
    assert numbers_by_name["relative_accuracy", "grey 1"].value > 1
    assert numbers_by_name["relative_accuracy_chance", "shuffle 6 grey 1"].value < 0
    numbers_without_classes = cue_reliance.numbers(
        make_decisions(num_correct, 100), draws=2
    )
    assert not any("chance" in number.metric for number in numbers_without_classes)


def test_relative_accuracy_is_undefined_if_the_accuracy_on_unchanged_images_is_at_chance():
    numbers_at_chance = by_name(
        cue_reliance.numbers(
            make_decisions({"": 10, "grey 1": 5}, 100), classes=10, draws=20
        )
    )
    assert numbers_at_chance["relative_accuracy", "grey 1"].value == 0.5
    assert numbers_at_chance["relative_accuracy_chance", "grey 1"].value is None
    numbers_at_zero = by_name(
        cue_reliance.numbers(make_decisions({"": 0, "grey 1": 5}, 100), draws=20)
    )
    assert numbers_at_zero["relative_accuracy", "grey 1"].value is None
    assert numbers_at_zero["relative_accuracy_undefined", ""].value == 1


def test_intervals_have_the_width_of_the_delta_method():
    """The interval of a share is near that of the delta method."""
    n, rng = 2000, np.random.default_rng(0)
    clean = rng.random(n) < 0.8
    grey = clean & (rng.random(n) < 0.5)
    decisions_by_condition = {
        name: evals.Decisions(1 - is_right.astype(int), {"label": np.zeros(n, int)})
        for name, is_right in {"": clean, "grey 1": grey}.items()
    }
    numbers = by_name(cue_reliance.numbers(decisions_by_condition, draws=4000))
    low, high = (
        numbers[f"relative_accuracy_{end}", "grey 1"].value
        for end in ("lower", "upper")
    )
    share = grey.sum() / clean.sum()
    expected = 1.96 * np.sqrt(share * (1 - share) / clean.sum())
    assert (high - low) / 2 == pytest.approx(expected, rel=0.08)


def test_each_rule_is_measured_by_its_own_decisions():
    by_mean_prob = make_decisions({"": 8, "grey 1": 4}, 10)
    by_mean_logit = make_decisions({"": 8, "grey 1": 6}, 10)
    by_both = by_mean_prob | {
        f"{name} mean_logit".strip(): decided for name, decided in by_mean_logit.items()
    }
    numbers_of_mean_logit = [
        number._replace(condition=f"{number.condition} mean_logit".strip())
        for number in cue_reliance.numbers(by_mean_logit, draws=5)
    ]
    expected = cue_reliance.numbers(by_mean_prob, draws=5) + numbers_of_mean_logit
    assert cue_reliance.numbers(by_both, draws=5) == expected


@cases.each(
    ("wrong", "complaint"),
    [
        (dict(side=28), "side must be at least 32 pixels, .* got 28"),
        (dict(families=()), "families must be one or more of people, shuffle"),
        (dict(families=("noise",)), "families must be one or more"),
        (dict(reference=0), "reference must be at least 1"),
        (dict(draws=0), "draws must be at least 1"),
        (dict(classes="cat"), "classes must be a sequence"),
    ],
)
def test_wrong_options_are_refused(wrong, complaint):
    with pytest.raises(ValueError, match=f"suppression: .*{complaint}"):
        suppression.make(**wrong)


def test_the_probe_is_registered_and_summarizes_the_conditions_people_saw():
    assert registry.PROBES["suppression"].load() is suppression.make
    num_correct = dict(zip(suppression.make().conditions, range(8, 0, -1)))
    numbers = cue_reliance.numbers(make_decisions(num_correct, 8), draws=2)
    summary = (
        "accuracy 1, shuffle 3 0.875, shuffle 6 0.75, bilateral 12 0.625, grey 1 0.5"
    )
    assert registry.summarize("suppression", numbers) == summary


def test_published_numbers_are_complete():
    assert len(cue_reliance.PUBLISHED) == 6
    for name, (clean, *shares) in cue_reliance.PUBLISHED.items():
        assert len(shares) == 4 and 0.9 < clean < 1 and max(shares) < 1, name
        assert min(shares) == shares[1], name  # Without local shape: the lowest.


@cases.each(
    ("suite", "sets", "measures"),
    [
        ("suppression", ["test"], ["accuracy", "suppression"]),
        (
            "suppression:data=imagenet,root=x",
            ["imagenet", "imagenet16_people"],
            ["accuracy", "suppression", "suppression_people"],
        ),
        (
            "suppression:data=folder,root=x,split=own[:50%]",
            ["own"],
            ["accuracy", "suppression"],
        ),
    ],
)
def test_suites(suite, sets, measures):
    config = jc.load(f"jbias:suites/{suite}", flag="suite")
    assert [*config["sets"]] == sets and [*config["measures"]] == measures


def test_the_suite_of_biases_has_suppression_only_on_request():
    config_without = jc.load("jbias:suites/biases:smoke", flag="suite")
    config_with = jc.load("jbias:suites/biases:smoke,suppression", flag="suite")
    added_measures = {*config_with["measures"]} - {*config_without["measures"]}
    assert added_measures == {"suppression"}
    assert config_with["measures"]["suppression"]["images"] == 16


def test_people_saw_fifty_of_a_class_in_both_suites():
    """The published images of the critical band are 70 per class, in all suites."""
    data_argument = "data=imagenet,root=x"
    suppression_suite = jc.load(
        f"jbias:suites/suppression:{data_argument}", flag="suite"
    )
    biases_suite = jc.load(
        f"jbias:suites/biases:suppression,{data_argument}", flag="suite"
    )
    for config in (suppression_suite, biases_suite):
        (name,) = config["measures"]["suppression_people"]["sets"]
        set_config = config["sets"][name].to_dict()
        assert set_config == dict(data="imagenet16", split="val", root="x", each=50)
    (name,) = biases_suite["measures"]["critical_band_original"]["sets"]
    assert biases_suite["sets"][name]["each"] == 70
    suite_without = jc.load(f"jbias:suites/biases:{data_argument}", flag="suite")
    assert {*biases_suite["sets"]} - {*suite_without["sets"]} == {"imagenet16_people"}


@cases.each(
    ("suite_argument", "num_families", "reference"),
    [
        ("data=imagenet,root=x", 12, None),
        ("data=folder,root=x,size=65", 12, None),
        ("data=tiny_imagenet,root=x", 11, 64),
        ("data=cifar10,root=x", 11, 64),
        ("size=48", 11, 64),
    ],
)
def test_suites_of_small_images_leave_out_the_blur(
    suite_argument, num_families, reference
):
    config = jc.load(f"jbias:suites/suppression:{suite_argument}", flag="suite")
    options = config["measures"]["suppression"]
    assert options.get("reference") == reference
    families_shown = {*options.get("families", cue_reliance.FAMILIES)}
    assert len(families_shown) == num_families
    families_left_out = {*cue_reliance.FAMILIES} - families_shown
    assert families_left_out == ({"blur"} if num_families < 12 else set())
    filter_probe = suppression.make(side=config["size"], families=families_shown)
    assert len(filter_probe.conditions) == {12: 69, 11: 62}[num_families]
    assert {*cue_reliance.CUES.values()} <= {*filter_probe.conditions}


def test_the_published_blur_does_not_change_small_images():
    """A published Gaussian of up to 11 pixels, scaled to a side of 32, changes no byte."""
    filter_probe = suppression.make(side=32, families=("blur",))
    image = SMALL[:32, :32].astype(float)
    for condition in cue_reliance.FAMILIES["blur"][:5]:
        np.testing.assert_array_equal(
            show_stimuli(filter_probe, condition, image), image
        )


def test_a_model_of_colours_alone_loses_nothing_without_shape(tmp_path):
    """jbias.measure of a function that answers by the mean colour."""
    classes = data.load("shapes", "test").classes

    def predict(images):
        red, green, blue = images.astype(np.int64).sum((1, 2)).T
        return np.eye(len(classes))[(3 * red + 5 * green + 7 * blue) // 20_000 % 16]

    measure_name, people_alone = "suppression", "families=('people',)"
    measurement = jbias.measure(
        predict,
        "jbias:suites/suppression:images=48",
        only=[measure_name],
        changes=[
            f"--suite.measures.{measure_name}.{people_alone}",
            "--suite.run.batch=48",
        ],
        classes=classes,
        images="uint8",
        out=tmp_path,
    )
    table = measurement.numbers.set_index(["metric", "condition"])["value"]
    shares = table["relative_accuracy"]
    assert table["accuracy", "suppression"] > 0
    assert shares["suppression/shuffle 3"] == shares["suppression/shuffle 6"] == 1
    stored_decisions = decision_files.read_conditions(
        next(tmp_path.rglob("decisions/test/suppression.parquet"))
    )
    answers = {
        name: decided.prediction.tolist() for name, decided in stored_decisions.items()
    }
    assert answers["shuffle 6"] == answers[""] != answers["grey 1"]
