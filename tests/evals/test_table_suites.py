"""Tables of decisions measured without images: names and columns tell the classes.

Records equal those of the same set with its images; no answer is counted beside each number.
"""

import json
import pathlib
import shutil

import numpy as np
import pandas as pd
import pytest

import jbias
from jbias import evaluate
from jbias.answers import parsing
from jbias.configs.suites import biases
from jbias.data import class_maps, sources
from jbias.data import tables as data_tables
from jbias.evals import measured as results_of_model
from jbias.evals import table_suites
from jbias.measuring import cli
from jbias.report import decisions as decisions_page
from jbias.report import measured as measured_page
from tests import cases
from tests.answers import published

CLASSES = tuple(class_maps.geirhos16())
CONFLICTS = data_tables.cue_conflicts()
WITH_IMAGES = """
import ml_collections

def get_config(text=""):
    c = ml_collections.ConfigDict()
    c.size = 16
    c.run = dict(batch=640)
    c.sets = {"cue-conflict": dict(data="geirhos", split="cue-conflict", root=ROOT)}
    sets = ("cue-conflict",)
    c.measures = dict(
        accuracy=dict(probe="plain", sets=sets),
        shape_bias=dict(sets=sets),
        human=dict(sets=sets, root=PEOPLE),
    )
    return c
"""


def write_conflicts(path, decisions, **columns):
    """Write a table about the first cue conflicts; return its path."""
    rows = {"image": CONFLICTS[: len(decisions)], "pred_label": decisions, **columns}
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


def cues(images=CONFLICTS):
    """Return the names of shape and texture of each image."""
    shapes, textures = [], []
    for name in images:
        shape, _, texture = name.partition("-")
        shapes.append(shape.rstrip("0123456789"))
        textures.append(texture.rstrip("0123456789"))
    return shapes, textures


def record_files(folder):
    """Return the content of each file of records of a measured network, by name."""
    paths = sorted(pathlib.Path(folder).glob("evals/*.jsonl"))
    return {path.name: path.read_text() for path in paths}


def values(folder, measure):
    """Return (value, count, n) by metric of a measure, without conditions of single classes."""
    lines = record_files(folder)[f"{measure}.jsonl"].splitlines()
    records = [x for x in map(json.loads, lines) if "class=" not in x["condition"]]
    return {x["metric"]: (x["value"], x["count"], x["n"]) for x in records}


@published.needed
def test_records_equal_those_of_the_set_with_its_images(unpacked, tmp_path):
    """To the byte, for people, CNNs and a file that lacks rows; the cues are of the same images."""
    root = str(unpacked("geirhos64") / "geirhos64")
    folder = tmp_path / "tables"
    folder.mkdir()
    for name in ("resnet50", "densenet121", "subject-04_session_1"):
        shutil.copy(published.PEOPLE / f"cue-conflict_{name}.csv", folder)
    some = pd.read_csv(folder / "cue-conflict_resnet50.csv", keep_default_na=False)
    some.assign(subj="some")[::3].to_csv(folder / "cue-conflict_some.csv", index=False)
    text = f"ROOT, PEOPLE = {root!r}, {str(published.PEOPLE)!r}"
    (tmp_path / "s.py").write_text(text + WITH_IMAGES)
    arguments = [f"--decisions={folder}", f"--out={tmp_path}/with"]
    assert evaluate.main([*arguments, f"--suite={tmp_path}/s.py"]) == 0
    arguments = [f"--decisions={folder}", f"--out={tmp_path}/without"]
    assert evaluate.main([*arguments, f"--humans={published.PEOPLE}"]) == 0
    names = {"resnet50", "densenet121", "subject-04", "some"}
    assert names == {path.name for path in (tmp_path / "without").iterdir()}
    for name in names:
        with_images = record_files(tmp_path / "with" / name)
        assert record_files(tmp_path / "without" / name) == with_images
        assert len(with_images) == 3
        first, second = (
            pd.read_parquet(
                tmp_path / x / name / "decisions/cue-conflict/accuracy.parquet"
            )
            for x in ("with", "without")
        )
        pd.testing.assert_frame_equal(first, second)
    assert values(tmp_path / "without/subject-04", "accuracy@cue-conflict")[
        "unanswered"
    ] == (37 / 1280, 37, 1280)


