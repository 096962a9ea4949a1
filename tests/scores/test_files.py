"""Files of scores in any form are read correctly, or refused with the ambiguous part.

The files and `expected.json` were written before the reader and independently of it.
"""

import json
import math
import pathlib
import re

import pandas as pd
import pytest

import jbias
from jbias import scores, stats
from tests import cases

FOLDER = pathlib.Path(__file__).parent
EXPECTED = [
    {**entry, "file": f"{folder}/{entry['file']}"}
    for folder in ("score_files", "more_files")
    for entry in json.loads((FOLDER / folder / "expected.json").read_text("utf-8"))
]
BY_NAME = {entry["file"]: entry for entry in EXPECTED}
READABLE = [x["file"] for x in EXPECTED if x["outcome"] in ("read", "summary")]
REFUSED = [x["file"] for x in EXPECTED if x["outcome"] == "refused"]
DECIDED = [x["file"] for x in EXPECTED if x.get("decided_by")]


def number(value):
    return None if value is None or math.isnan(value) else round(float(value), 9)


def cells(reading):
    """Return all cells of a reading, sorted: algorithm, data set, run, score, deviation."""
    tidy = reading.tidy
    tidy = tidy if "deviation" in tidy else tidy.assign(deviation=math.nan)
    rows = tidy[["algorithm", "dataset", "run", "score", "deviation"]]
    return sorted(
        (
            (a, d, r, number(s), number(v))
            for a, d, r, s, v in rows.itertuples(index=False)
        ),
        key=str,
    )


def expected_cells(rows):
    return sorted(
        ((a, d, str(r), number(s), number(v)) for a, d, r, s, v in rows), key=str
    )


@cases.each("file", READABLE)
def test_each_cell_of_a_file_is_read(file):
    reading = scores.read(FOLDER / file)
    assert cells(reading) == expected_cells(BY_NAME[file]["scores"])
    assert reading.is_summary == (BY_NAME[file]["outcome"] == "summary")
    assert len(reading.description) == 3


@cases.each("file", REFUSED)
def test_a_file_with_several_readings_or_none_is_refused(file):
    with pytest.raises(ValueError) as refusal:
        scores.read(FOLDER / file)
    text = str(refusal.value)
    assert "\n" not in text and file in text
    if BY_NAME[file].get("decided_by"):
        assert isinstance(refusal.value, scores.UnclearError) or "run=order" in text
        assert "--" in text


def choices_of(decided_by):
    """Return the arguments of `scores.read` that make the choice of an entry."""
    arguments = {"columns": {}}
    for key, value in decided_by.items():
        if key in ("score", "algorithm", "run"):
            arguments["columns"][key] = value
        elif key == "columns":
            arguments["columns"][value.removesuffix("s")] = "header"
        elif key == "parentheses":
            arguments["brackets"] = "ignore"
        else:
            arguments[key] = value
    return arguments


@cases.each("file", DECIDED)
def test_the_choice_that_a_refusal_names_decides(file):
    entry = BY_NAME[file]
    reading = scores.read(FOLDER / file, **choices_of(entry["decided_by"]))
    right = [[*row[:4], None] for row in entry["then"]]
    assert [row[:4] for row in cells(reading)] == [
        row[:4] for row in expected_cells(right)
    ]


def read_text(folder, text, name="table.csv", **choices):
    path = folder / name
    path.write_text(text, "utf-8")
    return scores.read(path, **choices)


def test_a_frame_of_a_file_is_one_that_tests_take(tmp_path, capsys):
    path = tmp_path / "table.csv"
    path.write_text("method;photo;sketch\nERM;81,5;70\nRSC;82;71,5\n", "utf-8")
    frame = jbias.read_scores(path)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and lines[0].startswith("wide table")
    assert list(frame.columns) == ["algorithm", "dataset", "score"]
    assert frame["score"].tolist() == [81.5, 70, 82, 71.5]


# For each guess, a table with the other reading.


