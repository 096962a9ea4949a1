"""Errors in configs are one line with the file, the line and the entry."""

import re

import ml_collections
import pytest

from jbias import config as jc

FILE = """\
import ml_collections


def get_config(arg=None):
    c = ml_collections.ConfigDict()
    c.epochs = 2.0
    c.seeds = (0, 1)
    c.label = ""
    c.optim = dict(name="sgd", rate=0.1, schedule=dict(name="cosine"))
    {line}
    return c


def set_rate(c):
    c.optim.rate = "fast"
"""
AT = 10  # The line of the file that has the mistake.

# Lines of a user's file, and what is said of each after the file and the line.
MISTAKES = {
    "c.optim.rate = 'x'": "config.optim.rate must be a number, got 'x'; "
    "assign a value such as 0.1",
    "c.optim['rate'] = [0.1]": "config.optim.rate must be a number, got [0.1]; "
    "assign a value such as 0.1",
    "c.optim.update({'rate': 'x'})": "config.optim.rate must be a number, got 'x'; "
    "assign a value such as 0.1",
    "c.optim.schedule.name = 3": "config.optim.schedule.name must be text, got 3; "
    "assign a value such as 'cosine'",
    "c.label = 3": "config.label must be text, got 3; correct the value",
    "c.seeds = 3": "config.seeds must be a list, got 3; assign a value such as (0, 1)",
    "c.optim = 'sgd'": "config.optim must be entries, got 'sgd'; "
    "assign them one by one, such as config.optim.name = ...",
    "c.optim.schedule = object()": "config.optim.schedule must be entries, got a value "
    "of type object; assign them one by one, such as config.optim.schedule.name = ...",
    "c.optim.nosuch.x = 1": "config.optim has no entry 'nosuch'; "
    "Known: name, rate, schedule",
    "print(c.optim['rat'])": "config.optim has no entry 'rat'; did you mean 'rate'? "
    "Known: name, rate, schedule",
    "del c.epoch": "config has no entry 'epoch'; did you mean 'epochs'? "
    "Known: epochs, label, optim, seeds",
    "c.get_ref('epoch')": "config has no entry 'epoch'; did you mean 'epochs'? "
    "Known: epochs, label, optim, seeds",
    "c.lock(); c.optim.rat = 1": "config.optim has no entry 'rat'; did you mean 'rate'? "
    "Known: name, rate, schedule; nothing can be added here",
    "c.optim['a.b'] = 1": "config.optim: the name of an entry must be text without "
    "dots, as nested entries are assigned one by one, got 'a.b'; correct the name",
    "c = ml_collections.FrozenConfigDict(c); c.epochs = 3": "config.epochs cannot be "
    "changed, as its config is frozen; assign before that",
    "c.get_ref('epochs').set('two')": "config.epochs must be a number, got 'two'; "
    "correct the value",
    "c.size = ml_collections.config_dict.required_placeholder(int); c.size + 1": "config."
    "size has no value; assign a whole number",
    "c.size = ml_collections.config_dict.required_placeholder(int); c.size = 'x'": "config."
    "size must be a whole number, got 'x'; correct the value",
    "c.update(3)": "config: no entry could be read or changed so ('int' object has no "
    "attribute 'items'); correct the line",
    "c.optim()": "TypeError: 'config' object is not callable; JBIAS_TRACEBACK=1 shows "
    "the whole traceback",
    "raise ValueError('batch must be even')": "batch must be even",
    "int('x')": "invalid literal for int() with base 10: 'x'",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_an_error_in_a_file_names_line_entry_and_remedy(line, tmp_path):
    """Neither exceptions nor classes of the package that holds configs reach the user."""
    path = tmp_path / "mine.py"
    path.write_text(FILE.format(line=line))
    with pytest.raises(ValueError) as caught:
        jc.load(str(path), flag="config")
    assert str(caught.value) == f"--config: {path}:{AT}: {MISTAKES[line]}"


def test_a_mistake_in_a_function_of_the_file_has_the_function_s_line(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(FILE.format(line="set_rate(c)"))
    place = re.escape(
        f"{path}:{FILE.count(chr(10))}: config.optim.rate must be a number"
    )
    with pytest.raises(ValueError, match=place):
        jc.load(str(path), flag="config")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("c.x = {1}", "config.x: must be text, a number, .* got {1}"),
        ("c.x = [dict(y=print)]", r"config.x\[0\].y: must be text, .* of type builtin"),
        ("c[0] = 1", "config: the names of all entries must be text"),
        (
            "c.x = ml_collections.config_dict.required_placeholder(int)",
            "config.x has no value; assign a whole number",
        ),
    ],
)
def test_values_that_cannot_be_stored_are_refused_by_entry(line, words, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(FILE.format(line=line))
    config = jc.load(str(path), flag="config")
    with pytest.raises(ValueError, match=words):
        jc.to_dict(config)


def test_a_plain_dict_is_a_config_too(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("def get_config():\n    return {'optim': {'rate': 0.1}}\n")
    config = jc.load(path, ["--config.optim.rate=0.2"], flag="config")
    assert jc.to_dict(config) == {"optim": {"rate": 0.2}}
    path.write_text("def get_config():\n    return {'a.b': 1}\n")
    with pytest.raises(ValueError, match="must be text without dots"):
        jc.load(path, flag="config")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ("optim.rate=1", "changes: must be a list of texts such as .*, got 'optim"),
        ({"optim.rate": 1}, "changes: must be a list of texts"),
        ([("optim.rate", 1)], "changes: must be a list of texts"),
        (3, "changes: must be a list of texts"),
        (["mine={'a.b': 1}"], "--suite.mine: .* must be text without dots"),
    ],
)
def test_changes_that_are_none_are_one_line(changes, words):
    config = ml_collections.ConfigDict({"optim": {"rate": 0.1}})
    with pytest.raises(ValueError, match=words):
        jc.change(config, changes, flag="suite")


def test_files_without_a_config_cannot_be_changed_or_loaded():
    with pytest.raises(ValueError, match="must be what jbias.config.load returns"):
        jc.change({"rate": 1}, ["rate=2"], flag="config")
    frozen = ml_collections.FrozenConfigDict({"rate": 1})
    with pytest.raises(ValueError, match="config.rate cannot be changed"):
        jc.change(frozen, ["rate=2"], flag="config")
    with pytest.raises(ValueError, match="must be a path or jbias:NAME, got None"):
        jc.load(None, flag="config")