@published.needed
@cases.each(
    "file",
    [
        "vqa/20240209_115809_gemini_pro_vision.csv",
        "vqa/20240205_224838_instructblip_flan_t5_xl.csv",
        "captioning/20240126_214531_uform_gen_chat.csv",
    ],
)
def test_published_files_have_the_shape_bias_that_pandas_counts(file, tmp_path):
    path = published.VLM / "vlm" / file
    assert evaluate.main([f"--decisions={path}", f"--out={tmp_path}"]) == 0
    frame = pd.read_csv(path, keep_default_na=False)
    shape, texture = cues(frame["image"])
    frame = frame.assign(shape=shape, texture=texture)
    conflicts = frame[frame["shape"] != frame["texture"]]
    is_shape = conflicts["pred_label"] == conflicts["shape"]
    either = is_shape | (conflicts["pred_label"] == conflicts["texture"])
    unanswered = int((~conflicts["pred_label"].isin(CLASSES)).sum())
    (folder,) = tmp_path.iterdir()
    numbers = values(folder, "shape_bias@cue-conflict")
    count, n = int(is_shape.sum()), int(either.sum())
    assert numbers["shape_bias"] == (count / n, count, n)
    expected = (unanswered / 1200, unanswered, 1200) if unanswered else None
    assert numbers.get("unanswered") == expected


def test_the_share_without_an_answer_is_beside_every_number(tmp_path, capfd):
    """60 of 1,280 images are unanswered; some of these have no conflict."""
    shape, texture = cues()
    decisions = np.where(np.arange(1280) % 3 == 0, shape, texture).tolist()
    decisions[:60] = ["None"] * 60
    is_conflict = np.array(shape) != np.array(texture)
    num_conflicts = int(is_conflict[:60].sum())
    words = f"; {num_conflicts} of 1,200 unanswered"
    path = write_conflicts(tmp_path / "model.csv", decisions)
    assert cli.main([str(path), f"--out={tmp_path}/out"]) == 0
    printed = capfd.readouterr()
    lines = [x for x in printed.out.splitlines() if "cue-conflict" in x]
    assert len(lines) == 3
    assert lines[0].endswith(f"decisions for either cue{words}")
    assert all(line.endswith("; 60 of 1,280 unanswered") for line in lines[1:])
    assert "60 of the 1,280 decisions on cue-conflict are no answer" in printed.err
    (line,) = (x for x in printed.err.splitlines() if "shape_bias@cue" in x)
    n = int((is_conflict[60:]).sum())
    assert f"of {n} decisions" in line and words in line
    folder = tmp_path / "out/model"
    bias = results_of_model.read(folder).shape_bias
    assert bias.unanswered == (num_conflicts, 1200)
    page = tmp_path / "page"
    assert measured_page.main([f"--measured={folder}", f"--out={page}"]) == 0
    for name in ("shape_bias", "overview"):
        (row,) = pd.read_csv(page / f"tables/{name}.csv").to_dict("records")
        assert row["unanswered"] == pytest.approx(num_conflicts / 1200)
    text = (page / "index.html").read_text()
    assert f"for neither cue, {num_conflicts} of 1,200 unanswered" in text
    assert text.count("Unanswered: images without an answer") == 2


def test_answers_to_all_images_have_no_number_of_unanswered_images(tmp_path):
    path = write_conflicts(tmp_path / "model.csv", cues()[0])
    assert evaluate.main([f"--decisions={path}", f"--out={tmp_path}/out"]) == 0
    assert "unanswered" not in "".join(record_files(tmp_path / "out/model").values())
    assert jbias.measure(str(path), out=tmp_path / "again").shape_bias == 1


def write_own(path, **changes):
    """Write a table about own images, with 3 of 4 right and an unanswered one; return its path."""
    table = {
        "image": [f"{i}.jpg" for i in range(8)],
        "predicted": ["cat", "dog", "eel", "cat", "dog", "eel", "cat", "None"],
        "label": ["cat", "dog", "eel", "cat", "dog", "eel", "dog", "dog"],
    }
    pd.DataFrame(table | changes).to_csv(path, index=False)
    return path


def test_own_images_need_a_column_of_labels_only(tmp_path, capfd):
    path = write_own(tmp_path / "own.csv")
    arguments = [f"--decisions={path}", "--set=my_photos", f"--out={tmp_path}/out"]
    assert evaluate.main(arguments) == 0
    numbers = values(tmp_path / "out/own", "accuracy@my_photos")
    assert numbers == {"accuracy": (0.75, 6, 8), "unanswered": (0.125, 1, 8)}
    assert "classes@my_photos.jsonl" in record_files(tmp_path / "out/own")
    stored = record_files(tmp_path / "out/own")
    assert evaluate.main(arguments) == 0  # It resumes.
    assert "own: 2 measures are there already" in capfd.readouterr().err
    assert record_files(tmp_path / "out/own") == stored
    result = jbias.measure(str(path), dataset="mine", out=tmp_path / "python")
    assert result.accuracy == 0.75 and result.accuracy.dataset == "mine"


