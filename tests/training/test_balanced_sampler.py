"""Batches with equal shares of groups: counts, orders and errors."""

import pickle

import numpy as np
import pytest
import scipy.stats
from PIL import Image

from jbias import config as jc
from jbias.training import samplers
from tests import cases, smoke_runs

COUNTS = (40, 3, 9, 1, 27)
GROUPS = np.random.default_rng(0).permutation(np.repeat([0, 2, 3, 5, 9], COUNTS))


def make_order(batch, groups=GROUPS):
    return samplers.BalancedSampler(groups, batch)


@cases.each("batch", [5, 20, 3, 12, 17, 1])
def test_every_batch_has_equal_shares_or_one_more(batch):
    """After as many batches as groups, all groups have had equally many examples."""
    order, total = make_order(batch), np.zeros(10, int)
    for step in range(25):
        index = order.index(3, step)
        assert index.shape == (batch,) and index.dtype == np.int32
        counts = np.bincount(GROUPS[index], minlength=10)
        total += counts
        group_counts = counts[[0, 2, 3, 5, 9]]
        assert set(group_counts) <= {batch // 5, batch // 5 + (batch % 5 > 0)}
        assert counts.sum() == group_counts.sum()
        if (step + 1) % 5 == 0:
            assert set(total[[0, 2, 3, 5, 9]]) == {(step + 1) * batch // 5}
    assert order.steps_per_epoch == len(GROUPS) // batch


@pytest.mark.parametrize("batch", [5, 12])
def test_examples_of_a_group_repeat_only_after_all_of_them(batch):
    order = make_order(batch)
    index = np.concatenate([order.index(1, step) for step in range(60)])
    for group, size in zip((0, 2, 3, 5, 9), COUNTS):
        of_group = index[GROUPS[index] == group]
        for start in range(0, len(of_group) - size + 1, size):
            assert len(set(of_group[start : start + size])) == size
    of_group_3 = index[GROUPS[index] == 3]
    passes = {tuple(of_group_3[i * 9 : i * 9 + 9].tolist()) for i in range(6)}
    assert len(passes) == 6


def test_with_equal_shares_each_period_has_one_example_per_group():
    order = make_order(20)
    assert order.period == 5 and make_order(12).period == 1
    for step in range(4):
        periods = GROUPS[order.index(0, step)].reshape(4, 5)
        assert (np.sort(periods) == [0, 2, 3, 5, 9]).all()
    assert len({tuple(period) for period in periods}) > 1


def test_a_batch_depends_only_on_seed_step_and_stream():
    order = pickle.loads(pickle.dumps(make_order(12)))
    first, _, again = (order.index(4, step) for step in (7, 0, 7))
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first, make_order(12).index(4, 7))
    assert (first != make_order(12).index(5, 7)).any()
    other_stream = samplers.BalancedSampler(GROUPS, 12, "order/1")
    assert (first != other_stream.index(4, 7)).any()


def test_all_examples_of_a_group_and_all_positions_are_equally_likely():
    order, places = make_order(4), np.zeros((5, 4), int)
    firsts = np.zeros(9, int)
    (nine,) = np.flatnonzero(GROUPS == 3)[None]
    for seed in range(600):
        index = order.index(seed, 0)
        for place, group in enumerate(np.searchsorted([0, 2, 3, 5, 9], GROUPS[index])):
            places[group, place] += 1
        of_group_3 = index[GROUPS[index] == 3]
        firsts[np.searchsorted(nine, of_group_3)] += 1
    assert scipy.stats.chisquare(places.ravel()).pvalue > 1e-3
    assert scipy.stats.chisquare(firsts).pvalue > 1e-3


def test_impossible_batches_are_refused():
    with pytest.raises(ValueError, match="must be 1 to 80"):
        make_order(81)


def config(**train):
    c = jc.to_dict(smoke_runs.small())
    c["train"].update(n=256, correlation=0.8, **train)
    return c


@cases.each(("by", "count"), [("class", 16), ("attribute", 16), ("group", None)])
def test_config_train_balance_names_the_columns_of_groups(by, count):
    stage = smoke_runs.stage(config(balance=by))
    rows = stage.feed.shared(0)["train"]
    label, attribute = (np.asarray(rows[k]) for k in ("label", "attribute"))
    group = {"class": label, "attribute": attribute}.get(by, label * 16 + attribute)
    assert len(stage.order.members_by_group) == len(set(group)) and count in (None, 16)
    for step in range(3):
        counts = np.bincount(group[stage.feed.batch(7, step)["train"]])
        least = 32 // len(set(group))
        assert set(counts[counts > 0]) <= {least, least + 1} or not least


def test_the_first_stage_has_the_stream_order():
    order = smoke_runs.stage(config(balance="group")).order
    assert order.stream == "order"
    assert (order.index(0, 0) != order.index(0, 1)).any()


@pytest.mark.slow
@cases.each(
    ("train", "message"),
    [
        (
            {"balance": "hair"},
            r"^config.train.balance: must name columns .* got 'hair'",
        ),
        (
            {"balance": "group", "batch": 512},
            "^config.train.batch: must be 1 to 256, the training examples, got 512",
        ),
        (
            {"balance": "group", "shares": [1.0]},
            "^config.train.balance: cannot be combined with shares",
        ),
        (
            {"balance": "group", "other": {"data": "fractals", "balance": "class"}},
            "^config.train.other.balance: labels of a second set are not used",
        ),
        (
            {"balance": "group", "other": {"data": "shapes", "pair": "class"}},
            "neither shares nor balance",
        ),
    ],
)
def test_wrong_options_of_balance_are_refused(train, message):
    if "other" in train:
        train["other"] |= {"split": "train", "n": 64}
    with pytest.raises(ValueError, match=message):
        smoke_runs.stage(config(**train))


def test_streamed_rows_are_balanced_and_windows_refused(tmp_path):
    for name, count in (("cat", 3), ("dog", 13)):
        (tmp_path / "photo" / name).mkdir(parents=True)
        for i in range(count):
            image = np.full((40, 40, 3), 10 * i, np.uint8)
            Image.fromarray(image).save(tmp_path / "photo" / name / f"{i}.png")
    c = jc.to_dict(smoke_runs.small())
    c["train"] = dict(
        data="folder", split="photo", root=str(tmp_path), batch=6, balance="class"
    )
    stage = smoke_runs.stage({**c, "train": {**c["train"], "crop": "host"}})
    rows = [stage.feed.batch(0, step)["train"] for step in range(2)]
    stage.feed.close()
    assert [np.bincount(batch["label"]).tolist() for batch in rows] == [[3, 3]] * 2
    dogs = np.concatenate([batch["index"][batch["label"] == 1] for batch in rows])
    assert len(set(dogs.tolist())) == 6
    with pytest.raises(
        ValueError, match="balance: cannot be combined with crop='device'"
    ):
        smoke_runs.stage({**c, "train": {**c["train"], "crop": "device"}})
