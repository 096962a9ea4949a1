"""The records of a Parquet file equal those of the JSON lines, or are not used."""

import pandas as pd
import pytest

from jbias.runs import compacted, results
from tests import cases
from tests.runs.test_results import curve, write_run


@pytest.fixture
def workdir(tmp_path, monkeypatch):
    """Return a finished run of two seeds with many records."""
    monkeypatch.setattr(results, "_MANY_BYTES", 1)
    folder = tmp_path / "erm"
    records = [
        *curve([0.1, 0.7, None, 0.7], "valid"),
        *curve([0.1, 0.2, 0.9, 0.4], "edge", seed=1, n=None, count=None),
        *curve([9.0, 8.0, 7.0, 6.5], "train", metric="loss"),
    ]
    write_run(folder, records)
    (folder / "done").write_text("finished\n")
    return folder


def is_compacted(folder) -> bool:
    """Return True if the records of a folder come from its Parquet file."""
    paths = results._record_files(folder)
    return compacted.read(folder, paths) is not None


def test_records_of_the_parquet_file_equal_the_lines(workdir, tmp_path):
    """Equal including dtypes, with other workdirs before and after."""
    for name in ("a", "z"):
        write_run(tmp_path / name, curve([0.25, 0.5], "photo", run=name, seed=3))
    folders = [tmp_path / name for name in ("a", "erm", "z")]
    by_line = results.read(folders)
    results.compact(workdir)
    assert is_compacted(workdir)
    in_one_file = results.read(folders)
    pd.testing.assert_frame_equal(in_one_file, by_line)
    assert [*in_one_file["dataset"].cat.categories] == [
        "edge",
        "photo",
        "train",
        "valid",
    ]


def change_records(path):
    text = path.read_text()
    path.write_text(text.replace("0.7", "0.8"))


CHANGES = {
    "a line of another number": lambda f: change_records(f / "evals" / "20.jsonl"),
    "a step that came later": lambda f: write_run(f, curve([1.0] * 5, "late")[4:]),
    "a step that is gone": lambda f: (f / "evals" / "10.jsonl").unlink(),
}


@cases.each("change", CHANGES)
def test_changed_lines_are_read_instead_of_the_parquet_file(change, workdir):
    results.compact(workdir)
    CHANGES[change](workdir)
    assert not is_compacted(workdir)
    records = results.read(workdir)
    (workdir / compacted.NAME).unlink()
    pd.testing.assert_frame_equal(records, results.read(workdir))


@cases.each("name", [compacted.NAME, compacted.INDEX])
def test_a_damaged_file_is_not_read(name, workdir):
    """A flipped bit in any byte is detected; unknown names in the index do not matter."""
    results.compact(workdir)
    path, wanted = workdir / name, results.read(workdir)
    content = path.read_bytes()
    for number, place in enumerate(range(0, len(content), 7)):
        flipped = bytes([content[place] ^ 0x10])
        path.write_bytes(content[:place] + flipped + content[place + 1 :])
        assert not is_compacted(workdir)
        if number % 20 == 0:
            pd.testing.assert_frame_equal(results.read(workdir), wanted)
    path.write_bytes(content[: len(content) // 2])
    assert not is_compacted(workdir)


def test_a_file_of_other_columns_is_not_read(workdir):
    """Another version may have written other columns."""
    wanted = results.read(workdir)
    paths = results._record_files(workdir)
    records = results._load_files(paths)
    compacted.write(workdir, paths, records._replace(table=records.table.drop("n")))
    assert is_compacted(workdir)
    pd.testing.assert_frame_equal(results.read(workdir), wanted)


def test_a_report_keeps_the_records_of_runs_that_are_done(workdir):
    (workdir / "done").unlink()
    results.read(workdir, compacts=True)
    assert not (workdir / compacted.NAME).exists()
    (workdir / "done").write_text("finished\n")
    results.read(workdir)
    assert not (workdir / compacted.NAME).exists()
    results.read(workdir, compacts=True)
    assert is_compacted(workdir)


def test_a_folder_that_cannot_be_written_is_read(workdir, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError("read only")

    monkeypatch.setattr(compacted.files, "write", refuse)
    assert len(results.read(workdir, compacts=True)) == 12