def test_words_of_a_corner_decide_which_way_a_table_lies(tmp_path):
    text = "{},A,B\nC,1.5,2\nD,3,4\n"
    for corner, algorithms in (
        ("method", "CD"),
        ("domain", "AB"),
        ("Data set \\ Method", "AB"),
    ):
        reading = read_text(tmp_path, text.format(corner))
        assert set(reading.tidy["algorithm"]) == set(algorithms)
    with pytest.raises(
        scores.UnclearError, match="--rows=algorithms or --rows=datasets"
    ):
        read_text(tmp_path, text.format(""))


def test_known_names_decide_only_where_several_agree(tmp_path):
    methods_in_rows = read_text(tmp_path, ",P,Q\nERM,1.5,2\nSagNet,3,4\n")
    assert set(methods_in_rows.tidy["algorithm"]) == {"ERM", "SagNet"}
    sets_in_rows = read_text(tmp_path, ",P,Q\nphoto,1.5,2\nsketch,3,4\n")
    assert set(sets_in_rows.tidy["dataset"]) == {"photo", "sketch"}
    for text in (",ERM,SagNet\nRSC,1.5,2\nMixup,3,4\n", ",P,Q\nERM,1.5,2\nX,3,4\n"):
        with pytest.raises(scores.UnclearError):
            read_text(tmp_path, text)


@cases.each(
    ("text", "values"),
    [
        ("m;a\nx;73,8\n", [73.8]),
        ("m;a\nx;0,812\n", [0.812]),
        ("m\ta\nx\t1,234\ny\t73.8\n", [1234, 73.8]),
        ("m\ta\nx\t1.234,5\ny\t73,8\n", [1234.5, 73.8]),
        ("m\ta\nx\t73.812\n", [73.812]),
    ],
)
def test_commas_are_read_by_the_whole_table(tmp_path, text, values):
    text = text.replace("m", "method", 1).replace("a\n", "accuracy\n", 1)
    assert read_text(tmp_path, text).tidy["score"].tolist() == values


def test_rows_of_one_name_are_runs_only_where_nothing_else_tells_them_apart(tmp_path):
    runs = "method,photo,art\nERM,1.5,2\nERM,2,3\nRSC,3,4\nRSC,4,5\n"
    assert set(read_text(tmp_path, runs).tidy["run"]) == {"0", "1"}
    other = "method,setting,photo,art\nERM,a,1.5,2\nERM,b,2,3\nRSC,a,3,4\nRSC,b,4,5\n"
    with pytest.raises(scores.UnclearError, match="'setting' tells them apart"):
        read_text(tmp_path, other)
    joined = read_text(tmp_path, other, columns="algorithm=method+setting")
    assert set(joined.tidy["algorithm"]) == {"ERM a", "ERM b", "RSC a", "RSC b"}
    slip = "method,photo,art\nERM,1.5,2\nERM,2,3\nRSC,3,4\n"
    with pytest.raises(scores.UnclearError, match="others have one row"):
        read_text(tmp_path, slip)


def test_a_number_in_brackets_is_a_deviation_a_difference_or_asked_about(tmp_path):
    text = "method,photo,art\nERM,73.8 ({0}),71.5 ({0})\nRSC,70.1 ({0}),60.0 ({0})\n"
    assert read_text(tmp_path, text.format("0.2")).is_summary
    assert not read_text(tmp_path, text.format("+0.2")).is_summary
    with pytest.raises(scores.UnclearError, match="--brackets=deviation or"):
        read_text(tmp_path, text.format("2"))


def test_columns_that_count_are_no_data_sets(tmp_path):
    reading = read_text(
        tmp_path, "method,epoch,lr,photo,art\nERM,10,.1,1.5,2\nRSC,9,.1,3,4\n"
    )
    assert set(reading.tidy["dataset"]) == {"photo", "art"}
    assert reading.unused == ("epoch", "lr")
    chosen = read_text(
        tmp_path, "method,domain,epoch\nERM,a,10\nRSC,a,12\n", columns="score=epoch"
    )
    assert chosen.tidy["score"].tolist() == [10, 12]


