"""The cache of drawn sets: damaged files are drawn again, half-written files are never
used.
"""

import numpy as np
import pytest

from jbias.data.embedded import shapes


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JBIAS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def is_equal(a, b) -> bool:
    return np.array_equal(a.images, b.images) and all(
        np.array_equal(a.columns[k], b.columns[k]) for k in a.columns | b.columns
    )


@pytest.mark.parametrize("keep", [0, 100, 5000, -1])
def test_damaged_cache_files_are_drawn_again(cache, keep):
    first = shapes.make("silhouette", n=32)
    (file,) = cache.iterdir()
    content = file.read_bytes()
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    file.write_bytes(flipped if keep < 0 else content[:keep])
    with pytest.warns(UserWarning, match="damaged .* made anew") as caught:
        again = shapes.make("silhouette", n=32)
    assert len(caught) == 1 and "\n" not in str(caught[0].message)
    assert is_equal(first, again)
    assert is_equal(first, shapes.make("silhouette", n=32))  # Mended: no warning.
    assert [path.name for path in cache.iterdir()] == [file.name]


def test_a_cache_file_of_other_arguments_is_rejected(cache):
    shapes.make("silhouette", n=32, seed=1)
    (other_file,) = cache.iterdir()
    expected = shapes.make("silhouette", n=32)
    (own_file,) = set(cache.iterdir()) - {other_file}
    own_file.write_bytes(other_file.read_bytes())
    with pytest.warns(UserWarning, match="damaged"):
        assert is_equal(shapes.make("silhouette", n=32), expected)


def test_a_broken_write_leaves_nothing(cache, monkeypatch):
    def broken(file, **arrays):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", broken)
    with pytest.warns(UserWarning, match="not cached .*disk full"):
        assert len(shapes.make("edge", n=32)) == 32
    assert list(cache.iterdir()) == []
