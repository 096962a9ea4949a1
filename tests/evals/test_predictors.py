"""Models given as functions: the images they get, valid answers, errors and resumption."""

import contextlib
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
    decision_files,
    inference,
    networks,
    plain,
    predictors,
    set_batches,
)
from jbias.measures import cue_conflict
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


def block_means(images):
    """Return sixteen numbers for each image: the means of a 4 x 4 grid of blocks."""
    x = np.asarray(images, np.float32).reshape(len(images), 4, 8, 4, 8, 3)
    return x.mean((2, 4, 5)).reshape(len(images), 16)


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    path = tmp_path_factory.mktemp("suite") / "suite.py"
    path.write_text(SUITE)
    return str(path)


def query(function, **options):
    """Return the kind and the logits of a function's answers to three images of two classes."""
    images = np.zeros((3, 8, 8, 3), np.float32)
    predictor = predictors.as_predictor(function)
    return predictors.query(predictor, images, "ab", "3 of x", **options)


class Tensor:
    """A stand-in for PyTorch's tensor, with the methods that are called."""

    def __init__(self, array):
        self.array = array

    def detach(self):
        return self

    float = cpu = detach

    def __array__(self, dtype=None, copy=None):
        return self.array


def test_logits_probabilities_and_names_are_recognized():
    logits = np.array([[3, 1], [0, 2], [0.1, 0.2]])
    for answer in (logits, logits.tolist(), Tensor(logits)):
        kind, logits_got = query(lambda images, answer=answer: answer)
        assert kind == "logits" and logits_got.dtype == np.float32
        np.testing.assert_array_equal(logits_got, logits.astype(np.float32))
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    kind, logits_got = query(lambda images: shares)
    assert kind == "probabilities"
    np.testing.assert_allclose(np.exp(logits_got), shares, rtol=1e-5)
    kind, logits_got = query(lambda images: ["b", "a", "b"])
    assert kind == "names" and logits_got.argmax(1).tolist() == [1, 0, 1]
    assert query(lambda images: shares, kind="logits")[0] == "logits"


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
def test_invalid_answers_are_refused_in_one_line(answer):
    invalid_answer, kind, message = answer
    with pytest.raises(ValueError, match=message) as error_info:
        query(lambda images: invalid_answer, kind=kind)
    assert "asked about 3 of x" in str(error_info.value)
    assert "\n" not in str(error_info.value)


def test_an_error_inside_names_the_file_and_the_line():
    def fail(images):
        raise RuntimeError("CUDA\n out of memory")

    line = fail.__code__.co_firstlineno + 1
    with pytest.raises(
        ValueError, match="RuntimeError: CUDA out of memory"
    ) as error_info:
        query(fail)
    message = str(error_info.value)
    assert f"{__file__}:{line}, in fail" in message and "\n" not in message
    assert "asked about 3 of x; correct it and repeat the command, which" in message


@cases.each("form", ["float", "uint8"])
def test_images_have_the_requested_form(form):
    pixels = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), np.uint8)
    images_seen = []
    constants = dict(mean=0.5, std=(0.1, 0.2, 0.3)) if form == "float" else {}
    predictor = predictors.Predictor(
        lambda images: images_seen.append(images) or block_means(images),
        classes=CLASSES,
        images=form,
        **constants,
    )
    network = predictors.open_predictor(predictor, 32, print)
    origin = inference.StimulusOrigin("edge", "", np.arange(4))
    network.predict(pixels.astype(np.float32) / 255, origin)
    trial_images, last_images = images_seen
    assert trial_images.shape == (16, 32, 32, 3)
    assert trial_images.dtype == last_images.dtype
    if form == "uint8":
        np.testing.assert_array_equal(last_images, pixels)
    else:
        expected = (pixels / 255 - 0.5) / np.array([0.1, 0.2, 0.3])
        np.testing.assert_allclose(last_images, expected, rtol=1e-5, atol=1e-6)


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
def test_invalid_options_are_refused_before_the_function_is_called(options):
    invalid_options, message = options
    with pytest.raises(ValueError, match=message):
        predictor = predictors.as_predictor(
            pytest.fail, classes=CLASSES, **invalid_options
        )
        predictors.open_predictor(predictor, 32, print)


def test_other_answers_make_another_network_unless_the_version_is_given():
    def identify(scale, **options):
        predictor = predictors.Predictor(
            lambda images: scale * block_means(images),
            classes=CLASSES,
            name="x",
            **options,
        )
        return networks.identity(predictors.open_predictor(predictor, 32, print))

    assert identify(1.0) == identify(2.0) != identify(-1.0)
    assert identify(1.0, version="a") == identify(-1.0, version="a") != identify(1.0)
    assert identify(1.0) != identify(1.0, mean=0.1)


