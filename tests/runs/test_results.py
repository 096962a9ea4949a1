"""Records: written atomically, read back unchanged, and selected by documented rules."""

import itertools
import json
import math
import threading

import numpy as np
import pandas as pd
import pytest

from jbias.runs import results, selection
from tests import cases


def record(**changes) -> results.Record:
    fields = {
        "run": "erm",
        "algorithm": "ERM",
        "variant": "",
        "model": "resnet18",
        "train_data": "shapes",
        "stage": 0,
        "seed": 0,
        "step": 10,
        "epoch": 1.0,
        "dataset": "edge",
        "condition": "",
        "metric": "accuracy",
        "value": 0.5,
        "count": None if "value" in changes else 8,
        "n": 16,
    }
    return results.Record(**(fields | changes))


def write_run(workdir, records):
    by_step = itertools.groupby(sorted(records, key=lambda r: r.step), lambda r: r.step)
    for step, group in by_step:
        results.write(workdir / "evals" / f"{step}.jsonl", group)


def curve(values, dataset, **changes):
    steps = enumerate(values, start=1)
    return [
        record(dataset=dataset, step=10 * e, epoch=float(e), value=v, **changes)
        for e, v in steps
    ]


@pytest.fixture
def frame(tmp_path):
    """Return records of two seeds; seed 0 is best at epochs 2 and 4."""
    records = [
        *curve([0.1, 0.7, 0.5, 0.7], "valid"),
        *curve([0.1, 0.2, 0.9, 0.4], "edge"),
        *curve([0.1, 0.2, 0.3, 0.6], "valid", seed=1),
        *curve([0.8, 0.6, 0.4, 0.2], "edge", seed=1),
        *curve([9.0, 8.0, 7.0, 6.0], "train", metric="loss"),
    ]
    write_run(tmp_path / "erm", records)
    return results.read(tmp_path / "erm")


def value_of(table, seed, dataset="edge", column="value"):
    rows = table[(table["seed"] == seed) & (table["dataset"] == dataset)]
    assert len(rows) == 1
    return rows[column].item()


def test_records_are_read_back_unchanged(tmp_path):
    records = [
        record(),
        record(metric="shape_bias", value=math.nan, count=0, n=0),
        record(dataset="train", metric="loss", value=2.5, count=None, n=None),
        record(seed=np.int32(3), value=np.float32(0.25), count=np.int64(4)),
    ]
    results.write(tmp_path / "erm" / "evals" / "10.jsonl", records)
    frame = results.read([tmp_path / "erm"])
    assert list(frame.columns) == [*results.Record._fields, "workdir"]
    assert frame["value"].tolist()[2:] == [2.5, 0.25]
    assert math.isnan(frame["value"][1])
    assert frame["count"].isna().tolist() == [False, False, True, False]
    assert frame["seed"].tolist() == [0, 0, 0, 3]
    assert set(frame["workdir"]) == {str(tmp_path / "erm")}


def test_lines_are_strict_json(tmp_path):
    text = results.dumps([record(value=math.nan), record(seed=1, value=math.inf)])
    decoded = [
        json.loads(line, parse_constant=pytest.fail) for line in text.split("\n")[:2]
    ]
    assert [d["value"] for d in decoded] == [None, None]
    assert [r.seed for r in results.loads(text)] == [0, 1]


def test_write_leaves_the_old_file_when_it_fails(tmp_path):
    path = tmp_path / "10.jsonl"
    results.write(path, [record()])
    content = path.read_bytes()
    with pytest.raises(ValueError, match="key must occur once"):
        results.write(path, [record(), record(value=0.1)])
    assert path.read_bytes() == content
    assert [p.name for p in tmp_path.iterdir()] == ["10.jsonl"]


def test_refuses_a_truncated_line_by_file_and_line(tmp_path):
    path = tmp_path / "erm" / "evals" / "10.jsonl"
    results.write(path, [record(), record(seed=1)])
    path.write_text(path.read_text()[:-20])
    with pytest.raises(ValueError, match=r"10\.jsonl:2: .*damaged"):
        results.read(tmp_path / "erm")