def test_another_tables_rows_do_not_change_a_networks_settings(tmp_path):
    """A network with fewer images resumes beside one with more."""
    folder = tmp_path / "tables"
    folder.mkdir()
    frame = pd.read_csv(write_own(folder / "a.csv"), keep_default_na=False)
    arguments = [f"--decisions={folder}", f"--out={tmp_path}/out"]
    assert evaluate.main(arguments) == 0
    more = frame.assign(image=[f"more{i}.jpg" for i in range(8)])
    pd.concat([frame, more]).to_csv(folder / "b.csv", index=False)
    assert evaluate.main(arguments) == 0
    assert values(tmp_path / "out/a", "accuracy@images")["accuracy"][2] == 8
    assert values(tmp_path / "out/b", "accuracy@images")["accuracy"][2] == 16


def test_names_that_are_no_folders_are_escaped_or_left_out(tmp_path, capfd):
    """One line for each; the others are measured."""
    folder = tmp_path / "tables"
    folder.mkdir()
    names = ("openai/clip", "openai-clip", "..", "a\x07b", "x" * 200, "good")
    for i, name in enumerate(names):
        write_own(folder / f"{i}.csv", subj=[name] * 8)
    arguments = [f"--decisions={folder}", f"--out={tmp_path}/out"]
    assert evaluate.main(arguments) == 1
    assert {x.name for x in (tmp_path / "out").iterdir()} == {"openai-clip", "good"}
    lines = capfd.readouterr().err.splitlines()
    refused = [line for line in lines if line.startswith("not measured: ")]
    assert len(refused) == 4 and all(len(line) < 500 for line in refused)
    assert any("must be its own, got that of" in line for line in refused)
    assert sum("must be a plain name" in line for line in refused) == 3
    assert any(line.startswith("[1/2] ") for line in lines)
    assert lines[-1].startswith("measured 2 networks in ")
    assert "; 4 not (" in lines[-1]


