"""Anybody's model: what it is asked, what it may answer, and what is left of its failures."""

import functools
import io
import json
import pathlib
import subprocess
import sys
import unicodedata

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import jbias
from jbias import data, evaluate
from jbias.evals import (
    cue_conflict,
    decisions,
    inference,
    networks,
    predictors,
    prepared_sets,
    probe_registry,
)
from jbias.runtime import messages
from tests import cases

SUITE = """
import ml_collections

def get_config(text=""):
    c = ml_collections.ConfigDict(dict(size=32, run=dict(batch=16)))
    c.sets = dict(edge=dict(data="shapes", split="edge", n=48, correlation=0.99))
    if text:
        c.sets.own = dict(data="folder", split="test", root=text)
    c.measures = dict(
        accuracy=dict(probe="plain", sets=tuple(c.sets)),
        calibration=dict(sets=("edge",)),
        spectral=dict(sets=("edge",), cutoffs=(0.3, 0.5), draws=2),
        pgd=dict(sets=("edge",), steps=1),
    )
    return c
"""
EDGE = dict(size=32, n=48, correlation=0.99)
CLASSES = data.load("shapes", "edge", **EDGE).classes


def means(images):
    """Sixteen numbers of each image, of its parts."""
    x = np.asarray(images, np.float32).reshape(len(images), 4, 8, 4, 8, 3)
    return x.mean((2, 4, 5)).reshape(len(images), 16)


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    path = tmp_path_factory.mktemp("suite") / "suite.py"
    path.write_text(SUITE)
    return str(path)


def ask(one, **options):
    images, one = np.zeros((3, 8, 8, 3), np.float32), predictors.as_predictor(one)
    return predictors.query(one, images, "ab", "3 of x", **options)


class Tensor:
    """A stand-in for PyTorch's tensor, with the methods that are called."""

    def __init__(self, array):
        self.array = array

    def detach(self):
        return self

    float = cpu = detach

    def __array__(self, dtype=None, copy=None):
        return self.array


def test_logits_probabilities_and_names_are_told_apart():
    logits = np.array([[3, 1], [0, 2], [0.1, 0.2]])
    for given in (logits, logits.tolist(), Tensor(logits)):
        kind, found = ask(lambda images, given=given: given)
        assert kind == "logits" and found.dtype == np.float32
        np.testing.assert_array_equal(found, logits.astype(np.float32))
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    kind, found = ask(lambda images: shares)
    assert kind == "probabilities"
    np.testing.assert_allclose(np.exp(found), shares, rtol=1e-5)
    kind, found = ask(lambda images: ["b", "a", "b"])
    assert kind == "names" and found.argmax(1).tolist() == [1, 0, 1]
    assert ask(lambda images: shares, kind="logits")[0] == "logits"


@cases.each(
    "answer",
    {
        "probability above 1": (np.ones((3, 2)), "probabilities", "rows that sum to 2"),
        "too few rows": (np.ones((2, 2)), "", "must give 3 rows of 2 numbers"),
        "one row": (np.ones(2), "", r"got float64 \(2,\)"),
        "nothing": (None, "", "must give 3 rows of 2 numbers"),
        "nan": (np.full((3, 2), np.nan), "", "must give finite numbers, got nan for 3"),
        "inf": (np.diag([1, 1, np.inf])[:, 1:], "", "got inf for 1 of them"),
        "unknown": (["a", "b", "cat"], "", "unknown class 'cat'"),
        "names": (["a", "b", "a"], "logits", "must give logits, got names"),
        "numbers": (np.ones((3, 2)), "names", "must give names, got logits"),
    }.values(),
)
def test_what_is_no_answer_is_refused_in_one_line(answer):
    given, kind, said = answer
    with pytest.raises(ValueError, match=said) as refused:
        ask(lambda images: given, kind=kind)
    assert "asked about 3 of x" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_error_inside_names_the_file_and_the_line():
    def broken(images):
        raise RuntimeError("CUDA\n out of memory")

    line = broken.__code__.co_firstlineno + 1
    with pytest.raises(ValueError, match="RuntimeError: CUDA out of memory") as refused:
        ask(broken)
    said = str(refused.value)
    assert f"{__file__}:{line}, in broken" in said and "\n" not in said
    assert "asked about 3 of x; correct it and repeat the command, which" in said


