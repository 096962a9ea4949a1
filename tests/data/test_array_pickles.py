"""CIFAR's published pickles are read; a crafted pickle runs nothing and uses no memory or
time.
"""

import pickle
import struct
import time
import tracemalloc

import numpy as np
import pytest

import jbias
from jbias.data.sets import arrays
from tests import cases
from tests.models import hostile

PIXELS = np.arange(2 * 3072, dtype=np.uint8).reshape(2, 3072)


@cases.each("protocol", [0, 1, 2, 3, 4])
@cases.each("order", ["C", "F"])
def test_pickles_are_read_as_by_the_pickle_module(tmp_path, protocol, order):
    batch = {b"data": np.array(PIXELS, order=order), b"labels": [1, 2], b"x": b"y"}
    path = tmp_path / "batch"
    path.write_bytes(pickle.dumps(batch, protocol))
    loaded = arrays.load_pickle(str(path))
    np.testing.assert_array_equal(loaded[b"data"], batch[b"data"])
    assert (loaded[b"labels"], loaded[b"x"]) == ([1, 2], b"y")


def call_pickle(module: str, name: str, *pushed: bytes) -> bytes:
    return f"c{module}\n{name}\n".encode() + b"(" + b"".join(pushed) + b"tR."


PROTO = b"\x80\x02"
HOSTILE = {
    "a command": (PROTO + call_pickle("os", "system", b"U\x02id"), "names os.system"),
    "stacked": (b"\x80\x04\x8c\x02os\x8c\x06system\x93(U\x02idtR.", "names os.system"),
    "an instance": (b"(ios\nsystem\n.", "has INST"),
    "an object": (b"(cos\nsystem\nU\x02ido.", "names os.system"),
    "new": (PROTO + b"cnumpy\nndarray\n)\x81.", "has NEWOBJ"),
    "new with names": (b"\x80\x04cnumpy\nndarray\n)}\x92.", "has NEWOBJ_EX"),
    "an extension": (PROTO + b"\x82\x01.", "has EXT1"),
    "persistent": (PROTO + b"K\x01Q.", "has BINPERSID"),
    "a memo of gigabytes": (PROTO + b"}r\xff\xff\xff\x7f.", "stores more items than"),
    "a long of gigabytes": (PROTO + b"\x8b\xff\xff\xff\x7f.", "ValueError"),
    "text of gigabytes": (PROTO + b"T\xff\xff\xff\x7f.", "ValueError"),
    "an array of terabytes": (
        PROTO
        + call_pickle("numpy", "ndarray", b"\x8a\x06" + struct.pack("<Q", 2**40)[:6]),
        "TypeError",
    ),
    "numbers that are objects": (
        PROTO + call_pickle("numpy", "dtype", b"U\x01O"),
        "of bytes",
    ),
    "deep": (PROTO + b"(" * 10**5 + b".", "Error"),
    "one text, encoded again and again": (
        PROTO
        + (b"](X" + struct.pack("<I", 600_000) + b"a" * 600_000 + b"q\x00")
        + (b"X\x06\x00\x00\x00latin1q\x01c_codecs\nencode\nq\x02")
        + b"h\x02h\x00h\x01\x86R" * 200
        + b"e.",
        "copies more items than it has",
    ),
    "a memo of numbers that collide": (
        b"}" + b"".join(b"p%d\n" % (k * (2**61 - 1)) for k in range(1, 9)) + b".",
        "stores more items than",
    ),
    "an array without numbers": (
        b"}S'data'\ncnumpy.core.multiarray\n_reconstruct\n)Rs.",
        "an array without numbers",
    ),
    "a dtype in place of an array": (
        b"}S'data'\ncnumpy\ndtype\n(S'u1'\ntRs.",
        "it holds _Dtype",
    ),
    "labels in labels": (PROTO + b"}U\x06labels](]es.", "it holds list"),
    "no dict": (PROTO + b"].", "holds no dict but list"),
    "nothing": (b"", "ValueError"),
}


@cases.each("case", list(HOSTILE))
def test_hostile_pickles_are_refused_quickly(tmp_path, case):
    data, match = HOSTILE[case]
    path = tmp_path / "batch"
    path.write_bytes(data)
    began = time.monotonic()
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=match):
            arrays.load_pickle(str(path))
        assert tracemalloc.get_traced_memory()[1] < 2**26
    finally:
        tracemalloc.stop()
    assert time.monotonic() - began < 20


