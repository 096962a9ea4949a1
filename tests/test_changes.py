"""Changes of entries, --config.KEY=VALUE: read in the same way by the command line and by Python."""

import json
import re
import subprocess
import sys

import pytest

from jbias import config as jc
from jbias import main, plan, run_spec, study
from jbias.launch import sweep, trials
from tests import cases

BASE = "jbias:erm:smoke,seeds=1"

ACCEPTED = {
    "--config.seeds=(2,)": ("seeds", (2,)),
    "--config.seeds=[3, 4]": ("seeds", (3, 4)),
    "--config.seeds=3,4": ("seeds", (3, 4)),
    "--config.epochs=3": ("epochs", 3.0),
    "--config.optim.rate=1e-3": ("optim.rate", 0.001),
    "--config.optim.rate=.5": ("optim.rate", 0.5),
    "--config.train.batch=16": ("train.batch", 16),
    "--config.variant=3": ("variant", "3"),
    "--config.variant=None": ("variant", "None"),
    "--config.variant='wide net'": ("variant", "wide net"),
    "--config.variant=it's": ("variant", "it's"),
    "--config.variant=": ("variant", ""),
    "--config.run.decisions": ("run.decisions", True),
    "--config.run.decisions=False": ("run.decisions", False),
    "--config.run.decisions=1": ("run.decisions", True),
    "--config.run.deterministic=true": ("run.deterministic", True),
    "--config.fix.init=3": ("fix.init", 3),
    "--config.fix.init=None": ("fix.init", None),
    "--config.eval_every=3 steps": ("eval_every", "3 steps"),
    "--config.inputs=({'name': 'mixup'},)": ("inputs", ({"name": "mixup"},)),
}


@pytest.mark.parametrize("change", ACCEPTED)
def test_a_text_has_the_type_of_the_entry_that_it_replaces(change):
    key, expected = ACCEPTED[change]
    value = jc.load(BASE, [change], flag="config")
    for name in key.split("."):
        value = value[name]
    assert value == expected and type(value) is type(expected)


REFUSED = {
    "--config.seeds=2": (
        r"--config.seeds: must be a list .*; write --config.seeds=\(2,\) for seed number 2, "
        "or --config=NAME:seeds=2 for 2 seeds$"
    ),
    "--config.seeds=1": "write .* for seed number 1, .*:seeds=1 for one seed$",
    "--config.seeds=-1": r"write --config.seeds=\(0, 1\) for seeds 0 and 1$",
    "--config.seeds=0": r"write --config.seeds=\(0,\) for seed number 0$",
    "--config.stages=2": r"write \(2,\) for a list of only 2$",
    "--config.stages.1.epochs=2": "no such entry 1; it has none",
    "--config.seeds=all": "--config.seeds: must be a list such as",
    **dict.fromkeys(
        [
            *("--config.seeds=(1_0,)", "--config.seeds=(0x10,)"),
            *(
                "--config.seeds=(0x10, 1)",
                "--config.seeds=[0o17]",
                "--config.seeds=0b1",
            ),
            "--config.inputs=({'name': 'mixup', 'p': 1e400},)",
            "--config.optim={'name': 'sgd', 'rate': 0x1}",
        ],
        "must have numbers in plain digits, such as 1000 or 1e-3, got '.*'; correct it",
    ),
    "--config.seeds=": "must be a list such as .*, got nothing",
    "--config.optim.rate=(0.1,)": "must be a finite number .*, got '\\(0.1,\\)'",
    "--config.optim.rate=1_0": "must be a finite number .*, got '1_0'",
    "--config.optim.rate=nan": "must be a finite number .*, got 'nan'",
    "--config.optim.rate=1e999": "must be a finite number .*, got '1e999'",
    "--config.optim.rate=True": "must be a finite number .*, got 'True'",
    "--config.optim.rate=": "must be a finite number .*, got nothing",
    "--config.optim.rate": "must have a value: --config.optim.rate=VALUE",
    "--config.train.batch=1e3": "must be a whole number .*, got '1e3'",
    "--config.train.batch=1_000": "must be a whole number .*, got '1_000'",
    "--config.train.batch=3.0": "must be a whole number .*, got '3.0'",
    "--config.train.batch=True": "must be a whole number .*, got 'True'",
    "--config.train.batch=\uff13": "must be a whole number",
    "--config.run.decisions=no": "must be True or False, got 'no'",
    "--config.run.decisions=2": "must be True or False, got '2'",
    "--config.fix.init=x": "must be a whole number .*, got 'x'",
    "--config.optim=3": "must be entries such as .*, got '3'",
    "--config.optim.lrr=1": "no such entry 'lrr'; Known: .*rate.*flags change only",
    "--config.optim..rate=1": "must have a key such as optim.rate",
    "--config.=1": "must have a key such as optim.rate",
    "--config.inputs[0].p=1": "no such entry 0; it has none",
    "--config.inputs[\u0660].p=1": "must have a key such as .* in digits 0-9",
    f"--config.inputs[{'1' * 5000}].p=1": "must have a key such as optim.rate",
    "--config.epochs.x=1": "epochs has no entries",
}


