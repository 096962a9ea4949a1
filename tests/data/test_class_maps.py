"""Label maps: Geirhos' 16 classes equal naive loops, and names match within one space."""

import hashlib
import json
from importlib import resources

import numpy as np
import pytest

from jbias import data
from jbias.data import class_maps, tables
from tests import cases

SIZES = [1, 4, 2, 49, 5, 7, 3, 6, 4, 3, 109, 2, 2, 1, 1, 8]
TABLE = class_maps.geirhos16()
ALL = sorted(wnid for wnids in TABLE.values() for wnid in wnids)


def naive(p, train):
    """Return the decisions by the published rule, one image and one class at a time."""
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


@pytest.mark.parametrize("num_other_classes", [0, 793])
def test_mean_of_probabilities_equals_a_naive_loop(num_other_classes):
    train = sorted(ALL + [f"n9{i:07}" for i in range(num_other_classes)])
    mapped = class_maps.match(train, "wnid", tuple(TABLE), "entry16")
    p = probabilities(len(train))
    got = [mapped.classes[i] for i in (p @ mapped.matrix).argmax(1)]
    assert got == naive(p, train)
    assert len(set(got)) > 10
    assert mapped.relabel.tolist() == list(range(16))
    assert mapped.matrix.dtype == np.float32
    np.testing.assert_allclose(mapped.matrix.sum(0), 1, rtol=1e-5)  # 109 roundings.


def test_mean_and_sum_differ_where_classes_differ_in_size():
    maps = [
        class_maps.match(ALL, "wnid", tuple(TABLE), "entry16", aggregate=rule)
        for rule in ("mean_prob", "sum_prob")
    ]
    p = probabilities(207)
    mean, total = ((p @ mapped.matrix).argmax(1) for mapped in maps)
    dog = maps[0].classes.index("dog")
    assert (total == dog).sum() > (mean == dog).sum()
    np.testing.assert_array_equal(maps[1].matrix, maps[0].matrix > 0)


def test_classes_without_a_member_are_marked():
    train = [w for name in ("bear", "cat", "dog") for w in TABLE[name][:2]]
    mapped = class_maps.match(train, "wnid", tuple(TABLE), "entry16")
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
    mapped = class_maps.match(ALL, "wnid", ("truck", "bear"), "entry16")
    assert [mapped.classes[i] for i in mapped.relabel] == ["truck", "bear"]


@cases.each("space", ["names", "wnid", "entry16"])
def test_same_space_goes_by_name(space):
    mapped = class_maps.match(("a", "b", "c"), space, ("c", "a"), space)
    assert mapped.classes == ("a", "b", "c")
    assert mapped.matrix is None
    assert mapped.relabel.tolist() == [2, 0]
    assert mapped.relabel.dtype == np.int32


@cases.each(
    ("args", "message"),
    [
        (
            (("dog", "horse"), "names", ("dog", "hoarse"), "names"),
            "1 of 2 lack, first 'hoarse'; did you mean 'horse'",
        ),
        (
            (("dog", "cat", "cow"), "names", ("dog",), "entry16"),
            r"be the same.*; training has 3 of 'names' \(dog, cat, ...\), the test 1 of",
        ),
        (
            (tables.wnids(), "wnid", tables.wnids()[:7] + ("n0",), "wnid"),
            r"training has 1,000 of 'wnid' \(n01440764, n01443537, ...\), the test 8",
        ),
        ((("dog",), "entry16", (ALL[0],), "wnid"), "spaces must be the same"),
        ((("n00000001",), "wnid", ("dog",), "entry16"), "none of 1 is"),
        (
            ((ALL[0],), "wnid", ("dogs",), "entry16"),
            "got 'dogs'; did you mean 'dog'.*; training has 1 of 'wnid' .*the test 1",
        ),
    ],
)
def test_classes_that_do_not_match_are_refused(args, message):
    with pytest.raises(ValueError, match=message) as refused:
        class_maps.match(*args)
    assert "\n" not in str(refused.value)


def test_unknown_rule_is_refused():
    with pytest.raises(
        ValueError,
        match="one of mean_prob, sum_prob, max_prob, mean_logit, got 'max_logit'",
    ):
        class_maps.match(ALL, "wnid", ("dog",), "entry16", aggregate="max_logit")


def test_means_of_logits_take_the_same_members():
    mean, logit = (
        class_maps.match(ALL, "wnid", tuple(TABLE), "entry16", aggregate=rule).matrix
        for rule in ("mean_prob", "mean_logit")
    )
    np.testing.assert_array_equal(mean, logit)


@pytest.mark.parametrize("rule", ["sum_prob", "max_prob"])
def test_sums_and_maxima_weigh_members_alike(rule):
    mapped = class_maps.match(ALL, "wnid", tuple(TABLE), "entry16", aggregate=rule)
    assert mapped.aggregate == rule
    assert set(np.unique(mapped.matrix)) == {0, 1}
    assert mapped.matrix.sum(0).tolist() == SIZES