@cases.each(
    ("change", "message"),
    [
        ({"value": "high"}, "value must be"),
        ({"seed": 1.5}, "seed must be int"),
        ({"stage": True}, "stage must be int"),
        ({"status": "fine"}, "status must be one of"),
        ({"extra": 1}, "got others: extra"),
    ],
)
def test_malformed_records_are_refused(tmp_path, change, message):
    path = tmp_path / "erm" / "evals" / "10.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(record()._asdict() | change) + "\n")
    with pytest.raises(ValueError, match=rf"10\.jsonl:1: .*{message}"):
        results.read(tmp_path / "erm")


@cases.each("text", ["", "\n", "[1]\n", '{"value": NaN}\n'])
def test_refuses_files_that_hold_no_record(tmp_path, text):
    path = tmp_path / "erm" / "evals" / "10.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(ValueError, match=r"10\.jsonl:1: must"):
        results.read(tmp_path / "erm")


def test_refuses_a_key_in_two_places(tmp_path):
    write_run(tmp_path / "a", [record()])
    write_run(tmp_path / "b", [record(value=0.4)])
    with pytest.raises(ValueError, match=r"b/evals/10\.jsonl:1: .*a/evals/10\.jsonl:1"):
        results.read(tmp_path / "*")


def test_globs_and_paths_find_each_workdir_once(tmp_path):
    write_run(tmp_path / "a", [record()])
    write_run(tmp_path / "b", [record(run="other")])
    (tmp_path / "started").mkdir()
    (tmp_path / "notes.txt").write_text("no run")
    full, empty = results.find_workdirs([f"{tmp_path}/*", tmp_path / "a"])
    assert [p.name for p in full] == ["a", "b"]
    assert [p.name for p in empty] == ["started"]
    assert len(results.read([f"{tmp_path}/*", tmp_path / "a"])) == 2


@cases.each(
    ("name", "problem"),
    [
        ("absent", "no such folder; check the path"),
        ("abs*nt", "no folder matches; check the path"),
        ("started", "must hold evals/.*, got none"),
    ],
)
def test_refuses_workdirs_without_evaluations(tmp_path, name, problem):
    (tmp_path / "started").mkdir()
    with pytest.raises(ValueError, match=rf"{name[:3]}.*: {problem}"):
        results.read(f"{tmp_path}/{name}")


def test_half_written_files_are_not_read(tmp_path):
    write_run(tmp_path / "a", [record()])
    (tmp_path / "a" / "evals" / ".20.jsonl.x.part").write_text('{"run"')
    assert len(results.read(tmp_path / "a")) == 1


def test_files_not_named_by_a_step_come_last(tmp_path):
    write_run(tmp_path / "a", [record(), record(step=9)])
    evals = tmp_path / "a" / "evals"
    (evals / "9.jsonl").rename(evals / "².jsonl")
    assert [*results.read(tmp_path / "a").step] == [10, 9]


def test_best_validation_takes_the_first_maximum(frame):
    table = selection.best_validation(frame)
    assert (value_of(table, 0), value_of(table, 0, column="epoch")) == (0.2, 2.0)
    assert (value_of(table, 1), value_of(table, 1, column="epoch")) == (0.2, 4.0)
    assert "train" not in set(table["dataset"])


def test_best_validation_does_not_depend_on_test_sets(frame):
    changed = frame.copy()
    tests = changed["dataset"] == "edge"
    changed.loc[tests, "value"] = 1 - changed.loc[tests, "value"]
    a, b = selection.best_validation(frame), selection.best_validation(changed)
    pd.testing.assert_series_equal(a["epoch"], b["epoch"])


def test_best_validation_refuses_runs_without_validation(frame):
    with pytest.raises(ValueError, match="run 'erm', seed 0.*select last_n"):
        selection.best_validation(frame[frame["dataset"] != "valid"])


def by_class(curves, seed=0, metric="class_accuracy", **changes):
    """Return validation accuracies per class over the epochs."""
    for name, values in curves.items():
        fields = dict(condition=name, metric=metric, seed=seed, **changes)
        yield from curve(values, "valid", **fields)


