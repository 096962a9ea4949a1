"""ALGOS is collected from the tables of the modules in jbias/algos/."""

import importlib
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

from jbias import algos

FOLDER = pathlib.Path(algos.__file__).parent


@pytest.fixture
def collect(tmp_path, monkeypatch):
    """Function collect({module: text of its ALGOS}) that returns the table of such a folder."""
    folder = tmp_path / "collected"
    folder.mkdir()
    shutil.copy(FOLDER / "__init__.py", folder)
    monkeypatch.syspath_prepend(str(tmp_path))
    imported = {*sys.modules}

    def collect(tables):
        for name, table in tables.items():
            code = f"def make(net): pass\nALGOS = {table}\n"
            (folder / f"{name}.py").write_text(code)
        return importlib.import_module("collected").ALGOS

    yield collect
    for name in {*sys.modules} - imported:
        if name.partition(".")[0] == "collected":
            del sys.modules[name]


def test_erm_is_first_and_the_others_are_sorted():
    assert [*algos.ALGOS] == ["erm", *sorted({*algos.ALGOS} - {"erm"})]


def test_the_table_cannot_be_changed():
    with pytest.raises(TypeError):
        algos.ALGOS["new"] = None


def test_a_file_in_the_folder_is_enough(collect):
    table = collect(
        {
            "b": "{'irm': make, 'coral': make}",
            "erm": "{'erm': make}",
            "helpers": "{}",
            "a": "{'pgd': make}",
        }
    )
    assert [*table] == ["erm", "coral", "irm", "pgd"]
    assert table["irm"].__module__ == "collected.b"


def test_a_name_of_two_modules_is_refused(collect):
    message = "collected.b: ALGOS must .* got 'irm', which collected.a has; rename it"
    with pytest.raises(ValueError, match=message):
        collect({"a": "{'irm': make}", "b": "{'irm': make}"})


@pytest.mark.slow
def test_a_zip_file_has_the_same_algorithms(tmp_path):
    package = FOLDER.parent
    path = tmp_path / "jbias.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in package.rglob("*"):
            if "__pycache__" not in file.parts:
                archive.write(file, file.relative_to(package.parent))
    code = "import sys; sys.path.insert(0, sys.argv[1]); from jbias import algos; "
    code += "print(algos.__file__, *algos.ALGOS)"
    command = [sys.executable, "-c", code, str(path)]
    output = subprocess.check_output(command, cwd=tmp_path, text=True)
    file, *names = output.split()
    assert file.startswith(str(path))
    assert names == [*algos.ALGOS]
