"""Label maps: Geirhos' 16 classes against naive loops, and names within one space."""

import hashlib
import json

import numpy as np
import pytest

from jbias.data import labels

SIZES = [1, 4, 2, 49, 5, 7, 3, 6, 4, 3, 109, 2, 2, 1, 1, 8]
TABLE = labels.geirhos16()
ALL = sorted(wnid for wnids in TABLE.values() for wnid in wnids)


def naive(p, train):
    """Decisions by the published rule, one image and one class at a time."""
    decisions = []
    for row in p:
        scores = {}
        for name, wnids in TABLE.items():
            inside = [row[i] for i, wnid in enumerate(train) if wnid in wnids]
            if inside:
                scores[name] = sum(inside) / len(inside)
        decisions.append(max(scores, key=scores.get))
    return decisions


def probabilities(k, n=200, seed=0):
    z = np.random.default_rng(seed).normal(size=(n, k)) * 3
    p = np.exp(z - z.max(1, keepdims=True))
    return (p / p.sum(1, keepdims=True)).astype(np.float32)


def test_table_is_geirhos():
    assert list(TABLE) == sorted(TABLE)
    assert [len(wnids) for wnids in TABLE.values()] == SIZES
    assert len(ALL) == len(set(ALL)) == sum(SIZES) == 207
    assert (TABLE["airplane"], TABLE["knife"]) == (("n02690373",), ("n03041632",))
    # The same ids in the same order as derived from the 1000 ids and the 207 indices
    # that model-vs-human publishes.
    joined = ",".join(",".join(wnids) for wnids in TABLE.values())
    digest = hashlib.sha256(joined.encode()).hexdigest()
    assert digest.startswith("dd030801218ed187")


@pytest.mark.parametrize("others", [0, 793])
def test_mean_of_probabilities_equals_a_naive_loop(others):
    train = sorted(ALL + [f"n9{i:07}" for i in range(others)])
    mapped = labels.match(train, "wnid", tuple(TABLE), "entry16")
    p = probabilities(len(train))
    got = [mapped.classes[i] for i in (p @ mapped.matrix).argmax(1)]
    assert got == naive(p, train)
    assert len(set(got)) > 10
    assert mapped.relabel.tolist() == list(range(16))
    assert mapped.matrix.dtype == np.float32
    np.testing.assert_allclose(mapped.matrix.sum(0), 1, rtol=1e-5)  # 109 roundings.


def test_mean_and_sum_differ_where_classes_differ_in_size():
    maps = [
        labels.match(ALL, "wnid", tuple(TABLE), "entry16", aggregate=rule)
        for rule in ("mean_prob", "sum_prob")
    ]
    p = probabilities(207)
    mean, total = ((p @ mapped.matrix).argmax(1) for mapped in maps)
    dog = maps[0].classes.index("dog")
    assert (total == dog).sum() > (mean == dog).sum()
    np.testing.assert_array_equal(maps[1].matrix, maps[0].matrix > 0)


def test_classes_without_a_member_are_marked():
    train = [w for name in ("bear", "cat", "dog") for w in TABLE[name][:2]]
    mapped = labels.match(train, "wnid", tuple(TABLE), "entry16")
    assert mapped.classes == tuple(TABLE)
    present = [1, 7, 10]
    assert [i for i in range(16) if mapped.relabel[i] >= 0] == present
    assert mapped.relabel[present].tolist() == present
    assert set(np.delete(mapped.relabel, present)) == {-1}
    assert not np.delete(mapped.matrix, present, 1).any()
    np.testing.assert_array_equal(mapped.matrix[:, present].sum(0), 1)
    p = probabilities(len(train))
    got = [mapped.classes[i] for i in (p @ mapped.matrix).argmax(1)]
    assert got == naive(p, train)


def test_a_test_set_of_some_of_the_16_in_any_order():
    mapped = labels.match(ALL, "wnid", ("truck", "bear"), "entry16")
    assert [mapped.classes[i] for i in mapped.relabel] == ["truck", "bear"]


@pytest.mark.parametrize("space", ["names", "wnid", "entry16"])
def test_same_space_goes_by_name(space):
    mapped = labels.match(("a", "b", "c"), space, ("c", "a"), space)
    assert mapped.classes == ("a", "b", "c")
    assert mapped.matrix is None
    assert mapped.relabel.tolist() == [2, 0]
    assert mapped.relabel.dtype == np.int32


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            (("dog", "horse"), "names", ("dog", "hoarse"), "names"),
            "1 of 2 lack, first 'hoarse'; did you mean 'horse'",
        ),
        ((("dog",), "names", ("dog",), "entry16"), "spaces must be the same"),
        ((("dog",), "entry16", (ALL[0],), "wnid"), "spaces must be the same"),
        ((("n00000001",), "wnid", ("dog",), "entry16"), "none of 1 is"),
        (((ALL[0],), "wnid", ("dogs",), "entry16"), "got 'dogs'; did you mean 'dog'"),
    ],
)
def test_what_does_not_fit_is_refused(args, message):
    with pytest.raises(ValueError, match=message):
        labels.match(*args)


def test_unknown_rule_is_refused():
    with pytest.raises(
        ValueError, match="one of mean_prob, sum_prob, mean_logit, got 'max_logit'"
    ):
        labels.match(ALL, "wnid", ("dog",), "entry16", aggregate="max_logit")


def test_means_of_logits_take_the_same_members():
    mean, logit = (
        labels.match(ALL, "wnid", tuple(TABLE), "entry16", aggregate=rule).matrix
        for rule in ("mean_prob", "mean_logit")
    )
    np.testing.assert_array_equal(mean, logit)


def test_table_is_strict_json():
    text = (labels.resources.files("jbias.data") / "tables/geirhos16.json").read_text()
    assert set(json.loads(text)) == {"about", "classes"}
