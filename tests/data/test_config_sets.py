"""Training on several sources, with and without shares, and with a second stream."""

import dataclasses
import json

import cv2
import numpy as np
import pytest

from jbias import train
from jbias.configs import common, datasets
from jbias.data import config_sets, loader, sources
from jbias.data.embedded import shapes
from jbias.evals import decision_files
from tests import cases, smoke_runs

SHAPES = dict(data="shapes", split="train", n=32)


@pytest.fixture(scope="module")
def grey(tmp_path_factory):
    """Entry for a folder of grey images, ten of each of three classes of the embedded set."""
    root = tmp_path_factory.mktemp("grey")
    for name in ("star", "heart", "plus"):
        (root / "train" / name).mkdir(parents=True)
        for i in range(10):
            image = np.full((32, 32, 3), 128, np.uint8)
            assert cv2.imwrite(str(root / "train" / name / f"{i}.png"), image)
    return dict(data="folder", root=str(root), split="train")


def test_every_source_of_a_training_set_has_a_name():
    """Also of a training set with more than a hundred sources."""
    named = config_sets.TrainSet(tuple(range(103)), other=103).named(2)
    assert list(named.values()) == list(range(104))
    names = ["train/2", *(f"train/2/also/{i}" for i in range(102)), "train/2/other"]
    assert list(named) == names


def test_sources_are_matched_by_the_names_of_their_classes(grey):
    open_sources = config_sets.train_set(
        "config.train", {**SHAPES, "also": (grey,)}, 32
    )
    columns = config_sets.join_columns(open_sources.sources)
    assert columns["domain"].tolist() == [0] * 32 + [1] * 30
    names = open_sources.sources[0].classes
    assert {names[i] for i in columns["label"][32:]} == {"star", "heart", "plus"}
    assert set(columns) == {"label", "domain"}, "what one source lacks is left out"


def test_columns_of_several_sources_mean_the_same():
    """Attribute values are renumbered by their names, textures by the classes' names."""
    first, second = (
        sources.ArraySource(
            images=np.zeros((2, 1, 1, 3), np.uint8),
            name="made",
            classes=classes,
            columns={
                "label": np.array([0, 1], np.int32),
                "texture": np.array([1, 0], np.int32),
                "attribute": np.array([0, 1], np.int32),
                "place": np.array([0, 1], np.int32),
            },
            preprocessing="",
            fingerprint="",
            cite="",
            values={"attribute": values, **other_values},
        )
        for classes, values, other_values in (
            (("cat", "dog"), ("green", "red"), {"place": ("sea", "sky")}),
            (("dog", "cat"), ("blue", "green"), {}),
        )
    )
    joined = config_sets.join_columns([first, second])
    assert joined["label"].tolist() == [0, 1, 1, 0]
    assert joined["texture"].tolist() == [1, 0, 0, 1]
    assert joined["attribute"].tolist() == [0, 1, 2, 0]  # green, red, blue
    assert "place" not in joined, "the second source has no names for its values"


def test_a_class_that_the_first_lacks_is_refused(grey):
    options = {**grey, "also": (SHAPES,)}
    with pytest.raises(ValueError, match=r"^config.train.also\[0\]: .*must have every"):
        config_sets.train_set("config.train", options, 32)


def test_halves_come_from_their_own_files(grey):
    """Clean and augmented halves differ in their pixels, at every step."""
    config = smoke_runs.small().to_dict()
    config["train"].update(also=(grey,), shares=(0.5, 0.5), batch=8)
    config["inputs"] = ()
    stage = smoke_runs.stage(config)
    images, domains = (
        np.asarray(stage.feed.shared(0)["train"][k]) for k in ("image", "domain")
    )
    for step in range(4):
        index = stage.feed.batch(0, step)["train"]
        assert domains[index].tolist() == [0, 1] * 4
        assert (images[index][1::2] == 128).all()
        assert (images[index][::2].std((1, 2, 3)) > 5).all()
    assert stage.order.steps_per_epoch == 128 // 4


def test_a_union_is_shuffled_as_one_set(grey):
    config = smoke_runs.small().to_dict()
    config["train"].update(also=(grey,), batch=79)
    stage = smoke_runs.stage(config)
    assert stage.order.steps_per_epoch == 2
    images = np.concatenate([stage.feed.batch(0, step)["train"] for step in (0, 1)])
    assert sorted(images) == list(range(158))