@cases.each("form", ["float", "uint8"])
def test_images_come_as_they_are_asked_for(form):
    held = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), np.uint8)
    seen, constants = [], dict(mean=0.5, std=(0.1, 0.2, 0.3)) if form == "float" else {}
    one = predictors.Predictor(
        lambda images: seen.append(images) or means(images),
        classes=CLASSES,
        images=form,
        **constants,
    )
    network = predictors.open_predictor(one, 32, print)
    shown = inference.StimulusOrigin("edge", "", np.arange(4))
    network.predict(held.astype(np.float32) / 255, shown)
    trial, last = seen
    assert trial.shape == (16, 32, 32, 3) and trial.dtype == last.dtype
    if form == "uint8":
        np.testing.assert_array_equal(last, held)
    else:
        expected = (held / 255 - 0.5) / np.array([0.1, 0.2, 0.3])
        np.testing.assert_allclose(last, expected, rtol=1e-5, atol=1e-6)


@cases.each(
    "options",
    {
        "size": (dict(size=224), "takes images of 224 pixels, and the suite has 32"),
        "form": (dict(images="bytes"), "images"),
        "outputs": (dict(outputs="scores"), "outputs"),
        "constants": (dict(images="uint8", mean=0.5), "mean and std: must be left out"),
        "two": (dict(std=(1, 2)), "must be three numbers, or one"),
    }.values(),
)
def test_what_cannot_be_is_refused_before_anything_is_asked(options):
    given, said = options
    with pytest.raises(ValueError, match=said):
        one = predictors.as_predictor(pytest.fail, classes=CLASSES, **given)
        predictors.open_predictor(one, 32, print)


def test_other_answers_make_another_network_unless_a_version_is_said():
    def known(scale, **options):
        one = predictors.Predictor(
            lambda images: scale * means(images), classes=CLASSES, name="x", **options
        )
        return networks.identity(predictors.open_predictor(one, 32, print))

    assert known(1.0) == known(2.0) != known(-1.0)
    assert known(1.0, version="a") == known(-1.0, version="a") != known(1.0)
    assert known(1.0) != known(1.0, mean=0.1)


def test_a_model_that_dies_goes_on_where_it_was_and_counts_as_one_that_did_not(
    suite, tmp_path, capsys
):
    asked, fails = [], []

    def model(images):
        if len(asked) in fails:
            fails.remove(len(asked))
            raise ConnectionError("the server is gone")
        asked.append(len(images))
        return means(images)

    only = "accuracy", "calibration", "spectral"
    of = dict(classes=CLASSES, name="mine", only=only)
    whole = jbias.measure(model, suite, out=tmp_path / "whole", **of)
    count = len(asked)
    assert not whole.left_out and whole.folder == tmp_path / "whole/mine"
    edge = data.load("shapes", "edge", **EDGE)
    right = means(edge.images / np.float32(255)).argmax(1) == edge.columns["label"]
    rows = whole.numbers.set_index(["condition", "metric"])
    assert rows.loc[("", "accuracy"), "count"] == right.sum()
    asked.clear()
    fails += [2, 6]  # Within accuracy, and again within spectral.
    out = tmp_path / "broken"
    broken = jbias.measure(model, suite, out=out, **of)
    assert len(broken.left_out) == 2 and "the server is gone" in broken.left_out[0]
    assert len(list(out.glob("mine/underway/*"))) == 2
    again = jbias.measure(model, suite, out=out, **of)
    assert not again.left_out and not (out / "mine/underway").exists()
    # Nothing else is asked twice than the trial, and what calibration had shared.
    assert len(asked) == count + 1 + 3
    columns = ["dataset", "condition", "metric", "value", "count", "n"]
    assert again.numbers[columns].equals(whole.numbers[columns])
    for path in (tmp_path / "whole").rglob("*.parquet"):
        other = out / path.relative_to(tmp_path / "whole")
        one, two = map(decisions.read_conditions, (path, other))
        for name in one:
            np.testing.assert_array_equal(one[name].prediction, two[name].prediction)
    asked.clear()
    jbias.measure(model, suite, out=out, **of)
    assert asked == [16]
    with pytest.raises(ValueError, match="holds measures of another network"):
        jbias.measure(lambda images: -means(images), suite, out=out, **of)