@pytest.mark.parametrize("change", REFUSED)
def test_a_text_of_another_type_is_refused_with_an_example(change):
    with pytest.raises(ValueError, match=REFUSED[change]) as refused:
        jc.load(BASE, [change], flag="config")
    line = str(refused.value)
    assert line.startswith("--config.") and "\n" not in line and "<class" not in line


@cases.each("text", ["0x10", "0o17", "0b1", "1e400", "-1_0", "(0x10, None)"])
def test_an_entry_without_a_type_takes_numbers_in_plain_digits_alone(text):
    named = "jbias:suites/biases:smoke"
    must = "--suite.run.extra: must have numbers in plain digits, .* put text in quotes"
    with pytest.raises(ValueError, match=must):
        jc.load(named, [f"--suite.run.extra={text}"], flag="suite")
    suite = jc.load(named, [f"--suite.run.extra={text!r}"], flag="suite")
    assert suite.run.extra == text
    path = f"models/{text}.npz"
    suite = jc.load(named, [f"--suite.run.extra={path}"], flag="suite")
    assert suite.run.extra == path


@cases.each("text", ["1if 1else 2", r"'\d'"])
def test_reading_a_value_warns_of_nothing(text):
    program = (
        "import warnings; warnings.simplefilter('always'); from jbias import config; "
        "from jbias.launch import search_space; "
        f"config.parse_value({text!r}); search_space.parse('key', {text!r})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "SyntaxWarning" not in done.stderr


def test_an_entry_is_changed_once():
    twice = ["--config.optim.rate=0.1", "--config.optim.rate=0.2"]
    with pytest.raises(ValueError, match="must be given once.*leave one of them out"):
        jc.load(BASE, twice, flag="config")
    assert jc.load(BASE, twice[:1] * 2, flag="config").optim.rate == 0.1


def test_an_entry_of_a_list_is_changed_by_its_number():
    words = ["--config.inputs=({'name': 'mixup'}, {'name': 'cutmix'})"]
    words += ["--config.inputs[1].name=fmix"]
    config = jc.load(BASE, words, flag="config")
    assert [part["name"] for part in config.inputs] == ["mixup", "fmix"]


@cases.each("key", ["stages[1].optim.rate", "stages.1.optim.rate"])
def test_a_stage_is_named_by_its_number_in_brackets_or_after_a_dot(key):
    config = jc.load("jbias:dfr:smoke", [f"--config.{key}=0.5"])
    rates = [stage.get("optim", config.optim)["rate"] for stage in config.stages]
    assert rates[1] == 0.5 != rates[0]
    both = [f"--config.{key}=0.5", "--config.stages[1].optim.rate=0.1"]
    with pytest.raises(ValueError, match="must be given once"):
        jc.load("jbias:dfr:smoke", both)


ONE_NUMBER = (
    r"config.seeds: must be a list.*, got '?2'?; write .*config.seeds=\(2,\) for seed "
    "number 2, or --config=NAME:seeds=2 for 2 seeds$"
)


@pytest.mark.parametrize(
    "words",
    [
        (plan, f"--config={BASE}", "--on=cpu", "--config.seeds=2"),
        (study, f"--config={BASE}", "--dry-run", "--config.seeds=2"),
        (sweep, "run", f"--config={BASE}", "--dry-run", "--config.seeds=2"),
        (sweep, "run", f"--config={BASE}", "--dry-run", "--config.seeds=[2, 3]"),
    ],
    ids=lambda words: f"{words[0].__name__} {words[-1]}",
)
def test_commands_refuse_a_number_for_the_seeds(words, tmp_path, capsys):
    """The line names both meanings of the number; an axis is a number in each of its runs."""
    command, *arguments = words
    workdir = [] if command is plan else [f"--workdir={tmp_path}"]
    assert command.main([*arguments, *workdir]) == 2
    error = capsys.readouterr().err.strip()
    assert error.count("\n") == 0 and re.search(ONE_NUMBER, error)


def test_a_config_with_a_number_for_the_seeds_is_refused():
    """Values that Python assigns to a plain mapping are not converted, but checked."""
    entries = {**jc.to_dict(jc.load(BASE)), "seeds": 2}
    with pytest.raises(ValueError, match=ONE_NUMBER):
        run_spec.RunSpec.from_config(entries)


def test_a_suite_gets_entries_that_it_lacks():
    named = "jbias:suites/biases:smoke"
    words = ["--suite.run.precision=float32", "--suite.run.extra=(1, 2)"]
    suite = jc.load(named, words, flag="suite")
    assert (suite.run.precision, suite.run.extra) == ("float32", (1, 2))
    with pytest.raises(ValueError, match="--suite.size: must be a whole number"):
        jc.load(named, ["--suite.size=(32,)"], flag="suite")


CONFIG_OF_THE_COMMAND = """
import json, sys
from absl import flags
from jbias import config, main
for change in sys.argv[2:]:
    try:
        main._parse(["jbias", f"--config={sys.argv[1]}", change])
        read = config.to_dict(main._CONFIG.value)
    except SystemExit as ended:
        read = ended.code
    print(json.dumps(read))
    flags.FLAGS.unparse_flags()
"""


def test_the_command_a_sweep_and_python_read_the_same():
    """Each text gives the same config, or is refused, in all three ways."""
    changes = [*ACCEPTED, *REFUSED]
    words = [sys.executable, "-c", CONFIG_OF_THE_COMMAND, BASE, *changes]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    for change, line in zip(changes, done.stdout.splitlines(), strict=True):
        if change in REFUSED:
            assert json.loads(line) == 2, change
            with pytest.raises(ValueError, match="--config"):
                trials.read_config(BASE, (change,))
            continue
        expected = jc.to_dict(jc.load(BASE, [change], flag="config"))
        assert json.loads(line) == expected, change
        assert trials.read_config(BASE, (change,)) == expected, change
    assert done.stderr.count("\n") == len(REFUSED)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "text", ["1_000", "1e3", "nan", "inf", "\uff13", "0x10", "1.0"]
)
def test_whole_numbers_after_the_colon_are_read_as_in_flags(text):
    with pytest.raises(ValueError, match="seeds must be a whole number"):
        jc.parse_arg(f"seeds={text}", seeds=1)