def test_a_second_stream_has_a_separate_order_and_transforms(grey):
    config = smoke_runs.small().to_dict()
    other = dict(SHAPES, split="valid", inputs=(dict(name="flip", p=1.0),))
    config["train"].update(other=other)
    stage = smoke_runs.stage(config)
    assert set(stage.feed.shared(stage.first)) == {"train", "other"}
    first, second = (stage.feed.batch(0, step)["other"] for step in (0, 1))
    assert first.shape == (32,) and not np.array_equal(first, second)
    assert not np.array_equal(first, stage.feed.batch(0, 0)["train"])


@cases.each(
    ("change", "message"),
    [
        ({"shares": (0.5, 0.5)}, "config.train.shares: shares must be 1 positive"),
        (
            {"also": ({"data": "shapes"},)},
            r"config.train.also\[0\]: 'split' is missing",
        ),
        ({"other": {**SHAPES, "split": "trian"}}, "config.train.other: .*'train'"),
        ({"other": {**SHAPES, "n": 16}}, "config.train.batch: for `other` must be 1"),
    ],
)
def test_bad_training_entries_are_refused(tmp_path, change, message):
    config = smoke_runs.small()
    with config.unlocked():
        config.train.update(change)
    with pytest.raises(ValueError, match=message):
        train.run(config, tmp_path / "run")


def test_a_set_that_is_trained_on_is_not_tested_on(tmp_path, grey):
    config = smoke_runs.small()
    with config.unlocked():
        config.train.also = ({**config.tests.edge.to_dict(), "split": "edge"},)
    with pytest.raises(ValueError, match="edge is the training set"):
        train.run(config, tmp_path / "run")


def answer_set(test, train, **options):
    """Return a test set as a network sees it, and the messages about it."""
    messages = []
    rule = config_sets.class_map("config.tests.here", options, test, train, "mean_prob")
    images = np.zeros((len(test), 32, 32, 3), np.uint8)
    return config_sets.test_set("here", test, rule, images, messages.append), messages


def open_sources(*entries):
    return [config_sets.open_source("here", entry, 32) for entry in entries]


def test_a_set_chooses_among_all_classes_or_its_own(grey):
    trained, test = open_sources(SHAPES, grey)
    all_classes, _ = answer_set(test, trained)
    assert all_classes.matrix is None
    own_classes, _ = answer_set(test, trained, restrict=True)
    assert own_classes.matrix.shape == (16, 3)
    assert sorted(set(own_classes.columns["label"])) == [0, 1, 2]
    names = np.array(trained.classes)
    np.testing.assert_array_equal(
        names[all_classes.columns["label"]],
        np.array(test.classes)[own_classes.columns["label"]],
    )
    # A set may have `restrict` itself; a config's value takes precedence.
    restricted = dataclasses.replace(test, restrict=True)
    assert answer_set(restricted, trained)[0].matrix is not None
    assert answer_set(restricted, trained, restrict=False)[0].matrix is None


def test_accepted_classes_are_renumbered_as_the_networks_classes(grey):
    trained, test = open_sources(SHAPES, grey)
    accepted = np.where(test.columns["label"] > 0, 2, -1).astype(np.int32)
    columns = {**test.columns, "accepted_0": accepted, "attribute": accepted}
    test = dataclasses.replace(test, columns=columns)
    columns_seen = answer_set(test, trained)[0].columns
    class_id = trained.classes.index(test.classes[2])
    np.testing.assert_array_equal(
        columns_seen["accepted_0"], np.where(test.columns["label"] > 0, class_id, -1)
    )
    np.testing.assert_array_equal(columns_seen["attribute"], accepted)


def test_a_mapping_leaves_out_images_without_an_answer(grey, tmp_path):
    trained, test = open_sources(SHAPES, grey)
    path = tmp_path / "own.csv"
    path.write_text(f"train_class,test_class\n{trained.classes[3]},star\n")
    mapped, (message,) = answer_set(test, trained, mapping=str(path))
    assert "20 of 30 images left out" in message
    assert mapped.matrix.sum() == 1
    assert len(mapped.images) == 10
    path.write_text("train_class,test_class\nstar,stars\n")
    with pytest.raises(ValueError, match="^config.tests.here: .*'stars'; did you mean"):
        answer_set(test, trained, mapping=str(path))