def test_worst_class_takes_the_first_best_minimum(frame, tmp_path):
    """Oracle: SubpopBench's ValWorstAccTest, the largest minimum over classes."""
    curves = {"class=0": [0.9, 0.5, 0.2, 0.7], "class=1": [0.2, 0.4, 0.8, 0.4]}
    other = {"class=0": [0.1, 0.1, 0.3, 0.2], "class=1": [0.9, 0.1, 0.3, 0.3]}
    class_records = [*by_class(curves), *by_class(other, seed=1)]
    write_run(tmp_path / "more", [r._replace(run="erm") for r in class_records])
    joined = pd.concat([frame, results.read(tmp_path / "more")], ignore_index=True)
    table = selection.worst_class(joined)
    # Minima 0.2, 0.4, 0.2, 0.4 and 0.1, 0.1, 0.3, 0.2.
    assert (value_of(table, 0), value_of(table, 0, column="epoch")) == (0.2, 2.0)
    assert (value_of(table, 1), value_of(table, 1, column="epoch")) == (0.4, 3.0)
    assert selection.of_classes(table).sum() == 4
    shuffled = joined.sample(frac=1, random_state=0)
    pd.testing.assert_frame_equal(table, selection.worst_class(shuffled))


def test_worst_class_of_one_class_is_best_validation(frame, tmp_path):
    valid = frame[(frame["dataset"] == "valid")]
    one_class = valid.assign(metric="class_accuracy", condition="class=0")
    table = selection.worst_class(pd.concat([frame, one_class], ignore_index=True))
    plain = table[table["metric"] != "class_accuracy"].reset_index(drop=True)
    pd.testing.assert_frame_equal(plain, selection.best_validation(frame))


def test_worst_class_uses_worst_groups_without_class_accuracies(frame, tmp_path):
    groups = by_class({"": [0.1, 0.2, 0.6, 0.3]}, metric="worst_group_accuracy")
    rows = [r._replace(seed=seed) for r in groups for seed in (0, 1)]
    write_run(tmp_path / "more", rows)
    joined = pd.concat([frame, results.read(tmp_path / "more")], ignore_index=True)
    assert value_of(selection.worst_class(joined), 1, column="epoch") == 3.0


def test_worst_class_refuses_runs_without_classes(frame):
    message = (
        r"worst_class: every seed needs class_accuracy or .* seed 0.*valid.measures="
    )
    with pytest.raises(ValueError, match=message):
        selection.worst_class(frame)


def test_last_n_averages(frame):
    table = selection.last_n(frame, 3)
    assert value_of(table, 0) == pytest.approx((0.2 + 0.9 + 0.4) / 3)
    assert value_of(table, 1) == pytest.approx((0.6 + 0.4 + 0.2) / 3)
    assert selection.last_n(frame, 1)["value"].tolist() == (
        selection.at_epoch(frame, 4)["value"].tolist()
    )
    with pytest.raises(ValueError, match="5 evaluations, got 4 of data set 'edge'"):
        selection.last_n(frame, 5)
    with pytest.raises(ValueError, match="at least 1"):
        selection.last_n(frame, 0)


def test_oracle_is_the_maximum_of_each_data_set(frame):
    table = selection.oracle(frame)
    assert (value_of(table, 0), value_of(table, 0, column="epoch")) == (0.9, 3.0)
    assert value_of(table, 1) == 0.8
    assert value_of(selection.oracle(frame, larger_is_better=False), 1) == 0.2