@pytest.mark.parametrize("text", ["1_0", "nan", "inf", "1e999", "\uff13", "0x10", ""])
def test_numbers_after_the_colon_are_read_as_in_flags(text):
    with pytest.raises(ValueError, match="p must be a number"):
        jc.parse_arg(f"p={text}", p=1.0)


BROKEN = {
    "import sys\ndef get_config(arg):\n    sys.exit(0)\n": r":3: calls sys.exit\(0\)",
    "raise SystemExit('done')\n": r":1: calls sys.exit\('done'\)",
    "def get_config(arg):\n    return {}['a']\n": ":2: KeyError: 'a'",
    "def get_config(arg):\n    return get_config(arg)\n": "RecursionError",
    "def get_config(arg)\n    return 1\n": "SyntaxError",
    "get_config = 3\n": "must define get_config",
    "def get_config(arg):\n    return 3\n": "must return an ml_collections.ConfigDict",
    "def get_config(arg):\n    raise ValueError('no such thing')\n": "no such thing",
    "import nothing_of_this_name\n": "No module named",
}


@pytest.mark.parametrize("code", BROKEN)
def test_any_error_of_config_code_is_one_line(code, tmp_path, capsys):
    path = tmp_path / "mine.py"
    path.write_text(code)
    with pytest.raises(ValueError, match=BROKEN[code]):
        jc.load(str(path), flag="config")
    with pytest.raises(SystemExit) as ended:
        main._parse(["jbias", f"--config={path}"])
    captured = capsys.readouterr()
    assert ended.value.code == 2
    assert captured.err.startswith("jbias: ") and captured.err.count("\n") == 1


@cases.each(
    "code",
    ["import os\nos._exit(0)\n", "import os\ndef get_config(arg):\n    os._exit(0)\n"],
)
def test_a_config_that_ends_the_process_at_once_is_an_error(code, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(code)
    program = f"from jbias import config; config.load({str(path)!r}, flag='config')"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    line = f"jbias: error in {path}: os._exit(0) ended the program; remove the call\n"
    assert done.stderr == line


def test_a_config_without_parameters_is_read(tmp_path):
    path = tmp_path / "mine.py"
    body = "return ml_collections.ConfigDict({'a': 1})"
    path.write_text(f"import ml_collections\ndef get_config():\n    {body}\n")
    assert jc.load(str(path), flag="config").a == 1
    with pytest.raises(ValueError, match="takes no arguments, got 'x=1'"):
        jc.load(f"{path}:x=1", flag="config")


@cases.each("stage", ["stages.1", "stages[1]"])
def test_a_stage_is_one_entry_in_both_spellings(stage, tmp_path):
    """The option of a user's function is known, as its name is changed first."""
    path = tmp_path / "alg.py"
    path.write_text("def make(net, *, strength: float = 1.0):\n    pass\n")
    config = jc.load("jbias:infodrop:smoke", flag="config")
    changes = [
        f"--config.{stage}.algo.strength=2",
        f"--config.stages[1].algo.name={path}:make",
    ]
    jc.change(config, changes, flag="config")
    assert config.stages[1]["algo"]["strength"] == 2.0
