"""Many cases of one law in one test, where a test of its own for each costs more.

    @cases.each(("classes", "values"), [(2, 3), (5, 7)])
    def test_rows_sum_to_one(classes, values):

is written as `pytest.mark.parametrize` is, and runs all cases whichever fail: the
failure names each of these. Where one is skipped, the test has not passed: it is skipped.
Cases that `pytest.param` marks as slow are a second test, and with
quick=("sagnet", "padain") all of which no value is, or is called, so. A case has its own
`tmp_path` and `monkeypatch`, and `capsys` and `caplog` begin empty; every other fixture is
shared.
"""

import contextlib
import functools
import inspect
import pathlib
import reprlib
from collections.abc import Callable, Iterable

import pytest

PARAM = type(pytest.param())
SHORT = reprlib.Repr()  # Some cases are long, or nest as deeply as Python can.
SHORT.maxstring = SHORT.maxother = 200


def each(
    names: str | tuple[str, ...], values: Iterable, *, quick: tuple[str, ...] = ()
) -> Callable:
    """A decorator that calls a test with each of the values."""
    single = isinstance(names, str) and "," not in names
    if isinstance(names, str):
        names = tuple(name.strip() for name in names.split(","))
    fast, slow, names_used = [], [], set()
    for number, value in enumerate(values):
        if not isinstance(value, PARAM):
            value = pytest.param(value) if single else pytest.param(*value)
        assert all(mark.name == "slow" for mark in value.marks)
        called = {
            value.id,
            *(_called(x, name, number) for x, name in zip(value.values, names)),
        }
        names_used |= called
        part = slow if value.marks or quick and not called & {*quick} else fast
        part.append(dict(zip(names, value.values, strict=True)))
    assert fast and {*quick} <= names_used, {*quick} - names_used

    def decorate(test: Callable) -> Callable:
        parameters = inspect.signature(test).parameters
        assert set(names) <= set(parameters), (names, test)
        own = [one for name, one in parameters.items() if name not in names]

        @functools.wraps(test)
        def run(**fixtures) -> None:
            _run(test, fast, fixtures)

        @functools.wraps(test)
        def run_part(part: str, **fixtures) -> None:
            _run(test, {"quick": fast, "slow": slow}[part], fixtures)

        run.__signature__ = inspect.Signature(own)
        if not slow:
            return run
        part = inspect.Parameter("part", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        run_part.__signature__ = inspect.Signature([part, *own])
        parts = ["quick", pytest.param("slow", marks=pytest.mark.slow)]
        return pytest.mark.parametrize("part", parts)(run_part)

    return decorate


def _called(value: object, name: str, number: int) -> str:
    """What a value is called in `quick`, as pytest calls it."""
    if value is None or isinstance(value, str | int | float | bool):
        return str(value)
    return getattr(value, "__name__", f"{name}{number}")


def _run(test: Callable, cases: list[dict], fixtures: dict) -> None:
    """Runs all cases of a test, and raises what any of them raised."""
    failed, skipped = [], []
    for number, case in enumerate(cases):
        try:
            with _fresh(fixtures, number) as its_own:
                test(**its_own, **case)
        except pytest.skip.Exception as skip:
            skipped.append(skip)
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001
            error.add_note(f"The case: {SHORT.repr(case)}")
            failed.append(error)
    if len(failed) == 1:
        raise failed[0]
    if failed:
        message = f"{len(failed)} of {len(cases)} cases failed"
        raise BaseExceptionGroup(message, failed)
    if skipped:  # What was skipped in part has not passed.
        raise pytest.skip.Exception(
            f"{len(skipped)} of {len(cases)} cases, first: {skipped[0]}"
        )


@contextlib.contextmanager
def _fresh(fixtures: dict, number: int):
    """The fixtures of a test as its next case has them."""
    fixtures = dict(fixtures)
    for name in fixtures.keys() & {"capsys", "capfd"}:
        fixtures[name].readouterr()
    if "caplog" in fixtures:
        fixtures["caplog"].clear()
    if "tmp_path" in fixtures:
        fixtures["tmp_path"] = pathlib.Path(fixtures["tmp_path"], f"case{number}")
        fixtures["tmp_path"].mkdir()
    with contextlib.ExitStack() as stack:
        if "monkeypatch" in fixtures:
            context = pytest.MonkeyPatch.context()
            fixtures["monkeypatch"] = stack.enter_context(context)
        yield fixtures