def test_oracle_is_one_model_of_each_data_set(tmp_path):
    easy, hard = [0.9, 0.8, 0.1], [0.1, 0.4, 0.5]  # Their mean is largest at epoch 2.
    records = [
        *curve(easy, "corrupted", condition="easy"),
        *curve(hard, "corrupted", condition="hard"),
        *curve([0.3, 0.2, 0.9], "corrupted", metric="loss", condition="easy"),
        *curve([0.5, 0.6, 0.4], "edge"),
        *curve([7.0, 9.0, 8.0], "edge", metric="loss"),
        *curve([0.1, 0.2, 0.9], "edge", condition="thick"),
        *curve([0.1, 0.2, 0.3], "loss alone", metric="loss"),
        # Step 10 has one half only: its mean is not comparable.
        record(dataset="parts", condition="easy", value=1.0),
        *(record(dataset="parts", condition=c, step=20, epoch=2.0) for c in "ab"),
    ]
    write_run(tmp_path / "erm", records)
    frame = results.read(tmp_path / "erm")

    def epochs(**options):
        selected = selection.oracle(frame, **options)
        by_dataset = selected.groupby("dataset")["epoch"].unique()
        return {name: epochs.tolist() for name, epochs in by_dataset.items()}

    assert epochs() == {"corrupted": [2.0], "edge": [2.0], "parts": [2.0]}
    lowest = {"corrupted": [2.0], "edge": [1.0], "loss alone": [1.0]}
    assert epochs(metric="loss", larger_is_better=False) == lowest
    table = selection.oracle(frame).query("dataset == 'edge' and condition == ''")
    assert dict(zip(table["metric"], table["value"], strict=True)) == {
        "accuracy": 0.6,
        "loss": 9.0,
    }


def test_no_rule_beats_the_oracle(frame):
    best = selection.oracle(frame)["value"]
    rules = [selection.best_validation, lambda f: selection.last_n(f, 2)]
    for rule in rules:
        assert (rule(frame)["value"] <= best).all()


def test_at_epoch(frame):
    assert value_of(selection.at_epoch(frame, 3), 1) == 0.4
    with pytest.raises(
        ValueError, match="run 'erm', seed 0; .* this seed has 1, 2, 3, 4$"
    ):
        selection.at_epoch(frame, 7)
    shorter = frame[(frame["seed"] == 0) | (frame["epoch"] < 3)]
    with pytest.raises(
        ValueError, match="epoch 3.*'erm', seed 1; .* this seed has 1, 2$"
    ):
        selection.at_epoch(shorter, 3)
    assert set(selection.at_epoch(shorter, 2)["seed"]) == {0, 1}


def test_selection_ignores_the_order_of_rows(frame):
    mixed = frame.sample(frac=1, random_state=0)
    rules = [
        selection.best_validation,
        selection.oracle,
        lambda f: selection.last_n(f, 2),
    ]
    for rule in rules:
        pd.testing.assert_frame_equal(rule(frame), rule(mixed))


def test_selection_uses_the_last_stage(tmp_path):
    first = [*curve([0.9, 0.9], "valid"), *curve([0.9, 0.9], "edge")]
    later = [*curve([0.2, 0.3], "valid", stage=1), *curve([0.4, 0.5], "edge", stage=1)]
    later = [r._replace(step=r.step + 20) for r in later]
    write_run(tmp_path / "erm", first + later)
    frame = results.read(tmp_path / "erm")
    assert value_of(selection.best_validation(frame), 0) == 0.5
    assert value_of(selection.oracle(frame), 0) == 0.5


def test_diverged_seeds_are_left_out_and_named(tmp_path):
    good = [*curve([0.5, 0.6], "valid"), *curve([0.3, 0.4], "edge")]
    lost = [r._replace(seed=1) for r in good if r.step == 10]
    lost.append(
        record(
            seed=1,
            step=20,
            dataset="train",
            metric="diverged",
            value=13.0,
            count=None,
            n=None,
            status="diverged",
        )
    )
    lost.append(record(seed=1, step=20, value=None, count=None, status="diverged"))
    write_run(tmp_path / "erm", good + lost)
    frame = results.read(tmp_path / "erm")
    named = selection.diverged(frame)
    assert named[["run", "seed", "step"]].values.tolist() == [["erm", 1, 13]]
    for table in (selection.best_validation(frame), selection.last_n(frame, 1)):
        assert set(table["seed"]) == {0}
    assert selection.diverged(results.read(tmp_path / "erm").query("seed == 0")).empty