@pytest.mark.slow
def test_rules_of_single_sets_reach_their_decisions(tmp_path, grey):
    """A class mapped against all other classes: by the maximum it wins where it is the
    prediction.
    """
    restricted = {**grey, "restrict": True}
    tests = {"full": grey, "few": restricted}
    for name in shapes.CLASSES:
        path = tmp_path / f"{name}.csv"
        lines = [f"{k},{'heart' if k == name else 'star'}" for k in shapes.CLASSES]
        path.write_text("\n".join(["train_class,test_class", *lines]))
        tests[name] = {**grey, "mapping": str(path), "aggregate": "max_prob"}
    config = smoke_runs.small(seeds=(0,), tests=tests, epochs=1)
    config.run.decisions = True
    assert train.run(config, tmp_path / "run")
    decisions_by_set = {
        name: decision_files.read(path)[0]
        for name in tests
        for path in (tmp_path / "run/decisions" / name).iterdir()
    }
    (answer,) = set(decisions_by_set["full"].prediction)  # The images are all alike.
    for i, name in enumerate(shapes.CLASSES):
        assert set(decisions_by_set[name].prediction) == {0 if i == answer else 2}, name
    assert (
        decisions_by_set["few"].columns["label"].tolist()
        == [0] * 10 + [1] * 10 + [2] * 10
    )
    assert decisions_by_set["few"].prediction.max() < 3
    provenance = json.loads((tmp_path / "run/provenance.json").read_text())
    rules = {
        name: entry["decision"]
        for name, entry in provenance["data"].items()
        if "/" not in name
    }
    assert rules["valid"] == rules["full"] == "argmax over the network's 16 classes"
    assert rules["few"].startswith("argmax of mean_logit over 3 classes, answered by 3")
    assert rules["plus"].startswith("argmax of max_prob over 3 classes, answered by 16")
    # A run cannot resume with another mapping under the same path.
    (tmp_path / "run/done").unlink()
    (tmp_path / "plus.csv").write_text((tmp_path / "star.csv").read_text())
    with pytest.raises(ValueError, match="begun with other data .*plus.answers"):
        train.run(config, tmp_path / "run")


@cases.each(
    ("change", "message"),
    [
        ({"restrict": "yes"}, "config.tests.here.restrict: must be True or False"),
        (
            {"aggregate": "mean"},
            "config.tests.here: data.class_maps: aggregate must be",
        ),
        ({"mapping": "no.csv"}, "config.tests.here: no.csv: a mapping must be a CSV"),
    ],
)
def test_a_rule_that_does_not_fit_is_refused(tmp_path, grey, change, message):
    config = smoke_runs.small(tests={"here": {**grey, **change}})
    with pytest.raises(ValueError, match=f"^{message}"):
        train.run(config, tmp_path / "run")


@cases.each(
    ("data", "extra", "n"),
    [
        ("imagenet_c", False, 75),
        ("imagenet_c", True, 95),
        ("imagenet_c_bar", False, 50),
        ("cifar100_c", False, 75),
    ],
)
def test_corruptions_are_as_many_test_sets(data, extra, n):
    entries = datasets.corrupted(data, "DIR", extra=extra, part="[:2%]")
    assert len(entries) == n and not any("/" in name for name in entries)
    for name, entry in entries.items():
        split = name.replace("-", "/") + "[:2%]"
        assert entry == dict(data=data, split=split, root="DIR")


def test_a_config_tests_on_corruptions(tmp_path):
    text = f"data=cifar10,root={tmp_path},corrupted={tmp_path}"
    c = common.experiment(text, dict(name="erm"))
    assert len(c.tests) == 76
    for name in ("fog", "labels"):
        array = np.zeros((50, 32, 32, 3) if name == "fog" else 50, np.uint8)
        np.save(tmp_path / f"{name}.npy", array)
    open_sources = config_sets.open_test_source(
        "config.tests.fog-3", c.tests["fog-3"], 32
    )
    assert open_sources.name == "cifar10_c/fog/3" and len(open_sources) == 10


def test_sets_in_memory_are_not_read_from_files(grey):
    """The rule holds even without any memory for decoded sets."""
    test_sets = {
        "edge": config_sets.open_test_source(
            "edge", dict(data="shapes", split="edge", n=16), 32
        ),
        "grey": config_sets.open_test_source("grey", grey, 32),
    }
    messages = []
    images = loader.load_into_memory({}, test_sets, messages.append, gib=0, threads=1)
    assert set(images) == {"edge"}
    assert ["read from its files" in line for line in messages] == [False, False, True]
    assert messages[0].startswith(
        "0 of 1 test sets are decoded once and kept, 0 GiB of 0 GiB"
    )