def test_labels_follow_names_in_any_order_of_folders():
    order = np.random.default_rng(0).permutation(1000)
    folder = tuple(np.array(tables.wnids())[order])
    to_folder = class_maps.match(tables.wnids(), "wnid", folder, "wnid")
    np.testing.assert_array_equal(to_folder.relabel, order)
    straight = class_maps.match(tables.wnids(), "wnid", tuple(TABLE), "entry16")
    shuffled = class_maps.match(folder, "wnid", tuple(TABLE), "entry16")
    np.testing.assert_array_equal(shuffled.matrix, straight.matrix[order])


@pytest.mark.parametrize("name", ["imagenet_a", "imagenet_r"])
def test_restricted_to_200_columns_is_the_authors_rule(name):
    """Their code: take the 200 columns in rising order, argmax, labels 0 to 199."""
    subset = tables.subset(name)
    restricted = class_maps.match(tables.wnids(), "wnid", subset, "wnid", restrict=True)
    unrestricted = class_maps.match(
        tables.wnids(), "wnid", subset, "wnid", restrict=False
    )
    columns = tables.positions(subset)
    z = np.random.default_rng(0).normal(size=(50, 1000)).astype(np.float32)
    np.testing.assert_array_equal(z @ restricted.matrix, z[:, columns])
    assert restricted.classes == subset
    assert restricted.relabel.tolist() == list(range(200))
    assert restricted.description == (
        "argmax of mean_logit over 200 classes, answered by 200 of the network's 1,000"
    )
    # Unrestricted: any of the 1000 classes may win.
    assert unrestricted.matrix is None
    assert unrestricted.description == "argmax over the network's 1,000 classes"
    np.testing.assert_array_equal(unrestricted.relabel, columns)


def test_restricted_classes_keep_the_order_of_the_test():
    mapped = class_maps.match("abcd", "names", ("d", "b"), "names", restrict=True)
    assert mapped.classes == ("d", "b")
    assert mapped.relabel.tolist() == [0, 1]
    assert mapped.matrix.tolist() == [[0, 0], [0, 1], [0, 0], [1, 0]]


def test_restriction_takes_columns_of_any_map():
    """A map to Geirhos' 16 keeps only the test's classes; unanswerable classes stay so."""
    train = [w for name in ("bear", "cat", "dog") for w in TABLE[name][:2]]
    test = ("truck", "dog", "bear")
    mapped = class_maps.match(train, "wnid", test, "entry16", restrict=True)
    assert mapped.classes == ("dog", "bear")
    assert mapped.relabel.tolist() == [-1, 0, 1]
    assert mapped.relabel.dtype == np.int32
    assert mapped.matrix.T.tolist() == [[0, 0, 0, 0, 0.5, 0.5], [0.5, 0.5, 0, 0, 0, 0]]
    assert mapped.aggregate == "mean_prob"


def test_the_digest_identifies_a_map():
    def digest(*test, **options):
        return class_maps.match(ALL, "wnid", test, "entry16", **options).digest

    assert digest("dog") == digest("dog")
    digests = {
        digest("dog"),
        digest("dog", "cat"),
        digest("dog", aggregate="sum_prob"),
        digest("dog", restrict=True),
    }
    assert len(digests) == 4
    assert class_maps.match("ab", "names", "a", "names").digest is None


def test_table_is_strict_json():
    text = (resources.files("jbias.data") / "tables/geirhos16.json").read_text()
    assert set(json.loads(text)) == {"about", "classes"}


COMPOSED, DECOMPOSED = "caf\u00e9", "cafe\u0301"


@cases.each("train", [(COMPOSED, "dog"), (DECOMPOSED, "dog")])
@cases.each("test", [("dog", COMPOSED), ("dog", DECOMPOSED)])
@cases.each("restrict", [False, True])
def test_accents_that_a_file_system_decomposes_are_the_same_name(
    train, test, restrict, tmp_path
):
    class_map = class_maps.match(train, "names", test, "names", restrict=restrict)
    expected = [train.index("dog"), 1 - train.index("dog")]
    assert [train.index(class_map.classes[i]) for i in class_map.relabel] == expected
    for a, b in ((COMPOSED, DECOMPOSED), (DECOMPOSED, COMPOSED)):
        path = tmp_path / "mapping.csv"
        text = f"train_class,test_class\n{a},{b}\ndog,dog\n"
        path.write_text(text, encoding="utf-8")
        pairs = class_maps.read_mapping(str(path), train, test)
        assert pairs == {name: test[1 - i] for i, name in enumerate(train)}


def test_two_classes_that_differ_in_accents_alone_are_two():
    """If one side has both spellings, names are compared letter by letter."""
    spellings = (COMPOSED, DECOMPOSED)
    assert class_maps.match(
        spellings, "names", spellings[::-1], "names"
    ).relabel.tolist() == [1, 0]
    with pytest.raises(ValueError, match="1 of 2 lack"):
        class_maps.match((COMPOSED, "dog"), "names", spellings, "names")


def test_a_class_is_dropped_by_its_name_in_either_spelling(tree):
    root = tree({f"photo/{DECOMPOSED}": 2, "photo/cat": 2, "photo/dog": 2})
    options = dict(root=str(root), size=8)
    for name in (COMPOSED, DECOMPOSED):
        source = data.load("folder", "photo", drop=name, **options)
        assert source.classes == ("cat", "dog")