def test_a_model_that_fails_resumes_and_gets_the_numbers_of_one_that_did_not(
    suite, tmp_path, capsys
):
    batch_sizes, failing_calls = [], []

    def model(images):
        if len(batch_sizes) in failing_calls:
            failing_calls.remove(len(batch_sizes))
            raise ConnectionError("the server is gone")
        batch_sizes.append(len(images))
        return block_means(images)

    def measure(out):
        return jbias.measure(
            model,
            suite,
            out=out,
            classes=CLASSES,
            name="mine",
            only=("accuracy", "calibration", "spectral"),
        )

    complete = measure(tmp_path / "whole")
    count = len(batch_sizes)
    assert not complete.left_out and complete.folder == tmp_path / "whole/mine"
    edge = data.load("shapes", "edge", **EDGE)
    is_right = (
        block_means(edge.images / np.float32(255)).argmax(1) == edge.columns["label"]
    )
    rows = complete.numbers.set_index(["condition", "metric"])
    assert rows.loc[("", "accuracy"), "count"] == is_right.sum()
    batch_sizes.clear()
    failing_calls += [2, 6]  # Call 2 is within accuracy, call 6 within spectral.
    out = tmp_path / "broken"
    broken = measure(out)
    assert len(broken.left_out) == 2 and "the server is gone" in broken.left_out[0]
    assert len(list(out.glob("mine/underway/*"))) == 2
    resumed = measure(out)
    assert not resumed.left_out and not (out / "mine/underway").exists()
    # Only the trial and the answers that calibration had shared are computed twice.
    assert len(batch_sizes) == count + 1 + 3
    columns = ["dataset", "condition", "metric", "value", "count", "n"]
    assert resumed.numbers[columns].equals(complete.numbers[columns])
    for path in (tmp_path / "whole").rglob("*.parquet"):
        resumed_path = out / path.relative_to(tmp_path / "whole")
        resumed_decisions = decision_files.read_conditions(resumed_path)
        for name, expected in decision_files.read_conditions(path).items():
            actual = resumed_decisions[name].prediction
            np.testing.assert_array_equal(expected.prediction, actual)
    batch_sizes.clear()
    measure(out)
    assert batch_sizes == [16]
    with pytest.raises(ValueError, match="holds measures of another network"):
        jbias.measure(
            lambda images: -block_means(images),
            suite,
            out=out,
            classes=CLASSES,
            name="mine",
            only=("accuracy", "calibration", "spectral"),
        )


def test_a_failed_first_call_can_be_corrected(suite, tmp_path):
    options = dict(name="mine", out=tmp_path, only=["accuracy"])
    with pytest.raises(ValueError, match="nothing was measured of mine"):
        jbias.measure(block_means, suite, classes=[*map(str, range(16))], **options)
    measurement = jbias.measure(block_means, suite, classes=CLASSES, **options)
    assert len(measurement.numbers) and not measurement.left_out


def write_two_images(path):
    """Write an image of each of two classes, one of them not square; return the paths."""
    rng = np.random.default_rng(0)
    for name, shape in (("circle", (40, 40, 3)), ("ring", (50, 40, 3))):
        (path / "test" / name).mkdir(parents=True)
        pixels = rng.integers(0, 256, shape, np.uint8)
        Image.fromarray(pixels).save(path / "test" / name / "a.png")
    return [path / "test" / name / "a.png" for name in ("circle", "ring")]


