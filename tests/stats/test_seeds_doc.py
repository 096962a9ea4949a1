"""The examples of docs/statistics-seeds.md give the results on the page."""

import doctest
import pathlib

ROOT = pathlib.Path(__file__).parents[2]


def test_examples(monkeypatch):
    monkeypatch.chdir(ROOT)
    page = ROOT / "docs" / "statistics-seeds.md"
    result = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert result.attempted > 20
    assert result.failed == 0