def test_a_mean_over_a_missing_value_is_missing(tmp_path):
    values = curve([0.5, None, 0.7], "edge", metric="shape_bias")
    write_run(tmp_path / "erm", values)
    table = selection.last_n(results.read(tmp_path / "erm"), 3)
    assert math.isnan(value_of(table, 0))


def test_evaluations_keep_the_order_of_data_sets(tmp_path):
    names = [f"set {i % 7}{i}" for i in range(40)]
    records = [
        record(dataset=n, step=s, seed=k)
        for s in (1, 2)
        for k in range(9)
        for n in names
    ]
    write_run(tmp_path / "erm", records)
    evaluations = selection.evaluations(results.read(tmp_path / "erm"))
    assert list(dict.fromkeys(evaluations["dataset"])) == names


READ = {
    "fields in another order": lambda r: json.dumps(dict(reversed(r.items()))),
    "no spaces": lambda r: json.dumps(r, separators=(",", ":")),
    "commas in a name": lambda r: json.dumps(r | {"condition": 'a, "b": 1, c'}),
    "braces in a name": lambda r: json.dumps(r | {"dataset": '}\\n{"run": "x"'}),
    "letters that are not ASCII": lambda r: json.dumps(
        r | {"run": "Übung 😀"}, ensure_ascii=False
    ),
    "escaped letters": lambda r: json.dumps(r | {"run": "Übung 😀"}),
    "one word in two forms": lambda r: json.dumps(r).replace(
        "edge", "edge" if r["seed"] else "\\u0065dge"
    ),
    "numbers in other forms": lambda r: json.dumps(
        r | {"value": 1e-300, "epoch": 7, "n": None}
    ),
    "large numbers": lambda r: json.dumps(
        r | {"count": None, "n": 2**63 - 1, "step": -(2**63)}
    ),
    "no value": lambda r: json.dumps(r | {"value": None, "count": None, "n": None}),
}


@cases.each("form", READ)
def test_fast_reading_equals_reading_line_by_line(tmp_path, form):
    rows = [record(seed=seed)._asdict() for seed in range(3)]
    text = "\n".join(READ[form](row) for row in rows)
    for end in ("", "\n"):
        path = tmp_path / f"erm{len(end)}" / "evals" / "10.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text(text + end, encoding="utf-8")
        frame = results.read(path.parents[1])
        expected = pd.DataFrame(results.loads(text), columns=results.Record._fields)
        for name in expected:
            values = [None if pd.isna(v) else v for v in frame[name]]
            assert values == [None if pd.isna(v) else v for v in expected[name]], name


@cases.each(
    "damage",
    [
        lambda text: text.replace('"count"', '"counts"', 1),
        lambda text: text.replace(', "count": 8', "", 1),
        lambda text: text.replace("\n", "\n\n", 1),
        lambda text: text.replace("\n", " ", 1),
        lambda text: text.replace('"value": 0.5', '"value": NaN', 1),
        lambda text: text.replace('"seed": 0', '"seed": 0.0', 1),
        lambda text: text.replace('"n": 16', '"n": true', 1),
        lambda text: text.replace('"n": 16', f'"n": {2**63}', 1),
        lambda text: text.replace('"step": 10', f'"step": -{2**63 + 1}', 1),
        lambda text: text.replace('"value": 0.5', '"value": 1e999', 1),
        lambda text: text.replace('"value": 0.5', f'"value": {10**400}', 1),
        lambda text: text.replace('"epoch": 1.0', '"epoch": -1e999', 1),
        lambda text: text + "{}",
        lambda text: text.replace("}", "} 1", 1),
        lambda text: text.replace('"value": 0.5', f'"value": {"[" * 10**5}', 1),
    ],
)
def test_damage_is_refused_as_in_reading_line_by_line(tmp_path, damage):
    path = tmp_path / "erm" / "evals" / "10.jsonl"
    results.write(path, [record(), record(seed=1)])
    path.write_text(damage(path.read_text()))
    with pytest.raises(ValueError, match=r"10\.jsonl:\d") as expected:
        results.loads(path.read_text(), where=str(path))
    with pytest.raises(ValueError, match=r"10\.jsonl:\d") as error:
        results.read(tmp_path / "erm")
    assert str(error.value) == str(expected.value)