def test_names_alone_give_decisions_and_files_are_unchanged(suite, tmp_path):
    stored_bytes = [p.read_bytes() for p in write_two_images(tmp_path / "set")]
    bytes_seen = []

    def model(files):
        bytes_seen.extend(files)
        images = [Image.open(io.BytesIO(file)).resize((32, 32)) for file in files]
        return [CLASSES[k] for k in block_means(np.stack(images)).argmax(1)]

    measurement = jbias.measure(
        predictors.Predictor(model, CLASSES, name="words", images="files"),
        f"{suite}:{tmp_path / 'set'}",
        out=tmp_path / "out",
    )
    assert {*stored_bytes} < {*bytes_seen}
    assert {file[:4] for file in bytes_seen} == {b"\x89PNG"}
    reasons = dict(line.split(": ", 1) for line in measurement.left_out)
    assert "needs images that are made" in reasons["spectral@edge"]
    assert "needs probabilities or logits" in reasons["calibration@edge"]
    assert "needs a network's gradients" in reasons["pgd@edge"] and len(reasons) == 3
    edge = data.load("shapes", "edge", **EDGE)
    num_correct = (block_means(edge.images).argmax(1) == edge.columns["label"]).sum()
    rows = measurement.numbers.set_index(["dataset", "metric"])
    assert rows.loc[("edge", "accuracy"), "count"] == num_correct
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
        share = np.exp(8 * block_means(images))
        return share / share.sum(1, keepdims=True)

    answer_names = lambda images: [CLASSES[k] for k in block_means(images).argmax(1)]
    values_by_name, common = {}, dict(classes=CLASSES, out=tmp_path / "out")
    for answer in (block_means, probabilities, answer_names):
        name = answer.__name__.strip("<>")
        measurement = jbias.measure(
            answer, str(tmp_path / "suite.py"), name=name, **common
        )
        values_by_name[name] = measurement.numbers.set_index("metric")["value"]
    conflict = data.load("shapes", "cue_conflict", size=32, n=240)
    shape, texture = conflict.columns["label"], conflict.columns["texture"]
    logits = block_means(conflict.images / np.float32(255))
    differ = shape != texture
    ranks = cue_conflict.label_ranks(logits, shape)[differ]
    mrr = {name: values.get("mrr_shape") for name, values in values_by_name.items()}
    expected = pytest.approx(cue_conflict.mean_reciprocal_rank(ranks))
    assert mrr == {"block_means": expected, "probabilities": expected, "lambda": None}
    assert values_by_name["lambda"]["shape_bias_undefined"] >= 0


def test_class_names_alone_are_refused_if_some_map_to_no_class_of_the_set():
    """Logits give a decision among the set's classes; a name outside of them gives none."""
    predictor = predictors.Predictor(lambda images: ["a"] * len(images), list("abc"))
    network = predictors.open_predictor(predictor, 32, print)
    assert not network.graded
    class_matrix = np.array([[1, 0], [0, 0.5], [0, 0.5]], np.float32)
    for matrix in (None, class_matrix, class_matrix * [[1], [1], [0]]):
        rules = {"mean_prob": inference.DecisionRule(1, matrix)}
        zero = np.zeros(1, int)
        dataset = set_batches.PreparedSet("x", zero, zero, {}, zero, rules, ("d", "e"))
        is_valid = matrix is None or matrix.any(1).all()
        with (
            contextlib.nullcontext()
            if is_valid
            else pytest.raises(ValueError, match="answer for none of the set's")
        ):
            set_batches.check_needs("plain", plain.make(), network, dataset)


def test_answers_use_the_given_names_of_classes():
    class_names = {"gold": "n01443537", "other": "tench"}
    predictor = predictors.Predictor(lambda images: ["gold"] * len(images), class_names)
    network = predictors.open_predictor(predictor, 32, print)
    assert network.classes == ("n01443537", "n01440764") and network.space == "wnid"
    origin = inference.StimulusOrigin("x", "", np.arange(2))
    assert (network.predict(np.zeros((2, 32, 32, 3)), origin).argmax(1) == 0).all()


def test_constants_must_be_given_for_functions_with_gradients():
    predictor = predictors.Predictor(block_means, CLASSES, apply=block_means)
    assert predictors.as_predictor(predictor, name="x").apply is block_means
    with pytest.raises(ValueError, match="std: must be said where gradients are"):
        predictors.as_predictor(predictor, std=(1, 1, 1))