def test_a_first_try_that_measured_nothing_is_corrected(suite, tmp_path):
    of = dict(name="mine", out=tmp_path, only=["accuracy"])
    with pytest.raises(ValueError, match="nothing was measured of mine"):
        jbias.measure(means, suite, classes=[*map(str, range(16))], **of)
    found = jbias.measure(means, suite, classes=CLASSES, **of)
    assert len(found.numbers) and not found.left_out


def folder(path):
    """Files of two of the classes, one of them no square."""
    rng = np.random.default_rng(0)
    for name, shape in (("circle", (40, 40, 3)), ("ring", (50, 40, 3))):
        (path / "test" / name).mkdir(parents=True)
        pixels = rng.integers(0, 256, shape, np.uint8)
        Image.fromarray(pixels).save(path / "test" / name / "a.png")
    return [path / "test" / name / "a.png" for name in ("circle", "ring")]


def test_names_alone_make_decisions_and_files_come_as_they_are_stored(suite, tmp_path):
    stored, seen = [p.read_bytes() for p in folder(tmp_path / "set")], []

    def model(given):
        seen.extend(given)
        images = [Image.open(io.BytesIO(one)).resize((32, 32)) for one in given]
        return [CLASSES[k] for k in means(np.stack(images)).argmax(1)]

    found = jbias.measure(
        predictors.Predictor(model, CLASSES, name="words", images="files"),
        f"{suite}:{tmp_path / 'set'}",
        out=tmp_path / "out",
    )
    assert {*stored} < {*seen} and {one[:4] for one in seen} == {b"\x89PNG"}
    lacking = dict(one.split(": ", 1) for one in found.left_out)
    assert "needs images that are made" in lacking["spectral@edge"]
    assert "needs probabilities or logits" in lacking["calibration@edge"]
    assert "needs a network's gradients" in lacking["pgd@edge"] and len(lacking) == 3
    edge = data.load("shapes", "edge", **EDGE)
    right = (means(edge.images).argmax(1) == edge.columns["label"]).sum()
    rows = found.numbers.set_index(["dataset", "metric"])
    assert rows.loc[("edge", "accuracy"), "count"] == right
    assert rows.loc[("own", "accuracy"), "n"] == 2


CONFLICTS = """
import ml_collections

def get_config(text=""):
    c = ml_collections.ConfigDict(dict(size=32, run=dict(batch=16)))
    c.sets = dict(conflict=dict(data="shapes", split="cue_conflict", n=240))
    c.measures = dict(shape_bias=dict(sets=("conflict",)))
    return c
"""


def test_probabilities_rank_cues_as_logits_do_and_names_do_not(tmp_path):
    (tmp_path / "suite.py").write_text(CONFLICTS)

    def probabilities(images):
        share = np.exp(8 * means(images))
        return share / share.sum(1, keepdims=True)

    words = lambda images: [CLASSES[k] for k in means(images).argmax(1)]
    found, common = {}, dict(classes=CLASSES, out=tmp_path / "out")
    for answer in (means, probabilities, words):
        name = answer.__name__.strip("<>")
        one = jbias.measure(answer, str(tmp_path / "suite.py"), name=name, **common)
        found[name] = one.numbers.set_index("metric")["value"]
    conflict = data.load("shapes", "cue_conflict", size=32, n=240)
    shape, texture = conflict.columns["label"], conflict.columns["texture"]
    of = means(conflict.images / np.float32(255))
    differ = shape != texture
    ranks = cue_conflict.label_ranks(of, shape)[differ]
    mrr = {name: values.get("mrr_shape") for name, values in found.items()}
    expected = pytest.approx(cue_conflict.mean_reciprocal_rank(ranks))
    assert mrr == {"means": expected, "probabilities": expected, "lambda": None}
    assert found["lambda"]["shape_bias_undefined"] >= 0