def test_equal_rows_have_equal_numbers():
    frame = pd.DataFrame({"a": [1, 2, 1, 1], "b": list("xxyx"), "c": [0.5] * 4})
    for b in (frame["b"], frame["b"].astype("category")):
        keys = results.number_rows(frame.assign(b=b), ["a", "b", "c"])
        assert keys[0] == keys[3]
        assert set(keys) == {0, 1, 2}
    wide = pd.DataFrame({f"c{i}": range(2000) for i in range(8)})
    assert set(results.number_rows(wide, list(wide))) == set(range(2000))
    assert results.number_rows(wide[:0], list(wide)).tolist() == []


@cases.each(
    "column",
    [
        [5, 5, 5, 5],
        [-3, 900, -3, 7],
        [-(2**63), 2**63 - 1, 0, -(2**63)],
        [0.5, np.nan, np.nan, 0.5],
        pd.array([1, None, None, 2], "Int64"),
    ],
)
def test_row_numbers_and_first_rows_equal_pandas(column):
    """A second column has a rare value."""
    frame = pd.DataFrame({"a": column, "b": [1, 1, 1, 2]})
    frame = pd.concat([frame, frame, frame.assign(b=10**6)], ignore_index=True)
    keys = results.number_rows(frame, ["a", "b"])
    groups = frame.groupby(["a", "b"], dropna=False, sort=False).ngroup()
    assert len({*zip(keys, groups, strict=True)}) == len({*keys}) == len({*groups})
    assert {*keys} == {*range(len({*keys}))}
    first = np.flatnonzero(~frame.duplicated(["a", "b"]))
    assert results.first_rows(frame, ["a", "b"]).tolist() == first.tolist()
    assert results.first_rows(frame[:0], ["a", "b"]).tolist() == []


def test_blocks_of_one_run_are_read_side_by_side(tmp_path, monkeypatch):
    """Two threads read in parallel, and rows are in the order of the files."""
    write_run(tmp_path / "erm", curve(np.linspace(0, 1, 8), "edge"))
    expected = results.read(tmp_path / "erm")
    barrier, load = threading.Barrier(2, timeout=60), results._load

    def load_with_another(block):
        barrier.wait()
        return load(block)

    monkeypatch.setattr(results, "BLOCK_BYTES", 1)
    monkeypatch.setattr(results.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(results, "_load", load_with_another)
    pd.testing.assert_frame_equal(results.read(tmp_path / "erm"), expected)


@pytest.mark.parametrize("numbers", [1, 7, 70_000])
def test_later_rows_of_a_number_are_counted(numbers):
    keys = np.random.default_rng(0).integers(numbers, size=500)
    counted = pd.Series(keys).groupby(keys).cumcount(ascending=False)
    assert selection.count_later(keys).tolist() == counted.tolist()
    assert selection.count_later(keys[:0]).tolist() == []


def test_written_records_take_the_fast_path(tmp_path, monkeypatch):
    records = [record(), record(metric="loss", value=None, count=None, n=None)]
    results.write(tmp_path / "erm" / "evals" / "10.jsonl", records)
    monkeypatch.setattr(results, "loads", pytest.fail)
    assert len(results.read(tmp_path / "erm")) == 2


@pytest.mark.parametrize("value, count, n", [(0.99, 50, 100), (1.5, 150, 100)])
def test_an_accuracy_that_is_not_its_count_is_refused(tmp_path, value, count, n):
    """A value that was rounded to float32 is accepted."""
    fine = record(value=1 / 3, count=1, n=3)
    near = record(dataset="sketch", value=0.33333334, count=1, n=3)
    wrong = record(dataset="valid", value=value, count=count, n=n)
    results.write(tmp_path / "evals" / "1.jsonl", [fine, near, wrong])
    message = rf"1.jsonl:3: accuracy must be count / n = {count} / {n}, got {value}"
    with pytest.raises(ValueError, match=message):
        results.read(tmp_path)
