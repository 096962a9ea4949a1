"""The benchmark of the input pipeline times every route and compares crops to Pillow."""

import numpy as np
import pytest
from PIL import Image

from benchmarks import input as benchmark


@pytest.fixture
def items(tmp_path):
    rng = np.random.default_rng(0)
    for i in range(3):
        small = rng.integers(0, 256, (6, 8, 3), np.uint8)
        image = Image.fromarray(small).resize((80, 60), Image.Resampling.BICUBIC)
        image.save(tmp_path / f"{i}.JPEG")
    return benchmark.items(tmp_path)


def test_times_all_routes_and_compares_them_to_pillow(items, monkeypatch):
    monkeypatch.setattr(benchmark.importlib.util, "find_spec", lambda name: None)
    results = benchmark.host(items, 32, rounds=2)
    for name, result in results.items():
        assert result["images_per_second"] > 0 and len(result["seconds"]) == 2, name
    assert results[benchmark.PILLOW]["of_pillow"] == 1
    assert results[benchmark.PILLOW]["error"]["max"] == 0
    assert results["jbias.data.decoding.cropped, simplejpeg"]["error"]["max"] <= 1
    assert results[benchmark.LIMIT]["error"] is None


def test_windows_are_the_same_in_every_run(tmp_path, items):
    assert benchmark.items(tmp_path) == items


def test_a_folder_without_images_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="no JPEG files below"):
        benchmark.items(tmp_path)