def test_names_cannot_answer_where_some_of_them_answer_for_no_class():
    """By logits the likeliest of the set's classes is decided; a name has no other."""
    one = predictors.Predictor(lambda images: ["a"] * len(images), list("abc"))
    network = predictors.open_predictor(one, 32, print)
    assert not network.graded
    whole = np.array([[1, 0], [0, 0.5], [0, 0.5]], np.float32)
    for matrix in (None, whole, whole * [[1], [1], [0]]):
        rules = {"mean_prob": inference.DecisionRule(1, matrix)}
        none = np.zeros(1, int)
        given = prepared_sets.PreparedSet("x", none, none, {}, none, rules, ("d", "e"))
        of = "plain", probe_registry.make_plain(), network, given
        if matrix is None or matrix.any(1).all():
            prepared_sets.check_needs(*of)
        else:
            with pytest.raises(ValueError, match="answer for none of the set's"):
                prepared_sets.check_needs(*of)


def test_names_are_those_that_were_said_whatever_they_stand_for():
    given = {"gold": "n01443537", "other": "tench"}
    one = predictors.Predictor(lambda images: ["gold"] * len(images), given)
    network = predictors.open_predictor(one, 32, print)
    assert network.classes == ("n01443537", "n01440764") and network.space == "wnid"
    shown = inference.StimulusOrigin("x", "", np.arange(2))
    assert (network.predict(np.zeros((2, 32, 32, 3)), shown).argmax(1) == 0).all()


def test_constants_are_said_where_gradients_are():
    one = predictors.Predictor(means, CLASSES, apply=means)
    assert predictors.as_predictor(one, name="x").apply is means
    with pytest.raises(ValueError, match="std: must be said where gradients are"):
        predictors.as_predictor(one, std=(1, 1, 1))


MINE = """
import numpy as np
from jbias.evals import predictors
from beside import SCALE

def plain(images):
    return SCALE * images.reshape(len(images), -1)[:, :16]

def broken(images):
    return np.zeros(3)["x"]

declared = predictors.Predictor(plain, {classes}, name="said", images="uint8")
"""


@pytest.fixture
def mine(tmp_path):
    (tmp_path / "beside.py").write_text("SCALE = 2.0\n")
    (tmp_path / "mine.py").write_text(MINE.format(classes=CLASSES))
    (tmp_path / "names.txt").write_text("\n".join(CLASSES))
    return tmp_path / "mine.py"


def command(mine, suite, name, *more):
    args = f"--predict={mine}:{name}", f"--suite={suite}", "--only=accuracy"
    return evaluate.main([*args, *more, f"--out={mine.parent / 'out'}"])


def test_the_command_measures_a_function_of_a_file(mine, suite, capsys):
    names = f"--classes={mine.parent / 'names.txt'}"
    assert command(mine, suite, "plain", names, "--trained=shapes") == 0
    assert command(mine, suite, "declared") == 0
    assert command(mine, suite, "broken", names) == 1
    err = capsys.readouterr().err
    assert f"error in {mine}:10, in broken" in err and "Traceback" not in err
    out = pathlib.Path(mine.parent / "out")
    assert sorted(path.name for path in out.iterdir()) == ["plain", "said"]
    held = json.loads((out / "plain/config.json").read_text())
    assert held["train"]["data"] == "shapes" and held["run"]["images"] == "float"


@cases.each(
    "wrong",
    {
        "file": ("nowhere.py", "plain", "--predict: must be path/to/file.py:name"),
        "name": ("mine.py", "plian", "did you mean 'plain'?"),
    }.values(),
)
def test_a_function_that_is_not_there_is_refused(mine, suite, capsys, wrong):
    file, name, said = wrong
    assert command(mine.parent / file, suite, name) == 2
    assert said in capsys.readouterr().err


def test_python_s_own_names_of_a_file_are_not_offered(mine, suite, capsys):
    assert command(mine, suite, "main") == 2
    err = capsys.readouterr().err
    assert "unknown 'main'" in err and "broken" in err and "__" not in err


def test_flags_that_say_nothing_of_a_function_are_refused(capsys):
    for flag in ("--step=best", "--model=resnet18", "--zoo=x", "--once"):
        with pytest.raises(SystemExit):
            evaluate.main(["--predict=x.py:f", "--suite=y", flag])
        assert "has no effect with --predict" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        evaluate.main(["--predict=x.py:f", "--checkpoint=z", "--suite=y"])
    assert (
        "give one of --checkpoint, --predict, --decisions and --follow"
        in capsys.readouterr().err
    )


def two(images, labels):
    return images


