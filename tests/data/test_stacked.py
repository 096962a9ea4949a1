"""Stacked MNIST-CIFAR: places of the halves, pairs of classes, and answers by half."""

import pathlib
import pickle
import struct

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias import data, evals, train
from jbias.augment import compose
from jbias.training import step as train_step
from tests import smoke_runs

N = {"train": 600, "test": 300}
BATCHES = {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}
NAMES = ["airplane", "automobile", "bird", "cat", "deer"]
NAMES += ["dog", "frog", "horse", "ship", "truck"]


def write_cifar(folder: pathlib.Path, counts: dict[str, int], classes=10) -> None:
    """Write CIFAR-10's python archive with few images whose grey value is the class."""
    folder.mkdir()
    for split, files in BATCHES.items():
        n = counts[split] // len(files)
        for i, file in enumerate(files):
            labels = np.random.default_rng(i).permutation(n) % classes
            pixels = np.repeat(100 + labels[:, None], 3072, 1).astype(np.uint8)
            pixels[:, 0] = i
            pixels[:, 1], pixels[:, 2] = np.divmod(np.arange(n), 250)
            batch = {b"data": pixels, b"labels": labels.tolist()}
            (folder / file).write_bytes(pickle.dumps(batch))
    names = {b"label_names": [name.encode() for name in NAMES[:classes]]}
    (folder / "batches.meta").write_bytes(pickle.dumps(names))


def write_mnist(folder: pathlib.Path, counts: dict[str, int]) -> None:
    """Write MNIST's files with few images whose grey value is the class, and a number."""
    folder.mkdir()
    for split, stem in (("train", "train"), ("test", "t10k")):
        n = counts[split]
        labels = (np.random.default_rng(9).permutation(n) % 10).astype(np.uint8)
        images = np.repeat(200 + labels, 28 * 28).reshape(n, 28, 28).astype(np.uint8)
        images[:, 0, 0], images[:, 0, 1] = np.divmod(np.arange(n), 250)
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
            (folder / f"{stem}-{kind}-ubyte").write_bytes(header + array.tobytes())


