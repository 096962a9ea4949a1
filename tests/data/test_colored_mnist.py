"""Colored MNIST: rates in closed form, the released rule on the same draws, and refusals."""

import pathlib
import struct

import numpy as np
import pytest

from jbias import data, train
from jbias.configs import erm
from jbias.data import config_sets
from jbias.data.sets import colored_mnist
from jbias.runs import results, selection
from tests import cases

ORACLE = pathlib.Path(__file__).parents[1] / "oracles/colored_mnist.npz"
N = {"train": 6000, "t10k": 1000}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Folder with a tenth of MNIST: images of noise whose first two pixels encode the
    image's number.
    """
    folder, rng = tmp_path_factory.mktemp("digits"), np.random.default_rng(0)
    for stem, n in N.items():
        images = rng.integers(1, 256, (n, 28, 28), np.uint8)
        images[:, 0, 0], images[:, 0, 2] = np.divmod(np.arange(n), 250)
        labels = rng.permutation(np.arange(n) % 10).astype(np.uint8)
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
            (folder / f"{stem}-{kind}-ubyte").write_bytes(header + array.tobytes())
    return str(folder)


@pytest.fixture(scope="module")
def real(test_data):
    """Folder of the published files."""
    if not (test_data / "mnist").is_dir():
        pytest.skip(f"needs real data: no mnist in JBIAS_TEST_DATA={test_data}")
    return str(test_data / "mnist")


def load(root, split, **options):
    return data.load("colored_mnist", split, root=root, **options)


def numbers_of(source):
    """Return the images' numbers in MNIST's own file, decoded from two pixels."""
    pixels = source.images.max(-1).astype(int)
    return pixels[:, 0, 0] * 250 + pixels[:, 0, 1 if source.size == 14 else 2]


def is_near(outcomes, chance):
    """Return True if the share of true values is within five standard deviations of
    `chance`.
    """
    bound = 5 * np.sqrt(max(chance * (1 - chance), 1e-9) / len(outcomes))
    return abs(np.mean(outcomes) - chance) <= bound


def check_rates(source, flips, noise=0.25):
    columns = source.columns
    for domain in np.unique(columns["domain"]):
        is_in_domain = columns["domain"] == domain
        label = columns["label"][is_in_domain]
        colour = columns["attribute"][is_in_domain]
        digit = columns["digit"][is_in_domain]
        clean = digit < 5
        assert is_near(label != clean, noise)
        assert is_near(colour != label, flips[domain])
        # The two flips are independent, and so are label noise and digit.
        assert is_near((colour != label)[label != clean], flips[domain])
        assert is_near((label != clean)[clean], noise)
        # Accuracy of a classifier that uses the colour alone.
        e = flips[domain]
        assert is_near(colour == clean, (1 - noise) * (1 - e) + noise * e)


@cases.each("form", colored_mnist.FLIPS)
def test_rates_equal_those_of_the_environments(root, form):
    flips = colored_mnist.FLIPS[form]
    for split in colored_mnist.SPLITS:
        check_rates(load(root, split, form=form), flips)
    source = load(root, "train", form=form, correlation=0.7, label_noise=0.1)
    check_rates(source, (0.3, 0.3), 0.1)
    never = load(root, "test", form=form, correlation=1, label_noise=0).columns
    np.testing.assert_array_equal(never["label"], never["attribute"])
    np.testing.assert_array_equal(never["label"], never["digit"] < 5)


@pytest.mark.slow
def test_environments_of_the_published_digits(real):
    train, test = load(real, "train"), load(real, "test")
    assert (train.note, test.note) == ("", "")
    assert train.images.shape == (50_000, 14, 14, 3) and len(test) == 10_000
    assert np.bincount(train.columns["domain"]).tolist() == [25_000, 25_000]
    check_rates(train, colored_mnist.FLIPS["irm"])
    check_rates(test, colored_mnist.FLIPS["irm"])
    sources = [load(real, split, form="domainbed") for split in colored_mnist.SPLITS]
    assert [len(source) for source in sources] == [46_667, 23_334, 23_333, 23_333]
    assert sources[0].size == 28


def test_the_rule_equals_the_released_code_on_the_same_draws(monkeypatch):
    stored = dict(np.load(ORACLE))
    images_per_environment = stored["draws"].shape[-1]
    draws = iter(stored["draws"].reshape(6, images_per_environment))

    class StoredDraws:
        def random(self, n):
            return next(draws)

    def split_environments(form, n, seed):
        return np.split(np.arange(n), 3)

    def read(root, splits):
        return stored["pixels"], stored["digits"], ""

    monkeypatch.setattr(colored_mnist, "_generator", lambda *_: StoredDraws())
    monkeypatch.setattr(colored_mnist, "_split_environments", split_environments)
    monkeypatch.setattr(colored_mnist, "_read", read)
    for domain, split in enumerate(("train_0", "train_1", "test")):
        source = load("", split)
        images = stored["images"][domain].reshape(images_per_environment, 2, 14, 14)
        np.testing.assert_array_equal(source.columns["label"], stored["labels"][domain])
        np.testing.assert_array_equal(
            source.images[..., :2].transpose(0, 3, 1, 2), images
        )
        assert not source.images[..., 2].any()
        np.testing.assert_array_equal(
            source.columns["attribute"], images[:, 1].any((1, 2))
        )


def environment(pixels, digits, flip, noise):
    """Return images, labels and colours as IRM's make_environment does, from the draws in
    `noise`.
    """
    labels = (digits < 5).astype(float)
    labels = np.abs(labels - (noise[0] < 0.25))
    colours = np.abs(labels - (noise[1] < flip))
    images = np.stack([pixels[:, ::2, ::2]] * 2, 1)
    images[np.arange(len(images)), (1 - colours).astype(int)] *= 0
    return images, labels, colours


@pytest.mark.slow
def test_all_of_irms_data_on_the_published_digits(real):
    """Follow the released script: split, shuffle, take alternate images, colour."""
    mnist = data.load("mnist", "train", root=real)
    pixels, digits = mnist.images[..., 0], mnist.columns["label"]

    def rng(purpose):
        return colored_mnist._generator("irm", purpose, 0)

    order = rng("order").permutation(50_000)
    indices = [order[::2], order[1::2], slice(50_000, None)]
    flips = (0.2, 0.1, 0.9)
    for i, split in enumerate(("train_0", "train_1", "test")):
        split_digits = digits[indices[i]]
        noise = [
            rng(f"{purpose}/{i}").random(len(split_digits))
            for purpose in ("label", "colour")
        ]
        images, labels, colours = environment(
            pixels[indices[i]], split_digits, flip=flips[i], noise=noise
        )
        source = load(real, split)
        np.testing.assert_array_equal(
            source.images[..., :2], images.transpose(0, 2, 3, 1)
        )
        np.testing.assert_array_equal(source.columns["label"], labels)
        np.testing.assert_array_equal(source.columns["attribute"], colours)
        np.testing.assert_array_equal(source.columns["digit"], split_digits)


def test_training_is_both_environments_in_turn(root):
    combined = load(root, "train")
    assert combined.columns["domain"].tolist() == [0, 1] * 2500
    for domain in (0, 1):
        environment_source = load(root, f"train_{domain}")
        np.testing.assert_array_equal(
            combined.images[domain::2], environment_source.images
        )
        for key, column in environment_source.columns.items():
            np.testing.assert_array_equal(combined.columns[key][domain::2], column)


@cases.each(("form", "n"), [("irm", 6000), ("domainbed", 7000)])
def test_environments_are_disjoint_and_complete(root, form, n):
    sources = [load(root, split, form=form) for split in ("train_0", "train_1", "test")]
    assert abs(len(sources[0]) - len(sources[1])) <= 1
    number = np.concatenate([numbers_of(source) for source in sources])
    # The test images of MNIST, in `domainbed` alone, repeat the first thousand numbers.
    expected = np.bincount(np.arange(6000)) + (np.arange(6000) < n - 6000)
    np.testing.assert_array_equal(np.bincount(number), expected)
    if form == "irm":
        np.testing.assert_array_equal(numbers_of(sources[2]), np.arange(5000, 6000))


@pytest.mark.slow
@cases.each("form", ["irm", "conditional"])
def test_images_depend_on_seed_alone_and_not_on_their_number(root, form):
    whole = load(root, "train", form=form)
    again = load(root, "train", form=form)
    few = load(root, "train", form=form, n=100)
    other = load(root, "train", form=form, seed=1)
    assert whole.fingerprint == again.fingerprint != other.fingerprint
    assert len(few) == 100
    np.testing.assert_array_equal(few.images, whole.images[:100])
    for key, column in whole.columns.items():
        np.testing.assert_array_equal(again.columns[key], column)
        np.testing.assert_array_equal(few.columns[key], column[:100])


def test_another_correlation_changes_colours_alone(root):
    low, high = (load(root, "test", correlation=c).columns for c in (0.3, 0.8))
    np.testing.assert_array_equal(low["label"], high["label"])
    # The same draws: what agrees at the lower one agrees at the higher, too.
    agrees = low["label"] == low["attribute"]
    assert (high["label"] == high["attribute"])[agrees].all()


def test_grey_shows_no_colours(root):
    plain, grey = load(root, "train"), load(root, "train", grey=True)
    np.testing.assert_array_equal(
        grey.images, np.repeat(plain.images.max(-1, keepdims=True), 3, -1)
    )
    np.testing.assert_array_equal(plain.columns["label"], grey.columns["label"])


def shares(source):
    """Return the counts and shares of each colour (column) per digit (row), both (10, 4)."""
    counts = np.zeros((10, 4))
    np.add.at(counts, (source.columns["label"], source.columns["attribute"]), 1)
    return counts, counts / counts.sum(1, keepdims=True)


HALF, NONE = [0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]
TABLES = {
    "marginal": ((HALF, HALF), (NONE, NONE)),
    "conditional": ((HALF, NONE), (NONE, HALF)),
    "joint": ((HALF, [0, 0.5, 0.5, 0]), (NONE, [0.5, 0, 0, 0.5])),
}


@cases.each("form", colored_mnist.PAIRS)
def test_shares_of_ten_classes_are_exact(root, form):
    for split, groups in zip(("train", "test"), TABLES[form]):
        source = load(root, split, form=form, size=28)
        counts, colour_shares = shares(source)
        assert counts.sum(1).tolist() == [len(source) / 10] * 10
        np.testing.assert_allclose(colour_shares, np.repeat(groups, 5, 0), atol=1e-12)
    extreme, other = (np.repeat(groups, 5, 0) for groups in TABLES[form])
    counts, _ = shares(load(root, "train", form=form, correlation=0.95, size=28))
    # Largest remainders: less than one image off.
    assert np.abs(counts - 600 * (0.95 * extreme + 0.05 * other)).max() < 1
    _, colour_shares = shares(load(root, "train", form=form, correlation=0.5, size=28))
    np.testing.assert_array_equal(colour_shares, np.full((10, 4), 0.25))


def test_uniform_and_single_colours(root):
    _, colour_shares = shares(load(root, "train", form="uniform"))
    np.testing.assert_array_equal(colour_shares, np.full((10, 4), 0.25))
    for number, (name, channels) in enumerate(colored_mnist.PALETTE.items()):
        source = load(root, "test", form=name)
        assert set(source.columns["attribute"]) == {number} and source.size == 32
        is_channel_used = source.images.reshape(-1, 3).any(0)
        np.testing.assert_array_equal(is_channel_used, np.array(channels, bool))


def test_largest_remainders():
    for total in (0, 1, 3, 601, 602, 603):
        for requested in ([0.25] * 4, [0.475, 0.475, 0.025, 0.025], [0.5, 0.5, 0, 0]):
            counts = colored_mnist._round_to_total(total, np.array(requested))
            assert counts.sum() == total
            assert np.abs(counts - total * np.array(requested)).max() < 1
            assert not counts[np.array(requested) == 0].any()


def test_parts_and_unpublished_files(root):
    large, small = load(root, "train[:90%]"), load(root, "train[90%:]")
    assert (len(large), len(small)) == (4500, 500)
    assert not set(numbers_of(large)) & set(numbers_of(small))
    note = "6,000 images on disk, the published set has 60,000"
    assert large.note == f"MNIST: {note}"


def test_columns_reach_the_batch(root):
    entry = dict(data="colored_mnist", split="train_0", root=root)
    single = config_sets.train_set("config.train", entry, 14)
    columns = config_sets.join_columns(single.sources)
    assert set(columns) == {"label", "attribute", "digit", "domain"}
    pair = config_sets.train_set(
        "config.train", dict(entry, also=[dict(entry, split="train_1")]), 14
    )
    domains = config_sets.join_columns(pair.sources)["domain"]
    assert np.bincount(domains).tolist() == [2500, 2500]


@cases.each(
    ("split", "options", "message"),
    [
        ("train", {"form": "imr"}, "form must be a known one, got 'imr'; did you mean"),
        ("valid", {}, "the split of 'colored_mnist' must be a known one, got 'valid'"),
        ("train_0", {"form": "joint"}, "split of form 'joint' must be a known one"),
        ("train", {"correlation": 1.5}, "correlation must be a number in [0, 1]"),
        ("train", {"correlation": float("nan")}, "correlation must be a number"),
        ("train", {"correlation": True}, "correlation must be a number"),
        ("train", {"correlation": "0.5"}, "correlation must be a number"),
        ("train", {"correlation": 0.5, "form": "red"}, "left out of form 'red'"),
        ("train", {"label_noise": -0.1}, "label_noise must be a number in [0, 1]"),
        ("train", {"label_noise": 0.1, "form": "joint"}, "it applies to irm, dom"),
        ("train", {"grey": 1}, "grey must be True or False, got 1"),
        ("train", {"n": 0}, "n must be a whole number from 1 to 5000, got 0"),
        ("test", {"n": 1001}, "n must be a whole number from 1 to 1000, got 1001"),
        ("train", {"n": 10.0}, "n must be a whole number"),
        ("train", {"seed": -1}, "seed must be a whole number >= 0, got -1"),
        ("train", {"seed": 0.5}, "seed must be a whole number >= 0"),
        ("train", {"size": 0}, "size must be a whole number >= 1, got 0"),
        ("train", {"colour": "red"}, "options of 'colored_mnist' must be known ones"),
        ("train", {"root": "/nowhere"}, "root must be an existing folder"),
    ],
)
def test_bad_options_are_refused_in_one_line(root, split, options, message):
    with pytest.raises(ValueError) as error:
        data.load("colored_mnist", split, **{"root": root, **options})
    assert message in str(error.value) and "\n" not in str(error.value)


def test_the_preset_trains_on_one_correlation_and_tests_on_others(root):
    c = erm.get_config(f"data=colored_mnist,root={root}")
    assert (c.model.name, c.size, c.train.split) == ("cnn", 14, "train[:90%]")

    def agreement(entry):
        columns = config_sets.open_test_source(
            "config", entry.to_dict(), c.size
        ).columns
        return columns["label"] == columns["attribute"]

    assert is_near(agreement(c.valid), 0.85)
    assert is_near(agreement(c.tests.reversed), 0.1)
    assert is_near(agreement(c.tests.uncorrelated), 0.5)
    grey = erm.get_config(f"data=colored_mnist,root={root},form=joint,grey")
    assert grey.size == 32
    for entry in (grey.train, grey.valid, *grey.tests.values()):
        assert entry.grey and entry.form == "joint"
    single = erm.get_config(f"data=colored_mnist,root={root},form=blue").tests
    assert {key: entry.form for key, entry in single.items()} == {
        key: key for key in ("red", "yellow", "green", "blue")
    }
    with pytest.raises(ValueError, match="data=colored_mnist needs root"):
        erm.get_config("data=colored_mnist")
    with pytest.raises(ValueError, match="unknown form 'blu'; did you mean 'blue'"):
        erm.get_config("data=colored_mnist,root=x,form=blu")


@pytest.mark.slow
@cases.each(
    ("arg", "valid", "reversed_accuracy"), [("", 0.825, 0.1), (",grey", 0.715, 0.74)]
)
def test_plain_training_learns_the_colour(
    real, tmp_path, arg, valid, reversed_accuracy
):
    """ERM learns the colour, or digits without colour. Colour alone: 85 and 10 %; shape
    alone: 75 %.
    """
    config = erm.get_config(f"data=colored_mnist,root={real},seeds=1{arg}")
    assert train.run(config, tmp_path / "run")
    table = selection.last_n(results.read([tmp_path / "run"]), 1)
    table = table[table["metric"] == "accuracy"]
    accuracy = dict(zip(table["dataset"], table["value"]))
    assert valid <= accuracy["valid"] <= 0.86, accuracy
    assert abs(accuracy["reversed"] - reversed_accuracy) <= 0.05, accuracy
    assert abs(accuracy["uncorrelated"] - (0.74 if arg else 0.5)) <= 0.05, accuracy