@cases.each(
    ("start", "end", "match"),
    [
        (b"})", b"K\x01s.", "a key that is no text or number"),
        (b"}U\x01a)", b"s.", "nests over 100 deep"),
    ],
)
def test_deep_nesting_does_not_overflow_the_c_stack(start, end, match, tmp_path):
    path = tmp_path / "batch"
    path.write_bytes(PROTO + start + b"\x85" * 200_000 + end)
    with pytest.raises(ValueError, match=match):
        arrays.load_pickle(str(path))


@cases.each("place", ["code", "order", "shape", "data", "encoded", "label"])
def test_lists_that_double_59_times_are_refused_soon(place, tmp_path):
    """No message prints and no check compares a list of 2^59 items in few bytes."""
    lists = hostile.doubled_pickle("list")
    dtype = b"cnumpy\ndtype\n(U\x02u1tR"
    state = {"shape": b"(K\x01K\x03t", "order": dtype, "data": b"U\x03abc"}
    if place in state:
        state[place] = lists
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\ntR(K\x01"
    array += state["shape"] + state["order"] + b"\x89" + state["data"] + b"tb"
    values = {
        "code": b"cnumpy\ndtype\n(" + lists + b"tR",
        "encoded": b"c_codecs\nencode\n(" + lists + lists + b"tR",
        "label": lists,
    }
    content = PROTO + b"}U\x04data" + values.get(place, array) + b"s."
    path = tmp_path / "batch"
    path.write_bytes(content)
    with hostile.ending_within(20), pytest.raises(ValueError) as error:
        arrays.load_pickle(str(path))
    assert len(str(error.value)) < 400


def test_a_crafted_batch_is_refused_as_the_set_is(tmp_path):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    (folder / "test_batch").write_bytes(HOSTILE["an array without numbers"][0])
    (folder / "batches.meta").write_bytes(pickle.dumps({b"label_names": [b"a"]}, 2))
    with pytest.raises(ValueError, match="test_batch: must be of the published"):
        jbias.data.load("cifar10", "test", root=str(tmp_path))


def test_class_names_may_be_no_numbers_that_collide(tmp_path):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    batch = {b"data": PIXELS, b"labels": [0, 1]}
    (folder / "test_batch").write_bytes(pickle.dumps(batch, 2))
    names = [k * (2**61 - 1) for k in range(20_000)]
    (folder / "batches.meta").write_bytes(pickle.dumps({b"label_names": names}, 2))
    began = time.monotonic()
    with pytest.raises(ValueError, match="or over 1,000 of them"):
        jbias.data.load("cifar10", "test", root=str(tmp_path))
    assert time.monotonic() - began < 3


def test_batches_of_python_2_are_read_as_pickle_reads_them(tmp_path):
    """The batch is of protocol 2 with 8-bit text, as in the published archives."""

    def word(text: bytes) -> bytes:
        return b"U" + bytes([len(text)]) + text

    array = (
        b"cnumpy.core.multiarray\n_reconstruct\nq\x01cnumpy\nndarray\nq\x02K\x00\x85"
        + (word(b"b") + b"\x87Rq\x03(K\x01K\x02M\x00\x0c\x86")
        + (b"cnumpy\ndtype\nq\x04" + word(b"u1") + b"K\x00K\x01\x87Rq\x05(K\x03")
        + (word(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89")
        + (b"T" + struct.pack("<I", PIXELS.nbytes) + PIXELS.tobytes() + b"tb")
    )
    data = (
        PROTO + b"}q\x00(" + word(b"data") + array + word(b"labels") + b"](K\x03K\x07e"
    )
    data += word(b"filenames") + b"](" + word(b"caf\xe9.png") + word(b"b.png") + b"eu."
    path = tmp_path / "batch"
    path.write_bytes(data)
    expected = pickle.loads(data, encoding="bytes")
    loaded = arrays.load_pickle(str(path))
    np.testing.assert_array_equal(loaded.pop(b"data"), expected.pop(b"data"))
    np.testing.assert_array_equal(PIXELS, pickle.loads(data, encoding="bytes")[b"data"])
    assert loaded == expected