@pytest.fixture(scope="module")
def roots(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stacked")
    write_cifar(folder / "cifar-10-batches-py", N)
    write_mnist(folder / "mnist", {"train": 700, "test": 200})
    return dict(root=str(folder), digits=str(folder / "mnist"))


def load(roots, split, **options):
    return data.load("stacked", split, **roots, **options)


def test_a_digit_is_stacked_above_a_photograph(roots):
    source = load(roots, "train")
    assert source.images.shape == (600, 64, 32, 3) and source.shape == (64, 32)
    top, bottom = source.images[:, :32], source.images[:, 32:]
    label = source.columns["label"]
    assert (bottom[:, 9, 9] == 100 + label[:, None]).all()
    assert (top[:, 16, 16] == 200 + source.columns["texture"][:, None]).all()
    frame = np.ones((32, 32), bool)
    frame[2:-2, 2:-2] = False
    assert not top[:, frame].any()
    np.testing.assert_array_equal(top[..., 0], top[..., 2])


def test_classes_agree_in_training_and_are_independent_in_the_test(roots):
    train, test = load(roots, "train"), load(roots, "test")
    np.testing.assert_array_equal(train.columns["label"], train.columns["texture"])
    agree = (test.columns["label"] == test.columns["texture"]).mean()
    assert 0.03 < agree < 0.2
    numbers = train.images[:, 2, 2, 0].astype(int) * 250 + train.images[:, 2, 3, 0]
    assert len(set(numbers.tolist())) == 600, "each digit once, where they suffice"
    other = load(roots, "train", seed=1)
    assert (other.images != train.images).any()
    assert other.fingerprint != train.fingerprint


def test_either_half_may_be_asked_for(roots):
    objects, numbers = load(roots, "test"), load(roots, "test", answer="mnist")
    np.testing.assert_array_equal(objects.images, numbers.images)
    np.testing.assert_array_equal(objects.columns["label"], numbers.columns["texture"])
    np.testing.assert_array_equal(objects.columns["texture"], numbers.columns["label"])
    assert objects.classes == numbers.classes == tuple(NAMES)
    with pytest.raises(ValueError, match="answer must be one of"):
        load(roots, "test", answer="digit")


def test_answers_are_counted_by_the_half_that_they_follow():
    label = np.array([0, 1, 2, 0, 1, 2])
    other = np.array([0, 2, 0, 1, 2, 1])
    answer = np.array([0, 2, 0, 0, 1, 0])
    measurements = evals.MEASURES["halves"](
        evals.Decisions(answer, {"label": label, "texture": other})
    )
    counts = {
        (measured.metric, measured.condition): (measured.count, measured.n)
        for measured in measurements
    }
    assert counts == {
        ("follows_label", ""): (2, 5),
        ("follows_other", ""): (2, 5),
        ("follows_other", "other 0"): (1, 1),
        ("follows_other", "other 1"): (0, 2),
        ("follows_other", "other 2"): (1, 2),
    }
    agreed = evals.Decisions(answer, {"label": label, "texture": label})
    assert evals.MEASURES["halves"](agreed) == []


def test_a_half_is_transformed_alone():
    image = jax.random.uniform(jax.random.key(0), (4, 6, 3, 3))
    batch = {"image": image, "other": {"image": jnp.ones((4, 3, 3, 3))}}
    for which, rows in (("top", slice(3)), ("bottom", slice(3, 6))):
        apply = compose.half(mix=compose.replace(), which=which)
        transformed = apply(batch, jax.random.key(1))["image"]
        assert (transformed[:, rows] == 1).all()
        np.testing.assert_array_equal(
            np.delete(transformed, np.r_[rows], 1), np.delete(image, np.r_[rows], 1)
        )
    with pytest.raises(ValueError, match="even height"):
        apply({"image": image[:, :5]}, jax.random.key(1))
    with pytest.raises(ValueError, match="which must be one of top, bottom"):
        compose.half(mix=compose.replace(), which="left")


def stacked_config(roots, **model):
    c = smoke_runs.small().to_dict()
    c["model"].update(model)
    c["train"] = dict(data="stacked", split="train", batch=64, **roots)
    c["train"]["other"] = dict(
        data="mnist", split="train", root=roots["digits"], pad=2, pair="class"
    )
    c["inputs"] = (dict(name="half", which="top", mix=dict(name="replace")),)
    return c


def test_each_step_has_another_digit_of_the_class(roots):
    stage = smoke_runs.stage(stacked_config(roots))
    arrays = stage.feed.shared(0)
    digits_by_photograph = {}
    for step in range(2 * stage.order.steps_per_epoch):
        indices = stage.feed.batch(0, step)
        labels = arrays["train"]["label"][indices["train"]]
        digits = arrays["other"]["image"][indices["other"]]
        np.testing.assert_array_equal(digits[:, 16, 16, 0], 200 + labels)
        for i, j in zip(indices["train"].tolist(), indices["other"].tolist()):
            digits_by_photograph.setdefault(i, set()).add(j)
    assert np.mean([len(x) for x in digits_by_photograph.values()]) > 1.7


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet18", "cnn"])
def test_images_of_two_squares_are_trained_on(roots, name):
    c = stacked_config(roots)
    if name == "cnn":
        c["model"] = dict(name="cnn", width=4, norm_group=0)
    stage = smoke_runs.stage(c)
    assert stage.shape == (64, 32)
    state = jax.eval_shape(stage.program.draw, jax.random.key(0), None)
    arg = jax.random.key(0), stage.feed.batch(0, 0)
    state, metrics = jax.eval_shape(
        lambda s: stage.program.step(s, arg, stage.feed.shared(0), None), state
    )
    image = jax.ShapeDtypeStruct((7, 64, 32, 3), np.uint8)
    net = train_step.net_of(state)
    answers = jax.eval_shape(
        lambda n, x: stage.program.logits(n, None, x, None), net, image
    )
    assert answers.shape == (7, 10) and metrics


@pytest.mark.slow
def test_a_run_is_tested_by_either_half_and_on_images_of_other_shapes(roots, tmp_path):
    c = stacked_config(roots)
    test = dict(data="stacked", split="test", **roots)
    square = dict(data="cifar10", split="test", root=roots["root"])
    c["tests"] = dict(cifar=test, plain=square, mnist=dict(test, answer="mnist"))
    c["valid"] = dict(data="stacked", split="test", seed=1, **roots)
    c["epochs"], c["seeds"] = 1.0, (0,)
    assert train.run(c, tmp_path / "run")
    counts = {
        (r["dataset"], r["metric"], r["condition"]): (r["count"], r["n"])
        for r in smoke_runs.records(tmp_path / "run")
    }
    for half, other in (("cifar", "mnist"), ("mnist", "cifar")):
        follows = counts[half, "follows_label", ""]
        assert follows == counts[other, "follows_other", ""]
        by_class = [
            count
            for (dataset, _, condition), count in counts.items()
            if dataset == half and condition
        ]
        assert len(by_class) == 10
        assert tuple(map(sum, zip(*by_class))) == counts[half, "follows_other", ""]
        assert counts[half, "accuracy", ""][1] == 300 > follows[1]
    assert counts["plain", "accuracy", ""][1] == 300


def test_pairs_that_cannot_be_are_refused(roots):
    c = stacked_config(roots)
    c["train"]["other"]["pair"] = "label"
    with pytest.raises(ValueError, match="config.train.other.pair: must be 'class'"):
        smoke_runs.stage(c)
    c = stacked_config(roots)
    c["train"]["pair"] = "class"
    with pytest.raises(ValueError, match="belongs to the second set"):
        smoke_runs.stage(c)


def test_a_negative_seed_is_refused(roots):
    with pytest.raises(
        ValueError, match="^data.stacked train: seed must be a whole number >= 0"
    ):
        load(roots, "train", seed=-1)
