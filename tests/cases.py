"""Several cases in one test, which is faster than one test per case.

    @cases.each(("classes", "values"), [(2, 3), (5, 7)])
    def test_rows_sum_to_one(classes, values):

has the arguments of `pytest.mark.parametrize`. All cases run, even if some fail; the failure
names the failed cases. If a case is skipped, the test is reported as skipped. Cases that
`pytest.param` marks as slow are a second test; with quick=("sagnet", "padain") that test has
all cases without a value of these names. Every case has its own `tmp_path` and `monkeypatch`,
and `capsys` and `caplog` begin empty; all other fixtures are shared.
"""

import contextlib
import functools
import inspect
import pathlib
import reprlib
from collections.abc import Callable, Iterable

import pytest

PARAM = type(pytest.param())
SHORT = reprlib.Repr()  # Some cases are long or deeply nested.
SHORT.maxstring = SHORT.maxother = 200


def each(
    names: str | tuple[str, ...], values: Iterable, *, quick: tuple[str, ...] = ()
) -> Callable:
    """Return a decorator that calls a test with each of the values."""
    single = isinstance(names, str) and "," not in names
    if isinstance(names, str):
        names = tuple(name.strip() for name in names.split(","))
    fast, slow, names_used = [], [], set()
    for number, value in enumerate(values):
        if not isinstance(value, PARAM):
            value = pytest.param(value) if single else pytest.param(*value)
        assert all(mark.name == "slow" for mark in value.marks)
        case_names = {
            value.id,
            *(_case_id(x, name, number) for x, name in zip(value.values, names)),
        }
        names_used |= case_names
        part = slow if value.marks or quick and not case_names & {*quick} else fast
        part.append(dict(zip(names, value.values, strict=True)))
    assert fast and {*quick} <= names_used, {*quick} - names_used

    def decorate(test: Callable) -> Callable:
        parameters = inspect.signature(test).parameters
        assert set(names) <= set(parameters), (names, test)
        fixture_parameters = [
            parameter for name, parameter in parameters.items() if name not in names
        ]

        @functools.wraps(test)
        def run(**fixtures) -> None:
            _run(test, fast, fixtures)

        @functools.wraps(test)
        def run_part(part: str, **fixtures) -> None:
            _run(test, {"quick": fast, "slow": slow}[part], fixtures)

        run.__signature__ = inspect.Signature(fixture_parameters)
        if not slow:
            return run
        part = inspect.Parameter("part", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        run_part.__signature__ = inspect.Signature([part, *fixture_parameters])
        speeds = ["quick", pytest.param("slow", marks=pytest.mark.slow)]
        return pytest.mark.parametrize("part", speeds)(run_part)

    return decorate


def _case_id(value: object, name: str, number: int) -> str:
    """Return the name of a value in `quick`: the id that pytest would give it."""
    if value is None or isinstance(value, str | int | float | bool):
        return str(value)
    return getattr(value, "__name__", f"{name}{number}")


def _run(test: Callable, cases: list[dict], fixtures: dict) -> None:
    """Run all cases of a test, and raise the errors of those that failed."""
    failed, skipped = [], []
    for number, case in enumerate(cases):
        try:
            with _case_fixtures(fixtures, number) as case_fixtures:
                test(**case_fixtures, **case)
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
    if skipped:  # A partly skipped test has not passed.
        raise pytest.skip.Exception(
            f"{len(skipped)} of {len(cases)} cases, first: {skipped[0]}"
        )


@contextlib.contextmanager
def _case_fixtures(fixtures: dict, number: int):
    """Yield the fixtures of a test for its next case."""
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
