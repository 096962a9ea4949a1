"""Images in memory: order, progress, and one error that reports all damage."""

import dataclasses

import numpy as np
import pytest

from jbias import data
from jbias.data import loader, sources
from tests import cases


def make_source(tree, n=150):
    return data.load("folder", "s", root=str(tree({"s/a": n, "s/b": 3})), size=8)


@pytest.mark.parametrize("workers", [1, 4])
def test_decodes_in_order(tree, workers):
    source = make_source(tree)
    images = loader.decode_all(source, workers=workers)
    assert images.dtype == np.uint8
    assert images.nbytes == loader.nbytes(source) == 153 * 8 * 8 * 3
    for i in (0, 63, 64, 149, 152):
        np.testing.assert_array_equal(images[i], source[i]["image"])


def test_progress_is_reported_to_the_end(tree):
    progress = []
    loader.decode_all(
        make_source(tree), workers=2, progress=lambda *a: progress.append(a)
    )
    assert progress == [(64, 153), (128, 153), (153, 153)]


def test_finds_all_damage_and_names_the_first(tree, truncate):
    source = make_source(tree)
    root = tree({})
    truncate(root / "s/a/007.png", 0.5)
    (root / "s/a/100.png").write_bytes(b"")
    (root / "s/b/001.png").unlink()
    with pytest.raises(ValueError) as error:
        loader.decode_all(source, workers=3)
    message = str(error.value)
    assert "3 of 153" in message
    assert f"first {root / 's/a/007.png'}: " in message
    assert "replace or remove them" in message and "skip=damaged.json" in message
    assert "\n" not in message


def test_arrays_are_returned_without_a_copy(tree):
    source, progress = array_source(), []
    images = loader.decode_all(
        source, workers=1, progress=lambda *a: progress.append(a)
    )
    assert images is source.images
    assert progress == [(2, 2)]
    assert loader.nbytes(source) == images.nbytes


def test_decoding_stops_when_requested(tree):
    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        loader.decode_all(make_source(tree), workers=1, progress=stop)


def test_zero_workers_are_refused(tree):
    with pytest.raises(ValueError, match="workers must be a whole number >= 1, got 0"):
        loader.decode_all(make_source(tree, 1), workers=0)


def array_source(**changes):
    values = {
        "images": np.arange(2 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 4, 4, 3),
        "name": "toy/test",
        "classes": ("a", "b"),
        "space": "names",
        "columns": {"label": np.array([1, 0], np.int32)},
        "measures": ("accuracy",),
        "preprocessing": "none",
        "fingerprint": "0",
        "cite": "",
    }
    return sources.ArraySource(**(values | changes))


def test_array_source_elements():
    element = array_source()[0]
    assert element["label"] == 1
    assert element["image"].shape == (4, 4, 3)
    assert len(list(array_source())) == 2  # IndexError ends an iteration.
    with pytest.raises(dataclasses.FrozenInstanceError):
        array_source().name = "other"


@cases.each(
    ("changes", "message"),
    [
        ({"images": np.zeros((2, 4, 4, 3))}, "uint8 .n, h, w, 3., got float64"),
        ({"images": np.zeros((2, 4, 4, 1), np.uint8)}, "got uint8"),
        ({"space": "words"}, "space must be one of"),
        ({"classes": ("a", "a")}, "class names must differ"),
        ({"columns": {}}, "must have 'label'"),
        ({"columns": {"label": np.array([1, 0])}}, "must be int32 .2,., got int64"),
        ({"columns": {"label": np.array([1], np.int32)}}, "got int32 .1,."),
        ({"columns": {"label": np.array([2, 0], np.int32)}}, "below 2, got 0 to 2"),
    ],
)
def test_an_array_source_refuses_inconsistent_arrays(changes, message):
    with pytest.raises(ValueError, match=message):
        array_source(**changes)


@pytest.mark.parametrize(
    ("sizes", "room", "resident"),
    [
        ({"a": 3, "b": 2}, 5, ["a", "b"]),
        ({"a": 3, "b": 2}, 4, ["a"]),  # In order fills three, the smallest first two.
        (
            {"a": 3, "b": 2, "c": 2},
            4,
            ["b", "c"],
        ),  # In order three, from the smallest four.
        ({"a": 9, "b": 2, "c": 1}, 3, ["b", "c"]),
        ({"b": 2, "a": 2}, 2, ["b"]),  # Alike: the first.
        ({"a": 1}, 0, []),
        ({"a": 1}, -1, []),
        ({}, 4, []),
    ],
)
def test_resident_sets_never_exceed_the_room(sizes, room, resident):
    assert loader.choose_resident(sizes, room) == resident


def test_processes_of_one_machine_share_the_room_for_test_sets(tree):
    """With two processes a set needs half of the room, and training sets reduce the room."""
    source = make_source(tree)
    size = loader.nbytes(source) / 2**30

    def load_test_set(gib, sharing, resident=()):
        messages = []
        images = loader.load_into_memory(
            dict.fromkeys(resident, source),
            {"test": source},
            messages.append,
            gib=gib,
            threads=1,
            sharing=sharing,
        )
        return "test" in images, messages[0]

    assert load_test_set(size, 1)[0] and load_test_set(2 * size, 2)[0]
    assert (
        not load_test_set(1.9 * size, 2)[0]
        and not load_test_set(2 * size, 2, ["train"])[0]
    )
    assert "each process, of which a machine has 2" in load_test_set(2 * size, 2)[1]
    assert load_test_set(size, 1)[1].startswith(
        "1 of 1 test sets are decoded once and kept"
    )
