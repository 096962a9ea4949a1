"""The examples of docs/statistics-seeds.md give what it says."""

import doctest
import pathlib

ROOT = pathlib.Path(__file__).parents[2]


def test_examples(monkeypatch):
    monkeypatch.chdir(ROOT)
    page = ROOT / "docs" / "statistics-seeds.md"
    found = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert found.attempted > 20
    assert found.failed == 0
