"""Options of a function in a user's file are read from the command line, as typed there."""

import pytest

from jbias import build, extensions, models, signatures
from jbias import config as jc
from tests import cases

FILE = """\
import functools
import nothing_that_is_installed
from flax import linen as nn

SITES = ("stage1", "stage2")


def make(net, *, strength=0.5, steps=3, soft=False, mode="a", sites=("stage1",),
         maybe=None, share: float = 1, count: "int | None" = None, named=SITES):
    raise SystemExit(3)


def plain(net):
    pass


def free(net, **options):
    pass


@functools.cache
def decorated(net, rate=0.1):
    pass


def transform(p=0.5):
    pass


def discs(split, *, size, noise=0.5):
    pass


class Net(nn.Module):
    classes: int
    depth: int = 3
    sites: tuple[str, ...] = ()


made = functools.partial(make, steps=2)
"""


@pytest.fixture
def path(tmp_path, monkeypatch):
    """Write a file that cannot be run into the working directory; return its path."""
    (tmp_path / "mine.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    return "mine.py"


def read_algo(*changes, function="make"):
    words = [f"--config.algo.{change}" for change in changes]
    words.append(f"--config.algo.name=mine.py:{function}")
    config = jc.to_dict(jc.load("jbias:erm:smoke", words, flag="config"))
    return {key: value for key, value in config["algo"].items() if key != "name"}


@cases.each(
    ("change", "expected"),
    [
        ("strength=2", 2.0),
        ("strength=1e-3", 1e-3),
        ("steps=5", 5),
        ("soft", True),
        ("soft=false", False),
        ("mode=b", "b"),
        ("mode=3", "3"),
        ("sites=('stage2', 'stem')", ["stage2", "stem"]),
        ("maybe=0.5", 0.5),
        ("maybe=text", "text"),
        ("share=2", 2.0),
        ("count=4", 4),
        ("count=None", None),
        ("named=('stem',)", ["stem"]),
    ],
)
def test_an_option_has_the_type_of_its_default_or_annotation(change, expected, path):
    """The order of the flags does not matter, and the file does not run."""
    key, _, _ = change.partition("=")
    value = read_algo(change)[key]
    assert value == expected and type(value) is type(expected)


@cases.each(
    ("change", "function", "words"),
    [
        ("strength=x", "make", "algo.strength: must be a finite number .* got 'x'"),
        ("steps=0.5", "make", "write steps=3.0 in mine.py:make to allow decimals"),
        ("steps=x", "make", "whole number such as 1000, in digits only, got 'x'$"),
        ("soft=2", "make", "must be True or False"),
        ("sites=stem", "make", r"write \('stem',\) for a list of only 'stem'"),
        ("count=x", "make", "must be a whole number"),
        ("mode", "make", "must have a value: --config.algo.mode=VALUE"),
        ("net=1", "make", "has no option 'net'"),
        ("columns=1", "make", "has no option 'columns'"),
        ("strength=1", "plain", "has no option 'strength'; there is none to choose"),
        ("sites[0]=stem", "make", "no such entry 'sites'"),
    ],
)
def test_invalid_values_of_options_are_refused_with_an_example(
    change, function, words, path
):
    with pytest.raises(ValueError, match=words):
        read_algo(change, function=function)


def test_a_misspelled_option_is_refused_with_the_nearest_and_all(path):
    words = (
        "mine.py:make has no option 'strenght'; did you mean 'strength'.* sites, soft"
    )
    with pytest.raises(ValueError, match=words):
        read_algo("strenght=1")


@cases.each("function", ["free", "decorated", "made", "absent"])
def test_options_that_the_text_alone_does_not_show_are_checked_later(function, path):
    assert read_algo("rates=2", function=function) == {"rates": 2}


def test_an_unknown_option_of_a_made_function_is_refused_when_it_is_called(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("from jbias.algos import erm\nmake = erm.make\n")
    net = models.MODELS["cnn"](16, width=4)
    with pytest.raises(ValueError, match="unknown option 'rate'; there is none"):
        build.algorithm({"name": f"{file}:make", "rate": 2}, net)


@cases.each(
    ("changes", "key", "expected"),
    [
        (["model.name=mine.py:Net", "model.depth=5"], "model", {"depth": 5}),
        (["model.sites=('a',)", "model.name=mine.py:Net"], "model", {"sites": ["a"]}),
        (["train.data=mine.py:discs", "train.noise=2"], "train", {"noise": 2.0}),
        (["train.noise=2", "train.data=mine.py:discs"], "train", {"noise": 2.0}),
    ],
)
def test_other_parts_have_options_too(changes, key, expected, path):
    words = [f"--config.{change}" for change in changes]
    config = jc.to_dict(jc.load("jbias:erm:smoke", words, flag="config"))
    assert config[key].items() >= expected.items()


def test_a_transform_has_no_argument_before_its_options(path):
    options = signatures.read(path, "transform", positional=0).options
    assert options == {"p": signatures.Option(kind=float, default=0.5)}
    config = jc.load("jbias:mixup:smoke", flag="config")
    config.inputs = (dict(name="mine.py:transform"),)
    jc.change(config, ["--config.inputs[0].p=1"], flag="config")
    assert config.inputs[0]["p"] == 1.0
    with pytest.raises(ValueError, match="has no option 'q'; Known: p"):
        jc.change(config, ["--config.inputs[0].q=1"], flag="config")


def test_unknown_entries_of_a_user_defined_set_suggest_known_names(path):
    words = ["--config.train.data=mine.py:discs", "--config.train.btach=3"]
    with pytest.raises(ValueError, match="did you mean 'batch'.*noise"):
        jc.load("jbias:erm:smoke", words, flag="config")


def test_options_of_an_algorithm_of_ours_are_in_its_own_config():
    words = ["--config.algo.name=mixstyle", "--config.algo.p=0.3"]
    with pytest.raises(ValueError, match="--config=jbias:mixstyle has the options"):
        jc.load("jbias:erm:smoke", words, flag="config")


@cases.each("text", ["def make(net:\n", "\0", ""])
def test_a_file_that_is_no_python_has_no_known_options(text, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(text)
    assert signatures.functions(str(path)) == []
    assert not signatures.read(str(path), "make").is_complete


SEVERAL = """\
def a(net): pass
class B: pass
def _c(): pass
"""


@cases.each(
    ("text", "name", "words"),
    [
        ("def make(net): 1/0\n", "mine.py", "; write mine.py:make$"),
        ("def loss(net): 1/0\n", "mine.py", "; write mine.py:loss$"),
        ("a = 1/0\n", "mine.py", "; write mine.py:make$"),
        (SEVERAL, "mine.py", "; write mine.py:NAME, of a, B$"),
        ("def make(net): 1/0\n", "mine.py:", "; write mine.py:make$"),
        ("", "mine:make", "no file 'mine'; write mine.py:make$"),
        ("", "other.py", "no file 'other.py'; give path/to/file.py:make$"),
    ],
)
def test_a_file_without_its_function_names_the_function(
    text, name, words, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(text)
    for ask in (extensions.check_name, extensions.find):
        with pytest.raises(ValueError, match=f"^config.algo.name: .*{words}"):
            ask("config.algo.name", name, build.ALGORITHMS)