def test_a_text_where_numbers_are_is_no_label(tmp_path):
    with pytest.raises(ValueError, match="score must be a finite number, got '7_1'"):
        read_text(tmp_path, "method,photo,art\nERM,7_1,70\nRSC,80,71\n")


def test_rows_under_headings_are_not_taken_for_runs(tmp_path):
    text = "Method,Photo,Art\nResNet-18,,\nERM,1.5,2\nRSC,2,3\nResNet-50,,\n{},3,4\n{},5,6\n"
    with pytest.raises(ValueError, match="are under several headings"):
        read_text(tmp_path, text.format("ERM", "RSC"))
    reading = read_text(tmp_path, text.format("ARM", "IRM"))
    assert set(reading.tidy["algorithm"]) == {"ERM", "RSC", "ARM", "IRM"}


def test_an_algorithm_may_have_fewer_runs_than_another(tmp_path):
    text = "method,domain,seed0,seed1\nERM,photo,1.5,2\nERM,art,2,3\nRSC,photo,3,\nRSC,art,4,\n"
    tidy = read_text(tmp_path, text).tidy
    assert tidy.groupby("algorithm")["run"].nunique().to_dict() == {"ERM": 2, "RSC": 1}


@cases.each(
    ("name", "data"),
    [
        ("a.xlsx", b"PK\x03\x04no zip"),
        ("a.parquet", b"PAR1 no more"),
        ("a.csv", b"\xff\x00\x01"),
    ],
)
def test_a_damaged_file_is_one_line(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError) as refusal:
        scores.read(tmp_path / name)
    assert name in str(refusal.value) and "\n" not in str(refusal.value)


@cases.each("mean", ["mean", "Avg.", "std"])
def test_a_statistic_beside_columns_of_seeds_makes_them_no_data_sets(tmp_path, mean):
    text = f"Method,seed 1,seed 2,{mean}\nERM,1.5,2,1.75\nX,3,4,3.5\n"
    reading = read_text(tmp_path, text, "sketch.csv")
    assert set(reading.tidy["run"]) == {"seed 1", "seed 2"}
    assert set(reading.tidy["dataset"]) == {"sketch"} and reading.unused == (mean,)
    with pytest.raises(scores.UnclearError, match="--columns=ignore=photo"):
        read_text(tmp_path, text.replace(mean, "photo"))


def test_an_export_of_runs_has_settings_and_losses_that_are_no_scores(tmp_path):
    head = "Name,State,config.method,config.lr,config.seed,dataset,train/loss,val/acc,test/acc\n"
    rows = [
        f"{m}-{s}-{d},done,{m},0.1,{s},{d},0.3,0.9,0.{50 + 7 * s + i}\n"
        for i, (m, d) in enumerate(
            (m, d) for m in ("erm", "ours") for d in ("art", "clip")
        )
        for s in (0, 1)
    ]
    text = head + "".join(rows)
    with pytest.raises(scores.UnclearError) as refusal:
        read_text(tmp_path, text)
    assert "--columns=score=test/acc or" in str(refusal.value)
    tidy = read_text(tmp_path, text, columns="score=test/acc").tidy
    assert set(tidy["algorithm"]) == {"erm", "ours"} and set(tidy["run"]) == {"0", "1"}
    assert set(tidy["dataset"]) == {"art", "clip"} and len(tidy) == 8


def test_columns_of_training_are_no_test_sets(tmp_path):
    text = (
        "Name,config.method,config.seed,test/acc_art,test/acc_clip,val/acc,train/loss\n"
        "a,erm,0,.5,.6,.9,.1\nb,erm,1,.51,.61,.9,.1\nc,ours,0,.6,.7,.9,.2\nd,ours,1,.6,.7,.9,.2\n"
    )
    reading = read_text(tmp_path, text)
    assert set(reading.tidy["algorithm"]) == {"erm", "ours"}
    assert len(set(reading.tidy["dataset"])) == 2
    assert {"val/acc", "train/loss"} <= set(reading.unused)


