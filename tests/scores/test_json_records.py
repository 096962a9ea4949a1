"""Tables of scores in JSON are read as pandas writes them, or refused in one line."""

import json

import pytest

from jbias import scores
from tests import cases
from tests.scores.test_headers import runs

LONG = ["method", "dataset", "seed", "acc"]


@cases.each(
    ("name", "is_lines"), [("t.json", False), ("t.jsonl", True), ("t.json", True)]
)
def test_records_are_a_long_table(tmp_path, name, is_lines):
    frame = runs()[LONG].round(3)
    path = tmp_path / name
    frame.to_json(path, orient="records", lines=is_lines)
    tidy = scores.read(path).tidy
    assert tidy["score"].tolist() == frame["acc"].tolist()
    assert tidy["run"].tolist() == [str(seed) for seed in frame["seed"]]
    assert (tidy["algorithm"] == frame["method"]).all()
    assert (tidy["dataset"] == frame["dataset"]).all()


def test_records_in_records_and_fields_that_lack(tmp_path):
    path = tmp_path / "t.jsonl"
    records = [
        {"config": {"method": m, "seed": s}, "dataset": d, "acc": 70 + s}
        for m in ("A", "B")
        for s in (0, 1)
        for d in ("x", "y")
    ]
    del records[0]["acc"]
    path.write_text("\n".join(map(json.dumps, records)) + "\n")
    tidy = scores.read(path).tidy
    assert set(tidy["algorithm"]) == {"A", "B"} and set(tidy["run"]) == {"0", "1"}
    assert tidy["score"].isna().tolist() == [True] + [False] * 7


OTHER_FORMS = {
    "columns": lambda: runs()[LONG].to_json(),
    "split": lambda: runs()[LONG].to_json(orient="split"),
    "results": lambda: json.dumps({"results": {"x": {"acc": 1}}}, indent=1),
    "numbers": lambda: "[1, 2, 3]",
    "nothing": lambda: "[]",
    "cut off": lambda: '[{"method": "A", "acc"',
    "deep": lambda: "[" * 100_000,
    "deep records": lambda: '[{"a": ' + '{"b": ' * 50 + "1" + "}" * 50 + "}, {}]",
}


@cases.each("form", OTHER_FORMS)
@cases.each("name", ["t.json", "t.jsonl"])
def test_other_json_is_refused_in_one_line_with_a_remedy(tmp_path, form, name):
    path = tmp_path / name
    path.write_text(OTHER_FORMS[form]())
    with pytest.raises(
        ValueError, match="; (save a list of records|add some)"
    ) as error:
        scores.read(path)
    assert name in str(error.value) and "\n" not in str(error.value)


@cases.each("fields", ['"acc": 1, "acc": 2', '"m": {"acc": 1}, "m.acc": 2'])
def test_two_fields_of_one_name_are_refused(tmp_path, fields):
    path = tmp_path / "t.jsonl"
    first = '{"method": "A", "dataset": "x", "acc": 1}'
    path.write_text(f'{first}\n{{"method": "B", "dataset": "x", {fields}}}\n')
    with pytest.raises(ValueError, match="every field must be named once, got '.*acc'"):
        scores.read(path)


def test_a_number_too_long_for_a_float_is_no_score(tmp_path):
    path = tmp_path / "t.json"
    path.write_text(
        '[{"method": "A", "dataset": "x", "acc": 1%s}, {"method": "B", "dataset": "x", "acc": 2}]'
        % ("0" * 5000)
    )
    with pytest.raises(ValueError, match="score"):
        scores.read(path)
