"""Cases of a test: all are run, those that fail are named, each has its own folder."""

import os

import pytest

from tests import cases


def test_all_cases_run_and_those_that_fail_are_named():
    called = []

    @cases.each(("a", "b"), [(1, 2), (3, 3), (5, 6), (7, 7)])
    def grows(a, b):
        called.append(a)
        assert a < b

    with pytest.raises(ExceptionGroup, match="2 of 4 cases failed") as error:
        grows()
    assert called == [1, 3, 5, 7]
    notes = [failure.__notes__ for failure in error.value.exceptions]
    assert notes == [["The case: {'a': 3, 'b': 3}"], ["The case: {'a': 7, 'b': 7}"]]


def test_a_single_failure_is_raised_unchanged():
    @cases.each("error", [ValueError, KeyError])
    def raises_values(error):
        with pytest.raises(ValueError):
            raise error("x")

    with pytest.raises(KeyError, match="x"):
        raises_values()

    @cases.each("value", [0, 1])
    def always_raises(value):
        with pytest.raises(ZeroDivisionError):
            1 / value

    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        always_raises()


def test_a_skipped_case_skips_no_other_case_and_marks_the_test_as_skipped():
    called = []

    @cases.each("value", [0, 1])
    @cases.each("other", [0, 1])
    def odd(value, other):
        if not value and not other:
            pytest.skip("no odd number")
        called.append((value, other))

    with pytest.raises(
        pytest.skip.Exception, match="1 of 2 cases, first: 1 of 2 cases"
    ):
        odd()
    assert called == [(1, 0), (0, 1), (1, 1)] or called == [(0, 1), (1, 0), (1, 1)]

    @cases.each("value", [0, 2])
    def never(value):
        pytest.skip("no odd number")

    with pytest.raises(pytest.skip.Exception, match="2 of 2 cases, first: no odd"):
        never()


@cases.each("value", [1, 2])
def test_a_case_has_its_own_folder_and_patches(value, tmp_path, monkeypatch, capsys):
    assert not list(tmp_path.iterdir()) and "JBIAS_A_CASE" not in os.environ
    assert not capsys.readouterr().out
    (tmp_path / "file").touch()
    monkeypatch.setenv("JBIAS_A_CASE", str(value))
    print(value)


@cases.each("value", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_slow_cases_are_a_separate_test(value, request):
    assert value == 1 + (request.node.get_closest_marker("slow") is not None)
