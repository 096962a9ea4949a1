"""The 1000 ImageNet classes match the published checks and lists."""

import hashlib

import numpy as np
import pytest

from jbias.data import class_maps, tables

# The table of published positions: class -> ranges, in the order of the 16 classes.
POSITIONS = """
airplane 404
bear 294-297
bicycle 444 671
bird 8 10-16 18-20 22-24 80-83 87-96 98-100 127-133 135-145
boat 472 554 625 814 914
bottle 440 720 737 898-899 901 907
car 436 511 817
cat 281-286
chair 423 559 765 857
clock 409 530 892
dog 152-191 193-203 205-226 228-241 243-250 252-257 259 261-263 265-268
elephant 385-386
keyboard 508 878
knife 499
oven 766
truck 555 569 656 675 717 734 864 867
"""


def digest(values) -> str:
    return hashlib.sha256(",".join(map(str, values)).encode()).hexdigest()


def published() -> dict[str, list[int]]:
    table = {}
    for line in POSITIONS.strip().splitlines():
        name, *ranges = line.split()
        table[name] = []
        for text in ranges:
            first, _, last = text.partition("-")
            table[name] += range(int(first), int(last or first) + 1)
    return table


def test_the_ids_are_the_published_ones_in_order():
    wnids = tables.wnids()
    assert len(wnids) == len(set(wnids)) == 1000
    assert wnids == tuple(sorted(wnids))
    assert digest(wnids) == (
        "858fd8cc1983d57f3a05012a7aacf30415a430b1efb5bd17284bb3282160c0d5"
    )


def test_ids_have_words():
    """Includes some well-known ids and the positions of a table of 16 classes."""
    words = tables.lemmas()
    assert list(words) == list(tables.wnids()) and all(words.values())
    assert len(set(words.values())) == 998
    known_words = {
        "n01440764": "tench",
        "n02099601": "golden retriever",
        "n15075141": "toilet tissue",
    }
    assert {name: words[name] for name in known_words} == known_words
    names = [words[tables.wnids()[i]] for i in (294, 404, 499, 281)]
    assert names == ["brown bear", "airliner", "cleaver", "tabby"]
    assert tables.readable("n02012849") == "crane (n02012849)"
    assert tables.readable("n03126707") == "crane (n03126707)"
    assert tables.readable("cat") == "cat"


@pytest.mark.parametrize(
    ("name", "total", "expected"),
    [
        (
            "imagenet_a",
            102178,
            "973e8c3e530bf5dbd49999d046e74084ba5184ab98036b42b111d8dcdecf1015",
        ),
        (
            "imagenet_r",
            86135,
            "a1d9a9ace3098120f5db861d97049116efe80683f4e48c65a62f9bd30fc3366a",
        ),
    ],
)
def test_subsets_are_the_published_columns(name, total, expected):
    columns = tables.positions(tables.subset(name)).tolist()
    assert len(columns) == 200
    assert columns == sorted(columns)
    assert sum(columns) == total
    assert digest(columns) == expected


def test_subsets_share_86_classes():
    a, r = (set(tables.subset(name)) for name in ("imagenet_a", "imagenet_r"))
    assert (len(a & r), len(a | r)) == (86, 314)


def test_geirhos16_has_the_published_positions():
    positions = {
        name: tables.positions(members).tolist()
        for name, members in class_maps.geirhos16().items()
    }
    assert positions == published()
    assert (len(positions["bird"]), len(positions["dog"])) == (49, 109)
    joined = [position for members in positions.values() for position in members]
    assert (len(joined), sum(joined)) == (207, 55426)
    assert digest(joined) == (
        "82bd704ae0077a9134f1a618c086168f96a3e2cba18e61308454e8f372437667"
    )


def test_positions_follow_the_published_order():
    wnids = tables.wnids()
    np.testing.assert_array_equal(tables.positions(wnids[::-1]), np.arange(1000)[::-1])