def test_rows_of_seeds_and_a_column_an_algorithm_are_one_data_set(tmp_path):
    text = "seed,ERM,SagNet,Ours\n0,1.5,2,3\n1,2,3,4\n"
    tidy = read_text(tmp_path, text, "sketch.csv").tidy
    assert set(tidy["algorithm"]) == {"ERM", "SagNet", "Ours"}
    assert set(tidy["run"]) == {"0", "1"} and set(tidy["dataset"]) == {"sketch"}
    with pytest.raises(scores.UnclearError, match="--columns=algorithm=header"):
        read_text(tmp_path, text.replace("ERM,SagNet,Ours", "A,B,C"))
    chosen = read_text(
        tmp_path, text.replace("ERM,SagNet,Ours", "A,B,C"), columns="algorithm=header"
    )
    assert set(chosen.tidy["algorithm"]) == set("ABC")


def test_a_column_without_any_number_is_no_data_set(tmp_path):
    """For example, notes of an export whose cells are all dashes."""
    text = "Name,config.method,Notes,photo,art\na,ERM,-,1.5,2\nb,RSC,-,3,n/a\n"
    reading = read_text(tmp_path, text)
    assert set(reading.tidy["dataset"]) == {"photo", "art"}
    assert "Notes (no scores)" in reading.unused
    assert reading.tidy["score"].isna().sum() == 1


EXPORT = (
    "Name,{column},method,domain,seed,test_acc\n"
    "a,finished,ERM,art,0,70\nb,finished,ERM,art,1,71\nc,crashed,ERM,art,2,33\n"
    "d,Finished,RSC,art,0,74\ne,finished,RSC,art,1,75\nf,failed,RSC,art,2,10\n"
)


@cases.each("column", ["State", "status"])
def test_runs_that_did_not_finish_are_left_out_with_a_line(tmp_path, column):
    text = EXPORT.format(column=column)
    reading = read_text(tmp_path, text)
    assert reading.tidy["score"].tolist() == [70, 71, 74, 75]
    assert reading.description[2].endswith(
        "left out: 2 of 6 rows, of runs that did not finish "
        f"(column '{column}': 1 crashed, 1 failed); --columns=ignore={column} keeps them"
    )
    assert reading.unused == ("Name",)
    every = read_text(tmp_path, text, columns=f"ignore={column}")
    assert len(every.tidy) == 6 and not every.unfinished


def test_a_column_is_the_state_of_runs_only_if_all_cells_are_states(tmp_path):
    text = EXPORT.format(column="State")
    finished = text.replace("crashed", "finished").replace("failed", "finished")
    assert len(read_text(tmp_path, finished).tidy) == 6
    assert len(read_text(tmp_path, text.replace("crashed", "Ohio")).tidy) == 6
    with pytest.raises(ValueError, match="runs that finished, got none: 6 of 6 rows"):
        read_text(tmp_path, re.sub("(?i)finished", "running", text))


@cases.each(
    "state", ["WAITING", "PAUSED", "CANCELLED by 1000", "NODE_FAIL", "OUT_OF_MEMORY"]
)
def test_states_of_optuna_ray_and_slurm_are_known(tmp_path, state):
    text = EXPORT.format(column="State").replace("failed", state)
    assert read_text(tmp_path, text).tidy["score"].tolist() == [70, 71, 74, 75]