@cases.each(
    ("columns", "flags", "message"),
    [
        (
            ["image", "predicted"],
            [],
            "such as 'airplane1-bicycle2', carry both classes",
        ),
        (["image", "predicted", "label"], ["--only=spectral"], "unknown 'spectral'"),
        (["image", "predicted", "label"], ["--set=a/b"], "must be a plain name"),
        (["image", "predicted", "label"], ["--set=cue-conflict"], "<shape><i>-<textu"),
        (["image", "predicted", "label"], ["--columns=x=y"], "--columns: unknown 'x'"),
        (["image", "label"], [], "must have the column(s) object_response"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_a_line(
    columns, flags, message, tmp_path, capfd
):
    path = write_own(tmp_path / "own.csv")
    pd.read_csv(path, keep_default_na=False)[columns].to_csv(path, index=False)
    arguments = [*flags, f"--out={tmp_path}/out"]
    for main, table in ((evaluate.main, f"--decisions={path}"), (cli.main, str(path))):
        assert main([table, *arguments]) == 2 and not (tmp_path / "out/own").exists()
        lines = capfd.readouterr().err.splitlines()
        assert sum(message in line for line in lines) == 1 and len(lines) <= 2


@cases.each(
    ("flags", "message"),
    [
        (["--suite=s.py", "--set=x"], "--set has no effect with --decisions and --su"),
        (["--suite=s.py", "--parse=raw"], "--parse has no effect with --decisions an"),
        (["--suite=s.py", "--humans=x"], "--humans has no effect with --decisions an"),
        (["--suite.size=3"], "--suite is missing"),
        (["--model=resnet50"], "--model has no effect with --decisions alone"),
    ],
)
def test_flags_without_effect_are_refused(flags, message, capfd):
    with pytest.raises(SystemExit, match="2"):
        evaluate.main(["--decisions=x.csv", *flags])
    assert message in capfd.readouterr().err


@cases.each(
    ("arguments", "message"),
    [
        (["own.csv", "--suite.run.batch=8"], "--suite.run.batch: a table of decisions"),
        (["own.csv", "--data=own", "--set=x"], "--set: is for a table of decisions wi"),
        (["own.csv", "--data=own", "--parse=raw"], "--parse: is for a table of decisi"),
        (["own.csv", "--data=own", "--humans=own"], "people are compared on --stimuli"),
    ],
)
def test_flags_of_measure_without_effect_are_refused(
    arguments, message, tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(tmp_path)
    write_own(tmp_path / "own.csv")
    (tmp_path / "own/cat").mkdir(parents=True)
    assert cli.main(arguments) == 2
    assert message in capfd.readouterr().err


def test_raw_words_are_parsed_again_on_request(tmp_path):
    """The published column has one class; the words are letters of the 16 options."""
    letters = [chr(ord("A") + CLASSES.index(name)) for name in cues()[0]]
    path = write_conflicts(tmp_path / "m.csv", ["cat"] * 1280, response=letters)
    for parse, bias in (("published", None), ("raw", 1.0)):
        out = tmp_path / parse
        arguments = [f"--decisions={path}", f"--parse={parse}", f"--out={out}"]
        assert evaluate.main(arguments) == 0
        value, _, _ = values(out / "m", "shape_bias@cue-conflict")["shape_bias"]
        assert (value == 1) == (bias == 1)
        config = json.loads((out / "m/config.json").read_text())
        assert bool(config["tables"][0]["parser"]) == (parse == "raw")


def test_sets_have_the_names_of_the_suite_of_biases():
    other_names = {
        split: name for name, split in biases.OTHERS.items() if name != split
    }
    assert dict(table_suites.SUITE_NAMES) == other_names


def test_a_part_of_images_in_memory_keeps_their_names():
    source = sources.ArraySource(
        name="a/b",
        classes=("x",),
        columns={"label": np.zeros(3, np.int32)},
        preprocessing="",
        fingerprint="f",
        cite="",
        images=np.zeros((3, 1, 1, 3), np.uint8),
        files=("p", "q", "r"),
    )
    part = sources.take(source, np.array([2, 0]), digest="d")
    assert part.files == ("r", "p") and len(part) == 2


def test_options_and_reader_reach_the_commands(tmp_path, capfd):
    """Reversed letters are right with --options; the reader is in each row, the order is said."""
    shape, _ = cues()
    letter = dict(zip(CLASSES[::-1], "ABCDEFGHIJKLMNOP", strict=True))
    path = tmp_path / "model.csv"
    words = [letter[name] for name in shape]
    pd.DataFrame({"image": CONFLICTS, "answer": words}).to_csv(path, index=False)
    options = ",".join(f"{x}={name}" for name, x in letter.items())
    for main, flags in (
        (cli.main, [str(path)]),
        (evaluate.main, [f"--decisions={path}"]),
        (decisions_page.main, [f"--decisions={path}"]),
    ):
        out = tmp_path / main.__module__
        assert main([*flags, f"--options={options}", f"--out={out}"]) == 0
        printed = "".join(capfd.readouterr())
        assert "1,280 answers are letters without a class, read as A = truck" in printed
        if main is cli.main:
            assert f"--options={options} --out=report-decisions" in printed
    row = results_of_model.read(tmp_path / cli.__name__ / "model").shape_bias
    assert (float(row), row.reader) == (1, f"parser {parsing.VERSION}")
    assert row.details.endswith(f"; read by parser {parsing.VERSION}")
    by_python = jbias.measure(str(path), letters=options, out=tmp_path / "python")
    assert by_python.accuracy_shape == 1
    assert cli.main([str(path), f"--options={options}", "--data=shapes"]) == 2
    assert (
        "--options: is for a table of decisions without folders"
        in capfd.readouterr().err
    )


def test_a_changed_file_and_a_second_file_have_advice(tmp_path, capfd):
    path = write_conflicts(tmp_path / "model.csv", ["cat", "dog"])
    out = f"--out={tmp_path}/out"
    assert cli.main([str(path), out]) == 0
    assert "jbias report decisions --decisions=" in capfd.readouterr().err
    write_conflicts(path, ["cat", "cat"])
    assert cli.main([str(path), out]) == 2
    error = capfd.readouterr().err
    assert "model.csv has changed since" in error and "--name" not in error
    with pytest.raises(SystemExit):
        cli.main([str(path), "other.csv", out])
    assert "a folder of files, or a glob in quotes" in capfd.readouterr().err


def test_each_bad_file_has_a_line_and_nothing_is_measured(tmp_path, capfd):
    folder = tmp_path / "tables"
    folder.mkdir()
    write_conflicts(folder / "good.csv", ["cat"])
    write_conflicts(folder / "a.csv", ["giraffe"])
    (folder / "b.csv").write_text("")
    for main in (evaluate.main, decisions_page.main):
        out = tmp_path / main.__module__
        assert main([f"--decisions={folder}", f"--out={out}"]) == 2
        first, second = capfd.readouterr().err.splitlines()[-2:]
        assert "a.csv:2: pred_label must be" in first and "b.csv: must hold" in second
        assert not out.exists()


def test_no_answer_is_for_neither_cue_only_where_there_are_cues(tmp_path, capfd):
    table = {
        "image": ["1.jpg", "2.jpg"],
        "pred_label": ["a", "na"],
        "label": ["a", "b"],
    }
    path = tmp_path / "own.csv"
    pd.DataFrame(table).to_csv(path, index=False)
    assert cli.main([str(path), f"--out={tmp_path}/out"]) == 0
    error = capfd.readouterr().err
    assert "no answer, such as 'na': they count as wrong\n" in error
    path = write_conflicts(tmp_path / "model.csv", ["na"] * 1280)
    assert cli.main([str(path), f"--out={tmp_path}/out"]) == 0
    error = capfd.readouterr().err
    assert (
        "(1,200 of the 1,200 whose cues conflict): they count as wrong for accuracy, and not"
        in error
    )
