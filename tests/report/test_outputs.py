"""Commands replace files that jbias wrote and no others."""

import json
import os
import types
from contextlib import nullcontext

import numpy as np
import pytest

from jbias import prepare, report
from jbias.evals import runner
from jbias.models import weight_files
from jbias.report import cli as report_cli
from jbias.report import correlate, document
from jbias.report.pages import audit_page
from jbias.runtime import outputs
from tests import cases
from tests.report import test_document, test_scores

TABLE = test_scores.EXAMPLES / "biasbed_table2.csv"


def contents_of(folder):
    """Return bytes of files and targets of links in a folder, by path."""
    contents = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            contents[name] = os.readlink(path)
        elif path.is_file():
            contents[name] = path.read_bytes()
    return contents


def write_obstacle(folder, kind):
    """Make a folder with a file, link or folder in the place of a file of a report."""
    folder.mkdir()
    if kind == "link":
        (folder / "elsewhere").mkdir()
        (folder / "tables").symlink_to(folder / "elsewhere")
    elif kind == "dangling":
        (folder / "index.html").symlink_to(folder / "nothing")
    elif kind == "folder":
        (folder / "index.html").mkdir()
    elif kind == "tables":
        (folder / "tables").write_text("a file")
    else:
        path = folder / kind
        path.parent.mkdir(exist_ok=True)
        path.write_text('{"mine": 1, "files": ["index.html"]}')


KINDS = ("index.html", "results.json", "methods.md", "tables/scores.csv")
KINDS += ("figures/iqm.svg", "link", "dangling", "folder", "tables")


