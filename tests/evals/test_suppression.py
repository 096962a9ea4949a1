"""Suppressed cues: filters are OpenCV's, what is moved is not lost, shares are of counts."""

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
from jbias.evals import (
    decisions,
    inference,
    probe,
    probe_registry,
    suppression,
    suppression_stimuli,
)
from tests import cases

Y, X = np.mgrid[:224, :224]
# Three patterns without an end; what was published of it is in these tests.
IMAGE = np.uint8(
    np.stack([3 * X + 5 * Y, 7 * X + (2 * Y**2) // 16, (X * Y) // 8], -1) % 256
)
SMALL = IMAGE[80:128, 150:198]


def shown(made, condition, image, index=(0,)):
    """Stimuli of one condition in bytes, of an image or several."""
    if below := made.onto.get(condition):
        image = shown(made, below, image, index)
    image = np.broadcast_to(image, (len(index), *image.shape[-3:]))
    image = jnp.asarray(image, jnp.float32) / 255
    rows = probe.Rows(image, jnp.asarray(index), None, None)
    show = jax.jit(made.show, static_argnums=2)
    found = show(rows, made.conditions[condition], made.static(condition))
    found = np.asarray(found, np.float64) * 255
    assert np.abs(found - found.round()).max() < 1e-4
    return found.round()[0] if len(index) == 1 else found.round()


@functools.cache
def make(side, *families):
    """A probe whose lengths are the published ones, whatever the side."""
    of = dict(families=families, reference=side)
    return suppression_stimuli.make(side=side, **of)


def test_there_are_69_conditions():
    """Two of the published conditions are equal; people's coarse tiles are one more."""
    sizes = {name: len(each) for name, each in suppression.FAMILIES.items()}
    assert [*sizes.values()] == [4, 8, 8, 6, 7, 5, 5, 1, 8, 6, 8, 6]
    assert sum(sizes.values()) - sizes["people"] + 1 == 69
    made = suppression_stimuli.make()
    assert len(made.conditions) == 69 and made.conditions[""] == ()
    assert {*suppression.CUES.values()} <= {*made.conditions}
    fixed = "bilateral 12 shuffle 6"
    assert suppression.steps(fixed) == (("bilateral", 12.0), ("shuffle", 6.0))


@cases.each("condition", suppression.FAMILIES["bilateral"])
def test_the_bilateral_filter_is_opencvs(condition):
    d = int(condition.split()[1])
    expected = cv2.bilateralFilter(SMALL, d, suppression.BILATERAL[d], 75)
    found = shown(make(48, "bilateral"), condition, SMALL)
    assert np.abs(found - expected).max() <= 1
    assert (found != expected).mean() < 1e-3  # OpenCV sums in single precision.


@cases.each("condition", suppression.FAMILIES["blur"])
def test_the_blur_is_a_gaussian(condition):
    k = int(condition.split()[1])
    exact = cv2.GaussianBlur(SMALL.astype(float), (k, k), suppression.BLUR[k])
    found = shown(make(48, "blur"), condition, SMALL)
    assert np.abs(found - exact).max() <= 0.5 + 1e-4


@cases.each("condition", suppression.FAMILIES["non_local_means"])
def test_non_local_means_are_opencvs(condition):
    h = int(condition.split()[1])
    how = dict(h=h, templateWindowSize=14, searchWindowSize=21)
    noisy = 100 + np.random.default_rng(0).normal(0, 12, SMALL.shape)
    noisy[:, 24:] += 60
    image = noisy.round().astype(np.uint8)
    expected = cv2.fastNlMeansDenoising(image, None, **how).astype(float)
    found = shown(make(48, "non_local_means"), condition, image)
    assert np.abs(found - expected).max() <= 1  # Its weights are fixed-point.
    if h >= 20:
        assert np.abs(found - image).mean() > 3


GREYS = cv2.cvtColor(SMALL, cv2.COLOR_RGB2GRAY)[..., None]


@cases.each("condition", suppression.FAMILIES["grey"])
def test_grey_is_opencvs_and_mixed(condition):
    share = float(condition.split()[1])
    exact = (1 - share) * SMALL + share * GREYS
    found = shown(make(48, "grey"), condition, SMALL)
    # A tie of the grey itself may be rounded to the other side.
    assert np.abs(found - np.floor(exact + 1e-6)).max() <= 1
    assert (found != np.floor(exact + 1e-6)).mean() < 5e-3
    if share == 1:
        assert (found == found[..., :1]).all()


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
    made = suppression_stimuli.make(families=(family,))
    conditions = suppression.FAMILIES[family]
    each = {name: shown(made, name, IMAGE) for name in conditions}
    changes = [np.abs(found - IMAGE).mean() for found in each.values()]
    np.testing.assert_allclose(changes, PUBLISHED[family], atol=atol)
    if family == "blur":
        assert each["blur 11"][100, 200].tolist() == [76, 94, 167]
    if family == "bilateral":
        assert each["bilateral 12"][100, 200].tolist() == [75, 102, 155]


def level(image):
    return image @ (0.2125, 0.7154, 0.0721) / 255


def local_variance(grey, size=11):
    windows = np.lib.stride_tricks.sliding_window_view(grey, (size, size), (-2, -1))
    return windows.var((-2, -1)).mean()


def high_frequencies(grey):
    power = np.abs(np.fft.fftshift(np.fft.fft2(grey))) ** 2
    return power[np.hypot(Y - 112, X - 112) >= 11].sum() / power.sum()


def test_texture_goes_and_edges_stay():
    """By the authors' three checks of their filters: texture falls, gradients remain."""
    table = suppression_stimuli.settings("bilateral", 10, 224, 1.0)
    s = jax.tree.map(jnp.asarray, {**table, "sigma": np.float32(170)})
    image = jnp.asarray(IMAGE, jnp.float32)
    smooth = suppression_stimuli.bilateral(image, None, s=s, largest_radius=7)
    before, after = level(IMAGE), level(np.asarray(smooth, float))
    ratios = [of(after) / of(before) for of in (local_variance, high_frequencies)]
    slopes = zip(np.gradient(before), np.gradient(after))
    alike = [np.corrcoef(a.ravel(), b.ravel())[0, 1] for a, b in slopes]
    np.testing.assert_allclose(
        [*ratios, np.mean(alike)], (0.2353, 0.2261, 0.8571), atol=1e-4
    )


@pytest.mark.parametrize("size", [32, 64])
def test_small_images_lose_their_texture_as_the_suite_shows_them(size):
    """By the first of the authors' checks, in windows of 5: with 224 most of it stays."""
    images = np.asarray(data.load("shapes", "test", n=16, size=size).images)
    suite = jc.load(f"jbias:suites/suppression:size={size}", flag="suite")
    left = {}
    for reference in (224, suite["measures"]["suppression"]["reference"]):
        of = dict(side=suite["size"], families=("bilateral",), reference=reference)
        smooth = shown(
            suppression_stimuli.make(**of), "bilateral 12", images, range(len(images))
        )
        left[reference] = local_variance(level(smooth), 5)
    before = local_variance(level(images), 5)
    assert left[64] < 0.5 * before < left[224]


def pieces(image, g):
    """The tiles by their places, by plain slices."""
    edges = np.linspace(0, len(image), g + 1).astype(int)
    ends = [slice(*pair) for pair in itertools.pairwise(edges)]
    return {(i, j): image[a, b] for i, a in enumerate(ends) for j, b in enumerate(ends)}


def known(tiles):
    return collections.Counter((one.shape, one.tobytes()) for one in tiles)


@cases.each("g", suppression.GRIDS)
def test_shuffled_tiles_stay_what_they_are(g):
    """Also where they do not divide the side, and so have several sizes."""
    made = make(38, "shuffle")
    image = SMALL[:38, :38].astype(float)
    found = shown(made, f"shuffle {g}", image)
    assert known(pieces(found, g).values()) == known(pieces(image, g).values())
    assert not np.array_equal(found, image)


def test_tiles_of_other_sizes_change_no_places():
    made, image = make(33, "shuffle"), SMALL[:33, :33]
    np.testing.assert_array_equal(shown(made, "shuffle 2", image), image)
    corner = suppression_stimuli.settings("shuffle", 3, 224, 1.0)["group"]
    assert np.count_nonzero(corner == corner[0]) == 1  # It stays, as people saw it.


def test_all_orders_are_as_likely_and_each_image_has_its_own():
    """The identity, too: of four tiles one in 24."""
    image = np.kron(np.arange(4).reshape(2, 2, 1), np.ones((16, 16, 3)))
    index, made = np.arange(1200), make(32, "shuffle")
    found = shown(made, "shuffle 2", image, index)[:, ::16, ::16, 0].reshape(-1, 4)
    orders, counts = np.unique(found, axis=0, return_counts=True)
    assert len(orders) == 24
    # Chi squared of 23 degrees: 49.7 is passed once in a thousand.
    assert ((counts - 50) ** 2 / 50).sum() < 49.7
    few = shown(made, "shuffle 2", image, index[[7, 900, 7]])[:, ::16, ::16, 0]
    np.testing.assert_array_equal(few.reshape(-1, 4), found[[7, 900, 7]])


@cases.each("g", [2, 4, 8, 16])
def test_tiles_turn_by_quarters(g):
    image = SMALL[:32, :32].astype(float)
    found = shown(make(32, "rotation"), f"rotation {g}", image)
    before, turns = pieces(image, g), set()
    for place, tile in pieces(found, g).items():
        alike = [np.array_equal(np.rot90(before[place], k), tile) for k in range(4)]
        assert any(alike)
        turns |= {alike.index(True)}
    assert len(turns) == 4 or g == 2


@cases.each("sides", [(224, 228), (228, 224), (224, 230), (33, 34)])
def test_resizing_for_turns_is_opencvs(sides):
    image = np.resize(IMAGE, (sides[0], sides[0], 3))
    shape, how = (sides[1],) * 2, dict(interpolation=cv2.INTER_LINEAR)
    exact = cv2.resize(image.astype(np.float32), shape, **how)
    found = suppression_stimuli._resize(jnp.asarray(image, jnp.float32), sides[1])
    assert np.abs(found - exact).max() < 0.505
    # The release resizes in fixed-point numbers.
    assert np.abs(found - cv2.resize(image, shape, **how).astype(float)).max() <= 1


def test_channels_take_all_orders():
    image = np.broadcast_to((10.0, 20.0, 30.0), (32, 32, 3))
    made = make(32, "channel_shuffle")
    found = shown(made, "channel_shuffle 1", image, np.arange(600))
    assert (found == found[:, :1, :1]).all()
    orders, counts = np.unique(found[:, 0, 0], axis=0, return_counts=True)
    assert len(orders) == 6
    # Chi squared of 5 degrees: 20.5 is passed once in a thousand.
    assert ((counts - 100) ** 2 / 100).sum() < 20.5


def test_two_cues_go_one_after_the_other():
    """The tiles of an image are moved alike with colours and without, sharp or smooth."""
    families = ("shuffle", "bilateral", "shuffle_grey", "bilateral_12_shuffle")
    made = make(48, *families, "bilateral_grey", "people")
    moved = shown(made, "shuffle 6", SMALL, (5, 5))[0]
    np.testing.assert_array_equal(
        shown(made, "shuffle 6 grey 1", SMALL, (5, 5))[0], shown(made, "grey 1", moved)
    )
    smooth = shown(made, "bilateral 12", SMALL)
    np.testing.assert_array_equal(
        shown(made, "bilateral 12 grey 1", SMALL), shown(made, "grey 1", smooth)
    )
    np.testing.assert_array_equal(
        shown(made, "bilateral 12 shuffle 6", SMALL), shown(made, "shuffle 6", smooth)
    )


def test_the_filter_runs_once_for_all_that_begin_with_it(monkeypatch):
    """And gives the bytes that it gives to one condition alone, where it is the only one."""
    ran, run = [], inference._stimuli

    def counted(show, how, *own):
        ran.append(how)
        return run(show, how, *own)

    families = ("people", "bilateral", "bilateral_12_shuffle", "bilateral_grey")
    many, image = make(48, *families), np.stack([SMALL, SMALL[::-1]])
    index = np.arange(2, dtype=np.int32)
    batch = inference.Batch(np.uint8(image), index, index, index, 2)
    network = inference.BoundJaxNetwork(lambda variables, image: image.mean((1, 2)), {})
    of = functools.partial(inference.make_stimuli, network)
    kept = {}
    together = {
        name: of(many, batch, name, base_images=kept) for name in many.conditions
    }
    assert {*kept} == {*suppression.FAMILIES["bilateral"]}
    for families, condition in (
        (("bilateral_grey",), "bilateral 4 grey 1"),
        (("bilateral_12_shuffle",), "bilateral 12 shuffle 16"),
    ):
        alone = make(48, *families)
        assert not alone.onto
        found = np.asarray(of(alone, batch, condition))
        np.testing.assert_array_equal(found, together[condition])
        np.testing.assert_array_equal(found, of(many, batch, condition))
    monkeypatch.setattr(inference, "_stimuli", counted)
    of = network, many, [batch], {"": inference.DecisionRule(3)}, contextlib.nullcontext
    assert len([*inference._run_conditions(*of)]) == len(ran) == len(many.conditions)
    assert [how.count("bilateral") for how in ran].count(1) == 6
    assert max(map(len, ran)) == 1


ALONE = {name: 48 for name in ("bilateral", "blur", "non_local_means", "grey")}
ALONE |= {"shuffle": 38, "rotation": 32, "channel_shuffle": 32}


@cases.each(("family", "side"), ALONE.items())
def test_what_is_one_grey_is_left_alone(family, side):
    made, image = make(side, family), np.full((side, side, 3), 77)
    for condition in suppression.FAMILIES[family]:
        np.testing.assert_array_equal(shown(made, condition, image), image, condition)


def test_no_strength_changes_nothing():
    image = jnp.asarray(SMALL, jnp.float32)
    for kind, strength in (("grey", 0), ("shuffle", 1)):
        s = suppression_stimuli.settings(kind, strength, 48, 1.0)
        s = jax.tree.map(jnp.asarray, s)
        step = dict(grey="grey", shuffle="shuffle_tiles")[kind]
        found = getattr(suppression_stimuli, step)(image, jax.random.key(0), s=s)
        np.testing.assert_array_equal(found, SMALL)


def test_lengths_follow_the_side():
    """Half of the published side has half of the published radius."""
    whole = suppression_stimuli.settings("bilateral", 12, 224, 1.0)
    half = suppression_stimuli.settings("bilateral", 12, 112, 0.5)
    reach = [np.abs(s["offset"][: s["count"]]).max() for s in (whole, half)]
    assert reach == [6, 3] and [whole["count"], half["count"]] == [113, 29]
    tiny = suppression_stimuli.settings("bilateral", 4, 32, 32 / 224)
    assert tiny["count"] == 5  # A pixel and its neighbours.


def decided(rights: dict[str, int], n: int) -> dict[str, evals.Decisions]:
    label = np.zeros(n, int)
    return {
        name: evals.Decisions((np.arange(n) >= right).astype(int), {"label": label})
        for name, right in rights.items()
    }


def by_name(told):
    found = {(one.metric, one.condition): one for one in told}
    assert len(found) == len(told)
    return found


def test_shares_are_of_the_accuracy_on_images_as_they_are():
    rights = {"": 80, "shuffle 6": 45, "grey 1": 88, "shuffle 6 grey 1": 2}
    told = suppression.numbers(decided(rights, 100), classes=10, draws=50)
    found = by_name(told)
    for condition, right in rights.items():
        assert found["accuracy", condition][1:4] == (right / 100, right, 100)
        value = found["relative_accuracy", condition].value
        assert value == pytest.approx(right / 80)
        above = found["relative_accuracy_chance", condition].value
        assert above == pytest.approx((right - 10) / 70)
    for metric in ("relative_accuracy", "relative_accuracy_chance"):
        assert found[metric, ""].value == 1
        assert found[f"{metric}_undefined", ""].value == 0
        low, value, high = (
            found[f"{metric}{end}", "shuffle 6"].value
            for end in ("_lower", "", "_upper")
        )
        assert low < value < high
    assert found["relative_accuracy", "grey 1"].value > 1
    assert found["relative_accuracy_chance", "shuffle 6 grey 1"].value < 0
    bare = suppression.numbers(decided(rights, 100), draws=2)
    assert not any("chance" in one.metric for one in bare)


def test_at_chance_nothing_is_relative():
    found = by_name(
        suppression.numbers(decided({"": 10, "grey 1": 5}, 100), classes=10, draws=20)
    )
    assert found["relative_accuracy", "grey 1"].value == 0.5
    assert found["relative_accuracy_chance", "grey 1"].value is None
    none = by_name(suppression.numbers(decided({"": 0, "grey 1": 5}, 100), draws=20))
    assert none["relative_accuracy", "grey 1"].value is None
    assert none["relative_accuracy_undefined", ""].value == 1


def test_intervals_cover_what_they_say():
    """The interval of a share is near that of the delta method."""
    n, rng = 2000, np.random.default_rng(0)
    clean = rng.random(n) < 0.8
    grey = clean & (rng.random(n) < 0.5)
    found = {
        name: evals.Decisions(1 - right.astype(int), {"label": np.zeros(n, int)})
        for name, right in {"": clean, "grey 1": grey}.items()
    }
    told = by_name(suppression.numbers(found, draws=4000))
    low, high = (
        told[f"relative_accuracy_{end}", "grey 1"].value for end in ("lower", "upper")
    )
    share = grey.sum() / clean.sum()
    expected = 1.96 * np.sqrt(share * (1 - share) / clean.sum())
    assert (high - low) / 2 == pytest.approx(expected, rel=0.08)


def test_each_rule_is_measured_by_its_own_decisions():
    one, other = (decided({"": 8, "grey 1": x}, 10) for x in (4, 6))
    both = one | {f"{name} mean_logit".strip(): x for name, x in other.items()}
    alone = [
        number._replace(condition=f"{number.condition} mean_logit".strip())
        for number in suppression.numbers(other, draws=5)
    ]
    expected = suppression.numbers(one, draws=5) + alone
    assert suppression.numbers(both, draws=5) == expected


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
        suppression_stimuli.make(**wrong)


def test_it_is_a_probe_and_says_what_people_saw():
    assert probe_registry.PROBES["suppression"] is suppression_stimuli.make
    rights = dict(zip(suppression_stimuli.make().conditions, range(8, 0, -1)))
    told = suppression.numbers(decided(rights, 8), draws=2)
    said = "accuracy 1, shuffle 3 0.875, shuffle 6 0.75, bilateral 12 0.625, grey 1 0.5"
    assert probe_registry.summarize("suppression", told) == said


def test_published_shares_have_a_place_each():
    assert len(suppression.PUBLISHED) == 6
    for name, (clean, *each) in suppression.PUBLISHED.items():
        assert len(each) == 4 and 0.9 < clean < 1 and max(each) < 1, name
        assert min(each) == each[1], name  # Without local shape least is left.


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


def test_the_suite_of_biases_has_it_where_it_is_asked_for():
    plain = jc.load("jbias:suites/biases:smoke", flag="suite")
    asked = jc.load("jbias:suites/biases:smoke,suppression", flag="suite")
    more = {*asked["measures"]} - {*plain["measures"]}
    assert more == {"suppression"}
    assert asked["measures"]["suppression"]["images"] == 16


def test_people_saw_fifty_of_a_class_in_both_suites():
    """The critical band's published images are 70 of a class, and stay so."""
    own = "data=imagenet,root=x"
    one = jc.load(f"jbias:suites/suppression:{own}", flag="suite")
    two = jc.load(f"jbias:suites/biases:suppression,{own}", flag="suite")
    for config in (one, two):
        (name,) = config["measures"]["suppression_people"]["sets"]
        shown = config["sets"][name].to_dict()
        assert shown == dict(data="imagenet16", split="val", root="x", each=50)
    (name,) = two["measures"]["critical_band_original"]["sets"]
    assert two["sets"][name]["each"] == 70
    without = jc.load(f"jbias:suites/biases:{own}", flag="suite")
    assert {*two["sets"]} - {*without["sets"]} == {"imagenet16_people"}


@cases.each(
    ("asked", "families", "reference"),
    [
        ("data=imagenet,root=x", 12, None),
        ("data=folder,root=x,size=65", 12, None),
        ("data=tiny_imagenet,root=x", 11, 64),
        ("data=cifar10,root=x", 11, 64),
        ("size=48", 11, 64),
    ],
)
def test_small_images_are_not_blurred_by_nothing(asked, families, reference):
    config = jc.load(f"jbias:suites/suppression:{asked}", flag="suite")
    told = config["measures"]["suppression"]
    assert told.get("reference") == reference
    shown = {*told.get("families", suppression.FAMILIES)}
    assert len(shown) == families
    assert {*suppression.FAMILIES} - shown == ({"blur"} if families < 12 else set())
    made = suppression_stimuli.make(side=config["size"], families=shown)
    assert len(made.conditions) == {12: 69, 11: 62}[families]
    assert {*suppression.CUES.values()} <= {*made.conditions}


def test_why_it_is_not_blurred():
    """A published Gaussian of up to 11 points at 32 pixels does not change bytes."""
    made = suppression_stimuli.make(side=32, families=("blur",))
    image = SMALL[:32, :32].astype(float)
    for condition in suppression.FAMILIES["blur"][:5]:
        np.testing.assert_array_equal(shown(made, condition, image), image)


def test_who_reads_colours_alone_needs_no_shape(tmp_path):
    """A function that answers by the mean colour, through the command's own way."""
    classes = data.load("shapes", "test").classes

    def predict(images):
        red, green, blue = images.astype(np.int64).sum((1, 2)).T
        return np.eye(len(classes))[(3 * red + 5 * green + 7 * blue) // 20_000 % 16]

    only, asked = "suppression", "families=('people',)"
    found = jbias.measure(
        predict,
        "jbias:suites/suppression:images=48",
        only=[only],
        changes=[f"--suite.measures.{only}.{asked}", "--suite.run.batch=48"],
        classes=classes,
        images="uint8",
        out=tmp_path,
    )
    table = found.numbers.set_index(["metric", "condition"])["value"]
    shares = table["relative_accuracy"]
    assert table["accuracy", "suppression"] > 0
    assert shares["suppression/shuffle 3"] == shares["suppression/shuffle 6"] == 1
    kept = decisions.read_conditions(
        next(tmp_path.rglob("decisions/test/suppression.parquet"))
    )
    answers = {name: one.prediction.tolist() for name, one in kept.items()}
    assert answers["shuffle 6"] == answers[""] != answers["grey 1"]
