"""Every storage format gives the same bytes to pickled copies and to many threads."""

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
    """Folder, archive or shards with forty images in three classes."""
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
    """Read images in an order, and return {index: (encoded bytes, pixels)}."""
    contents = {}
    for i in order:
        file_or_path = source.store.open(i)
        if isinstance(file_or_path, str):
            with open(file_or_path, "rb") as file:
                contents[i] = file.read(), source.image(i).tobytes()
        else:
            contents[i] = file_or_path.read(), source.image(i).tobytes()
    return contents


def test_pickled_copies_read_the_same(source):
    fresh = pickle.dumps(source)
    expected = read(source, range(40))
    used = pickle.dumps(source)  # With what is open after reading.
    for pickled in (fresh, used, pickle.dumps(pickle.loads(used))):
        again = pickle.loads(pickled)
        assert read(again, range(39, -1, -1)) == expected
        assert again.files == source.files
        indices = np.array([31, 2, 17])
        places = [again.store.take(indices).where(i) for i in range(3)]
        assert places == [source.store.where(i) for i in indices]


def test_repr_is_one_line(source):
    assert repr(source) == f"<{source.name}: 40 images of 3 classes, 8 x 8 pixels>"


@pytest.fixture
def fast_thread_switching():
    """Switch threads every microsecond, so that races show."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.quick("folder", "tar", "records")
def test_threads_read_the_same_as_one_thread_in_any_order(
    source, fast_thread_switching
):
    expected = read(pickle.loads(pickle.dumps(source)), range(40))
    start = threading.Barrier(THREADS)  # All open the store at once.

    def shuffled(seed):
        rng = np.random.default_rng(seed)
        start.wait()
        return [read(source, rng.permutation(40).tolist()) for _ in range(5)]

    with futures.ThreadPoolExecutor(THREADS) as pool:
        for passes in pool.map(shuffled, range(THREADS)):
            assert all(contents == expected for contents in passes)


def test_keys_differ_and_do_not_depend_on_the_root(source, root):
    keys = [source.store.key(i) for i in range(40)]
    assert len({*keys}) == 40
    assert not any(root in key for key in keys)
    assert len({source.store.where(i) for i in range(40)}) == 40
    part = data.load("folder", "train[:50%]", root=root, size=8)
    assert {part.store.key(i) for i in range(len(part))} < {*keys}


def _failing_store(*errors):
    """Return a store of one image whose first reads raise `errors`, and the list of its
    reads.
    """
    pending_errors, reads = list(errors), []

    def read(path, group):
        reads.append((path, group))
        if pending_errors:
            raise pending_errors.pop(0)
        return [b"image"]

    zero = np.zeros(1, np.int32)
    return stores.ParquetStore(
        ("a.parquet",), ("a",), zero, zero, zero, read=read
    ), reads


def _wrapped(error: Exception) -> ValueError:
    try:
        raise ValueError("must be a Parquet file") from error
    except ValueError as wrapped:
        return wrapped


@cases.each("number", [errno.EIO, errno.EMFILE, errno.ESTALE])
@cases.each("wrap", [_wrapped, lambda error: error])
def test_temporary_errors_are_retried(number, wrap):
    store, reads = _failing_store(wrap(OSError(number, os.strerror(number))))
    with pytest.raises((OSError, ValueError)):
        store.open(0)
    assert store.open(0).read() == b"image"
    assert len(reads) == 2


@pytest.mark.parametrize("error", [OSError("damaged page"), ValueError("too large")])
def test_damage_is_detected_once_per_group(error):
    store, reads = _failing_store(error)
    for _ in range(3):
        with pytest.raises(type(error), match=str(error)):
            store.open(0)
    assert len(reads) == 1