async def later(images):
    return images


def by_and_by(images):
    yield images


class Model:
    def __init__(self, images=None):
        self.images = images

    def __call__(self, images):
        return means(images)

    def keyword_needed(self, images, *, scale):
        return images


@cases.each(
    ("function", "said"),
    [
        (
            two,
            r"called with one argument, .* got two\(images, labels\) \(missing a req",
        ),
        (lambda: 0, "called with one argument"),
        (Model().keyword_needed, "missing a required.* argument: 'scale'"),
        (
            functools.partial(two, labels=1, other=2),
            "called with one argument|unexpected",
        ),
        (later, "not be an async function"),
        (functools.partial(later), "not be an async function"),
        (by_and_by, "return its answers, not yield"),
        (Model, r"function of images, got .*; give an object of it, Model\(\.\.\.\)"),
    ],
)
def test_a_function_that_cannot_be_asked_is_refused_before_it_is(function, said):
    with pytest.raises(ValueError, match=said) as refused:
        predictors.Predictor(function, CLASSES)
    assert not isinstance(refused.value, messages.UserCodeError)
    assert "\n" not in str(refused.value)


def test_every_function_of_images_may_be_asked():
    for function in (
        means,
        Model(),
        functools.partial(two, labels=0),
        lambda images, scale=1: images,
        lambda *images: images,
        lambda images, **options: images,
        np.mean,
        {}.get,
    ):
        predictors.Predictor(function, CLASSES)


class WithGradient(Tensor):
    """A stand-in for PyTorch's tensors that become arrays only after `detach`."""

    def detach(self):
        return Tensor(self.array)

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.")


def test_rows_may_be_tensors_and_numbers_of_few_bits():
    logits = np.array([[3, 1], [0, 2], [1, 2]], np.float32)
    rows = [WithGradient(row) for row in logits]
    for given in (WithGradient(logits), rows, tuple(rows), jnp.bfloat16(logits)):
        np.testing.assert_array_equal(ask(lambda images, x=given: x)[1], logits)


@cases.each(
    ("answer", "said"),
    [
        (None, "got None"),
        ({"logits": np.ones((3, 2))}, r"got a dict of 1 \(str\); return its `logits`"),
        ([[1, 2], [3]], r"got a list of 2 \(list\)"),
        ((np.ones((3, 2)), np.ones((3, 5))), r"got a tuple of 2 \(ndarray\)"),
        ((x for x in range(3)), "got a generator"),
        (np.ones((3, 2), bool), "got bool"),
        (np.ones((3, 2), complex), "got complex128"),
        (np.full((3, 2), 1e39), "got inf for 3 of them"),
        (np.full((3, 2), -np.inf), "got -inf for 3 of them"),
        (np.array([[0, 1], [-np.inf, np.inf], [0, 1]]), "got inf for 1 of them"),
    ],
)
def test_an_answer_of_another_type_is_refused_by_its_type(answer, said):
    with pytest.raises(ValueError, match=said) as refused:
        ask(lambda images: answer)
    assert "\n" not in str(refused.value)


ENDING = """
import os, sys
def f(images):
    {end}
"""


@cases.each("end", ["sys.exit(0)", "raise SystemExit", "exit()"])
def test_a_function_that_ends_the_program_is_no_success(suite, tmp_path, capsys, end):
    """Nor does its file when it is run, nor a suite's."""
    body = ENDING.format(end=end)
    (tmp_path / "inside.py").write_text(body)
    (tmp_path / "atop.py").write_text(f"{body}f(0)\n")
    (tmp_path / "suite.py").write_text(f"{body}def get_config(text=''):\n    f(0)\n")
    names = tmp_path / "names.txt"
    names.write_text("\n".join(CLASSES))
    of = f"--classes={names}"
    for name, code in (("inside", 1), ("atop", 1)):
        assert command(tmp_path / f"{name}.py", suite, "f", of) == code
        said = capsys.readouterr().err
        assert f"{name}.py:4, in f: SystemExit" in said or "sys.exit" in said
    assert command(tmp_path / "inside.py", tmp_path / "suite.py", "f", of) == 2
    assert ": calls sys.exit(" in capsys.readouterr().err


