"""Models that are no models are refused in one line that names the file, and early."""

import subprocess
import sys

import pytest

from jbias import evaluate, look
from jbias.cards import cli as card_cli
from jbias.evals import predictors
from jbias.measuring import cli
from tests import cases

MISTYPED = """
import sys
from jbias import evaluate, look
from jbias.cards import cli as card_cli
from jbias.measuring import cli
suite = "--suite=jbias:suites/biases"
for main, argv in [
    (cli.main, ["none.pth"]),
    (cli.main, ["net.py:Net"]),
    (cli.main, ["timm:resnet50@none.pth"]),
    (cli.main, ["decisions.csv"]),
    (cli.main, [".", "--stimuli=none"]),
    (cli.main, [".", "--data=none"]),
    (card_cli.main, ["none"]),
    (card_cli.main, []),
    (evaluate.main, ["--checkpoint=none.pth", suite]),
    (evaluate.main, ["--predict=none.py:f", suite]),
    (look.main, ["--checkpoint=none.pth", suite]),
]:
    assert main(argv) == 2, argv
print(sorted({"jax", "torch", "timm", "pandas", "numpy"} & {*sys.modules}))
"""


def test_mistyped_paths_are_refused_before_large_packages_are_imported():
    command = [sys.executable, "-c", MISTYPED]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 11 and all(line.startswith("jbias: ") for line in lines)


FILES = {
    "needs": "class Net:\n    def __init__(self, depth, *, width):\n        pass\n",
    "fails": "class Net:\n    def __init__(self):\n        raise KeyError('weights')\n",
    "number": "Net = 3\n",
    "raises": "import json\nNet = json.loads('{')\n",
    "exits": "import sys\nsys.exit('no licence')\n",
    "other": "class Network:\n    pass\n",
    "object": "class Net:\n    pass\n",
    "syntax": "class Net\n",
}
REASONS = {
    "needs": r"needs\.py: the class Net needs arguments \(depth, width\); make an object",
    "fails": r"fails\.py:3, in __init__: KeyError: 'weights'; called Net\(\)",
    "number": r"number\.py: Net must be a function of images, .*, got 3",
    "raises": r"raises\.py:2: JSONDecodeError",
    "exits": r"exits\.py:2: SystemExit: calls sys\.exit\('no licence'\)",
    "other": r"other\.py: unknown 'Net'; did you mean 'Network'",
    "object": r"object\.py: Net must be a function of images",
    "syntax": r"syntax\.py:1: SyntaxError",
}


@cases.each("name", FILES)
def test_an_object_that_is_no_model_is_refused_with_its_file(name, tmp_path):
    path = tmp_path / f"{name}.py"
    path.write_text(FILES[name])
    with pytest.raises(ValueError, match=REASONS[name]) as error:
        predictors.load_model(f"{path}:Net", "MODEL")
    assert "\n" not in str(error.value)


def test_all_commands_refuse_a_class_that_needs_arguments(tmp_path, capsys):
    path = tmp_path / "net.py"
    path.write_text(FILES["needs"])
    suite = "--suite=jbias:suites/biases:smoke"
    out = f"--out={tmp_path}/out"
    for main, argv in (
        (cli.main, [f"{path}:Net", "--data=shapes", out]),
        (card_cli.main, [f"{path}:Net", "--data=shapes", out]),
        (evaluate.main, [f"--predict={path}:Net", suite, out]),
    ):
        assert main(argv) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "net.py: the class Net needs arguments (depth, width)" in line
    assert look.main([f"--checkpoint={path}:Net", suite, out]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "jbias evaluate --predict=" in line


def test_a_class_without_arguments_is_called(tmp_path):
    path = tmp_path / "net.py"
    path.write_text("class Net:\n    def __call__(self, images):\n        return 5\n")
    assert predictors.load_model(f"{path}:Net", "MODEL")(None) == 5