MODEL_FILE = """
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
def model_file(tmp_path):
    (tmp_path / "beside.py").write_text("SCALE = 2.0\n")
    (tmp_path / "mine.py").write_text(MODEL_FILE.format(classes=CLASSES))
    (tmp_path / "names.txt").write_text("\n".join(CLASSES))
    return tmp_path / "mine.py"


def command(model_file, suite, name, *more):
    args = f"--predict={model_file}:{name}", f"--suite={suite}", "--only=accuracy"
    return evaluate.main([*args, *more, f"--out={model_file.parent / 'out'}"])


def test_the_command_measures_a_function_of_a_file(model_file, suite, capsys):
    names = f"--classes={model_file.parent / 'names.txt'}"
    assert command(model_file, suite, "plain", names, "--trained=shapes") == 0
    assert command(model_file, suite, "declared") == 0
    assert command(model_file, suite, "broken", names) == 1
    err = capsys.readouterr().err
    assert f"error in {model_file}:10, in broken" in err and "Traceback" not in err
    out = pathlib.Path(model_file.parent / "out")
    assert sorted(path.name for path in out.iterdir()) == ["plain", "said"]
    config = json.loads((out / "plain/config.json").read_text())
    assert config["train"]["data"] == "shapes" and config["run"]["images"] == "float"


@cases.each(
    "case",
    {
        "file": ("nowhere.py", "plain", "--predict: must be path/to/file.py:name"),
        "name": ("mine.py", "plian", "did you mean 'plain'?"),
    }.values(),
)
def test_an_absent_function_is_refused(model_file, suite, capsys, case):
    file, name, message = case
    assert command(model_file.parent / file, suite, name) == 2
    assert message in capsys.readouterr().err


def test_python_s_own_names_of_a_file_are_not_offered(model_file, suite, capsys):
    assert command(model_file, suite, "main") == 2
    err = capsys.readouterr().err
    assert "unknown 'main'" in err and "broken" in err and "__" not in err


def test_flags_without_effect_on_a_function_are_refused(capsys):
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


def of_images_and_labels(images, labels):
    return images


async def async_answer(images):
    return images


def generate_answers(images):
    yield images


class Model:
    def __init__(self, images=None):
        self.images = images

    def __call__(self, images):
        return block_means(images)

    def keyword_needed(self, images, *, scale):
        return images


@cases.each(
    ("function", "message"),
    [
        (
            of_images_and_labels,
            r"called with one argument, .* got of_images_and_labels\(images, labels\) \(missing a req",
        ),
        (lambda: 0, "called with one argument"),
        (Model().keyword_needed, "missing a required.* argument: 'scale'"),
        (
            functools.partial(of_images_and_labels, labels=1, other=2),
            "called with one argument|unexpected",
        ),
        (async_answer, "not be an async function"),
        (functools.partial(async_answer), "not be an async function"),
        (generate_answers, "return its answers, not yield"),
        (Model, r"function of images, got .*; give an object of it, Model\(\.\.\.\)"),
    ],
)
def test_a_function_with_an_unsuitable_signature_is_refused(function, message):
    with pytest.raises(ValueError, match=message) as error_info:
        predictors.Predictor(function, CLASSES)
    assert not isinstance(error_info.value, messages.UserCodeError)
    assert "\n" not in str(error_info.value)


def test_any_callable_of_one_argument_is_accepted():
    for function in (
        block_means,
        Model(),
        functools.partial(of_images_and_labels, labels=0),
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


def test_rows_may_be_tensors_and_low_precision_numbers():
    logits = np.array([[3, 1], [0, 2], [1, 2]], np.float32)
    rows = [WithGradient(row) for row in logits]
    for answer in (WithGradient(logits), rows, tuple(rows), jnp.bfloat16(logits)):
        np.testing.assert_array_equal(query(lambda images, x=answer: x)[1], logits)


@cases.each(
    ("answer", "message"),
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
def test_an_answer_of_an_invalid_type_is_refused_with_its_type(answer, message):
    with pytest.raises(ValueError, match=message) as error_info:
        query(lambda images: answer)
    assert "\n" not in str(error_info.value)


ENDING = """
import os, sys
def f(images):
    {end}
"""


@cases.each("end", ["sys.exit(0)", "raise SystemExit", "exit()"])
def test_a_function_that_exits_is_an_error(suite, tmp_path, capsys, end):
    """A file that exits when it is imported is an error, too, and a suite that exits."""
    body = ENDING.format(end=end)
    (tmp_path / "inside.py").write_text(body)
    (tmp_path / "atop.py").write_text(f"{body}f(0)\n")
    (tmp_path / "suite.py").write_text(f"{body}def get_config(text=''):\n    f(0)\n")
    names = tmp_path / "names.txt"
    names.write_text("\n".join(CLASSES))
    class_argument = f"--classes={names}"
    for name, code in (("inside", 1), ("atop", 1)):
        assert command(tmp_path / f"{name}.py", suite, "f", class_argument) == code
        error_output = capsys.readouterr().err
        assert (
            f"{name}.py:4, in f: SystemExit" in error_output
            or "sys.exit" in error_output
        )
    assert (
        command(tmp_path / "inside.py", tmp_path / "suite.py", "f", class_argument) == 2
    )
    assert ": calls sys.exit(" in capsys.readouterr().err


@pytest.mark.slow
def test_a_function_that_ends_the_process_is_an_error(suite, tmp_path):
    (tmp_path / "mine.py").write_text(ENDING.format(end="os._exit(0)") + "f(0)\n")
    flags = f"--predict={tmp_path / 'mine.py'}:f", f"--suite={suite}"
    process = subprocess.run(
        [sys.executable, "-m", "jbias.evaluate", *flags, f"--out={tmp_path / 'out'}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 1 and "Traceback" not in process.stderr
    assert "mine.py: os._exit(0) ended the program" in process.stderr


@cases.each("offset", [0, 1e9, -1e9, 2**40])
@cases.each("kind", [np.float64, np.int64])
def test_numbers_with_a_large_common_offset_keep_their_order(offset, kind):
    """Decisions equal NumPy's argmax of the outputs before they are rounded."""
    rng = np.random.default_rng(0)
    if kind is np.float64:
        answers = rng.normal(size=(200, 16))
    else:
        answers = rng.permuted(np.tile(np.arange(16), (200, 1)), axis=1)
    answers = answers.astype(kind) + kind(offset)
    rounded = predictors._to_float32(answers)
    assert rounded.dtype == np.float32
    np.testing.assert_array_equal(rounded.argmax(1), answers.argmax(1))
    assert (np.argsort(rounded, axis=1) == np.argsort(answers, axis=1)).mean() > 0.99


