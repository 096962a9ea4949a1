"""Wrong arguments of `jbias card` are refused in one line, before anything slow is imported."""

import subprocess
import sys

import pytest

from jbias.cards import cli

CLASSES = """
class Net:
    def __init__(self, width): pass
    def named_modules(self): return []
    def state_dict(self): return {}

class Other:
    pass

number = 3
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Net", "the class Net needs arguments"),
        ("Other", "must be a function of images"),
        ("number", "must be a function of images"),
    ],
)
def test_what_is_no_model_is_one_line(name, message, tmp_path, capsys):
    """A class whose objects would be modules, another class and a number."""
    (tmp_path / "net.py").write_text(CLASSES)
    assert cli.main([f"{tmp_path / 'net.py'}:{name}", "--data=shapes"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_refusals_import_neither_jax_nor_scipy():
    """Each of these is refused at once, as nothing must be measured or computed for it."""
    code = """
import sys
from jbias.cards import cli
for words in (
    [], ["nowhere"], ["nowhere.py"], ["--verify=nowhere"], ["x", "--verify=y"],
    ["x", "--source=https://a.org"], ["x", "--benchmark=a"], [".", "--data=nowhere"],
):
    assert cli.main(words) == 2, words
print(sorted({"jax", "scipy", "pandas"} & {*sys.modules}))
"""
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert completed.stdout.strip() == "[]"
    assert len(completed.stderr.splitlines()) == 8