@cases.each("kind", KINDS)
def test_files_that_jbias_did_not_write_are_kept_and_named(
    kind, tmp_path, capsys, monkeypatch
):
    """The command names the file and fails before it reads scores."""
    out = tmp_path / kind.replace("/", "-")
    write_obstacle(out, kind)
    contents = contents_of(out)
    assert report_cli.main(["--scores=/nowhere.csv", f"--out={out}"]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and "remove it or name another folder" in message
    table = ["--table=/nowhere.csv", "--x=a", "--y=b", "--category=c"]
    assert correlate.main([*table, f"--out={out}"]) == 2
    assert "remove it or name another folder" in capsys.readouterr().err
    if kind != "methods.md":  # This page has no such file.
        page = test_document.make_report(
            frames={"scores": test_document.pd.DataFrame()}
        )
        files = document.render(page) | {"figures/iqm.svg": ""}
        with pytest.raises(ValueError, match="name another folder"):
            document.save(files, out)
    assert contents_of(out) == contents


def test_a_report_may_be_added_to_a_folder_with_other_files(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ".git").mkdir()
    document.write(test_document.make_report(), tmp_path)
    document.write(test_document.make_report(), tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.slow
def test_a_report_is_replaced_also_through_a_link(tmp_path):
    assert report.main([f"--scores={TABLE}", f"--out={tmp_path / 'real'}"]) == 0
    first = contents_of(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert report.main([f"--scores={TABLE}", f"--out={tmp_path / 'link'}"]) == 0
    assert contents_of(tmp_path / "real") == first


def test_an_interrupted_report_can_be_written_again(tmp_path, monkeypatch):
    files = document.render(
        test_document.make_report(frames={"a": test_document.pd.DataFrame()})
    )
    written = []

    def write(path, data, lasting):
        written.append(path)
        if len(written) == 3:
            raise KeyboardInterrupt
        original(path, data, lasting=lasting)

    original = document.files_lib.write
    monkeypatch.setattr(document.files_lib, "write", write)
    with pytest.raises(KeyboardInterrupt):
        document.save(files, tmp_path / "out")
    monkeypatch.setattr(document.files_lib, "write", original)
    document.save(files, tmp_path / "out")
    assert contents_of(tmp_path / "out").keys() == files.keys()


def test_reports_remove_only_files_in_their_folder(tmp_path):
    """Paths outside the folder, or through a link, are not removed."""
    document.write(test_document.make_report(), tmp_path / "out")
    victim = tmp_path / "victim" / "a.csv"
    victim.parent.mkdir()
    victim.write_text("mine")
    path = tmp_path / "out" / "results.json"
    tree = json.loads(path.read_text())
    tree["files"] += ["tables/../../victim/a.csv", "../victim/a.csv", "figures/a.csv"]
    path.write_text(json.dumps(tree))
    (tmp_path / "out" / "figures").symlink_to(victim.parent)
    document.write(test_document.make_report(), tmp_path / "out")
    assert victim.read_text() == "mine"


@cases.each("link", ["tables", "tables/link", "tables/link/dir"])
def test_files_behind_links_are_not_removed(tmp_path, link):
    victim = tmp_path / "elsewhere" / "link" / "dir" / "v.txt"
    victim.parent.mkdir(parents=True)
    victim.write_text("mine")
    targets = {"tables": "", "tables/link": "link", "tables/link/dir": "link/dir"}
    path = tmp_path / "out" / link
    path.parent.mkdir(parents=True)
    path.symlink_to(tmp_path / "elsewhere" / targets[link])
    lists = {
        "headline": 1,
        "basis": 1,
        "files": ["index.html", "tables/link/dir/v.txt"],
    }
    (tmp_path / "out/results.json").write_text(json.dumps(lists))
    assert (tmp_path / "out/tables/link/dir/v.txt").read_text() == "mine"
    assert outputs.removable(tmp_path / "out", []) == []


def test_old_files_are_removed_if_the_report_folder_is_a_link(tmp_path):
    old = tmp_path / "real" / "tables" / "dir" / "old.csv"
    old.parent.mkdir(parents=True)
    old.write_text("old")
    lists = {"headline": 1, "basis": 1, "files": ["index.html", "tables/dir/old.csv"]}
    (tmp_path / "real/results.json").write_text(json.dumps(lists))
    (tmp_path / "out").symlink_to(tmp_path / "real")
    path = tmp_path / "out" / "tables/dir/old.csv"
    assert outputs.removable(tmp_path / "out", []) == [path]


def test_audits_refuse_folders_with_other_files(tmp_path):
    with pytest.raises(ValueError, match="models"):
        write_obstacle(tmp_path / "out", "index.html")
        (tmp_path / "out" / "index.html").rename(tmp_path / "out" / "models")
        outputs.check_report_folder(tmp_path / "out", ("models",))
    outputs.check_report_folder(tmp_path / "out")
    assert audit_page.outputs is outputs


@cases.each("name", ["w.npz", "sheet.png", "figure.pdf", "figure.svg"])
def test_files_replace_only_files_of_their_kind(name, tmp_path, capsys):
    path = tmp_path / name
    outputs.check_file(path)
    path.write_text("mine")
    with pytest.raises(ValueError, match="remove it or name another file"):
        outputs.check_file(path)
    path.write_bytes(outputs.KINDS[path.suffix] + b"...")
    outputs.check_file(path)
    path.rename(tmp_path / f"real-{name}")
    path.symlink_to(tmp_path / f"real-{name}")
    with pytest.raises(ValueError, match="no plain file"):
        outputs.check_file(path)


def test_prepare_refuses_an_existing_file_before_computing(tmp_path, capsys):
    path = tmp_path / "w.npz"
    path.write_text("mine")
    argv = ["style", "--data=nowhere", f"--out={path}", "--images=/nowhere"]
    args = next(
        words for words in (argv, argv[:3]) if not _refused_as_arguments(words, capsys)
    )
    assert prepare.main(args) == 2
    assert "remove it or name another file" in capsys.readouterr().err
    with pytest.raises(ValueError, match="remove it"):
        weight_files.write_npz(path, {"a": np.zeros(2)})
    assert path.read_text() == "mine"


def _refused_as_arguments(args, capsys):
    try:
        prepare.parser({args[0]}).parse_args(args)
    except SystemExit:
        capsys.readouterr()
        return True
    return False


@cases.each(
    ("name", "text", "is_refused"),
    [
        ("config.json", "mine", True),
        ("config.json", '{"mine": 1}', True),
        ("provenance.json", "{}", True),
        ("config.json", '{"run": {}, "seeds": [0]}', False),
        ("notes.txt", "mine", False),
    ],
)
def test_measures_refuse_folders_with_settings_of_other_programs(
    name, text, is_refused, tmp_path
):
    folder = tmp_path / str(len(text)) / name.partition(".")[0]
    folder.mkdir(parents=True)
    (folder / name).write_text(text)
    owner = types.SimpleNamespace(folder=folder)
    with (
        pytest.raises(ValueError, match="did not write")
        if is_refused
        else nullcontext()
    ):
        runner.NetworkEvaluation._check_written_by_us(owner)
