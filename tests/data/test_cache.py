"""The cache of drawn sets: what is damaged is made anew, what is half is not seen."""

import numpy as np
import pytest

from jbias.data.embedded import shapes


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JBIAS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def same(a, b) -> bool:
    return np.array_equal(a.images, b.images) and all(
        np.array_equal(a.columns[k], b.columns[k]) for k in a.columns | b.columns
    )


@pytest.mark.parametrize("keep", [0, 100, 5000, -1])
def test_a_damaged_cache_is_made_anew(cache, keep):
    first = shapes.make("silhouette", n=32)
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    file.write_bytes(flipped if keep < 0 else whole[:keep])
    with pytest.warns(UserWarning, match="damaged .* made anew") as caught:
        again = shapes.make("silhouette", n=32)
    assert len(caught) == 1 and "\n" not in str(caught[0].message)
    assert same(first, again)
    assert same(first, shapes.make("silhouette", n=32))  # Mended: no warning.
    assert [path.name for path in cache.iterdir()] == [file.name]


def test_a_cache_file_of_other_arguments_is_not_believed(cache):
    shapes.make("silhouette", n=32, seed=1)
    (theirs,) = cache.iterdir()
    expected = shapes.make("silhouette", n=32)
    (ours,) = set(cache.iterdir()) - {theirs}
    ours.write_bytes(theirs.read_bytes())
    with pytest.warns(UserWarning, match="damaged"):
        assert same(shapes.make("silhouette", n=32), expected)


def test_a_broken_write_leaves_nothing(cache, monkeypatch):
    def broken(file, **arrays):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", broken)
    with pytest.warns(UserWarning, match="not cached .*disk full"):
        assert len(shapes.make("edge", n=32)) == 32
    assert list(cache.iterdir()) == []