def test_numbers_that_float32_can_represent_do_not_change():
    answers = np.random.default_rng(1).normal(size=(50, 10)).astype(np.float32)
    np.testing.assert_array_equal(predictors._to_float32(answers), answers)
    in_float64 = answers.astype(np.float64)
    np.testing.assert_array_equal(predictors._to_float32(in_float64), answers)


@cases.each("kind", ["", "probabilities"])
def test_probabilities_in_float64_and_float32_give_the_same_answers(kind):
    """Some of the probabilities are 0 only in float32, as after a confident softmax."""
    logits = np.random.default_rng(2).normal(size=(16, 10)) * 60
    probabilities = np.exp(logits - logits.max(1, keepdims=True))
    probabilities /= probabilities.sum(1, keepdims=True)
    assert ((probabilities > 0) & (probabilities.astype(np.float32) == 0)).sum() > 1
    answers = {}
    for dtype in (np.float32, np.float64):
        shares = probabilities.astype(dtype)
        predictor = predictors.Predictor(lambda images, shares=shares: shares)
        images, classes = np.zeros((16, 8, 8, 3), np.float32), "abcdefghij"
        kind_found, log_probabilities = predictors.query(
            predictor, images, classes, "16 of x", kind
        )
        assert kind_found == "probabilities"
        answers[dtype] = log_probabilities
    np.testing.assert_array_equal(answers[np.float64], answers[np.float32])
    expected = np.log(np.maximum(probabilities, np.finfo(np.float32).tiny))
    # The tolerance is that of numbers rounded to float32.
    np.testing.assert_allclose(answers[np.float64], expected, rtol=1e-6, atol=1e-6)


def test_numbers_with_a_large_common_offset_keep_their_order_beside_masked_classes():
    """Decisions equal NumPy's argmax in float64; masked classes keep -inf."""
    answers = 1e9 + np.array([[0, 1, 2, -np.inf], [3, 1, -np.inf, 2], [0, 1, 2, 3]])
    predictor = predictors.Predictor(lambda images: answers)
    _, scores = predictors.query(predictor, np.zeros((3, 8, 8, 3)), "abcd", "3 of x")
    np.testing.assert_array_equal(scores.argmax(1), answers.argmax(1))
    np.testing.assert_array_equal(np.isneginf(scores), np.isneginf(answers))
    np.testing.assert_array_equal(scores[0], [-2, -1, 0, -np.inf])


def test_accents_in_class_names_may_be_composed_or_not():
    composed, decomposed = (
        unicodedata.normalize(form, "café") for form in ("NFC", "NFD")
    )
    images = np.zeros((3, 8, 8, 3), np.float32)
    for class_name, answered_name in ((composed, decomposed), (decomposed, composed)):
        predictor = predictors.Predictor(
            lambda images, x=(answered_name, "tea", class_name): [*x]
        )
        kind, scores = predictors.query(
            predictor, images, [class_name, "tea"], "3 of x"
        )
        assert kind == "names" and scores.argmax(1).tolist() == [0, 1, 0]
    predictor = predictors.Predictor(lambda images: [decomposed, composed, "tea"])
    _, scores = predictors.query(
        predictor, images, [composed, decomposed, "tea"], "3 of x"
    )
    assert scores.argmax(1).tolist() == [1, 0, 2]
