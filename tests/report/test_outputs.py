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
from jbias.report import audit, correlate, document
from jbias.report import cli as report_cli
from jbias.runtime import outputs
from tests import cases
from tests.report import test_document, test_scores

TABLE = test_scores.EXAMPLES / "biasbed_table2.csv"


def listed(folder):
    """Return bytes of files and targets of links in a folder, by path."""
    contents = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            contents[name] = os.readlink(path)
        elif path.is_file():
            contents[name] = path.read_bytes()
    return contents


def put(folder, kind):
    """Make a folder with a file, a link or a folder where a report would write."""
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
def test_a_report_leaves_files_of_others_and_says_so_first(
    kind, tmp_path, capsys, monkeypatch
):
    """The command names the file and fails before it reads scores."""
    out = tmp_path / kind.replace("/", "-")
    put(out, kind)
    contents = listed(out)
    assert report_cli.main(["--scores=/nowhere.csv", f"--out={out}"]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and "remove it or name another folder" in message
    table = ["--table=/nowhere.csv", "--x=a", "--y=b", "--category=c"]
    assert correlate.main([*table, f"--out={out}"]) == 2
    assert "remove it or name another folder" in capsys.readouterr().err
    if kind != "methods.md":  # Which this page has not.
        page = test_document.make_report(
            frames={"scores": test_document.pd.DataFrame()}
        )
        files = document.render(page) | {"figures/iqm.svg": ""}
        with pytest.raises(ValueError, match="name another folder"):
            document.save(files, out)
    assert listed(out) == contents


def test_a_folder_with_files_of_other_names_takes_a_report(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ".git").mkdir()
    document.write(test_document.make_report(), tmp_path)
    document.write(test_document.make_report(), tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_report_is_written_again_in_its_folder_also_through_a_link(tmp_path):
    assert report.main([f"--scores={TABLE}", f"--out={tmp_path / 'real'}"]) == 0
    first = listed(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert report.main([f"--scores={TABLE}", f"--out={tmp_path / 'link'}"]) == 0
    assert listed(tmp_path / "real") == first


def test_a_report_that_was_cut_short_is_known_and_written_again(tmp_path, monkeypatch):
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
    assert listed(tmp_path / "out").keys() == files.keys()


def test_what_a_report_removes_lies_in_its_folder(tmp_path):
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
def test_a_report_removes_nothing_through_a_link_at_any_depth(tmp_path, link):
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


def test_a_report_in_a_folder_that_a_link_leads_to_removes_its_old_files(tmp_path):
    old = tmp_path / "real" / "tables" / "dir" / "old.csv"
    old.parent.mkdir(parents=True)
    old.write_text("old")
    lists = {"headline": 1, "basis": 1, "files": ["index.html", "tables/dir/old.csv"]}
    (tmp_path / "real/results.json").write_text(json.dumps(lists))
    (tmp_path / "out").symlink_to(tmp_path / "real")
    path = tmp_path / "out" / "tables/dir/old.csv"
    assert outputs.removable(tmp_path / "out", []) == [path]


def test_pages_of_an_audit_leave_files_of_others(tmp_path):
    with pytest.raises(ValueError, match="models"):
        put(tmp_path / "out", "index.html")
        (tmp_path / "out" / "index.html").rename(tmp_path / "out" / "models")
        outputs.check_report_folder(tmp_path / "out", ("models",))
    outputs.check_report_folder(tmp_path / "out")
    assert audit.outputs is outputs


@cases.each("name", ["w.npz", "sheet.png", "figure.pdf", "figure.svg"])
def test_a_file_replaces_one_of_its_kind_alone(name, tmp_path, capsys):
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


def test_prepare_refuses_before_it_computes(tmp_path, capsys):
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
    ("name", "text", "refused"),
    [
        ("config.json", "mine", True),
        ("config.json", '{"mine": 1}', True),
        ("provenance.json", "{}", True),
        ("config.json", '{"run": {}, "seeds": [0]}', False),
        ("notes.txt", "mine", False),
    ],
)
def test_measures_take_no_folder_with_settings_of_others(name, text, refused, tmp_path):
    folder = tmp_path / str(len(text)) / name.partition(".")[0]
    folder.mkdir(parents=True)
    (folder / name).write_text(text)
    owner = types.SimpleNamespace(folder=folder)
    with pytest.raises(ValueError, match="did not write") if refused else nullcontext():
        runner.NetworkEvaluation._check_written_by_us(owner)