@pytest.mark.slow
def test_a_function_that_ends_the_process_is_no_success(suite, tmp_path):
    (tmp_path / "mine.py").write_text(ENDING.format(end="os._exit(0)") + "f(0)\n")
    flags = f"--predict={tmp_path / 'mine.py'}:f", f"--suite={suite}"
    ran = subprocess.run(
        [sys.executable, "-m", "jbias.evaluate", *flags, f"--out={tmp_path / 'out'}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1 and "Traceback" not in ran.stderr
    assert "mine.py: os._exit(0) ended the program" in ran.stderr


@cases.each("offset", [0, 1e9, -1e9, 2**40])
@cases.each("kind", [np.float64, np.int64])
def test_numbers_with_a_large_common_part_keep_their_order(offset, kind):
    """Decisions equal NumPy's argmax of the outputs before they are rounded."""
    rng = np.random.default_rng(0)
    answers = rng.normal(size=(200, 16)) if kind is np.float64 else None
    answers = (
        rng.permuted(np.tile(np.arange(16), (200, 1)), axis=1)
        if answers is None
        else answers
    )
    answers = answers.astype(kind) + kind(offset)
    found = predictors._to_float32(answers)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found.argmax(1), answers.argmax(1))
    assert (np.argsort(found, axis=1) == np.argsort(answers, axis=1)).mean() > 0.99


def test_numbers_that_float32_tells_apart_stay_as_they_are():
    answers = np.random.default_rng(1).normal(size=(50, 10)).astype(np.float32)
    np.testing.assert_array_equal(predictors._to_float32(answers), answers)
    wide = answers.astype(np.float64)
    np.testing.assert_array_equal(predictors._to_float32(wide), answers)


@cases.each("kind", ["", "probabilities"])
def test_probabilities_of_64_bits_decide_as_the_same_ones_of_32(kind):
    """Some of them are 0 in 32 bits alone, as of a confident softmax of NumPy."""
    logits = np.random.default_rng(2).normal(size=(16, 10)) * 60
    wide = np.exp(logits - logits.max(1, keepdims=True))
    wide /= wide.sum(1, keepdims=True)
    assert ((wide > 0) & (wide.astype(np.float32) == 0)).sum() > 1
    answers = {}
    for dtype in (np.float32, np.float64):
        shares = wide.astype(dtype)
        one = predictors.Predictor(lambda images, shares=shares: shares)
        images, classes = np.zeros((16, 8, 8, 3), np.float32), "abcdefghij"
        given, found = predictors.query(one, images, classes, "16 of x", kind)
        assert given == "probabilities"
        answers[dtype] = found
    np.testing.assert_array_equal(answers[np.float64], answers[np.float32])
    expected = np.log(np.maximum(wide, np.finfo(np.float32).tiny))
    # Of a number that is rounded to 32 bits.
    np.testing.assert_allclose(answers[np.float64], expected, rtol=1e-6, atol=1e-6)


def test_a_masked_class_leaves_a_large_common_part_its_order():
    """NumPy's argmax of 64 bits is the oracle; -inf stays the mark of a masked class."""
    answers = 1e9 + np.array([[0, 1, 2, -np.inf], [3, 1, -np.inf, 2], [0, 1, 2, 3]])
    one = predictors.Predictor(lambda images: answers)
    _, found = predictors.query(one, np.zeros((3, 8, 8, 3)), "abcd", "3 of x")
    np.testing.assert_array_equal(found.argmax(1), answers.argmax(1))
    np.testing.assert_array_equal(np.isneginf(found), np.isneginf(answers))
    np.testing.assert_array_equal(found[0], [-2, -1, 0, -np.inf])


def test_names_are_classes_with_accents_composed_or_not():
    composed, apart = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))
    images = np.zeros((3, 8, 8, 3), np.float32)
    for known, other in ((composed, apart), (apart, composed)):
        one = predictors.Predictor(lambda images, x=(other, "tea", known): [*x])
        kind, found = predictors.query(one, images, [known, "tea"], "3 of x")
        assert kind == "names" and found.argmax(1).tolist() == [0, 1, 0]
    one = predictors.Predictor(lambda images: [apart, composed, "tea"])
    _, found = predictors.query(one, images, [composed, apart, "tea"], "3 of x")
    assert found.argmax(1).tolist() == [1, 0, 2]
