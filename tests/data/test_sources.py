"""Every form of storage gives the same bytes to pickled copies and to many threads."""

import errno
import os
import pickle
import sys
import threading
from concurrent import futures

import numpy as np
import pytest

from jbias import data
from jbias.data.forms import stores
from tests import cases, forms

THREADS = 8


@pytest.fixture(params=["folder", *forms.FORMS])
def root(request, tree, tmp_path):
    """Forty images in three classes."""
    root = tree({"train/dog": 17, "train/cat": 11, "train/ant": 12})
    if request.param != "folder":
        paths = sorted((root / "train").rglob("*.png"))
        rows = [
            (str(p.relative_to(root / "train")), p.read_bytes(), i % 3)
            for i, p in enumerate(paths)
        ]
        root = forms.written(request.param, rows, tmp_path)
    return str(root)


@pytest.fixture
def source(root):
    return data.load("folder", "train", root=root, size=8)


def read(source, order):
    """{index: (encoded bytes, pixels)}, read in an order."""
    found = {}
    for i in order:
        opened = source.store.open(i)
        if isinstance(opened, str):
            with open(opened, "rb") as file:
                found[i] = file.read(), source.image(i).tobytes()
        else:
            found[i] = opened.read(), source.image(i).tobytes()
    return found


def test_pickled_copies_read_the_same(source):
    fresh = pickle.dumps(source)
    expected = read(source, range(40))
    used = pickle.dumps(source)  # With what is open after reading.
    for held in (fresh, used, pickle.dumps(pickle.loads(used))):
        again = pickle.loads(held)
        assert read(again, range(39, -1, -1)) == expected
        assert again.files == source.files
        some = np.array([31, 2, 17])
        taken = [again.store.take(some).where(i) for i in range(3)]
        assert taken == [source.store.where(i) for i in some]


def test_is_shown_in_one_line(source):
    of = "40 images of 3 classes, 8 x 8 pixels"
    assert repr(source) == f"<{source.name}: {of}>"


@pytest.fixture
def hasty():
    """Threads take turns after a microsecond, so that races show."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.quick("folder", "tar", "records")
def test_threads_read_in_any_order_what_one_reads(source, hasty):
    expected = read(pickle.loads(pickle.dumps(source)), range(40))
    start = threading.Barrier(THREADS)  # All open the store at once.

    def shuffled(seed):
        rng = np.random.default_rng(seed)
        start.wait()
        return [read(source, rng.permutation(40).tolist()) for _ in range(5)]

    with futures.ThreadPoolExecutor(THREADS) as pool:
        for found in pool.map(shuffled, range(THREADS)):
            assert all(one == expected for one in found)


def test_keys_differ_and_do_not_depend_on_the_place(source, root):
    keys = [source.store.key(i) for i in range(40)]
    assert len({*keys}) == 40
    assert not any(root in key for key in keys)
    assert len({source.store.where(i) for i in range(40)}) == 40
    part = data.load("folder", "train[:50%]", root=root, size=8)
    assert {part.store.key(i) for i in range(len(part))} < {*keys}


def _failing(*errors):
    """A store of one image, whose first reads fail so; and what was asked for."""
    waiting, asked = list(errors), []

    def read(path, group):
        asked.append((path, group))
        if waiting:
            raise waiting.pop(0)
        return [b"image"]

    zero = np.zeros(1, np.int32)
    return stores.ParquetStore(
        ("a.parquet",), ("a",), zero, zero, zero, read=read
    ), asked


def _wrapped(error: Exception) -> ValueError:
    try:
        raise ValueError("must be a Parquet file") from error
    except ValueError as wrapped:
        return wrapped


@cases.each("number", [errno.EIO, errno.EMFILE, errno.ESTALE])
@cases.each("wrap", [_wrapped, lambda error: error])
def test_what_may_pass_is_read_again(number, wrap):
    store, asked = _failing(wrap(OSError(number, os.strerror(number))))
    with pytest.raises((OSError, ValueError)):
        store.open(0)
    assert store.open(0).read() == b"image"
    assert len(asked) == 2


@pytest.mark.parametrize("error", [OSError("damaged page"), ValueError("too large")])
def test_damage_is_found_once_for_a_group(error):
    store, asked = _failing(error)
    for _ in range(3):
        with pytest.raises(type(error), match=str(error)):
            store.open(0)
    assert len(asked) == 1
