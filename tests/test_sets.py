"""Training on several sources, with and without shares, and beside a second stream."""

import cv2
import numpy as np
import pytest

from jbias import sets, train
from tests import runs

SHAPES = dict(data="shapes", split="train", n=32)


@pytest.fixture(scope="module")
def grey(tmp_path_factory):
    """A folder of grey images, ten of each of some classes of the embedded set."""
    root = tmp_path_factory.mktemp("grey")
    for name in ("star", "heart", "plus"):
        (root / "train" / name).mkdir(parents=True)
        for i in range(10):
            image = np.full((32, 32, 3), 128, np.uint8)
            assert cv2.imwrite(str(root / "train" / name / f"{i}.png"), image)
    return dict(data="folder", root=str(root), split="train")


def test_sources_are_matched_by_the_names_of_their_classes(grey):
    opened = sets.train_set("config.train", {**SHAPES, "also": (grey,)}, 32)
    columns = sets.columns(opened.sources)
    assert columns["domain"].tolist() == [0] * 32 + [1] * 30
    names = opened.sources[0].classes
    assert {names[i] for i in columns["label"][32:]} == {"star", "heart", "plus"}
    assert set(columns) == {"label", "domain"}, "what one source lacks is left out"


def test_a_class_that_the_first_lacks_is_refused(grey):
    options = {**grey, "also": (SHAPES,)}
    with pytest.raises(ValueError, match=r"^config.train.also\[0\]: .*must have every"):
        sets.train_set("config.train", options, 32)


def test_halves_come_from_their_own_files(grey):
    """Clean and augmented halves differ in their pixels, at every step."""
    config = runs.small().to_dict()
    config["train"].update(also=(grey,), shares=(0.5, 0.5), batch=8)
    config["inputs"] = ()
    stage = runs.stage(config)
    images, domains = (np.asarray(stage.data["train"][k]) for k in ("image", "domain"))
    for step in range(4):
        index = stage.index(0, step)["train"]
        assert domains[index].tolist() == [0, 1] * 4
        assert (images[index][1::2] == 128).all()
        assert (images[index][::2].std((1, 2, 3)) > 5).all()
    assert stage.order.steps_per_epoch == 128 // 4


def test_a_union_is_shuffled_as_one(grey):
    config = runs.small().to_dict()
    config["train"].update(also=(grey,), batch=79)
    stage = runs.stage(config)
    assert stage.order.steps_per_epoch == 2
    seen = np.concatenate([stage.index(0, step)["train"] for step in (0, 1)])
    assert sorted(seen) == list(range(158))


def test_a_second_stream_has_an_order_and_transforms_of_its_own(grey):
    config = runs.small().to_dict()
    other = dict(SHAPES, split="valid", inputs=(dict(name="flip", p=1.0),))
    config["train"].update(other=other)
    stage = runs.stage(config)
    assert set(stage.data) == {"train", "other"}
    first, second = (stage.index(0, step)["other"] for step in (0, 1))
    assert first.shape == (32,) and not np.array_equal(first, second)
    assert not np.array_equal(first, stage.index(0, 0)["train"])


@pytest.mark.parametrize(
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
def test_what_does_not_fit_is_refused(tmp_path, change, message):
    config = runs.small()
    with config.unlocked():
        config.train.update(change)
    with pytest.raises(ValueError, match=message):
        train.run(config, tmp_path / "run")


def test_a_set_that_is_trained_on_is_not_tested_on(tmp_path, grey):
    config = runs.small()
    with config.unlocked():
        config.train.also = ({**config.tests.edge.to_dict(), "split": "edge"},)
    with pytest.raises(ValueError, match="edge is the training set"):
        train.run(config, tmp_path / "run")