def test_a_frame_with_runs_that_did_not_finish_is_refused_by_tests(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text(EXPORT.format(column="State"))
    frame = pd.read_csv(path)
    with pytest.raises(ValueError, match="2 of 6 rows, of runs that did not finish"):
        stats.compare_seeds(frame, larger_is_better=True)
    tidy = jbias.read_scores(frame, verbose=False)
    assert tidy["score"].tolist() == [70, 71, 74, 75]


NOTED = (
    r"Ours$^\dagger$",
    "Ours†",
    "Ours*",
    "**Ours** [12]",
    r"\textbf{Ours}~\cite{nam}",
    "Ours [3, 4-6]",
    "Ours (Nam et al., 2021)",
    "Ours<sup>1</sup>",
    "[Ours](https://a.b) [[12]](https://a.b)",
)


@cases.each("name", NOTED)
@cases.each("file", ["table.csv", "table.md"])
def test_footnote_marks_and_citations_are_no_part_of_a_name(tmp_path, name, file):
    rows = [["method", "photo†", "art"], ["ERM", "70", "60"], [name, "73.8*", "61.5"]]
    if file.endswith("md"):
        rows.insert(1, ["---"] * 3)
        text = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    else:
        text = "\n".join(";".join(row) for row in rows)
    reading = read_text(tmp_path, text, file)
    assert set(reading.tidy["algorithm"]) == {"ERM", "Ours"}
    assert set(reading.tidy["dataset"]) == {"photo", "art"}
    line = reading.description[2]
    assert (
        "names without footnote marks and citations: photo (was photo†), Ours" in line
    )


def test_marks_that_tell_names_apart_stay(tmp_path):
    text = (
        "| method | art | clip [1] | clip [2] |\n|---|---|---|---|\n| ERM | 70 | 60 | 1.5 |\n"
        "| ERM† | 71 | 61 | 2 |\n| RSC$^a$ | 72 | 63 | 3 |\n| A* | 73 | 64 | 4 |\n"
    )
    reading = read_text(tmp_path, text, "table.md")
    assert set(reading.tidy["algorithm"]) == {"ERM", "ERM†", "RSC", "A*"}
    assert set(reading.tidy["dataset"]) == {"art", "clip [1]", "clip [2]"}
    assert reading.description[2].endswith("citations: RSC (was RSC^a)")


def test_bold_names_of_a_csv_file_have_no_markup_and_no_line(tmp_path):
    text = (
        "**method**,**photo**,`art`\n---,---,---\nERM,70,60\n\\textbf{RSC},**71**,61\n"
    )
    reading = read_text(tmp_path, text)
    assert set(reading.tidy["algorithm"]) == {"ERM", "RSC"}
    assert set(reading.tidy["dataset"]) == {"photo", "art"}
    assert "names without" not in reading.description[2]


def test_names_of_a_frame_are_unchanged():
    frame = pd.DataFrame({"method": ["A [1]", "B†"], "art": [1.5, 2], "clip": [3, 4]})
    assert set(scores.read(frame).tidy["algorithm"]) == {"A [1]", "B†"}


def test_lines_across_a_table_of_latex_are_no_part_of_names(tmp_path):
    rules = (r"\hdashline", r"\Xhline{1pt}", r"\cdashline{1-3}", r"\thickhline")
    rows = "".join(f"{rule}\nM{i} & 7{i} & 6{i} \\\\\n" for i, rule in enumerate(rules))
    text = (
        f"\\begin{{tabular}}{{lcc}}\nMethod & art & clip \\\\\n{rows}\\end{{tabular}}"
    )
    reading = read_text(tmp_path, text, "table.tex")
    assert set(reading.tidy["algorithm"]) == {"M0", "M1", "M2", "M3"}


@cases.each("cell", [r"73.8$^{\pm 0.2}$", "73.8<sup>±0.2</sup>", "73.8<sup>2</sup>"])
def test_superscripts_of_a_score_are_its_spread_or_a_mark(tmp_path, cell):
    text = f"| method | art |\n|---|---|\n| ERM | {cell} |\n| RSC | 70.1 |\n"
    tidy = read_text(tmp_path, text, "table.md").tidy
    assert tidy["score"].tolist() == [73.8, 70.1]
    assert ("deviation" in tidy) == ("0.2" in cell)
