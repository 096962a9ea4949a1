"""The wheel and the source distribution contain exactly the files of the package."""

import configparser
import email
import pathlib
import re
import subprocess
import sys
import tarfile
import zipfile

import pytest

import jbias
from jbias.calibrating import curves
from tests import source_files

ROOT = pathlib.Path(jbias.__file__).parents[1]
FILES = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in source_files.FOLDERS
    for path in (ROOT / folder).rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build the source distribution and the wheel; return their paths."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", f"--outdir={out}"]
    completed = subprocess.run(
        [*command, str(ROOT)], check=False, capture_output=True, text=True, timeout=600
    )
    assert completed.returncode == 0, completed.stderr[-2000:]
    return next(out.glob("*.tar.gz")), next(out.glob("*.whl"))


def test_every_folder_of_the_package_is_installed():
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    listed = parser["options"]["packages"].split()
    python = [ROOT / name for name in FILES if name.endswith(".py")]
    folders = {
        pathlib.Path("jbias") / source_files.inside(path).parent for path in python
    }
    assert sorted(listed) == sorted(".".join(folder.parts) for folder in folders)


def test_a_file_of_calibration_curves_would_be_installed():
    """The study writes the file, which does not exist before."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    patterns = parser["options.package_data"]["jbias"].split()
    file = curves.FILE.relative_to(ROOT / "jbias")
    assert any(file.match(pattern) for pattern in patterns)


@pytest.mark.slow
def test_the_wheel_contains_the_package(built):
    with zipfile.ZipFile(built[1]) as wheel:
        names_in_wheel = [
            name for name in wheel.namelist() if ".dist-info/" not in name
        ]
        metadata_name = next(
            name for name in wheel.namelist() if name.endswith("/METADATA")
        )
        metadata = email.message_from_bytes(wheel.read(metadata_name))
    inside = [f"jbias/{source_files.inside(ROOT / name)}" for name in FILES]
    assert sorted(names_in_wheel) == sorted(inside)
    names = {"jbias/configs/biasbed/sagnet.py", "jbias/launch/tpu_pod.sh"}
    assert {"jbias/py.typed", *names} < {*names_in_wheel}
    assert {pathlib.Path(name).suffix for name in names_in_wheel} > {
        ".json",
        ".npz",
        ".css",
    }
    assert metadata["Version"] == jbias.__version__


@pytest.mark.slow
def test_the_source_distribution_contains_the_package_and_its_documents(built):
    with tarfile.open(built[0]) as sources:
        names = [m.name.partition("/")[2] for m in sources.getmembers() if m.isfile()]
    names = [name for name in names if not name.startswith("jbias.egg-info/")]
    papers = {"README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "MANIFEST.in"}
    papers |= {"PKG-INFO", "pyproject.toml", "setup.cfg"}
    assert sorted(names) == sorted([*FILES, *papers])


@pytest.mark.slow
def test_all_files_have_the_same_version():
    citation = re.search(r"(?m)^version: (.+)$", (ROOT / "CITATION.cff").read_text())
    assert citation[1] == jbias.__version__
    changes = (ROOT / "CHANGELOG.md").read_text()
    versions = re.findall(r"(?m)^## \[(\d[^\]]*)\]", changes)
    assert versions[0] == jbias.__version__


@pytest.mark.slow
def test_the_package_alone_imports_nothing():
    """`import jbias` imports no other module."""
    code = "import sys; old = {*sys.modules}; import jbias; print({*sys.modules} - old)"
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True
    )
    assert completed.stdout.decode().strip() == "{'jbias'}"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["configs.erm", "launch.sweep"])
def test_a_checkout_imports_its_own_folders(name):
    """A checkout imports its own configs and launchers, also if another one is installed."""
    code = f"import jbias.{name} as module; print(module.__file__)"
    output = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True)
    assert output.strip() == str(ROOT / (name.replace(".", "/") + ".py"))


@pytest.mark.slow
def test_a_wheel_works_in_a_new_environment(built, tmp_path):
    """Install the wheel into a new environment, and train there; needs a package registry."""
    home, away = tmp_path / "environment", tmp_path / "empty"
    away.mkdir()
    subprocess.run([sys.executable, "-m", "venv", home], check=True)
    python = str(home / "bin/python")
    install = [python, "-m", "pip", "install", "--quiet", f"{built[1]}[search,train]"]
    subprocess.run(install, check=True, cwd=away, timeout=3000)

    def run(*words: str) -> str:
        command = [python, "-m", *words]
        return subprocess.run(
            command, check=True, cwd=away, timeout=3000, text=True, capture_output=True
        ).stdout

    run("jbias.main", "--config=jbias:erm:smoke", "--workdir=run")
    assert (away / "run/done").exists()
    run("jbias.report", "--runs=run", "--out=report")
    assert (away / "report/index.html").exists()
    sweep = ("run", "--sweep=jbias:sweeps/rates:of=smoke,trials=2", "--dry-run")
    output = run("jbias.launch.sweep", *sweep, "--workdir=search")
    assert output.count("--config=jbias:erm:smoke") == 2
    code = "import pathlib, jbias; print(pathlib.Path(jbias.__file__).parents[1])"
    folder = subprocess.check_output([python, "-c", code], cwd=away, text=True)
    assert str(home) in folder
